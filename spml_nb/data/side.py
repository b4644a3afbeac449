"""What is known about each image besides its labels: another model's scores, a count of positives, a group."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pandas as pd

from ..base.errors import SpmlError
from .dataset import Dataset, listed
from .folder import places

KINDS = ('scores', 'count', 'group')
FORM = (
    'A .csv has the column `image` first, then any of `count`, `group` and a column of scores for '
    'each class. A .npz has the array `images` and any of `count`, `group` and `scores` with '
    '`class_names`.'
)


def pinned(file: str) -> str:
    """The path of a file with the fingerprint of its content.

    Args:
        file: a path, absolute or below the current folder or that of the settings file; or what
            this has returned.

    Returns:
        'PATH@' and 16 hexadecimal digits.

    Raises:
        SpmlError: if there is no such file.
    """
    if re.search('@[0-9a-f]{16}$', file):
        return file
    path = next((place for place in places(file) if place.is_file()), None)
    if path is None:
        raise SpmlError(
            f'the file of side information {file} is not there. Give another file as `side`.'
        )
    return f'{path}@{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}'


def _table(file: Path) -> dict[str, np.ndarray]:
    "What is in a file, by name: `images`, and kinds of side information."
    if file.suffix not in ('.csv', '.npz'):
        raise SpmlError(f'{file} is neither .csv nor .npz. {FORM}')
    try:
        table = _columns(file) if file.suffix == '.csv' else dict(np.load(file))
    except Exception as error:  # readers raise a dozen different types for damaged files
        raise SpmlError(
            f'{file} cannot be read as side information ({type(error).__name__}: {error}). {FORM}'
        ) from error
    if 'images' not in table or not set(KINDS) & set(table):
        raise SpmlError(f'{file} holds no side information of images, but {listed(table)}. {FORM}')
    n, classes = len(table['images']), len(table.get('class_names', ()))
    for kind, shape in {'scores': (n, classes), 'count': (n,), 'group': (n,)}.items():
        if kind in table and table[kind].shape != shape:
            raise SpmlError(
                f'{file}: {kind} of shape {table[kind].shape}; {n} images and {classes} class '
                f'names need {shape}.'
            )
    return table


def _columns(file):
    cells = pd.read_csv(file, dtype=str, keep_default_na=False)
    arrays = {name: cells[name].to_numpy() for name in cells if name in KINDS}
    classes = [name for name in cells.columns[1:] if name not in arrays]
    if classes:
        arrays |= {'scores': cells[classes].to_numpy(), 'class_names': np.array(classes)}
    return arrays | ({'images': cells['image'].to_numpy()} if cells.columns[0] == 'image' else {})


def kinds(file: str) -> set[str]:
    """What is in a file.

    Args:
        file: as for `pinned`; '' for none.

    Returns:
        Some of `KINDS`.

    Raises:
        SpmlError: if it is not there or cannot be read.
    """
    return set(KINDS) & set(_table(Path(pinned(file).rpartition('@')[0]))) if file else set()


def read(file: str, data: Dataset, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Read what a file says about some images.

    Args:
        file: as for `pinned`; a fingerprint in it has to be that of the content.
        data: the data set.
        rows: (n,) numbers of its images.

    Returns:
        {'scores': (n, C) float32 in [0, 1], 'count': (n,) float32 in [0, C], 'group': (n,) int64
        from 0}, those that are in the file.

    Raises:
        SpmlError: for a file that is missing, malformed or has changed, an image that has no row or
            two, a class without a column, and a value that is missing or out of range.
    """
    path, _, digest = pinned(file).rpartition('@')
    if pinned(path).rpartition('@')[2] != digest:
        raise SpmlError(
            f'{path} has changed since this run was named. Give the file as it was, or the changed '
            f'one, which makes another run: -p side {path}'
        )
    table = _table(Path(path))
    names = [data.image_names[row] for row in rows]
    own = _rows_of(table['images'], [_spellings(data, row) for row in rows], names, path)
    if 'scores' in table:
        table['scores'] = table['scores'][
            :, _columns_of(table['class_names'], data.class_names, path)
        ]
    highest = {'scores': 1, 'count': len(data.class_names)}
    found = {
        kind: _numbers(table[kind][own], kind, high, names, data.class_names, path)
        for kind, high in highest.items()
        if kind in table
    }
    return found | ({'group': _codes(table['group'][own], names, path)} if 'group' in table else {})


def _spellings(data, row):
    """What an image may be called: its name in the data set, or with more of the folders that it
    lies in.
    """
    own = data.image_names[row]
    if data.images_in_memory:
        return [own]
    parts = data.images[row].parts
    return ['/'.join(parts[k:]) for k in range(1, len(parts) - own.count('/'))]


def _rows_of(given, wanted, names, file):
    place = {str(name): row for row, name in enumerate(given)}
    if len(place) < len(given):
        twice = pd.Series(given).loc[lambda each: each.duplicated()]
        raise SpmlError(
            f'{file}: more than one row for the images {listed(twice)}. Keep one of each.'
        )
    rows = [next((place[name] for name in each if name in place), -1) for each in wanted]
    if missing := [name for name, row in zip(names, rows, strict=True) if row < 0]:
        raise SpmlError(
            f'{file} has no row for {len(missing):,} of {len(names):,} training images: '
            f'{listed(missing)}. Add them, named as in the table of the data set.'
        )
    return rows


def _columns_of(given, class_names, file):
    place = {str(name): column for column, name in enumerate(given)}
    if missing := [name for name in class_names if name not in place]:
        raise SpmlError(
            f'{file} has no scores for the classes {listed(missing)}; its columns are '
            f'{listed(place)}. Add them: 0.5 says that nothing is known.'
        )
    return [place[name] for name in class_names]


def _numbers(values, kind, high, names, class_names, file):
    numbers = (
        pd.to_numeric(pd.Series(values.ravel()), errors='coerce')
        .to_numpy(np.float32)
        .reshape(values.shape)
    )
    if (wrong := ~((numbers >= 0) & (numbers <= high))).any():  # NaN is neither
        row, *column = np.argwhere(wrong)[0]
        where = f'{names[row]!r}' + (f', class {class_names[column[0]]!r}' if column else '')
        raise SpmlError(
            f'{file}: {kind} {str(values[(row, *column)])!r} of image {where} ({wrong.sum():,} '
            f'such); allowed: a number from 0 to {high}.'
        )
    return numbers


def _codes(values, names, file):
    if (wrong := pd.isna(values) | (values.astype(str) == '')).any():
        raise SpmlError(
            f'{file}: no group for the images {listed(np.array(names)[wrong])}. Name one for each.'
        )
    return np.unique(values, return_inverse=True)[1].astype(np.int64)
