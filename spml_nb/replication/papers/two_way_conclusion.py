"""What the conclusion on *Two-way Multi-Label Loss* reports."""

import pandas as pd

from .. import published, tables
from ..answers import Answer, answer_effects
from ..published import PHOTOS_SUITE
from .two_way_claims import BESIDE_PLAIN_BCE, estimate_leads


def collect_fields(runs: pd.DataFrame) -> dict:
    """The fields of `conclusion_two_way.md` that no other conclusion has.

    Args:
        runs: The table of record.
    """
    cells = published.index_cells('two_way', '7').values()
    of_paper = {cell['dataset'] for cell in cells if not cell['added']}
    plans = [(cell['dataset'], tables.plan_cell(cell, PHOTOS_SUITE)) for cell in cells]
    searches = {dataset: plan.search for dataset, plan in plans if plan.search}
    first, *_ = next(iter(searches.values()))
    rivals = {'softmax': 'Softmax', 'weighted BCE': 'BCE', 'focal loss': 'Focal', 'ASL': 'ASL'}
    lost = [
        cell
        for number in published.table_numbers('two_way')
        for cell in published.index_cells('two_way', number).values()
        if cell['lost']
    ]
    return {
        'epochs': first.epochs,
        'leads': {name: _answer_leads('Ours', row, runs) for name, row in rivals.items()},
        'over_plain': {
            name: _answer_leads(row, 'plain BCE', runs) for name, row in BESIDE_PLAIN_BCE.items()
        },
        'sets': len(of_paper),
        'fillable': len(of_paper & set(searches)),
        'lost': len(lost),
    }


def _answer_leads(loss: str, rival: str, runs: pd.DataFrame) -> list[Answer]:
    "The lead of a row of Table 7 over another in mAP over classes and over samples."
    return [
        answer_effects(estimate_leads(loss, rival, measure, runs))
        for measure in ('mAP@class', 'mAP@sample')
    ]
