"""Forest plots: every claim and place with its numbers and words."""

import json
from xml.etree import ElementTree

import pandas as pd
import pytest

from spml_nb import drawing
from spml_nb.replication import forest_plot
from spml_nb.statistics import Size


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
    svg = forest_plot.draw_forest(claims)
    text = ''.join(ElementTree.fromstring(svg).itertext())
    assert svg == forest_plot.draw_forest(claims.copy()) and all(
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
    texts = list(ElementTree.fromstring(forest_plot.draw_forest(claims)).itertext())
    assert texts.count('reproduced on average') == 1 and texts.count('reproduced') == 4
    sizes = [text for text in texts if text in list(Size)]
    assert sizes == ['smaller', 'as large', 'larger']  # none where nothing is compared


@pytest.mark.silent('B')
def test_a_forest_plot_marks_what_the_paper_compares_between_two_sources():
    def words(mixed):
        return ''.join(
            ElementTree.fromstring(
                forest_plot.draw_forest(
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
        forest_plot._mark(axes[0, 0], x, 0, 'o')
    assert [(mark.get_marker(), mark.get_xdata()[0]) for mark in axes[0, 0].lines] == [
        ('<', -2),
        ('o', 1),
        ('>', 3),
    ]
