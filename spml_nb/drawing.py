"""Figures in one style, byte for byte the same on every machine."""

import base64
import io
import re
from collections.abc import Callable, Iterable
from importlib.resources import files

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure
from PIL import Image

INK = ('#4477aa', '#cc6677', '#117733', '#997700', '#882255', '#44aa99')

STYLE = str(files('spml_nb') / 'assets' / 'figures.mplstyle')

_FONT = b"font-family: 'DejaVu Sans', 'Verdana', sans-serif"  # as in the style file


def to_svg(make: Callable[[], Figure], **options) -> bytes:
    """Draw a figure as SVG.

    Args:
        make: returns the figure.
        options: of matplotlib's `savefig`.

    Returns:
        The content of an SVG file, on white for light and dark pages.
    """
    svg = io.BytesIO()
    with style.context(['default', STYLE]):
        make().savefig(svg, format='svg', metadata={'Date': None, 'Creator': None}, **options)
    # remove indentation and rotations by 0; name the font once instead of in every text
    small = re.sub(rb'(?<=\n) +| transform="rotate\(-0 [^"]*\)"|; ' + _FONT, b'', svg.getvalue())
    small = small.replace(b'<g id="figure_1">', b'<g id="figure_1" style="' + _FONT + b'">', 1)
    # round coordinates down to a hundredth of a point
    return re.sub(
        rb' (d|x|y)="[^"]*"',
        lambda coordinates: re.sub(rb'(\.\d\d)\d+', rb'\1', coordinates[0]),
        small,
    )


COLOURS = 96  # of the photos in a figure, for a third of the file size


def to_png(make: Callable[[], Figure]) -> bytes:
    """Draw a figure as a small PNG with a palette, for notebooks."""
    png = io.BytesIO()
    with style.context(['default', STYLE]):
        make().savefig(png, format='png', dpi=88)
    return _reduce_to_palette(png, COLOURS // 2)


def _reduce_to_palette(png: io.BytesIO, colours: int) -> bytes:
    """Re-encode a PNG with a palette."""
    small = io.BytesIO()
    image = Image.open(png).convert('RGB')
    image.quantize(colours, dither=Image.Dither.NONE).save(small, 'png', optimize=True)
    return small.getvalue()


def reduce_colours(svg: bytes) -> bytes:
    """Re-encode the photos of an SVG with palettes, which matplotlib cannot write."""

    def shrink(match):
        small = _reduce_to_palette(io.BytesIO(base64.b64decode(match[1])), COLOURS)
        return b'data:image/png;base64,' + base64.b64encode(small)

    return re.sub(rb'data:image/png;base64,([A-Za-z0-9+/=\s]+)', shrink, svg)


def make_axes(
    rows: int, columns: int, width: float = 2.6, height: float = 2.2
) -> tuple[Figure, np.ndarray]:
    """Make a figure of empty panels.

    Args:
        rows, columns: number of panels.
        width, height: of a panel, in inches.

    Returns:
        The figure and its (rows, columns) axes.
    """
    figure = Figure(figsize=(max(width * columns, 3.6), height * rows + 0.7), layout='constrained')
    return figure, figure.subplots(rows, columns, squeeze=False)


def draw_legend(picture: Figure):
    """Draw one legend for all panels, below them, with each label once."""
    handles = {}
    for ax in picture.axes:
        of_panel, labels = ax.get_legend_handles_labels()
        handles |= dict(zip(labels, of_panel, strict=True))
    widest = max(map(len, handles), default=1)
    fitting = max(1, int(picture.get_figwidth() / (0.6 + 0.08 * widest)))
    picture.legend(
        handles.values(),
        handles,
        loc='outside lower center',
        ncols=min(fitting, max(len(handles), 1)),
    )


def draw_curve(ax, x: Iterable[float], summary: np.ndarray, ink: str, **style):
    """Draw the mean over seeds, with a band from the lowest to the highest.

    Args:
        ax: matplotlib axes.
        x: (n,).
        summary: (3, n): mean, lowest and highest.
        ink: colour of line and band.
        style: of the line, as in `ax.plot`.
    """
    mean, low, high = summary
    ax.fill_between(x, low, high, color=ink, alpha=0.2, linewidth=0)
    ax.plot(x, mean, color=ink, **style)
