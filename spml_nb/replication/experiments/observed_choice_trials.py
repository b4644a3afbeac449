"""The trials of `observed_choice`: which runs there are, how their labels are drawn, how every rule
watches them, and their record.
"""

import contextlib
import io
import json
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd

from ... import metrics
from ...base import settings
from ...base.errors import SpmlError, require_one_of
from ...base.files import write_arrays, write_atomically
from ...data.labels import observe
from ...runs.config import Config
from ...sweeps.queue import check_launch, format_duration, load_finished_runs
from ...sweeps.search import Row, choose_config, search_configs
from ...training.selection import classes_seen_in_training
from ...training.task import Task, make_task
from ...training.trainer import Trainer, train
from .core import choose_sets, format_csv
from .observed_choice import (
    CHOSEN_RULE,
    DATASETS,
    EVEN,
    FILE,
    FILE_LABELS,
    FILE_PHOTOS,
    GROUPED,
    KEYS,
    LABELS,
    LABELS_DATASETS,
    LABELS_DRAWS,
    LABELS_METHODS,
    METHODS,
    PATIENCE,
    SALIENT,
    SEEDS,
    SUITE,
    measure_photo_choice,
    read_trials,
    score_rules,
    score_thresholds,
)


@dataclass(frozen=True)
class Trial:
    """A run of a search.

    Attributes:
        draw: number of its settings in the search.
        seed: of observed labels and training.
        labels: how the observed labels are drawn, one of `LABELS`.
    """

    dataset: str
    loss: str
    draw: int
    seed: int
    labels: str = EVEN

    @property
    def name(self) -> str:
        "The stem of its files in `trials_folder()`."
        name = f'{self.dataset}-{self.loss}-{self.draw}-{self.seed}'
        return name if self.labels == EVEN else f'{name}-{self.labels}'


def plan_trials(dataset: str, seed: int) -> dict[Trial, Config]:
    """The search of every method on a set of photos, with one seed of labels and training.

    Args:
        dataset: one of `DATASETS`.
        seed: one of `SEEDS`.
    """
    return {
        Trial(dataset, loss, draw, seed): config.changed(seed=seed, label_seed=seed, patience=0)
        for loss in METHODS
        for draw, config in enumerate(search_configs(Row(loss), SUITE, dataset))
    }


def plan_label_trials(dataset: str, seed: int) -> dict[Trial, Config]:
    """Some of `plan_trials` under each other draw of the labels.

    Args:
        dataset: one of `LABELS_DATASETS`.
        seed: one of `SEEDS`.
    """
    even = {
        trial: config
        for trial, config in plan_trials(dataset, seed).items()
        if trial.loss in LABELS_METHODS and trial.draw < LABELS_DRAWS
    }
    return {
        # those in `DRAWS` are no setting of a run: `run_trial` draws these labels
        replace(trial, labels=labels): config if labels in DRAWS else config.changed(labels=labels)
        for labels in LABELS
        if labels != EVEN
        for trial, config in even.items()
    }


def _plan_all(datasets: list[str]) -> dict[Trial, Config]:
    "Every trial on some sets of photos, those with evenly drawn labels first."
    trials = {}
    for dataset, seed in product(datasets, SEEDS):
        trials |= plan_trials(dataset, seed)
    for seed, dataset in product(SEEDS, LABELS_DATASETS):
        if dataset in datasets:
            trials |= plan_label_trials(dataset, seed)
    return trials


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


def _train_watched(config: Config, task: Task, name: str) -> Watch:
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


GROUP_SIZE = 20  # photos, on the mean


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
    for learnt, val in (halves, halves[::-1]):
        half = Task(
            task.data, learnt, val, task.test, observed=true[learnt], observed_val=true[val]
        )
        watch = _train_watched(config.changed(patience=0), half, file.stem)
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
    photos = _labelled_photos(task)
    true, odds = task.data.labels[photos], np.exp(logits[photos])
    drawn = observe(true, 1, 0, weights=odds, seed=seed, unknown='ignore')
    return _observe(task, photos, drawn)


def draw_grouped_labels(task: Task, logits: np.ndarray, seed: int) -> Task:
    """Replace the observed labels by one positive per photo, the same one in photos that are alike
    wherever they have it.

    The groups come from k-means on the logits. Each has an order of classes, drawn by chance; its
    photos show the first class that they have.

    Args:
        task, logits, seed: as in `draw_salient_labels`.
    """
    from scipy.cluster.vq import kmeans2  # slow to import and seldom needed

    photos = _labelled_photos(task)
    random = np.random.default_rng(seed)
    count = max(1, len(photos) // GROUP_SIZE)
    _, groups = kmeans2(logits[photos], count, minit='++', seed=random)
    classes = np.arange(logits.shape[1])
    places = random.permuted(np.tile(classes, (count, 1)), axis=1)  # of classes in each order
    true = task.data.labels[photos] > 0
    first = np.where(true, places[groups], len(classes)).argmin(1)
    return _observe(task, photos, true & (classes == first[:, None]))


DRAWS = {SALIENT: draw_salient_labels, GROUPED: draw_grouped_labels}


def _labelled_photos(task: Task) -> np.ndarray:
    return np.sort(np.concatenate([task.train, task.val]))


def _observe(task: Task, photos: np.ndarray, labels: np.ndarray) -> Task:
    observed = np.zeros_like(task.data.labels)
    observed[photos] = labels
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


def run_trial(trial: Trial, config: Config) -> dict:
    """Train a run, score it by every rule and way, and write the scores and its validation logits
    into `trials_folder()`.

    Args:
        trial, config: as from `plan_trials` or `plan_label_trials`.

    Returns:
        {column: value}: the fields of `Trial`, seconds; for each rule its value on validation in
        percent, RULE_epoch and RULE_test (test mAP in percent at that epoch); the columns of
        `score_thresholds`; where labels are not drawn evenly, those of `describe_draw`.
    """
    file = trials_folder() / f'{trial.name}.json'
    if file.is_file():
        return json.loads(file.read_text(encoding='utf-8'))
    began = time.perf_counter()
    task = make_task(config)
    line = asdict(trial)
    if trial.labels != EVEN:
        salience = measure_salience(trial.dataset)
        if trial.labels in DRAWS:
            task = DRAWS[trial.labels](task, salience, config.label_seed)
        line |= describe_draw(task, salience)
    watch = _train_watched(config, task, trial.name)
    for rule, (epoch, value, test_map) in watch.best.items():
        line |= {rule: value, f'{rule}_epoch': epoch, f'{rule}_test': test_map}
    val, test = watch.logits['val'], watch.logits['test']
    true_val, true_test = (task.data.labels[rows] > 0 for rows in (task.val, task.test))
    line |= score_thresholds(val, test, task.observed_val > 0, true_val, true_test, trial.seed)
    line['seconds'] = time.perf_counter() - began
    write_arrays(trials_folder() / f'{trial.name}.npz', {'val': val.astype(np.float32)})
    write_atomically(file, json.dumps(line))
    return line


def sweep_observed_choice(
    datasets: Iterable[str] = (),
    *,
    dry_run: bool = False,
    tell: Callable[[str], None] = print,
    jobs: int = 1,
    engine: str = 'local',
    address: str | None = None,
) -> pd.DataFrame:
    """Train the missing trials and record them; an interrupted sweep goes on with the same call.

    Args:
        datasets: some of `DATASETS`; none: all of them.
        dry_run: only say how many trials are missing.
        tell: called with each line of the report.
        jobs: processes on this machine.
        engine, address: as in `sweeps.run`; only 'local' is possible.

    Returns:
        DataFrame: run, config, state ('done' or 'missing') and expected seconds (NaN while no trial
        is recorded).

    Raises:
        SpmlError: for another set of photos or engine.
    """
    check_launch(require_one_of(engine, ('local',), 'engine'), address, jobs)
    trials = _plan_all(choose_sets(datasets, DATASETS))
    recorded = _list_recorded()
    missing = {trial: config for trial, config in trials.items() if trial not in recorded}
    seconds = read_trials().seconds.mean()  # NaN if none is recorded
    time_left = ''
    if not np.isnan(seconds):
        time_left = f', about {format_duration(len(missing) * seconds / jobs)}'
    tell(f'{len(trials)} runs, of which {len(missing)} are missing{time_left}.')
    states = ['missing' if trial in missing else 'done' for trial in trials]
    table = pd.DataFrame(
        {'run': [trial.name for trial in trials], 'config': list(trials.values()), 'state': states}
    ).assign(expected=seconds)
    if dry_run or not missing:
        return table
    for dataset in {trial.dataset for trial in missing if trial.labels != EVEN}:
        measure_salience(dataset)  # once, before several processes need it
    _run_trials(missing, tell, jobs)
    collect_trials()
    return table.assign(state='done')


def _list_recorded() -> set[Trial]:
    even = read_trials().assign(labels=EVEN)
    return {
        Trial(*line)
        for trials in (even, read_trials(FILE_LABELS))
        for line in trials.reindex(columns=[*KEYS, 'labels']).itertuples(index=False)
    }


def _run_trials(trials: dict[Trial, Config], tell: Callable[[str], None], jobs: int):
    last = {(trial.dataset, trial.seed, trial.labels): trial for trial in trials}
    with ProcessPoolExecutor(jobs, mp_context=get_context('spawn')) as pool:
        done = pool.map(run_trial, trials, trials.values())
        for trial, _ in zip(trials, done, strict=True):
            if trial in last.values():
                tell(f'{trial.dataset}, seed {trial.seed}, labels {trial.labels}: done')


def collect_trials() -> pd.DataFrame:
    """Add the finished trials in `trials_folder()` to the record, and what a choice by a few photos
    loses on each set and seed that has all its trials.

    Returns:
        The record of evenly drawn labels.
    """
    new = pd.DataFrame(
        {'labels': EVEN} | json.loads(file.read_text(encoding='utf-8'))
        for file in sorted(trials_folder().glob('*.json'))
    )
    if not len(new):
        return read_trials()
    even = new.labels == EVEN
    trials = _add_lines(FILE, new[even].drop(columns='labels'), KEYS)
    _add_lines(FILE_LABELS, new[~even], [*KEYS, 'labels'])
    measured = read_trials(FILE_PHOTOS)
    for (dataset, seed), searches in trials.groupby(['dataset', 'seed']):
        recorded = (measured.dataset == dataset) & (measured.seed == seed)
        if len(searches) == len(plan_trials(dataset, seed)) and not recorded.any():
            lines = _measure_photo_choice(dataset, int(seed), searches)
            _add_lines(FILE_PHOTOS, lines, ['dataset', 'seed', 'photos'])
    return trials


def _measure_photo_choice(dataset: str, seed: int, trials: pd.DataFrame) -> pd.DataFrame:
    "trials: all those of the set of photos and seed; their logits lie in `trials_folder()`."
    task = make_task(next(iter(plan_trials(dataset, seed).values())))
    names = [Trial(*line).name for line in trials[KEYS].itertuples(index=False)]
    logits = [np.load(trials_folder() / f'{name}.npz')['val'] for name in names]
    true = task.data.labels[task.val] > 0
    test_map = trials[f'{CHOSEN_RULE}_test'].to_numpy()
    lines = measure_photo_choice(logits, true, test_map, seed)
    lines.insert(0, 'dataset', dataset)
    lines.insert(1, 'seed', seed)
    return lines


def _add_lines(name: str, new: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    "Add lines to a file of the record, with those of their columns that have a value."
    if not len(new):
        return read_trials(name)
    lines = pd.concat([read_trials(name), new.dropna(axis=1, how='all')], ignore_index=True)
    lines = lines.drop_duplicates(keys).sort_values(keys)
    write_atomically(settings.get_folder('outputs') / name, format_csv(lines))
    return lines
