"""Labelling: nothing that was answered is lost, the sample is a fair draw, doubtful labels and
intervals are those of plain loops.
"""

import os
import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from quick import config

from spml_nb import cli, training
from spml_nb import data as datasets
from spml_nb.base.errors import SpmlError
from spml_nb.data.folder import parse_label_table, read_folder, read_groups, read_label_table
from spml_nb.data.loading import load
from spml_nb.training import batches
from spml_nb.use import annotate
from spml_nb.use.annotate import Sheet, draw_sample, parse_answer

CLASSES = ['cat', 'dog', 'tree']


@pytest.fixture
def folder(tmp_path):
    "Thirty photos without a table, some of them in a folder of their own."
    for k in range(30):
        file = tmp_path / 'photos' / 'images' / f'{"a/" if k < 5 else ""}{k:02}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), 8 * k, np.uint8)).save(file)
    return tmp_path / 'photos'


# ---- answers


def test_what_is_answered_is_read_back_and_the_rest_waits(folder):
    sheet = Sheet(folder, CLASSES, sample=6)
    given = {image: [CLASSES[k % 3]] for k, image in enumerate(sheet.waiting())}
    for image, names in list(given.items())[:10]:
        sheet.answer(image, names)
    again = Sheet(folder, sample=6)
    assert (
        again.class_names == CLASSES
        and again.sample == sheet.sample
        and again.waiting() == list(given)[10:]
    )
    for image in again.waiting():
        again.answer(image, given[image])
    for image in again.waiting(full=True):
        again.answer(image, ['cat', 'tree'])
    data = read_folder(folder, 'photos')
    row = {name: k for k, name in enumerate(data.image_names)}
    for image, names in given.items():
        assert data.labels[row[image]].tolist() == [int(name in names) for name in CLASSES]
    sample = np.flatnonzero(data.split != 'train')
    assert (
        sorted(np.array(data.image_names)[sample]) == sorted(sheet.sample)
        and len(data.rows('val')) == len(data.rows('test')) == 3
    )
    assert (data.labels[sample] == [1, -1, 1]).all() and not set(data.image_names) ^ set(
        sheet.images
    )


def test_without_a_number_a_third_of_few_photos_is_labelled_in_full(folder):
    sheet = Sheet(folder, CLASSES, sample=None)
    assert len(sheet.sample) == len(sheet.images) // 3


def test_an_answer_that_cannot_be_written_leaves_the_table_as_it_was(folder, monkeypatch):
    sheet = Sheet(folder, CLASSES)
    first, second, *_ = sheet.waiting()
    sheet.answer(first, ['cat'])
    before = sheet.file.read_bytes()

    def full(*_):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(os, 'replace', full)
    with pytest.raises(SpmlError, match='could not be written'):
        sheet.answer(second, ['dog'])
    monkeypatch.undo()
    assert (
        sheet.file.read_bytes() == before
        and sheet.waiting()[0] == second
        and {f.name for f in folder.iterdir()} <= {'images', 'labels.csv', '.labels.csv.lock'}
    )


def test_a_name_that_no_table_can_hold_is_told(folder):
    os.rename(folder / 'images' / '07.png', os.fsencode(folder / 'images') + b'/caf\xe9.png')
    with pytest.raises(SpmlError, match=r"names that are not UTF-8: 'caf\\udce9.png'. Rename"):
        Sheet(folder, CLASSES)


def test_two_windows_on_one_folder_lose_nothing(folder):
    one, other = Sheet(folder, CLASSES, sample=4), Sheet(folder, ['bird'], sample=4)
    for sheet, names in ((one, ['cat']), (other, ['bird']), (one, ['dog'])):
        sheet.answer(sheet.waiting()[0], names)
    table = Sheet(folder).table()
    assert (
        len(table) == 3
        and (table.drop(columns='split') == '1').sum().sum() == 3
        and {'bird', *CLASSES} <= set(table)
    )


def test_a_class_that_another_window_has_added_is_unknown_and_not_absent(folder):
    one, another, other = (Sheet(folder, CLASSES, sample=2) for _ in range(3))
    tested, plain = one.sample[0], one.waiting()[0]
    other.add('owl')
    other.answer(other.waiting()[1], ['owl'])
    one.answer(tested, ['cat'])
    another.answer(plain, [])
    table = Sheet(folder, sample=2).table().loc[[tested, plain]]
    assert (table.owl == '').all() and (table.dog == '0').all() and table.cat.tolist() == ['1', '0']
    assert tested in Sheet(folder, sample=2).waiting(full=True)


def test_an_answer_may_be_given_again_and_none_means_absent(folder):
    sheet = Sheet(folder, CLASSES, sample=3)
    image, tested = sheet.waiting()[0], sheet.sample[0]
    sheet.answer(image, ['cat'])
    sheet.answer(image, [])
    sheet.answer(tested, [])
    assert (sheet.table().loc[[image, tested], CLASSES] == '0').all(axis=None) and len(
        sheet.table()
    ) == 2
    with pytest.raises(SpmlError, match="'bird' is no class; there are cat, dog, tree"):
        sheet.answer(image, ['bird'])


def test_a_seed_draws_the_same_photos_and_a_larger_draw_begins_with_them():
    pool = [f'{k}.jpg' for k in range(500)]
    drawn = draw_sample(pool, 50, seed=4)
    assert draw_sample(pool[::-1], 50, 4) == drawn and len(set(drawn)) == 50
    assert draw_sample(pool, 120, 4)[:50] == drawn
    assert len(set(draw_sample(pool, 50, 5)) & set(drawn)) < 20
    # every photo is drawn as often as any other
    places = [pool.index(name) for seed in range(200) for name in draw_sample(pool, 50, seed)]
    counts = np.bincount(places, minlength=500)
    assert counts.sum() == 10000 and 5 <= counts.min() and counts.max() <= 40


@pytest.mark.parametrize('count', [4, -1])
def test_a_pool_that_is_too_small_is_said(count):
    with pytest.raises(SpmlError, match=f'{count} photos cannot be drawn from a pool of 3'):
        draw_sample(['a', 'b', 'c'], count)


def test_the_sample_is_drawn_by_names_alone(folder):
    "Whatever was labelled before, whoever has a table already, and however many are wanted."
    sheet = Sheet(folder, CLASSES, sample=6)
    for image in sheet.waiting()[:7]:
        sheet.answer(image, ['dog'])
    larger = Sheet(folder, CLASSES, sample=12)
    assert larger.sample[:6] == sheet.sample and Sheet(folder, sample=6).sample == sheet.sample
    pd.DataFrame({'image': sorted(sheet.images), 'positives': 'cat'}).to_csv(
        folder / 'labels.csv', index=False
    )
    own = Sheet(folder, CLASSES, sample=6)  # one label a photo, none in full
    assert (
        own.sample == sheet.sample
        and own.waiting() == []
        and own.waiting(full=True) == sorted(own.sample, key=own.images.index)
    )
    own.answer(own.sample[0], ['cat', 'dog'])
    assert own.table().split.eq('test').sum() == 1 and len(own.table()) == 30
    marked = sorted(sheet.images)[:3]
    pd.DataFrame(
        {'image': sorted(sheet.images), 'positives': 'cat', 'split': ['test'] * 3 + ['train'] * 27}
    ).to_csv(folder / 'labels.csv', index=False)
    assert sorted(Sheet(folder).sample) == marked and set(marked) < set(
        Sheet(folder, sample=5).sample
    )


@pytest.mark.parametrize('kind', ['labels', 'positives', 'columns'])
def test_a_table_of_any_layout_keeps_what_it_says(folder, kind):
    names = sorted(
        str(f.relative_to(folder / 'images')) for f in (folder / 'images').rglob('*.png')
    )
    cells = [['cat', 'cat | dog', 'tree', ''][k % 4] for k in range(29)]
    table = pd.DataFrame({'image': names[:29], kind: cells})
    if kind == 'columns':
        table = pd.DataFrame(
            {
                'image': names[:29],
                **{
                    name: [
                        '1' if name in cell else ['0', ''][k % 2] for k, cell in enumerate(cells)
                    ]
                    for name in CLASSES
                },
            }
        )
    table.to_csv(folder / 'labels.csv', index=False)
    before = read_folder(folder, 'photos')
    Sheet(folder).answer(names[29], ['tree'])
    after = read_folder(folder, 'photos')
    order = [after.class_names.index(name) for name in before.class_names]
    assert (
        sorted(after.class_names) == CLASSES
        and (after.labels[:29, order] == before.labels).all()
        and after.image_names[29] == names[29]
    )


@pytest.mark.parametrize(
    'text, told',
    [
        ('file,cat\n00.png,1\n', "Rename the first column 'file' to `image`"),
        ('image,cat\n05.png,1\n./05.png,0\n', 'several rows for: 05.png'),
        ('', 'is empty'),
        ('image,cat\n05.png,yes\n', "cell 'yes'"),
        ('image,cat|dog\n05.png,1\n', 'no class can be called'),
        ('image,Split\n05.png,1\n', 'no class can be called'),
    ],
)
def test_a_table_that_cannot_be_read_is_left_alone(folder, text, told):
    (folder / 'labels.csv').write_text(text)
    with pytest.raises(SpmlError, match=told):
        Sheet(folder, CLASSES)
    assert (folder / 'labels.csv').read_text() == text


def test_classes_have_usable_names(folder):
    with pytest.raises(
        SpmlError, match=r'no class to choose from.*classes = "cat\|dog" in the notebook'
    ):
        Sheet(folder)
    for name in (
        'split',
        'Split',
        'a|b',
        ' ',
    ):  # what the reader of the table refuses would lose the labels
        with pytest.raises(
            SpmlError, match=f'no class can be called {re.escape(repr(name.strip()))}'
        ):
            Sheet(folder, [name])
    sheet = Sheet(folder, CLASSES, sample=2)
    for image in sheet.sample:
        sheet.answer(image, ['cat'])
    for name in ('Labels', 'x|y', ''):
        with pytest.raises(SpmlError, match='no class can be called'):
            sheet.add(name)
    assert (
        sheet.add(' dog') == 'dog'
        and sheet.class_names == CLASSES
        and sheet.waiting(full=True) == []
    )  # it was there
    sheet.add('bird')
    assert sorted(sheet.waiting(full=True)) == sorted(
        sheet.sample
    )  # a new class is unknown on the sample


def test_the_sheet_reads_what_the_loader_reads(folder):
    "Blanks around a name, a cell of blanks, 1.0, and a table that is only begun."
    (folder / 'labels.csv').write_text('image, cat,dog \n05.png,1.0, \n06.png, ,\n')
    sheet = Sheet(folder, ['cat', 'dog'])
    assert sheet.class_names == ['cat', 'dog'] and sheet.table()[
        ['cat', 'dog']
    ].to_numpy().tolist() == [['1', ''], ['', '']]
    assert '06.png' in sheet.waiting() and '05.png' not in sheet.waiting()
    for begun in ('image,cat,dog\n', 'image,positives\n05.png,\n'):
        (folder / 'labels.csv').write_text(begun)
        assert len(Sheet(folder, ['cat']).waiting()) == 30


def test_an_accent_spelled_otherwise_names_the_same_photo(tmp_path):
    """é is one character to some systems and two to others: the table of one, the photos of the
    other.
    """
    (tmp_path / 'images').mkdir()
    composed, apart = 'caf\xe9.png', 'cafe\u0301.png'
    for name in (apart, 'x.png'):
        Image.new('RGB', (4, 4)).save(tmp_path / 'images' / name)
    (tmp_path / 'labels.csv').write_text(
        f'image,cat,dog,split\n{composed},1,0,test\n', encoding='utf-8'
    )
    sheet = Sheet(tmp_path)
    assert sheet.images == Sheet(tmp_path).images and set(sheet.images) == {apart, 'x.png'}
    assert (
        sheet.sample == [apart] and sheet.waiting() == ['x.png'] and sheet.waiting(full=True) == []
    )
    sheet.answer(apart, ['dog']), sheet.answer('x.png', ['cat'])
    assert sheet.table().loc[apart].tolist() == ['0', '1', 'test'] and len(sheet.table()) == 2


def test_photos_that_lie_elsewhere_are_found(folder):
    (folder / 'images').rename(folder / 'cat')
    with pytest.raises(SpmlError, match='There is cat/. Rename it to images'):
        Sheet(folder, CLASSES)
    (folder / 'cat' / '05.png').rename(folder / '05.png')
    (folder / 'dog').mkdir()
    (folder / '05.png').rename(folder / 'dog' / '05.png')
    with pytest.raises(SpmlError, match='one folder for each class'):
        Sheet(folder, CLASSES)
    with pytest.raises(SpmlError, match='is not there'):
        Sheet(folder / 'none', CLASSES)


@pytest.mark.parametrize(
    'text, names',
    [
        ('2', ['car']),
        ('cat', ['cat']),
        ('CAT', ['cat']),
        ('t', ['traffic light']),
        ('3 1', ['traffic light', 'cat']),
        ('1, 3', ['cat', 'traffic light']),
        ('cat, traffic light', ['cat', 'traffic light']),
        ('1 1', ['cat']),
        ('', []),
        ('7', ['7']),
    ],
)
def test_what_is_typed_is_understood(text, names):
    assert parse_answer(text, ['cat', 'car', 'traffic light', '7']) == names


@pytest.mark.parametrize(
    'text, told',
    [
        ('ca', "'ca' may mean cat, car"),
        ('9', 'a number from 1 to 2'),
        ('0', "'0' is no class"),
        ('dog', "'dog' is no class"),
        ('cat dog', "'cat dog' is no class"),
    ],
)
def test_what_is_not_understood_is_told(text, told):
    with pytest.raises(SpmlError, match=told):
        parse_answer(text, ['cat', 'car'])


# ---- judges


def test_nobody_judges_a_photo_it_was_trained_on(photo_folder, monkeypatch):
    task = training.make_task(config(photo_folder, labels='full'))
    task, seen = replace(task, side={'row': task.train}), []

    def train(given, *, task, root):
        seen.append((set(task.train), set(task.test), len(task.observed)))
        assert (
            task.side['row'].tolist() == task.train.tolist()
        )  # what is known of a photo stays with it
        return SimpleNamespace(logits={'test': np.repeat(task.test[:, None], 3, axis=1) / 10})

    monkeypatch.setattr(annotate, 'train', train)
    said = annotate.predict_held_out(config(photo_folder), task)
    assert np.allclose(
        said, 1 / (1 + np.exp(-task.train / 10))[:, None]
    )  # each photo has its own answer
    assert (
        all(
            not taught & judged and taught | judged == set(task.train) and n == len(taught)
            for taught, judged, n in seen
        )
        and len(seen) == 2
    )


def test_judges_compute_no_features_again(photo_folder, monkeypatch, tmp_path):
    monkeypatch.setenv('SPML_NB_CACHE', str(tmp_path / 'cache'))
    given, computed = config(photo_folder, labels='full', regime='linear'), []
    monkeypatch.setattr(
        batches,
        '_write_features',
        lambda *args, write=batches._write_features: (computed.append(args), write(*args)),
    )
    training.train(given)
    first = len(computed)
    said = annotate.predict_held_out(given, training.make_task(given))
    assert (
        first
        and len(computed) == first
        and said.shape == (38, 3)
        and (0 < said).all()
        and (said < 1).all()
    )


def test_judges_of_changed_labels_are_new_ones(photo_folder):
    given = config(photo_folder, labels='full')
    annotate.predict_held_out(given, training.make_task(given))
    table = pd.read_csv(photo_folder / 'labels.csv')
    table.loc[0, 'labels'] = 'red|blue'
    table.to_csv(photo_folder / 'labels.csv', index=False)
    # a run that is done would refuse other data
    annotate.predict_held_out(given, training.make_task(given))


# ---- lists


def test_lists_are_those_of_plain_loops():
    random = np.random.default_rng(0)
    p, z = random.random((20, 4)), random.choice([1, 0, 0, -1], (20, 4))
    wrong, missing = annotate.find_doubtful_labels(p, z)
    mean = [np.mean([p[i, c] for i in range(20) if z[i, c] > 0]) for c in range(4)]
    entries = sorted((p[i, c] / mean[c], i, c) for i in range(20) for c in range(4) if z[i, c] > 0)
    assert np.allclose(wrong[['support', 'row', 'class']], entries)

    def odds(i, c):
        s, n = np.log(p[:, c] / (1 - p[:, c])), sum(z[:, c] > 0)
        t = np.mean([s[k] for k in range(20) if z[k, c] > 0])
        u = np.mean([s[k] for k in range(20) if z[k, c] <= 0])
        variance = sum((s[k] - (t if z[k, c] > 0 else u)) ** 2 for k in range(20)) / 20 + 1e-3
        return n / (n + 10) * (t - u) / variance * (s[i] - (t + u) / 2) + np.log(
            (n + 1) / (20 - n + 1)
        )

    rest = sorted(
        (
            (1 / (1 + np.exp(-odds(i, c))), i, c)
            for i in range(20)
            for c in range(4)
            if z[i, c] <= 0
        ),
        reverse=True,
    )
    assert np.allclose(missing[['probability', 'row', 'class']], rest)
    assert (z[wrong['row'], wrong.instead] <= 0).all()


def test_a_rare_class_that_was_not_learnt_fills_no_list():
    """Its two photos are judged at one percent: divided by that, every other photo would look like
    it. Twenty photos have two labels, of which one was given.
    """
    random = np.random.default_rng(0)
    z = np.zeros((200, 3), np.int8)
    z[np.arange(200), [2, 2, *random.integers(0, 2, 198)]] = 1
    p = np.where(z > 0, 0.7, 0.2) + 0.1 * random.random((200, 3))
    p[:, 2] = 0.01 + 0.02 * random.random(200)
    p[10:30, :2] = 0.75
    wrong, missing = annotate.find_doubtful_labels(p, z)
    assert set(missing['row'][:20]) == set(range(10, 30)) and (missing['class'][:20] != 2).all()
    both = wrong[wrong['row'].between(10, 29)]
    assert (both.instead == 1 - both['class']).all()


def test_a_method_that_leaves_a_class_near_one_half_fills_no_list():
    """As EM does with a class that it has not learnt: high for every photo, and no higher for those
    that have it.
    """
    random = np.random.default_rng(0)
    z = np.zeros((200, 2), np.int8)
    z[np.arange(200), np.arange(200) % 2] = 1
    p = np.stack(
        [
            0.6 + 0.1 * random.random(200),
            np.where(z[:, 1] > 0, 0.5, 0.2) + 0.1 * random.random(200),
        ],
        axis=1,
    )
    p[:8:2, 1] = 0.55
    _, missing = annotate.find_doubtful_labels(p, z)
    assert set(missing['row'][:4]) == {0, 2, 4, 6} and (missing['class'][:4] == 1).all()


# ---- the sample


def test_a_photo_of_the_sample_trains_nobody(folder):
    sheet = Sheet(folder, CLASSES, sample=8)
    for k, image in enumerate(sheet.waiting()):
        sheet.answer(image, [CLASSES[k % 3]])
    for k, image in enumerate(sheet.waiting(full=True)):
        sheet.answer(image, [CLASSES[k % 3]])
    data = datasets.load(folder)
    assert {data.image_names[row] for row in np.flatnonzero(data.split != 'train')} == set(
        sheet.sample
    ) and len(data.rows('val')) == len(data.rows('test')) == 4


@pytest.mark.silent('A3')
def test_one_half_of_the_sample_chooses_and_the_other_measures(folder):
    """By photo: an answer moves no other one, whoever goes on finds each where it was, and an older
    sample, all of it for testing, stays.
    """
    sheet = Sheet(folder, CLASSES, sample=8)
    assert (
        sheet.part.keys() == set(sheet.sample)
        and sorted(sheet.part.values()) == ['test'] * 4 + ['val'] * 4
    )
    for k, image in enumerate(sheet.waiting()):
        sheet.answer(image, [CLASSES[k % 3]])
    for k, image in enumerate(sheet.sample[::-1]):
        sheet.answer(image, CLASSES[: k % 4])
        again = Sheet(folder, sample=8)
        table = again.table()
        assert (
            sorted(again.sample) == sorted(sheet.sample)
            and again.part[image] == sheet.part[image] == table.split[image]
        )
        assert Counter(again.part.values()) == {'val': 4, 'test': 4}
    data = datasets.load(folder)
    for part in ('val', 'test'):
        assert {data.image_names[row] for row in data.rows(part)} == {
            name for name, own in sheet.part.items() if own == part
        }
        assert (data.labels[data.rows(part)] != 0).all()
    larger = Sheet(folder, sample=12)
    assert larger.part.items() > sheet.part.items() and Counter(larger.part.values()) == {
        'val': 6,
        'test': 6,
    }
    sheet.file.write_text(sheet.file.read_text().replace(',val', ',test'))
    assert Counter(Sheet(folder, sample=12).part.values()) == {'test': 8, 'val': 4}


def write_groups(folder, sizes, header='image,positives,group'):
    "A table in which photos, in the order of their names, share groups of these sizes."
    images = sorted(Sheet(folder, CLASSES).images)
    groups = [f'site {k}' for k, size in enumerate(sizes) for _ in range(size)]
    groups += [''] * (len(images) - len(groups))
    rows = [f'{image},cat,{group}' for image, group in zip(images, groups, strict=True)]
    (folder / 'labels.csv').write_text('\n'.join([header, *rows]))
    return dict(zip(images, groups, strict=True))


def find_mixed_groups(parts, group_of):
    "The groups that have photos in several parts."
    found = {}
    for image, part in parts.items():
        if group_of[image]:
            found.setdefault(group_of[image], set()).add(part)
    return {group for group, of_group in found.items() if len(of_group) > 1}


@pytest.mark.silent('C2')
@pytest.mark.parametrize('sizes', [[3] * 10, [2] * 5, [7, 7, 7]])
def test_photos_of_a_group_are_in_one_part_from_the_first_answer_on(folder, sizes):
    group_of = write_groups(folder, sizes)
    sheet = Sheet(folder, CLASSES, sample=8)
    count = Counter(sheet.part.values())
    assert len(sheet.part) >= 8 and min(count.values()) >= 4
    held = {group_of[image] for image in sheet.part} - {''}
    assert all(image in sheet.part for image, group in group_of.items() if group in held)
    assert not find_mixed_groups(sheet.part, group_of)
    for k, image in enumerate(sheet.waiting(full=True)):
        sheet.answer(image, CLASSES[: k % 4])
        split = sheet.table().split
        assert not find_mixed_groups(split, group_of) and (split == 'train').any()
        again = Sheet(folder, sample=8)
        assert again.part == sheet.part and set(again.sample) == set(sheet.sample)
    assert Sheet(folder, sample=12).part.items() >= sheet.part.items()
    assert set(split[split != 'train'].index) == set(sheet.sample)


def test_groups_that_leave_no_photo_for_training_are_refused(folder):
    write_groups(folder, [20, 10])
    with pytest.raises(SpmlError, match='takes the photos of all groups, so that none is left'):
        Sheet(folder, CLASSES, sample=8)
    assert len(Sheet(folder, CLASSES, sample=30).sample) == 30  # all were wanted
    assert Sheet(folder, CLASSES).sample == []


def test_a_given_part_is_kept_though_its_group_is_in_two(folder):
    group_of = write_groups(folder, [3] * 10)
    table = pd.read_csv(folder / 'labels.csv')
    table['split'] = ['test'] + ['train'] * 29
    table.to_csv(folder / 'labels.csv', index=False)
    sheet = Sheet(folder, CLASSES)
    (tested,) = sheet.sample
    sheet.answer(tested, ['dog'])
    assert sheet.table().split.eq('test').sum() == 1
    larger = Sheet(folder, CLASSES, sample=3).part
    assert {group_of[image] for image in larger if larger[image] == 'test'} == {group_of[tested]}


# ---- names that no table can hold


@pytest.mark.silent('C9')
@pytest.mark.parametrize('name', ['a\rb.png', 'a\nb.png', '\x1b[2J.png', 'a\x85b.png'])
def test_a_photo_whose_name_would_break_the_table_is_refused_before_anything_is_asked(folder, name):
    (folder / 'images' / '05.png').rename(folder / 'images' / name)
    with pytest.raises(SpmlError) as caught:
        Sheet(folder, CLASSES)
    assert ascii(name)[1:-1] in str(caught.value) and not (folder / 'labels.csv').exists()


@pytest.mark.silent('C9')
def test_a_table_that_could_not_be_read_any_more_does_not_replace_the_old_one(folder, monkeypatch):
    sheet = Sheet(folder, CLASSES)
    first, second, *_ = sheet.waiting()
    sheet.answer(first, ['cat'])
    before = sheet.file.read_bytes()

    def careless(table, file, **_):
        file.write_text('image,cat\na\rb.png,1\n')

    with monkeypatch.context() as patched:
        patched.setattr(pd.DataFrame, 'to_csv', careless)
        with pytest.raises(SpmlError, match='labels.csv stays as it is'):
            sheet.answer(second, ['dog'])
    assert sheet.file.read_bytes() == before and sheet.waiting()[0] == second
    sheet.answer(second, ['dog'])
    assert sheet.table().loc[second, 'dog'] == '1'


@pytest.mark.silent('C9')
def test_labels_keep_exact_names(folder):
    (folder / 'images' / '05.png').rename(folder / 'images' / "=x.png")
    sheet = Sheet(folder, ['=1+1', '-a', '<b>'])
    for image in sheet.waiting():
        sheet.answer(image, ['=1+1', '<b>'])
    data = read_folder(folder, 'photos')
    assert (
        data.class_names == ['=1+1', '-a', '<b>']
        and '=x.png' in data.image_names
        and data.labels[:, [0, 2]].all()
    )


@pytest.mark.parametrize('header', ['image,positives,group', 'image,cat,group'])
def test_groups_stay_in_the_table(folder, header):
    images = Sheet(folder, CLASSES).images
    cell = 'cat' if 'positives' in header else '1'
    rows = [f'{image},{cell},site {k // 3}' for k, image in enumerate(images[:6])]
    (folder / 'labels.csv').write_text('\n'.join([header, *rows]))
    sheet = Sheet(folder, CLASSES)
    assert sheet.class_names == CLASSES
    sheet.answer(images[9], ['dog'])
    table = pd.read_csv(folder / 'labels.csv', index_col='image', dtype=str).fillna('')
    assert table.group[images[:6]].tolist() == ['site 0'] * 3 + ['site 1'] * 3
    assert table.group[images[9]] == '' and table.dog[images[9]] == '1'
    assert read_folder(folder, 'photos').groups.count('site 1') == 3


def test_groups_called_0_and_1_do_not_become_a_class(folder):
    images = Sheet(folder, CLASSES).images
    rows = [f'{image},cat,{k % 2}' for k, image in enumerate(images[:6])]
    (folder / 'labels.csv').write_text('\n'.join(['image,positives,group', *rows]))
    Sheet(folder, CLASSES).answer(images[9], ['dog'])
    sheet = Sheet(folder, CLASSES)
    assert sheet.class_names == CLASSES
    sheet.answer(images[10], ['dog'])
    groups = read_groups(read_label_table(folder / 'labels.csv'))
    assert sorted(groups.count(group) for group in set(groups)) == [2, 3, 3]


def one_label_each(made, folder, **columns):
    "The photos with one known name each. Returns: the folder."
    folder.mkdir()
    (folder / 'images').symlink_to(made.folder / 'images')
    table = pd.read_csv(made.folder / 'labels.csv')
    names = table.pop('labels').str.split('|').str[0]
    table[['image']].assign(positives=names, **columns).to_csv(folder / 'labels.csv', index=False)
    return folder


@pytest.mark.filterwarnings('ignore')
def test_a_sample_is_drawn_from_the_test_photos_and_keeps_what_is_known(made, tmp_path, capsys):
    parts = ['train'] * 20 + ['val'] * 8 + ['test'] * 20
    folder = one_label_each(made, tmp_path / 'photos', split=parts)
    full = tmp_path / 'FULL'
    assert cli.main(['data', str(folder), '--sample', str(full), '8']) == 0
    told = capsys.readouterr().out
    assert '8 photos, drawn at random of the 20 test photos' in told
    assert f'dataset = {str(full)!r}, sample = 8' in told
    for command in (f'spml calibrate RUN {full}', f'spml evaluate RUN {full}'):
        assert command in told
    table = pd.read_csv(folder / 'labels.csv').set_index('image')
    pool = table.index[28:]
    drawn = load(full)
    names = [str(path.relative_to(full / 'images')) for path in drawn.images]
    assert names == annotate.draw_sample(pool, 8)
    assert drawn.class_names == load(folder).class_names == ['blue', 'red']
    for name, path, row in zip(names, drawn.images, drawn.labels, strict=True):
        assert path.read_bytes() == (made.folder / 'images' / name).read_bytes()
        assert not path.is_symlink()
        known = [drawn.class_names[c] for c in np.flatnonzero(row)]
        assert known == [table.positives[name]] and row.max() == 1
    # a larger draw begins with the smaller one, and label_photos goes on with it
    annotate.write_sample(folder, tmp_path / 'more', 12)
    assert annotate.draw_sample(pool, 12)[:8] == names
    sheet = annotate.Sheet(full, sample=8)
    assert sorted(sheet.waiting(full=True)) == sorted(names)
    assert (sheet.table().drop(columns='split') == '1').sum().sum() == 8


@pytest.mark.silent('A3')
@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('groups', ['abcde', '01010', '01234'])
def test_a_sample_keeps_the_groups_of_its_photos(made, tmp_path, groups):
    parts = ['train'] * 20 + ['val'] * 8 + ['test'] * 20
    of_photos = [*groups] * 9 + ['', *groups[:2]]
    folder = one_label_each(made, tmp_path / 'photos', split=parts, group=of_photos)
    annotate.write_sample(folder, tmp_path / 'FULL', 12)
    file = tmp_path / 'FULL' / 'labels.csv'
    drawn = read_label_table(file)
    assert parse_label_table(drawn, file)[1] == ['blue', 'red']  # a group of 0 and 1 is no class
    group_of = dict(zip(read_label_table(folder / 'labels.csv').image, of_photos, strict=True))
    pairs = {(group_of[n], g) for n, g in zip(drawn.image, read_groups(drawn), strict=True)}
    assert len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs}) > 1


@pytest.mark.filterwarnings('ignore')
def test_a_sample_of_photos_without_a_group_has_no_column_for_it(made, tmp_path):
    parts = ['train'] * 20 + ['val'] * 8 + ['test'] * 20
    groups = ['north'] * 10 + ['south'] * 10 + [''] * 28
    folder = one_label_each(made, tmp_path / 'photos', split=parts, group=groups)
    annotate.write_sample(folder, tmp_path / 'FULL', 12)
    assert 'group' not in read_label_table(tmp_path / 'FULL' / 'labels.csv')
    assert annotate.Sheet(tmp_path / 'FULL', sample=12).class_names == ['blue', 'red']


@pytest.mark.filterwarnings('ignore')
def test_a_sample_of_two_groups_can_be_scored_when_its_labels_are_filled_in(made, tmp_path):
    parts = ['train'] * 20 + ['val'] * 8 + ['test'] * 20
    folder = one_label_each(made, tmp_path / 'photos', split=parts, group=['north', 'south'] * 24)
    annotate.write_sample(folder, tmp_path / 'FULL', 10)
    file = tmp_path / 'FULL' / 'labels.csv'
    table = pd.read_csv(file, dtype=str).fillna('0')
    table.to_csv(file, index=False)
    data = load(tmp_path / 'FULL', scored=True)
    assert len(data.rows('test')) == 10 and set(data.groups) == {'north', 'south'}


@pytest.mark.filterwarnings('ignore')
def test_a_sample_says_where_the_test_photos_come_from_and_how_many_there_are(made, tmp_path):
    folder = one_label_each(made, tmp_path / 'photos')
    found = annotate.write_sample(folder, tmp_path / 'all', 400)
    tested = load(folder).rows('test')
    assert len(found.photos) == found.pool == len(tested)  # as a training leaves them out
    assert f'{len(tested)} photos, all of the' in str(found) and '--split' in str(found)


@pytest.mark.filterwarnings('ignore')
def test_a_sample_overwrites_nothing_and_refuses_what_is_none(made, tmp_path, capsys):
    folder = one_label_each(made, tmp_path / 'photos')
    there = tmp_path / 'there'
    there.mkdir()
    (there / 'note').write_text('mine')
    new = tmp_path / 'new'
    for target, count, said in (
        (there, '5', 'nothing is overwritten'),
        (new, '0', 'from 1 upwards'),
        (new, 'half', 'no whole number'),
    ):
        assert cli.main(['data', str(folder), '--sample', str(target), count]) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(SpmlError, match='no test photo with an unknown label'):
        annotate.write_sample(made.folder, new, 5)
    assert cli.main(['data', 'coco18', '--sample', str(new), '5']) == 2
    assert not new.exists() and [file.name for file in there.iterdir()] == ['note']
    assert not [*tmp_path.glob('.*.tmp')]
