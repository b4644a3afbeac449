"""The official layouts of VOC 2012 and VOC 2007, read as the papers read them."""

from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from ...base.errors import SpmlError
from ..folder import Listing
from .registry import Archive, Benchmark, inside, lines, reading, register

VOC_CLASSES = [
    'aeroplane',
    'bicycle',
    'bird',
    'boat',
    'bottle',
    'bus',
    'car',
    'cat',
    'chair',
    'cow',
    'diningtable',
    'dog',
    'horse',
    'motorbike',
    'person',
    'pottedplant',
    'sheep',
    'sofa',
    'train',
    'tvmonitor',
]


def _voc_part(base, part):
    "Names of the images of a part, sorted, and their (N, 20) labels."
    words = {}
    for name in VOC_CLASSES:
        rows = [line.split() for line in lines(base / 'ImageSets' / 'Main' / f'{name}_{part}.txt')]
        wrong = [row for row in rows if len(row) != 2 or row[1] not in ('1', '0', '-1')]
        if wrong:
            raise SpmlError(
                f"{base}: {name}_{part}.txt has the line {' '.join(wrong[0])!r}; expected an image "
                "and 1, "
                '0 or -1.'
            )
        words[name] = dict(rows)
    images = sorted(words[VOC_CLASSES[0]])
    for name, found in words.items():
        if sorted(found) != images:
            raise SpmlError(
                f'{base}: {name}_{part}.txt lists other images than {VOC_CLASSES[0]}_{part}.txt.'
            )
    return images, np.array(
        [[1 if words[name][image] == '1' else -1 for name in VOC_CLASSES] for image in images],
        np.int8,
    )


def read_voc(folder: Path, year: int, train: tuple[str, str], test: tuple[str, str]) -> Listing:
    """Read VOC of a year.

    Args:
        folder: The folder images/.
        year: 2012 or 2007.
        train: The folder of the archive, and the part in it that is split into training and
            validation.
        test: The same for the test set.

    Returns:
        What the official files say.

    Raises:
        SpmlError: For other files.
    """
    images, labels, split = [], [], []
    for (archive, part), word in ((train, 'train'), (test, 'test')):
        names, matrix = _voc_part(inside(folder, f'{archive}/VOCdevkit/VOC{year}'), part)
        images += [f'{archive}/VOCdevkit/VOC{year}/JPEGImages/{name}.jpg' for name in names]
        labels.append(matrix)
        split += [word] * len(names)
    return Listing(images, np.concatenate(labels), VOC_CLASSES, split)


def voc_boxes(folder: Path) -> dict[str, list[tuple]]:
    """Read where the objects are.

    Args:
        folder: The folder images/.

    Returns:
        {file name of a photo: [(class, left, top, right, bottom), …]}, in shares of its width and
        height.

    Raises:
        SpmlError: For a file that is no annotation of VOC.
    """
    return {
        f'{file.stem}.jpg': reading(file, lambda file=file: _objects(ElementTree.parse(file)))
        for file in sorted(folder.glob('*/VOCdevkit/VOC*/Annotations/*.xml'))
    }


def _objects(tree):
    sides = [float(tree.findtext(f'size/{side}')) for side in ('width', 'height')] * 2
    return [
        (
            thing.findtext('name'),
            *(
                float(thing.findtext(f'bndbox/{end}')) / side
                for end, side in zip(('xmin', 'ymin', 'xmax', 'ymax'), sides, strict=True)
            ),
        )
        for thing in tree.iter('object')
        if thing.findtext('difficult') != '1'
    ]


def _archive(year, file, folder, bytes, md5):
    hosts = ('http://host.robots.ox.ac.uk', 'https://thor.robots.ox.ac.uk')
    return Archive(
        file, tuple(f'{host}/pascal/VOC/voc{year}/{file}' for host in hosts), folder, bytes, md5
    )


VOC_TERMS = (
    'Photos from Flickr under its terms of use; '
    'cite Everingham et al., The PASCAL Visual Object Classes Challenge.'
)
VOC12 = register(
    Benchmark(
        'voc12',
        partial(
            read_voc, year=2012, train=('trainval', 'train'), test=('trainval', 'val')
        ),  # Cole et al. 2021
        counts={'train': 5717, 'test': 5823, 'classes': 20},
        boxes=voc_boxes,
        licence=VOC_TERMS,
        archives=(
            _archive(
                2012,
                'VOCtrainval_11-May-2012.tar',
                'trainval',
                1_999_639_040,
                '6cd6e144f989b92b3379bac3b3de84fd',
            ),
        ),
    )
)
VOC07 = register(
    Benchmark(
        'voc07',
        partial(
            read_voc, year=2007, train=('trainval', 'trainval'), test=('test', 'test')
        ),  # Two-way, section 4
        counts={'train': 5011, 'test': 4952, 'classes': 20},
        validation='none',
        boxes=voc_boxes,
        licence=VOC_TERMS,
        archives=(
            _archive(
                2007,
                'VOCtrainval_06-Nov-2007.tar',
                'trainval',
                460_032_000,
                'c52e279531787c972589f7e41ab4ae64',
            ),
            _archive(
                2007,
                'VOCtest_06-Nov-2007.tar',
                'test',
                451_020_800,
                'b6e924de25625d8de591ea690078ad9f',
            ),
        ),
    )
)
