"""Methods in loops of other people: the four scripts of nbs/tutorials/other_loops, and two
processes that share a method's state.
"""

import contextlib
import copy
import importlib
import os
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from test_gauge import code_lines
from torch import multiprocessing as mp

from spml_nb.methods import create
from spml_nb.metrics import mean_average_precision

FOLDER = Path(__file__).resolve().parents[1] / 'nbs' / 'tutorials' / 'other_loops'
SCRIPTS = {  # the script: what it needs
    'plain': 'torch',
    'with_accelerate': 'accelerate',
    'with_lightning': 'lightning',
    'with_transformers': 'transformers',
}


@pytest.fixture
def beside(monkeypatch, tmp_path):
    "Scripts import what lies beside them, and write into the current folder."
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.chdir(tmp_path)
    yield
    for name in ('toy', *SCRIPTS):
        sys.modules.pop(name, None)


@pytest.mark.parametrize('script', SCRIPTS)
def test_a_stateful_method_and_two_views_train_in_each_loop(beside, script):
    pytest.importorskip(SCRIPTS[script])
    module = importlib.import_module(script)
    toy = sys.modules['toy']
    hidden = (toy.TRUE[toy.TRAIN] > 0) & ~toy.OBSERVED
    absent = toy.TRUE[toy.TRAIN] < 0
    network, method = module.train('role', epochs=6)
    scores = method.scores(network, toy.IMAGES[toy.TEST].to(method.z.device))
    guessed = 100 * (toy.TRUE[toy.TEST] > 0).float().mean()
    assert mean_average_precision(scores, toy.TRUE[toy.TEST]) > guessed + 30
    estimate = method.estimate.detach().cpu()
    assert estimate[hidden].mean() > estimate[absent].mean() + 0.5
    network, method = module.train('lac', epochs=1)
    assert method._calls.stages == method.stages == 2  # and no hook was left out
    assert (method.queue.labels > 0).any()  # of embeddings of both views


@pytest.mark.parametrize('script', SCRIPTS)
def test_a_script_stays_below_forty_lines(script):
    assert len(code_lines((FOLDER / f'{script}.py').read_text(encoding='utf-8'))) < 40


# ---- two processes


STATEFUL = ('role', 'em_apl', 'opml_sp', 'lac')


def fit(name, rank=0, size=1):
    """What network and method come to. Each process starts from estimates and weights of its own,
    and has shares of unequal size.
    """
    sys.path.insert(0, str(FOLDER))
    import toy

    torch.manual_seed(rank)
    images = toy.IMAGES[:100]
    views = {'weak': images, 'strong': 0.8 * images}
    method = create(name, toy.OBSERVED[:100].to(torch.int8), epochs=2, features=4)
    network = toy.Network()
    if size > 1:
        network = torch.nn.parallel.DistributedDataParallel(network)
    for stage in range(1, method.stages + 1):
        method.start_stage(stage)
        groups = [{'params': network.parameters()}, *method.parameter_groups(0.05)]
        optimizer = torch.optim.SGD(groups, lr=0.05)  # Adam would hide a wrong factor
        for epoch in (1, 2):
            method.start_epoch(epoch)
            for rows in torch.arange(100).split(20):
                index = [rows[:13], rows[13:]][rank] if size > 1 else rows
                batch = {role: view[index] for role, view in views.items()}
                loss = method.step(network, batch, index)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            method.end_epoch(epoch, lambda view='plain': method.scores(network, images))
    module = network.module if size > 1 else network
    return copy.deepcopy({'network': module.state_dict(), 'method': method.state_dict()})


def worker(rank, port, out):
    torch.set_num_threads(1)
    address = {'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)}
    os.environ |= address | {'RANK': str(rank), 'WORLD_SIZE': '2'}
    dist.init_process_group('gloo')
    torch.save({name: fit(name, rank, 2) for name in STATEFUL}, Path(out) / f'{rank}.pt')
    dist.destroy_process_group()


@pytest.fixture(scope='module')
def of_two(tmp_path_factory):
    "{method: state} of each of two processes."
    out = tmp_path_factory.mktemp('two')
    for port in np.random.default_rng().integers(20_000, 32_000, 100).tolist():
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(('127.0.0.1', port))
            break
    mp.start_processes(worker, args=(port, str(out)), nprocs=2, start_method='spawn')
    return [torch.load(out / f'{rank}.pt') for rank in range(2)]


@pytest.mark.parametrize('name', STATEFUL)
def test_the_state_of_a_method_is_the_same_in_each_process(of_two, name):
    first, second = (states[name] for states in of_two)
    assert first['method'].keys() - {'z', 'acts_since'}
    for part in ('method', 'network'):
        for key, value in first[part].items():
            assert torch.equal(value, second[part][key]), key


@pytest.mark.parametrize('name', STATEFUL)
def test_two_processes_come_to_what_one_does(monkeypatch, of_two, name):
    monkeypatch.setattr(sys, 'path', [*sys.path])
    alone = fit(name)
    sys.modules.pop('toy')
    for part, values in alone.items():
        for key, value in values.items():
            torch.testing.assert_close(of_two[0][name][part][key], value, rtol=1e-4, atol=1e-5)
