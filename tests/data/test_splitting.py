"""Parts in which rare classes are, that cut no group and part no near-duplicates."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from spml_nb import cli
from spml_nb.base.errors import SpmlError
from spml_nb.data.folder import read_folder
from spml_nb.data.splitting import FRACTIONS, draw_parts, stratify_split, write_split

SHARES = [*FRACTIONS.values()]


def long_tail(n=400, classes=12, seed=0):
    "(N, C) bool: class c is on about n / 2^(c/1.5) photos."
    rng = np.random.default_rng(seed)
    return rng.random((n, classes)) < 0.5 ** (1 + np.arange(classes) / 1.5)


def deal_by_loops(counts, sizes, part):
    "The same rule, a number at a time."
    part = list(part)
    n, classes = counts.shape

    def wanted(k, c):
        of = range(n)
        return SHARES[k] * sum(counts[u][c] for u in of) - sum(
            counts[u][c] for u in of if part[u] == k
        )

    def wanted_photos(k):
        return SHARES[k] * sum(sizes) - sum(sizes[u] for u in range(n) if part[u] == k)

    while any(p < 0 for p in part):
        left = [sum(counts[u][c] for u in range(n) if part[u] < 0) for c in range(classes)]
        if any(left):
            c = min((c for c in range(classes) if left[c]), key=lambda c: left[c])
            for u in range(n):
                if part[u] < 0 and counts[u][c]:
                    keys = [(round(wanted(k, c), 9), round(wanted_photos(k), 9)) for k in range(3)]
                    part[u] = max(range(3), key=lambda k: keys[k])
        else:
            u = part.index(-1)
            part[u] = max(range(3), key=lambda k: round(wanted_photos(k), 9))
    return part


@pytest.mark.parametrize('seed', range(6))
def test_it_is_the_published_rule(seed):
    rng = np.random.default_rng(seed)
    counts = rng.binomial(2, 0.3, (25, 4)).astype(float)
    sizes = rng.integers(2, 5, 25)
    part = np.where(rng.random(25) < 0.2, rng.integers(0, 3, 25), -1)
    assert stratify_split(counts, sizes, SHARES, part).tolist() == deal_by_loops(
        counts, sizes, part
    )


@pytest.mark.parametrize('seed', range(5))
def test_rare_classes_reach_every_part(seed):
    positive = long_tail(seed=seed)
    n = len(positive)
    names = [f'{k}.jpg' for k in range(n)]
    part = draw_parts(positive, np.arange(n), np.full(n, '', object), names)
    for word, share in FRACTIONS.items():
        rows = part == word
        assert abs(rows.sum() - share * n) <= 3
        there = positive[rows].sum(0)
        assert (abs(there - share * positive.sum(0)) <= 2.5).all()
        assert there[positive.sum(0) >= 5].all()


def test_the_order_of_the_rows_does_not_matter():
    positive = long_tail()
    n = len(positive)
    names = np.array([f'{k}.jpg' for k in range(n)])
    units = np.arange(n) // 2
    before = np.full(n, '', object)
    part = draw_parts(positive, units, before, list(names))
    order = np.random.default_rng(1).permutation(n)
    shuffled = np.unique(units[order], return_inverse=True)[1]
    again = draw_parts(positive[order], shuffled, before, list(names[order]))
    assert (again == part[order]).all()


def test_units_stay_together_and_old_parts_stay():
    positive = long_tail()
    n = len(positive)
    units = np.arange(n) % 90
    names = [f'{k}.jpg' for k in range(n)]
    before = np.full(n, '', object)
    part = draw_parts(positive, units, before, names)
    assert pd.Series(part).groupby(units).nunique().max() == 1
    assert abs((part == 'test').mean() - 0.2) < 0.03
    before[:90] = part[:90]  # one photo of each unit
    assert (draw_parts(positive, units, before, names) == part).all()
    before[:90] = 'test'
    assert (draw_parts(positive, units, before, names) == 'test').all()


@pytest.fixture
def folder(tmp_path):
    "60 photos in pairs that look the same, saved twice; every tenth has the rare class."
    (tmp_path / 'images').mkdir()
    rng = np.random.default_rng(0)
    lines = ['image,labels']
    for k in range(30):
        photo = Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).resize((64, 64))
        photo.save(tmp_path / 'images' / f'{k}a.png')
        photo.resize((48, 48)).save(tmp_path / 'images' / f'z{29 - k}.jpg', quality=60)
        label = 'cat|rare' if k % 6 == 0 else 'dog'
        lines += [f'{k}a.png,{label}', f'z{29 - k}.jpg,{label}']
    (tmp_path / 'labels.csv').write_text('\n'.join([*lines, '']))
    return tmp_path


def test_what_looks_the_same_and_shares_a_group_stays_together(folder):
    by_name = read_folder(folder, 'photos')
    assert (by_name.split[::2] != by_name.split[1::2]).any()
    backup = write_split(folder)
    data = read_folder(folder, 'photos')
    assert data.drawn == () and (data.labels == by_name.labels).all()
    assert (data.split[::2] == data.split[1::2]).all()
    assert 'split' not in backup.read_text().splitlines()[0]
    rare = data.labels[:, data.class_names.index('rare')] > 0
    assert {*data.split[rare]} == {'train', 'val', 'test'}
    # pairs of groups, joined over photos that look the same
    table = pd.read_csv(backup, dtype=str)
    table['group'] = [f'site {k // 2 // 3}' for k in range(len(table))]
    table.to_csv(folder / 'labels.csv', index=False)
    write_split(folder)
    data = read_folder(folder, 'photos')
    assert pd.Series(data.split).groupby(data.groups).nunique().max() == 1


def test_new_rows_are_drawn_and_old_ones_keep_their_part(folder):
    file = folder / 'labels.csv'
    whole = pd.read_csv(file, dtype=str)
    whole[:40].to_csv(file, index=False)
    write_split(folder)
    old = pd.read_csv(file, dtype=str)
    pd.concat([old, whole[40:]]).fillna('').to_csv(file, index=False)
    write_split(folder)
    now = pd.read_csv(file, dtype=str)
    assert now[:40].equals(old) and set(now.split) == {'train', 'val', 'test'}
    before = file.read_bytes()
    with pytest.raises(SpmlError, match='each row has its part'):
        write_split(folder)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    'change, data',
    [
        (lambda table: table[:4], 'train|val|test'),
        (lambda table: table.assign(split='holdout'), 'holdout'),
        (lambda table: table.assign(group='one site'), 'too few'),
    ],
)
def test_what_cannot_be_drawn_changes_nothing(folder, change, data):
    file = folder / 'labels.csv'
    change(pd.read_csv(file, dtype=str)).to_csv(file, index=False)
    before = file.read_bytes()
    with pytest.raises(SpmlError, match=data):
        write_split(folder)
    assert file.read_bytes() == before and not [*folder.glob('*.bak*')]


def test_the_command(folder, capsys):
    assert cli.main(['data', str(folder), '--split']) == 0
    printed = capsys.readouterr().out
    parts = pd.read_csv(folder / 'labels.csv').split.value_counts()
    assert 'labels.csv.bak' in printed and f'train {parts["train"]}, ' in printed
    assert printed.splitlines()[1:] == [f'Next: spml data {folder} --check']  # what it says, once
    assert cli.main(['data', 'ccp', '--split']) == 2
