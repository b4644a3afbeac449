"""What became of each paper, from its claims, and what the whole network gains."""

import pandas as pd

from ..statistics import COMPARED, Verdict
from ..sweeps.boards import suite_rows
from ..sweeps.search import SUITES, Row, candidates, look_up_scores
from . import board, published
from . import gains as all_gains
from .published import SUITE
from .rendering import render_template
from .site import page_headline

WHOLE_NETWORK_SUITE = 'photos_finetune'
_KEYS = ['dataset', 'loss', 'head', 'labels']
_SHOWN = ['level', 'level_half', 'gain', 'gain_half', 'plain', 'plain_half', 'late', 'acted']


def gains_end_to_end(
    measured: pd.DataFrame, known: pd.DataFrame, printed: list[dict]
) -> pd.DataFrame:
    """What methods gain where the whole network is trained, beside a head on frozen features and
    the papers.

    Args:
        measured: as from `gains.gains_of_suites`.
        known: as from `tables.record`.
        printed: as from `board.list_printed_rows`.

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
    both = all_gains.join_baselines(measured[measured.choice == 'clean']).set_index(_KEYS)
    network = both.loc[both.suite == WHOLE_NETWORK_SUITE, _SHOWN]
    head_alone = both.loc[both.suite == SUITE, _SHOWN]
    tried = [
        look_up_scores(candidates(Row(*row), WHOLE_NETWORK_SUITE, dataset), known).test_map
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
        {**line, 'dataset': published.find_stand_in(place, SUITE), 'published': cell['theirs']}
        for line in printed
        for place, cell in line['cells'].items()
        if not cell['uncounted']
    ]
    gained = pd.DataFrame(rows, columns=[*_KEYS, 'published']).groupby(_KEYS).published
    return gained.agg(published='mean', lowest='min', highest='max')


def format_whole_network(gained: pd.DataFrame) -> str:
    """The whole network beside a head alone and the papers: a table, rank correlations, and what
    has no runs.

    Args:
        gained: as from `gains_end_to_end`.

    Returns:
        Markdown, with links from `outputs/`.
    """
    if not len(gained):
        return 'None has runs yet.\n'
    rows = gained.reset_index()
    rows['notebook'] = [board.describe_method(loss)['notebook'] for loss in rows.loss]
    behind = (gained.level_alone - gained.level).dropna()
    not_run = {
        dataset: [
            f'{row.loss} ({row.head})'
            for row in suite_rows(WHOLE_NETWORK_SUITE)
            if (dataset, row.loss, row.head, row.labels) not in gained.index
        ]
        for dataset in SUITES[WHOLE_NETWORK_SUITE]['datasets']
    }
    return render_template(
        'whole_network.md',
        headline=page_headline(WHOLE_NETWORK_SUITE, rows.dataset.unique()),
        rows=rows.to_dict('records'),
        behind=behind[behind > 0],
        compared=len(behind),
        not_run={dataset: names for dataset, names in not_run.items() if names},
        suite=WHOLE_NETWORK_SUITE,
    )


def count_verdicts(checked: pd.DataFrame) -> dict[str, int]:
    """How many claims, as from `claims.report_claims`, have each verdict that any of them has."""
    counts = checked.ours.value_counts()
    return {verdict: int(counts[verdict]) for verdict in Verdict if verdict in counts}


def count_sizes(checked: pd.DataFrame) -> dict[str, int]:
    """How many claims, as from `claims.report_claims`, have each size that compares ours with the
    paper's, where any has one.
    """
    counts = checked['size'].value_counts()
    return {size: int(counts[size]) for size in COMPARED if size in counts}


def format_verdicts(checked: pd.DataFrame) -> str:
    """The verdicts on all papers, a line each.

    Args:
        checked: claims as from `claims.report_claims`, of all papers in one suite.

    Returns:
        Markdown, with links from `outputs/`.
    """
    papers = []
    for paper, claims in checked.groupby('paper', sort=False):
        checks = {
            'main': claims[claims.main].to_dict('records'),
            'claims': len(claims),
            'verdicts': count_verdicts(claims),
            'sizes': count_sizes(claims),
        }
        papers.append(published.read_paper(paper) | checks)
    return render_template('verdicts.md', papers=papers, uncounted=published.UNCOUNTED)
