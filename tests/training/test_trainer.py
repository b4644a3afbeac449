"""The loop: it learns, stops, resumes bit for bit, and says what is wrong before anything is written."""
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import check_resumes_equally

from spml_nb import metrics, runs, training
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.methods.core import promote, reduce, register_loss
from spml_nb.runs.config import Config

QUICK = {'dataset': 'folder', 'backbone': 'mini', 'epochs': 2}


def broken_at_step_3_loss(logits, z, *, reduction: str = 'mean'):
    broken_at_step_3_loss.calls += 1
    value = reduce(torch.nn.functional.softplus(-promote(logits)), reduction)
    return value * (float('nan') if broken_at_step_3_loss.calls == broken_at_step_3_loss.breaks_at else 1.0)


register_loss('broken_at_step_3', broken_at_step_3_loss)


@pytest.fixture
def folder(photo_folder): return photo_folder


def config(folder, **given): return Config(**{**QUICK, 'loss': 'an', **given, 'dataset': str(given.get('dataset', folder))})


@pytest.mark.parametrize('regime', ['finetune', 'linear', 'linear_init'])
def test_it_learns_in_every_regime(folder, regime):
    result = training.train(config(folder, regime=regime, labels='full', epochs=5, linear_epochs=10, lr=3e-3, linear_lr=3e-2))
    assert result.scores['test_map'] > 80
    assert (result.folder / 'DONE').is_file() and not (result.folder / 'last.pt').exists()
    assert result.curves['stage'].nunique() == (2 if regime == 'linear_init' else 1)
    assert np.isfinite(result.logits['test']).all() and result.logits['test'].dtype == np.float32


@pytest.mark.parametrize('loss', ['an', 'bce', 'em'])
def test_the_first_methods_train(folder, loss):
    assert np.isfinite(training.train(config(folder, loss=loss, regime='linear')).curves['loss']).all()


def test_same_command_gives_the_finished_result(folder, capsys):
    first = training.train(config(folder, regime='linear'))
    stamp = (first.folder / 'result.json').stat().st_mtime_ns
    second = training.train(config(folder, regime='linear'))
    assert 'already done' in capsys.readouterr().out
    assert second.scores == first.scores and (first.folder / 'result.json').stat().st_mtime_ns == stamp


def test_same_seed_same_bits_and_other_seed_other_bits(folder):
    first, other = (training.train(config(folder, seed=s)) for s in (0, 1))
    os.environ['SPML_NB_RUNS'] += '-again'
    again = training.train(config(folder))
    assert np.array_equal(first.logits['test'], again.logits['test']) and first.folder != again.folder
    assert not np.array_equal(first.logits['test'], other.logits['test'])


def test_changed_data_are_noticed(folder):
    training.train(config(folder, regime='linear'))
    table = pd.read_csv(folder / 'labels.csv')
    table.loc[0, 'labels'] = 'blue'
    table.to_csv(folder / 'labels.csv', index=False)
    with pytest.raises(SpmlError, match='have changed since'): training.train(config(folder, regime='linear'))


@pytest.mark.parametrize('given', [{}, {'ema': 0.9, 'schedule': 'onecycle', 'optimizer': 'adamw'}, {'regime': 'linear_init', 'linear_epochs': 3},
                                   {'optimizer': 'sgd', 'schedule': 'cosine', 'lr': 1e-2}])
def test_interrupted_after_any_epoch_it_ends_the_same(folder, given, monkeypatch):
    check_resumes_equally(config(folder, **{'epochs': 3, **given}), monkeypatch)


def test_killed_three_times_it_ends_the_same(tmp_path):
    command = [sys.executable, '-c', 'from spml_nb.runs.config import Config; from spml_nb.training.trainer import train; train(Config(loss="em", dataset="mini_voc", epochs=4))']
    def start(name): return subprocess.Popen(command, env={**os.environ, 'SPML_NB_RUNS': str(tmp_path / name)}, stdout=subprocess.PIPE, text=True)
    whole = start('whole')
    assert whole.wait(300) == 0
    for lines, pause in ((0, 2.0), (1, 0.3), (1, 0.8)):   # while starting, and in later epochs, not the last
        process = start('killed')
        for _ in range(lines): process.stdout.readline()
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    assert not list((tmp_path / 'killed').glob('*/DONE'))
    last = start('killed')
    assert last.wait(300) == 0
    a, b = (next((tmp_path / name).glob('*/DONE')).parent for name in ('whole', 'killed'))
    with np.load(a / 'logits.npz') as x, np.load(b / 'logits.npz') as y: assert np.array_equal(x['test'], y['test']) and np.array_equal(x['val'], y['val'])
    assert runs.read_json(a / 'result.json')['scores'] == runs.read_json(b / 'result.json')['scores']


def test_bad_loss_names_method_epoch_and_step_and_keeps_the_checkpoint(folder):
    steps = 3   # 38 training images in batches of 16
    for breaks_at, epoch in ((2, 1), (steps + 2, 2)):
        broken_at_step_3_loss.calls, broken_at_step_3_loss.breaks_at = 0, breaks_at
        with pytest.raises(SpmlError) as error: training.train(config(folder, loss='broken_at_step_3'))
        assert f"'broken_at_step_3' became nan at step 2 of epoch {epoch}" in str(error.value) and 'Lower the learning rate' in str(error.value)
    folder_of_run = next(settings.path('runs').glob('broken*'))
    assert (folder_of_run / 'last.pt').is_file() and not (folder_of_run / 'DONE').exists()
    assert torch.load(folder_of_run / 'last.pt', weights_only=True)['epoch'] == 1


@pytest.mark.parametrize('given, words', [
    ({'dataset': 'mini_vocc'}, ["'mini_vocc'", "Did you mean 'mini_voc'?"]),
    ({'backbone': 'resnet5O'}, ["'resnet5O'", 'resnet50']),
    ({'labels': 'some'}, ["'some'", 'single']),
    ({'exclude': ['green']}, ['green']),
    ({'min_positives': 1000}, ['1000']),
    ({'weights': 'absent.pt'}, ['absent.pt']),
])
def test_wrong_input_is_told_and_leaves_nothing(folder, given, words):
    with pytest.raises(SpmlError) as error: training.train(config(folder, **given))
    for word in words: assert word in str(error.value)
    assert not [p for p in settings.path('runs').glob('*') if p.is_dir()]


def test_nothing_observed_is_refused(folder):
    table = pd.read_csv(folder / 'labels.csv').assign(labels='', split=['train'] * 40 + ['test'] * 20)
    table.loc[50:, 'labels'] = 'red'
    table.to_csv(folder / 'labels.csv', index=False)
    with pytest.warns(UserWarning), pytest.raises(SpmlError, match='nothing is observed in the 32 training images'): training.train(config(folder))


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


def test_selection_rules(folder):
    results = {rule: training.train(config(folder, selection=rule, epochs=4, lr=1e-3)) for rule in ('val_clean', 'val_observed', 'last')}
    assert results['last'].scores['best_epoch'] == 4
    clean = results['val_clean']
    assert clean.scores['best_epoch'] == clean.curves['val_map'].idxmax() + 1


# ---- tables with empty cells

def empty_zeros(folder, complete=()):
    "Write the table as columns of 1 and empty cells; rows of `complete` (numbers, or parts) keep their 0. 36 rows train, 12 val, 12 test."
    names = pd.read_csv(folder / 'labels.csv')['labels'].str.get_dummies()
    split = np.repeat(['train', 'val', 'test'], [36, 12, 12])
    keep = np.isin(split, [c for c in complete if isinstance(c, str)]) | np.isin(np.arange(60), [c for c in complete if isinstance(c, int)])
    cells = names.astype(str).where(names.eq(1) | keep[:, None], '')
    cells.insert(0, 'image', [f'{i:03}.png' for i in range(60)])
    cells.assign(split=split).to_csv(folder / 'labels.csv', index=False)


def observes_its_table(task):
    return all(np.array_equal(z, task.data.labels[rows]) and (z == 0).any() for z, rows in ((task.observed, task.train), (task.observed_val, task.val)))


def told(caught): return [str(w.message) for w in caught if 'known negative' in str(w.message)]


def test_a_table_of_ones_and_gaps_is_observed_as_it_is_beside_a_complete_test_part(folder):
    empty_zeros(folder, complete=['test'])
    task = training.make_task(config(folder, labels='full'))
    assert observes_its_table(task) and not (task.observed < 0).any()
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
    assert observes_its_table(task) and (task.observed < 0).any(1).tolist() == [True] + [False] * 35
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


def test_patience_stops_early(folder):
    result = training.train(config(folder, patience=1, epochs=50, lr=1e-3))
    assert len(result.curves) < 50 and result.curves['val_map'].iloc[-1] <= result.curves['val_map'].iloc[:-1].max()


def test_evaluate_repeats_the_result_and_checks_classes(folder, tmp_path):
    for regime in ('finetune', 'linear'):
        result = training.train(config(folder, regime=regime))
        scores, logits, data = training.evaluate(result.folder)
        assert np.allclose(logits.numpy(), result.logits['test'], atol=1e-5) and abs(scores['map'] - result.scores['test_map']) < 1e-3
    table = pd.read_csv(folder / 'labels.csv')
    table['labels'] = table['labels'].str.replace('red', 'green')
    (tmp_path / 'other').mkdir()
    (tmp_path / 'other' / 'images').symlink_to(folder / 'images')
    table.to_csv(tmp_path / 'other' / 'labels.csv', index=False)
    with pytest.raises(SpmlError, match='lacks 1 of the run.s 3 classes: red'): training.evaluate(result.folder, tmp_path / 'other')
    with pytest.raises(SpmlError, match='no run'): training.evaluate('no-such-run')


def test_a_run_is_not_scored_on_its_own_data_when_these_have_changed(folder, tmp_path):
    result = training.train(config(folder, regime='linear', epochs=1))
    stored = runs.read_json(result.folder / 'result.json')['data']
    table = pd.read_csv(folder / 'labels.csv')
    table.loc[0, 'labels'] = 'blue'
    table.to_csv(folder / 'labels.csv', index=False)
    with pytest.raises(SpmlError, match=f'{stored}; what is found there now has .*Put the old data back'): training.evaluate(result.folder)
    assert training.evaluate(result.folder, folder)[0]['map'] >= 0   # named, any data will do
    (result.folder / 'result.json').write_text(json.dumps({k: v for k, v in runs.read_json(result.folder / 'result.json').items() if k != 'data'}))
    assert training.evaluate(result.folder)[0]['map'] >= 0


def test_a_linear_run_says_which_backbone_it_was_trained_on(folder):
    from spml_nb import models
    from spml_nb.training import batches as sources
    result = training.train(config(folder, regime='linear', epochs=1))
    assert runs.read_json(result.folder / 'result.json')['backbone'] == sources.weights_key(models.create('mini', 3))


def test_full_disk_keeps_the_last_checkpoint(folder, monkeypatch):
    c = config(folder, epochs=3)
    save, calls = torch.save, []
    def full(state, file):
        calls.append(file)
        if len(calls) > 2:
            Path(file).write_bytes(b'half')
            raise OSError(28, 'No space left on device')
        save(state, file)
    monkeypatch.setattr(torch, 'save', full)
    with pytest.raises(SpmlError, match='No space left'): training.train(c)
    monkeypatch.setattr(torch, 'save', save)
    run = training.open_run(next(settings.path('runs').glob('an-*')))
    assert run.restore('last.pt')['epoch'] == 1
    assert len(training.train(c).curves) == 3
