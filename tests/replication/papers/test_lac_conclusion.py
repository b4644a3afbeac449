"""The numbers in the conclusion on LAC are those of other pages, and counts of the record."""

import json
from pathlib import Path

import pandas as pd
import pytest
from worked_out import recorded_runs

from spml_nb.replication import answers, claims, paper_conclusions, paper_figures, published
from spml_nb.replication.experiments import two_steps
from spml_nb.replication.papers import lac_conclusion
from spml_nb.sweeps import search
from spml_nb.sweeps.queue import run_key
from spml_nb.sweeps.search import Row

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope='module')
def record():
    return recorded_runs()


def test_what_a_search_in_one_step_costs_lac_is_the_difference_of_two_pages(record):
    effects = lac_conclusion._estimate_first_stage_searched(record)
    at_equal_settings = pd.read_csv(ROOT / 'outputs' / 'ablations.csv')
    whole = at_equal_settings[
        (at_equal_settings.ablation == 'lac_parts') & (at_equal_settings.arm == 'queue')
    ].set_index('column')
    assert list(effects) == ['VOC', 'COCO']
    for column, effect in effects.items():
        board = pd.read_csv(ROOT / f'outputs/methods/{whole.dataset[column]}.csv')
        own = board[(board.loss == 'lac') & (board['head'] == 'labelwise')].test_map
        assert effect.mean == pytest.approx(whole.level[column] - own.item(), abs=2e-4)
        assert effect.seeds == 5


def test_lac_in_two_steps_is_compared_on_the_same_photos(record):
    described = lac_conclusion._describe_two_steps(record)
    if not described:
        pytest.skip('no set of photos has the runs')
    scores = two_steps.two_step_scores(record)
    in_two_steps = [of_set.by_seed.mean() for of_set in scores.values()]
    means = {}
    bases = {'over_one': ('lac', 'labelwise'), 'plain': ('an', 'linear')}
    for name, (loss, head) in bases.items():
        differences = []
        for dataset, level in zip(scores, in_two_steps, strict=True):
            board = pd.read_csv(ROOT / f'outputs/methods/{dataset}.csv')
            row = board[(board.loss == loss) & (board['head'] == head) & (board.labels == 'single')]
            # the label-wise head has half as many seeds
            of_seeds = json.loads(row.test_maps.item())[:5]
            differences.append(level - sum(of_seeds) / len(of_seeds))
        means[name] = dict(zip(described['sets'], differences, strict=True))
    expected = sum(means['plain'].values()) / len(scores)
    assert described['plain'].mean == pytest.approx(expected, abs=0.01)
    assert described['plain'].places == len(described['sets'])
    assert {*described['again'], *described['changed']} == {*described['sets']}
    for name, effect in described['changed'].items():
        assert effect.mean == pytest.approx(means['over_one'][name], abs=0.01)
    lines = record.reindex(
        [run_key(config) for of_set in two_steps.plan_finals(record).values() for config in of_set]
    )
    own = lines[lines.stage2_lr.notna()].dataset.nunique()
    assert described['own_rates'] == own and len(described['again']) <= len(scores) - own


def test_a_second_search_that_chose_the_first_draw_is_the_arm_with_the_queue(record):
    "Its runs are the same, so that it changes nothing."
    described = lac_conclusion._describe_two_steps(record)
    if 'VOC' not in described.get('sets', ()):
        pytest.skip('no run of the second search')
    arm = pd.read_csv(ROOT / 'outputs' / 'ablations.csv').set_index(['ablation', 'arm', 'column'])
    level = two_steps.two_step_scores(record)['voc12_animals'].by_seed.mean()
    same = level == pytest.approx(arm.level['lac_parts', 'queue', 'VOC'], abs=1e-4)
    assert ('VOC' in described['again']) == same
    checked = claims.report_claims(published.PHOTOS_SUITE, record, 'lac')
    text = paper_conclusions.format_conclusion('lac', checked, record)
    assert ('chose these again on' in text) == bool(described['again'])


def test_what_the_conclusion_on_lac_counts_is_of_the_record(record, monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))
    lac = lac_conclusion.collect_fields(record)
    boards = [
        pd.read_csv(ROOT / f'outputs/methods/{dataset}.csv').set_index(['loss', 'head', 'labels'])
        for dataset in search.SUITES[published.PHOTOS_SUITE]['datasets']
    ]
    above = [
        sum(json.loads(board.test_maps['lac', 'labelwise', 'single'])) / 5
        > sum(json.loads(board.test_maps['an', 'linear', 'single'])[:5]) / 5
        for board in boards
    ]
    assert lac['higher'] == sum(above) and lac['runs'] == 30 and lac['lem_mixed']
    table = pd.read_csv(ROOT / 'outputs/lac/table3.csv').set_index(['row', 'column'])
    gained = {}
    for column in ('VOC', 'COCO'):
        rows = ('AN + PLC + LAC + two-stage', 'AN + PLC + LAC')
        two, one = (table.ours[row, column] for row in rows)
        gained[column] = two - one
    for column, answer in lac['own_settings'].items():
        assert answer.mean == pytest.approx(gained[column], abs=2e-4)
    shown = answers.gains_at_equal_settings('lac')
    parts = {part['arm']: (part['acted'], part['may_act']) for part in shown}
    lines = pd.read_csv(ROOT / 'outputs' / 'ablations.csv')
    lines = lines[(lines.ablation == 'lac_parts') & (lines.column != 'mean')]
    for arm, counted in lines.groupby('arm')[['acted', 'may_act']].sum().iterrows():
        assert parts.get(arm, (0, 0)) == tuple(counted)


def test_what_is_typed_of_lacs_runs_is_so(record):
    """All have the form of the authors' code (conclusion, map), and figure F6 has these δ."""
    lines = record[record.loss.isin(['lac', 'lac_plc'])]
    assert {json.loads(hparams)['form'] for hparams in lines.hparams} == {'code'}
    caption = ' '.join(paper_figures.describe_figure('lac', 'F6')['notes'].split())
    for dataset in ('voc12_animals', 'coco18'):
        config = search.final_configs(Row('lac', 'labelwise'), 'photos', dataset, record)[0]
        assert f'{config.hparams["stage2_threshold"]:g} on {dataset}' in caption
