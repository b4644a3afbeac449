"""The board: what each method gains, computed once from the table of record, for the page to show."""

import dataclasses
import json
import math
from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files

import numpy as np
import pandas as pd
import yaml

from ..methods.core import find
from ..runs.config import Config
from ..sweeps import search
from ..sweeps.queue import key
from . import claims, published
from .statistics import Scores, image_sd, paired
from .tables import Table, acted


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


MEASURES = {'clean': 'test_map', 'observed': 'observed_test_map'}  # by what the epoch was chosen


def runs(row: search.Row, suite: str, dataset: str, known: pd.DataFrame) -> pd.DataFrame:
    """The final runs of a cell.

    Args:
        row: of `search.rows_of(suite)`.
        suite, dataset: as in `search.candidates`.
        known: as from `tables.record`.

    Returns: DataFrame by seed: run (its name), test_map and observed_test_map in percent, seconds,
        exercised, late, first (the key of the first run). Empty while the search is not through.
    """
    configs = search.finals(row, suite, dataset, known)
    found = known.reindex(
        index=map(key, configs), columns=['run', *MEASURES.values(), 'seconds', 'exercised', 'late']
    )
    found = found.set_axis(pd.Index([c.seed for c in configs], dtype=int)).dropna(subset='test_map')
    return found.assign(first=key(configs[0]) if configs else '')


def _numbers(
    own: pd.DataFrame, same: pd.DataFrame, plain: pd.DataFrame, measure: str, dataset: str
) -> dict:
    def scores(runs):
        # test images were resampled for the epoch of the clean choice alone
        resampled = len(runs) and measure == MEASURES['clean']
        return Scores(runs[measure].dropna(), runs['first'].iloc[0] if resampled else '')

    each, *others = map(scores, (own, same, plain))
    level = each.by_seed
    gain, beside = (paired(each, other, fallback=image_sd(dataset)) for other in others)
    return {
        'level': level.mean(),
        'level_half': search.half_interval(level),
        'n': len(level),
        'paired': gain,
        'gain': gain.mean,
        'gain_half': gain.half_width,
        'plain': beside.mean,
        'plain_half': beside.half_width,
    }


def cells(suite: str, known: pd.DataFrame) -> pd.DataFrame:
    """The board of a suite.

    Args:
        suite: a key of `search.SUITES`.
        known: as from `tables.record`.

    Returns: DataFrame, one row per method, head, data set and choice of the epoch, for cells that
        have runs: suite, loss, head, labels, dataset, choice (of `MEASURES`), level and level_half
        (test mAP and half its interval over seeds), n (seeds), gain and gain_half (over AN on the
        same head, with the interval over seeds and test images), paired (the same as a
        `statistics.Effect`), plain and plain_half (over AN on the linear head), seconds (of a run),
        late (share of runs whose best epoch is one of the last two), acted (whether the method's
        own mechanism began in more than half of the runs), run, same and bare (the first run, of
        the method, of AN on the same head and of plain AN, '' if there is none).
    """
    lines, rows = [], search.rows_of(suite)
    for dataset in [
        name
        for name in search.SUITES[suite]['datasets']
        if len(known) and (known.dataset == name).any()
    ]:
        every = {
            (r.loss, r.head or find(r.loss).head, r.labels): runs(r, suite, dataset, known)
            for r in rows
        }
        for (loss, head, labels), own in every.items():
            others = [
                every.get(('an', h, labels), every.get(('an', h, 'single'), own[:0]))
                for h in (search.head_of_an(head), 'linear')
            ]
            cell = {
                'suite': suite,
                'loss': loss,
                'head': head,
                'labels': labels,
                'dataset': dataset,
                'seconds': own.seconds.mean(),
                'late': own.late.mean(),
                'acted': acted(own),
            }
            cell |= {
                name: each.run.iloc[0] if len(each) else ''
                for name, each in zip(('run', 'same', 'bare'), (own, *others), strict=True)
            }
            lines += [
                cell | {'choice': choice, **_numbers(own, *others, measure, dataset)}
                for choice, measure in MEASURES.items()
                if own[measure].notna().any()
            ]
    return pd.DataFrame(lines, columns=COLUMNS)


COLUMNS = [
    'suite',
    'loss',
    'head',
    'labels',
    'dataset',
    'choice',
    'level',
    'level_half',
    'n',
    'gain',
    'gain_half',
    'paired',
    'plain',
    'plain_half',
    'seconds',
    'late',
    'acted',
    'run',
    'same',
    'bare',
]


def ranks(board: pd.DataFrame) -> pd.Series:
    """The mean rank of each row over the sets of photos, 1 being the highest level.

    Args:
        board: of one suite and one choice, as from `cells`.

    Returns: Series by (loss, head, labels), of the rows that have a level on every set that has two
        or more and whose own mechanism acted everywhere. Empty while no set has two.
    """
    single = board[(board.labels == 'single') & board.acted.astype(bool)]
    wide = single.pivot_table('level', ['loss', 'head', 'labels'], 'dataset')
    return wide.loc[:, wide.notna().sum() > 1].dropna().rank(ascending=False).mean(axis=1).dropna()


PLACES = ('voc12', 'coco14', 'nus', 'cub')  # the papers' data sets that photos stand for


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
    every, told = [], {}
    for whole in tables:
        cells = published.cells(whole.paper, whole.number).to_dict('records')
        lines = {
            (line['row'], line['column']): line for line in whole.of('photos').to_dict('records')
        }
        every += [
            (cell, lines[cell['row'], cell['column']])
            for cell in cells
            if (cell['row'], cell['column']) in lines
            and _whole(cell)
            and published.baseline(cell, cells) not in (None, cell)
        ]
    firsts = {_copied(cell) for cell, _ in every if cell['source'] == _short(cell)}
    for cell, line in every:
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
        told.setdefault(tuple(names.values()), names | {'cells': {}})['cells'].setdefault(
            cell['dataset'],
            {
                'level': line['published'],
                'theirs': line['gain_published'],
                'ours': line['gain'],
                'half': line['gain_half'],
                'state': line['state'],
                'uncounted': line['uncounted'],
            },
        )
    return [*told.values(), *map(_later, _words()['later'])]


def _short(cell: dict) -> str:
    return published.read(cell['paper'])['short']


def _whole(cell: dict) -> bool:
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
    return (
        cell['config']['loss'],
        cell['config']['labels'],
        cell['dataset'],
        math.floor(10 * cell['mean'] + 0.5 + 1e-6),
    )


def _later(entry: dict) -> dict:
    none = dict.fromkeys(('theirs', 'ours', 'half'), math.nan) | {'state': '', 'uncounted': ''}
    cells = {dataset: {'level': level, **none} for dataset, level in entry['levels'].items()}
    head = entry['loss'] and find(entry['loss']).head
    return {
        'table': '',
        'labels': 'single',
        'head': head,
        'note': '',
        **entry,
        'paper': entry['by'],
        'cells': cells,
    }


@lru_cache
def compared() -> dict[str, set[str]]:
    """The methods in each paper's tables. Returns: {paper: losses}."""
    return {
        paper: {
            cell['loss']
            for number in published.tables(paper)
            for cell in published.cells(paper, number).config
            if cell and cell['loss']
        }
        for paper in published.papers()
    }


@lru_cache
def asked(paper: str) -> dict[str, set[str]]:
    """The methods that a paper's claims compare.

    Args:
        paper: one of `published.papers()`.

    Returns: {id of the claim: losses}, without those that are read from a figure.

    Raises:
        SpmlError: for another paper.
    """
    return {claim.id: _operands(claim) for claim in claims.claims(paper) if not claim.figure}


def _operands(claim: claims.Claim) -> set[str]:
    found = set()

    def value(operand):
        config = (
            operand.config
            or published.by_place(operand.paper, operand.cell[0])[operand.cell[1:]]['config']
            or {}
        )
        found.add(config.get('loss'))
        return claims.Number({})

    claim.places(value)
    return found


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


def curve(values: list[float], width: int = 72, height: int = 20) -> str:
    """A small curve as SVG.

    Args:
        values: two or more numbers.
        width, height: in pixels.

    Returns: an `svg` element in the colour of the text, '' for fewer numbers.
    """
    if len(values) < 2:
        return ''
    low, span = min(values), max(max(values) - min(values), 1e-9)
    xs = np.linspace(2, width - 2, len(values))
    points = ' '.join(
        f'{x:.0f},{height - 2 - (height - 4) * (v - low) / span:.1f}'
        for x, v in zip(xs, values, strict=True)
    )
    label = f'best of k draws: {values[0]:.1f} for one, {values[-1]:.1f} for {len(values)}'
    return (
        f'<svg role="img" aria-label="{label}" width="{width}" height="{height}" viewBox="0 0 '
        f'{width} {height}"><polyline points="{points}" fill="none" stroke="currentColor" '
        'stroke-width="1.5"/></svg>'
    )


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
    fields = [
        f.name for f in dataclasses.fields(Config) if f.name not in _APART and f.name in known
    ]
    final = known[(known.seed != search.SEARCH_SEED) & known.test_map.notna()]
    usual = {
        name: final[name].mode().iloc[0]
        for name in fields
        if name not in ('loss', 'dataset', 'hparams') and final[name].notna().all()
    }  # else it is not everybody's
    each, where = [], {}
    for values, part in final.groupby(fields, sort=False, dropna=False):
        part, own = part.sort_values('seed'), dict(zip(fields, values, strict=True))
        start = part.run.iloc[0].rpartition('-')[0] + '-'
        where |= dict.fromkeys(part.run, len(each))
        others = {
            name: value
            for name, value in own.items()
            if not pd.isna(value) and value != usual.get(name)
        }
        each.append(
            {
                's': others,
                'p': start,
                'r': [
                    [int(seed), run.removeprefix(start), round(float(score), 2)]
                    for seed, run, score in zip(part.seed, part.run, part.test_map, strict=True)
                ],
            }
        )
    return {'usual': usual, 'each': each}, where


SUITES = ('photos', 'photos_finetune')


def lines(known: pd.DataFrame, where: dict[str, int]) -> list[dict]:
    """The rows of the board.

    Args:
        known: as from `tables.record`.
        where: {name of a run: its group}, as from `groups`.

    Returns: list of dicts, the best mean rank first, what has no run last: id, loss, head, labels,
        papers (that compare it), ranks {suite: {choice: rank}}, cells {suite: {data set: {'g', 'a',
        'b' (groups of the runs, of AN on the same head and of plain AN, None if there is none), 's'
        (seconds), 'x' (whether its mechanism acted), and by choice [level, half, seeds, gain, half,
        plain gain, half]}}}.
    """
    every = {
        (r.loss, r.head or find(r.loss).head, r.labels): {}
        for suite in SUITES
        for r in search.rows_of(suite)
    }
    found = pd.concat([cells(suite, known) for suite in SUITES])
    placed = {of: ranks(part).round(2).to_dict() for of, part in found.groupby(['suite', 'choice'])}
    for line in found.to_dict('records'):
        here = every[line['loss'], line['head'], line['labels']].setdefault(line['suite'], {})
        here.setdefault(line['dataset'], {}).update(
            {
                short: where.get(line[name])
                for short, name in (('g', 'run'), ('a', 'same'), ('b', 'bare'))
            },
            s=round(line['seconds'], 2),
            x=line['acted'],
            **{
                line['choice']: [
                    None if pd.isna(line[name]) else round(float(line[name]), 4) for name in _SHOWN
                ]
            },
        )
    rows = [
        {
            'id': '-'.join(row),
            **dict(zip(('loss', 'head', 'labels'), row, strict=True)),
            'papers': [paper for paper, losses in compared().items() if row[0] in losses],
            'cells': each,
            'ranks': {
                suite: {choice: placed.get((suite, choice), {}).get(row) for choice in MEASURES}
                for suite in SUITES
            },
        }
        for row, each in every.items()
    ]
    return sorted(rows, key=_place)


_SHOWN = ('level', 'level_half', 'n', 'gain', 'gain_half', 'plain', 'plain_half')


def _place(row: dict) -> tuple:
    here = row['cells'].get('photos', {})
    gains = [cell['clean'][5] for cell in here.values() if cell['clean'][5] is not None]
    return row['ranks']['photos']['clean'] or math.inf, not here, -np.mean(gains or [-math.inf])


def cards(
    rows: list[dict], known: pd.DataFrame, asked_of_us: pd.DataFrame, papers: list[dict]
) -> dict[str, dict]:
    """What is told of each method.

    Args:
        rows: as from `lines`.
        known: as from `tables.record`.
        asked_of_us: the claims, as in `pages.Results`.
        papers: as from `printed`.

    Returns: {loss: `about`, and runs (list of dicts: suite, head, labels, dataset, cell, lr,
        hparams, best, curve), printed (its part of `papers`), claims (list of dicts: those of its
        paper that compare it)}.
    """
    told, by_id = {}, {line['id']: line for line in asked_of_us.to_dict('records')}
    for row in rows:
        card = told.setdefault(row['loss'], about(row['loss']) | {'runs': []})
        line = search.Row(row['loss'], row['head'], row['labels'])
        for suite, here in row['cells'].items():
            for dataset, cell in here.items():
                tried = chosen(line, suite, dataset, known)
                card['runs'].append(
                    {
                        **{name: row[name] for name in ('head', 'labels')},
                        'suite': suite,
                        'cell': cell,
                        'dataset': dataset,
                        **tried,
                        'curve': curve(tried['best']),
                    }
                )
    for loss, card in told.items():
        part = asked(card['paper']) if card['paper'] in published.papers() else {}
        card['claims'] = [
            by_id[name] for name, losses in part.items() if loss in losses and name in by_id
        ]
        card['printed'] = [line for line in papers if line['loss'] == loss]
    return told
