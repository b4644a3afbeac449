"""How figures are drawn: from arrays with the paper's axes, and claims as a forest of effects."""

import json
import textwrap
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator
from PIL import Image

from ..base.errors import SpmlError
from ..base.files import write_arrays
from ..drawing import INK, draw_curve, draw_legend, make_axes, reduce_colours, to_svg
from ..statistics import COMPARED, EQUIVALENCE_MARGIN, Verdict, format_signed
from . import published, run_measurements


class FigureArrays(NamedTuple):
    """The arrays of a figure.

    Attributes:
        about: paper, figure, suite, version, data ([[the paper's data set, ours], …]), parts ({name
            of a collected run: {dataset, series, values, seed, key}}) and missing (names of runs).
        arrays: {name of a run: {name: array}}.
    """

    about: dict
    arrays: dict

    def of_seeds(self, dataset: str, series: str, values: tuple = ()) -> list[dict]:
        """The arrays of each collected seed at a point of a series."""
        point = (dataset, series, list(values))
        return [
            self.arrays[name]
            for name, run in self.about['parts'].items()
            if (run['dataset'], run['series'], run['values']) == point
        ]

    def summary(self, dataset: str, series: str, array: str, values: tuple = ()) -> np.ndarray:
        """Mean, minimum and maximum over seeds: (3, n, …), cut to the shortest array; (3, 1) of a
        number, NaN without seeds.
        """
        arrays = [np.atleast_1d(seed[array]) for seed in self.of_seeds(dataset, series, values)]
        if not arrays:
            return np.full((3, 1), np.nan)
        shortest = min(map(len, arrays))
        return mean_and_range(np.stack([values[:shortest] for values in arrays]))

    def summary_along(
        self, dataset: str, series: str, points: list[tuple], array: str
    ) -> np.ndarray:
        """(3, n): the `summary` of a number at each of n points."""
        return np.hstack([self.summary(dataset, series, array, point) for point in points])


def mean_and_range(over_seeds: np.ndarray) -> np.ndarray:
    """Mean, minimum and maximum over the first axis: (seeds, …) → (3, …)."""
    return np.stack([over_seeds.mean(0), over_seeds.min(0), over_seeds.max(0)])


def write_figure_arrays(file: Path, collected: FigureArrays):
    """Write a figure's arrays to an .npz file, the same bytes for the same arrays.

    Raises:
        SpmlError: If the file cannot be written.
    """
    about = json.dumps(collected.about, ensure_ascii=False, sort_keys=True)
    flat = {
        f'{run}/{name}': value
        for run, arrays in collected.arrays.items()
        for name, value in arrays.items()
    }
    write_arrays(file, {'about': np.frombuffer(about.encode(), np.uint8), **flat})


def read_figure_arrays(file: Path) -> FigureArrays:
    """Read a figure's arrays.

    Args:
        file: From `write_figure_arrays`.

    Raises:
        SpmlError: If it cannot be read as such a file.
    """
    try:
        flat = dict(np.load(file))
        about = json.loads(flat.pop('about').tobytes())
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise SpmlError(
            f'{file} cannot be read as the arrays of a figure: {error}. '
            'Delete it; the sweep of the figure writes it again.'
        ) from error
    arrays = {run: {} for run in about['parts']}
    for path, value in flat.items():
        run, _, name = path.rpartition('/')
        arrays[run][name] = value
    return FigureArrays(about, arrays)


@dataclass(frozen=True)
class Curve:
    """Runs of a figure that share a search.

    Attributes:
        dataset: The paper's data set.
        series: Name of the curve, column or row.
        start: Fields laid over the paper's own configuration, before the search.
        points: {coordinates on the axes: fields laid over the chosen configuration}; `hparams` is
            merged with the chosen ones. Default: one run, as chosen.
    """

    dataset: str
    series: str
    start: dict
    points: dict[tuple, dict] = field(default_factory=lambda: {(): {}})


@dataclass(frozen=True)
class PaperFigure:
    """How a figure of a paper is made; its caption and notes are in `assets/figures.yml`.

    Attributes:
        curves: Its runs, empty for the plot of a formula.
        measure: Function from a finished run to its arrays; None: test and validation mAP.
        observed: Whether `measure` reads notes that are taken during training, see
            `run_measurements.note_training`.
        seeds: Of observed labels and training; ten where runs take seconds and differences are
            small.
    """

    draw: Callable[[FigureArrays], Figure]
    curves: list[Curve] = field(default_factory=list)
    measure: Callable | None = None
    observed: bool = False
    seeds: tuple[int, ...] = (0, 1, 2)


def draw_figure(figure: PaperFigure, collected: FigureArrays) -> bytes:
    """Draw a figure as SVG, the same bytes for the same arguments."""
    svg = to_svg(lambda: titled_figure(figure, collected))
    has_photos = any('images' in arrays for arrays in collected.arrays.values())
    return reduce_colours(svg) if has_photos else svg


def titled_figure(figure: PaperFigure, collected: FigureArrays) -> Figure:
    """Draw a figure with its title, for `to_svg` or `to_png`."""
    picture = figure.draw(collected)
    _mark_empty_panels(picture)
    picture.suptitle('\n'.join(_title(collected.about, int(15 * picture.get_figwidth()))))
    return picture


def _mark_empty_panels(picture: Figure):
    for ax in picture.axes:
        if not ax.has_data():
            centre = {'ha': 'center', 'va': 'center', 'transform': ax.transAxes}
            ax.text(0.5, 0.5, 'missing', color='#999999', **centre)
            ax.set(xticks=[], yticks=[])


def _title(about: dict, width: int) -> list[str]:
    """The lines of a title: the figure, the data sets, and caveats about its runs."""
    runs = about['parts'].values()
    first = f"{published.read_paper(about['paper'])['short']} Fig. {about['figure']}"
    if about['data']:
        first += f", on {', '.join(dict.fromkeys(ours for _, ours in about['data']))}"
    if len({run['seed'] for run in runs}) == 1:
        first += ', one seed'
    lines = [first]
    if about['missing']:
        lines.append(f"only {len(runs)} of {len(runs) + len(about['missing'])} parts are done")
    acted = [run['exercised'] for run in runs if run.get('exercised') is not None]
    if not all(acted):
        lines.append(
            f"not exercised in {acted.count(0)} of {len(acted)} run{'s' if len(acted) > 1 else ''}"
            ": the epoch was chosen before the method's own mechanism began"
        )
    return [short for line in lines for short in textwrap.wrap(line, width)]


def make_panels(
    collected: FigureArrays, width: float, height: float = 2.2
) -> tuple[Figure, list[tuple]]:
    """Make a picture with a panel for each data set, as `make_axes` does.

    Returns:
        (picture, [(axes, the paper's data set, ours), …]).
    """
    data = collected.about['data']
    picture, axes = make_axes(1, len(data), width, height)
    return picture, [(ax, *names) for ax, names in zip(axes[0], data, strict=True)]


@dataclass(frozen=True)
class Axis:
    """A value that a figure varies, and its points."""

    label: str
    values: tuple[float, ...]


def draw_scores(collected: FigureArrays, groups: dict[Axis, tuple[str, ...]]) -> Figure:
    """Draw test mAP over a varied value, one panel for each data set and axis.

    Args:
        groups: {axis: names of the curves over it}.
    """
    names = dict.fromkeys(name for series in groups.values() for name in series)
    inks = dict(zip(names, INK, strict=False))
    panels = [(*datasets, axis) for datasets in collected.about['data'] for axis in groups]
    picture, axes = make_axes(1, len(panels), 2.8)
    for ax, (dataset, ours, axis) in zip(axes[0], panels, strict=True):
        ax.set(xlabel=axis.label, ylabel='mAP (%)', title=ours)
        points = [(value,) for value in axis.values]
        curves = {
            name: collected.summary_along(dataset, name, points, 'test_map')
            for name in groups[axis]
        }
        if not any(np.isfinite(summary).any() for summary in curves.values()):
            continue
        for name, summary in curves.items():
            draw_curve(ax, axis.values, summary, inks[name], marker='o', label=name)
        if _is_geometric(axis.values):
            ax.set_xscale('log')
        ax.set_xticks(axis.values, map(_tick, axis.values))
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    if len(inks) > 1:
        draw_legend(picture)
    return picture


def _is_geometric(values: tuple[float, ...]) -> bool:
    """Whether neighbouring values all have the same ratio."""
    return min(values) > 0 and np.ptp(np.diff(np.log(values))) < 1e-6


def _tick(value: float) -> str:
    """0.3, 4096, 10⁻³"""
    power = round(np.log10(value)) if value > 0 else 0
    if power > -3 or not np.isclose(value, 10.0**power):
        return f'{value:g}'
    return '10' + str(power).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))


def draw_grid(
    collected: FigureArrays, series: str, down: Axis, across: Axis, special: str, at: tuple
) -> Figure:
    """Draw the mean test mAP over two varied values, with a frame around the best on validation.

    A step of colour is the smallest significant difference of two means, so that cells of the same
    colour cannot be told apart.

    Args:
        collected: With the arrays test_map and val_map.
        down, across: The vertical and the horizontal axis.
        special: Name of another point to frame.
        at: Its values, down and across.
    """
    picture, panels = make_panels(collected, 3.0, 3.0)
    for ax, dataset, ours in panels:
        ax.set(xlabel=across.label, ylabel=down.label, title=f'{ours}, mAP (%)')
        runs = {
            (*run['values'], run['seed']): collected.arrays[name]
            for name, run in collected.about['parts'].items()
            if (run['dataset'], run['series']) == (dataset, series)
        }
        if not runs:
            continue
        by_seed = pd.DataFrame(runs, dtype=float).T  # index: values down and across, seed
        means = by_seed.groupby(level=[0, 1]).mean().unstack()
        test, validation = (
            means[array].reindex(index=down.values, columns=across.values).to_numpy()
            for array in ('test_map', 'val_map')
        )
        _draw_cells(ax, test, _least_difference(by_seed.test_map.unstack()))
        chosen = np.unravel_index(np.nanargmax(validation), validation.shape)
        _frame(ax, chosen, edgecolor='#ee7733', linestyle='-', label='chosen on validation')
        cell = down.values.index(at[0]), across.values.index(at[1])
        _frame(ax, cell, edgecolor='#ee3377', linestyle=':', label=special)
        ax.set_yticks(range(len(down.values)), map(_tick, down.values))
        ax.set_xticks(range(len(across.values)), map(_tick, across.values))
    draw_legend(picture)
    return picture


def _least_difference(by_seed: pd.DataFrame) -> float:
    """The smallest significant difference (95 %) of two means over the same seeds, from a two-way
    analysis of variance; 0 without two seeds.

    Args:
        by_seed: A row for each mean, a column for each seed.
    """
    residuals = by_seed.sub(by_seed.mean(axis=1), axis=0) - by_seed.mean() + by_seed.stack().mean()
    freedom = (len(by_seed) - 1) * (by_seed.shape[1] - 1)
    if not freedom:
        return 0.0
    return 1.96 * (2 * np.square(residuals.stack()).sum() / freedom / by_seed.shape[1]) ** 0.5


def _draw_cells(ax, table: np.ndarray, step: float):
    """Draw numbers on a colour scale with steps, of which at least four span the whole scale."""
    above = table - np.nanmin(table)
    darkest = np.nanmax(above)
    if step:
        above = np.floor(above / step)
        darkest = max(np.nanmax(above), 4)
        ax.set_title(f'{ax.get_title()}; a step of colour: {step:.1f}')
    shade = above / (darkest or 1)
    ax.imshow(shade, cmap='Blues', origin='lower', vmin=0, vmax=1)
    for (i, j), value in np.ndenumerate(table):
        text = '–' if np.isnan(value) else f'{value:.1f}'
        ink = 'white' if shade[i, j] > 0.5 else 'black'
        ax.text(j, i, text, ha='center', va='center', fontsize=7, color=ink)


def _frame(ax, cell: tuple[int, int], **style):
    """Frame a cell (row, column) within its borders."""
    row, column = cell
    corner = (column - 0.46, row - 0.46)
    ax.add_patch(Rectangle(corner, 0.92, 0.92, fill=False, linewidth=2, **style))


def draw_over_epochs(
    collected: FigureArrays,
    series: Iterable[str],
    array: str,
    label: str,
    per_epoch: int = 1,
    scale: str = 'linear',
) -> Figure:
    """Draw a quantity over training, one panel for each data set.

    Args:
        series: Names of the curves.
        array: The array to draw.
        label: Of the vertical axis.
        per_epoch: Points in an epoch.
        scale: Of the vertical axis, 'linear' or 'log'.
    """
    picture, panels = make_panels(collected, 2.4)
    for ax, dataset, ours in panels:
        for name, ink in zip(series, INK, strict=False):
            if not collected.of_seeds(dataset, name):
                continue
            summary = collected.summary(dataset, name, array)
            epochs = (np.arange(summary.shape[1]) + 1) / per_epoch
            draw_curve(ax, epochs, summary, ink, label=name)
        ax.set(xlabel='epoch', title=ours, yscale=scale)
        ax.xaxis.get_major_locator().set_params(integer=True)
        if scale == 'log':
            ax.yaxis.set(
                major_locator=LogLocator(subs=(1, 2, 5)),
                major_formatter='{x:g}',
                minor_formatter='',
            )
    picture.axes[0].set_ylabel(label)
    draw_legend(picture)
    return picture


def draw_bands(
    collected: FigureArrays,
    series: tuple[str, ...],
    array: str,
    label: str,
    shown: tuple[int, ...],
    top: float | None = None,
) -> Figure:
    """Draw the median and quartiles of groups of labels over epochs, as a mean over seeds, with the
    median of each seed.

    Args:
        series: Names of the columns, with a row for each data set; with a single one, the data sets
            are the columns.
        array: The array to draw, (epochs, groups, 3).
        label: Of the vertical axis.
        shown: Indices of `run_measurements.GROUPS`.
        top: End of the vertical axis.
    """
    data = collected.about['data']
    panels = [(*datasets, name) for datasets in data for name in series]
    if len(series) > 1:
        picture, axes = make_axes(len(data), len(series), 2.6, 1.5)
    else:
        picture, axes = make_axes(1, len(data), 2.3, 1.9)
    for ax, (dataset, ours, name) in zip(axes.flat, panels, strict=True):
        ax.set(title=f'{ours}, {name}')
        seeds = [seed[array] for seed in collected.of_seeds(dataset, name)]
        if not seeds:
            continue
        mean = collected.summary(dataset, name, array)[0]
        for group in shown:
            _draw_band(ax, mean[:, group], [seed[:, group] for seed in seeds], group)
        ax.set(xlabel='epoch', ylabel=label if ax in axes[:, 0] else '', ylim=(0, top))
        ax.xaxis.get_major_locator().set_params(integer=True)
    draw_legend(picture)
    return picture


def _draw_band(ax, quantiles: np.ndarray, seeds: list[np.ndarray], group: int):
    """Draw the quartiles of a group, (epochs, 3), and the median of each seed."""
    low, middle, high = quantiles.T
    epochs = np.arange(1, len(middle) + 1)
    ax.fill_between(epochs, low, high, color=INK[group], alpha=0.25, linewidth=0)
    for seed in seeds:
        ax.plot(epochs, seed[: len(epochs), 1], color=INK[group], linewidth=0.4)
    ax.plot(epochs, middle, color=INK[group], label=run_measurements.GROUPS[group])


_TILE = 80  # pixels of an image's side in the picture
_LABEL = 14  # pixels above an image, for its name
_HEAT = np.array([255, 210, 0])  # colour of a map at its maximum
_MARKS = {2: ' (observed)', 1: '', -1: ' (not annotated)', 0: ' (below δ)'}


def _tile(image: np.ndarray, heat_map: np.ndarray | None = None) -> np.ndarray:
    """An image (s, s, 3) with a map (h, w) laid over it, both uint8: (_TILE, _TILE, 3) uint8."""
    base = Image.fromarray(image).resize((_TILE, _TILE), Image.Resampling.BICUBIC)
    if heat_map is None:
        return np.asarray(base)
    resized = Image.fromarray(heat_map).resize((_TILE, _TILE), Image.Resampling.BICUBIC)
    heat = np.asarray(resized)[..., None] / 255
    grey = np.asarray(base.convert('L').convert('RGB')) * 0.75
    return ((1 - 0.8 * heat) * grey + 0.8 * heat * _HEAT).round().astype(np.uint8)


def draw_maps(collected: FigureArrays, dataset: str, series: str) -> Figure:
    """Draw the images of a run, two in a row, each followed by up to three maps laid over it."""
    (run,) = collected.of_seeds(dataset, series)
    step = _TILE + 4
    rows = -(-len(run['images']) // 2)
    canvas = np.full((rows * (_TILE + _LABEL), 8 * step, 3), 255, np.uint8)
    picture, axes = make_axes(1, 1, 8.4, 8.4 * canvas.shape[0] / canvas.shape[1])
    ax = axes[0, 0]
    images = zip(*(run[array] for array in ('images', 'maps', 'names', 'kinds')), strict=True)
    for k, (image, heats, names, kinds) in enumerate(images):
        top = k // 2 * (_TILE + _LABEL) + _LABEL
        left = k % 2 * 4 * step
        canvas[top : top + _TILE, left : left + _TILE] = _tile(image)
        for heat, name, kind in zip(heats, names, kinds, strict=True):
            left += step
            if not name:
                continue
            canvas[top : top + _TILE, left : left + _TILE] = _tile(image, heat)
            text = name + _MARKS[int(kind)]
            ax.text(left, top - 2, text, fontsize=min(7, 135 / len(text)), va='bottom')
    ax.imshow(canvas)
    ax.axis('off')
    return picture


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
