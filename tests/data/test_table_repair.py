"""What `spml data FOLDER --fix` mends, one mistake at a time, and what it leaves to a person."""

import codecs

import pytest
from PIL import Image

from spml_nb import cli
from spml_nb.base.errors import SpmlError
from spml_nb.data.folder import read_folder
from spml_nb.data.table_repair import mend_table

GOOD = (
    'image,labels,split\n'
    'a/1.jpg,cat|dog,train\n'
    'a/2.JPG,cat,train\n'
    'b/3.png,dog,val\n'
    'b/4.png,dog,test\n'
)


@pytest.fixture
def folder(tmp_path):
    for name in ('a/1.jpg', 'a/2.JPG', 'b/3.png', 'b/4.png'):
        file = tmp_path / 'images' / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new('RGB', (4, 4)).save(file)
    (tmp_path / 'labels.csv').write_text(GOOD)
    return tmp_path


MISTAKES = {
    'case': ('a/2.JPG', 'A/2.jpg'),
    'suffix': ('b/3.png', 'b/3'),
    'folder': ('b/3.png', '3.png'),
    'other separators of folders': ('b/3.png', 'b\\3.png'),
    'blanks': ('b/3.png', ' b/3.png '),
    'capitals in the header': ('image,labels,split', 'Image,LABELS,Split'),
    'words for parts': ('dog,val', 'dog,Validation'),
    'a doubled row': ('b/4.png,dog,test\n', 'b/4.png,dog,test\nb/4.png,dog,test\n'),
    'a doubled row in another case': ('b/4.png,dog,test\n', 'b/4.png,dog,test\nB/4.PNG,dog,test\n'),
    'a line for Excel': ('image,', 'sep=,\nimage,'),
    'semicolons': (',', ';'),
    'tabs': (',', '\t'),
}


@pytest.mark.parametrize('mistake', MISTAKES)
def test_a_mistake_is_mended(folder, mistake):
    file = folder / 'labels.csv'
    wrong = GOOD.replace(*MISTAKES[mistake])
    file.write_text(wrong)
    mending = mend_table(folder)
    assert file.read_text() == GOOD
    assert len(mending.changes) == 1 or mistake == 'a doubled row in another case'
    assert mending.backup.read_text() == wrong
    read_folder(folder, 'photos')
    assert mend_table(folder).changes == []  # once is enough


@pytest.mark.parametrize('encoding', ['cp1252', 'utf-16'])
def test_another_encoding_becomes_utf_8(folder, encoding):
    text = GOOD.replace('dog', 'äffchen')
    content = text.encode(encoding)
    (folder / 'labels.csv').write_bytes(content)
    mending = mend_table(folder)
    assert (folder / 'labels.csv').read_bytes() == text.encode()
    assert encoding in mending.changes[0] and mending.backup.read_bytes() == content


def test_mark_line_ends_and_other_cells_stay(folder):
    rest = GOOD.replace('cat|dog', '"a, b|\r\ndog"').replace('\n', '\r\n').replace('\r\r', '\r')
    content = codecs.BOM_UTF8 + rest.replace('b/3.png', 'b/3').encode()
    (folder / 'labels.csv').write_bytes(content)
    mend_table(folder)
    assert (folder / 'labels.csv').read_bytes() == codecs.BOM_UTF8 + rest.encode()


LEFT = {
    'rows that differ': ('b/4.png,dog,test\n', 'b/4.png,dog,test\nb/4.png,cat,test\n'),
    'a photo that is not there': ('b/4.png', 'b/9.png'),
    'the name of a photo that has a row': ('b/4.png', 'c/3.png'),
    'a name that two photos fit': ('b/4.png', '5'),
    'a word for no part': ('dog,val', 'dog,rest'),
    'a row of other length': ('dog,val', 'dog'),
    'a class by another name': ('cat|dog', 'cat,dog'),
}


@pytest.mark.parametrize('mistake', LEFT)
def test_what_is_not_certain_stays(folder, mistake):
    for name in ('a/5.png', 'b/5.png'):
        Image.new('RGB', (4, 4)).save(folder / 'images' / name)
    wrong = GOOD.replace(*LEFT[mistake])
    assert wrong != GOOD
    (folder / 'labels.csv').write_text(wrong)
    mending = mend_table(folder)
    assert mending.changes == [] and mending.backup is None
    assert (folder / 'labels.csv').read_text() == wrong
    assert [path.name for path in folder.glob('labels.csv*')] == ['labels.csv']
    with pytest.raises(SpmlError):
        read_folder(folder, 'photos')


def test_two_names_that_fit_one_photo_stay(folder):
    wrong = GOOD.replace('b/3.png', 'x/3.png').replace('b/4.png', 'y/3.png')
    (folder / 'labels.csv').write_text(wrong)
    assert mend_table(folder).changes == []


def test_no_backup_is_overwritten(folder):
    file = folder / 'labels.csv'
    for k, name in enumerate(('b/3', 'B/3.png', '3.png'), 1):
        file.write_text(GOOD.replace('b/3.png', name))
        backup = mend_table(folder).backup
        assert backup.name == f'labels.csv.bak{k if k > 1 else ""}'
    assert len({path.read_bytes() for path in folder.glob('labels.csv.bak*')}) == 3


def test_the_command_says_what_it_changes_and_goes_on_to_the_check(folder, capsys):
    (folder / 'labels.csv').write_text(GOOD.replace('b/3.png', 'b/3'))
    cli.main(['data', str(folder), '--fix'])
    printed = capsys.readouterr().out
    assert "'b/3' → 'b/3.png'" in printed and 'labels.csv.bak' in printed and '4 images' in printed
    assert (folder / 'labels.csv').read_text() == GOOD
    assert cli.main(['data', '--fix']) == 2
    assert cli.main(['data', 'ccp', '--fix']) == 2
