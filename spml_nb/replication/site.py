"""`outputs/index.html`: the board of all methods, and every table, figure and claim. It works offline."""

import base64
import hashlib
import json
from collections.abc import Iterable
from importlib.resources import files as packaged
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd

from ..base import files
from ..base.escaping import escape_for_markdown
from ..sweeps.search import SUITES
from . import board, figures, published, statistics
from .statistics import number, signed


def escape(text: str) -> str:
    """Text that Markdown shows as it is. Args: text: any. Returns: str."""
    return escape_for_markdown(text)


def put(texts: dict[Path, str]) -> list[Path]:
    """Write files; those that have their text already are left alone.

    Args:
        texts: {file: what it is to hold}.

    Returns: the files that changed.

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


def _asset(name: str) -> str:
    return (packaged('spml_nb') / 'assets' / name).read_text(encoding='utf-8')


def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {'number': number, 'signed': signed, 'fromjson': json.loads}
    return environment.get_template(name)


_REGIMES = {'linear': 'a head on frozen features', 'finetune': 'the whole network'}
_CHOSEN_ON = 'fully labelled validation images'

_FROM_SCRATCH = (
    'Run on Corel 5k, each photo with its theme as the one label: a network of 170,000 parameters '
    'from random weights, '
    "3 seeds, by the paper's recipe made small; its learning rate is that of five with the best "
    "mAP on validation "
    'images, its epoch the last.'
)


def protocol(suite: str, data: list[str] | tuple = (), seeds: int | None = None) -> str:
    """Under which conditions numbers were made, in one line.

    Args:
        suite: of the runs.
        data: names of the data sets that they speak of.
        seeds: how many, where it is not as many as the suite has.

    Returns: str.
    """
    if [*data] == ['corel5k_themes']:
        return _FROM_SCRATCH
    given = SUITES[suite]
    config, each = given['config'], given['seeds']
    usual = each['linear'] if seeds is None else seeds
    fewer = [f'{head} head {n}' for head, n in each.items() if n < usual]
    lines = [f"Data: {', '.join(data)}"] if len(data) else []
    lines += [
        f"{_REGIMES[config['regime']]} of {config['backbone']}",
        f'chosen on {_CHOSEN_ON}',
        f"search budget of every method: {given['draws']} runs",
        f"{usual} seed{'s' * (usual != 1)}{' (' + ', '.join(fewer) + ')' if fewer else ''}",
    ]
    text = '; '.join(lines)
    return f'{text[0].upper()}{text[1:]}.'


def headline(suite: str, data: Iterable[str]) -> str:
    """What stands on top of a page: on what data numbers were made, and how.

    Args:
        suite: of the runs.
        data: names of the data sets.

    Returns: str, one sentence.
    """
    if [*data] == ['corel5k_themes']:
        return _FROM_SCRATCH
    given = SUITES[suite]
    config, seeds = given['config'], given['seeds']
    fewer = ''.join(
        f', {n} on the {head} head' for head, n in seeds.items() if n < max(seeds.values())
    )
    on = '; '.join(map(published.run_on, data))
    return (
        f"Run on {on}: {_REGIMES[config['regime']]} of {config['backbone']}, {max(seeds.values())} "
        f"seeds{fewer}, after a search of {given['draws']} runs for every method; settings and "
        "epoch are those with the best mAP "
        f'on {_CHOSEN_ON}.'
    )


def alike(tidy: pd.DataFrame) -> pd.DataFrame:
    """The cells of a table whose order says something.

    Left out are cells that no run fills or that were not exercised, rows that learn from other
    labels than most of their column, such as all labels, and, in each column, runs that stand in a
    row above already.

    Args:
        tidy: cells of a suite, as in `tables.Table.cells` or its csv file.

    Returns: some of its rows.
    """
    tidy = tidy[~tidy.state.isin(['none', 'not exercised'])]
    tidy = tidy[tidy.labels == tidy.groupby('column').labels.transform(lambda each: each.mode()[0])]
    runs = (
        'runs' if 'runs' in tidy else 'seeds'
    )  # the csv files of `outputs/` have no names of runs
    return tidy[(tidy[runs] == '{}') | ~tidy.duplicated(['column', 'metric', runs])]


def ranking(tidy: pd.DataFrame) -> str:
    """Whether our runs rank the methods as the paper does, pooled over the columns of a table.

    Only the cells that are `alike` count.

    Args:
        tidy: cells of a suite, as in `tables.Table.cells`.

    Returns: str, '' where fewer than five methods of any column have both numbers.
    """
    tidy = alike(tidy)
    across = (
        tidy.groupby('column').metric.nunique().max() > 1
    )  # the rows are measures, the columns methods
    several = not across and tidy.groupby('column').dataset.nunique().max() > 1
    method, place = (tidy[axis] for axis in (('column', 'row') if across else ('row', 'column')))
    if several:
        method, place = method.str.rpartition(' / ')[2], place + method.str.partition(' / ')[0]
    wide, ours = (
        tidy.assign(method=method, place=place).pivot_table(
            what, 'method', 'place', sort=False, dropna=False
        )
        for what in ('published', 'ours')
    )
    ours = ours.reindex(index=wide.index, columns=wide.columns)
    most = (wide + ours).notna().sum().max() if len(tidy) else 0
    if most < 5:
        return ''
    found = statistics.rank_correlation(wide.to_numpy(float), ours.to_numpy(float), repeats=300)
    if np.isnan(found[0]):
        return ''
    rho, low, high = (signed(value, '+.2f') for value in found)
    interval = (
        f', 95 % interval {low} to {high}' if most > 7 else f'; {most} are too few for an interval'
    )
    return (
        'Rank correlation of the methods that learn from the same labels (without cells that were '
        'not exercised; runs shown twice count once), paper and ours, all columns together: '
        f'{rho}{interval}.'
    )


def lacking(part: pd.DataFrame) -> str:
    """What cells have in common: no run, runs without a number, or a mechanism that did not act:
    those are named.

    Args:
        part: cells of a suite with the same `why`.

    Returns: str.
    """
    if set(part.state) == {'none'}:
        return 'No run of ours'
    if set(part.state) == {'missing'}:
        return 'Not measured'
    if set(part.state) <= {'missing', 'partly'}:
        return 'Measured in part'
    return (
        f"{'Not exercised' if 'not exercised' in set(part.state) else 'Exercised in part'}, "
        + '; '.join(f'{each.row} on {each.column}' for each in part.itertuples())
    )


def page(results, folder: Path) -> str:
    """`index.html`.

    Args:
        results: `pages.Results`.
        folder: where the page will lie.

    Returns: HTML.
    """
    style, script = _asset('page.css'), _asset('page.js')
    groups, where = board.groups(results.known)
    rows, sets = board.lines(results.gains, where), list(SUITES['photos']['datasets'])
    ran = [name for name in sets if any(name in row['cells'].get('photos', {}) for row in rows)]
    printed = board.printed(results.tables)
    told = {
        'about': {paper: published.read(paper) for paper in published.papers()},
        'places': board.PLACES,
        'suite': published.SUITE,
        'verdicts': [*statistics.Verdict],
        'statistic': published.STATISTIC,
        'photos': published.photos(),
        'stand_ins': published.STAND_INS,
        'names': published.PAPERS_DATA,
        'protocol': protocol,
        'ranking': ranking,
        'headline': headline,
        'run_on': published.run_on,
        'in_place_of': published.in_place_of,
        'style': style,
        'script': script,
        'style_hash': _digest(style),
        'script_hash': _digest(script),
        'not_drawn': figures.not_drawn,
        'lacking': lacking,
        'uncounted': published.UNCOUNTED,
    }
    data = {'groups': groups, 'rows': {row['id']: row for row in rows}}
    found = {
        'results': results,
        'folder': folder,
        'rows': rows,
        'printed': printed,
        'data': _json(data),
        'cards': board.cards(rows, results.known, results.claims, printed),
        'sets': ran or sets,
        'not_run': [name for name in sets if ran and name not in ran],
        'boards': [file.stem for file in sorted((folder / 'methods').glob('*.md'))],
        'group_of': lambda runs: where.get(next(iter(json.loads(runs).values()), None), ''),
    }
    return _template('page.html').render(told, **found)


def _json(value) -> str:
    "JSON that may stand in a script element; NumPy's numbers become plain ones."
    text = json.dumps(
        value,
        ensure_ascii=False,
        separators=(',', ':'),
        allow_nan=False,
        default=lambda x: x.item(),
    )
    return text.replace('<', '\\u003c')


def _digest(text: str) -> str:
    return 'sha256-' + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
