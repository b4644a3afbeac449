"""From what was read to a new folder: what a missing name means, parts, links, and the source."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from spml_nb.base.errors import SpmlError
from spml_nb.data.folder import read_label_table
from spml_nb.data.importing import (
    label_table,
    preview_import,
    read_source,
    summarize_import,
    write_folder,
)
from spml_nb.data.loading import load

pytestmark = pytest.mark.filterwarnings('ignore:.*(no training image has it|did you mean|made of)')


@pytest.fixture
def table(tmp_path):
    "A function that writes photos and a table of them, and reads both."

    def write(text, count=6):
        (tmp_path / 'source' / 'pictures').mkdir(parents=True)
        for k in range(count):
            Image.new('RGB', (8, 6), (40 * k, 0, 0)).save(tmp_path / f'source/pictures/{k}.png')
        (tmp_path / 'source' / 'table.csv').write_text(text, encoding='utf-8')
        return read_source(tmp_path / 'source')

    return write


def rows(*cells, header='file,tags'):
    return '\n'.join([header, *(f'{k}.png,{cell}' for k, cell in enumerate(cells))])


def test_what_is_not_given_is_absent_or_unknown(table):
    source = table(rows('cat', 'cat|dog', '', 'dog'))
    complete = label_table(source, 'complete')
    assert complete['labels'].tolist() == ['cat', 'cat|dog', '', 'dog']
    positives = label_table(source, 'positives-only')
    assert positives['positives'].tolist() == ['cat', 'cat|dog', 'dog']
    assert 'pictures/2.png' in summarize_import(source, positives).splitlines()[-1]
    with pytest.raises(SpmlError, match="'both'.*complete, positives-only"):
        label_table(source, 'both')


def test_zeros_of_a_table_stay_and_the_rest_is_as_told(table):
    source = table(rows('1,0', '0,1', ',1', '1,', header='file,cat,dog'))
    assert source.meaning == 'positives-only'
    assert label_table(source, 'complete')['labels'].tolist() == ['cat', 'dog', 'dog', 'cat']
    assert label_table(source, 'positives-only')[['cat', 'dog']].to_numpy().tolist() == [
        ['1', '0'],
        ['0', '1'],
        ['', '1'],
        ['1', ''],
    ]


def test_a_class_may_be_called_like_a_column_but_not_in_a_table_of_columns(table):
    source = table(rows('image', 'split|labels', 'labels', 'image'))
    assert label_table(source, 'complete')['labels'].tolist()[1] == 'labels|split'
    source.photos['pictures/0.png'].unknown.add('split')
    with pytest.raises(SpmlError, match="'image', 'labels', 'split'"):
        label_table(source, 'complete')


@pytest.mark.parametrize(
    'parts, written',
    [
        ('train,val,test,train', 'train,val,test,train'),
        ('train,valid,train,val2017', 'train,test,train,test'),
        ('train,testing,,train', 'train,test,train,train'),
        ('val,val,test,test', None),
        ('train,train,train,train', None),
        (',,,', None),
    ],
)
def test_parts_are_those_that_a_table_can_have(table, parts, written):
    cells = [f'cat,{part}' for part in parts.split(',')]
    source = table(rows(*cells, header='file,label,subset'))
    made = label_table(source, 'complete')
    assert ','.join(made.get('split', [])) == (written or '')


def test_a_column_of_groups_comes_along(table):
    source = table(rows('cat,north', 'dog,south', 'cat,north', header='file,label,group'))
    assert label_table(source, 'complete')['group'].tolist() == ['north', 'south', 'north']


def test_further_rows_of_a_photo_do_not_remove_its_group(table):
    source = table('file,label,group\n0.png,cat,north\n0.png,dog,\n1.png,cat,south\n')
    assert label_table(source, 'complete')['group'].tolist() == ['north', 'south']


def test_columns_beside_one_of_names_are_told(table):
    source = table('file,label,category,split\n0.png,cat,pet,train\n1.png,dog,pet,test\n')
    assert source.left_out["columns beside 'label'"] == ['category']
    assert "left out: columns beside 'label': category" in summarize_import(
        source, label_table(source, 'complete')
    )


def test_words_that_name_no_part_are_noted(table):
    "Their photos are in the training part."
    parts = ['train', 'test', 'holdout', '', 'holdout']
    source = table(rows(*(f'cat,{part}' for part in parts), header='file,label,subset'))
    made = label_table(source, 'complete')
    assert made['split'].tolist() == ['train', 'test', 'train', 'train', 'train']
    note = "noted: words in the column 'subset' that name no part: holdout"
    assert note in summarize_import(source, made).splitlines()


@pytest.mark.parametrize('copy', [False, True])
def test_photos_are_linked_or_copied(table, tmp_path, copy):
    write_folder(table(rows('cat', 'dog')), tmp_path / 'new', 'complete', copy)
    photo = tmp_path / 'new' / 'images' / '1.png'
    assert photo.is_symlink() != copy
    assert photo.read_bytes() == (tmp_path / 'source/pictures/1.png').read_bytes()
    assert sorted(os.listdir(tmp_path)) == ['new', 'source']


def test_nothing_is_overwritten_and_nothing_half_written_stays(table, tmp_path, monkeypatch):
    source = table(rows('cat', 'dog'))
    with pytest.raises(SpmlError, match='is inside the source'):
        write_folder(source, tmp_path / 'source' / 'new', 'complete')
    write_folder(source, tmp_path / 'new', 'complete')
    with pytest.raises(SpmlError, match='exists already'):
        write_folder(source, tmp_path / 'new', 'complete')

    def refuse(*_, **__):
        raise OSError('no links here')

    monkeypatch.setattr('pathlib.Path.symlink_to', refuse)
    with pytest.raises(SpmlError, match='no links here.*--copy'):
        write_folder(source, tmp_path / 'other', 'complete')
    assert sorted(os.listdir(tmp_path)) == ['new', 'source']


def test_no_cell_is_a_formula_or_taken_for_something_else(table, tmp_path):
    source = table(rows('=1+1', '"a, b"', '0', '[x]'))
    write_folder(source, tmp_path / 'new', 'complete')
    cells = read_label_table(tmp_path / 'new' / 'labels.csv')
    assert not any(cell[:1] in '=+-@' for cell in cells['labels'])
    data = load(tmp_path / 'new')
    assert data.class_names == ['0', '=1+1', '[x]', 'a, b']
    assert data.labels.argmax(1).tolist() == [1, 3, 0, 2]


def test_two_classes_never_get_one_name(table):
    with pytest.raises(SpmlError, match='a¦b'):
        table(rows('1,0', '0,1', header='file,a¦b,a|b'))


def test_ten_photos_are_shown(table):
    source = table(rows(*(['cat'] * 30)), count=30)
    lines = preview_import(source).splitlines()
    assert len(lines) == 12
    assert sum('cat' in line for line in lines) == 10
    assert np.isclose(float(lines[0].split()[-4]), 1)


def test_missing_places_are_named(tmp_path):
    with pytest.raises(SpmlError, match='gone'):
        read_source(tmp_path / 'gone')
    with pytest.raises(SpmlError, match='pics'):
        read_source(tmp_path, images=tmp_path / 'pics')
    with pytest.raises(SpmlError, match='coco, |coco \\(COCO JSON\\)'):
        read_source(tmp_path)


@pytest.mark.parametrize('layout', ['yolo', 'coco', 'voc', 'table', 'folders'])
def test_a_path_that_goes_up_is_read_as_the_whole_one(tmp_path, monkeypatch, layout):
    place = write_layout(tmp_path, layout)
    (tmp_path / 'work').mkdir()
    monkeypatch.chdir(tmp_path / 'work')
    whole = read_source(place)
    for way_up in (Path('..', place.name), Path('../work/..', place.name)):
        source = read_source(way_up, images=Path('..', place.name))
        assert source.photos == whole.photos and source.photos
    with pytest.raises(SpmlError, match='is inside the source'):
        write_folder(whole, Path('..', place.name, 'new'), 'complete')


def write_layout(folder, layout):
    "Two photos in a layout, with names that a photo or its label file leads to."
    place = folder / 'source'
    for name, where in (('cat', 'images'), ('dog', 'images')):
        part = name if layout == 'folders' else where
        (place / part).mkdir(parents=True, exist_ok=True)
        Image.new('RGB', (8, 8)).save(place / part / f'{name}.png')
    if layout == 'yolo':
        (place / 'labels').mkdir()
        for k, name in enumerate(('cat', 'dog')):
            (place / 'labels' / f'{name}.txt').write_text(f'{k} 0.5 0.5 0.1 0.1')
        (place / 'data.yaml').write_text('path: .\ntrain: images\nnames: [cat, dog]\n')
    if layout == 'coco':
        names = list(enumerate(('cat', 'dog')))
        document = {
            'images': [{'id': k, 'file_name': f'images/{name}.png'} for k, name in names],
            'categories': [{'id': k, 'name': name} for k, name in names],
            'annotations': [{'image_id': k, 'category_id': k} for k, _ in names],
        }
        (place / 'labels.json').write_text(json.dumps(document))
    if layout == 'voc':
        for name in ('cat', 'dog'):
            (place / f'{name}.xml').write_text(
                f'<annotation><filename>{name}.png</filename><object><name>{name}</name></object>'
                '</annotation>'
            )
    if layout == 'table':
        (place / 'table.csv').write_text('photo,labels\ncat.png,cat\ndog.png,dog\n')
    return place


def test_a_link_to_labels_stands_for_labels_where_it_lies(tmp_path, monkeypatch):
    place = write_layout(tmp_path, 'coco')
    (tmp_path / 'store').mkdir()
    (place / 'labels.json').rename(tmp_path / 'store' / 'labels.json')
    (place / 'labels.json').symlink_to(tmp_path / 'store' / 'labels.json')
    (tmp_path / 'work').mkdir()
    monkeypatch.chdir(tmp_path / 'work')
    assert len(read_source(Path('../source/labels.json')).photos) == 2
