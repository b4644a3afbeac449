"""A watched run: every rule keeps its own epoch, and the run ends with the last of them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spml_nb.replication.experiments import observed_choice_watch
from spml_nb.replication.experiments.observed_choice import CHOSEN_RULE
from spml_nb.replication.experiments.observed_choice_watch import Watch


@pytest.fixture
def trainer(monkeypatch):
    "Of 8 photos and 2 classes; `score` is what both rules say of an epoch."
    labels = np.where(np.eye(2, dtype=bool)[np.arange(8) % 2], 1, -1)
    val, test = np.arange(4), np.arange(4, 8)
    task = SimpleNamespace(
        data=SimpleNamespace(labels=labels), val=val, test=test, observed_val=labels[val]
    )
    trainer = SimpleNamespace(task=task, module=None, choices=[SimpleNamespace(over=False)])
    trainer.predict = lambda module, rows: trainer.epoch * torch.from_numpy(labels[rows]).float()
    monkeypatch.setattr(observed_choice_watch, 'score_rules', lambda *arrays: trainer.score)
    monkeypatch.setattr(observed_choice_watch, 'classes_seen_in_training', lambda task: [True] * 2)
    return trainer


def run(watch, trainer, scores):
    "The epochs that are trained."
    for epoch, score in enumerate(scores, 1):
        trainer.epoch, trainer.score = (
            epoch,
            dict(zip(('clean_map', CHOSEN_RULE), score, strict=True)),
        )
        watch.end_epoch(trainer)
        if trainer.choices[0].over:
            break
    return epoch


def test_each_rule_keeps_its_best_epoch_and_the_chosen_rule_its_logits(trainer):
    watch = Watch(patience=0)
    assert run(watch, trainer, [(50, 60), (70, 80), (70, 75), (90, 10)]) == 4
    assert watch.best == {'clean_map': (4, 90, 100.0), CHOSEN_RULE: (2, 80, 100.0)}
    assert np.abs(watch.logits['val']).max() == 2 and watch.logits['test'].shape == (4, 2)


def test_a_run_ends_when_every_rule_has_waited_for_its_patience(trainer):
    watch = Watch(patience=2)
    assert run(watch, trainer, [(50, 60), (40, 70), (40, 60), (90, 65), (99, 99)]) == 4
    # clean mAP had stopped one epoch before the other, and looks no more
    assert {rule: best[0] for rule, best in watch.best.items()} == {'clean_map': 1, CHOSEN_RULE: 2}
