"""The whole network on photos of 224 pixels: which methods help there, and with which optimiser?"""

# To train the whole network takes a GPU, and GPU machines often have no internet access:
# `spml sweep whole_network --pack FOLDER` writes what to carry there. Rates differ less than seeds
# do, so each rate is tried with two seeds and the best mean is chosen. OPML and LL-R were published
# with SGD, the methods they are compared with were run with Adam: so four losses are trained with
# both. The board's runs of whole networks, on smaller photos, are compared with those of a head
# alone.

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ...runs.config import Config
from ...sweeps.boards import suite_rows
from ...sweeps.queue import run_stages
from ...sweeps.search import (
    SEARCH_SEED,
    SUITES,
    Row,
    choose_by_mean,
    draw_hparams,
    learning_rates,
    look_up_scores,
    search_configs,
)
from ..published import PHOTOS_SUITE
from .core import Experiment, choose_sets, format_csv, tabulate_runs, write_outputs

# `gains`, `board` and `templates` are imported where they are used: a packed sweep plans without
# scipy

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
    """The search of an arm: every draw of the settings with every search seed.

    Args:
        dataset: one of `DATASETS`.
    """
    # with the settings that all sets of the suite share
    of_suite = search_configs(Row(arm.loss, arm.head, arm.labels), SUITE, DATASETS[0])[0]
    base = of_suite.changed(dataset=dataset, image_size=IMAGE_SIZE)
    if arm.optimizer:
        base = base.changed(optimizer=arm.optimizer)
    rates = learning_rates(DRAWS, **RATES[arm.optimizer or 'adam'])
    return [
        base.changed(lr=rate, hparams=draw_hparams(arm.loss, k), seed=seed, label_seed=seed)
        for k, rate in enumerate(rates)
        for seed in SEARCH_SEEDS
    ]


def list_finals(arm: Arm, dataset: str, record: pd.DataFrame) -> list[Config]:
    """The runs with the draw whose mean validation score is the highest, one for each final seed;
    none while a run of the search is missing.

    Args:
        arm, dataset: as in `list_trials`.
        record: finished runs, as from `sweeps.load_finished_runs` or `tables.read_recorded_runs`.
    """
    trials = list_trials(arm, dataset)
    of_seeds = [trials[k :: len(SEARCH_SEEDS)] for k in range(len(SEARCH_SEEDS))]
    chosen = choose_by_mean(of_seeds, record)
    if chosen is None:
        return []
    return [chosen.changed(seed=seed, label_seed=seed) for seed in FINAL_SEEDS]


class Place(NamedTuple):
    """An arm on a set of photos."""

    dataset: str
    loss: str
    head: str
    labels: str
    optimizer: str


def plan_finals(record: pd.DataFrame, datasets: Iterable[str] = ()) -> pd.DataFrame:
    """The final runs of all arms whose settings are chosen.

    Args:
        record: as in `list_finals`.
        datasets: some of `DATASETS`; none: all of them.

    Returns:
        DataFrame as from `core.tabulate_runs`, the places being `Place`s.
    """
    configs = {
        Place(dataset, *arm): list_finals(arm, dataset, record)
        for dataset in choose_sets(datasets, DATASETS)
        for arm in ARMS
    }
    return tabulate_runs(configs, Place._fields, record)


def _sweep_whole_network(
    datasets: Iterable[str] = (), *, dry_run: bool = False, **launch
) -> pd.DataFrame:
    """Train the missing runs, one set after another.

    Args:
        datasets: as in `plan_finals`.
        dry_run, launch: as in `sweeps.run_stages`.
    """
    tables = []
    for dataset in choose_sets(datasets, DATASETS):
        trials = [config for arm in ARMS for config in list_trials(arm, dataset)]
        final = partial(_plan_configs, dataset)
        table = run_stages(trials, final, dry_run=dry_run, **launch)
        tables.append(table)
        if not dry_run and (table.state == 'missing').any():
            break  # interrupted
    return pd.concat(tables, ignore_index=True)


def _plan_configs(dataset: str, record: pd.DataFrame) -> Iterable[Config]:
    return plan_finals(record, [dataset]).config


OVER_ADAM = 'the same loss with Adam'


def measure_gains(runs: pd.DataFrame) -> pd.DataFrame:
    """What each arm reaches, and gains over AN and over Adam.

    Args:
        runs: as from `plan_finals`.

    Returns:
        DataFrame as from `gains.gains_over_baselines`, one row per `Place` with a run of every seed
        and baseline: AN on the same head with the same optimiser (`gains.SAME_HEAD`), and
        `OVER_ADAM` for what is trained with SGD.
    """
    from .. import gains

    scores = gains.collect_scores(runs, Place)
    methods = [place for place in scores if place.loss != 'an']
    with_sgd = [place for place in scores if place.optimizer == 'sgd']
    bases = {
        gains.SAME_HEAD: {place: place._replace(loss='an', labels='single') for place in methods},
        OVER_ADAM: {place: place._replace(optimizer='adam') for place in with_sgd},
    }
    return gains.gains_over_baselines(scores, bases)


def write_whole_network(record: pd.DataFrame) -> list[Path]:
    """Write `fine_tuning.csv` and `fine_tuning.md` in the setting `outputs`, if a place has all its
    final runs.

    Args:
        record: as from `tables.read_recorded_runs`.

    Returns:
        The files that changed.
    """
    from .. import gains
    from ..templates import render_template

    measured = measure_gains(plan_finals(record))
    if not len(measured):
        return []
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
    return write_outputs({'fine_tuning.md': page, 'fine_tuning.csv': format_csv(measured[columns])})


def _grid(measured: pd.DataFrame, baseline: str, sets: list[str]) -> list[list[str]]:
    "A line for each arm: on each set its level, and the gain where there is one."
    lines = [['method', 'head', 'optimiser', *sets]]
    rows = measured[measured.baseline == baseline]
    for names, of_arm in rows.groupby([*Arm._fields], sort=False):
        arm = Arm(*names)
        by_set = {line.dataset: _cell(line) for line in of_arm.itertuples()}
        cells = [by_set.get(name, '–') for name in sets]
        lines.append([arm.loss, arm.head, arm.optimizer or 'of the head', *cells])
    return lines


def _cell(line) -> str:
    return f'{line.level:.1f}' if pd.isna(line.gain) else f'{line.level:.1f}; {line.effect}'


_KEYS = ['dataset', 'loss', 'head', 'labels']
_SHOWN = ['level', 'level_half', 'late', 'acted']


def levels_end_to_end(measured: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The test mAP of methods that train the whole network, beside a head on frozen features.

    Args:
        measured: as from `gains.gains_of_suites`.
        runs: as from `tables.read_recorded_runs`.

    Returns:
        DataFrame by dataset, loss, head and labels, the highest test mAP of a set first:

        - level, level_half, late, acted: as from `gains.join_baselines`
        - level_alone: of the head on frozen features
        - tried_low, tried_high: range of the test mAP in its search
    """
    from .. import gains

    gained = gains.join_baselines(measured[measured.choice == 'clean']).set_index(_KEYS)
    network = gained.loc[gained.suite == SUITE, _SHOWN]
    head_alone = gained.loc[gained.suite == PHOTOS_SUITE, ['level']]
    tried = [
        look_up_scores(search_configs(Row(*row), SUITE, dataset), runs).test_map
        for dataset, *row in network.index
    ]
    network = network.assign(
        tried_low=[scores.min() for scores in tried], tried_high=[scores.max() for scores in tried]
    )
    rows = network.join(head_alone.add_suffix('_alone'))
    return rows.sort_values(['dataset', 'level'], ascending=[True, False])


def format_end_to_end(gained: pd.DataFrame) -> str:
    """The page on training the whole network, in Markdown with links from `outputs/`.

    Args:
        gained: as from `levels_end_to_end`.
    """
    from .. import board
    from ..templates import page_headline, render_template

    if not len(gained):
        return 'None has runs yet.\n'
    rows = gained.reset_index()
    rows['notebook'] = [board.describe_method(loss)['notebook'] for loss in rows.loss]
    behind = (gained.level_alone - gained.level).dropna()
    not_run = {
        dataset: [
            f'{row.loss} ({row.head})'
            for row in suite_rows(SUITE)
            if (dataset, row.loss, row.head, row.labels) not in gained.index
        ]
        for dataset in SUITES[SUITE]['datasets']
    }
    return render_template(
        'whole_network.md',
        headline=page_headline(SUITE, rows.dataset.unique()),
        rows=rows.to_dict('records'),
        behind=behind[behind > 0],
        compared=len(behind),
        not_run={dataset: names for dataset, names in not_run.items() if names},
        suite=SUITE,
    )


EXPERIMENT = Experiment(_sweep_whole_network, lambda record, measured: write_whole_network(record))
