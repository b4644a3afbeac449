"""Read a folder with images/ and labels.csv as a `Dataset`; errors name mistakes in the table."""

import csv
import hashlib
import os
import posixpath
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import pandas as pd

from ..base import settings
from ..base.errors import SpmlError
from ..base.files import require_regular_file
from .dataset import PARTS, Dataset, join_items
from .decoding import PHOTOS
from .labels import split_rows

LAYOUT = (
    'The first column of labels.csv must be `image`, a path below images/; then one of three: one '
    'column a class with 1, 0 or nothing (unknown) in each cell; one column `labels` with all '
    'names that apply, separated by `|` (the rest is absent); or one column `positives` with '
    'names known to apply (the rest is unknown). A column `split` (train, val, test) and a column '
    '`group` (what photos share, such as a site or a patient) may follow.'
)
FORM = f'A data set is a folder with images/ and labels.csv. {LAYOUT}'
_HEADERS = (
    "`image,positives` (some of a photo's labels are known) or `image,labels` (all of them are "
    "known)"
)
NAME_COLUMNS = {'labels': -1, 'positives': 0}  # {column: label of the classes it does not name}
RESERVED = ('image', 'labels', 'positives', 'split')  # columns that are not a class
SIGNS = {',': 'commas', ';': 'semicolons'}  # common mistakes for the separator `|`
CELLS = {'1': 1, '1.0': 1, '0': -1, '0.0': -1, '': 0}
LABEL_CELLS = np.array(['', '1', '0'], object)  # the cell of label 0, 1 and -1


@dataclass(frozen=True, eq=False)
class Listing:
    """The images, labels and split of a table, or of the official files of a benchmark.

    Args:
        images: N paths below images/.
        labels: (N, C) int8: 1 present, 0 unknown, -1 absent.
        class_names: C names.
        split: N of 'train', 'val', 'test'; None if the source has no split.
        originals: N pairs (file, box or None), from which `official.shrink` makes the images; None
            if the images exist.
        groups: N group names; None if the source has no groups.
    """

    images: list[str]
    labels: np.ndarray
    class_names: list[str]
    split: list[str] | None = None
    originals: list | None = None
    groups: list[str] | None = None


# ---- the table


def _read_rows(file):
    "Read the rows of a table as lists of str, without blank ones."
    try:
        with open(require_regular_file(file), encoding='utf-8-sig', newline='') as lines:
            rows = list(csv.reader(lines, strict=True))
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        remedy = 'Save it as CSV UTF-8, with commas between columns.'
        if isinstance(error, OSError):
            remedy = 'Make it readable.'
        raise SpmlError(
            f'{file} cannot be read as a comma-separated table in UTF-8: {error}. {remedy}'
        ) from error
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    if not rows:
        raise SpmlError(f'{file} is empty. {LAYOUT}')
    for sign, word in {';': 'semicolons', '\t': 'tabs', '|': 'vertical bars'}.items():
        if len(rows[0]) == 1 and sign in rows[0][0]:
            raise SpmlError(
                f'{file}: the columns are separated by {word}, as its first line {rows[0][0]!r} '
                'shows. Save it with commas between the columns.'
            )
    return rows


def read_label_table(file: Path) -> pd.DataFrame:
    """Read labels.csv as text.

    Returns:
        DataFrame of str with different column names, of which the first is `image`; it may have
        no rows.

    Raises:
        SpmlError: If it cannot be read, or has another layout.
    """
    header, *rows = _read_rows(file)
    header = [normalize_name(name) for name in header]
    repeated = sorted(name for name, count in Counter(header).items() if count > 1 or not name)
    if repeated:
        raise SpmlError(
            f'{file}: unknown layout, columns repeated or without a name: '
            f'{join_items(map(repr, repeated))}. {_advice(header)}{LAYOUT}'
        )
    usable_class_names([name for name in header if name not in RESERVED], f'{file}: ')
    labels = set(header) - {'image', 'split'}
    if labels.issuperset(NAME_COLUMNS):
        raise SpmlError(
            f'{file} has both a column `labels` (complete) and a column `positives` (the rest is '
            'unknown). Keep one. Where only some images are complete, give each class a column, '
            'with empty cells for what is unknown.'
        )
    is_mixed = not labels.isdisjoint(NAME_COLUMNS) and len(labels - {'group'}) > 1
    if header[0] != 'image' or not labels or is_mixed:
        raise SpmlError(
            f'{file}: unknown layout with the columns {join_items(header)}. '
            f'{_advice(header)}{LAYOUT}'
        )
    ragged = [f'{k} ({len(row)})' for k, row in enumerate(rows, 1) if len(row) != len(header)]
    if ragged:
        raise SpmlError(
            f'{file}: the header has {len(header)} cells, but not row (cells): '
            f'{join_items(ragged)}. Empty cells need their commas, names with a comma need '
            'quotation marks.'
        )
    return pd.DataFrame(rows, columns=header, dtype=object)


def usable_class_names(names: Iterable[str], where: str = '') -> list[str]:
    """Normalize class names, and refuse those that a table cannot have as a column.

    Args:
        where: Prefix of the error message.

    Returns:
        The different names, in order.
    """
    names = list(dict.fromkeys(map(normalize_name, names)))
    wrong = [name for name in names if not name or '|' in name or name.casefold() in RESERVED]
    if wrong:
        raise SpmlError(
            f'{where}no class can be called {join_items(map(repr, wrong))}. Choose another name, '
            f'without `|`; columns that are no class are {join_items(RESERVED)}, in small letters.'
        )
    return names


def normalize_name(name: str) -> str:
    "Normalize a name (Unicode NFC, no blanks around it), so that names that look equal are equal."
    name = re.sub('[\u200b\u2060\ufeff\u00ad]', '', name)  # characters without width
    return unicodedata.normalize('NFC', re.sub(r'\s*[\r\n\t]\s*', ' ', name.strip()))


def _advice(header):
    "A sentence for a common mistake in the first line, or ''."
    first = header[0]
    rest = [name for name in header[1:] if name not in ('split', 'group')]
    if os.path.splitext(first)[1].lower() in PHOTOS:
        return f'The first line must name the columns: {_HEADERS}. '
    if not first:
        return (
            'The first column may be row numbers: from pandas, write the table with index=False. '
        )
    if first.lower().startswith('sep='):
        return 'Remove the first line, which is for Excel alone. '
    if first != 'image' and 'image' in rest:
        return 'Put `image` first. '
    if first != 'image':
        return f'Rename the first column {first!r} to `image`. '
    classes = [name for name in rest if name not in NAME_COLUMNS]
    if classes and len(classes) < len(rest):
        return (
            'Beside a column of names only `split` and `group` are allowed: remove '
            f'{join_items(map(repr, classes))}. '
        )
    return ''


def label_matrix(
    rows: Iterable[Iterable], rest: int = -1, names: Sequence | None = None
) -> tuple[np.ndarray, Sequence]:
    """Make a label matrix from the names of each image's classes.

    Args:
        rows: N collections of names.
        rest: Label of the other classes: -1 for absent, 0 for unknown.
        names: All C names; by default those of the rows, sorted.

    Returns:
        (N, C) int8 of 1 and `rest`, and the C names.
    """
    if names is None:
        names = sorted({name for row in rows for name in row})
    column = {name: c for c, name in enumerate(names)}
    labels = np.full((len(rows), len(names)), rest, np.int8)
    for k, row in enumerate(rows):
        labels[k, [column[name] for name in row]] = 1
    return labels, names


def parse_label_table(table: pd.DataFrame, file: Path) -> tuple[np.ndarray, Sequence]:
    """Read the labels of a table.

    Args:
        table: As from `read_label_table`.
        file: For messages.

    Returns:
        (N, C) int8: 1 present, 0 unknown, -1 absent; and the class names: the columns in order, or
        the names in a column of names, sorted.

    Raises:
        SpmlError: For invalid cells.
    """
    for kind, rest in NAME_COLUMNS.items():
        if kind in table:
            _refuse_other_signs(table[kind], f'{file}: the column `{kind}`')
            cells = [map(normalize_name, cell.split('|')) for cell in table[kind]]
            return label_matrix([[name for name in cell if name] for cell in cells], rest)
    others = ['image', 'split'] if read_groups(table) is None else ['image', 'split', 'group']
    names = [name for name in table.columns if name not in others]
    return np.stack([_read_column(table, name, file) for name in names], axis=1), names


def read_groups(table: pd.DataFrame) -> list[str] | None:
    """Read the column `group`, '' for a photo without a group; None if there is no such column.

    Beside columns of classes, a column `group` with only 1, 0 and empty cells is a class.
    """
    others = set(table) - {'image', 'split', 'group'}
    if 'group' not in table or not others:
        return None
    groups = [cell.strip() for cell in table['group']]
    return None if others.isdisjoint(NAME_COLUMNS) and CELLS.keys() >= set(groups) else groups


def _read_column(table, name, file):
    codes, cells = pd.factorize(table[name])
    wrong = [code for code, cell in enumerate(cells) if cell.strip() not in CELLS]
    if wrong:
        row = np.flatnonzero(codes == wrong[0])[0]
        raise SpmlError(
            f'{file}: cell {cells[wrong[0]]!r} in row {row + 1} (image {table["image"][row]!r}), '
            f'column {name!r}; allowed: 1 (present), 0 (absent), empty (unknown). '
            f'{_other_column(table, name)}'
        )
    return np.array([CELLS[cell.strip()] for cell in cells], np.int8)[codes]


def _refuse_other_signs(cells, where):
    "Refuse a column of names with another separator than `|`, or without names."
    cells = [cell.strip() for cell in cells if cell.strip()]
    if cells and {*CELLS, '-1'}.issuperset(cells):
        raise SpmlError(
            f'{where} contains only numbers. Give a column of 1 and 0 the name of its class.'
        )
    if cells and all(cell[0] + cell[-1] == '[]' for cell in cells):
        raise SpmlError(
            f'{where} contains lists such as {cells[0]!r}. Write the names with `|` between them.'
        )
    sign = sign_between(cells)
    if sign in SIGNS:
        joined = next(cell for cell in cells if sign in cell)
        raise SpmlError(
            f'{where} has {SIGNS[sign]} between names, as in {joined!r}. Write `|` between them; '
            f'if the {SIGNS[sign]} belong to the names, end one cell with `|`.'
        )


def sign_between(cells: list[str]) -> str | None:
    """Guess the separator of names in the cells of a column.

    Args:
        cells: None of them empty.

    Returns:
        '|' if any cell has it; else a sign of `SIGNS` that most cells have, or that joins names
        which other cells have alone; else None.
    """
    if any('|' in cell for cell in cells):
        return '|'
    for sign in SIGNS:
        pieces = {cell: [normalize_name(piece) for piece in cell.split(sign)] for cell in cells}
        single = {names[0] for names in pieces.values() if len(names) == 1}
        joined = [cell for cell in cells if len(pieces[cell]) > 1]
        in_most_cells = 2 * len(joined) > len(cells)
        if in_most_cells or any(single.issuperset(pieces[cell]) for cell in joined):
            return sign
    return None


def _other_column(table, name):
    "A sentence about what a column that is not a class may be."
    words = {cell.strip() for cell in table[name]} - {''}
    if all(_guess_part(word) for word in words):
        return 'It looks like the parts: name the column `split`.'
    if len(table.columns.difference(['image', 'split'])) == 1:
        return (
            f'Write these. If {name!r} contains names, call it `positives` (the rest is unknown) '
            'or `labels` (the rest is absent).'
        )
    return f'Write these. Remove the column only if {name!r} is no class.'


def _guess_part(word):
    "The part that a word such as 'training' or 'tset' means, or None."
    for part in PARTS:
        if word.lower().startswith(part):
            return part
    return next(iter(get_close_matches(word.lower(), PARTS, 1, 0.7)), None)


# ---- the photos


def locate_photos(cells: list[str], folder: Path, file: Path) -> list[Path]:
    """Find the photos of a column `image`.

    Args:
        cells: Paths below the folder.
        folder: The folder images/.
        file: The table, for messages.

    Raises:
        SpmlError: If photos are missing, outside the folder, or listed twice.
    """
    names = [posixpath.normpath(cell) if cell.strip() else '' for cell in cells]
    outside = [
        cell
        for cell, name in zip(cells, names, strict=True)
        if not name or os.path.isabs(name) or name.split('/')[0] == '..'
    ]
    if outside:
        raise SpmlError(
            f'{file} has images outside {folder} or without a name: '
            f'{_suggest_photos(outside, folder)}. The column `image` must contain paths below that '
            'folder.'
        )
    paths = [_image_path(folder, name) for name in names]
    absent = [name for name, path in zip(names, paths, strict=True) if path is None]
    if absent:
        images = 'image' if len(absent) == 1 else 'images'
        raise SpmlError(
            f'{file} names {len(absent):,} {images} not to be found in {folder}: '
            f'{_suggest_photos(absent, folder)}. Add them, mend the names, or remove the rows.'
        )
    twice = pd.Series(names)[pd.Series(map(str, paths)).duplicated()].unique()
    if len(twice):
        raise SpmlError(
            f'{file} has more than one row for: {join_items(twice)}. Join them: one row an image.'
        )
    return paths


def _image_path(folder, name):
    "Path of an existing file with that name, in any Unicode normalization; None if there is none."
    for spelling in (name, unicodedata.normalize('NFC', name), unicodedata.normalize('NFD', name)):
        path = folder / spelling
        if os.path.isfile(path):
            return path
    return None


def photos_below(folder: Path) -> list[str]:
    "List the photos below a folder, by their suffix: sorted relative paths."

    def refuse(error):
        raise _unreadable(error) from error

    return sorted(
        os.path.relpath(os.path.join(base, name), folder).replace(os.sep, '/')
        for base, _, names in os.walk(folder, onerror=refuse)
        for name in names
        if name[0] != '.' and os.path.splitext(name)[1].lower() in PHOTOS
    )


def match_photos(names: Iterable[str], folder: Path) -> dict[str, str]:
    """Find photos that differ from missing names in capitals, suffix or folder.

    Args:
        names: Paths in a table that do not exist.
        folder: The folder images/.

    Returns:
        {name: path below the folder}, for names that match exactly one photo.
    """
    photos = defaultdict(list)
    for path in photos_below(folder):
        for form in set(_spellings(path)):
            photos[form].append(path)
    matches = {}
    for name in names:
        candidates = next((photos[form] for form in _spellings(name) if form in photos), [])
        if len(candidates) == 1:
            matches[name] = candidates[0]
    return matches


def _spellings(path):
    "Keys by which two names of one photo may match, the most specific first."
    path = path.strip().replace('\\', '/').lower()
    name = posixpath.basename(path)
    return path, name, posixpath.splitext(name)[0]


def _suggest_photos(names, folder):
    "List names for a message, each with the photo that was probably meant."
    matches = match_photos(names, folder)
    return join_items(
        f'{name!r} (found as {matches[name]}: write that)' if name in matches else repr(name)
        for name in names
    )


# ---- the split

_SEED = 7069  # of the hash that draws parts
_MIN_ROWS = {'test': 4, 'val': 3}  # training rows needed to draw a part, so that none is empty


def _read_split(words, images, file, draw_by=None, scored=False):
    """The part of each image, and the parts that were drawn.

    Args:
        words: The column `split`. Validation is drawn if it has none; without a column (None), test
            and validation are.
        draw_by: As `names` in `_draw_part`.
    """
    split = np.full(len(images), 'train', '<U5')
    if words is not None:
        split[:] = _check_split([word.strip() for word in words], images, file, scored)
    elif scored and len(images) < _MIN_ROWS['test']:
        split[:] = 'test'
    if 'val' in split or 'train' not in split:
        return split, ()
    drawn = ('test', 'val') if words is None else ('val',)
    for part in drawn:
        try:
            rows = _draw_part(part, split, draw_by, file)
        except SpmlError:
            if not scored:
                raise
            # too few photos or groups to draw from, and photos to be scored need no parts
            if words is None:
                split[:] = 'test'
            return split, ()
        split[rows] = part
    return split, drawn


def _check_split(words, images, file, scored):
    "Return the words of a column `split` if they are valid and all necessary parts occur."
    unknown = [word for word in dict.fromkeys(words) if word not in PARTS]
    if unknown:
        remedy = ''
        for word in unknown:
            if part := _guess_part(word) if word else 'one of these':
                remedy += f' Write {part} for {word!r} ({words.count(word):,} rows).'
        row = words.index(unknown[0])
        raise SpmlError(
            f'{file}: unknown split {unknown[0]!r} in row {row + 1} (image {images[row]!r}); '
            f'allowed: {", ".join(PARTS)}.{remedy}'
        )
    needed = {
        'train': ' to train on them. As they are, spml evaluate RUN FOLDER scores a run on them',
        'test': ': then 20 % of all rows test and 20 % of the rest validate',
    }
    for part, remedy in needed.items():
        if part not in words and not scored:
            raise SpmlError(
                f'{file}: the column `split` names no {part} row. Mark some, or remove the '
                f'column{remedy}.'
            )
    return words


def _draw_part(part, split, names, file):
    """Draw the training rows that become another part, about 20 %.

    Args:
        names: Names of the photos or of their groups, by which rows are drawn, so that a photo
            keeps its part when rows are added; rows of one name stay together. None draws by row.
    """
    rows = np.flatnonzero(split == 'train')
    if len(rows) < _MIN_ROWS[part]:
        kind = 'train rows' if len(rows) < len(split) else 'rows'
        raise SpmlError(
            f'{file}: {len(rows)} {kind} are too few to split; needed: {_MIN_ROWS[part]} or more. '
            'Add photos, or mark train, val and test in a column `split`.'
        )
    if names is None:
        return rows[split_rows(len(rows))[1]]
    numbers = np.array([_hash_name(part, names[row]) for row in rows])
    most = len(rows) - _MIN_ROWS[part] + 1
    values, counts = np.unique(numbers, return_counts=True)
    fitting = np.cumsum(counts) <= most
    if not fitting.any():
        raise SpmlError(
            f'{file}: {len(values)} groups of photos are too few, or one too large, to draw the '
            f'part {part}. Add photos of other groups, or mark train, val and test in a column '
            '`split`.'
        )
    count = np.clip((values < 0.2).sum(), 1, fitting.sum())
    return rows[numbers <= values[count - 1]]


def _hash_name(part, name):
    "Hash the name of a photo to a number in [0, 1), independently for each part."
    name = unicodedata.normalize('NFC', posixpath.normpath(name))
    digest = hashlib.sha256(f'{_SEED} {part} {name}'.encode()).digest()
    return int.from_bytes(digest[:8], 'big') / 2**64


def split_by_row(data: Dataset) -> Dataset:
    """Redraw the parts in `data.drawn` by row instead of by name, as earlier versions did.

    Source:
        Cole et al. (2021).
    """
    split = np.where(np.isin(data.split, data.drawn), 'train', data.split)
    for part in data.drawn:
        split[_draw_part(part, split, None, data.name)] = part
    return replace(data, split=split, drawn=())


def split_by_name(data: Dataset, folder: Path, parts: tuple[str, ...]) -> Dataset:
    """Draw parts of a folder by name, as if its column `split` did not assign them.

    Args:
        data: As from `read_folder`.
        folder: The folder.
        parts: ('val',) or ('test', 'val').

    Raises:
        SpmlError: If there are too few photos.
    """
    names = [os.path.relpath(photo, folder / 'images') for photo in data.images]
    draw_by = [group or name for group, name in zip(data.groups or names, names, strict=True)]
    split = np.where(np.isin(data.split, parts), 'train', data.split)
    for part in parts:
        split[_draw_part(part, split, draw_by, data.name)] = part
    return replace(data, split=split, drawn=parts)


def explain_split(data: Dataset, seen: str) -> str:
    """Explain that a run's data differ only in the split, which earlier versions drew by row.

    Args:
        data: The data set now.
        seen: `Dataset.fingerprint` or `Dataset.photos_of('test')` of what the run saw.

    Returns:
        Two sentences, the second with the remedy; '' if something else differs.
    """
    if not data.drawn:
        return ''
    before = split_by_row(data)
    if seen not in (before.fingerprint, before.photos_of('test')):
        return ''
    return (
        'Photos and labels are the same, but the split has changed: parts were drawn by row, and '
        "are drawn by the photos' names now. A column `split` with the parts that "
        '`spml_nb.data.folder.split_by_row` gives keeps the old ones.'
    )


# ---- the folder


def assemble_dataset(name: str, listing: Listing, folder: Path, file: Path) -> Dataset:
    """Make a `Dataset` from a listing; parts that it does not assign are drawn by row.

    Args:
        name: Name of the data set.
        folder: The folder images/.
        file: The table, for messages.

    Raises:
        SpmlError: If images are missing, outside the folder or listed twice, or the split is
            invalid.
    """
    split, _ = _read_split(listing.split, listing.images, file)
    paths = locate_photos(listing.images, folder, file)
    return Dataset(name, paths, listing.labels, listing.class_names, split)


def images_folder(folder: Path, expected: str = '') -> Path:
    """Find the folder images/ of a data set.

    Args:
        folder: The data set.
        expected: Prefix of the error message.

    Raises:
        SpmlError: If it is missing or empty, or cannot be read.
    """
    images = folder / 'images'
    try:
        if not folder.is_dir() or not any(folder.iterdir()):
            raise SpmlError(f'{expected}the folder {folder} is {_state(folder)}. {FORM}')
        if not images.is_dir() or not any(images.iterdir()):
            state = 'empty' if images.is_dir() else 'not there'
            hint = _other_images(folder) or _class_folders(folder)
            raise SpmlError(f'{expected}{images} is {state}. {hint}{FORM}')
    except OSError as error:
        raise _unreadable(error) from error
    return images


def _state(folder):
    if folder.is_dir():
        return 'empty'
    return 'a file' if folder.exists() else 'not there'


def _unreadable(error: OSError) -> SpmlError:
    return SpmlError(
        f'{error.filename} cannot be read: {error.strerror or error}. Give yourself permission to '
        'read it.'
    )


def read_folder(
    folder: Path, name: str, expected: str = '', scored: bool = False, by_row: bool = False
) -> Dataset:
    """Read a folder with images/ and labels.csv.

    Args:
        folder: The folder.
        name: Name of the data set.
        expected: Prefix of the error message if there is no such folder.
        scored: The data are only scored: training or test rows may be missing.
        by_row: Draw parts by row (as for the papers' data sets), not by the names of the photos.

    Raises:
        SpmlError: If the folder, the table or an image is missing or malformed.
    """
    images = images_folder(folder, expected)
    file = folder / 'labels.csv'
    if not file.exists():
        raise SpmlError(
            f'{expected}{file} is not there. {_other_table(folder)}{_class_folders(folder)}{FORM}'
        )
    table = read_label_table(file)
    if table.empty:
        raise SpmlError(f'{file} has a header and no rows. Add a row for each photo.')
    names = table['image'].tolist()
    words = table['split'].tolist() if 'split' in table else None
    groups = read_groups(table)
    draw_by = None
    if not by_row:  # photos of a group are drawn together
        draw_by = [group or name for group, name in zip(groups or names, names, strict=True)]
    paths, (split, drawn), (labels, class_names) = _collect_errors(
        lambda: locate_photos(names, images, file),
        lambda: _read_split(words, names, file, draw_by, scored),
        lambda: parse_label_table(table, file),
    )
    if not class_names:
        raise SpmlError(f'{file} names no label at all. Write names of classes beside the images.')
    drawn = () if by_row else drawn
    return Dataset(name, paths, labels, class_names, split, drawn, groups)


def _collect_errors(*readers):
    "Call each reader and return the results; the errors of several are raised as one."
    results, errors = [], []
    for read in readers:
        try:
            results.append(read())
        except SpmlError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise SpmlError(f'{len(errors)} things are wrong. ' + ' '.join(map(str, errors)))
    return results


def _other_table(folder):
    "A sentence about a table with another name or place, or ''."
    suffixes = ('.csv', '.tsv', '.txt', '.xls', '.xlsx', '.ods')
    files = [*folder.glob('*'), *(folder / 'images').glob('*')]
    tables = sorted(file for file in files if file.suffix.lower() in suffixes)
    if not tables:
        return ''
    is_csv = tables[0].suffix.lower() == '.csv'
    remedy = 'Rename it' if is_csv else 'Save it with commas between the columns'
    path = tables[0].relative_to(folder).as_posix()
    return f'There is {path}. {remedy}, as labels.csv beside images/. '


def _other_images(folder):
    "A sentence about photos outside images/, or ''."
    entries = sorted(folder.iterdir())
    folders = [path for path in entries if path.is_dir() and path.name != 'images']
    candidates = [path for path in folders if path.name.lower() == 'images']
    candidates = candidates or [path for path in folders if photos_below(path)]
    if len(candidates) == 1:
        return f'There is {candidates[0].name}/. Rename it to images. '
    loose = [path.name for path in entries if path.suffix.lower() in PHOTOS]
    if loose:
        return (
            f'{len(loose):,} photos lie outside images/ ({join_items(loose, 3)}). Move them into '
            'it. '
        )
    return ''


def _class_folders(folder):
    "A sentence about photos that are sorted into one folder per class, or ''."
    images = folder / 'images'
    names = sorted(
        {
            path.parent.name
            for path in [*folder.glob('*/*'), *images.glob('*/*')]
            if path.parent != images and path.suffix.lower() in PHOTOS
        }
    )
    if not names:
        return ''
    return (
        f'There is one folder for each class ({join_items(names, 3)}). Keep the photos in '
        f'images/{names[0]}/ and so on, with a table whose first line is {_HEADERS}, then rows '
        f'like `{names[0]}/photo.jpg,{names[0]}`. '
    )


def candidate_folders(folder: str | Path, root: str | Path | None = None) -> list[Path]:
    """Resolve a folder against `root`, the current folder and that of settings.ini, in this order.

    Returns:
        Different absolute paths; one, if `folder` is absolute.
    """
    bases = [Path.cwd(), Path(settings.read_settings()['base'])]
    if root is not None:
        bases.insert(0, settings.expand_home(root))
    folder = settings.expand_home(folder)
    return list(dict.fromkeys(Path(os.path.abspath(base / folder)) for base in bases))


def find_folder(folder: str | Path, root: str | Path | None = None) -> Path:
    "The first of `candidate_folders` that exists, else the first one."
    candidates = candidate_folders(folder, root)
    return next((path for path in candidates if path.is_dir()), candidates[0])
