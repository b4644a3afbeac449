"""Hill loss: the authors' values, and what it does to a label that may be missing. The formula is
checked in the notebook.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.methods.core import create, resolve_hparams
from spml_nb.methods.hill import hill_loss


def value_and_gradient(s, z, **hparams):
    s = s.clone().requires_grad_()
    value = hill_loss(s, z, **hparams)
    return value.detach(), torch.autograd.grad(value, s)[0]


@pytest.mark.parametrize(('case', 'margin'), [('hill', 1.0), ('hill_0.5', 0.5)])
def test_golden_value_and_gradient(case, margin):
    with np.load(Path(__file__).parents[1] / 'hill_splc.npz') as golden:
        value, gradient = value_and_gradient(
            torch.tensor(golden['hill/logits']), torch.tensor(golden['hill/z']), margin=margin
        )
        assert abs(value.item() - golden[f'{case}/loss']) <= 1e-6 * golden[f'{case}/loss']
        assert (
            np.abs(gradient.numpy() - golden[f'{case}/grad']).max()
            <= 1e-6 * np.abs(golden[f'{case}/grad']).max()
        )


def test_an_unknown_label_is_pushed_most_when_undecided_and_a_known_one_is_not_forgiven():
    s = torch.linspace(-8, 8, 161, dtype=torch.float64)[:, None]
    unknown, negative = (
        value_and_gradient(s, torch.full_like(s, label))[1] for label in (0.0, -1.0)
    )
    assert (
        unknown.min() >= 0 and abs(s[unknown.argmax()]) < 1e-9 and unknown[-1] < 1e-5
    )  # λ = 3/2: p²(1 − p)²·3
    torch.testing.assert_close(negative, s.sigmoid())
    below = value_and_gradient(s, torch.zeros_like(s), lam=1.0)[1]
    assert torch.equal(below < -1e-12, (s.sigmoid() > 2 / 3) & (below.abs() > 1e-12))


def test_reductions_are_sums_of_the_same_matrix():
    s, z = torch.randn(6, 5, dtype=torch.float64), torch.randint(-1, 2, (6, 5))
    matrix = hill_loss(s, z, reduction='none')
    for reduction, wanted in (
        ('sum', matrix.sum()),
        ('mean', matrix.mean()),
        ('sample', matrix.sum(1).mean()),
    ):
        torch.testing.assert_close(hill_loss(s, z, reduction=reduction), wanted)


def test_the_published_values_are_used_on_every_data_set():
    for family in ('voc', 'coco', 'nus', 'cub', 'other'):
        assert resolve_hparams('hill', family, {}) == {
            'lam': 1.5,
            'margin': 1.0,
            'gamma': 2.0,
            'reduction': 'sum',
        }


@pytest.mark.parametrize(
    ('attempt', 'word'),
    [
        (lambda s, z: hill_loss(s, z, lam=-1.0), 'lam must lie between 0'),
        (lambda s, z: hill_loss(s, z, gamma=-1.0), 'gamma'),
        (lambda s, z: hill_loss(s, z[:1]), r'\(1, 3\)'),
        (lambda s, z: create('hill', z, epochs=1, lambda_=1.0), 'lambda_'),
    ],
)
def test_wrong_values_are_named(attempt, word):
    with pytest.raises(SpmlError, match=word):
        attempt(torch.zeros(2, 3), torch.zeros(2, 3))
