"""How much another rate of AN's own search would change: the three that validation likes best, with
all seeds.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from spml_nb import sweeps
from spml_nb.replication import tables
from spml_nb.replication.experiments import choice

RECORD = Path(__file__).resolve().parents[3] / 'outputs' / 'runs.csv'


def search():
    return sweeps.search_configs(sweeps.Row('an', 'linear'), 'photos', 'ccp')


@pytest.fixture(scope='module')
def known():
    """A search on ccp whose validation mAP falls from the third rate on, and final runs at three
    rates: 30, then one more, then two less.
    """
    lines = {
        sweeps.run_key(c): {'val_map': 50.0 - abs(k - 2), 'test_map': 0.0}
        for k, c in enumerate(search())
    }
    first = choice.plan_rate_runs(pd.DataFrame.from_dict(lines, orient='index'))
    for run in first.itertuples():
        lines[sweeps.run_key(run.config)] = {
            'val_map': 0.0,
            'test_map': {1: 30.0, 2: 31.0, 3: 28.0}[run.place] + run.seed * (1 + run.place),
        }
    return pd.DataFrame.from_dict(lines, orient='index')


def test_the_three_best_rates_are_trained_with_every_seed(known):
    planned = choice.plan_rate_runs(known, ['ccp'])
    rates = planned.groupby('place').config.first().map(lambda c: c.lr)
    tried = search()
    assert (
        rates.tolist() == [tried[2].lr, tried[1].lr, tried[3].lr]
        and (planned.groupby('place').seed.apply(list).map(lambda s: s == list(range(10)))).all()
    )
    assert (
        planned.config[0]
        == sweeps.final_configs(sweeps.Row('an', 'linear'), 'photos', 'ccp', known)[0]
    )  # the board's own run
    assert not len(
        choice.plan_rate_runs(known.drop(sweeps.run_key(tried[9])))
    )  # a search that is not through has chosen nothing


def test_changes_are_paired_by_seed_over_seeds_alone(known):
    found = choice.average_by_rate(choice.plan_rate_runs(known)).set_index('place')
    by_hand = np.array([1 + s for s in range(10)]), np.array([-2 + 2 * s for s in range(10)])
    for place, d in zip((2, 3), by_hand, strict=True):
        assert (found.change[place].mean, found.change[place].error) == pytest.approx(
            (d.mean(), d.std(ddof=1) / 10**0.5)
        )
    text = choice.format_rate_choice(found.reset_index())
    assert (
        'The largest rises: AN, linear head, +7.0 ± ' in text
        and ' on ccp. Gains over that AN' in text
        and '| ccp | AN, linear head | ' in text
    )
    assert choice.format_rate_choice(found.reset_index()[:1]).startswith(
        'No runs yet: `spml sweep choice`'
    )
    without = choice.format_rate_choice(
        found.reset_index().query('place != 2')
    )  # the third stays in its column
    assert ' | – | +7.0 ± ' in without and ' | – | ' not in text


@pytest.mark.skipif(not RECORD.is_file(), reason='no table of record')
def test_what_the_claims_say_of_ems_rates_is_so():
    "em_apl-apl: EM with APL against EM at its three best rates, on the cosine head."
    known = tables.read_recorded_runs(RECORD)

    def level(configs):
        return known.test_map.reindex([sweeps.run_key(c) for c in configs]).mean()

    em = choice.plan_rate_runs(known, ['voc12_animals']).query("what == 'EM, cosine head'")
    apl, own = (
        {
            name: level(sweeps.final_configs(sweeps.Row(loss, 'cosine'), 'photos', name, known))
            for name in ('voc12_animals', 'coco18')
        }
        for loss in ('em_apl', 'em')
    )
    assert (apl['voc12_animals'] - em.groupby('place').test_map.mean()).round(1).tolist() == [
        2.5,
        -0.3,
        0.7,
    ] and em.config.iloc[0].lr > 0.09
    assert abs(apl['coco18'] - own['coco18']) < 0.4
