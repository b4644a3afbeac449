"""Average precision, mAP, F1, thresholds, accuracy and the precision of pseudo-labels."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import average_precision_score, f1_score
from timing import ratio

import spml_nb.metrics as metrics
from spml_nb.base.errors import SpmlError
from spml_nb.metrics import (
    MAP_DEFINITIONS,
    average_precision,
    best_threshold,
    f1,
    find_map_definition,
    mean_average_precision,
    pseudo_label_precision,
)

quick = settings(max_examples=50, deadline=None)
SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, max_side=12)
FEW = st.sampled_from(
    [-3.5, -1.0, -0.0, 0.0, 1e-45, 0.25, 1.0, float(np.nextafter(1.0, 2)), 1e30]
)  # many ties, near ties, both zeros


@st.composite
def problems(draw, dtypes=(np.float32, np.float64), values=(1, 0, -1), elements=None):
    "Scores and targets of one shape."
    shape, dtype = draw(SHAPES), draw(st.sampled_from(dtypes))
    wide = st.floats(-100, 100, width=32)
    scores = draw(
        hnp.arrays(np.float64, shape, elements=elements or draw(st.sampled_from([FEW, wide])))
    ).astype(dtype)
    return scores, draw(hnp.arrays(np.int8, shape, elements=st.sampled_from(values)))


def free(t, k):
    "Whether something of a class is unknown and nothing that is known is negative, in plain loops."
    return any(not known for known in k) and not any(
        known and target <= 0 for target, known in zip(t, k, strict=True)
    )


def oracle(scores, targets, known, axis, empty='skip'):
    """scikit-learn on the known entries, class by class or image by image; NaN where every ranking
    would be perfect, and without a positive (or 0).
    """
    if axis == 'class':
        scores, targets, known = scores.T, targets.T, known.T
    result = []
    for s, t, k in zip(scores, targets, known, strict=True):
        result.append(
            np.nan
            if free(t, k)
            else average_precision_score(t[k] > 0, s[k])
            if (t[k] > 0).any()
            else {'skip': np.nan, 'zero': 0}[empty]
        )
    return np.array(result)


# ---- average precision


def test_average_precision_equals_the_authors_code(golden):
    c = golden.case('map')
    np.testing.assert_allclose(average_precision(c['scores'], c['targets']), c['ap'], rtol=1e-12)
    assert math.isclose(
        mean_average_precision(c['scores'], c['targets'], **find_map_definition('cole')),
        100 * c['ap'].mean(),
    )
    assert math.isclose(
        mean_average_precision(c['scores'], c['targets'], **find_map_definition('two_way')),
        100 * np.delete(c['ap'], 4).mean(),
    )


@quick
@given(
    problems(), st.sampled_from(['class', 'sample']), st.sampled_from([None, 'ignore', 'negative'])
)
def test_average_precision_equals_scikit_learn_with_ties_and_unknowns(problem, axis, unknown):
    scores, targets = problem
    ignore = unknown == 'ignore' or (unknown is None and (targets == -1).any())
    known = targets != 0 if ignore else np.ones(targets.shape, bool)
    expected, before = oracle(scores, targets, known, axis), (scores.copy(), targets.copy())
    result = average_precision(scores, targets, axis, 'skip', unknown)
    assert result.dtype == np.float64 and result.shape == (scores.shape[axis == 'class'],)
    np.testing.assert_allclose(result, expected, rtol=1e-12)
    np.testing.assert_allclose(
        average_precision(scores, targets, axis, 'zero', unknown),
        oracle(scores, targets, known, axis, 'zero'),
        rtol=1e-12,
    )
    np.testing.assert_array_equal(scores, before[0])
    np.testing.assert_array_equal(targets, before[1])


@pytest.mark.parametrize('kind', ['float32', 'float64', 'int64', 'uint8'])
@pytest.mark.parametrize('axis', ['class', 'sample'])
def test_average_precision_equals_scikit_learn_over_several_blocks(monkeypatch, kind, axis):
    monkeypatch.setattr(metrics, 'BLOCK', 1000)
    random = np.random.RandomState(0)
    scores = (
        np.round(random.randn(300, 17) * 40 + 120).clip(0).astype(kind)
        if 'int' in kind
        else random.randn(300, 17).astype(kind)
    )
    targets = random.choice([1, 0, -1], size=scores.shape, p=[0.2, 0.2, 0.6])
    np.testing.assert_allclose(
        average_precision(scores, targets, axis, 'skip'),
        oracle(scores, targets, targets != 0, axis),
        rtol=1e-12,
    )


def test_float64_scores_that_differ_in_the_last_bit_are_told_apart():
    for base in (1.0, -1.0, 0.0, 3e300, 5e-324):
        low, high = sorted([base, np.nextafter(base, np.inf)])
        scores = np.array([[high], [low], [low]])
        assert average_precision(scores, [[1], [0], [0]])[0] == 1.0
        assert math.isclose(average_precision(scores, [[0], [1], [0]])[0], 1 / 3)


def test_float32_scores_that_differ_in_the_last_bit_are_told_apart():
    for base in map(np.float32, (1.0, -1.0, 0.0, 3e38, 1e-45)):
        low, high = sorted([base, np.nextafter(base, np.float32(np.inf))])
        scores = np.array([[high], [low], [low]], np.float32)
        assert average_precision(scores, [[1], [0], [0]])[0] == 1.0
        assert math.isclose(average_precision(scores, [[0], [1], [0]])[0], 1 / 3)


@pytest.mark.parametrize('kind', [np.float32, np.float64])
def test_both_zeros_are_equal_and_infinities_are_the_ends(kind):
    assert average_precision(np.array([[-0.0], [0.0]], kind), [[0], [1]])[0] == 0.5
    assert average_precision(np.array([[0.0], [-0.0]], kind), [[0], [1]])[0] == 0.5
    ends = np.array([[np.inf], [1], [-np.inf], [-np.inf]], kind)
    assert average_precision(ends, [[1], [0], [0], [0]])[0] == 1.0
    assert average_precision(ends, [[0], [0], [1], [0]])[0] == 0.25
    # an unknown entry does not count beside a known one at the lowest score there is
    assert average_precision(ends, [[-1], [-1], [1], [0]])[0] == pytest.approx(1 / 3)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_give_what_arrays_give(dtype):
    random = np.random.RandomState(0)
    scores = torch.tensor(random.randn(50, 8)).to(dtype)
    targets = torch.tensor(random.choice([1, 0, -1], size=(50, 8)))
    expected = average_precision(scores.double().numpy(), targets.numpy())
    np.testing.assert_array_equal(average_precision(scores.requires_grad_(), targets), expected)
    np.testing.assert_array_equal(average_precision(scores, targets.to(torch.bfloat16)), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason='no GPU here')
def test_tensors_on_the_gpu_give_what_arrays_give():
    random = np.random.RandomState(0)
    scores, targets = random.randn(50, 8).astype(np.float32), random.randint(0, 2, (50, 8))
    on_gpu = average_precision(torch.tensor(scores).cuda(), torch.tensor(targets).cuda())
    np.testing.assert_array_equal(on_gpu, average_precision(scores, targets))


def test_ranking_does_not_depend_on_the_order_of_the_file():
    random = np.random.RandomState(0)
    scores = np.round(random.randn(200, 5)).astype(np.float32)
    targets = random.randint(0, 2, (200, 5))
    order = random.permutation(200)
    np.testing.assert_allclose(
        average_precision(scores, targets),
        average_precision(scores[order], targets[order]),
        rtol=1e-13,
    )


def test_a_target_is_positive_above_zero():
    scores = [[3.0], [2.0], [1.0]]
    assert (
        average_precision(scores, [[0.5], [2], [0]])[0]
        == average_precision(scores, [[1], [1], [0]])[0]
        == 1
    )
    assert (
        average_precision(scores, [[-2], [0], [1]])[0]
        == average_precision(scores, [[-1], [0], [1]])[0]
        == 0.5
    )


def test_saturated_sigmoids_change_the_ranking_and_logits_do_not():
    logits = np.arange(10, 40, dtype=np.float32)[:, None]
    targets = np.arange(30)[:, None] >= 25
    assert average_precision(logits, targets)[0] == 1.0
    assert average_precision(torch.sigmoid(torch.tensor(logits)), targets)[0] < 0.3


@pytest.mark.parametrize('kind', ['float32', 'float64'])
def test_it_is_faster_than_the_loop_over_scikit_learn(kind):
    random = np.random.RandomState(0)
    targets = random.random_sample((40137, 10)) < 0.04
    scores = (random.randn(40137, 10) + targets).astype(kind)

    def loop():
        return [average_precision_score(targets[:, c], scores[:, c]) for c in range(10)]

    assert (
        ratio(loop, lambda: average_precision(scores, targets)) > 1.5
    )  # 2.6 to 13; outputs/benchmarks.md has the measured ratio


# ---- mAP


def test_definitions_differ_in_classes_without_a_positive():
    scores, targets = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0]]), np.array([[1, 0, 0], [0, 1, 0]])
    assert set(MAP_DEFINITIONS) == {'cole', 'two_way'}
    assert mean_average_precision(scores, targets, **find_map_definition('cole')) == pytest.approx(
        200 / 3
    )
    assert mean_average_precision(scores, targets, **find_map_definition('two_way')) == 100
    assert mean_average_precision(scores, targets, 'sample') == 100


def test_map_in_percent_is_the_mean_of_average_precision():
    random = np.random.RandomState(0)
    scores, targets = random.randn(40, 30), random.random_sample((40, 30)) < 0.05
    assert not targets.any(1).all() and not targets.any(0).all()
    for axis in ('class', 'sample'):
        assert mean_average_precision(scores, targets, axis) == pytest.approx(
            100 * average_precision(scores, targets, axis).mean()
        )
        skipped = np.nanmean(average_precision(scores, targets, axis, 'skip'))
        assert mean_average_precision(scores, targets, axis, 'skip') == pytest.approx(100 * skipped)


def test_a_class_without_a_known_negative_gets_nothing_for_free():
    targets = np.array(
        [[1, -1, 1, 1, 0], [-1, 1, 0, 1, 0], [-1, 0, 1, 1, 0]]
    )  # complete, partly known, positives alone, complete, nothing
    for scores in np.random.RandomState(0).randn(20, 3, 5):
        expected, words = [], []
        for s, t in zip(scores.T, targets.T, strict=True):
            known = [(a, b) for a, b in zip(s, t, strict=True) if b]
            if len(known) < len(t) and all(b > 0 for _, b in known):
                continue
            precision = [
                sum(d > 0 and c >= a for c, d in known) / sum(c >= a for c, _ in known)
                for a, b in known
                if b > 0
            ]
            expected.append(sum(precision) / len(precision))
            words += [(a >= 0, b > 0) for a, b in known]
        ap = average_precision(scores, targets)
        np.testing.assert_allclose(ap[[0, 1, 3]], expected)
        assert np.isnan(ap[[2, 4]]).all() and mean_average_precision(
            scores, targets
        ) == pytest.approx(100 * sum(expected) / 3)
        right = sum(p and t for p, t in words)
        assert f1(scores, targets, scale='logit') == pytest.approx(
            2 * right / (sum(p for p, _ in words) + sum(t for _, t in words))
        )
    for alone in ([[1, 0], [0, 1], [1, 0]], np.zeros((3, 2))):
        assert math.isnan(mean_average_precision(scores[:, :2], alone, unknown='ignore'))


# ---- F1


@quick
@given(
    problems(),
    st.sampled_from(['micro', 'macro']),
    st.sampled_from([-1.0, 0.0, 0.25, 1.0]),
    st.sampled_from([None, 'ignore', 'negative']),
)
def test_f1_equals_scikit_learn_and_leaves_unknowns_out(problem, average, threshold, unknown):
    scores, targets = problem
    ignore = unknown == 'ignore' or (unknown is None and (targets == -1).any())
    known = targets != 0 if ignore else np.ones(targets.shape, bool)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        counted = [not free(t, k) for t, k in zip(targets.T, known.T, strict=True)]
        t, p, k = (a[:, counted] for a in (targets > 0, scores >= threshold, known))
        if average == 'micro':
            expected = f1_score(t[k], p[k], zero_division=0) if k.any() else 0
        else:
            expected = np.mean(
                [
                    f1_score(t[k], p[k], zero_division=0)
                    for t, p, k in zip(t.T, p.T, k.T, strict=True)
                ]
                or [0]
            )
    assert f1(scores, targets, average, threshold, scale='logit', unknown=unknown) == pytest.approx(
        expected, abs=1e-12
    )


def test_f1_cuts_at_the_threshold_inclusively_on_the_stated_scale():
    probabilities, targets = np.array([[0.75, 0.74], [0.2, 0.9]], np.float32), [[1, 0], [0, 1]]
    assert f1(probabilities, targets, 'micro', 0.75) == 1
    assert f1(probabilities, targets) == pytest.approx(0.8)
    logits = np.log(probabilities / (1 - probabilities))
    assert f1(logits, targets, scale='logit') == f1(probabilities, targets)
    assert f1(probabilities, targets, 'micro', 0.8) == pytest.approx(2 / 3)
    assert f1(logits, targets, 'micro', math.log(0.8 / 0.2), scale='logit') == pytest.approx(2 / 3)
    # a threshold means the number of the scores' own precision: 0.7 in float32 lies below 0.7 in
    # float64
    assert f1(np.array([[0.7]], np.float32), [[1]], 'micro', 0.7) == 1


def test_f1_is_zero_where_undefined():
    assert f1(np.zeros((3, 2)), np.zeros((3, 2))) == 0
    assert f1([[0.9, 0.1]], [[1, 0]], 'macro') == 0.5


@quick
@given(problems(values=(1, 1, 0, -1)), st.sampled_from([None, 'negative']))
def test_best_threshold_beats_every_other(problem, unknown):
    scores, targets = problem
    known = (
        targets != 0 if unknown is None and (targets < 0).any() else np.ones(targets.shape, bool)
    )
    if not any((t > 0).any() for t, k in zip(targets.T, known.T, strict=True) if not free(t, k)):
        return
    best = best_threshold(scores, targets, unknown)
    values = {
        t: f1(scores, targets, 'micro', t, scale='logit', unknown=unknown)
        for t in np.unique(scores).tolist()
    }
    assert f1(scores, targets, 'micro', best, scale='logit', unknown=unknown) == max(
        values.values()
    )
    highest = max(t for t in values if values[t] == max(values.values()))
    counted = known & [[not free(t, k) for t, k in zip(targets.T, known.T, strict=True)]]
    lower = scores[counted & (scores < highest)].max(initial=-np.inf)
    assert lower < best <= highest


def test_best_threshold_at_large_is_the_best_of_all_scores():
    random = np.random.RandomState(0)
    targets = random.random_sample((400, 6)) < 0.1
    scores = (random.randn(400, 6) + 2 * targets).astype(np.float32)
    values = [f1(scores, targets, 'micro', t, scale='logit') for t in scores.ravel()]
    assert (
        f1(scores, targets, 'micro', best_threshold(scores, targets), scale='logit')
        == max(values)
        > 0.5
    )


def named(scores, targets):
    "The best threshold, and the labels that it names."
    threshold = best_threshold(scores, targets)
    return threshold, scores >= threshold


@pytest.mark.silent('A3')
@pytest.mark.parametrize('dtype', [np.float32, np.float64])
@pytest.mark.parametrize('seed', range(10))
def test_noise_of_rounding_moves_no_label_across_the_threshold(dtype, seed):
    """Float32 sums in another order, as in another batch size or in ONNX Runtime, differ by about
    1e-7.
    """
    random = np.random.default_rng(seed)
    targets = random.random((200, 5)) < 0.2
    probabilities = (1 / (1 + np.exp(-random.normal(size=targets.shape) - 2 * targets + 1))).astype(
        dtype
    )
    threshold, before = named(probabilities, targets)
    for _ in range(20):
        noise = random.uniform(-1e-7, 1e-7, targets.shape)
        assert np.array_equal(probabilities * (1 + noise) >= threshold, before)


@pytest.mark.silent('A3')
@pytest.mark.parametrize(
    'scores, targets, threshold',
    [
        (
            [[0.9, 0.5, 0.1]],
            [[1, 1, 0]],
            0.3,
        ),  # the middle between the lowest positive and the next lower score
        ([[0.9, 0.5, 0.1]], [[1, 0, 0]], 0.7),
        ([[0.9, 0.5]], [[1, 1]], 0.25),  # no lower score: half of a probability
        ([[3.0, 2.0]], [[1, 1]], 1.0),  # no lower score: a logit less 1
        ([[-3.0, -5.0]], [[1, 1]], -6.0),
        ([[0.0, 0.0]], [[1, 1]], 0.0),  # below probability 0 there is nothing
        ([[7, 4, 1]], [[1, 1, 0]], 2.5),
        ([[0.9, 0.6, 0.5, 0.2]], [[1, 1, 0, -1]], 0.4),  # 0.5 is unknown and counts nowhere
    ],
)
def test_the_threshold_is_the_middle_between_two_scores_that_count(scores, targets, threshold):
    assert best_threshold(scores, targets) == pytest.approx(threshold, abs=1e-12)


@pytest.mark.silent('A3')
@quick
@given(problems(values=(1, 0)))
def test_the_middle_names_the_labels_of_the_best_score(problem):
    scores, targets = problem
    if not targets.any():
        return
    threshold, labels = named(scores, targets)
    best = scores[labels].min()
    assert threshold <= best and np.array_equal(labels, scores >= best)
    lower = scores[~labels]
    if len(lower):
        middle = (
            lower.max() / 2 + best / 2
        )  # rounded as the scores are, or the upper score if they have no middle
        assert threshold == (middle if lower.max() < middle else best)


@pytest.mark.silent('A3')
def test_infinite_and_neighbouring_scores_have_no_middle():
    inf, one = np.inf, np.float32(1)
    assert best_threshold([[inf, -inf]], [[1, 0]]) == inf
    assert best_threshold([[inf, 3.0]], [[1, 0]]) == inf
    assert best_threshold(np.array([[np.nextafter(one, 2 * one), one]]), [[1, 0]]) == np.nextafter(
        one, 2 * one
    )


# ---- pseudo-labels


def test_pseudo_label_precision_counts_only_pseudo_labels():
    truth = np.array([[1, 0, 0, 1], [0, 1, 1, 0]])
    observed = np.array([[1, 0, 0, 0], [0, 1, 0, 0]])
    pseudo = np.array([[1, 1, -1, 1], [-1, 1, -1, 0]])
    assert pseudo_label_precision(pseudo, truth) == 3 / 4
    assert pseudo_label_precision(pseudo, truth, observed=observed) == 1 / 2
    assert pseudo_label_precision(pseudo, truth, -1, observed) == pytest.approx(2 / 3)
    assert math.isnan(pseudo_label_precision(np.zeros((2, 4)), truth))
    partly = np.array([[1, 0, -1, 0], [-1, 1, 0, 0]])
    assert pseudo_label_precision(pseudo, partly) == 1
    assert pseudo_label_precision(pseudo.clip(0).astype(np.uint8), truth) == 3 / 4
    assert math.isnan(pseudo_label_precision(pseudo.clip(0).astype(np.uint8), truth, -1))


# ---- wrong input

S, T = np.linspace(0, 1, 12).reshape(4, 3), np.eye(4, 3, dtype=int)
NAN = S.copy()
NAN[2, 1] = np.nan
WRONG = {
    'NaN': (lambda: average_precision(NAN, T), 'scores hold nan at row 2, column 1'),
    'NaN in float32': (
        lambda: average_precision(NAN.astype(np.float32), T),
        'scores hold nan at row 2, column 1',
    ),
    'NaN in half': (
        lambda: average_precision(torch.tensor(NAN).bfloat16(), T),
        'scores hold nan at row 2, column 1',
    ),
    'NaN in mAP': (lambda: mean_average_precision(NAN, T), 'scores hold nan'),
    'NaN in F1': (lambda: f1(NAN, T), 'scores hold nan'),
    'NaN in threshold search': (lambda: best_threshold(NAN, T), 'scores hold nan'),
    'NaN targets': (lambda: average_precision(S, NAN), 'targets hold nan'),
    'shapes': (lambda: average_precision(S, T[:3]), 'scores have shape (4, 3), targets (3, 3)'),
    'shapes that would broadcast': (
        lambda: f1(S, T[:1]),
        'scores have shape (4, 3), targets (1, 3)',
    ),
    'transposed': (lambda: best_threshold(S, T.T), 'targets (3, 4)'),
    'vector': (lambda: average_precision(S[:, 0], T[:, 0]), 'scores must have two dimensions'),
    'empty': (lambda: average_precision(S[:0], T[:0]), 'scores are empty'),
    'text': (lambda: average_precision(S, [['a'] * 3] * 4), 'targets must be numbers'),
    'axis': (
        lambda: average_precision(S, T, 'classes'),
        "unknown axis 'classes'; allowed: class, sample. Did you mean 'class'?",
    ),
    'empty option': (lambda: average_precision(S, T, empty='nan'), 'allowed: zero, skip'),
    'unknown option': (
        lambda: average_precision(S, T, unknown='positive'),
        'allowed: None, ignore, negative',
    ),
    'definition': (
        lambda: find_map_definition('coles'),
        "unknown definition of mAP 'coles'; allowed: cole, two_way. Did you mean 'cole'?",
    ),
    'nothing left': (
        lambda: mean_average_precision(S, 0 * T, empty='skip'),
        'no target is positive',
    ),
    'average': (lambda: f1(S, T, 'samples'), 'allowed: micro, macro'),
    'scale': (lambda: f1(S, T, scale='odds'), "unknown scale 'odds'; allowed: probability, logit"),
    'logits as probabilities': (
        lambda: f1(S * 3, T),
        "That is no probability: pass sigmoid(logits), or scale='logit'",
    ),
    'negative logits': (lambda: f1(-S, T), 'at row 0, column 1 (11 such entries)'),
    'threshold': (
        lambda: f1(S, T, 'micro', 1.5),
        'threshold=1.5 is no probability; allowed: a number from 0 to 1',
    ),
    'threshold NaN': (
        lambda: f1(S, T, 'micro', math.nan, scale='logit'),
        'threshold=nan is no logit',
    ),
    'threshold text': (lambda: f1(S, T, 'micro', 'best'), "threshold='best' is no probability"),
    'no positive': (lambda: best_threshold(S, 0 * T), 'no target is positive'),
    'sign': (lambda: pseudo_label_precision(T, T, 0), 'unknown sign 0; allowed: 1, -1'),
    'observed shape': (
        lambda: pseudo_label_precision(T, T, observed=T[:2]),
        'observed labels have shape (2, 3), pseudo-labels (4, 3)',
    ),
}


@pytest.mark.parametrize('name', WRONG)
def test_wrong_input_names_the_value_and_the_remedy(name):
    call, message = WRONG[name]
    with pytest.raises(SpmlError) as error:
        call()
    assert message in str(error.value)
