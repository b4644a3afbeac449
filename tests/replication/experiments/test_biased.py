"Labels that are not drawn at random: the declared runs, the order of the methods, and the page."

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from spml_nb import statistics
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.replication.experiments import biased
from spml_nb.runs.config import Config
from spml_nb.sweeps import queue, search
from spml_nb.sweeps.search import Row


def scored(score, dataset='coco18', seeds=5):
    "Invented runs: score(labels, number of the method, seed)."
    return pd.DataFrame(
        [
            {
                'dataset': dataset,
                'labels': labels,
                'loss': loss,
                'seed': s,
                'config': Config(loss=loss, dataset=dataset, labels=labels, seed=s),
                'test_map': score(labels, k, s),
            }
            for labels in biased.LABELS
            for k, loss in enumerate(biased.METHODS)
            for s in range(seeds)
        ]
    )


def test_the_runs_are_the_declared_ones_with_the_settings_of_the_search_on_even_labels():
    known = pd.DataFrame(
        {'val_map': 50.0},
        index=[
            queue.run_key(c)
            for loss in biased.METHODS
            for c in search.search_configs(Row(loss), 'photos', 'coco18')
        ],
    )
    runs = biased.plan_biased_runs(known, ['coco18'])
    assert (
        sorted(zip(runs.labels, runs.loss, runs.seed, strict=True))
        == sorted(itertools.product(biased.LABELS, biased.METHODS, range(5)))
        and runs.test_map.isna().all()
    )
    for row in runs.itertuples():
        (even,) = (
            c
            for c in search.final_configs(Row(row.loss), 'photos', 'coco18', known)
            if c.seed == row.seed
        )
        assert {
            name for name in vars(even) if getattr(even, name) != getattr(row.config, name)
        } == ({'labels'} if row.labels != 'single' else set())
    assert len(biased.plan_biased_runs(pd.DataFrame())) == 0
    scores = pd.concat(
        [known, pd.DataFrame({'test_map': 40.0}, index=[queue.run_key(runs.config[70])])]
    )
    assert biased.plan_biased_runs(scores, ['coco18']).test_map.notna().to_numpy().nonzero()[
        0
    ].tolist() == [70]


def test_a_dry_sweep_says_how_much_there_is():
    told = []
    biased.sweep_biased(['coco18'], dry_run=True, tell=told.append)
    assert '70 runs of search, of which 70 are missing' in told[0]
    with pytest.raises(SpmlError, match="unknown data set of the suite 'photos' 'voc'"):
        biased.sweep_biased(['voc'], dry_run=True)


def test_the_order_of_the_methods_is_compared_with_that_under_even_labels():
    order = {
        'single': [0, 1, 2, 3, 4, 5, 6],
        'single-frequent': [0, 1, 2, 3, 4, 6, 5],
        'single-rare': [6, 5, 4, 3, 2, 1, 0],
    }
    found = biased.label_rank_agreement(
        scored(lambda labels, k, s: 50 + order[labels][k] - 3 * (labels == 'single-rare'))
    ).set_index('labels')
    assert (
        found.spearman.tolist()
        == pytest.approx(
            [stats.spearmanr(range(7), order[labels])[0] for labels in biased.LABELS[1:]]
        )
        and found.spearman['single-rare'] == -1
    )
    assert (
        found.change.tolist() == pytest.approx([0, -3])
        and found.best.tolist() == ['gr', 'an']
        and set(found.before) == {'role'}
    )
    assert (found.low == found.spearman).all() and (
        found.high == found.spearman
    ).all()  # no seed differs
    noisy = biased.label_rank_agreement(
        scored(lambda labels, k, s: k + 3 * np.random.RandomState([k, s, len(labels)]).randn())
    ).set_index('labels')
    assert (noisy.low < noisy.spearman).all() and (noisy.spearman < noisy.high).all()


def test_the_interval_of_the_order_is_the_bootstrap_over_seeds():
    runs = scored(lambda labels, k, s: k + 3 * np.random.RandomState([k, s, len(labels)]).randn())
    wide = runs.pivot_table('test_map', ['labels', 'loss'], 'seed').reindex(
        [(labels, loss) for labels in biased.LABELS for loss in biased.METHODS]
    )
    drawn = sorted(
        stats.spearmanr(
            *(
                wide.loc[labels].to_numpy()[:, list(d)].mean(1)
                for labels in ('single', 'single-rare')
            )
        )[0]
        for d in itertools.product(range(5), repeat=5)
    )
    found = biased.label_rank_agreement(runs).set_index('labels').loc['single-rare']
    assert (
        (found.low, found.high) == pytest.approx((drawn[2], drawn[-3])) != (drawn[0], drawn[-1])
    )  # percentile 0.095 of 3,125 samples


def test_the_chance_of_the_test_images_is_that_of_the_runs_where_it_is_measured(monkeypatch):
    runs, asked = scored(lambda labels, k, s: 50 + k + s * (k + 1) / 10), []
    monkeypatch.setattr(statistics, 'image_error', lambda names, *_: asked.append(names) or 1.0)
    biased.average_by_setting(runs)
    first = {
        (row.labels, row.loss): queue.run_key(row.config)
        for row in runs[runs.seed == 0].itertuples()
    }
    assert asked == [
        [f'{first[labels, loss]} mAP', f"{first[labels, 'an']} mAP"]
        for labels in biased.LABELS
        for loss in biased.METHODS
        if loss != 'an'
    ]


def test_seeds_that_lack_a_run_are_left_out_of_the_order_and_shown_in_the_table():
    runs = scored(lambda labels, k, s: 50 + k + s / 10)
    hole = runs.labels.eq('single-rare') & runs.loss.eq('hml') & runs.seed.eq(2)
    runs = runs.assign(test_map=runs.test_map.mask(hole))
    assert biased.label_rank_agreement(runs).set_index('labels').seeds.to_dict() == {
        'single-frequent': 5,
        'single-rare': 4,
    }
    table = biased.average_by_setting(runs).set_index(['labels', 'loss'])
    assert (
        table.n['single-rare', 'hml'] == 4
        and table['rank']['single', 'role'] == 1
        and table['rank']['single', 'an'] == 7
    )
    assert table.over_an['single', 'em'] == pytest.approx(2) and np.isnan(
        table.over_an['single', 'an']
    )
    assert table.half['single', 'em'] == pytest.approx(
        stats.t.ppf(0.975, 4) * np.std([0, 0.1, 0.2, 0.3, 0.4], ddof=1) / 5**0.5
    )
    none = runs[runs.labels == 'single']
    assert len(biased.label_rank_agreement(none)) == 0 and 'missing' in biased.format_biased(none)


def test_gains_are_over_an_with_the_same_labels_and_compared_with_those_of_even_ones():
    turned = {'single': 1, 'single-frequent': 0.5, 'single-rare': -1}
    runs = pd.concat(
        [
            scored(
                lambda labels, k, s: 50 + s - 5 * (labels == 'single-rare') + turned[labels] * k
            ),
            scored(lambda labels, k, s: 30 + s + 2 * k, 'ccp'),
        ]
    )
    gained = biased.measure_gains(runs)
    assert len(gained) == 2 * 3 * 6 and 'an' not in gained.index.get_level_values('loss')
    assert gained['role', 'single-frequent', 'coco18'].mean == pytest.approx(3)
    found = biased.summarize_gains(gained)
    assert set(found) == {'single-frequent', 'single-rare'}
    frequent, rare = found['single-frequent'], found['single-rare']
    means = (frequent['even_mean'], frequent['mean'])
    assert means == pytest.approx((3.5 * 1.5, 3.5 * 1.25))
    assert (rare['count'], rare['same_sign'], frequent['same_sign']) == (12, 6, 12)
    assert rare['best'] == 'role' and rare['of_best'].mean == pytest.approx((12 - 6) / 2)
    assert rare['even_of_best'].mean == pytest.approx((12 + 6) / 2)
    page = biased.format_biased(runs)
    assert '| role | single-rare | −6.0 ± ' in page and '6 of 12 keep their sign' in page


def test_the_page_names_every_number_and_is_written_only_where_there_is_one(monkeypatch):
    runs = scored(lambda labels, k, s: 50 + k + s / 10 - 2 * (labels == 'single-rare'))
    text = biased.format_biased(runs)
    assert (
        '| role | 56.2 ± 0.2 (1) | 56.2 ± 0.2 (1) | 54.2 ± 0.2 (1) |' in text
        and '## coco18' in text
        and 'fully labelled validation images' in text
    )
    assert (
        '`single-rare`: mAP changes by −2.0 to −2.0 points in the mean over methods, and the best '
        'method stays the same on 1 of 1 data sets.' in text
    )
    assert biased.write_biased(pd.DataFrame()) == [] and not settings.get_folder('outputs').exists()
    monkeypatch.setattr(biased, 'plan_biased_runs', lambda known: runs)
    assert [file.name for file in biased.write_biased(pd.DataFrame())] == [
        'biased.md',
        'biased.csv',
    ]
    assert len(pd.read_csv(settings.get_folder('outputs') / 'biased.csv')) == 21
