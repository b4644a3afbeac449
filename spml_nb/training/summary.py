"""How many labels a threshold names, and what has to stand beside a score."""

import math

import numpy as np
import torch
from torch import Tensor

from ..data.labels import TRUTHS

NAMED_COUNTS = ('labels_a_photo', 'without_label', 'observed_recall')


def named_labels(
    logits: Tensor | np.ndarray, observed: np.ndarray, threshold: float
) -> dict[str, float]:
    """How many labels a threshold names, and how many of the observed ones are among them.

    Args:
        logits: (N, C), of one photo or more.
        observed: (N, C), positive above 0.
        threshold: the probability from which on a label is named.

    Returns:
        labels_a_photo, their mean number; without_label, the share of the photos for which none is
        named; observed_recall, the share of the observed positives that are named, NaN if there is
        none. Shares are in [0, 1].
    """
    named = (torch.sigmoid(torch.as_tensor(logits).cpu().double()) >= threshold).numpy()
    positive = np.asarray(observed) > 0
    return {
        'labels_a_photo': float(named.sum(1).mean()),
        'without_label': float((~named.any(1)).mean()),
        'observed_recall': float(named[positive].mean()) if positive.any() else math.nan,
    }


def describe_named(counts: dict[str, float]) -> str:
    """Say what a threshold names.

    Args:
        counts: as from `named_labels`.

    Returns:
        The end of a sentence.
    """
    bare = 100 * counts['without_label']
    text = f'{counts["labels_a_photo"]:.2f} labels a photo, none on {bare:.0f} % of the photos'
    recall = counts.get('observed_recall', math.nan)
    if math.isnan(recall):
        return text
    return f'{text}, and {100 * recall:.0f} % of the observed labels'


def named_on_validation(scores: dict) -> dict[str, float] | None:
    """What the threshold of a run names on validation, where precision and F1 cannot be measured.

    Args:
        scores: as from `spml_nb.training.selection.score_finished_run`; what `named_labels` counts
            on validation has `val_` before its names.

    Returns:
        As from `named_labels`; None if validation is labelled well enough for true scores, or the
        run has not counted.
    """
    if scores.get('val_truth') != TRUTHS[2]:
        return None
    counts = {name: scores.get(f'val_{name}', math.nan) for name in NAMED_COUNTS}
    return None if any(map(math.isnan, counts.values())) else counts


def clean_test_map(scores: dict) -> float | None:
    """The test mAP of a run.

    Args:
        scores: as from `spml_nb.training.selection.score_finished_run`.

    Returns:
        Percent; None where it was not measured, or against observed labels alone.
    """
    value = scores.get('test_map', math.nan)
    observed_only = scores.get('test_truth') == TRUTHS[2]
    return None if math.isnan(value) or observed_only else value


def absent_classes(scores: dict) -> str:
    """Say what a test mAP does with classes that no test photo has.

    Args:
        scores: as from `spml_nb.training.selection.score_finished_run`.

    Returns:
        The end of a sentence; '' if they are left out, or there are none.
    """
    counted = scores.get('test_map', math.nan)
    without = scores.get('test_map_class', math.nan)
    if scores.get('map_definition', 'cole') != 'cole' or not counted < without:
        return ''
    note = f'classes that no test photo has count 0; {without:.2f} without them'
    return f' (map_definition cole: {note})'
