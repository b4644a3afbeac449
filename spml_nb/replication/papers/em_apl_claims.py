"""What the text of *Acknowledging the Unknown* says, as comparisons that numbers decide."""

import numpy as np
from scipy.special import expit

from ..claims import Claim, above, between
from ..measuring import GROUPS, POINTS, QUANTILES

_SINGLE = [
    {'dataset': dataset, 'labels': 'single', 'lr': lr, 'batch_size': batch_size}
    for dataset, lr, batch_size in (
        ('voc12', 1e-5, 8),
        ('coco14', 1e-5, 16),
        ('nus', 1e-5, 16),
        ('cub', 1e-4, 8),
    )
]


def _parts(runs):
    changes = {'proportion': 0.1}, {'labels': 'hard'}, {'beta': 1}, {'positive_proportion': 0.1}
    places = []
    for single in _SINGLE:
        dataset, fields = single['dataset'], {**single, 'loss': 'em_apl'}
        changed = runs(*[{'hparams': change} for change in changes], **fields)
        places.append(above(f'{dataset}, mAP', runs({}, **fields), changed))
    return places


CLAIMS = [
    Claim(
        'em_apl-em',
        'Main comparison',
        'The EM loss is above assume negative on every data set.',
        lambda table: table.everywhere(above, 'EM', 'AN'),
        tables=('1',),
        inferred=True,
        main=True,
        note="The numbers stand in OPML's Table II; the supplement has none.",
    ),
    Claim(
        'em_apl-apl',
        'Main comparison',
        'Asymmetric pseudo-labelling raises the mAP of the EM loss.',
        lambda table: table.everywhere(above, 'EM+APL', 'EM'),
        tables=('1',),
        inferred=True,
        main=True,
        note="The numbers stand in OPML's Table II; the supplement has none. On the cosine head, which the paper "
        'does not have, pseudo-labels act: on voc12_animals EM with APL is 2.5 above EM at the '
        'rate of its search, the highest tried, 0.3 below EM at the rate that was second on '
        'validation, and 0.7 above it at the third; on coco18 they are level. So no claim is '
        'made of it.',
    ),
    Claim(
        'em_apl-parts',
        'Section D',
        'Pseudo-labels do best when negative, many, soft and down-weighted; changing any one of '
        'these costs mAP.',
        _parts,
        lost=True,
        note=(
            'The numbers stand in a table of the main paper, which is not at hand, and the '
            'supplement does not name its data set.'
        ),
    ),
    Claim(
        'em_apl-precision',
        'Section D, Table 6',
        'Few of the positive pseudo-labels are right, less than a fifth.',
        lambda table: table.everywhere(between, 'Precision', high=20),
        tables=('6',),
        note='The text says very low; a fifth is the bound that its numbers keep.',
    ),
]


_DATA = ('voc12', 'coco14', 'nus', 'cub')


def _early_rise(curve):
    return 100 * float(np.nanmean(curve['annotated'][1:POINTS]) / curve['annotated'][0] - 1)


def _fall(curve):
    return 100 * float(1 - np.nanmean(curve['annotated'][-POINTS:]) / curve['annotated'][0])


def _last_median(group, array='probability', scale=lambda x: x):
    k, median = GROUPS.index(group), QUANTILES.index(0.5)
    return lambda arrays: 100 * float(scale(arrays[array][-1, k, median]))


def _logits(figure):
    positives, negatives = (
        _last_median(f'unannotated {each}', 'logit', expit) for each in ('positives', 'negatives')
    )
    return [
        above(
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
        above(
            f'{dataset}, probability of {group}',
            figure(dataset, 'EM', median),
            figure(dataset, 'AN', median),
        )
        for dataset in _DATA
        for group, median in _MEDIANS.items()
    ]


def _half(series, **bounds):
    return lambda figure: [
        between(f'{dataset}, probability of {group}', figure(dataset, series, median), **bounds)
        for dataset in _DATA
        for group, median in _MEDIANS.items()
    ]


_AMBIGUOUS = _last_median('unannotated negatives', 'logit', expit)


def _mean_ap(density):
    return float(np.mean(density['ap']))


CLAIMS += [
    Claim(
        'em_apl-f1',
        'Section E, Table 7',
        'EM has a higher F1 than AN, micro and macro, on every data set.',
        lambda table: table.everywhere(above, 'EM', 'AN'),
        tables=('7',),
        note=(
            'The text lost the table; thresholds on the probability are 0.75 for EM and 0.5 for AN.'
        ),
    ),
    Claim(
        'em_apl-f1-full',
        'Section E, Table 7',
        'On VOC the micro-F1 of EM with single positives exceeds that of BCE with full labels.',
        lambda table: table.everywhere(above, 'EM', 'BCE', at=['VOC / micro-F1']),
        tables=('7',),
        note='The text lost the number of BCE.',
    ),
    Claim(
        'em_apl-f1-cub',
        'Section E, Table 7',
        'On CUB the micro-F1 and the macro-F1 of AN are 0.',
        lambda table: table.everywhere(
            between, 'AN', high=1, at=['CUB / micro-F1', 'CUB / macro-F1']
        ),
        tables=('7',),
        note='Up to one percent counts as 0.',
    ),
    Claim(
        'em_apl-loss-rises',
        'Section B.1, Fig. 7',
        'In early training the loss of annotated positives rises with AN.',
        lambda figure: [
            between(f'{dataset}, rise', figure(dataset, 'AN', _early_rise), low=0)
            for dataset in _DATA
        ],
        figure='7',
        note='In percent: the last four fifths of the first epoch against its first fifth.',
    ),
    Claim(
        'em_apl-loss-falls',
        'Section B.1, Fig. 7',
        'The loss of annotated positives falls with EM.',
        lambda figure: [
            between(f'{dataset}, fall', figure(dataset, 'EM', _fall), low=0) for dataset in _DATA
        ],
        figure='7',
        note='From the first fifth of the first epoch to the last epoch, in percent.',
    ),
    Claim(
        'em_apl-logits',
        'Section B.3, Fig. 8',
        'With EM unannotated positives have larger logits than unannotated negatives.',
        _logits,
        figure='8',
        note='Medians of |logit| after the last epoch, shown as σ(|logit|) in percent.',
    ),
    Claim(
        'em_apl-ambiguous',
        'Section B.1, Fig. 8',
        'EM keeps the logits of unannotated negatives near zero.',
        lambda figure: [
            between(
                f'{dataset}, σ(|logit|)', figure(dataset, 'EM', _AMBIGUOUS), high=100 * expit(1)
            )
            for dataset in _DATA
        ],
        figure='8',
        note=(
            'The text says so of numerous ones. Asked: is the median |logit| below 1, so that σ < '
            '73.1 %?'
        ),
    ),
    Claim(
        'em_apl-positives',
        'Section B.2, Fig. 9',
        'EM is surer of positive labels than AN, of annotated and of unannotated ones.',
        _positives,
        figure='9',
    ),
    Claim(
        'em_apl-sure',
        'Section B.2, Fig. 9',
        'EM predicts positive labels with confidence, annotated and unannotated ones.',
        _half('EM', low=50),
        figure='9',
        note='The text says relatively confident; a median above one half is asked.',
    ),
    Claim(
        'em_apl-unsure',
        'Section B.2, Fig. 9',
        'AN gives positive labels low probabilities.',
        _half('AN', high=50),
        figure='9',
        note='A median below one half is asked, of annotated and of unannotated ones.',
    ),
    Claim(
        'em_apl-unsure-hidden',
        'Section B.2, Fig. 9',
        'AN gives unannotated positives lower probabilities than annotated ones.',
        lambda figure: [
            above(
                f'{dataset}, probability',
                *(figure(dataset, {group: 'AN'}, median) for group, median in _MEDIANS.items()),
            )
            for dataset in _DATA
        ],
        figure='9',
    ),
    Claim(
        'em_apl-distinguishable',
        'Section F.2, Fig. 11',
        'EM parts positive and negative labels better than AN.',
        lambda figure: [
            above(
                'coco14, mAP of eight classes',
                *(figure('coco14', name, _mean_ap) for name in ('EM', 'AN')),
            )
        ],
        figure='11',
        note=(
            'Asked of the test images, as the mAP of the eight classes counted, of which the '
            'figure shows four. The text takes the increments of mAP in its captions for a sign '
            'of it.'
        ),
    ),
]
