"""Gains where no clean label chooses, again from outputs/observed_choice.csv by pandas alone."""

from pathlib import Path

import pandas as pd
import pytest

from spml_nb.replication import without_clean
from spml_nb.replication.experiments import observed_choice

FILE = Path(__file__).resolve().parents[2] / 'outputs' / 'observed_choice.csv'
pytestmark = pytest.mark.skipif(not FILE.is_file(), reason='no record of the choices')


@pytest.fixture
def lines(monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(FILE.parent))
    return observed_choice.read_trials()


def test_each_gain_is_over_an_that_is_chosen_in_the_same_way(lines):
    found = without_clean.measure_gains(lines).set_index(['dataset', 'loss', 'choice'])
    chosen_by = {
        'mAP, clean labels': ('clean_map', 'clean_map_test'),
        'mAP, observed labels': ('auc_shrunk', 'auc_shrunk_test'),
        'micro-F1, clean labels': ('auc_shrunk', 'f1_clean_f1'),
        'micro-F1, observed labels': ('auc_shrunk', 'f1_lee_liu'),
    }
    compared = 0
    for choice, (rule, column) in chosen_by.items():
        best = lines.sort_values(rule, kind='stable').groupby(['dataset', 'loss', 'seed']).last()
        wide = best[column].unstack('loss')
        over_an = wide.sub(wide['an'], axis=0).drop(columns='an').groupby('dataset').mean()
        for (dataset, loss), gain in over_an.stack().items():
            assert found.gain[dataset, loss, choice] == pytest.approx(gain, abs=1e-6)
            compared += 1
    assert compared == 4 * 6 * 7


def test_what_a_method_itself_loses_is_the_same_search_chosen_in_two_ways(lines):
    found = without_clean.measure_changes(lines)
    for loss in ('an', 'hml', 'ls'):
        searches = lines[lines.loss == loss].groupby(['dataset', 'seed'])
        by_observed, by_clean = (
            searches.apply(lambda tried, rule=rule: tried.loc[tried[rule].idxmax(), f'{rule}_test'])
            for rule in ('auc_shrunk', 'clean_map')
        )
        expected = (by_observed - by_clean).groupby('dataset').mean().mean()
        assert found[loss].mean == pytest.approx(expected, abs=1e-9)
        assert found[loss].low < found[loss].mean < found[loss].high


def test_a_mean_needs_every_set_and_a_search_that_is_whole(lines):
    whole = without_clean.average_gains(without_clean.measure_gains(lines))
    assert whole.map(lambda effect: effect.seeds).eq(3).all(axis=None)
    means = whole['mAP, observed labels'].map(lambda effect: effect.mean)
    assert means.is_monotonic_decreasing
    lacking = lines[(lines.dataset != 'ccp') | (lines.loss != 'em') | (lines.draw != 3)]
    assert without_clean.average_gains(without_clean.measure_gains(lacking)).empty


def test_the_page_has_a_row_a_method_and_no_page_without_runs(lines, monkeypatch):
    page = without_clean.format_page(without_clean.read_without_clean())
    assert page.count('| HML') == 2 and '3 seeds' in page
    monkeypatch.setattr(observed_choice, 'read_trials', lambda: pd.DataFrame(columns=lines.columns))
    assert without_clean.read_without_clean()['rows'] == []
