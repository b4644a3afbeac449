"""What the board and the front say again, from outputs/runs.csv and the papers' files by pandas,
numpy and scipy alone: no line here is shared with what the pages are made by.
"""

from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

from spml_nb.replication import board, front, gains, tables
from spml_nb.runs.record import read_record

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / 'outputs' / 'runs.csv'
PAPERS = ROOT / 'spml_nb' / 'assets' / 'papers'
pytestmark = pytest.mark.skipif(not RECORD.is_file(), reason='no table of record')

SETS = ('voc12_animals', 'coco18', 'cub_crops', 'mirflickr14', 'corel5k', 'ccp')
PLACES = {
    'voc12': 'voc12_animals',
    'coco14': 'coco18',
    'nus': 'mirflickr14',
    'cub': 'cub_crops',
}
SEARCH = 1000  # the seed of every search
# losses that were run once for both, wholly or at the paper's values
ALIKE = {'opml': 'zlpr', 'multi_similarity': 'zlpr', 'two_way_sample': 'softmax'}


def is_ablation(runs):
    "Arms of ablations share losses and seeds with searches and finals, but have a fixed length."
    return (runs.patience == 0) & (runs.epochs == 40) & ~runs.loss.isin(['em_apl', 'gr'])


@cache
def record():
    runs = read_record(RECORD)
    return runs[
        (runs.regime == 'linear')
        & (runs.backbone == 'efficientnet_lite0')
        & (runs.batch_size == 64)
        & (runs.selection == 'val_clean')
        & runs.train_images.fillna(0).eq(0)
        & ~is_ablation(runs)
    ]


@cache
def finals(loss, dataset, head='linear', labels='single'):
    """The runs, by seed, of the settings with the best validation mAP in the search."""
    runs = record()
    runs = runs[
        runs.loss.isin([loss, ALIKE.get(loss)])
        & (runs.dataset == dataset)
        & (runs['head'] == head)
        & (runs.labels == labels)
    ]
    tried = runs[runs.seed == SEARCH].drop_duplicates('key')
    own = tried[tried.loss == loss]
    tried = pd.concat([own, tried[(tried.loss != loss) & ~tried.lr.isin(own.lr)]])
    if tried.empty:
        return pd.DataFrame(columns=runs.columns)
    best = tried.loc[tried.val_map_seen.fillna(tried.val_map).idxmax()]
    settings = ['loss', 'lr', 'hparams', 'epochs', 'patience']
    same = (runs[settings] == best[settings]).all(axis=1)
    return runs[same & (runs.seed < SEARCH)].drop_duplicates('seed').set_index('seed')


def gain(dataset, own, base):
    """The mean difference over common seeds; NaN without one, or if the mechanism rarely acted."""
    ours, theirs = finals(own[0], dataset, *own[1:]), finals(base[0], dataset, *base[1:])
    if (ours.exercised == 0).mean() >= 0.5:
        return np.nan
    return (ours.test_map - theirs.test_map).mean()


@pytest.fixture(scope='module')
def boards():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('SPML_NB_OUTPUTS', str(RECORD.parent))
        yield gains.of_suites(tables.record(RECORD))


def test_the_first_column_of_the_board(boards):
    compared = 0
    for row in board.lines(boards, {}):
        place = row['loss'], row['head'], row['labels']
        by_set = {
            dataset: gain(dataset, place, ('an',))
            for dataset in SETS
            if dataset in row['cells'].get('photos', {})
        }
        acted = {dataset: value for dataset, value in by_set.items() if value == value}
        assert row['sets'] == list(acted), row['id']
        if not acted:
            continue
        assert row['means']['clean'][0] == pytest.approx(np.mean([*acted.values()]), abs=2e-3)
        compared += 1
    assert compared > 70


def published_rows(paper, table, head='linear', group=''):
    """[loss, data set, mean, source of the row] of each number of a table, or of its columns of a
    group.
    """
    whole = yaml.safe_load((PAPERS / f'{paper}.yml').read_text(encoding='utf-8'))
    table = whole['tables'][table]
    lines = []
    for row in table['rows'].values():
        config = row.get('config', {})
        if config.get('labels', 'single') != 'single' or 'regime' in config:
            continue
        for (name, column), mean in zip(table['columns'].items(), row['mean'], strict=True):
            if name.startswith(group) and not isinstance(mean, str):
                source = table.get('groups', {}).get(group, {}).get('source')
                source = source or row.get('source', whole['short'])
                lines.append((config['loss'], column['config']['dataset'], mean, source, head))
    return pd.DataFrame(lines, columns=['loss', 'place', 'mean', 'source', 'head'])


def over_an(lines):
    "Gains over the AN of the same lines."
    an = lines[lines.loss == 'an'].set_index('place')['mean']
    others = lines[lines.loss != 'an']
    return others.assign(published=others['mean'] - others.place.map(an))


def by_source():
    cole = published_rows('hml', '2')
    parts = (
        cole[cole.source == 'Cole et al. 2021'],
        published_rows('em_apl', '1'),
        published_rows('lac', '2', 'labelwise', 'LEM').assign(source='LAC'),
    )
    found = pd.concat(map(over_an, parts), ignore_index=True)
    ours = [
        gain(PLACES[line.place], (line.loss, line.head), ('an', line.head))
        for line in found.itertuples()
    ]
    return found.assign(ours=ours)


def spearman(cells, within):
    """Of the columns published and ours, ranked within each group of three methods or more."""
    x, y = [], []
    for _, part in cells.dropna(subset=['published', 'ours']).groupby(within):
        if len(part) > 2:
            for ranks, values in ((x, part.published), (y, part.ours)):
                ranked = stats.rankdata(values)
                ranks.extend(ranked - ranked.mean())
    return np.dot(x, y) / np.sqrt(np.dot(x, x) * np.dot(y, y))


@pytest.fixture(scope='module')
def agreement(boards):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('SPML_NB_OUTPUTS', str(RECORD.parent))
        known = tables.record(RECORD)
        return front.agreement(front.gains(known), front.by_source(known), boards)


def check(found, cells, within):
    cells = cells.dropna(subset=['published', 'ours'])
    assert found.cells == len(cells)
    assert found.correlation[0] == pytest.approx(spearman(cells, within), abs=1e-6)
    assert found.correlation[1] < found.correlation[0] < found.correlation[2]
    means = cells.published.mean(), cells.ours.mean()
    assert (found.first, found.second) == pytest.approx(means, abs=1e-3)
    assert found.apart == pytest.approx((cells.published - cells.ours).abs().mean(), abs=1e-3)


def test_agreement_with_papers_whose_baseline_is_their_own(agreement):
    every = by_source()
    cole = every[every.source == 'Cole et al. 2021']
    em = every[(every.source == 'EM/APL') & every.loss.isin(['em', 'em_apl'])]
    lac = every[(every.source == 'LAC') & (every.loss == 'lac')]
    hml = published_rows('hml', '4', 'cosine', 'Single Positive Labels')
    hml = over_an(hml[hml.loss.isin(['an', 'hml'])])
    hml['ours'] = [gain(PLACES[place], ('hml', 'cosine'), ('an',)) for place in hml.place]
    check(agreement['own'], pd.concat([cole, em, lac, hml]), ['place'])


def test_agreement_with_all_that_three_sources_print(agreement):
    check(agreement['sources'], by_source(), ['source', 'place'])


def test_agreement_of_the_papers_with_one_another(agreement):
    every = by_source()
    pairs = []
    for one, other in combinations(sorted(every.source.unique()), 2):
        both = every[every.source == one].merge(
            every[every.source == other], on=['loss', 'place'], suffixes=('', '_other')
        )
        pairs.append(both.assign(ours=both.published_other))
    check(agreement['one_another'], pd.concat(pairs), ['source', 'source_other', 'place'])


def test_the_matrix_of_published_columns_and_sets(agreement):
    every = by_source()
    ours = {
        (loss, head): [gain(dataset, (loss, head), ('an', head)) for dataset in SETS]
        for loss, head in {*zip(every.loss, every['head'], strict=True)}
    }
    everywhere = {method for method, values in ours.items() if not np.isnan(values).any()}
    methods = [*zip(every.loss, every['head'], strict=True)]
    every = every[[method in everywhere for method in methods]]
    found = agreement['matrix']
    assert found.shape == (4, 6)
    for place in PLACES:
        lines = every[every.place == place]
        for k, dataset in enumerate(SETS):
            values = [ours[line.loss, line.head][k] for line in lines.itertuples()]
            expected = spearman(lines.assign(ours=values), ['source'])
            assert found.loc[place, dataset] == pytest.approx(expected, abs=1e-6)
