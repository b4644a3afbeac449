"""The notebooks as a person runs them: papermill from the project's root, exit status and all."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from quick import fields

from spml_nb import runs

ROOT = Path(__file__).resolve().parents[1]


def papermill(tmp_path, *words, notebook='train.ipynb', cwd=ROOT):
    "Run a notebook; returns the finished process and the text of all its outputs."
    out = tmp_path / 'out.ipynb'
    env = {**os.environ, 'SPML_NB_RUNS': str(tmp_path / 'runs')}
    env.pop('IN_TEST', None)
    process = subprocess.run(
        [
            sys.executable,
            '-m',
            'papermill',
            str(ROOT / 'nbs' / notebook),
            str(out),
            *words,
            '--no-progress-bar',
        ],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    outputs = (
        [o for c in nbformat.read(out, 4).cells for o in c.get('outputs', [])]
        if out.exists()
        else []
    )
    return process, outputs


def test_one_command_trains_and_another_evaluates(tmp_path):
    process, outputs = papermill(
        tmp_path,
        *fields(loss='em', regime='linear', epochs=3),
        '-y',
        'hparams: {alpha: 1e-1}',
    )
    assert process.returncode == 0, process.stderr
    assert (
        'unknown parameter' not in process.stderr
    )  # papermill's word for what the parameters cell does not define
    done = list((tmp_path / 'runs').glob('*/DONE'))
    assert len(done) == 1
    config = json.loads((done[0].parent / 'config.json').read_text())
    assert (config['loss'], config['regime'], config['epochs'], config['hparams']['alpha']) == (
        'em',
        'linear',
        3,
        0.1,
    )
    assert sum(bool({'image/png', 'image/jpeg'} & set(o.get('data', {}))) for o in outputs) >= 4
    process, outputs = papermill(
        tmp_path, '-p', 'run', done[0].parent.name, notebook='evaluate.ipynb', cwd=tmp_path
    )
    assert process.returncode == 0, process.stderr
    score = json.loads((done[0].parent / 'result.json').read_text())['scores']['test_map']
    assert f'mAP {score:.2f} %' in ''.join(o.get('text', '') for o in outputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    'words',
    [
        ('-p', 'loss', 'hml', '-p', 'dataset', 'mini_coco'),
        ('-p', 'loss', 'lac_plc', '-p', 'cached_views', '1', '-y', 'hparams: {threshold: 0.7}'),
    ],
)
def test_other_methods_through_papermill(tmp_path, words):
    process, _ = papermill(tmp_path, *words, '-p', 'regime', 'linear', '-p', 'epochs', '1')
    assert process.returncode == 0, process.stderr
    assert len(list((tmp_path / 'runs').glob('*/DONE'))) == 1


@pytest.mark.parametrize(
    'words, told',
    [
        (('-p', 'los', 'an'), ["unknown parameter 'los'", "Did you mean 'loss'?"]),
        (('-p', 'lr', 'abc'), ["'lr'", 'must be a number', "'abc'"]),
    ],
)
def test_wrong_parameters_stop_the_notebook(tmp_path, words, told):
    process, _ = papermill(tmp_path, *words)
    assert process.returncode != 0
    for word in told:
        assert word in process.stderr
    assert not (tmp_path / 'runs').exists()


def test_parameters_cells_keep_their_tag():
    for name in ('train.ipynb', 'evaluate.ipynb'):
        cells = nbformat.read(ROOT / 'nbs' / name, 4).cells
        assert sum('parameters' in c.metadata.get('tags', []) for c in cells) == 1


def test_the_parameters_cell_defines_what_readme_gives():
    "Else papermill warns of an unknown parameter, although it is one."
    (cell,) = (
        c
        for c in nbformat.read(ROOT / 'nbs' / 'train.ipynb', 4).cells
        if 'parameters' in c.metadata.get('tags', [])
    )
    names = {}
    exec(cell.source, names)
    commands = [
        line
        for line in (ROOT / 'README.md').read_text().splitlines()
        if line.startswith('papermill nbs/train.ipynb')
    ]
    assert commands and {
        name for line in commands for name in re.findall(r'-p (\w+)', line)
    } <= set(names)
    assert {'backbone', 'epochs', 'lr', 'image_size', 'min_positives', 'selection'} <= set(names)
    config = runs.Config(
        **{
            name: value
            for name, value in names.items()
            if name not in ('__builtins__', 'processes')
        }
    )
    assert runs.resolve(config) == runs.resolve(runs.Config())  # the same run as without them


def test_lost_tag_stops_the_notebook(tmp_path):
    notebook = nbformat.read(ROOT / 'nbs' / 'train.ipynb', 4)
    for cell in notebook.cells:
        cell.metadata.pop('tags', None)
    nbformat.write(notebook, tmp_path / 'untagged.ipynb')
    process, _ = papermill(tmp_path, '-p', 'loss', 'an', notebook=tmp_path / 'untagged.ipynb')
    assert process.returncode != 0 and "lost its tag 'parameters'" in process.stderr


@pytest.mark.parametrize(
    'file',
    sorted(
        file
        for place in ('*.ipynb', 'tutorials/*.ipynb', 'papers/*.ipynb', 'methods/*.ipynb')
        for file in (ROOT / 'nbs').glob(place)
    ),
    ids=lambda file: f'{file.parent.name}/{file.stem}',
)
def test_the_first_screen_says_how_long_it_takes_and_what_to_change(file):
    first = nbformat.read(file, 4).cells[0]
    assert first.cell_type == 'markdown' and first.source.startswith('# ')
    assert re.search(r'\b(seconds?|minutes?|\d+ s)\b', first.source), 'how long?'
    assert re.search(
        r'\b([Cc]hange|[Tt]o try|[Tt]o use photos of yours|[Gg]ive the (folder of the )?run)\b',
        first.source,
    ), 'what to change?'


def test_modules_need_no_notebook_tools():
    code = (
        'import sys, pkgutil, importlib, spml_nb\nfor m in '
        'pkgutil.walk_packages(spml_nb.__path__, "spml_nb."):\n    if "_modidx" not in m.name: '
        'importlib.import_module(m.name)\nprint([m for m in ("nbdev", "fastcore", "papermill", '
        '"IPython", "jupyterlab") if m in sys.modules])'
    )
    found = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert found == '[]'
