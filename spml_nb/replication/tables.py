"""Every published number beside ours: from a table of a paper to the runs behind it, and back."""

import itertools
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ..base import settings
from ..base.errors import SpmlError, one_of
from ..methods.core import find
from ..runs.config import Config
from ..runs.record import RECORD, read_record
from ..sweeps import presets, queue
from ..sweeps.queue import key
from ..sweeps.search import SEARCH_SEED, Row, candidates, choose, half_interval, seeds_of
from . import published
from .statistics import Scores, image_sd, paired, signed


def record(file: Path | None = None) -> pd.DataFrame:
    """Every run of the table of record, and nothing else.

    Args:
        file: unset: `runs.csv` in the setting `outputs`.

    Returns: DataFrame as from `sweeps.finished`, empty when there is no file.

    Raises:
        SpmlError: for a damaged file, naming it and the line.
    """
    file = Path(file or settings.path('outputs') / 'runs.csv')
    if not file.exists():
        return pd.DataFrame()
    return (
        read_record(file, (*RECORD, 'val_map', 'test_map')).drop_duplicates('key').set_index('key')
    )


class Plan(NamedTuple):
    """The runs behind a cell.

    Args:
        search: the runs that are tried for the choice, with a seed that no final run has.
        stated: hyper-parameters that the cell fixes.
        why: why there are no runs, else ''.
        labels: what the final runs observe, where that differs from the search.
        one_draw: whether all seeds train on the same observed labels.
        seeds: of the final runs.
    """

    search: list[Config]
    stated: dict
    why: str = ''
    labels: str | None = None
    one_draw: bool = False
    seeds: Iterable[int] = range(3)


def plan(cell: dict, suite: str) -> Plan:
    """What a cell needs.

    Args:
        cell: a row of `published.cells`.
        suite: 'paper' or 'photos'.

    Returns: Plan.

    Raises:
        SpmlError: for another suite.
    """
    dataset, config = (
        published.stand_in(cell['dataset'], suite) if cell['dataset'] else None,
        cell['config'],
    )
    if config is None:
        return Plan([], {}, cell['no_run'])
    if cell['pretraining']:
        return Plan(
            [], {}, 'starts from a backbone trained on ImageNet; see spml_nb/sweeps/transfer.py'
        )
    if dataset is None:
        return Plan([], {}, published.STAND_INS[cell['dataset']][1])
    if suite == 'paper':
        return Plan(_grid(cell), {}, one_draw=True)
    if config.get('weights') == 'none':
        return Plan(_from_scratch(cell, dataset), {})
    if config.get('backbone', 'resnet50') != 'resnet50':
        return Plan(
            [],
            {},
            f"the suite {suite!r} has a stand-in for resnet50, none for {config['backbone']}",
        )
    labels = config.get('labels', 'single')
    partial = (
        labels if labels.startswith('partial') else None
    )  # its curve takes one choice, made on single positives
    row = Row(
        config['loss'],
        config.get('head'),
        'single' if partial else labels,
        cell.get('stand_in', {}).get('batch_size'),
    )
    return Plan(
        candidates(row, suite, dataset),
        config.get('hparams', {}),
        labels=partial,
        seeds=seeds_of(row, suite),
    )


def _grid(cell: dict) -> list[Config]:
    """The cell's search with its lists multiplied out, each under what the cell says and above the
    preset of the method.
    """
    paper, config = cell['paper'], cell['config']
    if config['dataset'] in presets.datasets(paper) and config['loss'] in presets.losses(
        paper, config['dataset']
    ):
        preset = presets.preset(paper, config['dataset'], config['loss'])
        config = published.merge(preset, config)
    tried = [
        dict(zip(cell['search'], values, strict=True))
        for values in itertools.product(*cell['search'].values())
    ]
    return [Config(**{**config, **each, 'seed': SEARCH_SEED}) for each in tried]


def _from_scratch(cell: dict, dataset: str) -> list[Config]:
    "The paper's recipe for a network from scratch, made small, at five learning rates."
    small = {
        'dataset': dataset,
        'backbone': 'mini',
        'image_size': 64,
        'epochs': 60,
        'batch_size': 64,
        'precision': 'float32',
        'hold_out': True,
    }  # for the choice of the rate
    return [
        replace(config, **small, lr=rate)
        for config in _grid(cell)
        for rate in (1e-4, 1e-3, 1e-2, 0.1, 1.0)
    ]


def finals(plan: Plan, known: pd.DataFrame, seeds: Iterable[int] | None = None) -> list[Config]:
    """The runs whose mean stands in the table.

    Args:
        plan: of a cell.
        known: as from `record` or `sweeps.finished`.
        seeds: of observed labels and training; unset: the plan's.

    Returns: list of Config, empty while the search is not done or when there is none.
    """
    chosen = choose(plan.search, known)
    if chosen is None:
        return []
    seeds = plan.seeds if seeds is None else seeds
    fixed = {
        'hparams': {**chosen.hparams, **plan.stated},
        **({'labels': plan.labels} if plan.labels else {}),
    }
    return [
        replace(chosen, seed=s, **({} if plan.one_draw else {'label_seed': s}), **fixed)
        for s in seeds
    ]


MEASURES = {
    'mAP': 'test_map',
    'mAP@class': 'test_map_class',
    'mAP@sample': 'test_map_sample',
    'accuracy': 'test_top1',
    'pseudo-label precision': 'pseudo_positive_precision_at_end',
}


def measure(metric: str, loss: str) -> tuple[str, float]:
    """The score of a run that stands for a published measure.

    Args:
        metric: of `published.METRICS`.
        loss: the method, which decides the threshold of F1: 0.75 for EM and APL, else 0.5.

    Returns: (name of the score, factor to percent).

    Raises:
        SpmlError: for a measure without a score.

    Source: EM/APL, supplement (thresholds of F1).
    """
    if metric in ('micro-F1', 'macro-F1'):
        return f"test_{metric[:5]}_f1_at_{0.75 if loss in ('em', 'em_apl') else 0.5}", 100.0
    return MEASURES[one_of(metric, MEASURES, 'measure')], 1.0


def values(configs: list[Config], metric: str, known: pd.DataFrame) -> Scores:
    """The measure of every run that is done.

    Args:
        configs: the runs, of one method.
        metric: as in `measure`.
        known: as from `record`.

    Returns: `statistics.Scores`, in the measure's unit.
    """
    if not configs:
        return Scores(pd.Series(dtype=float), '', metric)
    name, factor = measure(metric, configs[0].loss)
    found = known.reindex(index=[key(c) for c in configs], columns=[name])[name].astype(float)
    by_seed = factor * found.set_axis([c.seed for c in configs]).dropna()
    return Scores(by_seed, key(configs[0]), metric)


def acted(runs: pd.DataFrame) -> bool:
    """Whether a method's own mechanism acted before selection stopped, in more than half of its
    runs.

    Args:
        runs: lines of `record`, with the column `exercised` where methods have such a mechanism.

    Returns: bool, True where nothing is recorded.
    """
    return 'exercised' not in runs or not (runs.exercised == 0).mean() >= 0.5


class Table(NamedTuple):
    """A published table beside ours, in every suite.

    Args:
        paper: its name.
        number: of the table in the paper.
        cells: DataFrame, one row per suite and cell: suite, row, column, metric, unit, published,
            published_std, lost, ours (mean), sd, n, seeds ({seed: value} as JSON), interval (half
            the width of our mean's 95 % interval over seeds), runs ({seed: name} as JSON),
            gain_published, gain and gain_half (over the row of `published.baseline` in the paper
            and here, with half the interval of ours over seeds and test images; NaN without such a
            row, and for it), uncounted (why gain_published enters no mean or count, as from
            `published.uncounted`), state ('done', 'partly', 'missing', 'not exercised' where the
            method's mechanism never acted in half of the seeds, 'none' where no run can fill it),
            why (of the last two; of runs that are done but have no number; in how many runs the
            mechanism never acted), notes, dataset (the paper's), stand_in (ours), printed (the
            published number as text), labels (what is observed, as in `Config`), command (what
            fills the cell, '' where nothing is left to train). Numbers in the measure's unit, NaN
            if missing.
    """

    paper: str
    number: str
    cells: pd.DataFrame

    @property
    def title(self) -> str:
        """What the table shows. Returns: str."""
        return published.description(self.paper, self.number)['title']

    def of(self, suite: str) -> pd.DataFrame:
        """The cells of a suite. Args: suite. Returns: DataFrame as `cells`."""
        return self.cells[self.cells.suite == suite]

    def rows(self, suite: str) -> dict[str, list[dict]]:
        """The cells of a suite, row by row. Args: suite. Returns: {row: list of cells}, in the
        order of the paper.
        """
        return {
            row: part.to_dict('records') for row, part in self.of(suite).groupby('row', sort=False)
        }

    def columns(self, suite: str) -> dict[str, str]:
        """The columns of a suite. Args: suite. Returns: {column: the data sets that were used
        there, in words}.
        """
        names = self.of(suite).groupby('column', sort=False).stand_in
        return names.agg(
            lambda used: '; '.join(map(published.run_on, dict.fromkeys(used.dropna())))
        ).to_dict()

    def progress(self, suite: str) -> dict[str, int]:
        """How far a suite is.

        Args:
            suite: of the runs.

        Returns: {'done', 'todo' (missing or with fewer seeds), 'total'}, counting the cells that a
            run can fill.
        """
        count = self.of(suite).state.value_counts()
        done, total = (
            count.get('done', 0) + count.get('not exercised', 0),
            count.sum() - count.get('none', 0),
        )
        return {'done': int(done), 'todo': int(total - done), 'total': int(total)}

    def notes(self) -> list[tuple[str, str]]:
        """What has to be said about the published numbers. Returns: [(the rows and columns it
        speaks of, text)].
        """
        cells = published.cells(self.paper, self.number)
        each = dict.fromkeys(note for notes in cells.notes for note in notes)
        sources = [quoted for quoted in cells.quoted.unique() if quoted]
        said = [
            (_where(cells, cells.notes.map(lambda notes, note=note: note in notes)), note)
            for note in each
        ]
        for quoted in sources:
            text = f'{quoted[0].upper()}{quoted[1:]}.'
            said.append((_where(cells, cells.quoted == quoted), text))
        for why in filter(None, self.cells.uncounted.unique()):
            text = f'{published.UNCOUNTED} {why[0].upper()}{why[1:]}'
            said.append(
                (
                    _where(cells, self.cells.uncounted == why),
                    f'{text}; it enters no mean, count or correlation.',
                )
            )
        return said


def _where(cells: pd.DataFrame, chosen: pd.Series) -> str:
    "The rows and columns of the chosen cells, short."
    if chosen.all():
        return 'All'
    rows, columns = cells['row'][chosen].unique(), cells.column[chosen].unique()
    if len(rows) == cells['row'].nunique():
        return ', '.join(columns)
    return ', '.join(rows) + (
        f" ({', '.join(columns)})" if len(columns) < cells.column.nunique() else ''
    )


def command(paper: str, number: str, suite: str) -> str:
    """What fills a table.

    Args:
        paper: its name.
        number: of the table.
        suite: of the runs.

    Returns: a command line.
    """
    return f'spml sweep {paper} --table {number} --suite {suite}'


def table(
    paper: str, number: str, known: pd.DataFrame | None = None, suite: str = published.SUITE
) -> Table:
    """A published table beside ours.

    Args:
        paper: one of `published.papers()`.
        number: one of its tables.
        known: as from `record` (unset: that) or `sweeps.finished`.
        suite: 'paper' or 'photos'.

    Returns: Table.

    Raises:
        SpmlError: for another paper, table or suite.

    Source: the papers' tables.
    """
    known = record() if known is None else known
    cells = published.cells(paper, number).to_dict('records')
    each = [_joined(cell, suite, known) for cell in cells]
    lines = {_place(cell): line for cell, line in zip(cells, each, strict=True)}
    joined = []
    for cell, line in zip(cells, each, strict=True):
        base = published.baseline(cell, cells)
        if base and _place(base) not in lines:
            lines[_place(base)] = _joined(base, suite, known)
        joined.append(line | _gain(cell, base, lines))
    return Table(paper, str(number), pd.DataFrame(joined))


def _place(cell: dict) -> tuple[str, str, str]:
    return cell['table'], cell['row'], cell['column']


def _gain(cell: dict, base: dict | None, lines: dict[tuple[str, str, str], dict]) -> dict:
    """What a cell has more than the cell it is measured from: printed, and of our runs with the
    same seeds.
    """
    nothing = dict.fromkeys(('gain_published', 'gain', 'gain_half'), math.nan) | {'uncounted': ''}
    if base is None or base is cell:
        return nothing
    own, other = (lines[_place(one)] for one in (cell, base))
    metric = cell['metric']
    scores = [
        Scores(pd.Series(json.loads(each['seeds']), dtype=float), each['first'], metric)
        for each in (own, other)
    ]
    of_training = metric == 'pseudo-label precision'  # no test image adds to its chance
    ours = paired(*scores, fallback=0.0 if of_training else image_sd(own['stand_in'], metric))
    idle = own['state'] == 'not exercised'
    return {
        'gain_published': cell['mean'] - base['mean'],
        'gain': math.nan if idle else ours.mean,
        'gain_half': math.nan if idle else ours.half_width,
        'uncounted': published.uncounted(cell, base),
    }


def _joined(cell: dict, suite: str, known: pd.DataFrame) -> dict:
    "A published cell beside ours in a suite."
    needed = plan(cell, suite)
    final = finals(needed, known)
    scores = values(final, cell['metric'], known)
    each = scores.by_seed
    runs = known.reindex([key(c) for c in final if c.seed in each]).set_axis(each.index)
    done = [c for c in final if key(c) in known.index]
    idle, lost = _idle(cell, runs), _without_number(cell, suite, final, done, known)
    state = (
        'none'
        if needed.why
        else 'missing'
        if not len(each)
        else 'not exercised'
        if idle and not acted(runs)
        else 'done'
        if len(each) == len(final)
        else 'partly'
    )
    untrained = state in ('missing', 'partly') and (len(done) < len(final) or not done)
    return {
        'suite': suite,
        **{name: cell[name] for name in ('row', 'column', 'metric', 'unit')},
        'published': cell['mean'],
        'published_std': cell['std'],
        'lost': cell['lost'],
        'ours': each.mean(),
        'sd': each.std(),
        'n': len(each),
        'seeds': json.dumps({str(s): round(v, 4) for s, v in each.items()}),
        'interval': half_interval(each),
        'runs': json.dumps({str(s): run for s, run in runs.run.items()} if 'run' in runs else {}),
        'first': scores.key,
        'state': state,
        'why': needed.why or idle or lost,
        'notes': ' '.join(cell['notes']),
        'dataset': cell['dataset'],
        'printed': cell['printed'],
        'labels': (cell['config'] or {}).get('labels'),
        'stand_in': None if needed.why else published.stand_in(cell['dataset'], suite),
        'command': command(cell['paper'], cell['table'], suite) if untrained else '',
    }


def _without_number(
    cell: dict, suite: str, final: list[Config], done: list[Config], known: pd.DataFrame
) -> str:
    """Why runs that are done have no number: they diverged, or were recorded without the measure.
    '' where all have one.
    """
    each = values(done, cell['metric'], known).by_seed
    lines = known.loc[[key(c) for c in done if c.seed not in each]]
    diverged = int((lines.diverged == 1).sum()) if 'diverged' in lines else 0
    unmeasured, said = len(lines) - diverged, []
    if diverged:
        said.append(f'{diverged} of {len(final)} final runs diverged')
    if unmeasured:
        said.append(
            f"{unmeasured} of {len(done)} finished runs were recorded without "
            f"{measure(cell['metric'], final[0].loss)[0]}; remove their lines from runs.csv, then "
            f"{command(cell['paper'], cell['table'], suite)} trains them again"
        )
    return '; '.join(said)


def _idle(cell: dict, runs: pd.DataFrame) -> str:
    """In how many runs the method's mechanism never acted before the best epoch; '' where there is
    none.
    """
    idle = runs[runs.exercised == 0] if 'exercised' in runs else runs[:0]
    if cell['metric'] == 'pseudo-label precision' or not len(idle):
        return ''  # it counts the labels of every epoch
    return (
        f"in {len(idle)} of {len(runs)} runs the best epoch (median {idle.best_epoch.median():g}) "
        f"came before {find(cell['config']['loss']).mechanism} began"
    )


def cell_text(cell: dict, bold: str = '') -> str:
    """A cell for people.

    Args:
        cell: of `Table.cells`.
        bold: what stands around our numbers, such as '**'.

    Returns: '86.5 / 71.0 ± 2.5 (3 seeds); gain +1.4 / +0.6 ± 1.9'.
    """
    if cell['state'] == 'none':
        return cell['printed']
    if cell['state'] == 'missing':
        return f"{cell['printed']} / missing"
    half = '' if math.isnan(cell['interval']) else f" ± {cell['interval']:.1f}"
    ours = f"{bold}{cell['ours']:.1f}{bold}{half} ({cell['n']} seed{'s' * (cell['n'] > 1)})"
    if cell['state'] == 'not exercised':
        return f"{cell['printed']} / not exercised: {ours}"
    if math.isnan(cell['gain']):
        return f"{cell['printed']} / {ours}"
    half = '' if math.isnan(cell['gain_half']) else f" ± {cell['gain_half']:.1f}"
    theirs = signed(cell['gain_published']) or 'lost'
    if cell['uncounted']:
        theirs += published.UNCOUNTED
    return f"{cell['printed']} / {ours}; gain {theirs} / {bold}{signed(cell['gain'])}{bold}{half}"


def needed(
    paper: str,
    number: str | None,
    suite: str,
    known: pd.DataFrame,
    seeds: Iterable[int] | None = None,
) -> tuple[list[Config], list[Config]]:
    """The runs of a table, done or not.

    Args:
        paper: one of `published.papers()`.
        number: one of its tables, None for all of them.
        suite: 'paper' or 'photos'.
        known: as from `sweeps.finished`.
        seeds: those wanted; unset: the suite's.

    Returns: (searches, final runs that are known by now), each run once, the label-wise head last.

    Raises:
        SpmlError: for another paper, table or suite.
    """
    search, final = {}, {}
    for each in published.tables(paper) if number is None else [number]:
        for cell in published.cells(paper, each).to_dict('records'):
            wanted = plan(cell, suite)
            search |= {key(c): c for c in wanted.search}
            final |= {key(c): c for c in finals(wanted, known, seeds)}
    return tuple(
        sorted(every.values(), key=lambda c: c.head == 'labelwise') for every in (search, final)
    )


def sweep(
    paper: str,
    number: str | None,
    suite: str,
    *,
    seeds: Iterable[int] | None = None,
    dry_run: bool = False,
    tell: Callable[[str], None] = print,
    **launch,
) -> pd.DataFrame:
    """Run what a table, or a paper, still needs.

    Args:
        paper: one of `published.papers()`.
        number: one of its tables, None for all of them.
        suite: 'paper' or 'photos'.
        seeds: those wanted; unset: the suite's.
        dry_run: only say how much there is.
        tell: is given the lines of the report.
        launch: jobs, engine and address as in `sweeps.run`.

    Returns: DataFrame as from `sweeps.run` (`sweeps.plan` for a dry run).

    Raises:
        SpmlError: for another paper, table or suite, or one without a run.
    """
    search, _ = needed(paper, number, suite, pd.DataFrame())
    if not search:
        whole = paper if number is None else f'{paper}, table {number}'
        raise SpmlError(f'nothing of {whole} can be run in the suite {suite!r}.')
    return queue.staged(
        search,
        lambda known: needed(paper, number, suite, known, seeds)[1],
        dry_run=dry_run,
        tell=tell,
        **launch,
    )
