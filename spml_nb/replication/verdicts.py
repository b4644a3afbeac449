"""What became of each paper and each method, from the claims and the gains."""

import pandas as pd

from ..methods.core import find, names
from ..sweeps.search import SUITES, Row, candidates, rows_of, scores
from . import board, published, statistics
from . import gains as all_gains
from .published import SUITE
from .rendering import render
from .site import headline
from .statistics import Verdict


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
    """Mean and range by `_KEYS`."""
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


def whole_network(gained: pd.DataFrame) -> str:
    """The whole network beside a head alone and the papers: a table, rank correlations, and what
    has no runs.

    Args:
        gained: as from `end_to_end`.

    Returns:
        Markdown, with links from `outputs/`.
    """
    if not len(gained):
        return 'None has runs yet.\n'
    rows = gained.reset_index()
    rows['notebook'] = [board.about(loss)['notebook'] for loss in rows.loss]
    behind = (gained.level_alone - gained.level).dropna()
    not_run = {
        dataset: [
            f'{row.loss} ({row.head})'
            for row in rows_of(WHOLE)
            if (dataset, row.loss, row.head, row.labels) not in gained.index
        ]
        for dataset in SUITES[WHOLE]['datasets']
    }
    return render(
        'whole_network.md',
        headline=headline(WHOLE, rows.dataset.unique()),
        rows=rows.to_dict('records'),
        behind=behind[behind > 0],
        compared=len(behind),
        order_of_head_alone=agreement(gained, 'plain_alone'),
        order_of_papers=agreement(gained, 'published'),
        not_run={dataset: names for dataset, names in not_run.items() if names},
        suite=WHOLE,
    )


def count(checked: pd.DataFrame) -> dict[str, int]:
    """How many claims, as from `claims.report`, have each verdict that any of them has."""
    counts = checked.ours.value_counts()
    return {verdict: int(counts[verdict]) for verdict in Verdict if verdict in counts}


def markdown(checked: pd.DataFrame, methods: pd.DataFrame, measured: pd.DataFrame) -> str:
    """The verdicts on all papers and methods.

    Args:
        checked: claims as from `claims.report`, of all papers in one suite.
        methods: as from `of_methods`.
        measured: as from `gains.of_suites`.

    Returns:
        Markdown, with links from `outputs/`.
    """
    papers = []
    for paper, claims in checked.groupby('paper', sort=False):
        checks = {
            'main': claims[claims.main].to_dict('records'),
            'claims': len(claims),
            'verdicts': count(claims),
        }
        papers.append(published.read(paper) | checks)
    notebooks = [board.about(loss)['notebook'] for loss in methods.loss]
    return render(
        'verdicts.md',
        papers=papers,
        methods=methods.assign(notebook=notebooks).to_dict('records'),
        lac=_lac(measured),
        not_compared=[name for name in _compared() if name not in set(methods.loss)],
    )


def _lac(measured: pd.DataFrame) -> str:
    """In how many runs of LAC the contrast of its second stage hardly acted."""
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
