"""Pictures small enough for pages, that look as matplotlib drew them."""

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import style

from spml_nb import drawing


def test_a_small_picture_looks_as_matplotlib_wrote_it():
    def make():
        picture, axes = drawing.make_axes(1, 1)
        axes[0, 0].plot([0, 1, 3], [2, 5.123, 4], marker='o')
        axes[0, 0].set(title='a title', xlabel='x')
        return picture

    whole, small = io.BytesIO(), drawing.to_svg(make)
    with style.context(['default', drawing.STYLE]):
        make().savefig(whole, format='svg', metadata={'Date': None, 'Creator': None})
    before, after = (list(ElementTree.fromstring(svg).iter()) for svg in (whole.getvalue(), small))
    assert len(small) < len(whole.getvalue()) and [e.tag for e in before] == [e.tag for e in after]
    for one, other in zip(before, after, strict=True):
        for name in {'x', 'y'} & set(one.attrib):
            assert float(other.get(name)) == pytest.approx(float(one.get(name)), abs=0.01)
    fonts = {
        match for e in before for match in re.findall('font-family: [^;]*', e.get('style', ''))
    }  # every text's own
    named = [e for e in after if 'font-family' in e.get('style', '')]
    assert [e.get('id') for e in named] == ['figure_1'] and {named[0].get('style')} == fonts


def test_a_curve_is_the_mean_with_a_band_from_the_lowest_to_the_highest():
    _, axes = drawing.make_axes(1, 1)
    drawing.draw_curve(axes[0, 0], [1, 2], np.array([[2, 3], [1, 1], [3, 6]]), 'black', label='BCE')
    (line,) = axes[0, 0].lines
    (band,) = axes[0, 0].collections
    corners = {tuple(map(float, corner)) for corner in band.get_paths()[0].vertices}
    assert line.get_xydata().tolist() == [[1, 2], [2, 3]] and corners == {
        (1, 1),
        (1, 3),
        (2, 1),
        (2, 6),
    }
