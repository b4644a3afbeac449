"""A figure's arrays in their file, and the panels that several figures are drawn with."""

import json
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from spml_nb import drawing
from spml_nb.base.errors import SpmlError
from spml_nb.replication import figure_drawing, paper_figures
from spml_nb.replication.papers import em_apl_figures
from spml_nb.statistics import Size


def collected(paper, figure, parts, missing, data):
    """A Collected of ([dataset, series, values], arrays) with some parts missing; what has the same
    place is of several seeds.
    """
    places = {
        f'{d} | {s} | {v} | {k}': {
            'dataset': d,
            'series': s,
            'values': list(v),
            'seed': k,
            'key': 'k',
        }
        for k, ((d, s, v), _) in enumerate(parts)
    }
    about = {
        'paper': paper,
        'figure': figure,
        'suite': 'photos',
        'version': 1,
        'data': data,
        'parts': places,
        'missing': missing,
    }
    return figure_drawing.FigureArrays(
        about, dict(zip(places, (arrays for _, arrays in parts), strict=True))
    )


def test_arrays_come_back_from_their_file_as_they_were(tmp_path):
    place = ('voc12', 's = 20', (0.2,))
    given = collected(
        'hml',
        '3',
        [
            (place, {'test_map': np.float32(80)}),
            (place, {'test_map': np.float32(83)}),
            (('voc12', 's = 20', (0.4,)), {}),
        ],
        ['one'],
        [['voc12', 'voc12_animals']],
    )
    figure_drawing.write_figure_arrays(tmp_path / 'a.npz', given)
    found = figure_drawing.read_figure_arrays(tmp_path / 'a.npz')
    assert (
        found == given
        and found.of_seeds('voc12', 's = 20', (0.4,)) == [{}]
        and found.of_seeds('voc12', 's = 40') == []
    )
    summary = [[81.5, np.nan], [80, np.nan], [83, np.nan]]  # mean, lowest and highest of the seeds
    assert np.array_equal(
        found.summary_along('voc12', 's = 20', [(0.2,), (0.6,)], 'test_map'),
        summary,
        equal_nan=True,
    )


def test_a_curve_over_epochs_ends_where_the_first_of_its_seeds_stopped():
    given = collected(
        'opml',
        '4',
        [(('cub', 'BCE', ()), {'val_map': np.array(v)}) for v in ([1, 2, 6], [3, 1], [2, 6, 1, 5])],
        [],
        [['cub', 'cub_crops']],
    )
    assert given.summary('cub', 'BCE', 'val_map').tolist() == [[2, 3], [1, 1], [3, 6]]


@pytest.mark.parametrize('content', [b'not a zip', b'', b'PK\x03\x04 cut off'])
def test_a_damaged_file_is_named(content):
    file = paper_figures.find_arrays('hml', 2, 'photos')
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    with pytest.raises(SpmlError, match='fig2.npz'):
        paper_figures.draw_paper_figure('hml', 2, 'photos')


@pytest.mark.parametrize(
    'number, part',
    [
        ('8', {'logit': np.sort(np.random.RandomState(0).rand(5, 3, 3), 2)}),
        ('10', {'positive': np.linspace(0.3, 0, 30)}),
        ('7', {'annotated': np.linspace(1, 0, 50)}),
    ],
)
def test_half_filled_figures_say_what_is_missing(number, part):
    series = {'8': 'EM', '10': 'AN', '7': 'AN'}[number]
    given = collected(
        'em_apl',
        number,
        [(('coco14', series, ()), part)],
        ['nus'],
        [['coco14', 'coco18'], ['nus', 'mirflickr14']],
    )
    svg = figure_drawing.draw_figure(em_apl_figures.FIGURES[number], given).decode()
    ElementTree.fromstring(svg)
    assert (
        svg.count('>missing<') == 1
        and 'only 1 of 2 parts are done' in svg
        and 'EM/APL Fig. ' + number in svg
        and 'mirflickr14' in svg
    )


def pair(seeds, **known):
    return [{'seed': seed, **known} for seed in seeds]


@pytest.mark.parametrize(
    ('parts', 'missing', 'lines'),
    [
        (pair([0]), [], ['LAC Fig. 3, on voc12_animals, one seed']),
        (pair([0, 1]), [], ['LAC Fig. 3, on voc12_animals']),
        (
            pair([0, 1], exercised=1),
            ['x'],
            ['LAC Fig. 3, on voc12_animals', 'only 2 of 3 parts are done'],
        ),
        (
            pair([0, 1], exercised=0) + pair([2], exercised=1) + pair([3], exercised=None),
            [],
            [
                'LAC Fig. 3, on voc12_animals',
                "not exercised in 2 of 3 runs: the epoch was chosen before the method's own "
                "mechanism began",
            ],
        ),
    ],
)
def test_a_title_says_what_has_to_be_known_of_the_runs(parts, missing, lines):
    about = {
        'paper': 'lac',
        'figure': '3',
        'data': [['voc12', 'voc12_animals']],
        'parts': dict(enumerate(parts)),
        'missing': missing,
    }
    assert figure_drawing._title(about, 200) == lines


VALUES = (0.1, 0.5, 0.9)


def square(score, chosen, seeds=(0, 1, 2)):
    "A grid of 3 × 3 values on one data set. score, chosen: functions of (a, b, seed)."
    parts = [
        (
            ('voc12', 'OPML', (a, b)),
            {'test_map': np.float32(score(a, b, s)), 'val_map': np.float32(chosen(a, b, s))},
        )
        for a in VALUES
        for b in VALUES
        for s in seeds
    ]
    given = collected('opml', '5', parts, [], [['voc12', 'voc12_animals']])
    for k, part in enumerate(given.about['parts'].values()):
        part['seed'] = seeds[k % len(seeds)]
    return given


def test_the_frame_of_a_grid_is_where_validation_is_best_whatever_the_test_images_say():
    given = square(lambda a, b, s: 60 + 10 * a + 10 * b + s, lambda a, b, s: 60 - 10 * a + 10 * b)
    ax = figure_drawing.draw_grid(
        given,
        'OPML',
        figure_drawing.Axis('α', VALUES),
        figure_drawing.Axis('β', VALUES),
        'ZLPR',
        (0.5, 0.5),
    ).axes[0]
    frames = {
        patch.get_label(): (patch.get_x() + 0.46, patch.get_y() + 0.46) for patch in ax.patches
    }
    assert frames == {
        'chosen on validation': pytest.approx((2, 0)),
        'ZLPR': pytest.approx((1, 1)),
    }  # (β, α)
    assert {t.get_text() for t in ax.texts} >= {'63.0', '79.0'}


def test_colours_of_a_grid_do_not_show_what_is_noise():
    random = np.random.RandomState(0)

    def shades(gain, noise):
        given = square(
            lambda a, b, s: 60 + gain * a + 5 * s + noise * random.normal(), lambda a, b, s: 0
        )  # seeds differ by more than cells
        return np.unique(
            figure_drawing.draw_grid(
                given,
                'OPML',
                figure_drawing.Axis('α', VALUES),
                figure_drawing.Axis('β', VALUES),
                'ZLPR',
                (0.5, 0.5),
            )
            .axes[0]
            .images[0]
            .get_array()
            .round(2)
        )

    assert (
        max(len(shades(0, 1.0)) for _ in range(10)) <= 3
        and shades(0, 1.0).max() <= 0.5
        and len(shades(20, 0.1)) >= 3
        and shades(20, 0.1).max() == 1
    )
    wide = pd.DataFrame([[1.0, 11.0], [2.0, 12.0], [3.0, 13.0]])
    assert (
        figure_drawing._least_difference(wide) == pytest.approx(0)
        and figure_drawing._least_difference(wide[[0]]) == 0
    )
    noisy = pd.DataFrame(random.normal(size=(50, 40)))
    assert figure_drawing._least_difference(noisy) == pytest.approx(1.96 * (2 / 40) ** 0.5, rel=0.1)


def test_ticks_read_like_numbers():
    assert [figure_drawing._tick(v) for v in (1e-6, 1e-4, 0.1, 0.5, 4096, 0)] == [
        '10⁻⁶',
        '10⁻⁴',
        '0.1',
        '0.5',
        '4096',
        '0',
    ]


def test_no_legend_lies_on_data():
    given = collected(
        'em_apl',
        '7',
        [(('voc12', name, ()), {'annotated': np.linspace(1, 0.1, 20)}) for name in ('AN', 'EM')],
        [],
        [['voc12', 'voc12_animals']],
    )
    picture = em_apl_figures.FIGURES['7'].draw(given)
    picture.draw_without_rendering()
    (key,) = picture.legends
    assert all(ax.get_legend() is None for ax in picture.axes) and [
        t.get_text() for t in key.get_texts()
    ] == ['AN', 'EM']
    box = key.get_window_extent()
    assert (
        not any(box.overlaps(ax.get_window_extent()) for ax in picture.axes)
        and picture.axes[0].get_yscale() == 'log'
    )


def line(place='', word='reproduced', mean=1.2, half=0.7, published=2.1, n=10, mixed=False):
    low, high = (None, None) if half is None else (mean - half, mean + half)
    return {
        'place': place,
        'between': '',
        'word': word,
        'on_average': False,
        'size': 'not printed',
        'mean': mean,
        'low': low,
        'high': high,
        'published': published,
        'seeds': n,
        'mean_told': mean + 1,
        'published_told': published and published + 1,
        'mixed': mixed,
    }


def test_a_forest_plot_has_every_claim_and_place_with_its_numbers_and_words():
    none = {'mean': None, 'low': None, 'high': None, 'seeds': 0}
    lines = [
        [
            line(),
            line('cub_crops for CUB', 'undecided', -0.3, 0.8, 40.0),
            line('coco18 for COCO', 'undecided', 0.5, None, None, 1),
        ],
        [line('', 'not run') | none, line('ccp', 'incomplete')],
    ]
    claims = pd.DataFrame(
        {
            'claim': ['A costs $5 & more <than> B.', 'Never run.'],
            'forest': [json.dumps(each) for each in lines],
        }
    )
    svg = figure_drawing.draw_forest(claims)
    text = ''.join(ElementTree.fromstring(svg).itertext())
    assert svg == figure_drawing.draw_forest(claims.copy()) and all(
        words in text
        for words in (
            'A costs $5 & more <than> B.',
            '+2.2 ± 0.7',
            'paper +3.1',
            'cub_crops for CUB',
            '+0.7 ± 0.8',
            'paper +41.0',
            '+1.5, 1 seed',
            'undecided',
            'not run',
            'incomplete',
        )
    )


def test_a_forest_plot_has_both_words_of_a_claim_and_of_its_places():
    together = line() | {'on_average': True, 'size': 'smaller'}
    places = [line('VOC') | {'size': 'as large'}, line('COCO') | {'size': 'larger'}]
    places += [line('CUB') | {'size': 'mixed sources'}, line('NUS')]
    claims = pd.DataFrame({'claim': ['A'], 'forest': [json.dumps([together, *places])]})
    texts = list(ElementTree.fromstring(figure_drawing.draw_forest(claims)).itertext())
    assert texts.count('reproduced on average') == 1 and texts.count('reproduced') == 4
    sizes = [text for text in texts if text in list(Size)]
    assert sizes == ['smaller', 'as large', 'larger']  # none where nothing is compared


@pytest.mark.silent('B')
def test_a_forest_plot_marks_what_the_paper_compares_between_two_sources():
    def words(mixed):
        return ''.join(
            ElementTree.fromstring(
                figure_drawing.draw_forest(
                    pd.DataFrame({'claim': ['A'], 'forest': [json.dumps([line(mixed=mixed)])]})
                )
            ).itertext()
        )

    assert (
        'paper +3.1†' in words(True)
        and 'several sources' in words(True)
        and '†' not in words(False)
    )


def test_a_mark_beyond_the_axis_becomes_an_arrowhead_at_its_edge():
    _, axes = drawing.make_axes(1, 1)
    axes[0, 0].set_xlim(-2, 3)
    for x in (-9, 1, 9):
        figure_drawing._mark(axes[0, 0], x, 0, 'o')
    assert [(mark.get_marker(), mark.get_xdata()[0]) for mark in axes[0, 0].lines] == [
        ('<', -2),
        ('o', 1),
        ('>', 3),
    ]
