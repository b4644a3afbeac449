"""Measures runs beyond their scores: arrays for figures, what pulls at unobserved labels, and how
much the parts of OPML-SP change its gradient.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch
from PIL import Image
from scipy.special import expit
from torch import Tensor

from .. import metrics
from ..base import settings
from ..base.files import write_arrays
from ..data import labels
from ..methods.core import ViewOutputs
from ..methods.opml import high_rank_loss, opml_loss, soft_opml_loss, trust_share
from ..models.heads import Outputs
from ..runs.config import Config, resolve
from ..runs.folder import Run
from ..training.batches import feature_source
from ..training.evaluation import Opened, open_on_dataset
from ..training.selection import predict_logits
from ..training.task import make_task
from ..training.trainer import Trainer, train
from . import ablation_arms

POINTS = 5  # per epoch of the loss of annotated positives
QUANTILES = (0.25, 0.5, 0.75)
GROUPS = ('annotated positives', 'unannotated positives', 'unannotated negatives')


def label_group_masks(z: np.ndarray, true: np.ndarray) -> list[np.ndarray]:
    """The masks of `GROUPS`: three (N, C) bool arrays.

    Args:
        z: (N, C) observed labels in {1, 0, −1}.
        true: (N, C) true labels in {1, 0, −1}.
    """
    return [z > 0, (z == 0) & (true > 0), (z == 0) & (true < 0)]


class Notes:
    """Records the outputs for the training labels during training, as `on_step` of
    `training.train`.

    Attributes:
        steps: [sum of the loss of annotated positives, their number] for each batch.
        epochs: `QUANTILES` of |logit| and of the probability, per group, after each epoch.
        negative: Share of logits below 0, per group, after each epoch.

    Source: EM/APL, Figs. 7-9.
    """

    def __init__(self):
        self.steps, self.epochs, self.negative = [], [], []

    def state_dict(self) -> dict:
        return {'steps': self.steps, 'epochs': self.epochs, 'negative': self.negative}

    def load_state_dict(self, state: dict):
        self.steps, self.epochs = state['steps'], state['epochs']
        self.negative = state['negative']

    def __call__(self, trainer: Trainer, index: Tensor, outputs, loss: Tensor):
        "Record the loss of the annotated positives of a batch."
        positive = trainer.method.z[index.to(trainer.device)] > 0
        losses = torch.nn.functional.softplus(-outputs.logits.detach().float())[positive]
        self.steps.append([losses.sum().item(), len(losses)])

    def end_epoch(self, trainer: Trainer):
        "Record the scores of the training images, and write all notes to the run's folder."
        s, task = trainer.score().cpu().double().numpy(), trainer.task
        groups = label_group_masks(trainer.method.z.cpu().numpy(), task.data.labels[task.train])
        self.epochs.append(
            [[_quantiles(values[group]) for group in groups] for values in (abs(s), expit(s))]
        )
        self.negative.append([_share_negative(s[group]) for group in groups])
        write_arrays(trainer.run.folder / 'observed.npz', self.arrays())

    def arrays(self) -> dict[str, np.ndarray]:
        """annotated (epochs·POINTS,): mean loss, NaN without positives; logit, probability (epochs,
        groups, quantiles); negative (epochs, groups).
        """
        epochs = np.array_split(np.array(self.steps), len(self.epochs))
        chunks = [np.sum(chunk, 0) for epoch in epochs for chunk in np.array_split(epoch, POINTS)]
        logit, probability = np.array(self.epochs, np.float32).swapaxes(0, 1)
        return {
            'annotated': np.array(
                [total / count if count else np.nan for total, count in chunks], np.float32
            ),
            'logit': logit,
            'probability': probability,
            'negative': np.array(self.negative, np.float32),
        }


def _quantiles(values: np.ndarray) -> list[float]:
    return np.quantile(values, QUANTILES).tolist() if len(values) else [math.nan] * len(QUANTILES)


def _share_negative(scores: np.ndarray) -> float:
    return float((scores < 0).mean()) if len(scores) else math.nan


def find_noted_run(config: Config) -> Run:
    """The run in which the notes of a configuration are, finished or not; its file `observed.npz`
    has them.
    """
    return Run(resolve(config), settings.get_folder('runs') / 'observed')


def note_training(config: Config) -> Run:
    """Train a run and take `Notes`; resumes an interrupted run and leaves a finished one as it is.

    Raises:
        SpmlError: As `training.train`.
    """
    train(config, root=settings.get_folder('runs') / 'observed', on_step=Notes())
    return find_noted_run(config)


def read_notes(run: Run) -> dict[str, np.ndarray]:
    """Read `Notes.arrays` of a run from `note_training`."""
    return dict(np.load(run.folder / 'observed.npz'))


def open_own_data(run: Run, part: str = 'train') -> Opened:
    """Open a finished run with its own data, on this machine's device.

    Args:
        run: With its checkpoint.
        part: 'train', 'val' or 'test'.

    Returns:
        As from `training.open_on_dataset`, with `source` giving the features of a head, and `task`
        (its data and observed labels), `index` ((n,) rows of the part) and `true` ((n, C) true
        labels in {1, 0, −1}).

    Raises:
        SpmlError: If its files are damaged.
    """
    config = replace(run.config, device=None)
    task = make_task(config)
    seen, index = open_on_dataset(run, config, task.data), getattr(task, part)
    seen.task, seen.index, seen.true = task, index, task.data.labels[index]
    seen.method.take(task.side)  # which no checkpoint contains
    if seen.config.regime == 'linear':  # training has cached the features
        seen.source = feature_source(seen.model, seen.images, index, ('plain',), seen.config)
    return seen


def score_run(run: Run, part: str = 'train') -> Opened:
    """Score images of a finished run's data by its best weights.

    Args:
        run, part: As in `open_own_data`.

    Returns:
        As from `open_own_data`, with `logits` (n, C) float64.

    Raises:
        SpmlError: If its files are damaged.
    """
    seen = open_own_data(run, part)
    seen.logits = (
        predict_logits(seen.module, seen.method, seen.source, seen.index).cpu().double().numpy()
    )
    return seen


def count_histograms(x: np.ndarray, groups: list[np.ndarray], edges: np.ndarray) -> np.ndarray:
    """A histogram of the values of each group: (groups, n) int32 counts.

    Args:
        x: (N, C) values.
        groups: (N, C) bool masks.
        edges: (n + 1,) of the bins. Values beyond them count in the outermost bins.
    """
    return np.array(
        [np.histogram(np.clip(x[group], edges[0], edges[-1]), edges)[0] for group in groups],
        np.int32,
    )


IMAGES = 7  # in a figure
MAPS = 3  # of an image
_SIDE = 96  # pixels of an image at most


def collect_pictures(
    seen: Opened,
    chosen: list[tuple[int, list[int]]],
    make_map: Callable[[Tensor, int], Tensor],
    flags: np.ndarray,
) -> dict[str, np.ndarray]:
    """Collect images and their maps for a figure.

    Args:
        seen: As from `open_own_data`.
        chosen: (row of `seen.index`, at most `MAPS` classes) for each image.
        make_map: Function from a batch of one image and a class to a map (1, h, w).
        flags: (n, C) numbers to keep as `kinds`.

    Returns:
        images (k, s, s, 3) uint8; maps (k, 3, h, w) uint8, each scaled to 255; names (k, 3), '' for
        no map; kinds (k, 3) int8.
    """
    arrays = {'images': [], 'maps': [], 'names': [], 'kinds': []}
    for k, classes in chosen:
        batch = seen.images.batch(seen.index[[k]], 'plain')
        pixels = 255 * batch[0].permute(1, 2, 0).cpu().numpy()
        image = Image.fromarray(pixels.round().astype(np.uint8))
        side = min(_SIDE, image.width)
        padding = MAPS - len(classes)
        maps = np.stack([make_map(batch, c)[0].detach().cpu().numpy() for c in classes])
        maps = np.pad(maps, ((0, padding), (0, 0), (0, 0)))
        largest = np.maximum(maps.max((1, 2), keepdims=True), 1e-12)
        arrays['images'].append(np.asarray(image.resize((side, side), Image.Resampling.BOX)))
        arrays['maps'].append(np.round(255 * maps / largest).astype(np.uint8))
        arrays['names'].append([seen.task.data.class_names[c] for c in classes] + [''] * padding)
        arrays['kinds'].append(np.array([flags[k, c] for c in classes] + [0] * padding, np.int8))
    return {name: np.array(rows) for name, rows in arrays.items()}


def top_classes(p: np.ndarray, allowed: np.ndarray, n: int) -> list[int]:
    """The indices of the n classes with the highest probability, or fewer, in falling order.

    Args:
        p: (C,) probabilities.
        allowed: (C,) bool, the classes to choose from.
    """
    return [int(c) for c in np.argsort(-p, kind='stable') if allowed[c]][:n]


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


RANK_WEIGHTS = (1e-4, 1e-3, 1e-2, 1e-1)  # λ of high rank
SMOOTHING_POWERS = (4, 2, 1)  # γ of smoothing
_LEAST = 0.1  # share of the gradient from which on a part acts
_SEED = 1000  # which no final run has


class _GradientWatch:
    """Records the norms of gradients in the logits at each step of OPML, from the second epoch on,
    since smoothing needs the average precision after the first.
    """

    def __init__(self):
        self.ap = None
        self.norms = []

    def state_dict(self) -> dict:
        return {'ap': self.ap, 'norms': self.norms}

    def load_state_dict(self, state: dict):
        self.ap = state['ap']
        self.norms = state['norms']

    def __call__(self, trainer: Trainer, index: Tensor, outputs, loss: Tensor):
        if self.ap is None:
            return
        s = outputs.logits.detach().requires_grad_()
        z = trainer.method.z[index.to(s.device)]

        def gradient(value: Tensor) -> Tensor:
            return torch.autograd.grad(value, s)[0]

        plain = gradient(opml_loss(s, z))
        rank = gradient(high_rank_loss(s.sigmoid(), weight=1.0)).norm().item()
        norms = {'loss': plain.norm().item()}
        norms |= {f'λ = {weight:g}': weight * rank for weight in RANK_WEIGHTS}
        for power in SMOOTHING_POWERS:
            soft = gradient(soft_opml_loss(s, z, trust_share(s, self.ap, power)))
            norms[f'γ = {power}'] = (soft - plain).norm().item()
        self.norms.append(norms)

    def end_epoch(self, trainer: Trainer):
        positive = trainer.method.z > 0
        ap = metrics.average_precision(trainer.score(), positive, unknown='negative')
        self.ap = torch.from_numpy(ap).float().to(positive.device)


def measure_gradient_shares(config: Config) -> pd.Series:
    """Train OPML without its parts, and measure what each would add to the gradient.

    Args:
        config: Of `opml_sp` with all parts off, two epochs or more.

    Returns:
        Series by 'λ = 0.01', 'γ = 2' and so on: mean norm of the gradient that the part adds, with
        respect to the logits, relative to that of the loss.
    """
    watch = _GradientWatch()
    with TemporaryDirectory() as folder:
        train(config, root=Path(folder), on_step=watch)
    means = pd.DataFrame(watch.norms).mean()
    return means.drop('loss') / means.loss


def tabulate_gradient_shares() -> pd.DataFrame:
    """`measure_gradient_shares` for OPML of the ablation, a column for each of its photo sets."""
    ablation = ablation_arms.read_ablations()['opml_parts']
    shares = {}
    for dataset in ablation.columns.values():
        config, *_ = ablation_arms.arm_configs(ablation, 'OPML', dataset, pd.DataFrame())
        shares[dataset] = measure_gradient_shares(config.changed(seed=_SEED, label_seed=_SEED))
    return pd.DataFrame(shares)


def smallest_acting_weights(shares: pd.DataFrame) -> tuple[float, float]:
    """λ and γ of the ablation: the smallest of `RANK_WEIGHTS` and the largest of `SMOOTHING_POWERS`
    for which the part is at least a tenth of the gradient on every set.

    Args:
        shares: As from `tabulate_gradient_shares`.
    """
    acts = (shares >= _LEAST).all(axis=1)
    weight = next(weight for weight in RANK_WEIGHTS if acts[f'λ = {weight:g}'])
    power = next(power for power in SMOOTHING_POWERS if acts[f'γ = {power}'])
    return weight, power
