"""Notes taken during training, finished runs looked at, and what their gradients pull at."""

import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
from figure_runs import photos, trained, world  # noqa: F401 (fixtures)
from quick import config as quick_config
from quick import empty_zeros
from side_files import draw_side
from sklearn.metrics import average_precision_score

from spml_nb import training
from spml_nb.replication import ablation_arms, run_measurements
from spml_nb.replication.run_measurements import diagnose, measure_pulls
from spml_nb.runs.config import Config
from spml_nb.runs.folder import open_run


def test_observing_changes_no_bit_and_is_resumed(photos, monkeypatch):  # noqa: F811
    config = Config(
        loss='em', dataset=str(photos), backbone='mini', epochs=3, labels='single', selection='last'
    )
    plain = training.train(config)
    run = run_measurements.note_training(config)
    assert np.array_equal(training.read_result(run).logits['test'], plain.logits['test'])
    whole = run_measurements.read_notes(run)
    check_notes(run, whole)
    shutil.rmtree(run.folder)

    class Stop(Exception):
        pass

    write = training.Trainer.write

    def stop(self):
        write(self)
        raise Stop

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(training.Trainer, 'write', stop)
            with pytest.raises(Stop):
                run_measurements.note_training(config)
    run_measurements.note_training(config)
    for name, value in run_measurements.read_notes(run).items():
        assert np.array_equal(value, whole[name], equal_nan=True), name


def check_notes(run, found):
    "The last notes are those of the finished network."
    assert found['annotated'].shape == (3 * run_measurements.POINTS,) and found[
        'logit'
    ].shape == found['probability'].shape == (3, 3, 3)
    assert found['negative'].shape == (3, 3)
    seen = run_measurements.score_run(run)
    for k, group in enumerate(
        [
            seen.task.observed == 1,
            (seen.task.observed == 0) & (seen.true == 1),
            (seen.task.observed == 0) & (seen.true == -1),
        ]
    ):
        assert np.allclose(
            found['logit'][-1, k],
            np.quantile(abs(seen.logits[group]), [0.25, 0.5, 0.75]),
            atol=1e-5,
        )
        assert np.allclose(
            found['probability'][-1, k],
            np.quantile(1 / (1 + np.exp(-seen.logits[group])), [0.25, 0.5, 0.75]),
            atol=1e-5,
        )
        assert np.isclose(found['negative'][-1, k], (seen.logits[group] < 0).mean(), atol=1e-6)


def test_the_loss_of_annotated_positives_is_their_mean():
    notes = run_measurements.Notes()
    notes.steps = [
        [2.0, 1],
        [3.0, 3],
        [0.0, 0],
        [4.0, 1],
        [1.0, 1],
        [6.0, 2],
        [1.0, 4],
        [0.0, 0],
        [2.0, 2],
        [3.0, 1],
    ]
    notes.epochs = [[[[0] * 3] * 3] * 2]
    assert np.allclose(notes.arrays()['annotated'], [5 / 4, 4, 7 / 3, 1 / 4, 5 / 3])


@pytest.mark.parametrize('regime', ['finetune', 'linear'])
def test_a_run_is_examined_at_the_weights_that_its_result_is_of(photos, regime):  # noqa: F811
    run = trained(photos, regime=regime)
    assert np.allclose(
        run_measurements.score_run(run, 'test').logits,
        training.read_result(run).logits['test'],
        atol=1e-4,
    )


@pytest.mark.parametrize(
    'complete, truth',
    [
        (['train', 'val', 'test'], 'complete'),
        ([*range(20), 'val', 'test'], 'partly known'),
        (['val', 'test'], 'observed only'),
    ],
)
def test_what_nobody_knows_is_on_neither_side(photo_folder, complete, truth):
    empty_zeros(photo_folder, complete)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        run = open_run(
            training.train(quick_config(photo_folder, labels='single', regime='linear')).folder
        )
        found, (pull, z, true, logits) = diagnose(run), measure_pulls(run)
    assert found['train_truth'] == truth and found['val_truth'] == found['test_truth'] == 'complete'
    false, right, hidden = 0.0, 0.0, []
    for c in range(true.shape[1]):
        kept = [i for i in range(len(true)) if z[i, c] == 0 and true[i, c] != 0]
        for i in kept:
            if true[i, c] > 0:
                false += abs(pull[i, c].item())
            else:
                right += abs(pull[i, c].item())
        signs = [true[i, c] > 0 for i in kept]
        if any(signs) and not all(signs):
            hidden.append(average_precision_score(signs, [logits[i, c].item() for i in kept]))
    assert found['share_false'] == pytest.approx(false / (false + right))
    assert found['hidden_map'] == pytest.approx(
        100 * np.mean(hidden) if hidden else np.nan, nan_ok=True
    )


def test_labels_that_a_loss_corrects_for_good_are_those_of_the_run(photo_folder):
    run = open_run(
        training.train(
            quick_config(
                photo_folder, loss='llcp', labels='single', regime='linear', hparams={'delta': 0.2}
            )
        ).folder
    )
    _, z, true, _ = measure_pulls(run)
    assert np.array_equal(z, run_measurements.open_own_data(run).method.z.numpy()) and (
        z == 1
    ).sum() >= len(true)


@pytest.mark.parametrize('loss', ['epr_count', 'pseudo_scores', 'group_consistency'])
def test_a_loss_that_reads_side_information_is_examined_with_it(photo_folder, tmp_path, loss):
    side = str(draw_side(photo_folder, tmp_path / 'side.csv'))
    run = open_run(
        training.train(
            quick_config(photo_folder, loss=loss, side=side, labels='single', regime='linear')
        ).folder
    )
    pull, *_ = measure_pulls(run)
    assert pull.abs().sum() > 0 and diagnose(run)['test_truth'] == 'complete'


OFF = {'high_rank': False, 'smoothing': False, 'correction': False}


def test_shares_are_those_of_the_steps_and_a_weight_counts_in_proportion(photo_folder):
    shares = run_measurements.measure_gradient_shares(
        quick_config(
            photo_folder, loss='opml_sp', regime='linear', epochs=3, patience=0, hparams=OFF
        )
    )
    assert shares['λ = 0.01'] == pytest.approx(10 * shares['λ = 0.001'], rel=1e-9)
    assert 0 < shares['γ = 4'] < shares['γ = 2'] < shares['γ = 1']


def test_the_rule_takes_the_smallest_that_act_on_every_set():
    names = [f'λ = {weight:g}' for weight in run_measurements.RANK_WEIGHTS] + [
        'γ = 4',
        'γ = 2',
        'γ = 1',
    ]
    shares = pd.DataFrame(
        {
            'a': [0.006, 0.06, 0.6, 6, 0.2, 0.3, 0.9],
            'b': [0.011, 0.11, 1.1, 11, 0.05, 0.1, 0.8],
        },
        index=names,
    )
    assert run_measurements.smallest_acting_weights(shares) == (1e-2, 2)
    assert run_measurements.smallest_acting_weights(shares[['b']]) == (1e-3, 2)
    assert run_measurements.smallest_acting_weights(shares[['a']]) == (1e-2, 4)
    hparams = ablation_arms.read_ablations()['opml_parts'].arms['all, λ = 0.01'].hparams
    assert (hparams['rank_weight'], hparams['gamma']) == (
        1e-2,
        2,
    )  # as measured with `tabulate_gradient_shares`
