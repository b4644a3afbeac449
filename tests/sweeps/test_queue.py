"Many runs: nothing is run twice, a failure stops nothing else, a kill loses nothing, every method has the same search."
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pandas as pd
import pytest

from spml_nb import methods, runs, sweeps
from spml_nb.base.errors import SpmlError
from spml_nb.runs.config import Config, resolve
from spml_nb.runs.folder import Run
from spml_nb.sweeps import queue
from spml_nb.sweeps.search import Row

QUICK = Config(loss='an', dataset='mini_voc', regime='linear', epochs=1)


@pytest.fixture
def place(own_folders): return own_folders


def test_equal_configurations_are_one_run(place):
    table = sweeps.plan([QUICK, replace(QUICK, lr=1e-3), replace(QUICK, loss='em')])
    assert table.state.tolist() == ['missing', 'missing']


def test_what_is_done_is_not_run_again_and_a_failure_stops_nothing(place):
    lines = []
    broken = replace(QUICK, dataset='mini_vok')
    table = sweeps.run([broken, QUICK, replace(QUICK, seed=1)], jobs=2, tell=lines.append)
    assert table.state.tolist() == ['failed', 'done', 'done']
    assert "unknown data set 'mini_vok'" in table.message[0] and lines[-1].startswith('failed: ') and 'mini_voc' in lines[-1]
    finished = {run: (Run(resolve(c)).folder / 'DONE').stat().st_mtime_ns for run, c in zip(table.run[1:], table.config[1:], strict=True)}
    again = sweeps.run([QUICK, replace(QUICK, seed=1)], tell=lambda line: pytest.fail(f'something ran: {line}'))
    assert again.state.tolist() == ['done', 'done']
    assert finished == {run: (Run(resolve(c)).folder / 'DONE').stat().st_mtime_ns for run, c in zip(again.run, again.config, strict=True)}
    folder = Run(resolve(QUICK)).folder
    assert 'epoch  1/1' in (folder / 'log.txt').read_text() and not list(folder.parent.glob(f'{folder.name}.log'))


def test_a_killed_worker_is_replaced_and_its_run_named(place, monkeypatch):
    worker = queue._Worker(0, 1)
    worker.start(QUICK)
    os.kill(worker.process.pid, signal.SIGKILL)
    assert 'exit status -9' in worker.train(QUICK)
    assert worker.train(QUICK) == ''   # by a fresh process
    worker.stop()


def test_a_worker_ends_with_its_launcher(place):
    worker = queue._Worker(0, 1)
    worker.start(QUICK)
    worker.process.stdin.close()
    assert worker.process.wait(timeout=60) == 0


LAUNCH = '''
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)   # a shell's background jobs ignore it otherwise
from spml_nb import sweeps
from spml_nb.runs.config import Config
configs = [Config(loss=loss, dataset='mini_voc', regime='linear', epochs=6, seed=s) for loss in ('an', 'em') for s in (0, 1)]
print('start', flush=True)
sweeps.run(configs, jobs=2, tell=lambda line: print(line, flush=True))
'''


@pytest.mark.parametrize('how', [signal.SIGINT, signal.SIGKILL])
def test_interrupted_in_the_middle_the_same_call_ends_it(place, how):
    process = subprocess.Popen([sys.executable, '-c', LAUNCH], stdout=subprocess.PIPE, text=True)
    while 'done' not in process.stdout.readline(): pass   # the first run is through
    process.send_signal(how)
    rest = process.communicate(timeout=60)[0]
    if how == signal.SIGINT: assert 'interrupted' in rest and process.returncode == 0
    time.sleep(1)
    before = len(runs.load())
    assert 1 <= before < 4
    assert subprocess.run([sys.executable, '-c', LAUNCH], stdout=subprocess.PIPE, text=True, timeout=300).stdout.count('\n') == 1 + 4 - before
    assert len(runs.load()) == 4


def test_no_worker_outlives_a_killed_launcher(place):
    process = subprocess.Popen([sys.executable, '-c', LAUNCH], stdout=subprocess.PIPE, text=True)
    while 'done' not in process.stdout.readline(): pass
    children = [int(p) for p in subprocess.run(['ps', '-o', 'pid=', '--ppid', str(process.pid)], capture_output=True, text=True).stdout.split()]
    assert len(children) >= 2
    process.kill()
    process.wait()
    for _ in range(100):
        alive = [p for p in children if os.path.exists(f'/proc/{p}') and 'Z' not in open(f'/proc/{p}/stat').read().split(')')[1][:3]]
        if not alive: break
        time.sleep(0.1)
    assert not alive


@pytest.mark.parametrize(('device', 'seen'), [('cuda', '1'), ('cuda:1', None), ('cpu', '1')])
def test_each_worker_sees_one_gpu_unless_the_run_names_it(monkeypatch, device, seen):
    started = []
    monkeypatch.setattr(queue, '_gpus', lambda: ['0', '1'])
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
    monkeypatch.setattr(queue.subprocess, 'Popen', lambda words, env, **more: started.append(env.get('CUDA_VISIBLE_DEVICES')))
    queue._Worker(3, 4).start(Config(device=device))
    assert started == [seen]


def test_a_worker_that_cannot_start_is_a_failure_and_no_wait_without_end(place, monkeypatch):
    def refuse(worker, config): raise OSError('no more processes')
    monkeypatch.setattr(queue._Worker, 'start', refuse)
    table = sweeps.run([Config(loss='an', dataset='mini_voc')], tell=lambda line: None)
    assert table.state.tolist() == ['failed'] and 'OSError: no more processes' in table.message[0]


def test_time_left_is_learnt_from_like_runs():
    known = pd.DataFrame({'loss': ['an', 'an', 'em'], 'dataset': ['mini_voc'] * 3, 'regime': ['linear'] * 3, 'head': ['linear'] * 3, 'seconds': [2.0, 4.0, 30.0]})
    table = sweeps.plan([QUICK, replace(QUICK, loss='em'), replace(QUICK, loss='wan'), replace(QUICK, dataset='mini_cub')], known)
    assert table.expected.tolist() == [3.0, 30.0, 4.0, 4.0]


def test_wrong_orders_are_refused():
    with pytest.raises(SpmlError, match='jobs must be 1 or more, not 0'): sweeps.run([QUICK], jobs=0)
    with pytest.raises(SpmlError, match="unknown engine 'slurm'; allowed: local"): sweeps.run([QUICK], engine='slurm')
    with pytest.raises(SpmlError, match="unknown suite 'maxi'; allowed: mini, photos"): sweeps.candidates(Row('an'), 'maxi', 'ccp')
    with pytest.raises(SpmlError, match="unknown data set of the suite 'photos' 'mini_voc'; allowed: ccp"): sweeps.candidates(Row('an'), 'photos', 'mini_voc')
    with pytest.raises(SpmlError, match="unknown loss 'ann'"): sweeps.candidates(Row('ann'), 'mini', 'mini_voc')


@pytest.mark.parametrize('loss', methods.names())
def test_every_search_is_of_the_same_size_and_starts_from_the_paper(loss):
    for suite, given in sweeps.SUITES.items():
        for dataset in given['datasets']:
            tried = sweeps.candidates(Row(loss), suite, dataset)
            assert len({runs.config_hash(resolve(c)) for c in tried}) == sweeps.BUDGET == 4
            assert tried[0].hparams == {} and tried[0].lr == given['lr'][0] and {c.seed for c in tried} == {0}


def finish(config, val, test):
    run = Run(resolve(config))
    run.start()
    run.finish({'scores': {'val_map': val, 'test_map': test}, 'seconds': 1.0, 'data': '', 'provenance': {'commit': None}})


def test_the_best_by_validation_is_chosen_and_seeds_follow(place):
    tried = sweeps.candidates(Row('an'), 'mini', 'mini_voc')
    for config, val, test in zip(tried, (50, 70, 60, 70), (90, 10, 95, 99), strict=True):
        assert sweeps.finals(Row('an'), 'mini', 'mini_voc', sweeps.finished()) == []
        finish(config, val, test)
    known = sweeps.finished()
    assert sweeps.choose(tried, known) == tried[1]   # the test scores play no part; the first of equals
    assert [(c.lr, c.seed, c.label_seed) for c in sweeps.finals(Row('an'), 'mini', 'mini_voc', known)] == [(tried[1].lr, s, s) for s in (0, 1, 2)]
    record = sweeps.searched(Row('an'), 'mini', 'mini_voc', known)
    assert record.chosen.tolist() == [False, True, False, False] and record.val_map.tolist() == [50, 70, 60, 70]
    assert json.loads(record.hparams[0]) == {}


def test_the_outcome_compares_with_an_on_the_same_head(place):
    rows, test = [Row('an'), Row('em'), Row('an', head='cosine'), Row('hml'), Row('wan')], {'an': 50, 'em': 53, 'hml': 70}
    for row in rows[:4]:
        base = test[row.loss] + 10 * (row.head == 'cosine')
        for config in sweeps.candidates(row, 'mini', 'mini_voc'): finish(config, 60, base)
        for config in sweeps.finals(row, 'mini', 'mini_voc', sweeps.finished())[1:]: finish(config, 60, base + config.seed)
    runs.export_csv()   # the table of record is enough
    for folder in runs.settings.path('runs').iterdir():
        if folder.is_dir(): (folder / 'DONE').unlink()
    table = sweeps.outcome(rows, 'mini', 'mini_voc', sweeps.finished()).set_index(['loss', 'head'])
    assert table.over_an['em', 'linear'] == 3 and table.over_an['hml', 'cosine'] == 10 and table.over_an['an', 'cosine'] == 0
    assert table.test_maps['em', 'linear'] == [53, 54, 55] and table.sd['em', 'linear'] == 1 and table.n['wan', 'linear'] == 0
