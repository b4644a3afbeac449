"""The data of a run: images, split, true labels and observed labels."""

from dataclasses import dataclass, field

import numpy as np

from .. import data as datasets
from ..base.errors import SpmlError
from ..data import labels, side_information
from ..data.official.boxes import weigh_benchmark_by_boxes
from ..data.official.l48 import observe_recordings
from ..runs.config import Config, default_labels


@dataclass(frozen=True)
class Task:
    """The data of a run.

    Args:
        data: images and true labels.
        train, val, test: row numbers of `data`.
        observed: (N_train, C) int8 in {1, 0, −1}.
        observed_val: (N_val, C) int8 in {1, 0, −1}.
        epoch_length: images per epoch; 0: N_train.
        side: {kind: (N_train, …)} as from `spml_nb.data.side_information.read_side`.
    """

    data: datasets.Dataset
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    observed: np.ndarray
    observed_val: np.ndarray
    epoch_length: int = 0
    side: dict = field(default_factory=dict)

    @property
    def length(self) -> int:
        return self.epoch_length or len(self.train)


def make_task(config: Config) -> Task:
    """Load a data set, and draw its observed labels and the images to train on.

    Args:
        config: any configuration.

    Raises:
        SpmlError: for an unknown data set or setting, fewer training images than `train_images`,
            no observed label, no validation labels to select on, or side information that does not
            fit the data.

    Source: Cole et al. (2021), section 4 and code.
    """
    data = datasets.load(
        config.dataset, root=config.root, min_positives=config.min_positives, exclude=config.exclude
    )
    train, val, test = (data.rows(part) for part in ('train', 'val', 'test'))
    drawn = np.sort(np.concatenate([train, val]))
    kind_of_labels = config.labels or default_labels(config.dataset)
    observed = _observe(data, drawn, kind_of_labels, config)
    if not config.hold_out:
        train, val = drawn, val[:0]
    if kind_of_labels in labels.RECORDING_SETTINGS:
        train = train[observed[train].any(1)]  # as in L48
    clean, val = split_validation(val, config)
    observed[clean] = data.labels[clean]
    # the number of steps per epoch does not depend on `train_images` or `trained_validation`
    epoch_length = len(train) + len(clean)
    train = _draw_training_rows(train, config, data.name)
    if config.trained_validation == 'alone':
        train = clean
    else:
        train = np.sort(np.concatenate([train, clean]))
    _require_labels(data, train, val, observed, config)
    side_values = side_information.read_side(config.side, data, train) if config.side else {}
    return Task(
        data,
        train,
        val,
        test,
        observed=observed[train],
        observed_val=observed[val],
        epoch_length=epoch_length,
        side=side_values,
    )


def _require_labels(
    data: datasets.Dataset,
    train: np.ndarray,
    val: np.ndarray,
    observed: np.ndarray,
    config: Config,
) -> None:
    if not len(train):
        raise SpmlError(
            f'{data.name!r} has no training image. Mark rows `train` in the column `split` of its '
            'table.'
        )
    if not observed[train].any():
        kind_of_labels = config.labels or default_labels(config.dataset)
        raise SpmlError(
            f'no label is observed in the {len(train)} training images of {data.name!r} with '
            f'labels={kind_of_labels!r}: there is nothing to learn from. '
            "Check the table's labels, or observe more (labels: single, full, partial-F, "
            'single+negatives).'
        )
    in_training = (data.labels[train] > 0).any(0)
    # without positives in these classes, every epoch has a mAP of 0
    if config.selection != 'last' and not (data.labels[val][:, in_training] > 0).any():
        raise SpmlError(
            f'selection={config.selection!r} needs validation images with labels that training '
            f'images have too, and {data.name!r} has none. Add some, or set selection: last.'
        )


def _observe(
    data: datasets.Dataset, drawn: np.ndarray, kind_of_labels: str, config: Config
) -> np.ndarray:
    "(N, C) labels, observed in the rows `drawn`; other rows are undefined."
    setting = labels.parse_label_setting(kind_of_labels)
    kind_of_weights = setting.get('weights')
    if kind_of_weights in labels.RECORDING_SETTINGS:
        return observe_recordings(config.dataset, data, kind_of_weights, config.root)
    if kind_of_weights in labels.BOX_WEIGHTINGS:
        weights = weigh_benchmark_by_boxes(config.dataset, data, kind_of_weights, config.root)
        setting['weights'] = weights[drawn]
    observed = np.zeros_like(data.labels)
    observed[drawn] = labels.observe(
        data.labels[drawn], **setting, seed=config.label_seed, unknown='ignore'
    )
    return observed


def split_validation(val: np.ndarray, config: Config) -> tuple[np.ndarray, np.ndarray]:
    "Validation rows to train on with all their labels, and rows to validate on."
    if not config.trained_validation:
        return val[:0], val
    order = np.random.RandomState(config.label_seed).permutation(len(val))
    half = len(val) // 2
    return np.sort(val[order[:half]]), np.sort(val[order[half:]])


def _draw_training_rows(train: np.ndarray, config: Config, name: str) -> np.ndarray:
    "A random subset of `train_images` training rows."
    if config.train_images > len(train):
        raise SpmlError(
            f'train_images={config.train_images}, but {name!r} has only {len(train)} training '
            'images. Give that many or fewer, or 0 for all.'
        )
    if not config.train_images:
        return train
    order = np.random.RandomState(config.label_seed).permutation(len(train))
    return np.sort(train[order[: config.train_images]])
