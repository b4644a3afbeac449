"""The gap between one label a photo and all labels, and the share of it that a method, a head or a
few fully labelled photos close."""

# The gap is between plain AN and binary cross-entropy with all labels, both on the linear head, so
# that it is due to the labels alone. The page says how far a better head would move the upper end.
#
# Boards are sorted by test scores, so taking the best row of a board would overfit the test photos.
# What closes a gap is chosen on each set by the mean validation mAP of the final runs, as somebody
# with these validation photos could. Settings and epochs were chosen there too, for every row; test
# photos are used once. As everywhere here, intervals do not include the choice.

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
from ..base.files import write_changed
from ..statistics import (
    Effect,
    Scores,
    default_image_error,
    estimate_effect,
    format_number,
    image_error,
    pool_effects,
)
from . import board, gains, published
from .experiments import clean_photos
from .experiments.clean_photos import DATASETS, SUITE, Use
from .templates import describe_protocol, render_template


class Step(StrEnum):
    """A step from plain AN with one label a photo."""

    METHOD = 'a method, linear head'
    HEAD = 'another head, under AN'
    BOTH = 'a method, any head'
    PHOTOS = 'a method, half of validation trained on'
    ALONE = 'that half alone, no single labels'


MEAN = 'mean'  # over the photo sets, in place of the name of one
_CANDIDATES = ['dataset', 'step', 'loss', 'head', 'validation', 'scores']


def list_candidates(measured: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The candidates for each step: rows of the board whose mechanism acted and that need nothing
    but labels, methods trained on half of validation too, and binary cross-entropy on that half.

    Args:
        measured: As from `gains.gains_of_suites`.
        runs: The table of record.

    Returns:
        DataFrame, one row per photo set, step and method: dataset, step, loss, head, validation
        (mean over the final runs, percent) and scores.
    """
    single = _board_rows(measured, 'single')
    single = single[single.acted.eq(True)]
    needs_more = single.loss.map(lambda loss: bool(board.describe_method(loss)['needs']))
    single = single[~needs_more.astype(bool)]
    linear = single['head'] == 'linear'
    planned = clean_photos.plan_runs(runs)
    of_steps = {
        Step.METHOD: single[linear],
        Step.HEAD: single[(single.loss == 'an') & ~linear],
        Step.BOTH: single,
        Step.PHOTOS: _list_trained_on_validation(planned, Use.BESIDE),
        Step.ALONE: _list_trained_on_validation(planned, Use.ALONE),
    }
    candidates = [rows.assign(step=step) for step, rows in of_steps.items()]
    return pd.concat(candidates, ignore_index=True).reindex(columns=_CANDIDATES)


def _board_rows(measured: pd.DataFrame, labels: str) -> pd.DataFrame:
    over_plain = gains.select_clean_choice(measured, gains.PLAIN_HEAD)
    return over_plain[(over_plain.labels == labels) & (over_plain.n > 1)]


def _list_trained_on_validation(planned: pd.DataFrame, use: Use) -> pd.DataFrame:
    "planned: as from `clean_photos.plan_runs`."
    planned = planned[planned.use == use]
    fields = [*clean_photos.Place._fields]
    validation = planned.groupby(fields).validation.mean()
    rows = [
        {**setting._asdict(), 'validation': validation[setting], 'scores': scores}
        for setting, scores in gains.collect_scores(planned, clean_photos.Place).items()
    ]
    return pd.DataFrame(rows, columns=[*fields, 'validation', 'scores'])


class Share(NamedTuple):
    """The closed share of a gap, with its 95 % interval."""

    closed: float
    low: float
    high: float

    def __str__(self) -> str:
        "'44 % (30 to 60)'"
        closed, low, high = (format_number(100 * share, '.0f') for share in self)
        return f'{closed} % ({low} to {high})'.replace('-', '−').replace('inf', '∞')


class Reached(NamedTuple):
    """Scores on a photo set: of a step, and of both ends of the gap."""

    own: Scores
    an: Scores
    full: Scores


def estimate_share(reached: list[Reached]) -> Share:
    """The closed share of the mean gap over photo sets.

    Args:
        reached: One for each photo set.

    Returns:
        Share; an end is infinite if the gap is too small compared with its error.

    Source:
        Fieller (1954): the interval contains the shares of the gap that the gain does not differ
        from significantly.
    """
    by_seed = [
        pd.concat([scores.by_seed for scores in of_set], axis=1).dropna() for of_set in reached
    ]

    def subtract(share: float) -> Effect:
        "The gain over AN minus a share of the gap."
        weights = np.array([1, share - 1, -share])
        effects = []
        for of_set, seeds in zip(reached, by_seed, strict=True):
            names = [scores.resampled for scores in of_set]
            images = image_error(names, weights, default_image_error(of_set.own.dataset))
            effects.append(estimate_effect(seeds.to_numpy() @ weights, None, images))
        return pool_effects(effects)

    gain, remaining = subtract(0).mean, subtract(1).mean
    closed = gain / (gain - remaining)
    return Share(
        closed,
        _find_end(lambda share: subtract(share).low, closed, -1),
        _find_end(lambda share: subtract(share).high, closed, 1),
    )


_WIDEST = 64  # gaps on either side, beyond which an end is infinite


def _find_end(bound: Callable[[float], float], closed: float, direction: int) -> float:
    "The share at which a bound, which falls with the share, is 0."
    step = 0.25
    while step <= _WIDEST:
        end = closed + direction * step
        if bound(end) * direction < 0:
            return brentq(bound, closed, end, xtol=1e-4)
        step *= 2
    return direction * math.inf


def choose_candidates(candidates: pd.DataFrame, for_all: bool = False) -> pd.DataFrame:
    """The candidate with the best validation mAP for each step and photo set.

    Args:
        candidates: As from `list_candidates`.
        for_all: Choose one method for all sets by its mean validation mAP, among those with runs on
            the most sets.

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
    """The gain of each step and its share of the gap.

    Args:
        measured: As from `gains.gains_of_suites`.
        chosen: As from `choose_candidates`.

    Returns:
        DataFrame, one row per step and photo set with runs of both ends of the gap and all steps,
        the set with the fewest labels a photo first, then one per step for their `MEAN`: dataset,
        step, loss and head (as chosen, '' for the mean), gain and gap (`Effect`s over plain AN in
        points of mAP), share (`Share`).
    """
    an = _board_rows(measured, 'single').set_index(['loss', 'head', 'dataset']).scores
    full = _board_rows(measured, 'full').set_index(['loss', 'head', 'dataset']).scores
    rows = []
    for dataset in sorted(DATASETS, key=_count_positives().get):
        ends = [an.get(('an', 'linear', dataset)), full.get(('bce', 'linear', dataset))]
        if None in ends or any((dataset, step) not in chosen.index for step in Step):
            continue
        for step in Step:
            row = chosen.loc[dataset, step]
            rows.append([dataset, step, row.loss, row['head'], Reached(row.scores, *ends)])
    of_sets = pd.DataFrame(rows, columns=['dataset', 'step', 'loss', 'head', 'reached'])
    rows = [[*row, *_summarize([row.reached])] for row in of_sets.itertuples(index=False)]
    rows += [
        [MEAN, step, '', '', None, *_summarize(list(of_step.reached))]
        for step, of_step in of_sets.groupby('step', sort=False)
    ]
    columns = [*of_sets, 'gain', 'gap', 'share']
    return pd.DataFrame(rows, columns=columns).drop(columns='reached')


def _count_positives() -> dict[str, float]:
    return published.describe_photo_sets().positives.to_dict()


def _list_sets(shares: pd.DataFrame) -> list[str]:
    return [dataset for dataset in dict.fromkeys(shares.dataset) if dataset != MEAN]


def _summarize(reached: list[Reached]) -> tuple[Effect, Effect, Share]:
    gain = pool_effects([gains.estimate_gain(of_set.own, of_set.an) for of_set in reached])
    gap = pool_effects([gains.estimate_gain(of_set.full, of_set.an) for of_set in reached])
    return gain, gap, estimate_share(reached)


_DRAWN = [step for step in Step if step != Step.ALONE]
_STYLES = dict(zip(_DRAWN, zip(drawing.INK, 'osD^', strict=False), strict=True))


def draw_gap(shares: pd.DataFrame) -> Figure:
    """Draw the gap of each photo set as a bar from plain AN to all labels, with the gain of each
    step but `Step.ALONE` and its share in percent.

    Args:
        shares: As from `measure_gap`.
    """
    positives = _count_positives()
    sets = _list_sets(shares)
    names = [f'{dataset}\n{positives[dataset]:.1f} labels a photo' for dataset in sets]
    figure, ((ax,),) = drawing.make_axes(1, 1, 6.6, 0.6 * len(sets) + 0.6)
    for row, dataset in enumerate([*sets, MEAN]):
        _draw_set(ax, row, shares[shares.dataset == dataset].set_index('step'))
    ax.axhline(len(sets) - 0.5, color='#999999', linewidth=0.8)
    ax.set_yticks(range(len(sets) + 1), [*names, MEAN])
    ax.invert_yaxis()
    ax.margins(y=0.01)
    ax.set_xlabel('points of mAP over plain AN; a bar ends where all labels are known')
    drawing.draw_legend(figure)
    return figure


def _draw_set(ax, row: int, steps: pd.DataFrame):
    gap = steps.gap.iloc[0].mean
    ax.barh(row, gap, height=0.86, color='#e6e6e6')
    ax.text(gap + 0.08, row - 0.28, f'{gap:.1f}', va='center')
    for lane, (step, (ink, marker)) in enumerate(_STYLES.items()):
        gain, share = steps.gain[step], steps.share[step]
        y = row + 0.2 * (lane - 1.5)
        ax.errorbar(gain.mean, y, xerr=gain.half_width, color=ink, marker=marker, label=step)
        words = f'{share.closed:.0%}'.replace('%', ' %')
        ax.text(gain.high + 0.08, y, words, color='#333333', va='center', fontsize=6)


def write_gap(runs: pd.DataFrame, measured: pd.DataFrame) -> list[Path]:
    """Write `gap.md` and `gap.svg` in the setting `outputs`, if a photo set has all runs.

    Args:
        runs: The table of record.
        measured: As from `gains.gains_of_suites`.

    Returns:
        The files that changed.
    """
    if not len(measured):
        return []
    candidates = list_candidates(measured, runs)
    chosen = choose_candidates(candidates)
    shares = measure_gap(measured, chosen)
    if not len(shares):
        return []
    sets = _list_sets(shares)
    one_for_all = measure_gap(measured, choose_candidates(candidates, for_all=True))
    photos = published.describe_photo_sets().loc[sets]
    page = render_template(
        'gap.md',
        protocol=describe_protocol(SUITE, sets),
        table=_tabulate(shares),
        ranges=_summarize_by_labels(shares),
        mean=shares[shares.dataset == MEAN].set_index('step').to_dict('index'),
        for_all={
            step: (_name_method(part.loss.iloc[0], part['head'].iloc[0]), part.iloc[-1])
            for step, part in one_for_all.groupby('step', sort=False)
        },
        step=Step,
        head_with_all=_head_with_all_labels(measured),
        pool=pool_effects,
        seeds=len(clean_photos.SEEDS),
        nothing_beyond=_find_nothing_beyond(chosen, sets),
        trained=[_name_method(row.loss, row.head) for row in clean_photos.METHODS],
        more=(photos.val / 2 / photos.train).mean(),
        outside=runs.side.fillna('').ne('').any() if 'side' in runs else False,
        missing=[name for name in DATASETS if name not in sets],
    )
    folder = settings.get_folder('outputs')
    picture = drawing.to_svg(lambda: draw_gap(shares)).decode()
    return write_changed({folder / 'gap.md': page, folder / 'gap.svg': picture})


def _find_nothing_beyond(chosen: pd.DataFrame, sets: list[str]) -> dict[str, Effect]:
    """{set: what a method gains beyond the fully labelled half alone}, where the interval does not
    exclude 0.

    Args:
        chosen: As from `choose_candidates`.
    """
    found = {}
    for dataset in sets:
        own, alone = (chosen.scores[dataset, step] for step in (Step.PHOTOS, Step.ALONE))
        effect = gains.estimate_gain(own, alone)
        if effect.low <= 0 <= effect.high:
            found[dataset] = effect
    return found


def _summarize_by_labels(shares: pd.DataFrame) -> list[dict]:
    """{'labels' (per photo), step: [lowest, highest share]} for sets with few labels, then many."""
    of_sets = shares[shares.dataset != MEAN]
    labels = of_sets.dataset.map(_count_positives())
    table = of_sets.assign(labels=labels, closed=[share.closed for share in of_sets.share])
    few, many = table[labels < board.FEW_LABELS], table[labels >= board.FEW_LABELS]
    return [
        {'labels': (rows.labels.min(), rows.labels.max())}
        | rows.groupby('step').closed.agg(['min', 'max']).T.to_dict('list')
        for rows in (few, many)
        if len(rows)
    ]


def _head_with_all_labels(measured: pd.DataFrame) -> list[Effect]:
    "The gain from the cosine head with all labels, on each photo set with such runs."
    full = _board_rows(measured, 'full')
    by_head = full[full.loss == 'bce'].pivot(index='dataset', columns='head', values='scores')
    by_head = by_head.reindex(columns=['cosine', 'linear']).dropna()
    return [gains.estimate_gain(row.cosine, row.linear) for row in by_head.itertuples()]


def _name_method(loss: str, head: str) -> str:
    name = board.describe_method(loss)['name']
    return name if head == 'linear' else f'{name}, {head}'


def _tabulate(shares: pd.DataFrame) -> list[list[str]]:
    "A row per photo set: its gap and, for each step, the chosen method, its gain and its share."
    lines = [['photos', 'gap', *Step]]
    for dataset, steps in shares.groupby('dataset', sort=False):
        cells = []
        for _, row in steps.iterrows():
            method = f'{_name_method(row.loss, row["head"])}: ' if row.loss else ''
            cells.append(f'{method}{row.gain}, {row.share}')
        lines.append([dataset, str(steps.gap.iloc[0]), *cells])
    return lines
