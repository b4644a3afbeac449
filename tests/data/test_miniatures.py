"""The miniatures: statistics, determinism, digit pools."""

import hashlib
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.data import labels, loading, miniatures

CLASSES = {
    'mini_voc': (20, 1.46),
    'mini_coco': (80, 2.94),
    'mini_nus': (81, 1.89),
    'mini_cub': (312, 31.4),
}


@cache
def drawn(name):
    return miniatures.draw_miniature(name)


HASHES = '''
import hashlib
from spml_nb.data import miniatures
for name in miniatures.NAMES:
    images, labels, classes, split = miniatures.draw_miniature(name, train=300, test=60)
    words = '|'.join([*classes, *split]).encode()
    print(name, hashlib.sha256(images.tobytes() + labels.tobytes() + words).hexdigest())
'''


@pytest.mark.slow
def test_other_threads_and_another_processors_instructions_draw_the_same_bytes(capsys):
    threads = str(torch.get_num_threads() + 1)
    older = {
        'ATEN_CPU_CAPABILITY': 'avx2',
        'MKL_ENABLE_INSTRUCTIONS': 'AVX2',
        'NPY_DISABLE_CPU_FEATURES': 'X86_V4',
    }
    env = {**os.environ, 'OMP_NUM_THREADS': threads, 'MKL_NUM_THREADS': threads, **older}
    there = subprocess.Popen(
        [sys.executable, '-c', HASHES], env=env, stdout=subprocess.PIPE, text=True
    )
    exec(HASHES, {})
    here = capsys.readouterr().out
    assert (
        there.communicate()[0] == here
        and len(here.splitlines()) == 4
        and len(set(here.split()[1::2])) == 4
    )


def test_the_sets_are_those_of_the_record():
    "A run can be continued, and evaluated, on another machine than the one that began it."
    prints = {name: loading.load(name).fingerprint for name in CLASSES}
    assert prints == {
        'mini_voc': 'a68ce1d8c5408b38',
        'mini_coco': 'fe2c52ab50b23025',
        'mini_nus': 'ed378626163eb63f',
        'mini_cub': '327e8b006beae065',
    }


def test_the_seed_draws_another_sample_of_the_same_classes():
    a = miniatures.draw_miniature('mini_coco', train=30, test=10)
    b = miniatures.draw_miniature('mini_coco', train=30, test=10, seed=1)
    assert not np.array_equal(a[0], b[0]) and not np.array_equal(a[1], b[1])
    assert a[2] == b[2] and np.array_equal(a[3], b[3])


def test_each_digit_belongs_to_one_pool():
    pools = miniatures.digit_pools()
    assert sorted(np.concatenate(list(pools.values()))) == list(range(1797))
    assert {name: round(len(rows) / 1797, 2) for name, rows in pools.items()} == {
        'pretrain': 0.4,
        'train': 0.35,
        'test': 0.25,
    }


def test_pools_share_no_mask_of_a_symbol():
    seen = {
        pool: {hashlib.md5(m.numpy().tobytes()).digest() for m in miniatures.symbol_masks(pool)[0]}
        for pool in miniatures.POOLS
    }
    assert not seen['train'] & seen['test'] and not seen['pretrain'] & (
        seen['train'] | seen['test']
    )
    for pool in miniatures.POOLS:
        assert set(miniatures.symbol_masks(pool)[1]) == set(range(len(miniatures.SYMBOLS)))


def test_training_rows_are_drawn_from_the_training_pool_only(monkeypatch):
    asked = []
    masks = miniatures.symbol_masks
    monkeypatch.setattr(
        miniatures, 'symbol_masks', lambda pool: (asked.append(pool), masks(pool))[1]
    )
    miniatures.draw_miniature('mini_voc', train=10, test=5)
    assert asked == ['train', 'test']


@pytest.mark.parametrize('name', miniatures.NAMES)
def test_class_count_and_positives_per_image_are_those_of_the_namesake(name):
    images, z, classes, split = drawn(name)
    count, positives = CLASSES[name]
    assert images.shape == (3000, 40, 40, 3) and images.dtype == np.uint8
    assert z.shape == (3000, count) and z.dtype == np.int8 and set(np.unique(z)) == {-1, 1}
    assert len(classes) == len(set(classes)) == count and all(isinstance(c, str) for c in classes)
    for rows in (split != 'test', split == 'test'):
        assert abs((z[rows] > 0).sum(1).mean() / positives - 1) < 0.05


@pytest.mark.parametrize('name', miniatures.NAMES)
def test_every_class_has_a_positive_in_each_part(name):
    _, z, _, split = drawn(name)
    for part in ('train', 'test'):
        assert (z[split == part] > 0).any(0).all()


@pytest.mark.parametrize('name', ['mini_voc', 'mini_coco', 'mini_nus'])
def test_frequencies_have_a_long_tail(name):
    frequency = np.sort((drawn(name)[1] > 0).mean(0))[::-1]
    assert frequency[0] > 2.5 * np.median(frequency) and np.median(frequency) > 1.8 * frequency[-1]


def test_classes_co_occur():
    y = (drawn('mini_coco')[1] > 0).astype(float)
    together, chance = y.T @ y / len(y), np.outer(y.mean(0), y.mean(0))
    often = (chance * len(y) > 3) & ~np.eye(80, dtype=bool)
    assert (together[often] / chance[often] > 2).mean() > 0.05


def test_only_mini_nus_has_images_without_a_positive():
    without = {name: ((drawn(name)[1] > 0).sum(1) == 0).mean() for name in miniatures.NAMES}
    assert 0.14 < without.pop('mini_nus') < 0.26 and set(without.values()) == {0}


def test_validation_rows_are_those_of_the_split():
    split = drawn('mini_voc')[3]
    train, val = labels.split_rows(2000)
    assert np.array_equal(np.flatnonzero(split == 'train'), train) and np.array_equal(
        np.flatnonzero(split == 'val'), val
    )
    assert (split[2000:] == 'test').all()


def test_the_bird_has_the_attribute_groups_of_cub():
    sizes = [
        9,
        15,
        15,
        15,
        4,
        15,
        6,
        15,
        11,
        15,
        15,
        14,
        3,
        15,
        15,
        15,
        15,
        5,
        5,
        14,
        4,
        4,
        4,
        15,
        15,
        15,
        15,
        4,
    ]  # in CUB's order
    assert [len(values) for values in miniatures.GROUPS.values()] == sizes
    assert len(miniatures.ATTRIBUTES) == 312


def test_annotators_miss_three_tenths_and_swap_some_of_the_rest_within_a_group():
    has = np.zeros((4000, 312), bool)
    has[:, 0] = True  # one value of the first group, 9 values
    reported = miniatures._report(has, np.random.RandomState(0)) > 0
    assert abs(reported[:, 0].mean() - 0.7 * 0.85) < 0.03
    assert abs(reported[:, 1:9].sum(1).mean() - 0.7 * 0.15) < 0.03 and not reported[:, 9:].any()


def test_objects_show_in_their_images():
    """The mean of the pixels that differ most from the background has the hue's colour: a red
    object is red.
    """
    images, targets = miniatures.draw_objects(400, seed=3)
    channel = {'red': 0, 'green': 1, 'blue': 2}
    for hue, c in channel.items():
        chosen = images[targets['hue'] == list(miniatures.HUES).index(hue)].astype(float)
        excess = chosen[..., c] - np.delete(chosen, c, axis=-1).max(-1)
        assert np.mean(np.sort(excess.reshape(len(chosen), -1), 1)[:, -20:] > 40) > 0.85


def test_single_objects_have_matching_targets():
    images, targets = miniatures.draw_objects(101, seed=0, pool='train')
    bird = targets['symbol'] == len(miniatures.SYMBOLS)
    assert images.shape == (101, 40, 40, 3) and bird.sum() == 25
    assert (targets['hue'][bird] == -1).all() and (targets['hue'][~bird] >= 0).all()
    assert (
        not targets['attributes'][~bird].any() and (targets['attributes'][bird].sum(1) >= 28).all()
    )


WRONG = [
    ({'name': 'mini_vox'}, "unknown miniature 'mini_vox'.*mini_voc"),
    ({'name': 'mini_voc', 'seed': -1}, 'unknown seed -1'),
    ({'name': 'mini_voc', 'seed': 0.5}, 'unknown seed 0.5'),
    ({'name': 'mini_voc', 'train': 4}, 'train=4'),
    ({'name': 'mini_voc', 'test': 0}, 'test=0'),
]


@pytest.mark.parametrize('wrong, told', WRONG)
def test_wrong_arguments_of_draw_are_named(wrong, told):
    with pytest.raises(SpmlError, match=told):
        miniatures.draw_miniature(**wrong)


def test_wrong_pool_and_wrong_name_are_named():
    with pytest.raises(SpmlError, match="unknown pool of digits 'val'"):
        miniatures.draw_objects(4, 0, pool='val')
    with pytest.raises(SpmlError, match='n=0'):
        miniatures.draw_objects(0, 0)
    with pytest.raises(SpmlError, match='unknown miniature'):
        miniatures.miniature_class_names('voc')
