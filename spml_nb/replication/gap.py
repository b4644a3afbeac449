"""How much of what is lost with one label a photo do a method, a head and a few full labels win
back?"""

# The gap is between plain AN and binary cross-entropy with all labels, both on the linear head, so
# that labels alone make it. By how much the better head for all labels would move that end, the
# page says where there are such runs.
#
# Boards are sorted by test scores, so the best of a board is no honest choice. What closes a gap is
# chosen on each set by the mean validation mAP of the final runs, as somebody with these validation
# photos could choose. Settings and epochs were chosen there too, for every row alike; test photos
# are used once. Intervals take the choice as given, as all intervals here do.

import math
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.optimize import brentq

from .. import drawing
from ..base import settings
from ..statistics import (
    Effect,
    Scores,
    estimate_effect,
    format_number,
    image_error,
    image_sd,
    pool_effects,
)
from . import board, gains, published, site
from .experiments import clean_photos
from .experiments.clean_photos import DATASETS, SUITE, Use
from .rendering import render_template


class Step(StrEnum):
    """What is done with one label a photo beyond plain AN."""

    METHOD = 'a method, linear head'
    HEAD = 'another head, under AN'
    BOTH = 'a method, any head'
    PHOTOS = 'a method, half of validation trained on'


MEAN = 'mean'  # of the sets of photos, in place of a name
CANDIDATES = ['dataset', 'step', 'loss', 'head', 'validation', 'scores']


def list_candidates(measured: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
    """All that could be taken for a step: rows of the board whose mechanism acted and that are told
    nothing but labels, and what was trained on half of validation.

    Args:
        measured: as from `gains.gains_of_suites`.
        known: as from `tables.record`.

    Returns:
        DataFrame, one row per set of photos, step and method: `CANDIDATES`; validation is the mean
        over the final runs, in percent.
    """
    single = _board_rows(measured, 'single')
    single = single[single.acted.eq(True)]
    told = single.loss.map(lambda loss: board.describe_method(loss)['needs'] != '').astype(bool)
    single = single[~told]
    linear = single['head'] == 'linear'
    of_steps = {
        Step.METHOD: single[linear],
        Step.HEAD: single[(single.loss == 'an') & ~linear],
        Step.BOTH: single,
        Step.PHOTOS: _list_trained_beside(known),
    }
    parts = [part.assign(step=step) for step, part in of_steps.items()]
    return pd.concat(parts, ignore_index=True).reindex(columns=CANDIDATES)


def _board_rows(measured: pd.DataFrame, labels: str) -> pd.DataFrame:
    one_line_each = measured.baseline == gains.PLAIN_HEAD
    of_suite = measured[(measured.suite == SUITE) & (measured.choice == 'clean') & one_line_each]
    return of_suite[(of_suite.labels == labels) & (of_suite.n > 1)]


def _list_trained_beside(known: pd.DataFrame) -> pd.DataFrame:
    runs = clean_photos.plan_runs(known)
    runs = runs[runs.use == Use.BESIDE]
    validation = runs.groupby([*clean_photos.Place._fields]).validation.mean()
    lines = [
        {**place._asdict(), 'validation': validation[place], 'scores': scores}
        for place, scores in clean_photos.collect_scores(runs).items()
    ]
    return pd.DataFrame(lines, columns=[*clean_photos.Place._fields, 'validation', 'scores'])


class Share(NamedTuple):
    """The share of a gap that is closed, and its 95 % interval."""

    closed: float
    low: float
    high: float

    def __str__(self) -> str:
        "'44 % (30 to 60)'"
        closed, low, high = (format_number(100 * share, '.0f') for share in self)
        return f'{closed} % ({low} to {high})'.replace('-', '−').replace('inf', '∞')


class Reached(NamedTuple):
    """Scores on a set of photos: of what closes its gap, and of the ends of the gap."""

    own: Scores
    an: Scores
    full: Scores


def estimate_share(places: list[Reached]) -> Share:
    """The share of the mean gap that is closed on average.

    Args:
        places: of different sets of photos.

    Returns:
        Share; an end is infinite where the gap is too small beside its error.

    Source:
        Fieller (1954): the interval holds the shares of the gap that the gain may be equal to.
    """
    seeds = [pd.concat([each.by_seed for each in place], axis=1).dropna() for place in places]
    names = [[each.resampled for each in place] for place in places]

    def subtract(share: float) -> Effect:
        "What is gained over AN minus a share of the gap."
        weights = np.array([1, share - 1, -share])
        effects = []
        for place, by_seed, of_place in zip(places, seeds, names, strict=True):
            images = image_error(of_place, weights, image_sd(place.own.dataset))
            effects.append(estimate_effect(by_seed.to_numpy() @ weights, None, images))
        return pool_effects(effects)

    gain, rest = subtract(0).mean, subtract(1).mean
    closed = gain / (gain - rest)
    return Share(
        closed,
        _find_end(lambda share: subtract(share).low, closed, -1),
        _find_end(lambda share: subtract(share).high, closed, 1),
    )


WIDEST = 64  # gaps on either side


def _find_end(bound: Callable[[float], float], closed: float, direction: int) -> float:
    "Where a bound, which falls as the share grows, is 0."
    step = 0.25
    while step <= WIDEST:
        end = closed + direction * step
        if bound(end) * direction < 0:
            return brentq(bound, closed, end, xtol=1e-4)
        step *= 2
    return direction * math.inf


def choose_candidates(candidates: pd.DataFrame, for_all: bool = False) -> pd.DataFrame:
    """The candidate with the best validation for each step and set of photos.

    Args:
        candidates: as from `list_candidates`.
        for_all: take one method for all sets, of those that have runs on the most: the one whose
            mean validation is best.

    Returns:
        DataFrame by dataset and step.
    """
    candidates = candidates.dropna(subset='validation')
    if for_all:
        method = ['step', 'loss', 'head']
        everywhere = candidates.groupby(method).validation.agg(['mean', 'size'])
        most = everywhere.groupby('step')['size'].transform('max')
        everywhere = everywhere[everywhere['size'] == most]
        best = everywhere.groupby('step')['mean'].idxmax()
        candidates = candidates[candidates.set_index(method).index.isin(best)]
    best = candidates.groupby(['dataset', 'step']).validation.idxmax()
    return candidates.loc[best].set_index(['dataset', 'step'])


def measure_gap(measured: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """What each step closes of the gap.

    Args:
        measured: as from `gains.gains_of_suites`.
        chosen: as from `choose_candidates`.

    Returns:
        DataFrame, one row per step and set of photos that has both ends of its gap and every step,
        the one with the fewest labels a photo first, then one per step for their `MEAN`: dataset,
        step, loss and head (as chosen, '' for the mean), gain and gap (`Effect`s over plain AN in
        points of mAP), share (`Share`).
    """
    an = _board_rows(measured, 'single').set_index(['loss', 'head', 'dataset']).scores
    full = _board_rows(measured, 'full').set_index(['loss', 'head', 'dataset']).scores
    lines = []
    for dataset in sorted(DATASETS, key=_count_positives().get):
        ends = [of.get((loss, 'linear', dataset)) for loss, of in (('an', an), ('bce', full))]
        if None in ends or any((dataset, step) not in chosen.index for step in Step):
            continue
        for step in Step:
            row = chosen.loc[dataset, step]
            lines.append([dataset, step, row.loss, row['head'], Reached(row.scores, *ends)])
    of_sets = pd.DataFrame(lines, columns=['dataset', 'step', 'loss', 'head', 'reached'])
    lines = [[*line, *_summarize([line.reached])] for line in of_sets.itertuples(index=False)]
    lines += [
        [MEAN, step, '', '', None, *_summarize(list(part.reached))]
        for step, part in of_sets.groupby('step', sort=False)
    ]
    columns = [*of_sets, 'gain', 'gap', 'share']
    return pd.DataFrame(lines, columns=columns).drop(columns='reached')


def _count_positives() -> dict[str, float]:
    return published.describe_photo_sets().positives.to_dict()


def _list_sets(found: pd.DataFrame) -> list[str]:
    return [dataset for dataset in dict.fromkeys(found.dataset) if dataset != MEAN]


def _summarize(places: list[Reached]) -> tuple[Effect, Effect, Share]:
    gained = pool_effects([gains.estimate_gain(place.own, place.an) for place in places])
    gap = pool_effects([gains.estimate_gain(place.full, place.an) for place in places])
    return gained, gap, estimate_share(places)


STYLES = dict(zip(Step, zip(drawing.INK, 'osD^', strict=False), strict=True))


def draw_gap(found: pd.DataFrame) -> Figure:
    """The gap of each set of photos as a bar from plain AN to all labels, how far into it each step
    goes, and the share of it in percent.

    Args:
        found: as from `measure_gap`.
    """
    positives = _count_positives()
    sets = _list_sets(found)
    names = [f'{dataset}\n{positives[dataset]:.1f} labels a photo' for dataset in sets]
    figure, ((ax,),) = drawing.make_axes(1, 1, 6.6, 0.6 * len(sets) + 0.6)
    for place, dataset in enumerate([*sets, MEAN]):
        _draw_set(ax, place, found[found.dataset == dataset].set_index('step'))
    ax.axhline(len(sets) - 0.5, color='#999999', linewidth=0.8)
    ax.set_yticks(range(len(sets) + 1), [*names, MEAN])
    ax.invert_yaxis()
    ax.margins(y=0.01)
    ax.set_xlabel('points of mAP over plain AN; a bar ends where all labels are known')
    drawing.draw_legend(figure)
    return figure


def _draw_set(ax, place: int, steps: pd.DataFrame):
    gap = steps.gap.iloc[0].mean
    ax.barh(place, gap, height=0.86, color='#e6e6e6')
    ax.text(gap + 0.08, place - 0.28, f'{gap:.1f}', va='center')
    for lane, (step, (ink, marker)) in enumerate(STYLES.items()):
        gain, share = steps.gain[step], steps.share[step]
        y = place + 0.2 * (lane - 1.5)
        ax.errorbar(gain.mean, y, xerr=gain.half_width, color=ink, marker=marker, label=step)
        words = f'{share.closed:.0%}'.replace('%', ' %')
        ax.text(gain.high + 0.08, y, words, color='#333333', va='center', fontsize=6)


def write_gap(known: pd.DataFrame, measured: pd.DataFrame) -> list[Path]:
    """Write `gap.md` and `gap.svg` in the setting `outputs`, if a set of photos has all runs.

    Args:
        known: as from `tables.record`.
        measured: as from `gains.gains_of_suites`.

    Returns:
        The files that changed.
    """
    if not len(measured):
        return []
    candidates = list_candidates(measured, known)
    found = measure_gap(measured, choose_candidates(candidates))
    if not len(found):
        return []
    sets = _list_sets(found)
    one_for_all = measure_gap(measured, choose_candidates(candidates, for_all=True))
    photos = published.describe_photo_sets().loc[sets]
    page = render_template(
        'gap.md',
        protocol=site.describe_protocol(SUITE, sets),
        table=_tabulate(found),
        ranges=_summarize_by_labels(found),
        mean=found[found.dataset == MEAN].set_index('step').to_dict('index'),
        for_all={
            step: (_name_method(part.iloc[0]), part.iloc[-1])
            for step, part in one_for_all.groupby('step', sort=False)
        },
        step=Step,
        head_with_all=_head_with_all_labels(measured),
        pool=pool_effects,
        seeds=len(clean_photos.SEEDS),
        trained=[_name_method(pd.Series(row.__dict__)) for row in clean_photos.METHODS],
        more=(photos.val / 2 / photos.train).mean(),
        outside=known.side.fillna('').ne('').any() if 'side' in known else False,
        missing=[name for name in DATASETS if name not in sets],
    )
    folder = settings.path('outputs')
    picture = drawing.to_svg(lambda: draw_gap(found)).decode()
    return site.write_changed({folder / 'gap.md': page, folder / 'gap.svg': picture})


def _summarize_by_labels(found: pd.DataFrame) -> list[dict]:
    """{'labels' (a photo), steps: lowest and highest over sets with few labels, then with many."""
    of_sets = found[found.dataset != MEAN]
    labels = of_sets.dataset.map(_count_positives())
    table = of_sets.assign(labels=labels, closed=[share.closed for share in of_sets.share])
    parts = [table[labels < board.FEW_LABELS], table[labels >= board.FEW_LABELS]]
    return [
        {'labels': (part.labels.min(), part.labels.max())}
        | part.groupby('step').closed.agg(['min', 'max']).T.to_dict('list')
        for part in parts
        if len(part)
    ]


def _head_with_all_labels(measured: pd.DataFrame) -> list[Effect]:
    "What the cosine head adds where all labels are known, on each set with such runs."
    full = _board_rows(measured, 'full')
    by_head = full[full.loss == 'bce'].pivot(index='dataset', columns='head', values='scores')
    both = by_head.reindex(columns=['cosine', 'linear']).dropna()
    return [gains.estimate_gain(row.cosine, row.linear) for row in both.itertuples()]


def _name_method(row) -> str:
    name = board.describe_method(row.loss)['name']
    return name if row['head'] == 'linear' else f'{name}, {row["head"]}'


def _tabulate(found: pd.DataFrame) -> list[list[str]]:
    "A line a set of photos: its gap, and for each step what was chosen, its gain and its share."
    lines = [['photos', 'gap', *Step]]
    for dataset, steps in found.groupby('dataset', sort=False):
        cells = [
            f'{_name_method(row)}: {row.gain}, {row.share}'
            if row.loss
            else f'{row.gain}, {row.share}'
            for _, row in steps.iterrows()
        ]
        lines.append([dataset, str(steps.gap.iloc[0]), *cells])
    return lines
