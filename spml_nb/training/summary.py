"""Count the labels that a threshold predicts, and describe the scores of a run in words."""

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


def count_predicted_labels(
    logits: Tensor | np.ndarray, observed: np.ndarray, threshold: float
) -> dict[str, float]:
    """Count the predicted labels of a threshold, and the observed ones among them.

    Args:
        logits: (N, C), N ≥ 1.
        observed: (N, C), positive above 0.
        threshold: on the probability.

    Returns:
        labels_a_photo: mean number of predicted labels; without_label: fraction of photos without
        any; observed_recall: fraction of the observed positives that are predicted, NaN if there
        are none.
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
    """Count the photos on which each class is predicted.

    Args:
        logits: (N, C).
        class_names: C texts.
        threshold: on the probability.
    """
    p = torch.sigmoid(torch.as_tensor(logits).cpu().double())
    counts = (p >= threshold).sum(0).tolist()
    return dict(zip(class_names, counts, strict=True))


def describe_named(counts: dict[str, float]) -> str:
    """The counts of `count_predicted_labels` in words, as the end of a sentence."""
    without = 100 * counts['without_label']
    text = f'{counts["labels_a_photo"]:.2f} labels a photo, none on {without:.0f} % of the photos'
    recall = counts.get('observed_recall', math.nan)
    if math.isnan(recall):
        return text
    return f'{text}, and {100 * recall:.0f} % of the observed labels'


def named_on_validation(scores: dict) -> dict[str, float] | None:
    """The counts of `count_predicted_labels` on validation, if F1 cannot be measured there.

    Args:
        scores: as from `spml_nb.training.selection.score_finished_run`.

    Returns:
        As from `count_predicted_labels`; None if true labels score validation, or older versions
        did not count.
    """
    if scores.get('val_truth') != TRUTHS[2]:
        return None
    counts = {name: scores.get(f'val_{name}', math.nan) for name in NAMED_COUNTS}
    return None if any(map(math.isnan, counts.values())) else counts


def describe_scores(scores: dict) -> str:
    """The scores of a run in words, starting with the measure that selected the epoch.

    Args:
        scores: as from `spml_nb.training.selection.score_finished_run`.

    Returns:
        A line; if only observed labels are available, a second one explains the measure.
    """
    parts = {'validation': 'val', 'test': 'test'}
    line = '; '.join(f'{name} {_describe_score(scores, part)}' for name, part in parts.items())
    if clean_test_map(scores) is not None:
        line += explain_absent_classes(scores)
    seen = scores.get('val_map_seen')
    if scores.get('selected_by') == 'clean_map' and seen not in (None, scores['val_map']):
        line += (
            '. Over the classes that training photos have, by which the epoch was chosen: '
            f'validation mAP {seen:.2f}'
        )
    observed_maps = [
        f'{name} {scores[f"{part}_map"]:.2f}'
        for name, part in parts.items()
        if _has_observed_auc_alone(scores, part)
    ]
    if not observed_maps:
        return line
    return (
        f'{line}\nObserved AUC: {OBSERVED_AUC}. mAP against observed labels '
        f'({", ".join(observed_maps)}) takes every label that nobody wrote down for absent, so it '
        'does not measure the model.'
    )


def read_observed_auc(scores: dict, part: str) -> float | None:
    """The observed AUC of a split.

    Args:
        scores: as from `spml_nb.training.selection.score_finished_run`.
        part: 'val' or 'test'.

    Returns:
        Percent; None if it was not measured, or on validation did not select the epoch.
    """
    value = scores.get(f'observed_{part}_auc', math.nan)
    is_secondary = part == 'val' and scores.get('selected_by') != 'observed_auc'
    return None if is_secondary or math.isnan(value) else value


def _describe_score(scores: dict, part: str) -> str:
    if f'{part}_map' not in scores:
        return 'not measured'
    auc = read_observed_auc(scores, part)
    measured = [] if auc is None else [f'observed AUC {auc:.2f}']
    if not _has_observed_auc_alone(scores, part):
        truth = describe_truth(scores[f'{part}_truth'])
        measured.append(f'mAP {scores[f"{part}_map"]:.2f} against {truth}')
    return ', '.join(measured)


def _has_observed_auc_alone(scores: dict, part: str) -> bool:
    is_observed = scores.get(f'{part}_truth') == TRUTHS[2]
    return is_observed and read_observed_auc(scores, part) is not None


def clean_test_map(scores: dict) -> float | None:
    """The test mAP of a run against true labels, in percent; None if there are none.

    Args:
        scores: as from `spml_nb.training.selection.score_finished_run`.
    """
    value = scores.get('test_map', math.nan)
    observed_only = scores.get('test_truth') == TRUTHS[2]
    return None if math.isnan(value) or observed_only else value


def explain_absent_classes(scores: dict) -> str:
    """Explain the effect of classes without a test photo on the test mAP.

    Args:
        scores: as from `spml_nb.training.selection.score_finished_run`.

    Returns:
        The end of a sentence; '' if there is no effect.
    """
    with_absent = scores.get('test_map', math.nan)
    without = scores.get('test_map_class', math.nan)
    if scores.get('map_definition', 'cole') != 'cole' or not with_absent < without:
        return ''
    note = f'classes that no test photo has count 0; {without:.2f} without them'
    return f' (map_definition cole: {note})'
