"""HML, figures 2 to 6 and E8: cosines, gradients, margins, scales and correlated labels."""

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy import stats

from ...drawing import INK, draw_curve, draw_legend, make_axes
from ...methods.hml import gradient_balance, label_correlation
from ...runs.folder import Run
from ...training.evaluation import Opened
from .. import run_measurements
from ..figure_drawing import Axis, Curve, FigureArrays, PaperFigure, draw_scores, make_panels

COSINES = np.linspace(-1, 1, 81)  # edges of the bins
GRADIENTS = np.linspace(0, 1.5, 61)


def _scale_and_margin(method) -> tuple[float, float]:
    """The scale and the margin of a method, fixed or learned."""
    return tuple(float(torch.as_tensor(x).detach()) for x in (method.scale, method.margin))


def count_cosines(run: Run) -> dict:
    """Histograms of the cosines and gradients of the training images.

    Args:
        run: Of `hml_fixed`.

    Returns:
        cosine (3, 80) and gradient (3, 60): counts of positives, false negatives and true
        negatives; scale; margin.

    Source: HML, Fig. 2.
    """
    pull, z, true, logits = run_measurements.measure_pulls(run)
    seen = run_measurements.open_own_data(run)
    scale, margin = _scale_and_margin(seen.method)
    groups = [z > 0, (z <= 0) & (true > 0), true < 0]
    gradient = pull.abs().cpu().numpy() * z.shape[1] / scale  # the loss is a mean over classes
    cosine = logits.cpu().numpy() / seen.model.head.scale
    return {
        'cosine': run_measurements.count_histograms(cosine, groups, COSINES),
        'gradient': run_measurements.count_histograms(gradient, groups, GRADIENTS),
        'scale': scale,
        'margin': margin,
    }


_COLUMNS = {
    'full labels, m = 0': ('full', 0),
    'single positives, m = 0': ('single', 0),
    'single positives, m = 0.1': ('single', 0.1),
}  # {name: (labels, margin)}
_GROUPS = (('positives', INK[0]), ('false negatives', INK[3]), ('true negatives', INK[1]))


def _cosines_and_gradients(collected: FigureArrays) -> Figure:
    """Draw cosines above and gradients below, a column for each setting."""
    picture, axes = make_axes(2, len(_COLUMNS), 2.7, 1.9)
    for (above, below), name in zip(axes.T, _COLUMNS, strict=True):
        seeds = collected.of_seeds('voc12', name)
        if not seeds:
            continue
        _densities(above, np.array([seed['cosine'] for seed in seeds]), COSINES)
        _densities(below, np.array([seed['gradient'] for seed in seeds]), GRADIENTS)
        _probability(above.twinx(), seeds[0]['scale'], seeds[0]['margin'])
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
    draw_legend(picture)
    return picture


def _densities(ax, counts: np.ndarray, edges: np.ndarray):
    """Draw the density of each group over all seeds, with a band over seeds.

    Args:
        counts: (seeds, groups, bins).
    """
    width = np.diff(edges)
    for k, (group, ink) in enumerate(_GROUPS):
        of_group = counts[:, k]
        if not of_group.any():
            continue
        by_seed = of_group / np.maximum(of_group.sum(1, keepdims=True), 1) / width
        mean = of_group.sum(0) / of_group.sum() / width
        summary = np.stack([mean, by_seed.min(0), by_seed.max(0)])
        filled = np.flatnonzero(mean)
        bins = slice(filled[0], filled[-1] + 1)
        draw_curve(ax, (edges[:-1] + edges[1:])[bins] / 2, summary[:, bins], ink, label=group)


def _probability(ax, scale: float, margin: float):
    """Draw the probability of a positive over its cosine."""
    theta = np.minimum(np.arccos(np.clip(COSINES, -1, 1)) + margin, np.pi)
    p = 1 / (1 + np.exp(-scale * np.cos(theta)))
    label = 'probability of a cosine (right axis)'
    ax.plot(COSINES, p, color='black', linestyle=':', label=label)
    ax.set(ylim=(0, 1.02), yticks=[0, 0.5, 1])
    ax.spines['right'].set_visible(True)


def _reach(collected: FigureArrays, array: str, edges: np.ndarray) -> tuple[float, float]:
    """Limits of the axis that, in every group and setting, leave out at most a thousandth."""
    counts = np.concatenate([run[array] for run in collected.arrays.values()])
    counts = counts[counts.sum(1) > 0]
    total = counts.sum(1, keepdims=True)
    from_left = counts.cumsum(1) / total
    from_right = counts[:, ::-1].cumsum(1)[:, ::-1] / total
    inside = ((from_left > 5e-4) & (from_right > 5e-4)).any(0)
    first, last = np.flatnonzero(inside)[[0, -1]]
    return edges[first], edges[last + 1]


MARGINS = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


def measure_balance(run: Run) -> dict:
    """How far the gradients of all training labels are from cancelling.

    Returns:
        imbalance: Eq. 6 divided by the number of images; test_map in percent.

    Source: HML, Eq. 6 and Fig. 3.
    """
    seen = run_measurements.score_run(run)
    imbalance = gradient_balance(
        *map(torch.from_numpy, (seen.logits, seen.task.observed)), reduction='sample'
    )
    return {
        'imbalance': imbalance.item(),
        'test_map': np.float32(run.result()['scores']['test_map']),
    }


def _scores_and_balance(collected: FigureArrays) -> Figure:
    """Draw mAP and the imbalance of gradients over the margin."""
    picture, [(left, _, ours)] = make_panels(collected, 4.2)
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
    points = [(margin,) for margin in MARGINS]
    for ax, array, ink, label in (
        (left, 'test_map', '#ee7733', 'mAP (%)'),
        (right, 'imbalance', INK[0], '|Σ gradients| per image'),
    ):
        summary = collected.summary_along('voc12', 's = 20', points, array)
        draw_curve(ax, MARGINS, summary, ink, marker='o')
        ax.set_ylabel(label, color=ink)
        low, high = ax.get_ylim()
        ax.set_ylim(low, high + 0.25 * (high - low))  # room for the text at the top
    right.spines['right'].set_visible(True)
    left.set_xticks(MARGINS)
    left.set(xlabel='margin m (radians)', title=f'{ours}, s = 20')
    return picture


_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
SCALES = (5, 10, 20, 30, 40, 50)


def _fixed_curve(series: str, varied: str, values: tuple[float, ...], **hparams) -> Curve:
    """Runs of `hml_fixed` over values of one of its two hyper-parameters."""
    points = {(value,): {'hparams': {**hparams, varied: value}} for value in values}
    return Curve('voc12', series, {'loss': 'hml_fixed'}, points)


def _partial_labels(collected: FigureArrays) -> Figure:
    return draw_scores(collected, {Axis('share of positive labels known', _SHARES): ('BCE', 'HML')})


def _scales_and_margins(collected: FigureArrays) -> Figure:
    return draw_scores(
        collected,
        {
            Axis('scale s', SCALES): ('m = 0',),
            Axis('margin m (radians)', MARGINS): ('s = 20', 's = 40'),
        },
    )


def find_correlated_labels(run: Run) -> dict:
    """The 12 labels with the highest correlation to another.

    Args:
        run: Of `hml` or `hml_fixed`, with a cosine head.

    Returns:
        correlation (k, k), Eq. 8, of k ≤ 12 labels; names (k,).

    Source: HML, Eq. 8 and Fig. 6.
    """
    seen = run_measurements.open_own_data(run, 'val')
    correlation = _learnt_correlation(seen)
    highest = np.where(np.eye(len(correlation), dtype=bool), -1, correlation).max(1)
    top = np.argsort(-highest, kind='stable')[:12]
    names = np.array(seen.task.data.class_names)[top]
    return {'correlation': correlation[np.ix_(top, top)].astype(np.float32), 'names': names}


def _learnt_correlation(seen: Opened) -> np.ndarray:
    weight = seen.model.head.weight.detach().cpu()
    return label_correlation(weight, *_scale_and_margin(seen.method)).numpy()


def _matrix(collected: FigureArrays) -> Figure:
    """Draw the correlation of labels as a matrix."""
    picture, axes = make_axes(1, 1, 5.2, 4.2)
    ax = axes[0, 0]
    (run,) = collected.of_seeds('coco14', 'HML')
    names = run['names']
    others = np.where(np.eye(len(names), dtype=bool), np.nan, run['correlation'])
    middle = np.nanmean([np.nanmin(others), np.nanmax(others)])
    image = ax.imshow(others, cmap='viridis')
    ax.set_xticks(range(len(names)), names, rotation=90)
    ax.set_yticks(range(len(names)), names)
    for (i, j), value in np.ndenumerate(others):
        if i != j:
            ink = 'black' if value > middle else 'white'
            ax.text(j, i, f'{value:.2f}', ha='center', va='center', fontsize=6, color=ink)
    ax.set_title(f"{collected.about['data'][0][1]}, HML")
    picture.colorbar(image, label='correlation (Eq. 8)')
    return picture


_PARTS = 10  # groups of label pairs, by lift


def label_lift(true: np.ndarray) -> np.ndarray:
    """How often two labels occur together, relative to independent ones: P(a, b) / P(a)P(b).

    Args:
        true: (N, C) labels in {1, 0, −1}.

    Returns:
        (C, C) symmetric, NaN for labels that no photo has.
    """
    positive = (true > 0).astype(float)
    share = positive.mean(0)
    with np.errstate(invalid='ignore'):
        return positive.T @ positive / len(positive) / np.outer(share, share)


def co_occurrence(run: Run) -> dict:
    """The learnt correlation of labels compared with how often they occur together.

    Args:
        run: Of `hml` or `hml_fixed`, with a cosine head.

    Returns:
        agreement: Spearman correlation of Eq. 8 with the lift of the true labels, over all pairs
        of labels of training photos; correlation (10,): mean of Eq. 8 in each tenth of the pairs,
        the lowest lift first (fewer for fewer pairs).

    Source: HML, Eq. 8.
    """
    seen = run_measurements.open_own_data(run)
    learnt = _learnt_correlation(seen)
    pairs = np.triu_indices(len(learnt), 1)
    lifts, learnt = label_lift(seen.true)[pairs], learnt[pairs]
    defined = np.isfinite(lifts)
    lifts, learnt = lifts[defined], learnt[defined]
    by_lift = learnt[np.argsort(lifts, kind='stable')]
    parts = np.array_split(by_lift, min(_PARTS, len(by_lift)))
    return {
        'agreement': np.float32(stats.spearmanr(learnt, lifts).statistic),
        'correlation': np.array([part.mean() for part in parts], np.float32),
    }


def _by_lift(collected: FigureArrays) -> Figure:
    """Draw Eq. 8 over the tenths of label pairs."""
    picture, panels = make_panels(collected, 2.2)
    for ax, dataset, ours in panels:
        seeds = collected.of_seeds(dataset, 'HML')
        if not seeds:
            continue
        summary = collected.summary(dataset, 'HML', 'correlation')
        draw_curve(ax, np.arange(_PARTS) + 1, summary, INK[0], marker='o')
        agreement = np.mean([seed['agreement'] for seed in seeds])
        ax.set(xlabel='tenth of pairs, by lift', title=f'{ours}\nSpearman {agreement:+.2f}')
        ax.xaxis.get_major_locator().set_params(integer=True)
    picture.axes[0].set_ylabel('correlation (Eq. 8)')
    return picture


FIGURES = {
    '2': PaperFigure(
        _cosines_and_gradients,
        curves=[
            Curve(
                'voc12',
                name,
                {'loss': 'hml_fixed'},
                {(): {'labels': labels, 'hparams': {'scale': 20, 'margin': margin}}},
            )
            for name, (labels, margin) in _COLUMNS.items()
        ],
        measure=count_cosines,
    ),
    '3': PaperFigure(
        _scores_and_balance,
        curves=[_fixed_curve('s = 20', 'margin', MARGINS, scale=20)],
        measure=measure_balance,
        seeds=tuple(range(10)),
    ),
    '4': PaperFigure(
        _partial_labels,
        curves=[
            Curve(
                dataset, name, {'loss': loss}, {(s,): {'labels': f'partial-{s}'} for s in _SHARES}
            )
            for dataset in ('voc12', 'coco14', 'nus', 'cub')
            for name, loss in (('BCE', 'an'), ('HML', 'hml'))
        ],
    ),
    '5': PaperFigure(
        _scales_and_margins,
        curves=[
            _fixed_curve('m = 0', 'scale', SCALES, margin=0),
            _fixed_curve('s = 20', 'margin', MARGINS, scale=20),
            _fixed_curve('s = 40', 'margin', MARGINS, scale=40),
        ],
        seeds=tuple(range(10)),
    ),
    '6': PaperFigure(
        _matrix,
        [Curve('coco14', 'HML', {'loss': 'hml'})],
        measure=find_correlated_labels,
        seeds=(0,),
    ),
    'E8': PaperFigure(
        _by_lift,
        [Curve(dataset, 'HML', {'loss': 'hml'}) for dataset in ('voc12', 'coco14', 'nus', 'cub')],
        measure=co_occurrence,
        seeds=tuple(range(10)),
    ),
}
