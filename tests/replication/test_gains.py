"""Gains over baselines: computed in one place, paired by seed, with test images at random."""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

import spml_nb
from spml_nb import statistics
from spml_nb.replication import gains
from spml_nb.runs.config import Config
from spml_nb.statistics import Scores
from spml_nb.sweeps import search
from spml_nb.sweeps.queue import run_key


class Place(NamedTuple):
    name: str


def scores(values, **about):
    return Scores(pd.Series(values, dtype=float), **about)


def test_runs_are_compared_in_one_place_alone():
    package = Path(spml_nb.__file__).parent
    calls = {
        file.name: len(re.findall(r'\bestimate_paired_effect\(', file.read_text(encoding='utf-8')))
        for file in package.rglob('*.py')
        if file.name != 'statistics.py'
    }
    assert {name: count for name, count in calls.items() if count} == {'gains.py': 1}


def test_a_frame_has_a_row_for_each_place_and_baseline():
    own = {Place('a'): scores([3, 4, 6]), Place('b'): scores([1, 2, 3])}
    own[Place('low')] = scores([1, 1, 1])
    baselines = {'low': {Place('a'): Place('low'), Place('b'): Place('low')}, 'none': {}}
    found = gains.gains_over_baselines(own, baselines).set_index(['name', 'baseline'])
    found = found.loc[['a', 'b']]
    assert found.gain['a', 'low'] == pytest.approx(10 / 3)
    assert found.gain_half['a', 'low'] == found.effect['a', 'low'].half_width > 0
    assert found.loc[['a', 'b'], 'gain'].xs('none', level='baseline').isna().all()
    assert found.n.tolist() == [3] * 4 and found.level['b', 'none'] == 2


class OnSet(NamedTuple):
    dataset: str
    loss: str


@pytest.fixture
def scored():
    "Three seeds of three methods on coco18, of which a run of HML is not done."
    levels = {'an': [40, 41, 42], 'em': [42, 43, 44], 'hml': [50, 51, np.nan]}
    rows = [
        ('coco18', loss, seed, Config(loss=loss, dataset='coco18', seed=seed), level)
        for loss, by_seed in levels.items()
        for seed, level in enumerate(by_seed)
    ]
    return pd.DataFrame(rows, columns=[*OnSet._fields, 'seed', 'config', 'test_map'])


def test_only_places_with_every_run_have_scores_and_only_compared_ones_a_gain(scored):
    found = gains.collect_scores(scored, OnSet)
    an, em, hml = (OnSet('coco18', loss) for loss in ('an', 'em', 'hml'))
    assert set(found) == {an, em} and found[em].by_seed.tolist() == [42, 43, 44]
    measured = gains.gains_over_baselines(found, {'AN': {em: an}, 'HML': {em: hml}})
    gain = measured.set_index(['baseline', 'loss']).gain
    assert gain['AN', 'em'] == 2
    assert gain.drop(('AN', 'em')).isna().all()


def test_test_images_count_where_the_scores_are_of_a_data_set():
    own, base = [3.0, 4.0, 6.0], [1.0, 1.0, 1.0]
    alone = gains.estimate_gain(scores(own), scores(base))
    both = gains.estimate_gain(scores(own, dataset='coco18'), scores(base, dataset='coco18'))
    expected = statistics.estimate_effect(
        [2.0, 3.0, 5.0], None, statistics.default_image_error('coco18')
    )
    assert both == expected and both.error > alone.error


def test_a_board_compares_with_an_on_the_same_head_and_on_the_linear_one():
    levels = {('an', 'linear'): 20.0, ('an', 'cosine'): 21.0, ('hml', 'cosine'): 24.0}
    lines = {}
    for (loss, head), level in levels.items():
        row = search.Row(loss, head)
        tried = search.search_configs(row, 'photos', 'cub_crops')
        for config in tried:
            lines[run_key(config)] = {'dataset': 'cub_crops', 'val_map': 50.0}
        known = pd.DataFrame.from_dict(lines, orient='index')
        for config in search.final_configs(row, 'photos', 'cub_crops', known):
            lines[run_key(config)] = {
                'dataset': 'cub_crops',
                'run': f'{loss}-{head}-{config.seed}',
                'val_map': 50.0,
                'test_map': level + config.seed % 2,
            }
    known = pd.DataFrame.from_dict(lines, orient='index')
    found = gains.gains_of_suites(known)
    assert set(found.choice) == {'clean'} and list(found) == gains.COLUMNS
    over = found.set_index(['loss', 'head', 'baseline'])
    assert over.gain['hml', 'cosine', gains.SAME_HEAD] == 3
    assert over.gain['hml', 'cosine', gains.PLAIN_HEAD] == 4
    assert over.base_run['hml', 'cosine', gains.SAME_HEAD] == 'an-cosine-0'
    side = gains.join_baselines(found).set_index(['loss', 'head'])
    assert (side.gain['hml', 'cosine'], side.plain['hml', 'cosine']) == (3, 4)
    assert side.plain_run['hml', 'cosine'] == 'an-linear-0'


def test_without_a_record_there_are_columns_alone():
    found = gains.gains_of_suites(pd.DataFrame())
    assert not len(found) and list(found) == gains.COLUMNS and not len(gains.join_baselines(found))


def test_the_first_epoch_of_the_second_stage_is_counted():
    runs = pd.DataFrame({'best_stage': [2, 2, 1], 'best_epoch': [1, 3, 1]})
    assert gains.count_stage_2_starts(runs) == 1 and gains.count_stage_2_starts(pd.DataFrame()) == 0


def test_half_of_the_runs_are_too_few_for_a_mechanism_to_have_acted():
    assert gains.mechanism_acted(pd.DataFrame({'exercised': [1, 0, 1]}))
    assert not gains.mechanism_acted(pd.DataFrame({'exercised': [1, 0]}))
    assert gains.mechanism_acted(pd.DataFrame())
