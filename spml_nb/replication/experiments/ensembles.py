"""What the average of several networks adds to one of them."""

# Heads on cached features train in seconds, so three cost little more than one. All members of an
# average are trained on the same photos with the same observed labels. The final runs of the boards
# cannot be averaged: each of their seeds draws the labels again, so that an average would learn
# from more labels than any of them. So members differ in the seed of training or in the method, and
# the draw of the labels is what is repeated.

from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit

from ...runs.config import Config
from ...statistics import Effect, estimate_effect, image_draws, pool_effects, resampled_map
from ...training.task import make_task
from ..board import describe_method
from ..templates import describe_protocol, list_cells, render_template
from .clean_photos import METHODS
from .core import Experiment, Measurements, make_measuring_sweep, write_outputs
from .thresholds import DATASETS, SUITE, plan_final_runs, train_silently

DRAWS = range(5)  # of the labels; the same seeds as the boards' final runs
LOSSES = tuple(row.loss for row in METHODS)
COPIES = 3  # seeds of training for each draw
FURTHER = 100  # difference between the seeds of training


class Member(NamedTuple):
    """A network of an average.

    Attributes:
        copy: which of the seeds of training, from 0.
    """

    loss: str
    copy: int = 0


def _names(losses) -> str:
    return ' + '.join(describe_method(loss)['name'] for loss in losses)


ENSEMBLES = {
    **{
        f'{_names([loss])}, {n} seeds': [Member(loss, copy) for copy in range(n)]
        for loss in LOSSES
        for n in (2, COPIES)
    },
    _names(LOSSES[1:]): [Member(loss) for loss in LOSSES[1:]],
    _names(LOSSES): [Member(loss) for loss in LOSSES],
    f'{_names(LOSSES)}, {COPIES} seeds': [Member(*pair) for pair in product(LOSSES, range(COPIES))],
}
AVERAGES = {'logits': lambda logits: logits, 'probabilities': expit}
# whose test mAP: the average's, the mean of its members', and that of the member that is best on
# fully labelled validation photos
TOGETHER, ALONE, BEST = KINDS = ('together', 'alone', 'best')
MEASUREMENTS = Measurements('ensembles', ('dataset', 'ensemble', 'average'))


def plan_members(dataset: str) -> list[Config]:
    """The runs of a set of photos: each of the boards' final runs of `LOSSES` with `COPIES` seeds
    of training.

    Raises:
        SpmlError: as `thresholds.plan_final_runs`.
    """
    return [
        config.changed(seed=config.seed + FURTHER * copy)
        for config in plan_final_runs(dataset)
        for copy in range(COPIES)
    ]


def score_ensembles(
    logits: dict[Member, np.ndarray], val_map: dict[Member, float], true: np.ndarray
) -> np.ndarray:
    """The test mAP of every ensemble and of its members.

    Args:
        logits: (N, C) of the test images, of each member.
        val_map: the mAP of each member on fully labelled validation images.
        true: (N, C) in {1, 0, −1}.

    Returns:
        (`ENSEMBLES`, `AVERAGES`, `KINDS`, 1 + R) percent: on the test images, then on R bootstrap
        samples of them, as from `statistics.image_draws`.
    """
    draws = np.vstack([np.ones(len(true)), image_draws(len(true))])
    alone = {member: resampled_map(values, true, draws) for member, values in logits.items()}
    scores = []
    for members in ENSEMBLES.values():
        mean = np.mean([alone[member] for member in members], axis=0)
        best = alone[max(members, key=val_map.__getitem__)]
        averaged = [
            np.mean([transform(logits[member].astype(float)) for member in members], axis=0)
            for transform in AVERAGES.values()
        ]
        scores.append([[resampled_map(values, true, draws), mean, best] for values in averaged])
    return np.array(scores)


def _measure_ensembles(configs: list[Config]) -> tuple[pd.DataFrame, np.ndarray]:
    """Train the members on a set of photos and score their averages.

    Args:
        configs: as from `plan_members`.

    Returns:
        A line for each draw of the labels, ensemble and average: dataset, draw, ensemble, average
        and `KINDS` (test mAP in percent); and (ensembles, averages, kinds, R) float32, the means
        over draws on samples of the test images.
    """
    lines, resampled = [], []
    for draw in DRAWS:
        logits, val_map = {}, {}
        of_draw = [config for config in configs if config.label_seed == draw]
        for config in of_draw:
            result = train_silently(config, MEASUREMENTS.name)
            member = Member(config.loss, (config.seed - draw) // FURTHER)
            logits[member], val_map[member] = result.logits['test'], result.scores['val_map']
        task = make_task(of_draw[0])
        scores = score_ensembles(logits, val_map, task.data.labels[task.test])
        resampled.append(scores[..., 1:])
        for (name, average), kinds in zip(
            product(ENSEMBLES, AVERAGES), scores[..., 0].reshape(-1, len(KINDS)), strict=True
        ):
            lines.append([task.data.name, draw, name, average, *kinds])
    columns = ['dataset', 'draw', 'ensemble', 'average', *KINDS]
    return pd.DataFrame(lines, columns=columns), np.mean(resampled, axis=0, dtype=np.float32)


def _estimate_gain(
    lines: pd.DataFrame, images: np.ndarray, ensemble: str, average: str, over: str
) -> Effect:
    """What an ensemble gains on a set of photos, with an interval over draws of the labels and test
    images.

    Args:
        lines, images: of the set, as from `_measure_ensembles`.
        ensemble: one of `ENSEMBLES`.
        average: one of `AVERAGES`.
        over: `ALONE` or `BEST`.
    """
    by_draw = lines[(lines.ensemble == ensemble) & (lines.average == average)]
    resampled = images[list(ENSEMBLES).index(ensemble), list(AVERAGES).index(average)].astype(float)
    error = (resampled[0] - resampled[KINDS.index(over)]).std(ddof=1)
    return estimate_effect((by_draw[TOGETHER] - by_draw[over]).to_numpy(), None, float(error))


def estimate_gains(lines: pd.DataFrame, images: dict[str, np.ndarray]) -> pd.DataFrame:
    """What every ensemble gains on every set of photos.

    Args:
        lines, images: as from `MEASUREMENTS.read`.

    Returns:
        DataFrame of `Effect`s by over, average and ensemble, a column for each set and 'mean'.
    """
    index = pd.MultiIndex.from_product(
        [(ALONE, BEST), AVERAGES, ENSEMBLES], names=['over', 'average', 'ensemble']
    )
    table = pd.DataFrame(index=index)
    for name in (name for name in DATASETS if name in images):
        of_set = lines[lines.dataset == name]
        table[name] = [
            _estimate_gain(of_set, images[name], ensemble, average, over)
            for over, average, ensemble in index
        ]
    return table.assign(mean=[pool_effects(list(row)) for row in table.to_numpy()])


def write_ensembles() -> list[Path]:
    """Write `ensembles.md` in the setting `outputs`.

    Returns:
        The files that changed; none if nothing is measured yet.
    """
    lines, images = MEASUREMENTS.read()
    if not len(lines):
        return []
    gains = estimate_gains(lines, images)
    done = [name for name in DATASETS if name in images]
    page = render_template(
        'ensembles.md',
        protocol=describe_protocol(SUITE, done, len(DRAWS)),
        further=FURTHER,
        copies=COPIES,
        sets=len(done),
        losses={loss: describe_method(loss)['name'] for loss in LOSSES},
        gains=gains['mean'],
        tables={
            (over, average): list_cells(gains.loc[over, average], 'average of')
            for over, average in product((ALONE, BEST), AVERAGES)
        },
        missing=[name for name in DATASETS if name not in done],
    )
    return write_outputs({'ensembles.md': page})


EXPERIMENT = Experiment(
    make_measuring_sweep(MEASUREMENTS, DATASETS, plan_members, _measure_ensembles),
    lambda record, measured: write_ensembles(),
)
