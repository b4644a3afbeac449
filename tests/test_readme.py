"""README.md names every folder of notebooks and only commands that there are, and its two recipes
run as they stand.
"""

import ast
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]


def test_every_folder_of_notebooks_is_named_in_readme():
    after = (ROOT / 'README.md').read_text().split('## Which notebook for what')[1]
    places = {
        file.relative_to(ROOT / 'nbs').with_suffix('').parts[0]
        for file in (ROOT / 'nbs').rglob('*.ipynb')
        if '.ipynb_checkpoints' not in file.parts
    }
    missing = sorted(place for place in places if f'`nbs/{place}' not in after)
    assert len(places) > 10 and not missing, f'a word for {missing} in "Which notebook for what"'


def test_readme_begins_with_what_people_look_for():
    text = (ROOT / 'README.md').read_text()
    assert (
        text.index('one positive label')
        < text.index('make demo')
        < text.index('](outputs/front.svg)')
        < text.index('| gain, published / ours |')
    )
    first = '\n'.join(text.splitlines()[:30])
    assert all(
        words in first
        for words in (
            'make demo',
            'make test',
            'Python 3.11',
            '(#your-photos)',
            'TROUBLESHOOTING.md',
        )
    )
    assert [
        line.split('#')[0].strip() for line in text.split('```')[1].strip().splitlines()[:2]
    ] == ['make demo', 'make test']


def test_every_command_in_readme_is_one():
    from spml_nb import cli

    text = (ROOT / 'README.md').read_text()
    used = {
        line.split()[1]
        for part in text.split('`')
        for line in part.splitlines()
        if line.startswith('spml ')
    }
    (commands,) = [action for action in cli.parser()._actions if action.dest == 'command']
    assert used == set(commands.choices)
    targets = {
        line.split(':')[0]
        for line in (ROOT / 'Makefile').read_text().splitlines()
        if line[:1].isalpha()
    }
    assert {
        line.split()[1]
        for part in text.split('`')
        for line in part.splitlines()
        if line.startswith('make ')
    } <= targets


def recipe(word):
    "The Python of README.md in which a word stands."
    (found,) = [
        code
        for code in re.findall(r'```python\n(.*?)```', (ROOT / 'README.md').read_text(), re.S)
        if word in code
    ]
    return found


def lying_photo(file, seed=0):
    "A photo that only its EXIF tag turns upright, as phones write it."
    pixels = np.random.RandomState(seed).randint(0, 255, (6, 9, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).resize((180, 120)).save(file, exif=exif, quality=95)
    return file


def test_the_recipe_for_onnx_runtime_names_what_the_model_names(made, tmp_path):
    from spml_nb.use.export import export
    from spml_nb.use.predict import open_model

    code, run = recipe('onnxruntime'), made.run('cosine').folder
    assert len(code.splitlines()) <= 17 and 'spml_nb' not in code
    export(run, tmp_path / 'model.onnx')
    for seed in range(3):
        photo = lying_photo(tmp_path / 'photo.jpg', seed)
        done = subprocess.run(
            [sys.executable, '-c', code + "\nprint(json.dumps(probabilities.tolist()))"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        named, p = done.stdout.splitlines()
        table = open_model(run).predict(photo)
        assert np.abs(np.array(json.loads(p)) - table.iloc[0, 1:-1].to_numpy(float)).max() < 1e-5
        assert '|'.join(ast.literal_eval(named)) == table.labels[0]
        straight = Image.open(photo).convert('RGB')
        straight.save(tmp_path / 'straight.png')  # the tag matters to this model
        assert (
            np.abs(
                open_model(run).predict(tmp_path / 'straight.png').iloc[0, 1:-1].to_numpy(float)
                - np.array(json.loads(p))
            ).max()
            > 1e-4
        )


@pytest.mark.silent('C3')
def test_the_recipe_for_onnx_runtime_sees_white_where_a_picture_is_transparent(made, tmp_path):
    from spml_nb.use.export import export
    from spml_nb.use.predict import open_model

    run, said = made.run('cosine').folder, []
    export(run, tmp_path / 'model.onnx')
    for hidden in (0, 200):
        pixels = np.random.RandomState(0).randint(0, 255, (60, 90, 4), dtype=np.uint8)
        pixels[:, :45] = hidden, hidden, hidden, 0
        Image.fromarray(pixels).save(tmp_path / 'photo.jpg', 'png')
        done = subprocess.run(
            [
                sys.executable,
                '-c',
                recipe('onnxruntime') + "\nprint(json.dumps(probabilities.tolist()))",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        said.append(json.loads(done.stdout.splitlines()[1]))
        assert (
            np.abs(
                np.array(said[-1])
                - open_model(run).predict(tmp_path / 'photo.jpg').iloc[0, 1:-1].to_numpy(float)
            ).max()
            < 1e-5
        )
    assert said[0] == said[1]


@pytest.fixture
def service():
    "The service of README.md on a free port, with three seconds for a request. Returns: its port."
    code = recipe('HTTPServer').rstrip().rpartition('\n')
    names = {}
    exec(code[0], names)  # all but the line that serves for ever
    names['Answer'].log_message = lambda *_: None
    assert names['Answer'].timeout, 'a slow request would stay for ever'
    names['Answer'].timeout = 3
    kind = names.get('ThreadingHTTPServer') or names['HTTPServer']
    assert kind.__name__ in code[2]
    with kind(('localhost', 0), names['Answer']) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def ask(port, head, sent=b''):
    "Send a request as it stands. Returns: what comes back before the connection is closed."
    with socket.create_connection(('localhost', port), timeout=20) as connection:
        connection.sendall(head + b'\r\n\r\n' + sent)
        return b''.join(iter(lambda: connection.recv(4096), b''))


@pytest.mark.silent('C10')
def test_the_service_reads_no_photo_that_is_too_large(service):
    assert (
        b' 413 ' in ask(service, b'POST / HTTP/1.0\r\nContent-Length: 3000000000').splitlines()[0]
    )
    for length in (b'', b'\r\nContent-Length: -1', b'\r\nContent-Length: many'):
        assert b' 411 ' in ask(service, b'POST / HTTP/1.0' + length).splitlines()[0]


@pytest.mark.silent('C10')
def test_a_slow_request_is_closed_and_holds_up_no_other(service, tmp_path):
    photo = lying_photo(tmp_path / 'photo.jpg').read_bytes()
    with socket.create_connection(('localhost', service), timeout=20) as slow:
        slow.sendall(b'POST / HTTP/1.0\r\nContent-Length: 1000\r\n\r\nhalf')
        assert 'person' in json.load(
            urllib.request.urlopen(f'http://localhost:{service}', photo, timeout=20)
        )
        slow.setblocking(False)
        with pytest.raises(BlockingIOError):
            slow.recv(4096)  # still open: the other did not wait for its end
        slow.settimeout(20)
        assert slow.recv(4096) == b''  # closed without an answer


@pytest.mark.silent('C10')
def test_the_service_gives_no_other_format_to_a_decoder(service, monkeypatch):
    from PIL import EpsImagePlugin

    started = []
    monkeypatch.setattr(
        EpsImagePlugin,
        'Ghostscript',
        lambda *_, **__: started.append(1) or Image.new('RGB', (9, 9)).im,
    )
    sent = b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n'
    assert (
        b' 400 '
        in ask(
            service, f'POST / HTTP/1.0\r\nContent-Length: {len(sent)}'.encode(), sent
        ).splitlines()[0]
        and not started
    )


def test_the_recipe_for_a_service_answers(tmp_path):
    from spml_nb.use.predict import predict

    (tmp_path / 'serve.py').write_text(recipe('HTTPServer'))
    photo = lying_photo(tmp_path / 'photo.jpg')
    with socket.socket() as free:
        free.bind(('localhost', 0))
        port = free.getsockname()[1]
    environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
    with subprocess.Popen(
        [sys.executable, 'serve.py', str(port)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as server:
        try:
            for _ in range(600):
                assert server.poll() is None, server.stderr.read().decode()
                try:
                    answer = json.load(
                        urllib.request.urlopen(
                            f'http://localhost:{port}', photo.read_bytes(), timeout=100
                        )
                    )
                except urllib.error.URLError:
                    time.sleep(0.2)
                else:
                    break
        finally:
            server.terminate()
    row = predict('coco18', photo).iloc[0]
    assert answer['labels'] == row['labels'] and abs(answer['person'] - row['person']) < 1e-6
