"""Scores of hidden positives, confidence, long training, constants, maps: OPML, figures 3 to 7."""

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit

from ...drawing import INK, draw_legend
from ...models.model import class_activation
from ...runs.folder import Run, read_result
from ...training.task import make_task
from .. import measuring
from ..figures import (
    Axis,
    Curve,
    FigureArrays,
    PaperFigure,
    draw_grid,
    draw_maps,
    draw_over_epochs,
    draw_scores,
    make_panels,
)

# At the usual rate of the suite for both, since with a higher one everything happens earlier.
EARLY = {'lr': 1.24e-3, 'epochs': 10, 'patience': 0}


def negative_scores(run: Run) -> dict:
    """Read how many positives of the training photos that nobody annotated have a score below 0.

    Args:
        run: observed.

    Returns:
        negative (epochs,): percent, after each epoch.

    Source: OPML, Section I and Fig. 1.
    """
    hidden = measuring.GROUPS.index('unannotated positives')
    return {'negative': 100 * measuring.read_notes(run)['negative'][:, hidden]}


def _hidden_positives(collected: FigureArrays) -> Figure:
    return draw_over_epochs(collected, CONFIDENCE, 'negative', 'unannotated positives below 0 (%)')


DATA = ('voc12', 'cub')
CONFIDENCE = {'BCE': 'an', 'OPML': 'opml'}
CONFIDENCES = np.linspace(0, 1, 21)  # edges of the bins


def count_confidences(run: Run) -> dict:
    """Count predicted probabilities of the true positives of the test images.

    Args:
        run: done.

    Returns:
        counts (20,) over [0, 1].

    Source: OPML, Fig. 3.
    """
    p = expit(read_result(run).logits['test'].astype(np.float64))
    task = make_task(replace(run.config, device=None))
    true = task.data.labels[task.test] > 0
    return {'counts': measuring.count_histograms(p, [true], CONFIDENCES)[0]}


def _confidence_bars(collected: FigureArrays) -> Figure:
    """Histograms of the confidence in positive labels."""
    picture, places = make_panels(collected, 3.0)
    width = CONFIDENCES[1] / 2.5
    for ax, dataset, ours in places:
        for k, series in enumerate(CONFIDENCE):
            if not collected.of_seeds(dataset, series):
                continue
            # of the same positives with every seed
            counts = collected.summary(dataset, series, 'counts')
            mean, low, high = counts / max(counts[0].sum(), 1)
            ax.bar(
                CONFIDENCES[:-1] + (k + 0.75) * width,
                mean,
                width,
                yerr=(mean - low, high - mean),
                color=INK[k],
                label=series,
                error_kw={'elinewidth': 0.7},
            )
        ax.set(
            xlabel='predicted confidence of positive labels',
            ylabel='share of positive labels',
            title=ours,
            xlim=(0, 1),
        )
    draw_legend(picture)
    return picture


HIGH_RANK = {'high_rank': True, 'smoothing': False, 'correction': False}
LONG = {
    'BCE': ('an', {}),
    'OPML': ('opml', {}),
    'OPML + high rank': ('opml_sp', {'hparams': HIGH_RANK}),
}


def _read_epoch_curves(run: Run) -> dict:
    """Read the loss and the validation mAP of every epoch.

    Args:
        run: done.

    Returns:
        loss (epochs,); val_map (epochs,) in percent.

    Source: OPML, Fig. 4.
    """
    table = read_result(run).curves
    return {'loss': table.loss.to_numpy(np.float32), 'val_map': table.val_map.to_numpy(np.float32)}


def _validation_curves(collected: FigureArrays) -> Figure:
    return draw_over_epochs(collected, LONG, 'val_map', 'validation mAP (%)')


SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
WEIGHTS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


def _constants(collected: FigureArrays) -> Figure:
    return draw_grid(collected, 'OPML', Axis('α', SHARES), Axis('β', SHARES), 'ZLPR', at=(0.5, 0.5))


def _weights(collected: FigureArrays) -> Figure:
    return draw_scores(collected, {Axis('λ', WEIGHTS): ('OPML + high rank',)})


def make_activation_maps(run: Run) -> dict:
    """Make class activation maps of test images.

    Args:
        run: done.

    Returns:
        images (n, s, s, 3) uint8; maps (n, 3, h, w) uint8, each up to 255; names (n, 3), '' for no
        map; kinds (n, 3)
        int8: 1 annotated, −1 not.

    Source: OPML, Fig. 7.
    """
    seen = measuring.score_run(run, 'test')
    p = expit(seen.logits)
    true = seen.true
    lowest = np.where(true > 0, p, np.inf).min(1)
    # images with many labels first, and of these the ones where all labels are found
    unfound = lowest < run.result()['scores'].get('threshold', 0.5)
    order = np.lexsort((unfound, (true > 0).sum(1) < 2))
    chosen = []
    for k in order[: measuring.IMAGES - 2]:
        chosen.append((int(k), measuring.top_classes(p[k], true[k] > 0, measuring.MAPS)))
    extra = np.where(true < 0, p, -1)
    for k in np.argsort(-extra.max(1), kind='stable')[:2]:
        annotated = measuring.top_classes(p[k], true[k] > 0, measuring.MAPS - 1)
        chosen.append((int(k), [*annotated, int(extra[k].argmax())]))
    return measuring.collect_pictures(
        seen, chosen, lambda batch, c: class_activation(seen.model, batch, c), true
    )


def _maps(collected: FigureArrays) -> Figure:
    return draw_maps(collected, 'coco14', 'OPML')


FIGURES = {
    'F1': PaperFigure(
        _hidden_positives,
        curves=[
            Curve(dataset, name, {'loss': loss}, {(): EARLY})
            for dataset in ('voc12', 'coco14', 'nus', 'cub')
            for name, loss in CONFIDENCE.items()
        ],
        measure=negative_scores,
        observed=True,
        seeds=tuple(range(5)),
    ),
    '3': PaperFigure(
        _confidence_bars,
        curves=[
            Curve(dataset, name, {'loss': loss})
            for dataset in DATA
            for name, loss in CONFIDENCE.items()
        ],
        measure=count_confidences,
        seeds=tuple(range(10)),
    ),
    '4': PaperFigure(
        _validation_curves,
        curves=[
            Curve(dataset, name, {'loss': loss}, {(): {'epochs': 40, 'patience': 0, **changes}})
            for dataset in DATA
            for name, (loss, changes) in LONG.items()
        ],
        measure=_read_epoch_curves,
    ),
    '5': PaperFigure(
        _constants,
        curves=[
            Curve(
                dataset,
                'OPML',
                {'loss': 'opml'},
                {(a, b): {'hparams': {'alpha': a, 'beta': b}} for a in SHARES for b in SHARES},
            )
            for dataset in DATA
        ],
    ),
    '6': PaperFigure(
        _weights,
        curves=[
            Curve(
                dataset,
                'OPML + high rank',
                {'loss': 'opml_sp'},
                {(w,): {'hparams': {**HIGH_RANK, 'rank_weight': w}} for w in WEIGHTS},
            )
            for dataset in DATA
        ],
    ),
    '7': PaperFigure(
        _maps, [Curve('coco14', 'OPML', {'loss': 'opml'})], measure=make_activation_maps, seeds=(0,)
    ),
}
