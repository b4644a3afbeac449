"""A training step as a GPU would see it, without one: on tensors without values, which nothing can
look at, a whole step of every method mixes no devices and waits for no copy.
"""

import contextlib
import sys
from functools import partial

import pytest
import torch
from steps import C, begin, trainer_of
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from spml_nb import methods
from spml_nb.base import devices
from spml_nb.data import views
from spml_nb.runs.config import VIEW_SETS
from spml_nb.training import stacked
from spml_nb.training import trainer as module_of_trainer

# what torch says where it needs a value of a meta tensor
WAITING = 'meta|Meta|no data|both devices|copies'


class Waits(AssertionError):
    "What a GPU would be waited for."


def within_torchvision() -> bool:
    "Whether torchvision copies constants of its own: of sharpness and hue."
    frame = sys._getframe()
    while frame := frame.f_back:
        if frame.f_code.co_filename.endswith('transforms/v2/functional/_color.py'):
            return True
    return False


class NoWaiting(TorchDispatchMode):
    "Refuses what meta tensors let pass: host matrices among them, and copies not queued."

    def __init__(self, pinned):
        super().__init__()
        self.pinned = pinned  # addresses of memory

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
        on_host = [x for x in tensors if x.is_cpu]
        if not on_host or len(on_host) == len(tensors):
            return result
        name = func.overloadpacket.__name__
        if name in ('_to_copy', 'copy_'):
            queued = kwargs.get('non_blocking') or (name == 'copy_' and any(args[2:]))
            pinned = on_host[0].untyped_storage().data_ptr() in self.pinned
            refused = not (queued and pinned)
        else:
            refused = any(x.ndim for x in on_host)
        if refused and not within_torchvision():
            raise Waits(f'{func} takes tensors of both devices, not queued from pinned memory')
        return result


class NoHostValues(TorchFunctionMode):
    "Refuses tensors that are made on the device of numbers: copies, which no dispatcher sees."

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor) and result.is_meta:
            values = args[-1]
            if not isinstance(values, torch.Tensor) and not within_torchvision():
                raise Waits(f'{func} copies {values}')
        return result


@contextlib.contextmanager
def waiting_refused(pinned):
    with NoWaiting(pinned), NoHostValues():
        yield


@pytest.fixture
def no_waiting(monkeypatch):
    """The mode, on a machine where 'meta' is a device like a GPU: one with a queue, pinned memory,
    mixed precision and fused optimisers.
    """
    pinned = {}

    def note(tensor):
        pinned[tensor.untyped_storage().data_ptr()] = tensor  # which keeps the memory
        return tensor

    empty = torch.empty
    autocast = torch.autocast
    generator = torch.Generator
    monkeypatch.setattr(devices, 'QUEUED', {'meta'})
    monkeypatch.setattr(torch.Tensor, 'pin_memory', lambda tensor: note(tensor.clone()))

    def empty_pinned(*args, pin_memory=False, **kwargs):
        made = empty(*args, **kwargs)
        return note(made) if pin_memory else made

    def autocast_of(device, *args, **kwargs):
        return contextlib.nullcontext() if device == 'meta' else autocast(device, *args, **kwargs)

    monkeypatch.setattr(torch, 'empty', empty_pinned)
    monkeypatch.setattr(torch, 'autocast', autocast_of)
    monkeypatch.setattr(torch, 'Generator', lambda device='cpu': generator())
    monkeypatch.setattr(
        sys.modules['torch.optim.optimizer'],
        '_get_fused_kernels_supported_devices',
        lambda: ['meta'],
    )
    return partial(waiting_refused, pinned)


def check(trainer, mode):
    "One step of each stage, in an epoch in which every mechanism may act."
    for k in range(1, len(trainer.stages) + 1):
        begin(trainer, k)
        with mode():
            trainer.step(torch.arange(6))


@pytest.mark.parametrize('loss', methods.names())
def test_no_step_of_a_method_waits(loss, no_waiting):
    check(trainer_of('meta', loss, regime='finetune', ema=0.9), no_waiting)
    check(trainer_of('meta', loss, regime='linear'), no_waiting)


@pytest.mark.parametrize(
    'given',
    [
        {'optimizer': 'sgd', 'momentum': 0.9, 'schedule': 'onecycle', 'precision': 'bf16'},
        {'optimizer': 'adamw', 'schedule': 'cosine', 'freeze_batchnorm': True},
        {'head': 'maps', 'frozen_stages': 1},
        {'regime': 'linear_init', 'linear_epochs': 1},
        *({'views': views} for views in VIEW_SETS if views != 'crop'),
    ],
    ids=str,
)
def test_no_other_part_of_a_step_waits(given, no_waiting):
    check(trainer_of('meta', 'lac_plc', **given), no_waiting)


@pytest.mark.parametrize('loss', methods.names())
def test_no_step_of_a_stack_waits(loss, no_waiting):
    trainers = [trainer_of('meta', loss, regime='linear', ema=0.9) for _ in range(2)]
    if stacked.explain_alone(trainers[0].config):
        return
    for trainer in trainers:
        begin(trainer, 1)
    stack = stacked._Stack(trainers)
    stack.lead = stack.steps[0]
    index = torch.zeros(2, 6, dtype=torch.long, device='meta')
    with no_waiting():
        stack.step(index, index)


def test_no_crop_waits(no_waiting):
    check(trainer_of('meta', 'an', regime='finetune', views='crop'), no_waiting)


@pytest.mark.parametrize('operations', [views.OPERATIONS, views.CODE_OPERATIONS])
def test_no_operation_of_a_strong_view_waits(operations, no_waiting):
    images = torch.zeros(2, 3, 12, 10, dtype=torch.uint8, device='meta')
    with no_waiting():
        for operation in operations.values():
            assert operation(images, 0.5).shape == images.shape


# ---- planted faults


def plant_item(trainer, monkeypatch):
    "A number is read from the loss."
    plain = trainer.method.loss
    monkeypatch.setattr(
        trainer.method, 'loss', lambda *args: plain(*args) * plain(*args).detach().item()
    )


def plant_branch(trainer, monkeypatch):
    "What happens next depends on a tensor."
    plain = trainer.method.loss

    def loss(outputs, index):
        value = plain(outputs, index)
        return value if value > 0 else 0 * value

    monkeypatch.setattr(trainer.method, 'loss', loss)


def plant_mask(trainer, monkeypatch):
    "As many losses as there are positives."

    def loss(outputs, index):
        return -outputs.logits[trainer.method.z[index] > 0].mean()

    monkeypatch.setattr(trainer.method, 'loss', loss)


def plant_unique(trainer, monkeypatch):
    "As many classes as are observed in the batch."

    def loss(outputs, index):
        return outputs.logits.mean() / len(trainer.method.z[index].unique())

    monkeypatch.setattr(trainer.method, 'loss', loss)


def plant_host_matrix(trainer, monkeypatch):
    "A view multiplies by a matrix on the CPU."
    weak = trainer.source.views['weak']
    factor = torch.rand(6, 1, 1, 1)
    monkeypatch.setitem(trainer.source.views, 'weak', lambda images: weak(images) * factor)


def plant_pageable_copy(trainer, monkeypatch):
    "A view's random numbers are copied from memory that is not pinned."
    monkeypatch.setattr(
        views, 'copy_to_device', lambda values, device: values.to(device, non_blocking=True)
    )


def plant_blocking_copy(trainer, monkeypatch):
    "The rows of a batch are copied and waited for."
    monkeypatch.setattr(
        module_of_trainer, 'copy_to_device', lambda values, device: values.to(device)
    )


def plant_counter(trainer, monkeypatch):
    "The averaging of torch, whose counter is on the host."
    averaged = torch.optim.swa_utils.AveragedModel(
        trainer.module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    averaged.update_parameters(trainer.module)
    monkeypatch.setattr(trainer.averaged, 'update', averaged.update_parameters)


def plant_numbers(trainer, monkeypatch):
    "The classes' weights are a list."
    plain = trainer.method.loss

    def loss(outputs, index):
        return plain(outputs, index) * torch.tensor([1.0] * C, device=outputs.logits.device).sum()

    monkeypatch.setattr(trainer.method, 'loss', loss)


FAULTS = [
    plant_item,
    plant_branch,
    plant_mask,
    plant_unique,
    plant_host_matrix,
    plant_pageable_copy,
    plant_blocking_copy,
    plant_counter,
    plant_numbers,
]


@pytest.mark.parametrize('plant', FAULTS)
def test_a_planted_fault_is_found(plant, no_waiting, monkeypatch):
    trainer = trainer_of('meta', 'an', regime='finetune', ema=0.9)
    begin(trainer, 1)
    trainer.step(torch.arange(6))
    plant(trainer, monkeypatch)
    with no_waiting(), pytest.raises((Waits, NotImplementedError, RuntimeError), match=WAITING):
        trainer.step(torch.arange(6))
