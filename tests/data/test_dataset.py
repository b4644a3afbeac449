"""The Dataset itself: fields that fit together, parts, and the fingerprint."""

import hashlib
import re

import numpy as np
import pytest
from redrawn import as_bitmaps, redraw
from tables import ROWS

from spml_nb.base.errors import SpmlError
from spml_nb.data.dataset import Dataset, find_copies, hash_photos
from spml_nb.data.loading import load

pytestmark = pytest.mark.filterwarnings(
    'ignore:.*no training image has it'
)  # small tables; the warning has its own test


def small(**changes):
    fields = dict(
        name='s',
        images=np.zeros((3, 4, 4, 3), np.uint8),
        labels=np.array([[1], [-1], [0]], np.int8),
        class_names=['c'],
        split=np.array(['train', 'val', 'test']),
    )
    return Dataset(**fields | changes)


@pytest.mark.parametrize(
    'change',
    [
        {'images': np.zeros((3, 4, 4, 3))},
        {'images': np.zeros((3, 4, 4), np.uint8)},
        {'labels': np.array([[1], [-1]], np.int8)},
        {'labels': np.array([[2], [0], [0]], np.int8)},
        {'labels': np.array([[-2], [0], [0]], np.int8)},
        {'labels': np.ones((3, 1))},
        {'class_names': ['c', 'd']},
        {'labels': np.ones((3, 2), np.int8), 'class_names': ['c', 'c']},
        {'split': np.array(['train', 'val', 'dev'])},
        {'split': np.array(['train'])},
    ],
)
def test_fields_that_do_not_fit_together_are_refused(change):
    with pytest.raises(SpmlError, match="data set 's'"):
        small(**change)


def test_a_data_set_says_how_much_of_it_is_unknown():
    assert repr(small()).endswith('1 classes, 0.33 positives per image, 1 of 3 labels unknown')
    assert repr(small(labels=np.array([[1], [-1], [-1]], np.int8))).endswith(
        '0.33 positives per image'
    )


def test_an_unknown_part_is_refused():
    with pytest.raises(SpmlError, match="'valid'"):
        small().rows('valid')


def test_the_fingerprint_follows_content_and_nothing_else(folder):
    first, copy = load(folder()), load(folder(at='copy'))
    assert first.fingerprint == copy.fingerprint == load(folder()).fingerprint and re.fullmatch(
        '[0-9a-f]{16}', first.fingerprint
    )
    others = [
        load(folder(ROWS.replace('1,0,train', '1,1,train'), at='label')),
        load(
            folder(
                ROWS.replace('c.jpg,1,,val', 'c.jpg,1,,train').replace(
                    'b.jpg,0,1,train', 'b.jpg,0,1,val'
                ),
                at='split',
            )
        ),
        load(folder(ROWS.replace('cat', 'cow'), at='name')),
        load(folder(ROWS.replace('a.jpg', 'f.jpg'), at='file')),
    ]
    larger = folder(at='size')
    (larger / 'images' / 'a.jpg').write_bytes(b'longer than before')
    others.append(load(larger))
    assert len({first.fingerprint, *(other.fingerprint for other in others)}) == 6
    (folder() / 'images' / 'a.jpg').unlink()
    gone = Dataset(first.name, first.images, first.labels, first.class_names, first.split)
    with pytest.raises(SpmlError, match=r'a\.jpg'):
        _ = gone.fingerprint


def test_the_fingerprint_of_images_in_memory_covers_their_pixels():
    brighter = np.zeros((3, 4, 4, 3), np.uint8)
    brighter[2, 3, 3, 2] = 1
    assert small().fingerprint == small(name='t').fingerprint != small(images=brighter).fingerprint
    assert (
        small(split=np.array(['train', 'val', 'test'], dtype='<U9')).fingerprint
        == small().fingerprint
    )


@pytest.mark.silent('C1')
def test_the_content_follows_every_byte_of_every_photo_whatever_their_sizes_and_times(photo_folder):
    as_bitmaps(photo_folder)

    def read():
        data = load(photo_folder)
        return data.fingerprint, data.content, data.photo_hashes

    photo = load(photo_folder).images[7]
    first = read()
    redraw(photo)
    second = read()
    redraw(photo)
    assert (
        first == read()
        and first[0] == second[0]
        and first[1] != second[1]
        and re.fullmatch('[0-9a-f]{16}', first[1])
    )
    assert [k for k, (a, b) in enumerate(zip(first[2], second[2], strict=True)) if a != b] == [7]


@pytest.mark.silent('C1')
def test_photos_that_cannot_be_read_have_no_checksum_and_equal_ones_have_equal_checksums(
    photo_folder,
):
    data = load(photo_folder)
    data.images[1].write_bytes(data.images[0].read_bytes())
    data.images[2].unlink()
    assert (
        data.photo_hashes[0] == data.photo_hashes[1] != data.photo_hashes[3]
        and data.photo_hashes[2] == ''
    )
    pixels = np.zeros((3, 4, 4, 3), np.uint8)
    pixels[2] = 1
    first, second, third = small(images=pixels).photo_hashes
    assert first == second != third


def test_checksums_of_many_photos_come_in_the_order_of_the_files(tmp_path):
    files = [tmp_path / f'{k}.jpg' for k in range(1100)]
    for k, file in enumerate(files):
        file.write_bytes(str(k).encode())
    expected = [hashlib.sha256(str(k).encode()).hexdigest()[:16] for k in range(1100)]
    assert hash_photos(iter(files)) == expected


def test_copies_are_known_by_their_bytes(tmp_path):
    content = {'a': b'one', 'b': b'two', 'c': b'three', 'copy': b'two'}
    files = {name: tmp_path / name for name in (*content, 'gone')}
    for name, each in content.items():
        files[name].write_bytes(each)
    found = find_copies([files[name] for name in ('a', 'b', 'gone')], [files['c'], files['copy']])
    assert found.tolist() == [False, True, False]
    assert find_copies([files['gone']], [files['gone']]).tolist() == [False]
    assert find_copies([], []).tolist() == []
