"""Every head on every kind of backbone: shapes, gradients, freezing, maps, and what wrong input
says.
"""

import copy

import numpy as np
import pytest
import torch
from networks import BACKBONES, CASES, images_for
from torch import nn

from spml_nb import models
from spml_nb.base.errors import SpmlError
from spml_nb.methods.baselines import decay_parameters


@pytest.mark.parametrize('case', CASES, ids='-'.join)
def test_each_head_fills_its_own_fields_and_no_others(built, case):
    model, head = built[case].eval(), case[1]
    with torch.no_grad():
        out = model(images_for(case[0]))
    assert out.logits.shape == (3, 5) and out.logits.isfinite().all()
    assert (out.cosine is not None) == (head == 'cosine') and (out.embeddings is not None) == (
        head == 'labelwise'
    )
    assert out.attention is None and model.num_classes == 5
    if head == 'labelwise':
        assert out.embeddings.shape == (3, 5, model.embedding_dim)
    else:
        assert model.embedding_dim == model.feature_dim


@pytest.mark.parametrize('case', CASES, ids='-'.join)
def test_head_on_features_is_the_model(built, case):
    model = built[case].eval()
    with torch.no_grad():
        features = model.features(images_for(case[0]))
        assert torch.equal(model.head(features).logits, model(images_for(case[0])).logits)
        if model.head.needs == 'vector':
            assert torch.allclose(features, model.feature_map(images_for(case[0])).mean((2, 3)))
            assert features.shape == (3, model.feature_dim)
        else:
            assert features.ndim == 4 and features.shape[1] == model.feature_dim


@pytest.mark.parametrize('case', CASES, ids='-'.join)
def test_every_parameter_gets_a_gradient(built, case):
    model = copy.deepcopy(built[case]).train()
    out = model(images_for(case[0]))
    (out.logits.square().sum() + (0 if out.embeddings is None else out.embeddings.sum())).backward()
    assert [
        name
        for name, p in model.named_parameters()
        if p.grad is None or not p.grad.isfinite().all()
    ] == []
    both = [*model.backbone_parameters(), *model.head.parameters()]
    assert {id(p) for p in both} == {id(p) for p in model.parameters()} and len(both) == len(
        list(model.parameters())
    )


@pytest.mark.parametrize('case', CASES, ids='-'.join)
def test_images_do_not_see_each_other_in_eval_mode(built, case):
    model, images = built[case].eval(), images_for(case[0])
    with torch.no_grad():
        together = model(images).logits
        alone = torch.cat([model(image[None]).logits for image in images])
    assert torch.allclose(together, alone, atol=1e-4)
    assert not torch.allclose(together[0], together[1], atol=1e-6)


@pytest.mark.parametrize(
    'case',
    [('mini', 'linear'), ('squeezenet1_1', 'labelwise'), ('mini', 'labelwise')],
    ids='-'.join,
)
def test_channels_last_changes_nothing(built, case):
    model, images = copy.deepcopy(built[case]).eval(), images_for(case[0])
    with torch.no_grad():
        before = model(images).logits
        after = model.to(memory_format=torch.channels_last)(
            images.contiguous(memory_format=torch.channels_last)
        ).logits
    assert torch.allclose(before, after, atol=1e-4)


@pytest.mark.parametrize('head', models.HEADS)
def test_state_dict_and_averaging_use_standard_tools(built, head, tmp_path):
    model = copy.deepcopy(built['mini', head])
    torch.save(model.state_dict(), tmp_path / 'm.pt')
    other = models.create('mini', 5, head=head, weights='none')
    other.load_state_dict(torch.load(tmp_path / 'm.pt', weights_only=True))
    average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    average.update_parameters(model)
    with torch.no_grad():
        outs = [m.eval()(images_for('mini')).logits for m in (model, other, average)]
    assert torch.equal(outs[0], outs[1]) and torch.equal(outs[0], outs[2])
    assert {key.split('.')[0] for key in model.state_dict()} == {'backbone', 'head'}


@pytest.mark.parametrize('head', models.HEADS)
def test_bfloat16_autocast_stays_finite(built, head):
    model = copy.deepcopy(built['mini', head]).train()
    with torch.autocast('cpu', torch.bfloat16):
        out = model(images_for('mini'))
    out.logits.float().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    if head == 'cosine':
        assert out.cosine.dtype == out.logits.dtype == torch.float32


@pytest.mark.parametrize('head', models.HEADS)
@pytest.mark.parametrize('normalise', [True, False])
def test_images_of_another_precision_are_taken_as_the_networks_own(head, normalise):
    model = models.create('mini', 5, head=head, weights='none', normalise=normalise).eval()
    images = images_for('mini')
    with torch.no_grad():
        plain = model(images).logits
        assert torch.equal(model(torch.from_numpy(images.numpy().astype(np.float64))).logits, plain)
        for dtype, off in ((torch.float64, 1e-4), (torch.float16, 0.05), (torch.bfloat16, 0.3)):
            assert torch.allclose(
                copy.deepcopy(model).to(dtype)(images).logits.float(),
                plain,
                atol=off * float(plain.abs().max().clamp(min=1)),
            )


def test_numpys_whole_numbers_are_whole_numbers():
    model = models.create(
        'mini',
        np.int64(5),
        head='labelwise',
        d=np.int64(16),
        heads=np.int32(2),
        ffn=np.int16(8),
        frozen_stages=np.int64(1),
    )
    assert (
        model.num_classes == 5
        and type(model.num_classes) is int
        and model(images_for('mini')).logits.shape == (3, 5)
        and model.fixed == ('stem',)
    )


def test_frozen_batch_norms_and_stages_stay_as_they_are():
    model = models.create('mini', 3, freeze_batchnorm=True, frozen_stages=2).train()
    before = copy.deepcopy(model.backbone.state_dict())
    optimiser = torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.1)
    for _ in range(2):
        optimiser.zero_grad()
        model(images_for('mini')).logits.square().sum().backward()
        optimiser.step()
    norms = {name for name, m in model.backbone.named_modules() if isinstance(m, nn.BatchNorm2d)}
    changed = {
        key
        for key, value in model.backbone.state_dict().items()
        if not torch.equal(value, before[key])
    }
    held = tuple(name for group in models.split_into_stages(model.backbone)[:2] for name in group)
    expected = {
        key
        for key in before
        if key.rsplit('.', 1)[0] not in norms
        and not key.startswith(tuple(f'{name}.' for name in held))
    }
    assert norms and held and changed == expected and len(expected) > 0
    assert len(model.backbone_parameters()) == len(expected)


def test_without_freezing_batch_norms_learn():
    model = models.create('mini', 3).train()
    before = copy.deepcopy(model.backbone.state_dict())
    model(images_for('mini'))
    changed = {
        key.rsplit('.', 1)[1]
        for key, value in model.backbone.state_dict().items()
        if not torch.equal(value, before[key])
    }
    assert changed == {'running_mean', 'running_var', 'num_batches_tracked'}


def test_what_is_frozen_stays_frozen_when_training_holds_and_releases_the_backbone():
    model = models.create('mini', 3, frozen_stages=1)
    for p in model.backbone_parameters():
        p.requires_grad_(False)
    released = model.backbone_parameters()
    for p in released:
        p.requires_grad_(True)
    model.eval().train()
    frozen = [
        p
        for name in models.split_into_stages(model.backbone)[0]
        for p in model.backbone.get_submodule(name).parameters()
    ]
    assert (
        frozen
        and not any(p.requires_grad for p in frozen)
        and len(released) + len(frozen) == len(list(model.backbone.parameters()))
    )
    assert (
        copy.deepcopy(model)
        .train()
        .backbone.get_submodule(models.split_into_stages(model.backbone)[0][0])
        .training
        is False
    )


def test_resnet_stages_are_the_stem_and_four_layers():
    with torch.device('meta'):
        model = models.create('resnet18', 2, weights='none', frozen_stages=2)
    assert models.split_into_stages(model.backbone) == [
        ['conv1', 'bn1'],
        ['layer1'],
        ['layer2'],
        ['layer3'],
        ['layer4'],
    ]
    assert {name.split('.')[0] for name in model.frozen} == {'conv1', 'bn1', 'layer1'}


def test_transformer_stem_includes_its_position_code():
    model = models.create('test_vit', 2, weights='none', frozen_stages=1)
    assert {'pos_embed', 'cls_token'} <= model.frozen and any(
        name.startswith('patch_embed') for name in model.frozen
    )
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
    chosen = {id(p) for p in decay_parameters(model)}
    names = {name for name, p in model.named_parameters() if id(p) in chosen}
    assert {
        'head.weight',
        'head.project.weight',
        'head.encoder.hidden.weight',
        'backbone.stem.0.weight',
    } <= names
    assert (
        not any(name.endswith(('bias', 'queries')) or '.norm' in name for name in names)
        and 'backbone.stem.1.weight' not in names
    )
    cosine = built['mini', 'cosine']
    assert any(p is cosine.head.weight for p in decay_parameters(cosine))


@pytest.mark.parametrize('backbone', BACKBONES)
def test_grad_cam_of_a_linear_head_is_the_class_activation_map(built, backbone):
    model = built[backbone, 'linear'].train()
    images = images_for(backbone)
    c = torch.tensor([0, 4, 2])
    maps = models.class_activation(model, images, c)
    assert (
        model.training
        and not maps.requires_grad
        and all(p.grad is None for p in model.parameters())
    )
    with torch.no_grad():
        features = model.eval().feature_map(images)
    cam = (
        torch.einsum('bkij,bk->bij', features, model.head.weight[c]).relu()
        / features.shape[2]
        / features.shape[3]
    )
    assert torch.allclose(maps, cam, atol=1e-5) and torch.allclose(
        models.class_activation(model, images, 4)[1], cam[1], atol=1e-5
    )
    assert torch.allclose(models.class_activation(model, images, [4])[1], cam[1], atol=1e-5)
    assert maps.max() > 0


@pytest.mark.parametrize('head', ['cosine', 'labelwise'])
def test_grad_cam_answers_for_other_heads(built, head):
    maps = models.class_activation(built['mini', head], images_for('mini'), 1)
    assert maps.shape == (3, 5, 5) and maps.isfinite().all() and (maps >= 0).all()
    assert models.class_activation(built['mini', head], images_for('mini')[:0], 1).shape == (
        0,
        5,
        5,
    )


def test_attention_maps_are_those_of_eval_mode_and_leave_the_model_alone(built):
    model = built['mini', 'labelwise'].train()
    statistics = model.backbone.state_dict()['stem.1.running_mean'].clone()
    first, second = (models.attention_maps(model, images_for('mini')) for _ in range(2))
    assert (
        first.shape == (3, 5, 5, 5)
        and torch.equal(first, second)
        and torch.allclose(first.sum((2, 3)), torch.ones(3, 5), atol=1e-5)
    )
    assert model.training
    assert torch.equal(statistics, model.backbone.state_dict()['stem.1.running_mean'])


@pytest.mark.parametrize(
    'wrong, told',
    [
        (
            dict(backbone='resnet5O'),
            "unknown backbone 'resnet5O'; allowed: mini, efficientnet_lite0.*Did you mean "
            "'resnet50'",
        ),
        (
            dict(backbone='resnet18.nobody'),
            "unknown backbone 'resnet18.nobody'.*Did you mean 'resnet18",
        ),
        (dict(backbone='vit_b_16', weights='none'), "'vit_b_16' gives no feature map; use timm's"),
        (
            dict(head='label_wise'),
            "unknown head 'label_wise'; allowed: linear, cosine, labelwise.*'labelwise'",
        ),
        (dict(head='cosine', d=3), "unknown option of head 'cosine' 'd'; allowed: scale"),
        (dict(head='linear', scale=3), "unknown option of head 'linear' 'scale'; allowed: none"),
        (dict(head='cosine', scale=0), 'scale is 0'),
        (dict(head='cosine', scale=float('inf')), 'scale is inf; .* positive and finite'),
        (dict(head='labelwise', d=30), 'd=30 with heads=4'),
        (dict(head='labelwise', d='8'), "d='8' with heads=4"),
        *[
            (
                dict(head='labelwise', heads=heads),
                f'd=64 with heads={heads} and ffn=256: all must be positive integers',
            )
            for heads in (0, -2, 2.0, None)
        ],
        *[
            (
                dict(head='labelwise', ffn=ffn),
                f'with heads=4 and ffn={ffn}: all must be positive integers',
            )
            for ffn in (-1, 0, 8.0)
        ],
        (dict(head='labelwise', dropout=1), 'dropout is 1'),
        (dict(num_classes=0), 'num_classes is 0'),
        (dict(num_classes=2.5), 'num_classes is 2.5'),
        (dict(num_classes=True), 'num_classes is True'),
        (dict(num_classes=np.int64(0)), r'num_classes is (np.int64\()?0'),
        (dict(weights='imagenet'), "weights 'imagenet': no such file; allowed: 'default', 'none'"),
        (dict(weights=None), "weights 'None': no such file; allowed: 'default', 'none'"),
        *[
            (
                dict(frozen_stages=wrong),
                rf'frozen_stages is {wrong}; this backbone has 4 stages: \[\[',
            )
            for wrong in (9, -1, 1.5, None)
        ],
    ],
)
def test_wrong_arguments_are_answered(wrong, told):
    with pytest.raises(SpmlError, match=told):
        models.create(**{'backbone': 'mini', 'num_classes': 3, **wrong})


@pytest.mark.parametrize(
    'images',
    [
        torch.zeros(1, 3, 40, 40, dtype=torch.uint8),
        torch.zeros(3, 40, 40),
        torch.zeros(1, 1, 40, 40),
    ],
)
def test_wrong_images_are_answered(built, images):
    with pytest.raises(SpmlError, match=r'images are .*expected \(B, 3, H, W\) floats in \[0, 1\]'):
        built['mini', 'linear'](images)


def test_maps_of_what_is_not_there_are_answered(built):
    with pytest.raises(SpmlError, match='LinearHead has no attention'):
        models.attention_maps(built['mini', 'linear'], images_for('mini'))
    for c in (5, -1):
        with pytest.raises(SpmlError, match='classes 0 to 4'):
            models.class_activation(built['mini', 'linear'], images_for('mini'), c)
    for c in (
        1.7,
        torch.tensor([0.0, 1, 2]),
        [0, 1],
        torch.zeros(4, dtype=int),
        torch.zeros(3, 1, dtype=int),
    ):
        with pytest.raises(
            SpmlError, match=r'(?s)class_index is .*a whole number for all 3 images or for each'
        ):
            models.class_activation(built['mini', 'linear'], images_for('mini'), c)
