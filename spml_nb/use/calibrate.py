"""Sets the thresholds of a finished model from a small sample of labelled photos."""

import json
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from .. import metrics
from ..base.errors import SpmlError, warn
from ..base.files import write_atomically
from ..data.dataset import Dataset, join_items
from ..data.folder import candidate_folders, first_existing_folder, read_label_table
from ..data.labels import FULL_PHOTOS, FULL_PHOTOS_GUIDE
from ..data.loading import load, own_folder
from ..runs.folder import CALIBRATION, Run, open_run
from ..statistics import image_draws
from ..training.thresholds import (
    check_recall,
    class_thresholds,
    explain_overnaming,
    is_overused,
    recall_threshold,
)
from .export import find_exported
from .predict import open_model
from .predictor import predict_rows
from .scoring import bootstrap_deviations

FEW_CALIBRATION_PHOTOS = (
    10  # fully labelled photos, below which a threshold depends much on which they are
)
RESAMPLES = 200
FOLDS = 10  # of cross-validation


@dataclass(frozen=True)
class Calibration:
    """Thresholds that were set after the training, and what they do on the photos that set them.

    Attributes:
        threshold, before: probabilities from which on a label is named, the best here and that of
            the training.
        class_thresholds: one for each class.
        dataset, data: name and fingerprint of the folder with the photos.
        photos: how many set it.
        photo_hashes: their checksums, by which they are known again in other folders.
        labels_a_photo: how many labels these have on average; None where not all are known.
        named, named_before: how many labels the model gives a photo on average.
        f1, f1_before: micro-F1 in [0, 1] on these photos; None where not all labels are known.
        gain, gain_per_class: points of micro-F1 on photos that did not choose the thresholds, by
            cross-validation, and half the 95 % interval over photos: of the threshold over that of
            the training, and of one for each class over the one for all. None where a recall chose
            or not all labels are known, the second also below `FULL_PHOTOS` photos.
        recall: what was asked for; None for the best F1.
        foreign: names of the folder's table that are no classes of the model.
        missing: classes of the model that the table lacks.
        overused: {class that is named on nearly all photos, though clearly fewer have it: on how
            many it is named, how many have it, and on how many it is named from its own threshold
            on, None where it has none}.
    """

    threshold: float
    before: float
    class_thresholds: list[float]
    dataset: str
    data: str
    photos: int
    photo_hashes: list[str]
    named: float
    named_before: float
    classes: int
    labels_a_photo: float | None
    f1: float | None
    f1_before: float | None
    gain: tuple[float, float] | None
    gain_per_class: tuple[float, float] | None
    recall: float | None
    foreign: list[str]
    missing: list[str]
    overused: dict[str, tuple[int, int, int | None]]

    @property
    def taken(self) -> bool:
        "Whether the threshold is in use: where it gains nothing, that of the training is."
        return _is_gain(self.gain)

    def __str__(self) -> str:
        kind = 'fully labelled' if self.f1 is not None else 'labelled'
        there = '' if self.f1 is None else f'labels a photo there: {self.labels_a_photo:.2f}; '
        lines = [
            f'threshold {self.threshold:.4g} (of the training: {self.before:.4g}), from '
            f'{self.photos:,} {kind} photos of {self.dataset}',
            f'{there}named: {self.named:.2f} (of the training: {self.named_before:.2f})',
        ]
        if self.recall is not None:
            lines.append(f'chosen for a recall of {100 * self.recall:.4g} % of the known labels')
        if self.f1 is not None and self.f1_before is not None:
            lines.append(
                f'micro-F1 there: {100 * self.f1:.1f} % (of the training: '
                f'{100 * self.f1_before:.1f} %); as it was chosen on these photos, expect less on '
                'others'
            )
        if self.gain is not None:
            lines += [_describe_gain(*self.gain), self._offer() if self.taken else self._keep()]
        if self.foreign:
            lines.append(f'noted: the model has no class {join_items(self.foreign)}; not used')
        if self.missing:
            taken_as = 'unknown' if self.f1 is None else 'absent from every photo'
            lines.append(
                f'noted: the table has no class {join_items(self.missing)}; taken as {taken_as}'
            )
        lines += [self._describe_overused(name) for name in self.overused]
        named = self.named if self.taken else self.named_before
        too_many = explain_overnaming(named, self.labels_a_photo, self.classes, calibrated=True)
        return '\n'.join([*lines, *filter(None, [too_many])])

    def _keep(self) -> str:
        return (
            f'not taken: the threshold of the training, {self.before:.4g}, is in use. '
            f'`spml predict --threshold {self.threshold:.4g}` takes the other one all the same'
        )

    def _describe_overused(self, name: str) -> str:
        named, present, by_own = self.overused[name]
        text = f'{name} is named on {named} of {self.photos} photos; {present} have it'
        if by_own is None or is_overused(self.photos, by_own, present):
            return f'{text}. More training photos without it teach the difference'
        return f'{text}. From its own threshold on (--per-class) it is named on {by_own}'

    def _offer(self) -> str:
        "Whether to name each class from a threshold of its own on."
        if self.gain_per_class is None:
            return (
                'taken: one threshold for all classes; whether one for each is better can be said '
                f'from {FULL_PHOTOS} photos on'
            )
        mean, half = self.gain_per_class
        gain = f'{mean:+z.1f} ± {half:.1f} points of micro-F1 beside it, by the same measure'
        if mean <= half:
            verdict = 'worse' if mean + half < 0 else 'not shown to be better'
            return (
                f'taken: one threshold for all classes; one for each (--per-class) is {verdict}: '
                f'{gain}'
            )
        lowest, highest = min(self.class_thresholds), max(self.class_thresholds)
        return (
            f'taken: one threshold for all classes; one for each is better: {gain}. `spml predict` '
            f'and `spml evaluate` take them with --per-class: {lowest:.4g} to {highest:.4g}'
        )


def _is_gain(gain: tuple[float, float] | None) -> bool:
    "None where it cannot be measured, so that what was asked for is taken."
    return gain is None or gain[0] > 0


def _describe_gain(mean: float, half: float) -> str:
    verdict = ''
    if mean <= 0:
        verdict = ': worse' if mean + half < 0 else ': none'
    elif mean <= half:
        verdict = ', which may be none'
    return (
        'gain over the threshold of the training on photos that did not choose this one '
        f'(cross-validation): {mean:+z.1f} ± {half:.1f} points of micro-F1{verdict}'
    )


def calibrate(
    run: str | Path,
    folder: str | Path,
    *,
    recall: float | None = None,
    device: str | None = None,
) -> Calibration:
    """Set the thresholds of a finished run from labelled photos, and keep them with the run.

    Where photos have one known label each, training cannot tell from which probability on a label
    is to be named: whatever is named beside it may be right. Of the folder that the run was trained
    on, and of a table that marks some as `val`, only validation photos count: the others were
    trained on, or measure the model. A threshold that is no better than that of the training, by
    cross-validation, is not taken: that of the training is in use then. To go back, remove
    `calibration.json` from the run's folder; nothing else of the run changes.

    Args:
        run: its folder, or its name in the setting `runs`.
        folder: with images/ and labels.csv. Photos with unknown labels do not count, unless a
            recall is asked for and none is labelled in full.
        recall: the share of the labels that is to be named; unset: what has the best F1. Where some
            labels are known alone it is the share of these, which is that of all if it was chance
            which were written down.
        device: unset: the setting `device`.

    Returns:
        What was found, which is stored where it is `taken`.

    Raises:
        SpmlError: for what is no finished run; for a recall that is no share; where no photo is
            labelled in full, or none has a class of the model; if the file cannot be written; and
            as `load`.
    """
    if recall is not None:
        recall = check_recall(recall)
    if find_exported(run) is not None:
        raise SpmlError(
            f'{run} is an exported model, and its threshold stays as it is. Calibrate the run, and '
            'export it again; or take another for once: `spml predict --threshold`.'
        )
    opened = open_run(run)
    with warnings.catch_warnings():
        # nothing is learnt from these photos
        warnings.filterwarnings('ignore', '.*because no (training )?image has it')
        data = load(folder, scored=True)
    before = float(opened.result()['scores']['threshold'])
    model = open_model(run, device)
    labels = _labels_for(model.class_names, data, folder)
    rows = _usable_rows(opened, data, folder, labels, recall)
    labels = labels[rows]
    if not (labels > 0).any():
        raise SpmlError(
            f'none of the {len(rows)} fully labelled photos of {data.name!r} has a class of the '
            f'model ({join_items(model.class_names)}). Add photos that have.'
        )
    p = predict_rows(model, data, rows)
    if recall is None:
        threshold = metrics.best_threshold(p, labels)
    else:
        threshold = recall_threshold(p, labels, recall)
    of_classes = class_thresholds(p, labels, threshold, recall)
    is_complete = bool((labels != 0).all())
    gain, gain_per_class = None, None
    if is_complete and recall is None and len(p) > 1:
        gain, gain_per_class = _cross_validate(p, labels, before)
    in_use, own = threshold, of_classes
    if not _is_gain(gain):
        in_use, own = before, opened.result().get('thresholds', {}).get('class_thresholds')
    calibration = Calibration(
        threshold=threshold,
        before=before,
        class_thresholds=of_classes,
        dataset=data.name,
        data=data.fingerprint,
        photos=len(p),
        photo_hashes=[data.photo_hashes[row] for row in rows],
        named=float((p >= threshold).sum(1).mean()),
        named_before=float((p >= before).sum(1).mean()),
        classes=len(of_classes),
        labels_a_photo=float((labels > 0).sum(1).mean()) if is_complete else None,
        f1=metrics.f1(p, labels, threshold=threshold) if is_complete else None,
        f1_before=metrics.f1(p, labels, threshold=before) if is_complete else None,
        gain=gain,
        gain_per_class=gain_per_class if len(p) >= FULL_PHOTOS else None,
        recall=recall,
        foreign=[name for name in data.class_names if name not in model.class_names],
        missing=[name for name in model.class_names if name not in data.class_names],
        overused=_find_overused(p, labels, model.class_names, in_use, own) if is_complete else {},
    )
    if len(rows) < FEW_CALIBRATION_PHOTOS and recall is None:
        _warn_of_few(p, labels)
    file = opened.folder / CALIBRATION
    if calibration.taken:
        write_atomically(file, json.dumps(asdict(calibration), indent=1, ensure_ascii=False))
    else:
        file.unlink(missing_ok=True)
    return calibration


def _cross_validate(
    p: np.ndarray, labels: np.ndarray, before: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """What thresholds do on photos that did not choose them.

    Args:
        p, labels: (N, C), at least two photos, every label known.
        before: the threshold of the training.

    Returns:
        `Calibration.gain` and `Calibration.gain_per_class`.
    """
    present = labels > 0
    fold = np.random.default_rng(0).permutation(len(p)) % FOLDS
    earlier = p >= before
    by_one, by_class = earlier.copy(), earlier.copy()
    for k in np.unique(fold):
        own, others = fold == k, fold != k
        if present[others].any():
            threshold = metrics.best_threshold(p[others], labels[others])
            by_one[own] = p[own] >= threshold
            by_class[own] = p[own] >= class_thresholds(p[others], labels[others], threshold)
    draws = np.vstack([np.ones(len(p)), image_draws(len(p), RESAMPLES)])
    deviations = bootstrap_deviations(len(p))

    def f1(named: np.ndarray) -> np.ndarray:
        right = draws @ (named & present).sum(1)
        shares: np.ndarray = right / np.maximum(draws @ (named.sum(1) + present.sum(1)), 1)
        return 200 * shares

    def gain(named: np.ndarray, base: np.ndarray) -> tuple[float, float]:
        value, *drawn = f1(named) - f1(base)
        return float(value), float(deviations * np.std(drawn))

    return gain(by_one, earlier), gain(by_class, by_one)


def _find_overused(
    p: np.ndarray,
    labels: np.ndarray,
    names: list[str],
    threshold: float,
    of_classes: list[float] | None,
) -> dict[str, tuple[int, int, int | None]]:
    "`Calibration.overused`, of (N, C) probabilities and complete labels."
    overused = {}
    for c, name in enumerate(names):
        named, present = int((p[:, c] >= threshold).sum()), int((labels[:, c] > 0).sum())
        if is_overused(len(p), named, present):
            by_own = None if of_classes is None else int((p[:, c] >= of_classes[c]).sum())
            overused[name] = (named, present, by_own)
    return overused


def _labels_for(names: list[str], data: Dataset, folder: str | Path) -> np.ndarray:
    """(N, C) labels of a data set, in the order of the classes of a model. In a table with a column
    `labels`, which is complete, a class that occurs nowhere is absent everywhere.
    """
    table = first_existing_folder(candidate_folders(folder)) / 'labels.csv'
    is_complete = own_folder(str(folder)) and 'labels' in read_label_table(table)
    labels = np.full((len(data), len(names)), -1 if is_complete else 0, np.int8)
    for c, name in enumerate(names):
        if name in data.class_names:
            labels[:, c] = data.labels[:, data.class_names.index(name)]
    return labels


def _usable_rows(
    run: Run, data: Dataset, folder: str | Path, labels: np.ndarray, recall: float | None
) -> np.ndarray:
    """Of the photos that may set the threshold: those labelled in full; for a recall, if there are
    none, those with a label.
    """
    result = run.result()
    trained_on = first_existing_folder(
        candidate_folders(run.config.dataset, run.config.root)
    ).absolute()
    is_same = (
        trained_on == first_existing_folder(candidate_folders(folder)).absolute()
        or result.get('data') == data.fingerprint
    )
    is_val = data.split == 'val'
    has_parts = is_same or ('val' not in data.drawn and bool(is_val.any()))
    allowed = is_val if has_parts else np.ones(len(data), bool)
    usable = allowed & (labels != 0).all(1)
    if recall is not None and not usable.any():
        usable = allowed & (labels > 0).any(1)
    if usable.any():
        return np.flatnonzero(usable)
    among = ' among its validation photos; the others were trained on or measure it'
    silent = np.array(result['class_names'])[(labels == 0).all(0)]
    remark = f'; its table says nothing of {join_items(silent)}' if len(silent) else ''
    raise SpmlError(
        f'{data.name!r} has no photo of which all {labels.shape[1]} labels are known'
        f'{among if has_parts else ""}{remark}. How to label some in full: {FULL_PHOTOS_GUIDE}'
    )


def _warn_of_few(p: np.ndarray, labels: np.ndarray) -> None:
    "Say how far the threshold of other photos may lie."
    draws = np.random.default_rng(0).integers(len(p), size=(RESAMPLES, len(p)))
    thresholds = [
        metrics.best_threshold(p[rows], labels[rows]) for rows in draws if (labels[rows] > 0).any()
    ]
    low, high = np.quantile(thresholds, [0.025, 0.975])
    warn(
        f'the threshold rests on {len(p)} fully labelled photos; {len(p)} others may give any from '
        f'{low:.3g} to {high:.3g}. Label more in full: four times as many halve that range.'
    )
