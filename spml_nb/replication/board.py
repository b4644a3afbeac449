"""The board: what each method gains, computed from the table of record, for the page to show."""

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.resources import files

import numpy as np
import pandas as pd
import yaml

from ..methods.core import find
from ..runs.config import Config
from ..sweeps import search
from . import claims, gains, published
from .gains import MEASURES, SUITES, head_of
from .tables import Table


@lru_cache
def _words() -> dict:
    return yaml.safe_load((files('spml_nb') / 'assets' / 'methods.yml').read_text(encoding='utf-8'))


def about(loss: str) -> dict:
    """What is said of a method.

    Args:
        loss: a registered method.

    Returns: {'name', 'by' (its source), 'does' (two sentences), 'paper' (one of
        `published.papers()` that proposes it, else ''), 'notebook' (its path from the root)}.

    Raises:
        SpmlError: for another method.
    """
    method = find(loss)
    usual = {
        'name': loss,
        'by': method.source,
        'does': (method.__doc__ or '').strip().partition('\n')[0],
        'paper': '',
    }
    return (
        usual
        | {'notebook': f"nbs/{method.__module__.partition('.')[2].replace('.', '/')}.ipynb"}
        | _words()['methods'].get(loss, {})
    )


def ranks(board: pd.DataFrame) -> pd.Series:
    """The mean rank of each row over the sets of photos, 1 being the highest level.

    Args:
        board: of one suite and one choice, as from `gains.beside`.

    Returns: Series by (loss, head, labels), of the rows that have a level on every set that has two
        or more and whose own mechanism acted everywhere. Empty while no set has two.
    """
    single = board[(board.labels == 'single') & board.acted.astype(bool)]
    wide = single.pivot_table('level', ['loss', 'head', 'labels'], 'dataset')
    return wide.loc[:, wide.notna().sum() > 1].dropna().rank(ascending=False).mean(axis=1).dropna()


PLACES = ('voc12', 'coco14', 'nus', 'cub')  # the papers' data sets that photos stand for
_NO_GAIN = {'theirs': math.nan, 'ours': math.nan, 'half': math.nan, 'state': '', 'uncounted': ''}


def printed(tables: Iterable[Table]) -> list[dict]:
    """What the five papers, and four later ones, print for whole methods, with our gain beside each
    of theirs.

    Args:
        tables: of all papers.

    Returns: list of dicts, one per row of a table: loss ('' for a method without runs here), name,
        paper (its short name), table, labels, head, note (where the paper copies it from, say),
        cells {data set of `PLACES`: {'level' (in percent), 'theirs' and 'ours' (the gains, NaN
        without one), 'half' (half the interval of ours), 'state' and 'uncounted' (as in
        `tables.Table`, '' for later methods)}}.

    Source: the papers' tables.
    """
    pairs = [pair for table in tables for pair in _whole_methods(table)]
    firsts = {_copied(cell) for cell, _ in pairs if cell['source'] == _short(cell)}
    rows = {}
    for cell, ours in pairs:
        if cell['source'] != _short(cell) and _copied(cell) in firsts:
            continue
        names = {
            'loss': cell['config']['loss'],
            'name': cell['row'].rpartition(' / ')[2],
            'note': cell['quoted'],
            'paper': _short(cell),
            'table': cell['table'],
            'labels': cell['config']['labels'],
            'head': cell['config'].get('head') or find(cell['config']['loss']).head,
        }
        row = rows.setdefault(tuple(names.values()), names | {'cells': {}})
        row['cells'].setdefault(
            cell['dataset'],
            {
                'level': ours['published'],
                'theirs': ours['gain_published'],
                'ours': ours['gain'],
                'half': ours['gain_half'],
                'state': ours['state'],
                'uncounted': ours['uncounted'],
            },
        )
    return [*rows.values(), *map(_later, _words()['later'])]


def _whole_methods(table: Table) -> Iterator[tuple[dict, dict]]:
    "The published cells of whole methods that have a baseline, each with ours."
    cells = published.cells(table.paper, table.number).to_dict('records')
    ours = {(each['row'], each['column']): each for each in table.of('photos').to_dict('records')}
    for cell in cells:
        place = cell['row'], cell['column']
        if place not in ours or not _is_whole_method(cell):
            continue
        if published.baseline(cell, cells) not in (None, cell):
            yield cell, ours[place]


def _short(cell: dict) -> str:
    return published.read(cell['paper'])['short']


def _is_whole_method(cell: dict) -> bool:
    "Whether a cell is a whole method on one of the four data sets, trained end to end."
    config = cell['config'] or {}
    return (
        cell['dataset'] in PLACES
        and cell['metric'] in ('mAP', 'mAP@class')
        and not config.get('hparams')
        and config.get('regime') == 'finetune'
        and config.get('labels') in ('single', 'full')
        and config.get('backbone', 'resnet50') == 'resnet50'
        and not math.isnan(cell['mean'])
    )


def _copied(cell: dict) -> tuple:
    "Equal for a number and its copy, which may have fewer digits."
    tenths = math.floor(10 * cell['mean'] + 0.5 + 1e-6)
    return cell['config']['loss'], cell['config']['labels'], cell['dataset'], tenths


def _later(entry: dict) -> dict:
    "A method of a later paper, as a row of `printed`."
    levels = entry['levels'].items()
    return {
        'table': '',
        'labels': 'single',
        'head': entry['loss'] and find(entry['loss']).head,
        'note': '',
        **entry,
        'paper': entry['by'],
        'cells': {dataset: {'level': level, **_NO_GAIN} for dataset, level in levels},
    }


@lru_cache
def compared() -> dict[str, set[str]]:
    """The methods in each paper's tables: {paper: losses}."""
    configs = {
        paper: pd.concat([published.cells(paper, n).config for n in published.tables(paper)])
        for paper in published.papers()
    }
    return {
        paper: {c['loss'] for c in each.dropna() if c['loss']} for paper, each in configs.items()
    }


@lru_cache
def compared_in_claims(paper: str) -> dict[str, set[str]]:
    """The methods that a paper's claims compare.

    Args:
        paper: one of `published.papers()`.

    Returns: {id of the claim: losses}, without those that are read from a figure.

    Raises:
        SpmlError: for another paper.
    """
    return {
        claim.id: {_loss(operand) for operand in claims.operands(claim)}
        for claim in claims.claims(paper)
        if not claim.figure
    }


def _loss(operand: claims.Operand) -> str | None:
    config = operand.config
    if not config:
        table, *place = operand.cell
        config = published.by_place(operand.paper, table)[tuple(place)]['config'] or {}
    return config.get('loss')


def chosen(row: search.Row, suite: str, dataset: str, known: pd.DataFrame) -> dict:
    """What the search of a cell found.

    Args:
        row, suite, dataset, known: as in `runs`.

    Returns: {'lr', 'hparams' (text), 'best' (list: the expected best validation mAP of 1, 2, …
        draws)}, with an empty list while the search is not through.
    """
    tried = search.searched(row, suite, dataset, known)
    line = tried[tried.chosen].iloc[:1]
    if not len(line):
        return {'lr': math.nan, 'hparams': '', 'best': []}
    words = ', '.join(f'{name} {value}' for name, value in json.loads(line.hparams.iloc[0]).items())
    return {
        'lr': line.lr.iloc[0],
        'hparams': words or 'the paper’s',
        'best': search.best_of_k(tried.val_map),
    }


def curve(values: list[float], width: int = 72, height: int = 20) -> dict:
    """The points of a small curve.

    Args:
        values: of the curve, from left to right.
        width, height: in pixels.

    Returns:
        points (of an SVG's `polyline`), width and height; {} for fewer than two values.
    """
    if len(values) < 2:
        return {}
    low = min(values)
    span = max(max(values) - low, 1e-9)
    xs = np.linspace(2, width - 2, len(values))
    ys = [height - 2 - (height - 4) * (value - low) / span for value in values]
    points = ' '.join(f'{x:.0f},{y:.1f}' for x, y in zip(xs, ys, strict=True))
    return {'points': points, 'width': width, 'height': height}


_APART = ('seed', 'label_seed', 'root', 'device')


def groups(known: pd.DataFrame) -> tuple[dict, dict[str, int]]:
    """The final runs, those together that differ by their seed alone.

    Args:
        known: as from `tables.record`.

    Returns: ({'usual': {field: its most frequent value}, 'each': [{'s': {field: value} where it is
        another, 'p': how the names of its runs begin, 'r': [[seed, the rest of the name, test
        mAP]]}]}, {name of a run: its group}).
    """
    if not len(known):
        return {'usual': {}, 'each': []}, {}
    fields = [f.name for f in dataclasses.fields(Config) if f.name not in _APART]
    final = known[(known.seed != search.SEARCH_SEED) & known.test_map.notna()]
    fields = [name for name in fields if name in final]
    usual = {
        name: final[name].mode().iloc[0]
        for name in fields
        if name not in ('loss', 'dataset', 'hparams') and final[name].notna().all()
    }  # else it is not everybody's
    varying = [name for name in fields if name not in usual or final[name].nunique() > 1]
    each, where = [], {}
    for values, runs in final.groupby(varying, sort=False, dropna=False):
        runs = runs.sort_values('seed')
        begins = runs.run.iloc[0].rpartition('-')[0] + '-'
        where |= dict.fromkeys(runs.run, len(each))
        others = {
            name: value
            for name, value in zip(varying, values, strict=True)
            if not pd.isna(value) and value != usual.get(name)
        }
        scored = [
            [int(seed), run.removeprefix(begins), round(float(score), 2)]
            for seed, run, score in zip(runs.seed, runs.run, runs.test_map, strict=True)
        ]
        each.append({'s': others, 'p': begins, 'r': scored})
    return {'usual': usual, 'each': each}, where


def lines(measured: pd.DataFrame, where: dict[str, int]) -> list[dict]:
    """The rows of the board.

    Args:
        measured: as from `gains.of_suites`.
        where: {name of a run: its group}, as from `groups`.

    Returns: list of dicts, the best mean rank first, what has no run last: id, loss, head, labels,
        papers (that compare it), ranks {suite: {choice: rank}}, cells {suite: {data set: {'g', 'a',
        'b' (groups of the runs, of AN on the same head and of plain AN, None if there is none), 's'
        (seconds), 'x' (whether its mechanism acted), and by choice [level, half, seeds, gain, half,
        plain gain, half]}}}.
    """
    cells = {
        (row.loss, head_of(row), row.labels): {}
        for suite in SUITES
        for row in search.rows_of(suite)
    }
    both = gains.beside(measured)
    placed = {of: ranks(part).round(2).to_dict() for of, part in both.groupby(['suite', 'choice'])}

    def ranks_in(suite, row):
        return {choice: placed.get((suite, choice), {}).get(row) for choice in MEASURES}

    for line in both.itertuples():
        of_suite = cells[line.loss, line.head, line.labels].setdefault(line.suite, {})
        cell = of_suite.setdefault(line.dataset, {})
        cell |= {
            'g': where.get(line.run),
            'a': where.get(line.base_run),
            'b': where.get(line.plain_run),
            's': round(line.seconds, 2),
            'x': line.acted,
            line.choice: [_rounded(getattr(line, name)) for name in _SHOWN],
        }
    rows = [
        {
            'id': '-'.join(row),
            'loss': row[0],
            'head': row[1],
            'labels': row[2],
            'papers': [paper for paper, losses in compared().items() if row[0] in losses],
            'cells': of_suites,
            'ranks': {suite: ranks_in(suite, row) for suite in SUITES},
        }
        for row, of_suites in cells.items()
    ]
    return sorted(rows, key=_order)


_SHOWN = ('level', 'level_half', 'n', 'gain', 'gain_half', 'plain', 'plain_half')


def _rounded(value: float) -> float | None:
    return None if pd.isna(value) else round(float(value), 4)


def _order(row: dict) -> tuple:
    cells = row['cells'].get('photos', {})
    plain = [cell['clean'][_SHOWN.index('plain')] for cell in cells.values()]
    mean = np.mean([gain for gain in plain if gain is not None] or [-math.inf])
    return row['ranks']['photos']['clean'] or math.inf, not cells, -mean


def cards(
    rows: list[dict], known: pd.DataFrame, checked: pd.DataFrame, papers: list[dict]
) -> dict[str, dict]:
    """What the page shows of each method.

    Args:
        rows: as from `lines`.
        known: as from `tables.record`.
        checked: the claims, as in `pages.Results`.
        papers: as from `printed`.

    Returns: {loss: `about`, and runs (list of dicts: suite, head, labels, dataset, cell, lr,
        hparams, best, curve), printed (its rows of `papers`), claims (list of dicts: those of its
        paper that compare it)}.
    """
    by_id = {line['id']: line for line in checked.to_dict('records')}
    cards = {}
    for row in rows:
        card = cards.setdefault(row['loss'], about(row['loss']) | {'runs': []})
        card['runs'] += _runs(row, known)
    for loss, card in cards.items():
        in_claims = compared_in_claims(card['paper']) if card['paper'] in published.papers() else {}
        card['claims'] = [
            by_id[name] for name, losses in in_claims.items() if loss in losses and name in by_id
        ]
        card['printed'] = [line for line in papers if line['loss'] == loss]
    return cards


def _runs(row: dict, known: pd.DataFrame) -> list[dict]:
    "What the search found on each set of photos."
    searched = search.Row(row['loss'], row['head'], row['labels'])
    runs = []
    for suite, of_suite in row['cells'].items():
        for dataset, cell in of_suite.items():
            found = chosen(searched, suite, dataset, known)
            place = {'head': row['head'], 'labels': row['labels'], 'suite': suite}
            place |= {'cell': cell, 'dataset': dataset}
            runs.append(place | found | {'curve': curve(found['best'])})
    return runs
