"""A column `split` in which rare classes reach every part, and photos of one thing share theirs."""

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ..base.errors import SpmlError
from .dataset import PARTS, join_items
from .editing import back_up, write_table
from .folder import (
    images_folder,
    locate_photos,
    parse_label_table,
    read_groups,
    read_label_table,
)
from .glance import inspect_photos

# a fifth tests, and of the others a fifth validates, as where parts are drawn by name
FRACTIONS = {'train': 0.64, 'val': 0.16, 'test': 0.2}


def write_split(folder: Path) -> Path:
    """Write a column `split` into a folder's labels.csv. Rows that have a part keep it.

    Photos that share a group or look nearly the same get the same part; the rest is drawn so that
    each class has its share in each part. The parts follow from names, labels and photos alone,
    whatever the order of the rows.

    Returns:
        The old table.

    Raises:
        SpmlError: If the folder or its table is missing or malformed, has parts for all rows, or
            too few photos.
    """
    images = images_folder(folder)
    file = folder / 'labels.csv'
    table = read_label_table(file)
    files = locate_photos(table['image'].tolist(), images, file)
    before = np.full(len(table), '', object)
    if 'split' in table:
        before = table['split'].str.strip().to_numpy(object)
    _check_words(before, file)
    units = _join_photos(files, read_groups(table))
    positive = parse_label_table(table, file)[0] > 0
    table['split'] = draw_parts(positive, units, before, table['image'].tolist())
    absent = [part for part in PARTS if part not in set(table['split'])]
    if absent:
        raise SpmlError(
            f'{file}: {units.max() + 1:,} photos, or groups of them, are too few to draw the part '
            f'{absent[0]}. Add photos, or mark train, val and test in a column `split`.'
        )
    backup = back_up(file)
    write_table(file, table)
    return backup


def _check_words(before, file):
    others = sorted(set(before) - {'', *PARTS})
    if others:
        raise SpmlError(
            f'{file}: unknown split {join_items(map(repr, others))}; allowed: {", ".join(PARTS)}, '
            'or nothing for rows that are to be drawn. Write these.'
        )
    if all(before):
        raise SpmlError(
            f'{file}: each row has its part in the column `split`. To draw them anew, remove the '
            'column; runs on this folder cannot be gone on with then.'
        )


def _join_photos(files, groups):
    "(N,) a number of what photos share, directly or over others: a group, or looks."
    n = len(files)
    shared = [look.rows for look in inspect_photos(files).groups]
    if groups is not None:
        names = np.array(groups, object)
        shared += [np.flatnonzero(names == name) for name in set(groups) - {''}]
    pairs = [(rows[0], row) for rows in shared for row in rows[1:]]
    starts, ends = np.array(pairs, int).reshape(-1, 2).T
    edges = coo_array((np.ones(len(starts), bool), (starts, ends)), shape=(n, n))
    return connected_components(edges, directed=False)[1]


def draw_parts(
    positive: np.ndarray, units: np.ndarray, before: np.ndarray, names: list[str]
) -> np.ndarray:
    """Choose a part for each photo.

    Args:
        positive: (N, C) bool.
        units: (N,) 0 … U-1; photos of one unit get the same part.
        before: (N,) the part of a photo, '' where it is to be drawn. A unit with photos of both
            kinds takes a part that it has.
        names: N names, which decide between equals.

    Returns:
        (N,) words out of `PARTS`.
    """
    sizes = np.bincount(units)
    counts = np.zeros((len(sizes), positive.shape[1]))
    np.add.at(counts, units, positive)
    part = np.full(len(sizes), -1)
    for k, word in enumerate(FRACTIONS):
        part[units[before == word]] = k
    hashes = pd.Series([hashlib.sha256(name.encode()).hexdigest() for name in names])
    order = np.lexsort((hashes.groupby(units).min(), -sizes))
    part[order] = stratify(counts[order], sizes[order], [*FRACTIONS.values()], part[order])
    drawn = np.array([*FRACTIONS], object)[part][units]
    return np.where(before == '', drawn, before)


def stratify(
    counts: np.ndarray, sizes: np.ndarray, fractions: list[float], part: np.ndarray
) -> np.ndarray:
    """Deal units out so that each part has its fraction of the photos of each class.

    The class with the fewest photos left is dealt first; each of its units goes where most of the
    class are wanted still, among equals where most photos are.

    Args:
        counts: (U, C) photos of each class.
        sizes: (U,) photos.
        fractions: Of P parts, 1 in all.
        part: (U,) 0 … P-1, or -1 for what is to be dealt out, in this order.

    Returns:
        (U,) 0 … P-1.

    Source:
        Sechidis, Tsoumakas and Vlahavas (2011), iterative stratification.
    """
    part = part.copy()
    shares = np.array(fractions)
    wanted = np.outer(shares, counts.sum(0))
    wanted_photos = shares * sizes.sum()
    left = counts.sum(0)

    def deal(unit, k):
        part[unit] = k
        wanted[k] -= counts[unit]
        wanted_photos[k] -= sizes[unit]
        left[:] -= counts[unit]

    for unit in np.flatnonzero(part >= 0):
        deal(unit, part[unit])
    while left.any():
        c = np.where(left > 0, left, np.inf).argmin()
        for unit in np.flatnonzero((part < 0) & (counts[:, c] > 0)):
            deal(unit, np.lexsort((wanted_photos, wanted[:, c]))[-1])
    for unit in np.flatnonzero(part < 0):
        deal(unit, wanted_photos.argmax())
    return part
