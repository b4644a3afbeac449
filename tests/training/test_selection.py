"""Which epoch is kept, when a run stops, and what its scores are measured against when labels are missing."""
import warnings

import numpy as np
import pandas as pd
import pytest
from quick import config, empty_zeros, told

from spml_nb import metrics, runs, training
from spml_nb.runs.config import Config
from spml_nb.training.selection import best_so_far, should_stop


@pytest.fixture
def folder(photo_folder): return photo_folder


def test_selection_rules(folder):
    results = {rule: training.train(config(folder, selection=rule, epochs=4, lr=1e-3)) for rule in ('val_clean', 'val_observed', 'last')}
    assert results['last'].scores['best_epoch'] == 4
    clean = results['val_clean']
    assert clean.scores['best_epoch'] == clean.curves['val_map'].idxmax() + 1


def test_the_first_of_equal_epochs_is_kept_and_the_averaged_weights_may_win():
    best = best_so_far(Config(), None, {'raw': 50.0, 'averaged': 60.0}, 1, 1)
    assert best == {'value': 60.0, 'stage': 1, 'epoch': 1, 'weights': 'averaged'}
    assert best_so_far(Config(), best, {'raw': 60.0, 'averaged': 60.0}, 1, 2) is best
    assert best_so_far(Config(selection='last'), best, {'raw': 70.0, 'averaged': 10.0}, 1, 2)['weights'] == 'averaged'
    assert [should_stop(Config(patience=2), best, 50.0, epoch) for epoch in (2, 3)] == [False, True]
    assert [should_stop(Config(stop_below=5), best, value, 2) for value in (55.0, 54.9)] == [False, True]


def test_patience_stops_early(folder):
    result = training.train(config(folder, patience=1, epochs=50, lr=1e-3))
    assert len(result.curves) < 50 and result.curves['val_map'].iloc[-1] <= result.curves['val_map'].iloc[:-1].max()


def test_class_without_training_positives_is_warned_kept_and_scored_zero(folder):
    table = pd.read_csv(folder / 'labels.csv')
    table['labels'] = table['labels'] + ''
    table['split'] = ['train'] * 40 + ['test'] * 20
    table.loc[0, 'labels'] = 'red'
    table.loc[59, 'split'], table.loc[59, 'labels'] = 'val', 'blue|rare'
    table.to_csv(folder / 'labels.csv', index=False)
    with pytest.warns(UserWarning, match='rare'): result = training.train(config(folder, regime='linear', labels='full'))
    names = runs.read_json(result.folder / 'result.json')['class_names']
    assert 'rare' in names and result.scores['test_ap'][names.index('rare')] == 0


def test_a_complete_test_part_is_scored_truly_beside_a_table_of_ones_and_gaps(folder):
    empty_zeros(folder, complete=['test'])
    task = training.make_task(config(folder, labels='full'))
    with pytest.warns(UserWarning) as caught: an, em = (training.train(config(folder, loss=loss, labels='full', regime='linear')) for loss in ('an', 'em'))
    assert not np.allclose(an.curves.loss, em.curves.loss) and not np.allclose(an.logits['test'], em.logits['test'])
    assert an.scores['val_truth'] == 'observed only' and an.scores['test_truth'] == 'complete'
    assert [message.split(' known')[0] for message in told(caught)] == ['photos: no label of val is a'] * 4   # choice and scores, twice
    true = task.data.labels[task.test]
    assert an.scores['test_map'] == metrics.mean_average_precision(an.logits['test'], true, unknown='ignore') and (true < 0).any()


def test_a_table_without_any_zero_is_scored_on_what_is_recorded_and_says_so(folder):
    empty_zeros(folder)
    given = {'labels': 'single', 'regime': 'linear', 'epochs': 4, 'lr': 1e-3}
    with pytest.warns(UserWarning) as caught: result = training.train(config(folder, **given))
    choice, scoring = told(caught)
    assert 'no label of val is a known negative, so the best epoch is chosen by observed labels' in choice
    assert 'no label of val and test is a known negative, so the scores there are against observed labels' in scoring
    with pytest.warns(UserWarning) as caught: observed = training.train(config(folder, selection='val_observed', **given))
    assert len(told(caught)) == 1 and result.curves.val_map.tolist() == observed.curves.val_map.tolist()
    data = training.make_task(config(folder, **given)).data
    for part in ('val', 'test'):
        assert result.scores[f'{part}_truth'] == 'observed only'
        assert result.scores[f'{part}_map'] == metrics.mean_average_precision(result.logits[part], data.labels[data.rows(part)], unknown='negative') < 100
    with pytest.warns(UserWarning, match='no label of train is a known negative'): scores = training.evaluate(result.folder, part='train')[0]
    assert scores['truth'] == 'observed only' and scores['map'] < 100


def test_a_partly_known_part_leaves_its_unknowns_out(folder):
    empty_zeros(folder, complete=[0, 36, 37, 38, 39])   # one row of train, four of val, none of test
    with pytest.warns(UserWarning) as caught: result = training.train(config(folder, labels='full', regime='linear'))
    task = training.make_task(config(folder, labels='full'))
    assert result.scores['val_truth'] == 'partly known' and result.scores['test_truth'] == 'observed only'
    message, = told(caught)
    assert 'no label of test is a known negative' in message
    known = task.data.labels[task.val]
    for part, expected in (('val', metrics.mean_average_precision(result.logits['val'], known, unknown='ignore')),
                           ('test', metrics.mean_average_precision(result.logits['test'], task.data.labels[task.test], unknown='negative'))):
        assert result.scores[f'{part}_map'] == expected
    assert result.curves.val_map.max() == pytest.approx(result.scores['val_map'], abs=1e-4)   # chosen by the same labels


def test_a_complete_table_is_complete_without_a_word(folder):
    with warnings.catch_warnings():
        warnings.simplefilter('error', UserWarning)
        result = training.train(config(folder, regime='linear', epochs=1))
        assert result.scores['val_truth'] == result.scores['test_truth'] == training.evaluate(result.folder)[0]['truth'] == 'complete'
