"""Do the gains of methods hold on another backbone? Each method is searched again on it."""

# The board has one backbone, and its gains could be due to the features of that network. So twelve
# methods are searched and run on the features of a larger network, with as many draws, and compared
# with the board's runs of the same seeds.

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import rankdata

from ... import drawing
from ...base import settings
from ...runs.config import Config
from ...statistics import (
    RESAMPLED_FILE,
    Effect,
    Scores,
    default_image_error,
    estimate_effect,
    format_signed,
    image_error,
    pool_effects,
    rank_correlation,
    seed_interval,
)
from ...sweeps.search import Row, search_configs
from .. import gains
from ..templates import describe_protocol, render_template
from .core import (
    Experiment,
    choose_sets,
    format_csv,
    make_chosen_sweep,
    plan_chosen_runs,
    tabulate_runs,
    write_outputs,
)
from .more_photos import name_method

SUITE = 'photos'
DATASETS = ('voc12_animals', 'coco18', 'cub_crops')
FIRST, SECOND = BACKBONES = ('efficientnet_lite0', 'efficientnet_lite2')
SEEDS = range(5)  # of final runs; the first half of the board's
AN = ('an', 'linear')
# the methods of the front page whose heads train in seconds (LAC's takes minutes), with LL-Ct for
# both of its variants, and Two-way with single labels, as all others
METHODS = (
    *map(Row, ('wan', 'ls', 'epr', 'role', 'em', 'em_apl')),
    *map(Row, ('llr', 'llct', 'opml', 'opml_sp', 'two_way', 'hml')),
)
BASELINES = (Row('an', 'linear'), Row('an', 'cosine'))


class Place(NamedTuple):
    """A method on the features of a backbone."""

    dataset: str
    backbone: str
    loss: str
    head: str


def plan_searches(datasets: Iterable[str] = ()) -> dict[Place, list[Config]]:
    """The searches, one for each `Place`; those on the first backbone are the board's.

    Args:
        datasets: some of `DATASETS`; none: all of them.
    """
    searches = {}
    for dataset in choose_sets(datasets, DATASETS):
        for row in (*BASELINES, *METHODS):
            tried = search_configs(row, SUITE, dataset)
            for backbone in BACKBONES:
                place = Place(dataset, backbone, row.loss, tried[0].head)
                searches[place] = [config.changed(backbone=backbone) for config in tried]
    return searches


def plan_finals(record: pd.DataFrame, seeds: Iterable[int] = SEEDS) -> dict[Place, list[Config]]:
    """The final runs whose settings are chosen.

    Args:
        record: finished runs, as from `sweeps.load_finished_runs` or `tables.read_recorded_runs`.
        seeds: of observed labels and training.
    """
    return plan_chosen_runs(plan_searches(), record, seeds)


def measure_gains(record: pd.DataFrame, seeds: Iterable[int] = SEEDS) -> pd.DataFrame:
    """What each method gains over plain AN on the same backbone.

    Args:
        record, seeds: as in `plan_finals`.

    Returns:
        DataFrame as from `gains.gains_over_baselines`, one row per `Place` with a run of every
        seed; and acted (as from `gains.mechanism_acted_in`) and late (share of the runs whose best
        epoch is one of the last two).
    """
    finals = plan_finals(record, seeds)
    runs = tabulate_runs(finals, Place._fields, record)
    scores = gains.collect_scores(runs, Place)
    plain = {place: place._replace(loss='an', head='linear') for place in scores}
    bases = {place: base for place, base in plain.items() if place != base}
    measured = gains.gains_over_baselines(scores, {gains.PLAIN_HEAD: bases})
    acted = [gains.mechanism_acted_in(finals[place], record) for place in scores]
    late = runs.groupby([*Place._fields]).late.mean()
    return measured.assign(acted=acted, late=[late[place] for place in scores])


def pair_backbones(measured: pd.DataFrame) -> pd.DataFrame:
    """The gains on both backbones side by side.

    Args:
        measured: as from `measure_gains`.

    Returns:
        DataFrame, one row per set and method (AN on the cosine head is one) with a gain on both:
        dataset, loss, head, first and second (its gains), change (second − first), all as
        `Effect`s, and acted (whether its mechanism acted on both).
    """
    rows = []
    lines = _lines_by_place(measured)
    for place, first in lines.items():
        second = lines.get(place._replace(backbone=SECOND))
        if place.backbone == SECOND or (place.loss, place.head) == AN or not second:
            continue
        if first.effect.seeds and second.effect.seeds:
            an_first, an_second = (lines[Place(place.dataset, b, *AN)] for b in BACKBONES)
            compared = (second, an_second, first, an_first)
            change = _estimate_change([line.scores for line in compared])
            effects = (first.effect, second.effect, change)
            names = (place.dataset, place.loss, place.head)
            rows.append((*names, *effects, first.acted and second.acted))
    columns = ['dataset', 'loss', 'head', 'first', 'second', 'change', 'acted']
    return pd.DataFrame(rows, columns=columns)


def _lines_by_place(measured: pd.DataFrame) -> dict[Place, Any]:
    "The rows of `measure_gains` as named tuples."
    lines = measured.itertuples(index=False)
    return {Place(*line[: len(Place._fields)]): line for line in lines}


def _estimate_change(scores: list[Scores]) -> Effect:
    "The difference of the first two less that of the last two, paired by seed."
    weights = np.array([1, -1, -1, 1])
    differences = sum(w * of_line.by_seed for w, of_line in zip(weights, scores, strict=True))
    names = [of_line.resampled for of_line in scores]
    images = image_error(names, weights, default_image_error(scores[0].dataset))
    return estimate_effect(differences, None, images)


class Lead(NamedTuple):
    """The lead of the best method over the next one on both backbones, means over the sets.

    Attributes:
        methods: loss and head of the leader and of the next one.
        leader, second: their names. They have the highest and the second highest mean gain on
            `FIRST`, among those whose mechanism acted on every set and both backbones.
        leads: mAP of the leader − mAP of the second, on `FIRST` and on `SECOND`, paired by seed.
        change: the second of `leads` − the first.
        first_on: on how many sets the leader gains most of all counted methods, by backbone.
        sets: number of sets.
    """

    methods: list[tuple[str, str]]
    leader: str
    second: str
    leads: tuple[Effect, Effect]
    change: Effect
    first_on: tuple[int, int]
    sets: int


def lead_on_both(measured: pd.DataFrame) -> Lead | None:
    """Whether the lead of the best method on the first backbone carries over to the second.

    Args:
        measured: as from `measure_gains`.

    Returns:
        Lead, over the sets of photos that have all runs; None if there is none.
    """
    pairs = pair_backbones(measured)
    counted = _counted_pairs(pairs[pairs.dataset.isin(_list_complete_sets(pairs))])
    sets = list(dict.fromkeys(counted.dataset))
    if not sets:
        return None
    gained = counted.assign(gain=[effect.mean for effect in counted['first']])
    by_method = gained.groupby(['loss', 'head']).gain
    everywhere = by_method.mean()[by_method.size() == len(sets)]
    methods = [*everywhere.sort_values(ascending=False, kind='stable').index[:2]]
    here, there = (_pair_scores(measured, methods, sets, backbone) for backbone in BACKBONES)
    names = [name_method(Row(*method)) for method in methods]
    first_on = [
        sum(_best(part, side) == names[0] for _, part in counted.groupby('dataset'))
        for side in _SIDES
    ]
    changes = [_estimate_change([*b, *a]) for a, b in zip(here, there, strict=True)]
    leads = _average_lead(here), _average_lead(there)
    return Lead(methods, *names, leads, pool_effects(changes), tuple(first_on), len(sets))


def _pair_scores(
    measured: pd.DataFrame, methods: list[tuple[str, str]], sets: list[str], backbone: str
) -> list[list[Scores]]:
    "Those of two methods, for each set."
    scores = measured.set_index([*Place._fields]).scores
    return [[scores[dataset, backbone, *method] for method in methods] for dataset in sets]


def _average_lead(pairs: list[list[Scores]]) -> Effect:
    return pool_effects([gains.estimate_gain(own, other) for own, other in pairs])


def _list_complete_sets(pairs: pd.DataFrame) -> list[str]:
    "The sets of photos with a gain of every method, AN on the cosine head too."
    return [name for name in DATASETS if (pairs.dataset == name).sum() > len(METHODS)]


def _counted_pairs(pairs: pd.DataFrame) -> pd.DataFrame:
    "The twelve methods where their mechanism acted."
    return pairs[pairs.acted.astype(bool) & (pairs.loss != 'an')]


POOLED = 'all sets'
OTHER_SEEDS = range(5, 10)  # the other half of the board's
_REPEATS = 5000


def correlate_orders(
    pairs: pd.DataFrame, measured: pd.DataFrame, again: pd.DataFrame
) -> pd.DataFrame:
    """Whether both backbones put the methods in the same order.

    Args:
        pairs: as from `pair_backbones`.
        measured: as from `measure_gains`.
        again: the same with `OTHER_SEEDS`, which the board has on the first backbone.

    Returns:
        DataFrame by set of photos, the last row being `POOLED`: methods (number ranked), rho
        (Spearman's rank correlation of the gains, the pooled one over ranks within each set), low
        and high (its 95 % confidence interval over seeds and test images), halves (the correlation
        of the first backbone's gains with those of other seeds) and images (False if the interval
        is over seeds alone, for lack of resampled test images).
    """
    counted = _counted_pairs(pairs)
    wide = counted.pivot(index=['loss', 'head'], columns='dataset')
    means = {name: wide[name].map(lambda effect: effect.mean, 'ignore') for name in _SIDES}
    halves = again[again.backbone == FIRST].pivot(
        index=['loss', 'head'], columns='dataset', values='gain'
    )
    scores = measured.set_index([*Place._fields]).scores
    random = np.random.RandomState(0)
    drawn = {
        dataset: _draw_gains(part, scores, random)
        for dataset, part in counted.groupby('dataset', sort=False)
    }
    rows = {}
    for name in (*drawn, POOLED):
        sets = [*drawn] if name == POOLED else [name]
        first, second = (means[side][sets] for side in _SIDES)
        low, high = _interval([drawn[dataset][0] for dataset in sets])
        rows[name] = {
            'methods': int((first + second).notna().any(axis=1).sum()),
            'rho': _rank_correlation(first, second),
            'low': low,
            'high': high,
            'halves': _rank_correlation(first, halves.reindex_like(first)),
            'images': all(drawn[dataset][1] for dataset in sets),
        }
    return pd.DataFrame.from_dict(rows, orient='index')


_SIDES = ('first', 'second')


def _rank_correlation(first: pd.DataFrame, second: pd.DataFrame) -> float:
    return rank_correlation(first.to_numpy(float), second.to_numpy(float), repeats=0)[0]


def _draw_gains(
    part: pd.DataFrame, scores: pd.Series, random: np.random.RandomState
) -> tuple[np.ndarray, bool]:
    """(2, methods, `_REPEATS`) gains of a set's methods on bootstrap samples of the seeds and test
    images, the same for both backbones; and whether the images could be sampled.
    """
    dataset = part.dataset.iloc[0]
    pairs = [
        [
            (scores[dataset, backbone, loss, head], scores[dataset, backbone, *AN])
            for loss, head in zip(part.loss, part['head'], strict=True)
        ]
        for backbone in BACKBONES
    ]
    by_seed = np.array(
        [[scored.by_seed - an.by_seed for scored, an in of_backbone] for of_backbone in pairs]
    )
    count = by_seed.shape[2]
    drawn = by_seed[:, :, random.randint(count, size=(_REPEATS, count))].mean(3)
    file = settings.get_folder('outputs') / RESAMPLED_FILE
    resampled = np.load(file) if file.is_file() else {}
    names = {one.resampled for of_backbone in pairs for pair in of_backbone for one in pair}
    if not names <= set(resampled):
        return drawn, False
    images = np.array(
        [
            [resampled[scored.resampled] - resampled[an.resampled] for scored, an in of_backbone]
            for of_backbone in pairs
        ]
    )
    images -= images.mean(2, keepdims=True)
    return drawn + images[:, :, random.randint(images.shape[2], size=_REPEATS)], True


def _interval(drawn: list[np.ndarray]) -> tuple[float, float]:
    "Of the rank correlation pooled over sets, from (2, methods, samples) gains of each."
    ranks = [rankdata(gained, axis=1) - (gained.shape[1] + 1) / 2 for gained in drawn]
    x, y = np.concatenate(ranks, axis=1)
    correlations = (x * y).sum(0) / np.sqrt((x * x).sum(0) * (y * y).sum(0))
    weights = np.full(_REPEATS, 1 / _REPEATS)
    low, high = seed_interval(correlations, weights, len(SEEDS))
    return float(low), float(high)


def count_signs(pairs: pd.DataFrame, one: str = 'first', other: str = 'second') -> dict:
    """How the gains that are decided on one backbone come out on the other. A gain is decided if
    its interval is without 0.

    Args:
        pairs: as from `pair_backbones`.
        one: the column that decides.
        other: the column that is looked at.

    Returns:
        {'decided' (number on the one), 'kept' (of these with the same sign on the other),
        'decided_too' (of these decided there as well), 'turned' (names of those with the opposite
        sign), 'turned_and_decided' (of these decided there as well)}.
    """
    decided = [
        line for line in _counted_pairs(pairs).itertuples() if _is_decided(getattr(line, one))
    ]
    kept = [line for line in decided if line.first.mean * line.second.mean > 0]
    turned = [line for line in decided if line.first.mean * line.second.mean <= 0]

    def decided_too(lines):
        return [line for line in lines if _is_decided(getattr(line, other))]

    def names(lines):
        return [f'{_name(line)} on {line.dataset}' for line in lines]

    return {
        'decided': len(decided),
        'kept': len(kept),
        'decided_too': len(decided_too(kept)),
        'turned': names(turned),
        'turned_and_decided': names(decided_too(turned)),
    }


def _is_decided(effect: Effect) -> bool:
    return effect.low > 0 or effect.high < 0


def _name(line) -> str:
    return name_method(Row(line.loss, line.head))


def _tabulate_gains(measured: pd.DataFrame, pairs: pd.DataFrame) -> list[list[str]]:
    """AN's levels and the gains over them on both backbones as cells of a table, in brackets where
    the method's mechanism did not act.
    """
    sets = list(dict.fromkeys(pairs.dataset))
    lines = _lines_by_place(measured)
    places = [(dataset, backbone) for dataset in sets for backbone in BACKBONES]
    table = [
        ['', *(f'{dataset}, {_short_name(b)}' for dataset, b in places), 'mean change'],
        ['AN, mAP in %', *(f'{lines[Place(*place, *AN)].level:.1f}' for place in places), ''],
    ]
    acted = pairs[pairs.acted.astype(bool)]
    changes = acted.set_index(['loss', 'head', 'dataset']).change
    for row in (*BASELINES[1:], *METHODS):
        name = (row.loss, gains.find_row_head(row))
        cells = [_cell(lines.get(Place(*place, *name))) for place in places]
        of_method = [changes[*name, dataset] for dataset in sets if (*name, dataset) in changes]
        mean = str(pool_effects(of_method)) if len(of_method) == len(sets) else '–'
        table.append([name_method(Row(*name)), *cells, mean])
    return table


def _cell(line) -> str:
    if line is None or not line.effect.seeds:
        return '–'
    return str(line.effect) if line.acted else f'({line.effect})'


def _short_name(backbone: str) -> str:
    "'Lite2' for 'efficientnet_lite2'."
    return backbone.removeprefix('efficientnet_').capitalize()


def _tabulate_correlations(orders: pd.DataFrame, pairs: pd.DataFrame) -> list[list[str]]:
    "Correlations as cells of a table, with the methods that gain most."
    counted = _counted_pairs(pairs)
    most = [f'gains most on {_short_name(backbone)}' for backbone in BACKBONES]
    halves = f'{_short_name(FIRST)} with itself'
    table = [['', 'methods', 'rank correlation', '95 % interval', halves, *most]]
    for name, line in orders.iterrows():
        part = counted[counted.dataset == name]
        best = [_best(part, side) if len(part) else '' for side in _SIDES]
        rho, low, high, halves = (
            format_signed(line[column], '+.2f') for column in ('rho', 'low', 'high', 'halves')
        )
        table.append([name, str(line.methods), rho, f'{low} to {high}', halves, *best])
    return table


def _best(part: pd.DataFrame, side: str) -> str:
    return _name(max(part.itertuples(), key=lambda line: getattr(line, side).mean))


def _picture(pairs: pd.DataFrame) -> Figure:
    "The gains on one backbone over those on the other, a panel per set."
    counted = _counted_pairs(pairs)
    sets = list(dict.fromkeys(counted.dataset))
    looks = itertools.product(('o', '^', 's'), drawing.INK)
    look_of = dict(zip(dict.fromkeys(counted.loss), looks, strict=False))
    figure, axes = drawing.make_axes(1, len(sets), 3.0, 3.2)
    for ax, dataset in zip(axes[0], sets, strict=True):
        part = counted[counted.dataset == dataset]
        ax.axline((0, 0), slope=1, color='#999999', linewidth=0.8)
        ax.axhline(0, color='#dddddd', linewidth=0.8, zorder=0)
        ax.axvline(0, color='#dddddd', linewidth=0.8, zorder=0)
        for line in part.itertuples():
            marker, ink = look_of[line.loss]
            ax.errorbar(
                line.first.mean,
                line.second.mean,
                line.second.half_width,
                line.first.half_width,
                marker,
                color=ink,
                label=_name(line),
                markersize=4,
                elinewidth=0.4,
            )
        ax.set_title(dataset)
        ax.set_xlabel(f'points of mAP over AN, {_short_name(FIRST)}')
    axes[0][0].set_ylabel(f'points of mAP over AN, {_short_name(SECOND)}')
    drawing.draw_legend(figure)
    return figure


def write_second_backbone(record: pd.DataFrame) -> list[Path]:
    """Write `second_backbone.csv`, `second_backbone.md` and `second_backbone.svg` in the setting
    `outputs`, of the sets of photos that have all runs.

    Args:
        record: as from `tables.read_recorded_runs`.

    Returns:
        The files that changed.
    """
    measured = measure_gains(record)
    pairs = pair_backbones(measured)
    sets = _list_complete_sets(pairs)
    if not sets:
        return []
    pairs = pairs[pairs.dataset.isin(sets)]
    counted = _counted_pairs(pairs)
    measured = measured[measured.dataset.isin(sets)]
    again = measure_gains(record, OTHER_SEEDS)
    orders = correlate_orders(pairs, measured, again)
    lead = lead_on_both(measured)
    first, second = map(_short_name, BACKBONES)
    page = render_template(
        'second_backbone.md',
        protocol=describe_protocol(SUITE, sets, len(SEEDS), BACKBONES),
        first=first,
        second=second,
        correlations=_tabulate_correlations(orders, pairs),
        pooled=orders.loc[POOLED],
        means=[np.mean([effect.mean for effect in counted[side]]) for side in _SIDES],
        lead=lead,
        lead_again=_average_lead(_pair_scores(again, lead.methods, sets, FIRST)),
        signs={
            (first, second): count_signs(pairs),
            (second, first): count_signs(pairs, 'second', 'first'),
        },
        gains=_tabulate_gains(measured, pairs),
        not_acted=not pairs.acted.all(),
        late=measured.groupby('backbone').late.mean(),
        missing=[name for name in DATASETS if name not in sets],
    )
    columns = [*Place._fields, 'level', 'level_half', 'n', 'gain', 'gain_half', 'acted', 'late']
    return write_outputs(
        {
            'second_backbone.csv': format_csv(measured[columns]),
            'second_backbone.md': page,
            'second_backbone.svg': drawing.to_svg(lambda: _picture(pairs)).decode(),
        }
    )


EXPERIMENT = Experiment(
    make_chosen_sweep(plan_searches, SEEDS), lambda record, measured: write_second_backbone(record)
)
