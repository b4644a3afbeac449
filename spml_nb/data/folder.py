"""A folder with images/ and labels.csv becomes a `Dataset`; mistakes in the table are named before training."""

import csv
import hashlib
import os
import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from threading import Condition
from typing import BinaryIO

import numpy as np
import pandas as pd
from PIL import Image, ImageOps, UnidentifiedImageError

from ..base import settings
from ..base.errors import SpmlError
from ..base.files import regular
from .dataset import PARTS, Dataset, listed
from .labels import split as split_rows

LAYOUT = (
    'The first column of labels.csv must be `image`, a path below images/; then one of three: one '
    'column a class with 1, 0 or nothing (unknown) in each cell; one column `labels` with all '
    'names that apply, separated by `|` (the rest is absent); or one column `positives` with '
    'names known to apply (the rest is unknown). A column `split` (train, val, test) may follow.'
)
NAMED = {
    'labels': -1,
    'positives': 0,
}  # columns of names, and what each says of a class that it does not name
HEADERS = (
    "`image,positives` (some of a photo's labels are known) or `image,labels` (all of them are "
    "known)"
)


@dataclass(frozen=True, eq=False)
class Listing:
    """What a table, or the official files of a benchmark, say about a set of images.

    Args:
        images: N paths below images/, in the order of the table.
        labels: (N, C) int8: 1 present, 0 unknown, -1 absent.
        class_names: C names.
        split: N words, 'train', 'val' or 'test'; None where the table has none.
        originals: N files, each with a box or None, that `official.shrink` makes the images of;
            None if they are there.
    """

    images: list[str]
    labels: np.ndarray
    class_names: list[str]
    split: list[str] | None = None
    originals: list | None = None


def _read_rows(file):
    "The lines of a table as lists of str, without the blank ones."
    try:
        with open(regular(file), encoding='utf-8-sig', newline='') as lines:
            rows = [
                row for row in csv.reader(lines, strict=True) if any(cell.strip() for cell in row)
            ]
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise SpmlError(
            f'{file} cannot be read as a comma-separated table in UTF-8: {error}. '
            + (
                'Make it readable.'
                if isinstance(error, OSError)
                else 'Save it as CSV UTF-8, with commas between columns.'
            )
        ) from error
    if not rows:
        raise SpmlError(f'{file} is empty. {LAYOUT}')
    for sign, word in {';': 'semicolons', '\t': 'tabs', '|': 'vertical bars'}.items():
        if len(rows[0]) == 1 and sign in rows[0][0]:
            raise SpmlError(
                f'{file}: the columns are separated by {word}, as its first line {rows[0][0]!r} '
                'shows. Save it with commas between the columns.'
            )
    return rows


def read_cells(file: Path) -> pd.DataFrame:
    """Read labels.csv as text.

    Args:
        file: The table.

    Returns:
        DataFrame of str; the first column is `image`, and each has its own name. No row where the
        file has none.

    Raises:
        SpmlError: If it cannot be read, or has another layout.
    """
    header, *rows = _read_rows(file)
    header = [_composed(name) for name in header]
    form = f'{_advice(header)}{LAYOUT}'
    repeated = sorted(name for name, times in Counter(header).items() if times > 1 or not name)
    if repeated:
        raise SpmlError(
            f'{file}: unknown layout, columns repeated or without a name: '
            f'{listed(map(repr, repeated))}. {form}'
        )
    labels = set(header) - {'image', 'split'}
    usable_names([name for name in header if name not in RESERVED], f'{file}: ')
    if labels >= set(NAMED):
        raise SpmlError(
            f'{file} has both a column `labels` (complete) and a column `positives` (the rest is '
            'unknown). Keep one. Where only some images are complete, give each class a column, '
            'with empty cells for what is unknown.'
        )
    if header[0] != 'image' or not labels or (labels & set(NAMED) and len(labels) > 1):
        raise SpmlError(f'{file}: unknown layout with the columns {listed(header)}. {form}')
    ragged = [f'{k} ({len(row)})' for k, row in enumerate(rows, 1) if len(row) != len(header)]
    if ragged:
        raise SpmlError(
            f'{file}: the header has {len(header)} cells, but not row (cells): {listed(ragged)}. '
            'Empty cells need their commas, names with a comma need quotation marks.'
        )
    return pd.DataFrame(rows, columns=header, dtype=object)


def usable_names(names: Iterable[str], where: str = '') -> list[str]:
    """Bring the names of classes into the form that a table keeps.

    Args:
        names: As they were typed.
        where: Opens the message.

    Returns:
        The different ones in their order, without blanks around them, é as one character.

    Raises:
        SpmlError: For a name that the header of a table cannot have.
    """
    names = list(dict.fromkeys(map(_composed, names)))
    if wrong := [name for name in names if not name or '|' in name or name.casefold() in RESERVED]:
        raise SpmlError(
            f'{where}no class can be called {listed(map(repr, wrong))}. Choose another name, '
            f'without `|`; columns that are no class are {listed(RESERVED)}, in small letters.'
        )
    return names


def _composed(name):
    "A name as it is seen, é as one character: so that it is one class however it was typed."
    name = re.sub('[\u200b\u2060\ufeff\u00ad]', '', name)  # they have no width
    return unicodedata.normalize('NFC', re.sub(r'\s*[\r\n\t]\s*', ' ', name.strip()))


RESERVED = ('image', 'labels', 'positives', 'split')  # columns that are no class


def _advice(header):
    "A sentence for whoever's first line is another, else nothing."
    first, rest = header[0], [name for name in header[1:] if name != 'split']
    if os.path.splitext(first)[1].lower() in PHOTOS:
        return f'The first line must name the columns: {HEADERS}. '
    if not first:
        return (
            'The first column may be row numbers: from pandas, write the table with index=False. '
        )
    if first.lower().startswith('sep='):
        return 'Remove the first line, which is for Excel alone. '
    if first != 'image':
        return (
            f'Rename the first column {first!r} to `image`. '
            if 'image' not in rest
            else 'Put `image` first. '
        )
    if beside := [name for name in rest if name not in NAMED] if set(NAMED) & set(rest) else []:
        return (
            f'Only `split` may stand beside a column of names: remove {listed(map(repr, beside))}. '
        )
    return ''


CELLS = {'1': 1, '1.0': 1, '0': -1, '0.0': -1, '': 0}


def label_matrix(
    rows, rest: int = -1, names: Sequence | None = None
) -> tuple[np.ndarray, Sequence]:
    """Make a matrix of the names of each image's labels.

    Args:
        rows: N collections of names.
        rest: What is not named: -1 for absent, 0 for unknown.
        names: All C names in their order; those of the rows, sorted, if unset.

    Returns:
        (N, C) int8 of 1 and `rest`, and the C names.
    """
    names = sorted({name for row in rows for name in row}) if names is None else names
    column = {name: c for c, name in enumerate(names)}
    labels = np.full((len(rows), len(names)), rest, np.int8)
    for k, present in enumerate(rows):
        labels[k, [column[name] for name in present]] = 1
    return labels, names


def read_labels(table: pd.DataFrame, file: Path) -> tuple[np.ndarray, Sequence]:
    """Read the labels of a table.

    Args:
        table: As from `read_cells`.
        file: For messages.

    Returns:
        (N, C) int8: 1 present, 0 unknown, -1 absent. The class names: columns in the table's order,
        or the names in a column of names, sorted.

    Raises:
        SpmlError: For cells that are no labels.
    """
    if kind := next((name for name in NAMED if name in table), None):
        _refuse_other_signs(table[kind], f'{file}: the column `{kind}`')
        rows = [[name for name in map(_composed, cell.split('|')) if name] for cell in table[kind]]
        return label_matrix(rows, NAMED[kind])
    names = [name for name in table.columns if name not in ('image', 'split')]
    return np.stack([_read_column(table, name, file) for name in names], axis=1), names


def _read_column(table, name, file):
    codes, cells = pd.factorize(table[name])
    wrong = next((code for code, cell in enumerate(cells) if cell.strip() not in CELLS), None)
    if wrong is not None:
        row = np.flatnonzero(codes == wrong)[0]
        raise SpmlError(
            f"{file}: cell {cells[wrong]!r} in row {row + 1} (image {table['image'][row]!r}), "
            "column "
            f'{name!r}; allowed: 1 (present), 0 (absent), empty (unknown). '
            f'{_other_column(table, name)}'
        )
    return np.array([CELLS[cell.strip()] for cell in cells], np.int8)[codes]


def _refuse_other_signs(cells, where):
    "Refuse a column of names whose cells are joined by another sign, or are no names."
    given = [cell.strip() for cell in cells if cell.strip()]
    if given and set(given) <= set(CELLS) | {'-1'}:
        raise SpmlError(
            f'{where} holds numbers alone. Give a column of 1 and 0 the name of its class.'
        )
    if given and all(cell[0] + cell[-1] == '[]' for cell in given):
        raise SpmlError(
            f'{where} holds lists such as {given[0]!r}. Write the names with `|` between them.'
        )
    if any('|' in cell for cell in given):
        return
    for sign, word in {',': 'commas', ';': 'semicolons'}.items():
        parts = [[_composed(part) for part in cell.split(sign)] for cell in given]
        alone, joined = (
            {part[0] for part in parts if len(part) == 1},
            [part for part in parts if len(part) > 1],
        )
        if 2 * len(joined) > len(given) or any(set(part) <= alone for part in joined):
            shown = next(cell for cell, part in zip(given, parts, strict=True) if len(part) > 1)
            raise SpmlError(
                f'{where} has {word} between names, as in {shown!r}. Write `|` between them; if '
                f'the {word} belong to the names, end one cell with `|`.'
            )


def _other_column(table, name):
    "What a column that is no class probably is."
    words = {cell.strip() for cell in table[name]} - {''}
    if all(_part(word) for word in words):
        return 'It looks like the parts: name the column `split`.'
    if len(table.columns.difference(['image', 'split'])) == 1:
        return (
            f'Write these. If {name!r} holds names, call it `positives` (the rest is unknown) or '
            '`labels` (the rest is absent).'
        )
    return f'Write these. Remove the column only if {name!r} is no class.'


def _part(word):
    "The part of a data set that a word stands for, or None."
    return next(
        (part for part in PARTS if word.lower().startswith(part)),
        next(iter(get_close_matches(word.lower(), PARTS, 1, 0.7)), None),
    )


def _image_paths(given, folder, file):
    names = [posixpath.normpath(name) if name.strip() else '' for name in given]
    outside = [
        word
        for word, name in zip(given, names, strict=True)
        if not name or os.path.isabs(name) or name.split('/')[0] == '..'
    ]
    if outside:
        raise SpmlError(
            f'{file} has images outside {folder} or without a name: {_elsewhere(outside, folder)}. '
            'The column `image` holds paths below that folder.'
        )
    paths = [_image_path(folder, name) for name in names]
    absent = [name for name, path in zip(names, paths, strict=True) if path is None]
    if absent:
        raise SpmlError(
            f'{file} names {len(absent):,} image{"s" * (len(absent) > 1)} not to be found in '
            f'{folder}: {_elsewhere(absent, folder)}. Add them, mend the names, or remove the rows.'
        )
    twice = pd.Series(names)[pd.Series(map(str, paths)).duplicated()].unique()
    if len(twice):
        raise SpmlError(
            f'{file} has more than one row for: {listed(twice)}. Join them: one row an image.'
        )
    return paths


def _image_path(folder, name):
    """The file of that name, or of its other spelling: é is one character to some systems, e and an
    accent to others.
    """
    spellings = (
        folder / name,
        *(folder / unicodedata.normalize(form, name) for form in ('NFC', 'NFD')),
    )
    return next(filter(os.path.isfile, spellings), None)


def _photos_below(folder):
    "Paths below a folder of all files that a photo's suffix ends, sorted."

    def refuse(error):
        raise _unreadable(error) from error

    return sorted(
        os.path.relpath(os.path.join(base, name), folder).replace(os.sep, '/')
        for base, _, names in os.walk(folder, onerror=refuse)
        for name in names
        if name[0] != '.' and os.path.splitext(name)[1].lower() in PHOTOS
    )


def _elsewhere(names, folder):
    "Names in a table for a message, each with the photo that was probably meant."

    def forms(path):  # from what is most sure to what is least
        path = path.replace('\\', '/').lower()
        last = path.rpartition('/')[2]
        return path, last, posixpath.splitext(last)[0]

    there = {}
    for path in _photos_below(folder):
        for form in dict.fromkeys(forms(path)):
            there.setdefault(form, []).append(path)

    def hint(name):
        found = next((there[form] for form in forms(name) if form in there), ())
        return f'{name!r} (found as {found[0]}: write that)' if len(found) == 1 else repr(name)

    return listed(map(hint, names))


FORMATS = {  # of photos, as Pillow calls them, with the suffixes that their files have
    'JPEG': ('.jpg', '.jpeg', '.jfif', '.mpo'),
    'PNG': ('.png',),
    'GIF': ('.gif',),
    'BMP': ('.bmp',),
    'TIFF': ('.tif', '.tiff'),
    'WEBP': ('.webp',),
    'AVIF': ('.avif',),
    'JPEG2000': ('.jp2',),
    'PPM': ('.ppm', '.pgm', '.pbm', '.pnm'),
}
PHOTOS = {suffix for suffixes in FORMATS.values() for suffix in suffixes}


def open_photo(file: Path | BinaryIO) -> Image.Image:
    """Open a file as a photo, whatever its suffix.

    Pillow would hand an EPS named .jpg to Ghostscript, which runs programs; here only the decoders
    of `FORMATS` see a file.

    Args:
        file: A path, or a file opened in binary.

    Returns:
        PIL image, not decoded yet.

    Raises:
        UnidentifiedImageError: For any other format; `reason` names it.
    """
    return Image.open(file, formats=tuple(FORMATS))


def upright(image: Image.Image) -> Image.Image:
    """Turn one opened image into RGB, the right way up, with white where it is transparent.

    Args:
        image: PIL image of any mode.

    Returns:
        PIL image of mode RGB at its own size.

    Raises:
        SpmlError: For 32-bit grey. Damaged files raise what Pillow raises.
    """
    with suppress(
        Exception
    ):  # unreadable tags do not make a photo unusable; unreadable pixels raise again below
        ImageOps.exif_transpose(image, in_place=True)
    if image.mode in ('I', 'F'):
        raise SpmlError('grey values of 32 bits have no fixed range: save it with 8 or 16 bits')
    if image.mode.startswith('I;16'):
        values = np.asarray(image)
        values = np.where(values == image.info.get('transparency', -1), 65535, values)
        image = Image.fromarray((values >> 8).astype(np.uint8))
    return _over_white(image) if image.has_transparency_data else image.convert('RGB')


def _over_white(image):
    """RGB of an image with transparency: the colour that a transparent pixel hides is nowhere to be
    seen.
    """
    image = image.convert('RGBA')
    return Image.alpha_composite(Image.new('RGBA', image.size, 'white'), image).convert('RGB')


def reason(error: Exception, file: Path) -> str:
    """Say why a photo cannot be used.

    Args:
        error: What opening it raised.
        file: The photo.

    Returns:
        A few words.
    """
    if isinstance(error, UnidentifiedImageError):
        if not os.path.getsize(file):
            return 'an empty file'
        other = _other_format(file)
        return (
            f'{other}; allowed: {", ".join(FORMATS)}'
            if other
            else 'not an image that Pillow can read'
        )
    if isinstance(error, Image.DecompressionBombError):
        return f'more than the {2 * Image.MAX_IMAGE_PIXELS:,} pixels that Pillow opens'
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (getattr(error, 'message', '') or str(error) or type(error).__name__).splitlines()[0][
        :120
    ]


_NOT_PILLOWS = {
    'PDF': re.compile(rb'%PDF'),
    'HEIC': re.compile(rb'.{4}ftyp(hei|hev|mif1)', re.DOTALL),
}


def _other_format(file):
    "The format of a file that is no photo, by its first bytes alone; None if they say nothing."
    with open(file, 'rb') as opened:
        start = opened.read(16).ljust(16, b'\0')
    Image.init()
    named = [
        name for name, (_, accepts) in Image.OPEN.items() if accepts and accepts(start) is True
    ]
    named += [name for name, form in _NOT_PILLOWS.items() if form.match(start)]
    return next((name for name in named if name not in FORMATS), None)


IN_FLIGHT = 2**27  # pixels: about 1 GiB while they are decoded, converted and turned


class PixelBudget:
    """What threads may decode at a time, in pixels rather than photos: eight photos of 178
    megapixels take 9 GB.

    Args:
        limit: Pixels. A photo that has more is decoded while no other is.
    """

    def __init__(self, limit: int):
        self.limit, self.used = limit, 0
        self._changed = Condition()

    @contextmanager
    def hold(self, image: Image.Image) -> Iterator[None]:
        """Wait until there is room for an image, and take it until the end of the block.

        Args:
            image: Opened, not decoded yet.

        Returns:
            A context manager.
        """
        pixels = min(image.width * image.height, self.limit)
        with self._changed:
            self._changed.wait_for(lambda: self.used + pixels <= self.limit)
            self.used += pixels
        try:
            yield
        finally:
            with self._changed:
                self.used -= pixels
                self._changed.notify_all()


budget = PixelBudget(IN_FLIGHT)  # one for all threads of the process


def _read_split(given, images, file, scored=False, by_row=False):
    """The part of each image, and the parts that were drawn: validation if the table names none,
    all if it has no split.
    """
    split = np.full(len(images), 'train', '<U5')
    if given is not None:
        words = [word.strip() for word in given]
        wrong = next((row for row, word in enumerate(words) if word not in PARTS), None)
        if wrong is not None:
            others = {
                word: _part(word) if word else 'one of these' for word in dict.fromkeys(words)
            }
            meant = ''.join(
                f' Write {part} for {word!r} ({words.count(word):,} rows).'
                for word, part in others.items()
                if part and word not in PARTS
            )
            raise SpmlError(
                f'{file}: unknown split {words[wrong]!r} in row {wrong + 1} (image '
                f"{images[wrong]!r}); allowed: {', '.join(PARTS)}.{meant}"
            )
        split[:] = words
        for part, remedy in (
            ('train', ''),
            ('test', ': then 20 % of all rows test and 20 % of the rest validate'),
        ):
            if part not in words and not scored:
                raise SpmlError(
                    f'{file}: the column `split` names no {part} row. Mark some, or remove the '
                    f'column{remedy}.'
                )
    elif scored and len(images) < _LEAST['test']:
        split[:] = 'test'
    drawn = ('test', 'val') if given is None else ('val',)
    if 'val' in split or 'train' not in split:
        drawn = ()
    for part in drawn:
        split[_draw_part(part, split, None if by_row else images, file)] = part
    return split, drawn


_SEED = 7069  # of the hash: another one draws other parts
_LEAST = {
    'test': 4,
    'val': 3,
}  # training rows that a part can be drawn from: one is left for each other part


def _draw_part(part, split, names, file):
    """The training rows that become another part: by the names of the photos, by row where these
    are None.
    """
    rows = np.flatnonzero(split == 'train')
    if len(rows) < _LEAST[part]:
        raise SpmlError(
            f"{file}: {len(rows)} {'train ' * (len(rows) < len(split))}rows are too few to split; "
            "needed: "
            f'{_LEAST[part]} or more. Add photos, or mark train, val and test in a column `split`.'
        )
    if names is None:
        return rows[split_rows(len(rows))[1]]
    numbers = np.array([_number(part, names[row]) for row in rows])
    count = np.clip((numbers < 0.2).sum(), 1, len(rows) - _LEAST[part] + 1)
    return rows[numbers.argsort()[:count]]


def _number(part, name):
    "A number in [0, 1) that follows from the name of a photo alone, another one for each part."
    name = unicodedata.normalize('NFC', posixpath.normpath(name))
    return (
        int.from_bytes(hashlib.sha256(f'{_SEED} {part} {name}'.encode()).digest()[:8], 'big')
        / 2**64
    )


def split_by_row(data: Dataset) -> Dataset:
    """Give a data set the split that earlier versions drew, by row.

    Args:
        data: Any.

    Returns:
        The same images and labels, with the parts of `data.drawn` drawn by row.

    Source:
        Cole et al. (2021).
    """
    split = np.where(np.isin(data.split, data.drawn), 'train', data.split)
    for part in data.drawn:
        split[_draw_part(part, split, None, data.name)] = part
    return replace(data, split=split, drawn=())


def explain_split(data: Dataset, seen: str) -> str:
    """Say so where a run saw the same photos and labels, with the split by row of earlier versions.

    Args:
        data: As they are now.
        seen: The fingerprint of what the run saw, or `photos_of` its test part.

    Returns:
        Two sentences, the second with the remedy; '' where something else differs.
    """
    before = split_by_row(data) if data.drawn else data
    return (
        ''
        if not data.drawn or seen not in (before.fingerprint, before.photos_of('test'))
        else (
            'Photos and labels are the same, but the split has changed: parts were drawn by row, '
            'and are drawn by the '
            "photos' names now. A column `split` with the parts that "
            "`spml_nb.data.folder.split_by_row` gives keeps the "
            'old ones.'
        )
    )


def assemble(name: str, listing: Listing, folder: Path, file: Path) -> Dataset:
    """Make a `Dataset` of what a table says.

    Args:
        name: What tables call the data set.
        listing: What the table says.
        folder: The folder images/.
        file: The table, for messages.

    Returns:
        The data set, with validation rows drawn by row where the table has none.

    Raises:
        SpmlError: If images are missing, outside the folder or listed twice, or the split is no
            split.
    """
    split, _ = _read_split(listing.split, listing.images, file, by_row=True)
    return Dataset(
        name, _image_paths(listing.images, folder, file), listing.labels, listing.class_names, split
    )


FORM = f'A data set is a folder with images/ and labels.csv. {LAYOUT}'


def photos_of(folder: Path, expected: str = '') -> Path:
    """Find the photos of a data set.

    Args:
        folder: Its folder, with or without a table.
        expected: Opens the message if they are not there.

    Returns:
        The folder images/.

    Raises:
        SpmlError: If it is not there, is empty, or may not be read.
    """
    try:
        return _photos_of(folder, expected)
    except OSError as error:
        raise _unreadable(error) from error


def _unreadable(error: OSError) -> SpmlError:
    return SpmlError(
        f'{error.filename} cannot be read: {error.strerror or error}. Give yourself the right to '
        'read it.'
    )


def _photos_of(folder, expected):
    images = folder / 'images'
    if not folder.is_dir() or not any(folder.iterdir()):
        raise SpmlError(
            f"{expected}the folder {folder} is "
            f"{'empty' if folder.is_dir() else 'a file' if folder.exists() else 'not there'}. "
            f"{FORM}"
        )
    if not images.is_dir() or not any(images.iterdir()):
        raise SpmlError(
            f'{expected}{images} is {"empty" if images.is_dir() else "not there"}. '
            f'{_other_images(folder) or _class_folders(folder)}{FORM}'
        )
    return images


def read_folder(
    folder: Path, name: str, expected: str = '', scored: bool = False, by_row: bool = False
) -> Dataset:
    """Read a folder with images/ and labels.csv.

    Args:
        folder: The folder.
        name: What tables call the data set.
        expected: Opens the message if there is no such folder.
        scored: A column `split` may leave out training or test rows, and a table without it may
            have few.
        by_row: Draw parts by row, as those of the papers' sets are, not by the names of the photos.

    Returns:
        The data set.

    Raises:
        SpmlError: If the folder, the table or an image is missing or malformed.
    """
    images, file = photos_of(folder, expected), folder / 'labels.csv'
    if not file.exists():
        raise SpmlError(
            f'{expected}{file} is not there. {_other_table(folder)}{_class_folders(folder)}{FORM}'
        )
    table = read_cells(file)
    if table.empty:
        raise SpmlError(f'{file} has a header and no rows. Add a row for each photo.')
    names, split = table['image'].tolist(), table['split'].tolist() if 'split' in table else None
    paths, (parts, drawn), (labels, class_names) = _each(
        lambda: _image_paths(names, images, file),
        lambda: _read_split(split, names, file, scored, by_row),
        lambda: read_labels(table, file),
    )
    if not class_names:
        raise SpmlError(f'{file} names no label at all. Write names of classes beside the images.')
    return Dataset(name, paths, labels, class_names, parts, () if by_row else drawn)


def _each(*readers):
    "What each reader gives; what several of them refuse is one message."
    found, wrong = [], []
    for read in readers:
        try:
            found.append(read())
        except SpmlError as error:
            wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        raise SpmlError(
            f'{len(wrong)} things are wrong. ' + ' '.join(error.message for error in wrong)
        )
    return found


def _other_table(folder):
    "A sentence for whoever's table has another name or lies elsewhere, else nothing."
    found = sorted(
        path
        for base in (folder, folder / 'images')
        for path in base.glob('*')
        if path.suffix.lower() in ('.csv', '.tsv', '.txt', '.xls', '.xlsx', '.ods')
    )
    if not found:
        return ''
    how = (
        'Rename it'
        if found[0].suffix.lower() == '.csv'
        else 'Save it with commas between the columns'
    )
    return (
        f'There is {found[0].relative_to(folder).as_posix()}. {how}, as labels.csv beside images/. '
    )


def _other_images(folder):
    "A sentence for whoever's photos lie in another folder, else nothing."
    named = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name != 'images']
    meant = [path for path in named if path.name.lower() == 'images'] or [
        path for path in named if _photos_below(path)
    ]
    if len(meant) == 1:
        return f'There is {meant[0].name}/. Rename it to images. '
    if loose := [path.name for path in sorted(folder.iterdir()) if path.suffix.lower() in PHOTOS]:
        return (
            f'{len(loose):,} photos lie outside images/ ({listed(loose, 3)}). Move them into it. '
        )
    return ''


def _class_folders(folder):
    "A sentence for whoever sorted photos into one folder per class, else nothing."
    names = sorted(
        {
            path.parent.name
            for base in (folder, folder / 'images')
            for path in base.glob('*/*')
            if path.parent != folder / 'images' and path.suffix.lower() in PHOTOS
        }
    )
    if not names:
        return ''
    return (
        f'There is one folder for each class ({listed(names, 3)}). Keep the photos in '
        f'images/{names[0]}/ and so on, with a table whose first line is {HEADERS}, then rows like '
        f'`{names[0]}/photo.jpg,{names[0]}`. '
    )


_BETWEEN = ' *[,;/+&] *| and | und '  # what people write between two names
OFTEN = 5  # images that make a name the usual one beside a name that stands once
PLACEHOLDERS = {'nan', 'none', 'null', 'n/a', 'na', 'unknown', 'unlabelled', 'unlabeled', '?', '-'}


def doubts(data: Dataset, folder: Path) -> list[str]:
    """Find what a table says and probably does not mean.

    Args:
        data: As from `read_folder`.
        folder: The folder images/.

    Returns:
        Sentences, each with a remedy.
    """
    found = [
        *_without_row(data, folder),
        *_without_label(data, folder),
        *_near_names(data),
        *_no_classes(data),
    ]
    return [f'{data.name}: {text}' for text in found]


def _without_row(data, folder):
    there = dict.fromkeys(_photos_below(folder))
    for path in data.images:
        there.pop(path.relative_to(folder).as_posix(), None)
    if there:
        yield (
            f'labels.csv has no row for {len(there):,} photos of images/, which are not used: '
            f'{listed(there)}. Add rows, or move the photos away.'
        )


def _without_label(data, folder):
    names = np.array([path.relative_to(folder).as_posix() for path in data.images])
    for value, what in (
        (-1, 'no label, so that every class counts as absent'),
        (0, 'no label, and nothing is known'),
    ):
        rows = (data.labels == value).all(1)
        if rows.any():
            yield (
                f'photos with {what}: {rows.sum():,} of {len(data):,}, {listed(names[rows])}. '
                'Fill in their cells, or remove their rows if nobody has looked at them.'
            )
    if min(data.labels.shape) > 1 and data.labels.all() and ((data.labels > 0).sum(1) == 1).all():
        yield (
            'every photo has exactly one label, so that all other classes count as absent. If '
            'only one of its labels was written down, name the column `positives`, or in a matrix '
            'leave the other cells empty; if a photo never has more than one, nothing has to be '
            'done.'
        )
    for part in PARTS:
        if len(rows := data.rows(part)) and not (data.labels[rows] > 0).any():
            yield f'no photo of the part {part} has a label. Give it some, or mark other rows {part}.'


def _no_classes(data):
    wrong = [name for name in data.class_names if name.casefold() in PLACEHOLDERS]
    if wrong:
        yield (
            f'{listed(map(repr, wrong))} counts as a class. Leave the cell empty, or exclude it: '
            '-p exclude.'
        )
    if len(data.class_names) == 1:
        yield 'there is one class. Methods compare classes: give two or more.'
    positive = (data.labels > 0).sum(0)
    if everywhere := [
        name for name, n in zip(data.class_names, positive, strict=True) if n == len(data) > 1
    ]:
        yield (
            f'every photo has {listed(map(repr, everywhere))}: nothing can be learned there. '
            'Exclude it: -p exclude.'
        )


def _near_names(data):
    counts = dict(zip(data.class_names, (data.labels > 0).sum(0).tolist(), strict=True))
    same = {}
    for name in counts:
        same.setdefault(re.sub(r'[\s_-]+', '', name).casefold() or name, []).append(name)
    if twins := [' and '.join(map(repr, names)) for names in same.values() if len(names) > 1]:
        yield (
            f'classes that differ in capitals, blanks or hyphens alone: {listed(twins)}. Write '
            'each class one way.'
        )
    usual, near = [name for name, n in counts.items() if n >= OFTEN], []
    once = [name for name, n in counts.items() if n == 1]
    for name in once[:300]:  # more would take seconds at every start
        like = [
            u for u in usual if re.sub(r'\d', '', u) != re.sub(r'\d', '', name)
        ]  # size 3 is not size 4 misspelt
        near += [f'{name!r} (did you mean {u}?)' for u in get_close_matches(name, like, 1, 0.8)]
    if near:
        yield (
            f'names that stand once beside a near one that stands often: {listed(near)}. Mend the '
            'table if so.'
        )
    joined = [
        name
        for name in counts
        if all(parts := re.split(_BETWEEN, name)) and len(parts) > 1 and set(parts) & set(counts)
    ]
    joined += [
        name for name in counts if len(words := name.split()) > 1 and set(words) <= set(counts)
    ]
    if joined:
        yield (
            f'classes that are made of others: {listed(map(repr, joined))}. Write `|` between '
            'names.'
        )


def places(folder: str | Path, root: str | Path | None = None) -> list[Path]:
    """List where a folder may be: as given if absolute, else below `root`, here, and beside the
    settings file.

    Args:
        folder: The folder's path.
        root: A folder to look in first.

    Returns:
        Different absolute paths, the first choice first.

    Raises:
        SpmlError: If the settings cannot be read.
    """
    bases = [
        *([settings.expanded(root)] if root is not None else []),
        Path.cwd(),
        Path(settings.read()['base']),
    ]
    return list(
        dict.fromkeys(Path(os.path.abspath(base / settings.expanded(folder))) for base in bases)
    )


def first_there(folders: list[Path]) -> Path:
    """Choose among the places where a folder may be.

    Args:
        folders: As from `places`.

    Returns:
        The first that is there, else the first.
    """
    return next((folder for folder in folders if folder.is_dir()), folders[0])
