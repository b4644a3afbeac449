"""What a conclusion says follows from its numbers, and stays when they are others."""

import dataclasses
import json
import re
from itertools import chain
from pathlib import Path

import pandas as pd
import pytest
from worked_out import claims_without_runs, paper_claims, recorded_runs

from spml_nb.base.errors import SpmlError
from spml_nb.replication import claims, paper_conclusions, paper_figures, published
from spml_nb.replication.paper_conclusions import Part

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / 'spml_nb' / 'assets' / 'templates'
NOTHING = pd.DataFrame()


@pytest.fixture(scope='module')
def record():
    return recorded_runs()


@pytest.fixture(scope='module')
def unchecked():
    """The claims of all papers without runs."""
    return claims_without_runs()


@pytest.fixture(scope='module')
def checked(record):
    """The claims of all papers."""
    return pd.concat([paper_claims(paper) for paper in published.list_papers()])


@pytest.mark.parametrize('paper', published.list_papers())
def test_without_runs_every_answer_says_so(paper, unchecked):
    checked = unchecked[unchecked.paper == paper]
    text = paper_conclusions.format_conclusion(paper, checked, NOTHING)
    rows = [row for row in text.splitlines() if row.startswith('| ')]
    assert len(rows) > 6 and all('**not run**' in row for row in rows[2:])


@pytest.mark.parametrize('paper', published.list_papers())
def test_a_conclusion_is_half_a_page_and_types_no_result(paper, record, checked):
    text = paper_conclusions.format_conclusion(paper, checked[checked.paper == paper], record)
    assert 150 < len(text.split()) < 650
    template = (TEMPLATES / f'conclusion_{paper}.md').read_text()
    words = re.sub(r'\{%.*?%\}|\{\{.*?\}\}', '', template)
    assert not re.findall(r'±|[+−]\d|\d\.\d', words)


def test_a_page_for_each_paper_is_written_once(tmp_path, monkeypatch, unchecked):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path))
    pages = paper_conclusions.paper_pages(unchecked, NOTHING)
    assert set(pages) == {f'{paper}/README.md' for paper in published.list_papers()}
    for name, page in pages.items():
        paper, _ = name.split('/')
        links = re.findall(r'\]\(([^)]+)\)', page)
        assert {f'table{number}.md' for number in published.table_numbers(paper)} < set(links)
        for link in links:
            assert (ROOT / 'outputs' / paper / link).exists(), link


NOTEBOOKS = ROOT / 'nbs'
PAPERS = published.list_papers()


def named(paper, what):
    """What the parts of a paper name."""
    return set(
        chain.from_iterable(
            getattr(part, what) for part in paper_conclusions.read_paper_map(paper).parts
        )
    )


def missing(paper):
    """What a paper has that no part names, and what parts name that is not there."""
    paper_map = paper_conclusions.read_paper_map(paper)
    there = {
        'tables': {*paper_map.tables, *published.table_numbers(paper)},
        'figures': {*paper_map.figures, *paper_figures.list_figures(paper)},
        'equations': set(range(1, paper_map.equations + 1)),
        'claims': {claim.id for claim in claims.read_claims(paper)},
    }
    return {what: names ^ named(paper, what) for what, names in there.items()}


def undrawn(paper):
    return set(paper_conclusions.read_paper_map(paper).figures) - set(
        paper_figures.list_figures(paper)
    )


def unfilled(paper):
    return set(paper_conclusions.read_paper_map(paper).tables) - set(published.table_numbers(paper))


@pytest.mark.parametrize('paper', PAPERS)
def test_every_table_figure_equation_and_claim_has_its_place(paper):
    assert not any(missing(paper).values()), missing(paper)
    assert paper_conclusions.read_paper_map(paper).source


@pytest.mark.parametrize('paper', PAPERS)
def test_a_part_is_somewhere_or_has_a_reason(paper):
    for part in paper_conclusions.read_paper_map(paper).parts:
        assert any(dataclasses.astuple(dataclasses.replace(part, name='', equations=()))), part
        if undrawn(paper) & set(part.figures) or unfilled(paper) & set(part.tables):
            assert part.not_done, part


@pytest.mark.parametrize('paper', PAPERS)
def test_the_notebooks_have_the_headings(paper):
    for place in named(paper, 'notebooks'):
        notebook, _, heading = place.partition('#')
        cells = json.loads((NOTEBOOKS / f'{notebook}.ipynb').read_text())['cells']
        text = '\n'.join(''.join(cell['source']) for cell in cells)
        assert re.search(rf'^#+ {re.escape(heading)}$', text, re.MULTILINE), place


def test_numbers_count_on_without_a_gap():
    roman = {'I': 1, 'II': 2, 'III': 3, 'IV': 4, 'V': 5}
    for paper in PAPERS:
        paper_map = paper_conclusions.read_paper_map(paper)
        for numbers in (paper_map.tables, paper_map.figures):
            counted = [roman.get(number) or int(number) for number in numbers]
            assert counted == list(range(1, len(counted) + 1))


def test_markdown_has_a_line_a_part_with_links_that_lead_somewhere():
    lines = paper_conclusions.format_paper_map('hml').splitlines()
    parts = paper_conclusions.read_paper_map('hml').parts
    assert len(lines) == 2 + len(parts)
    assert lines[2 + [part.name for part in parts].index('3.4 Adaptive learning')] == (
        '| 3.4 Adaptive learning (Eq. 5–7) | Fig. 3; claims `hml-balance`, `hml-balance-best`, '
        '`hml-margin-peak`; '
        '[methods/hml: The adaptive scale and margin]'
        '(../methods/hml.ipynb#The-adaptive-scale-and-margin) |'
    )
    for paper in PAPERS:
        for target in re.findall(r'\]\(\.\./([^#)]+)', paper_conclusions.format_paper_map(paper)):
            assert (NOTEBOOKS / target).is_file()


def test_what_is_forgotten_or_does_not_exist_is_seen(monkeypatch):
    whole = paper_conclusions.read_paper_map('hml')
    parts = [dataclasses.replace(part, claims=part.claims[1:]) for part in whole.parts]
    parts.append(Part('6', tables=['6'], claims=['hml-none']))
    broken = dataclasses.replace(whole, parts=parts)
    monkeypatch.setattr(paper_conclusions, 'read_paper_map', lambda paper: broken)
    found = missing('hml')
    assert found['tables'] == {'6'} and not found['figures']
    assert {'hml-none', 'hml-hyperspherical'} <= found['claims']


def test_another_paper_is_refused():
    with pytest.raises(SpmlError, match='bcl'):
        paper_conclusions.read_paper_map('bcl')
