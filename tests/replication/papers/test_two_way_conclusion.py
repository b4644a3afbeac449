"""The numbers in the conclusion on the two-way loss are those of its tables."""

import pytest
from worked_out import paper_claims, recorded_runs

from spml_nb.replication import answers, paper_conclusions, published, tables
from spml_nb.replication.papers import two_way_conclusion
from spml_nb.sweeps.search import Row


@pytest.fixture(scope='module')
def record():
    return recorded_runs()


def test_two_ways_leads_are_differences_of_its_table(record):
    cells = tables.table('two_way', '7', record).of(published.PHOTOS_SUITE)
    levels = cells.pivot(index='row', columns='column')['ours']
    fields = two_way_conclusion.collect_fields(record)
    two, six = ['VOC2012', 'MSCOCO'], ['cub_crops', 'mirflickr14', 'corel5k', 'ccp']
    for in_both, one, other, sets in (
        (fields['leads']['ASL'], 'Ours', 'ASL', two + six),
        (fields['leads']['weighted BCE'], 'Ours', 'BCE', two + six),
        (fields['over_plain']['two-way'], 'Ours', 'plain BCE', two),
        (fields['over_plain']['softmax'], 'Softmax', 'plain BCE', two),
    ):
        for answer, measure in zip(in_both, ('mAP@class', 'mAP@sample'), strict=True):
            level = levels[f'{measure} / ResNet50']
            gaps = [level[f'{place} / {one}'] - level[f'{place} / {other}'] for place in sets]
            assert answer.mean == pytest.approx(sum(gaps) / len(gaps), abs=2e-4)
            assert answer.places == len(sets)


def test_what_a_way_alone_loses_in_the_other_measure_is_told(record):
    text = paper_conclusions.format_conclusion('two_way', paper_claims('two_way'), record)
    _, take_away = text.split('**What to take from it.**')
    for loss in ('two_way', 'two_way_class', 'two_way_sample'):
        over_classes, over_samples = (
            answers.answer_gain(record, Row(loss), Row('an'), metric)
            for metric in ('mAP', 'mAP@sample')
        )
        assert f'| {over_classes.ours}, {over_samples.ours} |' in text
        if loss == 'two_way_class':
            assert over_samples.high < 0 < over_classes.low and over_samples.ours in take_away
