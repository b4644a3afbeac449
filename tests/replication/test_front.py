"The top of README.md: made from the table of record, the same every time, and never out of date."
import json
import math
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

from spml_nb import sweeps
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.replication import front, published, tables

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 100 * 1024


@pytest.fixture(scope='module')
def found(): return front.gains(tables.record(ROOT / 'outputs' / 'runs.csv'))


def between(text): return front.BEGIN + text.split(front.BEGIN)[1].split(front.END)[0] + front.END


def test_what_readme_shows_is_what_the_record_says(found):
    remedy = 'give `make tables`: README.md or outputs/front.svg is older than outputs/runs.csv'
    assert between((ROOT / 'README.md').read_text()) == front.part(found, 'outputs/front.svg'), remedy
    assert (ROOT / 'outputs' / 'front.svg').read_bytes() == front.draw(found), remedy


def test_two_pictures_are_the_same_bytes_small_and_self_contained(found):
    first = front.draw(found)
    assert first == front.draw(found.copy()) and len(first) <= LIMIT and b'<dc:date>' not in first
    tree = ElementTree.fromstring(first)
    links = [value for element in tree.iter() for name, value in element.attrib.items() if name.endswith('href')]
    assert all(link.startswith('#') for link in links)
    text = ''.join(tree.itertext())
    assert all(method.name in text for method in front.METHODS) and all(panel in text for panel in front.PANELS[:-1])


@pytest.mark.parametrize(('name', 'panel', 'suite', 'table', 'row', 'base', 'column'), [
    ('HML', 'COCO', 'mini', ('hml', '4'), 'HL + AL', 'neither', 'Single Positive Labels / COCO'), ('LAC', 'VOC', 'mini', ('lac', '2'), 'Ours', 'L_AN', 'LEM / VOC'),
    ('OPML', 'photos', 'photos', ('opml', 'II'), '1 P. & 0 N. / OPML (Ours)', '1 P. & 0 N. / BCE', 'VOC')])
def test_gains_are_those_of_the_tables(found, name, panel, suite, table, row, base, column):
    tidy = tables.table(*table, tables.record(ROOT / 'outputs' / 'runs.csv'), [suite]).cells.set_index(['row', 'column'])
    upper, lower = tidy.loc[(row, column)], tidy.loc[(base, column)]
    gain = found.set_index(['method', 'panel']).loc[(name, panel)]
    if suite == 'mini': assert gain.published == pytest.approx(upper.published - lower.published)
    else: assert math.isnan(gain.published)
    both = [{int(s): v for s, v in json.loads(cell.seeds).items()} for cell in (upper, lower)]
    each = [both[0][seed] - both[1][seed] for seed in both[0] if seed in both[1]]
    assert gain.n == len(each)
    if each: assert (gain.ours, gain.low, gain.high) == pytest.approx((sum(each) / len(each), min(each), max(each)), abs=1e-3)


def lines_for(method, panel, scores):
    "Fabricated runs of a method and its baseline. scores: {'own': by seed, 'base': by seed}."
    row, base, column = method.cells[panel]
    cells, lines = published.cells(method.paper, method.table).set_index(['row', 'column'], drop=False), {}
    for name, part in ((row, 'own'), (base, 'base')):
        plan = tables.plan(cells.loc[(name, column)].to_dict(), 'mini')
        tried = pd.DataFrame([{'key': sweeps.key(c), 'val_map': 50.0} for c in plan.search]).set_index('key')
        for config in [*plan.search, *tables.finals(plan, tried, tuple(scores[part]))]:
            lines[sweeps.key(config)] = {'val_map': 50.0, 'test_map': scores[part].get(config.seed, 0.0)}
    return pd.DataFrame.from_dict(lines, orient='index').rename_axis('key')


def test_a_gain_is_taken_seed_by_seed_and_the_rest_is_missing():
    method = next(m for m in front.METHODS if m.name == 'HML')
    found = front.gains(lines_for(method, 'VOC', {'own': {0: 71.0, 1: 74.0, 2: 70.0}, 'base': {0: 70.0, 1: 70.0, 2: 70.5}})).set_index(['method', 'panel'])
    line = found.loc[('HML', 'VOC')]
    assert (line.ours, line.low, line.high, line.n, line.our_base) == pytest.approx((1.5, -0.5, 4.0, 3, 70.1667), abs=1e-3)
    assert line.published == pytest.approx(2.2) and found.loc[('HML', 'COCO'), 'n'] == 0 and found.loc[('Two-way*', 'CUB'), 'n'] == -1
    text = front.part(found.reset_index(), 'front.svg')
    row = next(row for row in text.splitlines() if row.startswith('| HML'))
    assert row == '| HML (HML Table 4) | +2.2 / **+1.5** | +4.5 / missing | +3.9 / missing | +2.0 / missing | missing |'
    assert 'cells are still missing' in ' '.join(text.split()) and next(row for row in text.splitlines() if row.startswith('| Two-way')).endswith('| – | – | missing |')
    assert b'missing' in front.draw(found.reset_index())


def test_without_any_run_everything_is_missing(monkeypatch):
    outputs, nothing = settings.path('outputs'), front.gains(pd.DataFrame())
    monkeypatch.setattr(front, 'gains', lambda known: nothing)
    (outputs.parent / 'README.md').write_text(f'# Mine\n\n{front.BEGIN}\n{front.END}\nThe rest.\n')
    assert front.write() == [outputs / 'front.svg', outputs.parent / 'README.md'] and front.write() == []
    text = (outputs.parent / 'README.md').read_text()
    assert text.startswith(f'# Mine\n\n{front.BEGIN}') and text.endswith(f'{front.END}\nThe rest.\n')
    assert '(outputs/front.svg)' in text and '**' not in front.table(nothing)


def test_the_same_record_elsewhere_gives_the_same_files(found, tmp_path):
    (tmp_path / 'outputs').mkdir()
    shutil.copy(ROOT / 'outputs' / 'runs.csv', tmp_path / 'outputs')
    (tmp_path / 'README.md').write_text('no marks')
    assert front.write(tmp_path) == [tmp_path / 'outputs' / 'front.svg'] and (tmp_path / 'README.md').read_text() == 'no marks'
    assert (tmp_path / 'outputs' / 'front.svg').read_bytes() == front.draw(found)


def test_a_damaged_record_changes_nothing(tmp_path):
    (tmp_path / 'outputs').mkdir()
    (tmp_path / 'outputs' / 'runs.csv').write_text('nonsense\n')
    (tmp_path / 'README.md').write_text(f'{front.BEGIN}old{front.END}')
    with pytest.raises(SpmlError, match='runs.csv, line 1'): front.write(tmp_path)
    assert (tmp_path / 'README.md').read_text() == f'{front.BEGIN}old{front.END}' and not (tmp_path / 'outputs' / 'front.svg').exists()


@pytest.mark.parametrize(('text', 'counts'), [
    (f'before {front.BEGIN} old, and all the rest', '1 times and <!-- front:end --> 0 times'), (f'before {front.END} rest', '0 times and <!-- front:end --> 1 times'),
    (f'{front.END} between {front.BEGIN} rest', '1 times and <!-- front:end --> 1 times'), (f'{front.BEGIN}{front.BEGIN}{front.END} rest', '2 times'),
    (f'{front.BEGIN}{front.END} kept {front.BEGIN}{front.END} rest', '2 times and <!-- front:end --> 2 times')])
def test_marks_that_do_not_enclose_one_part_change_nothing(tmp_path, text, counts):
    (tmp_path / 'README.md').write_text(text)
    with pytest.raises(SpmlError) as error: front.write(tmp_path)
    assert str(tmp_path / 'README.md') in str(error.value) and front.BEGIN in str(error.value) and counts in str(error.value)
    assert (tmp_path / 'README.md').read_text() == text and not (tmp_path / 'outputs').exists()
