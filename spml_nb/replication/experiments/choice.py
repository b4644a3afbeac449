"""Every gain is over AN. How much would another learning rate of AN's own search change?"""

from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

from ...runs.config import Config
from ...statistics import Scores, format_signed, pool_effects
from ...sweeps.search import Row, final_seeds, look_up_scores, rank_configs, search_configs
from .. import gains
from ..templates import render_template
from .core import Experiment, choose_sets, make_staged_sweep

RATES_TRIED = 3
SEARCHES = [  # (suite, row, sets of photos)
    (
        'photos',
        Row('an', 'linear'),
        ('voc12_animals', 'coco18', 'mirflickr14', 'cub_crops', 'corel5k', 'ccp'),
    ),
    ('photos', Row('an', 'cosine'), ('voc12_animals', 'coco18', 'mirflickr14', 'cub_crops')),
    ('photos', Row('em', 'cosine'), ('voc12_animals',)),
    ('photos_finetune', Row('an', 'linear'), ('voc12_animals',)),
]


def plan_rate_runs(record: pd.DataFrame, datasets: Iterable[str] = ()) -> pd.DataFrame:
    """The final runs with the best rates of each search that has all its runs.

    Args:
        record: finished runs, as from `sweeps.load_finished_runs` or `tables.read_recorded_runs`.
        datasets: some of those of `SEARCHES`; none: all of them.

    Returns:
        DataFrame, one row per run: what (the method and what is trained, in words), dataset, place
        (rank of the rate on validation; 1 is the chosen rate), seed, config, test_map (percent; NaN
        if the run is not done).

    Raises:
        SpmlError: for another set of photos.
    """
    rows = [
        {
            'what': _words(suite, row),
            'dataset': dataset,
            'place': place,
            'seed': seed,
            'config': config.changed(seed=seed, label_seed=seed),
        }
        for suite, row, dataset in _searches(datasets)
        for place, config in enumerate(
            rank_configs(search_configs(row, suite, dataset), record)[:RATES_TRIED], 1
        )
        for seed in final_seeds(row, suite)
    ]
    table = pd.DataFrame(rows, columns=['what', 'dataset', 'place', 'seed', 'config'])
    return table.assign(test_map=look_up_scores(table.config, record).test_map.to_numpy())


def _searches(datasets: Iterable[str]) -> list[tuple[str, Row, str]]:
    chosen = choose_sets(datasets, SEARCHES[0][2])
    return [
        (suite, row, name) for suite, row, names in SEARCHES for name in names if name in chosen
    ]


def _words(suite: str, row: Row) -> str:
    trained = 'whole network' if suite == 'photos_finetune' else f'{row.head} head'
    return f'{row.loss.upper()}, {trained}'


def _tried(datasets: Iterable[str]) -> list[Config]:
    return [
        config
        for suite, row, dataset in _searches(datasets)
        for config in search_configs(row, suite, dataset)
    ]


_sweep_rates = make_staged_sweep(
    _tried, lambda record, datasets: plan_rate_runs(record, datasets).config
)
# `pages` writes its page
EXPERIMENT = Experiment(_sweep_rates, write=lambda record, measured: [])


class _Rate(NamedTuple):
    what: str
    dataset: str
    place: int
    lr: float


def average_by_rate(scored: pd.DataFrame) -> pd.DataFrame:
    """What is reached at each rate.

    Args:
        scored: as from `plan_rate_runs`.

    Returns:
        DataFrame, one row per search and rate with a run: what, dataset, place, lr, level (mean
        test mAP in percent), change (from the chosen rate, a `statistics.Effect` over seeds).
    """
    done = scored.dropna(subset='test_map')
    done = done.assign(lr=[config.lr for config in done.config])
    levels = {
        _Rate(*rate): Scores(runs.set_index('seed').test_map)
        for rate, runs in done.groupby([*_Rate._fields], sort=False)
    }
    chosen = {(rate.what, rate.dataset): rate for rate in levels if rate.place == 1}
    bases = {rate: chosen.get((rate.what, rate.dataset)) for rate in levels}
    levels = {rate: scores for rate, scores in levels.items() if bases[rate]}
    changes = gains.gains_over_baselines(levels, {'chosen rate': bases})
    return changes.rename(columns={'effect': 'change'}).reindex(
        columns=['what', 'dataset', 'place', 'lr', 'level', 'change']
    )


def format_rate_choice(changes: pd.DataFrame) -> str:
    """The changes as a table, and what they mean for the gains, in Markdown.

    Args:
        changes: as from `average_by_rate`.
    """
    others = changes[changes.place > 1]
    if not len(others):
        return 'No runs yet: `spml sweep choice` trains them.\n'
    columns = [f'number {place}' for place in range(2, RATES_TRIED + 1)]
    rows = [['photos', 'method', 'chosen rate', 'test mAP', *columns]]
    for (what, dataset), part in changes.groupby(['what', 'dataset'], sort=False):
        best = part.iloc[0]
        cells = {line.place: _format_change(line) for line in part.itertuples()}
        of_others = [cells.get(place, '–') for place in range(2, RATES_TRIED + 1)]
        rows.append([dataset, what, f'{best.lr:g}', f'{best.level:.1f}', *of_others])
    rises = [
        max(part.itertuples(), key=lambda line: line.change.mean)
        for what, part in others.groupby('what', sort=False)
        if what.startswith('AN')
    ]
    return render_template('choice.md', rows=rows, rises=rises, means=_average_changes(others))


def _format_change(line) -> str:
    return f'{format_signed(line.change.mean)} ± {line.change.half_width:.1f} ({line.lr:g})'


def _average_changes(others: pd.DataFrame) -> list[str]:
    return [
        f'{what}, number {place}: {pool_effects(list(part.change))}'
        for (what, place), part in others.groupby(['what', 'place'], sort=False)
        if len(part) > 1
    ]
