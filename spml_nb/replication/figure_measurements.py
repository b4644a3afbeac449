"""Measures runs for figures, after training or during it, and keeps the results as small arrays."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from PIL import Image
from scipy.special import expit

from ..base import settings
from ..base.files import write_arrays
from ..runs.config import Config, resolve
from ..runs.folder import Run
from ..training.batches import feature_source
from ..training.evaluation import Opened, open_on_dataset
from ..training.selection import predict_logits
from ..training.task import make_task
from ..training.trainer import Trainer, train

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

    def __call__(self, trainer: Trainer, index: torch.Tensor, outputs, loss: torch.Tensor):
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
    make_map: Callable[[torch.Tensor, int], torch.Tensor],
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
