"""What each part of a method adds, from arms that differ in one thing, where the part acts."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ...runs.config import Config
from ...statistics import format_number, format_signed, pool_effects
from .. import gains, published
from ..ablation_arms import (
    Ablation,
    Arm,
    arm_configs,
    arm_lines,
    arm_scores,
    choose_arm_rate,
    list_rate_trials,
    printed_arm_cell,
    read_ablations,
)
from ..templates import render_template
from .core import Experiment, choose_sets, format_csv, make_staged_sweep, write_outputs

MEAN = 'mean'  # the column of means over the others


def plan_ablation_runs(runs: pd.DataFrame, datasets: Iterable[str] = ()) -> list[Config]:
    """The runs of all arms whose rate is chosen, seed by seed so that an interrupted sweep has the
    same seeds of every arm; the label-wise head, which is slow, last.

    Args:
        runs: as in `choose_arm_rate`.
        datasets: some sets of photos; none: all of them.
    """
    configs = [
        config
        for ablation, _, dataset in _list_columns(datasets)
        for arm in ablation.arms
        for config in arm_configs(ablation, arm, dataset, runs)
    ]
    return sorted(configs, key=lambda config: (config.head == 'labelwise', config.seed))


def _list_columns(datasets: Iterable[str] = ()) -> list[tuple[Ablation, str, str]]:
    "Each ablation with each of its columns and the set of photos in it."
    columns = [
        (ablation, *column)
        for ablation in read_ablations().values()
        for column in ablation.columns.items()
    ]
    chosen = choose_sets(datasets, dict.fromkeys(dataset for *_, dataset in columns))
    return [column for column in columns if column[-1] in chosen]


def _list_trials(datasets: Iterable[str]) -> list[Config]:
    return [
        config
        for ablation, _, dataset in _list_columns(datasets)
        for config in list_rate_trials(ablation, dataset)
    ]


class _Place(NamedTuple):
    ablation: str
    arm: str
    column: str


def _count_acting_runs(
    ablation: Ablation, arm: str, dataset: str, runs: pd.DataFrame
) -> tuple[int, int]:
    """In how many runs of an arm its mechanism acted before the epoch that was kept.

    Args:
        runs: as in `choose_arm_rate`.

    Returns:
        That number, and the number of finished runs; both 0 for a mechanism that acts from the
        first step on.
    """
    lines = arm_lines(arm_configs(ablation, arm, dataset, runs), runs).dropna(subset='exercised')
    hardly_acted = (lines.best_stage == 2) & (lines.best_epoch == 1)
    return int(((lines.exercised == 1) & ~hardly_acted).sum()), len(lines)


def tabulate_arms(runs: pd.DataFrame) -> pd.DataFrame:
    """What every arm reaches, and gains over the arm that it is compared with.

    Args:
        runs: as in `choose_arm_rate`.

    Returns:
        DataFrame, one row per ablation, arm and column with a run, and one per arm for the mean of
        the columns with a gain (column `MEAN`): ablation, arm, over, differs, column, dataset, lr,
        n (seeds), level and level_half (half its 95 % interval over seeds), gain and gain_half
        (half its interval over seeds and test images), effect (the gain as an `Effect`), published
        (the paper's gain), acted and may_act (as from `_count_acting_runs`). In percent; NaN if
        missing.
    """
    scores, facts = {}, {}
    for ablation, column, dataset in _list_columns():
        rate = choose_arm_rate(ablation, dataset, runs).get('lr', math.nan)
        for arm in ablation.arms.values():
            place = _Place(ablation.id, arm.name, column)
            scores[place] = arm_scores(ablation, arm.name, dataset, runs)
            acted, may_act = _count_acting_runs(ablation, arm.name, dataset, runs)
            facts[place] = {
                'over': arm.over,
                'differs': arm.differs,
                'dataset': dataset,
                'lr': rate,
                'published': _published_gain(ablation, arm, column),
                'acted': acted,
                'may_act': may_act,
            }
    scores = {place: of_arm for place, of_arm in scores.items() if len(of_arm.by_seed)}
    if not scores:
        return pd.DataFrame(columns=COLUMNS)
    bases = {place: place._replace(arm=facts[place]['over']) for place in scores}
    rows = gains.gains_over_baselines(scores, {'over': bases})
    rows = rows.join(pd.DataFrame([facts[place] for place in scores]))
    return pd.concat([rows, _average_gains(rows)], ignore_index=True)[COLUMNS]


COLUMNS = [
    *('ablation', 'arm', 'over', 'differs', 'column', 'dataset', 'lr', 'n', 'level', 'level_half'),
    *('gain', 'gain_half', 'effect', 'published', 'acted', 'may_act'),
]


def _average_gains(rows: pd.DataFrame) -> pd.DataFrame:
    gained = rows[rows.gain_half.notna()]
    means = []
    for (ablation, arm), part in gained.groupby(['ablation', 'arm'], sort=False):
        if len(part) < 2:
            continue
        effect = pool_effects(list(part.effect))
        means.append(
            {
                **part.iloc[0][['over', 'differs']],
                'ablation': ablation,
                'arm': arm,
                'column': MEAN,
                'n': effect.seeds,
                'gain': effect.mean,
                'gain_half': effect.half_width,
                'effect': effect,
                'published': part.published.mean(skipna=False),
                'acted': part.acted.sum(),
                'may_act': part.may_act.sum(),
            }
        )
    return pd.DataFrame(means)


def _published_gain(ablation: Ablation, arm: Arm, column: str) -> float:
    """The gain of an arm in the paper, or its level where no gain is measured."""
    cell = printed_arm_cell(ablation, arm.name, column)
    if cell is None or arm.name not in ablation.printed:
        return math.nan
    if ablation.measure == 'precision':
        return cell['mean']
    base = printed_arm_cell(ablation, arm.over, column)
    return cell['mean'] - base['mean'] if base else math.nan


def format_ablations(arms: pd.DataFrame) -> str:
    """The page. arms: as from `tabulate_arms`."""
    tables = [
        {
            'about': ablation,
            'paper': published.read_paper(ablation.paper)['short'],
            'lines': _grid(ablation, rows),
            'rates': rows.dropna(subset='lr').groupby('dataset', sort=False).lr.first(),
        }
        for ablation in read_ablations().values()
        if len(rows := arms[arms.ablation == ablation.id])
    ]
    return render_template('ablations.md', tables=tables)


def _grid(ablation: Ablation, rows: pd.DataFrame) -> list[list[str]]:
    sets = {**ablation.columns, MEAN: MEAN}
    columns = [column for column in sets if (rows.column == column).any()]
    lines = [['arm', 'over', 'what differs', *(sets[column] for column in columns), 'acted']]
    for arm in ablation.arms.values():
        of_arm = rows[rows.arm == arm.name].set_index('column')
        if not len(of_arm):
            continue
        cells = [
            _cell(ablation, of_arm.loc[column]) if column in of_arm.index else '–'
            for column in columns
        ]
        of_columns = of_arm.drop(MEAN, errors='ignore')
        may_act = int(of_columns.may_act.sum())
        acted = f'{int(of_columns.acted.sum())} of {may_act}' if may_act else ''
        lines.append([arm.name, arm.over, arm.differs, *cells, acted])
    return lines


def _cell(ablation: Ablation, row: pd.Series) -> str:
    """'+0.3 ± 0.4 / +0.1' with the paper's gain, or '43.1 ± 0.5' where no gain is measured; in
    brackets if the part acted in half of the runs or fewer.
    """
    if ablation.measure == 'precision' or not row.over:
        text = f'{row.level:.1f}{_interval(row.level_half)}'
        printed = format_number(row.published, '.1f')
    elif math.isnan(row.gain):
        return '–'
    else:
        text = f'{format_signed(row.gain)}{_interval(row.gain_half)}'
        printed = format_signed(row.published)
    if printed:
        text += f' / {printed}'
    if row.n < ablation.seeds:
        text += f' ({row.n:g} of {ablation.seeds} seeds)'
    return f'({text})' if row.may_act and 2 * row.acted <= row.may_act else text


def _interval(half: float) -> str:
    return '' if math.isnan(half) else f' ± {half:.1f}'


def write_ablations(runs: pd.DataFrame) -> list[Path]:
    """Write `ablations.csv` and `ablations.md` in the setting `outputs`, if an arm has a run.

    Args:
        runs: as in `choose_arm_rate`.

    Returns:
        The files that changed.
    """
    arms = tabulate_arms(runs)
    if not len(arms):
        return []
    table = arms.drop(columns='effect')
    rates = table.lr.astype(object)  # not rounded to four decimals, as numbers are
    return write_outputs(
        {
            'ablations.md': format_ablations(arms),
            'ablations.csv': format_csv(table.assign(lr=rates)),
        }
    )


EXPERIMENT = Experiment(
    make_staged_sweep(_list_trials, plan_ablation_runs),
    lambda record, measured: write_ablations(record),
)
