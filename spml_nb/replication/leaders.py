"""Which methods lead: the levels of all methods, and what cannot be told apart from the first."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from .. import statistics
from ..methods.core import find
from ..statistics import Effect, Scores
from . import board
from . import gains as all_gains
from .published import SUITE


def method_levels(measured: pd.DataFrame) -> dict[tuple[str, str], dict[str, Scores]]:
    """Test mAP of every method that learns from single positives, in the picture or not, on each
    head it was given.

    Args:
        measured: as from `gains.gains_of_suites`.

    Returns: {(method, head): {set of photos: its scores}}, of the sets where its own mechanism
        acted in most runs.
    """
    return _by_method(measured, 'scores')


def method_micro_f1(measured: pd.DataFrame) -> dict[tuple[str, str], dict[str, float]]:
    """As `method_levels`, of micro-F1 in percent, with the threshold that clean validation labels
    choose.
    """
    return _by_method(measured, 'micro_f1')


def _by_method(measured: pd.DataFrame, column: str) -> dict[tuple[str, str], dict]:
    chosen = measured[
        (measured.suite == SUITE)
        & (measured.choice == 'clean')
        & (measured.labels == 'single')
        & (measured.baseline == all_gains.PLAIN_HEAD)
        & measured.acted.eq(True)
        & (measured.n > 1)
    ]
    rows = zip(chosen.loss, chosen['head'], chosen.dataset, chosen[column], strict=True)
    by_method = {}
    for loss, head, dataset, value in rows:
        by_method.setdefault((loss, head), {})[dataset] = value
    return by_method


@dataclass(frozen=True)
class Leader:
    """The method that gains most over plain AN on average.

    Attributes:
        name: of the method.
        head: that it was given.
        gain: over AN with a linear head, the mean over all sets of photos.
        second: the next one with runs on all sets, '' without any, with a remark where it names
            labels far worse.
        lead: over that one; None without any.
        rivals: methods with runs on fewer sets, at least half of them, that are not told apart from
            it there, with such a remark.
    """

    name: str
    head: str
    gain: Effect
    second: str
    lead: Effect | None
    rivals: tuple[str, ...]


@dataclass(frozen=True)
class Leaders:
    """What the levels of all methods say.

    Attributes:
        sets: how many sets of photos.
        top: the method with the highest mean.
        due_to_head: what AN gains by the head of that method; None where that is a linear one.
        linear: the one with the highest mean on a linear head.
        above, below, open: names of the methods that are above AN on the same head, below it, and
            not told apart from it, each on its own head.
    """

    sets: int
    top: Leader
    due_to_head: Effect | None
    linear: Leader | None
    above: tuple[str, ...]
    below: tuple[str, ...]
    open: tuple[str, ...]


_PLAIN = ('an', 'linear')


FAR_BELOW = 5.0  # points of micro-F1: what ranks as well, and yet names worse


def find_leaders(levels: dict, micro_f1: dict | None = None) -> Leaders | None:
    """Which method gains most, and what its head has to do with it.

    Args:
        levels: as from `method_levels`.
        micro_f1: as from `method_micro_f1`.

    Returns: None without a method that has runs on every set of plain AN.
    """
    sets = set(levels.get(_PLAIN, ()))
    everywhere = [row for row in levels if sets <= set(levels[row]) and row[0] != 'an']
    if not (sets and everywhere):
        return None
    everywhere.sort(key=lambda row: -_lead(levels, row, _PLAIN).mean)
    top = _leader(everywhere, levels, micro_f1 or {})
    linear = [row for row in everywhere if row[1] == 'linear']
    of_head = ('an', top.head)
    decided = {'above': [], 'below': [], 'open': []}
    for loss, head in everywhere:
        if head == find(loss).head and ('an', head) in levels:
            effect = _lead(levels, (loss, head), ('an', head))
            word = 'above' if effect.low > 0 else 'below' if effect.high < 0 else 'open'
            decided[word].append(_name(loss, head))
    return Leaders(
        sets=len(sets),
        top=top,
        due_to_head=_lead(levels, of_head, _PLAIN)
        if of_head in levels and of_head != _PLAIN
        else None,
        linear=_leader(linear, levels, micro_f1 or {}) if linear else None,
        **{word: tuple(names) for word, names in decided.items()},
    )


def _leader(order: list, levels: dict, micro_f1: dict) -> Leader:
    first, *others = order
    second = next((row for row in others if row[0] != first[0]), None)
    fewer = [
        row
        for row in levels
        if row[0] not in ('an', first[0])
        and row not in order
        and row[1] in {head for _, head in order}
        and len(levels[first]) / 2 <= len(levels[row]) < len(levels[first])
    ]
    return Leader(
        name=_name(*first),
        head=first[1],
        gain=_lead(levels, first, _PLAIN),
        second=_name(*second) + _remark_on_names(second, first, micro_f1) if second else '',
        lead=_lead(levels, first, second) if second else None,
        rivals=tuple(
            _name(*row) + _remark_on_names(row, first, micro_f1)
            for row in fewer
            if _lead(levels, first, row).low <= 0
        ),
    )


def _remark_on_names(row: tuple, first: tuple, micro_f1: dict) -> str:
    """The end of a rival's name, where its micro-F1 is far below, in the mean over common sets."""
    own, theirs = micro_f1.get(row, {}), micro_f1.get(first, {})
    below = [theirs[dataset] - own[dataset] for dataset in own if dataset in theirs]
    if not below or not np.mean(below) >= FAR_BELOW:
        return ''
    return f' – {np.mean(below):.1f} points of micro-F1 below it'


def _lead(levels: dict, one: tuple, other: tuple) -> Effect:
    """What one gains over another, the mean over the sets that both have."""
    return statistics.pool_effects(
        [
            all_gains.estimate_gain(scores, levels[other][dataset])
            for dataset, scores in levels[one].items()
            if dataset in levels[other]
        ]
    )


def _name(loss: str, head: str) -> str:
    name = board.describe_method(loss)['name']
    return name if head == find(loss).head else f'{name} on the {head} head'
