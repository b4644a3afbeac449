"""How far published and own gains agree: baselines, and methods that change places."""

import numpy as np
import pandas as pd
import pytest
from front_rows import agreed, measured

from spml_nb.replication import (
    agreement,
    front_page,
    published,
)


@pytest.mark.silent('B')
def test_no_cell_that_counts_has_a_baseline_of_another_source():
    every = front_page.front_gains(pd.DataFrame()).assign(
        n=10, exercised=True, ours=1.0, like=1.0, like_half=0.5
    )
    counted = agreement._select_comparable_gains(every)
    places = {
        method.name: (method, published.index_cells(method.paper, method.table))
        for method in front_page.METHODS
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
    by_source = agreement.gains_by_source(pd.DataFrame())
    assert by_source.groupby('source').size().to_dict() == {
        'Cole et al. 2021': 16,
        'EM/APL': 40,
        'LAC': 28,
    }


@pytest.mark.silent('B')
def test_opmls_gains_are_over_its_own_zlpr_published_and_ours():
    line = (
        front_page.front_gains(pd.DataFrame()).set_index(['method', 'panel']).loc[('OPML', 'VOC')]
    )
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
