"""A sentence on the gain of a method on real photos, for the notebook that explains it."""

import pandas as pd

from ..base import settings
from ..methods.core import find
from ..statistics import format_signed
from ..sweeps import search

SUITE = 'photos'


def read_boards() -> pd.DataFrame:
    """The boards of all photo sets: the columns of `outputs/methods/*.csv`, and dataset; empty
    without these files.
    """
    folder = settings.get_folder('outputs') / 'methods'
    boards = [
        pd.read_csv(folder / f'{dataset}.csv').assign(dataset=dataset)
        for dataset in search.SUITES[SUITE]['datasets']
        if (folder / f'{dataset}.csv').is_file()
    ]
    return pd.concat(boards, ignore_index=True) if boards else pd.DataFrame()


def describe_gains(*losses: str) -> str:
    """The gains of methods over AN, each on its own head, as a Markdown list.

    Args:
        losses: Registered methods.

    Returns:
        A sentence for each method that has runs, '' if none has.
    """
    boards = read_boards()
    if boards.empty:
        return ''
    rows = boards[boards.labels == 'single']
    sentences = []
    for loss in losses:
        own = rows[(rows.loss == loss) & (rows['head'] == find(loss).head)]
        if len(own):
            sentences.append(_describe(loss, own.set_index('dataset')))
    if not sentences:
        return ''
    count = rows.dataset.nunique()
    title = f'On {count} sets of real photos with one label each, against AN on a linear head:'
    return '\n'.join([title, '', *sentences])


def _describe(loss: str, rows: pd.DataFrame) -> str:
    gains = rows.over_plain_an
    head = rows['head'].iloc[0]
    sentence = (
        f'- `{loss}` (head {head}): {format_signed(gains.mean())} points of mAP on average, '
        f'from {format_signed(gains.min())} ({gains.idxmin()}) to '
        f'{format_signed(gains.max())} ({gains.idxmax()})'
    )
    if head != 'linear':
        sentence += f'; against AN on the same head {format_signed(rows.over_an.mean())} on average'
    exercised = rows.exercised.dropna()
    acted = int((exercised > 0.5).sum())  # as `gains.mechanism_acted` counts
    if acted < len(exercised):
        sentence += (
            f'; {find(loss).mechanism} had begun before the best epoch only on {acted} of '
            f'{len(exercised)} sets'
        )
    return sentence + '.'
