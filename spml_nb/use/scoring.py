"""How well a trained model names known labels: counts, precision, recall, mAP, intervals."""

import math
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtrit
from scipy.stats import binomtest

from .. import metrics
from ..base.errors import SpmlError, parse_number, warn
from ..data import labels as label_values
from ..data.dataset import Dataset, default_part, find_copies, join_items
from ..data.folder import explain_split
from ..data.loading import load
from ..runs.folder import Run, open_run
from ..statistics import image_draws, resampled_map
from ..training.thresholds import explain_narrow_naming, explain_overnaming, is_overused
from .export import find_exported
from .predict import open_model
from .predictor import Predictor, limits_of, predict_rows

REPEATS = 400  # bootstrap samples of the photos
# photos that are labelled before anybody may stop: the width of an interval of fewer is itself a
# matter of chance, and who stops where it happens to be narrow gets too narrow ones
FEWEST_TO_STOP = 30


@dataclass(frozen=True, eq=False)
class LabelScores:
    """How well the labels of some photos are named.

    Attributes:
        total: DataFrame of value, low and high (95 % interval over photos), in percent, for 'mAP',
            'micro-F1', 'precision' and 'recall', the last three over all entries. Where the truth
            is 'observed only': 'recall' of the observed labels, and 'precision at least', the share
            of the named labels that are observed.
        classes: DataFrame, one row per class: the counts present, named and right; precision with
            low and high, recall, and ap, in percent; NaN where a number has nothing to stand on. In
            the classes marked in `at_least` a named label that is not in the table may be right, so
            that right and precision are lower bounds.
        labels_a_photo: how many labels are named on a photo, on average.
        without_label: the share of the photos for which none is named, in percent.
        photos: how many.
        unused: how many of them count nowhere, as in `labels.labels_for_scoring`.
        truth, left_out: as from `labels.labels_for_scoring`, and how many entries are unknown.
        threshold: a probability, or {class: probability}.
        heading: what was scored, in words.
        absent: classes of the model that the data do not have.
        calibrated: whether labelled photos chose the threshold after the training.
        samples: DataFrame with the columns of `total` in percent: of these photos, and of each of
            `REPEATS` bootstrap samples of them, which are the same for each model.
    """

    total: pd.DataFrame
    classes: pd.DataFrame
    photos: int
    unused: int
    truth: str
    left_out: int
    threshold: float | dict[str, float]
    labels_a_photo: float
    without_label: float
    heading: str = ''
    absent: tuple = ()
    calibrated: bool = False
    samples: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def observed_only(self) -> bool:
        """Whether precision, F1 and mAP cannot be measured, since in no class a label is known to
        be absent.
        """
        return self.truth == label_values.TRUTHS[2]

    @property
    def over(self) -> str:
        """Which classes the mAP leaves out, and what the run's own mAP does with them; '' if it has
        all, or is none.
        """
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
        "What is a lower bound, and why; '' if nothing is."
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
        "Says so where nearly everything is named; '' where nothing is unusual."
        some_unknown = self.left_out or self.classes.at_least.any()
        labels = None if some_unknown else self.classes.present.sum() / self.photos
        return explain_overnaming(self.labels_a_photo, labels, len(self.classes), self.calibrated)

    @property
    def narrow_naming(self) -> str:
        """Says so where hardly any class but one is named, or one on nearly all photos, and not
        every label is known, whose shares the table would show; '' where nothing is unusual.
        """
        if not (self.left_out or self.classes.at_least.any()):
            return ''
        photos = {str(name): int(count) for name, count in self.classes.named.items()}
        narrow = explain_narrow_naming(photos, len(self.classes), self.calibrated)
        if narrow:
            return narrow
        overused = [
            f'{name} is named on {row.named:,} of {self.photos:,} photos, and {row.present:,} are '
            'known to have it'
            for name, row in self.classes.iterrows()
            if is_overused(self.photos, row.named, row.present)
        ]
        if not overused or 2 * len(overused) > len(self.classes):  # `overnaming` says that
            return ''
        return (
            f'{"; ".join(overused)}. If not nearly every photo shows it: see what a threshold of '
            'its own names (`spml predict --per-class`), or train with more photos without it.'
        )

    @property
    def limit(self) -> str:
        "From which probability a label is named."
        if isinstance(self.threshold, dict):
            return 'from the threshold of its class on'
        return f'from a probability of {self.threshold:.4g} on (threshold)'

    def __str__(self) -> str:
        kind = f'against {label_values.describe_truth(self.truth, self.left_out)}'
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
                'that nothing could be named wrongly'
            )
        if self.absent:
            names = join_items(self.absent, 20)
            lines.append(f'not scored, because the data do not have them: {names}')
        remarks = (self.overnaming, self.narrow_naming, self.over, self.bounds)
        lines += [remark for remark in remarks if remark]
        for table in (self.total, self.classes):
            lines += ['', format_scores(table).to_string()]
        return '\n'.join(lines)


def format_scores(table: pd.DataFrame) -> pd.DataFrame:
    """A table of `LabelScores` for people.

    Args:
        table: `total` or `classes`.

    Returns:
        Its cells as texts: whole counts, one digit behind the point, low and high as '95 %
        interval', a dash for NaN, 'at least' before what is a lower bound.
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


def wilson_interval(right: int, named: int) -> tuple[float, float]:
    """The 95 % interval of a share, which holds for few photos too.

    Args:
        right: count.
        named: count, at least as large.

    Returns:
        Lowest and highest share, in percent; NaN where nothing is named.

    Source: Wilson (1927).
    """
    if not named:
        return math.nan, math.nan
    interval = binomtest(int(right), int(named)).proportion_ci(method='wilson')
    return 100 * interval.low, 100 * interval.high


def _resample_map(probabilities: np.ndarray, targets: np.ndarray, draws: np.ndarray) -> np.ndarray:
    "mAP of each draw of photos, (R,); a class counts where a draw has a photo with it."
    ap = [
        resampled_map(probabilities[:, [c]], targets[:, [c]], draws)
        for c in range(targets.shape[1])
    ]
    has_positive = draws @ (targets > 0) > 0
    return np.sum(ap, axis=0) / np.where(has_positive.any(1), has_positive.sum(1), np.nan)


def bootstrap_deviations(photos: int) -> float:
    """Half the width of a 95 % interval in standard deviations of the bootstrap, which are a little
    small where photos are few; NaN for one photo.

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
    """`LabelScores.samples`, from (N, C) masks. maps: (1 + R,), the mAP of the photos and of each
    draw; None where it cannot be measured.
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


def _interval(samples: pd.DataFrame, photos: int) -> pd.DataFrame:
    "Value, low and high of each column of samples. photos: how many count."
    value = samples.iloc[0]
    half = bootstrap_deviations(photos) * samples[1:].std(ddof=0)
    return pd.DataFrame({'value': value, 'low': value - half, 'high': value + half})


def score_labels(
    probabilities: np.ndarray,
    labels: np.ndarray,
    names: list[str],
    threshold: float | dict[str, float],
    heading: str = '',
    absent: tuple[str, ...] = (),
    calibrated: bool = False,
) -> LabelScores:
    """Compare what a model says with what is known.

    Other photos of the same kind would give other numbers. So the photos are drawn again, with
    replacement, and the interval is ± 1.96 standard deviations of the resulting scores (Efron,
    1979), a little more for few photos. Where some classes have a handful of photos it is a little
    too narrow. For the precision of one class, which may rest on a photo or two, it is Wilson's
    interval.

    Args:
        probabilities: (N, C) in [0, 1].
        labels: (N, C) in {1, 0, −1}, 0 for unknown.
        names: C classes.
        threshold: from which probability on a label is named, or {class: probability}.
        heading, absent, calibrated: as in `LabelScores`.

    Returns:
        Scores. A class without a known positive, or in which nothing can be wrong, has no AP and no
        part in the mAP.

    Raises:
        SpmlError: where no photo has any of the classes.
    """
    targets, truth = label_values.labels_for_scoring(labels)
    at_least = _are_bounds(labels, truth)
    counted = np.where(at_least, labels > 0, targets != 0)
    present = (labels > 0) & counted
    if not present.any():
        raise SpmlError(
            'no photo is known to have any of the classes, so nothing can be scored. Check the '
            'labels.'
        )
    reached = probabilities >= limits_of(threshold)
    named = reached & (counted | at_least)
    right = reached & present
    classes = pd.DataFrame(
        {'present': present.sum(0), 'named': named.sum(0), 'right': right.sum(0)}, names
    )
    intervals = np.array([*map(wilson_interval, classes.right, classes.named)])
    classes['precision'] = _shares(classes.right, classes.named)
    classes[['low', 'high']] = np.where(at_least[:, None], np.nan, intervals)
    classes['recall'] = _shares(classes.right, classes.present)
    measurable = present.any(0) & ~at_least & (truth != label_values.TRUTHS[2])
    ap = 100 * metrics.average_precision(probabilities, targets, unknown='ignore')
    classes['ap'] = np.where(measurable, ap, np.nan)
    classes['at_least'] = at_least
    if isinstance(threshold, dict):
        classes['threshold'] = list(threshold.values())
    draws = image_draws(len(targets), REPEATS)
    unused = int((targets == 0).all(1).sum())
    if measurable.any():
        maps = _resample_map(probabilities[:, measurable], targets[:, measurable], draws)
        right, named, present = (mask[:, ~at_least] for mask in (right, named, present))
        maps = np.append(ap[measurable].mean(), maps)
        samples = _score_samples(right, named, present, draws, maps)
    else:
        samples = _score_samples(right, named, present, draws, None)
    return LabelScores(
        total=_interval(samples, len(targets) - unused).clip(0, 100),
        classes=classes,
        photos=len(targets),
        unused=unused,
        truth=truth,
        left_out=int((targets == 0).sum()),
        threshold=threshold,
        labels_a_photo=float(reached.sum(1).mean()),
        without_label=float(100 * (~reached.any(1)).mean()),
        heading=heading,
        absent=absent,
        calibrated=calibrated,
        samples=samples,
    )


@dataclass(frozen=True)
class SampleSize:
    """How many photos have to be labelled in full for a score that is as sure as wanted.

    Attributes:
        metric: such as 'micro-F1'.
        photos: how many are labelled now.
        half_width: half the 95 % interval with these, in points.
        within: what it should be.
        needed: photos in all, as far as these can tell.
    """

    metric: str
    photos: int
    half_width: float
    within: float
    needed: int

    def expect_half_width(self, photos: int) -> float:
        "Half the interval to be expected with so many photos, in points."
        return self.half_width * math.sqrt(self.photos / photos)

    def __str__(self) -> str:
        now = f'{self.metric} is known within ± {self.half_width:.1f} points by {self.photos:,}'
        more = self.needed - self.photos
        if more <= 0:
            return f'{now} fully labelled photos: enough for ± {self.within:g}.'
        expected = ', '.join(
            f'± {self.expect_half_width(factor * self.photos):.1f} with {factor * self.photos:,}'
            for factor in (2, 4)
        )
        return (
            f'{now} fully labelled photos. ± {self.within:g} takes about {self.needed:,} (expect '
            f'{expected}): label about {more:,} more in full, drawn at random.'
        )


def plan_sample(scores: LabelScores, within: float, metric: str = 'micro-F1') -> SampleSize:
    """How many photos to label in full until a score is sure, and when to stop.

    An interval narrows with the root of the number of photos. It is right for photos that were
    drawn at random (`annotate.draw_sample`); ask again after each dozen of new ones.

    Args:
        scores: of the photos labelled so far.
        within: half the 95 % interval that is wanted, in points.
        metric: a row of `scores.total`.

    Returns:
        SampleSize; it needs `FEWEST_TO_STOP` photos or more.

    Raises:
        SpmlError: for a width that is no positive number, and where the score cannot be measured.
    """
    wanted = parse_number(within)
    if not 0 < wanted < math.inf:
        raise SpmlError(
            f'within={within!r}; allowed: a number above 0, in points, such as 5 for ± 5.'
        )
    photos = scores.photos - scores.unused
    row = scores.total.loc[metric] if metric in scores.total.index else None
    if row is None or row[['low', 'high']].isna().any():
        raise SpmlError(
            f'{metric} has no interval on these {photos} photos. Label some photos in full, drawn '
            f'at random: {label_values.FULL_PHOTOS_GUIDE}'
        )
    value, low, high = map(float, row[['value', 'low', 'high']])
    half = max(value - low, high - value)  # one side may end at 0 or 100
    needed = max(math.ceil(photos * (half / wanted) ** 2), FEWEST_TO_STOP)
    return SampleSize(metric, photos, float(half), wanted, needed)


def _are_bounds(labels: np.ndarray, truth: str) -> np.ndarray:
    """(C,) bool: the classes in which a label that is named beside the observed ones may be right
    as well.
    """
    unknown = (labels == 0).any(0)
    if truth == label_values.TRUTHS[2]:
        return unknown
    return unknown & ~(labels < 0).any(0)


def _is_own(description: dict, data: Dataset) -> bool:
    "Whether a model was trained on a data set of this name, or one with these test photos."
    tested: Any = description.get('tested')
    return (
        description['dataset'] == data.name
        or tested == data.photos_of('test')
        or bool(explain_split(data, tested))
    )


def _describe_training(description: dict, run: Run | None, data: Dataset, rows: np.ndarray) -> str:
    """For the heading: what is known of a model's training on rows. Warns of test photos that it
    was not tested on. run: None for an exported model.
    """
    if not _is_own(description, data):
        count = None if run is None else _count_trained(run, data, rows)
        if count is None:
            return (
                'whether the model was trained on some of them is not known: it learned from '
                f'photos of {description["dataset"]!r}, and if these are from there too, the '
                'scores are too good'
            )
        if not count:
            return 'the model was trained on none of them'
        return f'{count:,} of them trained the model or chose it, so the scores are too good'
    if (data.split[rows] != 'test').any():
        return 'trained or chosen on photos of these names'
    tested: Any = description.get('tested')
    if tested not in (None, data.photos_of('test')):
        remedy = explain_split(data, tested) or (
            'If the parts have changed since, give the old ones in a column `split`; if these are '
            'other photos, take all of them (--part all).'
        )
        warn(
            f'{data.name}: these are not the test photos that the model was tested on, so that '
            f'some of them may have been trained on. {remedy}'
        )
    return ''


def _count_trained(run: Run, data: Dataset, rows: np.ndarray) -> int | None:
    """How many of these photos are training or validation photos of a run, byte for byte; None
    where its photos are gone, or other ones test now.
    """
    try:
        with warnings.catch_warnings(action='ignore'):
            own = load(run.config.dataset, run.config.root, scored=True)
    except SpmlError:
        return None
    in_memory = own.images_in_memory or data.images_in_memory
    if in_memory or own.photos_of('test') != run.result().get('tested'):
        return None
    trained = [Path(own.images[row]) for row in np.flatnonzero(own.split != 'test')]
    return int(find_copies([Path(data.images[row]) for row in rows], trained).sum())


def _describe_chosen(description: dict, run: Run | None, data: Dataset, rows: np.ndarray) -> str:
    "For the heading: how many of the rows set the threshold of a model."
    if count := count_chosen(run, data, rows):
        return f'{count:,} of them chose its threshold, so that precision, recall and F1 flatter it'
    has_hashes = run is not None and 'photo_hashes' in (run.calibration() or {})
    here = description.get('threshold_from', {}).get('data') == data.fingerprint
    return 'its threshold was chosen on photos of this folder' if here and not has_hashes else ''


def count_chosen(run: Run | None, data: Dataset, rows: np.ndarray) -> int:
    """How many photos of a data set chose the threshold of a run, in whatever folder they lay then.

    Args:
        run: None for an exported model, of which it is not known.
        rows: places in `data.images`.
    """
    calibration = None if run is None else run.calibration()
    hashes = (calibration or {}).get('photo_hashes', [])  # none in those of older versions
    return int(np.isin(np.array(data.photo_hashes)[rows], hashes).sum()) if hashes else 0


@dataclass(frozen=True, eq=False)
class _Candidate:
    "A model that is to be scored. run: None where it is exported."

    model: Predictor
    run: Run | None
    threshold: float | dict[str, float]

    def score(self, data: Dataset, rows: np.ndarray, names: list[str], place: str) -> LabelScores:
        "Over these classes, which the data have too. place: begins the heading."
        description = self.model.description
        of_model = [self.model.class_names.index(name) for name in names]
        of_data = [data.class_names.index(name) for name in names]
        threshold = self.threshold
        if isinstance(threshold, dict):
            threshold = {name: threshold[name] for name in names}
        remarks = (
            _describe_training(description, self.run, data, rows),
            _describe_chosen(description, self.run, data, rows),
        )
        return score_labels(
            predict_rows(self.model, data, rows)[:, of_model],
            data.labels[np.ix_(rows, np.array(of_data))],
            names,
            threshold,
            heading=f'{"; ".join(filter(None, (place, *remarks)))}: ',
            absent=tuple(name for name in self.model.class_names if name not in names),
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
    "Rows of a part, and what the heading says of it."
    is_own = any(_is_own(candidate.model.description, data) for candidate in candidates)
    chosen = part or default_part(data, is_own)
    rows = data.rows(chosen)
    if not len(rows):
        raise SpmlError(
            f'{data.name!r} has no photo in the part {chosen!r}. Take all of them (--part all), or '
            'mark rows in the column `split`.'
        )
    place = f'{data.name}, part {chosen}'
    if part is None and not is_own and len(rows) < len(data):
        place += f' ({len(rows):,} of {len(data):,} photos; --part all for all)'
    return rows, place


def _shared_classes(data: Dataset, candidates: list[_Candidate]) -> list[str]:
    first, *others = [candidate.model.class_names for candidate in candidates]
    names = [name for name in first if all(name in other for other in others)]
    shared = [name for name in names if name in data.class_names]
    if not shared:
        raise SpmlError(
            f'no class of {data.name!r} ({join_items(data.class_names)}) is one of the model '
            f'({join_items(names)}). Rename those in labels.csv that mean the same.'
        )
    return shared


def evaluate_model(
    model: str | Path,
    dataset: str | Path,
    part: str | None = None,
    *,
    per_class: bool = False,
    root: str | None = None,
    device: str | None = None,
) -> LabelScores:
    """Score a model on photos with known labels. Classes are matched by name.

    Args:
        model: as in `spml_nb.use.predict.open_model`.
        dataset: a name, or a folder with images/ and labels.csv.
        part: 'train', 'val', 'test' or 'all'; unset: as in `default_part`.
        per_class: name each class from a threshold of its own on.
        root: where named data sets live.
        device: unset: the setting `device`.

    Returns:
        Scores over the classes that both have.

    Raises:
        SpmlError: as `open_model` and `load`; where the part is empty, or no class is common to
            both.
    """
    candidate = _open_candidate(model, per_class, device)
    data = load(dataset, root, scored=True)
    rows, place = _choose_rows(data, part, [candidate])
    return candidate.score(data, rows, _shared_classes(data, [candidate]), place)


@dataclass(frozen=True, eq=False)
class ModelComparison:
    """Two models on the same photos.

    Attributes:
        models: their names.
        scores: of each, over the classes that both and the data have.
        difference: DataFrame of value, low and high (95 % interval over photos), in points: the
            first model over the second, for the rows of `LabelScores.total`.
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
        lines = [
            *(
                f'{name}: {scores.heading}{scores.labels_a_photo:.2f} labels a photo are named, '
                f'{scores.limit}'
                for name, scores in zip(self.models, self.scores, strict=True)
            ),
            f'{self.scores[0].photos:,} photos, and the {len(names)} classes that both models and '
            f'the photos have: {join_items(names, 20)}',
            '',
            table.to_string(),
            '',
            self._decide(),
        ]
        return '\n'.join(lines)

    def _decide(self) -> str:
        "Which model to take, by micro-F1."
        if 'micro-F1' not in self.difference.index:
            return 'Which is better, photos tell that are labelled in full alone.'
        value, low, high = map(float, self.difference.loc['micro-F1', ['value', 'low', 'high']])
        first, second = self.models if value >= 0 else self.models[::-1]
        gap = f'{abs(value):.1f} ± {(high - low) / 2:.1f} points of micro-F1'
        if low <= 0 <= high:
            return f'{first} is {gap} above {second}, which may be chance: more photos would tell.'
        return f'{first} is better than {second}, by {gap}.{self._blame_threshold()}'

    def _blame_threshold(self) -> str:
        "Where one model names better, and none orders the photos of a class better."
        low, high = map(float, self.difference.loc['mAP', ['low', 'high']])
        if not low <= 0 <= high:
            return ''
        return (
            ' mAP, which no threshold enters, does not tell them apart, so that much of this may '
            'be due to their thresholds: calibrate both on the same photos by `spml calibrate`.'
        )


def compare_models(
    models: tuple[str | Path, str | Path],
    dataset: str | Path,
    part: str | None = None,
    *,
    per_class: bool = False,
    root: str | None = None,
    device: str | None = None,
) -> ModelComparison:
    """Score two models on the same photos and classes. What makes photos hard for one often makes
    them hard for the other, so the difference is known better than its two sides.

    Args:
        models: two, each as in `evaluate_model`, as are the other arguments.

    Raises:
        SpmlError: as `evaluate_model`.
    """
    candidates = [_open_candidate(model, per_class, device) for model in models]
    data = load(dataset, root, scored=True)
    rows, place = _choose_rows(data, part, candidates)
    names = _shared_classes(data, candidates)
    first, second = (candidate.score(data, rows, names, place) for candidate in candidates)
    difference = _interval(first.samples - second.samples, first.photos - first.unused)
    one, other = (os.path.basename(os.path.normpath(model)) for model in models)
    return ModelComparison((one, other), (first, second), difference)
