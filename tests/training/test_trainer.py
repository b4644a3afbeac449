"""The loop: it learns in every regime, repeats itself bit for bit, says which loss went wrong, and
lets others look on.
"""

import json
import os
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import check_resumes_equally
from quick import config
from side_files import draw_side

from spml_nb import models, runs, training
from spml_nb.base import progress, settings
from spml_nb.base.errors import SpmlError
from spml_nb.data import load
from spml_nb.methods.core import promote, reduce, register_loss
from spml_nb.runs import record
from spml_nb.training import trainer
from spml_nb.training.batches import hash_weights
from spml_nb.use.export import export
from spml_nb.use.predict import predict


def broken_at_step_3_loss(logits, z, *, reduction: str = 'mean'):
    broken_at_step_3_loss.calls += 1
    value = reduce(torch.nn.functional.softplus(-promote(logits)), reduction)
    return value * (
        float('nan') if broken_at_step_3_loss.calls == broken_at_step_3_loss.breaks_at else 1.0
    )


broken_at_step_3_loss.calls, broken_at_step_3_loss.breaks_at = (
    0,
    None,
)  # whole, for tests of every method
register_loss('broken_at_step_3', broken_at_step_3_loss)


@pytest.fixture
def folder(photo_folder):
    return photo_folder


@pytest.mark.parametrize('regime', ['finetune', 'linear', 'linear_init'])
def test_it_learns_in_every_regime(folder, regime):
    result = training.train(
        config(
            folder,
            regime=regime,
            labels='full',
            epochs=5,
            linear_epochs=10,
            lr=3e-3,
            linear_lr=3e-2,
        )
    )
    assert result.scores['test_map'] > 80
    assert (result.folder / 'DONE').is_file() and not (result.folder / 'last.pt').exists()
    assert result.curves['stage'].nunique() == (2 if regime == 'linear_init' else 1)
    assert np.isfinite(result.logits['test']).all() and result.logits['test'].dtype == np.float32


@pytest.mark.parametrize(('place', 'bars'), [('terminal', True), ('log', False)])
def test_progress_within_an_epoch_is_shown_on_a_terminal_alone(
    folder, capfd, monkeypatch, place, bars
):
    monkeypatch.setattr(progress, 'find_display', lambda: place)
    monkeypatch.setattr(progress, 'PATIENCE', 0)
    monkeypatch.setattr(progress, 'LINE_INTERVAL', 0)  # a log would get every line
    training.train(config(folder, regime='linear', epochs=2))
    told = capfd.readouterr().err
    assert all((f'epoch {k}: ' in told) == bars for k in (1, 2)) and ('steps' in told) == bars


@pytest.mark.parametrize(
    'loss', ['an', 'crisp']
)  # the second looks at the scores itself, when the epoch ends
def test_what_goes_wrong_in_the_last_step_is_divergence_too(folder, loss):
    "One step an epoch: its loss is computed before the weights become useless."
    with pytest.raises(
        trainer.Diverged,
        match=(
            f"scores of '{loss}' are not finite after epoch 1. Lower the learning rate .lr is "
            "1e.38.[.]"
        ),
    ):
        training.train(config(folder, loss=loss, regime='linear', lr=1e38, batch_size=64))


def test_a_loss_that_is_no_number_is_refused(folder):
    with pytest.raises(
        SpmlError,
        match=(
            r"the loss of 'an' has the shape \(\d+, \d+\); training needs a scalar. "
            r"Set its hyper-parameter `reduction`"
        ),
    ):
        training.train(config(folder, regime='linear', hparams={'reduction': 'none'}))


@pytest.mark.parametrize('loss', ['an', 'bce', 'em'])
def test_the_first_methods_train(folder, loss):
    assert np.isfinite(
        training.train(config(folder, loss=loss, regime='linear')).curves['loss']
    ).all()


@pytest.mark.silent('C2')
def test_test_photos_that_are_training_photos_are_told_and_recorded(folder):
    data = load(folder)
    assert training.train(config(folder, regime='linear', epochs=1)).scores['test_in_train'] == 0
    for tested, trained in zip(data.rows('test')[:3], data.rows('train'), strict=False):
        data.images[tested].write_bytes(data.images[trained].read_bytes())
    with pytest.warns(
        UserWarning, match=f'of {len(data.rows("test"))} test photos 3 are training photos'
    ):
        assert (
            training.train(config(folder, regime='linear', epochs=1, seed=1)).scores[
                'test_in_train'
            ]
            == 3
        )
    assert sorted(runs.load().test_in_train) == [0, 3]


def test_same_command_gives_the_finished_result(folder, capsys):
    first = training.train(config(folder, regime='linear'))
    stamp = (first.folder / 'result.json').stat().st_mtime_ns
    second = training.train(config(folder, regime='linear'))
    assert 'already done' in capsys.readouterr().out
    assert (
        second.scores == first.scores and (first.folder / 'result.json').stat().st_mtime_ns == stamp
    )


def test_same_seed_same_bits_and_other_seed_other_bits(folder):
    first, other = (training.train(config(folder, seed=s)) for s in (0, 1))
    os.environ['SPML_NB_RUNS'] += '-again'
    again = training.train(config(folder))
    assert (
        np.array_equal(first.logits['test'], again.logits['test']) and first.folder != again.folder
    )
    assert not np.array_equal(first.logits['test'], other.logits['test'])


def test_a_run_on_other_labels_stands_beside_the_first_and_each_is_found_again(folder, capsys):
    before = (folder / 'labels.csv').read_text()
    first = training.train(config(folder, regime='linear'))
    content = {file: file.read_bytes() for file in first.folder.iterdir()}
    table = pd.read_csv(folder / 'labels.csv')
    table.loc[0, 'labels'] = 'blue'
    table.to_csv(folder / 'labels.csv', index=False)
    capsys.readouterr()
    second = training.train(config(folder, regime='linear'))
    assert second.folder.name == f'{first.folder.name}-{load(folder).fingerprint[:6]}'
    assert f'{first.folder.name} was trained before' in capsys.readouterr().out
    assert {file: file.read_bytes() for file in first.folder.iterdir()} == content
    runs = record.load()
    assert set(runs.run) == {first.folder.name, second.folder.name} and runs.key.is_unique
    assert training.train(config(folder, regime='linear')).folder == second.folder
    (folder / 'labels.csv').write_text(before)
    assert training.train(config(folder, regime='linear')).folder == first.folder
    assert capsys.readouterr().out.count('already done') == 2


def test_bad_loss_names_method_epoch_and_step_and_keeps_the_checkpoint(folder):
    steps = 3  # 38 training images in batches of 16
    for breaks_at, epoch in ((2, 1), (steps + 2, 2)):
        broken_at_step_3_loss.calls, broken_at_step_3_loss.breaks_at = 0, breaks_at
        with pytest.raises(SpmlError) as error:
            training.train(config(folder, loss='broken_at_step_3'))
        assert f"'broken_at_step_3' became nan at step 2 of epoch {epoch}" in str(
            error.value
        ) and 'Lower the learning rate' in str(error.value)
    folder_of_run = next(settings.get_folder('runs').glob('broken*'))
    assert (folder_of_run / 'last.pt').is_file() and not (folder_of_run / 'DONE').exists()
    assert torch.load(folder_of_run / 'last.pt', weights_only=True)['epoch'] == 1


def test_a_linear_run_says_which_backbone_it_was_trained_on(folder):
    result = training.train(config(folder, regime='linear', epochs=1))
    assert runs.read_json(result.folder / 'result.json')['backbone'] == hash_weights(
        models.create('mini', 3)
    )


class Notes:
    "Counts what a run has seen, and keeps the count in its checkpoints."

    def __init__(self):
        self.rows, self.losses, self.ends = [], [], []

    def __call__(self, trainer, index, outputs, loss):
        assert outputs.logits.shape == (len(index), 3) and not loss.requires_grad and loss.ndim == 0
        self.rows += index.tolist()
        self.losses.append(loss.item())

    def end_epoch(self, trainer):
        self.ends.append((trainer.epoch, len(trainer.history), tuple(trainer.score().shape)))

    def state_dict(self):
        return {'rows': self.rows, 'losses': self.losses}

    def load_state_dict(self, state):
        self.rows, self.losses = state['rows'], state['losses']


def test_who_looks_on_sees_every_step_changes_nothing_and_goes_on_where_the_run_does(
    folder, tmp_path
):
    plain = training.train(config(folder))
    whole, seen = Notes(), Notes()
    watched = training.train(config(folder), root=tmp_path / 'watched', on_step=whole)
    n = len(training.make_task(config(folder)).train)
    assert (
        np.array_equal(plain.logits['test'], watched.logits['test'])
        and watched.folder.parent == tmp_path / 'watched'
    )
    assert sorted(whole.rows) == sorted([*range(n)] * 2) and whole.ends == [
        (1, 0, (n, 3)),
        (2, 1, (n, 3)),
    ]
    assert np.mean(whole.losses[:3]) == pytest.approx(watched.curves.loss[0], rel=1e-6)

    class Stop(Exception):
        pass

    def stop(curves):
        raise Stop

    with pytest.raises(Stop):
        training.train(config(folder), root=tmp_path / 'stopped', on_step=seen, on_epoch=stop)
    later = Notes()
    training.train(config(folder), root=tmp_path / 'stopped', on_step=later)
    assert len(seen.losses) == 3 and (later.rows, later.losses) == (whole.rows, whole.losses)


def test_the_methods_labels_are_judged_at_the_best_epoch_and_at_the_last(folder, monkeypatch):
    falling, marks = iter(range(90, 0, -1)), []
    monkeypatch.setattr(
        trainer, 'score_by_rule', lambda *_: next(falling)
    )  # so that the first epoch is the best

    class Watch(Notes):
        def end_epoch(self, run):
            marks.append(run.method.pseudo.numpy().copy())

    scores = training.train(
        config(
            folder, loss='em_apl', regime='linear', epochs=4, hparams={'positive_proportion': 0.1}
        ),
        on_step=Watch(),
    ).scores
    before, after, task = marks[0], marks[-1], training.make_task(config(folder))
    right = task.data.labels[task.train][after > 0] > 0
    assert (
        scores['best_epoch'] == 1
        and not before.any()
        and not {'pseudo_positive_precision', 'pseudo_negative_precision'} & set(scores)
    )
    assert 0 < len(right) < after.size and scores[
        'pseudo_positive_precision_at_end'
    ] == pytest.approx(100 * right.mean())
    assert 0 < scores['pseudo_negative_precision_at_end'] <= 100


@pytest.mark.parametrize('regime', ['linear', 'finetune'])
def test_the_first_stage_of_lac_is_lac_plc_to_the_bit(folder, regime):
    same = {
        'regime': regime,
        'head': 'labelwise',
        'embedding_dim': 16,
        'epochs': 3,
        'patience': 0,
        'schedule': 'onecycle',
        'optimizer': 'adamw',
        'weight_decay': 0.01,
        'ema': 0.9,
    }
    alone = training.train(config(folder, loss='lac_plc', **same))
    both = training.train(config(folder, loss='lac', **same))
    first = both.curves[both.curves.stage == 1]
    assert len(first) == 3 and len(both.curves) == 6
    for column in ('loss', 'val_map', 'lr'):
        assert first[column].tolist() == alone.curves[column].tolist()


def test_validation_at_the_last_epoch_is_kept_beside_the_best(folder, monkeypatch):
    falling = iter(range(90, 0, -1))
    monkeypatch.setattr(trainer, 'score_by_rule', lambda *_: next(falling))
    result = training.train(config(folder, regime='linear', epochs=4, patience=0))
    assert result.curves.val_map.iloc[-1] == result.scores['val_map_at_end'] < 90
    assert result.scores['best_epoch'] == 1


def test_a_task_may_be_given(folder):
    task = training.make_task(config(folder, labels='full'))
    given = training.train(config(folder), task=task)
    made = training.train(config(folder, labels='full'))
    assert np.array_equal(given.logits['test'], made.logits['test'])


def begun(given, **more):
    "Train until the first epoch has been written."

    class Stop(Exception):
        pass

    def stop(curves):
        raise Stop

    with pytest.raises(Stop):
        training.train(given, on_epoch=stop, **more)


@pytest.mark.parametrize(
    'change',
    [
        {'observed': lambda task: -task.observed},
        {'train': lambda task: task.train[::-1]},
        {'test': lambda task: task.test[1:]},
    ],
)
def test_the_result_of_another_task_is_neither_handed_back_nor_gone_on_with(
    folder, tmp_path, change
):
    given = config(folder, regime='linear', labels='full')
    task = training.make_task(given)
    other = replace(task, **{name: new(task) for name, new in change.items()})
    training.train(given, task=task)
    begun(given, task=task, root=tmp_path / 'begun')
    for root in (None, tmp_path / 'begun'):
        with pytest.raises(
            SpmlError, match='was begun on rows or observed labels that have changed since. Remove'
        ):
            training.train(given, task=other, root=root)
        assert (
            training.train(given, task=training.make_task(given), root=root).curves.epoch.max() == 2
        )


def test_another_file_of_weights_at_the_same_place_is_noticed(folder, tmp_path):
    file = tmp_path / 'weights.pt'

    def write(seed):
        torch.manual_seed(seed)
        torch.save(models.create('mini', 3, weights='none').backbone.state_dict(), file)

    write(0)
    given = config(folder, regime='linear', weights=str(file))
    first = training.train(given)
    begun(given, root=tmp_path / 'begun')
    write(1)
    for root in (None, tmp_path / 'begun'):
        with pytest.raises(SpmlError, match='was begun on weights that have changed since'):
            training.train(given, root=root)
    write(0)
    assert np.array_equal(
        training.train(given, root=tmp_path / 'begun').logits['test'], first.logits['test']
    )
    file.unlink()
    assert training.train(given).scores == first.scores  # nothing to compare with


def test_runs_of_older_versions_say_less_and_are_handed_back(folder):
    result = training.train(config(folder, regime='linear'))
    file = result.folder / 'result.json'
    said = runs.read_json(file)
    file.write_text(json.dumps({k: v for k, v in said.items() if k not in ('task', 'weights')}))
    assert said['task'] and training.train(config(folder, regime='linear')).scores == result.scores


@pytest.mark.parametrize('interrupted', [False, True])
def test_late_speaks_of_the_epochs_that_were_kept(folder, monkeypatch, interrupted):
    """The rule by true labels is over in epoch 3; the other one goes on, and by then validation is
    better.
    """
    values = iter([50, 50, 40, 60, 30, 70, 90, 80, 95, 85] + [99] * 20)
    monkeypatch.setattr(trainer, 'score_by_rule', lambda *_: next(values))
    given = config(folder, regime='linear', epochs=4, patience=0, stop_below=5)
    if interrupted:
        begun(given)
    result = training.train(given)
    assert (
        result.curves.val_map.idxmax() == 3
        and result.scores['best_epoch'] == 1
        and result.scores['late'] == 0
    )


def test_late_speaks_of_every_stage_after_an_interruption_too(folder, tmp_path):
    given = config(
        folder, regime='linear_init', linear_epochs=2, epochs=6, lr=1e-30, freeze_batchnorm=True
    )  # the second stage keeps its first epoch
    whole = training.train(given)

    class Stop(Exception):
        pass

    def stop(curves):
        if curves.stage.max() == 2:
            raise Stop

    with pytest.raises(Stop):
        training.train(given, root=tmp_path / 'stopped', on_epoch=stop)
    resumed = training.train(given, root=tmp_path / 'stopped')
    assert (
        whole.scores['best_stage'] == 2
        and whole.scores['best_epoch'] == 1
        and whole.scores['late'] == resumed.scores['late'] == 1
    )


def test_a_batch_that_batch_normalisation_cannot_take_is_explained(folder):
    given = {
        'image_size': 8,
        'train_images': 33,
        'batch_size': 37,
    }  # an epoch of 38: the last batch is one image, of one pixel in the end
    with pytest.raises(
        SpmlError,
        match=(
            r'cannot train on a batch of 1: Expected more than 1 value.*batch_size, '
            r'a larger image_size, or freeze_batchnorm: true'
        ),
    ):
        training.train(config(folder, **given))
    assert len(training.train(config(folder, freeze_batchnorm=True, **given)).curves) == 2


@pytest.mark.parametrize('precision', ['fp16', 'bf16'])
def test_fp16_on_a_cpu_is_said_to_be_slow(folder, precision):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        training.train(config(folder, precision=precision, epochs=1, device='cpu', regime='linear'))
    assert any('precision: fp16 is several times slower' in str(w.message) for w in caught) == (
        precision == 'fp16'
    )


# ---- side information


@pytest.fixture
def counted(folder, tmp_path):
    return config(
        folder, loss='epr_count', side=str(draw_side(folder, tmp_path / 'side.csv')), lr=1e-3
    )


@pytest.mark.parametrize('loss', ['epr_count', 'pseudo_scores', 'group_consistency'])
def test_a_run_with_side_information_goes_on_where_it_stopped(counted, loss, monkeypatch):
    check_resumes_equally(replace(counted, loss=loss, epochs=3), monkeypatch)


def test_it_is_used_and_a_changed_file_is_another_run(counted, folder, tmp_path):
    first = training.train(counted)
    table = pd.read_csv(tmp_path / 'side.csv')
    table.assign(count=0).to_csv(tmp_path / 'side.csv', index=False)
    second = training.train(counted)
    assert (
        first.folder != second.folder
        and not np.allclose(first.curves.loss, second.curves.loss)
        and not np.array_equal(first.logits['test'], second.logits['test'])
    )
    with pytest.raises(SpmlError, match='has changed since this run was named'):
        training.train(first.config)  # its name holds the content
    (tmp_path / 'elsewhere').mkdir()
    draw_side(folder, tmp_path / 'elsewhere' / 'side.csv')
    assert (
        training.train(replace(counted, side=str(tmp_path / 'elsewhere' / 'side.csv'))).folder
        == first.folder
    )


@pytest.mark.parametrize('loss', ['epr_count', 'group_consistency'])
def test_a_done_run_needs_its_side_information_no_more(counted, loss, folder, tmp_path):
    result = training.train(replace(counted, loss=loss))
    (tmp_path / 'side.csv').unlink()
    before = predict(result.folder, folder / 'images')
    after = predict(export(result.folder, tmp_path / 'model.safetensors'), folder / 'images')
    assert (
        len(before) == 60
        and np.allclose(before.select_dtypes(float), after.select_dtypes(float), atol=1e-5)
        and before.select_dtypes(float).shape[1] == 3
    )
    row = runs.load().iloc[0]
    assert row.side.startswith('side.csv@') and row.key.startswith(f'{loss}-photos-')
    assert not [
        name
        for name in torch.load(result.folder / 'best.pt', weights_only=True)['method']
        if 'side' in name
    ]


def test_a_kind_that_the_file_lacks_is_named_before_anything_is_written(counted, tmp_path):
    table = pd.read_csv(tmp_path / 'side.csv')
    table[['image', 'group']].to_csv(tmp_path / 'side.csv', index=False)
    for loss, kind in (('epr_count', 'count'), ('pseudo_scores', 'scores')):
        with pytest.raises(
            SpmlError,
            match=(
                f'the method needs {kind} of each training image, and the file of side information '
                'holds group'
            ),
        ):
            training.train(replace(counted, loss=loss))
    assert not [p for p in settings.get_folder('runs').glob('*') if p.is_dir()]
