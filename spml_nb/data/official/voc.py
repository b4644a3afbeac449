"""The official layouts of VOC 2012 and VOC 2007, with the papers' splits."""

from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from ...base.errors import SpmlError
from ..folder import Listing
from .files import find_in_benchmark, read_listing_lines, reading

VOC_CLASSES = (
    'aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike '
    'person pottedplant sheep sofa train tvmonitor'
).split()


def _read_part(base, part):
    "Sorted names of the images of a part, and their (N, 20) labels."
    values = {}
    for name in VOC_CLASSES:
        rows = [
            line.split()
            for line in read_listing_lines(base / 'ImageSets' / 'Main' / f'{name}_{part}.txt')
        ]
        wrong = [row for row in rows if len(row) != 2 or row[1] not in ('1', '0', '-1')]
        if wrong:
            raise SpmlError(
                f'{base}: {name}_{part}.txt has the line {" ".join(wrong[0])!r}; expected an image '
                'and 1, 0 or -1.'
            )
        values[name] = dict(rows)
    images = sorted(values[VOC_CLASSES[0]])
    for name, of_class in values.items():
        if sorted(of_class) != images:
            raise SpmlError(
                f'{base}: {name}_{part}.txt lists other images than {VOC_CLASSES[0]}_{part}.txt.'
            )
    columns = [[values[name][image] == '1' for image in images] for name in VOC_CLASSES]
    return images, np.where(np.transpose(columns), 1, -1).astype(np.int8)


def _read_voc(folder: Path, year: int, train: tuple[str, str], test: tuple[str, str]) -> Listing:
    """Read VOC of a year.

    Args:
        folder: The folder images/.
        year: 2012 or 2007.
        train: Folder of the archive and its official part ('train', 'trainval', …) used for
            training and validation.
        test: The same for testing.
    """
    images, labels, split = [], [], []
    for (archive, part), word in ((train, 'train'), (test, 'test')):
        names, matrix = _read_part(
            find_in_benchmark(folder, f'{archive}/VOCdevkit/VOC{year}'), part
        )
        images += [f'{archive}/VOCdevkit/VOC{year}/JPEGImages/{name}.jpg' for name in names]
        labels.append(matrix)
        split += [word] * len(names)
    return Listing(images, np.concatenate(labels), VOC_CLASSES, split)


def _read_boxes(folder: Path) -> dict[str, list[tuple]]:
    "Read the boxes of objects that are not difficult, as described in `official.boxes`."
    boxes = {}
    for file in sorted(folder.glob('*/VOCdevkit/VOC*/Annotations/*.xml')):
        with reading(file):
            boxes[f'{file.stem}.jpg'] = _objects(ElementTree.parse(file))
    return boxes


def _objects(tree):
    width = float(tree.findtext('size/width'))
    height = float(tree.findtext('size/height'))
    sides = {'xmin': width, 'ymin': height, 'xmax': width, 'ymax': height}
    boxes = []
    for entry in tree.iter('object'):
        if entry.findtext('difficult') != '1':
            ends = [float(entry.findtext(f'bndbox/{end}')) / side for end, side in sides.items()]
            boxes.append((entry.findtext('name'), *ends))
    return boxes


# Cole et al. 2021
_read_voc12 = partial(_read_voc, year=2012, train=('trainval', 'train'), test=('trainval', 'val'))
# Two-way, section 4
_read_voc07 = partial(_read_voc, year=2007, train=('trainval', 'trainval'), test=('test', 'test'))
READERS = {'voc12': _read_voc12, 'voc07': _read_voc07}
BOXES = {'voc12': _read_boxes, 'voc07': _read_boxes}
