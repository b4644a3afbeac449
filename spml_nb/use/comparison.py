"""The protocol's search, seeds and statistics on any folder, and which method to take."""

import hashlib
import json
import math
import shlex
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TypedDict

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from spml_nb.statistics import (
    LEVEL,
    Effect,
    estimate_effect,
    format_signed,
    holm,
    image_draws,
    resampled_auc,
    resampled_map,
)
from spml_nb.sweeps.boards import outcome
from spml_nb.sweeps.search import (
    SUITES,
    Row,
    candidates,
    expect_finals,
    finals,
    run_search,
    validation_scores,
)

from ..base import settings
from ..base.errors import SpmlError, one_of, require_kind
from ..base.files import write_atomically
from ..data import loading
from ..data.dataset import Dataset, join_items
from ..data.folder import candidate_folders, first_existing_folder
from ..data.glance import count_parts, describe_shared_photos, find_shipped_model
from ..data.labels import (
    FULL_PHOTOS,
    describe_truth,
    explain_missing_scores,
    labels_for_scoring,
    parse_label_setting,
)
from ..data.side import pin_side_file, side_kinds
from ..drawing import make_axes, to_svg
from ..methods.core import find, names
from ..metrics import average_precision, find_map_definition
from ..runs.config import Config, class_names
from ..runs.folder import Run, locate_run, read_result
from ..sweeps.estimate import time_photos
from ..sweeps.queue import (
    STARTUP,
    canonical_config,
    check_launch,
    find_earlier_runs,
    find_stale_runs,
    finished,
    format_duration,
    key,
    plan_runs,
)
from ..training import selection
from ..training.summary import OBSERVED_AUC, count_names
from ..training.task import make_task
from ..training.thresholds import explain_narrow_naming


def plan_comparison(
    rows: Iterable[Row], suite: str, folder: str, seeds: Sequence[int], known: pd.DataFrame
) -> pd.DataFrame:
    """What a comparison still has to train.

    Args:
        rows, suite: as in `sweeps.search.candidates`.
        folder: of photos.
        seeds: of the final runs.
        known: finished runs, as from `finished`.

    Returns:
        DataFrame as from `sweeps.queue.plan_runs`, without what is done; final runs that are not
        chosen yet stand there with the first configuration of their search.
    """
    every = []
    for row in rows:
        tried = candidates(row, suite, folder)
        every += tried + (
            finals(row, suite, folder, known, seeds) or expect_finals(row, suite, folder, seeds)
        )
    return plan_runs([c for c in every if key(c) not in known.index], known).query(
        "state != 'done'"
    )


def describe_time_left(left: pd.DataFrame, jobs: int, features: float = 0.0) -> str:
    """Say how long the rest of a comparison will take.

    Args:
        left: as from `plan_comparison`.
        jobs: runs at a time.
        features: seconds that the first run takes for the features of all photos; NaN if unknown.

    Returns:
        A sentence or two.
    """
    if not len(left):
        return 'Every run is done.'
    once = ''
    if features >= 1:
        once = f', {format_duration(features)} of it for the features of all photos, once'
    elif math.isnan(features):
        once = ', and once the features of all photos'
    if left.expected.notna().any():
        seconds = left.expected.fillna(left.expected.mean()).sum() / jobs
        seconds += 2 * STARTUP + np.nan_to_num(features)  # workers start for each of two stages
        length = f'about {format_duration(seconds)} on an idle machine{once}'
        return (
            f'{len(left)} runs to train: {length}. The runs count as long as recorded ones of this '
            'kind took; where those were of other photos or on another machine, yours may take '
            'several times as long.'
        )
    first = ''
    if features >= 1:
        first = f', which also takes {format_duration(features)} for the features of all photos'
    return (
        f'{len(left)} runs to train: no run of this kind is recorded, so the time left is said '
        f'after the first one{first}.'
    )


def _time_features(left: pd.DataFrame, data: Dataset, known: pd.DataFrame) -> float:
    """Seconds for the features of all photos, by a few of them; 0 where a run is done, so that they
    are kept, or none needs them.
    """
    if not len(left):
        return 0.0
    config = left.config.iloc[0]
    name = Path(config.dataset).name
    if config.regime != 'linear' or (len(known) and (known.dataset == name).any()):
        return 0.0
    return len(data) * time_photos(config, data)


@dataclass(frozen=True)
class Naming:
    """What a run names on validation photos.

    Attributes:
        photos: {class: how many photos it is named on}, by the threshold that the run has now.
        labels_a_photo: how many names a photo gets, on average.
        threshold: that the training chose.
        calibrated: whether labelled photos have chosen another one since.
    """

    photos: dict[str, int]
    labels_a_photo: float
    threshold: float
    calibrated: bool = False

    @property
    def classes(self) -> int:
        "How many classes are named at all."
        return sum(count > 0 for count in self.photos.values())

    @property
    def narrowness(self) -> str:
        "As from `explain_narrow_naming`."
        return explain_narrow_naming(self.photos, len(self.photos))


@dataclass(frozen=True)
class MethodLine:
    """A method of a comparison.

    Attributes:
        row: what was compared.
        runs: its finished final runs, by seed: `validation` and `test`, percent in `val_measure`
            and `test_measure`; `run`, '' where nothing is left of one but its line in runs.csv.
        resampled: {seed: (R,) test score on samples of the test images}; empty where the scores of
            a run are gone.
        resampled_val: the same of validation.
        guess: validation score of guessing, percent in `val_measure`; NaN where not at hand.
        naming: {seed: what its run names}, where it is at hand.
    """

    row: Row
    runs: pd.DataFrame
    resampled: dict[int, np.ndarray]
    resampled_val: dict[int, np.ndarray] = field(default_factory=dict)
    guess: float = math.nan
    naming: dict[int, Naming] = field(default_factory=dict)

    def find_best_seed(self) -> int | None:
        "That of the run with the best validation score, of those that are at hand."
        there = self.runs[self.runs.run != '']
        return int(there.index[int(there.validation.argmax())]) if len(there) else None

    @property
    def best_run(self) -> str:
        "Its name, '' where none is at hand."
        seed = self.find_best_seed()
        return '' if seed is None else str(self.runs.run[seed])

    @property
    def best_naming(self) -> Naming | None:
        "What the run with the best validation score names."
        seed = self.find_best_seed()
        return None if seed is None else self.naming.get(seed)

    @property
    def thresholds(self) -> list[float]:
        "That training chose, of the runs that are at hand, from the lowest to the highest."
        return sorted(
            self.naming[seed].threshold for seed in self.runs.index if seed in self.naming
        )

    def over(self, other: 'MethodLine | None' = None, part: str = 'test') -> Effect:
        """The mean score of a part over seeds, or the mean difference to another method, which
        shares a seed at least.
        """
        values = (self.runs[part] - (0 if other is None else other.runs[part])).dropna()
        lines = [self] if other is None else [self, other]
        both = [each.resampled if part == 'test' else each.resampled_val for each in lines]
        there = [seed for seed in values.index if all(seed in each for each in both)]
        if not there:
            return estimate_effect(values.tolist())
        own, *base = [
            np.mean([each[seed] for seed in there], 0) for each in both
        ]  # seeds whose scores are at hand
        return estimate_effect(values.tolist(), None, float(np.std(own - sum(base), ddof=1)))


COLUMNS = [
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


def score_method_line(
    row: Row, configs: Sequence[Config], known: pd.DataFrame, draws: np.ndarray, targets: np.ndarray
) -> MethodLine:
    """Read the final runs of a method.

    Args:
        row: what was compared.
        configs: its final runs.
        known: finished runs.
        draws: (R, N), as from `image_draws`.
        targets: (N, C) labels of the test images, as from `labels_for_scoring`.

    Returns:
        Line. Without a clean label in a part of the data, its scores there are observed AUC.
    """
    runs = known.reindex([key(c) for c in configs], columns=COLUMNS).set_axis(
        [c.seed for c in configs]
    )
    runs = runs.dropna(subset='test_map')
    blind_val = runs.selected_by == 'observed_auc'
    blind_test = runs.test_truth == 'observed only'
    any_blind_val, any_blind_test = bool(blind_val.any()), bool(blind_test.any())
    root = settings.path('runs')
    runs = runs.assign(
        validation=validation_scores(runs),
        test=runs.test_map.mask(blind_test, runs.observed_test_auc).astype(float),
        val_measure=np.where(blind_val, 'observed AUC', 'mAP'),
        test_measure=np.where(blind_test, 'observed AUC', 'mAP'),
        run=[name if (root / name / 'best.pt').is_file() else '' for name in runs.run],
    )
    of_test: dict[int, np.ndarray] = {}
    of_val: dict[int, np.ndarray] = {}
    naming: dict[int, Naming] = {}
    guess = 50.0 if any_blind_val else math.nan
    for config in configs:
        run = locate_run(canonical_config(config))
        if config.seed in runs.index and run.done:
            logits = read_result(run).logits
            definition = run.config.map_definition
            assert definition is not None  # the configuration of a run is resolved
            empty = find_map_definition(definition)['empty']
            naming[config.seed] = _describe_naming(run, logits['val'])
            of_test[config.seed] = _resampled(logits['test'], targets, draws, any_blind_test, empty)
            rules = selection.selection_targets(make_task(run.config), run.config.selection)
            by, classes = next(iter(rules.values()))
            scores, draws_val = logits['val'][:, classes], image_draws(len(by))
            of_val[config.seed] = _resampled(
                scores, by[:, classes], draws_val, any_blind_val, empty
            )
            if not any_blind_val:
                guess = guessed_map(by[:, classes], empty)
    return MethodLine(row, runs, of_test, of_val, guess, naming)


def _describe_naming(run: Run, logits: np.ndarray) -> Naming:
    "logits: (N, C) of validation."
    photos = count_names(logits, run.result()['class_names'], run.threshold())
    return Naming(
        photos,
        labels_a_photo=sum(photos.values()) / len(logits),
        threshold=run.result()['scores']['threshold'],
        calibrated=run.calibration() is not None,
    )


def guessed_map(targets: np.ndarray, empty: str) -> float:
    """The mAP in percent that scores get on average which know nothing of the images.

    Args:
        targets: (N, C) labels in {1, 0, −1}; 0 does not count.
        empty: of a class without a positive, as in `average_precision`.
    """
    aps = []
    for labels in targets.T:
        n = int(np.count_nonzero(labels))
        positives = int(np.count_nonzero(labels > 0))
        if positives:
            harmonic = (1 / np.arange(1, n + 1)).sum()
            # at rank k of a random order, a positive has (k − 1)·others other positives before it
            others = (positives - 1) / max(n - 1, 1)
            aps.append((harmonic + others * (n - harmonic)) / n)
        elif n and empty == 'zero':
            aps.append(0.0)
    return 100 * float(np.mean(aps)) if aps else math.nan


def _resampled(
    scores: np.ndarray, targets: np.ndarray, draws: np.ndarray, blind: bool, empty: str
) -> np.ndarray:
    "(R,) observed AUC or mAP on samples of the images."
    if blind:
        return resampled_auc(scores, targets, draws)
    measured = ~np.isnan(
        average_precision(scores, targets, empty=empty, unknown='ignore')
    )  # as in the run's mAP
    return resampled_map(scores[:, measured], targets[:, measured], draws)


CLOSE = 1.0  # points above guessing that are none, however small the interval
PLAIN = ('an', 'bce')  # one loss where no label is unknown
WIDER = 1.5  # times as many classes are named: enough to take a method that is not told apart
SPREAD = 2.0  # times the lowest threshold of the seeds: the highest is another one


def judge_methods(
    lines: Sequence[MethodLine], seeds: int = 0, complete: bool = False
) -> tuple[pd.DataFrame, str]:
    """Say what a comparison came to, on the seeds that all methods share.

    Args:
        lines: a method each.
        seeds: wanted of each; unset: as many as the line with the most has.
        complete: no training label was unknown, so that what methods gained on sets of single
            labels does not choose.

    Returns:
        DataFrame, the best on validation first: loss, head, validation and test (means in percent)
        in val_measure and test_measure, half (of the 95 % interval of test), over (mean difference
        to the method that the others are compared with), over_half, p (adjusted by Holm), run (the
        best on validation, '' where none is at hand), names and classes (what that run names on
        validation photos: labels a photo, and how many classes at all), lowest and highest (of the
        thresholds that the seeds chose), seeds; empty where no seed is shared; and what to take,
        in sentences.
    """
    through = [each for each in lines if len(each.runs)]
    if not through:
        return pd.DataFrame(), 'No method has finished. Mend what failed and run the command again.'
    shared = sorted(set.intersection(*(set(each.runs.index) for each in through)))
    notes = _notes(lines, through, shared, seeds)
    if not shared:
        return pd.DataFrame(), '\n'.join(
            ['No seed is done with every method, so nothing is advised.', *notes]
        )
    through = [
        replace(each, runs=each.runs.loc[shared]) for each in through
    ]  # else luck with seeds would choose
    base = next((each for each in through if each.row.loss == 'an'), through[0])
    table = pd.DataFrame([_judged(each, base) for each in through])
    table = table.sort_values('validation', ascending=False, kind='stable')
    tested = table.p.notna()
    table['p'] = pd.Series(holm(table.p[tested].tolist()), table.index[tested])
    return table.reset_index(drop=True), '\n'.join(
        [_advice(table, base, through, complete), *notes]
    )


def _notes(
    lines: Sequence[MethodLine], through: Sequence[MethodLine], shared: Sequence[int], seeds: int
) -> list[str]:
    "Sentences about what is missing."
    wanted = max(seeds, *(len(each.runs) for each in through))
    notes = [
        f'{each.row.loss}: {len(each.runs)} of {wanted} seeds (the others diverged or are not '
        'done).'
        for each in through
        if len(each.runs) < wanted
    ]
    if notes and shared:
        notes.append(
            f'All numbers are of the seeds that the methods share: {len(shared)} of {wanted}.'
        )
    if waiting := ', '.join(each.row.loss for each in lines if not len(each.runs)):
        notes.append(f'Not through: {waiting}.')
    if shared and not set(shared).intersection(*(each.resampled for each in through)):
        notes.append('The scores of some runs are gone, so that intervals are over seeds alone.')
    for each in through:
        idle = (each.runs.exercised == 0).sum()
        if idle:
            notes.append(
                f'{each.row.loss}: in {idle} of {len(each.runs)} runs the best epoch came before '
                f'{find(each.row.loss).mechanism} began.'
            )
    return notes


def _judged(each: MethodLine, base: MethodLine) -> dict[str, object]:
    "A row of the table."
    own, over = each.over(), each.over(base)
    naming = each.best_naming
    return {
        'loss': each.row.loss,
        'head': each.row.head or find(each.row.loss).head,
        'validation': each.runs.validation.mean(),
        'val_measure': each.runs.val_measure.iloc[0],
        'test': own.mean,
        'test_measure': each.runs.test_measure.iloc[0],
        'half': own.half_width,
        'over': over.mean,
        'over_half': over.half_width,
        'p': math.nan if each is base else over.p,
        'names': naming.labels_a_photo if naming else math.nan,
        'classes': naming.classes if naming else math.nan,
        'lowest': min(each.thresholds, default=math.nan),
        'highest': max(each.thresholds, default=math.nan),
        'seeds': len(each.runs),
        'run': each.best_run,
    }


class _Experience(TypedDict):
    """What the project's own sets of photos taught, for where a measurement cannot tell.

    Attributes:
        methods: {loss: mean gain over AN with a linear head, in points of mAP}.
        sets: over how many sets of photos.
        photos: {n: mean points of mAP lost by a choice with n fully labelled validation photos}.
        observed: the same of a choice by observed AUC on all validation photos.
        observed_map: the same of a choice by mAP against these labels.
    """

    methods: dict[str, float]
    sets: int
    photos: dict[str, float]
    observed: float
    observed_map: float


@cache
def read_experience() -> _Experience:
    """The experience that `spml tables` writes from the record."""
    file = files('spml_nb') / 'assets' / 'experience.json'
    experience: _Experience = json.loads(file.read_text(encoding='utf-8'))
    return experience


def _advice(
    table: pd.DataFrame, base: MethodLine, lines: Sequence[MethodLine], complete: bool
) -> str:
    """Lines about what to take: the best on validation, or of those that nothing tells apart the
    one known as best; where no label is unknown, the plain loss.
    """
    best = table.iloc[0]
    plain = table[(table.validation == best.validation) & table.loss.isin(PLAIN)]
    if complete and len(plain):
        best = plain.iloc[0]  # the same runs as the first
    by_loss = {each.row.loss: each for each in lines}
    rivals = {
        loss: each.over(by_loss[best.loss], 'validation')
        for loss, each in by_loss.items()
        if loss != best.loss
    }
    equal = [loss for loss, over in rivals.items() if over.error == over.mean == 0]
    near = {loss: over for loss, over in rivals.items() if loss not in equal and not over.high < 0}
    gains = {} if complete else read_experience()['methods']
    taken = _choose([best.loss, *near], gains, complete)
    observed = best.val_measure == 'observed AUC'
    verdict = _take(best, taken, near if rivals else None, by_loss[best.loss], gains)
    # where negatives are known, F1 has chosen thresholds, and tells whether names are right
    wider = _find_wider(by_loss[taken], by_loss, rivals) if observed else None
    if wider:
        verdict = _take_wider(wider, by_loss[taken], wider.row.loss in (best.loss, *near))
        taken = wider.row.loss
        near |= {loss: over for loss, over in rivals.items() if loss == taken}
    chosen = table[table.loss == taken].iloc[0]
    said = [*_near_guessing(chosen, by_loss[taken]), verdict]
    if near:
        said.append(_describe_validation(best, near, by_loss[best.loss]))
    naming = _naming(by_loss[taken], observed)
    said += naming
    if chosen.loss != base.row.loss:
        said.append(_gain(chosen, base, by_loss[chosen.loss], len(lines) - 1))
    elif chosen.seeds == 1:
        said.append('How sure: one seed decides nothing.')
    if complete:
        said.append(
            'No training label is unknown, so methods for missing labels have no advantage over '
            f'{" or ".join(PLAIN)}.'
        )
    if near:
        said.append(f'To know better: {_settling(near, best, complete, bool(naming))}')
    if observed and len(lines) > 1:
        said.append(_deciding_measure())
    if equal:
        said.append(f"The same runs here: {', '.join(equal)}.")
    return '\n'.join([*said, *_uses(chosen.run)])


def _uses(name: str) -> list[str]:
    "Where a run lies and what to do with it; nothing where it is gone."
    if not name:
        return []
    run = shlex.quote(name)
    return [
        f'The model: {settings.path("runs") / name}',
        f'Its mistakes, as a page: spml report {run}',
        f'For new photos: spml predict {run} PHOTOS',
    ]


def _choose(losses: Sequence[str], gains: dict[str, float], complete: bool) -> str:
    """The one with the highest gain on the project's sets of photos; the first if none of them was
    measured there. Where no label is unknown, the plain loss if it is among them.
    """
    if complete:
        return next((loss for loss in PLAIN if loss in losses), losses[0])
    return max(losses, key=lambda loss: gains.get(loss, -math.inf))


def _near_guessing(chosen: pd.Series, line: MethodLine) -> list[str]:
    score = line.over(part='validation')
    half = 0.0 if math.isnan(score.half_width) else score.half_width  # one seed has none
    if math.isnan(line.guess) or score.mean - max(half, CLOSE) > line.guess:
        return []
    interval = f' ± {half:.1f}' if half else ''
    return [
        f'On validation {chosen.loss} cannot be told from guessing: '
        f'{chosen.validation:.1f}{interval} % {chosen.val_measure}, and guessing gets '
        f'{line.guess:.1f} %. Do not rely on it; check the labels, or add photos.'
    ]


def _find_wider(
    chosen: MethodLine, by_loss: dict[str, MethodLine], rivals: dict[str, Effect]
) -> MethodLine | None:
    """The method to take instead of one that names hardly any class but one. It may be behind the
    best on validation, as long as that is not surely by more than `CLOSE`: such a lead is small
    beside classes that are named on no photo.
    """
    own = chosen.best_naming
    if own is None or not own.narrowness:
        return None
    behind = [loss for loss, over in rivals.items() if over.high < -CLOSE]
    widest = max((line for loss, line in by_loss.items() if loss not in behind), key=_count_named)
    return widest if _count_named(widest) >= WIDER * own.classes else None


def _count_named(line: MethodLine) -> int:
    "How many classes its best run names; 0 where it is gone."
    return line.best_naming.classes if line.best_naming else 0


def _naming(line: MethodLine, observed: bool) -> list[str]:
    """Sentences for a method that names hardly any class but one, and for thresholds that observed
    labels have chosen far apart.
    """
    own = line.best_naming
    if own is None:
        return []
    said = []
    if own.narrowness:
        said.append(f'What it names: on the validation photos {own.narrowness}')
    if observed and _is_spread(line.thresholds) and not own.calibrated:
        lowest, highest = line.thresholds[0], line.thresholds[-1]
        said.append(
            f'Its threshold: the seeds of {line.row.loss} chose from {lowest:.3g} to '
            f'{highest:.3g}, so how much it names is partly chance. Some {FULL_PHOTOS} photos '
            'labelled in full choose a surer one: `spml calibrate RUN FOLDER`.'
        )
    return said


def _is_spread(thresholds: list[float]) -> bool:
    return len(thresholds) > 1 and thresholds[-1] >= SPREAD * thresholds[0]


def _deciding_measure() -> str:
    "The sentence for who finds another order in mAP."
    experience = read_experience()
    return (
        'The score: go by observed AUC, also where the mAP that `spml runs` shows against observed '
        "labels orders the methods otherwise: on the project's sets of photos a choice by AUC lost "
        f'{experience["observed"]:.1f} points of true mAP, one by that mAP '
        f'{experience["observed_map"]:.1f}.'
    )


def _take(
    best: pd.Series,
    taken: str,
    near: dict[str, Effect] | None,
    line: MethodLine,
    gains: dict[str, float],
) -> str:
    "The sentence that names what to take."
    score = _score_of(best, line)
    if near is None:
        return (
            f'Only {best.loss} has finished, so there is nothing to compare: on validation, '
            f'{score}.'
        )
    if not near:
        return f'Take {best.loss}: it is the best on validation, {score}.'
    equals = f'{", ".join([best.loss, *near][:-1])} and {[*near][-1]}'
    reason = f'{taken} is the best of them on validation'
    if taken in gains:
        reason = _explain_gains(taken, [best.loss, *near], gains)
    elif taken != best.loss:
        reason = f'{taken} is the plainest of them'
    return f'Take {taken}: {equals} are equal as far as this can tell, and {reason}.'


def _score_of(best: pd.Series, line: MethodLine) -> str:
    truth = describe_truth(line.runs.val_truth.iloc[0])
    return f'{best.validation:.1f} % {best.val_measure} against {truth}'


def _describe_validation(best: pd.Series, near: dict[str, Effect], line: MethodLine) -> str:
    "How far apart the methods are between which something else has chosen."
    rivals = ', '.join(
        f'{loss} {_with_half(f"{abs(over.mean):.1f}", over.half_width)} points lower'
        for loss, over in near.items()
    )
    return f'On validation: {best.loss} {_score_of(best, line)}; {rivals}.'


def _explain_gains(chosen: str, losses: Sequence[str], gains: dict[str, float]) -> str:
    "Why one of those that nothing tells apart is the one to take."
    others = [
        f'{loss} {format_signed(gains[loss])}'
        for loss in losses
        if loss not in (chosen, 'an') and loss in gains
    ]
    beside = f' ({", ".join(others)})' if others else ''
    gained = '' if chosen == 'an' else f', {format_signed(gains[chosen])} points of mAP over AN'
    return (
        f"{chosen} did best on the project's {read_experience()['sets']} sets of photos"
        f'{gained}{beside}'
    )


def _take_wider(wider: MethodLine, narrow: MethodLine, is_near: bool) -> str:
    "Why a method that names more is taken instead of another, and how to have that one."
    loss = narrow.row.loss
    lead = (
        'equal otherwise as far as this can tell' if is_near else 'whose lead may be under a point'
    )
    return (
        f'Take {wider.row.loss}: it names {_count_named(wider)} classes on the validation photos, '
        f'{loss}, {lead}, only {_count_named(narrow)}.\nTo take {loss} all the same, label some '
        f'{FULL_PHOTOS} photos in full and let them choose its threshold: '
        f'`spml calibrate {shlex.quote(narrow.best_run)} FOLDER`.'
    )


def _gain(chosen: pd.Series, base: MethodLine, line: MethodLine, others: int) -> str:
    "The sentence on how far it is above what the others are compared with."
    kind = describe_truth(line.runs.test_truth.iloc[0])
    where = 'below' if chosen.over < 0 else 'above'
    gain = f'{chosen.over:+z.1f}'.lstrip('-')
    if chosen.seeds == 1:
        sure = ', with one seed, which decides nothing'
    else:
        gain += f' ± {chosen.over_half:.1f}'
        sure = ''
        if chosen.p >= LEVEL:
            sure = ', which may be chance'
            if chosen.over_half < abs(chosen.over):  # one method alone would not get it by chance
                sure += f', as {others} methods are compared'
    return (
        f'How sure: on the test images, against {kind}, it is {gain} points of '
        f'{chosen.test_measure} {where} {base.row.loss}{sure}.'
    )


def _settling(near: dict[str, Effect], best: pd.Series, complete: bool, naming: bool) -> str:
    "The sentence on what would tell them apart. naming: what is named is in doubt as well."
    if naming and best.val_measure == 'observed AUC':
        return (
            'photos labelled in full, as above: they also show how many names are right (`spml '
            'evaluate`), and more seeds do not.'
        )
    of_seeds = max((over.seeds - 1) / over.freedom for over in near.values()) ** 0.5
    if of_seeds > 0.5:  # their share of the variance
        return f'More seeds would tell: --seeds {max(10, 2 * best.seeds)}.'
    remedy = 'More validation photos would tell, more seeds hardly.'
    photos = read_experience()['photos']
    if complete or best.val_measure != 'observed AUC' or not photos:
        return remedy
    return (
        f"{remedy} A few labelled in full help the threshold, not this choice: on the project's "
        f"sets, choosing by 50 such photos lost {photos['50']:.1f} points of mAP, by the observed "
        f"labels of all validation photos {read_experience()['observed']:.1f}."
    )


TITLE_WIDTH = 70  # characters that fit above two panels


def draw_comparison(table: pd.DataFrame, title: str) -> bytes:
    """Draw a comparison.

    Args:
        table: as from `judge_methods`.
        title: above it.

    Returns:
        SVG, the same bytes for the same numbers.
    """
    return to_svg(lambda: _picture(table, title))


def _picture(table: pd.DataFrame, title: str) -> Figure:
    lines = textwrap.wrap(title, TITLE_WIDTH)
    height = 0.6 + 0.22 * len(table) + 0.17 * (len(lines) - 1)
    figure, ((scores, gains),) = make_axes(1, 2, 3.0, height)
    y = np.arange(len(table))[::-1]
    for ax, name, half, label in (
        (scores, 'test', 'half', f'test {table.test_measure[0]} (%)'),
        (gains, 'over', 'over_half', f'points over {_base_of(table)}'),
    ):
        ax.errorbar(table[name], y, xerr=table[half].fillna(0), fmt='o', capsize=2)
        ax.set(
            xlabel=label,
            yticks=y,
            yticklabels=table.loss if ax is scores else [],
            ylim=(-0.7, len(table) - 0.3),
        )
        ax.grid(axis='x', alpha=0.3)
    gains.axvline(0, color='#999999', linewidth=0.8)
    figure.suptitle('\n'.join(lines), parse_math=False)
    return figure


PHOTO_SUITES = ('photos', 'photos_finetune')  # suites whose recipe is for any photos


def compare(
    folder: str | Path,
    methods: Iterable[str] = (),
    labels: str = 'full',
    suite: str = 'photos',
    seeds: int = 3,
    min_positives: int = 0,
    *,
    exclude: str | Iterable[str] = (),
    side: str = '',
    dry_run: bool = False,
    tell: Callable[[str], None] = print,
    engine: str = 'local',
    address: str | None = None,
    jobs: int = 1,
) -> pd.DataFrame:
    """Search, choose, train with fresh seeds, and tell what to take.

    Args:
        folder: with images/ and labels.csv.
        methods: registered ones, each on its own head; none: the suite's, or all that `side` has
            enough for.
        labels, min_positives, exclude: as in `Config`.
        suite: one of `PHOTO_SUITES`, whose recipe is taken.
        seeds: how many final runs of each method, from seed 0.
        side: a file of side information (`spml_nb/data/side.py`) for the methods that use it.
        dry_run: only say how much there is.
        tell: is given the lines.
        engine, address, jobs: as in `sweeps.queue.run`.

    Returns:
        DataFrame as from `sweeps.queue.run`, of all runs of the comparison, those that were done
        before as well; as from `plan_comparison` for a dry run.

    Raises:
        SpmlError: for unknown methods, labels or suites, what is no folder, and as `load` and
            `sweeps.queue.run`.
        KeyboardInterrupt: after Ctrl-C, without a word on what to take.
    """
    one_of(suite, PHOTO_SUITES, 'suite')
    parse_label_setting(labels)
    check_launch(engine, address, jobs)
    if seeds < 1:
        raise SpmlError(
            f'seeds={seeds}; allowed: 1 or more, and 3 or more to say how sure a difference is.'
        )
    if not loading.own_folder(str(folder)):
        raise SpmlError(
            f'{folder} is no folder of photos. Give one that has images/ and labels.csv; the sets '
            'of the papers are compared by `spml sweep methods --dataset NAME`.'
        )
    folder = str(first_existing_folder(candidate_folders(folder)))  # known by its content
    listed = class_names(exclude if isinstance(exclude, str) else [*exclude])
    excluded: tuple[str, ...] = require_kind(listed, tuple, "'exclude'")
    losses = methods or SUITES[suite].get('methods')
    rows = _rows(losses, side, labels, min_positives, excluded)
    data = loading.load(folder, min_positives=min_positives, exclude=excluded)
    tell(_opening(data, rows))
    left = _left(rows, suite, folder, range(seeds))
    earlier = find_earlier_runs(_may_train(rows, suite, folder, range(seeds)))
    if earlier and len(left):
        tell(
            f'{len(earlier)} runs were trained before photos, labels or split changed. They stay '
            'as they are, under their names; a run of now with the same settings gets a name that '
            f'ends in -{data.fingerprint[:6]}.'
        )
    tell(describe_time_left(left, jobs, _time_features(left, data, finished())))
    if dry_run:
        return left
    done = run_search(
        rows, suite, folder, range(seeds), tell=tell, engine=engine, address=address, jobs=jobs
    )
    if (done.state == 'missing').any():
        raise KeyboardInterrupt  # a part has no verdict
    known = finished()
    tell(write_comparison(rows, suite, folder, seeds, known))
    return _with_earlier_runs(done, rows, suite, folder, range(seeds), known)


def _with_earlier_runs(
    done: pd.DataFrame,
    rows: Sequence[Row],
    suite: str,
    folder: str,
    seeds: Sequence[int],
    known: pd.DataFrame,
) -> pd.DataFrame:
    "The table of what was trained, behind what did not have to be trained again."
    asked = []
    for row in rows:
        asked += candidates(row, suite, folder)
        asked += finals(row, suite, folder, known, seeds)
    planned = plan_runs(asked, known)[['config', 'run']]
    earlier = planned[~planned.run.isin(done.run)].assign(state='done', message='')
    return pd.concat([earlier, done], ignore_index=True)


def _opening(data: Dataset, rows: Sequence[Row]) -> str:
    "What is compared on what, in words."
    methods = '1 method' if len(rows) == 1 else f'{len(rows)} methods'
    observed = f', labels {rows[0].labels}'
    if rows[0].labels == 'full':
        observed = (
            '; all labels in the table are used, unknown ones stay unknown; seeds change the '
            'training only'
        )
        if _is_complete(data, rows):
            observed += (
                '.\nNo training label is unknown, so methods for missing labels have nothing to do '
                'here'
            )
    opening = f'{data!r}\n{methods}{observed}.'
    return '\n'.join(filter(None, [opening, describe_shared_photos(data)]))


def _is_complete(data: Dataset, rows: Sequence[Row]) -> bool:
    "Whether no training label is unknown to the methods."
    return rows[0].labels == 'full' and bool((data.labels[data.rows('train')] != 0).all())


def _left(rows: Sequence[Row], suite: str, folder: str, seeds: Sequence[int]) -> pd.DataFrame:
    """What is to be trained. Refused where a run, any that a search may come to, had other photos
    under the same names and of the same sizes.
    """
    if old := find_stale_runs(_may_train(rows, suite, folder, seeds)):
        raise SpmlError(
            f'{len(old)} runs of {folder} were trained before its photos were changed in place. '
            f"Move them out of {settings.path('runs')} to compare anew: {join_items(old, 99)}."
        )
    return plan_comparison(rows, suite, folder, seeds, finished())


def _may_train(rows: Sequence[Row], suite: str, folder: str, seeds: Sequence[int]) -> list[Config]:
    "Every configuration that a search may come to."
    tried = [config for row in rows for config in candidates(row, suite, folder)]
    return tried + [replace(each, seed=seed, label_seed=seed) for each in tried for seed in seeds]


def _rows(
    methods: Iterable[str] | None,
    side: str,
    labels: str,
    min_positives: int,
    exclude: tuple[str, ...],
) -> list[Row]:
    """A row for each method, with the file of side information where it needs one; unset: all it
    has enough for.
    """
    if not methods:
        at_hand = side_kinds(side)
        methods = [name for name in names() if at_hand.issuperset(find(name).side)]
    file = pin_side_file(side) if side else ''
    return [
        Row(
            name,
            labels=labels,
            min_positives=min_positives,
            exclude=exclude,
            side=file if find(name).side else '',
        )
        for name in dict.fromkeys(methods)
    ]


def write_comparison(
    rows: Sequence[Row], suite: str, folder: str, seeds: int, known: pd.DataFrame
) -> str:
    """Judge a comparison as far as it has been run, and keep table, picture and sentences.

    Args:
        rows, suite, folder: as in `plan_comparison`.
        seeds: how many.
        known: finished runs, as from `finished`.

    Returns:
        For a person: a table, which scores are missing and why, what to take, and where it is kept.

    Raises:
        SpmlError: if the files cannot be written, or a run is damaged.
    """
    data = loading.load(folder, min_positives=rows[0].min_positives, exclude=rows[0].exclude)
    targets, truth = labels_for_scoring(data.labels[data.rows('test')])
    draws = image_draws(len(targets))
    table, said = judge_methods(
        [
            score_method_line(
                row, finals(row, suite, folder, known, range(seeds)), known, draws, targets
            )
            for row in rows
        ],
        seeds,
        _is_complete(data, rows),
    )
    if not len(table):
        return said
    chosen = outcome(rows, suite, folder, known, range(seeds)).set_index('loss')[
        ['lr', 'hparams', 'late']
    ]
    table = table.join(chosen, 'loss').assign(against=describe_truth(truth))
    truths = {part: labels_for_scoring(data.labels[data.rows(part)])[1] for part in ('val', 'test')}
    gaps = [
        explain_missing_scores(kind, ' and '.join(part for part in truths if truths[part] == kind))
        for kind in dict.fromkeys(truths.values())
    ]
    gaps += [describe_shared_photos(data)]
    gaps += [
        f'Of {known.photos} {part} photos {known.counted} count: of the others nothing is known to '
        'be absent. More photos annotated in full make scores surer.'
        for part, known in count_parts(data).iloc[1:].iterrows()
        if known.counted < known.photos
    ]
    asked = hashlib.sha256(
        '\n'.join(
            [
                *(folder, data.fingerprint, rows[0].labels, suite, str(rows[0].min_positives)),
                *rows[0].exclude,
            ]
        ).encode()
    ).hexdigest()
    place = settings.path('runs') / 'compare' / f'{Path(folder).name}-{asked[:6]}'
    shown = _format_table(table, len(data.class_names))
    above = [shown.to_string(index=False), _explain_table(table, truths), *filter(None, gaps)]
    shipped = find_shipped_model(data)
    if shipped and table.run.any():
        said += (
            f'\n{shipped.folder.name}, a model of the package, knows {shipped.known} of these '
            f'classes: spml evaluate {shipped.folder.name} FULL, and the same with your run, say '
            'which is better on photos labelled in full.'
        )
    text = '\n'.join([*above, '', said])
    title = (
        f'{data.name}, test {table.test_measure[0]} against {describe_truth(truth)}, '
        f'{table.seeds[0]} seeds, 95 % intervals'
    )
    for name, content in (
        ('table.csv', table.to_csv(index=False, lineterminator='\n')),
        ('picture.svg', draw_comparison(table, title).decode()),
        ('said.txt', f'{text}\n'),
    ):
        write_atomically(place / name, content)
    return f'{text}\nTable and picture: {place}'


def _base_of(table: pd.DataFrame) -> str:
    "The method that the others are compared with; '' where it is alone."
    return '' if len(table) == 1 else ''.join(table.loss[table.over.eq(0) & table.p.isna()])


def _format_table(table: pd.DataFrame, classes: int) -> pd.DataFrame:
    """A comparison as texts, for a person.

    Args:
        table: as from `judge_methods`.
        classes: how many there are.
    """
    shown = pd.DataFrame(
        {'method': table.loss, 'validation': table.validation.map('{:.1f}'.format)}
    )
    shown['test'] = list(map(_with_half, table.test.map('{:.1f}'.format), table.half))
    if base := _base_of(table):
        gains = pd.Series(map(_with_half, table.over.map(format_signed), table.over_half))
        shown[f'over {base}'] = gains.where(table.loss != base, '')
    if table.names.notna().any():
        shown['names'] = table.names.map(_format_or_blank('{:.2f}'))
        shown['classes'] = table.classes.map(_format_or_blank(f'{{:.0f}} of {classes}'))
        limits = table.lowest.map('{:.3g}'.format) + '–' + table.highest.map('{:.3g}'.format)
        shown['threshold'] = limits.where(table.lowest.notna(), '')
    return shown


def _format_or_blank(form: str) -> Callable[[float], str]:
    return lambda value: '' if math.isnan(value) else form.format(value)


def _with_half(value: str, half: float) -> str:
    return value if math.isnan(half) else f'{value} ± {half:.1f}'


_MEANINGS = {
    'mAP': 'how well photos with a class are ranked before the others, the mean over the classes '
    'that are there, in percent',
    'observed AUC': OBSERVED_AUC,
}


def _explain_table(table: pd.DataFrame, truths: dict[str, str]) -> str:
    """What the columns of a comparison mean, for who sees one for the first time.

    Args:
        table: as from `judge_methods`.
        truths: {'val', 'test': as from `labels_for_scoring`}.
    """
    first = table.iloc[0]
    seeds = 'one run' if first.seeds == 1 else f'{first.seeds} runs that differ in their seed'
    val, test = first.val_measure, first.test_measure
    lines = [
        f'validation: {val} against {describe_truth(truths["val"])}, the mean of {seeds}: '
        f'{_MEANINGS[val]}. It chose settings and epoch, and chooses here.',
    ]
    kind = 'the same'
    if (val, truths['val']) != (test, truths['test']):
        kind = f'{test} against {describe_truth(truths["test"])}'
        kind += '' if val == test else f' ({_MEANINGS[test]})'
    lines.append(f'test: {kind} on photos that chose nothing.')
    if not math.isnan(first.half):
        lines[-1] += (
            ' ±: with other seeds and other photos of this kind the number would be within that '
            'of what is shown in about 95 of 100 cases.'
        )
    if base := _base_of(table):
        lines.append(
            f'over {base}: by how many points test is above that of {base}; where ± is larger, '
            'that may be chance.'
        )
    if table.names.notna().any():
        lines.append(
            'names, classes: of the run with the best validation score, how many names it gives a '
            'validation photo on average, and how many classes it names on any of them. threshold: '
            'the probability from which on a class is named, lowest and highest of the seeds.'
        )
    return '\n'.join(lines)
