"""The margin that a tempered log-sum-exp opens, and what features learned from single labels are worth elsewhere."""

import numpy as np
import torch
from matplotlib.figure import Figure

from ...data import loading
from ...models.model import create
from ...runs.folder import Run
from ...sweeps.transfer import multi_label_transfer, pretrained
from .. import published
from ..drawing import INK, Collected, Curve, PaperFigure, legend, sheet

TEMPERATURES = (0.5, 1, 2, 4)


def tempered(gap: np.ndarray, T: float) -> np.ndarray:
    """T·log Σ exp(x/T) − max x of two logits.

    Args:
        gap: (n,) the larger logit minus the smaller, ≥ 0.
        T: temperature.

    Returns:
        (n,) values, T·ln 2 where there is no gap.

    Source: Two-way, Eq. 12 and 13.
    """
    return T * np.log1p(np.exp(-np.asarray(gap) / T))


def _tempered_curves(collected: Collected) -> Figure:
    """The tempered log-sum-exp over the largest logit, and the loss of Eq. 14 over the lead of the
    positives.
    """
    picture, axes = sheet(1, 2, 3.0)
    left, right = axes[0]
    gap, lead = np.linspace(0, 8, 161), np.linspace(-2, 10, 241)
    for ink, T in zip(INK, TEMPERATURES, strict=False):
        left.plot(gap, tempered(gap, T), color=ink, label=f'T = {T:g}')
        right.plot(
            lead, np.logaddexp(0, tempered(np.zeros(1), T) - lead), color=ink, label=f'T = {T:g}'
        )
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
    legend(picture)
    return picture


figure1 = PaperFigure(
    'Left: the tempered log-sum-exp over the largest of two logits. The higher the temperature, '
    'the further it stands above that logit. Right: the loss of an image with two equal '
    'positives and one negative, over the lead of the positives. A higher temperature asks for a '
    'wider lead before the loss is gone.',
    draw=_tempered_curves,
    printed='Margins widen with T; T above 1 is used for the positives, 1 for the negatives.',
    notes='The picture is not in the text; Eq. 12 and 13 are drawn for two logits. It needs no run.',
)


TARGETS = ('voc12_animals', 'coco18', 'mirflickr14')
_TABLE = published.read('two_way')['tables']['8']


def transferred(run: Run) -> dict[str, np.ndarray]:
    """What linear classifiers make of a network's frozen features.

    Args:
        run: of a network that started from random weights.

    Returns:
        {name of `TARGETS`: (2,) mAP on test in percent, with the network as trained, and as it was
        before}.

    Source: Two-way, section 4.4.
    """
    config = run.config
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)  # as the trainer does
        before = create(config.backbone, 1, weights='none', normalise=config.normalise).eval()
    networks, found = (pretrained(run.folder), before), {}
    for name in TARGETS:
        data = loading.load(name, min_positives=20)
        found[name] = np.array(
            [
                multi_label_transfer(network, data, image_size=config.image_size)['map']
                for network in networks
            ]
        )
    return found


def _transfers(collected: Collected) -> Figure:
    "A panel a data set, a point a seed."
    picture, axes = sheet(1, len(TARGETS), 2.4)
    for ax, name in zip(axes[0], TARGETS, strict=True):
        ax.set(title=name, ylabel='mAP (%)')
        each = {
            row: np.array([found[name] for found in collected.parts('imagenet', row)])
            for row in _TABLE['rows']
        }
        if not any(map(len, each.values())):
            continue
        for k, (ink, (_, values)) in enumerate(zip(INK, each.items(), strict=False)):
            if not len(values):
                continue
            ax.plot([k] * len(values), values[:, 0], 'o', color=ink, fillstyle='none')
            ax.plot([k - 0.2, k + 0.2], [values[:, 0].mean()] * 2, color=ink)
        untrained = np.concatenate([values[:, 1] for values in each.values() if len(values)])
        ax.axhline(
            untrained.mean(), color='#999999', linestyle=':', label='the network before training'
        )
        ax.set_xticks(range(len(each)), each)
        ax.margins(x=0.2)
    legend(picture)
    return picture


figure8 = PaperFigure(
    'Table 8 on photos: mAP of linear classifiers on the frozen features of a network that was '
    'trained from random weights, with one label a photo, by each loss. Rings are seeds, strokes '
    'their means; the dotted line is the mean of the same networks before training.',
    draw=_transfers,
    curves=[
        Curve('imagenet', row, published.merge(_TABLE['config'], about['config']))
        for row, about in _TABLE['rows'].items()
    ],
    measure=transferred,
    printed=(
        'On nine sets with one label an image the two-way loss transfers best, softmax next, ASL '
        'last: a mean of 69.3, 67.6 and 60.4 % (of the cells of Table 8).'
    ),
    notes="The network has 170,000 parameters and sees photos of 64 pixels; the fifty themes stand for ImageNet's "
    "thousand classes. The recipe is the paper's (SGD with momentum 0.9, a cosine from the first "
    "rate down) and, "
    'where it is silent, its code (Nesterov, crops and flips, the last epoch taken), with 60 '
    'epochs instead of 90 and batches of 64 instead of 512; each loss takes that rate of 0.0001, '
    '0.001, 0.01, 0.1 and 1 which does best on validation photos. The classifiers are logistic '
    'regressions, one a class with at least 20 photos, under the penalty that does best on '
    'validation.',
)

FIGURES = {'1': figure1, 'T8': figure8}
