"""What the text of *Label-Aware Global Consistency* says, as comparisons that numbers decide."""

from ..claims import Claim, above, steady
from .lac_figures import LEM, QUEUES, TEMPERATURES, THRESHOLDS

_OTHERS = ['L_WAN', 'L_EPR', 'L_AN', 'L_AN-LS', 'L_ROLE', 'L_EM', 'L_EM + L_APL']
_TWO_STAGES = 'AN + PLC + LAC + two-stage'
_WHOLE = f'{_TWO_STAGES} + memory queue'

CLAIMS = [
    Claim(
        'lac-best',
        'Section 4.2, Table 2',
        'On VOC, COCO and NUS LAC is above every method that is trained on the same label-wise '
        'model.',
        lambda table: table.everywhere(
            above, 'Ours', _OTHERS, at=['LEM / VOC', 'LEM / COCO', 'LEM / NUS']
        ),
        tables=('2',),
        main=True,
        note=(
            'The text gives the lead as 2.1 on COCO and 1.8 on NUS. On CUB it grants EM with APL '
            'a small lead.'
        ),
    ),
    Claim(
        'lac-cub',
        'Section 4.2, Table 2',
        'On CUB LAC is above every method that is trained on the same label-wise model but EM '
        'with APL.',
        lambda table: table.everywhere(
            above, 'Ours', [row for row in _OTHERS if row != 'L_EM + L_APL'], at=['LEM / CUB']
        ),
        tables=('2',),
        note='The text makes EM with APL the exception to the best performance of LAC.',
        inferred=True,
    ),
    Claim(
        'lac-cub-apl',
        'Section 4.2, Table 2',
        'On CUB EM with APL is above LAC on the label-wise model.',
        lambda table: table.everywhere(above, 'L_EM + L_APL', 'Ours', at=['LEM / CUB']),
        tables=('2',),
        note='The text calls the lead minor; it is 0.3 in the table.',
    ),
    Claim(
        'lac-an',
        'Section 4.2, Table 2',
        'LAC is above AN on the label-wise model.',
        lambda table: table.everywhere(
            above, 'Ours', 'L_AN', at=[f'LEM / {name}' for name in ('VOC', 'COCO', 'NUS', 'CUB')]
        ),
        tables=('2',),
        note='The text says that AN does badly in almost all cases, and not beside what.',
        inferred=True,
    ),
    Claim(
        'lac-role',
        'Section 4.2, Table 2',
        'ROLE loses when the label-wise model takes the place of ResNet-50.',
        lambda table: [
            above(
                dataset,
                table['L_ROLE', f'ResNet-50 / {dataset}'],
                table['L_ROLE', f'LEM / {dataset}'],
            )
            for dataset in ('VOC', 'COCO', 'NUS', 'CUB')
        ],
        tables=('2',),
        note="Does not hold in the paper's own table, where ROLE loses 0.1 on VOC and gains 0.6 on COCO. The text "
        'gives as a possible reason that the model cannot use LinearInit, from which its numbers '
        'for ResNet-50 come. Here a linear head stands in for ResNet-50, without LinearInit, and '
        'nearly all methods lose by the label-wise model, AN as much as ROLE, while in the paper '
        'AN gains by it on three sets: this says little of ROLE.',
    ),
    Claim(
        'lac-plc',
        'Section 4.3, Table 3',
        'Pseudo-labelling consistency raises the mAP of assume negative.',
        lambda table: table.everywhere(above, 'AN + PLC', 'AN'),
        tables=('3',),
    ),
    Claim(
        'lac-end-to-end',
        'Section 4.3, Table 3',
        'The contrast of class embeddings does harm when it is trained from the start.',
        lambda table: table.everywhere(above, 'AN + PLC', 'AN + PLC + LAC'),
        tables=('3',),
        note=(
            'AN + PLC has its own search, the row with the contrast the settings of the whole, '
            'which favours the claim. End to end knows the δ of the first stage alone (VOC: 0.9, '
            'the second stage 0.7).'
        ),
    ),
    Claim(
        'lac-two-stage',
        'Section 4.3, Table 3',
        'With the contrast, two stages are above end to end.',
        lambda table: table.everywhere(above, _TWO_STAGES, 'AN + PLC + LAC'),
        tables=('3',),
        note=(
            'Both have the settings of the whole; end to end knows the δ of its first stage alone '
            '(VOC: 0.9, the second stage 0.7).'
        ),
    ),
    Claim(
        'lac-contrast',
        'Section 4.3, Table 3',
        'In two stages the contrast raises the mAP of AN + PLC.',
        lambda table: table.everywhere(above, _TWO_STAGES, 'AN + PLC'),
        tables=('3',),
        note=(
            'AN + PLC has its own search, two stages the settings of the whole, which counts '
            'against the claim. In 9 of the 10 runs of two stages the first epoch of the second '
            'was best: the contrast hardly acted.'
        ),
    ),
    Claim(
        'lac-whole',
        'Section 4.3, Table 3',
        "The whole, whose second stage adds the contrast, is above the first stage's losses alone.",
        lambda table: table.everywhere(above, _WHOLE, 'AN + PLC'),
        tables=('3',),
        note=(
            'Both have a search of their own. The text makes this comparison in two steps. In 3 '
            'of the 5 runs of the whole on coco18 the first epoch of the second stage was best.'
        ),
        inferred=True,
    ),
    Claim(
        'lac-queue',
        'Section 4.3, Table 3',
        'The memory queue raises the mAP.',
        lambda table: table.everywhere(above, _WHOLE, _TWO_STAGES),
        tables=('3',),
        note='Both have the settings of the whole.',
    ),
]


def _steady(within, settings):
    "LAC on the label-wise model with each of the settings, on the four data sets of Table 2."
    configs = [{'hparams': each} for each in settings]
    return lambda runs: [
        steady(f'{dataset}, mAP', runs(*configs, dataset=dataset, **LEM), within=within)
        for dataset in ('voc12', 'coco14', 'nus', 'cub')
    ]


CLAIMS += [
    Claim(
        'lac-threshold',
        'Section 4.4, Fig. 3',
        'Over thresholds from 0.5 to 0.9 the mAP changes by no more than 0.3.',
        _steady(0.3, [{'threshold': δ, 'stage2_threshold': δ} for δ in THRESHOLDS]),
        note=(
            'The text says about 0.3. It knows one threshold; both stages take it here. It names '
            'COCO as the data set with the largest change.'
        ),
    ),
    Claim(
        'lac-temperature',
        'Section 4.4, Fig. 4',
        'Over temperatures from 0.1 to 2 the mAP changes by no more than 0.2.',
        _steady(0.2, [{'temperature': τ} for τ in TEMPERATURES]),
        note='The text says about 0.2. It names NUS as the data set with the largest change.',
    ),
    Claim(
        'lac-queue-size',
        'Section 4.4, Fig. 5',
        'Over queues of 512 to 8192 embeddings the mAP changes by no more than 0.2.',
        _steady(0.2, [{'queue': size} for size in QUEUES]),
        note='The text says about 0.2. It names COCO as the data set with the largest change.',
    ),
]
