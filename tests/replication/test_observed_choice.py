"""What is lost by choosing without clean labels: the rules, the thresholds, and the record that the
pages read.
"""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from spml_nb.base.errors import SpmlError
from spml_nb.replication import observed_choice
from spml_nb.replication.observed_choice import (
    METHODS,
    RULES,
    average_choice_losses,
    count_choice_losses,
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


def make_lines(seeds=(1000,)):
    """A record in which clean mAP takes draw 0 (test 50), observed mAP draw 1 (test 40); HML is 5
    above the others.
    """
    rows = []
    for seed in seeds:
        for loss in METHODS:
            for draw in range(2):
                line = {'dataset': 'ccp', 'loss': loss, 'draw': draw, 'seed': seed, 'seconds': 1.0}
                for rule in RULES:
                    test = (50 if draw == 0 else 40) + 5 * (loss == 'hml')
                    line |= {
                        rule: (test if rule != 'observed_map' else -test),
                        f'{rule}_epoch': 1,
                        f'{rule}_test': test,
                    }
                rows.append(line)
    return pd.DataFrame(rows)


def test_losses_count_from_the_best_run():
    losses = count_choice_losses(make_lines()).set_index('rule')
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
    assert not len(count_choice_losses(make_lines().iloc[:-1]))


def test_finished_runs_are_collected_once(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'runs'))
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path / 'outputs'))
    place = observed_choice.trials_folder()
    place.mkdir(parents=True)
    for line in make_lines().head(3).to_dict('records'):
        (place / f"ccp-{line['loss']}-{line['draw']}-1000.json").write_text(json.dumps(line))
    for _ in range(2):
        assert len(observed_choice.collect_trials()) == 3
    assert len(observed_choice.read_trials()) == 3
    with pytest.raises(SpmlError, match="'nuswide'"):
        observed_choice.sweep_observed_choice(['nuswide'], dry_run=True)
    told = []
    table = observed_choice.sweep_observed_choice(['ccp'], dry_run=True, tell=told.append)
    assert len(table) == 240 and (table.state == 'done').sum() == 3 and '237 are missing' in told[0]


@pytest.mark.slow
def test_a_run_is_watched_by_every_rule(photo_folder, tmp_path, monkeypatch):
    from quick import config

    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'runs'))
    given = config(photo_folder, regime='linear', epochs=3, patience=0, seed=5, label_seed=5)
    trial = observed_choice.Trial('photos', 'an', 0, 5)
    line = observed_choice.run_choice_trial(trial, given)
    assert line['dataset'] == 'photos' and line['seed'] == 5 and 1 <= line['auc_shrunk_epoch'] <= 3
    assert observed_choice.run_choice_trial(trial, given) == line  # not trained again
