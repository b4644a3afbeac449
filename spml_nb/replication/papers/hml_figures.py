"""Cosines, gradients, margins, scales and labels that are alike: figures 2 to 6 of HML."""

import numpy as np
import torch
from matplotlib.figure import Figure

from spml_nb.replication.drawing import (
    INK,
    Collected,
    Curve,
    PaperFigure,
    curve,
    legend,
    panels,
    scores,
    sheet,
)

from ...methods.hml import gradient_balance, label_correlation
from ...runs.folder import Run
from .. import diagnosis, measuring

COSINES, GRADIENTS = np.linspace(-1, 1, 81), np.linspace(0, 1.5, 61)  # edges of the bins


def _angle(method) -> tuple[float, float]:
    "The scale and margin of a method, learned ones too."
    return tuple(float(torch.as_tensor(x).detach()) for x in (method.scale, method.margin))


def density(run: Run) -> dict:
    """Count cosines and gradients of the training images.

    Args:
        run: of `hml_fixed`.

    Returns:
        cosine (3, 80) and gradient (3, 60): counts of positives, false negatives and true
        negatives; scale; margin.

    Source: HML, Fig. 2.
    """
    pull, z, true, logits = diagnosis.pulls(run)
    seen = measuring.opened(run)
    scale, margin = _angle(seen.method)
    groups = [z > 0, (z <= 0) & (true > 0), true < 0]  # with full labels the negatives are known
    gradient = pull.abs().cpu().numpy() * z.shape[1] / scale  # the loss is a mean over classes
    cosine = logits.cpu().numpy() / seen.model.head.scale
    return {
        'cosine': measuring.histograms(cosine, groups, COSINES),
        'gradient': measuring.histograms(gradient, groups, GRADIENTS),
        'scale': scale,
        'margin': margin,
    }


COLUMNS = {
    'full labels, m = 0': ('full', 0),
    'single positives, m = 0': ('single', 0),
    'single positives, m = 0.1': ('single', 0.1),
}  # {name: (labels, margin)}
GROUPS = (('positives', INK[0]), ('false negatives', INK[3]), ('true negatives', INK[1]))


def _cosines_and_gradients(collected: Collected) -> Figure:
    "Cosines above, gradients below, one column for each setting."
    picture, axes = sheet(2, len(COLUMNS), 2.7, 1.9)
    for (above, below), name in zip(axes.T, COLUMNS, strict=True):
        found = collected.parts('voc12', name)
        if not found:
            continue
        for k, (group, ink) in enumerate(GROUPS):
            for ax, array, edges in ((above, 'cosine', COSINES), (below, 'gradient', GRADIENTS)):
                counts = np.array([part[array][k] for part in found])
                if counts.any():
                    _histogram(ax, counts, edges, ink, group)
        right, theta = above.twinx(), np.arccos(np.clip(COSINES, -1, 1))
        p = 1 / (
            1 + np.exp(-found[0]['scale'] * np.cos(np.minimum(theta + found[0]['margin'], np.pi)))
        )
        right.plot(
            COSINES, p, color='black', linestyle=':', label='probability of a cosine (right axis)'
        )
        right.set(ylim=(0, 1.02), yticks=[0, 0.5, 1])
        right.spines['right'].set_visible(True)
        above.set(
            title=name,
            xlabel='cosine similarity',
            ylabel='density',
            xlim=_reach(collected, 'cosine', COSINES),
        )
        below.set(
            xlabel='gradient |∂ℓ/∂cos|/s',
            ylabel='density',
            yscale='log',
            xlim=_reach(collected, 'gradient', GRADIENTS),
        )
    legend(picture)
    return picture


def _histogram(ax, counts: np.ndarray, edges: np.ndarray, ink: str, label: str):
    "The density of all seeds, with a band from the lowest seed to the highest."
    each = counts / np.maximum(counts.sum(1, keepdims=True), 1) / np.diff(edges)
    mean, low, high = counts.sum(0) / counts.sum() / np.diff(edges), each.min(0), each.max(0)
    there = np.flatnonzero(mean)
    seen = slice(there[0], there[-1] + 1)
    curve(
        ax,
        (edges[:-1] + edges[1:])[seen] / 2,
        np.stack([mean, low, high])[:, seen],
        ink,
        label=label,
    )


def _reach(collected: Collected, array: str, edges: np.ndarray) -> tuple[float, float]:
    """The ends of the bins that all but a thousandth of some group of labels lie in, over all
    settings.
    """
    counts = np.concatenate([part[array] for part in collected.arrays.values()])
    counts = counts[counts.sum(1) > 0]
    below, above = (
        counts.cumsum(1) / counts.sum(1, keepdims=True),
        counts[:, ::-1].cumsum(1)[:, ::-1],
    )
    inside = ((below > 5e-4) & (above > 5e-4 * counts.sum(1, keepdims=True))).any(0)
    first, last = np.flatnonzero(inside)[[0, -1]]
    return edges[first], edges[last + 1]


figure2 = PaperFigure(
    'How alike images and labels are (cosine, above) and how hard the loss pulls at them '
    '(below), when training has ended: all labels known, one positive known, and one positive '
    'known with a margin. Positives, true negatives and, where labels are hidden, false '
    'negatives are told apart by the true labels.',
    draw=_cosines_and_gradients,
    curves=[
        Curve(
            'voc12',
            name,
            {'loss': 'hml_fixed'},
            {(): {'labels': labels, 'hparams': {'scale': 20, 'margin': m}}},
        )
        for name, (labels, m) in COLUMNS.items()
    ],
    measure=density,
    together='Lines are of all seeds, bands reach from the lowest seed to the highest.',
    printed=(
        'The margin of the third column is 0.1, and false negatives keep strong gradients in the '
        'second.'
    ),
    notes="The scale is 20, the paper's fixed one; the gradient is that of an entry's loss by its cosine. "
    'The learning rate is that chosen for single positives.',
)


MARGINS = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


def _fixed(series: str, points: list[dict], axis: str) -> Curve:
    "Runs with one positive label, with the scale and margin of each point."
    return Curve(
        'voc12',
        series,
        {'loss': 'hml_fixed'},
        {(point[axis],): {'hparams': point} for point in points},
    )


def balance(run: Run) -> dict:
    """Measure how far the gradients of all training entries are from cancelling.

    Args:
        run: done, of any method.

    Returns:
        imbalance: Eq. 6 divided by the number of images; test_map in percent.

    Source: HML, Eq. 6 and Fig. 3.
    """
    seen = measuring.examine(run)
    imbalance = gradient_balance(
        *map(torch.from_numpy, (seen.logits, seen.task.observed)), reduction='sample'
    )
    return {
        'imbalance': imbalance.item(),
        'test_map': np.float32(run.result()['scores']['test_map']),
    }


def _scores_and_balance(collected: Collected) -> Figure:
    "mAP and the imbalance of gradients over the margin."
    picture, [(left, _, ours)] = panels(collected, 4.2)
    right = left.twinx()
    left.axvspan(0.2, 0.4, color='#eeeeee')
    left.text(
        0.3,
        0.98,
        "the paper's\nbest margins",
        transform=left.get_xaxis_transform(),
        ha='center',
        va='top',
        color='#555555',
        fontsize=7,
    )
    for ax, array, ink, label in (
        (left, 'test_map', '#ee7733', 'mAP (%)'),
        (right, 'imbalance', INK[0], '|Σ gradients| per image'),
    ):
        curve(
            ax,
            MARGINS,
            collected.along('voc12', 's = 20', [(m,) for m in MARGINS], array),
            ink,
            marker='o',
        )
        ax.set_ylabel(label, color=ink)
        low, high = ax.get_ylim()
        ax.set_ylim(low, high + 0.25 * (high - low))  # room for the words in the band
    right.spines['right'].set_visible(True)
    left.set_xticks(MARGINS)
    left.set(xlabel='margin m (radians)', title=f'{ours}, s = 20')
    return picture


figure3 = PaperFigure(
    'The best mAP of each fixed margin, and how far the gradients of positives and negatives, '
    'added up over the training set, are from cancelling.',
    draw=_scores_and_balance,
    curves=[_fixed('s = 20', [{'scale': 20, 'margin': m} for m in MARGINS], 'margin')],
    measure=balance,
    seeds=tuple(range(10)),
    printed='Margins between about 0.2 and 0.4 suit VOC12.',
    notes='The values of the margin are chosen here. The difference of gradients is Eq. 6 over all training images, at '
    "the best epoch's weights.",
)


SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)

figure4 = PaperFigure(
    'mAP when only a part of the positive labels is known and everything else is read as negative.',
    draw=lambda collected: scores(
        collected, ('share of positive labels known', SHARES, ('BCE', 'HML'))
    ),
    curves=[
        Curve(dataset, name, {'loss': loss}, {(s,): {'labels': f'partial-{s}'} for s in SHARES})
        for dataset in ('voc12', 'coco14', 'nus', 'cub')
        for name, loss in (('BCE', 'an'), ('HML', 'hml'))
    ],
    printed=(
        'On VOC12 BCE loses 40 % when a tenth of the positives is known; HML is above BCE at '
        'every share, most at the smallest.'
    ),
    notes=(
        'The text names no share but a tenth and no data set but VOC12; the others are chosen '
        'here. Learning rate and hyper-parameters are those chosen for single positives.'
    ),
)


SCALES = (5, 10, 20, 30, 40, 50)

figure5 = PaperFigure(
    'mAP over the scale without a margin, and over the margin at two scales.',
    draw=lambda collected: scores(
        collected,
        ('scale s', SCALES, ('m = 0',)),
        ('margin m (radians)', MARGINS, ('s = 20', 's = 40')),
    ),
    curves=[
        _fixed('m = 0', [{'margin': 0, 'scale': s} for s in SCALES], 'scale'),
        *(
            _fixed(f's = {s}', [{'scale': s, 'margin': m} for m in MARGINS], 'margin')
            for s in (20, 40)
        ),
    ],
    seeds=tuple(range(10)),
    printed='The best is 89.1 at s = 20, m = 0.3.',
    notes='The values of scale and margin are chosen here.',
)


def correlation(run: Run) -> dict:
    """Find the 12 labels with the highest correlation to another.

    Args:
        run: with a cosine head, of `hml` or `hml_fixed`.

    Returns:
        correlation (k, k), Eq. 8, of k = 12 labels or fewer; names (k,).

    Source: HML, Eq. 8 and Fig. 6.
    """
    seen = measuring.opened(run, 'val')
    corr = label_correlation(seen.model.head.weight.detach().cpu(), *_angle(seen.method)).numpy()
    highest = np.where(np.eye(len(corr), dtype=bool), -1, corr).max(1)
    top, names = np.argsort(-highest, kind='stable')[:12], np.array(seen.task.data.class_names)
    return {'correlation': corr[np.ix_(top, top)].astype(np.float32), 'names': names[top]}


def _matrix(collected: Collected) -> Figure:
    "The correlation of labels as a matrix."
    picture, axes = sheet(1, 1, 5.2, 4.2)
    (found,), ax = collected.parts('coco14', 'HML'), axes[0, 0]
    others = np.where(
        np.eye(len(found['names']), dtype=bool), np.nan, found['correlation']
    )  # with itself: no news
    shown, names = ax.imshow(others, cmap='viridis'), range(len(found['names']))
    middle = np.nanmean([np.nanmin(others), np.nanmax(others)])
    ax.set_xticks(names, found['names'], rotation=90)
    ax.set_yticks(names, found['names'])
    for (i, j), value in np.ndenumerate(others):
        ink = 'black' if value > middle else 'white'
        if i != j:
            ax.text(j, i, f'{value:.2f}', ha='center', va='center', fontsize=6, color=ink)
    ax.set_title(f"{collected.about['data'][0][1]}, HML")
    picture.colorbar(shown, label='correlation (Eq. 8)')
    return picture


figure6 = PaperFigure(
    'How alike a trained network holds labels to be (Eq. 8), for the labels that are most alike.',
    draw=_matrix,
    curves=[Curve('coco14', 'HML', {'loss': 'hml'})],
    measure=correlation,
    seeds=(0,),
    printed=(
        'Labels with a correlation above 0.95 to another are shown; fork, knife, spoon, bowl and '
        'dining table are one such group.'
    ),
    notes=(
        'The 12 labels with the highest correlation to another are shown, whatever it is. The '
        'correlation of a label with itself is left out.'
    ),
)


FIGURES = {'2': figure2, '3': figure3, '4': figure4, '5': figure5, '6': figure6}
