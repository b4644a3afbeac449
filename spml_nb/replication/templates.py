"""Renders pages from the templates in `assets/templates`."""

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
