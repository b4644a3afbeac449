"""What the fault tests share: tasks in processes of their own, which can be killed; a small disk;
and what a run is compared by.

The processes are forked from one that has imported the whole library, so that each starts at once.
"""

import contextlib
import hashlib
import importlib
import itertools
import json
import multiprocessing
import os
import pkgutil
import signal
import sys
import time
import types
from functools import cache
from multiprocessing import forkserver
from pathlib import Path

import pandas as pd
import pytest
import torch

import spml_nb
from spml_nb import cli, runs, sweeps, training
from spml_nb import data as datasets
from spml_nb.base import files, settings
from spml_nb.base.errors import SpmlError
from spml_nb.data import images
from spml_nb.replication import pages
from spml_nb.replication import published as published_tables
from spml_nb.runs.config import Config
from spml_nb.sweeps import queue
from spml_nb.training import batches as sources

for module in pkgutil.walk_packages(spml_nb.__path__, 'spml_nb.'):
    importlib.import_module(module.name)  # packages load their modules late

needs_fork = pytest.mark.skipif(
    'forkserver' not in multiprocessing.get_all_start_methods(),
    reason='needs a system that forks processes',
)


# ---- tasks


def train(config):
    training.train(Config(**config))


def command(words, pause=0.0):
    "`spml` itself."
    slowly(training.Trainer, 'write', pause)
    sys.exit(cli.main(words))


def build_images(folder, size=24, whole=False, pause=0.0):
    "The image cache, each photo decoded slowly."
    slowly(images, '_decode', pause)
    data = datasets.load(Path(folder))
    if whole:
        images.open_photos(data, size)
    else:
        images.open_images(data, size)


def keep_features(config, pause=0.0):
    """The features that a run on frozen ones needs, a few images at a time and slowly; said: a line
    each time that they are computed.
    """
    extract = sources.extract_features

    def few(*words):
        print('computing', flush=True)
        return extract(*words, batch_size=8)

    slowly(sources.ImageSource, 'batch', pause)
    sources.extract_features = few
    config = runs.resolve(Config(**config))
    training.Trainer(config, runs.Run(config), training.make_task(config)).frozen_features()


def sweep(configs, pause=0.0):
    "A sweep and its table of record; the worker is forked, and its process id is said."
    queue._Worker.start = fork_worker
    slowly(training.Trainer, 'write', pause)
    table = sweeps.run([Config(**c) for c in configs], tell=lambda line: print(line, flush=True))
    runs.export_csv()
    if (table.state != 'done').any():
        sys.exit(1)


def fork_worker(worker, config):
    orders, answers = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        os.close(orders[1])  # or it would keep its own input open
        sys.stdin, sys.stdout = os.fdopen(orders[0]), os.fdopen(answers[1], 'w')
        queue.serve_worker()
    for end in (orders[0], answers[1]):
        os.close(end)
    print('worker', pid, flush=True)
    worker.process = types.SimpleNamespace(
        stdin=os.fdopen(orders[1], 'w'),
        stdout=os.fdopen(answers[0]),
        pid=pid,
        wait=lambda: -os.waitpid(pid, 0)[1],
        terminate=lambda: os.kill(pid, signal.SIGTERM),
    )


def build_pages(pause=0.0):
    "The pages of one paper, each file written slowly and by halves."
    published_tables.list_papers = lambda: ['hml']
    write = files.write_atomically

    def by_halves(file, content):
        if callable(content):
            return write(file, content)  # a figure

        def save(path):
            path.write_text(content[: len(content) // 2])
            time.sleep(pause)
            path.write_text(content, encoding='utf-8')

        write(file, save)

    files.write_atomically = by_halves
    pages.write_pages()


def slowly(place, name, pause):
    do = getattr(place, name)

    def slow(*words):
        time.sleep(pause)
        return do(*words)

    setattr(place, name, slow)


TASKS = {
    task.__name__: task
    for task in (train, command, build_images, keep_features, sweep, build_pages)
}


# ---- processes


@cache
def context():
    "Forks processes from one that has imported this file."
    found = multiprocessing.get_context('forkserver')
    found.set_forkserver_preload(['faulty'])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            'PYTHONPATH', os.pathsep.join(filter(None, sys.path))
        )  # or it would not find it
        forkserver.ensure_running()
    first = found.Process(target=os.getpid)
    first.start()
    first.join()  # the imports are done, so that what follows is timed without them
    return found


def start(task, *, said=os.devnull, dies_at=None, **words):
    """A process that does a task. said: the file for its output; dies_at: it kills itself before
    its n-th file gets its name. Returns: the process.
    """
    environment = {name: value for name, value in os.environ.items() if name.startswith('SPML_NB_')}
    process = context().Process(
        target=_do, args=(task, environment, str(said), dies_at, words), daemon=True
    )
    process.start()
    return process


def _do(task, environment, said, dies_at, words):
    os.environ.update(environment)
    torch.set_num_threads(1)
    with (
        open(said, 'a', buffering=1) as out,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        if dies_at is not None:
            _die_at(dies_at)
        try:
            TASKS[task](**words)
        except SpmlError as error:
            print(f'error: {error}')
            sys.exit(2)


def _die_at(n):
    replace, count = os.replace, itertools.count(1)

    def counted(*words):
        if next(count) == n:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*words)

    os.replace = counted


def end(process, seconds=300):
    "Wait for a process. Returns: its exit status."
    process.join(seconds)
    assert process.exitcode is not None, 'a process did not come to an end'
    return process.exitcode


def wait_for(condition, seconds=120):
    "Wait until something is so."
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, 'waited in vain'
        time.sleep(0.02)


def kill_after(process, seconds):
    "SIGKILL after so many seconds. Returns: whether it was still at work."
    process.join(seconds)
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


def moments(random, duration, n):
    "n random moments, one in each n-th of a duration."
    return [duration * (k + random.random()) / n for k in range(n)]


def timed(task, **words):
    "Do a task undisturbed. Returns: how long it took."
    context()
    began = time.monotonic()
    assert end(start(task, **words)) == 0
    return time.monotonic() - began


# ---- a disk without room


@contextlib.contextmanager
def room(size):
    "No file may grow beyond `size` bytes, as on a full disk."
    resource = pytest.importorskip('resource')
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# ---- what is compared


def leftovers(folder):
    return sorted(str(file.relative_to(folder)) for file in Path(folder).rglob('*.tmp'))


def of_run(folder):
    """All that a finished run holds and that must not depend on what happened on the way: numbers
    to the last bit, and which files there are.
    """
    with open(folder / 'logits.npz', 'rb') as file:
        logits = hashlib.sha256(file.read()).hexdigest()
    best = torch.load(folder / 'best.pt', weights_only=True)
    weights = {
        name: value.numpy().tobytes()
        for part in ('network', 'method')
        for name, value in best[part].items()
    }
    result = json.loads((folder / 'result.json').read_text(encoding='utf-8'))
    curves = pd.read_csv(folder / 'metrics.csv').drop(columns='seconds').to_csv()
    return {
        'logits': logits,
        'weights': weights,
        'best': best['best'],
        'scores': result['scores'],
        'data': result['data'],
        'curves': curves,
        'config': (folder / 'config.json').read_text(encoding='utf-8'),
        'files': sorted(file.name for file in folder.iterdir() if file.name != 'log.txt'),
    }


def of_runs():
    """Every run in the setting `runs`, finished or not. Returns: {name: as from `of_run`, None if
    it is not done}.
    """
    root = settings.get_folder('runs')
    return {
        folder.name: of_run(folder) if (folder / 'DONE').is_file() else None
        for folder in sorted(root.glob('*'))
        if folder.is_dir()
    }


def read_without_clean():
    "The table of record without what depends on the clock."
    table = pd.read_csv(
        settings.get_folder('outputs') / 'runs.csv', dtype=str, keep_default_na=False
    )
    return table.drop(columns=['seconds', 'commit']).to_csv()


def bytes_of(folder):
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(Path(folder).rglob('*'))
        if file.is_file()
    }
