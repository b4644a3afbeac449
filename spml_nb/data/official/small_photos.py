"""Sets of photos that can be downloaded without a form: parts of VOC, COCO, CUB, and others."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from ...base.errors import SpmlError
from ..dataset import join_items
from ..folder import Listing, label_matrix
from .cub import read_cub
from .files import ASSETS, find_in_benchmark, read_listing_lines, read_matlab, reading

_SHIPPED = ASSETS / 'voc12_animals.csv.xz'


def _unchanged(photos):
    "`Listing.originals` without crops."
    return [(photo, None) for photo in photos]


def _read_voc12_animals(folder: Path) -> Listing:
    """Read the photos of VOC 2012 in Animal-Pose, with labels and parts from the package's assets.

    Source:
        Everingham et al. 2012; Cao et al., ICCV 2019; labels: Ahn et al., CVPR 2019, which equal
        the official ones of val.
    """
    photos = find_in_benchmark(folder, 'trainval/VOCdevkit/VOC2012/JPEGImages')
    table = pd.read_csv(_SHIPPED, dtype=str)
    labels, names = label_matrix(table.labels.str.split('|'))
    originals = _unchanged(photos / image for image in table.image)
    return Listing(table.image.tolist(), labels, names, table.split.tolist(), originals)


def _read_cub_crops(folder: Path) -> Listing:
    """Read the official test photos of 100 species of CUB with their 312 attributes and boxes.

    Source:
        Wah et al. 2011.
    """
    listing = read_cub(folder)
    base = find_in_benchmark(folder, 'archive/CUB_200_2011')
    file = find_in_benchmark(base, 'bounding_boxes.txt')
    numbers = {
        image: number for number, image in map(str.split, read_listing_lines(base / 'images.txt'))
    }
    boxes = {number: cells for number, *cells in map(str.split, read_listing_lines(file))}
    images = [image.removeprefix('archive/CUB_200_2011/images/') for image in listing.images]
    species = (ASSETS / 'cub_crops_species.txt').read_text(encoding='utf-8').split()
    rows = [
        row
        for row, image in enumerate(images)
        if listing.split[row] == 'test'
        and re.sub(r'_\d+_\d+\.jpg$', '', Path(image).name) in species
    ]

    originals = []
    for row in rows:
        with reading(file):
            left, top, width, height = map(float, boxes[numbers[images[row]]])
        box = left, top, left + width, top + height
        originals.append((base / 'images' / images[row], box))
    order = np.argsort(listing.class_names)  # as in a table with a column of names
    return Listing(
        [Path(images[row]).name for row in rows],
        listing.labels[np.ix_(rows, order)],
        [listing.class_names[c] for c in order],
        originals=originals,
    )


def _repository(folder):
    "The only folder in an archive from GitHub, named after the branch or commit."
    folders = [
        path for path in sorted(find_in_benchmark(folder, 'repository').iterdir()) if path.is_dir()
    ]
    if len(folders) != 1:
        raise SpmlError(
            f'{folder / "repository"} has {len(folders)} folders, not the one of an archive of '
            'GitHub. Remove it and give the command again.'
        )
    return folders[0]


# fmt: off
COCO18_NAMES = {
    '1': 'person', '2': 'bicycle', '3': 'car', '4': 'motorcycle', '5': 'airplane', '6': 'bus',
    '7': 'train', '8': 'truck', '9': 'boat', '10': 'traffic light', '11': 'fire hydrant',
    '13': 'stop sign', '14': 'parking meter', '15': 'bench', '16': 'bird', '17': 'cat',
    '18': 'dog', '19': 'horse',
}
# fmt: on


def _read_coco18(folder: Path, count: int | None = 6000) -> Listing:
    """Read photos of COCO with 18 categories.

    Args:
        folder: The unpacked archives.
        count: Number of photos, those with the lowest numbers; None: all 30,000 with labels.

    Source:
        Lin et al. 2014, as in the repository Mike0429/COMP5329DeepLearningA2_ViT.
    """
    base = _repository(folder)
    file = find_in_benchmark(base, 'train.csv', 'data/train.csv')
    photos = find_in_benchmark(base, 'data')
    with reading(file):
        text = file.read_text(encoding='utf-8')
    rows = re.findall(r'^(\d+)\.jpg,([\d ]+),', text, re.MULTILINE)
    rows = sorted((int(photo), numbers.split()) for photo, numbers in rows)[:count]
    names = [
        [COCO18_NAMES.get(number, f'category {number}') for number in numbers]
        for _, numbers in rows
    ]
    return Listing(
        [f'{photo:05}.jpg' for photo, _ in rows],
        *label_matrix(names),
        originals=_unchanged(photos / f'{photo}.jpg' for photo, _ in rows),
    )


MIRFLICKR14_NAMES = (
    'baby bird car clouds dog female flower male night people portrait river sea tree'
).split()


def _read_mirflickr14(folder: Path, count: int | None = 6000) -> Listing:
    """Read photos of MIRFlickr-25k with 14 labels.

    Args:
        folder: The unpacked archives.
        count: Number of photos, those with the lowest numbers; None: all 10,176 with labels.

    Source:
        Huiskes and Lew 2008, as in the repository VilleAR/dlproject.
    """
    photos = find_in_benchmark(_repository(folder), 'images')
    labels = {}
    for name in MIRFLICKR14_NAMES:
        file = find_in_benchmark(folder, f'annotations/{name}.txt')
        with reading(file):
            photos_with_label = {int(line) for line in read_listing_lines(file)}
        for photo in photos_with_label:
            labels.setdefault(photo, []).append(name)
    numbers = sorted(labels)[:count]
    images = [f'im{photo:05}.jpg' for photo in numbers]
    return Listing(
        images,
        *label_matrix([labels[photo] for photo in numbers]),
        originals=_unchanged(photos / f'im{photo}.jpg' for photo in numbers),
    )


def _corel_part(file, vocabulary):
    "[(number of the photo, its words)], one for each line."

    def parse(line):
        photo, *numbers = line.split()
        words = {vocabulary[int(number) - 1] for number in numbers if number != '0'}
        return int(Path(photo).stem), words

    with reading(file):
        return [parse(line) for line in read_listing_lines(file)]


def _read_corel5k(folder: Path) -> Listing:
    """Read Corel5k with the words that occur in both official parts.

    Source:
        Duygulu et al. 2002, as in the repository lza2293/Dian.
    """
    base = _repository(folder)
    vocabulary = read_listing_lines(find_in_benchmark(base, 'labels/words'))
    train = _corel_part(find_in_benchmark(base, 'labels/training_label'), vocabulary)
    test = _corel_part(find_in_benchmark(base, 'labels/test_label'), vocabulary)
    common = set().union(*(words for _, words in train))
    common &= set().union(*(words for _, words in test))
    part_of, words_of = {}, {}
    for part, rows in (('train', train), ('test', test)):
        for photo, words in rows:
            part_of.setdefault(photo, part)
            words_of.setdefault(photo, set()).update(words & common)
    photos = {
        int(file.stem): file
        for file in find_in_benchmark(base, 'images').rglob('*.jp*g')
        if file.stem.isdigit()
    }
    return Listing(
        [f'{photo:06}.jpg' for photo in part_of],
        *label_matrix(list(words_of.values())),
        list(part_of.values()),
        _unchanged(photos.get(photo, base / 'images' / f'{photo}.jpeg') for photo in part_of),
    )


def _read_corel5k_themes(folder: Path) -> Listing:
    """Read Corel5k with the CD that a photo comes from as its only class.

    Source:
        Duygulu et al. 2002: a hundred photos from each of fifty CDs, each CD with one theme.
    """
    listing = _read_corel5k(folder)
    themes = [[f'CD {int(Path(image).stem) // 1000:03}'] for image in listing.images]
    labels, names = label_matrix(themes)
    return replace(listing, labels=labels, class_names=names)


def _ccp_labels(base, photo, count):
    "Numbers of a photo's labels in its tags and mask, without 0."
    files = {
        'tags': base / 'annotations' / 'image-level' / f'{photo}.mat',
        'groundtruth': base / 'annotations' / 'pixel-level' / f'{photo}.mat',
    }
    arrays = [np.unique(read_matlab(file, key)) for key, file in files.items() if file.is_file()]
    if not arrays:
        raise SpmlError(f'{base} has neither tags nor a mask for photo {photo}.')
    numbers = np.unique(np.concatenate(arrays).astype(np.int64))
    if len(numbers) and not 0 <= numbers[0] <= numbers[-1] <= count:
        raise SpmlError(
            f'{base}: photo {photo} has the label numbers {join_items(numbers)}; allowed: 0 to '
            f'{count}.'
        )
    return numbers[numbers > 0]


def _read_ccp(folder: Path) -> Listing:
    """Read Clothing Co-Parsing.

    Source:
        Yang, Luo and Lin, CVPR 2014.
    """
    base = _repository(folder)
    cells = np.ravel(read_matlab(find_in_benchmark(base, 'label_list.mat')))
    null, *classes = [str(np.ravel(cell)[0]).strip() for cell in cells]
    if null != 'null':
        raise SpmlError(f"{base / 'label_list.mat'} begins with {null!r} where 'null' is expected.")
    photos = sorted(find_in_benchmark(base, 'photos').glob('*.jpg'))
    numbers = [_ccp_labels(base, photo.stem, len(classes)) for photo in photos]
    labels, _ = label_matrix(numbers, names=range(1, len(classes) + 1))
    return Listing([photo.relative_to(folder).as_posix() for photo in photos], labels, classes)


READERS = {
    'voc12_animals': _read_voc12_animals,
    'cub_crops': _read_cub_crops,
    'coco18': _read_coco18,
    'mirflickr14': _read_mirflickr14,
    'coco18_30k': partial(_read_coco18, count=None),
    'mirflickr14_10k': partial(_read_mirflickr14, count=None),
    'corel5k': _read_corel5k,
    'corel5k_themes': _read_corel5k_themes,
    'ccp': _read_ccp,
}
