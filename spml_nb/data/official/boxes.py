"""Weights for drawing single labels: large or central objects are drawn more often."""

from functools import lru_cache
from math import hypot
from pathlib import Path

import numpy as np

from ...base.errors import SpmlError, one_of
from ..dataset import Dataset, listed
from ..labels import OF_BOXES
from .registry import BENCHMARKS, find, folder_of


def large(left: float, top: float, right: float, bottom: float) -> float:
    """The share of the photo that a box covers.

    Args:
        left, top, right, bottom: its ends, in shares of the photo's sides.

    Returns:
        0 to 1.
    """
    return (right - left) * (bottom - top)


def central(left: float, top: float, right: float, bottom: float) -> float:
    """How near a box is to the middle of the photo.

    Args:
        left, top, right, bottom: its ends, in shares of the photo's sides.

    Returns:
        1 in the middle, 0 where its centre is a corner.
    """
    return max(0.0, 1 - hypot(left + right - 1, top + bottom - 1) / 2**0.5)


def weigh(data: Dataset, boxes: dict[str, list[tuple]], kind: str) -> np.ndarray:
    """The weight of each class in each photo.

    Args:
        data: N photos in files.
        boxes: {file name: [(class, left, top, right, bottom), …]}.
        kind: 'large' or 'central'.

    Returns:
        (N, C) from 0 to 1; 0 for a class without a box.

    Raises:
        SpmlError: for another kind.
    """
    of = {'large': large, 'central': central}[one_of(kind, OF_BOXES, 'weights')]
    column, weights = (
        {name: c for c, name in enumerate(data.class_names)},
        np.zeros(data.labels.shape),
    )
    for row, file in enumerate(data.images):
        for name, *ends in boxes.get(Path(file).name, ()):
            if name in column:
                weights[row, column[name]] = max(weights[row, column[name]], of(*ends))
    return weights


def box_weights(name: str, data: Dataset, kind: str, root: str | Path | None = None) -> np.ndarray:
    """The weights of a benchmark's labels, by its official boxes.

    Args:
        name: of the data set, as in `load`.
        data: what was loaded, with all or some of its classes.
        kind: 'large' or 'central'.
        root: where named data sets lie; the setting `data` if unset.

    Returns:
        (N, C), as from `weigh`.

    Raises:
        SpmlError: for a data set that has no boxes, or whose annotations are not there.
    """
    having = [each for each in BENCHMARKS if find(each).boxes]
    if name not in having:
        raise SpmlError(
            f'labels: single-{kind} needs boxes, and {name!r} has none; allowed: {listed(having)}. '
            'Give labels: single, single-frequent or single-rare.'
        )
    boxes = _boxes(name, folder_of(name, root) / 'images')
    known = sum(Path(file).name in boxes for file in data.images)
    if known < len(data):
        raise SpmlError(
            f'{len(data) - known:,} of the {len(data):,} photos of {name!r} have no boxes below '
            f'{folder_of(name, root)}. Remove its folder images/ and give `spml data {name}`.'
        )
    return weigh(data, boxes, kind)


@lru_cache(maxsize=2)
def _boxes(name: str, folder: Path) -> dict:
    return find(name).boxes(folder)
