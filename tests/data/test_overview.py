"""A folder of photos, looked at before training: what is known of each part, what is there twice,
what cannot be used.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from spml_nb.data import overview
from spml_nb.data.dataset import Dataset
from spml_nb.data.loading import load
from spml_nb.data.lookalikes import inspect_photos
from spml_nb.data.overview import (
    check_folder,
    count_parts,
    describe_observed,
)


@pytest.fixture
def data():
    labels = np.array([[1, 1, -1, -1], [1, 0, -1, -1], [-1, -1, 1, -1], [1, -1, 1, 0]], np.int8)
    pixels = np.arange(4, dtype=np.uint8)[:, None, None, None] * np.full((4, 8, 8, 3), 60, np.uint8)
    return Dataset(
        'four', pixels, labels, list('abcd'), np.array(['train', 'train', 'val', 'test'])
    )


# ---- a folder, checked


@pytest.fixture
def photos(tmp_path):
    """A function that writes noisy photos of 60 × 40 pixels; `copies`: {number: of which it is a
    smaller copy}.
    """

    def write(table, n=12, copies=(), damage=()):
        rng, folder = np.random.default_rng(0), tmp_path / 'garden'
        (folder / 'images').mkdir(parents=True)
        pixels = rng.integers(0, 255, (n, 4, 6, 3), np.uint8)
        for k in range(n):
            picture = Image.fromarray(pixels[dict(copies).get(k, k)]).resize(
                (60, 40), Image.Resampling.BICUBIC
            )
            if k in dict(copies):
                picture = picture.resize((45, 30))
            picture.save(folder / 'images' / f'{k}.jpg', quality=60 if k in dict(copies) else 90)
        for k, content in dict(damage).items():
            file = folder / 'images' / f'{k}.jpg'
            file.write_bytes(file.read_bytes()[:content] if isinstance(content, int) else content)
        (folder / 'labels.csv').write_text(table)
        return folder

    return write


MIXED = '\n'.join(
    [
        'image,rose,bee,split',
        *(f'{k}.jpg,{"1," if k % 2 else ",1"},{"train" if k < 6 else "val"}' for k in range(8)),
        *(f'{k}.jpg,1,{k % 2},test' for k in range(8, 12)),
    ]
)


def test_parts_are_counted_with_what_their_scores_are_against(photos):
    data = load(photos(MIXED))
    table = count_parts(data)
    assert (
        table.photos.tolist() == [6, 2, 4]
        and table.positives.tolist() == [1, 1, 1.5]
        and table.negatives.tolist() == [0, 0, 0.5]
    )
    assert table.unknown.tolist() == [50, 50, 0] and table.scores.tolist() == [
        'observed labels (unknown ones as negatives)'
    ] * 2 + ['all labels']
    assert '1.0 positives' in describe_observed(data) and 'single' not in describe_observed(data)


def test_photos_that_count_in_no_score_are_counted(photos):
    "Six test photos, two of them annotated in full: of the others positives alone are known."
    cells = ['1,0', '0,1', ',1', '1,', ',1', '1,']
    rows = [f'{k}.jpg,{cells[k % 6]},{"test" if k > 5 else "train"}' for k in range(12)]
    table = count_parts(load(photos('\n'.join(['image,rose,bee,split', *rows]))))
    assert table.loc['test', ['photos', 'counted']].tolist() == [6, 2]


def test_what_lies_in_one_folder_is_named_as_in_the_table(photos):
    folder = photos(
        '\n'.join(
            ['image,positives', *(f'2019/{k}.jpg,{"rose" if k < 11 else "bee"}' for k in range(12))]
        ),
        copies={11: 10},
    )
    files = list((folder / 'images').iterdir())
    (folder / 'images' / '2019').mkdir()
    for file in files:
        file.rename(folder / 'images' / '2019' / file.name)
    text = check_folder(folder).text
    assert '2019/10.jpg (' in text and ' 10.jpg' not in text


def rows_with(counts, column='positives'):
    "A table with so many photos of each class, one name a photo."
    names = [name for name, n in counts.items() for _ in range(n)]
    return '\n'.join([f'image,{column}', *(f'{k}.jpg,{name}' for k, name in enumerate(names))])


@pytest.mark.parametrize(
    ('counts', 'said'),
    [
        # the largest limit that leaves half of the classes
        (
            {'rose': 25, 'bee': 12, 'leaf': 6, 'ant': 1},
            [
                '3 of 4 classes: bee 12',
                '--min-positives 10`',
                '2 of 4 classes, and 37 of 44 photos',
            ],
        ),
        (
            {'rose': 25, 'bee': 6, 'leaf': 5, 'ant': 1, 'elk': 1},
            ['--min-positives 5`', '3 of 5 classes, and 36 of 38 photos'],
        ),
        # half of them have too few at any limit
        ({'rose': 25, 'bee': 2, 'leaf': 2, 'ant': 1}, ['is no remedy: 1 of 4 have 3 or more']),
        ({'rose': 12, 'bee': 11}, ['2 of 2 classes: rose 12, bee 11. Add photos.\n']),
    ],
)
def test_leaving_out_rare_classes_is_offered_with_what_it_leaves_or_not_at_all(
    photos, counts, said
):
    text = check_folder(photos(rows_with(counts), n=sum(counts.values()))).text
    assert all(words in text for words in said)
    assert ('--min-positives' in text) == ('--min-positives' in ' '.join(said))
    assert 'min-positives 20' not in text


def test_next_carries_the_limit_that_was_just_advised(photos):
    rare = rows_with({'rose': 25, 'bee': 12, 'leaf': 6, 'ant': 1})
    header, *rows = rare.splitlines()
    parts = [('train', 'train', 'val', 'test')[k % 4] for k in range(len(rows))]
    table = [f'{row},{part}' for row, part in zip(rows, parts, strict=True)]
    folder = photos('\n'.join([f'{header},split', *table]), n=44)
    found = check_folder(folder)
    assert '--min-positives 10`' in found.text
    command = 'spml compare {0} an em hml --seeds 3'
    assert found.next_steps == (
        f'Next: {command}',
        f'or, with a model that never names leaf, ant: {command} --min-positives 10',
    )
    cells = [f'{k}.jpg,{("rose", "bee")[k % 2]},{part}' for k, part in enumerate(parts)]
    (folder / 'labels.csv').write_text('\n'.join([f'{header},split', *cells]))
    assert check_folder(folder).next_steps == ('Next: spml compare {0} an em hml --seeds 3',)


def test_photos_labelled_in_full_may_be_there_to_measure_a_run(photos):
    full = rows_with({'rose': 6, 'bee': 6}, 'labels')
    folder = photos(full)
    commands = [step.rpartition(': ')[2] for step in check_folder(folder).next_steps]
    assert commands == [
        'spml evaluate RUN {0}',
        'spml calibrate RUN {0}',
        'spml data {0} --split',
    ]
    (folder / 'labels.csv').write_text(full.replace('labels', 'positives'))
    assert check_folder(folder).next_steps == ('Next: spml data {0} --split',)


def test_what_is_unknown_stays_so_and_no_other_word_says_full(photos):
    text = check_folder(photos(rows_with({'rose': 6, 'bee': 6}))).text
    assert '1.0 positives per photo; the others are unknown' in text and 'full)' not in text


def test_a_class_that_is_most_of_what_is_written_down_is_said_before_all_numbers(photos):
    table = rows_with({'rose': 20, 'bee': 10, 'leaf': 10})
    folder = photos(table, n=40)
    text = check_folder(folder).text
    assert 'rose is 50 % of all names written down (20 of 40)' in text.splitlines()[1]
    (folder / 'labels.csv').write_text(table.replace('0.jpg,rose', '0.jpg,bee', 1))
    assert 'of all names written down' not in check_folder(folder).text
    (folder / 'labels.csv').write_text(table.replace('positives', 'labels'))
    assert 'of all names written down' not in check_folder(folder).text  # the others are absent


def test_what_is_to_be_mended_stands_before_what_is_to_be_known(photos):
    lines = check_folder(photos(MIXED, copies={5: 4}, damage={0: 700})).text.splitlines()
    assert lines[0].startswith('garden: 12 images') and lines[1].startswith('Photos that cannot be')
    first = {
        word: next(k for k, line in enumerate(lines) if word in line)
        for word in ('cannot be used', 'nearly the same', 'Rare', 'positives  ', 'A run sees')
    }
    assert list(first.values()) == sorted(first.values())


def test_a_folder_in_order_takes_a_dozen_lines(photos):
    rows = [f'{k}.jpg,{name}' for k, name in enumerate(['rose', 'bee', 'leaf'] * 40)]
    text = check_folder(photos('\n'.join(['image,positives', *rows]), n=120)).text
    assert len(text.splitlines()) <= 12 and 'Rare' not in text


def test_a_model_of_the_package_that_knows_most_classes_is_named_with_its_card(photos):
    folder = photos(rows_with({'cat': 4, 'dog': 4, 'truck': 3, 'zebra': 3}), n=14)
    line = check_folder(folder).text.splitlines()[-1]
    assert 'coco18, a model of the package, knows 3 of the 4 classes' in line
    assert Path(line.rpartition(': ')[2]).is_file()
    table = (folder / 'labels.csv').read_text()
    (folder / 'labels.csv').write_text(table.replace('truck', 'gnu'))
    assert 'model of the package' not in check_folder(folder).text


def test_what_will_be_observed_is_said_with_the_setting_that_hides_some(data):
    assert '1.3 positives' in describe_observed(
        data
    ) and '`-p labels single` it sees 1.0' in describe_observed(data)


def test_the_same_photo_is_found_in_another_size_and_a_damaged_one_is_named(photos):
    folder = photos(MIXED, copies={9: 2, 5: 4, 7: 4}, damage={0: 700, 1: b'', 3: b'no photo'})
    looked = inspect_photos([folder / 'images' / f'{k}.jpg' for k in range(12)])
    unusable = looked.unusable
    assert (
        set(unusable) == {0, 1, 3}
        and not looked.plain
        and unusable[1] == 'an empty file'
        and 'truncated' in unusable[0]
    )
    assert [group.rows.tolist() for group in looked.groups] == [[2, 9], [4, 5, 7]]
    assert not any(group.equal for group in looked.groups)
    found = check_folder(folder)
    assert not found.ready and 'cannot be used: 3 of 12, 0.jpg (' in found.text
    assert (
        'look nearly the same: 2, 2 of them in different parts, which makes scores too '
        'high: 2.jpg (train) ≈ 9.jpg (test)' in found.text
    )
    assert (
        'are equal: 1, 1 of them in different parts' in found.text
        and '5.jpg (train) = 7.jpg (val)' in found.text
    )  # copies of 4, the same bytes
    assert (
        'rose 8, bee 6' in found.text
        and 'Rare, with fewer than 20 positives, 2 of 2 classes: rose 8, bee 6. Add photos.'
        in found.text
    )
    assert 'of val are missing' in found.text and 'of test are missing' not in found.text


def test_photos_in_a_folder_called_images_are_named_as_in_the_table(photos):
    rows = MIXED.splitlines()
    folder = photos('\n'.join([rows[0], *(f'images/{row}' for row in rows[1:])]), damage={0: b'x'})
    (folder / 'images').rename(folder / 'inner')
    (folder / 'images').mkdir()
    (folder / 'inner').rename(folder / 'images' / 'images')
    assert 'cannot be used: 1 of 12, images/0.jpg (' in check_folder(folder).text


def test_equal_photos_are_told_from_those_that_only_look_alike(photos):
    folder = photos(MIXED, copies={7: 4})
    (folder / 'images' / '9.jpg').write_bytes((folder / 'images' / '2.jpg').read_bytes())
    text = check_folder(folder).text
    assert (
        'are equal: 1, 1 of them in different parts, which makes scores too '
        'high: 2.jpg (train) = 9.jpg (test). Keep one row of each.' in text
    )
    assert (
        'look nearly the same: 1, 1 of them in different parts, which makes scores too '
        'high: 4.jpg (train) ≈ 7.jpg (val). If it is one photo, keep one row' in text
    )


@pytest.mark.silent('C2')
def test_a_folder_with_one_photo_in_two_parts_is_not_ready(photos):
    folder = photos(MIXED)
    assert (
        check_folder(folder).ready
        and overview.count_shared_photos(load(folder)) == 0
        and overview.describe_shared_photos(load(folder)) == ''
    )
    for copy, original, shared in (
        ('1.jpg', '0.jpg', 0),
        ('9.jpg', '2.jpg', 1),
        ('10.jpg', '2.jpg', 2),
        ('11.jpg', '7.jpg', 2),
    ):  # 7 is in val
        (folder / 'images' / copy).write_bytes((folder / 'images' / original).read_bytes())
        assert (
            check_folder(folder).ready == (copy == '1.jpg')
            and overview.count_shared_photos(load(folder)) == shared
        )
    assert ' 4 test photos 2 ' in overview.describe_shared_photos(load(folder))


@pytest.mark.silent('C2')
def test_copies_among_photos_that_look_alike_are_named(photo_folder):
    data = load(
        photo_folder
    )  # photos of few kinds, so that a group holds many that are not the same
    tested, trained = (data.rows(part)[0] for part in ('test', 'train'))
    data.images[tested].write_bytes(data.images[trained].read_bytes())
    found = check_folder(photo_folder)
    first, second = sorted((tested, trained))
    assert (
        not found.ready
        and f'{first:03}.png ({data.split[first]}) = {second:03}.png ({data.split[second]})'
        in found.text
    )


def test_photos_that_cannot_be_read_are_not_shared(photos):
    data = load(photos(MIXED))
    for k in (1, 9):
        data.images[k].unlink()
    assert overview.count_shared_photos(data) == 0


@pytest.mark.silent('C3')
def test_photos_that_become_plain_are_named(photos):
    "A white drawing on nothing: what is transparent becomes white. A black one is seen."
    folder = photos(MIXED)
    for name, ink in (('2.jpg', 255), ('3.jpg', 0)):
        drawing = np.zeros((40, 60, 4), np.uint8)
        drawing[10:30, 20:40] = ink, ink, ink, 255
        Image.fromarray(drawing).save(folder / 'images' / name, 'png')
    found = check_folder(folder)
    assert (
        found.ready
        and 'Photos of one colour, as a network sees them: 1 of 12, 2.jpg.' in found.text
    )
    assert 'nearly the same' not in found.text and 'are equal' not in found.text


def test_a_class_that_nobody_is_known_to_lack_has_no_ap_and_one_that_all_lack_counts_as_0(photos):
    cells = [',0,1', ',1,0'] * 2 + [',1,'] * 2  # rose, bee, leaf of two photos each
    rows = [f'{k}.jpg,{"1,0,0" if k % 2 else "0,1,1"},train' for k in range(6)] + [
        f'{k}.jpg{cells[k - 6]},{"val" if k < 8 else "test"}' for k in range(6, 12)
    ]
    table = '\n'.join(
        [
            'image,rose,bee,leaf,split',
            *(row if row.endswith('train') else row.replace('.jpg,', '.jpg,,', 1) for row in rows),
        ]
    )
    text = check_folder(photos(table)).text
    assert (
        'No val photo is known to lack: rose. Such a class has no AP there.' in text
        and 'No val photo is known to have' not in text
    )
    assert 'No test photo is known to lack: rose.' in text


def test_what_no_run_could_learn_from_is_not_ready(photos):
    found = check_folder(photos('\n'.join(['image,rose,bee', *(f'{k}.jpg,,' for k in range(12))])))
    assert not found.ready and 'no photo of the part train has a label' in found.text


def test_what_a_part_lacks_and_one_label_each_are_said_once(photos):
    cells = ['rose', 'bee', 'leaf'] * 2 + ['rose', 'bee'] * 3
    table = '\n'.join(
        [
            'image,positives,split',
            *(
                f'{k}.jpg,{cells[k]},{"train" if k < 6 else "val" if k < 9 else "test"}'
                for k in range(12)
            ),
        ]
    )
    folder = photos(table)
    text = check_folder(folder).text
    assert (
        text.count('The true mAP and F1 of val and test are missing')
        == text.count('are missing, because')
        == 1
    )
    assert (
        'No val photo is known to have: leaf. ' in text
        and 'No test photo is known to have: leaf.' in text
    )
    assert 'No train photo' not in text and 'exactly one label' not in text
    (folder / 'labels.csv').write_text(table.replace('positives', 'labels'))
    text = check_folder(folder).text
    assert (
        'warning: garden: every photo has exactly one label' in text
        and 'name the column `positives`' in text
        and 'are missing' not in text
    )


def test_a_folder_in_order_is_ready_and_doubts_are_said(photos):
    found = check_folder(
        photos(
            '\n'.join(
                [
                    'image,labels',
                    *(f'{k}.jpg,{("rose|leaf", "leaf", "")[k % 3]}' for k in range(11)),
                ]
            )
        )
    )
    assert found.ready and 'are equal' not in found.text and 'cannot be used' not in found.text
    assert (
        'warning: garden: labels.csv has no row for 1 photos' in found.text
        and 'warning: garden: photos with no label' in found.text
    )


def test_groups_are_counted_and_those_in_two_parts_are_named(photo_folder):
    table = pd.read_csv(photo_folder / 'labels.csv')
    table['group'] = [f'site {k // 4}' if k < 20 else '' for k in range(60)]
    table.to_csv(photo_folder / 'labels.csv', index=False)
    text = check_folder(photo_folder).text
    assert '20 photos share 5 groups, the largest site 0 with 4; 40 share none' in text
    assert 'photos of a group are in different parts' not in text
    table['split'] = ['test' if k % 4 == 0 else 'train' for k in range(60)]
    table.to_csv(photo_folder / 'labels.csv', index=False)
    text = check_folder(photo_folder).text
    assert text.count('photos of a group are in different parts') == 1
    assert ': 5 groups, site 0, site 1' in text


def test_drawing_the_parts_anew_is_advised_only_where_the_command_would_do_it(photo_folder):
    table = pd.read_csv(photo_folder / 'labels.csv')
    for column in ('split', None):
        given = table.drop(columns='split', errors='ignore')
        if column:
            given[column] = ['train', 'train', 'train', 'test'] * (len(table) // 4)
        given.to_csv(photo_folder / 'labels.csv', index=False)
        data = load(photo_folder)
        (line,) = overview._drawn(data)
        assert ('remove the column' in line) == bool(column)
        assert ('before the first run' in line) == (column is None)
