"""The top of README.md: what each method gains, published beside ours, as picture and table."""

import itertools
import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .. import drawing, statistics
from ..base import settings
from ..base.errors import SpmlError
from ..data.labels import FULL_PHOTOS
from ..methods.core import find
from ..statistics import Effect, Scores
from ..sweeps.search import Row
from . import board, clean_photos, more_photos, published, site, thresholds, without_clean
from . import gains as all_gains
from . import tables as papers
from .gains import mechanism_acted_in
from .published import SUITE
from .rendering import render_template
from .tables import cell_final_runs, plan_cell, read_measures, record

PANELS = {
    'VOC': 'voc12',
    'COCO': 'coco14',
    'NUS': 'nus',
    'CUB': 'cub',
}  # the papers' data; photos stand in for them


@dataclass(frozen=True)
class FrontMethod:
    """A line of the picture.

    Args:
        name: of the method.
        paper: where it is printed.
        table: its number.
        cells: {panel: (row, row of AN or BCE that the table prints, column)}.
        own: whether it is what the paper proposes.
        plain: whether the baseline of the paper has the linear head, not the method's own.
    """

    name: str
    paper: str
    table: str
    cells: dict[str, tuple[str, str, str]]
    own: bool = False
    plain: bool = False

    @property
    def source(self) -> str:
        """Who trained it: a paper's short name."""
        row, _, column = next(iter(self.cells.values()))
        return published.index_cells(self.paper, self.table)[row, column]['source']


def _in_all(columns: dict[str, str], row: str, baseline: str) -> dict:
    return {panel: (row, baseline, column) for panel, column in columns.items()}


_HML = {'VOC': 'VOC12', 'COCO': 'COCO', 'NUS': 'NUS', 'CUB': 'CUB'}
_SINGLE = {panel: f'Single Positive Labels / {column}' for panel, column in _HML.items()}
_LAC = {panel: f'LEM / {panel}' for panel in _HML}
_SAME = {panel: panel for panel in _HML}
_ONE = '1 P. & 0 N. / '
_TWO_WAY = {
    panel: (f'{name} / Ours', f'{name} / BCE', 'mAP@class / ResNet50')
    for panel, name in (('VOC', 'VOC2012'), ('COCO', 'MSCOCO'))
}
METHODS = (
    *[
        FrontMethod(name, 'hml', '2', _in_all(_HML, name, 'AN'))
        for name in ('WAN', 'LS', 'EPR', 'ROLE')
    ],
    FrontMethod('EM', 'em_apl', '1', _in_all(_SAME, 'EM', 'AN'), True),
    FrontMethod('EM+APL', 'em_apl', '1', _in_all(_SAME, 'EM+APL', 'AN'), True),
    FrontMethod('HML', 'hml', '4', _in_all(_SINGLE, 'HL + AL', 'neither'), True, plain=True),
    FrontMethod('LAC', 'lac', '2', _in_all(_LAC, 'Ours', 'L_AN'), True),
    *[
        FrontMethod(name, 'opml', 'II', _in_all(_SAME, _ONE + name, f'{_ONE}BCE'))
        for name in ('LL-R', 'LL-Ct', 'LL-Cp')
    ],
    FrontMethod('OPML', 'opml', 'II', _in_all(_SAME, f'{_ONE}OPML (Ours)', f'{_ONE}BCE'), True),
    FrontMethod(
        'OPML-SP', 'opml', 'II', _in_all(_SAME, f'{_ONE}OPML-SP (Ours)', f'{_ONE}BCE'), True
    ),
    FrontMethod('Two-way*', 'two_way', '7', _TWO_WAY, True),
)


def front_gains(known: pd.DataFrame) -> pd.DataFrame:
    """What every method gains over its baselines.

    Args:
        known: as from `tables.record`.

    Returns: DataFrame, one row per method and panel: method, panel, published (points of mAP over
        `published.gain_baseline`, NaN where the paper has none), uncounted (as from
        `published.explain_uncounted`), ours (over AN on the same head; Two-way: over weighted BCE;
        where the paper's file names another baseline, over that one), half (half its 95 % interval
        over seeds and test images), n (seeds of both, -1 where there is no such cell), plain (over
        plain AN; Two-way: over plain BCE), like and like_half (the one of both that the published
        gain is), exercised (whether the method's own mechanism acted), effect and beside (like and
        plain as a `statistics.Effect`, NaN without such a cell), full (whether all labels are
        known).

    Source: the papers' tables.
    """
    return pd.DataFrame(
        [
            {'method': method.name, 'panel': panel, **_gain(method, panel, known)}
            for method in METHODS
            for panel in PANELS
        ]
    )


def _gain(method: FrontMethod, panel: str, known: pd.DataFrame) -> dict:
    if panel not in method.cells:
        return {'n': -1, 'full': False, 'uncounted': ''}
    row, baseline, column = method.cells[panel]
    cells = published.index_cells(method.paper, method.table)
    cell, printed = cells[row, column], cells[baseline, column]
    base = published.gain_baseline(cell, []) if cell['baseline'] else printed
    config = cell['config']
    full = config.get('labels') == 'full'
    head = config.get('head') or find(config['loss']).head
    scores, exercised = _scores(cell, {}, known)
    same, _ = _scores(cell, {'loss': 'wbce' if full else 'an', 'head': head}, known)
    plain, _ = _scores(cell, {'loss': 'bce' if full else 'an', 'head': 'linear'}, known)
    named = _scores(base, {}, known)[0] if cell['baseline'] else same
    over, beside = all_gains.estimate_gain(scores, named), all_gains.estimate_gain(scores, plain)
    like = beside if method.plain else over
    return {
        'published': cell['mean'] - base['mean'],
        'uncounted': published.explain_uncounted(cell, base),
        'ours': over.mean,
        'half': over.half_width,
        'n': over.seeds,
        'plain': beside.mean,
        'like': like.mean,
        'like_half': like.half_width,
        'exercised': exercised,
        'effect': like,
        'beside': beside,
        'full': full,
    }


def _scores(cell: dict, changes: dict, known: pd.DataFrame) -> tuple[Scores, bool]:
    "(scores, exercised) of a cell's runs, or of those of another method in its place."
    if changes:
        config = published.merge_mappings(cell['config'], {'hparams': None}, changes)
        cell = cell | {'config': config}
    configs = cell_final_runs(plan_cell(cell, SUITE), known)
    return read_measures(configs, cell['metric'], known), mechanism_acted_in(configs, known)


def draw_front(measured: pd.DataFrame) -> bytes:
    """The picture as SVG, the same bytes for the same numbers. Args: measured: as from
    `front_gains`."""
    return drawing.to_svg(lambda: _picture(measured), bbox_inches='tight')


def _picture(measured: pd.DataFrame) -> Figure:
    heights = _heights()
    figure, (axes,) = drawing.make_axes(1, len(PANELS), 1.75, 0.23 * heights[-1])
    for ax, (panel, dataset) in zip(axes, PANELS.items(), strict=True):
        cells = measured[measured.panel == panel]
        _panel(ax, cells, heights)
        ax.set_title(f'{panel}\n({published.find_stand_in(dataset, SUITE)})')
    half = measured.like_half.fillna(0)
    ends = [measured.published, measured.plain, measured.like - half, measured.like + half]
    ends = pd.concat(ends)
    for ax in axes:
        ax.set_xlim(min(ends.min(), 0) - 1, max(ends.max(), 0) + 1)
    _name_methods(axes[0], measured[measured.panel == next(iter(PANELS))], heights)
    figure.supxlabel(
        f"points of mAP over the source's own AN ({published.UNCOUNTED}: over its ZLPR, since it "
        'has no AN; *: all labels known, over BCE)',
        fontsize=8,
    )
    figure.text(0.5, -0.02, site.describe_protocol(SUITE), ha='center', va='top', fontsize=6)
    figure.legend(*axes[0].get_legend_handles_labels(), loc='outside upper right', ncols=3)
    return figure


def _heights() -> np.ndarray:
    """Where each method stands: those of a source together, below its name."""
    begins = [method.source != before.source for before, method in pairwise(METHODS)]
    return 1 + np.cumsum([0, *np.where(begins, 2, 1)])


def _name_methods(ax, cells: pd.DataFrame, heights: np.ndarray):
    names = [
        f'{name}{published.UNCOUNTED}' if uncounted else name
        for name, uncounted in zip(cells.method, cells.uncounted, strict=True)
    ]
    ax.set_yticks(heights, names)
    for label, method in zip(ax.get_yticklabels(), METHODS, strict=True):
        label.set_fontweight('bold' if method.own else 'normal')
    left = {'transform': ax.get_yaxis_transform(), 'ha': 'right', 'va': 'center'}
    first = {method.source: y for y, method in reversed([*zip(heights, METHODS, strict=True)])}
    for source, y in first.items():
        ax.text(-0.03, y - 1, source, fontsize=6.5, fontstyle='italic', color='#555555', **left)


APART = 0.2  # of what is published above its row, and of ours below


def _panel(ax, cells: pd.DataFrame, heights: np.ndarray):
    """A row a method: what is published, and below it ours over the same baseline, with its
    interval, and over plain AN.
    """
    acted = ~cells.exercised.eq(False)
    ours = cells.like.where(acted)
    low, high = ours - cells.like_half, ours + cells.like_half
    plain = cells.plain.where(acted & ~np.isclose(cells.plain, cells.like))
    ring = {'markerfacecolor': 'white', 'markeredgecolor': 'black'}
    ax.axvline(0, color='#999999', linewidth=0.8)
    ax.hlines(heights + APART, low, high, color=drawing.INK[0], linewidth=2.5, alpha=0.35)
    for marks, y, shape, label, style in (
        (cells.published, heights - APART, 'o', 'published', ring),
        (ours, heights + APART, 'o', 'ours, with 95 % interval', {'color': drawing.INK[0]}),
        (plain, heights + APART, 'x', 'ours over plain AN or BCE', {'color': drawing.INK[1]}),
    ):
        ax.plot(marks, y, shape, label=label, **style)
    right = {'transform': ax.get_yaxis_transform(), 'ha': 'right', 'va': 'center'}
    for y, cell in zip(heights, cells.itertuples(), strict=True):
        text = _instead_of_ours(cell)
        ax.text(0.99, y + APART, text, fontsize=6, color='#555555', **right)
    ax.set_yticks(heights, [])
    ax.set_ylim(heights[-1] + 0.7, -0.5)
    ax.tick_params(axis='y', length=0)
    ax.grid(axis='x', alpha=0.3)


def _instead_of_ours(cell) -> str:
    """What stands where a method has no mark of ours."""
    if cell.n < 0:
        return '–'
    if cell.n == 0:
        return 'missing'
    return 'not exercised' if cell.exercised is False else ''


def method_levels(measured: pd.DataFrame) -> dict[tuple[str, str], dict[str, Scores]]:
    """Test mAP of every method that learns from single positives, in the picture or not, on each
    head it was given.

    Args:
        measured: as from `gains.gains_of_suites`.

    Returns: {(method, head): {set of photos: its scores}}, of the sets where its own mechanism
        acted in most runs.
    """
    return _by_method(measured, 'scores')


def method_micro_f1(measured: pd.DataFrame) -> dict[tuple[str, str], dict[str, float]]:
    """As `method_levels`, of micro-F1 in percent, with the threshold that clean validation labels
    choose.
    """
    return _by_method(measured, 'micro_f1')


def _by_method(measured: pd.DataFrame, column: str) -> dict[tuple[str, str], dict]:
    chosen = measured[
        (measured.suite == SUITE)
        & (measured.choice == 'clean')
        & (measured.labels == 'single')
        & (measured.baseline == all_gains.PLAIN_HEAD)
        & measured.acted.eq(True)
        & (measured.n > 1)
    ]
    rows = zip(chosen.loss, chosen['head'], chosen.dataset, chosen[column], strict=True)
    by_method = {}
    for loss, head, dataset, value in rows:
        by_method.setdefault((loss, head), {})[dataset] = value
    return by_method


@dataclass(frozen=True)
class Leader:
    """The method that gains most over plain AN on average.

    Attributes:
        name: of the method.
        head: that it was given.
        gain: over AN with a linear head, the mean over all sets of photos.
        second: the next one with runs on all sets, '' without any, with a remark where it names
            labels far worse.
        lead: over that one; None without any.
        rivals: methods with runs on fewer sets, at least half of them, that are not told apart from
            it there, with such a remark.
    """

    name: str
    head: str
    gain: Effect
    second: str
    lead: Effect | None
    rivals: tuple[str, ...]


# whose gains the front page shows by the number of photos
BY_PHOTOS = Row('hml', 'cosine'), Row('em', 'linear'), Row('llr', 'linear')


@dataclass(frozen=True)
class Leaders:
    """What the levels of all methods say.

    Attributes:
        sets: how many sets of photos.
        top: the method with the highest mean.
        due_to_head: what AN gains by the head of that method; None where that is a linear one.
        linear: the one with the highest mean on a linear head.
        above, below, open: names of the methods that are above AN on the same head, below it, and
            not told apart from it, each on its own head.
    """

    sets: int
    top: Leader
    due_to_head: Effect | None
    linear: Leader | None
    above: tuple[str, ...]
    below: tuple[str, ...]
    open: tuple[str, ...]


_PLAIN = ('an', 'linear')


FAR_BELOW = 5.0  # points of micro-F1: what ranks as well, and yet names worse


def leaders(levels: dict, micro_f1: dict | None = None) -> Leaders | None:
    """Which method gains most, and what its head has to do with it.

    Args:
        levels: as from `method_levels`.
        micro_f1: as from `method_micro_f1`.

    Returns: None without a method that has runs on every set of plain AN.
    """
    sets = set(levels.get(_PLAIN, ()))
    everywhere = [row for row in levels if sets <= set(levels[row]) and row[0] != 'an']
    if not (sets and everywhere):
        return None
    everywhere.sort(key=lambda row: -_lead(levels, row, _PLAIN).mean)
    top = _leader(everywhere, levels, micro_f1 or {})
    linear = [row for row in everywhere if row[1] == 'linear']
    of_head = ('an', top.head)
    decided = {'above': [], 'below': [], 'open': []}
    for loss, head in everywhere:
        if head == find(loss).head and ('an', head) in levels:
            effect = _lead(levels, (loss, head), ('an', head))
            word = 'above' if effect.low > 0 else 'below' if effect.high < 0 else 'open'
            decided[word].append(_name(loss, head))
    return Leaders(
        sets=len(sets),
        top=top,
        due_to_head=_lead(levels, of_head, _PLAIN)
        if of_head in levels and of_head != _PLAIN
        else None,
        linear=_leader(linear, levels, micro_f1 or {}) if linear else None,
        **{word: tuple(names) for word, names in decided.items()},
    )


def _leader(order: list, levels: dict, micro_f1: dict) -> Leader:
    first, *others = order
    second = next((row for row in others if row[0] != first[0]), None)
    fewer = [
        row
        for row in levels
        if row[0] not in ('an', first[0])
        and row not in order
        and row[1] in {head for _, head in order}
        and len(levels[first]) / 2 <= len(levels[row]) < len(levels[first])
    ]
    return Leader(
        name=_name(*first),
        head=first[1],
        gain=_lead(levels, first, _PLAIN),
        second=_name(*second) + _remark_on_names(second, first, micro_f1) if second else '',
        lead=_lead(levels, first, second) if second else None,
        rivals=tuple(
            _name(*row) + _remark_on_names(row, first, micro_f1)
            for row in fewer
            if _lead(levels, first, row).low <= 0
        ),
    )


def _remark_on_names(row: tuple, first: tuple, micro_f1: dict) -> str:
    """The end of a rival's name, where its micro-F1 is far below, in the mean over common sets."""
    own, theirs = micro_f1.get(row, {}), micro_f1.get(first, {})
    below = [theirs[dataset] - own[dataset] for dataset in own if dataset in theirs]
    if not below or not np.mean(below) >= FAR_BELOW:
        return ''
    return f' – {np.mean(below):.1f} points of micro-F1 below it'


def _lead(levels: dict, one: tuple, other: tuple) -> Effect:
    """What one gains over another, the mean over the sets that both have."""
    return statistics.pool_effects(
        [
            all_gains.estimate_gain(scores, levels[other][dataset])
            for dataset, scores in levels[one].items()
            if dataset in levels[other]
        ]
    )


def _name(loss: str, head: str) -> str:
    name = board.describe_method(loss)['name']
    return name if head == find(loss).head else f'{name} on the {head} head'


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


def front_findings(
    leading: Leaders | None,
    agreed: dict,
    observed: dict | None = None,
    uses: dict | None = None,
    by_size: dict | None = None,
    by_photos: Effect | None = None,
) -> str:
    """What the gains say.

    Args:
        leading: as from `leaders`.
        agreed: as from `source_agreement`.
        observed: as from `without_clean.of_record`.
        uses: as from `clean_photos.average_uses`.
        by_size: as from `more_photos.compare_sizes`.
        by_photos: as from `thresholds.estimate_gain_of_photos`, of `FULL_PHOTOS`.

    Returns:
        Markdown: a list, one question a point, '' without runs.
    """
    if leading is None:
        return ''
    fields = agreement_fields(agreed)
    rows = observed['rows'][:2] if observed else []
    return render_template(
        'findings.md',
        leading=leading,
        observed=[
            (board.describe_method(row['loss'])['name'], *row['effects'][:2]) for row in rows
        ],
        uses=[(board.describe_method(loss)['name'], use) for loss, use in (uses or {}).items()],
        seeds_observed=observed['seeds'] if rows else 0,
        by_size=by_size or {},
        by_photos=by_photos,
        first_photos=FULL_PHOTOS,
        **fields,
    )


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
    return method.plain or find(_loss_of(method)).head == 'linear'


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


BEGIN, END = '<!-- front:begin -->', '<!-- front:end -->'


def format_front_table(measured: pd.DataFrame) -> str:
    """The small table: what each paper's own method gains on the mean. Args: measured: as from
    `front_gains`. Returns: Markdown.
    """
    return render_template(
        'front_table.md',
        rows=[
            {
                'method': method.name,
                'paper': published.read_paper(method.paper)['short'],
                'table': method.table,
                'published': cells.published.mean(),
                'uncounted': published.UNCOUNTED if cells.uncounted.any() else '',
                'ours': _mean_gain(cells, 'effect'),
                'beside': '–' if cells.full.any() else _mean_gain(cells, 'beside'),
            }
            for method, cells in _cells_of_own(measured)
        ],
    )


def _cells_of_own(measured: pd.DataFrame) -> list[tuple[FrontMethod, pd.DataFrame]]:
    """What each paper proposes, with the sets that it is printed for."""
    printed = measured[measured.n >= 0]
    every = [(method, printed[printed.method == method.name]) for method in METHODS if method.own]
    return [(method, cells) for method, cells in every if len(cells)]


def _mean_gain(cells: pd.DataFrame, which: str) -> Effect | str:
    """The mean over sets of a column of effects, or a word where it did not act or run on one."""
    if (cells.n < 2).any():
        return 'missing'
    if not cells.exercised.all():
        return 'not exercised'
    return statistics.pool_effects(list(cells[which]))


def format_front(
    measured: pd.DataFrame,
    boards: pd.DataFrame,
    agreed: dict,
    picture: str,
    observed: dict | None = None,
    uses: dict | None = None,
    by_size: dict | None = None,
    by_photos: Effect | None = None,
) -> str:
    """What README.md shows between the marks.

    Args:
        measured: as from `front_gains`.
        boards: as from `all_gains.gains_of_suites`.
        agreed: as from `source_agreement`.
        picture: its address.
        observed: as from `without_clean.of_record`.
        uses: as from `clean_photos.average_uses`.
        by_size: as from `more_photos.compare_sizes`.
        by_photos: as in `front_findings`.

    Returns: Markdown, with the marks.
    """
    wanted = measured[measured.n >= 0]
    text = render_template(
        'front.md',
        findings=front_findings(
            leaders(method_levels(boards), method_micro_f1(boards)),
            agreed,
            observed,
            uses,
            by_size,
            by_photos,
        ),
        picture=picture,
        uncounted=published.UNCOUNTED,
        missing=(wanted.n == 0).sum(),
        cells=len(wanted),
        table=format_front_table(measured),
        panels=len(PANELS),
        not_exercised=[
            method.name
            for method, cells in _cells_of_own(measured)
            if _mean_gain(cells, 'effect') == 'not exercised'
        ],
        heads={m.name: find(_loss_of(m)).head for m in METHODS if m.own and not m.plain},
    )
    return f'{BEGIN}\n{text}{END}'


def _loss_of(method: FrontMethod) -> str:
    row, _, column = next(iter(method.cells.values()))
    return published.index_cells(method.paper, method.table)[row, column]['config']['loss']


def write_front(root: Path | None = None, boards: pd.DataFrame | None = None) -> list[Path]:
    """Make `outputs/front.svg`, and the part of README.md between the marks.

    Args:
        root: the folder that has README.md and outputs/, unset: where the setting `outputs` lies. A
            folder without README.md, or with one that has no marks, gets the picture alone.
        boards: as from `gains.gains_of_suites`, unset: that.

    Returns: the files that changed.

    Raises:
        SpmlError: for a damaged table of record, a file that cannot be written, or marks that do
            not enclose one part (then nothing changes).
    """
    outputs = settings.path('outputs') if root is None else Path(root) / 'outputs'
    readme = outputs.parent / 'README.md'
    enclosing = split_at_marks(readme)
    known = record(outputs / 'runs.csv')
    measured = front_gains(known)
    texts = {outputs / 'front.svg': draw_front(measured).decode()}
    if enclosing:
        boards = all_gains.gains_of_suites(known, [SUITE]) if boards is None else boards
        agreed = source_agreement(measured, gains_by_source(known), boards)
        observed = without_clean.of_record()
        uses = clean_photos.average_uses(known)
        picture = f'{outputs.name}/front.svg'
        by_size = more_photos.compare_sizes(more_photos.measure_gains(known), BY_PHOTOS)
        first = thresholds.estimate_gain_of_photos(FULL_PHOTOS)
        text = format_front(measured, boards, agreed, picture, observed, uses, by_size, first)
        texts[readme] = text.join(enclosing)
    return site.write_changed(texts)


def split_at_marks(readme: Path, begin: str = BEGIN, end: str = END) -> tuple[str, str] | None:
    """The text before and behind two marks.

    Args:
        readme: the file.
        begin, end: the marks.

    Returns: both texts; None where there are no marks, or no file.

    Raises:
        SpmlError: for marks that do not enclose one part.
    """
    text = readme.read_text(encoding='utf-8') if readme.is_file() else ''
    counts = text.count(begin), text.count(end)
    if counts == (0, 0):
        return None
    if counts != (1, 1) or text.index(end) < text.index(begin):
        raise SpmlError(
            f'{readme} has {begin} {counts[0]} times and {end} {counts[1]} times; needed: each '
            'once, in this order, around the part that is written anew. Put them back; the file '
            'stays as it is.'
        )
    return text.partition(begin)[0], text.partition(end)[2]
