"""The whole network on photos of 224 pixels: which methods help there, and with which optimiser?"""

# An epoch of the whole network takes a GPU, and GPUs often stand where there is no internet:
# `spml sweep whole_network --pack FOLDER` writes what to carry there. Rates differ less than seeds
# do, so each is tried with two seeds and the better mean is chosen. OPML and LL-R were published
# with SGD, the methods they are compared with with Adam: so four losses are trained with both.

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ...base import settings
from ...base.errors import one_of
from ...runs.config import Config
from ...sweeps.boards import suite_rows
from ...sweeps.queue import key, run_stages
from ...sweeps.search import (
    SEARCH_SEED,
    Row,
    candidates,
    draw_hparams,
    learning_rates,
    look_up_scores,
)
from .core import Experiment

# what writes the page is imported there: a packed sweep plans without scipy

SUITE = 'photos_finetune'  # whose methods, heads and settings are taken
DATASETS = ('voc12_animals', 'coco18', 'cub_crops')
IMAGE_SIZE = 224
DRAWS = 5
SEARCH_SEEDS = (SEARCH_SEED, SEARCH_SEED + 1)  # never of a final run
FINAL_SEEDS = range(5)
OPTIMIZED = ('an', 'zlpr', 'llr', 'opml_sp')  # losses that are trained with either optimiser
RATES = {  # the usual rate, and the ends of the range
    'adam': {'usual': 1e-4, 'between': (3e-5, 1e-3)},  # as in the suite
    'sgd': {'usual': 1e-2, 'between': (1e-3, 3e-2)},
}


class Arm(NamedTuple):
    """A method with an optimiser.

    Attributes:
        optimizer: 'adam' or 'sgd'; '' for that of the head's recipe, at the rates of Adam.
    """

    loss: str
    head: str
    labels: str
    optimizer: str


ARMS = [
    *(Arm(row.loss, row.head, row.labels, '') for row in suite_rows(SUITE)),
    *(Arm(loss, 'linear', 'single', name) for loss in OPTIMIZED for name in RATES),
]


def list_trials(arm: Arm, dataset: str) -> list[Config]:
    """The search of an arm: for each of the draws, a run for each of the search seeds.

    Args:
        dataset: one of `DATASETS`.
    """
    # settings that no set of the suite has for itself
    of_suite = candidates(Row(arm.loss, arm.head, arm.labels), SUITE, DATASETS[0])[0]
    base = of_suite.changed(dataset=dataset, image_size=IMAGE_SIZE)
    if arm.optimizer:
        base = base.changed(optimizer=arm.optimizer)
    rates = learning_rates(DRAWS, **RATES[arm.optimizer or 'adam'])
    return [
        base.changed(lr=rate, hparams=draw_hparams(arm.loss, k), seed=seed, label_seed=seed)
        for k, rate in enumerate(rates)
        for seed in SEARCH_SEEDS
    ]


def list_finals(arm: Arm, dataset: str, known: pd.DataFrame) -> list[Config]:
    """The runs with the draw whose mean validation score is the highest, one for each final seed;
    none while a run of the search is missing.

    Args:
        arm, dataset: as in `list_trials`.
        known: finished runs, as from `sweeps.finished` or `tables.record`.
    """
    trials = list_trials(arm, dataset)
    scores = look_up_scores(trials, known).validation.to_numpy()
    means = scores.reshape(DRAWS, len(SEARCH_SEEDS)).mean(1)
    if pd.isna(means).any():
        return []
    chosen = trials[len(SEARCH_SEEDS) * int(means.argmax())]
    return [chosen.changed(seed=seed, label_seed=seed) for seed in FINAL_SEEDS]


def plan_finals(known: pd.DataFrame, datasets: Iterable[str] = ()) -> pd.DataFrame:
    """The final runs of all arms, as far as they are chosen.

    Args:
        known: as in `list_finals`.
        datasets: some of `DATASETS`; none: all of them.

    Returns:
        DataFrame, one row per run: dataset, the fields of `Arm`, seed, config, test_map (percent;
        NaN if it is not done).
    """
    rows = [
        {'dataset': dataset, **arm._asdict(), 'seed': config.seed, 'config': config}
        for dataset in _sets(datasets)
        for arm in ARMS
        for config in list_finals(arm, dataset, known)
    ]
    table = pd.DataFrame(rows, columns=['dataset', *Arm._fields, 'seed', 'config'])
    return table.assign(test_map=look_up_scores(table.config, known).test_map.to_numpy())


def _sets(datasets: Iterable[str]) -> list[str]:
    return [one_of(name, DATASETS, 'set of photos') for name in datasets] or list(DATASETS)


def _sweep_whole_network(
    datasets: Iterable[str] = (), *, dry_run: bool = False, **launch
) -> pd.DataFrame:
    """Train what is still needed, one set after another; what is done is never run again.

    Args:
        datasets: as in `plan_finals`.
        dry_run, launch: as in `sweeps.run_stages`.
    """
    done = []
    for dataset in _sets(datasets):
        trials = [config for arm in ARMS for config in list_trials(arm, dataset)]
        final = partial(_chosen, dataset)
        done.append(run_stages(trials, final, dry_run=dry_run, **launch))
        if not dry_run and (done[-1].state == 'missing').any():
            break  # interrupted
    return pd.concat(done, ignore_index=True)


def _chosen(dataset: str, known: pd.DataFrame) -> Iterable[Config]:
    return plan_finals(known, [dataset]).config


OVER_ADAM = 'the same loss with Adam'


class Place(NamedTuple):
    """An arm on a set of photos."""

    dataset: str
    loss: str
    head: str
    labels: str
    optimizer: str


def outcome(runs: pd.DataFrame) -> pd.DataFrame:
    """What each arm reaches, and gains over AN and over Adam.

    Args:
        runs: as from `plan_finals`.

    Returns:
        DataFrame as from `gains.gains_over_baselines`, one row per `Place` with a run of every seed
        and baseline: AN on the same head with the same optimiser (`gains.SAME_HEAD`), and
        `OVER_ADAM` for what is trained with SGD.
    """
    from ...statistics import Scores
    from .. import gains

    reached = {}
    for names, of_place in runs.groupby([*Place._fields], sort=False):
        if of_place.test_map.notna().all():
            place = Place(*names)
            by_seed = of_place.set_index('seed').test_map
            reached[place] = Scores(by_seed, key(of_place.config.iloc[0]), dataset=place.dataset)
    bases = {
        gains.SAME_HEAD: {
            place: place._replace(loss='an', labels='single')
            for place in reached
            if place.loss != 'an'
        },
        OVER_ADAM: {
            place: place._replace(optimizer='adam') for place in reached if place.optimizer == 'sgd'
        },
    }
    baselines = {
        name: {place: reached[base] for place, base in of.items() if base in reached}
        for name, of in bases.items()
    }
    return gains.gains_over_baselines(reached, baselines)


def write_whole_network(known: pd.DataFrame) -> list[Path]:
    """Write `fine_tuning.csv` and `fine_tuning.md` in the setting `outputs`, if final runs are
    done.

    Args:
        known: as from `tables.record`.

    Returns:
        The files that changed.
    """
    measured = outcome(plan_finals(known)) if len(known) else pd.DataFrame()
    if not len(measured):
        return []
    from .. import gains, site
    from ..rendering import render_template

    done = [name for name in DATASETS if name in set(measured.dataset)]
    columns = [*Place._fields, 'baseline', 'level', 'level_half', 'n', 'gain', 'gain_half']
    page = render_template(
        'fine_tuning.md',
        size=IMAGE_SIZE,
        draws=DRAWS,
        search_seeds=len(SEARCH_SEEDS),
        seeds=len(FINAL_SEEDS),
        over_an=_grid(measured[measured.optimizer == ''], gains.SAME_HEAD, done),
        optimizers=_grid(measured[measured.optimizer != ''], OVER_ADAM, done),
        missing=[name for name in DATASETS if name not in done],
    )
    folder = settings.path('outputs')
    text = measured[columns].round(4).to_csv(index=False, lineterminator='\n')
    return site.write_changed({folder / 'fine_tuning.md': page, folder / 'fine_tuning.csv': text})


def _grid(measured: pd.DataFrame, baseline: str, sets: list[str]) -> list[list[str]]:
    "A line for each arm: on each set its level, and the gain where there is one."
    lines = [['method', 'head', 'optimiser', *sets]]
    rows = measured[measured.baseline == baseline]
    for names, of_arm in rows.groupby([*Arm._fields], sort=False):
        arm = Arm(*names)
        on_set = {each.dataset: _cell(each) for each in of_arm.itertuples()}
        cells = [on_set.get(name, '–') for name in sets]
        lines.append([arm.loss, arm.head, arm.optimizer or 'of the head', *cells])
    return lines


def _cell(each) -> str:
    return f'{each.level:.1f}' if pd.isna(each.gain) else f'{each.level:.1f}; {each.effect}'


EXPERIMENT = Experiment(_sweep_whole_network, lambda known, measured: write_whole_network(known))
