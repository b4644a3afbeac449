"""What is lost by choosing without clean labels: the rules, the thresholds, and what they cost."""

import numpy as np
import pytest
from choice_trials import make_label_trials, make_trials
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from spml_nb.replication.experiments.observed_choice import (
    CHOSEN_RULE,
    RULES,
    average_choice_losses,
    compare_label_rules,
    compare_with_even_draw,
    count_label_losses,
    join_label_trials,
    measure_choice_losses,
    score_rules,
    score_thresholds,
)


@pytest.fixture
def made():
    "(logits, observed, true) of 150 photos and 6 classes, the last of which nobody observed."
    random = np.random.default_rng(0)
    true = random.random((150, 6)) < [0.5, 0.3, 0.2, 0.1, 0.1, 0.1]
    observed = true & (random.random(true.shape) < 0.5)
    observed[:, 5] = False
    return random.normal(size=true.shape) + 1.5 * true, observed, true


def test_the_rules_are_those_of_scikit_learn(made):
    logits, observed, true = made
    values = score_rules(logits, observed, true, np.array([1, 1, 1, 1, 1, 0], bool))
    areas = np.array([roc_auc_score(observed[:, c], logits[:, c]) for c in range(5)])
    counts = observed[:, :5].sum(0)
    overall = (areas * counts).sum() / counts.sum()
    standard = (logits - logits.mean(0)) / logits.std(0)
    expected = {
        'auc_mean': areas.mean(),
        'auc_weighted': overall,
        'auc_root': (areas * counts**0.5).sum() / (counts**0.5).sum(),
        'auc_shrunk': sum(
            (n * a + 10 * overall) / (n + 10) for n, a in zip(counts, areas, strict=True)
        )
        / 5,
        'auc_pooled': roc_auc_score(observed[:, :5].ravel(), standard[:, :5].ravel()),
        'clean_map': np.mean([average_precision_score(true[:, c], logits[:, c]) for c in range(5)]),
        'observed_map': np.mean(
            [average_precision_score(observed[:, c], logits[:, c]) for c in range(5)]
        ),
    }
    assert values == pytest.approx({rule: 100 * value for rule, value in expected.items()}) and set(
        values
    ) == set(RULES)


def test_labels_known_to_be_absent_have_rules_of_their_own(made):
    logits, observed, true = made
    absent = ~true & (np.random.default_rng(4).random(true.shape) < 0.4)
    z = observed.astype(int) - absent
    seen = np.ones(6, bool)
    values, before = score_rules(logits, z, true, seen), score_rules(logits, observed, true, seen)
    assert {rule: values[rule] for rule in RULES} == before
    areas, precisions, counts = [], [], []
    for c in range(5):
        known = z[:, c] != 0
        areas.append(roc_auc_score(z[known, c] > 0, logits[known, c]))
        precisions.append(average_precision_score(z[known, c] > 0, logits[known, c]))
        counts.append((z[:, c] > 0).sum())
    overall = np.average(areas, weights=counts)
    shrunk = [(n * a + 10 * overall) / (n + 10) for n, a in zip(counts, areas, strict=True)]
    assert values['known_auc'] == pytest.approx(100 * np.mean(shrunk))
    assert values['known_map'] == pytest.approx(100 * np.mean(precisions))


def test_thresholds_are_chosen_on_validation_and_measured_on_test(made):
    logits, observed, true = made
    test, true_test = logits[:, ::-1], true[:, ::-1]
    line = score_thresholds(logits, test, observed, true, true_test, seed=0)
    candidates = np.unique(logits[observed])
    value = [(observed & (logits >= t)).sum() ** 2 / (logits >= t).mean() for t in candidates]
    best = candidates[int(np.argmax(value))]
    assert line['f1_lee_liu'] == pytest.approx(
        100 * f1_score(true_test.ravel(), test.ravel() >= best), abs=1.0
    )
    assert line['f1_best'] >= max(value for name, value in line.items() if name.startswith('f1_'))
    assert line['named_lee_liu'] == pytest.approx((test >= best).sum(1).mean(), abs=0.05)


def test_losses_count_from_the_best_run():
    losses = measure_choice_losses(make_trials()).set_index('rule')
    assert (
        losses.within['clean_map'] == 0
        and losses.pick['clean_map'] == 0
        and losses.loss['clean_map'] == 'hml'
    )
    assert (
        losses.within['observed_map'] == 10
        and losses.pick['observed_map'] == 15
        and losses.loss['observed_map'] == 'an'
    )
    assert losses.correlation['clean_map'] == pytest.approx(1) and losses.correlation[
        'observed_map'
    ] == pytest.approx(-1)
    assert average_choice_losses(losses.reset_index(), 'pick').loc[
        'observed_map', ['mean', 'worst']
    ].tolist() == [15, 15]


def test_a_set_that_is_not_whole_does_not_count():
    assert not len(measure_choice_losses(make_trials().iloc[:-1]))


def test_rules_are_compared_under_each_draw_on_the_same_runs():
    even, drawn = make_label_trials()
    more = compare_label_rules(
        count_label_losses(join_label_trials(even, drawn)), 'observed_map', CHOSEN_RULE
    )
    for labels in ('single', 'single-frequent', 'single+3-negatives', 'grouped'):
        assert more.within[labels].mean == more.pick[labels].mean == 2
        assert more.within[labels].low > 0
    salient = more.within['salient']
    assert salient.mean == 0 and salient.low < 0 < salient.high
    losses = count_label_losses(join_label_trials(even, drawn))
    over_even = compare_with_even_draw(losses, CHOSEN_RULE)
    uneven = ['single-frequent', 'single+3-negatives', 'salient', 'grouped']
    assert list(over_even.index) == uneven
    assert over_even.pick['single-frequent'].mean == 0 and over_even.pick['salient'].mean == -1


def test_only_sets_and_seeds_that_are_whole_under_every_draw_are_compared():
    even, drawn = make_label_trials()
    first = drawn.iloc[[0]]
    both = join_label_trials(even, drawn.drop(first.index))
    left = set(map(tuple, both[['dataset', 'seed']].to_numpy().tolist()))
    gone = (first.dataset.item(), first.seed.item())
    assert len(left) == 7 and gone not in left
    assert join_label_trials(even, drawn.iloc[:0]).empty
