"""Comparisons for claims of *Pushing One Pair of Labels Apart Each Time*.

The claims themselves are in assets/claims/opml.yml.
"""

from ...statistics import EQUIVALENCE_MARGIN
from ..comparisons import SHARE, claim_above, claim_steady
from .opml_figures import HIGH_RANK, WEIGHTS

_FIRST_EPOCHS = 5


def _turned_negative(measured):
    "Mean share of unannotated positives below 0 after each of the first epochs, in percent."
    return float(measured['negative'][:_FIRST_EPOCHS].mean())


def _slower(figure):
    return [
        claim_above(
            f'{dataset}, unannotated positives below 0',
            *(figure(dataset, name, _turned_negative, metric=SHARE) for name in ('BCE', 'OPML')),
        )
        for dataset in ('voc12', 'coco14', 'nus', 'cub')
    ]


def _validation_drop(curve):
    return float(curve['val_map'].max() - curve['val_map'][-1])


def _stable(figure):
    return [
        claim_above(
            f'{dataset}, validation drop',
            *(figure(dataset, name, _validation_drop) for name in ('BCE', 'OPML + high rank')),
        )
        for dataset in ('voc12', 'cub')
    ]


def _share_in(bins):
    return lambda histogram: (
        100 * float(histogram['counts'][bins].sum() / histogram['counts'].sum())
    )


def _confidence(figure):
    comparisons = (
        ('above 0.8', _share_in(slice(-4, None)), ('OPML', 'BCE')),
        ('below 0.2', _share_in(slice(4)), ('BCE', 'OPML')),
    )
    places = []
    for dataset in ('voc12', 'cub'):
        for what, quantity, order in comparisons:
            sides = (figure(dataset, name, quantity, metric=SHARE) for name in order)
            places.append(claim_above(f'{dataset}, {what}', *sides))
    return places


def _weights(runs):
    "{data set: (scores of the weights 1e-6 to 1e-4, score of the largest weight)}."
    settings = [{'hparams': {**HIGH_RANK, 'rank_weight': weight}} for weight in WEIGHTS]
    by_dataset = {}
    for dataset in ('voc12', 'cub'):
        scores = runs(*settings, dataset=dataset, loss='opml_sp', labels='single').values()
        names = [f'λ = {weight:g}' for weight in WEIGHTS]
        named = list(zip(names, scores, strict=True))
        by_dataset[dataset] = dict(named[:3]), dict(named[-1:])
    return by_dataset


COMPARE = {
    'opml-slower': _slower,
    'opml-stable-bce': _stable,
    'opml-confidence': _confidence,
    'opml-weight': lambda runs: [
        claim_steady(f'{dataset}, mAP', low, within=EQUIVALENCE_MARGIN)
        for dataset, (low, _) in _weights(runs).items()
    ],
    'opml-weight-falls': lambda runs: [
        claim_above(f'{dataset}, mAP', low, high) for dataset, (low, high) in _weights(runs).items()
    ],
}
