"""Runs become the small arrays that figures are drawn from; some are taken while they train."""

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

POINTS = 5  # of the loss of annotated positives in an epoch
QUANTILES = (0.25, 0.5, 0.75)
GROUPS = ('annotated positives', 'unannotated positives', 'unannotated negatives')


def label_group_masks(z: np.ndarray, true: np.ndarray) -> list[np.ndarray]:
    """Which entries belong to each of `GROUPS`.

    Args:
        z: (N, C) observed labels in {1, 0, −1}.
        true: (N, C) true labels in {1, 0, −1}.

    Returns:
        Three (N, C) bool arrays.
    """
    return [z > 0, (z == 0) & (true > 0), (z == 0) & (true < 0)]


class Notes:
    """What a network makes of the training labels while it trains: an `on_step` of
    `training.train`.

    Attributes:
        steps: [sum of the loss of annotated positives, how many there are] for each batch.
        epochs: the `QUANTILES` of |logit| and of the probability, for each group, after each epoch.
        negative: the share of scores below 0, for each group, after each epoch.

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
        "Note the loss of a batch's annotated positives."
        positive = trainer.method.z[index.to(trainer.device)] > 0
        losses = torch.nn.functional.softplus(-outputs.logits.detach().float())[positive]
        self.steps.append([losses.sum().item(), len(losses)])

    def end_epoch(self, trainer: Trainer):
        "Note the scores of the training images, and write all notes to the run's folder."
        s, task = trainer.score().cpu().double().numpy(), trainer.task
        groups = label_group_masks(trainer.method.z.cpu().numpy(), task.data.labels[task.train])
        self.epochs.append(
            [
                [
                    np.quantile(x[g], QUANTILES).tolist() if g.any() else [float('nan')] * 3
                    for g in groups
                ]
                for x in (abs(s), expit(s))
            ]
        )
        self.negative.append([float((s[g] < 0).mean()) if g.any() else np.nan for g in groups])
        write_arrays(trainer.run.folder / 'observed.npz', self.arrays())

    def arrays(self) -> dict[str, np.ndarray]:
        """annotated (epochs·POINTS,) loss, NaN where there was none; logit, probability (epochs, 3
        groups, 3 quantiles); negative (epochs, 3 groups), shares.
        """
        epochs = np.array_split(np.array(self.steps), len(self.epochs))
        chunks = [np.sum(chunk, 0) for epoch in epochs for chunk in np.array_split(epoch, POINTS)]
        annotated = np.array([total / n if n else np.nan for total, n in chunks], np.float32)
        logit, probability = np.array(self.epochs, np.float32).swapaxes(0, 1)
        negative = np.array(self.negative, np.float32)
        return {
            'annotated': annotated,
            'logit': logit,
            'probability': probability,
            'negative': negative,
        }


def find_noted_run(config: Config) -> Run:
    """Where the notes of a run lie.

    Args:
        config: any.

    Returns:
        The run, done or not. A run that is done has a file `observed.npz`.
    """
    return Run(resolve(config), settings.path('runs') / 'observed')


def note_training(config: Config) -> Run:
    """Train a run and take `Notes`. It is resumed if it was interrupted, and left as it is if it is
    done.

    Args:
        config: any.

    Returns:
        The run, done.

    Raises:
        SpmlError: as `training.train`.
    """
    train(config, root=settings.path('runs') / 'observed', on_step=Notes())
    return find_noted_run(config)


def read_notes(run: Run) -> dict[str, np.ndarray]:
    """Read the notes of an observed run.

    Args:
        run: from `note_training`.

    Returns:
        The arrays of `Notes.arrays`.
    """
    return dict(np.load(run.folder / 'observed.npz'))


def open_own_data(run: Run, part: str = 'train') -> Opened:
    """Open a finished run on its own data, on this machine's device.

    Args:
        run: done, with its checkpoint.
        part: 'train', 'val' or 'test', what is looked at.

    Returns:
        As from `training.open_on_dataset`, the features of a head in its `source`, and `task`: its
        data, with observed labels; `index`: (n,) rows of the part; `true`: their true labels, (n,
        C) in
        {1, 0, −1}.

    Raises:
        SpmlError: if its files are damaged.
    """
    config = replace(run.config, device=None)
    task = make_task(config)
    seen, index = open_on_dataset(run, config, task.data), getattr(task, part)
    seen.task, seen.index, seen.true = task, index, task.data.labels[index]
    seen.method.take(task.side)  # no checkpoint holds it
    if seen.config.regime == 'linear':  # features that training has left in the cache
        seen.source = feature_source(seen.model, seen.images, index, ('plain',), seen.config)
    return seen


def score_run(run: Run, part: str = 'train') -> Opened:
    """Score images of a finished run's data by its best weights.

    Args:
        run, part: as in `open_own_data`.

    Returns:
        As from `open_own_data`, and `logits`: (n, C) scores of the rows, float64.

    Raises:
        SpmlError: if its files are damaged.
    """
    seen = open_own_data(run, part)
    seen.logits = (
        predict_logits(seen.module, seen.method, seen.source, seen.index).cpu().double().numpy()
    )
    return seen


def count_histograms(x: np.ndarray, groups: list[np.ndarray], edges: np.ndarray) -> np.ndarray:
    """Count values on a grid, one group after another.

    Args:
        x: (N, C) values.
        groups: (N, C) bool each, the entries that are counted.
        edges: (n + 1,) of the bins. Values beyond the edges count in the outermost bins.

    Returns:
        (groups, n) int32 counts.
    """
    return np.array(
        [np.histogram(np.clip(x[g], edges[0], edges[-1]), edges)[0] for g in groups], np.int32
    )


IMAGES, MAPS, SIDE = 7, 3, 96  # images in a figure, maps of an image, most pixels of a side


def collect_pictures(
    seen: Opened, chosen: list[tuple[int, list[int]]], make_map, flags: np.ndarray
) -> dict[str, np.ndarray]:
    """Make the images and maps of a figure.

    Args:
        seen: the run that is looked at, as from `open_own_data`.
        chosen: (row of `seen.index`, classes), at most `MAPS` classes for each of the images.
        make_map: from a batch with one image and a class to maps (1, h, w).
        flags: (n, C) a number for each entry, kept as `kinds`.

    Returns:
        images (k, s, s, 3) uint8; maps (k, 3, h, w) uint8, each up to 255; names (k, 3), '' for no
        map; kinds (k, 3) int8.
    """
    figure = {'images': [], 'maps': [], 'names': [], 'kinds': []}
    for k, classes in chosen:
        batch = seen.images.batch(seen.index[[k]], 'plain')
        pixels = 255 * batch[0].permute(1, 2, 0).cpu().numpy()
        image = Image.fromarray(pixels.round().astype(np.uint8))
        side = min(SIDE, image.width)
        pad = MAPS - len(classes)
        maps = np.stack([make_map(batch, c)[0].detach().cpu().numpy() for c in classes])
        maps = np.pad(maps, ((0, pad), (0, 0), (0, 0)))
        largest = np.maximum(maps.max((1, 2), keepdims=True), 1e-12)
        figure['images'].append(np.asarray(image.resize((side, side), Image.Resampling.BOX)))
        figure['maps'].append(np.round(255 * maps / largest).astype(np.uint8))
        figure['names'].append([seen.task.data.class_names[c] for c in classes] + [''] * pad)
        figure['kinds'].append(np.array([flags[k, c] for c in classes] + [0] * pad, np.int8))
    return {name: np.array(rows) for name, rows in figure.items()}


def top_classes(p: np.ndarray, allowed: np.ndarray, n: int) -> list[int]:
    """The classes with the highest probability.

    Args:
        p: (C,) probabilities.
        allowed: (C,) bool, the classes that may be chosen.
        n: how many at most.

    Returns:
        Class numbers, the most probable first.
    """
    return [int(c) for c in np.argsort(-p, kind='stable') if allowed[c]][:n]
