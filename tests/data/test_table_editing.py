"""One label of a table is changed, and nothing else; old tables are kept."""

import numpy as np
import pytest
from PIL import Image

from spml_nb.base.errors import SpmlError
from spml_nb.data.folder import read_folder
from spml_nb.data.table_editing import back_up_table, write_label

TABLES = {
    'labels': 'image,labels,split,group\n'
    '1.jpg,a|b,train,x\n2.jpg,b,test,x\n3.jpg,,train,y\n4.jpg,a,val,y\n',
    'positives': 'image,positives,split\n'
    '1.jpg,a|b,train\n2.jpg,b,test\n3.jpg,,train\n4.jpg,a,val\n',
    'matrix': 'image,b,a,split\n1.jpg,1,1,train\n2.jpg,1,0,test\n3.jpg,,,train\n4.jpg,0,1.0,val\n',
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / 'images').mkdir()
    for k in range(1, 5):
        Image.new('RGB', (4, 4)).save(tmp_path / 'images' / f'{k}.jpg')
    return tmp_path


@pytest.mark.parametrize('mark', ['', '\ufeff'])
@pytest.mark.parametrize('end', ['\n', '\r\n'])
@pytest.mark.parametrize('label', [1, 0, -1])
@pytest.mark.parametrize('layout', TABLES)
def test_one_label_changes_and_nothing_else(folder, layout, label, end, mark):
    file = folder / 'labels.csv'
    before = (mark + TABLES[layout].replace('\n', end)).encode()
    file.write_bytes(before)
    old = read_folder(folder, 'x')
    rest = {'labels': -1, 'positives': 0}.get(layout)
    for row, image in enumerate(('1.jpg', '2.jpg', '3.jpg', '4.jpg')):
        for name in ('a', 'b'):
            file.write_bytes(before)
            write_label(file, image, name, label)
            expected = old.labels.copy()
            column = old.class_names.index(name)
            expected[row, column] = label if rest is None or label > 0 else rest
            now = read_folder(folder, 'x')
            assert np.array_equal(now.labels, expected)
            assert (now.split == old.split).all() and now.groups == old.groups
            lines = file.read_bytes().split(end.encode())
            others = [k for k, line in enumerate(before.split(end.encode())) if k != row + 1]
            assert all(lines[k] == before.split(end.encode())[k] for k in others)


@pytest.mark.parametrize('name', ['Katze, groß', '=1+1', 'a;b', '猫', '"x"'])
def test_names_with_signs_survive(folder, name):
    file = folder / 'labels.csv'
    quoted = name.replace('"', '""')
    file.write_text(f'image,positives\n1.jpg,"a|{quoted}"\n2.jpg,a\n3.jpg,a\n4.jpg,a\n')
    for image in ('2.jpg', '3.jpg'):
        write_label(file, image, name, 1)
    for image in ('1.jpg', '2.jpg', '3.jpg', '4.jpg'):
        write_label(file, image, 'a', 0)
    data = read_folder(folder, 'x')
    assert data.class_names == [name]
    assert data.labels[:, 0].tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize('image, name', [('9.jpg', 'a'), ('1.jpg', 'z')])
def test_what_is_no_longer_there_is_not_written(folder, image, name):
    file = folder / 'labels.csv'
    file.write_text(TABLES['matrix'])
    with pytest.raises(SpmlError):
        write_label(file, image, name, 1)
    assert file.read_text() == TABLES['matrix']


def test_a_backup_takes_a_free_name(folder):
    file = folder / 'labels.csv'
    for k in range(3):
        file.write_text(f'{k}')
        back_up_table(file)
    names = ['labels.csv.bak', 'labels.csv.bak2', 'labels.csv.bak3']
    assert [(folder / name).read_text() for name in names] == ['0', '1', '2']
