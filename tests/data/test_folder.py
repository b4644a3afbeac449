"""A folder of photos: what is read from its table, how it is split, and how each wrong input is
answered.
"""

import os
import shutil
import unicodedata

import numpy as np
import pandas as pd
import pytest
from patience import within
from tables import NAMES, ROWS, numbered, refused

from spml_nb.base.errors import SpmlError, SpmlWarning
from spml_nb.data.doubts import find_doubts
from spml_nb.data.folder import (
    LAYOUT,
    Listing,
    explain_split,
    read_folder,
    split_by_name,
    split_by_row,
)
from spml_nb.data.loading import load
from spml_nb.data.official.registry import listing_to_csv

pytestmark = pytest.mark.filterwarnings(
    'ignore:.*no training image has it'
)  # small tables; the warning has its own test


# ---- what is read


def test_zero_one_columns_become_plus_and_minus_one_and_empty_is_unknown(folder):
    data = load(folder())
    assert data.class_names == ['cat', 'dog'] and data.labels.dtype == np.int8
    assert data.labels.tolist() == [[1, -1], [-1, 1], [1, 0], [1, 1]]
    assert data.split.tolist() == ['train', 'train', 'val', 'test'] and data.rows(
        'train'
    ).tolist() == [0, 1]
    assert [path.name for path in data.images] == NAMES[:4] and all(
        path.is_absolute() for path in data.images
    )
    assert data.name == 'set' and len(data) == 4 and not data.images_in_memory


def test_empty_cells_stay_unknown_where_no_cell_is_zero(folder):
    data = load(folder('image,cat,dog,split\na.jpg,1,,train\nb.jpg,,1,val\nc.jpg,1,,test\n'))
    assert data.labels.tolist() == [[1, 0], [0, 1], [1, 0]]


def test_a_labels_column_lists_what_is_present_and_all_else_is_absent(folder):
    data = load(
        folder(
            'image,split,labels\na.jpg,train,dog|cat\nb.jpg,train,\nc.jpg,val, cat '
            '|\nd.jpg,test,"cow, brown"\n'
        )
    )
    assert data.class_names == ['cat', 'cow, brown', 'dog']
    assert data.labels.tolist() == [[1, -1, 1], [-1, -1, -1], [1, -1, -1], [-1, 1, -1]]


def test_names_that_look_the_same_are_one_class(folder):
    data = load(
        folder(
            'image,split,labels\na.jpg,train,cat\nb.jpg,train,cat\u200b|\ufeffdog\n'
            'c.jpg,val,"brown\n bear"\nd.jpg,test,dog|brown bear\n'
        )
    )
    assert data.class_names == ['brown bear', 'cat', 'dog'] and (data.labels > 0).sum(
        0
    ).tolist() == [2, 2, 2]


def test_a_positives_column_lists_what_is_known_and_all_else_is_unknown(folder):
    data = load(
        folder(
            'image,split,positives\na.jpg,train,dog|cat\nb.jpg,train,\nc.jpg,val, cat '
            '|\nd.jpg,test,"cow, brown"\n'
        )
    )
    assert data.class_names == ['cat', 'cow, brown', 'dog']
    assert data.labels.tolist() == [[1, 0, 1], [0, 0, 0], [1, 0, 0], [0, 1, 0]]


def test_one_known_zero_leaves_every_empty_cell_unknown(folder):
    data = load(
        folder(
            'image,cat,dog,split\na.jpg,1,,train\nb.jpg,,1,train\nc.jpg,1,,val\nd.jpg,0,1,test\n'
        )
    )
    assert data.labels.tolist() == [[1, 0], [0, 1], [1, 0], [-1, 1]]


@pytest.mark.parametrize('kind, other', [('labels', '0'), ('positives', '')])
def test_a_column_of_names_and_columns_of_classes_say_the_same(folder, kind, other):
    named = [{'cat'}, {'cat', 'dog'}, {'dog'}, set(), {'dog', 'eel'}, {'cat'}]
    split = ['train', 'train', 'train', 'val', 'test', 'test']
    names = [
        f'image,{kind},split',
        *(f'{NAMES[k]},{"|".join(sorted(here))},{split[k]}' for k, here in enumerate(named)),
    ]
    cells = [
        'image,cat,dog,eel,split',
        *(
            ','.join(
                [NAMES[k], *('1' if c in here else other for c in ('cat', 'dog', 'eel')), split[k]]
            )
            for k, here in enumerate(named)
        ),
    ]
    first = load(folder('\n'.join(names), at='one/set'))
    second = load(folder('\n'.join(cells), at='two/set'))
    assert first.class_names == second.class_names and first.fingerprint == second.fingerprint
    listing = Listing(first.image_names, first.labels, first.class_names, first.split.tolist())
    assert load(folder(listing_to_csv(listing), at='three/set')).fingerprint == first.fingerprint


def test_class_columns_keep_the_order_of_the_table_and_floats_of_a_table_with_gaps_are_read(folder):
    data = load(
        folder('image,zebra,ant,split\na.jpg,1.0,,train\nb.jpg,0.0,1.0,val\nc.jpg, 1 ,0,test\n')
    )
    assert data.class_names == ['zebra', 'ant'] and data.labels.tolist() == [
        [1, 0],
        [-1, 1],
        [1, -1],
    ]


def test_labels_that_look_missing_to_pandas_are_names(folder):
    data = load(
        folder(
            'image,labels,split\na.jpg,NA|null,train\nb.jpg,None,val\nc.jpg,nan,test\n',
            names=['a.jpg', 'b.jpg', 'c.jpg'],
        )
    )
    assert data.class_names == ['NA', 'None', 'nan', 'null']


def test_unicode_names_and_a_byte_order_mark_are_fine(folder):
    table = 'image,labels,split\nété/naïve 猫.jpg,猫|Größe,train\nb.jpg,猫,val\nc.jpg,猫,test\n'
    data = load(
        folder(table, names=['été/naïve 猫.jpg', 'b.jpg', 'c.jpg'], encoding='utf-8-sig', at='día')
    )
    assert (
        data.class_names == ['Größe', '猫']
        and data.name == 'día'
        and data.image_names[0] == 'été/naïve 猫.jpg'
    )


def test_images_may_lie_in_subfolders_and_spare_files_do_not_matter(folder):
    data = load(
        folder(
            'image,labels,split\nx/a.jpg,u,train\ny/a.jpg,u,val\n./a.jpg,u,test\n',
            names=['x/a.jpg', 'y/a.jpg', 'a.jpg', 'spare.txt'],
        )
    )
    assert data.image_names == ['x/a.jpg', 'y/a.jpg', 'a.jpg']


# ---- split


def parts_of(path):
    return dict(zip(*(getattr(load(path), name) for name in ('image_names', 'split')), strict=True))


def by_row(rows):
    return np.sort(
        rows[np.random.RandomState(1200).permutation(len(rows))[-round(0.2 * len(rows)) :]]
    )


def test_by_row_the_protocol_is_used_twice(folder):
    table, names = numbered(50)
    path = folder(table, names)
    test = by_row(np.arange(50))
    val = by_row(np.setdiff1d(np.arange(50), test))
    for data in (read_folder(path, 'set', by_row=True), split_by_row(load(path))):
        assert (
            data.rows('test').tolist() == test.tolist()
            and data.rows('val').tolist() == val.tolist()
            and len(data.rows('train')) == 32
            and data.drawn == ()
        )


@pytest.mark.parametrize('rows', [True, False])
def test_a_split_without_validation_takes_it_from_train_alone(folder, rows):
    table, names = numbered(50, split=['test' if k % 5 == 0 else 'train' for k in range(50)])
    data = read_folder(folder(table, names), 'set', by_row=rows)
    train = np.array([k for k in range(50) if k % 5])
    assert data.rows('test').tolist() == list(range(0, 50, 5)) and data.drawn == (
        () if rows else ('val',)
    )
    assert not rows or data.rows('val').tolist() == by_row(train).tolist()
    assert split_by_row(data).rows('val').tolist() == by_row(train).tolist()


@pytest.mark.silent('C7')
@pytest.mark.parametrize('marked', [False, True])
def test_a_photo_keeps_its_part_when_the_table_grows_or_is_sorted(folder, marked):
    table, names = numbered(
        400,
        **({'split': ['test' if k % 5 == 0 else 'train' for k in range(400)]} if marked else {}),
    )
    header, *lines = table.split('\n')
    first = parts_of(folder(table, names))
    for k, rows in enumerate(
        [lines[::-1], sorted(lines), lines[7:], lines[:1], lines[100:] + lines[:100]]
    ):
        if len(rows) > 1:
            assert (
                first.items()
                >= parts_of(folder('\n'.join([header, *rows]), names, at=f'at{k}')).items()
            )
    longer = '\n'.join(
        [header, f'first.jpg,x{",train" * marked}', *lines, f'last.jpg,y{",test" * marked}']
    )
    assert (
        parts_of(folder(longer, [*names, 'first.jpg', 'last.jpg'], at='longer')).items()
        >= first.items()
    )
    share = {
        part: sum(each == part for each in first.values()) / 400
        for part in ('train', 'val', 'test')
    }
    assert abs(share['test'] - 0.2) < 0.05 and abs(share['val'] - 0.16) < 0.05


def test_a_part_is_that_of_the_name_in_the_table(folder):
    "Of its photo's place below images/, however é is typed and whatever other folders there are."
    names = [f'été/{k}.jpg' for k in range(30)]
    first = load(folder('\n'.join(['image,labels', *(f'{name},u' for name in names)]), names)).split
    typed = [unicodedata.normalize('NFD', f'./{name}') for name in names]
    assert (
        load(
            folder('\n'.join(['image,labels', *(f'{name},u' for name in typed)]), names, at='other')
        ).split.tolist()
        == first.tolist()
    )
    some = [*names, 'winter/1.jpg']
    assert (
        load(folder('\n'.join(['image,labels', *(f'{name},u' for name in some)]), some, at='third'))
        .split[:30]
        .tolist()
        == first.tolist()
    )


@pytest.mark.parametrize('n', range(4, 12))
def test_small_folders_have_a_photo_in_each_part(folder, n):
    for k in range(20):
        names = [f'{k}-{row}.jpg' for row in range(n)]
        data = load(
            folder(
                '\n'.join(['image,labels', *(f'{name},u' for name in names)]), names, at=f'at{k}'
            )
        )
        assert set(data.split) == {'train', 'val', 'test'} and data.drawn == ('test', 'val')


@pytest.mark.silent('C7')
def test_a_run_on_the_split_by_row_is_told_from_other_changes(folder):
    path = folder(*numbered(50))
    data = load(path)
    before = split_by_row(data)
    assert all(
        'split_by_row' in explain_split(data, seen)
        for seen in (before.fingerprint, before.photos_of('test'))
    )
    assert (
        explain_split(data, data.fingerprint)
        == explain_split(data, '0123456789abcdef')
        == explain_split(before, before.fingerprint)
        == ''
    )
    table = pd.read_csv(path / 'labels.csv').assign(split=before.split)  # the remedy
    table.to_csv(path / 'labels.csv', index=False)
    assert load(path).fingerprint == before.fingerprint


def test_a_split_without_test_rows_is_refused_with_the_two_remedies(folder):
    refused(
        folder('image,labels,split\na.jpg,u,train\nb.jpg,u,val\n'),
        'no test row',
        'Mark some',
        'remove the column',
        '20 %',
    )


@pytest.mark.parametrize(
    'word, meant',
    [('training', 'train'), ('Train', 'train'), ('', 'one of these'), ('tset', 'test')],
)
def test_an_unknown_split_is_named_with_row_and_image(folder, word, meant):
    refused(
        folder(f'image,labels,split\na.jpg,u,train\nb.jpg,u,{word}\nc.jpg,u,test\n'),
        f'unknown split {word!r}',
        'row 2',
        'b.jpg',
        'train, val, test',
        f'Write {meant} for {word!r} (1 rows).',
    )


def test_too_few_rows_for_three_parts_are_refused(folder):
    table, names = numbered(3)
    refused(folder(table, names), '3 rows are too few to split; needed: 4 or more', 'labels.csv')
    assert len(load(folder(*numbered(4), at='enough')).rows('train')) == 2
    refused(
        folder('image,labels,split\na.jpg,u,train\nb.jpg,u,test\n', at='other'),
        '1 train rows are too few to split; needed: 3 or more',
    )
    assert (
        len(
            load(
                folder(
                    'image,labels,split\na.jpg,u,train\nb.jpg,u,test\nc.jpg,u,train\nd.jpg,u,train\n',
                    at='three',
                )
            ).rows('val')
        )
        == 1
    )
    refused(folder('image,labels,split\na.jpg,u,val\nb.jpg,u,test\n', at='third'), 'no train row')


def test_empty_and_incomplete_folders_are_told_apart(folder, tmp_path):
    (tmp_path / 'empty').mkdir()
    refused(tmp_path / 'empty', 'is empty', 'images/ and labels.csv')
    refused(folder(table=None, at='bare'), 'labels.csv is not there')
    (tmp_path / 'file').write_text('x')
    refused(tmp_path / 'file', 'is a file')


def test_no_images_folder_and_an_empty_one_are_named(tmp_path):
    (tmp_path / 's').mkdir()
    (tmp_path / 's' / 'labels.csv').write_text(ROWS)
    refused(tmp_path / 's', tmp_path / 's' / 'images', 'is not there')
    (tmp_path / 's' / 'images').mkdir()
    refused(tmp_path / 's', tmp_path / 's' / 'images', 'is empty')


@pytest.mark.parametrize('base', ['', 'images/'])
def test_one_folder_a_class_is_refused_with_what_to_do(base, tmp_path):
    for name in ('cat', 'dog'):
        (tmp_path / 's' / base / name).mkdir(parents=True)
        (tmp_path / 's' / base / name / '1.JPG').write_bytes(b'x')
    refused(
        tmp_path / 's',
        'one folder for each class (cat, dog)',
        'first line is `image,positives`',
        'or `image,labels`',
        '`cat/photo.jpg,cat`',
    )


# ---- tables


def test_all_absent_images_are_counted_and_ten_are_listed(folder):
    table, names = numbered(30)
    message = refused(folder(table, names[:3]), '27 images', '3.jpg', '12.jpg', '(27 in all)')
    assert '13.jpg' not in message


def test_duplicate_images_are_refused_whatever_their_spelling(folder):
    refused(
        folder('image,labels,split\na.jpg,u,train\nb.jpg,u,val\n./a.jpg,u,test\n'),
        'more than one row for: a.jpg',
    )


@pytest.mark.parametrize('name', ['../out.jpg', 'x/../../out.jpg', '/etc/hostname', '..', ' '])
def test_images_outside_the_folder_are_refused(folder, tmp_path, name):
    path = folder(f'image,labels,split\na.jpg,u,train\nb.jpg,u,val\n{name},u,test\n')
    (path / 'out.jpg').write_bytes(b'x')
    refused(path, 'outside', repr(name))


@pytest.mark.parametrize(
    'header',
    [
        'file,cat,dog',
        'cat,image',
        'image',
        'image,split',
        'image,labels,cat',
        'image,positives,cat',
        'image,cat,cat',
        'image,cat,',
    ],
)
def test_unknown_layouts_show_the_columns_and_the_three_known_ones(folder, header):
    row = ','.join(['a.jpg', *'0' * header.count(',')])
    refused(
        folder(f'{header}\n{row}\n'),
        'unknown layout',
        'one column a class',
        'one column `labels`',
        'one column `positives`',
    )


@pytest.mark.parametrize(
    'header',
    ['image,labels,positives', 'positives,image,labels', 'image,positives,labels,split,cat'],
)
def test_two_columns_of_names_are_refused_with_what_to_do(folder, header):
    refused(
        folder(f"{header}\n{','.join('a' for _ in header.split(','))}\n"),
        'both a column `labels` (complete) and a column `positives`',
        'Keep one',
        'empty cells',
    )


@pytest.mark.parametrize('cell', ['2', '-1', 'yes', '0.5', 'NaN', '?'])
def test_a_cell_that_is_no_label_is_named_with_row_column_and_value(folder, cell):
    refused(
        folder(f'image,cat,dog,split\na.jpg,1,1,train\nb.jpg,1,{cell},val\nc.jpg,1,0,test\n'),
        repr(cell),
        'row 2',
        'b.jpg',
        "column 'dog'",
        '1 (present), 0 (absent), empty (unknown). Write these.',
        "Remove the column only if 'dog' is no class",
    )


@pytest.mark.parametrize(
    'table, part',
    [
        ('', 'is empty'),
        ('image,labels\n', 'no rows'),
        ('image,cat,dog\na.jpg,1\n', '1 (2)'),
        ('image,cat\na.jpg,1\nb.jpg,1,1\n', '2 (3)'),
        ('image,cat\n"a.jpg,1\n', 'cannot be read'),
        ('image,labels\na.jpg,\nb.jpg,\nc.jpg,\nd.jpg,|\n', 'names no label'),
        ('image,positives\na.jpg,\nb.jpg,\nc.jpg,\nd.jpg,\n', 'names no label'),
    ],
)
def test_tables_that_are_empty_or_ragged_are_refused(folder, table, part):
    refused(folder(table), part, 'labels.csv')


def test_a_table_that_is_not_utf8_is_refused(folder):
    assert LAYOUT not in refused(
        folder('image,labels\na.jpg,Größe\n', encoding='latin-1'), 'Save it as CSV UTF-8'
    )


# ---- mistakes that people make: each is refused or warned of by name

TEN = [f'{k}.jpg' for k in range(10)]


def rows(*cells, header='image,labels', names=TEN):
    return '\n'.join([header, *(f'{name},{cells[k % len(cells)]}' for k, name in enumerate(names))])


def renamed(old, new):
    return lambda path: (path / old).rename(path / new)


def beside(path):
    for file in (path / 'images').iterdir():
        shutil.move(file, path)
    (path / 'images').rmdir()


GOOD = rows('a|b', 'b')
REFUSED = {  # name: (table, what the message says, files, what is done to the folder)
    'semicolons between columns': (
        'image;labels\n0.jpg;a',
        ['separated by semicolons', "'image;labels'", 'Save it with commas'],
    ),
    'tabs between columns': ('image\tlabels\n0.jpg\ta', ['separated by tabs']),
    'the line sep= of a spreadsheet': (
        'sep=;\nimage;labels\n0.jpg;a',
        ['separated by semicolons', "'sep=;'"],
    ),
    'the line sep= above columns with commas': (
        'sep=,\nimage,labels\n0.jpg,a',
        ['Remove the first line, which is for Excel alone'],
    ),
    'commas between names': (
        rows('"Action,Crime,Thriller"', '"Crime,Drama"', 'Drama'),
        [
            'has commas between names',
            "'Action,Crime,Thriller'",
            'Write `|`',
            'end one cell with `|`',
        ],
    ),
    'semicolons between names': (
        rows('Action; Crime', 'Drama; Crime', 'Drama'),
        ['has semicolons between names', "'Action; Crime'"],
    ),
    'a comma between two names that stand alone elsewhere': (
        rows('a', 'b', 'a', 'b', '"b, a"'),
        ['has commas between names', "'b, a'"],
    ),
    'lists of Python': (
        rows('"[\'a\', \'b\']"'),
        ['contains lists such as', 'Write the names with `|`'],
    ),
    'numbers in a column of names': (
        rows('1', '0', '-1'),
        ['`labels` contains only numbers', 'the name of its class'],
    ),
    'names in a column tags': (
        rows('a|b', header='image,tags'),
        [
            "'a|b'",
            "column 'tags'",
            'call it `positives` (the rest is unknown) or `labels` (the rest is absent)',
        ],
    ),
    'names in a column label': (
        rows('cat', header='image,label'),
        ["If 'label' contains names, call it `positives`"],
    ),
    'a caption among class columns': (
        rows('1,0,a red hat', header='image,cat,dog,caption'),
        ["Remove the column only if 'caption' is no class"],
    ),
    'a caption beside labels': (
        rows('a,a red hat', header='image,labels,caption'),
        ["remove 'caption'"],
    ),
    'a bar in a class': (
        rows('1,0', header='image,cat|dog,cat'),
        ["no class can be called 'cat|dog'", 'another name, without `|`'],
    ),
    'capitals in a column': (
        rows('a', header='image,Labels'),
        ["no class can be called 'Labels'", 'small letters'],
    ),
    'parts in another column': (
        rows('1,train', '1,test', header='image,cat,subset'),
        ["column 'subset'", 'name the column `split`'],
    ),
    'the first column has another name': (
        rows('a', header='filename,labels'),
        ["Rename the first column 'filename' to `image`"],
    ),
    'the columns are turned round': ('labels,image\na,0.jpg', ['Put `image` first']),
    'no line with the columns': (
        rows('a', header='x.jpg,cat'),
        ['The first line must name the columns: `image,positives`', 'or `image,labels`'],
    ),
    'row numbers of pandas': (',image,labels\n0,0.jpg,a', ['index=False']),
    'names without their folder': (
        GOOD,
        ["'0.jpg' (found as sub/0.jpg: write that)"],
        [f'sub/{name}' for name in TEN],
    ),
    'names with images/': (
        rows('a', names=[f'images/{name}' for name in TEN]),
        ["'images/3.jpg' (found as 3.jpg: write that)"],
    ),
    'names without a suffix': (
        rows('a', names=[str(k) for k in range(10)]),
        ["'3' (found as 3.jpg: write that)"],
    ),
    'names with another suffix': (
        rows('a', names=[f'{k}.png' for k in range(10)]),
        ["'3.png' (found as 3.jpg: write that)"],
    ),
    'names in another case': (
        GOOD.replace('.jpg', '.JPG'),
        ["'3.JPG' (found as 3.jpg: write that)"],
    ),
    'names with the slashes of Windows': (
        rows('a', names=[f'C:\\photos\\{name}' for name in TEN]),
        ['(found as 3.jpg: write that)'],
    ),
    'names with a whole path': (
        rows('a', names=[f'/home/me/{name}' for name in TEN]),
        ['outside', "'/home/me/3.jpg' (found as 3.jpg: write that)"],
    ),
    'names with two candidates': (
        GOOD,
        ["'0.jpg', '1.jpg'"],
        [f'{base}/{name}' for base in 'xy' for name in TEN],
    ),
    'photos that are not there': (
        GOOD,
        ['names 4 images', "'6.jpg', '7.jpg', '8.jpg', '9.jpg'. Add them"],
        TEN[:6],
    ),
    'parts with other names': (
        rows('a,Train', 'a,valid', 'a,tset', header='image,labels,split'),
        [
            "Write train for 'Train' (4 rows). Write val for 'valid' (3 rows). Write test for "
            "'tset' (3 rows)."
        ],
    ),
    'the table has a capital': (
        GOOD,
        ['There is Labels.csv. Rename it'],
        TEN,
        renamed('labels.csv', 'Labels.csv'),
    ),
    'the table is a spreadsheet': (
        GOOD,
        ['There is labels.xlsx. Save it with commas'],
        TEN,
        renamed('labels.csv', 'labels.xlsx'),
    ),
    'the table lies among the photos': (
        GOOD,
        ['There is images/labels.csv. Rename it, as labels.csv beside images/'],
        TEN,
        renamed('labels.csv', 'images/labels.csv'),
    ),
    'the folder has a capital': (
        GOOD,
        ['There is Images/. Rename it to images.'],
        TEN,
        renamed('images', 'Images'),
    ),
    'the folder has another name': (
        GOOD,
        ['There is photos/. Rename it to images.'],
        TEN,
        renamed('images', 'photos'),
    ),
    'photos beside the table': (
        GOOD,
        ['10 photos lie outside images/ (0.jpg, 1.jpg, 2.jpg', 'Move them into it'],
        TEN,
        beside,
    ),
}
WARNED = {
    'a class misspelt once': (
        rows(*['Drama|b'] * 9, 'Darma'),
        ["'Darma' (did you mean Drama?)", 'Mend the table'],
    ),
    'a class in two cases': (
        rows('hat', 'Hat', 'sun-hat', 'sun hat'),
        ["'Hat' and 'hat', 'sun hat' and 'sun-hat'", 'one way'],
    ),
    'classes made of others': (rows('a|b', '"a,b"', 'b'), ["made of others: 'a,b'", 'Write `|`']),
    'names with a word between': (
        rows('a', 'a and b', 'b', 'b und a'),
        ["made of others: 'a and b', 'b und a'", 'Write `|`'],
    ),
    'one of the others never alone': (
        rows('a|c', '"a, b"', 'c+b'),
        ["made of others: 'a, b', 'c+b'", 'Write `|`'],
    ),
    'blanks between names': (
        rows('haze', 'haze primary', 'primary'),
        ["made of others: 'haze primary'", 'Write `|`'],
    ),
    'empty cells of labels': (
        rows('a|b', '', 'b'),
        ['no label, so that every class counts as absent: 3 of 10, 1.jpg, 4.jpg, 7.jpg', 'Fill in'],
    ),
    'empty cells of positives': (
        rows('a|b', '', header='image,positives'),
        ['no label, and nothing is known: 5 of 10', 'remove their rows'],
    ),
    'photos without a row': (
        GOOD,
        ['no row for 2 photos of images/, which are not used: sub/x.JPG, y.png', 'Add rows'],
        [*TEN, 'sub/x.JPG', 'y.png', '.z.jpg', 'notes.txt'],
    ),
    'one label each, called complete': (
        rows('a', 'b'),
        [
            'every photo has exactly one label',
            'all other classes count as absent',
            'name the column `positives`',
        ],
    ),
    'one label each in a complete matrix': (
        rows('1,0', '0,1', header='image,cat,dog'),
        ['every photo has exactly one label', 'leave the other cells empty'],
    ),
    'a placeholder as a class': (
        rows('a', 'nan', 'None|a'),
        ["'None', 'nan' counts as a class", 'Leave the cell empty'],
    ),
    'one class': (rows('a', ''), ['there is one class', 'give two or more']),
    'a class on every photo': (rows('a|b', 'a'), ["every photo has 'a'", 'Exclude it']),
    'a part without any label': (
        rows('a|b,train', 'b,train', ',test', header='image,positives,split'),
        ['no photo of the part test has a label'],
    ),
    'a class that is never used': (
        rows('1,0', header='image,cat,dog'),
        ['a class is never used, because no image has it: dog', 'leave it out: remove its column'],
    ),
    'a class that cannot be learned': (
        rows('a,train', 'a|b,test', header='image,labels,split'),
        ['a class cannot be learned, because no training image has it: b. It is kept'],
    ),
}


def arranged(folder, table, says, names=TEN, change=None):
    path = folder(table, names)
    if change:
        change(path)
    return path


@pytest.mark.parametrize('mistake', REFUSED)
def test_a_certain_mistake_is_refused_by_name(mistake, folder):
    case = REFUSED[mistake]
    path = arranged(folder, *case)
    refused(path, *case[1])
    with pytest.raises(SpmlError) as caught:
        load(path)
    assert (
        len(str(caught.value).replace(LAYOUT, '').replace(str(path), '')) < 700
    )  # still read by a person


@pytest.mark.parametrize('mistake', WARNED)
@pytest.mark.filterwarnings('default')
def test_a_likely_mistake_is_a_warning_by_name(mistake, folder):
    case = WARNED[mistake]
    with pytest.warns(SpmlWarning) as told:
        load(arranged(folder, *case))
    texts = [str(warning.message) for warning in told]
    assert any(all(part in text for part in case[1]) for text in texts), texts
    assert all(
        text.startswith('set: ') and text.endswith(('.', '?')) and '\n' not in text
        for text in texts
    )


@pytest.mark.parametrize(
    'table',
    [
        rows('size 38', *['size 39'] * 8, 'b|c'),
        rows('traffic light', 'light', 'b|c'),
        rows('woman', *['man'] * 8, 'b|c'),
        rows('C|b', 'C++'),
        rows('"tench, Tinca|"', '"hare, Lepus|b"'),
        rows('a|b', 'b', 'c'),
        rows('a', 'b', header='image,positives'),
        rows('1,', ',1', header='image,cat,dog'),
        rows('1,0', ',1', header='image,cat,dog'),
    ],
)
def test_what_is_meant_passes_without_a_word(table, folder):
    path = folder(table, TEN)
    assert find_doubts(read_folder(path, 'set'), path / 'images') == []


def test_rows_that_a_spreadsheet_leaves_empty_are_no_rows(folder):
    table = rows('a|b', 'b')
    assert len(load(folder(f'{table.rstrip()}\n,\n , \n', TEN))) == len(TEN)


def test_photos_in_one_folder_are_named_as_in_the_table(folder):
    path = folder(
        rows('a|b', '', names=[f'2019/{name}' for name in TEN]), [f'2019/{name}' for name in TEN]
    )
    assert any(
        '5 of 10, 2019/1.jpg, 2019/3.jpg' in text
        for text in find_doubts(read_folder(path, 'set'), path / 'images')
    )


def test_all_parts_of_a_table_are_looked_at_before_it_is_refused(folder):
    refused(
        folder(rows('"a,b",Train', header='image,labels,split'), TEN[:8]),
        '3 things are wrong',
        "'8.jpg', '9.jpg'",
        "Write train for 'Train'",
        'has commas between names',
    )


# ---- what has no end


@pytest.mark.silent('C10')
def test_a_pipe_for_a_table_or_a_photo_is_named_and_not_waited_for(folder):
    made = folder()
    (made / 'labels.csv').rename(made / 'kept.csv')
    os.mkfifo(made / 'labels.csv')
    with within(20), pytest.raises(SpmlError, match='labels.csv.*pipe'):
        read_folder(made, 'set')
    (made / 'labels.csv').unlink()
    (made / 'kept.csv').rename(made / 'labels.csv')
    (made / 'images' / 'a.jpg').unlink()
    os.mkfifo(made / 'images' / 'a.jpg')
    with within(20), pytest.raises(SpmlError, match='a.jpg'):
        read_folder(made, 'set')


@pytest.mark.silent('C11')
@pytest.mark.parametrize('name', ['listdir', 'scandir'])
def test_photos_that_may_not_be_read_are_told(folder, monkeypatch, name):
    made, usual = folder('image,labels\nnone.jpg,cat\n'), getattr(os, name)

    def barred(path='.'):
        if str(path).endswith('images'):
            raise PermissionError(13, 'Permission denied', str(path))
        return usual(path)

    monkeypatch.setattr(os, name, barred)
    with pytest.raises(SpmlError, match='images cannot be read: Permission denied'):
        read_folder(made, 'set')


# ---- groups


def grouped(n, each, header='image,labels,group'):
    "Photos of which so many in a row share a group."
    names = [f'{k}.jpg' for k in range(n)]
    rows = [f'{name},u,site {k // each}' for k, name in enumerate(names)]
    return '\n'.join([header, *rows]), names


@pytest.mark.parametrize('n, each', [(400, 4), (60, 10), (12, 2), (9, 3)])
def test_what_is_drawn_cuts_no_group(folder, n, each):
    data = load(folder(*grouped(n, each)))
    assert data.groups == [f'site {k // each}' for k in range(n)]
    assert all(len(set(data.split[k : k + each])) == 1 for k in range(0, n, each))
    assert set(data.split) == {'train', 'val', 'test'} and data.drawn == ('test', 'val')
    if n == 400:
        assert abs((data.split == 'test').mean() - 0.2) < 0.1


@pytest.mark.parametrize('each', [1, 4])
def test_parts_that_were_drawn_before_a_column_split_was_written_are_drawn_again(folder, each):
    text, names = grouped(60, each)
    path = folder(text, names)
    before = load(path)
    table = pd.read_csv(path / 'labels.csv')
    for parts, kept in ((('test', 'val'), ()), (('val',), ('test',))):
        marked = np.where(
            np.isin(before.split, kept), before.split, np.resize(['train', 'val'], 60)
        )
        marked = np.append('test', marked[1:]) if not kept else marked
        table.assign(split=marked).to_csv(path / 'labels.csv', index=False)
        changed = load(path)
        assert (changed.split != before.split).any()
        assert (split_by_name(changed, path, parts).split == before.split).all()


def test_a_photo_without_a_group_has_the_part_of_its_name(folder):
    table, names = numbered(60)
    alone = load(folder(table, names))
    header, *rows = table.split('\n')
    cells = ['near' if k < 3 else ' ' for k in range(60)]
    text = '\n'.join([f'{header},group', *(f'{r},{c}' for r, c in zip(rows, cells, strict=True))])
    data = load(folder(text, names, at='grouped'))
    assert data.groups == ['near'] * 3 + [''] * 57
    assert (data.split[3:] == alone.split[3:]).mean() > 0.95
    assert len(set(data.split[:3])) == 1


def test_a_group_keeps_its_part_when_others_are_added(folder):
    table, names = grouped(200, 4)
    first = parts_of(folder(table, names))
    rows = '\n'.join(f'x{k}.jpg,u,site {200 + k}' for k in range(40))
    longer = folder(f'{table}\n{rows}', [*names, *(f'x{k}.jpg' for k in range(40))], at='longer')
    assert parts_of(longer).items() >= first.items()


def test_one_group_alone_cannot_be_split(folder):
    refused(folder(*grouped(20, 20)), '1 groups', 'column `split`')


def test_beside_columns_of_classes_a_group_of_numbers_is_a_class_as_it_was(folder):
    names = [f'{k}.jpg' for k in range(10)]
    rows = [f'{name},1,{k % 2}' for k, name in enumerate(names)]
    data = load(folder('\n'.join(['image,cat,group', *rows]), names))
    assert data.class_names == ['cat', 'group'] and data.groups is None
    rows = [f'{name},1,{k // 2}' for k, name in enumerate(names)]
    data = load(folder('\n'.join(['image,cat,group', *rows]), names, at='other'))
    assert data.class_names == ['cat'] and data.groups == [str(k // 2) for k in range(10)]


def test_a_split_that_is_marked_stays_and_only_validation_is_drawn_by_groups(folder):
    names = [f'{k}.jpg' for k in range(60)]
    rows = [f'{name},u,{"test" if k < 12 else "train"},{k // 4}' for k, name in enumerate(names)]
    data = load(folder('\n'.join(['image,positives,split,group', *rows]), names))
    assert data.rows('test').tolist() == list(range(12)) and data.drawn == ('val',)
    assert all(len(set(data.split[k : k + 4])) == 1 for k in range(0, 60, 4))
