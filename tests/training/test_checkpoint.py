"""A run that was interrupted ends with the same bits; checkpoints of other data and a full disk are told."""
from pathlib import Path

import pandas as pd
import pytest
import torch
from conftest import check_resumes_equally
from quick import config

from spml_nb import training
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.training import checkpoint, trainer


@pytest.fixture
def folder(photo_folder): return photo_folder


@pytest.mark.parametrize('given', [{}, {'ema': 0.9, 'schedule': 'onecycle', 'optimizer': 'adamw'}, {'regime': 'linear_init', 'linear_epochs': 3},
                                   {'optimizer': 'sgd', 'schedule': 'cosine', 'lr': 1e-2}])
def test_interrupted_after_any_epoch_it_ends_the_same(folder, given, monkeypatch):
    check_resumes_equally(config(folder, **{'epochs': 3, **given}), monkeypatch)


def test_a_checkpoint_of_other_data_is_not_taken_up(folder):
    class Stop(Exception): pass
    def stop(curves): raise Stop
    with pytest.raises(Stop): training.train(config(folder, regime='linear'), on_epoch=stop)
    table = pd.read_csv(folder / 'labels.csv')
    table.loc[0, 'labels'] = 'blue'
    table.to_csv(folder / 'labels.csv', index=False)
    with pytest.raises(SpmlError, match='was begun on data that have changed since'): training.train(config(folder, regime='linear'))


def test_a_hook_that_was_not_there_from_the_start_is_told(folder):
    class Stop(Exception): pass
    class Notes:
        def __call__(self, trainer, index, outputs, loss): pass
        def state_dict(self): return {}
        def load_state_dict(self, state): pass
    def stop(curves): raise Stop
    given = config(folder, regime='linear', epochs=2)
    with pytest.raises(Stop): training.train(given, on_epoch=stop)
    with pytest.raises(SpmlError, match="holds no notes: the run was begun without that `on_step`"): training.train(given, on_step=Notes())
    assert len(training.train(given).curves) == 2


def test_full_disk_keeps_the_last_checkpoint(folder, monkeypatch):
    c = config(folder, epochs=3)
    save, calls = torch.save, []
    def full(state, file):
        calls.append(file)
        if len(calls) > 3:   # an epoch writes the best weights by two rules, and a checkpoint
            Path(file).write_bytes(b'half')
            raise OSError(28, 'No space left on device')
        save(state, file)
    monkeypatch.setattr(torch, 'save', full)
    with pytest.raises(SpmlError, match='No space left'): training.train(c)
    monkeypatch.setattr(torch, 'save', save)
    run = training.open_run(next(settings.path('runs').glob('an-*')))
    assert run.restore('last.pt')['epoch'] == 1
    assert len(training.train(c).curves) == 3


def test_killed_between_the_weights_and_the_checkpoint_it_says_whose_weights_it_kept(folder, monkeypatch):
    "The epoch is done again, and may score otherwise in the last bits; here it scores less."
    class Stop(Exception): pass
    given, now, save = config(folder, regime='linear', epochs=2), {'value': 10.0}, checkpoint.save
    def killed(trained):
        if trained.epoch == 2: raise Stop
        save(trained)
        now['value'] = 20.0
    monkeypatch.setattr(trainer, 'score_by', lambda *given: now['value'])
    monkeypatch.setattr(checkpoint, 'save', killed)
    with pytest.raises(Stop): training.train(given)
    monkeypatch.setattr(checkpoint, 'save', save)
    now['value'] = 5.0
    result = training.train(given)
    best = training.open_run(result.folder).best()['best']
    assert (best['epoch'], best['value']) == (2, 20.0) and result.scores['best_epoch'] == 2
