"""The page of `observed_choice` says what the intervals decide."""

from choice_trials import make_label_trials

from spml_nb.replication.experiments.observed_choice import LABELS, join_label_trials
from spml_nb.replication.experiments.observed_choice_page import format_label_draws


def test_the_page_says_of_which_draws_the_interval_decides():
    even, drawn = make_label_trials()
    page = format_label_draws(join_label_trials(even, drawn))
    decided = '(even, frequent, sure negatives, grouped); undecided (salient).'
    for verdict in ('loses less', 'within 0.5 points'):
        assert page.count(f': {verdict} {decided}') == 2
    assert page.count('| ccp |') == len(LABELS) and '+2.00 ± 0.00' in page
