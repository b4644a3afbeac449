"""Every method has the same search: as many draws at the same rates, chosen by validation, compared
with fresh seeds on the same head.
"""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from side_files import PINNED, side_of

from spml_nb import methods, runs, sweeps
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.data import loading
from spml_nb.methods import core
from spml_nb.methods.core import LogitUniform
from spml_nb.runs.config import HEADS, Config, config_hash, resolve
from spml_nb.runs.folder import Run
from spml_nb.sweeps import boards, search
from spml_nb.sweeps.search import Choice, LogUniform, Row, Uniform


def test_wrong_names_are_refused():
    with pytest.raises(
        SpmlError, match="unknown suite 'maxi'; allowed: photos, photos_finetune, mini"
    ):
        sweeps.search_configs(Row('an'), 'maxi', 'ccp')
    with pytest.raises(
        SpmlError, match="unknown data set of the suite 'photos' 'mini_voc'; allowed: voc12_animals"
    ):
        sweeps.search_configs(Row('an'), 'photos', 'mini_voc')
    with pytest.raises(SpmlError, match="unknown loss 'ann'"):
        sweeps.search_configs(Row('ann'), 'mini', 'mini_voc')
    with pytest.raises(SpmlError, match="unknown data set of the suite 'mini' 'ccp'"):
        sweeps.sweep('mini', ['ccp'], dry_run=True, tell=lambda line: None)


@pytest.mark.parametrize('suite', sweeps.SUITES)
@pytest.mark.parametrize('loss', methods.names())
def test_every_search_has_the_same_draws_and_rates_and_starts_from_the_paper(loss, suite):
    given = sweeps.SUITES[suite]
    for dataset in given['datasets']:
        tried = sweeps.search_configs(Row(loss, **side_of(loss)), suite, dataset)
        assert [c.lr for c in tried] == sweeps.learning_rates(
            given['draws'] - 2 * given['widened'],
            given['widened'],
            given['usual'],
            given.get('between', (3e-5, 1e-2)),
        )
        assert len({config_hash(resolve(c)) for c in tried}) == len(tried) == given['draws']
        assert tried[0].hparams == {} and {(c.seed, c.label_seed) for c in tried} == {
            (sweeps.SEARCH_SEED,) * 2
        }
        assert all(set(c.hparams) == set(search.search_space(loss)) for c in tried[1:])
        assert sweeps.SEARCH_SEED not in set(
            itertools.chain(*(sweeps.final_seeds(Row(loss, head), suite) for head in HEADS))
        )


@pytest.mark.parametrize('dataset', sweeps.SUITES['photos']['datasets'])
def test_the_recorded_searches_are_those_that_are_declared(dataset):
    "A range that is changed after the runs would show here, as would a change of the rates."
    file = Path(__file__).parents[2] / 'outputs' / 'methods' / f'{dataset}_search.csv'
    recorded = pd.read_csv(file).groupby(['loss', 'head', 'labels'])
    assert len(recorded) > 30
    for (loss, head, labels), tried in recorded:
        declared = sweeps.search_configs(Row(loss, head, labels), 'photos', dataset)
        planned = {config.lr: config.hparams for config in declared}
        for rate, hparams in zip(tried.lr, tried.hparams, strict=True):
            assert planned[rate] == json.loads(hparams), (loss, head)


def test_the_suites_are_those_of_the_protocol():
    assert {
        name: (list(s['datasets']), s['draws'], s['seeds']['linear'], s['seeds']['labelwise'])
        for name, s in sweeps.SUITES.items()
    } == {
        'photos': (
            ['voc12_animals', 'coco18', 'cub_crops', 'mirflickr14', 'corel5k', 'ccp'],
            10,
            10,
            5,
        ),
        'photos_finetune': (['voc12_animals', 'cub_crops'], 3, 3, 3),
        'mini': (['mini_voc', 'mini_cub'], 4, 3, 3),
    }
    one = sweeps.search_configs(Row('an', 'labelwise'), 'photos', 'ccp')[0]
    assert (one.min_positives, one.exclude, one.batch_size, one.regime, one.schedule, one.root) == (
        40,
        ('skin', 'hair'),
        64,
        'linear',
        'onecycle',
        None,
    )
    assert sweeps.search_configs(Row('em'), 'photos', 'coco18')[0].min_positives == 20


def test_rates_are_spread_over_the_range_and_a_wider_range_keeps_them():
    for n in (3, 4, 8):
        each = sweeps.learning_rates(n)
        part = np.log(np.array(each) / 3e-5) / math.log(1e-2 / 3e-5) * n
        assert sorted(part.astype(int)) == list(range(n))  # one in each part
        assert min(each, key=lambda rate: abs(math.log(rate / 1e-3))) == each[0] and each == [
            float(f'{rate:.3g}') for rate in each
        ]
    assert sweeps.learning_rates(8, 2) == [
        *sweeps.learning_rates(8),
        9.49e-06,
        0.0316,
        3e-06,
        0.1,
    ] and sorted(sweeps.learning_rates(3, usual=1e-4)) == sorted(sweeps.learning_rates(3))


def test_a_distribution_keeps_to_its_range():
    assert [LogitUniform(0.2, 0.8)(u) for u in (0, 0.25, 0.5, 1)] == [0.2, 0.333, 0.5, 0.8]
    assert [LogUniform(0.01, 100)(u) for u in (0, 0.5, 0.75)] == [0.01, 1, 10] and [
        Uniform(2, 4)(u) for u in (0, 0.25)
    ] == [2, 2.5]
    assert [Choice(('a', 'b', 'c'))(u) for u in (0, 0.34, 0.999)] == ['a', 'b', 'c']
    for loss, k in itertools.product(core.names(), range(1, 12)):
        for name, value in sweeps.draw_hparams(loss, k).items():
            of = search.search_space(loss)[name]
            assert value in of.options if isinstance(of, Choice) else of.low <= value <= of.high
    assert sweeps.draw_hparams('em', 1) == sweeps.draw_hparams('em', 1) != sweeps.draw_hparams(
        'em', 2
    ) and sweeps.draw_hparams('an', 3) == {} == sweeps.draw_hparams('em', 0)
    assert sweeps.draw_hparams('em', 1) == {'alpha': 0.00669}  # on every machine


def test_a_method_may_bring_its_own_distributions(monkeypatch):
    assert search.search_space('an') == {} and search.search_space('em') is core.find('em').search
    monkeypatch.setattr(core.find('an'), 'search', {'unknown': Choice(('ignore',))})
    assert (
        sweeps.draw_hparams('an', 1) == {'unknown': 'ignore'} and sweeps.draw_hparams('an', 0) == {}
    )


def test_an_on_the_head_of_maps_is_an_on_the_linear_head():
    rows = [Row('an'), Row('boostlu_llr')]
    complete(rows, lambda row, seed: 50 + 4 * (row.loss != 'an') + seed)
    table = sweeps.summarize_final_runs(
        rows, 'mini', 'mini_voc', sweeps.load_finished_runs()
    ).set_index('loss')
    assert (
        table['head']['boostlu_llr'] == 'maps'
        and table.over_an['boostlu_llr'] == table.over_plain_an['boostlu_llr'] == 4
    )


def test_every_method_stands_on_every_head_it_allows():
    rows = sweeps.all_method_rows()
    assert {(row.loss, row.head) for row in rows} == {
        (name, head)
        for name in methods.names()
        if not core.find(name).side
        for head in core.find(name).heads or HEADS
    }
    assert len(set(rows)) == len(rows) and {row.loss for row in rows if row.labels == 'full'} == {
        'bce'
    }
    dear = [row.head == 'labelwise' for row in rows]
    assert dear == sorted(dear)  # what is cheap comes first
    assert set(sweeps.suite_rows('photos_finetune')) < set(rows) and {
        row.head for row in sweeps.suite_rows('mini') if row.loss == 'an'
    } == set(HEADS)


# ---- results


def finish(config, val, test, **scores):
    run = Run(sweeps.canonical_config(config))
    run.start()
    run.finish(
        {
            'scores': {'val_map': val, 'test_map': test, **scores},
            'seconds': 1.0,
            'data': '',
            'provenance': {'commit': None},
        }
    )


def test_the_best_by_validation_is_chosen_and_fresh_seeds_follow():
    tried = sweeps.search_configs(Row('an'), 'mini', 'mini_voc')
    for config, val, test in zip(tried, (50, 70, 60, 70), (90, 10, 95, 99), strict=True):
        assert (
            sweeps.final_configs(Row('an'), 'mini', 'mini_voc', sweeps.load_finished_runs()) == []
        )
        finish(config, val, test)
    known = sweeps.load_finished_runs()
    assert (
        sweeps.choose_config(tried, known) == tried[1]
    )  # the test scores play no part; the first of equals
    assert [
        (c.lr, c.seed, c.label_seed)
        for c in sweeps.final_configs(Row('an'), 'mini', 'mini_voc', known)
    ] == [(tried[1].lr, s, s) for s in (0, 1, 2)]
    record = sweeps.tabulate_search(Row('an'), 'mini', 'mini_voc', known)
    assert record.chosen.tolist() == [False, True, False, False] and record.val_map.tolist() == [
        50,
        70,
        60,
        70,
    ]
    assert json.loads(record.hparams[0]) == {}
    seen = known.assign(val_map_seen=[{tried[2].lr: 80.0}.get(lr, 75.0) for lr in known.lr])
    assert (
        sweeps.choose_config(tried, seen) == tried[2]
    )  # classes that no training image has are left out


def complete(rows, test, suite='mini', dataset='mini_voc', **scores):
    "Finish search and final runs of rows; test(row, seed) is the score."
    for row in rows:
        for config in sweeps.search_configs(row, suite, dataset):
            finish(config, 60, 0)
    for row in rows:
        for config in sweeps.final_configs(row, suite, dataset, sweeps.load_finished_runs()):
            finish(
                config,
                60,
                test(row, config.seed),
                **{name: of(config) for name, of in scores.items()},
            )


def test_the_outcome_compares_with_an_on_the_same_head_and_with_plain_an():
    rows = [Row('an'), Row('em'), Row('an', head='cosine'), Row('hml'), Row('wan')]
    base = {'an': 50, 'em': 52, 'hml': 70}
    complete(
        rows[:4],
        lambda row, seed: base[row.loss] + 10 * (row.head == 'cosine') + seed * (row.loss != 'an'),
        late=lambda config: int(config.seed == 2),
        observed_test_map=lambda config: 40.0,
        exercised=lambda config: int(config.seed > 0),
    )
    runs.export_csv()  # the table of record is enough
    for folder in settings.get_folder('runs').iterdir():
        if folder.is_dir():
            (folder / 'DONE').unlink()
    table = sweeps.summarize_final_runs(
        rows, 'mini', 'mini_voc', sweeps.load_finished_runs()
    ).set_index(['loss', 'head'])
    assert list(table) == boards.COLUMNS[2:]
    assert (
        table.over_an['em', 'linear'] == 3
        and table.over_an['hml', 'cosine'] == 11
        and table.over_an['an', 'cosine'] == 0
    )
    assert table.over_plain_an['hml', 'cosine'] == 21 and table.over_plain_an['an', 'cosine'] == 10
    assert (
        table.test_maps['em', 'linear'] == [52, 53, 54]
        and table.sd['em', 'linear'] == 1
        and table.n['wan', 'linear'] == 0
    )
    assert table.half['em', 'linear'] == pytest.approx(
        stats.t.interval(0.95, 2, 53, 1 / 3**0.5)[1] - 53
    )
    assert (
        table.late['em', 'linear'] == pytest.approx(1 / 3)
        and table.exercised['em', 'linear'] == pytest.approx(2 / 3)
        and table.test_map_observed['em', 'linear'] == 40
    )
    assert math.isnan(table.late['wan', 'linear']) and table.hparams['wan', 'linear'] == ''


def test_methods_that_need_side_information_stand_on_no_board():
    aided = {name for name in methods.names() if core.find(name).side}
    assert aided == {'epr_count', 'pseudo_scores', 'group_consistency'}
    for suite in sweeps.SUITES:
        assert not aided & {row.loss for row in sweeps.suite_rows(suite)}
    assert {
        c.side for c in sweeps.search_configs(Row('epr_count', side=PINNED), 'mini', 'mini_voc')
    } == {PINNED}
    with pytest.raises(SpmlError, match="'epr_count' learns from more than labels"):
        sweeps.plan_runs(sweeps.search_configs(Row('epr_count'), 'mini', 'mini_voc'))


def test_losses_that_are_one_loss_run_once_and_appear_under_each_name(monkeypatch):
    def same(loss, hparams, labels):
        halves = (
            loss == 'opml' and hparams['alpha'] == hparams['beta'] == 0.5 and labels == 'single'
        )
        return (
            ('zlpr', {'unknown': 'negative', 'reduction': 'sample'}) if halves else (loss, hparams)
        )

    monkeypatch.setattr(core, 'find_equal_loss', same)
    sweeps.queue._KEYS.clear()
    opml, zlpr = (sweeps.search_configs(Row(loss), 'mini', 'mini_voc') for loss in ('opml', 'zlpr'))
    assert [sweeps.run_key(a) == sweeps.run_key(b) for a, b in zip(opml, zlpr, strict=True)] == [
        True,
        False,
        False,
        False,
    ]
    assert (
        len(sweeps.plan_runs([*opml, *zlpr])) == 7
        and sweeps.plan_runs(opml).run.str.startswith('zlpr').sum() == 1
    )
    for config in [*opml, *zlpr]:
        finish(config, 60 - len(config.hparams), 0)
    for config in sweeps.final_configs(
        Row('zlpr'), 'mini', 'mini_voc', sweeps.load_finished_runs()
    ):
        finish(config, 60, 50 + config.seed)
    table = sweeps.summarize_final_runs(
        [Row('opml'), Row('zlpr')], 'mini', 'mini_voc', sweeps.load_finished_runs()
    )
    assert (
        table.loss.tolist() == ['opml', 'zlpr'] and table.test_maps.tolist() == [[50, 51, 52]] * 2
    )
    sweeps.queue._KEYS.clear()


@pytest.mark.parametrize(
    'loss, equal', [('two_way_sample', 'softmax'), ('multi_similarity', 'zlpr')]
)
def test_losses_equal_on_single_labels_stay_apart_where_photos_have_all_labels(loss, equal):
    config = Config(loss=loss, dataset='mini_voc', labels='single')
    assert sweeps.queue.canonical_config(config).loss == equal
    for part in ('beside', 'alone'):
        with_all = config.changed(trained_validation=part)
        assert sweeps.queue.canonical_config(with_all).loss == loss
        assert sweeps.run_key(with_all) != sweeps.run_key(with_all.changed(loss=equal, hparams={}))


def small(monkeypatch):
    "The suite mini with AN on two heads, EM and HML, and two draws, on frozen features."
    monkeypatch.setitem(
        search.SUITES,
        'mini',
        search.SUITES['mini']
        | {
            'config': {'regime': 'linear', 'epochs': 1, 'cached_views': 1},
            'draws': 2,
            'methods': ('an', 'em', 'hml'),
            'seeds': dict.fromkeys(HEADS, 2),
        },
    )
    monkeypatch.setattr(boards, 'HEADS', HEADS[:2])


def test_a_board_is_resumed_nothing_runs_twice_and_its_files_are_written(
    own_folders, monkeypatch, in_process
):
    small(monkeypatch)
    told = []
    dry = sweeps.sweep('mini', ['mini_voc'], dry_run=True, tell=told.append)
    assert (
        (dry.state == 'missing').all()
        and len(dry) == 8
        and '8 runs of search, of which 8 are missing; 0 runs with fresh seeds' in told[1]
    )
    done = sweeps.sweep('mini', ['mini_voc'], tell=told.append)
    assert len(done) == 16 and set(done.state) == {
        'done'
    }  # four rows: two draws and two seeds each
    assert len(sweeps.sweep('mini', ['mini_voc'], tell=told.append)) == 0
    assert (
        'of which 0 are missing; 8 runs with fresh seeds are chosen by now, of which 0 are missing'
        in (sweeps.sweep('mini', ['mini_voc'], dry_run=True, tell=told.append), told)[1][-3]
    )
    folder = settings.get_folder('outputs') / 'methods'
    assert {file.name for file in folder.iterdir()} == {
        'mini_voc.csv',
        'mini_voc.md',
        'mini_voc_search.csv',
    }
    assert set(pd.read_csv(folder / 'mini_voc_search.csv').lr) <= set(
        search.suite_rates('mini')
    )  # not rounded
    board = pd.read_csv(folder / 'mini_voc.csv')
    assert list(board) == boards.COLUMNS and (board.n == 2).all()
    head = (folder / 'mini_voc.md').read_text().splitlines()[0]
    assert all(
        words in head
        for words in (
            'regime linear',
            '2 draws',
            'seed 1000',
            'fully labelled validation',
            'linear 2',
            'mini_voc',
        )
    )


def test_a_rate_at_the_edge_is_told_with_the_remedy(own_folders, monkeypatch):
    small(monkeypatch)
    given, known, told = search.SUITES['mini'], [], []
    for row in sweeps.suite_rows('mini'):
        for c in sweeps.search_configs(row, 'mini', 'mini_voc'):
            known.append(
                (
                    sweeps.run_key(c),
                    50 + (c.lr == min(sweeps.learning_rates(2))) * (row.loss == 'em'),
                )
            )
    known = pd.DataFrame(known, columns=['key', 'val_map']).set_index('key')
    sweeps.write_board('mini', 'mini_voc', known, told.append)
    assert (
        f'em (linear, single) {min(sweeps.learning_rates(2)):g}' in told[0]
        and "Raise `widened` by one and `draws` by two in the suite 'mini'" in told[0]
    )
    monkeypatch.setitem(search.SUITES, 'mini', given | {'widened': 1, 'draws': given['draws'] + 2})
    assert len(sweeps.search_configs(Row('em'), 'mini', 'mini_voc')) == 4
    sweeps.write_board('mini', 'mini_voc', known, told.append)
    assert len(told) == 1  # the new draws are missing


# ---- a folder of one's own


def test_a_folder_is_searched_with_the_recipe_of_the_suite_and_every_class(photo_folder):
    tried = sweeps.search_configs(Row('em', labels='full'), 'photos', str(photo_folder))
    theirs = sweeps.search_configs(Row('em', labels='full'), 'photos', 'ccp')
    assert {(c.min_positives, c.exclude, c.dataset) for c in tried} == {(0, (), str(photo_folder))}
    same = ('lr', 'hparams', 'batch_size', 'regime', 'backbone', 'seed')
    assert [[getattr(c, n) for n in same] for c in tried] == [
        [getattr(c, n) for n in same] for c in theirs
    ]
    with pytest.raises(
        SpmlError, match="'photos' 'nowhere'; allowed: .* Or give one folder that has images/"
    ):
        sweeps.search_configs(Row('em'), 'photos', 'nowhere')
    assert {
        c.min_positives
        for c in sweeps.search_configs(Row('em', min_positives=7), 'photos', str(photo_folder))
    } == {7}
    assert (
        loading.is_user_folder(str(photo_folder))
        and not loading.is_user_folder('ccp')
        and not loading.is_user_folder('nowhere')
    )


def test_a_run_without_numbers_does_not_hold_up_a_search():
    tried = sweeps.search_configs(Row('an'), 'mini', 'mini_voc')
    for k, c in enumerate(tried):
        if k != 2:
            finish(c, 50 + k, 0)
    diverged = Run(sweeps.canonical_config(tried[2]))
    diverged.start()
    diverged.finish(
        {
            'scores': {'val_map': 0.0, 'diverged': 1},
            'diverged': 'nan',
            'seconds': 1.0,
            'data': '',
            'provenance': {'commit': None},
        }
    )
    runs.export_csv()  # the table of record is enough
    for folder in settings.get_folder('runs').iterdir():
        if folder.is_dir():
            (folder / 'DONE').unlink()
    assert sweeps.choose_config(tried, sweeps.load_finished_runs()) == tried[3]


def test_a_search_of_one_setting_needs_no_validation_score():
    configs = [Config(loss='an', dataset='mini_voc', lr=lr, device='cpu') for lr in (1e-3, 2e-3)]
    unscored = pd.DataFrame({'test_map': 50.0}, index=[sweeps.run_key(c) for c in configs])
    assert search.choose_config(configs[:1], unscored) == configs[0]
    assert search.choose_config(configs[:1], unscored[1:]) is None  # not trained yet
    assert search.choose_config(configs, unscored) is None


def test_the_draw_with_the_best_mean_over_the_seeds_is_chosen():
    tried = sweeps.search_configs(Row('em'), 'mini', 'mini_voc')
    again = [config.changed(seed=1001, label_seed=1001) for config in tried]
    scores = [
        50.0,
        60.0,
        58.0,
        40.0,
        52.0,
        50.0,
        57.0,
        40.0,
    ]  # draw 1 leads once, draw 2 on average
    lines = {
        sweeps.run_key(config): {'run': 'made', 'val_map': score}
        for config, score in zip([*tried, *again], scores, strict=True)
    }
    known = pd.DataFrame.from_dict(lines, orient='index')
    assert sweeps.choose_config(tried, known) == tried[1]
    assert search.choose_by_mean([tried, again], known) == tried[2]
    lost = known.drop(sweeps.run_key(again[3]))
    assert search.choose_by_mean([tried, again], lost) is None


@pytest.mark.silent('A1')
def test_runs_without_clean_labels_are_ranked_by_observed_auc():
    configs = [
        Config(loss='an', dataset='mini_voc', lr=lr, device='cpu') for lr in (1e-3, 2e-3, 3e-3)
    ]
    lines = [
        {
            'run': f'r{k}',
            'selection': 'val_clean',
            'val_truth': 'observed only',
            'selected_by': 'observed_auc',
            'val_map': val_map,
            'val_map_seen': val_map,
            'observed_val_auc': auc,
        }
        for k, (val_map, auc) in enumerate([(50.0, 80.0), (40.0, 90.0), (30.0, 70.0)])
    ]
    known = pd.DataFrame(lines, index=[sweeps.run_key(c) for c in configs])
    assert search.choose_config(configs, known).lr == 2e-3
    clean = known.assign(val_truth='complete', selected_by='clean_map')
    assert search.choose_config(configs, clean).lr == 1e-3
    earlier = known.assign(selected_by=[np.nan, 'observed_auc', 'observed_auc'])
    with pytest.raises(SpmlError, match='r0'):
        search.choose_config(configs, earlier)
