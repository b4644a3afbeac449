"""What a run learns from: images, true labels and observed labels."""

from dataclasses import dataclass, field

import numpy as np

from .. import data as datasets
from ..base.errors import SpmlError
from ..data import labels, side
from ..data.official.boxes import box_weights
from ..data.official.l48 import observe_recordings
from ..runs.config import Config, default_labels


@dataclass(frozen=True)
class Task:
    """What a run learns from.

    Args:
        data: images and true labels.
        train, val, test: row numbers of `data`.
        observed: (N_train, C) int8 in {1, 0, −1}.
        observed_val: (N_val, C) int8 in {1, 0, −1}.
        epoch_length: images that an epoch goes through, where that is not N_train.
        side: {kind: (N_train, …) of what is known besides labels}, as from
            `spml_nb.data.side.read_side`.
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
    """Load a data set and draw its observed labels.

    Args:
        config: any configuration; without `hold_out` the validation images are training images.

    Returns:
        The task.

    Raises:
        SpmlError: for unknown data, an impossible setting, more training images than there are,
            nothing observed, no validation images with labels to select on, or a file of side
            information that does not fit.

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
        train = train[observed[train].any(1)]  # as the benchmark does
    clean, val = _clean_half(val, config)
    observed[clean] = data.labels[clean]
    # as many steps an epoch whatever part of the images is trained on
    epoch_length = len(train) + len(clean)
    train = _some(train, config, data.name)
    if config.trained_validation == 'alone':
        train = clean
    else:
        train = np.sort(np.concatenate([train, clean]))
    if not len(train):
        raise SpmlError(
            f'{data.name!r} has no training image. Mark rows `train` in the column `split` of its '
            'table.'
        )
    if not observed[train].any():
        raise SpmlError(
            f'nothing is observed in the {len(train)} training images of {data.name!r} with '
            f'labels={kind_of_labels!r}: there is nothing to learn from. '
            "Check the table's labels, or observe more (labels: single, full, partial-F, "
            'single+negatives).'
        )
    seen = (data.labels[train] > 0).any(0)
    # else every epoch has a mAP of 0
    if not (data.labels[val][:, seen] > 0).any() and config.selection != 'last':
        raise SpmlError(
            f'selection={config.selection!r} needs validation images with labels that training '
            f'images have too, and {data.name!r} has none. Add some, or give selection: last.'
        )
    side_information = side.read_side(config.side, data, train) if config.side else {}
    return Task(
        data,
        train,
        val,
        test,
        observed=observed[train],
        observed_val=observed[val],
        epoch_length=epoch_length,
        side=side_information,
    )


def _observe(
    data: datasets.Dataset, drawn: np.ndarray, kind_of_labels: str, config: Config
) -> np.ndarray:
    "(N, C) observed labels of the rows in `drawn`; those of other rows are not to be used."
    setting = labels.parse_label_setting(kind_of_labels)
    kind_of_weights = setting.get('weights')
    if kind_of_weights in labels.RECORDING_SETTINGS:
        return observe_recordings(config.dataset, data, kind_of_weights, config.root)
    if kind_of_weights in labels.BOX_WEIGHTINGS:
        weights = box_weights(config.dataset, data, kind_of_weights, config.root)
        setting['weights'] = weights[drawn]
    observed = np.zeros_like(data.labels)
    observed[drawn] = labels.observe(
        data.labels[drawn], **setting, seed=config.label_seed, unknown='ignore'
    )
    return observed


def _clean_half(val: np.ndarray, config: Config) -> tuple[np.ndarray, np.ndarray]:
    "The validation rows that are trained on with all their labels, and those that choose."
    if not config.trained_validation:
        return val[:0], val
    order = np.random.RandomState(config.label_seed).permutation(len(val))
    half = len(val) // 2
    return np.sort(val[order[:half]]), np.sort(val[order[half:]])


def _some(train: np.ndarray, config: Config, name: str) -> np.ndarray:
    "The training rows that a run learns from."
    if config.train_images > len(train):
        raise SpmlError(
            f'train_images={config.train_images}, and {name!r} has {len(train)} training images. '
            'Give that many or fewer, or 0 for all.'
        )
    if not config.train_images:
        return train
    order = np.random.RandomState(config.label_seed).permutation(len(train))
    return np.sort(train[order[: config.train_images]])
