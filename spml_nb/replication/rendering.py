"""Pages are templates in `assets/templates` that are filled with plain data."""

import json
import textwrap
from functools import lru_cache

import jinja2
import pandas as pd

from ..base import files
from ..base.escaping import escape_for_markdown
from ..statistics import format_number, format_signed


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
    """A paragraph, or an item of a list, in lines of at most 140 characters."""
    text = text.strip()
    hanging = '  ' if text.startswith('- ') else indent
    # a hyphen may stand in an address, which a break would cut in two
    return (
        textwrap.fill(
            text, 140, initial_indent=indent, subsequent_indent=hanging, break_on_hyphens=False
        )
        + '\n'
    )


def _grid(lines: list[list]) -> str:
    return files.markdown_table(lines).rstrip()


def render_template(template: str, **fields) -> str:
    """A page, or a section of one.

    Args:
        template: a file of `assets/templates`. HTML escapes every field; in Markdown the filter
            `md` does it where text comes from a paper or a person.
        fields: what the template names; one that it lacks is an error.
    """
    return _environment().get_template(template).render(**fields)


def read_template(name: str) -> str:
    """The text of a file of `assets/templates` that needs no filling, such as a style sheet."""
    environment = _environment()
    return environment.loader.get_source(environment, name)[0]
