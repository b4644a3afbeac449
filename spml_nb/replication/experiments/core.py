"""An experiment of the study: what `spml sweep NAME` trains, and the pages that come of it."""

from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd

from ...base import settings
from ...base.errors import one_of
from ...base.files import write_arrays, write_atomically
from ...runs.config import Config
from ...sweeps import queue
from ...sweeps.search import choose_config


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


@dataclass(frozen=True)
class Measurements:
    """What an experiment measures on the logits of runs, which the record of runs does not have: a
    table and arrays by set of photos, `NAME.csv` and `NAME.npz` in the setting `outputs`.

    Attributes:
        name: of the files.
        text: columns that are no numbers, of which `dataset` is one.
    """

    name: str
    text: tuple[str, ...]

    def read(self) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
        """The table and {set of photos: array}; without a line where nothing is measured yet."""
        folder = settings.path('outputs')
        if not (folder / f'{self.name}.csv').is_file():
            return pd.DataFrame(columns=self.text), {}
        table = pd.read_csv(folder / f'{self.name}.csv', dtype=dict.fromkeys(self.text, str))
        return table, dict(np.load(folder / f'{self.name}.npz'))

    def add(self, lines: pd.DataFrame, images: dict[str, np.ndarray]):
        """Write down what was measured on further sets of photos."""
        known, known_images = self.read()
        table = pd.concat([known, lines], ignore_index=True) if len(known) else lines
        text = table.round(4).to_csv(index=False, lineterminator='\n')
        folder = settings.path('outputs')
        write_arrays(folder / f'{self.name}.npz', known_images | images)
        write_atomically(folder / f'{self.name}.csv', text)


def make_measuring_sweep(
    measurements: Measurements,
    every: tuple[str, ...],
    plan: Callable[[str], list[Config]],
    measure: Callable[[list[Config]], tuple[pd.DataFrame, np.ndarray]],
) -> Callable[..., pd.DataFrame]:
    """The `sweep` of an experiment that measures runs while it has their logits.

    Args:
        measurements: where they are kept.
        every: the sets of photos.
        plan: gives the runs of a set.
        measure: trains and measures them; a function of a module, which other processes can import.
    """

    def sweep(
        datasets: Iterable[str] = (),
        *,
        dry_run: bool = False,
        tell: Callable[[str], None] = print,
        jobs: int = 1,
        engine: str = 'local',
        address: str | None = None,
    ) -> pd.DataFrame:
        """Train and measure what is missing, one set of photos after another.

        Args:
            datasets: some sets of photos; none: all of them.
            dry_run: only say how much there is.
            tell: is given the lines.
            jobs: sets of photos at a time, on this machine.
            engine, address: as in `sweeps.run`; only 'local' is possible.

        Returns:
            DataFrame as from `sweeps.plan_runs`, of what was missing.

        Raises:
            SpmlError: for another set of photos or engine, and as `plan`.
        """
        queue.check_launch(one_of(engine, ('local',), 'engine'), address, jobs)
        names = [one_of(name, every, 'set of photos') for name in datasets] or list(every)
        measured = set(measurements.read()[0].dataset)
        missing = {name: plan(name) for name in names if name not in measured}
        runs = [config for configs in missing.values() for config in configs]
        table = queue.plan_runs(runs, queue.finished()).assign(state='missing')
        line = f'{len(runs)} runs of {len(missing)} of {len(names)} sets of photos are missing.'
        if missing:
            line += f' One after another: {queue.describe_length(table)}.'
        tell(line)
        if dry_run or not missing:
            return table
        with ProcessPoolExecutor(jobs, mp_context=get_context('spawn')) as pool:
            found = pool.map(measure, missing.values())
            for name, (lines, images) in zip(missing, found, strict=True):
                measurements.add(lines, {name: images})
                tell(f'{name}: done')
        return table.assign(state='done')

    return sweep
