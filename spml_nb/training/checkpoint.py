"""Checkpoints: all that the next epoch depends on, written after every epoch."""

import hashlib

import torch
from torch import Tensor

from ..base.errors import SpmlError
from ..data.folder import explain_split
from ..runs.folder import hash_file
from .selection import MEASURES


def _stateful_parts(trainer) -> dict:
    "{name in the checkpoint: object with a `state_dict`} of a `Trainer` in a stage."
    states = {
        name: getattr(trainer, name)
        for name in ('module', 'method', 'optimizer', 'schedule', 'scaler')
    }
    if trainer.averaged is not None:
        states['averaged'] = trainer.averaged
    if hasattr(trainer.on_step, 'state_dict'):
        states['notes'] = trainer.on_step
    return states


def checkpoint_origin(config, task) -> dict:
    """Hashes of the data and weights that a run starts from, to notice when they change.

    Args:
        config: a `Config`.
        task: a `Task`.

    Returns:
        {'data': of photos and labels, 'photos': of the photos, 'task': of the split and the
        observed labels, 'weights': of the weights file, None without one}.
    """
    digest = hashlib.sha256()
    for array in (task.train, task.val, task.test, task.observed, task.observed_val):
        digest.update(f'{array.shape}'.encode() + array.tobytes())
    return {
        'data': task.data.fingerprint,
        'photos': task.data.content,
        'task': digest.hexdigest(),
        'weights': hash_file(config.weights),
    }


_ORIGINS = {
    'data': 'data',
    'photos': 'photos',
    'task': 'rows or observed labels',
    'weights': 'weights',
}


def refuse_other_origin(run, recorded: dict, now: dict, data):
    """Raise an SpmlError if a run started from other data or weights.

    Args:
        run: a `Run`, begun or done.
        recorded: its checkpoint or result, which holds its origin; older versions recorded less.
        now: as from `checkpoint_origin`.
        data: the current `Dataset`.
    """
    for key, words in _ORIGINS.items():
        before, after = recorded.get(key), now.get(key)
        if before is not None and after is not None and before != after:
            why = f' {explain_split(data, before)}'.rstrip() if key == 'data' else ''
            raise SpmlError(
                f'{run.folder} was begun on {words} that have changed since.{why} Remove '
                'that folder to train anew; if you meant another folder of the same name, '
                'give its full path.'
            )


def save_checkpoint(trainer):
    """Write everything that the next epoch depends on.

    Args:
        trainer: a `Trainer`, between two epochs.

    Raises:
        SpmlError: if the disk is full.
    """
    device = trainer.device
    progress = {
        name: getattr(trainer, name)
        for name in ('k', 'epoch', 'history', 'seconds', 'late', 'sessions')
    }
    rng = {
        'cpu': torch.get_rng_state(),
        'cuda': torch.cuda.get_rng_state(device) if device.type == 'cuda' else None,
    }
    trainer.run.save(
        'last.pt',
        {
            **progress,
            **trainer.origin,
            'choices': [[choice.best, choice.over] for choice in trainer.choices],
            'measures': [MEASURES[choice.rule] for choice in trainer.choices],
            'rng': rng,
            **{name: value.state_dict() for name, value in _stateful_parts(trainer).items()},
        },
    )


def load_checkpoint(trainer) -> dict | None:
    """Read the last checkpoint.

    Args:
        trainer: a `Trainer` before its first stage.

    Returns:
        As written by `save_checkpoint`; None if there is none yet.

    Raises:
        SpmlError: if the checkpoint is damaged, or as `refuse_other_origin`.
    """
    saved = trainer.run.restore('last.pt')
    refuse_other_origin(trainer.run, saved or {}, trainer.origin, trainer.task.data)
    return saved


def restore_checkpoint(trainer, saved: dict):
    """Restore progress, weights, optimizer and random number generators.

    Args:
        trainer: a `Trainer`, in the stage of the checkpoint.
        saved: as from `load_checkpoint`.

    Raises:
        SpmlError: if the checkpoint lacks a state, or its scores cannot be compared with new ones.
    """
    for name in ('epoch', 'history', 'seconds', 'late'):
        setattr(trainer, name, saved.get(name, False))  # older checkpoints lack `late`
    # older checkpoints have one rule
    choices = saved['choices'] if 'choices' in saved else [[saved['best'], saved['stopped']]]
    for choice, (best, over) in zip(trainer.choices, choices, strict=False):
        choice.best = best
        choice.over = over
    comparable = _comparable(trainer, saved)
    for choice in trainer.choices:
        # if an epoch was killed after saving best.pt but before its checkpoint, best.pt is newer
        weights = trainer.run.restore(trainer.file_of(choice)) or {}
        best = weights.get('best') or {}
        if best.get('stage') == trainer.k:
            choice.best = best
        if choice.rule not in comparable:
            # no result is better than one from the later epochs alone
            choice.best = None
            choice.over = True
    _restore_states(trainer, saved)


def _comparable(trainer, saved: dict) -> set[str]:
    "The rules whose scores in the checkpoint use today's measure."
    older = {'val_observed': 'observed mAP'}  # in checkpoints without `measures`
    measures = saved.get('measures') or [
        older.get(choice.rule, MEASURES[choice.rule]) for choice in trainer.choices
    ]
    comparable = {
        choice.rule
        for choice, measure in zip(trainer.choices, measures, strict=False)
        if measure == MEASURES[choice.rule]
    }
    first = trainer.choices[0].rule
    if first not in comparable:
        raise SpmlError(
            f'{trainer.run.folder} was begun when {measures[0]} chose the epoch; now it is '
            f'{MEASURES[first]}. Remove that folder to train anew.'
        )
    return comparable


def _restore_states(trainer, saved: dict):
    "Weights, optimiser and random numbers."
    states = _stateful_parts(trainer)
    if missing := [name for name in states if name not in saved]:
        raise SpmlError(
            f"the checkpoint has no {' and no '.join(missing)}: the run was begun without this "
            '`on_step`. Resume without it, or remove the folder of the run to train anew.'
        )
    # a counter that older checkpoints have
    saved.get('averaged', {}).pop('n_averaged', None)
    for name, value in states.items():
        value.load_state_dict(saved[name])
    torch.set_rng_state(saved['rng']['cpu'])
    if trainer.device.type == 'cuda' and isinstance(saved['rng']['cuda'], Tensor):
        torch.cuda.set_rng_state(saved['rng']['cuda'], trainer.device)
