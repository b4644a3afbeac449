"""The gains of methods over their baselines, computed in one place from the table of record."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

import pandas as pd

from ..methods.core import find
from ..runs.config import Config
from ..statistics import NO_SCORES, Effect, Scores, default_image_error, estimate_paired_effect
from ..sweeps import boards, search
from ..sweeps.queue import run_key
from .published import PHOTOS_SUITE

# column of the test mAP, by the validation labels that chose the epoch
MEASURES = {'clean': 'test_map', 'observed': 'observed_test_map'}
SAME_HEAD, PLAIN_HEAD = 'AN on the same head', 'AN on the linear head'
SUITES = ('photos', 'photos_finetune')

# `labels` of BCE on as many fully labelled photos as validation has
AS_MANY = 'full, as many photos as validation has'


class Setting(NamedTuple):
    """A method as it was run.

    Attributes:
        suite, dataset: As in `search.search_configs`.
        loss, head, labels: As in `Config`; labels may be `AS_MANY`.
        choice: Validation labels that chose the epoch, a key of `MEASURES`.
    """

    suite: str
    dataset: str
    loss: str
    head: str
    labels: str
    choice: str = 'clean'


def estimate_gain(scores: Scores, base: Scores) -> Effect:
    """The mean paired difference of two methods, with its interval over seeds and test images.

    Args:
        scores, base: Of the same data set and metric.

    Returns:
        Effect, with 0 seeds if they have none in common.
    """
    fallback = default_image_error(scores.dataset, scores.metric) if scores.dataset else 0.0
    return estimate_paired_effect(scores, base, fallback=fallback)


Place = TypeVar('Place', bound=NamedTuple)


def collect_scores(runs: pd.DataFrame, place: type[Place]) -> dict[Place, Scores]:
    """The scores at each place that has every run.

    Args:
        runs: As from `experiments.core.tabulate_runs`.
        place: The named tuple of its fields, of which one is `dataset`.
    """
    scores = {}
    for names, of_place in runs.groupby([*place._fields], sort=False):
        if of_place.test_map.notna().all():
            first = run_key(of_place.config.iloc[0])
            by_seed = of_place.set_index('seed').test_map
            dataset = of_place.dataset.iloc[0]
            scores[place(*names)] = Scores(by_seed, first, dataset=dataset)
    return scores


def gains_over_baselines(
    scores: Mapping[Place, Scores], baselines: Mapping[str, Mapping[Place, Place]]
) -> pd.DataFrame:
    """The gains of several settings over one or more baselines.

    Args:
        scores: {setting: its scores}; a setting is a named tuple such as `Setting`.
        baselines: {name: {setting: the one that it is compared with}}; a setting that is missing,
            or whose baseline has no scores, has no gain.

    Returns:
        DataFrame, one row per setting and baseline: the fields of the setting, baseline (name),
        scores, level and level_half (mean and half its 95 % interval over seeds), n (seeds), effect
        (`Effect` over the baseline), gain and gain_half (its mean and half-width). NaN without a
        common seed.
    """
    rows = []
    for setting, own in scores.items():
        level = {
            'scores': own,
            'level': own.by_seed.mean(),
            'level_half': boards.half_interval(own.by_seed),
            'n': len(own.by_seed),
        }
        for name, bases in baselines.items():
            effect = estimate_gain(own, scores.get(bases.get(setting), NO_SCORES))
            gain = {'gain': effect.mean, 'gain_half': effect.half_width, 'effect': effect}
            rows.append({**setting._asdict(), 'baseline': name, **level, **gain})
    return pd.DataFrame(rows)


_BEST = ['best_stage', 'best_epoch']


def count_stage_2_starts(lines: pd.DataFrame) -> int:
    """The number of runs whose best epoch is the first of the second stage, so that what the stage
    adds hardly acted.

    Args:
        lines: Of the record.
    """
    return int((lines.reindex(columns=_BEST) == [2, 1]).all(axis=1).sum())


def mechanism_acted(lines: pd.DataFrame) -> bool:
    """Whether a method's own mechanism acted before the best epoch in more than half of its runs;
    True if nothing is recorded.

    Args:
        lines: Of the record.
    """
    return 'exercised' not in lines or not (lines.exercised == 0).mean() >= 0.5


def mechanism_acted_in(configs: Iterable[Config], runs: pd.DataFrame) -> bool:
    """`mechanism_acted` for the configurations with finished runs.

    Args:
        runs: Finished runs, as from `tables.read_recorded_runs`.
    """
    done = [name for name in map(run_key, configs) if name in runs.index]
    return mechanism_acted(runs.reindex(columns=['exercised']).loc[done])


def find_row_head(row: search.Row) -> str:
    """The head that a row of a board is trained on."""
    return row.head or find(row.loss).head


def board_row_runs(row: search.Row, suite: str, dataset: str, runs: pd.DataFrame) -> pd.DataFrame:
    """The final runs of a row of a board.

    Args:
        row: Of `boards.suite_rows(suite)`.
        suite, dataset: As in `search.search_configs`.
        runs: Finished runs, as from `tables.read_recorded_runs`.

    Returns:
        DataFrame by seed: run (name), test_map and observed_test_map in percent, test_micro_f1 in
        [0, 1], seconds, exercised, late, best_stage, best_epoch, validation (percent), first (key
        of the first run). Empty while the search is not finished.
    """
    configs = search.final_configs(row, suite, dataset, runs)
    columns = ['run', *MEASURES.values(), 'test_micro_f1', 'seconds', 'exercised', 'late']
    columns += ['validation']
    finals = runs.reindex(columns=columns).reindex([run_key(config) for config in configs])
    finals = finals.set_axis(pd.Index([config.seed for config in configs], dtype=int))
    finals = finals.dropna(subset='test_map')
    return finals.assign(first=run_key(configs[0]) if configs else '')


COLUMNS = [
    *Setting._fields,
    *('baseline', 'scores', 'level', 'level_half', 'n', 'gain', 'gain_half', 'effect'),
    *('seconds', 'late', 'validation', 'acted', 'run', 'micro_f1', 'base_run'),
]


def gains_of_suites(runs: pd.DataFrame, suites: Iterable[str] = SUITES) -> pd.DataFrame:
    """The gains of every method over AN, on every photo set where it has runs.

    Args:
        runs: Finished runs, as from `tables.read_recorded_runs`.
        suites: Keys of `search.SUITES`.

    Returns:
        DataFrame as from `gains_over_baselines`, in points of mAP, for each `Setting` over
        `SAME_HEAD` and `PLAIN_HEAD`, with the columns

        - seconds (of a run), late (share of runs whose best epoch is one of the last two),
          validation (mean of the measure that chooses in the search, percent)
        - acted: as from `mechanism_acted`
        - run, base_run: names of the first run and the baseline's, '' without one
        - micro_f1: mean on test images in percent, NaN for the choice by observed labels
    """
    scores, details = {}, {}
    for suite in suites:
        for dataset in search.SUITES[suite]['datasets']:
            if not len(runs) or not (runs.dataset == dataset).any():
                continue
            for row in boards.board_rows(suite, dataset):
                for setting, own, detail in _score_row(row, suite, dataset, runs):
                    scores[setting] = own
                    details[setting] = detail
    if not scores:
        return pd.DataFrame(columns=COLUMNS)

    def an_on(head_of):
        an = {s: s._replace(loss='an', head=head_of(s.head), labels='single') for s in scores}
        return {setting: base for setting, base in an.items() if base in scores}

    bases = {SAME_HEAD: an_on(boards.baseline_head), PLAIN_HEAD: an_on(lambda head: 'linear')}
    gains = gains_over_baselines(scores, bases)
    settings = [Setting(*row) for row in gains[[*Setting._fields]].itertuples(index=False)]
    base_runs = [
        details[bases[name][setting]]['run'] if setting in bases[name] else ''
        for name, setting in zip(gains.baseline, settings, strict=True)
    ]
    gains = gains.join(pd.DataFrame([details[setting] for setting in settings]))
    return gains.assign(base_run=base_runs)


def _score_row(
    row: search.Row, suite: str, dataset: str, runs: pd.DataFrame
) -> Iterator[tuple[Setting, Scores, dict]]:
    "Setting, scores and the other columns of `gains_of_suites` for each choice of the epoch."
    finals = board_row_runs(row, suite, dataset, runs)
    for choice, measure in MEASURES.items():
        by_seed = finals[measure].dropna()
        if not len(by_seed):
            continue
        clean = choice == 'clean'
        labels = AS_MANY if row.train_images else row.labels
        setting = Setting(suite, dataset, row.loss, find_row_head(row), labels, choice)
        # scores on resampled test images are stored for the clean choice alone
        scores = Scores(by_seed, finals['first'].iloc[0] if clean else '', dataset=dataset)
        details = {
            'seconds': finals.seconds.mean(),
            'late': finals.late.mean(),
            'validation': finals.validation.mean(),
            'acted': mechanism_acted(finals),
            'run': finals.run.iloc[0],
            'micro_f1': 100 * finals.test_micro_f1.mean() if clean else math.nan,
        }
        yield setting, scores, details


def select_clean_choice(measured: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """The gains of heads on frozen features over one baseline, the epoch chosen by clean labels.

    Args:
        measured: As from `gains_of_suites`.
        baseline: `SAME_HEAD` or `PLAIN_HEAD`.
    """
    return measured[
        (measured.suite == PHOTOS_SUITE)
        & (measured.choice == 'clean')
        & (measured.baseline == baseline)
    ]


def join_baselines(measured: pd.DataFrame) -> pd.DataFrame:
    """Gains over both baselines side by side.

    Args:
        measured: As from `gains_of_suites`.

    Returns:
        DataFrame, one row per `Setting`: the gains over `SAME_HEAD`, with plain, plain_half and
        plain_run for those over `PLAIN_HEAD`.
    """
    names = {'gain': 'plain', 'gain_half': 'plain_half', 'base_run': 'plain_run'}
    fields = [*Setting._fields]
    plain = measured[measured.baseline == PLAIN_HEAD].rename(columns=names)
    same_head = measured[measured.baseline == SAME_HEAD]
    return same_head.merge(plain[[*fields, *names.values()]], on=fields, how='left')
