"""Uses of fully labelled photos: equal searches, and gains that are paired by seed."""

import pandas as pd
import pytest

from spml_nb.base import settings
from spml_nb.replication import gains
from spml_nb.replication.experiments import clean_photos
from spml_nb.replication.experiments.clean_photos import Use
from spml_nb.sweeps import search
from spml_nb.sweeps.queue import run_key

SETS = ('voc12_animals', 'coco18')
# added to the mAP of plain AN, which is 40 plus the seed
ADDED = {
    (Use.CHOOSE, 'an'): 0,
    (Use.CHOOSE, 'em'): 1,
    (Use.CHOOSE, 'hml'): 2,
    (Use.BESIDE, 'an'): 3,
    (Use.BESIDE, 'em'): 5,
    (Use.BESIDE, 'hml'): 7,
    (Use.ALONE, 'bce'): -4,
    (Use.AS_MANY, 'bce'): -1,
}


def invented(monkeypatch, sets=SETS):
    "All searches and final runs of some sets; the third draw is best on validation."
    lines = {}
    for dataset in sets:
        for use, row in clean_photos._rows(dataset):
            for draw, config in enumerate(clean_photos.plan_search(use, row, dataset)):
                lines[run_key(config)] = {'val_map': 50.0 + (draw == 2), 'test_map': 0.0}
    known = pd.DataFrame.from_dict(lines, orient='index').assign(run='made')
    for dataset in sets:
        for use, row in clean_photos._rows(dataset):
            for config in clean_photos.plan_finals(use, row, dataset, known):
                bonus = 0.1 * config.seed if use == Use.BESIDE else 0.0
                level = 40.0 + config.seed + bonus + ADDED[use, row.loss]
                known.loc[run_key(config), ['val_map', 'test_map', 'run']] = 50.0, level, 'made'
    return known


def test_both_sides_have_as_many_draws_and_the_same_rates():
    for dataset in clean_photos.DATASETS:
        for use, row in clean_photos._rows(dataset):
            tried = clean_photos.plan_search(use, row, dataset)
            assert [config.lr for config in tried] == search.suite_rates('photos')
            assert {config.trained_validation for config in tried} == {
                {Use.BESIDE: 'beside', Use.ALONE: 'alone'}.get(use, '')
            }
            assert {config.seed for config in tried} == {search.SEARCH_SEED}


def test_gains_are_paired_by_seed_and_over_what_is_asked(monkeypatch):
    found = clean_photos.measure_gains(clean_photos.plan_runs(invented(monkeypatch), SETS))
    gained = found.set_index(['baseline', 'dataset', 'use', 'loss', 'head']).gain.sort_index()
    plain = gained[gains.PLAIN_HEAD, 'coco18']
    assert plain[Use.BESIDE, 'em', 'linear'] == pytest.approx(5.2)
    assert plain[Use.AS_MANY, 'bce', 'linear'] == pytest.approx(-1)
    assert (Use.CHOOSE, 'an', 'linear') not in plain.dropna().index
    over_choice = gained[clean_photos.OVER_CHOICE, 'voc12_animals'].dropna()
    assert over_choice[Use.BESIDE, 'hml', 'cosine'] == pytest.approx(7 - 2 + 0.2)
    over_alone = gained[clean_photos.OVER_ALONE, 'voc12_animals'].dropna()
    assert over_alone[Use.BESIDE, 'hml', 'cosine'] == pytest.approx(7 + 4 + 0.2)
    assert set(over_choice.index.get_level_values('use')) == {Use.BESIDE}
    assert found.n.eq(5).all()


def test_as_many_photos_train_with_the_settings_of_all(monkeypatch):
    runs = clean_photos.plan_runs(invented(monkeypatch), SETS)
    as_many = runs[runs.use == Use.AS_MANY]
    assert as_many.groupby('dataset').config.first().map(lambda c: c.train_images).to_dict() == {
        'voc12_animals': 373,
        'coco18': 960,
    }
    assert as_many.seed.tolist() == [*range(5)] * 2
    assert {c.lr for c in as_many.config} == {search.suite_rates('photos')[2]}


def test_the_page_says_what_is_missing_and_has_a_mean_where_all_sets_have_a_gain(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(settings, 'get_folder', lambda name: tmp_path)
    known = invented(monkeypatch)
    written = clean_photos.write_clean_photos(known)
    assert [file.name for file in written] == ['clean_photos.md', 'clean_photos.csv']
    page = written[0].read_text()
    assert 'spml sweep clean_photos --dataset cub_crops mirflickr14 corel5k ccp' in page
    (line,) = [line for line in page.splitlines() if line.startswith(f'| {Use.BESIDE} | em | +4.2')]
    assert line.count('+4.2') == 3
    lost = clean_photos.plan_search(Use.BESIDE, clean_photos.METHODS[0], 'coco18')[0]
    clean_photos.write_clean_photos(known.drop(run_key(lost)))
    assert [
        line
        for line in written[0].read_text().splitlines()
        if line.startswith(f'| {Use.BESIDE} | an ')
    ]
    assert clean_photos.write_clean_photos(known.iloc[:0]) == []


def test_the_page_says_where_single_labels_add_nothing_and_where_they_cost(monkeypatch, tmp_path):
    monkeypatch.setattr(settings, 'get_folder', lambda name: tmp_path)
    known = invented(monkeypatch)

    def write(lowered):
        changed = known.copy()
        for dataset, row, points in lowered:
            for config in clean_photos.plan_finals(Use.BESIDE, row, dataset, known):
                changed.loc[run_key(config), 'test_map'] -= points
        clean_photos.write_clean_photos(changed)
        text = ' '.join((tmp_path / 'clean_photos.md').read_text().split())
        return text.partition('In short')[2].partition('Points of mAP')[0]

    an, _, hml = clean_photos.METHODS
    page = write([])
    assert '+11.2 ± ' in page and '+7.2 ± ' in page
    assert 'nothing shows' not in page and 'cost' not in page
    page = write([('coco18', hml, 11.2), ('coco18', an, 17.2)])
    assert 'nothing shows on coco18 (+0.0 ± ' in page and 'cost on coco18 (−10.0 ± ' in page
    page = write([('coco18', hml, 20)])
    assert '; they cost on coco18 (−8.8 ± ' in page and 'nothing shows' not in page


def test_the_average_uses_are_means_over_all_sets_and_need_each_of_them(monkeypatch):
    found = clean_photos.average_uses(invented(monkeypatch, clean_photos.DATASETS))
    means = {loss: [effect.mean for effect in uses[:3]] for loss, uses in found.items()}
    assert means['em'] == pytest.approx([1, 5.2, 4.2])
    assert means['hml'] == pytest.approx([2, 7.2, 5.2])
    assert found['em'][3:] == pytest.approx((4.2, 4.2))
    assert set(found) == {'em', 'hml'}
    assert clean_photos.average_uses(invented(monkeypatch)) == {}
    assert clean_photos.average_uses(pd.DataFrame()) == {}
