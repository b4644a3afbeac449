"""Rows of the front page with numbers that tests make up."""

import numpy as np
import pandas as pd
import pytest

from spml_nb import statistics, sweeps
from spml_nb.replication import (
    agreement,
    front_page,
    gains,
    published,
    tables,
)

METHOD = next(m for m in front_page.METHODS if m.name == 'HML')
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
            {**cell, 'config': {**cell['config'], 'loss': loss, 'head': head}},
            front_page.PHOTOS_SUITE,
        )
        lines = {sweeps.run_key(c): {'val_map': 50.0, 'test_map': 0.0} for c in plan.search} | lines
        for config in tables.cell_final_runs(
            plan, pd.DataFrame.from_dict(lines, orient='index'), tuple(scores[part])
        ):
            lines[sweeps.run_key(config)] = {'val_map': 50.0, 'test_map': scores[part][config.seed]}
    return pd.DataFrame.from_dict(lines, orient='index').rename_axis('key')


NO_BOARDS = pd.DataFrame(columns=gains.COLUMNS)


def agreed(found, sources=NOTHING):
    return agreement.source_agreement(found, sources, NO_BOARDS)


SCORES = {
    'own': {0: 71.0, 1: 74.0, 2: 70.0},
    'same': {0: 70.0, 1: 70.0, 2: 70.5},
    'plain': {0: 66.0, 1: 67.0, 2: 68.0},
}


def measured(rows):
    "As from `front_gains`: (method, panel, published, differences by seed, exercised)."
    effects = [statistics.estimate_effect(d) for *_, d, _ in rows]
    by_name = {method.name: method for method in front_page.METHODS}
    return pd.DataFrame(
        [
            {
                'method': m,
                'own': by_name[m].own,
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


def levels(sets=('coco18', 'ccp'), **means):
    "As from `board.method_levels`: {method_head: mean}, seeds apart by 0.1."
    return {
        tuple(name.rsplit('_', 1)): {
            each: statistics.Scores(pd.Series([mean, mean + 0.1, mean - 0.1]), '') for each in sets
        }
        for name, mean in means.items()
    }


@pytest.fixture(scope='module')
def hml_on_voc():
    "The front with runs of HML on one set alone."
    return front_page.front_gains(lines_for('VOC', SCORES))


@pytest.fixture
def exact(monkeypatch):
    "The seeds of `levels` move together, so that differences have no interval."
    monkeypatch.setattr(statistics, 'image_error', lambda *given: 0.0)
