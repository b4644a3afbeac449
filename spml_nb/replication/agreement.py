"""How far our gains agree with those that papers print, and papers with one another."""

import itertools
import math
from dataclasses import dataclass

import pandas as pd

from .. import statistics
from ..methods.core import find
from . import gains as all_gains
from . import published
from . import tables as papers
from .front_cells import METHODS, PANELS, FrontMethod
from .published import SUITE

# tables that have several methods beside AN of their own source: Cole et al., EM/APL, LAC
SOURCES = (('hml', '2'), ('em_apl', '1'), ('lac', '2'))


def gains_by_source(known: pd.DataFrame) -> pd.DataFrame:
    """What Cole et al., EM/APL and LAC print over their own AN, with our gain over the same row.

    Args:
        known: as from `tables.record`.

    Returns: DataFrame, a row for each number that a source prints of a method with single
        positives: source, loss, head, dataset, published and ours (points of mAP; NaN without runs,
        or where the method's mechanism did not act).

    Source: the papers' tables.
    """
    rows = []
    for paper, number in SOURCES:
        cells = published.index_cells(paper, number)
        for line in papers.table(paper, number, known).of(SUITE).itertuples():
            cell = cells[line.row, line.column]
            if line.uncounted or math.isnan(line.gain_published):
                continue
            if cell['config']['regime'] == 'linear_init':
                continue
            rows.append(
                {
                    'source': cell['source'],
                    'loss': cell['config']['loss'],
                    'head': cell['config'].get('head') or find(cell['config']['loss']).head,
                    'dataset': cell['dataset'],
                    'published': line.gain_published,
                    'ours': line.gain,
                }
            )
    # LAC copies Cole et al. too
    return pd.DataFrame(rows).drop_duplicates(['source', 'loss', 'dataset'])


def comparable_gains(measured: pd.DataFrame) -> pd.DataFrame:
    """The cells whose published gains enter means, counts and correlations.

    Args:
        measured: as from `front_gains`.

    Returns: those of methods that learn from single positives, whose mechanism acted in runs of
        two seeds or more, and whose baseline is AN of the same source.
    """
    ran = (measured.n > 1) & measured.exercised.eq(True) & measured.full.eq(False)
    return measured[ran & measured.uncounted.eq('') & measured.published.notna()]


def agreement_fields(agreed: dict) -> dict:
    """What templates name of `source_agreement`."""
    table = agreed['matrix']
    highest = [panel for panel, name in PANELS.items() if _is_highest(table, name)]
    return agreed | {
        'panels': PANELS,
        'photos_for': {name: published.find_stand_in(name, SUITE) for name in PANELS.values()},
        'highest_for': highest,
        'not_highest_for': [panel for panel in PANELS if panel not in highest],
        'uncounted': published.UNCOUNTED,
    }


def _is_highest(table: pd.DataFrame, dataset: str) -> bool:
    """Whether a published column ranks best with the photos that stand in for it."""
    photos = published.find_stand_in(dataset, SUITE)
    return photos in table and table.loc[dataset].idxmax() == photos


@dataclass(frozen=True)
class Agreement:
    """How far two lists of gains agree.

    Attributes:
        correlation: of their ranks within each source and data set, with the ends of its 95 %
            interval over methods.
        methods, cells: how many are in both.
        first, second: the mean gain in each, in points of mAP.
        apart: the mean distance of a cell from its counterpart.
    """

    correlation: tuple[float, float, float]
    methods: int
    cells: int
    first: float
    second: float
    apart: float


def measure_agreement(
    cells: pd.DataFrame, row: str, within: list[str], first: str, second: str
) -> Agreement | None:
    """How far two columns of gains agree.

    Args:
        cells: one gain a line, NaN where one is missing.
        row: the column that names the method.
        within: the columns that say which methods are ranked with each other.
        first, second: the columns of gains.

    Returns: None where fewer than three methods have both anywhere.
    """
    both = cells.dropna(subset=[first, second])
    correlation = _rank_correlation(both, row, within, first, second)
    if math.isnan(correlation[0]):
        return None
    return Agreement(
        correlation,
        both[row].nunique(),
        len(both),
        both[first].mean(),
        both[second].mean(),
        (both[first] - both[second]).abs().mean(),
    )


def _rank_correlation(
    both: pd.DataFrame, row: str, within: list[str], first: str, second: str
) -> tuple[float, float, float]:
    if not len(both):
        return (math.nan,) * 3
    wide = [both.pivot(index=row, columns=within, values=which) for which in (first, second)]
    return statistics.rank_correlation(*(each.to_numpy(float) for each in wide))


def source_agreement(measured: pd.DataFrame, sources: pd.DataFrame, boards: pd.DataFrame) -> dict:
    """How far our gains agree with the papers', and the papers with one another.

    Args:
        measured: as from `front_gains`.
        sources: as from `gains_by_source`.
        boards: as from `gains.gains_of_suites`.

    Returns: own (papers whose baseline is their own), sources (all that `SOURCES` print, each over
        its own AN), one_another (where two print the same method), each an `Agreement` or None;
        proposed and reprinted (how many published gains of the first lie in our interval, of the
        five papers' methods and of those that they compare with, each an `Inside`); pairs (of the
        first whose gain is over plain AN, a list of `Pair`); matrix (as from
        `front_agreement_matrix`).
    """
    counted = comparable_gains(measured)
    own = counted.method.isin([method.name for method in METHODS if method.own])
    over_plain = counted.method.isin([method.name for method in METHODS if _is_over_plain(method)])
    pairs = sources.merge(sources, on=['loss', 'dataset'], suffixes=('', '_other'))
    pairs = pairs[pairs.source < pairs.source_other]
    return {
        'own': measure_agreement(counted, 'method', ['panel'], 'published', 'like'),
        'sources': measure_agreement(sources, 'loss', ['source', 'dataset'], 'published', 'ours'),
        'one_another': measure_agreement(
            pairs,
            'loss',
            ['source', 'source_other', 'dataset'],
            'published',
            'published_other',
        ),
        'proposed': _count_inside(counted[own]),
        'pairs': _compare_orders(counted[own & over_plain]),
        'reprinted': _count_inside(counted[~own]),
        'matrix': front_agreement_matrix(sources, boards),
    }


@dataclass(frozen=True)
class Inside:
    """How many published gains lie within the interval of ours.

    Attributes:
        methods: their names.
        cells: how many gains there are.
        inside, above, below: how many lie in our interval, above it and below it.
    """

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


@dataclass(frozen=True)
class Pair:
    """Two methods on the sets that both were run on.

    Attributes:
        first, second: their names.
        turned: on how many sets their published order is turned round in ours.
        sets: on how many both are printed and run.
    """

    first: str
    second: str
    turned: int
    sets: int


def _is_over_plain(method: FrontMethod) -> bool:
    return method.plain or find(method.loss).head == 'linear'


def _compare_orders(cells: pd.DataFrame) -> list[Pair]:
    published = cells.pivot(index='panel', columns='method', values='published')
    ours = cells.pivot(index='panel', columns='method', values='like')
    pairs = []
    for first, second in itertools.combinations(published, 2):
        before = (published[first] - published[second]).dropna()
        after = (ours[first] - ours[second]).loc[before.index]
        pairs.append(Pair(first, second, int((before * after < 0).sum()), len(before)))
    return pairs


def empty_agreement() -> dict:
    """`source_agreement` without runs."""
    nothing = dict.fromkeys(('own', 'sources', 'one_another'))
    counts = dict.fromkeys(('proposed', 'reprinted'), Inside((), 0, 0, 0, 0))
    return nothing | counts | {'matrix': pd.DataFrame(), 'pairs': []}


def front_agreement_matrix(sources: pd.DataFrame, boards: pd.DataFrame) -> pd.DataFrame:
    """How each published column of gains ranks with our gains on each set of photos.

    Args:
        sources: as from `gains_by_source`.
        boards: as from `gains.gains_of_suites`.

    Returns: DataFrame of Spearman's correlations, the papers' data sets by our sets. All are over
        the same methods, ranked within each source: those whose mechanism acted on every set. Empty
        without any.
    """
    ours = boards[
        (boards.suite == SUITE)
        & (boards.choice == 'clean')
        & (boards.labels == 'single')
        & (boards.baseline == all_gains.SAME_HEAD)
        & boards.acted.eq(True)
    ]
    everywhere = ours.pivot(index=['loss', 'head'], columns='dataset', values='gain').dropna()
    both = sources.merge(everywhere.reset_index(), on=['loss', 'head'])
    if len(both) == 0:
        return pd.DataFrame()

    def correlation(dataset: str, photos: str) -> float:
        column = both[both.dataset == dataset]
        rho, *_ = _rank_correlation(column, 'loss', ['source'], 'published', photos)
        return rho

    return pd.DataFrame(
        {
            photos: {dataset: correlation(dataset, photos) for dataset in PANELS.values()}
            for photos in ours.dataset.unique()
        }
    )
