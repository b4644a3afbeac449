"""What a method does with unobserved labels: whatever nobody knows is on neither side."""

import warnings

import numpy as np
import pytest
from quick import config, empty_zeros
from side_files import draw_side
from sklearn.metrics import average_precision_score

from spml_nb import training
from spml_nb.replication.diagnosis import diagnose, measure_pulls
from spml_nb.replication.figure_measurements import open_own_data
from spml_nb.runs.folder import open_run


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
            training.train(config(photo_folder, labels='single', regime='linear')).folder
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
            config(
                photo_folder, loss='llcp', labels='single', regime='linear', hparams={'delta': 0.2}
            )
        ).folder
    )
    _, z, true, _ = measure_pulls(run)
    assert np.array_equal(z, open_own_data(run).method.z.numpy()) and (z == 1).sum() >= len(true)


@pytest.mark.parametrize('loss', ['epr_count', 'pseudo_scores', 'group_consistency'])
def test_a_loss_that_reads_side_information_is_examined_with_it(photo_folder, tmp_path, loss):
    side = str(draw_side(photo_folder, tmp_path / 'side.csv'))
    run = open_run(
        training.train(
            config(photo_folder, loss=loss, side=side, labels='single', regime='linear')
        ).folder
    )
    pull, *_ = measure_pulls(run)
    assert pull.abs().sum() > 0 and diagnose(run)['test_truth'] == 'complete'
