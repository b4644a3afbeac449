"""Open a trained network with its method, and score it on any data set of the same classes."""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from .. import data as datasets
from .. import metrics
from ..base.errors import SpmlError
from ..data.dataset import choose_default_part
from ..data.folder import explain_split
from ..methods.core import Method
from ..runs.config import Config, resolve
from ..runs.folder import Run, open_run
from .batches import ImageSource, image_source
from .network import Network, open_network
from .selection import predict_logits, scoring_labels
from .summary import count_predicted_labels


@dataclass
class Opened:
    """A finished run, opened on a data set and a device.

    Args:
        config: resolved.
        model: with the best weights.
        method: with its learnt state.
        images: batches of images.
        module: the model, or only its head if the backbone was frozen.
        source: batches of the module's inputs.
    """

    config: Config
    device: torch.device
    model: nn.Module
    method: Method
    images: ImageSource
    module: nn.Module
    source: object


def open_on_dataset(run: Run, config: Config, data: datasets.Dataset) -> Opened:
    """Open a finished run on a data set, with its best weights and in evaluation mode.

    Args:
        run: done, with its checkpoint.
        config: the run's, perhaps with another device or data set.
        data: of the same classes.

    Raises:
        SpmlError: as `spml_nb.training.network.open_network`.
    """
    config = resolve(config)
    device = torch.device(config.device)
    network = open_network(run, restore_method=True).to(device, memory_format=torch.channels_last)
    images = image_source(data, config, device)
    module, source = network.model, images
    if config.regime == 'linear':
        module, source = network.model.head, _Features(network, images)
    return Opened(config, device, network.model, network.method, images, module, source)


@dataclass
class _Features:
    "Batches of frozen features, computed from images without a cache."

    network: Network
    images: ImageSource

    def batch(self, rows: np.ndarray, role: str) -> Tensor:
        return self.network.features(self.images.batch(rows, role))


def evaluate(
    folder: str | Path,
    dataset: str | Path | None = None,
    *,
    part: str | None = None,
    root: str | None = None,
) -> tuple[dict, Tensor, datasets.Dataset]:
    """Score a finished run on any data set of the same classes. Warns if there is no known
    negative.

    Args:
        folder: of the run, or its name in the setting `runs`.
        dataset: a name or folder; unset: the run's own.
        part: 'train', 'val', 'test' or 'all'; unset: as from `choose_default_part`.
        root: where named data sets live; unset: for the run's own, where it found them.

    Returns:
        dict of map (percent), ap (C in [0, 1]), threshold, micro_f1, macro_f1, truth (as from
        `labels.choose_score_targets`; for 'observed only', map, ap and F1 are against observed
        labels), map_definition, part, and the counts of `count_predicted_labels`; (N, C) logits;
        the data set.

    Raises:
        SpmlError: if the run is not done, the classes differ, or the run's own data have changed.
    """
    run = open_run(folder)
    result = run.result()
    config = replace(run.config, device=None, root=root or run.config.root)
    if dataset is not None:
        config = replace(
            config,
            dataset=str(dataset),
            root=root,
            min_positives=0,
            exclude=(),
            map_definition=None,
        )
    config = resolve(config)
    data = _same_classes(load_run_data(run, config, dataset is None), result['class_names'])
    same_photos = (
        dataset is None
        or data.name == Path(run.config.dataset).name
        or data.photos_of('test') == result.get('tested')
    )
    part = part or choose_default_part(data, same_photos)
    rows = data.rows(part)
    if not len(rows):
        raise SpmlError(
            f'{data.name!r} has no image in the part {part!r}. Choose another, or mark rows in the '
            'column `split`.'
        )
    opened = open_on_dataset(run, config, data)
    logits = predict_logits(opened.module, opened.method, opened.source, rows)
    targets, truth = scoring_labels(data, {part: rows})
    scores = _score(logits, targets[part], run.threshold(), config.map_definition)
    named = count_predicted_labels(logits, data.labels[rows], scores['threshold'])
    return {**scores, **named, 'truth': truth[part], 'part': part}, logits, data


def _score(logits: Tensor, true: np.ndarray, threshold: float, map_definition: str) -> dict:
    "mAP, AP and F1 of (N, C) logits against (N, C) labels, without unknown ones."
    p = torch.sigmoid(logits.cpu().double())
    definition = metrics.find_map_definition(map_definition)
    return {
        'map_definition': map_definition,
        'map': metrics.mean_average_precision(logits, true, unknown='ignore', **definition),
        'ap': metrics.average_precision(logits, true, unknown='ignore').tolist(),
        'threshold': threshold,
        'micro_f1': metrics.f1(p, true, 'micro', threshold, unknown='ignore'),
        'macro_f1': metrics.f1(p, true, 'macro', threshold, unknown='ignore'),
    }


def load_run_data(run: Run, config: Config, own: bool) -> datasets.Dataset:
    """Load the data set of a configuration.

    Args:
        run: done.
        config: its own, or one with another data set.
        own: whether it must be the data set that the run was trained on.

    Raises:
        SpmlError: if it is missing, or should be the run's own and has changed.
    """
    with warnings.catch_warnings(action='ignore' if own else None):
        data = datasets.load(
            config.dataset,
            root=config.root,
            min_positives=config.min_positives,
            exclude=config.exclude,
            scored=not own,
        )
    result = run.result() if own else {}
    fingerprints = {'data': data.fingerprint, 'photos': data.content}
    for key, now in fingerprints.items():
        trained_on = result.get(key)
        if trained_on not in (None, now):
            why = f'{explain_split(data, trained_on)} '.lstrip()
            raise SpmlError(
                f'{run.folder} was trained on {config.dataset!r} with the fingerprint '
                f'{trained_on}; now it has {now}. {why}Put the old data back, or name the data set '
                'to be scored.'
            )
    return data


def _same_classes(data: datasets.Dataset, names: list[str]) -> datasets.Dataset:
    "The data set with its label columns in the order of `names`."
    missing = [n for n in names if n not in data.class_names]
    if missing:
        raise SpmlError(
            f"{data.name!r} lacks {len(missing)} of the run's {len(names)} classes: "
            f"{', '.join(missing[:10])}. A run can be evaluated only where all its classes are "
            'annotated; add the columns to the table.'
        )
    columns = [data.class_names.index(n) for n in names]
    return replace(data, labels=data.labels[:, columns], class_names=list(names))
