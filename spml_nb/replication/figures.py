"""A file of arrays becomes a picture with the paper's axes."""

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
from . import measuring, published


class FigureArrays(NamedTuple):
    """The arrays of a figure.

    Attributes:
        about: paper, figure, suite, version, data ([the paper's data set, ours], …), parts ({name
            of a run in the figure: {dataset, series, values, seed, key}}, of those that are there;
            the key is that of the run), missing (names).
        arrays: {name of a run in the figure: {name: array}}.
    """

    about: dict
    arrays: dict

    def of_seeds(self, dataset: str, series: str, values: tuple = ()) -> list[dict]:
        """The arrays of each seed that is there, by their place in the figure."""
        place = (dataset, series, list(values))
        return [
            self.arrays[name]
            for name, run in self.about['parts'].items()
            if (run['dataset'], run['series'], run['values']) == place
        ]

    def summary(self, dataset: str, series: str, array: str, values: tuple = ()) -> np.ndarray:
        """(3, n, …): mean, lowest and highest over seeds, as far as all reach; (3, 1) of a number,
        NaN without any.
        """
        arrays = [np.atleast_1d(seed[array]) for seed in self.of_seeds(dataset, series, values)]
        if not arrays:
            return np.full((3, 1), np.nan)
        shortest = min(map(len, arrays))
        return mean_and_range(np.stack([values[:shortest] for values in arrays]))

    def summary_along(
        self, dataset: str, series: str, points: list[tuple], array: str
    ) -> np.ndarray:
        """(3, n): a number's `summary` at each of n points on the axes."""
        return np.hstack([self.summary(dataset, series, array, point) for point in points])


def mean_and_range(over_seeds: np.ndarray) -> np.ndarray:
    """The mean, the lowest and the highest of (seeds, …) values: (3, …)."""
    return np.stack([over_seeds.mean(0), over_seeds.min(0), over_seeds.max(0)])


def write_figure_arrays(file: Path, collected: FigureArrays):
    """Write a figure's arrays to an .npz file: the same bytes for the same arrays.

    Raises:
        SpmlError: if the file cannot be written.
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
        file: from `write_figure_arrays`.

    Raises:
        SpmlError: if the file is missing, damaged or something else.
    """
    try:
        flat = dict(np.load(file))
        about = json.loads(flat.pop('about').tobytes())
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise SpmlError(
            f'{file} cannot be read as the arrays of a figure: {error}. '
            'Remove it; the sweep of the figure writes it anew.'
        ) from error
    arrays = {run: {} for run in about['parts']}
    for path, value in flat.items():
        run, _, name = path.rpartition('/')
        arrays[run][name] = value
    return FigureArrays(about, arrays)


AS_CHOSEN = {(): {}}  # one run, as the search chose it


@dataclass(frozen=True)
class Curve:
    """Runs of a figure that start from one searched configuration.

    Args:
        dataset: the paper's name of the data set.
        series: the name of the curve, column or row.
        start: fields over the paper's own configuration; they decide which search the runs start
            from.
        points: {values on the axes: fields laid over the chosen configuration}, where `hparams`
            adds hyper-parameters.
    """

    dataset: str
    series: str
    start: dict
    points: dict[tuple, dict] = field(default_factory=lambda: AS_CHOSEN)


@dataclass(frozen=True)
class PaperFigure:
    """How a figure of a paper is made; its words stand in `assets/figures.yml`.

    Args:
        draw: makes the picture from a `FigureArrays`.
        curves: its runs; none where a formula is drawn.
        measure: from a finished run to its arrays; None: the run's score on test.
        observed: whether `measure` reads the notes of an observed run.
        seeds: of observed labels and training of each of its runs; ten where a run takes seconds
            and claims are close.
    """

    draw: Callable[[FigureArrays], Figure]
    curves: list[Curve] = field(default_factory=list)
    measure: Callable | None = None
    observed: bool = False
    seeds: tuple[int, ...] = (0, 1, 2)


def draw_figure(figure: PaperFigure, collected: FigureArrays) -> bytes:
    """Draw a figure as SVG: the same bytes for the same arguments."""
    svg = to_svg(lambda: titled_figure(figure, collected))
    has_photos = any('images' in arrays for arrays in collected.arrays.values())
    return reduce_colours(svg) if has_photos else svg


def titled_figure(figure: PaperFigure, collected: FigureArrays) -> Figure:
    """A figure with its title, for `to_svg` or `to_png`."""
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
    """The lines of a title: what it is, on what data, and what has to be known of its runs."""
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
        The picture, and (axes, the paper's data set, ours) of each panel.
    """
    data = collected.about['data']
    picture, axes = make_axes(1, len(data), width, height)
    return picture, [(ax, *names) for ax, names in zip(axes[0], data, strict=True)]


@dataclass(frozen=True)
class Axis:
    """A value that a figure varies. Args: label: its name; values: the points on it."""

    label: str
    values: tuple[float, ...]


def draw_scores(collected: FigureArrays, groups: dict[Axis, tuple[str, ...]]) -> Figure:
    """Draw the mAP over a varied value, one panel for each data set and axis.

    Args:
        collected: the figure's arrays.
        groups: the names of the curves over each axis.
    """
    names = dict.fromkeys(name for series in groups.values() for name in series)
    inks = dict(zip(names, INK, strict=False))
    places = [(*data, axis) for data in collected.about['data'] for axis in groups]
    picture, axes = make_axes(1, len(places), 2.8)
    for ax, (dataset, ours, axis) in zip(axes[0], places, strict=True):
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
    """Whether neighbours have the same ratio."""
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
    """Draw the mAP over two varied values, its mean over seeds, with a frame around the one that
    validation chooses.

    A step of colour is the least difference that two means need to be told apart, so that what
    looks the same is the same.

    Args:
        collected: the figure's arrays, test_map and val_map.
        series: name of the runs.
        down: the vertical axis.
        across: the horizontal axis.
        special: name of a point that is framed too.
        at: its values, down and across.
    """
    picture, places = make_panels(collected, 3.0, 3.0)
    for ax, dataset, ours in places:
        ax.set(xlabel=across.label, ylabel=down.label, title=f'{ours}, mAP (%)')
        runs = {
            (*run['values'], run['seed']): collected.arrays[name]
            for name, run in collected.about['parts'].items()
            if (run['dataset'], run['series']) == (dataset, series)
        }
        if not runs:
            continue
        by_seed = pd.DataFrame(runs, dtype=float).T  # a line for each pair of values and seed
        means = by_seed.groupby(level=[0, 1]).mean().unstack()
        test, validation = (
            means[array].reindex(index=down.values, columns=across.values).to_numpy()
            for array in ('test_map', 'val_map')
        )
        _cells(ax, test, _least_difference(by_seed.test_map.unstack()))
        chosen = np.unravel_index(np.nanargmax(validation), validation.shape)
        _frame(ax, chosen, edgecolor='#ee7733', linestyle='-', label='chosen on validation')
        place = down.values.index(at[0]), across.values.index(at[1])
        _frame(ax, place, edgecolor='#ee3377', linestyle=':', label=special)
        ax.set_yticks(range(len(down.values)), map(_tick, down.values))
        ax.set_xticks(range(len(across.values)), map(_tick, across.values))
    draw_legend(picture)
    return picture


def _least_difference(wide: pd.DataFrame) -> float:
    """From which size on two means over the same seeds differ (95 %); 0 without two seeds.

    wide: a line for each mean, a column for each seed.
    """
    rest = wide.sub(wide.mean(axis=1), axis=0) - wide.mean() + wide.stack().mean()
    freedom = (len(wide) - 1) * (wide.shape[1] - 1)
    if not freedom:
        return 0.0
    return 1.96 * (2 * np.square(rest.stack()).sum() / freedom / wide.shape[1]) ** 0.5


def _cells(ax, table: np.ndarray, step: float):
    """Numbers on colours in steps. Four steps at least reach from light to dark."""
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


def _frame(ax, place: tuple[int, int], **style):
    """Frame a cell, within its borders."""
    row, column = place
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
        collected: the figure's arrays.
        series: names of the curves.
        array: what is drawn.
        label: of the vertical axis.
        per_epoch: points in an epoch.
        scale: of the vertical axis, 'linear' or 'log'.
    """
    picture, places = make_panels(collected, 2.4)
    for ax, dataset, ours in places:
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
    """Draw medians of groups of labels over epochs with their quartiles, a mean over seeds, and
    each seed's median.

    Args:
        collected: the figure's arrays.
        series: names of the columns, with a row for each data set; of a single one the data sets
            are the columns.
        array: what is drawn, (epochs, groups, 3).
        label: of the vertical axis.
        shown: which of `measuring.GROUPS`.
        top: end of the vertical axis.
    """
    data = collected.about['data']
    places = [(*names, name) for names in data for name in series]
    if len(series) > 1:
        picture, axes = make_axes(len(data), len(series), 2.6, 1.5)
    else:
        picture, axes = make_axes(1, len(data), 2.3, 1.9)
    for ax, (dataset, ours, name) in zip(axes.flat, places, strict=True):
        ax.set(title=f'{ours}, {name}')
        seeds = [seed[array] for seed in collected.of_seeds(dataset, name)]
        if not seeds:
            continue
        mean = collected.summary(dataset, name, array)[0]
        for group in shown:
            _band(ax, mean[:, group], [seed[:, group] for seed in seeds], group)
        ax.set(xlabel='epoch', ylabel=label if ax in axes[:, 0] else '', ylim=(0, top))
        ax.xaxis.get_major_locator().set_params(integer=True)
    draw_legend(picture)
    return picture


def _band(ax, quantiles: np.ndarray, seeds: list[np.ndarray], group: int):
    """A group's median and quartiles over epochs, (epochs, 3), and the same of each seed."""
    low, middle, high = quantiles.T
    epochs = np.arange(1, len(middle) + 1)
    ax.fill_between(epochs, low, high, color=INK[group], alpha=0.25, linewidth=0)
    for seed in seeds:
        ax.plot(epochs, seed[: len(epochs), 1], color=INK[group], linewidth=0.4)
    ax.plot(epochs, middle, color=INK[group], label=measuring.GROUPS[group])


TILE = 80  # pixels of an image's side in the picture

HEAT = np.array([255, 210, 0])  # of a map where it is highest

LINE = 14  # pixels above an image, for its name

MARKS = {2: ' (observed)', 1: '', -1: ' (not annotated)', 0: ' (below δ)'}


def _tile(image: np.ndarray, over: np.ndarray | None = None) -> np.ndarray:
    """An image (s, s, 3) uint8, with a map (h, w) uint8 laid over it: (TILE, TILE, 3) uint8."""
    base = Image.fromarray(image).resize((TILE, TILE), Image.Resampling.BICUBIC)
    if over is None:
        return np.asarray(base)
    wide = Image.fromarray(over).resize((TILE, TILE), Image.Resampling.BICUBIC)
    heat = np.asarray(wide)[..., None] / 255
    grey = np.asarray(base.convert('L').convert('RGB')) * 0.75
    # the photo shows where nothing is
    return ((1 - 0.8 * heat) * grey + 0.8 * heat * HEAT).round().astype(np.uint8)


def draw_maps(collected: FigureArrays, dataset: str, series: str) -> Figure:
    """Draw images, two in a row, each followed by up to three maps laid over it.

    Args:
        collected: the figure's arrays.
        dataset: the paper's.
        series: name of the run.
    """
    (run,) = collected.of_seeds(dataset, series)
    step = TILE + 4
    rows = -(-len(run['images']) // 2)
    canvas = np.full((rows * (TILE + LINE), 8 * step, 3), 255, np.uint8)
    picture, axes = make_axes(1, 1, 8.4, 8.4 * canvas.shape[0] / canvas.shape[1])
    ax = axes[0, 0]
    images = zip(*(run[array] for array in ('images', 'maps', 'names', 'kinds')), strict=True)
    for k, (image, heats, names, kinds) in enumerate(images):
        top = k // 2 * (TILE + LINE) + LINE
        left = k % 2 * 4 * step
        canvas[top : top + TILE, left : left + TILE] = _tile(image)
        for heat, name, kind in zip(heats, names, kinds, strict=True):
            left += step
            if not name:
                continue
            canvas[top : top + TILE, left : left + TILE] = _tile(image, heat)
            text = name + MARKS[int(kind)]
            ax.text(left, top - 2, text, fontsize=min(7, 135 / len(text)), va='bottom')
    ax.imshow(canvas)
    ax.axis('off')
    return picture
