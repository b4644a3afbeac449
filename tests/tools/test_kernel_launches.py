"""The kernels that losses launch on a GPU, forward and backward, as counted without one."""

import pytest
import torch

from spml_nb import losses
from spml_nb.tools.kernel_launches import Launches, count_launches


def batch(B=16, C=80):
    z = torch.zeros(B, C, dtype=torch.int8)
    z[torch.arange(B), torch.arange(B)] = 1
    return torch.randn(B, C, requires_grad=True), z


@pytest.mark.parametrize(
    ('loss', 'most'),
    [
        (losses.an_loss, 10),
        (losses.em_loss, 20),
        (losses.two_way_loss, 45),
        (losses.zlpr_loss, 30),
        (losses.opml_loss, 30),
        (losses.asymmetric_loss, 25),
        (losses.gr_loss, 40),
    ],
)
def test_a_loss_launches_few_kernels(loss, most):
    assert count_launches(loss, *batch()) <= most


def test_kernels_are_counted_and_views_are_not():
    x = torch.randn(3, 4, device='meta')
    with Launches() as launches:
        x.T[:2].exp() + torch.empty(2, 3, device='meta')
    assert launches.count == 2
    with Launches() as launches:
        x.logsumexp(1)
    assert launches.count == 9
