"""Every gain is over AN. How much would another learning rate of AN's own search change?"""

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from ..base.errors import one_of
from ..base.files import grid
from ..sweeps import queue
from ..sweeps.search import Row, candidates, ranked, scores, seeds_of
from .statistics import Scores, paired, pooled, signed

BEST = 3
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


def planned(known: pd.DataFrame, datasets: Iterable[str] = ()) -> pd.DataFrame:
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
        for place, config in enumerate(ranked(candidates(row, suite, dataset), known)[:BEST], 1)
        for seed in seeds_of(row, suite)
    ]
    table = pd.DataFrame(rows, columns=['what', 'dataset', 'place', 'seed', 'config'])
    return table.assign(test_map=scores(table.config, known).test_map.to_numpy())


def _searches(datasets: Iterable[str]) -> list[tuple[str, Row, str]]:
    asked = {one_of(name, SEARCHES[0][2], 'set of photos') for name in datasets}
    return [
        (suite, row, name)
        for suite, row, names in SEARCHES
        for name in names
        if name in asked or not asked
    ]


def _words(suite: str, row: Row) -> str:
    return f"{row.loss.upper()}, {'whole network' if suite == 'photos_finetune' else f'{row.head} head'}"


def sweep(datasets: Iterable[str] = (), **launch) -> pd.DataFrame:
    """Train what is still needed; what is done is never run again.

    Args:
        datasets: as in `planned`.
        launch: dry_run, tell, engine, address and jobs, as in `sweeps.staged`.

    Returns:
        DataFrame as from `sweeps.staged`.

    Raises:
        SpmlError: as `planned` and `sweeps.run`.
    """
    search = [
        config
        for suite, row, dataset in _searches(datasets)
        for config in candidates(row, suite, dataset)
    ]
    return queue.staged(search, lambda known: planned(known, datasets).config, **launch)


def outcome(scored: pd.DataFrame) -> pd.DataFrame:
    """What is reached at each rate.

    Args:
        scored: as from `planned`.

    Returns:
        DataFrame, one row per search and rate that has runs: what, dataset, place, lr, level (mean
        test mAP in percent), change (over the chosen rate, a `statistics.Effect` over seeds).
    """
    lines = []
    for (what, dataset), part in scored.dropna(subset='test_map').groupby(
        ['what', 'dataset'], sort=False
    ):
        by_place = {
            place: Scores(runs.set_index('seed').test_map, '')
            for place, runs in part.groupby('place')
        }
        lines += [
            {
                'what': what,
                'dataset': dataset,
                'place': place,
                'lr': part.config[part.place == place].iloc[0].lr,
                'level': own.by_seed.mean(),
                'change': paired(own, by_place[1], fallback=0.0),
            }
            for place, own in by_place.items()
            if 1 in by_place
        ]
    return pd.DataFrame(lines, columns=['what', 'dataset', 'place', 'lr', 'level', 'change'])


def markdown(found: pd.DataFrame) -> str:
    """The changes as a table, with what they mean for the gains.

    Args:
        found: as from `outcome`.

    Returns:
        Markdown.
    """
    others = found[found.place > 1]
    if not len(others):
        return 'No runs yet: `spml sweep choice` trains them.\n'
    lines = [
        [
            'photos',
            'method',
            'chosen rate',
            'test mAP',
            *(f'number {k}' for k in range(2, BEST + 1)),
        ]
    ]
    lines += [
        [
            dataset,
            what,
            f'{part.lr.iloc[0]:g}',
            f'{part.level.iloc[0]:.1f}',
            *(
                ''.join(
                    f'{signed(each.change.mean)} ± {each.change.half_width:.1f} ({each.lr:g})'
                    for each in part[part.place == place].itertuples()
                )
                or '–'
                for place in range(2, BEST + 1)
            ),
        ]
        for (what, dataset), part in found.groupby(['what', 'dataset'], sort=False)
    ]
    largest = (
        max(part.itertuples(), key=lambda each: each.change.mean)
        for what, part in others.groupby('what', sort=False)
        if what.startswith('AN')
    )
    rises = '; '.join(f'{each.what}, {each.change} on {each.dataset}' for each in largest)
    means = '; '.join(
        f'{what}, number {place}: {pooled(list(part.change))}'
        for (what, place), part in others.groupby(['what', 'place'], sort=False)
        if len(part) > 1
    )
    return (
        f'{_ABOUT}\n\n{grid(lines)}\nThe largest rises: {rises}. Gains over that AN would be so '
        f'much smaller there.{f" Mean change over the sets: {means}." * bool(means)}\n'
    )


_ABOUT = (
    'A search trains each rate once, and intervals take its choice as given. Every gain is over '
    'AN, so here is AN at the rates that were second and third best on validation too, each with '
    'all final seeds: the change of its test mAP, with the interval over seeds. EM on the cosine '
    'head stands beside it, because what EM+APL gains over it there hangs on that rate. Rates in '
    'brackets; `spml sweep choice` trains these runs.'
)
