"""The official annotations of COCO 2014, with images and categories in the protocol's order."""

from pathlib import Path

import numpy as np

from ...base.errors import SpmlError
from ..folder import Listing, label_matrix
from .registry import find_in_benchmark, read_annotation_json, read_with_remedy, register


def _without_polygon(entry):
    return {key: value for key, value in entry.items() if key != 'segmentation'}


def _parts(folder, read):
    "What `read` makes of the instances file of each part; polygons are dropped while it is parsed."
    for part in ('train', 'val'):
        file = find_in_benchmark(folder, f'annotations/annotations/instances_{part}2014.json')
        content = read_annotation_json(file, _without_polygon)
        yield read_with_remedy(
            file, lambda content=content: read(content), ' as an instances file of COCO'
        )


def _labels(content):
    "(names sorted, (N, C) labels, class names) of the images that have a box."
    files = {image['id']: image['file_name'] for image in content['images']}
    categories = {category['id']: category['name'] for category in content['categories']}
    present = {}
    for box in content['annotations']:
        present.setdefault(files[box['image_id']], set()).add(box['category_id'])
    names = sorted(present)
    labels, numbers = label_matrix([present[name] for name in names], names=sorted(categories))
    return names, labels, [categories[number] for number in numbers]


def read_coco14(folder: Path) -> Listing:
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


def coco_boxes(folder: Path) -> dict[str, list[tuple]]:
    "Read where the objects are, crowds included, as `Benchmark.boxes` says."
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


register('coco14', read_coco14, boxes=coco_boxes)
