"""What a search buys: the gain over AN by the number of settings that both may try."""

# The gain over AN after ten draws each answers "which method, if I search?". Without a search one
# takes the paper's values and the usual rate, the first draw of every search; the curve between
# the two says which methods need a search at all. It is computed from the runs of the searches, so
# it only costs the runs of two more search seeds. These also say what the boards lose by choosing
# with one seed.

import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ... import drawing
from ...statistics import EQUIVALENCE_MARGIN, Effect, Scores, pool_effects
from ...sweeps import search
from ...sweeps.search import SEARCH_SEED, SUITES, Row
from .. import gains
from ..templates import describe_protocol, render_template
from .core import Experiment, format_csv, make_staged_sweep, tabulate_runs, write_outputs

SUITE = 'photos'
SEEDS = (SEARCH_SEED, SEARCH_SEED + 1, SEARCH_SEED + 2)  # of searches, never of a final run
AN = ('an', 'linear')
ROWS = [
    Row(loss, head)
    for loss, head in (
        AN,
        ('an', 'cosine'),
        ('wan', 'linear'),
        ('ls', 'linear'),
        ('epr', 'linear'),
        ('role', 'linear'),
        ('llr', 'linear'),
        ('llct', 'linear'),
        ('em', 'linear'),
        ('em', 'cosine'),
        ('hml', 'cosine'),
        ('opml', 'linear'),
        ('opml_sp', 'linear'),
        ('two_way', 'linear'),
        ('two_way_class', 'linear'),
        ('two_way_class', 'cosine'),
        ('gr', 'linear'),
    )
]
# points of mAP: a method to which a search adds no more needs none
NEGLIGIBLE_GAIN = EQUIVALENCE_MARGIN


def plan_budget_runs(datasets: Iterable[str] = ()) -> pd.DataFrame:
    """The runs of all searches.

    Args:
        datasets: some of the suite's; none: all of them.

    Returns:
        DataFrame, one row per run: dataset, loss, head, seed, draw (0 has the paper's values and
        the usual rate), config.
    """
    return pd.DataFrame(
        [
            (dataset, row.loss, row.head, seed, draw, config.changed(seed=seed, label_seed=seed))
            for dataset in datasets or SUITES[SUITE]['datasets']
            for row in ROWS
            for draw, config in enumerate(search.search_configs(row, SUITE, dataset))
            for seed in SEEDS
        ],
        columns=['dataset', 'loss', 'head', 'seed', 'draw', 'config'],
    )


def expected_choice(validation: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Expected test score of the setting that validation chooses among the first draw and k − 1 of
    the others: the mean over all subsets of the others.

    Args:
        validation: (n,) scores that choose; of equal ones the first is chosen.
        test: (n,) scores of the same draws.

    Returns:
        (n,) for k = 1 … n.

    Example:
        >>> expected_choice(np.array([1, 2, 0]), np.array([10, 20, 0]))
        array([10., 15., 20.])
    """
    others = len(test) - 1
    order = 1 + np.argsort(-validation[1:], kind='stable')
    better = [k for k in order if validation[k] > validation[0]]
    expected = []
    for drawn in range(others + 1):
        subsets = math.comb(others, drawn)
        # the i-th best of the others is chosen where it is drawn and no better one is
        chance = [
            math.comb(others - 1 - i, drawn - 1) / subsets if drawn else 0.0
            for i in range(len(better))
        ]
        first = (1 - sum(chance)) * test[0]
        expected.append(first + float(np.dot(chance, test[better])))
    return np.array(expected)


class Place(NamedTuple):
    """A method on a set of photos, with so many draws of its search."""

    dataset: str
    loss: str
    head: str
    budget: int


def gains_by_budget(record: pd.DataFrame) -> pd.DataFrame:
    """What each method gains over plain AN if both may try as many settings.

    Args:
        record: as from `tables.read_recorded_runs`.

    Returns:
        DataFrame as from `gains.gains_over_baselines`, one row per `Place`; the seeds are those of
        searches with all their runs.
    """
    runs = plan_budget_runs()
    scored = search.look_up_scores(runs.config, record)
    runs = runs.assign(validation=scored.validation.to_numpy(), test=scored.test_map.to_numpy())
    by_seed = {}
    for (dataset, loss, head, seed), tried in runs.groupby(['dataset', 'loss', 'head', 'seed']):
        if tried.test.notna().all():
            curve = expected_choice(tried.validation.to_numpy(), tried.test.to_numpy())
            for budget, score in enumerate(curve, 1):
                by_seed.setdefault(Place(dataset, loss, head, budget), {})[seed] = score
    scores = {
        place: Scores(pd.Series(values), dataset=place.dataset) for place, values in by_seed.items()
    }
    bases = {place: place._replace(loss=AN[0], head=AN[1]) for place in scores}
    return gains.gains_over_baselines(scores, {gains.PLAIN_HEAD: bases})


class Choice(NamedTuple):
    """A method on a set of photos, with settings chosen by so many seeds of its search."""

    dataset: str
    loss: str
    head: str
    searches: int


def plan_finals(
    record: pd.DataFrame, datasets: Iterable[str] = (), searches: int = len(SEEDS)
) -> pd.DataFrame:
    """The final runs, with the settings whose mean over the searches is best on validation.

    Args:
        record: finished runs, as from `sweeps.load_finished_runs` or `tables.read_recorded_runs`.
        datasets: as in `plan_budget_runs`.
        searches: how many of `SEEDS` choose; with 1 these are the runs of the boards.

    Returns:
        DataFrame as from `core.tabulate_runs`, the places being `Choice`s.
    """
    planned = plan_budget_runs(datasets)
    finals = {}
    for (dataset, loss, head), tried in planned.groupby(['dataset', 'loss', 'head'], sort=False):
        of_seeds = [list(tried.config[tried.seed == seed]) for seed in SEEDS[:searches]]
        chosen = search.choose_by_mean(of_seeds, record)
        if chosen is not None:
            finals[Choice(dataset, loss, head, searches)] = [
                chosen.changed(seed=seed, label_seed=seed)
                for seed in search.final_seeds(Row(loss, head), SUITE)
            ]
    return tabulate_runs(finals, Choice._fields, record)


_BY_ONE_SEED = 'chosen by one seed'


def compare_choices(record: pd.DataFrame) -> pd.DataFrame:
    """Methods whose settings one seed of the search has chosen, beside those of all seeds.

    Args:
        record: as in `gains_by_budget`.

    Returns:
        DataFrame, the highest gain first, one row per method with all its runs on all sets of
        photos, the effects being means over the sets: loss, head, one and all (gains over plain AN
        that was chosen alike), change (of test mAP, from the choice by one seed).
    """
    scores = {}
    for searches in (1, len(SEEDS)):
        scores |= gains.collect_scores(plan_finals(record, searches=searches), Choice)
    baselines = {
        gains.PLAIN_HEAD: {place: place._replace(loss=AN[0], head=AN[1]) for place in scores},
        _BY_ONE_SEED: {place: place._replace(searches=1) for place in scores},
    }
    measured = gains.gains_over_baselines(scores, baselines)
    measured = measured.reindex(columns=[*Choice._fields, 'baseline', 'effect', 'gain'])
    rows = []
    for method, places in measured.dropna(subset='gain').groupby(['loss', 'head'], sort=False):
        effects = places.groupby(['searches', 'baseline']).effect.agg(list)
        wanted = [(1, gains.PLAIN_HEAD), (len(SEEDS), gains.PLAIN_HEAD), (len(SEEDS), _BY_ONE_SEED)]
        found = [effects.get(name, []) for name in wanted]
        if all(len(of_sets) == len(SUITES[SUITE]['datasets']) for of_sets in found):
            rows.append((*method, *map(pool_effects, found)))
    table = pd.DataFrame(rows, columns=['loss', 'head', 'one', 'all', 'change'])
    return table.sort_values('all', key=lambda column: [-effect.mean for effect in column])


def average_by_budget(measured: pd.DataFrame) -> pd.DataFrame:
    """The mean over the sets of photos.

    Args:
        measured: as from `gains_by_budget`.

    Returns:
        DataFrame, one row per method and budget: loss, head, budget, effect, sets (their number),
        seeds (the fewest of any set); without AN itself and methods that lack a set.
    """
    rows = []
    is_plain_an = (measured.loss == AN[0]) & (measured['head'] == AN[1])
    of_methods = measured[~is_plain_an & measured.gain.notna()]
    for (loss, head, budget), places in of_methods.groupby(['loss', 'head', 'budget'], sort=False):
        effects = list(places.effect)
        several = all(effect.seeds > 1 for effect in effects)
        mean = pool_effects(effects) if several else _average_means(effects)
        rows.append((loss, head, budget, mean, len(effects), mean.seeds))
    table = pd.DataFrame(rows, columns=['loss', 'head', 'budget', 'effect', 'sets', 'seeds'])
    return table[table.sets == table.sets.max()].reset_index(drop=True)


def _average_means(effects: list[Effect]) -> Effect:
    "Without an interval, since some effects have one seed."
    mean = float(np.mean([effect.mean for effect in effects]))
    return Effect(mean, seeds=1)


def tabulate_budgets(averaged: pd.DataFrame) -> pd.DataFrame:
    """What each method gains without a search, and after one.

    Args:
        averaged: as from `average_by_budget`.

    Returns:
        DataFrame, the highest gain after a full search first: loss, head, stated (the effect with
        the paper's values and the usual rate), three (the best of three draws), tuned (after the
        full search), added (points of mAP that the search adds to the gain).
    """
    largest = averaged.budget.max()
    wide = averaged.pivot(index=['loss', 'head'], columns='budget', values='effect')
    table = pd.DataFrame({'stated': wide[1], 'three': wide[3], 'tuned': wide[largest]})
    table['added'] = [row.tuned.mean - row.stated.mean for row in table.itertuples()]
    order = table.tuned.map(lambda effect: -effect.mean).sort_values(kind='stable').index
    return table.loc[order].reset_index()


def _name(loss: str, head: str) -> str:
    return loss if head == 'linear' else f'{loss} on the {head} head'


def _picture(averaged: pd.DataFrame):
    """The curves. averaged: as from `average_by_budget`."""
    figure, axes = drawing.make_axes(1, 2, 3.2, 3.0)
    added = tabulate_budgets(averaged).set_index(['loss', 'head']).added
    gained = [effect.mean for effect in averaged.effect]
    titles = (
        f'search adds at most {NEGLIGIBLE_GAIN:g}',
        f'search adds more than {NEGLIGIBLE_GAIN:g}',
    )
    for ax, title, needed in zip(axes[0], titles, (False, True), strict=True):
        shown = added.index[(added > NEGLIGIBLE_GAIN) == needed]
        for k, method in enumerate(shown):
            curve = averaged[(averaged.loss == method[0]) & (averaged['head'] == method[1])]
            ax.plot(
                curve.budget,
                [effect.mean for effect in curve.effect],
                label=_name(*method),
                color=drawing.INK[k % len(drawing.INK)],
                linestyle='-' if k < len(drawing.INK) else '--',
            )
        ax.axhline(0, color='#999999', linewidth=0.8)
        ax.set_title(title)
        ax.set_ylim(min(gained) - 0.2, max(gained) + 0.2)
        ax.set_xlabel('settings tried, the paper’s values first')
        if len(shown):
            ax.legend(fontsize=7)
    axes[0][0].set_ylabel('points of mAP over AN with as many')
    return figure


def write_budgets(record: pd.DataFrame) -> list[Path]:
    """Write `budget.csv`, `budget.md` and `budget.svg` in the setting `outputs`.

    Args:
        record: as from `tables.read_recorded_runs`.

    Returns:
        The files that changed.
    """
    measured = gains_by_budget(record)
    if not len(measured):
        return []
    averaged = average_by_budget(measured)
    shown = tabulate_budgets(averaged)
    choices = compare_choices(record).to_dict('records')
    columns = [*Place._fields, 'level', 'n', 'gain', 'gain_half']
    page = render_template(
        'budget.md',
        protocol=describe_protocol(SUITE, seeds=int(averaged.seeds.min())),
        rows=shown.to_dict('records'),
        sets=int(averaged.sets.max()),
        seeds=int(averaged.seeds.min()),
        draws=int(averaged.budget.max()),
        little=NEGLIGIBLE_GAIN,
        unsearched=[
            _name(row.loss, row.head) for row in shown.itertuples() if row.added <= NEGLIGIBLE_GAIN
        ],
        below=[
            _name(row.loss, row.head)
            for row in shown.itertuples()
            if row.stated.mean < 0 < row.tuned.mean
        ],
        choices=choices,
        largest=max(choices, key=lambda row: abs(row['change'].mean), default=None),
    )
    return write_outputs(
        {
            'budget.csv': format_csv(measured[columns]),
            'budget.md': page,
            'budget.svg': drawing.to_svg(lambda: _picture(averaged)).decode(),
        }
    )


EXPERIMENT = Experiment(
    make_staged_sweep(
        lambda datasets: plan_budget_runs(datasets).config,
        lambda record, datasets: plan_finals(record, datasets).config,
    ),
    lambda record, measured: write_budgets(record),
)
