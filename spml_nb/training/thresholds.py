"""Thresholds per class, and warnings about thresholds that predict too much."""

import math

import numpy as np
from torch import Tensor

from .. import metrics
from ..base.errors import SpmlError, parse_number
from ..data.labels import FULL_PHOTOS, FULL_PHOTOS_GUIDE
from .selection import PRIOR_COUNT, threshold_basis
from .task import Task


def check_recall(recall) -> float:
    """Return a recall as a number, or raise an SpmlError if it is not in (0, 1]."""
    number = parse_number(recall)
    if not 0 < number <= 1:
        raise SpmlError(
            f'recall={recall!r}; allowed: a fraction above 0 and up to 1, such as 0.9 for 90 % of '
            'the true labels.'
        )
    return number


def recall_threshold(p: np.ndarray, labels: np.ndarray, recall: float) -> float:
    """The highest threshold with at least this recall, halfway between two probabilities like
    `metrics.best_threshold`.

    The recall of observed positives estimates that of all if they were drawn at random.

    Args:
        p: probabilities of any shape.
        labels: of the same shape, positive above 0, with at least one.
        recall: in (0, 1].
    """
    positives = np.sort(p[labels > 0])
    missed = len(positives) - math.ceil(round(recall * len(positives), 9))
    lowest = positives[missed]
    next_lower = p[p < lowest].max(initial=0)
    return float((next_lower + lowest) / 2)


def class_thresholds(
    p: np.ndarray, labels: np.ndarray, overall: float, recall: float | None = None
) -> list[float]:
    """Choose a threshold for each class, shrunk towards the one for all.

    The best threshold of a class with few positives overfits them. So with n positives it gets the
    weight n/(n + `PRIOR_COUNT`) against the overall threshold, on the scale of logits. A class
    without positives, or for F1 without negatives, gets the overall threshold.

    Args:
        p: (N, C) probabilities.
        labels: (N, C) in {1, 0, −1}, 0 for unknown.
        overall: the threshold for all classes.
        recall: the recall to reach in each class; unset: maximise F1.
    """
    p = np.asarray(p, float)
    counts = (labels > 0).sum(0)
    chosen = np.full(len(counts), overall)
    for c in np.flatnonzero(counts):
        if recall is not None:
            chosen[c] = recall_threshold(p[:, c], labels[:, c], recall)
        elif (labels[:, c] < 0).any():
            column = np.s_[:, [c]]
            chosen[c] = metrics.best_threshold(p[column], labels[column], unknown='ignore')
    weight = counts / (counts + PRIOR_COUNT)
    logits = weight * _logit(chosen) + (1 - weight) * _logit(overall)
    shrunk = 1 / (1 + np.exp(-logits))
    return np.where(chosen == overall, overall, shrunk).tolist()


def _logit(p):
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return np.log(p) - np.log1p(-p)


def thresholds_on_validation(
    logits: dict[str, Tensor], task: Task, selection: str, threshold: float
) -> dict | None:
    """Thresholds per class from validation, for the result of a run.

    Args:
        logits, task, selection: as in `selection.score_finished_run`.
        threshold: for all classes, as from there.

    Returns:
        `class_thresholds`: C numbers that maximise F1; without negatives, that reach the overall
        recall in each class. `named`: mean number of labels that `threshold` predicts on a
        validation photo. `labels`: mean number of true labels, None unless all are known. None
        without validation.
    """
    basis = threshold_basis(logits, task, selection)
    if basis is None:
        return None
    p, labels, has_negatives = basis
    p = p.numpy()
    recall = None
    if not has_negatives:
        recall = max(float((p[labels > 0] >= threshold).mean()), 1 / (labels > 0).sum())
    is_complete = has_negatives and bool((labels != 0).all())
    return {
        'class_thresholds': class_thresholds(p, labels, threshold, recall),
        'named': float((p >= threshold).sum(1).mean()),
        'labels': float((labels > 0).sum(1).mean()) if is_complete else None,
    }


_MAX_NAMES_PER_LABEL = 2  # beyond, most predicted labels are wrong
_MAX_NAMES_UNKNOWN = 4  # predicted labels per photo that need no warning if true ones are unknown


def warn_of_overprediction(
    named: float, labels: float | None, classes: int, calibrated: bool = False
) -> str:
    """Warn of a threshold that predicts too many labels.

    Args:
        named: mean number of predicted labels per photo.
        labels: mean number of true labels per photo; None if unknown.
        classes: their number.
        calibrated: whether fully labelled photos have set the threshold already.

    Returns:
        The problem and the remedy, in two sentences; '' if there is none.
    """
    if labels:
        if named <= _MAX_NAMES_PER_LABEL * labels:
            return ''
        problem = f'where {labels:.2f} are there, so that most are wrong'
    else:
        if named <= max(classes / 2, _MAX_NAMES_UNKNOWN):
            return ''
        problem = f'of {classes} classes, which is hardly what photos show'
    remedy = 'Take a higher threshold (`spml predict --threshold`)'
    if not calibrated:
        remedy += (
            f', or let {FULL_PHOTOS} photos labelled in full choose it: `spml calibrate RUN FOLDER`'
        )
    return f'{named:.2f} labels are named on a photo, {problem}. {remedy}.'


# Shares of one class among all predicted labels that call for a warning: the first if half of the
# classes are never predicted, the second in any case.
COMMONEST, NEARLY_ALL = 0.6, 0.9
FEWEST_NAMES = 10  # with fewer predicted labels, or photos, shares say little


def explain_narrow_naming(photos: dict[str, int], classes: int, calibrated: bool = False) -> str:
    """Warn of predictions in which hardly any class but one occurs.

    Args:
        photos: {class: number of photos that it is predicted on}; classes on none may be missing.
        classes: their number.
        calibrated: whether fully labelled photos have set the threshold already.

    Returns:
        The problem and the remedy, in two sentences; '' if there is none.
    """
    names = sum(photos.values())
    if classes < 3 or names < FEWEST_NAMES:
        return ''
    commonest = max(photos, key=photos.get)
    share = photos[commonest] / names
    never = classes - sum(count > 0 for count in photos.values())
    if share < (COMMONEST if 2 * never >= classes else NEARLY_ALL):
        return ''
    remedy = 'train with more photos of the other classes'
    if not calibrated:
        remedy += (
            f', and let {FULL_PHOTOS} photos labelled in full choose the threshold '
            f'({FULL_PHOTOS_GUIDE}): `spml calibrate RUN FOLDER`'
        )
    return (
        f'{commonest} is {100 * share:.0f} % of the names, and {never} of {classes} classes are '
        f'named on no photo. If the photos show more than that: {remedy}.'
    )


NEARLY_EVERYWHERE = 0.9  # fraction of the photos


def explain_everywhere(photos: dict[str, int], count: int, per_class: bool = False) -> str:
    """Warn of classes that are predicted on nearly all photos.

    Args:
        photos: {class: number of photos that it is predicted on}; classes on none may be missing.
        count: number of photos.
        per_class: whether there is a threshold per class already.

    Returns:
        A sentence or two; '' if there is no such class, or too few photos.
    """
    everywhere = [name for name, n in photos.items() if n >= NEARLY_EVERYWHERE * count]
    if count < FEWEST_NAMES or not everywhere:
        return ''
    named = ', '.join(
        f'{name} is named on {photos[name]:,} of {count:,} photos' for name in everywhere
    )
    remedy = '' if per_class else ' `--per-class` names each class from a threshold of its own on.'
    return f'{named}. Look whether they show it.{remedy}'


def is_class_overpredicted(photos: int, named: int, present: int) -> bool:
    """Whether a class is predicted on nearly all photos, although clearly fewer have it.

    Args:
        photos: their number.
        named: number of photos that the class is predicted on.
        present: number of photos that are labelled with it.
    """
    return named >= NEARLY_EVERYWHERE * photos and present < NEARLY_EVERYWHERE * named
