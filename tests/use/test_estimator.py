"""The estimator is scikit-learn's idea of one, and trains the same head as the trainer."""

import doctest
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.estimator_checks import parametrize_with_checks

from spml_nb import metrics, models, training
from spml_nb.base.errors import SpmlError, SpmlWarning
from spml_nb.methods.core import find, names
from spml_nb.models import heads
from spml_nb.runs.config import Config
from spml_nb.use import estimator as module
from spml_nb.use.estimator import SinglePositiveClassifier

CLASS_NUMBERS = 'the check gives class numbers; a label here is 1, 0 (unknown) or −1, a column each'
EXPECTED = {
    'check_estimators_dtypes': CLASS_NUMBERS,
    'check_classifier_data_not_an_array': CLASS_NUMBERS,
    'check_classifiers_classes': CLASS_NUMBERS,
    'check_decision_proba_consistency': CLASS_NUMBERS,
    'check_classifier_not_supporting_multiclass': CLASS_NUMBERS,
    'check_fit2d_1feature': CLASS_NUMBERS,
    'check_classifiers_train': 'the check wants one column back as (N,); every y is a matrix here',
    'check_classifier_multioutput': 'the threshold is chosen on held-out rows, not 0.5',
}


# A seed, since without one a check that the threshold fails passes once in about ten runs.
@parametrize_with_checks(
    [SinglePositiveClassifier('an', max_iter=2, learning_rate=0.05, random_state=0)],
    expected_failed_checks=lambda estimator: EXPECTED,
    xfail_strict=True,
)
def test_it_is_an_estimator_as_far_as_partial_labels_allow(estimator, check):
    check(estimator)


@pytest.fixture(scope='module')
def drawn():
    "Features, true labels in {−1, 1}, and one observed positive a row."
    random = np.random.default_rng(0)
    X = random.normal(size=(600, 16))
    true = np.where(X @ random.normal(size=(16, 5)) + random.normal(size=(600, 5)) > 3, 1, -1)
    observed = np.zeros_like(true)
    for row in np.flatnonzero((true > 0).any(1)):
        observed[row, random.choice(np.flatnonzero(true[row] > 0))] = 1
    return X.astype(np.float32), true, observed


def make(method='em', **parameters):
    given = {'max_iter': 15, 'learning_rate': 0.03, 'random_state': 0} | parameters
    return SinglePositiveClassifier(method, **given)


# ---- the same head as the trainer's


@pytest.mark.parametrize('method', ['hml', 'role', 'em_apl'])
def test_it_trains_the_same_bits_as_the_trainer(monkeypatch, method):
    seed = check_random_state(3).randint(2**31 - 1)
    settings = {'loss': method, 'dataset': 'mini_voc', 'regime': 'linear', 'batch_size': 64}
    config = Config(**settings, epochs=5, patience=2, lr=0.01, seed=seed)
    trainers = []
    result = training.train(config, on_step=lambda trainer, *_: trainers.append(trainer))
    task = trainers[0].task
    X = trainers[0].source.plain.numpy()

    name = find(method).head
    original = heads.HEADS[name]

    def make_head(features, classes):  # after a backbone, which uses up random numbers too
        with monkeypatch.context() as patch:
            patch.setitem(heads.HEADS, name, original)
            return models.create('mini', classes, head=name).head

    monkeypatch.setitem(heads.HEADS, name, make_head)
    classifier = SinglePositiveClassifier(
        method,
        hparams=result.config.hparams,
        max_iter=5,
        n_iter_no_change=2,
        learning_rate=0.01,
        random_state=3,
    )
    true = task.data.labels
    classifier.fit(X[task.train], task.observed, X_val=X[task.val], y_val=true[task.val])
    assert np.array_equal(classifier.decision_function(X[task.test]), result.logits['test'])
    assert classifier.best_iter_ == result.scores['best_epoch']
    assert classifier.threshold_ == result.scores['threshold']
    assert np.allclose(classifier.validation_scores_, result.curves.val_map)
    assert np.allclose(classifier.loss_curve_, result.curves.loss)


# ---- fit


def test_it_finds_positives_that_were_not_observed(drawn):
    X, true, observed = drawn
    classifier = make().fit(X[:400], observed[:400])
    assert classifier.score(X[400:], true[400:]) > 0.6 > (true[400:] > 0).mean() + 0.2
    assert len(classifier.loss_curve_) == len(classifier.validation_scores_) == classifier.n_iter_
    kept = classifier.validation_scores_[classifier.best_iter_ - 1]
    assert kept == max(classifier.validation_scores_)


def test_negatives_and_names_of_columns_are_taken(drawn):
    X, true, observed = drawn
    table = pd.DataFrame(np.where(true < 0, -1, observed), columns=list('vwxyz'))
    classifier = make().fit(pd.DataFrame(X).add_prefix('f'), table)
    assert classifier.classes_.tolist() == list('vwxyz')
    assert classifier.feature_names_in_[0] == 'f0'
    assert make().fit(X, observed).classes_.tolist() == [0, 1, 2, 3, 4]
    assert (classifier.method_.z == -1).any()


def test_columns_are_found_by_name_in_any_order(drawn):
    X, true, observed = drawn
    y, y_val = (pd.DataFrame(labels, columns=list('vwxyz')) for labels in (observed, true))

    def fit(y_val):
        return make().fit(X[:400], y[:400], X_val=X[400:], y_val=y_val)

    turned = list('zxvyw')
    classifier, same = fit(y_val[400:]), fit(y_val.loc[400:, turned])
    assert same.threshold_ == classifier.threshold_
    assert same.validation_scores_ == classifier.validation_scores_
    expected = classifier.score(X, true)
    for given in (y_val, y_val[turned], y_val.to_numpy()):
        assert classifier.score(X, given) == expected
    numbered = make().fit(X, observed)
    for given in (true, y_val, pd.DataFrame(true)[[3, 0, 1, 4, 2]]):
        assert numbered.score(X, given) == numbered.score(X, true)


def test_other_columns_than_in_fit_are_refused(drawn):
    X, true, observed = drawn
    y = pd.DataFrame(observed, columns=list('vwxyz'))
    classifier = make(max_iter=1).fit(pd.DataFrame(X).add_prefix('f'), y)
    features = pd.DataFrame(X).add_prefix('f')
    for other, message in (
        (y.rename(columns={'v': 'u'}), r"lacks \['v'\] and has \['u'\] besides"),
        (y.drop(columns='x'), r"lacks \['x'\]\. "),
        (y.assign(u=0), r"has \['u'\] besides"),
    ):
        with pytest.raises(SpmlError, match=message):
            classifier.score(features, other)
        with pytest.raises(SpmlError, match=message):
            make().fit(X, y, X_val=X, y_val=other)
    turned = features[features.columns[::-1]]
    for use in (classifier.predict, lambda X: make().fit(features, y, X_val=X, y_val=true)):
        with pytest.raises(ValueError, match='same order'):
            use(turned)


def test_given_rows_choose_the_epoch_and_none_is_held_out(drawn):
    X, true, observed = drawn
    classifier = make().fit(X[:300], observed[:300], X_val=X[300:400], y_val=true[300:400])
    assert len(classifier.method_.z) == 300
    logits = torch.from_numpy(classifier.decision_function(X[300:400]))
    score = metrics.mean_average_precision(logits, true[300:400])
    assert score == pytest.approx(max(classifier.validation_scores_))
    assert len(make().fit(X, observed).method_.z) == 480


def sparse(drawn, seed, labelled=10):
    "400 rows of features, and labels of which `labelled` rows have a positive at most."
    X, _, observed = drawn
    y = np.zeros_like(observed[:400])
    rows = np.random.default_rng(seed).choice(400, labelled, replace=False)
    y[rows] = observed[rows]
    return X[:400], y


@pytest.mark.parametrize('seed', range(6))
def test_few_positives_still_choose_the_epoch(drawn, seed):
    "A plain draw holds out none of them in every other case."
    X, y = sparse(drawn, seed)
    classifier = make(random_state=seed).fit(X, y)
    assert np.isfinite(classifier.validation_scores_).all()
    assert len(np.unique(classifier.validation_scores_)) > 1
    assert 0.75 * 400 < len(classifier.method_.z) < 0.85 * 400


def test_rows_that_cannot_choose_an_epoch_keep_the_last_and_say_so(drawn):
    "Every epoch would have the same score, and the first one, hardly trained, would be kept."
    X, _, observed = drawn
    y = np.zeros_like(observed)
    y[:2, 0] = 1
    for seed in range(4):
        assert np.isfinite(make(random_state=seed).fit(X, y).validation_scores_).all()
    y[0] = 0
    patient = {'n_iter_no_change': 2}
    for seed in range(4):
        with pytest.warns(SpmlWarning, match='cannot choose an epoch.*the last epoch is kept'):
            classifier = make(random_state=seed, **patient).fit(X, y)
        assert classifier.best_iter_ == classifier.n_iter_ == 15
    ones = np.ones((50, 5), int)
    for y_val in (0 * ones, ones):
        with pytest.warns(SpmlWarning, match='the 50 validation rows cannot choose an epoch'):
            classifier = make(**patient).fit(X, observed, X_val=X[:50], y_val=y_val)
        assert classifier.best_iter_ == 15


def test_a_small_fit_holds_out_rows_with_and_without_its_class(drawn):
    X = drawn[0][:20]
    y = np.repeat([1, 0], [17, 3])[:, None]
    for seed in range(8):
        with warnings.catch_warnings():
            warnings.simplefilter('error', SpmlWarning)
            make(random_state=seed).fit(X, y)


def test_without_early_stopping_the_last_epoch_is_kept(drawn):
    X, _, observed = drawn
    classifier = make(early_stopping=False).fit(X, observed)
    assert classifier.best_iter_ == classifier.n_iter_ == 15
    assert classifier.threshold_ == 0.5 and classifier.validation_scores_ == []
    assert len(classifier.method_.z) == 600


def test_it_stops_when_no_epoch_is_better(drawn):
    X, _, observed = drawn
    classifier = make(max_iter=200, n_iter_no_change=2).fit(X, observed)
    assert classifier.n_iter_ == classifier.best_iter_ + 2 < 200


def test_equal_seeds_give_equal_numbers_and_torch_keeps_its_own(drawn):
    X, _, observed = drawn
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, other = (make(random_state=k).fit(X, observed) for k in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))
    assert not np.array_equal(first.predict_proba(X), other.predict_proba(X))


def test_it_pickles_and_is_searched_in_a_pipeline(drawn):
    X, _, observed = drawn
    classifier = make('role').fit(X, observed)
    again = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(again.predict_proba(X), classifier.predict_proba(X))
    pipeline = make_pipeline(StandardScaler(), make(max_iter=3))
    grid = {'singlepositiveclassifier__hparams': [{'alpha': 0.01}, {'alpha': 0.3}]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, observed)
    assert 0 < search.best_score_ < 1
    assert search.predict(X).shape == observed.shape


METHODS = [name for name in names() if len(find(name).views) == 1 and not find(name).side]


@pytest.mark.parametrize('name', METHODS)
def test_every_method_on_vectors_trains(drawn, name):
    X, _, observed = drawn
    classifier = make(name, max_iter=2, head='cosine' if find(name).head == 'cosine' else None)
    if find(name).head == 'maps':
        with pytest.raises(SpmlError, match='maps'):
            classifier.fit(X, observed)
    else:
        assert np.isfinite(classifier.fit(X, observed).decision_function(X)).all()


# ---- score


def test_zero_is_unknown_only_beside_negatives(drawn):
    X, true, observed = drawn
    classifier = make().fit(X, observed)
    scores = classifier.decision_function(X)

    def mean_ap(labels, unknown):
        return metrics.mean_average_precision(scores, labels, empty='skip', unknown=unknown) / 100

    half = np.where(np.arange(600)[:, None] % 2, true, 0)
    assert classifier.score(X, half) == pytest.approx(mean_ap(half, 'ignore'))
    assert classifier.score(X, true > 0) == pytest.approx(mean_ap(true, None))
    assert classifier.score(X, observed) == pytest.approx(mean_ap(observed, 'negative'))


# ---- what is refused


@pytest.mark.parametrize(
    'parameters, message',
    [
        ({'method': 'lac'}, "'lac' compares weak and strong views"),
        ({'method': 'epr_count'}, "'epr_count' needs count of each image"),
        ({'method': 'emm'}, "'emm'.*Did you mean 'em'"),
        ({'head': 'labelwise'}, "'labelwise'"),
        ({'hparams': {'alfa': 1}}, "'alfa'"),
        ({'learning_rate': 0}, 'lr must be above 0'),
        ({'method': 'l2', 'learning_rate': 1e30}, 'Lower learning_rate'),
    ],
)
def test_what_it_cannot_do_is_refused(drawn, parameters, message):
    X, _, observed = drawn
    with pytest.raises(SpmlError, match=message):
        make(**parameters).fit(X, observed)


def test_wrong_labels_are_refused(drawn):
    X, true, observed = drawn
    for y, message in (
        (observed.argmax(1), r'y holds \[2, 3, 4\]'),
        (observed[:10], r'\(10, 5\); needed: \(600, C\)'),
        (0 * observed, 'training rows has a positive'),
        (0.5 * observed, r'y holds \[0\.5\]'),
    ):
        with pytest.raises(SpmlError, match=message):
            make().fit(X, y)
    with pytest.raises(SpmlError, match=r'\(100, 3\); needed: \(100, 5\)'):
        make().fit(X, observed, X_val=X[:100], y_val=true[:100, :3])


def test_the_example_is_right():
    assert doctest.testmod(module) == (0, 8)


def test_the_import_is_quick():
    "Of the parts that train it takes none along."
    code = (
        'import sys; import spml_nb.use.estimator; '
        "heavy = ('spml_nb.training', 'spml_nb.data', 'timm', 'torchvision', 'matplotlib'); "
        'print([name for name in sys.modules if name.startswith(heavy)])'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == '[]'
