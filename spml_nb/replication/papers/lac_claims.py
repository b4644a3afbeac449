"""Comparisons for claims of *Label-Aware Global Consistency*.

The claims themselves are in assets/claims/lac.yml.
"""

from ..comparisons import SHARE, Contrast, Place, claim_curves_above, claim_steady
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


def _hidden(model, other):
    "Average precision, which has no threshold: δ is each method's own."
    name = 'average precision of hidden positives'
    return claim_curves_above(_DATA_OF_F6, name, (model, other), _array('ap'), metric=SHARE)


def _role(table):
    "What ROLE loses by the label-wise model, minus what AN loses."
    places = []
    for dataset in ('VOC', 'COCO', 'NUS', 'CUB'):
        columns = [f'ResNet-50 / {dataset}', f'LEM / {dataset}']
        numbers = [table[row, column][row] for row in ('L_ROLE', 'L_AN') for column in columns]
        places.append(Place(dataset, [Contrast(numbers, [1, -1, -1, 1])]))
    return places


COMPARE = {
    'lac-hidden': _hidden('LAC', 'AN'),
    'lac-hidden-contrast': _hidden('LAC', 'LAC without contrast'),
    'lac-distinctive': claim_curves_above(
        _DATA_OF_F6, 'silhouette', ('LAC', 'LAC without contrast'), _array('silhouette')
    ),
    'lac-role': _role,
    'lac-threshold': _steady(0.3, [{'threshold': δ, 'stage2_threshold': δ} for δ in THRESHOLDS]),
    'lac-temperature': _steady(0.2, [{'temperature': τ} for τ in TEMPERATURES]),
    'lac-queue-size': _steady(0.2, [{'queue': size} for size in QUEUES]),
}
