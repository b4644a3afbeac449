"""EPR with a count for each image: the loss of its own images and counts, whatever the batch. The
formula is checked in the notebook.
"""

import math
from types import SimpleNamespace

import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.methods.baselines import epr_loss
from spml_nb.methods.core import ViewOutputs, create, resolve_hparams
from spml_nb.methods.epr_count import epr_count_loss


def by_hand(s, z, count):
    "In Python's floats."
    total, (B, C) = 0.0, s.shape
    for i in range(B):
        p = [1 / (1 + math.exp(-x)) for x in s[i].tolist()]
        entries = [
            -math.log(q) if label > 0 else -math.log(1 - q) if label < 0 else 0.0
            for q, label in zip(p, z[i].tolist(), strict=True)
        ]
        total += sum(entries) / (B * C) + ((sum(p) - float(count[i])) / C) ** 2 / B
    return total


def drawn(seed, B=7, C=5):
    g = torch.Generator().manual_seed(seed)
    return (
        torch.randn(B, C, dtype=torch.float64, generator=g),
        torch.randint(-1, 2, (B, C), generator=g),
        C * torch.rand(B, dtype=torch.float64, generator=g),
    )


@pytest.mark.parametrize('seed', range(4))
def test_the_method_takes_the_counts_of_the_batchs_images(seed):
    s, z, count = drawn(seed)
    method, index = create('epr_count', z, epochs=2), torch.tensor([5, 1, 6])
    method.take({'count': count, 'scores': torch.ones(7, 5)})  # what it does not need is left
    value = method.loss(ViewOutputs(weak=SimpleNamespace(logits=s[:3])), index)
    assert value.item() == pytest.approx(by_hand(s[:3], z[index], count[index]), rel=1e-12)
    assert set(dict(method.named_buffers())) == {'z', 'side_count'} and set(
        method.state_dict()
    ) == {'z'}


def test_it_is_epr_for_one_image_and_never_below_it():
    for seed in range(4):
        s, z, count = drawn(seed)
        one = epr_count_loss(s[:1], z[:1], count[:1])
        torch.testing.assert_close(one, epr_loss(s[:1], z[:1], k=count[0].item()))
        assert epr_count_loss(s, z, count) >= epr_loss(s, z, k=count.mean().item())


def test_the_slope_leads_each_image_to_its_own_count():
    s = torch.zeros(2, 4, requires_grad=True)  # two expected positives each
    (slope,) = torch.autograd.grad(
        epr_count_loss(s, torch.zeros(2, 4), torch.tensor([1.0, 3.0])), s
    )
    assert (slope[0] > 0).all() and torch.equal(slope[0], -slope[1])


def test_wrong_input_is_named():
    s, z, count = drawn(0)
    for wrong in (count[:3], count[:, None], count[0]):
        with pytest.raises(SpmlError, match='must be one number for each image'):
            epr_count_loss(s, z, wrong)
    with pytest.raises(
        SpmlError,
        match=(
            'the method needs count of each training image, and the file of side information '
            'holds scores'
        ),
    ):
        create('epr_count', z, epochs=1).take({'scores': s})
    assert resolve_hparams('epr_count', 'voc', {}) == {'reduction': 'mean'}
