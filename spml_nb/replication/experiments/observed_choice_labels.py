"""Draws of the one observed label that are not by chance: the most obvious label of each photo."""

from dataclasses import replace

import numpy as np

from ...base.errors import SpmlError
from ...base.files import write_arrays
from ...data.labels import observe
from ...sweeps.queue import load_finished_runs
from ...sweeps.search import Row, choose_config, search_configs
from ...training.task import Task, make_task
from .observed_choice import SUITE
from .observed_choice_watch import train_watched, trials_folder


def measure_salience(dataset: str) -> np.ndarray:
    """How obvious each label is in each photo, to a head trained on all labels of other photos.

    The photos of training and validation are halved; each half is scored by a head trained on the
    other, with the settings that the board's search chose for BCE on all labels. The logits are
    kept in `trials_folder()`.

    Args:
        dataset: one of `LABELS_DATASETS`.

    Returns:
        (N, C) logits for all photos of the set; 0 for the test photos.

    Raises:
        SpmlError: while a run of that search is missing.
    """
    file = trials_folder() / f'salience-{dataset}.npz'
    if file.is_file():
        return np.load(file)['logits']
    config = choose_config(
        search_configs(Row('bce', labels='full'), SUITE, dataset), load_finished_runs()
    )
    if config is None:
        raise SpmlError(
            f'the salience of the labels of {dataset!r} comes from the best head on all labels, '
            f'and runs of its search are missing. Run `spml sweep methods --dataset {dataset}`.'
        )
    task = make_task(config)
    true = task.data.labels
    photos = np.concatenate([task.train, task.val])
    order = np.random.default_rng(config.seed).permutation(photos)
    halves = [np.sort(half) for half in np.array_split(order, 2)]
    logits = np.zeros(true.shape)
    for train, val in (halves, halves[::-1]):
        half = Task(task.data, train, val, task.test, observed=true[train], observed_val=true[val])
        watch = train_watched(config.changed(patience=0), half, file.stem)
        logits[val] = watch.logits['val']
    write_arrays(file, {'logits': logits})
    return logits


def draw_salient_labels(task: Task, logits: np.ndarray, seed: int) -> Task:
    """Replace the observed labels by one positive per photo, drawn with the odds p/(1 − p) of each.

    Args:
        task: with any observed labels.
        logits: (N, C) of p, as from `measure_salience`.
        seed: of the draw.
    """
    photos = np.sort(np.concatenate([task.train, task.val]))
    true = task.data.labels
    observed = np.zeros_like(true)
    observed[photos] = observe(
        true[photos], 1, 0, weights=np.exp(logits[photos]), seed=seed, unknown='ignore'
    )
    return replace(task, observed=observed[task.train], observed_val=observed[task.val])


def describe_draw(task: Task, logits: np.ndarray) -> dict[str, float]:
    """Which label is observed in the training and validation photos that have several.

    Args:
        task: with one observed positive per photo.
        logits: (N, C), as from `measure_salience`.

    Returns:
        Percent: several (photos with several labels); of these photos, by_chance (the expected
        share that show one certain label), most_frequent and most_salient (those that show the
        label that most photos have, or the one with the highest logit).
    """
    photos = np.concatenate([task.train, task.val])
    true = task.data.labels[photos] > 0
    observed = np.concatenate([task.observed, task.observed_val]) > 0
    counts, several = true.sum(0), true.sum(1) > 1
    true, observed, logits = true[several], observed[several], logits[photos][several]
    shown = observed.argmax(1)
    most_frequent = np.where(true, counts, -1).argmax(1)
    most_salient = np.where(true, logits, -np.inf).argmax(1)
    shares = {
        'several': several,
        'by_chance': 1 / true.sum(1),
        'most_frequent': shown == most_frequent,
        'most_salient': shown == most_salient,
    }
    return {name: 100 * float(np.mean(values)) for name, values in shares.items()}
