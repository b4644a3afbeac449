"""EM/APL, figures 7 to 11: labels during training, shares of positives, probabilities by class."""

import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit

from ...data.labels import choose_score_targets
from ...drawing import INK, draw_curve, draw_legend, make_axes
from ...metrics import average_precision
from ...runs.folder import Run, read_result
from ...training.task import make_task
from .. import run_measurements
from ..figure_drawing import (
    Curve,
    FigureArrays,
    PaperFigure,
    draw_bands,
    draw_over_epochs,
    make_panels,
    mean_and_range,
)

_METHODS = {'AN': 'an', 'EM': 'em'}
_DATA = ('voc12', 'coco14', 'nus', 'cub')


def _curves(
    datasets: tuple[str, ...] = _DATA, methods: tuple[str, ...] = ('AN', 'EM')
) -> list[Curve]:
    """Runs with single positives."""
    return [
        Curve(dataset, name, {'loss': _METHODS[name]}) for dataset in datasets for name in methods
    ]


def _losses(collected: FigureArrays) -> Figure:
    label = 'loss of annotated positives'
    picture = draw_over_epochs(
        collected, _METHODS, 'annotated', label, run_measurements.POINTS, 'log'
    )
    for ax in picture.axes:
        if ax.lines:  # an empty panel says what is missing
            ax.axhline(np.log(2), color='black', linestyle=':', linewidth=0.8)  # the start, p = 1/2
    return picture


def _logits(collected: FigureArrays) -> Figure:
    return draw_bands(collected, ('EM',), 'logit', '|logit|', (1, 2))


def _probabilities(collected: FigureArrays) -> Figure:
    return draw_bands(collected, tuple(_METHODS), 'probability', 'predicted probability', (0, 1), 1)


def count_label_kinds(run: Run) -> dict:
    """The share of positives among the unannotated training labels of each class.

    Args:
        run: Only its labels are used.

    Returns:
        positive (C,), highest first.

    Source: EM/APL, Fig. 10.
    """
    task = make_task(run.config)
    unknown = task.observed == 0
    true = task.data.labels[task.train]
    share = (unknown & (true > 0)).sum(0) / np.maximum((unknown & (true != 0)).sum(0), 1)
    return {'positive': np.sort(share)[::-1].astype(np.float32)}


def _shares(collected: FigureArrays) -> Figure:
    """Draw the shares of positives and negatives among each class's unannotated labels."""
    picture, panels = make_panels(collected, 2.8)
    for ax, dataset, ours in panels:
        if not collected.of_seeds(dataset, 'AN'):
            continue
        share = collected.summary(dataset, 'AN', 'positive')[0]
        edges = np.arange(len(share) + 1)
        ax.stairs(np.ones(len(share)), edges, fill=True, color=INK[1], alpha=0.5, label='negative')
        ax.stairs(share, edges, fill=True, color=INK[0], label='positive')
        ax.axhline(1 - 0.9, color='black', linestyle=':', label='90% negative')
        ax.set(xlabel='class, by share', ylabel='share of unannotated labels', title=ours)
        ax.set_ylim(0, 1)
    draw_legend(picture)
    return picture


_CLASSES = 8  # in the arrays
_SHOWN = 4  # of these in the figure
_BINS = np.linspace(0, 1, 51)  # edges, of probabilities
_LINES = (
    ('training positives', INK[0], '-'),
    ('training negatives', INK[1], '-'),
    ('test positives', INK[0], ':'),
    ('test negatives', INK[1], ':'),
)


def class_density(run: Run) -> dict:
    """Histograms of the predicted probabilities of each class.

    Returns:
        counts (k, 4, 50) over [0, 1] of k = 8 classes: unannotated training positives and
        negatives, test positives and negatives; ap (k,) on test images in percent; names (k,).

    Source: EM/APL, Fig. 11.
    """
    train = run_measurements.score_run(run)
    test = read_result(run).logits['test'].astype(np.float64)
    true = train.task.data.labels[train.task.test]
    by_frequency = np.argsort(-(true > 0).sum(0), kind='stable')
    chosen = by_frequency[:: max(1, len(by_frequency) // _CLASSES)][:_CLASSES]
    _, positives, negatives = run_measurements.label_group_masks(train.task.observed, train.true)
    p_train, p_test = expit(train.logits), expit(test)
    groups = [(p_train, positives), (p_train, negatives), (p_test, true > 0), (p_test, true < 0)]
    counts = [
        [
            run_measurements.count_histograms(p[:, [c]], [group[:, [c]]], _BINS)[0]
            for p, group in groups
        ]
        for c in chosen
    ]
    ap = average_precision(test, choose_score_targets(true)[0], unknown='ignore')[chosen]
    return {
        'counts': np.array(counts, np.int32),
        'ap': 100 * ap.astype(np.float32),
        'names': np.array(train.task.data.class_names)[chosen],
    }


def _cumulative(collected: FigureArrays) -> Figure:
    """Draw the share of labels up to each probability, a column per class and a row per method."""
    seeds = {name: collected.of_seeds('coco14', name) for name in _METHODS}
    names = (seeds['AN'] or seeds['EM'])[0]['names']
    classes = np.linspace(0, len(names) - 1, _SHOWN).round().astype(int)  # the rarest, too
    picture, axes = make_axes(len(_METHODS), len(classes), 1.9, 1.6)
    for row, method in zip(axes, _METHODS, strict=True):
        row[0].set_ylabel(f'{method}\nshare of labels (%)')
        for ax, c in zip(row, classes, strict=True):
            ax.set(xlim=(0, 1), ylim=(0, 100), xticks=[0, 0.5, 1])
            ax.grid(alpha=0.3)
            _cumulative_lines(ax, [seed['counts'][c] for seed in seeds[method]])
    for column, c in enumerate(classes):
        change = ''
        if all(seeds.values()):
            change = _change(*(np.mean([seed['ap'][c] for seed in seeds[m]]) for m in _METHODS))
        axes[0, column].set_title(f'{names[c]}{change}', fontsize=7)
        axes[-1, column].set_xlabel('probability up to', fontsize=7)
    draw_legend(picture)
    return picture


def _cumulative_lines(ax, seeds: list[np.ndarray]):
    """Draw the lines of a class and a method, from the counts (4, 50) of each seed."""
    if not seeds:
        return
    for group, (label, ink, dash) in enumerate(_LINES):
        shares = np.array([_shares_up_to(counts[group]) for counts in seeds])
        summary = mean_and_range(shares)[:, ::2]
        draw_curve(ax, _BINS[::2], summary, ink, linestyle=dash, label=label)


def _change(an: float, em: float) -> str:
    percent = f'{100 * (em / an - 1):+z.0f}'.replace('-', '−')
    return f'\nAP {an:.1f} → {em:.1f} ({percent} %)'


def _shares_up_to(counts: np.ndarray) -> np.ndarray:
    return 100 * np.append(0, counts.cumsum()) / max(counts.sum(), 1)


FIGURES = {
    '7': PaperFigure(_losses, _curves(), run_measurements.read_notes, observed=True),
    '8': PaperFigure(_logits, _curves(methods=('EM',)), run_measurements.read_notes, observed=True),
    '9': PaperFigure(_probabilities, _curves(), run_measurements.read_notes, observed=True),
    '10': PaperFigure(
        _shares, _curves(('coco14', 'nus', 'cub'), ('AN',)), count_label_kinds, seeds=(0,)
    ),
    '11': PaperFigure(_cumulative, _curves(('coco14',)), class_density, seeds=tuple(range(10))),
}
