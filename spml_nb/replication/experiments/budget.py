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
from .. import board, gains
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
SMALL_CHANGE = EQUIVALENCE_MARGIN / 2  # points of mAP
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


_BY_ONE_SEARCH = 'chosen by one search'
_COMPARED = {
    'by_one': (1, gains.PLAIN_HEAD),
    'by_all': (len(SEEDS), gains.PLAIN_HEAD),
    'change': (len(SEEDS), _BY_ONE_SEARCH),
}


def compare_choices(record: pd.DataFrame) -> pd.DataFrame:
    """Methods whose settings one search has chosen, beside the choice by the mean of all.

    Args:
        record: as in `gains_by_budget`.

    Returns:
        DataFrame, one row per method and set of photos where it has all its runs and its mechanism
        acted: loss, head, dataset, by_one and by_all (gains over plain AN that was chosen alike),
        change (of the method's own test mAP, from the choice by one search).
    """
    scores = {}
    for searches in (1, len(SEEDS)):
        planned = plan_finals(record, searches=searches)
        for _, finals in planned.groupby([*Choice._fields]):
            if gains.mechanism_acted_in(finals.config, record):
                scores |= gains.collect_scores(finals, Choice)
    baselines = {
        gains.PLAIN_HEAD: {place: place._replace(loss=AN[0], head=AN[1]) for place in scores},
        _BY_ONE_SEARCH: {place: place._replace(searches=1) for place in scores},
    }
    measured = gains.gains_over_baselines(scores, baselines)
    measured = measured.reindex(columns=[*Choice._fields, 'baseline', 'effect', 'gain'])
    wide = measured.dropna(subset='gain').pivot(
        index=['loss', 'head', 'dataset'], columns=['searches', 'baseline'], values='effect'
    )
    wide = wide.reindex(columns=pd.MultiIndex.from_tuples(_COMPARED.values()))
    return wide.set_axis([*_COMPARED], axis=1).dropna().reset_index()


def average_choices(compared: pd.DataFrame) -> pd.DataFrame:
    """The means over the sets of photos.

    Args:
        compared: as from `compare_choices`.

    Returns:
        DataFrame, one row per method, the highest gain by all searches first: name, loss, head,
        sets (their number), by_one, by_all, change.
    """
    rows = [
        (_name(*method), *method, len(places), *(pool_effects(list(places[k])) for k in _COMPARED))
        for method, places in compared.groupby(['loss', 'head'])
    ]
    table = pd.DataFrame(rows, columns=['name', 'loss', 'head', 'sets', *_COMPARED])
    return table.sort_values('by_all', key=lambda column: [-effect.mean for effect in column])


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
        full search), added (points of mAP that the search adds to the gain), name.
    """
    largest = averaged.budget.max()
    wide = averaged.pivot(index=['loss', 'head'], columns='budget', values='effect')
    table = pd.DataFrame({'stated': wide[1], 'three': wide[3], 'tuned': wide[largest]})
    table['added'] = [row.tuned.mean - row.stated.mean for row in table.itertuples()]
    order = table.tuned.map(lambda effect: -effect.mean).sort_values(kind='stable').index
    table = table.loc[order].reset_index()
    return table.assign(name=[_name(row.loss, row.head) for row in table.itertuples()])


def _name(loss: str, head: str) -> str:
    name = board.describe_method(loss)['name']
    return name if head == 'linear' else f'{name} on the {head} head'


def _names_below(shown: pd.DataFrame, column: str) -> list[str]:
    "The methods below AN, by the upper end of the interval if there is one."
    highest = [effect.high if effect.seeds > 1 else effect.mean for effect in shown[column]]
    return list(shown.name[np.array(highest) < 0])


def describe_choices(compared: pd.DataFrame) -> dict:
    """What pages say of the choice by several searches.

    Args:
        compared: as from `compare_choices`.

    Returns:
        {'choices' (`average_choices` as dicts), 'clear' (those of them whose change is at least
        `SMALL_CHANGE`, with an interval without 0), 'open' (those that may change by as much),
        'on_sets' (changes of `EQUIVALENCE_MARGIN` or more on a set), 'plain_an' (its row, in a
        list), 'small' and 'large' (both limits)}.
    """
    choices = average_choices(compared)
    is_small = choices.change.map(lambda e: -SMALL_CHANGE < e.low and e.high < SMALL_CHANGE)
    is_clear = choices.change.map(lambda e: abs(e.mean) >= SMALL_CHANGE and e.low * e.high > 0)
    on_sets = compared[[abs(effect.mean) >= EQUIVALENCE_MARGIN for effect in compared.change]]
    on_sets = on_sets.assign(name=[_name(row.loss, row.head) for row in on_sets.itertuples()])
    plain_an = choices[(choices.loss == AN[0]) & (choices['head'] == AN[1])]
    return {
        'choices': choices.to_dict('records'),
        'clear': choices[is_clear].to_dict('records'),
        'open': choices[~is_small & ~is_clear].to_dict('records'),
        'small': SMALL_CHANGE,
        'on_sets': on_sets.to_dict('records'),
        'large': EQUIVALENCE_MARGIN,
        'plain_an': plain_an.to_dict('records'),
    }


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


def write_budgets(record: pd.DataFrame, compared: pd.DataFrame) -> list[Path]:
    """Write `budget.csv`, `budget.md` and `budget.svg` in the setting `outputs`.

    Args:
        record: as from `tables.read_recorded_runs`.
        compared: as from `compare_choices`.

    Returns:
        The files that changed.
    """
    measured = gains_by_budget(record)
    if not len(measured):
        return []
    averaged = average_by_budget(measured)
    if not len(averaged):
        return []  # only AN has runs
    shown = tabulate_budgets(averaged)
    columns = [*Place._fields, 'level', 'n', 'gain', 'gain_half']
    page = render_template(
        'budget.md',
        protocol=describe_protocol(SUITE, seeds=int(averaged.seeds.min())),
        rows=shown.to_dict('records'),
        sets=int(averaged.sets.max()),
        seeds=int(averaged.seeds.min()),
        draws=int(averaged.budget.max()),
        little=NEGLIGIBLE_GAIN,
        unsearched=list(shown.name[shown.added <= NEGLIGIBLE_GAIN]),
        below=_names_below(shown, 'stated'),
        still_below=_names_below(shown, 'tuned'),
        searches=len(SEEDS),
        **describe_choices(compared),
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
    write=lambda record, measured: [],  # `study.write_study` shares the comparison with other pages
)
