"""Every gain is over AN. How much would another learning rate of AN's own search change?"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from ...base.errors import one_of
from ...base.files import markdown_table
from ...runs.config import Config
from ...statistics import Scores, format_signed, pool_effects
from ...sweeps.search import Row, candidates, final_seeds, look_up_scores, rank_configs
from .. import gains
from .core import Experiment, make_staged_sweep

RATES_TRIED = 3
SEARCHES = [  # suite, row, sets of photos
    (
        'photos',
        Row('an', 'linear'),
        ('voc12_animals', 'coco18', 'mirflickr14', 'cub_crops', 'corel5k', 'ccp'),
    ),
    ('photos', Row('an', 'cosine'), ('voc12_animals', 'coco18', 'mirflickr14', 'cub_crops')),
    ('photos', Row('em', 'cosine'), ('voc12_animals',)),
    ('photos_finetune', Row('an', 'linear'), ('voc12_animals',)),
]


def plan_rate_runs(known: pd.DataFrame, datasets: Iterable[str] = ()) -> pd.DataFrame:
    """The best rates of each search, as far as it is through.

    Args:
        known: finished runs, as from `sweeps.finished` or `tables.record`.
        datasets: some of those of `SEARCHES`; none: all of them.

    Returns:
        DataFrame, one row per run: what (the method and what is trained, in words), dataset, place
        (1 is the chosen rate), seed, config, test_map (percent; NaN if it is not done).

    Raises:
        SpmlError: for another set of photos.
    """
    rows = [
        {
            'what': _words(suite, row),
            'dataset': dataset,
            'place': place,
            'seed': seed,
            'config': replace(config, seed=seed, label_seed=seed),
        }
        for suite, row, dataset in _searches(datasets)
        for place, config in enumerate(
            rank_configs(candidates(row, suite, dataset), known)[:RATES_TRIED], 1
        )
        for seed in final_seeds(row, suite)
    ]
    table = pd.DataFrame(rows, columns=['what', 'dataset', 'place', 'seed', 'config'])
    return table.assign(test_map=look_up_scores(table.config, known).test_map.to_numpy())


def _searches(datasets: Iterable[str]) -> list[tuple[str, Row, str]]:
    chosen = {one_of(name, SEARCHES[0][2], 'set of photos') for name in datasets}
    return [
        (suite, row, name)
        for suite, row, names in SEARCHES
        for name in names
        if name in chosen or not chosen
    ]


def _words(suite: str, row: Row) -> str:
    trained = 'whole network' if suite == 'photos_finetune' else f'{row.head} head'
    return f'{row.loss.upper()}, {trained}'


def _tried(datasets: Iterable[str]) -> list[Config]:
    return [
        config
        for suite, row, dataset in _searches(datasets)
        for config in candidates(row, suite, dataset)
    ]


sweep_rates = make_staged_sweep(
    _tried, lambda known, datasets: plan_rate_runs(known, datasets).config
)
# README.md of the setting `outputs` has its page
EXPERIMENT = Experiment(sweep_rates, write=lambda known, measured: [])


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
        DataFrame, one row per search and rate that has runs: what, dataset, place, lr, level (mean
        test mAP in percent), change (over the chosen rate, a `statistics.Effect` over seeds).
    """
    done = scored.dropna(subset='test_map')
    done = done.assign(lr=[config.lr for config in done.config])
    levels = {
        _Rate(*rate): Scores(runs.set_index('seed').test_map)
        for rate, runs in done.groupby([*_Rate._fields], sort=False)
    }
    chosen = {(rate.what, rate.dataset): runs for rate, runs in levels.items() if rate.place == 1}
    bases = {
        rate: chosen[rate.what, rate.dataset]
        for rate in levels
        if (rate.what, rate.dataset) in chosen
    }
    levels = {rate: levels[rate] for rate in bases}
    changes = gains.gains_over_baselines(levels, {'chosen rate': bases})
    return changes.rename(columns={'effect': 'change'}).reindex(
        columns=['what', 'dataset', 'place', 'lr', 'level', 'change']
    )


def format_rate_choice(found: pd.DataFrame) -> str:
    """The changes as a table, with what they mean for the gains, in Markdown.

    Args:
        found: as from `average_by_rate`.
    """
    others = found[found.place > 1]
    if not len(others):
        return 'No runs yet: `spml sweep choice` trains them.\n'
    columns = [f'number {place}' for place in range(2, RATES_TRIED + 1)]
    rows = [['photos', 'method', 'chosen rate', 'test mAP', *columns]]
    for (what, dataset), part in found.groupby(['what', 'dataset'], sort=False):
        best = part.iloc[0]
        texts = {each.place: _change(each) for each in part.itertuples()}
        changes = [texts.get(place, '–') for place in range(2, RATES_TRIED + 1)]
        rows.append([dataset, what, f'{best.lr:g}', f'{best.level:.1f}', *changes])
    rises = [
        max(part.itertuples(), key=lambda each: each.change.mean)
        for what, part in others.groupby('what', sort=False)
        if what.startswith('AN')
    ]
    largest = '; '.join(f'{each.what}, {each.change} on {each.dataset}' for each in rises)
    return (
        f'{_ABOUT}\n\n{markdown_table(rows)}\nThe largest rises: {largest}. Gains over that AN '
        f'would be so much smaller there.{_means(others)}\n'
    )


def _change(each) -> str:
    return f'{format_signed(each.change.mean)} ± {each.change.half_width:.1f} ({each.lr:g})'


def _means(others: pd.DataFrame) -> str:
    means = [
        f'{what}, number {place}: {pool_effects(list(part.change))}'
        for (what, place), part in others.groupby(['what', 'place'], sort=False)
        if len(part) > 1
    ]
    return f' Mean change over the sets: {"; ".join(means)}.' if means else ''


_ABOUT = (
    'A search trains each rate once, and intervals take its choice as given. Every gain is over '
    'AN, so here is AN at the rates that were second and third best on validation too, each with '
    'all final seeds: the change of its test mAP, with the interval over seeds. EM on the cosine '
    'head stands beside it, because what EM+APL gains over it there hangs on that rate. Rates in '
    'brackets; `spml sweep choice` trains these runs.'
)
