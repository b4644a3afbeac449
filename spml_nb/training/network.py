"""The network for prediction, export and evaluation: built from a description, with the best
weights of a run.
"""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from .. import methods, models
from ..base.errors import SpmlError, require_one_of
from ..data import views
from ..methods.core import Method, ViewOutputs
from ..runs.config import Config, resolve
from ..runs.folder import Run, open_run
from .batches import hash_weights
from .summary import clean_test_map, named_on_validation

FORMAT = 1  # of the description: raise it when older versions of this library cannot read it


def head_options(config: Config) -> dict:
    """Keyword arguments for the head, for `models.create`.

    Args:
        config: resolved.

    Raises:
        SpmlError: for an `embedding_dim` of a head that has none.
    """
    if config.embedding_dim is None:
        return {}
    require_one_of(config.head, ('labelwise',), f'head for embedding_dim={config.embedding_dim}')
    return {'d': config.embedding_dim}


def describe_network(run: Run) -> dict:
    """Describe the network of a run, so that `Network` can build it and others can use its outputs.

    Args:
        run: done.

    Returns:
        JSON-compatible dict, as in an exported file.

    Raises:
        SpmlError: if the run is not done or damaged.
    """
    result = run.result()
    config = resolve(replace(run.config, device='cpu'))
    try:
        names = list(result['class_names'])
        scores = result['scores']
        threshold = run.threshold()
    except (KeyError, TypeError, ValueError) as error:
        raise SpmlError(
            f"{run.folder / 'result.json'} is damaged ({type(error).__name__}: {error}). Remove "
            f'{run.folder} and train again.',
        ) from error
    ranks_by_method = methods.core.find(config.loss).predict is not Method.predict
    return {
        'format': FORMAT,
        'run': run.folder.name,
        'dataset': Path(config.dataset).name,
        'tested': result.get('tested'),
        'method': config.loss,
        'hparams': config.hparams if ranks_by_method else {},
        'ranks_by': 'method' if ranks_by_method else 'logits',
        'backbone': config.backbone,
        'head': config.head,
        'head_options': head_options(config),
        'frozen_features': config.regime == 'linear',
        'normalise': config.normalise,
        'image_size': config.image_size,
        'resize': 'centre' if config.views == 'crop' else 'squash',
        'class_names': names,
        'threshold': threshold,
        'map': clean_test_map(scores),
        **_describe_threshold(run, scores),
    }


def _describe_threshold(run: Run, scores: dict) -> dict:
    """As far as it was stored: thresholds per class, labels per photo, and what the threshold was
    calibrated on or how many labels it names on validation.
    """
    stored = run.thresholds()
    description = {}
    if stored['class_thresholds'] is not None:
        description['class_thresholds'] = stored['class_thresholds']
    if stored['labels'] is not None:
        description['labels_a_photo'] = stored['labels']
    if calibration := run.calibration():
        names = ('dataset', 'data', 'photos', 'recall')
        source = {name: calibration.get(name) for name in names}
        return description | {'threshold_from': source}
    named = named_on_validation(scores)
    return description | ({'on_validation': named} if named else {})


class Network(nn.Module):
    """A model from uint8 pixels to the logits that its method ranks by.

    Args:
        description: as from `describe_network`, or of an exported file. A `calibration` in it,
            (2, C) slopes and shifts, is applied to the logits. The attribute `description` also has
            `mean` and `std` of the normalisation.
        weights: of the backbone, as in `models.create`.

    Raises:
        SpmlError: for an unknown backbone, head or method.
    """

    def __init__(self, description: dict, weights: str = 'none'):
        super().__init__()
        names = description['class_names']
        backbone = models.build_backbone(description['backbone'], weights)
        if 'mean' in description:  # as in training, even if this version has other defaults
            mean, std = tuple(description['mean']), tuple(description['std'])
            backbone = backbone._replace(mean=mean, std=std)
        make_head = models.HEADS[require_one_of(description['head'], models.HEADS, 'head')]
        head = make_head(backbone.feature_dim, len(names), **description['head_options'])
        self.model = models.Model(backbone, head, normalise=description['normalise'])
        self.method = None
        if description['ranks_by'] == 'method':
            z = torch.zeros(1, len(names), dtype=torch.int8)
            hparams = description['hparams']
            self.method = _last_stage(description['method'], z, 1, head.embedding_dim, hparams)
        # the head was trained on maps that are cached in half precision
        self.half_maps = description['frozen_features'] and head.needs == 'map'
        calibration = description.get('calibration')
        if calibration is not None:
            calibration = torch.tensor(calibration)
        self.register_buffer('calibration', calibration, persistent=False)
        self.description = {
            **description,
            'mean': [float(v) for v in backbone.mean],
            'std': [float(v) for v in backbone.std],
        }

    def features(self, images: Tensor) -> Tensor:
        """Inputs of the head.

        Args:
            images: (B, 3, S, S) float in [0, 1].

        Returns:
            (B, D), or (B, D, h, w) for a head on maps.
        """
        features = self.model.features(images)
        return features.half().float() if self.half_maps else features

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits to rank by, calibrated if there is a calibration.

        Args:
            pixels: (B, 3, S, S) uint8.

        Returns:
            (B, C) float32.

        Raises:
            SpmlError: for another shape or type.
        """
        outputs = self.model.head(self.features(views.plain_view(pixels)))
        if self.method is None:
            s = outputs.logits.float()
        else:
            s = self.method.predict(ViewOutputs(plain=outputs)).float()
        if self.calibration is None:
            return s
        return s * self.calibration[0] + self.calibration[1]

    def calibrate(self, calibration: list[list[float]], threshold: float):
        """Calibrate the logits, so that their sigmoids are probabilities.

        Args:
            calibration: C slopes and C shifts.
            threshold: on the calibrated probability.
        """
        self.description |= {'calibration': calibration, 'threshold': threshold}
        self.description.pop('class_thresholds', None)  # of the uncalibrated logits
        self.calibration = torch.tensor(calibration)


def _last_stage(name: str, observed: Tensor, epochs: int, features: int, hparams: dict) -> Method:
    "A method in its last stage."
    method = methods.create(name, observed, epochs=epochs, features=features, **hparams)
    method.start_stage(method.stages)
    return method


def open_network(folder: str | Path | Run, restore_method: bool = False) -> Network:
    """Load the network of a finished run, with its best weights.

    Args:
        folder: of the run, its name in the setting `runs`, or the run itself.
        restore_method: also restore the method's state, such as its estimates of training labels.

    Returns:
        Network in evaluation mode, on the CPU.

    Raises:
        SpmlError: if there is no such run, it is not finished, its checkpoint is missing or
            damaged, or its frozen backbone has other weights now.
    """
    run = folder if isinstance(folder, Run) else open_run(folder)
    description = describe_network(run)
    best = run.best()
    config = run.config
    linear = description['frozen_features']
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)  # for a frozen backbone with random weights
        network = Network(description, config.weights if linear else 'none')
    if linear:
        check_backbone(run, network.model)
    try:
        if restore_method:
            z = best['method']['z']
            features = network.model.embedding_dim
            network.method = _last_stage(config.loss, z, config.epochs, features, config.hparams)
        (network.model.head if linear else network.model).load_state_dict(best['network'])
        if network.method is not None:
            network.method.load_state_dict({**best['method'], 'z': network.method.z})
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise SpmlError(
            f"{run.folder / 'best.pt'} does not hold this run's weights ({type(error).__name__}: "
            f'{str(error)[:300]}). Remove {run.folder} and train again.',
        ) from error
    return network.eval()


def check_backbone(run: Run, model: nn.Module):
    """Raise an SpmlError if a run's head was trained on a frozen backbone with other weights. Runs
    of older versions are not checked.

    Args:
        run: of the regime 'linear'.
        model: of `spml_nb.models`, with the current backbone.
    """
    before = run.result().get('backbone') if run.done else None
    now = hash_weights(model)
    if before not in (None, now):
        raise SpmlError(
            f'{run.folder} was trained on a frozen backbone {run.config.backbone!r} with other '
            f'weights ({before}) than weights={run.config.weights!r} gives now ({now}). Put the '
            f'old weights back, or remove {run.folder} and train again.',
        )
