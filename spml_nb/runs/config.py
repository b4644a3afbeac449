"""Everything that decides a run, checked, completed and named by a hash."""

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
from ..base.errors import SpmlError, one_of, require_kind

if TYPE_CHECKING:
    from ..methods.core import Method

T = typing.TypeVar('T')

HEADS = ('linear', 'cosine', 'labelwise')  # for any loss; that of maps predicts as the linear one

# {name: {role of a method's view: view of spml_nb.data.views}}
VIEW_SETS = {
    # photos squashed to a square
    'flip': {'plain': 'plain', 'weak': 'flip', 'strong': 'strong'},
    # the same, LAC's strong view as in its paper
    'flip_bare': {'plain': 'plain', 'weak': 'flip', 'strong': 'strong_bare'},
    # the same, LAC's strong view step by step as in its code
    'flip_code': {'plain': 'plain', 'weak': 'flip', 'strong': 'strong_code'},
    # what means something else in the mirror, such as spectrograms, writing and road signs
    'unmirrored': {'plain': 'plain', 'weak': 'plain', 'strong': 'strong_unmirrored'},
    # drawn digits, which must not be mirrored
    'shift': {'plain': 'plain', 'weak': 'shift', 'strong': 'strong_shift'},
    # drawn digits whose hue is a label
    'shift_hue': {'plain': 'plain', 'weak': 'shift', 'strong': 'strong_shift_hue'},
    # photos in their own proportions, cropped: Two-way
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
    """A field of `Config` whose metadata are the other arguments.

    Args:
        default: None where loss, data or regime decide.
        meaning: the help that `spml train --help` shows.
        choices: the only values allowed.
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
    """A frozen dataclass; checkers and editors see each field as a keyword argument."""
    return dataclass(frozen=True, init=False, eq=False)(cls)


@_configuration
class Config:
    """Everything that decides a run. Every field is a keyword argument; numeric strings are
    accepted for numbers.

    Two are equal if their JSON is: 1 and 1.0 as a hyper-parameter are two configurations, since
    they name two runs.

    Raises:
        SpmlError: for an unknown field, a value of the wrong kind, or one that is not allowed.

    Source: the protocol of Cole et al. (2021), unless a field says otherwise.
    """

    loss: str = config_field(default='em', meaning='a registered method')
    dataset: str = config_field(
        default='mini_voc', meaning='a name, or a folder with images/ and labels.csv'
    )
    root: str | None = config_field(
        default=None, meaning='where named data sets live, unset: the setting `data`'
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
        default=1200, meaning='of the draw of observed labels', at_least=0, below=2**32
    )
    train_images: int = config_field(
        default=0,
        meaning='so many of the training images, drawn by label_seed; 0: all of them',
        at_least=0,
    )
    seed: int = config_field(
        default=0, meaning='of initialisation, order and augmentation', at_least=0, below=2**32
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
        meaning='of each stage at most, unset: 15, 60 on frozen features, 120 for mini',
        above=0,
    )
    batch_size: int | None = config_field(default=None, meaning='images in a step', above=0)
    lr: float | None = config_field(
        default=None, meaning='of the backbone, and of the head on frozen features', above=0
    )
    head_lr_multiplier: float | None = config_field(
        default=None, meaning='head against backbone, end to end', above=0
    )
    linear_epochs: int | None = config_field(
        default=None, meaning="of linear_init's first stage at most", above=0
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
        meaning='highest decay of the averaged weights; 0: no averaging',
        at_least=0,
        below=1,
    )
    selection: str = config_field(
        default='val_clean',
        meaning='best epoch by fully labelled validation, by observed labels, or the last',
        choices=('val_clean', 'val_observed', 'last'),
    )
    patience: int | None = config_field(
        default=None,
        meaning='end a stage after so many epochs without a better score; 0: never',
        at_least=0,
    )
    stop_below: float | None = config_field(
        default=None,
        meaning='stop when validation falls this many mAP under its best; 0: never',
        at_least=0,
    )
    cached_views: int = config_field(
        default=4,
        meaning='draws of each augmented view kept for an image on frozen features',
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
        meaning='leading stages of the backbone that stay as they are; the first is the stem',
        at_least=0,
    )
    freeze_batchnorm: bool = config_field(
        default=False, meaning="keep the backbone's batch norms as they are"
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
        meaning='False: train on the validation images too, which leaves only selection: last',
    )
    trained_validation: str = config_field(
        default='',
        meaning='half of the validation images, drawn by label_seed, are trained on with all their '
        'labels, beside the training images or alone; the other half chooses',
        choices=('', 'beside', 'alone'),
    )
    map_definition: str | None = config_field(
        default=None,
        meaning='a class without positives: cole: 0; two_way: left out (a folder)',
        choices=('cole', 'two_way'),
    )
    embedding_dim: int | None = config_field(
        default=None,
        meaning='width of a label-wise head, unset: from that of the backbone, at most 2048',
        above=0,
    )
    side: str = config_field(
        default='',
        meaning='a file with what a method needs beyond labels, see spml_nb/data/side.py',
    )
    hparams: dict = dataclasses.field(
        default_factory=dict,
        metadata={'meaning': "the method's own; unset ones at the paper's value"},
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
            one_of(name, fields, 'parameter', remedy)
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
        """As from `dataclasses.replace`, but quick: only the new values are checked."""
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
    """The type of a field, and whether the field may be unset."""
    hint: Any = _fields()[name].type
    kind, *none = typing.get_args(hint) or (hint,)
    return kind, bool(none)


def _checked(field: dataclasses.Field[Any], value: Any) -> Any:
    """A value for a field, in the field's type.

    Raises:
        SpmlError: for a value that the field does not take.
    """
    if value is field.default:
        return value
    value = _converted(field.name, value)
    if value is None:
        return None
    limits = field.metadata
    if limits.get('choices'):
        one_of(value, limits['choices'], field.name)
    if limits.get('above') is not None and value <= limits['above']:
        raise SpmlError(f'{field.name} must be above {limits["above"]}, not {value}.')
    if limits.get('at_least') is not None and value < limits['at_least']:
        raise SpmlError(f'{field.name} must be {limits["at_least"]} or more, not {value}.')
    if limits.get('below') is not None and value >= limits['below']:
        raise SpmlError(f'{field.name} must be below {limits["below"]}, not {value}.')
    return value


def _converted(name: str, value: Any) -> Any:
    kind, may_be_unset = _kind(name)
    if value is None and may_be_unset:
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
        return value  # quick; NaN, infinity and whole numbers of any length go to require_kind
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    return require_kind(value, kind, f'parameter {name!r}')


def class_names(value: object) -> object:
    """Names from a text such as 'skin, hair', or from a list, in which YAML may have put 2019."""
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

# How long a stage may take. Validation decides within that, where Cole et al. train for a fixed 25
# epochs on frozen features and 10 end to end, where an epoch costs far more. The small backbone of
# the miniatures knows single objects and no scenes, so it learns for longer.
LONG_TRAINING = {'epochs': 60, 'patience': 10}
SHORT_TRAINING = {'epochs': 15, 'patience': 4}
MINI_TRAINING = {'epochs': 120, 'patience': 10}

# image sizes are those of the ImageNet weights; the papers' 448 is for other networks
_OF_BACKBONE = {
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
        length = MINI_TRAINING if backbone == 'mini' else SHORT_TRAINING
    fitted = _OF_BACKBONE.get(backbone, {'lr': 1e-5, 'image_size': 448})
    lr = 1e-3 if regime == 'linear' else fitted['lr']
    return {**PROTOCOL, **length, 'lr': lr, 'image_size': fitted['image_size']}


def default_labels(dataset: str) -> str:
    """What a run observes unless `labels` says otherwise.

    Returns:
        'single' for a named set, as in the papers, 'target' for L48; 'full', all that the table
        knows, for a folder of one's own.
    """
    from spml_nb.data.loading import names
    from spml_nb.data.official.registry import DEFAULT_LABELS

    return DEFAULT_LABELS.get(dataset, 'single') if dataset in names() else 'full'


def resolve(config: Config) -> Config:
    """Set every field: to what was given, else to the method's recipe, else to the protocol's
    value.

    Returns:
        A configuration in which only `root` and `embedding_dim` may be None.

    Raises:
        SpmlError: for an unknown method, hyper-parameter or device, a head or view that the method
            cannot use, or side information that it needs and is not given, or the other way round.
    """
    # here, so that tables of runs need no torch
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
    # a folder that is called like a family is none
    published_for = 'other' if config.dataset in FAMILIES.values() else config.dataset
    resolved = config.changed(
        **{name: value for name, value in defaults.items() if getattr(config, name) is None},
        hparams=resolve_hparams(config.loss, published_for, config.hparams),
        device=str(settings.device(config.device)),
        side=_pinned_side(config, method),
    )
    if method.heads is not None:
        one_of(resolved.head, method.heads, f'head for {config.loss!r}')
    in_set = f"view of views={resolved.views!r}, which {config.loss!r} needs"
    for role in method.views:
        one_of(role, VIEW_SETS[str(resolved.views)], in_set)
    return resolved


def _pinned_side(config: Config, method: type['Method']) -> str:
    """The file of side information with its fingerprint, '' for a method that uses none."""
    from spml_nb.data.side import pin_side_file

    if config.side and not method.side:
        raise SpmlError(
            f'side={config.side!r}, and {config.loss!r} learns from labels alone. Leave `side` '
            'out, or give a method that uses it, such as epr_count.'
        )
    if method.side and not config.side:
        raise SpmlError(
            f"{config.loss!r} learns from more than labels ({', '.join(method.side)}) and `side` "
            'names no file. Give one: -p side FILE; spml_nb/data/side.py says what is in it.'
        )
    return pin_side_file(config.side) if config.side else ''


# What the fields stood for that older versions did not have. They count in the name of a run only
# where they differ from this, so that no new field renames a run.
ADDED = {
    'embedding_dim': None,
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
    """`ADDED` for a data set, by name or folder: miniatures had other views."""
    is_miniature = Path(dataset).name.startswith('mini_')
    return ADDED | {'views': 'shift' if is_miniature else 'flip'}


def complete_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a run, with those that it was trained without.

    Args:
        fields: of a configuration, as in `config.json`, perhaps of an older version.

    Returns:
        The same; what did not exist yet or was unset has the value that it stood for.

    Raises:
        SpmlError: where the data set is no text.
    """
    before = neutral_fields(require_kind(fields['dataset'], str, "parameter 'dataset'"))
    return fields | {name: value for name, value in before.items() if fields.get(name) is None}


def config_to_dict(config: Config) -> dict[str, Any]:
    """A configuration as in `config.json`: {field: value}, with tuples as lists."""
    return json.loads(json.dumps(vars(config)))


def _renaming(config: Config) -> dict[str, Any]:
    """What tells a run from older ones with the same fields: the label-wise head was another, and
    SGD was Nesterov's.

    A change of the code that gives the same fields another meaning is added here, so that no old
    run passes for a new one.
    """
    renaming: dict[str, Any] = {}
    if config.head == 'labelwise':
        renaming['decoder'] = 2
    if config.optimizer == 'sgd':
        renaming['nesterov'] = config.nesterov
    return renaming


def config_hash(config: Config, without: tuple[str, ...] = ()) -> str:
    """The name of a configuration.

    Args:
        config: resolved.
        without: fields that do not count.

    Returns:
        Twelve hexadecimal digits.
    """
    before = neutral_fields(config.dataset)
    counting = {
        name: value
        for name, value in vars(config).items()
        if name not in without and (name not in before or value not in (before[name], None))
    }
    counting |= _renaming(config)
    if config.side:
        counting['side'] = Path(config.side).name  # its content, wherever it lies
    text = json.dumps(counting, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:12]


def science_key(config: Config, data: str | None = None) -> str:
    """What tables look a run up by; it is the same on every machine.

    Args:
        config: resolved.
        data: the fingerprint of its data; unset: a folder that is no named data set is read for it.

    Returns:
        Loss, data set and twelve hexadecimal digits, in which `device` and `root` do not count. A
        folder counts by its name and fingerprint, not by its path.

    Raises:
        SpmlError: if a folder has to be read and cannot be.
    """
    from spml_nb.data.loading import names

    name = Path(config.dataset).name
    if config.dataset not in names():
        config = config.changed(dataset=f'{name}@{data or fingerprint_folder(config)}')
    return f"{config.loss}-{name}-{config_hash(config, without=('device', 'root'))}"


def fingerprint_folder(config: Config) -> str:
    """The fingerprint of a folder of photos as it is now; quick when asked again.

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
    """What tells a folder of photos from its earlier state, without reading it.

    Args:
        dataset: the name or folder of a data set.
        root: as in `Config`.

    Returns:
        Time and size of its table and of `images`; empty for a named data set.
    """
    from spml_nb.data.folder import candidate_folders, first_existing_folder
    from spml_nb.data.loading import names

    if dataset in names():
        return ()
    folder = first_existing_folder(candidate_folders(dataset, root))
    files = [folder / 'labels.csv', folder / 'images']
    return tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.exists())


@cache
def _fingerprint(changed: tuple[tuple[int, int], ...], *place: Any) -> str:
    from spml_nb.data.loading import load

    with warnings.catch_warnings(action='ignore'):  # whoever trains on the folder is warned
        return load(*place).fingerprint


_OF_JUPYTER = {'In', 'Out', 'get_ipython', 'exit', 'quit', 'open', 'display'}


def _user_names(namespace: dict[str, Any]) -> set[str]:
    return {
        name
        for name, value in namespace.items()
        if not (name.startswith('_') or name in _OF_JUPYTER or isinstance(value, types.ModuleType))
    }


def notebook_parameters(namespace: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """Guard the parameters cell of a notebook; call it in the first cell with `globals()`.

    papermill writes its `-p` values into a new cell after the one tagged `parameters`. Without this
    guard, a misspelt name would be set and never read; without the tag, the new cell would come
    first and be overwritten. Both would train the wrong run with exit status 0.

    Args:
        namespace: the globals of the notebook.

    Returns:
        A function to call after the parameters cell; it returns {name: value} of what was set
        there.

    Raises:
        SpmlError: if parameters were injected before the first cell, which means that the tag
            `parameters` is missing.
    """
    if '_parameters' in namespace:
        earlier: Callable[[], dict[str, Any]] = namespace['_parameters']
        return earlier  # the first cell again, in the same kernel
    before = _user_names(namespace)
    early = sorted(name for name in before if name in _fields() or not callable(namespace[name]))
    if early:
        raise SpmlError(
            f"parameters {', '.join(early)} were set before the notebook's first cell: the cell "
            "with the defaults has lost its tag 'parameters', so they would be overwritten. Give "
            "it the tag again (JupyterLab: property inspector, cell tags)."
        )
    of_first_call: set[str] = set()

    def parameters() -> dict[str, Any]:
        names = {
            name for name in _user_names(namespace) - before if namespace[name] is not parameters
        }
        if not of_first_call:
            of_first_call.update(names)
        # later cells set names of their own, which are no parameters unless they are fields
        return {
            name: namespace[name]
            for name in sorted(names)
            if name in of_first_call or name in _fields()
        }

    namespace['_parameters'] = parameters
    return parameters
