"""The numbers in the conclusion on OPML, worked out again from the record."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from worked_out import recorded_runs

from spml_nb.replication.papers import opml_conclusion

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope='module')
def record():
    return recorded_runs()


def test_opmls_margins_levels_and_constants_are_those_of_the_paper_and_the_record(record):
    fields = opml_conclusion.collect_fields(record)
    assert fields['margins'] == pytest.approx(
        [89.20 - 89.19, 71.75 - 70.87, 50.14 - 48.18, 24.11 - 22.30]
    )
    board = {
        name: pd.read_csv(ROOT / f'outputs/methods/{name}.csv').query("labels == 'single'")
        for name in ('voc12_animals', 'coco18', 'mirflickr14', 'cub_crops')
    }
    linear = {
        name: rows[rows['head'] == 'linear'].set_index('loss') for name, rows in board.items()
    }
    for printed, loss in (('ZLPR', 'zlpr'), ('Focal', 'focal'), ('ASL', 'asl')):
        gaps = [rows.test_map[loss] - rows.test_map['an'] for rows in linear.values()]
        assert fields['over_bce'][printed]['ours'].mean == pytest.approx(np.mean(gaps), abs=0.02)
    products = [
        np.prod([share / (1 - share) for share in (of_opml['alpha'], of_opml['beta'])])
        for of_opml in (json.loads(rows.hparams['opml']) for rows in linear.values())
    ]
    assert fields['products'] == pytest.approx(products)
    levels = [fields['level'][epoch].mean for epoch in ('best', 'last')]
    assert levels == pytest.approx(changes_in_long_training(record), abs=1e-6)


def changes_in_long_training(record):
    "What high rank with λ = 0.01 changes at the best epoch and at the last, over four sets."
    lines = record[(record.loss == 'opml_sp') & (record.epochs == 40) & (record.lr == 1.24e-3)]
    parts = pd.DataFrame(lines.hparams.map(json.loads).tolist(), index=lines.index)
    plain = ~parts[['high_rank', 'smoothing', 'correction']].any(axis=1)
    raised = parts.high_rank & (parts.rank_weight == 0.01)
    raised &= ~(parts.smoothing | parts.correction)
    return [
        (
            lines[raised].groupby('dataset')[column].mean()
            - lines[plain].groupby('dataset')[column].mean()
        ).mean()
        for column in ('val_map', 'val_map_at_end')
    ]
