"""Two-way loss and its relatives: the authors' numbers, the hand-written gradient, options, speed.
The formulas are checked in the notebook.
"""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from timing import ratio

from spml_nb.base.errors import SpmlError
from spml_nb.methods.core import ViewOutputs, create, find, masked_logsumexp, resolve_hparams
from spml_nb.methods.two_way import (
    hard_difference,
    joint_loss,
    multi_similarity_loss,
    softmax_two_way_loss,
    two_way_loss,
)

LOSSES = [two_way_loss, softmax_two_way_loss, joint_loss, multi_similarity_loss]
NAMES = [
    'two_way',
    'two_way_class',
    'two_way_sample',
    'softmax',
    'softmax_two_way',
    'joint',
    'multi_similarity',
]


def value_and_gradient(loss, x, *args, **kwargs):
    x = x.detach().clone().requires_grad_()
    value = loss(x, *args, **kwargs)
    return value.detach(), torch.autograd.grad(value, x)[0]


def assert_same(a, b, tolerance):
    for p, q in zip(a, b, strict=True):
        assert p.dtype == q.dtype and (p - q).abs().max() <= tolerance * q.abs().max().clamp(
            min=1e-30
        )


@pytest.fixture
def matrix():
    torch.manual_seed(1)
    x, z = 4 * torch.randn(9, 7, dtype=torch.float64), (torch.rand(9, 7) < 0.3).long()
    z[2], z[:, 3] = 0, 0  # a row and a column without positives
    return x, z


@pytest.mark.parametrize('case', ['two_way_4.0_1.0', 'two_way_1.0_1.0'])
def test_two_way_agrees_with_the_authors_code(golden, case):
    case = golden.case(case)
    found = value_and_gradient(
        two_way_loss,
        torch.tensor(case['logits']),
        torch.tensor(case['z']),
        T_pos=case['hp']['T_pos'],
        T_neg=case['hp']['T_neg'],
    )
    assert_same(found, (torch.tensor(case['loss']), torch.tensor(case['grad'])), 1e-6)


def test_the_hand_written_gradient_passes_gradcheck(matrix):
    x, z = matrix
    assert torch.autograd.gradcheck(
        lambda s: hard_difference(s, z > 0, z == 0, 4.0, 0.5, (1, 0))[0][z.any(1)],
        x.clone().requires_grad_(),
    )
    for kwargs in ({}, {'unknown': 'ignore'}, {'bias': 2.0}, {'bucket': 4}, {'T_pos': 0}):
        y = z - (torch.arange(63).view(9, 7) % 4 == 0).long() * (1 - z)
        assert torch.autograd.gradcheck(
            lambda s, y=y, kw=kwargs: two_way_loss(s, y, **kw), x.clone().requires_grad_()
        )


def test_a_second_derivative_is_right(matrix):
    x, z = matrix
    x = x.clone().requires_grad_()
    for kwargs in ({}, {'form': 'paper', 'unknown': 'ignore'}, {'bucket': 4, 'T_neg': 2.0}):
        assert torch.autograd.gradgradcheck(partial(two_way_loss, z=z, **kwargs), x)


def test_two_way_ignores_a_shift_of_all_logits_and_multi_similarity_does_not(matrix):
    x, z = matrix
    for loss in (two_way_loss, softmax_two_way_loss, joint_loss):
        assert_same(value_and_gradient(loss, x + 5, z), value_and_gradient(loss, x, z), 1e-12)
    assert abs(multi_similarity_loss(x + 5, z) - multi_similarity_loss(x, z)) > 1


def test_the_forms_differ_by_the_share_of_columns_with_a_positive(matrix):
    x, z = matrix[0], torch.eye(7)[[0, 0, 1, 1, 2, 2, 2, 0, 1]]
    assert torch.isclose(
        two_way_loss(x, z, ways='class', form='paper'), two_way_loss(x, z, ways='class') * 3 / 7
    )
    assert torch.isclose(
        two_way_loss(x, z, ways='sample', form='paper'), two_way_loss(x, z, ways='sample')
    )


def test_no_images_at_all_are_as_for_other_losses():
    x, z = torch.zeros(0, 3, requires_grad=True), torch.zeros(0, 3, dtype=torch.int8)
    for loss in (two_way_loss, joint_loss, softmax_two_way_loss, multi_similarity_loss):
        assert (
            loss(x, z).isnan()
            and loss(x, z, reduction='sum') == 0
            and loss(x, z, reduction='sum').requires_grad
        )
        assert (
            loss(x, z, reduction='none').shape == (0, 3) and loss(x, z, reduction='sample').isnan()
        )


@pytest.mark.parametrize('loss', [two_way_loss, softmax_two_way_loss, joint_loss])
def test_buckets_are_averaged_the_smaller_last_one_too(matrix, loss):
    x, z = matrix
    assert torch.isclose(
        loss(x, z, bucket=4), (loss(x[:4], z[:4]) + loss(x[4:8], z[4:8]) + loss(x[8:], z[8:])) / 3
    )
    assert loss(x, z, bucket=100) == loss(x, z)


def test_bias_is_added_inside_softplus(matrix):
    x, z = matrix[0][:1], torch.eye(7)[:1]
    (d,) = hard_difference(x, z > 0, z == 0, 1, 1, (1,))
    assert torch.isclose(
        two_way_loss(x, z, ways='sample', T_pos=1, bias=4), torch.log1p(torch.exp(d + 4))
    )
    assert two_way_loss(x, torch.zeros(1, 7), bias=4) == 0


def test_ignore_leaves_unknown_labels_out_of_both_sides(matrix):
    x, z = matrix
    z = torch.where(z > 0, 1, torch.where(torch.arange(7) % 2 == 0, 0, -1))
    for loss in LOSSES:
        _, gradient = value_and_gradient(loss, x, z, unknown='ignore')
        assert (gradient[z == 0] == 0).all() and (gradient[z != 0] != 0).any()
        changed = torch.where(z == 0, 1e4, x)
        assert loss(changed, z, unknown='ignore') == loss(x, z, unknown='ignore')
        assert torch.equal(loss(x, z), loss(x, torch.where(z == 0, -1, z)))


@pytest.mark.parametrize('loss', LOSSES)
@pytest.mark.parametrize('reduction, factor', [('sum', 63), ('sample', 7), ('none', None)])
def test_reductions_are_those_of_a_matrix_whose_mean_is_the_loss(matrix, loss, reduction, factor):
    for kwargs in [{}, {'bucket': 4}] if loss is not multi_similarity_loss else [{}]:
        mean, other = loss(*matrix, **kwargs), loss(*matrix, **kwargs, reduction=reduction)
        if reduction == 'none':
            assert other.shape == (9, 7) and torch.isclose(other.mean(), mean)
        else:
            assert torch.isclose(other, mean * factor)


@pytest.mark.parametrize('loss', [two_way_loss, softmax_two_way_loss, joint_loss])
def test_a_batch_without_positives_gives_zero_and_no_gradient(matrix, loss):
    for z in (torch.zeros(9, 7), -torch.ones(9, 7)):
        value, gradient = value_and_gradient(loss, matrix[0], z)
        assert value == 0 and (gradient == 0).all()


def test_what_has_no_negative_to_compare_with_costs_nothing(matrix):
    x, z = matrix[0], torch.ones(9, 7)
    for loss in (two_way_loss, joint_loss):
        assert all((part == 0).all() for part in value_and_gradient(loss, x, z))
    z[1:, 2] = 0  # row 0 is all positive, column 2 is not: only these two kinds of line
    rows = two_way_loss(x, z, ways='sample', reduction='none')
    assert (rows[0] == 0).all() and (rows[1:] > 0).all()


def test_half_precision_is_reduced_in_float32(matrix):
    x, z = matrix[0].bfloat16(), matrix[1]
    for loss in LOSSES:
        assert torch.equal(loss(x, z), loss(x.float(), z))


def test_registered_names_pin_their_ways_and_take_the_papers_values(matrix):
    x, z = matrix
    outputs, index = ViewOutputs(weak=SimpleNamespace(logits=x)), torch.arange(9)
    expected = {
        'two_way': two_way_loss(x, z),
        'two_way_class': two_way_loss(x, z, ways='class'),
        'two_way_sample': two_way_loss(x, z, ways='sample'),
        'softmax': softmax_two_way_loss(x, z, ways='sample'),
        'softmax_two_way': softmax_two_way_loss(x, z),
        'joint': joint_loss(x, z),
        'multi_similarity': multi_similarity_loss(x, z),
    }
    assert sorted(expected) == sorted(NAMES)
    for name in NAMES:
        assert torch.equal(create(name, z, epochs=1).loss(outputs, index), expected[name])
    for family in ('voc', 'coco', 'nus', 'cub', 'other'):
        given = resolve_hparams('two_way', family, {})
        assert (given['T_pos'], given['T_neg'], given['form']) == (4.0, 1.0, 'code')
        assert given['bucket'] == (128 if family in ('voc', 'coco') else None)
    for name in NAMES:
        assert find(name).values['voc'] == find(name).values['coco'] and set(find(name).values) == {
            'voc',
            'coco',
        }
    assert (
        find('joint').values['coco'] == {'T_pos': 4.0, 'bucket': 128}
        and find('two_way_sample').values == find('two_way').values
    )


@pytest.mark.parametrize(
    'loss, wrong, message',
    [
        (two_way_loss, {'T_pos': -1}, 'T_pos must lie between 0'),
        (two_way_loss, {'T_neg': -1}, 'T_neg must lie'),
        (two_way_loss, {'ways': 'sampel'}, "Did you mean 'sample'"),
        (two_way_loss, {'form': 'x'}, 'code, paper'),
        (two_way_loss, {'bucket': 0}, 'bucket must be 1 or more'),
        (two_way_loss, {'unknown': 'x'}, 'negative, ignore'),
        (two_way_loss, {'reduction': 'x'}, 'mean, sum, sample, none'),
        (softmax_two_way_loss, {'ways': 'x'}, 'both, class, sample'),
        (joint_loss, {'T_pos': float('nan')}, 'T_pos must lie'),
        (multi_similarity_loss, {'T_pos': -2}, 'T_pos must lie'),
    ],
)
def test_wrong_options_are_named(matrix, loss, wrong, message):
    with pytest.raises(SpmlError, match=message):
        loss(*matrix, **wrong)


def test_unequal_shapes_are_refused(matrix):
    for loss in LOSSES:
        with pytest.raises(SpmlError, match='same shape'):
            loss(matrix[0], matrix[1][:, :3])


def test_two_way_is_faster_than_its_transcription():
    def direct(x, z):
        P, total = z > 0, 0.0
        for dim in (1, 0):
            losses = torch.nn.functional.softplus(
                masked_logsumexp(x, ~P, dim) + 4 * masked_logsumexp(-x / 4, P, dim)
            )
            total = total + (losses * P.any(dim)).sum() / P.any(dim).sum().clamp(min=1)
        return total

    torch.manual_seed(0)
    x = torch.randn(512, 620, requires_grad=True)
    z = (torch.rand(512, 620) < 3 / 620).to(torch.int8)
    assert torch.isclose(direct(x, z), two_way_loss(x, z), rtol=1e-5)
    assert (
        ratio(lambda: direct(x, z).backward(), lambda: two_way_loss(x, z).backward(), rounds=12)
        > 1.1
    )  # about 2; outputs/benchmarks.md has the measured ratio
