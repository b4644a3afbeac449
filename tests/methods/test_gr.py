"""GR loss: the authors' values and its schedule. The formula is checked in the notebook."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.methods.core import ViewOutputs, create, resolve_hparams
from spml_nb.methods.gr import gr_loss
from spml_nb.runs.config import Config, resolve


def problem(seed=0):
    generator = np.random.RandomState(seed)
    return torch.tensor(3 * generator.randn(6, 5)), torch.tensor(
        generator.choice((-1, 0, 1), (6, 5))
    )


def value_and_gradient(loss, s, z, **hparams):
    s = s.clone().requires_grad_()
    value = loss(s, z, **hparams)
    return value.detach(), torch.autograd.grad(value, s)[0]


def test_golden_value_and_gradient(golden):
    data = golden.case('gr')
    value, gradient = value_and_gradient(
        gr_loss, torch.tensor(data['logits']), torch.tensor(data['z']), **data['hp']
    )
    assert abs(value.item() - data['loss']) <= 1e-6 * abs(data['loss'])
    assert np.abs(gradient.numpy() - data['grad']).max() <= 1e-6 * np.abs(data['grad']).max()


def test_reductions_are_sums_of_the_same_matrix():
    s, z = problem()
    matrix = gr_loss(s, z, reduction='none')
    for reduction, wanted in (
        ('sum', matrix.sum()),
        ('mean', matrix.mean()),
        ('sample', matrix.sum(1).mean()),
    ):
        torch.testing.assert_close(gr_loss(s, z, reduction=reduction), wanted)


@pytest.mark.parametrize('form', ['code', 'paper'])
@pytest.mark.parametrize(
    ('family', 'ends'),
    [('voc', ((0, 2), (-2, -2))), ('coco', ((0, 10), (-2, -8))), ('other', ((0, 2), (-2, -2)))],
)
def test_the_schedule_is_the_codes_or_the_papers(family, ends, form):
    method = create(
        'gr', torch.eye(4, 5), epochs=8, **resolve_hparams('gr', family, {'form': form})
    )
    shares = {
        'code': {1: (0, 1 / 8), 4: (3 / 8, 4 / 8), 8: (7 / 8, 1), 9: (1, 1)},
        'paper': {1: (0, 0), 4: (3 / 7, 3 / 7), 8: (1, 1), 9: (1, 1)},
    }
    for e, (of_w_and_b, of_mu_and_sigma) in shares[form].items():
        method.start_epoch(e)
        for name, (first, last) in zip(
            ('w', 'b', 'mu', 'sigma'), (*ends, (0.5, 0.8), (2.0, 0.5)), strict=True
        ):
            t = of_w_and_b if name in 'wb' else of_mu_and_sigma
            assert method.current[name] == pytest.approx(first + t * (last - first)), (e, name)
    assert (method.options['q2'], method.options['q3']) == (0.01, 1.0) and resolve_hparams(
        'gr', family, {}
    )['form'] == 'code'


def test_the_recipe_is_a_head_at_ten_times_the_rate():
    assert (
        resolve(Config(loss='gr')).head_lr_multiplier == 10
        and resolve(Config(loss='gr', head_lr_multiplier=1)).head_lr_multiplier == 1
    )


def test_the_method_uses_the_epochs_values_and_its_rows():
    z = torch.eye(4, 5, dtype=torch.int8)
    s = torch.randn(2, 5, generator=torch.manual_seed(0))
    for form, epochs, wanted in (
        ('paper', 3, {'w': 2.0, 'mu': 0.65, 'sigma': 1.25}),
        ('code', 4, {'w': 1.0, 'mu': 0.65, 'sigma': 1.25}),
    ):
        method = create('gr', z, epochs=epochs, w=[0, 4], form=form)
        method.start_epoch(2)
        got = method.loss(ViewOutputs(weak=SimpleNamespace(logits=s)), torch.tensor([3, 0]))
        torch.testing.assert_close(got, gr_loss(s, z[[3, 0]], b=-2.0, **wanted))
        create('gr', z, epochs=1, form=form).start_epoch(1)


@pytest.mark.parametrize(
    ('attempt', 'word'),
    [
        (lambda s, z: gr_loss(s, z, sigma=0.0), 'sigma'),
        (lambda s, z: gr_loss(s, z, q2=2.0), '2'),
        (lambda s, z: create('gr', z, epochs=1, mu=[1]), 'mu'),
        (lambda s, z: create('gr', z, epochs=1, w=[0, 'two']), 'two'),
        (lambda s, z: create('gr', z, epochs=1, w=3), "'w' of 'gr' must be a list"),
        (lambda s, z: create('gr', z, epochs=1, form='papre'), 'papre'),
        (lambda s, z: gr_loss(s, z[:1]), '(1, 5)'),
    ],
)
def test_wrong_values_are_named(attempt, word):
    with pytest.raises(SpmlError) as error:
        attempt(*problem())
    assert word in str(error.value)
