"""What is said beside the claims of the two-way paper."""

import pandas as pd
import pytest

from spml_nb.replication.papers import two_way_claims
from spml_nb.statistics import effect_from_error

WEIGHTED = ('two_way-others', 'two_way-softmax-measure', 'two_way-softmax-class')


@pytest.mark.parametrize('claim', WEIGHTED)
def test_a_claim_over_the_weighted_bce_says_what_is_left_over_the_plain_one(claim, monkeypatch):
    def leads(loss, rival, measure, runs):
        assert rival == 'plain BCE'
        mean = {'Ours': 1.0, 'Softmax': -5.0, 'BCE': -2.0}[loss]
        mean += 0.5 * (measure == 'mAP@sample')
        return [effect_from_error(mean + k, 0.1, 9, 0.0, 10) for k in (0, 1)]

    note = two_way_claims.NOTES[claim]
    without = note(pd.DataFrame())
    assert 'ours is a reading' in without and 'plain BCE' not in without
    monkeypatch.setattr(two_way_claims, 'estimate_leads', leads)
    told = note(pd.DataFrame())
    assert told.startswith(without) and 'on 2 of our sets' in told
    for words in ('two-way +1.5 ± 0.5 and +2.0', 'softmax −4.5', 'weighted BCE −1.5'):
        assert words in told


def test_softmax_is_asked_beside_bce_once_in_each_measure():
    sides = {
        claim: two_way_claims.COMPARE[claim].keywords
        for claim in ('two_way-softmax-measure', 'two_way-softmax-class')
    }
    assert sides['two_way-softmax-measure'] == {
        'measure': 'mAP@sample',
        'one': 'Softmax',
        'other': 'BCE',
    }
    assert sides['two_way-softmax-class'] == {
        'measure': 'mAP@class',
        'one': 'BCE',
        'other': 'Softmax',
    }
