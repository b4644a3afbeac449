"""The 312 attributes of CUB-200-2011 with its official split."""

from pathlib import Path

import numpy as np

from ...base.errors import SpmlError
from ..folder import Listing
from .registry import Archive, Benchmark, inside, lines, reading, register


def _columns(file, *columns):
    "Integer columns of a text file, (n, len(columns))."
    return reading(file, lambda: np.loadtxt(file, dtype=np.int64, usecols=columns, ndmin=2))


def _numbered(file):
    "{number: rest of the line}, in the file's order."
    pairs = (line.split(maxsplit=1) for line in lines(file))
    return reading(
        file,
        lambda: {int(number): rest for number, rest in pairs},
        ' as a number and a name in each line',
    )


def read_cub(folder: Path) -> Listing:
    """Read CUB with its 312 attributes.

    Args:
        folder: The folder images/.

    Returns:
        What the official files say.

    Raises:
        SpmlError: For other files.

    Source:
        Cole et al. 2021; Wah et al. 2011.
    """
    base = inside(folder, 'archive/CUB_200_2011')
    images = _numbered(inside(base, 'images.txt'))
    classes = _numbered(
        inside(folder, 'archive/attributes.txt', 'archive/CUB_200_2011/attributes/attributes.txt')
    )
    train = dict(_columns(inside(base, 'train_test_split.txt'), 0, 1).tolist())
    rows = _columns(inside(base, 'attributes/image_attribute_labels.txt'), 0, 1, 2)
    row, column = (
        {number: k for k, number in enumerate(numbered)} for numbered in (images, classes)
    )
    image_numbers, class_numbers = set(np.unique(rows[:, 0])), set(np.unique(rows[:, 1]))
    if (
        set(train) != set(images)
        or not image_numbers <= set(images)
        or not class_numbers <= set(classes)
    ):
        raise SpmlError(
            f'{base}: images.txt, train_test_split.txt and image_attribute_labels.txt number '
            'different images or attributes.'
        )
    labels = np.full((len(images), len(classes)), -1, np.int8)
    present = rows[rows[:, 2] == 1]
    labels[
        [row[i] for i in present[:, 0].tolist()], [column[a] for a in present[:, 1].tolist()]
    ] = 1
    order = sorted(images, key=lambda i: not train[i])  # the sort is stable
    return Listing(
        [f'archive/CUB_200_2011/images/{images[i]}' for i in order],
        labels[[row[i] for i in order]],
        list(classes.values()),
        ['train' if train[i] else 'test' for i in order],
    )


CUB_ARCHIVE = Archive(
    'CUB_200_2011.tgz',
    ('https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz?download=1',),
    'archive',
    1_150_585_339,
    md5='97eceeb196236b17998738112f37df78',
)
CUB_HELP = (
    'The archive is described at https://www.vision.caltech.edu/datasets/cub_200_2011/. When its server is '
    'down, put CUB_200_2011.tgz from any other place into {downloads}; its checksum decides whether it is the '
    'right one.'
)
CUB = register(
    Benchmark(
        'cub',
        read_cub,
        (CUB_ARCHIVE,),
        {'train': 5994, 'test': 5794, 'classes': 312},
        instructions=CUB_HELP,
        licence=(
            'Non-commercial research and education; cite Wah et al., The Caltech-UCSD '
            'Birds-200-2011 Dataset, 2011.'
        ),
    )
)
