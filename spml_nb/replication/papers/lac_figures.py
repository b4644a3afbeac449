"""Threshold, temperature, memory queue and attention maps: figures 3 to 6 of LAC."""

import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit

from ...models.model import attention_maps
from ...runs.folder import Run
from .. import measuring, published
from ..drawing import Collected, Curve, PaperFigure, maps, scores

LEM = {
    'loss': 'lac',
    **published.read('lac')['tables']['2']['groups']['LEM']['config'],
}  # the label-wise model
THRESHOLDS, TEMPERATURES, QUEUES = (
    (0.5, 0.6, 0.7, 0.8, 0.9),
    (0.1, 0.5, 1, 1.5, 2),
    (512, 1024, 2048, 4096, 8192),
)


def _varied(
    caption: str, axis: str, values: tuple, fields: tuple, printed: str, notes: str = ''
) -> PaperFigure:
    "The mAP over each of the values in some hyper-parameters."
    return PaperFigure(
        caption,
        draw=lambda collected: scores(collected, (axis, values, ('LAC',))),
        curves=[
            Curve(
                'voc12', 'LAC', LEM, {(v,): {'hparams': dict.fromkeys(fields, v)} for v in values}
            )
        ],
        printed=printed,
        notes=(
            f'{notes}One of the four data sets of Table 2 is used. Where runs chose their epoch in '
            'the first stage the title says how many: the second stage, which alone has the '
            'contrast and the queue, was not exercised there.'
        ),
    )


figure3 = _varied(
    'mAP over the threshold of the pseudo-labels.',
    'threshold δ',
    THRESHOLDS,
    ('threshold', 'stage2_threshold'),
    'The largest difference is about 0.3, on COCO.',
    'The threshold of both stages is varied. ',
)
figure4 = _varied(
    'mAP over the temperature of the contrast between class embeddings.',
    'temperature τ',
    TEMPERATURES,
    ('temperature',),
    'The largest difference is about 0.2, on NUS.',
)
figure5 = _varied(
    'mAP over the number of embeddings that the memory queue keeps.',
    'size K of the memory queue',
    QUEUES,
    ('queue',),
    'The largest difference is about 0.2, on COCO.',
    'Best epochs come early in the second stage: for seed 0 queues of 4096 and 8192 give the same '
    'network, as neither was full by then. ',
)


def attention(run: Run) -> dict:
    """Make attention maps of training images, for the observed positive and the two surest other
    labels.

    Args:
        run: with a label-wise head.

    Returns:
        As `opml_figures.activation`, with the kinds 2 observed, 1 identified (p ≥ δ) and true, −1
        identified and not true, 0 below δ.

    Source: LAC, Fig. 6.
    """
    seen = measuring.examine(run)
    p, z = expit(seen.logits), seen.task.observed
    identified = (z == 0) & (p >= seen.config.hparams['stage2_threshold'])
    order = [
        k
        for k in np.lexsort((-np.where(z == 0, p, 0).max(1), -identified.sum(1)))
        if (z[k] > 0).any()
    ]
    chosen = [
        (
            int(k),
            [
                int(np.flatnonzero(z[k] > 0)[0]),
                *measuring.surest(p[k], z[k] == 0, measuring.MAPS - 1),
            ],
        )
        for k in order[: measuring.IMAGES - 1]
    ]
    flags = np.where(z > 0, 2, np.where(identified, seen.true, 0))
    return measuring.pictures(
        seen, chosen, lambda batch, c: attention_maps(seen.model, batch)[:, c], flags
    )


def _attention(collected: Collected) -> Figure:
    "The maps, and how many of the labels that nobody observed are identified."
    picture = maps(collected, 'coco14', 'LAC')
    (found,) = collected.parts('coco14', 'LAC')
    kinds = found['kinds'][(found['names'] != '') & (found['kinds'] != 2)]
    picture.supxlabel(
        f'{(kinds != 0).sum()} of the {len(kinds)} labels that were not observed reach δ and are '
        f'identified, {(kinds == 1).sum()} of them rightly',
        fontsize=7,
    )
    return picture


figure6 = PaperFigure(
    'Where the class queries look in training images: behind each image the map of its one '
    'observed positive, then those of the two other labels with the highest probability. Yellow '
    'is where a query looks most. A label counts as identified if its probability reaches the '
    'threshold δ; the last line says how many do.',
    draw=_attention,
    curves=[Curve('coco14', 'LAC', LEM)],
    measure=attention,
    seeds=(0,),
    printed=(
        'Small objects without annotation are found, such as a potted plant, a bowl, a clock and '
        'a tie.'
    ),
    notes='The images with the most identified labels come first.',
)


FIGURES = {'3': figure3, '4': figure4, '5': figure5, '6': figure6}
