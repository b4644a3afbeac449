"""Renders pages from the templates in `assets/templates`; sentences and cells that many share."""

import json
import textwrap
from collections.abc import Iterable, Mapping
from functools import lru_cache

import jinja2
import pandas as pd

from ..base import files
from ..base.escaping import escape_for_markdown
from ..statistics import Effect, format_number, format_signed, pool_effects
from ..sweeps.search import SUITES
from . import published


@lru_cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader('spml_nb', 'assets/templates'),
        autoescape=jinja2.select_autoescape(['html'], default=False),
        trim_blocks=True,
        keep_trailing_newline=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        'fill': _fill,
        'fromjson': json.loads,
        'grid': _grid,
        'md': escape_for_markdown,
        'number': format_number,
        'signed': format_signed,
    }
    environment.tests['missing'] = pd.isna
    return environment


def _fill(text: str, indent: str = '') -> str:
    """Wrap a paragraph or a list item at 140 characters."""
    text = text.strip()
    hanging = '  ' if text.startswith('- ') else indent
    filled = textwrap.fill(
        text,
        140,
        initial_indent=indent,
        subsequent_indent=hanging,
        break_on_hyphens=False,  # a hyphen may be part of a link
    )
    return f'{filled}\n'


def _grid(lines: list[list]) -> str:
    return files.markdown_table(lines).rstrip()


def render_template(template: str, **fields) -> str:
    """Render a page or a section of one.

    Args:
        template: A file of `assets/templates`. HTML templates escape every field; Markdown ones use
            the filter `md` for text from a paper or a person.
        fields: All fields that the template names.
    """
    return _environment().get_template(template).render(**fields)


def read_template(name: str) -> str:
    """The text of a file of `assets/templates` without fields, such as a style sheet."""
    environment = _environment()
    return environment.loader.get_source(environment, name)[0]


_REGIMES = {'linear': 'a head on frozen features', 'finetune': 'the whole network'}
_CHOSEN_ON = 'fully labelled validation images'
FROM_SCRATCH = (
    'Run on Corel 5k, each photo with its theme as the one label: a network of 170,000 parameters '
    "from random weights, 3 seeds, by the paper's recipe made small; its learning rate is that of "
    'five with the best mAP on validation images, its epoch the last.'
)


def describe_protocol(
    suite: str,
    data: Iterable[str] = (),
    seeds: int | None = None,
    backbones: Iterable[str] = (),
) -> str:
    """The conditions of runs in one line.

    Args:
        suite: A key of `search.SUITES`.
        data: Names of their data sets.
        seeds: Number of seeds, default: the suite's.
        backbones: Default: the suite's.
    """
    data = list(data)
    if data == ['corel5k_themes']:
        return FROM_SCRATCH
    spec = SUITES[suite]
    usual = spec['seeds']['linear'] if seeds is None else seeds
    fewer = ', '.join(f'{head} head {n}' for head, n in spec['seeds'].items() if n < usual)
    networks = ' and of '.join(backbones) or spec['config']['backbone']
    conditions = [
        f"{_REGIMES[spec['config']['regime']]} of {networks}",
        f'chosen on {_CHOSEN_ON}',
        f"search budget of every method: {spec['draws']} runs",
        '1 seed' if usual == 1 else f'{usual} seeds',
    ]
    if data:
        conditions.insert(0, f"data: {', '.join(data)}")
    text = '; '.join(conditions)
    if fewer:
        text += f' ({fewer})'
    return f'{text[0].upper()}{text[1:]}.'


def page_headline(suite: str, data: Iterable[str]) -> str:
    """The sentence at the top of a page: the data sets of its runs, and how these are made.

    Args:
        suite: A key of `search.SUITES`.
        data: Names of the data sets.
    """
    data = list(data)
    if data == ['corel5k_themes']:
        return FROM_SCRATCH
    spec = SUITES[suite]
    most = max(spec['seeds'].values())
    fewer = ''.join(f', {n} on the {head} head' for head, n in spec['seeds'].items() if n < most)
    return (
        f"Run on {'; '.join(map(published.name_dataset, data))}: "
        f"{_REGIMES[spec['config']['regime']]} of {spec['config']['backbone']}, {most} "
        f"seeds{fewer}, after a search of {spec['draws']} "
        f'runs for every method; settings and epoch are those with the best mAP on {_CHOSEN_ON}.'
    )


def list_cells(table: pd.DataFrame, corner: str = '') -> list[list[str]]:
    """The lines of a table for the template filter `grid`."""
    lines = [[corner, *table.columns]]
    return lines + [[str(name), *map(str, row)] for name, *row in table.itertuples()]


def format_effects(by_set: Mapping[str, Effect], sets: list[str]) -> list[str]:
    """Cells of a row: the effect on each set, '–' if it has none, and the mean if all have one."""
    cells = [str(by_set[name]) if name in by_set else '–' for name in sets]
    return [*cells, '–' if '–' in cells else str(pool_effects([by_set[name] for name in sets]))]
