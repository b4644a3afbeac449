"""A run that was interrupted ends with the same bits; checkpoints of other data and a full disk are
told.
"""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import torch
from conftest import check_resumes_equally
from quick import config
from redrawn import as_bitmaps, redraw

from spml_nb import training
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.data import load, loading
from spml_nb.data.folder import split_by_row
from spml_nb.runs.config import resolve
from spml_nb.runs.folder import Run, read_json
from spml_nb.training import checkpoint, trainer


@pytest.fixture
def folder(photo_folder):
    return photo_folder


@pytest.mark.parametrize(
    'given',
    [
        {},
        {'ema': 0.9, 'schedule': 'onecycle', 'optimizer': 'adamw'},
        {'regime': 'linear_init', 'linear_epochs': 3},
        {'optimizer': 'sgd', 'schedule': 'cosine', 'lr': 1e-2},
    ],
)
def test_interrupted_after_any_epoch_it_ends_the_same(folder, given, monkeypatch):
    check_resumes_equally(config(folder, **{'epochs': 3, **given}), monkeypatch)


def test_a_checkpoint_of_other_data_is_not_taken_up(folder):
    class Stop(Exception):
        pass

    def stop(curves):
        raise Stop

    with pytest.raises(Stop):
        training.train(config(folder, regime='linear'), on_epoch=stop)
    table = pd.read_csv(folder / 'labels.csv')
    table.loc[0, 'labels'] = 'blue'
    table.to_csv(folder / 'labels.csv', index=False)
    begun = Run(resolve(config(folder, regime='linear')))
    before = (begun.folder / 'last.pt').read_bytes()
    beside = training.train(config(folder, regime='linear')).folder
    assert beside.name == f'{begun.folder.name}-{load(folder).fingerprint[:6]}'
    assert (begun.folder / 'last.pt').read_bytes() == before and not begun.done


@pytest.mark.silent('C1')
@pytest.mark.parametrize('done', [False, True])
def test_a_run_does_not_go_on_with_photos_that_were_redrawn_in_place(folder, done):
    class Stop(Exception):
        pass

    def stop(curves):
        raise Stop

    given = config(as_bitmaps(folder), epochs=2)
    if done:
        training.train(given)
    else:
        with pytest.raises(Stop):
            training.train(given, on_epoch=stop)
    photo = load(folder).images[5]
    redraw(photo)
    with pytest.raises(SpmlError, match='was begun on photos that have changed since'):
        training.train(given)
    redraw(photo)  # as it was
    assert len(training.train(given).curves) == 2


@pytest.mark.silent('C7')
@pytest.mark.parametrize('done', [False, True])
def test_a_run_on_the_split_by_row_says_what_has_changed_and_goes_on_with_it(
    folder, done, monkeypatch, capsys
):
    class Stop(Exception):
        pass

    def stop(curves):
        raise Stop

    given = config(folder, regime='linear', epochs=2)
    with monkeypatch.context() as older:
        older.setattr(loading, '_is_benchmark', lambda folder: True, raising=False)
        if done:
            result = training.train(given)
        else:
            with pytest.raises(Stop):
                training.train(given, on_epoch=stop)
    capsys.readouterr()
    now = training.train(given).folder.name
    told = capsys.readouterr().out
    assert f'this run is {now}. ' in told and re.search('the split has changed.*split_by_row', told)
    if done:
        with pytest.raises(SpmlError, match='the split has changed.*split_by_row'):
            training.evaluate(result.folder)
    table = pd.read_csv(folder / 'labels.csv')
    table.assign(split=split_by_row(load(folder)).split).to_csv(
        folder / 'labels.csv', index=False
    )  # the remedy
    kept = training.train(given)
    assert len(kept.curves) == 2 and kept.folder == Run(resolve(given)).folder


def test_a_run_of_before_the_photos_were_compared_is_not_compared_on_them(folder):
    result = training.train(config(as_bitmaps(folder), regime='linear', epochs=1))
    file = result.folder / 'result.json'
    written = json.loads(file.read_text())
    assert written.pop('photos') == load(folder).content
    file.write_text(json.dumps(written))
    redraw(*load(folder).images)
    assert training.train(config(folder, regime='linear', epochs=1)).scores == result.scores


def test_a_hook_that_was_not_there_from_the_start_is_told(folder):
    class Stop(Exception):
        pass

    class Notes:
        def __call__(self, trainer, index, outputs, loss):
            pass

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    def stop(curves):
        raise Stop

    given = config(folder, regime='linear', epochs=2)
    with pytest.raises(Stop):
        training.train(given, on_epoch=stop)
    with pytest.raises(SpmlError, match="no notes"):
        training.train(given, on_step=Notes())
    assert len(training.train(given).curves) == 2


def test_full_disk_keeps_the_last_checkpoint(folder, monkeypatch):
    c = config(folder, epochs=3)
    save, calls = torch.save, []

    def full(state, file):
        calls.append(file)
        if len(calls) > 3:  # an epoch writes the best weights by two rules, and a checkpoint
            Path(file).write_bytes(b'half')
            raise OSError(28, 'No space left on device')
        save(state, file)

    monkeypatch.setattr(torch, 'save', full)
    with pytest.raises(SpmlError, match='No space left'):
        training.train(c)
    monkeypatch.setattr(torch, 'save', save)
    run = training.open_run(next(settings.get_folder('runs').glob('an-*')))
    assert run.restore('last.pt')['epoch'] == 1
    assert len(training.train(c).curves) == 3


def test_killed_between_the_weights_and_the_checkpoint_it_says_whose_weights_it_kept(
    folder, monkeypatch
):
    "The epoch is done again, and may score otherwise in the last bits; here it scores less."

    class Stop(Exception):
        pass

    given, now, save = (
        config(folder, regime='linear', epochs=2),
        {'value': 10.0},
        checkpoint.save_checkpoint,
    )

    def killed(trained):
        if trained.epoch == 2:
            raise Stop
        save(trained)
        now['value'] = 20.0

    monkeypatch.setattr(trainer, 'score_by_rule', lambda *given: now['value'])
    monkeypatch.setattr(checkpoint, 'save_checkpoint', killed)
    with pytest.raises(Stop):
        training.train(given)
    monkeypatch.setattr(checkpoint, 'save_checkpoint', save)
    now['value'] = 5.0
    result = training.train(given)
    best = training.open_run(result.folder).best()['best']
    assert (best['epoch'], best['value']) == (2, 20.0) and result.scores['best_epoch'] == 2


@pytest.mark.silent('C11')
def test_a_run_gone_on_with_under_other_threads_says_so(folder):
    class Stop(Exception):
        pass

    def stop(curves):
        raise Stop

    given, before = config(folder, regime='linear', epochs=3), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        for _ in range(2):
            with pytest.raises(Stop):
                training.train(given, on_epoch=stop)
        torch.set_num_threads(2)
        result = training.train(given)
    finally:
        torch.set_num_threads(before)
    noted = read_json(result.folder / 'result.json')['provenance']['sessions']
    assert noted == [{'torch': torch.__version__, 'threads': threads} for threads in (1, 2)]
