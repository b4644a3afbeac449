"""nnPU: values and steps class by class, in Python's floats, with labels of all three states. The
special cases are checked in the notebook.
"""

import doctest
import itertools
import math

import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.losses import Loss
from spml_nb.methods import nnpu
from spml_nb.methods.baselines import an_loss, bce_loss
from spml_nb.methods.core import create, find, resolve_hparams
from spml_nb.methods.nnpu import nnpu_loss, weigh_positives


def by_hand(s, z, k, beta, gamma, correction):
    "Value, slopes by the logits, and how many classes are below −β."
    (B, C), value, below = s.shape, 0.0, 0
    slopes = torch.zeros(B, C, dtype=torch.float64)
    observed = sum(label > 0 for row in z.tolist() for label in row)
    for c in range(C):
        logits, labels = s[:, c].tolist(), z[:, c].tolist()
        n, unknown = labels.count(1), labels.count(0)
        weight = min(max(1.0, k * B / observed), 1 + unknown / n) if n else 1.0
        p = [1 / (1 + math.exp(-x)) for x in logits]
        share = {1: 1 - weight, 0: 1.0, -1: 0.0}
        rest = sum(-share[y] * math.log(1 - q) for y, q in zip(labels, p, strict=True)) / B
        value += max(rest, -beta) / C
        held = rest < -beta
        below += held
        for i, (y, q) in enumerate(zip(labels, p, strict=True)):
            own = {1: -weight * math.log(q), 0: 0.0, -1: -math.log(1 - q)}[y]
            value += own / (B * C)
            slope = {1: weight * (q - 1), 0: 0.0, -1: q}[y]
            if not held:
                slope += share[y] * q
            elif correction == 'ascend':
                slope = q if y == -1 else -gamma * share[y] * q
            slopes[i, c] = slope / (B * C)
    return value, slopes, below


def draw(seed, kinds, B=8, C=5):
    g = torch.Generator().manual_seed(seed)
    s = 3 * torch.randn(B, C, dtype=torch.float64, generator=g)
    z = torch.tensor(kinds)[torch.randint(len(kinds), (B, C), generator=g)]
    z[torch.arange(B), torch.randint(C, (B,), generator=g)] = 1
    return s.requires_grad_(), z


CASES = [
    (1.5, 0.0, 1.0, 'ascend'),
    (3.5, 0.0, 1.0, 'ascend'),
    (3.5, 0.2, 0.3, 'ascend'),
    (3.5, 0.0, 1.0, 'clamp'),
    (3.5, 0.2, 1.0, 'clamp'),
    (3.5, math.inf, 1.0, 'ascend'),
]


@pytest.mark.parametrize('kinds', [(0,), (0, 0, -1), (-1,), (1, 0, -1)], ids=str)
@pytest.mark.parametrize('case', CASES, ids=str)
def test_value_and_step_are_those_of_the_formula(case, kinds):
    k, beta, gamma, correction = case
    for seed in range(6):
        s, z = draw(seed, kinds)
        value = nnpu_loss(s, z, k=k, beta=beta, gamma=gamma, correction=correction)
        wanted, slopes, _ = by_hand(s, z, *case)
        assert value.item() == pytest.approx(wanted, rel=1e-9)
        torch.testing.assert_close(torch.autograd.grad(value, s)[0], slopes, rtol=1e-9, atol=1e-12)


def test_the_cases_are_on_both_sides_of_the_correction():
    below = [by_hand(*draw(seed, (0, 0, -1)), *CASES[1])[2] for seed in range(6)]
    assert sum(below) > 3 and min(below) < 5
    assert not any(by_hand(*draw(seed, (0,)), *CASES[-1])[2] for seed in range(6))


def test_a_known_absent_label_is_a_negative_whatever_happens_to_its_class():
    s, z = draw(1, (0,))
    z[3] = -1
    for case in CASES:
        k, beta, gamma, correction = case
        slopes = torch.autograd.grad(
            nnpu_loss(s, z, k=k, beta=beta, gamma=gamma, correction=correction), s
        )[0]
        torch.testing.assert_close(slopes[3], s[3].detach().sigmoid() / z.numel())
    assert by_hand(s, z, *CASES[1])[2]


def test_with_all_labels_known_nothing_is_estimated():
    s, z = draw(0, (1, -1, -1))
    for k in (0.5, 2.9, 31.4):
        assert torch.equal(weigh_positives(z, k), torch.ones(5))
        torch.testing.assert_close(nnpu_loss(s, z, k=k), bce_loss(s, z))


def test_an_observed_positive_stands_for_as_many_as_there_should_be():
    z = torch.eye(4).repeat(5, 1)
    assert weigh_positives(z, 2.5).tolist() == [2.5] * 4
    assert weigh_positives(z).tolist() == weigh_positives(z, 0.5).tolist() == [1] * 4
    two = z + z.roll(1, 1)  # two labels of each photo are observed
    assert weigh_positives(two, 3.0).tolist() == [1.5] * 4
    crowded = torch.tensor([[1, 0], [1, 0], [1, 0], [0, 1]])
    assert weigh_positives(crowded, 2.0).tolist() == pytest.approx([4 / 3, 2])
    assert weigh_positives(torch.zeros(3, 2), 2.0).isfinite().all()


def test_the_mean_weight_is_the_share_of_photos_if_all_have_as_many_labels():
    "By going through all draws of one label each."
    truth = [(0, 1), (0, 2), (1, 2), (0, 1)]
    mean = torch.zeros(3)
    draws = [*itertools.product(*truth)]
    for drawn in draws:
        z = torch.eye(3)[torch.tensor(drawn)]
        mean += 2.0 * z.mean(0) / len(draws)
    assert mean.tolist() == pytest.approx([3 / 4, 3 / 4, 2 / 4])


def test_nothing_told_is_an_and_batches_without_a_positive_are_fine():
    s, z = draw(2, (0,))
    torch.testing.assert_close(nnpu_loss(s, z), an_loss(s, z))
    empty = torch.zeros_like(z)
    torch.testing.assert_close(nnpu_loss(s, empty, k=2.9), an_loss(s, empty))


def test_a_run_has_the_unbiased_risk_by_a_large_finite_number():
    s, z = draw(2, (0,))
    given = resolve_hparams('nnpu', 'voc', {'beta': 1e6})
    method = create('nnpu', z, epochs=1, **given)
    unbiased = nnpu_loss(s, z, k=1.5, beta=math.inf)
    torch.testing.assert_close(method(s, torch.arange(len(z))), unbiased)
    assert nnpu_loss(s, z, k=3.5) > nnpu_loss(s, z, k=3.5, beta=math.inf)


def test_reductions_are_sums_of_the_same_matrix():
    s, z = draw(3, (0, -1))
    for correction in nnpu.CORRECTIONS:
        options = {'k': 3.5, 'beta': 0.1, 'correction': correction}
        matrix = nnpu_loss(s, z, **options, reduction='none')
        for reduction, wanted in (
            ('sum', matrix.sum()),
            ('mean', matrix.mean()),
            ('sample', matrix.sum(1).mean()),
        ):
            torch.testing.assert_close(nnpu_loss(s, z, **options, reduction=reduction), wanted)


def test_it_is_told_what_epr_is_told():
    for dataset in ('voc', 'coco', 'nus', 'cub', 'coco18', 'corel5k', 'ccp', 'other'):
        told = resolve_hparams('epr', dataset, {})['k']
        assert resolve_hparams('nnpu', dataset, {})['k'] == told
    assert set(find('nnpu').search) == {'beta', 'gamma'}


def test_a_loss_of_ones_own_loop():
    s, z = draw(4, (0,))
    assert Loss('nnpu', k=2.9)(s, z) == nnpu_loss(s, z, k=2.9)
    assert doctest.testmod(nnpu) == (0, 2)


@pytest.mark.parametrize(
    ('given', 'words'),
    [
        ({'k': -1.0}, 'k must lie between 0'),
        ({'beta': -0.1}, 'beta must lie between 0'),
        ({'gamma': 1.1}, 'gamma must lie between 0 and 1, not 1.1'),
        ({'correction': 'none'}, "unknown correction 'none'; allowed: ascend, clamp"),
    ],
)
def test_wrong_values_are_named(given, words):
    with pytest.raises(SpmlError, match=words):
        nnpu_loss(torch.zeros(2, 3), torch.zeros(2, 3), **given)
    method = create('nnpu', torch.zeros(2, 3), epochs=1, **given)
    with pytest.raises(SpmlError, match=words):
        method.loss(torch.zeros(2, 3), torch.arange(2))
