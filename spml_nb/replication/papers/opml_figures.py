"""OPML, figures F1 and 3 to 7: hidden positives, confidence, long training, constants, maps."""

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit

from ...drawing import INK, draw_legend
from ...models.model import class_activation
from ...runs.folder import Run, read_result
from ...training.task import make_task
from .. import run_measurements
from ..figure_drawing import (
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

# both methods at the suite's default rate; with a higher one everything happens earlier
EARLY = {'lr': 1.24e-3, 'epochs': 10, 'patience': 0}


def negative_scores(run: Run) -> dict:
    """The share of unannotated training positives with a logit below 0.

    Args:
        run: From `run_measurements.note_training`.

    Returns:
        negative (epochs,): percent, after each epoch.

    Source: OPML, Section I and Fig. 1.
    """
    hidden = run_measurements.GROUPS.index('unannotated positives')
    return {'negative': 100 * run_measurements.read_notes(run)['negative'][:, hidden]}


def _hidden_positives(collected: FigureArrays) -> Figure:
    return draw_over_epochs(collected, _METHODS, 'negative', 'unannotated positives below 0 (%)')


_DATA = ('voc12', 'cub')
_METHODS = {'BCE': 'an', 'OPML': 'opml'}
_BINS = np.linspace(0, 1, 21)  # edges


def count_confidences(run: Run) -> dict:
    """A histogram of the predicted probabilities of positives of the test images.

    Returns:
        counts (20,) over [0, 1].

    Source: OPML, Fig. 3.
    """
    p = expit(read_result(run).logits['test'].astype(np.float64))
    task = make_task(replace(run.config, device=None))
    true = task.data.labels[task.test] > 0
    return {'counts': run_measurements.count_histograms(p, [true], _BINS)[0]}


def _confidence_bars(collected: FigureArrays) -> Figure:
    """Draw histograms of the confidence in positive labels."""
    picture, panels = make_panels(collected, 3.0)
    width = _BINS[1] / 2.5
    for ax, dataset, ours in panels:
        for k, series in enumerate(_METHODS):
            if not collected.of_seeds(dataset, series):
                continue
            counts = collected.summary(dataset, series, 'counts')
            mean, low, high = counts / max(counts[0].sum(), 1)  # every seed has the same positives
            ax.bar(
                _BINS[:-1] + (k + 0.75) * width,
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
_LONG = {
    'BCE': ('an', {}),
    'OPML': ('opml', {}),
    'OPML + high rank': ('opml_sp', {'hparams': HIGH_RANK}),
}


def _read_epoch_curves(run: Run) -> dict:
    """The loss and the validation mAP (percent) of every epoch, (epochs,) each.

    Source: OPML, Fig. 4.
    """
    curves = read_result(run).curves
    return {name: curves[name].to_numpy(np.float32) for name in ('loss', 'val_map')}


def _validation_curves(collected: FigureArrays) -> Figure:
    return draw_over_epochs(collected, _LONG, 'val_map', 'validation mAP (%)')


SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
WEIGHTS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


def _constants(collected: FigureArrays) -> Figure:
    return draw_grid(collected, 'OPML', Axis('α', SHARES), Axis('β', SHARES), 'ZLPR', at=(0.5, 0.5))


def _weights(collected: FigureArrays) -> Figure:
    return draw_scores(collected, {Axis('λ', WEIGHTS): ('OPML + high rank',)})


def make_activation_maps(run: Run) -> dict:
    """Class activation maps of test images.

    Returns:
        As from `run_measurements.collect_pictures`, with the kinds 1 (annotated) and −1 (not).

    Source: OPML, Fig. 7.
    """
    seen = run_measurements.score_run(run, 'test')
    p = expit(seen.logits)
    true = seen.true
    lowest = np.where(true > 0, p, np.inf).min(1)
    # images with several labels first, and of these the ones where all labels are predicted
    missed = lowest < run.result()['scores'].get('threshold', 0.5)
    order = np.lexsort((missed, (true > 0).sum(1) < 2))
    chosen = []
    for k in order[: run_measurements.IMAGES - 2]:
        chosen.append(
            (int(k), run_measurements.top_classes(p[k], true[k] > 0, run_measurements.MAPS))
        )
    # and the two images with the most probable label that is not annotated
    not_annotated = np.where(true < 0, p, -1)
    for k in np.argsort(-not_annotated.max(1), kind='stable')[:2]:
        annotated = run_measurements.top_classes(p[k], true[k] > 0, run_measurements.MAPS - 1)
        chosen.append((int(k), [*annotated, int(not_annotated[k].argmax())]))
    return run_measurements.collect_pictures(
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
            for name, loss in _METHODS.items()
        ],
        measure=negative_scores,
        observed=True,
        seeds=tuple(range(5)),
    ),
    '3': PaperFigure(
        _confidence_bars,
        curves=[
            Curve(dataset, name, {'loss': loss})
            for dataset in _DATA
            for name, loss in _METHODS.items()
        ],
        measure=count_confidences,
        seeds=tuple(range(10)),
    ),
    '4': PaperFigure(
        _validation_curves,
        curves=[
            Curve(dataset, name, {'loss': loss}, {(): {'epochs': 40, 'patience': 0, **changes}})
            for dataset in _DATA
            for name, (loss, changes) in _LONG.items()
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
            for dataset in _DATA
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
            for dataset in _DATA
        ],
    ),
    '7': PaperFigure(
        _maps, [Curve('coco14', 'OPML', {'loss': 'opml'})], measure=make_activation_maps, seeds=(0,)
    ),
}
