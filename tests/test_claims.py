"""The claims of the papers' texts: each well formed, about names that exist, in configurations that can be run."""
from importlib.resources import files

import pytest
import yaml

from spml_nb import published_tables as published
from spml_nb.published_tables import METRICS, MINIATURES, merge, read
from spml_nb.runs import Config, resolve

CLAIMS = yaml.safe_load((files('spml_nb') / 'published' / 'claims.yml').read_text(encoding='utf-8'))['claims']
NEEDS = {'greater': {'right'}, 'trend': {'direction'}, 'peak': {'best'}, 'spread': {'within'}, 'value': set()}
MAY = {'greater': {'by'}, 'trend': {'right'}, 'peak': set(), 'spread': set(), 'value': {'low', 'high'}}
ALWAYS = {'id', 'paper', 'where', 'claim', 'kind', 'left'}
OF_A_TABLE, OF_RUNS = {'table', 'at', 'note'}, {'datasets', 'metric', 'config', 'each', 'steps', 'note'}
OTHER_METRICS = {'validation drop', 'probability of annotated positives', 'probability of unannotated positives'}

def listed(value): return value if isinstance(value, list) else [value]
def of_a_table(): return [pytest.param(c, id=c['id']) for c in CLAIMS if 'table' in c]
def of_runs(): return [pytest.param(c, id=c['id']) for c in CLAIMS if 'table' not in c]

def fault(claim):
    "What is wrong with a claim's keys, '' if nothing is."
    kind = claim.get('kind')
    if kind not in NEEDS: return f'unknown kind {kind!r}'
    allowed = ALWAYS | NEEDS[kind] | MAY[kind] | (OF_A_TABLE if 'table' in claim else OF_RUNS)
    lacking = (ALWAYS | NEEDS[kind] | ({'table'} if 'table' in claim else {'datasets'})) - claim.keys()
    if kind == 'value' and not claim.keys() & {'low', 'high'}: lacking = {*lacking, 'low or high'}
    return ', '.join([*(f'unknown {k}' for k in sorted(claim.keys() - allowed)), *(f'without {k}' for k in sorted(lacking))])

def members(name, axis):
    "The rows or columns that a name stands for: itself, its group's members, or the same member of every group."
    if name in axis: return [name]
    return [n for n in axis if n.startswith(f'{name} / ')] or [n for n in axis if n.endswith(f' / {name}')]

def axes(claim):
    "(names that are compared, names of the other axis)."
    spec = published.read(claim['paper'])['tables'][claim['table']]
    rows, columns = list(spec['rows']), list(spec['columns'])
    return (rows, columns) if members(listed(claim['left'])[0], rows) else (columns, rows)

def configs(claim):
    "Every configuration that a claim compares."
    own = claim['datasets'] if isinstance(claim['datasets'], dict) else {name: {} for name in claim['datasets']}
    sides = [side for key in ('left', 'right') for side in listed(claim.get(key, []))]
    return [merge(read(claim['paper']).get('config'), claim.get('config'), side, step, each, {'dataset': name, **given})
            for name, given in own.items() for side in sides for step in claim.get('steps', [{}]) for each in claim.get('each', [{}])]


def test_there_are_claims_of_every_paper_and_none_twice():
    assert 15 <= len(CLAIMS) <= 40
    assert {c['paper'] for c in CLAIMS} == set(published.papers())
    assert len({c['id'] for c in CLAIMS}) == len({c['claim'] for c in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize('claim', CLAIMS, ids=lambda c: c['id'])
def test_a_claim_is_a_sentence_with_a_place_and_all_that_its_kind_needs(claim):
    assert fault(claim) == ''
    assert claim['id'].startswith(claim['paper'] + '-') and claim['where']
    assert claim['claim'][0].isupper() and claim['claim'].endswith('.') and claim['claim'].count('. ') == 0


@pytest.mark.parametrize('spoilt', [{'kind': 'bigger'}, {'rigth': 'AN'}, {'table': '2', 'metric': 'mAP'}, {'kind': 'trend'}, {'kind': 'value'}])
def test_a_claim_with_a_slip_is_found(spoilt):
    sound = {'id': 'hml-x', 'paper': 'hml', 'where': 'Table 2', 'claim': 'X.', 'kind': 'greater', 'left': 'HML (Ours)', 'right': 'AN', 'table': '2'}
    assert fault(sound) == '' and fault(sound | spoilt) != ''


@pytest.mark.parametrize('claim', of_a_table())
def test_the_names_of_a_claim_are_in_its_table(claim):
    axis, other = axes(claim)
    unknown = [n for key in ('left', 'right') for n in listed(claim.get(key, [])) if not members(n, axis)]
    assert unknown + [n for n in listed(claim.get('at', [])) if not members(n, other)] == []


@pytest.mark.parametrize('claim', of_a_table())
def test_both_sides_of_a_claim_are_runs(claim):
    axis, other = axes(claim)
    cells = published.cells(claim['paper'], claim['table'])
    cells = cells if axis[0] in set(cells['row']) else cells.rename(columns={'row': 'column', 'column': 'row'})
    named = {m for key in ('left', 'right') for n in listed(claim.get(key, [])) for m in members(n, axis)}
    at = {m for n in listed(claim.get('at', other)) for m in members(n, other)}
    here = cells[cells['row'].isin(named) & cells['column'].isin(at)]
    assert len(here) == len(named) * len(at) and (here['config'].notna() | here['pretraining'].notna()).all()


@pytest.mark.parametrize('claim', of_runs())
def test_the_configurations_of_a_claim_resolve_and_differ(claim):
    each = configs(claim)
    resolved = [resolve(Config(**c)) for c in each]
    assert all(a != b for k, a in enumerate(resolved) for b in resolved[:k])
    assert {c['dataset'] for c in each} <= MINIATURES.keys() and all('labels' in c for c in each)
    assert set(listed(claim.get('metric', 'mAP'))) <= METRICS.keys() | OTHER_METRICS


@pytest.mark.parametrize('claim', [c for c in CLAIMS if c['kind'] in ('trend', 'peak', 'spread')], ids=lambda c: c['id'])
def test_a_sequence_has_three_values_or_more_and_its_peak_is_one_of_them(claim):
    length = len(claim.get('steps', listed(claim['left'])))
    assert length >= 3 and all(0 < k < length - 1 for k in claim.get('best', [1]))
    assert claim.get('direction', 'rising') in ('rising', 'falling')
