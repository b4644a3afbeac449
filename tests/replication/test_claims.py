"""The claims of the papers' texts: each well formed, about names that exist, in configurations that can be run."""
from importlib.resources import files
from pathlib import Path

import pandas as pd
import pytest
import yaml

from spml_nb.replication import claims, drawing, pages, tables as papers
from spml_nb import sweeps
from spml_nb.replication import published
from spml_nb.replication.claims import Number, decide, told
from spml_nb.base.errors import SpmlError
from spml_nb.replication.published import METRICS, MINIATURES, merge, read
from spml_nb.runs.config import Config, resolve

CLAIMS = yaml.safe_load((files('spml_nb') / 'published' / 'claims.yml').read_text(encoding='utf-8'))['claims']
NEEDS = {'greater': {'right'}, 'trend': {'direction'}, 'peak': {'best'}, 'spread': set(), 'value': set()}
MAY = {'greater': {'by'}, 'trend': {'right'}, 'peak': set(), 'spread': {'within', 'right'}, 'value': {'low', 'high', 'right'}}
ALWAYS = {'id', 'paper', 'where', 'claim', 'kind', 'left'}
ONE_OF = {'value': {'low', 'high'}, 'spread': {'within', 'right'}}
OF_A_TABLE, OF_RUNS = {'table', 'right_table', 'right_at', 'at', 'note'}, {'datasets', 'metric', 'config', 'each', 'steps', 'published', 'note'}

def listed(value): return value if isinstance(value, list) else [value]
def of_a_table(): return [pytest.param(c, id=c['id']) for c in CLAIMS if 'table' in c]
def of_runs(): return [pytest.param(c, id=c['id']) for c in CLAIMS if 'table' not in c]

def fault(claim):
    "What is wrong with a claim's keys, '' if nothing is."
    kind = claim.get('kind')
    if kind not in NEEDS: return f'unknown kind {kind!r}'
    allowed = ALWAYS | NEEDS[kind] | MAY[kind] | (OF_A_TABLE if 'table' in claim else OF_RUNS)
    lacking = (ALWAYS | NEEDS[kind] | ({'table'} if 'table' in claim else {'datasets'})) - claim.keys()
    if kind in ONE_OF and not claim.keys() & ONE_OF[kind]: lacking = {*lacking, ' or '.join(sorted(ONE_OF[kind]))}
    return ', '.join([*(f'unknown {k}' for k in sorted(claim.keys() - allowed)), *(f'without {k}' for k in sorted(lacking))])

def members(name, axis):
    "The rows or columns that a name stands for: itself, its group's members, or the same member of every group."
    if name in axis: return [name]
    return [n for n in axis if n.startswith(f'{name} / ')] or [n for n in axis if n.endswith(f' / {name}')]

def axes(claim, side='left'):
    "(names that are compared, names of the other axis) of a side."
    spec = published.read(claim['paper'])['tables'][claim.get(f'{side}_table', claim['table'])]
    rows, columns = list(spec['rows']), list(spec['columns'])
    return (rows, columns) if members(listed(claim[side])[0], rows) else (columns, rows)

def sides(claim): return [side for side in ('left', 'right') if side in claim]

def configs(claim):
    "Every configuration that a claim compares."
    own = claim['datasets'] if isinstance(claim['datasets'], dict) else {name: {} for name in claim['datasets']}
    sides = [side for key in ('left', 'right') for side in listed(claim.get(key, []))]
    return [merge(read(claim['paper']).get('config'), claim.get('config'), side, step, each, {'dataset': name, **given})
            for name, given in own.items() for side in sides for step in claim.get('steps', [{}]) for each in claim.get('each', [{}])]


def test_there_are_claims_of_every_paper_and_none_twice():
    assert len(CLAIMS) == 49
    assert {c['paper'] for c in CLAIMS} == set(published.papers())
    assert len({c['id'] for c in CLAIMS}) == len({c['claim'] for c in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize('claim', CLAIMS, ids=lambda c: c['id'])
def test_a_claim_is_a_sentence_with_a_place_and_all_that_its_kind_needs(claim):
    assert fault(claim) == ''
    assert claim['id'].startswith(claim['paper'] + '-') and claim['where']
    assert claim['claim'][0].isupper() and claim['claim'].endswith('.') and claim['claim'].count('. ') == 0


@pytest.mark.parametrize('spoilt', [{'kind': 'bigger'}, {'rigth': 'AN'}, {'table': '2', 'metric': 'mAP'}, {'kind': 'trend'}, {'kind': 'value'}, {'within': 1}])
def test_a_claim_with_a_slip_is_found(spoilt):
    sound = {'id': 'hml-x', 'paper': 'hml', 'where': 'Table 2', 'claim': 'X.', 'kind': 'greater', 'left': 'HML (Ours)', 'right': 'AN', 'table': '2'}
    assert fault(sound) == '' and fault(sound | spoilt) != ''


@pytest.mark.parametrize('claim', of_a_table())
def test_the_names_of_a_claim_are_in_its_table(claim):
    unknown = [n for side in sides(claim) for n in listed(claim[side]) if not members(n, axes(claim, side)[0])]
    at = [('left', n) for n in listed(claim.get('at', []))] + [('right', n) for n in listed(claim.get('right_at', claim.get('at', []))) if 'right' in claim]
    assert unknown + [n for side, n in at if not members(n, axes(claim, side)[1])] == []


@pytest.mark.parametrize('claim', of_a_table())
def test_both_sides_of_a_claim_are_runs(claim):
    for side in sides(claim):
        axis, other = axes(claim, side)
        cells = published.cells(claim['paper'], claim.get(f'{side}_table', claim['table']))
        cells = cells if axis[0] in set(cells['row']) else cells.rename(columns={'row': 'column', 'column': 'row'})
        named = {m for n in listed(claim[side]) for m in members(n, axis)}
        at = {m for n in listed(claim.get(f'{side}_at', claim.get('at', other))) for m in members(n, other)}
        here = cells[cells['row'].isin(named) & cells['column'].isin(at)]
        assert len(here) == len(named) * len(at) and (here['config'].notna() | here['pretraining'].notna()).all()


@pytest.mark.parametrize('claim', of_runs())
def test_the_configurations_of_a_claim_resolve_and_differ(claim):
    each = configs(claim)
    resolved = [resolve(Config(**c)) for c in each]
    assert all(a != b for k, a in enumerate(resolved) for b in resolved[:k])
    assert {c['dataset'] for c in each} <= MINIATURES.keys() and all('labels' in c for c in each)
    assert set(listed(claim.get('metric', 'mAP'))) <= METRICS.keys() | claims.OF_FIGURES.keys()


@pytest.mark.parametrize('claim', [c for c in CLAIMS if c['kind'] in ('trend', 'peak', 'spread')], ids=lambda c: c['id'])
def test_a_sequence_has_three_values_or_more_and_its_peak_is_one_of_them(claim):
    length = len(claim.get('steps', listed(claim['left'])))
    assert length >= 3 and all(0 < k < length - 1 for k in claim.get('best', [1]))
    assert claim.get('direction', 'rising') in ('rising', 'falling')


ROOT = Path(__file__).resolve().parents[2]

@pytest.fixture
def on_record(monkeypatch):
    "Every run of the record, with the committed arrays of figures at hand."
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))
    return sweeps.finished()


def places_of(name, known):
    claim = next(c for c in CLAIMS if c['id'] == name)
    return {place.name: place for place in decide(claim, claims.our_value('mini', known)).places}


def arrays_of(paper, number): return drawing.read_collected(ROOT / 'outputs' / paper / f'fig{number}.npz')


def test_a_fall_in_long_training_is_read_from_the_curves_of_the_figure(on_record):
    curves = arrays_of('opml', 4)
    def drop(dataset, series):
        found = curves.part(dataset, series)['val_map']
        return max(found) - found[-1]
    places = places_of('opml-stable', on_record)
    assert len(places) == 2
    for place in places.values():
        dataset = place.name.split(' for ')[1].split(',')[0]
        low = min(drop(dataset, series) - drop(dataset, 'OPML + high rank') for series in ('BCE', 'OPML'))
        assert place.seeds == 1 and place.number == pytest.approx(low, abs=1e-3) and place.outcome == ('holds' if low > 0 else 'fails')


def test_how_sure_a_network_is_of_positives_is_read_from_the_last_epoch_of_the_figure(on_record):
    shown, places = arrays_of('em_apl', 9), places_of('em_apl-positives', on_record)
    assert len(places) == 8
    for place in places.values():
        dataset, group = place.name.split(' for ')[1].split(', probability of ')
        em, an = (shown.part(dataset, series)['probability'][-1, ('annotated positives', 'unannotated positives').index(group), 1] for series in ('EM', 'AN'))
        assert place.number == pytest.approx(100 * (em - an), abs=1e-3)


def test_without_the_arrays_of_its_figure_nothing_is_decided(on_record, monkeypatch, tmp_path):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path))
    for name in ('opml-stable', 'em_apl-positives'): assert {p.outcome for p in places_of(name, on_record).values()} == {'missing'}


def asked(values, **claim):
    "A made-up claim about runs, asked of made-up values: {name: {seed: value}}. A place of another data set has the same runs."
    whole = {'id': 'hml-x', 'paper': 'hml', 'datasets': ['voc12'], **claim}
    whole |= {side: [{'root': name} for name in listed(claim[side])] for side in ('left', 'right') if side in claim}
    def value(operand): return Number(values.get(operand.config['root'], {}), 'mini_voc', operand.config['root'])
    return whole, decide(whole, value)

def seeds(*values): return dict(enumerate(values))


@pytest.mark.parametrize(('left', 'right', 'verdict'), [
    (seeds(3, 3.1, 3.2), seeds(2, 2.1, 2.2), 'holds'), (seeds(2, 2.1, 2.2), seeds(3, 3.1, 3.2), 'does not hold'),
    (seeds(18.9, 18.95, 18.952), seeds(18.92, 18.9, 18.949), 'undecided'),   # a hundredth, less than seeds differ by
    (seeds(1, 2, 3), seeds(1, 2, 3), 'undecided'),                           # the same training twice
    (seeds(1), seeds(1), 'undecided'), (seeds(1.1), seeds(1), 'holds'),      # one seed has no spread
    (seeds(1, 9, 5), seeds(0.9, 8.9, 4.9), 'holds'),                         # seeds are paired: what they share does not count
    ({}, seeds(1, 2), 'not run'), ({0: 1.0}, {1: 0.5}, 'not run')])
def test_a_difference_within_the_spread_over_seeds_is_a_tie(left, right, verdict):
    assert asked({'a': left, 'b': right}, kind='greater', left='a', right='b')[1].verdict == verdict


def test_the_spread_is_half_the_interval_of_paired_differences():
    claim, verdict = asked({'a': seeds(4, 5, 6), 'b': seeds(2, 2, 2)}, kind='greater', left='a', right='b')
    place = verdict.places[0]
    assert (place.number, place.seeds) == (3, 3) and place.spread == pytest.approx(4.302653 / 3 ** 0.5)
    assert told(claim, place) == 'mini_voc for voc12, mAP: +3.00 ± 2.48, 3 seeds, holds'


def test_only_common_seeds_are_compared_and_their_number_is_told():
    claim, verdict = asked({'a': seeds(5), 'b': seeds(4, 9, 9)}, kind='greater', left='a', right='b')
    assert verdict.verdict == 'holds' and told(claim, verdict.places[0]) == 'mini_voc for voc12, mAP: +1.00, 1 seed, holds'
    assert asked({'a': seeds(5, 6, 7), 'b': seeds(4, 5)}, kind='greater', left='a', right='b')[1].places[0].seeds == 2


def test_a_claim_against_many_holds_only_with_all_of_them_and_fails_with_one():
    values = {'a': seeds(5, 5.1, 5.2), 'low': seeds(4, 4.1, 4.2), 'high': seeds(6, 6.1, 6.2)}
    claim, verdict = asked(values, kind='greater', left='a', right=['low', 'gone', 'gone too'])
    assert verdict.verdict == 'not run' and told(claim, verdict.places[0]) == 'mini_voc for voc12, mAP (2 of 4 operands missing)'
    assert asked(values, kind='greater', left='a', right=['low', 'gone', 'high'])[1].verdict == 'does not hold'
    assert asked(values, kind='greater', left='a', right=['low'])[1].verdict == 'holds'


@pytest.mark.parametrize(('words', 'verdict'), [
    ({'kind': 'greater', 'left': 'b', 'right': 'a', 'by': 0}, 'holds'), ({'kind': 'greater', 'left': 'c', 'right': 'a', 'by': 1}, 'holds'),
    ({'kind': 'value', 'left': 'c', 'right': 'a', 'low': 1, 'high': 2}, 'holds'), ({'kind': 'value', 'left': 'c', 'right': 'a', 'high': 0.5}, 'does not hold'),
    ({'kind': 'value', 'left': 'noise', 'low': 0, 'high': 4}, 'undecided'), ({'kind': 'spread', 'left': ['a', 'b'], 'right': ['a', 'c']}, 'holds'),
    ({'kind': 'spread', 'left': ['a', 'c'], 'right': ['a', 'b']}, 'does not hold'), ({'kind': 'spread', 'left': ['a', 'c'], 'within': 1}, 'holds'),
    ({'kind': 'trend', 'left': ['a', 'c', 'd'], 'direction': 'rising'}, 'holds'), ({'kind': 'trend', 'left': ['a', 'noise', 'd'], 'direction': 'rising'}, 'undecided'),
    ({'kind': 'trend', 'left': ['a', 'c', 'd'], 'direction': 'falling'}, 'does not hold'), ({'kind': 'peak', 'left': ['a', 'd', 'c'], 'best': [1]}, 'holds')])
def test_every_kind_knows_its_bound_and_ties(words, verdict):
    values = {'a': seeds(1, 1.5, 2), 'b': seeds(1, 1.5, 2), 'c': seeds(2, 2.5, 3), 'd': seeds(4, 4.5, 5), 'noise': seeds(0, 7, 2)}
    assert asked(values, **words)[1].verdict == verdict


def test_a_verdict_is_the_worst_of_its_places():
    def verdict(*each):
        values = {'voc12': seeds(*each[0]), 'nus': seeds(*each[1])}
        claim = {'id': 'hml-x', 'paper': 'hml', 'datasets': ['voc12', 'nus'], 'kind': 'value', 'left': {}, 'low': 0}
        return decide(claim, lambda operand: Number(values[operand.config['dataset']], operand.config['dataset'], operand.config['dataset'])).verdict
    high, low, tie, gone = (5, 5, 5), (-5, -5, -5), (-1, 0, 2), ()
    assert [verdict(high, other) for other in (high, tie, low, gone)] == ['holds', 'undecided', 'does not hold', 'holds']
    assert verdict(tie, low) == 'does not hold' and verdict(gone, gone) == 'not run'


def test_a_real_data_set_counts_once_and_is_named():
    found = {suite: claims.report(suite, pd.DataFrame()).set_index('id') for suite in ('mini', 'photos')}
    assert found['photos'].places['opml-zlpr'] == 1 and found['photos'].missing['opml-zlpr'] == 'ccp for VOC = COCO = NUS = CUB'
    assert found['photos'].missing['opml-cub'] == 'ccp for CUB' and found['mini'].missing['opml-cub'] == 'mini_cub for CUB'
    assert found['photos'].places['hml-hyperspherical'] == 2 and found['mini'].places['hml-hyperspherical'] == 8
    assert 'ccp for Full Labels / VOC12 = COCO = CUB = NUS' in found['photos'].missing['hml-hyperspherical']
    others = found['mini'].missing['two_way-others'].split('; ')
    assert {f'mini_coco for MSCOCO = VISPR, mAP@class / {network}' for network in ('ResNet50', 'DenseNet169')} <= set(others)
    assert 'mini_voc for WIDER = VOC2007 = VOC2012, mAP@sample / ResNet50' in others
    assert found['mini'].missing['hml-both-margins'] == 'mini_voc, mAP'


def known_of(paper, table, suite, score):
    "Made-up finished runs of a table. score: function of (row, column, seed), None for no run."
    lines = {}
    for cell in published.cells(paper, table).to_dict('records'):
        plan = papers.plan(cell, suite)
        lines |= {sweeps.key(c): {'val_map': 50.0, 'test_map': 50.0} for c in plan.search}
        tried = pd.DataFrame.from_dict(lines, orient='index')
        finals = [(c, score(cell['row'], cell['column'], c.seed)) for c in papers.finals(plan, tried)]
        lines |= {sweeps.key(c): {'val_map': 50.0, 'test_map': value} for c, value in finals if value is not None}
    return pd.DataFrame.from_dict(lines, orient='index')


def test_a_report_gives_differences_spreads_and_seeds():
    known = known_of('opml', 'III', 'photos', lambda row, column, seed: {'OPML': 60.0, 'ZLPR': 60.0, 'ASL': 62.0 + seed, 'BCE': 50.0}.get(row, 55.0) + seed)
    found = claims.report('photos', known, 'opml').set_index('id')
    tie = found.loc['opml-zlpr']
    assert (tie.ours, tie.decided, tie.places, tie.fails, tie.ties, tie.seeds) == ('undecided', 1, 1, '', 'ccp for VOC = COCO = NUS = CUB', '3 seeds')
    assert tie.measured == 'ccp for VOC = COCO = NUS = CUB: +0.00 ± 0.00, 3 seeds, a tie'
    losses = found.loc['opml-losses']
    assert losses.ours == 'does not hold' and losses.measured == 'ccp for VOC = COCO = NUS = CUB: −3.00 ± 2.48 (against ASL), 3 seeds, fails'
    assert found.ours['opml-bce'] == 'holds'
    table = {('opml', number): papers.table('opml', number, known, ['photos']).cells for number in published.tables('opml')}
    made = claims.report('photos', known, 'opml', claims.our_value('photos', known, tables=table))
    pd.testing.assert_frame_equal(made.set_index('id'), found)


def test_what_the_papers_own_numbers_say():
    verdicts = {c['id']: claims.published_verdict(c) for c in CLAIMS}
    assert {name for name, verdict in verdicts.items() if verdict == 'does not hold'} == {'hml-full-ls', 'lac-role', 'two_way-others'}
    lost = {'two_way-bucket', 'two_way-bucket-sample', 'em_apl-parts', 'em_apl-f1', 'em_apl-f1-full'}
    new = ('two_way-related', 'hml-full', 'hml-positives', 'hml-negatives', 'two_way-negative', 'two_way-bias', 'two_way-counter-sample', 'two_way-counter-class', 'opml-bce')
    assert {name for name, verdict in verdicts.items() if verdict == 'lost'} == lost
    assert {verdicts[name] for name in new} == {'holds'}
    related = next(c for c in CLAIMS if c['id'] == 'two_way-related')
    assert [round(place.number, 2) for place in decide(related, claims.published_value).places] == [2.29, 0.71]


def test_a_name_that_its_table_lacks_is_refused():
    claim = next(c for c in CLAIMS if c['id'] == 'two_way-bias')
    for slip in ({'right': 'ε = 5'}, {'right_at': 'mAP'}):
        with pytest.raises(SpmlError, match="unknown row or column in the claim 'two_way-bias'"): list(claims.places(claim | slip))
