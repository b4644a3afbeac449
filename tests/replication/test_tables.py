"Published beside ours: which runs stand behind a cell, and what the table makes of those that are there."
import json
import math
from dataclasses import replace

import pandas as pd
import pytest

from spml_nb import replication, sweeps
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.replication import published, tables
from spml_nb.runs.config import Config, resolve


def cell(paper, table, row, column):
    tidy = published.cells(paper, table)
    return tidy[(tidy.row == row) & (tidy.column == column)].iloc[0].to_dict()


def known(*runs):
    "A table of record made of (configuration, val mAP, test mAP)."
    return pd.DataFrame([{'key': sweeps.key(c), 'val_map': val, 'test_map': test} for c, val, test in runs], columns=['key', 'val_map', 'test_map']).set_index('key')


@pytest.mark.parametrize('suite', ('paper', *published.SUITES))
@pytest.mark.parametrize('paper', published.papers())
def test_every_cell_has_runs_or_says_why(paper, suite):
    configs = {}
    for table in published.tables(paper):
        for each in published.cells(paper, table).to_dict('records'):
            needed = tables.plan(each, suite)
            assert bool(needed.search) != bool(needed.why), each
            configs |= {json.dumps({**c.__dict__, 'hparams': {**c.hparams, **needed.stated}}): None for c in needed.search}
            if needed.search and suite != 'paper': assert len(needed.search) == sweeps.BUDGET
    for config in configs: assert resolve(Config(**json.loads(config)))


def test_what_the_cell_states_wins_over_what_was_searched():
    needed = tables.plan(cell('two_way', '1', 'T_P = 4', 'mAP@class / T_N = 1'), 'mini')
    tried = known(*[(c, 50 + 10 * (c.hparams == {'T_pos': 1}), 1) for c in needed.search])
    final = tables.finals(needed, tried, seeds=(0, 7))
    assert [(c.seed, c.label_seed, c.hparams) for c in final] == [(s, s, {'T_pos': 4, 'T_neg': 1, 'bucket': 128}) for s in (0, 7)]
    assert tables.finals(needed, tried.iloc[:3]) == []   # the search has a run missing


@pytest.mark.parametrize(('where', 'expected'), [
    (('opml', 'II', '1 P. & 0 N. / OPML-SP (Ours)', 'VOC'), {'optimizer': 'sgd', 'lr': 5e-3, 'head_lr_multiplier': 1.0, 'batch_size': 8}),
    (('opml', 'II', '1 P. & 0 N. / LL-R', 'VOC'), {'optimizer': 'sgd', 'lr': 5e-3, 'stop_below': 3.0}),
    (('two_way', '7', 'MSCOCO / Ours', 'mAP@class / ResNet50'), {'views': 'crop', 'hold_out': False, 'precision': 'fp16', 'batch_size': 512}),
    (('lac', '2', 'Ours', 'LEM / VOC'), {'normalise': False, 'freeze_batchnorm': True, 'frozen_stages': 2, 'ema': 0.9997})])
def test_the_papers_own_suite_runs_its_presets(where, expected):
    needed = tables.plan(cell(*where), 'paper')
    for config in needed.search: assert {name: getattr(config, name) for name in expected} == expected
    tried = known(*[(c, 50, 50) for c in needed.search])
    assert [(c.seed, c.label_seed) for c in tables.finals(needed, tried)] == [(s, 1200) for s in (0, 1, 2)]   # one draw of the observed labels


def test_a_table_counts_seeds_and_differences():
    needed = tables.plan(cell('hml', '2', 'WAN', 'VOC12'), 'mini')
    tried = known(*[(c, 50, 70) for c in needed.search])
    both = pd.concat([tried, known(*[(c, 50, 70 + c.seed) for c in tables.finals(needed, tried)[1:]])])
    both['run'] = [f'run-{k}' for k in range(len(both))]
    whole = tables.table('hml', '2', both)
    tidy = whole.of('mini').set_index(['row', 'column'])
    wan, an = tidy.loc[('WAN', 'VOC12')], tidy.loc[('AN', 'VOC12')]
    assert wan.state == 'done' and wan.n == 3 and wan.ours == 71 and wan.sd == 1 and wan.difference == pytest.approx(71 - 86.5)
    assert wan.seeds == '{"0": 70.0, "1": 71.0, "2": 72.0}' and an.state == 'missing' and math.isnan(an.ours)
    assert wan.interval == pytest.approx(4.302653 / 3 ** 0.5) and list(json.loads(wan.runs)) == ['0', '1', '2'] and an.interval != an.interval
    assert both.test_map[both.run == json.loads(wan.runs)['2']].item() == 72 and (wan.command, an.command) == ('', 'spml sweep hml --table 2 --suite mini')
    text = published.wide(whole.of('mini').assign(text=lambda t: t.apply(tables.cell_text, axis=1)), 'text')
    assert text.loc['WAN', 'VOC12'] == '86.5 / 71.0 (1.0) ×3 / -15.5' and text.loc['AN', 'VOC12'] == '85.1 / missing'
    assert whole.progress('mini') == {'done': 1, 'todo': 23, 'total': 24} and whole.progress('photos') == {'done': 0, 'todo': 24, 'total': 24}


def test_ranks_are_compared_per_column():
    tidy = pd.DataFrame({'column': ['A'] * 3 + ['B'] * 2, 'published': [1, 2, 3, 1, 2], 'ours': [30.0, 20, 10, 1, 2]})
    ranks = tables.rank_correlation(tidy).set_index('column')
    assert ranks.spearman['A'] == -1 and math.isnan(ranks.spearman['B']) and ranks.methods.tolist() == [3, 2]


def test_f1_is_taken_at_the_papers_threshold():
    assert tables.measure('micro-F1', 'em') == ('test_micro_f1_at_0.75', 100.0) and tables.measure('macro-F1', 'an') == ('test_macro_f1_at_0.5', 100.0)
    with pytest.raises(SpmlError, match="unknown measure 'statistic'"): tables.measure('statistic', 'an')


def test_wrong_names_are_refused():
    with pytest.raises(SpmlError, match="unknown suite 'maxi'; allowed: paper, mini, photos"): tables.table('hml', '2', pd.DataFrame(), ['maxi'])
    with pytest.raises(SpmlError, match="unknown table of 'hml' '9'"): tables.needed('hml', '9', 'mini', pd.DataFrame())
    with pytest.raises(SpmlError, match="unknown paper 'hmm'"): tables.needed('hmm', None, 'mini', pd.DataFrame())
    with pytest.raises(SpmlError, match="nothing of hml, table 1 can be run in the suite 'mini'"): tables.sweep('hml', '1', 'mini')


def test_table_8_is_the_record_of_transfers():
    file = settings.path('outputs') / 'two_way' / 'transfer.csv'
    cells = tables.table('two_way', '8', known(), ['mini']).cells
    assert set(cells.state[cells.column.isin(['ImageNet', 'Transfer / CUB'])]) == {'missing'} and set(cells.state[cells.column == 'Transfer / SUN']) == {'none'}
    file.parent.mkdir(parents=True)
    file.write_text('row,column,seed,accuracy,run\nOurs,bird shapes,0,40.0,a\nOurs,bird shapes,1,44.0,b\nOurs,bird shapes,9,0.0,c\nASL,bird shapes,0,30.0,d\n')
    found = tables.table('two_way', '8', known(), ['mini']).cells.set_index(['row', 'column'])
    ours = found.loc[('Ours', 'Transfer / CUB')]
    assert (ours.ours, ours.n, ours.state, ours.why) == (42, 2, 'partly', '') and found.loc[('Softmax', 'Transfer / CUB')].state == 'missing'
    record = known((Config(loss='an'), 1.0, 2.0))
    assert tables.table('two_way', '8', record, ['photos']).cells.state.eq('none').all()


def test_a_curve_over_shares_of_labels_takes_the_choice_made_on_single_positives():
    single = cell('hml', '2', 'HML (Ours)', 'VOC12')
    partial = {**single, 'config': {**single['config'], 'labels': 'partial-0.3'}}
    a, b = (tables.plan(each, 'mini') for each in (single, partial))
    assert a.search == b.search and (a.labels, b.labels) == (None, 'partial-0.3')
    tried = known(*[(c, 50 + k, 1) for k, c in enumerate(a.search)])
    assert [replace(c, labels='single') for c in tables.finals(b, tried)] == tables.finals(a, tried)
    assert {c.labels for c in tables.finals(b, tried)} == {'partial-0.3'}


def test_ranks_are_taken_within_a_data_set_and_along_rows_of_measures():
    def with_ours(number, ours):
        whole = tables.table('two_way', number, pd.DataFrame(), ['mini'])
        return whole._replace(cells=whole.cells.assign(ours=ours)).ranks('mini')
    within = with_ours('7', lambda t: -t.published)
    assert set(within.within) == {'MSCOCO', 'VISPR', 'VAW', 'WIDER', 'VOC2007', 'VOC2012'} and (within.methods == 5).all()
    assert within.spearman.tolist() == pytest.approx([-1] * 24)
    along = with_ours('4', lambda t: t.published).set_index('place')
    assert along.index.tolist() == ['mAP@class', 'mAP@sample'] and along.spearman.tolist() == pytest.approx([1, 1]) and (along.methods == 6).all()


def test_the_facade_gives_the_table():
    whole = replication.table('hml', '5', pd.DataFrame())
    assert isinstance(whole, replication.Table) and whole.title == 'Ablation study on positives and negatives for VOC12'
    assert list(whole.rows('mini')) == ['No Margin', 'Only Positives', 'Only Negatives', 'Positives & Negatives'] and whole.columns('photos') == {'mAP': 'ccp'}
    assert whole.notes()[0][0] == 'Only Positives'
