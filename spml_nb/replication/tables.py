"""Every published number beside ours: from a table of a paper to the runs behind it, and back."""

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ..base import settings
from ..base.errors import SpmlError, one_of
from ..methods.core import find
from ..runs.config import Config
from ..runs.record import RECORD, read_record
from ..statistics import NO_SCORES, Scores, format_signed
from ..sweeps import presets, queue
from ..sweeps.boards import half_interval
from ..sweeps.queue import key
from ..sweeps.search import (
    SEARCH_SEED,
    Row,
    add_validation,
    candidates,
    choose_config,
    final_seeds,
    list_unmeasured,
)
from . import gains, published
from .gains import mechanism_acted


def record(file: Path | None = None) -> pd.DataFrame:
    """Every run of the table of record, and nothing else.

    Args:
        file: unset: `runs.csv` in the setting `outputs`.

    Returns: DataFrame as from `sweeps.finished` with `validation` (what compares the runs of a
        search), empty when there is no file.

    Raises:
        SpmlError: for a damaged file, naming it and the line.
    """
    file = Path(file or settings.path('outputs') / 'runs.csv')
    if not file.exists():
        return pd.DataFrame()
    runs = read_record(file, (*RECORD, 'val_map', 'test_map')).drop_duplicates('key')
    return add_validation(runs.set_index('key'))


@dataclass(frozen=True)
class Plan:
    """The runs behind a cell.

    Args:
        search: the runs that are tried for the choice, with a seed that no final run has.
        stated: hyper-parameters that the cell fixes.
        why: why there are no runs, else ''.
        labels: what the final runs observe, where that differs from the search.
        one_draw: whether all seeds train on the same observed labels.
        seeds: of the final runs.
        measure: the column of the record that chooses in the search.
    """

    search: list[Config]
    stated: dict
    why: str = ''
    labels: str | None = None
    one_draw: bool = False
    seeds: Iterable[int] = range(3)
    measure: str = 'validation'

    def choose(self, known: pd.DataFrame) -> Config | None:
        """The best run of the search; None while one is not done, or lacks the measure."""
        return choose_config(self.search, known, self.measure)


def cell_of_runs(paper: str, config: dict) -> dict:
    """What `plan_cell` has to know of runs that no table has.

    Args:
        paper: one of `published.list_papers()`.
        config: fields of `Config`, as for a published cell.
    """
    return {
        'paper': paper,
        'metric': 'mAP',
        'config': config,
        'dataset': config['dataset'],
        'search': {},
        'pretraining': None,
        'own': False,
        'no_run': '',
    }


def plan_cell(cell: dict, suite: str) -> Plan:
    """What a cell needs.

    Args:
        cell: a row of `published.table_cells`.
        suite: 'paper' or 'photos'.

    Raises:
        SpmlError: for another suite.
    """
    config = cell['config']
    if config is None:
        return Plan([], {}, cell['no_run'])
    if cell['pretraining']:
        return Plan(
            [], {}, 'starts from a backbone trained on ImageNet; see spml_nb/sweeps/transfer.py'
        )
    if cell['own'] and suite == 'paper':
        return Plan([], {}, 'the paper has no such cell')
    dataset = published.find_stand_in(cell['dataset'], suite)
    if dataset is None:
        return Plan([], {}, published.STAND_INS[cell['dataset']][1])
    measure = _choosing_measure(cell['metric'], config['loss'])
    if suite == 'paper':
        return Plan(_grid(cell), {}, one_draw=True, measure=measure)
    if config.get('weights') == 'none':
        return Plan(_from_scratch(cell, dataset), {}, measure=measure)
    backbone = config.get('backbone', 'resnet50')
    if backbone != 'resnet50':
        why = f'the suite {suite!r} has a stand-in for resnet50, none for {backbone}'
        return Plan([], {}, why)
    labels = config.get('labels', 'single')
    # a curve over partial labels takes one choice, made on single positives
    partial = labels if labels.startswith('partial') else None
    row = Row(
        config['loss'],
        config.get('head'),
        'single' if partial else labels,
        cell.get('stand_in', {}).get('batch_size'),
    )
    tried = candidates(row, suite, dataset)
    if config.get('selection') == 'last':
        tried = _to_the_last_epoch(tried, cell)
    return Plan(
        tried,
        config.get('hparams', {}),
        labels=partial,
        seeds=final_seeds(row, suite),
        measure=measure,
    )


def _to_the_last_epoch(tried: list[Config], cell: dict) -> list[Config]:
    """A search of the rate alone by a paper that reports the last epoch: with its constants and its
    schedule, without which that epoch says nothing.
    """
    schedule = {name: cell['config'][name] for name in ('selection', 'schedule', 'epochs')}
    hparams = _given_hparams(cell['paper'], cell['config']['loss'])
    return [each.changed(**schedule, patience=0, hparams=hparams) for each in tried]


def _given_hparams(paper: str, loss: str) -> dict:
    """The constants that a paper gives for a method, on the first data set that it has it on; none
    for another method.
    """
    for dataset in presets.paper_datasets(paper):
        if loss in presets.paper_losses(paper, dataset):
            return presets.preset(paper, dataset, loss)['hparams']
    return {}


def _grid(cell: dict) -> list[Config]:
    """The cell's search with its lists multiplied out, each under what the cell says and above the
    preset of the method.
    """
    paper, config = cell['paper'], cell['config']
    dataset, loss = config['dataset'], config['loss']
    if dataset in presets.paper_datasets(paper) and loss in presets.paper_losses(paper, dataset):
        config = published.merge_mappings(presets.preset(paper, dataset, loss), config)
    tried = itertools.product(*cell['search'].values())
    return [
        Config(**config | dict(zip(cell['search'], values, strict=True)) | {'seed': SEARCH_SEED})
        for values in tried
    ]


_SMALL = {
    'backbone': 'mini',
    'image_size': 64,
    'epochs': 60,
    'batch_size': 64,
    'precision': 'float32',
    'hold_out': True,  # for the choice of the rate
}


def _from_scratch(cell: dict, dataset: str) -> list[Config]:
    "The paper's recipe for a network from scratch, made small, at five learning rates."
    return [
        replace(config, dataset=dataset, lr=rate, **_SMALL)
        for config in _grid(cell)
        for rate in (1e-4, 1e-3, 1e-2, 0.1, 1.0)
    ]


def cell_final_runs(
    plan: Plan, known: pd.DataFrame, seeds: Iterable[int] | None = None
) -> list[Config]:
    """The runs whose mean stands in the table.

    Args:
        plan: of a cell.
        known: as from `record` or `sweeps.finished`.
        seeds: of observed labels and training; unset: the plan's.

    Returns: list of Config, empty while the search is not done or when there is none.
    """
    chosen = plan.choose(known)
    return [] if chosen is None else _with_fresh_seeds(chosen, plan, seeds)


def _with_fresh_seeds(chosen: Config, plan: Plan, seeds: Iterable[int] | None) -> list[Config]:
    chosen = replace(chosen, hparams={**chosen.hparams, **plan.stated})
    if plan.labels:
        chosen = replace(chosen, labels=plan.labels)
    return [
        replace(chosen, seed=seed, label_seed=chosen.label_seed if plan.one_draw else seed)
        for seed in (plan.seeds if seeds is None else seeds)
    ]


def cell_lines(paper: str, table: str, row: str, columns: list[str], known: pd.DataFrame):
    """The lines of the record behind cells of a table on photos, as far as they are done.

    Returns: DataFrame.
    """
    cells = published.index_cells(paper, table)
    configs = [
        config
        for column in columns
        for config in cell_final_runs(plan_cell(cells[row, column], published.SUITE), known)
    ]
    return known.loc[[name for name in map(key, configs) if name in known.index]]


MEASURES = {
    'mAP': 'test_map',
    'mAP@class': 'test_map_class',
    'mAP@sample': 'test_map_sample',
    'accuracy': 'test_top1',
    'pseudo-label precision': 'pseudo_positive_precision_at_end',
}
CHOSEN_THRESHOLD = {f'{kind}-F1 at the chosen threshold': kind for kind in ('micro', 'macro')}


def table_f1_threshold(loss: str) -> float:
    """The probability from which on a label is named.

    Source: EM/APL, supplement.
    """
    return 0.75 if loss in ('em', 'em_apl') else 0.5


def table_score(metric: str, loss: str) -> tuple[str, float]:
    """The score of a run that stands for a published measure.

    Args:
        metric: of `published.METRICS`.
        loss: the method, which decides the threshold of F1.

    Returns: (name of the score, factor to percent).

    Raises:
        SpmlError: for a measure without a score.
    """
    if metric in ('micro-F1', 'macro-F1'):
        average = metric.removesuffix('-F1')
        return f'test_{average}_f1_at_{table_f1_threshold(loss)}', 100.0
    if metric in CHOSEN_THRESHOLD:
        return f'test_{CHOSEN_THRESHOLD[metric]}_f1', 100.0
    return MEASURES[one_of(metric, MEASURES, 'measure')], 1.0


def _choosing_measure(metric: str, loss: str) -> str:
    """The column of the record that chooses the settings of a cell: its own measure on validation.

    Args:
        metric, loss: as in `table_score`.

    Returns:
        A column; 'validation', mAP over classes, also for what no validation photo is scored by.
    """
    if metric == 'mAP@sample' or 'F1' in metric:
        score, _ = table_score(metric, loss)
        return score.replace('test_', 'val_')
    return 'validation'


def find_test_set(metric: str, dataset: str | None) -> str:
    """The data set whose test images a measure is about, '' for one of training images."""
    return '' if metric == 'pseudo-label precision' or dataset is None else dataset


def read_measures(configs: list[Config], metric: str, known: pd.DataFrame) -> Scores:
    """The measure of every run that is done, in the measure's unit.

    Args:
        configs: the runs, of one method.
        metric: as in `table_score`.
        known: as from `record`.
    """
    if not configs:
        return NO_SCORES
    name, factor = table_score(metric, configs[0].loss)
    scores = known.reindex(columns=[name])[name].reindex([key(c) for c in configs]).astype(float)
    by_seed = factor * scores.set_axis([c.seed for c in configs]).dropna()
    return Scores(by_seed, key(configs[0]), metric, find_test_set(metric, configs[0].dataset))


@dataclass(frozen=True)
class Table:
    """A published table beside ours, in every suite.

    Args:
        paper: its name.
        number: of the table in the paper.
        cells: DataFrame, one row per suite and cell: suite, row, column, metric, unit, published,
            published_std, lost, ours (mean), sd, n, seeds ({seed: value} as JSON), interval (half
            the width of our mean's 95 % interval over seeds), runs ({seed: name} as JSON),
            gain_published, gain and gain_half (over the row of `published.gain_baseline` in the
            paper and here, with half the interval of ours over seeds and test images; NaN without
            such a row, and for it), uncounted (why gain_published enters no mean or count, as from
            `published.explain_uncounted`), state ('done', 'partly', 'missing', 'not exercised'
            where the method's mechanism never acted in half of the seeds, 'none' where no run can
            fill it), why (of the last two; of runs that are done but have no number; in how many
            runs the mechanism never acted), notes, dataset (the paper's), stand_in (ours), printed
            (the published number as text), labels (what is observed, as in `Config`), own (whether
            the paper has no such cell), command (what fills the cell, '' where nothing is left to
            train). Numbers in the measure's unit, NaN if missing.
    """

    paper: str
    number: str
    cells: pd.DataFrame

    @property
    def title(self) -> str:
        """What the table shows."""
        return published.table_entry(self.paper, self.number)['title']

    def of(self, suite: str) -> pd.DataFrame:
        """The cells of a suite."""
        return self.cells[self.cells.suite == suite]

    def rows(self, suite: str) -> dict[str, list[dict]]:
        """{row: its cells in a suite}, in the order of the paper."""
        by_row = self.of(suite).groupby('row', sort=False)
        return {row: part.to_dict('records') for row, part in by_row}

    def columns(self, suite: str) -> dict[str, str]:
        """{column: the data sets that stand for the paper's there, in words}. Rows of ours name
        theirs.
        """
        cells = self.of(suite)
        named = cells.stand_in.where(
            ~cells['row'].isin(cells['row'][cells.stand_in == cells.dataset])
        )
        used = named.groupby(cells.column, sort=False)
        return {
            column: '; '.join(map(published.name_dataset, names.dropna().unique()))
            for column, names in used
        }

    def progress(self, suite: str) -> dict[str, int]:
        """How far a suite is: 'done', 'todo' (missing or with fewer seeds) and 'total', counting
        the cells that a run can fill.
        """
        state = self.of(suite).state
        total = int((state != 'none').sum())
        done = int(state.isin(['done', 'not exercised']).sum())
        return {'done': done, 'todo': total - done, 'total': total}

    def notes(self) -> list[tuple[str, str]]:
        """What has to be said about the published numbers: [(the rows and columns it speaks of,
        text)].
        """
        cells = published.table_cells(self.paper, self.number)
        notes = []
        for note in dict.fromkeys(itertools.chain.from_iterable(cells.notes)):
            notes.append((_where(cells, [note in each for each in cells.notes]), note))
        for quoted in filter(None, cells.quoted.unique()):
            notes.append((_where(cells, cells.quoted == quoted), f'{_capital(quoted)}.'))
        for why in filter(None, self.cells.uncounted.unique()):
            text = (
                f'{published.UNCOUNTED} {_capital(why)}; it enters no mean, count or correlation.'
            )
            notes.append((_where(cells, self.cells.uncounted == why), text))
        return notes


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _where(cells: pd.DataFrame, chosen: Sequence[bool]) -> str:
    "The rows and columns of the chosen cells, short."
    if all(chosen):
        return 'All'
    some = cells[chosen]
    columns = ', '.join(some.column.unique())
    if some['row'].nunique() == cells['row'].nunique():
        return columns
    rows = ', '.join(some['row'].unique())
    return f'{rows} ({columns})' if some.column.nunique() < cells.column.nunique() else rows


def table_command(paper: str, number: str, suite: str) -> str:
    """The command line that fills a table."""
    return f'spml sweep {paper} --table {number} --suite {suite}'


class _Place(NamedTuple):
    table: str
    row: str
    column: str


def _place(cell: dict) -> _Place:
    return _Place(cell['table'], cell['row'], cell['column'])


def table(
    paper: str, number: str, known: pd.DataFrame | None = None, suite: str = published.SUITE
) -> Table:
    """A published table beside ours.

    Args:
        paper: one of `published.list_papers()`.
        number: one of its tables.
        known: as from `record` (unset: that) or `sweeps.finished`.
        suite: 'paper' or 'photos'.

    Returns: Table.

    Raises:
        SpmlError: for another paper, table or suite.

    Source: the papers' tables.
    """
    known = record() if known is None else known
    cells = published.table_cells(paper, number).to_dict('records')
    bases = {_place(cell): published.gain_baseline(cell, cells) for cell in cells}
    lines, scores = {}, {}
    for cell in [*cells, *filter(None, bases.values())]:  # a baseline may be of another table
        place = _place(cell)
        if place not in lines:
            lines[place], scores[place] = _joined(cell, suite, known)
    own = {_place(cell): scores[_place(cell)] for cell in cells}
    over = {place: scores[_place(base)] for place, base in bases.items() if base}
    measured = gains.gains_over_baselines(own, {'published': over}).itertuples()
    joined = [
        lines[_place(cell)] | _gain(cell, bases[_place(cell)], lines[_place(cell)], gain)
        for cell, gain in zip(cells, measured, strict=True)
    ]
    return Table(paper, str(number), pd.DataFrame(joined))


def _gain(cell: dict, base: dict | None, line: dict, gain) -> dict:
    "The columns of a cell that compare it with its baseline, if it has one and is none."
    if base is None or base is cell:
        return {
            'gain_published': math.nan,
            'gain': math.nan,
            'gain_half': math.nan,
            'uncounted': '',
        }
    idle = line['state'] == 'not exercised'
    return {
        'gain_published': cell['mean'] - base['mean'],
        'gain': math.nan if idle else gain.gain,
        'gain_half': math.nan if idle else gain.gain_half,
        'uncounted': published.explain_uncounted(cell, base),
    }


def _joined(cell: dict, suite: str, known: pd.DataFrame) -> tuple[dict, Scores]:
    "A published cell beside ours in a suite, and our scores to the digits that the table keeps."
    needed = plan_cell(cell, suite)
    final = cell_final_runs(needed, known)
    keys = {c.seed: key(c) for c in final}
    done = {seed: name for seed, name in keys.items() if name in known.index}
    scores = read_measures(final, cell['metric'], known)
    by_seed = scores.by_seed
    runs = known.reindex(columns=['run', 'exercised', 'best_epoch', 'diverged'])
    runs = runs.reindex(done.values()).set_axis(done.keys())
    scored = runs.loc[by_seed.index]
    idle = _idle(cell, scored)
    state = _state(needed, final, scored, bool(idle))
    untrained = state in ('missing', 'partly') and (len(done) < len(final) or not done)
    rounded = {seed: round(value, 4) for seed, value in by_seed.items()}
    stand_in = None if needed.why else published.find_stand_in(cell['dataset'], suite)
    line = {
        'suite': suite,
        **{name: cell[name] for name in ('row', 'column', 'metric', 'unit')},
        'published': cell['mean'],
        'published_std': cell['std'],
        'lost': cell['lost'],
        'ours': by_seed.mean(),
        'sd': by_seed.std(),
        'n': len(by_seed),
        'seeds': json.dumps(rounded),
        'interval': half_interval(by_seed),
        'runs': json.dumps(scored.run.dropna().to_dict()),
        'first': scores.key,
        'state': state,
        'why': needed.why or idle or _without_number(cell, suite, len(final), runs, by_seed.index),
        'notes': ' '.join(cell['notes']),
        'dataset': cell['dataset'],
        'printed': cell['printed'],
        'labels': (cell['config'] or {}).get('labels'),
        'stand_in': stand_in,
        'own': cell['own'],
        'command': table_command(cell['paper'], cell['table'], suite) if untrained else '',
    }
    return line, replace(scores, by_seed=pd.Series(rounded, dtype=float))


def _state(needed: Plan, final: list[Config], scored: pd.DataFrame, idle: bool) -> str:
    if needed.why:
        return 'none'
    if not len(scored):
        return 'missing'
    if idle and not mechanism_acted(scored):
        return 'not exercised'
    return 'done' if len(scored) == len(final) else 'partly'


def _without_number(
    cell: dict, suite: str, planned: int, runs: pd.DataFrame, scored: pd.Index
) -> str:
    """Why runs that are done have no number: they diverged, or were recorded without the measure.

    Args:
        planned: number of final runs.
        runs: those that are done, by seed.
        scored: seeds of those that have a number.

    Returns: '' where all have one.
    """
    lines = runs.drop(scored)
    diverged = int((lines.diverged == 1).sum())
    unmeasured = len(lines) - diverged
    reasons = []
    if diverged:
        reasons.append(f'{diverged} of {planned} final runs diverged')
    if unmeasured:
        score, _ = table_score(cell['metric'], cell['config']['loss'])
        reasons.append(
            f'{unmeasured} of {len(runs)} finished runs were recorded without {score}; remove '
            f'their lines from runs.csv, then {table_command(cell["paper"], cell["table"], suite)} '
            'trains them again'
        )
    return '; '.join(reasons)


def _idle(cell: dict, runs: pd.DataFrame) -> str:
    """In how many runs the method's mechanism never acted before the best epoch; '' where there is
    none.
    """
    idle = runs[runs.exercised == 0]
    if cell['metric'] == 'pseudo-label precision' or not len(idle):
        return ''  # it counts the labels of every epoch
    return (
        f'in {len(idle)} of {len(runs)} runs the best epoch (median {idle.best_epoch.median():g}) '
        f'came before {find(cell["config"]["loss"]).mechanism} began'
    )


def cell_has_gain(cell: dict) -> bool:
    """Whether a cell of `Table.cells` is compared by its gain, published, ours or both."""
    # F1 is not: at a fixed threshold a gain says how far the probabilities are from it
    gains_at_hand = not (math.isnan(cell['gain']) and math.isnan(cell['gain_published']))
    return gains_at_hand and not cell['metric'].endswith('-F1')


def cell_gain_text(cell: dict, bold: str = '') -> str:
    """The gain of a cell for people; its level where it is compared by that.

    Args:
        cell: of `Table.cells`.
        bold: what stands around our numbers, such as '**'.

    Returns: '+1.4 / +2.6 ± 1.9 ▮▮▮', with a block for each point of our gain, hollow ones for a
        loss.
    """
    if not cell_has_gain(cell):
        return cell_level_text(cell, bold)
    theirs = format_signed(cell['gain_published']) or ('–' if cell['own'] else 'lost')
    if cell['uncounted']:
        theirs += published.UNCOUNTED
    if cell['state'] == 'none':
        return theirs
    if math.isnan(cell['gain']):
        return f'{theirs} / {_without_gain(cell)}'
    gain = f'{bold}{format_signed(cell["gain"])}{_interval(cell["gain_half"])}{bold}'
    return f'{theirs} / {gain} {_gain_blocks(cell["gain"])}'.rstrip()


def _without_gain(cell: dict) -> str:
    return cell['state'] if cell['state'] in ('missing', 'not exercised') else 'no baseline'


MOST_BLOCKS = 8


def _gain_blocks(gain: float) -> str:
    """A block for each point of a gain, hollow ones for a loss: ▮▮▮, ▯, and … beyond eight."""
    count = round(abs(gain))
    bar = ('▮' if gain > 0 else '▯') * min(count, MOST_BLOCKS)
    return f'{bar}…' if count > MOST_BLOCKS else bar


def cell_level_text(cell: dict, bold: str = '') -> str:
    """The level of a cell for people.

    Args:
        cell, bold: as in `cell_gain_text`.

    Returns: '86.5 / 71.0 ± 2.5', with the number of seeds where some are missing.
    """
    printed = cell['printed']
    if cell['state'] == 'none':
        return printed
    if cell['state'] == 'missing':
        return f'{printed} / missing'
    ours = f'{bold}{cell["ours"]:.1f}{_interval(cell["interval"])}{bold}'
    if cell['state'] == 'partly':
        ours += ' (1 seed)' if cell['n'] == 1 else f' ({cell["n"]} seeds)'
    if cell['state'] == 'not exercised':
        ours += ' (not exercised)'
    return f'{printed} / {ours}'


def _interval(half: float) -> str:
    return '' if math.isnan(half) else f' ± {half:.1f}'


def list_table_runs(
    paper: str,
    number: str | None,
    suite: str,
    known: pd.DataFrame,
    seeds: Iterable[int] | None = None,
) -> tuple[list[Config], list[Config]]:
    """The runs of a table, done or not.

    Args:
        paper: one of `published.list_papers()`.
        number: one of its tables, None for all of them.
        suite: 'paper' or 'photos'.
        known: as from `sweeps.finished`.
        seeds: those wanted; unset: the suite's.

    Returns: (searches, final runs that are known by now), each run once, the label-wise head last.

    Raises:
        SpmlError: for another paper, table or suite.
    """
    search, final = {}, {}
    for each in published.table_numbers(paper) if number is None else [number]:
        for cell in published.table_cells(paper, each).to_dict('records'):
            of_cell = plan_cell(cell, suite)
            search |= {key(c): c for c in of_cell.search}
            final |= {key(c): c for c in cell_final_runs(of_cell, known, seeds)}

    def in_order(configs):
        return sorted(configs.values(), key=lambda c: c.head == 'labelwise')

    return in_order(search), in_order(final)


def list_unchosen_runs(
    paper: str,
    number: str | None,
    suite: str,
    known: pd.DataFrame,
    seeds: Iterable[int] | None = None,
) -> list[Config]:
    """As many final runs as cells whose search is not done will choose, each with the first
    configuration of the search in place of its choice.

    Args:
        paper, number, suite, known, seeds: as in `list_table_runs`.
    """
    runs = {}
    for each in published.table_numbers(paper) if number is None else [number]:
        for cell in published.table_cells(paper, each).to_dict('records'):
            plan = plan_cell(cell, suite)
            if plan.search and plan.choose(known) is None:
                runs |= {key(c): c for c in _with_fresh_seeds(plan.search[0], plan, seeds)}
    return list(runs.values())


def drop_unmeasured(
    paper: str, number: str | None, suite: str, known: pd.DataFrame
) -> pd.DataFrame:
    """Finished runs without those of searches that were recorded before the measure which chooses
    there was.

    Args:
        paper, number, suite, known: as in `list_table_runs`.

    Returns: `known` without these lines.
    """
    lacking = set()
    for each in published.table_numbers(paper) if number is None else [number]:
        for cell in published.table_cells(paper, each).to_dict('records'):
            plan = plan_cell(cell, suite)
            if plan.measure != 'validation':
                lacking.update(list_unmeasured(plan.search, known, plan.measure))
    return known.drop(index=[*lacking])


def sweep_tables(
    paper: str, number: str | None, suite: str, *, seeds: Iterable[int] | None = None, **launch
) -> pd.DataFrame:
    """Run what a table, or a paper, still needs.

    Args:
        paper: one of `published.list_papers()`.
        number: one of its tables, None for all of them.
        suite: 'paper' or 'photos'.
        seeds: those wanted; unset: the suite's.
        launch: dry_run, tell, engine, address and jobs, as in `sweeps.run_stages`.

    Raises:
        SpmlError: for another paper, table or suite, or one without a run.
    """
    search, _ = list_table_runs(paper, number, suite, pd.DataFrame())
    if not search:
        name = paper if number is None else f'{paper}, table {number}'
        raise SpmlError(f'nothing of {name} can be run in the suite {suite!r}.')
    return queue.run_stages(
        search,
        lambda known: list_table_runs(paper, number, suite, known, seeds)[1],
        unchosen=lambda known: list_unchosen_runs(paper, number, suite, known, seeds),
        usable=lambda known: drop_unmeasured(paper, number, suite, known),
        **launch,
    )
