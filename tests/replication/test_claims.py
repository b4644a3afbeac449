"""The claims of the papers' texts: each a sentence about names that exist, decided by numbers in the same way as by hand."""
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from spml_nb import sweeps
from spml_nb.base.errors import SpmlError
from spml_nb.replication import claims, drawing, published
from spml_nb.replication import tables as papers
from spml_nb.replication.claims import Claim, Number, TableScores, above, between, decide, peak, steadier, steady, trend, verdict_of
from spml_nb.runs.config import Config, resolve

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = claims.claims()


def claim_named(id): return next(claim for claim in CLAIMS if claim.id == id)


def operands(claim):
    "Every operand that a claim asks for, and its places."
    asked = []
    places = claim.places(lambda operand: asked.append(operand) or Number({0: 1.0}))
    return asked, places


# Form

def test_there_are_claims_of_every_paper_and_none_twice():
    assert len(CLAIMS) == 49 and list(dict.fromkeys(claim.paper for claim in CLAIMS)) == list(published.ORDER)
    assert len({claim.id for claim in CLAIMS}) == len({claim.sentence for claim in CLAIMS}) == len(CLAIMS)
    assert claims.claims('lac') == [claim for claim in CLAIMS if claim.paper == 'lac']
    with pytest.raises(SpmlError, match="unknown paper 'hmm'"): claims.claims('hmm')


@pytest.mark.parametrize('claim', CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_is_a_sentence_about_runs_that_exist(claim):
    assert claim.where and claim.sentence[0].isupper() and claim.sentence.endswith('.') and claim.sentence.count('. ') == 0
    asked, places = operands(claim)
    assert places and len({place.name for place in places}) == len(places)
    for place in places:
        assert place.effects and None not in place.effects
        if '{:+.2f}' != place.form != '{:.2f}': assert len(place.left) >= 3 and len(place.right) in (0, len(place.left))
    cells = {(table, row, column): config or pretraining for table in claim.tables for row, column, config, pretraining in
             published.cells(claim.paper, table)[['row', 'column', 'config', 'pretraining']].itertuples(index=False)}
    assert all(cells[operand.cell] for operand in asked if operand.cell)
    resolved = [resolve(Config(**operand.config)) for operand in asked if operand.config]
    assert all(a != b for k, a in enumerate(resolved) for b in resolved[:k])
    assert {operand.config['dataset'] for operand in asked if operand.config} <= published.MINIATURES.keys()


def test_a_name_that_its_table_lacks_is_refused():
    table = TableScores('two_way', '2', lambda operand: Number({}))
    for where, message in ((('ε = 4', 'ε = 4'), "unknown row of table 2 of 'two_way' 'ε = 4'; allowed: mAP@class, mAP@sample"),
                           (('mAP@class', ['ε = 4', 'ε = 5']), "unknown column of table 2 of 'two_way' 'ε = 5'")):
        with pytest.raises(SpmlError, match=message): table[where]


# From numbers to a verdict

def seeds(*values): return dict(enumerate(values))
def side(**values): return {name: Number(each, 'mini_voc for ', name) for name, each in values.items()}
def one(place): return verdict_of([place]).places[0]


@pytest.mark.parametrize(('left', 'right', 'verdict'), [
    (seeds(3, 3.1, 3.2), seeds(2, 2.1, 2.2), 'holds'), (seeds(2, 2.1, 2.2), seeds(3, 3.1, 3.2), 'does not hold'),
    (seeds(18.9, 18.95, 18.952), seeds(18.92, 18.9, 18.949), 'undecided'),   # a hundredth, less than seeds differ by
    (seeds(1, 2, 3), seeds(1, 2, 3), 'undecided'),                           # the same training twice
    (seeds(1), seeds(1), 'undecided'), (seeds(1.1), seeds(1), 'holds'),      # one seed has no spread
    (seeds(1, 9, 5), seeds(0.9, 8.9, 4.9), 'holds'),                         # seeds are paired: what they share does not count
    ({}, seeds(1, 2), 'not run'), ({0: 1.0}, {1: 0.5}, 'not run'),
    ({None: 1}, {None: 1}, 'does not hold')])                                # published numbers are taken as they are
def test_a_difference_within_the_spread_over_seeds_is_a_tie(left, right, verdict):
    assert verdict_of([above('VOC', side(a=left), side(b=right))]).verdict == verdict


def test_the_spread_is_half_the_interval_of_paired_differences():
    place = one(above('VOC', side(a=seeds(4, 5, 6)), side(b=seeds(2, 2, 2))))
    assert (place.effect.number, place.seeds) == (3, 3) and claims.spread(place.effect) == pytest.approx(4.302653 / 3 ** 0.5)
    assert str(place) == 'mini_voc for VOC: +3.00 ± 2.48, 3 seeds, holds'


def test_only_common_seeds_are_compared_and_their_number_is_told():
    assert str(one(above('VOC', side(a=seeds(5)), side(b=seeds(4, 9, 9))))) == 'mini_voc for VOC: +1.00, 1 seed, holds'
    assert one(above('VOC', side(a=seeds(5, 6, 7)), side(b=seeds(4, 5)))).seeds == 2


def test_a_claim_against_many_holds_only_with_all_of_them_and_fails_with_one():
    left, low, high, gone = side(a=seeds(5, 5.1, 5.2)), side(low=seeds(4, 4.1, 4.2)), side(high=seeds(6, 6.1, 6.2)), side(gone={}, lost={})
    assert str(one(above('VOC', left, low | gone))) == 'mini_voc for VOC (2 of 4 operands missing)'
    assert one(above('VOC', left, low)).outcome == 'holds'
    fails = one(above('VOC', left, low | gone | high))
    assert fails.outcome == 'fails' and fails.effect.between == 'against high'
    assert one(above('VOC', left | high, low)).effect.between == 'a' and one(above('VOC', left | low, high | low)).effect.between == 'low against high'


SIDES = side(a=seeds(1, 1.5, 2), b=seeds(1, 1.5, 2), c=seeds(2, 2.5, 3), d=seeds(4, 4.5, 5), noise=seeds(0, 7, 2))
def of(names): return {name: SIDES[name] for name in names.split()}

@pytest.mark.parametrize(('place', 'verdict'), [
    (above('', of('b'), of('a'), by=0), 'holds'), (above('', of('c'), of('a'), by=1), 'holds'),
    (between('', of('c'), of('a'), low=1, high=2), 'holds'), (between('', of('c'), of('a'), high=0.5), 'does not hold'),
    (between('', of('noise'), low=0, high=4), 'undecided'), (steadier('', of('a b'), of('a c')), 'holds'),
    (steadier('', of('a c'), of('a b')), 'does not hold'), (steady('', of('a c'), within=1), 'holds'),
    (trend('', of('a c d')), 'holds'), (trend('', of('a noise d')), 'undecided'), (trend('', of('a c d'), of('a b noise')), 'undecided'),
    (trend('', of('a c d'), falling=True), 'does not hold'), (peak('', of('a d c'), best=range(1, 2)), 'holds')])
def test_every_kind_knows_its_bound_and_ties(place, verdict): assert verdict_of([place]).verdict == verdict


def test_a_verdict_is_the_worst_of_its_places():
    def verdict(*each): return verdict_of([between(f'place {k}', {'a': Number(seeds(*values))}, low=0) for k, values in enumerate(each)]).verdict
    high, low, tie, gone = (5, 5, 5), (-5, -5, -5), (-1, 0, 2), ()
    assert [verdict(high, other) for other in (high, tie, low, gone)] == ['holds', 'undecided', 'does not hold', 'holds']
    assert verdict(tie, low) == 'does not hold' and verdict(gone, gone) == 'not run'


# The papers' numbers

def test_what_the_papers_own_numbers_say():
    verdicts = {claim.id: claims.published_verdict(claim) for claim in CLAIMS}
    assert {id for id, verdict in verdicts.items() if verdict == 'does not hold'} == {'hml-full-ls', 'lac-role', 'two_way-others'}
    lost = {'two_way-bucket', 'two_way-bucket-sample', 'em_apl-parts', 'em_apl-f1', 'em_apl-f1-full'}
    assert {id for id, verdict in verdicts.items() if verdict == 'lost'} == lost
    assert {claim.id for claim in CLAIMS if verdicts[claim.id] == 'not in a table'} == {claim.id for claim in CLAIMS if not claim.tables} - lost
    assert [round(place.effect.number, 2) for place in decide(claim_named('two_way-related'), claims.published_value).places] == [2.29, 0.71]


# Our numbers

@pytest.fixture
def on_record(monkeypatch):
    "Every run of the record, with the committed arrays of figures at hand."
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))
    return sweeps.finished()


def final_scores(record, loss, dataset, labels):
    "Test mAP by seed of a method's choice: the best validation mAP of seed 0 among the settings that all three seeds were trained with."
    settings = ['head', 'regime', 'epochs', 'patience', 'lr', 'optimizer', 'backbone', 'hparams']
    runs = record[(record.loss == loss) & (record.dataset == dataset) & (record.labels == labels) & (record.seed == record.label_seed)
                  & (record['head'] == ('cosine' if loss == 'hml' else 'linear'))]
    groups = [group.set_index('seed').sort_index() for _, group in runs.groupby(settings) if len(group) == 3]
    return max(groups, key=lambda group: group.val_map[0]).test_map.to_numpy()


@pytest.mark.parametrize(('id', 'left', 'right', 'labels', 'by'), [
    ('em_apl-em', 'em', 'an', 'single', 0), ('opml-zlpr', 'opml', 'zlpr', 'single', 0), ('hml-full', 'hml', 'bce', 'full', 1)])
def test_verdicts_are_those_of_a_paired_t_test_on_the_record(on_record, id, left, right, labels, by):
    record = pd.read_csv(ROOT / 'outputs' / 'runs.csv')
    places = decide(claim_named(id), claims.our_value('mini', on_record)).places
    assert len(places) == 4
    for place in places:
        ours, theirs = (final_scores(record, loss, place.place.name.split(' for ')[0], labels) for loss in (left, right))
        interval = ttest_rel(ours, theirs).confidence_interval(0.95)
        expected = 'holds' if interval.low > by else 'fails' if interval.high < by else 'tie'
        assert place.effect.number == pytest.approx(np.mean(ours - theirs), abs=1e-3) and place.outcome == expected
        assert claims.spread(place.effect) == pytest.approx((interval.high - interval.low) / 2, abs=1e-3)


def test_a_range_is_that_of_the_record(on_record):
    record = pd.read_csv(ROOT / 'outputs' / 'runs.csv').assign(hparams=lambda runs: [json.loads(text) for text in runs.hparams])
    runs = record[(record.loss == 'lac') & (record.dataset == 'mini_coco') & (record.seed == 0)]
    scores = [score for score, h in zip(runs.test_map, runs.hparams, strict=True) if h['threshold'] == h['stage2_threshold'] and h['queue'] == 512]
    place = decide(claim_named('lac-threshold'), claims.our_value('mini', on_record)).places[0]
    assert len(scores) == 5 and place.effect.number == pytest.approx(max(scores) - min(scores), abs=1e-3) and place.outcome == 'fails'


def test_a_broken_claim_and_a_broken_record_are_seen(on_record):
    claim, value = claim_named('em_apl-em'), claims.our_value('mini', on_record)
    right = {place.place.name: place.outcome for place in decide(claim, value).places}
    assert right['mini_voc for VOC'] == 'holds'
    turned = Claim(claim.id, claim.where, claim.sentence, lambda table: table.everywhere(above, 'AN', 'EM'), claim.tables)
    upside_down = claims.our_value('mini', on_record.assign(test_map=-on_record.test_map))
    for broken in (decide(turned, value), decide(claim, upside_down)):
        assert broken.verdict == 'does not hold' and {place.place.name: place.outcome for place in broken.places}['mini_voc for VOC'] == 'fails'


def arrays_of(paper, number): return drawing.read_collected(ROOT / 'outputs' / paper / f'fig{number}.npz')
def places_of(id, record): return decide(claim_named(id), claims.our_value('mini', record)).places


def test_a_fall_in_long_training_is_read_from_the_curves_of_the_figure(on_record):
    curves = arrays_of('opml', 4)
    def drop(dataset, series):
        curve = curves.part(dataset, series)['val_map']
        return max(curve) - curve[-1]
    places = places_of('opml-stable', on_record)
    assert len(places) == 2
    for place in places:
        dataset = place.place.name.split(' for ')[1].split(',')[0]
        low = min(drop(dataset, series) - drop(dataset, 'OPML + high rank') for series in ('BCE', 'OPML'))
        assert place.seeds == 1 and place.effect.number == pytest.approx(low, abs=1e-3) and place.outcome == ('holds' if low > 0 else 'fails')


def test_how_sure_a_network_is_of_positives_is_read_from_the_last_epoch_of_the_figure(on_record):
    shown, places = arrays_of('em_apl', 9), places_of('em_apl-positives', on_record)
    assert len(places) == 8
    for place in places:
        dataset, group = place.place.name.split(' for ')[1].split(', probability of ')
        em, an = (shown.part(dataset, series)['probability'][-1, ('annotated positives', 'unannotated positives').index(group), 1] for series in ('EM', 'AN'))
        assert place.effect.number == pytest.approx(100 * (em - an), abs=1e-3)


def test_without_the_arrays_of_its_figure_or_their_runs_nothing_is_decided(on_record, monkeypatch, tmp_path):
    assert {place.outcome for place in places_of('opml-stable', on_record.iloc[:0])} == {'missing'}
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path))
    for id in ('opml-stable', 'em_apl-positives'): assert {place.outcome for place in places_of(id, on_record)} == {'missing'}


@pytest.mark.parametrize('suite', ['mini', 'photos', 'paper'])
def test_a_real_data_set_counts_once_and_is_named(suite):
    report = claims.report(suite, pd.DataFrame(columns=['val_map', 'test_map'])).set_index('id')
    assert set(report.ours) == {'not run'}
    counts = report.places[['opml-zlpr', 'hml-hyperspherical']].tolist()
    others = report.missing['two_way-others'].split('; ')
    if suite == 'photos':
        assert counts == [1, 2] and report.missing[['opml-zlpr', 'opml-cub']].tolist() == ['ccp for VOC = COCO = NUS = CUB', 'ccp for CUB']
        assert 'ccp for Full Labels / VOC12 = COCO = CUB = NUS' in report.missing['hml-hyperspherical']
    if suite == 'mini':
        assert counts == [4, 8] and report.missing[['opml-cub', 'hml-both-margins']].tolist() == ['mini_cub for CUB', 'mini_voc, mAP']
        assert {f'mini_coco for MSCOCO = VISPR, mAP@class / {network}' for network in ('ResNet50', 'DenseNet169')} <= set(others)
        assert 'mini_voc for WIDER = VOC2007 = VOC2012, mAP@sample / ResNet50' in others
    if suite == 'paper': assert counts == [4, 8] and report.missing[['opml-cub', 'hml-both-margins']].tolist() == ['CUB', 'mAP']


def known_of(paper, table, suite, score):
    "Made-up finished runs of a table. score: function of (row, column, seed)."
    lines = {}
    for cell in published.cells(paper, table).to_dict('records'):
        plan = papers.plan(cell, suite)
        lines |= {sweeps.key(c): {'val_map': 50.0, 'test_map': 50.0} for c in plan.search}
        for config in papers.finals(plan, pd.DataFrame.from_dict(lines, orient='index')):
            lines[sweeps.key(config)] = {'val_map': 50.0, 'test_map': score(cell['row'], cell['column'], config.seed)}
    return pd.DataFrame.from_dict(lines, orient='index')


def test_a_report_gives_differences_spreads_and_seeds():
    known = known_of('opml', 'III', 'photos', lambda row, column, seed: {'OPML': 60.0, 'ZLPR': 60.0, 'ASL': 62.0 + seed, 'BCE': 50.0}.get(row, 55.0) + seed)
    report = claims.report('photos', known, 'opml').set_index('id')
    tie = report.loc['opml-zlpr']
    assert (tie.ours, tie.decided, tie.places, tie.fails, tie.ties, tie.seeds) == ('undecided', 1, 1, '', 'ccp for VOC = COCO = NUS = CUB', '3 seeds')
    assert tie.measured == 'ccp for VOC = COCO = NUS = CUB: +0.00 ± 0.00, 3 seeds, a tie'
    losses = report.loc['opml-losses']
    assert losses.ours == 'does not hold' and losses.measured == 'ccp for VOC = COCO = NUS = CUB: −3.00 ± 2.48 (against ASL), 3 seeds, fails'
    assert report.ours['opml-bce'] == 'holds'
    tables = {('opml', number): papers.table('opml', number, known, ['photos']).cells for number in published.tables('opml')}
    from_tables = claims.report('photos', known, 'opml', claims.our_value('photos', known, tables=tables))
    pd.testing.assert_frame_equal(from_tables.set_index('id'), report)
