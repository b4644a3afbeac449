"""What the tests of downloads and benchmarks share: a local server with faults, builders of small
archives, the whole way from archive to scores.
"""

import contextlib
import dataclasses
import hashlib
import io
import re
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from spml_nb import training
from spml_nb.data.loading import load
from spml_nb.data.official.registry import find_benchmark, list_missing_files, prepare_benchmark
from spml_nb.runs.config import Config


class Server(ThreadingHTTPServer):
    "Serves the files of a folder; `log` holds (file, Range header or None) of each request."

    daemon_threads = True

    def __init__(
        self, folder, drop=None, ranges=True, etag=True, length=True, status=None, hold=None
    ):
        super().__init__(('127.0.0.1', 0), Handler)
        self.folder, self.log, self.hold = Path(folder), [], hold
        self.drop, self.status = (
            {
                name: [value] * 1000 if isinstance(value, int) else list(value)
                for name, value in (given or {}).items()
            }
            for given in (drop, status)
        )
        self.ranges, self.etag, self.length = ranges, etag, length

    @property
    def url(self):
        return f'http://127.0.0.1:{self.server_port}'

    def next_of(self, faults, name):
        "The next fault of a file: one a request, then none."
        return faults[name].pop(0) if faults.get(name) else None


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *words):
        pass

    def do_GET(self):
        server, name = self.server, self.path.split('?')[0].rsplit('/', 1)[-1]
        server.log.append((name, self.headers['Range']))
        if server.hold is not None:
            server.hold.wait(300)
        self.close_connection = True
        file, status = server.folder / name, server.next_of(server.status, name)
        if status or not file.is_file():
            self.send_error(status or 404)
            return
        content = file.read_bytes()
        first = self.first_byte(content)
        if first is not None and first >= len(content):
            self.send_response(416)
            self.send_header('Content-Range', f'bytes */{len(content)}')
            self.end_headers()
            return
        self.send_response(200 if first is None else 206)
        if first is not None:
            self.send_header('Content-Range', f'bytes {first}-{len(content) - 1}/{len(content)}')
        if server.length:
            self.send_header('Content-Length', str(len(content) - (first or 0)))
        if server.etag:
            self.send_header('ETag', self.tag(content))
        self.end_headers()
        dropped = server.next_of(server.drop, name)
        body = content[first or 0 :]
        self.wfile.write(body if dropped is None else body[:dropped])

    def tag(self, content):
        return f'"{hashlib.md5(content).hexdigest()}"'

    def first_byte(self, content):
        "Where a Range request starts; None: send everything."
        asked = re.fullmatch(r'bytes=(\d+)-', self.headers['Range'] or '')
        if (
            not asked
            or not self.server.ranges
            or self.headers.get('If-Range', self.tag(content)) != self.tag(content)
        ):
            return None
        return int(asked[1])


@contextlib.contextmanager
def serve(folder, **faults):
    """Serve a folder for the length of a `with` block; yields the Server.

    drop: {file: bytes after which the connection is closed, an int for always or a list, one a
        request, None for a whole answer};
    status: {file: HTTP status, likewise}; ranges, etag, length: False leaves that out; hold: an
        Event that answers wait for.
    """
    server = Server(folder, **faults)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={'poll_interval': 0.02}, daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def tar_of(file, members, mode='w:gz'):
    "Write a tar of {name in archive: bytes}."
    with tarfile.open(file, mode) as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return file


def zip_of(file, members):
    "Write a zip of {name in archive: bytes}."
    with zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file


def drawing(row, side=48):
    """A drawing that shows the labels of `row`: a bright square a positive, at a place and in a
    colour of its own.
    """
    row = np.asarray(row) > 0
    image = Image.new('RGB', (side + 8, side), (40, 40, 40))
    draw, across = ImageDraw.Draw(image), int(np.ceil(np.sqrt(len(row))))
    for c in np.flatnonzero(row):
        x = (c % across) * side // across
        y = (c // across) * side // across
        edge = max(side // across, 2)
        draw.rectangle(
            [x, y, x + edge - 1, y + edge - 1],
            fill=(90 + 37 * c % 160, 90 + 91 * c % 160, 90 + 59 * c % 160),
        )
    return image


def _encoded(row, side, kind):
    out = io.BytesIO()
    drawing(row, side).save(out, kind, **({'quality': 92} if kind == 'JPEG' else {}))
    return out.getvalue()


def jpeg(row, side=48):
    return _encoded(row, side, 'JPEG')


def png(row, side=48):
    return _encoded(row, side, 'PNG')


def local(name, folder, url, **changes):
    """The registered benchmark with its archives at `url` and the checksums of the files in
    `folder`; `changes` are fields of Benchmark.
    """

    def moved(archive):
        file = Path(folder) / archive.file
        md5 = hashlib.md5(file.read_bytes()).hexdigest() if file.is_file() else None
        return dataclasses.replace(
            archive,
            urls=(f'{url}/{archive.file}',) if archive.urls else (),
            md5=md5 if archive.md5 else None,
            sha256=None,
            bytes=None,
        )

    benchmark = find_benchmark(name)
    return dataclasses.replace(benchmark, archives=tuple(map(moved, benchmark.archives)), **changes)


TINY = {'backbone': 'mini', 'image_size': 40, 'regime': 'finetune', 'epochs': 1, 'batch_size': 4}


def ready(benchmark, root):
    "Prepare, check, load. Returns: Dataset."
    prepare_benchmark(benchmark, root, tell=lambda line: None)
    assert list_missing_files(benchmark, root) == []
    return load(benchmark.name, root=root)


def trained(benchmark, root, monkeypatch, **config):
    """Prepare and load; train one epoch on it by its name, and evaluate the run. Returns: (Dataset,
    scores of the test rows).
    """
    for name in ('data', 'cache', 'runs'):
        monkeypatch.setenv(
            f'SPML_NB_{name.upper()}', str(Path(root) / ('' if name == 'data' else f'.{name}'))
        )
    data = ready(benchmark, root)
    training.train(
        Config(**{'loss': 'an', 'dataset': benchmark.name, 'labels': 'full', **TINY, **config})
    )
    (folder,) = (file.parent for file in (Path(root) / '.runs').glob('*/result.json'))
    scores, logits, _ = training.evaluate(folder, benchmark.name, root=str(root))
    assert logits.shape == (len(data.rows('test')), len(data.class_names)) and np.isfinite(
        scores['map']
    )
    return data, scores
