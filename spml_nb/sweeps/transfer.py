"""Measures a backbone on other data sets: a linear classifier on its frozen features."""

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
from ..base.errors import SpmlError, one_of
from ..data import images, labels
from ..data.dataset import Dataset
from ..models.model import Model, create
from ..training import batches

AVERAGES = {'image': accuracy_score, 'class': balanced_accuracy_score}  # shares of right answers

# The convention of Kornblith et al. 2019, Table 1: the mean per class for these, top-1 for the
# others. Two-way leaves it to a supplement that is not at hand.
MEAN_PER_CLASS = ('aircraft', 'caltech101', 'flowers', 'pets')


def _class_numbers(data: Dataset) -> np.ndarray:
    """The one class of each image, (N,) int64.

    Raises:
        SpmlError: naming the first image with other than one positive label.
    """
    count = (data.labels > 0).sum(1)
    if (count != 1).any():
        row = int(np.argmax(count != 1))
        raise SpmlError(
            f'{data.name!r}: image {data.image_names[row]} has {count[row]} positive labels; '
            'a linear transfer needs exactly one an image.'
        )
    return data.labels.argmax(1)


PENALTIES = tuple(
    10.0**k for k in range(5, -7, -1)
)  # Kornblith et al. 2019 search 45 in this range


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
    """Validation accuracy of each penalty.

    Args:
        features: (N, D).
        classes: (N,) class numbers.
        train, val: row numbers.
        penalties: tried from strong to weak, each starting from the solution before it.
        average: over 'image' (top-1), or over 'class', of those that occur.
        iterations: of L-BFGS for each.

    Returns:
        {penalty: percent}.

    Raises:
        SpmlError: for an unknown average or a penalty that is not above 0.
    """
    accuracy = AVERAGES[one_of(average, AVERAGES, 'average')]
    model = make_regression(max(penalties), iterations)
    scores = {}
    for penalty in sorted(penalties, reverse=True):
        model.set_params(C=make_regression(penalty).C)
        _fit(model, features[train], classes[train])
        scores[penalty] = 100 * accuracy(classes[val], model.predict(features[val]))
    return scores


def _fit(model: LogisticRegression, features: np.ndarray, classes: np.ndarray) -> bool:
    "Train; a search's weakest penalties need not converge. Gives whether it did."
    with warnings.catch_warnings(action='ignore', category=ConvergenceWarning):
        model.fit(features, classes)
    return bool(model.n_iter_.max() < model.max_iter)


def load_run_backbone(run: str | Path) -> Model:
    """The backbone of a finished run, with a head of one class that nobody uses.

    Args:
        run: its folder, or its name in the setting `runs`; trained with any loss, head and regime.

    Returns:
        A model on the CPU in evaluation mode; the mean of its feature map is what transfers.

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
        # draws a frozen backbone without pretrained weights again
        torch.manual_seed(config.seed)
        weights = 'none' if state else config.weights
        model = create(config.backbone, 1, weights=weights, normalise=config.normalise)
    if state:
        model.backbone.load_state_dict(state)
    else:
        training.check_backbone(run, model)  # a linear run has kept its head alone
    return model.eval()


def pool_features(model: Model, data: Dataset, image_size: int | None = None) -> np.ndarray:
    """Pooled features of every image, computed once and kept in the cache folder.

    Photos in files are cut out of the middle; images in memory are taken whole.

    Args:
        model: any whose head takes vectors.
        data: N images.
        image_size: pixels a side; unset: the images' own if they are in memory, else 224.

    Returns:
        (N, D) float32.

    Raises:
        SpmlError: for a model with a label-wise head (see `load_run_backbone`), unreadable images
            or a full disk.
    """
    if model.head.needs != 'vector':
        raise SpmlError(
            'this head eats feature maps; give a model with a linear head, or '
            '`load_run_backbone(run)`, which leaves the head behind.'
        )
    device = settings.device()
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
    """Accuracy of a linear classifier on frozen features.

    Args:
        model_or_features: a model, the folder of a finished run, or (N, D) features in the order of
            the rows.
        data: N images with one positive label each.
        average: 'image' (top-1) or 'class' (mean per class); unset: the convention for the data
            set.
        penalties: λ to choose from.
        image_size: pixels a side; unset: as in `pool_features`.
        iterations: of L-BFGS at most.

    Returns:
        dict with data, accuracy (percent, by `average`), average, top1 and mean_per_class
        (percent), penalty, validation {penalty: percent}, converged, images {part: number} and
        classes.

    Raises:
        SpmlError: for data with other than one label an image, an empty part, or features of
            another length.

    Source:
        Two-way, section 4.4 and Table 8; Kornblith et al. 2019 for the classifier and its search.
    """
    classes = _class_numbers(data)
    if average is None:
        average = 'class' if data.name in MEAN_PER_CLASS else 'image'
    one_of(average, AVERAGES, 'average')
    train, val, test = _split(data)
    x = _features(model_or_features, data, image_size)
    validation = choose_penalty(x, classes, train, val, penalties, average, iterations)
    penalty = max(validation, key=validation.get)  # of equals the strongest
    model = make_regression(penalty, iterations)
    both = np.union1d(train, val)
    converged = _fit(model, x[both], classes[both])
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
            f'features are {x.shape}; expected ({len(data)}, D), a row for each image of '
            f'{data.name!r}.'
        )
    return x


def _split(data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    "Rows to train, to validate and to test on."
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
    """Logits of one binary logistic regression a class.

    Args:
        features: (N, D).
        labels: (N, C) in {1, −1}.
        rows: row numbers to train on.
        penalty: λ > 0 on ½‖w‖², against the sum of the samples' losses.

    Returns:
        (N, C) logits; 0 in a class that all or none of the rows have.

    Raises:
        SpmlError: for a penalty that is not above 0.

    Source:
        Kornblith et al. 2019, with one classifier a class.
    """
    scores = np.zeros(labels.shape)
    model = make_regression(penalty).set_params(solver='newton-cholesky', tol=1e-8)
    # small features: single precision is too little for the Hessian
    features = features.astype(np.float64)
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
    """mAP of linear classifiers on frozen features.

    Args:
        model_or_features: as in `linear_transfer`.
        data: N images, every label known.
        penalties: λ to choose from.
        image_size: pixels a side; unset: as in `pool_features`.

    Returns:
        dict with map (percent, on test), penalty and validation {penalty: percent}.

    Raises:
        SpmlError: for unknown labels, an empty part, or features of another length.

    Source:
        Two-way, section 4.4, measured on several labels an image.
    """
    if (data.labels == 0).any():
        raise SpmlError(
            f'{data.name!r} has {int((data.labels == 0).sum()):,} unknown labels; classifiers of '
            'frozen features are trained on known ones. Give a data set with full labels.'
        )
    train, val, test = _split(data)
    x = _features(model_or_features, data, image_size)

    def score(fitted: np.ndarray, scored: np.ndarray, penalty: float) -> float:
        logits = class_scores(x, data.labels, fitted, penalty)
        return metrics.mean_average_precision(logits[scored], data.labels[scored])

    validation = {
        penalty: score(train, val, penalty) for penalty in sorted(penalties, reverse=True)
    }
    penalty = max(validation, key=validation.get)  # of equals the strongest
    return {
        'map': score(np.union1d(train, val), test, penalty),
        'penalty': penalty,
        'validation': validation,
    }
