"""ImageNet folders and the nine sets of Table 8, read as torchvision reads them."""

import numpy as np
import pytest
import torchvision.datasets as theirs
from small_copies import pairs

from spml_nb.base.errors import SpmlError
from spml_nb.data.official.registry import find_benchmark

pytestmark = pytest.mark.filterwarnings(
    'ignore:.*(never used|no training image has it|No positive)'
)


@pytest.mark.parametrize(
    'name',
    [
        'imagenet',
        'aircraft',
        'caltech101',
        'cars',
        'cub-species',
        'dtd',
        'flowers',
        'food101',
        'pets',
        'sun',
    ],
)
def test_from_the_official_files_to_a_dataset(goes_round, name):
    goes_round(name)


def test_imagenet_refuses_folders_that_differ(unpacked):
    folder, _ = unpacked('imagenet')
    (folder / 'val' / 'n99999999').mkdir()
    with pytest.raises(SpmlError, match='n99999999'):
        find_benchmark('imagenet').read(folder)


def test_caltech_trains_on_30_images_of_each_class_drawn_once(unpacked):
    folder, (names, _, _, _) = unpacked('caltech101')
    first, again = (
        find_benchmark('caltech101').read(folder),
        find_benchmark('caltech101').read(folder),
    )
    assert first.images == again.images and len(set(first.images)) == 64
    for k in range(2):
        assert (first.labels[:60, k] > 0).sum() == 30
    order = np.random.RandomState(1200).permutation(32)
    assert [int(name[-8:-4]) - 1 for name in first.images[:30]] == sorted(order[:30])
    for file in [*(folder / 'photos/101_ObjectCategories/Faces_easy').iterdir()][:2]:
        file.unlink()
    with pytest.raises(SpmlError, match="'Faces_easy' has 30 images"):
        find_benchmark('caltech101').read(folder)


def ours_and_theirs(images, labels):
    return {
        str(image).replace('\\', '/').rsplit('/', 1)[1]: int(label)
        for image, label in zip(images, labels, strict=True)
    }


@pytest.mark.parametrize(
    'name, kind, place, parts',
    [
        (
            'aircraft',
            theirs.FGVCAircraft,
            {'fgvc-aircraft-2013b': 'fgvc-aircraft/fgvc-aircraft-2013b'},
            {'train': 'train', 'val': 'val', 'test': 'test'},
        ),
        (
            'dtd',
            theirs.DTD,
            {'dtd/dtd': 'dtd/dtd'},
            {'train': 'train', 'val': 'val', 'test': 'test'},
        ),
        (
            'flowers',
            theirs.Flowers102,
            {
                'flowers-102/jpg': '102flowers/jpg',
                'flowers-102/setid.mat': 'lists/setid.mat',
                'flowers-102/imagelabels.mat': 'lists/imagelabels.mat',
            },
            {'train': 'train', 'val': 'val', 'test': 'test'},
        ),
        (
            'food101',
            theirs.Food101,
            {'food-101': 'food-101/food-101'},
            {'train': 'train', 'test': 'test'},
        ),
        (
            'pets',
            theirs.OxfordIIITPet,
            {
                'oxford-iiit-pet/images': 'photos/images',
                'oxford-iiit-pet/annotations': 'annotations/annotations',
            },
            {'train': 'trainval', 'test': 'test'},
        ),
        (
            'cars',
            theirs.StanfordCars,
            {
                'stanford_cars/devkit': 'car_devkit/devkit',
                'stanford_cars/cars_train': 'cars_train/cars_train',
                'stanford_cars/cars_test': 'cars_test/cars_test',
                'stanford_cars/cars_test_annos_withlabels.mat': (
                    'annotations/cars_test_annos_withlabels.mat'
                ),
            },
            {'train': 'train', 'test': 'test'},
        ),
    ],
)
def test_torchvision_reads_the_same(unpacked, tmp_path, monkeypatch, name, kind, place, parts):
    folder, (class_names, _, _, _) = unpacked(name)
    listing = find_benchmark(name).read(folder)
    for link, target in place.items():
        (tmp_path / 'theirs' / link).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / 'theirs' / link).symlink_to(folder / target)
    if name == 'flowers':
        monkeypatch.setattr(
            kind, '_check_integrity', lambda self: True
        )  # it insists on the official bytes
    for ours, word in parts.items():
        data = kind(tmp_path / 'theirs', split=word)
        images, labels = (
            zip(*data._samples, strict=True)
            if name == 'cars'
            else (data._images if name == 'pets' else data._image_files, data._labels)
        )
        assert ours_and_theirs(images, labels) == pairs(listing, ours)
    if name == 'cars':
        assert data.classes == class_names


@pytest.mark.parametrize(
    'name, file, old, new, told',
    [
        ('aircraft', 'images_variant_test.txt', 'A300B4', 'A300B5', 'A300B5'),
        ('sun', 'Testing_01.txt', 'zen_garden', 'zen_gardens', 'zen_gardens'),
        ('cub-species', 'image_class_labels.txt', '3 1', '3 7', "'7'"),
        ('food101', 'test.json', 'waffles', 'wafers', 'different classes'),
        ('pets', 'trainval.txt', ' 2 1 1', ' 9 1 1', 'numbered'),
        ('flowers', 'setid.mat', '', None, 'setid.mat'),
    ],
)
def test_official_files_that_contradict_each_other_are_refused(
    unpacked, name, file, old, new, told
):
    folder, _ = unpacked(name)
    file = next(folder.rglob(file))
    if new is None:
        file.write_bytes(b'no matlab')
    else:
        if name == 'food101':
            file.write_text(file.read_text().replace('"waffles":', '"wafers":'))
        else:
            file.write_text(file.read_text().replace(old, new))
    with pytest.raises(SpmlError, match=told):
        find_benchmark(name).read(folder)
