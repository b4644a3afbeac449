"The top of README.md: made from the table of record, the same every time, and never out of date."

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from spml_nb import statistics, sweeps
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.data.labels import FULL_PHOTOS
from spml_nb.replication import (
    clean_photos,
    front,
    gains,
    more_photos,
    published,
    tables,
    thresholds,
    without_clean,
)

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 100 * 1024


def between(text):
    return front.BEGIN + text.split(front.BEGIN)[1].split(front.END)[0] + front.END


METHOD = next(m for m in front.METHODS if m.name == 'HML')
NOTHING = pd.DataFrame(columns=['source', 'loss', 'head', 'dataset', 'published', 'ours'])
HEADS = {'own': ('hml', None), 'same': ('an', 'cosine'), 'plain': ('an', 'linear')}


def lines_for(panel, scores):
    """Fabricated runs of HML, of AN on its head and of plain AN. scores: {'own', 'same', 'plain':
    by seed}.
    """
    row, _, column = METHOD.cells[panel]
    cell = (
        published.table_cells('hml', '4')
        .set_index(['row', 'column'], drop=False)
        .loc[(row, column)]
        .to_dict()
    )
    lines = {}
    for part, (loss, head) in HEADS.items():
        plan = tables.plan_cell(
            {**cell, 'config': {**cell['config'], 'loss': loss, 'head': head}}, front.SUITE
        )
        lines = {sweeps.key(c): {'val_map': 50.0, 'test_map': 0.0} for c in plan.search} | lines
        for config in tables.cell_final_runs(
            plan, pd.DataFrame.from_dict(lines, orient='index'), tuple(scores[part])
        ):
            lines[sweeps.key(config)] = {'val_map': 50.0, 'test_map': scores[part][config.seed]}
    return pd.DataFrame.from_dict(lines, orient='index').rename_axis('key')


NO_BOARDS = pd.DataFrame(columns=gains.COLUMNS)


def agreed(found, sources=NOTHING):
    return front.source_agreement(found, sources, NO_BOARDS)


SCORES = {
    'own': {0: 71.0, 1: 74.0, 2: 70.0},
    'same': {0: 70.0, 1: 70.0, 2: 70.5},
    'plain': {0: 66.0, 1: 67.0, 2: 68.0},
}


@pytest.fixture(scope='module')
def found():
    return front.front_gains(lines_for('VOC', SCORES))


def test_two_pictures_are_the_same_bytes_small_and_self_contained(found):
    first = front.draw_front(found)
    assert (
        first == front.draw_front(found.copy())
        and len(first) <= LIMIT
        and b'<dc:date>' not in first
    )
    tree = ElementTree.fromstring(first)
    links = [
        value
        for element in tree.iter()
        for name, value in element.attrib.items()
        if name.endswith('href')
    ]
    assert all(link.startswith('#') for link in links)
    text = ''.join(tree.itertext())
    assert all(method.name in text for method in front.METHODS) and all(
        panel in text for panel in front.PANELS
    )
    assert 'fully labelled validation images' in text and 'search budget' in text


def test_a_gain_is_taken_seed_by_seed_over_the_same_head_and_over_plain_an(found):
    line = found.set_index(['method', 'panel']).loc[('HML', 'VOC')]
    effect = statistics.estimate_effect(
        [1.0, 4.0, -0.5], None, statistics.image_sd(published.find_stand_in('voc12', front.SUITE))
    )
    assert (line.ours, line.half, line.n, line.plain) == pytest.approx(
        (1.5, effect.half_width, 3, 14 / 3), abs=1e-3
    )
    assert (
        line.published == pytest.approx(2.2)
        and found.set_index(['method', 'panel']).loc[('Two-way*', 'CUB'), 'n'] == -1
    )
    text = front.format_front(found, NO_BOARDS, agreed(found), 'front.svg')
    over_plain = statistics.estimate_effect(
        [5.0, 7.0, 2.0], None, statistics.image_sd('voc12_animals')
    )  # as HML takes its gain
    assert (line.effect.mean, line.effect.half_width) == pytest.approx(
        (over_plain.mean, over_plain.half_width)
    )
    assert '| HML (HML Table 4) | +3.1 | missing | missing |' in text  # one set of four
    assert 'Still missing: ' in text
    assert b'missing' in front.draw_front(found)


def measured(rows):
    "As from `front_gains`: (method, panel, published, differences by seed, exercised)."
    effects = [statistics.estimate_effect(d) for *_, d, _ in rows]
    return pd.DataFrame(
        [
            {
                'method': m,
                'panel': p,
                'published': theirs,
                'uncounted': '',
                'ours': e.mean,
                'like': e.mean,
                'half': e.half_width,
                'like_half': e.half_width,
                'plain': e.mean - 1,
                'n': len(d),
                'exercised': acted,
                'effect': e,
                'beside': e if m == 'EM' else statistics.estimate_effect(np.subtract(d, 1)),
                'full': m == 'Two-way*',
            }
            for (m, p, theirs, d, acted), e in zip(rows, effects, strict=True)
        ]
    )


def test_the_table_has_the_mean_over_the_sets_that_a_paper_prints():
    up, none, same = [2.0, 2.1, 1.9], [0.0, 0.1, -0.1], [1.0, 1.0, 1.0]
    rows = [
        (method, panel, theirs, differences, method != 'EM+APL')
        for method in ('EM', 'EM+APL', 'HML', 'Two-way*')
        for panel, theirs, differences in (('VOC', 4.0, up), ('CUB', 2.0, none))
    ]
    found = measured([*rows, ('OPML', 'VOC', 0.4, same, True)])
    found['uncounted'] = np.where(found.method == 'OPML', 'over ZLPR', '')
    text = front.format_front_table(found)
    half = statistics.pool_effects([*found.effect[:2]]).half_width
    both = f'+1.0 ± {half:.1f}'
    assert half < 1
    assert f'| EM (EM/APL Table 1) | +3.0 | **{both}** | **{both}** |' in text
    assert '| EM+APL (EM/APL Table 1) | +3.0 | not exercised | not exercised |' in text
    assert f'| HML (HML Table 4) | +3.0 | **{both}** | +0.0 ± ' in text
    assert f'| Two-way\\* (Two-way Table 7) | +3.0 | **{both}** | – |' in text
    assert '| OPML (OPML Table II) | +0.4† | **+1.0 ± 0.0** | +0.0 ± 0.0 |' in text
    assert '| LAC' not in text


_GAIN = statistics.estimate_effect([2.0, 2.1, 1.9])
_EM = front.Leader('EM', 'linear', _GAIN, '', None, ())
LEADERS = front.Leaders(2, _EM, None, _EM, ('EM',), (), ())


def test_what_was_found_is_made_from_the_numbers():
    up, none, wide, down = [2.0, 2.1, 1.9], [0.0, 0.1, -0.1], [3.0, -2.0, 1.0], [-2.0, -2.1, -1.9]
    rows = [
        (m, p, theirs, d, m != 'EM+APL')
        for m, theirs, d in (
            ('EM', 4.0, up),
            ('EM+APL', 5.0, up),
            ('WAN', 0.05, none),
            ('LS', 0.5, wide),
            ('EPR', -2.0, down),
            ('Two-way*', 9.0, up),
        )
        for p in ('VOC', 'CUB')
    ]
    found = measured(rows)
    agreement = agreed(found)
    assert agreement['proposed'] == front.Inside(('EM',), 2, 0, 2, 0)
    assert agreement['reprinted'] == front.Inside(('WAN', 'LS', 'EPR'), 6, 6, 0, 0)
    text = ' '.join(front.front_findings(LEADERS, agreement).split())
    assert 'Of 2 gains that papers print of their own methods (EM), 0 lie within our' in text
    assert '2 are larger than ours, 0 smaller' in text
    own = agreement['own']
    assert (own.methods, own.cells, own.correlation[0]) == (4, 8, pytest.approx(1))
    assert (own.first, own.second) == pytest.approx((0.6375, 0.1667), abs=1e-3)
    assert 'rank correlation of 8 gains is +1.00 (' in text
    one = measured([(m, p, 0.1, d, a) for m, p, _, d, a in rows if m == 'EM'])
    alone = agreed(one)
    assert (alone['own'], alone['proposed'].below) == (None, 2)
    assert 'rank correlation' not in front.front_findings(LEADERS, alone)
    nothing = front.front_gains(pd.DataFrame())
    assert front.front_findings(None, agreed(nothing)) == ''


@pytest.mark.silent('B')
def test_no_cell_that_counts_has_a_baseline_of_another_source():
    every = front.front_gains(pd.DataFrame()).assign(
        n=10, exercised=True, ours=1.0, like=1.0, like_half=0.5
    )
    counted = front.comparable_gains(every)
    places = {
        method.name: (method, published.index_cells(method.paper, method.table))
        for method in front.METHODS
    }
    for line in every[every.full.eq(False) & every.published.notna()].itertuples():
        method, cells = places[line.method]
        row, printed, column = method.cells[line.panel]
        copied = cells[row, column]['source'] != cells[printed, column]['source']
        assert copied == (line.Index not in counted.index) and copied == method.name.startswith(
            ('LL-', 'OPML')
        )
        if not copied:
            assert line.published == pytest.approx(
                cells[row, column]['mean'] - cells[printed, column]['mean']
            )
    by_source = front.gains_by_source(pd.DataFrame())
    assert by_source.groupby('source').size().to_dict() == {
        'Cole et al. 2021': 16,
        'EM/APL': 40,
        'LAC': 28,
    }


@pytest.mark.silent('B')
def test_opmls_gains_are_over_its_own_zlpr_published_and_ours():
    line = front.front_gains(pd.DataFrame()).set_index(['method', 'panel']).loc[('OPML', 'VOC')]
    assert line.published == pytest.approx(87.77 - 87.63)
    rows = [('OPML', p, 0.1, [0.5, 0.6, 0.4], True) for p in ('VOC', 'CUB')] + [
        (m, p, g, [g, g + 0.1, g - 0.1], True)
        for m, g in (('EM', 3.0), ('WAN', 1.0), ('LS', 2.0))
        for p in ('VOC', 'CUB')
    ]
    frame = measured(rows)
    frame['uncounted'] = np.where(frame.method == 'OPML', 'over ZLPR', '')
    own = agreed(frame)['own']
    assert (own.methods, own.cells, own.first, own.second) == (3, 6, 2, 2)
    assert own.correlation[0] == 1


def levels(sets=('coco18', 'ccp'), **means):
    "As from `front.method_levels`: {method_head: mean}, seeds apart by 0.1."
    return {
        tuple(name.rsplit('_', 1)): {
            each: statistics.Scores(pd.Series([mean, mean + 0.1, mean - 0.1]), '') for each in sets
        }
        for name, mean in means.items()
    }


@pytest.fixture
def exact(monkeypatch):
    "The seeds of `levels` move together, so that differences have no interval."
    monkeypatch.setattr(statistics, 'image_error', lambda *given: 0.0)


def test_what_a_head_adds_is_told_apart_from_its_method(exact):
    found = front.leaders(
        levels(
            an_linear=50.0,
            an_cosine=51.4,
            em_linear=52.0,
            em_cosine=51.0,
            hml_cosine=53.0,
            wan_linear=49.0,
            ls_linear=50.0,
            boostlu_llr_maps=49.5,
        )
    )
    assert found.sets == 2
    assert (found.above, found.below, found.open) == (('HML', 'EM'), ('WAN',), ('LS',))
    top, linear = found.top, found.linear
    assert (top.name, top.head, top.second) == ('HML', 'cosine', 'EM')
    assert (linear.name, linear.head, linear.second) == ('EM', 'linear', 'LS')
    effects = (top.gain, found.due_to_head, top.lead, linear.gain)
    assert [(e.mean, e.half_width) for e in effects] == [
        (pytest.approx(mean), pytest.approx(0)) for mean in (3, 1.4, 1, 2)
    ]


def test_a_leader_on_a_linear_head_owes_nothing_to_it(exact):
    found = front.leaders(levels(an_linear=50.0, em_linear=52.0, em_cosine=51.0))
    assert (found.top.name, found.top.second, found.top.lead) == ('EM', '', None)
    assert found.due_to_head is None
    assert front.leaders(levels(em_linear=52.0)) is front.leaders({}) is None
    assert front.leaders(levels(an_linear=50.0)) is None


def test_a_method_that_ran_on_fewer_sets_may_be_as_good(exact):
    everywhere = levels(an_linear=50.0, hml_cosine=53.0, em_linear=52.0, an_cosine=51.0)
    for mean, rivals in ((54.0, ('WAN on the cosine head',)), (52.0, ())):
        found = front.leaders(everywhere | levels(('ccp',), wan_cosine=mean))
        assert (found.top.name, found.top.second, found.top.rivals) == ('HML', 'EM', rivals)


def test_an_equal_that_names_labels_far_worse_is_called_so(exact):
    ranks = levels(an_linear=50.0, hml_cosine=53.0, em_linear=53.0)
    ranks |= levels(('ccp',), wan_cosine=54.0)
    micro_f1 = {
        ('hml', 'cosine'): {'coco18': 70.0, 'ccp': 60.0},
        ('em', 'linear'): {'coco18': 66.0, 'ccp': 57.0},  # less than FAR_BELOW, on the mean
        ('wan', 'cosine'): {'ccp': 47.5},
    }
    top = front.leaders(ranks, micro_f1).top
    assert top.second == 'EM'
    assert top.rivals == ('WAN on the cosine head – 12.5 points of micro-F1 below it',)
    micro_f1['em', 'linear']['ccp'] = 47.0
    assert front.leaders(ranks, micro_f1).top.second == 'EM – 8.5 points of micro-F1 below it'


def test_how_many_photos_to_label_in_full_first_stands_in_the_answer():
    nothing = agreed(measured([('EM', 'VOC', 4.0, [2.0, 2.1, 1.9], True)]))
    gain = statistics.estimate_effect([1.0, 1.2, 1.1])
    text = ' '.join(front.front_findings(LEADERS, nothing, by_photos=gain).split())
    assert f'threshold: {FULL_PHOTOS} of them gain +1.1 ±' in text
    assert 'the threshold:' not in front.front_findings(LEADERS, nothing)


def test_the_leader_stands_in_the_answer_with_its_lead(exact):
    agreement = agreed(measured([('EM', 'VOC', 4.0, [2.0, 2.1, 1.9], True)]))

    def answer(**means):
        text = front.front_findings(front.leaders(levels(**means)), agreement)
        return ' '.join(text.split()).partition('- **Was the papers')[0]

    text = answer(an_linear=50.0, an_cosine=51.4, em_linear=52.0, hml_cosine=53.0, wan_linear=51.0)
    numbers = ('+3.0 ± 0.0', '+1.4', '+2.0 ± 0.0')
    assert [text.index(number) for number in numbers] == sorted(map(text.index, numbers))
    assert 'told apart' not in text
    text = answer(an_linear=50.0, em_linear=52.0, wan_linear=52.0)
    assert 'EM gains +2.0' in text and 'Not told apart from EM: WAN.' in text
    assert 'linear head' not in text


def test_the_answer_is_told_by_the_number_of_photos(exact):
    agreement = agreed(measured([('EM', 'VOC', 4.0, [2.0, 2.1, 1.9], True)]))
    leading = front.leaders(levels(an_linear=50.0, em_linear=52.0, hml_cosine=53.0))
    few, many = (
        [statistics.Effect(m, m - 0.5, m + 0.5, *[0.0] * 5, 5) for m in means]
        for means in ((6, 3), (2, 2))
    )
    for gains_by_size, falls in (((few, many), True), ((many, few), False)):
        by_size = dict(zip((600, 19_200), gains_by_size, strict=True))
        by_size = {'dataset': 'coco18_30k', 'names': ['HML', 'EM'], 'gains': by_size}
        text = front.front_findings(leading, agreement, by_size=by_size)
        assert ('HML, above all with few photos.' in text) == falls
        assert f'  | 600 | {gains_by_size[0][0].mean:+.1f} ± 0.5 |' in text
        assert '\n  On the mean of 2 sets' in text  # still the same item of the list


@pytest.mark.skipif(not (ROOT / 'outputs' / 'runs.csv').is_file(), reason='no table of record')
def test_methods_outside_of_the_picture_stand_in_the_order_too():
    known = tables.record(ROOT / 'outputs' / 'runs.csv')
    found = front.method_levels(gains.gains_of_suites(known))
    assert {
        ('an', 'linear'),
        ('an', 'cosine'),
        ('hml', 'cosine'),
        ('two_way_class', 'cosine'),
    } <= found.keys() and ('em_apl', 'linear') not in found
    seeds = found['hml', 'cosine']['coco18']
    assert list(seeds.by_seed.index) == list(range(10)) and seeds.key in known.index


def test_a_gain_without_the_methods_own_mechanism_says_so():
    known = pd.concat([lines_for(panel, SCORES) for panel in front.PANELS])
    for acted in (0, 1):
        text = front.format_front_table(front.front_gains(known.assign(exercised=acted)))
        assert ('| HML (HML Table 4) | +3.1 | not exercised |' in text) == (not acted)


def test_without_any_run_everything_is_missing(monkeypatch):
    outputs, nothing = settings.path('outputs'), front.front_gains(pd.DataFrame())
    monkeypatch.setattr(front, 'front_gains', lambda known: nothing)
    (outputs.parent / 'README.md').write_text(f'# Mine\n\n{front.BEGIN}\n{front.END}\nThe rest.\n')
    assert (
        front.write_front() == [outputs / 'front.svg', outputs.parent / 'README.md']
        and front.write_front() == []
    )
    text = (outputs.parent / 'README.md').read_text()
    assert text.startswith(f'# Mine\n\n{front.BEGIN}') and text.endswith(
        f'{front.END}\nThe rest.\n'
    )
    assert '(outputs/front.svg)' in text and '**' not in front.format_front_table(nothing)


def test_the_same_record_elsewhere_gives_the_same_files(tmp_path):
    for name in ('one', 'two'):
        (tmp_path / name / 'outputs').mkdir(parents=True)
        (tmp_path / name / 'README.md').write_text('no marks')
        assert (
            front.write_front(tmp_path / name) == [tmp_path / name / 'outputs' / 'front.svg']
            and (tmp_path / name / 'README.md').read_text() == 'no marks'
        )
    assert (tmp_path / 'one' / 'outputs' / 'front.svg').read_bytes() == (
        tmp_path / 'two' / 'outputs' / 'front.svg'
    ).read_bytes()


@pytest.mark.skipif(not (ROOT / 'outputs' / 'runs.csv').is_file(), reason='no table of record')
def test_what_readme_shows_is_what_the_record_says(monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))  # with the resampled test images
    known = tables.record(ROOT / 'outputs' / 'runs.csv')
    found = front.front_gains(known)
    boards = gains.gains_of_suites(known)
    agreement = front.source_agreement(found, front.gains_by_source(known), boards)
    remedy = 'give `make tables`: README.md or outputs/front.svg is older than outputs/runs.csv'
    assert between((ROOT / 'README.md').read_text()) == front.format_front(
        found,
        boards,
        agreement,
        'outputs/front.svg',
        without_clean.of_record(),
        clean_photos.average_uses(known),
        more_photos.compare_sizes(more_photos.measure_gains(known), front.BY_PHOTOS),
        thresholds.estimate_gain_of_photos(FULL_PHOTOS),
    ), remedy
    assert (ROOT / 'outputs' / 'front.svg').read_bytes() == front.draw_front(found), remedy
    two_way = next(method for method in front.METHODS if method.name == 'Two-way*')
    compared = found.set_index(['method', 'panel'])
    table = pd.read_csv(ROOT / 'outputs' / 'two_way' / 'table7.csv').set_index(
        ['row', 'column']
    )  # in mAP@class, as the paper measures
    for panel, (row, _, column) in two_way.cells.items():
        assert (
            compared.half[two_way.name, panel],
            compared.ours[two_way.name, panel],
        ) == pytest.approx(table.loc[(row, column), ['gain_half', 'gain']].tolist(), abs=1e-4)


def test_a_damaged_record_changes_nothing(tmp_path):
    (tmp_path / 'outputs').mkdir()
    (tmp_path / 'outputs' / 'runs.csv').write_text('nonsense\n')
    (tmp_path / 'README.md').write_text(f'{front.BEGIN}old{front.END}')
    with pytest.raises(SpmlError, match='runs.csv, line 1'):
        front.write_front(tmp_path)
    assert (tmp_path / 'README.md').read_text() == f'{front.BEGIN}old{front.END}' and not (
        tmp_path / 'outputs' / 'front.svg'
    ).exists()


@pytest.mark.parametrize(
    ('text', 'counts'),
    [
        (f'before {front.BEGIN} old, and all the rest', '1 times and <!-- front:end --> 0 times'),
        (f'before {front.END} rest', '0 times and <!-- front:end --> 1 times'),
        (f'{front.END} between {front.BEGIN} rest', '1 times and <!-- front:end --> 1 times'),
        (f'{front.BEGIN}{front.BEGIN}{front.END} rest', '2 times'),
        (
            f'{front.BEGIN}{front.END} kept {front.BEGIN}{front.END} rest',
            '2 times and <!-- front:end --> 2 times',
        ),
    ],
)
def test_marks_that_do_not_enclose_one_part_change_nothing(tmp_path, text, counts):
    (tmp_path / 'README.md').write_text(text)
    with pytest.raises(SpmlError) as error:
        front.write_front(tmp_path)
    assert (
        str(tmp_path / 'README.md') in str(error.value)
        and front.BEGIN in str(error.value)
        and counts in str(error.value)
    )
    assert (tmp_path / 'README.md').read_text() == text and not (tmp_path / 'outputs').exists()


def test_a_pair_of_methods_changes_places_where_the_published_order_is_turned_round():
    cells = pd.DataFrame(
        [
            ('VOC', 'EM', 3.0, 1.0),
            ('VOC', 'HML', 2.0, 4.0),
            ('COCO', 'EM', 3.0, 1.0),
            ('COCO', 'HML', 4.0, 2.0),
            ('CUB', 'EM', 3.0, 1.0),  # alone there
        ],
        columns=['panel', 'method', 'published', 'like'],
    )
    assert front._compare_orders(cells) == [front.Pair('EM', 'HML', turned=1, sets=2)]
