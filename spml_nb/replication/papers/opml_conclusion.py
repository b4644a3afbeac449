"""What the conclusion on *Pushing One Pair of Labels Apart Each Time* reports."""

from dataclasses import replace

import numpy as np
import pandas as pd

from ...methods.core import resolve_hparams
from .. import published, tables
from ..answers import (
    Answer,
    answer_cells,
    answer_effects,
    gains_at_equal_settings,
    subtract_printed,
)
from ..published import ORIGINAL_SETS, PHOTOS_SUITE
from .opml_claims import measure_level_changes

_SETS = list(ORIGINAL_SETS)


def collect_fields(runs: pd.DataFrame) -> dict:
    """The fields of `conclusion_opml.md` that no other conclusion has.

    Args:
        runs: The table of record.
    """
    over_bce = {
        loss: {
            'printed': subtract_printed('opml', ('III', loss, _SETS), ('III', 'BCE', _SETS)),
            'ours': answer_cells('opml', 'III', loss, 'BCE', _SETS, runs),
        }
        for loss in ('ZLPR', 'Focal', 'ASL')
    }
    falls = {part['arm']: part['answer'] for part in gains_at_equal_settings('opml', 'fall')}
    fall = falls.get('high rank, λ = 0.001', Answer())
    changes = measure_level_changes('high rank, λ = 0.01', runs)
    return {
        # above 0 where high rank shortened the fall
        'shortened': replace(fall, mean=-fall.mean, low=-fall.high, high=-fall.low),
        # taking high rank away from all parts together has the same sign
        'shortened_beside_others': falls.get('without high rank', Answer()),
        'level': {epoch: answer_effects(effects) for epoch, effects in changes.items()},
        'over_bce': over_bce,
        'all_smaller': all(
            of_loss['ours'].high < np.mean(of_loss['printed']) for of_loss in over_bce.values()
        ),
        'margins': _list_printed_margins(),
        **_describe_constants(runs),
    }


def _list_printed_margins() -> list[float]:
    "How far OPML-SP is above the best other method with single positives in the paper's Table II."
    cells = published.index_cells('opml', 'II')
    margins = []
    for name in _SETS:
        means = {
            row: cell['mean']
            for (row, column), cell in cells.items()
            if column == name and row.startswith('1 P. & 0 N.')
        }
        own = means.pop('1 P. & 0 N. / OPML-SP (Ours)')
        margins.append(own - max(means.values()))
    return margins


def _describe_constants(runs: pd.DataFrame) -> dict:
    """The product of the constants that OPML's search chose for each column of Table III, and on
    how many columns it chose another rate than that of ZLPR.
    """
    cells = published.index_cells('opml', 'III')
    products, other_rates = [], 0
    for name in _SETS:
        opml, zlpr = (
            tables.plan_cell(cells[loss, name], PHOTOS_SUITE).choose(runs)
            for loss in ('OPML', 'ZLPR')
        )
        if opml and zlpr:
            shares = resolve_hparams(opml.loss, opml.dataset, opml.hparams)
            # run under the name of ZLPR, it has no constants: both are 1
            alpha, beta = shares.get('alpha', 0.5), shares.get('beta', 0.5)
            products.append(alpha / (1 - alpha) * (beta / (1 - beta)))
            other_rates += opml.lr != zlpr.lr
    return {'products': products, 'other_rates': other_rates}
