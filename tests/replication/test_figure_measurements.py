"""Notes taken during training, and finished runs looked at."""

import shutil

import numpy as np
import pytest
from figure_runs import photos, trained, world  # noqa: F401 (fixtures)

from spml_nb import training
from spml_nb.replication import figure_measurements
from spml_nb.runs.config import Config


def test_observing_changes_no_bit_and_is_resumed(photos, monkeypatch):  # noqa: F811
    config = Config(
        loss='em', dataset=str(photos), backbone='mini', epochs=3, labels='single', selection='last'
    )
    plain = training.train(config)
    run = figure_measurements.note_training(config)
    assert np.array_equal(training.read_result(run).logits['test'], plain.logits['test'])
    whole = figure_measurements.read_notes(run)
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
                figure_measurements.note_training(config)
    figure_measurements.note_training(config)
    for name, value in figure_measurements.read_notes(run).items():
        assert np.array_equal(value, whole[name], equal_nan=True), name


def check_notes(run, found):
    "The last notes are those of the finished network."
    assert found['annotated'].shape == (3 * figure_measurements.POINTS,) and found[
        'logit'
    ].shape == found['probability'].shape == (3, 3, 3)
    assert found['negative'].shape == (3, 3)
    seen = figure_measurements.score_run(run)
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
    notes = figure_measurements.Notes()
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
        figure_measurements.score_run(run, 'test').logits,
        training.read_result(run).logits['test'],
        atol=1e-4,
    )
