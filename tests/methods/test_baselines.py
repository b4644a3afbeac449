"""The baselines: the authors' values, and what each name promises. The formulas are checked in the
notebook.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.methods import baselines as b
from spml_nb.methods.core import ViewOutputs, create, find, resolve_hparams

NAMES = [
    'an',
    'bce',
    'wbce',
    'wan',
    'dw',
    'ls',
    'nls',
    'l1',
    'l2',
    'epr',
    'entmin',
    'focal',
    'asl',
    'zlpr',
]
LOSSES = {
    'an': b.an_loss,
    'bce': b.bce_loss,
    'wbce': b.weighted_bce_loss,
    'wan': b.wan_loss,
    'dw': b.dw_loss,
    'ls': b.label_smoothing_loss,
    'nls': b.negative_label_smoothing_loss,
    'epr': b.epr_loss,
    'entmin': b.entropy_minimization_loss,
    'focal': b.focal_loss,
    'asl': b.asymmetric_loss,
    'zlpr': b.zlpr_loss,
}
ASSUMING = ['an', 'wbce', 'wan', 'dw', 'ls', 'nls', 'focal', 'asl', 'zlpr']
FAMILIES = ('voc', 'coco', 'nus', 'cub')


def labels(rows=6, classes=5, seed=0, kinds=(-1, 0, 1)):
    generator = np.random.RandomState(seed)
    return torch.tensor(3 * generator.randn(rows, classes)), torch.tensor(
        generator.choice(kinds, (rows, classes))
    )


def value_and_gradient(loss, s, z, **hparams):
    s = s.clone().requires_grad_()
    value = loss(s, z, **hparams)
    return value.detach(), torch.autograd.grad(value, s)[0]


def run(method, s, index):
    return method.loss(ViewOutputs(weak=SimpleNamespace(logits=s)), index)


GOLDEN = {
    'an': (b.an_loss, {}),
    'bce_full': (b.bce_loss, {}),
    'wan': (b.wan_loss, {}),
    'an_ls': (b.label_smoothing_loss, {'smoothing': 'smoothing'}),
    'bce_ls_full': (b.label_smoothing_loss, {'smoothing': 'smoothing'}),
    'epr': (b.epr_loss, {'k': 'k'}),
    **{
        case: (b.asymmetric_loss, {k: k for k in ('gamma_neg', 'gamma_pos', 'margin', 'reduction')})
        for case in ('asl_2_0_0.2', 'asl_4_1_0.05')
    },
}


@pytest.mark.parametrize('case', GOLDEN)
def test_golden_value_and_gradient(golden, case):
    data, (loss, wanted) = golden.case(case), GOLDEN[case]
    hparams = {k: data['hp'][v] for k, v in wanted.items()}
    value, gradient = value_and_gradient(
        loss, torch.tensor(data['logits']), torch.tensor(data['z']), **hparams
    )
    assert abs(value.item() - data['loss']) <= 1e-6 * abs(data['loss'])
    assert np.abs(gradient.numpy() - data['grad']).max() <= 1e-6 * np.abs(data['grad']).max()


@pytest.mark.parametrize('name', ASSUMING)
def test_ignoring_leaves_unknown_labels_out(name):
    s, z = labels()
    _, gradient = value_and_gradient(
        lambda *given: LOSSES[name](*given, unknown='ignore', reduction='none').sum(), s, z
    )
    assert (gradient[z == 0] == 0).all() and (gradient[z != 0] != 0).any()
    if name == 'zlpr':
        return  # not a sum over entries
    kept = LOSSES[name](s, z, unknown='ignore', reduction='none')
    torch.testing.assert_close(kept, LOSSES[name](s, z, reduction='none') * (z != 0))


@pytest.mark.parametrize('name', LOSSES)
def test_reductions_are_sums_of_the_same_matrix(name):
    s, z = labels()
    matrix = LOSSES[name](s, z, reduction='none')
    assert matrix.shape == s.shape
    for reduction, wanted in (
        ('sum', matrix.sum()),
        ('mean', matrix.mean()),
        ('sample', matrix.sum(1).mean()),
    ):
        torch.testing.assert_close(
            LOSSES[name](s, z, reduction=reduction), wanted, rtol=1e-12, atol=0
        )


@pytest.mark.parametrize('gamma', [0.0, 0.3, 1.0, 2.0])
def test_powers_below_one_have_finite_gradients(gamma):
    s = torch.tensor([[-1e4, -200.0, -1.0, 0.0, 1.0, 200.0, 1e4]])
    for z in (torch.zeros_like(s), torch.ones_like(s)):
        for loss, hparams in (
            (b.focal_loss, {'gamma': gamma}),
            (b.asymmetric_loss, {'gamma_neg': gamma, 'gamma_pos': gamma, 'margin': 0.05}),
        ):
            value, gradient = value_and_gradient(loss, s, z, **hparams)
            assert value.isfinite() and gradient.isfinite().all()


def test_gradients_survive_far_from_zero():
    x = torch.tensor([-80.0, -30.0, 21.0, 39.0, 41.0], dtype=torch.float64)
    value, gradient = value_and_gradient(lambda x, z: b.softplus(x).sum(), x, None)
    exact = [math.log1p(math.exp(v)) if v < 30 else v + math.exp(-v) for v in x.tolist()]
    np.testing.assert_allclose(value, math.fsum(exact), rtol=1e-15)
    np.testing.assert_allclose(gradient, torch.sigmoid(x), rtol=1e-15)


def test_constant_weight_changes_the_gradient_and_not_the_value():
    s, z = labels()
    value, gradient = value_and_gradient(b.asymmetric_loss, s, z)
    fixed, other = value_and_gradient(b.asymmetric_loss, s, z, constant_weight=True)
    assert value == fixed and (gradient - other).abs().max() > 0.01


def test_weighted_bce_counts_the_training_rows():
    z = torch.tensor([[1, 1, 0], [0, 0, 0], [-1, 0, 0], [0, 1, 0]])
    method = create('wbce', z, epochs=1)
    torch.testing.assert_close(method.positive_weight, torch.tensor([1.5, 1.0, 2.0]))
    torch.testing.assert_close(method.negative_weight, torch.tensor([0.5, 1.0, 0.0]))
    ignoring = create('wbce', z, epochs=1, unknown='ignore')
    torch.testing.assert_close(ignoring.positive_weight, torch.tensor([1.0, 0.0, 0.0]))
    other = create('wbce', torch.zeros_like(z), epochs=1)
    other.load_state_dict(method.state_dict())
    s, _ = labels(4, 3)
    index = torch.arange(4)
    torch.testing.assert_close(run(other, s, index), run(method, s, index))


@pytest.mark.parametrize('name', NAMES)
def test_a_method_reads_the_rows_it_is_given(name):
    _, z = labels(rows=9)
    s, index = labels(rows=3, seed=1)[0], torch.tensor([7, 0, 4])
    wanted = LOSSES[{'l1': 'an', 'l2': 'an'}.get(name, name)]
    weights = (
        dict(zip(('positive_weight', 'negative_weight'), b.class_frequency_weights(z), strict=True))
        if name == 'wbce'
        else {}
    )
    assert run(create(name, z, epochs=1), s, index) == wanted(s, z[index].to(torch.int8), **weights)


@pytest.mark.parametrize(
    ('name', 'size'), [('l1', lambda w: w.abs().sum()), ('l2', lambda w: w.square().sum())]
)
def test_penalty_is_over_the_decay_parameters_that_train(name, size):
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2))
    network[1].weight.requires_grad_(False)
    method = create(name, torch.eye(2), epochs=1, weight=0.5)
    penalty = method.penalty(network)
    torch.testing.assert_close(penalty, 0.5 * size(network[0].weight))
    penalty.backward()
    assert network[0].weight.grad.abs().min() > 0 and network[0].bias.grad is None
    assert create('an', torch.eye(2), epochs=1).penalty(network) is None


def test_epr_without_k_counts_the_observed_positives():
    s, z = labels(kinds=(0, 1))
    assert b.epr_loss(s, z) == b.epr_loss(s, z, k=float((z > 0).sum() / len(z)))


@pytest.mark.parametrize('name', NAMES)
def test_every_name_makes_a_method_for_every_family(name):
    z = torch.eye(6, 5, dtype=torch.int8)
    for family in (*FAMILIES, 'other'):
        method = create(name, z, epochs=3, **resolve_hparams(name, family, {}))
        assert run(method, torch.randn(2, 5), torch.tensor([4, 1])).isfinite()
    assert find(name).source


@pytest.mark.parametrize(
    ('attempt', 'words'),
    [
        (lambda s, z: b.an_loss(s, z, unknown='positive'), ('positive', 'negative', 'ignore')),
        (lambda s, z: b.an_loss(s, z[:1]), ('(6, 5)', '(1, 5)')),
        (lambda s, z: b.an_loss(s, z, reduction='max'), ('max', 'mean')),
        (lambda s, z: b.zlpr_loss(s, z, unknown='no'), ('no', 'ignore')),
        (lambda s, z: b.asymmetric_loss(s, z, margin=1.5), ('margin', '1.5')),
        (lambda s, z: b.focal_loss(s, z, gamma=-1.0), ('gamma', '-1')),
        (lambda s, z: b.label_smoothing_loss(s, z, smoothing=2.0), ('smoothing', '2')),
        (lambda s, z: b.wan_loss(s, z, negative_weight=-1.0), ('negative_weight', '-1')),
        (lambda s, z: b.epr_loss(s, z, k=-1.0), ('k must', '-1')),
        (lambda s, z: b.entropy_minimization_loss(s, z, weight=-1.0), ('weight', '-1')),
        (lambda s, z: create('l1', z, epochs=1, weight=-1.0), ('weight', '-1')),
        (lambda s, z: create('wbce', z, epochs=1, unknown='no'), ('no', 'ignore')),
    ],
)
def test_wrong_values_are_named(attempt, words):
    with pytest.raises(SpmlError) as error:
        attempt(*labels())
    for word in words:
        assert word in str(error.value)
