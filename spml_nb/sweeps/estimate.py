"""What a plan needs of this machine: hours, by a few steps timed on synthetic photos, and disk."""

# Where finished runs say how long others take, `queue` asks them. The papers' own data sets have no
# run to ask, so a few steps of each kind are timed instead, and kept in the cache.

import contextlib
import io
import json
import math
import platform
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..base import settings
from ..base.errors import SpmlError
from ..base.files import hold_lock, write_atomically
from ..data import loading
from ..data.dataset import Dataset
from ..data.fetch import format_bytes
from ..data.official import registry
from ..runs.config import VIEW_SETS, Config
from ..runs.folder import Run, read_json

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class StepKind:
    """What steps have in common that take equally long.

    Args:
        device: its name, as from `name_device`.
        stage: 'finetune' or 'linear'.
        views: names of the views that a step looks at.
    """

    device: str
    stage: str
    backbone: str
    image_size: int
    batch_size: int
    head: str
    views: tuple[str, ...]
    precision: str
    frozen_stages: int

    def __str__(self):
        trained = 'whole network' if self.stage == 'finetune' else 'head on frozen features'
        return (
            f'{self.backbone} at {self.image_size} px, {self.head} head, batch '
            f'{self.batch_size}, views {"+".join(self.views)}, {trained}'
        )


@dataclass(frozen=True)
class Pace:
    """How long steps of a kind take, and what they leave on the disk.

    Args:
        batch_size: the largest that was timed; a batch may not fit, or take too long.
        train: seconds a photo in training.
        score: seconds a photo in evaluation.
        extract: seconds a photo for its features, where they are frozen.
        weights: bytes of the best weights, which a run keeps.
        features: bytes of a photo's features, where they are frozen.
        fits: whether every batch that was tried fitted into the device's memory.
    """

    batch_size: int
    train: float
    score: float
    extract: float
    weights: int
    features: int
    fits: bool


@cache
def name_device(device: str) -> str:
    """A device as its maker calls it, a CPU with the threads that torch takes of it.

    Args:
        device: as in a configuration.
    """
    import torch

    kind = torch.device(device)
    if kind.type == 'cuda':
        return torch.cuda.get_device_name(kind)
    if kind.type != 'cpu':
        return f'{kind.type} of {platform.machine()}'
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        content = Path('/proc/cpuinfo').read_text(encoding='utf-8', errors='replace')
        if model := re.search(r'^model name\s*:\s*(.+)$', content, re.MULTILINE):
            name = model[1]
    return f'{name}, threads: {torch.get_num_threads()}'


def kinds_of_steps(config: Config) -> list[StepKind]:
    """The kinds of steps of a run, one a regime that it goes through.

    Args:
        config: resolved.
    """
    from ..methods.core import find

    of_regime = {'linear_init': ['linear', 'finetune']}
    names = VIEW_SETS[config.views]
    return [
        StepKind(
            name_device(config.device),
            stage,
            config.backbone,
            config.image_size,
            config.batch_size,
            config.head,
            tuple(names[role] for role in find(config.loss).views),
            config.precision,
            config.frozen_stages,
        )
        for stage in of_regime.get(config.regime, [config.regime])
    ]


class Counts(NamedTuple):
    "Of a data set: photos and classes, NaN where they are not at hand."

    train: float
    val: float
    test: float
    classes: float


NO_COUNTS = Counts(*[math.nan] * 4)


@cache
def count_photos(dataset: str) -> Counts:
    """About how many photos each part of a data set in files has; NaN for any other."""
    if dataset in registry.BENCHMARKS:
        benchmark = registry.find(dataset)
        counts = benchmark.counts
        train = counts.get('train', 0.8 * counts.get('images', math.nan))
        test = counts.get('test', 0.2 * counts.get('images', math.nan))
        val = 0.2 * train if benchmark.validation == 'drawn' else 0
        return Counts(train - val, val, test, counts.get('classes', math.nan))
    if not loading.own_folder(dataset):
        return NO_COUNTS
    # whoever trains on the folder is warned; what is there now need not be of photos any more
    with warnings.catch_warnings(action='ignore'), contextlib.suppress(SpmlError):
        data = loading.load(dataset)
        parts = [len(data.rows(part)) for part in ('train', 'val', 'test')]
        return Counts(*parts, len(data.class_names))
    return NO_COUNTS


# ---- hours


def estimate_seconds(configs: Iterable[Config]) -> list[float]:
    """How long runs take at most, by the steps that were timed here.

    Every epoch of a run's allowance counts, and what a method may do after an epoch.

    Args:
        configs: resolved.

    Returns:
        Seconds, NaN where no steps of that kind were timed or the data set's size is not at hand.
    """
    paces = read_paces()
    return [_seconds(config, paces) for config in configs]


def _seconds(config: Config, paces: dict[StepKind, Pace]) -> float:
    from ..methods.core import Method, find

    counts = count_photos(config.dataset)
    method = find(config.loss)
    train, val = counts.train, counts.val
    if not config.hold_out:
        train, val = train + val, 0
    train = config.train_images or train
    scored = val * (2 if config.ema else 1)
    if method.end_epoch is not Method.end_epoch:
        scored += train
    total = 0.0
    for kind in kinds_of_steps(config):
        pace = paces.get(kind)
        if pace is None:
            return math.nan
        epochs = config.epochs * method.stages
        if kind.stage == 'linear':
            total += _features(config, counts) * pace.extract
            epochs = config.linear_epochs if config.regime == 'linear_init' else epochs
        total += epochs * (train * pace.train + scored * pace.score)
    return total + (val + counts.test) * pace.score


def _features(config: Config, counts: Counts) -> float:
    "How many times a photo's features are computed and kept."
    from ..methods.core import find

    roles = find(config.loss).views
    drawn = counts.train * config.cached_views * len(roles) if len(roles) > 1 else 0
    return counts.train + counts.val + counts.test + drawn


def _file() -> Path:
    return settings.path('cache') / 'pace.json'


def read_paces() -> dict[StepKind, Pace]:
    """What was timed with this cache, on any device; nothing where the file is damaged."""
    try:
        stored = read_json(_file(), ())['paces']
        return {
            StepKind(**kind | {'views': tuple(kind['views'])}): Pace(**pace)
            for kind, pace in stored
        }
    except (SpmlError, KeyError, TypeError, ValueError):
        return {}


def _keep(kind: StepKind, pace: Pace):
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(file):
        paces = read_paces() | {kind: pace}
        rows = [[vars(kind), vars(pace)] for kind, pace in paces.items()]
        write_atomically(file, json.dumps({'paces': rows}, indent=1))


def measure_paces(
    configs: Iterable[Config], tell: Callable[[str], None] = print, seconds: float = 120
):
    """Time a few steps of each kind that a plan has and that was not timed here, and keep them in
    the cache.

    Args:
        configs: resolved.
        tell: is given a line for each kind.
        seconds: how long it may take; then it stops, and the same call goes on from there.
    """
    known = read_paces()
    examples: dict[StepKind, Config] = {}
    for config in configs:
        for kind in kinds_of_steps(config):
            shown = examples.get(kind)
            if shown is None or _classes(config) > _classes(shown):
                examples[kind] = config
    todo = [(kind, config) for kind, config in examples.items() if kind not in known]
    ends = time.perf_counter() + seconds
    for k, (kind, config) in enumerate(todo):
        left = ends - time.perf_counter()
        if left <= 0:
            tell(f'{len(todo) - k} kinds of steps are left. The same command goes on with them.')
            return
        try:
            pace = time_steps(kind, config, left / (len(todo) - k))
        except SpmlError as error:
            tell(f'{kind}: not timed, as {error}')
            continue
        _keep(kind, pace)
        tell(f'{kind}: {_describe(kind, pace)}')


def _describe(kind: StepKind, pace: Pace) -> str:
    text = f'{1 / pace.train:.3g} photos a second in training, {1 / pace.score:.3g} in evaluation'
    if not pace.fits:
        return f'{text}; more than {pace.batch_size} do not fit into the memory of {kind.device}'
    if pace.batch_size < kind.batch_size:
        return f'{text} (timed in batches of {pace.batch_size})'
    return text


def _classes(config: Config) -> int:
    classes = count_photos(config.dataset).classes
    return 20 if math.isnan(classes) else int(classes)


def time_steps(kind: StepKind, config: Config, seconds: float) -> Pace:
    """Time a run's own steps on photos of noise, in batches that double up to the run's.

    Args:
        kind: one of `kinds_of_steps`.
        config: of a run with such steps.
        seconds: about how long that may take.

    Raises:
        SpmlError: where not even two photos fit into the memory, or the method needs side
            information.
    """
    import torch

    from ..training.trainer import Trainer

    began = time.perf_counter()
    config = config.changed(regime=kind.stage, weights='none', selection='last')
    with (
        tempfile.TemporaryDirectory() as folder,
        torch.random.fork_rng(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),  # bars of progress
        warnings.catch_warnings(action='ignore'),  # of the noise
    ):
        trainer = Trainer(config, Run(config, Path(folder)), _noise_task(config))
        extract, features = 0.0, 0
        if kind.stage == 'linear':
            extract, features = _give_features(trainer)
        trainer.begin(1, trainer.stages[0])
        trainer.module.train()
        trainer.method.train()
        trainer.watch.start(1)
        trainer.method.start_epoch(1)
        size, train, fits = _time_growing(trainer, began + 0.7 * seconds)
        rows = np.arange(size) % len(trainer.task.train)
        score = _time(lambda: trainer.predict(trainer.module, rows), trainer.device) / size
        state = trainer.module.state_dict().values()
        weights = sum(value.numel() * value.element_size() for value in state)
    return Pace(size, train, score, extract, weights, features, fits)


def _time_growing(trainer, ends: float) -> tuple[int, float, bool]:
    "The largest batch timed, seconds a photo in it, whether all that were tried fitted."
    import torch

    most = trainer.config.batch_size
    size = min(2, most)
    timed = None
    while True:
        try:
            steps = _time_batch(trainer, size)
        except torch.OutOfMemoryError:
            if timed is None:
                raise SpmlError(f'{size} photos do not fit into the memory.') from None
            return *timed, False
        timed = size, float(np.median(steps[1:])) / size
        twice = 2 * sum(steps)
        if size == most or time.perf_counter() + twice > ends:
            return *timed, True
        size = min(2 * size, most)


def _time_batch(trainer, size: int) -> list[float]:
    "Seconds of steps on a batch, the first of which also sets things up."
    import torch

    index = torch.arange(size) % len(trainer.task.train)

    def step():
        trainer.step(index)

    first = _time(step, trainer.device)
    repeats = max(1, min(10, int(0.5 / first)))
    return [first, *(_time(step, trainer.device) for _ in range(repeats))]


def _time(call: Callable, device: 'torch.device') -> float:
    import torch

    began = time.perf_counter()
    call()
    if device.type != 'cpu':
        torch.accelerator.synchronize(device)
    return time.perf_counter() - began


def _noise_task(config: Config):
    "A task in memory, as long as that no schedule ends."
    from ..data.labels import observe, parse_label_setting
    from ..training.task import Task

    n = min(config.batch_size, 4 if config.device == 'cpu' else 64)
    side = (480, 640) if config.views == 'crop' else (config.image_size, config.image_size)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (n, *side, 3), np.uint8)
    classes = _classes(config)
    labels = np.where(rng.random((n, classes)) < 0.1, 1, -1).astype(np.int8)
    labels[np.arange(n), np.arange(n) % classes] = 1
    names = [str(c) for c in range(classes)]
    data = Dataset('noise', pixels, labels, names, np.full(n, 'train'))
    rows = np.arange(n)
    setting = parse_label_setting(config.labels) | {'weights': None}  # of boxes, which noise lacks
    observed = observe(labels, **setting, seed=0)
    return Task(data, rows, rows, rows, observed, observed, epoch_length=10**9)


def _give_features(trainer) -> tuple[float, int]:
    "Features of the noise, which no cache keeps. Gives seconds and bytes a photo."
    from ..training.batches import FeatureSource, extract_features

    rows = trainer.task.train
    began = time.perf_counter()
    features = extract_features(trainer.model, trainer.images, rows, 'plain')
    seconds = time.perf_counter() - began
    source = FeatureSource(features, {}, rows, trainer.device)
    trainer.frozen_features = lambda: source
    return seconds / len(rows), features.nbytes // len(rows)


TIMED_PHOTOS = 12


def time_photos(config: Config, data: Dataset) -> float:
    """Decode a few photos of a data set and compute their features, as the first run on it does
    with all of them.

    Args:
        config: of a run with frozen features, resolved.
        data: in files.

    Returns:
        Seconds a photo, NaN where one of the few cannot be used.
    """
    import torch

    from .. import models
    from ..data.images import PhotoReader
    from ..training.batches import ImageSource, extract_features

    device = torch.device(config.device)
    rows = np.linspace(0, len(data) - 1, 2 * TIMED_PHOTOS).round().astype(int)
    with (
        contextlib.redirect_stderr(io.StringIO()),  # bars of progress
        warnings.catch_warnings(action='ignore'),  # said when it trains
        torch.random.fork_rng(),
    ):
        model = models.create(config.backbone, 1, weights=config.weights).to(device)
        reader = PhotoReader(data, config.image_size)
        source = ImageSource(reader, VIEW_SETS[config.views], device)
        try:
            # the first ones also set things up
            seconds = [
                _time(partial(extract_features, model, source, part, 'plain'), device)
                for part in (rows[::2], rows[1::2])
            ]
        except SpmlError:
            return math.nan
        finally:
            reader.pool.shutdown()
    return seconds[1] / TIMED_PHOTOS


# ---- disk


def describe_disk(configs: Iterable[Config]) -> str:
    """What runs will write, beside what is free.

    Args:
        configs: resolved, of runs that are not done.

    Returns:
        A sentence or two; '' where nothing is known to be written.
    """
    from ..data import images

    configs = list(configs)
    decoded = _decoded_bytes(configs) if images.keeps_decoded() else {}
    features, weights = _kept_bytes(configs)
    needs = {'cache': sum(decoded.values()) + features, 'runs': weights}
    texts = []
    if decoded:
        each = ', '.join(f'{name} {format_bytes(count)}' for name, count in decoded.items())
        texts.append(f'{format_bytes(sum(decoded.values()))} of decoded photos ({each})')
    if features:
        texts.append(f'{format_bytes(features)} of frozen features')
    if weights:
        texts.append(f"{format_bytes(weights)} of the runs' weights")
    if not texts:
        return ''
    line = f'Disk: {", ".join(texts)}'
    lacking = _lacking_room(needs)
    if not lacking:
        return f'{line}; there is room.'
    for kind, free in lacking.items():
        line += (
            f'. Too little is free in {settings.path(kind)}: {format_bytes(free)}. Make room, or '
            f'name another folder in SPML_NB_{kind.upper()} or settings.ini'
        )
    if 'cache' in lacking and decoded:
        return f'{line}. {images.DECODE_ALWAYS}'
    return f'{line}.'


def _lacking_room(needs: dict[str, int]) -> dict[str, int]:
    "Free bytes of each folder whose disk has too few for all that is to be written there."
    free = {}
    disks = {}
    for kind in (kind for kind, count in needs.items() if count):
        path = settings.path(kind)
        place = next(folder for folder in (path, *path.parents) if folder.exists())
        free[kind] = shutil.disk_usage(place).free
        disks[kind] = place.stat().st_dev
    wanted = {
        kind: sum(needs[other] for other in disks if disks[other] == disk)
        for kind, disk in disks.items()
    }
    return {kind: free[kind] for kind in free if free[kind] < wanted[kind]}


def _decoded_bytes(configs: list[Config]) -> dict[str, int]:
    "Of each data set whose photos are not in the cache."
    from ..data import images

    sizes = {}
    for config in configs:
        counts = count_photos(config.dataset)
        whole = config.views == 'crop'
        side = images.LONGEST_SIDE if whole else config.image_size
        name = Path(config.dataset).name
        photos = counts.train + counts.val + counts.test
        if math.isnan(photos) or images.has_cache(name, side, whole):
            continue
        pixels = side * side * 3 / 4 if whole else side * side  # of sides 4:3
        shown = f'{name} at {side} px'
        sizes[shown] = round(photos * pixels * 3)
    return sizes


def _kept_bytes(configs: list[Config]) -> tuple[int, int]:
    "Of features and of weights, as far as their size was measured."
    paces = read_paces()
    features = {}
    weights = 0
    for config in configs:
        kinds = kinds_of_steps(config)
        if kinds[-1] in paces:
            weights += paces[kinds[-1]].weights
        if kinds[0].stage == 'linear' and kinds[0] in paces:
            copies = _features(config, count_photos(config.dataset))
            if not math.isnan(copies):
                place = config.dataset, *astuple(kinds[0])
                features[place] = round(copies * paces[kinds[0]].features)
    return sum(features.values()), weights
