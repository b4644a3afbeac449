"""Comparisons for claims of *Label-Aware Global Consistency*.

The claims themselves are in assets/claims/lac.yml.
"""

import pandas as pd

from .. import tables
from ..claims import above, steady
from ..gains import begins_stage_2
from ..published import STAND_INS
from .lac_figures import LEM, QUEUES, TEMPERATURES, THRESHOLDS

_TWO_STAGES = 'AN + PLC + LAC + two-stage'
_WHOLE = f'{_TWO_STAGES} + memory queue'


def _early(known: pd.DataFrame, row: str, columns: list[str], what: str) -> str:
    "In how many runs of a row of Table 3 the second stage, which adds the contrast, hardly acted."
    runs = tables.final_lines('lac', '3', row, columns, known)
    if not len(runs):
        return ''
    return f' In {begins_stage_2(runs)} of the {len(runs)} runs of {what} was best'


def _about_two_stages(known: pd.DataFrame) -> str:
    early = _early(known, _TWO_STAGES, ['VOC', 'COCO'], 'two stages the first epoch of the second')
    return (
        'AN + PLC has its own search, two stages the settings of the whole, which counts '
        'against the claim.' + (early and f'{early}: the contrast hardly acted.')
    )


def _about_the_whole(known: pd.DataFrame) -> str:
    photos = STAND_INS['coco14'][0]
    early = _early(
        known, _WHOLE, ['COCO'], f'the whole on {photos} the first epoch of the second stage'
    )
    return 'Both have a search of their own. The text makes this comparison in two steps.' + (
        early and f'{early}.'
    )


def _steady(within, settings):
    "LAC on the label-wise model with each of the settings, on the four data sets of Table 2."
    configs = [{'hparams': each} for each in settings]
    return lambda runs: [
        steady(f'{dataset}, mAP', runs(*configs, dataset=dataset, **LEM), within=within)
        for dataset in ('voc12', 'coco14', 'nus', 'cub')
    ]


COMPARE = {
    'lac-role': lambda table: [
        above(
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
NOTES = {
    'lac-contrast': _about_two_stages,
    'lac-whole': _about_the_whole,
}
