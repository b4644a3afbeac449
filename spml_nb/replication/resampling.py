"""How far would a score move, had other test images been drawn? Heads are scored on samples."""

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
from ..statistics import RESAMPLED, image_draws, name_resampled, resampled_map
from ..sweeps import boards, search
from ..sweeps.queue import canonical_config, key
from ..training.task import Task, make_task
from ..training.trainer import Result, train
from . import arms, claims, published, tables
from .experiments import clean_photos, more_photos, second_backbone
from .published import SUITE


def score_samples(
    metric: str, logits: np.ndarray, true: np.ndarray, draws: np.ndarray, threshold: float = 0.5
) -> np.ndarray:
    """A score on samples of the test images.

    Args:
        metric: one of `RESAMPLED_METRICS`.
        logits: (N, C).
        true: (N, C) in {1, 0, −1}; 0 is unknown and left out.
        draws: (R, N), how often each image counts, as from `statistics.image_draws`.
        threshold: of F1, a probability.

    Returns:
        (R,) percent.
    """
    if metric == 'mAP@sample':
        each = measures.average_precision(
            logits, true, axis='sample', empty='skip', unknown='ignore'
        )
        counts = draws * np.isfinite(each)  # an image without a positive has none
        return 100 * counts @ np.nan_to_num(each) / counts.sum(1)
    if metric in ('mAP', 'mAP@class'):
        return resampled_map(logits, true, draws)
    yes = expit(logits) >= threshold
    TP, wrong = draws @ (yes & (true > 0)), draws @ ((yes != (true > 0)) & (true != 0))
    if metric.startswith('micro'):
        TP, wrong = TP.sum(1, keepdims=True), wrong.sum(1, keepdims=True)
    return 100 * (2 * TP / np.maximum(2 * TP + wrong, 1)).mean(1)


SEEDS = range(3)
RESAMPLED_METRICS = (
    *('mAP', 'mAP@class', 'mAP@sample', 'micro-F1', 'macro-F1'),
    *tables.CHOSEN_THRESHOLD,
)


def list_compared_runs(known: pd.DataFrame) -> dict[tuple[str, str], list[Config]]:
    """The heads that the tables, the claims and the board compare, where their runs are done.

    Args:
        known: as from `tables.record`.

    Returns: {(key of the first run, one of `RESAMPLED_METRICS`): runs of `SEEDS`}.
    """
    runs_of = {}
    for configs, metric in _cells_with_runs(known):
        runs = [
            c for c in configs if c.seed in SEEDS and c.regime == 'linear' and c.head != 'labelwise'
        ]
        if (
            runs
            and metric in RESAMPLED_METRICS
            and known.index.isin(map(key, runs)).sum() == len(SEEDS)
        ):
            runs_of[key(configs[0]), metric] = runs
    return runs_of


def _cells_with_runs(known: pd.DataFrame) -> Iterator[tuple[list[Config], str]]:
    "Runs and metric of each cell, operand of a claim, arm, board row, use and number of photos."
    cells = [
        cell
        for paper in published.list_papers()
        for number in published.table_numbers(paper)
        for cell in published.table_cells(paper, number).to_dict('records')
    ]
    cells += [
        tables.cell_of_runs(operand.paper, operand.config)
        for claim in claims.read_claims()
        for operand in claims.claim_operands(claim)
        if operand.config and not operand.arm
    ]
    for cell in cells:
        yield tables.cell_final_runs(tables.plan_cell(cell, SUITE), known), cell['metric']
    for ablation in arms.read_ablations().values():
        metric = ablation.measure if ablation.measure in arms.ON_TEST else 'mAP'
        for dataset in ablation.columns.values():
            for arm in ablation.arms:
                yield arms.arm_configs(ablation, arm, dataset, known), metric
    for dataset in search.SUITES[SUITE]['datasets']:
        for row in boards.board_rows(SUITE, dataset):
            yield search.finals(row, SUITE, dataset, known), 'mAP'
    for _, runs in clean_photos.plan_runs(known).groupby([*clean_photos.Place._fields]):
        yield list(runs.config), 'mAP'
    for experiment in (more_photos, second_backbone):
        for configs in experiment.plan_finals(known).values():
            yield configs, 'mAP'


def resample_compared(
    known: pd.DataFrame | None = None, tell: Callable[[str], None] = print
) -> Path:
    """Keep the scores of what is compared on samples of the test images; a run that is not in the
    setting `runs` is trained again for it.

    Args:
        known: unset: as from `tables.record`.
        tell: is given one line per method.

    Returns:
        The file.

    Raises:
        SpmlError: as `training.train`, and for a file that cannot be written.
    """
    file = settings.path('outputs') / RESAMPLED
    runs_of = list_compared_runs(tables.record() if known is None else known)
    there = dict(np.load(file)) if file.is_file() else {}
    names = {name_resampled(*heads) for heads in runs_of}
    kept = {name: scores for name, scores in there.items() if name in names}
    metrics = {}
    for first, metric in sorted(runs_of):
        if name_resampled(first, metric) not in kept:
            metrics.setdefault(first, []).append(metric)
    if len(kept) < len(there):
        write_arrays(file, kept)
    for k, (first, of_run) in enumerate(metrics.items(), 1):
        tell(f'{k} of {len(metrics)}: {first}')
        means = _resampled_scores(of_run, runs_of[first, of_run[0]])
        kept |= {name_resampled(first, metric): mean for metric, mean in means.items()}
        write_arrays(file, dict(sorted(kept.items())))
    return file


def _result(config: Config, task: Task) -> Result:
    run = canonical_config(config)
    if Run(run).done:
        return train(run, task=task)
    with TemporaryDirectory() as folder:
        return train(config, task=task, root=Path(folder))


def _resampled_scores(metrics: list[str], configs: list[Config]) -> dict[str, np.ndarray]:
    "{metric: (R,) float32, mean over the runs}."
    each = []
    for config in configs:
        task = make_task(config)
        result = _result(config, task)
        true, _ = labels.labels_for_scoring(task.data.labels[task.test])
        draws = image_draws(len(true))
        stated, chosen = tables.table_f1_threshold(config.loss), result.scores.get('threshold')
        each.append(
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
    means = np.mean(each, axis=0).astype(np.float32)
    return dict(zip(metrics, means, strict=True))
