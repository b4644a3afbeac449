"""Judges the finished runs of several methods: which one to take, and how sure that is."""

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import TypedDict

import numpy as np
import pandas as pd
from scipy.special import ndtri

from ..base import settings
from ..data.labels import FULL_PHOTOS, Truth, describe_truth
from ..methods.core import find
from ..metrics import average_precision, find_map_definition
from ..runs.config import Config
from ..runs.folder import Run, locate_run, read_result
from ..statistics import (
    SIGNIFICANCE_LEVEL,
    Effect,
    effect_from_error,
    estimate_effect,
    format_signed,
    holm,
    resampled_auc,
    resampled_map,
)
from ..sweeps.queue import canonical_config, run_key
from ..sweeps.search import Row, validation_scores
from ..training.selection import selection_targets
from ..training.summary import count_names
from ..training.task import Task, make_task
from ..training.thresholds import explain_narrow_naming
from .scoring import bootstrap_deviations, draw_photos, number_groups

MAP, AUC = 'mAP', 'observed AUC'  # what scores are measured in
SAMPLES = 100  # bootstrap samples of the photos

# ---- the results of a method


@dataclass(frozen=True)
class Naming:
    """What a run names on validation photos.

    Attributes:
        photos: {class: number of photos it is named on}, at the threshold that the run uses now.
        labels_a_photo: mean number of names per photo.
        threshold: chosen in training.
        calibrated: whether `spml calibrate` has replaced that threshold.
    """

    photos: dict[str, int]
    labels_a_photo: float
    threshold: float
    calibrated: bool = False

    @property
    def classes(self) -> int:
        "How many classes are named on any photo."
        return sum(count > 0 for count in self.photos.values())

    @property
    def narrowness(self) -> str:
        "A warning if hardly any class but one is named, as from `explain_narrow_naming`."
        return explain_narrow_naming(self.photos, len(self.photos))


@dataclass(frozen=True)
class MethodResult:
    """The finished final runs of a method.

    Attributes:
        row: the method and its settings.
        runs: DataFrame by seed with `validation` and `test` (percent, measured in `val_measure` and
            `test_measure`) and `run` ('' if the run's folder is gone and only its line in runs.csv
            remains), among others.
        resampled: {'validation' or 'test': {seed: (R,) the same score on bootstrap samples of the
            photos}}, without the seeds whose logits are gone.
        guess: expected validation score of random guessing; NaN if unknown.
        naming: {seed: what its run names}, without the seeds whose logits are gone.
    """

    row: Row
    runs: pd.DataFrame
    resampled: dict[str, dict[int, np.ndarray]]
    guess: float = math.nan
    naming: dict[int, Naming] = field(default_factory=dict)

    @property
    def best_seed(self) -> int | None:
        "The seed with the best validation score, of the runs on disk."
        on_disk = self.runs[self.runs.run != '']
        return None if on_disk.empty else int(on_disk.index[int(on_disk.validation.argmax())])

    @property
    def best_run(self) -> str:
        "The name of the run with the best validation score; '' if none is on disk."
        return '' if self.best_seed is None else str(self.runs.run[self.best_seed])

    @property
    def best_naming(self) -> Naming | None:
        "What the run with the best validation score names."
        return None if self.best_seed is None else self.naming.get(self.best_seed)

    @property
    def thresholds(self) -> list[float]:
        "Thresholds chosen in training, sorted; only of runs whose logits are still on disk."
        return sorted(
            self.naming[seed].threshold for seed in self.runs.index if seed in self.naming
        )

    def estimate_score(self, part: str) -> Effect:
        "The mean score over seeds. part: 'validation' or 'test'."
        return _estimate(self.runs[part], self.resampled[part])

    def estimate_gain(self, other: 'MethodResult', part: str, photos_alone: bool = False) -> Effect:
        """The mean gain over another method, on the seeds (one or more) that both have.

        photos_alone: with one seed, the interval is over photos alone, if its logits are on disk;
        else it is NaN.
        """
        base = other.resampled[part]
        resampled = {
            seed: scores - base[seed]
            for seed, scores in self.resampled[part].items()
            if seed in base
        }
        return _estimate(self.runs[part] - other.runs[part], resampled, photos_alone)


def _estimate(
    scores: pd.Series, resampled: dict[int, np.ndarray], photos_alone: bool = False
) -> Effect:
    """Mean and uncertainty of scores by seed; the photos' share of it comes from the seeds that
    were resampled.
    """
    scores = scores.dropna()
    samples = [resampled[seed] for seed in scores.index if seed in resampled]
    image_error = float(np.std(np.mean(samples, axis=0), ddof=1)) if samples else 0.0
    if photos_alone and samples and len(scores) == 1:
        return effect_from_error(scores.iloc[0], 0.0, 0.0, image_error**2, 1)
    return estimate_effect(scores.tolist(), image_error=image_error)


_COLUMNS = [
    'val_map',
    'val_map_seen',
    'test_map',
    'observed_val_auc',
    'observed_test_auc',
    'val_truth',
    'test_truth',
    'selected_by',
    'selection',
    'run',
    'exercised',
]


def read_method_result(
    row: Row, configs: Sequence[Config], finished: pd.DataFrame, targets: np.ndarray
) -> MethodResult:
    """Read the final runs of a method.

    Args:
        row: the method and its settings.
        configs: its final runs.
        finished: as from `sweeps.queue.load_finished_runs`.
        targets: (N, C) labels of the test photos, as from `choose_score_targets`.

    Returns:
        The result. Where no label is known to be absent, scores are observed AUC instead of mAP.
    """
    runs = _collect_scores(configs, finished)
    val_by_auc = bool((runs.val_measure == AUC).any())
    test_by_auc = bool((runs.test_measure == AUC).any())
    resampled: dict[str, dict[int, np.ndarray]] = {'validation': {}, 'test': {}}
    naming = {}
    guess = 50.0 if val_by_auc else math.nan
    for config in configs:
        if config.seed not in runs.index:
            continue
        run = locate_run(canonical_config(config))
        if not run.done:
            continue
        logits = read_result(run).logits
        assert run.config.map_definition is not None  # set in the configuration of every run
        empty = find_map_definition(run.config.map_definition)['empty']
        task = make_task(run.config)
        val_logits, val_targets = _select_validation(run, task, logits['val'])
        resampled['validation'][config.seed] = _resample(
            val_logits, val_targets, val_by_auc, empty, number_groups(task.data, task.val)
        )
        resampled['test'][config.seed] = _resample(
            logits['test'], targets, test_by_auc, empty, number_groups(task.data, task.test)
        )
        naming[config.seed] = _describe_naming(run, logits['val'])
        if not val_by_auc:
            guess = estimate_guessing_map(val_targets, empty)
    return MethodResult(row, runs, resampled, guess, naming)


def _collect_scores(configs: Sequence[Config], finished: pd.DataFrame) -> pd.DataFrame:
    "`MethodResult.runs`."
    runs = finished.reindex([run_key(config) for config in configs], columns=_COLUMNS)
    runs = runs.set_axis([config.seed for config in configs]).dropna(subset='test_map')
    val_by_auc = runs.selected_by == 'observed_auc'
    test_by_auc = runs.test_truth == Truth.OBSERVED_ONLY
    root = settings.get_folder('runs')
    return runs.assign(
        validation=validation_scores(runs),
        test=runs.test_map.mask(test_by_auc, runs.observed_test_auc).astype(float),
        # observed AUC counts every unknown label as negative, also where some are known
        val_truth=runs.val_truth.mask(val_by_auc, Truth.OBSERVED_ONLY.value),
        val_measure=np.where(val_by_auc, AUC, MAP),
        test_measure=np.where(test_by_auc, AUC, MAP),
        run=[name if (root / name / 'best.pt').is_file() else '' for name in runs.run],
    )


def _select_validation(run: Run, task: Task, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    "Logits and targets of validation, in the classes by which the run chose its epoch."
    rules = selection_targets(task, run.config.selection)
    targets, classes = next(iter(rules.values()))
    return logits[:, classes], targets[:, classes]


def _describe_naming(run: Run, logits: np.ndarray) -> Naming:
    "logits: (N, C) of validation."
    result = run.result()
    photos = count_names(logits, result['class_names'], run.threshold())
    return Naming(
        photos,
        labels_a_photo=sum(photos.values()) / len(logits),
        threshold=result['scores']['threshold'],
        calibrated=run.calibration() is not None,
    )


def _resample(
    scores: np.ndarray,
    targets: np.ndarray,
    by_auc: bool,
    empty: str,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """(R,) observed AUC or mAP on bootstrap samples of the photos. With groups, as from
    `number_groups`, of these; their samples spread as much more as their small number needs.
    """
    draws = draw_photos(len(targets), SAMPLES, groups)
    if by_auc:
        samples = resampled_auc(scores, targets, draws)
    else:
        # the classes that count in the run's mAP
        aps = average_precision(scores, targets, empty=empty, unknown='ignore')
        scored = ~np.isnan(aps)
        samples = resampled_map(scores[:, scored], targets[:, scored], draws)
    if groups is None or not groups.any():
        return samples
    wider = bootstrap_deviations(int(groups.max()) + 1) / float(ndtri(0.975))
    return samples.mean() + wider * (samples - samples.mean())


def estimate_guessing_map(targets: np.ndarray, empty: str) -> float:
    """The expected mAP of random scores, in percent.

    Args:
        targets: (N, C) labels in {1, 0, −1}; 0 is left out.
        empty: what a class without positives counts, as in `average_precision`.
    """
    aps = []
    for labels in targets.T:
        n = int(np.count_nonzero(labels))
        positives = int(np.count_nonzero(labels > 0))
        if positives:
            harmonic = (1 / np.arange(1, n + 1)).sum()
            # before a positive at rank k of a random order stand (k − 1)·density other positives
            density = (positives - 1) / max(n - 1, 1)
            aps.append((harmonic + density * (n - harmonic)) / n)
        elif n and empty == 'zero':
            aps.append(0.0)
    return 100 * float(np.mean(aps)) if aps else math.nan


# ---- which method to take

NEGLIGIBLE = 1.0  # points: a smaller distance from guessing, or lead over a method, is none
PLAIN_LOSSES = ('an', 'bce')  # the same loss where no label is unknown
WIDER = 1.5  # times as many named classes: reason to take a method that may be slightly behind
SPREAD = 2.0  # ratio of the seeds' highest to lowest threshold from which on they disagree


def judge_methods(
    methods: Sequence[MethodResult], seeds: int = 0, complete: bool = False
) -> tuple[pd.DataFrame, str]:
    """Recommend a method, by the seeds that all methods share.

    Args:
        methods: what is compared.
        seeds: how many final runs each should have; 0: as many as the method with the most.
        complete: no training label is unknown, so gains measured with single labels say nothing.

    Returns:
        Table and recommendation. The table, empty without a shared seed, has a row per method, the
        best on validation first: loss; head; validation and test (means in percent), measured in
        val_measure and test_measure; half (half the 95 % interval of test); over and over_half (the
        gain on test over the method that the others are compared with, AN if it is among them); p
        (of the gain, adjusted by Holm); names and classes (labels per validation photo and number
        of classes named by the best run); lowest and highest (of the seeds' thresholds); seeds; run
        (the best on validation, '' if none is on disk).
    """
    finished = [method for method in methods if len(method.runs)]
    if not finished:
        return pd.DataFrame(), 'No method has finished. Fix what failed and run the command again.'
    shared = sorted(set.intersection(*(set(method.runs.index) for method in finished)))
    notes = _describe_missing(methods, shared, seeds)
    if not shared:
        notes.insert(0, 'No seed has finished for every method, so nothing is recommended yet.')
        return pd.DataFrame(), '\n'.join(notes)
    # other seeds would favour the method that had the luckier ones
    finished = [replace(method, runs=method.runs.loc[shared]) for method in finished]
    base = next((method for method in finished if method.row.loss == 'an'), finished[0])
    table = pd.DataFrame([_make_table_row(method, base) for method in finished])
    table = table.sort_values('validation', ascending=False, kind='stable')
    tested = table.p.notna()
    table['p'] = pd.Series(holm(table.p[tested].tolist()), table.index[tested])
    table = table.reset_index(drop=True)
    return table, '\n'.join([_recommend(table, base, finished, complete), *notes])


def _describe_missing(
    methods: Sequence[MethodResult], shared: Sequence[int], seeds: int
) -> list[str]:
    "Sentences about missing runs and scores."
    finished = [method for method in methods if len(method.runs)]
    wanted = max(seeds, *(len(method.runs) for method in finished))
    notes = [
        f'{method.row.loss}: {len(method.runs)} of {wanted} seeds (the others diverged or have '
        'not finished).'
        for method in finished
        if len(method.runs) < wanted
    ]
    if notes and shared:
        notes.append(
            f'All numbers use only the seeds that every method has: {len(shared)} of {wanted}.'
        )
    if unfinished := ', '.join(method.row.loss for method in methods if not len(method.runs)):
        notes.append(f'Not finished: {unfinished}.')
    resampled = [method.resampled['test'] for method in finished]
    if shared and not set(shared).intersection(*resampled):
        notes.append(
            'The scores of some runs are no longer on disk, so intervals are over seeds alone, not '
            'over photos.'
        )
    for method in finished:
        idle = (method.runs.exercised == 0).sum()
        if idle:
            notes.append(
                f'{method.row.loss}: in {idle} of {len(method.runs)} runs the best epoch came '
                f'before {find(method.row.loss).mechanism} began.'
            )
    return notes


def _make_table_row(method: MethodResult, base: MethodResult) -> dict[str, object]:
    score = method.estimate_score('test')
    gain = method.estimate_gain(base, 'test')
    naming = method.best_naming
    return {
        'loss': method.row.loss,
        'head': method.row.head or find(method.row.loss).head,
        'validation': method.runs.validation.mean(),
        'val_measure': method.runs.val_measure.iloc[0],
        'test': score.mean,
        'test_measure': method.runs.test_measure.iloc[0],
        'half': score.half_width,
        'over': gain.mean,
        'over_half': 0.0 if method is base else gain.half_width,
        'p': math.nan if method is base else gain.p,
        'names': naming.labels_a_photo if naming else math.nan,
        'classes': naming.classes if naming else math.nan,
        'lowest': min(method.thresholds, default=math.nan),
        'highest': max(method.thresholds, default=math.nan),
        'seeds': len(method.runs),
        'run': method.best_run,
    }


class _Experience(TypedDict):
    """What was measured on the project's own sets of photos.

    Attributes:
        methods: {loss: mean gain over AN with a linear head, in points of mAP}.
        sets: number of data sets.
        spread: standard deviation of such a gain between them, the median over methods.
        photos: {n: mean points of mAP lost by choosing with n fully labelled validation photos}.
        observed: the same for choosing by observed AUC on all validation photos.
        observed_map: the same for choosing by mAP against the observed labels.
    """

    methods: dict[str, float]
    sets: int
    spread: float
    photos: dict[str, float]
    observed: float
    observed_map: float


@cache
def read_experience() -> _Experience:
    "What `spml tables` has written to assets/experience.json."
    file = files('spml_nb') / 'assets' / 'experience.json'
    experience: _Experience = json.loads(file.read_text(encoding='utf-8'))
    return experience


def _recommend(
    table: pd.DataFrame, base: MethodResult, methods: Sequence[MethodResult], complete: bool
) -> str:
    """Lines that say which method to take: the best on validation. Of those that validation cannot
    tell apart, the one that is expected to lead by `_expect_lead`, or, if no label is unknown, the
    plain loss.
    """
    best = _find_best(table, complete)
    by_loss = {method.row.loss: method for method in methods}
    gaps = {
        loss: method.estimate_gain(by_loss[best.loss], 'validation', photos_alone=True)
        for loss, method in by_loss.items()
        if loss != best.loss
    }
    identical = [loss for loss, gap in gaps.items() if gap.error == gap.mean == 0]
    near = {
        loss: gap for loss, gap in gaps.items() if loss not in identical and not _is_behind(gap)
    }
    gains = {} if complete else read_experience()['methods']
    taken = _choose_plain(best.loss, near) if complete else _choose(best.loss, near, gains)
    score = _format_score(best, by_loss[best.loss])
    verdict = _explain_choice(best.loss, score, taken, near, gains)
    if len(methods) == 1:
        verdict = (
            f'Only {taken} has finished, so there is nothing to compare: on validation, {score}.'
        )
    by_auc = best.val_measure == AUC
    # with known negatives, F1 has chosen the thresholds, and tells whether names are right
    wider = _find_wider(by_loss[taken], by_loss, gaps) if by_auc else None
    if wider is not None:
        verdict = _explain_wider(wider, by_loss[taken], wider.row.loss in (best.loss, *near))
        taken = wider.row.loss
        if taken in gaps:
            near[taken] = gaps[taken]
    chosen = table[table.loss == taken].iloc[0]
    naming = _describe_doubtful_naming(by_loss[taken], by_auc)
    lines = [*_warn_of_guessing(chosen, by_loss[taken]), verdict]
    if near:
        lines.append(_describe_validation(best.loss, score, near))
    lines += naming
    lines += _describe_certainty(chosen, base, by_loss[taken], len(methods))
    if complete:
        lines.append(
            'No training label is unknown, so methods for missing labels have no advantage over '
            f'{" or ".join(PLAIN_LOSSES)}.'
        )
    if near or (best.seeds == 1 and len(methods) > 1):
        lines.append(f'To be surer: {_suggest_next(near, best, complete, bool(naming))}')
    if by_auc and len(methods) > 1:
        lines.append(_describe_measure())
    if identical:
        lines.append(f'Same runs as {best.loss} here: {", ".join(identical)}.')
    return '\n'.join([*lines, *_list_uses(chosen.run)])


def _find_best(table: pd.DataFrame, complete: bool) -> pd.Series:
    "The best on validation; of equal ones the plain loss, if no label is unknown."
    best = table.iloc[0]
    plain = table[(table.validation == best.validation) & table.loss.isin(PLAIN_LOSSES)]
    return plain.iloc[0] if complete and len(plain) else best


def _is_behind(gap: Effect, margin: float = 0.0) -> bool:
    "Whether a gain is surely below −margin; where nothing says how sure it is, whether it is."
    highest = gap.mean if math.isnan(gap.high) else gap.high
    return highest < -margin


def _choose_plain(best: str, near: dict[str, Effect]) -> str:
    "A plain loss that is at most `NEGLIGIBLE` behind the best, else the best."
    equal = [best, *(loss for loss, gap in near.items() if gap.mean >= -NEGLIGIBLE)]
    return next((loss for loss in PLAIN_LOSSES if loss in equal), best)


def _choose(best: str, near: dict[str, Effect], gains: dict[str, float]) -> str:
    """The loss that is expected to lead. near: gains over the best on validation; gains: as in
    `_Experience.methods`. A loss without a measured gain is judged by validation alone.
    """
    leads = {best: 0.0}
    for loss, gap in near.items():
        gain = gains.get(loss, -math.inf) - gains.get(best, math.inf)
        leads[loss] = _expect_lead(gap, gain)
    return max(leads, key=lambda loss: leads[loss])


def _expect_lead(gap: Effect, gain: float) -> float:
    r"""The expected lead over the best on validation, in points; below 0 if it is not ahead.

    The mean of what was measured on these photos, $d$ with the standard error $s$, and on the
    project's sets of photos, $g$ with the standard deviation $\tau$ between sets, weighted by
    precision:

    $$\frac{\tau^2 d + s^2 g}{\tau^2 + s^2}$$

    A deficit above the gain on other photos is never outweighed, since few seeds say little of $s$.
    A point of observed AUC counts as a point of mAP.

    Args:
        gap: the gain on validation, at most 0.
        gain: on the project's sets; −∞ if unknown.

    Source: the mean of two normal distributions' product; $\tau$ is `_Experience.spread`, measured
    by `spml tables`.
    """
    if gain <= -gap.mean:
        return gap.mean
    between = read_experience()['spread'] ** 2
    return (between * gap.mean + gap.error**2 * gain) / (between + gap.error**2)


def _find_wider(
    chosen: MethodResult, by_loss: dict[str, MethodResult], gaps: dict[str, Effect]
) -> MethodResult | None:
    """The method to take instead of one that names hardly any class but one.

    It may be behind the best on validation, unless surely by more than `NEGLIGIBLE`: such a lead is
    small beside classes that are named on no photo. gaps: to the best on validation.
    """
    naming = chosen.best_naming
    if naming is None or not naming.narrowness:
        return None
    behind = [loss for loss, gap in gaps.items() if _is_behind(gap, NEGLIGIBLE)]
    near = [method for loss, method in by_loss.items() if loss not in behind]
    widest = max(near, key=_count_named)
    return widest if _count_named(widest) >= WIDER * naming.classes else None


def _count_named(method: MethodResult) -> int:
    "How many classes its best run names; 0 if that run is gone."
    return method.best_naming.classes if method.best_naming else 0


# ---- the sentences of a recommendation


def _explain_choice(
    best: str, score: str, taken: str, near: dict[str, Effect], gains: dict[str, float]
) -> str:
    if not near:
        return f'Take {best}: it is the best on validation, {score}.'
    losses = [best, *near]
    equal = f'{", ".join(losses[:-1])} and {losses[-1]}'
    leader = max(losses, key=lambda loss: gains.get(loss, -math.inf))
    reason = f'apart, and {taken} is the best of them on validation'
    if not gains and taken != best:
        reason = f'apart, and {taken}, at most a point behind, is the simplest of them'
    elif taken in gains and taken == leader:
        reason = f'apart, and {_explain_gains(taken, losses, gains)}'
    elif taken in gains:
        reason = _explain_weights(best, taken, leader, near, gains)
    return f'Take {taken}: validation cannot tell {equal} {reason}.'


def _explain_weights(
    best: str, taken: str, leader: str, near: dict[str, Effect], gains: dict[str, float]
) -> str:
    "Why a method is taken that is not the one with the highest gain on other photos."
    sets = f"on the project's {read_experience()['sets']} sets of photos"
    if taken != best:
        return (
            f'apart for sure, and the {gains[taken] - gains[best]:.1f} points that {taken} did '
            f'better than {best} {sets} count for more than the {-near[taken].mean:.1f} by which '
            'it is behind here'
        )
    return (
        f'apart for sure, and the {-near[leader].mean:.1f} points by which {best} leads count for '
        f'more than the {gains[leader] - gains[best]:.1f} that {leader} did better {sets}'
    )


def _format_score(best: pd.Series, method: MethodResult) -> str:
    truth = describe_truth(method.runs.val_truth.iloc[0])
    return f'{best.validation:.1f} % {best.val_measure} against {truth}'


def _explain_gains(taken: str, losses: Sequence[str], gains: dict[str, float]) -> str:
    "Gains on the project's sets of photos, of methods that validation cannot tell apart."
    others = ', '.join(
        f'{loss} {format_signed(gains[loss])}'
        for loss in losses
        if loss not in (taken, 'an') and loss in gains
    )
    gain = '' if taken == 'an' else f', {format_signed(gains[taken])} points of mAP over AN'
    compared = f' ({others})' if others else ''
    return (
        f"{taken} did best on the project's {read_experience()['sets']} sets of photos"
        f'{gain}{compared}'
    )


def _explain_wider(wider: MethodResult, narrow: MethodResult, is_near: bool) -> str:
    loss = narrow.row.loss
    lead = 'whose lead may be under a point'
    if is_near:
        lead = 'which validation cannot tell apart from it'
    return (
        f'Take {wider.row.loss}: it names {_count_named(wider)} classes on the validation photos; '
        f'{loss}, {lead}, names only {_count_named(narrow)}.\nTo take {loss} all the same, label '
        f'about {FULL_PHOTOS} photos in full and let them choose its threshold: '
        f'`spml calibrate {shlex.quote(narrow.best_run)} FOLDER`.'
    )


def _warn_of_guessing(chosen: pd.Series, method: MethodResult) -> list[str]:
    score = method.estimate_score('validation')
    half = 0.0 if math.isnan(score.half_width) else score.half_width  # NaN for one seed
    if math.isnan(method.guess) or score.mean - max(half, NEGLIGIBLE) > method.guess:
        return []
    interval = f' ± {half:.1f}' if half else ''
    return [
        f'On validation {chosen.loss} cannot be told from guessing: '
        f'{chosen.validation:.1f}{interval} % {chosen.val_measure}, and guessing gets '
        f'{method.guess:.1f} %. Do not rely on it; check the labels, or add photos.'
    ]


def _describe_validation(best: str, score: str, near: dict[str, Effect]) -> str:
    "How far apart the methods are that validation cannot tell apart."
    gaps = ', '.join(
        f'{loss} {format_with_half(f"{abs(gap.mean):.1f}", gap.half_width)} points lower'
        for loss, gap in near.items()
    )
    alone = any(gap.seeds == 1 and gap.error > 0 for gap in near.values())
    note = ' (± over photos alone, as there is one seed)' if alone else ''
    return f'On validation: {best} {score}; {gaps}{note}.'


def format_with_half(value: str, half: float) -> str:
    "'3.0 ± 0.7', without ± for NaN."
    return value if math.isnan(half) else f'{value} ± {half:.1f}'


def _describe_doubtful_naming(method: MethodResult, by_auc: bool) -> list[str]:
    "Warnings: hardly any class but one is named, or the seeds' thresholds are far apart."
    naming = method.best_naming
    if naming is None:
        return []
    warnings = []
    if naming.narrowness:
        warnings.append(f'What it names: on the validation photos {naming.narrowness}')
    thresholds = method.thresholds
    lowest, highest = thresholds[0], thresholds[-1]
    if by_auc and not naming.calibrated and len(thresholds) > 1 and highest >= SPREAD * lowest:
        warnings.append(
            f'Its threshold: the seeds of {method.row.loss} chose from {lowest:.3g} to '
            f'{highest:.3g}, so how much it names is partly chance. About {FULL_PHOTOS} photos '
            'labelled in full choose a more reliable one: `spml calibrate RUN FOLDER`.'
        )
    return warnings


def _describe_certainty(
    chosen: pd.Series, base: MethodResult, method: MethodResult, methods: int
) -> list[str]:
    "The gain on test over the base method, and whether it may be chance."
    is_single = chosen.seeds == 1
    if chosen.loss == base.row.loss:
        return ['How sure: one seed decides nothing.'] if is_single else []
    truth = describe_truth(method.runs.test_truth.iloc[0])
    direction = 'below' if chosen.over < 0 else 'above'
    gain = f'{chosen.over:+z.1f}'.lstrip('-')
    doubt = ''
    if is_single:
        doubt = ', with one seed, which decides nothing'
    else:
        gain += f' ± {chosen.over_half:.1f}'
        if chosen.p >= SIGNIFICANCE_LEVEL:
            doubt = ', which may be chance'
            if chosen.over_half < abs(chosen.over):  # significant if it were compared alone
                doubt += f', as {methods - 1} methods are compared'
    return [
        f'How sure: on the test images, against {truth}, it is {gain} points of '
        f'{chosen.test_measure} {direction} {base.row.loss}{doubt}.'
    ]


def _suggest_next(
    near: dict[str, Effect], best: pd.Series, complete: bool, naming_is_doubtful: bool
) -> str:
    "What would tell the methods apart."
    if best.seeds == 1:
        return 'train more seeds (--seeds 3 or more).'
    by_auc = best.val_measure == AUC
    if naming_is_doubtful and by_auc:
        return (
            'label photos in full, as above: they also show how many names are right (`spml '
            'evaluate`), which more seeds do not.'
        )
    share_of_seeds = max((gap.seeds - 1) / gap.freedom for gap in near.values()) ** 0.5
    if share_of_seeds > 0.5:  # of the variance
        return f'train more seeds (--seeds {max(10, 2 * best.seeds)}).'
    remedy = 'add validation photos; more seeds would hardly help.'
    experience = read_experience()
    if complete or not by_auc or not experience['photos']:
        return remedy
    return (
        f'{remedy} Labelling a few photos in full helps the threshold, not this choice: on the '
        f"project's sets of photos, choosing by 50 such photos lost "
        f'{experience["photos"]["50"]:.1f} points of mAP, choosing by the observed labels of all '
        f'validation photos {experience["observed"]:.1f}.'
    )


def _describe_measure() -> str:
    "Why not to choose by mAP against observed labels."
    experience = read_experience()
    return (
        'The score: trust observed AUC, even where `spml runs` shows an mAP against observed '
        "labels that ranks the methods differently. On the project's sets of photos, choosing by "
        f'AUC lost {experience["observed"]:.1f} points of true mAP, choosing by that mAP '
        f'{experience["observed_map"]:.1f}.'
    )


def _list_uses(run: str) -> list[str]:
    "Where a run is stored and what to do with it; empty if it is gone."
    if not run:
        return []
    quoted = shlex.quote(run)
    return [
        f'The model: {settings.get_folder("runs") / run}',
        f'Its mistakes, as a page: spml report {quoted}',
        f'For new photos: spml predict {quoted} PHOTOS',
    ]
