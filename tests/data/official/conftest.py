"""Fixtures of the tests of official layouts: small copies on a local server."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from serving import local, ready, serve, tar_of
from small_copies import MAKERS, voc_members, voc_words

from spml_nb.data.loading import load
from spml_nb.data.official.registry import prepare_benchmark

SHARED = Path(__file__).resolve().parents[4] / 'shared' / 'data'


@pytest.fixture
def photos_at_hand():
    "name → a folder of real photos with their table, outside the checkout."

    def find(name):
        if not (SHARED / name).is_dir():
            pytest.skip(f'the photos of {name} are not here')
        return SHARED / name

    return find


@pytest.fixture
def voc12(tmp_path):
    """Archive of VOC 2012: 30 + 10 images, listed out of order. Returns: (folder, train names and
    words, val names and words).
    """
    train, val = (
        [f'20{8 + k % 3:02}_{(k * 7919) % 1000:06}' for k in rows]
        for rows in (range(30), range(30, 40))
    )
    parts = {'train': (train, voc_words(30, 0)), 'val': (val, voc_words(10, 1))}
    (tmp_path / 'served').mkdir()
    tar_of(tmp_path / 'served' / 'VOCtrainval_11-May-2012.tar', voc_members(2012, parts), 'w')
    return tmp_path / 'served', parts['train'], parts['val']


@pytest.fixture
def copy(tmp_path):
    """name → (Benchmark of a small copy, its root, what must come out, server): what can be fetched
    is served, the rest lies in downloads/.
    """
    servers = []

    def make(name):
        folder, root = tmp_path / 'server', tmp_path / 'data'
        (root / name / 'downloads').mkdir(parents=True)
        folder.mkdir()
        expected = MAKERS[name](folder)
        server = serve(folder)
        servers.append(server)
        running = server.__enter__()
        split = expected[2]
        counts = {
            'train': len(split) - split.count('test'),
            'test': split.count('test'),
            'classes': len(expected[0]),
        }
        benchmark = local(name, folder, running.url, counts=counts)
        for archive in benchmark.archives:
            if not archive.urls:
                shutil.move(folder / archive.file, root / name / 'downloads' / archive.file)
        return benchmark, root, expected, running

    yield make
    for server in servers:
        server.__exit__(None, None, None)


@pytest.fixture
def unpacked(tmp_path, copy):
    "name → the images folder of a small copy, unpacked."

    def make(name):
        benchmark, root, expected, _ = copy(name)
        prepare_benchmark(benchmark, root, tell=lambda line: None)
        return root / name / 'images', expected

    return make


@pytest.fixture
def goes_round(copy):
    """name → its copy went from the archives to a Dataset: (data, root); what came out is what was
    written, and everything was fetched once.
    """

    def check(name):
        benchmark, root, (class_names, labels, split, images), server = copy(name)
        data = ready(benchmark, root)
        assert (
            data.class_names == list(class_names)
            and np.array_equal(data.labels, labels)
            and data.split.tolist() == split
        )
        if images:
            assert all(
                path.as_posix().endswith(f'/{end}')
                for path, end in zip(data.images, images, strict=True)
            )
        fetched = sorted(archive.file for archive in benchmark.archives if archive.urls)
        assert (
            sorted(file for file, _ in server.log) == fetched
            and load(name, root=root).fingerprint == data.fingerprint
        )
        return data, root

    return check
