"""The agreement of our gains with the printed ones, and of papers with each other."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from .. import statistics
from ..methods.core import find
from ..statistics import format_signed
from . import gains as all_gains
from . import published
from . import tables as papers
from .published import ORIGINAL_SETS, PHOTOS_SUITE

# (paper, table) with several methods and AN of the same source: Cole et al., EM/APL, LAC
_SOURCES = (('hml', '2'), ('em_apl', '1'), ('lac', '2'))


def gains_by_source(runs: pd.DataFrame) -> pd.DataFrame:
    """The gains over their own AN that Cole et al., EM/APL and LAC print, with ours.

    Args:
        runs: The table of record.

    Returns:
        DataFrame, one row per printed number of a method with single positives: source, loss, head,
        dataset, published and ours (points of mAP; NaN without runs, or if the method's mechanism
        did not act).

    Source: the papers' tables.
    """
    rows = []
    for paper, number in _SOURCES:
        cells = published.index_cells(paper, number)
        for gain in papers.table(paper, number, runs).of(PHOTOS_SUITE).itertuples():
            cell = cells[gain.row, gain.column]
            if gain.uncounted or math.isnan(gain.gain_published):
                continue
            if cell['config']['regime'] == 'linear_init':
                continue
            rows.append(
                {
                    'source': cell['source'],
                    'loss': cell['config']['loss'],
                    'head': cell['config'].get('head') or find(cell['config']['loss']).head,
                    'dataset': cell['dataset'],
                    'published': gain.gain_published,
                    'ours': gain.gain,
                }
            )
    # LAC copies the numbers of Cole et al. too
    return pd.DataFrame(rows).drop_duplicates(['source', 'loss', 'dataset'])


def _select_comparable_gains(measured: pd.DataFrame) -> pd.DataFrame:
    """The rows of `front_page.front_gains` that enter means, counts and correlations: methods that
    learn from single positives, whose mechanism acted, with two seeds or more, printed with AN of
    the same source.
    """
    ran = (measured.n > 1) & measured.exercised.eq(True) & measured.full.eq(False)
    return measured[ran & measured.uncounted.eq('') & measured.published.notna()]


def agreement_fields(agreed: dict) -> dict:
    """The fields of the templates, from `source_agreement`."""
    matrix = agreed['matrix']
    highest = [panel for panel, name in ORIGINAL_SETS.items() if _is_highest(matrix, name)]
    return agreed | {
        'panels': ORIGINAL_SETS,
        'photos_for': {
            name: published.find_stand_in(name, PHOTOS_SUITE) for name in ORIGINAL_SETS.values()
        },
        'highest_for': highest,
        'not_highest_for': [panel for panel in ORIGINAL_SETS if panel not in highest],
        'uncounted': published.UNCOUNTED,
    }


def _is_highest(matrix: pd.DataFrame, dataset: str) -> bool:
    """Whether a published data set correlates best with the photo set that stands in for it."""
    photos = published.find_stand_in(dataset, PHOTOS_SUITE)
    return photos in matrix and matrix.loc[dataset].idxmax() == photos


@dataclass(frozen=True)
class Agreement:
    """The agreement of two lists of gains.

    Attributes:
        correlation: Of ranks within each source and data set, with its 95 % interval over methods.
        methods, cells: Numbers of methods and of gains that are in both.
        first, second: Mean gain in each, in points of mAP.
        apart: Mean distance of a gain from its counterpart.
    """

    correlation: tuple[float, float, float]
    methods: int
    cells: int
    first: float
    second: float
    apart: float


def _measure_agreement(
    cells: pd.DataFrame, method: str, within: list[str], first: str, second: str
) -> Agreement | None:
    """The agreement of two columns of gains.

    Args:
        cells: One gain a row, NaN if missing.
        method: The column that names the method.
        within: The columns that tell which methods are ranked with each other.
        first, second: The columns of gains.

    Returns:
        None if there are fewer than three methods with both anywhere.
    """
    complete = cells.dropna(subset=[first, second])
    correlation = _rank_correlation(complete, method, within, first, second)
    if math.isnan(correlation[0]):
        return None
    return Agreement(
        correlation,
        complete[method].nunique(),
        len(complete),
        complete[first].mean(),
        complete[second].mean(),
        (complete[first] - complete[second]).abs().mean(),
    )


def _rank_correlation(
    cells: pd.DataFrame, method: str, within: list[str], first: str, second: str
) -> tuple[float, float, float]:
    if not len(cells):
        return (math.nan,) * 3
    wide = [cells.pivot(index=method, columns=within, values=name) for name in (first, second)]
    return statistics.rank_correlation(*(table.to_numpy(float) for table in wide))


def source_agreement(measured: pd.DataFrame, sources: pd.DataFrame, boards: pd.DataFrame) -> dict:
    """The agreement of our gains with the papers', and of papers with each other.

    Args:
        measured: As from `front_page.front_gains`.
        sources: As from `gains_by_source`.
        boards: As from `gains.gains_of_suites`.

    Returns:
        Dict with

        - `Agreement`s or None: own (all papers, over their own baselines), sources (all that
          `_SOURCES` print over their own AN), one_another (methods that two sources print)
        - apart_by_head: {whether both papers have the method on the same head: (number of these
          gains, their mean distance)}
        - `Inside`s: proposed and reprinted, of the papers' own methods and of those that they
          compare with
        - matrix: as from `_agreement_matrix`
    """
    counted = _select_comparable_gains(measured)
    pairs = sources.merge(sources, on=['loss', 'dataset'], suffixes=('', '_other'))
    pairs = pairs[pairs.source < pairs.source_other].dropna(subset=['published'])
    apart = (pairs.published - pairs.published_other).abs()
    by_head = apart.groupby(pairs['head'] == pairs['head_other'])
    return {
        'own': _measure_agreement(counted, 'method', ['panel'], 'published', 'like'),
        'sources': _measure_agreement(sources, 'loss', ['source', 'dataset'], 'published', 'ours'),
        'one_another': _measure_agreement(
            pairs, 'loss', ['source', 'source_other', 'dataset'], 'published', 'published_other'
        ),
        'apart_by_head': {bool(same): (len(of_head), of_head.mean()) for same, of_head in by_head},
        'proposed': _count_inside(counted[counted.own]),
        'reprinted': _count_inside(counted[~counted.own]),
        'matrix': _agreement_matrix(sources, boards),
    }


@dataclass(frozen=True)
class Inside:
    """Numbers of published gains in all, within the interval of ours, above it and below it."""

    methods: tuple[str, ...]
    cells: int
    inside: int
    above: int
    below: int


def _count_inside(cells: pd.DataFrame) -> Inside:
    above = int((cells.published > cells.like + cells.like_half).sum())
    below = int((cells.published < cells.like - cells.like_half).sum())
    return Inside(
        tuple(cells.method.unique()), len(cells), len(cells) - above - below, above, below
    )


def empty_agreement() -> dict:
    """`source_agreement` without runs."""
    nothing = dict.fromkeys(('own', 'sources', 'one_another'))
    counts = dict.fromkeys(('proposed', 'reprinted'), Inside((), 0, 0, 0, 0))
    return nothing | counts | {'matrix': pd.DataFrame(), 'apart_by_head': {}}


def _agreement_matrix(sources: pd.DataFrame, boards: pd.DataFrame) -> pd.DataFrame:
    """Spearman correlations of published gains on each data set with our gains on each photo set.

    Args:
        sources: As from `gains_by_source`.
        boards: As from `gains.gains_of_suites`.

    Returns:
        DataFrame, the papers' data sets by our photo sets, empty without gains. All are over the
        same methods, those whose mechanism acted on every set, ranked within each source.
    """
    ours = all_gains.select_clean_choice(boards, all_gains.SAME_HEAD)
    ours = ours[ours.acted.eq(True) & (ours.labels == 'single')]
    on_all_sets = ours.pivot(index=['loss', 'head'], columns='dataset', values='gain').dropna()
    merged = sources.merge(on_all_sets.reset_index(), on=['loss', 'head'])
    if merged.empty:
        return pd.DataFrame()

    def correlation(dataset: str, photos: str) -> float:
        of_dataset = merged[merged.dataset == dataset]
        rho, *_ = _rank_correlation(of_dataset, 'loss', ['source'], 'published', photos)
        return rho

    return pd.DataFrame(
        {
            photos: {dataset: correlation(dataset, photos) for dataset in ORIGINAL_SETS.values()}
            for photos in ours.dataset.unique()
        }
    )


def comparable_cells(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells of a table whose order is meaningful.

    Left out are cells without runs or whose mechanism did not act, rows that learn from other
    labels than most of their column, and, in each column, runs that a row above has too.

    Args:
        cells: Of a suite, as in `tables.Table.cells` or its CSV file.
    """
    cells = cells[~cells.state.isin(['none', 'not exercised'])]
    usual = cells.groupby('column').labels.transform(lambda labels: labels.mode()[0])
    cells = cells[cells.labels == usual]
    # the CSV files of `outputs/` have no names of runs
    runs = 'runs' if 'runs' in cells else 'seeds'
    return cells[(cells[runs] == '{}') | ~cells.duplicated(['column', 'metric', runs])]


def describe_ranking(cells: pd.DataFrame) -> str:
    """The rank correlation of the paper's numbers and ours, pooled over the columns of a table.

    Args:
        cells: Of a suite, as in `tables.Table.cells`; only the `comparable_cells` count, and of
            these only what the paper compares in one set-up.

    Returns:
        A sentence, '' if no column has five methods with both numbers.
    """
    counted = cells[cells.uncounted.fillna('') == '']
    ranked = _methods_by_column(comparable_cells(counted)).pivot_table(
        ['published', 'ours'], 'method', 'ranked_in', sort=False, dropna=False
    )
    if ranked.empty:
        return ''
    published, ours = ranked['published'], ranked['ours']
    most = (published + ours).notna().sum().max()
    if most < 5:
        return ''
    correlation = statistics.rank_correlation(
        published.to_numpy(float), ours.to_numpy(float), repeats=300
    )
    if np.isnan(correlation[0]):
        return ''
    rho, low, high = (format_signed(value, '+.2f') for value in correlation)
    interval = f'; {most} are too few for an interval'
    if most > 7:
        interval = f', 95 % interval {low} to {high}'
    return f'Rank correlation of paper and ours, all columns together: {rho}{interval}.'


def _methods_by_column(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells with the columns `method` and `ranked_in`, the group that it is ranked in."""
    if cells.groupby('column').metric.nunique().max() > 1:  # rows are measures, columns methods
        return cells.assign(method=cells.column, ranked_in=cells.row)
    if cells.groupby('column').dataset.nunique().max() > 1:  # rows are 'data set / method'
        return cells.assign(
            method=cells['row'].str.rpartition(' / ')[2],
            ranked_in=cells.column + cells['row'].str.partition(' / ')[0],
        )
    return cells.assign(method=cells['row'], ranked_in=cells.column)
