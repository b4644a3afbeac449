"""Changes of labels.csv: whole or not at all, in the form that it has, with the old table kept."""

import codecs
import csv
import io
import itertools
from pathlib import Path

import pandas as pd

from ..base.errors import SpmlError
from ..base.escaping import escape_for_spreadsheet
from ..base.files import write_atomically
from .folder import SIGNS, normalize_name, parse_label_table, read_label_table


def back_up(file: Path) -> Path:
    """Copy a table to the first free name of labels.csv.bak, labels.csv.bak2, labels.csv.bak3, ….

    Raises:
        SpmlError: If the disk is full or refuses.
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
                'give yourself the right to write there.'
            ) from error


def write_rows(file: Path, rows: list[list[str]]):
    """Put other rows in the place of a table. Its byte-order mark and its line ends stay."""
    old = file.read_bytes()
    # Python before 3.13 leaves a carriage return bare
    is_bare = any('\r' in cell.replace('\r\n', '') for row in rows for cell in row)
    text = io.StringIO()
    writer = csv.writer(
        text,
        lineterminator='\r\n' if b'\r\n' in old else '\n',
        quoting=csv.QUOTE_ALL if is_bare else csv.QUOTE_MINIMAL,
    )
    writer.writerows(rows)
    mark = codecs.BOM_UTF8 if old.startswith(codecs.BOM_UTF8) else b''
    content = mark + text.getvalue().encode()
    write_atomically(file, lambda temporary: temporary.write_bytes(content), follow=True)


def write_table(file: Path, table: pd.DataFrame):
    """Put a table, as from `read_label_table`, in the place of labels.csv."""
    write_rows(file, [list(table), *table.to_numpy().tolist()])


def write_label(file: Path, image: str, name: str, label: int):
    """Change a single label in a table, and nothing else.

    A column of names has no place for what its other cells cannot say: a class that is absent is
    unknown in a column `positives`, and one that is unknown is absent in a column `labels`.

    Args:
        image: As the table spells it.
        name: A class of the table.
        label: 1 present, 0 unknown, -1 absent.

    Raises:
        SpmlError: If the table has no such row any more, or could not be read afterwards.
    """
    table = read_label_table(file)
    rows = table.index[table['image'] == image]
    if not len(rows):
        raise SpmlError(f'{file} has no row for {image!r} any more. Begin the review anew.')
    column = next((kind for kind in ('labels', 'positives') if kind in table), name)
    if column not in table:
        raise SpmlError(f'{file} has no column {name!r} any more. Begin the review anew.')
    cell = table.at[rows[0], column]
    if column == name:
        table.at[rows[0], column] = {1: '1', 0: '', -1: '0'}[label]
    else:
        table.at[rows[0], column] = _change_names(cell, name, label > 0)
    parse_label_table(table, file)
    write_table(file, table)


def _change_names(cell: str, name: str, present: bool) -> str:
    "A cell of names with one more, or without it."
    names = [each for each in cell.split('|') if normalize_name(each) not in ('', name)]
    if present:
        names.append(name)
    changed = escape_for_spreadsheet('|'.join(names), '|')
    # a bar says that a comma belongs to a name
    needs_bar = len(names) == 1 and '|' not in changed and any(sign in changed for sign in SIGNS)
    return f'{changed}|' if needs_bar else changed
