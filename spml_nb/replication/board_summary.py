"""The board: the gain of every method, from the table of record, as the pages show it."""

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
from .gains import SUITES, find_row_head
from .tables import Table


@lru_cache
def _read_descriptions() -> dict:
    return yaml.safe_load((files('spml_nb') / 'assets' / 'methods.yml').read_text(encoding='utf-8'))


def describe_method(loss: str) -> dict:
    """The description of a method for the pages.

    Args:
        loss: A registered method.

    Returns:
        {'name', 'by' (its source), 'does' (two sentences), 'needs' (a number that it needs besides
        labels, '' for none), 'paper' (the one of `published.list_papers()` that proposes it, '' for
        none), 'notebook' (its path from the root)}.

    Raises:
        SpmlError: For an unknown method.
    """
    method = find(loss)
    defaults = {
        'name': loss,
        'by': method.source,
        'does': (method.__doc__ or '').strip().partition('\n')[0],
        'needs': '',
        'paper': '',
        'notebook': f"nbs/{method.__module__.partition('.')[2].replace('.', '/')}.ipynb",
    }
    return defaults | _read_descriptions()['methods'].get(loss, {})


_ROW = ('loss', 'head', 'labels', 'choice')


def average_standings(measured: pd.DataFrame) -> pd.DataFrame:
    """The mean gain of each row of the board, over the photo sets where its mechanism acted.

    Args:
        measured: As from `gains.gains_of_suites`.

    Returns:
        DataFrame by loss, head, labels and choice, of heads on frozen features: sets (tuple, in the
        suite's order), over_an and same_head (`statistics.Effect` over AN on the linear head and on
        the same head; None unless every set has an interval) and seconds (mean of a run).
    """
    counted = measured[(measured.suite == published.PHOTOS_SUITE) & measured.acted.eq(True)]
    return pd.DataFrame(
        [
            dict(zip(_ROW, row, strict=True)) | _standing(gains_of_row)
            for row, gains_of_row in counted.groupby([*_ROW], sort=False)
        ],
        columns=[*_ROW, 'sets', 'over_an', 'same_head', 'seconds'],
    ).set_index([*_ROW])


def _standing(gains_of_row: pd.DataFrame) -> dict:
    plain = gains_of_row[gains_of_row.baseline == gains.PLAIN_HEAD]
    same_head = gains_of_row[gains_of_row.baseline == gains.SAME_HEAD]
    return {
        'sets': tuple(plain.dataset),
        'over_an': _mean_effect(list(plain.effect)),
        'same_head': _mean_effect(list(same_head.effect)),
        'seconds': plain.seconds.mean(),
    }


def _mean_effect(effects: list[Effect]) -> Effect | None:
    "None unless every set has a gain with an interval."
    if not effects or min(effect.seeds for effect in effects) < 2:
        return None
    return pool_effects(effects)


_BEST_ROWS = 5  # rows whose gains say what to expect


def expected_gains(measured: pd.DataFrame) -> pd.DataFrame:
    """The gains of the best rows on each photo set.

    Args:
        measured: As from `gains.gains_of_suites`.

    Returns:
        DataFrame by data set, the fewest labels first: labels (positives per training photo), level
        (test mAP of plain AN in percent), lowest and highest (gain over plain AN, among the five
        rows with single labels whose mean over all sets is highest), as_many (gain of binary
        cross-entropy on as many fully labelled photos as validation has, NaN without runs) and
        photos (that number). Empty without runs.
    """
    standings = average_standings(measured).reset_index()
    standings = standings[(standings.choice == 'clean') & (standings.labels == 'single')]
    standings = standings[standings.over_an.notna()]
    on_most_sets = standings[standings.sets.str.len() == standings.sets.str.len().max()]
    order = on_most_sets.over_an.map(lambda effect: -effect.mean).sort_values().index
    best = on_most_sets.loc[order[:_BEST_ROWS], [*_ROW]]
    over_plain = measured[
        (measured.suite == published.PHOTOS_SUITE)
        & (measured.baseline == gains.PLAIN_HEAD)
        & (measured.choice == 'clean')
    ]
    an = over_plain[
        (over_plain.loss == 'an')
        & (over_plain['head'] == 'linear')
        & (over_plain.labels == 'single')
    ]
    as_many = over_plain[over_plain.labels == gains.AS_MANY]
    photo_sets = published.describe_photo_sets()
    best_gains = over_plain.merge(best, on=[*_ROW]).groupby('dataset', sort=False).gain
    expected = best_gains.agg(lowest='min', highest='max')
    expected.insert(0, 'level', an.set_index('dataset').level)
    expected.insert(0, 'labels', photo_sets.positives)
    expected['as_many'] = as_many.set_index('dataset').gain
    expected['photos'] = photo_sets.val
    return expected.sort_values('labels')


FEW_LABELS = 4  # positives per photo that separate photo sets with few labels from those with many


def summarize_board(measured: pd.DataFrame) -> dict:
    """The numbers of the sentences about the board.

    Args:
        measured: As from `gains.gains_of_suites`.

    Returns:
        {'rows' (`expected_gains` as dicts), 'few' and 'many' ({'labels', 'gains'}, each (lowest,
        highest), over the sets with fewer than `FEW_LABELS` labels a photo and with more; None
        without such sets), 'head' (`Effect` of the cosine head alone), 'all_labels' (of binary
        cross-entropy with all labels), 'as_many' (the same on as many photos as validation has; all
        three None without runs), 'best' (number of rows behind `expected_gains`)}.
    """
    rows = expected_gains(measured)
    standings = average_standings(measured)
    return {
        'rows': rows.reset_index().to_dict('records'),
        'few': _range(rows[rows.labels < FEW_LABELS]),
        'many': _range(rows[rows.labels >= FEW_LABELS]),
        'head': _mean_gain(standings, 'an', 'cosine', 'single'),
        'all_labels': _mean_gain(standings, 'bce', 'linear', 'full'),
        'as_many': _mean_gain(standings, 'bce', 'linear', gains.AS_MANY),
        'best': _BEST_ROWS,
    }


def _range(rows: pd.DataFrame) -> dict | None:
    if not len(rows):
        return None
    return {
        'labels': (rows.labels.min(), rows.labels.max()),
        'gains': (rows.lowest.min(), rows.highest.max()),
    }


def _mean_gain(standings: pd.DataFrame, loss: str, head: str, labels: str) -> Effect | None:
    return standings.over_an.get((loss, head, labels, 'clean'))


ORIGINAL_SETS = ('voc12', 'coco14', 'nus', 'cub')  # the papers' data sets that photos stand in for
_NO_GAIN = {'theirs': math.nan, 'ours': math.nan, 'half': math.nan, 'state': '', 'uncounted': ''}


def list_printed_rows(tables: Iterable[Table]) -> list[dict]:
    """The printed gains of whole methods in the five papers and in four later ones, with ours.

    Args:
        tables: Of all papers.

    Returns:
        A dict for each row of a table: loss ('' for a method without runs here), name, paper (short
        name), table, labels, head, note (such as the paper that it is quoted from), cells {data set
        of `ORIGINAL_SETS`: {'level' (percent), 'theirs' and 'ours' (gains, NaN without one), 'half'
        (half the interval of ours), 'state' and 'uncounted' (as in `tables.Table`, '' for later
        papers)}}.

    Source: the papers' tables.
    """
    pairs = [pair for table in tables for pair in _whole_methods(table)]
    originals = {_copy_key(cell) for cell, _ in pairs if cell['source'] == _short_name(cell)}
    rows = {}
    for cell, ours in pairs:
        if cell['source'] != _short_name(cell) and _copy_key(cell) in originals:
            continue
        row_fields = {
            'loss': cell['config']['loss'],
            'name': cell['row'].rpartition(' / ')[2],
            'note': cell['quoted'],
            'paper': _short_name(cell),
            'table': cell['table'],
            'labels': cell['config']['labels'],
            'head': cell['config'].get('head') or find(cell['config']['loss']).head,
        }
        row = rows.setdefault(tuple(row_fields.values()), row_fields | {'cells': {}})
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
    return [*rows.values(), *map(_row_of_later_paper, _read_descriptions()['later'])]


def _whole_methods(table: Table) -> Iterator[tuple[dict, dict]]:
    "The published cells of whole methods that have a baseline, each with ours."
    cells = published.table_cells(table.paper, table.number).to_dict('records')
    ours = {(cell['row'], cell['column']): cell for cell in table.of('photos').to_dict('records')}
    for cell in cells:
        where = cell['row'], cell['column']
        if where not in ours or not _is_whole_method(cell):
            continue
        if published.gain_baseline(cell, cells) not in (None, cell):
            yield cell, ours[where]


def _short_name(cell: dict) -> str:
    return published.read_paper(cell['paper'])['short']


def _is_whole_method(cell: dict) -> bool:
    "Whether a cell is a whole method on one of `ORIGINAL_SETS`, trained end to end."
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


def _copy_key(cell: dict) -> tuple:
    "Equal for a number and its copy in another paper, which may have fewer digits."
    tenths = math.floor(10 * cell['mean'] + 0.5 + 1e-6)
    return cell['config']['loss'], cell['config']['labels'], cell['dataset'], tenths


def _row_of_later_paper(entry: dict) -> dict:
    "A row of `list_printed_rows`; of later papers only levels are known."
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
def _methods_in_tables() -> dict[str, set[str]]:
    "{paper: losses in its tables}."
    losses = {paper: set() for paper in published.list_papers()}
    for paper, in_paper in losses.items():
        for number in published.table_numbers(paper):
            configs = published.table_cells(paper, number).config.dropna()
            in_paper.update(config['loss'] for config in configs if config['loss'])
    return losses


@lru_cache
def methods_in_claims(paper: str) -> dict[str, set[str]]:
    """{claim id: losses that the claim compares}, without claims about a figure.

    Args:
        paper: One of `published.list_papers()`.

    Raises:
        SpmlError: For an unknown paper.
    """
    return {
        claim.id: {_loss_of_operand(operand) for operand in claims.claim_operands(claim)}
        for claim in claims.read_claims(paper)
        if not claim.figure
    }


def _loss_of_operand(operand: claims.Operand) -> str | None:
    config = operand.config
    if not config:
        table, *row_and_column = operand.cell
        config = published.index_cells(operand.paper, table)[tuple(row_and_column)]['config'] or {}
    return config.get('loss')


def _describe_search(row: search.Row, suite: str, dataset: str, runs: pd.DataFrame) -> dict:
    """The settings that a search chose.

    Returns:
        {'lr', 'hparams' (text), 'best' (expected best validation mAP of 1, 2, … draws)}; NaN, ''
        and [] while the search is not finished.
    """
    tried = boards.tabulate_search(row, suite, dataset, runs)
    if not tried.chosen.any():
        return {'lr': math.nan, 'hparams': '', 'best': []}
    chosen = tried[tried.chosen].iloc[0]
    hparams = ', '.join(f'{name} {value}' for name, value in json.loads(chosen.hparams).items())
    return {
        'lr': chosen.lr,
        'hparams': hparams or 'the paper’s',
        'best': search.best_of_k(tried.val_map),
    }


_NOT_SETTINGS = ('seed', 'label_seed', 'root', 'device')


def group_final_runs(
    runs: pd.DataFrame, shown: set[str] | None = None
) -> tuple[dict, dict[str, int]]:
    """The final runs in groups that differ in the seed alone.

    Args:
        runs: The table of record.
        shown: Names of runs; groups without any of them are left out. Default: none is.

    Returns:
        ({'usual': {field: its most frequent value}, 'each': a list of groups {'s': {field: value}
        where it is not the usual one, 'run': name of the first run, 'r': {seed: test mAP}}}, {run
        name: index of its group}).
    """
    if not len(runs):
        return {'usual': {}, 'each': []}, {}
    final = runs[(runs.seed != search.SEARCH_SEED) & runs.test_map.notna()]
    fields = [
        field.name
        for field in dataclasses.fields(Config)
        if field.name not in _NOT_SETTINGS and field.name in final
    ]
    usual = {
        name: final[name].mode().iloc[0]
        for name in fields
        if name not in ('loss', 'dataset', 'hparams') and final[name].notna().all()
    }
    varying = [name for name in fields if name not in usual or final[name].nunique() > 1]
    groups, group_of_run = [], {}
    for values, group in final.groupby(varying, sort=False, dropna=False):
        if shown is not None and shown.isdisjoint(group.run):
            continue
        group = group.sort_values('seed')
        group_of_run |= dict.fromkeys(group.run, len(groups))
        unusual = {
            name: value
            for name, value in zip(varying, values, strict=True)
            if not pd.isna(value) and value != usual.get(name)
        }
        groups.append(
            {
                's': unusual,
                'run': group.run.iloc[0],
                'r': dict(zip(group.seed.astype(int), group.test_map.round(2), strict=True)),
            }
        )
    return {'usual': usual, 'each': groups}, group_of_run


def list_board_rows(measured: pd.DataFrame, group_of_run: dict[str, int]) -> list[dict]:
    """The rows of the board.

    Args:
        measured: As from `gains.gains_of_suites`.
        group_of_run: {run name: index of its group}, as from `group_final_runs`.

    Returns:
        A list of dicts. Rows on the same photo sets are together, the highest mean gain first; then
        those with all labels, those whose mechanism did not act, and those without runs.

        - id, loss, head, labels, papers (that compare it)
        - sets: photo sets behind the means; seconds: mean of a run on them
        - means {choice: [gain over plain AN, half, gain over AN on the same head, half]}
        - cells {suite: {data set: cell}}, a cell being {'g', 'a', 'b' (groups of its runs, of AN on
          the same head and of plain AN, None without one), 's' (seconds), 'x' (whether its
          mechanism acted), choice: [level, half, seeds, gain over AN on the same head, half, gain
          over plain AN, half]}; gains are None where the whole network was trained
    """
    cells = {
        (row.loss, find_row_head(row), row.labels): {}
        for suite in SUITES
        for row in boards.suite_rows(suite)
    }
    cells['bce', 'linear', gains.AS_MANY] = {}
    for gain in gains.join_baselines(measured).itertuples():
        by_set = cells[gain.loss, gain.head, gain.labels].setdefault(gain.suite, {})
        by_set.setdefault(gain.dataset, {}).update(_board_cell(gain, group_of_run))
    standings = average_standings(measured)
    rows = [_board_row(row, by_suite, standings) for row, by_suite in cells.items()]
    return sorted(rows, key=_order)


def _board_row(row: tuple[str, str, str], by_suite: dict, standings: pd.DataFrame) -> dict:
    loss, head, labels = row
    fields = {
        'id': '-'.join(row),
        'loss': loss,
        'head': head,
        'labels': labels,
        'papers': [paper for paper, losses in _methods_in_tables().items() if loss in losses],
        'cells': by_suite,
        'sets': [],
        'means': {},
        'seconds': None,
    }
    if row not in standings.index.droplevel('choice'):
        return fields
    by_choice = standings.xs(row, level=['loss', 'head', 'labels'])
    return fields | {
        'sets': list(by_choice.sets.iloc[0]),
        'means': {
            mean.Index: [*_rounded_effect(mean.over_an), *_rounded_effect(mean.same_head)]
            for mean in by_choice.itertuples()
        },
        'seconds': _rounded(by_choice.seconds.iloc[0]),
    }


_SHOWN = ('level', 'level_half', 'n', 'gain', 'gain_half', 'plain', 'plain_half')


def _board_cell(gain, group_of_run: dict[str, int]) -> dict:
    shown = {name: _rounded(getattr(gain, name)) for name in _SHOWN}
    if gain.suite != published.PHOTOS_SUITE:
        # the search of AN had an unlucky seed on the whole network, so gains over it would mislead
        shown |= dict.fromkeys(_SHOWN[3:])
    return {
        'g': group_of_run.get(gain.run),
        'a': group_of_run.get(gain.base_run),
        'b': group_of_run.get(gain.plain_run),
        's': round(gain.seconds, 2),
        'x': gain.acted,
        gain.choice: list(shown.values()),
    }


def _rounded(value: float) -> float | None:
    return None if pd.isna(value) else round(float(value), 4)


def _rounded_effect(effect: Effect | None) -> list[float | None]:
    return [None, None] if effect is None else [_rounded(effect.mean), _rounded(effect.half_width)]


def _order(row: dict) -> tuple:
    datasets = list(search.SUITES[published.PHOTOS_SUITE]['datasets'])
    positions = [datasets.index(name) for name in row['sets']]
    mean, *_ = row['means'].get('clean', [None])
    return (
        not row['cells'].get(published.PHOTOS_SUITE),
        mean is None,
        row['labels'] != 'single',
        -len(positions),
        positions,
        -(mean or 0),
    )


def group_by_sets(rows: list[dict]) -> list[dict]:
    """The rows of the board in groups that may be compared.

    Args:
        rows: As from `list_board_rows`.

    Returns:
        [{'sets', 'all_labels' (whether the rows learn from them), 'rows'}] in the same order; rows
        without a mean are last, in a group without sets.
    """

    def comparable(row):
        return row['sets'], bool(row['sets']) and row['labels'] != 'single'

    return [
        {'sets': sets, 'all_labels': all_labels, 'rows': list(group)}
        for (sets, all_labels), group in itertools.groupby(rows, key=comparable)
    ]


def method_cards(
    rows: list[dict], runs: pd.DataFrame, checked: pd.DataFrame, printed: list[dict]
) -> dict[str, dict]:
    """The card of each method on the page.

    Args:
        rows: As from `list_board_rows`.
        runs: The table of record.
        checked: The claims, as in `pages.Results`.
        printed: As from `list_printed_rows`.

    Returns:
        {loss: `describe_method`, and runs (dicts with suite, head, labels, dataset, cell, lr,
        hparams, best), printed (the rows of the method), claims (those of its paper that compare
        it)}.
    """
    by_id = {claim['id']: claim for claim in checked.to_dict('records')}
    cards = {}
    for row in rows:
        card = cards.setdefault(row['loss'], describe_method(row['loss']) | {'runs': []})
        if row['labels'] != gains.AS_MANY:  # which has no search of its own
            card['runs'] += _list_searches(row, runs)
    for loss, card in cards.items():
        in_claims = {}
        if card['paper'] in published.list_papers():
            in_claims = methods_in_claims(card['paper'])
        card['claims'] = [
            by_id[name] for name, losses in in_claims.items() if loss in losses and name in by_id
        ]
        card['printed'] = [line for line in printed if line['loss'] == loss]
    return cards


def _list_searches(row: dict, runs: pd.DataFrame) -> list[dict]:
    "The settings that the search chose on each photo set."
    searched = search.Row(row['loss'], row['head'], row['labels'])
    return [
        {
            'head': row['head'],
            'labels': row['labels'],
            'suite': suite,
            'cell': cell,
            'dataset': dataset,
            **_describe_search(searched, suite, dataset, runs),
        }
        for suite, by_set in row['cells'].items()
        for dataset, cell in by_set.items()
    ]
