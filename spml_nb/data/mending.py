"""Mistakes in labels.csv whose remedy its error messages know are mended."""

import csv
import io
import posixpath
from dataclasses import dataclass, field
from pathlib import Path

from ..base.errors import SpmlError
from .dataset import PARTS, join_items
from .editing import back_up, write_rows
from .folder import RESERVED, images_folder, match_photos, normalize_name
from .formats import read_text


@dataclass
class Table:
    """The cells of labels.csv, and what has been changed in them.

    Attributes:
        header: Names of the columns.
        rows: Of as many cells as the header, where nothing is wrong.
        changes: What has been done, a sentence each.
    """

    header: list[str]
    rows: list[list[str]]
    changes: list[str] = field(default_factory=list)

    def note(self, what: str, items: list[str]):
        if items:
            self.changes.append(f'{what} ({len(items):,}): {join_items(items, 20)}')

    def column(self, name: str) -> list[tuple[list[str], int]]:
        "(row, place of the cell in it) of each row that has as many cells as the header."
        if name not in self.header:
            return []
        place = self.header.index(name)
        return [(row, place) for row in self.rows if len(row) == len(self.header)]


@dataclass(frozen=True)
class Mending:
    """What was mended.

    Attributes:
        changes: A sentence each.
        backup: The old table; None where nothing was changed.
    """

    changes: list[str]
    backup: Path | None


def mend_table(folder: Path) -> Mending:
    """Mend what is certain in a folder's labels.csv, and keep the old table beside it.

    The encoding, the sign between columns, small letters of `image`, `labels`, `positives` and
    `split`, blanks around names of photos, names that only one photo fits, words for the parts, and
    rows that are there twice and say the same. All other mistakes stay, for a person.

    Raises:
        SpmlError: If the folder or its table is not there, or cannot be read or written.
    """
    images = images_folder(folder)
    file = folder / 'labels.csv'
    if not file.is_file():
        raise SpmlError(f'{file} is not there, so there is nothing to mend. Add the table first.')
    table = _read_table(file)
    _mend_header(table)
    _mend_photo_names(table, images)
    _mend_parts(table)
    _drop_doubled_rows(table)
    if not table.changes:
        return Mending([], None)
    backup = back_up(file)
    write_rows(file, [table.header, *table.rows])
    return Mending(table.changes, backup)


def _read_table(file):
    text, encoding = read_text(file)
    changes = [] if encoding == 'utf-8' else [f'written in UTF-8: it was {encoding}']
    lines = text.splitlines(keepends=True)
    first = lines[0] if lines else ''
    sign = next((sign for sign in ';\t|' if sign in first and ',' not in first), ',')
    if first.lower().startswith('sep='):
        changes.append(f'the first line {first.strip()!r}, which is for Excel alone: removed')
        text = ''.join(lines[1:])
        sign = first.strip()[4:] or ','
    if sign != ',':
        changes.append(f'commas between the columns: it was {sign!r}')
    try:
        rows = list(csv.reader(io.StringIO(text, newline=''), delimiter=sign, strict=True))
    except (csv.Error, TypeError) as error:
        raise SpmlError(
            f'{file} cannot be read as a table: {error}. Save it as CSV UTF-8, with commas between '
            'columns.'
        ) from error
    rows = [row for row in rows if any(cell.strip() for cell in row)] or [[]]
    return Table(rows[0], rows[1:], changes)


def _mend_header(table):
    changed = []
    for place, name in enumerate(table.header):
        small = normalize_name(name).casefold()
        if small in RESERVED and normalize_name(name) != small and small not in table.header:
            table.header[place] = small
            changed.append(f'{name!r} → {small!r}')
    table.note('columns in small letters', changed)


def _mend_photo_names(table, images):
    cells = table.column('image')
    changed = []
    for row, place in cells:
        stripped = row[place].strip()
        if stripped != row[place] and not (images / row[place]).is_file():
            changed.append(f'{row[place]!r} → {stripped!r}')
            row[place] = stripped
    table.note('blanks around names of photos removed', changed)
    there = {row[place] for row, place in cells if (images / row[place]).is_file()}
    absent = {row[place] for row, place in cells} - there - {''}
    matches = match_photos(absent, images)
    taken = {posixpath.normpath(name) for name in there}
    meant = list(matches.values())
    changed = []
    for row, place in cells:
        name = row[place]
        match = matches.get(name)
        if match is None:
            continue
        same_path = match.lower() == posixpath.normpath(name.replace('\\', '/')).lower()
        if same_path or (match not in taken and meant.count(match) == 1):
            row[place] = match
            changed.append(f'{name!r} → {match!r}')
    table.note('names of photos as they are found', changed)


def _mend_parts(table):
    changed = []
    for row, place in table.column('split'):
        word = row[place].strip()
        part = next((part for part in PARTS if word.lower().startswith(part)), word)
        if part != word:
            row[place] = part
            changed.append(f'{word!r} → {part!r}')
    table.note('parts in the column `split`', changed)


def _drop_doubled_rows(table):
    "Rows of one photo that say the same; where they differ, a person has to look."
    rows_of = {}
    for row, place in table.column('image'):
        name = posixpath.normpath(row[place].strip())
        others = [cell.strip() for k, cell in enumerate(row) if k != place]
        rows_of.setdefault(name, []).append((row, others))
    dropped, names = [], []
    for name, (first, *others) in rows_of.items():
        if name != '.' and others and all(cells == first[1] for _, cells in others):
            dropped += [row for row, _ in others]
            names.append(name)
    table.rows = [row for row in table.rows if not any(row is other for other in dropped)]
    table.note('rows that were there twice and said the same', names)
