"""Decides the claims of the papers' texts: from scores to effects, from effects to verdicts."""

import json
import math
import re
from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib import import_module
from importlib.resources import files as packaged
from itertools import pairwise, permutations, zip_longest

import numpy as np
import pandas as pd
import yaml
from scipy import stats

from .. import statistics
from ..base.errors import one_of
from ..statistics import LEVEL, Effect, Size, Verdict, image_sd
from ..sweeps.queue import key
from . import arms, figure_runs, figures
from . import tables as papers
from .gains import mechanism_acted_in
from .published import (
    ORDER,
    SUITE,
    UNCOUNTED,
    find_stand_in,
    index_cells,
    merge_mappings,
    read_paper,
)

SHARE = 'share of labels'  # in percent; half a point is little, as of mAP


@dataclass(frozen=True)
class CurvePart:
    """A number that is read from a curve of a figure.

    Attributes:
        figure: One of the paper's figures.
        dataset: The paper's name of it.
        series: A series of the figure; with several points, (series, *values of a point).
        quantity: Turns the arrays of the curve into a number.
        tested: The data set whose test images it was measured on, or ''.
        metric: As in `Number`, for what is not measured on test images alone.
    """

    figure: str
    dataset: str
    series: str | tuple
    quantity: Callable[[dict], float]
    tested: str = ''
    metric: str = ''


@dataclass(frozen=True)
class Operand:
    """Something that has a number: one of a cell of a table, the runs of a configuration, a curve
    of a figure, or an arm of an ablation.

    Attributes:
        paper: One of `published.list_papers()`.
        cell: (table, row, column).
        config: Fields of `runs.Config`, as for a published cell. The runs are scored by mAP.
        curve: Of a figure.
        arm: (id of an ablation, arm, column). Its `config` says what differs between arms.
    """

    paper: str
    cell: tuple[str, str, str] | None = None
    config: dict | None = None
    curve: CurvePart | None = None
    arm: tuple[str, str, str] | None = None


@dataclass(frozen=True)
class Number:
    """What an operand is worth.

    Attributes:
        seeds: {seed: value}, empty while there is no run.
        prefix: The data set that stands in for the paper's. It begins the name of a place:
            'mini_voc for '.
        runs: Equal for equal runs, None where there can be no run.
        dataset: Whose test images it was measured on, '' for other images.
        metric: Of `published.METRICS`, or `SHARE`; '' for what else a curve has, of which half a
            point need not be little.
        printed: (mean, standard deviation, runs) as the paper prints them, NaN for what it does not
            print.
        exercised: Whether the method's own mechanism acted before selection stopped. Without it the
            number decides nothing.
        first: The key of the first run, '' if it is of curves.
        source: Who trained what the paper prints, as in `published.table_cells`; '' for no such
            number.
        own: Whether it is of a cell that the paper does not have.
    """

    seeds: dict[int, float]
    prefix: str = ''
    runs: Hashable = None
    dataset: str = ''
    metric: str = 'mAP'
    printed: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    exercised: bool = True
    first: str = ''
    source: str = ''
    own: bool = False


OperandValue = Callable[[Operand], Number]


class TableScores:
    """The numbers of one table. `scores[row, column]` is {name: Number}; a row or a column may be a
    list of them. The names are those of the columns if there are several, else those of the rows.

    Args:
        paper: One of `published.list_papers()`.
        table: One of its tables.
        value: Gives the number of an operand.

    Raises:
        SpmlError: If `scores[row, column]` names a row or column that the table does not have.
    """

    def __init__(self, paper: str, table: str, value: OperandValue):
        self.name = f'table {table} of {paper!r}'
        self.operand = lambda row, column: Operand(paper, (table, row, column))
        self.value = value
        description = read_paper(paper)['tables'][table]
        self.rows = list(description['rows'])
        self.columns = list(description['columns'])
        self.again = description.get('ours', {}).get('again', {})

    @property
    def whole_again(self) -> list[str]:
        """Our sets of photos that have all rows of the table again."""
        return [] if 'group' in self.again else self.again.get('sets', [])

    def on(self, dataset: str) -> 'TableScores':
        """The rows that the table has again on one of our sets of photos, under their own names."""
        one_of(dataset, self.again.get('sets', ()), f'set of photos of {self.name}')
        there = copy(self)
        there.name = f'{self.name} on {dataset}'
        there.operand = lambda row, column: self.operand(f'{dataset} / {row}', column)
        group = f'{self.again["group"]} / ' if 'group' in self.again else ''
        there.rows = [row.removeprefix(group) for row in self.rows if row.startswith(group)]
        return there

    def __getitem__(self, place: tuple) -> dict[str, Number]:
        rows, columns = (names if isinstance(names, list) else [names] for names in place)
        for name in rows:
            one_of(name, self.rows, f'row of {self.name}')
        for name in columns:
            one_of(name, self.columns, f'column of {self.name}')
        return {
            column if len(columns) > 1 else row: self.value(self.operand(row, column))
            for row in rows
            for column in columns
        }

    def everywhere(
        self, compare: Callable, *sides: str | list[str], at: list[str] | None = None, **bounds
    ) -> list:
        """Compare rows at one column after the other.

        Args:
            compare: `claim_above`, `claim_between`, `claim_trend` or `claim_steady`.
            sides: The rows of the left side, and of the right one if there is one.
            at: Some of the columns, unset: all.
            bounds: As `compare` takes them.

        Returns:
            A list of Place, named after the columns.
        """
        return [
            compare(column, *(self[rows, column] for rows in sides), **bounds)
            for column in at or self.columns
        ]


class ArmScores(TableScores):
    """The numbers of an ablation, as of a table whose rows are the arms.

    Args:
        ablation: One of `arms.read_ablations()`.
        value: As for `TableScores`.
    """

    def __init__(self, ablation: str, value: OperandValue):
        self.name = f'ablation {ablation!r}'
        self.value = value
        about = arms.read_ablations()[ablation]
        self.operand = lambda row, column: Operand(
            about.paper,
            config=arms.published_arm_config(about, row, column),
            arm=(ablation, row, column),
        )
        self.rows = list(about.arms)
        self.columns = list(about.columns)


def run_scores(paper: str, value: OperandValue, *configs: dict, **fields) -> dict[str, Number]:
    """The numbers of runs that no table has.

    Args:
        paper: One of `published.list_papers()`.
        value: Gives the number of an operand.
        configs: What is compared. Each is laid over the fields, and both over the paper's own
            `config`.
        fields: Of `runs.Config`, the same for all.

    Returns:
        {name: Number}. {'loss': 'joint', 'hparams': {'T_pos': 1}} has the name 'joint, T_pos 1'.
    """
    base = merge_mappings(read_paper(paper).get('config'), fields)
    return {
        _words(config): value(Operand(paper, config=merge_mappings(base, config)))
        for config in configs
    }


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
    """The numbers of a figure's curves.

    Args:
        paper: One of `published.list_papers()`.
        figure: One of its figures.
        value: Gives the number of an operand.
        dataset: The paper's name of a data set.
        series: A series of the figure, or {name: series} for several. A point of a series that has
            several is a tuple, the series and the point's values: ('s = 20', 0.3).
        quantity: Turns the arrays of a curve into a number.
        tested: The data set whose test images it was measured on, if that is known.
        metric: As in `CurvePart`.

    Returns:
        {name: Number}.
    """
    names = series if isinstance(series, dict) else {series: series}
    curves = {
        name: CurvePart(figure, dataset, of_figure, quantity, tested, metric)
        for name, of_figure in names.items()
    }
    return {name: value(Operand(paper, curve=curve)) for name, curve in curves.items()}


def _words(config: dict) -> str:
    flat = merge_mappings(
        {k: v for k, v in config.items() if k != 'hparams'}, config.get('hparams')
    )
    return ', '.join(str(v) if k == 'loss' else f'{k} {v}' for k, v in flat.items())


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of numbers that is claimed to be on one side of a bound.

    Attributes:
        numbers: What is compared.
        weights: As many.
        bound: In the unit of the numbers.
        sign: +1 where the sum should be above the bound, -1 where it should be below.
        between: The names that are compared, '' if there are no others.
    """

    numbers: list[Number]
    weights: list[float]
    bound: float = 0.0
    sign: int = 1
    between: str = ''

    @property
    def by_seed(self) -> dict[int, float]:
        """{seed: sum} of the seeds that all numbers have."""
        if not all(number.exercised for number in self.numbers):
            return {}
        common = set.intersection(*(set(number.seeds) for number in self.numbers))
        terms = list(zip(self.weights, self.numbers, strict=True))
        return {
            seed: sum(weight * number.seeds[seed] for weight, number in terms)
            for seed in sorted(common)
        }

    @property
    def published(self) -> float:
        """How far the paper's own numbers are on the claimed side of the bound; NaN where one is
        not printed.
        """
        total = float(np.dot(self.weights, [number.printed[0] for number in self.numbers]))
        return self.sign * (total - self.bound)

    @property
    def mixed(self) -> bool:
        """Whether the printed numbers come from several sources, and so perhaps other set-ups."""
        return len({number.source for number in self.numbers}) > 1

    def sum_at(self, excess: float) -> float:
        """The sum itself.

        Args:
            excess: How far it is on the claimed side of the bound.
        """
        return self.sign * excess + self.bound

    def effect(self) -> Effect | None:
        """How far the sum is on the claimed side of its bound.

        Returns:
            An Effect, None without a seed. Sums that are all 0 come from equal runs; no test image
            can part them.
        """
        sums = np.array(list(self.by_seed.values()))
        if not len(sums):
            return None
        dataset = self.numbers[0].dataset
        images = 0.0
        if dataset and sums.any():
            largest = max(image_sd(dataset, number.metric) for number in self.numbers)
            names = [statistics.name_resampled(n.first, n.metric) for n in self.numbers]
            images = statistics.image_error(names, self.weights, largest)
        return statistics.estimate_effect(self.sign * (sums - self.bound), None, images)


@dataclass(frozen=True)
class Place:
    """Where a claim is decided.

    Attributes:
        name: As people read it.
        contrasts: All of them are claimed.
    """

    name: str
    contrasts: list[Contrast]

    @property
    def numbers(self) -> list[Number]:
        """Those of all contrasts."""
        return [number for contrast in self.contrasts for number in contrast.numbers]


def _pairs(name: str, left: dict, right: dict, bounds: list[tuple[float, int]]) -> Place:
    "Each of the left against each of the right, or alone, on the right side of each bound."
    contrasts = []
    for a, own in left.items():
        for b, other in right.items() or [('', None)]:
            names = [a] if len(left) > 1 else []
            if len(right) > 1:
                names.append(f'against {b}')
            for bound, sign in bounds:
                between = ' '.join(filter(None, [*names, _bound_text(bound, sign)]))
                numbers, weights = ([own, other], [1, -1]) if other else ([own], [1])
                contrasts.append(Contrast(numbers, weights, bound, sign, between))
    return Place(name, contrasts)


def _bound_text(bound: float, sign: int) -> str:
    if not bound:
        return ''
    return f'at {"least" if sign > 0 else "most"} {bound:g}'.replace('-', '−')


def claim_above(
    name: str, left: dict[str, Number], right: dict[str, Number], by: float = 0.0
) -> Place:
    """Every number of the left is above every number of the right.

    Args:
        by: The least difference, in the unit of the values; -`MARGIN` for "at least as good".
    """
    return _pairs(name, left, right, [(by, 1)])


def claim_between(
    name: str,
    left: dict[str, Number],
    right: dict[str, Number] | None = None,
    *,
    low: float = -math.inf,
    high: float = math.inf,
) -> Place:
    """Every number of the left, or its difference from every number of the right, lies between two
    bounds.

    Args:
        low, high: The least and the greatest value that will do.
    """
    bounds = [(bound, sign) for bound, sign in ((low, 1), (high, -1)) if math.isfinite(bound)]
    return _pairs(name, left, right or {}, bounds)


def claim_share(
    name: str, left: dict[str, Number], right: dict[str, Number], low: float, high: float
) -> Place:
    """One number is a share of another.

    Args:
        left, right: One number each.
        low, high: The least and the greatest share that will do.

    Returns:
        A Place; its numbers are what the left has more than `low` times the right, and less than
        `high` times.
    """
    numbers = [*left.values(), *right.values()]
    above_low = f'above {100 * low:.0f} % of the other'
    below_high = f'below {100 * high:.0f} % of the other'
    return Place(
        name,
        [
            Contrast(numbers, [1, -low], between=above_low),
            Contrast(numbers, [-1, high], between=below_high),
        ],
    )


def claim_rising(name: str, left: dict[str, Number]) -> Place:
    """Every number is above the one before."""
    return Place(
        name,
        [
            Contrast([left[b], left[a]], [1, -1], between=f'{b} against {a}')
            for a, b in pairwise(left)
        ],
    )


def claim_trend(
    name: str,
    left: dict[str, Number],
    right: dict[str, Number] | None = None,
    *,
    falling: bool = False,
) -> Place:
    """The numbers of the left, or their differences from those of the right, rise along the list.

    Args:
        left: Three or more in order.
        right: As many, or None.
        falling: Whether they fall instead.

    Returns:
        A Place; its number is what the straight line through them gains from the first to the last,
        or, where they should fall, from the last to the first.
    """
    position = np.arange(len(left)) - (len(left) - 1) / 2
    weights = (len(left) - 1) * position / np.square(position).sum()
    both = [*left.values(), *(right or {}).values()]
    weights = [*weights, *(-weights if right else ())]
    if falling:
        return Place(name, [Contrast(both, [-w for w in weights], between='from last to first')])
    return Place(name, [Contrast(both, weights, between='from first to last')])


def claim_peak(name: str, left: dict[str, Number], best: range) -> Place:
    """The numbers rise and then fall.

    Args:
        left: Three or more in order.
        best: The positions, from 0, that are high, without the first and the last.

    Returns:
        A Place; its numbers are what the mean of the best positions has more than the first number,
        and than the last.
    """
    names, numbers = list(left), list(left.values())
    return Place(
        name,
        [
            Contrast(
                [*numbers[best.start : best.stop], numbers[end]],
                [*[1 / len(best)] * len(best), -1],
                between=f'against {names[end]}',
            )
            for end in (0, -1)
        ],
    )


def claim_steady(name: str, left: dict[str, Number], within: float) -> Place:
    """The numbers differ by little.

    Args:
        within: The greatest difference of two of them that will do.
    """
    return Place(
        name,
        [
            Contrast(
                [left[a], left[b]],
                [1, -1],
                within,
                -1,
                f'{a} against {b} {_bound_text(within, -1)}',
            )
            for a, b in permutations(left, 2)
        ],
    )


@dataclass(frozen=True)
class PlaceResult:
    """What became of a place. `str()` gives it in words.

    Attributes:
        contrast: The one least in favour of the claim, None without runs.
        effect: Its effect.
    """

    place: Place
    verdict: Verdict
    contrast: Contrast | None = None
    effect: Effect | None = None

    @property
    def size(self) -> Size:
        """Ours beside the published one."""
        if not self.contrast:
            return Size.NOT_MEASURED
        return statistics.classify_size(self.effect, self.contrast.published, self.contrast.mixed)

    def __str__(self) -> str:
        operands = list({id(number): number for number in self.place.numbers}.values())
        missing = sum(not number.seeds for number in operands)
        idle = sum(not number.exercised for number in operands)
        lacking = []
        if 0 < missing < len(operands):
            lacking.append(f'{missing} of {len(operands)} numbers missing')
        if idle:
            lacking.append(f'{idle} of {len(operands)} numbers not exercised')
        name = self.place.name + (f' ({", ".join(lacking)})' if lacking else '')
        if not self.effect:
            return name
        return f'{name}: {_shown(self.verdict)}, {_effect_text(self.effect, self.contrast)}'


def _shown(verdict: Verdict) -> str:
    "The word for what has an effect: some of its comparisons have runs."
    return 'incomplete' if verdict is Verdict.NOT_RUN else str(verdict)


def _effect_text(effect: Effect, of: Contrast, more: str = '') -> str:
    "'+1.50 ± 0.80 (against AN)'"
    interval = ', 1 seed' if effect.seeds == 1 else f' ± {effect.half_width:.2f}{more}'
    total = of.sum_at(effect.mean)
    form = '+.2f' if abs(total) >= 0.005 or not total else '+.1g'
    between = f' ({of.between})' if of.between else ''
    return statistics.format_signed(total, form) + interval + between


@dataclass(frozen=True)
class ClaimResult:
    """What became of a claim. `str()` gives it in words.

    Attributes:
        places: One for each place with runs of its own.
        effect: Of the mean over the places, of the comparison least in favour of the claim; None
            without two seeds.
        contrast: That comparison, as one of the places makes it.
        pooled: How many places it is the mean of.
        tested: How many places have two seeds or more and all that they compare, or are decided
            without.
        published: The same comparison in the paper's numbers, at these places; without runs the
            least one, everywhere.
        mixed: Whether the paper's numbers behind it come from several sources.
        on_average: Whether no single place decides.
    """

    verdict: Verdict
    places: list[PlaceResult]
    effect: Effect | None = None
    contrast: Contrast | None = None
    pooled: int = 0
    tested: int = 0
    published: float = math.nan
    mixed: bool = False
    on_average: bool = False

    @property
    def sign(self) -> str:
        """The first word of the claim: 'reproduced on average'."""
        return f'{self.verdict} on average' if self.on_average else str(self.verdict)

    @property
    def size(self) -> Size:
        """The second word: ours beside the published effect."""
        return statistics.classify_size(self.effect, self.published, self.mixed)

    def __str__(self) -> str:
        if self.verdict in (Verdict.NOT_RUN, Verdict.NOT_EXERCISED):
            return str(self.verdict)
        verdicts = [place.verdict for place in self.places]
        text = f'{self.verdict} ' + statistics.describe_decision(
            self.verdict, verdicts, self.pooled, self.tested
        )
        if not self.effect:
            return text
        more = f', {self.effect.seeds} seeds, power 80 % from {self.effect.detectable:.1f} on'
        if theirs := statistics.format_signed(self.contrast.sum_at(self.published), '+.2f'):
            more += f', the paper {theirs}{UNCOUNTED if self.mixed else ""}'
        return f'{text}: {_effect_text(self.effect, self.contrast, more)}'


def decide_claim(places: list[Place]) -> ClaimResult:
    """Decide a claim by its places; those with the same runs are merged."""
    places = _merged(places)
    contrasts = _named_contrasts(places)
    effects = [{name: c.effect() for name, c in each.items()} for each in contrasts]
    plain = not any(contrast.bound for place in places for contrast in place.contrasts)
    margin = plain and all(number.metric for place in places for number in place.numbers)
    decision = statistics.decide_by_effects(effects, margin)
    verdict = decision.verdict
    least = decision.least if verdict is not Verdict.NOT_RUN else ''
    if verdict is Verdict.NOT_RUN and any(map(_is_idle, places, effects)):
        verdict = Verdict.NOT_EXERCISED
    published = pd.DataFrame([{n: c.published for n, c in each.items()} for each in contrasts])
    behind = [each[least] for each, ours in zip(contrasts, effects, strict=True) if ours.get(least)]
    if least:
        printed = [c.published for c in behind if not any(number.own for number in c.numbers)]
        theirs = np.mean(printed) if printed else math.nan
    else:
        theirs = published.mean().min()
    return ClaimResult(
        verdict,
        list(map(_place_result, places, decision.verdicts, contrasts, effects)),
        decision.means.get(least),
        next(iter(behind), None),
        decision.counts.get(least, 0),
        decision.tested,
        float(theirs),
        any(contrast.mixed for contrast in behind),
        decision.on_average and verdict is decision.verdict,
    )


def _named_contrasts(places: list[Place]) -> list[dict[str, Contrast]]:
    "The contrasts of each place; several places on one data set are conditions of their own."
    datasets = [
        place.numbers[0].dataset or place.numbers[0].prefix or place.name for place in places
    ]
    named = []
    for n, place in enumerate(places):
        before = datasets[:n].count(datasets[n])
        named.append({f'{k}.{before} {c.between}': c for k, c in enumerate(place.contrasts)})
    return named


def _place_result(
    place: Place,
    verdict: Verdict,
    contrasts: dict[str, Contrast],
    effects: dict[str, Effect | None],
) -> PlaceResult:
    measured = {name: effect for name, effect in effects.items() if effect}
    if not measured:
        return PlaceResult(place, verdict)
    least = min(measured, key=lambda name: measured[name].mean)
    return PlaceResult(place, verdict, contrasts[least], measured[least])


def _is_idle(place: Place, effects: dict[str, Effect | None]) -> bool:
    "Whether a place decides nothing because a mechanism did not act."
    if all(number.exercised for number in place.numbers):
        return False
    return all(number.seeds for number in place.numbers) or not any(effects.values())


def _merged(places: list[Place]) -> list[Place]:
    groups = {}
    for place in places:
        runs = tuple(number.runs for number in place.numbers)
        same = runs if any(each is not None for each in runs) else place.name
        groups.setdefault(same, []).append(place)
    return [replace(group[0], name=_merged_name(group)) for group in groups.values()]


def _merged_name(group: list[Place]) -> str:
    """'Full / VOC' and 'Full / NUS' → 'ccp for Full / VOC = NUS'; 'ccp, mAP' where the places tell
    no data set.
    """
    prefix = next((number.prefix for number in group[0].numbers if number.prefix), '')
    split = [re.split('( / |, )', place.name) for place in group]
    columns = [list(dict.fromkeys(column)) for column in zip_longest(*split)]
    lengths = set(map(len, split))
    if len(lengths) > 1 or sum(len(column) > 1 for column in columns) > 1:
        return prefix + ' = '.join(place.name for place in group)
    return prefix + ''.join(map(' = '.join, columns))


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, with the comparison that decides it.

    Attributes:
        id: The paper and a word: 'hml-single'.
        where: The section, table or figure of the paper's text.
        sentence: What it says, in our words.
        compare: Function from scores to a list of Place.
        tables: The tables that the scores come from; without one, and without a figure, they come
            from runs.
        figure: The figure that scores come from, after those of tables, or ''.
        lost: Whether the paper's own numbers are in a text that is not at hand.
        lacking: What would have to be recorded to decide it, '' where operands are named.
        inferred: Whether no sentence of the text says so, but a table shows it.
        note: What the text lost, what was chosen here, and where the paper's own numbers say
            otherwise; where it has numbers of ours, a function that makes it from the record.
        main: Whether it is what the paper is for: its method is better than others.
        ablations: Those whose arms decide it, in place of tables and figure.
        of_component: Whether it is about one component, so that the two sides of each comparison
            differ in one thing.
    """

    id: str
    where: str
    sentence: str
    compare: Callable[..., list[Place]]
    tables: tuple[str, ...] = ()
    figure: str = ''
    lost: bool = False
    lacking: str = ''
    inferred: bool = False
    note: str | Callable[[pd.DataFrame], str] = ''
    main: bool = False
    ablations: tuple[str, ...] = ()
    of_component: bool = False

    @property
    def paper(self) -> str:
        """One of `published.list_papers()`."""
        return self.id.split('-')[0]

    def places(self, value: OperandValue) -> list[Place]:
        """Everywhere the claim is decided, measured.

        Args:
            value: Gives the number of an operand, as `published_claim_value` or what
                `our_claim_value` returns.
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
        for dataset in scores[0].whole_again:
            there = self.compare(*(table.on(dataset) for table in scores))
            places += [replace(place, name=f'{dataset}, {place.name}') for place in there]
        return places


def read_claims(paper: str | None = None) -> list[Claim]:
    """The claims of a paper, or all of them.

    Args:
        paper: One of `published.list_papers()`, unset: all.

    Returns:
        A list of Claim, paper by paper in the order of their notebooks.

    Raises:
        SpmlError: For another paper.
    """
    chosen = ORDER if paper is None else [one_of(paper, ORDER, 'paper')]
    return [claim for name in chosen for claim in _read_claims(name)]


@lru_cache
def _read_claims(paper: str) -> list[Claim]:
    "Texts and simple comparisons are data, the others functions in `replication.papers`."
    code = import_module(f'spml_nb.replication.papers.{paper}_claims')
    notes = getattr(code, 'NOTES', {})
    file = packaged('spml_nb') / 'assets' / 'claims' / f'{paper}.yml'
    return [
        Claim(
            id=entry['id'],
            where=entry['where'],
            sentence=entry['text'],
            compare=code.COMPARE.get(entry['id']) or _of_rows(entry),
            lacking=entry.get('lacking', ''),
            tables=tuple(entry.get('tables', ())),
            figure=entry.get('figure', ''),
            lost=entry.get('lost', False),
            inferred=entry.get('inferred', False),
            note=notes.get(entry['id'], entry.get('note', '')),
            main=entry.get('main', False),
            ablations=tuple(entry.get('ablations', ())),
            of_component=entry.get('of_component', False),
        )
        for entry in yaml.safe_load(file.read_text(encoding='utf-8'))
    ]


def _of_rows(entry: dict) -> Callable[[TableScores], list[Place]]:
    "The comparison of rows of tables, `above` or `between` bounds, at all columns or some."
    compare = claim_above if 'above' in entry else claim_between
    bounds = dict(entry.get('above') or entry.get('between', {}))
    sides = [bounds.pop(side) for side in ('rows', 'than') if side in bounds]
    return lambda *tables: [
        place for table in tables for place in table.everywhere(compare, *sides, **bounds)
    ]


def claim_operands(claim: Claim) -> list[Operand]:
    """What a claim compares."""
    compared = []

    def note(operand):
        compared.append(operand)
        return Number({})

    claim.places(note)
    return compared


def published_claim_value(operand: Operand) -> Number:
    """The number that the paper prints.

    Args:
        operand: A cell of a table, or an arm that repeats one. Curves are not printed.

    Returns:
        A Number that was printed and has no seeds.

    Source: the papers' tables.
    """
    cell = None
    if operand.cell:
        cell = index_cells(operand.paper, operand.cell[0])[operand.cell[1:]]
        if cell['own']:
            return Number({}, own=True)
    elif operand.arm:
        name, arm, column = operand.arm
        cell = arms.printed_arm_cell(arms.read_ablations()[name], arm, column)
    if cell is None:
        return Number({})
    return Number({}, printed=(cell['mean'], cell['std'], cell['runs']), source=cell['source'])


def _printed_sign(contrast: Contrast) -> int | None:
    "+1: the claim holds, -1: it does not, 0: equal. None: a number is not printed."
    excess = contrast.published
    if math.isnan(excess):
        return None
    if abs(excess) < 1e-9 and not contrast.bound:
        return 0
    return 1 if excess > -1e-9 else -1


def _beyond_deviations(place: Place) -> bool | None:
    """Whether Welch's test parts all that the place compares; None where too few deviations are
    printed to say so.
    """
    significant = []
    for contrast in place.contrasts:
        printed = [number.printed for number in contrast.numbers]
        if contrast.weights != [1, -1] or contrast.bound:
            return None
        if not all(not math.isnan(std) and runs and runs > 1 for _, std, runs in printed):
            return None
        test = stats.ttest_ind_from_stats(*printed[0], *printed[1], equal_var=False)
        significant.append(test.pvalue < LEVEL)
    return all(significant)


_HOLDS = {1: 'holds', 0: 'holds in part', -1: 'does not hold'}


def published_claim_verdict(claim: Claim) -> str:
    """What the paper's own numbers say.

    Args:
        claim: One of `read_claims()`.

    Returns:
        'holds', 'holds in part' or 'does not hold', with the number of places, and how many of
        these hold beyond the printed deviations (Welch's test) where each has them; 'lost' where
        the numbers are not at hand, 'not in a table' for a claim about runs or a figure.

    Source: the papers' tables.
    """
    if claim.lost:
        return 'lost'
    if not claim.tables:
        return 'not in a table'
    places = claim.places(published_claim_value)
    signs = [[_printed_sign(contrast) for contrast in place.contrasts] for place in places]
    least = [
        min(sign for sign in of_place if sign is not None)
        for of_place in signs
        if None not in of_place or -1 in of_place
    ]
    if not least:
        return 'lost'
    text = f'{_HOLDS[min(least)]}, {least.count(1)} of {len(least)}'
    beyond = [_beyond_deviations(place) for place in places]
    if None in beyond:
        return text
    count = sum(yes and sign == 1 for yes, sign in zip(beyond, least, strict=True))
    return f'{text}, {count} beyond the printed deviations'


def our_claim_value(suite: str, known: pd.DataFrame, tables: dict | None = None) -> OperandValue:
    """How a suite answers.

    Args:
        suite: 'photos' or 'paper'.
        known: Finished runs, as from `sweeps.finished`.
        tables: {(paper, table): as from `replication.tables.table`}, those that are made already.

    Returns:
        A function from an Operand to its Number.
    """
    made = {name: _by_cell(tidy) for name, tidy in (tables or {}).items()}

    def value(operand: Operand) -> Number:
        if operand.arm:
            return _number_of_arm(operand, suite, known)
        if operand.curve:
            return _number_of_curve(operand, suite, known)
        if operand.config:
            return _number_of_runs(operand, suite, known)
        table, row, column = operand.cell
        name = operand.paper, table
        if name not in made:
            made[name] = _by_cell(papers.table(*name, known, suite).cells)
        theirs = published_claim_value(operand)
        return replace(
            _sources(*name, suite)[row, column],
            **made[name][row, column],
            printed=theirs.printed,
            source=theirs.source,
        )

    return value


def _by_cell(tidy: pd.DataFrame) -> dict[tuple[str, str], dict]:
    "{(row, column): what a table says of a Number}."
    return {
        (line.row, line.column): {
            'seeds': {int(seed): value for seed, value in json.loads(line.seeds).items()},
            'exercised': line.state != 'not exercised',
            'first': line.first,
        }
        for line in tidy.itertuples()
    }


def _number_of_runs(operand: Operand, suite: str, known: pd.DataFrame) -> Number:
    cell = papers.cell_of_runs(operand.paper, operand.config)
    configs = papers.cell_final_runs(papers.plan_cell(cell, suite), known)
    scores = papers.read_measures(configs, cell['metric'], known)
    return replace(
        _source(cell, suite),
        seeds={seed: round(value, 4) for seed, value in scores.by_seed.items()},
        exercised=mechanism_acted_in(configs, known),
        first=scores.key,
    )


def _number_of_arm(operand: Operand, suite: str, known: pd.DataFrame) -> Number:
    name, arm, column = operand.arm
    ablation = arms.read_ablations()[name]
    theirs = published_claim_value(operand)
    if suite != SUITE:
        return theirs
    dataset = ablation.columns[column]
    scores = arms.arm_scores(ablation, arm, dataset, known)
    return replace(
        theirs,
        seeds={seed: round(value, 4) for seed, value in scores.by_seed.items()},
        prefix=f'{dataset} for ',
        runs=(name, arm, column),
        dataset=scores.dataset,
        metric=scores.metric,
        exercised=arms.arm_acted(ablation, arm, dataset, known),
        first=scores.key,
    )


def _number_of_curve(operand: Operand, suite: str, known: pd.DataFrame) -> Number:
    curve = operand.curve
    used = find_stand_in(curve.dataset, suite)
    file = figure_runs.find_arrays(operand.paper, curve.figure, suite)
    series, *values = [curve.series] if isinstance(curve.series, str) else curve.series
    about, arrays = figures.read_figure_arrays(file) if file.is_file() else ({'parts': {}}, {})
    seeds = {
        int(known.at[place['key'], 'seed']): round(curve.quantity(arrays[name]), 4)
        for name, place in about['parts'].items()
        if (place['dataset'], place['series'], place['values']) == (curve.dataset, series, values)
        and place['key'] in known.index
    }
    return Number(
        seeds,
        prefix='' if suite == 'paper' else f'{used} for ',
        runs=(used, curve.series, curve.quantity),
        dataset=curve.tested,
        metric='mAP' if curve.tested else curve.metric,
    )


@lru_cache
def _sources(paper: str, table: str, suite: str) -> dict[tuple[str, str], Number]:
    cells = index_cells(paper, table)
    several = len({cell['dataset'] for cell in cells.values() if not cell['own']} - {None}) > 1
    return {place: _source(cell, suite, several) for place, cell in cells.items()}


def _source(cell: dict, suite: str, several: bool = True) -> Number:
    """A cell's Number without seeds: where they come from. several: the names of places tell data
    sets apart.
    """
    plan = papers.plan_cell(cell, suite)
    metric = cell['metric']
    if not plan.search:
        return Number({}, metric=metric, own=cell['own'])
    stated = json.dumps(plan.stated, sort_keys=True)
    used = find_stand_in(cell['dataset'], suite)
    end = ' for ' if several else ', '
    return Number(
        {},
        prefix='' if suite == 'paper' or cell['own'] else used + end,  # the place names our sets
        runs=(frozenset(map(key, plan.search)), stated, plan.labels, metric),
        dataset=papers.find_test_set(metric, used),
        metric=metric,
        own=cell['own'],
    )


def report_claims(
    suite: str, known: pd.DataFrame, paper: str | None = None, value: OperandValue | None = None
) -> pd.DataFrame:
    """The claims, asked of the papers and of our runs.

    Args:
        suite: 'photos' or 'paper'.
        known: Finished runs, as from `sweeps.finished`.
        paper: One of `published.list_papers()`, unset: all.
        value: Gives the number of an operand, unset: `our_claim_value(suite, known)`.

    Returns:
        One row per claim: paper, id, where, claim (its sentence), main, inferred, note, published
        (as from `published_claim_verdict`), lacking (as in `Claim`), ours (one of
        `statistics.Verdict`), sign (the same, with 'on average' where no place decides alone), size
        (one of `statistics.Size`), effect, half_width and detectable (of the mean over the places,
        from the claim's bound on; NaN under two seeds), amount and published_amount (ours and the
        paper's effect without the bound), between (the comparison that they are of), seeds (the
        fewest), reproduced, decided and places (how many), summary (all this in words), measured
        (the places with runs, in words) and missing (the others), joined by '; '; forest (JSON,
        what `forest.draw_forest` draws: first the places together, with the place '', then each
        with runs, as place, between, word, on_average, size, mean, low and high of the effect,
        seeds, published, the paper's effect, both without the bound, as mean_told and
        published_told, and mixed, as in `ClaimResult`).

    Raises:
        SpmlError: For another suite or paper.

    Source: the papers' texts.
    """
    value = value or our_claim_value(suite, known)
    rows = []
    for claim in read_claims(paper):
        row = {
            'paper': claim.paper,
            'id': claim.id,
            'where': claim.where,
            'claim': claim.sentence,
            'main': claim.main,
            'inferred': claim.inferred,
            'note': claim.note(known) if callable(claim.note) else claim.note,
            'published': published_claim_verdict(claim),
            'lacking': claim.lacking,
        }
        rows.append(row | _row_of(decide_claim(claim.places(value))))
    return pd.DataFrame(rows)


_OF_EFFECT = {'effect': 'mean', 'half_width': 'half_width', 'detectable': 'detectable'}


def _row_of(result: ClaimResult) -> dict:
    measured = [place for place in result.places if place.verdict is not Verdict.NOT_RUN]
    missing = [place for place in result.places if place.verdict is Verdict.NOT_RUN]
    effects = [place.effect for place in result.places if place.effect]
    together = _forest_line(result, result.contrast or Contrast([], []), result.published)
    together['mixed'] = result.mixed and not math.isnan(result.published)
    together['on_average'] = result.on_average
    each = [
        _forest_line(place, place.contrast, place.contrast.published, place.place.name)
        for place in result.places
        if place.effect
    ]
    return {
        'ours': str(result.verdict),
        'sign': result.sign,
        'size': str(result.size),
        **{
            column: _rounded(getattr(result.effect, name, math.nan))
            for column, name in _OF_EFFECT.items()
        },
        'amount': together['mean_told'],
        'published_amount': together['published_told'],
        'between': together['between'],
        'seeds': min((effect.seeds for effect in effects), default=0),
        'reproduced': sum(place.verdict is Verdict.REPRODUCED for place in measured),
        'decided': len(measured),
        'places': len(result.places),
        'summary': str(result),
        'measured': '; '.join(map(str, measured)),
        'missing': '; '.join(map(str, missing)),
        'forest': json.dumps([together, *each], ensure_ascii=False),
    }


def _rounded(value: float) -> float:
    return round(float(value), 4) + 0.0  # no minus before 0


def _forest_line(
    result: ClaimResult | PlaceResult, of: Contrast, published: float, place: str = ''
) -> dict:
    "What `forest.draw_forest` draws of a claim or a place."
    effect = result.effect
    mean = getattr(effect, 'mean', math.nan)
    numbers = {
        'mean': mean,
        'low': getattr(effect, 'low', math.nan),
        'high': getattr(effect, 'high', math.nan),
        'published': published,
        'mean_told': of.sum_at(mean),
        'published_told': of.sum_at(published),
    }
    return {
        'place': place,
        'between': of.between,
        'word': _shown(result.verdict) if effect else str(result.verdict),
        'on_average': False,
        'size': str(result.size),
        **{name: None if math.isnan(v) else _rounded(v) for name, v in numbers.items()},
        'seeds': getattr(effect, 'seeds', 0),
        'mixed': of.mixed and not math.isnan(published),
    }
