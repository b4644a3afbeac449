"""Two-way, figures 1 and T8: the margin of a tempered log-sum-exp, and the transfer of features."""

import numpy as np
import torch
from matplotlib.figure import Figure

from ...data import loading
from ...drawing import INK, draw_legend, make_axes
from ...models.model import create
from ...runs.folder import Run
from ...sweeps.transfer import load_run_backbone, multi_label_transfer
from .. import published
from ..figure_drawing import Curve, FigureArrays, PaperFigure

TEMPERATURES = (0.5, 1, 2, 4)


def temper_gap(gap: np.ndarray, T: float) -> np.ndarray:
    """T·log Σ exp(x/T) − max x of two logits.

    Args:
        gap: (n,) larger logit minus the smaller, ≥ 0.
        T: Temperature.

    Returns:
        (n,) values, T·ln 2 without a gap.

    Source: Two-way, Eq. 12 and 13.
    """
    return T * np.log1p(np.exp(-np.asarray(gap) / T))


def _tempered_curves(collected: FigureArrays) -> Figure:
    """Draw the tempered log-sum-exp over the gap of two logits, and the loss of Eq. 14 over the
    lead of the positives.
    """
    picture, axes = make_axes(1, 2, 3.0)
    left, right = axes[0]
    gap = np.linspace(0, 8, 161)
    lead = np.linspace(-2, 10, 241)
    for ink, T in zip(INK, TEMPERATURES, strict=False):
        loss = np.logaddexp(0, temper_gap(np.zeros(1), T) - lead)
        left.plot(gap, temper_gap(gap, T), color=ink, label=f'T = {T:g}')
        right.plot(lead, loss, color=ink, label=f'T = {T:g}')
    left.set(
        xlabel='largest logit − the other logit',
        ylabel='T·log Σ exp(x/T) − max x',
        title='two logits of one side',
    )
    right.set(
        xlabel='lowest positive − highest negative logit',
        ylabel='loss (Eq. 14)',
        title='two equal positives, one negative',
    )
    draw_legend(picture)
    return picture


TARGETS = ('voc12_animals', 'coco18', 'mirflickr14')
_TABLE = published.read_paper('two_way')['tables']['8']


def score_transfer(run: Run) -> dict[str, np.ndarray]:
    """The test mAP of linear classifiers on a network's frozen features.

    Args:
        run: Of a network that started from random weights.

    Returns:
        {name of `TARGETS`: (2,) percent, with the trained network and with its initial weights}.

    Source: Two-way, section 4.4.
    """
    config = run.config
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)  # as the trainer does
        untrained = create(config.backbone, 1, weights='none', normalise=config.normalise).eval()
    networks = (load_run_backbone(run.folder), untrained)
    scores = {}
    for name in TARGETS:
        data = loading.load(name, min_positives=20)
        results = [
            multi_label_transfer(network, data, image_size=config.image_size)
            for network in networks
        ]
        scores[name] = np.array([result['map'] for result in results])
    return scores


def _transfers(collected: FigureArrays) -> Figure:
    """Draw a panel for each data set, with a point for each seed."""
    picture, axes = make_axes(1, len(TARGETS), 2.4)
    rows = list(_TABLE['rows'])
    for ax, target in zip(axes[0], TARGETS, strict=True):
        ax.set(title=target, ylabel='mAP (%)')
        untrained = []
        for k, (ink, row) in enumerate(zip(INK, rows, strict=False)):
            seeds = np.array([seed[target] for seed in collected.of_seeds('imagenet', row)])
            if not len(seeds):
                continue
            trained = seeds[:, 0]
            untrained += list(seeds[:, 1])
            ax.plot([k] * len(trained), trained, 'o', color=ink, fillstyle='none')
            ax.plot([k - 0.2, k + 0.2], [trained.mean()] * 2, color=ink)
        if not untrained:
            continue
        label = 'the network before training'
        ax.axhline(np.mean(untrained), color='#999999', linestyle=':', label=label)
        ax.set_xticks(range(len(rows)), rows)
        ax.margins(x=0.2)
    draw_legend(picture)
    return picture


FIGURES = {
    '1': PaperFigure(_tempered_curves),
    'T8': PaperFigure(
        _transfers,
        curves=[
            Curve('imagenet', row, published.merge_mappings(_TABLE['config'], entry['config']))
            for row, entry in _TABLE['rows'].items()
        ],
        measure=score_transfer,
    ),
}
