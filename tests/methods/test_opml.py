"""OPML and its parts: identities, label correction, state, options. The formulas are checked in the
notebook.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

from spml_nb.base.errors import SpmlError
from spml_nb.methods.baselines import zlpr_loss
from spml_nb.methods.core import ViewOutputs, create
from spml_nb.methods.opml import (
    correct_labels,
    count_opml_corrections,
    high_rank_loss,
    opml_loss,
    soft_opml_loss,
    trust_share,
)


def value_and_gradient(loss, x, *args, **kwargs):
    x = x.detach().clone().requires_grad_()
    value = loss(x, *args, **kwargs)
    return value.detach(), torch.autograd.grad(value, x)[0]


def assert_same(a, b, tolerance):
    for p, q in zip(a, b, strict=True):
        assert p.dtype == q.dtype and (p - q).abs().max() <= tolerance * q.abs().max()


@pytest.fixture
def batch():
    torch.manual_seed(1)
    s = 4 * torch.randn(9, 7, dtype=torch.float64)
    z = torch.randint(-1, 2, (9, 7))
    w = torch.rand(9, 7, dtype=torch.float64)
    z[2], z[3], w[4], w[5] = z[2].clamp(max=0), 1, 0, 1  # no positives; nothing else; the ends of w
    return s, z, w


def test_the_product_of_the_constants_is_the_loss_and_ln_a_a_shift_of_the_logits(batch):
    s, z, _ = batch
    for alpha, beta in ((0.2, 0.6), (0.9, 0.1), (0.99, 0.5)):
        a, b = alpha / (1 - alpha), beta / (1 - beta)
        assert_same(
            value_and_gradient(opml_loss, s, z, alpha=alpha, beta=beta),
            value_and_gradient(opml_loss, s - math.log(a), z, beta=a * b / (1 + a * b)),
            1e-12,
        )
    assert_same(  # on the curve ab = 1 it is ZLPR
        value_and_gradient(opml_loss, s, z, alpha=0.9, beta=0.1),
        value_and_gradient(zlpr_loss, s - math.log(9), z),
        1e-12,
    )


def test_at_one_half_opml_is_zlpr(batch):
    for unknown in ('negative', 'ignore'):
        for reduction in ('mean', 'sum', 'sample'):
            options = {'unknown': unknown, 'reduction': reduction}
            assert_same(
                value_and_gradient(opml_loss, *batch[:2], **options),
                value_and_gradient(zlpr_loss, *batch[:2], **options),
                1e-12,
            )
    assert torch.allclose(
        opml_loss(*batch[:2], reduction='none'), zlpr_loss(*batch[:2], reduction='none'), rtol=1e-12
    )


def test_with_a_bias_only_the_product_of_the_constants_matters(batch):
    s, z, _ = batch

    def share(odds):
        return odds / (1 + odds)

    shifted = value_and_gradient(opml_loss, s + 0.8, z, alpha=share(2.0), beta=share(3.0))
    assert_same(
        shifted,
        value_and_gradient(
            opml_loss, s, z, alpha=share(2 * math.exp(-0.8)), beta=share(3 * math.exp(0.8))
        ),
        1e-12,
    )
    assert (
        abs(opml_loss(s, z, alpha=share(6.0)) - opml_loss(s, z, alpha=share(2.0), beta=share(3.0)))
        > 0.05
    )  # without one, both do


def test_soft_labels_of_0_and_1_are_negatives_and_positives(batch):
    s, z, w = batch
    assert_same(
        value_and_gradient(soft_opml_loss, s, z, 0 * w, 0.3, 0.6),
        value_and_gradient(opml_loss, s, z, alpha=0.3, beta=0.6),
        1e-12,
    )
    assert_same(
        value_and_gradient(soft_opml_loss, s, z, 0 * w + 1),
        value_and_gradient(opml_loss, s, torch.where(z == 0, 1, z)),
        1e-12,
    )
    changed = torch.where(z == 0, w, 0.123)
    assert torch.equal(
        soft_opml_loss(s, z, w), soft_opml_loss(s, z, changed)
    )  # observed labels ignore w


def test_a_share_a_little_beyond_0_or_1_counts_as_that(batch):
    s, z, w = batch
    sure = torch.where(w > 0.5, 1.0, 0.0).double()
    assert torch.equal(soft_opml_loss(s, z, sure * (1 + 2e-7) - 1e-7), soft_opml_loss(s, z, sure))


def test_ignore_leaves_unknown_labels_out(batch):
    s, z, _ = batch
    _, gradient = value_and_gradient(opml_loss, s, z, unknown='ignore')
    assert (gradient[z == 0] == 0).all()
    assert opml_loss(torch.where(z == 0, 1e4, s), z, unknown='ignore') == opml_loss(
        s, z, unknown='ignore'
    )


@pytest.mark.parametrize(
    'dtype, tolerance',
    [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 1e-5), (torch.float16, 1e-5)],
)
def test_high_rank_is_exact_for_predictions_all_alike(dtype, tolerance):
    S = torch.full((64, 80), 0.5).to(dtype)  # rank one: σ² = 64·80/4, and 63 zeros
    value, gradient = value_and_gradient(high_rank_loss, S)
    expected = -1e-3 * (math.log(64 * 80 / 4 + 1e-3) + 63 * math.log(1e-3))
    assert abs(value.item() - expected) <= tolerance * abs(expected) and gradient.isfinite().all()
    assert value.dtype == (dtype if dtype == torch.float64 else torch.float32)
    for flat in (0.0, 1.0):
        assert all(
            part.isfinite().all()
            for part in value_and_gradient(high_rank_loss, torch.full((3, 312), flat).to(dtype))
        )


def test_high_rank_rewards_telling_images_apart_with_a_bounded_pull():
    torch.manual_seed(0)
    assert (
        high_rank_loss(torch.eye(6))
        < high_rank_loss(torch.eye(6)[:, [0, 0, 0, 1, 1, 1]])
        < high_rank_loss(torch.zeros(6, 6) + 0.5)
    )
    for S in (torch.rand(5, 9), torch.rand(5, 1) @ torch.rand(1, 9), 1e-2 * torch.rand(5, 9)):
        _, gradient = value_and_gradient(high_rank_loss, S.double(), 1.0, 1e-3)
        assert torch.linalg.matrix_norm(gradient, 2) <= 1e-3**-0.5 + 1e-9


def test_high_rank_survives_mixed_precision():
    S = torch.rand(8, 20).sigmoid()
    with torch.autocast('cpu', torch.bfloat16):
        inside = high_rank_loss(S)
    assert torch.equal(inside, high_rank_loss(S))


def test_trust_raises_the_product_or_the_ap_alone_to_the_power():
    s, ap = torch.tensor([[0.0, 2.0]], requires_grad=True), torch.tensor([0.5, 0.2])
    p = torch.sigmoid(s).detach()
    assert torch.allclose(trust_share(s, ap, 3.0), (p * ap) ** 3) and torch.allclose(
        trust_share(s, ap, 3.0, 'ap'), p * ap**3
    )
    assert (
        not trust_share(s, ap, 3.0).requires_grad
        and (trust_share(s, torch.zeros(2), 0.5) == 0).all()
        and (trust_share(s, torch.zeros(2), 0.5, 'ap') == 0).all()
    )


def test_no_gradient_flows_through_the_shares(batch):
    s, z, w = batch
    w = w.clone().requires_grad_()
    soft_opml_loss(s.clone().requires_grad_(), z, w).backward()
    assert w.grad is None


def test_correction_counts_are_floored_and_capped():
    z = torch.zeros(100, 4, dtype=torch.int8)
    for c, m in enumerate((100, 50, 3, 0)):
        z[:m, c] = 1
    assert count_opml_corrections(z, torch.tensor([0.0, 0.5, 0.0, 0.0]), 0.29, 0.5).tolist() == [
        29,
        14,
        1,
        0,
    ]  # 0.29 · 100 is 29 in spite of rounding
    assert count_opml_corrections(z, torch.tensor([1.0, 0.99, 0.9, 0.0]), 0.29, 9.0).tolist() == [
        0,
        0,
        2,
        0,
    ]


def step(method, scores, index, e):
    method.start_epoch(e)
    found = value_and_gradient(
        lambda s: method.loss(ViewOutputs(weak=SimpleNamespace(logits=s)), index), scores[index]
    )
    method.end_epoch(e, lambda view='plain': scores)
    return found


@pytest.fixture
def observed():
    torch.manual_seed(3)
    z = torch.eye(5, dtype=torch.int8)[torch.randint(5, (40,))]
    z[::7, 0] -= (z[::7, 0] == 0).to(torch.int8)
    return z


PARTS = {'high_rank': False, 'smoothing': False, 'correction': False}


def test_table_4_rows_are_the_parts_one_by_one(observed):
    scores, index = torch.randn(40, 5), torch.arange(8)
    outputs = ViewOutputs(weak=SimpleNamespace(logits=scores[index]))
    plain = opml_loss(scores[index], observed[index])
    assert torch.equal(create('opml', observed, epochs=3).loss(outputs, index), plain)
    assert torch.equal(create('opml_sp', observed, epochs=3, **PARTS).loss(outputs, index), plain)
    ranked = create(
        'opml_sp', observed, epochs=3, **PARTS | {'high_rank': True}, rank_weight=0.1
    ).loss(outputs, index)
    assert torch.isclose(ranked, plain + high_rank_loss(scores[index].sigmoid(), 0.1))
    for part in ('smoothing', 'correction'):
        method = create(
            'opml_sp', observed, epochs=3, **PARTS | {part: True}, gamma=1.0, ratio=0.2, cap=1.0
        )
        assert torch.isclose(method.loss(outputs, index), plain)  # before the first epoch ends
        method.end_epoch(1, lambda view='plain': scores)
        assert abs(method.loss(outputs, index) - plain) > 1e-3
        assert torch.equal(method.labels, observed) == (part == 'smoothing')


def test_average_precision_is_that_of_the_observed_labels_never_the_corrected(observed):
    method = create('opml_sp', observed, epochs=3, ratio=0.5, cap=2.0)
    for e in (1, 2):
        scores = torch.randn(40, 5)
        method.end_epoch(e, lambda view='plain', s=scores: s)
        expected = [
            average_precision_score(observed[:, c].numpy() > 0, scores[:, c].numpy())
            for c in range(5)
        ]
        assert (
            np.allclose(method.ap.numpy(), expected, atol=1e-6) and (method.labels > observed).any()
        )
        assert torch.equal(
            method.labels, correct_labels(scores, observed, torch.tensor(expected), 0.5, 2.0)
        )  # from the observed ones again
    assert torch.equal(method.z, observed)


def test_accumulated_corrections_stay(observed):
    methods = [
        create('opml_sp', observed, epochs=9, ratio=0.1, cap=1.0, accumulate=a)
        for a in (False, True)
    ]
    counts = count_opml_corrections(observed, torch.zeros(5), 0.1, 1.0)
    for e in range(1, 4):
        before, scores = methods[1].labels.clone(), torch.randn(40, 5)
        for method in methods:
            method.end_epoch(e, lambda view='plain', s=scores: s)
        assert (methods[1].labels[before > 0] > 0).all() and (
            methods[1].labels[observed < 0] == -1
        ).all()
    added = [(m.labels > observed).sum(0) for m in methods]
    assert (
        (added[0] <= counts).all()
        and added[1].sum() > added[0].sum()
        and (added[1] <= 3 * counts).all()
    )


def test_a_class_without_positives_gets_none(observed):
    observed[:, 2] = 0
    method = create('opml_sp', observed, epochs=2, ratio=1.0, cap=9.0)
    value, gradient = step(method, torch.randn(40, 5), torch.arange(40), 1)
    assert (
        method.ap[2] == 0
        and (method.labels[:, 2] == 0).all()
        and value.isfinite()
        and gradient.isfinite().all()
    )


def test_resumed_equals_uninterrupted(observed):
    scores = [torch.randn(40, 5) for _ in range(4)]
    for options in ({}, {'accumulate': True, 'power': 'ap', 'gamma': 2.0}):
        straight = create('opml_sp', observed, epochs=4, **options)
        for e in range(1, 3):
            step(straight, scores[e - 1], torch.arange(40), e)
        resumed = create('opml_sp', observed, epochs=4, **options)
        resumed.load_state_dict(straight.state_dict())
        for e in range(3, 5):
            for a, b in zip(
                step(straight, scores[e - 1], torch.arange(40), e),
                step(resumed, scores[e - 1], torch.arange(40), e),
                strict=True,
            ):
                assert torch.equal(a, b)
        for a, b in zip(straight.state_dict().values(), resumed.state_dict().values(), strict=True):
            assert torch.equal(a, b)


def test_training_scores_are_asked_for_only_where_they_are_used(observed):
    def refuse(view='plain'):
        raise AssertionError('scored in vain')

    create('opml_sp', observed, epochs=1, smoothing=False, correction=False).end_epoch(1, refuse)


@pytest.mark.parametrize(
    'loss, wrong, message',
    [
        (opml_loss, {'alpha': 0}, 'alpha must lie between 0 and 1'),
        (opml_loss, {'beta': 1.0}, 'beta must lie between 0 and 1'),
        (opml_loss, {'alpha': float('nan')}, 'alpha'),
        (opml_loss, {'unknown': 'x'}, 'negative, ignore'),
        (opml_loss, {'reduction': 'x'}, 'mean, sum, sample, none'),
    ],
)
def test_wrong_options_are_named(batch, loss, wrong, message):
    with pytest.raises(SpmlError, match=message):
        loss(*batch[:2], **wrong)


@pytest.mark.parametrize(
    'wrong, message',
    [
        ({'gamma': 0}, 'gamma must be above 0'),
        ({'power': 'sum'}, 'product, ap'),
        ({'ratio': -1}, 'ratio must lie'),
        ({'cap': -1}, 'cap must lie'),
        ({'alpha': 1}, 'alpha must lie'),
        ({'beta': 0}, 'beta must lie'),
        ({'rank_weight': -1}, 'weight must lie'),
        ({'rank_eps': 0}, 'eps must be above 0'),
        ({'smoothing': 1}, 'true or false'),
        ({'lamda': 1}, 'rank_weight'),
    ],
)
def test_opml_sp_refuses_wrong_options_before_training(observed, wrong, message):
    with pytest.raises(SpmlError, match=message):
        create('opml_sp', observed, epochs=1, **wrong)


def test_unequal_shapes_and_infinite_scores_are_refused(batch, observed):
    s, z, w = batch
    with pytest.raises(SpmlError, match='same shape'):
        opml_loss(s, z[:, :3])
    with pytest.raises(SpmlError, match='same shape'):
        soft_opml_loss(s, z[:, :3], w)
    with pytest.raises(SpmlError, match='infinity'):
        correct_labels(torch.full((40, 5), math.inf), observed, torch.zeros(5), 0.1, 1.0)
