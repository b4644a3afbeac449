"""Comparisons for claims of *Acknowledging the Unknown*.

The claims themselves are in assets/claims/em_apl.yml.
"""

import numpy as np
import pandas as pd
from scipy.special import expit

from ...statistics import EQUIVALENCE_MARGIN
from ...sweeps.search import Row
from ..comparisons import claim_above, claim_between, claim_curves_above, claim_curves_between
from ..experiments import budget
from ..gains import board_row_runs
from ..published import PHOTOS_SUITE
from ..run_measurements import GROUPS, POINTS, QUANTILES


def _note_on_apl(runs: pd.DataFrame) -> str:
    text = "The numbers stand in OPML's Table II; the supplement has none."

    def on_cosine_head(loss, dataset):
        return board_row_runs(Row(loss, 'cosine'), PHOTOS_SUITE, dataset, runs).test_map

    apl = {name: on_cosine_head('em_apl', name) for name in ('voc12_animals', 'coco18')}
    finals = budget.plan_finals(runs, ['voc12_animals'])
    by_all_seeds = finals[(finals.loss == 'em') & (finals['head'] == 'cosine')]
    em = {name: on_cosine_head('em', name) for name in apl}
    compared = [*apl.values(), *em.values(), by_all_seeds.test_map.dropna()]
    if not all(map(len, compared)):
        return text
    by_one, on_coco = ((apl[name] - em[name]).mean() for name in apl)
    by_all = (apl['voc12_animals'] - by_all_seeds.set_index('seed').test_map).mean()
    level = (
        'they are level' if abs(on_coco) < EQUIVALENCE_MARGIN else f'it is {_distance(on_coco)} EM'
    )
    return (
        f'{text} On the cosine head, which the paper does not have, pseudo-labels act: on '
        f"voc12_animals EM with APL is {_distance(by_one)} EM when EM's settings come from one "
        f'search, as its own do, and {_distance(by_all)} it when they come from the mean of '
        f'{len(budget.SEEDS)}; on coco18 {level}. So no claim is made of it.'
    )


def _distance(gain: float) -> str:
    return f'{abs(gain):.1f} {"above" if gain > 0 else "below"}'


_DATA = ('voc12', 'coco14', 'nus', 'cub')
_LOSS_AT_START = np.log(2)  # of a positive with p = 1/2


def _early_rise(curve):
    return 100 * float(np.nanmean(curve['annotated'][:POINTS]) / _LOSS_AT_START - 1)


def _fall(curve):
    return 100 * float(1 - np.nanmean(curve['annotated'][-POINTS:]) / _LOSS_AT_START)


def _last_median(group, array='probability', scale=lambda x: x):
    k, median = GROUPS.index(group), QUANTILES.index(0.5)
    return lambda arrays: 100 * float(scale(arrays[array][-1, k, median]))


def _hidden_since_first_epoch(curve):
    medians = curve['probability'][:, GROUPS.index('unannotated positives'), QUANTILES.index(0.5)]
    return 100 * float(medians[-1] - medians[0])


def _logits(figure):
    positives = _last_median('unannotated positives', 'logit', expit)
    negatives = _last_median('unannotated negatives', 'logit', expit)
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


def _median_between(series, **bounds):
    return lambda figure: [
        claim_between(
            f'{dataset}, probability of {group}', figure(dataset, series, median), **bounds
        )
        for dataset in _DATA
        for group, median in _MEDIANS.items()
    ]


_AMBIGUOUS = _last_median('unannotated negatives', 'logit', expit)
_LARGE_LOGIT = 100 * expit(1)  # its probability: above it a logit is large, below it near zero


def _mean_ap(density):
    return float(np.mean(density['ap']))


def _ap_of_rarest(density):
    return float(density['ap'][-1])


COMPARE = {
    'em_apl-loss-rises': claim_curves_between(_DATA, 'rise', 'AN', _early_rise, low=0),
    'em_apl-loss-falls': claim_curves_between(_DATA, 'fall', 'EM', _fall, low=0),
    'em_apl-logits': _logits,
    'em_apl-ambiguous': claim_curves_between(
        _DATA, 'σ(|logit|)', 'EM', _AMBIGUOUS, high=_LARGE_LOGIT
    ),
    'em_apl-positives': _positives,
    'em_apl-sure': _median_between('EM', low=_LARGE_LOGIT),
    'em_apl-unsure': _median_between('AN', high=50),
    'em_apl-unsure-hidden': lambda figure: [
        claim_above(
            f'{dataset}, probability',
            *(figure(dataset, {group: 'AN'}, median) for group, median in _MEDIANS.items()),
        )
        for dataset in _DATA
    ],
    'em_apl-maintaining': claim_curves_between(
        _DATA, 'probability of unannotated positives', 'EM', _hidden_since_first_epoch, low=-5
    ),
    'em_apl-distinguishable': claim_curves_above(
        ['coco14'], 'mAP of eight classes', ('EM', 'AN'), _mean_ap
    ),
    'em_apl-rare': claim_curves_above(
        ['coco14'], 'AP of the rarest class', ('EM', 'AN'), _ap_of_rarest
    ),
}
NOTES = {
    'em_apl-apl': _note_on_apl,
}
