"""Hyperspherical learning: the margin, the balance of gradients, the adaptive parameters, label
correlation, options and state.
"""

import math
from types import SimpleNamespace

import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.methods.core import ViewOutputs, create, find, resolve_hparams
from spml_nb.methods.hml import gradient_balance, hml_loss, hyperspherical_logits, label_correlation

SETTINGS = ['both', 'positives', 'negatives', 'none']


def cosines(n=8, c=5, seed=0, dtype=torch.float64):
    return 1.8 * torch.rand(n, c, dtype=dtype, generator=torch.Generator().manual_seed(seed)) - 0.9


def labels(n=8, c=5, seed=0):
    return torch.randint(
        -1, 2, (n, c), generator=torch.Generator().manual_seed(seed), dtype=torch.int8
    )


def outputs(cosine):
    return ViewOutputs(
        weak=SimpleNamespace(logits=20 * cosine, cosine=cosine, embeddings=None, attention=None)
    )


# --- the margin
# -----------------------------------------------------------------------------------------------


def test_the_map_is_monotone_up_to_the_turning_point_and_not_beyond():
    c = torch.linspace(-1, 1, 4001, dtype=torch.float64)
    rises = hyperspherical_logits(c, 20.0, 0.3).diff() > 0
    assert rises[c[:-1] > -math.cos(0.3)].all() and not rises[c[1:] < -math.cos(0.3)][1:].any()


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_ends_and_values_outside_are_finite_and_near_the_truth(dtype):
    c = torch.tensor([[-1.0, 1.0, 0.0, -1e4, 1e4]], dtype=dtype, requires_grad=True)
    for setting in SETTINGS:
        for z in (torch.zeros(1, 5), torch.ones(1, 5), -torch.ones(1, 5)):
            (gradient,) = torch.autograd.grad(hml_loss(c, z, margin_on=setting), c)
            assert gradient.isfinite().all()
    ends = hyperspherical_logits(c, 20.0, 0.3)[0, :2].tolist()
    assert ends == pytest.approx([-20 * math.cos(0.3), 20 * math.cos(0.3)], abs=4e-3)
    assert hyperspherical_logits(c).dtype == (
        torch.float64 if dtype == torch.float64 else torch.float32
    )


def test_inputs_are_left_alone():
    c, z = cosines(), labels()
    before = c.clone(), z.clone()
    hml_loss(c, z)
    gradient_balance(c, z)
    assert torch.equal(c, before[0]) and torch.equal(z, before[1])


# --- the loss and the four settings
# -----------------------------------------------------------------------------------------------


def test_unknown_labels_can_be_ignored():
    c, z = cosines().requires_grad_(), labels()
    (gradient,) = torch.autograd.grad(hml_loss(c, z, unknown='ignore'), c)
    assert (gradient[z == 0] == 0).all() and (gradient[z != 0] != 0).all()


def test_a_margin_pulls_positives_harder_and_pushes_negatives_less():
    c = torch.linspace(-0.8, 0.8, 33, dtype=torch.float64)
    p0, p3 = (torch.sigmoid(hyperspherical_logits(c, 20.0, m)) for m in (0.0, 0.3))
    assert (p3 < p0).all()


def test_a_positive_is_never_pushed_down_before_the_turning_point():
    c = torch.linspace(-math.cos(0.3) + 1e-3, 1, 500, dtype=torch.float64)[None].requires_grad_()
    (gradient,) = torch.autograd.grad(hml_loss(c, torch.ones(1, 500)), c)
    assert (gradient <= 0).all()


@pytest.mark.parametrize('setting', SETTINGS)
def test_prediction_uses_the_margin_only_where_training_uses_it_everywhere(setting):
    c = cosines()
    for name in ('hml', 'hml_fixed'):
        method = create(name, labels(), epochs=10, margin_on=setting)
        assert torch.allclose(
            method.predict(outputs(c)).double(),
            hyperspherical_logits(c, 20.0, 0.3 if setting == 'both' else 0.0),
            atol=1e-5,
        )


# --- balance and the adaptive parameters
# -----------------------------------------------------------------------------------------------


def test_balance_is_the_difference_of_the_two_sums():
    s, z = 3 * torch.randn(8, 5, dtype=torch.float64), labels()
    p = torch.sigmoid(s)
    expected = abs((1 - p[z == 1]).sum() - p[z != 1].sum()).item()
    assert gradient_balance(s, z, reduction='sum').item() == pytest.approx(expected, rel=1e-12)
    assert gradient_balance(s, z).item() == pytest.approx(expected / 40, rel=1e-12)
    assert gradient_balance(s, z, reduction='sample').item() == pytest.approx(
        expected / 8, rel=1e-12
    )
    ignored = abs((1 - p[z == 1]).sum() - p[z == -1].sum()).item()
    assert gradient_balance(s, z, unknown='ignore', reduction='sum').item() == pytest.approx(
        ignored, rel=1e-12
    )


def test_adaptive_loss_gives_the_network_the_fixed_loss_and_the_scalars_the_balance():
    z, rows = labels(), torch.arange(8)
    method, fixed = create('hml', z, epochs=10), create('hml_fixed', z, epochs=10)
    c = cosines(dtype=torch.float32).requires_grad_()
    gradient, expected = (
        torch.autograd.grad(m.loss(outputs(c), rows), c)[0] for m in (method, fixed)
    )
    assert torch.allclose(gradient, expected, atol=1e-6)
    value = method.loss(outputs(c), rows) - fixed.loss(outputs(c), rows)
    assert value.item() == pytest.approx(
        gradient_balance(hyperspherical_logits(c, 20.0, 0.3), z).item(), abs=1e-6
    )
    method.loss(outputs(c), rows).backward()
    s, m = torch.tensor(20.0, requires_grad=True), torch.tensor(0.3, requires_grad=True)
    gradient_balance(s * torch.cos(torch.acos(c.detach()) + m), z).backward()
    assert method.scale.grad.item() == pytest.approx(
        s.grad.item(), rel=1e-3
    ) and method.margin.grad.item() == pytest.approx(m.grad.item(), rel=1e-3)


def test_the_scalars_move_towards_balance_at_their_own_rate():
    c = cosines(64, 20, dtype=torch.float32)
    z = torch.zeros(64, 20, dtype=torch.int8)
    rows = torch.arange(64)
    z[:, 0] = 1
    method = create('hml', z, epochs=10)
    groups = method.parameter_groups(1e-5)
    assert [g['lr'] for g in groups] == [1e-2] and {id(p) for g in groups for p in g['params']} == {
        id(p) for p in method.parameters()
    }
    optimizer = torch.optim.Adam(groups)
    imbalance = []
    for _ in range(30):
        imbalance.append(gradient_balance(method.predict(outputs(c)), z).item())
        optimizer.zero_grad()
        method.loss(outputs(c), rows).backward()
        optimizer.step()
    assert (
        imbalance[-1] < 0.7 * imbalance[0] and method.margin.item() > 0.4
    )  # negatives outweigh: a larger margin


def test_each_margin_setting_trains_the_scalars_it_uses():
    c, z = cosines(dtype=torch.float32), labels()
    for setting in SETTINGS:
        method = create('hml', z, epochs=10, margin_on=setting)
        method.loss(outputs(c), torch.arange(8)).backward()
        assert method.scale.grad.abs() > 0 and (setting == 'none') == (
            method.margin.grad is None or method.margin.grad == 0
        )


def test_fixed_variant_learns_nothing_of_its_own():
    method = create('hml_fixed', labels(), epochs=10)
    assert list(method.parameters()) == [] and method.parameter_groups(1e-3) == []


# --- label correlation
# -----------------------------------------------------------------------------------------------


def test_label_correlation_is_the_margin_sigmoid_of_the_embeddings_angles():
    w = torch.randn(6, 10, dtype=torch.float64)
    corr = label_correlation(w, scale=10.0, margin=0.2)
    for i in range(6):
        for j in range(6):
            cosine = max(-1.0, min(1.0, (w[i] @ w[j] / w[i].norm() / w[j].norm()).item()))
            assert corr[i, j].item() == pytest.approx(
                1 / (1 + math.exp(-10 * math.cos(math.acos(cosine) + 0.2))), abs=1e-6
            )
    assert torch.allclose(label_correlation(5 * w, scale=10.0, margin=0.2), corr)
    with pytest.raises(SpmlError, match='matrix'):
        label_correlation(w[0])


# --- registry, errors, state
# -----------------------------------------------------------------------------------------------


def test_values_and_head():
    for family in ('voc', 'coco', 'nus', 'cub', 'other'):
        for name in ('hml', 'hml_fixed'):
            found = resolve_hparams(name, family, {})
            assert (found['scale'], found['margin'], found['margin_on']) == (20.0, 0.3, 'both')
    assert find('hml').head == find('hml_fixed').head == 'cosine' and find('hml').heads == (
        'cosine',
    )


@pytest.mark.parametrize('name', ['hml', 'hml_fixed'])
@pytest.mark.parametrize(
    'options, word',
    [
        ({'margin_on': 'positive'}, "'positives'"),
        ({'scale': 0}, 'scale must be above 0'),
        ({'margin': 4}, 'radians'),
        ({'unknown': 'x'}, 'negative, ignore'),
    ],
)
def test_wrong_options_are_named(name, options, word):
    with pytest.raises(SpmlError, match=word):
        create(name, labels(), epochs=10, **options)


def test_a_head_without_cosine_is_named():
    method = create('hml', labels(), epochs=10)
    for call in (
        lambda: method.loss(outputs_of_a_linear_head(), torch.arange(8)),
        lambda: method.predict(outputs_of_a_linear_head()),
    ):
        with pytest.raises(SpmlError, match="head 'cosine'"):
            call()


def outputs_of_a_linear_head():
    return ViewOutputs(
        weak=SimpleNamespace(logits=cosines(), cosine=None, embeddings=None, attention=None)
    )


def test_balance_refuses_a_matrix_of_losses():
    with pytest.raises(SpmlError, match='none'):
        gradient_balance(cosines(), labels(), reduction='none')


def test_state_dict_holds_the_learned_scalars():
    method = create('hml', labels(), epochs=10)
    other = create('hml', labels(), epochs=10, scale=5.0, margin=0.0)
    with torch.no_grad():
        method.scale.add_(3.0)
        method.margin.sub_(0.1)
    other.load_state_dict(method.state_dict())
    assert (other.scale.item(), other.margin.item()) == (23.0, pytest.approx(0.2))
    assert torch.equal(other.predict(outputs(cosines())), method.predict(outputs(cosines())))
