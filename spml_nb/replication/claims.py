"""The claims of the papers: the numbers that each compares, in the paper and in our runs."""

import json
import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib import import_module
from importlib.resources import files as packaged

import pandas as pd
import yaml
from scipy import stats

from ..base.errors import require_one_of
from ..statistics import COMPARED, SIGNIFICANCE_LEVEL, Effect, Verdict
from ..sweeps.queue import run_key
from . import ablation_arms, figure_drawing, paper_figures
from . import tables as papers
from .comparisons import (
    ClaimResult,
    Contrast,
    Number,
    Place,
    PlaceResult,
    claim_above,
    claim_between,
    decide_claim,
)
from .gains import mechanism_acted_in
from .published import (
    ORDER,
    PHOTOS_SUITE,
    UNCOUNTED,
    find_stand_in,
    index_cells,
    merge_mappings,
    read_paper,
    table_entry,
)
from .templates import render_template


@dataclass(frozen=True)
class CurvePart:
    """A number read from a curve of a figure.

    Attributes:
        dataset: The paper's data set.
        series: A series of the figure; with points, (series, *coordinates of the point).
        quantity: Function from the arrays of the curve to the number.
        tested: The data set whose test images it was measured on, '' for other images.
        metric: As in `Number`, for a number that was not measured on test images.
    """

    figure: str
    dataset: str
    series: str | tuple
    quantity: Callable[[dict], float]
    tested: str = ''
    metric: str = ''


@dataclass(frozen=True)
class Operand:
    """One side of a comparison: a table cell, the runs of a configuration (test mAP), a curve of a
    figure, or an arm of an ablation.

    Attributes:
        paper: One of `published.list_papers()`.
        cell: (table, row, column).
        config: Fields of `runs.Config`. For an arm, those in which it differs from other arms.
        arm: (ablation id, arm, column).
    """

    paper: str
    cell: tuple[str, str, str] | None = None
    config: dict | None = None
    curve: CurvePart | None = None
    arm: tuple[str, str, str] | None = None


OperandValue = Callable[[Operand], Number]


class TableScores:
    """The numbers of a table: `scores[row, column]` is {name: Number}.

    A row or a column may be a list; the names are then those of the list, of the columns if both
    are lists.

    Args:
        paper: One of `published.list_papers()`.
        table: One of its tables.
        value: Function from an operand to its number.

    Raises:
        SpmlError: If `scores[row, column]` names a row or column that the table does not have.
    """

    def __init__(self, paper: str, table: str, value: OperandValue):
        self.name = f'table {table} of {paper!r}'
        self.paper = paper
        self.table = table
        self.value = value
        entry = table_entry(paper, table)
        self.rows = list(entry['rows'])
        self.columns = list(entry['columns'])
        self.again = entry.get('ours', {}).get('again', {})
        self._row_prefix = ''

    @property
    def repeated_sets(self) -> list[str]:
        """Our photo sets on which every row of the table was repeated."""
        return [] if 'group' in self.again else self.again.get('sets', [])

    def on(self, dataset: str) -> 'TableScores':
        """The rows that were repeated on one of our photo sets, under their names in the paper."""
        require_one_of(dataset, self.again.get('sets', ()), f'set of photos of {self.name}')
        repeated = copy(self)
        repeated.name = f'{self.name} on {dataset}'
        repeated._row_prefix = f'{dataset} / '
        group = f'{self.again["group"]} / ' if 'group' in self.again else ''
        repeated.rows = [row.removeprefix(group) for row in self.rows if row.startswith(group)]
        return repeated

    def _operand(self, row: str, column: str) -> Operand:
        return Operand(self.paper, (self.table, self._row_prefix + row, column))

    def __getitem__(self, cells: tuple) -> dict[str, Number]:
        rows, columns = (names if isinstance(names, list) else [names] for names in cells)
        for name in rows:
            require_one_of(name, self.rows, f'row of {self.name}')
        for name in columns:
            require_one_of(name, self.columns, f'column of {self.name}')
        return {
            column if len(columns) > 1 else row: self.value(self._operand(row, column))
            for row in rows
            for column in columns
        }

    def compare_columns(
        self, compare: Callable, *sides: str | list[str], at: list[str] | None = None, **bounds
    ) -> list[Place]:
        """Compare rows in each column.

        Args:
            compare: `claim_above`, `claim_between`, `claim_trend` or `claim_steady`.
            sides: Rows on the left and, if there are two sides, on the right.
            at: Columns; default: all.
            bounds: Keyword arguments of `compare`.

        Returns:
            A place for each column, named after it.
        """
        return [
            compare(column, *(self[rows, column] for rows in sides), **bounds)
            for column in at or self.columns
        ]


class ArmScores(TableScores):
    """The numbers of an ablation, as a table whose rows are the arms.

    Args:
        ablation: Id, one of `ablation_arms.read_ablations()`.
        value: As for `TableScores`.
    """

    def __init__(self, ablation: str, value: OperandValue):
        self.name = f'ablation {ablation!r}'
        self.value = value
        self.ablation = ablation_arms.read_ablations()[ablation]
        self.rows = list(self.ablation.arms)
        self.columns = list(self.ablation.columns)

    def _operand(self, row: str, column: str) -> Operand:
        return Operand(
            self.ablation.paper,
            config=ablation_arms.published_arm_config(self.ablation, row, column),
            arm=(self.ablation.id, row, column),
        )


def run_scores(paper: str, value: OperandValue, *configs: dict, **fields) -> dict[str, Number]:
    """The numbers of runs that are in no table.

    Args:
        paper: One of `published.list_papers()`; its `config` is the base of all runs.
        value: Function from an operand to its number.
        configs: The runs to compare, each laid over the fields.
        fields: Of `runs.Config`, the same for all runs.

    Returns:
        {name: Number}; the name of {'loss': 'joint', 'hparams': {'T_pos': 1}} is 'joint, T_pos 1'.
    """
    base = merge_mappings(read_paper(paper).get('config'), fields)
    return {
        _name_config(config): value(Operand(paper, config=merge_mappings(base, config)))
        for config in configs
    }


def _name_config(config: dict) -> str:
    flat = {name: value for name, value in config.items() if name != 'hparams'}
    flat = merge_mappings(flat, config.get('hparams'))
    return ', '.join(
        str(value) if name == 'loss' else f'{name} {value}' for name, value in flat.items()
    )


def _curve_scores(
    paper: str,
    figure: str,
    value: OperandValue,
    dataset: str,
    series: str | dict[str, str | tuple],
    quantity: Callable[[dict], float],
    tested: str = '',
    metric: str = '',
) -> dict[str, Number]:
    """The numbers of a figure's curves, {name: Number}.

    Args:
        value: Function from an operand to its number.
        series: A series of the figure, or {name: series}.
        dataset, quantity, tested, metric: As in `CurvePart`.
    """
    by_name = series if isinstance(series, dict) else {series: series}
    curves = {
        name: CurvePart(figure, dataset, of_figure, quantity, tested, metric)
        for name, of_figure in by_name.items()
    }
    return {name: value(Operand(paper, curve=curve)) for name, curve in curves.items()}


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, with the comparison that decides it.

    Attributes:
        id: The paper and a word: 'hml-single'.
        where: Section, table or figure of the paper.
        text: The claim in our words, one sentence.
        compare: Function from scores to a list of places. Which scores it takes depends on the next
            three: one `ArmScores` for each ablation; else a `TableScores` for each table and a
            function of curves for the figure; else a function of runs.
        ablations: Ids of the ablations whose arms decide it.
        tables: The tables whose numbers decide it.
        figure: The figure whose curves decide it, or ''.
        lost: Whether the paper's own numbers are in a text that we do not have.
        lacking: What would have to be recorded to decide it, '' if nothing.
        inferred: Whether a table shows it but no sentence says it.
        note: What is unclear in the text, what we chose, and where the paper's own numbers
            disagree; a function of the finished runs if it contains numbers of ours.
        main: Whether it is the paper's main claim: its method is better than others.
        of_component: Whether it is about one component, so that both sides of each comparison
            differ in one thing.
    """

    id: str
    where: str
    text: str
    compare: Callable[..., list[Place]]
    tables: Sequence[str] = ()
    figure: str = ''
    lost: bool = False
    lacking: str = ''
    inferred: bool = False
    note: str | Callable[[pd.DataFrame], str] = ''
    main: bool = False
    ablations: Sequence[str] = ()
    of_component: bool = False

    @property
    def paper(self) -> str:
        """One of `published.list_papers()`."""
        return self.id.split('-')[0]

    def places(self, value: OperandValue) -> list[Place]:
        """All places where the claim is tested.

        Args:
            value: Function from an operand to its number, such as `published_claim_value` or the
                result of `our_claim_value`.
        """
        if self.lacking:
            return []
        if self.ablations:
            return self.compare(*(ArmScores(name, value) for name in self.ablations))
        scores = [TableScores(self.paper, table, value) for table in self.tables]
        if self.figure:
            curves = partial(_curve_scores, self.paper, self.figure, value)
            return self.compare(*scores, curves)
        if not scores:
            return self.compare(partial(run_scores, self.paper, value))
        places = self.compare(*scores)
        for dataset in scores[0].repeated_sets:
            repeated = self.compare(*(table.on(dataset) for table in scores))
            places += [replace(place, name=f'{dataset}, {place.name}') for place in repeated]
        return places


def read_claims(paper: str | None = None) -> list[Claim]:
    """The claims of a paper, default: of all papers in the order of their notebooks.

    Raises:
        SpmlError: For a paper that is not in `published.list_papers()`.
    """
    papers = ORDER if paper is None else [require_one_of(paper, ORDER, 'paper')]
    return [claim for name in papers for claim in _read_claims(name)]


@lru_cache
def _read_claims(paper: str) -> list[Claim]:
    "Sentences and simple comparisons are in YAML, other comparisons in `replication.papers`."
    code = import_module(f'spml_nb.replication.papers.{paper}_claims')
    notes = getattr(code, 'NOTES', {})
    file = packaged('spml_nb') / 'assets' / 'claims' / f'{paper}.yml'
    claims = []
    for entry in yaml.safe_load(file.read_text(encoding='utf-8')):
        compare = code.COMPARE.get(entry['id']) or _compare_rows(entry)
        note = notes.get(entry['id'], entry.get('note', ''))
        fields = {name: entry[name] for name in entry if name not in ('above', 'between')}
        claims.append(Claim(**fields | {'compare': compare, 'note': note}))
    return claims


def _compare_rows(entry: dict) -> Callable[..., list[Place]]:
    "The comparison that a YAML entry names: rows `above` others or `between` bounds."
    compare = claim_above if 'above' in entry else claim_between
    bounds = dict(entry.get('above') or entry.get('between', {}))
    sides = [bounds.pop(side) for side in ('rows', 'than') if side in bounds]
    return lambda *tables: [
        place for table in tables for place in table.compare_columns(compare, *sides, **bounds)
    ]


def claim_operands(claim: Claim) -> list[Operand]:
    """The operands that a claim compares."""
    operands = []

    def collect(operand):
        operands.append(operand)
        return Number({})

    claim.places(collect)
    return operands


def published_claim_value(operand: Operand) -> Number:
    """The number that the paper prints, without seeds.

    Args:
        operand: A table cell, or an arm that repeats one; other operands are printed nowhere.

    Source: the papers' tables.
    """
    cell = None
    if operand.cell:
        table, *row_and_column = operand.cell
        cell = index_cells(operand.paper, table)[tuple(row_and_column)]
        if cell['added']:
            return Number({}, added=True)
    elif operand.arm:
        name, arm, column = operand.arm
        cell = ablation_arms.printed_arm_cell(ablation_arms.read_ablations()[name], arm, column)
    if cell is None:
        return Number({})
    return Number({}, printed=(cell['mean'], cell['std'], cell['runs']), source=cell['source'])


def _printed_sign(contrast: Contrast) -> int | None:
    "+1: the claim holds, -1: it does not, 0: equal numbers. None: a number is not printed."
    excess = contrast.published
    if math.isnan(excess):
        return None
    if abs(excess) < 1e-9 and not contrast.bound:
        return 0
    return 1 if excess > -1e-9 else -1


def _beyond_deviations(place: Place) -> bool | None:
    """Whether all contrasts are significant by Welch's test on the printed deviations; None if
    deviations are missing, or a contrast is no plain difference.
    """
    significant = []
    for contrast in place.contrasts:
        printed = [number.printed for number in contrast.numbers]
        if contrast.weights != [1, -1] or contrast.bound:
            return None
        if not all(not math.isnan(std) and runs and runs > 1 for _, std, runs in printed):
            return None
        test = stats.ttest_ind_from_stats(*printed[0], *printed[1], equal_var=False)
        significant.append(test.pvalue < SIGNIFICANCE_LEVEL)
    return all(significant)


_HOLDS = {1: 'holds', 0: 'holds in part', -1: 'does not hold'}


def published_claim_verdict(claim: Claim) -> str:
    """The verdict of the paper's own numbers.

    Returns:
        'holds, 4 of 4, 3 beyond the printed deviations': 'holds', 'holds in part' (some numbers are
        equal) or 'does not hold'; the number of places where it holds; and of these, where it is
        significant by Welch's test, if all deviations are printed. 'lost' if we do not have the
        numbers, 'not in a table' for a claim about runs or a figure.

    Source: the papers' tables.
    """
    if claim.lost:
        return 'lost'
    if not claim.tables:
        return 'not in a table'
    places = claim.places(published_claim_value)
    signs = [[_printed_sign(contrast) for contrast in place.contrasts] for place in places]
    # one contrast that fails decides a place, whether or not the others are printed
    lowest = [
        min(sign for sign in of_place if sign is not None)
        for of_place in signs
        if None not in of_place or -1 in of_place
    ]
    if not lowest:
        return 'lost'
    text = f'{_HOLDS[min(lowest)]}, {lowest.count(1)} of {len(lowest)}'
    beyond = [_beyond_deviations(place) for place in places]
    if None in beyond:
        return text
    count = sum(yes and sign == 1 for yes, sign in zip(beyond, lowest, strict=True))
    return f'{text}, {count} beyond the printed deviations'


def our_claim_value(suite: str, runs: pd.DataFrame, tables: dict | None = None) -> OperandValue:
    """A function from an operand to its number in our runs.

    Args:
        suite: 'photos' or 'paper'.
        runs: Finished runs, as from `tables.read_recorded_runs`.
        tables: {(paper, table): the cells of `tables.table`}, for tables that are already made.
    """
    cells = {name: _numbers_by_cell(table) for name, table in (tables or {}).items()}

    def value(operand: Operand) -> Number:
        if operand.arm:
            return _number_of_arm(operand, suite, runs)
        if operand.curve:
            return _number_of_curve(operand, suite, runs)
        if operand.config:
            return _number_of_runs(operand, suite, runs)
        table, row, column = operand.cell
        name = operand.paper, table
        if name not in cells:
            cells[name] = _numbers_by_cell(papers.table(*name, runs, suite).cells)
        printed = published_claim_value(operand)
        return replace(
            _unmeasured_numbers(*name, suite)[row, column],
            **cells[name][row, column],
            printed=printed.printed,
            source=printed.source,
        )

    return value


def _numbers_by_cell(cells: pd.DataFrame) -> dict[tuple[str, str], dict]:
    "{(row, column): fields of `Number`}."
    return {
        (cell.row, cell.column): {
            'seeds': {int(seed): value for seed, value in json.loads(cell.seeds).items()},
            'exercised': cell.state != 'not exercised',
            'first_key': cell.first_key,
        }
        for cell in cells.itertuples()
    }


def _rounded_scores(by_seed: pd.Series) -> dict[int, float]:
    return {seed: round(value, 4) for seed, value in by_seed.items()}


def _number_of_runs(operand: Operand, suite: str, runs: pd.DataFrame) -> Number:
    cell = papers.cell_of_runs(operand.paper, operand.config)
    configs = papers.cell_final_runs(papers.plan_cell(cell, suite), runs)
    scores = papers.read_measures(configs, cell['metric'], runs)
    return replace(
        _unmeasured_number(cell, suite),
        seeds=_rounded_scores(scores.by_seed),
        exercised=mechanism_acted_in(configs, runs),
        first_key=scores.key,
    )


def _number_of_arm(operand: Operand, suite: str, runs: pd.DataFrame) -> Number:
    name, arm, column = operand.arm
    ablation = ablation_arms.read_ablations()[name]
    printed = published_claim_value(operand)
    if suite != PHOTOS_SUITE:
        return printed
    dataset = ablation.columns[column]
    scores = ablation_arms.arm_scores(ablation, arm, dataset, runs)
    return replace(
        printed,
        seeds=_rounded_scores(scores.by_seed),
        prefix=f'{dataset} for ',
        runs=operand.arm,
        dataset=scores.dataset,
        metric=scores.metric,
        exercised=ablation_arms.arm_acted(ablation, arm, dataset, runs),
        first_key=scores.key,
    )


def _number_of_curve(operand: Operand, suite: str, runs: pd.DataFrame) -> Number:
    curve = operand.curve
    stand_in = find_stand_in(curve.dataset, suite)
    file = paper_figures.find_arrays(operand.paper, curve.figure, suite)
    series, *point = [curve.series] if isinstance(curve.series, str) else curve.series
    about, arrays = (
        figure_drawing.read_figure_arrays(file) if file.is_file() else ({'parts': {}}, {})
    )
    seeds = {
        int(runs.at[part['key'], 'seed']): round(curve.quantity(arrays[name]), 4)
        for name, part in about['parts'].items()
        if (part['dataset'], part['series'], part['values']) == (curve.dataset, series, point)
        and part['key'] in runs.index
    }
    return Number(
        seeds,
        prefix='' if suite == 'paper' else f'{stand_in} for ',
        runs=(stand_in, curve.series, curve.quantity),
        dataset=curve.tested,
        metric='mAP' if curve.tested else curve.metric,
    )


@lru_cache
def _unmeasured_numbers(paper: str, table: str, suite: str) -> dict[tuple[str, str], Number]:
    cells = index_cells(paper, table)
    datasets = {cell['dataset'] for cell in cells.values() if not cell['added']} - {None}
    several = len(datasets) > 1
    return {where: _unmeasured_number(cell, suite, several) for where, cell in cells.items()}


def _unmeasured_number(cell: dict, suite: str, several: bool = True) -> Number:
    """The Number of a cell without its seeds.

    Args:
        several: Whether the names of places tell data sets apart; the prefix ends in ' for ' then.
    """
    plan = papers.plan_cell(cell, suite)
    metric = cell['metric']
    if not plan.search:
        return Number({}, metric=metric, added=cell['added'])
    stand_in = find_stand_in(cell['dataset'], suite)
    # places in rows that we added are named after our photo sets already
    needs_prefix = suite != 'paper' and not cell['added']
    prefix = stand_in + (' for ' if several else ', ') if needs_prefix else ''
    stated = json.dumps(plan.stated, sort_keys=True)
    return Number(
        {},
        prefix=prefix,
        runs=(frozenset(map(run_key, plan.search)), stated, plan.labels, metric),
        dataset=papers.find_test_set(metric, stand_in),
        metric=metric,
        added=cell['added'],
    )


def report_claims(
    suite: str, runs: pd.DataFrame, paper: str | None = None, value: OperandValue | None = None
) -> pd.DataFrame:
    """The claims with the verdicts of the papers' numbers and of our runs.

    Args:
        suite: 'photos' or 'paper'.
        runs: Finished runs, as from `tables.read_recorded_runs`.
        paper: One of `published.list_papers()`, default: all.
        value: Function from an operand to its number, default: `our_claim_value(suite, runs)`.

    Returns:
        One row per claim with the columns

        - paper, id, where, claim (the text), main, inferred, note, lacking: as in `Claim`
        - published: as from `published_claim_verdict`
        - ours (`statistics.Verdict`), sign (as in `ClaimResult`), size (`statistics.Size`)
        - by_arms: whether runs decide it that differ in one switch alone, not the paper's rows
        - effect, half_width, detectable: of the mean over places, beyond the bound; NaN without two
          seeds
        - amount, published_amount, between: our effect and the paper's without the bound, and the
          comparison that they are of
        - seeds: the fewest at a place
        - reproduced, decided, places: number of places that reproduce it, with runs, and in all
        - summary, measured, missing: in words all of it, the places with runs and those without
        - forest: JSON list for `figure_drawing.draw_forest`: the claim (place ''), then each
          place with runs. Each has place, between, word, on_average, size, mean, low, high,
          published (beyond the bound), mean_told, published_told (without the bound), bounded,
          seeds and mixed (as in `ClaimResult`); the claim also comparable, its effect on the sets
          that stand for the paper's, None if these are all.

    Raises:
        SpmlError: For an unknown suite or paper.

    Source: the papers' texts.
    """
    value = value or our_claim_value(suite, runs)
    rows = []
    for claim in read_claims(paper):
        row = {
            'paper': claim.paper,
            'id': claim.id,
            'where': claim.where,
            'claim': claim.text,
            'main': claim.main,
            'inferred': claim.inferred,
            'note': claim.note(runs) if callable(claim.note) else claim.note,
            'published': published_claim_verdict(claim),
            'lacking': claim.lacking,
            'by_arms': bool(claim.ablations),
        }
        rows.append(row | _result_row(decide_claim(claim.places(value))))
    return pd.DataFrame(rows)


_NO_EFFECT = Effect(*[math.nan] * 8, seeds=0)


def _result_row(result: ClaimResult) -> dict:
    measured = [place for place in result.places if place.verdict is not Verdict.NOT_RUN]
    missing = [place for place in result.places if place.verdict is Verdict.NOT_RUN]
    claim_line = _forest_line(result)
    place_lines = [_forest_line(place) for place in result.places if place.effect]
    effect = result.effect or _NO_EFFECT
    return {
        'ours': result.word,
        'sign': result.sign,
        'size': str(result.size),
        'effect': _rounded(effect.mean),
        'half_width': _rounded(effect.half_width),
        'detectable': _rounded(effect.detectable),
        'amount': claim_line['mean_told'],
        'published_amount': claim_line['published_told'],
        'between': result.between,
        'seeds': min((line['seeds'] for line in place_lines), default=0),
        'reproduced': sum(place.verdict is Verdict.REPRODUCED for place in measured),
        'decided': len(measured),
        'places': len(result.places),
        'summary': str(result),
        'measured': '; '.join(map(str, measured)),
        'missing': '; '.join(map(str, missing)),
        'forest': json.dumps(
            [claim_line | {'comparable': _comparable(result)}, *place_lines], ensure_ascii=False
        ),
    }


def _comparable(result: ClaimResult) -> float | None:
    "Our effect where the paper has numbers, if we have added places of our own."
    if result.comparable is None or result.comparable == result.effect:
        return None
    return _rounded(result.contrast.sum_at(result.comparable.mean))


def _rounded(value: float) -> float:
    return round(float(value), 4) + 0.0  # 0.0 instead of -0.0


def _forest_line(result: ClaimResult | PlaceResult) -> dict:
    effect, contrast = result.effect or _NO_EFFECT, result.contrast or Contrast([], [])
    numbers = {
        'mean': effect.mean,
        'low': effect.low,
        'high': effect.high,
        'published': result.published,
        'mean_told': contrast.sum_at(effect.mean),
        'published_told': contrast.sum_at(result.published),
    }
    return {
        'place': result.name,
        'between': result.between,
        'bounded': bool(contrast.bound),
        'word': result.word,
        'on_average': result.on_average,
        'size': str(result.size),
        **{name: None if math.isnan(x) else _rounded(x) for name, x in numbers.items()},
        'seeds': effect.seeds,
        'mixed': result.mixed and not math.isnan(result.published),
    }


def count_verdicts(checked: pd.DataFrame) -> dict[str, int]:
    """{verdict: number of claims with it}, for claims as from `report_claims`."""
    counts = checked.ours.value_counts()
    return {verdict: int(counts[verdict]) for verdict in Verdict if verdict in counts}


def count_sizes(checked: pd.DataFrame) -> dict[str, int]:
    """{size: number of claims with it}, for claims as from `report_claims`, without those
    whose size cannot be compared.
    """
    counts = checked['size'].value_counts()
    return {size: int(counts[size]) for size in COMPARED if size in counts}


def format_verdicts(checked: pd.DataFrame) -> str:
    """The verdicts on all papers, a line each, in Markdown with links from `outputs/`.

    Args:
        checked: As from `report_claims`, of all papers.
    """
    papers = []
    for paper, of_paper in checked.groupby('paper', sort=False):
        counts = {
            'main': of_paper[of_paper.main].to_dict('records'),
            'claims': len(of_paper),
            'verdicts': count_verdicts(of_paper),
            'sizes': count_sizes(of_paper),
        }
        papers.append(read_paper(paper) | counts)
    return render_template(
        'verdicts.md',
        papers=papers,
        claims=len(checked),
        verdicts=count_verdicts(checked),
        uncounted=UNCOUNTED,
    )
