"""LAC searched in two steps, as in its paper: the first stage by itself, then the second."""

# On the boards one search of ten draws has to find the constants of both stages of LAC. The paper
# fixes those of the first stage before it looks at the second. Here likewise: rate and δ are what
# the search of `lac_plc`, which is the first stage, has chosen, and ten draws search the second.
# These are twice as many draws as another method gets. The paper has one rate for both stages, and
# so has the first draw. In the others the second stage has a rate of its own, down to a hundredth
# of the first: at one rate it was best in its first epoch in nine of ten draws on voc12_animals.

from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

from ...methods.core import Choice
from ...runs.config import Config, resolve
from ...statistics import Scores
from ...sweeps import queue, search
from ...sweeps.search import (
    SEARCH_SEED,
    SUITES,
    Row,
    choose_config,
    draw_values,
    final_seeds,
    learning_rates,
    search_configs,
)
from ..published import PHOTOS_SUITE
from .core import Experiment, choose_sets, join_runs, plan_chosen_runs, tabulate_runs

FIRST = Row('lac_plc', 'labelwise')
LAC = Row('lac', 'labelwise')
SECOND_SEED = SEARCH_SEED + 3  # in the record it tells the two searches of LAC apart
SECOND_STAGE = {
    **{name: search.search_space('lac')[name] for name in ('stage2_threshold', 'temperature')},
    'queue': Choice((512, 1024, 2048, 4096, 8192)),  # K as in the paper
}
SLOWEST = 1 / 100  # of the first stage's rate


class Place(NamedTuple):
    """A set of photos."""

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
        start = first.changed(loss='lac', seed=SECOND_SEED, label_seed=SECOND_SEED)
        lr = resolve(first).lr
        rates = learning_rates(len(tried) - 1, usual=lr, between=(lr * SLOWEST, lr))
        searches[Place(dataset)] = [start] + [
            start.changed(stage2_lr=rate, hparams=first.hparams | _draw(k))
            for k, rate in enumerate(rates, start=1)
        ]
    return searches


def _draw(k: int) -> dict:
    return draw_values(f'second stage of lac {k}', SECOND_STAGE)


def plan_finals(record: pd.DataFrame, datasets: Iterable[str] = ()) -> dict[Place, list[Config]]:
    """The final runs, with the settings that the second search has chosen.

    Args:
        record, datasets: as in `plan_second_searches`.
    """
    seeds = final_seeds(LAC, PHOTOS_SUITE)
    return plan_chosen_runs(plan_second_searches(record, datasets), record, seeds)


def two_step_scores(record: pd.DataFrame) -> dict[str, Scores]:
    """Test mAP of LAC searched in two steps, for each set of photos with every run.

    Args:
        record: finished runs, as from `tables.read_recorded_runs`.
    """
    from ..gains import collect_scores  # needs scipy, which a packed sweep may lack

    runs = tabulate_runs(plan_finals(record), Place._fields, record)
    return {place.dataset: scores for place, scores in collect_scores(runs, Place).items()}


def _sweep(datasets: Iterable[str] = (), *, dry_run: bool = False, **launch) -> pd.DataFrame:
    """Train the missing runs: the first search, the second, and what it chooses.

    Args:
        datasets: as in `plan_second_searches`.
        dry_run, launch: as in `sweeps.run_stages`.
    """
    chosen = choose_sets(datasets, SUITES[PHOTOS_SUITE]['datasets'])
    first = [run for name in chosen for run in search_configs(FIRST, PHOTOS_SUITE, name)]
    table = queue.run_stages(
        first,
        lambda record: join_runs(plan_second_searches(record, chosen)),
        dry_run=dry_run,
        **launch,
    )
    if not dry_run and (table.state == 'missing').any():
        return table  # interrupted
    second = join_runs(plan_second_searches(queue.load_finished_runs(), chosen))
    finals = queue.run_stages(
        second, lambda record: join_runs(plan_finals(record, chosen)), dry_run=dry_run, **launch
    )
    return pd.concat([table, finals], ignore_index=True).drop_duplicates('run')


# the page of the paper says what came of it
EXPERIMENT = Experiment(_sweep, write=lambda record, measured: [])
