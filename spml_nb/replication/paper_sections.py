"""The map of a paper: where each section is in this project, or why it is not."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from urllib.parse import quote

import yaml

from ..base.errors import require_one_of
from ..base.files import markdown_table
from . import paper_figures, published


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
def paper_map(paper: str) -> PaperMap:
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
    rows = [[_name(part), _links(paper, part)] for part in paper_map(paper).parts]
    return markdown_table([['part of the paper', 'here'], *rows])


def _name(part: Part) -> str:
    if not part.equations:
        return part.name
    first, last = min(part.equations), max(part.equations)
    return f'{part.name} (Eq. {first})' if first == last else f'{part.name} (Eq. {first}–{last})'


def _links(paper: str, part: Part) -> str:
    tables = [number for number in part.tables if number in published.table_numbers(paper)]
    figures = [number for number in part.figures if number in paper_figures.list_figures(paper)]
    links = [
        _listed('Table', tables),
        _listed('Fig.', figures),
        _listed('claims', [f'`{claim}`' for claim in part.claims]),
        ', '.join(map(_link, part.notebooks)),
        part.also,
        part.not_done and f'*not done*: {part.not_done}',
    ]
    return '; '.join(filter(None, links))


def _listed(kind: str, names: list[str]) -> str:
    return f"{kind} {', '.join(names)}" if names else ''


def _link(target: str) -> str:
    notebook, _, heading = target.partition('#')
    return f"[{notebook}: {heading}](../{notebook}.ipynb#{quote(heading.replace(' ', '-'))})"
