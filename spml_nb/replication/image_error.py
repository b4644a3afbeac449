"""Scores of heads on bootstrap samples of the test images, for the intervals of differences."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from scipy.special import expit

from .. import metrics as measures
from ..base import settings
from ..base.files import write_arrays
from ..data import labels
from ..runs.config import Config
from ..runs.folder import Run
from ..statistics import RESAMPLED_FILE, image_draws, resampled_map, resampled_name
from ..sweeps import boards, search
from ..sweeps.queue import canonical_config, run_key
from ..training.task import Task, make_task
from ..training.trainer import Result, train
from . import ablation_arms, claims, published, tables
from .experiments import budget, clean_photos, more_photos, second_backbone
from .published import PHOTOS_SUITE


def score_samples(
    metric: str, logits: np.ndarray, true: np.ndarray, draws: np.ndarray, threshold: float = 0.5
) -> np.ndarray:
    """A metric on bootstrap samples of the test images.

    Args:
        metric: One of `RESAMPLED_METRICS`.
        logits: (N, C).
        true: (N, C) in {1, 0, −1}; 0 is unknown and left out.
        draws: (R, N) counts of each image, as from `statistics.image_draws`.
        threshold: Probability at which F1 predicts a label.

    Returns:
        (R,) percent.
    """
    if metric == 'mAP@sample':
        by_image = measures.average_precision(
            logits, true, axis='sample', empty='skip', unknown='ignore'
        )
        counts = draws * np.isfinite(by_image)  # NaN for an image without a positive
        return 100 * counts @ np.nan_to_num(by_image) / counts.sum(1)
    if metric in ('mAP', 'mAP@class'):
        return resampled_map(logits, true, draws)
    predicted, positive = expit(logits) >= threshold, true > 0
    hits = draws @ (predicted & positive)
    errors = draws @ ((predicted != positive) & (true != 0))
    if metric.startswith('micro'):
        hits, errors = hits.sum(1, keepdims=True), errors.sum(1, keepdims=True)
    return 100 * (2 * hits / np.maximum(2 * hits + errors, 1)).mean(1)


SEEDS = range(3)
RESAMPLED_METRICS = (
    *('mAP', 'mAP@class', 'mAP@sample', 'micro-F1', 'macro-F1'),
    *tables.CHOSEN_THRESHOLD,
)


def list_compared_runs(runs: pd.DataFrame) -> dict[tuple[str, str], list[Config]]:
    """The finished runs of heads whose scores are compared anywhere in the study.

    Args:
        runs: The table of record.

    Returns:
        {(key of the first run, one of `RESAMPLED_METRICS`): runs of `SEEDS`}.
    """
    compared = {}
    for configs, metric in _list_cells(runs):
        heads = [
            config
            for config in configs
            if config.seed in SEEDS and config.regime == 'linear' and config.head != 'labelwise'
        ]
        finished = runs.index.isin(map(run_key, heads)).sum() == len(SEEDS)
        if heads and metric in RESAMPLED_METRICS and finished:
            compared[run_key(configs[0]), metric] = heads
    return compared


def _list_cells(runs: pd.DataFrame) -> Iterator[tuple[list[Config], str]]:
    "The runs and the metric of every table cell, claim, ablation arm, board row and experiment."
    cells = [
        cell
        for paper in published.list_papers()
        for number in published.table_numbers(paper)
        for cell in published.index_cells(paper, number).values()
    ]
    cells += [
        tables.cell_of_runs(operand.paper, operand.config)
        for claim in claims.read_claims()
        for operand in claims.claim_operands(claim)
        if operand.config and not operand.arm
    ]
    for cell in cells:
        yield tables.cell_final_runs(tables.plan_cell(cell, PHOTOS_SUITE), runs), cell['metric']
    for ablation in ablation_arms.read_ablations().values():
        metric = ablation.measure if ablation.measure in ablation_arms.ON_TEST else 'mAP'
        for dataset in ablation.columns.values():
            for arm in ablation.arms:
                yield ablation_arms.arm_configs(ablation, arm, dataset, runs), metric
    for dataset in search.SUITES[PHOTOS_SUITE]['datasets']:
        for row in boards.board_rows(PHOTOS_SUITE, dataset):
            yield search.final_configs(row, PHOTOS_SUITE, dataset, runs), 'mAP'
    for configs in _list_experiment_runs(runs):
        yield configs, 'mAP'


def _list_experiment_runs(runs: pd.DataFrame) -> Iterator[list[Config]]:
    for planned, place in (
        (clean_photos.plan_runs(runs), clean_photos.Place),
        (budget.plan_finals(runs), budget.Choice),
    ):
        for _, of_place in planned.groupby([*place._fields]):
            yield list(of_place.config)
    for experiment in (more_photos, second_backbone):
        yield from experiment.plan_finals(runs).values()


def resample_compared(
    runs: pd.DataFrame | None = None, tell: Callable[[str], None] = print
) -> Path:
    """Write the scores of all compared runs on bootstrap samples of the test images. Runs that are
    not in the setting `runs` are trained again for it.

    Args:
        runs: Default: the table of record.
        tell: Prints a line per method.

    Returns:
        The file.

    Raises:
        SpmlError: As `training.train`, and for a file that cannot be written.
    """
    file = settings.get_folder('outputs') / RESAMPLED_FILE
    compared = list_compared_runs(tables.read_recorded_runs() if runs is None else runs)
    stored = dict(np.load(file)) if file.is_file() else {}
    names = {resampled_name(first, metric) for first, metric in compared}
    scores = {name: values for name, values in stored.items() if name in names}
    missing = {}
    for first, metric in sorted(compared):
        if resampled_name(first, metric) not in scores:
            missing.setdefault(first, []).append(metric)
    if len(scores) < len(stored):
        write_arrays(file, scores)
    for k, (first, metrics) in enumerate(missing.items(), 1):
        tell(f'{k} of {len(missing)}: {first}')
        means = _resample_runs(metrics, compared[first, metrics[0]])
        scores |= {resampled_name(first, metric): mean for metric, mean in means.items()}
        write_arrays(file, dict(sorted(scores.items())))
    return file


def _result(config: Config, task: Task) -> Result:
    run = canonical_config(config)
    if Run(run).done:
        return train(run, task=task)
    with TemporaryDirectory() as folder:
        return train(config, task=task, root=Path(folder))


def _resample_runs(metrics: list[str], configs: list[Config]) -> dict[str, np.ndarray]:
    "{metric: (R,) float32, mean over the runs}."
    by_run = []
    for config in configs:
        task = make_task(config)
        result = _result(config, task)
        true, _ = labels.choose_score_targets(task.data.labels[task.test])
        draws = image_draws(len(true))
        stated, chosen = tables.table_f1_threshold(config.loss), result.scores.get('threshold')
        by_run.append(
            [
                score_samples(
                    metric,
                    result.logits['test'],
                    true,
                    draws,
                    chosen if metric in tables.CHOSEN_THRESHOLD else stated,
                )
                for metric in metrics
            ]
        )
    means = np.mean(by_run, axis=0).astype(np.float32)
    return dict(zip(metrics, means, strict=True))
