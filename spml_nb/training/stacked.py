"""Many heads in one pass: runs on the same frozen features that differ only in seeds and learning
rate are trained as one stack.
"""

# On a GPU a step of a head takes as long as its kernels take to launch, however little they
# compute. With the weights and the states of R runs stacked along a new first axis,
# `torch.func.vmap` launches each kernel once for all of them. Everything else of a run is a run's
# own: the order of its batches, its learning rate, its best epoch, its early stopping, its folder.

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from ..base.errors import SpmlError
from ..methods.core import Method, find
from ..runs.config import Config, resolve
from ..runs.folder import Run, locate_run
from .batches import FeatureSource, hash_weights
from .schedule import create_optimizer, make_optimizer, make_schedule
from .selection import predict_logits
from .task import Task, make_task
from .trainer import Trainer, finish_run, require_scalar

FREE = ('seed', 'label_seed', 'lr')  # fields of `Config` in which the runs of a stack may differ
HEADS = ('linear', 'cosine')  # on one vector per image, of which a GPU holds all


def explain_alone(config: Config) -> str:
    """Why a run cannot be part of a stack; '' if it can.

    Args:
        config: resolved.
    """
    method = find(config.loss)
    if config.regime != 'linear':
        return f'regime {config.regime} trains the backbone'
    if config.head not in HEADS:
        return f'the head {config.head} learns on feature maps'
    if method.stacks is None:
        return f'the steps of {config.loss} cannot be stacked'
    if len(method.views) > 1 or method.stages > 1:
        return f'{config.loss} needs several views or stages'
    if config.compile or config.precision != 'float32':
        return 'stacks are neither compiled nor in half precision'
    return ''


def stack_key(config: Config) -> str:
    """A text that is the same for runs that may be in one stack.

    Args:
        config: resolved, of a run that can be part of a stack.
    """
    differing = find(config.loss).stacks
    shared = {name: value for name, value in vars(config).items() if name not in FREE}
    shared['hparams'] = {k: v for k, v in config.hparams.items() if k not in differing}
    return json.dumps(shared, sort_keys=True)


def train_stacked(configs: Iterable[Config]) -> Iterator[tuple[Config, SpmlError | None]]:
    """Train runs as stacks. Each has its own folder, and is done as soon as it stops; nothing is
    kept of runs that were not done when the process ended.

    Args:
        configs: with one `stack_key`.

    Yields:
        (configuration, None or the error that ended the run), for each run that was trained. Runs
        that are done or begun, and those that share their stack with no other, are left out: these
        are for `spml_nb.training.train`.

    Raises:
        SpmlError: for wrong input.
    """
    with contextlib.ExitStack() as locks:
        for members in _group_members(_open_members(configs, locks)):
            if len(members) > 1:
                yield from _train_members(members)


class _HeldRun(Run):
    "A run whose weights are held in memory until its end."

    def __init__(self, run: Run):
        self.config = run.config
        self.folder = run.folder
        self.held = {}

    def save(self, name: str, state: dict):
        # copies, as the weights are views of the stack, which goes on changing
        self.held[name] = {part: _copied(values) for part, values in state.items()}

    def restore(self, name: str) -> dict | None:
        return self.held.get(name)

    def finish(self, result: dict):
        super().save('best.pt', self.held['best.pt'])
        super().finish(result)


def _copied(values: dict) -> dict:
    return {k: v.clone() if isinstance(v, Tensor) else v for k, v in values.items()}


class _Member(Trainer):
    "A run of a stack: a trainer whose steps are taken by the stack."

    shared: FeatureSource | None = None  # the features of another member
    size = 1  # runs in the stack

    def __init__(self, given: Config, run: Run, task: Task, lock: contextlib.ExitStack):
        super().__init__(run.config, _HeldRun(run), task)
        self.given = given
        self.lock = lock
        self.backbone = hash_weights(self.model)
        self.rng = torch.get_rng_state()

    @contextlib.contextmanager
    def own_randomness(self):
        "Random numbers as if no other run were trained."
        torch.set_rng_state(self.rng)
        yield
        self.rng = torch.get_rng_state()

    def signature(self) -> tuple:
        "Equal for members that can be trained as one stack."
        shapes = {name: value.shape for name, value in _state(_Step(self))}
        data = self.task.data.fingerprint
        return self.backbone, data, self.task.length, shapes, _method_settings(self.method)

    def open(self, first: '_Member', size: int):
        "Prepare for the first epoch, with the features of the first member."
        self.size = size
        if first is not self:
            self.shared = first.source
        with self.own_randomness():
            self.run.start()
            self.prepare()
            self.begin(1, self.stages[0])

    def frozen_features(self) -> FeatureSource:
        return self.shared or super().frozen_features()

    def predict(self, module: nn.Module, rows: np.ndarray, view: str = 'plain') -> Tensor:
        # few large batches, as each takes several kernels
        return predict_logits(module, self.method, self.source, rows, view, batch_size=4096)

    def close(self, losses: Tensor, share: float) -> SpmlError | None:
        """End an epoch, and the run if it was the last one.

        Args:
            losses: (steps,), on the CPU.
            share: of the steps' seconds.

        Returns:
            The error that ends the run, if any.
        """
        try:
            with self.own_randomness():
                self.watch.losses.extend(losses)
                self.watch.steps += len(losses)
                began = time.perf_counter() - share
                self.close_epoch(self.end_epoch(), began)
                if self.over:
                    self.end_stage()
                    self.write_curves()
                    self.track(self.curves())
                    finish_run(self)
        except SpmlError as error:
            return error
        return None

    def write(self):
        "Nothing before the end of the run."

    def provenance(self) -> dict:
        return {**super().provenance(), 'stacked': self.size}


def _open_members(configs: Iterable[Config], locks: contextlib.ExitStack) -> list[_Member]:
    "Lock the runs that are neither done nor begun, and set them up."
    tasks = {}
    for given in configs:
        config = resolve(given)
        task = make_task(config)
        first = next(iter(tasks.values()), (None, task))[1]
        if task.data.fingerprint == first.data.fingerprint:
            task = replace(task, data=first.data)  # one copy in memory
        tasks[locate_run(config, data=task.data.fingerprint)] = given, task
    members = []
    # in one order, so that two processes never wait for each other
    for run in sorted(tasks, key=lambda run: run.folder):
        lock = locks.enter_context(contextlib.ExitStack())
        lock.enter_context(run.lock())
        if run.done or (run.folder / 'last.pt').is_file():
            lock.close()
            continue
        member = _Member(tasks[run][0], run, tasks[run][1], lock)
        for other in members[:1]:
            member.images = other.images
            if member.backbone == other.backbone:
                member.model.backbone = other.model.backbone
        members.append(member)
    return members


def _group_members(members: list[_Member]) -> list[list[_Member]]:
    "Groups of members that can be trained as one stack."
    groups = []
    for member in members:
        signature = member.signature()
        for other, group in groups:
            if signature == other:
                group.append(member)
                break
        else:
            groups.append((signature, [member]))
    return [group for _, group in groups]


# attributes that say nothing of how a method learns
_BOOKKEEPING = {*vars(nn.Module()), '_calls', '_hparams'}


def _method_settings(method: Method) -> dict:
    """All that a method's step depends on besides its parameters and buffers, without the
    hyper-parameters in which the runs of a stack may differ.
    """
    ignored = _BOOKKEEPING | set(method.stacks)
    return {name: value for name, value in vars(method).items() if name not in ignored}


class _Step(nn.Module):
    "The head and the method of a run as one module, from a batch of features to its loss."

    def __init__(self, member: _Member):
        super().__init__()
        self.head = member.model.head
        self.method = member.method
        self.name = member.config.loss

    def forward(self, features: Tensor, index: Tensor) -> Tensor:
        loss = self.method.step(self.head, {self.method.views[0]: features}, index)
        require_scalar(loss, self.name)
        return loss


def _state(module: nn.Module) -> list[tuple[str, Tensor]]:
    return list(chain(module.named_parameters(), module.named_buffers()))


def _tie(modules: list[nn.Module], stacked: dict[str, Tensor]):
    "Make the state of each module a view of its row of the stacked state."
    for row, module in enumerate(modules):
        for name, value in _state(module):
            value.data = stacked[name][row]


class _Optimizer:
    """The optimiser of all runs of a stack: one of torch, which has no learning rate for each run.

    Every step of Adam, AdamW and SGD is proportional to the learning rate. So torch's optimiser,
    at rate 1, moves tensors that are 0, and each run's weights take its rate times that move.

    Args:
        members: begun.
        steps: the modules of the members.
        params: {name: (R, …)}.
    """

    def __init__(self, members: list[_Member], steps: list[_Step], params: dict[str, Tensor]):
        first = members[0]
        self.config = first.config
        found = [_optimizer_groups(*pair) for pair in zip(members, steps, strict=True)]
        self.params = {name: params[name] for name in found[0]}
        self.decay = {name: group['weight_decay'] for name, group in found[0].items()}
        self.rates = {name: [groups[name]['lr'] for groups in found] for name in self.params}
        self.columns = {
            name: torch.tensor(rates, dtype=params[name].dtype, device=first.device).view(
                -1, *[1] * (params[name].ndim - 1)
            )
            for name, rates in self.rates.items()
        }
        self.moves = {name: torch.zeros_like(p) for name, p in self.params.items()}
        groups = [{'params': list(self.moves.values())}]
        self.torch = create_optimizer(self.config, groups, lr=1.0, weight_decay=0.0)
        batches = -(-first.task.length // self.config.batch_size)
        self.schedule = make_schedule(self.config, self.torch, first.stage.epochs * batches)

    @property
    def factor(self) -> float:
        "What the schedule multiplies every learning rate by."
        return self.torch.param_groups[0]['lr']

    def step(self, gradients: dict[str, Tensor]):
        "gradients: {name: (R, …)}."
        decoupled = self.config.optimizer == 'adamw'
        for name, p in self.params.items():
            gradient, decay = gradients[name], self.decay[name]
            if decay and decoupled:
                p.mul_(1 - self.columns[name] * (self.factor * decay))
            elif decay:
                gradient = gradient.add(p, alpha=decay)
            self.moves[name].grad = gradient
        self.torch.step()
        for name, p in self.params.items():
            p.addcmul_(self.moves[name], self.columns[name])
        torch._foreach_zero_(list(self.moves.values()))
        self.schedule.step()


def _optimizer_groups(member: _Member, step: _Step) -> dict[str, dict]:
    "{name of a parameter: its group} in the optimiser of a single run."
    # the member's own optimiser no longer has the rates from which its schedule starts
    optimizer = make_optimizer(member.config, member.stage, member.model, member.method)
    groups = {id(p): group for group in optimizer.param_groups for p in group['params']}
    return {name: groups[id(p)] for name, p in step.named_parameters() if id(p) in groups}


class _Stack:
    """The heads and methods of several runs as one.

    Args:
        members: begun; their weights and states become views of the stack's.
    """

    def __init__(self, members: list[_Member]):
        self.members = members
        self.source = members[0].source
        self.device = members[0].device
        self.steps = [_Step(member) for member in members]
        params, self.buffers = stack_module_state(self.steps)
        self.params = {name: p.detach() for name, p in params.items()}
        self.optimizer = _Optimizer(members, self.steps, self.params)
        _tie(self.steps, self.params | self.buffers)
        self.averaged = {}
        if members[0].averaged is not None:
            self.averaged = {
                name: self.params[f'head.{name}'].clone()
                for name, _ in members[0].module.named_parameters()
            }
            _tie([member.averaged.module for member in members], self.averaged)
        self.orders = [None] * len(members)

    @torch.no_grad()
    def step(self, rows: Tensor, index: Tensor) -> Tensor:
        """Train all runs on a batch each.

        Args:
            rows: (R, B) row numbers of the data set.
            index: (R, B) rows of the observed labels.

        Returns:
            (R,) losses.
        """

        def loss_of(params, buffers, features, index):
            return functional_call(self.lead, (params, buffers), (features, index))

        features = self.source.plain[rows]
        step = vmap(grad_and_value(loss_of))
        gradients, losses = step(self.params, self.buffers, features, index)
        self.optimizer.step(gradients)
        if self.averaged:
            decay = self.members[0].averaged.decay
            live = [self.params[f'head.{name}'] for name in self.averaged]
            torch._foreach_lerp_(list(self.averaged.values()), live, 1 - decay)
        return losses

    def start_epoch(self, active: list[_Member]):
        "Let each run draw its order. The rows of runs that have ended are trained on, unseen."
        for row, member in enumerate(self.members):
            if member in active:
                with member.own_randomness():
                    self.orders[row] = member.start_epoch()
        # the attributes of one method stand for those of all
        self.lead = self.steps[self.members.index(active[0])]
        settings = _method_settings(self.lead.method)
        if any(_method_settings(member.method) != settings for member in active):
            raise SpmlError(
                f'runs of {self.lead.name!r} cannot be stacked: their methods differ in more than '
                "tensors. Set `stacks = None` in its class, or use engine='local'."
            )

    def run_epoch(self, active: list[_Member]) -> Tensor:
        "Returns: (steps, R) losses, on the CPU."
        self.start_epoch(active)
        rows = [
            torch.from_numpy(member.task.train)[order]
            for member, order in zip(self.members, self.orders, strict=True)
        ]
        size = active[0].config.batch_size
        batches = zip(
            torch.stack(rows).to(self.device).split(size, 1),
            torch.stack(self.orders).to(self.device).split(size, 1),
            strict=True,
        )
        return torch.stack([self.step(*batch) for batch in batches]).cpu()


def _train_members(members: list[_Member]) -> Iterator[tuple[Config, SpmlError | None]]:
    "Train a stack. Yields as `train_stacked`."
    for member in members:
        member.open(members[0], len(members))
    stack = _Stack(members)
    active = members
    while active:
        began = time.perf_counter()
        losses = stack.run_epoch(active)
        share = (time.perf_counter() - began) / len(active)
        rates = stack.optimizer.rates['head.weight']
        left = []
        for row, member in enumerate(members):
            if member not in active:
                continue
            member.optimizer.param_groups[0]['lr'] = rates[row] * stack.optimizer.factor
            error = member.close(losses[:, row], share)
            if error is None and not member.over:
                left.append(member)
                continue
            member.lock.close()
            yield member.given, error
        print(f'epoch {active[0].epoch:2d}: {len(active)} of {len(members)} runs', flush=True)
        active = left
