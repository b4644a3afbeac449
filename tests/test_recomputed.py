"""Every verdict's numbers again, from outputs/runs.csv by pandas and scipy alone: no line here is
shared with what the pages are made by.

The one import from the package is what is tested: the claims with the numbers of their forest
plots, and the front's gains.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from recorded import of_a_suite
from scipy import stats
from worked_out import paper_claims

from spml_nb.replication import front_page, tables
from spml_nb.runs.record import read_record

RECORD = Path(__file__).resolve().parents[1] / 'outputs' / 'runs.csv'
pytestmark = pytest.mark.skipif(not RECORD.is_file(), reason='no table of record')

SETS = {
    'VOC12': 'voc12_animals',
    'VOC': 'voc12_animals',
    'COCO': 'coco18',
    'CUB': 'cub_crops',
    'NUS': 'mirflickr14',
}
SEARCH = 1000  # the seed of every search
ALIKE = {'opml': 'zlpr'}  # its first draw is ZLPR and was run once, under that name


@pytest.fixture(autouse=True)
def beside_the_record(monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(RECORD.parent))  # test_images.npz


@cache
def record():
    return read_record(RECORD)


@cache
def scores(loss, dataset, head='linear', labels='single', column='test_map'):
    """The score by seed of the runs that the search has chosen: the settings with the best
    validation mAP.
    """
    runs = record()
    runs = runs[
        runs.loss.isin([loss, ALIKE.get(loss)])
        & (runs.dataset == dataset)
        & (runs['head'] == head)
        & (runs.labels == labels)
        & of_a_suite(runs)
        & (runs.batch_size == 64)
    ]
    tried = runs[runs.seed == SEARCH].drop_duplicates('key')
    own = tried[tried.loss == loss]
    tried = pd.concat([own, tried[(tried.loss != loss) & ~tried.lr.isin(own.lr)]])
    if own.empty:
        return pd.Series(dtype=float)
    best = tried.loc[tried.val_map_seen.fillna(tried.val_map).idxmax()]
    final = runs[
        (runs.seed < SEARCH)
        & (runs.loss == best.loss)
        & (runs.lr == best.lr)
        & (runs.hparams == best.hparams)
        & (runs.epochs == best.epochs)
        & (runs.patience == best.patience)
    ]
    final = final.drop_duplicates('seed').set_index('seed').sort_index()
    return final[column].astype(float).rename(final.key.get(0))


@cache
def resampled():
    """The scores on samples of the test images, which tests/replication/test_image_error.py makes
    again.
    """
    with np.load(RECORD.with_name('test_images.npz')) as found:
        return dict(found)


def effect(differences, default_image_error):
    """(mean, variance, degrees of freedom): over seeds, and over the test images, which all seeds
    share.
    """
    d = np.asarray(differences)
    of_seeds = d.var(ddof=1) / len(d)
    variance = of_seeds + default_image_error**2 * (d != 0).any()
    return (
        d.mean(),
        variance,
        min((len(d) - 1) * (variance / of_seeds) ** 2, 1e9) if of_seeds else 1e9,
    )


def half(variance, freedom):
    return stats.t.ppf(0.975, freedom) * variance**0.5


def pooled(effects):
    "The mean of independent effects, by Welch and Satterthwaite."
    means, variances, freedoms = map(np.array, zip(*effects, strict=True))
    whole = variances.sum() / len(means) ** 2
    return means.mean(), whole, whole**2 / (variances**2 / len(means) ** 4 / freedoms).sum()


def difference(better, other, dataset):
    "The effect of one method over another. Each is (loss, head, labels)."
    one, two = (scores(each[0], dataset, *each[1:]) for each in (better, other))
    a, b = (resampled()[f'{each.name} mAP'].astype(float) for each in (one, two))
    return effect((one - two).dropna(), (a - b).std(ddof=1))


def complete(methods, datasets):
    return all(
        len(scores(loss, dataset, *rest)) > 1 for loss, *rest in methods for dataset in datasets
    )


SINGLE = ('linear', 'single')
CLAIMS = {  # claim: method, those it is compared with, columns
    'hml-single': (
        ('hml', 'cosine', 'single'),
        [(loss, *SINGLE) for loss in ('an', 'ls', 'wan', 'epr', 'role')],
        ('VOC12', 'COCO', 'CUB', 'NUS'),
    ),
    'opml-zlpr': (('opml', *SINGLE), [('zlpr', *SINGLE)], ('VOC', 'COCO', 'NUS', 'CUB')),
    'em_apl-em': (('em', *SINGLE), [('an', *SINGLE)], ('VOC', 'COCO', 'NUS', 'CUB')),
    'em_apl-best': (
        ('em', *SINGLE),
        [(loss, *SINGLE) for loss in ('dw', 'l1', 'l2', 'ls', 'nls', 'role', 'focal', 'asl')],
        ('VOC', 'COCO', 'NUS', 'CUB'),
    ),
}


def report(paper):
    return paper_claims(paper).set_index('id')


@pytest.mark.parametrize('id', CLAIMS)
def test_a_claims_numbers_are_those_of_the_record(id):
    method, others, columns = CLAIMS[id]
    if not complete([method, *others], map(SETS.get, columns)):
        pytest.skip('not all of its runs are recorded')
    shown = report(id.partition('-')[0]).loc[id]
    whole, *places = json.loads(shown.forest)
    each = {
        column: [difference(method, other, SETS[column]) for other in others] for column in columns
    }
    means = [pooled([each[column][k] for column in columns]) for k in range(len(others))]
    mean, variance, freedom = min(means)
    assert (whole['mean'], whole['low'], whole['high']) == pytest.approx(
        (mean, mean - half(variance, freedom), mean + half(variance, freedom)), abs=2e-3
    )
    assert (shown.effect, shown.half_width) == pytest.approx(
        (mean, half(variance, freedom)), abs=2e-3
    )
    assert f'{mean:+.2f} ± {half(variance, freedom):.2f}'.replace('-', '−') in shown.summary
    p = {
        column: max(2 * stats.t.sf(m / v**0.5, f) if m > 0 else 1 for m, v, f in found)
        for column, found in each.items()
    }
    alone, worst = set(), 0  # Holm's steps
    for step, column in enumerate(sorted(p, key=p.get)):
        worst = max(worst, (len(p) - step) * p[column])
        if worst < 0.05:
            alone.add(column)
    for column, place in zip(columns, places, strict=True):
        m, v, f = min(each[column])
        assert place['place'] == f'{SETS[column]} for {column}'
        assert (place['mean'], place['low'], place['high']) == pytest.approx(
            (m, m - half(v, f), m + half(v, f)), abs=2e-3
        )
        assert place['seeds'] == len(
            (
                scores(method[0], SETS[column], *method[1:])
                - scores(others[0][0], SETS[column], *others[0][1:])
            ).dropna()
        )
        assert (place['word'] == 'reproduced') == (column in alone)
    reproduced = all(m > 0 and 2 * stats.t.sf(m / v**0.5, f) < 0.05 for m, v, f in means)
    assert (shown.ours == 'reproduced') == (
        reproduced and not any(place['word'].startswith('not') for place in places)
    )


def test_the_papers_side_of_a_forest_plot_is_what_its_table_prints():
    "EM/APL, Table 1 (as OPML's Table II prints it): EM minus AN."
    printed = {
        'VOC': 89.09 - 85.89,
        'COCO': 70.70 - 64.92,
        'NUS': 47.15 - 42.27,
        'CUB': 20.85 - 18.31,
    }
    whole, *places = json.loads(report('em_apl').loc['em_apl-em'].forest)
    for place in places:
        assert place['published'] == pytest.approx(
            printed[place['place'].rpartition(' ')[2]], abs=1e-3
        )
    if len(places) == 4:
        assert whole['published'] == pytest.approx(np.mean(list(printed.values())), abs=1e-3)


@pytest.mark.parametrize('panel', ['VOC', 'CUB'])
def test_the_fronts_gain_of_em_is_that_of_the_record(panel):
    if not complete([('em', *SINGLE), ('an', *SINGLE)], [SETS[panel]]):
        pytest.skip('no runs are recorded')
    known = tables.read_recorded_runs(RECORD)
    line = (
        front_page.front_gains(known[known.loss.isin(['em', 'an'])])
        .set_index(['method', 'panel'])
        .loc[('EM', panel)]
    )
    m, v, f = difference(('em', *SINGLE), ('an', *SINGLE), SETS[panel])
    assert (line.ours, line.half) == pytest.approx((m, half(v, f)), abs=2e-3)
