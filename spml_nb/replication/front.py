"""The top of README.md: what each method gains, published beside ours, as picture and table."""

import math
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ..base import files, settings
from ..base.errors import SpmlError
from ..methods.core import find
from ..sweeps.search import head_of_an
from . import board, drawing, published, site, statistics
from . import gains as all_gains
from . import tables as papers
from .gains import any_acted
from .published import SUITE
from .site import escape
from .statistics import Scores, Verdict, signed
from .tables import finals, plan, record, values

PANELS = {
    'VOC': 'voc12',
    'COCO': 'coco14',
    'NUS': 'nus',
    'CUB': 'cub',
}  # the papers' data; photos stand in for them


@dataclass(frozen=True)
class Method:
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
    *[Method(name, 'hml', '2', _in_all(_HML, name, 'AN')) for name in ('WAN', 'LS', 'EPR', 'ROLE')],
    *[
        Method(name, 'opml', 'II', _in_all(_SAME, _ONE + name, f'{_ONE}BCE'))
        for name in ('LL-R', 'LL-Ct', 'LL-Cp')
    ],
    Method('EM', 'em_apl', '1', _in_all(_SAME, 'EM', 'AN'), True),
    Method('EM+APL', 'em_apl', '1', _in_all(_SAME, 'EM+APL', 'AN'), True),
    Method('HML', 'hml', '4', _in_all(_SINGLE, 'HL + AL', 'neither'), True, plain=True),
    Method('LAC', 'lac', '2', _in_all(_LAC, 'Ours', 'L_AN'), True),
    Method('OPML', 'opml', 'II', _in_all(_SAME, f'{_ONE}OPML (Ours)', f'{_ONE}BCE'), True),
    Method('OPML-SP', 'opml', 'II', _in_all(_SAME, f'{_ONE}OPML-SP (Ours)', f'{_ONE}BCE'), True),
    Method('Two-way*', 'two_way', '7', _TWO_WAY, True),
)


def gains(known: pd.DataFrame) -> pd.DataFrame:
    """What every method gains over its baselines.

    Args:
        known: as from `tables.record`.

    Returns: DataFrame, one row per method and panel: method, panel, published (points of mAP over
        `published.baseline`, NaN where the paper has none), uncounted (as from
        `published.uncounted`), printed (over the row of AN or BCE that the table prints, whoever
        trained it), ours (over AN on the same head; Two-way: over weighted BCE; where the paper's
        file names another baseline, over that one), half (half its 95 % interval over seeds and
        test images), n (seeds of both, -1 where there is no such cell), plain and plain_half (over
        plain AN; Two-way: over plain BCE), like and like_half (the one of both that the published
        gain is), exercised (whether the method's own mechanism acted), our_base (mAP of plain AN
        or BCE, in percent), effect and beside (over AN on the same head and over plain AN as a
        `statistics.Effect`, None without such a cell), full (whether all labels are known).

    Source: the papers' tables.
    """
    return pd.DataFrame(
        [
            {'method': method.name, 'panel': panel, **_gain(method, panel, known)}
            for method in METHODS
            for panel in PANELS
        ]
    )


def _gain(method: Method, panel: str, known: pd.DataFrame) -> dict:
    if panel not in method.cells:
        return {'n': -1, 'effect': None, 'beside': None, 'full': False, 'uncounted': ''}
    row, baseline, column = method.cells[panel]
    cells = published.by_place(method.paper, method.table)
    cell, printed = cells[row, column], cells[baseline, column]
    base = published.baseline(cell, []) if cell['baseline'] else printed
    config = cell['config']
    full = config.get('labels') == 'full'
    head = config.get('head') or find(config['loss']).head
    scores, exercised = _scores(cell, {}, known)
    same, _ = _scores(cell, {'loss': 'wbce' if full else 'an', 'head': head}, known)
    plain, _ = _scores(cell, {'loss': 'bce' if full else 'an', 'head': 'linear'}, known)
    named = _scores(base, {}, known)[0] if cell['baseline'] else same
    over, beside = all_gains.gain(scores, named), all_gains.gain(scores, plain)
    like = beside if method.plain else over
    return {
        'published': cell['mean'] - base['mean'],
        'uncounted': published.uncounted(cell, base),
        'printed': cell['mean'] - printed['mean'],
        'our_base': plain.by_seed.mean(),
        'ours': over.mean,
        'half': over.half_width,
        'n': over.seeds,
        'plain': beside.mean,
        'plain_half': beside.half_width,
        'like': like.mean,
        'like_half': like.half_width,
        'exercised': exercised,
        'effect': all_gains.gain(scores, same),
        'beside': beside,
        'full': full,
    }


def _scores(cell: dict, changes: dict, known: pd.DataFrame) -> tuple[Scores, bool]:
    "(scores, exercised) of a cell's runs, or of those of another method in its place."
    if changes:
        config = published.merge(cell['config'], {'hparams': None}, changes)
        cell = cell | {'config': config}
    configs = finals(plan(cell, SUITE), known)
    return values(configs, cell['metric'], known), any_acted(configs, known)


def draw(measured: pd.DataFrame) -> bytes:
    """The picture.

    Args:
        measured: as from `gains`.

    Returns: SVG, the same bytes for the same numbers.
    """
    return drawing.to_svg(lambda: _picture(measured), bbox_inches='tight')


def _picture(measured: pd.DataFrame) -> Figure:
    figure, (axes,) = drawing.sheet(1, len(PANELS), 1.75, 3.3)
    for ax, panel in zip(axes, PANELS, strict=True):
        _panel(ax, measured[measured.panel == panel], axes[0] is ax)
        ax.set_title(f'{panel}\n({published.stand_in(PANELS[panel], SUITE)})')
    ends = pd.concat(
        [
            measured.published,
            measured.plain,
            measured.ours - measured.half.fillna(0),
            measured.ours + measured.half.fillna(0),
        ]
    )
    for ax in axes:
        ax.set_xlim(min(ends.min(), 0) - 1, max(ends.max(), 0) + 1)
    for label, method in zip(axes[0].get_yticklabels(), METHODS, strict=True):
        label.set_fontweight('bold' if method.own else 'normal')
    figure.supxlabel(
        'points of mAP over AN (*Two-way: all labels known, over BCE; '
        f'{published.UNCOUNTED}: over ZLPR of the same paper)',
        fontsize=8,
    )
    figure.text(0.5, -0.02, site.protocol(SUITE), ha='center', va='top', fontsize=6)
    figure.legend(*axes[0].get_legend_handles_labels(), loc='outside upper right', ncols=2)
    return figure


def _panel(ax, part: pd.DataFrame, first: bool):
    rows, both = range(len(part)), part[['published', 'ours']]
    ax.axvline(0, color='#999999', linewidth=0.8)
    ax.hlines(rows, both.min(axis=1), both.max(axis=1), color='#cccccc', linewidth=1)
    ax.hlines(
        rows,
        part.ours - part.half,
        part.ours + part.half,
        color=drawing.INK[0],
        linewidth=2.5,
        alpha=0.35,
    )
    ax.plot(
        part.plain, rows, 'x', color=drawing.INK[1], markersize=4, label='ours over plain AN or BCE'
    )
    ax.plot(
        part.published,
        rows,
        'o',
        markerfacecolor='white',
        markeredgecolor='black',
        label='published',
    )
    ax.plot(
        part.ours,
        rows,
        'o',
        color=drawing.INK[0],
        label='ours over the same head, with 95 % interval',
    )
    ax.plot(
        part.ours.mask(part.exercised.ne(False)),
        rows,
        'o',
        color='#b5b5b5',
        label='its mechanism not exercised',
    )
    grey = {
        'transform': ax.get_yaxis_transform(),
        'ha': 'left',
        'va': 'center',
        'fontsize': 6,
        'color': '#777777',
    }
    for y, n in enumerate(part.n):
        if n <= 0:
            ax.text(0.02, y, '–' if n else 'missing', **grey)
    ax.set_ylim(len(part) - 0.5, -0.5)
    marks = part.uncounted.ne('').map({True: published.UNCOUNTED, False: ''})
    ax.set_yticks(rows, part.method + marks if first else [])
    ax.tick_params(axis='y', length=0)
    ax.grid(axis='x', alpha=0.3)


_WORDS = {
    Verdict.REPRODUCED: 'above AN',
    Verdict.NOT_REPRODUCED: 'below it',
    Verdict.NO_DIFFERENCE: 'no different from it',
    Verdict.UNDECIDED: 'undecided',
}


def levels(measured: pd.DataFrame) -> dict[tuple[str, str], dict[str, Scores]]:
    """Test mAP of every method that learns from single positives, in the picture or not, on each
    head it was given.

    Args:
        measured: as from `gains.of_suites`.

    Returns: {(method, head): {set of photos: its scores}}, of those that have runs on all sets of
        the picture and whose own mechanism acted in most of them.
    """
    sets = {published.stand_in(dataset, SUITE) for dataset in PANELS.values()}
    chosen = measured[
        (measured.suite == SUITE)
        & (measured.choice == 'clean')
        & (measured.labels == 'single')
        & (measured.baseline == all_gains.PLAIN)
        & measured.dataset.isin(sets)
        & measured.acted.eq(True)
        & (measured.n > 1)
    ]
    by_method = {}
    for line in chosen.itertuples():
        by_method.setdefault((line.loss, line.head), {})[line.dataset] = line.scores
    return {method: scores for method, scores in by_method.items() if len(scores) == len(sets)}


# tables that have several methods beside AN of their own source: Cole et al., EM/APL, LAC
SOURCES = (('hml', '2'), ('em_apl', '1'), ('lac', '2'))


def by_source(known: pd.DataFrame) -> pd.DataFrame:
    """What Cole et al., EM/APL and LAC print over their own AN, with our gain over the same row.

    Args:
        known: as from `tables.record`.

    Returns: DataFrame, a row for each number that a source prints of a method with single
        positives: source, loss, dataset, published and ours (points of mAP; NaN without runs, or
        where the method's mechanism did not act).

    Source: the papers' tables.
    """
    rows = []
    for paper, number in SOURCES:
        cells = published.by_place(paper, number)
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
                    'dataset': cell['dataset'],
                    'published': line.gain_published,
                    'ours': line.gain,
                }
            )
    # LAC copies Cole et al. too
    return pd.DataFrame(rows).drop_duplicates(['source', 'loss', 'dataset'])


def comparable(measured: pd.DataFrame) -> pd.DataFrame:
    """The cells whose published gains enter means, counts and correlations.

    Args:
        measured: as from `gains`.

    Returns: those of methods that learn from single positives, whose mechanism acted in runs of
        two seeds or more, and whose baseline is AN of the same source.
    """
    ran = (measured.n > 1) & measured.exercised.eq(True) & measured.full.eq(False)
    return measured[ran & measured.uncounted.eq('') & measured.published.notna()]


def findings(measured: pd.DataFrame, levels: dict, sources: pd.DataFrame) -> str:
    """What the gains say.

    Args:
        measured: as from `gains`.
        levels: as from `levels`.
        sources: as from `by_source`.

    Returns: a list in Markdown, one question a point, on the methods that learn from single
        positives; '' without runs.
    """
    ran = measured[(measured.n > 1) & measured.exercised.eq(True) & measured.full.eq(False)]
    if not len(ran):
        return ''
    most = ran.groupby('method').size().max()  # a gain on one set is not set beside means of four
    decided = {
        name: statistics.decide(list(part.effect))
        for name, part in ran.groupby('method', sort=False)
        if len(part) == most
    }
    learning = measured[measured.full.eq(False) & (measured.n >= 0)].method.nunique()
    answers = {
        'Which is the highest?': _highest(levels),
        'Which are above AN?': _who(decided, learning, most),
        'Are the gains as large?': _beside(comparable(measured)),
        'Is the order the same?': _order(comparable(measured), ran, sources),
    }
    return '\n'.join(
        textwrap.fill(f'- **{question}** {text}', 140, subsequent_indent='  ')
        for question, text in answers.items()
        if text
    )


_PLAIN = ('an', 'linear')


def _highest(levels: dict) -> str:
    """The method with the highest mAP, what its head has to do with it, its lead, and the same with
    a linear head.
    """
    if _PLAIN not in levels:
        return ''
    over = {each: _lead(levels, each, _PLAIN) for each in levels if each != _PLAIN}
    order = sorted(over, key=lambda each: -over[each].mean)
    if not order:
        return ''
    top = order[0]
    linear = [each for each in order if each[1] == 'linear']
    methods = {loss for loss, _ in order} - {'an'}
    on_cosine = {loss for loss, head in order if head == 'cosine'} - {'an'}
    text = (
        f'Of {len(methods)} methods on {len(levels[top])} sets of photos, {len(on_cosine)} of them '
        f"on HML's cosine head too, {_name(*top)} has the highest mAP: {over[top]} over plain AN, "
        'the mean over these sets'
    )
    if same := over.get(('an', head_of_an(top[1]))):
        text += f'; {signed(same.mean)} of it is due to its head, as AN with that head shows'
    text += f'. {_ahead(levels, order)}'
    if linear and linear[0] != top:
        best = linear[0]
        text += f'With a linear head it is {_name(*best)}: {over[best]}. {_ahead(levels, linear)}'
    return text.strip()


def _ahead(levels: dict, order: list) -> str:
    "The lead of the first over the second. order: the highest first."
    if len(order) < 2:
        return ''
    lead = _lead(levels, *order[:2])
    apart = 'is' if lead.low > 0 else 'is not'
    return (
        f'The next, {_name(*order[1])}, is {lead.mean:.1f} ± {lead.half_width:.1f} below and '
        f'{apart} told apart from it. '
    )


def _lead(levels: dict, one: tuple, other: tuple) -> statistics.Effect:
    bases = levels[other]
    return statistics.pooled(
        [all_gains.gain(scores, bases[dataset]) for dataset, scores in levels[one].items()]
    )


def _name(loss: str, head: str) -> str:
    name = escape(board.about(loss)['name'])
    return name if head == find(loss).head else f'{name} on the {head} head'


def _who(decided: dict[str, statistics.Decision], learning: int, sets: int) -> str:
    "How many methods got which verdict. learning: how many there are; sets: of photos."
    verdicts = [decision.verdict for decision in decided.values()]
    counts = [
        f'{verdicts.count(verdict)} {"is" if verdicts.count(verdict) == 1 else "are"} {words}'
        for verdict, words in _WORDS.items()
        if verdict in verdicts or verdict is Verdict.REPRODUCED
    ]
    return (
        f'The picture shows {learning} methods that learn from single positives. For '
        f"{len(decided)} of them the method's own mechanism was at work on {sets} sets of photos; "
        f'over AN on the same head, over these sets together, {", ".join(counts)}.'
    )


def _beside(ran: pd.DataFrame) -> str:
    "Our gains beside the published ones."
    if not len(ran):
        return ''
    above = (ran.published > ran.like + ran.like_half).sum()
    below = (ran.published < ran.like - ran.like_half).sum()
    ours, theirs = ran.like.mean(), ran.published.mean()
    size = 'smaller' if ours < theirs else 'larger'
    return (
        f'{ran.method.nunique()} of these methods have published gains over AN of the same '
        f'source ({len(ran)} cells; the others: {published.UNCOUNTED}). Ours are {size}, '
        f'{signed(ours)} against {signed(theirs)} on average: the published gain lies within '
        f'our interval in {len(ran) - above - below} cells, above it in {above} and '
        f'below it in {below}.'
    )


def _order(counted: pd.DataFrame, ran: pd.DataFrame, sources: pd.DataFrame) -> str:
    "Whether the methods come in the papers' order. ran: with the cells that do not count."
    rho, low, high = _ranked(counted, 'method', ['panel'], 'published', 'like')
    if math.isnan(rho):
        return ''
    outcome = 'the order stays open'
    if low > 0:
        outcome = "the papers' order is found again"
    elif high < 0:
        outcome = 'the order is reversed'
    text = (
        'The rank correlation of these published gains with ours is '
        f'{_interval(rho, low, high)}: {outcome}.{_across(sources)}'
    )
    if len(ran) > len(counted):
        over_an = [line.effect.mean if line.uncounted else line.like for line in ran.itertuples()]
        ran = ran.assign(over_an=over_an)
        regardless = _ranked(ran, 'method', ['panel'], 'printed', 'over_an')[0]
        text += f' With the gains over copied rows it would be {signed(regardless, "+.2f")}.'
    return text


def _across(sources: pd.DataFrame) -> str:
    "The same over all that three sources print, and how well they agree with each other."
    both = sources.dropna()
    correlation = _ranked(both, 'loss', ['source', 'dataset'], 'published', 'ours')
    if math.isnan(correlation[0]):
        return ''
    pairs = sources.merge(sources, on=['loss', 'dataset'], suffixes=('', '_other'))
    pairs = pairs[pairs.source < pairs.source_other]
    columns = ['source', 'source_other', 'dataset']
    ceiling = _ranked(pairs, 'loss', columns, 'published', 'published_other')[0]
    apart = (pairs.published - pairs.published_other).abs().mean()
    ours = (both.published - both.ours).abs().mean()
    *names, last = both.source.unique()
    return (
        f" Over all that {', '.join(names)} and {last} print, each over its own AN, it is "
        f'{_interval(*correlation)}: {len(both)} cells, on average {signed(both.published.mean())} '
        f'published and {signed(both.ours.mean())} here. Where two of them print the same '
        f'method, they agree with each other at {signed(ceiling, "+.2f")} ({len(pairs)} cells, '
        f'{apart:.1f} points apart on average; ours and theirs: {ours:.1f}).'
    )


def _ranked(
    cells: pd.DataFrame, rows: str, columns: list[str], *values: str
) -> tuple[float, float, float]:
    "Rank correlation of two columns, ranked within each of `columns`, with its 95 % interval."
    if not len(cells):
        return (math.nan,) * 3
    wide = [cells.pivot(index=rows, columns=columns, values=which) for which in values]
    return statistics.rank_correlation(*(each.to_numpy(float) for each in wide))


def _interval(rho: float, low: float, high: float) -> str:
    return f'{signed(rho, "+.2f")} ({signed(low, "+.2f")} to {signed(high, "+.2f")})'


BEGIN, END = '<!-- front:begin -->', '<!-- front:end -->'


def table(measured: pd.DataFrame) -> str:
    """The small table, as Markdown. measured: as from `gains`."""
    by_method = dict(list(measured.groupby('method', sort=False)))
    levels = by_method[METHODS[0].name]
    base = ['missing' if math.isnan(level) else f'**{level:.1f}**' for level in levels.our_base]
    rows = [
        [
            f'{escape(method.name)} ({_short(method.paper)} Table {method.table})',
            *map(_cell_text, by_method[method.name].itertuples()),
        ]
        for method in METHODS
        if method.own
    ]
    head = [
        f'{panel} <br>{published.stand_in(dataset, SUITE)}' for panel, dataset in PANELS.items()
    ]
    return files.grid([['published / ours', *head], ['AN itself here, mAP in %', *base], *rows])


def _short(paper: str) -> str:
    return published.read(paper)['short']


def _cell_text(line) -> str:
    if line.n < 0:
        return '–'
    theirs = signed(line.published) + (published.UNCOUNTED if line.uncounted else '')
    if math.isnan(line.ours):
        return f'{theirs} / missing'
    if not line.exercised:
        return f'{theirs} / not exercised'
    half = '' if math.isnan(line.like_half) else f' ± {line.like_half:.1f}'
    other = line.plain if line.like == line.ours else line.ours
    beside = '' if math.isnan(other) or other == line.like else f' ({signed(other)})'
    return f'{theirs} / **{signed(line.like)}{half}{beside}**'


_FOUND = (
    '**What was found.** *AN*, assume negative, takes every unknown label for a negative; *plain '
    'AN* does so with a linear head. (A head is what is trained on frozen features.) Gains are '
    'points of mAP ± half the 95 % interval over seeds and test images; the settings that '
    'validation chose are taken as given ([another choice '
    "of AN's rate](outputs/README.md#the-choice-of-the-rate)). "
)


def part(measured: pd.DataFrame, levels: dict, sources: pd.DataFrame, picture: str) -> str:
    """What README.md shows between the marks.

    Args:
        measured: as from `gains`.
        levels: as from `levels`.
        sources: as from `by_source`.
        picture: its address.

    Returns: Markdown, with the marks.
    """
    seeds = measured.n[measured.n >= 0]
    lacking = (seeds == 0).sum()
    missing = f' Still missing: {lacking} of {len(seeds)} cells.' if lacking else ''
    text = (
        'Rings are the papers’ gains over AN on VOC, COCO, NUS-WIDE and CUB. Dots are ours, on '
        'the photos that stand in for these, over AN on the same head. Crosses are ours over '
        'plain AN, on a linear head, which is how HML’s published gain is taken. The table gives '
        'our gain over the baseline that the paper uses (in brackets: over the other one where '
        'both differ). Not exercised: in most runs the best epoch came before the method’s own '
        'mechanism began. \\*Two-way is trained with all labels; its gains are over binary '
        'cross-entropy weighted by class frequencies (in brackets: unweighted). EPR and ROLE are '
        'told how many positives a photo has on average. EM/APL’s numbers are those that OPML’s '
        f'Table II copies. {published.UNCOUNTED}OPML’s own runs have no AN: their gains and ours '
        'are over its ZLPR (in brackets: over AN) and left out of the last two answers. '
        f'{site.protocol(SUITE)}{missing}'
    )
    image = f'![What each method gains over assume negative, as published and here]({picture})'
    answers = findings(measured, levels, sources)
    top = f'{textwrap.fill(_FOUND, 140)}\n\n{answers}\n\n' if answers else ''
    return f'{BEGIN}\n{top}{image}\n\n{textwrap.fill(text, 140)}\n\n{table(measured)}{END}'


def write(root: Path | None = None, boards: pd.DataFrame | None = None) -> list[Path]:
    """Make `outputs/front.svg`, and the part of README.md between the marks.

    Args:
        root: the folder that has README.md and outputs/, unset: where the setting `outputs` lies. A
            folder without README.md, or with one that has no marks, gets the picture alone.
        boards: as from `gains.of_suites`, unset: that.

    Returns: the files that changed.

    Raises:
        SpmlError: for a damaged table of record, a file that cannot be written, or marks that do
            not enclose one part (then nothing changes).
    """
    outputs = settings.path('outputs') if root is None else Path(root) / 'outputs'
    readme = outputs.parent / 'README.md'
    enclosing = around(readme)
    known = record(outputs / 'runs.csv')
    measured = gains(known)
    texts = {outputs / 'front.svg': draw(measured).decode()}
    if enclosing:
        boards = all_gains.of_suites(known, [SUITE]) if boards is None else boards
        text = part(measured, levels(boards), by_source(known), f'{outputs.name}/front.svg')
        texts[readme] = text.join(enclosing)
    return site.put(texts)


def around(readme: Path, begin: str = BEGIN, end: str = END) -> tuple[str, str] | None:
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
