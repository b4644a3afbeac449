"""The papers' tables with our numbers beside theirs, and the runs behind each cell."""

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from ..base import settings
from ..base.errors import SpmlError, require_one_of
from ..methods.core import find
from ..runs.config import Config
from ..runs.record import RECORD, read_record
from ..statistics import NO_SCORES, Scores, format_signed
from ..sweeps import presets, queue
from ..sweeps.boards import half_interval
from ..sweeps.queue import run_key
from ..sweeps.search import (
    SEARCH_SEED,
    Row,
    add_validation,
    choose_config,
    final_seeds,
    list_unmeasured,
    search_configs,
)
from . import gains, published
from .gains import mechanism_acted


def read_recorded_runs(file: Path | None = None) -> pd.DataFrame:
    """The table of record: every finished run of the study.

    Args:
        file: Default: `runs.csv` in the setting `outputs`.

    Returns:
        DataFrame as from `sweeps.load_finished_runs`, with the column `validation` (the measure
        that chooses in a search); empty without a file.

    Raises:
        SpmlError: For a damaged file, with its name and the line.
    """
    file = Path(file or settings.get_folder('outputs') / 'runs.csv')
    if not file.exists():
        return pd.DataFrame()
    runs = read_record(file, (*RECORD, 'test_map')).drop_duplicates('key')
    if 'val_map' not in runs:  # every run trained to its last epoch, without validation images
        runs['val_map'] = math.nan
    return add_validation(runs.set_index('key'))


@dataclass(frozen=True)
class Plan:
    """The runs behind a cell.

    Attributes:
        search: Candidates among which validation chooses; no final run has their seed.
        stated: Hyper-parameters that the table states, whatever the search chooses.
        why: Why there are no runs, '' if there are.
        labels: What the final runs observe, None if the same as in the search.
        one_draw: Whether all seeds train on the same observed labels.
        seeds: Of the final runs.
        measure: Column of the record that chooses in the search.
    """

    search: list[Config]
    stated: dict
    why: str = ''
    labels: str | None = None
    one_draw: bool = False
    seeds: Iterable[int] = range(3)
    measure: str = 'validation'

    def choose(self, runs: pd.DataFrame) -> Config | None:
        """The best run of the search; None if a run is missing or lacks the measure."""
        return choose_config(self.search, runs, self.measure)


def cell_of_runs(paper: str, config: dict) -> dict:
    """A cell for `plan_cell`, of runs that are in no table.

    Args:
        paper: One of `published.list_papers()`.
        config: Fields of `Config`.
    """
    return {
        'paper': paper,
        'metric': 'mAP',
        'config': config,
        'dataset': config['dataset'],
        'search': {},
        'pretraining': None,
        'added': False,
        'no_run': '',
    }


def plan_cell(cell: dict, suite: str) -> Plan:
    """The runs that fill a cell.

    Args:
        cell: A row of `published.table_cells`.
        suite: 'paper' or 'photos'.

    Raises:
        SpmlError: For an unknown suite.
    """
    config = cell['config']
    if config is None:
        return Plan([], {}, cell['no_run'])
    if cell['pretraining']:
        return Plan(
            [], {}, 'starts from a backbone trained on ImageNet; see spml_nb/sweeps/transfer.py'
        )
    if cell['added'] and suite == 'paper':
        return Plan([], {}, 'the paper has no such cell')
    dataset = published.find_stand_in(cell['dataset'], suite)
    if dataset is None:
        return Plan([], {}, published.STAND_INS[cell['dataset']][1])
    measure = _choosing_measure(cell['metric'], config['loss'])
    if suite == 'paper':
        return Plan(_grid(cell), {}, one_draw=True, measure=measure)
    if config.get('weights') == 'none':
        return Plan(_from_scratch(cell, dataset), {}, measure=measure)
    return _plan_on_photos(cell, suite, dataset, measure)


def _plan_on_photos(cell: dict, suite: str, dataset: str, measure: str) -> Plan:
    config = cell['config']
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
    search = search_configs(row, suite, dataset)
    if config.get('selection') == 'last':
        search = _with_paper_schedule(search, cell)
    return Plan(
        search,
        config.get('hparams', {}),
        labels=partial,
        seeds=final_seeds(row, suite),
        measure=measure,
    )


def _with_paper_schedule(search: list[Config], cell: dict) -> list[Config]:
    """The candidates with the constants and the schedule of a paper that reports the last epoch, so
    that the rate alone is searched. Under another schedule the last epoch would say nothing.
    """
    schedule = {name: cell['config'][name] for name in ('selection', 'schedule', 'epochs')}
    hparams = _paper_hparams(cell['paper'], cell['config']['loss'])
    return [config.changed(**schedule, patience=0, hparams=hparams) for config in search]


def _paper_hparams(paper: str, loss: str) -> dict:
    """The hyper-parameters of a method in a paper, on the first data set that has them; {} if none
    has.
    """
    for dataset in presets.paper_datasets(paper):
        if loss in presets.paper_losses(paper, dataset):
            return presets.preset(paper, dataset, loss)['hparams']
    return {}


def _grid(cell: dict) -> list[Config]:
    """The product of the cell's search lists, each laid over the fields of the cell, and these over
    the preset of the method.
    """
    paper, config = cell['paper'], cell['config']
    dataset, loss = config['dataset'], config['loss']
    if dataset in presets.paper_datasets(paper) and loss in presets.paper_losses(paper, dataset):
        config = published.merge_mappings(presets.preset(paper, dataset, loss), config)
    search = cell['search']
    return [
        Config(**config | dict(zip(search, values, strict=True)) | {'seed': SEARCH_SEED})
        for values in itertools.product(*search.values())
    ]


_SMALL = {
    'backbone': 'mini',
    'image_size': 64,
    'epochs': 60,
    'batch_size': 64,
    'precision': 'float32',
    'hold_out': True,  # a validation split chooses the rate
}


def _from_scratch(cell: dict, dataset: str) -> list[Config]:
    "The paper's recipe for a network from random weights, made small, at five learning rates."
    return [
        replace(config, dataset=dataset, lr=rate, **_SMALL)
        for config in _grid(cell)
        for rate in (1e-4, 1e-3, 1e-2, 0.1, 1.0)
    ]


def cell_final_runs(
    plan: Plan, runs: pd.DataFrame, seeds: Iterable[int] | None = None
) -> list[Config]:
    """The runs whose mean fills a cell; empty while its search is not finished.

    Args:
        runs: Finished runs, as from `read_recorded_runs` or `sweeps.load_finished_runs`.
        seeds: Of observed labels and training; default: the plan's.
    """
    chosen = plan.choose(runs)
    return [] if chosen is None else _with_fresh_seeds(chosen, plan, seeds)


def _with_fresh_seeds(chosen: Config, plan: Plan, seeds: Iterable[int] | None) -> list[Config]:
    chosen = replace(chosen, hparams={**chosen.hparams, **plan.stated})
    if plan.labels:
        chosen = replace(chosen, labels=plan.labels)
    return [
        replace(chosen, seed=seed, label_seed=chosen.label_seed if plan.one_draw else seed)
        for seed in (plan.seeds if seeds is None else seeds)
    ]


def cell_lines(
    paper: str, table: str, row: str, columns: list[str], runs: pd.DataFrame
) -> pd.DataFrame:
    """The lines of the record behind cells of a row on photos, of the runs that are finished."""
    cells = published.index_cells(paper, table)
    configs = [
        config
        for column in columns
        for config in cell_final_runs(plan_cell(cells[row, column], published.PHOTOS_SUITE), runs)
    ]
    return runs.loc[[name for name in map(run_key, configs) if name in runs.index]]


MEASURES = {
    'mAP': 'test_map',
    'mAP@class': 'test_map_class',
    'mAP@sample': 'test_map_sample',
    'accuracy': 'test_top1',
    'pseudo-label precision': 'pseudo_positive_precision_at_end',
}
CHOSEN_THRESHOLD = {f'{kind}-F1 at the chosen threshold': kind for kind in ('micro', 'macro')}


def table_f1_threshold(loss: str) -> float:
    """The probability at which a label is predicted, for F1.

    Source: EM/APL, supplement.
    """
    return 0.75 if loss in ('em', 'em_apl') else 0.5


def table_score(metric: str, loss: str) -> tuple[str, float]:
    """The score of a run that a published measure corresponds to.

    Args:
        metric: One of `published.METRICS`.
        loss: The method, which decides the threshold of F1.

    Returns:
        (name of the score, factor to percent).

    Raises:
        SpmlError: For a measure without a score.
    """
    if metric in ('micro-F1', 'macro-F1'):
        average = metric.removesuffix('-F1')
        return f'test_{average}_f1_at_{table_f1_threshold(loss)}', 100.0
    if metric in CHOSEN_THRESHOLD:
        return f'test_{CHOSEN_THRESHOLD[metric]}_f1', 100.0
    return MEASURES[require_one_of(metric, MEASURES, 'measure')], 1.0


def _choosing_measure(metric: str, loss: str) -> str:
    """The column of the record that chooses the settings of a cell: its own measure on validation
    where that is recorded, else 'validation', mAP over classes.
    """
    if metric == 'mAP@sample' or 'F1' in metric:
        score, _ = table_score(metric, loss)
        return score.replace('test_', 'val_')
    return 'validation'


def find_test_set(metric: str, dataset: str | None) -> str:
    """The data set whose test images a measure uses, '' if it is measured on training images."""
    return '' if metric == 'pseudo-label precision' or dataset is None else dataset


def read_measures(configs: list[Config], metric: str, runs: pd.DataFrame) -> Scores:
    """The measure of every finished run, in the unit of the measure.

    Args:
        configs: Runs of one method.
        metric: One of `published.METRICS`.
        runs: Finished runs, as from `read_recorded_runs`.
    """
    if not configs:
        return NO_SCORES
    name, factor = table_score(metric, configs[0].loss)
    keys = [run_key(config) for config in configs]
    scores = runs.reindex(index=keys, columns=[name])[name].astype(float)
    by_seed = factor * scores.set_axis([config.seed for config in configs]).dropna()
    return Scores(by_seed, keys[0], metric, find_test_set(metric, configs[0].dataset))


@dataclass(frozen=True)
class Table:
    """A published table beside ours.

    Attributes:
        number: As the paper counts.
        cells: One row per suite and cell, numbers in the unit of the measure and NaN if missing:

            - suite, row, column, metric, unit, dataset (the paper's), stand_in (ours), labels (as
              in `Config`), notes
            - published, published_std, printed (as text), lost; added: whether we added the cell to
              the paper's table
            - ours (mean), sd, n (seeds), seeds ({seed: value} as JSON), interval (half the 95 %
              interval over seeds), runs ({seed: name} as JSON), first_key (of the first run)
            - gain_published, gain, gain_half: over `published.gain_baseline` in the paper and here,
              the interval over seeds and test images; NaN for the baseline itself and without one
            - uncounted: as from `published.explain_uncounted`
            - state: 'done', 'partly', 'missing', 'not exercised' (the method's mechanism never
              acted in half of the runs or more) or 'none' (no run can fill it)
            - why: the reason for 'none' or 'not exercised', in how many runs the mechanism never
              acted, or why finished runs have no number
            - command: what fills the cell, '' if there is nothing left to train
    """

    paper: str
    number: str
    cells: pd.DataFrame

    @property
    def title(self) -> str:
        """The title in the paper."""
        return published.table_entry(self.paper, self.number)['title']

    def of(self, suite: str) -> pd.DataFrame:
        """The cells in a suite."""
        return self.cells[self.cells.suite == suite]

    def rows(self, suite: str) -> dict[str, list[dict]]:
        """{row: its cells in a suite}, in the order of the paper."""
        by_row = self.of(suite).groupby('row', sort=False)
        return {row: part.to_dict('records') for row, part in by_row}

    def columns(self, suite: str) -> dict[str, str]:
        """{column: full names of our data sets in it}, without rows on a data set of our choice,
        which name it themselves.
        """
        cells = self.of(suite)
        rows_of_ours = cells['row'][cells.stand_in == cells.dataset]
        stand_in = cells.stand_in.where(~cells['row'].isin(rows_of_ours))
        return {
            column: '; '.join(map(published.name_dataset, names.dropna().unique()))
            for column, names in stand_in.groupby(cells.column, sort=False)
        }

    def progress(self, suite: str) -> dict[str, int]:
        """Number of cells that are 'done', 'todo' (without all seeds) and in 'total', of those that
        a run can fill.
        """
        state = self.of(suite).state
        total = int((state != 'none').sum())
        done = int(state.isin(['done', 'not exercised']).sum())
        return {'done': done, 'todo': total - done, 'total': total}

    def notes(self) -> list[tuple[str, str]]:
        """Notes on the published numbers: [(rows and columns, text)]."""
        cells = published.table_cells(self.paper, self.number)
        notes = []
        for note in dict.fromkeys(itertools.chain.from_iterable(cells.notes)):
            applies = [note in of_cell for of_cell in cells.notes]
            notes.append((_describe_cells(cells, applies), note))
        for quoted in filter(None, cells.quoted.unique()):
            where = _describe_cells(cells, cells.quoted == quoted)
            notes.append((where, f'{_capitalize(quoted)}.'))
        for why in filter(None, self.cells.uncounted.unique()):
            where = _describe_cells(cells, self.cells.uncounted == why)
            text = f'{_capitalize(why)}; it enters no mean, count or correlation.'
            notes.append((where, f'{published.UNCOUNTED} {text}'))
        return notes


def _capitalize(text: str) -> str:
    return text[0].upper() + text[1:]


def _describe_cells(cells: pd.DataFrame, chosen: Sequence[bool]) -> str:
    "The rows and columns of the chosen cells: 'HML, AN (VOC, COCO)', 'VOC' or 'All'."
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


def table(
    paper: str, number: str, runs: pd.DataFrame | None = None, suite: str = published.PHOTOS_SUITE
) -> Table:
    """A published table beside ours.

    Args:
        paper: One of `published.list_papers()`.
        number: One of its tables.
        runs: Finished runs; default: `read_recorded_runs()`.
        suite: 'paper' or 'photos'.

    Raises:
        SpmlError: For an unknown paper, table or suite.

    Source: the papers' tables.
    """
    runs = read_recorded_runs() if runs is None else runs
    number = str(number)
    measured = {}

    def measure(cell: dict) -> tuple[dict, Scores]:
        where = cell['table'], cell['row'], cell['column']
        if where not in measured:
            measured[where] = _measure_cell(cell, suite, runs)
        return measured[where]

    rows = []
    for cell in published.index_cells(paper, number).values():
        row, scores = measure(cell)
        base = published.gain_baseline(cell)
        if base is None or base is cell:
            rows.append(row | _NO_GAIN)
            continue
        _, base_scores = measure(base)  # which may be in another table
        gain = gains.estimate_gain(scores, base_scores)
        idle = row['state'] == 'not exercised'
        rows.append(
            row
            | {
                'gain_published': cell['mean'] - base['mean'],
                'gain': math.nan if idle else gain.mean,
                'gain_half': math.nan if idle else gain.half_width,
                'uncounted': published.explain_uncounted(cell, base),
            }
        )
    return Table(paper, str(number), pd.DataFrame(rows))


_NO_GAIN = {'gain_published': math.nan, 'gain': math.nan, 'gain_half': math.nan, 'uncounted': ''}


def _measure_cell(cell: dict, suite: str, runs: pd.DataFrame) -> tuple[dict, Scores]:
    "A row of `Table.cells` without its gain, and our scores to the digits that it keeps."
    plan = plan_cell(cell, suite)
    final = cell_final_runs(plan, runs)
    keys = {config.seed: run_key(config) for config in final}
    done = {seed: name for seed, name in keys.items() if name in runs.index}
    scores = read_measures(final, cell['metric'], runs)
    by_seed = scores.by_seed
    lines = runs.reindex(columns=['run', 'exercised', 'best_epoch', 'diverged'])
    lines = lines.reindex(done.values()).set_axis(done.keys())
    scored = lines.loc[by_seed.index]
    idle = _explain_idle(cell, scored)
    unscored = _explain_unscored(cell, suite, len(final), lines, by_seed.index)
    state = _state(plan, final, scored, bool(idle))
    untrained = state in ('missing', 'partly') and (len(done) < len(final) or not done)
    rounded = {seed: round(value, 4) for seed, value in by_seed.items()}
    stand_in = None if plan.why else published.find_stand_in(cell['dataset'], suite)
    row = {
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
        'first_key': scores.key,
        'state': state,
        'why': plan.why or idle or unscored,
        'notes': ' '.join(cell['notes']),
        'dataset': cell['dataset'],
        'printed': cell['printed'],
        'labels': (cell['config'] or {}).get('labels'),
        'stand_in': stand_in,
        'added': cell['added'],
        'command': table_command(cell['paper'], cell['table'], suite) if untrained else '',
    }
    return row, replace(scores, by_seed=pd.Series(rounded, dtype=float))


def _state(plan: Plan, final: list[Config], scored: pd.DataFrame, idle: bool) -> str:
    if plan.why:
        return 'none'
    if not len(scored):
        return 'missing'
    if idle and not mechanism_acted(scored):
        return 'not exercised'
    return 'done' if len(scored) == len(final) else 'partly'


def _explain_unscored(
    cell: dict, suite: str, planned: int, lines: pd.DataFrame, scored: pd.Index
) -> str:
    """Why finished runs have no number: they diverged, or were recorded without the measure.

    Args:
        planned: Number of final runs.
        lines: The finished ones, by seed.
        scored: Seeds of those that have a number.

    Returns:
        '' if all have one.
    """
    unscored = lines.drop(scored)
    diverged = int((unscored.diverged == 1).sum())
    unmeasured = len(unscored) - diverged
    reasons = []
    if diverged:
        reasons.append(f'{diverged} of {planned} final runs diverged')
    if unmeasured:
        score, _ = table_score(cell['metric'], cell['config']['loss'])
        reasons.append(
            f'{unmeasured} of {len(lines)} finished runs were recorded without {score}; remove '
            f'their lines from runs.csv, then {table_command(cell["paper"], cell["table"], suite)} '
            'trains them again'
        )
    return '; '.join(reasons)


def _explain_idle(cell: dict, lines: pd.DataFrame) -> str:
    """In how many runs the best epoch came before the method's mechanism began; '' if in none."""
    idle = lines[lines.exercised == 0]
    # precision of pseudo-labels is measured over all epochs, not at the best one
    if cell['metric'] == 'pseudo-label precision' or not len(idle):
        return ''
    return (
        f'in {len(idle)} of {len(lines)} runs the best epoch (median {idle.best_epoch.median():g}) '
        f'came before {find(cell["config"]["loss"]).mechanism} began'
    )


def cell_has_gain(cell: dict) -> bool:
    """Whether a cell of `Table.cells` is shown by its gain rather than its level."""
    # F1 is not: at a fixed threshold its gain depends on the calibration of the probabilities
    without_gain = math.isnan(cell['gain']) and math.isnan(cell['gain_published'])
    return not without_gain and not cell['metric'].endswith('-F1')


def cell_gain_text(cell: dict, bold: str = '') -> str:
    """The published gain and ours, or the levels for a cell without a gain.

    Args:
        cell: A row of `Table.cells`.
        bold: What encloses our numbers, such as '**'.

    Returns:
        '+1.4 / +2.6 ± 1.9 ▮▮▮', with a block for each point of our gain, hollow ones for a loss.
    """
    if not cell_has_gain(cell):
        return cell_level_text(cell, bold)
    printed = format_signed(cell['gain_published']) or ('–' if cell['added'] else 'lost')
    if cell['uncounted']:
        printed += published.UNCOUNTED
    if cell['state'] == 'none':
        return printed
    if math.isnan(cell['gain']):
        state = cell['state']
        reason = state if state in ('missing', 'not exercised') else 'no baseline'
        return f'{printed} / {reason}'
    gain = f'{bold}{format_signed(cell["gain"])}{_interval(cell["gain_half"])}{bold}'
    return f'{printed} / {gain} {_gain_blocks(cell["gain"])}'.rstrip()


_MOST_BLOCKS = 8


def _gain_blocks(gain: float) -> str:
    "A block for each point of a gain, hollow ones for a loss, and … beyond eight."
    count = round(abs(gain))
    bar = ('▮' if gain > 0 else '▯') * min(count, _MOST_BLOCKS)
    return f'{bar}…' if count > _MOST_BLOCKS else bar


def cell_level_text(cell: dict, bold: str = '') -> str:
    """The published level and ours: '86.5 / 71.0 ± 2.5', with the number of seeds if some are
    missing.

    Args:
        cell, bold: As in `cell_gain_text`.
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


def _plan_cells(paper: str, number: str | None, suite: str) -> list[Plan]:
    "The plans of a table's cells; number None: of all tables of the paper."
    numbers = published.table_numbers(paper) if number is None else [number]
    return [
        plan_cell(cell, suite)
        for each in numbers
        for cell in published.index_cells(paper, each).values()
    ]


def list_table_runs(
    paper: str,
    number: str | None,
    suite: str,
    runs: pd.DataFrame,
    seeds: Iterable[int] | None = None,
) -> tuple[list[Config], list[Config]]:
    """The runs of a table, finished or not.

    Args:
        paper: One of `published.list_papers()`.
        number: One of its tables, None for all of them.
        suite: 'paper' or 'photos'.
        runs: Finished runs, as from `sweeps.load_finished_runs`.
        seeds: Of the final runs; default: the suite's.

    Returns:
        (search runs, final runs of finished searches), each run once, the label-wise head last.

    Raises:
        SpmlError: For an unknown paper, table or suite.
    """
    search, final = {}, {}
    for plan in _plan_cells(paper, number, suite):
        search |= {run_key(config): config for config in plan.search}
        final |= {run_key(config): config for config in cell_final_runs(plan, runs, seeds)}
    return _label_wise_last(search.values()), _label_wise_last(final.values())


def _label_wise_last(configs: Iterable[Config]) -> list[Config]:
    return sorted(configs, key=lambda config: config.head == 'labelwise')


def list_unchosen_runs(
    paper: str,
    number: str | None,
    suite: str,
    runs: pd.DataFrame,
    seeds: Iterable[int] | None = None,
) -> list[Config]:
    """Placeholders, for estimates of length, of the final runs that unfinished searches will
    choose: each with the first configuration of its search.

    Args:
        paper, number, suite, runs, seeds: As in `list_table_runs`.
    """
    unchosen = {}
    for plan in _plan_cells(paper, number, suite):
        if plan.search and plan.choose(runs) is None:
            configs = _with_fresh_seeds(plan.search[0], plan, seeds)
            unchosen |= {run_key(config): config for config in configs}
    return list(unchosen.values())


def drop_unmeasured(paper: str, number: str | None, suite: str, runs: pd.DataFrame) -> pd.DataFrame:
    """The finished runs without search runs that were recorded before the measure that chooses
    among them existed.

    Args:
        paper, number, suite, runs: As in `list_table_runs`.
    """
    lacking = set()
    for plan in _plan_cells(paper, number, suite):
        if plan.measure != 'validation' and len(plan.search) > 1:  # one is chosen without a measure
            lacking.update(list_unmeasured(plan.search, runs, plan.measure))
    return runs.drop(index=list(lacking))


def sweep_tables(
    paper: str, number: str | None, suite: str, *, seeds: Iterable[int] | None = None, **launch
) -> pd.DataFrame:
    """Run what a table, or all tables of a paper, still need.

    Args:
        paper, number, suite, seeds: As in `list_table_runs`.
        launch: dry_run, tell, engine, address and jobs, as in `sweeps.run_stages`.

    Raises:
        SpmlError: For an unknown paper, table or suite, or if the table has no runs in this suite.
    """
    search, _ = list_table_runs(paper, number, suite, pd.DataFrame())
    if not search:
        name = paper if number is None else f'{paper}, table {number}'
        raise SpmlError(f'nothing of {name} can be run in the suite {suite!r}.')
    return queue.run_stages(
        search,
        lambda runs: list_table_runs(paper, number, suite, runs, seeds)[1],
        unchosen=lambda runs: list_unchosen_runs(paper, number, suite, runs, seeds),
        usable=lambda runs: drop_unmeasured(paper, number, suite, runs),
        **launch,
    )


def describe_lacking(cells: pd.DataFrame) -> str:
    """What cells with the same `why` lack: runs, a number, or runs in which the method's mechanism
    acted; the latter are listed.
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
