"""The conclusion on each paper, and the map from its sections to this project."""

# A conclusion says what held, why, what was difficult, and what to take from it. The texts are in
# `assets/templates/conclusion_PAPER.md`; every number comes from the record. The map says where
# each section of the paper is, or why it is not.

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.resources import files
from urllib.parse import quote

import numpy as np
import pandas as pd
import yaml

from ..base import settings
from ..base.errors import require_one_of
from ..base.files import markdown_table
from ..methods.core import resolve_hparams
from ..statistics import COMPARED, EQUIVALENCE_MARGIN, Effect, Scores, format_signed, pool_effects
from ..sweeps.queue import run_key
from ..sweeps.search import SUITES, Row, final_configs, search_space
from . import ablation_arms, figure_drawing, gains, paper_figures, published, tables
from .experiments import two_steps
from .published import PHOTOS_SUITE, UNCOUNTED
from .templates import render_template


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
        between: The comparison that decides, where there are several, or the sets of photos if
            some are missing.
        places: Number of places.
        opposite: Number of places that significantly contradict the mean.
        state: Why there is no mean.
    """

    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan
    published: float = math.nan
    measured: float = math.nan
    printed: float = math.nan
    mixed: bool = False
    size: str = ''
    between: str = ''
    places: int = 0
    opposite: int = 0
    state: str = 'not run'

    @property
    def word(self) -> str:
        """'yes', 'no on average (yes on 1 of 4)', 'open', 'less than 0.5 apart'."""
        if math.isnan(self.mean):
            return self.state
        bounded = not math.isnan(self.measured)
        if not bounded and -EQUIVALENCE_MARGIN < self.low and self.high < EQUIVALENCE_MARGIN:
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
        half = '' if math.isnan(self.low) else f' ± {self._half:.1f}'
        return format_signed(self._measured) + half

    @property
    def theirs(self) -> str:
        """The paper's number: '+4.1', '+3.2†', '–'."""
        if math.isnan(self.published):
            return '–'
        return format_signed(self._printed) + (UNCOUNTED if self.mixed else '')

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
    """The answer to a claim.

    Args:
        checked: As from `claims.report_claims`.
        claim: Its id.

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
        between=numbers['between'],
        places=len(places),
        opposite=opposite,
        state=numbers['word'],
    )


def _contradicts(low: float, high: float, mean: float) -> bool:
    return high < 0 < mean or low > 0 > mean


def answer_effects(effects: list[Effect]) -> Answer:
    """The answer of effects on several photo sets, each of two seeds or more."""
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
    effects = [effect for effect in effects if effect.seeds > 1]
    return replace(
        answer_effects(effects),
        between='' if len(effects) in (0, len(datasets)) else f'{len(effects)} sets',
    )


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

    effects = [
        gains.estimate_gain(scores(cells[row, column]), scores(cells[base, column]))
        for column in columns
    ]
    return answer_effects([effect for effect in effects if effect.seeds > 1])


def gains_at_equal_settings(paper: str, measured: str = 'parts') -> list[dict]:
    """The mean gain from each part of a method where nothing else differs.

    Args:
        paper: One of `published.list_papers()`.
        measured: End of the ablation's id: 'parts' for test mAP, 'fall' for OPML's fall of
            validation mAP.

    Returns:
        A dict for each arm of the ablation in `outputs/ablations.csv`: arm, over (the arm it is
        compared with) and answer; empty without the file.
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
        }
        for line in lines.itertuples()
    ]


def _printed_gaps(
    paper: str, first: tuple[str, str, list], second: tuple[str, str, list]
) -> list[float]:
    """Differences of published numbers, each given as (table, row, columns)."""
    printed = []
    for table, row, columns in (first, second):
        cells = published.index_cells(paper, table)
        printed.append([cells[row, column]['mean'] for column in columns])
    return np.subtract(*printed).round(4).tolist()


def _hml(runs: pd.DataFrame) -> dict:
    sets = ['VOC12', 'COCO', 'NUS']
    columns = [f'Single Positive Labels / {name}' for name in sets]
    return {'own_baseline': _printed_gaps('hml', ('4', 'neither', columns), ('2', 'AN', sets))}


def _opml(runs: pd.DataFrame) -> dict:
    sets = ['VOC', 'COCO', 'NUS', 'CUB']
    cells = published.index_cells('opml', 'IV')
    plans = [tables.plan_cell(cells['OPML', column], PHOTOS_SUITE) for column in sets]
    chosen = [plan.choose(runs) for plan in plans]
    ours = (
        tables.table('opml', 'IV', runs)
        .of(PHOTOS_SUITE)
        .pivot(index='row', columns='column')['ours']
    )
    # taking high rank away from all parts together: above 0 where it had slowed the fall
    falls = {part['arm']: part['answer'] for part in gains_at_equal_settings('opml', 'fall')}
    return {
        'slowed_beside_others': falls.get('without high rank', Answer()),
        'set_up': _printed_gaps('opml', ('III', 'ZLPR', sets), ('III', 'BCE', sets)),
        # the first draw of the search has the default, whatever the paper does not state
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
        'lem': _printed_gaps('lac', ('2', 'L_AN', lem), ('2', 'L_AN', resnet)),
        'idle': gains.count_stage_2_starts(lines),
        'runs': len(lines),
        'constants': len(search_space('lac')),
        'first_searched': _lac_first_stage_searched(runs),
        'in_two_steps': _lac_in_two_steps(runs),
    }


def _lac_first_stage_searched(runs: pd.DataFrame) -> dict[str, Effect]:
    "{column of Table 3: gain of LAC by the rate and δ of AN + PLC's search over its own search}."
    ablation = _lac_parts()
    effects = {}
    for column, dataset in ablation.columns.items():
        first_searched = ablation_arms.arm_scores(ablation, 'queue', dataset, runs)
        searched = tables.read_measures(
            final_configs(two_steps.LAC, PHOTOS_SUITE, dataset, runs), 'mAP', runs
        )
        effect = gains.estimate_gain(first_searched, searched)
        if effect.seeds > 1:
            effects[column] = effect
    return effects


def _lac_in_two_steps(runs: pd.DataFrame) -> dict:
    "Gains of LAC searched in two steps over LAC searched in one, and over AN on two heads."
    scores = two_steps.two_step_scores(runs)
    if not scores:
        return {}
    bases = {
        'over_one': two_steps.LAC,
        'same_head': Row('an', 'labelwise'),
        'plain': Row('an', 'linear'),
    }
    answers = {}
    for name, base in bases.items():
        effects = []
        for dataset, in_two_steps in scores.items():
            configs = final_configs(base, PHOTOS_SUITE, dataset, runs)
            base_scores = tables.read_measures(configs, 'mAP', runs)
            effects.append(gains.estimate_gain(in_two_steps, base_scores))
        answers[name] = answer_effects([effect for effect in effects if effect.seeds > 1])
    finals = two_steps.plan_finals(runs, list(scores))
    keys = [run_key(config) for of_place in finals.values() for config in of_place]
    columns = {ours: name for name, ours in _lac_parts().columns.items()}
    return answers | {
        'sets': [columns.get(name, published.DATASET_NAMES[name]) for name in scores],
        'idle': gains.count_stage_2_starts(runs.reindex(keys)),
        'runs': len(keys),
        'own_rates': sum(configs[0].stage2_lr is not None for configs in finals.values()),
    }


def _lac_parts() -> ablation_arms.Ablation:
    return ablation_arms.read_ablations()['lac_parts']


def _two_way(runs: pd.DataFrame) -> dict:
    cells = published.index_cells('two_way', '7').values()
    of_paper = {cell['dataset'] for cell in cells if not cell['added']}
    plans = [(cell['dataset'], tables.plan_cell(cell, PHOTOS_SUITE)) for cell in cells]
    searched = {dataset: plan.search[0] for dataset, plan in plans if plan.search}
    config = next(iter(searched.values()))
    lost = [
        cell
        for number in published.table_numbers('two_way')
        for cell in published.index_cells('two_way', number).values()
        if cell['lost']
    ]
    return {
        'batch': config.batch_size,
        'epochs': config.epochs,
        'sets': len(of_paper),
        'fillable': len(of_paper & set(searched)),
        'own_sets': len(set(searched) - of_paper),
        'lost': len(lost),
    }


def _em_apl(runs: pd.DataFrame) -> dict:
    sets = ['VOC', 'COCO', 'NUS', 'CUB']
    lem = [f'LEM / {name}' for name in sets]
    lines = tables.cell_lines('em_apl', '1', 'EM+APL', sets, runs) if len(runs) else runs
    in_lac = _printed_gaps('lac', ('2', 'L_EM', lem), ('2', 'L_AN', lem))
    f1 = {}
    for average in ('micro', 'macro'):
        columns = [f'{name} / {average}-F1 at the chosen threshold' for name in sets]
        f1[average] = answer_cells('em_apl', '7', 'EM', 'AN', columns, runs)
    return {
        'rerun': float(np.mean(in_lac)),
        'idle': int((lines.exercised == 0).sum()) if len(lines) else 0,
        'runs': len(lines),
        'f1': f1,
        'worst': _worst_class(),
    }


_SURE = 0.96  # above it are two of the fifty bins of the figure


def _worst_class() -> dict | None:
    """The class of Fig. 11 that loses most by EM: name, its average precision with AN and EM, and
    the percentage of its labels to which EM gives a probability of `_SURE` or more.
    """
    file = paper_figures.find_arrays('em_apl', '11', PHOTOS_SUITE)
    if not file.is_file():
        return None
    collected = figure_drawing.read_figure_arrays(file)
    seeds = collected.of_seeds('coco14', 'AN')
    an, em = (collected.summary('coco14', name, 'ap')[0] for name in ('AN', 'EM'))
    worst = int(np.argmin(em - an))
    counts = collected.summary('coco14', 'EM', 'counts')[0][worst].sum(0)
    first_bin = round(_SURE * len(counts))
    return {
        'name': str(seeds[0]['names'][worst]),
        'an': an[worst],
        'em': em[worst],
        'sure': 100 * counts[first_bin:].sum() / counts.sum(),
        'from': _SURE,
    }


_FIELDS: dict[str, Callable[[pd.DataFrame], dict]] = {
    'hml': _hml,
    'opml': _opml,
    'lac': _lac,
    'two_way': _two_way,
    'em_apl': _em_apl,
}


def format_conclusion(paper: str, checked: pd.DataFrame, runs: pd.DataFrame) -> str:
    """The conclusion on a paper, in Markdown.

    Args:
        paper: One of `published.list_papers()`.
        checked: Its claims, as from `claims.report_claims`.
        runs: The table of record.
    """

    def gain(
        method: str,
        base: str,
        head: str | None = None,
        base_head: str | None = None,
        metric: str = 'mAP',
    ) -> Answer:
        return answer_gain(runs, Row(method, head), Row(base, base_head), metric)

    return render_template(
        f'conclusion_{paper}.md',
        claim=partial(answer_claim, checked),
        gain=gain,
        parts=gains_at_equal_settings(paper),
        uncounted=UNCOUNTED,
        **_FIELDS[paper](runs),
    )


def paper_pages(checked: pd.DataFrame, runs: pd.DataFrame) -> dict[str, str]:
    """The page of every paper: its conclusion, with links to its tables, figures and claims.

    Args:
        checked: The claims of all papers, as from `claims.report_claims`.
        runs: The table of record.

    Returns:
        {`PAPER/README.md`: Markdown}.
    """
    return {
        f'{paper}/README.md': render_template(
            'paper_readme.md',
            paper=published.read_paper(paper),
            conclusion=format_conclusion(paper, of_paper, runs),
            figures=[
                number
                for number in paper_figures.list_figures(paper)
                if paper_figures.find_arrays(paper, number, PHOTOS_SUITE).is_file()
            ],
        )
        for paper, of_paper in checked.groupby('paper', sort=False)
    }


@dataclass(frozen=True)
class Part:
    """A section of a paper, or a part of one.

    Attributes:
        name: Number and heading as in the text.
        tables, figures, equations: Their numbers in the paper.
        claims: Ids of `claims.read_claims`.
        notebooks: Notebooks in nbs/ with a heading in them: 'methods/hml#Label correlation'.
        also: Where else it is, as Markdown.
        not_done: What is missing and why, '' if nothing.
    """

    name: str
    tables: Sequence[str] = ()
    figures: Sequence[str] = ()
    equations: Sequence[int] = ()
    claims: Sequence[str] = ()
    notebooks: Sequence[str] = ()
    also: str = ''
    not_done: str = ''


@dataclass(frozen=True)
class PaperMap:
    """All parts of a paper.

    Attributes:
        parts: In the order of the text.
        tables, figures: Numbers of all tables and figures of the paper.
        equations: Number of the last equation.
        source: Where these numbers are from.
    """

    parts: Sequence[Part]
    tables: Sequence[str]
    figures: Sequence[str]
    equations: int
    source: str


@lru_cache
def read_paper_map(paper: str) -> PaperMap:
    """The map of a paper, from `assets/sections`.

    Raises:
        SpmlError: For a paper that is not in `published.list_papers()`.
    """
    require_one_of(paper, published.ORDER, 'paper')
    file = files('spml_nb') / 'assets' / 'sections' / f'{paper}.yml'
    content = yaml.safe_load(file.read_text(encoding='utf-8'))
    return PaperMap([Part(**part) for part in content['parts']], **content['numbers'])


def format_paper_map(paper: str) -> str:
    """The map of a paper as a Markdown table, with links from nbs/papers.

    Raises:
        SpmlError: For a paper that is not in `published.list_papers()`.
    """
    rows = [[_name_part(part), _links(paper, part)] for part in read_paper_map(paper).parts]
    return markdown_table([['part of the paper', 'here'], *rows])


def _name_part(part: Part) -> str:
    if not part.equations:
        return part.name
    first, last = min(part.equations), max(part.equations)
    return f'{part.name} (Eq. {first})' if first == last else f'{part.name} (Eq. {first}–{last})'


def _links(paper: str, part: Part) -> str:
    tables = [number for number in part.tables if number in published.table_numbers(paper)]
    figures = [number for number in part.figures if number in paper_figures.list_figures(paper)]
    links = [
        _list_numbers('Table', tables),
        _list_numbers('Fig.', figures),
        _list_numbers('claims', [f'`{claim}`' for claim in part.claims]),
        ', '.join(map(_link_notebook, part.notebooks)),
        part.also,
        part.not_done and f'*not done*: {part.not_done}',
    ]
    return '; '.join(filter(None, links))


def _list_numbers(kind: str, names: list[str]) -> str:
    return f"{kind} {', '.join(names)}" if names else ''


def _link_notebook(target: str) -> str:
    notebook, _, heading = target.partition('#')
    return f"[{notebook}: {heading}](../{notebook}.ipynb#{quote(heading.replace(' ', '-'))})"
