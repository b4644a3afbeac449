"""What labels do during training, shares of positives, and probabilities class by class: figures 7 to 11 of EM/APL."""

import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit

from spml_nb.replication.drawing import (
    INK,
    Collected,
    Curve,
    PaperFigure,
    bands,
    curve,
    legend,
    over_epochs,
    panels,
    sheet,
)

from ...data.labels import for_scoring
from ...metrics import average_precision
from ...runs.folder import Run, read_result
from ...training.task import make_task
from .. import measuring

METHODS = {'AN': 'an', 'EM': 'em'}


def _compared(datasets: tuple[str, ...], names: tuple[str, ...] = ('AN', 'EM')) -> list[Curve]:
    "Runs of some methods with one positive label."
    return [Curve(dataset, name, {'loss': METHODS[name]}) for dataset in datasets for name in names]


DATA = ('voc12', 'coco14', 'nus', 'cub')

figure7 = PaperFigure(
    'Loss of the annotated positives during training.',
    draw=lambda collected: over_epochs(
        collected,
        tuple(METHODS),
        'annotated',
        'loss of annotated positives',
        measuring.POINTS,
        'log',
    ),
    curves=_compared(DATA),
    measure=measuring.notes,
    observed=True,
    printed='With AN it rises in early training, with EM it falls and is steadier.',
    notes=(
        'Mean of −log p over the annotated positives of the batches, five points an epoch, on a '
        'logarithmic axis. A curve ends where the first of its seeds stopped.'
    ),
)


figure8 = PaperFigure(
    'Absolute logits of unannotated positive and negative labels in the training images, epoch '
    'by epoch, for EM.',
    draw=lambda collected: bands(collected, ('EM',), 'logit', '|logit|', (1, 2)),
    curves=_compared(DATA, ('EM',)),
    measure=measuring.notes,
    observed=True,
    printed=(
        'Many unannotated negatives stay near zero; logits of 1, 2 and 3 are probabilities of '
        '0.73, 0.88 and 0.95.'
    ),
    together='Medians with the quartiles around them, each a mean over seeds.',
)


figure9 = PaperFigure(
    'Predicted probabilities of annotated and unannotated positive labels in the training '
    'images, epoch by epoch, for AN on the left and EM on the right.',
    draw=lambda collected: bands(
        collected, tuple(METHODS), 'probability', 'predicted probability', (0, 1), 1
    ),
    curves=_compared(DATA),
    measure=measuring.notes,
    observed=True,
    printed='AN gives low probabilities, the lowest to unannotated positives; EM is sure of both.',
    together='Medians with the quartiles around them, each a mean over seeds.',
)


def proportions(run: Run) -> dict:
    """Count what the unannotated labels of a run's training images are.

    Args:
        run: done; only its labels are looked at.

    Returns:
        positive (C,): the share of positives among each class's unannotated training labels,
        highest first.

    Source: EM/APL, Fig. 10.
    """
    task = make_task(run.config)
    unknown, true = task.observed == 0, task.data.labels[task.train]
    share = (unknown & (true > 0)).sum(0) / np.maximum((unknown & (true != 0)).sum(0), 1)
    return {'positive': np.sort(share)[::-1].astype(np.float32)}


def _shares(collected: Collected) -> Figure:
    "Shares of positives and negatives among each class's unannotated labels."
    picture, places = panels(collected, 2.8)
    for ax, dataset, ours in places:
        if not collected.parts(dataset, 'AN'):
            continue
        share = collected.over_seeds(dataset, 'AN', 'positive')[0]
        edges = np.arange(len(share) + 1)
        ax.stairs(np.ones(len(share)), edges, fill=True, color=INK[1], alpha=0.5, label='negative')
        ax.stairs(share, edges, fill=True, color=INK[0], label='positive')
        ax.axhline(1 - 0.9, color='black', linestyle=':', label='90% negative')
        ax.set(
            xlabel='class, by share', ylabel='share of unannotated labels', title=ours, ylim=(0, 1)
        )
    legend(picture)
    return picture


figure10 = PaperFigure(
    'Of the labels of each class that are unannotated with one positive known an image, the '
    'share of positives and of negatives.',
    draw=_shares,
    curves=_compared(('coco14', 'nus', 'cub'), ('AN',)),
    measure=proportions,
    seeds=(0,),
    printed=(
        'Negatives outnumber positives by far; in some classes they are fewer than the 90 % that '
        'are to be pseudo-labelled.'
    ),
    notes='The labels are those on the training images.',
)


CLASSES, SHOWN = 8, 4  # that are counted, and of these drawn
PROBABILITIES = np.linspace(0, 1, 51)  # edges of the bins
LINES = (
    ('training positives', INK[0], '-'),
    ('training negatives', INK[1], '-'),
    ('test positives', INK[0], ':'),
    ('test negatives', INK[1], ':'),
)


def class_density(run: Run) -> dict:
    """Count predicted probabilities class by class.

    Args:
        run: done.

    Returns:
        counts (k, 4, 50) over [0, 1] of k = 8 classes: unannotated training positives and
        negatives, test positives and negatives; ap (k,) of the test images in percent; names (k,).

    Source: EM/APL, Fig. 11.
    """
    train, test = measuring.examine(run), read_result(run).logits['test'].astype(np.float64)
    data, true = train.task.data, train.task.data.labels[train.task.test]
    order = np.argsort(
        -(true > 0).sum(0), kind='stable'
    )  # from the most frequent class to the rarest
    chosen = order[:: max(1, len(order) // CLASSES)][:CLASSES]
    groups = [*measuring.group_masks(train.task.observed, train.true)[1:], true > 0, true < 0]
    p = [expit(train.logits)] * 2 + [expit(test)] * 2
    counts = [
        [
            measuring.histograms(x[:, [c]], [g[:, [c]]], PROBABILITIES)[0]
            for x, g in zip(p, groups, strict=True)
        ]
        for c in chosen
    ]
    ap = 100 * average_precision(test, for_scoring(true)[0], unknown='ignore')[chosen].astype(
        np.float32
    )
    return {
        'counts': np.array(counts, np.int32),
        'ap': ap,
        'names': np.array(data.class_names)[chosen],
    }


def _cumulative(collected: Collected) -> Figure:
    """Shares of labels up to each probability, one column for each class and one row for each
    method.
    """
    found = [collected.parts('coco14', name) for name in METHODS]
    names = (found[0] or found[1])[0]['names'][:: CLASSES // SHOWN]
    picture, axes = sheet(len(METHODS), len(names), 1.9, 1.6)
    for (i, column), ax in np.ndenumerate(axes):
        ax.set(xlim=(0, 1), ylim=(0, 100), xticks=[0, 0.5, 1])
        ax.grid(alpha=0.3)
        for k, (label, ink, dash) in enumerate(LINES if found[i] else ()):
            each = np.array(
                [_shares_up_to(part['counts'][column * (CLASSES // SHOWN), k]) for part in found[i]]
            )
            summary = np.stack([each.mean(0), each.min(0), each.max(0)])
            curve(ax, PROBABILITIES[::2], summary[:, ::2], ink, linestyle=dash, label=label)
    for row, name in zip(axes, METHODS, strict=True):
        row[0].set_ylabel(f'{name}\nshare of labels (%)')
    for column, name in enumerate(names):
        an, em = (
            np.mean([part['ap'][column * (CLASSES // SHOWN)] for part in parts])
            if parts
            else np.nan
            for parts in found
        )
        change = (
            f'\nAP {an:.1f} → {em:.1f} ({100 * (em / an - 1):+z.0f} %)'.replace('-', '−')
            if all(found)
            else ''
        )
        axes[0, column].set_title(f'{name}{change}', fontsize=7)
        axes[-1, column].set_xlabel('probability up to', fontsize=7)
    legend(picture)
    return picture


def _shares_up_to(counts: np.ndarray) -> np.ndarray:
    return 100 * np.append(0, counts.cumsum()) / max(counts.sum(), 1)


figure11 = PaperFigure(
    'Predicted probabilities of four classes, AN above and EM below: the share of labels with a '
    'probability up to that on the axis, of unannotated labels of training images and of all '
    'labels of test images. The further the lines of '
    "positives and negatives lie apart, the better they are told apart. Over each pair stands the "
    "class's average "
    'precision with AN and with EM, and the change in percent.',
    draw=_cumulative,
    curves=_compared(('coco14',)),
    measure=class_density,
    seeds=tuple(range(10)),
    printed='EM tells positives from negatives better, also in the rare class knife.',
    notes=(
        'The caption of the paper names densities on an axis that is cut off; cumulative shares '
        'show the same counts whole. The change is that of the mean over seeds. The classes are '
        'evenly spaced by their number of positive test images.'
    ),
)


FIGURES = {'7': figure7, '8': figure8, '9': figure9, '10': figure10, '11': figure11}
