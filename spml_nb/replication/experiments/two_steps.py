"""LAC searched in two steps, as in its paper: the first stage by itself, then the second."""

# On the boards one search of ten draws has to find the constants of both stages of LAC. The paper
# fixes those of the first stage before it looks at the second. Here likewise: rate and δ are what
# the search of `lac_plc`, which is the first stage, has chosen, and ten draws search the second.
# These are twice as many draws as another method gets. The paper has one rate for both stages.

from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

from ...methods.core import Choice
from ...runs.config import Config
from ...statistics import Scores
from ...sweeps import queue, search
from ...sweeps.search import (
    SEARCH_SEED,
    SUITES,
    Row,
    choose_config,
    draw_values,
    final_seeds,
    search_configs,
)
from ..gains import collect_scores
from ..published import PHOTOS_SUITE
from .core import Experiment, choose_sets, make_staged_sweep, plan_chosen_runs, tabulate_runs

FIRST = Row('lac_plc', 'labelwise')
LAC = Row('lac', 'labelwise')
SECOND_SEED = SEARCH_SEED + 3  # in the record it tells the two searches of LAC apart
SECOND_STAGE = {
    **{name: search.search_space('lac')[name] for name in ('stage2_threshold', 'temperature')},
    'queue': Choice((512, 1024, 2048, 4096, 8192)),  # K as in the paper
}


class Place(NamedTuple):
    dataset: str


def plan_second_searches(
    record: pd.DataFrame, datasets: Iterable[str] = ()
) -> dict[Place, list[Config]]:
    """The searches of the second stage.

    Args:
        record: as in `core.plan_chosen_runs`.
        datasets: some of the suite's; none: all of them.

    Returns:
        {place: a run for each draw, the paper's values first}, without sets of photos where the
        search of the first stage lacks a run.
    """
    searches = {}
    for dataset in choose_sets(datasets, SUITES[PHOTOS_SUITE]['datasets']):
        tried = search_configs(FIRST, PHOTOS_SUITE, dataset)
        first = choose_config(tried, record)
        if first is None:
            continue
        draws = [{}] + [
            draw_values(f'second stage of lac {k}', SECOND_STAGE) for k in range(1, len(tried))
        ]
        start = first.changed(loss='lac', seed=SECOND_SEED, label_seed=SECOND_SEED)
        searches[Place(dataset)] = [start.changed(hparams=first.hparams | draw) for draw in draws]
    return searches


def _list_searches(datasets: Iterable[str]) -> list[Config]:
    "The runs of both searches, as far as the first has chosen."
    chosen = choose_sets(datasets, SUITES[PHOTOS_SUITE]['datasets'])
    first = [run for name in chosen for run in search_configs(FIRST, PHOTOS_SUITE, name)]
    second = plan_second_searches(queue.load_finished_runs(), chosen)
    return first + [run for runs in second.values() for run in runs]


def _plan_finals(record: pd.DataFrame, datasets: Iterable[str] = ()) -> dict[Place, list[Config]]:
    seeds = final_seeds(LAC, PHOTOS_SUITE)
    return plan_chosen_runs(plan_second_searches(record, datasets), record, seeds)


def two_step_scores(record: pd.DataFrame) -> dict[str, Scores]:
    """Test mAP of LAC searched in two steps, for each set of photos with every run.

    Args:
        record: finished runs, as from `tables.read_recorded_runs`.
    """
    runs = tabulate_runs(_plan_finals(record), Place._fields, record)
    return {place.dataset: scores for place, scores in collect_scores(runs, Place).items()}


_sweep = make_staged_sweep(
    _list_searches,
    lambda record, datasets: [
        run for runs in _plan_finals(record, datasets).values() for run in runs
    ],
)
# the page of the paper says what came of it
EXPERIMENT = Experiment(_sweep, write=lambda record, measured: [])
