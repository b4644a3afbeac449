"""Trainers that are ready for a step, of any method and on any device."""

from dataclasses import replace
from functools import partial

import numpy as np
from side_files import invented, side_of

from spml_nb import runs, training
from spml_nb.data.dataset import Dataset
from spml_nb.methods.core import find
from spml_nb.runs.config import Config
from spml_nb.runs.folder import Run
from spml_nb.training.batches import FeatureSource

N, C, SIZE = 24, 5, 32


def photos():
    rng = np.random.RandomState(0)
    labels = np.where(rng.rand(N, C) < 0.3, 1, -1).astype(np.int8)
    pixels = rng.randint(0, 256, (N, SIZE, SIZE, 3), dtype=np.uint8)
    return Dataset('noise', pixels, labels, [f'c{k}' for k in range(C)], np.full(N, 'train'))


def trainer_of(device, loss, **given):
    "A trainer on drawn noise, whatever the machine has of the device."
    config = runs.resolve(
        Config(
            loss=loss,
            dataset='noise',
            backbone='mini',
            weights='none',
            image_size=SIZE,
            batch_size=6,
            lr=1e-3,
            epochs=4,
            selection='last',
            **({'embedding_dim': 16} if given.get('head', find(loss).head) == 'labelwise' else {}),
            **side_of(loss),
            **given,
        )
    )
    config = replace(config, device=device)
    data = photos()
    rows = np.arange(N)
    none = rows[:0]
    observed = np.maximum(data.labels, 0)
    side = invented(N, C)
    task = training.Task(data, rows, none, none, observed, data.labels[:0], side=side)
    trainer = training.Trainer(config, Run(config), task)
    # instead of features that a backbone would compute
    trainer.frozen_features = partial(kept_features, trainer)
    return trainer


def kept_features(trainer):
    "Three draws of each view."
    rng = np.random.RandomState(0)
    if trainer.model.head.needs == 'vector':
        plain = rng.rand(N, 96).astype(np.float32)
    else:
        plain = rng.rand(N, 4, 4, 96).astype(np.float16)
    roles = trainer.method.views
    drawn = {role: [plain] * 3 for role in roles} if len(roles) > 1 else {}
    return FeatureSource(plain, drawn, np.arange(N), trainer.device)


def begin(trainer, k):
    "Stage k, in an epoch in which every mechanism may act."
    trainer.begin(k, trainer.stages[k - 1])
    trainer.module.train()
    trainer.method.train()
    trainer.watch.start(3)
    trainer.method.start_epoch(3)
