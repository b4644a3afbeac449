"""The board: its numbers from the table of record alone, its words for every method, its links to
runs.
"""

import json
import math
import re
from importlib.resources import files
from pathlib import Path

import pandas as pd
import pytest
import yaml

from spml_nb.methods import core
from spml_nb.replication import board, gains, published, tables
from spml_nb.runs.record import read_record
from spml_nb.sweeps import search

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope='module')
def known():
    return tables.record(ROOT / 'outputs' / 'runs.csv')


@pytest.fixture(scope='module')
def shown(known):
    "The board as the page has it."
    groups, where = board.groups(known)
    return groups, where, board.lines(gains.of_suites(known), where)


# ---- the same numbers from runs.csv, with pandas alone: no function of the pages, the tables or
# the sweeps


def recomputed(measure):
    """mAP by seed of each method on each set of photos: {(loss, head, labels, dataset): Series}.
    The suite's final runs of a method share every setting but the seeds; of several groups the one
    is taken whose setting was best on validation in the search, seed 1000."""
    runs = read_record(ROOT / 'outputs' / 'runs.csv')
    runs = runs[
        (runs.regime == 'linear')
        & (runs.backbone == 'efficientnet_lite0')
        & (runs.batch_size == 64)
        & (runs.selection == 'val_clean')
        & runs.train_images.fillna(0).eq(0)
    ]
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
def test_gains_intervals_and_ranks_are_those_of_the_record(shown, choice, measure):
    scores, compared, levels = recomputed(measure), 0, {}
    for row in shown[2]:
        for dataset, cell in row['cells'].get('photos', {}).items():
            own = scores.get((row['loss'], row['head'], row['labels'], dataset))
            if own is None:
                # trained under the name of an equal loss, such as ZLPR for multi-similarity
                continue
            level, _, n, gain, half, plain, plain_half = cell[choice]
            if row['labels'] == 'single' and all(
                each['x'] for each in row['cells']['photos'].values()
            ):
                levels[row['id'], dataset] = own.mean()
            assert (level, n) == (pytest.approx(own.mean(), abs=1e-3), len(own)), (
                row['id'],
                dataset,
            )
            same = (
                'linear' if row['head'] == 'maps' else row['head']
            )  # the mean of AN's class maps is what a linear head gives
            for value, width, head in ((gain, half, same), (plain, plain_half, 'linear')):
                an = scores.get(('an', head, 'single', dataset))
                assert (value is None) == (an is None)
                if an is None:
                    continue
                d = (own - an).dropna()
                assert value == pytest.approx(d.mean(), abs=1e-3), (row['id'], dataset)
                assert (
                    width >= 2.26 * d.std() / len(d) ** 0.5 - 1e-3
                )  # no narrower than Student's interval over ten seeds
                compared += 1
    assert compared > 100
    wide = pd.Series(levels).unstack()
    equal = {
        row['id']: row
        for row in shown[2]
        if row['ranks']['photos'][choice] is not None
        and (row['id'] not in wide.index or wide.loc[row['id']].isna().any())
    }
    for name, row in equal.items():  # an equal loss under another name has the same runs
        for dataset, cell in row['cells']['photos'].items():
            wide.loc[name, dataset] = cell[choice][0]
    ranks = wide.loc[:, wide.notna().sum() > 1].dropna().round(4).rank(ascending=False).mean(axis=1)
    ours = {
        row['id']: row['ranks']['photos'][choice]
        for row in shown[2]
        if row['ranks']['photos'][choice] is not None
    }
    assert ours == pytest.approx(ranks.to_dict(), abs=0.02) and len(ours) > 10


def test_a_row_without_a_run_is_there_and_says_nothing(shown):
    rows = {row['id']: row for row in shown[2]}
    assert set(rows) == {
        '-'.join((r.loss, r.head or core.find(r.loss).head, r.labels))
        for r in search.every_method()
    }
    empty = [row for row in shown[2] if not row['cells']]
    assert all(
        row['ranks'] == {suite: dict.fromkeys(gains.MEASURES) for suite in gains.SUITES}
        for row in empty
    )
    assert all(
        not row['cells'].get('photos') for row in shown[2][len(shown[2]) - len(empty) :]
    )  # they come last


def test_without_a_record_there_are_rows_and_no_numbers():
    groups, where = board.groups(pd.DataFrame())
    rows = board.lines(gains.of_suites(pd.DataFrame()), where)
    assert (
        (groups, where) == ({'usual': {}, 'each': []}, {})
        and rows
        and not any(row['cells'] for row in rows)
    )


def test_every_number_leads_to_runs_that_differ_by_their_seed_alone(shown, known):
    groups, where, rows = shown
    lines = known.reset_index().set_index('run')
    fields = [name for name in board._APART if name not in ('seed', 'label_seed')]
    for row in rows:
        for dataset, cell in row['cells'].get('photos', {}).items():
            names = [
                groups['each'][cell['g']]['p'] + rest
                for _, rest, _ in groups['each'][cell['g']]['r']
            ]
            part = lines.loc[names]
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
    line = lines.loc[one['p'] + one['r'][0][1]]
    whole = groups['usual'] | one['s']
    assert all(line[name] == value for name, value in whole.items()) and len(whole) > 25


@pytest.mark.parametrize('loss', core.names())
def test_every_method_has_its_words_and_its_notebook(loss):
    told = board.about(loss)
    assert (
        (ROOT / told['notebook']).is_file()
        and told['does']
        and told['paper'] in ('', *published.papers())
    )
    assert len(re.findall(r'[.](?= |$)', told['does'].replace('et al.', ''))) <= 2
    assert loss not in board._words()['methods'] or (told['does'].endswith('.') and told['by'])


def test_a_method_that_is_not_in_the_list_is_described_by_its_docstring(monkeypatch):
    monkeypatch.setattr(board, '_words', lambda: {'methods': {}})
    assert (
        board.about('an')['does'].startswith('Assume negative (AN)')
        and board.about('an')['name'] == 'an'
    )


@pytest.mark.silent('B')
def test_published_gains_are_of_one_table_and_copies_are_left_out():
    some = [
        tables.table(paper, number, pd.DataFrame())
        for paper, number in (('em_apl', '1'), ('opml', 'II'), ('lac', '2'), ('hml', '4'))
    ]
    printed = {
        (line['loss'], line['paper'], line['labels']): line['cells'] for line in board.printed(some)
    }
    assert (
        printed[('em', 'EM/APL', 'single')]['coco14']['theirs'] == pytest.approx(70.70 - 64.92)
        and ('em', 'OPML', 'single') not in printed
    )
    heads = {
        (line['loss'], line['head']): line['cells'] for line in board.printed(some[2:3])
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
    assert not any(line['loss'] == 'an' for line in board.printed(some))
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
    later = {line['name']: line for line in board.printed([])}
    assert (
        set(later) == {'GR', 'CRISP', 'BoostLU + LL-R', 'AEVLP'}
        and 'CLIP' in later['AEVLP']['note']
    )
    assert later['CRISP']['cells']['nus']['level'] == 50.0 and math.isnan(
        later['GR']['cells']['voc12']['theirs']
    )


def test_a_card_has_the_claims_that_compare_its_method():
    assert (
        'em_apl' not in board.compared_in_claims('em_apl')['em_apl-em']
        and 'em' in board.compared_in_claims('em_apl')['em_apl-em']
    )
    assert {'hml', 'an', 'ls'} <= board.compared_in_claims('hml')['hml-single']


def test_the_curve_of_a_search_stays_in_its_frame():
    found = board.curve([1.0, 2.0, 2.5], 60, 20)
    points = [tuple(map(float, pair.split(','))) for pair in found['points'].split()]
    assert points == [(2, 18), (30, pytest.approx(18 - 16 * 1 / 1.5, abs=0.1)), (58, 2)]
    assert (found['width'], found['height']) == (60, 20) and board.curve([1.0]) == {}


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
        board.about('boostlu_llr')['name'] == 'BoostLU + LL-R'
        and 'activation maps' in board.about('boostlu_llr')['does']
    )
