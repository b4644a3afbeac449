"""Decode all photos to find those that are unusable, of one colour, or look nearly the same."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from ..base import progress
from .decoding import explain_unreadable, open_photo, pixel_budget, to_upright_rgb

_SIDE = 16  # pixels of a thumbnail
LOOKALIKE_CORRELATION = 0.98  # correlation from which two thumbnails count as one photo


@dataclass(frozen=True)
class LookalikeGroup:
    """Two or more photos that are equal or look nearly the same.

    Args:
        rows: Their sorted row numbers.
        equal: Whether all have the same pixels or bytes.
    """

    rows: np.ndarray
    equal: bool


@dataclass(frozen=True)
class PhotoInspection:
    """The result of decoding all photos; rows are positions in the list of files.

    Args:
        unusable: {row: reason} of files that cannot be decoded.
        plain: Rows of photos of one colour.
        groups: Photos that look nearly the same.
    """

    unusable: dict[int, str]
    plain: list[int]
    groups: list[LookalikeGroup]


def _thumbnail(file):
    "(3·_SIDE²,) float32 of mean 0 and norm 1 (less if of one colour), or why it is unusable (str)."
    try:
        with open_photo(file) as image:
            image.draft('RGB', (4 * _SIDE, 4 * _SIDE))
            with pixel_budget.hold(image):
                pixels = to_upright_rgb(image).resize((_SIDE, _SIDE), Image.Resampling.BOX)
    except Exception as error:  # decoders raise many types for damaged files
        return explain_unreadable(error, file)
    vector = np.asarray(pixels, np.float32).ravel()
    vector = vector - vector.mean()
    return vector / max(np.linalg.norm(vector), _SIDE)


def _hash_pixels(file):
    with open_photo(file) as image, pixel_budget.hold(image):
        return hash(to_upright_rgb(image).tobytes())


def inspect_photos(files: list[Path]) -> PhotoInspection:
    "Decode all photos; find those that are unusable, of one colour, or nearly the same."
    # Pillow warns of large or unusual photos
    with ThreadPoolExecutor() as pool, warnings.catch_warnings(action='ignore'):
        decoded = pool.map(_thumbnail, files)
        thumbnails = list(progress.progress_bar(decoded, len(files), 'looking at photos'))
        unusable = {row: why for row, why in enumerate(thumbnails) if isinstance(why, str)}
        for row in unusable:
            thumbnails[row] = np.zeros(3 * _SIDE**2, np.float32)
        vectors = np.stack(thumbnails)
        norms = np.linalg.norm(vectors, axis=1)
        plain = [row for row in np.flatnonzero(norms < 0.99).tolist() if row not in unusable]
        groups = []
        for rows in group_lookalikes(vectors):
            hashes = set(pool.map(_hash_pixels, (files[row] for row in rows)))
            groups.append(LookalikeGroup(rows, equal=len(hashes) == 1))
        return PhotoInspection(unusable, plain, groups)


def group_lookalikes(vectors: np.ndarray) -> list[np.ndarray]:
    """Find connected groups of vectors that correlate by `LOOKALIKE_CORRELATION` or more.

    Args:
        vectors: (N, D), each of norm 1 or less.

    Returns:
        Sorted arrays of two or more row numbers.
    """
    n = len(vectors)
    group = np.arange(n)
    # block by block: all pairs of similar photos may not fit into memory
    for k in range(0, n, 512):
        i, j = np.nonzero(vectors[k : k + 512] @ vectors.T >= LOOKALIKE_CORRELATION)
        first_of_group = np.unique(group, return_index=True)[1]
        starts = np.append(i + k, np.arange(n))
        ends = np.append(j, first_of_group[group])
        group = number_components(starts, ends, n)
    order = np.argsort(group, kind='stable')
    groups = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    return sorted((rows for rows in groups if len(rows) > 1), key=lambda rows: rows[0])


def number_components(starts: np.ndarray, ends: np.ndarray, n: int) -> np.ndarray:
    "(n,) component, from 0, of each of n nodes that are connected by edges from start to end."
    # imported here because training runs without scipy, which a packed sweep may lack
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = coo_array((np.ones(len(starts), bool), (starts, ends)), shape=(n, n))
    return connected_components(edges, directed=False)[1]
