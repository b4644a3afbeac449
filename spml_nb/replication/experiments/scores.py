"""What the pages of experiments share: scores by place, gains between places, tables and files."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import pandas as pd

from ...base import settings
from ...statistics import Effect, Scores, pool_effects
from ...sweeps.queue import run_key
from .. import gains, index_page

Place = TypeVar('Place', bound=NamedTuple)


def collect_scores(runs: pd.DataFrame, place: type[Place]) -> dict[Place, Scores]:
    """The scores at each place that has every run.

    Args:
        runs: as from `core.tabulate_runs`.
        place: the named tuple of its fields, of which one is `dataset`.
    """
    scores = {}
    for names, of_place in runs.groupby([*place._fields], sort=False):
        if of_place.test_map.notna().all():
            first = run_key(of_place.config.iloc[0])
            by_seed = of_place.set_index('seed').test_map
            dataset = of_place.dataset.iloc[0]
            scores[place(*names)] = Scores(by_seed, first, dataset=dataset)
    return scores


def measure_gains_over(
    scores: Mapping[Place, Scores], bases: Mapping[str, Mapping[Place, Place]]
) -> pd.DataFrame:
    """Gains over other places of the same comparison.

    Args:
        scores: of each place.
        bases: {name of the baseline: {place: the place it is compared with}}; a place that is
            missing, or whose baseline has no scores, has no gain.

    Returns:
        DataFrame as from `gains.gains_over_baselines`.
    """
    baselines = {
        name: {place: scores[base] for place, base in pairs.items() if base in scores}
        for name, pairs in bases.items()
    }
    return gains.gains_over_baselines(scores, baselines)


def format_effects(by_set: Mapping[str, Effect], sets: list[str]) -> list[str]:
    """Cells of a row: the effect on each set, '–' if it has none, and the mean if all have one."""
    cells = [str(by_set[name]) if name in by_set else '–' for name in sets]
    return [*cells, '–' if '–' in cells else str(pool_effects([by_set[name] for name in sets]))]


def list_cells(table: pd.DataFrame, corner: str = '') -> list[list[str]]:
    """The lines of a table for the template filter `grid`."""
    lines = [[corner, *table.columns]]
    return lines + [[str(name), *map(str, row)] for name, *row in table.itertuples()]


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
    return index_page.write_changed({folder / name: text for name, text in texts.items()})
