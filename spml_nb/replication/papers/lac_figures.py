"""Threshold, temperature, queue, attention, hidden positives: figures 3 to 6 and F6 of LAC."""

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.special import expit
from sklearn.metrics import silhouette_score

from ...drawing import INK, draw_legend, make_axes
from ...metrics import average_precision
from ...models.model import attention_maps
from ...runs.folder import Run
from .. import measuring, published
from ..figures import Axis, Curve, FigureArrays, PaperFigure, draw_maps, draw_scores

_TABLE = published.read_paper('lac')['tables']['2']
LEM = {'loss': 'lac', **_TABLE['groups']['LEM']['config']}  # the label-wise model
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
TEMPERATURES = (0.1, 0.5, 1, 1.5, 2)
QUEUES = (512, 1024, 2048, 4096, 8192)


def _over(label: str, values: tuple[float, ...], *hparams: str) -> PaperFigure:
    """The mAP over each of the values in some hyper-parameters."""
    axis = Axis(label, values)
    points = {(value,): {'hparams': dict.fromkeys(hparams, value)} for value in values}
    return PaperFigure(
        draw=lambda collected: draw_scores(collected, {axis: ('LAC',)}),
        curves=[Curve('voc12', 'LAC', LEM, points)],
    )


def make_attention_maps(run: Run) -> dict:
    """Make attention maps of training images, for the observed positive and the two surest other
    labels.

    Args:
        run: with a label-wise head.

    Returns:
        As `opml_figures.make_activation_maps`, with the kinds 2 observed, 1 identified (p ≥ δ) and
        true, −1 identified and not true, 0 below δ; and counts (3,) over all training images:
        identified labels, those of them that are true, and positives that nobody observed.

    Source: LAC, Fig. 6.
    """
    seen = measuring.score_run(run)
    p = expit(seen.logits)
    z = seen.task.observed
    identified = (z == 0) & (p >= seen.config.hparams['stage2_threshold'])
    order = np.lexsort((-np.where(z == 0, p, 0).max(1), -identified.sum(1)))
    chosen = []
    for k in order[(z[order] > 0).any(1)][: measuring.IMAGES - 1]:
        observed = int(np.flatnonzero(z[k] > 0)[0])
        others = measuring.top_classes(p[k], z[k] == 0, measuring.MAPS - 1)
        chosen.append((int(k), [observed, *others]))
    flags = np.where(z > 0, 2, np.where(identified, seen.true, 0))
    shown = measuring.collect_pictures(
        seen, chosen, lambda batch, c: attention_maps(seen.model, batch)[:, c], flags
    )
    hidden = (z == 0) & (seen.true > 0)
    counts = [identified.sum(), (identified & hidden).sum(), hidden.sum()]
    return shown | {'counts': np.array(counts, np.int32)}


def _attention(collected: FigureArrays) -> Figure:
    """The maps, and how many of the labels that nobody observed are identified."""
    picture = draw_maps(collected, 'coco14', 'LAC')
    (run,) = collected.of_seeds('coco14', 'LAC')
    identified, rightly, hidden = run['counts']
    picture.supxlabel(
        f'All training images: {rightly:,} of the {hidden:,} positives that nobody observed reach '
        f'δ and are identified, and {identified - rightly:,} labels that are not there',
        fontsize=7,
    )
    return picture


NO_CONTRAST = {'lambda_lac': 0, 'queue': 0}
MODELS = {
    'AN': ({**LEM, 'loss': 'an'}, {}),
    'LAC': (LEM, {}),
    'LAC without contrast': (LEM, {'hparams': NO_CONTRAST}),
}
EMBEDDED = 2000  # entries, of which each is set beside each


def hidden_positives(run: Run) -> dict:
    """Count what a network makes of the positives that nobody observed, and how far apart its
    classes are.

    Args:
        run: with a label-wise head.

    Returns:
        recall: percent of the hidden positives of training photos with p ≥ δ; ap: average precision
        of telling them from the other labels that nobody observed, the mean over classes that have
        any, in percent; silhouette: of the class embeddings of true labels of the validation photos
        by class, −1 to 1, from cosine distances.

    Source: LAC, Sections 1, 3 and 4.4; silhouettes: Rousseeuw 1987 (scikit-learn).
    """
    seen = measuring.score_run(run)
    unobserved = seen.task.observed == 0
    hidden = np.where(unobserved, seen.true, 0)
    delta = seen.config.hparams.get('stage2_threshold', 0.9)
    reached = expit(seen.logits) >= delta
    each = average_precision(seen.logits, hidden, empty='skip', unknown='ignore')
    return {
        'recall': np.float32(100 * reached[hidden > 0].mean()),
        'ap': np.float32(100 * np.nanmean(each)),
        'silhouette': np.float32(_silhouette(run)),
    }


@torch.no_grad()
def _silhouette(run: Run) -> float:
    seen = measuring.open_own_data(run, 'val')
    module = seen.module.eval()
    batches = np.array_split(seen.index, np.arange(64, len(seen.index), 64))
    embeddings = torch.cat(
        [module(seen.source.batch(rows, 'plain')).embeddings.cpu() for rows in batches]
    )
    photos, classes = np.nonzero(seen.true > 0)
    return silhouette_score(
        embeddings[photos, classes].numpy(),
        classes,
        metric='cosine',
        sample_size=min(EMBEDDED, len(classes)),
        random_state=0,
    )


def _bars(collected: FigureArrays) -> Figure:
    """A panel for each quantity, a group of rings and strokes for each set of photos."""
    labels = {
        'recall': 'hidden positives that reach δ (%)',
        'ap': 'average precision of hidden positives (%)',
        'silhouette': 'silhouette of class embeddings',
    }
    picture, axes = make_axes(1, len(labels), 2.4)
    data = collected.about['data']
    for ax, (quantity, label) in zip(axes[0], labels.items(), strict=True):
        ax.set(ylabel=label)
        for k, (name, ink) in enumerate(zip(MODELS, INK, strict=False)):
            for place, (dataset, _) in enumerate(data):
                values = [seed[quantity] for seed in collected.of_seeds(dataset, name)]
                x = place + 0.25 * (k - 1)
                ax.plot([x] * len(values), values, 'o', color=ink, fillstyle='none', label=name)
        ax.set_xticks(range(len(data)), [ours for _, ours in data], fontsize=7)
    draw_legend(picture)
    return picture


FIGURES = {
    '3': _over('threshold δ', THRESHOLDS, 'threshold', 'stage2_threshold'),
    '4': _over('temperature τ', TEMPERATURES, 'temperature'),
    '5': _over('size K of the memory queue', QUEUES, 'queue'),
    '6': PaperFigure(_attention, [Curve('coco14', 'LAC', LEM)], make_attention_maps, seeds=(0,)),
    'F6': PaperFigure(
        _bars,
        [
            Curve(dataset, name, start, {(): changes})
            for dataset in ('voc12', 'coco14')
            for name, (start, changes) in MODELS.items()
        ],
        hidden_positives,
        seeds=tuple(range(5)),
    ),
}
