"""Both words of the claims about figures and about runs that no table has, again: from arrays in
outputs/PAPER/figN.npz and from outputs/runs.csv, without a line of what the pages are made by.
"""

import json
from functools import cache, partial
from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
from test_recomputed_claims import PHOTOS, RECORD, pytestmark, read_yaml, report, words_of

DATA = ('voc12', 'coco14', 'cub', 'nus')
SHARE = 'share of labels'  # percent, of which half a point is little

__all__ = ['pytestmark']  # without a record everything here is skipped


# Numbers of figures


@cache
def collected(paper, figure):
    "{(data set, series, values): [(seed, arrays)]} of the runs that the record has."
    file = RECORD.parent / paper / f'fig{figure}.npz'
    if not file.is_file():
        return {}
    with np.load(file) as flat:
        about = json.loads(flat['about'].tobytes())
        arrays = {}
        for path in flat.files:
            run, _, name = path.rpartition('/')
            arrays.setdefault(run, {})[name] = flat[path]
    recorded = set(pd.read_csv(RECORD, usecols=['key']).key)
    found = {}
    for run, place in about['parts'].items():
        if place['key'] in recorded:
            where = place['dataset'], place['series'], *place['values']
            found.setdefault(where, []).append((place['seed'], arrays[run]))
    return found


def read(paper, figure, dataset, series, quantity, metric='', tested=''):
    "A cell as `words_of` takes them."
    where = (dataset, *([series] if isinstance(series, str) else series))
    seeds = {
        seed: round(float(quantity(arrays)), 4)
        for seed, arrays in collected(paper, figure).get(where, [])
    }
    key = (figure, *where, getattr(quantity, '__name__', id(quantity)))
    return {
        'config': {'dataset': PHOTOS[dataset]},
        'metric': 'mAP' if tested else metric,
        'printed': np.nan,
        'source': '',
        'measured': (seeds, '', tested, key),
    }


def more(one, other, name='', bound=0.0):
    "A contrast: the first is above the second."
    return name, [(1, one), (-1, other)], bound, 1


def least(one, bound):
    return bound, [(1, one)], bound, 1


def most(one, bound):
    return bound, [(1, one)], bound, -1


# HML


def gradient_of(group):
    def gradient(arrays):
        counts = arrays['gradient'][group]
        middles = (np.arange(60) + 0.5) * 0.025
        return 100 * (counts * middles).sum() / counts.sum()

    gradient.__name__ = f'gradient {group}'
    return gradient


def probability_lost(arrays):
    counts = arrays['cosine'][0]
    theta = np.arccos(-1 + (np.arange(80) + 0.5) * 0.025)
    with_margin, without = (1 / (1 + np.exp(-20 * np.cos(theta + m))) for m in (0.1, 0))
    return 100 * (counts * (with_margin - without)).sum() / counts.sum()


def alone(margin):
    return partial(read, 'hml', '2', 'voc12', f'single positives, m = {margin}')


def gradients(group):
    without, with_margin = (alone(m)(gradient_of(group)) for m in (0, 0.1))
    return [more(with_margin, without) if group == 0 else more(without, with_margin)]


def balance(margin):
    return read('hml', '3', 'voc12', ('s = 20', margin), lambda arrays: -100 * arrays['imbalance'])


def high_in_the_middle(at):
    "The mean of the margins .2, .3 and .4 is above none, and above .6."
    middle = [(1 / 3, at(m)) for m in (0.2, 0.3, 0.4)]
    return [(end, [*middle, (-1, at(end))], 0.0, 1) for end in (0, 0.6)]


# EM/APL, OPML, Two-way

GROUPS = {'annotated': 0, 'unannotated': 1, 'negatives': 2}


def last_median(group):
    def median(arrays):
        return 100 * arrays['probability'][-1, GROUPS[group], 1]

    median.__name__ = f'median of {group}'
    return median


def last_logit(group):
    def sure(arrays):
        return 100 / (1 + np.exp(-arrays['logit'][-1, GROUPS[group], 1].astype(float)))

    sure.__name__ = f'logit of {group}'
    return sure


def rise(arrays):
    return 100 * (np.nanmean(arrays['annotated'][:5]) / np.log(2) - 1)


def fall(arrays):
    return 100 * (1 - np.nanmean(arrays['annotated'][-5:]) / np.log(2))


def since_first_epoch(arrays):
    return 100 * (arrays['probability'][-1, 1, 1] - arrays['probability'][0, 1, 1])


def em9(dataset, series, group):
    return read('em_apl', '9', dataset, series, last_median(group))


def em8(dataset, group):
    return read('em_apl', '8', dataset, 'EM', last_logit(group))


def em11(series, quantity):
    return read('em_apl', '11', 'coco14', series, quantity)


def mean_ap(arrays):
    return arrays['ap'].mean()


def last_ap(arrays):
    return arrays['ap'][-1]


def share_of(bins):
    def share(arrays):
        return 100 * arrays['counts'][bins].sum() / arrays['counts'].sum()

    share.__name__ = f'share {bins}'
    return share


def confidence(dataset, series, bins):
    return read('opml', '3', dataset, series, share_of(bins), SHARE)


def drop(arrays):
    return arrays['val_map'].max() - arrays['val_map'][-1]


def turned(arrays):
    return arrays['negative'][:5].mean()


def of_array(name):
    def value(arrays):
        return arrays[name]

    value.__name__ = name
    return value


def f6(dataset, series, name, metric=''):
    return read('lac', 'F6', dataset, series, of_array(name), metric)


def transferred(target):
    def value(arrays):
        return arrays[target][0]

    value.__name__ = target
    rows = [
        read('two_way', 'T8', 'imagenet', row, value, tested=target)
        for row in ('ASL', 'Softmax', 'Ours')
    ]
    return [more(rows[1], rows[0], 'next'), more(rows[2], rows[1], 'best')]


def chosen_above_zlpr(dataset):
    "The point of OPML's Figure 5 with the highest mean on validation, above the middle one."
    validation = {
        pair: np.mean([float(arrays['val_map']) for _, arrays in runs])
        for (name, _, *pair), runs in collected('opml', '5').items()
        if name == dataset
        for pair in [tuple(pair)]
    }
    middle = (0.5, 0.5)
    chosen = max(validation, key=validation.get, default=middle)
    test = of_array('test_map')
    cells = [
        read('opml', '5', dataset, ('OPML', *pair), test, tested=PHOTOS[dataset])
        for pair in (chosen, middle)
    ]
    return [more(*cells)]


HIGH, LOW = slice(16, 20), slice(0, 4)
EM_DATA = ('voc12', 'coco14', 'nus', 'cub')
BOTH_GROUPS = ('annotated', 'unannotated')

OF_FIGURES = {
    'hml-dropped-margin': lambda: [[least(alone(0.1)(probability_lost), 0)]],
    'hml-false-negatives': lambda: [
        [more(alone(0)(gradient_of(1)), alone(0)(gradient_of(2)))]
    ],
    'hml-margin-gradients': lambda: [gradients(group) for group in range(3)],
    'hml-balance': lambda: [high_in_the_middle(balance)],
    'hml-balance-best': lambda: [
        [more(balance(0.3), balance(m), m) for m in (0, 0.1, 0.2, 0.4, 0.5, 0.6)]
    ],
    'hml-correlation': lambda: [
        [least(read('hml', 'E8', dataset, 'HML', of_array('agreement')), 0)] for dataset in DATA
    ],
    'opml-stable-bce': lambda: [
        [more(*(read('opml', '4', dataset, row, drop) for row in ('BCE', 'OPML + high rank')))]
        for dataset in ('voc12', 'cub')
    ],
    'opml-constants': lambda: [chosen_above_zlpr(dataset) for dataset in ('voc12', 'cub')],
    'opml-confidence': lambda: [
        [more(*(confidence(dataset, row, bins) for row in rows))]
        for dataset in ('voc12', 'cub')
        for bins, rows in ((HIGH, ('OPML', 'BCE')), (LOW, ('BCE', 'OPML')))
    ],
    'opml-slower': lambda: [
        [more(*(read('opml', 'F1', dataset, row, turned, SHARE) for row in ('BCE', 'OPML')))]
        for dataset in EM_DATA
    ],
    'lac-hidden': lambda: [
        [more(*(f6(dataset, row, 'ap', SHARE) for row in ('LAC', 'AN')))]
        for dataset in ('voc12', 'coco14')
    ],
    'lac-hidden-contrast': lambda: [
        [more(*(f6(dataset, row, 'ap', SHARE) for row in ('LAC', 'LAC without contrast')))]
        for dataset in ('voc12', 'coco14')
    ],
    'lac-distinctive': lambda: [
        [more(*(f6(dataset, row, 'silhouette') for row in ('LAC', 'LAC without contrast')))]
        for dataset in ('voc12', 'coco14')
    ],
    'two_way-transfer': lambda: [
        transferred(target) for target in ('voc12_animals', 'coco18', 'mirflickr14')
    ],
    'em_apl-loss-rises': lambda: [
        [least(read('em_apl', '7', dataset, 'AN', rise), 0)] for dataset in EM_DATA
    ],
    'em_apl-loss-falls': lambda: [
        [least(read('em_apl', '7', dataset, 'EM', fall), 0)] for dataset in EM_DATA
    ],
    'em_apl-logits': lambda: [
        [more(em8(dataset, 'unannotated'), em8(dataset, 'negatives'))] for dataset in EM_DATA
    ],
    'em_apl-ambiguous': lambda: [
        [most(em8(dataset, 'negatives'), 100 / (1 + np.exp(-1)))] for dataset in EM_DATA
    ],
    'em_apl-positives': lambda: [
        [more(em9(dataset, 'EM', group), em9(dataset, 'AN', group))]
        for dataset, group in product(EM_DATA, BOTH_GROUPS)
    ],
    'em_apl-sure': lambda: [
        [least(em9(dataset, 'EM', group), 100 / (1 + np.exp(-1)))]
        for dataset, group in product(EM_DATA, BOTH_GROUPS)
    ],
    'em_apl-unsure': lambda: [
        [most(em9(dataset, 'AN', group), 50)] for dataset, group in product(EM_DATA, BOTH_GROUPS)
    ],
    'em_apl-unsure-hidden': lambda: [
        [more(*(em9(dataset, 'AN', group) for group in BOTH_GROUPS))] for dataset in EM_DATA
    ],
    'em_apl-maintaining': lambda: [
        [least(read('em_apl', '9', dataset, 'EM', since_first_epoch), -5)] for dataset in EM_DATA
    ],
    'em_apl-distinguishable': lambda: [[more(em11('EM', mean_ap), em11('AN', mean_ap))]],
    'em_apl-rare': lambda: [[more(em11('EM', last_ap), em11('AN', last_ap))]],
}  # fmt: skip


# Runs that no table has


def runs(dataset, loss, labels='single', head=None, **hparams):
    config = {'dataset': dataset, 'loss': loss, 'labels': labels, 'hparams': hparams}
    if head:
        config['head'] = head
    return {'config': config, 'metric': 'mAP', 'source': '', 'printed': np.nan}


def within(cells, bound):
    "Contrasts: no two differ by more."
    return [
        ((one, other), [(1, cells[one]), (-1, cells[other])], bound, -1)
        for one, other in permutations(cells, 2)
    ]


def slope(cells):
    "What the straight line through cells gains from the first to the last."
    position = np.arange(len(cells)) - (len(cells) - 1) / 2
    weights = (len(cells) - 1) * position / np.square(position).sum()
    return [*zip(weights, cells, strict=True)]


def negative(terms):
    return [(-weight, cell) for weight, cell in terms]


SHARES = [f'partial-{share}' for share in (0.1, 0.3, 0.5, 0.7, 0.9)]


def fixed(scale, margin):
    return runs('voc12', 'hml_fixed', scale=scale, margin=margin)


OTHER_MARGINS = [
    (scale, margin)
    for scale, margin in product((20, 40), (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6))
    if (scale, margin) != (20, 0.3)
]


def weighted(dataset, weight):
    parts = {'high_rank': True, 'smoothing': False, 'correction': False}
    return runs(dataset, 'opml_sp', rank_weight=weight, **parts)


def lac(dataset, *names):
    return lambda value: runs(dataset, 'lac', head='labelwise', **dict.fromkeys(names, value))


def lac_within(bound, values, *names):
    return [within({v: lac(dataset, *names)(v) for v in values}, bound) for dataset in
            ('voc12', 'coco14', 'nus', 'cub')]  # fmt: skip


SMALL = (1e-6, 1e-5, 1e-4)
OF_RUNS = {
    'hml-partial': lambda: [
        [more(runs(dataset, 'hml', share), runs(dataset, 'an', share))]
        for dataset, share in product(DATA, SHARES)
    ],
    'hml-partial-trend': lambda: [
        [
            (
                '',
                negative(slope([runs(dataset, 'hml', share) for share in SHARES]))
                + slope([runs(dataset, 'an', share) for share in SHARES]),
                0.0,
                1,
            )
        ]
        for dataset in DATA
    ],
    'hml-partial-drop': lambda: [
        [
            (
                f'{sign * share}',
                [(sign, runs('voc12', 'an', 'partial-0.1')),
                 (-sign * share, runs('voc12', 'bce', 'full'))],
                0.0,
                1,
            )
            for sign, share in ((1, 0.55), (-1, 0.65))
        ]
    ],
    'hml-margin-peak': lambda: [
        high_in_the_middle(partial(fixed, scale)) for scale in (20, 40)
    ],
    'hml-margin-best': lambda: [
        [more(fixed(20, 0.3), fixed(*place), place) for place in OTHER_MARGINS]
    ],
    'hml-scale': lambda: [
        [('', slope([fixed(scale, 0) for scale in (5, 10, 20, 30, 40, 50)]), 0.0, 1)],
        within({scale: fixed(scale, 0) for scale in (30, 40, 50)}, 0.5),
    ],
    'opml-weight': lambda: [
        within({w: weighted(dataset, w) for w in SMALL}, 0.5) for dataset in ('voc12', 'cub')
    ],
    'opml-weight-falls': lambda: [
        [more(weighted(dataset, w), weighted(dataset, 0.1), w) for w in SMALL]
        for dataset in ('voc12', 'cub')
    ],
    'lac-threshold': lambda: lac_within(
        0.3, (0.5, 0.6, 0.7, 0.8, 0.9), 'threshold', 'stage2_threshold'
    ),
    'lac-temperature': lambda: lac_within(0.2, (0.1, 0.5, 1, 1.5, 2), 'temperature'),
    'lac-queue-size': lambda: lac_within(0.2, (512, 1024, 2048, 4096, 8192), 'queue'),
}  # fmt: skip

ASKED = OF_FIGURES | OF_RUNS


@pytest.mark.parametrize('id', ASKED)
def test_both_words_of_a_claim_are_those_of_the_arrays_and_runs(id):
    paper = id.partition('-')[0]
    shown = report(paper).loc[id]
    sign, size, mean, half = words_of(paper, ASKED[id]())
    assert (shown.effect, shown.half_width) == pytest.approx((mean, half), abs=2e-3, nan_ok=True)
    assert shown.sign == sign
    assert shown['size'] == size or not size


def test_every_claim_without_cells_or_arms_is_recomputed():
    asked = set()
    for paper in ('hml', 'opml', 'lac', 'two_way', 'em_apl'):
        for entry in read_yaml('claims', f'{paper}.yml'):
            of_figure = 'figure' in entry and 'ablations' not in entry
            if of_figure or not {'tables', 'ablations'} & set(entry):
                asked.add(entry['id'])
    assert asked == set(ASKED)
