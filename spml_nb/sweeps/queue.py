"""Trains many configurations in parallel, here or on a Ray cluster, and resumes after any interruption."""

import contextlib
import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from ..base import settings
from ..base.errors import SpmlError, one_of
from ..data import loading
from ..data.dataset import listed
from ..data.official import registry
from ..runs import record
from ..runs.config import Config, as_dict, resolve, science_key, stamp
from ..runs.folder import Run, digest, provenance, read_json


def _no_link(file: str, flags: int) -> int:
    "Opens a log, but not the file behind a link."
    return os.open(file, flags | getattr(os, 'O_NOFOLLOW', 0), 0o666)


def attempt(config: Config) -> str:
    """Train one run; its output goes to a file beside its folder and in the end inside it
    (`log.txt`).

    Args:
        config: any configuration.

    Returns:
        '', or the message of what stopped it.
    """
    from spml_nb.training.trainer import Diverged, train

    try:
        run = Run(resolve(config))
        folder, began = run.folder, time.perf_counter()
        folder.parent.mkdir(parents=True, exist_ok=True)
        file = folder.parent / f'{folder.name}.log'
        with (
            open(file, 'a', opener=_no_link) as log,
            contextlib.redirect_stdout(log),
            contextlib.redirect_stderr(log),
        ):
            try:
                train(config)
            except Diverged as error:
                _close(run, error, time.perf_counter() - began)
                raise
            except Exception:
                traceback.print_exc()
                raise
        with contextlib.suppress(
            FileNotFoundError
        ):  # another sweep that waited for this run has moved it
            said = file.read_bytes()
            with open(
                folder / 'log.txt', 'ab', opener=_no_link
            ) as log:  # after what an earlier attempt left there
                log.write(said)
            file.unlink()
    except SpmlError as error:
        return str(error)
    except OSError as error:
        return f'{error}. Free space or point the setting `runs` elsewhere (settings.ini).'
    except Exception as error:
        return f'{type(error).__name__}: {error}'
    return ''


def _close(run: Run, error: SpmlError, seconds: float):
    """Finish a run that has diverged: no weights, and validation 0, so that a search can go on
    without it.
    """
    config = run.config
    data = loading.load(config.dataset, config.root, config.min_positives, config.exclude)
    result = {
        'scores': {'val_map': 0.0, 'diverged': 1},
        'diverged': error.message,
        'class_names': [],
        'seconds': seconds,
        'data': data.fingerprint,
        'photos': data.content,
        'provenance': provenance(),
    }
    with run.lock():
        if not run.done:
            run.finish(result)


def work():
    """What a worker process does: it reads a configuration per line from its input and prints an
    answer per line.
    """
    orders, answers = queue.Queue(), sys.stdout

    def listen():
        for line in sys.stdin:
            orders.put(line)
        os._exit(0)  # the launcher has closed the pipe or died

    threading.Thread(target=listen, daemon=True).start()
    while True:
        message = attempt(Config(**json.loads(orders.get())))
        print(json.dumps(message), file=answers, flush=True)


_AGAIN = 'Give the same command again to go on from its last checkpoint.'


class _Worker:
    """A process that trains one configuration after another. number: from 0, decides its GPU; jobs:
    how many there are.
    """

    def __init__(self, number: int, jobs: int):
        self.number, self.jobs, self.process = number, jobs, None

    def start(self, config: Config):
        environment = {
            'OMP_NUM_THREADS': str(max(1, settings.cores() // self.jobs)),
            **os.environ,
        }  # or as given
        gpus = _gpus()
        if gpus and ':' not in config.device:
            environment['CUDA_VISIBLE_DEVICES'] = gpus[self.number % len(gpus)]
        words = [sys.executable, '-c', 'from spml_nb.sweeps.queue import work; work()']
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def train(self, config: Config) -> str:
        "Gives '' or what went wrong; a worker that dies is replaced."
        try:
            if self.process is None:
                self.start(config)
            self.process.stdin.write(json.dumps(as_dict(config)) + '\n')
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
            if 'CUDA error' in answer:
                self.process = self.stop()  # every later run of that process would fail as well
            if answer:
                return json.loads(answer)
        except BrokenPipeError:
            pass
        except Exception as error:
            return f'{type(error).__name__}: {error}'  # no process could be started, say
        code, self.process = self.process.wait(), None
        return (
            f'the process ended with exit status {code} (-9: killed, often for want of memory). '
            f'{_AGAIN}'
        )

    def stop(self):
        if self.process is not None:
            self.process.terminate()


def _gpus() -> list[str]:
    "The GPUs that workers share, as CUDA_VISIBLE_DEVICES names them."
    import torch

    visible = os.environ.get('CUDA_VISIBLE_DEVICES')
    return visible.split(',') if visible else [str(k) for k in range(torch.cuda.device_count())]


def canonical(config: Config) -> Config:
    """The run that a configuration stands for: losses that are one loss share a run.

    Args:
        config: any configuration.

    Returns:
        A resolved configuration, of the same loss or of one that is equal to it on these labels.

    Raises:
        SpmlError: for a configuration that cannot be resolved.
    """
    from spml_nb.methods.core import same_loss

    own = resolve(config)
    # all that a table knows need not be all
    complete = own.dataset in loading.names() and own.dataset not in registry.PARTLY_KNOWN
    known = own.labels if complete else own.labels.replace('full', 'known')
    loss, hparams = same_loss(own.loss, own.hparams, known)
    return (
        own
        if (loss, hparams) == (own.loss, own.hparams)
        else resolve(replace(own, loss=loss, hparams=hparams))
    )


def key(config: Config) -> str:
    """`science_key` of the run that a configuration stands for; quick when asked again.

    Args:
        config: any configuration.

    Returns:
        Loss, data set and hexadecimal digits.
    """
    # a key is the same on every device
    return _key(json.dumps(vars(config) | {'device': 'cpu'}), stamp(config.dataset, config.root))


@cache
def _key(text: str, changed: tuple) -> str:
    return science_key(canonical(Config(**json.loads(text))))


def plan(configs: Iterable[Config], known: pd.DataFrame | None = None) -> pd.DataFrame:
    """What a sweep would do.

    Args:
        configs: any configurations.
        known: finished runs; unset: as from `finished`.

    Returns:
        DataFrame, one row per different run: config, run, state ('done', 'begun' or 'missing') and
        expected seconds (NaN if nothing is known).

    Raises:
        SpmlError: for a configuration that cannot be resolved.
    """
    root = settings.path('runs')
    each = {run.folder.name: run for run in (Run(canonical(c), root) for c in configs)}
    photos = cache(_photos_now)  # one look at the files for all runs

    def state(run):
        if _finished(run, photos):
            return 'done'
        return 'begun' if (run.folder / 'last.pt').is_file() else 'missing'

    rows = [{'config': run.config, 'run': name, 'state': state(run)} for name, run in each.items()]
    table, known = (
        pd.DataFrame(rows, columns=['config', 'run', 'state']),
        finished() if known is None else known,
    )
    return table.assign(expected=_expected(table.config, known))


def stale(configs: Iterable[Config]) -> list[str]:
    """Runs that are done, but with other photos or labels than the folder has now.

    Args:
        configs: any configurations.

    Returns:
        Their names in the setting `runs`.
    """
    runs = {run.folder.name: run for run in map(Run, map(canonical, configs))}
    photos = cache(_photos_now)
    return [name for name, run in runs.items() if run.done and not _finished(run, photos)]


def _finished(run: Run, photos: Callable) -> bool:
    """Whether a run is done, with the data that its folder of photos and the weights that their
    file hold now.
    """
    if not run.done:
        return False
    result = read_json(run.folder / 'result.json', ('data',))
    if science_key(run.config, result['data']) != science_key(run.config):
        return False
    now = {
        'weights': digest(run.config.weights),
        'photos': photos(run.config.dataset, run.config.root),
    }
    return all(
        None in (value, result.get(name)) or value == result[name]  # older versions wrote none
        for name, value in now.items()
    )


def _photos_now(dataset: str, root: str | None) -> str | None:
    "The content of a folder's photos, None for a named data set."
    if dataset in loading.names():
        return None
    with warnings.catch_warnings(action='ignore'):  # whoever trains on the folder is warned
        return loading.load(dataset, root).content


def finished() -> pd.DataFrame:
    """Every finished run at hand, in the setting `runs` and in the table of record.

    Returns:
        DataFrame as from `runs.load`, indexed by the runs' `science_key`; empty when there is none.

    Raises:
        SpmlError: for a run or a table that is damaged.
    """
    file = settings.path('outputs') / 'runs.csv'
    tables = [record.load(), *([_recorded(file, file.stat().st_mtime_ns)] if file.exists() else [])]
    both = pd.concat(tables, ignore_index=True)
    return both.drop_duplicates('key').set_index('key') if len(both) else both


@lru_cache(maxsize=1)
def _recorded(file: Path, changed: int) -> pd.DataFrame:
    return record.read_record(file)


_KIND = [
    'regime',
    'backbone',
    'image_size',
    'device',
]  # runs that differ there say nothing about each other's time
_ALIKE = (['dataset', 'head', 'loss'], ['dataset', 'head'], ['head', 'loss'], ['head'], [])


def _expected(configs: Iterable[Config], known: pd.DataFrame) -> list[float]:
    "For each configuration, median seconds of the finished runs that are most like it."
    if not len(known) or not len(configs):
        return [math.nan] * len(configs)
    sizes = {name: _size(name) for name in set(known.dataset)}
    known = known.assign(
        device=known.device.str.split(':').str[0],
        pace=known.seconds
        / known.dataset.map({name: images for name, (images, _) in sizes.items()}),
        classes=known.dataset.map({name: classes for name, (_, classes) in sizes.items()}),
    )
    medians = [
        (
            names,
            known.groupby(_KIND + names).seconds.median()
            if 'dataset' in names
            else known.groupby([*_KIND, *names, 'classes']).pace.median(),
        )
        for names in _ALIKE
    ]

    def of(config):
        its = vars(config) | {
            'dataset': Path(config.dataset).name,
            'device': config.device.split(':')[0],
        }
        images, classes = _size(config.dataset)
        for (
            names,
            like,
        ) in (
            medians
        ):  # of another set that with about as many classes, by which attention takes longer
            if (found := like.get(tuple(its[name] for name in _KIND + names))) is not None:
                return (
                    found
                    if 'dataset' in names
                    else images
                    * found.iloc[np.abs(np.log(found.index.to_numpy() / classes)).argmin()]
                )
        return math.nan

    return [of(config) for config in configs]


@cache
def _size(dataset: str) -> tuple[float, float]:
    """About how many images a run on a data set trains on, and its classes; NaN where that is not
    at hand.
    """
    counts = registry.find(dataset).counts if dataset in registry.BENCHMARKS else {}
    if counts:
        return counts.get('train', 0.8 * counts.get('images', math.nan)), counts.get(
            'classes', math.nan
        )
    if not loading.own_folder(dataset):
        return math.nan, math.nan
    # whoever trains on the folder is warned; what is there now need not be of photos any more
    with warnings.catch_warnings(action='ignore'), contextlib.suppress(SpmlError):
        data = loading.load(dataset)
        return len(data) - len(data.rows('test')), len(data.class_names)
    return math.nan, math.nan


def _local(
    todo: pd.DataFrame, jobs: int, address: None, tell: Callable
) -> Iterator[tuple[str, str]]:
    "Train in `jobs` processes of this machine. Gives (run, '' or what went wrong) as each ends."
    orders, answers = deque(zip(todo.run, todo.config, strict=True)), queue.Queue()
    workers = [_Worker(k, jobs) for k in range(min(jobs, len(todo)))]

    def serve(worker):
        with contextlib.suppress(IndexError):  # no order is left
            while True:
                name, config = orders.popleft()
                answers.put((name, worker.train(config)))

    try:
        for worker in workers:
            threading.Thread(target=serve, args=(worker,), daemon=True).start()
        for _ in range(len(todo)):
            yield answers.get()
    finally:
        orders.clear()
        for worker in workers:
            worker.stop()


RETRIES = 5  # of a run whose machine died


def worker_settings() -> dict[str, str]:
    """The environment of a worker on another machine: every setting given here, with folders as
    absolute paths.

    Returns:
        {variable: value}.
    """
    given = {
        name: value
        for name, value in os.environ.items()
        if name.startswith('SPML_NB_') or name == 'PYTHONPATH'
    }
    return given | {
        f'SPML_NB_{kind.upper()}': str(settings.path(kind).resolve()) for kind in settings.PATHS
    }


def gpu_share(gpus: float, jobs: int) -> float:
    """GPUs that a run takes.

    Args:
        gpus: number of GPUs in the cluster.
        jobs: runs at a time.

    Returns:
        0 to 1, in hundredths.
    """
    if gpus < 1:
        return 0.0
    return (
        1.0 if jobs <= gpus else int(100 / math.ceil(jobs / gpus)) / 100
    )  # as many on the fullest GPU as must be


def _on_ray(
    todo: pd.DataFrame, jobs: int, address: str | None, tell: Callable
) -> Iterator[tuple[str, str]]:
    "Train on a Ray cluster. Gives (run, '' or what went wrong) as each ends."
    ray = _connected(address)
    there = ray.cluster_resources().get('GPU', 0)
    gpus = (
        gpu_share(there, jobs)
        if any(config.device.startswith('cuda') for config in todo.config)
        else 0.0
    )
    if there and not gpus:
        tell(
            'The cluster has GPUs, but these runs are for the CPU, as this machine has no GPU or '
            'says so. Start the sweep on one that has.'
        )
    options = {
        'num_cpus': 1,
        'num_gpus': gpus,
        'max_retries': RETRIES,
        'runtime_env': {'env_vars': worker_settings()},
    }
    task = ray.remote(**options)(lambda given: attempt(Config(**given)))
    waiting, pending = list(zip(todo.run, todo.config, strict=True)), {}
    try:
        while waiting or pending:
            while waiting and len(pending) < jobs:
                name, config = waiting.pop(0)
                pending[task.remote(as_dict(config))] = name
            (answer,), _ = ray.wait(list(pending))
            try:
                message = ray.get(answer)
            except ray.exceptions.RayError as error:  # what befell the task
                message = f'{type(error).__name__}: {str(error).splitlines()[0]}. {_AGAIN}'
            yield pending.pop(answer), message
    finally:
        for answer in pending:
            ray.cancel(answer, force=True)


def _connected(address: str | None):
    "The module `ray`, connected."
    try:
        import ray
    except ImportError as error:
        raise SpmlError(
            "engine 'ray' needs Ray, which is not installed. "
            "Install it with: pip install 'spml_nb[cluster]'"
        ) from error
    if not ray.is_initialized():
        try:
            ray.init(
                address=address,
                log_to_driver=False,
                include_dashboard=False if address is None else None,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise SpmlError(
                f'no Ray cluster answers at {address!r}: {error}. Start one with `ray start '
                '--head`, or leave the address out for this machine alone.'
            ) from error
    return ray


ENGINES = {'local': _local, 'ray': _on_ray}


def check_launch(engine: str = 'local', address: str | None = None, jobs: int = 1):
    """Check how runs are to be launched, before any work.

    Args:
        engine, address, jobs: as in `run`.

    Raises:
        SpmlError: for another engine, an address without Ray, or jobs below 1.
    """
    one_of(engine, ENGINES, 'engine')
    if address and engine != 'ray':
        raise SpmlError(f"an address ({address}) is for engine='ray', not {engine!r}.")
    if jobs < 1:
        raise SpmlError(f'jobs must be 1 or more, not {jobs}.')


def run(
    configs: Iterable[Config],
    *,
    engine: str = 'local',
    address: str | None = None,
    jobs: int = 1,
    tell: Callable[[str], None] = print,
) -> pd.DataFrame:
    """Train all configurations that are not done yet.

    Args:
        configs: any configurations.
        engine: 'local' for processes of this machine, 'ray' for a cluster.
        address: of the Ray cluster; unset: Ray on this machine alone.
        jobs: runs at a time.
        tell: is given a line after each run.

    Returns:
        DataFrame, one row per different run: config, run, state ('done', 'failed', or 'missing'
        after an interruption) and message.

    Raises:
        SpmlError: as `check_launch`, and for a configuration that cannot be resolved.
    """
    check_launch(engine, address, jobs)
    table, messages = plan(configs), {}
    todo, began = table[table.state != 'done'], time.perf_counter()
    expected = todo.set_index('run').expected
    try:
        if len(todo):
            with contextlib.closing(ENGINES[engine](todo, jobs, address, tell)) as answers:
                for name, message in answers:
                    if (
                        not messages and expected[name] > 0
                    ):  # the first also decodes photos and computes features
                        began = max(began, time.perf_counter() - expected[name])
                    messages[name] = message
                    tell(
                        f'{progress(messages, expected, time.perf_counter() - began, jobs)}  {name}'
                    )
    except KeyboardInterrupt:
        tell('interrupted: the same command goes on from here.')
    message = [messages.get(name, '') for name in table.run]
    photos = cache(_photos_now)
    state = [
        'done' if _finished(Run(config), photos) else 'failed' if why else 'missing'
        for config, why in zip(table.config, message, strict=True)
    ]
    table = table.assign(state=state, message=message).drop(columns='expected')
    for (why, state), rows in table[table.message != ''].groupby(['message', 'state'], sort=False):
        tell(f'{state}: {listed(rows.run, 3)}: {why}')  # a common cause once
    return table


def staged(
    search: Iterable[Config],
    finals: Callable[[pd.DataFrame], Iterable[Config]],
    *,
    dry_run: bool = False,
    tell: Callable[[str], None] = print,
    **launch,
) -> pd.DataFrame:
    """Train a search, then what it has chosen; what is done here or in the table of record is left
    alone.

    Args:
        search: the runs of the search.
        finals: gives the runs that finished runs (as from `finished`) choose.
        dry_run: only say how much there is.
        tell: is given the lines.
        launch: engine, address and jobs, as in `run`.

    Returns:
        DataFrame as from `run`; as from `plan` for a dry run.

    Raises:
        SpmlError: as `run`.
    """
    check_launch(**launch)
    search, known = list(search), finished()
    if dry_run:
        return _dry(search, list(finals(known)), known, tell)
    done = run(_missing(search, known), tell=tell, **launch)
    if (done.state == 'missing').any():
        return done  # interrupted
    known = finished()
    return pd.concat(
        [done, run(_missing(finals(known), known), tell=tell, **launch)], ignore_index=True
    )


def _missing(configs: Iterable[Config], known: pd.DataFrame) -> list[Config]:
    "Those that are not among the finished runs, each run once."
    return list({key(c): c for c in configs if key(c) not in known.index}.values())


def _dry(
    search: list[Config], final: list[Config], known: pd.DataFrame, tell: Callable
) -> pd.DataFrame:
    todo, after = (plan(_missing(configs, known), known) for configs in (search, final))
    both = pd.concat([todo, after], ignore_index=True).drop_duplicates('run')
    left = both[both.state != 'done']
    time = f'about {duration(left.expected.sum())}' if left.expected.notna().any() else 'unknown'
    tell(
        f'{len({*map(key, search)})} runs of search, of which {len(todo)} are missing; '
        f'{len({*map(key, final)})} runs with fresh seeds are chosen by now, of which {len(after)} '
        'are missing.' + f' One after another: {time}.' * bool(len(left))
    )
    return both


def progress(messages: dict[str, str], expected: pd.Series, seconds: float, jobs: int) -> str:
    """A line that says how far a sweep is.

    Args:
        messages: {run that has ended: '' or what went wrong}.
        expected: seconds of each run of the sweep, by name; NaN where unknown.
        seconds: since the start.
        jobs: runs at a time.

    Returns:
        Such as '1/3 done, 0 failed, 2 running, about 80 s left'.
    """
    failed, rest = sum(map(bool, messages.values())), expected.drop(list(messages))
    done = expected[list(messages)].sum()
    pace = (
        seconds / done if done else 1 / jobs
    )  # wall-clock seconds per expected second, as it has gone so far
    left = (
        rest.fillna(expected.mean()).sum() * pace
        if expected.notna().any()
        else len(rest) * seconds / len(messages)
    )
    return (
        f'{len(messages) - failed}/{len(expected)} done, {failed} failed, {min(jobs, len(rest))} '
        f'running, about {duration(left)} left'
    )


def duration(seconds: float) -> str:
    """A time for people.

    Args:
        seconds: how many.

    Returns:
        Such as '8 s', '12 min' or '3 h 20 min'.
    """
    minutes = round(seconds / 60)
    if seconds < 90:
        return f'{seconds:.0f} s'
    return f'{minutes} min' if minutes < 90 else f'{minutes // 60} h {minutes % 60} min'
