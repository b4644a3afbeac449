"""Gains by the number of photos: equal searches at each number, slopes as polyfit gives them."""

import numpy as np
import pandas as pd
import pytest
import torch

from spml_nb import methods
from spml_nb.base import settings
from spml_nb.replication import front_page, gains
from spml_nb.replication.experiments import more_photos
from spml_nb.replication.experiments.more_photos import DATASETS, METHODS, SEEDS
from spml_nb.runs.config import resolve
from spml_nb.sweeps import search
from spml_nb.sweeps.queue import run_key


def level(place, seed):
    "AN rises with photos; EM's gain falls by 3 a doubling, more so with a higher seed."
    doublings = np.log2(place.photos / more_photos.TRAINING[place.dataset])
    gain = {'em': 2 - (3 + 0.01 * seed) * doublings, 'wan': 1.0, 'hml': 3 + 0.2 * doublings}
    cosine = 0.7 if place.head == 'cosine' else 0.0
    return 50 + 3 * doublings + seed + cosine + gain.get(place.loss, 0.0)


@pytest.fixture
def known():
    "All searches, of which the fourth draw is best on validation, and all final runs."
    searches = more_photos.plan_searches()
    lines = {
        run_key(config): {'val_map': 50.0 + (draw == 3), 'test_map': 0.0, 'late': 0.0}
        for tried in searches.values()
        for draw, config in enumerate(tried)
    }
    record = pd.DataFrame.from_dict(lines, orient='index').assign(run='made')
    finals = more_photos.plan_finals(record)
    lines = {
        run_key(config): {'val_map': 50.0, 'test_map': level(place, config.seed), 'late': 0.25}
        for place, configs in finals.items()
        for config in configs
    }
    return pd.concat([record, pd.DataFrame.from_dict(lines, orient='index').assign(run='made')])


def test_every_method_has_the_same_search_at_every_number_of_photos():
    searches = more_photos.plan_searches()
    assert len(searches) == len(METHODS) * sum(
        len(more_photos.list_photo_counts(name)) for name in DATASETS
    )
    for place, tried in searches.items():
        assert [config.lr for config in tried] == search.suite_rates('photos')
        assert {(c.dataset, c.train_images % more_photos.TRAINING[c.dataset]) for c in tried} == {
            (place.dataset, place.photos % more_photos.TRAINING[place.dataset])
        }
        assert {config.seed for config in tried} == {search.SEARCH_SEED}
    assert len({run_key(config) for tried in searches.values() for config in tried}) == 10 * len(
        searches
    )


def test_each_number_of_photos_takes_the_draw_that_its_own_search_chose(known):
    for place, configs in more_photos.plan_finals(known).items():
        fourth = more_photos.plan_searches([place.dataset])[place][3]
        assert [c.changed(seed=1000, label_seed=1000) for c in configs] == [fourth] * len(SEEDS)


def test_gains_are_over_an_on_as_many_photos_and_slopes_are_those_of_a_line(known):
    measured = more_photos.measure_gains(known)
    em = measured[(measured.loss == 'em') & (measured.baseline == gains.PLAIN_HEAD)]
    doublings = np.log2(em.photos / em.dataset.map(more_photos.TRAINING))
    assert np.allclose(em.gain, 2 - 3.02 * doublings) and (em.late == 0.25).all()
    hml = measured[(measured.loss == 'hml') & (measured.baseline == gains.SAME_HEAD)]
    assert np.allclose(
        hml.gain, 3 + 0.2 * np.log2(hml.photos / hml.dataset.map(more_photos.TRAINING))
    )
    slopes = more_photos.change_per_doubling(measured, gains.PLAIN_HEAD).set_index(
        ['dataset', 'loss', 'head', 'labels']
    )
    for dataset in DATASETS:
        part = em[em.dataset == dataset]
        expected = np.polyfit(np.log2(part.photos), part.gain, 1)[0]
        assert slopes.effect[dataset, 'em', 'linear', 'single'].mean == pytest.approx(expected)
        assert slopes.effect[dataset, 'wan', 'linear', 'single'].mean == pytest.approx(0, abs=1e-9)
    found = more_photos._directions(slopes.reset_index())
    assert found['falling'] == ['EM'] and not found['rising']


def test_the_share_that_llr_rejects_is_that_of_the_best_epoch_of_its_final_runs(known):
    assert more_photos.measure_rejection(known).empty  # no best epoch in the record
    finals = more_photos.plan_finals(known)
    epochs = {
        run_key(config): 3.0 + config.seed % 2
        for place, configs in finals.items()
        if place.photos != 600
        for config in configs
    }
    shares = more_photos.measure_rejection(known.assign(best_epoch=pd.Series(epochs)))
    assert ('coco18_30k', 600) not in shares.index and len(shares) == 10
    for (dataset, photos), share in shares.items():
        (config, *others) = finals[dataset, photos, 'llr', 'linear', 'single']
        z = torch.zeros(2, 3)
        method = methods.create('llr', z, epochs=60, **resolve(config).hparams)
        fractions = []
        for run in (config, *others):
            method.start_epoch(int(epochs[run_key(run)]))
            fractions.append(method.fraction)
        assert share == pytest.approx(np.mean(fractions))
    late = more_photos.measure_rejection(known.assign(best_epoch=1e6))
    assert (late == 1).all()


def test_the_page_has_a_line_per_number_and_says_what_is_missing(known, monkeypatch, tmp_path):
    monkeypatch.setattr(settings, 'get_folder', lambda name: tmp_path)
    written = more_photos.write_more_photos(known)
    names = ['more_photos.csv', 'more_photos.md', 'more_photos.svg']
    assert sorted(file.name for file in written) == names
    page = (tmp_path / 'more_photos.md').read_text()
    assert page.count('| 19,200 |') == 1 and page.count('| 814 |') == 1
    assert (
        'Not all is trained' not in page
        and 'On the mean of coco18_30k and mirflickr14_10k it falls for EM' in page
    )
    (first, *_) = more_photos.plan_searches(['mirflickr14_10k']).values()
    assert more_photos.write_more_photos(known.drop(run_key(first[0])))
    of_coco = {
        run_key(config)
        for runs in (more_photos.plan_searches(), more_photos.plan_finals(known))
        for place, configs in runs.items()
        if place.dataset == 'coco18_30k'
        for config in configs
    }
    more_photos.write_more_photos(known[known.index.isin(of_coco)])
    page = (tmp_path / 'more_photos.md').read_text()
    assert 'of mirflickr14_10k 0 of 5 numbers of photos are here' in page
    assert 'mean' not in page.partition('## By how much')[2].partition('An epoch has')[0]
    for other in (known.iloc[:0], known.set_index('other-' + known.index)):
        assert more_photos.write_more_photos(other) == []


def test_the_front_shows_few_more_and_many_photos_of_the_sets_that_have_them(known):
    measured = more_photos.measure_gains(known)
    of_coco, of_flickr = more_photos.compare_sizes(measured, front_page.BY_PHOTOS)
    assert of_coco['dataset'] == 'coco18_30k' and of_coco['names'] == ['HML', 'EM']
    assert list(of_coco['gains']) == [600, 4_800, 19_200]
    assert list(of_flickr['leads']) == [407, 1_628, 6_513]
    gain = (
        measured[measured.baseline == gains.PLAIN_HEAD]
        .set_index(['dataset', 'photos', 'loss', 'head', 'labels'])
        .gain
    )
    for n, (hml, em) in of_coco['gains'].items():
        assert em.mean == gain['coco18_30k', n, 'em', 'linear', 'single']
        assert of_coco['leads'][n].mean == pytest.approx(hml.mean - em.mean)
    begun = measured[(measured.dataset != 'coco18_30k') | (measured.photos != 600)]
    (left,) = more_photos.compare_sizes(begun, front_page.BY_PHOTOS)
    assert left['dataset'] == 'mirflickr14_10k'
    nothing = more_photos.measure_gains(known.iloc[:0])
    assert more_photos.compare_sizes(nothing, front_page.BY_PHOTOS) == []
