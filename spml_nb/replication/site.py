"""`outputs/index.html`: the board of all methods, every table, figure and claim; works offline."""

import base64
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from ..base import files
from ..sweeps.search import SUITES
from . import board, figures, published, statistics
from .rendering import asset, render
from .statistics import signed

_REGIMES = {'linear': 'a head on frozen features', 'finetune': 'the whole network'}
_CHOSEN_ON = 'fully labelled validation images'

_FROM_SCRATCH = (
    'Run on Corel 5k, each photo with its theme as the one label: a network of 170,000 parameters '
    "from random weights, 3 seeds, by the paper's recipe made small; its learning rate is that of "
    'five with the best mAP on validation images, its epoch the last.'
)


def protocol(suite: str, data: Iterable[str] = (), seeds: int | None = None) -> str:
    """Under which conditions numbers were made, in one line.

    Args:
        suite: a key of `search.SUITES`.
        data: the data sets that the numbers are of.
        seeds: how many, where it is not as many as the suite has.
    """
    data = list(data)
    if data == ['corel5k_themes']:
        return _FROM_SCRATCH
    spec = SUITES[suite]
    usual = spec['seeds']['linear'] if seeds is None else seeds
    fewer = ', '.join(f'{head} head {n}' for head, n in spec['seeds'].items() if n < usual)
    conditions = [
        f"{_REGIMES[spec['config']['regime']]} of {spec['config']['backbone']}",
        f'chosen on {_CHOSEN_ON}',
        f"search budget of every method: {spec['draws']} runs",
        '1 seed' if usual == 1 else f'{usual} seeds',
    ]
    if data:
        conditions.insert(0, f"data: {', '.join(data)}")
    text = '; '.join(conditions)
    if fewer:
        text += f' ({fewer})'
    return f'{text[0].upper()}{text[1:]}.'


def headline(suite: str, data: Iterable[str]) -> str:
    """What stands on top of a page: on what data numbers were made, and how.

    Args:
        suite: a key of `search.SUITES`.
        data: the data sets that the numbers are of.

    Returns:
        One sentence.
    """
    data = list(data)
    if data == ['corel5k_themes']:
        return _FROM_SCRATCH
    spec = SUITES[suite]
    most = max(spec['seeds'].values())
    fewer = ''.join(f', {n} on the {head} head' for head, n in spec['seeds'].items() if n < most)
    return (
        f"Run on {'; '.join(map(published.run_on, data))}: {_REGIMES[spec['config']['regime']]} of "
        f"{spec['config']['backbone']}, {most} seeds{fewer}, after a search of {spec['draws']} "
        f'runs for every method; settings and epoch are those with the best mAP on {_CHOSEN_ON}.'
    )


def comparable_cells(tidy: pd.DataFrame) -> pd.DataFrame:
    """The cells of a table whose order says something.

    Left out are cells that no run fills or that were not exercised, rows that learn from other
    labels than most of their column, such as all labels, and, in each column, runs that stand in a
    row above already.

    Args:
        tidy: cells of a suite, as in `tables.Table.cells` or its csv file.
    """
    tidy = tidy[~tidy.state.isin(['none', 'not exercised'])]
    usual = tidy.groupby('column').labels.transform(lambda labels: labels.mode()[0])
    tidy = tidy[tidy.labels == usual]
    # the csv files of `outputs/` have no names of runs
    runs = 'runs' if 'runs' in tidy else 'seeds'
    return tidy[(tidy[runs] == '{}') | ~tidy.duplicated(['column', 'metric', runs])]


def ranking(tidy: pd.DataFrame) -> str:
    """Whether our runs rank the methods as the paper does, pooled over the columns of a table.

    Only the `comparable_cells` count.

    Args:
        tidy: cells of a suite, as in `tables.Table.cells`.

    Returns:
        A sentence, '' where fewer than five methods of any column have both numbers.
    """
    both = _methods_by_place(comparable_cells(tidy)).pivot_table(
        ['published', 'ours'], 'method', 'place', sort=False, dropna=False
    )
    if both.empty:
        return ''
    theirs, ours = both['published'], both['ours']
    most = (theirs + ours).notna().sum().max()
    if most < 5:
        return ''
    correlation = statistics.rank_correlation(
        theirs.to_numpy(float), ours.to_numpy(float), repeats=300
    )
    if np.isnan(correlation[0]):
        return ''
    rho, low, high = (signed(value, '+.2f') for value in correlation)
    interval = f'; {most} are too few for an interval'
    if most > 7:
        interval = f', 95 % interval {low} to {high}'
    return (
        'Rank correlation of the methods that learn from the same labels (without cells that were '
        'not exercised; runs shown twice count once), paper and ours, all columns together: '
        f'{rho}{interval}.'
    )


def _methods_by_place(tidy: pd.DataFrame) -> pd.DataFrame:
    """Cells with their method, and the place where methods are ranked among each other."""
    if tidy.groupby('column').metric.nunique().max() > 1:  # rows are measures, columns methods
        return tidy.assign(method=tidy.column, place=tidy.row)
    if tidy.groupby('column').dataset.nunique().max() > 1:  # rows are 'data set / method'
        return tidy.assign(
            method=tidy['row'].str.rpartition(' / ')[2],
            place=tidy.column + tidy['row'].str.partition(' / ')[0],
        )
    return tidy.assign(method=tidy['row'], place=tidy.column)


def lacking(cells: pd.DataFrame) -> str:
    """What cells with the same `why` lack: runs, a number, or runs in which the method's mechanism
    acted; those are named.
    """
    states = set(cells.state)
    if states == {'none'}:
        return 'No run of ours'
    if states == {'missing'}:
        return 'Not measured'
    if states <= {'missing', 'partly'}:
        return 'Measured in part'
    names = '; '.join(f'{cell.row} on {cell.column}' for cell in cells.itertuples())
    return f"{'Not exercised' if 'not exercised' in states else 'Exercised in part'}, {names}"


def write_changed(texts: dict[Path, str]) -> list[Path]:
    """Write files; those that hold their text already are left alone.

    Args:
        texts: {file: its text}.

    Returns:
        The files that changed.

    Raises:
        SpmlError: for a file that cannot be written.
    """
    changed = [
        file
        for file, text in texts.items()
        if not file.is_file() or file.read_bytes() != text.encode()
    ]
    for file in changed:
        files.write_atomically(file, texts[file])
    return changed


def page(results, printed: list[dict], boards: list[str]) -> str:
    """`index.html`.

    Args:
        results: `pages.Results`.
        printed: what the papers print, as from `board.printed`.
        boards: names of the boards in `outputs/methods`.
    """
    groups, group_of_run = board.groups(results.runs)
    rows = board.lines(results.gains, group_of_run)
    photos = list(SUITES['photos']['datasets'])
    with_runs = [
        name for name in photos if any(name in row['cells'].get('photos', {}) for row in rows)
    ]
    style, script = asset('page.css'), asset('page.js')

    def group_of(runs: str) -> int | str:
        """The group of a cell's runs, {seed: name} as JSON; '' without runs."""
        return group_of_run.get(next(iter(json.loads(runs).values()), None), '')

    return render(
        'index.html',
        results=results,
        papers={paper: published.read(paper) for paper in published.papers()},
        rows=rows,
        cards=board.cards(rows, results.runs, results.claims, printed),
        printed=printed,
        boards=boards,
        data=_script_json({'groups': groups, 'rows': {row['id']: row for row in rows}}),
        sets=with_runs or photos,
        not_run=[name for name in photos if with_runs and name not in with_runs],
        group_of=group_of,
        suite=published.SUITE,
        places=board.PLACES,
        photos=published.photos().reset_index().to_dict('records'),
        protocol=protocol,
        headline=headline,
        ranking=ranking,
        lacking=lacking,
        run_on=published.run_on,
        in_place_of=published.in_place_of,
        stand_ins=published.STAND_INS,
        names=published.PAPERS_DATA,
        statistic=published.STATISTIC,
        uncounted=published.UNCOUNTED,
        not_drawn=figures.not_drawn,
        style=style,
        script=script,
        style_hash=_digest(style),
        script_hash=_digest(script),
    )


def _script_json(value) -> str:
    """JSON that may stand in a script element; NumPy's numbers become plain ones."""
    text = json.dumps(
        value,
        ensure_ascii=False,
        separators=(',', ':'),
        allow_nan=False,
        default=lambda number: number.item(),
    )
    return text.replace('<', '\\u003c')


def _digest(text: str) -> str:
    return 'sha256-' + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
