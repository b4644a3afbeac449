"""The papers' hyper-parameters as configurations and tables."""

from dataclasses import fields

import pandas as pd

from ..base.errors import require_one_of
from ..methods.paper_values import ORIGINS, PAPERS, paper_datasets, paper_losses, paper_values
from ..runs.config import Config

__all__ = [
    'ORIGINS',
    'PAPERS',
    'paper_datasets',
    'paper_losses',
    'paper_values',
    'preset',
    'preset_overview',
    'preset_table',
]


def preset(paper: str, dataset: str, loss: str) -> dict:
    """The settings of a paper for one of its methods on a data set.

    Returns:
        {field: value} for `Config(**preset(...))`.

    Raises:
        SpmlError: for a combination that the paper does not have.
    """
    stated = {name: value.value for name, value in paper_values(paper, dataset, loss).items()}
    config_fields = {f.name for f in fields(Config)}
    hparams = {name: value for name, value in stated.items() if name not in config_fields}
    shared = {name: value for name, value in stated.items() if name in config_fields}
    return {'loss': loss, 'dataset': dataset, 'hparams': hparams, **shared}


def preset_table(paper: str | None = None) -> pd.DataFrame:
    """All settings of the papers, one value per row.

    Args:
        paper: one of `PAPERS`; unset: all.

    Returns:
        DataFrame with the columns paper, dataset, loss, name, value, origin and source.

    Raises:
        SpmlError: for an unknown paper.
    """
    columns = ['paper', 'dataset', 'loss', 'name', 'value', 'origin', 'source']
    rows = [
        (p, dataset, loss, name, v.value, v.origin, v.source)
        for p in ([paper] if paper else PAPERS)
        for dataset in paper_datasets(p)
        for loss in paper_losses(p, dataset)
        for name, v in paper_values(p, dataset, loss).items()
    ]
    return pd.DataFrame(rows, columns=columns)


def preset_overview(paper: str, loss: str | None = None) -> pd.DataFrame:
    """A paper's settings side by side for its data sets.

    Args:
        loss: one of its losses; unset: its first.

    Returns:
        DataFrame indexed by name, with one column per data set and the source.

    Raises:
        SpmlError: for an unknown paper, or a loss that it does not have.
    """
    rows = preset_table(paper)
    losses = list(rows.loss.unique())
    loss = require_one_of(loss or losses[0], losses, f'loss of {paper!r}')
    rows = rows[rows.loss == loss].astype({'value': str})
    wide = rows.pivot(index='name', columns='dataset', values='value')
    wide = wide.reindex(index=rows.name.unique(), columns=rows.dataset.unique()).fillna('·')
    # 'chosen here: VALUES' repeats the columns
    sources = rows.source.str.replace(r'(chosen here): .*', r'\1', regex=True)
    return wide.assign(source=sources.groupby(rows.name).agg(lambda s: ' | '.join(s.unique())))
