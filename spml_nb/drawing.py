"""Pictures of one style, the same bytes wherever they are drawn."""

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

FONT = b"font-family: 'DejaVu Sans', 'Verdana', sans-serif"  # as the style file names it


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
    small = re.sub(rb'(?<=\n) +| transform="rotate\(-0 [^"]*\)"|; ' + FONT, b'', svg.getvalue())
    small = small.replace(b'<g id="figure_1">', b'<g id="figure_1" style="' + FONT + b'">', 1)
    # a hundredth of a point is more than the eye can see
    return re.sub(
        rb' (d|x|y)="[^"]*"', lambda places: re.sub(rb'(\.\d\d)\d+', rb'\1', places[0]), small
    )


PIXELS = 88  # per inch of a picture in a notebook

COLOURS = 96  # of the photos in a figure, which makes it a third of the size


def to_png(make: Callable[[], Figure]) -> bytes:
    """Make a picture as `to_svg` does, as a small PNG with a palette, for notebooks."""
    png = io.BytesIO()
    with style.context(['default', STYLE]):
        make().savefig(png, format='png', dpi=PIXELS)
    return _reduce_to_palette(png, COLOURS // 2)


def _reduce_to_palette(png: io.BytesIO, colours: int) -> bytes:
    """A PNG with a palette of so many colours, as a PNG."""
    small = io.BytesIO()
    picture = Image.open(png).convert('RGB')
    picture.quantize(colours, dither=Image.Dither.NONE).save(small, 'png', optimize=True)
    return small.getvalue()


def reduce_colours(svg: bytes) -> bytes:
    """The photos of an SVG with a palette, which matplotlib does not write."""

    def shrunk(match):
        small = _reduce_to_palette(io.BytesIO(base64.b64decode(match[1])), COLOURS)
        return b'data:image/png;base64,' + base64.b64encode(small)

    return re.sub(rb'data:image/png;base64,([A-Za-z0-9+/=\s]+)', shrunk, svg)


def make_axes(
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


def draw_legend(picture: Figure):
    """Explain the lines of all panels below them, where no data lie, each name once."""
    handles = {}
    for ax in picture.axes:
        shown, labels = ax.get_legend_handles_labels()
        handles |= dict(zip(labels, shown, strict=True))
    widest = max(map(len, handles), default=1)
    fitting = max(1, int(picture.get_figwidth() / (0.6 + 0.08 * widest)))
    picture.legend(
        handles.values(),
        handles,
        loc='outside lower center',
        ncols=min(fitting, max(len(handles), 1)),
    )


def draw_curve(ax, x: Iterable[float], summary: np.ndarray, ink: str, **style):
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
