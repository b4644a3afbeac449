"""The verdict on each paper and each method in one line, from its claims and gains."""

import math

import pandas as pd

from ..base.files import grid
from ..methods.core import find, names
from ..sweeps.search import SUITES, Row, candidates, rows_of, scores
from . import board, published, statistics
from . import gains as all_gains
from .published import SUITE
from .site import escape, headline
from .statistics import Verdict, number, signed


def of_paper(checked: pd.DataFrame) -> str:
    """What became of a paper.

    Args:
        checked: its claims, as from `claims.report`.

    Returns:
        A line of Markdown with links from `outputs/`.
    """
    paper = checked.paper.iloc[0]
    about = published.read(paper)
    counts = checked.ours.value_counts()
    listed = ', '.join(f'{counts[verdict]} {verdict}' for verdict in Verdict if verdict in counts)
    main = ' '.join(map(_main_claim, checked[checked.main].itertuples()))
    return (
        f"- **{about['short']}** ({about['venue']}): {main} Of {len(checked)} claims: {listed}. "
        f'[Forest plot]({paper}/claims.svg), [claims](claims.md), '
        f'[notebook](../nbs/papers/{paper}.ipynb).\n'
    )


def _main_claim(claim) -> str:
    inferred = ' (*inferred*)' if claim.inferred else ''
    rest = claim.summary.removeprefix(claim.ours)
    return f'“{claim.claim}”{inferred} **{claim.ours}**{rest}.'


def _compared() -> list[str]:
    return [name for name in names() if name not in ('an', 'bce') and not find(name).side]


def gains(measured: pd.DataFrame) -> pd.DataFrame:
    """What each method gains over AN on its own head.

    Args:
        measured: as from `gains.of_suites`.

    Returns:
        DataFrame, one row for each method and set of photos where both have runs: loss, head,
        dataset, effect (a `statistics.Effect`), exercised (whether the method's own mechanism acted
        in more than half of its runs).
    """
    own_head = measured['head'] == [find(loss).head for loss in measured.loss]
    chosen = measured[
        own_head
        & measured.loss.isin(_compared())
        & (measured.suite == SUITE)
        & (measured.baseline == all_gains.SAME_HEAD)
        & (measured.labels == 'single')
        & (measured.choice == 'clean')
        & measured.gain.notna()
    ].rename(columns={'acted': 'exercised'})
    return chosen[['loss', 'head', 'dataset', 'exercised', 'effect']].reset_index(drop=True)


WORDS = {
    Verdict.REPRODUCED: 'above AN',
    Verdict.NOT_REPRODUCED: 'below AN',
    Verdict.NO_DIFFERENCE: 'no different from AN',
    Verdict.UNDECIDED: 'undecided',
    Verdict.NOT_RUN: 'not run',
    Verdict.NOT_EXERCISED: 'not exercised',
}


def of_methods(gained: pd.DataFrame) -> pd.DataFrame:
    """What became of each method.

    Args:
        gained: as from `gains`.

    Returns:
        DataFrame, those on the most sets first, of these the highest mean: loss, head, word (of
        `WORDS`), verdict (the word, over how many sets of photos, and how many of them decide
        alone), mean and half_width (of the effect, NaN without two seeds), each (the effect on
        every set, in words).
    """
    rows = pd.DataFrame(
        [_method(*name, part) for name, part in gained.groupby(['loss', 'head'])],
        columns=['loss', 'head', 'word', 'verdict', 'mean', 'half_width', 'each', 'sets'],
    )
    ordered = rows.sort_values(['sets', 'mean'], ascending=False, ignore_index=True)
    return ordered.drop(columns='sets')


def _method(loss: str, head: str, part: pd.DataFrame) -> dict:
    effects = list(part.effect[part.exercised])
    each = [
        f'{line.dataset} {line.effect}{"" if line.exercised else " (not exercised)"}'
        for line in part.itertuples()
    ]
    row = {'loss': loss, 'head': head, 'sets': len(effects), 'each': ', '.join(each)}
    if not effects:
        return row | dict.fromkeys(['word', 'verdict'], WORDS[Verdict.NOT_EXERCISED])
    decision = statistics.decide(effects)
    word = WORDS[decision.verdict]
    places = statistics.counted(
        decision.verdict, decision.verdicts, decision.counts[''], decision.tested, WORDS
    )
    row |= {'word': word, 'verdict': f'{word} {places}'}
    if mean := decision.means.get(''):
        row |= {'mean': mean.mean, 'half_width': mean.half_width}
    return row


WHOLE = 'photos_finetune'
_KEYS = ['dataset', 'loss', 'head', 'labels']
_SHOWN = ['level', 'level_half', 'gain', 'gain_half', 'plain', 'plain_half', 'late', 'acted']


def end_to_end(measured: pd.DataFrame, known: pd.DataFrame, printed: list[dict]) -> pd.DataFrame:
    """What methods gain where the whole network is trained, beside a head on frozen features and
    the papers.

    Args:
        measured: as from `gains.of_suites`.
        known: as from `tables.record`.
        printed: as from `board.printed`.

    Returns:
        DataFrame by dataset, loss, head and labels, the highest test mAP of a set first: level and
        level_half (test mAP in percent, half its interval over seeds), gain and gain_half (over AN
        on the same head, with the interval over seeds and test images), plain and plain_half (the
        same over AN on the linear head), late (share of runs whose best epoch is one of the last
        two) and acted (whether the method's own mechanism did); the same with `_alone` behind the
        name, of the head alone; tried_low and tried_high (range of the test mAP in its search);
        published, lowest and highest (mean and range of the gains that the papers print over AN of
        their own set-up, NaN without one).
    """
    both = all_gains.beside(measured[measured.choice == 'clean']).set_index(_KEYS)
    network = both.loc[both.suite == WHOLE, _SHOWN]
    head_alone = both.loc[both.suite == SUITE, _SHOWN]
    tried = [
        scores(candidates(Row(*row), WHOLE, dataset), known).test_map
        for dataset, *row in network.index
    ]
    network = network.assign(
        tried_low=[each.min() for each in tried], tried_high=[each.max() for each in tried]
    )
    rows = network.join(head_alone.add_suffix('_alone')).join(_published_gains(printed))
    return rows.sort_values(['dataset', 'level'], ascending=[True, False])


def _published_gains(printed: list[dict]) -> pd.DataFrame:
    "Mean and range by `_KEYS`."
    rows = [
        {**line, 'dataset': published.stand_in(place, SUITE), 'published': cell['theirs']}
        for line in printed
        for place, cell in line['cells'].items()
        if not cell['uncounted']
    ]
    gained = pd.DataFrame(rows, columns=[*_KEYS, 'published']).groupby(_KEYS).published
    return gained.agg(published='mean', lowest='min', highest='max')


def agreement(found: pd.DataFrame, other: str) -> tuple[float, float, float]:
    """Whether the whole network ranks the methods as something else does.

    Args:
        found: as from `end_to_end`.
        other: its column 'plain_alone' or 'published'.

    Returns:
        Spearman's correlation, pooled over data sets, and its 95 % interval; NaN with fewer than
        five methods.
    """
    both = found.acted if other == 'published' else found.acted & found.acted_alone.eq(True)
    rows = found[both].reset_index()
    rows = rows[(rows.labels == 'single') & ((rows.loss != 'an') | (rows['head'] != 'linear'))]
    if other == 'published':
        rows['plain'] = rows.gain.where(rows['head'] == 'labelwise', rows.plain)  # as LAC has it
    wide = rows.pivot(index=['loss', 'head'], columns='dataset', values=[other, 'plain'])
    if len(wide) < 5:
        return (float('nan'),) * 3  # as under the papers' tables
    return statistics.rank_correlation(wide[other].to_numpy(float), wide['plain'].to_numpy(float))


def whole_network(found: pd.DataFrame) -> str:
    """The whole network beside a head alone and the papers: a table, rank correlations, and what
    has no runs.

    Args:
        found: as from `end_to_end`.

    Returns:
        Markdown, with links from `outputs/`.
    """
    if not len(found):
        return 'None has runs yet.\n'
    lines = [
        [
            _linked(loss),
            head,
            labels,
            dataset,
            f'{each.level:.1f} ± {each.level_half:.1f}',
            f'{each.tried_low:.1f} to {each.tried_high:.1f}',
            number(each.level_alone, '.1f') or '–',
            _over_an(each.plain, each.plain_half, each.acted),
            _over_an(each.gain, each.gain_half, each.acted),
            _over_an(each.plain_alone, each.plain_half_alone, each.acted_alone),
            _range(each.lowest, each.highest) or '–',
            number(each.late, '.0%'),
        ]
        for (dataset, loss, head, labels), each in found.iterrows()
    ]
    table = grid(
        [
            [
                'method',
                'head',
                'labels',
                'photos',
                'test mAP',
                'search',
                'a head alone',
                'over plain AN',
                'over AN, same head',
                'over plain AN, a head alone',
                'over AN, papers',
                'late',
            ],
            *lines,
        ]
    )
    paragraphs = (
        escape(headline(WHOLE, found.index.unique('dataset'))),
        table.rstrip(),
        _levels(found),
        ' '.join(filter(None, (_order(found, other) for other in _OTHERS))),
        _not_run(found),
    )
    return '\n\n'.join(filter(None, paragraphs)) + '\n'


_OTHERS = {'plain_alone': 'with those of a head alone', 'published': 'with the papers’'}


def _order(found: pd.DataFrame, other: str) -> str:
    rho, low, high = agreement(found, other)
    if math.isnan(rho):
        return ''
    interval = f'{rho:+z.2f} ({low:+z.2f} to {high:+z.2f})'.replace('-', '−')
    return f'Rank correlation of the gains {_OTHERS[other]}: {interval}.'


def _not_run(found: pd.DataFrame) -> str:
    lacking = []
    for dataset in SUITES[WHOLE]['datasets']:
        rows = [
            f'{row.loss} ({row.head})'
            for row in rows_of(WHOLE)
            if (dataset, row.loss, row.head, row.labels) not in found.index
        ]
        if rows:
            lacking.append(f'on {dataset} {", ".join(rows)}')
    if not lacking:
        return ''
    return (
        f'Not run yet (method and head): {"; ".join(lacking)}. Command: `spml sweep methods '
        f'--suite {WHOLE}`.'
    )


def _levels(found: pd.DataFrame) -> str:
    "How far the levels are from those of a head alone, which says how much the gains are worth."
    behind = (found.level_alone - found.level).dropna()
    below = behind[behind > 0]
    if not len(below):
        return ''
    return (
        f'In {len(below)} of {len(behind)} rows the whole network stays below a head '
        f'alone, by {below.min():.1f} to {below.max():.1f} points: its runs are '
        'short and see smaller photos, so that a gain here may also be a loss that AN suffers '
        'more. *Search*: the test mAP of its three rates, each tried with one seed; where the '
        'range is wide, the rate weighs as much as the method, and *The choice of the rate*, '
        'below, says how much it does for AN. The papers’ gains are the range over the tables '
        'that print the method, over AN of their own set-up. *Late*: runs whose best epoch is one '
        'of the last two.'
    )


def _range(low: float, high: float) -> str:
    if round(low, 1) == round(high, 1):
        return signed(low)
    return ' to '.join(filter(None, (signed(low), signed(high))))


def _linked(loss: str) -> str:
    return f"[{loss}](../{board.about(loss)['notebook']})"


def _over_an(gain: float, half: float, acted: bool) -> str:
    if not half > 0:  # AN itself has no interval, and a gap no number
        return '–'
    return f'{signed(gain)} ± {half:.1f}{"" if acted else " (not exercised)"}'


def markdown(checked: pd.DataFrame, methods: pd.DataFrame, measured: pd.DataFrame) -> str:
    """The verdicts of all papers and methods.

    Args:
        checked: as from `claims.report`, of all papers in one suite.
        methods: as from `of_methods`.
        measured: as from `gains.of_suites`.

    Returns:
        Markdown, with links from `outputs/`.
    """
    papers = ''.join(of_paper(part) for _, part in checked.groupby('paper', sort=False))
    about = _METHODS.format(methods=len(methods), lac=_lac(measured))
    return f'### Papers\n\n{papers}\n### Methods\n\n{about}\n\n{_of_all(methods)}'


def _of_all(methods: pd.DataFrame) -> str:
    if not len(methods):
        return 'None has runs yet.'
    rows = [
        [
            _linked(each.loss),
            '–' if math.isnan(each.mean) else f'{signed(each.mean)} ± {each.half_width:.1f}',
            each.verdict,
            each.each,
        ]
        for each in methods.itertuples()
    ]
    table = grid([['method', 'gain over AN', 'verdict', 'on each set of photos'], *rows])
    rest = [name for name in _compared() if name not in set(methods.loss)]
    return table + (_REST.format(', '.join(rest)) if rest else '')


def _lac(measured: pd.DataFrame) -> str:
    "In how many runs of LAC the contrast of its second stage hardly acted."
    runs = measured[
        (measured.loss == 'lac')
        & (measured.suite == SUITE)
        & (measured.choice == 'clean')
        & (measured.baseline == all_gains.PLAIN)
    ]
    if not runs.begins_stage_2.sum():
        return ''
    everywhere = [
        f', all {each.n} on {each.dataset}'
        for each in runs.itertuples()
        if each.begins_stage_2 == each.n
    ]
    return (
        f' In {runs.begins_stage_2.sum()} of the {runs.n.sum()} runs of lac{"".join(everywhere)}, '
        'the first epoch of its second stage was the best: its contrast hardly acted.'
    )


_METHODS = (
    'Each on its own head with single positive labels, over AN on that head, in points of mAP: the '
    'mean over the sets of photos with its 95 % interval over seeds and test images. *Not '
    'exercised*: the epoch was chosen before the method’s own mechanism began. *Undecided* beside '
    'an interval that leaves 0 out: two sets contradict each other. *No different*: the 90 % '
    'interval lies within half a point. Each word is about one method alone, not corrected for the '
    'number of methods ({methods}), so one in twenty may be wrong. With one positive '
    'multi_similarity is zlpr: these are the same runs.{lac} EPR and ROLE are told how many '
    'positives a photo has on average. On the label-wise head AN is below plain AN, so that a gain '
    'there need not reach above plain AN: the boards have both gains.'
)
_REST = '\nNot compared yet, because runs of the method or of AN on its head are missing: {}.\n'
