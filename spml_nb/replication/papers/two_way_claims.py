"""Comparisons for claims of *Two-way Multi-Label Loss*.

The claims themselves are in assets/claims/two_way.yml.
"""

from ...statistics import EQUIVALENCE_MARGIN
from ..comparisons import claim_above, claim_rising, claim_steady, claim_trend
from .two_way_figures import TARGETS

_TEMPERATURES = ['T_P = 0.5', 'T_P = 1', 'T_P = 2', 'T_P = 4']
_DATASETS = ('MSCOCO', 'VISPR', 'VAW', 'WIDER', 'VOC2007', 'VOC2012')
_MEASURES = ('mAP@class', 'mAP@sample')
_BOTH_WAYS = '(a) Ours / both'
_RIVALS = ('Ours', 'Softmax', 'BCE', 'Focal', 'ASL')


def _negative(table):
    def at(measure, *T_N):
        return [f'{measure} / T_N = {value}' for value in T_N]

    return [
        claim_above(
            f'{measure}, {row}',
            table[row, at(measure, 1)],
            table[row, at(measure, 0.5, 2, 4)],
            by=-EQUIVALENCE_MARGIN,
        )
        for measure in _MEASURES
        for row in _TEMPERATURES
    ]


def _each_set(table):
    """(name of the place, column, {loss: Number}) for each data set and column of Table 7. Losses
    are named without the data set, so that effects are averaged over the sets.
    """
    for column in table.columns:
        for dataset in _DATASETS:
            rows = {loss: f'{dataset} / {loss}' for loss in _RIVALS}
            numbers = {loss: table[row, column][row] for loss, row in rows.items()}
            yield f'{dataset}, {column}', column, numbers
        for dataset in table.again['sets']:
            repeated = table.on(dataset)
            numbers = {loss: repeated[loss, column][loss] for loss in _RIVALS}
            yield f'{dataset}, {column}', column, numbers


def _others(table):
    return [
        claim_above(name, {'Ours': numbers.pop('Ours')}, numbers)
        for name, _, numbers in _each_set(table)
    ]


def _softmax_in_its_measure(table):
    "Softmax above weighted BCE in mAP over samples, below it over classes."
    places = []
    for name, column, numbers in _each_set(table):
        softmax, bce = ({loss: numbers[loss]} for loss in ('Softmax', 'BCE'))
        sides = (softmax, bce) if column.startswith('mAP@sample') else (bce, softmax)
        places.append(claim_above(name, *sides))
    return places


_DATASET = 'COCO'  # of Table 3; the ablation has a second one


def _ways(by_class, by_sample):
    return [
        claim_above(measure, arms['both', _DATASET], arms[['class', 'sample'], _DATASET])
        for measure, arms in zip(_MEASURES, (by_class, by_sample), strict=True)
    ]


def _each_way(table):
    return [
        claim_above(
            f'mAP@{own}',
            table[f'mAP@{own}', f'(a) Ours / {own}'],
            table[f'mAP@{own}', f'(a) Ours / {other}'],
        )
        for own, other in (('class', 'sample'), ('sample', 'class'))
    ]


_LOSSES = ['ASL', 'Softmax', 'Ours']


def _transfer(table, curves):
    series = dict(zip(_LOSSES, _LOSSES, strict=True))

    def at(name):
        return curves('imagenet', series, lambda arrays: arrays[name][0], name)

    return [
        *table.compare_columns(
            claim_rising, _LOSSES, at=[c for c in table.columns if c.startswith('Transfer / ')]
        ),
        *(claim_rising(name, at(name)) for name in TARGETS),
    ]


COMPARE = {
    'two_way-temperature': lambda table: table.compare_columns(
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
            by=-EQUIVALENCE_MARGIN,
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
        claim_steady('ImageNet', table[_LOSSES, 'ImageNet'], within=EQUIVALENCE_MARGIN)
    ],
}
