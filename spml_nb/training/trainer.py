"""`train(config)`: one training loop for every method, regime and schedule, which resumes after any
interruption.
"""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from timm.utils import ModelEmaV3
from torch import Tensor

from .. import methods, models
from ..base import files, progress
from ..base.devices import copy_to_device
from ..base.errors import SpmlError, warn
from ..data.folder import explain_split
from ..data.labels import FULL_PHOTOS, FULL_PHOTOS_GUIDE
from ..data.overview import count_shared_photos, describe_shared_photos
from ..methods.core import ViewOutputs, forward_views
from ..models.heads import Outputs
from ..runs.config import Config, resolve
from ..runs.folder import Result, Run, add_session, locate_run, provenance, read_result
from . import checkpoint
from .batches import FeatureSource, feature_source, hash_weights, image_source
from .distributed import Group
from .network import head_options
from .schedule import Stage, compile_network, make_optimizer, make_schedule, plan_stages
from .selection import (
    MEASURES,
    EpochChoice,
    explain_observed_selection,
    mean_ap,
    predict_logits,
    score_by_rule,
    score_finished_run,
    scores_by_observed,
    selection_targets,
)
from .task import Task, make_task
from .thresholds import thresholds_on_validation
from .tracking import find_tracker


class Diverged(SpmlError):
    "The loss or the scores are not finite."


def require_scalar(loss: Tensor, method: str):
    """Raise an SpmlError if a loss is no scalar.

    Args:
        loss: of a batch.
        method: its name, for the error message.
    """
    if loss.ndim:
        raise SpmlError(
            f'the loss of {method!r} has the shape {tuple(loss.shape)}; training needs a scalar. '
            "Set its hyper-parameter `reduction` to another value than 'none'."
        )


class LossWatch:
    """Averages the loss over an epoch, and stops the run when it is not finite. Looks only every 50
    steps, so that the GPU need not wait.

    Args:
        method: its name, for the error message.
        remedy: a sentence for the error message.
        folder: of the run.
    """

    def __init__(self, method: str, remedy: str, folder: Path):
        self.method, self.remedy, self.folder = method, remedy, folder

    def start(self, epoch: int):
        self.epoch = epoch
        self.steps = 0
        self.values = torch.empty(0, dtype=torch.double)  # checked, on the CPU
        self.losses = []  # not checked yet, on the device

    def add(self, loss: Tensor):
        "Add the loss of a step."
        require_scalar(loss, self.method)
        self.losses.append(loss.detach())
        self.steps += 1
        if self.steps % 50 == 0:
            self.look()

    def look(self) -> float:
        """Check the losses so far.

        Returns:
            The mean loss since the start of the epoch.

        Raises:
            Diverged: if one is not finite.
        """
        if self.losses:
            self.values = torch.cat([self.values, torch.stack(self.losses).cpu().double()])
            self.losses = []
        finite = torch.isfinite(self.values)
        if finite.all():
            return self.values.mean().item() if self.steps else 0.0
        step = int(finite.int().argmin())
        checkpoint = 'There is no checkpoint yet'
        if (self.folder / 'last.pt').is_file():
            checkpoint = f'The last good checkpoint is kept in {self.folder}'
        raise Diverged(
            f'the loss of {self.method!r} became {self.values[step].item()} at step {step + 1} of '
            f'epoch {self.epoch}. {checkpoint}. {self.remedy}'
        )


_AUTOCAST = {'bf16': torch.bfloat16, 'fp16': torch.float16}


class Trainer:
    """Trains one run; made by `train`.

    Args:
        config: resolved.
        run: its folder.
        task: its data.
        on_epoch: called with the curves (DataFrame) after each epoch.
        on_step: called with (trainer, index (B,), outputs, loss) after each step. Its
            `end_epoch(trainer)`, if any, is called before each validation; its state is part of the
            checkpoints if it has `state_dict` and `load_state_dict`.

    Raises:
        SpmlError: as `train`.
    """

    def __init__(
        self,
        config: Config,
        run: Run,
        task: Task,
        on_epoch: Callable | None = None,
        on_step: Callable | None = None,
    ):
        self.config = config
        self.run = run
        self.task = task
        self.on_epoch = on_epoch
        self.on_step = on_step
        self.track = find_tracker(run.folder)
        self.group = Group(config.device)
        self.device = self.group.device
        torch.manual_seed(config.seed)
        model = models.create(
            config.backbone,
            len(task.data.class_names),
            head=config.head,
            weights=config.weights,
            normalise=config.normalise,
            freeze_batchnorm=config.freeze_batchnorm,
            frozen_stages=config.frozen_stages,
            **head_options(config),
        )
        self.model = model.to(self.device, memory_format=torch.channels_last)
        method = methods.create(
            config.loss,
            torch.from_numpy(task.observed),
            epochs=config.epochs,
            features=model.embedding_dim,
            **config.hparams,
        )
        method.take(task.side)
        self.method = method.to(self.device)
        self.images = image_source(task.data, config, self.device)
        self.stages = plan_stages(config, self.method)
        self.targets = selection_targets(task, config.selection)
        self.history = []  # a row of the curves for each epoch
        self.seconds = 0.0
        self.late = False  # whether a stage kept one of its last two epochs

    def fit(self):
        "Train all stages, from the start or from the last checkpoint."
        saved = self.prepare()
        first = saved.get('k', 1)
        for k, stage in enumerate(self.stages[first - 1 :], first):
            self.begin(k, stage)
            if saved and k == first:
                checkpoint.restore_checkpoint(self, saved)
            elif k > 1 and self.group.first:
                checkpoint.save_checkpoint(self)  # before best.pt is overwritten by this stage
            while not self.over:
                self.run_epoch()
            self.end_stage()

    def prepare(self) -> dict:
        "Note origin and session, and warn. Returns: the last checkpoint; empty without one."
        # at the start, as the weights file may change during training
        self.origin = checkpoint.checkpoint_origin(self.config, self.task)
        saved = checkpoint.load_checkpoint(self) or {}
        self.sessions = add_session(saved.get('sessions', []))
        if self.group.first:
            self.warn()
        return saved

    def begin(self, k: int, stage: Stage):
        "Set up stage k (from 1): data source, trained module, optimizer, schedule, averaged copy."
        config = self.config
        linear = stage.name == 'linear'
        self.k = k
        self.stage = stage
        self.epoch = 0
        self.choices = [
            EpochChoice(rule, stage.patience, config.stop_below) for rule in self.targets
        ]
        self.source = None  # frees the previous stage's memory on the device
        self.source = self.frozen_features() if linear else self.images
        for p in self.model.backbone_parameters():
            p.requires_grad_(not linear)
        self.module = self.model.head if linear else self.model
        self.forward = self.group.wrap(self.module)
        self.program = self.outputs_and_loss
        if config.compile and self.method.varies:
            self.forward = compile_network(self.forward, self.device)
        elif config.compile:
            self.program = compile_network(self.outputs_and_loss, self.device)
        self.method.epochs = stage.epochs
        self.method.start_stage(stage.number)
        self.optimizer = make_optimizer(config, stage, self.model, self.method)
        steps = stage.epochs * math.ceil(self.task.length / config.batch_size)
        self.schedule = make_schedule(config, self.optimizer, steps)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == 'fp16')
        self.averaged = None
        if config.ema:
            # the average spans at most a tenth of the stage
            decay = min(config.ema, max(0.0, 1 - 10 / steps))
            self.averaged = ModelEmaV3(self.module, decay)
        remedy = f'Lower the learning rate (lr is {stage.lr:g})'
        if config.precision != 'float32':
            remedy += ' or train in precision float32'
        self.watch = LossWatch(config.loss, f'{remedy}.', self.run.folder)

    @property
    def over(self) -> bool:
        "Whether the stage ends here."
        return self.epoch >= self.stage.epochs or all(choice.over for choice in self.choices)

    def end_stage(self):
        "Note the scores after the last epoch, and load the best weights."
        self.late |= self.choices[0].best['epoch'] >= self.stage.epochs - 1
        self.at_end = self.scores_at_end()
        self.load_best()

    def frozen_features(self) -> FeatureSource:
        "The features that a head alone is trained on."
        return feature_source(
            self.model, self.images, self.task.train, self.method.views, self.config
        )

    # ---- one epoch

    def run_epoch(self):
        "Train, validate, save the best weights and a checkpoint."
        began = time.perf_counter()
        loss = self.one_epoch()
        self.close_epoch(loss, began)

    def close_epoch(self, loss: float, began: float):
        "Validate, and save the best weights, a row of the curves and a checkpoint."
        if hasattr(self.on_step, 'end_epoch'):
            self.on_step.end_epoch(self)
        validation = self.validate()
        seconds = time.perf_counter() - began
        self.seconds += seconds
        self.history.append(
            {
                'stage': self.k,
                'epoch': self.epoch,
                'loss': loss,
                **validation,
                'lr': self.optimizer.param_groups[0]['lr'],
                'seconds': seconds,
            }
        )
        if self.group.first:
            self.write()

    def one_epoch(self) -> float:
        "Train on `task.length` images in random order. Returns: the mean loss."
        order = self.start_epoch()
        batches = order.split(self.config.batch_size)
        shares = [self.group.share(self.task.train[index.numpy()]) for index in batches]
        self.source.announce(np.concatenate(shares))
        # logs and notebooks get one line per epoch
        show = self.group.first and progress.find_display() == 'terminal'
        for index in progress.progress_bar(
            batches, what=f'epoch {self.epoch}', unit='steps', show=show
        ):
            self.step(index)
        return self.end_epoch()

    def start_epoch(self) -> Tensor:
        "Returns: (task.length,) rows of the observed labels, in the order of the epoch's batches."
        self.epoch += 1
        self.module.train()
        self.method.train()
        self.watch.start(self.epoch)
        self.method.start_epoch(self.epoch)
        # each image once, or several times if the epoch is longer than the training split
        return torch.randperm(self.task.length) % len(self.task.train)

    def end_epoch(self) -> float:
        "Let the method revise its state after the steps. Returns: their mean loss."
        loss = self.watch.look()
        self.group.agree(*self.candidates().values(), parameters=False)
        self.method.end_epoch(self.epoch, self.score)
        self.group.agree(self.method)
        return loss

    def step(self, index: Tensor):
        "Train on one batch. index: (B,) rows of the observed labels."
        share = self.group.share(self.task.train[index.numpy()])
        with self.group.forked_randomness(self.watch.steps):
            views = {role: self.source.batch(share, role) for role in self.method.views}
            outputs, loss = self.program(views, copy_to_device(index, self.device))
        # the next step of a compiled program may overwrite this loss
        self.watch.add(loss.clone() if self.config.compile else loss)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        if self.averaged is not None:
            self.averaged.update(self.module)
        if self.on_step is not None:
            self.on_step(self, index, outputs, loss.detach())

    def outputs_and_loss(
        self, views: dict[str, Tensor], index: Tensor
    ) -> tuple[ViewOutputs, Tensor]:
        """The outputs for every view, from one forward pass over all, and the loss over the rows of
        all processes.
        """
        dtype = _AUTOCAST.get(self.config.precision)
        with torch.autocast(self.device.type, dtype, enabled=dtype is not None):
            try:
                local = forward_views(self.forward, views)
            except SpmlError:
                raise
            except ValueError as error:  # torch: a batch norm has only one value per channel
                size = len(next(iter(views.values())))
                raise SpmlError(
                    f'the network cannot train on a batch of {size}: {error}. Choose another '
                    'batch_size, a larger image_size, or freeze_batchnorm: true.'
                ) from error
        outputs = ViewOutputs()
        for role, view in local.items():
            outputs[role] = Outputs(*(self.group.gather(output, len(index)) for output in view))
        return outputs, self.method.total_loss(outputs, index, self.module)

    # ---- scores and the best weights

    def score(self, view: str = 'plain') -> Tensor:
        "(N_train, C) float32 logits of the training images, for `Method.end_epoch`."
        return self.require_finite(self.predict(self.module, self.task.train, view))

    def require_finite(self, logits: Tensor) -> Tensor:
        "Return the logits, or raise Diverged if one is not finite."
        if torch.isfinite(logits).all():
            return logits
        raise Diverged(
            f'the scores of {self.config.loss!r} are not finite after epoch {self.epoch}. '
            f'{self.watch.remedy}'
        )

    def predict(self, module: torch.nn.Module, rows: np.ndarray, view: str = 'plain') -> Tensor:
        "(n, C) float32 logits of images, computed by all processes together."
        share = self.group.share(rows)
        self.source.announce(share)
        # forked, as shares of different sizes draw different amounts; steps have lower numbers
        with self.group.forked_randomness(self.task.length):
            logits = predict_logits(module, self.method, self.source, share, view)
        return self.group.gather(logits, len(rows))

    def candidates(self) -> dict[str, torch.nn.Module]:
        "The modules whose weights may be the best of an epoch."
        if self.averaged is None:
            return {'raw': self.module}
        return {'raw': self.module, 'averaged': self.averaged.module}

    def validate(self) -> dict[str, float]:
        """Score validation, and save the weights that a rule selects. Returns: val_map, and val_auc
        if it selects the epoch, in percent.
        """
        logits = {
            name: self.require_finite(self.predict(module, self.task.val))
            for name, module in self.candidates().items()
        }
        definition = self.config.map_definition
        best = []
        for choice, (labels, classes) in zip(self.choices, self.targets.values(), strict=True):
            scores = {
                name: score_by_rule(choice.rule, s, labels, classes, definition)
                for name, s in logits.items()
            }
            best.append(max(scores.values()))
            if choice.see(scores, self.k, self.epoch) and self.group.first:
                self.keep(choice)
        if self.choices[0].rule != 'val_observed':
            return {'val_map': best[0]}
        labels, classes = self.targets['val_observed']
        val_map = max(mean_ap(s, labels, definition, classes) for s in logits.values())
        return {'val_map': val_map, 'val_auc': best[0]}

    def scores_at_end(self) -> dict[str, float]:
        "Validation mAP and `own_scores` after the last epoch, which need not be the best."
        numbers = self.own_scores()
        if self.choices[0].rule != 'val_observed':
            numbers['val_map'] = self.history[-1]['val_map']
        return {f'{name}_at_end': value for name, value in numbers.items()}

    def own_scores(self) -> dict[str, float]:
        "The scores of the method's current estimate of the training labels."
        true = torch.from_numpy(self.task.data.labels[self.task.train])
        return self.method.own_scores(true.to(self.device))

    def keep(self, choice: EpochChoice):
        "Save the weights of this epoch as a rule's best."
        network = self.candidates()[choice.best['weights']]
        state = {
            'network': network.state_dict(),
            'method': self.method.state_dict(),
            'best': choice.best,
        }
        self.run.save(self.file_of(choice), state)

    def file_of(self, choice: EpochChoice) -> str:
        return 'best.pt' if choice is self.choices[0] else f'{choice.rule}.pt'

    def load_best(self, choice: EpochChoice | None = None):
        "Load the best weights of this stage, by default of the first rule."
        self.group.wait()
        best = self.run.best(self.file_of(choice or self.choices[0]))
        self.module.load_state_dict(best['network'])
        self.method.load_state_dict(best['method'])

    def warn(self):
        "Warn of shared photos, slow precision, and validation labels that select the epoch badly."
        if shared := describe_shared_photos(self.task.data):
            warn(shared)
        if self.config.precision == 'fp16' and self.device.type == 'cpu':
            warn(
                'precision: fp16 is several times slower on a CPU than bf16 or float32. Choose one '
                'of these.'
            )
        is_last = next(iter(self.targets)) == 'last' != self.config.selection
        if is_last and len(self.task.val):
            warn(
                f'{self.task.data.name}: the validation images cannot choose an epoch, as every '
                'epoch would have the same score: no label of the training images is on some of '
                'them and not on others. So the last epoch is kept, as with selection: last. Add '
                'validation images that differ in these labels.'
            )
        elif self.config.selection == 'val_clean' and (
            why := explain_observed_selection(self.task)
        ):
            warn(
                f'{self.task.data.name}: {why}, so the epoch and the threshold are chosen by '
                'observed labels, as with selection: val_observed: the epoch by the ROC-AUC of '
                'observed positives against everything else. Label at least half of the '
                f'validation photos in full for a choice by mAP; {FULL_PHOTOS} are enough for the '
                f'threshold: {FULL_PHOTOS_GUIDE}'
            )

    # ---- output

    def provenance(self) -> dict:
        "Commit, versions and machine, and the sessions in which the run was trained."
        return {**provenance(), 'sessions': self.sessions}

    def curves(self) -> pd.DataFrame:
        return pd.DataFrame(self.history)

    def write_curves(self):
        files.write_atomically(self.run.folder / 'metrics.csv', self.curves().to_csv(index=False))

    def write(self):
        "Write the curves and a checkpoint; report to the terminal, the tracker and `on_epoch`."
        self.write_curves()
        checkpoint.save_checkpoint(self)
        row = self.history[-1]
        best = self.choices[0].best
        measure = MEASURES[self.choices[0].rule]
        score = row.get('val_auc', row['val_map'])
        stage = f'stage {self.k} ({self.stage.name}) ' if len(self.stages) > 1 else ''
        print(
            f"{stage}epoch {row['epoch']:2d}/{self.stage.epochs}  loss {row['loss']:.4f}  "
            f"val {measure} {score:.2f}, best {best['value']:.2f} in epoch {best['epoch']}  "
            f"{row['seconds']:.1f} s",
            flush=True,
        )
        self.track(self.curves())
        if self.on_epoch is not None:
            self.on_epoch(self.curves())


def train(
    config: Config,
    *,
    task: Task | None = None,
    root: Path | None = None,
    on_epoch: Callable[..., object] | None = None,
    on_step: Callable[..., object] | None = None,
) -> Result:
    """Train a run, resume it, or return its result if it is done.

    Args:
        config: unset fields take the method's or the protocol's values.
        task: the data; unset: `make_task(config)`.
        root: the folder of runs; unset: the setting `runs`.
        on_epoch: called after each epoch with the curves, as in `Result`.
        on_step: called after each step with (trainer, index, outputs, loss), as in `Trainer`.

    Returns:
        The finished run.

    Raises:
        SpmlError: for wrong input, before anything is written; for a loss that is not finite; for a
            full disk.

    Source: the protocol of Cole et al. (2021).
    """
    config = resolve(config)
    task = task or make_task(config)
    run = locate_run(config, root, task.data.fingerprint)
    group = Group(config.device)
    with run.lock() if group.first else nullcontext():
        group.wait()  # until the first process holds the lock
        if run.done:
            return _read_done(run, checkpoint.checkpoint_origin(config, task), task)
        trainer = Trainer(config, run, task, on_epoch, on_step)
        if group.first:
            _explain_name(run, task)
            run.start()
        trainer.fit()
        finish_run(trainer)
    group.wait()
    return read_result(run)


def _explain_name(run: Run, task: Task):
    "Say so if an earlier run on other data has the usual name of this configuration."
    earlier = Run(run.config, run.folder.parent)
    if earlier.folder == run.folder or not (before := earlier.fingerprint()):
        return
    files.print_line(
        f'{earlier.folder.name} was trained before photos, labels or split changed, and stays as '
        f'it is; this run is {run.folder.name}. {explain_split(task.data, before)}'.rstrip()
    )


def _read_done(run: Run, origin: dict, task: Task) -> Result:
    "The result of a finished run, if its data, labels and weights are the current ones."
    checkpoint.refuse_other_origin(run, run.result(), origin, task.data)
    _remove_checkpoints(run)  # left if the process was killed right after DONE
    files.print_line(f'already done: {run.folder.name}')
    return read_result(run)


def _remove_checkpoints(run: Run):
    for name in ('last.pt', 'val_observed.pt'):
        (run.folder / name).unlink(missing_ok=True)


def finish_run(trainer: Trainer):
    """Score a trained run and close its folder.

    Args:
        trainer: after `fit`.

    Raises:
        SpmlError: if the disk is full.
    """
    task, run, config = trainer.task, trainer.run, trainer.config
    logits = _logits(trainer)
    observed_logits = _logits_by_observed(trainer, logits)
    if not trainer.group.first:
        return
    scores = _final_scores(trainer, logits, observed_logits)
    arrays = {part: values.cpu().numpy() for part, values in logits.items()}
    files.write_arrays(run.folder / 'logits.npz', arrays)
    result = {
        'scores': scores,
        'class_names': task.data.class_names,
        'seconds': trainer.seconds,
        **trainer.origin,
        'tested': task.data.photos_of('test'),
        'provenance': trainer.provenance(),
    }
    if config.regime == 'linear':
        result['backbone'] = hash_weights(trainer.model)  # best.pt holds only the head
    thresholds = thresholds_on_validation(logits, task, config.selection, scores['threshold'])
    if thresholds is not None:
        result['thresholds'] = thresholds
    run.finish(result)
    _remove_checkpoints(run)


def _logits(trainer: Trainer) -> dict[str, Tensor]:
    "{'val', 'test': (N, C) logits} of the current weights."
    rows = {'val': trainer.task.val, 'test': trainer.task.test}
    return {part: trainer.predict(trainer.module, r) for part, r in rows.items() if len(r)}


def _logits_by_observed(trainer: Trainer, logits: dict[str, Tensor]) -> dict[str, Tensor] | None:
    "Logits of the epoch that observed labels alone select; None if the run does not track it."
    if len(trainer.choices) == 1 or trainer.choices[1].best is None:
        return None
    first, observed = trainer.choices
    if first.best | {'value': 0} == observed.best | {'value': 0}:
        return logits
    trainer.load_best(observed)
    logits = _logits(trainer)
    trainer.load_best()
    return logits


def _final_scores(
    trainer: Trainer, logits: dict[str, Tensor], observed_logits: dict[str, Tensor] | None
) -> dict:
    "All scores of a run, for its `result.json` and the record."
    task, config = trainer.task, trainer.config
    best = trainer.choices[0].best
    scores = {
        **score_finished_run(logits, task, config.map_definition, config.selection),
        **trainer.own_scores(),
        **trainer.at_end,
        **{f'best_{k}': v for k, v in best.items() if k != 'value'},
    }
    if trainer.choices[0].rule != 'last':
        scores['late'] = int(trainer.late)  # best epoch among the last two
    if trainer.method.mechanism:
        acts_since = int(trainer.method.acts_since)  # epoch; -1: never
        scores['exercised'] = int(acts_since >= 0)
        if acts_since >= 0:
            scores['acts_since'] = acts_since
    scores['test_in_train'] = count_shared_photos(task.data)
    if observed_logits is not None:
        scores['observed_best_epoch'] = trainer.choices[1].best['epoch']
        scores |= scores_by_observed(observed_logits, task, config.map_definition)
    return scores
