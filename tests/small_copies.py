"""Small copies of the benchmarks' official files: each maker writes archives, and says what must
come out of them.
"""

import contextlib
import io
import json

import numpy as np
import pytest
import torchvision.datasets as theirs
from scipy.io import savemat
from serving import jpeg, tar_of, zip_of

from spml_nb.base.errors import SpmlError
from spml_nb.data.official.voc import VOC_CLASSES

TELL = {'tell': lambda line: None}


@contextlib.contextmanager
def refused(*parts):
    with pytest.raises(SpmlError) as caught:
        yield
    for part in parts:
        assert str(part) in str(caught.value), str(caught.value)


def mat(**variables):
    out = io.BytesIO()
    savemat(out, variables)
    return out.getvalue()


def voc_members(year, parts, rng=None, images=True):
    """{name in archive: bytes}. parts: {part: (names, (n, 20) of 1, 0, -1)}; the XML has every
    object, the difficult ones marked.
    """
    base, members = f'VOCdevkit/VOC{year}', {}
    for part, (names, words) in parts.items():
        for c, name in enumerate(VOC_CLASSES):
            rows = [
                f'{image} {" " if word >= 0 else ""}{word}'
                for image, word in zip(names, words[:, c], strict=True)
            ]
            members[f'{base}/ImageSets/Main/{name}_{part}.txt'] = ('\n'.join(rows) + '\n').encode()
        if not images:
            continue
        for image, row in zip(names, words, strict=True):
            members[f'{base}/JPEGImages/{image}.jpg'] = jpeg(row > 0)
            objects = ''.join(
                f'<object><name>{VOC_CLASSES[c]}</name>'
                f'<difficult>{int(row[c] == 0)}</difficult>'
                '<part><name>head</name><bndbox><xmin>0</xmin></bndbox></part>'
                f'<bndbox><xmin>{c}</xmin><ymin>10</ymin>'
                f'<xmax>{2 * c + 2}</xmax><ymax>20</ymax></bndbox></object>'
                for c in np.flatnonzero(row >= 0)
            )
            size = '<size><width>50</width><height>40</height><depth>3</depth></size>'
            members[f'{base}/Annotations/{image}.xml'] = (
                f'<annotation><filename>{image}.jpg</filename>{size}{objects}</annotation>'.encode()
            )
    return members


def voc_words(n, seed):
    words = np.random.RandomState(seed).choice([-1, -1, -1, -1, 0, 1], (n, 20))
    words[np.arange(n), np.arange(n) % 20] = 1
    return words


COUNTS12 = {'train': 30, 'test': 10, 'classes': 20}


def coco(names, rows, ids, drawn):
    """An instances file. names, rows: images and their positives as numbers of categories; drawn:
    category ids; a crowd box where a number is negative.
    """
    images = [
        {'id': number, 'file_name': name, 'width': 36, 'height': 18}
        for number, name in zip(ids, names, strict=True)
    ]
    boxes = [
        {
            'id': 100 * number + k,
            'image_id': number,
            'category_id': abs(category),
            'iscrowd': int(category < 0),
            'bbox': [0, 0, 9, 9],
            'segmentation': [[1.5] * 8],
        }
        for number, row in zip(ids, rows, strict=True)
        for k, category in enumerate(row)
    ]
    categories = [
        {'id': number, 'name': f'thing {number}', 'supercategory': 'things'} for number in drawn
    ]
    return {'info': {}, 'images': images, 'annotations': boxes, 'categories': categories}


def cub_members(present, train, stray=False):
    "CUB's archive without images. present: (N, A) of 0, 1; train: (N,) of 0, 1."
    n, count = present.shape
    names = [f'{k % 3 + 1:03}.Bird/Bird_{k:04}.jpg' for k in range(n)]
    rows = ''.join(
        f'{i} {a} {word} {1 + a % 4} 1.509\n'
        for i, row in enumerate(present.tolist(), 1)
        for a, word in enumerate(row, 1)
    )
    if stray:
        rows = rows.replace(' 1.509', ' 0 1.509', 3).replace(' 1.509', ' ', 4)
    return names, {
        'attributes.txt': '\n'.join(
            f'{a} has_part::kind_{a}_(a-b)' for a in range(1, count + 1)
        ).encode(),
        'CUB_200_2011/images.txt': '\n'.join(
            f'{k} {name}' for k, name in enumerate(names, 1)
        ).encode(),
        'CUB_200_2011/train_test_split.txt': '\n'.join(
            f'{k} {word}' for k, word in enumerate(train, 1)
        ).encode(),
        'CUB_200_2011/attributes/image_attribute_labels.txt': rows.encode(),
    }


def ccp_members(names, positives, pixel=lambda row: row % 2):
    """The repository. names: of classes without null; positives: list of lists of class numbers
    from 1; pixel: whether a row has a mask in place of tags.
    """
    base = 'clothing-co-parsing-master'
    members = {f'{base}/label_list.mat': mat(label_list=np.array([['null', *names]], object))}
    for row, present in enumerate(positives):
        if pixel(row):
            mask = np.zeros((6, 8), np.uint8)
            mask.flat[: len(present)] = present
            members[f'{base}/annotations/pixel-level/{row + 1:04}.mat'] = mat(groundtruth=mask)
        else:
            members[f'{base}/annotations/image-level/{row + 1:04}.mat'] = mat(
                tags=np.array([present], np.uint8)
            )
    return members


TRAIN, TEST = 12, 4


def matrix(classes, n=TRAIN + TEST):
    """Labels of n images, each with a positive, each class with one in the first and the last rows:
    (n, classes) of 1 and -1.
    """
    labels = np.where(np.random.RandomState(classes).random_sample((n, classes)) < 0.3, 1, -1)
    labels[np.arange(n), np.arange(n) % classes] = 1
    return labels


def one_of_each(classes, n=TRAIN + TEST):
    return np.arange(n) % classes


def one_hot(classes, names):
    labels = np.full((len(classes), len(names)), -1)
    labels[np.arange(len(classes)), classes] = 1
    return labels


def text(lines):
    return ''.join(f'{line}\n' for line in lines).encode()


SPLIT = ['train'] * TRAIN + ['test'] * TEST


def make_nus(folder):
    labels = matrix(81)
    labels[5] = -1  # an image without any concept stays in
    concepts = sorted(['airport', 'zebra', *(f'concept{k}' for k in range(79))])
    names = [f'{("bear", "sun")[k % 2]}\\{k:04}_{k * 7}.jpg' for k in range(len(labels))]
    zip_of(
        folder / 'ImageList.zip',
        {
            'ImageList/TrainImagelist.txt': text(names[:TRAIN]),
            'ImageList/TestImagelist.txt': text(names[TRAIN:]),
        },
    )
    parts = {'Train': slice(0, TRAIN), 'Test': slice(TRAIN, None)}
    zip_of(
        folder / 'Groundtruth.zip',
        {
            f'Groundtruth/TrainTestLabels/Labels_{concept}_{part}.txt': text(
                (labels[rows, c] > 0).astype(int)
            )
            for c, concept in reversed([*enumerate(concepts)])
            for part, rows in parts.items()
        },
    )
    images = [name.replace('\\', '/') for name in names]
    zip_of(
        folder / 'Flickr.zip',
        {f'Flickr/{name}': jpeg(row) for name, row in zip(images, labels, strict=True)},
    )
    split, validates = (
        list(SPLIT),
        np.random.RandomState(1200).permutation(TRAIN)[-2:],
    )  # round(0.2 * 12)
    for k in validates:
        split[k] = 'val'
    return concepts, labels, split, images


VAW_WORDS = ['wooden', 'red', 'round', 'tall', 'wet']


def vaw_entry(k, z, box=(2, 3, 40.4, 38)):
    return {
        'image_id': 100 + k // 2,
        'instance_id': str(9000 + k),
        'instance_bbox': list(box),
        'instance_polygon': None,
        'object_name': 'thing',
        'positive_attributes': [w for w, v in zip(VAW_WORDS, z, strict=True) if v > 0],
        'negative_attributes': [w for w, v in zip(VAW_WORDS, z, strict=True) if v < 0],
    }


def make_vaw(folder):
    labels = matrix(5)
    labels[np.random.RandomState(0).random_sample(labels.shape) < 0.4] = 0
    labels[np.arange(16), np.arange(16) % 5] = (
        1  # every object has something, most say nothing of the rest
    )
    labels[13, 4] = -1
    entries = [vaw_entry(k, z) for k, z in enumerate(labels)]
    entries.append(vaw_entry(16, labels[0], box=(500, 500, 9, 9)))  # beyond its photo: left out
    parts = {
        'train_part1': entries[:6],
        'train_part2': entries[6:10],
        'val': entries[10:12],
        'test': entries[12:],
    }
    zip_of(
        folder / 'vaw_dataset-main.zip',
        {
            **{
                f'vaw_dataset-main/data/{name}.json': json.dumps(found).encode()
                for name, found in parts.items()
            },
            'vaw_dataset-main/data/attribute_index.json': json.dumps(
                {w: k for k, w in enumerate(VAW_WORDS)}
            ).encode(),
        },
    )
    zip_of(
        folder / 'images.zip',
        {f'VG_100K/{100 + k}.jpg': jpeg([k % 2, k % 3 == 0, 1]) for k in range(5)},
    )
    zip_of(
        folder / 'images2.zip',
        {f'VG_100K_2/{100 + k}.jpg': jpeg([k % 2, k % 3 == 0, 1]) for k in range(5, 9)},
    )
    return VAW_WORDS, labels, SPLIT, [f'{9000 + k}.jpg' for k in range(16)]


def make_wider(folder):
    labels = matrix(14)
    labels[:, 3:6] = np.where(np.arange(3) == 1, labels[:, 3:6], 0)
    names = ['Male', *(f'attribute {k}' for k in range(1, 14))]

    def person(z, box=(1, 1, 30, 40)):
        return {'attribute': [int(v) for v in z], 'bbox': list(box)}

    def photos(part, rows, extra=()):
        people = [person(z) for z in rows] + list(extra)
        return {
            'attribute_id_map': {str(k): name for k, name in enumerate(names)},
            'scene_id_map': {'0': 'Parade'},
            'images': [
                {
                    'file_name': f'{part}/0--Parade/{k}.jpg',
                    'scene_id': 0,
                    'targets': people[2 * k : 2 * k + 2],
                }
                for k in range((len(people) + 1) // 2)
            ],
        }

    nobody = person(np.where(np.arange(14) < 7, -1, 0))  # no positive attribute: left out
    found = {
        'trainval': photos('train', labels[:TRAIN], [nobody]),
        'test': photos('test', labels[TRAIN:], [person(labels[0], (300, 0, 5, 5))]),
    }
    zip_of(
        folder / 'wider_attribute_annotation.zip',
        {
            f'wider_attribute_annotation/wider_attribute_{part}.json': json.dumps(content).encode()
            for part, content in found.items()
        },
    )
    tar_of(
        folder / 'wider_attribute_image.tgz',
        {
            f"Image/{photo['file_name']}": jpeg([1, k % 2])
            for content in found.values()
            for k, photo in enumerate(content['images'])
        },
    )
    return (
        names,
        labels,
        SPLIT,
        [f'trainval-{k:05}.jpg' for k in range(TRAIN)] + [f'test-{k:05}.jpg' for k in range(TEST)],
    )


def make_vispr(folder):
    labels = matrix(6)
    names = [
        'a0_safe',
        'a1_age_approx',
        'a9_face_complete',
        'a10_face_partial',
        'a70_education_history',
        'a102_vehicle_ownership',
    ]
    parts = {'train': range(8), 'val': range(8, TRAIN), 'test': range(TRAIN, TRAIN + TEST)}
    for part, rows in parts.items():
        tar_of(
            folder / f'{part}2017.tar.gz',
            {f'{part}2017/2017_{k:08}.jpg': jpeg(labels[k]) for k in rows},
        )
    annotation = {
        f'{part}2017/2017_{k:08}.json': json.dumps(
            {'id': k, 'labels': [n for n, v in zip(names, labels[k], strict=True) if v > 0]}
        ).encode()
        for part, rows in parts.items()
        for k in rows
    }
    tar_of(folder / 'annotations.tar.gz', annotation)
    return names, labels, SPLIT, [f'2017_{k:08}.jpg' for k in range(TRAIN + TEST)]


def make_imagenet(folder):
    names = ['n01440764', 'n01443537', 'n02123045']
    classes = [*np.sort(one_of_each(3, TRAIN)).tolist(), 0, 1, 2, 2]
    files = [
        f'{names[c]}/{names[c]}_{k}.JPEG' if k < TRAIN else f'{names[c]}/ILSVRC2012_val_{k:08}.JPEG'
        for k, c in enumerate(classes)
    ]
    files[:TRAIN] = sorted(files[:TRAIN])
    for part, rows in (('train', range(TRAIN)), ('val', range(TRAIN, 16))):
        tar_of(
            folder / f'{part}.tar',
            {files[k]: jpeg(np.arange(3) == classes[k]) for k in reversed(rows)},
            'w',
        )
    return names, one_hot(classes, names), SPLIT, files


def make_aircraft(folder):
    names = ['707-320', 'A300B4', 'Boeing 717']
    classes = one_of_each(3)
    base = 'fgvc-aircraft-2013b/data'
    parts = {'train': range(8), 'val': range(8, TRAIN), 'test': range(TRAIN, 16)}
    tar_of(
        folder / 'fgvc-aircraft-2013b.tar.gz',
        {
            f'{base}/variants.txt': text(names),
            **{
                f'{base}/images_variant_{part}.txt': text(
                    f'{k:07} {names[classes[k]]}' for k in rows
                )
                for part, rows in parts.items()
            },
            **{f'{base}/images/{k:07}.jpg': jpeg(np.arange(3) == c) for k, c in enumerate(classes)},
        },
    )
    return (
        names,
        one_hot(classes, names),
        ['train'] * 8 + ['val'] * 4 + ['test'] * 4,
        [f'images/{k:07}.jpg' for k in range(16)],
    )


def make_caltech101(folder):
    names = ['BACKGROUND_Google', 'Faces_easy']
    inner = {
        f'101_ObjectCategories/{name}/image_{k:04}.jpg': jpeg([c, 1 - c, k % 2], 24)
        for c, name in enumerate(names)
        for k in range(1, 33)
    }
    tar_of(folder / '101_ObjectCategories.tar.gz', inner)
    zip_of(
        folder / 'caltech-101.zip',
        {
            'caltech-101/101_ObjectCategories.tar.gz': (
                folder / '101_ObjectCategories.tar.gz'
            ).read_bytes(),
            'caltech-101/Annotations.tar': b'x',
        },
    )
    return (
        names,
        one_hot(np.repeat([0, 1, 0, 1], [30, 30, 2, 2]), names),
        ['train'] * 60 + ['test'] * 4,
        None,
    )


def cars_entries(classes, first):
    kind = [('bbox_x1', 'i4'), ('class', 'u1'), ('fname', 'O')]
    return np.array([(1, c + 1, f'{k + first:05}.jpg') for k, c in enumerate(classes)], dtype=kind)


def make_cars(folder):
    names = ['AM General Hummer SUV 2000', 'Acura RL Sedan 2012', 'Audi TT RS Coupe 2012']
    classes = one_of_each(3)
    for part, rows in (('train', range(TRAIN)), ('test', range(TRAIN, 16))):
        tar_of(
            folder / f'cars_{part}.tgz',
            {
                f'cars_{part}/{k - rows[0] + 1:05}.jpg': jpeg(np.arange(3) == classes[k])
                for k in rows
            },
        )
    tar_of(
        folder / 'car_devkit.tgz',
        {
            'devkit/cars_meta.mat': mat(class_names=np.array(names, dtype=object)),
            'devkit/cars_train_annos.mat': mat(annotations=cars_entries(classes[:TRAIN], 1)),
        },
    )
    (folder / 'cars_test_annos_withlabels.mat').write_bytes(
        mat(annotations=cars_entries(classes[TRAIN:], 1))
    )
    return (
        names,
        one_hot(classes, names),
        SPLIT,
        [f'cars_train/{k + 1:05}.jpg' for k in range(TRAIN)]
        + [f'cars_test/{k + 1:05}.jpg' for k in range(TEST)],
    )


def make_cub_species(folder):
    names = ['001.Black_footed_Albatross', '002.Laysan_Albatross']
    classes = one_of_each(2)
    base = 'CUB_200_2011'
    files = [f'{names[c]}/bird_{k}.jpg' for k, c in enumerate(classes)]
    tests = {1, 4, 7, 10}
    tar_of(
        folder / 'CUB_200_2011.tgz',
        {
            f'{base}/images.txt': text(f'{k + 1} {file}' for k, file in enumerate(files)),
            f'{base}/classes.txt': text(f'{k + 1} {name}' for k, name in enumerate(names)),
            f'{base}/image_class_labels.txt': text(
                f'{k + 1} {c + 1}' for k, c in enumerate(classes)
            ),
            f'{base}/train_test_split.txt': text(
                f'{k + 1} {int(k not in tests)}' for k in range(16)
            ),
            **{
                f'{base}/images/{file}': jpeg(np.arange(2) == c)
                for file, c in zip(files, classes, strict=True)
            },
        },
    )
    order = [k for k in range(16) if k not in tests] + sorted(tests)
    return names, one_hot(classes[order], names), SPLIT, [files[k] for k in order]


def make_dtd(folder):
    names, classes = ['banded', 'dotted', 'zigzagged'], one_of_each(3)
    files = [f'{names[c]}/{names[c]}_{k:04}.jpg' for k, c in enumerate(classes)]
    parts = {'train': range(8), 'val': range(8, TRAIN), 'test': range(TRAIN, 16)}
    tar_of(
        folder / 'dtd-r1.0.1.tar.gz',
        {
            **{
                f'dtd/labels/{part}1.txt': text(files[k] for k in rows)
                for part, rows in parts.items()
            },
            'dtd/labels/train2.txt': text(files[5:9]),
            **{
                f'dtd/images/{file}': jpeg(np.arange(3) == c)
                for file, c in zip(files, classes, strict=True)
            },
        },
    )
    return names, one_hot(classes, names), ['train'] * 8 + ['val'] * 4 + ['test'] * 4, files


def make_flowers(folder):
    classes, ids = one_of_each(3), np.random.RandomState(1).permutation(16)
    tar_of(
        folder / '102flowers.tgz',
        {f'jpg/image_{k + 1:05}.jpg': jpeg(np.arange(3) == c) for k, c in enumerate(classes)},
    )
    (folder / 'imagelabels.mat').write_bytes(mat(labels=classes[None] + 1))
    (folder / 'setid.mat').write_bytes(
        mat(trnid=ids[None, :8] + 1, valid=ids[None, 8:12] + 1, tstid=ids[None, 12:] + 1)
    )
    return (
        theirs.Flowers102.classes,
        one_hot(classes[ids], range(102)),
        ['train'] * 8 + ['val'] * 4 + ['test'] * 4,
        [f'image_{k + 1:05}.jpg' for k in ids],
    )


def make_food101(folder):
    names = ['apple_pie', 'baklava', 'waffles']
    classes = np.array([*np.repeat(range(3), 4), 0, 1, 2, 2])
    files = [f'{names[c]}/{1000 - k}' for k, c in enumerate(classes)]
    found = {
        part: {
            name: [file for file in files[rows] if file.startswith(name)]
            for name in reversed(names)
        }
        for part, rows in (('train', slice(0, 12)), ('test', slice(12, 16)))
    }
    tar_of(
        folder / 'food-101.tar.gz',
        {
            **{
                f'food-101/meta/{part}.json': json.dumps(content).encode()
                for part, content in found.items()
            },
            **{
                f'food-101/images/{file}.jpg': jpeg(np.arange(3) == c)
                for file, c in zip(files, classes, strict=True)
            },
        },
    )
    return names, one_hot(classes, names), SPLIT, [f'{file}.jpg' for file in files]


def make_pets(folder):
    names, classes = ['Abyssinian', 'american_bulldog', 'Sphynx'], one_of_each(3)
    files = [f'{names[c]}_{k}' for k, c in enumerate(classes)]
    tar_of(
        folder / 'annotations.tar.gz',
        {
            f'annotations/{part}.txt': text(f'{files[k]} {classes[k] + 1} 1 1' for k in rows)
            for part, rows in (('trainval', range(TRAIN)), ('test', range(TRAIN, 16)))
        },
    )
    tar_of(
        folder / 'images.tar.gz',
        {
            f'images/{file}.jpg': jpeg(np.arange(3) == c)
            for file, c in zip(files, classes, strict=True)
        },
    )
    return names, one_hot(classes, names), SPLIT, [f'{file}.jpg' for file in files]


def make_sun(folder):
    names, classes = ['abbey', 'apartment_building/outdoor', 'zen_garden'], one_of_each(3)
    files = [f'/{names[c][0]}/{names[c]}/sun_{k:016}.jpg' for k, c in enumerate(classes)]
    tar_of(
        folder / 'SUN397.tar.gz',
        {f'SUN397{file}': jpeg(np.arange(3) == c) for file, c in zip(files, classes, strict=True)},
    )
    zip_of(
        folder / 'Partitions.zip',
        {
            'ClassName.txt': text(f'/{name[0]}/{name}' for name in names),
            'Training_01.txt': text(files[:TRAIN]),
            'Testing_01.txt': text(files[TRAIN:]),
            'Training_02.txt': text(files[4:]),
            'Testing_02.txt': text(files[:4]),
        },
    )
    return names, one_hot(classes, names), SPLIT, [file[1:] for file in files]


L48_SPECIES = ['norcar', 'amerob', 'blujay', 'mouchi', 'houwre']
# {recording: (target, on the checklist, in range)}; one code that is no class
L48_RECORDINGS = {
    3: ('norcar', ['norcar', 'amerob', 'blujay'], ['norcar', 'amerob', 'blujay', 'houwre']),
    7: ('mouchi', ['mouchi', 'blujay', 'other1'], ['mouchi', 'blujay', 'norcar', 'other1']),
    12: ('amerob', ['amerob', 'norcar'], ['amerob', 'norcar', 'blujay']),  # validates
    8000: ('blujay', ['blujay', 'mouchi'], ['blujay', 'mouchi', 'amerob']),
}
L48_CLIPS = [  # (recording, its boxes: species and status)
    (3, [('norcar', 'active'), ('amerob', 'passive')]),
    (3, [('norcar', 'active'), ('Unknown bird', 'active')]),
    (3, [('amerob', 'active')]),
    (3, []),
    (8000, [('blujay', 'active'), ('blujay', 'passive'), ('mouchi', 'active')]),
    (8000, [('mouchi', 'active')]),
    (8000, [('blujay', 'active'), ('Unknown bird', 'passive')]),
    (8000, []),
    (7, [('mouchi', 'active'), ('blujay', 'active')]),
    (7, [('mouchi', 'ignore')]),
    (7, [('mouchi', 'active')]),
    (12, [('amerob', 'active'), ('norcar', 'active')]),
    (12, [('norcar', 'active')]),
    (12, []),
    (12, [('amerob', 'active'), ('norcar', 'ignore')]),
]


def make_l48(folder):
    labels = np.full((len(L48_CLIPS), len(L48_SPECIES)), -1, np.int8)
    clips, members, files = [], {}, []
    for k, (recording, boxes) in enumerate(L48_CLIPS):
        _, _, in_range = L48_RECORDINGS[recording]
        present = sorted({name for name, status in boxes if status != 'ignore'} - {'Unknown bird'})
        is_open = not present or ('Unknown bird', 'active') in boxes
        is_open = is_open or ('Unknown bird', 'passive') in boxes
        for c, name in enumerate(L48_SPECIES):
            if name in present:
                labels[k, c] = 1
            elif is_open and name in in_range:
                labels[k, c] = 0
        order = sum(number == recording for number, _ in L48_CLIPS[:k])
        files.append(f'images/{recording}/{order}.jpg')
        members[f'ml48s/{files[-1]}'] = jpeg(labels[k])
        states = {
            f'{state}_species_codes': [L48_SPECIES[c] for c in np.flatnonzero(labels[k] == value)]
            for state, value in (('present', 1), ('unknown', 0), ('absent', -1))
        }
        marks = [
            {'id': i, 'species_code': name, 'status': status, 'bbox': [0.1, 0.2, 0.3, 0.4]}
            for i, (name, status) in enumerate(boxes)
        ]
        place = {'id': 100 + k, 'asset_id': recording, 'clip_order': order, 'file_path': files[-1]}
        clips.append({**place, 'width': 56, 'height': 48, **states, 'boxes': marks})
    assets = [
        {
            'id': number,
            'split': 'test' if number >= 8000 else 'train',
            'target_species_code': target,
            'possible_species_codes': in_range,
            'observed_species_codes': on_list,
        }
        for number, (target, on_list, in_range) in L48_RECORDINGS.items()
    ]
    taxa = text(['sci_name,species_code', *(f'"Avis, {name}",{name}' for name in L48_SPECIES)])
    members |= {
        'ml48s/assets.json': json.dumps(assets).encode(),
        'ml48s/clips.json': json.dumps(clips).encode(),
        'ml48s/taxa.csv': taxa,
    }
    tar_of(folder / 'ml48s.tar.gz', members)
    parts = {3: 'train', 7: 'train', 12: 'val', 8000: 'test'}
    return L48_SPECIES, labels, [parts[number] for number, _ in L48_CLIPS], files


MAKERS = {
    'l48': make_l48,
    'nus': make_nus,
    'vaw': make_vaw,
    'wider': make_wider,
    'vispr': make_vispr,
    'imagenet': make_imagenet,
    'aircraft': make_aircraft,
    'caltech101': make_caltech101,
    'cars': make_cars,
    'cub-species': make_cub_species,
    'dtd': make_dtd,
    'flowers': make_flowers,
    'food101': make_food101,
    'pets': make_pets,
    'sun': make_sun,
}


def pairs(listing, part):
    "{name of the image: class number} of a part."
    return {
        image.rsplit('/', 1)[1]: int(row.argmax())
        for image, row, word in zip(listing.images, listing.labels, listing.split, strict=True)
        if word == part
    }
