"""What a part adds to the gradient is measured along a run of OPML; the rule takes what acts."""

import pandas as pd
import pytest
from quick import config

from spml_nb.replication import ablation_arms, gradient_shares

OFF = {'high_rank': False, 'smoothing': False, 'correction': False}


def test_shares_are_those_of_the_steps_and_a_weight_counts_in_proportion(photo_folder):
    shares = gradient_shares.measure_shares(
        config(photo_folder, loss='opml_sp', regime='linear', epochs=3, patience=0, hparams=OFF)
    )
    assert shares['λ = 0.01'] == pytest.approx(10 * shares['λ = 0.001'], rel=1e-9)
    assert 0 < shares['γ = 4'] < shares['γ = 2'] < shares['γ = 1']


def test_the_rule_takes_the_smallest_that_act_on_every_set():
    names = [f'λ = {weight:g}' for weight in gradient_shares.WEIGHTS] + ['γ = 4', 'γ = 2', 'γ = 1']
    shares = pd.DataFrame(
        {
            'a': [0.006, 0.06, 0.6, 6, 0.2, 0.3, 0.9],
            'b': [0.011, 0.11, 1.1, 11, 0.05, 0.1, 0.8],
        },
        index=names,
    )
    assert gradient_shares.smallest_acting_weights(shares) == (1e-2, 2)
    assert gradient_shares.smallest_acting_weights(shares[['b']]) == (1e-3, 2)
    assert gradient_shares.smallest_acting_weights(shares[['a']]) == (1e-2, 4)
    hparams = ablation_arms.read_ablations()['opml_parts'].arms['all'].hparams
    assert (hparams['rank_weight'], hparams['gamma']) == (
        1e-2,
        2,
    )  # as measured with `shares_by_set`
