"""The board: what each method gains, computed from the table of record, for the page to show."""

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.resources import files

import pandas as pd
import yaml

from ..methods.core import find
from ..runs.config import Config
from ..statistics import Effect, pool_effects
from ..sweeps import boards, search
from . import claims, gains, published
from .gains import SUITES, head_of_row
from .tables import Table


@lru_cache
def _words() -> dict:
    return yaml.safe_load((files('spml_nb') / 'assets' / 'methods.yml').read_text(encoding='utf-8'))


def describe_method(loss: str) -> dict:
    """What is said of a method.

    Args:
        loss: a registered method.

    Returns: {'name', 'by' (its source), 'does' (two sentences), 'needs' (a number that it is given
        besides labels, '' for none), 'paper' (one of `published.list_papers()` that proposes it,
        else
        ''), 'notebook' (its path from the root)}.

    Raises:
        SpmlError: for another method.
    """
    method = find(loss)
    usual = {
        'name': loss,
        'by': method.source,
        'does': (method.__doc__ or '').strip().partition('\n')[0],
        'needs': '',
        'paper': '',
    }
    return (
        usual
        | {'notebook': f"nbs/{method.__module__.partition('.')[2].replace('.', '/')}.ipynb"}
        | _words()['methods'].get(loss, {})
    )


ALL_LABELS = 'full'


def average_standings(measured: pd.DataFrame) -> pd.DataFrame:
    """What each row of the board gains on average, over the sets of photos where its own mechanism
    acted.

    Args:
        measured: as from `gains.gains_of_suites`.

    Returns: DataFrame by loss, head, labels and choice, of heads on frozen features: sets (tuple,
        in the suite's order), over_an and same_head (the mean gain over AN on the linear head, and
        over AN on the same head, each a `statistics.Effect`; None where no set has one) and seconds
        (of a run, mean over these sets).
    """
    counted = measured[(measured.suite == published.SUITE) & measured.acted.eq(True)]
    return pd.DataFrame(
        [
            dict(zip(ROW, row, strict=True)) | _standing(part)
            for row, part in counted.groupby([*ROW], sort=False)
        ],
        columns=[*ROW, 'sets', 'over_an', 'same_head', 'seconds'],
    ).set_index([*ROW])


ROW = ('loss', 'head', 'labels', 'choice')


def _standing(part: pd.DataFrame) -> dict:
    plain = part[part.baseline == gains.PLAIN_HEAD]
    same_head = part[part.baseline == gains.SAME_HEAD]
    return {
        'sets': tuple(plain.dataset),
        'over_an': _mean_effect(plain),
        'same_head': _mean_effect(same_head),
        'seconds': plain.seconds.mean(),
    }


def _mean_effect(part: pd.DataFrame) -> Effect | None:
    """None unless every set has a gain with an interval."""
    effects = list(part.effect)
    if not effects or min(effect.seeds for effect in effects) < 2:
        return None
    return pool_effects(effects)


BEST_ROWS = 5  # rows whose gains say what may be expected


def expected_gains(measured: pd.DataFrame) -> pd.DataFrame:
    """What the best rows gain on each set of photos.

    Args:
        measured: as from `gains.gains_of_suites`.

    Returns: DataFrame by data set: labels (positives of a training photo, on average), level (mAP
        of plain AN in percent), lowest and highest (gain over plain AN, among the `BEST_ROWS` rows
        with single labels whose mean over all sets is highest), as_many (gain of binary
        cross-entropy on as many fully labelled photos as validation has, NaN without runs) and
        photos (how many). Empty without runs.
    """
    compared = average_standings(measured).reset_index()
    compared = compared[(compared.choice == 'clean') & (compared.labels == 'single')]
    compared = compared[compared.over_an.notna()]
    on_most = compared[compared.sets.str.len() == compared.sets.str.len().max()]
    order = on_most.over_an.map(lambda effect: -effect.mean).sort_values().index[:BEST_ROWS]
    best = on_most.loc[order, [*ROW]]
    over_plain = measured[
        (measured.suite == published.SUITE) & (measured.baseline == gains.PLAIN_HEAD)
    ]
    by_set = over_plain.merge(best, on=[*ROW]).groupby('dataset', sort=False).gain
    found = by_set.agg(lowest='min', highest='max')
    an = over_plain[
        (over_plain.loss == 'an')
        & (over_plain['head'] == 'linear')
        & (over_plain.choice == 'clean')
        & (over_plain.labels == 'single')
    ]
    found.insert(0, 'level', an.set_index('dataset').level)
    found.insert(0, 'labels', published.describe_photo_sets().positives)
    as_many = over_plain[(over_plain.labels == gains.AS_MANY) & (over_plain.choice == 'clean')]
    found['as_many'] = as_many.set_index('dataset').gain
    found['photos'] = published.describe_photo_sets().val
    return found.sort_values('labels')


FEW_LABELS = 4  # labels a photo: sets below are told apart from sets above


def summarize_board(measured: pd.DataFrame) -> dict:
    """What the board says in sentences.

    Args:
        measured: as from `gains.gains_of_suites`.

    Returns: rows (`expected_gains`), few and many ({'labels', 'gains': (lowest, highest) of the
        sets with fewer than `FEW_LABELS` labels a photo and with more}, None without such sets),
        head (what AN gains by the cosine head alone), all_labels (what binary cross-entropy gains
        where all labels are known), as_many (the same on as many photos as validation has), each an
        `Effect` or None, and best (how many rows `expected_gains` speaks of).
    """
    rows = expected_gains(measured)
    means = average_standings(measured)
    cosine, all_labels = ('an', 'cosine', 'single'), ('bce', 'linear', ALL_LABELS)
    return {
        'rows': rows.reset_index().to_dict('records'),
        'few': _range(rows[rows.labels < FEW_LABELS]),
        'many': _range(rows[rows.labels >= FEW_LABELS]),
        'head': _mean_of(means, cosine),
        'all_labels': _mean_of(means, all_labels),
        'as_many': _mean_of(means, ('bce', 'linear', gains.AS_MANY)),
        'best': BEST_ROWS,
    }


def _range(rows: pd.DataFrame) -> dict | None:
    if not len(rows):
        return None
    return {
        'labels': (rows.labels.min(), rows.labels.max()),
        'gains': (rows.lowest.min(), rows.highest.max()),
    }


def _mean_of(means: pd.DataFrame, row: tuple[str, str, str]) -> Effect | None:
    place = (*row, 'clean')
    return means.over_an[place] if place in means.index else None


ORIGINAL_SETS = ('voc12', 'coco14', 'nus', 'cub')  # the papers' data sets that photos stand for
_NO_GAIN = {'theirs': math.nan, 'ours': math.nan, 'half': math.nan, 'state': '', 'uncounted': ''}


def list_printed_rows(tables: Iterable[Table]) -> list[dict]:
    """What the five papers, and four later ones, print for whole methods, with our gain beside each
    of theirs.

    Args:
        tables: of all papers.

    Returns: list of dicts, one per row of a table: loss ('' for a method without runs here), name,
        paper (its short name), table, labels, head, note (where the paper copies it from, say),
        cells {data set of `ORIGINAL_SETS`: {'level' (in percent), 'theirs' and 'ours' (the gains,
        NaN without one), 'half' (half the interval of ours), 'state' and 'uncounted' (as in
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
    cells = published.table_cells(table.paper, table.number).to_dict('records')
    ours = {(each['row'], each['column']): each for each in table.of('photos').to_dict('records')}
    for cell in cells:
        place = cell['row'], cell['column']
        if place not in ours or not _is_whole_method(cell):
            continue
        if published.gain_baseline(cell, cells) not in (None, cell):
            yield cell, ours[place]


def _short(cell: dict) -> str:
    return published.read_paper(cell['paper'])['short']


def _is_whole_method(cell: dict) -> bool:
    "Whether a cell is a whole method on one of the four data sets, trained end to end."
    config = cell['config'] or {}
    return (
        cell['dataset'] in ORIGINAL_SETS
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
    "A method of a later paper, as a row of `list_printed_rows`."
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
def methods_in_tables() -> dict[str, set[str]]:
    """The methods in each paper's tables: {paper: losses}."""
    configs = {
        paper: pd.concat(
            [published.table_cells(paper, n).config for n in published.table_numbers(paper)]
        )
        for paper in published.list_papers()
    }
    return {
        paper: {c['loss'] for c in each.dropna() if c['loss']} for paper, each in configs.items()
    }


@lru_cache
def methods_in_claims(paper: str) -> dict[str, set[str]]:
    """The methods that a paper's claims compare.

    Args:
        paper: one of `published.list_papers()`.

    Returns: {id of the claim: losses}, without those that are read from a figure.

    Raises:
        SpmlError: for another paper.
    """
    return {
        claim.id: {_loss(operand) for operand in claims.claim_operands(claim)}
        for claim in claims.read_claims(paper)
        if not claim.figure
    }


def _loss(operand: claims.Operand) -> str | None:
    config = operand.config
    if not config:
        table, *place = operand.cell
        config = published.index_cells(operand.paper, table)[tuple(place)]['config'] or {}
    return config.get('loss')


def describe_chosen(row: search.Row, suite: str, dataset: str, known: pd.DataFrame) -> dict:
    """What the search of a cell found.

    Args:
        row, suite, dataset, known: as in `runs`.

    Returns: {'lr', 'hparams' (text), 'best' (list: the expected best validation mAP of 1, 2, …
        draws)}, with an empty list while the search is not through.
    """
    tried = boards.tabulate_search(row, suite, dataset, known)
    line = tried[tried.chosen].iloc[:1]
    if not len(line):
        return {'lr': math.nan, 'hparams': '', 'best': []}
    words = ', '.join(f'{name} {value}' for name, value in json.loads(line.hparams.iloc[0]).items())
    return {
        'lr': line.lr.iloc[0],
        'hparams': words or 'the paper’s',
        'best': search.best_of_k(tried.val_map),
    }


_APART = ('seed', 'label_seed', 'root', 'device')


def group_final_runs(
    known: pd.DataFrame, shown: set[str] | None = None
) -> tuple[dict, dict[str, int]]:
    """The final runs, those together that differ by their seed alone.

    Args:
        known: as from `tables.record`.
        shown: names of runs; groups without any of them are left out. Unset: none is.

    Returns: ({'usual': {field: its most frequent value}, 'each': [{'s': {field: value} where it is
        another, 'run': the name of its first run, 'r': {seed: test mAP}}]}, {name of a run: its
        group}).
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
        if shown is not None and shown.isdisjoint(runs.run):
            continue
        runs = runs.sort_values('seed')
        where |= dict.fromkeys(runs.run, len(each))
        others = {
            name: value
            for name, value in zip(varying, values, strict=True)
            if not pd.isna(value) and value != usual.get(name)
        }
        each.append(
            {
                's': others,
                'run': runs.run.iloc[0],
                'r': dict(zip(runs.seed.astype(int), runs.test_map.round(2), strict=True)),
            }
        )
    return {'usual': usual, 'each': each}, where


def list_board_rows(measured: pd.DataFrame, where: dict[str, int]) -> list[dict]:
    """The rows of the board.

    Args:
        measured: as from `gains.gains_of_suites`.
        where: {name of a run: its group}, as from `group_final_runs`.

    Returns: list of dicts: id, loss, head, labels, papers (that compare it), sets (of photos, that
        its means are over), means {choice: [gain over plain AN, half, gain over AN on the same
        head, half]}, seconds (of a run, mean over these sets) and cells {suite: {data set: {'g',
        'a', 'b' (groups of the runs, of AN on the same head and of plain AN, None if there is
        none), 's' (seconds), 'x' (whether its mechanism acted), and by choice [level, half, seeds,
        gain over AN on the same head, half, gain over plain AN, half]}}}. Gains are None where the
        whole network was trained. Rows on the same sets stand together, the highest mean gain
        first; then those with all labels known, those whose mechanism did not act, and what has no
        run.
    """
    cells = {
        (row.loss, head_of_row(row), row.labels): {}
        for suite in SUITES
        for row in boards.suite_rows(suite)
    }
    cells['bce', 'linear', gains.AS_MANY] = {}
    for line in gains.join_baselines(measured).itertuples():
        of_suite = cells[line.loss, line.head, line.labels].setdefault(line.suite, {})
        of_suite.setdefault(line.dataset, {}).update(_cell(line, where))
    means = average_standings(measured)
    rows = [_line(row, of_suites, means) for row, of_suites in cells.items()]
    return sorted(rows, key=_order)


def _line(row: tuple[str, str, str], of_suites: dict, means: pd.DataFrame) -> dict:
    loss, head, labels = row
    by_choice = means.xs(row, level=[*ROW[:3]]) if row in means.index.droplevel('choice') else None
    line = {
        'id': '-'.join(row),
        'loss': loss,
        'head': head,
        'labels': labels,
        'papers': [paper for paper, losses in methods_in_tables().items() if loss in losses],
        'cells': of_suites,
        'sets': [],
        'means': {},
        'seconds': None,
    }
    if by_choice is not None:
        line |= {
            'sets': list(by_choice.sets.iloc[0]),
            'means': {
                each.Index: [*_rounded_effect(each.over_an), *_rounded_effect(each.same_head)]
                for each in by_choice.itertuples()
            },
            'seconds': _rounded(by_choice.seconds.iloc[0]),
        }
    return line


_SHOWN = ('level', 'level_half', 'n', 'gain', 'gain_half', 'plain', 'plain_half')


def _cell(line, where: dict[str, int]) -> dict:
    shown = {name: _rounded(getattr(line, name)) for name in _SHOWN}
    if line.suite != published.SUITE:
        # the search of AN had one unlucky seed there: levels alone
        shown |= dict.fromkeys(_SHOWN[3:])
    return {
        'g': where.get(line.run),
        'a': where.get(line.base_run),
        'b': where.get(line.plain_run),
        's': round(line.seconds, 2),
        'x': line.acted,
        line.choice: [*shown.values()],
    }


def _rounded(value: float) -> float | None:
    return None if pd.isna(value) else round(float(value), 4)


def _rounded_effect(effect: Effect | None) -> list[float | None]:
    return [None, None] if effect is None else [_rounded(effect.mean), _rounded(effect.half_width)]


def _order(row: dict) -> tuple:
    datasets = [*search.SUITES[published.SUITE]['datasets']]
    places = [datasets.index(name) for name in row['sets']]
    mean, *_ = row['means'].get('clean', [None])
    return (
        not row['cells'].get(published.SUITE),
        mean is None,
        row['labels'] != 'single',
        -len(places),
        places,
        -(mean or 0),
    )


def group_by_sets(rows: list[dict]) -> list[dict]:
    """Rows of the board in groups that may be compared.

    Args:
        rows: as from `list_board_rows`.

    Returns: [{'sets', 'all_labels' (whether these are known), 'rows'}], in the same order; the last
        has no sets: its rows have no mean.
    """

    def comparable(row):
        return row['sets'], bool(row['sets']) and row['labels'] != 'single'

    return [
        {'sets': sets, 'all_labels': all_labels, 'rows': [*each]}
        for (sets, all_labels), each in itertools.groupby(rows, key=comparable)
    ]


def method_cards(
    rows: list[dict], known: pd.DataFrame, checked: pd.DataFrame, papers: list[dict]
) -> dict[str, dict]:
    """What the page shows of each method.

    Args:
        rows: as from `list_board_rows`.
        known: as from `tables.record`.
        checked: the claims, as in `pages.Results`.
        papers: as from `list_printed_rows`.

    Returns: {loss: `describe_method`, and runs (list of dicts: suite, head, labels, dataset, cell,
        lr, hparams, best), printed (its rows of `papers`), claims (list of dicts: those of its
        paper that compare it)}.
    """
    by_id = {line['id']: line for line in checked.to_dict('records')}
    cards = {}
    for row in rows:
        card = cards.setdefault(row['loss'], describe_method(row['loss']) | {'runs': []})
        if row['labels'] != gains.AS_MANY:  # no search of its own
            card['runs'] += _runs(row, known)
    for loss, card in cards.items():
        in_claims = (
            methods_in_claims(card['paper']) if card['paper'] in published.list_papers() else {}
        )
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
            found = describe_chosen(searched, suite, dataset, known)
            place = {'head': row['head'], 'labels': row['labels'], 'suite': suite}
            place |= {'cell': cell, 'dataset': dataset}
            runs.append(place | found)
    return runs
