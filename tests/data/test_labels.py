"""Observed labels, settings, splits and statistics."""

import time

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from spml_nb.base.errors import SpmlError
from spml_nb.data.labels import (
    BOX_WEIGHTINGS,
    TRUTHS,
    as_numeric_matrix,
    choose_score_targets,
    describe_labels,
    describe_truth,
    explain_missing_scores,
    observe,
    parse_label_setting,
    split_rows,
    to_full_labels,
)
from spml_nb.metrics import average_precision

true_labels = hnp.arrays(
    np.int8,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=9),
    elements=st.sampled_from([1, 0, -1]),
)
quick = settings(max_examples=60, deadline=None)


def drawn_in_loops(truth, positives, negatives, seed):
    "Cole et al.'s draw over again, an image at a time; None keeps all."
    random, z = np.random.RandomState(seed), np.zeros(truth.shape, int)
    for i, row in enumerate(truth):
        for value, count in ((1, positives), (-1, negatives)):
            order = np.array([c for c in range(len(row)) if row[c] == value], int)
            random.shuffle(order)
            for c in order[:count]:
                z[i, c] = value
    return z


# ---- the published draw


@pytest.mark.parametrize(
    'case, values',
    [('observe_1200_1_0', {0, 1}), ('observe_7_2_1', {-1, 0, 1}), ('observe_7_1_-1', {-1, 0, 1})],
)
def test_draw_equals_the_authors_code(golden, case, values):
    c = golden.case(case)
    counts = ['all' if c['hp'][k] == -1 else c['hp'][k] for k in ('num_pos', 'num_neg')]
    z = observe(c['labels'], *counts, seed=c['hp']['seed'])
    assert z.dtype == np.int8 and set(np.unique(z)) == values
    np.testing.assert_array_equal(z, c['observed'])


def test_default_seed_is_the_published_one(golden):
    c = golden.case('observe_1200_1_0')
    np.testing.assert_array_equal(observe(c['labels'], 1, 0), c['observed'])
    assert (observe(c['labels'], 1, 0, seed=1201) != c['observed']).any()


def test_draw_equals_an_independent_one_on_real_label_matrices(label_matrices):
    for name, rows in (('voc12', 5823), ('cub', 1500), ('nus', 5000)):
        labels = np.unpackbits(label_matrices[f'{name}_test'], axis=1)[
            :rows, : int(label_matrices[f'{name}_classes'])
        ]
        truth = np.where(labels == 1, 1, -1)
        np.testing.assert_array_equal(observe(labels, 1, 0), drawn_in_loops(truth, 1, 0, 1200))
        np.testing.assert_array_equal(observe(labels, 2, 3, seed=5), drawn_in_loops(truth, 2, 3, 5))


@quick
@given(
    true_labels,
    st.sampled_from([0, 1, 2, 'all']),
    st.sampled_from([0, 1, 2, 'all']),
    st.integers(0, 2**32 - 1),
)
def test_draw_keeps_what_it_should_and_nothing_false(labels, positives, negatives, seed):
    truth, before = to_full_labels(labels), labels.copy()
    z = observe(labels, positives, negatives, seed=seed)
    expected = [None if k == 'all' else k for k in (positives, negatives)]
    np.testing.assert_array_equal(z, drawn_in_loops(truth, *expected, seed))
    np.testing.assert_array_equal(labels, before)
    assert (z[z != 0] == truth[z != 0]).all()
    for value, count in ((1, positives), (-1, negatives)):
        there = (truth == value).sum(1)
        np.testing.assert_array_equal(
            (z == value).sum(1), there if count == 'all' else np.minimum(there, count)
        )


def test_a_single_positive_is_uniform_over_the_positives():
    labels = np.tile([1, 0, 1, 0, 1, 1], (6000, 1))
    share = (observe(labels, 1, 0) == 1).mean(0)
    np.testing.assert_allclose(share, [0.25, 0, 0.25, 0, 0.25, 0.25], atol=0.03)


def test_drawing_82081_by_80_takes_less_than_5_seconds():
    labels = np.random.RandomState(0).random_sample((82081, 80)) < 2.94 / 80
    start = time.process_time()
    z = observe(labels, 1, 0)
    assert time.process_time() - start < 5
    np.testing.assert_array_equal(z.sum(1), labels.any(1))


# ---- true labels


def test_zero_is_negative_without_a_minus_one_and_unknown_with_one():
    np.testing.assert_array_equal(to_full_labels([[1, 0], [0, 0]]), [[1, -1], [-1, -1]])
    np.testing.assert_array_equal(to_full_labels([[1, 0], [0, -1]]), [[1, 0], [0, -1]])
    np.testing.assert_array_equal(to_full_labels([[1, -1], [-1, 1]]), [[1, -1], [-1, 1]])


def test_unknown_true_labels_stay_unknown():
    labels = np.array([[1, 0, -1, 0], [0, 0, 0, -1]])
    for arguments in ({}, {'positives': 3, 'negatives': 3}, {'keep': 0.9}):
        assert (observe(labels, **arguments)[labels == 0] == 0).all()


def test_what_a_zero_means_can_be_said():
    gaps, mixed = [[1, 0], [0, 1]], [[1, 0], [0, -1]]
    assert (
        to_full_labels(gaps, 'ignore').tolist() == observe(gaps, unknown='ignore').tolist() == gaps
    )  # without a word these would be negatives
    assert (
        to_full_labels(mixed, 'ignore').tolist()
        == observe(mixed, unknown='ignore').tolist()
        == mixed
    )
    assert (
        to_full_labels(gaps, 'negative').tolist()
        == to_full_labels(gaps).tolist()
        == [[1, -1], [-1, 1]]
    )
    assert (
        to_full_labels(mixed, 'negative').tolist()
        == observe(mixed, unknown='negative').tolist()
        == [[1, -1], [-1, -1]]
    )
    assert observe(gaps, 1, 'all', unknown='ignore').tolist() == gaps and observe(
        gaps, 1, 'all'
    ).tolist() == [[1, -1], [-1, 1]]


def test_scores_need_a_class_with_both_signs_or_say_that_there_is_none():
    for labels, targets, truth in (
        ([[1, -1]], [[1, -1]], 'complete'),
        ([[1, 1]], [[1, 1]], 'complete'),
        ([[1, 0], [-1, 1]], [[1, 0], [-1, 1]], 'partly known'),
        ([[1, 0], [0, 1]], [[1, -1], [-1, 1]], 'observed only'),
        ([[0, 0]], [[-1, -1]], 'observed only'),
        ([[1, 0], [0, -1]], [[1, -1], [-1, -1]], 'observed only'),
    ):  # a stray 0 in a table of 1 and empty cells
        found, word = choose_score_targets(np.array(labels, np.int8))
        assert found.tolist() == targets and found.dtype == np.int8 and word == truth
        assert type(word) is str  # checkpoints hold it, and load nothing but plain types


def test_photos_with_positives_alone_do_not_rank_above_the_negatives_of_others():
    """One positive each, drawn of nothing, and two photos of which all is known: the scores of
    chance must not look good.
    """
    noise = np.random.RandomState(0)
    labels = np.zeros((200, 5), np.int8)
    labels[np.arange(200), noise.randint(5, size=200)] = 1
    labels[:2] = -1
    targets, truth = choose_score_targets(labels)
    assert (
        truth == 'observed only' and np.mean(average_precision(noise.rand(200, 5), targets)) < 0.4
    )
    labels[2:12] = np.where(
        noise.rand(10, 5) < 0.4, 1, -1
    )  # a sample that is annotated in full is what counts
    targets, truth = choose_score_targets(labels)
    assert (
        truth == 'partly known' and (targets[:12] == labels[:12]).all() and not targets[12:].any()
    )
    dropped = np.where(noise.rand(200, 5) < 0.4, 1, -1) * (
        noise.rand(200, 5) < 0.7
    )  # labels that are missing by chance all count
    assert (
        choose_score_targets(dropped)[0].tolist() == dropped.tolist()
        and ((dropped >= 0).all(1) & (dropped == 0).any(1)).sum() > 10
    )
    column = np.array(
        [[1, 0], [1, 1], [-1, 0], [-1, 0]], np.int8
    )  # the first class is known everywhere
    assert (
        choose_score_targets(column)[0].tolist() == [[1, 0], [1, 1], [-1, 0], [-1, 0]]
        and choose_score_targets(column)[1] == 'partly known'
    )


@quick
@given(true_labels)
def test_whatever_is_partly_known_has_an_average_precision(labels):
    targets, truth = choose_score_targets(labels)
    gaps = [any(row[c] == 0 for row in labels) for c in range(labels.shape[1])]
    partial = [row for row in labels if any(v == 0 for v in row)]
    most = sum(all(v >= 0 for v in row) for row in partial) > len(partial) / 2
    used = [
        [
            0
            if most and gaps[c] and any(v == 0 for v in row) and all(v >= 0 for v in row)
            else row[c]
            for c in range(len(row))
        ]
        for row in labels
    ]
    both = [
        any(row[c] == 1 for row in used) and any(row[c] == -1 for row in used)
        for c in range(labels.shape[1])
    ]
    assert truth == (
        'complete' if (labels != 0).all() else 'partly known' if any(both) else 'observed only'
    )
    ap = average_precision(
        np.random.RandomState(0).randn(*labels.shape), targets, empty='skip', unknown='ignore'
    )
    assert truth != 'partly known' or np.isfinite(ap[both]).all()


def test_scores_say_in_words_what_they_are_against_and_what_is_missing():
    assert [describe_truth(word) for word in TRUTHS] == [
        'all labels',
        'known labels (unknown ones left out)',
        'observed labels (unknown ones as negatives)',
    ]
    assert describe_truth('partly known', 1200) == 'known labels (1,200 unknown ones left out)'
    assert (
        explain_missing_scores('complete', 'val')
        == explain_missing_scores('partly known', 'val')
        == ''
    )
    assert explain_missing_scores('observed only', 'test').startswith(
        'The true mAP and F1 of test are missing, because no class has both'
    )


@pytest.mark.parametrize(
    'convert',
    [
        np.uint8,
        bool,
        np.float16,
        np.float64,
        list,
        pd.DataFrame,
        torch.tensor,
        lambda a: torch.tensor(a, dtype=torch.bfloat16),
        lambda a: torch.tensor(a, dtype=torch.bool),
    ],
)
def test_every_kind_of_matrix_gives_the_same_draw(convert):
    labels = (np.random.RandomState(0).random_sample((30, 7)) < 0.4).astype(int)
    converted = (
        labels.astype(convert)
        if isinstance(convert, type) and convert not in (list, pd.DataFrame)
        else convert(labels.tolist())
    )
    np.testing.assert_array_equal(observe(converted, 1, 0), observe(labels, 1, 0))


def test_full_gives_a_copy():
    labels = np.array([[1, -1]], np.int8)
    to_full_labels(labels)[0, 0] = 0
    observe(labels)[0, 0] = 0
    assert labels[0, 0] == 1


# ---- labels that are not drawn evenly


def weighted_in_loops(positive, weights, seed):
    """A weighted draw over again, an image at a time: the first class whose share of the weights,
    added up, is beyond the uniform number.
    """
    random, z = np.random.RandomState(seed), np.zeros(positive.shape, int)
    for i, row in enumerate(positive):
        u, classes = random.random_sample(), [c for c in range(len(row)) if row[c]]
        if not classes:
            continue
        w = [weights[i][c] for c in classes]
        if not sum(w):
            w = [1] * len(classes)
        total, k = w[0], 0
        while total <= u * sum(w):
            k, total = k + 1, total + w[k + 1]
        z[i, classes[k]] = 1
    return z


@quick
@given(true_labels, st.sampled_from(['frequent', 'rare', 'own']), st.integers(0, 2**32 - 1))
def test_a_weighted_draw_is_the_one_in_loops(labels, kind, seed):
    positive = to_full_labels(labels) == 1
    count = [max(sum(row[c] for row in positive), 1) for c in range(labels.shape[1])]
    own = np.random.RandomState(1).randint(0, 3, labels.shape)  # zeros among them
    weights = (
        own
        if kind == 'own'
        else [[n if kind == 'frequent' else 1 / n for n in count]] * len(labels)
    )
    z = observe(labels, 1, 0, weights=own if kind == 'own' else kind, seed=seed)
    assert z.dtype == np.int8
    np.testing.assert_array_equal(z, weighted_in_loops(positive, weights, seed))
    np.testing.assert_array_equal(z.sum(1), positive.any(1))


def test_a_weighted_draw_takes_each_class_as_often_as_its_weight_says():
    labels = np.random.RandomState(0).random_sample((20_000, 4)) < [1, 0.6, 0.3, 0.1]
    whole, count = labels.all(1), labels.sum(0)
    for word, weights in (('frequent', count), ('rare', 1 / count)):
        share = observe(labels, **parse_label_setting(f'single-{word}'))[whole].mean(0)
        np.testing.assert_allclose(
            share, weights / weights.sum(), atol=4 * (0.25 / whole.sum()) ** 0.5
        )
    even = observe(labels, 1, 0, weights=np.ones(labels.shape))[whole].mean(0)
    np.testing.assert_allclose(even, [0.25] * 4, atol=4 * (0.25 / whole.sum()) ** 0.5)


def test_a_weighted_draw_is_the_same_again_and_another_with_another_seed():
    labels = np.random.RandomState(0).random_sample((200, 9)) < 0.4
    a, b, c = (
        observe(labels, **parse_label_setting('single-rare'), seed=seed) for seed in (3, 3, 4)
    )
    assert (a == b).all() and (a != c).any() and (a != observe(labels, 1, 0, seed=3)).any()


# ---- partial positives


@quick
@given(true_labels, st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.integers(0, 1000))
def test_partial_sets_are_nested(labels, f, g, seed):
    small, large = (observe(labels, keep=k, seed=seed) for k in sorted((f, g)))
    assert (large[small == 1] == 1).all() and (to_full_labels(labels)[large == 1] == 1).all()
    assert set(np.unique(large)) <= {0, 1}


def test_partial_set_is_the_stated_one():
    labels = np.random.RandomState(0).random_sample((200, 30)) < 0.3
    expected = labels & (np.random.RandomState(9).random_sample((200, 30)) < 0.4)
    np.testing.assert_array_equal(observe(labels, keep=0.4, seed=9), expected)
    assert 0.35 < expected.sum() / labels.sum() < 0.45


# ---- settings by name


def test_settings_mean_what_they_say():
    labels = (np.random.RandomState(0).random_sample((50, 9)) < 0.4).astype(int)
    np.testing.assert_array_equal(
        observe(labels, **parse_label_setting('full')), to_full_labels(labels)
    )
    np.testing.assert_array_equal(
        observe(labels, **parse_label_setting('single')), observe(labels, 1, 0)
    )
    np.testing.assert_array_equal(
        observe(labels, **parse_label_setting('single+negatives')), observe(labels, 1, 'all')
    )
    np.testing.assert_array_equal(
        observe(labels, **parse_label_setting('partial-0.3')), observe(labels, keep=0.3)
    )
    np.testing.assert_array_equal(
        observe(labels, **parse_label_setting('2-positives')), observe(labels, 2, 0)
    )
    np.testing.assert_array_equal(
        observe(labels, **parse_label_setting('12-positives+negatives')), observe(labels, 12, 'all')
    )
    np.testing.assert_array_equal(
        observe(labels, **parse_label_setting('single+3-negatives')), observe(labels, 1, 3)
    )
    np.testing.assert_array_equal(
        observe(labels, **parse_label_setting('2-positives+12-negatives')), observe(labels, 2, 12)
    )
    np.testing.assert_array_equal(
        observe(labels, **parse_label_setting('single-frequent')),
        observe(labels, 1, 0, weights='frequent'),
    )
    np.testing.assert_array_equal(
        observe(labels, **parse_label_setting('single-rare')), observe(labels, 1, 0, weights='rare')
    )
    assert (
        [parse_label_setting(f'single-{kind}')['weights'] for kind in BOX_WEIGHTINGS]
        == list(BOX_WEIGHTINGS)
        == ['large', 'central']
    )


def test_sure_negatives_stand_beside_the_positive_of_the_even_draw():
    labels = (np.random.RandomState(0).random_sample((200, 9)) < 0.4).astype(int)
    z = observe(labels, **parse_label_setting('single+3-negatives'))
    assert ((z == 1) == (observe(labels, 1, 0) == 1)).all()
    assert (labels[z == -1] == 0).all()
    np.testing.assert_array_equal((z == -1).sum(1), np.minimum((labels == 0).sum(1), 3))


@pytest.mark.parametrize(
    'text',
    [
        '',
        'Single',
        'singel',
        'single ',
        'single\n',
        'partial',
        'partial-0',
        'partial-1',
        'partial-1.0',
        'partial-0.0',
        'partial-30',
        'partial-0.3+negatives',
        'partial--0.3',
        'partial-nan',
        '0-positives',
        '-1-positives',
        '1.5-positives',
        'full+negatives',
        'single-',
        'single-often',
        'single-rare+negatives',
        'single+0-negatives',
        'single+-3-negatives',
        'single+1.5-negatives',
        'single+3negatives',
        'single+3-negative',
        'single+1234567890-negatives',
        'single-rare+3-negatives',
        'full+3-negatives',
        None,
        1,
        0.3,
    ],
)
def test_wrong_settings_name_the_allowed_forms(text):
    with pytest.raises(SpmlError) as error:
        parse_label_setting(text)
    assert repr(text) in str(error.value)
    for form in (
        'full',
        'single',
        'single+negatives',
        'single+3-negatives',
        'partial-0.3',
        '2-positives',
        'single-frequent',
        'single-rare',
        'single-large',
        'target',
    ):
        assert form in str(error.value)


# ---- splits


@pytest.mark.parametrize('n', [100, 5717])
def test_split_equals_the_authors_code(golden, n):
    c = golden.case(f'split_{n}')
    train, val = split_rows(n)
    np.testing.assert_array_equal(train, c['train'])
    np.testing.assert_array_equal(val, c['val'])


@pytest.mark.parametrize(
    'n, train, val',
    [(5717, 4574, 1143), (82081, 65665, 16416), (150000, 120000, 30000), (5994, 4795, 1199)],
)
def test_split_has_the_sizes_that_the_papers_print(n, train, val):
    assert tuple(map(len, split_rows(n))) == (train, val)


@quick
@given(st.integers(2, 300), st.floats(0.01, 0.99), st.integers(0, 1000))
def test_split_is_a_sorted_partition(n, fraction, seed):
    size = round(fraction * n)
    if size in (0, n):
        with pytest.raises(SpmlError, match='both need at least one'):
            split_rows(n, fraction, seed)
        return
    train, val = split_rows(n, fraction, seed)
    assert len(val) == size and (np.diff(train) > 0).all() and (np.diff(val) > 0).all()
    np.testing.assert_array_equal(np.sort(np.concatenate([train, val])), np.arange(n))


# ---- statistics


def test_statistics_count_what_they_say():
    labels = [[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 0]]
    assert describe_labels(labels) == {
        'images': 4,
        'classes': 3,
        'positives_per_image': 1.25,
        'images_without_positives': 1,
        'class_frequency_min': 0.0,
        'class_frequency_median': 0.5,
        'class_frequency_max': 0.75,
    }


def test_statistics_of_observed_labels_count_their_positives():
    z = observe(np.ones((10, 4)), 1, 0)
    assert describe_labels(z)['positives_per_image'] == 1.0


# ---- wrong requests

LABELS = np.array([[1, 0, 0], [0, 1, 1]])
WRONG = {
    'negative count': (
        lambda: observe(LABELS, positives=-1),
        "positives=-1; allowed: 'all', or a whole number from 0",
    ),
    'fractional count': (
        lambda: observe(LABELS, negatives=0.5),
        "negatives=0.5; allowed: 'all', or a whole number",
    ),
    'boolean count': (lambda: observe(LABELS, positives=True), "positives=True; allowed: 'all'"),
    'misspelt all': (lambda: observe(LABELS, 'al'), "positives='al'; allowed: 'all'"),
    'keep 0': (
        lambda: observe(LABELS, keep=0),
        'keep=0; allowed: a number strictly between 0 and 1',
    ),
    'keep 1': (
        lambda: observe(LABELS, keep=1.0),
        'keep=1.0; allowed: a number strictly between 0 and 1',
    ),
    'keep NaN': (lambda: observe(LABELS, keep=float('nan')), 'keep=nan; allowed'),
    'keep text': (lambda: observe(LABELS, keep='0.3'), "keep='0.3'; allowed"),
    'keep and single': (lambda: observe(LABELS, 1, keep=0.3), 'it contradicts positives=1'),
    'keep and negatives': (
        lambda: observe(LABELS, negatives='all', keep=0.3),
        "contradicts positives='all', negatives='all'",
    ),
    'weights and two positives': (
        lambda: observe(LABELS, 2, 0, weights='rare'),
        "not with positives=2, negatives=0, keep=None",
    ),
    'weights and negatives': (
        lambda: observe(LABELS, 1, weights='rare'),
        'they go with positives=1, negatives=0',
    ),
    'weights and keep': (lambda: observe(LABELS, keep=0.5, weights='rare'), 'keep=0.5'),
    'weights by another word': (
        lambda: observe(LABELS, 1, 0, weights='large'),
        "unknown weights 'large'; allowed: frequent, rare",
    ),
    'weights of another shape': (
        lambda: observe(LABELS, 1, 0, weights=np.ones((2, 2))),
        'weights must have the shape of the labels, (2, 3); got (2, 2)',
    ),
    'negative weights': (
        lambda: observe(LABELS, 1, 0, weights=[[1, 1, 1], [1, -2, 1]]),
        'weights hold -2.0 at row 1, column 1. Allowed: finite numbers',
    ),
    'infinite weights': (
        lambda: observe(LABELS, 1, 0, weights=[[1, 1, np.inf], [1, 1, 1]]),
        'weights hold inf at row 0, column 2',
    ),
    'seed': (lambda: observe(LABELS, 1, 0, seed=-1), 'seed=-1; allowed: a whole number from 0'),
    'seed text': (lambda: split_rows(10, seed='1200'), "seed='1200'; allowed"),
    'reading of 0': (
        lambda: observe(LABELS, unknown='absent'),
        "unknown reading of 0 among the labels 'absent'; allowed",
    ),
    'value 2': (
        lambda: observe([[1, 0], [0, 2]]),
        'labels hold 2 at row 1, column 1. Allowed: 1 positive',
    ),
    'two wrong values': (
        lambda: observe([[1, 0.5], [0, 2]]),
        'labels hold 0.5 at row 0, column 1 (2 such entries)',
    ),
    'infinite': (lambda: observe([[1, -np.inf]]), 'labels hold -inf at row 0, column 1'),
    'NaN': (lambda: observe([[1, 0], [np.nan, 0]]), 'labels hold nan at row 1, column 0'),
    'NaN in a tensor': (
        lambda: observe(torch.tensor([[1, float('nan')]])),
        'labels hold nan at row 0, column 1',
    ),
    'NaN elsewhere': (
        lambda: as_numeric_matrix([[0.5, np.nan]], 'scores'),
        'scores hold nan at row 0, column 1',
    ),
    'text': (lambda: observe([['cat', 'dog']]), 'labels must be numbers; got type <U3'),
    'objects': (lambda: observe([[1, None]]), 'labels must be numbers; got type object'),
    'ragged': (lambda: observe([[1, 0], [1]]), 'labels must be a matrix'),
    'vector': (lambda: observe([1, 0, 1]), 'two dimensions, (images, classes); got shape (3,)'),
    'cube': (lambda: observe(np.zeros((2, 2, 2))), 'got shape (2, 2, 2)'),
    'no image': (lambda: observe(np.zeros((0, 5))), 'labels are empty: shape (0, 5)'),
    'no class': (lambda: describe_labels(np.zeros((5, 0))), 'labels are empty: shape (5, 0)'),
    'other name': (lambda: as_numeric_matrix([1], 'scores'), 'scores must have two dimensions'),
    'split of one': (
        lambda: split_rows(1),
        'n=1; allowed: a whole number of images from 2 upwards',
    ),
    'split of a float': (lambda: split_rows(10.0), 'n=10.0; allowed'),
    'split of nothing': (
        lambda: split_rows(100, 0),
        'fraction=0; allowed: a number strictly between 0 and 1',
    ),
    'empty validation': (lambda: split_rows(2, 0.1), 'leaves 2 for training and 0 for validation'),
    'empty training': (lambda: split_rows(2, 0.9), 'leaves 0 for training and 2 for validation'),
}


@pytest.mark.parametrize('name', WRONG)
def test_wrong_request_names_the_value_and_the_remedy(name):
    request, message = WRONG[name]
    with pytest.raises(SpmlError) as error:
        request()
    assert message in str(error.value)


def test_keep_accepts_counts_that_agree_with_it():
    np.testing.assert_array_equal(observe(LABELS, 'all', 0, keep=0.5), observe(LABELS, keep=0.5))
