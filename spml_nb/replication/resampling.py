"""How far would a score move, had other test images been drawn? Heads are scored again, on samples of them."""

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
from ..sweeps import search
from ..sweeps.queue import key
from ..training.task import make_task
from ..training.trainer import train
from . import claims, published, tables
from .published import SUITE
from .statistics import RESAMPLED, image_draws, resampled_map


def resampled(
    metric: str, logits: np.ndarray, true: np.ndarray, draws: np.ndarray, threshold: float = 0.5
) -> np.ndarray:
    """A score on samples of the test images.

    Args:
        metric: 'mAP', 'mAP@class', 'mAP@sample', 'micro-F1' or 'macro-F1'.
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
    if metric == 'micro-F1':
        TP, wrong = TP.sum(1, keepdims=True), wrong.sum(1, keepdims=True)
    return 100 * (2 * TP / np.maximum(2 * TP + wrong, 1)).mean(1)


SEEDS = range(3)


def compared(known: pd.DataFrame) -> dict[str, list[Config]]:
    """The heads that the tables, the claims and the board compare, where their runs are done.

    Args:
        known: as from `tables.record`.

    Returns:
        {name: runs of `SEEDS`}, the name being the key of the first run and a metric, as in
        `statistics.image_error`.
    """
    compared_runs = {}
    for configs, metric in _cells_with_runs(known):
        runs = [
            c for c in configs if c.seed in SEEDS and c.regime == 'linear' and c.head != 'labelwise'
        ]
        if runs and metric in MEASURED and known.index.isin(map(key, runs)).sum() == len(SEEDS):
            compared_runs[f'{key(configs[0])} {metric}'] = runs
    return compared_runs


def _cells_with_runs(known: pd.DataFrame) -> Iterator[tuple[list[Config], str]]:
    "The runs and the metric of each cell of a table, operand of a claim and row of the board."
    for paper in published.papers():
        for number in published.tables(paper):
            for cell in published.cells(paper, number).to_dict('records'):
                yield tables.finals(tables.plan(cell, SUITE), known), cell['metric']
    for operand in _operands():
        cell = {
            'paper': operand.paper,
            'metric': 'mAP',
            'config': operand.config,
            'search': {},
            'pretraining': None,
            'no_run': '',
            'dataset': operand.config['dataset'],
        }
        yield tables.finals(tables.plan(cell, SUITE), known), 'mAP'
    for dataset in search.SUITES[SUITE]['datasets']:
        for row in search.rows_of(SUITE):
            yield search.finals(row, SUITE, dataset, known), 'mAP'


def _operands() -> list:
    "What the claims compare, where it has a run."
    operands = []

    def note(operand):
        if operand.config:
            operands.append(operand)
        return claims.Number({})

    for claim in claims.claims():
        claim.places(note)
    return operands


MEASURED = ('mAP', 'mAP@class', 'mAP@sample', 'micro-F1', 'macro-F1')


def resample(known: pd.DataFrame | None = None, tell: Callable[[str], None] = print) -> Path:
    """Train what is compared again, and keep its scores on samples of the test images.

    Args:
        known: unset: as from `tables.record`.
        tell: is given one line per method that is trained.

    Returns:
        The file.

    Raises:
        SpmlError: as `training.train`, and for a file that cannot be written.
    """
    file, wanted = (
        settings.path('outputs') / RESAMPLED,
        compared(tables.record() if known is None else known),
    )
    there = dict(np.load(file)) if file.is_file() else {}
    kept, by_run = {name: there[name] for name in wanted if name in there}, {}
    for name in sorted(set(wanted) - set(kept)):
        by_run.setdefault(name.rpartition(' ')[0], []).append(name)
    if set(there) - set(kept):
        write_arrays(file, kept)
    for k, (first, names) in enumerate(by_run.items()):
        tell(f'{k + 1} of {len(by_run)}: {first}')
        kept |= _trained(names, wanted[names[0]])
        write_arrays(file, dict(sorted(kept.items())))
    return file


def _trained(names: list[str], configs: list[Config]) -> dict[str, np.ndarray]:
    "{name: (R,) float32, mean over the runs}."
    each = []
    for config in configs:
        task = make_task(config)
        with TemporaryDirectory() as folder:
            logits = train(config, task=task, root=Path(folder)).logits['test']
        true, t = labels.for_scoring(task.data.labels[task.test])[0], _threshold(config)
        each.append(
            [
                resampled(name.rpartition(' ')[2], logits, true, image_draws(len(true)), t)
                for name in names
            ]
        )
    return dict(zip(names, np.mean(each, axis=0).astype(np.float32), strict=True))


def _threshold(config: Config) -> float:
    return float(tables.measure('micro-F1', config.loss)[0].rpartition('_')[2])
