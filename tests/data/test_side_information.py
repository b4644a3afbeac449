"""A file of side information: both forms say the same, rows follow the images, each mistake is
refused by name, and its content names it.
"""

import numpy as np
import pandas as pd
import pytest
from side_files import draw_side

from spml_nb.base.errors import SpmlError
from spml_nb.data import load
from spml_nb.data.side_information import KINDS, list_side_kinds, pin_file, read_side


@pytest.fixture
def data(photo_folder):
    return load(photo_folder)


@pytest.mark.parametrize('suffix', ['.csv', '.npz'])
def test_rows_follow_the_images_and_columns_the_classes(data, photo_folder, tmp_path, suffix):
    file = str(draw_side(photo_folder, tmp_path / f'side{suffix}'))
    rows = np.random.RandomState(1).permutation(len(data))[:25]
    found = read_side(file, data, rows)
    assert set(found) == list_side_kinds(file) == set(KINDS) and list_side_kinds('') == set()
    assert (
        np.array_equal(found['count'], (data.labels[rows] > 0).sum(1))
        and found['count'].dtype == found['scores'].dtype == np.float32
    )
    assert np.array_equal(found['group'], rows % 3) and found['group'].dtype == np.int64
    right = (found['scores'] > 0.5) == (data.labels[rows] > 0)
    assert (
        found['scores'].shape == (25, 3) and 0.6 < right.mean() < 0.9
    )  # in another order of rows or columns it would be a half
    few = load(photo_folder, exclude=['bright'])
    assert np.array_equal(read_side(file, few, rows)['scores'], found['scores'][:, [0, 2]])


def test_an_image_goes_by_its_path_in_the_table(photo_folder, tmp_path):
    """Also where all photos lie in one folder below images/, so that their names in the data set
    are shorter.
    """
    deeper = tmp_path / 'deeper'
    (deeper / 'images' / 'shelf').mkdir(parents=True)
    for photo in (photo_folder / 'images').iterdir():
        photo.rename(deeper / 'images' / 'shelf' / photo.name)
    table = pd.read_csv(photo_folder / 'labels.csv')
    table.assign(image='shelf/' + table.image).to_csv(deeper / 'labels.csv', index=False)
    data = load(deeper)
    assert data.image_names[0] == '000.png'
    for name in ('shelf/', ''):
        pd.DataFrame({'image': name + table.image, 'count': np.arange(60) % 4}).to_csv(
            tmp_path / 'side.csv', index=False
        )
        assert read_side(str(tmp_path / 'side.csv'), data, np.array([7, 2]))['count'].tolist() == [
            3,
            2,
        ]


def test_images_in_memory_go_by_their_number(tmp_path):
    data = load('mini_voc')
    np.savez(tmp_path / 'side.npz', images=[5, 3, 900], group=['x', 'y', 'x'])
    assert read_side(str(tmp_path / 'side.npz'), data, np.array([3, 900, 5]))['group'].tolist() == [
        1,
        0,
        0,
    ]


BROKEN = {  # what is changed in the table of `draw_side`, and the words that the refusal holds
    'NaN in a score': (
        lambda t: t.assign(red=t.red.where(t.image != '007.png')),
        ["scores '' of image '007.png', class 'red' (1 such)", 'from 0 to 1'],
    ),
    'NaN in a count': (
        lambda t: t.assign(count=t['count'].where(t.image != '007.png')),
        ["count '' of image '007.png' (1 such)", 'from 0 to 3'],
    ),
    'a word': (lambda t: t.assign(count='many'), ["count 'many' of image '000.png' (60 such)"]),
    'too many': (lambda t: t.assign(count=4), ["count '4'", 'from 0 to 3']),
    'below 0': (lambda t: t.assign(count=-1), ["count '-1'"]),
    'infinity': (lambda t: t.assign(blue=np.inf), ["scores 'inf'", "class 'blue'"]),
    'a logit': (lambda t: t.assign(blue=2.5), ["scores '2.5' of image '000.png', class 'blue'"]),
    'no group': (
        lambda t: t.assign(group=t.group.where(t.image != '007.png')),
        ['no group for the images 007.png'],
    ),
    'a missing row': (
        lambda t: t[~t.image.isin(['007.png', '012.png'])],
        ['no row for 2 of 60 training images: 007.png, 012.png'],
    ),
    'a row twice': (
        lambda t: pd.concat([t, t[t.image == '007.png']]),
        ['more than one row for the images 007.png'],
    ),
    'a missing class': (
        lambda t: t.drop(columns='red'),
        ['no scores for the classes red; its columns are blue, bright'],
    ),
    'no image': (
        lambda t: t.drop(columns='image'),
        [
            'holds no side information of images, but count, group, scores',
            'the column `image` first',
        ],
    ),
    'nothing': (lambda t: t[['image']], ['holds no side information of images, but images.']),
}


@pytest.mark.parametrize('kind', BROKEN)
def test_a_mistake_in_a_table_is_refused_by_name(data, photo_folder, tmp_path, kind):
    change, words = BROKEN[kind]
    table = pd.read_csv(draw_side(photo_folder, tmp_path / 'side.csv'))
    change(table).to_csv(tmp_path / 'wrong.csv', index=False)
    with pytest.raises(SpmlError) as error:
        read_side(str(tmp_path / 'wrong.csv'), data, np.arange(60))
    for word in ('wrong.csv', *words):
        assert word in str(error.value)


ARRAYS = {
    'scores with a row too few': (
        lambda a: {**a, 'scores': a['scores'][1:]},
        'scores of shape (59, 3); 60 images and 3 class names need (60, 3)',
    ),
    'scores with a column too many': (
        lambda a: {**a, 'scores': np.ones((60, 4))},
        'scores of shape (60, 4)',
    ),
    'scores without names': (
        lambda a: {'images': a['images'], 'scores': a['scores']},
        '60 images and 0 class names need (60, 0)',
    ),
    'counts as a column': (
        lambda a: {**a, 'count': a['count'][:, None]},
        'count of shape (60, 1); 60 images and 3 class names need (60,)',
    ),
    'a group too few': (lambda a: {**a, 'group': a['group'][1:]}, 'group of shape (59,)'),
    'NaN': (
        lambda a: {**a, 'count': np.where(np.array(a['images']) == '007.png', np.nan, a['count'])},
        "count 'nan' of image '007.png'",
    ),
    'objects': (
        lambda a: {**a, 'group': a['group'].astype(object)},
        'cannot be read as side information (ValueError: Object arrays',
    ),
}


@pytest.mark.parametrize('kind', ARRAYS)
def test_a_mistake_in_arrays_is_refused_by_name(data, photo_folder, tmp_path, kind):
    change, words = ARRAYS[kind]
    with np.load(draw_side(photo_folder, tmp_path / 'side.npz')) as arrays:
        np.savez(tmp_path / 'wrong.npz', **change(dict(arrays)))
    with pytest.raises(SpmlError) as error:
        read_side(str(tmp_path / 'wrong.npz'), data, np.arange(60))
    assert words in str(error.value) and 'wrong.npz' in str(error.value)


@pytest.mark.parametrize(
    'name, content, words',
    [
        ('none.csv', None, 'none.csv is not there'),
        ('side.txt', 'image,count', 'neither .csv nor .npz'),
        ('side.npz', 'no archive', 'cannot be read as side'),
        ('side.csv', '', 'cannot be read as side'),
    ],
)
def test_a_file_that_is_none_is_refused(data, tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(SpmlError) as error:
        read_side(str(tmp_path / name), data, np.arange(3))
    assert words in str(error.value)


def test_the_content_names_a_file_and_a_change_is_noticed(
    data, photo_folder, tmp_path, monkeypatch
):
    file = draw_side(photo_folder, tmp_path / 'side.csv')
    first = pin_file(str(file))
    (tmp_path / 'elsewhere').mkdir()
    copy = tmp_path / 'elsewhere' / 'side.csv'
    copy.write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert (
        pin_file(str(copy)).rpartition('@')[2] == first.rpartition('@')[2]
        and pin_file('side.csv') == pin_file(first) == first
    )
    draw_side(photo_folder, file, seed=1)
    assert pin_file(str(file)) != first
    with pytest.raises(SpmlError, match='has changed since this run was named'):
        read_side(first, data, np.arange(3))
    file.unlink()
    assert pin_file(first) == first  # a name needs no file
