"""Threshold, temperature, memory queue and attention maps: figures 3 to 6 of LAC."""

import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit

from ...models.model import attention_maps
from ...runs.folder import Run
from .. import measuring, published
from ..drawing import Axis, Collected, Curve, PaperFigure, maps, scores

_TABLE = published.read('lac')['tables']['2']
LEM = {'loss': 'lac', **_TABLE['groups']['LEM']['config']}  # the label-wise model
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
TEMPERATURES = (0.1, 0.5, 1, 1.5, 2)
QUEUES = (512, 1024, 2048, 4096, 8192)


def _over(label: str, values: tuple[float, ...], *hparams: str) -> PaperFigure:
    """The mAP over each of the values in some hyper-parameters."""
    axis = Axis(label, values)
    points = {(value,): {'hparams': dict.fromkeys(hparams, value)} for value in values}
    return PaperFigure(
        draw=lambda collected: scores(collected, {axis: ('LAC',)}),
        curves=[Curve('voc12', 'LAC', LEM, points)],
    )


def attention(run: Run) -> dict:
    """Make attention maps of training images, for the observed positive and the two surest other
    labels.

    Args:
        run: with a label-wise head.

    Returns:
        As `opml_figures.activation`, with the kinds 2 observed, 1 identified (p ≥ δ) and true, −1
        identified and not true, 0 below δ; and counts (3,) over all training images: identified
        labels, those of them that are true, and positives that nobody observed.

    Source: LAC, Fig. 6.
    """
    seen = measuring.examine(run)
    p = expit(seen.logits)
    z = seen.task.observed
    identified = (z == 0) & (p >= seen.config.hparams['stage2_threshold'])
    order = np.lexsort((-np.where(z == 0, p, 0).max(1), -identified.sum(1)))
    chosen = []
    for k in order[(z[order] > 0).any(1)][: measuring.IMAGES - 1]:
        observed = int(np.flatnonzero(z[k] > 0)[0])
        others = measuring.surest(p[k], z[k] == 0, measuring.MAPS - 1)
        chosen.append((int(k), [observed, *others]))
    flags = np.where(z > 0, 2, np.where(identified, seen.true, 0))
    shown = measuring.pictures(
        seen, chosen, lambda batch, c: attention_maps(seen.model, batch)[:, c], flags
    )
    hidden = (z == 0) & (seen.true > 0)
    counts = [identified.sum(), (identified & hidden).sum(), hidden.sum()]
    return shown | {'counts': np.array(counts, np.int32)}


def _attention(collected: Collected) -> Figure:
    """The maps, and how many of the labels that nobody observed are identified."""
    picture = maps(collected, 'coco14', 'LAC')
    (run,) = collected.of_seeds('coco14', 'LAC')
    identified, rightly, hidden = run['counts']
    picture.supxlabel(
        f'All training images: {rightly:,} of the {hidden:,} positives that nobody observed reach '
        f'δ and are identified, and {identified - rightly:,} labels that are not there',
        fontsize=7,
    )
    return picture


FIGURES = {
    '3': _over('threshold δ', THRESHOLDS, 'threshold', 'stage2_threshold'),
    '4': _over('temperature τ', TEMPERATURES, 'temperature'),
    '5': _over('size K of the memory queue', QUEUES, 'queue'),
    '6': PaperFigure(_attention, [Curve('coco14', 'LAC', LEM)], attention, seeds=(0,)),
}
