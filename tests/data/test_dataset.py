"""Data sets: what is read from a table, how it is split, and how each wrong input is answered."""
import re
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest

import spml_nb
from spml_nb import data as datasets
from spml_nb.data.loading import BENCHMARKS, load
from spml_nb.data.dataset import Dataset
from spml_nb.base.errors import SpmlError

pytestmark = pytest.mark.filterwarnings('ignore:.*no training image has it')  # small tables; the warning has its own test
NAMES = ['a.jpg', 'b.jpg', 'c.jpg', 'd.jpg', 'e.jpg', 'f.jpg']
ROWS = 'image,cat,dog,split\na.jpg,1,0,train\nb.jpg,0,1,train\nc.jpg,1,,val\nd.jpg,1,1,test\n'


@pytest.fixture
def folder(tmp_path):
    "A function that writes a data set; loading needs the files' names, never their content."
    def write(table=ROWS, names=NAMES, at='set', encoding='utf-8'):
        for name in names:
            file = tmp_path / at / 'images' / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b'x' * (1 + len(name)))
        if table is not None: (tmp_path / at / 'labels.csv').write_text(table, encoding=encoding)
        return tmp_path / at
    return write


def refused(what, *parts, **options):
    "The message of the SpmlError that `load` raises; it must contain every part."
    with pytest.raises(SpmlError) as caught: load(what, **options)
    for part in parts: assert str(part) in str(caught.value), str(caught.value)
    return str(caught.value)


def numbered(n, **columns):
    "A table of n rows with names 0.jpg …"
    lines = ['image,labels' + ''.join(f',{name}' for name in columns)]
    lines += [','.join([f'{k}.jpg', 'x|y' if k % 2 else 'x', *(values[k] for values in columns.values())]) for k in range(n)]
    return '\n'.join(lines), [f'{k}.jpg' for k in range(n)]


# ---- what is read

def test_zero_one_columns_become_plus_and_minus_one_and_empty_is_unknown(folder):
    data = load(folder())
    assert data.class_names == ['cat', 'dog'] and data.labels.dtype == np.int8
    assert data.labels.tolist() == [[1, -1], [-1, 1], [1, 0], [1, 1]]
    assert data.split.tolist() == ['train', 'train', 'val', 'test'] and data.rows('train').tolist() == [0, 1]
    assert [path.name for path in data.images] == NAMES[:4] and all(path.is_absolute() for path in data.images)
    assert data.name == 'set' and len(data) == 4 and not data.images_in_memory


def test_empty_cells_stay_unknown_where_no_cell_is_zero(folder):
    data = load(folder('image,cat,dog,split\na.jpg,1,,train\nb.jpg,,1,val\nc.jpg,1,,test\n'))
    assert data.labels.tolist() == [[1, 0], [0, 1], [1, 0]]


def test_a_labels_column_lists_what_is_present_and_all_else_is_absent(folder):
    data = load(folder('image,split,labels\na.jpg,train,dog|cat\nb.jpg,train,\nc.jpg,val, cat |\nd.jpg,test,"cow, brown"\n'))
    assert data.class_names == ['cat', 'cow, brown', 'dog']
    assert data.labels.tolist() == [[1, -1, 1], [-1, -1, -1], [1, -1, -1], [-1, 1, -1]]


def test_class_columns_keep_the_order_of_the_table_and_floats_of_a_table_with_gaps_are_read(folder):
    data = load(folder('image,zebra,ant,split\na.jpg,1.0,,train\nb.jpg,0.0,1.0,val\nc.jpg, 1 ,0,test\n'))
    assert data.class_names == ['zebra', 'ant'] and data.labels.tolist() == [[1, 0], [-1, 1], [1, -1]]


def test_labels_that_look_missing_to_pandas_are_names(folder):
    data = load(folder('image,labels,split\na.jpg,NA|null,train\nb.jpg,None,val\nc.jpg,nan,test\n', names=['a.jpg', 'b.jpg', 'c.jpg']))
    assert data.class_names == ['NA', 'None', 'nan', 'null']


def test_unicode_names_and_a_byte_order_mark_are_fine(folder):
    table = 'image,labels,split\nété/naïve 猫.jpg,猫|Größe,train\nb.jpg,猫,val\nc.jpg,猫,test\n'
    data = load(folder(table, names=['été/naïve 猫.jpg', 'b.jpg', 'c.jpg'], encoding='utf-8-sig', at='día'))
    assert data.class_names == ['Größe', '猫'] and data.name == 'día' and data.image_names[0] == 'été/naïve 猫.jpg'


def test_images_may_lie_in_subfolders_and_spare_files_do_not_matter(folder):
    data = load(folder('image,labels,split\nx/a.jpg,u,train\ny/a.jpg,u,val\n./a.jpg,u,test\n', names=['x/a.jpg', 'y/a.jpg', 'a.jpg', 'spare.txt']))
    assert data.image_names == ['x/a.jpg', 'y/a.jpg', 'a.jpg']


# ---- split

def test_without_a_split_the_protocol_is_used_twice(folder):
    table, names = numbered(50)
    data = load(folder(table, names))
    order = np.random.RandomState(1200).permutation(50)
    test, rest = np.sort(order[40:]), np.sort(order[:40])
    val = np.sort(rest[np.random.RandomState(1200).permutation(40)[32:]])
    assert data.rows('test').tolist() == test.tolist() and data.rows('val').tolist() == val.tolist() and len(data.rows('train')) == 32


def test_a_split_without_validation_takes_it_from_train_alone(folder):
    table, names = numbered(50, split=['test' if k % 5 == 0 else 'train' for k in range(50)])
    data = load(folder(table, names))
    train = np.array([k for k in range(50) if k % 5])
    assert data.rows('test').tolist() == list(range(0, 50, 5))
    assert data.rows('val').tolist() == np.sort(train[np.random.RandomState(1200).permutation(40)[32:]]).tolist()


def test_a_split_without_test_rows_is_refused_with_the_two_remedies(folder):
    refused(folder('image,labels,split\na.jpg,u,train\nb.jpg,u,val\n'), 'no test row', 'Mark some', 'remove the column', '20 %')


@pytest.mark.parametrize('word', ['training', 'Train', '', 'tset'])
def test_an_unknown_split_is_named_with_row_and_image(folder, word):
    refused(folder(f'image,labels,split\na.jpg,u,train\nb.jpg,u,{word}\nc.jpg,u,test\n'), f'unknown split {word!r}', 'row 2', 'b.jpg', 'train, val, test')


def test_too_few_rows_for_three_parts_are_refused(folder):
    table, names = numbered(2)
    refused(folder(table, names), '2 rows are too few', 'labels.csv')
    refused(folder('image,labels,split\na.jpg,u,train\nb.jpg,u,test\n', at='other'), '1 rows are too few')
    refused(folder('image,labels,split\na.jpg,u,val\nb.jpg,u,test\n', at='third'), 'no train row')


# ---- the real photos

def test_clothing_photos_have_the_protocols_numbers(ccp):
    data = load(ccp, min_positives=40, exclude=['skin', 'hair'])
    assert len(data) == 2098 and len(data.class_names) == 47 and [len(data.rows(part)) for part in datasets.PARTS] == [1342, 336, 420]
    assert round((data.labels > 0).sum() / len(data), 1) == 5.5 and set(np.unique(data.labels)) == {-1, 1}
    whole = load(ccp)
    assert len(whole.class_names) == 55 and round((whole.labels > 0).sum() / len(whole), 1) == 7.5


def test_a_named_benchmark_is_read_from_the_data_folder(ccp, monkeypatch):
    monkeypatch.setenv('SPML_NB_DATA', str(ccp.parent))
    assert load('ccp').fingerprint == load('ccp', root=ccp.parent).fingerprint == load(ccp).fingerprint


# ---- classes

def test_rare_and_excluded_classes_are_left_out_counted_over_all_rows(folder):
    path = folder('image,rare,often,skin,split\na.jpg,0,1,1,train\nb.jpg,0,1,1,val\nc.jpg,1,1,1,test\nd.jpg,1,0,1,test\n')
    assert load(path, min_positives=2).class_names == ['rare', 'often', 'skin']
    assert load(path, min_positives=3).class_names == ['often', 'skin']
    data = load(path, min_positives=2, exclude=['skin'])
    assert data.class_names == ['rare', 'often'] and data.labels.tolist() == [[-1, 1], [-1, 1], [1, 1], [1, -1]]
    assert load(path, min_positives=3, exclude='skin').class_names == ['often']


def test_wrong_choices_of_classes_are_refused(folder):
    path = folder()
    refused(path, "'cta'", 'cat, dog', "Did you mean 'cat'", exclude=['cta'])
    refused(path, 'min_positives=4', 'no class', 'most frequent', '3 positives', min_positives=4)
    refused(path, 'no class', exclude=['cat', 'dog'])


def test_classes_never_used_or_without_training_positives_are_kept_with_a_warning(folder):
    path = folder('image,never,untaught,fine,split\na.jpg,0,0,1,train\nb.jpg,,0,1,train\nc.jpg,0,1,1,val\nd.jpg,0,1,1,test\n')
    with pytest.warns(UserWarning) as told: data = load(path)
    said = {re.search(r'set: (label never used|no training image)', str(w.message))[1]: str(w.message) for w in told}
    assert ': never. Kept' in said['label never used'] and ': untaught. Kept' in said['no training image'] and len(told) == 2
    assert Path(told[0].filename) == Path(__file__)
    assert data.class_names == ['never', 'untaught', 'fine']
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        load(path, min_positives=3)


# ---- names and folders

def test_an_unknown_word_lists_the_names_and_a_path_the_places(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused('voc21', "unknown data set 'voc21'", 'mini_voc', 'coco14', "Did you mean 'voc12'", tmp_path / 'voc21')
    refused('no/where', 'no folder no/where', tmp_path / 'no' / 'where')
    refused(tmp_path / 'gone', tmp_path / 'gone')
    for wrong in ('', None, 3): refused(wrong, 'named by a word or a folder')


@pytest.mark.parametrize('name', BENCHMARKS)
def test_a_benchmark_that_is_not_there_says_what_is_missing_and_where(name, tmp_path):
    refused(name, name, tmp_path / name, 'is not there', 'labels.csv', root=tmp_path)


def test_a_half_ready_benchmark_says_which_half(folder, tmp_path):
    folder(table=None, at='voc12')
    refused('voc12', "data set 'voc12'", tmp_path / 'voc12' / 'labels.csv', 'is not there', root=tmp_path)
    (tmp_path / 'cub').mkdir(); (tmp_path / 'cub' / 'labels.csv').write_text(ROWS)
    refused('cub', tmp_path / 'cub' / 'images', 'is not there', root=tmp_path)


def test_a_relative_folder_is_looked_for_here_then_beside_the_settings(folder, tmp_path, monkeypatch):
    folder(at='project/mine'); folder(at='here/other')
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
    folder(at='cub'); monkeypatch.chdir(tmp_path)
    assert load(Path('cub')).class_names == ['cat', 'dog']
    refused('cub', "data set 'cub'", root=tmp_path / 'elsewhere')


def test_empty_and_incomplete_folders_are_told_apart(folder, tmp_path):
    (tmp_path / 'empty').mkdir()
    refused(tmp_path / 'empty', 'is empty', 'images/ and labels.csv')
    refused(folder(table=None, at='bare'), 'labels.csv is not there')
    (tmp_path / 'file').write_text('x')
    refused(tmp_path / 'file', 'is a file')


def test_no_images_folder_and_an_empty_one_are_named(tmp_path):
    (tmp_path / 's').mkdir(); (tmp_path / 's' / 'labels.csv').write_text(ROWS)
    refused(tmp_path / 's', tmp_path / 's' / 'images', 'is not there')
    (tmp_path / 's' / 'images').mkdir()
    refused(tmp_path / 's', tmp_path / 's' / 'images', 'is empty')


@pytest.mark.parametrize('base', ['', 'images/'])
def test_one_folder_a_class_is_refused_with_what_to_do(base, tmp_path):
    for name in ('cat', 'dog'):
        (tmp_path / 's' / base / name).mkdir(parents=True)
        (tmp_path / 's' / base / name / '1.JPG').write_bytes(b'x')
    refused(tmp_path / 's', 'One folder a class (cat, dog) is not supported', 'several labels', 'cat/photo.jpg,cat|other')


# ---- tables

def test_all_absent_images_are_counted_and_ten_are_listed(folder):
    table, names = numbered(30)
    message = refused(folder(table, names[:3]), '27 images', '3.jpg', '12.jpg', '(27 in all)')
    assert '13.jpg' not in message


def test_duplicate_images_are_refused_whatever_their_spelling(folder):
    refused(folder('image,labels,split\na.jpg,u,train\nb.jpg,u,val\n./a.jpg,u,test\n'), 'more than one row for: a.jpg')


@pytest.mark.parametrize('name', ['../out.jpg', 'x/../../out.jpg', '/etc/hostname', '..', ' '])
def test_images_outside_the_folder_are_refused(folder, tmp_path, name):
    path = folder(f'image,labels,split\na.jpg,u,train\nb.jpg,u,val\n{name},u,test\n')
    (path / 'out.jpg').write_bytes(b'x')
    refused(path, 'outside', repr(name))


@pytest.mark.parametrize('header', ['file,cat,dog', 'cat,image', 'image', 'image,split', 'image,labels,cat', 'image;labels', 'image,cat,cat', 'image,cat,'])
def test_unknown_layouts_show_the_columns_and_the_two_known_ones(folder, header):
    row = ','.join(['a.jpg', *'0' * header.count(',')])
    refused(folder(f'{header}\n{row}\n'), 'unknown layout', 'either one column a class', 'one column `labels`')


@pytest.mark.parametrize('cell', ['2', '-1', 'yes', '0.5', 'NaN'])
def test_a_cell_that_is_no_label_is_named_with_row_column_and_value(folder, cell):
    refused(folder(f'image,cat,dog,split\na.jpg,1,1,train\nb.jpg,1,{cell},val\nc.jpg,1,0,test\n'), repr(cell), 'row 2', 'b.jpg', "column 'dog'", '1 (present)')


@pytest.mark.parametrize('table, part', [('', 'is empty'), ('image,labels\n', 'no rows'), ('image,cat,dog\na.jpg,1\n', '1 (2)'),
                                         ('image,cat\na.jpg,1\nb.jpg,1,1\n', '2 (3)'), ('image,cat\n"a.jpg,1\n', 'cannot be read'), ('image,labels\na.jpg,\n', 'no label')])
def test_tables_that_are_empty_or_ragged_are_refused(folder, table, part): refused(folder(table), part, 'labels.csv')


def test_a_table_that_is_not_utf8_is_refused(folder):
    refused(folder('image,labels\na.jpg,Größe\n', encoding='latin-1'), 'UTF-8')


# ---- the Dataset itself

def small(**changes):
    fields = dict(name='s', images=np.zeros((3, 4, 4, 3), np.uint8), labels=np.array([[1], [-1], [0]], np.int8), class_names=['c'],
                  split=np.array(['train', 'val', 'test']))
    return Dataset(**fields | changes)


@pytest.mark.parametrize('change', [
    {'images': np.zeros((3, 4, 4, 3))}, {'images': np.zeros((3, 4, 4), np.uint8)}, {'labels': np.array([[1], [-1]], np.int8)},
    {'labels': np.array([[2], [0], [0]], np.int8)}, {'labels': np.array([[-2], [0], [0]], np.int8)}, {'labels': np.ones((3, 1))}, {'class_names': ['c', 'd']},
    {'labels': np.ones((3, 2), np.int8), 'class_names': ['c', 'c']}, {'split': np.array(['train', 'val', 'dev'])}, {'split': np.array(['train'])}])
def test_fields_that_do_not_fit_together_are_refused(change):
    with pytest.raises(SpmlError, match="data set 's'"): small(**change)


def test_an_unknown_part_is_refused():
    with pytest.raises(SpmlError, match="'valid'"): small().rows('valid')


def test_the_fingerprint_follows_content_and_nothing_else(folder):
    first, copy = load(folder()), load(folder(at='copy'))
    assert first.fingerprint == copy.fingerprint == load(folder()).fingerprint and re.fullmatch('[0-9a-f]{16}', first.fingerprint)
    others = [load(folder(ROWS.replace('1,0,train', '1,1,train'), at='label')), load(folder(ROWS.replace('c.jpg,1,,val', 'c.jpg,1,,train').replace(
        'b.jpg,0,1,train', 'b.jpg,0,1,val'), at='split')), load(folder(ROWS.replace('cat', 'cow'), at='name')),
        load(folder(ROWS.replace('a.jpg', 'f.jpg'), at='file'))]
    larger = folder(at='size'); (larger / 'images' / 'a.jpg').write_bytes(b'longer than before'); others.append(load(larger))
    assert len({first.fingerprint, *(other.fingerprint for other in others)}) == 6
    (folder() / 'images' / 'a.jpg').unlink()
    gone = Dataset(first.name, first.images, first.labels, first.class_names, first.split)
    with pytest.raises(SpmlError, match=r'a\.jpg'): _ = gone.fingerprint


def test_the_fingerprint_of_images_in_memory_covers_their_pixels():
    brighter = np.zeros((3, 4, 4, 3), np.uint8); brighter[2, 3, 3, 2] = 1
    assert small().fingerprint == small(name='t').fingerprint != small(images=brighter).fingerprint
    assert small(split=np.array(['train', 'val', 'test'], dtype='<U9')).fingerprint == small().fingerprint


def test_a_miniature_is_drawn_by_name_and_obeys_the_same_choices(monkeypatch):
    split = np.array(['train', 'train', 'val', 'test'])
    drawn = np.zeros((4, 5, 5, 3), np.uint8), np.array([[1, 1], [1, -1], [1, -1], [-1, 1]]), ['one', 'two'], split
    fake = types.SimpleNamespace(NAMES=('mini_voc', 'mini_fake'), draw=lambda name: drawn)
    monkeypatch.setitem(sys.modules, 'spml_nb.data.miniatures', fake); monkeypatch.setattr(spml_nb, 'miniatures', fake, raising=False)
    data = load('mini_fake', min_positives=3)
    assert data.images_in_memory and data.class_names == ['one'] and data.labels.dtype == np.int8 and data.name == 'mini_fake'
    refused('mini_voe', "Did you mean 'mini_voc'")


def test_a_real_miniature_loads():
    data = load('mini_voc')
    assert data.images_in_memory and len(data.class_names) == 20 and set(np.unique(data.labels)) == {-1, 1}
    assert [len(data.rows(part)) for part in datasets.PARTS] == [1600, 400, 1000] and '20 classes' in repr(data)
