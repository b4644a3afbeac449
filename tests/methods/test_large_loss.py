"""Large loss: the authors' values, ties, and labels that are corrected for good. The formula is
checked in the notebook.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.methods.core import ViewOutputs, create
from spml_nb.methods.large_loss import SCHEMES, large_loss, large_loss_mask
from spml_nb.runs.config import Config, resolve

NAMES = {'LL-R': 'llr', 'LL-Ct': 'llct', 'LL-Cp': 'llcp'}


def value_and_gradient(loss, s, *rest, **hparams):
    s = s.clone().requires_grad_()
    value = loss(s, *rest, **hparams)
    return value.detach(), torch.autograd.grad(value, s)[0]


def run(method, s, index):
    return method.loss(ViewOutputs(weak=SimpleNamespace(logits=s)), index)


def entries(mask):
    return {tuple(e) for e in mask.nonzero().tolist()}


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.parametrize('epoch', [1, 3])
def test_golden_through_the_method(golden, name, epoch):
    data = golden.case(f'{name}_epoch{epoch}')
    z = torch.tensor(data['z'])
    method = create(NAMES[name], z, epochs=5, delta=data['hp']['delta_rel'])
    method.start_epoch(epoch)
    value, gradient = value_and_gradient(
        lambda s: run(method, s, torch.arange(len(z))), torch.tensor(data['logits'])
    )
    assert abs(value.item() - data['loss']) <= 1e-6 * abs(data['loss'])
    assert np.abs(gradient.numpy() - data['grad']).max() <= 1e-6 * np.abs(data['grad']).max()
    edited = set(zip(*data['edited'].tolist(), strict=True))
    assert (
        entries(large_loss_mask(torch.tensor(data['logits']), z, 'permanent', method.fraction))
        == edited
    )
    assert entries((method.z == 1) & (z != 1)) == (edited if name == 'LL-Cp' else set())


def test_ties_with_the_kth_value_change_the_loss_and_no_label():
    s = torch.tensor([[3.0, 2.0, 2.0, 2.0], [0.0, 5.0, 1.0, -1.0]])
    z = torch.tensor([[0, 0, 0, 0], [0, 1, 0, 0]])
    assert entries(large_loss_mask(s, z, 'reject', 2 / 8)) == {(0, 0), (0, 1), (0, 2), (0, 3)}
    assert entries(large_loss_mask(s, z, 'permanent', 2 / 8)) == {(0, 0)}


def test_k_is_rounded_up_but_not_by_rounding_errors():
    s, z = torch.arange(480.0).reshape(6, 80), torch.zeros(6, 80)
    assert 480 * (0.1 * 3) > 144  # in floating point
    assert large_loss_mask(s, z, 'reject', 0.1 * 3).sum() == 144
    assert large_loss_mask(s, z, 'reject', 144.2 / 480).sum() == 145


@pytest.mark.parametrize('scheme', SCHEMES)
def test_known_labels_are_never_touched(scheme):
    s = torch.tensor([[9.0, 8.0, 7.0, -5.0]])
    mask = large_loss_mask(s, torch.tensor([[1, -1, 0, 0]]), scheme, 1.0)
    assert entries(mask) == ({(0, 2)} if scheme == 'permanent' else {(0, 2), (0, 3)})
    assert not large_loss_mask(s, torch.tensor([[1, -1, 1, -1]]), scheme, 1.0).any()


def test_the_recipe_is_a_head_at_ten_times_the_rate():
    for name in NAMES.values():
        assert resolve(Config(loss=name)).head_lr_multiplier == 10
    assert resolve(Config(loss='an')).head_lr_multiplier == 1


def test_the_share_grows_for_two_and_is_constant_for_the_third():
    for name, wanted in (
        ('llr', [0, 0.25, 0.5, 0.75, 1, 1]),
        ('llct', [0, 0.25, 0.5, 0.75, 1, 1]),
        ('llcp', [0, 0.25, 0.25, 0.25, 0.25, 0.25]),
    ):
        method, got = create(name, torch.eye(3), epochs=6, delta=0.25), []
        for e in range(1, 7):
            method.start_epoch(e)
            got.append(method.fraction)
        assert got == wanted


def test_permanent_corrections_reach_only_the_batchs_rows_and_the_checkpoint():
    z = torch.zeros(5, 4, dtype=torch.int8)
    method = create('llcp', z, epochs=3, delta=0.5)
    method.start_epoch(1)
    s = torch.tensor([[4.0, 3.0, 2.0, 1.0], [0.0, -1.0, -2.0, -3.0]])
    run(method, s, torch.tensor([3, 1]))
    assert not method.z.any()
    method.start_epoch(2)
    run(method, s, torch.tensor([3, 1]))
    assert entries(method.z == 1) == {(3, 0), (3, 1), (3, 2)} and method.z.dtype == torch.int8
    resumed = create('llcp', z, epochs=3, delta=0.5)
    resumed.load_state_dict(method.state_dict())
    resumed.start_epoch(2)
    assert run(resumed, s, torch.tensor([3, 1])) == run(method, s, torch.tensor([3, 1]))
    assert not z.any()


def test_permanent_corrections_reach_an_image_twice_in_a_batch_and_are_made_in_training():
    method = create('llcp', torch.zeros(5, 4, dtype=torch.int8), epochs=3, delta=0.5)
    method.start_epoch(2)
    s, index = torch.tensor([[4.0, 3.0, 2.0, 1.0], [0.0, -1.0, -2.0, -3.0]]), torch.tensor([3, 3])
    run(method.eval(), s, index)
    assert not method.z.any()
    run(method.train(), s, index)
    assert entries(method.z == 1) == {(3, 0), (3, 1), (3, 2)}


def since(method, s, epochs=3):
    "`acts_since` after each epoch of one batch."
    seen = []
    for e in range(1, epochs + 1):
        method.start_epoch(e)
        run(method, s, torch.arange(len(s)))
        seen.append(int(method.acts_since))
    return seen


def test_edits_act_from_the_second_epoch_on_and_for_the_third_from_the_first_written_label():
    z, s = torch.eye(5, 4), torch.randn(5, 4, generator=torch.manual_seed(0))
    for name in ('llr', 'llct'):
        assert since(create(name, z, epochs=3, delta=0.05), s) == [-1, 2, 2]
        assert (
            since(create(name, z, epochs=3, delta=0.0), s)
            == since(create(name, 2 * z - 1, epochs=3, delta=0.05), s)
            == [-1, -1, -1]
        )
    assert since(create('llcp', z, epochs=3, delta=0.1), s) == [-1, 2, 2]
    assert since(create('llcp', z, epochs=3, delta=0.05), s) == [
        -1,
        -1,
        -1,
    ]  # k = 1: nothing lies strictly above the largest
    late = create('llcp', z, epochs=4, delta=0.1)
    assert since(late, torch.zeros(5, 4), epochs=3) == [-1, -1, -1]  # ties are not written
    late.start_epoch(4)
    run(late, s, torch.arange(5))
    assert late.acts_since == 4


@pytest.mark.parametrize('name', ['llr', 'llct'])
def test_temporary_schemes_leave_the_labels_alone(name):
    method = create(name, torch.eye(5, 4), epochs=3, delta=0.5)
    method.start_epoch(3)
    run(method, torch.randn(5, 4), torch.arange(5))
    assert torch.equal(method.z, torch.eye(5, 4).to(torch.int8))


@pytest.mark.parametrize(
    ('attempt', 'words'),
    [
        (lambda s, z: large_loss(s, z, scheme='corect'), ('corect', "Did you mean 'correct'?")),
        (lambda s, z: large_loss(s, z, fraction=1.5), ('fraction', '1.5')),
        (lambda s, z: large_loss_mask(s, z, 'drop', 0.0), ('drop', 'permanent')),
        (lambda s, z: create('llr', z, epochs=1, delta=-0.1), ('delta', '-0.1')),
    ],
)
def test_wrong_values_are_named(attempt, words):
    with pytest.raises(SpmlError) as error:
        attempt(torch.zeros(2, 3), torch.zeros(2, 3))
    for word in words:
        assert word in str(error.value)
