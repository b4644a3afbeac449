"""One threshold for all classes or one per class, chosen by clean, by observed or by few labels."""

# The runs are the board's: settings and epoch were chosen on fully labelled validation photos. So
# all thresholds of a run are applied to the same scores, and only the way to choose them differs.
# They are chosen on validation photos as the package does it: by the best micro-F1 on clean labels,
# or by r²/Pr(predicted) of observed positives; per class by the best F1 or by the recall of all
# classes, shrunk towards the global threshold where positives are few.

import contextlib
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from ... import drawing, metrics
from ...base import settings
from ...base.errors import SpmlError
from ...runs.config import Config
from ...runs.folder import Result
from ...statistics import Effect, estimate_effect, image_draws, pool_effects
from ...sweeps import queue
from ...sweeps.search import SUITES, final_configs
from ...training.selection import threshold_basis
from ...training.task import Task, make_task
from ...training.thresholds import class_thresholds, thresholds_on_validation
from ...training.trainer import train
from ..image_error import score_samples
from ..templates import describe_protocol, list_cells, render_template
from .clean_photos import METHODS
from .core import Experiment, Measurements, make_measuring_sweep, write_outputs

SUITE = 'photos'
DATASETS = tuple(SUITES[SUITE]['datasets'])
LOSSES = tuple(row.loss for row in METHODS)
SEEDS = range(5)  # of the board's final runs
PHOTOS = (10, 20, 50, 100)  # fully labelled ones that choose
SAMPLES = 20  # for each number of photos, the smaller ones within the larger ones
METRICS = ('micro-F1', 'macro-F1')


class Way(NamedTuple):
    """How thresholds are chosen.

    Attributes:
        labels: the validation labels that choose: 'clean' or 'observed', of all photos, or the
            number of fully labelled photos.
        kind: one of `KINDS`.
    """

    labels: str
    kind: str


KINDS = GLOBAL, PER_CLASS = 'global', 'per class'
CLEAN, OBSERVED = 'clean', 'observed'
WAYS = [Way(labels, kind) for labels in (CLEAN, OBSERVED, *map(str, PHOTOS)) for kind in KINDS]
# {contrast: (a way, the way that it is compared with)}
CONTRASTS = {
    'per class − global, clean labels': (Way(CLEAN, PER_CLASS), Way(CLEAN, GLOBAL)),
    'per class − global, observed labels': (Way(OBSERVED, PER_CLASS), Way(OBSERVED, GLOBAL)),
    'observed − clean labels, global': (Way(OBSERVED, GLOBAL), Way(CLEAN, GLOBAL)),
    **{
        f'{n} photos − observed labels, global': (Way(str(n), GLOBAL), Way(OBSERVED, GLOBAL))
        for n in PHOTOS
    },
    **{
        f'per class − global, {n} photos': (Way(str(n), PER_CLASS), Way(str(n), GLOBAL))
        for n in PHOTOS
    },
}
KEYS = ['dataset', 'loss', 'seed', *Way._fields]
NUMBERS = ['micro', 'macro', 'micro_sd', 'macro_sd']
MEASUREMENTS = Measurements('thresholds', ('dataset', 'loss', *Way._fields))


def choose_thresholds(logits: np.ndarray, task: Task, seed: int) -> dict[Way, list]:
    """Choose thresholds in every way.

    Args:
        logits: (N_val, C).
        task: with the clean and observed labels of validation.
        seed: of the samples of photos.

    Returns:
        {way: choices}: one, or one for each sample of photos; a choice is a probability, or C of
        them.
    """
    of_validation = {'val': torch.from_numpy(logits)}
    chosen = {}
    for labels, selection in ((CLEAN, 'val_clean'), (OBSERVED, 'val_observed')):
        p, targets, has_negatives = threshold_basis(of_validation, task, selection)
        choose = metrics.best_threshold if has_negatives else metrics.positive_threshold
        overall = choose(p, targets)
        kept = thresholds_on_validation(of_validation, task, selection, overall)
        chosen[labels] = [(overall, kept['class_thresholds'])]
    p, true, _ = threshold_basis(of_validation, task, 'val_clean')
    orders = [np.random.default_rng([seed, k]).permutation(len(p)) for k in range(SAMPLES)]
    for n in PHOTOS:
        chosen[str(n)] = [_by_photos(p.numpy()[rows[:n]], true[rows[:n]]) for rows in orders]
    return {
        Way(labels, kind): [pair[k] for pair in pairs]
        for labels, pairs in chosen.items()
        for k, kind in enumerate(KINDS)
    }


def _by_photos(p: np.ndarray, true: np.ndarray) -> tuple[float, list[float]]:
    "The thresholds that `spml calibrate` sets on fully labelled photos."
    overall = metrics.best_threshold(p, true)
    return overall, class_thresholds(p, true, overall)


def score_run(logits: dict[str, np.ndarray], task: Task, seed: int) -> dict[Way, np.ndarray]:
    """F1 on the test images by every way.

    Args:
        logits: {'val', 'test': (N, C)}.
        task, seed: as in `choose_thresholds`.

    Returns:
        {way: (choices, metrics, 1 + R)} in percent: on the test images, then on R bootstrap samples
        of them, as from `statistics.image_draws`.
    """
    true = task.data.labels[task.test]
    draws = np.vstack([np.ones(len(true)), image_draws(len(true))])
    test = logits['test'].astype(float)

    def score(threshold):
        return [score_samples(metric, test, true, draws, threshold) for metric in METRICS]

    chosen = choose_thresholds(logits['val'], task, seed)
    return {way: np.array([*map(score, thresholds)]) for way, thresholds in chosen.items()}


def train_silently(config: Config, folder: str) -> Result:
    """Train a run for its logits, which the record does not keep.

    Args:
        folder: of the run, in the setting `runs`.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        return train(config, root=settings.get_folder('runs') / folder)


def _measure_runs(configs: list[Config]) -> tuple[pd.DataFrame, np.ndarray]:
    """Train runs and score them by every way.

    Args:
        configs: of a set of photos, every seed of each of `LOSSES`.

    Returns:
        A line for each run and way: `KEYS`, micro and macro (F1 on the test images in percent, the
        mean over samples of photos), micro_sd and macro_sd (over these samples, 0 for one choice);
        and (losses, ways, metrics, R) float32, the means over runs and samples of photos on R
        bootstrap samples of the test images.
    """
    lines = []
    resampled: dict[str, list] = {loss: [] for loss in LOSSES}
    for config in configs:
        scores = score_run(
            train_silently(config, MEASUREMENTS.name).logits, make_task(config), config.seed
        )
        for way, values in scores.items():
            means, spread = values[:, :, 0].mean(0), values[:, :, 0].std(0)
            lines.append([config.dataset, config.loss, config.seed, *way, *means, *spread])
        resampled[config.loss].append([scores[way][:, :, 1:].mean(0) for way in WAYS])
    means = [np.mean(runs, axis=0) for runs in resampled.values()]
    return pd.DataFrame(lines, columns=[*KEYS, *NUMBERS]), np.array(means, np.float32)


def plan_final_runs(dataset: str) -> list[Config]:
    """The final runs of a set of photos, with the settings that the board's searches chose.

    Raises:
        SpmlError: where such a search is not done.
    """
    runs = queue.load_finished_runs()
    configs = [
        config for row in METHODS for config in final_configs(row, SUITE, dataset, runs, SEEDS)
    ]
    if len(configs) < len(METHODS) * len(SEEDS):
        raise SpmlError(
            f'a search of the board, which chooses settings, is missing on {dataset}. Run first: '
            f'`spml sweep methods --dataset {dataset} --loss {" ".join(LOSSES)}`.'
        )
    return configs


def _estimate_contrast(
    lines: pd.DataFrame, images: np.ndarray, contrast: str, metric: str
) -> Effect:
    """What one way gains over another, the mean over methods, with an interval over seeds and test
    images.

    Args:
        lines, images: as from `_measure_runs`, or its lines of some methods.
        contrast: a key of `CONTRASTS`.
        metric: one of `METRICS`.
    """
    way, base = CONTRASTS[contrast]
    by_way = lines.pivot_table(metric.removesuffix('-F1'), 'seed', [*Way._fields])
    differences = (by_way[way] - by_way[base]).to_numpy()
    losses = [LOSSES.index(loss) for loss in lines.loss.unique()]
    resampled = images[losses, :, METRICS.index(metric)].astype(float).mean(0)
    error = (resampled[WAYS.index(way)] - resampled[WAYS.index(base)]).std(ddof=1)
    return estimate_effect(differences, None, float(error))


def estimate_gain_of_photos(photos: int) -> Effect | None:
    """What the global threshold gains in micro-F1 where so many fully labelled photos choose it
    instead of observed labels, the mean over sets; None if nothing is measured yet.
    """
    lines, images = MEASUREMENTS.read()
    contrast = f'{photos} photos − observed labels, global'
    effects = [
        _estimate_contrast(part, images[dataset], contrast, 'micro-F1')
        for dataset, part in lines.groupby('dataset', sort=False)
    ]
    return pool_effects(effects) if effects else None


def estimate_contrasts(lines: pd.DataFrame, images: dict[str, np.ndarray]) -> pd.DataFrame:
    """Every contrast on every set of photos.

    Args:
        lines, images: as from `MEASUREMENTS.read`.

    Returns:
        DataFrame of `Effect`s by metric and contrast, a column for each set of photos and 'mean'.
    """
    index = pd.MultiIndex.from_product([METRICS, CONTRASTS], names=['metric', 'contrast'])
    table = pd.DataFrame(index=index)
    for dataset, part in lines.groupby('dataset', sort=False):
        table[dataset] = [
            _estimate_contrast(part, images[dataset], contrast, metric)
            for metric, contrast in index
        ]
    return table.assign(mean=[pool_effects(list(row)) for row in table.to_numpy()])


def _average_levels(lines: pd.DataFrame) -> pd.DataFrame:
    """F1 and its standard deviation over samples of photos, means over methods and seeds.

    Args:
        lines: as from `MEASUREMENTS.read`.

    Returns:
        DataFrame, a row for each of `WAYS`, columns (micro, macro, micro_sd or macro_sd, set of
        photos) in percent.
    """
    means = lines.groupby(['dataset', *Way._fields], sort=False)[NUMBERS].mean()
    return means.unstack('dataset', sort=False).reindex(WAYS)


def _picture(lines: pd.DataFrame):
    "F1 over the number of fully labelled photos that choose."
    levels = _average_levels(lines)
    datasets = levels.micro.columns
    figure, axes = drawing.make_axes(len(METRICS), len(datasets), 1.8, 1.8)
    for metric, row in zip(('micro', 'macro'), axes, strict=True):
        for dataset, ax in zip(datasets, row, strict=True):
            _draw_panel(ax, levels[metric][dataset], levels[f'{metric}_sd'][dataset])
        row[0].set_ylabel(f'{metric}-F1 (%)')
    for dataset, top, bottom in zip(datasets, *axes, strict=True):
        top.set_title(dataset, fontsize=8)
        bottom.set_xlabel('photos labelled in full')
    drawing.draw_legend(figure)
    return figure


def _draw_panel(ax, level: pd.Series, deviation: pd.Series):
    "A curve with a band for each kind, lines where all labels of validation choose."
    sizes = [str(n) for n in PHOTOS]
    for kind, ink in zip(KINDS, drawing.INK, strict=False):
        mean = level.xs(kind, level='kind')
        spread = deviation.xs(kind, level='kind')[sizes]
        band = np.array([mean[sizes], mean[sizes] - spread, mean[sizes] + spread])
        drawing.draw_curve(ax, PHOTOS, band, ink, marker='o', markersize=3, label=kind)
        for labels, style in ((CLEAN, '--'), (OBSERVED, ':')):
            ax.axhline(
                mean[labels], color=ink, linestyle=style, label=f'{kind}, {labels} labels of all'
            )
    ax.set_xscale('log')
    ax.set_xticks(PHOTOS, map(str, PHOTOS))
    ax.minorticks_off()


def _list_levels(lines: pd.DataFrame) -> dict[str, list[list[str]]]:
    "{metric: cells of a table}, F1 by way and set of photos, with the mean over sets."
    levels = _average_levels(lines)
    tables = {}
    for metric in ('micro', 'macro'):
        table = levels[metric]
        rows = [
            [way.labels, way.kind, *(f'{value:.1f}' for value in [*table.loc[way], mean])]
            for way, mean in zip(WAYS, table.mean(axis=1), strict=True)
        ]
        tables[metric] = [['labels that choose', 'thresholds', *table.columns, 'mean'], *rows]
    return tables


def _list_methods(lines: pd.DataFrame, images: dict[str, np.ndarray]) -> list[list[str]]:
    "Per class − global for each method, means over the sets of photos."
    contrasts = list(CONTRASTS)[:2]
    columns = [(metric, contrast) for contrast in contrasts for metric in METRICS]
    rows = []
    for loss, part in lines.groupby('loss', sort=False):
        means = estimate_contrasts(part, images)['mean']
        rows.append([loss, *(str(means[column]) for column in columns)])
    header = [f'{metric}, {contrast.split(", ")[1]}' for metric, contrast in columns]
    return [['method', *header], *rows]


def _find_ranges(effects: pd.DataFrame) -> dict[str, tuple[float, float]]:
    "The lowest and the highest effect on a single set of photos, by contrast."
    of_sets = effects.drop(columns='mean').map(lambda effect: effect.mean)
    return {name: (row.min(), row.max()) for name, row in of_sets.iterrows()}


def write_thresholds() -> list[Path]:
    """Write `thresholds.md` and `thresholds.svg` in the setting `outputs`.

    Returns:
        The files that changed; none if nothing is measured yet.
    """
    lines, images = MEASUREMENTS.read()
    if not len(lines):
        return []
    lines = lines.sort_values('dataset', key=lambda names: names.map(DATASETS.index), kind='stable')
    contrasts = estimate_contrasts(lines, images)
    done = list(lines.dataset.unique())
    page = render_template(
        'thresholds.md',
        protocol=describe_protocol(SUITE, done, len(SEEDS)),
        losses=LOSSES,
        samples=SAMPLES,
        photos=PHOTOS,
        sets=len(done),
        means={metric: contrasts.loc[metric, 'mean'].to_dict() for metric in METRICS},
        ranges={metric: _find_ranges(contrasts.loc[metric]) for metric in METRICS},
        effects={metric: list_cells(contrasts.loc[metric]) for metric in METRICS},
        methods=_list_methods(lines, images),
        levels=_list_levels(lines),
        deviations=_average_levels(lines).micro_sd.mean(axis=1).xs(GLOBAL, level='kind').to_dict(),
        missing=[name for name in DATASETS if name not in done],
    )
    picture = drawing.to_svg(lambda: _picture(lines)).decode()
    return write_outputs({'thresholds.md': page, 'thresholds.svg': picture})


EXPERIMENT = Experiment(
    make_measuring_sweep(MEASUREMENTS, DATASETS, plan_final_runs, _measure_runs),
    lambda record, measured: write_thresholds(),
)
