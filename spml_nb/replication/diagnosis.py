"""How a method treats unobserved labels: size and sign of its gradients, and what it memorised."""

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from .. import metrics
from ..data import labels
from ..methods.core import ViewOutputs
from ..models.heads import Outputs
from ..runs.folder import Run
from .figure_measurements import open_own_data


def measure_pulls(run: Run) -> tuple[Tensor, np.ndarray, np.ndarray, Tensor]:
    """The negative gradient of the loss in each training logit, at the best weights of a run.

    Args:
        run: A finished one.

    Returns:
        pull (N, C) float32, −∂L/∂s times the number of images in the batch; observed labels (N, C)
        int8; true labels (N, C) int8; logits (N, C).

    Raises:
        SpmlError: If the run is not finished.
    """
    seen = open_own_data(run)
    method = seen.method.train()
    method.epochs = seen.config.epochs
    method.start_epoch(method.epochs)
    z = method.z.cpu().numpy().copy()  # LL-Cp writes into it
    batches = torch.arange(len(seen.index)).split(seen.config.batch_size)
    pulls, logits = zip(*(_pull(seen, index) for index in batches), strict=True)
    return torch.cat(pulls).cpu(), z, seen.true, torch.cat(logits).cpu()


def _pull(seen, index: Tensor) -> tuple[Tensor, Tensor]:
    method = seen.method
    with torch.no_grad():
        outputs = seen.module.eval()(seen.source.batch(seen.index[index.numpy()], 'plain'))
    leaves = Outputs(*map(_leaf, outputs))
    loss = method.loss(ViewOutputs(dict.fromkeys(method.views, leaves)), index.to(seen.device))
    ranked = method.predict(ViewOutputs(plain=leaves))
    by_maps = leaves.cosine is None and ranked is not leaves.logits
    if ranked is leaves.logits:
        scored = leaves.logits
    else:
        scored = leaves.maps if by_maps else leaves.cosine
    logits = ranked.detach() if by_maps else outputs.logits
    (grad,) = torch.autograd.grad(loss, scored, allow_unused=True)
    if grad is None:
        return torch.zeros_like(logits), logits
    return -len(index) * (grad.sum((2, 3)) if by_maps else grad), logits


def _leaf(value):
    "A copy of a tensor that collects gradients; other values unchanged."
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone().requires_grad_(value.is_floating_point())


def diagnose(run: Run) -> dict:
    """Diagnostic numbers of a finished run.

    Returns:
        Dict of

        - share_false: share of the pull on unobserved labels that is on false negatives; up_false,
          up_true: share of it that raises the logits of false and of true negatives; NaN without
          any pull
        - hidden_map: mAP on unobserved training labels, percent; train_map, val_map, test_map
        - train_truth, val_truth, test_truth: as from `labels.choose_score_targets`
        - best_epoch, epochs, train_loss_first, train_loss_last

    Raises:
        SpmlError: If the run is not finished.

    Source: the false-negative gradients of EM/APL, supplement, and LL (Kim et al. 2022,
        memorisation).
    """
    pull, z, true, logits = measure_pulls(run)
    hidden = np.where(z == 0, true, 0)
    false_negatives = pull[torch.from_numpy(hidden > 0)]
    true_negatives = pull[torch.from_numpy(hidden < 0)]
    average_precisions = metrics.average_precision(
        logits.numpy(), hidden, empty='skip', unknown='ignore'
    )
    targets, truth = labels.choose_score_targets(true)
    curves, scores = pd.read_csv(run.folder / 'metrics.csv'), run.result()['scores']
    return {
        'share_false': _share(
            false_negatives.abs(), torch.cat([false_negatives, true_negatives]).abs()
        ),
        'up_false': _share(false_negatives.clamp(min=0), false_negatives.abs()),
        'up_true': _share(true_negatives.clamp(min=0), true_negatives.abs()),
        'hidden_map': 100 * pd.Series(average_precisions).mean(),
        'train_map': metrics.mean_average_precision(logits, targets, unknown='ignore'),
        'val_map': scores['val_map'],
        'test_map': scores['test_map'],
        'train_truth': truth,
        'val_truth': scores.get('val_truth'),
        'test_truth': scores.get('test_truth'),
        'best_epoch': scores['best_epoch'],
        'epochs': len(curves),
        'train_loss_first': float(curves.loss.iloc[0]),
        'train_loss_last': float(curves.loss.iloc[-1]),
    }


def _share(part: Tensor, total: Tensor) -> float:
    return part.sum().item() / (total.sum().item() or float('nan'))
