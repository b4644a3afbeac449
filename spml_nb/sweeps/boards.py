"""Boards: the lines of all methods on a set of photos, from the record to CSV and Markdown."""

import itertools
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files as packaged

import pandas as pd

from ..base import files, settings
from ..base.errors import one_of
from ..methods.core import find, names
from ..runs import record as runs_record
from ..runs.config import HEADS, Config
from .queue import finished
from .search import (
    SEARCH_SEED,
    SUITES,
    Row,
    best_of_k,
    candidates,
    check_dataset,
    collect_validation,
    finals,
    look_up_scores,
    run_search,
    suite_rates,
)


def baseline_head(head: str) -> str:
    """The head on which AN is compared with a method on this head: the same, but the linear one for
    class maps, whose mean is what a linear head gives.
    """
    return 'linear' if head == 'maps' else head


def tabulate_search(row: Row, suite: str, dataset: str, runs: pd.DataFrame) -> pd.DataFrame:
    """The record of a search.

    Args:
        row, suite, dataset: as in `candidates`.
        runs: finished runs, as from `finished`.

    Returns:
        DataFrame, one row per run: suite, dataset, loss, head, labels, lr, hparams (those given),
        val_map in percent (as `choose_config` compares it; NaN if missing), chosen, key.
    """
    tried = candidates(row, suite, dataset)
    values = collect_validation(tried, runs)
    chosen = None if values.isna().any() else tried[int(values.argmax())]
    return pd.DataFrame(
        {
            'suite': suite,
            'dataset': dataset,
            'loss': row.loss,
            'head': tried[0].head,
            'labels': row.labels,
            'lr': [config.lr for config in tried],
            'hparams': [json.dumps(config.hparams) for config in tried],
            'val_map': values.to_numpy(),
            'chosen': [config == chosen for config in tried],
            'key': values.index,
        }
    )


def half_interval(values: pd.Series) -> float:
    """Half the width of the 95 % interval of a mean, by Student's t distribution.

    Args:
        values: a score of each seed.

    Returns:
        In the unit of the values; NaN for fewer than two.
    """
    from scipy.special import stdtrit  # here, as a packed sweep may not find scipy

    return float(stdtrit(len(values) - 1, 0.975) * values.sem())


@dataclass(frozen=True)
class BoardLine:
    """A line of a board, over the seeds of a row's final runs; in percent but for shares, NaN for
    what is missing.

    Args:
        lr, hparams: chosen; hparams as JSON.
        val_map, test_map: means.
        sd, half: of test_map, the deviation over seeds and half the 95 % interval.
        over_an, over_plain_an: mean difference to AN on the same head, and on the linear head, with
            the same seeds; AN with the same labels where it is a line, else with single ones.
        n: seeds.
        test_map_observed: mean of what selection on observed labels would have given.
        late: share of runs whose best epoch is one of the last two.
        exercised: share in which the method's mechanism acted, NaN if it has none.
        test_maps: of each seed.
    """

    loss: str
    head: str
    labels: str
    lr: float
    hparams: str
    val_map: float
    test_map: float
    sd: float
    half: float
    over_an: float
    over_plain_an: float
    n: int
    test_map_observed: float
    late: float
    exercised: float
    test_maps: list[float]


COLUMNS = [field.name for field in fields(BoardLine)]


def outcome(
    rows: Iterable[Row],
    suite: str,
    dataset: str,
    runs: pd.DataFrame,
    seeds: Iterable[int] | None = None,
) -> pd.DataFrame:
    """What a comparison found, as far as it has been run.

    Args:
        rows, suite, dataset: as in `run_search`.
        runs: finished runs, as from `finished`.
        seeds: as in `finals`.

    Returns:
        DataFrame, one `BoardLine` per row.
    """
    rows = [replace(row, head=row.head or find(row.loss).head) for row in rows]
    configs = [finals(row, suite, dataset, runs, seeds) for row in rows]
    by_seed = [_scores_by_seed(each, runs) for each in configs]
    an = {
        (row.head, row.labels): each.test_map
        for row, each in zip(rows, by_seed, strict=True)
        if row.loss == 'an'
    }

    def line(row: Row, configs: list[Config], by_seed: pd.DataFrame) -> BoardLine:
        def over_an(head: str) -> float:
            baseline = an.get((head, row.labels), an.get((head, 'single')))
            return math.nan if baseline is None else (by_seed.test_map - baseline).mean()

        return BoardLine(
            loss=row.loss,
            head=row.head,
            labels=f'{row.labels}, {row.train_images} photos' if row.train_images else row.labels,
            lr=configs[0].lr if configs else math.nan,
            hparams=json.dumps(configs[0].hparams) if configs else '',
            val_map=by_seed.val_map.mean(),
            test_map=by_seed.test_map.mean(),
            sd=by_seed.test_map.std(),
            half=half_interval(by_seed.test_map),
            over_an=over_an(baseline_head(row.head)),
            over_plain_an=over_an('linear'),
            n=len(by_seed),
            test_map_observed=by_seed.test_map_observed.mean(),
            late=by_seed.late.mean(),
            exercised=by_seed.exercised.mean(),
            test_maps=by_seed.test_map.round(2).tolist(),
        )

    return pd.DataFrame(map(line, rows, configs, by_seed), columns=COLUMNS)


def _scores_by_seed(configs: list[Config], runs: pd.DataFrame) -> pd.DataFrame:
    "Of those that are done."
    by_seed = look_up_scores(configs, runs).set_axis([config.seed for config in configs])
    return by_seed.dropna(subset='test_map')


def all_method_rows() -> list[Row]:
    """Each method that learns from labels alone, on every head it allows, full labels included, the
    label-wise last.

    Returns:
        Rows for `run_search` and `outcome`.
    """
    rows = [
        Row(name, head, 'full' if name == 'bce' else 'single')
        for name in names()
        if not find(name).side
        for head in find(name).heads or HEADS
    ]
    return sorted(rows, key=lambda row: row.head == 'labelwise')


def suite_rows(suite: str) -> list[Row]:
    """The lines of a suite's boards.

    Args:
        suite: a key of `SUITES`.

    Returns:
        `all_method_rows`, or the suite's methods, each on its own head, with AN on every one of
        these heads.

    Raises:
        SpmlError: for another suite.
    """
    protocol = SUITES[one_of(suite, SUITES, 'suite')]
    if 'methods' not in protocol:
        return all_method_rows()
    heads = {loss: find(loss).head for loss in protocol['methods'] or names()}
    return [
        row
        for row in all_method_rows()
        if row.head == heads.get(row.loss) or (row.loss == 'an' and row.head in heads.values())
    ]


@cache
def _validation_photos() -> dict[str, int]:
    """How many photos each of our sets has for validation."""
    file = packaged('spml_nb') / 'assets' / 'photos.csv'
    return pd.read_csv(file, index_col='name').val.to_dict()


def board_rows(suite: str, dataset: str) -> list[Row]:
    """`suite_rows`, and what the labels of the validation photos are worth where they choose: a row
    that learns from as many other photos with all their labels.

    Args:
        suite, dataset: as in `candidates`.
    """
    rows = suite_rows(suite)
    if SUITES[suite]['config']['regime'] != 'linear' or dataset not in _validation_photos():
        return rows
    return [*rows, Row('bce', 'linear', 'full', train_images=_validation_photos()[dataset])]


def sweep(
    suite: str,
    datasets: Iterable[str] = (),
    losses: Iterable[str] = (),
    *,
    dry_run: bool = False,
    tell: Callable[[str], None] = print,
    **launch,
) -> pd.DataFrame:
    """Train what the boards of a suite still need and write them, the cheap heads first.

    Args:
        suite: a key of `SUITES`.
        datasets: some of the suite's; none: all of them.
        losses: some of its methods; none: all of them.
        dry_run: only say how much there is.
        tell: is given the lines.
        launch: engine, address and jobs, as in `run`.

    Returns:
        DataFrame as from `run_stages`.

    Raises:
        SpmlError: for another suite, data set or method, and as `run`.
    """
    rows = suite_rows(suite)
    methods = sorted({row.loss for row in rows})
    losses = {one_of(loss, methods, f'method of {suite}') for loss in losses} or methods
    datasets = [check_dataset(name, suite) for name in datasets or SUITES[suite]['datasets']]
    done = []
    for labelwise, dataset in itertools.product((False, True), datasets):
        tell(f"{dataset}, {'label-wise head' if labelwise else 'all other heads'}:")
        chosen = [
            row for row in rows if row.loss in losses and (row.head == 'labelwise') == labelwise
        ]
        done.append(run_search(chosen, suite, dataset, None, dry_run=dry_run, tell=tell, **launch))
        if dry_run:
            continue
        runs_record.export_csv()
        write_board(suite, dataset, finished(), tell)
        if (done[-1].state == 'missing').any():
            break  # interrupted
    return pd.concat(done, ignore_index=True)


def write_board(
    suite: str, dataset: str, runs: pd.DataFrame, tell: Callable[[str], None] = lambda line: None
) -> pd.DataFrame:
    """Write a board to `methods/NAME.csv`, `.md`, `_search.csv` and `_best_of_k.csv` in the setting
    `outputs`.

    NAME is that of the data set, with `_finetune` behind it for the suite `photos_finetune`.

    Args:
        suite, dataset: as in `candidates`.
        runs: finished runs, as from `finished`.
        tell: is given a line where the range of learning rates is too narrow.

    Returns:
        DataFrame as from `outcome`, the best first; what was not run is left out, and nothing is
        written for nothing.

    Raises:
        SpmlError: if the files cannot be written.
    """
    rows = suite_rows(suite)
    board = outcome(board_rows(suite, dataset), suite, dataset, runs).query('n > 0')
    board = board.sort_values('test_map', ascending=False, ignore_index=True, kind='stable')
    tried = pd.concat(
        [tabulate_search(row, suite, dataset, runs) for row in rows], ignore_index=True
    )
    at_ends = _chosen_at_ends(tried, suite)
    if at_ends:
        tell(
            f'{dataset}: the best rate is the lowest or highest tried for {at_ends}. Raise '
            f'`widened` by one and `draws` by two in the suite {suite!r} of '
            'spml_nb/sweeps/search.py. Then give the command again.'
        )
    if not len(board):
        return board
    tried = tried.dropna(subset='val_map')
    folder = settings.path('outputs') / 'methods'
    name = dataset + suite.removeprefix('photos').removeprefix('mini')
    tables = {name: board, f'{name}_search': tried, f'{name}_best_of_k': _best_of_k(tried)}
    for stem, table in tables.items():
        rounded = table.round(4).assign(**table.filter(['lr']))
        text = rounded.to_csv(index=False, lineterminator='\n')
        files.write_atomically(folder / f'{stem}.csv', text)
    text = _page(board, suite, dataset, at_ends)
    files.write_atomically(folder / f'{name}.md', text)
    return board


def _chosen_at_ends(tried: pd.DataFrame, suite: str) -> str:
    "Which rows of a board have chosen the lowest or the highest rate."
    ends = min(suite_rates(suite)), max(suite_rates(suite))
    chosen = tried[tried.chosen & tried.lr.isin(ends)]
    return ', '.join(
        f'{run.loss} ({run.head}, {run.labels}) {run.lr:g}' for run in chosen.itertuples()
    )


def _best_of_k(tried: pd.DataFrame) -> pd.DataFrame:
    "The best-of-k curve of each row of a board: loss, head, labels, k, val_map."
    rows = tried.groupby(['loss', 'head', 'labels'], sort=False).val_map
    curves = rows.apply(lambda values: pd.Series(best_of_k(values), range(1, len(values) + 1)))
    return curves.rename_axis(['loss', 'head', 'labels', 'k']).dropna().reset_index()


def _page(board: pd.DataFrame, suite: str, dataset: str, at_ends: str) -> str:
    "A board as Markdown, below what has to be runs to read it."
    protocol = SUITES[suite]
    seeds = ', '.join(f'{head} {n}' for head, n in protocol['seeds'].items())
    text = (
        f"{dataset}, suite `{suite}`: regime {protocol['config']['regime']}, backbone "
        f"{protocol['config'].get('backbone', 'mini')}. Search: {len(suite_rates(suite))} draws "
        f'for every method, seed {SEARCH_SEED}, the paper’s values first; the best mAP on fully '
        f'labelled validation images is chosen. Then fresh seeds, by head: {seeds}. mAP in '
        'percent; half: half the 95 % interval over seeds; test_map_observed: had observed labels '
        'alone chosen the epoch, not the settings; late, exercised: shares of runs. A late run has '
        'its best epoch among the last two, so that a longer one could have been better.'
    )
    if board.labels.str.endswith(' photos').any():
        text += ' *full, n photos*: as many as validation has, which are not those that choose.'
    if at_ends:
        text += (
            ' The lowest or highest rate tried is the best, so a wider search could find a better '
            f'one: {at_ends}.'
        )
    shown = board.drop(columns='test_maps').round(1)
    shown = shown.assign(lr=board.lr, late=board.late.round(2))
    numbers = shown.select_dtypes('float').columns
    shown[numbers] += 0.0  # no minus before 0
    cells = shown.astype(object).where(shown.notna(), '')
    return f'{text}\n\n{files.markdown_table([[*cells], *cells.to_numpy().tolist()])}'


def write_boards(runs: pd.DataFrame):
    """Write every board that has a run, as `write_board` does.

    Args:
        runs: finished runs, as from `finished`.

    Raises:
        SpmlError: if the files cannot be written.
    """
    searched_on = set(runs.dataset[runs.seed == SEARCH_SEED]) if len(runs) else set()
    for suite, protocol in SUITES.items():
        for dataset in protocol['datasets']:
            if dataset in searched_on:
                write_board(suite, dataset, runs)
