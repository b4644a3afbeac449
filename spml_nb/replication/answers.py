"""The answers of our runs to the questions that the conclusions on the papers ask."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ..base import settings
from ..base.errors import require_one_of
from ..statistics import (
    COMPARED,
    EQUIVALENCE_MARGIN,
    Effect,
    Scores,
    format_signed,
    pool_effects,
)
from ..sweeps.search import SUITES, Row, final_configs
from . import gains, published, tables
from .published import PHOTOS_SUITE, UNCOUNTED


@dataclass(frozen=True)
class Answer:
    """The answer of our runs to a question, in points; above 0 is yes.

    Attributes:
        mean, low, high: Mean over the places with its 95 % interval; NaN without two seeds.
        published: The same in the paper's numbers, NaN if not printed.
        measured, printed: The values to show for mean and published if these are distances from a
            bound; NaN if they are the same.
        mixed: Whether the paper compares rows of several sources.
        size: Ours beside the paper's: one of `statistics.COMPARED`, or ''.
        there: Our mean on the sets that stand for the paper's, NaN if these are all.
        between: The comparison that decides, where there are several, or the sets of photos if
            some are missing.
        places: Number of places.
        opposite: Number of places that significantly contradict the mean.
        state: Why there is no mean.
        in_points: Whether in points, of which half a one is a small difference.
    """

    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan
    published: float = math.nan
    measured: float = math.nan
    printed: float = math.nan
    mixed: bool = False
    size: str = ''
    there: float = math.nan
    between: str = ''
    places: int = 0
    opposite: int = 0
    state: str = 'not run'
    in_points: bool = True

    @property
    def word(self) -> str:
        """'yes', 'no on average (yes on 1 of 4)', 'open', 'less than 0.5 apart'."""
        if math.isnan(self.mean):
            return self.state
        has_margin = self.in_points and math.isnan(self.measured)
        if has_margin and -EQUIVALENCE_MARGIN < self.low and self.high < EQUIVALENCE_MARGIN:
            return f'less than {EQUIVALENCE_MARGIN:g} apart'
        if not (self.low > 0 or self.high < 0):
            return 'open'
        words = ('yes', 'no') if self.low > 0 else ('no', 'yes')
        if not self.opposite:
            return words[0]
        return f'{words[0]} on average ({words[1]} on {self.opposite} of {self.places})'

    @property
    def ours(self) -> str:
        """'+1.9 ± 0.7'"""
        if math.isnan(self.mean):
            return self.state
        mean = self.mean if math.isnan(self.measured) else self.measured
        half = '' if math.isnan(self.low) else f' ± {(self.high - self.low) / 2:.1f}'
        return format_signed(mean) + half

    @property
    def theirs(self) -> str:
        """The paper's number: '+4.1', '+3.2†', '–'."""
        if math.isnan(self.published):
            return '–'
        number = self.published if math.isnan(self.printed) else self.printed
        return format_signed(number) + (UNCOUNTED if self.mixed else '')


def answer_claim(checked: pd.DataFrame, claim: str, in_points: bool = True) -> Answer:
    """The answer to a claim.

    Args:
        checked: As from `claims.report_claims`.
        claim: Its id.
        in_points: As in `Answer`.

    Raises:
        SpmlError: For a claim that is not among them.
    """
    by_id = checked.set_index('id')
    claim_line, *places = json.loads(by_id.forest[require_one_of(claim, by_id.index, 'claim')])
    numbers = {name: math.nan if v is None else v for name, v in claim_line.items()}
    bounded = numbers['bounded']
    opposite = sum(
        place['low'] is not None and _contradicts(place['low'], place['high'], numbers['mean'])
        for place in places
    )
    return Answer(
        mean=numbers['mean'],
        low=numbers['low'],
        high=numbers['high'],
        published=numbers['published'],
        measured=numbers['mean_told'] if bounded else math.nan,
        printed=numbers['published_told'] if bounded else math.nan,
        mixed=numbers['mixed'],
        size=numbers['size'] if numbers['size'] in COMPARED else '',
        there=numbers['comparable'],
        between=numbers['between'],
        places=len(places),
        opposite=opposite,
        state=numbers['word'],
        in_points=in_points,
    )


def _contradicts(low: float, high: float, mean: float) -> bool:
    return high < 0 < mean or low > 0 > mean


def answer_effects(effects: Iterable[Effect]) -> Answer:
    """The answer of effects on several photo sets, of those with two seeds or more."""
    effects = [effect for effect in effects if effect.seeds > 1]
    if not effects:
        return Answer()
    mean = pool_effects(effects)
    opposite = sum(_contradicts(effect.low, effect.high, mean.mean) for effect in effects)
    return Answer(mean.mean, mean.low, mean.high, places=len(effects), opposite=opposite)


def answer_gain(runs: pd.DataFrame, method: Row, base: Row, metric: str = 'mAP') -> Answer:
    """The gain of a method over another, on the photo sets where both have runs in which their
    mechanisms acted.

    Args:
        runs: The table of record.
        method, base: Rows of the boards.
        metric: One of `published.METRICS`.
    """
    datasets = SUITES[PHOTOS_SUITE]['datasets']
    effects = []
    for dataset in datasets:
        configs = [final_configs(row, PHOTOS_SUITE, dataset, runs) for row in (method, base)]
        if all(gains.mechanism_acted_in(of_row, runs) for of_row in configs):
            scores = [tables.read_measures(of_row, metric, runs) for of_row in configs]
            effects.append(gains.estimate_gain(*scores))
    answer = answer_effects(effects)
    some = 0 < answer.places < len(datasets)
    return replace(answer, between=f'{answer.places} sets' if some else '')


def answer_cells(
    paper: str, number: str, row: str, base: str, columns: list[str], runs: pd.DataFrame
) -> Answer:
    """The gain of a row of a table over another, in the columns where both have runs.

    Args:
        paper, number: As in `published.index_cells`.
        row, base: Rows of the table.
        runs: The table of record.
    """
    cells = published.index_cells(paper, number)

    def scores(cell: dict) -> Scores:
        configs = tables.cell_final_runs(tables.plan_cell(cell, PHOTOS_SUITE), runs)
        return tables.read_measures(configs, cell['metric'], runs)

    return answer_effects(
        gains.estimate_gain(scores(cells[row, column]), scores(cells[base, column]))
        for column in columns
    )


def gains_at_equal_settings(paper: str, measured: str = 'parts') -> list[dict]:
    """The mean gain from each part of a method where nothing else differs.

    Args:
        paper: One of `published.list_papers()`.
        measured: End of the ablation's id: 'parts' for test mAP, 'fall' for OPML's fall of
            validation mAP.

    Returns:
        A dict for each arm of the ablation in `outputs/ablations.csv`: arm, over (the arm it is
        compared with), answer, and acted and may_act (runs in which a part that begins later had
        begun, of how many; 0 for other parts); empty without the file.
    """
    file = settings.get_folder('outputs') / 'ablations.csv'
    if not file.is_file():
        return []
    lines = pd.read_csv(file)
    lines = lines[(lines.ablation == f'{paper}_{measured}') & (lines.column == 'mean')]
    return [
        {
            'arm': line.arm,
            'over': line.over,
            'answer': Answer(
                line.gain,
                line.gain - line.gain_half,
                line.gain + line.gain_half,
                published=line.published,
            ),
            'acted': getattr(line, 'acted', 0),
            'may_act': getattr(line, 'may_act', 0),
        }
        for line in lines.itertuples()
    ]


def subtract_printed(
    paper: str, first: tuple[str, str, list], second: tuple[str, str, list]
) -> list[float]:
    """Differences of published numbers, each given as (table, row, columns)."""
    printed = []
    for table, row, columns in (first, second):
        cells = published.index_cells(paper, table)
        printed.append([cells[row, column]['mean'] for column in columns])
    return np.subtract(*printed).round(4).tolist()
