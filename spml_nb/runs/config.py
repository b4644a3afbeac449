"""The configuration of a run: its fields, their validation and defaults, and the hash that names
the run.
"""

import dataclasses
import hashlib
import json
import os
import types
import typing
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import settings
from ..base.errors import SpmlError, require_kind, require_one_of

if TYPE_CHECKING:
    from ..methods.core import Method

T = typing.TypeVar('T')

HEADS = ('linear', 'cosine', 'labelwise')  # for any loss; class maps are for losses that need them

# {name: {role of a method's view: view of spml_nb.data.views}}
VIEW_SETS = {
    # photos squashed to a square
    'flip': {'plain': 'plain', 'weak': 'flip', 'strong': 'strong'},
    # the same, LAC's strong view as in its paper
    'flip_bare': {'plain': 'plain', 'weak': 'flip', 'strong': 'strong_bare'},
    # the same, LAC's strong view step by step as in its code
    'flip_code': {'plain': 'plain', 'weak': 'flip', 'strong': 'strong_code'},
    # for images that must not be mirrored, such as spectrograms, writing and road signs
    'unmirrored': {'plain': 'plain', 'weak': 'plain', 'strong': 'strong_unmirrored'},
    # drawn digits, which must not be mirrored
    'shift': {'plain': 'plain', 'weak': 'shift', 'strong': 'strong_shift'},
    # drawn digits whose hue is a label
    'shift_hue': {'plain': 'plain', 'weak': 'shift', 'strong': 'strong_shift_hue'},
    # crops of photos in their own proportions, as in Two-way
    'crop': {'plain': 'centre', 'weak': 'crop'},
}


def config_field(
    default: Any,
    meaning: str,
    *,
    choices: Iterable[str] = (),
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
) -> Any:
    """A field of `Config`, with its help and its limits as metadata.

    Args:
        default: None if it depends on loss, data or regime.
        meaning: for `spml train --help`.
        choices: the allowed values.
        above, at_least, below: limits of a number.
    """
    limits = {'above': above, 'at_least': at_least, 'below': below}
    metadata = {'meaning': meaning, 'choices': tuple(choices), **limits}
    return dataclasses.field(default=default, metadata=metadata)


@typing.dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    field_specifiers=(config_field, dataclasses.field),
)
def _configuration(cls: type[T]) -> type[T]:
    """Make a frozen dataclass, whose fields type checkers see as keyword arguments."""
    return dataclass(frozen=True, init=False, eq=False)(cls)


@_configuration
class Config:
    """All settings of a run, as keyword arguments. Numbers may be strings, such as '1e-4'.

    Two configurations are equal if their JSON is, as that names the run: the hyper-parameters 1 and
    1.0 differ.

    Raises:
        SpmlError: for an unknown field, or a value of the wrong type or out of range.

    Source: the protocol of Cole et al. (2021), unless a field says otherwise.
    """

    loss: str = config_field(default='em', meaning='a registered method')
    dataset: str = config_field(
        default='mini_voc', meaning='a name, or a folder with images/ and labels.csv'
    )
    root: str | None = config_field(
        default=None, meaning='folder of named data sets, unset: the setting `data`'
    )
    min_positives: int = config_field(
        default=0, meaning='leave out classes with fewer positives', at_least=0
    )
    exclude: tuple = config_field(default=(), meaning='leave out these classes')
    labels: str | None = config_field(
        default=None,
        meaning='observed: single, full, partial-0.3, …; unset: full for a folder, target for l48, '
        'else single',
    )
    label_seed: int = config_field(
        default=1200, meaning='for drawing observed labels', at_least=0, below=2**32
    )
    train_images: int = config_field(
        default=0,
        meaning='number of training images, drawn by label_seed; 0: all',
        at_least=0,
    )
    seed: int = config_field(
        default=0, meaning='for initialisation, order and augmentation', at_least=0, below=2**32
    )
    regime: str = config_field(
        default='finetune',
        meaning='finetune: end to end; linear: on frozen features; linear_init: both in turn',
        choices=('finetune', 'linear', 'linear_init'),
    )
    backbone: str | None = config_field(
        default=None, meaning='unset: mini for the miniatures, resnet50 otherwise'
    )
    weights: str = config_field(
        default='default', meaning='of the backbone: default, none, or a file'
    )
    head: str | None = config_field(
        default=None, meaning="unset: the method's", choices=(*HEADS, 'maps')
    )
    image_size: int | None = config_field(
        default=None,
        meaning='pixels per side, unset: 40 for mini, 224, 240, 260 for efficientnet_lite0, 1, 2, '
        'else 448',
        above=0,
    )
    epochs: int | None = config_field(
        default=None,
        meaning='maximum per stage, unset: 15, 60 on frozen features, 120 for mini',
        above=0,
    )
    batch_size: int | None = config_field(default=None, meaning='images per step', above=0)
    lr: float | None = config_field(
        default=None, meaning='of the backbone, and of the head on frozen features', above=0
    )
    stage2_lr: float | None = config_field(
        default=None, meaning="lr of a method's later stages, unset: lr", above=0
    )
    head_lr_multiplier: float | None = config_field(
        default=None, meaning='lr of the head over that of the backbone, end to end', above=0
    )
    linear_epochs: int | None = config_field(
        default=None, meaning="maximum of linear_init's first stage", above=0
    )
    linear_lr: float | None = config_field(
        default=None, meaning="of linear_init's first stage", above=0
    )
    optimizer: str | None = config_field(default=None, meaning='', choices=('adam', 'adamw', 'sgd'))
    weight_decay: float | None = config_field(
        default=None, meaning='of all weights; in the gradient for adam and sgd', at_least=0
    )
    momentum: float | None = config_field(default=None, meaning='sgd only', at_least=0, below=1)
    nesterov: bool | None = config_field(default=None, meaning='sgd only')
    schedule: str | None = config_field(
        default=None, meaning='', choices=('constant', 'cosine', 'onecycle')
    )
    ema: float | None = config_field(
        default=None,
        meaning='maximum decay of averaged weights; 0: no averaging',
        at_least=0,
        below=1,
    )
    selection: str = config_field(
        default='val_clean',
        meaning='of the epoch: best by fully labelled validation, by observed labels, or the last',
        choices=('val_clean', 'val_observed', 'last'),
    )
    patience: int | None = config_field(
        default=None,
        meaning='early stopping: epochs of a stage without a better score; 0: never',
        at_least=0,
    )
    stop_below: float | None = config_field(
        default=None,
        meaning='early stopping: points of validation mAP below the best; 0: never',
        at_least=0,
    )
    cached_views: int = config_field(
        default=4,
        meaning='draws of each augmented view of an image, on frozen features',
        above=0,
    )
    precision: str = config_field(
        default='float32',
        meaning='of the forward pass: float32, or autocast to bf16 or fp16',
        choices=('float32', 'bf16', 'fp16'),
    )
    device: str | None = config_field(default=None, meaning='unset: the setting `device`')
    frozen_stages: int = config_field(
        default=0,
        meaning='number of leading stages of the backbone to freeze; the first is the stem',
        at_least=0,
    )
    freeze_batchnorm: bool = config_field(
        default=False, meaning="freeze the backbone's batch norms"
    )
    normalise: bool = config_field(
        default=True, meaning="subtract the backbone's mean and divide by its std"
    )
    compile: bool = config_field(
        default=False, meaning='let torch compile the network, with CUDA graphs on a GPU'
    )
    views: str | None = config_field(
        default=None,
        meaning='unset: flip; for miniatures shift (strong views: shift_hue), for l48 unmirrored',
        choices=VIEW_SETS,
    )
    hold_out: bool = config_field(
        default=True,
        meaning='False: also train on the validation images, which needs selection: last',
    )
    trained_validation: str = config_field(
        default='',
        meaning='train on half of the validation images, drawn by label_seed, with all their '
        'labels: beside the training images, or alone; the other half validates',
        choices=('', 'beside', 'alone'),
    )
    map_definition: str | None = config_field(
        default=None,
        meaning='AP of a class without positives: cole: 0; two_way: left out (default for folders)',
        choices=('cole', 'two_way'),
    )
    embedding_dim: int | None = config_field(
        default=None,
        meaning='width of a label-wise head, unset: that of the backbone, at most 2048',
        above=0,
    )
    side: str = config_field(
        default='',
        meaning='file of side information for a method, see spml_nb/data/side_information.py',
    )
    hparams: dict = dataclasses.field(
        default_factory=dict,
        metadata={'meaning': "of the method; unset: the paper's values"},
    )

    if not TYPE_CHECKING:

        def __init__(self, **values):
            for name, field in _fields().items():
                object.__setattr__(self, name, {} if name == 'hparams' else field.default)
            self._set(values)

    def _set(self, values: dict[str, Any]) -> None:
        fields = _fields()
        remedy = 'Every parameter is a field of `spml_nb.runs.config.Config`.'
        for name in sorted(values.keys() - fields.keys()):
            require_one_of(name, fields, 'parameter', remedy)
        for name, value in values.items():
            object.__setattr__(self, name, _checked(fields[name], value))
        if self.nesterov and self.momentum == 0:
            raise SpmlError(
                'nesterov: true needs momentum above 0, and momentum is 0. Give momentum: 0.9, or '
                'leave nesterov out.'
            )
        if not self.hold_out and self.selection != 'last':
            raise SpmlError(
                f'hold_out: false trains on the validation images, so selection={self.selection!r} '
                'has none to select on. Give selection: last.'
            )
        if self.trained_validation and not self.hold_out:
            raise SpmlError(
                f'trained_validation={self.trained_validation!r} trains on half of the validation '
                'images, and hold_out: false on all of them. Give one of the two.'
            )

    def changed(self, **values: Any) -> 'Config':
        """A faster `dataclasses.replace`, which checks only the new values."""
        config = object.__new__(Config)
        vars(config).update(vars(self))
        config._set(values)
        return config

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Config):
            return NotImplemented
        return _as_text(self) == _as_text(other)

    def __hash__(self) -> int:
        return hash(_as_text(self))


def _as_text(config: Config) -> str:
    return json.dumps(vars(config), sort_keys=True, default=repr)


@cache
def _fields() -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(Config)}


@cache
def _kind(name: str) -> tuple[Any, bool]:
    """The type of a field, and whether it may be None."""
    hint: Any = _fields()[name].type
    kind, *none = typing.get_args(hint) or (hint,)
    return kind, bool(none)


def _checked(field: dataclasses.Field[Any], value: Any) -> Any:
    "Convert a value to the type of a field, and check its limits."
    if value is field.default:
        return value
    value = _converted(field.name, value)
    if value is None:
        return None
    limits = field.metadata
    if limits.get('choices'):
        require_one_of(value, limits['choices'], field.name)
    if limits.get('above') is not None and value <= limits['above']:
        raise SpmlError(f'{field.name} must be above {limits["above"]}, not {value}.')
    if limits.get('at_least') is not None and value < limits['at_least']:
        raise SpmlError(f'{field.name} must be {limits["at_least"]} or more, not {value}.')
    if limits.get('below') is not None and value >= limits['below']:
        raise SpmlError(f'{field.name} must be below {limits["below"]}, not {value}.')
    return value


def _converted(name: str, value: Any) -> Any:
    kind, is_optional = _kind(name)
    if value is None and is_optional:
        return None
    if isinstance(value, str) and '\0' in value:
        raise SpmlError(f'parameter {name!r} must be without NUL characters, not {value!r}.')
    if isinstance(value, int | float) and kind in (str, tuple):
        noun = 'a text' if kind is str else 'a list'
        raise SpmlError(
            f'parameter {name!r} must be {noun}, not {value!r} '
            f'({type(value).__name__}). From papermill, -r {name} {value} gives it as a text.'
        )
    if name == 'exclude':
        return require_kind(class_names(value), tuple, "parameter 'exclude'")
    is_number = kind in (int, float)
    if type(value) is kind and (not is_number or abs(value) < 1e300):  # pyright: ignore[reportArgumentType]
        return value  # for speed; require_kind checks NaN, infinity and huge integers
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return require_kind(value, kind, f'parameter {name!r}')


def class_names(value: object) -> object:
    """A list of names from a text such as 'skin, hair', or from a list, which in YAML may hold
    integers such as 2019.
    """
    if isinstance(value, str):
        return [name.strip() for name in value.split(',') if name.strip()]
    if isinstance(value, list | tuple):
        return [str(name) if type(name) is int else name for name in value]
    return value


CHOICES = {
    name: field.metadata['choices']
    for name, field in _fields().items()
    if field.metadata.get('choices')
}

PROTOCOL = {
    'batch_size': 16,
    'head_lr_multiplier': 1.0,
    'linear_epochs': 60,
    'linear_lr': 1e-3,
    'optimizer': 'adam',
    'weight_decay': 0.0,
    'momentum': 0.9,
    'nesterov': False,
    'schedule': 'constant',
    'ema': 0.0,
    'stop_below': 0.0,
}

# Limits with early stopping, where Cole et al. train for a fixed 25 epochs on frozen features and
# 10 end to end. The backbone of the miniatures was trained on single objects, not on scenes, so it
# needs more epochs.
LONG_TRAINING = {'epochs': 60, 'patience': 10}
_SHORT_TRAINING = {'epochs': 15, 'patience': 4}
_MINI_TRAINING = {'epochs': 120, 'patience': 10}

# image sizes are those of the ImageNet weights; for other backbones, the papers' 448
_BACKBONE_DEFAULTS = {
    'mini': {'lr': 1e-3, 'image_size': 40},
    'efficientnet_lite0': {'lr': 1e-4, 'image_size': 224},
    'efficientnet_lite1': {'lr': 1e-4, 'image_size': 240},
    'efficientnet_lite2': {'lr': 1e-4, 'image_size': 260},
}


def _protocol(regime: str, backbone: str) -> dict[str, Any]:
    """The protocol's values for a regime and a backbone."""
    if regime == 'linear':
        length = LONG_TRAINING
    else:
        length = _MINI_TRAINING if backbone == 'mini' else _SHORT_TRAINING
    defaults = _BACKBONE_DEFAULTS.get(backbone, {'lr': 1e-5, 'image_size': 448})
    lr = 1e-3 if regime == 'linear' else defaults['lr']
    return {**PROTOCOL, **length, 'lr': lr, 'image_size': defaults['image_size']}


def default_labels(dataset: str) -> str:
    """The default of `labels`: 'full' for a folder of one's own, for named data sets 'single' as in
    the papers, or 'target' for L48.
    """
    from spml_nb.data.loading import names
    from spml_nb.data.official.registry import DEFAULT_LABELS

    return DEFAULT_LABELS.get(dataset, 'single') if dataset in names() else 'full'


def resolve(config: Config) -> Config:
    """Fill unset fields with the method's recipe, else with the protocol's values.

    Returns:
        A configuration in which only `root`, `embedding_dim` and `stage2_lr` may be None.

    Raises:
        SpmlError: for an unknown method, hyper-parameter or device, a head or view that the method
            cannot use, or side information that is missing or not used.
    """
    # imported here, as tables of runs need no torch
    from spml_nb.data.dataset import FAMILIES, MINIATURES
    from spml_nb.data.loading import names
    from spml_nb.data.official.registry import DEFAULT_VIEWS
    from spml_nb.methods.core import find, resolve_hparams

    method = find(config.loss)
    is_miniature = config.dataset in MINIATURES
    backbone = config.backbone or ('mini' if is_miniature else 'resnet50')
    if is_miniature:
        views = 'shift_hue' if 'strong' in method.views else 'shift'
    else:
        views = DEFAULT_VIEWS.get(config.dataset, 'flip')
    defaults = {
        **_protocol(config.regime, backbone),
        **method.recipe,
        'labels': default_labels(config.dataset),
        'backbone': backbone,
        'head': method.head,
        'views': views,
        'map_definition': 'cole' if config.dataset in names() else 'two_way',
    }
    # a folder may have the name of a family of data sets
    published_for = 'other' if config.dataset in FAMILIES.values() else config.dataset
    resolved = config.changed(
        **{name: value for name, value in defaults.items() if getattr(config, name) is None},
        hparams=resolve_hparams(config.loss, published_for, config.hparams),
        device=str(settings.choose_device(config.device)),
        side=_pinned_side(config, method),
    )
    if method.heads is not None:
        require_one_of(resolved.head, method.heads, f'head for {config.loss!r}')
    in_set = f"view of views={resolved.views!r}, which {config.loss!r} needs"
    for role in method.views:
        require_one_of(role, VIEW_SETS[str(resolved.views)], in_set)
    return resolved


def _pinned_side(config: Config, method: type['Method']) -> str:
    """The file of side information with its fingerprint; '' if the method needs none."""
    from spml_nb.data.side_information import pin_file

    if config.side and not method.side:
        raise SpmlError(
            f'side={config.side!r}, but {config.loss!r} learns from labels alone. Leave `side` '
            'out, or choose a method that uses it, such as epr_count.'
        )
    if method.side and not config.side:
        raise SpmlError(
            f"{config.loss!r} learns from more than labels ({', '.join(method.side)}), and `side` "
            'is not set. Give -p side FILE (its format: spml_nb/data/side_information.py).'
        )
    return pin_file(config.side) if config.side else ''


# Fields that older versions did not have, with the value that reproduces these versions. They are
# part of a run's hash only if they differ from it, so that no new field renames a run.
ADDED = {
    'embedding_dim': None,
    'stage2_lr': None,
    'frozen_stages': 0,
    'freeze_batchnorm': False,
    'normalise': True,
    'views': 'flip',
    'hold_out': True,
    'map_definition': 'cole',
    'compile': False,
    'nesterov': False,
    'train_images': 0,
    'trained_validation': '',
    'side': '',
}


def neutral_fields(dataset: str) -> dict[str, Any]:
    """`ADDED` for a data set, by name or folder: the default views of miniatures are others."""
    is_miniature = Path(dataset).name.startswith('mini_')
    return ADDED | {'views': 'shift' if is_miniature else 'flip'}


def complete_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Add the fields that a configuration of an older version lacks.

    Args:
        fields: as in `config.json`.

    Raises:
        SpmlError: if the data set is not a string.
    """
    neutral = neutral_fields(require_kind(fields['dataset'], str, "parameter 'dataset'"))
    return fields | {name: value for name, value in neutral.items() if fields.get(name) is None}


def config_to_dict(config: Config) -> dict[str, Any]:
    """A configuration as in `config.json`: {field: value}, with tuples as lists."""
    return json.loads(json.dumps(vars(config)))


def _renaming(config: Config) -> dict[str, Any]:
    """Extra entries of a run's hash, for fields whose meaning in the code has changed: older runs
    had another label-wise head, and SGD with Nesterov momentum.

    Without them, an old run would pass for a new one.
    """
    renaming: dict[str, Any] = {}
    if config.head == 'labelwise':
        renaming['decoder'] = 2
    if config.optimizer == 'sgd':
        renaming['nesterov'] = config.nesterov
    return renaming


def config_hash(config: Config, without: tuple[str, ...] = ()) -> str:
    """The hash of a configuration, as twelve hexadecimal digits.

    Args:
        config: resolved.
        without: fields to leave out.
    """
    neutral = neutral_fields(config.dataset)
    hashed = {
        name: value
        for name, value in vars(config).items()
        if name not in without and (name not in neutral or value not in (neutral[name], None))
    }
    hashed |= _renaming(config)
    if config.side:
        hashed['side'] = Path(config.side).name  # with the fingerprint, but without the folder
    text = json.dumps(hashed, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:12]


def science_key(config: Config, data: str | None = None) -> str:
    """The key by which tables look up a run, the same on every machine.

    Args:
        config: resolved.
        data: fingerprint of the data; unset: of the current content of the folder.

    Returns:
        Loss, data set and a hash without `device` and `root`. A folder of photos is hashed by its
        name and fingerprint instead of its path.

    Raises:
        SpmlError: if the folder cannot be read.
    """
    from spml_nb.data.loading import names

    name = Path(config.dataset).name
    if config.dataset not in names():
        config = config.changed(dataset=f'{name}@{data or fingerprint_folder(config)}')
    return f"{config.loss}-{name}-{config_hash(config, without=('device', 'root'))}"


def fingerprint_folder(config: Config) -> str:
    """The fingerprint of the current content of a folder of photos; cached until it changes.

    Raises:
        SpmlError: if the folder cannot be read.
    """
    return _fingerprint(
        stamp_folder(config.dataset, config.root),
        config.dataset,
        config.root,
        config.min_positives,
        config.exclude,
    )


def stamp_folder(dataset: str, root: str | None = None) -> tuple[tuple[int, int], ...]:
    """Modification times and sizes of the table and the images/ of a folder of photos, to notice
    changes without reading it.

    Args:
        dataset, root: as in `Config`.

    Returns:
        ((nanoseconds, bytes), ...); empty for a named data set.
    """
    from spml_nb.data.folder import find_folder
    from spml_nb.data.loading import names

    if dataset in names():
        return ()
    folder = find_folder(dataset, root)
    files = [folder / 'labels.csv', folder / 'images']
    return tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.exists())


@cache
def _fingerprint(stamp: tuple[tuple[int, int], ...], *dataset: Any) -> str:
    from spml_nb.data.loading import load

    with warnings.catch_warnings(action='ignore'):  # training repeats them
        return load(*dataset).fingerprint


_JUPYTER_NAMES = {'In', 'Out', 'get_ipython', 'exit', 'quit', 'open', 'display'}


def _user_names(namespace: dict[str, Any]) -> set[str]:
    return {
        name
        for name, value in namespace.items()
        if not name.startswith('_')
        and name not in _JUPYTER_NAMES
        and not isinstance(value, types.ModuleType)
    }


def notebook_parameters(namespace: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """Guard the parameters cell of a notebook; to be called in the first cell with `globals()`.

    papermill writes its `-p` values into a new cell after the one tagged `parameters`. Without this
    guard, a misspelt name would be set and never read; without the tag, the new cell would come
    first and be overwritten. Both would train the wrong run with exit status 0.

    Args:
        namespace: the globals of the notebook.

    Returns:
        A function to call after the parameters cell; it returns {name: value} of the names set
        there.

    Raises:
        SpmlError: if parameters were injected before the first cell, which means that the tag
            `parameters` is missing.
    """
    if '_parameters' in namespace:
        guard: Callable[[], dict[str, Any]] = namespace['_parameters']
        return guard  # the first cell was run again in the same kernel
    before = _user_names(namespace)
    early = sorted(name for name in before if name in _fields() or not callable(namespace[name]))
    if early:
        raise SpmlError(
            f"parameters {', '.join(early)} were set before the notebook's first cell: the cell "
            "with the defaults has lost its tag 'parameters', so they would be overwritten. Give "
            "it the tag again (JupyterLab: property inspector, cell tags)."
        )
    first_names: set[str] = set()

    def parameters() -> dict[str, Any]:
        names = {
            name for name in _user_names(namespace) - before if namespace[name] is not parameters
        }
        if not first_names:
            first_names.update(names)
        # on later calls, ignore variables of other cells that are no fields
        return {
            name: namespace[name]
            for name in sorted(names)
            if name in first_names or name in _fields()
        }

    namespace['_parameters'] = parameters
    return parameters
