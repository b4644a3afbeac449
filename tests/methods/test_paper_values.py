"""The sections `presets` of the papers' files: no slip of the pen, and how they are read."""

import hashlib
import json
from dataclasses import replace

import pytest

from spml_nb.base.errors import SpmlError
from spml_nb.methods import paper_values
from spml_nb.methods.core import find
from spml_nb.methods.paper_values import PAPERS, Value, read_paper_values


def entries(paper):
    "Every {'value', 'origin', 'where'} of a paper."
    for stated in (read_paper_values(paper).every, *read_paper_values(paper).losses.values()):
        for entry in stated.values():
            yield from entry if isinstance(entry, list) else [entry]


@pytest.mark.parametrize('paper', PAPERS)
def test_presets_have_no_slip_of_the_pen(paper):
    datasets = paper_values.paper_datasets(paper)
    for entry in entries(paper):
        assert set(entry) in ({'value', 'origin', 'where'}, {'value_of', 'origin', 'where'})
        assert entry['origin'] in paper_values.ORIGINS and isinstance(entry['where'], str)
        assert entry.get('value_of', 'hml') in PAPERS
        value = entry.get('value')
        if isinstance(value, list):
            assert len(value) == len(datasets)
        if isinstance(value, dict):
            assert set(value) < set(datasets)
    for loss, where in read_paper_values(paper).only_on.items():
        assert loss in read_paper_values(paper).losses and set(where) < set(datasets)
    for source, losses in read_paper_values(paper).quoted.items():
        assert set(losses) <= set(read_paper_values(source).losses)
    for loss in paper_values.paper_losses(paper, datasets[0]):
        assert find(loss)


def digest(paper):
    "Of every value that a paper's file resolves to, without the places where it stands."
    stated = {
        f'{dataset} {loss} {name}': value.value
        for dataset in paper_values.paper_datasets(paper)
        for loss in paper_values.paper_losses(paper, dataset)
        for name, value in paper_values.paper_values(paper, dataset, loss).items()
    }
    return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    'paper, digits',
    [
        ('hml', '3ebc4af8e7aac73f'),
        ('em_apl', '4615dae08137461c'),
        ('opml', '1c2a2a77b670bb60'),
        ('lac', '07a65e0a7d4682e9'),
        ('two_way', 'df7d08f4471920ad'),
    ],
)
def test_values_are_those_that_were_once_compared_with_the_text(paper, digits):
    assert digest(paper) == digits


def test_an_entry_may_hold_for_all_data_sets_for_each_or_for_some(monkeypatch):
    def value(entry):
        stated = replace(
            read_paper_values('two_way'), datasets=['a', 'b'], every={}, losses={'an': {'x': entry}}
        )
        monkeypatch.setattr(paper_values, 'read_paper_values', lambda paper: stated)
        return [paper_values.paper_values('two_way', name, 'an').get('x') for name in ('a', 'b')]

    entry = {'value': 1, 'origin': 'paper', 'where': 'Table 1'}
    assert value(entry) == [Value(1, 'paper', 'Table 1')] * 2
    assert [v.value for v in value(entry | {'value': [1, 2]})] == [1, 2]
    for_b = {'value': {'b': 3}, 'origin': 'code', 'where': 'main'}
    assert value(for_b) == [None, Value(3, 'code', 'main')]
    assert value([entry, for_b]) == [Value(1, 'paper', 'Table 1'), Value(3, 'code', 'main')]


def test_a_value_that_a_paper_quotes_stands_in_the_other():
    for dataset in paper_values.paper_datasets('lac'):
        for loss, name in (('em', 'alpha'), ('em_apl', 'beta')):
            theirs = paper_values.paper_values('em_apl', dataset, loss)[name]
            quoted = paper_values.paper_values('lac', dataset, loss)[name]
            assert quoted.value == theirs.value and (quoted.origin, theirs.origin) == (
                'cited',
                'paper',
            )


def test_what_holds_of_a_loss_alone_is_read_for_every_data_set():
    stated = paper_values.paper_values_of_loss('two_way', 'two_way_class')
    assert set(stated) == set(paper_values.paper_datasets('two_way'))
    assert all(values == {'T_pos': 4, 'T_neg': 1, 'bucket': 128} for values in stated.values())
    with pytest.raises(SpmlError, match="loss of 'two_way' on 'voc12'"):
        paper_values.paper_values('two_way', 'voc12', 'two_way_class')
