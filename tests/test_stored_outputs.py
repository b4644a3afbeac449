"""What notebooks store of the record is what the record says today."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from spml_nb.base import settings

NBS = Path(__file__).resolve().parents[1] / 'nbs'
METHODS = sorted(
    file.name for file in (NBS / 'methods').glob('*.ipynb') if 'describe_gains(' in file.read_text()
)
FROM_THE_RECORD = [  # and little else: run from top to bottom
    *sorted((NBS / 'papers').glob('*.ipynb')),
    *sorted((NBS / 'replication' / 'experiments').glob('*.ipynb')),
    NBS / 'tutorials' / 'choose_a_method.ipynb',
]
REMEDY = 'Run the notebook again: jupyter nbconvert --to notebook --execute --inplace'


def code_cells(file):
    return [cell for cell in nbformat.read(file, 4).cells if cell.cell_type == 'code']


def texts(cell):
    "What a cell prints and shows as text; pictures are drawn by other tests."
    shown = []
    for output in cell.outputs:
        data = output.get('data', {})
        shown += [data[kind] for kind in ('text/markdown', 'text/plain') if kind in data]
        shown += [output.text] if output.output_type == 'stream' else []
    return [text for text in shown if not text.startswith('<')]  # the name of a picture's type


@pytest.fixture
def recorded_outputs(monkeypatch):
    monkeypatch.delenv('SPML_NB_OUTPUTS')
    assert (settings.get_folder('outputs') / 'runs.csv').is_file()


@pytest.mark.parametrize('name', METHODS)
def test_a_method_notebook_tells_the_gains_of_the_record(name, recorded_outputs):
    cells = [c for c in code_cells(NBS / 'methods' / name) if 'describe_gains(' in c.source]
    for cell in cells:
        source = cell.source.replace('Markdown(', 'told = Markdown(')
        found = {}
        exec(source, found)
        assert found['told'].data in texts(cell), f'{REMEDY} nbs/methods/{name}'


@pytest.mark.slow
def test_notebooks_of_the_record_store_what_they_show_today(recorded_outputs):
    "All of them in one kernel, each from a fresh start."
    stored = {file: code_cells(file) for file in FROM_THE_RECORD}
    cells, places = [], {}
    for file, old in stored.items():
        cells += [new_code_cell('%reset -f'), new_code_cell(f'%cd -q {file.parent}')]
        places[file] = len(cells)
        cells += [new_code_cell(cell.source) for cell in old]
    whole = new_notebook(cells=cells)
    NotebookClient(
        whole, timeout=300, kernel_name='python3', resources={'metadata': {'path': os.getcwd()}}
    ).execute()
    differing = {
        file.relative_to(NBS.parent).as_posix(): cell.source
        for file, old in stored.items()
        for cell, now in zip(old, whole.cells[places[file] :], strict=False)
        if texts(cell) != texts(now)
    }
    assert not differing, f'{REMEDY} {" ".join(sorted(differing))}'
