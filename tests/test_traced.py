"""Every number in outputs/ leads to lines of runs.csv. Read with pandas and numpy, not with
the code that wrote them.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from spml_nb.runs.record import read_record

OUTPUTS = Path(__file__).parents[1] / 'outputs'
TABLES = sorted(OUTPUTS.glob('*/table*.csv'))
ARRAYS = sorted(OUTPUTS.glob('*/fig*.npz'))
ONE = [
    'loss',
    'head',
    'labels',
    'lr',
    'hparams',
    'regime',
    'backbone',
    'epochs',
    'batch_size',
    'optimizer',
    'selection',
    'map_definition',
    'train_images',
]  # runs that differ in seeds alone


def test_all_tables_and_arrays_are_here():
    assert (len(TABLES), len(ARRAYS)) == (26, 24)


@pytest.fixture(scope='module')
def record():
    return read_record(OUTPUTS / 'runs.csv')


@pytest.mark.parametrize('path', TABLES, ids=[f'{p.parent.name}-{p.stem}' for p in TABLES])
def test_every_cell_of_a_table_is_a_mean_of_recorded_runs(path, record):
    table = pd.read_csv(path)
    if 'ours' not in table:
        return  # a table of data sets
    for cell in table[table.ours.notna() & table.seeds.notna()].itertuples():
        values = {int(seed): value for seed, value in json.loads(cell.seeds).items()}
        assert len(values) == cell.n and cell.ours == pytest.approx(
            np.mean(list(values.values())), abs=2e-4
        ), cell
        lines = record[(record.dataset == cell.stand_in) & record.seed.isin(values)]
        scores = lines.filter(regex='^(test|pseudo)_').select_dtypes('number')
        near = np.isclose(
            pd.concat([scores, 100 * scores], axis=1),
            lines.seed.map(values).to_numpy()[:, None],
            rtol=0,
            atol=1.1e-4,
        )  # F1 is recorded as a share
        groups = (
            lines.assign(group=lines.groupby(ONE, dropna=False).ngroup().to_numpy())
            .groupby(['group', 'seed'])
            .indices
        )
        # by configuration: in each of its columns, for how many seeds the number is there
        found = {}
        for (group, _), rows in groups.items():
            found[group] = found.get(group, 0) + near[rows].any(0).astype(int)
        assert any((count == len(values)).any() for count in found.values()), (
            cell.row,
            cell.column,
        )  # one configuration and one measure have them all


@pytest.mark.parametrize('path', ARRAYS, ids=[f'{p.parent.name}-{p.stem}' for p in ARRAYS])
def test_every_figure_names_recorded_runs(path, record):
    parts = json.loads(bytes(np.load(path)['about']))['parts']
    keys = {part['key'] for part in parts.values()}
    assert keys <= set(record.key), keys - set(record.key)
    assert (
        keys or not json.loads(bytes(np.load(path)['about']))['data']
    )  # a curve of a formula has neither
