"""A stack trains each run as the run would be trained alone, whatever the others do."""

import json

import numpy as np
import pytest
import torch
from quick import config
from side_files import draw_side

from spml_nb import methods, runs, sweeps, training
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.methods.core import find
from spml_nb.runs import record
from spml_nb.runs.config import Config, resolve
from spml_nb.runs.folder import Run
from spml_nb.sweeps import queue
from spml_nb.training import stacked

VARIED = [(0, 1200, 1e-3), (1, 1201, 1e-2), (2, 1200, 3e-3)]
STACKING = [name for name in methods.names() if find(name).stacks is not None]


def varied(folder, loss='an', **given):
    "Runs of one stack that stop at different epochs."
    # two_way_class does not depend on a bias, which rounding alone would move
    head = 'cosine' if loss == 'two_way_class' else find(loss).head
    fields = {'regime': 'linear', 'head': head, 'labels': 'single', 'epochs': 6, 'patience': 2}
    return [
        config(folder, loss=loss, seed=seed, label_seed=label_seed, lr=lr, **fields | given)
        for seed, label_seed, lr in VARIED
    ]


def train_both(configs, monkeypatch):
    "[(trained alone, trained in a stack)] for each configuration."
    alone = [training.train(c) for c in configs]
    monkeypatch.setenv('SPML_NB_RUNS', str(settings.get_folder('runs')) + '-stacked')
    errors = dict(stacked.train_stacked(configs))
    assert errors == dict.fromkeys(configs)
    return list(zip(alone, map(training.train, configs), strict=True))


def check_equal(pairs, atol=1e-5):
    for a, b in pairs:
        curves = [x.curves.drop(columns='seconds') for x in (a, b)]
        np.testing.assert_allclose(*curves, rtol=1e-4, atol=1e-4)
        assert a.scores.keys() == b.scores.keys()
        for name in ('val_map', 'test_map', 'best_epoch', 'late', 'acts_since'):
            assert a.scores.get(name) == pytest.approx(b.scores.get(name), abs=1e-4), name
        best = [Run(x.config, x.folder.parent).best() for x in (a, b)]
        for part in ('network', 'method'):
            torch.testing.assert_close(best[0][part], best[1][part], rtol=1e-3, atol=atol)


@pytest.mark.parametrize('loss', [name for name in STACKING if find(name).head in stacked.HEADS])
def test_every_run_of_a_stack_is_the_run(photo_folder, tmp_path, monkeypatch, loss):
    side = {'side': str(draw_side(photo_folder, tmp_path / 'side.csv'))} if find(loss).side else {}
    pairs = train_both(varied(photo_folder, loss, **side), monkeypatch)
    check_equal(pairs)


def test_runs_of_a_stack_stop_each_at_its_own_epoch(photo_folder, monkeypatch):
    pairs = train_both(varied(photo_folder, epochs=20), monkeypatch)
    lengths = [len(alone.curves) for alone, _ in pairs]
    assert len(set(lengths)) > 1 and min(lengths) < 20
    check_equal(pairs)
    assert (
        json.loads((pairs[0][1].folder / 'result.json').read_text())['provenance']['stacked'] == 3
    )
    assert record.load().stacked.tolist() == [3, 3, 3]
    assert 'stacked' not in record.load(pairs[0][0].folder.parent)


@pytest.mark.parametrize(
    'given',
    [
        {'optimizer': 'sgd', 'nesterov': True, 'weight_decay': 0.01, 'schedule': 'cosine'},
        {'optimizer': 'adamw', 'weight_decay': 0.1, 'schedule': 'onecycle', 'ema': 0.9},
        {'optimizer': 'adam', 'weight_decay': 0.01, 'selection': 'last', 'patience': 0},
    ],
    ids=str,
)
def test_every_optimiser_schedule_and_average_is_that_of_the_run(photo_folder, monkeypatch, given):
    check_equal(train_both(varied(photo_folder, 'role', **given), monkeypatch))


def test_hyper_parameters_that_are_tensors_or_rates_may_differ(photo_folder, monkeypatch):
    plain = varied(photo_folder, 'hml')
    configs = [
        c.changed(hparams={'scale': 10.0 + k, 'margin': k / 10, 'adaptive_lr': 10.0**-k})
        for k, c in enumerate(plain, 1)
    ]
    assert len({stacked.stack_key(resolve(c)) for c in configs}) == 1
    check_equal(train_both(configs, monkeypatch))
    other = [resolve(c.changed(hparams={'margin_on': 'none'})) for c in plain[:1]]
    assert stacked.stack_key(other[0]) != stacked.stack_key(resolve(plain[0]))


def test_runs_whose_methods_differ_are_not_stacked(photo_folder):
    "ROLE counts the observed labels, which differ here, and takes the count as a number."
    configs = varied(photo_folder, 'role', labels='partial-0.5', epochs=1)
    ended = [c for c, _ in stacked.train_stacked(configs)]
    assert sorted(c.seed for c in ended) == [0, 2]


@pytest.mark.parametrize(
    ('given', 'why'),
    [
        ({'regime': 'finetune'}, 'regime finetune trains the backbone'),
        ({'head': 'labelwise'}, 'the head labelwise learns on feature maps'),
        ({'loss': 'lac_plc', 'head': 'linear'}, 'the steps of lac_plc cannot be stacked'),
        ({'compile': True}, 'neither compiled'),
        ({'precision': 'bf16'}, 'nor in half precision'),
        ({}, ''),
    ],
)
def test_what_cannot_be_stacked_is_known_before(given, why):
    fields = {'loss': 'an', 'dataset': 'mini_voc', 'regime': 'linear', **given}
    reason = stacked.explain_alone(resolve(Config(**fields)))
    assert why in reason and bool(why) == bool(reason)


def test_a_run_that_diverges_leaves_the_others_as_they_are(photo_folder, monkeypatch):
    configs = varied(photo_folder)
    wild = configs[0].changed(lr=1e38)
    alone = [training.train(c) for c in configs[1:]]
    monkeypatch.setenv('SPML_NB_RUNS', str(settings.get_folder('runs')) + '-stacked')
    messages = queue.attempt_stack([wild, *configs[1:]])
    assert 'Lower the learning rate (lr is 1e+38)' in messages[0] and messages[1:] == ['', '']
    found = runs.load().set_index('lr')
    assert found.diverged.sum() == 1 and (found.stacked == 3).all()
    check_equal(list(zip(alone, map(training.train, configs[1:]), strict=True)))


def test_an_error_of_the_stack_leaves_its_runs_to_be_trained_alone(photo_folder, monkeypatch):
    configs = varied(photo_folder)
    monkeypatch.setattr(stacked._Stack, 'step', lambda *_: 1 / 0)
    assert queue.attempt_stack(configs) == ['', '', '']
    found = runs.load()
    assert len(found) == 3 and 'stacked' not in found
    assert any('ZeroDivisionError' in log.read_text() for log in find_logs())


def find_logs():
    return settings.get_folder('runs').rglob('log.txt')


def test_a_kill_loses_no_more_than_what_has_not_ended(photo_folder, monkeypatch):
    configs = varied(photo_folder, epochs=20)
    ending = stacked.train_stacked(configs)
    first, error = next(ending)
    ending.close()
    states = dict(zip((c.seed for c in configs), sweeps.plan_runs(configs).state, strict=True))
    assert error is None and states.pop(first.seed) == 'done'
    assert set(states.values()) == {'missing'}
    assert queue.attempt_stack(configs) == ['', '', '']
    found = runs.load().set_index('seed')
    assert found.stacked[first.seed] == 3 and (found.stacked.drop(first.seed) == 2).all()


def test_a_begun_run_goes_on_alone(photo_folder):
    configs = varied(photo_folder)

    def stop(curves):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        training.train(configs[0], on_epoch=stop)
    assert queue.attempt_stack(configs) == ['', '', '']
    assert runs.load().set_index('seed').stacked.isna().to_dict() == {0: True, 1: False, 2: False}


def test_methods_that_come_to_differ_are_refused(photo_folder, monkeypatch):
    def start_epoch(self, e):
        self.secret = float(torch.rand(()))

    monkeypatch.setattr(find('em_apl'), 'start_epoch', start_epoch)
    with pytest.raises(SpmlError, match="runs of 'em_apl' cannot be stacked: their methods differ"):
        list(stacked.train_stacked(varied(photo_folder, 'em_apl')))


def test_the_engine_stacks_what_it_can_and_says_what_it_cannot(photo_folder):
    lines = []
    end_to_end = config(photo_folder, epochs=1)
    configs = [end_to_end, *varied(photo_folder, epochs=2)]
    table = sweeps.run(configs, engine='stacked', tell=lines.append)
    assert table.state.tolist() == ['done'] * 4
    assert lines[0] == '1 of 4 runs are trained one by one: regime finetune trains the backbone.'
    assert 'meant for a GPU' in lines[1]
    found = runs.load()
    assert found.set_index('regime').stacked.fillna(1).tolist().count(3) == 3
    assert (Run(resolve(configs[1])).folder / 'DONE').is_file()
    # seconds of a share say nothing about a run of its own
    expected = sweeps.plan_runs([configs[1].changed(seed=9)])
    assert expected.expected.isna().all()
