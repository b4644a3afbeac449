"""Train many configurations in parallel, on this machine or a Ray cluster; resume when stopped."""

# The folder of each run shows whether the run is done, so a launcher has little to do: keep workers
# busy, skip finished runs, collect errors, and estimate the time left.

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
from functools import cache, lru_cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from ..base import settings
from ..base.errors import SpmlError, require_one_of, require_package
from ..data import loading
from ..data.dataset import join_items
from ..data.official import registry
from ..data.side_information import pin_file
from ..runs import record
from ..runs.config import Config, config_to_dict, resolve, science_key, stamp_folder
from ..runs.folder import Run, hash_file, locate_run, provenance, read_json
from . import estimate


def _open_no_follow(file: str, flags: int) -> int:
    "An `opener` that does not write through a symbolic link."
    return os.open(file, flags | getattr(os, 'O_NOFOLLOW', 0), 0o666)


def attempt_run(config: Config) -> str:
    """Train one run, and return an error instead of raising it.

    The output goes to a log beside the run's folder, and after the training to `log.txt` in it.

    Returns:
        '' if the run is done, else the error message.
    """
    return _message_of(partial(_train, config))


def attempt_stack(configs: list[Config]) -> list[str]:
    """Train runs of one stack as far as they can be trained together, and the others one by one.

    Args:
        configs: with one `spml_nb.training.stacked.stack_key`; one configuration is just trained.

    Returns:
        Messages as from `attempt_run`.
    """
    ended = {}
    if len(configs) > 1:
        # an error of the stack is in its log; a run that it concerns meets it alone too
        _message_of(partial(_train_stack, configs, ended))
    return [ended[c] if c in ended else attempt_run(c) for c in configs]


def _train_stack(configs: list[Config], ended: dict[Config, str]):
    "Train a stack, and enter the message of each run as it ends. The log is that of the first run."
    from spml_nb.training.stacked import train_stacked
    from spml_nb.training.trainer import Diverged

    with _log_to(locate_run(resolve(configs[0]))):
        began = time.perf_counter()
        try:
            for config, error in train_stacked(configs):
                if isinstance(error, Diverged):
                    seconds = (time.perf_counter() - began) / len(configs)
                    run = locate_run(resolve(config))
                    _finish_diverged(run, error, seconds, stacked=len(configs))
                ended[config] = '' if error is None else str(error)
        except Exception:
            traceback.print_exc()
            raise


def _train(config: Config):
    run = locate_run(resolve(config))
    with _log_to(run):
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


@contextlib.contextmanager
def _log_to(run: Run) -> Iterator[None]:
    "Write output to a log beside the run's folder, and at the end move it to `log.txt` in it."
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    log = run.folder.parent / f'{run.folder.name}.log'
    with (
        open(log, 'a', opener=_open_no_follow) as output,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(output),
    ):
        yield
    # another sweep that waited for this run may have moved its log already
    with contextlib.suppress(FileNotFoundError):
        content = log.read_bytes()
        with open(run.folder / 'log.txt', 'ab', opener=_open_no_follow) as output:
            output.write(content)
        log.unlink()


def _message_of(call: Callable[[], object]) -> str:
    "Call, and return an error instead of raising it. Returns: '', or the error message."
    try:
        call()
    except SpmlError as error:
        return str(error)
    except OSError as error:
        return f'{error}. Free space or point the setting `runs` elsewhere (settings.ini).'
    except Exception as error:
        return f'{type(error).__name__}: {error}'
    return ''


def _finish_diverged(run: Run, error: SpmlError, seconds: float, **trained):
    """Mark a diverged run as done: without weights, and with a validation mAP of 0 for the search.

    Args:
        trained: further entries of its provenance.
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
        'provenance': provenance() | trained,
    }
    with run.lock():
        if not run.done:
            run.finish(result)


def _attempt_fields(fields: dict) -> str:
    return attempt_run(Config(**fields))


def serve_worker():
    """The main loop of a worker process: read a list of configurations (JSON) per line from stdin,
    train them, and answer with the messages of `attempt_stack` (JSON) on a line of stdout.

    One process trains many runs, since starting Python and torch takes longer than some of them.
    """
    configs = queue.Queue()
    answers = sys.stdout  # `attempt_run` redirects sys.stdout while it trains

    def listen():
        for line in sys.stdin:
            configs.put(line)
        os._exit(0)  # the launcher has closed the pipe or died

    threading.Thread(target=listen, daemon=True).start()
    while True:
        messages = attempt_stack([Config(**fields) for fields in json.loads(configs.get())])
        print(json.dumps(messages), file=answers, flush=True)


_RETRY = 'Run the same command again to resume from its last checkpoint.'
_RETRY_STACK = 'Run the same command again to train anew what the stack had not ended.'


def _is_done(config: Config) -> bool:
    "Whether a run is done; not if its folder or its photos cannot be read."
    try:
        return locate_run(resolve(config)).done
    except (SpmlError, OSError):
        return False


class _Worker:
    "A process that trains one stack after another; its number, from 0, selects its GPU."

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

    def train(self, configs: list[Config]) -> list[str]:
        """Return '' or an error message for each. If the process dies, the next call starts a new
        one.
        """
        try:
            if self.process is None:
                self.start(configs[0])
            self.process.stdin.write(json.dumps(list(map(config_to_dict, configs))) + '\n')
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ''
        except Exception as error:  # e.g. the process could not be started
            return [f'{type(error).__name__}: {error}'] * len(configs)
        if 'CUDA error' in answer:  # every later run in this process would fail, too
            self.stop()
            self.process = None
        if answer:
            return json.loads(answer)
        code = self.process.wait()
        self.process = None
        remedy = _RETRY if len(configs) == 1 else _RETRY_STACK
        message = (
            f'the process ended with exit status {code} (-9: killed, often because memory ran '
            f'out). {remedy}'
        )
        return ['' if _is_done(config) else message for config in configs]

    def stop(self):
        if self.process is not None:
            self.process.terminate()


def _gpus() -> list[str]:
    "The GPUs that this process may use, as in CUDA_VISIBLE_DEVICES."
    import torch

    visible = os.environ.get('CUDA_VISIBLE_DEVICES')
    return visible.split(',') if visible else [str(k) for k in range(torch.cuda.device_count())]


def canonical_config(config: Config) -> Config:
    """Resolve a configuration, and replace its loss by the one that it is declared equal to on its
    labels, if any, so that both share a run.

    Returns:
        A resolved configuration.

    Raises:
        SpmlError: for a configuration that cannot be resolved.
    """
    from spml_nb.methods.core import find_equal_loss

    resolved = resolve(config)
    labels = resolved.labels
    if resolved.dataset not in loading.names() or resolved.dataset in registry.PARTLY_KNOWN:
        labels = labels.replace('full', 'known')  # a table may leave labels unknown
    if resolved.trained_validation and labels != 'full':
        labels = 'mixed'  # some photos have all their labels, and so more than one positive
    loss, hparams = find_equal_loss(resolved.loss, resolved.hparams, labels)
    if (loss, hparams) == (resolved.loss, resolved.hparams):
        return resolved
    return resolve(resolved.changed(loss=loss, hparams=hparams))


def run_key(config: Config) -> str:
    """`science_key` of the canonical configuration; cached until the data set's files change."""
    changes = {'device': 'cpu'}  # a key is the same on every device
    if config.side:
        changes['side'] = pin_file(config.side)  # with a hash of its current content
    text = json.dumps(vars(config) | changes)
    entry = text, stamp_folder(config.dataset, config.root)
    if entry not in _KEYS:
        _KEYS[entry] = science_key(canonical_config(config.changed(**changes)))
    return _KEYS[entry]


_KEYS = {}


def plan_runs(configs: Iterable[Config], runs: pd.DataFrame | None = None) -> pd.DataFrame:
    """List the runs of a sweep, with their state and the time they are expected to take.

    Args:
        configs: any configurations.
        runs: finished runs to estimate times from; unset: as from `load_finished_runs`.

    Returns:
        DataFrame, one row per distinct run: config, run (name), state ('done', 'begun' or
        'missing'), expected (seconds; NaN if no finished run is similar and no steps were timed)
        and timed (whether `expected` comes from timed steps rather than from finished runs).

    Raises:
        SpmlError: for a configuration that cannot be resolved.
    """
    runs = load_finished_runs() if runs is None else runs
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
    """Find existing runs whose folder of photos has since changed its labels, photos or split, so
    that these configurations are trained anew in folders of their own.

    Returns:
        Their names in the setting `runs`.
    """
    folders = [(Run(run.config, run.folder.parent).folder, run.folder) for run in _runs(configs)]
    return [before.name for before, now in folders if before != now and before.is_dir()]


def find_stale_runs(configs: Iterable[Config]) -> list[str]:
    """Find finished runs whose photos or weights file have been replaced since by others of the
    same name, which the name of a run does not show.

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
    "The distinct runs of configurations."
    root = settings.get_folder('runs')
    device = str(settings.choose_device())
    configs = (config.changed(device=config.device or device) for config in configs)
    runs = (locate_run(canonical_config(config), root) for config in configs)
    return list({run.folder.name: run for run in runs}.values())


def _states(runs: list[Run]) -> list[str]:
    "'done' (on the current data and weights), 'begun' or 'missing', for each run."
    hash_photos = cache(_hash_photos)  # reads each folder once

    def state(run: Run) -> str:
        if run.done and _is_current(run, hash_photos):
            return 'done'
        return 'begun' if (run.folder / 'last.pt').is_file() else 'missing'

    return list(map(state, runs))


def _is_current(run: Run, hash_photos: Callable) -> bool:
    "Whether a finished run was trained on the data and weights that are on disk now."
    config = run.config
    result = read_json(run.folder / 'result.json', ('data',))
    if science_key(config, result['data']) != science_key(config):
        return False
    hashes = {
        'weights': hash_file(config.weights),
        'photos': hash_photos(config.dataset, config.root),
    }
    return all(
        None in (value, result.get(name)) or value == result[name]  # older versions wrote none
        for name, value in hashes.items()
    )


def _hash_photos(dataset: str, root: str | None) -> str | None:
    "A hash of a folder's photos; None for a named data set."
    if dataset in loading.names():
        return None
    with warnings.catch_warnings(action='ignore'):  # training repeats them
        return loading.load(dataset, root).content


def load_finished_runs(*others: pd.DataFrame) -> pd.DataFrame:
    """Every finished run in the setting `runs` and in the table of record.

    Args:
        others: further runs, as from `runs.load`; they win over runs with the same key.

    Returns:
        DataFrame as from `runs.load`, indexed by `science_key`.

    Raises:
        SpmlError: for a run or a table that is damaged.
    """
    tables = [*others, record.load()]
    file = settings.get_folder('outputs') / 'runs.csv'
    if file.exists():
        tables.append(_recorded(file, file.stat().st_mtime_ns))
    runs = pd.concat(tables, ignore_index=True)
    return runs.drop_duplicates('key').set_index('key') if len(runs) else runs


@lru_cache(maxsize=1)
def _recorded(file: Path, modified: int) -> pd.DataFrame:
    return record.read_record(file)


# Seconds that the shortest run takes, however few its photos. A quarter of the recorded runs on
# frozen features took 1.6 s or less.
SHORTEST = 2.0

# Seconds until a worker has imported torch and the rest; 4 to 9 on two cores.
STARTUP = 5.0

# Times are compared only between runs that agree in these fields: fine-tuning takes hundreds of
# times as long as a head on frozen features.
_PACE = ('regime', 'backbone', 'image_size', 'device')
# further fields to agree in, from the most to the least similar runs
_LIKENESS = (('dataset', 'head', 'loss'), ('dataset', 'head'), ('head', 'loss'), ('head',), ())


def _expected(configs: pd.Series, runs: pd.DataFrame) -> list[float]:
    """Median seconds of the finished runs most similar to each configuration; NaN if none is.

    Between data sets, seconds are scaled by the number of images, from the set whose number of
    classes is closest: attention takes longer with more classes.
    """
    if not len(runs):
        return [math.nan] * len(configs)
    if 'stacked' in runs:  # their seconds are shares of a stack's
        runs = runs[runs.stacked.isna()]
    kinds = {device: device.partition(':')[0] for device in runs.device.unique()}
    runs = runs.assign(device=runs.device.map(kinds))
    medians = cache(partial(_median_times, runs))
    expect = cache(partial(_expect, medians))
    fields = ('dataset', 'head', 'loss', 'regime', 'backbone', 'image_size')
    return [
        expect(
            **{name: getattr(config, name) for name in fields},
            device=config.device.partition(':')[0],
        )
        for config in configs
    ]


def _median_times(runs: pd.DataFrame, names: tuple[str, ...]) -> pd.Series:
    "Median seconds by fields: of a run with `dataset`, else per image, by number of classes, too."
    if 'dataset' in names:
        return runs.groupby([*names, *_PACE]).seconds.median()
    sizes = runs.dataset.map({name: _size(name) for name in runs.dataset.unique()})
    runs = runs.assign(per_image=runs.seconds / sizes.str[0], classes=sizes.str[1])
    return runs.groupby([*names, *_PACE, 'classes']).per_image.median()


def _expect(medians: Callable[[tuple[str, ...]], pd.Series], dataset: str, **fields) -> float:
    fields |= {'dataset': Path(dataset).name}
    for names in _LIKENESS:
        similar = tuple(fields[name] for name in (*names, *_PACE))
        if similar not in medians(names).index:
            continue
        median = medians(names)[similar]
        if 'dataset' in names:
            return median
        images, classes = _size(dataset)
        distance = np.abs(np.log(median.index.to_numpy() / classes))
        return max(images * median.iloc[distance.argmin()], SHORTEST)
    return math.nan


def _size(dataset: str) -> tuple[float, float]:
    "Approximate number of training and validation images, and of classes; NaN if unknown."
    counts = estimate.count_photos(dataset)
    return counts.train + counts.val, counts.classes


def _local(
    todo: pd.DataFrame, jobs: int, address: None, tell: Callable
) -> Iterator[tuple[str, str]]:
    "Train in `jobs` processes of this machine. Yields (run, '' or error message) as each ends."
    return _in_workers([{name: c} for name, c in zip(todo.run, todo.config, strict=True)], jobs)


MOST_STACKED = 64  # runs in a stack; more would keep a GPU busy with little but their arithmetic


def _stacked(
    todo: pd.DataFrame, jobs: int, address: None, tell: Callable
) -> Iterator[tuple[str, str]]:
    """As `_local`, but runs on frozen features that differ only in seeds and learning rate are
    trained together. Yields (run, '' or error message) as each stack ends.
    """
    from spml_nb.training.stacked import explain_alone, stack_key

    reasons = todo.config.map(explain_alone)
    for why, alone in reasons[reasons != ''].groupby(reasons):
        tell(f'{len(alone)} of {len(todo)} runs are trained one by one: {why}.')
    together = todo[reasons == '']
    if len(together) and not together.config.iloc[0].device.startswith('cuda'):
        tell('Stacks are meant for a GPU: on wide features a CPU gains little from them.')
    stacks = [{row.run: row.config} for row in todo[reasons != ''].itertuples()]
    for _, rows in together.groupby(together.config.map(stack_key), sort=False):
        size = min(MOST_STACKED, math.ceil(len(rows) / jobs))
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            stacks.append(dict(zip(part.run, part.config, strict=True)))
    return _in_workers(stacks, jobs)


def _in_workers(stacks: list[dict[str, Config]], jobs: int) -> Iterator[tuple[str, str]]:
    "Train {run: configuration}s in processes of this machine. Yields as the engines."
    waiting = deque(stacks)
    answers = queue.Queue()
    workers = [_Worker(k, jobs) for k in range(min(jobs, len(stacks)))]

    def serve(worker):
        with contextlib.suppress(IndexError):  # nothing is waiting
            while True:
                stack = waiting.popleft()
                messages = worker.train(list(stack.values()))
                for answer in zip(stack, messages, strict=True):
                    answers.put(answer)

    try:
        for worker in workers:
            threading.Thread(target=serve, args=(worker,), daemon=True).start()
        for _ in range(sum(map(len, stacks))):
            yield answers.get()
    finally:
        waiting.clear()
        for worker in workers:
            worker.stop()


_RETRIES = 5  # of a run whose machine died


def worker_settings() -> dict[str, str]:
    """The environment variables that give a worker in another working folder the settings of this
    process, with absolute paths.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.startswith('SPML_NB_') or name == 'PYTHONPATH'
    }
    for kind in settings.PATHS:
        environment[f'SPML_NB_{kind.upper()}'] = str(settings.get_folder(kind))
    return environment


def gpu_share(gpus: float, jobs: int) -> float:
    """The fraction of a GPU that each run gets, rounded down to hundredths; 0 without a GPU.

    Args:
        gpus: number of GPUs in the cluster.
        jobs: runs at a time.
    """
    if gpus < 1:
        return 0.0
    if jobs <= gpus:
        return 1.0
    runs_per_gpu = math.ceil(jobs / gpus)
    return int(100 / runs_per_gpu) / 100


def _on_ray(
    todo: pd.DataFrame, jobs: int, address: str | None, tell: Callable
) -> Iterator[tuple[str, str]]:
    """Train on a Ray cluster. Yields (run, '' or error message) as each ends.

    At most `jobs` tasks are submitted at a time, so that Ctrl-C leaves none waiting in the cluster.
    """
    ray = _connected(address)
    gpus = ray.cluster_resources().get('GPU', 0)
    needs_gpu = any(config.device.startswith('cuda') for config in todo.config)
    share = gpu_share(gpus, jobs) if needs_gpu else 0.0
    if gpus and not share:
        tell(
            'The cluster has GPUs, but these runs are for the CPU, as this machine has no GPU or '
            'its setting `device` is cpu. Start the sweep on a machine with a GPU.'
        )
    task = ray.remote(
        num_cpus=1,
        num_gpus=share,
        max_retries=_RETRIES,
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
            except ray.exceptions.RayError as error:
                message = f'{type(error).__name__}: {str(error).splitlines()[0]}. {_RETRY}'
            yield pending.pop(answer), message
    finally:
        for answer in pending:
            ray.cancel(answer, force=True)


def _connected(address: str | None):
    "Import ray and connect it to a cluster."
    ray = require_package('ray', "engine 'ray'", 'cluster')
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


ENGINES = {'local': _local, 'ray': _on_ray, 'stacked': _stacked}


def check_launch(engine: str = 'local', address: str | None = None, jobs: int = 1):
    """Check the options of `run` before any work.

    Raises:
        SpmlError: for another engine, an address without Ray, or jobs below 1.
    """
    require_one_of(engine, ENGINES, 'engine')
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
        engine: 'local' for processes of this machine, 'ray' for a cluster, 'stacked' for processes
            of this machine that train many heads in one pass, which is for a GPU
            (`spml_nb.training.stacked`).
        address: of the Ray cluster; unset: Ray on this machine alone.
        jobs: runs at a time.
        tell: called with a line of progress after each run.
        earlier: messages of runs that ended before this call ('' for success), which the progress
            counts as well.
        later: expected seconds of the runs that follow this call, likewise.

    Returns:
        DataFrame, one row per distinct run: config, run (name), state ('done', 'failed', or
        'missing' after an interruption) and message ('' for success).

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
                        # the first run also decoded photos and computed features, for all runs
                        began = max(began, time.perf_counter() - expected[name])
                    messages[name] = message
                    seconds = time.perf_counter() - began
                    tell(f'{describe_queue(messages, everything, seconds, jobs, earlier)}  {name}')
    except KeyboardInterrupt:
        tell('interrupted: the same command resumes from here.')
    table = table.drop(columns=['expected', 'timed']).assign(
        state=_states([locate_run(config) for config in table.config]),
        message=[messages.get(name, '') for name in table.run],
    )
    left = table.state != 'done'
    table.loc[left, 'state'] = np.where(table.message[left] != '', 'failed', 'missing')
    for (why, state), rows in table[table.message != ''].groupby(['message', 'state'], sort=False):
        tell(f'{state}: {join_items(rows.run, 3)}: {why}')
    return table


@dataclass(frozen=True)
class Plan:
    """The runs of a search, and those that its results select.

    Attributes:
        search: the runs of the search.
        finals: selects the runs to train next from finished runs (as from `load_finished_runs`);
            none while the search is incomplete.
        usable: drops finished runs that have to be trained again.
    """

    search: list[Config]
    finals: Callable[[pd.DataFrame], Iterable[Config]]
    usable: Callable[[pd.DataFrame], pd.DataFrame] = lambda runs: runs

    def configs(self, runs: pd.DataFrame) -> dict[str, Config]:
        """{`run_key`: configuration} of the search and of the final runs selected so far."""
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
    """Train a search, then the runs that it selects. Runs that are done, here or in the table of
    record, are skipped.

    Args:
        search, finals, usable: as in `Plan`.
        unchosen: stand-ins for the final runs that are not selected yet, to estimate their time.
        dry_run: only report how many runs are missing, and how long they take.
        plans: append the `Plan` to this list, and train nothing.
        tell: called with each line of progress.
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
    runs = usable(load_finished_runs())
    search = _by_key(search)
    if dry_run:
        return _dry_run(search, _by_key(finals(runs)), list(unchosen(runs)), runs, tell)
    later = plan_runs([*_missing(_by_key(finals(runs)), runs), *unchosen(runs)], runs)
    later = later.expected[later.state != 'done'].tolist()
    done = run(_missing(search, runs), tell=tell, later=later, **launch)
    if (done.state == 'missing').any():
        return done  # interrupted
    runs = usable(load_finished_runs())
    todo = _missing(_by_key(finals(runs)), runs)
    final = run(todo, tell=tell, earlier=done.message.tolist(), **launch)
    return pd.concat([done, final], ignore_index=True)


def _by_key(configs: Iterable[Config]) -> dict[str, Config]:
    return {run_key(config): config for config in configs}


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
    "How long the runs of `plan_runs` take one after another, in words."
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
    """The progress of a sweep as a line of text.

    Args:
        messages: {run that has ended: '' or error message}.
        expected: seconds of each run of the sweep, by name; NaN where unknown.
        seconds: since the start.
        jobs: runs at a time.
        earlier: messages of runs that ended before the start, which are counted as well.

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
    "A duration in words, such as '8 s', '12 min', '3 h 20 min' or '480 h (20 days)'."
    minutes = round(seconds / 60)
    if seconds < 90:
        return f'{seconds:.0f} s'
    if minutes < 90:
        return f'{minutes} min'
    if minutes < 6000:
        return f'{minutes // 60} h {minutes % 60} min'
    return f'{minutes / 60:,.0f} h ({minutes / 1440:,.0f} days)'
