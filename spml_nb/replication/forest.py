"""Claims with their effects, published and ours, drawn as a forest plot."""

import json
import textwrap
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..drawing import INK, to_svg
from ..statistics import COMPARED, MARGIN, Verdict, format_signed
from . import published

WORD_INK = dict(
    zip(Verdict, ('#1b6b3a', '#b3501c', INK[0], '#444444', '#6b6b6b', '#6b6b6b'), strict=True)
)


_ONE_SEED = '#b5b5b5'


def draw_forest(claims: pd.DataFrame) -> bytes:
    """Draw claims with their effects, published and ours.

    Args:
        claims: as from `claims.report_claims`, of one paper.

    Returns:
        An SVG, as from `to_svg`.
    """
    return to_svg(lambda: _forest(_forest_lines(claims)), bbox_inches='tight')


def _forest_lines(claims: pd.DataFrame) -> list[dict]:
    """What `report_claims` gives of each claim and of its places, with the text, its height in
    lines, and whether it is the claim.
    """
    lines = []
    for claim in claims.itertuples():
        together, *places = json.loads(claim.forest)
        text = textwrap.wrap(claim.claim, 62)
        words = {'text': '\n'.join(text), 'height': len(text) + 0.5, 'is_claim': True}
        lines.append(together | words)
        for place in places:
            between = f" ({place['between']})" if place['between'] else ''
            text = textwrap.shorten(place['place'] + between, 74)
            lines.append(place | {'text': text, 'height': 1, 'is_claim': False})
    return lines


def _forest(lines: list[dict]) -> Figure:
    bottoms = np.cumsum([line['height'] for line in lines])
    picture = Figure(figsize=(2.7, 0.16 * bottoms[-1] + 0.1))
    ax = picture.add_axes((0, 0, 1, 1))
    ax.set(
        xlim=_forest_limits(lines),
        ylim=(bottoms[-1], 0),
        yticks=[],
        xlabel='points in favour of the claim, beyond what it asks',
    )
    if any(line['mixed'] for line in lines):
        ax.set_xlabel(
            f'{ax.get_xlabel()}\n({published.UNCOUNTED}: the paper compares rows of several '
            'sources, so part of it may be the set-up)'
        )
    ax.axvspan(-MARGIN, MARGIN, color='#eeeeee')
    ax.axvline(0, color='#999999', linewidth=0.8)
    for line, bottom in zip(lines, bottoms, strict=True):
        _forest_line(ax, line, bottom - 0.5)
    _forest_legend(picture, ax)
    ax.spines['left'].set_visible(False)
    return picture


def _forest_limits(lines: list[dict]) -> tuple[float, float]:
    """Nine in ten ends of intervals and published effects lie on the axis."""
    numbers = [line[name] for line in lines for name in ('low', 'high', 'published')]
    ends = np.array([number for number in numbers if number is not None] + [-1, 1])
    far = 1.15 * np.quantile(abs(ends), 0.9)
    return max(ends.min() - 0.3, -far), min(ends.max() + 0.3, far)


def _forest_legend(picture: Figure, ax):
    reproduced = WORD_INK[Verdict.REPRODUCED]
    for mark, fill, edge, label in (
        ('D', reproduced, reproduced, 'ours, places together'),
        ('o', reproduced, reproduced, 'ours, one place'),
        ('o', _ONE_SEED, _ONE_SEED, 'one seed, decides nothing'),
        ('o', 'white', 'black', 'published'),
    ):
        ax.plot([], [], mark, markeredgecolor=edge, markerfacecolor=fill, label=label)
    below = (0.5, -0.5 / picture.get_figheight())
    picture.legend(loc='upper center', bbox_to_anchor=below, ncols=4)


@dataclass(frozen=True)
class _Look:
    """Of a line: where its text begins, its letters, how wide its interval is drawn, its mark."""

    left: float
    size: float
    weight: str
    width: float
    mark: str


_OF_CLAIM = _Look(left=-1.4, size=7, weight='bold', width=2, mark='D')

_OF_PLACE = _Look(left=-1.35, size=6.2, weight='normal', width=1, mark='o')


def _forest_line(ax, line: dict, y: float):
    """The words and marks of a line of a forest plot."""
    ink = WORD_INK.get(line['word'], WORD_INK[Verdict.NOT_RUN])  # of 'incomplete'
    look = _OF_CLAIM if line['is_claim'] else _OF_PLACE

    def write(x, y, text, **style):
        style |= {'transform': ax.get_yaxis_transform(), 'va': 'center', 'parse_math': False}
        ax.text(x, y, text, fontsize=look.size, **style)

    first = y - line['text'].count('\n') / 2  # marks stand in the last line of a text
    write(look.left, first, line['text'], weight=look.weight, linespacing=1.3)
    if line['published'] is not None:
        rings = {'markerfacecolor': 'white', 'markeredgecolor': 'black', 'zorder': 3}
        _mark(ax, line['published'], y, 'o', **rings)
        dagger = published.UNCOUNTED if line['mixed'] else ''
        write(1.37, y, f"paper {format_signed(line['published_told'])}{dagger}", color='#555555')
    sign = f"{line['word']} on average" if line['on_average'] else line['word']
    write(1.68, y, sign, color=ink, weight=look.weight)
    if line['size'] in COMPARED:
        write(2.18, y, line['size'], color=ink, weight=look.weight)
    if line['mean'] is None:
        return
    if line['low'] is None:
        half = ', 1 seed'
    else:
        half = f" ± {(line['high'] - line['low']) / 2:.1f}"
        ax.hlines(y, line['low'], line['high'], color=ink, linewidth=look.width)
    write(1.04, y, format_signed(line['mean_told']) + half, color=ink)
    colour = _ONE_SEED if line['seeds'] == 1 else ink
    _mark(ax, line['mean'], y, look.mark, color=colour, zorder=4)


def _mark(ax, x: float, y: float, mark: str, **style):
    """A mark, or an arrowhead at the edge where it lies beyond."""
    low, high = ax.get_xlim()
    if x < low:
        x, mark = low, '<'
    elif x > high:
        x, mark = high, '>'
    ax.plot(x, y, mark, clip_on=False, **style)
