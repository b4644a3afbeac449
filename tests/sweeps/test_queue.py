"""Many runs: nothing is run twice, a failure stops nothing else, a kill or a node's death loses
nothing.
"""

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from quick import config as quick
from redrawn import as_bitmaps, redraw

from spml_nb import runs, sweeps, training
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.runs.config import Config, resolve
from spml_nb.runs.folder import Run
from spml_nb.sweeps import estimate, queue
from spml_nb.tools import cleanup

QUICK = Config(loss='an', dataset='mini_voc', regime='linear', epochs=1)


@pytest.fixture
def place(own_folders):
    return own_folders


def test_equal_configurations_are_one_run(place):
    table = sweeps.plan_runs([QUICK, replace(QUICK, lr=1e-3), replace(QUICK, loss='em')])
    assert table.state.tolist() == ['missing', 'missing']


def test_what_is_done_is_not_run_again_and_a_failure_stops_nothing(place):
    lines = []
    broken = replace(QUICK, dataset='mini_vok')
    table = sweeps.run([broken, QUICK, replace(QUICK, seed=1)], jobs=2, tell=lines.append)
    assert table.state.tolist() == ['failed', 'done', 'done']
    assert (
        "unknown data set 'mini_vok'" in table.message[0]
        and lines[-1].startswith('failed: ')
        and 'mini_voc' in lines[-1]
    )
    finished = {
        run: (Run(resolve(c)).folder / 'DONE').stat().st_mtime_ns
        for run, c in zip(table.run[1:], table.config[1:], strict=True)
    }
    again = sweeps.run(
        [QUICK, replace(QUICK, seed=1)], tell=lambda line: pytest.fail(f'something ran: {line}')
    )
    assert again.state.tolist() == ['done', 'done']
    assert finished == {
        run: (Run(resolve(c)).folder / 'DONE').stat().st_mtime_ns
        for run, c in zip(again.run, again.config, strict=True)
    }
    folder = Run(resolve(QUICK)).folder
    assert (
        queue.attempt_run(QUICK) == ''
    )  # as after the death of a node that had just ended the run
    assert re.search(
        r'(?s)epoch  1/1.*already done', (folder / 'log.txt').read_text()
    ) and not list(folder.parent.glob(f'{folder.name}.log'))


@pytest.mark.silent('C1')
def test_a_run_on_photos_that_were_redrawn_in_place_is_stale(photo_folder):
    given = quick(as_bitmaps(photo_folder), regime='linear', epochs=1)
    training.train(given)
    assert queue.find_stale_runs([given]) == [] and sweeps.plan_runs([given]).state.tolist() == [
        'done'
    ]
    redraw(*(photo_folder / 'images').glob('00?.bmp'))
    assert queue.find_stale_runs([given]) == sweeps.plan_runs(
        [given]
    ).run.tolist() and sweeps.plan_runs([given]).state.tolist() == ['missing']


def test_a_run_on_other_labels_is_to_be_trained_beside_the_one_that_is_there(photo_folder):
    given = quick(photo_folder, regime='linear', epochs=1)
    first = training.train(given).folder
    assert queue.find_earlier_runs([given]) == []
    table = photo_folder / 'labels.csv'
    before = table.read_text()
    table.write_text(before.replace('red', 'blue', 1))
    plan = sweeps.plan_runs([given])
    assert plan.state.tolist() == ['missing'] and queue.find_earlier_runs([given]) == [first.name]
    assert queue.find_stale_runs([given]) == []
    done = sweeps.run([given], tell=str)
    assert done.state.tolist() == ['done'] and done.run.tolist() == plan.run.tolist()
    assert (first.parent / done.run[0] / 'log.txt').is_file()
    table.write_text(before)
    assert sweeps.plan_runs([given]).run.tolist() == [first.name]


def test_a_run_on_other_weights_at_the_same_place_is_not_done(place, tmp_path):
    from spml_nb.models.model import create

    config = replace(QUICK, weights=str(tmp_path / 'w.pt'))

    def write(seed):
        torch.manual_seed(seed)
        torch.save(create('mini', 3, weights='none').state_dict(), tmp_path / 'w.pt')

    write(0)
    assert sweeps.run([config], tell=str).state.tolist() == ['done']
    write(1)
    assert sweeps.plan_runs([config]).state.tolist() == ['missing']
    again = sweeps.run([config], tell=str)
    assert (
        again.state.tolist() == ['failed']
        and 'was begun on weights that have changed since' in again.message[0]
    )


def test_a_key_follows_the_content_of_side_information(tmp_path):
    file = tmp_path / 'side.csv'
    config = Config(loss='epr_count', dataset='mini_voc', side=str(file))
    keys = []
    for count in (2, 3, 2):
        file.write_text(f'image,count\n1,{count}\n')
        keys.append(sweeps.run_key(config))
    assert keys[0] == keys[2] != keys[1]


def test_where_nothing_is_missing_no_time_is_said():
    told = []
    queue.run_stages([], lambda known: [], dry_run=True, tell=told.append)
    assert told[0].endswith('0 runs with fresh seeds are chosen by now, of which 0 are missing.')


def test_what_several_runs_failed_of_is_said_once(place):
    lines, broken = [], replace(QUICK, dataset='mini_vok')
    table = sweeps.run([broken, replace(broken, seed=1)], tell=lines.append)
    failed = [line for line in lines if line.startswith('failed: ')]
    assert (
        len(failed) == 1
        and f'failed: {table.run[0]}, {table.run[1]}: unknown data set' in failed[0]
    )


def test_a_run_that_diverges_is_done_with_nothing(place):
    lines, diverging = [], replace(QUICK, lr=1e38)
    table = sweeps.run([diverging], tell=lines.append)
    assert (
        table.state.tolist() == ['done']
        and 'became' in table.message[0]
        and lines[-1].startswith('done: an-mini_voc-')
        and 'Lower the learning rate' in lines[-1]
    )
    known = sweeps.load_finished_runs().loc[sweeps.run_key(diverging)]
    assert (
        (known.val_map, known.diverged) == (0, 1) and 'test_map' not in known and known.seconds > 0
    )
    assert sweeps.run(
        [diverging], tell=lambda line: pytest.fail(f'something ran: {line}')
    ).state.tolist() == ['done']
    with pytest.raises(
        SpmlError,
        match="has no result: the loss of 'an' became .* Remove that folder to try again",
    ):
        training.train(diverging)
    assert cleanup.list_runs().state.tolist() == ['done']


def test_on_all_that_a_table_knows_losses_stay_apart(place, photo_folder):
    own = Config(
        loss='em', dataset=str(photo_folder), labels='full', regime='linear', backbone='mini'
    )
    assert (
        sweeps.canonical_config(own).loss == 'em'
        and sweeps.canonical_config(replace(own, dataset='mini_voc')).loss == 'bce'
    )
    for name, loss in (('coco18', 'bce'), ('vaw', 'em'), ('wider', 'em')):
        assert sweeps.canonical_config(replace(own, dataset=name)).loss == loss


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_run_named(place, monkeypatch):
    worker = queue._Worker(0, 1)
    worker.start(QUICK)
    os.kill(worker.process.pid, signal.SIGKILL)
    assert 'exit status -9' in worker.train([QUICK])[0]
    assert worker.train([QUICK]) == ['']  # by a fresh process
    worker.stop()


def test_a_killed_worker_answers_for_runs_whose_photos_are_gone(place, tmp_path):
    worker = queue._Worker(0, 1)
    worker.start(QUICK)
    os.kill(worker.process.pid, signal.SIGKILL)
    gone = QUICK.changed(dataset=str(tmp_path / 'gone'))
    answers = worker.train([gone, QUICK])
    assert all('exit status -9' in answer and 'train anew' in answer for answer in answers)


def test_a_worker_whose_gpu_has_failed_is_replaced_before_the_next_run():
    code = (
        "from spml_nb.sweeps import queue; queue.attempt_run = lambda config: ['', "
        "'AcceleratorError: CUDA error: out of luck'][config.seed]; queue.serve_worker()"
    )

    class Worker(queue._Worker):
        def start(self, config):
            self.process = subprocess.Popen(
                [sys.executable, '-c', code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )

    worker = Worker(0, 1)
    assert worker.train([Config(seed=0)]) == ['']
    first = worker.process
    assert worker.train([Config(seed=0)]) == [''] and worker.process is first
    failed = worker.train([Config(seed=1)])
    assert failed == ['AcceleratorError: CUDA error: out of luck'] and first.wait(20)
    assert worker.train([Config(seed=0)]) == [''] and worker.process is not first
    worker.stop()


def test_a_worker_ends_with_its_launcher(place):
    worker = queue._Worker(0, 1)
    worker.start(QUICK)
    worker.process.stdin.close()
    assert worker.process.wait(timeout=300) == 0


FOUR = [replace(QUICK, loss=loss, seed=seed, epochs=6) for loss in ('an', 'em') for seed in (0, 1)]


@pytest.mark.slow
def test_after_ctrl_c_the_same_call_goes_on(place):
    lines = []

    def interrupt(line):
        lines.append(line)
        if re.search('[123]/4 done', line) and not any('interrupted' in each for each in lines):
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in the background of a shell ignores it
    try:
        stopped = sweeps.run(FOUR, jobs=2, tell=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    before = len(runs.load())
    assert (
        'interrupted' in lines[-1]
        and (stopped.state == 'done').sum() == before in (1, 2, 3)
        and 'missing' in set(stopped.state)
    )
    lines.clear()
    assert (
        set(sweeps.run(FOUR, jobs=2, tell=lines.append).state) == {'done'}
        and len(lines) == 4 - before
    )


LAUNCH = """
from dataclasses import replace
from spml_nb import sweeps
from spml_nb.runs.config import Config
base = Config(dataset='mini_voc', regime='linear', epochs=30, patience=0)
configs = [replace(base, loss=loss, seed=seed) for loss in ('an', 'em') for seed in (0, 1)]
sweeps.run(configs, jobs=2, tell=lambda line: print(line, flush=True))
"""


def alive(process):
    file = Path(f'/proc/{process}/stat')
    return file.exists() and 'Z' not in file.read_text().split(')')[1][:3]


@pytest.mark.slow
def test_no_worker_outlives_a_killed_launcher_and_the_same_call_goes_on(place):
    process = subprocess.Popen([sys.executable, '-c', LAUNCH], stdout=subprocess.PIPE, text=True)
    assert 'done' in process.stdout.readline()  # the first run is through
    children = subprocess.run(
        ['ps', '-o', 'pid=', '--ppid', str(process.pid)], capture_output=True, text=True
    ).stdout.split()
    process.kill()
    process.wait()
    for _ in range(600):
        if not any(map(alive, children)):
            break
        time.sleep(0.1)
    assert len(children) >= 2 and not any(map(alive, children))
    before, lines = len(runs.load()), []
    assert 1 <= before < 4
    assert (
        set(
            sweeps.run(
                [replace(each, epochs=30, patience=0) for each in FOUR], jobs=2, tell=lines.append
            ).state
        )
        == {'done'}
        and len(lines) == 4 - before
    )


@pytest.mark.parametrize(('device', 'seen'), [('cuda', '1'), ('cuda:1', None), ('cpu', '1')])
def test_each_worker_sees_one_gpu_unless_the_run_names_it(monkeypatch, device, seen):
    started = []
    monkeypatch.setattr(queue, '_gpus', lambda: ['0', '1'])
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
    monkeypatch.setattr(
        queue.subprocess,
        'Popen',
        lambda words, env, **more: started.append(env.get('CUDA_VISIBLE_DEVICES')),
    )
    queue._Worker(3, 4).start(Config(device=device))
    assert started == [seen]


@pytest.mark.parametrize(('given', 'threads'), [(None, '2'), ('1', '1')])
def test_a_worker_has_its_share_of_the_cores_or_as_many_threads_as_asked_for(
    monkeypatch, given, threads
):
    started = []
    if given is None:
        monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    else:
        monkeypatch.setenv(
            'OMP_NUM_THREADS', given
        )  # as TROUBLESHOOTING advises where two commands share a machine
    monkeypatch.setattr(queue.settings, 'count_cores', lambda: 8)
    monkeypatch.setattr(
        queue.subprocess, 'Popen', lambda words, env, **more: started.append(env['OMP_NUM_THREADS'])
    )
    queue._Worker(0, 4).start(Config())
    assert started == [threads]


def test_a_worker_that_cannot_start_is_a_failure_and_no_wait_without_end(place, monkeypatch):
    def refuse(worker, config):
        raise OSError('no more processes')

    monkeypatch.setattr(queue._Worker, 'start', refuse)
    table = sweeps.run([Config(loss='an', dataset='mini_voc')], tell=lambda line: None)
    assert table.state.tolist() == ['failed'] and 'OSError: no more processes' in table.message[0]


def test_time_left_is_learnt_from_like_runs(photo_folder, tmp_path, monkeypatch):
    alike = {
        'regime': 'linear',
        'head': 'linear',
        'backbone': 'mini',
        'image_size': 40,
        'device': 'cpu',
        'dataset': 'mini_voc',
    }
    known = pd.DataFrame(
        [
            alike | given
            for given in (
                {'loss': 'an', 'seconds': 2.0},
                {'loss': 'an', 'seconds': 4.0},
                {'loss': 'em', 'seconds': 30.0},
                {'loss': 'em', 'seconds': 900.0, 'regime': 'finetune'},
                {'loss': 'em', 'seconds': 4000.0, 'dataset': 'coco18'},
                {'loss': 'em', 'seconds': 90.0, 'dataset': 'coco18', 'device': 'cuda:0'},
            )
        ]
    )

    def seconds(**given):
        return sweeps.plan_runs([replace(QUICK, **given)], known).expected[0]

    assert [seconds(), seconds(loss='em'), seconds(loss='wan')] == [3, 30, 4]
    assert (
        seconds(regime='finetune') == 900
        and math.isnan(seconds(backbone='efficientnet_lite0'))
        and math.isnan(seconds(dataset='mini_cub'))
    )
    own = {'dataset': str(photo_folder), 'backbone': 'mini', 'image_size': 40}
    assert seconds(**own) == pytest.approx(4000 * 48 / (0.8 * 6000)) and math.isnan(
        seconds(**own, regime='finetune')
    )  # 48 of its photos are for training
    quick = known.assign(seconds=known.seconds / 1000)
    assert sweeps.plan_runs([replace(QUICK, **own)], quick).expected[0] == queue.SHORTEST
    assert sweeps.plan_runs([QUICK], pd.DataFrame()).expected.isna().all()
    many = pd.concat(
        [known, pd.DataFrame([alike | {'loss': 'em', 'seconds': 90_000.0, 'dataset': 'corel5k'}])]
    )  # 4,500 photos, 260 classes

    def of_own():
        return sweeps.plan_runs([replace(QUICK, **own)], many).expected[0]

    assert of_own() == pytest.approx(
        4000 * 48 / (0.8 * 6000)
    )  # its 3 classes are nearer to the 18 of coco18
    table = pd.read_csv(photo_folder / 'labels.csv')
    table['labels'] = [f'{names}|{k} a|{k} b|{k} c|{k} d' for k, names in enumerate(table.labels)]
    table.to_csv(photo_folder / 'labels.csv', index=False)  # 243 classes
    estimate.count_photos.cache_clear()
    assert of_own() == pytest.approx(90_000 * 48 / 4500)
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'holiday').mkdir()  # called like the photos of an earlier run, and without any
    alone = pd.DataFrame([alike | {'loss': 'em', 'seconds': 5.0, 'dataset': 'holiday'}])
    assert math.isnan(sweeps.plan_runs([replace(QUICK, dataset='mini_cub')], alone).expected[0])


def test_what_is_done_once_does_not_count_for_every_run_that_is_left(monkeypatch):
    clock, told = [0.0], []

    def engine(todo, jobs, address, tell):
        for name, taken in zip(
            todo.run, (600, 10, 10), strict=True
        ):  # the first computes the features of all
            clock[0] += taken
            yield name, 'stopped'

    monkeypatch.setitem(queue.ENGINES, 'local', engine)
    monkeypatch.setattr(queue, 'time', SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(queue, '_expected', lambda configs, known: [10.0] * len(configs))
    sweeps.run([replace(QUICK, seed=seed) for seed in range(3)], tell=told.append)
    assert [re.search('about (.*) left', line)[1] for line in told[:3]] == ['20 s', '10 s', '0 s']


def test_search_and_final_runs_are_counted_together(place, monkeypatch):
    def engine(todo, jobs, address, tell):
        yield from ((name, 'stopped') for name in todo.run)

    monkeypatch.setitem(queue.ENGINES, 'local', engine)
    told = []
    search, chosen, other = (
        [replace(QUICK, seed=seed) for seed in seeds] for seeds in ((0, 1, 2), (3, 4), (5, 6))
    )

    def finals(known):
        return chosen if told else []

    queue.run_stages(search, finals, unchosen=lambda known: [] if told else other, tell=told.append)
    counts = [found[0] for line in told if (found := re.match(r'\d+/\d+ done, \d failed', line))]
    assert counts == [f'0/5 done, {failed} failed' for failed in range(1, 6)]


def test_wrong_orders_are_refused():
    with pytest.raises(SpmlError, match='jobs must be 1 or more, not 0'):
        sweeps.run([QUICK], jobs=0)
    with pytest.raises(SpmlError, match="unknown engine 'slurm'; allowed: local, ray, stacked"):
        sweeps.run([QUICK], engine='slurm')
    with pytest.raises(SpmlError, match="address .auto. is for engine='ray'"):
        sweeps.run([QUICK], address='auto')


# ---- Ray: two nodes of this machine, one of which dies in the middle


@pytest.fixture(scope='module')
def two_nodes():
    """A Ray cluster whose head takes no runs and whose two nodes take one each; the last test kills
    one. Returns: (cluster, the nodes).
    """
    ray = pytest.importorskip('ray')
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO', '0')
        group = Cluster(
            initialize_head=True, head_node_args={'num_cpus': 0, 'include_dashboard': False}
        )
        nodes = [group.add_node(num_cpus=1) for _ in range(2)]
        group.wait_for_nodes()
        yield group, nodes
        ray.shutdown()
        group.shutdown()


def on_photos(folder, n=12):
    return [
        Config(
            loss='an',
            dataset=str(folder),
            backbone='mini',
            image_size=40,
            regime='linear',
            epochs=25,
            patience=0,
            seed=seed,
        )
        for seed in range(n)
    ]


@pytest.mark.slow
def test_what_a_run_did_wrong_comes_back(two_nodes, photo_folder):
    group, _ = two_nodes
    told = []
    table = sweeps.run(
        [*on_photos(photo_folder, 1), *on_photos(photo_folder.parent / 'none', 1)],
        engine='ray',
        address=group.address,
        jobs=2,
        tell=told.append,
    )
    assert (
        table.state.tolist() == ['done', 'failed']
        and 'none' in table.message[1]
        and 'failed: ' in told[-1]
    )


@pytest.mark.slow
def test_a_sweep_survives_the_death_of_a_node(two_nodes, photo_folder):
    group, nodes = two_nodes
    told, died = [], threading.Event()

    def tell(line):
        told.append(line)
        if len(told) == 3 and not died.is_set():
            died.set()
            threading.Thread(
                target=lambda: time.sleep(0.4) or group.remove_node(nodes[1], allow_graceful=False)
            ).start()

    table = sweeps.run(
        on_photos(photo_folder), engine='ray', address=group.address, jobs=2, tell=tell
    )
    assert died.is_set() and len(table) == 12 and set(table.state) == {'done'}, told
    assert len(runs.load()) == 12
    folders = [settings.get_folder('runs') / name for name in table.run]
    assert all(
        pd.read_csv(folder / 'metrics.csv').epoch.tolist() == list(range(1, 26))
        for folder in folders
    )
    epochs = [
        Counter(re.findall(r'epoch +(\d+)/25', (folder / 'log.txt').read_text()))
        for folder in folders
    ]
    assert sum(len(found) < 25 for found in epochs) <= 1 and all(
        len(found) >= 24 for found in epochs
    )  # the node may die between a checkpoint and its line
    assert max(max(found.values()) for found in epochs) == 1  # no epoch is trained twice
    again = sweeps.run(
        on_photos(photo_folder), engine='ray', address=group.address, jobs=2, tell=told.append
    )
    assert set(again.state) == {'done'} and len(told) == 12


@pytest.mark.parametrize(
    ('gpus', 'jobs', 'each'),
    [(4, 16, 0.25), (8, 4, 1.0), (0, 4, 0.0), (1, 3, 0.33), (4, 6, 0.5), (2, 3, 0.5)],
)
def test_runs_share_the_gpus(gpus, jobs, each):
    assert queue.gpu_share(gpus, jobs) == each


def test_workers_know_where_things_are(monkeypatch):
    monkeypatch.setenv('SPML_NB_DATA', 'data')
    found = queue.worker_settings()
    assert (
        json.dumps(found)
        and found['SPML_NB_DATA'].startswith('/')
        and found['SPML_NB_RUNS'] == str(settings.get_folder('runs').resolve())
    )


def test_without_ray_it_says_how_to_get_it(photo_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, 'ray', None)
    with pytest.raises(SpmlError, match=r"pip install 'spml_nb\[cluster\]'"):
        sweeps.run(on_photos(photo_folder, 1), engine='ray')


def test_a_cluster_that_does_not_answer_is_named(monkeypatch):
    ray = pytest.importorskip('ray')

    def nobody(**given):
        raise ConnectionError('nobody there')

    monkeypatch.setattr(ray, 'init', nobody)
    monkeypatch.setattr(ray, 'is_initialized', lambda: False)
    with pytest.raises(SpmlError, match='no Ray cluster answers at .10.0.0.1:6379.: nobody there'):
        sweeps.run([QUICK], engine='ray', address='10.0.0.1:6379')
