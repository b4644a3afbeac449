"""The cells of the front page: gains taken seed by seed."""

import pytest
from front_rows import (
    hml_on_voc,  # noqa: F401 (fixtures)
)

from spml_nb import statistics
from spml_nb.replication import (
    front_page,
    published,
)


def test_a_gain_is_taken_seed_by_seed_over_the_same_head_and_over_plain_an(hml_on_voc):  # noqa: F811
    line = hml_on_voc.set_index(['method', 'panel']).loc[('HML', 'VOC')]
    effect = statistics.estimate_effect(
        [1.0, 4.0, -0.5],
        None,
        statistics.default_image_error(published.find_stand_in('voc12', front_page.PHOTOS_SUITE)),
    )
    assert (line.ours, line.half, line.n, line.plain) == pytest.approx(
        (1.5, effect.half_width, 3, 14 / 3), abs=1e-3
    )
    assert (
        line.published == pytest.approx(2.2)
        and hml_on_voc.set_index(['method', 'panel']).loc[('Two-way*', 'CUB'), 'n'] == -1
    )
    text = front_page.format_front(hml_on_voc, '', 'front.svg')
    over_plain = statistics.estimate_effect(
        [5.0, 7.0, 2.0], None, statistics.default_image_error('voc12_animals')
    )  # as HML takes its gain
    assert (line.effect.mean, line.effect.half_width) == pytest.approx(
        (over_plain.mean, over_plain.half_width)
    )
    assert '| HML (HML Table 4) | +3.1 | missing | missing |' in text  # one set of four
    assert 'Still missing: ' in text
    assert b'missing' in front_page.draw_front(hml_on_voc)
