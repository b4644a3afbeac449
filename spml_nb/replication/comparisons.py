"""The comparisons of a claim: differences with their effects, and the verdict on all of them."""

import math
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise, permutations, product, zip_longest

import numpy as np
import pandas as pd

from .. import statistics
from ..statistics import Effect, Size, Verdict, default_image_error
from .published import UNCOUNTED

SHARE = 'share of labels'  # in percent; half a point is a small difference, as in mAP


@dataclass(frozen=True)
class Number:
    """A score to compare, as we measured it and as the paper prints it.

    Attributes:
        seeds: {seed: value}, empty without runs.
        prefix: Our data set in place of the paper's, as it starts the name of a place: 'mini_voc
            for '.
        runs: Identifies the runs: places with equal `runs` are merged. None if no run can measure
            the number.
        dataset: The data set whose test images it was measured on, '' for other images.
        metric: One of `published.METRICS` or `SHARE`. With '' the effect is in another unit,
            and *no difference* is no possible verdict.
        printed: (mean, standard deviation, number of runs) in the paper, NaN if not printed.
        exercised: Whether the method's own mechanism acted before the best epoch; otherwise the
            number decides nothing.
        first_key: Key of the first run, under which its scores on resampled test images are stored;
            '' for a number from a curve.
        source: Who trained the printed number, as in `published.table_cells`.
        added: Whether its cell is one that we added to the paper's table.
    """

    seeds: dict[int, float]
    prefix: str = ''
    runs: Hashable = None
    dataset: str = ''
    metric: str = 'mAP'
    printed: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    exercised: bool = True
    first_key: str = ''
    source: str = ''
    added: bool = False


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of numbers that is claimed to lie on one side of a bound.

    Attributes:
        weights: One for each number.
        bound: In the unit of the numbers.
        sign: +1 if the sum should be above the bound, -1 if it should be below.
        between: The names that are compared, '' if the place makes no other comparison.
    """

    numbers: list[Number]
    weights: list[float]
    bound: float = 0.0
    sign: int = 1
    between: str = ''

    @property
    def by_seed(self) -> dict[int, float]:
        """{seed: sum} of the seeds that all numbers share; empty if one was not exercised."""
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
        """How far the printed numbers are on the claimed side of the bound; NaN if one is not
        printed.
        """
        total = float(np.dot(self.weights, [number.printed[0] for number in self.numbers]))
        return self.sign * (total - self.bound)

    @property
    def mixed(self) -> bool:
        """Whether the printed numbers come from several sources, and so perhaps from different
        set-ups.
        """
        return len({number.source for number in self.numbers}) > 1

    @property
    def added(self) -> bool:
        """Whether we added a number to what the paper compares."""
        return any(number.added for number in self.numbers)

    def sum_at(self, excess: float) -> float:
        """The sum that lies `excess` on the claimed side of the bound."""
        return self.sign * excess + self.bound

    def effect(self) -> Effect | None:
        """How far our sum is on the claimed side of the bound; None without a common seed.

        Sums that are all 0 come from equal runs, whose difference no test image can change.
        """
        sums = np.array(list(self.by_seed.values()))
        if not len(sums):
            return None
        dataset = self.numbers[0].dataset
        images = 0.0
        if dataset and sums.any():
            largest = max(default_image_error(dataset, number.metric) for number in self.numbers)
            names = [statistics.resampled_name(n.first_key, n.metric) for n in self.numbers]
            images = statistics.image_error(names, self.weights, largest)
        return statistics.estimate_effect(self.sign * (sums - self.bound), None, images)


@dataclass(frozen=True)
class Place:
    """Where a claim is tested: on a data set, by a measure, under a condition.

    Attributes:
        name: As shown on the pages: 'voc12, mAP'.
        contrasts: All of them must hold.
    """

    name: str
    contrasts: list[Contrast]

    @property
    def numbers(self) -> list[Number]:
        """The numbers of all contrasts."""
        return [number for contrast in self.contrasts for number in contrast.numbers]


def _compare_pairs(
    name: str, left: dict[str, Number], right: dict[str, Number], bounds: list[tuple[float, int]]
) -> Place:
    "Each number on the left against each on the right, or alone, at each bound (value, sign)."
    contrasts = []
    right_items = right.items() or [('', None)]
    for (left_name, number), (right_name, other), (bound, sign) in product(
        left.items(), right_items, bounds
    ):
        words = [
            left_name if len(left) > 1 else '',
            f'against {right_name}' if len(right) > 1 else '',
            _bound_text(bound, sign),
        ]
        numbers, weights = ([number, other], [1, -1]) if other else ([number], [1])
        between = ' '.join(filter(None, words))
        contrasts.append(Contrast(numbers, weights, bound, sign, between))
    return Place(name, contrasts)


def _bound_text(bound: float, sign: int) -> str:
    if not bound:
        return ''
    return f'at {"least" if sign > 0 else "most"} {bound:.3g}'.replace('-', '−')


def claim_above(
    name: str, left: dict[str, Number], right: dict[str, Number], by: float = 0.0
) -> Place:
    """Every number on the left is above every number on the right.

    Args:
        by: Smallest difference, in the unit of the numbers; -`EQUIVALENCE_MARGIN` for "as good".
    """
    return _compare_pairs(name, left, right, [(by, 1)])


def claim_between(
    name: str,
    left: dict[str, Number],
    right: dict[str, Number] | None = None,
    *,
    low: float = -math.inf,
    high: float = math.inf,
) -> Place:
    """Every number on the left, or its difference from every number on the right, lies between two
    bounds.
    """
    bounds = [(bound, sign) for bound, sign in ((low, 1), (high, -1)) if math.isfinite(bound)]
    return _compare_pairs(name, left, right or {}, bounds)


def claim_share(
    name: str, left: dict[str, Number], right: dict[str, Number], low: float, high: float
) -> Place:
    """The number on the left is between `low` and `high` times the number on the right.

    Args:
        left, right: One number each.

    Returns:
        Place with the contrasts left − low · right and high · right − left.
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


def claim_rising(name: str, numbers: dict[str, Number]) -> Place:
    """Every number is above the one before."""
    contrasts = [
        Contrast([numbers[after], numbers[before]], [1, -1], between=f'{after} against {before}')
        for before, after in pairwise(numbers)
    ]
    return Place(name, contrasts)


def claim_trend(
    name: str,
    left: dict[str, Number],
    right: dict[str, Number] | None = None,
    *,
    falling: bool = False,
) -> Place:
    """The numbers on the left, or their differences from those on the right, rise in their order.

    Args:
        left: Three or more.
        right: As many, or None.
        falling: Whether they should fall instead.

    Returns:
        Place with the rise (or fall) of the least-squares line from the first number to the last.
    """
    position = np.arange(len(left)) - (len(left) - 1) / 2
    rise = (len(left) - 1) * position / np.square(position).sum()
    if falling:
        rise = -rise
    numbers, weights = list(left.values()), list(rise)
    if right:
        numbers += right.values()
        weights += list(-rise)
    between = 'from last to first' if falling else 'from first to last'
    return Place(name, [Contrast(numbers, weights, between=between)])


def claim_peak(name: str, numbers: dict[str, Number], best: range) -> Place:
    """The numbers rise and then fall.

    Args:
        numbers: Three or more in order.
        best: Positions of the peak, from 0, without the first and the last number.

    Returns:
        Place that compares the mean over the peak with the first number and with the last.
    """
    names, values = list(numbers), list(numbers.values())
    peak = values[best.start : best.stop]
    weights = [*[1 / len(best)] * len(best), -1]
    contrasts = [
        Contrast([*peak, values[end]], weights, between=f'against {names[end]}') for end in (0, -1)
    ]
    return Place(name, contrasts)


def claim_steady(name: str, numbers: dict[str, Number], within: float) -> Place:
    """No two numbers differ by more than `within`."""
    most = _bound_text(within, -1)
    contrasts = [
        Contrast([numbers[a], numbers[b]], [1, -1], within, -1, f'{a} against {b} {most}')
        for a, b in permutations(numbers, 2)
    ]
    return Place(name, contrasts)


def claim_curves_above(
    datasets: Iterable[str],
    name: str,
    series: tuple[str, str],
    quantity: Callable[[dict], float],
    metric: str = '',
) -> Callable[..., list[Place]]:
    """On each data set one series of a figure is above another.

    Args:
        name: Of what is compared.
        series: Their names, the higher one first.
        quantity, metric: As in `claims.CurvePart`.

    Returns:
        The comparison, a function of the figure's curves.
    """
    return lambda figure: [
        claim_above(
            f'{dataset}, {name}',
            *(figure(dataset, one, quantity, metric=metric) for one in series),
        )
        for dataset in datasets
    ]


def claim_curves_between(
    datasets: Iterable[str],
    name: str,
    series: str,
    quantity: Callable[[dict], float],
    **bounds: float,
) -> Callable[..., list[Place]]:
    """On each data set a series of a figure lies between two bounds.

    Args:
        name: Of what is compared.
        quantity: As in `claims.CurvePart`.
        bounds: low and high, as in `claim_between`.

    Returns:
        The comparison, a function of the figure's curves.
    """
    return lambda figure: [
        claim_between(f'{dataset}, {name}', figure(dataset, series, quantity), **bounds)
        for dataset in datasets
    ]


@dataclass(frozen=True)
class PlaceResult:
    """The outcome of a claim at one place; `str()` puts it in words.

    Attributes:
        contrast: The one least in favour of the claim, None without runs.
        effect: Of that contrast.
    """

    place: Place
    verdict: Verdict
    contrast: Contrast | None = None
    effect: Effect | None = None

    on_average = False  # as in `ClaimResult`

    @property
    def name(self) -> str:
        """Name of the place."""
        return self.place.name

    @property
    def word(self) -> str:
        """The verdict; 'incomplete' if only some of the contrasts have runs."""
        incomplete = self.effect and self.verdict is Verdict.NOT_RUN
        return 'incomplete' if incomplete else str(self.verdict)

    @property
    def between(self) -> str:
        """What is compared, '' if the place makes no other comparison."""
        return self.contrast.between if self.contrast else ''

    @property
    def published(self) -> float:
        """The paper's effect in the same contrast, NaN without one."""
        return self.contrast.published if self.contrast else math.nan

    @property
    def mixed(self) -> bool:
        """Whether the paper's numbers in it come from several sources."""
        return self.contrast is not None and self.contrast.mixed

    @property
    def size(self) -> Size:
        """Our effect compared with the published one."""
        return _classify_size(self.contrast, self.effect, self.published, self.mixed)

    def __str__(self) -> str:
        # a number may be part of several contrasts
        numbers = {id(number): number for number in self.place.numbers}.values()
        missing = sum(not number.seeds for number in numbers)
        idle = sum(not number.exercised for number in numbers)
        remarks = []
        if 0 < missing < len(numbers):
            remarks.append(f'{missing} of {len(numbers)} numbers missing')
        if idle:
            remarks.append(f'{idle} of {len(numbers)} numbers not exercised')
        name = self.name + (f' ({", ".join(remarks)})' if remarks else '')
        if not self.effect:
            return name
        return f'{name}: {self.word}, {_effect_text(self.effect, self.contrast)}'


def _classify_size(
    contrast: Contrast | None, effect: Effect | None, published: float, mixed: bool
) -> Size:
    if contrast is None:
        return Size.NOT_MEASURED
    if contrast.bound:
        return Size.BOUNDED
    return statistics.classify_size(effect, published, mixed)


def _effect_text(effect: Effect, contrast: Contrast, details: str = '') -> str:
    "'+1.50 ± 0.80 (against AN)'; details follow the interval."
    interval = ', 1 seed' if effect.seeds == 1 else f' ± {effect.half_width:.2f}{details}'
    total = contrast.sum_at(effect.mean)
    form = '+.2f' if abs(total) >= 0.005 or not total else '+.1g'
    between = f' ({contrast.between})' if contrast.between else ''
    return statistics.format_signed(total, form) + interval + between


@dataclass(frozen=True)
class ClaimResult:
    """The outcome of a claim; `str()` puts it in words.

    Attributes:
        places: Merged where their runs are the same.
        effect: Mean over the places, of the comparison least in favour of the claim; None if no
            place has two seeds.
        comparable: The same over the places that the paper has, too; None without one.
        contrast: That comparison at one of the places.
        metric: The metric of that comparison, '' if all of the claim's have the same.
        pooled: Number of places in the mean.
        tested: As in `statistics.Decision`.
        published: The paper's effect in the same comparison, mean over the same places; without
            runs, of the comparison least in favour, over all places.
        mixed: Whether the paper's numbers in it come from several sources.
        on_average: Whether the verdict holds for the mean but for no single place.
    """

    verdict: Verdict
    places: list[PlaceResult]
    effect: Effect | None = None
    comparable: Effect | None = None
    contrast: Contrast | None = None
    metric: str = ''
    pooled: int = 0
    tested: int = 0
    published: float = math.nan
    mixed: bool = False
    on_average: bool = False

    name = ''  # as in `PlaceResult`

    @property
    def word(self) -> str:
        """The verdict."""
        return str(self.verdict)

    @property
    def sign(self) -> str:
        """'reproduced', 'reproduced on average', 'undecided (3 yes, 1 no)'.

        In brackets is the number of places that decide it, each for itself, where they contradict
        one another.
        """
        if self.on_average:
            return f'{self.word} on average'
        verdicts = [place.verdict for place in self.places]
        yes = verdicts.count(Verdict.REPRODUCED)
        no = verdicts.count(Verdict.NOT_REPRODUCED)
        if self.verdict is Verdict.UNDECIDED and yes and no:
            return f'{self.word} ({yes} yes, {no} no)'
        return self.word

    @property
    def size(self) -> Size:
        """Our effect compared with the published one, over the places that the paper has."""
        return _classify_size(self.contrast, self.comparable, self.published, self.mixed)

    @property
    def between(self) -> str:
        """What is compared: 'against ASL, mAP@sample'."""
        between = self.contrast.between if self.contrast else ''
        return ', '.join(filter(None, [between, self.metric]))

    def __str__(self) -> str:
        if self.verdict in (Verdict.NOT_RUN, Verdict.NOT_EXERCISED):
            return self.word
        verdicts = [place.verdict for place in self.places]
        decision = statistics.describe_decision(self.verdict, verdicts, self.pooled, self.tested)
        text = f'{self.word} {decision}'
        if not self.effect:
            return text
        details = f', {self.effect.seeds} seeds, power 80 % from {self.effect.detectable:.1f} on'
        if printed := statistics.format_signed(self.contrast.sum_at(self.published), '+.2f'):
            details += f', the paper {printed}{UNCOUNTED if self.mixed else ""}'
        return f'{text}: {_effect_text(self.effect, self.contrast, details)}'


def decide_claim(places: list[Place]) -> ClaimResult:
    """Decide a claim from all places where it is tested; those with the same runs are merged."""
    places = _merge_places(places)
    contrasts = _name_contrasts(places)
    effects = [{name: c.effect() for name, c in by_name.items()} for by_name in contrasts]
    decision = statistics.decide_by_effects(effects, _may_show_no_difference(places))
    verdict, weakest = decision.verdict, decision.least
    if verdict is Verdict.NOT_RUN:
        weakest = ''
        if any(map(_is_idle, places, effects)):
            verdict = Verdict.NOT_EXERCISED
    measured = [
        (by_name[weakest], measured_effects[weakest])
        for by_name, measured_effects in zip(contrasts, effects, strict=True)
        if measured_effects.get(weakest)
    ]
    least = [contrast for contrast, _ in measured]
    of_paper = [effect for contrast, effect in measured if not contrast.added]
    comparable = [effect for effect in of_paper if effect.seeds > 1]
    metrics = {number.metric for place in places for number in place.numbers}
    own_metric = {number.metric for contrast in least for number in contrast.numbers}
    published = _mean_published(least) if weakest else _lowest_published(contrasts)
    return ClaimResult(
        verdict,
        places=list(map(_place_result, places, decision.verdicts, contrasts, effects)),
        effect=decision.means.get(weakest),
        comparable=statistics.pool_effects(comparable) if comparable else None,
        contrast=next(iter(least), None),
        metric=own_metric.pop() if len(own_metric) == 1 < len(metrics) else '',
        pooled=decision.counts.get(weakest, 0),
        tested=decision.tested,
        published=published,
        mixed=any(contrast.mixed for contrast in least),
        on_average=decision.on_average and verdict is decision.verdict,
    )


def _name_contrasts(places: list[Place]) -> list[dict[str, Contrast]]:
    """{name: contrast} of each place. Effects of one name are averaged, so the names differ for
    places on the same data set.
    """
    datasets = [
        place.numbers[0].dataset or place.numbers[0].prefix or place.name for place in places
    ]
    named = []
    for n, place in enumerate(places):
        before = datasets[:n].count(datasets[n])
        named.append({f'{k}.{before} {c.between}': c for k, c in enumerate(place.contrasts)})
    return named


def _may_show_no_difference(places: list[Place]) -> bool:
    "Whether half a point is a small effect of all numbers, and none is compared with a bound."
    bounded = any(contrast.bound for place in places for contrast in place.contrasts)
    return not bounded and all(number.metric for place in places for number in place.numbers)


def _mean_published(contrasts: list[Contrast]) -> float:
    "Mean over the contrasts that the paper has."
    printed = [contrast.published for contrast in contrasts if not contrast.added]
    return float(np.mean(printed)) if printed else math.nan


def _lowest_published(contrasts: list[dict[str, Contrast]]) -> float:
    "The lowest of the means over places, one mean for each name."
    published = [{name: c.published for name, c in by_name.items()} for by_name in contrasts]
    return float(pd.DataFrame(published).mean().min())


def _place_result(
    place: Place,
    verdict: Verdict,
    contrasts: dict[str, Contrast],
    effects: dict[str, Effect | None],
) -> PlaceResult:
    measured = {name: effect for name, effect in effects.items() if effect}
    if not measured:
        return PlaceResult(place, verdict)
    weakest = min(measured, key=lambda name: measured[name].mean)
    return PlaceResult(place, verdict, contrasts[weakest], measured[weakest])


def _is_idle(place: Place, effects: dict[str, Effect | None]) -> bool:
    "Whether a place decides nothing because a mechanism did not act, rather than for lack of runs."
    if all(number.exercised for number in place.numbers):
        return False
    return all(number.seeds for number in place.numbers) or not any(effects.values())


def _merge_places(places: list[Place]) -> list[Place]:
    groups = {}
    for place in places:
        runs = tuple(number.runs for number in place.numbers)
        has_runs = any(run is not None for run in runs)
        groups.setdefault(runs if has_runs else place.name, []).append(place)
    return [replace(group[0], name=_merged_name(group)) for group in groups.values()]


def _merged_name(group: list[Place]) -> str:
    """'Full / VOC' and 'Full / NUS' → 'ccp for Full / VOC = NUS'; names that differ in several
    parts are joined as they are.
    """
    prefix = next((number.prefix for number in group[0].numbers if number.prefix), '')
    split = [re.split('( / |, )', place.name) for place in group]
    parts = [list(dict.fromkeys(names)) for names in zip_longest(*split)]
    same_length = len(set(map(len, split))) == 1
    if not same_length or sum(len(names) > 1 for names in parts) > 1:
        return prefix + ' = '.join(place.name for place in group)
    return prefix + ''.join(map(' = '.join, parts))
