"""Real photos that anyone can fetch without a form: parts of VOC, COCO, CUB, and smaller sets."""

import re
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from ...base.errors import SpmlError
from ..dataset import join_items
from ..folder import Listing, label_matrix
from .cub import read_cub
from .registry import find_in_benchmark, read_listing_lines, read_matlab, read_with_remedy, register

_SHIPPED = files('spml_nb') / 'assets' / 'voc12_animals.csv.xz'


def _unchanged(photos):
    "Originals of which the whole photo is kept."
    return [(photo, None) for photo in photos]


def read_voc12_animals(folder: Path) -> Listing:
    """Read the photos of VOC 2012 that are in Animal-Pose, with the labels and parts shipped here.

    Source:
        Everingham et al. 2012; Cao et al., ICCV 2019; labels: Ahn et al., CVPR 2019, equal to the
        official ones of val.
    """
    photos = find_in_benchmark(folder, 'trainval/VOCdevkit/VOC2012/JPEGImages')
    table = pd.read_csv(_SHIPPED, dtype=str)
    labels, names = label_matrix(table.labels.str.split('|'))
    originals = _unchanged(photos / image for image in table.image)
    return Listing(table.image.tolist(), labels, names, table.split.tolist(), originals)


CUB_SPECIES = frozenset(
    """
Black_Footed_Albatross Groove_Billed_Ani Parakeet_Auklet Red_Winged_Blackbird
Yellow_Headed_Blackbird Bobolink Indigo_Bunting Lazuli_Bunting Painted_Bunting Spotted_Catbird
Gray_Catbird Chuck_Will_Widow Red_Faced_Cormorant Bronzed_Cowbird Brown_Creeper
Gray_Crowned_Rosy_Finch Purple_Finch Scissor_Tailed_Flycatcher Vermilion_Flycatcher Gadwall
American_Goldfinch European_Goldfinch Eared_Grebe Horned_Grebe Pied_Billed_Grebe Western_Grebe
Blue_Grosbeak Evening_Grosbeak Pine_Grosbeak Rose_Breasted_Grosbeak Pigeon_Guillemot
Glaucous_Winged_Gull Heermann_Gull Ivory_Gull Anna_Hummingbird Ruby_Throated_Hummingbird
Rufous_Hummingbird Green_Violetear Blue_Jay Green_Jay Tropical_Kingbird Belted_Kingfisher
Green_Kingfisher Pied_Kingfisher White_Breasted_Kingfisher Horned_Lark Pacific_Loon Mallard
Western_Meadowlark Hooded_Merganser Red_Breasted_Merganser Clark_Nutcracker White_Breasted_Nuthatch
Baltimore_Oriole Hooded_Oriole Orchard_Oriole Scott_Oriole Brown_Pelican White_Pelican
Whip_Poor_Will Horned_Puffin American_Redstart Geococcyx Black_Throated_Sparrow Fox_Sparrow
Henslow_Sparrow Le_Conte_Sparrow White_Crowned_Sparrow Cape_Glossy_Starling Barn_Swallow
Tree_Swallow Scarlet_Tanager Summer_Tanager Black_Capped_Vireo Blue_Headed_Vireo
Bay_Breasted_Warbler Black_And_White_Warbler Cape_May_Warbler Cerulean_Warbler
Chestnut_Sided_Warbler Golden_Winged_Warbler Magnolia_Warbler Mourning_Warbler Nashville_Warbler
Prairie_Warbler Wilson_Warbler Worm_Eating_Warbler Louisiana_Waterthrush Bohemian_Waxwing
Cedar_Waxwing American_Three_Toed_Woodpecker Pileated_Woodpecker Red_Bellied_Woodpecker
Red_Cockaded_Woodpecker Red_Headed_Woodpecker Downy_Woodpecker Cactus_Wren Carolina_Wren Rock_Wren
Common_Yellowthroat
""".split()
)


def read_cub_crops(folder: Path) -> Listing:
    """Read the official test photos of 100 species of CUB with their 312 attributes and boxes.

    Source:
        Wah et al. 2011.
    """
    every = read_cub(folder)
    base = find_in_benchmark(folder, 'archive/CUB_200_2011')
    file = find_in_benchmark(base, 'bounding_boxes.txt')
    numbers = {
        image: number for number, image in map(str.split, read_listing_lines(base / 'images.txt'))
    }
    boxes = {number: cells for number, *cells in map(str.split, read_listing_lines(file))}
    images = [image.removeprefix('archive/CUB_200_2011/images/') for image in every.images]
    rows = [
        row
        for row, image in enumerate(images)
        if every.split[row] == 'test'
        and re.sub(r'_\d+_\d+\.jpg$', '', Path(image).name) in CUB_SPECIES
    ]

    def box(image):
        left, top, width, height = map(float, boxes[numbers[image]])
        return left, top, left + width, top + height

    originals = [
        (base / 'images' / images[row], read_with_remedy(file, lambda row=row: box(images[row])))
        for row in rows
    ]
    order = np.argsort(every.class_names)  # as in a table that names the labels of each photo
    return Listing(
        [Path(images[row]).name for row in rows],
        every.labels[np.ix_(rows, order)],
        [every.class_names[c] for c in order],
        originals=originals,
    )


def _repository(folder):
    "The one folder in an archive of GitHub, which is named after the branch or commit."
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


def read_coco18(folder: Path, count: int | None = 6000) -> Listing:
    """Read photos of COCO with 18 categories.

    Args:
        folder: of the unpacked archive.
        count: how many, by their numbers; None: all 30,000 that have labels.

    Source:
        Lin et al. 2014, as in the repository Mike0429/COMP5329DeepLearningA2_ViT.
    """
    base = _repository(folder)
    file = find_in_benchmark(base, 'train.csv', 'data/train.csv')
    photos = find_in_benchmark(base, 'data')
    text = read_with_remedy(file, lambda: file.read_text(encoding='utf-8'))
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


def read_mirflickr14(folder: Path, count: int | None = 6000) -> Listing:
    """Read photos of MIRFlickr-25k with 14 labels.

    Args:
        folder: of the unpacked archives.
        count: how many, by their numbers; None: all 10,176 that have a label and are there.

    Source:
        Huiskes and Lew 2008, as in the repository VilleAR/dlproject.
    """
    photos = find_in_benchmark(_repository(folder), 'images')
    labels = {}
    for name in MIRFLICKR14_NAMES:
        file = find_in_benchmark(folder, f'annotations/{name}.txt')
        for photo in read_with_remedy(
            file, lambda file=file: {int(line) for line in read_listing_lines(file)}
        ):
            labels.setdefault(photo, []).append(name)
    numbers = sorted(labels)[:count]
    images = [f'im{photo:05}.jpg' for photo in numbers]
    return Listing(
        images,
        *label_matrix([labels[photo] for photo in numbers]),
        originals=_unchanged(photos / f'im{photo}.jpg' for photo in numbers),
    )


def _corel_part(file, vocabulary):
    "(number of the photo, its words) of each line."

    def parse(line):
        photo, *numbers = line.split()
        words = {vocabulary[int(number) - 1] for number in numbers if number != '0'}
        return int(Path(photo).stem), words

    return read_with_remedy(file, lambda: [parse(line) for line in read_listing_lines(file)])


def read_corel5k(folder: Path) -> Listing:
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


def read_corel5k_themes(folder: Path) -> Listing:
    """Read Corel5k with the CD that a photo comes from as its one class.

    Source:
        Duygulu et al. 2002: a hundred photos from each of fifty CDs, each CD with one theme.
    """
    listing = read_corel5k(folder)
    themes = [[f'CD {int(Path(image).stem) // 1000:03}'] for image in listing.images]
    labels, names = label_matrix(themes)
    return replace(listing, labels=labels, class_names=names)


def _ccp_labels(base, photo, count):
    "Numbers of the labels of a photo, 0 left out."
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


def read_ccp(folder: Path) -> Listing:
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


register('voc12_animals', read_voc12_animals)
register('cub_crops', read_cub_crops)
register('coco18', read_coco18)
register('mirflickr14', read_mirflickr14)
register('coco18_30k', partial(read_coco18, count=None))
register('mirflickr14_10k', partial(read_mirflickr14, count=None))
register('corel5k', read_corel5k)
register('corel5k_themes', read_corel5k_themes)
register('ccp', read_ccp)
