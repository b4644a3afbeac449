"""What a threshold names on photos with one known label each: counted by hand, and against a truth
that is known.
"""

import math

import numpy as np
import pytest
import torch

from spml_nb.training.summary import (
    NAMED_COUNTS,
    clean_test_map,
    count_names,
    count_predicted_labels,
    describe_named,
    describe_scores,
    explain_absent_classes,
    named_on_validation,
)


def test_counts_by_hand():
    logits = np.array([[2.0, 0.5], [-1.0, -2.0], [1.0, -3.0], [-0.2, 3.0]], np.float32)
    observed = np.array([[1, 0], [1, 0], [0, 0], [0, 1]])
    for given in (logits, torch.from_numpy(logits)):
        assert count_predicted_labels(given, observed, 0.6) == {
            'labels_a_photo': 1.0,
            'without_label': 0.25,
            'observed_recall': pytest.approx(2 / 3),
        }
    assert math.isnan(count_predicted_labels(logits, 0 * observed, 0.6)['observed_recall'])


@pytest.mark.silent('A4')
def test_the_recall_of_observed_labels_is_that_of_all():
    random = np.random.default_rng(0)
    true = np.argsort(random.random((4000, 6)), axis=1) < 2
    logits = random.normal(np.where(true, 1.0, -1.0))
    kept = (true * random.random(true.shape)).argmax(1)[:, None] == np.arange(6)
    whole, observed = (count_predicted_labels(logits, labels, 0.5) for labels in (true, kept))
    assert (
        abs(whole['observed_recall'] - observed['observed_recall']) < 0.02
        and whole['labels_a_photo'] == observed['labels_a_photo']
    )


def test_the_photo_whose_score_is_the_threshold_counts():
    logits = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    true = np.zeros((200, 5), int)
    true[:, 0] = 1
    threshold = float(torch.sigmoid(logits.double())[0, 0])
    assert (
        count_predicted_labels(logits, true, threshold)['labels_a_photo']
        > count_predicted_labels(logits, true, np.nextafter(threshold, 1))['labels_a_photo']
    )


def test_what_a_run_has_counted_is_said_where_nothing_better_can_be():
    counted = {'labels_a_photo': 1.5, 'without_label': 0.1, 'observed_recall': 0.8}
    stored = {f'val_{name}': counted[name] for name in NAMED_COUNTS}
    assert named_on_validation(stored | {'val_truth': 'observed only'}) == counted
    for scores in (
        stored,
        stored | {'val_truth': 'complete'},
        {'val_truth': 'observed only'},
        stored | {'val_truth': 'observed only', 'val_observed_recall': math.nan},
    ):
        assert named_on_validation(scores) is None
    assert (
        '1.50' in describe_named(counted)
        and '80 %' in describe_named(counted)
        and 'observed' not in describe_named({**counted, 'observed_recall': math.nan})
    )


@pytest.mark.silent('A4')
def test_a_map_against_observed_labels_goes_along_with_no_model():
    assert (
        clean_test_map({'test_map': 40.0, 'test_truth': 'complete'}) == 40
        and clean_test_map({'test_map': 40.0, 'test_truth': 'observed only'}) is None
    )
    assert clean_test_map({}) is None and clean_test_map({'test_map': math.nan}) is None


@pytest.mark.silent('C4')
def test_a_map_that_counts_absent_classes_as_0_says_so():
    scores = {'map_definition': 'cole', 'test_map': 30.0, 'test_map_class': 37.5}
    assert '37.50' in explain_absent_classes(scores) and 'cole' in explain_absent_classes(
        {'test_map': 30.0, 'test_map_class': 37.5}
    )  # from before this was stored
    for other in (scores | {'map_definition': 'two_way'}, scores | {'test_map_class': 30.0}, {}):
        assert explain_absent_classes(other) == ''


def test_each_part_is_said_by_the_measure_that_its_labels_allow():
    blind = {'val_map': 9.0, 'val_truth': 'observed only', 'observed_val_auc': 61.0}
    clean = {'test_map': 40.0, 'test_truth': 'complete'}
    both = blind | clean | {'selected_by': 'observed_auc', 'val_map_seen': 9.5}
    first, second = describe_scores(both).splitlines()
    assert first == 'validation observed AUC 61.00; test mAP 40.00 against all labels'
    assert '(validation 9.00)' in second
    by_wish = both | {'val_truth': 'complete'}
    assert describe_scores(by_wish) == (
        'validation observed AUC 61.00, mAP 9.00 against all labels; '
        'test mAP 40.00 against all labels'
    )
    chosen_by_map = {
        'selected_by': 'clean_map',
        'observed_val_auc': 70.0,
        'val_map': 50.0,
        'val_map_seen': 55.0,
        'val_truth': 'complete',
    }
    line = describe_scores(chosen_by_map)
    assert line.startswith('validation mAP 50.00 against all labels; test not measured')
    assert line.endswith('validation mAP 55.00')
    older = {'test_map': 8.0, 'test_truth': 'observed only'}
    assert 'test mAP 8.00 against observed labels' in describe_scores(older)


def test_names_are_counted_by_class():
    logits = np.array([[0.0, 1.0, -1.0], [2.0, -1.0, -1.0]])
    assert count_names(logits, ['a', 'b', 'c'], 0.5) == {'a': 2, 'b': 1, 'c': 0}
