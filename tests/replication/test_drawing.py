"""A figure's arrays in their file, and the pens that several figures are drawn with."""
from xml.etree import ElementTree

import numpy as np
import pytest

from spml_nb.base.errors import SpmlError
from spml_nb.replication import drawing, figures
from spml_nb.replication.papers import em_apl_figures


def collected(paper, figure, parts, missing, data):
    "A Collected of ([dataset, series, values], arrays) with some parts missing; what has the same place is of several seeds."
    places = {f'{d} | {s} | {v} | {k}': {'dataset': d, 'series': s, 'values': list(v), 'seed': k, 'key': 'k'} for k, ((d, s, v), _) in enumerate(parts)}
    about = {'paper': paper, 'figure': figure, 'suite': 'photos', 'version': 1, 'data': data, 'parts': places, 'missing': missing}
    return drawing.Collected(about, dict(zip(places, (arrays for _, arrays in parts), strict=True)))


def test_arrays_come_back_from_their_file_as_they_were(tmp_path):
    place = ('voc12', 's = 20', (0.2,))
    given = collected('hml', '3', [(place, {'test_map': np.float32(80)}), (place, {'test_map': np.float32(83)}), (('voc12', 's = 20', (0.4,)), {})], ['one'],
                      [['voc12', 'voc12_animals']])
    drawing.write_collected(tmp_path / 'a.npz', given)
    found = drawing.read_collected(tmp_path / 'a.npz')
    assert found == given and found.parts('voc12', 's = 20', (0.4,)) == [{}] and found.parts('voc12', 's = 40') == []
    summary = [[81.5, np.nan], [80, np.nan], [83, np.nan]]                  # mean, lowest and highest of the seeds
    assert np.array_equal(found.along('voc12', 's = 20', [(0.2,), (0.6,)], 'test_map'), summary, equal_nan=True)


def test_a_curve_over_epochs_ends_where_the_first_of_its_seeds_stopped():
    given = collected('opml', '4', [(('cub', 'BCE', ()), {'val_map': np.array(v)}) for v in ([1, 2, 6], [3, 1], [2, 6, 1, 5])], [], [['cub', 'cub_crops']])
    assert given.over_seeds('cub', 'BCE', 'val_map').tolist() == [[2, 3], [1, 1], [3, 6]]


def test_a_curve_is_the_mean_with_a_band_from_the_lowest_to_the_highest():
    _, axes = drawing.sheet(1, 1)
    drawing.curve(axes[0, 0], [1, 2], np.array([[2, 3], [1, 1], [3, 6]]), 'black', label='BCE')
    line, = axes[0, 0].lines
    band, = axes[0, 0].collections
    corners = {tuple(map(float, corner)) for corner in band.get_paths()[0].vertices}
    assert line.get_xydata().tolist() == [[1, 2], [2, 3]] and corners == {(1, 1), (1, 3), (2, 1), (2, 6)}


@pytest.mark.parametrize('content', [b'not a zip', b'', b'PK\x03\x04 cut off'])
def test_a_damaged_file_is_named(content):
    file = figures.arrays_file('hml', 2, 'photos')
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    with pytest.raises(SpmlError, match='fig2.npz'): figures.draw('hml', 2, 'photos')


@pytest.mark.parametrize('number, part', [('8', {'logit': np.sort(np.random.RandomState(0).rand(5, 3, 3), 2)}), ('10', {'positive': np.linspace(0.3, 0, 30)}),
                                          ('7', {'annotated': np.linspace(1, 0, 50)})])
def test_half_filled_figures_say_what_is_missing(number, part):
    series = {'8': 'EM', '10': 'AN', '7': 'AN'}[number]
    given = collected('em_apl', number, [(('coco14', series, ()), part)], ['nus'], [['coco14', 'coco18'], ['nus', 'mirflickr14']])
    svg = drawing.draw(em_apl_figures.FIGURES[number], given).decode()
    ElementTree.fromstring(svg)
    assert svg.count('>missing<') == 1 and 'only 1 of 2 parts are done' in svg and 'EM/APL Fig. ' + number in svg and 'mirflickr14' in svg
