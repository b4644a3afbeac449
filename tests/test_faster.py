"""What makes training faster must not change what is trained: compilation, and a data set that lies
on the device.
"""

import shutil

import numpy as np
import pytest
import torch
from training.test_distributed import config

from spml_nb import runs, training
from spml_nb.base.errors import SpmlError
from spml_nb.training import batches as sources


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which('g++') is None and shutil.which('clang++') is None, reason='no C++ compiler'
)
def test_a_compiled_run_is_the_run(photo_folder):
    plain, compiled = (training.train(config(photo_folder, 'em', compile=c)) for c in (False, True))
    assert plain.folder != compiled.folder
    np.testing.assert_allclose(compiled.curves.loss, plain.curves.loss, rtol=1e-5)
    np.testing.assert_allclose(compiled.logits['test'], plain.logits['test'], atol=1e-4)


def test_without_a_compiler_the_error_says_so(photo_folder, monkeypatch):
    monkeypatch.setattr(shutil, 'which', lambda name: None)
    with pytest.raises(
        SpmlError, match=r'needs a C\+\+ compiler on a CPU, and none is installed. Install g\+\+'
    ):
        training.train(config(photo_folder, 'em', compile=True))


def test_batches_of_a_resident_data_set_are_those_of_the_cache(monkeypatch):
    store = np.random.RandomState(0).randint(0, 256, (9, 8, 8, 3), dtype=np.uint8)
    rows = np.array([3, 0, 7])
    copied, resident = (
        sources.ImageSource(store, {'plain': 'plain'}, torch.device('cpu')) for _ in range(2)
    )
    a = copied.batch(rows, 'plain')  # which looks for room
    monkeypatch.setattr(sources, 'has_gpu_room', lambda size, device: True)
    b = resident.batch(rows, 'plain')
    assert (
        copied.resident is None
        and resident.resident is not None
        and torch.equal(a, b)
        and a.stride() == b.stride()
    )


def test_views_are_drawn_in_full_precision(photo_folder, monkeypatch):
    "Half precision is for the network alone: eight bits would move the pixels of a rotated image."
    given = runs.resolve(config(photo_folder, 'an', regime='finetune', precision='bf16'))
    trainer = training.Trainer(given, runs.Run(given), training.make_task(given))
    trainer.begin(1, trainer.stages[0])
    half, batch, forward = [], trainer.source.batch, trainer.forward

    def noted(call):
        return lambda *given: half.append(torch.is_autocast_enabled('cpu')) or call(*given)

    trainer.source.batch, trainer.forward = noted(batch), noted(forward)
    trainer.watch.start(1)
    trainer.method.start_epoch(1)
    trainer.step(torch.arange(6))
    assert half == [False, True]


def test_only_a_gpu_with_room_takes_a_data_set(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'mem_get_info', lambda device: (700, 4000))
    monkeypatch.setattr(
        torch.cuda, 'memory_reserved', lambda device: 400
    )  # of which 100 are in use: an earlier run's are free again
    monkeypatch.setattr(torch.cuda, 'memory_allocated', lambda device: 100)
    assert (
        sources.has_gpu_room(500, torch.device('cuda'))
        and not sources.has_gpu_room(501, torch.device('cuda'))
        and not sources.has_gpu_room(1, torch.device('cpu'))
    )
