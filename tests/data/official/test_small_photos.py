"""Small sets of real photos: each from archives in the layout of its source, and the same as the
photos at hand.
"""

import csv
import dataclasses
import io
import itertools
import lzma
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from serving import jpeg, local, ready, serve, tar_of, zip_of
from small_copies import TELL, ccp_members, mat, refused

from spml_nb import data as datasets
from spml_nb.data.folder import Listing, split_by_row
from spml_nb.data.official import registry, small_photos
from spml_nb.data.official.registry import find_benchmark, list_missing_files, prepare_benchmark

pytestmark = pytest.mark.filterwarnings(
    'ignore:.*(never used|no training image has it|No positive)'
)


# ---- archives in the layouts of their sources; rows: (image, names of its labels, part or None);
# photo: row number → bytes of the original


def voc12_animals(folder, rows, photo):
    tar_of(
        folder / 'VOCtrainval_11-May-2012.tar',
        {f'VOCdevkit/VOC2012/JPEGImages/{image}': photo(k) for k, (image, *_) in enumerate(rows)},
        'w',
    )


def cub_crops(folder, rows, photo):
    "With a training photo of a species that counts, and a test photo of one that does not."
    base, names = 'CUB_200_2011', sorted({name for _, words, _ in rows for name in words})[::-1]
    strange = [
        ('Fox_Sparrow_0001_1.jpg', names[:2], 1),
        ('Sooty_Albatross_0002_2.jpg', names[:3], 0),
    ]
    every = [strange[0], *((image, words, 0) for image, words, _ in rows), strange[1]]
    numbered = [
        (k, f"{k % 200 + 1:03}.{image.rsplit('_', 2)[0]}/{image}", words, train)
        for k, (image, words, train) in enumerate(every, 1)
    ]
    column = {name: a for a, name in enumerate(names, 1)}
    members = {
        'attributes.txt': '\n'.join(f'{a} {name}' for name, a in column.items()),
        f'{base}/images.txt': '\n'.join(f'{k} {image}' for k, image, *_ in numbered),
        f'{base}/train_test_split.txt': '\n'.join(f'{k} {train}' for k, *_, train in numbered),
        f'{base}/bounding_boxes.txt': '\n'.join(
            f'{k} ' + ('60.0 40.0 384.0 384.0' if 2 <= k < 2 + REAL else '0.0 0.0 6.0 4.0')
            for k, *_ in numbered
        ),
        f'{base}/attributes/image_attribute_labels.txt': '\n'.join(
            f'{k} {column[word]} 1 4 2.5' for k, _, words, _ in numbered for word in words
        ),
    }
    shown = {f'{base}/images/{image}': photo(k - 2) for k, image, *_ in numbered}
    tar_of(
        folder / 'CUB_200_2011.tgz', {name: text.encode() for name, text in members.items()} | shown
    )


def coco18(folder, rows, photo):
    "With captions that hold line breaks, and a photo after the first 6,000."
    base = f'COMP5329DeepLearningA2_ViT-{commit("coco18")}'
    number = {name: k for k, name in small_photos.COCO18_NAMES.items()}
    lines = [
        f'{int(image[:-4])}.jpg,{" ".join(number[word] for word in words)},"a ""{words[0]}"",\n12 '
        'of them"'
        for image, words, _ in rows
    ]
    table = (
        '\n'.join(
            ['ImageID,Labels,Caption', *lines[::-1], *['6001.jpg,19,late'] * (len(rows) == 6000)]
        )
        + '\n'
    )
    photos = {f'{base}/data/{int(image[:-4])}.jpg': photo(k) for k, (image, *_) in enumerate(rows)}
    zip_of(
        folder / 'COMP5329DeepLearningA2_ViT-cb8e6b3.zip',
        {f'{base}/train.csv': table.encode(), **photos},
    )


def mirflickr14(folder, rows, photo):
    "With a labelled photo after the first 6,000."
    for name in small_photos.MIRFLICKR14_NAMES:
        numbers = [
            *[19_999] * (len(rows) == 6000),
            *(int(image[2:-4]) for image, words, _ in rows if name in words),
        ]
        (folder / f'{name}.txt').write_text('\n'.join(map(str, numbers)) + '\n')
    base = f'dlproject-{commit("mirflickr14")}/images'
    zip_of(
        folder / 'dlproject-926cbca.zip',
        {f'{base}/im{int(image[2:-4])}.jpg': photo(k) for k, (image, *_) in enumerate(rows)},
    )


def corel5k(folder, rows, photo):
    "With words of one part only, and a photo that is listed twice."
    base = f'Dian-{commit("corel5k")}'
    names = ['early', 'late', *sorted({name for _, words, _ in rows for name in words})]
    lines = {'train': [], 'test': []}
    for image, words, part in rows:
        numbers = [names.index(word) + 1 for word in words] + [1 if part == 'train' else 2]
        lines[part].append(
            ' '.join(map(str, [int(image[:-4]), *numbers, *[0] * (6 - len(numbers))]))
        )
    photo_twice, *numbers = lines['test'][-1].split()
    lines['test'][-1:] = [f'{photo_twice} {numbers[0]}', ' '.join([photo_twice, *numbers[1:]])]
    texts = {'words': names, 'training_label': lines['train'], 'test_label': lines['test']}
    photos = {
        f'{base}/images/{int(image[:-4]) // 1000 * 1000}/{int(image[:-4])}.jpeg': photo(k)
        for k, (image, *_) in enumerate(rows)
    }
    zip_of(
        folder / 'Dian-296a17d.zip',
        {f'{base}/labels/{name}': '\n'.join(text).encode() for name, text in texts.items()}
        | photos,
    )


def corel5k_themes(folder, rows, photo):
    "The class of a photo is in its number; its words are others."
    corel5k(folder, [(image, ['sun'], part) for image, _, part in rows], photo)


LAYOUTS = {
    layout.__name__: layout
    for layout in (voc12_animals, cub_crops, coco18, mirflickr14, corel5k, corel5k_themes)
}
LARGER = {'coco18_30k': 'coco18', 'mirflickr14_10k': 'mirflickr14'}  # all photos of their source
LAYOUTS |= {larger: LAYOUTS[name] for larger, name in LARGER.items()}
REAL, TINY = (
    6,
    Image.new('RGB', (6, 4), (90, 120, 60)),
)  # so many photos of a copy are real ones, where there are any


def commit(name):
    return re.search(r'[0-9a-f]{40}', find_benchmark(name).archives[0].urls[0])[0]


def encoded(image):
    out = io.BytesIO()
    image.save(out, 'JPEG', quality=95)
    return out.getvalue()


def drawn(name):
    "Twelve rows of a set."
    name = LARGER.get(name, name)
    words = {
        'voc12_animals': ['dog', 'cat'],
        'cub_crops': ['has_b', 'has_a'],
        'coco18': ['person', 'horse'],
        'mirflickr14': ['sea', 'baby'],
        'corel5k': ['tree', 'sun'],
    }.get(name)
    image = {
        'voc12_animals': '2008_{:06}.jpg',
        'cub_crops': 'Fox_Sparrow_{:04}_7.jpg',
        'coco18': '{:05}.jpg',
        'mirflickr14': 'im{:05}.jpg',
        'corel5k': '{:06}.jpg',
    }.get(name)
    if name == 'corel5k_themes':
        return [
            (f'{150 * k:06}.jpg', [f'CD {150 * k // 1000:03}'], 'test' if k > 8 else 'train')
            for k in range(1, 13)
        ]
    return [
        (image.format(k), words[: 1 + k % 2], 'test' if k > 8 else 'train') for k in range(1, 13)
    ]


@pytest.fixture
def served(tmp_path):
    "(name, rows, originals) → (Benchmark of a copy on a local server, its rows, server)."
    servers = []

    def make(name, rows, photo=lambda k: TINY_BYTES, **changes):
        (tmp_path / 'served').mkdir()
        LAYOUTS[name](tmp_path / 'served', rows, photo)
        servers.append(serve(tmp_path / 'served'))
        running = servers[-1].__enter__()
        return local(name, tmp_path / 'served', running.url, **changes), running

    yield make
    for server in servers:
        server.__exit__(None, None, None)


TINY_BYTES = encoded(TINY)


def small_copy(name, served):
    rows = drawn(name)
    return rows, *served(name, rows, counts={'images': 12, 'classes': 2}, digest='')


# ---- the way from an archive


@pytest.mark.parametrize('name', LAYOUTS)
def test_a_set_is_read_and_made_small_and_its_originals_do_not_stay(
    served, tmp_path, monkeypatch, name
):
    rows, benchmark, server = small_copy(name, served)
    table = '\n'.join(
        [
            'image,labels,split',
            *(f'{image},{"|".join(words)},{part}' for image, words, part in rows),
        ]
    )
    (tmp_path / 'shipped.xz').write_bytes(lzma.compress(table.encode()))
    monkeypatch.setattr(small_photos, '_SHIPPED', tmp_path / 'shipped.xz')
    data = ready(benchmark, tmp_path / 'data')
    assert data.image_names == [image for image, *_ in rows]
    assert [{data.class_names[c] for c in np.flatnonzero(row > 0)} for row in data.labels] == [
        set(words) for _, words, _ in rows
    ]
    assert data.class_names == sorted(data.class_names) and set(np.unique(data.labels)) == {-1, 1}
    drawn_split = name in ('cub_crops', 'coco18', 'mirflickr14', *LARGER)
    assert drawn_split or [part == 'test' for part in data.split] == [
        part == 'test' for *_, part in rows
    ]
    with Image.open(data.images[-1]) as photo:
        assert photo.size == ((benchmark.small.side,) * 2 if benchmark.small.square else (6, 4))
    assert sorted(path.name for path in (tmp_path / 'data' / name).iterdir()) == [
        'downloads',
        'images',
        'labels.csv',
        'ready.json',
    ]
    assert len(server.log) == len(benchmark.archives) and data.name == name


@pytest.mark.parametrize('larger', LARGER)
def test_the_larger_set_goes_on_where_the_small_one_ends(tmp_path, larger):
    words = drawn(larger)[0][1]
    image = '{:05}.jpg' if larger.startswith('coco') else 'im{:05}.jpg'
    rows = [(image.format(k), words, None) for k in range(1, 6004)]
    LAYOUTS[larger](tmp_path, rows, lambda k: b'')
    originals = tmp_path / 'originals'
    for archive in find_benchmark(larger).archives:
        place = originals / archive.subfolder
        place.mkdir(parents=True, exist_ok=True)
        if archive.file.endswith('.zip'):
            shutil.unpack_archive(tmp_path / archive.file, place)
        else:
            shutil.copy(tmp_path / archive.file, place)
    whole, part = (
        find_benchmark(larger).read(originals),
        find_benchmark(LARGER[larger]).read(originals),
    )
    assert whole.images == [image for image, *_ in rows] and part.images == whole.images[:6000]


AT_HAND = [name for name in LAYOUTS if name not in ('corel5k_themes', *LARGER)]


@pytest.mark.parametrize('name', AT_HAND)
def test_a_set_is_the_same_as_the_photos_at_hand(served, tmp_path, photos_at_hand, name):
    folder = photos_at_hand(name)
    with open(folder / 'labels.csv', encoding='utf-8', newline='') as file:
        rows = [
            (row['image'], [word for word in row['labels'].split('|') if word], row.get('split'))
            for row in csv.DictReader(file)
        ]

    def photo(k):
        if not 0 <= k < REAL:
            return TINY_BYTES
        with Image.open(folder / 'images' / rows[k][0]) as small:
            large = (
                small.resize((2 * small.width, 2 * small.height))
                if min(small.size) == find_benchmark(name).small.side
                else small.copy()
            )
        if name != 'cub_crops':
            return encoded(large)
        (whole := Image.new('RGB', (500, 480), (255, 0, 0))).paste(large, (60, 40))
        return encoded(whole)

    benchmark, _ = served(name, rows, photo)  # the protocol's own counts and digest
    data, there = (
        ready(benchmark, tmp_path / 'data'),
        split_by_row(datasets.load(folder)),
    )  # a folder elsewhere is split by names
    assert np.array_equal(data.labels, there.labels) and data.labels.dtype == there.labels.dtype
    assert (data.name, data.image_names, data.class_names) == (
        there.name,
        there.image_names,
        there.class_names,
    )
    assert np.array_equal(data.split, there.split)
    for k in range(REAL):
        with Image.open(data.images[k]) as made, Image.open(there.images[k]) as expected:
            assert made.size == expected.size and made.quantization == expected.quantization
            assert np.abs(np.asarray(made, float) - np.asarray(expected, float)).mean() < 6


def test_the_photos_at_hand_are_not_larger_than_their_sets_allow(photos_at_hand):
    for name in AT_HAND:
        small = find_benchmark(name).small
        for image in itertools.islice(datasets.load(photos_at_hand(name)).images, 0, None, 40):
            with Image.open(image) as photo:
                assert photo.size == small.size(*photo.size)


def test_the_themes_are_the_published_ones(photos_at_hand, monkeypatch):
    with open(photos_at_hand('corel5k') / 'labels.csv', encoding='utf-8', newline='') as file:
        rows = list(csv.DictReader(file))
    listing = Listing(
        [row['image'] for row in rows],
        np.ones((len(rows), 1), np.int8),
        ['words'],
        [row['split'] for row in rows],
    )
    monkeypatch.setattr(small_photos, '_read_corel5k', lambda folder: listing)
    benchmark = find_benchmark('corel5k_themes')
    registry.verify_listing(benchmark, benchmark.read(Path()), Path())


def test_the_shipped_table_is_the_published_one(tmp_path):
    (tmp_path / 'trainval/VOCdevkit/VOC2012/JPEGImages').mkdir(parents=True)
    benchmark = find_benchmark('voc12_animals')
    registry.verify_listing(benchmark, listing := benchmark.read(tmp_path), tmp_path)
    assert (
        listing.images == sorted(listing.images)
        and benchmark.archives == find_benchmark('voc12').archives
    )


# ---- what may go wrong


def test_other_labels_are_refused_before_a_photo_is_made(served, tmp_path):
    rows = drawn('coco18')
    listing = Listing([image for image, *_ in rows], *registry_labels(rows))
    changes = {'counts': {'images': 12, 'classes': 2}, 'digest': registry.hash_listing(listing)}
    benchmark, server = served('coco18', [*rows[:-1], (rows[-1][0], ['horse'], None)], **changes)
    with refused('names, labels or split that differ', 'not the official files'):
        prepare_benchmark(benchmark, tmp_path / 'data', **TELL)
    assert sorted(path.name for path in (tmp_path / 'data' / 'coco18').iterdir()) == [
        'downloads',
        'originals',
    ]
    with refused('names, labels or split that differ'):
        prepare_benchmark(benchmark, tmp_path / 'data', **TELL)
    assert len(server.log) == 1


def registry_labels(rows):
    names = sorted({word for _, words, _ in rows for word in words})
    return np.array(
        [[1 if name in words else -1 for name in names] for _, words, _ in rows], np.int8
    ), names


def test_the_digest_is_over_names_classes_split_and_labels():
    one = Listing(['a.jpg', 'b.jpg'], np.array([[1], [-1]], np.int8), ['x'], ['train', 'test'])
    others = [
        {'images': ['b.jpg', 'a.jpg']},
        {'labels': -one.labels},
        {'class_names': ['y']},
        {'split': None},
    ]
    assert (
        len(
            {
                registry.hash_listing(dataclasses.replace(one, **change))
                for change in [{}, {}, *others]
            }
        )
        == 5
    )


def test_another_layout_or_a_missing_photo_is_named(served, tmp_path):
    changes = {'counts': {'images': 12, 'classes': 2}, 'digest': ''}
    benchmark, _ = served(
        'coco18', drawn('coco18'), lambda k: TINY_BYTES if k != 4 else b'none', **changes
    )
    with refused('5.jpg cannot be read as a photo', 'Remove the archive'):
        prepare_benchmark(benchmark, tmp_path / 'data', **TELL)
    assert not (tmp_path / 'data' / 'coco18' / 'images').exists()
    zip_of(tmp_path / 'served' / benchmark.archives[0].file, {'elsewhere/data/0.jpg': TINY_BYTES})
    with refused('repository/elsewhere has no train.csv', 'not the official layout'):
        prepare_benchmark(benchmark, tmp_path / 'anew', **TELL)


def test_photos_of_ones_own_stay_and_a_changed_photo_is_made_again(served, tmp_path):
    _, benchmark, server = small_copy('mirflickr14', served)
    folder = tmp_path / 'mirflickr14'
    (folder / 'images').mkdir(parents=True)
    (folder / 'images' / 'mine.jpg').write_bytes(TINY_BYTES)
    with refused('images was not written by this command', 'move'):
        prepare_benchmark(benchmark, tmp_path, **TELL)
    assert (folder / 'images' / 'mine.jpg').is_file() and server.log == []
    (folder / 'images' / 'mine.jpg').unlink()
    (folder / 'images').rmdir()
    first = ready(benchmark, tmp_path)
    first.images[3].write_bytes(b'none')
    assert 'have changed since' in list_missing_files(benchmark, tmp_path)[0]
    before = len(server.log)
    assert ready(benchmark, tmp_path).fingerprint == first.fingerprint and len(server.log) == before
    for file in (folder / 'downloads').iterdir():
        file.unlink()
    assert list_missing_files(benchmark, tmp_path) == []


def test_source_and_terms_are_shown_before_anything_is_fetched(served, tmp_path):
    _, benchmark, server = small_copy('corel5k', served)
    told = []
    prepare_benchmark(benchmark, tmp_path, tell=lambda line: told.append((line, len(server.log))))
    assert told[:2] == [
        (f'corel5k: from {server.url}', 0),
        (f'corel5k: terms of use: {benchmark.licence}', 0),
    ]
    prepare_benchmark(benchmark, tmp_path, tell=(again := []).append)
    assert again == [f'corel5k is ready: {tmp_path / "corel5k"}']
    assert all(find_benchmark(name).licence.strip() for name in registry.BENCHMARKS)


# ---- Clothing Co-Parsing


def test_ccp_joins_tags_and_masks_and_draws_its_own_split(tmp_path):
    rng, names = np.random.RandomState(0), ['shirt', 'hat', 'bag', 'coat']
    positives = [sorted(rng.choice(4, rng.randint(1, 4), replace=False) + 1) for _ in range(40)]
    positives[6] = []  # tags without any
    members = ccp_members(names, positives)
    members['clothing-co-parsing-master/annotations/image-level/0002.mat'] = mat(
        tags=np.array([[0, 4]], np.uint8)
    )  # both kinds, and null
    for row, present in enumerate(positives):
        members[f'clothing-co-parsing-master/photos/{row + 1:04}.jpg'] = jpeg(
            [c + 1 in present for c in range(4)]
        )
    (tmp_path / 'served').mkdir()
    zip_of(tmp_path / 'served' / 'clothing-co-parsing.zip', members)
    with serve(tmp_path / 'served') as server:
        data = ready(
            local('ccp', tmp_path / 'served', server.url, counts={'images': 40, 'classes': 4}),
            tmp_path / 'data',
        )
    positives[1] = sorted({*positives[1], 4})
    assert (
        data.class_names == names
        and [list(np.flatnonzero(row > 0) + 1) for row in data.labels] == positives
    )
    assert [len(data.rows(part)) for part in datasets.PARTS] == [26, 6, 8]


def test_ccp_agrees_with_the_photos_at_hand(ccp, tmp_path):
    data = datasets.load(ccp)
    names = sorted([*data.class_names, 'intimate', 'panties', 'swimwear'])
    number = np.array([names.index(name) + 1 for name in data.class_names])
    members = ccp_members(
        names,
        [number[row > 0] for row in data.labels],
        pixel=lambda row: row < 1004 and (data.labels[row] > 0).sum() <= 48,
    )
    for member, content in members.items():
        file = tmp_path / 'repository' / member
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    (tmp_path / 'repository' / 'clothing-co-parsing-master' / 'photos').symlink_to(ccp / 'images')
    listing = find_benchmark('ccp').read(tmp_path)
    kept = [listing.class_names.index(name) for name in data.class_names]
    assert np.array_equal(listing.labels[:, kept], data.labels) and len(listing.class_names) == 58
    assert (np.delete(listing.labels, kept, 1) == -1).all() and [
        Path(name).name for name in listing.images
    ] == [path.name for path in data.images]
    found = registry._counts(listing)
    assert all(found[what] == count for what, count in find_benchmark('ccp').counts.items())
