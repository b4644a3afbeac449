"""The whole network: equal searches with two seeds, a choice by their mean, gains within an
optimiser.
"""

import math

import pandas as pd
import pytest

from spml_nb.base import settings
from spml_nb.replication import gains
from spml_nb.replication.experiments import whole_network
from spml_nb.replication.experiments.whole_network import ARMS, Arm
from spml_nb.runs.config import resolve
from spml_nb.sweeps import search
from spml_nb.sweeps.queue import run_key

SGD, ADAM = (Arm('llr', 'linear', 'single', name) for name in ('sgd', 'adam'))


def test_every_arm_has_as_many_runs_and_the_seeds_of_the_search():
    for arm in ARMS:
        trials = whole_network.list_trials(arm, 'coco18')
        assert len({run_key(config) for config in trials}) == 10
        assert {config.seed for config in trials} == {1000, 1001}
        assert {config.label_seed for config in trials} == {1000, 1001}
        assert {(c.image_size, c.regime, c.dataset) for c in trials} == {
            (224, 'finetune', 'coco18')
        }
    losses = {arm.loss for arm in ARMS if not arm.optimizer}
    assert losses == set(search.SUITES['photos_finetune']['methods'])


def test_sgd_has_rates_of_its_own_and_adam_is_the_row_above():
    by_rate = {config.lr for config in whole_network.list_trials(SGD, 'coco18')}
    assert min(by_rate) >= 1e-3 and max(by_rate) <= 3e-2
    assert {resolve(c).optimizer for c in whole_network.list_trials(SGD, 'coco18')} == {'sgd'}
    of_method = ADAM._replace(optimizer='')
    assert [run_key(c) for c in whole_network.list_trials(ADAM, 'coco18')] == [
        run_key(c) for c in whole_network.list_trials(of_method, 'coco18')
    ]


def invented(levels):
    "Runs of arms: the best of a search has the second draw, the best mean the fourth."
    lines = {}
    for arm in levels:
        for n, config in enumerate(whole_network.list_trials(arm, 'voc12_animals')):
            lines[run_key(config)] = {'val_map': {2: 70.0, 3: 40.0, 6: 60.0, 7: 61.0}.get(n, 50.0)}
    known = pd.DataFrame.from_dict(lines, orient='index').assign(run='made', test_map=0.0)
    for arm, level in levels.items():
        for config in whole_network.list_finals(arm, 'voc12_animals', known):
            known.loc[run_key(config), ['val_map', 'test_map', 'run']] = (
                50.0,
                level + config.seed,
                'm',
            )
    return known


def test_the_mean_of_the_search_seeds_chooses():
    known = invented({SGD: 50.0})
    trials = whole_network.list_trials(SGD, 'voc12_animals')
    finals = whole_network.list_finals(SGD, 'voc12_animals', known)
    assert [config.seed for config in finals] == [config.label_seed for config in finals]
    assert [config.seed for config in finals] == list(range(5))
    assert {config.lr for config in finals} == {trials[6].lr}
    assert whole_network.list_finals(SGD, 'voc12_animals', known.drop(run_key(trials[9]))) == []


def test_gains_are_over_the_same_head_and_over_adam(tmp_path):
    an = {name: Arm('an', 'linear', 'single', name) for name in ('', 'sgd')}
    levels = {an['']: 60.0, an['sgd']: 58.0, ADAM: 61.0, SGD: 63.0}
    known = invented(levels)
    found = whole_network.measure_gains(whole_network.plan_finals(known))
    gained = found.set_index(['baseline', 'loss', 'optimizer']).gain.sort_index()
    assert gained[gains.SAME_HEAD, 'llr', ''] == pytest.approx(1)
    assert gained[gains.SAME_HEAD, 'llr', 'sgd'] == pytest.approx(5)
    assert gained[whole_network.OVER_ADAM, 'llr', 'sgd'] == pytest.approx(2)
    assert gained[whole_network.OVER_ADAM, 'an', 'sgd'] == pytest.approx(-2)
    files = whole_network.write_whole_network(known)
    assert sorted(file.name for file in files) == ['fine_tuning.csv', 'fine_tuning.md']
    page = (settings.get_folder('outputs') / 'fine_tuning.md').read_text()
    assert 'coco18, cub_crops' in page and '65.0' not in page.partition('## SGD')[0]


def test_without_runs_nothing_is_written():
    assert whole_network.write_whole_network(pd.DataFrame()) == []


def fabricated(**scores):
    """Runs of methods on cub_crops as the search would leave them. scores: by method, as many as
    seeds.
    """
    lines = {}
    for loss, each in scores.items():
        row = search.Row(loss)
        tried = search.search_configs(row, 'photos', 'cub_crops')
        known = pd.DataFrame({'val_map': 50.0}, index=[run_key(c) for c in tried])
        lines |= {
            run_key(c): {
                'run': run_key(c),
                'loss': loss,
                'dataset': 'cub_crops',
                'val_map': 50.0,
                'test_map': 0.0,
            }
            for c in tried
        }
        for c, score in zip(
            search.final_configs(row, 'photos', 'cub_crops', known, range(len(each))),
            each,
            strict=True,
        ):
            lines[run_key(c)] = {
                'run': run_key(c),
                'loss': loss,
                'dataset': 'cub_crops',
                'val_map': 50.0,
                'test_map': score,
            }
    return pd.DataFrame.from_dict(lines, orient='index').rename_axis('key')


def whole(acted=True):
    """Rows as from `levels_end_to_end`, on one set of photos."""
    index = pd.MultiIndex.from_tuples(
        [('voc12_animals', loss, 'linear', 'single') for loss in ('em', 'wan', 'gr', 'llr', 'hml')],
        names=['dataset', 'loss', 'head', 'labels'],
    )
    return pd.DataFrame(
        {
            'level': 45.0,
            'level_half': 1.0,
            'late': 1 / 3,
            'acted': acted,
            'tried_low': 44.0,
            'tried_high': 46.5,
            'level_alone': [45.0, 46.0, 47.5, 44.0, math.nan],
        },
        index=index,
    )


def test_whole_networks_stand_beside_a_head_alone_with_levels_and_what_is_not_run():
    text = whole_network.format_end_to_end(whole())
    assert '| 45.0 ± 1.0 | 44.0 to 46.5 | 45.0 | 33% |' in text and '| – | 33% |' in text
    words = ' '.join(text.split())
    assert (
        'In 2 of 4 rows the whole network stays below' in words and 'by 1.0 to 2.5 points' in words
    )
    first, second = text.partition('Not run yet: on voc12_animals ')[2].split('; on cub_crops ')
    assert (
        first.startswith('an (linear), an (cosine), bce (linear)')
        and ' em (linear)' not in first
        and ' em (linear)' in second
        and 'lac (labelwise)' in second
    )


def test_levels_and_ranges_of_the_search_are_those_of_the_network(monkeypatch):
    tried = pd.DataFrame({'test_map': [40.0, 45.0, 42.0]})
    monkeypatch.setattr(whole_network, 'look_up_scores', lambda configs, runs: tried)
    rows = [
        {
            'suite': suite,
            'dataset': 'cub_crops',
            'loss': 'em',
            'head': 'linear',
            'labels': 'single',
            'choice': 'clean',
            'level': level,
            'level_half': 1.0,
            'late': 0.0,
            'acted': True,
        }
        for suite, level in (('photos_finetune', 44.0), ('photos', 51.0))
    ]
    monkeypatch.setattr(gains, 'join_baselines', lambda measured: measured)
    em = whole_network.levels_end_to_end(pd.DataFrame(rows), pd.DataFrame()).iloc[0]
    assert (em.level, em.level_alone, em.tried_low, em.tried_high) == (44.0, 51.0, 40.0, 45.0)


def test_a_network_whose_mechanism_did_not_act_says_so():
    page = whole_network.format_end_to_end(whole(acted=False))
    assert '(not exercised) | 45.0 ± 1.0' in page
