"""The board: its numbers from the table of record alone, its words for every method, its links to
runs.
"""

import csv
import json
import math
import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from front_rows import exact, levels  # noqa: F401 (fixtures)
from recorded import of_a_suite
from worked_out import suite_gains

from spml_nb import statistics
from spml_nb.methods import core
from spml_nb.replication import board, gains, index_page, published, tables
from spml_nb.runs.record import read_record
from spml_nb.sweeps import boards

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope='module')
def known():
    return tables.read_recorded_runs(ROOT / 'outputs' / 'runs.csv')


@pytest.fixture(scope='module')
def shown(known):
    "The board as the page has it."
    groups, where = index_page._group_final_runs(known)
    return groups, where, board.list_board_rows(suite_gains(), where)


# ---- the same numbers from runs.csv, with pandas alone: no function of the pages, the tables or
# the sweeps


def recomputed(measure):
    """mAP by seed of each method on each set of photos: {(loss, head, labels, dataset): Series}.
    The suite's final runs of a method share every setting but the seeds; of several groups the one
    is taken whose setting was best on validation in the search, seed 1000."""
    runs = read_record(ROOT / 'outputs' / 'runs.csv')
    runs = runs[(runs.regime == 'linear') & (runs.batch_size == 64) & of_a_suite(runs)]
    runs = runs.assign(chosen_by=runs.val_map_seen.fillna(runs.val_map))
    where = ['loss', 'head', 'labels', 'dataset']
    setting = [*where, 'lr', 'hparams']
    tried = runs[runs.seed == 1000].groupby(setting).chosen_by.max().rename('tried')
    final = runs[runs.seed < 1000].join(tried, on=setting)
    groups = final.groupby([*setting, 'epochs', 'optimizer'])
    seeds = final['head'].eq('labelwise').map({True: 5, False: 10})
    final = final.assign(group=groups.ngroup())[groups.seed.transform('size') == seeds]
    final = final[final.tried == final.groupby(where).tried.transform('max')]
    final = final[final.group == final.groupby(where).group.transform('min')]
    return {name: part.set_index('seed')[measure] for name, part in final.groupby(where)}


@pytest.mark.parametrize(
    ('choice', 'measure'), [('clean', 'test_map'), ('observed', 'observed_test_map')]
)
def test_gains_and_intervals_are_those_of_the_record(shown, choice, measure):
    scores, compared = recomputed(measure), 0
    for row in shown[2]:
        for dataset, cell in row['cells'].get('photos', {}).items():
            own = scores.get((row['loss'], row['head'], row['labels'], dataset))
            if own is None:
                # trained under the name of an equal loss, such as ZLPR for multi-similarity
                continue
            level, _, n, gain, half, plain, plain_half = cell[choice]
            place = (row['id'], dataset)
            assert (level, n) == (pytest.approx(own.mean(), abs=1e-3), len(own)), place
            # the mean of AN's class maps is what a linear head gives
            same = 'linear' if row['head'] == 'maps' else row['head']
            for value, width, head in ((gain, half, same), (plain, plain_half, 'linear')):
                an = scores.get(('an', head, 'single', dataset))
                assert (value is None) == (an is None)
                if an is None:
                    continue
                d = (own - an).dropna()
                assert value == pytest.approx(d.mean(), abs=1e-3), place
                # no narrower than Student's interval over ten seeds
                assert width >= 2.26 * d.std() / len(d) ** 0.5 - 1e-3
                compared += 1
    assert compared > 100


def test_rows_stand_with_those_on_the_same_sets_the_highest_gain_first(shown):
    groups = board.group_by_sets(shown[2])
    assert [row for group in groups for row in group['rows']] == shown[2]
    single = [group for group in groups if group['sets'] and not group['all_labels']]
    assert len({tuple(group['sets']) for group in single}) == len(single) > 1
    assert [len(group['sets']) for group in single] == sorted(
        (len(group['sets']) for group in single), reverse=True
    )
    for group in groups:
        means = [row['means']['clean'][0] for row in group['rows'] if group['sets']]
        assert means == sorted(means, reverse=True)
        for row in group['rows']:
            acted = [name for name, cell in row['cells'].get('photos', {}).items() if cell['x']]
            assert sorted(acted) == sorted(group['sets'])
            assert group['all_labels'] == (bool(group['sets']) and row['labels'] != 'single')


def test_the_heads_of_a_method_stand_side_by_side_the_best_mean_first(shown):
    groups = [g for g in board.group_by_sets(shown[2]) if g['sets'] and not g['all_labels']]
    everywhere = len(groups[0]['sets'])
    rows = [row for g in groups if len(g['sets']) >= everywhere - 1 for row in g['rows']]
    joined = board.join_heads(rows)
    on_heads = {}
    for method in joined['methods']:
        of_method = [method[head] for head in ('linear', 'cosine') if method[head]]
        for head in ('linear', 'cosine'):
            if method[head]:
                assert (method[head]['loss'], method[head]['head']) == (method['loss'], head)
        assert method['seconds'] == min(of_method, key=rows.index)['seconds']
        on_heads[method['loss']] = of_method
    assert len(on_heads) == len(joined['methods'])
    ids = [row['id'] for of_method in on_heads.values() for row in of_method]
    ids += [row['id'] for row in joined['others']]
    assert sorted(ids) == sorted(row['id'] for row in rows)
    assert {row['head'] for row in joined['others']} == {'labelwise', 'maps'}
    best = [
        max(row['means']['clean'][0] for row in of_method if len(row['sets']) == everywhere)
        for of_method in on_heads.values()
        if any(len(row['sets']) == everywhere for row in of_method)
    ]
    assert best == sorted(best, reverse=True)


def test_the_board_has_a_row_of_as_many_fully_labelled_photos_as_validation_has(shown):
    (row,) = [row for row in shown[2] if row['labels'] == gains.AS_MANY]
    runs = read_record(ROOT / 'outputs' / 'runs.csv')
    full = runs[(runs.loss == 'bce') & (runs.labels == 'full') & (runs['head'] == 'linear')]
    cells = row['cells']['photos']
    assert {'voc12_animals', 'coco18', 'cub_crops', 'mirflickr14'} <= cells.keys()
    for dataset, photos in (('voc12_animals', 373), ('coco18', 960), ('cub_crops', 464)):
        few = full[(full.dataset == dataset) & (full.train_images == photos)]
        assert cells[dataset]['clean'][0] == pytest.approx(few.test_map.mean(), abs=1e-3)
        assert cells[dataset]['clean'][2] == len(few) == 5
    every = suite_gains()
    found = board.expected_gains(every[every.suite == 'photos'])
    assert found.photos['cub_crops'] == 464
    assert found.as_many['cub_crops'] == pytest.approx(cells['cub_crops']['clean'][5], abs=1e-3)
    assert np.isnan(found.as_many.get('corel5k', np.nan)) == ('corel5k' not in cells)


def test_a_mean_is_over_the_sets_where_the_mechanism_acted():
    def line(dataset, loss, gain, acted, baseline):
        effect = statistics.estimate_effect([gain, gain + 0.2])
        place = {'suite': 'photos', 'dataset': dataset, 'loss': loss, 'head': 'linear'}
        place |= {'labels': 'single', 'choice': 'clean', 'baseline': baseline}
        return place | {'effect': effect, 'acted': acted, 'seconds': 3.0 if acted else 9.0}

    lines = [
        line(dataset, loss, gain, acted, baseline)
        for dataset, loss, gain, acted in (
            ('coco18', 'em', 1.0, True),
            ('ccp', 'em', 3.0, True),
            ('coco18', 'em_apl', 2.0, True),
            ('ccp', 'em_apl', 50.0, False),
            ('ccp', 'gr', 50.0, False),
        )
        for baseline in (gains.SAME_HEAD, gains.PLAIN_HEAD)
    ]
    means = board.average_standings(pd.DataFrame(lines)).droplevel(['head', 'labels', 'choice'])
    assert means.sets.to_dict() == {'em': ('coco18', 'ccp'), 'em_apl': ('coco18',)}
    assert means.over_an.map(lambda e: e.mean).to_dict() == pytest.approx(
        {'em': 2.1, 'em_apl': 2.1}
    )
    assert means.seconds.eq(3).all()


def test_of_whole_networks_only_levels_are_shown(shown):
    cells = [
        cell['clean']
        for row in shown[2]
        for cell in row['cells'].get('photos_finetune', {}).values()
    ]
    assert cells and all(level > 0 and gains == [None] * 4 for level, _, _, *gains in cells)


def test_methods_that_are_given_a_number_are_flagged():
    flagged = {loss for loss in core.names() if board.describe_method(loss)['needs']}
    assert flagged == {'epr', 'role', 'nnpu'}


def test_a_row_without_a_run_is_there_and_says_nothing(shown):
    rows = {row['id']: row for row in shown[2]}
    assert set(rows) - {f'bce-linear-{gains.AS_MANY}'} == {
        '-'.join((r.loss, r.head or core.find(r.loss).head, r.labels))
        for r in boards.all_method_rows()
    }
    empty = [row for row in shown[2] if not row['cells']]
    assert all((row['means'], row['sets'], row['seconds']) == ({}, [], None) for row in empty)
    assert all(
        not row['cells'].get('photos') for row in shown[2][len(shown[2]) - len(empty) :]
    )  # they come last


def test_without_a_record_there_are_rows_and_no_numbers():
    groups, where = index_page._group_final_runs(pd.DataFrame())
    rows = board.list_board_rows(gains.gains_of_suites(pd.DataFrame()), where)
    assert (
        (groups, where) == ({'usual': {}, 'each': []}, {})
        and rows
        and not any(row['cells'] for row in rows)
    )


def test_every_number_leads_to_runs_that_differ_by_their_seed_alone(shown, known):
    groups, where, rows = shown
    lines = known.reset_index().set_index('run')
    fields = [name for name in index_page._NOT_SETTINGS if name not in ('seed', 'label_seed')]
    for row in rows:
        for dataset, cell in row['cells'].get('photos', {}).items():
            group = groups['each'][cell['g']]
            names = [name for name, k in where.items() if k == cell['g']]
            part = lines.loc[names]
            assert group['run'] in names
            assert group['r'] == pytest.approx(part.set_index('seed').test_map.to_dict(), abs=0.006)
            assert (
                set(part.dataset) == {dataset}
                and set(part['head']) == {row['head']}
                and part.seed.is_unique
            )
            assert (
                part.drop(columns=['seed', 'label_seed', *fields])[
                    ['loss', 'lr', 'hparams', 'epochs', 'batch_size', 'labels']
                ]
                .drop_duplicates()
                .shape[0]
                == 1
            )
    one = groups['each'][0]
    line = lines.loc[one['run']]
    whole = groups['usual'] | one['s'] | {'hparams': json.dumps(one['s']['hparams'])}
    assert all(line[name] == value for name, value in whole.items()) and len(whole) > 25


@pytest.mark.parametrize('loss', core.names())
def test_every_method_has_its_words_and_its_notebook(loss):
    told = board.describe_method(loss)
    assert (
        (ROOT / told['notebook']).is_file()
        and told['does']
        and told['paper'] in ('', *published.list_papers())
    )
    assert len(re.findall(r'[.](?= |$)', told['does'].replace('et al.', ''))) <= 2
    assert loss not in board._read_descriptions()['methods'] or (
        told['does'].endswith('.') and told['by']
    )


def test_a_method_that_is_not_in_the_list_is_described_by_its_docstring(monkeypatch):
    monkeypatch.setattr(board, '_read_descriptions', lambda: {'methods': {}})
    assert (
        board.describe_method('an')['does'].startswith('Assume negative (AN)')
        and board.describe_method('an')['name'] == 'an'
    )


@pytest.mark.silent('B')
def test_published_gains_are_of_one_table_and_copies_are_left_out():
    some = [
        tables.table(paper, number, pd.DataFrame())
        for paper, number in (('em_apl', '1'), ('opml', 'II'), ('lac', '2'), ('hml', '4'))
    ]
    printed = {
        (line['loss'], line['paper'], line['labels']): line['cells']
        for line in board.list_printed_rows(some)
    }
    assert (
        printed[('em', 'EM/APL', 'single')]['coco14']['theirs'] == pytest.approx(70.70 - 64.92)
        and ('em', 'OPML', 'single') not in printed
    )
    heads = {
        (line['loss'], line['head']): line['cells'] for line in board.list_printed_rows(some[2:3])
    }  # LAC's table on either model
    assert heads['em', 'labelwise']['voc12']['theirs'] == pytest.approx(89.2 - 87.6) and heads[
        'em', 'linear'
    ]['voc12']['theirs'] == pytest.approx(89.1 - 85.1)
    assert printed[('lac', 'LAC', 'single')]['cub']['theirs'] == pytest.approx(
        23.3 - 18.6, abs=0.11
    )
    assert printed[('hml', 'HML', 'full')]['voc12']['theirs'] == pytest.approx(
        91.3 - 90.2, abs=0.051
    )
    assert not any(line['loss'] == 'an' for line in board.list_printed_rows(some))
    marked = {
        (loss, paper)
        for (loss, paper, _), cells in printed.items()
        if any(cell['uncounted'] for cell in cells.values())
    }
    assert marked == {
        (loss, 'OPML') for loss in ('llr', 'llct', 'llcp', 'opml', 'opml_sp')
    } and printed['opml', 'OPML', 'single']['voc12']['theirs'] == pytest.approx(87.77 - 87.63)
    assert (
        heads['em', 'linear']['voc12']['uncounted']
        and not heads['em', 'labelwise']['voc12']['uncounted']
    )
    later = {line['name']: line for line in board.list_printed_rows([])}
    assert (
        set(later) == {'GR', 'CRISP', 'BoostLU + LL-R', 'AEVLP'}
        and 'CLIP' in later['AEVLP']['note']
    )
    assert later['CRISP']['cells']['nus']['level'] == 50.0 and math.isnan(
        later['GR']['cells']['voc12']['theirs']
    )


def test_a_card_has_the_claims_that_compare_its_method():
    assert (
        'em_apl' not in index_page._methods_in_claims('em_apl')['em_apl-em']
        and 'em' in index_page._methods_in_claims('em_apl')['em_apl-em']
    )
    assert {'hml', 'an', 'ls'} <= index_page._methods_in_claims('hml')['hml-single']


def test_groups_without_a_run_that_is_shown_are_left_out(known):
    names = set(known.run[known.seed == 3][:40])
    groups, where = index_page._group_final_runs(known, names)
    every, _ = index_page._group_final_runs(known)
    assert names <= where.keys() and len(groups['each']) <= 40 < len(every['each'])
    assert all(one in every['each'] for one in groups['each'])


def test_what_the_page_gets_is_plain(shown):
    assert json.loads(
        json.dumps([shown[0], shown[2]], allow_nan=False, default=lambda number: number.item())
    )


def test_words_are_said_of_methods_that_exist():
    words = yaml.safe_load(
        (files('spml_nb') / 'assets' / 'methods.yml').read_text(encoding='utf-8')
    )
    assert {*words['methods'], *filter(None, (later['loss'] for later in words['later']))} <= set(
        core.names()
    )
    assert (
        board.describe_method('boostlu_llr')['name'] == 'BoostLU + LL-R'
        and 'activation maps' in board.describe_method('boostlu_llr')['does']
    )


def test_what_a_head_adds_is_told_apart_from_its_method(exact):  # noqa: F811
    found = board.find_leaders(
        levels(
            an_linear=50.0,
            an_cosine=51.4,
            em_linear=52.0,
            em_cosine=51.0,
            hml_cosine=53.0,
            wan_linear=49.0,
            ls_linear=50.0,
            boostlu_llr_maps=49.5,
        )
    )
    assert found.sets == 2
    assert (found.above, found.below, found.open) == (('HML', 'EM'), ('WAN',), ('LS',))
    top, linear = found.top, found.linear
    assert (top.name, top.head, top.close) == ('HML', 'cosine', ())
    assert (linear.name, linear.head, linear.close) == ('EM', 'linear', ())
    effects = (top.gain, found.due_to_head, linear.gain)
    assert [(e.mean, e.half_width) for e in effects] == [
        (pytest.approx(mean), pytest.approx(0)) for mean in (3, 1.4, 2)
    ]


def test_a_leader_on_a_linear_head_owes_nothing_to_it(exact):  # noqa: F811
    found = board.find_leaders(levels(an_linear=50.0, em_linear=52.0, em_cosine=51.0))
    assert (found.top.name, found.top.close) == ('EM', ())
    assert found.due_to_head is None
    assert board.find_leaders(levels(em_linear=52.0)) is board.find_leaders({}) is None
    assert board.find_leaders(levels(an_linear=50.0)) is None


def test_a_method_that_ran_on_fewer_sets_may_be_as_good(exact):  # noqa: F811
    everywhere = levels(an_linear=50.0, hml_cosine=53.0, em_linear=52.0, an_cosine=51.0)
    for mean, rivals in ((54.0, ('WAN on the cosine head',)), (52.0, ())):
        found = board.find_leaders(everywhere | levels(('ccp',), wan_cosine=mean))
        assert (found.top.name, found.top.close, found.top.rivals) == ('HML', (), rivals)


def test_all_that_are_not_told_apart_from_the_leader_are_named_once(exact):  # noqa: F811
    found = board.find_leaders(
        levels(
            an_linear=50.0,
            an_cosine=51.0,
            em_linear=53.0,
            em_cosine=53.0,
            hml_cosine=53.0,
            wan_linear=53.0,
            ls_linear=51.0,
        )
    )
    first, close = found.top.name, found.top.close
    assert first not in close and len(close) == 2 and 'LS' not in close
    assert (found.linear.name, found.linear.close) == ('EM', ('WAN',))


def test_an_equal_that_names_labels_far_worse_is_called_so(exact):  # noqa: F811
    ranks = levels(an_linear=50.0, hml_cosine=53.0, em_linear=53.0)
    ranks |= levels(('ccp',), wan_cosine=54.0)
    micro_f1 = {
        ('hml', 'cosine'): {'coco18': 70.0, 'ccp': 60.0},
        ('em', 'linear'): {'coco18': 66.0, 'ccp': 57.0},  # less than FAR_BELOW, on the mean
        ('wan', 'cosine'): {'ccp': 47.5},
    }
    top = board.find_leaders(ranks, micro_f1).top
    assert top.close == ('EM',)
    assert top.rivals == ('WAN on the cosine head (micro-F1 12.5 points lower)',)
    micro_f1['em', 'linear']['ccp'] = 47.0
    assert board.find_leaders(ranks, micro_f1).top.close == ('EM (micro-F1 8.5 points lower)',)


@pytest.mark.skipif(not (ROOT / 'outputs' / 'runs.csv').is_file(), reason='no table of record')
def test_methods_outside_of_the_picture_stand_in_the_order_too():
    known = tables.read_recorded_runs(ROOT / 'outputs' / 'runs.csv')
    found = board.method_levels(suite_gains())
    assert {
        ('an', 'linear'),
        ('an', 'cosine'),
        ('hml', 'cosine'),
        ('two_way_class', 'cosine'),
    } <= found.keys() and ('em_apl', 'linear') not in found
    seeds = found['hml', 'cosine']['coco18']
    assert list(seeds.by_seed.index) == list(range(10)) and seeds.key in known.index


METHODS = ROOT / 'outputs' / 'methods'
SETS = ('voc12_animals', 'coco18', 'cub_crops', 'mirflickr14', 'corel5k', 'ccp')


@pytest.fixture(autouse=True)
def outputs(monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(METHODS.parent))


def read_column(loss, head, column):
    "{data set: number} of a row with single labels."
    numbers = {}
    for name in SETS:
        with open(METHODS / f'{name}.csv', encoding='utf-8') as file:
            for row in csv.DictReader(file):
                if (row['loss'], row['head'], row['labels']) == (loss, head, 'single'):
                    numbers[name] = float(row[column])
    return numbers


def test_a_sentence_has_the_mean_the_ends_and_the_same_head():
    text = board.describe_gains('hml')
    over_plain, over_same = (read_column('hml', 'cosine', c) for c in ('over_plain_an', 'over_an'))
    assert len(over_plain) == 6
    for number in (
        sum(over_plain.values()) / 6,
        min(over_plain.values()),
        max(over_plain.values()),
        sum(over_same.values()) / 6,
    ):
        assert f'{number:+.1f}' in text
    assert min(over_plain, key=over_plain.get) in text


def test_where_a_mechanism_did_not_act_it_is_counted():
    acted = sum(share > 0.5 for share in read_column('em_apl', 'linear', 'exercised').values())
    assert f'{acted or "none"} of 6 sets' in board.describe_gains('em_apl')


def test_nothing_is_said_without_runs_or_boards(monkeypatch, tmp_path):
    assert board.describe_gains('epr_count') == ''
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path))
    assert board.describe_gains('hml') == ''
