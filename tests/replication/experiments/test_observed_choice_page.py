"""The page of `observed_choice` says what the intervals decide."""

import re
from pathlib import Path

import pandas as pd
from choice_trials import make_label_trials

from spml_nb.replication.experiments import observed_choice_page
from spml_nb.replication.experiments.observed_choice import LABELS, join_label_trials
from spml_nb.replication.experiments.observed_choice_page import (
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


def test_how_many_photos_choose_worse_than_single_labels_is_read_from_the_record(monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))
    text = (ROOT / 'outputs' / 'observed_choice.md').read_text()
    lost = {
        int(cells[1]): float(cells[3])
        for cells in (line.split('|') for line in text.splitlines())
        if len(cells) == 6 and cells[1].strip().isdecimal()
    }
    [observed] = re.findall(r'by the AUC of observed labels loses (\S+) points', text)
    worse = [photos for photos, points in lost.items() if points > float(observed)]
    assert len(lost) == 5 and photos_that_choose_worse() == max(worse)
    monkeypatch.setattr(observed_choice_page, 'read_trials', lambda *names: pd.DataFrame())
    assert photos_that_choose_worse() is None
