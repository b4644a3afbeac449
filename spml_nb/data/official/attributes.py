"""Three sets of attributes that only the two-way paper uses; two of them label boxes, which are cut out."""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from ...base import progress
from ...base.errors import SpmlError
from .. import fetch
from ..dataset import listed
from ..folder import PHOTOS, Listing, label_matrix, open_photo
from .registry import Archive, Benchmark, inside, read_json, reading, register


def _cut(photo, boxes, target):
    "Cut boxes {name: (x, y, width, height)} in pixels out of one photo."
    image = reading(photo, lambda: open_photo(photo).convert('RGB'))
    for name, (x, y, width, height) in boxes.items():
        left, top = max(math.floor(x), 0), max(math.floor(y), 0)
        right, bottom = (
            min(math.ceil(x + width), image.width),
            min(math.ceil(y + height), image.height),
        )
        if right > left and bottom > top:
            image.crop((left, top, right, bottom)).save(target / name, quality=95, subsampling=0)


def crops(folder: Path, boxes: dict[Path, dict[str, tuple]]) -> set[str]:
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
        with fetch.whole(folder / 'crops') as temporary, ThreadPoolExecutor() as pool:
            done = pool.map(lambda item: _cut(item[0], item[1], temporary), boxes.items())
            for _ in progress.bar(done, len(boxes), 'cutting boxes out'):
                pass
    return {entry.name for entry in os.scandir(folder / 'crops')}


def _keys(record, file, *names):
    "Values of a JSON object by name."
    absent = [name for name in names if not isinstance(record, dict) or name not in record]
    if absent:
        raise SpmlError(f'{file}: an entry has no {listed(absent)}: not the official form.')
    return [record[name] for name in names]


def read_vaw(folder: Path) -> Listing:
    """Read Visual Attributes in the Wild: each image is an object in a box; one without a pixel is
    left out.

    Args:
        folder: The folder images/, with vaw/, VG_100K/ and VG_100K_2/.

    Returns:
        What the official files say; labels 1 and -1 as annotated, 0 where nothing is said or both
        are.

    Raises:
        SpmlError: For other files, unknown attributes and missing photos.

    Source:
        Pham et al. 2021.
    """
    data = inside(folder, 'vaw/data', 'vaw/vaw_dataset-main/data', 'vaw')
    index = read_json(data / 'attribute_index.json')
    class_names = sorted(index, key=index.get)
    column = {name: k for k, name in enumerate(class_names)}
    keys = (
        'image_id',
        'instance_id',
        'instance_bbox',
        'positive_attributes',
        'negative_attributes',
    )
    entries = [
        ('test' if part == 'test' else 'train', *_keys(entry, data, *keys))
        for part in ('train_part1', 'train_part2', 'val', 'test')
        for entry in read_json(data / f'{part}.json')
    ]
    photos = {
        file.stem: file
        for archive in ('VG_100K', 'VG_100K_2')
        for file in inside(folder, archive).rglob('*.jpg')
    }
    boxes, labels = {}, np.zeros((len(entries), len(class_names)), np.int8)
    for row, (_, image, instance, box, positive, negative) in enumerate(entries):
        if str(image) not in photos:
            raise SpmlError(
                f'{folder} has no photo {image}.jpg, which {data.name} names. Bring both archives '
                'of Visual Genome.'
            )
        boxes.setdefault(photos[str(image)], {})[f'{instance}.jpg'] = tuple(box)
        strange = sorted({*positive, *negative} - column.keys())
        if strange:
            raise SpmlError(
                f'{data}: object {instance} has attributes that attribute_index.json does not '
                f'list: {listed(map(repr, strange))}.'
            )
        labels[row, [column[name] for name in set(positive) - set(negative)]] = 1
        labels[row, [column[name] for name in set(negative) - set(positive)]] = -1
    cut = crops(folder, boxes)
    keep = [row for row, entry in enumerate(entries) if f'{entry[2]}.jpg' in cut]
    return Listing(
        [f'crops/{entries[row][2]}.jpg' for row in keep],
        labels[keep],
        class_names,
        [entries[row][0] for row in keep],
    )


VAW = register(
    Benchmark(
        'vaw',
        read_vaw,
        validation='none',
        counts={'train': 229_076, 'test': 31_819, 'classes': 620},
        archives=(
            Archive(
                'vaw_dataset-main.zip',
                ('https://github.com/adobe-research/vaw_dataset/archive/refs/heads/main.zip',),
                'vaw',
            ),
            Archive(
                'images.zip',
                ('https://cs.stanford.edu/people/rak248/VG_100K_2/images.zip',),
                'VG_100K',
                9_700_000_000,
            ),
            Archive(
                'images2.zip',
                ('https://cs.stanford.edu/people/rak248/VG_100K_2/images2.zip',),
                'VG_100K_2',
                5_500_000_000,
            ),
        ),
        licence=(
            'Annotations: Adobe Research License, non-commercial; photos: Visual Genome, CC BY '
            '4.0; cite Pham et al., CVPR 2021, and Krishna et al., IJCV 2017.'
        ),
    )
)


def read_wider(folder: Path) -> Listing:
    """Read WIDER Attribute: each image is a person in a box.

    People without a positive attribute or a pixel are left out.

    Args:
        folder: The folder images/, with wider_attribute_image/ and wider_attribute_annotation/.

    Returns:
        What the official files say; labels 1, -1, and 0 for unspecified.

    Raises:
        SpmlError: For other files or values.

    Source:
        Li et al. 2016.
    """
    photos = inside(folder, 'wider_attribute_image/Image', 'wider_attribute_image')
    notes = inside(
        folder,
        'wider_attribute_annotation/wider_attribute_annotation',
        'wider_attribute_annotation',
    )
    training = (
        ('trainval',) if (notes / 'wider_attribute_trainval.json').exists() else ('train', 'val')
    )
    rows, boxes = [], {}
    for part in (*training, 'test'):
        file = notes / f'wider_attribute_{part}.json'
        images, names = _keys(read_json(file), file, 'images', 'attribute_id_map')
        class_names = [names[key] for key in sorted(names, key=int)]
        people = (
            (image, target) for image in images for target in _keys(image, file, 'targets')[0]
        )
        for k, (image, target) in enumerate(people):
            z, box = _keys(target, file, 'attribute', 'bbox')
            if len(z) != len(class_names) or not set(z) <= {-1, 0, 1}:
                raise SpmlError(f'{file}: attributes {z}; expected {len(class_names)} of 1, 0, -1.')
            if 1 not in z:
                continue
            rows.append((f'{part}-{k:05}.jpg', z, 'test' if part == 'test' else 'train'))
            boxes.setdefault(photos / _keys(image, file, 'file_name')[0], {})[rows[-1][0]] = tuple(
                box
            )
    cut = crops(folder, boxes)
    rows = [row for row in rows if row[0] in cut]
    return Listing(
        [f'crops/{name}' for name, _, _ in rows],
        np.array([z for _, z, _ in rows], np.int8),
        class_names,
        [part for _, _, part in rows],
    )


WIDER = register(
    Benchmark(
        'wider',
        read_wider,
        validation='none',
        counts={'train': 28_340, 'test': 29_117, 'classes': 14},
        archives=(Archive('wider_attribute_image.tgz'), Archive('wider_attribute_annotation.zip')),
        instructions='WIDER Attribute is given out by its authors (mmlab.ie.cuhk.edu.hk/projects/WIDERAttribute). Bring '
        'the photos (Image/train, val, test) as wider_attribute_image.tgz and the annotations '
        '(wider_attribute_trainval.json, wider_attribute_test.json) as wider_attribute_annotation.zip to '
        '{downloads}, or unpacked, as folders of these names, to {images}.',
        licence=(
            'For non-commercial research; cite Li et al., Human Attribute Recognition by Deep '
            'Hierarchical Contexts, ECCV 2016.'
        ),
    )
)


def read_vispr(folder: Path) -> Listing:
    """Read VISPR: photos with the privacy attributes that they reveal.

    Args:
        folder: The folder images/, with train2017/, val2017/, test2017/ and, where they come apart,
            annotations/.

    Returns:
        What the official files say; attributes in the order of their numbers (a0_safe, a1_…).

    Raises:
        SpmlError: For a photo or a JSON file without its partner, or of another form.

    Source:
        Orekondy et al. 2017.
    """
    photos, notes = {}, {}
    for file in sorted(folder.rglob('*')):
        kind = (
            photos if file.suffix.lower() in PHOTOS else notes if file.suffix == '.json' else None
        )
        part = next(
            (
                part
                for part in ('train', 'val', 'test')
                if f'{part}2017' in file.relative_to(folder).parts
            ),
            None,
        )
        if kind is not None and part:
            kind[part, file.stem] = file
    alone = sorted(photos.keys() ^ notes.keys())
    if alone or not notes:
        raise SpmlError(
            f'{folder}: photos without annotation or the other way round: '
            f"{listed(['/'.join(key) for key in alone])}. Bring all archives."
        )
    keys = sorted(notes, key=lambda key: (('train', 'val', 'test').index(key[0]), key[1]))
    rows = [(key, _keys(read_json(notes[key]), notes[key], 'labels')[0]) for key in keys]
    named = {name for _, names in rows for name in names}
    class_names = reading(
        folder,
        lambda: sorted(named, key=lambda name: int(name[1:].split('_')[0])),
        ' as attributes named a0_safe, a1_…',
    )
    split = ['test' if part == 'test' else 'train' for (part, _), _ in rows]
    return Listing(
        [photos[key].relative_to(folder).as_posix() for key, _ in rows],
        *label_matrix([names for _, names in rows], names=class_names),
        split,
    )


VISPR = register(
    Benchmark(
        'vispr',
        read_vispr,
        validation='none',
        version='2017',
        counts={'train': 14_167, 'test': 8_000, 'classes': 68},
        archives=(
            *(Archive(f'{part}2017.tar.gz') for part in ('train', 'val', 'test')),
            Archive('annotations.tar.gz', optional=True),
        ),
        instructions='VISPR is given out by its authors (tribhuvanesh.github.io/vpa). Bring train2017.tar.gz, '
        'val2017.tar.gz and test2017.tar.gz to {downloads}, or unpacked, as folders train2017 and so on, to '
        '{images}; if the JSON files come apart from the photos, add them as annotations.tar.gz with the '
        'folders train2017, val2017 and test2017 inside.',
        licence=(
            'For research; photos from Flickr under their own terms; cite Orekondy et al., '
            'Towards a Visual Privacy Advisor, ICCV 2017.'
        ),
    )
)
