"""Comparisons for claims of *Acknowledging the Unknown*.

The claims themselves are in assets/claims/em_apl.yml.
"""

import numpy as np
import pandas as pd
from scipy.special import expit

from ...statistics import MARGIN
from ...sweeps.search import Row, candidates
from ..claims import claim_above, claim_between
from ..experiments import choice
from ..gains import board_row_runs
from ..measuring import GROUPS, POINTS, QUANTILES
from ..published import SUITE


def _about_apl(known: pd.DataFrame) -> str:
    text = "The numbers stand in OPML's Table II; the supplement has none."
    on_voc, on_coco = (
        board_row_runs(Row('em_apl', 'cosine'), SUITE, dataset, known).test_map
        for dataset in ('voc12_animals', 'coco18')
    )
    em = choice.plan_rate_runs(known, ['voc12_animals'])
    rates = dict(list(em[em.what == 'EM, cosine head'].groupby('place')))
    if not len(on_voc) or len(rates) < choice.RATES_TRIED:
        return text
    first, second, third = (
        (on_voc - rates[place].set_index('seed').test_map).mean() for place in (1, 2, 3)
    )
    tried = [config.lr for config in candidates(Row('em', 'cosine'), SUITE, 'voc12_animals')]
    highest = ', the highest tried' if rates[1].config.iloc[0].lr == max(tried) else ''
    coco = (on_coco - board_row_runs(Row('em', 'cosine'), SUITE, 'coco18', known).test_map).mean()
    level = 'they are level' if abs(coco) < MARGIN else f'it is {_beside(coco)} EM'
    return (
        f'{text} On the cosine head, which the paper does not have, pseudo-labels act: on '
        f'voc12_animals EM with APL is {_beside(first)} EM at the rate of its search{highest}, '
        f'{_beside(second)} EM at the rate that was second on validation, and {_beside(third)} it '
        f'at the third; on coco18 {level}. So no claim is made of it.'
    )


def _beside(gain: float) -> str:
    return f'{abs(gain):.1f} {"above" if gain > 0 else "below"}'


_DATA = ('voc12', 'coco14', 'nus', 'cub')


_AT_START = np.log(2)  # the loss of a positive with p = 1/2, before the first step


def _early_rise(curve):
    return 100 * float(np.nanmean(curve['annotated'][:POINTS]) / _AT_START - 1)


def _fall(curve):
    return 100 * float(1 - np.nanmean(curve['annotated'][-POINTS:]) / _AT_START)


def _last_median(group, array='probability', scale=lambda x: x):
    k, median = GROUPS.index(group), QUANTILES.index(0.5)
    return lambda arrays: 100 * float(scale(arrays[array][-1, k, median]))


def _hidden_since_first_epoch(curve):
    medians = curve['probability'][:, GROUPS.index('unannotated positives'), QUANTILES.index(0.5)]
    return 100 * float(medians[-1] - medians[0])


def _logits(figure):
    positives, negatives = (
        _last_median(f'unannotated {each}', 'logit', expit) for each in ('positives', 'negatives')
    )
    return [
        claim_above(
            f'{dataset}, σ(|logit|)',
            figure(dataset, 'EM', positives),
            figure(dataset, 'EM', negatives),
        )
        for dataset in _DATA
    ]


_MEDIANS = {
    group: _last_median(group) for group in ('annotated positives', 'unannotated positives')
}


def _positives(figure):
    return [
        claim_above(
            f'{dataset}, probability of {group}',
            figure(dataset, 'EM', median),
            figure(dataset, 'AN', median),
        )
        for dataset in _DATA
        for group, median in _MEDIANS.items()
    ]


def _half(series, **bounds):
    return lambda figure: [
        claim_between(
            f'{dataset}, probability of {group}', figure(dataset, series, median), **bounds
        )
        for dataset in _DATA
        for group, median in _MEDIANS.items()
    ]


_AMBIGUOUS = _last_median('unannotated negatives', 'logit', expit)


def _mean_ap(density):
    return float(np.mean(density['ap']))


def _ap_of_most_frequent(density):
    return float(density['ap'][0])


def _parted(quantity, name):
    return lambda figure: [
        claim_above(
            f'coco14, {name}', *(figure('coco14', method, quantity) for method in ('EM', 'AN'))
        )
    ]


COMPARE = {
    'em_apl-loss-rises': lambda figure: [
        claim_between(f'{dataset}, rise', figure(dataset, 'AN', _early_rise), low=0)
        for dataset in _DATA
    ],
    'em_apl-loss-falls': lambda figure: [
        claim_between(f'{dataset}, fall', figure(dataset, 'EM', _fall), low=0) for dataset in _DATA
    ],
    'em_apl-logits': _logits,
    'em_apl-ambiguous': lambda figure: [
        claim_between(
            f'{dataset}, σ(|logit|)', figure(dataset, 'EM', _AMBIGUOUS), high=100 * expit(1)
        )
        for dataset in _DATA
    ],
    'em_apl-positives': _positives,
    'em_apl-sure': _half('EM', low=50),
    'em_apl-unsure': _half('AN', high=50),
    'em_apl-unsure-hidden': lambda figure: [
        claim_above(
            f'{dataset}, probability',
            *(figure(dataset, {group: 'AN'}, median) for group, median in _MEDIANS.items()),
        )
        for dataset in _DATA
    ],
    'em_apl-maintaining': lambda figure: [
        claim_between(
            f'{dataset}, probability of unannotated positives',
            figure(dataset, 'EM', _hidden_since_first_epoch),
            low=-5,
        )
        for dataset in _DATA
    ],
    'em_apl-distinguishable': _parted(_mean_ap, 'mAP of eight classes'),
    'em_apl-frequent': _parted(_ap_of_most_frequent, 'AP of the most frequent class'),
}
NOTES = {
    'em_apl-apl': _about_apl,
}
