"""What the board, the front, the budgets and the gap say again, from outputs/runs.csv and the
papers' files by pandas, numpy and scipy alone: no line here is shared with what the pages are made
by.
"""

from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from recorded import BACKBONE, of_a_suite
from scipy import stats
from worked_out import suite_gains

from spml_nb.replication import agreement, board, front_page, gains, tables
from spml_nb.replication.experiments import budget
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


@cache
def record(photos=0, backbone=BACKBONE):
    runs = read_record(RECORD)
    return runs[of_a_suite(runs, photos, backbone) & (runs.batch_size == 64)]


def of_draws(runs, loss):
    "One run a draw: the method's own, else that of the loss it equals. Each draw has its rate."
    own = runs[runs.loss == loss]
    return pd.concat([own, runs[(runs.loss != loss) & ~runs.lr.isin(own.lr)]])


@cache
def finals(loss, dataset, head='linear', labels='single', backbone=BACKBONE, photos=0):
    """The runs, by seed, of the settings with the best validation mAP in the search."""
    runs = record(photos, backbone)
    runs = runs[
        runs.loss.isin([loss, ALIKE.get(loss)])
        & (runs.dataset == dataset)
        & (runs['head'] == head)
        & (runs.labels == labels)
    ]
    tried = runs[runs.seed == SEARCH].drop_duplicates('key')
    tried = of_draws(tried, loss)
    if tried.empty:
        return pd.DataFrame(columns=runs.columns)
    best = tried.loc[tried.val_map_seen.fillna(tried.val_map).idxmax()]
    return with_settings(runs, best)


def with_settings(runs, best):
    settings = ['loss', 'lr', 'hparams', 'epochs', 'patience']
    same = (runs[settings] == best[settings]).all(axis=1)
    return runs[same & (runs.seed < SEARCH)].drop_duplicates('seed').set_index('seed')


VALIDATION = {
    'voc12_animals': 373,
    'coco18': 960,
    'cub_crops': 464,
    'mirflickr14': 960,
    'corel5k': 900,
    'ccp': 336,
}


def as_many(dataset):
    "BCE on as many fully labelled photos as validation has, with the settings of all photos."
    few = record(VALIDATION[dataset])
    few = few[(few.loss == 'bce') & (few.dataset == dataset) & (few.labels == 'full')]
    of_all = finals('bce', dataset, 'linear', 'full')
    return with_settings(few[few['head'] == 'linear'], of_all.iloc[0])


def gain(dataset, own, base):
    """The mean difference over common seeds; NaN without one, or if the mechanism rarely acted."""
    if own[-1] == 'full, as many photos as validation has':
        return (as_many(dataset).test_map - finals(*base[:1], dataset).test_map).mean()
    ours, theirs = finals(own[0], dataset, *own[1:]), finals(base[0], dataset, *base[1:])
    if (ours.exercised == 0).mean() >= 0.5:
        return np.nan
    return (ours.test_map - theirs.test_map).mean()


@pytest.fixture(scope='module')
def boards():
    return suite_gains()


def test_the_first_column_of_the_board(boards):
    compared = 0
    for row in board.list_board_rows(boards, {}):
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
def compared(boards):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('SPML_NB_OUTPUTS', str(RECORD.parent))
        known = tables.read_recorded_runs(RECORD)
        return agreement.source_agreement(
            front_page.front_gains(known), agreement.gains_by_source(known), boards
        )


def check(found, cells, within):
    cells = cells.dropna(subset=['published', 'ours'])
    assert found.cells == len(cells)
    assert found.correlation[0] == pytest.approx(spearman(cells, within), abs=1e-6)
    assert found.correlation[1] < found.correlation[0] < found.correlation[2]
    means = cells.published.mean(), cells.ours.mean()
    assert (found.first, found.second) == pytest.approx(means, abs=1e-3)
    assert found.apart == pytest.approx((cells.published - cells.ours).abs().mean(), abs=1e-3)


@pytest.mark.silent('B')
def test_agreement_with_papers_whose_baseline_is_their_own(compared):
    every = by_source()
    cole = every[every.source == 'Cole et al. 2021']
    em = every[(every.source == 'EM/APL') & every.loss.isin(['em', 'em_apl'])]
    lac = every[(every.source == 'LAC') & (every.loss == 'lac')]
    hml = published_rows('hml', '4', 'cosine', 'Single Positive Labels')
    hml = over_an(hml[hml.loss.isin(['an', 'hml'])])
    hml['ours'] = [gain(PLACES[place], ('hml', 'cosine'), ('an',)) for place in hml.place]
    check(compared['own'], pd.concat([cole, em, lac, hml]), ['place'])


def test_agreement_with_all_that_three_sources_print(compared):
    check(compared['sources'], by_source(), ['source', 'place'])


def test_agreement_of_the_papers_with_one_another(compared):
    every = by_source()
    pairs = []
    for one, other in combinations(sorted(every.source.unique()), 2):
        both = every[every.source == one].merge(
            every[every.source == other], on=['loss', 'place'], suffixes=('', '_other')
        )
        pairs.append(both.assign(ours=both.published_other))
    check(compared['one_another'], pd.concat(pairs), ['source', 'source_other', 'place'])


def test_the_matrix_of_published_columns_and_sets(compared):
    every = by_source()
    ours = {
        (loss, head): [gain(dataset, (loss, head), ('an', head)) for dataset in SETS]
        for loss, head in {*zip(every.loss, every['head'], strict=True)}
    }
    everywhere = {method for method, values in ours.items() if not np.isnan(values).any()}
    methods = [*zip(every.loss, every['head'], strict=True)]
    every = every[[method in everywhere for method in methods]]
    found = compared['matrix']
    assert found.shape == (4, 6)
    for place in PLACES:
        lines = every[every.place == place]
        for k, dataset in enumerate(SETS):
            values = [ours[line.loss, line.head][k] for line in lines.itertuples()]
            expected = spearman(lines.assign(ours=values), ['source'])
            assert found.loc[place, dataset] == pytest.approx(expected, abs=1e-6)


# What a search buys


USUAL_RATE = 0.00124


@cache
def curve(loss, head, dataset, seed):
    """Expected test mAP of the draw with the best validation mAP among the first one and k − 1 of
    the others, for k = 1 … 10, over all ways to draw them; None while a draw is missing.
    """
    runs = record()
    runs = runs[
        runs.loss.isin([loss, ALIKE.get(loss)])
        & (runs.dataset == dataset)
        & (runs['head'] == head)
        & (runs.labels == 'single')
        & (runs.seed == seed)
        & (runs.label_seed == seed)
    ].drop_duplicates('key')
    runs = of_draws(runs, loss)
    if len(runs) != 10:
        return None
    first = runs.lr == USUAL_RATE
    assert first.sum() == 1
    scores = runs.val_map_seen.fillna(runs.val_map)
    best_first = [*zip(scores, runs.test_map, first, strict=True)]
    (paper,) = [draw for draw in best_first if draw[2]]
    others = [draw for draw in best_first if not draw[2]]
    means = []
    for k in range(10):
        chosen = [
            max([paper, *drawn], key=lambda draw: draw[0])[1] for drawn in combinations(others, k)
        ]
        means.append(np.mean(chosen))
    return np.array(means)


def gain_by_budget(loss, head, dataset):
    "Over plain AN with as many draws, the mean over the searches that are through; and how many."
    pairs = [
        (curve(loss, head, dataset, seed), curve('an', 'linear', dataset, seed))
        for seed in (1000, 1001, 1002)
    ]
    gained = [own - an for own, an in pairs if own is not None and an is not None]
    return np.mean(gained, axis=0), len(gained)


def chosen_by_mean(loss, head, dataset):
    "The final runs, by seed, of the settings with the best mean validation mAP of three searches."
    runs = record()
    runs = runs[
        runs.loss.isin([loss, ALIKE.get(loss)])
        & (runs.dataset == dataset)
        & (runs['head'] == head)
        & (runs.labels == 'single')
    ]
    tried = runs[runs.seed.between(SEARCH, SEARCH + 2) & (runs.seed == runs.label_seed)]
    tried = of_draws(tried, loss)
    scores = tried.val_map_seen.fillna(tried.val_map)
    by_draw = scores.groupby(tried.lr).agg(['mean', 'size'])  # each draw has a rate of its own
    if len(by_draw) != 10 or by_draw['size'].min() != 3:
        return pd.DataFrame(columns=runs.columns)
    of_best = tried[(tried.lr == by_draw['mean'].idxmax()) & (tried.seed == SEARCH)]
    return with_settings(runs, of_best.iloc[0])


@pytest.fixture(scope='module')
def budgets(tmp_path_factory):
    "The folder with the page, and what it is made of."
    folder = tmp_path_factory.mktemp('outputs')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('SPML_NB_OUTPUTS', str(folder))
        known = tables.read_recorded_runs(RECORD)
        budget.write_budgets(known, budget.compare_choices(known))
        yield folder, budget.average_by_budget(budget.gains_by_budget(known))


def test_the_gain_by_budget_on_each_set(budgets):
    table = pd.read_csv(budgets[0] / 'budget.csv')
    table = (
        table[(table.loss != 'an') | (table['head'] != 'linear')]
        .set_index(['loss', 'head', 'dataset', 'budget'])
        .sort_index()
    )
    for loss, head, dataset in dict.fromkeys(index[:3] for index in table.index):
        expected, seeds = gain_by_budget(loss, head, dataset)
        shown = table.loc[loss, head, dataset]
        assert shown.gain.to_numpy() == pytest.approx(expected, abs=2e-3)
        assert shown.n.eq(seeds).all()


def test_the_choice_by_three_searches():
    compared = budget.compare_choices(tables.read_recorded_runs(RECORD))
    of_method = {}
    for row in compared.itertuples():
        one = finals(row.loss, row.dataset, row.head)
        three = chosen_by_mean(row.loss, row.head, row.dataset)
        an_by_one = finals('an', row.dataset).test_map
        an_by_all = chosen_by_mean('an', 'linear', row.dataset).test_map
        assert all(not (runs.exercised == 0).mean() >= 0.5 for runs in (one, three))
        numbers = (
            (one.test_map - an_by_one).mean(),
            (three.test_map - an_by_all).mean(),
            (three.test_map - one.test_map).mean(),
        )
        shown = row.by_one.mean, row.by_all.mean, row.change.mean
        assert shown == pytest.approx(numbers, abs=1e-6), (row.loss, row.head, row.dataset)
        of_method.setdefault((row.loss, row.head), []).append(numbers)
    averaged = budget.average_choices(compared)
    assert len(of_method) == len(averaged) == len(budget.ROWS)
    for row in averaged.itertuples():
        numbers = np.mean(of_method[row.loss, row.head], axis=0)
        shown = row.by_one.mean, row.by_all.mean, row.change.mean
        assert shown == pytest.approx(numbers, abs=1e-6) and row.sets >= 5


def test_the_note_on_apl_on_the_cosine_head():
    claims = pd.read_csv(ROOT / 'outputs' / 'claims.csv')
    (note,) = claims[claims['id'] == 'em_apl-apl'].note.unique()

    def words(of_em):
        change = (finals('em_apl', 'voc12_animals', 'cosine').test_map - of_em.test_map).mean()
        return f'{abs(change):.1f} {"above" if change > 0 else "below"}'

    by_one = words(finals('em', 'voc12_animals', 'cosine'))
    by_all = words(chosen_by_mean('em', 'cosine', 'voc12_animals'))
    assert f"is {by_one} EM when EM's settings come from one search" in note
    assert f'and {by_all} it when they come from the mean of 3' in note


def method_of(name):
    "The loss and the head of 'EM on the cosine head'."
    method, _, head = name.removesuffix(' head').partition(' on the ')
    names = yaml.safe_load((PAPERS.parent / 'methods.yml').read_text(encoding='utf-8'))['methods']
    (loss,) = [loss for loss, described in names.items() if described['name'] == method]
    return loss, head or 'linear'


def test_the_page_and_the_picture_of_budgets(budgets):
    folder, averaged = budgets
    lines = [line.split(' | ') for line in (folder / 'budget.md').read_text().splitlines()]
    rows = [line for line in lines if len(line) == 5 and line[1][0] in '+−']
    assert len(rows) > 10
    means = {}
    for cell, *cells in rows:
        name = cell.removeprefix('| ')
        loss, head = method_of(name)
        mean = np.mean([gain_by_budget(loss, head, dataset)[0] for dataset in SETS], axis=0)
        numbers = [float(cell.split()[0].strip('|').replace('−', '-')) for cell in cells]
        expected = mean[0], mean[2], mean[9], mean[9] - mean[0]
        assert numbers == pytest.approx(expected, abs=0.051)
        means[name] = mean
    assert [*means] == sorted(means, key=lambda name: -means[name][9])
    drawn = {
        line.get_label(): (ax.get_title(), line)
        for ax in budget._picture(averaged).axes
        for line in ax.lines
        if not line.get_label().startswith('_')
    }
    assert drawn.keys() == means.keys()
    for loss, (title, line) in drawn.items():
        assert line.get_ydata() == pytest.approx(means[loss], abs=2e-3)
        assert line.get_xdata().tolist() == [*range(1, 11)]
        needs_a_search = means[loss][9] - means[loss][0] > 0.5
        assert title == f'search adds {"more than" if needs_a_search else "at most"} 0.5'


# What closes the gap to all labels


HEADS = 'linear', 'cosine'
TOLD = {'epr', 'role'}  # a number of labels a photo


@cache
def trained_on_validation():
    runs = read_record(RECORD)
    return runs[runs.trained_validation.isin(['beside', 'alone'])]


def finals_beside(loss, dataset, head, use='beside'):
    "As `final_configs`, where half of validation is trained on."
    runs = trained_on_validation()
    runs = runs[runs.trained_validation == use]
    runs = runs[(runs.loss == loss) & (runs.dataset == dataset) & (runs['head'] == head)]
    tried = runs[runs.seed == SEARCH]
    assert len(tried) == 10
    return with_settings(runs, tried.loc[tried.val_map_seen.fillna(tried.val_map).idxmax()])


def best_on_validation(rows):
    "Of runs by seed, those with the highest mean of the validation mAP."
    means = [runs.val_map_seen.fillna(runs.val_map).mean() for runs in rows]
    return rows[int(np.argmax(means))]


def steps(dataset):
    "The runs of each step into the gap, in the order of the page."
    runs = record()
    runs = runs[(runs.dataset == dataset) & (runs.labels == 'single') & ~runs.loss.isin(TOLD)]
    rows = {}
    for loss, head in sorted(set(zip(runs.loss, runs['head'], strict=True))):
        own = finals(loss, dataset, head)
        if len(own) > 1 and not (own.exercised == 0).mean() >= 0.5:
            rows[loss, head] = own
    beside = [('an', 'linear'), ('em', 'linear'), ('hml', 'cosine')]
    return [
        best_on_validation([runs for (_, head), runs in rows.items() if head == 'linear']),
        best_on_validation([rows['an', head] for head in ('cosine', 'labelwise')]),
        best_on_validation([*rows.values()]),
        best_on_validation([finals_beside(loss, dataset, head) for loss, head in beside]),
        best_on_validation([finals_beside('bce', dataset, head, 'alone') for head in HEADS]),
    ]


def differences(own, dataset):
    """Of a step and of all labels over AN: (seeds, 2) scores, and (100, 2) on other test images."""
    an, full = finals('an', dataset), finals('bce', dataset, 'linear', 'full')
    with np.load(RECORD.with_name('test_images.npz')) as images:
        on_samples = [images[f'{runs.key[0]} mAP'].astype(float) for runs in (own, an, full)]
    by_seed = pd.concat([runs.test_map for runs in (own, an, full)], axis=1).dropna().to_numpy().T
    return [np.array([step - base, end - base]).T for step, base, end in (by_seed, on_samples)]


def of_shares(places, shares):
    """The mean of gains minus shares of the gaps, its variance over seeds and test images, and its
    degrees of freedom; each an array.
    """
    weights = np.array([np.ones_like(shares), -shares])
    means, variances, squares = [], [], []
    for by_seed, on_samples in places:
        rest = by_seed @ weights
        seeds = rest.var(axis=0, ddof=1) / len(rest)
        means.append(rest.mean(axis=0))
        variances.append(seeds + (on_samples @ weights).var(axis=0, ddof=1))
        squares.append(seeds**2 / (len(rest) - 1))
    whole = np.sum(variances, axis=0)
    return np.mean(means, axis=0), whole / len(places) ** 2, whole**2 / np.sum(squares, axis=0)


def closed(places):
    "'+2.2 ± 0.8' and '31 % (19 to 45)' as numbers, the last two to a thousandth of the gap."
    shares = np.arange(-5000, 2000) / 1000
    means, variances, freedoms = of_shares(places, shares)
    halves = stats.t.ppf(0.975, freedoms) * variances**0.5
    within = shares[np.abs(means) <= halves]
    none, whole = np.searchsorted(shares, [0, 1])
    gap = means[none] - means[whole]
    return (
        [means[none], halves[none]],
        [100 * means[none] / gap, 100 * within[0], 100 * within[-1]],
    )


def numbers_of(cell):
    "Those of 'GR: +3.2 ± 1.5, 44 % (24 to 67)'."
    gain, share = cell.rpartition(': ')[2].split(', ')
    numbers = gain.replace('±', ' ').split(), share.strip(' )').replace('%', ' ').split()
    texts = (
        numbers[0],
        [part.strip('(') for part in numbers[1] if part.strip('(') not in ('to', '')],
    )
    return [[float(text.replace('−', '-')) for text in part] for part in texts]


@pytest.mark.silent('B')
def test_the_shares_of_the_gap():
    lines = (RECORD.parent / 'gap.md').read_text(encoding='utf-8').splitlines()
    rows = {}
    for line in lines:
        name, *cells = [cell.strip() for cell in line.strip('|').split('|')]
        rows[name] = cells
    reached = {dataset: steps(dataset) for dataset in SETS}
    reached = {
        dataset: [differences(own, dataset) for own in of_steps]
        for dataset, of_steps in reached.items()
    }
    places = {dataset: [[step] for step in of_steps] for dataset, of_steps in reached.items()}
    places['mean'] = [*zip(*reached.values(), strict=True)]
    for name, of_steps in places.items():
        for cell, step in zip(rows[name][1:], of_steps, strict=True):
            gain, share = closed(step)
            shown = numbers_of(cell)
            assert shown[0] == pytest.approx(gain, abs=0.051), (name, cell)
            assert shown[1] == pytest.approx(share, abs=0.61), (name, cell)


# Arms


def test_label_wise_arms_of_an_ablation_are_no_finals_and_no_search(monkeypatch):
    """Those of LAC's Table 3 train as long as the runs of the suite, at the rate of another search
    or with other hyper-parameters.
    """
    before = {loss: finals(loss, 'voc12_animals', 'labelwise') for loss in ('an', 'lac')}
    an, lac = (runs.iloc[:5] for runs in before.values())
    arms = pd.concat(
        [
            an.assign(lr=an.lr * 3),
            lac.assign(hparams='{"lambda_lac": 0, "queue": 0, "stage2_threshold": 0.9}'),
            lac.assign(hparams='{"lambda_lac": 1, "queue": 0, "two_stage": false}'),
        ]
    ).reset_index()
    arms = arms.assign(key=[f'arm {k}' for k in range(len(arms))], test_map=0.0, val_map=99.0)
    both = pd.concat([record(), arms], ignore_index=True)
    assert of_a_suite(arms).all()
    monkeypatch.setattr('test_recomputed_pages.record', lambda *_: both)
    for loss, expected in before.items():
        found = finals.__wrapped__(loss, 'voc12_animals', 'labelwise')
        assert found.key.tolist() == expected.key.tolist() and len(found) == 5


SECOND = RECORD.parent / 'second_backbone.csv'


@pytest.mark.skipif(not SECOND.is_file(), reason='no runs on a second backbone yet')
def test_gains_on_two_backbones_and_how_far_their_order_agrees():
    table, page = pd.read_csv(SECOND), SECOND.with_suffix('.md').read_text()
    columns = {}
    for line in table[table.gain.notna()].itertuples():
        own, plain = (
            finals(loss, line.dataset, head, backbone=line.backbone).sort_index().loc[:4]
            for loss, head in ((line.loss, line.head), ('an', 'linear'))
        )
        mean = (own.test_map - plain.test_map).mean()
        assert len(own) == len(plain) == 5 and line.gain == pytest.approx(mean, abs=2e-4)
        if line.loss != 'an':
            acted = not (own.exercised == 0).mean() >= 0.5
            columns.setdefault((line.dataset, line.backbone), {})[line.loss] = (
                mean if acted else np.nan
            )
    gained = pd.DataFrame(columns)
    for dataset in gained.columns.levels[0]:
        both = gained[dataset].dropna()
        rho = stats.spearmanr(*both.to_numpy().T).statistic
        assert f'| {dataset} | {len(both)} | {rho:+.2f} |'.replace('-', '−') in page


MORE = RECORD.parent / 'more_photos.csv'
TRAINING = {'coco18_30k': 19_200, 'mirflickr14_10k': 6_513}


def of_more_photos(loss, head, labels, dataset, photos):
    "The mAP of seeds 0 to 4, chosen by a search on as many photos."
    own = finals(loss, dataset, head, labels, photos=photos % TRAINING[dataset])
    return own.test_map.sort_index().loc[:4]


@pytest.mark.skipif(not MORE.is_file(), reason='no runs on more photos yet')
def test_gains_by_the_number_of_photos_and_their_slopes():
    table, page = pd.read_csv(MORE), MORE.with_suffix('.md').read_text()
    over_plain = table[(table.baseline == gains.PLAIN_HEAD) & table.gain.notna()]
    found = {}
    for line in over_plain.itertuples():
        own = of_more_photos(line.loss, line.head, line.labels, line.dataset, line.photos)
        plain = of_more_photos('an', 'linear', 'single', line.dataset, line.photos)
        assert len(own) == len(plain) == 5
        gained = (own - plain).mean()
        assert line.gain == pytest.approx(gained, abs=2e-4)
        place = (line.dataset, line.loss, line.head, line.labels)
        found.setdefault(place, []).append((np.log2(line.photos), gained))
    slopes = {
        place: np.polyfit(*np.transpose(points), 1)[0]
        for place, points in found.items()
        if len(points) > 2
    }
    printed = page.split('Over plain AN:')[1].split('Over AN on the same head')[0]
    header, _, *rows = [
        [cell.strip() for cell in line.strip('| ').split('|')]
        for line in printed.splitlines()
        if line.startswith('|')
    ]
    for dataset in {place[0] for place in slopes}:
        column = [row[header.index(dataset)].split(' ±')[0] for row in rows]
        expected = [slope for place, slope in slopes.items() if place[0] == dataset]
        assert column == [f'{slope:+.1f}'.replace('-', '−') for slope in expected]
