"""Gains on two backbones: equal searches on both, correlations as in SciPy, counted signs."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.replication.experiments import second_backbone
from spml_nb.replication.experiments.second_backbone import (
    BASELINES,
    DATASETS,
    FIRST,
    METHODS,
    SECOND,
    SEEDS,
)
from spml_nb.runs.config import resolve
from spml_nb.statistics import RESAMPLED_FILE, Scores, default_image_error, resampled_name
from spml_nb.sweeps import search
from spml_nb.sweeps.queue import run_key


@pytest.fixture(scope='module')
def searches():
    return second_backbone.plan_searches()


@pytest.fixture(scope='module')
def searched(searches):
    "Of each search the fourth draw is best on validation."
    lines = {
        run_key(config): {'val_map': 50.0 + (draw == 3), 'test_map': 0.0, 'late': 0.0}
        for tried in searches.values()
        for draw, config in enumerate(tried)
    }
    return pd.DataFrame.from_dict(lines, orient='index').assign(run='made')


def test_both_backbones_have_the_search_of_the_board(searches):
    assert len(METHODS) == 12 and len(searches) == 2 * len(DATASETS) * (12 + len(BASELINES))
    for place, tried in searches.items():
        row = search.Row(place.loss, place.head)
        board = search.search_configs(row, 'photos', place.dataset)
        if place.backbone == FIRST:
            assert [*map(run_key, tried)] == [*map(run_key, board)]
        else:
            own = {'backbone': FIRST, 'image_size': 224}
            assert [run_key(c.changed(**own)) for c in tried] == [*map(run_key, board)]
        assert resolve(tried[0]).image_size == {FIRST: 224, SECOND: 260}[place.backbone]
    assert len({run_key(c) for tried in searches.values() for c in tried}) == 10 * len(searches)


def test_each_backbone_takes_the_draw_that_its_own_search_chose(searches, searched):
    finals = second_backbone.plan_finals(searched)
    assert set(finals) == set(searches)
    for place, configs in finals.items():
        fourth = searches[place][3]
        assert [c.seed for c in configs] == [c.label_seed for c in configs] == [*SEEDS]
        assert [c.changed(seed=1000, label_seed=1000) for c in configs] == [fourth] * len(SEEDS)
    assert search.SEARCH_SEED not in SEEDS


def test_another_set_of_photos_is_refused():
    with pytest.raises(SpmlError, match="'ccp'; allowed: voc12_animals, coco18, cub_crops"):
        second_backbone.plan_searches(['ccp'])


# ---- what comes of fabricated runs

ORDER = [row.loss for row in METHODS]  # each gains a tenth of a point more than the one before
TURNED = {'voc12_animals': ('wan', 'hml')}  # these change places on the second backbone
NOT_ACTED = 'em_apl'


def gain(place):
    if place.loss == 'an':
        return 0.3 if place.head == 'cosine' else 0.0
    loss = place.loss
    if place.backbone == SECOND and loss in TURNED.get(place.dataset, ()):
        first, last = TURNED[place.dataset]
        loss = last if loss == first else first
    return 0.1 * ORDER.index(loss) - 0.25


def level(place, seed):
    "AN changes with seed and backbone; a gain varies by ± 0.01 with the seed."
    odd = 0.01 * (-1) ** seed * (place.loss != 'an')
    return 50 + seed + 5 * (place.backbone == SECOND) + gain(place) + odd


def fabricate_finals(searched, seeds, backbones):
    lines = {
        run_key(config): {
            'val_map': 50.0,
            'test_map': level(place, config.seed),
            'late': 0.25 * (place.backbone == SECOND),
            'exercised': 0.0 if place.loss == NOT_ACTED else np.nan,
            'run': 'made',
        }
        for place, configs in second_backbone.plan_finals(searched, seeds=seeds).items()
        if place.backbone in backbones
        for config in configs
    }
    return pd.DataFrame.from_dict(lines, orient='index')


@pytest.fixture(scope='module')
def known(searched):
    "The board's ten seeds on the first backbone, five on the second."
    finals = [
        fabricate_finals(searched, SEEDS, (FIRST, SECOND)),
        fabricate_finals(searched, second_backbone.OTHER_SEEDS, (FIRST,)),
    ]
    return pd.concat([searched, *finals])


@pytest.fixture
def outputs(monkeypatch, tmp_path):
    monkeypatch.setattr(settings, 'get_folder', lambda name: tmp_path)
    return tmp_path


@pytest.fixture
def measured(known, outputs):
    return second_backbone.measure_gains(known)


def test_gains_are_over_an_on_the_same_backbone(measured):
    assert len(measured) == 2 * len(DATASETS) * 14
    expected = [
        gain(second_backbone.Place(*line[:4])) + (line.loss != 'an') * 0.002
        for line in measured.itertuples(index=False)
    ]
    plain = (measured.loss == 'an') & (measured['head'] == 'linear')
    assert measured.gain.isna().equals(plain)
    assert np.allclose(measured.gain[~plain], np.array(expected)[~plain])
    assert (measured.acted == (measured.loss != NOT_ACTED)).all()


def test_the_change_of_a_gain_is_paired_over_the_seeds_of_both(measured):
    pairs = second_backbone.pair_backbones(measured)
    assert len(pairs) == len(DATASETS) * 13
    by_name = pairs.set_index(['dataset', 'loss', 'head']).change
    turned = by_name['voc12_animals', 'wan', 'linear']
    assert turned.mean == pytest.approx(1.1)
    # no seed moves it, so all that is left are test images: those of two differences
    assert turned.error == pytest.approx(default_image_error('voc12_animals') * 2**0.5)
    assert by_name['coco18', 'wan', 'linear'].mean == pytest.approx(0)


def ranked(known_pairs, dataset):
    part = known_pairs[(known_pairs.dataset == dataset) & ~known_pairs.loss.isin(['an', NOT_ACTED])]
    return [[effect.mean for effect in part[side]] for side in ('first', 'second')]


def test_correlations_are_those_of_scipy_over_methods_that_acted(measured, known):
    pairs = second_backbone.pair_backbones(measured)
    again = second_backbone.measure_gains(known, second_backbone.OTHER_SEEDS)
    assert set(again.backbone) == {FIRST}
    orders = second_backbone.correlate_orders(pairs, measured, again)
    assert [*orders.index] == [*DATASETS, second_backbone.POOLED]
    assert (orders.methods == 11).all() and not orders.images.any()
    for dataset in DATASETS:
        expected = stats.spearmanr(*ranked(pairs, dataset)).statistic
        assert orders.rho[dataset] == pytest.approx(expected)
        assert orders.low[dataset] <= expected <= orders.high[dataset]
    ranks = np.hstack([stats.rankdata(ranked(pairs, name), axis=1) - 6 for name in DATASETS])
    assert orders.rho[second_backbone.POOLED] == pytest.approx(np.corrcoef(ranks)[0, 1])
    assert orders.rho['voc12_animals'] < 0.2 < 0.6 < orders.rho[second_backbone.POOLED] < 1
    assert np.allclose(orders.halves, 1)


def test_the_interval_holds_what_other_seeds_and_other_test_images_do(measured, known, outputs):
    pairs = second_backbone.pair_backbones(measured)
    again = second_backbone.measure_gains(known, second_backbone.OTHER_SEEDS)

    def widths(frame):
        orders = second_backbone.correlate_orders(pairs, frame, again)
        return orders.images.all(), (orders.high - orders.low)['coco18']

    assert widths(measured) == (False, 0)  # the order of no sample of seeds differs
    random = np.random.RandomState(0)
    moved = measured.assign(
        scores=[
            Scores(s.by_seed + random.normal(0, 0.5, len(SEEDS)), s.key, dataset=s.dataset)
            for s in measured.scores
        ]
    )
    assert widths(moved)[1] > 0.1
    on_images = {s.resampled: random.normal(0, 0.3, 100) for s in measured.scores}
    np.savez(outputs / RESAMPLED_FILE, **on_images)
    resampled, width = widths(measured)
    assert resampled and width > 0.1
    np.savez(outputs / RESAMPLED_FILE, **{name: np.arange(100.0) for name in on_images})
    assert widths(measured) == (True, 0)  # images that move all methods alike
    assert resampled_name('a', 'mAP') not in on_images


def test_signs_of_decided_gains_are_counted_on_the_other_backbone(measured):
    pairs = second_backbone.pair_backbones(measured)
    sure = {'wan': -0.25, 'hml': 0.85}
    effects = {
        side: [
            effect.__class__(
                value := effect.mean, value - 0.2, value + 0.2, *[0.0] * 5, seeds=effect.seeds
            )
            for effect in pairs[side]
        ]
        for side in ('first', 'second')
    }
    signs = second_backbone.count_signs(pairs.assign(**effects))
    means = [gain(second_backbone.Place('coco18', FIRST, loss, 'linear')) for loss in ORDER]
    decided = [
        loss
        for loss, mean in zip(ORDER, means, strict=True)
        if abs(mean + 0.002) > 0.2 and loss != NOT_ACTED
    ]
    assert set(sure) <= set(decided)
    assert signs['decided'] == 3 * len(decided) and signs['kept'] == 3 * len(decided) - 2
    assert signs['decided_too'] == signs['kept']
    turned = ['WAN on voc12_animals', 'HML on voc12_animals']
    assert signs['turned'] == signs['turned_and_decided'] == turned


def test_the_lead_of_the_best_method_is_compared_on_both_backbones(measured):
    lead = second_backbone.lead_on_both(measured)
    assert (lead.leader, lead.second) == ('HML', 'Two-way') and lead.sets == len(DATASETS)
    there = (0.1 + 0.1 - 1.0) / 3  # on voc12_animals HML has there what WAN has here
    assert [effect.mean for effect in lead.leads] == pytest.approx([0.1, there])
    assert lead.change.mean == pytest.approx(there - 0.1) and lead.first_on == (3, 2)
    # no seed moves it: of the change all that is left are test images, of two differences
    alone = [default_image_error(name) for name in DATASETS]
    assert lead.leads[0].error == pytest.approx(np.hypot.reduce(alone) / 3)
    assert lead.change.error == pytest.approx(lead.leads[0].error * 2**0.5)
    coco = measured[measured.dataset == 'coco18']
    assert second_backbone.lead_on_both(coco).first_on == (1, 1)
    lone = (measured.dataset == 'coco18') & (measured.loss == 'wan')
    assert second_backbone.lead_on_both(measured[~lone]).sets == 2
    assert second_backbone.lead_on_both(measured[measured.backbone == FIRST]) is None


def test_the_page_says_what_is_there_and_what_is_missing(known, searched, outputs):
    written = second_backbone.write_second_backbone(known)
    names = ['second_backbone.csv', 'second_backbone.md', 'second_backbone.svg']
    assert sorted(file.name for file in written) == names
    page = (outputs / 'second_backbone.md').read_text()
    assert 'HML gains most on 3 of 3 sets on Lite0, on 2 on Lite2.' in ' '.join(page.split())
    assert 'Not run yet' not in page and 'of efficientnet_lite0 and of efficientnet_lite2' in page
    assert '| AN, mAP in % | 52.0 | 57.0 | 52.0 | 57.0 | 52.0 | 57.0 |' in page
    (line,) = (line for line in page.splitlines() if line.startswith('| EM+APL |'))
    assert line.count('(+0.3 ±') == 6 and line.endswith('| – |') and 'In brackets' in page
    finals = second_backbone.plan_finals(searched)
    one = finals[second_backbone.Place('coco18', SECOND, 'em', 'linear')][-1]
    second_backbone.write_second_backbone(known.drop(run_key(one)))
    page = (outputs / 'second_backbone.md').read_text()
    assert 'spml sweep second_backbone --dataset coco18' in page
    csv = pd.read_csv(outputs / 'second_backbone.csv')
    assert set(csv.dataset) == {'voc12_animals', 'cub_crops'}


def test_nothing_is_written_without_runs_on_both(known, searched, outputs):
    of_first = fabricate_finals(searched, SEEDS, (FIRST,))
    for other in (known.iloc[:0], searched, pd.concat([searched, of_first])):
        assert second_backbone.write_second_backbone(other) == []
    assert not [*outputs.iterdir()]
