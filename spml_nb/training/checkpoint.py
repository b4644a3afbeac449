"""All that the next epoch depends on, in one file: written after every epoch, read when an
interrupted run resumes.
"""

import hashlib

import torch
from torch import Tensor

from ..base.errors import SpmlError
from ..data.folder import explain_split
from ..runs.folder import hash_file
from .selection import MEASURES


def _stateful_parts(trainer) -> dict:
    """All of a run that has a state.

    Args:
        trainer: a `Trainer`, in a stage.

    Returns:
        {name in the checkpoint: what has a `state_dict`}.
    """
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
    """What a run comes from, besides its configuration.

    Args:
        config: a `Config`.
        task: a `Task`.

    Returns:
        {'data': fingerprint of photos and labels, 'photos': content of the photos, 'task': digest
        of rows and observed labels, 'weights': digest of the file that `weights` names, None where
        it names none}.
    """
    drawn = hashlib.sha256()
    for array in (task.train, task.val, task.test, task.observed, task.observed_val):
        drawn.update(f'{array.shape}'.encode() + array.tobytes())
    return {
        'data': task.data.fingerprint,
        'photos': task.data.content,
        'task': drawn.hexdigest(),
        'weights': hash_file(config.weights),
    }


_ORIGINS = {
    'data': 'data',
    'photos': 'photos',
    'task': 'rows or observed labels',
    'weights': 'weights',
}


def refuse_other_origin(run, recorded: dict, now: dict, data):
    """Refuse a run that comes from something else. Runs of older versions record less, or nothing.

    Args:
        run: a `Run`, begun or done.
        recorded: its origin, with whatever else it has written down.
        now: as from `checkpoint_origin`.
        data: the `Dataset` as it is now.

    Raises:
        SpmlError: for another origin.
    """
    for key, words in _ORIGINS.items():
        before, after = recorded.get(key), now.get(key)
        if before is not None and after is not None and before != after:
            why = f' {explain_split(data, before)}'.rstrip() if key == 'data' else ''
            raise SpmlError(
                f'{run.folder} was begun on {words} that have changed since.{why} Remove '
                'that folder to train anew; if another folder of the same name was meant, '
                'give its whole path.'
            )


def save_checkpoint(trainer):
    """Write everything that the next epoch depends on.

    Args:
        trainer: a `Trainer`, between two epochs.

    Raises:
        SpmlError: if the disk is full.
    """
    device = trainer.device
    place = {
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
            **place,
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
        trainer: a `Trainer`, in no stage yet.

    Returns:
        What `save_checkpoint` has written, None before the first epoch.

    Raises:
        SpmlError: if the checkpoint is damaged, or as `refuse_other_origin`.
    """
    saved = trainer.run.restore('last.pt')
    refuse_other_origin(trainer.run, saved or {}, trainer.origin, trainer.task.data)
    return saved


def restore_checkpoint(trainer, saved: dict):
    """Put the place, every part, and the random numbers back to where they were.

    Args:
        trainer: a `Trainer`, in the stage of the checkpoint.
        saved: as from `load_checkpoint`.

    Raises:
        SpmlError: if a part has no state in the checkpoint.
    """
    for name in ('epoch', 'history', 'seconds', 'late'):
        setattr(trainer, name, saved.get(name, False))  # late is new
    # older checkpoints are of one rule
    choices = saved['choices'] if 'choices' in saved else [[saved['best'], saved['stopped']]]
    for choice, (best, over) in zip(trainer.choices, choices, strict=False):
        choice.best = best
        choice.over = over
    comparable = _comparable(trainer, saved)
    for choice in trainer.choices:
        # killed between its weights and its checkpoint, an epoch is done again
        weights = trainer.run.restore(trainer.file_of(choice)) or {}
        best = weights.get('best') or {}
        if best.get('stage') == trainer.k:
            choice.best = best
        if choice.rule not in comparable:
            # rather no answer than one from the later epochs alone
            choice.best = None
            choice.over = True
    _restore_states(trainer, saved)


def _comparable(trainer, saved: dict) -> set[str]:
    "The rules whose scores so far are in the measure of today."
    earlier = {'val_observed': 'observed mAP'}  # in checkpoints that do not say
    measures = saved.get('measures') or [
        earlier.get(c.rule, MEASURES[c.rule]) for c in trainer.choices
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
            f"the checkpoint holds no {' and no '.join(missing)}: the run was begun without that "
            '`on_step`. Go on without it, or remove the folder of the run to train anew.'
        )
    # a counter of older checkpoints
    saved.get('averaged', {}).pop('n_averaged', None)
    for name, value in states.items():
        value.load_state_dict(saved[name])
    torch.set_rng_state(saved['rng']['cpu'])
    if trainer.device.type == 'cuda' and isinstance(saved['rng']['cuda'], Tensor):
        torch.cuda.set_rng_state(saved['rng']['cuda'], trainer.device)
