"""Trains many configurations in parallel, here or on a Ray cluster; resumes when stopped."""

# The folder of each run shows whether the run is done, so a launcher has little to do: keep workers
# busy, skip what is done, note what failed, and say how long the rest will take.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from ..base import settings
from ..base.errors import SpmlError, one_of
from ..data import loading
from ..data.dataset import join_items
from ..data.official import registry
from ..data.side import pin_side_file
from ..runs import record
from ..runs.config import Config, config_to_dict, resolve, science_key, stamp_folder
from ..runs.folder import Run, hash_file, locate_run, provenance, read_json
from . import estimate


def _no_link(file: str, flags: int) -> int:
    "Opens a log, but not the file behind a link."
    return os.open(file, flags | getattr(os, 'O_NOFOLLOW', 0), 0o666)


def attempt_run(config: Config) -> str:
    """Train one run; its output goes to a file beside its folder and in the end inside it
    (`log.txt`).

    Returns:
        '', or the message of what stopped it.
    """
    try:
        run = locate_run(resolve(config))
        run.folder.parent.mkdir(parents=True, exist_ok=True)
        log = run.folder.parent / f'{run.folder.name}.log'
        with (
            open(log, 'a', opener=_no_link) as output,
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
        ):
            _train(config, run)
        # another sweep that waited for this run may have moved its log already
        with contextlib.suppress(FileNotFoundError):
            content = log.read_bytes()
            # behind what an earlier attempt left there
            with open(run.folder / 'log.txt', 'ab', opener=_no_link) as output:
                output.write(content)
            log.unlink()
    except SpmlError as error:
        return str(error)
    except OSError as error:
        return f'{error}. Free space or point the setting `runs` elsewhere (settings.ini).'
    except Exception as error:
        return f'{type(error).__name__}: {error}'
    return ''


def _train(config: Config, run: Run):
    from spml_nb.training.trainer import Diverged, train

    began = time.perf_counter()
    try:
        train(config)
    except Diverged as error:
        _finish_diverged(run, error, time.perf_counter() - began)
        raise
    except Exception:
        traceback.print_exc()
        raise


def _finish_diverged(run: Run, error: SpmlError, seconds: float):
    "No weights, and validation 0, so that a search can go on without the run."
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


def _attempt_fields(fields: dict) -> str:
    return attempt_run(Config(**fields))


def serve_worker():
    """What a worker process does: it reads a configuration per line from its input and prints an
    answer per line.

    One process trains many runs, since starting Python and torch takes longer than some of them.
    """
    orders = queue.Queue()
    answers = sys.stdout  # `attempt_run` redirects it while it trains

    def listen():
        for line in sys.stdin:
            orders.put(line)
        os._exit(0)  # the launcher has closed the pipe or died

    threading.Thread(target=listen, daemon=True).start()
    while True:
        message = _attempt_fields(json.loads(orders.get()))
        print(json.dumps(message), file=answers, flush=True)


_AGAIN = 'Give the same command again to go on from its last checkpoint.'


class _Worker:
    "A process that trains one configuration after another; its number, from 0, decides its GPU."

    def __init__(self, number: int, jobs: int):
        self.number = number
        self.jobs = jobs
        self.process = None

    def start(self, config: Config):
        threads = max(1, settings.count_cores() // self.jobs)
        environment = {'OMP_NUM_THREADS': str(threads), **os.environ}
        gpus = _gpus()
        if gpus and ':' not in config.device:
            environment['CUDA_VISIBLE_DEVICES'] = gpus[self.number % len(gpus)]
        self.process = subprocess.Popen(
            [sys.executable, '-c', 'from spml_nb.sweeps.queue import serve_worker; serve_worker()'],
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
            self.process.stdin.write(json.dumps(config_to_dict(config)) + '\n')
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ''
        except Exception as error:  # no process could be started, say
            return f'{type(error).__name__}: {error}'
        if 'CUDA error' in answer:  # every later run of that process would fail as well
            self.stop()
            self.process = None
        if answer:
            return json.loads(answer)
        code = self.process.wait()
        self.process = None
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


def canonical_config(config: Config) -> Config:
    """The run that a configuration stands for: losses that are one loss share a run.

    Returns:
        A resolved configuration, of the same loss or of one that is equal to it on these labels.

    Raises:
        SpmlError: for a configuration that cannot be resolved.
    """
    from spml_nb.methods.core import find_equal_loss

    resolved = resolve(config)
    labels = resolved.labels
    if resolved.dataset not in loading.names() or resolved.dataset in registry.PARTLY_KNOWN:
        labels = labels.replace('full', 'known')  # all that a table knows need not be all
    loss, hparams = find_equal_loss(resolved.loss, resolved.hparams, labels)
    if (loss, hparams) == (resolved.loss, resolved.hparams):
        return resolved
    return resolve(resolved.changed(loss=loss, hparams=hparams))


def key(config: Config) -> str:
    """`science_key` of the run that a configuration stands for; quick when asked again."""
    changes = {'device': 'cpu'}  # a key is the same on every device
    if config.side:
        changes['side'] = pin_side_file(config.side)  # with its content as it is now
    text = json.dumps(vars(config) | changes)
    place = text, stamp_folder(config.dataset, config.root)
    if place not in _KEYS:
        _KEYS[place] = science_key(canonical_config(config.changed(**changes)))
    return _KEYS[place]


_KEYS = {}


def plan_runs(configs: Iterable[Config], runs: pd.DataFrame | None = None) -> pd.DataFrame:
    """What a sweep would do.

    Args:
        configs: any configurations.
        runs: finished runs; unset: as from `finished`.

    Returns:
        DataFrame, one row per different run: config, run, state ('done', 'begun' or 'missing'),
        expected seconds (NaN if nothing is like it) and whether these are by timed steps (`timed`)
        instead of runs that are done.

    Raises:
        SpmlError: for a configuration that cannot be resolved.
    """
    runs = finished() if runs is None else runs
    planned = _runs(configs)
    table = pd.DataFrame(
        {
            'config': [run.config for run in planned],
            'run': [run.folder.name for run in planned],
            'state': _states(planned),
        }
    )
    expected = pd.Series(_expected(table.config, runs), table.index, dtype=float)
    timed = expected.isna() & (table.state != 'done')
    expected[timed] = estimate.estimate_seconds(table.config[timed])
    return table.assign(expected=expected, timed=timed & expected.notna())


def find_earlier_runs(configs: Iterable[Config]) -> list[str]:
    """Runs on labels, photos or parts that the folder had before, beside which those of now stand.

    Returns:
        Their names in the setting `runs`.
    """
    plain = [(Run(run.config, run.folder.parent).folder, run.folder) for run in _runs(configs)]
    return [before.name for before, now in plain if before != now and before.is_dir()]


def find_stale_runs(configs: Iterable[Config]) -> list[str]:
    """Runs that are done, but with other weights or photos than there are now under the same names
    and of the same sizes, which the name of a run cannot tell apart.

    Returns:
        Their names in the setting `runs`.
    """
    runs = _runs(configs)
    return [
        run.folder.name
        for run, state in zip(runs, _states(runs), strict=True)
        if run.done and state != 'done'
    ]


def _runs(configs: Iterable[Config]) -> list[Run]:
    "Each run once."
    root = settings.path('runs')
    device = str(settings.device())  # read once for all
    configs = (config.changed(device=config.device or device) for config in configs)
    runs = (locate_run(canonical_config(config), root) for config in configs)
    return list({run.folder.name: run for run in runs}.values())


def _states(runs: list[Run]) -> list[str]:
    """'done', 'begun' or 'missing'. Done are runs with the data that their folder of photos and the
    weights that their file hold now.
    """
    content = cache(_content_of_photos)  # one look at the files for all runs

    def state(run: Run) -> str:
        if run.done and _is_current(run, content):
            return 'done'
        return 'begun' if (run.folder / 'last.pt').is_file() else 'missing'

    return list(map(state, runs))


def _is_current(run: Run, content_of_photos: Callable) -> bool:
    config = run.config
    result = read_json(run.folder / 'result.json', ('data',))
    if science_key(config, result['data']) != science_key(config):
        return False
    now = {
        'weights': hash_file(config.weights),
        'photos': content_of_photos(config.dataset, config.root),
    }
    return all(
        None in (value, result.get(name)) or value == result[name]  # older versions wrote none
        for name, value in now.items()
    )


def _content_of_photos(dataset: str, root: str | None) -> str | None:
    "None for a named data set."
    if dataset in loading.names():
        return None
    with warnings.catch_warnings(action='ignore'):  # whoever trains on the folder is warned
        return loading.load(dataset, root).content


def finished(*others: pd.DataFrame) -> pd.DataFrame:
    """Every finished run at hand, in the setting `runs` and in the table of record.

    Args:
        others: runs from elsewhere, as from `runs.load`; of two with one key, these count.

    Returns:
        DataFrame as from `runs.load`, indexed by the runs' `science_key`; empty when there is none.

    Raises:
        SpmlError: for a run or a table that is damaged.
    """
    tables = [*others, record.load()]
    file = settings.path('outputs') / 'runs.csv'
    if file.exists():
        tables.append(_recorded(file, file.stat().st_mtime_ns))
    both = pd.concat(tables, ignore_index=True)
    return both.drop_duplicates('key').set_index('key') if len(both) else both


@lru_cache(maxsize=1)
def _recorded(file: Path, changed: int) -> pd.DataFrame:
    return record.read_record(file)


# Seconds. However few its photos, a run reads them, and scores and writes after each epoch. Of the
# recorded heads a quarter took 1.6 s at most, on the 1,342 training photos of ccp 1.5 s.
SHORTEST = 2.0

# Seconds until a worker has loaded torch and all else that a run needs; on two cores 4 to 9.
STARTUP = 5.0

# Runs that differ there say nothing about each other's time: fine-tuning takes some hundreds of
# times as long as a head on frozen features.
_PACE = ('regime', 'backbone', 'image_size', 'device')
_LIKENESS = (('dataset', 'head', 'loss'), ('dataset', 'head'), ('head', 'loss'), ('head',), ())


def _expected(configs: pd.Series, runs: pd.DataFrame) -> list[float]:
    """For each configuration, median seconds of the finished runs that are most like it; NaN where
    none is.

    On other data, time goes with the number of images; of these sets the one with about as many
    classes counts, since attention takes longer with more of them.
    """
    if not len(runs):
        return [math.nan] * len(configs)
    kinds = {device: device.partition(':')[0] for device in runs.device.unique()}
    runs = runs.assign(device=runs.device.map(kinds))

    @cache
    def medians(names: tuple[str, ...]) -> pd.Series:
        if 'dataset' in names:
            return runs.groupby([*names, *_PACE]).seconds.median()
        sizes = runs.dataset.map({name: _size(name) for name in runs.dataset.unique()})
        paces = runs.assign(pace=runs.seconds / sizes.str[0], classes=sizes.str[1])
        return paces.groupby([*names, *_PACE, 'classes']).pace.median()

    @cache
    def expect(dataset: str, **fields) -> float:
        fields |= {'dataset': Path(dataset).name}
        for names in _LIKENESS:
            like = tuple(fields[name] for name in (*names, *_PACE))
            if like not in medians(names).index:
                continue
            median = medians(names)[like]
            if 'dataset' in names:
                return median
            images, classes = _size(dataset)
            distance = np.abs(np.log(median.index.to_numpy() / classes))
            return max(images * median.iloc[distance.argmin()], SHORTEST)
        return math.nan

    fields = ('dataset', 'head', 'loss', 'regime', 'backbone', 'image_size')
    return [
        expect(
            **{name: getattr(config, name) for name in fields},
            device=config.device.partition(':')[0],
        )
        for config in configs
    ]


def _size(dataset: str) -> tuple[float, float]:
    "About how many images a run on a data set trains on, and its classes; NaN where unknown."
    counts = estimate.count_photos(dataset)
    return counts.train + counts.val, counts.classes


def _local(
    todo: pd.DataFrame, jobs: int, address: None, tell: Callable
) -> Iterator[tuple[str, str]]:
    "Train in `jobs` processes of this machine. Gives (run, '' or what went wrong) as each ends."
    orders = deque(zip(todo.run, todo.config, strict=True))
    answers = queue.Queue()
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
    """The environment of a worker on another machine, which starts in a folder of its own: every
    setting of this process, with folders as absolute paths.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.startswith('SPML_NB_') or name == 'PYTHONPATH'
    }
    for kind in settings.PATHS:
        environment[f'SPML_NB_{kind.upper()}'] = str(settings.path(kind))
    return environment


def gpu_share(gpus: float, jobs: int) -> float:
    """GPUs that a run takes, 0 to 1 in hundredths.

    Args:
        gpus: number of GPUs in the cluster.
        jobs: runs at a time.
    """
    if gpus < 1:
        return 0.0
    if jobs <= gpus:
        return 1.0
    on_the_fullest = math.ceil(jobs / gpus)
    return int(100 / on_the_fullest) / 100


def _on_ray(
    todo: pd.DataFrame, jobs: int, address: str | None, tell: Callable
) -> Iterator[tuple[str, str]]:
    """Train on a Ray cluster. Gives (run, '' or what went wrong) as each ends.

    At most `jobs` tasks are given out at a time, so that Ctrl-C leaves none waiting in the cluster.
    """
    ray = _connected(address)
    gpus = ray.cluster_resources().get('GPU', 0)
    needs_gpu = any(config.device.startswith('cuda') for config in todo.config)
    share = gpu_share(gpus, jobs) if needs_gpu else 0.0
    if gpus and not share:
        tell(
            'The cluster has GPUs, but these runs are for the CPU, as this machine has no GPU or '
            'says so. Start the sweep on one that has.'
        )
    task = ray.remote(
        num_cpus=1,
        num_gpus=share,
        max_retries=RETRIES,
        runtime_env={'env_vars': worker_settings()},
    )(_attempt_fields)
    waiting = deque(zip(todo.run, todo.config, strict=True))
    pending = {}
    try:
        while waiting or pending:
            while waiting and len(pending) < jobs:
                name, config = waiting.popleft()
                pending[task.remote(config_to_dict(config))] = name
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
    earlier: Iterable[str] = (),
    later: Sequence[float] = (),
) -> pd.DataFrame:
    """Train all configurations that are not done yet.

    Args:
        configs: any configurations.
        engine: 'local' for processes of this machine, 'ray' for a cluster.
        address: of the Ray cluster; unset: Ray on this machine alone.
        jobs: runs at a time.
        tell: is given a line after each run.
        earlier, later: other runs that the lines count, so that they tell of the whole work: for
            each that has ended '' or what went wrong, and the seconds expected of each to come.

    Returns:
        DataFrame, one row per different run: config, run, state ('done', 'failed', or 'missing'
        after an interruption) and message.

    Raises:
        SpmlError: as `check_launch`, and for a configuration that cannot be resolved.
    """
    check_launch(engine, address, jobs)
    table = plan_runs(configs)
    todo = table[table.state != 'done']
    expected = todo.set_index('run').expected
    everything = pd.concat([expected, pd.Series(later, dtype=float)])
    messages = {}
    began = time.perf_counter()
    try:
        if len(todo):
            with contextlib.closing(ENGINES[engine](todo, jobs, address, tell)) as answers:
                for name, message in answers:
                    if not messages and expected[name] > 0:
                        # the first also decodes photos and computes features, which counts once
                        began = max(began, time.perf_counter() - expected[name])
                    messages[name] = message
                    seconds = time.perf_counter() - began
                    tell(f'{describe_queue(messages, everything, seconds, jobs, earlier)}  {name}')
    except KeyboardInterrupt:
        tell('interrupted: the same command goes on from here.')
    table = table.drop(columns=['expected', 'timed']).assign(
        state=_states([locate_run(config) for config in table.config]),
        message=[messages.get(name, '') for name in table.run],
    )
    left = table.state != 'done'
    table.loc[left, 'state'] = np.where(table.message[left] != '', 'failed', 'missing')
    for (why, state), rows in table[table.message != ''].groupby(['message', 'state'], sort=False):
        tell(f'{state}: {join_items(rows.run, 3)}: {why}')  # a common cause once
    return table


@dataclass(frozen=True)
class Plan:
    """What a sweep trains.

    Attributes:
        search: the runs of the search.
        finals: gives the runs that finished runs (as from `finished`) choose.
        usable: leaves out finished runs that have to be trained again.
    """

    search: list[Config]
    finals: Callable[[pd.DataFrame], Iterable[Config]]
    usable: Callable[[pd.DataFrame], pd.DataFrame] = lambda runs: runs

    def configs(self, runs: pd.DataFrame) -> dict[str, Config]:
        """All runs by `key`, the final ones as far as finished runs choose them."""
        return _by_key([*self.search, *self.finals(runs)])


def run_stages(
    search: Iterable[Config],
    finals: Callable[[pd.DataFrame], Iterable[Config]],
    *,
    unchosen: Callable[[pd.DataFrame], Iterable[Config]] = lambda runs: (),
    usable: Callable[[pd.DataFrame], pd.DataFrame] = lambda runs: runs,
    dry_run: bool = False,
    plans: list[Plan] | None = None,
    tell: Callable[[str], None] = print,
    **launch,
) -> pd.DataFrame:
    """Train a search, then what it has chosen; what is done here or in the table of record is left
    alone.

    Args:
        search, finals, usable: as in `Plan`.
        unchosen: gives as many runs as will be chosen yet, to count them and the time they take.
        dry_run: only say how much there is.
        plans: a list that gets the plan; then nothing is trained.
        tell: is given the lines.
        launch: engine, address and jobs, as in `run`.

    Returns:
        DataFrame as from `run`; as from `plan_runs` for a dry run.

    Raises:
        SpmlError: as `run`.
    """
    check_launch(**launch)
    if plans is not None:
        plans.append(Plan(list(search), finals, usable))
        return plan_runs([], pd.DataFrame())
    runs = usable(finished())
    search = _by_key(search)
    if dry_run:
        return _dry_run(search, _by_key(finals(runs)), list(unchosen(runs)), runs, tell)
    later = plan_runs([*_missing(_by_key(finals(runs)), runs), *unchosen(runs)], runs)
    later = later.expected[later.state != 'done'].tolist()
    done = run(_missing(search, runs), tell=tell, later=later, **launch)
    if (done.state == 'missing').any():
        return done  # interrupted
    runs = usable(finished())
    todo = _missing(_by_key(finals(runs)), runs)
    final = run(todo, tell=tell, earlier=done.message.tolist(), **launch)
    return pd.concat([done, final], ignore_index=True)


def _by_key(configs: Iterable[Config]) -> dict[str, Config]:
    return {key(config): config for config in configs}


def _missing(configs: dict[str, Config], runs: pd.DataFrame) -> list[Config]:
    return [config for name, config in configs.items() if name not in runs.index]


def _dry_run(
    search: dict[str, Config],
    final: dict[str, Config],
    unchosen: list[Config],
    runs: pd.DataFrame,
    tell: Callable,
) -> pd.DataFrame:
    missing_search = _missing(search, runs)
    missing_final = _missing(final, runs)
    table = plan_runs([*missing_search, *missing_final], runs)
    line = (
        f'{len(search)} runs of search, of which {len(missing_search)} are missing; '
        f'{len(final)} runs with fresh seeds are chosen by now, of which {len(missing_final)} '
        'are missing.'
    )
    left = table[table.state != 'done']
    if unchosen:
        line += f' The search will choose {len(unchosen)} more.'
        left = pd.concat([left, plan_runs(unchosen, runs)])
    if len(left):
        line += f' One after another: {describe_length(left)}.'
    tell(f'{line} {estimate.describe_disk(left.config)}'.rstrip())
    return table


def describe_length(left: pd.DataFrame) -> str:
    "How long runs take, of rows as from `plan_runs`."
    unknown = int(left.expected.isna().sum())
    if unknown == len(left):
        return 'unknown'
    length = f'about {format_duration(left.expected.sum())}'
    if left.timed.any():
        length += f', by steps timed here and all epochs for {left.timed.sum()} of the runs'
    return f'{length}, and unknown for {unknown} of them' if unknown else length


def describe_queue(
    messages: dict[str, str],
    expected: pd.Series,
    seconds: float,
    jobs: int,
    earlier: Iterable[str] = (),
) -> str:
    """A line that says how far a sweep is.

    Args:
        messages: {run that has ended: '' or what went wrong}.
        expected: seconds of each run of the sweep, by name; NaN where unknown.
        seconds: since the start.
        jobs: runs at a time.
        earlier: '' or what went wrong of runs that ended before, and that count as well.

    Returns:
        Such as '1/3 done, 0 failed, 2 running, about 80 s left'.
    """
    ended = [*earlier, *messages.values()]
    failed = sum(message != '' for message in ended)
    rest = expected.drop(list(messages))
    if expected.notna().any():
        done = expected[list(messages)].sum()
        pace = seconds / done if done else 1 / jobs  # seconds per expected second, so far
        left = rest.fillna(expected.mean()).sum() * pace
    else:
        left = len(rest) * seconds / len(messages)
    return (
        f'{len(ended) - failed}/{len(ended) + len(rest)} done, {failed} failed, '
        f'{min(jobs, len(rest))} running, about {format_duration(left)} left'
    )


def format_duration(seconds: float) -> str:
    "A time for people, such as '8 s', '12 min', '3 h 20 min' or '480 h (20 days)'."
    minutes = round(seconds / 60)
    if seconds < 90:
        return f'{seconds:.0f} s'
    if minutes < 90:
        return f'{minutes} min'
    if minutes < 6000:
        return f'{minutes // 60} h {minutes % 60} min'
    return f'{minutes / 60:,.0f} h ({minutes / 1440:,.0f} days)'
