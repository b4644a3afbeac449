"""Pseudo-labels from outside scores: which labels they make, and the loss on these. The formula is
checked in the notebook.
"""

import math
from types import SimpleNamespace

import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.methods.baselines import an_loss, bce_loss
from spml_nb.methods.core import ViewOutputs, create, resolve_hparams
from spml_nb.methods.pseudo_scores import outside_labels, pseudo_scores_loss


def by_hand(s, z, q, t):
    "In Python's floats."
    total = 0.0
    for x, label, score in zip(
        s.flatten().tolist(), z.flatten().tolist(), q.flatten().tolist(), strict=True
    ):
        p = 1 / (1 + math.exp(-x))
        if label == 0 and score >= t:
            label = 1
        elif label == 0 and score <= 1 - t:
            label = -1
        total -= math.log(p) if label > 0 else math.log(1 - p) if label < 0 else 0.0
    return total / s.numel()


@pytest.mark.parametrize('t', [0.55, 0.8, 0.95])
def test_the_method_takes_the_scores_of_the_batchs_images(t):
    g = torch.Generator().manual_seed(3)
    s = torch.randn(7, 5, dtype=torch.float64, generator=g)
    z = torch.randint(-1, 2, (7, 5), generator=g)
    q = torch.rand(7, 5, generator=g)
    method, index = create('pseudo_scores', z, epochs=2, threshold=t), torch.tensor([5, 1, 6])
    method.take({'scores': q})
    value = method.loss(ViewOutputs(weak=SimpleNamespace(logits=s[:3])), index)
    assert value.item() == pytest.approx(by_hand(s[:3], z[index], q[index], t), rel=1e-12)
    assert set(method.state_dict()) == {'z'} and torch.equal(method.z, z.to(torch.int8))


@pytest.mark.parametrize('kind', [torch.int8, torch.int64, torch.float16, torch.float64])
def test_labels_of_every_type_have_one_loss(kind):
    s = torch.tensor([[4.0, -3.0, -5.0, 0.5]])
    z = torch.tensor([[1, 0, 0, 0]])
    q = torch.tensor([[0.0, 0.01, 0.02, 0.5]])
    assert outside_labels(z.to(kind), q).tolist() == [[1, -1, -1, 0]]
    assert pseudo_scores_loss(s, z.to(kind), q).item() == pytest.approx(
        by_hand(s, z, q, 0.9), rel=1e-6
    )


@pytest.mark.silent('C6')
@pytest.mark.parametrize('kind', [torch.bool, torch.uint8])
@pytest.mark.parametrize(
    'take', [outside_labels, lambda z, q: pseudo_scores_loss(q, z, q)], ids=['labels', 'loss']
)
def test_a_type_that_cannot_hold_a_confident_negative_is_refused(kind, take):
    with pytest.raises(SpmlError, match=f'{kind}, which cannot hold −1'):
        take(torch.tensor([[1, 0]]).to(kind), torch.tensor([[0.0, 0.5]]))


def test_known_labels_stay_and_a_half_says_nothing():
    z = torch.tensor([[1, -1, 0, 0, 0, 0, 0]])
    q = torch.tensor([[0.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]])
    assert outside_labels(z, q, 0.75).tolist() == [[1, -1, 1, 1, 0, -1, -1]]
    assert outside_labels(z, q, 1.0).tolist() == [[1, -1, 1, 0, 0, 0, -1]] and outside_labels(
        z, torch.full((1, 7), 0.5), 0.6
    ).tolist() == [[1, -1, 0, 0, 0, 0, 0]]


def test_scores_of_nothing_are_bce_and_of_zeros_an():
    s, z = torch.randn(6, 5), torch.eye(6, 5)
    assert torch.equal(
        pseudo_scores_loss(s, z, torch.full((6, 5), 0.5)), bce_loss(s, z, unknown='ignore')
    ) and torch.equal(pseudo_scores_loss(s, z, torch.zeros(6, 5)), an_loss(s, z))


def test_wrong_input_is_named():
    s, z = torch.randn(6, 5), torch.eye(6, 5)
    with pytest.raises(SpmlError, match='threshold must lie between 0.5 and 1, not 0.2'):
        create('pseudo_scores', z, epochs=1, threshold=0.2)
    with pytest.raises(SpmlError, match=r'scores \(6, 4\) and observed labels \(6, 5\)'):
        pseudo_scores_loss(s, z, torch.zeros(6, 4))
    with pytest.raises(
        SpmlError,
        match=(
            'the method needs scores of each training image, and the file of side information '
            'holds none'
        ),
    ):
        create('pseudo_scores', z, epochs=1).take({})
    assert resolve_hparams('pseudo_scores', 'coco', {}) == {'threshold': 0.9, 'reduction': 'mean'}
