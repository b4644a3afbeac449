"""The map of a paper: where each part of its text is in this project, or why it is not."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from urllib.parse import quote

import yaml

from ..base.errors import one_of
from ..base.files import markdown_table
from . import figure_runs, published


@dataclass(frozen=True)
class Part:
    """A section of a paper, or a piece of one.

    Attributes:
        name: number and heading as in the text.
        tables, figures, equations: what it has, as the paper counts them.
        claims: ids of `claims.read_claims`.
        notebooks: 'methods/hml#Label correlation', without '.ipynb': a notebook in nbs/, and a
            heading in it.
        also: where else it is, as Markdown.
        not_done: what is missing here, and why; '' where all of it is there.
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
        parts: in the order of the text.
        tables, figures: the numbers of all that the paper has.
        equations: number of the last one.
        source: how these are known.
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
        SpmlError: for another paper than those of `published.list_papers()`.
    """
    file = (
        files('spml_nb') / 'assets' / 'sections' / f"{one_of(paper, published.ORDER, 'paper')}.yml"
    )
    text = yaml.safe_load(file.read_text(encoding='utf-8'))
    return PaperMap([Part(**part) for part in text['parts']], **text['numbers'])


def format_paper_map(paper: str) -> str:
    """The map as a table, with links from nbs/papers.

    Raises:
        SpmlError: for another paper than those of `published.list_papers()`.
    """
    lines = [[_name(part), _place(paper, part)] for part in paper_map(paper).parts]
    return markdown_table([['part of the paper', 'here'], *lines])


def _name(part: Part) -> str:
    if not part.equations:
        return part.name
    first, last = min(part.equations), max(part.equations)
    return f'{part.name} (Eq. {first})' if first == last else f'{part.name} (Eq. {first}–{last})'


def _place(paper: str, part: Part) -> str:
    places = [
        _listed('Table', [each for each in part.tables if each in published.table_numbers(paper)]),
        _listed('Fig.', [each for each in part.figures if each in figure_runs.list_figures(paper)]),
        _listed('claims', [f'`{claim}`' for claim in part.claims]),
        ', '.join(map(_link, part.notebooks)),
        part.also,
        part.not_done and f'*not done*: {part.not_done}',
    ]
    return '; '.join(filter(None, places))


def _listed(kind: str, names: list[str]) -> str:
    return f"{kind} {', '.join(names)}" if names else ''


def _link(place: str) -> str:
    notebook, _, heading = place.partition('#')
    return f"[{notebook}: {heading}](../{notebook}.ipynb#{quote(heading.replace(' ', '-'))})"
