"""All that the next epoch depends on, in one file: written after every epoch, read when an interrupted run resumes."""

import hashlib

import torch
from torch import Tensor

from ..base.errors import SpmlError
from ..data.folder import explain_split
from ..runs.folder import digest
from .selection import MEASURES


def parts(trainer) -> dict:
    """All of a run that has a state.

    Args:
        trainer: a `Trainer`, in a stage.

    Returns:
        {name in the checkpoint: what has a `state_dict`}.
    """
    names = ('module', 'method', 'optimizer', 'schedule', 'scaler', 'averaged')
    every = {name: getattr(trainer, name) for name in names if getattr(trainer, name) is not None}
    if hasattr(trainer.on_step, 'state_dict'):
        every['notes'] = trainer.on_step
    return every


def origin(config, task) -> dict:
    """What a run comes from, besides its configuration.

    Args:
        config: a `Config`.
        task: a `Task`.

    Returns:
        {'data': fingerprint of photos and labels, 'photos': content of the photos, 'task': digest
        of rows and observed labels, 'weights': digest of the file that `weights` names, None where
        it names none}.
    """
    drawn = b''.join(
        f'{part.shape}'.encode() + part.tobytes()
        for part in (task.train, task.val, task.test, task.observed, task.observed_val)
    )
    return {
        'data': task.data.fingerprint,
        'photos': task.data.content,
        'task': hashlib.sha256(drawn).hexdigest(),
        'weights': digest(config.weights),
    }


def compare(run, kept: dict, now: dict, data):
    """Refuse a run that comes from something else. Runs of older versions say less, or nothing.

    Args:
        run: a `Run`, begun or done.
        kept: what it has written down.
        now: as from `origin`.
        data: the `Dataset` as it is now.

    Raises:
        SpmlError: for another origin.
    """
    for part, words in {
        'data': 'data',
        'photos': 'photos',
        'task': 'rows or observed labels',
        'weights': 'weights',
    }.items():
        if None not in (kept.get(part), now.get(part)) and kept[part] != now[part]:
            why = f' {explain_split(data, kept[part])}'.rstrip() if part == 'data' else ''
            raise SpmlError(
                f'{run.folder} was begun on {words} that have changed since.{why} Remove '
                'that folder to train anew; if another folder of the same name was meant, '
                'give its whole path.'
            )


def save(trainer):
    """Write everything that the next epoch depends on.

    Args:
        trainer: a `Trainer`, between two epochs.

    Raises:
        SpmlError: if the disk is full.
    """
    names = ('k', 'epoch', 'history', 'seconds', 'late', 'sessions')
    place = {name: getattr(trainer, name) for name in names} | trainer.origin
    place['choices'], device = (
        [[choice.best, choice.over] for choice in trainer.choices],
        trainer.device,
    )
    place['measures'] = [MEASURES[choice.rule] for choice in trainer.choices]
    place['rng'] = {
        'cpu': torch.get_rng_state(),
        'cuda': torch.cuda.get_rng_state(device) if device.type == 'cuda' else None,
    }
    trainer.run.save(
        'last.pt', place | {name: part.state_dict() for name, part in parts(trainer).items()}
    )


def load(trainer) -> dict | None:
    """Read the last checkpoint.

    Args:
        trainer: a `Trainer`, in no stage yet.

    Returns:
        What `save` has written, None before the first epoch.

    Raises:
        SpmlError: if the checkpoint is damaged, or as `compare`.
    """
    saved = trainer.run.restore('last.pt')
    compare(trainer.run, saved or {}, trainer.origin, trainer.task.data)
    return saved


def restore(trainer, saved: dict):
    """Put the place, every part, and the random numbers back to where they were.

    Args:
        trainer: a `Trainer`, in the stage of the checkpoint.
        saved: as from `load`.

    Raises:
        SpmlError: if a part has no state in the checkpoint.
    """
    for name in ('epoch', 'history', 'seconds', 'late'):
        setattr(trainer, name, saved.get(name, False))  # late is new
    begun = (
        saved['choices'] if 'choices' in saved else [[saved['best'], saved['stopped']]]
    )  # of one rule
    comparable = _comparable(trainer, saved)
    for choice, (best, over) in zip(trainer.choices, begun, strict=False):
        choice.best, choice.over = best, over
    for (
        choice
    ) in trainer.choices:  # killed between its weights and its checkpoint, an epoch is done again
        kept = (trainer.run.restore(trainer.file_of(choice)) or {}).get('best') or {}
        if kept.get('stage') == trainer.k:
            choice.best = kept
        if choice.rule not in comparable:
            choice.best, choice.over = (
                None,
                True,
            )  # rather no answer than one from the later epochs alone
    _restore_parts(trainer, saved)


def _comparable(trainer, saved: dict) -> set[str]:
    "The rules whose scores so far are in the measure of today."
    earlier = {'val_observed': 'observed mAP'}  # in checkpoints that do not say
    measures = saved.get('measures') or [
        earlier.get(c.rule, MEASURES[c.rule]) for c in trainer.choices
    ]
    same = {
        choice.rule
        for choice, measure in zip(trainer.choices, measures, strict=False)
        if measure == MEASURES[choice.rule]
    }
    if trainer.choices and trainer.choices[0].rule not in same:
        raise SpmlError(
            f'{trainer.run.folder} was begun when {measures[0]} chose the epoch; now it is '
            f'{MEASURES[trainer.choices[0].rule]}. Remove that folder to train anew.'
        )
    return same


def _restore_parts(trainer, saved: dict):
    "Weights, optimiser and random numbers."
    every = parts(trainer)
    missing = [name for name in every if name not in saved]
    if missing:
        raise SpmlError(
            f"the checkpoint holds no {' and no '.join(missing)}: the run was begun without that "
            '`on_step`. Go on without it, or remove the folder of the run to train anew.'
        )
    for name, part in every.items():
        part.load_state_dict(saved[name])
    torch.set_rng_state(saved['rng']['cpu'])
    if trainer.device.type == 'cuda' and isinstance(saved['rng']['cuda'], Tensor):
        torch.cuda.set_rng_state(saved['rng']['cuda'], trainer.device)
