"""The 312 attributes of CUB-200-2011 with its official split."""

from pathlib import Path

import numpy as np

from ...base.errors import SpmlError
from ..folder import Listing
from .files import find_in_benchmark, read_listing_lines, reading


def _integers(file, *columns):
    "Read some columns of a text file, (n, len(columns))."
    with reading(file):
        return np.loadtxt(file, dtype=np.int64, usecols=columns, ndmin=2)


def _numbered(file):
    "Read {number: rest of the line}, in the order of the file."
    pairs = (line.split(maxsplit=1) for line in read_listing_lines(file))
    with reading(file, ' as a number and a name in each line'):
        return {int(number): rest for number, rest in pairs}


def read_cub(folder: Path) -> Listing:
    """Read CUB with its 312 attributes, training images first.

    Source:
        Cole et al. 2021; Wah et al. 2011.
    """
    base = find_in_benchmark(folder, 'archive/CUB_200_2011')
    images = _numbered(find_in_benchmark(base, 'images.txt'))
    attributes = _numbered(
        find_in_benchmark(
            folder, 'archive/attributes.txt', 'archive/CUB_200_2011/attributes/attributes.txt'
        )
    )
    train = dict(_integers(find_in_benchmark(base, 'train_test_split.txt'), 0, 1).tolist())
    rows = _integers(find_in_benchmark(base, 'attributes/image_attribute_labels.txt'), 0, 1, 2)
    is_consistent = (
        set(train) == set(images)
        and set(np.unique(rows[:, 0])) <= set(images)
        and set(np.unique(rows[:, 1])) <= set(attributes)
    )
    if not is_consistent:
        raise SpmlError(
            f'{base}: images.txt, train_test_split.txt and image_attribute_labels.txt number '
            'different images or attributes.'
        )
    row_of = {number: k for k, number in enumerate(images)}
    column_of = {number: k for k, number in enumerate(attributes)}
    labels = np.full((len(images), len(attributes)), -1, np.int8)
    for image, attribute in rows[rows[:, 2] == 1, :2].tolist():
        labels[row_of[image], column_of[attribute]] = 1
    order = sorted(images, key=lambda image: not train[image])  # stable
    return Listing(
        [f'archive/CUB_200_2011/images/{images[image]}' for image in order],
        labels[[row_of[image] for image in order]],
        list(attributes.values()),
        ['train' if train[image] else 'test' for image in order],
    )


READERS = {'cub': read_cub}
