"""Several processes train one run: the same curve as one process, the same state everywhere, no
image counted twice.
"""

import contextlib
import copy
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import draw_photo_folder
from side_files import draw_side
from torch import multiprocessing as mp

from spml_nb import models, runs, training
from spml_nb.base.errors import SpmlError
from spml_nb.methods.core import find
from spml_nb.runs.config import Config
from spml_nb.training.distributed import Group

AIDED = ('epr_count', 'pseudo_scores', 'group_consistency')
STATEFUL = ('role', 'em_apl', 'llcp', 'opml_sp', 'hml', 'lac', 'gr', 'crisp', 'boostlu_llcp')
SGD = {
    'role': {'optimizer': 'sgd', 'lr': 0.02},
    'lac': {'ema': 0.9},
}  # Adam would hide a wrong factor of the gradient; the averaged copy has a state too
BUCKETS = {'loss': 'two_way', 'batch_size': 8, 'hparams': {'bucket': 4}}


def config(folder, loss, **given):
    if find(loss).side:
        given['side'] = draw_side(folder, folder / 'side.npz')
    return Config(
        **{
            'loss': loss,
            'dataset': str(folder),
            'backbone': 'mini',
            'image_size': 40,
            'epochs': 2,
            'batch_size': 6,
            'lr': 1e-3,
            'regime': 'linear',
            'head': {'hml': 'cosine', 'lac': 'labelwise', 'boostlu_llcp': 'maps'}.get(
                loss, 'linear'
            ),
            'cached_views': 1,
            'ema': 0.0,
            'schedule': 'constant',
            **given,
        }
    )


def worker(rank, size, port, configs, out):
    """What one process of a test's group does: train each configuration in a folder of runs of the
    group.
    """
    import os

    os.environ |= {
        'RANK': str(rank),
        'WORLD_SIZE': str(size),
        'LOCAL_RANK': str(rank),
        'MASTER_ADDR': '127.0.0.1',
        'MASTER_PORT': str(port),
        'SPML_NB_RUNS': str(Path(out) / 'runs'),
    }
    torch.set_num_threads(1)
    for given in configs:
        resolved = runs.resolve(given)
        run, task = runs.Run(resolved), training.make_task(resolved)
        seen = []
        trainer = training.Trainer(
            resolved,
            run,
            task,
            on_step=lambda trainer, index, *_, seen=seen: seen.append(index.tolist()),
        )
        if rank == 0:
            run.start()
        state = at_the_end(trainer)
        trainer.fit()
        training.finish_run(trainer)
        trainer.group.wait()
        torch.save(state | {'seen': seen}, Path(out) / f'{run.folder.name}-{rank}.pt')
    torch.distributed.destroy_process_group()


def at_the_end(trainer):
    """What a process has when its last stage ends: afterwards all of them load the same best
    weights. Returns: dict, filled by `fit`.
    """
    state, load_best = {}, trainer.load_best

    def noted(*choice):
        if not choice:
            state.update(
                copy.deepcopy(
                    {'method': trainer.method.state_dict(), 'module': trainer.module.state_dict()}
                )
            )
        load_best(*choice)

    trainer.load_best = noted
    return state


def together(configs, out, size=2):
    """Train with `size` processes. configs: by name. Returns: {name: (curves, test logits, [state
    of each process], folder)}.
    """
    import socket

    for port in (
        np.random.default_rng().integers(20_000, 32_000, 100).tolist()
    ):  # below the ports that systems give out themselves, such as to Ray in another test
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(('127.0.0.1', port))
            break
    mp.start_processes(
        worker,
        args=(size, port, list(configs.values()), str(out)),
        nprocs=size,
        start_method='spawn',
    )
    found = {}
    for name, given in configs.items():
        folder = runs.Run(runs.resolve(given), Path(out) / 'runs').folder
        with np.load(folder / 'logits.npz') as logits:
            found[name] = (
                pd.read_csv(folder / 'metrics.csv'),
                logits['test'],
                [torch.load(Path(out) / f'{folder.name}-{r}.pt') for r in range(size)],
                folder,
            )
    return found


@pytest.fixture(scope='module')
def pair(tmp_path_factory):
    """All configurations of this file, trained by two processes. Returns: (folder of photos,
    results by name).
    """
    folder = draw_photo_folder(tmp_path_factory.mktemp('data') / 'photos')
    configs = {
        loss: config(folder, loss, **SGD.get(loss, {}))
        for loss in ('an', 'em', *STATEFUL, 'two_way', *AIDED)
    }
    configs |= {
        'softmax': config(folder, 'softmax', regime='finetune'),
        'buckets': config(folder, **BUCKETS),
    }
    configs['odd'] = config(
        folder, 'em_apl', regime='finetune', train_images=37, epochs=3, hparams={'warm_up': 1}
    )  # shares of 19 and 18
    return folder, together(configs, tmp_path_factory.mktemp('group'))


@pytest.mark.parametrize(
    'loss',
    [
        'an',
        'em',
        'role',
        'em_apl',
        'llcp',
        'opml_sp',
        'hml',
        'gr',
        'two_way',
        'crisp',
        'boostlu_llcp',
        *AIDED,
    ],
)
def test_two_processes_train_as_one(pair, loss):
    folder, found = pair
    curves, logits, _, _ = found[loss]
    alone = training.train(config(folder, loss, **SGD.get(loss, {})))
    np.testing.assert_allclose(curves.loss, alone.curves.loss, rtol=1e-5)
    np.testing.assert_allclose(logits, alone.logits['test'], atol=1e-4)
    assert curves.val_map.tolist() == pytest.approx(alone.curves.val_map.tolist(), abs=1e-6)


@pytest.mark.parametrize('loss', [*STATEFUL, 'group_consistency'])
def test_processes_agree_on_what_a_method_has_learnt(pair, loss):
    first, second = pair[1][loss][2]
    for part in ('method', 'module'):
        assert first[part].keys() == second[part].keys()
        if loss == 'lac' and part == 'method':
            assert (first[part]['queue.labels'] > 0).any()  # the second stage has begun
        for name in first[part]:
            torch.testing.assert_close(
                first[part][name], second[part][name], rtol=0, atol=0, msg=f'{loss}: {part}.{name}'
            )


def test_a_methods_own_parameters_learn_as_with_one_process(pair):
    "Their gradient is whole in every process, so nothing may multiply it."
    folder, found = pair
    alone = torch.load(training.train(config(folder, 'role', **SGD['role'])).folder / 'best.pt')
    best = torch.load(found['role'][3] / 'best.pt')
    observed = best['method']['z'] == 1  # their estimates begin at a known place
    moved = (best['method']['estimate'] - math.log(0.995 / 0.005))[observed].abs().max()
    assert moved > 1e-4
    torch.testing.assert_close(
        best['method']['estimate'], alone['method']['estimate'], rtol=0, atol=0.01 * float(moved)
    )


def test_timms_norm_layers_keep_their_activation(monkeypatch):
    """Batch normalisation over several GPUs, its layers exchanged on the CPU: the network in
    evaluation mode stays the same.
    """
    model = models.create('efficientnet_lite0', 4, weights='none').eval()
    images = torch.rand(2, 3, 64, 64)
    group = Group()
    group.size, group.device = 2, torch.device('cuda', 0)
    monkeypatch.setattr(
        torch.nn.parallel, 'DistributedDataParallel', lambda module, device_ids: module
    )
    with torch.no_grad():
        before = model(images).logits
        wrapped = group.wrap(model)
        assert sum(isinstance(m, torch.nn.SyncBatchNorm) for m in wrapped.modules()) == 49
        assert torch.equal(wrapped(images).logits, before)


def test_end_to_end_runs_finish_and_agree(pair):
    curves, logits, (first, second), _ = pair[1]['softmax']
    assert len(curves) == 2 and np.isfinite(curves.loss).all() and np.isfinite(logits).all()
    assert all(
        torch.equal(first['module'][name], second['module'][name]) for name in first['module']
    )


def test_processes_train_on_the_same_images_in_every_step(pair):
    """Their shares of an odd number use up different amounts of random numbers where augmented
    images are scored.
    """
    for name, (*_, (first, second), _) in pair[1].items():
        assert first['seen'] == second['seen'], name
    assert len(pair[1]['odd'][2][0]['seen']) > 18


def test_two_ways_buckets_are_the_processes_batches(pair):
    folder, found = pair
    curves, logits, _, _ = found['buckets']
    alone = training.train(config(folder, **BUCKETS))
    np.testing.assert_allclose(curves.loss, alone.curves.loss, rtol=1e-5)
    np.testing.assert_allclose(logits, alone.logits['test'], atol=1e-4)
    whole = training.train(config(folder, 'two_way', batch_size=8))
    assert whole.curves.loss[0] != pytest.approx(
        alone.curves.loss[0], rel=1e-4
    )  # the bucket matters


@pytest.mark.parametrize('size', [2, 3, 8])
def test_every_row_is_taken_once_unless_there_are_too_few(size):
    group = Group()
    group.size = size
    for n in (1, 2, 7, 8, 23):
        shares = []
        for group.rank in range(size):
            shares.append(group.share(np.arange(n)))
        assert [len(s) for s in shares] == group.sizes(n)
        if n >= size:
            assert np.array_equal(np.concatenate(shares), np.arange(n))
        else:
            assert all(np.array_equal(s, np.arange(n)) for s in shares)


def test_a_process_that_finds_no_others_says_so(monkeypatch):
    monkeypatch.setenv('WORLD_SIZE', '2')
    for name in ('RANK', 'MASTER_ADDR', 'MASTER_PORT'):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        SpmlError, match='process 0 of 2 cannot connect to the others.*spml train --nproc'
    ):
        Group()
