"""Automatic repair of mistakes in labels.csv that have one certain remedy."""

import csv
import io
import posixpath
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from ..base.errors import SpmlError
from .dataset import PARTS, join_items
from .folder import RESERVED, images_folder, match_photos, normalize_name
from .layouts.files import read_text
from .table_editing import back_up_table, write_rows


@dataclass
class Table:
    """The cells of labels.csv, to be changed in place.

    Attributes:
        header: Names of the columns.
        rows: Lists of cells; malformed rows have more or fewer than the header.
        changes: A sentence for each kind of change.
    """

    header: list[str]
    rows: list[list[str]]
    changes: list[str] = field(default_factory=list)

    def note(self, change: str, items: list[str]):
        if items:
            self.changes.append(f'{change} ({len(items):,}): {join_items(items, 20)}')

    def column(self, name: str) -> list[tuple[list[str], int]]:
        "(row, column number) of each row that has as many cells as the header."
        if name not in self.header:
            return []
        column = self.header.index(name)
        return [(row, column) for row in self.rows if len(row) == len(self.header)]


@dataclass(frozen=True)
class Mending:
    """The result of `mend_table`.

    Attributes:
        changes: A sentence for each kind of change.
        backup: The old table; None if nothing was changed.
    """

    changes: list[str]
    backup: Path | None


def mend_table(folder: Path) -> Mending:
    """Repair what is certain in a folder's labels.csv, and keep the old table beside it.

    Repaired are the encoding, the separator of columns, capitals in `image`, `labels`, `positives`
    and `split`, blanks around names of photos, names that match only one photo, words for the
    parts, and duplicate rows.

    Raises:
        SpmlError: If the folder or its table is missing, or cannot be read or written.
    """
    images = images_folder(folder)
    file = folder / 'labels.csv'
    if not file.is_file():
        raise SpmlError(f'{file} does not exist, so there is nothing to mend. Add the table first.')
    table = _read_table(file)
    _mend_header(table)
    _mend_photo_names(table, images)
    _mend_parts(table)
    _drop_duplicate_rows(table)
    if not table.changes:
        return Mending([], None)
    backup = back_up_table(file)
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
    for column, name in enumerate(table.header):
        lowered = normalize_name(name).casefold()
        if lowered in RESERVED and normalize_name(name) != lowered and lowered not in table.header:
            table.header[column] = lowered
            changed.append(f'{name!r} → {lowered!r}')
    table.note('columns in small letters', changed)


def _mend_photo_names(table, images):
    cells = table.column('image')
    changed = []
    for row, column in cells:
        stripped = row[column].strip()
        if stripped != row[column] and not (images / row[column]).is_file():
            changed.append(f'{row[column]!r} → {stripped!r}')
            row[column] = stripped
    table.note('blanks around names of photos removed', changed)
    existing = {row[column] for row, column in cells if (images / row[column]).is_file()}
    missing = {row[column] for row, column in cells} - existing - {''}
    matches = match_photos(missing, images)
    taken = {posixpath.normpath(name) for name in existing}
    times_matched = Counter(matches.values())
    changed = []
    for row, column in cells:
        name = row[column]
        match = matches.get(name)
        if match is None:
            continue
        same_path = match.lower() == posixpath.normpath(name.replace('\\', '/')).lower()
        if same_path or (match not in taken and times_matched[match] == 1):
            row[column] = match
            changed.append(f'{name!r} → {match!r}')
    table.note('names of photos as they are found', changed)


def _mend_parts(table):
    changed = []
    for row, column in table.column('split'):
        word = row[column].strip()
        part = next((part for part in PARTS if word.lower().startswith(part)), word)
        if part != word:
            row[column] = part
            changed.append(f'{word!r} → {part!r}')
    table.note('parts in the column `split`', changed)


def _drop_duplicate_rows(table):
    "Drop repeated rows of a photo if all of its rows are equal."
    rows_of = defaultdict(list)
    for row, column in table.column('image'):
        name = posixpath.normpath(row[column].strip())
        labels = [cell.strip() for k, cell in enumerate(row) if k != column]
        rows_of[name].append((row, labels))
    dropped, names = set(), []
    for name, ((_, labels), *repeated) in rows_of.items():
        if name != '.' and repeated and all(other == labels for _, other in repeated):
            dropped.update(id(row) for row, _ in repeated)
            names.append(name)
    table.rows = [row for row in table.rows if id(row) not in dropped]
    table.note('duplicate rows removed', names)
