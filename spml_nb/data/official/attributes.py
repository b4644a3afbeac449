"""The attribute sets of the Two-way paper: VAW and WIDER (crops of labelled boxes), and VISPR."""

import math
import os
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...base import progress
from ...base.errors import SpmlError
from .. import fetch
from ..dataset import PARTS, join_items
from ..decoding import PHOTOS, open_photo
from ..folder import Listing, label_matrix
from .files import find_in_benchmark, find_nested, get_fields, read_annotation_json, reading


def _cut(photo, boxes, target):
    "Write crops {name: (x, y, width, height) in pixels} of one photo."
    with reading(photo):
        image = open_photo(photo).convert('RGB')
    for name, (x, y, width, height) in boxes.items():
        left = max(math.floor(x), 0)
        top = max(math.floor(y), 0)
        right = min(math.ceil(x + width), image.width)
        bottom = min(math.ceil(y + height), image.height)
        if right > left and bottom > top:
            crop = image.crop((left, top, right, bottom))
            crop.save(target / name, quality=95, subsampling=0)


def cut_boxes(folder: Path, boxes: dict[Path, dict[str, tuple]]) -> set[str]:
    """Crop boxes to images in folder/crops, unless that folder exists.

    Args:
        folder: The folder images/.
        boxes: {photo: {name of the crop: (x, y, width, height) in pixels}}.

    Returns:
        Names of the crops; a box outside its photo has none.

    Raises:
        SpmlError: If a photo is missing or damaged, or a crop cannot be written.

    Source:
        Own choice, because the Two-way paper does not describe its cropping.
    """
    if not (folder / 'crops').is_dir():
        with fetch.fill_folder(folder / 'crops') as temporary, ThreadPoolExecutor() as pool:
            done = pool.map(lambda item: _cut(*item, temporary), boxes.items())
            for _ in progress.progress_bar(done, len(boxes), 'cutting boxes out'):
                pass
    return {entry.name for entry in os.scandir(folder / 'crops')}


class _Crop(NamedTuple):
    photo: Path
    box: list[float]  # x, y, width, height in pixels
    name: str  # of its file
    labels: Sequence[int]
    part: str


def _listing_of_crops(folder, crops, class_names):
    "Cut out the crops; those without a pixel are left out."
    boxes = defaultdict(dict)
    for crop in crops:
        boxes[crop.photo][crop.name] = tuple(crop.box)
    written = cut_boxes(folder, boxes)
    crops = [crop for crop in crops if crop.name in written]
    return Listing(
        [f'crops/{crop.name}' for crop in crops],
        np.array([crop.labels for crop in crops], np.int8).reshape(-1, len(class_names)),
        class_names,
        ['test' if crop.part == 'test' else 'train' for crop in crops],
    )


def _read_vaw(folder: Path) -> Listing:
    """Read Visual Attributes in the Wild: each image is the crop of an object.

    Labels are 1 and -1 as annotated, and 0 if missing or contradictory.

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
    crops = []
    for part in ('train_part1', 'train_part2', 'val', 'test'):
        for entry in read_annotation_json(data / f'{part}.json'):
            image, instance, box = get_fields(
                entry, data, 'image_id', 'instance_id', 'instance_bbox'
            )
            if str(image) not in photos:
                raise SpmlError(
                    f'{folder} has no photo {image}.jpg, which {data.name} names. Bring both '
                    'archives of Visual Genome.'
                )
            labels = _vaw_labels(entry, instance, data, column)
            crops.append(_Crop(photos[str(image)], box, f'{instance}.jpg', labels, part))
    return _listing_of_crops(folder, crops, class_names)


def _vaw_labels(entry, instance, data, column):
    lists = get_fields(entry, data, 'positive_attributes', 'negative_attributes')
    positive, negative = map(set, lists)
    unlisted = sorted((positive | negative) - column.keys())
    if unlisted:
        raise SpmlError(
            f'{data}: object {instance} has attributes that attribute_index.json does not '
            f'list: {join_items(map(repr, unlisted))}.'
        )
    labels = np.zeros(len(column), np.int8)
    labels[[column[name] for name in positive - negative]] = 1
    labels[[column[name] for name in negative - positive]] = -1
    return labels


def _read_wider(folder: Path) -> Listing:
    """Read WIDER Attribute: each image is the crop of a person.

    People without a positive attribute are left out. Unspecified attributes are 0.

    Args:
        folder: The folder images/, with wider_attribute_image/ and wider_attribute_annotation/.

    Source:
        Li et al. 2016.
    """
    photos = find_in_benchmark(folder, 'wider_attribute_image/Image', 'wider_attribute_image')
    notes = find_nested(folder, 'wider_attribute_annotation')
    joined = (notes / 'wider_attribute_trainval.json').exists()
    training = ['trainval'] if joined else ['train', 'val']
    crops = []
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
                crops.append(_Crop(photos / photo, box, f'{part}-{k:05}.jpg', z, part))
    return _listing_of_crops(folder, crops, class_names)


def _read_vispr(folder: Path) -> Listing:
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
        for part in PARTS:
            if f'{part}2017' in file.relative_to(folder).parts:
                if file.suffix.lower() in PHOTOS:
                    photos[part, file.stem] = file
                elif file.suffix == '.json':
                    notes[part, file.stem] = file
    unpaired = sorted(photos.keys() ^ notes.keys())
    if unpaired or not notes:
        names = [f'{part}/{name}' for part, name in unpaired]
        raise SpmlError(
            f'{folder}: photos without annotation or the other way round: {join_items(names)}. '
            'Bring all archives.'
        )
    keys = sorted(notes, key=lambda key: (PARTS.index(key[0]), key[1]))
    rows = [get_fields(read_annotation_json(notes[key]), notes[key], 'labels')[0] for key in keys]
    attributes = {name for names in rows for name in names}
    with reading(folder, ' as attributes named a0_safe, a1_…'):
        class_names = sorted(attributes, key=lambda name: int(name[1:].split('_')[0]))
    return Listing(
        [photos[key].relative_to(folder).as_posix() for key in keys],
        *label_matrix(rows, names=class_names),
        ['test' if part == 'test' else 'train' for part, _ in keys],
    )


READERS = {'vaw': _read_vaw, 'wider': _read_wider, 'vispr': _read_vispr}
