"""A stratified column `split`: rare classes reach every part, related photos stay together."""

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd

from ..base.errors import SpmlError
from .dataset import PARTS, join_items
from .folder import images_folder, locate_photos, parse_label_table, read_groups, read_label_table
from .lookalikes import inspect_photos, number_components
from .table_editing import back_up_table, write_table

# 20 % for testing, and 20 % of the rest for validation, as for parts that are drawn by name
FRACTIONS = {'train': 0.64, 'val': 0.16, 'test': 0.2}


def write_split(folder: Path) -> Path:
    """Write a stratified column `split` into a folder's labels.csv. Rows that have a part keep it.

    Photos that share a group or look nearly the same get the same part. The result depends on
    names, labels and photos, but not on the order of the rows.

    Returns:
        The backup of the old table.

    Raises:
        SpmlError: If the folder or its table is missing or malformed, all rows have a part, or
            there are too few photos.
    """
    images = images_folder(folder)
    file = folder / 'labels.csv'
    table = read_label_table(file)
    files = locate_photos(table['image'].tolist(), images, file)
    assigned = np.full(len(table), '', object)
    if 'split' in table:
        assigned = table['split'].str.strip().to_numpy(object)
    _check_assigned(assigned, file)
    units = _number_units(files, read_groups(table))
    positive = parse_label_table(table, file)[0] > 0
    table['split'] = draw_parts(positive, units, assigned, table['image'].tolist())
    missing = [part for part in PARTS if part not in set(table['split'])]
    if missing:
        raise SpmlError(
            f'{file}: {units.max() + 1:,} photos, or groups of them, are too few to draw the part '
            f'{missing[0]}. Add photos, or mark train, val and test in a column `split`.'
        )
    backup = back_up_table(file)
    write_table(file, table)
    return backup


def _check_assigned(assigned, file):
    unknown = sorted(set(assigned) - {'', *PARTS})
    if unknown:
        raise SpmlError(
            f'{file}: unknown split {join_items(map(repr, unknown))}; allowed: {", ".join(PARTS)}, '
            'or nothing for rows that are to be drawn. Write these.'
        )
    if all(assigned):
        raise SpmlError(
            f'{file}: each row has its part in the column `split`. To draw them again, remove the '
            'column; runs on this folder cannot be continued then.'
        )


def _number_units(files, groups):
    "(N,) unit of each photo: photos of one unit are connected by shared groups or similar looks."
    related = [lookalikes.rows for lookalikes in inspect_photos(files).groups]
    if groups is not None:
        names = np.array(groups, object)
        related += [np.flatnonzero(names == name) for name in set(groups) - {''}]
    pairs = [(rows[0], row) for rows in related for row in rows[1:]]
    starts, ends = np.array(pairs, int).reshape(-1, 2).T
    return number_components(starts, ends, len(files))


def draw_parts(
    positive: np.ndarray, units: np.ndarray, assigned: np.ndarray, names: list[str]
) -> np.ndarray:
    """Choose a part for each photo.

    Args:
        positive: (N, C) bool.
        units: (N,) from 0 to U-1; photos of one unit get the same part.
        assigned: (N,) parts, '' for photos to be drawn. A unit with both kinds of photos takes one
            of its assigned parts.
        names: N names of photos, whose hashes break ties.

    Returns:
        (N,) array of `PARTS`.
    """
    sizes = np.bincount(units)
    counts = np.zeros((len(sizes), positive.shape[1]))
    np.add.at(counts, units, positive)
    part = np.full(len(sizes), -1)
    for k, name in enumerate(FRACTIONS):
        part[units[assigned == name]] = k
    hashes = pd.Series([hashlib.sha256(name.encode()).hexdigest() for name in names])
    order = np.lexsort((hashes.groupby(units).min(), -sizes))
    part[order] = stratify_split(counts[order], sizes[order], [*FRACTIONS.values()], part[order])
    drawn = np.array([*FRACTIONS], object)[part][units]
    return np.where(assigned == '', drawn, assigned)


def stratify_split(
    counts: np.ndarray, sizes: np.ndarray, fractions: list[float], part: np.ndarray
) -> np.ndarray:
    """Assign units to parts so that each part has its fraction of the photos of each class.

    Repeatedly takes the class with the fewest unassigned photos, and gives each of its units to the
    part that lacks the most photos of the class; of equal parts, to the one that lacks the most
    photos.

    Args:
        counts: (U, C) photos of each class in a unit.
        sizes: (U,) photos in a unit.
        fractions: Of P parts, with sum 1.
        part: (U,) from 0 to P-1, or -1 for units to be assigned.

    Returns:
        (U,) from 0 to P-1.

    Source:
        Sechidis, Tsoumakas and Vlahavas (2011), iterative stratification.
    """
    part = part.copy()
    lacking = np.outer(fractions, counts.sum(0))  # (P, C)
    lacking_photos = np.array(fractions) * sizes.sum()
    unassigned = counts.sum(0)

    def assign(unit, k):
        part[unit] = k
        lacking[k] -= counts[unit]
        lacking_photos[k] -= sizes[unit]
        unassigned[:] -= counts[unit]

    for unit in np.flatnonzero(part >= 0):
        assign(unit, part[unit])
    while unassigned.any():
        c = np.where(unassigned > 0, unassigned, np.inf).argmin()
        for unit in np.flatnonzero((part < 0) & (counts[:, c] > 0)):
            assign(unit, np.lexsort((lacking_photos, lacking[:, c]))[-1])
    for unit in np.flatnonzero(part < 0):
        assign(unit, lacking_photos.argmax())
    return part
