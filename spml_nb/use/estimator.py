"""A scikit-learn classifier on arrays of features: no folder and no configuration."""

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ..base import settings
from ..base.errors import SpmlError, require_one_of, warn

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from ..methods.core import Method
    from ..training.batches import FeatureSource
    from ..training.schedule import Stage
    from ..training.task import Task


class SinglePositiveClassifier(ClassifierMixin, BaseEstimator):
    """A multi-label head on features in memory, trained on partial labels by one of the methods.

    It trains like `spml train -p regime linear`: the same optimiser, schedule and choice of the
    epoch. Features are not scaled: put a `StandardScaler` before it if columns differ in scale.

    Args:
        method: a name of `spml_nb.methods.names()`, whose head takes feature vectors and which
            needs one view of an image and nothing but its labels.
        hparams: the method's hyper-parameters, if they differ from its defaults.
        head: 'linear' or 'cosine'; None: the method's.
        learning_rate: of Adam, above 0; the one setting that is worth a search.
        batch_size: rows per step.
        max_iter: maximum number of epochs.
        early_stopping: hold out some rows, keep the epoch that scores best on them, and choose the
            threshold of `predict` on them. Otherwise the last epoch is kept, and the threshold is
            0.5. Too few positives for this keep the last epoch as well, with a warning.
        validation_fraction: the share of the rows to hold out, in (0, 1); ignored if `fit` gets
            validation data.
        n_iter_no_change: stop after so many epochs without a better score; 0: never.
        random_state: of the split, the initial weights and the order of rows; an int for
            reproducible results.
        device: 'cpu', 'cuda', … or 'auto'.

    Attributes:
        classes_: (C,) the column names of y if it is a DataFrame, else 0 … C−1.
        n_features_in_: D.
        feature_names_in_: (D,) the column names of X, if it has any.
        threshold_: the probability at which `predict` names a class.
        n_iter_: number of epochs trained.
        best_iter_: the epoch that was kept, from 1.
        loss_curve_: the mean loss of each epoch.
        validation_scores_: of each epoch, in percent: mAP if at least half of the rows held out
            have known negatives, else the ROC-AUC of observed positives; empty without
            `early_stopping`.
        head_: the trained head, a `torch.nn.Module`.
        method_: the method with what it has learned about the labels.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 8))
    >>> true = X[:, :3] > 0.5
    >>> y = np.zeros((200, 3), int)  # of each row one positive is known at most
    >>> y[true.any(1), true[true.any(1)].argmax(1)] = 1
    >>> classifier = SinglePositiveClassifier('em', max_iter=5, random_state=0).fit(X, y)
    >>> classifier.predict_proba(X).shape
    (200, 3)
    """

    def __init__(
        self,
        method: str = 'hml',
        *,
        hparams: dict | None = None,
        head: str | None = None,
        learning_rate: float = 1e-3,
        batch_size: int = 64,
        max_iter: int = 60,
        early_stopping: bool = True,
        validation_fraction: float = 0.2,
        n_iter_no_change: int = 10,
        random_state: int | np.random.RandomState | None = None,
        device: str = 'cpu',
    ):
        self.method = method
        self.hparams = hparams
        self.head = head
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state
        self.device = device

    def __sklearn_tags__(self) -> 'Tags':
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        return tags

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> 'SinglePositiveClassifier':
        """Train the head.

        Args:
            X: (N, D) features.
            y: (N, C), 1 for a positive, 0 for unknown, −1 for a negative. Without
                any −1, 0 is unknown: give complete targets in {0, 1} as `2 * y - 1`.
            X_val: (M, D) features that choose epoch and threshold, instead of some rows of X.
            y_val: (M, C) their labels, as in y; columns with names may be in another order.

        Raises:
            SpmlError: for labels of another type, shape or columns, without a positive, or for a
                method that needs more than features and labels.
        """
        features = validate_data(self, X, dtype=np.float32, ensure_min_samples=2)
        observed = self._observed(y, len(features))
        self.classes_ = np.asarray(getattr(y, 'columns', np.arange(observed.shape[1])))
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        if X_val is not None:
            held_out = validate_data(self, X_val, dtype=np.float32, reset=False)
            labels = self._observed(self._order_columns(y_val), len(held_out), observed.shape[1])
            val = len(features) + np.arange(len(held_out))
            train = np.arange(len(features))
            features = np.concatenate([features, held_out])
            observed = np.concatenate([observed, labels])
        elif self.early_stopping:
            train, val = _hold_out(observed > 0, self.validation_fraction, seed)
        else:
            train, val = np.arange(len(features)), np.arange(0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._train(features, observed, train, val, seed)
        return self

    def _observed(self, y: ArrayLike | None, rows: int, classes: int | None = None) -> np.ndarray:
        "Labels as (N, C) int8 in {1, 0, −1}."
        if y is None:
            raise SpmlError(
                'SinglePositiveClassifier requires y to be passed, but the target y is None. Give '
                'an (N, C) array of 1 (positive), 0 (unknown) and −1 (negative).'
            )
        labels = check_array(y, dtype=None, ensure_2d=False, input_name='y')
        if not np.isin(labels, (-1, 0, 1)).all():
            raise SpmlError(
                f'Unknown label type: y holds {np.setdiff1d(labels, (-1, 0, 1))[:3].tolist()}; '
                'allowed: 1 (positive), 0 (unknown), −1 (negative). Class numbers become columns '
                'by sklearn.preprocessing.LabelBinarizer.'
            )
        if labels.ndim != 2 or len(labels) != rows or classes not in (None, labels.shape[1]):
            raise SpmlError(
                f'y has shape {labels.shape}; needed: ({rows}, {classes or "C"}), a row for each '
                'row of X and a column for each class.'
            )
        return labels.astype(np.int8)

    def _order_columns(self, y: Any) -> Any:
        "y with its columns as in `classes_`; as it is if it, or the y of `fit`, has no names."
        names, classes = list(getattr(y, 'columns', ())), self.classes_.tolist()
        lacking = [name for name in classes if name not in names]
        besides = [name for name in names if name not in classes]
        is_numbered = classes == list(range(len(classes)))
        if not names or names == classes or (is_numbered and (lacking or besides)):
            return y
        if lacking or besides:
            problems = [f'lacks {lacking[:5]}'] * bool(lacking)
            problems += [f'has {besides[:5]} besides'] * bool(besides)
            raise SpmlError(
                f'y {" and ".join(problems)}. Give the {len(classes)} columns that y has in fit, '
                f'in any order: {classes[:20]}.'
            )
        return y[classes]

    def _train(
        self, X: np.ndarray, observed: np.ndarray, train: np.ndarray, val: np.ndarray, seed: int
    ) -> None:
        "Train on some rows, and choose epoch and threshold on others."
        # imported here, to keep the import of the class fast
        from ..methods import core
        from ..models.heads import HEADS
        from ..runs.config import Config, resolve
        from ..training.batches import FeatureSource
        from ..training.schedule import plan_stages
        from ..training.selection import choose_threshold, predict_logits

        self._refuse_other_methods(core.find(self.method))
        task = _task_in_memory(observed, train, val)
        config: Any = resolve(  # fields read here are not None afterwards
            Config(
                loss=self.method,
                dataset='features',
                regime='linear',
                head=self.head,
                hparams=self.hparams or {},
                lr=self.learning_rate,
                batch_size=self.batch_size,
                epochs=self.max_iter,
                patience=self.n_iter_no_change,
                selection='val_clean' if len(val) else 'last',
                seed=seed,
                device=self.device,
            )
        )
        require_one_of(config.head, ('linear', 'cosine'), 'head on features in memory')
        device = settings.choose_device(self.device)
        self.head_ = HEADS[config.head](X.shape[1], observed.shape[1]).to(device)
        self.method_ = core.create(
            self.method,
            torch.from_numpy(observed[train]),
            epochs=config.epochs,
            features=X.shape[1],
            **config.hparams,
        ).to(device)
        source = FeatureSource(X, {}, train, device)
        self.n_iter_ = 0
        self.loss_curve_: list[float] = []
        self.validation_scores_: list[float] = []
        for stage in plan_stages(config, self.method_):
            self._train_stage(stage, config, task, source)
        self.threshold_ = 0.5
        if len(val):
            logits = {'val': predict_logits(self.head_, self.method_, source, val)}
            self.threshold_ = choose_threshold(logits, task, config.selection)

    def _train_stage(
        self, stage: 'Stage', config: Any, task: 'Task', source: 'FeatureSource'
    ) -> None:
        from ..training.schedule import make_optimizer, make_schedule
        from ..training.selection import (
            EpochChoice,
            predict_logits,
            score_by_rule,
            selection_targets,
        )

        rule, (labels, classes) = next(iter(selection_targets(task, config.selection).items()))
        if rule == 'last' and len(task.val):
            warn(
                f'the {len(task.val)} validation rows cannot choose an epoch, as every epoch would '
                'have the same score: no class with a positive in training is positive in some of '
                'these rows and not in others. So the last epoch is kept. Label more rows, or give '
                'X_val and y_val with such a class.'
            )
        choice = EpochChoice(rule, stage.patience, config.stop_below)
        head, method = self.head_, self.method_
        method.epochs = stage.epochs
        method.start_stage(stage.number)
        network = torch.nn.Module()
        network.head = head
        optimizer = make_optimizer(config, stage, network, method)
        steps = stage.epochs * math.ceil(len(task.train) / config.batch_size)
        schedule = make_schedule(config, optimizer, steps)

        def score(view: str = 'plain') -> torch.Tensor:
            return predict_logits(head, method, source, task.train)

        epoch = 0
        while epoch < stage.epochs and not choice.over:
            epoch += 1
            head.train()
            method.train()
            method.start_epoch(epoch)
            losses = []
            for index in torch.randperm(len(task.train)).split(config.batch_size):
                batch = source.batch(task.train[index.numpy()], 'weak')
                loss = method.step(head, {role: batch for role in method.views}, index)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
                losses.append(loss.detach())
            self.loss_curve_.append(torch.stack(losses).mean().item())
            if not math.isfinite(self.loss_curve_[-1]):
                raise SpmlError(
                    f'the loss of {self.method!r} became {self.loss_curve_[-1]} in epoch {epoch}. '
                    f'Lower learning_rate ({self.learning_rate:g}), or scale the features.'
                )
            method.end_epoch(epoch, score)
            value = math.nan
            if len(task.val):
                logits = predict_logits(head, method, source, task.val)
                value = score_by_rule(rule, logits, labels, classes, config.map_definition)
                self.validation_scores_.append(value)
            if choice.see({'raw': value}, stage.number, epoch):
                best = copy.deepcopy((head.state_dict(), method.state_dict()))
        self.n_iter_ += epoch
        assert choice.best is not None  # set by the first epoch
        self.best_iter_ = choice.best['epoch']
        head.load_state_dict(best[0])
        method.load_state_dict(best[1])

    def _refuse_other_methods(self, method: 'type[Method]') -> None:
        "Raise for a method that needs more than features and labels."
        name = self.method
        if method.side:
            raise SpmlError(
                f'{name!r} needs {" and ".join(method.side)} of each image besides its labels. '
                'Take another method, or train it by `spml train` with `side`.'
            )
        if len(method.views) > 1:
            raise SpmlError(
                f'{name!r} compares {" and ".join(method.views)} views of an image, and there is '
                'one array of features. Take another method, or train it by `spml train`.'
            )

    def _logits(self, X: ArrayLike) -> torch.Tensor:
        from ..training.batches import FeatureSource
        from ..training.selection import predict_logits

        check_is_fitted(self)
        features = validate_data(self, X, dtype=np.float32, reset=False)
        source = FeatureSource(features, {}, np.arange(0), self.method_.z.device)
        return predict_logits(self.head_, self.method_, source, np.arange(len(features))).cpu()

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        "(N, C) float32 logits."
        return self._logits(X).numpy()

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        "(N, C) in [0, 1], independent for each class: rows do not sum to 1."
        return self._logits(X).double().sigmoid().numpy()

    def predict(self, X: ArrayLike) -> np.ndarray:
        "(N, C) int in {0, 1}: the classes whose probability reaches `threshold_`."
        return (self.predict_proba(X) >= self.threshold_).astype(int)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: None = None) -> float:
        """The mean average precision over the classes that have a positive, in [0, 1].

        Args:
            X: (N, D).
            y: (N, C). If it has any −1, 0 is unknown and ignored; else 0 is absent, as in complete
                targets. Columns with names may be in another order than in `fit`.
            sample_weight: not supported; required by scikit-learn.

        Raises:
            SpmlError: for labels of another type, shape or columns, or with `sample_weight`.
        """
        from ..metrics import average_precision

        if sample_weight is not None:
            raise SpmlError('score takes no sample_weight: leave it out.')
        scores = self.decision_function(X)
        labels = self._observed(self._order_columns(y), len(scores), scores.shape[1])
        precisions = average_precision(scores, labels, empty='skip')
        precisions = precisions[~np.isnan(precisions)]
        return float(precisions.mean()) if len(precisions) else math.nan


def _hold_out(positive: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split rows into (train, val), by `split_rows` if validation can then choose an epoch.

    Otherwise the fraction is drawn of each kind of row, and one at least: rows with the class that
    is nearest to half of them, of which one at least also trains, others with a positive, and
    others without.

    Args:
        positive: (N, C) bool.
        fraction, seed: as for `split_rows`.
    """
    from ..data.labels import split_rows

    train, val = split_rows(len(positive), fraction, seed)
    if (positive[train].any(0) & positive[val].any(0) & ~positive[val].all(0)).any():
        return train, val
    random = np.random.RandomState(seed)
    counts = positive.sum(0)
    common = positive[:, np.minimum(counts, len(positive) - counts).argmax()]
    others = positive.any(1) & ~common
    held_out = np.zeros(len(positive), bool)
    for kind in (common, others, ~common & ~others):
        rows = random.permutation(np.flatnonzero(kind))
        size = max(round(fraction * len(rows)), 1)
        held_out[rows[: min(size, len(rows) - 1) if kind is common else size]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def _task_in_memory(observed: np.ndarray, train: np.ndarray, val: np.ndarray) -> 'Task':
    "Labels and split as `training.selection` needs them."
    from ..data.dataset import Dataset
    from ..training.task import Task

    n, classes = observed.shape
    if not (observed[train] > 0).any():
        raise SpmlError(
            f'none of the {len(train)} training rows has a positive, so there is nothing to learn '
            'from. Give y with some 1.'
        )
    split = np.full(n, 'train')
    split[val] = 'val'
    no_photos = np.broadcast_to(np.uint8(0), (n, 1, 1, 3))
    names = [str(c) for c in range(classes)]
    data = Dataset('features', no_photos, observed, names, split)
    return Task(data, train, val, val[:0], observed[train], observed[val])
