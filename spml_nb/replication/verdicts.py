"""The verdict on each paper and each method, in one line, made from the claims and from the table of record."""

import pandas as pd

from ..base.files import grid
from ..methods.core import find, names
from ..sweeps.search import SUITES, Row, candidates, rows_of, scores
from . import board, published, statistics
from .published import SUITE
from .site import escape, headline
from .statistics import number, signed


def of_paper(asked: pd.DataFrame) -> str:
    """What became of a paper.

    Args:
        asked: its claims, as from `claims.report`.

    Returns:
        A line of Markdown with links from `outputs/`.
    """
    paper, counts = (
        asked.paper.iloc[0],
        asked.ours.value_counts().reindex(statistics.WORDS).dropna(),
    )
    about, words = published.read(paper), ', '.join(f'{n:.0f} {word}' for word, n in counts.items())
    main = ' '.join(
        f"“{each.claim}”{' (*inferred*)' * each.inferred} **{each.ours}**"
        f'{each.summary.removeprefix(each.ours)}.'
        for each in asked[asked.main].itertuples()
    )
    return (
        f"- **{about['short']}** ({about['venue']}): {main} Of {len(asked)} claims: {words}. "
        f'[Forest plot]({paper}/claims.svg), [claims](claims.md), '
        f'[notebook](../nbs/papers/{paper}.ipynb).\n'
    )


def _compared() -> list[str]:
    return [name for name in names() if name not in ('an', 'bce') and not find(name).side]


def gains(known: pd.DataFrame) -> pd.DataFrame:
    """What each method gains over AN on its own head.

    Args:
        known: as from `tables.record`.

    Returns:
        DataFrame, one row for each method and set of photos where both have runs: loss, head,
        dataset, effect (a `statistics.Effect`), exercised (whether the method's own mechanism acted
        in more than half of its runs).
    """
    found = board.cells(SUITE, known).rename(columns={'acted': 'exercised', 'paired': 'effect'})
    own_head = found['head'] == [find(loss).head for loss in found.loss]
    found = found[
        own_head
        & found.loss.isin(_compared())
        & (found.labels == 'single')
        & (found.choice == 'clean')
    ]
    return found.loc[
        found.gain.notna(), ['loss', 'head', 'dataset', 'exercised', 'effect']
    ].reset_index(drop=True)


WORDS = dict(
    zip(
        statistics.WORDS,
        ('above AN', 'below AN', 'no different from AN', *statistics.WORDS[3:]),
        strict=True,
    )
)


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
    found = pd.DataFrame(
        [_method(*name, part) for name, part in gained.groupby(['loss', 'head'])],
        columns=['loss', 'head', 'word', 'verdict', 'mean', 'half_width', 'each', 'sets'],
    )
    return found.sort_values(['sets', 'mean'], ascending=False, ignore_index=True).drop(
        columns='sets'
    )


def _method(loss: str, head: str, part: pd.DataFrame) -> dict:
    acted = part[part.exercised]
    each = [
        f'{line.dataset} {line.effect}{"" if line.exercised else " (not exercised)"}'
        for line in part.itertuples()
    ]
    found = {
        'loss': loss,
        'head': head,
        'sets': len(acted),
        'word': 'not exercised',
        'verdict': 'not exercised',
        'each': ', '.join(each),
    }
    if not len(acted):
        return found
    decision = statistics.decide(list(acted.effect))
    counted = statistics.counted(
        decision.word, decision.words, decision.pooled[''], decision.tested
    )
    for word in sorted(WORDS, key=len, reverse=True):
        counted = counted.replace(word, WORDS[word])
    mean = decision.whole.get('')
    return (
        found
        | {'word': WORDS[decision.word], 'verdict': f'{WORDS[decision.word]} {counted}'}
        | ({'mean': mean.mean, 'half_width': mean.half_width} if mean else {})
    )


WHOLE = 'photos_finetune'
_KEYS = ['dataset', 'loss', 'head', 'labels']
_SHOWN = ['level', 'level_half', 'gain', 'gain_half', 'plain', 'plain_half', 'late', 'acted']


def end_to_end(known: pd.DataFrame, printed: list[dict]) -> pd.DataFrame:
    """What methods gain where the whole network is trained, beside a head on frozen features and
    the papers.

    Args:
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
    whole, alone = (
        found[found.choice == 'clean'].set_index(_KEYS)[_SHOWN]
        for found in (board.cells(suite, known) for suite in (WHOLE, SUITE))
    )
    theirs = pd.DataFrame(
        [
            (published.stand_in(place, SUITE), *(line[name] for name in _KEYS[1:]), cell['theirs'])
            for line in printed
            for place, cell in line['cells'].items()
            if not cell['uncounted']
        ],
        columns=[*_KEYS, 'published'],
    )
    gained = theirs.groupby(_KEYS).published.agg(published='mean', lowest='min', highest='max')
    tried = [
        scores(candidates(Row(*line), WHOLE, dataset), known).test_map
        for dataset, *line in whole.index
    ]
    whole = whole.assign(tried_low=[t.min() for t in tried], tried_high=[t.max() for t in tried])
    found = whole.join(alone.add_suffix('_alone')).join(gained)
    return found.sort_values(['dataset', 'level'], ascending=[True, False])


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
    part = found[both].reset_index()
    part = part[(part.labels == 'single') & ((part.loss != 'an') | (part['head'] != 'linear'))]
    if other == 'published':
        part['plain'] = part.gain.where(part['head'] == 'labelwise', part.plain)  # as LAC has it
    wide = part.pivot(index=['loss', 'head'], columns='dataset', values=[other, 'plain'])
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
    orders = [(agreement(found, other), words) for other, words in _OTHERS.items()]
    said = ' '.join(
        f'Rank correlation of the gains {words}: {rho:+z.2f} ({low:+z.2f} to {high:+z.2f}).'
        for (rho, low, high), words in orders
        if rho == rho
    ).replace('-', '−')
    rest = {
        dataset: [
            f'{row.loss} ({row.head})'
            for row in rows_of(WHOLE)
            if (dataset, row.loss, row.head, row.labels) not in found.index
        ]
        for dataset in SUITES[WHOLE]['datasets']
    }
    words = '; '.join(f"on {dataset} {', '.join(rows)}" for dataset, rows in rest.items() if rows)
    lacking = (
        f'Not run yet (method and head): {words}. Command: `spml sweep methods --suite {WHOLE}`.'
        if words
        else ''
    )
    parts = (
        escape(headline(WHOLE, found.index.unique('dataset'))),
        table.rstrip(),
        _levels(found),
        said,
        lacking,
    )
    return '\n\n'.join(filter(None, parts)) + '\n'


def _levels(found: pd.DataFrame) -> str:
    "How far the levels are from those of a head alone, which says how much the gains are worth."
    behind = (found.level_alone - found.level).dropna()
    if not (behind > 0).any():
        return ''
    return (
        f'In {(behind > 0).sum()} of {len(behind)} rows the whole network stays below a head '
        f'alone, by {behind[behind > 0].min():.1f} to {behind.max():.1f} points: its runs are '
        'short and see smaller photos, so that a gain here may also be a loss that AN suffers '
        'more. *Search*: the test mAP of its three rates, each tried with one seed; where the '
        'range is wide, the rate weighs as much as the method, and *The choice of the rate*, '
        'below, says how much it does for AN. The papers’ gains are the range over the tables '
        'that print the method, over AN of their own set-up. *Late*: runs whose best epoch is one '
        'of the last two.'
    )


def _range(low: float, high: float) -> str:
    return (
        signed(low)
        if round(low, 1) == round(high, 1)
        else ' to '.join(filter(None, map(signed, (low, high))))
    )


def _linked(loss: str) -> str:
    return f"[{loss}](../{board.about(loss)['notebook']})"


def _over_an(
    gain: float, half: float, acted: bool
) -> str:  # AN itself has no interval, and a gap no number
    return f"{signed(gain)} ± {half:.1f}{'' if acted else ' (not exercised)'}" if half > 0 else '–'


_OTHERS = {'plain_alone': 'with those of a head alone', 'published': 'with the papers’'}


def markdown(asked: pd.DataFrame, methods: pd.DataFrame) -> str:
    """The verdicts of all papers and methods.

    Args:
        asked: as from `claims.report`, of all papers in one suite.
        methods: as from `of_methods`.

    Returns:
        Markdown, with links from `outputs/`.
    """
    papers = ''.join(of_paper(part) for _, part in asked.groupby('paper', sort=False))
    lines = [
        [
            _linked(each.loss),
            f'{signed(each.mean)} ± {each.half_width:.1f}' if each.mean == each.mean else '–',
            each.verdict,
            each.each,
        ]
        for each in methods.itertuples()
    ]
    rest = [name for name in _compared() if name not in set(methods.loss)]
    table = grid([['method', 'gain over AN', 'verdict', 'on each set of photos'], *lines])
    return (
        f'### Papers\n\n{papers}\n### Methods\n\n{_METHODS.format(len(lines))}\n\n'
        f"{table if lines else 'None has runs yet.'}"
        f"{_REST.format(', '.join(rest)) if rest and lines else ''}"
    )


_METHODS = (
    'Each on its own head with single positive labels, over AN on that head, in points of mAP: the mean over '
    'the sets of photos with its 95 % interval over seeds and test images. *Not exercised*: the epoch was '
    'chosen before the method’s own mechanism began. *Undecided* beside an interval that leaves 0 out: two '
    'sets contradict each other. *No different*: the 90 % interval lies within half a point. Each word is '
    'about one method alone, not corrected for the number of methods ({}), so one in twenty may be wrong. '
    'With one positive multi_similarity is zlpr: these are the same runs. In 13 of the 30 runs of '
    'lac, all 5 on corel5k, the first epoch of its second stage was the best: its contrast hardly '
    'acted. EPR and ROLE are told how many positives a photo has on average. On the label-wise '
    'head AN is below plain AN, so that a gain there need not reach above plain AN: the boards '
    'have both gains.'
)
_REST = '\nNot compared yet, because runs of the method or of AN on its head are missing: {}.\n'
