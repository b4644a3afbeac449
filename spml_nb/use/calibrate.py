"""Sets the thresholds of a finished run from a small sample of labelled photos."""

import json
import warnings
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import metrics
from ..base.errors import SpmlError, warn
from ..base.files import write_atomically
from ..data.dataset import Dataset, join_items
from ..data.folder import find_folder
from ..data.labels import FULL_PHOTOS, FULL_PHOTOS_GUIDE
from ..data.loading import load
from ..runs.folder import CALIBRATION, Run, open_run
from ..training.thresholds import (
    check_recall,
    class_thresholds,
    is_class_overpredicted,
    recall_threshold,
    warn_of_overprediction,
)
from .export import find_exported
from .predict import open_model
from .predictor import predict_rows
from .scoring import (
    bootstrap_deviations,
    describe_groups,
    draw_photos,
    find_trained,
    lists_all_labels,
    match_labels,
    number_groups,
    read_training_photos,
)

FEW_CALIBRATION_PHOTOS = 10  # fewer photos, or groups of them, than this bring a warning
RESAMPLES = 200  # bootstrap samples of the photos
FOLDS = 10  # of cross-validation


@dataclass(frozen=True)
class Calibration:
    """Thresholds chosen on labelled photos, and what they do on these photos.

    Attributes:
        threshold, before: probability at which a label is named: chosen here, and in training.
        class_thresholds: (C,) one threshold per class.
        dataset, data: name and fingerprint of the folder with the photos.
        photos: how many photos chose the threshold.
        left_out: how many more would have, but trained the run; None if that is not known.
        groups: number of groups that the photos are of; None if each is its own.
        photo_hashes: their checksums, which recognise them in other folders.
        named, named_before: mean number of labels that the two thresholds name on a photo.
        classes: how many classes the model has.
        labels_a_photo: mean number of true labels; None if some labels are unknown.
        f1, f1_before: micro-F1 in [0, 1] on these photos; None if some labels are unknown.
        gain: points of micro-F1 over the training's threshold, and half the 95 % interval over
            photos, or groups of them, by cross-validation. None if `recall` is set, some labels are
            unknown, or there is one photo or group.
        gain_per_class: the same for one threshold per class over one for all; also None below
            `FULL_PHOTOS` photos.
        recall: the share of labels to name; None if F1 chose the threshold.
        foreign: classes of the table that the model lacks.
        missing: classes of the model that the table lacks.
        overused: {class that is named on nearly all photos, although clearly fewer have it: on how
            many it is named, how many have it, and on how many its class threshold names it (None
            without class thresholds)}.
        earlier: the calibration that the run had before, as stored; itself not stored.
    """

    threshold: float
    before: float
    class_thresholds: list[float]
    dataset: str
    data: str
    photos: int
    left_out: int | None
    groups: int | None
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
    earlier: dict[str, Any] | None = field(default=None, compare=False)

    @property
    def taken(self) -> bool:
        "Whether the new threshold is in use: it must gain something where that can be measured."
        return self.gain is None or self.gain[0] > 0

    @property
    def keeps_earlier(self) -> bool:
        "Whether the earlier calibration stays in use: this one gains nothing, from fewer photos."
        if self.taken or self.earlier is None:
            return False
        return bool(self.earlier.get('photos', 0) > self.photos)

    def __str__(self) -> str:
        is_complete = self.f1 is not None
        kind = 'fully labelled' if is_complete else 'labelled'
        labels = f'; they have {self.labels_a_photo:.2f}' if is_complete else ''
        lines = [
            f'threshold {self.threshold:.4g} (of the training: {self.before:.4g}), from '
            f'{self.photos:,} {kind} photos of {self.dataset}',
            f'labels named per photo: {self.named:.2f} (of the training: {self.named_before:.2f})'
            f'{labels}',
        ]
        lines.append(self._describe_left_out())
        if self.recall is not None:
            lines.append(f'chosen for a recall of {100 * self.recall:.4g} % of the known labels')
        if self.f1 is not None and self.f1_before is not None:
            lines.append(
                f'micro-F1 on these photos: {100 * self.f1:.1f} % (of the training: '
                f'{100 * self.f1_before:.1f} %); they chose the threshold, so expect less on others'
            )
        if self.gain is not None:
            lines.append(_describe_gain(*self.gain))
        lines.append(describe_groups(self.groups) if is_complete and self.recall is None else '')
        lines += self._describe_choice()
        if self.foreign:
            lines.append(f'noted: the model has no class {join_items(self.foreign)}; not used')
        if self.missing:
            assumed = 'absent from every photo' if is_complete else 'unknown'
            lines.append(
                f'noted: the table has no class {join_items(self.missing)}; taken as {assumed}'
            )
        lines += [self._describe_overused(name) for name in self.overused]
        if not self.keeps_earlier:
            named = self.named if self.taken else self.named_before
            lines.append(warn_of_overprediction(named, self.labels_a_photo, self.classes, True))
        return '\n'.join(filter(None, lines))

    def _describe_left_out(self) -> str:
        "Which photos did not choose because they trained the run; '' if all did."
        if self.left_out is None:
            return (
                'noted: whether some of these photos trained the run is not known, because its own '
                'photos are gone or have changed; if some did, the threshold suits others less'
            )
        if not self.left_out:
            return ''
        return (
            f'photos left out because they trained the run: {self.left_out:,} (found byte for '
            'byte); its probabilities on them are not those on others'
        )

    def _describe_choice(self) -> list[str]:
        "Which threshold is in use, and why."
        earlier = ''
        if self.earlier is not None:
            source = ''  # written by hand it may have a threshold alone
            if {'photos', 'dataset'} <= self.earlier.keys():
                source = f', from {self.earlier["photos"]:,} photos of {self.earlier["dataset"]}'
            earlier = f'the earlier calibration ({self.earlier["threshold"]:.4g}{source})'
        if self.taken:
            per_class = '' if self.gain is None else self._describe_per_class()
            return [per_class, earlier and f'{earlier} is replaced']
        if self.keeps_earlier:
            reason = f'{earlier} stays in use, as {self.photos:,} photos are too few to overrule it'
        else:
            reason = f'the threshold of the training, {self.before:.4g}, is in use'
            if earlier:
                reason += f', and {earlier} is removed'
        return [
            f'not taken: {reason}. To use the new one all the same: `spml predict --threshold '
            f'{self.threshold:.4g}`'
        ]

    def _describe_per_class(self) -> str:
        "Whether to use one threshold per class."
        if self.gain_per_class is None:
            return (
                'taken: one threshold for all classes; to tell whether one per class is better '
                f'takes at least {FULL_PHOTOS} photos'
            )
        mean, half = self.gain_per_class
        verdict = 'not shown to be better'
        if abs(mean) > half:
            verdict = 'better' if mean > 0 else 'worse'
        text = (
            f'taken: one threshold for all classes; one per class (--per-class) is {verdict}: '
            f'{mean:+z.1f} ± {half:.1f} points of micro-F1 over it, measured in the same way'
        )
        if verdict == 'better':
            text += f' ({min(self.class_thresholds):.4g} to {max(self.class_thresholds):.4g})'
        return text

    def _describe_overused(self, name: str) -> str:
        named, present, named_per_class = self.overused[name]
        text = f'{name} is named on {named} of {self.photos} photos; {present} have it'
        if named_per_class is None or is_class_overpredicted(self.photos, named_per_class, present):
            return f'{text}. More training photos without it teach the difference'
        return f'{text}. Its own threshold (--per-class) names it on {named_per_class}'


def _describe_gain(mean: float, half: float) -> str:
    verdict = ''
    if mean <= 0:
        verdict = ': worse' if mean + half < 0 else ': none'
    elif mean <= half:
        verdict = ', which may be chance'
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
    """Set the thresholds of a finished run from labelled photos, and store them with the run.

    Where training photos have one known label each, training cannot tell at which probability to
    name a label: whatever is named beside the known one may be right. In the folder that the run
    was trained on, and in a table that marks photos as `val`, only validation photos count: the
    others trained the model or measure it. In any folder, photos that trained the run are left out.

    If the new threshold is no better than the training's (by cross-validation), it is not stored,
    and the training's is used again; only an earlier calibration from more photos stays in use. To
    go back to the training's, remove `calibration.json` from the run's folder; nothing else of the
    run changes.

    Args:
        run: its folder, or its name in the setting `runs`.
        folder: with images/ and labels.csv. Photos with unknown labels are ignored, unless `recall`
            is set and no photo is fully labelled.
        recall: name this share of the labels; None: choose the best F1. Where only some labels are
            known, it is the share of those, which equals that of all if chance decided which were
            written down.
        device: None: the setting `device`.

    Returns:
        The calibration, which is stored if it is `taken`.

    Raises:
        SpmlError: for a run that is not finished or an exported model; a recall outside (0, 1]; if
            no photo is fully labelled, or none has a class of the model; if fewer than
            `FEW_CALIBRATION_PHOTOS` did not train the run; if the file cannot be written; and as
            `load`.
    """
    if recall is not None:
        recall = check_recall(recall)
    if find_exported(run) is not None:
        raise SpmlError(
            f'{run} is an exported model, and its threshold cannot be changed. Calibrate the run '
            'and export it again, or give a threshold to a single call: `spml predict --threshold`.'
        )
    opened = open_run(run)
    with warnings.catch_warnings():
        # a class without training photos matters only in training
        warnings.filterwarnings('ignore', '.*because no (training )?image has it')
        data = load(folder, scored=True)
    model = open_model(run, device)
    labels = match_labels(model.class_names, data, lists_all_labels(folder))
    rows = _choose_rows(opened, data, folder, labels, recall)
    rows, left_out = _leave_out_trained(opened, data, folder, rows)
    labels = labels[rows]
    groups = number_groups(data, rows)
    if not (labels > 0).any():
        raise SpmlError(
            f'none of the {len(rows)} fully labelled photos of {data.name!r} has a class of the '
            f'model ({join_items(model.class_names)}). Add photos that do.'
        )
    p = predict_rows(model, data, rows)
    calibration = Calibration(
        dataset=data.name,
        data=data.fingerprint,
        photos=len(rows),
        left_out=left_out,
        groups=None if groups is None else int(groups.max()) + 1,
        photo_hashes=[data.photo_hashes[row] for row in rows],
        classes=len(model.class_names),
        recall=recall,
        foreign=[name for name in data.class_names if name not in model.class_names],
        missing=[name for name in model.class_names if name not in data.class_names],
        overused={},
        earlier=opened.calibration(),
        **_fit(p, labels, groups, recall, float(opened.result()['scores']['threshold'])),
    )
    if (labels != 0).all() and not calibration.keeps_earlier:
        threshold, per_class = calibration.threshold, calibration.class_thresholds
        if not calibration.taken:
            threshold = calibration.before
            per_class = opened.result().get('thresholds', {}).get('class_thresholds')
        overused = _find_overused(p, labels, model.class_names, threshold, per_class)
        calibration = replace(calibration, overused=overused)
    if (calibration.groups or len(rows)) < FEW_CALIBRATION_PHOTOS and recall is None:
        _warn_of_few(p, labels, groups)
    file = opened.folder / CALIBRATION
    if calibration.taken:
        content = asdict(calibration)
        del content['earlier']
        write_atomically(file, json.dumps(content, indent=1, ensure_ascii=False))
    elif not calibration.keeps_earlier:
        file.unlink(missing_ok=True)
    return calibration


def _fit(
    p: np.ndarray,
    labels: np.ndarray,
    groups: np.ndarray | None,
    recall: float | None,
    before: float,
) -> dict[str, Any]:
    """The thresholds of a `Calibration` and what they do, from (N, C) probabilities and labels.
    groups: as from `number_groups`.
    """
    if recall is None:
        threshold = metrics.best_threshold(p, labels)
    else:
        threshold = recall_threshold(p, labels, recall)
    is_complete = bool((labels != 0).all())
    gain, gain_per_class = None, None
    several = len(p) > 1 if groups is None else groups.max() > 0
    if is_complete and recall is None and several:
        gain, gain_per_class = _cross_validate(p, labels, before, groups)
    return {
        'threshold': threshold,
        'before': before,
        'class_thresholds': class_thresholds(p, labels, threshold, recall),
        'named': float((p >= threshold).sum(1).mean()),
        'named_before': float((p >= before).sum(1).mean()),
        'labels_a_photo': float((labels > 0).sum(1).mean()) if is_complete else None,
        'f1': metrics.f1(p, labels, threshold=threshold) if is_complete else None,
        'f1_before': metrics.f1(p, labels, threshold=before) if is_complete else None,
        'gain': gain,
        'gain_per_class': gain_per_class if len(p) >= FULL_PHOTOS else None,
    }


def _cross_validate(
    p: np.ndarray, labels: np.ndarray, before: float, groups: np.ndarray | None = None
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Measure the gain of thresholds on photos that did not choose them.

    Args:
        p, labels: (N, C) of at least two photos, without unknown labels.
        before: the threshold of the training.
        groups: (N,) as from `number_groups`, two or more: photos of a group are in one fold.

    Returns:
        `Calibration.gain` and `Calibration.gain_per_class`.
    """
    present = labels > 0
    units = np.arange(len(p)) if groups is None else groups
    count = int(units.max()) + 1
    fold = (np.random.default_rng(0).permutation(count) % FOLDS)[units]
    by_training = p >= before
    by_one = by_training.copy()
    by_class = by_training.copy()
    for k in np.unique(fold):
        test, train = fold == k, fold != k
        if present[train].any():
            threshold = metrics.best_threshold(p[train], labels[train])
            by_one[test] = p[test] >= threshold
            by_class[test] = p[test] >= class_thresholds(p[train], labels[train], threshold)
    draws = np.vstack([np.ones(len(p)), draw_photos(len(p), RESAMPLES, groups)])
    deviations = bootstrap_deviations(count)

    def f1(named: np.ndarray) -> np.ndarray:
        right = draws @ (named & present).sum(1)
        shares: np.ndarray = right / np.maximum(draws @ (named.sum(1) + present.sum(1)), 1)
        return 200 * shares

    def gain(named: np.ndarray, base: np.ndarray) -> tuple[float, float]:
        value, *resampled = f1(named) - f1(base)
        return float(value), float(deviations * np.std(resampled))

    return gain(by_one, by_training), gain(by_class, by_one)


def _find_overused(
    p: np.ndarray,
    labels: np.ndarray,
    names: list[str],
    threshold: float,
    per_class: list[float] | None,
) -> dict[str, tuple[int, int, int | None]]:
    "`Calibration.overused`, of (N, C) probabilities and complete labels."
    overused = {}
    for c, name in enumerate(names):
        named = int((p[:, c] >= threshold).sum())
        present = int((labels[:, c] > 0).sum())
        if is_class_overpredicted(len(p), named, present):
            named_per_class = None
            if per_class is not None:
                named_per_class = int((p[:, c] >= per_class[c]).sum())
            overused[name] = (named, present, named_per_class)
    return overused


def _choose_rows(
    run: Run, data: Dataset, folder: str | Path, labels: np.ndarray, recall: float | None
) -> np.ndarray:
    """Rows of the photos that choose the threshold: fully labelled ones; if there are none and a
    recall is set, those with any label. labels: (N, C).
    """
    result = run.result()
    trained_on = find_folder(run.config.dataset, run.config.root)
    calibrated_on = find_folder(folder)
    is_trained_on = (
        trained_on.absolute() == calibrated_on.absolute() or result.get('data') == data.fingerprint
    )
    is_val = data.split == 'val'
    val_only = is_trained_on or ('val' not in data.drawn and bool(is_val.any()))
    allowed = is_val if val_only else np.ones(len(data), bool)
    usable = allowed & (labels != 0).all(1)
    if recall is not None and not usable.any():
        usable = allowed & (labels > 0).any(1)
    if usable.any():
        return np.flatnonzero(usable)
    restriction = ''
    if val_only:
        restriction = ' among its validation photos (the others trained the model or measure it)'
    unknown = np.array(result['class_names'])[(labels == 0).all(0)]
    remark = f'; its table says nothing about {join_items(unknown)}' if len(unknown) else ''
    raise SpmlError(
        f'{data.name!r} has no photo with all {labels.shape[1]} labels known{restriction}{remark}. '
        f'How to label some in full: {FULL_PHOTOS_GUIDE}'
    )


def _leave_out_trained(
    run: Run, data: Dataset, folder: str | Path, rows: np.ndarray
) -> tuple[np.ndarray, int | None]:
    """The rows whose photos did not train the run, and how many did; None if that is not known.
    Warns if the parts of the run's own folder have changed.
    """
    seen = read_training_photos(run)
    is_own = find_folder(run.config.dataset, run.config.root) == find_folder(folder)
    if is_own and (seen is None or (seen.split != data.split).any()):
        known = 'may have trained the run' if seen is None else 'trained the run and are left out'
        warn(
            f'{data.name}: the photos or their parts have changed since the run was trained on '
            f'this folder, so some of its validation photos {known}. To be sure, train again, or '
            'calibrate with a folder of photos that the run was not trained on.'
        )
    trained = find_trained(run, seen, data, rows)
    if trained is None:  # drawn photos have no copies
        return rows, None if seen is None else 0
    left_out, left = int(trained.sum()), rows[~trained]
    if left_out and len(left) < FEW_CALIBRATION_PHOTOS:
        raise SpmlError(
            f'of the {len(rows):,} photos of {data.name!r} that could choose the threshold, '
            f'{left_out:,} trained the run and are left out; the other {len(left):,} are too few '
            f'(at least {FEW_CALIBRATION_PHOTOS}). Label photos in full that the run was not '
            f'trained on: {FULL_PHOTOS_GUIDE}'
        )
    return left, left_out


def _warn_of_few(p: np.ndarray, labels: np.ndarray, groups: np.ndarray | None) -> None:
    "Warn how far the thresholds of other samples may differ. groups: as from `number_groups`."
    units = np.arange(len(p)) if groups is None else groups
    members = [np.flatnonzero(units == unit) for unit in np.unique(units)]
    count = len(members)
    draws = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    samples = [np.concatenate([members[unit] for unit in draw]) for draw in draws]
    thresholds = [
        metrics.best_threshold(p[rows], labels[rows])
        for rows in samples
        if (labels[rows] > 0).any()
    ]
    low, high = np.quantile(thresholds, [0.025, 0.975])
    of = '' if groups is None else 'groups of '
    warn(
        f'only {count} {of}fully labelled photos chose the threshold; another {count} could choose '
        f'anything from {low:.3g} to {high:.3g}. Label more in full: four times as many halve that '
        'range.'
    )
