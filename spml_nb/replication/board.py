"""The board: the gain of every method, from the table of record; its rows, its means, which methods
lead, and what notebooks and pages say of a method.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np
import pandas as pd
import yaml

from ..base import settings
from ..methods.core import find
from ..statistics import Effect, Scores, format_signed, pool_effects
from ..sweeps import boards, search
from . import gains, published
from .gains import SUITES, find_row_head
from .published import PHOTOS_SUITE
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
    counted = measured[(measured.suite == PHOTOS_SUITE) & measured.acted.eq(True)]
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
    standings = average_standings(measured).dropna(subset='over_an').reset_index()
    standings = standings.query("choice == 'clean' and labels == 'single'")
    on_most_sets = standings[standings.sets.str.len() == standings.sets.str.len().max()]
    order = on_most_sets.over_an.map(lambda effect: -effect.mean).sort_values().index
    best = on_most_sets.loc[order[:_BEST_ROWS], [*_ROW]]
    over_plain = gains.select_clean_choice(measured, gains.PLAIN_HEAD)
    an = over_plain.query("loss == 'an' and head == 'linear' and labels == 'single'")
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


_NO_GAIN = {'theirs': math.nan, 'ours': math.nan, 'half': math.nan, 'state': '', 'uncounted': ''}


def list_printed_rows(tables: Iterable[Table]) -> list[dict]:
    """The printed gains of whole methods in the five papers and in four later ones, with ours.

    Args:
        tables: Of all papers.

    Returns:
        A dict for each row of a table: loss ('' for a method without runs here), name, paper (short
        name), table, labels, head, note (such as the paper that it is quoted from), cells {data set
        of `published.ORIGINAL_SETS`: {'level' (percent), 'theirs' and 'ours' (gains, NaN without
        one), 'half' (half the interval of ours), 'state' and 'uncounted' (as in `tables.Table`, ''
        for later papers)}}.

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
    ours = {(cell['row'], cell['column']): cell for cell in table.of('photos').to_dict('records')}
    for where, cell in published.index_cells(table.paper, table.number).items():
        if where not in ours or not _is_whole_method(cell):
            continue
        if published.gain_baseline(cell) not in (None, cell):
            yield cell, ours[where]


def _short_name(cell: dict) -> str:
    return published.read_paper(cell['paper'])['short']


def _is_whole_method(cell: dict) -> bool:
    "Whether a cell is a whole method on one of `published.ORIGINAL_SETS`, trained end to end."
    config = cell['config'] or {}
    return (
        cell['dataset'] in published.ORIGINAL_SETS.values()
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
            cells = published.index_cells(paper, number).values()
            configs = [cell['config'] for cell in cells if cell['config']]
            in_paper.update(config['loss'] for config in configs if config['loss'])
    return losses


def list_board_rows(measured: pd.DataFrame, group_of_run: dict[str, int]) -> list[dict]:
    """The rows of the board.

    Args:
        measured: As from `gains.gains_of_suites`.
        group_of_run: {run name: index of its group}, as from `index_page`.

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
    if gain.suite != PHOTOS_SUITE:
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
    datasets = list(search.SUITES[PHOTOS_SUITE]['datasets'])
    positions = [datasets.index(name) for name in row['sets']]
    mean, *_ = row['means'].get('clean', [None])
    return (
        not row['cells'].get(PHOTOS_SUITE),
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


def join_heads(rows: list[dict]) -> dict[str, list[dict]]:
    """The rows of each method side by side.

    Args:
        rows: As from `list_board_rows`, with single labels.

    Returns:
        {'methods': [{'loss', 'linear', 'cosine' (its row on that head, None without one), 'seconds'
        (of the first of them)}] in the order of the rows, 'others': rows on other heads}.
    """
    methods, others = {}, []
    for row in rows:
        if row['head'] in ('linear', 'cosine'):
            first = {'loss': row['loss'], 'seconds': row['seconds'], 'linear': None, 'cosine': None}
            methods.setdefault(row['loss'], first)[row['head']] = row
        else:
            others.append(row)
    return {'methods': list(methods.values()), 'others': others}


def method_levels(measured: pd.DataFrame) -> dict[tuple[str, str], dict[str, Scores]]:
    """Test mAP of every method that learns from single positives.

    Args:
        measured: As from `gains.gains_of_suites`.

    Returns:
        {(method, head): {photo set: scores}}, of the sets where its own mechanism acted.
    """
    return _by_method(measured, 'scores')


def method_micro_f1(measured: pd.DataFrame) -> dict[tuple[str, str], dict[str, float]]:
    """As `method_levels`, of micro-F1 in percent, at the threshold that is best on clean validation
    labels.
    """
    return _by_method(measured, 'micro_f1')


def _by_method(measured: pd.DataFrame, column: str) -> dict[tuple[str, str], dict]:
    over_plain = gains.select_clean_choice(measured, gains.PLAIN_HEAD)
    acted = over_plain.acted.eq(True)
    counted = over_plain[acted & (over_plain.labels == 'single') & (over_plain.n > 1)]
    return {
        method: dict(zip(of_method.dataset, of_method[column], strict=True))
        for method, of_method in counted.groupby(['loss', 'head'], sort=False)
    }


@dataclass(frozen=True)
class Leader:
    """The method with the highest mean gain over plain AN.

    Attributes:
        gain: Over AN with a linear head, the mean over all photo sets.
        close: Other methods with runs on all sets that are not significantly below, the highest
            mean first, each on its best head; with a remark if the micro-F1 is far lower.
        rivals: Methods with runs on fewer sets, at least half of them, whose difference is not
            significant there, with the same remark.
        ends: The lowest and the highest gain over plain AN on a single set.
    """

    name: str
    head: str
    gain: Effect
    close: tuple[str, ...]
    rivals: tuple[str, ...]
    ends: tuple[float, float] | None = None


@dataclass(frozen=True)
class Leaders:
    """The leading methods, and all methods compared with AN.

    Attributes:
        sets: Number of photo sets.
        top: The method with the highest mean.
        due_to_head: Gain of AN by the head of that method; None for a linear head.
        linear: The method with the highest mean on a linear head.
        above, below, open: Names of the methods that are significantly above AN on the same head,
            below it, or neither, each on its own head.
    """

    sets: int
    top: Leader
    due_to_head: Effect | None
    linear: Leader | None
    above: tuple[str, ...]
    below: tuple[str, ...]
    open: tuple[str, ...]


_PLAIN = ('an', 'linear')


FAR_BELOW = 5.0  # points of micro-F1 by which a method predicts labels far worse


def find_leaders(levels: dict, micro_f1: dict | None = None) -> Leaders | None:
    """The methods with the highest mean gain, and what is due to the head.

    Args:
        levels: As from `method_levels`.
        micro_f1: As from `method_micro_f1`.

    Returns:
        None if no method has runs on every set of plain AN.
    """
    micro_f1 = micro_f1 or {}
    sets = set(levels.get(_PLAIN, ()))
    everywhere = [row for row in levels if sets <= set(levels[row]) and row[0] != 'an']
    if not (sets and everywhere):
        return None
    everywhere.sort(key=lambda row: -_lead(levels, row, _PLAIN).mean)
    top = _leader(everywhere, levels, micro_f1)
    linear = [row for row in everywhere if row[1] == 'linear']
    an_on_head = ('an', top.head)
    due_to_head = None
    if an_on_head in levels and an_on_head != _PLAIN:
        due_to_head = _lead(levels, an_on_head, _PLAIN)
    compared = {'above': [], 'below': [], 'open': []}
    for loss, head in everywhere:
        if head == find(loss).head and ('an', head) in levels:
            effect = _lead(levels, (loss, head), ('an', head))
            word = 'above' if effect.low > 0 else 'below' if effect.high < 0 else 'open'
            compared[word].append(_name(loss, head))
    return Leaders(
        sets=len(sets),
        top=top,
        due_to_head=due_to_head,
        linear=_leader(linear, levels, micro_f1) if linear else None,
        **{word: tuple(names) for word, names in compared.items()},
    )


def _leader(ranked: list, levels: dict, micro_f1: dict) -> Leader:
    "The first of ranked (method, head) pairs, compared with the others."
    first = ranked[0]
    best_heads = {row[0]: row for row in reversed(ranked) if row[0] != first[0]}
    others = sorted(best_heads.values(), key=ranked.index)
    heads = {head for _, head in ranked}
    sets = len(levels[first])
    on_fewer_sets = [
        row
        for row in levels
        if row[0] not in ('an', first[0])
        and row not in ranked
        and row[1] in heads
        and sets / 2 <= len(levels[row]) < sets
    ]

    of_sets = [
        gains.estimate_gain(levels[first][name], levels[_PLAIN][name]).mean
        for name in levels[_PLAIN]
    ]

    def name_with_remark(row):
        return _name(*row) + _remark_on_f1(row, first, micro_f1)

    return Leader(
        name=_name(*first),
        head=first[1],
        gain=_lead(levels, first, _PLAIN),
        close=tuple(name_with_remark(row) for row in others if _lead(levels, first, row).low <= 0),
        rivals=tuple(
            name_with_remark(row) for row in on_fewer_sets if _lead(levels, first, row).low <= 0
        ),
        ends=(min(of_sets), max(of_sets)),
    )


def _remark_on_f1(row: tuple, first: tuple, micro_f1: dict) -> str:
    """' (micro-F1 6.1 points lower)' if that is far, on the mean of common sets; else ''."""
    own, leader = micro_f1.get(row, {}), micro_f1.get(first, {})
    below = [leader[dataset] - own[dataset] for dataset in own if dataset in leader]
    if not below or not np.mean(below) >= FAR_BELOW:
        return ''
    return f' (micro-F1 {np.mean(below):.1f} points lower)'


def _lead(levels: dict, one: tuple, other: tuple) -> Effect:
    """The mean gain of one method over another, on the sets that both have."""
    return pool_effects(
        [
            gains.estimate_gain(scores, levels[other][dataset])
            for dataset, scores in levels[one].items()
            if dataset in levels[other]
        ]
    )


def _name(loss: str, head: str) -> str:
    name = describe_method(loss)['name']
    return name if head == find(loss).head else f'{name} on the {head} head'


def read_boards() -> pd.DataFrame:
    """The boards of all photo sets: the columns of `outputs/methods/*.csv`, and dataset; empty
    without these files.
    """
    folder = settings.get_folder('outputs') / 'methods'
    of_sets = [
        pd.read_csv(folder / f'{dataset}.csv').assign(dataset=dataset)
        for dataset in search.SUITES[PHOTOS_SUITE]['datasets']
        if (folder / f'{dataset}.csv').is_file()
    ]
    return pd.concat(of_sets, ignore_index=True) if of_sets else pd.DataFrame()


def describe_gains(*losses: str) -> str:
    """The gains of methods over AN, each on its own head, as a Markdown list.

    Args:
        losses: Registered methods.

    Returns:
        A sentence for each method that has runs, '' if none has.
    """
    lines = read_boards()
    if lines.empty:
        return ''
    rows = lines[lines.labels == 'single']
    sentences = []
    for loss in losses:
        own = rows[(rows.loss == loss) & (rows['head'] == find(loss).head)]
        if len(own):
            sentences.append(_describe_gain(loss, own.set_index('dataset')))
    if not sentences:
        return ''
    count = rows.dataset.nunique()
    title = f'On {count} sets of real photos with one label each, against AN on a linear head:'
    return '\n'.join([title, '', *sentences])


def _describe_gain(loss: str, rows: pd.DataFrame) -> str:
    gained = rows.over_plain_an
    head = rows['head'].iloc[0]
    sentence = (
        f'- `{loss}` (head {head}): {format_signed(gained.mean())} points of mAP on average, '
        f'from {format_signed(gained.min())} ({gained.idxmin()}) to '
        f'{format_signed(gained.max())} ({gained.idxmax()})'
    )
    if head != 'linear':
        sentence += f'; against AN on the same head {format_signed(rows.over_an.mean())} on average'
    exercised = rows.exercised.dropna()
    acted = int((exercised > 0.5).sum())  # as `gains.mechanism_acted` counts
    if acted < len(exercised):
        where = f'only on {acted}' if acted else 'on none'
        sentence += (
            f'; {find(loss).mechanism} had begun before the best epoch {where} of '
            f'{len(exercised)} sets'
        )
    return sentence + '.'
