"""Boards: tables that compare all methods on a data set, as CSV and Markdown."""

import itertools
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from importlib.resources import files as packaged

import pandas as pd

from ..base import files, settings
from ..base.errors import require_one_of
from ..methods.core import find, names
from ..runs import record
from ..runs.config import HEADS, Config
from .queue import load_finished_runs
from .search import (
    SEARCH_SEED,
    SUITES,
    Row,
    check_dataset,
    collect_validation,
    final_configs,
    look_up_scores,
    run_search,
    search_configs,
    suite_rates,
)


def baseline_head(head: str) -> str:
    """The head of AN that a method on this head is compared with: the same, but the linear head for
    class maps, whose mean equals its logits.
    """
    return 'linear' if head == 'maps' else head


def tabulate_search(row: Row, suite: str, dataset: str, runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of a search with their validation scores.

    Args:
        row, suite, dataset: as in `search_configs`.
        runs: finished runs, as from `load_finished_runs`.

    Returns:
        DataFrame, one row per run: suite, dataset, loss, head, labels, lr, hparams (JSON, without
        the paper's values), val_map (percent, as from `validation_scores`; NaN if missing), chosen
        (whether it is the best), key.
    """
    configs = search_configs(row, suite, dataset)
    scores = collect_validation(configs, runs)
    chosen = None if scores.isna().any() else configs[int(scores.argmax())]
    return pd.DataFrame(
        {
            'suite': suite,
            'dataset': dataset,
            'loss': row.loss,
            'head': configs[0].head,
            'labels': row.labels,
            'lr': [config.lr for config in configs],
            'hparams': [json.dumps(config.hparams) for config in configs],
            'val_map': scores.to_numpy(),
            'chosen': [config == chosen for config in configs],
            'key': scores.index,
        }
    )


def half_interval(values: pd.Series) -> float:
    """Half the width of the 95 % confidence interval of a mean, by Student's t distribution.

    Args:
        values: one score per seed.

    Returns:
        In the unit of the values; NaN for fewer than two.
    """
    from scipy.special import stdtrit  # imported here, as a packed sweep may lack scipy

    return float(stdtrit(len(values) - 1, 0.975) * values.sem())


@dataclass(frozen=True)
class BoardLine:
    """The final runs of a row, summarised over seeds. Scores in percent, NaN if missing.

    Args:
        lr, hparams: the best of the search; hparams as JSON.
        val_map, test_map: means.
        sd, half: of test_map: standard deviation, and half the 95 % confidence interval.
        over_an, over_plain_an: mean difference of test_map to AN with the same seeds, on the same
            head and on the linear head; AN on the same labels if it was run, else on single ones.
        n: number of seeds.
        test_map_observed: mean test mAP if observed labels had selected the epochs.
        late: fraction of runs whose best epoch is one of the last two.
        exercised: fraction of runs in which the method's mechanism acted; NaN if it has none.
        test_maps: one per seed.
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


def summarize_final_runs(
    rows: Iterable[Row],
    suite: str,
    dataset: str,
    runs: pd.DataFrame,
    seeds: Iterable[int] | None = None,
) -> pd.DataFrame:
    """Summarise the final runs of each row, as far as they are done.

    Args:
        rows, suite, dataset: as in `run_search`.
        runs: finished runs, as from `load_finished_runs`.
        seeds: as in `final_configs`.

    Returns:
        DataFrame, one `BoardLine` per row.
    """
    rows = [replace(row, head=row.head or find(row.loss).head) for row in rows]
    configs = [final_configs(row, suite, dataset, runs, seeds) for row in rows]
    scores = [_scores_by_seed(row_configs, runs) for row_configs in configs]
    baselines = {
        (row.head, row.labels): row_scores.test_map
        for row, row_scores in zip(rows, scores, strict=True)
        if row.loss == 'an'
    }
    lines = map(partial(_summarise, baselines), rows, configs, scores)
    return pd.DataFrame(lines, columns=COLUMNS)


def _summarise(
    baselines: dict[tuple[str, str], pd.Series],
    row: Row,
    configs: list[Config],
    scores: pd.DataFrame,
) -> BoardLine:
    "A line from the final runs of a row; `baselines`: {(head, labels): test mAP of AN by seed}."

    def over_an(head: str) -> float:
        baseline = baselines.get((head, row.labels), baselines.get((head, 'single')))
        return math.nan if baseline is None else (scores.test_map - baseline).mean()

    return BoardLine(
        loss=row.loss,
        head=row.head,
        labels=f'{row.labels}, {row.train_images} photos' if row.train_images else row.labels,
        lr=configs[0].lr if configs else math.nan,
        hparams=json.dumps(configs[0].hparams) if configs else '',
        val_map=scores.val_map.mean(),
        test_map=scores.test_map.mean(),
        sd=scores.test_map.std(),
        half=half_interval(scores.test_map),
        over_an=over_an(baseline_head(row.head)),
        over_plain_an=over_an('linear'),
        n=len(scores),
        test_map_observed=scores.test_map_observed.mean(),
        late=scores.late.mean(),
        exercised=scores.exercised.mean(),
        test_maps=scores.test_map.round(2).tolist(),
    )


def _scores_by_seed(configs: list[Config], runs: pd.DataFrame) -> pd.DataFrame:
    "The scores of finished runs, indexed by seed."
    scores = look_up_scores(configs, runs).set_axis([config.seed for config in configs])
    return scores.dropna(subset='test_map')


def all_method_rows() -> list[Row]:
    """Every method that needs no side information, on each of its heads; slow label-wise heads
    last.

    Returns:
        Rows for `run_search` and `summarize_final_runs`.
    """
    rows = [
        Row(name, head, 'full' if name == 'bce' else 'single')
        for name in names()
        if not find(name).side
        for head in find(name).heads or HEADS
    ]
    return sorted(rows, key=lambda row: row.head == 'labelwise')


def suite_rows(suite: str) -> list[Row]:
    """The rows of a suite's boards.

    Returns:
        `all_method_rows`, or if the suite names methods, each of these on its default head, with AN
        on the same heads.

    Raises:
        SpmlError: for another suite.
    """
    protocol = SUITES[require_one_of(suite, SUITES, 'suite')]
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
    """{data set: number of validation photos}."""
    file = packaged('spml_nb') / 'assets' / 'photos.csv'
    return pd.read_csv(file, index_col='name').val.to_dict()


def board_rows(suite: str, dataset: str) -> list[Row]:
    """`suite_rows`, and for frozen features a row that is trained on as many fully labelled photos
    as validation has: what the validation labels are worth.

    Args:
        suite, dataset: as in `search_configs`.
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
    """Train the missing runs of a suite, fast heads first, and write its boards.

    Args:
        suite: a key of `SUITES`.
        datasets: some of the suite's; empty: all of them.
        losses: some of its methods; empty: all of them.
        dry_run: only report how many runs are missing, and how long they take.
        tell: called with each line of progress.
        launch: engine, address and jobs, as in `run`.

    Returns:
        DataFrame as from `run_stages`.

    Raises:
        SpmlError: for another suite, data set or method, and as `run`.
    """
    rows = suite_rows(suite)
    methods = sorted({row.loss for row in rows})
    losses = {require_one_of(loss, methods, f'method of {suite}') for loss in losses} or methods
    datasets = [check_dataset(name, suite) for name in datasets or SUITES[suite]['datasets']]
    tables = []
    for labelwise, dataset in itertools.product((False, True), datasets):
        tell(f"{dataset}, {'label-wise head' if labelwise else 'all other heads'}:")
        trained = [
            row for row in rows if row.loss in losses and (row.head == 'labelwise') == labelwise
        ]
        table = run_search(trained, suite, dataset, None, dry_run=dry_run, tell=tell, **launch)
        tables.append(table)
        if dry_run:
            continue
        record.export_csv()
        write_board(suite, dataset, load_finished_runs(), tell)
        if (table.state == 'missing').any():
            break  # interrupted
    return pd.concat(tables, ignore_index=True)


def write_board(
    suite: str, dataset: str, runs: pd.DataFrame, tell: Callable[[str], None] = lambda line: None
) -> pd.DataFrame:
    """Write a board to `methods/NAME.csv`, `.md` and `_search.csv` in the setting
    `outputs`; nothing if no run is done.

    NAME is the data set, with the suffix `_finetune` for the suite `photos_finetune`.

    Args:
        suite, dataset: as in `search_configs`.
        runs: finished runs, as from `load_finished_runs`.
        tell: called with a line if the range of learning rates is too narrow.

    Returns:
        DataFrame as from `summarize_final_runs`, the best first, without rows that have no final
        run.

    Raises:
        SpmlError: if the files cannot be written.
    """
    rows = suite_rows(suite)
    board = summarize_final_runs(board_rows(suite, dataset), suite, dataset, runs).query('n > 0')
    board = board.sort_values('test_map', ascending=False, ignore_index=True, kind='stable')
    searches = pd.concat(
        [tabulate_search(row, suite, dataset, runs) for row in rows], ignore_index=True
    )
    at_ends = _chosen_at_ends(searches, suite)
    if at_ends:
        tell(
            f'{dataset}: the best rate is the lowest or highest tried for {at_ends}. Raise '
            f'`widened` by one and `draws` by two in the suite {suite!r} of '
            'spml_nb/sweeps/search.py. Then run the command again.'
        )
    if not len(board):
        return board
    searches = searches.dropna(subset='val_map')
    folder = settings.get_folder('outputs') / 'methods'
    name = dataset + suite.removeprefix('photos').removeprefix('mini')
    for stem, table in ((name, board), (f'{name}_search', searches)):
        rounded = table.round(4).assign(**table.filter(['lr']))
        text = rounded.to_csv(index=False, lineterminator='\n')
        files.write_atomically(folder / f'{stem}.csv', text)
    text = _page(board, suite, dataset, at_ends)
    files.write_atomically(folder / f'{name}.md', text)
    return board


def _chosen_at_ends(searches: pd.DataFrame, suite: str) -> str:
    "The rows whose best learning rate is the lowest or the highest tried, as text."
    ends = min(suite_rates(suite)), max(suite_rates(suite))
    chosen = searches[searches.chosen & searches.lr.isin(ends)]
    return ', '.join(
        f'{run.loss} ({run.head}, {run.labels}) {run.lr:g}' for run in chosen.itertuples()
    )


def _page(board: pd.DataFrame, suite: str, dataset: str, at_ends: str) -> str:
    "A board as Markdown, with an introduction that explains it."
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
    shown[numbers] += 0.0  # turns -0.0 into 0.0
    cells = shown.astype(object).where(shown.notna(), '')
    return f'{text}\n\n{files.markdown_table([[*cells], *cells.to_numpy().tolist()])}'


def write_boards(runs: pd.DataFrame):
    """Write the board of every data set that was searched on, as `write_board` does.

    Args:
        runs: finished runs, as from `load_finished_runs`.

    Raises:
        SpmlError: if the files cannot be written.
    """
    searched_on = set(runs.dataset[runs.seed == SEARCH_SEED]) if len(runs) else set()
    for suite, protocol in SUITES.items():
        for dataset in protocol['datasets']:
            if dataset in searched_on:
                write_board(suite, dataset, runs)
