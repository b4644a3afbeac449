"""Both words of every claim about cells of tables again, from the YAML files and outputs/runs.csv.

No line here is shared with `spml_nb.replication.claims` or what it calls: cells are merged from
the papers' files, runs are found in the record by pandas, effects and words are worked out by
scipy. The one import from there is what is tested, the report.
"""

import json
from functools import cache
from itertools import pairwise, permutations, product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from recorded import of_a_suite
from scipy import stats
from worked_out import paper_claims

ROOT = Path(__file__).resolve().parents[1]
ASSETS = ROOT / 'spml_nb' / 'assets'
RECORD = ROOT / 'outputs' / 'runs.csv'
pytestmark = pytest.mark.skipif(not RECORD.is_file(), reason='no table of record')

PHOTOS = {
    'voc12': 'voc12_animals',
    'coco14': 'coco18',
    'nus': 'mirflickr14',
    'cub': 'cub_crops',
    'imagenet': 'corel5k_themes',
}
PAPERS = ('hml', 'opml', 'lac', 'two_way', 'em_apl')
USUAL = {'head': 'linear', 'labels': 'single', 'regime': 'linear', 'batch_size': 64}
OWN_HEAD = {'hml': 'cosine', 'hml_fixed': 'cosine', 'lac': 'labelwise', 'lac_plc': 'labelwise'}
SEARCH = 1000  # the seed of every search
RUN_AS = {  # one loss under two names is run once, under the second
    'opml': 'zlpr',
    'two_way_sample': 'softmax',
    'multi_similarity': 'zlpr',
}
COLUMNS = {
    'mAP': 'test_map',
    'mAP@class': 'test_map_class',
    'mAP@sample': 'test_map_sample',
    'accuracy': 'test_top1',
    'pseudo-label precision': 'pseudo_positive_precision_at_end',
}
CHOSEN_BY = {  # on validation, where it is not mAP over classes
    'mAP@sample': 'val_map_sample',
    'micro-F1': 'val_micro_f1_at_',
    'macro-F1': 'val_macro_f1_at_',
    'micro-F1 at the chosen threshold': 'val_micro_f1',
    'macro-F1 at the chosen threshold': 'val_macro_f1',
}


# The papers' cells


@cache
def read_yaml(*parts):
    return yaml.safe_load(ASSETS.joinpath(*parts).read_text(encoding='utf-8'))


def laid_over(below, above):
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {k: laid_over(below.get(k), v) if k in below else v for k, v in above.items()}


def again(table):
    "The rows of a table, or of one of its groups, on other sets of photos."
    about = table.get('ours', {}).get('again', {})
    group = f'{about["group"]} / ' if 'group' in about else ''
    return {
        f'{dataset} / {row.removeprefix(group)}': {
            'config': about_row.get('config', {}) | {'dataset': dataset},
            **{name: about_row[name] for name in ('metric',) if name in about_row},
        }
        for dataset in about.get('sets', [])
        for row, about_row in table['rows'].items()
        if row.startswith(group)
    }


@cache
def cells(paper, number):
    "{(row, column): the fields of the cell}, with `printed` and `source`."
    whole = read_yaml('papers', f'{paper}.yml')
    table = whole['tables'][number]
    groups = table.get('groups', {})
    found = {}
    own = table.get('ours', {})
    rows = table['rows'] | own.get('rows', {}) | again(table)
    columns = table['columns'] | own.get('columns', {})
    for (row, about_row), (k, (column, about_column)) in product(
        rows.items(), enumerate(columns.items())
    ):
        parts = [whole, table]
        for name, about in ((row, about_row), (column, about_column)):
            group = name.partition(' / ')[0] if ' / ' in name else ''
            parts += [groups.get(group) or {}, about]
        for more in table.get('cells', []):
            if row in more.get('rows', [row]) and column in more.get('columns', [column]):
                parts.append(more)
        cell = {'source': whole['short']}
        for part in parts:
            kept = ('config', 'metric', 'source', 'stand_in', 'no_run')
            cell = laid_over(cell, {name: part[name] for name in kept if name in part})
        number_printed = dict(enumerate(about_row.get('mean', []))).get(k)
        cell['own'] = number_printed is None
        printed = number_printed if isinstance(number_printed, int | float) else np.nan
        found[row, column] = cell | {'printed': printed}
    return found


# The runs behind them


@cache
def record():
    runs = pd.read_csv(RECORD, low_memory=False).drop_duplicates('key')
    runs = runs.fillna(USUAL | {'seed': 0, 'label_seed': 1200, 'train_images': 0, 'hparams': '{}'})
    runs['validation'] = runs.val_map_seen.fillna(runs.val_map)
    to_the_end = (runs.selection == 'last') & (runs.schedule == 'cosine') & (runs.epochs == 40)
    runs['to_the_end'] = to_the_end & (runs.regime == 'linear')
    return runs[of_a_suite(runs) | (runs.regime != 'linear') | runs.to_the_end]


@cache
def comparable(loss, dataset, head, labels, batch_size, regime, to_the_end):
    "Runs of a loss, and of what it is run as, in one setting."
    runs = record()
    runs = runs[runs.to_the_end == to_the_end]
    return runs[
        runs.loss.isin([loss, RUN_AS.get(loss)])
        & (runs.dataset == dataset)
        & (runs['head'] == head)
        & (runs.labels == labels)
        & (runs.regime == regime)
        & (runs.batch_size == batch_size)
    ]


def runs_of(cell):
    "The final runs of a cell, by seed; None where photos have none."
    config = cell.get('config') or {}
    dataset = PHOTOS.get(config.get('dataset'), config.get('dataset') if cell.get('own') else None)
    if 'no_run' in cell or not dataset or config.get('backbone', 'resnet50') != 'resnet50':
        return None
    loss, labels = config['loss'], config.get('labels', 'single')
    if loss == 'an' and labels == 'full':
        loss = 'bce'
    head = config.get('head') or OWN_HEAD.get(loss, 'linear')
    batch_size = cell.get('stand_in', {}).get('batch_size', 64)
    regime = 'finetune' if config.get('weights') == 'none' else 'linear'
    # a share of the positives is trained on with what single positives chose
    searched = 'single' if labels.startswith('partial') else labels
    to_the_end = config.get('selection') == 'last' and regime == 'linear'
    tried = comparable(loss, dataset, head, searched, batch_size, regime, to_the_end)
    tried = tried[tried.seed == SEARCH]
    runs = comparable(loss, dataset, head, labels, batch_size, regime, to_the_end)
    own = tried[tried.loss == loss]
    tried = pd.concat([own, tried[(tried.loss != loss) & ~tried.lr.isin(own.lr)]])
    chosen_by = CHOSEN_BY.get(cell['metric'], 'validation')
    if cell['metric'] in ('micro-F1', 'macro-F1'):
        chosen_by += '0.75' if loss in ('em', 'em_apl') else '0.5'
    if not len(tried) or tried[chosen_by].isna().any():
        return None
    if to_the_end and len(tried) < 10:
        return None
    best = tried.loc[tried[chosen_by].idxmax()]
    wanted = json.loads(best.hparams) | (config.get('hparams') or {})
    final = runs[
        (runs.seed < SEARCH)
        & (runs.lr == best.lr)
        & (runs.epochs.fillna(-1) == (-1 if pd.isna(best.epochs) else best.epochs))
    ]
    as_wanted = np.array([json.loads(text) == wanted for text in final.hparams], bool)
    same = final[(final.loss == best.loss) & as_wanted]
    # with full labels only multi-similarity at a temperature of 1 has another name
    alike = labels != 'full' or (config.get('hparams') or {}).get('T_pos') == 1
    if not len(same) and alike:
        same = final[final.loss == RUN_AS.get(loss)]
    return same.drop_duplicates('seed').set_index('seed').sort_index()


def measured(cell):
    "(values by seed, None for an idle mechanism; name on other test images; data set; key)"
    if 'measured' in cell:  # of a figure
        return cell['measured']
    runs = runs_of(cell)
    if runs is None or not len(runs):
        return {}, '', '', None
    metric = cell['metric']
    if metric.endswith('F1'):
        threshold = 0.75 if cell['config']['loss'] in ('em', 'em_apl') else 0.5
        values = 100 * runs[f'test_{metric.replace("-F1", "_f1")}_at_{threshold}']
    else:
        values = runs[COLUMNS[metric]]
    key = runs.key.iloc[0]
    if metric == 'pseudo-label precision':
        return values.dropna().round(4).to_dict(), '', '', (key, metric)  # of training labels
    if (runs.exercised == 0).mean() >= 0.5:
        return None, '', '', (key, metric)
    dataset = runs.dataset.iloc[0]
    return values.dropna().round(4).to_dict(), f'{key} {metric}', dataset, (key, metric)


# What is compared: a place is (its data set or name, its contrasts), a contrast is
# (name, [(weight, place of a cell)], bound, sign)


def listed(names):
    return names if isinstance(names, list) else [names]


def stated(entry):
    "The places of a claim that the YAML states, one a column."
    [number] = entry['tables']
    paper = entry['id'].partition('-')[0]
    about = entry.get('above') or entry['between']
    of_paper = [place for place, cell in cells(paper, number).items() if not cell['own']]
    columns = about.get('at') or list(dict.fromkeys(column for _, column in of_paper))
    bounds = [(about[side], sign) for side, sign in (('low', 1), ('high', -1)) if side in about]
    places = []
    for column in columns:
        left = [(number, row, column) for row in listed(about['rows'])]
        right = [(number, row, column) for row in listed(about.get('than', []))]
        contrasts = []
        for one, other in product(left, right or [None]):
            for bound, sign in bounds or [(about.get('by', 0), 1)]:
                terms = [(1, one), (-1, other)] if other else [(1, one)]
                contrasts.append(((one[1], other and other[1], bound), terms, bound, sign))
        places.append(contrasts)
    return places


def over(one, *others, by=0):
    "One cell above each of some others."
    return [((other[1:], by), [(1, one), (-1, other)], by, 1) for other in others]


def line(names, number, row):
    "What the straight line through cells gains from the first to the last."
    position = np.arange(len(names)) - (len(names) - 1) / 2
    weights = (len(names) - 1) * position / np.square(position).sum()
    return [(weight, (number, row, name)) for weight, name in zip(weights, names, strict=True)]


CLASS, SAMPLE = 'mAP@class', 'mAP@sample'
BOTH = '(a) Ours / both'
SIZES = [f'M = {m}' for m in (16, 32, 64, 128, 256, 512)]
SIX = ('MSCOCO', 'VISPR', 'VAW', 'WIDER', 'VOC2007', 'VOC2012')
MORE = ('cub_crops', 'mirflickr14', 'corel5k', 'ccp')  # sets that the paper does not have
NETWORKS = ('ResNet50', 'ResNeXt50', 'DenseNet169', 'RegNetY32gf')


def softmax_rises(row):
    names = ('(b) Softmax / sample', '(b) Softmax / both', BOTH)
    return [((b, a), [(1, ('3', row, b)), (-1, ('3', row, a))], 0, 1) for a, b in pairwise(names)]


def others(dataset, column):
    one = ('7', f'{dataset} / Ours', column)
    return [
        (other, [(1, one), (-1, ('7', f'{dataset} / {other}', column))], 0, 1)
        for other in ('Softmax', 'BCE', 'Focal', 'ASL')
    ]


def softmax_beside_bce(dataset, column):
    weight = 1 if column.startswith(SAMPLE) else -1
    softmax, bce = (('7', f'{dataset} / {loss}', column) for loss in ('Softmax', 'BCE'))
    return [('', [(weight, softmax), (-weight, bce)], 0, 1)]


def every_column(*measures):
    return [
        (dataset, f'{measure} / {network}')
        for dataset, measure, network in product(SIX + MORE, measures, NETWORKS)
    ]


def on_head(dataset, head):
    "AN on a head; the paper prints both for VOC12."
    config = {'loss': 'an', 'head': head, 'labels': 'single', 'dataset': dataset}
    printed = {('voc12', 'cosine'): 88.0, ('voc12', 'linear'): 86.9}
    cell = {'config': config, 'metric': 'mAP', 'source': 'HML'}
    return cell | {'printed': printed.get((dataset, head), np.nan)}


CODED = {
    'hml-cosine': [
        [('', [(1, on_head(dataset, 'cosine')), (-1, on_head(dataset, 'linear'))], 0, 1)]
        for dataset in ('voc12', 'coco14', 'cub', 'nus')
    ],
    'hml-earlier': [
        [(method, [(1, ('2', 'AN', column)), (-1, ('2', method, column))], 0, 1)]
        for method, column in (('LS', 'CUB'), ('WAN', 'COCO'), ('EPR', 'COCO'), ('ROLE', 'CUB'))
    ],
    'lac-role': [
        [('', [
            (weight, ('2', row, f'{model} / {name}'))
            for row, sign in (('L_ROLE', 1), ('L_AN', -1))
            for weight, model in ((sign, 'ResNet-50'), (-sign, 'LEM'))
        ], 0, 1)]
        for name in ('VOC', 'COCO', 'NUS', 'CUB')
    ],
    'two_way-temperature': [
        [('', [
            (weight, ('1', f'T_P {at}', f'{measure} / T_N = 1'))
            for weight, at in zip(
                (-0.8, -0.4, 0, 0.4, 0.8), ('→ 0', '= 0.5', '= 1', '= 2', '= 4'), strict=True
            )
        ], 0, 1)]
        for measure in (CLASS, SAMPLE)
    ],
    'two_way-negative': [
        over(
            ('1', f'T_P = {T_P}', f'{measure} / T_N = 1'),
            *(('1', f'T_P = {T_P}', f'{measure} / T_N = {T_N}') for T_N in (0.5, 2, 4)),
            by=-0.5,
        )
        for measure in (CLASS, SAMPLE)
        for T_P in (0.5, 1, 2, 4)
    ],
    'two_way-bias-helps': [
        over(('2', measure, 'ε = 4'), ('1', 'T_P = 1', f'{measure} / T_N = 1'))
        for measure in (CLASS, SAMPLE)
    ],
    'two_way-bias': [
        over(('3', measure, BOTH), ('2', measure, 'ε = 4')) for measure in (CLASS, SAMPLE)
    ],
    'two_way-each-way': [
        over(('3', f'mAP@{own}', f'(a) Ours / {own}'), ('3', f'mAP@{own}', f'(a) Ours / {other}'))
        for own, other in (('class', 'sample'), ('sample', 'class'))
    ],
    'two_way-softmax': [softmax_rises(measure) for measure in (CLASS, SAMPLE)],
    'two_way-softmax-measure': [softmax_beside_bce(*place) for place in every_column(SAMPLE)],
    'two_way-softmax-class': [softmax_beside_bce(*place) for place in every_column(CLASS)],
    'two_way-counter-sample': [
        [
            (way, [(1, ('3', SAMPLE, way)), (-1, ('3', SAMPLE, '(b) Softmax / class'))], 0, 1)
            for way in ('(b) Softmax / sample', '(b) Softmax / both')
        ]
    ],
    'two_way-counter-class': [
        over(('3', CLASS, '(b) Softmax / class'), ('3', CLASS, '(b) Softmax / sample'))
    ],
    'two_way-related': [
        over(
            ('3', measure, BOTH),
            *(
                ('4', measure, f'{loss} / T_P = {T_P}')
                for loss in ('(a) Multi-sim loss', '(b) Joint-way')
                for T_P in (1, 2, 4)
            ),
        )
        for measure in (CLASS, SAMPLE)
    ],
    'two_way-bucket': [[('', line(SIZES[:4], '5', CLASS), 0, 1)]],
    'two_way-bucket-64': [
        [
            (size, [(1, ('5', measure, size)), (-1, ('5', measure, 'M = 128'))], -0.5, 1)
            for size in ('M = 64', 'M = 256', 'M = 512')
        ]
        for measure in (CLASS, SAMPLE)
    ],
    'two_way-bucket-sample': [
        [('', line(SIZES, '5', CLASS) + [(-w, at) for w, at in line(SIZES, '5', SAMPLE)], 0, 1)]
    ],
    'two_way-imagenet': [
        [
            (pair, [(1, ('8', pair[0], 'ImageNet')), (-1, ('8', pair[1], 'ImageNet'))], 0.5, -1)
            for pair in permutations(('ASL', 'Softmax', 'Ours'), 2)
        ]
    ],
    'two_way-others': [others(*place) for place in every_column(CLASS, SAMPLE)],
}  # fmt: skip
NOT_ABOUT_CELLS = {'two_way-transfer'}  # on photos, about figure T8


def asked():
    "{id: (paper, its places)} of every claim that cells of tables decide."
    found = {}
    for paper in PAPERS:
        for entry in read_yaml('claims', f'{paper}.yml'):
            decided_elsewhere = 'ablations' in entry or entry['id'] in NOT_ABOUT_CELLS
            if entry.get('tables') and not decided_elsewhere:
                places = CODED.get(entry['id']) or stated(entry)
                found[entry['id']] = paper, places + on_second_set(paper, entry, places)
    return found


def on_second_set(paper, entry, places):
    "The same places on the set of photos that has all rows of the tables again."
    tables = read_yaml('papers', f'{paper}.yml')['tables']
    about = tables[entry['tables'][0]].get('ours', {}).get('again', {})
    if 'group' in about:
        return []

    def moved(place, dataset):
        number, row, column = place
        return number, f'{dataset} / {row}', column

    return [
        [
            (name, [(weight, moved(place, dataset)) for weight, place in terms], bound, sign)
            for name, terms, bound, sign in contrasts
        ]
        for dataset in about.get('sets', [])
        for contrasts in places
    ]


ASKED = asked()


# From numbers to words


@cache
def resampled():
    with np.load(RECORD.with_name('test_images.npz')) as found:
        return dict(found)


IMAGE_SD = {
    'voc12_animals': 0.89,
    'coco18': 0.67,
    'mirflickr14': 0.85,
    'cub_crops': 0.37,
}  # where runs were not resampled
SAMPLE_SD = {'voc12_animals': 0.30, 'coco18': 0.50}


class Effect:
    "Mean, variance and degrees of freedom, of seeds and test images."

    def __init__(self, mean, variance, freedom):
        self.mean, self.variance, self.freedom = mean, variance, freedom

    def p(self, bound=0.0):
        "That the mean is not above the bound, one-sided."
        if self.variance == 0:
            return float(self.mean <= bound)
        return stats.t.sf((self.mean - bound) / self.variance**0.5, self.freedom)

    @property
    def two_sided(self):
        if self.variance == 0:
            return float(self.mean == 0)
        return 2 * min(self.p(), 1 - self.p())

    @property
    def none(self):
        "That it is half a point or more, by two one-sided tests."
        if self.variance == 0:
            return float(abs(self.mean) >= 0.5)
        return max(self.p(-0.5), 1 - self.p(0.5))

    @property
    def half(self):
        return stats.t.ppf(0.975, self.freedom) * self.variance**0.5


def effect_of(terms, bound, sign):
    "The effect of a contrast; None where a cell has no runs or its mechanism did not act."
    numbers = [measured(cell) for _, cell in terms]
    if any(not values for values, *_ in numbers):
        return None
    seeds = sorted(set.intersection(*(set(values) for values, *_ in numbers)))
    weights = [weight for weight, _ in terms]
    sums = np.array([
        sum(w * values[seed] for w, (values, *_) in zip(weights, numbers, strict=True))
        for seed in seeds
    ])  # fmt: skip
    if len(sums) < 2:
        return None
    dataset = numbers[0][2]
    images = 0.0
    if dataset and sums.any():
        names = [name for _, name, *_ in numbers]
        if set(names) <= set(resampled()):
            each = [resampled()[name].astype(float) for name in names]
            images = float(np.dot(weights, each).std(ddof=1))
        else:
            sample = all(cell['metric'] == SAMPLE for _, cell in terms)
            known = SAMPLE_SD if sample else IMAGE_SD
            error = known.get(dataset, max(known.values()))
            images = error * max(np.square(weights).sum() / 2, 1) ** 0.5
    of_seeds = sums.var(ddof=1) / len(sums)
    variance = of_seeds + images**2
    freedom = min((len(sums) - 1) * (variance / of_seeds) ** 2, 1e9) if of_seeds else 1e9
    return Effect(sign * (sums.mean() - bound), variance, freedom)


def mean_of(effects):
    variance = np.array([e.variance for e in effects]) / len(effects) ** 2
    whole = variance.sum()
    rest = (variance**2 / [e.freedom for e in effects]).sum()
    return Effect(np.mean([e.mean for e in effects]), whole, whole**2 / rest if rest else 1e9)


def p_values(effects, bounded):
    "p that all are above 0, that one is below, that there is no difference."
    there = [e for e in effects if e]
    below = min([1.0, *(len(there) * e.two_sided for e in there if e.mean < 0)])
    if not effects or len(there) < len(effects):
        return [1.0, below, 1.0]
    above = max(e.two_sided if e.mean > 0 else 1.0 for e in there)
    if bounded:
        return [above, below, 1.0]
    none = [e.none for e in there]
    return [above, below, min(max(none), max(above, len(none) * min(none)))]


SIGNS = ('reproduced', 'not reproduced', 'no difference')


def sign_of(p, otherwise):
    significant = [sign for sign, value in zip(SIGNS, p, strict=True) if value < 0.05]
    return 'no difference' if SIGNS[2] in significant else (significant or [otherwise])[0]


def holm(p):
    order, adjusted, worst = np.argsort(p, kind='stable'), {}, 0.0
    for step, k in enumerate(order):
        worst = max(worst, min((len(p) - step) * p[k], 1.0))
        adjusted[k] = worst
    return [adjusted[k] for k in range(len(p))]


def cell_at(paper, at):
    if isinstance(at, dict):
        return at
    number, *place = at
    return cells(paper, number)[*place]


def merged(paper, places):
    "The places of a claim, each {name of a contrast: (terms, bound, sign)}, equal runs merged."
    found, seen, before = [], set(), {}
    for contrasts in places:
        filled = [
            (name, [(w, cell_at(paper, at)) for w, at in terms], bound, sign)
            for name, terms, bound, sign in contrasts
        ]
        every = [measured(cell) for _, terms, *_ in filled for _, cell in terms]
        runs = tuple(key for *_, key in every)
        if any(runs) and runs in seen:
            continue
        seen.add(runs)
        first_terms = filled[0][1]
        config = first_terms[0][1]['config']
        dataset = config['dataset']
        if config.get('backbone', 'resnet50') != 'resnet50':
            dataset = len(found)  # no run can be there
        dataset = next((d for *_, d, _ in every if d), dataset)
        nth = before[dataset] = before.get(dataset, -1) + 1
        found.append({(k, nth, name): rest for k, (name, *rest) in enumerate(filled)})
    return found


def words_of(paper, places):
    "(sign, size, mean, half)"
    places = merged(paper, places)
    contrasts = [contrast for place in places for contrast in place.values()]
    of_figure = any(not cell['metric'] for terms, *_ in contrasts for _, cell in terms)
    bounded = any(bound for _, bound, _ in contrasts) or of_figure
    effects = [{name: effect_of(*rest) for name, rest in place.items()} for place in places]
    tested = [k for k, each in enumerate(effects) if any(each.values())]
    p = {k: p_values(list(effects[k].values()), bounded) for k in tested}
    for column in range(3):
        for k, value in zip(tested, holm([p[k][column] for k in tested]), strict=True):
            p[k][column] = value
    signs = [
        sign_of(p.get(k, [1.0] * 3), 'undecided' if all(each.values()) else 'not run')
        for k, each in enumerate(effects)
    ]
    by_name = {}
    for each in effects:
        for name, e in each.items():
            by_name.setdefault(name, []).extend([e] if e else [])
    means = {name: mean_of(found) if found else None for name, found in by_name.items()}
    sign = sign_of(
        p_values(list(means.values()), bounded),
        'not run' if set(signs) <= {'not run'} else 'undecided',
    )
    if sign == 'not reproduced' and sign not in signs:
        several = [means[name] for name, found in by_name.items() if len(found) > 1]
        sign = sign_of(p_values(several, bounded), 'undecided')
    contradicting = {
        'reproduced': {'not reproduced'},
        'not reproduced': {'reproduced'},
        'no difference': {'reproduced', 'not reproduced'},
    }
    if contradicting.get(sign, set()) & set(signs):
        sign = 'undecided'
    if sign == 'not run':
        return idle_or_not_run(places, effects), None, np.nan, np.nan
    if sign in SIGNS and sign not in signs:
        sign += ' on average'
    yes, no = signs.count('reproduced'), signs.count('not reproduced')
    if sign == 'undecided' and yes and no:
        sign += f' ({yes} yes, {no} no)'
    least = min((name for name in means if means[name]), key=lambda name: means[name].mean)
    behind = [
        (place[least], e[least]) for place, e in zip(places, effects, strict=True) if e.get(least)
    ]
    ours = means[least]
    return sign, size_of(behind), ours.mean, ours.half


def idle_or_not_run(places, effects):
    for place, each in zip(places, effects, strict=True):
        numbers = [measured(cell)[0] for terms, *_ in place.values() for _, cell in terms]
        idle = None in numbers
        if idle and ({} not in numbers or not any(each.values())):
            return 'not exercised'
    return 'not run'


def size_of(behind):
    "Ours beside the paper's, on the sets that stand for its own."
    if any(bound for (_, bound, _), _ in behind):
        return 'bound asked'
    behind = [each for each in behind if not any(cell.get('own') for _, cell in each[0][0])]
    if not behind:
        return 'not printed'
    ours = mean_of([effect for _, effect in behind])
    behind = [contrast for contrast, _ in behind]
    printed = [
        sign * (sum(w * cell['printed'] for w, cell in terms) - bound)
        for terms, bound, sign in behind
    ]
    if np.isnan(printed).any():
        return 'not printed'
    if any(len({cell['source'] for _, cell in terms}) > 1 for terms, *_ in behind):
        return 'mixed sources'
    theirs = np.mean(printed)
    if theirs > ours.mean + ours.half:
        return 'smaller'
    return 'larger' if theirs < ours.mean - ours.half else 'as large'


def report(paper):
    return paper_claims(paper).set_index('id')


@pytest.mark.parametrize('id', ASKED)
def test_both_words_of_a_claim_are_those_of_the_record(id):
    shown = report(id.partition('-')[0]).loc[id]
    sign, size, mean, half = words_of(*ASKED[id])
    assert (shown.effect, shown.half_width) == pytest.approx((mean, half), abs=2e-3, nan_ok=True)
    assert shown.sign == sign
    if size:
        assert shown['size'] == size


def test_every_claim_about_cells_is_recomputed():
    "A claim that the YAML does not state needs its operands here."
    assert len(ASKED) > 40 and set(CODED) <= set(ASKED)
    assert all(places and all(places) for _, places in ASKED.values())
