"""Atomic changes of labels.csv that keep its form, and a copy of the old table."""

import codecs
import csv
import io
import itertools
from pathlib import Path

import pandas as pd

from ..base.errors import SpmlError
from ..base.escaping import escape_for_spreadsheet
from ..base.files import write_atomically
from .folder import LABEL_CELLS, SIGNS, normalize_name, parse_label_table, read_label_table


def back_up_table(file: Path) -> Path:
    """Copy a table to the first free name of labels.csv.bak, labels.csv.bak2, labels.csv.bak3, ….

    Raises:
        SpmlError: If it cannot be written.
    """
    content = file.read_bytes()
    for number in itertools.count(1):
        backup = file.with_name(f'{file.name}.bak{number if number > 1 else ""}')
        try:
            with open(backup, 'xb') as copy:
                copy.write(content)
            return backup
        except FileExistsError:
            continue
        except OSError as error:
            raise SpmlError(
                f'{backup} could not be written: {error}. Nothing has been changed. Free space, or '
                'give yourself permission to write there.'
            ) from error


def write_rows(file: Path, rows: list[list[str]]):
    "Replace the rows of a table; its byte-order mark and line ends are kept."
    old = file.read_bytes()
    # Python before 3.13 does not quote a cell because of a carriage return
    has_bare_return = any('\r' in cell.replace('\r\n', '') for row in rows for cell in row)
    text = io.StringIO()
    writer = csv.writer(
        text,
        lineterminator='\r\n' if b'\r\n' in old else '\n',
        quoting=csv.QUOTE_ALL if has_bare_return else csv.QUOTE_MINIMAL,
    )
    writer.writerows(rows)
    mark = codecs.BOM_UTF8 if old.startswith(codecs.BOM_UTF8) else b''
    content = mark + text.getvalue().encode()
    write_atomically(file, lambda temporary: temporary.write_bytes(content), follow=True)


def write_table(file: Path, table: pd.DataFrame):
    "Replace labels.csv by a table as from `read_label_table`."
    write_rows(file, [list(table), *table.to_numpy().tolist()])


def write_label(file: Path, image: str, name: str, label: int):
    """Change one label in a table.

    A column `positives` cannot express absent, which becomes unknown; a column `labels` cannot
    express unknown, which becomes absent.

    Args:
        image: As spelt in the table.
        name: A class of the table.
        label: 1 present, 0 unknown, -1 absent.

    Raises:
        SpmlError: If the table has no such row or column, or the change would make it invalid.
    """
    table = read_label_table(file)
    rows = table.index[table['image'] == image]
    if not len(rows):
        raise SpmlError(f'{file} has no row for {image!r} any more. Start the review again.')
    column = next((kind for kind in ('labels', 'positives') if kind in table), name)
    if column not in table:
        raise SpmlError(f'{file} has no column {name!r} any more. Start the review again.')
    cell = table.at[rows[0], column]
    if column == name:
        table.at[rows[0], column] = LABEL_CELLS[label]
    else:
        table.at[rows[0], column] = _change_names(cell, name, label > 0)
    parse_label_table(table, file)
    write_table(file, table)


def _change_names(cell: str, name: str, present: bool) -> str:
    "Add a name to a cell of names, or remove it."
    names = [other for other in cell.split('|') if normalize_name(other) not in ('', name)]
    if present:
        names.append(name)
    changed = escape_for_spreadsheet('|'.join(names), '|')
    # with a bar in the cell, a comma belongs to a name
    needs_bar = len(names) == 1 and '|' not in changed and any(sign in changed for sign in SIGNS)
    return f'{changed}|' if needs_bar else changed
