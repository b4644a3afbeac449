"""What the heads promise, and the label-wise head against the authors' decoder and plain numpy."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from spml_nb import models
from spml_nb.models import heads


def test_linear_head_is_w_x_plus_b():
    head, x = models.LinearHead(4, 3), torch.randn(2, 4)
    weight, bias = head.weight.detach(), head.bias.detach()
    expected = [
        [sum(weight[c, k] * x[i, k] for k in range(4)) + bias[c] for c in range(3)]
        for i in range(2)
    ]
    assert torch.allclose(head(x).logits, torch.tensor(expected), atol=1e-6)


def test_cosine_ignores_lengths_and_lies_within_one():
    head, x = models.CosineHead(6, 4, scale=7).double(), torch.randn(5, 6, dtype=torch.float64)
    cosine = head(x).cosine.detach()
    with torch.no_grad():
        head.weight *= torch.tensor([0.1, 1, 10, 100])[:, None]
    assert torch.allclose(head(3 * x).cosine, cosine, atol=1e-12)
    assert torch.allclose(head(x).logits, 7 * cosine, atol=1e-12)
    assert torch.allclose(
        head(head.weight.detach()).cosine.diagonal(), torch.ones(4, dtype=torch.float64), atol=1e-12
    )
    assert cosine.abs().max() <= 1 and 'bias' not in dict(head.named_parameters())


def test_cosine_of_nothing_is_zero_with_finite_gradients():
    head, x = models.CosineHead(6, 4), torch.zeros(2, 6, requires_grad=True)
    with torch.no_grad():
        head.weight[0] = 0
    out = head(x)
    out.logits.sum().backward()
    assert (
        torch.equal(out.cosine, torch.zeros(2, 4))
        and x.grad.isfinite().all()
        and head.weight.grad.isfinite().all()
    )


@pytest.fixture
def labelwise():
    """A small label-wise head in float64 with no parameter at its start value, in eval mode, and
    two maps of 3 × 4.
    """
    torch.manual_seed(3)
    head = models.LabelWiseHead(7, 3, d=8, heads=2, ffn=12).double().eval()
    with torch.no_grad():
        for p in head.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return head, torch.randn(2, 7, 3, 4, dtype=torch.float64)


def plain_positions(h, w, d):
    code = np.zeros((h, w, d))
    for y in range(h):
        for x in range(w):
            for k in range(d // 4):
                f = 10000 ** (-k / (d // 4))
                a, b = 2 * math.pi * (y + 1) / h * f, 2 * math.pi * (x + 1) / w * f
                for part, value in enumerate((math.sin(a), math.cos(a), math.sin(b), math.cos(b))):
                    code[y, x, part * (d // 4) + k] = value
    return code.reshape(h * w, d)


def plain_head(head, features):
    """LAC's label-wise embedding model for one map (D, h, w), in numpy: logits (C,), embeddings (C,
    d), attention (C, h·w).
    """
    p = {key: value.detach().numpy() for key, value in head.state_dict().items()}
    D, h, w = features.shape

    def linear(name, x):
        return x @ p[f'{name}.weight'].T + p[f'{name}.bias']

    def norm(name, x):
        z = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        return z * p[f'{name}.weight'] + p[f'{name}.bias']

    def layer(name, x, queries, keys, values):
        heads, n = head.encoder.attention.heads, len(x)
        q, k, v = (
            linear(f'{name}.attention.{part}', a)
            for part, a in (('query', queries), ('key', keys), ('value', values))
        )
        width, o, mean = q.shape[1] // heads, np.zeros_like(q), np.zeros((n, len(k)))
        for a in range(heads):
            part = slice(a * width, (a + 1) * width)
            for i in range(n):
                e = np.array(
                    [math.exp(q[i, part] @ k[j, part] / math.sqrt(width)) for j in range(len(k))]
                )
                o[i, part], mean[i] = e / e.sum() @ v[:, part], mean[i] + e / e.sum() / heads
        x = norm(f'{name}.norm1', x + linear(f'{name}.attention.out', o))
        return norm(
            f'{name}.norm2',
            x + linear(f'{name}.output', np.maximum(linear(f'{name}.hidden', x), 0)),
        ), mean

    x = features.reshape(D, h * w).T
    if 'project.weight' in p:
        x = x @ p['project.weight'][:, :, 0, 0].T + p['project.bias']
    positions = plain_positions(h, w, x.shape[1])
    x, _ = layer('encoder', x, x + positions, x + positions, x)
    f, _ = layer('decoder1', np.zeros_like(p['queries']), p['queries'], x + positions, x)
    f, attention = layer('decoder2', f, f + p['queries'], x + positions, x)
    f = norm('norm', f)
    return (f * p['weight']).sum(1) + p['bias'], f, attention


def test_label_wise_head_equals_plain_numpy(labelwise):
    head, features = labelwise
    out = head(features, attention=True)
    for b in range(2):
        logits, embeddings, attention = plain_head(head, features[b].numpy())
        np.testing.assert_allclose(out.logits[b].detach(), logits, atol=1e-9)
        np.testing.assert_allclose(out.embeddings[b].detach(), embeddings, atol=1e-9)
        np.testing.assert_allclose(out.attention[b].detach().reshape(3, 12), attention, atol=1e-9)


def test_permuting_the_classes_permutes_the_answers(labelwise):
    head, features = labelwise
    before, order = head(features), torch.tensor([2, 0, 1])
    with torch.no_grad():
        for p in (head.queries, head.weight, head.bias):
            p.copy_(p[order].clone())
    after = head(features)
    assert torch.allclose(after.logits, before.logits[:, order], atol=1e-12)
    assert torch.allclose(after.embeddings, before.embeddings[:, order], atol=1e-12)
    assert not torch.allclose(after.logits, before.logits, atol=1e-3)


def test_one_class_does_not_depend_on_the_others(labelwise):
    head, features = labelwise
    before = head(features).logits
    with torch.no_grad():
        head.queries[2].add_(1)
    after = head(features).logits
    assert (
        torch.allclose(after[:, :2], before[:, :2], atol=1e-12)
        and (after[:, 2] - before[:, 2]).abs().min() > 1e-6
    )


def test_looking_at_the_attention_changes_no_logit(labelwise):
    head, features = labelwise
    plain = head(features)
    looked = head(features, attention=True)
    assert plain.attention is None and torch.equal(plain.logits, looked.logits)
    assert looked.attention.shape == (2, 3, 3, 4) and torch.allclose(
        looked.attention.sum((2, 3)), torch.ones(2, 3, dtype=torch.float64)
    )


def test_positions_matter_to_the_label_wise_head(labelwise):
    head, features = labelwise
    assert not torch.allclose(head(features).logits, head(features.flip(3)).logits, atol=1e-3)


@pytest.mark.parametrize('channels, d', [(96, 64), (2048, 2048), (1280, 1024), (3712, 2048)])
def test_width_is_the_largest_power_of_two_within_the_channels(channels, d):
    with torch.device('meta'):
        head = models.LabelWiseHead(channels, 2)
    assert head.embedding_dim == d and head.encoder.hidden.out_features == 4 * d


def test_the_decoder_is_the_authors(monkeypatch):
    golden = {
        key: torch.from_numpy(value)
        for key, value in np.load(Path(__file__).parents[1] / 'lem.npz').items()
    }
    (C, d), ffn = golden['queries'].shape, len(golden['encoder.hidden.bias'])
    head = models.LabelWiseHead(d, C, d=d, heads=int(golden['heads']), ffn=ffn).double().eval()
    ours = {'q': 'query', 'k': 'key', 'v': 'value'}
    weights = {
        '.'.join(ours.get(part, part) for part in key.split('.')): value
        for key, value in golden.items()
        if '.' in key or key == 'queries'
    }
    assert head.load_state_dict(weights, strict=False) == (['weight', 'bias'], [])
    monkeypatch.setattr(heads, 'sine_positions', lambda *shape: golden['pos'].flatten(2)[0].T)
    x = golden['x'].requires_grad_()
    f = head(x).embeddings
    found = [f, *torch.autograd.grad(f, [x, head.queries], golden['g'])]
    for value, name in zip(found, ('f', 'grad_x', 'grad_queries'), strict=True):
        torch.testing.assert_close(value, golden[name], rtol=0, atol=1e-6)


def test_a_projection_only_where_the_widths_differ():
    assert isinstance(models.LabelWiseHead(64, 2).project, torch.nn.Identity)
    assert models.LabelWiseHead(96, 2).project.weight.shape == (64, 96, 1, 1)


def test_an_embedding_is_made_of_the_image_not_of_the_class():
    torch.manual_seed(0)
    head = models.LabelWiseHead(64, 20).eval()
    with torch.no_grad():
        f = head(torch.randn(32, 64, 7, 7)).embeddings
    assert f.mean(0).var(0, correction=0).sum() / f.flatten(0, 1).var(0, correction=0).sum() < 0.3


@pytest.mark.parametrize('p', [0.1, 0.5])
def test_dropout_keeps_each_entry_with_its_probability(p):
    torch.manual_seed(0)
    p = round(p * 2**16) / 2**16
    mask = heads.dropout_mask(torch.zeros(1001, 997), p)
    assert mask.unique().tolist() == [0, 1] and mask.shape == (1001, 997)
    deviation = math.sqrt(p * (1 - p) / mask.numel())
    assert abs(mask.mean() - (1 - p)) < 4 * deviation
    flat = mask.flatten() - (1 - p)  # neighbours share a random number of 64 bits
    for apart in (1, 2, 3, 4):
        assert abs((flat[apart:] * flat[:-apart]).mean()) < 4 * p * (1 - p) / math.sqrt(
            mask.numel()
        )


@pytest.mark.parametrize('shape', [(), (1,), (3, 5), (0, 4)])
def test_dropout_takes_any_shape(shape):
    assert heads.dropout_mask(torch.zeros(shape), 0.5).shape == shape


def test_training_equals_dropout_by_its_definition(monkeypatch):
    torch.manual_seed(5)
    layer = heads.AttentionLayer(8, 2, 12, 0.25).double()
    x, queries = (
        torch.randn(*shape, 8, dtype=torch.float64, requires_grad=True)
        for shape in ((5, 2), (3, 1))
    )
    stream = torch.zeros((), dtype=torch.float64)
    masks, mask_of = [], heads.dropout_mask

    def drawn(like, p):
        masks.append(mask_of(like, p))
        return masks[-1].clone()

    monkeypatch.setattr(heads, 'dropout_mask', drawn)
    out = layer(stream, queries, x, x)
    weights, branch, hidden, second = [mask / 0.75 for mask in masks]
    a = layer.attention
    q, k, v = (
        part(y).expand(-1, 2, -1).unflatten(2, (2, 4)).permute(1, 2, 0, 3)
        for part, y in ((a.query, queries), (a.key, x), (a.value, x))
    )
    o = ((q @ k.mT / 2).softmax(3) * weights.view(2, 2, 3, 5)) @ v
    y = layer.norm1(a.out(o.permute(2, 0, 1, 3).flatten(2)) * branch)
    plain = layer.norm2(y + layer.output(layer.hidden(y).relu() * hidden.view(3, 2, 12)) * second)
    inputs, g = [x, queries, *layer.parameters()], torch.randn_like(out)
    for ours, theirs in zip(
        [out, *torch.autograd.grad(out, inputs, g)],
        [plain, *torch.autograd.grad(plain, inputs, g)],
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize('name', models.HEADS)
@pytest.mark.parametrize('training', [True, False])
def test_no_image_gives_no_row(name, training):
    head = models.HEADS[name](8, 3).train(training)
    out = head(torch.zeros(0, 8, 2, 4) if head.needs == 'map' else torch.zeros(0, 8))
    assert out.logits.shape == (0, 3)
    if name == 'labelwise':
        assert out.embeddings.shape == (0, 3, 8) and head(
            torch.zeros(0, 8, 2, 4), attention=True
        ).attention.shape == (0, 3, 2, 4)


def test_dropout_acts_in_training_only(labelwise):
    head, features = labelwise
    head.train()
    assert not torch.equal(head(features).logits, head(features).logits)
    head.eval()
    assert torch.equal(head(features).logits, head(features).logits)
