"""A threshold for each class: the best of many positives, the overall one of few, and by recall."""

import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit, logit

from spml_nb import cli, metrics, training
from spml_nb.base.errors import SpmlError
from spml_nb.runs.folder import open_run
from spml_nb.training.network import describe_network
from spml_nb.training.selection import PRIOR_COUNT
from spml_nb.training.thresholds import (
    check_recall,
    class_thresholds,
    explain_everywhere,
    explain_narrow_naming,
    is_class_overpredicted,
    recall_threshold,
    warn_of_overprediction,
)


def draw(photos, rates, seed=0):
    "Probabilities whose classes are shifted, and labels with these rates."
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random((photos, len(rates))) < rates, 1, -1)
    shifts = np.linspace(-3, 1, len(rates))
    return expit(rng.normal(size=labels.shape) + 1.5 * labels + shifts), labels


def test_a_class_keeps_the_weight_of_its_positives_and_none_keeps_the_overall():
    p, labels = draw(400, [0.5, 0.1, 0.02, 0])
    labels[:, 3] = -1
    overall = 0.3
    thresholds = class_thresholds(p, labels, overall)
    for c in range(3):
        n = (labels[:, c] > 0).sum()
        best = metrics.best_threshold(p[:, [c]], labels[:, [c]])
        weight = n / (n + PRIOR_COUNT)
        expected = expit(weight * logit(best) + (1 - weight) * logit(overall))
        assert thresholds[c] == pytest.approx(expected, abs=1e-12)
    assert thresholds[3] == overall


def test_unknown_labels_count_nowhere_and_a_class_without_negatives_keeps_the_overall():
    p, labels = draw(300, [0.3, 0.3])
    hidden = labels.copy()
    hidden[200:, 0] = 0
    hidden[labels[:, 1] < 0, 1] = 0
    thresholds = class_thresholds(p, hidden, 0.4)
    assert thresholds[0] == class_thresholds(p[:200], labels[:200], 0.4)[0]
    assert thresholds[1] == 0.4


@pytest.mark.parametrize('seed', range(5))
def test_it_does_better_on_other_photos_where_classes_are_shifted(seed):
    rates = np.linspace(0.02, 0.4, 12)
    p, labels = draw(600, rates, seed)
    others, truth = draw(2000, rates, 100 + seed)
    overall = metrics.best_threshold(p, labels)
    per_class = (others >= class_thresholds(p, labels, overall)).astype(float)
    gain = metrics.f1(per_class, truth, 'macro') - metrics.f1(others, truth, 'macro', overall)
    assert gain > 0.02


@pytest.mark.parametrize('seed', range(5))
def test_without_shifts_and_with_few_photos_little_is_lost(seed):
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random((2060, 12)) < 0.05, 1, -1)
    p = expit(rng.normal(size=labels.shape) + 1.5 * labels)
    overall = metrics.best_threshold(p[:60], labels[:60])
    drawn = class_thresholds(p[:60], labels[:60], overall)
    best = [
        metrics.best_threshold(p[:60, [c]], labels[:60, [c]])
        if (labels[:60, c] > 0).any()
        else overall
        for c in range(12)
    ]

    def score(limits):
        return metrics.f1((p[60:] >= limits).astype(float), labels[60:])

    assert score(drawn) > score(best) - 1e-9
    assert score(drawn) > score(overall) - 0.03


@pytest.mark.parametrize('recall', [0.01, 0.5, 0.9, 1])
def test_a_recall_is_reached_and_no_higher_threshold_reaches_it(recall):
    p, labels = draw(200, [0.3, 0.1])
    threshold = recall_threshold(p, labels, recall)
    positives = p[labels > 0]
    assert (positives >= threshold).mean() >= recall
    higher = positives[positives >= threshold].min() + 1e-12
    assert (positives >= higher).mean() < recall
    assert threshold not in p


def test_observed_positives_drawn_at_random_give_each_class_its_recall():
    p, labels = draw(20_000, [0.4, 0.2, 0.1])
    observed = np.where(np.random.default_rng(1).random(labels.shape) < 0.3, labels, 0)
    observed[observed < 0] = 0
    limits = class_thresholds(p, observed, 0.3, recall=0.8)
    for c in range(3):
        assert (p[labels[:, c] > 0, c] >= limits[c]).mean() == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize('recall', [0, -1, 1.1, 'all', None, float('nan')])
def test_what_is_no_recall_is_refused(recall):
    with pytest.raises(SpmlError, match='such as 0.9'):
        check_recall(recall)


@pytest.mark.parametrize(
    'named, labels, classes, is_said',
    [(4.1, 2, 20, True), (3.9, 2, 20, False), (11, None, 20, True), (9, None, 20, False),
     (3, None, 3, False), (28, None, 55, True), (0, 2, 20, False)],
)  # fmt: skip
def test_naming_nearly_everything_is_said(named, labels, classes, is_said):
    text = warn_of_overprediction(named, labels, classes)
    assert bool(text) == is_said
    assert not is_said or f'{named:.2f}' in text
    calibrated = warn_of_overprediction(named, labels, classes, calibrated=True)
    assert ('spml calibrate' in text) == bool(calibrated) and 'calibrate' not in calibrated


def test_a_class_is_overused_where_nearly_all_photos_get_it_and_clearly_fewer_have_it():
    assert is_class_overpredicted(54, 51, 35) and is_class_overpredicted(50, 50, 41)
    assert not is_class_overpredicted(50, 50, 46) and not is_class_overpredicted(50, 40, 10)


@pytest.mark.parametrize('name', ['linear', 'frozen'])
def test_a_run_keeps_them_beside_its_scores_which_stay(made, name):
    result = made.run(name)
    run = open_run(result.folder)
    stored = run.thresholds()
    p = torch.sigmoid(torch.from_numpy(result.logits['val']).double()).numpy()
    labels = made.data.labels[made.data.rows('val')]
    threshold = result.scores['threshold']
    assert stored['class_thresholds'] == class_thresholds(p, labels, threshold)
    assert stored['named'] == (p >= threshold).sum(1).mean()
    assert stored['labels'] == (labels > 0).sum(1).mean()
    assert describe_network(run)['class_thresholds'] == stored['class_thresholds']
    assert 'class_thresholds' not in result.scores


def test_without_clean_labels_each_class_has_the_overall_recall(made, tmp_path):
    config = replace(made.run('linear').config, selection='val_observed')
    task = training.make_task(config)
    result = training.train(config, task=task)
    stored = open_run(result.folder).thresholds()
    p = torch.sigmoid(torch.from_numpy(result.logits['val']).double()).numpy()
    observed = task.observed_val
    threshold = result.scores['threshold']
    recall = (p[observed > 0] >= threshold).mean()
    assert stored['labels'] is None
    assert stored['class_thresholds'] == class_thresholds(p, observed, threshold, recall)


def test_a_run_of_an_older_version_has_none(made, tmp_path):
    folder = made.copy('linear', tmp_path)
    result = json.loads((folder / 'result.json').read_text())
    del result['thresholds']
    (folder / 'result.json').write_text(json.dumps(result))
    run = open_run(folder)
    assert run.thresholds() == {'class_thresholds': None, 'named': None, 'labels': None}
    assert 'class_thresholds' not in describe_network(run)


@pytest.mark.parametrize(
    'photos, classes, said',
    [
        ({'person': 12, 'dog': 3, 'cat': 0}, 17, 'person is 80 % of the names, and 15 of 17 '),
        ({'person': 12}, 3, 'person is 100 % of the names, and 2 of 3 '),
        ({'person': 12, 'dog': 9}, 17, ''),
        # the others are rare, and named
        ({'person': 24, 'dog': 4, 'cat': 3}, 4, ''),
        ({'person': 95, 'dog': 2, 'cat': 2}, 4, 'person is 96 % of the names, and 1 of 4 '),
        ({'person': 9}, 17, ''),  # few names
        ({'person': 12}, 2, ''),
        ({}, 17, ''),
    ],
)
def test_a_model_that_names_hardly_more_than_one_class_is_said(photos, classes, said):
    text = explain_narrow_naming(photos, classes)
    assert text.startswith(said) and bool(text) == bool(said)
    calibrated = explain_narrow_naming(photos, classes, calibrated=True)
    assert ('spml calibrate' in text) == bool(calibrated) and 'calibrate' not in calibrated
    for command in re.findall('`spml ([^`]+)`', text):
        cli.build_parser().parse_args(shlex.split(command))


def test_a_class_that_is_named_on_nearly_every_photo_is_said_whatever_else_is():
    photos = {'people': 18, 'tree': 12, 'sky': 19}
    text = explain_everywhere(photos, 20)
    assert text.startswith('people is named on 18 of 20 photos, sky is named on 19 of 20 photos.')
    assert '--per-class' in text and '--per-class' not in explain_everywhere(photos, 20, True)
    assert explain_everywhere({'people': 17}, 20) == ''
    assert explain_everywhere({'people': 9}, 9) == '' == explain_everywhere({}, 20)
