"""Confidence, long training, constants of the loss, the high-rank term and activation maps: figures 3 to 7 of OPML."""

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit

from spml_nb.replication.drawing import (
    INK,
    Collected,
    Curve,
    PaperFigure,
    grid,
    legend,
    maps,
    over_epochs,
    panels,
    scores,
)

from ...models.model import class_activation
from ...runs.folder import Run, read_result
from ...training.task import make_task
from .. import measuring

DATA = ('voc12', 'cub')
CONFIDENCES = np.linspace(0, 1, 21)  # edges of the bins


def confidence(run: Run) -> dict:
    """Count predicted probabilities of the true positives of the test images.

    Args:
        run: done.

    Returns:
        counts (20,) over [0, 1].

    Source: OPML, Fig. 3.
    """
    logits, task = read_result(run).logits['test'], make_task(replace(run.config, device=None))
    true = task.data.labels[task.test] > 0
    return {
        'counts': measuring.histograms(expit(logits.astype(np.float64)), [true], CONFIDENCES)[0]
    }


def _confidence_bars(collected: Collected) -> Figure:
    "Histograms of the confidence in positive labels."
    picture, places = panels(collected, 3.0)
    width = CONFIDENCES[1] / 2.5
    for ax, dataset, ours in places:
        for k, series in enumerate(('BCE', 'OPML')):
            if not collected.parts(dataset, series):
                continue
            counts = collected.over_seeds(
                dataset, series, 'counts'
            )  # of the same positives with every seed
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
    legend(picture)
    return picture


figure3 = PaperFigure(
    'How sure the networks are of the true positives of the test images.',
    draw=_confidence_bars,
    curves=[
        Curve(dataset, name, {'loss': loss})
        for dataset in DATA
        for name, loss in (('BCE', 'an'), ('OPML', 'opml'))
    ],
    measure=confidence,
    seeds=tuple(range(10)),
    together='Bars are means over seeds, with a line from the lowest seed to the highest.',
    printed='OPML has more labels of high confidence and fewer of low than BCE.',
    notes='The text names no data set; VOC is taken, and CUB, where most positives are unannotated.',
)


HIGH_RANK = {'high_rank': True, 'smoothing': False, 'correction': False}
LONG = {
    'BCE': ('an', {}),
    'OPML': ('opml', {}),
    'OPML + high rank': ('opml_sp', {'hparams': HIGH_RANK}),
}


def curves(run: Run) -> dict:
    """Read the loss and the validation mAP of every epoch.

    Args:
        run: done.

    Returns:
        loss (epochs,); val_map (epochs,) in percent.

    Source: OPML, Fig. 4.
    """
    table = read_result(run).curves
    return {'loss': table.loss.to_numpy(np.float32), 'val_map': table.val_map.to_numpy(np.float32)}


figure4 = PaperFigure(
    'Validation mAP over 40 epochs.',
    draw=lambda collected: over_epochs(collected, tuple(LONG), 'val_map', 'validation mAP (%)'),
    curves=[
        Curve(dataset, name, {'loss': loss}, {(): {'epochs': 40, 'patience': 0, **changes}})
        for dataset in DATA
        for name, (loss, changes) in LONG.items()
    ],
    measure=curves,
    printed='With high rank the mAP stays more stable.',
    notes="The text does not say on which images the mAP is measured. The optimiser is the suite's, not the paper's "
    'SGD.',
)


SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
WEIGHTS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)

figure5 = PaperFigure(
    'mAP on test images over the two constants of the loss, each mapped to the interval from 0 '
    'to 1; 0.5 and 0.5 are ZLPR. The pair in the orange frame has the best mAP on validation '
    'images. A step of colour is the least difference of two pairs that the noise between seeds '
    'allows to see.',
    draw=lambda collected: grid(
        collected, 'OPML', ('α', SHARES), ('β', SHARES), ('ZLPR', (0.5, 0.5))
    ),
    curves=[
        Curve(
            dataset,
            'OPML',
            {'loss': 'opml'},
            {(a, b): {'hparams': {'alpha': a, 'beta': b}} for a in SHARES for b in SHARES},
        )
        for dataset in DATA
    ],
    together='Numbers are means over seeds.',
    printed='The best pair is chosen on validation; ZLPR is below it on VOC and on CUB.',
    notes='The text lost the values and the map to the interval; odds are taken, a = α/(1 − α).',
)


figure6 = PaperFigure(
    'mAP over the weight of the high-rank term.',
    draw=lambda collected: scores(collected, ('λ', WEIGHTS, ('OPML + high rank',))),
    curves=[
        Curve(
            dataset,
            'OPML + high rank',
            {'loss': 'opml_sp'},
            {(w,): {'hparams': {**HIGH_RANK, 'rank_weight': w}} for w in WEIGHTS},
        )
        for dataset in DATA
    ],
    printed='The mAP keeps stable below some power of ten and falls above it.',
    notes='The text lost the values; powers of ten are swept.',
)


def activation(run: Run) -> dict:
    """Make class activation maps of test images.

    Args:
        run: done.

    Returns:
        images (n, s, s, 3) uint8; maps (n, 3, h, w) uint8, each up to 255; names (n, 3), '' for no
        map; kinds (n, 3)
        int8: 1 annotated, −1 not.

    Source: OPML, Fig. 7.
    """
    seen = measuring.examine(run, 'test')
    p, true, several = expit(seen.logits), seen.true, measuring.MAPS
    lowest = np.where(true > 0, p, np.inf).min(1)
    # images with many labels first, and of these the ones where all labels are found
    order = np.lexsort(
        (lowest < run.result()['scores'].get('threshold', 0.5), (true > 0).sum(1) < 2)
    )
    extra = np.where(true < 0, p, -1)
    chosen = [
        (int(k), measuring.surest(p[k], true[k] > 0, several))
        for k in order[: measuring.IMAGES - 2]
    ]
    chosen += [
        (int(k), [*measuring.surest(p[k], true[k] > 0, several - 1), int(extra[k].argmax())])
        for k in np.argsort(-extra.max(1), kind='stable')[:2]
    ]
    return measuring.pictures(
        seen, chosen, lambda batch, c: class_activation(seen.model, batch, c), true
    )


figure7 = PaperFigure(
    'Class activation maps (Grad-CAM) of test images, of true labels and of labels that the '
    'network finds and the annotation lacks.',
    draw=lambda collected: maps(collected, 'coco14', 'OPML'),
    curves=[Curve('coco14', 'OPML', {'loss': 'opml'})],
    measure=activation,
    seeds=(0,),
    printed='The maps of two images show concepts that the annotation lacks.',
    notes="The concepts named in the text are COCO's; its photos are not at hand.",
)


FIGURES = {'3': figure3, '4': figure4, '5': figure5, '6': figure6, '7': figure7}
