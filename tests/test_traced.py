"""Every number in outputs/ leads to lines of runs.csv. Read with pandas and numpy alone, not with the code that wrote them."""
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

OUTPUTS = Path(__file__).parents[1] / 'outputs'
TABLES = sorted(OUTPUTS.glob('*/table*.csv'))
ARRAYS = sorted(OUTPUTS.glob('*/fig*.npz'))


@pytest.fixture(scope='module')
def record(): return pd.read_csv(OUTPUTS / 'runs.csv', low_memory=False)


@pytest.mark.parametrize('path', TABLES, ids=[f'{p.parent.name}-{p.stem}' for p in TABLES])
def test_every_cell_of_a_table_is_a_mean_of_recorded_runs(path, record):
    table = pd.read_csv(path)
    if 'ours' not in table: return   # a table of data sets
    for cell in table[table.ours.notna() & table.seeds.notna()].itertuples():
        values = {int(seed): value for seed, value in json.loads(cell.seeds).items()}
        assert len(values) == cell.n and cell.ours == pytest.approx(np.mean(list(values.values())), abs=2e-4), cell
        lines = record[(record.dataset == cell.stand_in) & record.seed.isin(values)]
        scores = lines.filter(regex='^(test|pseudo)_').select_dtypes('number')
        scores = pd.concat([scores, 100 * scores], axis=1)   # F1 is recorded as a share
        for seed, value in values.items():
            near = np.isclose(scores[lines.seed == seed].to_numpy(float), value, rtol=0, atol=1.1e-4).any()
            assert near, (cell.row, cell.column, seed, value)


@pytest.mark.parametrize('path', ARRAYS, ids=[f'{p.parent.name}-{p.stem}' for p in ARRAYS])
def test_every_figure_names_recorded_runs(path, record):
    parts = json.loads(bytes(np.load(path)['about']))['parts']
    keys = {part['key'] for part in parts.values()}
    assert keys <= set(record.key), keys - set(record.key)
    assert keys or not json.loads(bytes(np.load(path)['about']))['data']   # a curve of a formula has neither
