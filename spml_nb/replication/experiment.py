"""An experiment of the study: what `spml sweep NAME` trains, and the pages that come of it."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pandas as pd

from ..runs.config import Config
from ..sweeps import queue
from ..sweeps.search import choose_config


@dataclass(frozen=True)
class Experiment:
    """Runs of some sets of photos, and what is written of them.

    Attributes:
        sweep: trains what is missing, from names of sets of photos (none: all of them) and dry_run,
            tell, engine, address and jobs, as in `sweeps.run_stages`; gives its table.
        write: writes the pages from the record (as from `tables.record`) and all gains (as from
            `gains.gains_of_suites`); gives the files that changed.
    """

    sweep: Callable[..., pd.DataFrame]
    write: Callable[[pd.DataFrame, pd.DataFrame], list[Path]]


Place = TypeVar('Place', bound=Hashable)


def plan_chosen_runs(
    searches: dict[Place, list[Config]], known: pd.DataFrame, seeds: Iterable[int]
) -> dict[Place, list[Config]]:
    """The runs with fresh seeds, as far as searches have chosen them.

    Args:
        searches: the runs that are tried at each place.
        known: finished runs, as from `sweeps.finished` or `tables.record`.
        seeds: of observed labels and training.

    Returns:
        {place: a run for each seed}, without the places whose search lacks a run.
    """
    seeds = list(seeds)
    chosen = {place: choose_config(tried, known) for place, tried in searches.items()}
    return {
        place: [best.changed(seed=seed, label_seed=seed) for seed in seeds]
        for place, best in chosen.items()
        if best
    }


def make_staged_sweep(
    search: Callable[[Iterable[str]], list[Config]],
    final: Callable[[pd.DataFrame, Iterable[str]], Iterable[Config]],
) -> Callable[..., pd.DataFrame]:
    """The `sweep` of an experiment whose final runs are chosen by a search.

    Args:
        search: gives the runs that are tried on sets of photos.
        final: gives the runs that finished ones (as from `sweeps.finished`) choose.
    """

    def sweep(datasets: Iterable[str] = (), **launch) -> pd.DataFrame:
        """Train what is still needed; what is done is never run again.

        Args:
            datasets: some sets of photos; none: all of them.
            launch: dry_run, tell, engine, address and jobs, as in `sweeps.run_stages`.
        """
        datasets = list(datasets)
        return queue.run_stages(search(datasets), lambda known: final(known, datasets), **launch)

    return sweep
