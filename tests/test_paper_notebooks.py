"nbs/papers: whatever has been run or not, every table and figure of a paper has its place."

from pathlib import Path

import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from spml_nb.replication import paper_figures, published, tables

NOTEBOOKS = Path(__file__).resolve().parents[1] / 'nbs' / 'papers'


def notebook(paper):
    return nbformat.read(NOTEBOOKS / f'{paper}.ipynb', 4)


def code_of(paper):
    "The code cells of a paper's notebook behind a fresh start."
    code = [cell.source for cell in notebook(paper).cells if cell.cell_type == 'code']
    return [new_code_cell(source) for source in ('%reset -f', *code)]


def said(cells):
    return '\n'.join(
        str(output.get('data', output.get('evalue', '')))
        for cell in cells
        for output in cell.outputs
    )


@pytest.mark.parametrize('paper', published.list_papers())
def test_a_papers_notebook_shows_every_table_and_figure(paper):
    source = '\n'.join(cell.source for cell in notebook(paper).cells)
    for number in published.table_numbers(paper):
        assert f"pages.table_section('{paper}', '{number}', runs)" in source
    for number in paper_figures.list_figures(paper):
        assert f"pages.Picture('{paper}', '{number}')" in source


@pytest.mark.slow
def test_the_papers_notebooks_need_no_run(tmp_path):
    "All of them in one kernel, in a folder without outputs."
    parts = {paper: code_of(paper) for paper in published.list_papers()}
    whole = new_notebook(cells=[cell for cells in parts.values() for cell in cells])
    NotebookClient(
        whole, timeout=300, kernel_name='python3', resources={'metadata': {'path': str(tmp_path)}}
    ).execute()
    at = 0
    for cells in parts.values():  # the executed cells are others than those given
        cells[:] = whole.cells[at : at + len(cells)]
        at += len(cells)
    for paper in published.list_papers():
        text = said(parts[paper])
        for number in published.table_numbers(paper):
            missing = tables.table(paper, number, pd.DataFrame()).progress('photos')['todo'] > 0
            assert (tables.table_command(paper, number, 'photos') in text) == missing
        for number in paper_figures.list_figures(paper):
            assert f'spml sweep {paper} --figure {number} --suite photos' in text
        assert (
            'not run' in text
            and 'chosen on fully labelled validation images' in text
            and "'text/html'" not in text
        )
