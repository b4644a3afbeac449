"""The methods with the highest mean gains, and those that cannot be distinguished from them."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from .. import statistics
from ..methods.core import find
from ..statistics import Effect, Scores
from . import board_summary
from . import gains as all_gains
from .published import PHOTOS_SUITE


def method_levels(measured: pd.DataFrame) -> dict[tuple[str, str], dict[str, Scores]]:
    """Test mAP of every method that learns from single positives.

    Args:
        measured: As from `gains.gains_of_suites`.

    Returns:
        {(method, head): {photo set: scores}}, of the sets where its own mechanism acted.
    """
    return _by_method(measured, 'scores')


def method_micro_f1(measured: pd.DataFrame) -> dict[tuple[str, str], dict[str, float]]:
    """As `method_levels`, of micro-F1 in percent, at the threshold that is best on clean validation
    labels.
    """
    return _by_method(measured, 'micro_f1')


def _by_method(measured: pd.DataFrame, column: str) -> dict[tuple[str, str], dict]:
    single = measured[
        (measured.suite == PHOTOS_SUITE)
        & (measured.choice == 'clean')
        & (measured.labels == 'single')
        & (measured.baseline == all_gains.PLAIN_HEAD)
        & measured.acted.eq(True)
        & (measured.n > 1)
    ]
    return {
        method: dict(zip(of_method.dataset, of_method[column], strict=True))
        for method, of_method in single.groupby(['loss', 'head'], sort=False)
    }


@dataclass(frozen=True)
class Leader:
    """The method with the highest mean gain over plain AN.

    Attributes:
        gain: Over AN with a linear head, the mean over all photo sets.
        second: The next method with runs on all sets, '' without one, with a remark if its micro-F1
            is far lower.
        lead: Over the second, None without one.
        rivals: Methods with runs on fewer sets, at least half of them, whose difference is not
            significant there, with the same remark.
    """

    name: str
    head: str
    gain: Effect
    second: str
    lead: Effect | None
    rivals: tuple[str, ...]


@dataclass(frozen=True)
class Leaders:
    """The leading methods, and all methods compared with AN.

    Attributes:
        sets: Number of photo sets.
        top: The method with the highest mean.
        due_to_head: Gain of AN by the head of that method; None for a linear head.
        linear: The method with the highest mean on a linear head.
        above, below, open: Names of the methods that are significantly above AN on the same head,
            below it, or neither, each on its own head.
    """

    sets: int
    top: Leader
    due_to_head: Effect | None
    linear: Leader | None
    above: tuple[str, ...]
    below: tuple[str, ...]
    open: tuple[str, ...]


_PLAIN = ('an', 'linear')


FAR_BELOW = 5.0  # points of micro-F1 by which a method predicts labels far worse


def find_leaders(levels: dict, micro_f1: dict | None = None) -> Leaders | None:
    """The methods with the highest mean gain, and what is due to the head.

    Args:
        levels: As from `method_levels`.
        micro_f1: As from `method_micro_f1`.

    Returns:
        None if no method has runs on every set of plain AN.
    """
    micro_f1 = micro_f1 or {}
    sets = set(levels.get(_PLAIN, ()))
    everywhere = [row for row in levels if sets <= set(levels[row]) and row[0] != 'an']
    if not (sets and everywhere):
        return None
    everywhere.sort(key=lambda row: -_lead(levels, row, _PLAIN).mean)
    top = _leader(everywhere, levels, micro_f1)
    linear = [row for row in everywhere if row[1] == 'linear']
    an_on_head = ('an', top.head)
    due_to_head = None
    if an_on_head in levels and an_on_head != _PLAIN:
        due_to_head = _lead(levels, an_on_head, _PLAIN)
    compared = {'above': [], 'below': [], 'open': []}
    for loss, head in everywhere:
        if head == find(loss).head and ('an', head) in levels:
            effect = _lead(levels, (loss, head), ('an', head))
            word = 'above' if effect.low > 0 else 'below' if effect.high < 0 else 'open'
            compared[word].append(_name(loss, head))
    return Leaders(
        sets=len(sets),
        top=top,
        due_to_head=due_to_head,
        linear=_leader(linear, levels, micro_f1) if linear else None,
        **{word: tuple(names) for word, names in compared.items()},
    )


def _leader(ranked: list, levels: dict, micro_f1: dict) -> Leader:
    "The first of ranked (method, head) pairs, compared with the others."
    first, *others = ranked
    second = next((row for row in others if row[0] != first[0]), None)
    heads = {head for _, head in ranked}
    sets = len(levels[first])
    on_fewer_sets = [
        row
        for row in levels
        if row[0] not in ('an', first[0])
        and row not in ranked
        and row[1] in heads
        and sets / 2 <= len(levels[row]) < sets
    ]

    def name_with_remark(row):
        return _name(*row) + _remark_on_f1(row, first, micro_f1)

    return Leader(
        name=_name(*first),
        head=first[1],
        gain=_lead(levels, first, _PLAIN),
        second=name_with_remark(second) if second else '',
        lead=_lead(levels, first, second) if second else None,
        rivals=tuple(
            name_with_remark(row) for row in on_fewer_sets if _lead(levels, first, row).low <= 0
        ),
    )


def _remark_on_f1(row: tuple, first: tuple, micro_f1: dict) -> str:
    """' (micro-F1 6.1 points lower)' if that is far, on the mean of common sets; else ''."""
    own, leader = micro_f1.get(row, {}), micro_f1.get(first, {})
    below = [leader[dataset] - own[dataset] for dataset in own if dataset in leader]
    if not below or not np.mean(below) >= FAR_BELOW:
        return ''
    return f' (micro-F1 {np.mean(below):.1f} points lower)'


def _lead(levels: dict, one: tuple, other: tuple) -> Effect:
    """The mean gain of one method over another, on the sets that both have."""
    return statistics.pool_effects(
        [
            all_gains.estimate_gain(scores, levels[other][dataset])
            for dataset, scores in levels[one].items()
            if dataset in levels[other]
        ]
    )


def _name(loss: str, head: str) -> str:
    name = board_summary.describe_method(loss)['name']
    return name if head == find(loss).head else f'{name} on the {head} head'
