"""LAC, figures 3 to 6 and F6: threshold, temperature, queue, attention, hidden positives."""

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.special import expit
from sklearn.metrics import silhouette_score

from ...drawing import INK, draw_legend, make_axes
from ...metrics import average_precision
from ...models.model import attention_maps
from ...runs.folder import Run
from .. import published, run_measurements
from ..figure_drawing import Axis, Curve, FigureArrays, PaperFigure, draw_maps, draw_scores

_TABLE = published.read_paper('lac')['tables']['2']
LEM = {'loss': 'lac', **_TABLE['groups']['LEM']['config']}  # the label-wise model
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
TEMPERATURES = (0.1, 0.5, 1, 1.5, 2)
QUEUES = (512, 1024, 2048, 4096, 8192)


def _over(label: str, values: tuple[float, ...], *hparams: str) -> PaperFigure:
    """A figure of the mAP over values that some hyper-parameters share."""
    axis = Axis(label, values)
    points = {(value,): {'hparams': dict.fromkeys(hparams, value)} for value in values}
    return PaperFigure(
        draw=lambda collected: draw_scores(collected, {axis: ('LAC',)}),
        curves=[Curve('voc12', 'LAC', LEM, points)],
    )


def make_attention_maps(run: Run) -> dict:
    """Attention maps of training images, for the observed positive and the two most probable other
    labels.

    Args:
        run: With a label-wise head.

    Returns:
        As from `run_measurements.collect_pictures`, with the kinds 2 (observed), 1 (identified,
        p ≥ δ, and true), −1 (identified and false) and 0 (below δ); and counts (3,) over all
        training images: identified labels, true ones among them, and unobserved positives.

    Source: LAC, Fig. 6.
    """
    seen = run_measurements.score_run(run)
    p = expit(seen.logits)
    z = seen.task.observed
    identified = (z == 0) & (p >= seen.config.hparams['stage2_threshold'])
    order = np.lexsort((-np.where(z == 0, p, 0).max(1), -identified.sum(1)))
    chosen = []
    for k in order[(z[order] > 0).any(1)][: run_measurements.IMAGES - 1]:
        observed = int(np.flatnonzero(z[k] > 0)[0])
        others = run_measurements.top_classes(p[k], z[k] == 0, run_measurements.MAPS - 1)
        chosen.append((int(k), [observed, *others]))
    flags = np.where(z > 0, 2, np.where(identified, seen.true, 0))
    shown = run_measurements.collect_pictures(
        seen, chosen, lambda batch, c: attention_maps(seen.model, batch)[:, c], flags
    )
    hidden = (z == 0) & (seen.true > 0)
    counts = [identified.sum(), (identified & hidden).sum(), hidden.sum()]
    return shown | {'counts': np.array(counts, np.int32)}


def _attention(collected: FigureArrays) -> Figure:
    """Draw the maps, with the number of unobserved positives that are identified."""
    picture = draw_maps(collected, 'coco14', 'LAC')
    (run,) = collected.of_seeds('coco14', 'LAC')
    identified, correct, hidden = run['counts']
    picture.supxlabel(
        f'All training images: {correct:,} of the {hidden:,} positives that nobody observed reach '
        f'δ and are identified, and {identified - correct:,} labels that are not there',
        fontsize=7,
    )
    return picture


MODELS = {
    'AN': ({**LEM, 'loss': 'an'}, {}),
    'LAC': (LEM, {}),
    'LAC without contrast': (LEM, {'hparams': {'lambda_lac': 0, 'queue': 0}}),
}
_MOST_EMBEDDINGS = 2000  # of which all pairs are compared


def hidden_positives(run: Run) -> dict:
    """How well a network recognises unobserved positives, and how well it separates classes.

    Args:
        run: With a label-wise head.

    Returns:
        recall: percent of unobserved training positives with p ≥ δ; ap: average precision of
        telling them from other unobserved labels, in percent, mean over classes that have any;
        silhouette: of class embeddings of the true labels of validation photos, −1 to 1, by cosine
        distance.

    Source: LAC, Sections 1, 3 and 4.5; silhouettes: Rousseeuw 1987 (scikit-learn).
    """
    seen = run_measurements.score_run(run)
    unobserved = seen.task.observed == 0
    hidden = np.where(unobserved, seen.true, 0)
    delta = seen.config.hparams.get('stage2_threshold', 0.9)
    reached = expit(seen.logits) >= delta
    ap = average_precision(seen.logits, hidden, empty='skip', unknown='ignore')
    return {
        'recall': np.float32(100 * reached[hidden > 0].mean()),
        'ap': np.float32(100 * np.nanmean(ap)),
        'silhouette': np.float32(_silhouette(run)),
    }


@torch.no_grad()
def _silhouette(run: Run) -> float:
    seen = run_measurements.open_own_data(run, 'val')
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
        sample_size=min(_MOST_EMBEDDINGS, len(classes)),
        random_state=0,
    )


def _draw_hidden_positives(collected: FigureArrays) -> Figure:
    """Draw a panel for each quantity, with a ring for each seed of a model."""
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
            for position, (dataset, _) in enumerate(data):
                values = [seed[quantity] for seed in collected.of_seeds(dataset, name)]
                x = position + 0.25 * (k - 1)
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
        _draw_hidden_positives,
        [
            Curve(dataset, name, start, {(): changes})
            for dataset in ('voc12', 'coco14')
            for name, (start, changes) in MODELS.items()
        ],
        hidden_positives,
        seeds=tuple(range(5)),
    ),
}
