"""Do gains shrink as training photos become more? Methods are searched again at every number."""

# `worth` trains on parts of sets of some 4,000 photos, with the settings that all photos chose.
# Here the sets have up to 19,000 training photos and two and five times as many test photos. Every
# method, AN too, is searched again at every number of photos, so that no gain shrinks because its
# settings no longer fit. Validation and test photos are the same at all numbers.

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ... import drawing
from ...methods.core import find
from ...runs.config import Config, resolve
from ...statistics import (
    Effect,
    Scores,
    default_image_error,
    estimate_effect,
    image_error,
    pool_effects,
)
from ...sweeps.queue import run_key
from ...sweeps.search import Row, search_configs
from .. import board, gains
from ..templates import describe_protocol, format_effects, render_template
from .core import (
    Experiment,
    format_csv,
    make_chosen_sweep,
    plan_chosen_runs,
    tabulate_runs,
    write_outputs,
)

SUITE = 'photos'
# {set of photos: the set of the suite whose search it has}
DATASETS = {'coco18_30k': 'coco18', 'mirflickr14_10k': 'mirflickr14'}
TRAINING = {'coco18_30k': 19_200, 'mirflickr14_10k': 6_513}  # photos
FEWEST = 400  # training photos at the left end of a curve, or up to twice as many
SEEDS = range(5)  # of final runs
AN = ('an', 'linear')
METHODS = (
    Row('an', 'linear'),
    Row('wan', 'linear'),
    Row('llr', 'linear'),
    Row('em', 'linear'),
    Row('two_way_class', 'linear'),
    Row('an', 'cosine'),
    Row('hml', 'cosine'),
    Row('bce', 'linear', 'full'),
)


def list_photo_counts(dataset: str) -> list[int]:
    """Ascending numbers of training photos, each half the next, the last one all of them."""
    numbers = [TRAINING[dataset]]
    while numbers[0] // 2 >= FEWEST:
        numbers.insert(0, numbers[0] // 2)
    return numbers


class Place(NamedTuple):
    """A method on so many training photos of a set."""

    dataset: str
    photos: int
    loss: str
    head: str
    labels: str


def plan_searches(datasets: Iterable[str] = ()) -> dict[Place, list[Config]]:
    """The searches, one for each `Place`. datasets: some of `DATASETS`; none: all of them."""
    return {
        Place(dataset, n, row.loss, row.head, row.labels): [
            config.changed(dataset=dataset, train_images=n % TRAINING[dataset])  # 0: all
            for config in search_configs(row, SUITE, DATASETS[dataset])
        ]
        for dataset in datasets or DATASETS
        for n in list_photo_counts(dataset)
        for row in METHODS
    }


def plan_finals(record: pd.DataFrame) -> dict[Place, list[Config]]:
    """The final runs whose settings are chosen.

    Args:
        record: finished runs, as from `sweeps.load_finished_runs` or `tables.read_recorded_runs`.
    """
    return plan_chosen_runs(plan_searches(), record, SEEDS)


def measure_gains(record: pd.DataFrame) -> pd.DataFrame:
    """What each method gains over AN on as many photos.

    Args:
        record: as in `plan_finals`.

    Returns:
        DataFrame as from `gains.gains_over_baselines`, one row per `Place` with a run of every
        seed, the baselines being `gains.SAME_HEAD` and `gains.PLAIN_HEAD`; and late (share of the
        runs whose best epoch is one of the last two).
    """
    runs = tabulate_runs(plan_finals(record), Place._fields, record)
    scores = gains.collect_scores(runs, Place)
    same_head = {place: place._replace(loss='an', labels='single') for place in scores}
    plain = {place: base._replace(head='linear') for place, base in same_head.items()}
    bases = {
        name: {place: base for place, base in pairs.items() if place != base}
        for name, pairs in {gains.SAME_HEAD: same_head, gains.PLAIN_HEAD: plain}.items()
    }
    measured = gains.gains_over_baselines(scores, bases)
    late = runs.groupby([*Place._fields]).late.mean()
    return measured.join(late, on=[*Place._fields]) if len(measured) else measured


def change_per_doubling(measured: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """By how much a gain changes when photos double: the least-squares slope of the gains of all
    numbers of photos over log2, for each seed.

    Args:
        measured: as from `measure_gains`.
        baseline: one of its baselines.

    Returns:
        DataFrame, one row per set and method with a gain at three numbers or more: dataset, loss,
        head, labels, effect (points of mAP).
    """
    gained = measured[(measured.baseline == baseline) & measured.gain.notna()]
    base_scores = measured.set_index([*Place._fields, 'baseline']).scores
    rows = []
    for names, of_method in gained.groupby(['dataset', 'loss', 'head', 'labels'], sort=False):
        if len(of_method) < 3:
            continue
        dataset, _, head, _ = names
        base_head = head if baseline == gains.SAME_HEAD else 'linear'
        bases = [
            base_scores[dataset, n, 'an', base_head, 'single', baseline] for n in of_method.photos
        ]
        effect = _slope(of_method.photos.to_numpy(), list(of_method.scores), bases, dataset)
        rows.append((*names, effect))
    return pd.DataFrame(rows, columns=['dataset', 'loss', 'head', 'labels', 'effect'])


def _slope(photos: np.ndarray, scores: list[Scores], bases: list[Scores], dataset: str) -> Effect:
    steps = np.log2(photos) - np.log2(photos).mean()
    weights = steps / np.square(steps).sum()
    differences = np.array(
        [(a.by_seed - b.by_seed).to_numpy() for a, b in zip(scores, bases, strict=True)]
    )
    names = [of_method.resampled for of_method in (*scores, *bases)]
    images = image_error(names, [*weights, *-weights], default_image_error(dataset))
    return estimate_effect(weights @ differences, None, images)


def measure_rejection(record: pd.DataFrame) -> pd.Series:
    """The share of a batch's entries that LL-R rejects in the best epoch: with few photos its
    search may take a run that rejects nearly all unknown labels, and with many one that rejects
    hardly any.

    Args:
        record: as in `plan_finals`.

    Returns:
        The mean over final runs, (t − 1)·Δ or 1 if that is more, by dataset and photos.
    """
    finals = plan_finals(record)
    rows = [
        (place.dataset, place.photos, resolve(config).hparams['delta'], run_key(config))
        for place, configs in finals.items()
        if place.loss == 'llr'
        for config in configs
    ]
    runs = pd.DataFrame(rows, columns=['dataset', 'photos', 'delta', 'key'])
    best = record.reindex(columns=['best_epoch']).best_epoch.astype(float)
    epoch = runs.key.map(best)
    share = ((epoch - 1) * runs.delta.astype(float)).clip(upper=1)
    return share.groupby([runs.dataset, runs.photos], sort=False).mean().dropna()


def compare_sizes(measured: pd.DataFrame, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What methods gain over plain AN with few, with more and with many photos of each set.

    Args:
        measured: as from `measure_gains`.
        rows: two of `METHODS` or more.

    Returns:
        For each set with the runs of its fewest photos, of a middle number and of the most:
        {'dataset', 'names' of the rows, 'gains': {photos: `Effect`s of the rows}, 'leads': {photos:
        `Effect` of the first row over the second}}.
    """
    if not len(measured):
        return []
    of_plain = measured[(measured.baseline == gains.PLAIN_HEAD) & measured.gain.notna()]
    of_plain = of_plain.set_index([*Place._fields])
    compared = []
    for dataset in DATASETS:
        counts = list_photo_counts(dataset)
        shown = (counts[0], counts[len(counts) // 2], counts[-1])
        places = {
            n: [Place(dataset, n, row.loss, row.head, row.labels) for row in rows] for n in shown
        }
        if not all(place in of_plain.index for of_size in places.values() for place in of_size):
            continue
        compared.append(
            {
                'dataset': dataset,
                'names': [name_method(row) for row in rows],
                'gains': {n: list(of_plain.effect[of_size]) for n, of_size in places.items()},
                'leads': {
                    n: gains.estimate_gain(*of_plain.scores[of_size[:2]])
                    for n, of_size in places.items()
                },
            }
        )
    return compared


def _tabulate_gains(measured: pd.DataFrame, dataset: str) -> list[list[str]]:
    """AN's level and the gains over it as cells of a table, a line for each number of photos.

    Args:
        measured: as from `measure_gains`.
        dataset: one of `DATASETS`.
    """
    of_set = measured[(measured.dataset == dataset) & (measured.baseline == gains.PLAIN_HEAD)]
    methods = [row for row in METHODS if (row.loss, row.head) != AN]
    lines = [['training photos', 'AN, mAP in %', *map(name_method, methods)]]
    for n, part in of_set.groupby('photos'):
        by_method = part.set_index(['loss', 'head', 'labels'])
        effects = by_method.effect[by_method.gain.notna()]
        level = by_method.level.get((*AN, 'single'))
        line = [f'{n:,}', '–' if level is None else f'{level:.1f}']
        for row in methods:
            method = (row.loss, row.head, row.labels)
            line.append(str(effects[method]) if method in effects else '–')
        lines.append(line)
    return lines


def name_method(row: Row) -> str:
    """The name of a row of a search on pages."""
    name = board.describe_method(row.loss)['name']
    if row.labels == 'full':
        return f'{name}, all labels'
    return name if row.head == find(row.loss).head else f'{name}, {row.head} head'


def draw_gains(measured: pd.DataFrame) -> Figure:
    """Gains over plain AN by the number of training photos, a panel per set."""
    gained = measured[(measured.baseline == gains.PLAIN_HEAD) & measured.gain.notna()]
    sets = list(dict.fromkeys(gained.dataset))
    figure, axes = drawing.make_axes(1, len(sets), 3.4, 3.0)
    shown = [row for row in METHODS if (row.loss, row.head) != AN and row.labels == 'single']
    for ax, dataset in zip(axes[0], sets, strict=True):
        for ink, row in zip(drawing.INK, shown, strict=False):
            of_row = gained[
                (gained.dataset == dataset)
                & (gained.loss == row.loss)
                & (gained['head'] == row.head)
            ]
            ax.errorbar(
                of_row.photos,
                of_row.gain,
                of_row.gain_half,
                label=name_method(row),
                color=ink,
                linewidth=1.2,
                elinewidth=0.6,
            )
        ax.axhline(0, color='#999999', linewidth=0.8)
        ax.set_xscale('log', base=2)
        ticks = list_photo_counts(dataset)
        ax.set_xticks(ticks, [f'{n:,}' for n in ticks], rotation=45)
        ax.minorticks_off()
        ax.set_title(dataset)
        ax.set_xlabel('training photos, one label each')
    axes[0][0].set_ylabel('points of mAP over AN')
    drawing.draw_legend(figure)
    return figure


def write_more_photos(record: pd.DataFrame) -> list[Path]:
    """Write `more_photos.csv`, `more_photos.md` and `more_photos.svg` in the setting `outputs`, if
    there is a gain.

    Args:
        record: as from `tables.read_recorded_runs`.

    Returns:
        The files that changed.
    """
    measured = measure_gains(record)
    if not len(measured) or not measured.gain.notna().any():
        return []
    columns = [*Place._fields, 'baseline', 'level', 'level_half', 'n', 'gain', 'gain_half', 'late']
    trained = {name: measured.photos[measured.dataset == name].nunique() for name in DATASETS}
    sets = [name for name, done in trained.items() if done]
    slopes = change_per_doubling(measured, gains.PLAIN_HEAD)
    same_head = change_per_doubling(measured, gains.SAME_HEAD)
    page = render_template(
        'more_photos.md',
        protocol=describe_protocol(SUITE, sets, len(SEEDS)),
        tables={name: _tabulate_gains(measured, name) for name in sets},
        slope_sets=list(dict.fromkeys(slopes.dataset)),
        slopes=_tabulate_slopes(slopes, sets),
        same_head=_tabulate_slopes(same_head, sets),
        **_directions(slopes),
        late=measured.groupby('photos').late.mean(),
        rejected=measure_rejection(record),
        missing={
            name: done for name, done in trained.items() if done < len(list_photo_counts(name))
        },
        planned={name: len(list_photo_counts(name)) for name in DATASETS},
    )
    return write_outputs(
        {
            'more_photos.csv': format_csv(measured[columns]),
            'more_photos.md': page,
            'more_photos.svg': drawing.to_svg(lambda: draw_gains(measured)).decode(),
        }
    )


def _directions(slopes: pd.DataFrame) -> dict[str, list[str]]:
    "Methods by what the mean of their slopes over the sets says of the gain."
    directions = {'falling': [], 'rising': [], 'unclear': []}
    for row in METHODS:
        effects = list(_slopes_of(row, slopes).effect)
        if row.labels == 'full' or not effects:
            continue
        mean = pool_effects(effects)
        sign = 'falling' if mean.high < 0 else 'rising' if mean.low > 0 else 'unclear'
        directions[sign].append(name_method(row))
    return directions


def _slopes_of(row: Row, slopes: pd.DataFrame) -> pd.DataFrame:
    method = (slopes.loss == row.loss) & (slopes['head'] == row.head)
    return slopes[method & (slopes.labels == row.labels)]


def _tabulate_slopes(slopes: pd.DataFrame, sets: list[str]) -> list[list[str]]:
    """Changes per doubling as cells of a table, with their mean where there are several sets.

    Args:
        slopes: as from `change_per_doubling`.
        sets: the columns.
    """
    lines = [['method', *sets, 'mean']]
    for row in METHODS:
        effects = _slopes_of(row, slopes).set_index('dataset').effect
        if len(effects):
            lines.append([name_method(row), *format_effects(effects, sets)])
    return lines if len(sets) > 1 else [line[:-1] for line in lines]


EXPERIMENT = Experiment(
    make_chosen_sweep(plan_searches, SEEDS), lambda record, measured: write_more_photos(record)
)
