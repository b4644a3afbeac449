"""Escape names of classes, photos and folders for terminals, Markdown and spreadsheets."""

import contextlib
import html
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_CONTROLS = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]')


def escape_for_terminal(text: str) -> str:
    "Write control characters and bidirectional marks as `\\x1b`; line breaks and tabs stay."
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def escape_bytes(text: str) -> str:
    """Write bytes that are not UTF-8 (as in file names from `os.fsdecode`) as `\\udcff`, so that
    any text can be encoded. JSON reads them back.
    """
    return text.encode('utf-8', 'backslashreplace').decode()


def escape_for_markdown(text: str) -> str:
    "Make one line of Markdown that shows a text literally, also when rendered as HTML."
    one_line = re.sub(r'\s*[\r\n]\s*', ' ', escape_bytes(text))
    markup = html.escape(escape_for_terminal(one_line), quote=False)
    return re.sub(r'[\\`*|\[\]#~]', r'\\\g<0>', markup)


def code_span(text: str) -> str:
    "Make a Markdown code span of a text, with more backticks around it than there are in it."
    one_line = escape_for_terminal(re.sub(r'[\r\n]', ' ', escape_bytes(text)))
    fence = '`' * (1 + max(map(len, re.findall('`+', one_line)), default=0))
    blank = ' ' if one_line.startswith('`') or one_line.endswith('`') else ''
    return f'{fence}{blank}{one_line}{blank}{fence}'


def escape_for_spreadsheet(text: str, before: str = "'") -> str:
    "Prefix a cell that a spreadsheet would read as a formula."
    return f'{before}{text}' if text.lstrip().startswith(tuple('=+-@＝＋－＠')) else text


def csv_for_spreadsheet(table: 'pd.DataFrame') -> str:
    "Write a DataFrame as CSV without its index; no cell is a formula to a spreadsheet."
    cells = table.map(lambda cell: escape_for_spreadsheet(cell) if isinstance(cell, str) else cell)
    return cells.to_csv(index=False, lineterminator='\n')


@contextlib.contextmanager
def any_name_in_frames() -> Iterator[None]:
    """Let pandas hold file names that are not UTF-8; a context manager and decorator.

    With pyarrow installed, pandas stores strings in arrow arrays, which reject such names.
    """
    if find_spec('pyarrow') is None:
        yield
        return
    import pandas as pd

    with pd.option_context('mode.string_storage', 'python'):
        yield
