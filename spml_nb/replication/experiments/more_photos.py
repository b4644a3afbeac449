"""Do the gains of methods fall as photos become more? Each is searched anew at every number."""

# `worth` trains on parts of sets of some 4,000 photos, with the settings that all of them chose.
# Here the sets go on to 19,000 training photos, have five and two times the test photos, and every
# number of photos has a search of its own, AN's too, so that a gain that falls is no setting that
# has stopped to fit. Photos of validation and test are the same for all numbers.

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ... import drawing
from ...base import settings
from ...methods.core import find
from ...runs.config import Config
from ...statistics import Effect, Scores, estimate_effect, image_error, image_sd, pool_effects
from ...sweeps.queue import key
from ...sweeps.search import Row, candidates, look_up_scores
from .. import board, gains, site
from ..rendering import render_template
from .core import Experiment, make_staged_sweep, plan_chosen_runs

SUITE = 'photos'
DATASETS = {'coco18_30k': 'coco18', 'mirflickr14_10k': 'mirflickr14'}  # as what they are searched
TRAINING = {'coco18_30k': 19_200, 'mirflickr14_10k': 6_513}  # photos
FEWEST = 400  # training photos of a curve, or more
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


def sizes(dataset: str) -> list[int]:
    """Numbers of training photos, each half the next, rising to all of them."""
    halves = [TRAINING[dataset]]
    while halves[-1] // 2 >= FEWEST:
        halves.append(halves[-1] // 2)
    return halves[::-1]


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
            for config in candidates(row, SUITE, DATASETS[dataset])
        ]
        for dataset in datasets or DATASETS
        for n in sizes(dataset)
        for row in METHODS
    }


def plan_finals(known: pd.DataFrame, datasets: Iterable[str] = ()) -> dict[Place, list[Config]]:
    """The runs with fresh seeds, as far as the searches have chosen them.

    Args:
        known: finished runs, as from `sweeps.finished` or `tables.record`.
        datasets: some of `DATASETS`; none: all of them.
    """
    return plan_chosen_runs(plan_searches(datasets), known, SEEDS)


def _all_tried(datasets: Iterable[str]) -> list[Config]:
    return [config for tried in plan_searches(datasets).values() for config in tried]


def _all_finals(known: pd.DataFrame, datasets: Iterable[str]) -> list[Config]:
    return [config for runs in plan_finals(known, datasets).values() for config in runs]


def measure_gains(known: pd.DataFrame) -> pd.DataFrame:
    """What each method gains over AN on as many photos.

    Args:
        known: as in `plan_finals`.

    Returns:
        DataFrame as from `gains.gains_over_baselines`, one row per `Place` with a run of every
        seed, the baselines being `gains.SAME_HEAD` and `gains.PLAIN_HEAD`; and late (share of the
        runs whose best epoch is one of the last two).
    """
    scores, late = {}, {}
    for place, configs in plan_finals(known).items():
        lines = look_up_scores(configs, known)
        if lines.test_map.notna().all():
            by_seed = pd.Series(lines.test_map.to_numpy(), index=list(SEEDS))
            scores[place] = Scores(by_seed, key(configs[0]), dataset=place.dataset)
            late[place] = lines.late.mean()
    bases = {
        gains.SAME_HEAD: {p: p._replace(loss='an', labels='single') for p in scores},
        gains.PLAIN_HEAD: {
            p: p._replace(loss='an', labels='single', head='linear') for p in scores
        },
    }
    baselines = {
        name: {p: scores[base] for p, base in of.items() if base in scores and base != p}
        for name, of in bases.items()
    }
    found = gains.gains_over_baselines(scores, baselines)
    places = [
        Place(*place) for place in found.reindex(columns=Place._fields).itertuples(index=False)
    ]
    return found.assign(late=[late[place] for place in places])


def change_per_doubling(measured: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """By how much a gain changes when photos double: the slope of a line through the gains of all
    numbers of photos, least squares over log2, for each seed.

    Args:
        measured: as from `measure_gains`.
        baseline: one of its baselines.

    Returns:
        DataFrame, one row per set and method that has a gain at three numbers or more: dataset,
        loss, head, labels, effect (points of mAP).
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


def _slope(photos: np.ndarray, own: list[Scores], bases: list[Scores], dataset: str) -> Effect:
    steps = np.log2(photos) - np.log2(photos).mean()
    weights = steps / np.square(steps).sum()
    differences = np.array(
        [(a.by_seed - b.by_seed).to_numpy() for a, b in zip(own, bases, strict=True)]
    )
    names = [scores.resampled for scores in (*own, *bases)]
    images = image_error(names, [*weights, *-weights], image_sd(dataset))
    return estimate_effect(weights @ differences, None, images)


def compare_sizes(measured: pd.DataFrame, rows: Iterable[Row]) -> dict[str, Any]:
    """What some methods gain over plain AN with few, some and many photos of a set.

    Args:
        measured: as from `measure_gains`.
        rows: some of `METHODS`.

    Returns:
        'dataset', the first set that has the runs of its fewest photos, of four times as many and
        of the most; 'names' of the rows; 'gains' {photos: `Effect`s of the rows}. {} without such.
    """
    if not len(measured):
        return {}
    rows = list(rows)
    of_plain = measured[(measured.baseline == gains.PLAIN_HEAD) & measured.gain.notna()]
    effects = of_plain.set_index([*Place._fields]).effect
    for dataset in DATASETS:
        few, _, some, *_, many = sizes(dataset)
        if {few, some, many} <= set(of_plain.photos[of_plain.dataset == dataset]):
            return {
                'dataset': dataset,
                'names': [name_method(row) for row in rows],
                'gains': {
                    n: [effects[dataset, n, row.loss, row.head, row.labels] for row in rows]
                    for n in (few, some, many)
                },
            }
    return {}


def tabulate_gains(measured: pd.DataFrame, dataset: str) -> list[list[str]]:
    """Gains over plain AN as cells of a table, a line per number of photos, behind AN's level.

    Args:
        measured: as from `measure_gains`.
        dataset: one of `DATASETS`.
    """
    of_set = measured[(measured.dataset == dataset) & (measured.baseline == gains.PLAIN_HEAD)]
    methods = [row for row in METHODS if (row.loss, row.head) != AN]
    lines = [['training photos', 'AN, mAP in %', *map(name_method, methods)]]
    for n, part in of_set.groupby('photos'):
        cells = part.set_index(['loss', 'head', 'labels'])
        level = cells.loc[(*AN, 'single')] if (*AN, 'single') in cells.index else None
        line = [f'{n:,}', f'{level.level:.1f}' if level is not None else '–']
        for row in methods:
            place = (row.loss, row.head, row.labels)
            known = place in cells.index and cells.gain[place] == cells.gain[place]
            line.append(str(cells.effect[place]) if known else '–')
        lines.append(line)
    return lines


def name_method(row: Row) -> str:
    """What pages call a row."""
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
        ticks = sizes(dataset)
        ax.set_xticks(ticks, [f'{n:,}' for n in ticks], rotation=45)
        ax.minorticks_off()
        ax.set_title(dataset)
        ax.set_xlabel('training photos, one label each')
    axes[0][0].set_ylabel('points of mAP over AN')
    drawing.draw_legend(figure)
    return figure


def write_more_photos(known: pd.DataFrame) -> list[Path]:
    """Write `more_photos.csv`, `more_photos.md` and `more_photos.svg` in the setting `outputs`, if
    there are runs.

    Args:
        known: as from `tables.record`.

    Returns:
        The files that changed.
    """
    measured = measure_gains(known)
    if not len(measured) or not measured.gain.notna().any():
        return []
    folder = settings.path('outputs')
    columns = [*Place._fields, 'baseline', 'level', 'level_half', 'n', 'gain', 'gain_half', 'late']
    trained = {name: measured.photos[measured.dataset == name].nunique() for name in DATASETS}
    sets = [name for name, done in trained.items() if done]
    slopes = change_per_doubling(measured, gains.PLAIN_HEAD)
    same_head = change_per_doubling(measured, gains.SAME_HEAD)
    page = render_template(
        'more_photos.md',
        protocol=site.describe_protocol(SUITE, sets, len(SEEDS)),
        tables={name: tabulate_gains(measured, name) for name in sets},
        slope_sets=list(dict.fromkeys(slopes.dataset)),
        slopes=tabulate_slopes(slopes, sets),
        same_head=tabulate_slopes(same_head, sets),
        **_directions(slopes),
        late=measured.groupby('photos').late.mean(),
        missing={name: done for name, done in trained.items() if done < len(sizes(name))},
        planned={name: len(sizes(name)) for name in DATASETS},
    )
    return site.write_changed(
        {
            folder / 'more_photos.csv': measured[columns]
            .round(4)
            .to_csv(index=False, lineterminator='\n'),
            folder / 'more_photos.md': page,
            folder / 'more_photos.svg': drawing.to_svg(lambda: draw_gains(measured)).decode(),
        }
    )


def _directions(slopes: pd.DataFrame) -> dict[str, list[str]]:
    "Which methods' gains fall, rise, or neither, on the mean of the sets."
    found = {'falling': [], 'rising': [], 'unclear': []}
    for row in METHODS:
        effects = list(_slopes_of(row, slopes).effect)
        if row.labels == 'full' or not effects:
            continue
        mean = pool_effects(effects)
        sign = 'falling' if mean.high < 0 else 'rising' if mean.low > 0 else 'unclear'
        found[sign].append(name_method(row))
    return found


def _slopes_of(row: Row, slopes: pd.DataFrame) -> pd.DataFrame:
    own = (slopes.loss == row.loss) & (slopes['head'] == row.head) & (slopes.labels == row.labels)
    return slopes[own]


def tabulate_slopes(slopes: pd.DataFrame, sets: list[str]) -> list[list[str]]:
    """Changes per doubling as cells of a table, with their mean where there are several sets.

    Args:
        slopes: as from `change_per_doubling`.
        sets: the columns.
    """
    several = len(sets) > 1
    lines = [['method', *sets, 'mean'] if several else ['method', *sets]]
    for row in METHODS:
        effects = _slopes_of(row, slopes).set_index('dataset').effect
        if len(effects):
            cells = [str(effects[name]) if name in effects else '–' for name in sets]
            mean = str(pool_effects(list(effects))) if len(effects) == len(sets) else '–'
            lines.append([name_method(row), *cells, *([mean] if several else [])])
    return lines


EXPERIMENT = Experiment(
    make_staged_sweep(_all_tried, _all_finals), lambda known, measured: write_more_photos(known)
)
