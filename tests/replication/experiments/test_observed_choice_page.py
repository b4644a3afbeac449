"""The page of `observed_choice` says what the intervals decide."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from choice_trials import make_label_trials

from spml_nb.replication.experiments.observed_choice import LABELS, join_label_trials
from spml_nb.replication.experiments.observed_choice_page import (
    compare_photo_choice,
    format_label_draws,
    photos_that_choose_worse,
)

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_says_of_which_draws_the_interval_decides():
    even, drawn = make_label_trials()
    page = format_label_draws(join_label_trials(even, drawn))
    decided = '(even, frequent, sure negatives, grouped); undecided (salient).'
    for verdict in ('loses less', 'within 0.5 points'):
        assert page.count(f': {verdict} {decided}') == 2
    assert page.count('| ccp |') == len(LABELS) and '+2.00 ± 0.00' in page


def test_a_choice_by_few_photos_is_compared_among_the_same_runs_at_the_same_epochs(monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))
    trials = pd.read_csv(ROOT / 'outputs' / 'observed_choice.csv')
    photos = pd.read_csv(ROOT / 'outputs' / 'observed_choice_photos.csv')
    more = compare_photo_choice(trials, photos)
    for number, effect in more.items():
        by_set = {}
        for line in photos[photos.photos == number].itertuples():
            runs = trials[(trials.dataset == line.dataset) & (trials.seed == line.seed)]
            runs = runs.sort_values('auc_shrunk')
            lost = runs.auc_shrunk_test.max() - runs.auc_shrunk_test.iloc[-1]
            by_set.setdefault(line.dataset, []).append(line.lost - lost)
        assert effect.mean == pytest.approx(np.mean([np.mean(each) for each in by_set.values()]))
    worse = [number for number, effect in more.items() if effect.low > 0]
    assert worse and photos_that_choose_worse() == max(worse)
    # few photos choose worse than many, and an interval that holds 0 decides nothing
    assert [*more] == sorted(more, key=lambda number: -more[number].mean)
    assert compare_photo_choice(trials, photos[:0]) == {}
