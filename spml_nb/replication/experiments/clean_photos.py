"""What are fully labelled photos best used for: to choose, to be trained on, or both?"""

# Whoever chooses epoch and settings on fully labelled validation photos could train on them as
# well. But what is trained on cannot choose: its mAP is near 100 % after some epochs, whatever the
# method. So half of the validation photos is trained on and the other half chooses, drawn anew
# with every seed, and every use of the photos has to live with the choice that it leaves: the
# loss of precision of a choice by half as many photos is a part of the price of training on the
# others. Both ways to train on half of them have the same photos in each half, the same number of
# steps an epoch, the same head, rates and draws. They differ in the photos with single labels, and
# in the loss: where nothing is unknown it is binary cross-entropy, whatever the method.

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ...base import settings
from ...runs.config import Config
from ...statistics import Effect, Scores, pool_effects
from ...sweeps.boards import board_rows
from ...sweeps.queue import key
from ...sweeps.search import SUITES, Row, candidates, choose_config, finals, look_up_scores
from .. import gains, site
from ..rendering import render_template
from .core import Experiment, make_staged_sweep

SUITE = 'photos'
DATASETS = tuple(SUITES[SUITE]['datasets'])
SEEDS = range(5)  # of final runs
METHODS = (Row('an', 'linear'), Row('em', 'linear'), Row('hml', 'cosine'))
WITHOUT_SINGLES = (Row('bce', 'linear', 'full'), Row('bce', 'cosine', 'full'))


class Use(StrEnum):
    """What the validation photos do, and what is trained on beside them."""

    CHOOSE = 'single labels train, all of them choose'
    BESIDE = 'half trains beside the single labels, half chooses'
    ALONE = 'half trains alone, half chooses'
    AS_MANY = 'as many others train alone, all of them choose'


ROWS = {
    Use.CHOOSE: METHODS,
    Use.BESIDE: METHODS,
    Use.ALONE: WITHOUT_SINGLES,
    Use.AS_MANY: (),  # of the board
}
TRAINED = {Use.BESIDE: 'beside', Use.ALONE: 'alone'}


class Place(NamedTuple):
    """A method under a use of the validation photos on a set of photos."""

    dataset: str
    use: Use
    loss: str
    head: str


def plan_search(use: Use, row: Row, dataset: str) -> list[Config]:
    """The search of a method under a use.

    Args:
        row: one of `ROWS[use]`, or of the board for `AS_MANY`.
        dataset: one of `DATASETS`.
    """
    return [
        config.changed(trained_validation=TRAINED.get(use, ''))
        for config in candidates(row, SUITE, dataset)
    ]


def plan_finals(use: Use, row: Row, dataset: str, known: pd.DataFrame) -> list[Config]:
    """The final runs of a method under a use, one a seed; none while its search is not through.

    Args:
        use, row, dataset: as in `plan_search`.
        known: finished runs, as from `sweeps.finished` or `tables.record`.
    """
    if use not in TRAINED:
        return finals(row, SUITE, dataset, known, SEEDS)
    best = choose_config(plan_search(use, row, dataset), known)
    return [best.changed(seed=seed, label_seed=seed) for seed in SEEDS] if best else []


def _rows(dataset: str) -> list[tuple[Use, Row]]:
    as_many = [row for row in board_rows(SUITE, dataset) if row.train_images]
    rows = ROWS | {Use.AS_MANY: as_many}
    return [(use, row) for use, of_use in rows.items() for row in of_use]


def plan_runs(known: pd.DataFrame, datasets: Iterable[str] = ()) -> pd.DataFrame:
    """The final runs, as far as the searches have chosen them.

    Args:
        known: as in `plan_finals`.
        datasets: some of `DATASETS`; none: all of them.

    Returns:
        DataFrame, one row per run: the fields of `Place`, seed, config, test_map and validation
        (percent, as from `look_up_scores`; NaN if it is not done).
    """
    runs = [
        (dataset, use, row.loss, row.head, config.seed, config)
        for dataset in datasets or DATASETS
        for use, row in _rows(dataset)
        for config in plan_finals(use, row, dataset, known)
    ]
    table = pd.DataFrame(runs, columns=[*Place._fields, 'seed', 'config'])
    scores = look_up_scores(table.config, known)[['test_map', 'validation']]
    return table.join(scores.set_axis(table.index))


def _all_tried(datasets: Iterable[str]) -> list[Config]:
    return [
        config
        for dataset in datasets or DATASETS
        for use, row in _rows(dataset)
        for config in plan_search(use, row, dataset)
    ]


sweep = make_staged_sweep(_all_tried, lambda known, datasets: plan_runs(known, datasets).config)


def collect_scores(runs: pd.DataFrame) -> dict[Place, Scores]:
    """The scores of each place with a run of every seed. runs: as from `plan_runs`."""
    return {
        Place(*names): Scores(
            of_place.set_index('seed').test_map, key(of_place.config.iloc[0]), dataset=names[0]
        )
        for names, of_place in runs.groupby([*Place._fields], sort=False)
        if of_place.test_map.notna().all()
    }


OVER_CHOICE = 'only choosing'  # what training on half of them adds to the same method
OVER_ALONE = 'without single labels'  # what the single labels add to training on half of them


def measure_gains(runs: pd.DataFrame) -> pd.DataFrame:
    """What each use reaches, and gains over the others.

    Args:
        runs: as from `plan_runs`.

    Returns:
        DataFrame as from `gains.gains_over_baselines`, one row per `Place` with a run of every seed
        and
        baseline: plain AN whose epoch and settings all validation photos choose
            (`gains.PLAIN_HEAD`),
        `OVER_CHOICE` and `OVER_ALONE`.
    """
    reached = collect_scores(runs)
    beside = [place for place in reached if place.use == Use.BESIDE]
    bases = {
        gains.PLAIN_HEAD: {
            place: Place(place.dataset, Use.CHOOSE, 'an', 'linear')
            for place in reached
            if place[1:] != (Use.CHOOSE, 'an', 'linear')
        },
        OVER_CHOICE: {place: place._replace(use=Use.CHOOSE) for place in beside},
        OVER_ALONE: {place: place._replace(use=Use.ALONE, loss='bce') for place in beside},
    }
    baselines = {
        name: {place: reached[base] for place, base in of.items() if base in reached}
        for name, of in bases.items()
    }
    return gains.gains_over_baselines(reached, baselines)


def tabulate_gains(measured: pd.DataFrame, baseline: str) -> list[list[str]]:
    """Gains over a baseline as cells of a table, with their mean over the sets that have one.

    Args:
        measured: as from `measure_gains`.
        baseline: one of its baselines.
    """
    gained = measured[(measured.baseline == baseline) & measured.gain.notna()]
    sets = list(dict.fromkeys(gained.dataset))
    lines = [['photos that choose or train', 'method', *sets, 'mean']]
    for (use, loss, head), part in gained.groupby(['use', 'loss', 'head'], sort=False):
        effects = part.set_index('dataset').effect
        cells = [str(effects[name]) if name in effects else '–' for name in sets]
        mean = str(pool_effects(list(effects))) if len(effects) == len(sets) else '–'
        name = loss if head == 'linear' else f'{loss}, {head} head'
        lines.append([use, name, *cells, mean])
    return lines


class UsesOfPhotos(NamedTuple):
    """What a method gains, the mean over all sets of photos.

    Attributes:
        choose: over plain AN, where all fully labelled photos choose.
        beside: over plain AN, where half of them is trained on beside the single labels.
        added: what the second adds to the first.
        lowest, highest: the same on single sets, in points of mAP.
    """

    choose: Effect
    beside: Effect
    added: Effect
    lowest: float
    highest: float


def average_uses(known: pd.DataFrame) -> dict[str, UsesOfPhotos]:
    """The uses of fully labelled photos by each of `METHODS` but AN.

    Args:
        known: as from `tables.record`.

    Returns:
        {method: UsesOfPhotos}, empty while one of them lacks a set.
    """
    measured = measure_gains(plan_runs(known)) if len(known) else pd.DataFrame()
    if not len(measured):
        return {}
    uses = {}
    for row in METHODS[1:]:
        of_method = measured[(measured.loss == row.loss) & measured.gain.notna()]
        each = [
            of_method[(of_method.use == use) & (of_method.baseline == baseline)]
            for use, baseline in (
                (Use.CHOOSE, gains.PLAIN_HEAD),
                (Use.BESIDE, gains.PLAIN_HEAD),
                (Use.BESIDE, OVER_CHOICE),
            )
        ]
        if any(set(part.dataset) != set(DATASETS) for part in each):
            return {}
        means = [pool_effects(list(part.effect)) for part in each]
        uses[row.loss] = UsesOfPhotos(*means, each[-1].gain.min(), each[-1].gain.max())
    return uses


def write_clean_photos(known: pd.DataFrame) -> list[Path]:
    """Write `clean_photos.csv` and `clean_photos.md` in the setting `outputs`, if photos of
    validation were trained on.

    Args:
        known: as from `tables.record`.

    Returns:
        The files that changed.
    """
    measured = measure_gains(plan_runs(known)) if len(known) else pd.DataFrame({'use': []})
    done = set(measured.dataset[measured.use == Use.BESIDE]) if len(measured) else set()
    if not done:
        return []
    measured = measured[measured.dataset.isin(done)]
    folder = settings.path('outputs')
    columns = [*Place._fields, 'baseline', 'level', 'level_half', 'n', 'gain', 'gain_half']
    page = render_template(
        'clean_photos.md',
        protocol=site.describe_protocol(
            SUITE, [name for name in DATASETS if name in done], len(SEEDS)
        ),
        tables={
            name: tabulate_gains(measured, name)
            for name in (gains.PLAIN_HEAD, OVER_CHOICE, OVER_ALONE)
        },
        plain=gains.PLAIN_HEAD,
        over_choice=OVER_CHOICE,
        over_alone=OVER_ALONE,
        missing=[name for name in DATASETS if name not in done],
    )
    text = measured[columns].round(4).to_csv(index=False, lineterminator='\n')
    return site.write_changed({folder / 'clean_photos.md': page, folder / 'clean_photos.csv': text})


EXPERIMENT = Experiment(sweep, lambda known, measured: write_clean_photos(known))
