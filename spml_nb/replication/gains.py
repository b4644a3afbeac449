"""What methods gain over their baselines, computed once from the record.

Boards, verdicts, tables and pages read their gains here, so that a number is the same everywhere.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pandas as pd

from ..methods.core import find
from ..runs.config import Config
from ..statistics import NO_SCORES, Effect, Scores, estimate_paired_effect, image_sd
from ..sweeps import boards, search
from ..sweeps.queue import key

MEASURES = {'clean': 'test_map', 'observed': 'observed_test_map'}  # by what the epoch was chosen
SAME_HEAD, PLAIN_HEAD = 'AN on the same head', 'AN on the linear head'
SUITES = ('photos', 'photos_finetune')


# labels of BCE on as many fully labelled photos as validation has, the same on all sets
AS_MANY = 'full, as many photos as validation has'


class Setting(NamedTuple):
    """A method as it was run.

    Attributes:
        suite, dataset: as in `search.candidates`.
        loss, head, labels: as in `Config`; labels may be `AS_MANY`.
        choice: of the epoch, a key of `MEASURES`.
    """

    suite: str
    dataset: str
    loss: str
    head: str
    labels: str
    choice: str = 'clean'


def estimate_gain(own: Scores, base: Scores) -> Effect:
    """The mean paired difference of two methods, over seeds and test images.

    Args:
        own, base: of the same data set and metric.

    Returns: Effect; it has 0 seeds where none is common.
    """
    return estimate_paired_effect(
        own, base, fallback=image_sd(own.dataset, own.metric) if own.dataset else 0.0
    )


def gains_over_baselines(
    scores: Mapping[NamedTuple, Scores], baselines: Mapping[str, Mapping[NamedTuple, Scores]]
) -> pd.DataFrame:
    """All gains of a comparison.

    Args:
        scores: of each place, which is a named tuple such as `Setting`.
        baselines: {name: scores that those at each place are compared with}.

    Returns: DataFrame, one row per place and baseline: the fields of the place, baseline (its
        name), scores (of the place), level and level_half (mean and half its 95 % interval over
        seeds), n (seeds), gain and gain_half (with the interval over seeds and test images), effect
        (the same as an
        `Effect`). NaN without a common seed.
    """
    rows = []
    for place, own in scores.items():
        level = {
            'scores': own,
            'level': own.by_seed.mean(),
            'level_half': boards.half_interval(own.by_seed),
            'n': len(own.by_seed),
        }
        for name, bases in baselines.items():
            effect = estimate_gain(own, bases.get(place, NO_SCORES))
            gained = {'gain': effect.mean, 'gain_half': effect.half_width, 'effect': effect}
            rows.append({**place._asdict(), 'baseline': name, **level, **gained})
    return pd.DataFrame(rows)


_BEST = ['best_stage', 'best_epoch']


def count_stage_2_starts(runs: pd.DataFrame) -> int:
    """In how many runs the first epoch of the second stage was the best, so that what the stage
    adds hardly acted. runs: lines of the record.
    """
    return int((runs.reindex(columns=_BEST) == [2, 1]).all(axis=1).sum())


def mechanism_acted(runs: pd.DataFrame) -> bool:
    """Whether a method's own mechanism acted before selection stopped, in more than half of its
    runs.

    Args:
        runs: lines of the record, with the column `exercised` where methods have such a mechanism.

    Returns: bool, True where nothing is recorded.
    """
    return 'exercised' not in runs or not (runs.exercised == 0).mean() >= 0.5


def mechanism_acted_in(configs: Iterable[Config], known: pd.DataFrame) -> bool:
    """`mechanism_acted` of the runs of configurations, as far as they are done."""
    done = [name for name in map(key, configs) if name in known.index]
    return mechanism_acted(known.reindex(columns=['exercised']).loc[done])


def head_of_row(row: search.Row) -> str:
    """The head that a row is trained on."""
    return row.head or find(row.loss).head


def board_row_runs(row: search.Row, suite: str, dataset: str, known: pd.DataFrame) -> pd.DataFrame:
    """The final runs of a row of a board.

    Args:
        row: of `boards.suite_rows(suite)`.
        suite, dataset: as in `search.candidates`.
        known: as from `tables.record`.

    Returns: DataFrame by seed: run (its name), test_map and observed_test_map in percent,
        test_micro_f1 in [0, 1], seconds, exercised, late, best_stage, best_epoch, validation
        (percent), first (the key of the first run). Empty while the search is not through.
    """
    configs = search.finals(row, suite, dataset, known)
    columns = ['run', *MEASURES.values(), 'test_micro_f1', 'seconds', 'exercised', 'late', *_BEST]
    columns += ['validation']
    runs = known.reindex(columns=columns).reindex([key(c) for c in configs])
    runs = runs.set_axis(pd.Index([c.seed for c in configs], dtype=int)).dropna(subset='test_map')
    return runs.assign(first=key(configs[0]) if configs else '')


COLUMNS = [
    *Setting._fields,
    *('baseline', 'scores', 'level', 'level_half', 'n', 'gain', 'gain_half', 'effect'),
    *('seconds', 'late', 'validation', 'acted', 'begins_stage_2', 'run', 'micro_f1', 'base_run'),
]


def gains_of_suites(known: pd.DataFrame, suites: Iterable[str] = SUITES) -> pd.DataFrame:
    """What every method gains over AN, on every set of photos where it has runs.

    Args:
        known: as from `tables.record`.
        suites: keys of `search.SUITES`.

    Returns: DataFrame as from `gains_over_baselines`, the places being `Setting`s and the baselines
        `SAME_HEAD` and `PLAIN_HEAD`, in points of mAP; and seconds (of a run), late (share of runs
        whose best epoch is one of the last two), validation (mean of what compares runs of a
        search, percent), acted and begins_stage_2 (as from these functions), run and base_run (the
        names of the first run, and of the baseline's, '' without one), micro_f1 (mean of the test
        images in percent, NaN for the choice by observed labels).
    """
    scores, about = {}, {}
    for suite in suites:
        for dataset in search.SUITES[suite]['datasets']:
            if len(known) and (known.dataset == dataset).any():
                for row in boards.board_rows(suite, dataset):
                    _add_scores(row, suite, dataset, known, scores, about)
    if not scores:
        return pd.DataFrame(columns=COLUMNS)

    def on_head(head_of_base):
        bases = {
            place: place._replace(loss='an', head=head_of_base(place.head), labels='single')
            for place in scores
        }
        return {place: base for place, base in bases.items() if base in scores}

    bases = {SAME_HEAD: on_head(boards.baseline_head), PLAIN_HEAD: on_head(lambda head: 'linear')}
    found = gains_over_baselines(
        scores,
        {name: {place: scores[base] for place, base in of.items()} for name, of in bases.items()},
    )
    places = [Setting(*place) for place in found[[*Setting._fields]].itertuples(index=False)]
    base_runs = [
        about[bases[name][place]]['run'] if place in bases[name] else ''
        for name, place in zip(found.baseline, places, strict=True)
    ]
    return found.join(pd.DataFrame([about[place] for place in places])).assign(base_run=base_runs)


def _add_scores(row, suite, dataset, known, scores, about):
    runs = board_row_runs(row, suite, dataset, known)
    for choice, measure in MEASURES.items():
        by_seed = runs[measure].dropna()
        if not len(by_seed):
            continue
        labels = AS_MANY if row.train_images else row.labels
        place = Setting(suite, dataset, row.loss, head_of_row(row), labels, choice)
        # test images were resampled for the epoch of the clean choice alone
        first = runs['first'].iloc[0] if choice == 'clean' else ''
        scores[place] = Scores(by_seed, first, dataset=dataset)
        about[place] = {
            'seconds': runs.seconds.mean(),
            'late': runs.late.mean(),
            'validation': runs.validation.mean(),
            'acted': mechanism_acted(runs),
            'begins_stage_2': count_stage_2_starts(runs),
            'run': runs.run.iloc[0],
            'micro_f1': 100 * runs.test_micro_f1.mean() if choice == 'clean' else math.nan,
        }


def join_baselines(found: pd.DataFrame) -> pd.DataFrame:
    """Gains over both baselines side by side.

    Args:
        found: as from `gains_of_suites`.

    Returns: DataFrame, one row per `Setting`: the gains over `SAME_HEAD`, and plain, plain_half and
        plain_run (over `PLAIN_HEAD`).
    """
    names = {'gain': 'plain', 'gain_half': 'plain_half', 'base_run': 'plain_run'}
    plain = found[found.baseline == PLAIN_HEAD].rename(columns=names)
    return found[found.baseline == SAME_HEAD].merge(
        plain[[*Setting._fields, *names.values()]], on=[*Setting._fields], how='left'
    )
