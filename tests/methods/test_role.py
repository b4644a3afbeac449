"""ROLE: the authors' values and the table of estimates. The formula is checked in the notebook."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.methods.core import ViewOutputs, create, resolve_hparams
from spml_nb.methods.role import initial_estimates, role_loss


def problem(seed=0, rows=5, classes=4):
    generator = np.random.RandomState(seed)
    s, r = torch.tensor(3 * generator.randn(2, rows, classes))
    return s, r, torch.tensor(generator.choice((-1, 0, 1), (rows, classes)))


def gradients(loss, s, r, z, k):
    s, r = s.clone().requires_grad_(), r.clone().requires_grad_()
    value = loss(s, r, z, k)
    return value.detach(), *torch.autograd.grad(value, (s, r))


def run(method, s, index):
    return method.loss(ViewOutputs(weak=SimpleNamespace(logits=s)), index)


def test_golden_value_and_both_gradients(golden):
    data = golden.case('role')
    arrays = (torch.tensor(data[name]) for name in ('logits', 'estimate_logits', 'z'))
    value, ds, dr = gradients(role_loss, *arrays, data['hp']['k'])
    for ours, theirs in (
        (value, data['loss']),
        (ds, data['grad_logits']),
        (dr, data['grad_estimate']),
    ):
        assert np.abs(ours.numpy() - theirs).max() <= 1e-6 * np.abs(theirs).max()


def test_network_and_estimates_may_change_places():
    s, r, z = problem()
    value, ds, dr = gradients(role_loss, s, r, z, 1.5)
    swapped, es, er = gradients(role_loss, r, s, z, 1.5)
    torch.testing.assert_close((value, ds, dr), (swapped, er, es), rtol=1e-12, atol=1e-15)


def test_reductions_are_sums_of_the_same_matrix():
    s, r, z = problem()
    matrix = role_loss(s, r, z, 2.0, reduction='none')
    for reduction, wanted in (
        ('sum', matrix.sum()),
        ('mean', matrix.mean()),
        ('sample', matrix.sum(1).mean()),
    ):
        torch.testing.assert_close(role_loss(s, r, z, 2.0, reduction=reduction), wanted)


def test_estimates_start_as_the_paper_says():
    torch.manual_seed(0)
    z = torch.zeros(200, 50, dtype=torch.int8)
    z[:, 0], z[:, 1] = 1, -1
    q = initial_estimates(z).sigmoid()
    torch.testing.assert_close(q[:, 0], torch.full((200,), 0.995))
    torch.testing.assert_close(q[:, 1], torch.full((200,), 0.005))
    unknown = initial_estimates(z)[:, 2:]
    edge = math.log(0.6 / 0.4)
    assert (
        unknown.abs().max() <= edge and unknown.max() > 0.99 * edge and unknown.min() < -0.99 * edge
    )
    assert unknown.mean().abs() < 0.02 and abs(unknown.std() - 2 * edge / 12**0.5) < 0.01


def test_only_the_rows_of_the_batch_have_a_gradient():
    method = create('role', torch.eye(6, 3), epochs=1, k=1.0)
    run(method, torch.randn(2, 3), torch.tensor([4, 1])).backward()
    assert method.estimate.grad.abs().sum(1).gt(0).tolist() == [
        False,
        True,
        False,
        False,
        True,
        False,
    ]


def test_the_tables_group_has_its_own_rate_and_no_decay():
    method = create('role', torch.eye(6, 3), epochs=1)
    (group,) = method.parameter_groups(1e-4)
    assert (
        group['params'] == [method.estimate]
        and group['lr'] == pytest.approx(1e-3)
        and group['weight_decay'] == 0
    )
    assert create('role', torch.eye(6, 3), epochs=1, estimate_lr=2.0).parameter_groups(1e-4)[0][
        'lr'
    ] == pytest.approx(2e-4)


def test_a_resumed_run_equals_an_uninterrupted_one():
    s = torch.randn(10, 2, 3, generator=torch.manual_seed(0))

    def steps(method, optimiser, numbers):
        for n in numbers:
            optimiser.zero_grad()
            run(method, s[n], torch.tensor([n % 6, (n + 1) % 6])).backward()
            optimiser.step()

    def start(seed):
        torch.manual_seed(seed)
        method = create('role', torch.eye(6, 3), epochs=1)
        return method, torch.optim.Adam(method.parameter_groups(0.01))

    whole, optimiser = start(0)
    steps(whole, optimiser, range(10))
    part, optimiser = start(0)
    steps(part, optimiser, range(5))
    resumed, second = start(1)
    resumed.load_state_dict(part.state_dict()), second.load_state_dict(optimiser.state_dict())
    steps(resumed, second, range(5, 10))
    assert torch.equal(resumed.estimate, whole.estimate)


def test_values_are_the_papers_and_else_the_observed_positives():
    assert [
        resolve_hparams('role', family, {})['k'] for family in ('voc', 'coco', 'nus', 'cub')
    ] == [1.5, 2.9, 1.9, 31.4]
    assert create('role', torch.tensor([[1, 1, 0], [0, 1, 0]]), epochs=1).k == 1.5


@pytest.mark.parametrize(
    ('attempt', 'word'),
    [
        (lambda s, r, z: role_loss(s, r[:1], z), '(1, 4)'),
        (lambda s, r, z: create('role', z, epochs=1, k=-1.0), '-1'),
        (lambda s, r, z: create('role', z, epochs=1, estimate_lr=-1.0), 'estimate_lr'),
        (lambda s, r, z: role_loss(s, r, z, reduction='max'), 'max'),
    ],
)
def test_wrong_values_are_named(attempt, word):
    with pytest.raises(SpmlError) as error:
        attempt(*problem())
    assert word in str(error.value)
