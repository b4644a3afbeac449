"""The learning rates and hyper-parameters that the searches behind a table chose on validation."""

import pandas as pd

from ..base.files import markdown_table
from ..methods.core import find
from ..runs.config import Config, resolve
from ..sweeps.search import SUITES, search_space
from . import published, tables


def chosen_settings(paper: str, number: str, runs: pd.DataFrame) -> pd.DataFrame:
    """The settings that the finished searches behind a table chose.

    Args:
        paper, number: As in `published.table_cells`.
        runs: The table of record.

    Returns:
        DataFrame of str, a row for each search and measure that chose in it, a column for each
        photo set.

    Raises:
        SpmlError: For an unknown paper or table.
    """
    chosen = {}
    for cell in published.table_cells(paper, number).to_dict('records'):
        plan = tables.plan_cell(cell, published.PHOTOS_SUITE)
        config = plan.choose(runs)
        if config is not None:
            name = _describe_search(config)
            if plan.measure != 'validation':
                name += f', by `{plan.measure}`'
            chosen[name, config.dataset] = _describe_settings(config, plan.stated)
    return pd.Series(chosen, dtype=str).unstack(sort=False) if chosen else pd.DataFrame()


def _describe_search(config: Config) -> str:
    """'hml, head linear, batches of 32': the method, and what is unusual in its search."""
    names = [config.loss]
    if config.head not in (find(config.loss).head, None):
        names.append(f'head {config.head}')
    if config.labels not in ('single', None):
        names.append(f'labels {config.labels}')
    if config.batch_size not in (SUITES[published.PHOTOS_SUITE]['config']['batch_size'], None):
        names.append(f'batches of {config.batch_size}')
    return ', '.join(names)


def _describe_settings(config: Config, stated: dict) -> str:
    """'0.0019; scale 17.9': the learning rate, and the hyper-parameters that the table does not
    state.
    """
    hparams = resolve(config).hparams
    searched = [
        f'{name} {hparams[name]:.3g}' for name in search_space(config.loss) if name not in stated
    ]
    return '; '.join([f'{config.lr:.3g}', *searched])


def format_chosen_settings(paper: str, number: str, runs: pd.DataFrame) -> str:
    """`chosen_settings` as a table that opens on a click, in Markdown; '' if it is empty.

    Raises:
        SpmlError: As `chosen_settings`.
    """
    chosen = chosen_settings(paper, number, runs)
    if chosen.empty:
        return ''
    header = ['learning rate; constants', *map(published.name_dataset, chosen.columns)]
    rows = [
        [search, *row] for search, row in zip(chosen.index, chosen.fillna('–').values, strict=True)
    ]
    return (
        '\n<details><summary>Chosen learning rates and constants</summary>\n\n'
        f'{markdown_table([header, *rows])}\n</details>\n'
    )
