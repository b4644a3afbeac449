"""Single-label sets, to which Two-way transfers frozen features."""

# Torchvision reads the sets that it can read in the layout of their archives: ImageNet and
# Caltech-101 (class folders), Aircraft, DTD and Food-101. For others it expects a layout that joins
# archives (Cars, Pets), verifies the official bytes (Flowers), or has no official split (SUN).

from dataclasses import replace
from pathlib import Path

import numpy as np

from ...base.errors import SpmlError
from .. import fetch
from ..dataset import join_items
from ..folder import Listing
from .files import find_in_benchmark, find_nested, read_listing_lines, read_matlab, reading


def _torchvision():
    "torchvision.datasets; importing it takes seconds, which `spml data` does not need."
    from torchvision import datasets

    return datasets


def _single(rows, source, keys, class_names=None):
    """Make a Listing with one positive per image.

    Args:
        rows: {part: [(image, key of its class)]}.
        source: The file with the keys, for the message.
        keys: Keys of the classes, in order.
        class_names: By default the keys.
    """
    images, classes, split = [], [], []
    for part, pairs in rows.items():
        for image, key in pairs:
            images.append(image)
            classes.append(key)
            split.append(part)
    number = {key: k for k, key in enumerate(keys)}
    unknown = sorted(set(classes) - set(number))
    if unknown:
        raise SpmlError(
            f'{source}: unknown class {join_items(map(repr, unknown))}; the official list has '
            f'{join_items(number)}.'
        )
    labels = np.full((len(images), len(number)), -1, np.int8)
    labels[np.arange(len(images)), [number[key] for key in classes]] = 1
    return Listing(images, labels, list(class_names or number), split)


def _same_classes(parts, source):
    "Return the classes if all parts of {part: classes} have the same ones."
    train, *others = parts.values()
    for other in others:
        if different := sorted(set(train) ^ set(other)):
            raise SpmlError(
                f'{source}: training and test set have different classes: {join_items(different)}.'
            )
    return train


def _class_folders(root, folder):
    "{class: images, as paths below `folder`} of a folder with one folder per class, sorted."
    with reading(root, ' as one folder per class'):
        data = _torchvision().ImageFolder(root)
    images = {name: [] for name in data.classes}
    for file, label in data.samples:
        images[data.classes[label]].append(Path(file).relative_to(folder).as_posix())
    return images


def _by_class(parts, source):
    "Make a Listing from {part: {class: images}}."
    class_names = _same_classes(parts, source)
    rows = {
        part: [(image, name) for name in class_names for image in images[name]]
        for part, images in parts.items()
    }
    return _single(rows, source, class_names)


def _of_torchvision(kind, root, folder, parts):
    "Make a Listing from a torchvision data set, which has files and labels in private lists."
    rows, classes = {}, {}
    for part in parts:
        with reading(root):
            data = kind(root, split=part)
        images = [Path(file).relative_to(folder).as_posix() for file in data._image_files]
        rows[part] = list(zip(images, data._labels, strict=True))
        classes[part] = data.classes
    class_names = _same_classes(classes, root)
    return _single(rows, root, range(len(class_names)), class_names)


def _read_imagenet(folder: Path) -> Listing:
    """Read ImageNet, or other folders of the form train/CLASS/*.JPEG and val/CLASS/*.JPEG.

    Classes are sorted by name (WordNet numbers); val/ is the test set.

    Raises:
        SpmlError: If train and val have different classes.

    Source:
        Russakovsky et al. 2015.
    """
    parts = {'train': find_nested(folder, 'train'), 'test': find_nested(folder, 'val')}
    return _by_class({part: _class_folders(root, folder) for part, root in parts.items()}, folder)


def _read_aircraft(folder: Path) -> Listing:
    """Read FGVC-Aircraft with its 100 variants and the official split.

    Source:
        Maji et al. 2013.
    """
    root = find_in_benchmark(folder, 'fgvc-aircraft/fgvc-aircraft-2013b').parent
    return _of_torchvision(_torchvision().FGVCAircraft, root, folder, ('train', 'val', 'test'))


def _read_caltech101(folder: Path) -> Listing:
    """Read Caltech-101 with its background class: 30 random images per class train, others test.

    Unpacks the archive that is inside the archive.

    Raises:
        SpmlError: For another layout, or a class of 30 images or fewer.

    Source:
        Fei-Fei et al. 2004; 30 images per class: Kornblith et al. 2019; the draw (RandomState(1200)
        for all classes in turn): own choice.
    """
    if not (folder / 'photos').is_dir():
        name = '101_ObjectCategories.tar.gz'
        archive = find_in_benchmark(
            folder, f'caltech-101/caltech-101/{name}', f'caltech-101/{name}'
        )
        fetch.unpack_archive(archive, folder / 'photos')
    random = np.random.RandomState(1200)
    train, test = {}, {}
    classes = _class_folders(find_in_benchmark(folder, 'photos/101_ObjectCategories'), folder)
    for name, images in classes.items():
        if len(images) <= 30:
            raise SpmlError(
                f'{folder}: class {name!r} has {len(images)} images; more than 30 are needed.'
            )
        drawn = set(random.permutation(len(images))[:30].tolist())
        train[name] = [image for k, image in enumerate(images) if k in drawn]
        test[name] = [image for k, image in enumerate(images) if k not in drawn]
    return _by_class({'train': train, 'test': test}, folder)


def _read_cars(folder: Path) -> Listing:
    """Read Stanford Cars with its 196 models and the official split.

    Source:
        Krause et al. 2013.
    """
    devkit = find_in_benchmark(folder, 'car_devkit/devkit', 'car_devkit')
    class_names = read_matlab(devkit / 'cars_meta.mat', 'class_names', squeeze=True)
    files = {
        'train': devkit / 'cars_train_annos.mat',
        'test': find_in_benchmark(folder, 'annotations/cars_test_annos_withlabels.mat'),
    }
    rows = {}
    for part, file in files.items():
        photos = find_nested(folder, f'cars_{part}').relative_to(folder).as_posix()
        entries = read_matlab(file, 'annotations', squeeze=True)
        rows[part] = [(f'{photos}/{entry["fname"]}', int(entry['class'])) for entry in entries]
    return _single(rows, devkit, range(1, len(class_names) + 1), [str(n) for n in class_names])


def _read_cub_species(folder: Path) -> Listing:
    """Read CUB-200-2011 with its 200 species and the official split.

    Source:
        Wah et al. 2011.
    """
    base = find_in_benchmark(folder, 'archive/CUB_200_2011')
    images, classes, training, names = (
        dict(line.split(' ', 1) for line in read_listing_lines(base / f'{name}.txt'))
        for name in ('images', 'image_class_labels', 'train_test_split', 'classes')
    )
    if not images.keys() == classes.keys() == training.keys():
        raise SpmlError(
            f'{base}: images.txt, image_class_labels.txt and train_test_split.txt list different '
            'images.'
        )
    below = base.relative_to(folder).as_posix()
    rows = {'train': [], 'test': []}
    for key, image in images.items():
        part = 'train' if training[key] == '1' else 'test'
        rows[part].append((f'{below}/images/{image}', classes[key]))
    return _single(rows, base / 'image_class_labels.txt', names, names.values())


def _read_dtd(folder: Path) -> Listing:
    """Read Describable Textures with its 47 classes and the first of ten official splits.

    Source:
        Cimpoi et al. 2014.
    """
    find_in_benchmark(folder, 'dtd/dtd')
    return _of_torchvision(_torchvision().DTD, folder, folder, ('train', 'val', 'test'))


def _read_flowers(folder: Path) -> Listing:
    """Read Oxford Flowers with its 102 classes and the official split.

    The official files number the classes, torchvision names them.

    Source:
        Nilsback and Zisserman 2008.
    """
    photos = find_in_benchmark(folder, '102flowers/jpg').relative_to(folder).as_posix()
    classes = read_matlab(folder / 'lists/imagelabels.mat', 'labels', squeeze=True)
    rows = {}
    for part, key in (('train', 'trnid'), ('val', 'valid'), ('test', 'tstid')):
        numbers = read_matlab(folder / 'lists/setid.mat', key, squeeze=True)
        rows[part] = [(f'{photos}/image_{k:05}.jpg', int(classes[k - 1])) for k in numbers]
    source = folder / 'lists/imagelabels.mat'
    return _single(rows, source, range(1, 103), _torchvision().Flowers102.classes)


def _read_food101(folder: Path) -> Listing:
    """Read Food-101 with the official split, the classes of each part sorted.

    Source:
        Bossard et al. 2014.
    """
    root = find_nested(folder, 'food-101').parent
    listing = _of_torchvision(_torchvision().Food101, root, folder, ('train', 'test'))
    # torchvision keeps the order of the official files, which are not sorted by class
    is_test = np.array(listing.split) == 'test'
    order = np.lexsort((listing.labels.argmax(1), is_test))
    images = [listing.images[row] for row in order]
    return replace(listing, images=images, labels=listing.labels[order])


def _read_pets(folder: Path) -> Listing:
    """Read Oxford-IIIT Pets with its 37 breeds and the official split.

    Source:
        Parkhi et al. 2012.
    """
    notes = find_nested(folder, 'annotations')
    photos = find_in_benchmark(folder, 'photos/images').relative_to(folder).as_posix()
    breeds, rows = {}, {}
    for part, name in (('train', 'trainval'), ('test', 'test')):
        rows[part] = []
        for line in read_listing_lines(notes / f'{name}.txt'):
            image, number = line.split()[:2]
            breeds[int(number)] = image.rsplit('_', 1)[0]
            rows[part].append((f'{photos}/{image}.jpg', int(number)))
    numbers = sorted(breeds)
    if numbers != list(range(1, len(breeds) + 1)):
        raise SpmlError(f'{notes}: breeds are numbered {numbers}; expected 1, 2, … without a gap.')
    return _single(rows, notes, numbers, [breeds[k] for k in numbers])


def _read_sun(folder: Path) -> Listing:
    """Read SUN397 scenes with the first of ten official splits.

    Source:
        Xiao et al. 2010.
    """
    base = find_nested(folder, 'SUN397')
    lists = find_nested(folder, 'Partitions')
    names = lists / 'ClassName.txt'
    if not names.exists():
        names = base / 'ClassName.txt'
    # a line such as /a/abbey: the first letter, and the class, which may contain a /
    class_names = [line.strip()[3:] for line in read_listing_lines(names)]
    below = base.relative_to(folder).as_posix()
    rows = {}
    for part, word in (('train', 'Training'), ('test', 'Testing')):
        images = [line.strip() for line in read_listing_lines(lists / f'{word}_01.txt')]
        rows[part] = [(below + image, image.rsplit('/', 1)[0][3:]) for image in images]
    return _single(rows, lists, class_names)


READERS = {
    'imagenet': _read_imagenet,
    'aircraft': _read_aircraft,
    'caltech101': _read_caltech101,
    'cars': _read_cars,
    'cub-species': _read_cub_species,
    'dtd': _read_dtd,
    'flowers': _read_flowers,
    'food101': _read_food101,
    'pets': _read_pets,
    'sun': _read_sun,
}
