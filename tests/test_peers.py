"""The numbers of other libraries under other names: nbs/losses.ipynb lists the pairs."""

import inspect

import numpy as np
import pytest
import torch

from spml_nb.losses import asymmetric_loss, focal_loss
from spml_nb.metrics import mean_average_precision


@pytest.fixture
def batch():
    random = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(40, 7, generator=random)
    return logits, torch.where(torch.rand(40, 7, generator=random) < 0.3, 1, -1).to(torch.int8)


@pytest.mark.parametrize('constant_weight', [False, True])
def test_asymmetric_loss_is_timms(batch, constant_weight):
    peer = pytest.importorskip('timm.loss').AsymmetricLossMultiLabel
    arguments = {'gamma_neg': 4, 'gamma_pos': 1, 'clip': 0.05}
    arguments['disable_torch_grad_focal_loss'] = constant_weight
    if 'reduction' in inspect.signature(peer).parameters:  # older ones always sum
        arguments['reduction'] = 'sum'
    (logits, z), slopes = batch, []
    ours = {'gamma_neg': 4, 'gamma_pos': 1, 'margin': 0.05, 'constant_weight': constant_weight}
    for loss in (
        lambda s: asymmetric_loss(s, z, **ours),
        lambda s: peer(**arguments)(s, (z > 0).float()),
    ):
        s = logits.clone().requires_grad_()
        value = loss(s)
        slopes.append((value, *torch.autograd.grad(value, s)))
    torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-5)


def test_focal_loss_is_torchvisions(batch):
    peer = pytest.importorskip('torchvision.ops').sigmoid_focal_loss
    logits, z = batch
    theirs = peer(logits, (z > 0).float(), alpha=0.6, gamma=1.5)
    torch.testing.assert_close(
        focal_loss(logits, z, alpha=0.6, gamma=1.5, reduction='none'), theirs
    )


def test_map_is_that_of_torchmetrics(batch):
    classification = pytest.importorskip('torchmetrics.classification')
    logits, z = batch
    peer = classification.MultilabelAveragePrecision(num_labels=7, average='macro')
    theirs = 100 * peer(logits.sigmoid(), (z > 0).long()).item()
    assert np.isclose(mean_average_precision(logits, z), theirs, rtol=1e-5)
