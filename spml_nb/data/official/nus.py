"""NUS-WIDE in its three versions, all of which are in use."""

from pathlib import Path

import numpy as np

from ...base.errors import SpmlError
from ..folder import Listing
from .registry import Archive, Benchmark, inside, lines, reading, register

NUS = {
    'nus': ('recrawled', 150_000, 60_260),
    'nus-official': ('official', 161_789, 107_859),
    'nus-labelled': ('labelled', 119_103, 50_720),
}  # Cole et al. 2021, Chua et al. 2009, Ben-Baruch et al. 2021


def _zeros_and_ones(file, n):
    values = reading(
        file, lambda: np.array(lines(file), dtype=np.int8), ' as a 0 or 1 in each line'
    )
    if len(values) != n or not np.isin(values, (0, 1)).all():
        raise SpmlError(
            f'{file} has {len(values):,} lines of {sorted(set(values.tolist()))}; expected {n:,} '
            'of 0 and 1, one per image of the list.'
        )
    return values


def read_nus(folder: Path) -> Listing:
    """Read NUS-WIDE in the official form, whichever version the lists are of.

    Args:
        folder: The folder images/, with Flickr/, ImageList/ and Groundtruth/.

    Returns:
        What the official files say; concepts sorted by name, which is their official order.

    Raises:
        SpmlError: For other files, and for labels that do not fit the lists.

    Source:
        Chua et al. 2009.
    """
    lists = inside(
        folder, 'ImageList/TrainImagelist.txt', 'ImageList/ImageList/TrainImagelist.txt'
    ).parent
    labels = inside(
        folder, 'Groundtruth/TrainTestLabels', 'Groundtruth/Groundtruth/TrainTestLabels'
    )
    photos = inside(folder, 'Flickr/Flickr', 'Flickr').relative_to(folder).as_posix()
    concepts = sorted(
        file.name.removeprefix('Labels_').removesuffix('_Train.txt')
        for file in labels.glob('Labels_*_Train.txt')
    )
    if not concepts:
        raise SpmlError(f'{labels} has no file Labels_CONCEPT_Train.txt.')
    images, matrices, split = [], [], []
    for part in ('Train', 'Test'):
        names = [line.strip().replace('\\', '/') for line in lines(lists / f'{part}Imagelist.txt')]
        columns = [
            _zeros_and_ones(labels / f'Labels_{concept}_{part}.txt', len(names))
            for concept in concepts
        ]
        images += [f'{photos}/{name}' for name in names]
        matrices.append(np.stack(columns, axis=1) * 2 - 1)
        split += [part.lower()] * len(names)
    return Listing(images, np.concatenate(matrices).astype(np.int8), concepts, split)


for _name, (_version, _train, _test) in NUS.items():
    _lists = (
        '.'
        if _version == 'official'
        else (
            '; they come with the re-crawled photos, in the official form, and '
            'replace the official lists.'
        )
    )
    register(
        Benchmark(
            _name,
            read_nus,
            version=_version,
            counts={'train': _train, 'test': _test, 'classes': 81},
            archives=(Archive('ImageList.zip'), Archive('Groundtruth.zip'), Archive('Flickr.zip')),
            instructions='NUS-WIDE is given out on request (lms.comp.nus.edu.sg, NUS-WIDE). Bring ImageList.zip '
            '(TrainImagelist.txt, TestImagelist.txt), Groundtruth.zip '
            '(TrainTestLabels/Labels_CONCEPT_Train.txt and _Test.txt) and Flickr.zip (the photos by concept, '
            'as in the lists) to {downloads}, or unpacked, as folders of these names, to {images}. This is '
            f'the version {_version!r}: its lists must name {_train:,} training and {_test:,} test '
            f'images{_lists}',
            licence='For non-commercial research; cite Chua et al., NUS-WIDE, CIVR 2009.',
        )
    )
