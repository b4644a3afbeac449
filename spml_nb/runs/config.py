"""Everything that decides a run, checked, completed and named by a hash."""

import dataclasses
import hashlib
import json
import os
import types
import typing
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..base import settings
from ..base.errors import SpmlError, as_kind, one_of

HEADS = (
    'linear',
    'cosine',
    'labelwise',
)  # for any loss; that of maps predicts what the linear one does
VIEW_SETS = {  # what the roles of a method's views mean: {role: view of spml_nb.data.views}
    'flip': {'plain': 'plain', 'weak': 'flip', 'strong': 'strong'},  # photos squashed to a square
    'flip_bare': {
        'plain': 'plain',
        'weak': 'flip',
        'strong': 'strong_bare',
    },  # LAC's strong view as in its paper
    'shift': {
        'plain': 'plain',
        'weak': 'shift',
        'strong': 'strong_shift',
    },  # drawn digits, not to be mirrored
    'shift_hue': {
        'plain': 'plain',
        'weak': 'shift',
        'strong': 'strong_shift_hue',
    },  # the hue is a label
    'crop': {'plain': 'centre', 'weak': 'crop'},
}  # whole photos, cropped: Two-way
CHOICES = {
    'regime': ('finetune', 'linear', 'linear_init'),
    'selection': ('val_clean', 'val_observed', 'last'),
    'optimizer': ('adam', 'adamw', 'sgd'),
    'schedule': ('constant', 'cosine', 'onecycle'),
    'precision': ('float32', 'bf16', 'fp16'),
    'head': (*HEADS, 'maps'),
    'views': VIEW_SETS,
    'map_definition': ('cole', 'two_way'),
}


_LIMITS = (  # fields, what their values fulfil, and that in words
    (
        (
            'epochs',
            'batch_size',
            'lr',
            'linear_epochs',
            'linear_lr',
            'image_size',
            'head_lr_multiplier',
            'cached_views',
            'embedding_dim',
        ),
        lambda value: value > 0,
        'above 0',
    ),
    (
        (
            'min_positives',
            'weight_decay',
            'momentum',
            'ema',
            'patience',
            'stop_below',
            'seed',
            'label_seed',
            'train_images',
            'frozen_stages',
        ),
        lambda value: value >= 0,
        '0 or more',
    ),
    (('seed', 'label_seed'), lambda value: value < 2**32, 'below 2³²'),
    (('momentum', 'ema'), lambda value: value < 1, 'below 1'),
)


@dataclass(frozen=True, init=False)
class Config:
    """Everything that decides a run. Every field is a keyword argument; numeric strings are
    accepted for numbers.

    Raises:
        SpmlError: for an unknown field, a value of the wrong kind, or one that is not allowed.

    Source: the protocol of Cole et al. (2021), unless a field says otherwise.
    """

    loss: str = 'em'  # a registered method
    dataset: str = 'mini_voc'  # a name, or a folder with images/ and labels.csv
    root: str | None = None  # where named data sets live, unset: the setting `data`
    min_positives: int = 0  # leave out classes with fewer positives
    exclude: tuple = ()  # leave out these classes
    labels: str | None = (
        None  # observed: single, full, partial-0.3, …; unset: full for a folder, else single
    )
    label_seed: int = 1200  # of the draw of observed labels
    train_images: int = 0  # so many of the training images, drawn by label_seed; 0: all of them
    seed: int = 0  # of initialisation, order and augmentation
    regime: str = (
        'finetune'  # finetune: end to end; linear: on frozen features; linear_init: both in turn
    )
    backbone: str | None = None  # unset: mini for the miniatures, resnet50 otherwise
    weights: str = 'default'  # of the backbone: default, none, or a file
    head: str | None = None  # unset: the method's
    image_size: int | None = (
        None  # pixels per side, unset: 40 for mini, 224 for efficientnet_lite0, else 448
    )
    epochs: int | None = (
        None  # of each stage at most, unset: 15, 60 on frozen features, 120 for mini
    )
    batch_size: int | None = None  # images in a step
    lr: float | None = None  # of the backbone, and of the head on frozen features
    head_lr_multiplier: float | None = None  # head against backbone, end to end
    linear_epochs: int | None = None  # of linear_init's first stage at most
    linear_lr: float | None = None  # of linear_init's first stage
    optimizer: str | None = None
    weight_decay: float | None = None  # of all weights; in the gradient for adam and sgd
    momentum: float | None = None  # sgd only
    nesterov: bool | None = None  # sgd only
    schedule: str | None = None
    ema: float | None = None  # highest decay of the averaged weights; 0: no averaging
    selection: str = (
        'val_clean'  # best epoch by fully labelled validation, by observed labels, or the last
    )
    patience: int | None = None  # end a stage after so many epochs without a better score; 0: never
    stop_below: float | None = (
        None  # stop when validation falls this many mAP under its best; 0: never
    )
    cached_views: int = 4  # draws of each augmented view kept for an image on frozen features
    precision: str = 'float32'  # of the forward pass: float32, or autocast to bf16 or fp16
    device: str | None = None  # unset: the setting `device`
    frozen_stages: int = (
        0  # leading stages of the backbone that stay as they are; the first is the stem
    )
    freeze_batchnorm: bool = False  # keep the backbone's batch norms as they are
    normalise: bool = True  # subtract the backbone's mean and divide by its std
    compile: bool = False  # let torch compile the network, with CUDA graphs on a GPU
    views: str | None = (
        None  # of VIEW_SETS, unset: flip, or for miniatures shift (strong views: shift_hue)
    )
    hold_out: bool = (
        True  # False: train on the validation images too, which leaves only selection: last
    )
    map_definition: str | None = (
        None  # a class without positives: cole: 0; two_way: left out (a folder)
    )
    embedding_dim: int | None = (
        None  # width of a label-wise head, unset: from that of the backbone, at most 2048
    )
    side: str = ''  # a file with what a method needs beyond labels, see spml_nb/data/side.py
    hparams: dict = dataclasses.field(
        default_factory=dict
    )  # the method's own; unset ones at the paper's value

    def __init__(self, **given):
        kinds, remedy = _kinds(), 'Every parameter is a field of `spml_nb.runs.config.Config`.'
        for name in sorted(given.keys() - kinds.keys()):
            one_of(name, kinds, 'parameter', remedy)
        for name, kind in kinds.items():
            default = {} if name == 'hparams' else getattr(Config, name)
            object.__setattr__(
                self, name, _as_field(name, given[name], *kind) if name in given else default
            )
        self._check()

    def _check(self):
        def given(*names):
            return (
                (name, getattr(self, name)) for name in names if getattr(self, name) is not None
            )

        for name, value in given(*CHOICES):
            one_of(value, CHOICES[name], name)
        for names, fits, allowed in _LIMITS:
            for name, value in given(*names):
                if not fits(value):
                    raise SpmlError(f'{name} must be {allowed}, not {value}.')
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


@cache
def _kinds() -> dict[str, tuple[type, bool]]:
    "{field: (its kind, whether it may be unset)}."
    of = {
        name: typing.get_args(hint) or (hint,)
        for name, hint in typing.get_type_hints(Config).items()
    }
    return {name: (kinds[0], len(kinds) > 1) for name, kinds in of.items()}


def _as_field(name: str, value, kind: type, may_be_unset: bool):
    "A field's value in the field's kind."
    if value is None and may_be_unset:
        return None
    if isinstance(value, str) and '\0' in value:
        raise SpmlError(f'parameter {name!r} must be without NUL characters, not {value!r}.')
    if isinstance(value, int | float) and kind in (str, tuple):
        raise SpmlError(
            f'parameter {name!r} must be {"a text" if kind is str else "a list"}, not {value!r} '
            f'({type(value).__name__}). From papermill, -r {name} {value} gives it as a text.'
        )
    if type(value) is kind and kind not in (int, float):
        return value  # numbers may be out of range
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if name == 'exclude' and isinstance(value, str):
        value = [part.strip() for part in value.split(',') if part.strip()]
    elif name == 'exclude' and isinstance(value, list | tuple):
        value = [
            str(part) if type(part) is int else part for part in value
        ]  # a class may be called 2019
    return as_kind(value, kind, f'parameter {name!r}')


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
LONG, SHORT = {'epochs': 60, 'patience': 10}, {'epochs': 15, 'patience': 4}  # allowances of a stage
OF_MINI = {'epochs': 120, 'patience': 10}
OF_BACKBONES = {'mini': (40, 1e-3), 'efficientnet_lite0': (224, 1e-4)}  # image_size, lr end to end


def _protocol(config: Config, backbone: str) -> dict:
    "The protocol's values for a regime and backbone."
    size, lr = OF_BACKBONES.get(backbone, (448, 1e-5))
    linear = config.regime == 'linear'
    allowance = LONG if linear else OF_MINI if backbone == 'mini' else SHORT
    return {**PROTOCOL, **allowance, 'lr': 1e-3 if linear else lr, 'image_size': size}


def default_labels(dataset: str) -> str:
    """What a run observes unless it is told otherwise.

    Args:
        dataset: the name or folder of a data set.

    Returns:
        'single' for a named set, as in the papers; 'full', all that the table knows, for a folder
        of one's own.
    """
    from spml_nb.data.loading import names

    return 'single' if dataset in names() else 'full'


def resolve(config: Config) -> Config:
    """Set every field: to what was given, else to the method's recipe, else to the protocol's
    value.

    Args:
        config: any configuration.

    Returns:
        A configuration in which only `root` and `embedding_dim` may be None.

    Raises:
        SpmlError: for an unknown method, hyper-parameter or device, a head or view that the method
            cannot use, or side information that it needs and is not given, or the other way round.
    """
    from spml_nb.data.dataset import FAMILIES, MINIATURES
    from spml_nb.data.loading import names
    from spml_nb.methods.core import find, resolve_hparams  # so that tables of runs need no torch

    method, drawn = find(config.loss), config.dataset in MINIATURES  # never a folder of the user's
    backbone = config.backbone or ('mini' if drawn else 'resnet50')
    views = ('shift_hue' if 'strong' in method.views else 'shift') if drawn else 'flip'
    hparams = resolve_hparams(  # a folder named voc is no family
        config.loss,
        'other' if config.dataset in FAMILIES.values() else config.dataset,
        config.hparams,
    )
    definition = 'cole' if config.dataset in names() else 'two_way'  # the papers' for their sets
    unset = {
        **_protocol(config, backbone),
        **method.recipe,
        'labels': default_labels(config.dataset),
        'backbone': backbone,
        'head': method.head,
        'views': views,
        'map_definition': definition,
    }
    values = vars(config) | {k: v for k, v in unset.items() if getattr(config, k) is None}
    values |= {
        'hparams': hparams,
        'device': str(settings.device(config.device)),
        'side': _side(config, method),
    }
    if method.heads is not None:
        one_of(values['head'], method.heads, f'head for {config.loss!r}')
    in_set = f"view of views={values['views']!r}, which {config.loss!r} needs"
    for role in method.views:
        one_of(role, VIEW_SETS[values['views']], in_set)
    return Config(**values)


def _side(config: Config, method: type) -> str:
    "The file of side information with its fingerprint, '' for a method that uses none."
    from spml_nb.data.side import pinned

    if bool(config.side) == bool(method.side):
        return pinned(config.side) if config.side else ''
    if config.side:
        raise SpmlError(
            f'side={config.side!r}, and {config.loss!r} learns from labels alone. Leave `side` '
            'out, or give a method that uses it, such as epr_count.'
        )
    raise SpmlError(
        f"{config.loss!r} learns from more than labels ({', '.join(method.side)}) and `side` names "
        "no "
        'file. Give one: -p side FILE; spml_nb/data/side.py says what is in it.'
    )


ADDED = {
    'embedding_dim': None,
    'frozen_stages': 0,
    'freeze_batchnorm': False,
    'normalise': True,
    'views': lambda dataset: 'shift' if Path(dataset).name.startswith('mini_') else 'flip',
    'hold_out': True,
    'map_definition': 'cole',
    'compile': False,
    'nesterov': False,
    'train_images': 0,
    'side': '',
}


def neutral(dataset: str) -> dict:
    """What the fields of `ADDED` stood for before they existed.

    Args:
        dataset: the name or folder of a data set.

    Returns:
        {field: value}.
    """
    return {name: value(dataset) if callable(value) else value for name, value in ADDED.items()}


def completed(fields: dict) -> dict:
    """The fields of a run, with those that it was trained without.

    Args:
        fields: of a configuration, as in `config.json`, perhaps of an older version.

    Returns:
        The same; what did not exist yet or was unset has the value that it stood for.

    Raises:
        SpmlError: where the data set is no text.
    """
    before = neutral(as_kind(fields['dataset'], str, "parameter 'dataset'"))
    return fields | {name: value for name, value in before.items() if fields.get(name) is None}


def as_dict(config: Config) -> dict:
    """A configuration as plain data, as in `config.json`.

    Args:
        config: any configuration.

    Returns:
        {field: value}, with tuples as lists.
    """
    return json.loads(json.dumps(vars(config)))


def _revised(config: Config) -> dict:
    """What tells a run from older ones with the same fields: the label-wise head was another, and
    SGD was Nesterov's.
    """
    return ({'decoder': 2} if config.head == 'labelwise' else {}) | (
        {'nesterov': config.nesterov} if config.optimizer == 'sgd' else {}
    )


def config_hash(config: Config, without: tuple[str, ...] = ()) -> str:
    """The name of a configuration.

    Args:
        config: resolved.
        without: fields that do not count.

    Returns:
        Twelve hexadecimal digits.
    """
    before = neutral(config.dataset)
    counts = {
        name: value
        for name, value in as_dict(config).items()
        if name not in without and (name not in before or value not in (before[name], None))
    } | _revised(config)
    if config.side:
        counts['side'] = Path(config.side).name  # its content, wherever it lies
    text = json.dumps(counts, sort_keys=True, ensure_ascii=False)
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
    if config.dataset not in names():  # a folder
        data = data or _fingerprint(
            stamp(config.dataset, config.root),
            config.dataset,
            config.root,
            config.min_positives,
            config.exclude,
        )
        config = dataclasses.replace(config, dataset=f'{name}@{data}')
    return f"{config.loss}-{name}-{config_hash(config, without=('device', 'root'))}"


def stamp(dataset: str, root: str | None = None) -> tuple:
    """What tells a folder of photos from its earlier state, without reading it.

    Args:
        dataset: the name or folder of a data set.
        root: as in `Config`.

    Returns:
        Time and size of its table and of `images`; empty for a named data set.
    """
    from spml_nb.data.folder import first_there, places
    from spml_nb.data.loading import names

    folders = [] if dataset in names() else [first_there(places(dataset, root))]
    return tuple(
        (file.stat().st_mtime_ns, file.stat().st_size)
        for folder in folders
        for file in (folder / 'labels.csv', folder / 'images')
        if file.exists()
    )


@cache
def _fingerprint(changed: tuple, *place) -> str:
    from spml_nb.data.loading import load

    with warnings.catch_warnings(action='ignore'):  # whoever trains on the folder is warned
        return load(*place).fingerprint


_OF_JUPYTER = {'In', 'Out', 'get_ipython', 'exit', 'quit', 'open', 'display'}


def _user_names(namespace: dict) -> set[str]:
    own = {n for n, v in namespace.items() if not isinstance(v, types.ModuleType)} - _OF_JUPYTER
    return {n for n in own if not n.startswith('_')}


def notebook_parameters(namespace: dict) -> Callable[[], dict]:
    """Guard the parameters cell of a notebook; call it in the first cell with `globals()`.

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
        return namespace['_parameters']  # the first cell again, in the same kernel
    before = _user_names(namespace)
    fields = {f.name for f in dataclasses.fields(Config)}
    early = sorted(n for n in before if n in fields or not callable(namespace[n]))
    if early:
        raise SpmlError(
            f"parameters {', '.join(early)} were set before the notebook's first cell: the cell "
            "with the defaults has lost its tag 'parameters', so they would be overwritten. Give "
            "it the tag again "
            '(JupyterLab: property inspector, cell tags).'
        )
    first = set()

    def given() -> dict:
        own = {n for n in _user_names(namespace) - before if namespace[n] is not given}
        if not first:
            first.update(
                own
            )  # later cells set names of their own: only these and new fields count then
        return {n: namespace[n] for n in sorted(own) if n in first or n in fields}

    namespace['_parameters'] = given
    return given
