"""The curves that TensorBoard shows are those of the run, each epoch once, and a missing package is
told before anything is written.
"""

import gc
import os
import sys

import pytest
from quick import config
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from spml_nb import runs, training
from spml_nb.base.errors import SpmlError


def drawn(folder):
    return {
        name: [(e.step, e.value) for e in EventAccumulator(str(folder)).Reload().Scalars(name)]
        for name in ('loss', 'val_map', 'lr')
    }


def stopped(curves):
    if len(curves) == 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize('regime', ['linear', 'linear_init'])
def test_curves_are_those_of_the_run_also_after_an_interruption(photo_folder, monkeypatch, regime):
    monkeypatch.setenv('SPML_NB_TRACKER', 'tensorboard')
    each = config(
        photo_folder, regime=regime, epochs=2 if regime == 'linear_init' else 4, linear_epochs=2
    )
    with pytest.raises(KeyboardInterrupt):
        training.train(each, on_epoch=stopped)
    result = training.train(each)
    assert len(result.curves) == 4
    for name, points in drawn(result.folder).items():
        assert [step for step, _ in points] == [1, 2, 3, 4]
        assert [value for _, value in points] == pytest.approx(
            result.curves[name].tolist(), rel=1e-6
        )


def test_a_run_that_has_ended_leaves_no_file_open(photo_folder, monkeypatch):
    monkeypatch.setenv('SPML_NB_TRACKER', 'tensorboard')
    folder = training.train(config(photo_folder, regime='linear')).folder
    gc.collect()
    held = [
        os.readlink(f'/proc/self/fd/{number}')
        for number in os.listdir('/proc/self/fd')
        if os.path.exists(f'/proc/self/fd/{number}')
    ]
    assert list(folder.glob('events*')) and not [
        name for name in held if name.startswith(str(folder))
    ]


def test_without_the_setting_nothing_is_written(photo_folder):
    assert not list(training.train(config(photo_folder, regime='linear')).folder.glob('events*'))


@pytest.mark.parametrize(
    ('name', 'told'),
    [
        ('tensorboard', r"pip install 'spml_nb\[tracking\]'"),
        ('wandb', "unknown tracker 'wandb'; allowed: none, tensorboard"),
    ],
)
def test_what_is_not_there_is_told_before_anything_is_written(
    photo_folder, monkeypatch, name, told
):
    monkeypatch.setenv('SPML_NB_TRACKER', name)
    monkeypatch.setitem(sys.modules, 'torch.utils.tensorboard', None)
    with pytest.raises(SpmlError, match=told):
        training.train(config(photo_folder, regime='linear'))
    assert not (runs.Run(config(photo_folder, regime='linear')).folder / 'config.json').exists()
