"""Sweeps on Ray: two nodes of this machine, one of which dies in the middle; shares of GPUs; what is said without Ray."""
import json
import sys
import threading
import time
from collections import Counter

import pandas as pd
import pytest

from spml_nb.sweeps import cluster
from spml_nb import runs, sweeps
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.runs.config import Config


@pytest.fixture(scope='module')
def two_nodes():
    "A Ray cluster whose head takes no runs and whose two nodes take one each; the last test kills one. Returns: (cluster, the nodes)."
    ray = pytest.importorskip('ray')
    from ray.cluster_utils import Cluster
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO', '0')
        group = Cluster(initialize_head=True, head_node_args={'num_cpus': 0, 'include_dashboard': False})
        nodes = [group.add_node(num_cpus=1) for _ in range(2)]
        group.wait_for_nodes()
        yield group, nodes
        ray.shutdown()
        group.shutdown()


def configs(folder, n=12, **given):
    return [Config(**{'loss': 'an', 'dataset': str(folder), 'backbone': 'mini', 'image_size': 40, 'regime': 'linear', 'epochs': 25, 'seed': seed, **given}) for seed in range(n)]


def test_what_a_run_did_wrong_comes_back(two_nodes, photo_folder):
    group, _ = two_nodes
    told = []
    table = sweeps.run([*configs(photo_folder, 1), *configs(photo_folder.parent / 'none', 1)], engine='ray', address=group.address, jobs=2, tell=told.append)
    assert table.state.tolist() == ['done', 'failed'] and 'none' in table.message[1] and 'failed: ' in told[-1]


def test_a_sweep_survives_the_death_of_a_node(two_nodes, photo_folder):
    group, nodes = two_nodes
    told, died = [], threading.Event()
    def tell(line):
        told.append(line)
        if len(told) == 3 and not died.is_set():
            died.set()
            threading.Thread(target=lambda: time.sleep(0.4) or group.remove_node(nodes[1], allow_graceful=False)).start()
    table = sweeps.run(configs(photo_folder), engine='ray', address=group.address, jobs=2, tell=tell)
    assert died.is_set() and len(table) == 12 and set(table.state) == {'done'}, told
    assert len(runs.load()) == 12
    texts = [(settings.path('runs') / name / 'log.txt').read_text() for name in table.run]
    assert sum('already done' in text for text in texts) <= 1   # that of the node, if it died when the run had just ended; and none is trained twice:
    epochs = [Counter(line.split('/')[0].split()[-1] for line in text.splitlines() if line.startswith('epoch')) for text in texts]
    assert all(len(found) == 25 and set(found.values()) <= {1, 2} for found in epochs) and sum(max(found.values()) > 1 for found in epochs) <= 1
    again = sweeps.run(configs(photo_folder), engine='ray', address=group.address, jobs=2, tell=told.append)
    assert set(again.state) == {'done'} and len(told) == 12


@pytest.mark.parametrize(('gpus', 'jobs', 'each'), [(4, 16, 0.25), (8, 4, 1.0), (0, 4, 0.0), (1, 3, 0.33), (4, 6, 0.5), (2, 3, 0.5)])
def test_runs_share_the_gpus(gpus, jobs, each): assert cluster.share(gpus, jobs) == each


def test_workers_know_where_things_are(monkeypatch):
    monkeypatch.setenv('SPML_NB_DATA', 'data')
    found = cluster.places()
    assert json.dumps(found) and found['SPML_NB_DATA'].startswith('/') and found['SPML_NB_RUNS'] == str(settings.path('runs').resolve())


def test_without_ray_it_says_how_to_get_it(photo_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, 'ray', None)
    with pytest.raises(SpmlError, match=r"pip install 'spml_nb\[cluster\]'"): sweeps.run(configs(photo_folder, 1), engine='ray')


def test_an_address_is_for_ray_alone(photo_folder):
    with pytest.raises(SpmlError, match="address .auto. is for engine='ray'"): sweeps.run(configs(photo_folder, 1), address='auto')
    with pytest.raises(SpmlError, match='unknown engine'): sweeps.run(configs(photo_folder, 1), engine='slurm')


def test_a_cluster_that_does_not_answer_is_named(monkeypatch):
    ray = pytest.importorskip('ray')
    def nobody(**given): raise ConnectionError('nobody there')
    monkeypatch.setattr(ray, 'init', nobody)
    monkeypatch.setattr(ray, 'is_initialized', lambda: False)
    with pytest.raises(SpmlError, match='no Ray cluster answers at .10.0.0.1:6379.: nobody there'): cluster.on_ray(pd.DataFrame({'run': [], 'config': [], 'expected': []}), 1, print, '10.0.0.1:6379')
