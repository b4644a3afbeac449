"""Three sets of attributes of the two-way paper; two label boxes, which are cut out."""

import math
import os
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from ...base import progress
from ...base.errors import SpmlError
from .. import fetch
from ..dataset import join_items
from ..decoding import PHOTOS, open_photo
from ..folder import Listing, label_matrix
from .registry import (
    find_in_benchmark,
    get_fields,
    read_annotation_json,
    read_with_remedy,
    register,
)


def _cut(photo, boxes, target):
    "Cut boxes {name: (x, y, width, height)} in pixels out of one photo."
    image = read_with_remedy(photo, lambda: open_photo(photo).convert('RGB'))
    for name, (x, y, width, height) in boxes.items():
        left = max(math.floor(x), 0)
        top = max(math.floor(y), 0)
        right = min(math.ceil(x + width), image.width)
        bottom = min(math.ceil(y + height), image.height)
        if right > left and bottom > top:
            crop = image.crop((left, top, right, bottom))
            crop.save(target / name, quality=95, subsampling=0)


def cut_boxes(folder: Path, boxes: dict[Path, dict[str, tuple]]) -> set[str]:
    """Cut boxes out as images of their own, in folder/crops. What was cut before is not cut again.

    Args:
        folder: The folder images/.
        boxes: {photo: {name of the crop: (x, y, width, height) in pixels}}.

    Returns:
        Names of the crops. A box without a pixel inside its photo has none.

    Raises:
        SpmlError: For a photo that is missing or damaged, and for a full disk.

    Source:
        Own choice; the Two-way paper does not tell its cropping.
    """
    if not (folder / 'crops').is_dir():
        with fetch.fill_folder(folder / 'crops') as temporary, ThreadPoolExecutor() as pool:
            done = pool.map(lambda item: _cut(*item, temporary), boxes.items())
            for _ in progress.progress_bar(done, len(boxes), 'cutting boxes out'):
                pass
    return {entry.name for entry in os.scandir(folder / 'crops')}


def read_vaw(folder: Path) -> Listing:
    """Read Visual Attributes in the Wild: each image is an object in a box; one without a pixel is
    left out.

    Labels are 1 and -1 as annotated, 0 where nothing is said or both are.

    Args:
        folder: The folder images/, with vaw/, VG_100K/ and VG_100K_2/.

    Source:
        Pham et al. 2021.
    """
    data = find_in_benchmark(folder, 'vaw/data', 'vaw/vaw_dataset-main/data', 'vaw')
    index = read_annotation_json(data / 'attribute_index.json')
    class_names = sorted(index, key=index.get)
    column = {name: k for k, name in enumerate(class_names)}
    photos = {
        file.stem: file
        for archive in ('VG_100K', 'VG_100K_2')
        for file in find_in_benchmark(folder, archive).rglob('*.jpg')
    }
    crop_names, labels, split = [], [], []
    boxes = defaultdict(dict)
    for part in ('train_part1', 'train_part2', 'val', 'test'):
        for entry in read_annotation_json(data / f'{part}.json'):
            image, instance, box = get_fields(
                entry, data, 'image_id', 'instance_id', 'instance_bbox'
            )
            lists = get_fields(entry, data, 'positive_attributes', 'negative_attributes')
            positive, negative = map(set, lists)
            if str(image) not in photos:
                raise SpmlError(
                    f'{folder} has no photo {image}.jpg, which {data.name} names. Bring both '
                    'archives of Visual Genome.'
                )
            unlisted = sorted((positive | negative) - column.keys())
            if unlisted:
                raise SpmlError(
                    f'{data}: object {instance} has attributes that attribute_index.json does not '
                    f'list: {join_items(map(repr, unlisted))}.'
                )
            row = np.zeros(len(class_names), np.int8)
            row[[column[name] for name in positive - negative]] = 1
            row[[column[name] for name in negative - positive]] = -1
            boxes[photos[str(image)]][f'{instance}.jpg'] = tuple(box)
            crop_names.append(f'{instance}.jpg')
            labels.append(row)
            split.append('test' if part == 'test' else 'train')
    return _cropped(folder, boxes, crop_names, np.array(labels), class_names, split)


def _cropped(folder, boxes, crop_names, labels, class_names, split):
    "A Listing of the crops that have a pixel."
    cut = cut_boxes(folder, boxes)
    rows = [row for row, name in enumerate(crop_names) if name in cut]
    images = [f'crops/{crop_names[row]}' for row in rows]
    return Listing(images, labels[rows], class_names, [split[row] for row in rows])


def read_wider(folder: Path) -> Listing:
    """Read WIDER Attribute: each image is a person in a box.

    People without a positive attribute or a pixel are left out. A label is 0 where the attribute is
    unspecified.

    Args:
        folder: The folder images/, with wider_attribute_image/ and wider_attribute_annotation/.

    Source:
        Li et al. 2016.
    """
    photos = find_in_benchmark(folder, 'wider_attribute_image/Image', 'wider_attribute_image')
    notes = find_in_benchmark(
        folder,
        'wider_attribute_annotation/wider_attribute_annotation',
        'wider_attribute_annotation',
    )
    joined = (notes / 'wider_attribute_trainval.json').exists()
    training = ['trainval'] if joined else ['train', 'val']
    crop_names, labels, split = [], [], []
    boxes = defaultdict(dict)
    for part in (*training, 'test'):
        file = notes / f'wider_attribute_{part}.json'
        images, names = get_fields(read_annotation_json(file), file, 'images', 'attribute_id_map')
        class_names = [names[key] for key in sorted(names, key=int)]
        people = [
            (image, person) for image in images for person in get_fields(image, file, 'targets')[0]
        ]
        for k, (image, person) in enumerate(people):
            z, box = get_fields(person, file, 'attribute', 'bbox')
            if len(z) != len(class_names) or not set(z) <= {-1, 0, 1}:
                raise SpmlError(f'{file}: attributes {z}; expected {len(class_names)} of 1, 0, -1.')
            if 1 in z:
                [photo] = get_fields(image, file, 'file_name')
                boxes[photos / photo][f'{part}-{k:05}.jpg'] = tuple(box)
                crop_names.append(f'{part}-{k:05}.jpg')
                labels.append(z)
                split.append('test' if part == 'test' else 'train')
    return _cropped(folder, boxes, crop_names, np.array(labels, np.int8), class_names, split)


_PARTS = ('train', 'val', 'test')


def read_vispr(folder: Path) -> Listing:
    """Read VISPR: photos with the privacy attributes that they reveal.

    Attributes are in the order of their numbers (a0_safe, a1_…).

    Args:
        folder: The folder images/, with train2017/, val2017/, test2017/ and, where they come apart,
            annotations/.

    Source:
        Orekondy et al. 2017.
    """
    photos, notes = {}, {}
    for file in sorted(folder.rglob('*')):
        for k, part in enumerate(_PARTS):
            if f'{part}2017' in file.relative_to(folder).parts:
                if file.suffix.lower() in PHOTOS:
                    photos[k, file.stem] = file
                elif file.suffix == '.json':
                    notes[k, file.stem] = file
    unpaired = sorted(photos.keys() ^ notes.keys())
    if unpaired or not notes:
        names = [f'{_PARTS[k]}/{name}' for k, name in unpaired]
        raise SpmlError(
            f'{folder}: photos without annotation or the other way round: {join_items(names)}. '
            'Bring all archives.'
        )
    keys = sorted(notes)
    rows = [get_fields(read_annotation_json(notes[key]), notes[key], 'labels')[0] for key in keys]
    attributes = {name for names in rows for name in names}
    class_names = read_with_remedy(
        folder,
        lambda: sorted(attributes, key=lambda name: int(name[1:].split('_')[0])),
        ' as attributes named a0_safe, a1_…',
    )
    return Listing(
        [photos[key].relative_to(folder).as_posix() for key in keys],
        *label_matrix(rows, names=class_names),
        ['test' if _PARTS[k] == 'test' else 'train' for k, _ in keys],
    )


register('vaw', read_vaw)
register('wider', read_wider)
register('vispr', read_vispr)
