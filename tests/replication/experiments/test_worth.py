"""What a label is worth: curves read backwards, an interval over seeds, nothing beyond the curve;
and the runs that this needs.
"""

import itertools
import json
import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from quick import shorten_photos_suite

from spml_nb import statistics
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.replication.experiments import worth
from spml_nb.sweeps import queue, search
from spml_nb.sweeps.search import Row

NUMBERS = np.array([60, 120, 240, 480, 960, 1920, 2880, 3840])


def level(n):
    return 20 + 7 * np.log2(n) - 0.2 * np.log2(n) ** 2


def curves(worths, seeds=5, noise=0.0, numbers=NUMBERS, dataset='invented', head='linear'):
    "Measured runs where a photo of a method is worth 1/worths[method] of a photo with all labels."
    shift = np.random.RandomState(0).randn(seeds)
    return pd.DataFrame(
        [
            {
                'dataset': dataset,
                'head': head,
                'loss': loss,
                'labels': labels,
                'photos': n,
                'seed': s,
                'test_map': level(n / each) + noise * shift[s] * (loss != 'bce'),
            }
            for loss, labels, each in (
                ('bce', 'full', 1),
                *((m, 'single', w) for m, w in worths.items()),
            )
            for n in numbers
            for s in range(seeds)
        ]
    )


# ---- the rate


def test_a_curve_is_read_backwards_and_not_beyond_its_ends():
    photos, scores = np.array([10, 20, 40, 80]), np.array([1.0, 3.0, 4.0, 4.5])
    assert worth.find_equivalent_photos(photos, scores, scores).tolist() == pytest.approx(
        [10, 20, 40, 80]
    )
    assert worth.find_equivalent_photos(photos, scores, np.array([0.99, 4.51, np.nan]))[
        :2
    ].tolist() == [
        0,
        np.inf,
    ]
    targets = np.linspace(1, 4.5, 200)
    found = worth.find_equivalent_photos(photos, scores, targets)
    assert (
        (np.diff(found) > 0).all()
        and found[0] == pytest.approx(10)
        and found[-1] == pytest.approx(80)
    )
    line = np.linspace(0, 6, 7)  # where mAP is a line in log2 photos the answer is exact
    assert worth.find_equivalent_photos(2**line, line, np.array([0.5, 3.25])) == pytest.approx(
        2 ** np.array([0.5, 3.25])
    )


def test_a_dip_by_chance_is_levelled_and_a_flat_curve_says_nothing():
    photos = np.array([10, 20, 40, 80])
    dip = worth.find_equivalent_photos(photos, np.array([1.0, 3.0, 2.0, 4.0]), np.array([2.5, 3.0]))
    assert (
        dip[0] == pytest.approx(20) and 20 < dip[1] < 80
    )  # 3 and 2 become 2.5 twice: the fewer photos have it
    assert np.isnan(worth.find_equivalent_photos(photos, np.ones(4), np.array([1.0]))).all()


def test_a_known_exchange_rate_is_found_for_each_size():
    found = worth.worth_rates(curves({'an': 3, 'em': 2, 'hml': 1})).set_index(['loss', 'photos'])
    for loss, rate in (('an', 3), ('em', 2), ('hml', 1)):
        inside = found.loc[loss].loc[480:]
        assert inside.rate.to_numpy() == pytest.approx(rate, rel=0.02) and (
            inside.equal * inside.rate
        ).to_numpy() == pytest.approx(inside.index.to_numpy())
        assert (inside.low == inside.rate).all() and (
            inside.high == inside.rate
        ).all()  # no seed differs
    assert np.isinf(found.rate['an', 60]) and found.test_map['an', 3840] == pytest.approx(
        level(1280)
    )


def test_a_method_is_weighed_against_all_labels_on_its_own_head():
    better = curves({'hml': 2}, head='cosine')
    both = pd.concat(
        [curves({'em': 3}), better.assign(test_map=better.test_map + 5)]
    )  # the head adds 5 points to both curves
    found = worth.worth_rates(both).set_index(['head', 'loss', 'photos'])
    assert found.rate['linear', 'em', 3840] == pytest.approx(3, rel=0.02) and found.rate[
        'cosine', 'hml', 3840
    ] == pytest.approx(2, rel=0.02)
    assert worth.worth_rates(
        both[both['head'].eq('linear') | both.loss.ne('bce')]
    ).loss.unique().tolist() == ['em']  # without its curve nothing is said of HML


def test_a_method_that_shares_its_loss_with_all_labels_is_weighed_as_any_other():
    both = worth.worth_rates(curves({'an': 3, 'bce': 2})).set_index(['loss', 'photos'])
    alone = worth.worth_rates(curves({'an': 3})).set_index(['loss', 'photos'])
    assert both.loc['bce'].rate[480:].to_numpy() == pytest.approx(2, rel=0.02)
    assert both.loc['an'].rate.tolist() == alone.loc['an'].rate.tolist()


def test_the_interval_is_the_bootstrap_over_seeds_that_all_curves_share():
    measured = curves({'em': 2}, noise=0.3)
    line = worth.worth_rates(measured).set_index('photos').loc[3840]
    wide = measured.pivot_table('test_map', ['loss', 'photos'], 'seed')
    drawn = itertools.combinations_with_replacement(range(5), 5)
    own = {
        d: 3840
        / worth.find_equivalent_photos(
            NUMBERS,
            wide.loc['bce'][list(d)].mean(axis=1).to_numpy(),
            [wide.loc[('em', 3840)][list(d)].mean()],
        )[0]
        for d in drawn
    }
    every = sorted(own[tuple(sorted(d))] for d in itertools.product(range(5), repeat=5))
    assert (line.low, line.high) == pytest.approx(
        (every[2], every[-3])
    ) and line.low < line.rate < line.high  # percentiles 0.095 and 99.905 of 3,125
    together = measured.assign(
        test_map=measured.test_map + measured.seed
    )  # what moves both curves alike is no uncertainty of the rate at a line
    straight = together.assign(
        test_map=np.log2(together.photos / np.where(together.loss == 'bce', 1, 2)) + together.seed
    )
    found = worth.worth_rates(straight).set_index('photos').loc[[480, 3840]]
    assert found.low.to_numpy() == pytest.approx(2) and found.high.to_numpy() == pytest.approx(2)


@pytest.mark.parametrize('n', [5, 10])
def test_the_interval_of_few_seeds_covers_the_truth_more_often_than_percentiles_do(n):
    values = np.random.RandomState(1).normal(size=(2000, n))  # the truth is 0
    drawn = np.stack(
        [values[:, draw].mean(1) for draw in np.random.RandomState(0).randint(n, size=(1000, n))]
    )

    def covered(low, high):
        return np.mean((low <= 0) & (high >= 0))

    draws, weights = statistics.seed_draws(n)
    assert weights.sum() == pytest.approx(1) and len(draws) == (126 if n == 5 else 1000)
    plain = covered(*np.percentile(drawn, [2.5, 97.5], axis=0))
    expanded = covered(
        *statistics.seed_interval(np.stack([values[:, draw].mean(1) for draw in draws]), weights, n)
    )
    assert expanded > max(plain + 0.02, 0.9) and expanded < 0.98
    if n == 5:
        assert plain < 0.87
    assert np.isnan(statistics.seed_interval(drawn, weights, 1)).all()


def test_seeds_and_sizes_that_are_not_done_are_left_out():
    measured = curves({'em': 2})
    gap = measured.loss.eq('bce') & measured.seed.eq(4) & measured.photos.eq(240)
    hole = measured.loss.eq('em') & measured.seed.eq(1) & measured.photos.eq(960)
    found = worth.worth_rates(measured.assign(test_map=measured.test_map.mask(gap | hole)))
    assert set(found.seeds) == {4} and 960 not in set(found.photos) and len(found) == 7
    one = worth.worth_rates(curves({'em': 2}, seeds=1))
    assert one.low.isna().all() and one.high.isna().all() and np.isfinite(one.rate[3:]).all()
    for nothing in (
        measured[measured.loss != 'bce'],
        measured[measured.loss == 'bce'],
        measured.iloc[:0],
        measured.assign(test_map=np.nan),
    ):
        assert (
            list(worth.worth_rates(nothing)) == worth.COLUMNS
            and len(worth.worth_rates(nothing)) == 0
        )


@pytest.mark.parametrize(
    ('rate', 'text'),
    [(3.42, '3.4'), (31.4, '31'), (np.inf, 'more than 64'), (0, 'less than 1'), (np.nan, '')],
)
def test_a_rate_beyond_the_curve_is_a_bound(rate, text):
    assert worth.format_rate(rate, 3840, 60, 3840) == text


# ---- the runs


def rows(methods=worth.METHODS):
    return [worth.FULL_LABELS, Row('bce', 'cosine', 'full'), *map(Row, methods)]


def chosen(dataset, methods=worth.METHODS):
    "The finished searches that decide the settings."
    configs = [c for row in rows(methods) for c in search.search_configs(row, worth.SUITE, dataset)]
    return pd.DataFrame(
        {'val_map': 50.0, 'test_map': np.nan}, index=[queue.run_key(c) for c in configs]
    )


def test_the_runs_are_those_of_the_declared_list_and_the_full_size_is_the_boards():
    known = chosen('coco18')
    runs = worth.plan_curve_runs('coco18', known)
    assert (
        len(runs) == 5 * (2 * 8 + 3 * (8 + 9))
        and len({queue.run_key(c) for c in runs.config}) == len(runs)
        and runs.test_map.isna().all()
    )
    assert runs.groupby('head').loss.unique().map(list).to_dict() == {
        'linear': ['bce', 'an', 'em'],
        'cosine': ['bce', 'hml'],
    }
    for (_, _, labels), part in runs.groupby(['head', 'loss', 'labels']):
        assert set(part.seed) == set(range(5)) and all(
            (c.seed, c.label_seed) == (s, s) for c, s in zip(part.config, part.seed, strict=True)
        )
        if labels.startswith('partial'):
            assert set(part.photos) == {3840} and {c.train_images for c in part.config} == {0}
        else:
            assert sorted(part.photos.unique()) == NUMBERS.tolist() and {
                c.train_images for c in part.config
            } == {0, *NUMBERS[:-1]}
    board = {
        queue.run_key(c)
        for row in rows()
        for c in search.final_configs(row, 'photos', 'coco18', known)[:5]
    }
    assert board == {
        queue.run_key(c)
        for c, labels in zip(runs.config, runs.labels, strict=True)
        if c.train_images == 0 and not labels.startswith('partial')
    }
    assert len(worth.plan_curve_runs('coco18', pd.DataFrame())) == 0


def test_a_dry_sweep_says_how_much_there_is():
    told = []
    worth.sweep_worth(['coco18'], dry_run=True, tell=told.append)
    assert '50 runs of search, of which 50 are missing; 0 runs with fresh seeds' in told[0]
    with pytest.raises(SpmlError, match="unknown data set of the suite 'photos' 'voc'"):
        worth.sweep_worth(['voc'], dry_run=True)


# ---- pages


def all_sets(noise=0.1):
    return pd.concat(
        [
            curves({'an': 3, 'em': 2, 'hml': 1.5}, noise=noise, dataset=name)
            for name in worth.TRAINING
        ]
    )


def test_the_pictures_are_the_same_bytes_and_name_what_they_show():
    measured = all_sets()
    share = pd.DataFrame(
        [
            {
                'dataset': 'coco18',
                'head': 'linear',
                'loss': 'em',
                'labels': f'partial-{k / 10:g}',
                'photos': 3840,
                'seed': s,
                'test_map': level(384 * k),
            }
            for k in range(1, 10)
            for s in range(5)
        ]
    )
    measured = pd.concat([measured, share])
    for shares, words in (
        (
            False,
            (
                'all labels, linear head',
                'one label, EM',
                '3,840 photos with one label',
                'do what 2,',
            ),
        ),
        (True, ('share of known positives', 'EM')),
    ):
        picture = worth.draw_worth(measured, shares)
        text = ''.join(ElementTree.fromstring(picture).itertext())
        assert (
            picture == worth.draw_worth(measured.copy(), shares, worth.worth_rates(measured))
            and len(picture) < 100 * 1024
        )
        assert all(word in text for word in (*words, *worth.TRAINING))
    found = worth.worth_rates(measured)
    assert found[found.labels == 'partial-0.5'].rate.to_numpy() == pytest.approx(
        2, rel=0.02
    )  # half of the positives, as invented
    assert b'do what' not in worth.draw_worth(measured[measured.loss == 'bce'])


def test_the_page_has_every_rate_and_two_sentences():
    found = worth.worth_rates(all_sets(noise=0))
    text = worth.format_worth(found)
    assert (
        all(f'## {name}' in text for name in worth.TRAINING)
        and '| 3840 | 3.0 | 2.0 | 1.5 |' in text
        and '| 60 | more than 1 | more than 1 | more than 1 |' in text
    )
    lines = worth.summarize_worth(found).splitlines()
    assert (
        lines[0].startswith(
            'Photos with one label each that do what one photo with all its labels does'
        )
        and lines[2] == '| photos | AN | EM | HML |'
    )
    (row,) = (line for line in lines if line.startswith('| coco18 |'))
    assert (
        row.startswith('| coco18 | 3.0')
        and '| 2.0' in row
        and '| 1.5' in row
        and worth.summarize_worth(found.iloc[:0]) == ''
    )


def test_one_set_of_photos_stands_in_the_line_once():
    rates = worth.worth_rates(all_sets().query("dataset == 'coco18'"))
    assert worth._format_readme_item(rates).count('photos of coco18') == 1


def test_without_runs_nothing_is_written_and_with_them_readme_has_a_line(monkeypatch):
    outputs = settings.get_folder('outputs')
    (outputs.parent / 'README.md').write_text(f'# Mine\n{worth.BEGIN}\n{worth.END}\nThe rest.\n')
    assert worth.write_worth(pd.DataFrame()) == [] and not outputs.exists()
    monkeypatch.setattr(
        worth, 'plan_curve_runs', lambda dataset, known: all_sets().query('dataset == @dataset')
    )
    names = [file.name for file in worth.write_worth(pd.DataFrame())]
    assert names == ['worth.csv', 'worth.md', 'worth.svg', 'worth_shares.svg', 'README.md']
    text = (outputs.parent / 'README.md').read_text()
    joined = ' '.join(text.split())
    assert joined.count(' over seeds)') == 1
    assert (
        text.startswith(f'# Mine\n{worth.BEGIN}\n- **And all labels of one photo?**')
        and text.endswith(f'{worth.END}\nThe rest.\n')
        and re.search(
            r'each on 1\.\d (\(.*?\) )?photos of \w+ \(.* labels a photo\) to 1\.\d .*, with HML',
            joined,
        )
    )
    before = [(outputs / name).read_bytes() for name in names[:-1]]
    worth.write_worth(pd.DataFrame())
    assert (
        before == [(outputs / name).read_bytes() for name in names[:-1]]
        and (outputs.parent / 'README.md').read_text() == text
    )


# ---- photos of one's own


def test_photos_of_ones_own_are_weighed_in_one_call(photo_folder, monkeypatch, in_process):
    shorten_photos_suite(monkeypatch)
    monkeypatch.setattr(worth, 'SIZES', (1 / 8, 1 / 2, 1))
    told = []
    assert (
        len(
            worth.labels_worth(
                str(photo_folder), ['em'], seeds=range(2), dry_run=True, tell=told.append
            )
        )
        == 0
        and '4 runs of search, of which 4 are missing' in told[0]
    )
    found = worth.labels_worth(
        str(photo_folder), ['em'], seeds=range(2), shares=[0.5], tell=told.append
    )
    assert (
        list(found) == worth.COLUMNS
        and set(found.dataset) == {photo_folder.name}
        and found.seeds.tolist() == [2] * 4
    )
    assert sorted(zip(found.labels, found.photos, strict=True)) == [
        ('partial-0.5', 38),
        ('single', 5),
        ('single', 19),
        ('single', 38),
    ]
    done = {
        json.loads(file.read_text())['train_images']
        for file in settings.get_folder('runs').glob('*/config.json')
    }
    assert done == {0, 5, 19}
    told.clear()
    assert (
        worth.labels_worth(
            str(photo_folder), ['em'], seeds=range(2), shares=[0.5], tell=told.append
        ).equals(found)
        and not told
    )  # nothing is trained again
    rows = pd.read_csv(photo_folder / 'labels.csv')
    rows.assign(positives=rows.pop('labels').str.split('|').str[0]).to_csv(
        photo_folder / 'labels.csv', index=False
    )
    with pytest.raises(
        SpmlError,
        match=r'labels of .* are unknown; what one label is worth is measured against photos',
    ):
        worth.labels_worth(str(photo_folder))
