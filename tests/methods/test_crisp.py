"""CRISP: its class priors, and how the method uses them. Formulas are checked in the notebook."""

from types import SimpleNamespace

import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.methods.core import ViewOutputs, create
from spml_nb.methods.crisp import class_priors, crisp_loss


def world(n, prior, found, seed=0, apart=3.0):
    """Scores and observed labels: positives score around `apart`, negatives around 0; a share
    `found` of the positives is observed.
    """
    g = torch.manual_seed(seed)
    truth = torch.rand(n, 2, generator=g) < torch.tensor(prior)
    return torch.randn(n, 2, generator=g) + apart * truth, (
        truth & (torch.rand(n, 2, generator=g) < found)
    ).int()


def test_the_estimate_meets_the_prior_where_few_positives_are_observed():
    for seed in range(3):
        scores, z = world(30000, [0.05, 0.3], 0.2, seed, apart=4.0)
        assert (
            class_priors(scores, z).tolist() == pytest.approx([0.05, 0.3], rel=0.15)
            and (z.float().mean(0) < torch.tensor([0.02, 0.08])).all()
        )


def test_a_prior_or_share_of_another_shape_and_scores_that_are_no_numbers_are_refused():
    s, z = torch.randn(3, 3), torch.eye(3)
    for wrong in (torch.rand(3, 1), torch.rand(3, 3), torch.rand(2)):
        with pytest.raises(SpmlError, match=r'prior \(.*\) must be one number, or \(3,\)'):
            crisp_loss(s, z, wrong)
        with pytest.raises(SpmlError, match=r'share \(.*\) must be one number, or \(3,\)'):
            crisp_loss(s, z, torch.rand(3), share=wrong)
    for bad in (float('nan'), float('inf')):
        with pytest.raises(SpmlError, match='scores hold NaN or infinity'):
            class_priors(s.index_fill(0, torch.tensor([1]), bad), z)


def test_the_estimate_depends_on_the_order_of_scores_alone_and_lies_between_share_and_1():
    scores, z = world(500, [0.1, 0.4], 0.3, apart=1.0)
    priors, rows = class_priors(scores, z), torch.randperm(500, generator=torch.manual_seed(1))
    torch.testing.assert_close(class_priors(scores.sigmoid(), z), priors)
    torch.testing.assert_close(class_priors(scores[rows], z[rows]), priors)
    assert (priors >= z.double().mean(0)).all() and (priors <= 1).all()


@pytest.mark.parametrize(
    ('scores', 'z', 'wanted'),
    [
        ([[3.0], [2.0], [1.0], [0.0]], [[0], [0], [0], [0]], 0.0),
        ([[3.0], [2.0], [1.0], [0.0]], [[1], [1], [1], [1]], 1.0),
        ([[1.0], [1.0], [1.0], [1.0]], [[1], [0], [0], [0]], 1.0),
        ([[3.0], [2.0], [1.0], [0.0]], [[1], [0], [0], [0]], 0.25),
        ([[3.0], [3.0], [1.0], [0.0]], [[1], [0], [0], [0]], 0.5),
        ([[3.0], [2.0], [1.0], [0.0]], [[0], [0], [0], [1]], 1.0),
    ],
)
def test_small_cases_by_hand(scores, z, wanted):
    assert class_priors(torch.tensor(scores), torch.tensor(z)).item() == wanted


def test_the_priors_are_those_of_the_epoch_before_and_begin_as_the_observed_share():
    scores, z = world(200, [0.2, 0.4], 0.5)
    method = create('crisp', z, epochs=3, weight=0.5)

    def loss(prior):
        return crisp_loss(scores[:20], z[:20], prior, share=z.float().mean(0), weight=0.5)

    def own():
        return method.loss(ViewOutputs(weak=SimpleNamespace(logits=scores[:20])), torch.arange(20))

    method.start_epoch(1)
    torch.testing.assert_close(own(), loss(z.float().mean(0)))
    assert method.acts_since == -1
    method.end_epoch(1, lambda view='plain': scores)
    method.start_epoch(2)
    torch.testing.assert_close(own(), loss(class_priors(scores, z).float()))
    assert method.acts_since == 2 and {'share', 'prior'} <= set(method.state_dict())
    resumed = create('crisp', z, epochs=3, weight=0.5)
    resumed.load_state_dict(method.state_dict())
    torch.testing.assert_close(resumed.prior, method.prior)


def test_positives_are_pulled_up_and_a_class_is_held_at_its_prior():
    s, z = torch.zeros(4, 3, requires_grad=True), torch.zeros(4, 3)
    z[0, 0] = 1
    (gradient,) = torch.autograd.grad(
        crisp_loss(s, z, torch.tensor([0.5, 0.3, 0.8]), weight=2.0), s
    )  # the mean prediction is 0.5
    pull = 2 * 0.5 / 0.25 * 0.25 / 4
    torch.testing.assert_close(gradient[0], torch.tensor([-pull, 2 * 0.25 / 4, -2 * 0.25 / 4]))
    assert (
        gradient[1:, 0].abs().max() == 0
        and (gradient[:, 1] > 0).all()
        and (gradient[:, 2] < 0).all()
    )


def test_a_negative_is_pushed_down_and_a_class_that_is_never_observed_is_held_at_0():
    s = torch.zeros(2, 1, requires_grad=True)
    (down,) = torch.autograd.grad(crisp_loss(s, torch.tensor([[-1], [0]]), torch.tensor([0.5])), s)
    assert down.tolist() == [[0.25], [0.0]]
    (unseen,) = torch.autograd.grad(
        crisp_loss(s, torch.zeros(2, 1), torch.zeros(1), share=torch.zeros(1)), s
    )
    assert (unseen > 0).all()


@pytest.mark.parametrize(
    ('attempt', 'word'),
    [
        (lambda s, z: crisp_loss(s, z, z[0], weight=-1.0), 'weight must lie between 0'),
        (lambda s, z: crisp_loss(s, z, z[0], reduction='none'), "reduction 'none'"),
        (lambda s, z: crisp_loss(s, z[:1], z[0]), r'\(1, 3\)'),
        (lambda s, z: class_priors(s, z, delta=0.0), 'delta must be above 0'),
        (lambda s, z: class_priors(s, z, delta=2.0), 'delta must lie between 0 and 1'),
        (lambda s, z: class_priors(s, z, tau=-1.0), 'tau'),
    ],
)
def test_wrong_values_are_named(attempt, word):
    with pytest.raises(SpmlError, match=word):
        attempt(torch.zeros(2, 3), torch.zeros(2, 3))
