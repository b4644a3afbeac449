"The top of README.md: made from the table of record, the same every time, and never out of date."

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from front_rows import (  # noqa: F401 (fixtures)
    SCORES,
    agreed,
    exact,
    hml_on_voc,
    levels,
    lines_for,
    measured,
)
from worked_out import suite_gains

from spml_nb import statistics
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.data.labels import FULL_PHOTOS
from spml_nb.replication import (
    agreement,
    board,
    front_page,
    gains,
    published,
    study,
    tables,
    without_clean,
)
from spml_nb.replication.experiments import (
    clean_photos,
    more_photos,
    observed_choice_page,
    second_backbone,
    thresholds,
)

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 100 * 1024
NO_RUNS = pd.DataFrame(), gains.gains_of_suites(pd.DataFrame())


def between(text):
    return (
        front_page.BEGIN + text.split(front_page.BEGIN)[1].split(front_page.END)[0] + front_page.END
    )


def test_two_pictures_are_the_same_bytes_small_and_self_contained(hml_on_voc):  # noqa: F811
    first = front_page.draw_front(hml_on_voc)
    assert (
        first == front_page.draw_front(hml_on_voc.copy())
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
    assert all(method.name in text for method in front_page.METHODS) and all(
        panel in text for panel in published.ORIGINAL_SETS
    )
    assert 'fully labelled validation images' in text and 'search budget' in text


def test_the_table_has_the_mean_over_the_sets_that_a_paper_prints():
    up, none, same = [2.0, 2.1, 1.9], [0.0, 0.1, -0.1], [1.0, 1.0, 1.0]
    rows = [
        (method, panel, theirs, differences, method != 'EM+APL')
        for method in ('EM', 'EM+APL', 'HML', 'Two-way*')
        for panel, theirs, differences in (('VOC', 4.0, up), ('CUB', 2.0, none))
    ]
    found = measured([*rows, ('OPML', 'VOC', 0.4, same, True)])
    found['uncounted'] = np.where(found.method == 'OPML', 'over ZLPR', '')
    text = front_page.format_front_table(found)
    half = statistics.pool_effects([*found.effect[:2]]).half_width
    both = f'+1.0 ± {half:.1f}'
    assert half < 1
    assert f'| EM (EM/APL Table 1, 2 sets) | +3.0 | **{both}** | **{both}** |' in text
    assert 'EM+APL' not in text  # its mechanism did not act
    assert f'| HML (HML Table 4, 2 sets) | +3.0 | **{both}** | +0.0 ± ' in text
    assert f'| Two-way\\* (Two-way Table 7, 2 sets) | +3.0 | **{both}** | – |' in text
    assert '| OPML (OPML Table II, 1 set) | +0.4† | **+1.0 ± 0.0** | +0.0 ± 0.0 |' in text
    assert '| LAC' not in text


_GAIN = statistics.estimate_effect([2.0, 2.1, 1.9])
_EM = board.Leader('EM', 'linear', _GAIN, (), ())
LEADERS = board.Leaders(2, _EM, None, _EM, ('EM',), (), ())


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
    compared = agreed(found)
    assert compared['proposed'] == agreement.Inside(('EM',), 2, 0, 2, 0)
    assert compared['reprinted'] == agreement.Inside(('WAN', 'LS', 'EPR'), 6, 6, 0, 0)
    text = ' '.join(front_page.front_findings(LEADERS, compared).split())
    assert 'Of 2 gains that papers print of their own methods (EM), 0 lie within our' in text
    assert 'interval, 2 above it, 0 below' in text
    own = compared['own']
    assert (own.methods, own.cells, own.correlation[0]) == (4, 8, pytest.approx(1))
    assert (own.first, own.second) == pytest.approx((0.6375, 0.1667), abs=1e-3)
    assert 'rank correlation of 8 gains is +1.00 (' in text
    one = measured([(m, p, 0.1, d, a) for m, p, _, d, a in rows if m == 'EM'])
    alone = agreed(one)
    assert (alone['own'], alone['proposed'].below) == (None, 2)
    assert 'rank correlation' not in front_page.front_findings(LEADERS, alone)
    nothing = front_page.front_gains(pd.DataFrame())
    assert front_page.front_findings(None, agreed(nothing)) == ''


def test_how_many_photos_to_label_in_full_first_stands_in_the_answer():
    nothing = agreed(measured([('EM', 'VOC', 4.0, [2.0, 2.1, 1.9], True)]))
    gain = statistics.estimate_effect([1.0, 1.2, 1.1])
    text = ' '.join(front_page.front_findings(LEADERS, nothing, by_photos=gain).split())
    assert f': {FULL_PHOTOS} of them gain +1.1 ±' in text
    assert 'the threshold' not in front_page.front_findings(LEADERS, nothing)


def test_the_leader_stands_in_the_answer_with_its_lead(exact):  # noqa: F811
    compared = agreed(measured([('EM', 'VOC', 4.0, [2.0, 2.1, 1.9], True)]))

    def answer(**means):
        text = front_page.front_findings(board.find_leaders(levels(**means)), compared)
        return ' '.join(text.split()).partition('- **Was the papers')[0]

    text = answer(an_linear=50.0, an_cosine=51.4, em_linear=52.0, hml_cosine=53.0, wan_linear=51.0)
    numbers = ('+3.0 ± 0.0', 'alone: +1.4', '+2.0 ± 0.0')
    assert [text.index(number) for number in numbers] == sorted(map(text.index, numbers))
    assert 'told apart' not in text
    text = answer(an_linear=50.0, em_linear=52.0, wan_linear=52.0)
    assert 'EM gains +2.0 ± 0.0 on average, +2.0 to +2.0 on single ones. Not told' in text
    assert 'Not told apart from EM: WAN.' in text
    assert 'linear head' not in text


def test_the_answer_is_told_by_the_number_of_photos(exact):  # noqa: F811
    compared = agreed(measured([('EM', 'VOC', 4.0, [2.0, 2.1, 1.9], True)]))
    leading = board.find_leaders(levels(an_linear=50.0, em_linear=52.0, hml_cosine=53.0))
    few, more, many = (
        [statistics.Effect(m, m - 0.5, m + 0.5, *[0.0] * 5, 5) for m in means]
        for means in ((6, 3), (1, 1), (-0.2, 2))
    )
    for gains_by_size, only_few in (((few, more, many), True), ((many, more, few), False)):
        by_size = [
            {
                'dataset': dataset,
                'names': ['HML', 'EM'],
                'gains': dict(zip((600, 4_800, 19_200), gains_by_size, strict=True)),
                'leads': dict(zip((600, 4_800, 19_200), (one for one, _ in leads), strict=True)),
            }
            for dataset, leads in (('coco18_30k', gains_by_size), ('ours', gains_by_size))
        ]
        text = front_page.front_findings(leading, compared, by_size=by_size)
        assert ('HML, while photos are few: with the most' in text) == only_few
        row = '  | coco18_30k, 600 | {0:+.1f} ± 0.5 | {1:+.1f} ± 0.5 | {0:+.1f} ± 0.5 |'
        assert row.format(*(gain.mean for gain in gains_by_size[0])) in text.replace('−', '-')
        assert '  | ours, 19,200 |' in text
        assert '\n  On 2 sets' in text  # still the same item of the list


def test_a_gain_without_the_methods_own_mechanism_says_so():
    known = pd.concat([lines_for(panel, SCORES) for panel in published.ORIGINAL_SETS])
    for acted in (0, 1):
        text = front_page.format_front_table(front_page.front_gains(known.assign(exercised=acted)))
        assert ('| HML (HML Table 4) | +3.1 | ' in text) == bool(acted)


def test_without_any_run_everything_is_missing(monkeypatch):
    outputs, nothing = settings.get_folder('outputs'), front_page.front_gains(pd.DataFrame())
    monkeypatch.setattr(front_page, 'front_gains', lambda known: nothing)
    (outputs.parent / 'README.md').write_text(
        f'# Mine\n\n{front_page.BEGIN}\n{front_page.END}\nThe rest.\n'
    )
    assert (
        front_page.write_front(*NO_RUNS) == [outputs / 'front.svg', outputs.parent / 'README.md']
        and front_page.write_front(*NO_RUNS) == []
    )
    text = (outputs.parent / 'README.md').read_text()
    assert text.startswith(f'# Mine\n\n{front_page.BEGIN}') and text.endswith(
        f'{front_page.END}\nThe rest.\n'
    )
    assert '(outputs/front.svg)' in text and '**' not in front_page.format_front_table(nothing)


def test_the_same_record_elsewhere_gives_the_same_files(tmp_path, monkeypatch):
    for name in ('one', 'two'):
        monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path / name / 'outputs'))
        (tmp_path / name / 'outputs').mkdir(parents=True)
        (tmp_path / name / 'README.md').write_text('no marks')
        assert (
            front_page.write_front(*NO_RUNS) == [tmp_path / name / 'outputs' / 'front.svg']
            and (tmp_path / name / 'README.md').read_text() == 'no marks'
        )
    assert (tmp_path / 'one' / 'outputs' / 'front.svg').read_bytes() == (
        tmp_path / 'two' / 'outputs' / 'front.svg'
    ).read_bytes()


@pytest.mark.skipif(not (ROOT / 'outputs' / 'runs.csv').is_file(), reason='no table of record')
def test_what_readme_shows_is_what_the_record_says(monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))  # with the resampled test images
    known = tables.read_recorded_runs(ROOT / 'outputs' / 'runs.csv')
    found = front_page.front_gains(known)
    boards = suite_gains()
    compared = agreement.source_agreement(found, agreement.gains_by_source(known), boards)
    remedy = 'give `make tables`: README.md or outputs/front.svg is older than outputs/runs.csv'
    findings = front_page.front_findings(
        board.find_leaders(board.method_levels(boards), board.method_micro_f1(boards)),
        compared,
        without_clean.read_without_clean(),
        clean_photos.average_uses(known),
        more_photos.compare_sizes(more_photos.measure_gains(known), front_page.BY_PHOTOS),
        thresholds.estimate_gain_of_photos(FULL_PHOTOS),
        second_backbone.lead_on_both(second_backbone.measure_gains(known)),
        observed_choice_page.photos_that_choose_worse(),
    )
    shown = between((ROOT / 'README.md').read_text())
    assert shown == front_page.format_front(found, findings, 'outputs/front.svg'), remedy
    assert (ROOT / 'outputs' / 'front.svg').read_bytes() == front_page.draw_front(found), remedy
    two_way = next(method for method in front_page.METHODS if method.name == 'Two-way*')
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
    (tmp_path / 'README.md').write_text(f'{front_page.BEGIN}old{front_page.END}')
    with pytest.raises(SpmlError, match='runs.csv, line 1'):
        study.write_study()
    assert (
        tmp_path / 'README.md'
    ).read_text() == f'{front_page.BEGIN}old{front_page.END}' and not (
        tmp_path / 'outputs' / 'front.svg'
    ).exists()


@pytest.mark.parametrize(
    ('text', 'counts'),
    [
        (
            f'before {front_page.BEGIN} old, and all the rest',
            '1 times and <!-- front:end --> 0 times',
        ),
        (f'before {front_page.END} rest', '0 times and <!-- front:end --> 1 times'),
        (
            f'{front_page.END} between {front_page.BEGIN} rest',
            '1 times and <!-- front:end --> 1 times',
        ),
        (f'{front_page.BEGIN}{front_page.BEGIN}{front_page.END} rest', '2 times'),
        (
            f'{front_page.BEGIN}{front_page.END} kept {front_page.BEGIN}{front_page.END} rest',
            '2 times and <!-- front:end --> 2 times',
        ),
    ],
)
def test_marks_that_do_not_enclose_one_part_change_nothing(tmp_path, text, counts):
    (tmp_path / 'README.md').write_text(text)
    with pytest.raises(SpmlError) as error:
        front_page.write_front(*NO_RUNS)
    assert (
        str(tmp_path / 'README.md') in str(error.value)
        and front_page.BEGIN in str(error.value)
        and counts in str(error.value)
    )
    assert (tmp_path / 'README.md').read_text() == text and not (tmp_path / 'outputs').exists()


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
