"""Forest plots of claims: published effects and ours."""

import json
import textwrap
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..drawing import INK, to_svg
from ..statistics import COMPARED, EQUIVALENCE_MARGIN, Verdict, format_signed
from . import published

_WORD_INK = dict(
    zip(Verdict, ('#1b6b3a', '#b3501c', INK[0], '#444444', '#6b6b6b', '#6b6b6b'), strict=True)
)


_ONE_SEED_INK = '#b5b5b5'


def draw_forest(claims: pd.DataFrame) -> bytes:
    """Draw the effects of claims, published and ours, as an SVG.

    Args:
        claims: As from `claims.report_claims`, of one paper.
    """
    return to_svg(lambda: _forest(_forest_lines(claims)), bbox_inches='tight')


def _forest_lines(claims: pd.DataFrame) -> list[dict]:
    """The lines of `report_claims` for each claim and its places, with text (wrapped), height (in
    lines of text) and is_claim.
    """
    lines = []
    for claim in claims.itertuples():
        claim_line, *places = json.loads(claim.forest)
        text = textwrap.wrap(claim.claim, 62)
        lines.append(
            claim_line | {'text': '\n'.join(text), 'height': len(text) + 0.5, 'is_claim': True}
        )
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
    ax.axvspan(-EQUIVALENCE_MARGIN, EQUIVALENCE_MARGIN, color='#eeeeee')
    ax.axvline(0, color='#999999', linewidth=0.8)
    for line, bottom in zip(lines, bottoms, strict=True):
        _forest_line(ax, line, bottom - 0.5)
    _forest_legend(picture, ax)
    ax.spines['left'].set_visible(False)
    return picture


def _forest_limits(lines: list[dict]) -> tuple[float, float]:
    """Limits of the axis that hold 90 % of the interval ends and published effects."""
    numbers = [line[name] for line in lines for name in ('low', 'high', 'published')]
    ends = np.array([number for number in numbers if number is not None] + [-1, 1])
    reach = 1.15 * np.quantile(abs(ends), 0.9)
    return max(ends.min() - 0.3, -reach), min(ends.max() + 0.3, reach)


def _forest_legend(picture: Figure, ax):
    reproduced = _WORD_INK[Verdict.REPRODUCED]
    for mark, fill, edge, label in (
        ('D', reproduced, reproduced, 'ours, places together'),
        ('o', reproduced, reproduced, 'ours, one place'),
        ('o', _ONE_SEED_INK, _ONE_SEED_INK, 'one seed, decides nothing'),
        ('o', 'white', 'black', 'published'),
    ):
        ax.plot([], [], mark, markeredgecolor=edge, markerfacecolor=fill, label=label)
    below = (0.5, -0.5 / picture.get_figheight())
    picture.legend(loc='upper center', bbox_to_anchor=below, ncols=4)


@dataclass(frozen=True)
class _Look:
    """How a line is drawn: left edge and font of its text, width of its interval, and marker."""

    left: float
    fontsize: float
    weight: str
    linewidth: float
    marker: str


_CLAIM_LOOK = _Look(left=-1.4, fontsize=7, weight='bold', linewidth=2, marker='D')
_PLACE_LOOK = _Look(left=-1.35, fontsize=6.2, weight='normal', linewidth=1, marker='o')


def _forest_line(ax, line: dict, y: float):
    """Draw the texts and marks of a claim or a place."""
    ink = _WORD_INK.get(line['word'], _WORD_INK[Verdict.NOT_RUN])  # 'incomplete' is no verdict
    look = _CLAIM_LOOK if line['is_claim'] else _PLACE_LOOK

    def write(x, y, text, **style):
        style |= {'transform': ax.get_yaxis_transform(), 'va': 'center', 'parse_math': False}
        ax.text(x, y, text, fontsize=look.fontsize, **style)

    middle = y - line['text'].count('\n') / 2  # marks are level with the last line of the text
    write(look.left, middle, line['text'], weight=look.weight, linespacing=1.3)
    if line['published'] is not None:
        ring = {'markerfacecolor': 'white', 'markeredgecolor': 'black', 'zorder': 3}
        _mark(ax, line['published'], y, 'o', **ring)
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
        ax.hlines(y, line['low'], line['high'], color=ink, linewidth=look.linewidth)
    write(1.04, y, format_signed(line['mean_told']) + half, color=ink)
    colour = _ONE_SEED_INK if line['seeds'] == 1 else ink
    _mark(ax, line['mean'], y, look.marker, color=colour, zorder=4)


def _mark(ax, x: float, y: float, marker: str, **style):
    """Draw a marker, an arrowhead at the edge for a value beyond the axis."""
    low, high = ax.get_xlim()
    if x < low:
        x, marker = low, '<'
    elif x > high:
        x, marker = high, '>'
    ax.plot(x, y, marker, clip_on=False, **style)
