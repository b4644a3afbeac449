"""Single-label sets for Two-way's transfer of frozen features."""

from pathlib import Path

import numpy as np

from spml_nb.data.official.registry import (
    Archive,
    Benchmark,
    inside,
    lines,
    read_json,
    read_matlab,
    register,
)

from ...base.errors import SpmlError
from .. import fetch
from ..dataset import listed
from ..folder import PHOTOS, Listing
from .cub import CUB_ARCHIVE, CUB_HELP


def _class_folders(folder, below):
    "{class: its images, as paths below `below`} of a folder of class folders, sorted."
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if not names:
        raise SpmlError(
            f'{folder} has no folder a class. Sort the photos into {folder.name}/n01440764/ and so '
            'on.'
        )
    place = folder.relative_to(below).as_posix()
    return {
        name: [
            f'{place}/{name}/{file.name}'
            for file in sorted((folder / name).iterdir())
            if file.suffix.lower() in PHOTOS
        ]
        for name in names
    }


def _single(rows, source, keys, class_names=None):
    """A Listing from {part: [(image, key of its class)]}: one positive per row. Keys are names if
    none are given.
    """
    images, classes, split = zip(
        *((image, key, part) for part, pairs in rows.items() for image, key in pairs), strict=True
    )
    number = {key: k for k, key in enumerate(keys)}
    strange = sorted({*classes} - {*number})
    if strange:
        raise SpmlError(
            f'{source}: unknown class {listed(map(repr, strange))}; the official list has '
            f'{listed(number)}.'
        )
    labels = np.full((len(images), len(number)), -1, np.int8)
    labels[np.arange(len(images)), [number[key] for key in classes]] = 1
    return Listing([*images], labels, [*(class_names or number)], [*split])


def _by_class(parts, source):
    "A Listing from {part: {class: its images}}, classes sorted."
    different = sorted({*parts['train']} ^ {*parts['test']})
    if different:
        raise SpmlError(
            f'{source}: training and test set have different classes: {listed(different)}.'
        )
    return _single(
        {
            part: [(image, name) for name in sorted(classes) for image in classes[name]]
            for part, classes in parts.items()
        },
        source,
        sorted(parts['train']),
    )


def read_imagenet(folder: Path) -> Listing:
    """Read ImageNet, or any folders of the same form: train/CLASS/*.JPEG and val/CLASS/*.JPEG.

    Args:
        folder: The folder images/.

    Returns:
        What the folders say; classes sorted by name (WordNet numbers), val/ is the test set.

    Raises:
        SpmlError: For other classes in val than in train.

    Source:
        Russakovsky et al. 2015.
    """
    parts = {
        'train': inside(folder, 'train/train', 'train'),
        'test': inside(folder, 'val/val', 'val'),
    }
    return _by_class({part: _class_folders(base, folder) for part, base in parts.items()}, folder)


IMAGENET = register(
    Benchmark(
        'imagenet',
        read_imagenet,
        (Archive('train.tar'), Archive('val.tar')),
        {'train': 1_281_167, 'test': 50_000, 'classes': 1000},
        validation='none',
        version='ILSVRC2012',
        instructions='ImageNet needs an account (image-net.org, ILSVRC2012). Put ILSVRC2012_img_train.tar, '
        'ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz into {images}, have torchvision sort them '
        'into one folder a class: python -c "from torchvision.datasets import ImageNet as I; '
        '[I(r\'{images}\', part) for part in (\'train\', \'val\')]", and give the command again.',
        licence='For non-commercial research and education; cite Russakovsky et al., IJCV 2015.',
    )
)


def read_aircraft(folder: Path) -> Listing:
    """Read FGVC-Aircraft with its 100 variants and the official split.

    Args:
        folder: The folder images/.

    Returns:
        What the official files say.

    Raises:
        SpmlError: For other files.

    Source:
        Maji et al. 2013.
    """
    base = inside(folder, 'fgvc-aircraft/fgvc-aircraft-2013b/data', 'fgvc-aircraft/data')
    below = base.relative_to(folder).as_posix()
    rows = {
        part: [line.strip().split(' ', 1) for line in lines(base / f'images_variant_{part}.txt')]
        for part in ('train', 'val', 'test')
    }
    return _single(
        {
            part: [(f'{below}/images/{words[0]}.jpg', words[-1]) for words in of_part]
            for part, of_part in rows.items()
        },
        base,
        [line.strip() for line in lines(base / 'variants.txt')],
    )


def read_caltech101(folder: Path) -> Listing:
    """Read Caltech-101 with its background class: 30 drawn images of each class train, the rest
    test.

    Args:
        folder: The folder images/. The archive of photos inside the archive is unpacked beside it.

    Returns:
        What the official files say.

    Raises:
        SpmlError: For other files, and for a class of 30 images or fewer.

    Source:
        Fei-Fei et al. 2004; 30 of each class: Kornblith et al. 2019; the draw (RandomState(1200),
        class after class): own choice.
    """
    if not (folder / 'photos').is_dir():
        archive = '101_ObjectCategories.tar.gz'
        fetch.unpack(
            inside(folder, f'caltech-101/caltech-101/{archive}', f'caltech-101/{archive}'),
            folder / 'photos',
        )
    random, parts = np.random.RandomState(1200), {'train': {}, 'test': {}}
    for name, images in _class_folders(
        inside(folder, 'photos/101_ObjectCategories'), folder
    ).items():
        if len(images) <= 30:
            raise SpmlError(
                f'{folder}: class {name!r} has {len(images)} images; more than 30 are needed.'
            )
        drawn = set(random.permutation(len(images))[:30].tolist())
        parts['train'][name] = [image for k, image in enumerate(images) if k in drawn]
        parts['test'][name] = [image for k, image in enumerate(images) if k not in drawn]
    return _by_class(parts, folder)


def read_cars(folder: Path) -> Listing:
    """Read Stanford Cars with its 196 models and the official split.

    Args:
        folder: The folder images/.

    Returns:
        What the official files say.

    Raises:
        SpmlError: For other files.

    Source:
        Krause et al. 2013.
    """
    devkit, rows = inside(folder, 'car_devkit/devkit', 'car_devkit'), {}
    class_names = [
        str(name) for name in read_matlab(devkit / 'cars_meta.mat', 'class_names', squeeze=True)
    ]
    files = {
        'train': devkit / 'cars_train_annos.mat',
        'test': inside(folder, 'annotations/cars_test_annos_withlabels.mat'),
    }
    for part, file in files.items():
        photos = (
            inside(folder, f'cars_{part}/cars_{part}', f'cars_{part}')
            .relative_to(folder)
            .as_posix()
        )
        entries = read_matlab(file, 'annotations', squeeze=True)
        rows[part] = [(f"{photos}/{entry['fname']}", int(entry['class'])) for entry in entries]
    return _single(rows, devkit, range(1, len(class_names) + 1), class_names)


def read_cub_species(folder: Path) -> Listing:
    """Read CUB-200-2011 with its 200 species and the official split.

    Args:
        folder: The folder images/.

    Returns:
        What the official files say.

    Raises:
        SpmlError: For other files.

    Source:
        Wah et al. 2011.
    """
    base = inside(folder, 'archive/CUB_200_2011')
    images, classes, training, names = (
        dict(line.split(' ', 1) for line in lines(base / f'{name}.txt'))
        for name in ('images', 'image_class_labels', 'train_test_split', 'classes')
    )
    below = base.relative_to(folder).as_posix()
    if not images.keys() == classes.keys() == training.keys():
        raise SpmlError(
            f'{base}: images.txt, image_class_labels.txt and train_test_split.txt list different '
            'images.'
        )
    rows = {
        part: [
            (f'{below}/images/{image}', classes[key])
            for key, image in images.items()
            if (training[key] == '1') == (part == 'train')
        ]
        for part in ('train', 'test')
    }
    return _single(rows, base / 'image_class_labels.txt', names, names.values())


def read_dtd(folder: Path) -> Listing:
    """Read Describable Textures with its 47 classes and the first of ten official splits.

    Args:
        folder: The folder images/.

    Returns:
        What the official files say.

    Raises:
        SpmlError: For other files.

    Source:
        Cimpoi et al. 2014.
    """
    base = inside(folder, 'dtd/dtd', 'dtd')
    below = base.relative_to(folder).as_posix()
    rows = {
        part: [
            (f'{below}/images/{image}', image.split('/')[0])
            for image in lines(base / 'labels' / f'{part}1.txt')
        ]
        for part in ('train', 'val', 'test')
    }
    return _single(rows, base, sorted({name for of_part in rows.values() for _, name in of_part}))


def read_flowers(folder: Path) -> Listing:
    """Read Oxford Flowers with its 102 classes and the official split.

    Args:
        folder: The folder images/.

    Returns:
        What the official files say.

    Raises:
        SpmlError: For other files.

    Source:
        Nilsback and Zisserman 2008.
    """
    from torchvision.datasets import (
        Flowers102,
    )  # the official files number the classes, torchvision names them

    below = inside(folder, '102flowers/jpg').relative_to(folder).as_posix()
    classes = read_matlab(folder / 'lists/imagelabels.mat', 'labels', squeeze=True)
    numbers = {
        part: read_matlab(folder / 'lists/setid.mat', word, squeeze=True)
        for part, word in (('train', 'trnid'), ('val', 'valid'), ('test', 'tstid'))
    }
    return _single(
        {
            part: [(f'{below}/image_{k:05}.jpg', int(classes[k - 1])) for k in ids]
            for part, ids in numbers.items()
        },
        folder / 'lists/imagelabels.mat',
        range(1, 103),
        Flowers102.classes,
    )


def read_food101(folder: Path) -> Listing:
    """Read Food-101 with the official split.

    Args:
        folder: The folder images/.

    Returns:
        What the official files say.

    Raises:
        SpmlError: For other files.

    Source:
        Bossard et al. 2014.
    """
    base = inside(folder, 'food-101/food-101', 'food-101')
    below = base.relative_to(folder).as_posix()
    parts = {part: read_json(base / 'meta' / f'{part}.json') for part in ('train', 'test')}
    return _by_class(
        {
            part: {
                name: [f'{below}/images/{image}.jpg' for image in images]
                for name, images in classes.items()
            }
            for part, classes in parts.items()
        },
        base,
    )


def read_pets(folder: Path) -> Listing:
    """Read Oxford-IIIT Pets with its 37 breeds and the official split.

    Args:
        folder: The folder images/.

    Returns:
        What the official files say.

    Raises:
        SpmlError: For other files.

    Source:
        Parkhi et al. 2012.
    """
    notes = inside(folder, 'annotations/annotations', 'annotations')
    photos = inside(folder, 'photos/images').relative_to(folder).as_posix()
    parts = {
        part: [line.split()[:2] for line in lines(notes / f'{name}.txt')]
        for part, name in (('train', 'trainval'), ('test', 'test'))
    }
    breeds = {
        int(number): image.rsplit('_', 1)[0]
        for images in parts.values()
        for image, number in images
    }
    if sorted(breeds) != [*range(1, len(breeds) + 1)]:
        raise SpmlError(
            f'{notes}: breeds are numbered {sorted(breeds)}; expected 1, 2, … without a gap.'
        )
    return _single(
        {
            part: [(f'{photos}/{image}.jpg', int(number)) for image, number in images]
            for part, images in parts.items()
        },
        notes,
        sorted(breeds),
        [breeds[k] for k in sorted(breeds)],
    )


def read_sun(folder: Path) -> Listing:
    """Read SUN397 scenes with the first of ten official splits.

    Args:
        folder: The folder images/.

    Returns:
        What the official files say.

    Raises:
        SpmlError: For other files.

    Source:
        Xiao et al. 2010.
    """
    base, lists = (
        inside(folder, 'SUN397/SUN397', 'SUN397'),
        inside(folder, 'Partitions/Partitions', 'Partitions'),
    )
    names = lists / 'ClassName.txt'
    class_names = [
        line.strip()[3:] for line in lines(names if names.exists() else base / 'ClassName.txt')
    ]
    images = {
        part: [line.strip() for line in lines(lists / f'{word}_01.txt')]
        for part, word in (('train', 'Training'), ('test', 'Testing'))
    }
    below = base.relative_to(folder).as_posix()
    return _single(
        {
            part: [(below + image, image.rsplit('/', 1)[0][3:]) for image in of_part]
            for part, of_part in images.items()
        },
        lists,
        class_names,
    )


_OXFORD = 'https://www.robots.ox.ac.uk/~vgg/data'


def _table8(name, read, train, test, classes, cite, *archives, **more):
    counts = {'train': train, 'test': test, 'classes': classes}
    # these have an official part, which is taken as it is
    validation = 'drawn' if name in ('aircraft', 'dtd', 'flowers') else 'none'
    licence = f'For non-commercial research; cite {cite}.'
    register(
        Benchmark(name, read, archives, counts, validation=validation, licence=licence, **more)
    )


_table8(
    'aircraft',
    read_aircraft,
    6667,
    3333,
    100,
    'Maji et al., arXiv:1306.5151',
    Archive(
        'fgvc-aircraft-2013b.tar.gz',
        (f'{_OXFORD}/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz',),
        'fgvc-aircraft',
        2_750_000_000,
    ),
)
_table8(
    'caltech101',
    read_caltech101,
    3060,
    6084,
    102,
    'Fei-Fei et al., CVPR Workshop 2004',
    Archive(
        'caltech-101.zip',
        ('https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip',),
        'caltech-101',
        137_000_000,
        md5='3138e1922a9193bfa496528edbbc45d0',
    ),
)
_table8(
    'cars',
    read_cars,
    8144,
    8041,
    196,
    'Krause et al., 3dRR 2013',
    Archive('cars_train.tgz'),
    Archive('cars_test.tgz'),
    Archive('car_devkit.tgz'),
    Archive('cars_test_annos_withlabels.mat', folder='annotations'),
    instructions='The server of Stanford Cars is gone. Whoever has its files puts cars_train.tgz, cars_test.tgz, '
    'car_devkit.tgz and cars_test_annos_withlabels.mat into {downloads}.',
)
_table8(
    'cub-species',
    read_cub_species,
    5994,
    5794,
    200,
    'Wah et al., CNS-TR-2011-001',
    CUB_ARCHIVE,
    instructions=CUB_HELP,
)
_table8(
    'dtd',
    read_dtd,
    3760,
    1880,
    47,
    'Cimpoi et al., CVPR 2014',
    Archive(
        'dtd-r1.0.1.tar.gz',
        (f'{_OXFORD}/dtd/download/dtd-r1.0.1.tar.gz',),
        'dtd',
        626_000_000,
        md5='fff73e5086ae6bdbea199a49dfb8a4c1',
    ),
    version='split 1',
)
_table8(
    'flowers',
    read_flowers,
    2040,
    6149,
    102,
    'Nilsback and Zisserman, ICVGIP 2008',
    Archive(
        '102flowers.tgz',
        (f'{_OXFORD}/flowers/102/102flowers.tgz',),
        '102flowers',
        345_000_000,
        md5='52808999861908f626f3c1f4e79d11fa',
    ),
    Archive(
        'imagelabels.mat',
        (f'{_OXFORD}/flowers/102/imagelabels.mat',),
        'lists',
        md5='e0620be6f572b9609742df49c70aed4d',
    ),
    Archive(
        'setid.mat',
        (f'{_OXFORD}/flowers/102/setid.mat',),
        'lists',
        md5='a5357ecc9cb78c4bef273ce3793fc85c',
    ),
)
_table8(
    'food101',
    read_food101,
    75_750,
    25_250,
    101,
    'Bossard et al., ECCV 2014',
    Archive(
        'food-101.tar.gz',
        ('http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz',),
        'food-101',
        5_000_000_000,
        md5='85eeb15f3717b99a5da872d97d918f87',
    ),
)
_table8(
    'pets',
    read_pets,
    3680,
    3669,
    37,
    'Parkhi et al., CVPR 2012',
    Archive(
        'images.tar.gz',
        (f'{_OXFORD}/pets/data/images.tar.gz',),
        'photos',
        792_000_000,
        md5='5c4f3ee8e5d25df40f4fd59a7f44e54c',
    ),
    Archive(
        'annotations.tar.gz',
        (f'{_OXFORD}/pets/data/annotations.tar.gz',),
        'annotations',
        19_000_000,
        md5='95a8c909bbe2e81eed6a22bccdf3f68f',
    ),
)
_table8(
    'sun',
    read_sun,
    19_850,
    19_850,
    397,
    'Xiao et al., CVPR 2010',
    Archive(
        'SUN397.tar.gz',
        ('http://vision.princeton.edu/projects/2010/SUN/SUN397.tar.gz',),
        'SUN397',
        37_000_000_000,
        md5='8ca2778205c41d23104230ba66911c7a',
    ),
    Archive(
        'Partitions.zip',
        ('https://vision.princeton.edu/projects/2010/SUN/download/Partitions.zip',),
        'Partitions',
    ),
    version='split 1',
)
