"""Weights for drawing single labels in favour of large or central objects."""

from functools import lru_cache
from math import hypot
from pathlib import Path

import numpy as np

from ...base.errors import SpmlError, require_one_of
from ..dataset import Dataset, join_items
from ..labels import BOX_WEIGHTINGS
from . import coco, voc
from .files import benchmark_folder

# {data set: function from its folder images/ to {file name of a photo: [(class, left, top, right,
# bottom), …]}, in fractions of the photo's width and height}
READERS = voc.BOXES | coco.BOXES


def box_area(left: float, top: float, right: float, bottom: float) -> float:
    "Fraction of the photo that a box covers; coordinates are fractions of the photo's sides."
    return (right - left) * (bottom - top)


def box_centrality(left: float, top: float, right: float, bottom: float) -> float:
    "1 for a box at the centre of the photo, 0 at a corner; coordinates as in `box_area`."
    return max(0.0, 1 - hypot(left + right - 1, top + bottom - 1) / 2**0.5)


def weigh_boxes(data: Dataset, boxes: dict[str, list[tuple]], kind: str) -> np.ndarray:
    """Weigh each class in each photo by its largest or most central box.

    Args:
        data: N photos in files.
        boxes: As from one of `READERS`.
        kind: 'large' or 'central'.

    Returns:
        (N, C) in [0, 1]; 0 for a class without a box.
    """
    require_one_of(kind, BOX_WEIGHTINGS, 'weights')
    weight = box_area if kind == 'large' else box_centrality
    column = {name: c for c, name in enumerate(data.class_names)}
    weights = np.zeros(data.labels.shape)
    for row, file in enumerate(data.images):
        for name, *ends in boxes.get(Path(file).name, ()):
            if name in column:
                cell = row, column[name]
                weights[cell] = max(weights[cell], weight(*ends))
    return weights


def weigh_benchmark_by_boxes(
    name: str, data: Dataset, kind: str, root: str | Path | None = None
) -> np.ndarray:
    """Weigh a benchmark's labels by its official boxes.

    Args:
        name: Name of the data set, as in `load`.
        data: The data set, with all or some of its classes.
        kind: 'large' or 'central'.
        root: Folder of the benchmarks; by default the setting `data`.

    Returns:
        (N, C), as from `weigh_boxes`.

    Raises:
        SpmlError: If the data set has no boxes, or its annotations are missing.
    """
    if name not in READERS:
        raise SpmlError(
            f'labels: single-{kind} needs boxes, and {name!r} has none; allowed: '
            f'{join_items(READERS)}. Give labels: single, single-frequent or single-rare.'
        )
    boxes = _boxes(name, benchmark_folder(name, root) / 'images')
    missing = sum(Path(file).name not in boxes for file in data.images)
    if missing:
        raise SpmlError(
            f'{missing:,} of the {len(data):,} photos of {name!r} have no boxes below '
            f'{benchmark_folder(name, root)}. Remove its folder images/ and give `spml data '
            f'{name}`.'
        )
    return weigh_boxes(data, boxes, kind)


@lru_cache(maxsize=2)
def _boxes(name: str, folder: Path) -> dict:
    return READERS[name](folder)
