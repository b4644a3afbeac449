"""Linear transfer: the accuracy of a linear classifier on a backbone's frozen features."""

# As in Table 8 of Two-way, which trains networks on ImageNet and classifies aircraft, birds, cars
# and others by their frozen features.

import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score

from .. import metrics, training
from ..base import settings
from ..base.errors import SpmlError, require_one_of
from ..data import images, labels
from ..data.dataset import Dataset
from ..models.model import Model, create
from ..training import batches

AVERAGES = {'image': accuracy_score, 'class': balanced_accuracy_score}

# Data sets with mean per-class accuracy in Kornblith et al. 2019, Table 1; the others have top-1.
# Two-way defines it in a supplement that we do not have.
MEAN_PER_CLASS = ('aircraft', 'caltech101', 'flowers', 'pets')


def _class_numbers(data: Dataset) -> np.ndarray:
    """The class of each image, (N,) int64.

    Raises:
        SpmlError: if an image has no positive label, or several.
    """
    count = (data.labels > 0).sum(1)
    if (count != 1).any():
        row = int(np.argmax(count != 1))
        raise SpmlError(
            f'{data.name!r}: image {data.image_names[row]} has {count[row]} positive labels; '
            'a linear transfer needs exactly one per image.'
        )
    return data.labels.argmax(1)


# Kornblith et al. 2019 search 45 values in this range
PENALTIES = tuple(10.0**k for k in range(5, -7, -1))


def make_regression(penalty: float, iterations: int = 1000) -> LogisticRegression:
    """An untrained classifier, as in Kornblith et al. 2019.

    Args:
        penalty: λ > 0 on ½‖W‖², against the sum of the samples' losses.
        iterations: of L-BFGS at most.

    Raises:
        SpmlError: for a penalty that is not above 0.
    """
    if not penalty > 0:
        raise SpmlError(f'the penalty must be above 0, not {penalty}.')
    return LogisticRegression(C=1 / penalty, solver='lbfgs', max_iter=iterations, warm_start=True)


def choose_penalty(
    features: np.ndarray,
    classes: np.ndarray,
    train: np.ndarray,
    val: np.ndarray,
    penalties=PENALTIES,
    average: str = 'image',
    iterations: int = 1000,
) -> dict[float, float]:
    """The validation accuracy of each penalty.

    Args:
        features: (N, D).
        classes: (N,) class numbers.
        train, val: row numbers.
        penalties: tried from strong to weak, each starting from the previous solution.
        average: 'image' for top-1, 'class' for the mean over the classes that occur.
        iterations: of L-BFGS for each penalty, at most.

    Returns:
        {penalty: accuracy in percent}.

    Raises:
        SpmlError: for an unknown average or a penalty that is not above 0.
    """
    accuracy = AVERAGES[require_one_of(average, AVERAGES, 'average')]
    model = make_regression(max(penalties), iterations)
    scores = {}
    for penalty in sorted(penalties, reverse=True):
        model.set_params(C=make_regression(penalty).C)
        _fit(model, features[train], classes[train])
        scores[penalty] = 100 * accuracy(classes[val], model.predict(features[val]))
    return scores


def _fit(model: LogisticRegression, features: np.ndarray, classes: np.ndarray) -> bool:
    "Train a classifier. Returns: whether it converged, which weak penalties need not."
    with warnings.catch_warnings(action='ignore', category=ConvergenceWarning):
        model.fit(features, classes)
    return bool(model.n_iter_.max() < model.max_iter)


def load_run_backbone(run: str | Path) -> Model:
    """The backbone of a finished run, under a dummy head with one class.

    Args:
        run: its folder, or its name in the setting `runs`; of any loss, head and regime.

    Returns:
        A model on the CPU in evaluation mode.

    Raises:
        SpmlError: if the run is not done or damaged.
    """
    run = training.open_run(run)
    run.result()  # refuses a run that is not done
    config = run.config
    prefix = 'backbone.'
    state = {
        name.removeprefix(prefix): value
        for name, value in run.best()['network'].items()
        if name.startswith(prefix)
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)  # for a frozen backbone with random weights
        weights = 'none' if state else config.weights
        model = create(config.backbone, 1, weights=weights, normalise=config.normalise)
    if state:
        model.backbone.load_state_dict(state)
    else:
        training.check_backbone(run, model)  # a linear run saves only its head
    return model.eval()


def pool_features(model: Model, data: Dataset, image_size: int | None = None) -> np.ndarray:
    """Pooled features of all images, cached on disk.

    Photos in files are centre-cropped; images in memory are used as they are.

    Args:
        model: with a head that takes vectors.
        data: N images.
        image_size: pixels per side; unset: that of images in memory, else 224.

    Returns:
        (N, D) float32.

    Raises:
        SpmlError: for a model with a label-wise head (see `load_run_backbone`), unreadable images
            or a full disk.
    """
    if model.head.needs != 'vector':
        raise SpmlError(
            'this head takes feature maps; give a model with a linear head, or '
            '`load_run_backbone(run)`, which drops the head.'
        )
    device = settings.choose_device()
    if data.images_in_memory:
        size = image_size or data.images.shape[1]
        source = batches.ImageSource(images.open_images(data, size), {'plain': 'plain'}, device)
    else:
        size = image_size or 224
        source = batches.CropSource(images.open_photos(data), {'plain': 'centre'}, device, size)
    key = (
        f'transfer-{batches.hash_pixels(source.store)}-{batches.hash_weights(model)}-{size}-'
        f'{model.normalise}'
    )
    model = model.to(device, memory_format=torch.channels_last)
    return np.array(batches.cached_features(model, source, np.arange(len(data)), 'plain', 0, key))


def linear_transfer(
    model_or_features: Model | np.ndarray | str | Path,
    data: Dataset,
    *,
    average: str | None = None,
    penalties=PENALTIES,
    image_size: int | None = None,
    iterations: int = 1000,
) -> dict:
    """Train a linear classifier on frozen features and measure its test accuracy.

    Args:
        model_or_features: a model, the folder of a finished run, or (N, D) features, one row per
            image of the data set.
        data: N images with one positive label each.
        average: 'image' (top-1) or 'class' (mean per class); unset: the convention for the data
            set.
        penalties: λ to choose from on validation.
        image_size: pixels per side; unset: as in `pool_features`.
        iterations: of L-BFGS at most.

    Returns:
        dict with data, accuracy (percent, by `average`), average, top1 and mean_per_class
        (percent), penalty, validation {penalty: percent}, converged, images {split: number} and
        classes.

    Raises:
        SpmlError: for an image without exactly one label, an empty split, or features of another
            length.

    Source:
        Two-way, section 4.4 and Table 8; Kornblith et al. 2019 for the classifier and its search.
    """
    classes = _class_numbers(data)
    if average is None:
        average = 'class' if data.name in MEAN_PER_CLASS else 'image'
    require_one_of(average, AVERAGES, 'average')
    train, val, test = _split(data)
    x = _features(model_or_features, data, image_size)
    validation = choose_penalty(x, classes, train, val, penalties, average, iterations)
    penalty = max(validation, key=validation.get)  # the strongest of equally good ones
    model = make_regression(penalty, iterations)
    rows = np.union1d(train, val)
    converged = _fit(model, x[rows], classes[rows])
    predicted = model.predict(x[test])
    scores = {
        name: float(100 * accuracy(classes[test], predicted)) for name, accuracy in AVERAGES.items()
    }
    return {
        'data': data.name,
        'accuracy': scores[average],
        'average': average,
        'top1': scores['image'],
        'mean_per_class': scores['class'],
        'penalty': penalty,
        'validation': validation,
        'converged': converged,
        'images': {'train': len(train), 'val': len(val), 'test': len(test)},
        'classes': len(data.class_names),
    }


def _features(
    model_or_features: Model | np.ndarray | str | Path, data: Dataset, image_size: int | None
) -> np.ndarray:
    "(N, D) features."
    x = model_or_features
    if isinstance(x, str | Path):
        x = load_run_backbone(x)
    if not isinstance(x, np.ndarray):
        x = pool_features(x, data, image_size)
    if x.ndim != 2 or len(x) != len(data):
        raise SpmlError(
            f'features have the shape {x.shape}; expected ({len(data)}, D), one row per image of '
            f'{data.name!r}.'
        )
    return x


def _split(data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    "Rows for training, validation and test; validation is drawn from training if it is empty."
    train, val, test = (data.rows(name) for name in ('train', 'val', 'test'))
    for name, rows in (('training', train), ('test', test)):
        if not len(rows):
            raise SpmlError(
                f'{data.name!r} has no {name} image: '
                'a linear transfer trains on one part and is tested on the other.'
            )
    if not len(val):
        to_train, to_validate = labels.split_rows(len(train))
        train, val = train[to_train], train[to_validate]
    return train, val, test


def class_scores(
    features: np.ndarray, labels: np.ndarray, rows: np.ndarray, penalty: float
) -> np.ndarray:
    """Logits of binary logistic regressions, one per class.

    Args:
        features: (N, D).
        labels: (N, C) in {1, −1}.
        rows: row numbers to train on.
        penalty: as in `make_regression`.

    Returns:
        (N, C) logits; 0 for a class that all or none of the rows have.

    Raises:
        SpmlError: for a penalty that is not above 0.

    Source:
        Kornblith et al. 2019, with one classifier per class.
    """
    scores = np.zeros(labels.shape)
    model = make_regression(penalty).set_params(solver='newton-cholesky', tol=1e-8)
    features = features.astype(np.float64)  # for the Hessian
    for c in range(labels.shape[1]):
        if len(np.unique(labels[rows, c])) == 2:
            _fit(model, features[rows], labels[rows, c])
            scores[:, c] = model.decision_function(features)
    return scores


def multi_label_transfer(
    model_or_features: Model | np.ndarray | str | Path,
    data: Dataset,
    *,
    penalties=PENALTIES,
    image_size: int | None = None,
) -> dict:
    """Train linear classifiers on frozen features, one per class, and measure their test mAP.

    Args:
        model_or_features, penalties, image_size: as in `linear_transfer`.
        data: N images with full labels.

    Returns:
        dict with map (percent, on test), penalty and validation {penalty: percent}.

    Raises:
        SpmlError: for unknown labels, an empty split, or features of another length.

    Source:
        Two-way, section 4.4, here for several labels per image.
    """
    if (data.labels == 0).any():
        raise SpmlError(
            f'{data.name!r} has {int((data.labels == 0).sum()):,} unknown labels; a linear '
            'transfer needs full labels.'
        )
    train, val, test = _split(data)
    x = _features(model_or_features, data, image_size)

    def score(fitted: np.ndarray, scored: np.ndarray, penalty: float) -> float:
        logits = class_scores(x, data.labels, fitted, penalty)
        return metrics.mean_average_precision(logits[scored], data.labels[scored])

    validation = {
        penalty: score(train, val, penalty) for penalty in sorted(penalties, reverse=True)
    }
    penalty = max(validation, key=validation.get)  # the strongest of equally good ones
    return {
        'map': score(np.union1d(train, val), test, penalty),
        'penalty': penalty,
        'validation': validation,
    }
