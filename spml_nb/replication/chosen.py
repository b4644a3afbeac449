"""The learning rate and the constants that a table's searches chose on validation."""

import pandas as pd

from ..base.files import markdown_table
from ..methods.core import find
from ..runs.config import Config, resolve
from ..sweeps.search import SUITES, search_space
from . import published, tables


def chosen_settings(paper: str, number: str, runs: pd.DataFrame) -> pd.DataFrame:
    """What the search behind each row of a table chose, as far as it is through.

    Args:
        paper, number: as in `published.table_cells`.
        runs: as from `tables.record`.

    Returns:
        DataFrame of str: a line for each search and the measure that chose in it, a column for each
        set of photos; cells of the table that share both share a line.

    Raises:
        SpmlError: for another paper or table.
    """
    found = {}
    for cell in published.table_cells(paper, number).to_dict('records'):
        plan = tables.plan_cell(cell, published.SUITE)
        config = plan.choose(runs)
        if config is not None:
            name = ', by '.join([_method(config), *_measures(plan)])
            found[name, config.dataset] = _settings(config, plan.stated)
    return pd.Series(found, dtype=str).unstack(sort=False) if found else pd.DataFrame()


def _measures(plan: tables.Plan) -> list[str]:
    "What chose, where it is not mAP over classes."
    return [] if plan.measure == 'validation' else [f'`{plan.measure}`']


def _method(config: Config) -> str:
    """A method with what else has a search of its own: head, labels, size of the batches."""
    usual = {
        'head': find(config.loss).head,
        'labels': 'single',
        'batch_size': SUITES[published.SUITE]['config']['batch_size'],
    }
    names = {'head': 'head {}', 'labels': 'labels {}', 'batch_size': 'batches of {}'}
    other = [
        names[field].format(getattr(config, field))
        for field, value in usual.items()
        if getattr(config, field) not in (value, None)
    ]
    return ', '.join([config.loss, *other])


def _settings(config: Config, stated: dict) -> str:
    """'0.0019; scale 17.9': the rate, and what was drawn and the table does not state."""
    hparams = resolve(config).hparams
    drawn = [
        f'{name} {hparams[name]:.3g}' for name in search_space(config.loss) if name not in stated
    ]
    return '; '.join([f'{config.lr:.3g}', *drawn])


def format_chosen_settings(paper: str, number: str, runs: pd.DataFrame) -> str:
    """The same as a table that opens on a click, '' without any.

    Args:
        paper, number, runs: as in `chosen_settings`.

    Raises:
        SpmlError: as `chosen_settings`.
    """
    found = chosen_settings(paper, number, runs)
    if found.empty:
        return ''
    header = ['learning rate; constants', *map(published.name_dataset, found.columns)]
    lines = [
        [method, *row] for method, row in zip(found.index, found.fillna('–').values, strict=True)
    ]
    return (
        '\n<details><summary>Chosen learning rates and constants</summary>\n\n'
        f'{markdown_table([header, *lines])}\n</details>\n'
    )
