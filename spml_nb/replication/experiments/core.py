"""An experiment of the study: what `spml sweep NAME` trains, and the pages written of it."""

# Imports neither scipy nor matplotlib: a packed sweep plans without them.

from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd

from ...base import settings
from ...base.errors import require_one_of
from ...base.files import write_arrays, write_atomically, write_changed
from ...runs.config import Config
from ...sweeps import queue
from ...sweeps.search import choose_config, look_up_scores


@dataclass(frozen=True)
class Experiment:
    """Runs on some sets of photos, and the files written from them.

    Attributes:
        sweep: trains the missing runs. Takes names of sets of photos (none: all of them) and
            dry_run, tell, engine, address and jobs, as in `sweeps.run_stages`; returns its table.
        write: writes the pages from the record (as from `tables.read_recorded_runs`) and all gains
            (as from `gains.gains_of_suites`); returns the files that changed.
    """

    sweep: Callable[..., pd.DataFrame]
    write: Callable[[pd.DataFrame, pd.DataFrame], list[Path]]


Place = TypeVar('Place', bound=Hashable)


def choose_sets(datasets: Iterable[str], every: Iterable[str]) -> list[str]:
    """The sets of photos that an experiment is restricted to.

    Args:
        datasets: some of `every`; none: all of them.

    Raises:
        SpmlError: for another set.
    """
    return [require_one_of(name, every, 'set of photos') for name in datasets] or list(every)


def plan_chosen_runs(
    searches: dict[Place, list[Config]], record: pd.DataFrame, seeds: Iterable[int]
) -> dict[Place, list[Config]]:
    """The final runs, with the settings that searches chose.

    Args:
        searches: the runs that are tried at each place.
        record: finished runs, as from `sweeps.load_finished_runs` or `tables.read_recorded_runs`.
        seeds: of observed labels and training.

    Returns:
        {place: a run for each seed}, without the places whose search lacks a run.
    """
    seeds = list(seeds)
    chosen = {place: choose_config(tried, record) for place, tried in searches.items()}
    return {
        place: [best.changed(seed=seed, label_seed=seed) for seed in seeds]
        for place, best in chosen.items()
        if best
    }


def join_runs(configs: dict[Place, list[Config]]) -> list[Config]:
    """The runs of all places in one list."""
    return [config for of_place in configs.values() for config in of_place]


def tabulate_runs(
    configs: dict[Place, list[Config]], fields: Iterable[str], record: pd.DataFrame
) -> pd.DataFrame:
    """Final runs with their scores.

    Args:
        configs: {place: its runs}, the places being named tuples.
        fields: names of the fields of a place.
        record: as in `plan_chosen_runs`.

    Returns:
        DataFrame, one row per run: the fields, seed, config, and of `look_up_scores` test_map,
        validation and late (NaN if the run is not done).
    """
    rows = [(*place, config.seed, config) for place, runs in configs.items() for config in runs]
    table = pd.DataFrame(rows, columns=[*fields, 'seed', 'config'])
    scores = look_up_scores(table.config, record)[['test_map', 'validation', 'late']]
    return table.join(scores.set_axis(table.index))


def format_csv(table: pd.DataFrame) -> str:
    """A table as the files in the setting `outputs` have it: four decimals, no index."""
    return table.round(4).to_csv(index=False, lineterminator='\n')


def make_staged_sweep(
    search: Callable[[Iterable[str]], Iterable[Config]],
    final: Callable[[pd.DataFrame, Iterable[str]], Iterable[Config]],
) -> Callable[..., pd.DataFrame]:
    """The `sweep` of an experiment whose final runs are chosen by a search.

    Args:
        search: gives the runs that are tried on sets of photos.
        final: gives the runs that finished ones (as from `sweeps.load_finished_runs`) choose.
    """

    def sweep(datasets: Iterable[str] = (), **launch) -> pd.DataFrame:
        """Train the missing runs.

        Args:
            datasets: some sets of photos; none: all of them.
            launch: dry_run, tell, engine, address and jobs, as in `sweeps.run_stages`.
        """
        datasets = list(datasets)
        return queue.run_stages(search(datasets), lambda record: final(record, datasets), **launch)

    return sweep


def make_chosen_sweep(
    plan_searches: Callable[[Iterable[str]], dict[Place, list[Config]]], seeds: Iterable[int]
) -> Callable[..., pd.DataFrame]:
    """The `sweep` of an experiment whose final runs are those of `plan_chosen_runs`.

    Args:
        plan_searches: gives the searches on sets of photos.
        seeds: of the final runs.
    """

    def search(datasets):
        return join_runs(plan_searches(datasets))

    def final(record, datasets):
        return join_runs(plan_chosen_runs(plan_searches(datasets), record, seeds))

    return make_staged_sweep(search, final)


@dataclass(frozen=True)
class Measurements:
    """What an experiment measures on the logits of runs, which the record of runs does not keep: a
    table and an array for each set of photos, `NAME.csv` and `NAME.npz` in the setting `outputs`.

    Attributes:
        name: of the files.
        text: the columns of strings, among them `dataset`.
    """

    name: str
    text: tuple[str, ...]

    def read(self) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
        """The table and {set of photos: array}, both empty if nothing is measured yet."""
        folder = settings.get_folder('outputs')
        if not (folder / f'{self.name}.csv').is_file():
            return pd.DataFrame(columns=self.text), {}
        table = pd.read_csv(folder / f'{self.name}.csv', dtype=dict.fromkeys(self.text, str))
        return table, dict(np.load(folder / f'{self.name}.npz'))

    def add(self, lines: pd.DataFrame, arrays: dict[str, np.ndarray]):
        """Append what was measured on further sets of photos."""
        table, earlier = self.read()
        table = pd.concat([table, lines], ignore_index=True) if len(table) else lines
        folder = settings.get_folder('outputs')
        write_arrays(folder / f'{self.name}.npz', earlier | arrays)
        write_atomically(folder / f'{self.name}.csv', format_csv(table))


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
        plan: gives the runs on a set.
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
            dry_run: only say how many runs are missing.
            tell: called with each line of the report.
            jobs: sets of photos at a time, on this machine.
            engine, address: as in `sweeps.run`; only 'local' is possible.

        Returns:
            DataFrame as from `sweeps.plan_runs`, of the missing runs.

        Raises:
            SpmlError: for another set of photos or engine, and as `plan`.
        """
        queue.check_launch(require_one_of(engine, ('local',), 'engine'), address, jobs)
        names = choose_sets(datasets, every)
        measured = set(measurements.read()[0].dataset)
        missing = {name: plan(name) for name in names if name not in measured}
        runs = join_runs(missing)
        table = queue.plan_runs(runs, queue.load_finished_runs()).assign(state='missing')
        line = f'{len(runs)} runs of {len(missing)} of {len(names)} sets of photos are missing.'
        if missing:
            line += f' One after another: {queue.describe_length(table)}.'
        tell(line)
        if dry_run or not missing:
            return table
        with ProcessPoolExecutor(jobs, mp_context=get_context('spawn')) as pool:
            results = pool.map(measure, missing.values())
            for name, (lines, array) in zip(missing, results, strict=True):
                measurements.add(lines, {name: array})
                tell(f'{name}: done')
        return table.assign(state='done')

    return sweep


def write_outputs(texts: Mapping[str, str]) -> list[Path]:
    """Write files in the setting `outputs`.

    Args:
        texts: {name of the file: its text}.

    Returns:
        The files that changed.

    Raises:
        SpmlError: if a file cannot be written.
    """
    folder = settings.get_folder('outputs')
    return write_changed({folder / name: text for name, text in texts.items()})
