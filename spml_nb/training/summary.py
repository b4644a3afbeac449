"""How many labels a threshold names, and what has to stand beside a score."""

import math

import numpy as np
import torch
from torch import Tensor

from ..data.labels import TRUTHS, describe_truth

OBSERVED_AUC = (
    'how often a photo with a written-down label scores higher for it than another photo, in '
    'percent; guessing gets 50'
)
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


def count_names(
    logits: Tensor | np.ndarray, class_names: list[str], threshold: float
) -> dict[str, int]:
    """On how many photos a threshold names each class.

    Args:
        logits: (N, C).
        class_names: C texts.
        threshold: the probability from which on a label is named.
    """
    p = torch.sigmoid(torch.as_tensor(logits).cpu().double())
    counts = (p >= threshold).sum(0).tolist()
    return dict(zip(class_names, counts, strict=True))


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


def describe_scores(scores: dict) -> str:
    """Say how a run scored, by the measure that chose it first.

    Args:
        scores: as from `spml_nb.training.selection.score_finished_run`.

    Returns:
        A line, and where labels that nobody wrote down leave no true score, another that says what
        the number is.
    """
    parts = {'validation': 'val', 'test': 'test'}
    line = '; '.join(f'{name} {_describe_score(scores, part)}' for name, part in parts.items())
    if clean_test_map(scores) is not None:
        line += absent_classes(scores)
    seen = scores.get('val_map_seen')
    if scores.get('selected_by') == 'clean_map' and seen not in (None, scores['val_map']):
        line += (
            '. Over the classes that training photos have, by which the epoch was chosen: '
            f'validation mAP {seen:.2f}'
        )
    of_observed = [
        f'{name} {scores[f"{part}_map"]:.2f}'
        for name, part in parts.items()
        if _has_observed_auc_alone(scores, part)
    ]
    if not of_observed:
        return line
    return (
        f'{line}\nObserved AUC: {OBSERVED_AUC}. mAP against observed labels '
        f'({", ".join(of_observed)}) takes every label that nobody wrote down for absent, so it '
        'does not measure the model.'
    )


def observed_auc_of(scores: dict, part: str) -> float | None:
    """The observed AUC of a part, where it is a score of the run.

    Args:
        scores: as from `spml_nb.training.selection.score_finished_run`.
        part: 'val' or 'test'.

    Returns:
        Percent; None where it was not measured, or true labels chose the epoch and it is noted for
        comparison only.
    """
    value = scores.get(f'observed_{part}_auc', math.nan)
    beside = part == 'val' and scores.get('selected_by') != 'observed_auc'
    return None if beside or math.isnan(value) else value


def _describe_score(scores: dict, part: str) -> str:
    if f'{part}_map' not in scores:
        return 'not measured'
    auc = observed_auc_of(scores, part)
    measured = [] if auc is None else [f'observed AUC {auc:.2f}']
    if not _has_observed_auc_alone(scores, part):
        truth = describe_truth(scores[f'{part}_truth'])
        measured.append(f'mAP {scores[f"{part}_map"]:.2f} against {truth}')
    return ', '.join(measured)


def _has_observed_auc_alone(scores: dict, part: str) -> bool:
    is_observed = scores.get(f'{part}_truth') == TRUTHS[2]
    return is_observed and observed_auc_of(scores, part) is not None


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
