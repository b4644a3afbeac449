"""A file of arrays becomes a picture with the paper's axes, the same bytes whenever and wherever it is drawn."""

import base64
import io
import json
import re
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator
from PIL import Image

from ..base.errors import SpmlError
from ..base.files import write_arrays
from . import measuring, published
from .statistics import MARGIN, Verdict, signed


class Collected(NamedTuple):
    """The arrays of a figure.

    Attributes:
        about: paper, figure, suite, version, data ([the paper's data set, ours], …), parts ({name:
            {dataset, series, values, seed, key}} of those that are there; the key is that of the
            run), missing (names).
        arrays: {name of a part: {name: array}}.
    """

    about: dict
    arrays: dict

    def parts(self, dataset: str, series: str, values: tuple = ()) -> list[dict]:
        "The arrays of each seed that is there, by their place in the figure."
        place = (dataset, series, list(values))
        return [
            self.arrays[name]
            for name, p in self.about['parts'].items()
            if (p['dataset'], p['series'], p['values']) == place
        ]

    def over_seeds(self, dataset: str, series: str, array: str, values: tuple = ()) -> np.ndarray:
        """(3, n, …): mean, lowest and highest over seeds, as far as all reach; (3, 1) of a number,
        NaN without any.
        """
        each = [np.atleast_1d(part[array]) for part in self.parts(dataset, series, values)] or [
            np.array([np.nan])
        ]
        whole = np.stack([values[: min(map(len, each))] for values in each])
        return np.stack([whole.mean(0), whole.min(0), whole.max(0)])

    def along(self, dataset: str, series: str, points: list[tuple], array: str) -> np.ndarray:
        "(3, n): a number `over_seeds` at each of n points on the axes."
        return np.hstack([self.over_seeds(dataset, series, array, point) for point in points])


def write_collected(file: Path, collected: Collected):
    """Write a figure's arrays: the same bytes for the same arrays.

    Args:
        file: an .npz file.
        collected: the arrays.

    Raises:
        SpmlError: if the file cannot be written.
    """
    flat = {
        f'{part}/{name}': value
        for part, named in collected.arrays.items()
        for name, value in named.items()
    }
    write_arrays(
        file,
        {
            'about': np.frombuffer(
                json.dumps(collected.about, ensure_ascii=False, sort_keys=True).encode(), np.uint8
            ),
            **flat,
        },
    )


def read_collected(file: Path) -> Collected:
    """Read a figure's arrays.

    Args:
        file: from `write_collected`.

    Returns:
        The arrays.

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
    names = [path.rpartition('/')[::2] for path in flat]
    return Collected(
        about,
        {
            part: {name: flat[f'{part}/{name}'] for owner, name in names if owner == part}
            for part in about['parts']
        },
    )


AS_CHOSEN = {(): {}}  # one run, as the search chose it


class Curve(NamedTuple):
    """Runs of a figure that start from one searched configuration.

    Attributes:
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
    points: dict[tuple, dict] = AS_CHOSEN


class PaperFigure(NamedTuple):
    """A figure of a paper.

    Attributes:
        caption: what the figure shows.
        draw: makes the picture from a `Collected`.
        curves: its runs; none where a formula is drawn.
        measure: from a finished run to its arrays; None: the run's score on test.
        observed: whether `measure` reads the notes of an observed run.
        seeds: of observed labels and training of each of its runs; ten where a run takes seconds
            and claims are close.
        together: how the seeds are shown.
        printed: what the paper's text says of the figure's numbers.
        notes: what was chosen here.
    """

    caption: str
    draw: Callable[[Collected], Figure]
    curves: list[Curve] | tuple = ()
    measure: Callable | None = None
    observed: bool = False
    seeds: tuple[int, ...] = (0, 1, 2)
    together: str = 'Lines are means over seeds, bands reach from the lowest seed to the highest.'
    printed: str = ''
    notes: str = ''


INK = ('#4477aa', '#cc6677', '#117733', '#997700', '#882255', '#44aa99')
STYLE = {
    'svg.hashsalt': 'spml_nb',
    'svg.fonttype': 'none',
    'font.size': 8,
    'axes.titlesize': 8,
    'axes.labelsize': 8,
    'font.sans-serif': ['DejaVu Sans', 'Verdana'],  # a longer list would stand with every text
    'legend.fontsize': 7,
    'figure.titlesize': 9,
    'axes.spines.top': False,
    'axes.spines.right': False,
    'lines.linewidth': 1.2,
    'lines.markersize': 4,
    'image.interpolation': 'none',
    'legend.frameon': False,
    'figure.dpi': 72,
}


def draw(figure: PaperFigure, collected: Collected) -> bytes:
    """Draw a figure as SVG.

    Args:
        figure: from `FIGURES`.
        collected: its arrays.

    Returns:
        The content of the file, the same for the same arguments.
    """
    svg = to_svg(lambda: _titled(figure.draw(collected), collected.about))
    return (
        _fewer_colours(svg)
        if any('images' in arrays for arrays in collected.arrays.values())
        else svg
    )


def to_svg(make: Callable[[], Figure], **options) -> bytes:
    """Make a picture in the style of all pictures here.

    Args:
        make: makes it.
        options: of matplotlib's `savefig`.

    Returns:
        The content of an SVG file on white, for light and dark pages; the same for the same
        picture.
    """
    svg = io.BytesIO()
    with style.context(['default', STYLE]):
        make().savefig(svg, format='svg', metadata={'Date': None, 'Creator': None}, **options)
    # without indentation, turns by nothing and the font in every text, where one is enough
    font = f"font-family: {str(STYLE['font.sans-serif'])[1:-1]}, sans-serif".encode()
    small = re.sub(rb'(?<=\n) +| transform="rotate\(-0 [^"]*\)"|; ' + font, b'', svg.getvalue())
    small = small.replace(b'<g id="figure_1">', b'<g id="figure_1" style="' + font + b'">', 1)
    # a hundredth of a point is more than the eye can see
    return re.sub(
        rb' (d|x|y)="[^"]*"', lambda places: re.sub(rb'(\.\d\d)\d+', rb'\1', places[0]), small
    )


def _titled(picture: Figure, about: dict) -> Figure:
    for ax in picture.axes:
        if ax.has_data():
            continue
        ax.text(
            0.5, 0.5, 'missing', transform=ax.transAxes, ha='center', va='center', color='#999999'
        )
        ax.set(xticks=[], yticks=[])
    picture.suptitle('\n'.join(_title(about, int(15 * picture.get_figwidth()))))
    return picture


COLOURS = 96  # of the photos in a figure, which makes it a third of the size


def _fewer_colours(svg: bytes) -> bytes:
    "The photos of an SVG with a palette, which matplotlib does not write."

    def shrunk(match):
        small = io.BytesIO()
        picture = Image.open(io.BytesIO(base64.b64decode(match[1]))).convert('RGB')
        picture.quantize(COLOURS, dither=Image.Dither.NONE).save(small, 'png', optimize=True)
        return b'data:image/png;base64,' + base64.b64encode(small.getvalue())

    return re.sub(rb'data:image/png;base64,([A-Za-z0-9+/=\s]+)', shrunk, svg)


def _title(about: dict, width: int) -> list[str]:
    "The lines of a title: what it is, on what data, and what has to be known of its runs."
    data, parts = (
        ', '.join(dict.fromkeys(ours for _, ours in about['data'])),
        about['parts'].values(),
    )
    lines = [
        f"{published.read(about['paper'])['short']} Fig. {about['figure']}{', on ' + data if data else ''}"
        f"{', one seed' if len({part['seed'] for part in parts}) == 1 else ''}"
    ]
    if about['missing']:
        lines.append(f"only {len(parts)} of {len(parts) + len(about['missing'])} parts are done")
    acted = [part['exercised'] for part in parts if part.get('exercised') is not None]
    if not all(acted):
        lines.append(
            f"not exercised in {acted.count(0)} of {len(acted)} run{'s' * (len(acted) > 1)}: the "
            "epoch was chosen before the method's own mechanism began"
        )
    return [short for line in lines for short in textwrap.wrap(line, width)]


def legend(picture: Figure):
    """Explain the lines of all panels below them, where no data lie, each name once.

    Args:
        picture: with its panels drawn.
    """
    handles = {
        label: handle
        for ax in picture.axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    columns = max(1, int(picture.get_figwidth() / (0.6 + 0.08 * max(map(len, handles), default=1))))
    picture.legend(
        handles.values(),
        handles,
        loc='outside lower center',
        ncols=min(columns, max(len(handles), 1)),
    )


def sheet(
    rows: int, columns: int, width: float = 2.6, height: float = 2.2
) -> tuple[Figure, np.ndarray]:
    """Make an empty picture.

    Args:
        rows: of panels.
        columns: of panels.
        width: of a panel, in inches.
        height: of a panel, in inches.

    Returns:
        The picture and its (rows, columns) axes.
    """
    picture = Figure(figsize=(max(width * columns, 3.6), height * rows + 0.7), layout='constrained')
    return picture, picture.subplots(rows, columns, squeeze=False)


def panels(collected: Collected, width: float, height: float = 2.2) -> tuple[Figure, list[tuple]]:
    """Make a picture with a panel for each data set.

    Args:
        collected: the figure's arrays.
        width: of a panel, in inches.
        height: of a panel, in inches.

    Returns:
        The picture, and (axes, the paper's data set, ours) of each panel.
    """
    picture, axes = sheet(1, len(collected.about['data']), width, height)
    return picture, [
        (ax, *names) for ax, names in zip(axes[0], collected.about['data'], strict=True)
    ]


def curve(ax, x, summary: np.ndarray, ink: str, **style):
    """Draw the mean over seeds, with a band from the lowest seed to the highest.

    Args:
        ax: matplotlib's axes.
        x: (n,) places on the horizontal axis.
        summary: (3, n) mean, lowest and highest.
        ink: a colour.
        style: of the line.
    """
    mean, low, high = summary
    ax.fill_between(x, low, high, color=ink, alpha=0.2, linewidth=0)
    ax.plot(x, mean, color=ink, **style)


def scores(collected: Collected, *groups: tuple[str, tuple, tuple]) -> Figure:
    """Draw the mAP over a varied value, one panel for each data set and group of curves.

    Args:
        collected: the figure's arrays.
        groups: (name of the axis, values on it, names of the curves) of each group.

    Returns:
        The picture.
    """
    places = [(*names, *group) for names in collected.about['data'] for group in groups]
    inks = dict(
        zip(dict.fromkeys(name for *_, series in groups for name in series), INK, strict=False)
    )
    picture, axes = sheet(1, len(places), 2.8)
    for ax, (dataset, ours, axis, values, series) in zip(axes[0], places, strict=True):
        ax.set(xlabel=axis, ylabel='mAP (%)', title=ours)
        curves = [
            collected.along(dataset, name, [(v,) for v in values], 'test_map') for name in series
        ]
        if not np.isfinite(curves).any():
            continue
        for name, y in zip(series, curves, strict=True):
            curve(ax, values, y, inks[name], marker='o', label=name)
        if min(values) > 0 and np.ptp(np.diff(np.log(values))) < 1e-6:
            ax.set_xscale('log')
        ax.set_xticks(values, map(_tick, values))
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    if len(inks) > 1:
        legend(picture)
    return picture


def _tick(value: float) -> str:
    "0.3, 4096, 10⁻³"
    power = round(np.log10(value)) if value > 0 else 0
    if power > -3 or not np.isclose(value, 10.0**power):
        return f'{value:g}'
    return f"10{str(power).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def grid(
    collected: Collected,
    series: str,
    down: tuple[str, tuple],
    across: tuple[str, tuple],
    special: tuple[str, tuple],
) -> Figure:
    """Draw the mAP over two varied values, its mean over seeds, with a frame around the one that
    validation chooses.

    A step of colour is the least difference that two means need to be told apart, so that what
    looks alike is alike.

    Args:
        collected: the figure's arrays, test_map and val_map.
        series: name of the runs.
        down: name of the vertical axis, values on it.
        across: name of the horizontal axis, values on it.
        special: name and values of a point that is framed too.

    Returns:
        The picture.
    """
    picture, places = panels(collected, 3.0, 2.6)
    for ax, dataset, ours in places:
        ax.set(xlabel=across[0], ylabel=down[0], title=f'{ours}, mAP (%)')
        each = {
            (*p['values'], p['seed']): collected.arrays[name]
            for name, p in collected.about['parts'].items()
            if (p['dataset'], p['series']) == (dataset, series)
        }
        if not each:
            continue
        runs = pd.DataFrame(each, dtype=float).T  # a line for each pair of values and seed
        means = runs.groupby(level=[0, 1]).mean().unstack()
        table, chosen = (
            means[array].reindex(index=down[1], columns=across[1]).to_numpy()
            for array in ('test_map', 'val_map')
        )
        _cells(ax, table, _least_difference(runs.test_map.unstack()))
        _frame(
            ax, divmod(np.nanargmax(chosen), len(across[1])), '#ee7733', '-', 'chosen on validation'
        )
        _frame(
            ax,
            (down[1].index(special[1][0]), across[1].index(special[1][1])),
            '#ee3377',
            ':',
            special[0],
        )
        ax.set_yticks(range(len(down[1])), map(_tick, down[1]))
        ax.set_xticks(range(len(across[1])), map(_tick, across[1]))
    legend(picture)
    return picture


def _least_difference(wide: pd.DataFrame) -> float:
    "From which size on two means over the same seeds differ (95 %); 0 without two seeds."
    rest = (wide.sub(wide.mean(axis=1), axis=0) - wide.mean() + wide.stack().mean()).stack()
    freedom = (len(wide) - 1) * (wide.shape[1] - 1)
    return 1.96 * (2 * np.square(rest).sum() / freedom / wide.shape[1]) ** 0.5 if freedom else 0.0


def _cells(ax, table: np.ndarray, step: float):
    "Numbers on colours in steps. Four steps at least reach from light to dark."
    above = table - np.nanmin(table)
    if step:
        above = np.floor(above / step)
    shade = above / (max(np.nanmax(above), 4 * bool(step)) or 1)
    ax.imshow(shade, cmap='Blues', origin='lower', aspect='auto', vmin=0, vmax=1)
    for (i, j), value in np.ndenumerate(table):
        ax.text(
            j,
            i,
            '–' if np.isnan(value) else f'{value:.1f}',
            ha='center',
            va='center',
            fontsize=7,
            color='white' if shade[i, j] > 0.5 else 'black',
        )
    if step:
        ax.set_title(f'{ax.get_title()}; a step of colour: {step:.1f}')


def _frame(ax, place: tuple[int, int], ink: str, dash: str, label: str):
    "Frame a cell, within its borders."
    ax.add_patch(
        Rectangle(
            (place[1] - 0.46, place[0] - 0.46),
            0.92,
            0.92,
            fill=False,
            edgecolor=ink,
            linestyle=dash,
            linewidth=2,
            label=label,
        )
    )


def over_epochs(
    collected: Collected,
    series: tuple[str, ...],
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

    Returns:
        The picture.
    """
    picture, places = panels(collected, 2.4)
    for ax, dataset, ours in places:
        for name, ink in zip(series, INK, strict=False):
            if not collected.parts(dataset, name):
                continue
            summary = collected.over_seeds(dataset, name, array)
            curve(ax, (np.arange(summary.shape[1]) + 1) / per_epoch, summary, ink, label=name)
        ax.set(
            xlabel='epoch', ylabel='' if ax is not places[0][0] else label, title=ours, yscale=scale
        )
        ax.xaxis.get_major_locator().set_params(integer=True)
        if scale != 'log':
            continue
        ax.yaxis.set(
            major_locator=LogLocator(subs=(1, 2, 5)), major_formatter='{x:g}', minor_formatter=''
        )
    legend(picture)
    return picture


def bands(
    collected: Collected,
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

    Returns:
        The picture.
    """
    data = collected.about['data']
    places = [(*names, name) for names in data for name in series]
    picture, axes = (
        sheet(len(data), len(series), 2.6, 1.5)
        if len(series) > 1
        else sheet(1, len(data), 2.3, 1.9)
    )
    for ax, (dataset, ours, name) in zip(axes.flat, places, strict=True):
        ax.set(title=f'{ours}, {name}')
        each = [part[array] for part in collected.parts(dataset, name)]
        if not each:
            continue
        whole = collected.over_seeds(dataset, name, array)[0]
        for group in shown:
            low, middle, high = whole[:, group].T
            x = np.arange(1, len(middle) + 1)
            ax.fill_between(x, low, high, color=INK[group], alpha=0.25, linewidth=0)
            for seed in each:
                ax.plot(x, seed[: len(x), group, 1], color=INK[group], linewidth=0.4)
            ax.plot(x, middle, color=INK[group], label=measuring.GROUPS[group])
        ax.set(xlabel='epoch', ylabel='' if ax not in axes[:, 0] else label, ylim=(0, top))
        ax.xaxis.get_major_locator().set_params(integer=True)
    legend(picture)
    return picture


TILE = 80  # pixels of an image's side in the picture
HEAT = np.array([255, 210, 0])  # of a map where it is highest
MARKS = {2: 'observed', 1: '', -1: 'not annotated', 0: 'below δ'}


def _tile(image: np.ndarray, over: np.ndarray | None = None) -> np.ndarray:
    "An image (s, s, 3) uint8, with a map (h, w) uint8 laid over it: (TILE, TILE, 3) uint8."
    base = Image.fromarray(image).resize((TILE, TILE), Image.Resampling.BICUBIC)
    if over is None:
        return np.asarray(base)
    heat = (
        np.asarray(Image.fromarray(over).resize((TILE, TILE), Image.Resampling.BICUBIC))[..., None]
        / 255
    )
    grey = np.asarray(base.convert('L').convert('RGB')) * 0.75
    return (
        ((1 - 0.8 * heat) * grey + 0.8 * heat * HEAT).round().astype(np.uint8)
    )  # the photo shows where nothing is


def maps(collected: Collected, dataset: str, series: str) -> Figure:
    """Draw images, two in a row, each followed by up to three maps laid over it.

    Args:
        collected: the figure's arrays.
        dataset: the paper's.
        series: name of the run.

    Returns:
        The picture.
    """
    (found,), step = collected.parts(dataset, series), TILE + 4
    whole = np.full((-(-len(found['images']) // 2) * (TILE + 14), 8 * step, 3), 255, np.uint8)
    picture, axes = sheet(1, 1, 8.4, 8.4 * whole.shape[0] / whole.shape[1])
    rows = zip(*(found[array] for array in ('images', 'maps', 'names', 'kinds')), strict=True)
    for k, (image, heats, names, kinds) in enumerate(rows):
        top, left = k // 2 * (TILE + 14), k % 2 * 4 * step
        whole[top + 14 : top + 14 + TILE, left : left + TILE] = _tile(image)
        for heat, name, kind in zip(heats, names, kinds, strict=True):
            left += step
            if name:
                whole[top + 14 : top + 14 + TILE, left : left + TILE] = _tile(image, heat)
            text = f'{name} ({MARKS[int(kind)]})' if name and MARKS[int(kind)] else name
            axes[0, 0].text(
                left, top + 12, text, fontsize=min(7, 135 / max(len(text), 1)), va='bottom'
            )
    axes[0, 0].imshow(whole)
    axes[0, 0].axis('off')
    return picture


WORD_INK = dict(
    zip(Verdict, ('#1b6b3a', '#b3501c', INK[0], '#444444', '#6b6b6b', '#6b6b6b'), strict=True)
)
_MARKS = (
    ('D', WORD_INK[Verdict.REPRODUCED], 'ours, places together'),
    ('o', WORD_INK[Verdict.REPRODUCED], 'ours, one place'),
    ('o', '#b5b5b5', 'one seed, decides nothing'),
    ('o', 'white', 'published'),
)  # of the legend

_MIXED = (
    f'\n({published.UNCOUNTED}: the paper compares rows of several sources, so part of it '
    'may be the set-up)'
)


def forest(claims: pd.DataFrame) -> bytes:
    """Draw claims with their effects, published and ours.

    Args:
        claims: as from `claims.report`, of one paper.

    Returns:
        An SVG, as from `to_svg`.
    """
    return to_svg(lambda: _forest(list(_lines(claims))), bbox_inches='tight')


def _lines(claims: pd.DataFrame):
    """A dict for each line: text, height in lines of text, whether it is of all places, and what
    `report` gives.
    """
    for claim in claims.itertuples():
        whole, *places = json.loads(claim.forest)
        text = textwrap.wrap(claim.claim, 62)
        yield {'text': '\n'.join(text), 'height': len(text) + 0.5, 'whole': True, **whole}
        for place in places:
            between = f" ({place['between']})" if place['between'] else ''
            yield {
                'text': textwrap.shorten(place['place'] + between, 74),
                'height': 1,
                'whole': False,
                **place,
            }


def _forest(lines: list[dict]) -> Figure:
    bottoms = np.cumsum([line['height'] for line in lines])
    picture = Figure(figsize=(2.7, 0.16 * bottoms[-1] + 0.1))
    ax = picture.add_axes((0, 0, 1, 1))
    ends = [line[name] for line in lines for name in ('low', 'high', 'published')]
    ends = np.array([x for x in ends if x is not None] + [-1, 1])
    far = 1.15 * np.quantile(abs(ends), 0.9)
    ax.set(
        xlim=(max(ends.min() - 0.3, -far), min(ends.max() + 0.3, far)),
        ylim=(bottoms[-1], 0),
        yticks=[],
        xlabel='points in favour of the claim, beyond what it asks',
    )
    if any(line['mixed'] for line in lines):
        ax.set_xlabel(ax.get_xlabel() + _MIXED)
    ax.axvspan(-MARGIN, MARGIN, color='#eeeeee')
    ax.axvline(0, color='#999999', linewidth=0.8)
    for line, bottom in zip(lines, bottoms, strict=True):
        _forest_line(ax, line, bottom - 0.5)
    for mark, ink, label in _MARKS:
        ax.plot(
            [],
            [],
            mark,
            markeredgecolor='black' if ink == 'white' else ink,
            markerfacecolor=ink,
            label=label,
        )
    picture.legend(
        loc='upper center', bbox_to_anchor=(0.5, -0.5 / picture.get_figheight()), ncols=4
    )
    ax.spines['left'].set_visible(False)
    return picture


def _forest_line(ax, line: dict, y: float):
    "The words and marks of a line of a forest plot."
    left, size, weight, width, mark = (
        (-1.4, 7, 'bold', 2, 'D') if line['whole'] else (-1.35, 6.2, 'normal', 1, 'o')
    )
    ink = WORD_INK.get(line['word'], WORD_INK[Verdict.NOT_RUN])  # of 'incomplete'
    beside = {'transform': ax.get_yaxis_transform(), 'va': 'center', 'parse_math': False}
    first = y - line['text'].count('\n') / 2  # marks stand in the last line of a text
    ax.text(left, first, line['text'], fontsize=size, weight=weight, linespacing=1.3, **beside)
    if line['published'] is not None:
        _mark(
            ax,
            line['published'],
            y,
            'o',
            markerfacecolor='white',
            markeredgecolor='black',
            zorder=3,
        )
        dagger = published.UNCOUNTED if line['mixed'] else ''
        theirs = f"paper {signed(line['published_told'])}{dagger}"
        ax.text(1.37, y, theirs, fontsize=size, color='#555555', **beside)
    ax.text(1.68, y, line['word'], fontsize=size, color=ink, weight=weight, **beside)
    if line['mean'] is None:
        return
    half = f" ± {(line['high'] - line['low']) / 2:.1f}" if line['low'] is not None else ', 1 seed'
    ax.text(1.04, y, signed(line['mean_told']) + half, fontsize=size, color=ink, **beside)
    if line['low'] is not None:
        ax.hlines(y, line['low'], line['high'], color=ink, linewidth=width)
    _mark(ax, line['mean'], y, mark, color='#b5b5b5' if line['seeds'] == 1 else ink, zorder=4)


def _mark(ax, x: float, y: float, mark: str, **style):
    "A mark, or an arrowhead at the edge where it lies beyond."
    low, high = ax.get_xlim()
    ax.plot(
        min(max(x, low), high),
        y,
        '<' if x < low else '>' if x > high else mark,
        clip_on=False,
        **style,
    )
