"Published beside ours: which runs stand behind a cell, and what the table makes of those that are there."
import math
from dataclasses import replace

import pandas as pd
import pytest

from spml_nb.replication import tables as papers, published as published_tables
from spml_nb.base import settings
from spml_nb import sweeps
from spml_nb.replication.claims import claims, decide, our_value
from spml_nb.base.errors import SpmlError
from spml_nb.runs.config import Config, resolve


def cell(paper, table, row, column):
    tidy = published_tables.cells(paper, table)
    return tidy[(tidy.row == row) & (tidy.column == column)].iloc[0].to_dict()


def known(*runs):
    "A table of record made of (configuration, val mAP, test mAP)."
    return pd.DataFrame([{'key': sweeps.key(c), 'val_map': val, 'test_map': test} for c, val, test in runs], columns=['key', 'val_map', 'test_map']).set_index('key')


@pytest.mark.parametrize('suite', published_tables.SUITES)
@pytest.mark.parametrize('paper', published_tables.papers())
def test_every_cell_has_runs_or_says_why(paper, suite):
    for table in published_tables.tables(paper):
        for each in published_tables.cells(paper, table).to_dict('records'):
            needed = papers.plan(each, suite)
            assert bool(needed.search) != bool(needed.why), each
            for config in needed.search: assert resolve(Config(**{**config.__dict__, 'hparams': {**config.hparams, **needed.stated}}))
            if needed.search and suite != 'paper': assert len(needed.search) == sweeps.BUDGET


def test_what_the_cell_states_wins_over_what_was_searched():
    needed = papers.plan(cell('two_way', '1', 'T_P = 4', 'mAP@class / T_N = 1'), 'mini')
    tried = known(*[(c, 50 + 10 * (c.hparams == {'T_pos': 1}), 1) for c in needed.search])
    final = papers.finals(needed, tried, seeds=(0, 7))
    assert [(c.seed, c.label_seed, c.hparams) for c in final] == [(s, s, {'T_pos': 4, 'T_neg': 1, 'bucket': 128}) for s in (0, 7)]
    assert papers.finals(needed, tried.iloc[:3]) == []   # the search has a run missing


@pytest.mark.parametrize(('where', 'expected'), [
    (('opml', 'II', '1 P. & 0 N. / OPML-SP (Ours)', 'VOC'), {'optimizer': 'sgd', 'lr': 5e-3, 'head_lr_multiplier': 1.0, 'batch_size': 8}),
    (('opml', 'II', '1 P. & 0 N. / LL-R', 'VOC'), {'optimizer': 'sgd', 'lr': 5e-3, 'stop_below': 3.0}),
    (('two_way', '7', 'MSCOCO / Ours', 'mAP@class / ResNet50'), {'views': 'crop', 'hold_out': False, 'precision': 'fp16', 'batch_size': 512}),
    (('lac', '2', 'Ours', 'LEM / VOC'), {'normalise': False, 'freeze_batchnorm': True, 'frozen_stages': 2, 'ema': 0.9997})])
def test_the_papers_own_suite_runs_its_presets(where, expected):
    needed = papers.plan(cell(*where), 'paper')
    for config in needed.search: assert {name: getattr(config, name) for name in expected} == expected
    tried = known(*[(c, 50, 50) for c in needed.search])
    assert [(c.seed, c.label_seed) for c in papers.finals(needed, tried)] == [(s, 1200) for s in (0, 1, 2)]   # one draw of the observed labels


def test_a_table_counts_seeds_and_differences():
    needed = papers.plan(cell('hml', '2', 'WAN', 'VOC12'), 'mini')
    tried = known(*[(c, 50, 70) for c in needed.search])
    both = pd.concat([tried, known(*[(c, 50, 70 + c.seed) for c in papers.finals(needed, tried)[1:]])])
    tidy = papers.table('hml', '2', 'mini', both).set_index(['row', 'column'])
    wan, an = tidy.loc[('WAN', 'VOC12')], tidy.loc[('AN', 'VOC12')]
    assert wan.state == 'done' and wan.n == 3 and wan.ours == 71 and wan.sd == 1 and wan.difference == pytest.approx(71 - 86.5)
    assert wan.seeds == '{"0": 70.0, "1": 71.0, "2": 72.0}' and an.state == 'missing' and math.isnan(an.ours)
    text = papers.wide(tidy.reset_index())
    assert text.loc['WAN', 'VOC12'] == '86.5 / 71.0 (1.0) ×3, -15.5' and text.loc['AN', 'VOC12'] == '85.1 / missing'


def test_ranks_are_compared_per_column():
    tidy = pd.DataFrame({'column': ['A'] * 3 + ['B'] * 2, 'published': [1, 2, 3, 1, 2], 'ours': [30.0, 20, 10, 1, 2]})
    ranks = papers.rank_correlation(tidy).set_index('column')
    assert ranks.spearman['A'] == -1 and math.isnan(ranks.spearman['B']) and ranks.methods.tolist() == [3, 2]


def test_f1_is_taken_at_the_papers_threshold():
    assert papers.measure('micro-F1', 'em') == ('test_micro_f1_at_0.75', 100.0) and papers.measure('macro-F1', 'an') == ('test_macro_f1_at_0.5', 100.0)
    with pytest.raises(SpmlError, match="unknown measure 'statistic'"): papers.measure('statistic', 'an')


def test_wrong_names_are_refused():
    with pytest.raises(SpmlError, match="unknown suite 'maxi'; allowed: paper, mini, photos"): papers.table('hml', '2', 'maxi', pd.DataFrame())
    with pytest.raises(SpmlError, match="unknown table of 'hml' '9'"): papers.needed('hml', '9', 'mini', pd.DataFrame())
    with pytest.raises(SpmlError, match="unknown paper 'hmm'"): papers.needed('hmm', None, 'mini', pd.DataFrame())
    with pytest.raises(SpmlError, match="nothing of hml, table 1 can be run in the suite 'mini'"): papers.sweep('hml', '1', 'mini')


def test_claims_are_decided_by_runs():
    claim = next(c for c in claims('hml') if c.tables == ('5',))
    lines = []
    for each in published_tables.cells('hml', '5').to_dict('records'):
        needed = papers.plan(each, 'mini')
        tried = [(c, 50, 70) for c in needed.search]
        lines += tried + [(c, 50, each['mean'] - 10) for c in papers.finals(needed, known(*tried))]
    found = known(*lines)
    found = found[~found.index.duplicated(keep='last')]
    assert decide(claim, our_value('mini', found)).verdict == 'holds'
    upside_down = found.assign(test_map=-found.test_map)
    assert decide(claim, our_value('mini', upside_down)).verdict == 'does not hold'
    assert decide(claim, our_value('mini', found.iloc[:0])).verdict == 'not run'


def test_table_8_is_the_record_of_transfers():
    file = settings.path('outputs') / 'two_way' / 'transfer.csv'
    cells = papers.table('two_way', '8', 'mini', known())
    assert set(cells.state[cells.column.isin(['ImageNet', 'Transfer / CUB'])]) == {'missing'} and set(cells.state[cells.column == 'Transfer / SUN']) == {'none'}
    file.parent.mkdir(parents=True)
    file.write_text('row,column,seed,accuracy,run\nOurs,bird shapes,0,40.0,a\nOurs,bird shapes,1,44.0,b\nOurs,bird shapes,9,0.0,c\nASL,bird shapes,0,30.0,d\n')
    found = papers.table('two_way', '8', 'mini', known()).set_index(['row', 'column'])
    ours = found.loc[('Ours', 'Transfer / CUB')]
    assert (ours.ours, ours.n, ours.state, ours.why) == (42, 2, 'partly', '') and found.loc[('Softmax', 'Transfer / CUB')].state == 'missing'
    record = known((Config(loss='an'), 1.0, 2.0))
    assert papers.table('two_way', '8', 'photos', record).state.eq('none').all()


def test_a_curve_over_shares_of_labels_takes_the_choice_made_on_single_positives():
    single = cell('hml', '2', 'HML (Ours)', 'VOC12')
    partial = {**single, 'config': {**single['config'], 'labels': 'partial-0.3'}}
    a, b = (papers.plan(each, 'mini') for each in (single, partial))
    assert a.search == b.search and (a.labels, b.labels) == (None, 'partial-0.3')
    tried = known(*[(c, 50 + k, 1) for k, c in enumerate(a.search)])
    assert [replace(c, labels='single') for c in papers.finals(b, tried)] == papers.finals(a, tried)
    assert {c.labels for c in papers.finals(b, tried)} == {'partial-0.3'}
