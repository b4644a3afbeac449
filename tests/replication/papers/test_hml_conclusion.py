"""The numbers in the conclusion on HML are those of the paper, of other pages and of the models."""

from pathlib import Path

import pandas as pd
import pytest
from worked_out import recorded_runs

from spml_nb.replication.experiments import budget
from spml_nb.replication.papers import hml_conclusion

ROOT = Path(__file__).resolve().parents[3]
NOTHING = pd.DataFrame()


@pytest.fixture(scope='module')
def record():
    return recorded_runs()


def test_hml_leads_over_the_best_rival_of_each_set(record):
    table = pd.read_csv(ROOT / 'outputs/hml/table2.csv')
    levels, printed = (
        table.pivot(index='row', columns='column', values=values)
        for values in ('ours', 'published')
    )
    leads = {lead['name']: lead for lead in hml_conclusion._list_leads(record)}
    assert list(leads) == ['VOC12', 'COCO', 'CUB', 'NUS']
    for name, lead in leads.items():
        for values, rival, gained in (
            (levels[name], lead['ours_over'], lead['answer'].mean),
            (printed[name], lead['rival'], lead['printed']),
        ):
            rivals = values.drop('HML (Ours)')
            assert rivals.idxmax() == rival
            assert values['HML (Ours)'] - rivals.max() == pytest.approx(gained, abs=2e-4)
    assert [leads[name]['own'] for name in leads] == [1.8, 2.1, 0, 0.8]
    assert [leads[name]['of_set_up'] for name in leads] == [True, False, False, True]


def test_a_rival_without_runs_hides_no_other(record):
    runs = record[(record.dataset != 'voc12_animals') | (record.loss != 'an')]
    lead = next(lead for lead in hml_conclusion._list_leads(runs) if lead['name'] == 'VOC12')
    assert lead['ours_over'] != 'AN' and lead['answer'].places == 1


def test_what_learning_adds_to_hml_is_read_at_equal_settings(record):
    lines = pd.read_csv(ROOT / 'outputs' / 'ablations.csv')
    for ablation in ('hml_adaptive', 'hml_adaptive_full'):
        line = lines[(lines.ablation == ablation) & (lines.column == 'mean')].iloc[0]
        answer = hml_conclusion._answer_learnt_over_fixed(ablation, record)
        assert answer.mean == pytest.approx(line.gain, abs=2e-4)
        assert answer.published == pytest.approx(line.published, abs=1e-4)
        assert hml_conclusion._answer_learnt_over_fixed(ablation, NOTHING).word == 'not run'


def test_hml_by_several_searches_is_that_of_the_page_on_budgets(record):
    compared = budget.compare_choices(record).set_index(['dataset', 'loss', 'head'])
    an, hml = (
        compared.loc['voc12_animals'].loc[method]
        for method in (('an', 'linear'), ('hml', 'cosine'))
    )
    found = hml_conclusion._answer_by_searches(record)
    means = {name: answer.mean for name, answer in found.items()}
    expected = {'an': an.change.mean, 'by_one': hml.by_one.mean, 'by_all': hml.by_all.mean}
    assert means == pytest.approx(expected)
    assert hml_conclusion._answer_by_searches(record.iloc[:0]) == {}


def test_shipped_models_of_hml_say_where_their_margin_ends():
    shipped = hml_conclusion._read_shipped_models()
    scale, margin = shipped['start']
    assert len(shipped['scales']) == len(shipped['margins']) == 3
    assert all(0 < end < margin for end in shipped['margins'])
    assert all(abs(end - scale) < 1 for end in shipped['scales'])
