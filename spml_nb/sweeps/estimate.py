"""Estimate the hours and the disk that a sweep needs, by timing a few steps on synthetic photos."""

# `queue` estimates times from similar runs that are finished. Where there are none, as on most data
# sets of the papers, a few steps of each kind are timed instead, and cached.

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
from dataclasses import dataclass
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
    """All that the time of a training step depends on.

    Args:
        device: as from `name_device`.
        stage: 'finetune' or 'linear'.
        views: names of the image views in a step.
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
    """Time and disk that steps of a kind take.

    Args:
        batch_size: the largest that was timed; the run's may not fit, or take too long to time.
        train: seconds per photo in training.
        score: seconds per photo in evaluation.
        extract: seconds per photo to extract frozen features; 0 when fine-tuning.
        weights: bytes of the checkpoint of the best epoch.
        features: bytes of frozen features per photo; 0 when fine-tuning.
        fits: whether no batch ran out of memory.
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
    """The product name of a device, for a CPU with the number of threads that torch uses.

    Args:
        device: as in `Config`.
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


def list_step_kinds(config: Config) -> list[StepKind]:
    """The kinds of training steps of a run, in their order: two for linear_init, else one.

    Args:
        config: resolved.
    """
    from ..methods.core import find

    stages = ['linear', 'finetune'] if config.regime == 'linear_init' else [config.regime]
    names = VIEW_SETS[config.views]
    return [
        StepKind(
            device=name_device(config.device),
            stage=stage,
            backbone=config.backbone,
            image_size=config.image_size,
            batch_size=config.batch_size,
            head=config.head,
            views=tuple(names[role] for role in find(config.loss).views),
            precision=config.precision,
            frozen_stages=config.frozen_stages,
        )
        for stage in stages
    ]


class Counts(NamedTuple):
    "Photos and classes of a data set; NaN where unknown."

    train: float
    val: float
    test: float
    classes: float


_NO_COUNTS = Counts(*[math.nan] * 4)


@cache
def count_photos(dataset: str) -> Counts:
    """The approximate number of photos in each split of a benchmark or a folder of photos; NaN for
    miniatures and unreadable folders.
    """
    if dataset in registry.BENCHMARKS:
        benchmark = registry.find_benchmark(dataset)
        counts = benchmark.counts
        train = counts.get('train', 0.8 * counts.get('images', math.nan))
        test = counts.get('test', 0.2 * counts.get('images', math.nan))
        val = 0.2 * train if benchmark.validation == 'drawn' else 0
        return Counts(train - val, val, test, counts.get('classes', math.nan))
    if not loading.is_user_folder(dataset):
        return _NO_COUNTS
    # training repeats the warnings
    with warnings.catch_warnings(action='ignore'), contextlib.suppress(SpmlError):
        data = loading.load(dataset)
        parts = [len(data.rows(part)) for part in ('train', 'val', 'test')]
        return Counts(*parts, len(data.class_names))
    return _NO_COUNTS


# ---- hours


def estimate_seconds(configs: Iterable[Config]) -> list[float]:
    """How long each run takes at most, without early stopping, by the steps timed on this machine.

    Args:
        configs: resolved.

    Returns:
        Seconds; NaN where no such steps were timed or the size of the data set is unknown.
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
    for kind in list_step_kinds(config):
        pace = paces.get(kind)
        if pace is None:
            return math.nan
        epochs = config.epochs * method.stages
        if kind.stage == 'linear':
            total += _count_features(config, counts) * pace.extract
            epochs = config.linear_epochs if config.regime == 'linear_init' else epochs
        total += epochs * (train * pace.train + scored * pace.score)
    return total + (val + counts.test) * pace.score


def _count_features(config: Config, counts: Counts) -> float:
    "The number of image views whose frozen features a run caches."
    from ..methods.core import find

    roles = find(config.loss).views
    augmented = counts.train * config.cached_views * len(roles) if len(roles) > 1 else 0
    return counts.train + counts.val + counts.test + augmented


def _cache_file() -> Path:
    return settings.get_folder('cache') / 'pace.json'


def read_paces() -> dict[StepKind, Pace]:
    """The cached timings, of all devices; empty if the file is missing or damaged."""
    try:
        stored = read_json(_cache_file())['paces']
        return {
            StepKind(**kind | {'views': tuple(kind['views'])}): Pace(**pace)
            for kind, pace in stored
        }
    except (SpmlError, KeyError, TypeError, ValueError):
        return {}


def _store(kind: StepKind, pace: Pace):
    file = _cache_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(file):
        paces = read_paces() | {kind: pace}
        rows = [[vars(kind), vars(pace)] for kind, pace in paces.items()]
        write_atomically(file, json.dumps({'paces': rows}, indent=1))


def measure_paces(
    configs: Iterable[Config], tell: Callable[[str], None] = print, seconds: float = 120
):
    """Time a few steps of each kind that is not in the cache yet, and cache the results.

    Args:
        configs: resolved.
        tell: called with a line for each kind.
        seconds: time limit; the next call resumes after the kinds that were timed.
    """
    timed = read_paces()
    examples: dict[StepKind, Config] = {}  # of each kind the configuration with most classes
    for config in configs:
        for kind in list_step_kinds(config):
            example = examples.get(kind)
            if example is None or _count_classes(config) > _count_classes(example):
                examples[kind] = config
    todo = [(kind, config) for kind, config in examples.items() if kind not in timed]
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
        _store(kind, pace)
        tell(f'{kind}: {_describe(kind, pace)}')


def _describe(kind: StepKind, pace: Pace) -> str:
    text = f'{1 / pace.train:.3g} photos a second in training, {1 / pace.score:.3g} in evaluation'
    if not pace.fits:
        return f'{text}; more than {pace.batch_size} do not fit into the memory of {kind.device}'
    if pace.batch_size < kind.batch_size:
        return f'{text} (timed in batches of {pace.batch_size})'
    return text


def _count_classes(config: Config) -> int:
    classes = count_photos(config.dataset).classes
    return 20 if math.isnan(classes) else int(classes)


def time_steps(kind: StepKind, config: Config, seconds: float) -> Pace:
    """Time training steps on noise, with batches that double up to the run's batch size.

    Args:
        kind: one of `list_step_kinds(config)`.
        config: resolved.
        seconds: approximate time limit.

    Raises:
        SpmlError: if not even two photos fit into memory, the method needs side information, or a
            CPU would have to emulate half precision.
    """
    if config.precision == 'fp16' and config.device == 'cpu':
        raise SpmlError(
            'a CPU emulates fp16, at 448 px in minutes a step. Plan it where there is a GPU.'
        )
    import torch

    from ..training.trainer import Trainer

    began = time.perf_counter()
    config = config.changed(regime=kind.stage, weights='none', selection='last')
    with (
        tempfile.TemporaryDirectory() as folder,
        torch.random.fork_rng(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),  # progress bars
        warnings.catch_warnings(action='ignore'),  # about the noise
    ):
        trainer = Trainer(config, Run(config, Path(folder)), _noise_task(config))
        extract, features = 0.0, 0
        if kind.stage == 'linear':
            extract, features = _extract_noise_features(trainer)
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
    "The largest batch size timed, its seconds per photo, and whether all sizes fitted in memory."
    import torch

    largest = trainer.config.batch_size
    size = min(2, largest)
    timed = None
    while True:
        try:
            steps = _time_batch(trainer, size)
        except torch.OutOfMemoryError:
            if timed is None:
                raise SpmlError(f'{size} photos do not fit into the memory.') from None
            return *timed, False
        timed = size, float(np.median(steps[1:])) / size
        next_seconds = 2 * sum(steps)
        if size == largest or time.perf_counter() + next_seconds > ends:
            return *timed, True
        size = min(2 * size, largest)


def _time_batch(trainer, size: int) -> list[float]:
    "Seconds of each step on a batch; the first is the warm-up."
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
    "A few images of noise as a task, with an epoch so long that no schedule ends."
    from ..data.labels import observe, parse_label_setting
    from ..training.task import Task

    n = min(config.batch_size, 4 if config.device == 'cpu' else 64)
    side = (480, 640) if config.views == 'crop' else (config.image_size, config.image_size)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (n, *side, 3), np.uint8)
    classes = _count_classes(config)
    labels = np.where(rng.random((n, classes)) < 0.1, 1, -1).astype(np.int8)
    labels[np.arange(n), np.arange(n) % classes] = 1
    names = [str(c) for c in range(classes)]
    data = Dataset('noise', pixels, labels, names, np.full(n, 'train'))
    rows = np.arange(n)
    setting = parse_label_setting(config.labels) | {'weights': None}  # noise has no boxes
    observed = observe(labels, **setting, seed=0)
    return Task(data, rows, rows, rows, observed, observed, epoch_length=10**9)


def _extract_noise_features(trainer) -> tuple[float, int]:
    "Give the trainer features of the noise, without caching them. Returns: seconds, bytes a photo."
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
    """Time how long decoding a photo and extracting its features takes, which the first run on a
    data set does for all photos.

    Args:
        config: resolved, with frozen features.
        data: with photos in files.

    Returns:
        Seconds per photo; NaN if one of the sampled photos cannot be decoded.
    """
    import torch

    from .. import models
    from ..data.images import PhotoReader
    from ..training.batches import ImageSource, extract_features

    device = torch.device(config.device)
    rows = np.linspace(0, len(data) - 1, 2 * TIMED_PHOTOS).round().astype(int)
    with (
        contextlib.redirect_stderr(io.StringIO()),  # progress bars
        warnings.catch_warnings(action='ignore'),  # training repeats them
        torch.random.fork_rng(),
    ):
        model = models.create(config.backbone, 1, weights=config.weights).to(device)
        reader = PhotoReader(data, config.image_size)
        source = ImageSource(reader, VIEW_SETS[config.views], device)
        try:
            # the first half is the warm-up
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
    """Compare the disk space that runs need with what is free, in a sentence or two.

    Args:
        configs: resolved, of runs that are not done.

    Returns:
        '' if nothing will be written, as far as was measured.
    """
    from ..data import images

    configs = list(configs)
    decoded = _decoded_bytes(configs) if images.caches_photos() else {}
    features, weights = _stored_bytes(configs)
    needs = {'cache': sum(decoded.values()) + features, 'runs': weights}
    texts = []
    if decoded:
        sizes = ', '.join(f'{name} {format_bytes(count)}' for name, count in decoded.items())
        texts.append(f'{format_bytes(sum(decoded.values()))} of decoded photos ({sizes})')
    if features:
        texts.append(f'{format_bytes(features)} of frozen features')
    if weights:
        texts.append(f"{format_bytes(weights)} of the runs' weights")
    if not texts:
        return ''
    line = f'Disk: {", ".join(texts)}'
    too_full = _too_full(needs)
    if not too_full:
        return f'{line}; there is room.'
    for kind, free in too_full.items():
        line += (
            f'. Too little is free in {settings.get_folder(kind)}: {format_bytes(free)}. Make '
            f'room, or name another folder in SPML_NB_{kind.upper()} or settings.ini'
        )
    if 'cache' in too_full and decoded:
        return f'{line}. {images.DECODE_ALWAYS}'
    return f'{line}.'


def _too_full(needs: dict[str, int]) -> dict[str, int]:
    "{setting: free bytes} of the folders whose disk lacks room for what is written to it."
    free = {}
    disks = {}
    for kind in (kind for kind, count in needs.items() if count):
        path = settings.get_folder(kind)
        folder = next(folder for folder in (path, *path.parents) if folder.exists())
        free[kind] = shutil.disk_usage(folder).free
        disks[kind] = folder.stat().st_dev
    needed_on_disk = {
        kind: sum(needs[other] for other in disks if disks[other] == disk)
        for kind, disk in disks.items()
    }
    return {kind: free[kind] for kind in free if free[kind] < needed_on_disk[kind]}


def _decoded_bytes(configs: list[Config]) -> dict[str, int]:
    "{data set and size: bytes} of decoded photos that are not cached yet."
    from ..data import images

    kinds = dict.fromkeys(
        (config.dataset, config.image_size, config.views == 'crop') for config in configs
    )
    sizes = {}
    for dataset, image_size, keeps_aspect in kinds:
        counts = count_photos(dataset)
        side = images.LONGEST_SIDE if keeps_aspect else image_size
        name = Path(dataset).name
        photos = counts.train + counts.val + counts.test
        if math.isnan(photos) or images.has_cache(name, side, keeps_aspect):
            continue
        pixels = side * side * 3 / 4 if keeps_aspect else side * side  # typical photos are 4:3
        sizes[f'{name} at {side} px'] = round(photos * pixels * 3)
    return sizes


def _stored_bytes(configs: list[Config]) -> tuple[int, int]:
    "Bytes of frozen features and of checkpoints, as far as their sizes were measured."
    paces = read_paces()
    features = {}
    weights = 0
    for config in configs:
        kinds = list_step_kinds(config)
        if kinds[-1] in paces:
            weights += paces[kinds[-1]].weights
        if kinds[0].stage == 'linear' and kinds[0] in paces:
            count = _count_features(config, count_photos(config.dataset))
            if not math.isnan(count):
                # runs of the same kind on a data set share their features
                features[config.dataset, kinds[0]] = round(count * paces[kinds[0]].features)
    return sum(features.values()), weights
