"""What the notebooks of the methods say of real photos is what the boards hold."""

import csv
from pathlib import Path

import pytest

from spml_nb.replication.gain_sentences import describe_gains

METHODS = Path(__file__).resolve().parents[2] / 'outputs' / 'methods'
SETS = ('voc12_animals', 'coco18', 'cub_crops', 'mirflickr14', 'corel5k', 'ccp')


@pytest.fixture(autouse=True)
def outputs(monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(METHODS.parent))


def board(loss, head, column):
    "{data set: number} of a row with single labels."
    numbers = {}
    for name in SETS:
        with open(METHODS / f'{name}.csv', encoding='utf-8') as file:
            for row in csv.DictReader(file):
                if (row['loss'], row['head'], row['labels']) == (loss, head, 'single'):
                    numbers[name] = float(row[column])
    return numbers


def test_a_sentence_has_the_mean_the_ends_and_the_same_head():
    text = describe_gains('hml')
    over_plain, over_same = (board('hml', 'cosine', c) for c in ('over_plain_an', 'over_an'))
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
    acted = sum(share > 0.5 for share in board('em_apl', 'linear', 'exercised').values())
    assert f'{acted} of 6 sets' in describe_gains('em_apl')


def test_nothing_is_said_without_runs_or_boards(monkeypatch, tmp_path):
    assert describe_gains('epr_count') == ''
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path))
    assert describe_gains('hml') == ''
