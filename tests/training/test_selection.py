"""Which epoch is kept, when a run stops, and what its scores are measured against when labels are
missing.
"""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from quick import config, empty_zeros, told
from scipy.special import expit
from sklearn.metrics import f1_score, roc_auc_score

from spml_nb import metrics, runs, training
from spml_nb.data import Dataset
from spml_nb.training import selection
from spml_nb.training.selection import (
    EpochChoice,
    classes_seen_in_training,
    mean_ap,
    score_finished_run,
    selection_targets,
)
from spml_nb.training.task import Task


@pytest.fixture
def folder(photo_folder):
    return photo_folder


def test_selection_rules(folder):
    results = {
        rule: training.train(config(folder, selection=rule, epochs=4, lr=1e-3))
        for rule in ('val_clean', 'val_observed', 'last')
    }
    assert results['last'].scores['best_epoch'] == 4
    clean = results['val_clean']
    assert clean.scores['best_epoch'] == clean.curves['val_map'].idxmax() + 1


def test_the_first_of_equal_epochs_is_kept_and_the_averaged_weights_may_win():
    choice = EpochChoice('val_clean', patience=0, stop_below=0)
    assert choice.see({'raw': 50.0, 'averaged': 60.0}, 1, 1) and choice.best == {
        'value': 60.0,
        'stage': 1,
        'epoch': 1,
        'weights': 'averaged',
    }
    assert not choice.see({'raw': 60.0, 'averaged': 60.0}, 1, 2) and choice.best['epoch'] == 1
    last = EpochChoice('last', patience=0, stop_below=0)
    assert [
        last.see({'raw': 70.0, 'averaged': value}, 1, k) for k, value in ((1, 20.0), (2, 10.0))
    ] == [True, True]
    assert last.best == {'value': 10.0, 'stage': 1, 'epoch': 2, 'weights': 'averaged'}


def ended(values, **rules):
    "After how many of these scores a choice has seen enough, and the epoch that it keeps."
    choice = EpochChoice('val_clean', **{'patience': 0, 'stop_below': 0, **rules})
    for epoch, value in enumerate(values, 1):
        choice.see({'raw': value}, 1, epoch)
        if choice.over:
            return epoch, choice.best['epoch']
    return None, choice.best['epoch']


def test_a_choice_sees_enough_after_its_patience_or_a_fall():
    assert ended([60, 50, 50], patience=2) == (3, 1) and ended([60, 50, 61], patience=2) == (
        None,
        3,
    )
    assert ended([60, 55.0], stop_below=5) == (None, 1) and ended([60, 54.9], stop_below=5) == (
        2,
        1,
    )
    assert ended([60, 50, 50, 70], patience=2) == (3, 1)  # what comes after is not looked at


def test_patience_stops_early(folder):
    result = training.train(config(folder, patience=1, epochs=50, lr=1e-3))
    assert (
        len(result.curves) < 50
        and result.curves['val_map'].iloc[-1] <= result.curves['val_map'].iloc[:-1].max()
    )


def test_class_without_training_positives_is_warned_kept_and_scored_zero(folder):
    table = pd.read_csv(folder / 'labels.csv')
    table['labels'] = table['labels'] + ''
    table['split'] = ['train'] * 40 + ['test'] * 20
    table.loc[0, 'labels'] = 'red'
    table.loc[59, 'split'], table.loc[59, 'labels'] = 'val', 'blue|rare'
    table.to_csv(folder / 'labels.csv', index=False)
    with pytest.warns(UserWarning, match='rare'):
        result = training.train(config(folder, regime='linear', labels='full'))
    names = runs.read_json(result.folder / 'result.json')['class_names']
    assert 'rare' in names and result.scores['test_ap'][names.index('rare')] == 0


def test_a_complete_test_part_is_scored_truly_beside_a_table_of_ones_and_gaps(folder):
    empty_zeros(folder, complete=['test'])
    task = training.make_task(config(folder, labels='full'))
    with pytest.warns(UserWarning) as caught:
        an, em = (
            training.train(config(folder, loss=loss, labels='full', regime='linear'))
            for loss in ('an', 'em')
        )
    assert not np.allclose(an.curves.loss, em.curves.loss) and not np.allclose(
        an.logits['test'], em.logits['test']
    )
    assert an.scores['val_truth'] == 'observed only' and an.scores['test_truth'] == 'complete'
    assert [message.split(' known')[0] for message in told(caught)] == [
        'photos: no class of val has'
    ] * 2  # the choice, twice
    true = task.data.labels[task.test]
    assert (
        an.scores['test_map']
        == metrics.mean_average_precision(an.logits['test'], true, unknown='ignore')
        and (true < 0).any()
    )


def test_a_table_without_any_zero_is_scored_on_what_is_recorded_and_says_so(folder):
    empty_zeros(folder)
    given = {'labels': 'single', 'regime': 'linear', 'epochs': 4, 'lr': 1e-3}
    with pytest.warns(UserWarning) as caught:
        result = training.train(config(folder, **given))
    choice, scoring = told(caught)
    assert (
        'no class of val has known positives and known negatives, so the epoch and the threshold '
        'are chosen by observed labels' in choice
    )
    assert (
        'no class of test has known positives and known negatives, so the scores there are '
        'against observed labels' in scoring
    )
    with pytest.warns(UserWarning) as caught:
        observed = training.train(config(folder, selection='val_observed', **given))
    assert (
        len(told(caught)) == 1
        and result.curves.val_map.tolist() == observed.curves.val_map.tolist()
    )
    data = training.make_task(config(folder, **given)).data
    for part in ('val', 'test'):
        assert result.scores[f'{part}_truth'] == 'observed only'
        assert (
            result.scores[f'{part}_map']
            == metrics.mean_average_precision(
                result.logits[part], data.labels[data.rows(part)], unknown='negative'
            )
            < 100
        )
    with pytest.warns(
        UserWarning, match='no class of train has known positives and known negatives'
    ):
        scores = training.evaluate(result.folder, part='train')[0]
    assert scores['truth'] == 'observed only' and scores['map'] < 100


def test_a_partly_known_part_leaves_its_unknowns_out(folder):
    empty_zeros(folder, complete=[0, 36, 37, 38, 39])  # one row of train, four of val, none of test
    with pytest.warns(UserWarning) as caught:
        result = training.train(config(folder, labels='full', regime='linear'))
    task = training.make_task(config(folder, labels='full'))
    assert (
        result.scores['val_truth'] == 'partly known'
        and result.scores['test_truth'] == 'observed only'
    )
    few, message = told(caught)
    assert (
        'only 4 of 12 validation photos have known negatives' in few
        and 'no class of test has known positives and known negatives' in message
    )
    known = task.data.labels[task.val].copy()
    known[(known == 0).any(1) & ~(known < 0).any(1)] = (
        0  # positives alone do not count beside the four
    )
    for part, expected in (
        ('val', metrics.mean_average_precision(result.logits['val'], known, unknown='ignore')),
        (
            'test',
            metrics.mean_average_precision(
                result.logits['test'], task.data.labels[task.test], unknown='negative'
            ),
        ),
    ):
        assert result.scores[f'{part}_map'] == expected
    assert result.scores['selected_by'] == 'observed_auc'


@pytest.mark.silent('A1')
@pytest.mark.parametrize(('judged', 'rule'), [(5, 'observed_auc'), (6, 'clean_map')])
def test_true_labels_choose_where_half_of_validation_has_them(folder, judged, rule):
    """A few photos that are labelled in full choose worse than one label each of all the others
    does.
    """
    empty_zeros(folder, complete=range(36, 36 + judged))  # rows 36 to 47 are validation
    with pytest.warns(UserWarning):
        result = training.train(config(folder, labels='full', regime='linear', epochs=3))
    assert result.scores['selected_by'] == rule


def test_a_complete_table_is_complete_without_a_word(folder):
    with warnings.catch_warnings():
        warnings.simplefilter('error', UserWarning)
        result = training.train(config(folder, regime='linear', epochs=1))
        assert (
            result.scores['val_truth']
            == result.scores['test_truth']
            == training.evaluate(result.folder)[0]['truth']
            == 'complete'
        )


def test_a_run_tells_what_a_choice_by_observed_labels_would_have_been(folder):
    """The epoch, the test scores and the threshold are those of a run that selects by observed
    labels, and may differ from its own.
    """
    given = {'regime': 'linear', 'epochs': 30, 'lr': 3e-3, 'patience': 3}
    task = training.make_task(config(folder))
    task = replace(
        task, observed_val=np.roll(task.observed_val, 1, axis=0)
    )  # wrong labels, so that the two rules differ
    clean, observed = (
        training.train(config(folder, selection=rule, **given), task=task)
        for rule in ('val_clean', 'val_observed')
    )
    for name in ('best_epoch', 'test_map', 'test_micro_f1', 'test_macro_f1', 'threshold'):
        assert clean.scores[f'observed_{name}'] == pytest.approx(observed.scores[name]), name
    assert (
        'observed_test_map' not in observed.scores
        and clean.scores['observed_best_epoch'] != clean.scores['best_epoch']
    )
    assert not list(clean.folder.glob('val_observed*'))


def test_f1_and_its_threshold_are_those_of_scikit_learn(folder):
    """At the threshold of validation, at 0.5 and at 0.75, of all entries together and class by
    class.
    """
    result = training.train(config(folder, regime='linear', epochs=4))
    data = training.make_task(config(folder)).data
    true, p = (
        {part: f(part) for part in ('val', 'test')}
        for f in (
            lambda part: data.labels[data.rows(part)] > 0,
            lambda part: expit(result.logits[part].astype(float)),
        )
    )
    by_threshold = {
        t: f1_score(true['val'].ravel(), (p['val'] >= t).ravel(), zero_division=0)
        for t in p['val'].ravel()
    }
    assert by_threshold[min(t for t in by_threshold if t >= result.scores['threshold'])] == max(
        by_threshold.values()
    )
    for name, t in (('', result.scores['threshold']), ('_at_0.5', 0.5), ('_at_0.75', 0.75)):
        for kind in ('micro', 'macro'):
            assert result.scores[f'test_{kind}_f1{name}'] == pytest.approx(
                f1_score(true['test'], p['test'] >= t, average=kind, zero_division=0)
            ), (kind, name)
    assert (
        len(
            {
                result.scores[f'test_{kind}_f1{name}']
                for kind in ('micro', 'macro')
                for name in ('', '_at_0.75')
            }
        )
        >= 3
    )


def test_a_class_that_no_training_image_has_does_not_choose_the_epoch(folder):
    table = pd.read_csv(folder / 'labels.csv')
    table['split'] = np.repeat(['train', 'val', 'test'], [36, 12, 12])
    table.loc[40, 'labels'] += '|rare'
    table.to_csv(folder / 'labels.csv', index=False)
    with pytest.warns(UserWarning, match='rare'):
        task = training.make_task(config(folder))
    names = list(task.data.class_names)
    classes = {
        rule: classes[names.index('rare')]
        for rule, (_, classes) in selection_targets(task, 'val_clean').items()
    }
    assert (
        classes == {'val_clean': False, 'val_observed': False}
        and classes_seen_in_training(task).sum() == len(names) - 1
    )
    with pytest.warns(UserWarning, match='rare'):
        result = training.train(config(folder, regime='linear'))
    true = task.data.labels[task.val]
    seen = np.delete(np.arange(len(names)), names.index('rare'))
    expected = metrics.mean_average_precision(result.logits['val'][:, seen], true[:, seen])
    assert (
        result.scores['val_map_seen']
        == pytest.approx(expected)
        != pytest.approx(result.scores['val_map'])
    )
    assert result.curves.val_map.max() == pytest.approx(expected)


def test_without_a_class_that_can_be_measured_observed_labels_choose(folder):
    "A is known in full in val, but no training photo has it. The others have positives alone."
    split = np.repeat(['train', 'val', 'test'], [36, 12, 12])
    rows = [
        [
            f'{k:03}.png',
            '0' if part == 'train' else str(k % 2),
            '1' if k % 2 else '',
            '' if k % 2 else '1',
            part,
        ]
        for k, part in enumerate(split)
    ]
    pd.DataFrame(rows, columns=['image', 'A', 'B', 'C', 'split']).to_csv(
        folder / 'labels.csv', index=False
    )
    with pytest.warns(UserWarning, match='chosen by observed labels'):
        result = training.train(config(folder, regime='linear', labels='full'))
    assert result.curves.val_map.notna().all() and (result.folder / 'DONE').is_file()


def as_task(train, val, observed_val=None):
    "A task of labels alone; unset, all of those of validation are observed."
    n = len(train) + len(val)
    rows = np.arange(n)
    data = Dataset(
        'drawn',
        np.zeros((n, 1, 1, 3), np.uint8),
        np.concatenate([train, val]).astype(np.int8),
        [str(c) for c in range(val.shape[1])],
        np.repeat(['train', 'val'], [len(train), len(val)]),
    )
    observed = data.labels[len(train) :] if observed_val is None else observed_val
    train, val = np.split(rows, [len(train)])
    return Task(data, train, val, rows[:0], data.labels[train], observed)


@pytest.mark.parametrize('rule', ['val_clean', 'val_observed', 'last'])
@pytest.mark.filterwarnings('ignore:drawn')
def test_no_pattern_of_unknown_labels_keeps_a_trained_run_from_its_scores(monkeypatch, rule):
    monkeypatch.setattr(selection, '_MIN_JUDGED', 3)
    random = np.random.default_rng(0)
    for _ in range(500):
        rates = random.dirichlet([0.5] * 3, size=3)
        drawn = np.stack([random.choice([-1, 0, 1], size=9, p=p) for p in rates], 1)
        task = as_task(drawn[:3], drawn[3:])
        logits = torch.from_numpy(random.normal(size=(6, 3)))
        for definition in ('cole', 'two_way'):
            scores = score_finished_run({'val': logits}, task, definition, rule)
            assert 0 < scores['threshold'] < 1


def test_negatives_of_one_class_without_positives_do_not_lose_a_trained_run(folder):
    "Where red is 0, all else is 1 or empty, so that no photo with a negative can measure F1."
    table = pd.read_csv(folder / 'labels.csv')['labels'].str.get_dummies()
    table = table.astype(str).replace('0', '')
    table.loc[(table.index >= 16) & (table.red == ''), 'red'] = '0'  # 21 of 46 photos of val
    table.loc[17, 'blue'] = ''
    table.insert(0, 'image', [f'{i:03}.png' for i in range(60)])
    table['split'] = np.repeat(['train', 'val', 'test'], [12, 46, 2])
    table.to_csv(folder / 'labels.csv', index=False)
    given = config(folder, labels='full', regime='linear')
    with pytest.warns(UserWarning, match='chosen by observed labels'):
        result = training.train(given)
    p = expit(result.logits['val'].astype(float))
    expected = metrics.positive_threshold(p, training.make_task(given).observed_val)
    assert result.scores['threshold'] == pytest.approx(expected)


@pytest.mark.filterwarnings('ignore:drawn')
def test_the_threshold_is_the_same_when_the_last_epoch_is_kept():
    "`last` says which epoch is kept, and nothing of how many labels are known."
    random = np.random.default_rng(0)
    true = np.where(random.random((80, 4)) < 0.4, 1, -1)
    logits = torch.from_numpy(random.normal(size=true.shape) + 1.5 * true - 1)
    observed = np.where((true > 0) & (random.random(true.shape) < 0.5), 1, 0)
    few = np.where(np.arange(80)[:, None] < 5, true, observed)
    for labels in (true, observed, few):
        kept, chosen = (
            score_finished_run({'val': logits}, as_task(true, labels), selection=rule)['threshold']
            for rule in ('last', 'val_clean')
        )
        assert kept == chosen
    assert kept == pytest.approx(metrics.positive_threshold(expit(logits.numpy()), observed))


def one_class_in_validation(folder):
    table = pd.read_csv(folder / 'labels.csv')
    table['split'] = np.repeat(['train', 'val', 'test'], [36, 12, 12])
    table.loc[table.split == 'val', 'labels'] = 'red'
    table.to_csv(folder / 'labels.csv', index=False)


def kept_epoch(run):
    return run.scores['selected_by'], run.scores['best_epoch'], len(run.curves)


@pytest.mark.parametrize('rule', ['val_clean', 'val_observed'])
def test_validation_on_which_every_epoch_scores_alike_keeps_the_last_and_says_so(folder, rule):
    "The first epoch would be kept, whatever the others learn."
    one_class_in_validation(folder)
    given = config(folder, selection=rule, regime='linear', epochs=3, patience=1)
    with pytest.warns(
        UserWarning, match='the validation images cannot choose an epoch.*differ in these'
    ):
        result = training.train(given)
    assert kept_epoch(result) == ('last', 3, 3)


def test_observed_labels_that_choose_no_epoch_choose_none(folder):
    given = {'regime': 'linear', 'epochs': 3, 'patience': 1}
    task = training.make_task(config(folder))
    task = replace(task, observed_val=np.zeros_like(task.observed_val))
    with pytest.warns(UserWarning, match='the validation images cannot choose an epoch'):
        result = training.train(config(folder, selection='val_observed', **given), task=task)
    assert kept_epoch(result) == ('last', 3, 3)
    scores = training.train(config(folder, **given), task=task).scores
    assert scores['selected_by'] == 'clean_map' and 'observed_best_epoch' not in scores


def test_the_mean_without_any_class_is_no_number():
    assert np.isnan(
        mean_ap(np.zeros((2, 3), np.float32), np.ones((2, 3), np.int8), 'cole', np.zeros(3, bool))
    )


def test_a_run_tells_whether_its_allowance_was_too_short(folder):
    short, long = (
        training.train(config(folder, regime='linear', epochs=epochs, lr=1e-3))
        for epochs in (2, 40)
    )
    assert short.scores['late'] == 1 and long.scores['best_epoch'] < 39 and long.scores['late'] == 0


def test_accuracy_is_of_images_with_one_label_each():
    logits = torch.tensor([[3.0, 1, 2], [0, 2, 1], [1, 0, 5], [4, 0, 1]])
    one = np.array([[1, -1, -1], [-1, -1, 1], [-1, -1, 1], [1, -1, -1]], np.int8)
    assert selection._test_scores(logits, one, 0.5)['test_top1'] == 75
    for first in ([1, 1, -1], [-1, -1, -1], [1, 0, -1]):
        assert 'test_top1' not in selection._test_scores(
            logits, np.vstack([first, one[1:]]).astype(np.int8), 0.5
        )


@pytest.mark.silent('A1')
def test_observed_labels_choose_by_roc_auc_and_say_so(folder):
    """Average precision against observed labels falls where a classifier finds what nobody
    observed; ROC-AUC does not.
    """
    given = {
        'regime': 'linear',
        'epochs': 30,
        'lr': 3e-3,
        'patience': 0,
        'selection': 'val_observed',
    }
    result = training.train(config(folder, **given))
    task = training.make_task(config(folder, **given))
    observed = task.observed_val > 0
    counts = observed.sum(0)
    areas = [roc_auc_score(observed[:, c], result.logits['val'][:, c]) for c in range(len(counts))]
    overall = np.average(areas, weights=counts)
    expected = 100 * np.mean(
        [(n * area + 10 * overall) / (n + 10) for n, area in zip(counts, areas, strict=True)]
    )
    assert result.scores['selected_by'] == 'observed_auc'
    assert (
        result.scores['observed_val_auc']
        == pytest.approx(expected)
        == pytest.approx(result.curves.val_auc.max(), abs=1e-4)
    )
    assert result.scores['best_epoch'] == result.curves.val_auc.idxmax() + 1
    assert result.scores['observed_val_map'] == pytest.approx(
        metrics.mean_average_precision(result.logits['val'], np.where(observed, 1, -1))
    )


@pytest.mark.silent('A1')
def test_the_auc_of_observed_labels_orders_classifiers_as_the_truth_does():
    "Hidden positives draw mAP against observed labels down the more, the better a classifier is."
    random = np.random.default_rng(0)
    true = random.random((3000, 1)) < 0.4
    observed = np.where(true & (random.random(true.shape) < 0.25), 1, -1).astype(np.int8)
    good, poor = (signal * true + random.normal(size=true.shape) for signal in (2.0, 1.0))
    by_auc = [selection.observed_auc(torch.tensor(scores), observed) for scores in (good, poor)]
    assert by_auc[0] > by_auc[1] + 5
    assert np.isnan(selection.observed_auc(torch.tensor(good), np.ones_like(observed)))


def test_a_class_with_few_positives_is_drawn_towards_the_others():
    assert selection.shrunk_mean(np.array([0.9, 0.5]), np.array([1000, 1000])) == pytest.approx(0.7)
    few = selection.shrunk_mean(np.array([0.9, 0.5]), np.array([1000, 1]))
    assert few == pytest.approx(
        ((1000 * 0.9 + 10 * (900.5 / 1001)) / 1010 + (0.5 + 10 * (900.5 / 1001)) / 11) / 2
    )
    assert np.isnan(selection.shrunk_mean(np.array([]), np.array([])))


@pytest.mark.silent('A2')
def test_without_clean_labels_the_threshold_does_not_name_one_label_a_photo(folder):
    """The best F1 against one observed label a photo names about one label a photo; r²/Pr(named)
    names what is there.
    """
    empty_zeros(folder)
    given = config(folder, labels='single', regime='linear', epochs=20, lr=3e-3)
    with pytest.warns(UserWarning):
        result = training.train(given)
    task = training.make_task(given)
    p, observed = expit(result.logits['val'].astype(float)), task.observed_val > 0
    value = {t: (observed & (p >= t)).sum() ** 2 / (p >= t).sum() for t in np.unique(p[observed])}
    threshold = result.scores['threshold']
    assert value[min(t for t in value if t >= threshold)] == max(value.values())
    assert (
        p[p < threshold].max(initial=0) < threshold < p[p > threshold].min()
    )  # between two scores, so that rounding flips none


@pytest.mark.silent('A2')
def test_the_threshold_from_positives_alone_comes_close_to_the_best():
    random = np.random.default_rng(0)
    true = random.random((400, 8)) < 0.35
    p = expit(random.normal(size=true.shape) + 1.5 * true - 1)
    observed = np.zeros(true.shape, int)
    for row, photo in enumerate(true):
        if photo.any():
            observed[row, random.choice(np.flatnonzero(photo))] = 1
    best = metrics.f1(p, true, threshold=metrics.best_threshold(p, true))
    by_positives = metrics.f1(p, true, threshold=metrics.positive_threshold(p, observed))
    by_observed = metrics.f1(p, true, threshold=metrics.best_threshold(p, observed, 'negative'))
    assert by_positives > best - 0.02 and by_positives > by_observed + 0.02
