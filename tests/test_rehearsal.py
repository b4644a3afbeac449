"""The papers' own scale, rehearsed: from official layouts to a cell of each paper's main table.

Every row keeps its method, head, labels, optimiser, views, regime and batch size. What is small is
the number of photos, the length (one step a stage), the width of LAC's head and, but for one row a
paper, the image size; that row is in float32. ResNet-50 starts from random weights.
"""

import gc
import json
from dataclasses import replace

import numpy as np
import pytest
from serving import jpeg, local, tar_of, zip_of
from small_copies import TELL, coco, cub_members, make_nus, voc_members

from spml_nb.base import settings
from spml_nb.data.official.registry import prepare_benchmark
from spml_nb.replication import published, tables
from spml_nb.runs import record
from spml_nb.runs.config import resolve
from spml_nb.runs.folder import Run
from spml_nb.sweeps import queue
from spml_nb.sweeps.search import SEARCH_SEED
from spml_nb.training import checkpoint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        'ignore:.*(never used|no training image has it|No positive|selects from epoch)'
    ),
]

TRAIN, TEST = 5, 2  # photos; one of five validates
SMALL = 64  # pixels of a side


def random_labels(classes):
    "(TRAIN + TEST, classes) of 1 and -1; every photo has the first two classes or one of them."
    labels = np.where(
        np.random.RandomState(classes).random_sample((TRAIN + TEST, classes)) < 0.1, 1, -1
    )
    labels[:, 0] = 1
    labels[::2, 1] = 1
    return labels


def make_voc12(folder):
    labels = random_labels(20)
    names = [f'2008_{k:06}' for k in range(TRAIN + TEST)]
    parts = {
        'train': (names[:TRAIN], labels[:TRAIN]),
        'val': (names[TRAIN:], labels[TRAIN:]),
    }
    tar_of(folder / 'VOCtrainval_11-May-2012.tar', voc_members(2012, parts), 'w')
    return {'train': TRAIN, 'test': TEST, 'classes': 20}


def make_coco14(folder):
    labels = random_labels(80)
    categories = list(range(1, 81))
    rows = [(np.flatnonzero(row > 0) + 1).tolist() for row in labels]
    annotations = {}
    for part, chosen in (('train', slice(0, TRAIN)), ('val', slice(TRAIN, None))):
        ids = range(TRAIN + TEST)[chosen]
        names = [f'COCO_{part}2014_{k:012}.jpg' for k in ids]
        content = coco(names, rows[chosen], ids, categories)
        annotations[f'annotations/instances_{part}2014.json'] = json.dumps(content).encode()
        photos = {f'{part}2014/{name}': jpeg(labels[k]) for name, k in zip(names, ids, strict=True)}
        zip_of(folder / f'{part}2014.zip', photos)
    zip_of(folder / 'annotations_trainval2014.zip', annotations)
    return {'train': TRAIN, 'test': TEST, 'classes': 80}


def make_cub(folder):
    labels = random_labels(312)
    names, members = cub_members((labels > 0).astype(int), [1] * TRAIN + [0] * TEST)
    photos = {
        f'CUB_200_2011/images/{name}': jpeg(row) for name, row in zip(names, labels, strict=True)
    }
    tar_of(folder / 'CUB_200_2011.tgz', members | photos)
    return {'train': TRAIN, 'test': TEST, 'classes': 312}


def make_nus_counted(folder):
    _, labels, split, _ = make_nus(folder)
    tests = split.count('test')
    return {'train': len(split) - tests, 'test': tests, 'classes': labels.shape[1]}


LAYOUTS = {
    'voc12': make_voc12,
    'coco14': make_coco14,
    'nus': make_nus_counted,
    'cub': make_cub,
}


@pytest.fixture(scope='module')
def official_data(tmp_path_factory):
    "The folder of the four data sets, made ready from their official archives."
    root = tmp_path_factory.mktemp('official')
    for name, make in LAYOUTS.items():
        downloads = root / name / 'downloads'
        downloads.mkdir(parents=True)
        counts = make(downloads)
        prepare_benchmark(
            local(name, downloads, 'http://nowhere.invalid', counts=counts), root, **TELL
        )
    return root


def choose_cells(paper, number):
    "{row: column} of a table, one cell a row that a run can fill; the data sets take turns."
    by_row = {}
    for cell in published.table_cells(paper, number).to_dict('records'):
        printed = not cell['added']
        runs_here = cell['config'] is not None and printed and cell['dataset'] in LAYOUTS
        if runs_here and cell['config'].get('backbone', 'resnet50') == 'resnet50':
            by_row.setdefault(cell['row'], []).append(cell['column'])
    return {row: columns[k % len(columns)] for k, (row, columns) in enumerate(by_row.items())}


def shorten(config, full_size):
    "One step a stage from random weights; all else is the row's own."
    # a CPU multiplies matrices in fp16 one number after the other: ten minutes at full size
    small = {'precision': 'float32'} if full_size else {'image_size': SMALL}
    if config.head == 'labelwise':
        small['embedding_dim'] = 64  # its own width, 2048, takes 3 GB with optimiser and average
    return config.changed(epochs=1, linear_epochs=1, cached_views=1, weights='none', **small)


MAIN_TABLES = {  # and the row that is trained at the paper's own image size, with its column
    'hml': ('2', 'HML (Ours)', 'VOC12', 6),
    'opml': ('II', '1 P. & 0 N. / OPML-SP (Ours)', 'VOC', 17),
    'lac': ('2', 'Ours', 'LEM / VOC', 8),
    'two_way': ('7', 'MSCOCO / Ours', 'mAP@class / ResNet50', 10),
    'em_apl': ('1', 'EM+APL', 'VOC', 15),
}


@pytest.fixture
def trained(in_process, monkeypatch):
    """The configurations that were trained. Half of the time and 20 GB would go into files of
    weights, so there are no checkpoints, and the best weights go when a run is done.
    """
    monkeypatch.setattr(checkpoint, 'save_checkpoint', lambda trainer: None)
    configs = []
    attempt = queue.attempt_run

    def train(config):
        message = attempt(config)
        configs.append(config)
        gc.collect()
        for file in Run(resolve(config)).folder.glob('*.pt'):
            file.unlink()
        return message

    monkeypatch.setattr(queue, 'attempt_run', train)
    return configs


@pytest.mark.parametrize('paper', sorted(MAIN_TABLES))
def test_every_row_of_the_main_table_goes_from_the_official_files_to_its_cell(
    paper, official_data, trained, monkeypatch
):
    number, main_row, main_column, count = MAIN_TABLES[paper]
    cells = choose_cells(paper, number) | {main_row: main_column}
    assert len(cells) == count
    plan_cell = tables.plan_cell

    def short_plan(cell, suite):
        "The first configuration of a row's search, whose run is the final one too."
        if cells.get(cell['row']) != cell['column']:
            return tables.Plan([], {}, 'not rehearsed')
        plan = plan_cell(cell, suite)
        first = shorten(plan.search[0], full_size=cell['row'] == main_row)
        return replace(plan, search=[first], seeds=(SEARCH_SEED,))

    monkeypatch.setenv('SPML_NB_DATA', str(official_data))
    monkeypatch.setattr(tables, 'plan_cell', short_plan)
    done = tables.sweep_tables(paper, number, 'paper', tell=lambda line: None)
    assert done.message.unique().tolist() == [''] and (done.state == 'done').all()

    record.export_csv()
    table = tables.table(
        paper,
        number,
        tables.read_recorded_runs(settings.get_folder('outputs') / 'runs.csv'),
        'paper',
    )
    filled = table.cells[table.cells.state != 'none'].set_index('row')
    assert filled.column.to_dict() == cells
    unfilled = filled[~filled.state.isin(['done', 'not exercised'])]
    assert unfilled.empty, unfilled[['column', 'state', 'why']]
    assert filled.ours.between(0, 100).all() and (filled.n == 1).all()
    for cell in filled.reset_index().to_dict('records'):
        assert f'{cell["ours"]:.1f}' in tables.cell_level_text(cell)
    assert {config.dataset for config in trained} <= set(LAYOUTS)
    sizes = [config.image_size for config in trained]
    assert sizes.count(SMALL) == len(sizes) - 1 and max(sizes) == (
        224 if paper == 'two_way' else 448
    )
