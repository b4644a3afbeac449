"""Published beside ours: which runs stand behind a cell, and what the table makes of those that are
there.
"""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from spml_nb import replication, sweeps
from spml_nb.base.errors import SpmlError
from spml_nb.methods import core
from spml_nb.replication import pages, paper_figures, published, tables, templates
from spml_nb.runs.config import Config, resolve

ROOT = Path(__file__).resolve().parents[2]


def cell(paper, table, row, column):
    tidy = published.table_cells(paper, table)
    return tidy[(tidy.row == row) & (tidy.column == column)].iloc[0].to_dict()


def known(*runs, **scores):
    "A table of record made of (configuration, val mAP, test mAP)."
    lines = [
        {'key': sweeps.run_key(c), 'val_map': val, 'test_map': test}
        | {name: of(c) for name, of in scores.items()}
        for c, val, test in runs
    ]
    return pd.DataFrame(lines, columns=['key', 'val_map', 'test_map', *scores]).set_index('key')


@pytest.mark.parametrize('suite', ('paper', published.PHOTOS_SUITE))
@pytest.mark.parametrize('paper', published.list_papers())
def test_every_cell_has_runs_or_says_why(paper, suite):
    configs = {}
    for table in published.table_numbers(paper):
        for each in published.table_cells(paper, table).to_dict('records'):
            needed = tables.plan_cell(each, suite)
            assert bool(needed.search) != bool(needed.why), each
            configs |= {
                json.dumps({**c.__dict__, 'hparams': {**c.hparams, **needed.stated}}): None
                for c in needed.search
            }
            if needed.search and suite != 'paper' and each['config'].get('weights') != 'none':
                assert len(needed.search) == sweeps.SUITES[suite]['draws'] == 10 and max(
                    needed.seeds
                ) in (4, 9)
            assert not {c.seed for c in needed.search} & set(needed.seeds)
    for config in configs:
        assert resolve(Config(**json.loads(config)))


def test_what_the_cell_states_wins_over_what_was_searched():
    of_paper = cell('opml', 'IV', 'OPML', 'VOC')
    searched = tables.plan_cell(of_paper, 'photos').search[3].hparams
    stated = {next(iter(searched)): 0.25}
    one = of_paper | {'config': of_paper['config'] | {'hparams': stated}}
    needed = tables.plan_cell(one, 'photos')
    tried = known(
        *[(c, 50 + 10 * (c.hparams == needed.search[3].hparams), 1) for c in needed.search]
    )
    final = tables.cell_final_runs(needed, tried, seeds=(0, 7))
    assert [(c.seed, c.label_seed, c.lr, c.hparams) for c in final] == [
        (s, s, needed.search[3].lr, searched | stated) for s in (0, 7)
    ]
    assert searched != stated
    assert tables.cell_final_runs(needed, tried.iloc[:3]) == []  # the search has a run missing


MEASURE_OF = {
    'mAP': 'val_map',
    'mAP@class': 'val_map',
    'mAP@sample': 'val_map_sample',
    'accuracy': 'val_map',  # no validation photo is scored by its one label
    'pseudo-label precision': 'val_map',  # known of training photos alone
    'micro-F1': 'val_micro_f1_at_{}',
    'macro-F1': 'val_macro_f1_at_{}',
    'micro-F1 at the chosen threshold': 'val_micro_f1',
    'macro-F1 at the chosen threshold': 'val_macro_f1',
}
ALL_MEASURES = {
    name.format(threshold) for name in MEASURE_OF.values() for threshold in ('0.5', '0.75')
}
OF_EVERY_CELL = [
    one
    for paper in published.list_papers()
    for number in published.table_numbers(paper)
    for one in published.table_cells(paper, number).to_dict('records')
]


def test_every_cell_of_every_table_is_chosen_by_the_measure_of_its_column():
    seen = set()
    for one in OF_EVERY_CELL:
        plan = tables.plan_cell(one, 'photos')
        if not plan.search:
            continue
        threshold = '0.75' if one['config']['loss'] in ('em', 'em_apl') else '0.5'
        own = MEASURE_OF[one['metric']].format(threshold)
        # the fourth run is the best by the cell's own measure, the second by all others
        scores = {
            sweeps.run_key(config): {
                name: float(k == (3 if name == own else 1)) for name in ALL_MEASURES
            }
            for k, config in enumerate(plan.search)
        }
        tried = pd.DataFrame.from_dict(scores, orient='index')
        (final,) = tables.cell_final_runs(plan, tried, seeds=[0])
        assert final.lr == plan.search[3].lr, (
            one['paper'],
            one['table'],
            one['row'],
            one['column'],
        )
        seen.add(one['metric'])
    assert seen == {*MEASURE_OF}


def test_two_ways_rows_differ_in_the_rate_alone_and_end_with_their_schedule():
    for one in OF_EVERY_CELL:
        plan = tables.plan_cell(one, 'photos')
        if one['paper'] != 'two_way' or one['table'] == '8' or not plan.search:
            continue
        assert all(config == plan.search[0].changed(lr=config.lr) for config in plan.search)
        first = plan.search[0]
        ends = first.selection, first.schedule, first.epochs, first.patience
        assert ends == ('last', 'cosine', 40, 0)
        hparams = {'focal': {'gamma': 2, 'alpha': 0.25}, 'bce': {}, 'wbce': {}}
        if one['table'] == '7' and first.loss in hparams:
            assert first.hparams == hparams[first.loss]


def test_our_own_rows_are_on_our_sets_and_never_in_the_suite_of_the_paper():
    own = [one for one in OF_EVERY_CELL if one['added']]
    assert {one['paper'] for one in own} == {'two_way', 'em_apl'}
    assert not any(tables.plan_cell(one, 'paper').search for one in own)
    assert all(math.isnan(one['mean']) and not one['lost'] for one in own)
    of_seven = {
        one['dataset']
        for one in OF_EVERY_CELL
        if tables.plan_cell(one, 'photos').search
        and (one['paper'], one['table']) == ('two_way', '7')
    }
    assert {published.find_stand_in(name, 'photos') for name in of_seven} == {
        *sweeps.SUITES['photos']['datasets']
    }


def test_a_search_that_was_recorded_without_the_measure_is_trained_again():
    plan = tables.plan_cell(cell('em_apl', '7', 'EM', 'CUB / micro-F1'), 'photos')
    other = tables.plan_cell(cell('em_apl', '1', 'LS', 'CUB'), 'photos').search[0]
    scores = {'val_micro_f1_at_0.75': lambda c: 0.5 if c is plan.search[0] else math.nan}
    scores['diverged'] = lambda c: float(c is plan.search[1])
    runs = known(*[(c, 50, 50) for c in [*plan.search, other]], **scores)
    kept = tables.drop_unmeasured('em_apl', '7', 'photos', runs)
    assert set(kept.index) == {sweeps.run_key(c) for c in (*plan.search[:2], other)} - {
        sweeps.run_key(plan.search[0])  # it lacks the macro-F1 of the column beside it
    }
    assert len(tables.drop_unmeasured('em_apl', '1', 'photos', runs)) == len(runs)


def test_a_paper_s_one_setting_is_kept_without_the_measure():
    plan = tables.plan_cell(cell('two_way', '7', 'MSCOCO / BCE', 'mAP@sample / ResNet50'), 'paper')
    assert len(plan.search) == 1 and plan.measure == 'val_map_sample'
    runs = known((plan.search[0], math.nan, 50))
    assert len(tables.drop_unmeasured('two_way', '7', 'paper', runs)) == 1
    assert plan.choose(runs) == plan.search[0]


def test_a_record_of_runs_without_validation_is_read(tmp_path):
    record = pd.read_csv(ROOT / 'outputs' / 'runs.csv', nrows=3, dtype=str, keep_default_na=False)
    file = tmp_path / 'runs.csv'
    record.drop(columns='val_map').to_csv(file, index=False)
    assert tables.read_recorded_runs(file).val_map.isna().all()


def test_what_will_be_chosen_is_counted_until_its_search_is_done():
    search, none = tables.list_table_runs('em_apl', '1', 'paper', pd.DataFrame())
    unchosen = tables.list_unchosen_runs('em_apl', '1', 'paper', pd.DataFrame())
    assert none == [] and len(unchosen) == 3 * len(search)  # each cell has one run to search
    assert {c.seed for c in unchosen} == {0, 1, 2}
    tried = known((search[0], 50, 1))
    _, final = tables.list_table_runs('em_apl', '1', 'paper', tried)
    left = tables.list_unchosen_runs('em_apl', '1', 'paper', tried)
    keys = [{sweeps.run_key(c) for c in configs} for configs in (final, left, unchosen)]
    assert len(final) == 3 and keys[0] | keys[1] == keys[2] and not keys[0] & keys[1]


@pytest.mark.parametrize(
    ('where', 'expected'),
    [
        (
            ('opml', 'II', '1 P. & 0 N. / OPML-SP (Ours)', 'VOC'),
            {'optimizer': 'sgd', 'lr': 5e-3, 'head_lr_multiplier': 1.0, 'batch_size': 8},
        ),
        (
            ('opml', 'II', '1 P. & 0 N. / LL-R', 'VOC'),
            {'optimizer': 'sgd', 'lr': 5e-3, 'stop_below': 3.0},
        ),
        (
            ('two_way', '7', 'MSCOCO / Ours', 'mAP@class / ResNet50'),
            {'views': 'crop', 'hold_out': False, 'precision': 'fp16', 'batch_size': 512},
        ),
        (
            ('lac', '2', 'Ours', 'LEM / VOC'),
            {'normalise': False, 'freeze_batchnorm': True, 'frozen_stages': 2, 'ema': 0.9997},
        ),
    ],
)
def test_the_papers_own_suite_runs_its_presets(where, expected):
    needed = tables.plan_cell(cell(*where), 'paper')
    for config in needed.search:
        assert {name: getattr(config, name) for name in expected} == expected
    tried = known(*[(c, 50, 50) for c in needed.search])
    assert [(c.seed, c.label_seed) for c in tables.cell_final_runs(needed, tried)] == [
        (s, 1200) for s in (0, 1, 2)
    ]  # one draw of the observed labels


def complete(paper, table, row, column, test, **scores):
    """A record in which a cell's search and all of its final runs are done; test(config) is the
    score.
    """
    needed = tables.plan_cell(cell(paper, table, row, column), 'photos')
    tried = known(*[(c, 50, math.nan) for c in needed.search])
    both = pd.concat(
        [tried, known(*[(c, 50, test(c)) for c in tables.cell_final_runs(needed, tried)], **scores)]
    )
    both['run'] = [f'run-{k}' for k in range(len(both))]
    return both


def test_a_table_counts_seeds():
    both = complete('hml', '2', 'WAN', 'VOC12', lambda c: 70 + c.seed)
    whole = tables.table('hml', '2', both)
    tidy = whole.of('photos').set_index(['row', 'column'])
    wan, an = tidy.loc[('WAN', 'VOC12')], tidy.loc[('AN', 'VOC12')]
    assert (
        wan.state == 'done'
        and wan.n == 10
        and wan.ours == 74.5
        and wan.sd == pytest.approx(3.0277, abs=1e-4)
    )
    assert (
        json.loads(wan.seeds) == {str(s): 70.0 + s for s in range(10)}
        and an.state == 'missing'
        and math.isnan(an.ours)
    )
    assert (
        wan.interval == pytest.approx(2.262157 * wan.sd / 10**0.5)
        and list(json.loads(wan.runs)) == list(json.loads(wan.seeds))
        and an.interval != an.interval
    )
    assert both.test_map[both.run == json.loads(wan.runs)['2']].item() == 72 and (
        wan.command,
        an.command,
    ) == ('', 'spml sweep hml --table 2 --suite photos')
    cells = whole.of('photos')
    cells['text'] = cells.apply(tables.cell_level_text, axis=1)
    text = cells.pivot(index='row', columns='column', values='text')
    assert (
        text.loc['WAN', 'VOC12'] == '86.5 / 74.5 ± 2.2'
        and text.loc['AN', 'VOC12'] == '85.1 / missing'
    )
    assert whole.progress('photos') == {'done': 1, 'todo': 23, 'total': 24} and whole.columns(
        'photos'
    ) == {
        'VOC12': 'VOC 2012, photos with animals',
        'COCO': 'COCO, 18 classes',
        'NUS': 'MIRFlickr, 14 classes',
        'CUB': 'CUB, cropped birds',
    }
    wan_runs = both.index[both.run.isin(json.loads(wan.runs).values())]
    some = (
        tables.table('hml', '2', both.drop(index=wan_runs[2:]))
        .of('photos')
        .set_index(['row', 'column'])
        .loc[('WAN', 'VOC12')]
    )
    assert (some.n, some.ours, some.state) == (2, 70.5, 'partly')


@pytest.mark.parametrize(
    ('lacking', 'diverged', 'state', 'why'),
    [
        (
            range(10),
            (),
            'missing',
            '10 of 10 finished runs were recorded without test_map; remove their lines from '
            'runs.csv, then spml sweep hml --table 2 --suite photos trains them again',
        ),
        (range(10), range(10), 'missing', '10 of 10 final runs diverged'),
        ((3,), (3,), 'partly', '1 of 10 final runs diverged'),
        (
            (3, 4),
            (3,),
            'partly',
            '1 of 10 final runs diverged; 1 of 10 finished runs were recorded without test_map; '
            'remove',
        ),
    ],
)
def test_runs_that_are_done_without_a_number_are_told_and_ask_for_no_command(
    lacking, diverged, state, why
):
    both = complete(
        'hml',
        '2',
        'WAN',
        'VOC12',
        lambda c: math.nan if c.seed in lacking else 70.0 + c.seed,
        diverged=lambda c: 1 if c.seed in diverged else math.nan,
    )
    one = (
        tables.table('hml', '2', both)
        .of('photos')
        .set_index(['row', 'column'])
        .loc[('WAN', 'VOC12')]
    )
    assert (one.state, one.n, one.command) == (state, 10 - len(lacking), '') and one.why.startswith(
        why
    )
    untrained = (
        tables.table('hml', '2', both.iloc[:-1])
        .of('photos')
        .set_index(['row', 'column'])
        .loc[('WAN', 'VOC12')]
    )
    assert untrained.command == 'spml sweep hml --table 2 --suite photos'  # a seed is missing


def test_a_label_wise_row_has_its_own_number_of_seeds():
    assert list(tables.plan_cell(cell('lac', '2', 'Ours', 'LEM / VOC'), 'photos').seeds) == list(
        range(5)
    )
    assert list(tables.plan_cell(cell('hml', '2', 'AN', 'VOC12'), 'photos').seeds) == list(
        range(10)
    )


@pytest.mark.parametrize(
    ('acted', 'state'),
    [
        ((1, 0), 'not exercised'),
        ((1, 1, 1, 0), 'done'),
        ((0, 0, 1, 1, 1), 'done'),
        ((math.nan,), 'done'),
    ],
)
def test_a_mechanism_that_never_acted_is_said(acted, state, monkeypatch):
    monkeypatch.setattr(core.find('em_apl'), 'mechanism', 'the choice of negatives', raising=False)
    both = complete(
        'em_apl',
        '1',
        'EM+APL',
        'VOC',
        lambda c: 50.0,
        exercised=lambda c: acted[c.seed % len(acted)],
        best_epoch=lambda c: c.seed,
    )
    whole = tables.table('em_apl', '1', both)
    one = whole.of('photos').set_index(['row', 'column']).loc[('EM+APL', 'VOC')]
    assert (one.state, one.n, one.ours, one.command) == (state, 10, 50, '') and whole.progress(
        'photos'
    )['done'] == 1
    idle = [seed for seed in range(10) if acted[seed % len(acted)] == 0]
    assert one.why == (
        f'in {len(idle)} of 10 runs the best epoch (median {np.median(idle):g}) came before the '
        'choice of negatives began'
        if idle
        else ''
    )
    assert ('before the choice of negatives began' in pages.format_table_page(whole)) == bool(idle)
    assert tables.cell_level_text(one.to_dict()) == '89.19 (0.31) / 50.0 ± 0.0' + (
        ' (not exercised)' if state == 'not exercised' else ''
    )


def test_pseudo_labels_are_counted_at_the_end_though_the_best_epoch_came_before_them():
    made = {'exercised': lambda c: 0, 'pseudo_positive_precision_at_end': lambda c: 20.0 + c.seed}
    one = (
        tables.table(
            'em_apl', '6', complete('em_apl', '6', 'Precision', 'VOC', lambda c: 50.0, **made)
        )
        .of('photos')
        .set_index('column')
        .loc['VOC']
    )
    assert (one.state, one.n, one.ours, one.why, one.command) == ('done', 10, 24.5, '', '')


def test_half_of_the_runs_are_too_few_for_a_mechanism_to_have_acted():
    assert tables.mechanism_acted(
        pd.DataFrame({'exercised': [1, 0, 1]})
    ) and not tables.mechanism_acted(pd.DataFrame({'exercised': [0, 1]}))
    assert tables.mechanism_acted(pd.DataFrame()) and tables.mechanism_acted(
        pd.DataFrame({'exercised': [math.nan]})
    )  # nothing is recorded


def test_a_table_about_the_batch_keeps_the_papers_batch():
    needed = tables.plan_cell(cell('two_way', '5', 'mAP@class', 'M = 32'), 'photos')
    assert {c.batch_size for c in needed.search} == {512} and needed.stated == {'bucket': 32}
    assert {
        c.batch_size
        for c in tables.plan_cell(
            cell('two_way', '1', 'T_P = 4', 'mAP@class / T_N = 1'), 'photos'
        ).search
    } == {64}


def test_tables_and_boards_share_their_runs():
    search, _ = tables.list_table_runs('hml', '2', 'photos', pd.DataFrame())
    board = [
        c
        for loss in ('an', 'ls', 'wan', 'epr', 'role', 'hml')
        for d in ('voc12_animals', 'coco18', 'mirflickr14', 'cub_crops')
        for c in sweeps.search_configs(sweeps.Row(loss), 'photos', d)
    ]
    assert {*map(sweeps.run_key, search)} == {*map(sweeps.run_key, board)} and len(
        search
    ) == 6 * 4 * 10
    heads = [
        c.head == 'labelwise'
        for c in tables.list_table_runs('lac', None, 'photos', pd.DataFrame())[0]
    ]
    assert heads == sorted(heads) and any(heads) and not all(heads)  # what is cheap comes first


def test_f1_is_taken_at_the_papers_threshold():
    assert tables.table_score('micro-F1', 'em') == (
        'test_micro_f1_at_0.75',
        100.0,
    ) and tables.table_score('macro-F1', 'an') == ('test_macro_f1_at_0.5', 100.0)
    with pytest.raises(SpmlError, match="unknown measure 'statistic'"):
        tables.table_score('statistic', 'an')


def test_wrong_names_are_refused():
    with pytest.raises(SpmlError, match="unknown suite 'maxi'; allowed: paper, photos"):
        tables.table('hml', '2', pd.DataFrame(), 'maxi')
    with pytest.raises(SpmlError, match="unknown table of 'hml' '9'"):
        tables.list_table_runs('hml', '9', 'photos', pd.DataFrame())
    with pytest.raises(SpmlError, match="unknown paper 'hmm'"):
        tables.list_table_runs('hmm', None, 'photos', pd.DataFrame())
    with pytest.raises(SpmlError, match="nothing of hml, table 1 can be run in the suite 'photos'"):
        tables.sweep_tables('hml', '1', 'photos')


def test_table_8_trains_from_scratch_by_the_papers_recipe_at_the_same_rates_for_each_loss():
    rows = {
        row: tables.plan_cell(cell('two_way', '8', row, 'ImageNet'), 'photos').search
        for row in ('ASL', 'Softmax', 'Ours')
    }
    for configs in rows.values():
        assert [c.lr for c in configs] == [1e-4, 1e-3, 1e-2, 0.1, 1.0] and all(
            replace(c, lr=0.1) == configs[3] for c in configs
        )
        c = resolve(configs[0])
        assert (c.dataset, c.backbone, c.image_size, c.weights, c.labels) == (
            'corel5k_themes',
            'mini',
            64,
            'none',
            'full',
        )
        assert (
            c.optimizer,
            c.momentum,
            c.nesterov,
            c.weight_decay,
            c.schedule,
            c.epochs,
            c.selection,
        ) == ('sgd', 0.9, True, 1e-4, 'cosine', 60, 'last')
        assert c.hold_out and c.precision == 'float32'  # the rate is chosen on validation
    assert (
        rows['Ours'][0].hparams == {'T_pos': 4, 'T_neg': 1, 'bucket': 128}
        and rows['Softmax'][0].loss == 'softmax'
    )
    seeds = tables.plan_cell(cell('two_way', '8', 'Ours', 'ImageNet'), 'photos').seeds
    rates = [f'{c.lr:.4f}'.rstrip('0').rstrip('.') for c in rows['Ours']]
    assert f'{len(seeds)} seeds' in templates.page_headline(
        'photos', ['corel5k_themes']
    ) and 'rate is that of five with' in templates.page_headline('photos', ['corel5k_themes'])
    notes = paper_figures.describe_figure('two_way', 'T8')['notes']
    assert (
        f"rate of {', '.join(rates[:-1])} and {rates[-1]} " in notes
        and 'with 60 epochs' in notes
        and 'batches of 64 ' in notes
        and 'photos of 64 pixels' in notes
    )
    cells = tables.table('two_way', '8', known()).cells
    assert (
        cells.state[cells.column != 'ImageNet'].eq('none').all()
        and cells.state[cells.column == 'ImageNet'].eq('missing').all()
    )


def test_a_curve_over_shares_of_labels_takes_the_choice_made_on_single_positives():
    single = cell('hml', '2', 'HML (Ours)', 'VOC12')
    partial = {**single, 'config': {**single['config'], 'labels': 'partial-0.3'}}
    a, b = (tables.plan_cell(each, 'photos') for each in (single, partial))
    assert a.search == b.search and (a.labels, b.labels) == (None, 'partial-0.3')
    tried = known(*[(c, 50 + k, 1) for k, c in enumerate(a.search)])
    assert [
        replace(c, labels='single') for c in tables.cell_final_runs(b, tried)
    ] == tables.cell_final_runs(a, tried)
    assert {c.labels for c in tables.cell_final_runs(b, tried)} == {'partial-0.3'}


def test_gains_are_of_paired_seeds_over_the_row_of_an_and_none_of_another_kind_of_labels():
    def score(cell, config):
        return {'AN': 50.0, 'LS': 51.0}.get(cell['row'], 54.0) + (
            config.seed if cell['row'] == 'AN' else 2 * config.seed
        )

    lines = []
    for one in published.table_cells('hml', '2').to_dict('records'):
        plan = tables.plan_cell(one, 'photos')
        tried = known(*[(c, 60.0, 1.0) for c in plan.search])
        lines += [(c, 60.0, 1.0) for c in plan.search] + [
            (c, 60.0, score(one, c))
            for c in tables.cell_final_runs(plan, tried, range(2 if one['row'] == 'LS' else 3))
        ]
    cells = tables.table('hml', '2', known(*lines)).cells.set_index(['row', 'column'])
    assert cells.loc[('LS', 'COCO')].gain == pytest.approx(
        ((51 - 50) + (53 - 51)) / 2
    )  # the seeds that both have
    assert cells.loc[('WAN', 'COCO')].gain == pytest.approx((4 + 5 + 6) / 3) and cells.loc[
        ('WAN', 'COCO')
    ].gain_published == pytest.approx(64.8 - 64.1)
    assert (
        cells.loc['AN'][['gain', 'gain_published', 'gain_half']].isna().all(axis=None)
        and (cells.loc['WAN'].gain_half > 0).all()
    )
    whole = published.index_cells('hml', '4').values()
    by_kind = {
        one['config']['labels']: published.gain_baseline(one)
        for one in whole
        if one['row'] == 'HL + AL'
    }
    assert {kind: base['config']['labels'] for kind, base in by_kind.items()} == {
        'single': 'single',
        'full': 'full',
    }


@pytest.mark.silent('B')
def test_a_gain_over_a_row_of_another_source_is_marked_and_opmls_is_over_its_own_zlpr():
    def score(cell, config):
        return {'ZLPR': 51.0, 'BCE': 48.0}.get(cell['row'].rpartition(' / ')[2], 54.0)

    lines = []
    for one in [
        *published.table_cells('opml', 'II').to_dict('records'),
        *published.table_cells('opml', 'III').to_dict('records'),
    ]:
        plan = tables.plan_cell(one, 'photos')
        if one['column'] != 'CUB' or one['row'].rpartition(' / ')[2] not in (
            'BCE',
            'ZLPR',
            'OPML-SP (Ours)',
            'BCE+EntMax',
        ):
            continue
        tried = known(*[(c, 60.0, 1.0) for c in plan.search])
        lines += [(c, 60.0, 1.0) for c in plan.search] + [
            (c, 60.0, score(one, c)) for c in tables.cell_final_runs(plan, tried, range(2))
        ]
    two, three = (
        tables.table(
            'opml', number, known(*{sweeps.run_key(c): (c, *rest) for c, *rest in lines}.values())
        )
        for number in ('II', 'III')
    )
    cells = two.cells.set_index(['row', 'column'])
    opml = cells.loc[('1 P. & 0 N. / OPML-SP (Ours)', 'CUB')]
    em = cells.loc[('1 P. & 0 N. / BCE+EntMax', 'CUB')]
    assert (opml.gain_published, opml.gain) == pytest.approx(
        (24.11 - 21.02, 3.0)
    ) and opml.uncounted
    assert (em.gain_published, em.gain, em.uncounted) == (pytest.approx(20.85 - 18.31), 6.0, '')
    assert tables.cell_gain_text(opml.to_dict()) == f'+3.1{published.UNCOUNTED} / +3.0 ± 0.7 ▮▮▮'
    assert published.UNCOUNTED not in tables.cell_gain_text(em.to_dict())
    zlpr = three.cells.set_index(['row', 'column']).loc[('ZLPR', 'CUB')]
    assert zlpr.gain_published == pytest.approx(21.02 - 18.31) and 'EM/APL' in zlpr.uncounted
    assert [where for where, note in two.notes() if note.startswith(published.UNCOUNTED)] == [
        ', '.join(
            f'1 P. & 0 N. / {row}'
            for row in ('LL-R', 'LL-Ct', 'LL-Cp', 'OPML (Ours)', 'OPML-SP (Ours)')
        )
    ]


def test_the_facade_gives_the_table():
    whole = replication.table('hml', '5', pd.DataFrame())
    assert (
        isinstance(whole, replication.Table)
        and whole.title == 'Ablation study on positives and negatives for VOC12'
    )
    assert list(whole.rows('photos')) == [
        'No Margin',
        'Only Positives',
        'Only Negatives',
        'Positives & Negatives',
    ] and whole.columns('photos') == {'mAP': 'VOC 2012, photos with animals'}
    assert whole.notes()[0][0] == 'Only Positives'


@pytest.mark.skipif(not (ROOT / 'outputs' / 'runs.csv').is_file(), reason='no table of record')
def test_what_the_pages_say_of_lacs_second_stage_is_so():
    """How often its first epoch was the best, and that two queues were not full: in
    lac_conclusion.py, lac_claims.py, lac_figures.py and papers/lac.ipynb.
    """
    known = tables.read_recorded_runs(ROOT / 'outputs' / 'runs.csv')

    def at_once(configs):
        runs = known.loc[[sweeps.run_key(c) for c in configs]]
        return int(((runs.best_stage == 2) & (runs.best_epoch == 1)).sum()), len(runs)

    board = {
        name: at_once(sweeps.search.final_configs(sweeps.Row('lac'), 'photos', name, known))
        for name in sweeps.SUITES['photos']['datasets']
    }
    assert tuple(map(sum, zip(*board.values(), strict=True))) == (13, 30) and board['corel5k'] == (
        5,
        5,
    )

    def of_table(row):
        return [
            at_once(
                tables.cell_final_runs(
                    tables.plan_cell(cell('lac', '3', row, name), 'photos'), known
                )
            )
            for name in ('VOC', 'COCO')
        ]

    parts = 'AN + PLC + LAC + two-stage'
    assert tuple(map(sum, zip(*of_table(parts), strict=True))) == (9, 10) and of_table(
        f'{parts} + memory queue'
    ) == [(0, 5), (3, 5)]
    large = known[
        (known.loss == 'lac')
        & (known.dataset == 'voc12_animals')
        & (known.seed == 0)
        & known.hparams.str.contains(r'"queue": (?:4096|8192)')
    ]
    # a run of LAC's second search differs in more than the queue
    others = large.hparams.str.replace(r'"queue": \d+', '', regex=True)
    alike = large[others.duplicated(keep=False)]
    assert len(alike) == 2 and alike.test_map.nunique() == 1


def cell_of_table(**changes):
    usual = {'printed': '86.5', 'state': 'done', 'metric': 'mAP', 'ours': 71.0, 'interval': 2.5}
    usual |= {'n': 10, 'gain_published': 1.4, 'gain': 2.6, 'gain_half': 1.9, 'uncounted': ''}
    return usual | {'added': False} | changes


NO_GAIN = {'gain': math.nan, 'gain_published': math.nan, 'gain_half': math.nan}


@pytest.mark.parametrize(
    ('changes', 'text'),
    [
        ({}, '+1.4 / +2.6 ± 1.9 ▮▮▮'),
        ({'gain': -1.2}, '+1.4 / −1.2 ± 1.9 ▯'),
        ({'gain': 0.3}, '+1.4 / +0.3 ± 1.9'),
        ({'gain': 12.0}, '+1.4 / +12.0 ± 1.9 ▮▮▮▮▮▮▮▮…'),
        ({'gain_published': math.nan}, 'lost / +2.6 ± 1.9 ▮▮▮'),
        ({'gain_published': math.nan, 'added': True}, '– / +2.6 ± 1.9 ▮▮▮'),
        ({'gain': math.nan, 'state': 'not exercised'}, '+1.4 / not exercised'),
        ({'gain': math.nan, 'state': 'missing'}, '+1.4 / missing'),
        ({'gain': math.nan, 'state': 'none'}, '+1.4'),
        (NO_GAIN, '86.5 / 71.0 ± 2.5'),
        ({**NO_GAIN, 'state': 'partly', 'n': 2}, '86.5 / 71.0 ± 2.5 (2 seeds)'),
        ({'metric': 'micro-F1'}, '86.5 / 71.0 ± 2.5'),
    ],
)
def test_a_cell_has_its_gain_or_its_level(changes, text):
    assert tables.cell_gain_text(cell_of_table(**changes)) == text
