"""What are fully labelled photos best used for: to choose, to be trained on, or both?"""

# Whoever chooses epoch and settings on fully labelled validation photos could also train on them.
# But photos that are trained on cannot choose: their mAP is near 100 % after some epochs, whatever
# the method. So half of the validation photos is trained on and the other half chooses, drawn anew
# with every seed. That half as many photos choose less precisely is part of the price of training
# on the others. Both ways to train on half of them have the same photos in each half, the same
# number of steps per epoch, the same head, rates and draws. They differ in the photos with single
# labels, and in the loss: binary cross-entropy where all labels are observed.

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ...runs.config import Config
from ...statistics import Effect, pool_effects
from ...sweeps.boards import board_rows
from ...sweeps.search import SUITES, Row, choose_config, final_configs, search_configs
from .. import gains
from ..templates import describe_protocol, format_effects, render_template
from .core import Experiment, format_csv, make_staged_sweep, tabulate_runs, write_outputs

SUITE = 'photos'
DATASETS = tuple(SUITES[SUITE]['datasets'])
SEEDS = range(5)  # of final runs
METHODS = (Row('an', 'linear'), Row('em', 'linear'), Row('hml', 'cosine'))
WITHOUT_SINGLES = (Row('bce', 'linear', 'full'), Row('bce', 'cosine', 'full'))


class Use(StrEnum):
    """What fully labelled validation photos are used for."""

    CHOOSE = 'single labels train, all of them choose'
    BESIDE = 'half trains beside the single labels, half chooses'
    ALONE = 'half trains alone, half chooses'
    AS_MANY = 'as many others train alone, all of them choose'


ROWS = {
    Use.CHOOSE: METHODS,
    Use.BESIDE: METHODS,
    Use.ALONE: WITHOUT_SINGLES,
}  # and of the board for `Use.AS_MANY`, see `_rows`
TRAINED_VALIDATION = {Use.BESIDE: 'beside', Use.ALONE: 'alone'}


class Place(NamedTuple):
    """A method under a use of the validation photos on a set of photos."""

    dataset: str
    use: Use
    loss: str
    head: str


def plan_search(use: Use, row: Row, dataset: str) -> list[Config]:
    """The search of a method under a use.

    Args:
        row: one of `ROWS[use]`; for `AS_MANY` one of the board's.
        dataset: one of `DATASETS`.
    """
    return [
        config.changed(trained_validation=TRAINED_VALIDATION.get(use, ''))
        for config in search_configs(row, SUITE, dataset)
    ]


def plan_finals(use: Use, row: Row, dataset: str, record: pd.DataFrame) -> list[Config]:
    """The final runs of a method under a use, one per seed; none while its search lacks a run.

    Args:
        use, row, dataset: as in `plan_search`.
        record: finished runs, as from `sweeps.load_finished_runs` or `tables.read_recorded_runs`.
    """
    if use not in TRAINED_VALIDATION:
        return final_configs(row, SUITE, dataset, record, SEEDS)
    best = choose_config(plan_search(use, row, dataset), record)
    return [best.changed(seed=seed, label_seed=seed) for seed in SEEDS] if best else []


def _rows(dataset: str) -> list[tuple[Use, Row]]:
    as_many = [row for row in board_rows(SUITE, dataset) if row.train_images]
    rows = ROWS | {Use.AS_MANY: as_many}
    return [(use, row) for use, of_use in rows.items() for row in of_use]


def plan_runs(record: pd.DataFrame, datasets: Iterable[str] = ()) -> pd.DataFrame:
    """The final runs whose settings are chosen.

    Args:
        record: as in `plan_finals`.
        datasets: some of `DATASETS`; none: all of them.

    Returns:
        DataFrame as from `core.tabulate_runs`, the places being `Place`s.
    """
    configs = {
        Place(dataset, use, row.loss, row.head): plan_finals(use, row, dataset, record)
        for dataset in datasets or DATASETS
        for use, row in _rows(dataset)
    }
    return tabulate_runs(configs, Place._fields, record)


def _plan_searches(datasets: Iterable[str]) -> list[Config]:
    return [
        config
        for dataset in datasets or DATASETS
        for use, row in _rows(dataset)
        for config in plan_search(use, row, dataset)
    ]


OVER_CHOICE = 'only choosing'  # what training on half of them adds to the same method
OVER_ALONE = 'without single labels'  # what the single labels add to training on half of them


def measure_gains(runs: pd.DataFrame) -> pd.DataFrame:
    """What each use reaches, and gains over the others.

    Args:
        runs: as from `plan_runs`.

    Returns:
        DataFrame as from `gains.gains_over_baselines`, one row per `Place` with a run of every seed
        and baseline: plain AN whose epoch and settings all validation photos choose
        (`gains.PLAIN_HEAD`), `OVER_CHOICE` and `OVER_ALONE`.
    """
    reached = gains.collect_scores(runs, Place)
    plain = {place: Place(place.dataset, Use.CHOOSE, 'an', 'linear') for place in reached}
    beside = [place for place in reached if place.use == Use.BESIDE]
    bases = {
        gains.PLAIN_HEAD: {place: base for place, base in plain.items() if place != base},
        OVER_CHOICE: {place: place._replace(use=Use.CHOOSE) for place in beside},
        OVER_ALONE: {place: place._replace(use=Use.ALONE, loss='bce') for place in beside},
    }
    return gains.gains_over_baselines(reached, bases)


def _tabulate_gains(measured: pd.DataFrame, baseline: str) -> list[list[str]]:
    """Gains over a baseline as cells of a table, with their mean over the sets that have one.

    Args:
        measured: as from `measure_gains`.
        baseline: one of its baselines.
    """
    gained = measured[(measured.baseline == baseline) & measured.gain.notna()]
    sets = list(dict.fromkeys(gained.dataset))
    lines = [['photos that choose or train', 'method', *sets, 'mean']]
    for (use, loss, head), part in gained.groupby(['use', 'loss', 'head'], sort=False):
        name = loss if head == 'linear' else f'{loss}, {head} head'
        cells = format_effects(part.set_index('dataset').effect, sets)
        lines.append([use, name, *cells])
    return lines


class UsesOfPhotos(NamedTuple):
    """What a method gains, the mean over all sets of photos.

    Attributes:
        choose: over plain AN, where all fully labelled photos choose.
        beside: over plain AN, where half of them is trained on beside the single labels.
        added: what `beside` adds to `choose`.
        lowest, highest: `added` on single sets, in points of mAP.
    """

    choose: Effect
    beside: Effect
    added: Effect
    lowest: float
    highest: float


def _select_gains(measured: pd.DataFrame, use: Use, row: Row, baseline: str) -> pd.DataFrame:
    "The rows of `measure_gains` with a method's gains; none while a set of photos lacks its gain."
    gained = measured[
        (measured.use == use)
        & (measured.loss == row.loss)
        & (measured['head'] == row.head)
        & (measured.baseline == baseline)
        & measured.gain.notna()
    ]
    return gained if set(gained.dataset) == set(DATASETS) else gained[:0]


def average_uses(record: pd.DataFrame) -> dict[str, UsesOfPhotos]:
    """The uses of fully labelled photos by each of `METHODS` but AN.

    Args:
        record: as from `tables.read_recorded_runs`.

    Returns:
        {method: UsesOfPhotos}, empty while one of them lacks a set.
    """
    measured = measure_gains(plan_runs(record))
    if not len(measured):
        return {}
    uses = {}
    for row in METHODS[1:]:
        choose = _select_gains(measured, Use.CHOOSE, row, gains.PLAIN_HEAD)
        beside = _select_gains(measured, Use.BESIDE, row, gains.PLAIN_HEAD)
        added = _select_gains(measured, Use.BESIDE, row, OVER_CHOICE)
        parts = (choose, beside, added)
        if not all(map(len, parts)):
            return {}
        means = [pool_effects(list(part.effect)) for part in parts]
        uses[row.loss] = UsesOfPhotos(*means, added.gain.min(), added.gain.max())
    return uses


def average_alone(measured: pd.DataFrame) -> Effect | None:
    """What binary cross-entropy gains over plain AN on half of the fully labelled validation photos
    alone, while the other half chooses: the mean over all sets of photos, None while one lacks it.

    Args:
        measured: as from `measure_gains`.
    """
    if not len(measured):
        return None
    alone = _select_gains(measured, Use.ALONE, WITHOUT_SINGLES[0], gains.PLAIN_HEAD)
    return pool_effects(list(alone.effect)) if len(alone) else None


def _summarize_singles(measured: pd.DataFrame) -> dict[str, dict]:
    """What single labels add to training on half of the fully labelled photos.

    Args:
        measured: as from `measure_gains`.

    Returns:
        {method: {'mean' over the sets of photos, 'none_on' ({set: effect} where the interval does
        not exclude 0), 'lost_on' ({set: effect} where they cost)}}.
    """
    over_alone = measured[(measured.baseline == OVER_ALONE) & measured.gain.notna()]
    singles = {}
    for loss, part in over_alone.groupby('loss', sort=False):
        effects = dict(zip(part.dataset, part.effect, strict=True))
        singles[loss] = {
            'mean': pool_effects(list(part.effect)),
            'none_on': {name: each for name, each in effects.items() if each.low <= 0 <= each.high},
            'lost_on': {name: each for name, each in effects.items() if each.high < 0},
        }
    return singles


def write_clean_photos(record: pd.DataFrame) -> list[Path]:
    """Write `clean_photos.csv` and `clean_photos.md` in the setting `outputs`, of the sets whose
    validation photos were trained on.

    Args:
        record: as from `tables.read_recorded_runs`.

    Returns:
        The files that changed.
    """
    measured = measure_gains(plan_runs(record))
    done = set(measured.dataset[measured.use == Use.BESIDE]) if len(measured) else set()
    if not done:
        return []
    measured = measured[measured.dataset.isin(done)]
    columns = [*Place._fields, 'baseline', 'level', 'level_half', 'n', 'gain', 'gain_half']
    page = render_template(
        'clean_photos.md',
        protocol=describe_protocol(SUITE, [name for name in DATASETS if name in done], len(SEEDS)),
        tables={
            name: _tabulate_gains(measured, name)
            for name in (gains.PLAIN_HEAD, OVER_CHOICE, OVER_ALONE)
        },
        sets=len(done),
        singles=_summarize_singles(measured),
        plain=gains.PLAIN_HEAD,
        over_choice=OVER_CHOICE,
        over_alone=OVER_ALONE,
        missing=[name for name in DATASETS if name not in done],
    )
    return write_outputs(
        {'clean_photos.md': page, 'clean_photos.csv': format_csv(measured[columns])}
    )


EXPERIMENT = Experiment(
    make_staged_sweep(_plan_searches, lambda record, datasets: plan_runs(record, datasets).config),
    lambda record, measured: write_clean_photos(record),
)
