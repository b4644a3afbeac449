"""Scores a trained model on labelled photos: precision, recall, F1 and mAP with intervals."""

import math
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtri, stdtrit

from .. import metrics
from ..base.errors import SpmlError, parse_number, warn
from ..data.dataset import Dataset, choose_default_part, find_copies, join_items
from ..data.folder import (
    explain_split,
    find_folder,
    read_label_table,
    split_by_name,
    split_by_row,
)
from ..data.labels import FULL_PHOTOS_GUIDE, Truth, choose_score_targets, describe_truth
from ..data.loading import load
from ..data.loading import names as dataset_names
from ..runs.folder import Run, open_run, read_result
from ..statistics import image_draws, resampled_map
from ..training.task import split_validation
from ..training.thresholds import (
    explain_narrow_naming,
    is_class_overpredicted,
    warn_of_overprediction,
)
from .export import find_exported
from .predict import open_model
from .predictor import Predictor, Threshold, predict_rows, thresholds_as_array

REPEATS = 400  # bootstrap samples of the photos
# with fewer photos the width of an interval is itself a matter of chance, so stopping when it is
# narrow would give intervals that are too narrow
FEWEST_TO_STOP = 30
# with fewer right or fewer wrong, bootstrap samples hardly differ, and not at all if none is wrong
FEWEST_TO_DIFFER = 5


@dataclass(frozen=True, eq=False)
class LabelScores:
    """How well a model names the labels of some photos.

    Attributes:
        total: DataFrame of value, low and high (95 % interval over photos, or over groups of them
            where `groups` is set; NaN for a single one) in percent: 'mAP', and
            over all entries 'micro-F1', 'precision' and 'recall'. If the truth is 'observed only':
            'recall' of the observed labels, and 'precision at least', the share of the named labels
            that are observed.
        classes: DataFrame with a row per class: the counts present, named and right; precision with
            low and high, recall, and ap, in percent, NaN if undefined. In classes marked in
            `at_least` no label is known to be absent, so that right and precision are lower bounds.
        photos: number of photos.
        unused: photos that count nowhere, as in `choose_score_targets`.
        truth: as from `choose_score_targets`.
        left_out: number of unknown entries.
        threshold: a probability, or {class: probability}.
        labels_a_photo: mean number of labels named on a photo.
        without_label: percentage of photos without any named label.
        heading: which photos were scored, in words.
        absent: classes of the model that the data lack, and that are not scored.
        unlisted: classes of the model that a table with a column `labels` never names, and that
            therefore count as absent from every photo.
        groups: number of groups of photos that the intervals are over; None: over photos.
        calibrated: whether threshold or probabilities were calibrated after the training.
        samples: DataFrame with the columns of `total` in percent: of these photos, then of
            `REPEATS` bootstrap samples of them, the same samples for every model.
    """

    total: pd.DataFrame
    classes: pd.DataFrame
    photos: int
    unused: int
    truth: str
    left_out: int
    threshold: Threshold
    labels_a_photo: float
    without_label: float
    heading: str = ''
    absent: tuple = ()
    unlisted: tuple = ()
    groups: int | None = None
    calibrated: bool = False
    samples: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def units(self) -> int:
        "How many groups, or photos that count, the intervals are over."
        return self.photos - self.unused if self.groups is None else self.groups

    @property
    def resampling(self) -> str:
        "That the intervals are over groups; '' if they are over photos."
        return describe_groups(self.groups)

    @property
    def observed_only(self) -> bool:
        "Whether no label is known to be absent, so precision, F1 and mAP cannot be measured."
        return self.truth == Truth.OBSERVED_ONLY

    @property
    def _has_unknown(self) -> bool:
        return bool(self.left_out or self.classes.at_least.any())

    @property
    def over(self) -> str:
        "Which classes the mAP leaves out, and how the run's own mAP differs; '' if it has all."
        left_out = self.classes.index[self.classes.ap.isna()]
        if left_out.empty or self.observed_only:
            return ''
        return (
            f'mAP over {len(self.classes) - len(left_out)} of {len(self.classes)} classes: '
            f'{join_items(left_out, 20)} cannot be scored here, since no photo has it or none is '
            'known to lack it; with map_definition cole, that of named data sets and of earlier '
            'versions, `spml train` and `spml runs` count a class that no photo has as 0'
        )

    @property
    def bounds(self) -> str:
        "Which numbers are lower bounds, and why; '' if none is."
        classes = self.classes.index[self.classes.at_least]
        if classes.empty:
            return ''
        of = '' if self.observed_only else f'of {join_items(classes, 20)} '
        rest = '; mAP and F1 cannot be measured' if self.observed_only else ''
        return (
            f'{of}no label is known to be absent, so what is named beside the observed labels '
            f'may be right as well, and the numbers of right labels and the precision are lower '
            f'bounds{rest}. Recall is that of the observed labels.'
        )

    @property
    def overnaming(self) -> str:
        "A warning if nearly everything is named, else ''."
        labels = None if self._has_unknown else self.classes.present.sum() / self.photos
        return warn_of_overprediction(
            self.labels_a_photo, labels, len(self.classes), self.calibrated
        )

    @property
    def narrow_naming(self) -> str:
        """A warning if hardly any class but one is named, or one on nearly all photos, else ''.
        If every label is known, the table shows that.
        """
        if not self._has_unknown:
            return ''
        photos = {str(name): int(count) for name, count in self.classes.named.items()}
        narrow = explain_narrow_naming(photos, len(self.classes), self.calibrated)
        if narrow:
            return narrow
        overused = [
            f'{name} is named on {row.named:,} of {self.photos:,} photos, and {row.present:,} are '
            'known to have it'
            for name, row in self.classes.iterrows()
            if is_class_overpredicted(self.photos, row.named, row.present)
        ]
        if not overused or 2 * len(overused) > len(self.classes):  # `overnaming` warns of that
            return ''
        return (
            f'{"; ".join(overused)}. If not nearly every photo shows it: see what a threshold of '
            'its own names (`spml predict --per-class`), or train with more photos without it.'
        )

    @property
    def remarks(self) -> list[str]:
        "Warnings and limits of these scores, a text each."
        remarks = (
            self.overnaming,
            self.narrow_naming,
            self.over,
            self.bounds,
            self.resampling,
        )
        return [*filter(None, remarks)]

    @property
    def limit(self) -> str:
        "At which probability a label is named, in words."
        if isinstance(self.threshold, dict):
            return 'from the threshold of its class on'
        return f'from a probability of {self.threshold:.4g} on (threshold)'

    def __str__(self) -> str:
        kind = f'against {describe_truth(self.truth, self.left_out)}'
        if self.observed_only:
            kind = 'of which only some labels are known'
        lines = [
            f'{self.heading}{self.photos:,} photos, {kind}; a label is named {self.limit}',
            f'named: {self.labels_a_photo:.2f} labels a photo, none on '
            f'{self.without_label:.1f} % of the photos',
        ]
        if self.unused:
            lines.append(
                f'{self.unused:,} of them count nowhere: no label is known to be absent there, so '
                'nothing could be named wrongly'
            )
        if self.absent:
            names = join_items(self.absent, 20)
            lines.append(f'not scored, because the data do not have them: {names}')
        lines += [*filter(None, [describe_unlisted(self.unlisted)]), *self.remarks]
        for table in (self.total, self.classes):
            lines += ['', format_scores(table).to_string()]
        return '\n'.join(lines)


def format_scores(table: pd.DataFrame) -> pd.DataFrame:
    """Format a table of scores as texts.

    Args:
        table: `LabelScores.total` or `LabelScores.classes`.

    Returns:
        Counts without and percentages with one decimal, low and high as '95 % interval', '–' for
        NaN, 'at least' before lower bounds.
    """
    cells = table.drop(columns=['at_least', 'threshold'], errors='ignore').map(_format_number)
    if 'threshold' in table:
        cells.insert(0, 'threshold', table.threshold.map('{:.3g}'.format))
    if 'at_least' in table:
        for name in ('right', 'precision'):
            bounded = table.at_least & table[name].notna()
            cells[name] = cells[name].mask(bounded, 'at least ' + cells[name])
    interval = (cells.low + ' to ' + cells.high).where(table.low.notna(), '–')
    cells.insert(list(cells.columns).index('low'), '95 % interval', interval)
    return cells.drop(columns=['low', 'high'])


def _format_number(value: int | float) -> str:
    if math.isnan(value):
        return '–'
    return f'{value:z,.1f}' if isinstance(value, float) else f'{value:,}'


def _shares(counts: ArrayLike, totals: ArrayLike) -> np.ndarray:
    "In percent, NaN where the total is 0."
    counts, totals = np.asarray(counts), np.asarray(totals)
    shares = np.full(totals.shape, np.nan)
    return np.divide(100 * counts, totals, out=shares, where=totals > 0)


def wilson_interval(right: float, named: float) -> tuple[float, float]:
    """The 95 % interval of right / named in percent, NaN if nothing is named. It also holds for few
    photos. Counts may be fractions, as of groups in which a part is right.

    Source: Wilson (1927).
    """
    if not named:
        return math.nan, math.nan
    share, z = min(right / named, 1.0), float(ndtri(0.975))
    scale = 100 / (1 + z**2 / named)
    middle = scale * (share + z**2 / (2 * named))
    half = scale * z * math.sqrt(share * (1 - share) / named + z**2 / (4 * named**2))
    # free of rounding where all or none is right
    return 0.0 if share == 0 else middle - half, 100.0 if share == 1 else middle + half


def _resample_map(probabilities: np.ndarray, targets: np.ndarray, draws: np.ndarray) -> np.ndarray:
    "(R,) mAP of each bootstrap sample, over the classes that it has a photo of."
    aps = [
        resampled_map(probabilities[:, [c]], targets[:, [c]], draws)
        for c in range(targets.shape[1])
    ]
    has_positive = draws @ (targets > 0) > 0
    return np.sum(aps, axis=0) / np.where(has_positive.any(1), has_positive.sum(1), np.nan)


def number_groups(data: Dataset, rows: np.ndarray) -> np.ndarray | None:
    """Number the groups of photos (column `group`). Photos of a group, such as those of a patient,
    are alike, so that they say less than as many others: intervals are over groups.

    Args:
        rows: N rows of `data`.

    Returns:
        (N,) int from 0; a photo without a group is its own. None if no two photos share a group.
    """
    if data.groups is None:
        return None
    own = [('group', data.groups[row]) if data.groups[row] else ('photo', row) for row in rows]
    numbers = {group: number for number, group in enumerate(dict.fromkeys(own))}
    return np.array([numbers[group] for group in own]) if len(numbers) < len(rows) else None


def draw_photos(photos: int, repeats: int, groups: np.ndarray | None = None) -> np.ndarray:
    """Draw how often each photo counts in each bootstrap sample.

    Args:
        photos: N.
        repeats: number of samples, R.
        groups: (N,) as from `number_groups`: photos of a group are drawn together.

    Returns:
        (R, N) int64. Deterministic.
    """
    if groups is None:
        return image_draws(photos, repeats)
    return image_draws(int(groups.max()) + 1, repeats)[:, groups]


def describe_unlisted(names: tuple[str, ...]) -> str:
    "Say that classes count as absent, as `LabelScores.unlisted`; '' without any."
    if not names:
        return ''
    return (
        'counted as absent from every photo, because the column `labels`, which lists all labels '
        f'of a photo, never names them: {join_items(names, 20)}'
    )


def describe_groups(groups: int | None, of_one: str = 'there is no interval') -> str:
    """Say that intervals are over so many groups of photos; '' for None, over photos.

    Args:
        groups: how many.
        of_one: what that means for intervals if there is only one.
    """
    if groups is None:
        return ''
    if groups == 1:
        return (
            f'all photos that count are of one group (column `group`), so {of_one}: how far the '
            'score of other groups may differ, only photos of other groups tell.'
        )
    return (
        f'intervals are over {groups:,} groups of photos (column `group`), not over single photos, '
        'since photos of a group are alike.'
    )


def bootstrap_deviations(photos: int) -> float:
    """Half the width of a 95 % interval, in standard deviations of the bootstrap.

    1.96 for many photos, or groups of them where these are drawn; more for few, where these
    deviations are too small; NaN for one.

    Source: Hesterberg (2015).
    """
    if photos < 2:
        return math.nan
    return float(stdtrit(photos - 1, 0.975)) * math.sqrt(photos / (photos - 1))


def _score_samples(
    right: np.ndarray,
    named: np.ndarray,
    present: np.ndarray,
    draws: np.ndarray,
    maps: np.ndarray | None,
) -> pd.DataFrame:
    """`LabelScores.samples`, from (N, C) masks. maps: (1 + R,) mAP of the photos and of each
    sample; None if it cannot be measured.
    """
    hits, guesses, truths = (
        np.append(mask.sum(), draws @ mask.sum(1)) for mask in (right, named, present)
    )
    precision = _shares(hits, guesses)
    recall = _shares(hits, truths)
    if maps is None:
        return pd.DataFrame({'recall': recall, 'precision at least': precision})
    f1 = _shares(2 * hits, guesses + truths)
    return pd.DataFrame({'mAP': maps, 'micro-F1': f1, 'precision': precision, 'recall': recall})


def _interval(samples: pd.DataFrame, units: int) -> pd.DataFrame:
    "Value, low and high of each column of samples, of so many photos or groups."
    value = samples.iloc[0]
    half = bootstrap_deviations(units) * samples[1:].std(ddof=0)
    return pd.DataFrame({'value': value, 'low': value - half, 'high': value + half})


def _widen(
    intervals: pd.DataFrame,
    counts: dict[Any, tuple[np.ndarray, np.ndarray]],
    groups: np.ndarray | None,
) -> pd.DataFrame:
    """Widen bootstrap intervals to Wilson's where fewer than `FEWEST_TO_DIFFER` are right or wrong.

    Args:
        intervals: as from `_interval`.
        counts: {row of intervals: (N,) how many are right on each photo, and out of how many}.
        groups: (N,) as from `number_groups`; then each group counts as one.
    """
    intervals = intervals.clip(0, 100)
    for name, (right, named) in counts.items():
        hits, total = right.sum(), named.sum()
        few = min(hits, total - hits)
        if groups is not None:
            of_groups, in_groups = np.bincount(groups, right), np.bincount(groups, named)
            few = min((of_groups > 0).sum(), (of_groups < in_groups).sum())
            units = (in_groups > 0).sum()
            hits, total = hits * units / max(total, 1), units
        # NaN stays: there is nothing to be drawn from one photo
        if total and few < FEWEST_TO_DIFFER and not np.isnan(intervals.low[name]):
            low, high = wilson_interval(hits, total)
            intervals.loc[name, 'low'] = min(low, intervals.low[name])
            intervals.loc[name, 'high'] = max(high, intervals.high[name])
    return intervals


def _count_right(
    right: np.ndarray, named: np.ndarray, present: np.ndarray, samples: pd.DataFrame
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    "`counts` of `_widen` for the columns of `LabelScores.samples`, from (N, C) masks."
    hits, guesses, truths = (mask.sum(1) for mask in (right, named, present))
    counts = {
        'micro-F1': (hits, (guesses + truths) / 2),
        'precision': (hits, guesses),
        'precision at least': (hits, guesses),
        'recall': (hits, truths),
    }
    if 'mAP' in samples and not samples['mAP'].std() > 1e-9:  # each positive is ranked as it should
        counts['mAP'] = (truths * samples['mAP'].iloc[0] / 100, truths)
    return {name: counts[name] for name in samples if name in counts}


def _bound_precision(
    right: np.ndarray, named: np.ndarray, draws: np.ndarray, groups: np.ndarray, units: int
) -> np.ndarray:
    "(C, 2) low and high of the precision of each class, over groups, from (N, C) masks."
    samples = np.vstack(
        [_shares(right.sum(0), named.sum(0)), _shares(draws @ right, draws @ named)]
    )
    counts = {c: (right[:, c], named[:, c]) for c in range(right.shape[1])}
    bounds = _widen(_interval(pd.DataFrame(samples), units), counts, groups)
    return bounds[['low', 'high']].to_numpy()


def score_labels(
    probabilities: np.ndarray,
    labels: np.ndarray,
    names: list[str],
    threshold: Threshold,
    groups: np.ndarray | None = None,
) -> LabelScores:
    """Compare the labels that a model names with known labels.

    Intervals are by the bootstrap over photos (Efron, 1979): ± 1.96 standard deviations, a little
    more for few photos. They are slightly too narrow if some classes have only a handful of photos.
    Where hardly anything is wrong, or right, they are at least as wide as Wilson's, as samples of
    photos then hardly differ. The precision of a class, which may rest on a photo or two, has
    Wilson's interval. With `groups`, all of them are over groups.

    Args:
        probabilities: (N, C) in [0, 1].
        labels: (N, C) in {1, 0, −1}, 0 for unknown.
        names: C classes.
        threshold: the probability at which a label is named, or {class: probability}.
        groups: (N,) as from `number_groups`.

    Returns:
        Scores, without what only the caller knows (heading, absent, unlisted, calibrated). Classes
        without a known positive or a known negative have no AP and do not enter the mAP.

    Raises:
        SpmlError: if no photo has any of the classes.
    """
    targets, truth = choose_score_targets(labels)
    at_least = _find_lower_bounds(labels, truth)
    counted = np.where(at_least, labels > 0, targets != 0)
    present = (labels > 0) & counted
    if not present.any():
        raise SpmlError(
            'no photo is known to have any of the classes, so nothing can be scored. Check the '
            'labels.'
        )
    reached = probabilities >= thresholds_as_array(threshold)
    named = reached & (counted | at_least)
    right = reached & present
    measurable = present.any(0) & ~at_least & (truth != Truth.OBSERVED_ONLY)
    ap = 100 * metrics.average_precision(probabilities, targets, unknown='ignore')
    classes = _score_classes(names, right, named, present)
    classes.loc[at_least, ['low', 'high']] = np.nan
    classes['ap'] = np.where(measurable, ap, np.nan)
    classes['at_least'] = at_least
    if isinstance(threshold, dict):
        classes['threshold'] = list(threshold.values())
    draws = draw_photos(len(targets), REPEATS, groups)
    counts_somewhere = (targets != 0).any(1)
    units = int(counts_somewhere.sum())
    if groups is not None:
        units = len(np.unique(groups[counts_somewhere]))
        bounds = _bound_precision(right, named, draws, groups, units)
        classes.loc[~at_least, ['low', 'high']] = bounds[~at_least]
    maps = None
    if measurable.any():
        maps = _resample_map(probabilities[:, measurable], targets[:, measurable], draws)
        maps = np.append(ap[measurable].mean(), maps)
        right, named, present = (mask[:, ~at_least] for mask in (right, named, present))
    samples = _score_samples(right, named, present, draws, maps)
    counts = _count_right(right, named, present, samples)
    return LabelScores(
        total=_widen(_interval(samples, units), counts, groups),
        classes=classes,
        photos=len(targets),
        unused=int((~counts_somewhere).sum()),
        truth=truth,
        left_out=int((targets == 0).sum()),
        threshold=threshold,
        labels_a_photo=float(reached.sum(1).mean()),
        without_label=float(100 * (~reached.any(1)).mean()),
        groups=None if groups is None else units,
        samples=samples,
    )


def _find_lower_bounds(labels: np.ndarray, truth: str) -> np.ndarray:
    "(C,) bool: classes in which a label named beside the observed ones may be right as well."
    has_unknown = (labels == 0).any(0)
    if truth == Truth.OBSERVED_ONLY:
        return has_unknown
    return has_unknown & ~(labels < 0).any(0)


def _score_classes(
    names: list[str], right: np.ndarray, named: np.ndarray, present: np.ndarray
) -> pd.DataFrame:
    "Counts, precision and recall of each class, from (N, C) masks."
    classes = pd.DataFrame(
        {'present': present.sum(0), 'named': named.sum(0), 'right': right.sum(0)}, names
    )
    classes['precision'] = _shares(classes.right, classes.named)
    classes[['low', 'high']] = [*map(wilson_interval, classes.right, classes.named)]
    classes['recall'] = _shares(classes.right, classes.present)
    return classes


@dataclass(frozen=True)
class SampleSize:
    """How many photos to label in full for a score within some points.

    Attributes:
        metric: such as 'micro-F1'.
        photos: how many are labelled now.
        half_width: half the 95 % interval with these, in points.
        within: the half width that is wanted.
        needed: photos in all, estimated from those labelled now.
        groups: of how many groups they are, as in `LabelScores`.
    """

    metric: str
    photos: int
    half_width: float
    within: float
    needed: int
    groups: int | None = None

    def expect_half_width(self, photos: int) -> float:
        "Half the 95 % interval to be expected with so many photos, in points."
        return self.half_width * math.sqrt(self.photos / photos)

    def __str__(self) -> str:
        photos = f'{self.photos:,} fully labelled photos'
        drawn = 'drawn at random'
        if self.groups is not None:
            photos += f' of {self.groups:,} groups'
            drawn = 'of other groups, drawn at random'
        now = f'{self.metric} is known within ± {self.half_width:.1f} points by {photos}'
        more = self.needed - self.photos
        if more <= 0:
            return f'{now}: enough for ± {self.within:g}.'
        expected = ', '.join(
            f'± {self.expect_half_width(factor * self.photos):.1f} with {factor * self.photos:,}'
            for factor in (2, 4)
        )
        return (
            f'{now}. ± {self.within:g} needs about {self.needed:,} (expect {expected}): label '
            f'about {more:,} more in full, {drawn}.'
        )


def plan_sample(scores: LabelScores, within: float, metric: str = 'micro-F1') -> SampleSize:
    """Estimate how many photos to label in full until a score is precise enough.

    An interval narrows with the square root of the number of photos, if they were drawn at random
    (`annotate.draw_sample`). Estimate again after each dozen of new ones.

    Args:
        scores: of the photos labelled so far.
        within: half the 95 % interval that is wanted, in points.
        metric: a row of `scores.total`.

    Returns:
        The sample size, at least `FEWEST_TO_STOP` photos, or as many groups as large as these.

    Raises:
        SpmlError: if `within` is no positive number, or the score cannot be measured.
    """
    wanted = parse_number(within)
    if not 0 < wanted < math.inf:
        raise SpmlError(
            f'within={within!r}; allowed: a number above 0, in points, such as 5 for ± 5.'
        )
    photos = scores.photos - scores.unused
    row = scores.total.reindex([metric]).iloc[0]
    if row.isna().any():
        of = ' of one group' if scores.groups == 1 else ''
        other = ' of other groups' if of else ''
        raise SpmlError(
            f'{metric} has no interval on these {photos} photos{of}. Label some photos{other} in '
            f'full, drawn at random: {FULL_PHOTOS_GUIDE}'
        )
    value, low, high = map(float, row[['value', 'low', 'high']])
    half = max(value - low, high - value)  # one side may end at 0 or 100
    fewest = math.ceil(FEWEST_TO_STOP * photos / scores.units)
    needed = max(math.ceil(photos * (half / wanted) ** 2), fewest)
    return SampleSize(metric, photos, float(half), wanted, needed, scores.groups)


def _is_trained_on(description: dict, data: Dataset) -> bool:
    "Whether a model was trained on a data set of this name, or one with these test photos."
    tested: Any = description.get('tested')
    return (
        description['dataset'] == data.name
        or tested == data.photos_of('test')
        or bool(explain_split(data, tested))
    )


def _describe_training(description: dict, run: Run | None, data: Dataset, rows: np.ndarray) -> str:
    """A remark on whether the model was trained on some of these photos. Warns of test photos that
    are not those the model was tested on. run: None for an exported model.
    """
    if not _is_trained_on(description, data):
        return _describe_overlap(description, run, data, rows)
    if (data.split[rows] != 'test').any():
        return 'trained or chosen on photos of these names'
    tested: Any = description.get('tested')
    if tested not in (None, data.photos_of('test')):
        remedy = explain_split(data, tested) or (
            'If the parts have changed since, give the old ones in a column `split`; if these are '
            'other photos, take all of them (--part all).'
        )
        warn(
            f'{data.name}: these are not the test photos that the model was tested on, so it may '
            f'have been trained on some of them. {remedy}'
        )
    return ''


def _describe_overlap(description: dict, run: Run | None, data: Dataset, rows: np.ndarray) -> str:
    "A remark on how many of these photos trained the model or chose its epoch, byte for byte."
    seen = None if run is None else read_training_photos(run)
    copies = None if seen is None else _find_copies_of(seen, seen.split != 'test', data, rows)
    if copies is None:
        return (
            'whether the model was trained on some of them is not known: it learned from photos of '
            f'{description["dataset"]!r}, and if these are from there too, the scores are too good'
        )
    if not copies.any():
        return 'the model was trained on none of them'
    return f'{copies.sum():,} of them trained the model or chose it, so the scores are too good'


def find_trained(
    run: Run, seen: Dataset | None, data: Dataset, rows: np.ndarray
) -> np.ndarray | None:
    """Find the photos that a run was trained on, byte for byte and under any name.

    Args:
        run: finished.
        seen: as from `read_training_photos`.
        rows: N rows of `data`.

    Returns:
        (N,) bool; None if that is not known.
    """
    if seen is None:
        return None
    trained = seen.split == 'train'
    trained[_split_held_out(run, seen)[0]] = True
    return _find_copies_of(seen, trained, data, rows)


def _find_copies_of(
    seen: Dataset, chosen: np.ndarray, data: Dataset, rows: np.ndarray
) -> np.ndarray | None:
    "(N,) bool: rows of `data` that are chosen photos of `seen`; None if one of them has no files."
    if seen.images_in_memory or data.images_in_memory:
        return None
    photos = [Path(seen.images[row]) for row in np.flatnonzero(chosen)]
    return find_copies([Path(data.images[row]) for row in rows], photos)


def read_training_photos(run: Run) -> Dataset | None:
    """Load the photos of a finished run, with the parts that they had when it was trained.

    If the column `split` has been written since, the parts are drawn again.

    Returns:
        The data set; None if the photos are gone, or their parts then are not known.
    """
    try:
        with warnings.catch_warnings(action='ignore'):
            data = load(run.config.dataset, run.config.root, scored=True)
        validated = len(read_result(run).logits.get('val', ()))
    except SpmlError:
        return None
    for seen in _list_splits(data, find_folder(run.config.dataset, run.config.root)):
        is_as_tested = seen.photos_of('test') == run.result().get('tested')
        if is_as_tested and len(_split_held_out(run, seen)[1]) == validated:
            return seen
    return None


def _split_held_out(run: Run, data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    "Validation rows that a run was trained on all the same, and those it was not."
    rows = data.rows('val')
    return split_validation(rows, run.config) if run.config.hold_out else (rows, rows[:0])


def _list_splits(data: Dataset, folder: Path) -> Iterator[Dataset]:
    "A data set as it is, then with the parts that it may have had before."
    yield data
    if data.images_in_memory:
        return
    for parts in (('val',), ('test', 'val')):
        try:
            yield split_by_name(data, folder, parts)
        except SpmlError:  # too few photos
            pass
    if data.drawn:
        yield split_by_row(data)


def _describe_calibration(
    description: dict, run: Run | None, data: Dataset, rows: np.ndarray
) -> str:
    "A remark on how many of these photos chose the threshold of a model."
    if count := count_calibration_photos(run, data, rows):
        return f'{count:,} of them chose its threshold, so that precision, recall and F1 flatter it'
    has_hashes = run is not None and 'photo_hashes' in (run.calibration() or {})
    is_same_folder = description.get('threshold_from', {}).get('data') == data.fingerprint
    if is_same_folder and not has_hashes:
        return 'its threshold was chosen on photos of this folder'
    return ''


def count_calibration_photos(run: Run | None, data: Dataset, rows: np.ndarray) -> int:
    """Count the photos that chose the threshold of a run by `spml calibrate`, in any folder.

    Args:
        run: None for an exported model, which does not say.
        rows: of `data.images`.
    """
    calibration = None if run is None else run.calibration()
    hashes = (calibration or {}).get('photo_hashes', [])  # missing in older versions
    return int(np.isin(np.array(data.photo_hashes)[rows], hashes).sum()) if hashes else 0


@dataclass(frozen=True, eq=False)
class _Candidate:
    "A model to score. run: None if it is exported."

    model: Predictor
    run: Run | None
    threshold: Threshold

    def score(
        self, data: Dataset, rows: np.ndarray, names: list[str], is_complete: bool, part: str
    ) -> LabelScores:
        "Score rows over the named classes. part: which these are, in words."
        description = self.model.description
        of_model = [self.model.class_names.index(name) for name in names]
        threshold = self.threshold
        if isinstance(threshold, dict):
            threshold = {name: threshold[name] for name in names}
        remarks = (
            _describe_training(description, self.run, data, rows),
            _describe_calibration(description, self.run, data, rows),
        )
        scores = score_labels(
            predict_rows(self.model, data, rows)[:, of_model],
            match_labels(names, data, is_complete)[rows],
            names,
            threshold,
            number_groups(data, rows),
        )
        return replace(
            scores,
            heading=f'{"; ".join(filter(None, (part, *remarks)))}: ',
            absent=tuple(name for name in self.model.class_names if name not in names),
            unlisted=tuple(name for name in names if name not in data.class_names),
            calibrated=self.model.is_calibrated,
        )


def _open_candidate(model: str | Path, per_class: bool, device: str | None) -> _Candidate:
    opened = open_model(model, device)
    run = open_run(model) if find_exported(model) is None else None
    try:
        threshold = opened.choose_threshold(per_class=per_class)
    except SpmlError as error:
        raise SpmlError(f'{model}: {error.message}') from error
    return _Candidate(opened, run, threshold)


def _choose_rows(
    data: Dataset, part: str | None, candidates: list[_Candidate]
) -> tuple[np.ndarray, str]:
    "Rows of a part, and which these are, in words."
    is_trained_on = any(
        _is_trained_on(candidate.model.description, data) for candidate in candidates
    )
    chosen = part or choose_default_part(data, is_trained_on)
    rows = data.rows(chosen)
    if not len(rows):
        raise SpmlError(
            f'{data.name!r} has no photo in the part {chosen!r}. Take all of them (--part all), or '
            'mark rows in the column `split`.'
        )
    text = f'{data.name}, part {chosen}'
    if part is None and not is_trained_on and len(rows) < len(data):
        text += f' ({len(rows):,} of {len(data):,} photos; --part all for all)'
    return rows, text


def lists_all_labels(dataset: str | Path, root: str | Path | None = None) -> bool:
    """Whether the table of a data set has a column `labels`, which lists all labels of a photo.

    Args:
        dataset: a name, or a folder with images/ and labels.csv.
        root: as in `load`.
    """
    table = find_folder(dataset, root) / 'labels.csv'
    is_named = isinstance(dataset, str) and dataset in dataset_names()
    return not is_named and table.is_file() and 'labels' in read_label_table(table)


def match_labels(class_names: list[str], data: Dataset, is_complete: bool) -> np.ndarray:
    """Put the labels of a data set in the order of a model's classes.

    Args:
        class_names: C names.
        is_complete: as from `lists_all_labels`; a class that the data set lacks is then absent,
            else unknown.

    Returns:
        (N, C) int8 in {1, 0, −1}.
    """
    labels = np.full((len(data), len(class_names)), -1 if is_complete else 0, np.int8)
    for c, name in enumerate(class_names):
        if name in data.class_names:
            labels[:, c] = data.labels[:, data.class_names.index(name)]
    return labels


def _choose_classes(data: Dataset, candidates: list[_Candidate], is_complete: bool) -> list[str]:
    """Classes that all models have, and the data too unless they list all labels: then a class that
    is never named is known to be absent.
    """
    first, *others = [candidate.model.class_names for candidate in candidates]
    of_models = [name for name in first if all(name in other for other in others)]
    shared = [name for name in of_models if name in data.class_names]
    if not shared:
        raise SpmlError(
            f'no class of {data.name!r} ({join_items(data.class_names)}) is one of the model '
            f'({join_items(of_models)}). Rename those in labels.csv that mean the same.'
        )
    return of_models if is_complete else shared


def _score_models(
    models: Sequence[str | Path],
    dataset: str | Path,
    part: str | None,
    per_class: bool,
    root: str | None,
    device: str | None,
) -> list[LabelScores]:
    "Score models on the same photos and classes."
    candidates = [_open_candidate(model, per_class, device) for model in models]
    data = load(dataset, root, scored=True)
    rows, text = _choose_rows(data, part, candidates)
    is_complete = lists_all_labels(dataset, root)
    names = _choose_classes(data, candidates, is_complete)
    return [candidate.score(data, rows, names, is_complete, text) for candidate in candidates]


def evaluate_model(
    model: str | Path,
    dataset: str | Path,
    part: str | None = None,
    *,
    per_class: bool = False,
    root: str | None = None,
    device: str | None = None,
) -> LabelScores:
    """Score a model on labelled photos, over the classes that both have by name. Where the table
    has a column `labels`, classes that it never names are absent from every photo.

    Args:
        model: as in `spml_nb.use.predict.open_model`.
        dataset: a name, or a folder with images/ and labels.csv.
        part: 'train', 'val', 'test' or 'all'; None: as in `choose_default_part`.
        per_class: use one threshold per class.
        root: the folder of named data sets.
        device: None: the setting `device`.

    Raises:
        SpmlError: as `open_model` and `load`; if the part is empty, or no class is shared.
    """
    (scores,) = _score_models([model], dataset, part, per_class, root, device)
    return scores


@dataclass(frozen=True, eq=False)
class ModelComparison:
    """Two models on the same photos.

    Attributes:
        models: their names.
        scores: of each, over the classes that both models and the photos have.
        difference: DataFrame of value, low and high (95 % interval, over what those of the scores
            are), in points: the first model minus the second, for the rows of `LabelScores.total`.
    """

    models: tuple[str, str]
    scores: tuple[LabelScores, LabelScores]
    difference: pd.DataFrame

    def __str__(self) -> str:
        first, second = self.models
        of_first, of_second = (scores.total.value for scores in self.scores)
        table = format_scores(self.difference.rename(columns={'value': 'difference'}))
        table.insert(0, first, of_first.map('{:.1f}'.format), allow_duplicates=True)
        table.insert(1, second, of_second.map('{:.1f}'.format), allow_duplicates=True)
        names = self.scores[0].classes.index
        unlisted = self.scores[0].unlisted
        lines = [
            *(
                f'{name}: {scores.heading}{scores.labels_a_photo:.2f} labels a photo are named, '
                f'{scores.limit}'
                for name, scores in zip(self.models, self.scores, strict=True)
            ),
            f'{self.scores[0].photos:,} photos, and the {len(names)} classes that both models'
            f'{"" if unlisted else " and the photos"} have: {join_items(names, 20)}',
            *filter(None, (describe_unlisted(unlisted), self.scores[0].resampling)),
            '',
            table.to_string(),
            '',
            self._decide(),
        ]
        return '\n'.join(lines)

    def _decide(self) -> str:
        "Which model to take, by micro-F1."
        if 'micro-F1' not in self.difference.index:
            return 'Only photos labelled in full can tell which is better.'
        value, low, high = map(float, self.difference.loc['micro-F1', ['value', 'low', 'high']])
        first, second = self.models if value >= 0 else self.models[::-1]
        gap = f'{abs(value):.1f} ± {(high - low) / 2:.1f} points of micro-F1'
        if low <= 0 <= high:
            return f'{first} is {gap} above {second}, which may be chance. More photos would tell.'
        return f'{first} is better than {second}, by {gap}.{self._blame_threshold()}'

    def _blame_threshold(self) -> str:
        "A remark if the models differ in micro-F1 but not in mAP."
        low, high = map(float, self.difference.loc['mAP', ['low', 'high']])
        if not low <= 0 <= high:
            return ''
        return (
            ' mAP, which does not depend on thresholds, cannot tell them apart, so much of this '
            'may be due to their thresholds: calibrate both on the same photos (`spml calibrate`).'
        )


def _subtract(first: LabelScores, second: LabelScores) -> pd.DataFrame:
    "`ModelComparison.difference`."
    difference = _interval(first.samples - second.samples, first.units)
    # all photos differ in the same way, so samples of them say nothing
    is_rigid = (difference.high - difference.low < 1e-9) & (difference.value.abs() > 1e-9)
    difference.loc[is_rigid, 'low'] = first.total.low - second.total.high
    difference.loc[is_rigid, 'high'] = first.total.high - second.total.low
    return difference


def compare_models(
    models: tuple[str | Path, str | Path],
    dataset: str | Path,
    part: str | None = None,
    *,
    per_class: bool = False,
    root: str | None = None,
    device: str | None = None,
) -> ModelComparison:
    """Score two models on the same photos and classes.

    Photos that are hard for one are often hard for the other, so the difference has a narrower
    interval than the two scores would suggest.

    Args:
        models: each as in `evaluate_model`, as are the other arguments.

    Raises:
        SpmlError: as `evaluate_model`.
    """
    first, second = _score_models(models, dataset, part, per_class, root, device)
    difference = _subtract(first, second)
    first_name, second_name = (os.path.basename(os.path.normpath(model)) for model in models)
    return ModelComparison((first_name, second_name), (first, second), difference)
