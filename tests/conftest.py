"""Fixtures that several test files share. What lies outside the checkout is optional: without it
the tests that use it are skipped.
"""

import json
import os
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from spml_nb import training
from spml_nb.base import settings
from spml_nb.runs import record

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / 'shared'


class Golden:
    """Inputs and outputs of the papers' released code: golden.case('em') → dict of arrays, `hp`
    decoded.
    """

    def __init__(self, arrays):
        self.arrays = arrays

    def names(self):
        return sorted({k.split('/')[0] for k in self.arrays})

    def case(self, name):
        fields = {
            k.split('/', 1)[1]: self.arrays[k] for k in self.arrays if k.split('/')[0] == name
        }
        if 'hp' in fields:
            fields['hp'] = json.loads(str(fields['hp']))
        return fields


def pytest_configure(config):
    """Features and decoded photos of the tests are theirs alone: what an older or a broken state of
    the code has kept is not read, and none is left behind.
    """
    if hasattr(config, 'workerinput'):
        return  # a process of pytest-xdist shares the folder of its parent
    config.cache_of_tests = TemporaryDirectory(prefix='spml_nb-tests-')
    os.environ['SPML_NB_CACHE'] = config.cache_of_tests.name


# Files of few tests and long ones. They begin first: a process that takes one last lets the others
# wait (`--no-loadscope-reorder` in Makefile keeps this order).
LONG = (
    'test_rehearsal.py',
    'test_faults_kill.py',
    'test_website.py',
    'test_jupyterlab.py',
    'test_types.py',
    'test_tutorials.py',
    'test_wheel.py',
    'test_other_loops.py',
    'test_notebooks.py',
    'test_pages.py',
)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


def pytest_unconfigure(config):
    if hasattr(config, 'cache_of_tests'):
        config.cache_of_tests.cleanup()


@pytest.fixture(scope='session', autouse=True)
def parse_each_record_once():
    """Tests read outputs/runs.csv dozens of times, and each time takes a second. A text that was
    parsed is not parsed again; every reader gets a copy of the table.
    """
    parse = lru_cache(maxsize=4)(record._parse_record)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, '_parse_record', lambda *text, **how: parse(*text, **how).copy())
        yield


@pytest.fixture(scope='session')
def golden():
    with np.load(ROOT / 'tests' / 'golden.npz') as arrays:
        return Golden(dict(arrays))


@pytest.fixture(scope='session')
def ccp():
    folder = SHARED / 'data' / 'ccp'
    if not folder.is_dir():
        pytest.skip('the Clothing Co-Parsing photos are not here')
    return folder


@pytest.fixture(scope='session')
def label_matrices():
    file = SHARED / 'data' / 'label_matrices.npz'
    if not file.is_file():
        pytest.skip('the label matrices are not here')
    with np.load(file) as arrays:
        return dict(arrays)


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    "Every test writes runs and outputs into its own folder; the cache is shared by a session."
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'runs'))
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path / 'outputs'))
    monkeypatch.setenv('SPML_NB_DEVICE', os.environ.get('SPML_NB_DEVICE', 'cpu'))


def draw_photo_folder(folder):
    """60 drawn photos with three classes: the colour of the upper half, and whether the lower half
    is bright. Returns: the folder.
    """
    rng = np.random.RandomState(0)
    (folder / 'images').mkdir(parents=True)
    rows = []
    for i in range(60):
        names = [('red', 'blue')[i % 2], *(['bright'] if i % 3 else [])]
        pixels = rng.randint(0, 60, (40, 40, 3), dtype=np.uint8)
        pixels[:20, :, 0 if i % 2 == 0 else 2] = 220
        if i % 3:
            pixels[20:] = 230
        Image.fromarray(pixels).save(folder / 'images' / f'{i:03}.png')
        rows.append({'image': f'{i:03}.png', 'labels': '|'.join(names)})
    pd.DataFrame(rows).to_csv(folder / 'labels.csv', index=False)
    return folder


@pytest.fixture(scope='session')
def made(tmp_path_factory):
    "Photos and small runs on them, shared by a session."
    from trained import Made

    return Made(tmp_path_factory.mktemp('made'))


@pytest.fixture
def photo_folder(tmp_path):
    return draw_photo_folder(tmp_path / 'photos')


@pytest.fixture
def in_process(monkeypatch):
    "Sweeps train here: starting a worker takes many times as long as a small run."
    from spml_nb.sweeps import queue

    def train(todo, jobs, address, tell):
        for name, config in zip(todo.run, todo.config, strict=True):
            yield name, queue.attempt_run(config)

    monkeypatch.setitem(queue.ENGINES, 'local', train)


def check_resumes_equally(config, monkeypatch):
    """A run stopped after each of its epochs and taken up again ends with the same bits as one that
    was not.
    """
    whole = training.train(config)
    monkeypatch.setenv('SPML_NB_RUNS', str(settings.get_folder('runs')) + '-resumed')

    class Stop(Exception):
        pass

    def stop(curves):
        raise Stop

    for _ in range(len(whole.curves)):
        with pytest.raises(Stop):
            training.train(config, on_epoch=stop)
    resumed = training.train(config)
    assert np.array_equal(whole.logits['test'], resumed.logits['test'])
    pd.testing.assert_frame_equal(
        whole.curves.drop(columns='seconds'),
        resumed.curves.drop(columns='seconds'),
        check_exact=True,
    )
