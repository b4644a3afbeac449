"""Comparisons for claims of *Label-Aware Global Consistency*.

The claims themselves are in assets/claims/lac.yml.
"""

from ..comparisons import SHARE, claim_above, claim_steady
from .lac_figures import LEM, QUEUES, TEMPERATURES, THRESHOLDS


def _steady(within, settings):
    "LAC on the label-wise model varies little over the settings, on the data sets of Table 2."
    configs = [{'hparams': hparams} for hparams in settings]
    return lambda runs: [
        claim_steady(f'{dataset}, mAP', runs(*configs, dataset=dataset, **LEM), within=within)
        for dataset in ('voc12', 'coco14', 'nus', 'cub')
    ]


_DATA_OF_F6 = ('voc12', 'coco14')


def _array(name):
    return lambda arrays: float(arrays[name])


def _hidden(figure):
    quantities = {'recall': 'recall at δ', 'ap': 'average precision'}
    return [
        claim_above(
            f'{dataset}, {words} of hidden positives',
            *(figure(dataset, model, _array(name), metric=SHARE) for model in ('LAC', 'AN')),
        )
        for dataset in _DATA_OF_F6
        for name, words in quantities.items()
    ]


def _distinctive(figure):
    models = ('LAC', 'LAC without contrast')
    return [
        claim_above(
            f'{dataset}, silhouette',
            *(figure(dataset, model, _array('silhouette')) for model in models),
        )
        for dataset in _DATA_OF_F6
    ]


COMPARE = {
    'lac-hidden': _hidden,
    'lac-distinctive': _distinctive,
    'lac-role': lambda table: [
        claim_above(
            dataset,
            table['L_ROLE', f'ResNet-50 / {dataset}'],
            table['L_ROLE', f'LEM / {dataset}'],
        )
        for dataset in ('VOC', 'COCO', 'NUS', 'CUB')
    ],
    'lac-threshold': _steady(0.3, [{'threshold': δ, 'stage2_threshold': δ} for δ in THRESHOLDS]),
    'lac-temperature': _steady(0.2, [{'temperature': τ} for τ in TEMPERATURES]),
    'lac-queue-size': _steady(0.2, [{'queue': size} for size in QUEUES]),
}
