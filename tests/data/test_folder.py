"""A folder of photos: what is read from its table, how it is split, and how each wrong input is answered."""

import numpy as np
import pytest
from tables import NAMES, ROWS, numbered, refused

from spml_nb.data.folder import Listing
from spml_nb.data.loading import load
from spml_nb.data.official.registry import table_text

pytestmark = pytest.mark.filterwarnings('ignore:.*no training image has it')  # small tables; the warning has its own test


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


def test_a_positives_column_lists_what_is_known_and_all_else_is_unknown(folder):
    data = load(folder('image,split,positives\na.jpg,train,dog|cat\nb.jpg,train,\nc.jpg,val, cat |\nd.jpg,test,"cow, brown"\n'))
    assert data.class_names == ['cat', 'cow, brown', 'dog']
    assert data.labels.tolist() == [[1, 0, 1], [0, 0, 0], [1, 0, 0], [0, 1, 0]]


def test_one_known_zero_leaves_every_empty_cell_unknown(folder):
    data = load(folder('image,cat,dog,split\na.jpg,1,,train\nb.jpg,,1,train\nc.jpg,1,,val\nd.jpg,0,1,test\n'))
    assert data.labels.tolist() == [[1, 0], [0, 1], [1, 0], [-1, 1]]


@pytest.mark.parametrize('kind, other', [('labels', '0'), ('positives', '')])
def test_a_column_of_names_and_columns_of_classes_say_the_same(folder, kind, other):
    named = [{'cat'}, {'cat', 'dog'}, {'dog'}, set(), {'dog', 'eel'}, {'cat'}]
    split = ['train', 'train', 'train', 'val', 'test', 'test']
    names = [f'image,{kind},split', *(f'{NAMES[k]},{"|".join(sorted(here))},{split[k]}' for k, here in enumerate(named))]
    cells = ['image,cat,dog,eel,split', *(','.join([NAMES[k], *('1' if c in here else other for c in ('cat', 'dog', 'eel')), split[k]]) for k, here in enumerate(named))]
    first, second = load(folder('\n'.join(names), at='one/set')), load(folder('\n'.join(cells), at='two/set'))
    assert first.class_names == second.class_names and first.fingerprint == second.fingerprint
    listing = Listing(first.image_names, first.labels, first.class_names, first.split.tolist())
    assert load(folder(table_text(listing), at='three/set')).fingerprint == first.fingerprint


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


@pytest.mark.parametrize('header', ['file,cat,dog', 'cat,image', 'image', 'image,split', 'image,labels,cat', 'image,positives,cat', 'image;labels', 'image,cat,cat', 'image,cat,'])
def test_unknown_layouts_show_the_columns_and_the_three_known_ones(folder, header):
    row = ','.join(['a.jpg', *'0' * header.count(',')])
    refused(folder(f'{header}\n{row}\n'), 'unknown layout', 'one column a class', 'one column `labels`', 'one column `positives`')


@pytest.mark.parametrize('header', ['image,labels,positives', 'positives,image,labels', 'image,positives,labels,split,cat'])
def test_two_columns_of_names_are_refused_with_what_to_do(folder, header):
    refused(folder(f"{header}\n{','.join('a' for _ in header.split(','))}\n"), 'both a column `labels` (complete) and a column `positives`', 'Keep one', 'empty cells')


@pytest.mark.parametrize('cell', ['2', '-1', 'yes', '0.5', 'NaN'])
def test_a_cell_that_is_no_label_is_named_with_row_column_and_value(folder, cell):
    refused(folder(f'image,cat,dog,split\na.jpg,1,1,train\nb.jpg,1,{cell},val\nc.jpg,1,0,test\n'), repr(cell), 'row 2', 'b.jpg', "column 'dog'", '1 (present)')


@pytest.mark.parametrize('table, part', [('', 'is empty'), ('image,labels\n', 'no rows'), ('image,cat,dog\na.jpg,1\n', '1 (2)'),
                                         ('image,cat\na.jpg,1\nb.jpg,1,1\n', '2 (3)'), ('image,cat\n"a.jpg,1\n', 'cannot be read'), ('image,labels\na.jpg,\n', 'no label'),
                                         ('image,positives\na.jpg,\n', '`positives` names no label')])
def test_tables_that_are_empty_or_ragged_are_refused(folder, table, part): refused(folder(table), part, 'labels.csv')


def test_a_table_that_is_not_utf8_is_refused(folder):
    refused(folder('image,labels\na.jpg,Größe\n', encoding='latin-1'), 'UTF-8')
