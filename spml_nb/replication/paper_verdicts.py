"""The verdicts on all papers, and the gains of training the whole network."""

import pandas as pd

from ..statistics import COMPARED, Verdict
from ..sweeps.boards import suite_rows
from ..sweeps.search import SUITES, Row, look_up_scores, search_configs
from . import board, published
from . import gains as all_gains
from .published import PHOTOS_SUITE
from .templates import page_headline, render_template

WHOLE_NETWORK_SUITE = 'photos_finetune'
_KEYS = ['dataset', 'loss', 'head', 'labels']
_SHOWN = ['level', 'level_half', 'gain', 'gain_half', 'plain', 'plain_half', 'late', 'acted']


def gains_end_to_end(
    measured: pd.DataFrame, runs: pd.DataFrame, printed: list[dict]
) -> pd.DataFrame:
    """The gains of methods that train the whole network, beside those of a head on frozen features
    and the printed ones.

    Args:
        measured: As from `gains.gains_of_suites`.
        runs: The table of record.
        printed: As from `board.list_printed_rows`.

    Returns:
        DataFrame by dataset, loss, head and labels, the highest test mAP of a set first:

        - level, level_half, gain, gain_half, plain, plain_half, late, acted: as from
          `gains.join_baselines`
        - the same with the suffix `_alone`, for the head on frozen features
        - tried_low, tried_high: range of the test mAP in its search
        - published, lowest, highest: mean and range of the printed gains over AN of the same
          source, NaN without any
    """
    gained = all_gains.join_baselines(measured[measured.choice == 'clean']).set_index(_KEYS)
    network = gained.loc[gained.suite == WHOLE_NETWORK_SUITE, _SHOWN]
    head_alone = gained.loc[gained.suite == PHOTOS_SUITE, _SHOWN]
    tried = [
        look_up_scores(search_configs(Row(*row), WHOLE_NETWORK_SUITE, dataset), runs).test_map
        for dataset, *row in network.index
    ]
    network = network.assign(
        tried_low=[scores.min() for scores in tried], tried_high=[scores.max() for scores in tried]
    )
    rows = network.join(head_alone.add_suffix('_alone')).join(_published_gains(printed))
    return rows.sort_values(['dataset', 'level'], ascending=[True, False])


def _published_gains(printed: list[dict]) -> pd.DataFrame:
    """Mean and range of the printed gains, by `_KEYS`."""
    rows = [
        {
            **line,
            'dataset': published.find_stand_in(dataset, PHOTOS_SUITE),
            'published': cell['theirs'],
        }
        for line in printed
        for dataset, cell in line['cells'].items()
        if not cell['uncounted']
    ]
    gained = pd.DataFrame(rows, columns=[*_KEYS, 'published']).groupby(_KEYS).published
    return gained.agg(published='mean', lowest='min', highest='max')


def format_whole_network(gained: pd.DataFrame) -> str:
    """The page on training the whole network, in Markdown with links from `outputs/`.

    Args:
        gained: As from `gains_end_to_end`.
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
    """{verdict: number of claims with it}, for claims as from `claims.report_claims`."""
    counts = checked.ours.value_counts()
    return {verdict: int(counts[verdict]) for verdict in Verdict if verdict in counts}


def count_sizes(checked: pd.DataFrame) -> dict[str, int]:
    """{size: number of claims with it}, for claims as from `claims.report_claims`, without those
    whose size cannot be compared.
    """
    counts = checked['size'].value_counts()
    return {size: int(counts[size]) for size in COMPARED if size in counts}


def format_verdicts(checked: pd.DataFrame) -> str:
    """The verdicts on all papers, a line each, in Markdown with links from `outputs/`.

    Args:
        checked: As from `claims.report_claims`, of all papers.
    """
    papers = []
    for paper, claims in checked.groupby('paper', sort=False):
        counts = {
            'main': claims[claims.main].to_dict('records'),
            'claims': len(claims),
            'verdicts': count_verdicts(claims),
            'sizes': count_sizes(claims),
        }
        papers.append(published.read_paper(paper) | counts)
    return render_template('verdicts.md', papers=papers, uncounted=published.UNCOUNTED)
