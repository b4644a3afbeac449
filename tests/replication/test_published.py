"""The published numbers: as the papers print them, all of them, each with a configuration that this
library can run or a reason why not.
"""

import copy
import dataclasses
import functools
import json
import math
from collections import Counter

import pandas as pd
import pytest
from conftest import SHARED
from replication.passages import digest, numbers, problems

from spml_nb import data as datasets
from spml_nb import methods, models
from spml_nb.base.errors import SpmlError
from spml_nb.methods.core import resolve_hparams
from spml_nb.replication import published, tables
from spml_nb.runs.config import Config, resolve
from spml_nb.sweeps.queue import run_key
from spml_nb.sweeps.search import SUITES

PAPERS = ('hml', 'opml', 'lac', 'two_way', 'em_apl')
TABLES = {
    'hml': list('12345'),
    'opml': ['I', 'II', 'III', 'IV', 'V'],
    'lac': list('123'),
    'two_way': list('12345678'),
    'em_apl': list('14567'),
}
EVERY_TABLE = [(paper, table) for paper, tables in TABLES.items() for table in tables]


@pytest.fixture
def texts():
    folder = SHARED / 'papers'
    if not folder.is_dir():
        pytest.skip('the texts of the papers are not here')
    return folder


@pytest.fixture
def draft(monkeypatch):
    "Copies of the papers' files, which a test may spoil: draft('hml') → dict."
    read, copies = published.read_paper, {}

    def draft(paper):
        if paper not in copies:
            copies[paper] = copy.deepcopy(read(paper))
        return copies[paper]

    monkeypatch.setattr(published, 'read_paper', draft)
    return draft


def spoil_last_number(spec, by):
    """Change the last printed mean of a table, or guess one where all are lost. Returns: its row
    and column.
    """
    numbers = [
        (row, k)
        for row, given in spec['rows'].items()
        for k, v in enumerate(given['mean'])
        if isinstance(v, int | float)
    ]
    row, k = numbers[-1] if numbers else ('mAP@class', 0)
    spec['rows'][row]['mean'][k] = spec['rows'][row]['mean'][k] + by if numbers else 73.0
    return row, list(spec['columns'])[k]


@functools.cache
def by_place(paper, table):
    return published.table_cells(paper, table).set_index(['row', 'column'])


def value(paper, table, row, column):
    return by_place(paper, table).loc[(row, column), 'mean']


def about(paper, table, row, column):
    return ' '.join(by_place(paper, table).loc[(row, column), 'notes'])


def test_all_papers_and_tables_are_here():
    assert published.list_papers() == list(PAPERS)
    assert {paper: published.table_numbers(paper) for paper in PAPERS} == TABLES


@pytest.mark.parametrize('paper', PAPERS)
def test_numbers_are_those_of_the_text(paper, texts):
    assert {
        table: wrong for table in TABLES[paper] if (wrong := problems(paper, table, texts))
    } == {}


@pytest.mark.parametrize(
    'paper, digits',
    [
        ('hml', '9967edb13387cc85'),
        ('opml', '082aff71da4407e2'),
        ('lac', 'b8084ea073e339df'),
        ('two_way', '140239b063a2be9c'),
        ('em_apl', '2e608b507b69bfda'),
    ],
)
def test_numbers_are_those_that_were_once_compared_with_the_text(paper, digits, draft):
    assert digest(paper) == digits
    whole = draft(paper)['tables']
    for table, spec in whole.items():
        whole[table] = copy.deepcopy(spec)
        spoil_last_number(whole[table], 0.1)
        assert digest(paper) != digits, table
        whole[table] = spec
    assert digest(paper) == digits


@pytest.mark.parametrize('paper', PAPERS)
def test_a_changed_number_is_found_in_the_text_and_named(paper, draft, texts):
    for table in TABLES[paper]:
        row, column = spoil_last_number(draft(paper)['tables'][table], 1)
        told = problems(paper, table, texts)
        if (paper, table) == ('two_way', '5'):
            assert 'the text has 2 lines with numbers, the file 3' in told[0]
        else:
            assert len(told) == 1 and f'first difference: {row}, {column}, mean' in told[0]


def test_a_lost_number_rows_in_the_wrong_place_and_other_digits_are_found(draft, texts):
    rows = draft('hml')['tables']['2']['rows']
    rows['LS']['mean'][3] = 'lost'
    told = problems('hml', '2', texts)
    assert (
        len(told) == 1
        and 'the text has 7 86.7 66.9 17.9 44.9; the file has 7 86.7 66.9' in told[0]
        and told[0].endswith('the number of numbers')
    )
    rows['LS']['mean'][3] = 44.9
    rows['AN']['mean'], rows['LS']['mean'] = rows['LS']['mean'], rows['AN']['mean']
    told = problems('hml', '2', texts)
    assert len(told) == 2 and 'AN, VOC12, mean' in told[0] and 'LS, VOC12, mean' in told[1]
    draft('two_way')['tables']['7']['decimals'] = 1  # 46.5 is not 46.50
    assert any('the text has 19 58.00' in problem for problem in problems('two_way', '7', texts))


@pytest.mark.parametrize(
    'text, expected',
    [
        ('VOC12, L1R, F1 and (CVPR21)', []),
        ('ResNet-50 [9]', ['50', '9']),
        ('82,081 [2,18]', ['82081', '2', '18']),
        ('89.42(0.27) | 15.66%', ['89.42', '0.27', '15.66']),
        ('1e - 5 1e-4 1e−4', ['1e-5', '1e-4', '1e-4']),
        ('0.\t5\t<b>72.20</b>', ['0', '5', '72.20']),
    ],
)
def test_what_a_number_is(text, expected):
    assert numbers(text) == expected


PIECE = {
    'config',
    'stand_in',
    'pretraining',
    'search',
    'runs',
    'metric',
    'unit',
    'decimals',
    'no_run',
    'source',
    'quoted_by',
    'baseline',
}
KEYS = {
    'paper': PIECE | {'paper', 'short', 'title', 'authors', 'venue', 'notes', 'presets', 'tables'},
    'row': PIECE | {'mean', 'std'},
    'column': PIECE,
    'table': PIECE | {'title', 'groups', 'columns', 'rows', 'cells', 'notes', 'ours'},
    'ours': {'rows', 'columns', 'again'},
    'cell': PIECE | {'rows', 'columns'},
    'note': {'text', 'tables', 'rows', 'columns'},
}


@pytest.mark.parametrize('paper', PAPERS)
def test_files_have_no_slip_of_the_pen(paper):
    whole = published.read_paper(paper)
    assert set(whole) <= KEYS['paper'] and all(
        set(note) <= KEYS['note'] and set(note.get('tables', [])) <= set(TABLES[paper])
        for note in whole['notes']
    )
    for table in TABLES[paper]:
        spec, cells = published.table_entry(paper, table), published.table_cells(paper, table)
        rows, columns, groups = spec['rows'], spec['columns'], spec.get('groups', {})
        assert set(spec.get('ours', ())) <= KEYS['ours']
        assert set(spec) <= KEYS['table'] and all(set(row) <= KEYS['row'] for row in rows.values())
        assert all(
            set(column or {}) <= KEYS['column'] for column in [*columns.values(), *groups.values()]
        )
        assert set(groups) <= {name.split(' / ')[0] for name in [*rows, *columns] if ' / ' in name}
        for kind, entries in (('note', spec.get('notes', [])), ('cell', spec.get('cells', []))):
            for entry in entries:
                assert (
                    set(entry) <= KEYS[kind]
                    and set(entry.get('rows', [])) <= set(rows)
                    and set(entry.get('columns', [])) <= set(columns)
                ), entry
        for row in rows.values():
            for part in ('mean', 'std'):
                assert len(row.get(part, columns)) == len(columns)
                assert all(
                    value in ('lost', '-') or type(value) in (int, float)
                    for value in row.get(part, [])
                ), row
        assert set(cells.metric) <= set(published.METRICS) and cells.unit.notna().all()
        assert not cells.duplicated(['row', 'column']).any()
        assert all(
            'loss' in cell.config and cell.metric not in ('statistic', 'setting')
            for cell in cells.itertuples()
            if not cell.no_run
        )


def test_a_file_that_is_not_yaml_is_told(tmp_path, monkeypatch):
    (tmp_path / 'assets' / 'papers').mkdir(parents=True)
    (tmp_path / 'assets' / 'papers' / 'hml.yml').write_text('tables: [')
    monkeypatch.setattr(published, 'files', lambda package: tmp_path)
    with pytest.raises(SpmlError, match=r'hml\.yml cannot be read: (?s:.*) Correct it'):
        published.read_paper.__wrapped__('hml')


@pytest.mark.parametrize('paper', PAPERS)
def test_every_configuration_can_be_resolved(paper):
    tidy = [
        cell
        for table in TABLES[paper]
        for cell in published.table_cells(paper, table).to_dict('records')
    ]
    configs = [c for cell in tidy for c in (cell['config'], cell['pretraining']) if c is not None]
    assert configs
    for text in {json.dumps(c) for c in configs}:
        config = json.loads(text)
        assert {'loss', 'dataset', 'labels', 'regime', 'backbone'} <= set(config), config
        assert (
            config['loss'] in methods.names()
            and config['dataset'] in datasets.names()
            and config['backbone'] in models.backbone_names()
        )
        resolve(Config(**config))
    fields = {f.name for f in dataclasses.fields(Config)}
    assert all(set(cell['search']) <= fields for cell in tidy)


@pytest.mark.parametrize('paper', PAPERS)
def test_what_is_no_run_says_why(paper):
    for table in TABLES[paper]:
        for cell in published.table_cells(paper, table).itertuples():
            assert (cell.config is None) == bool(cell.no_run)


def test_lost_numbers_are_exactly_these():
    lost = {
        key: set(zip(t.row[t.lost], t.column[t.lost], strict=True))
        for key in EVERY_TABLE
        if (t := published.table_cells(*key)).lost.any()
    }
    maps = ('mAP@class', 'mAP@sample')
    f1 = [f'{d} / {a}-F1' for d in ('VOC', 'COCO', 'NUS', 'CUB') for a in ('micro', 'macro')]
    at_hand = {('EM', 'VOC / micro-F1'), ('AN', 'CUB / micro-F1'), ('AN', 'CUB / macro-F1')}
    assert lost == {
        ('two_way', '2'): {(m, f'ε = {e}') for m in maps for e in ('0.5', '1', '2')},
        ('two_way', '3'): {('mAP@class', '(b) Softmax / both')},
        ('two_way', '5'): {(m, f'M = {2**k}') for m in maps for k in range(4, 10)},
        ('em_apl', '1'): {('EntMin', d) for d in ('VOC', 'COCO', 'NUS', 'CUB')},
        ('em_apl', '7'): {(m, c) for m in ('BCE', 'AN', 'EM') for c in f1} - at_hand,
    }


def test_cells_carry_everything_that_a_comparison_needs():
    cell = published.table_cells('em_apl', '1').set_index(['row', 'column']).loc[('ROLE+LI', 'CUB')]
    assert (cell['mean'], cell['std'], cell.metric, cell.unit, cell.runs, cell.decimals) == (
        14.86,
        0.72,
        'mAP',
        'percent',
        3,
        2,
    )
    assert (
        (cell.source, cell.quoted) == ('EM/APL', 'quoted by OPML Table II')
        and not cell.lost
        and cell.dataset == 'cub'
    )
    assert cell.config == {
        'regime': 'linear_init',
        'backbone': 'resnet50',
        'image_size': 448,
        'epochs': 10,
        'optimizer': 'adam',
        'patience': 1,
        'selection': 'val_clean',
        'labels': 'single',
        'dataset': 'cub',
        'lr': 1e-4,
        'batch_size': 8,
        'loss': 'role',
    }
    margin = published.table_cells('hml', '5').set_index('row').loc['Only Positives']
    assert margin.config['hparams'] == {'margin_on': 'positives'} and margin.search[
        'batch_size'
    ] == [8, 16]
    dash = (
        published.table_cells('lac', '2')
        .set_index(['row', 'column'])
        .loc[('L_EN + L_CL', 'LEM / VOC')]
    )
    assert (
        math.isnan(dash['mean'])
        and not dash.lost
        and dash.config is None
        and 'could not reproduce' in dash.no_run
    )


@pytest.mark.silent('B')
def test_every_number_has_a_source_and_a_gain_over_another_source_says_so():
    every = [cell for key in EVERY_TABLE for cell in published.table_cells(*key).to_dict('records')]
    shorts = {published.read_paper(paper)['short'] for paper in PAPERS}
    assert {cell['source'] for cell in every} == shorts | {
        'Cole et al. 2021',
        'Verelst et al. 2022',
    }
    assert {
        cell['quoted']
        for cell in every
        if cell['source'] == published.read_paper(cell['paper'])['short']
    } == {'', 'quoted by OPML Table II', 'quoted by OPML Table III'}
    marked = {}
    for paper, table in EVERY_TABLE:
        for cell in published.index_cells(paper, table).values():
            base = published.gain_baseline(cell)
            why = published.explain_uncounted(cell, base)
            if base is None or base is cell:
                assert not why
            else:
                assert bool(why) == (
                    base['source'] != cell['source'] or base['row'] in ('ZLPR', 'No Margin')
                )
            if why:
                marked.setdefault((paper, table), set()).add(cell['row'].rpartition(' / ')[2])
    assert marked == {
        ('hml', '2'): {'HML (Ours)'},
        ('hml', '3'): {'HML (Ours)'},
        ('hml', '5'): {'Only Positives', 'Only Negatives', 'Positives & Negatives'},
        ('lac', '2'): {'L_EM', 'L_EM + L_APL'},
        ('opml', 'II'): {'LL-R', 'LL-Ct', 'LL-Cp', 'OPML (Ours)', 'OPML-SP (Ours)'},
        ('opml', 'III'): {'ZLPR', 'OPML'},
        ('opml', 'V'): {'FOCAL', 'ASY', 'ZLPR', 'OPML'},
    }
    opml = published.index_cells('opml', 'II')['1 P. & 0 N. / OPML-SP (Ours)', 'NUS']
    assert opml['mean'] - published.gain_baseline(opml)['mean'] == pytest.approx(50.14 - 47.72)


def test_later_pieces_win_and_empty_ones_take_back():
    ablation = published.table_cells('two_way', '7').set_index(['row', 'column']).config
    assert ablation[('VAW / ASL', 'mAP@class / ResNet50')]['hparams'] == {
        'unknown': 'ignore',
        'gamma_pos': 0,
        'gamma_neg': 4,
        'margin': 0.05,
    }
    transfer = published.table_cells('two_way', '8').set_index(['row', 'column'])
    car, imagenet = transfer.loc[('Ours', 'Transfer / Car')], transfer.loc[('Ours', 'ImageNet')]
    assert (
        (car.config, car.dataset) == (None, 'cars')
        and 'linear classifier' in car.no_run
        and imagenet.no_run == ''
    )
    assert car.pretraining == imagenet.config and imagenet.pretraining is None
    assert imagenet.config == {
        'labels': 'full',
        'regime': 'finetune',
        'image_size': 224,
        'epochs': 90,
        'batch_size': 512,
        'optimizer': 'sgd',
        'momentum': 0.9,
        'weight_decay': 1e-4,
        'schedule': 'cosine',
        'lr': 0.1,
        'head_lr_multiplier': 1,
        'selection': 'last',
        'backbone': 'resnet50',
        'weights': 'none',
        'dataset': 'imagenet',
        'loss': 'two_way',
        'hparams': {'T_pos': 4, 'T_neg': 1, 'bucket': 128},
    }


def test_table_reads_as_printed():
    def printed(paper, table):
        cells = published.table_cells(paper, table)
        return cells.pivot(index='row', columns='column', values='printed')

    assert printed('em_apl', '1').loc['EM', 'VOC'] == '89.09 (0.17)'
    assert printed('two_way', '6').loc['# training samples', 'MSCOCO'] == '82,081'
    assert printed('two_way', '7').loc['VISPR / Softmax', 'mAP@class / ResNeXt50'] == '36.97'
    assert (
        printed('two_way', '2').loc['mAP@class', 'ε = 1'] == 'lost'
        and printed('lac', '2').loc['Ours', 'ResNet-50 / CUB'] == '–'
    )
    rows = list(dict.fromkeys(published.table_cells('hml', '2').row))
    assert rows == ['AN', 'LS', 'WAN', 'EPR', 'ROLE', 'HML (Ours)']


def test_counts_add_up():
    for (paper, table), expected in {
        ('two_way', '7'): (240, 240, 0, 240),
        ('em_apl', '7'): (24, 3, 21, 24),
    }.items():
        cells = published.table_cells(paper, table)
        cells = cells[~cells.added]
        assert (
            len(cells),
            cells['mean'].count(),
            cells.lost.sum(),
            cells.config.count(),
        ) == expected


def test_hyper_parameters_of_em_and_apl_are_the_registered_ones():
    settings = published.table_cells('em_apl', '5').pivot(
        index='row', columns='dataset', values='mean'
    )
    for dataset, family in (('voc12', 'voc'), ('coco14', 'coco'), ('nus', 'nus'), ('cub', 'cub')):
        registered, of = resolve_hparams('em_apl', family, {}), settings[dataset]
        assert [registered[h] for h in ('alpha', 'beta', 'warm_up')] == [
            of['α'],
            of['β'],
            of['T_w'],
        ]
        assert (
            registered['proportion'] == of['θ%'] / 100
            and resolve_hparams('em', family, {})['alpha'] == of['α']
        )
        main = (
            published.table_cells('em_apl', '1')
            .set_index(['row', 'dataset'])
            .config[('EM', dataset)]
        )
        assert (main['lr'], main['batch_size']) == (of['Learning Rate'], of['Batch Size'])


def test_the_same_number_in_two_tables_is_the_same():
    assert (
        value('two_way', '1', 'T_P = 4', 'mAP@class / T_N = 1')
        == value('two_way', '3', 'mAP@class', '(a) Ours / both')
        == value('two_way', '7', 'MSCOCO / Ours', 'mAP@class / ResNet50')
        == 74.11
    )
    assert value('two_way', '3', 'mAP@sample', '(b) Softmax / sample') == value(
        'two_way', '7', 'MSCOCO / Softmax', 'mAP@sample / ResNet50'
    )
    for column in ('VOC12', 'COCO', 'CUB', 'NUS'):
        assert value('hml', '2', 'HML (Ours)', column) == value(
            'hml', '4', 'HL + AL', f'Single Positive Labels / {column}'
        )
        assert value('hml', '3', 'HML (Ours)', column) == value(
            'hml', '4', 'HL + AL', f'Full Labels / {column}'
        )
    opml = published.table_cells('opml', 'III').set_index(['row', 'column'])['mean']
    for row, name in (('AN', 'BCE'), ('Focal loss', 'Focal'), ('ASL', 'ASL')):
        for column in ('VOC', 'COCO', 'NUS', 'CUB'):
            assert value('em_apl', '1', row, column) == opml[(name, column)]


def test_disagreements_are_noted_where_the_numbers_show_them():
    def hml(table, row, column):
        return value('hml', table, row, column)

    assert round(hml('2', 'HML (Ours)', 'COCO') - hml('2', 'LS', 'COCO'), 1) == 3.8
    assert round(hml('2', 'HML (Ours)', 'COCO') - hml('2', 'WAN', 'COCO'), 1) == 5.9
    assert '5.9' in about('hml', '2', 'HML (Ours)', 'COCO') and '5.9' not in about(
        'hml', '2', 'HML (Ours)', 'VOC12'
    )
    for column, more in (('VOC12', 1.8), ('COCO', 2.1)):
        own = f'Single Positive Labels / {column}'
        assert round(hml('4', 'neither', own) - hml('2', 'AN', column), 1) == more
        assert str(more) in about('hml', '2', 'AN', column) and str(more) in about(
            'hml', '4', 'neither', own
        )
    for column, more in (('VOC12', 1.1), ('COCO', 1.8)):
        assert round(
            hml('4', 'neither', f'Full Labels / {column}') - hml('3', 'BCE', column), 1
        ) == more and str(more) in about('hml', '3', 'BCE', column)
    assert round(
        hml('3', 'HML (Ours)', 'NUS') - hml('3', 'LS', 'NUS'), 1
    ) == 0.6 and '0.6' in about('hml', '3', 'HML (Ours)', 'NUS')
    assert 'last epoch' in about(
        'two_way', '7', 'VAW / ASL', 'mAP@class / ResNet50'
    ) and 'NUS-WIDE' in about('hml', '2', 'WAN', 'NUS')
    assert 'OPML copies' in about('em_apl', '1', 'AN', 'VOC') and 'ambiguous' in about(
        'em_apl', '1', 'L2R', 'VOC'
    )


def test_every_data_set_has_a_stand_in_or_says_why():
    cells = pd.concat([published.table_cells(*key) for key in EVERY_TABLE])
    used = set(cells.dataset[~cells.added].dropna())
    assert (
        used <= set(published.STAND_INS) <= set(datasets.names())
        and published.PHOTOS_SUITE in SUITES
    )
    assert set(cells.dataset[cells.added]) <= {*used, *SUITES['photos']['datasets']}
    for name, (photos, why) in published.STAND_INS.items():
        assert photos in (None, 'corel5k_themes', *SUITES['photos']['datasets']) and why
        assert [
            published.find_stand_in(name, suite) for suite in ('paper', published.PHOTOS_SUITE)
        ] == [
            name,
            photos,
        ]
    assert {name: photos for name, (photos, _) in published.STAND_INS.items() if photos} == {
        'voc12': 'voc12_animals',
        'coco14': 'coco18',
        'nus': 'mirflickr14',
        'cub': 'cub_crops',
        'imagenet': 'corel5k_themes',
    }


@pytest.mark.parametrize(
    'call, told',
    [
        (lambda: published.table_numbers('hlm'), "Did you mean 'hml'"),
        (lambda: published.table_cells('hml', '9'), "unknown table of 'hml' '9'; allowed: 1, 2"),
        (lambda: published.find_stand_in('voc', 'photos'), "unknown published data set 'voc'"),
        (lambda: published.find_stand_in('voc12', 'maxi'), "unknown suite 'maxi'"),
    ],
)
def test_unknown_names_are_told(call, told):
    with pytest.raises(SpmlError, match=told):
        call()


@pytest.mark.skipif(not (SHARED / 'data').is_dir(), reason='the photos are not here')
@pytest.mark.parametrize(
    'name',
    [
        name
        for name in published.describe_photo_sets().index
        if name in SUITES['photos']['datasets']
    ],
)
def test_our_sets_are_counted_as_they_are(name):
    own = {'min_positives': 20, **SUITES['photos']['datasets'][name]}
    whole, used = (
        datasets.load(name, SHARED / 'data', *some)
        for some in ((), (own['min_positives'], tuple(own.get('exclude', ()))))
    )
    told = published.describe_photo_sets().loc[name]
    assert told[['train', 'val', 'test']].tolist() == [
        len(used.rows(part)) for part in ('train', 'val', 'test')
    ]
    assert (told.classes, told.used) == (len(whole.class_names), len(used.class_names)) and told[
        'for'
    ] == published._find_original_sets(name)
    assert told.positives == round(float((used.labels[used.rows('train')] > 0).sum(1).mean()), 2)


@pytest.mark.skipif(not (SHARED / 'data').is_dir(), reason='the photos are not here')
def test_the_themes_are_counted_as_the_photos_they_are_of():
    told, same = (
        published.describe_photo_sets().loc[name] for name in ('corel5k_themes', 'corel5k')
    )
    assert (
        told[['train', 'val', 'test']].tolist() == same[['train', 'val', 'test']].tolist()
        and told.positives == 1
        and told['for'] == 'ImageNet'
    )
    names = datasets.load('corel5k', SHARED / 'data').image_names
    assert (
        told.classes == told.used == len({name[:3] for name in names})
        and min(Counter(name[:3] for name in names).values()) >= 20
    )


@pytest.mark.parametrize('paper', PAPERS)
def test_rows_that_are_the_same_runs_on_photos_say_so(paper):
    for table in published.table_numbers(paper):
        rows, notes = {}, {}
        for cell in published.table_cells(paper, table).to_dict('records'):
            plan = tables.plan_cell(cell, 'photos')
            if plan.search:
                runs = (*map(run_key, plan.search), str(sorted(plan.stated.items())), plan.labels)
                rows.setdefault((runs, cell['metric']), set()).add(cell['row'])
                notes.setdefault(cell['row'], set()).update(cell['notes'])
        for row in {row for same in rows.values() if len(same) > 1 for row in same}:
            assert any('the same runs' in note for note in notes[row]), (table, row)
