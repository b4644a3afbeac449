"""Group consistency: what a run keeps of its groups. The formula is checked in the notebook."""

import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.methods.baselines import an_loss
from spml_nb.methods.core import create, find, hyper_parameters
from spml_nb.methods.em_apl import em_loss
from spml_nb.methods.group_consistency import (
    group_consistency_loss,
    initial_means,
    move_means,
)

GROUP = torch.tensor([0, 1, 1, 0, 2])
Z = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, -1, 0], [0, 0, 1]])


def begun(group=GROUP, **hparams):
    method = create('group_consistency', Z, epochs=2, **hparams)
    method.take({'group': group})
    return method


def test_a_label_of_one_photo_is_expected_of_its_whole_group_and_of_no_other():
    means = initial_means(Z, GROUP, fill=0.25)
    assert means.tolist() == [[1, 0.25, 0.25], [0.25, 1, 1], [0.25, 0.25, 1]]
    torch.manual_seed(0)
    drawn = initial_means(Z, GROUP)
    assert torch.equal(drawn == 1, means == 1)
    rest = drawn[drawn < 1]
    assert len(rest.unique()) == 5 and rest.min() > 0.4 and rest.max() < 0.6


def test_photos_of_one_group_are_so_many_steps_towards_their_mean():
    means = torch.full((3, 2), 0.5)
    p = torch.tensor([[0.1, 0.9], [0.3, 0.9], [0.0, 1.0]])
    wanted = means.clone()
    for _ in range(2):
        wanted[1] += 0.2 * (torch.tensor([0.2, 0.9]) - wanted[1])
    wanted[2] += 0.2 * (p[2] - wanted[2])
    move_means(means, torch.tensor([1, 1, 2]), p, 0.2)
    torch.testing.assert_close(means, wanted)
    assert means[0].tolist() == [0.5, 0.5]


def test_the_step_pulls_towards_the_means_before_it():
    method = begun(weight=0.5, rate=0.3, fill=0.5)
    index = torch.tensor([3, 4])
    s = torch.randn(2, 3, generator=torch.manual_seed(1), requires_grad=True)
    before = method.means.clone()
    value = method.loss(s, index)
    wanted = an_loss(s, Z[index]) + 0.5 * group_consistency_loss(s, before[GROUP[index]])
    torch.testing.assert_close(value, wanted)
    slope, other = (torch.autograd.grad(loss, s)[0] for loss in (value, wanted))
    torch.testing.assert_close(slope, other)
    assert (method.means[[0, 2]] != before[[0, 2]]).any(1).all()
    assert torch.equal(method.means[1], before[1])
    frozen = begun(weight=0.5, rate=0.0, fill=0.5)
    frozen.loss(s, index)
    assert torch.equal(frozen.means, before)


def test_it_is_added_to_any_loss_of_one_batch():
    s, index = torch.randn(5, 3, generator=torch.manual_seed(2)), torch.arange(5)
    value = begun(base='em', weight=0.0).loss(s, index)
    torch.testing.assert_close(value, em_loss(s, Z))
    for base in ('role', 'em_apl', 'hml', 'group_consistency'):
        with pytest.raises(SpmlError, match='is more than a loss of one batch'):
            create('group_consistency', Z, epochs=1, base=base)


def test_a_finished_run_is_opened_without_its_groups_and_one_that_goes_on_keeps_its_means():
    method = begun(rate=0.5)
    method.loss(torch.randn(5, 3), torch.arange(5))
    saved = method.state_dict()
    assert set(saved) == {'z', 'means'}
    alone = create('group_consistency', Z, epochs=2)
    alone.load_state_dict(saved)
    assert torch.equal(alone.means, method.means)
    resumed = begun()
    resumed.load_state_dict(saved)
    assert torch.equal(resumed.means, method.means)


def test_what_is_out_of_range_is_named():
    assert {'base', 'weight', 'rate', 'fill'} < set(hyper_parameters(find('group_consistency')))
    for wrong in ({'weight': -1.0}, {'rate': 1.5}, {'fill': -0.1}):
        (name,) = wrong
        with pytest.raises(SpmlError, match=f'{name} must lie between'):
            create('group_consistency', Z, epochs=1, **wrong)
    with pytest.raises(SpmlError, match='must have the same shape'):
        group_consistency_loss(torch.zeros(2, 3), torch.zeros(2, 4))
