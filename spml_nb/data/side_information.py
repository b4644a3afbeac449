"""Side information of images for methods that use it: scores, a count of positives, a group."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pandas as pd

from ..base.errors import SpmlError
from .dataset import Dataset, join_items
from .folder import candidate_folders

KINDS = ('scores', 'count', 'group')
_FORM = (
    'A .csv has the column `image` first, then any of `count`, `group` and a column of scores for '
    'each class. A .npz has the array `images` and any of `count`, `group` and `scores` with '
    '`class_names`.'
)


def pin_file(file: str) -> str:
    """Pin a file to its current content, as 'PATH@HASH' with 16 hex digits.

    Args:
        file: A path, absolute or relative to the current folder or to that of settings.ini. A
            pinned file is returned unchanged.

    Raises:
        SpmlError: If there is no such file.
    """
    if re.search('@[0-9a-f]{16}$', file):
        return file
    for path in candidate_folders(file):
        if path.is_file():
            return f'{path}@{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}'
    raise SpmlError(
        f'the file of side information {file} is not there. Give another file as `side`.'
    )


def _read_file(file: Path) -> dict[str, np.ndarray]:
    "Read {name: array}: `images`, some of `KINDS`, and `class_names` with `scores`."
    if file.suffix not in ('.csv', '.npz'):
        raise SpmlError(f'{file} is neither .csv nor .npz. {_FORM}')
    try:
        arrays = _read_csv(file) if file.suffix == '.csv' else dict(np.load(file))
    except Exception as error:  # the readers raise many types for damaged files
        raise SpmlError(
            f'{file} cannot be read as side information ({type(error).__name__}: {error}). {_FORM}'
        ) from error
    if 'images' not in arrays or not set(KINDS) & set(arrays):
        raise SpmlError(
            f'{file} holds no side information of images, but {join_items(arrays)}. {_FORM}'
        )
    n = len(arrays['images'])
    classes = len(arrays.get('class_names', ()))
    for kind, shape in {'scores': (n, classes), 'count': (n,), 'group': (n,)}.items():
        if kind in arrays and arrays[kind].shape != shape:
            raise SpmlError(
                f'{file}: {kind} of shape {arrays[kind].shape}; {n} images and {classes} class '
                f'names need {shape}.'
            )
    return arrays


def _read_csv(file):
    cells = pd.read_csv(file, dtype=str, keep_default_na=False)
    arrays = {name: cells[name].to_numpy() for name in cells if name in KINDS}
    classes = [name for name in cells.columns[1:] if name not in arrays]
    if classes:
        arrays['scores'] = cells[classes].to_numpy()
        arrays['class_names'] = np.array(classes)
    if cells.columns[0] == 'image':
        arrays['images'] = cells['image'].to_numpy()
    return arrays


def list_side_kinds(file: str) -> set[str]:
    """Which of `KINDS` a file contains.

    Args:
        file: As for `pin_file`, or ''.

    Raises:
        SpmlError: If it is missing or cannot be read.
    """
    if not file:
        return set()
    return set(KINDS) & set(_read_file(Path(pin_file(file).rpartition('@')[0])))


def read_side(file: str, data: Dataset, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Read the side information of some images.

    Args:
        file: As for `pin_file`; if pinned, the content must not have changed.
        rows: (n,) row numbers of `data`.

    Returns:
        Those in the file of {'scores': (n, C) float32 in [0, 1], 'count': (n,) float32 in [0, C],
        'group': (n,) int64 from 0}.

    Raises:
        SpmlError: If the file is missing, malformed or has changed, an image has no row or several,
            a class has no column, or a value is missing or out of range.
    """
    path, _, digest = pin_file(file).rpartition('@')
    if pin_file(path).rpartition('@')[2] != digest:
        raise SpmlError(
            f'{path} has changed since this run was named. Give the file as it was, or the changed '
            f'one, which makes another run: -p side {path}'
        )
    arrays = _read_file(Path(path))
    names = [data.image_names[row] for row in rows]
    spellings = [_spellings(data, row) for row in rows]
    lines = _find_lines(arrays['images'], spellings, names, path)
    result = {}
    if 'scores' in arrays:
        columns = _find_columns(arrays['class_names'], data.class_names, path)
        scores = arrays['scores'][:, columns][lines]
        result['scores'] = _check_numbers(scores, 'scores', 1, names, data.class_names, path)
    if 'count' in arrays:
        highest = len(data.class_names)
        count = arrays['count'][lines]
        result['count'] = _check_numbers(count, 'count', highest, names, data.class_names, path)
    if 'group' in arrays:
        result['group'] = _number_groups(arrays['group'][lines], names, path)
    return result


def _spellings(data, row):
    "Names for an image: from the absolute path down to its name in the data set."
    name = data.image_names[row]
    if data.images_in_memory:
        return [name]
    folders = data.images[row].parts
    return ['/'.join(folders[k:]) for k in range(1, len(folders) - name.count('/'))]


def _find_lines(images, spellings, names, file):
    "Find the line of each image in a file, by any of its spellings."
    line_of = {str(name): line for line, name in enumerate(images)}
    if len(line_of) < len(images):
        series = pd.Series(images)
        raise SpmlError(
            f'{file}: more than one row for the images {join_items(series[series.duplicated()])}. '
            'Keep one of each.'
        )
    lines, missing = [], []
    for name, candidates in zip(names, spellings, strict=True):
        line = next((line_of[spelling] for spelling in candidates if spelling in line_of), None)
        if line is None:
            missing.append(name)
        lines.append(line)
    if missing:
        raise SpmlError(
            f'{file} has no row for {len(missing):,} of {len(names):,} training images: '
            f'{join_items(missing)}. Add them, named as in the table of the data set.'
        )
    return lines


def _find_columns(columns, class_names, file):
    column_of = {str(name): column for column, name in enumerate(columns)}
    if missing := [name for name in class_names if name not in column_of]:
        raise SpmlError(
            f'{file} has no scores for the classes {join_items(missing)}; its columns are '
            f'{join_items(column_of)}. Add them; 0.5 stands for unknown.'
        )
    return [column_of[name] for name in class_names]


def _check_numbers(values, kind, highest, names, class_names, file):
    numbers = pd.to_numeric(pd.Series(values.ravel()), errors='coerce').to_numpy(np.float32)
    numbers = numbers.reshape(values.shape)
    wrong = ~((numbers >= 0) & (numbers <= highest))  # NaN is neither
    if wrong.any():
        row, *column = np.argwhere(wrong)[0]
        image = repr(names[row])
        if column:
            image += f', class {class_names[column[0]]!r}'
        raise SpmlError(
            f'{file}: {kind} {str(values[(row, *column)])!r} of image {image} ({wrong.sum():,} '
            f'such); allowed: a number from 0 to {highest}.'
        )
    return numbers


def _number_groups(values, names, file):
    wrong = pd.isna(values) | (values.astype(str) == '')
    if wrong.any():
        raise SpmlError(
            f'{file}: no group for the images {join_items(np.array(names)[wrong])}. Give each one.'
        )
    return np.unique(values, return_inverse=True)[1].astype(np.int64)
