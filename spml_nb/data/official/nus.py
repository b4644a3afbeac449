"""NUS-WIDE in the three versions that papers use."""

from pathlib import Path

import numpy as np

from ...base.errors import SpmlError
from ..folder import Listing
from .files import find_in_benchmark, find_nested, read_listing_lines, reading


def _zeros_and_ones(file, n):
    with reading(file, ' as a 0 or 1 in each line'):
        values = np.array(read_listing_lines(file), dtype=np.int8)
    if len(values) != n or not np.isin(values, (0, 1)).all():
        raise SpmlError(
            f'{file} has {len(values):,} lines of {sorted(set(values.tolist()))}; expected {n:,} '
            'of 0 and 1, one per image of the list.'
        )
    return values


def _read_nus(folder: Path) -> Listing:
    """Read NUS-WIDE in the official form; the version is that of the lists.

    Concepts are in their official order, sorted by name.

    Source:
        Chua et al. 2009.
    """
    lists = find_in_benchmark(
        folder, 'ImageList/TrainImagelist.txt', 'ImageList/ImageList/TrainImagelist.txt'
    )
    labels = find_in_benchmark(
        folder, 'Groundtruth/TrainTestLabels', 'Groundtruth/Groundtruth/TrainTestLabels'
    )
    photos = find_nested(folder, 'Flickr').relative_to(folder).as_posix()
    concepts = sorted(
        file.name.removeprefix('Labels_').removesuffix('_Train.txt')
        for file in labels.glob('Labels_*_Train.txt')
    )
    if not concepts:
        raise SpmlError(f'{labels} has no file Labels_CONCEPT_Train.txt.')
    images, matrices, split = [], [], []
    for part in ('Train', 'Test'):
        names = [
            line.strip() for line in read_listing_lines(lists.with_name(f'{part}Imagelist.txt'))
        ]
        columns = [
            _zeros_and_ones(labels / f'Labels_{concept}_{part}.txt', len(names))
            for concept in concepts
        ]
        # the official lists were written on Windows
        images += [f'{photos}/{name}'.replace('\\', '/') for name in names]
        matrices.append(np.stack(columns, axis=1) * 2 - 1)
        split += [part.lower()] * len(names)
    return Listing(images, np.concatenate(matrices).astype(np.int8), concepts, split)


# of Cole et al. 2021, Chua et al. 2009, Ben-Baruch et al. 2021
READERS = dict.fromkeys(('nus', 'nus-official', 'nus-labelled'), _read_nus)
