"""The conclusion on each paper, and the map from its sections to this project."""

# A conclusion says what held, why, what was difficult, and what to take from it. The texts are in
# `assets/templates/conclusion_PAPER.md`; every number comes from the record. The map says where
# each section of the paper is, or why it is not.

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.resources import files
from urllib.parse import quote

import pandas as pd
import yaml

from ..base.errors import require_one_of
from ..base.files import markdown_table
from ..sweeps.search import Row
from . import paper_figures, published
from .answers import Answer, answer_claim, answer_gain, gains_at_equal_settings
from .papers import (
    em_apl_conclusion,
    hml_conclusion,
    lac_conclusion,
    opml_conclusion,
    two_way_conclusion,
)
from .published import PHOTOS_SUITE, UNCOUNTED
from .templates import render_template

_COLLECT_FIELDS: dict[str, Callable[[pd.DataFrame], dict]] = {
    'hml': hml_conclusion.collect_fields,
    'opml': opml_conclusion.collect_fields,
    'lac': lac_conclusion.collect_fields,
    'two_way': two_way_conclusion.collect_fields,
    'em_apl': em_apl_conclusion.collect_fields,
}


def format_conclusion(paper: str, checked: pd.DataFrame, runs: pd.DataFrame) -> str:
    """The conclusion on a paper, in Markdown.

    Args:
        paper: One of `published.list_papers()`.
        checked: Its claims, as from `claims.report_claims`.
        runs: The table of record.
    """

    def gain(
        method: str,
        base: str,
        head: str | None = None,
        base_head: str | None = None,
        metric: str = 'mAP',
    ) -> Answer:
        return answer_gain(runs, Row(method, head), Row(base, base_head), metric)

    return render_template(
        f'conclusion_{paper}.md',
        claim=partial(answer_claim, checked),
        gain=gain,
        parts=gains_at_equal_settings(paper),
        uncounted=UNCOUNTED,
        **_COLLECT_FIELDS[paper](runs),
    )


def paper_pages(checked: pd.DataFrame, runs: pd.DataFrame) -> dict[str, str]:
    """The page of every paper: its conclusion, with links to its tables, figures and claims.

    Args:
        checked: The claims of all papers, as from `claims.report_claims`.
        runs: The table of record.

    Returns:
        {`PAPER/README.md`: Markdown}.
    """
    return {
        f'{paper}/README.md': render_template(
            'paper_readme.md',
            paper=published.read_paper(paper),
            conclusion=format_conclusion(paper, of_paper, runs),
            figures=[
                number
                for number in paper_figures.list_figures(paper)
                if paper_figures.find_arrays(paper, number, PHOTOS_SUITE).is_file()
            ],
        )
        for paper, of_paper in checked.groupby('paper', sort=False)
    }


@dataclass(frozen=True)
class Part:
    """A section of a paper, or a part of one.

    Attributes:
        name: Number and heading as in the text.
        tables, figures, equations: Their numbers in the paper.
        claims: Ids of `claims.read_claims`.
        notebooks: Notebooks in nbs/ with a heading in them: 'methods/hml#Label correlation'.
        also: Where else it is, as Markdown.
        not_done: What is missing and why, '' if nothing.
    """

    name: str
    tables: Sequence[str] = ()
    figures: Sequence[str] = ()
    equations: Sequence[int] = ()
    claims: Sequence[str] = ()
    notebooks: Sequence[str] = ()
    also: str = ''
    not_done: str = ''


@dataclass(frozen=True)
class PaperMap:
    """All parts of a paper.

    Attributes:
        parts: In the order of the text.
        tables, figures: Numbers of all tables and figures of the paper.
        equations: Number of the last equation.
        source: Where these numbers are from.
    """

    parts: Sequence[Part]
    tables: Sequence[str]
    figures: Sequence[str]
    equations: int
    source: str


@lru_cache
def read_paper_map(paper: str) -> PaperMap:
    """The map of a paper, from `assets/sections`.

    Raises:
        SpmlError: For a paper that is not in `published.list_papers()`.
    """
    require_one_of(paper, published.ORDER, 'paper')
    file = files('spml_nb') / 'assets' / 'sections' / f'{paper}.yml'
    content = yaml.safe_load(file.read_text(encoding='utf-8'))
    return PaperMap([Part(**part) for part in content['parts']], **content['numbers'])


def format_paper_map(paper: str) -> str:
    """The map of a paper as a Markdown table, with links from nbs/papers.

    Raises:
        SpmlError: For a paper that is not in `published.list_papers()`.
    """
    rows = [[_name_part(part), _links(paper, part)] for part in read_paper_map(paper).parts]
    return markdown_table([['part of the paper', 'here'], *rows])


def _name_part(part: Part) -> str:
    if not part.equations:
        return part.name
    first, last = min(part.equations), max(part.equations)
    return f'{part.name} (Eq. {first})' if first == last else f'{part.name} (Eq. {first}–{last})'


def _links(paper: str, part: Part) -> str:
    tables = [number for number in part.tables if number in published.table_numbers(paper)]
    figures = [number for number in part.figures if number in paper_figures.list_figures(paper)]
    links = [
        _list_numbers('Table', tables),
        _list_numbers('Fig.', figures),
        _list_numbers('claims', [f'`{claim}`' for claim in part.claims]),
        ', '.join(map(_link_notebook, part.notebooks)),
        part.also,
        part.not_done and f'*not done*: {part.not_done}',
    ]
    return '; '.join(filter(None, links))


def _list_numbers(kind: str, names: list[str]) -> str:
    return f"{kind} {', '.join(names)}" if names else ''


def _link_notebook(target: str) -> str:
    notebook, _, heading = target.partition('#')
    return f"[{notebook}: {heading}](../{notebook}.ipynb#{quote(heading.replace(' ', '-'))})"
