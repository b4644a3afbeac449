"""Half a page on each paper: what held, why we think so, what was difficult, what to take from it.

The words stand in `assets/templates/conclusion_PAPER.md`; every number comes from the record.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from ..base import settings
from ..base.errors import one_of
from ..methods.core import resolve_hparams
from ..statistics import MARGIN, Effect, format_signed, pool_effects
from ..sweeps.search import SUITES, Row, finals, search_space
from . import arms, figure_runs, figures, gains, published, tables
from .published import SUITE, UNCOUNTED
from .rendering import render_template


@dataclass(frozen=True)
class Answer:
    """What the runs say to a question, in points: above 0 is yes.

    Attributes:
        mean, low, high: over the places, with the 95 % interval; NaN without two seeds.
        published: the same in the paper's numbers, NaN where it prints none.
        measured, printed: what people read of mean and published, where they are counted from a
            bound; NaN: they are the same.
        mixed: whether the paper compares rows of several sources.
        places: how many there are.
        opposite: how many of them say the opposite of the mean, each with its own interval.
        state: why there is no mean.
    """

    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan
    published: float = math.nan
    measured: float = math.nan
    printed: float = math.nan
    mixed: bool = False
    places: int = 0
    opposite: int = 0
    state: str = 'not run'

    @property
    def word(self) -> str:
        """'yes', 'no on average (yes on 1 of 4)', 'open'."""
        if math.isnan(self.mean):
            return self.state
        bounded = not math.isnan(self.measured)
        if not bounded and -MARGIN < self.low and self.high < MARGIN:
            return f'no difference of {MARGIN:g}'
        if not (self.low > 0 or self.high < 0):
            return 'open'
        words = ('yes', 'no') if self.low > 0 else ('no', 'yes')
        if not self.opposite:
            return words[0]
        return f'{words[0]} on average ({words[1]} on {self.opposite} of {self.places})'

    @property
    def ours(self) -> str:
        """'+1.9 ± 0.7', of what is measured."""
        if math.isnan(self.mean):
            return self.state
        half = '' if math.isnan(self.low) else f' ± {self._half:.1f}'
        return format_signed(self._measured) + half

    @property
    def theirs(self) -> str:
        """'+4.1', '+3.2†', '–': the paper's number."""
        if math.isnan(self.published):
            return '–'
        return format_signed(self._printed) + (UNCOUNTED if self.mixed else '')

    @property
    def size(self) -> str:
        """The side of our interval on which the paper's number lies, '' for neither."""
        distance = self._printed - self._measured
        if self.mixed or not abs(distance) > self._half:
            return ''
        return 'larger' if distance > 0 else 'smaller'

    @property
    def _half(self) -> float:
        return (self.high - self.low) / 2

    @property
    def _measured(self) -> float:
        return self.mean if math.isnan(self.measured) else self.measured

    @property
    def _printed(self) -> float:
        return self.published if math.isnan(self.printed) else self.printed


def answer_claim(checked: pd.DataFrame, claim: str) -> Answer:
    """What the runs say to a claim.

    Args:
        checked: as from `claims.report_claims`.
        claim: an id.

    Raises:
        SpmlError: for a claim that is not among them.
    """
    by_id = checked.set_index('id')
    together, *places = json.loads(by_id.forest[one_of(claim, by_id.index, 'claim')])
    numbers = {name: math.nan if v is None else v for name, v in together.items()}
    bounded = numbers['mean'] != numbers['mean_told']
    opposite = [each for each in places if each['low'] is not None and _opposes(each, numbers)]
    return Answer(
        mean=numbers['mean'],
        low=numbers['low'],
        high=numbers['high'],
        published=numbers['published'],
        measured=numbers['mean_told'] if bounded else math.nan,
        printed=numbers['published_told'] if bounded else math.nan,
        mixed=numbers['mixed'],
        places=len(places),
        opposite=len(opposite),
        state=numbers['word'],
    )


def _opposes(place: dict, together: dict) -> bool:
    return place['high'] < 0 < together['mean'] or place['low'] > 0 > together['mean']


def answer_effects(effects: list[Effect]) -> Answer:
    """What effects on several sets of photos, with two seeds or more, say together."""
    if not effects:
        return Answer()
    mean = pool_effects(effects)
    opposite = [each for each in effects if each.high < 0 < mean.mean or each.low > 0 > mean.mean]
    return Answer(mean.mean, mean.low, mean.high, places=len(effects), opposite=len(opposite))


def answer_gain(
    runs: pd.DataFrame,
    own: Row,
    base: Row,
) -> Answer:
    """What a method gains over another, on the sets of photos where both have runs.

    Args:
        runs: as from `tables.record`.
        own, base: rows of the boards.
    """
    effects = []
    for dataset in SUITES[SUITE]['datasets']:
        scores = [
            tables.read_measures(finals(row, SUITE, dataset, runs), 'mAP', runs)
            for row in (own, base)
        ]
        effects.append(gains.estimate_gain(*scores))
    return answer_effects([effect for effect in effects if effect.seeds > 1])


def answer_cells(
    paper: str, number: str, own: str, base: str, columns: list[str], runs: pd.DataFrame
) -> Answer:
    """What a row of a table gains over another, in the columns where both have runs.

    Args:
        paper, number: as in `published.index_cells`.
        own, base: rows.
        columns: each compared with itself.
        runs: as from `tables.record`.
    """
    cells = published.index_cells(paper, number)
    effects = []
    for column in columns:
        scores = []
        for cell in (cells[own, column], cells[base, column]):
            configs = tables.cell_final_runs(tables.plan_cell(cell, SUITE), runs)
            scores.append(tables.read_measures(configs, cell['metric'], runs))
        effects.append(gains.estimate_gain(*scores))
    return answer_effects([effect for effect in effects if effect.seeds > 1])


def gains_at_equal_settings(paper: str, measured: str = 'parts') -> list[dict]:
    """What each part of a method adds where nothing else differs, on the mean of the sets.

    Args:
        paper: one of `published.list_papers()`.
        measured: the end of the ablation's id: 'parts' for test mAP, 'fall' for OPML's fall of
            validation mAP.

    Returns:
        Of the ablation PAPER_MEASURED in `outputs/ablations.csv`: arm, over (the arm it is compared
        with) and answer; none without the file.
    """
    file = settings.path('outputs') / 'ablations.csv'
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
        }
        for line in lines.itertuples()
    ]


def _gaps(paper: str, own: tuple[str, str, list], base: tuple[str, str, list]) -> list[float]:
    """Differences of published numbers. own, base: (table, row, columns)."""
    printed = []
    for table, row, columns in (own, base):
        cells = published.index_cells(paper, table)
        printed.append([cells[row, column]['mean'] for column in columns])
    return np.subtract(*printed).round(4).tolist()


def _hml(runs: pd.DataFrame) -> dict:
    sets = ['VOC12', 'COCO', 'NUS']
    own = [f'Single Positive Labels / {name}' for name in sets]
    return {'own_baseline': _gaps('hml', ('4', 'neither', own), ('2', 'AN', sets))}


def _opml(runs: pd.DataFrame) -> dict:
    sets = ['VOC', 'COCO', 'NUS', 'CUB']
    cells = published.index_cells('opml', 'IV')
    plans = [tables.plan_cell(cells['OPML', column], SUITE) for column in sets]
    chosen = [plan.choose(runs) for plan in plans]
    ours = tables.table('opml', 'IV', runs).of(SUITE).pivot(index='row', columns='column')['ours']
    # taking high rank away from all parts together: above 0 where it had slowed the fall
    falls = {part['arm']: part['answer'] for part in gains_at_equal_settings('opml', 'fall')}
    return {
        'slowed_beside_others': falls.get('without high rank', Answer()),
        'set_up': _gaps('opml', ('III', 'ZLPR', sets), ('III', 'BCE', sets)),
        # the first draw leaves what the paper has not told at its default
        'weights': sorted(
            resolve_hparams(config.loss, config.dataset, config.hparams)['rank_weight']
            for config in chosen
            if config
        ),
        'high_rank': (ours.loc['OPML + high rank'] - ours.loc['OPML']).abs().max(),
    }


def _lac(runs: pd.DataFrame) -> dict:
    sets = ['VOC', 'COCO', 'NUS', 'CUB']
    lem, resnet = ([f'{network} / {name}' for name in sets] for network in ('LEM', 'ResNet-50'))
    lines = tables.cell_lines('lac', '2', 'Ours', lem, runs) if len(runs) else runs
    return {
        'lem': _gaps('lac', ('2', 'L_AN', lem), ('2', 'L_AN', resnet)),
        'idle': gains.count_stage_2_starts(lines),
        'runs': len(lines),
        'constants': len(search_space('lac')),
        'in_two_steps': _lac_in_two_steps(runs),
    }


def _lac_in_two_steps(runs: pd.DataFrame) -> dict[str, Effect]:
    "{column of Table 3: what whole LAC gains by the rate and δ of AN + PLC's search over its own}."
    ablation = arms.read_ablations()['lac_parts']
    effects = {}
    for column, dataset in ablation.columns.items():
        own = tables.read_measures(finals(Row('lac'), SUITE, dataset, runs), 'mAP', runs)
        effect = gains.estimate_gain(arms.arm_scores(ablation, 'queue', dataset, runs), own)
        if effect.seeds > 1:
            effects[column] = effect
    return effects


def _two_way(runs: pd.DataFrame) -> dict:
    cells = published.index_cells('two_way', '7').values()
    of_paper = {cell['dataset'] for cell in cells if not cell['own']}
    plans = [(cell['dataset'], tables.plan_cell(cell, SUITE)) for cell in cells]
    searched = {dataset: plan.search[0] for dataset, plan in plans if plan.search}
    one = next(iter(searched.values()))
    lost = [
        cell
        for number in published.table_numbers('two_way')
        for cell in published.index_cells('two_way', number).values()
        if cell['lost']
    ]
    return {
        'batch': one.batch_size,
        'epochs': one.epochs,
        'sets': len(of_paper),
        'fillable': len(of_paper & set(searched)),
        'own_sets': len(set(searched) - of_paper),
        'lost': len(lost),
    }


def _em_apl(runs: pd.DataFrame) -> dict:
    sets = ['VOC', 'COCO', 'NUS', 'CUB']
    lem = [f'LEM / {name}' for name in sets]
    lines = tables.cell_lines('em_apl', '1', 'EM+APL', sets, runs) if len(runs) else runs
    again = _gaps('lac', ('2', 'L_EM', lem), ('2', 'L_AN', lem))
    f1 = {}
    for average in ('micro', 'macro'):
        columns = [f'{name} / {average}-F1 at the chosen threshold' for name in sets]
        f1[average] = answer_cells('em_apl', '7', 'EM', 'AN', columns, runs)
    return {
        'rerun': float(np.mean(again)),
        'idle': int((lines.exercised == 0).sum()) if len(lines) else 0,
        'runs': len(lines),
        'f1': f1,
        'worst': _worst_class(),
    }


SURE = 0.96  # two of the fifty bins of the figure


def _worst_class() -> dict | None:
    """The class of Fig. 11 that EM costs most: name, its average precision with AN and EM, and in
    percent how many of its labels EM gives a probability of `SURE` or more.
    """
    file = figure_runs.find_arrays('em_apl', '11', SUITE)
    if not file.is_file():
        return None
    collected = figures.read_figure_arrays(file)
    seeds = collected.of_seeds('coco14', 'AN')
    an, em = (collected.summary('coco14', name, 'ap')[0] for name in ('AN', 'EM'))
    worst = int(np.argmin(em - an))
    counts = collected.summary('coco14', 'EM', 'counts')[0][worst].sum(0)
    first = round(SURE * len(counts))
    return {
        'name': str(seeds[0]['names'][worst]),
        'an': an[worst],
        'em': em[worst],
        'sure': 100 * counts[first:].sum() / counts.sum(),
        'from': SURE,
    }


_FACTS: dict[str, Callable[[pd.DataFrame], dict]] = {
    'hml': _hml,
    'opml': _opml,
    'lac': _lac,
    'two_way': _two_way,
    'em_apl': _em_apl,
}


def format_conclusion(paper: str, checked: pd.DataFrame, runs: pd.DataFrame) -> str:
    """The conclusion on a paper.

    Args:
        paper: one of `published.list_papers()`.
        checked: its claims, as from `claims.report_claims`.
        runs: as from `tables.record`.
    """

    def gain_of(own: str, base: str, own_head: str | None = None, base_head: str | None = None):
        return answer_gain(runs, Row(own, own_head), Row(base, base_head))

    return render_template(
        f'conclusion_{paper}.md',
        claim=partial(answer_claim, checked),
        gain=gain_of,
        parts=gains_at_equal_settings(paper),
        uncounted=UNCOUNTED,
        **_FACTS[paper](runs),
    )


def paper_pages(checked: pd.DataFrame, runs: pd.DataFrame) -> dict[str, str]:
    """The page of every paper: its conclusion, and where its tables, figures and claims are.

    Args:
        checked: the claims of all papers, as from `claims.report_claims`.
        runs: as from `tables.record`.

    Returns:
        {`PAPER/README.md`: Markdown}, with links from that folder of `outputs`.
    """
    return {
        f'{paper}/README.md': render_template(
            'paper_readme.md',
            paper=published.read_paper(paper),
            conclusion=format_conclusion(paper, of_paper, runs),
            figures=[
                number
                for number in figure_runs.list_figures(paper)
                if figure_runs.find_arrays(paper, number, SUITE).is_file()
            ],
        )
        for paper, of_paper in checked.groupby('paper', sort=False)
    }
