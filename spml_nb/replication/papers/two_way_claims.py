"""Comparisons for claims of *Two-way Multi-Label Loss*.

The claims themselves are in assets/claims/two_way.yml.
"""

from ...statistics import MARGIN
from ..claims import claim_above, claim_rising, claim_steady, claim_trend
from .two_way_figures import TARGETS

_TEMPERATURES = ['T_P = 0.5', 'T_P = 1', 'T_P = 2', 'T_P = 4']
_DATASETS = ('MSCOCO', 'VISPR', 'VAW', 'WIDER', 'VOC2007', 'VOC2012')
_BOTH_WAYS = '(a) Ours / both'


def _negative(table):
    def at(measure, *T_N):
        return [f'{measure} / T_N = {each}' for each in T_N]

    return [
        claim_above(
            f'{measure}, {row}',
            table[row, at(measure, 1)],
            table[row, at(measure, 0.5, 2, 4)],
            by=-MARGIN,
        )
        for measure in ('mAP@class', 'mAP@sample')
        for row in _TEMPERATURES
    ]


def _others(table):
    def of(
        dataset, column, *losses
    ):  # named without the data set, so that the sets have their mean in common
        return {
            loss: table[f'{dataset} / {loss}', column][f'{dataset} / {loss}'] for loss in losses
        }

    return [
        claim_above(
            f'{dataset}, {column}',
            of(dataset, column, 'Ours'),
            of(dataset, column, 'Softmax', 'BCE', 'Focal', 'ASL'),
        )
        for dataset in _DATASETS
        for column in table.columns
    ]


def _softmax_in_its_measure(table):
    "Softmax above weighted BCE in mAP over samples, below it over classes."

    def at(loss, dataset, column):
        return {loss: table[f'{dataset} / {loss}', column][f'{dataset} / {loss}']}

    places = []
    for dataset in _DATASETS:
        for column in table.columns:
            softmax, bce = (at(loss, dataset, column) for loss in ('Softmax', 'BCE'))
            sides = (softmax, bce) if column.startswith('mAP@sample') else (bce, softmax)
            places.append(claim_above(f'{dataset}, {column}', *sides))
    return places


_ITS_SET = 'COCO'  # of Table 3; the arms have a second one


def _ways(by_class, by_sample):
    return [
        claim_above(measure, arms['both', _ITS_SET], arms[['class', 'sample'], _ITS_SET])
        for measure, arms in (('mAP@class', by_class), ('mAP@sample', by_sample))
    ]


def _each_way(by_class, by_sample):
    return [
        claim_above(f'mAP@{own}', arms[own, _ITS_SET], arms[other, _ITS_SET])
        for own, other, arms in (('class', 'sample', by_class), ('sample', 'class', by_sample))
    ]


_LOSSES = ['ASL', 'Softmax', 'Ours']


def _transfer(table, curves):
    series = dict(zip(_LOSSES, _LOSSES, strict=True))

    def at(name):
        return curves('imagenet', series, lambda found: found[name][0], name)

    return [
        *table.everywhere(
            claim_rising, _LOSSES, at=[c for c in table.columns if c.startswith('Transfer / ')]
        ),
        *(claim_rising(name, at(name)) for name in TARGETS),
    ]


COMPARE = {
    'two_way-temperature': lambda table: table.everywhere(
        claim_trend, ['T_P → 0', *_TEMPERATURES], at=['mAP@class / T_N = 1', 'mAP@sample / T_N = 1']
    ),
    'two_way-negative': _negative,
    'two_way-bias-helps': lambda temperatures, biases: [
        claim_above(row, biases[row, 'ε = 4'], temperatures['T_P = 1', f'{row} / T_N = 1'])
        for row in biases.rows
    ],
    'two_way-bias': lambda ways, biases: [
        claim_above(row, ways[row, _BOTH_WAYS], biases[row, 'ε = 4']) for row in ways.rows
    ],
    'two_way-ways': _ways,
    'two_way-each-way': _each_way,
    'two_way-softmax': lambda table: [
        claim_rising(row, table[row, ['(b) Softmax / sample', '(b) Softmax / both', _BOTH_WAYS]])
        for row in table.rows
    ],
    'two_way-counter-sample': lambda table: [
        claim_above(
            'mAP@sample',
            table['mAP@sample', ['(b) Softmax / sample', '(b) Softmax / both']],
            table['mAP@sample', '(b) Softmax / class'],
        )
    ],
    'two_way-counter-class': lambda table: [
        claim_above(
            'mAP@class',
            table['mAP@class', '(b) Softmax / class'],
            table['mAP@class', '(b) Softmax / sample'],
        )
    ],
    'two_way-related': lambda ways, losses: [
        claim_above(row, ways[row, _BOTH_WAYS], losses[row, losses.columns]) for row in ways.rows
    ],
    'two_way-bucket': lambda table: [
        claim_trend('mAP@class', table['mAP@class', ['M = 16', 'M = 32', 'M = 64', 'M = 128']])
    ],
    'two_way-bucket-64': lambda table: [
        claim_above(
            row,
            table[row, ['M = 64', 'M = 256', 'M = 512']],
            table[row, 'M = 128'],
            by=-MARGIN,
        )
        for row in table.rows
    ],
    'two_way-softmax-measure': _softmax_in_its_measure,
    'two_way-bucket-sample': lambda table: [
        claim_trend(
            'mAP@class beside mAP@sample',
            table['mAP@class', table.columns],
            table['mAP@sample', table.columns],
        )
    ],
    'two_way-others': _others,
    'two_way-transfer': _transfer,
    'two_way-imagenet': lambda table: [
        claim_steady('ImageNet', table[_LOSSES, 'ImageNet'], within=MARGIN)
    ],
}
