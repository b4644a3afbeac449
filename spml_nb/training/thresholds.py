"""A threshold for each class beside the one for all, from validation or any labelled photos."""

import math

import numpy as np
from torch import Tensor

from .. import metrics
from ..base.errors import SpmlError, parse_number
from ..data.labels import FULL_PHOTOS, FULL_PHOTOS_GUIDE
from .selection import PRIOR_COUNT, threshold_basis
from .task import Task


def check_recall(recall) -> float:
    """Make sure that a recall can be asked for.

    Raises:
        SpmlError: If it is no number above 0 and up to 1.
    """
    number = parse_number(recall)
    if not 0 < number <= 1:
        raise SpmlError(
            f'recall={recall!r}; allowed: a share above 0 and up to 1, such as 0.9: how many of '
            'the labels that are there are to be named.'
        )
    return number


def recall_threshold(p: np.ndarray, labels: np.ndarray, recall: float) -> float:
    """The highest threshold that names at least that share of the positives; halfway to the next
    lower probability, as `metrics.best_threshold` has it.

    Where observed positives were drawn at random among the true ones, their recall is that of all.

    Args:
        p: Probabilities of any shape.
        labels: Of the same shape, positive above 0, with at least one.
        recall: In (0, 1].
    """
    of_positives = np.sort(p[labels > 0])
    missed = len(of_positives) - math.ceil(round(recall * len(of_positives), 9))
    lowest = of_positives[missed]
    below = p[p < lowest].max(initial=0)
    return float((below + lowest) / 2)


def class_thresholds(
    p: np.ndarray, labels: np.ndarray, overall: float, recall: float | None = None
) -> list[float]:
    """Choose a threshold for each class, drawn towards the one for all.

    The best threshold of a class with three positives is one that suits these three. So it keeps
    the weight n/(n + `PRIOR_COUNT`) with n positives, on the scale of logits; a class without
    positives, or for F1 without negatives, takes the overall one.

    Args:
        p: (N, C) probabilities.
        labels: (N, C) in {1, 0, −1}, 0 for unknown.
        overall: The threshold for all classes.
        recall: The share of the positives of a class that is to be named; unset: what has the
            highest F1.
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
    drawn = 1 / (1 + np.exp(-logits))
    return np.where(chosen == overall, overall, drawn).tolist()


def _logit(p):
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return np.log(p) - np.log1p(-p)


def on_validation(
    logits: dict[str, Tensor], task: Task, selection: str, threshold: float
) -> dict | None:
    """What a finished run keeps of its thresholds beside its scores.

    Args:
        logits, task, selection: As in `selection.score_finished_run`.
        threshold: Of all classes, as from there.

    Returns:
        `class_thresholds`: C numbers; by F1, or where observed positives alone choose, so that each
        class has the recall which the overall threshold has over all. `named`: how many names it
        gives a validation photo on average. `labels`: how many apply, None where not all are known.
        None without validation.
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


MANY = 2  # names for each label that is there: at most half of them can be right
FEWEST_MANY = 4  # names a photo, up to which nobody is warned where the labels are not known


def explain_overnaming(
    named: float, labels: float | None, classes: int, calibrated: bool = False
) -> str:
    """Say so where a threshold names nearly everything.

    Args:
        named: Names that a photo gets, on average.
        labels: Labels that it has, on average; None where that is not known.
        classes: How many there are.
        calibrated: Whether photos labelled in full have chosen the threshold already.

    Returns:
        Two sentences, the second with the remedy; '' where nothing is unusual.
    """
    if labels:
        if named <= MANY * labels:
            return ''
        what = f'where {labels:.2f} are there, so that most are wrong'
    else:
        if named <= max(classes / 2, FEWEST_MANY):
            return ''
        what = f'of {classes} classes, which is hardly what photos show'
    remedy = (
        ''
        if calibrated
        else (
            f', or let {FULL_PHOTOS} photos labelled in full choose it: `spml calibrate RUN FOLDER`'
        )
    )
    return (
        f'{named:.2f} labels are named on a photo, {what}. Take a higher threshold '
        f'(`spml predict --threshold`){remedy}.'
    )


# shares of all names that are given: from the first on, one class is nearly all where half of the
# classes are never named, from the second on in any case
COMMONEST, NEARLY_ALL = 0.6, 0.9
FEWEST_NAMES = 10  # below, a share says little


def explain_narrow_naming(photos: dict[str, int], classes: int, calibrated: bool = False) -> str:
    """Say so where hardly any class but one is named.

    Args:
        photos: How many photos each class is named on; a class on none may be left out.
        classes: How many there are.
        calibrated: Whether photos labelled in full have chosen the threshold already.

    Returns:
        Two sentences, the second with the remedy; '' where nothing is unusual, as where one class
        is on most photos and most of the others are named too.
    """
    names = sum(photos.values())
    if classes < 3 or names < FEWEST_NAMES:
        return ''
    commonest = max(photos, key=photos.get)
    share = photos[commonest] / names
    never = classes - sum(count > 0 for count in photos.values())
    if share < (COMMONEST if 2 * never >= classes else NEARLY_ALL):
        return ''
    remedy = (
        ''
        if calibrated
        else (
            f', and let {FULL_PHOTOS} photos labelled in full choose the threshold '
            f'({FULL_PHOTOS_GUIDE}): `spml calibrate RUN FOLDER`'
        )
    )
    return (
        f'{commonest} is {100 * share:.0f} % of the names, and {never} of {classes} classes are '
        'named on no photo. If the photos show more than that: train with more photos of the '
        f'other classes{remedy}.'
    )


NEARLY_EVERYWHERE = 0.9  # of the photos; and of those named, how many may fewer have it


def explain_everywhere(photos: dict[str, int], count: int, per_class: bool = False) -> str:
    """Say so where a class is named on nearly all photos, however many others are named as well.

    Args:
        photos: How many photos each class is named on; a class on none may be left out.
        count: Of photos.
        per_class: Whether each class is named from a threshold of its own on already.

    Returns:
        A sentence or two; '' where no class is, and for few photos.
    """
    everywhere = [name for name, n in photos.items() if n >= NEARLY_EVERYWHERE * count]
    if count < FEWEST_NAMES or not everywhere:
        return ''
    named = ', '.join(
        f'{name} is named on {photos[name]:,} of {count:,} photos' for name in everywhere
    )
    remedy = '' if per_class else ' `--per-class` names each class from a threshold of its own on.'
    return f'{named}. Look whether they show it.{remedy}'


def is_overused(photos: int, named: int, present: int) -> bool:
    """Whether a class is named on nearly all photos, and clearly fewer are known to have it.

    Args:
        photos: How many there are.
        named: How many get the name.
        present: How many of all are known to have it.
    """
    return named >= NEARLY_EVERYWHERE * photos and present < NEARLY_EVERYWHERE * named
