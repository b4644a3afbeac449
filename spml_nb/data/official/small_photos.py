"""Real photos that anyone can fetch without a form: parts of VOC, COCO and CUB, and smaller sets."""

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from spml_nb.data.official.registry import (
    Archive,
    Benchmark,
    inside,
    lines,
    read_matlab,
    reading,
    register,
)

from ...base.errors import SpmlError
from ..dataset import listed
from ..folder import Listing, label_matrix
from .cub import CUB, CUB_ARCHIVE, CUB_HELP, read_cub
from .shrink import Small
from .voc import VOC12, VOC_TERMS

_SHIPPED = files('spml_nb') / 'assets' / 'voc12_animals.csv.xz'


def read_voc12_animals(folder: Path) -> Listing:
    """Read the photos of VOC 2012 that are in Animal-Pose, with the labels and parts shipped here.

    Args:
        folder: The folder originals/.

    Returns:
        The shipped table, with the photos of the official archive.

    Raises:
        SpmlError: For another archive.

    Source:
        Everingham et al. 2012; Cao et al., ICCV 2019; labels: Ahn et al., CVPR 2019, equal to the
        official ones of val.
    """
    photos = inside(folder, 'trainval/VOCdevkit/VOC2012/JPEGImages')
    table = pd.read_csv(_SHIPPED, dtype=str)
    return Listing(
        table.image.tolist(),
        *label_matrix(table.labels.str.split('|')),
        table.split.tolist(),
        [(photos / image, None) for image in table.image],
    )


VOC12_ANIMALS = register(
    Benchmark(
        'voc12_animals',
        read_voc12_animals,
        VOC12.archives,
        {'train': 1864, 'test': 1729, 'classes': 19},
        licence=VOC_TERMS,
        small=Small(192),
        digest='35893ddc437cb94be722884259d8203b62aa06fa7a743c3475052bfb3719ed23',
    )
)


CUB_SPECIES = frozenset(
    """
Black_Footed_Albatross Groove_Billed_Ani Parakeet_Auklet Red_Winged_Blackbird Yellow_Headed_Blackbird Bobolink
Indigo_Bunting Lazuli_Bunting Painted_Bunting Spotted_Catbird Gray_Catbird Chuck_Will_Widow Red_Faced_Cormorant
Bronzed_Cowbird Brown_Creeper Gray_Crowned_Rosy_Finch Purple_Finch Scissor_Tailed_Flycatcher Vermilion_Flycatcher
Gadwall American_Goldfinch European_Goldfinch Eared_Grebe Horned_Grebe Pied_Billed_Grebe Western_Grebe Blue_Grosbeak
Evening_Grosbeak Pine_Grosbeak Rose_Breasted_Grosbeak Pigeon_Guillemot Glaucous_Winged_Gull Heermann_Gull Ivory_Gull
Anna_Hummingbird Ruby_Throated_Hummingbird Rufous_Hummingbird Green_Violetear Blue_Jay Green_Jay Tropical_Kingbird
Belted_Kingfisher Green_Kingfisher Pied_Kingfisher White_Breasted_Kingfisher Horned_Lark Pacific_Loon Mallard
Western_Meadowlark Hooded_Merganser Red_Breasted_Merganser Clark_Nutcracker White_Breasted_Nuthatch Baltimore_Oriole
Hooded_Oriole Orchard_Oriole Scott_Oriole Brown_Pelican White_Pelican Whip_Poor_Will Horned_Puffin American_Redstart
Geococcyx Black_Throated_Sparrow Fox_Sparrow Henslow_Sparrow Le_Conte_Sparrow White_Crowned_Sparrow
Cape_Glossy_Starling Barn_Swallow Tree_Swallow Scarlet_Tanager Summer_Tanager Black_Capped_Vireo Blue_Headed_Vireo
Bay_Breasted_Warbler Black_And_White_Warbler Cape_May_Warbler Cerulean_Warbler Chestnut_Sided_Warbler
Golden_Winged_Warbler Magnolia_Warbler Mourning_Warbler Nashville_Warbler Prairie_Warbler Wilson_Warbler
Worm_Eating_Warbler Louisiana_Waterthrush Bohemian_Waxwing Cedar_Waxwing American_Three_Toed_Woodpecker
Pileated_Woodpecker Red_Bellied_Woodpecker Red_Cockaded_Woodpecker Red_Headed_Woodpecker Downy_Woodpecker Cactus_Wren
Carolina_Wren Rock_Wren Common_Yellowthroat""".split()
)


def read_cub_crops(folder: Path) -> Listing:
    """Read the official test photos of 100 species of CUB with their 312 attributes and boxes.

    Args:
        folder: The folder originals/.

    Returns:
        What the official files say, without a split.

    Raises:
        SpmlError: For other files.

    Source:
        Wah et al. 2011.
    """
    whole, base = read_cub(folder), inside(folder, 'archive/CUB_200_2011')
    file, numbers = (
        inside(base, 'bounding_boxes.txt'),
        dict(line.split()[::-1] for line in lines(base / 'images.txt')),
    )
    boxes = {row[0]: [float(cell) for cell in row[1:]] for row in map(str.split, lines(file))}
    images = [image.removeprefix('archive/CUB_200_2011/images/') for image in whole.images]
    rows = [
        row
        for row, image in enumerate(images)
        if whole.split[row] == 'test'
        and re.sub(r'_\d+_\d+\.jpg$', '', Path(image).name) in CUB_SPECIES
    ]

    def box(image):
        left, top, width, height = reading(file, lambda: boxes[numbers[image]])
        return left, top, left + width, top + height

    order = np.argsort(whole.class_names)  # as in a table that names the labels of each photo
    return Listing(
        [Path(images[row]).name for row in rows],
        whole.labels[np.ix_(rows, order)],
        [whole.class_names[c] for c in order],
        None,
        [(base / 'images' / images[row], box(images[row])) for row in rows],
    )


CUB_CROPS = register(
    Benchmark(
        'cub_crops',
        read_cub_crops,
        (CUB_ARCHIVE,),
        {'images': 2903, 'classes': 312},
        instructions=CUB_HELP,
        licence=CUB.licence,
        small=Small(192, square=True),
        digest='16c7aab5206f36a7254ee5925c87249bf4a17b89448291d85befcde3dc12b5b7',
    )
)


def _commit(owner, repository, commit):
    "The archive of a commit on GitHub, and the folder that it becomes."
    address = f'{owner}/{repository}'
    archive = Archive(
        f'{repository}-{commit[:7]}.zip',
        (
            f'https://github.com/{address}/archive/{commit}.zip',
            f'https://codeload.github.com/{address}/zip/{commit}',
        ),
        'repository',
    )
    return archive, f'repository/{repository}-{commit}'


_HELP = (
    'Where the repository is gone, put a zip of it at that commit, under the same name, into {downloads}: its '
    'content is verified.'
)

COCO18_NAMES = {
    '1': 'person',
    '2': 'bicycle',
    '3': 'car',
    '4': 'motorcycle',
    '5': 'airplane',
    '6': 'bus',
    '7': 'train',
    '8': 'truck',
    '9': 'boat',
    '10': 'traffic light',
    '11': 'fire hydrant',
    '13': 'stop sign',
    '14': 'parking meter',
    '15': 'bench',
    '16': 'bird',
    '17': 'cat',
    '18': 'dog',
    '19': 'horse',
}
_COCO18, _COCO18_FOLDER = _commit(
    'Mike0429', 'COMP5329DeepLearningA2_ViT', 'cb8e6b3877b8c2bc4f8b291964b34b8cda375ba7'
)


def read_coco18(folder: Path) -> Listing:
    """Read the first 6,000 of 30,000 photos of COCO with 18 categories.

    Args:
        folder: The folder originals/.

    Returns:
        What the repository says, without a split.

    Raises:
        SpmlError: For other files.

    Source:
        Lin et al. 2014, as in the repository Mike0429/COMP5329DeepLearningA2_ViT.
    """
    base = inside(folder, _COCO18_FOLDER)
    file, photos = inside(base, 'train.csv', 'data/train.csv'), inside(base, 'data')
    text = reading(file, lambda: file.read_text(encoding='utf-8'))
    rows = sorted(
        (int(photo), numbers.split())
        for photo, numbers in re.findall(r'^(\d+)\.jpg,([\d ]+),', text, re.MULTILINE)
    )[:6000]
    words = [
        [COCO18_NAMES.get(number, f'category {number}') for number in numbers]
        for _, numbers in rows
    ]
    return Listing(
        [f'{photo:05}.jpg' for photo, _ in rows],
        *label_matrix(words),
        None,
        [(photos / f'{photo}.jpg', None) for photo, _ in rows],
    )


COCO18 = register(
    Benchmark(
        'coco18',
        read_coco18,
        (_COCO18,),
        {'images': 6000, 'classes': 18},
        instructions=_HELP,
        small=Small(192),
        licence=(
            'Annotations CC BY 4.0, photos under their Flickr licences, the repository states '
            'none; cite Lin et al., Microsoft COCO, ECCV 2014.'
        ),
        digest='c5dad9c1a7f713c08ee41a6e9223bf022bf2794a90a85ec70e04e423ae1326b0',
    )
)


MIRFLICKR14_NAMES = (
    'baby',
    'bird',
    'car',
    'clouds',
    'dog',
    'female',
    'flower',
    'male',
    'night',
    'people',
    'portrait',
    'river',
    'sea',
    'tree',
)
_MIRFLICKR, _MIRFLICKR_FOLDER = _commit(
    'VilleAR', 'dlproject', '926cbca6a1808b90782553eeebc394ba59ee4a5a'
)
_MIRFLICKR_LABELS = (
    'https://raw.githubusercontent.com/VilleAR/dlproject/c9dfa691d72884d85a1333180e057559880f63fc'
)


def read_mirflickr14(folder: Path) -> Listing:
    """Read the first 6,000 labelled photos of MIRFlickr-25k with 14 labels.

    Args:
        folder: The folder originals/.

    Returns:
        What the repository says, without a split.

    Raises:
        SpmlError: For other files.

    Source:
        Huiskes and Lew 2008, as in the repository VilleAR/dlproject.
    """
    photos, words = inside(folder, f'{_MIRFLICKR_FOLDER}/images'), {}
    for name in MIRFLICKR14_NAMES:
        file = inside(folder, f'annotations/{name}.txt')
        for photo in reading(file, lambda file=file: {*map(int, lines(file))}):
            words.setdefault(photo, []).append(name)
    numbers = sorted(words)[:6000]
    return Listing(
        [f'im{photo:05}.jpg' for photo in numbers],
        *label_matrix([words[photo] for photo in numbers]),
        None,
        [(photos / f'im{photo}.jpg', None) for photo in numbers],
    )


MIRFLICKR14 = register(
    Benchmark(
        'mirflickr14',
        read_mirflickr14,
        (
            _MIRFLICKR,
            *(
                Archive(
                    f'{name}.txt', (f'{_MIRFLICKR_LABELS}/annotations/{name}.txt',), 'annotations'
                )
                for name in MIRFLICKR14_NAMES
            ),
        ),
        {'images': 6000, 'classes': 14},
        instructions=_HELP,
        small=Small(128, square=True),
        licence=(
            'Photos under the Creative Commons licences of their authors; cite Huiskes and Lew, '
            'The MIR Flickr Retrieval Evaluation, MIR 2008.'
        ),
        digest='2d732e3024c6f488350b2f97f10eec74e1f4038fedea62cc5ee989011105db0a',
    )
)


_COREL5K, _COREL5K_FOLDER = _commit('lza2293', 'Dian', '296a17d2055bd2a829814312d802bebe14e97dae')


def _corel_part(file, vocabulary):
    "(number of the photo, its words) of each line."

    def parse(line):
        photo, *numbers = line.split()
        return int(Path(photo).stem), {
            vocabulary[int(number) - 1] for number in numbers if number != '0'
        }

    return reading(file, lambda: [parse(line) for line in lines(file)])


def read_corel5k(folder: Path) -> Listing:
    """Read Corel5k with the words that occur in both official parts.

    Args:
        folder: The folder originals/.

    Returns:
        What the repository says.

    Raises:
        SpmlError: For other files.

    Source:
        Duygulu et al. 2002, as in the repository lza2293/Dian.
    """
    base, joined = inside(folder, _COREL5K_FOLDER), {}
    vocabulary = lines(inside(base, 'labels/words'))
    parts = {
        part: _corel_part(inside(base, f'labels/{file}'), vocabulary)
        for part, file in (('train', 'training_label'), ('test', 'test_label'))
    }
    common = set.intersection(
        *(set().union(*(words for _, words in rows)) for rows in parts.values())
    )
    for part, rows in parts.items():
        for photo, words in rows:
            joined.setdefault(photo, (part, set()))[1].update(words & common)
    photos = {
        int(file.stem): file
        for file in inside(base, 'images').rglob('*.jp*g')
        if file.stem.isdigit()
    }
    return Listing(
        [f'{photo:06}.jpg' for photo in joined],
        *label_matrix([words for _, words in joined.values()]),
        [part for part, _ in joined.values()],
        [(photos.get(photo, base / 'images' / f'{photo}.jpeg'), None) for photo in joined],
    )


COREL5K = register(
    Benchmark(
        'corel5k',
        read_corel5k,
        (_COREL5K,),
        {'train': 4500, 'test': 499, 'classes': 260},
        instructions=_HELP,
        licence=(
            'Non-commercial research; cite Duygulu et al., Object Recognition as Machine '
            'Translation, ECCV 2002.'
        ),
        small=Small(128),
        digest='fbc294dcfb0c32554d16128abf2f9822503418f149808bedb0c989991ccca045',
    )
)


def read_corel5k_themes(folder: Path) -> Listing:
    """Read Corel5k with the CD that a photo comes from as its one class.

    Args:
        folder: The folder originals/.

    Returns:
        What the repository says.

    Raises:
        SpmlError: For other files.

    Source:
        Duygulu et al. 2002: a hundred photos from each of fifty CDs, each CD with one theme.
    """
    listing = read_corel5k(folder)
    labels, names = label_matrix(
        [[f'CD {int(Path(image).stem) // 1000:03}'] for image in listing.images]
    )
    return replace(listing, labels=labels, class_names=names)


COREL5K_THEMES = register(
    replace(
        COREL5K,
        name='corel5k_themes',
        read=read_corel5k_themes,
        counts={'train': 4500, 'test': 499, 'classes': 50},
        digest='767f4aa93ef22930e6b1452e3c2b9554d9b54b32e53ab6f0868127e3b612681c',
    )
)


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
            f'{base}: photo {photo} has the label numbers {listed(numbers)}; allowed: 0 to {count}.'
        )
    return numbers[numbers > 0]


def read_ccp(folder: Path) -> Listing:
    """Read Clothing Co-Parsing.

    Args:
        folder: The folder images/.

    Returns:
        What the official files say, without a split.

    Raises:
        SpmlError: For other files.

    Source:
        Yang, Luo and Lin, CVPR 2014.
    """
    base = inside(
        folder, *(f'repository/clothing-co-parsing{branch}' for branch in ('-master', '-main', ''))
    )
    null, *classes = [
        str(np.ravel(cell)[0]).strip()
        for cell in np.ravel(read_matlab(inside(base, 'label_list.mat')))
    ]
    if null != 'null':
        raise SpmlError(f"{base / 'label_list.mat'} begins with {null!r} where 'null' is expected.")
    photos = sorted(inside(base, 'photos').glob('*.jpg'))
    labels, _ = label_matrix(
        [_ccp_labels(base, photo.stem, len(classes)) for photo in photos],
        names=range(1, len(classes) + 1),
    )
    return Listing([photo.relative_to(folder).as_posix() for photo in photos], labels, classes)


CCP = register(
    Benchmark(
        'ccp',
        read_ccp,
        counts={'images': 2098, 'classes': 58},
        archives=(
            Archive(
                'clothing-co-parsing.zip',
                ('https://github.com/bearpaw/clothing-co-parsing/archive/refs/heads/master.zip',),
                'repository',
                137_000_000,
            ),
        ),
        licence=(
            'Apache-2.0; cite Yang, Luo and Lin, Clothing Co-Parsing by Joint Image Segmentation '
            'and Labeling, CVPR 2014.'
        ),
    )
)
