"""Loading: names, folders and where they are looked for, and classes that are left out."""

import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from tables import ROWS, numbered, refused

from spml_nb import data as datasets
from spml_nb.data import loading, miniatures
from spml_nb.data.folder import split_by_row
from spml_nb.data.loading import load
from spml_nb.data.official.registry import BENCHMARKS

pytestmark = pytest.mark.filterwarnings(
    'ignore:.*no training image has it'
)  # small tables; the warning has its own test


# ---- the real photos


def test_clothing_photos_have_the_protocols_numbers(ccp):
    data = load('ccp', root=ccp.parent, min_positives=40, exclude=['skin', 'hair'])
    assert (
        len(data) == 2098
        and len(data.class_names) == 47
        and [len(data.rows(part)) for part in datasets.PARTS] == [1342, 336, 420]
    )
    assert round((data.labels > 0).sum() / len(data), 1) == 5.5 and set(np.unique(data.labels)) == {
        -1,
        1,
    }
    whole = load(ccp)
    assert len(whole.class_names) == 55 and round((whole.labels > 0).sum() / len(whole), 1) == 7.5


def test_a_named_benchmark_is_read_from_the_data_folder(ccp, monkeypatch):
    monkeypatch.setenv('SPML_NB_DATA', str(ccp.parent))
    assert (
        load('ccp').fingerprint == load('ccp', root=ccp.parent).fingerprint == load(ccp).fingerprint
    )


def test_the_folder_of_a_named_set_has_the_split_of_the_set(folder, monkeypatch, tmp_path):
    path = folder(*numbered(50), at='data/ccp')
    assert load(path).drawn == ('test', 'val')  # somebody's folder that has the name
    monkeypatch.setenv('SPML_NB_DATA', str(path.parent))
    assert (
        load(path).fingerprint
        == load('ccp').fingerprint
        == split_by_row(load(shutil.copytree(path, tmp_path / 'photos'))).fingerprint
    )
    monkeypatch.delenv('SPML_NB_DATA')
    (path / 'ready.json').write_text('{}')  # of `spml data`
    assert load(path).drawn == ()


# ---- classes


def test_rare_and_excluded_classes_are_left_out_counted_over_all_rows(folder):
    path = folder(
        'image,rare,often,skin,split\na.jpg,0,1,1,train\nb.jpg,0,1,1,val\nc.jpg,1,1,1,test\nd.jpg,1,0,1,test\n'
    )
    assert load(path, min_positives=2).class_names == ['rare', 'often', 'skin']
    assert load(path, min_positives=3).class_names == ['often', 'skin']
    data = load(path, min_positives=2, exclude=['skin'])
    assert data.class_names == ['rare', 'often'] and data.labels.tolist() == [
        [-1, 1],
        [-1, 1],
        [1, 1],
        [1, -1],
    ]
    assert load(path, min_positives=3, exclude='skin').class_names == ['often']


def test_wrong_choices_of_classes_are_refused(folder):
    path = folder()
    refused(path, "'cta'", 'cat, dog', "Did you mean 'cat'", exclude=['cta'])
    refused(path, 'min_positives=4', 'no class', 'most frequent', '3 positives', min_positives=4)
    refused(path, 'no class', exclude=['cat', 'dog'])


def test_classes_never_used_or_without_training_positives_are_kept_with_a_warning(folder):
    path = folder(
        'image,never,untaught,fine,split\na.jpg,0,0,1,train\nb.jpg,,0,1,train\nc.jpg,0,1,1,val\nd.jpg,0,1,0,test\n',
        ['a.jpg', 'b.jpg', 'c.jpg', 'd.jpg'],
    )
    with pytest.warns(UserWarning) as told:
        data = load(path)
    said = {
        re.search(r'set: a class (is never used|cannot be learned)', str(w.message))[1]: str(
            w.message
        )
        for w in told
    }
    assert (
        ': never. It is kept' in said['is never used']
        and ': untaught. It is kept' in said['cannot be learned']
        and len(told) == 2
    )
    assert '`-p exclude untaught`' in said['cannot be learned']
    assert 'cole' not in said['cannot be learned']
    assert data.class_names == ['never', 'untaught', 'fine']
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        load(path, min_positives=3)


@pytest.mark.silent('C2')
def test_groups_in_different_parts_are_told_before_training(folder):
    parts = ('train', 'train', 'train', 'val', 'test', 'test')
    names = [f'{k}.jpg' for k in range(6)]

    def write(groups, split=parts):
        rows = [
            f'{name},{("red|blue", "red", "blue")[k % 3]},{part},{group}'
            for k, (name, part, group) in enumerate(zip(names, split, groups, strict=True))
        ]
        return folder('\n'.join(['image,labels,split,group', *rows]), names)

    with pytest.warns(UserWarning, match='set: photos of a group are in different parts') as told:
        load(write(['a', '', 'b', 'b', 'a', '']))
    (said,) = {str(warning.message) for warning in told}
    assert ': 2 groups, a, b. Give' in said
    for groups, scored in (
        (['a', 'a', '', 'b', 'c', 'c'], False),
        (['a', '', 'b', 'b', 'a', ''], True),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            load(write(groups), scored=scored)


# ---- names and folders


def test_an_unknown_word_lists_the_names_and_a_path_the_places(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(
        'voc21',
        "unknown data set 'voc21'",
        'mini_voc',
        'coco14',
        "Did you mean 'voc12'",
        tmp_path / 'voc21',
    )
    refused('no/where', 'no folder no/where', tmp_path / 'no' / 'where')
    refused(tmp_path / 'gone', tmp_path / 'gone')
    for wrong in ('', None, 3):
        refused(wrong, 'is a name or a folder', repr(wrong))


@pytest.mark.parametrize('name', BENCHMARKS)
def test_a_benchmark_that_is_not_there_says_what_is_missing_and_where(name, tmp_path):
    refused(name, name, tmp_path / name, 'is not there', 'labels.csv', root=tmp_path)


def test_a_half_ready_benchmark_says_which_half(folder, tmp_path):
    folder(table=None, at='voc12')
    refused(
        'voc12',
        "data set 'voc12'",
        tmp_path / 'voc12' / 'labels.csv',
        'is not there',
        root=tmp_path,
    )
    (tmp_path / 'cub').mkdir()
    (tmp_path / 'cub' / 'labels.csv').write_text(ROWS)
    refused('cub', tmp_path / 'cub' / 'images', 'is not there', root=tmp_path)


def test_a_relative_folder_is_looked_for_here_then_beside_the_settings(
    folder, tmp_path, monkeypatch
):
    folder(at='project/mine')
    folder(at='here/other')
    (tmp_path / 'project' / 'settings.ini').write_text('[spml_nb]\ndata = data\n')
    monkeypatch.setenv('SPML_NB_SETTINGS', str(tmp_path / 'project' / 'settings.ini'))
    monkeypatch.chdir(tmp_path / 'here')
    assert load('mine').images[0] == tmp_path / 'project' / 'mine' / 'images' / 'a.jpg'
    assert load('other').images[0] == tmp_path / 'here' / 'other' / 'images' / 'a.jpg'
    folder(at='here/mine')
    assert load('mine').images[0].is_relative_to(tmp_path / 'here')
    assert load('../project/mine').images[0].is_relative_to(tmp_path / 'project')
    assert load('mine', root='../project').images[0].is_relative_to(tmp_path / 'project')


def test_a_path_is_a_folder_even_under_a_benchmarks_name(folder, tmp_path, monkeypatch):
    folder(at='cub')
    monkeypatch.chdir(tmp_path)
    assert load(Path('cub')).class_names == ['cat', 'dog']
    refused('cub', "data set 'cub'", root=tmp_path / 'elsewhere')


def test_one_label_each_is_doubted_in_a_folder_and_not_in_a_benchmark(folder, tmp_path):
    path = folder(
        'image,labels,split\na.jpg,cat,train\nb.jpg,dog,train\nc.jpg,cat,val\nd.jpg,dog,test\n',
        ['a.jpg', 'b.jpg', 'c.jpg', 'd.jpg'],
        at='cub',
    )
    with pytest.warns(UserWarning, match='exactly one label'):
        load(path)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        load('cub', root=tmp_path)


# ---- miniatures


def test_a_miniature_is_drawn_by_name_and_obeys_the_same_choices(monkeypatch):
    split = np.array(['train', 'train', 'val', 'test'])
    drawn = (
        np.zeros((4, 5, 5, 3), np.uint8),
        np.array([[1, 1], [1, -1], [1, -1], [-1, 1]], np.int8),
        ['one', 'two'],
        split,
    )
    monkeypatch.setattr(loading, 'MINIATURES', ('mini_voc', 'mini_fake'))
    monkeypatch.setattr(miniatures, 'draw_miniature', lambda name: drawn)
    data = load('mini_fake', min_positives=3)
    assert (
        data.images_in_memory
        and data.class_names == ['one']
        and data.labels.dtype == np.int8
        and data.name == 'mini_fake'
    )
    refused('mini_voe', "Did you mean 'mini_voc'")


def test_a_real_miniature_loads():
    data = load('mini_voc')
    assert (
        data.images_in_memory
        and len(data.class_names) == 20
        and set(np.unique(data.labels)) == {-1, 1}
    )
    assert [len(data.rows(part)) for part in datasets.PARTS] == [
        1600,
        400,
        1000,
    ] and '20 classes' in repr(data)
