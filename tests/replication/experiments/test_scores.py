"""What the pages of experiments share: scores by place, gains between places, cells."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from spml_nb.replication.experiments.scores import (
    collect_scores,
    format_effects,
    list_cells,
    measure_gains_over,
)
from spml_nb.runs.config import Config
from spml_nb.statistics import estimate_effect


class Place(NamedTuple):
    dataset: str
    loss: str


@pytest.fixture
def runs():
    "Three seeds of three methods on coco18, of which a run of HML is not done."
    levels = {'an': [40, 41, 42], 'em': [42, 43, 44], 'hml': [50, 51, np.nan]}
    rows = [
        ('coco18', loss, seed, Config(loss=loss, dataset='coco18', seed=seed), level)
        for loss, by_seed in levels.items()
        for seed, level in enumerate(by_seed)
    ]
    return pd.DataFrame(rows, columns=[*Place._fields, 'seed', 'config', 'test_map'])


def test_only_places_with_every_run_have_scores_and_only_compared_ones_a_gain(runs):
    scores = collect_scores(runs, Place)
    an, em, hml = (Place('coco18', loss) for loss in ('an', 'em', 'hml'))
    assert set(scores) == {an, em} and scores[em].by_seed.tolist() == [42, 43, 44]
    measured = measure_gains_over(scores, {'AN': {em: an}, 'HML': {em: hml}})
    gain = measured.set_index(['baseline', 'loss']).gain
    assert gain['AN', 'em'] == 2
    assert gain.drop(('AN', 'em')).isna().all()


def test_a_row_has_a_mean_where_every_set_has_an_effect():
    effects = {'voc': estimate_effect(np.array([1.0, 3.0])), 'coco': estimate_effect([2.0, 4.0])}
    first, second, mean = format_effects(effects, ['voc', 'coco'])
    assert first.startswith('+2.0 ±') and second.startswith('+3.0 ±')
    assert mean.startswith('+2.5 ±')
    assert format_effects(effects, ['voc', 'ccp'])[1:] == ['–', '–']


def test_cells_are_strings_below_the_columns():
    table = pd.DataFrame({'a': [1.5], 'b': ['x']}, index=[10])
    assert list_cells(table, 'n') == [['n', 'a', 'b'], ['10', '1.5', 'x']]
