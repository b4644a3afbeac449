"""Decides the claims of the papers' texts by numbers: from scores to effects, from effects to words."""

import json
import math
import re
from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from importlib import import_module
from itertools import pairwise, permutations, zip_longest
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from ..base.errors import one_of
from ..sweeps.queue import key
from . import drawing, figures, statistics
from . import tables as papers
from .published import ORDER, UNCOUNTED, by_place, merge, read, stand_in
from .statistics import LEVEL, WORDS, Effect, image_sd


class Operand(NamedTuple):
    """Something that has a number: a cell of a table, the runs of a configuration, or a curve of a
    figure.

    Attributes:
        paper: One of `published.papers()`.
        cell: (table, row, column).
        config: Fields of `runs.Config`, as for a published cell. The runs are scored by mAP.
        part: (figure, dataset, series, quantity, tested). The quantity turns the arrays of the
            curve into a number, and `tested` is the data set whose test images it was measured on,
            or ''.
    """

    paper: str
    cell: tuple[str, str, str] | None = None
    config: dict | None = None
    part: tuple[str, str, str, Callable[[dict], float], str] | None = None


class Number(NamedTuple):
    """What an operand is worth.

    Attributes:
        seeds: {seed: value}, empty while there is no run.
        prefix: The data set that stands in for the paper's. It begins the name of a place:
            'mini_voc for '.
        runs: Equal for equal runs, None where there can be no run.
        dataset: Whose test images it was measured on, '' for other images.
        metric: Of `published.METRICS`, '' for what else a curve has, of which half a point need not
            be little.
        printed: (mean, standard deviation, runs) as the paper prints them, NaN for what it does not
            print.
        exercised: Whether the method's own mechanism acted before selection stopped. Without it the
            number decides nothing.
        first: The key of the first run, '' if it is of curves.
        source: Who trained what the paper prints, as in `published.cells`; '' for no such number.
    """

    seeds: dict
    prefix: str = ''
    runs: Hashable = None
    dataset: str = ''
    metric: str = 'mAP'
    printed: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    exercised: bool = True
    first: str = ''
    source: str = ''


Value = Callable[[Operand], Number]


class TableScores:
    """The numbers of one table. `scores[row, column]` is {name: Number}; a row or a column may be a
    list of them.

    The names are those of the columns if there are several, else those of the rows.

    Args:
        paper: One of `published.papers()`.
        table: One of its tables.
        value: Gives the number of an operand.

    Raises:
        SpmlError: If `scores[row, column]` names a row or column that the table does not have.
    """

    def __init__(self, paper: str, table: str, value: Value):
        self.paper, self.table, self.value = paper, table, value
        self.rows, self.columns = (
            list(read(paper)['tables'][table][axis]) for axis in ('rows', 'columns')
        )

    def __getitem__(self, where: tuple) -> dict[str, Number]:
        rows, columns = (names if isinstance(names, list) else [names] for names in where)
        for names, axis, kind in ((rows, self.rows, 'row'), (columns, self.columns, 'column')):
            for name in names:
                one_of(name, axis, f'{kind} of table {self.table} of {self.paper!r}')
        return {
            column if len(columns) > 1 else row: self.value(
                Operand(self.paper, (self.table, row, column))
            )
            for row in rows
            for column in columns
        }

    def everywhere(
        self, compare: Callable, *sides: str | list[str], at: list[str] | None = None, **bounds
    ) -> list:
        """Compare rows at one column after the other.

        Args:
            compare: Gives a Place from its name and the scores of its sides: `above`, `between`,
                `trend` or `steady`.
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


def run_scores(paper: str, value: Value, *configs: dict, **fields) -> dict[str, Number]:
    """The numbers of runs that no table has.

    Args:
        paper: One of `published.papers()`.
        value: Gives the number of an operand.
        configs: What is compared. Each is laid over the fields, and both over the paper's own
            `config`.
        fields: Of `runs.Config`, the same for all.

    Returns:
        {name: Number}. {'loss': 'joint', 'hparams': {'T_pos': 1}} has the name 'joint, T_pos 1'.
    """
    base = merge(read(paper).get('config'), fields)
    return {_words(config): value(Operand(paper, config=merge(base, config))) for config in configs}


def curve_scores(
    paper: str,
    figure: str,
    value: Value,
    dataset: str,
    series: str | dict[str, str | tuple],
    quantity: Callable[[dict], float],
    tested: str = '',
) -> dict[str, Number]:
    """The numbers of a figure's curves.

    Args:
        paper: One of `published.papers()`.
        figure: One of its figures.
        value: Gives the number of an operand.
        dataset: The paper's name of a data set.
        series: A series of the figure, or {name: series} for several. A point of a series that has
            several is a tuple, the series and the point's values: ('s = 20', 0.3).
        quantity: Turns the arrays of a curve into a number.
        tested: The data set whose test images it was measured on, if that is known.

    Returns:
        {name: Number}.
    """
    names = series if isinstance(series, dict) else {series: series}
    return {
        name: value(Operand(paper, part=(figure, dataset, one, quantity, tested)))
        for name, one in names.items()
    }


def _words(config: dict) -> str:
    flat = merge({k: v for k, v in config.items() if k != 'hparams'}, config.get('hparams'))
    return ', '.join(str(v) if k == 'loss' else f'{k} {v}' for k, v in flat.items())


class Contrast(NamedTuple):
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
    def by_seed(self) -> dict:
        """{seed: sum} of the seeds that all numbers have."""
        if not all(number.exercised for number in self.numbers):
            return {}
        common = sorted(set.intersection(*(set(number.seeds) for number in self.numbers)))
        return {
            s: sum(
                w * number.seeds[s] for w, number in zip(self.weights, self.numbers, strict=True)
            )
            for s in common
        }

    @property
    def published(self) -> float:
        """How far the paper's own numbers are on the claimed side of the bound; NaN where one is
        not printed.
        """
        return self.sign * (
            float(np.dot(self.weights, [number.printed[0] for number in self.numbers])) - self.bound
        )

    @property
    def mixed(self) -> bool:
        """Whether the printed numbers come from several sources, and so perhaps other set-ups."""
        return len({number.source for number in self.numbers}) > 1

    def told(self, excess: float) -> float:
        """The sum itself. Args: excess: how far it is on the claimed side of the bound. Returns: A
        float.
        """
        return self.sign * excess + self.bound

    def effect(self) -> Effect | None:
        """How far the sum is on the claimed side of its bound.

        Returns:
            An Effect, None without a seed. Sums that are all 0 come from equal runs; no test image
            can part them.
        """
        sums, dataset = np.array(list(self.by_seed.values())), self.numbers[0].dataset
        if not len(sums):
            return None
        largest = max(image_sd(dataset, number.metric) for number in self.numbers)
        names = [f'{number.first} {number.metric}' for number in self.numbers]
        images = (
            statistics.image_error(names, self.weights, largest) if dataset and sums.any() else 0.0
        )
        return statistics.effect(self.sign * (sums - self.bound), None, images)


class Place(NamedTuple):
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
    def words(a, b):
        return ' '.join([a] * (len(left) > 1) + [f'against {b}'] * (len(right) > 1))

    return Place(
        name,
        [
            Contrast(
                [left[a], right[b]] if right else [left[a]],
                [1, -1] if right else [1],
                bound,
                sign,
                ' '.join(filter(None, (words(a, b), _bound_text(bound, sign)))),
            )
            for a in left
            for b in right or ['']
            for bound, sign in bounds
        ],
    )


def _bound_text(bound: float, sign: int) -> str:
    return f"at {'least' if sign > 0 else 'most'} {bound:g}".replace('-', '−') if bound else ''


def above(name: str, left: dict[str, Number], right: dict[str, Number], by: float = 0.0) -> Place:
    """Every number of the left is above every number of the right.

    Args:
        name: Of the place.
        left: {name: Number}.
        right: {name: Number}.
        by: The least difference, in the unit of the values; -`MARGIN` for "at least as good".

    Returns:
        A Place.
    """
    return _pairs(name, left, right, [(by, 1)])


def between(
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
        name: Of the place.
        left: {name: Number}.
        right: {name: Number} or None.
        low: The least value that will do.
        high: The greatest value that will do.

    Returns:
        A Place.
    """
    return _pairs(
        name,
        left,
        right or {},
        [(b, sign) for b, sign in ((low, 1), (high, -1)) if math.isfinite(b)],
    )


def share(
    name: str, left: dict[str, Number], right: dict[str, Number], low: float, high: float
) -> Place:
    """One number is a share of another.

    Args:
        name: Of the place.
        left: {name: Number}, one.
        right: {name: Number}, one.
        low: The least share that will do.
        high: The greatest.

    Returns:
        A Place; its numbers are what the left has more than `low` times the right, and less than
        `high` times.
    """
    (part,), (whole,) = left.values(), right.values()
    return Place(
        name,
        [
            Contrast(
                [part, whole],
                [sign, -sign * bound],
                between=f'{side} {100 * bound:.0f} % of the other',
            )
            for bound, sign, side in ((low, 1, 'above'), (high, -1, 'below'))
        ],
    )


def rising(name: str, left: dict[str, Number]) -> Place:
    """Every number is above the one before.

    Args:
        name: Of the place.
        left: {name: Number}, two or more in order.

    Returns:
        A Place.
    """
    return Place(
        name,
        [
            Contrast([left[b], left[a]], [1, -1], between=f'{b} against {a}')
            for a, b in pairwise(left)
        ],
    )


def trend(
    name: str,
    left: dict[str, Number],
    right: dict[str, Number] | None = None,
    *,
    falling: bool = False,
) -> Place:
    """The numbers of the left, or their differences from those of the right, rise along the list.

    Args:
        name: Of the place.
        left: {name: Number}, three or more in order.
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


def peak(name: str, left: dict[str, Number], best: range) -> Place:
    """The numbers rise and then fall.

    Args:
        name: Of the place.
        left: {name: Number}, three or more in order.
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


def steady(name: str, left: dict[str, Number], within: float) -> Place:
    """The numbers differ by little.

    Args:
        name: Of the place.
        left: {name: Number}, two or more.
        within: The greatest difference of two of them that will do.

    Returns:
        A Place, its numbers the differences.
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


class PlaceVerdict(NamedTuple):
    """What became of a place. `str()` tells it in words.

    Attributes:
        place: The place.
        word: One of `statistics.WORDS`.
        contrast: The one least in favour of the claim, None without runs.
        effect: Its effect.
    """

    place: Place
    word: str
    contrast: Contrast | None = None
    effect: Effect | None = None

    def __str__(self) -> str:
        operands = list({id(number): number for number in self.place.numbers}.values())
        counts = (
            (sum(not number.seeds for number in operands), 'missing'),
            (sum(not number.exercised for number in operands), 'not exercised'),
        )
        lacking = ', '.join(
            f'{k} of {len(operands)} numbers {what}'
            for k, what in counts
            if 0 < k and (k < len(operands) or what != 'missing')
        )
        name = self.place.name + (f' ({lacking})' if lacking else '')
        if not self.effect:
            return name
        word = 'incomplete' if self.word == WORDS[4] else self.word  # some comparisons have runs
        return f'{name}: {word}, {_effect_text(self.effect, self.contrast)}'


def _effect_text(effect: Effect, of: Contrast, more: str = '') -> str:
    "'+1.50 ± 0.80 (against AN)'"
    known = ', 1 seed' if effect.seeds == 1 else f' ± {effect.half_width:.2f}{more}'
    told = of.told(effect.mean)
    form = '+.2f' if abs(told) >= 0.005 or not told else '+.1g'
    return statistics.signed(told, form) + known + (f' ({of.between})' if of.between else '')


class Verdict(NamedTuple):
    """What became of a claim. `str()` tells it in words.

    Attributes:
        word: One of `statistics.WORDS`.
        places: One for each place with runs of its own.
        effect: Of the mean over the places, of the comparison least in favour of the claim; None
            without two seeds.
        contrast: That comparison, as one of the places makes it.
        pooled: How many places it is the mean of.
        tested: How many places have two seeds or more and all that they compare, or are decided
            without.
        published: The same comparison in the paper's numbers, at these places; without runs the
            least one, everywhere.
    """

    word: str
    places: list[PlaceVerdict]
    effect: Effect | None = None
    contrast: Contrast | None = None
    pooled: int = 0
    tested: int = 0
    published: float = math.nan

    def __str__(self) -> str:
        if self.word in WORDS[4:]:
            return self.word
        words, text = [each.word for each in self.places], ''
        if self.effect:
            theirs = statistics.signed(self.contrast.told(self.published), '+.2f')
            if theirs and self.contrast.mixed:
                theirs += UNCOUNTED
            more = f', {self.effect.seeds} seeds, power 80 % from {self.effect.detectable:.1f} on'
            text = f": {_effect_text(self.effect, self.contrast, more + f', the paper {theirs}' * bool(theirs))}"
        return f'{self.word} {statistics.counted(self.word, words, self.pooled, self.tested)}{text}'


def verdict_of(places: list[Place]) -> Verdict:
    """Decide a claim by its places.

    Args:
        places: Those of the claim. Places with the same runs are merged.

    Returns:
        A Verdict.
    """
    places = _merged(places)
    data = [place.numbers[0].dataset or place.numbers[0].prefix or place.name for place in places]
    each = [
        {
            f'{k}.{data[:n].count(data[n])} {c.between}': (c, c.effect())
            for k, c in enumerate(place.contrasts)
        }
        for n, place in enumerate(places)
    ]  # several places on one data set are conditions of their own
    margin = not any(c.bound for place in places for c in place.contrasts) and all(
        number.metric for place in places for number in place.numbers
    )
    decision = statistics.decide(
        [{name: effect for name, (_, effect) in one.items()} for one in each], margin
    )
    judged = [
        PlaceVerdict(
            place,
            word,
            *min(
                (both for both in one.values() if both[1]),
                default=(),
                key=lambda both: both[1].mean,
            ),
        )
        for place, word, one in zip(places, decision.words, each, strict=True)
    ]
    least = decision.least if decision.word != WORDS[4] else ''
    idle = any(
        not all(number.exercised for number in place.numbers)
        for place, one in zip(places, each, strict=True)
        if all(number.seeds for number in place.numbers)
        or not any(effect for _, effect in one.values())
    )
    theirs = pd.DataFrame(
        [{name: contrast.published for name, (contrast, _) in one.items()} for one in each]
    )
    there = [least in one and bool(one[least][1]) for one in each]
    published = theirs.loc[there, least].mean() if least else theirs.mean().min()
    word = WORDS[5] if idle and decision.word == WORDS[4] else decision.word
    contrast = next((one[least][0] for one in each if least in one), None)
    return Verdict(
        word,
        judged,
        decision.whole.get(least),
        contrast,
        decision.pooled.get(least, 0),
        decision.tested,
        float(published),
    )


def _merged(places: list[Place]) -> list[Place]:
    groups = {}
    for place in places:
        runs = tuple(number.runs for number in place.numbers)
        groups.setdefault(
            runs if any(each is not None for each in runs) else place.name, []
        ).append(place)
    return [group[0]._replace(name=_merged_name(group)) for group in groups.values()]


def _merged_name(group: list[Place]) -> str:
    """'Full / VOC' and 'Full / NUS' → 'ccp for Full / VOC = NUS'; 'ccp, mAP' where the places tell
    no data set.
    """
    prefix = next((number.prefix for number in group[0].numbers if number.prefix), '')
    split = [re.split('( / |, )', place.name) for place in group]
    columns = [list(dict.fromkeys(column)) for column in zip_longest(*split)]
    apart = len(set(map(len, split))) > 1 or sum(len(column) > 1 for column in columns) > 1
    return prefix + (
        ' = '.join(place.name for place in group) if apart else ''.join(map(' = '.join, columns))
    )


class Claim(NamedTuple):
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
        inferred: Whether no sentence of the text says so, but a table shows it.
        note: What the text lost, what was chosen here, and where the paper's own numbers say
            otherwise.
        main: Whether it is what the paper is for: its method is better than others.
    """

    id: str
    where: str
    sentence: str
    compare: Callable[..., list[Place]]
    tables: tuple[str, ...] = ()
    figure: str = ''
    lost: bool = False
    inferred: bool = False
    note: str = ''
    main: bool = False

    @property
    def paper(self) -> str:
        """One of `published.papers()`."""
        return self.id.split('-')[0]

    def places(self, value: Value) -> list[Place]:
        """Everywhere the claim is decided, measured.

        Args:
            value: Gives the number of an operand, as `published_value` or what `our_value` returns.

        Returns:
            A list of Place.
        """
        scores = [TableScores(self.paper, table, value) for table in self.tables]
        if self.figure:
            scores.append(partial(curve_scores, self.paper, self.figure, value))
        return self.compare(*(scores or [partial(run_scores, self.paper, value)]))


def claims(paper: str | None = None) -> list[Claim]:
    """The claims of a paper, or all of them.

    Args:
        paper: One of `published.papers()`, unset: all.

    Returns:
        A list of Claim, paper by paper in the order of their notebooks.

    Raises:
        SpmlError: For another paper.
    """
    chosen = ORDER if paper is None else [one_of(paper, ORDER, 'paper')]
    return [
        each
        for name in chosen
        for each in import_module(f'spml_nb.replication.papers.{name}_claims').CLAIMS
    ]


def published_value(operand: Operand) -> Number:
    """The number that the paper prints.

    Args:
        operand: A cell of a table. Curves are not printed.

    Returns:
        A Number that was printed and has no seeds.

    Source: the papers' tables.
    """
    if not operand.cell:
        return Number({})
    cell = by_place(operand.paper, operand.cell[0])[operand.cell[1:]]
    return Number({}, printed=(cell['mean'], cell['std'], cell['runs']), source=cell['source'])


def _printed_sign(contrast: Contrast) -> int | None:
    "+1: the claim holds, -1: it does not, 0: equal. None: a number is not printed."
    excess = contrast.published
    if math.isnan(excess):
        return None
    return 0 if abs(excess) < 1e-9 and not contrast.bound else 1 if excess > -1e-9 else -1


def _beyond(place: Place) -> bool | None:
    """Whether Welch's test parts all that the place compares; None where too few deviations are
    printed to say so.
    """
    sides = [
        [number.printed for number in c.numbers]
        for c in place.contrasts
        if c.weights == [1, -1] and not c.bound
    ]
    tested = [each for each in sides if all(std == std and runs > 1 for _, std, runs in each)]
    if len(tested) < len(place.contrasts):
        return None
    return all(
        stats.ttest_ind_from_stats(*a, *b, equal_var=False).pvalue < LEVEL for a, b in tested
    )


def published_verdict(claim: Claim) -> str:
    """What the paper's own numbers say.

    Args:
        claim: One of `claims()`.

    Returns:
        'holds', 'holds in part' or 'does not hold', with the number of places, and how many of
        these hold beyond the printed deviations (Welch's test) where each has them; 'lost' where
        the numbers are not at hand, 'not in a table' for a claim about runs or a figure.

    Source: the papers' tables.
    """
    if claim.lost or not claim.tables:
        return 'lost' if claim.lost else 'not in a table'
    places = claim.places(published_value)
    signs = [[_printed_sign(contrast) for contrast in place.contrasts] for place in places]
    least = [
        min(s for s in place if s is not None)
        for place in signs
        if None not in place or -1 in place
    ]
    if not least:
        return 'lost'
    word, parted = (
        {1: 'holds', 0: 'holds in part', -1: 'does not hold'}[min(least)],
        list(map(_beyond, places)),
    )
    said = f'{word}, {least.count(1)} of {len(least)}'
    if None in parted:
        return said
    beyond = sum(yes and sign == 1 for yes, sign in zip(parted, least, strict=True))
    return said + f', {beyond} beyond the printed deviations'


def our_value(suite: str, known: pd.DataFrame, tables: dict | None = None) -> Value:
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
        if operand.part:
            return _number_of_part(operand, suite, known)
        if operand.config:
            return _number_of_runs(operand, suite, known)
        name = operand.paper, operand.cell[0]
        if name not in made:
            made[name] = _by_cell(papers.table(*name, known, suite).cells)
        seeds, *acted_and_first = made[name][operand.cell[1:]]
        theirs = published_value(operand)
        return Number(
            seeds,
            *_sources(*name, suite)[operand.cell[1:]],
            theirs.printed,
            *acted_and_first,
            theirs.source,
        )

    return value


def _by_cell(tidy: pd.DataFrame) -> dict[tuple[str, str], tuple[dict, bool, str]]:
    "{(row, column): (`seeds`, `exercised`, `first`) of its Number}."
    return {
        (line.row, line.column): (
            {int(s): v for s, v in json.loads(line.seeds).items()},
            line.state != 'not exercised',
            line.first,
        )
        for line in tidy.itertuples()
    }


def _number_of_runs(operand: Operand, suite: str, known: pd.DataFrame) -> Number:
    cell = {
        'paper': operand.paper,
        'metric': 'mAP',
        'config': operand.config,
        'dataset': operand.config['dataset'],
        'search': {},
        'pretraining': None,
        'no_run': '',
    }
    configs = papers.finals(papers.plan(cell, suite), known)
    scores = papers.values(configs, cell['metric'], known)
    return Number(
        {s: round(v, 4) for s, v in scores.by_seed.items()},
        *_source(cell, suite),
        exercised=papers.acted(known[known.index.isin([key(c) for c in configs])]),
        first=scores.key,
    )


def _number_of_part(operand: Operand, suite: str, known: pd.DataFrame) -> Number:
    paper, (figure, dataset, series, quantity, tested) = operand.paper, operand.part
    used, file = stand_in(dataset, suite), figures.arrays_file(paper, figure, suite)
    curve, *values = [series] if isinstance(series, str) else series
    about, arrays = drawing.read_collected(file) if file.is_file() else ({'parts': {}}, {})
    seeds = {
        int(known.at[place['key'], 'seed']): round(quantity(arrays[name]), 4)
        for name, place in about['parts'].items()
        if (place['dataset'], place['series'], place['values']) == (dataset, curve, values)
        and place['key'] in known.index
    }
    return Number(
        seeds,
        f'{used} for ' * (suite != 'paper'),
        (used, series, quantity),
        tested,
        'mAP' * bool(tested),
    )


@lru_cache
def _sources(paper: str, table: str, suite: str) -> dict[tuple[str, str], tuple]:
    cells = by_place(paper, table)
    several = len({cell['dataset'] for cell in cells.values()} - {None}) > 1
    return {place: _source(cell, suite, several) for place, cell in cells.items()}


def _source(cell: dict, suite: str, several: bool = True) -> tuple[str, Hashable, str, str]:
    """`prefix`, `runs`, `dataset` and `metric` of a cell's Number. several: the names of places
    tell data sets apart.
    """
    plan = papers.plan(cell, suite)
    if not plan.search:
        return '', None, '', cell['metric']
    runs = (
        frozenset(map(key, plan.search)),
        json.dumps(plan.stated, sort_keys=True),
        plan.labels,
        cell['metric'],
    )
    used = stand_in(cell['dataset'], suite)
    tested = (
        '' if cell['metric'] == 'pseudo-label precision' else used
    )  # a measure of training images
    return (
        '' if suite == 'paper' else used + (' for ' if several else ', '),
        runs,
        tested,
        cell['metric'],
    )


def report(
    suite: str, known: pd.DataFrame, paper: str | None = None, value: Value | None = None
) -> pd.DataFrame:
    """The claims, asked of the papers and of our runs.

    Args:
        suite: 'photos' or 'paper'.
        known: Finished runs, as from `sweeps.finished`.
        paper: One of `published.papers()`, unset: all.
        value: Gives the number of an operand, unset: `our_value(suite, known)`.

    Returns:
        One row per claim: paper, id, where, claim (its sentence), main, inferred, note, published
        (as from `published_verdict`), ours (one of `statistics.WORDS`), effect, half_width and
        detectable (of the mean over the places, from the claim's bound on; NaN under two seeds),
        seeds (the fewest), reproduced, decided and places (how many), summary (all this in words),
        measured (the places with runs, in words) and missing (the others), joined by '; '; forest
        (JSON, what `drawing.forest` draws: first the places together, with the place '', then each
        with runs, as place, between, word, mean, low and high of the effect, seeds, published, the
        paper's effect, both without the bound, as mean_told and published_told, and mixed, as in
        `Contrast`).

    Raises:
        SpmlError: For another suite or paper.

    Source: the papers' texts.
    """
    value = value or our_value(suite, known)
    return pd.DataFrame(
        [
            {
                'paper': each.paper,
                'id': each.id,
                'where': each.where,
                'claim': each.sentence,
                'main': each.main,
                'inferred': each.inferred,
                'note': each.note,
                'published': published_verdict(each),
                **_ours(verdict_of(each.places(value))),
            }
            for each in claims(paper)
        ]
    )


def _ours(ours: Verdict) -> dict:
    measured = [place for place in ours.places if place.word != WORDS[4]]
    drawn = [place for place in ours.places if place.effect]
    missing = [str(place) for place in ours.places if place.word == WORDS[4]]
    names = ('mean', 'half_width', 'detectable')
    effect, half_width, detectable = (
        round(float(getattr(ours.effect, name, math.nan)), 4) + 0.0 for name in names
    )
    return {
        'ours': ours.word,
        'effect': effect,
        'half_width': half_width,
        'detectable': detectable,
        'seeds': min((place.effect.seeds for place in ours.places if place.effect), default=0),
        'reproduced': sum(place.word == WORDS[0] for place in measured),
        'decided': len(measured),
        'places': len(ours.places),
        'summary': str(ours),
        'measured': '; '.join(map(str, measured)),
        'missing': '; '.join(missing),
        'forest': json.dumps(
            [
                _line(
                    '', ours.contrast or Contrast([], []), ours.word, ours.effect, ours.published
                ),
                *(
                    _line(
                        each.place.name,
                        each.contrast,
                        each.word,
                        each.effect,
                        each.contrast.published,
                    )
                    for each in drawn
                ),
            ],
            ensure_ascii=False,
        ),
    }


def _line(place: str, of: Contrast, word: str, effect: Effect | None, published: float) -> dict:
    numbers = {name: getattr(effect, name, math.nan) for name in ('mean', 'low', 'high')} | {
        'published': published
    }
    numbers |= {f'{name}_told': of.told(numbers[name]) for name in ('mean', 'published')}
    known = {
        name: None if math.isnan(value) else round(float(value), 4) + 0.0
        for name, value in numbers.items()
    }
    word = 'incomplete' if effect and word == WORDS[4] else word
    return {
        'place': place,
        'between': of.between,
        'word': word,
        **known,
        'seeds': getattr(effect, 'seeds', 0),
        'mixed': of.mixed and known['published'] is not None,
    }
