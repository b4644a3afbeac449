"""The official annotations of COCO 2014, with images and categories in the order of Cole et al."""

from pathlib import Path

import numpy as np

from ...base.errors import SpmlError
from ..folder import Listing, label_matrix
from .files import find_in_benchmark, read_annotation_json, reading


def _without_polygon(entry):
    return {key: value for key, value in entry.items() if key != 'segmentation'}


def _parts(folder, read):
    "Yield `read(content)` for the instances file of each part, without polygons."
    for part in ('train', 'val'):
        file = find_in_benchmark(folder, f'annotations/annotations/instances_{part}2014.json')
        content = read_annotation_json(file, _without_polygon)
        with reading(file, ' as an instances file of COCO'):
            result = read(content)
        yield result


def _labels(content):
    "(sorted file names, (N, C) labels, class names) of the images with a box."
    files = {image['id']: image['file_name'] for image in content['images']}
    categories = {category['id']: category['name'] for category in content['categories']}
    present = {}
    for box in content['annotations']:
        present.setdefault(files[box['image_id']], set()).add(box['category_id'])
    names = sorted(present)
    labels, numbers = label_matrix([present[name] for name in names], names=sorted(categories))
    return names, labels, [categories[number] for number in numbers]


def _read_coco14(folder: Path) -> Listing:
    """Read COCO 2014: train2014 is split, val2014 is the test set.

    Source:
        Cole et al. 2021.
    """
    (train, train_labels, classes), (test, test_labels, others) = _parts(folder, _labels)
    if classes != others:
        raise SpmlError(f'{folder}: the two instances files have different categories.')
    return Listing(
        [f'train/train2014/{name}' for name in train] + [f'val/val2014/{name}' for name in test],
        np.concatenate([train_labels, test_labels]),
        classes,
        ['train'] * len(train) + ['test'] * len(test),
    )


def _read_boxes(folder: Path) -> dict[str, list[tuple]]:
    "Read the boxes of all objects, crowds included, as described in `official.boxes`."
    train, test = _parts(folder, _boxes)
    return train | test


def _boxes(content):
    images = {image['id']: image for image in content['images']}
    names = {category['id']: category['name'] for category in content['categories']}
    boxes = {}
    for entry in content['annotations']:
        image = images[entry['image_id']]
        x, y, width, height = entry['bbox']
        sides = [image['width'], image['height']] * 2
        ends = np.array([x, y, x + width, y + height]) / sides
        box = (names[entry['category_id']], *ends.tolist())
        boxes.setdefault(image['file_name'], []).append(box)
    return boxes


READERS = {'coco14': _read_coco14}
BOXES = {'coco14': _read_boxes}
