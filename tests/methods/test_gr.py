"""GR loss: the authors' values, the formula in loops, and its schedule."""
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.methods.baselines import an_loss, bce_loss
from spml_nb.methods.core import ViewOutputs, create, resolve_hparams
from spml_nb.methods.gr import generalised_cross_entropy, gr_loss


def problem(seed=0):
    generator = np.random.RandomState(seed)
    return torch.tensor(3 * generator.randn(6, 5)), torch.tensor(generator.choice((-1, 0, 1), (6, 5)))


def value_and_gradient(loss, s, z, **hparams):
    s = s.clone().requires_grad_()
    value = loss(s, z, **hparams)
    return value.detach(), torch.autograd.grad(value, s)[0]


def test_golden_value_and_gradient(golden):
    data = golden.case('gr')
    value, gradient = value_and_gradient(gr_loss, torch.tensor(data['logits']), torch.tensor(data['z']), **data['hp'])
    assert abs(value.item() - data['loss']) <= 1e-6 * abs(data['loss'])
    assert np.abs(gradient.numpy() - data['grad']).max() <= 1e-6 * np.abs(data['grad']).max()


def loops(s, z, w, b, mu, sigma, q2, q3):
    total = 0.
    for i in range(len(s)):
        for c in range(s.shape[1]):
            p = s[i, c].sigmoid()
            K, V = 1 / (1 + math.exp(-(w * p.item() + b))), math.exp(-(p.item() - mu) ** 2 / (2 * sigma ** 2))
            unknown = V * (K * (1 - p ** q2) / q2 + (1 - K) * (1 - (1 - p) ** q3) / q3)
            total = total + {1: -p.log(), -1: -(1 - p).log(), 0: unknown}[int(z[i, c])]
    return total / s.numel()


@pytest.mark.parametrize('hparams', [(2., -2., 0.8, 0.5, 0.01, 1.), (10., -8., 0.8, 0.5, 0.01, 1.), (0., -2., 0.5, 2., 0.7, 0.3)])
def test_equals_the_formula_in_loops(hparams):
    hparams = dict(zip(('w', 'b', 'mu', 'sigma', 'q2', 'q3'), hparams, strict=True))
    fast, slow = (value_and_gradient(f, *problem(), **hparams) for f in (gr_loss, loops))
    for one, other in zip(fast, slow, strict=True): assert (one - other).abs().max() <= 1e-9 * other.abs().max()


def test_special_cases():
    s, z = problem()
    flat = {'w': 0., 'mu': 0., 'sigma': 1e12}
    for one, other in ((gr_loss(s, z, **flat, b=-1e4, q3=0.), an_loss(s, z)), (gr_loss(s, z, mu=9., sigma=1e-9), bce_loss(s, z)),
                       (gr_loss(s, z, **flat, b=1e4, q2=0.), bce_loss(s, torch.where(z == 0, 1, z)))):
        assert abs(one - other) <= 1e-12
    log_p = torch.tensor([-3., -0.1, 0.], dtype=torch.float64)
    torch.testing.assert_close(generalised_cross_entropy(log_p, 1.), 1 - log_p.exp())
    torch.testing.assert_close(generalised_cross_entropy(log_p, 1e-9), generalised_cross_entropy(log_p, 0.), rtol=1e-8, atol=1e-12)


def test_reductions_are_sums_of_the_same_matrix():
    s, z = problem()
    matrix = gr_loss(s, z, reduction='none')
    for reduction, wanted in (('sum', matrix.sum()), ('mean', matrix.mean()), ('sample', matrix.sum(1).mean())):
        torch.testing.assert_close(gr_loss(s, z, reduction=reduction), wanted)


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize('hparams', [{}, {'w': 10., 'b': -8.}, {'q2': 0., 'q3': 0.}, {'q2': 1.}])
def test_finite_everywhere(dtype, hparams):
    s = torch.tensor([-1e4, -30, 0, 30, 1e4]).to(dtype)[:, None].expand(5, 3)
    for z in (torch.zeros(5, 3), torch.ones(5, 3), -torch.ones(5, 3), torch.eye(5, 3)):
        for rows in (5, 1):
            value, gradient = value_and_gradient(gr_loss, s[:rows], z[:rows], **hparams)
            assert value.isfinite() and gradient.isfinite().all() and not (gradient[z[:rows] > 0] > 0).any()


@pytest.mark.parametrize(('family', 'ends'), [('voc', ((0, 2), (-2, -2))), ('coco', ((0, 10), (-2, -8))), ('other', ((0, 2), (-2, -2)))])
def test_the_schedule_runs_from_the_first_to_the_last_value(family, ends):
    z = torch.eye(4, 5)
    method = create('gr', z, epochs=8, **resolve_hparams('gr', family, {}))
    for e, t in ((1, 0.), (4, 3 / 7), (8, 1.), (9, 1.)):
        method.start_epoch(e)
        for name, (first, last) in zip(('w', 'b', 'mu', 'sigma'), (*ends, (0.5, 0.8), (2., 0.5)), strict=True):
            assert method.now[name] == pytest.approx(first + t * (last - first))
    assert (method.fixed['q2'], method.fixed['q3']) == (0.01, 1.)


def test_the_method_uses_the_epochs_values_and_its_rows():
    z = torch.eye(4, 5, dtype=torch.int8)
    method, s = create('gr', z, epochs=3, w=[0, 4]), torch.randn(2, 5, generator=torch.manual_seed(0))
    method.start_epoch(2)
    got = method.loss(ViewOutputs(weak=SimpleNamespace(logits=s)), torch.tensor([3, 0]))
    torch.testing.assert_close(got, gr_loss(s, z[[3, 0]], w=2., b=-2., mu=0.65, sigma=1.25))
    create('gr', z, epochs=1).start_epoch(1)


@pytest.mark.parametrize(('attempt', 'word'), [
    (lambda s, z: gr_loss(s, z, sigma=0.), 'sigma'), (lambda s, z: gr_loss(s, z, q2=2.), '2'), (lambda s, z: create('gr', z, epochs=1, mu=[1]), 'mu'),
    (lambda s, z: create('gr', z, epochs=1, w=[0, 'two']), 'two'), (lambda s, z: create('gr', z, epochs=1, w=3), 'w'),
    (lambda s, z: gr_loss(s, z[:1]), '(1, 5)')])
def test_wrong_values_are_named(attempt, word):
    with pytest.raises(SpmlError) as error: attempt(*problem())
    assert word in str(error.value)
