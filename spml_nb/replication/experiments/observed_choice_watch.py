"""A run that every rule watches: `train_watched` keeps what each rule would have chosen of it."""

import contextlib
import io
import shutil
from pathlib import Path

from ... import metrics
from ...base import settings
from ...runs.config import Config
from ...training.selection import classes_seen_in_training
from ...training.task import Task
from ...training.trainer import Trainer, train
from .observed_choice import CHOSEN_RULE, PATIENCE, score_rules


class Watch:
    """Scores a run by every rule after each epoch: an `on_step` of `training.train`.

    Args:
        patience: epochs without a better score after which a rule stops; 0: never.

    Attributes:
        best: {rule: (epoch, value on validation, test mAP)} at the best epoch of each rule, in
            percent.
        logits: {'val', 'test': (N, C) float64} at the best epoch of `CHOSEN_RULE`.
    """

    def __init__(self, patience: int):
        self.patience = patience
        self.best = {}
        self.logits = {}
        self._stopped = set()

    def __call__(self, trainer: Trainer, index, outputs, loss):
        "Called after each step, of which no rule makes use."

    def end_epoch(self, trainer: Trainer):
        "Score the epoch by every rule, and end the run when all rules have stopped."
        task = trainer.task
        val, test = (
            trainer.predict(trainer.module, rows).cpu().double().numpy()
            for rows in (task.val, task.test)
        )
        true_val, true_test = (task.data.labels[rows] > 0 for rows in (task.val, task.test))
        values = score_rules(val, task.observed_val, true_val, classes_seen_in_training(task))
        test_map = 100 * float(metrics.average_precision(test, true_test).mean())
        for rule in values:
            if rule in self._stopped:
                continue
            if rule not in self.best or values[rule] > self.best[rule][1]:
                self.best[rule] = (trainer.epoch, values[rule], test_map)
                if rule == CHOSEN_RULE:
                    self.logits = {'val': val, 'test': test}
            if self.patience and trainer.epoch - self.best[rule][0] >= self.patience:
                self._stopped.add(rule)
        if len(self._stopped) == len(values):
            for choice in trainer.choices:
                choice.over = True


def trials_folder() -> Path:
    """The folder of finished trials that are not in the record yet, in the setting `runs`."""
    return settings.get_folder('runs') / 'observed_choice'


def train_watched(config: Config, task: Task, name: str) -> Watch:
    """Train a run and delete its folder.

    Args:
        config: a method's schedule of `epochs` is run to its end, any other with `PATIENCE`.
        name: of the folder, one for each run that is trained at the same time.
    """
    watch = Watch(PATIENCE if config.epochs is None else 0)
    folder = trials_folder() / 'training' / name
    shutil.rmtree(folder, ignore_errors=True)  # of a killed run
    with contextlib.redirect_stdout(io.StringIO()):
        train(config, task=task, root=folder, on_step=watch)
    shutil.rmtree(folder)
    return watch
