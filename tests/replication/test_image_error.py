"""Scores on samples of the test images: by counting images twice, from the files of outputs/, and
trained again.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from worked_out import suite_gains

from spml_nb import metrics, statistics
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.data.loading import load
from spml_nb.replication import board, image_error
from spml_nb.replication.tables import read_recorded_runs
from spml_nb.runs.config import Config
from spml_nb.sweeps.queue import canonical_config, run_key
from spml_nb.training import trainer
from spml_nb.training.trainer import train

OUTPUTS = Path(__file__).resolve().parents[2] / 'outputs'


@pytest.fixture
def scored():
    random = np.random.RandomState(3)
    true = np.where(random.rand(60, 4) < 0.3, 1, -1)
    true[random.rand(60, 4) < 0.2] = 0
    true[7] = -1  # an image without a positive
    return random.randn(60, 4), true


@pytest.mark.parametrize('metric', image_error.RESAMPLED_METRICS)
def test_an_image_that_is_drawn_twice_counts_twice(metric, scored):
    logits, true = scored
    draws = statistics.image_draws(60, 5)
    for weights, got in zip(
        draws, image_error.score_samples(metric, logits, true, draws, 0.4), strict=True
    ):
        rows = np.repeat(np.arange(60), weights)
        x, z = logits[rows], true[rows]
        if 'F1' in metric:
            expected = 100 * metrics.f1(1 / (1 + np.exp(-x)), z, metric[:5], 0.4, unknown='ignore')
        else:
            expected = metrics.mean_average_precision(
                x,
                z,
                axis='sample' if metric == 'mAP@sample' else 'class',
                unknown='ignore',
                empty='skip' if metric == 'mAP@sample' else 'zero',
            )
        assert got == pytest.approx(expected, abs=1e-9)


def test_the_error_of_a_sum_is_that_of_its_resampled_scores(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, 'get_folder', lambda name: tmp_path)
    random = np.random.RandomState(0)
    a, b = random.randn(2, 100).astype(np.float32)
    np.savez(tmp_path / statistics.RESAMPLED_FILE, **{'em mAP': a, 'an mAP': b})
    assert statistics.image_error(['em mAP', 'an mAP'], (1, -1), 9.0) == pytest.approx(
        (a - b).std(ddof=1), rel=1e-6
    )
    assert statistics.image_error(['em mAP', 'hml mAP'], (1, -1), 9.0) == 9.0  # one is not there
    assert statistics.image_error(['hml mAP'] * 4, (1, -1, -1, 1), 9.0) == pytest.approx(
        9.0 * 2**0.5
    )


@pytest.mark.silent('C5')
def test_a_lost_key_never_widens_an_interval_in_silence(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, 'get_folder', lambda name: tmp_path)
    a, b = np.random.RandomState(0).randn(2, 100).astype(np.float32)
    np.savez(tmp_path / statistics.RESAMPLED_FILE, **{'em mAP': a, 'an mAP': b})
    one = pd.Series([51.0, 51.5], [0, 1], name='em')
    other = pd.Series([50.0, 51.0], [0, 1], name='an')

    def compared(own, key, **fallback):
        return statistics.estimate_paired_effect(
            statistics.Scores(own, key), statistics.Scores(other, 'an'), **fallback
        )

    measured = compared(one, 'em')
    assert measured.half_width == pytest.approx(
        statistics.estimate_effect([1.0, 0.5], None, (a - b).std(ddof=1)).half_width, rel=1e-5
    )
    lost = pd.Series(
        one.to_numpy(), one.index
    )  # as many operations of pandas leave it: without a name
    assert lost.name is None and compared(lost, 'em') == measured == compared(
        one.rename('hml'), 'em', fallback=9.0
    )
    for wrong in ('', 'hml', 'em mAP'):
        with pytest.raises(SpmlError) as told:
            compared(one, wrong)
        assert repr(f'{wrong} mAP') in str(told.value) and 'default_image_error' in str(told.value)
        assert compared(one, wrong, fallback=9.0) == statistics.estimate_effect(
            [1.0, 0.5], None, 9.0
        )
    assert (
        compared(one, '', fallback=0.0) == statistics.estimate_effect([1.0, 0.5])
        and compared(other, '').half_width == 0
    )  # equal runs


@pytest.mark.silent('C5')
@pytest.mark.skipif(not (OUTPUTS / 'runs.csv').is_file(), reason='no table of record')
def test_every_linear_head_of_the_front_has_its_measured_error():
    "Where a fallback is given it is taken by the label-wise head and by whole networks alone."
    names = np.load(OUTPUTS / statistics.RESAMPLED_FILE).files
    levels = board.method_levels(suite_gains())
    bare = {
        method
        for method, sets in levels.items()
        for scores in sets.values()
        if f'{scores.key} {scores.metric}' not in names
    }
    assert len(levels) > 30 and {head for _, head in bare} <= {'labelwise', 'maps'}


def test_methods_are_trained_again_once_and_what_nobody_compares_goes(tmp_path, monkeypatch):
    configs = [
        Config(loss='an', dataset='mini_voc', regime='linear', epochs=1, seed=s, label_seed=s)
        for s in (0, 1)
    ]
    name, told = run_key(configs[0]), []
    monkeypatch.setattr(
        image_error,
        'list_compared_runs',
        lambda known: {(name, 'mAP'): configs, (name, 'micro-F1'): configs},
    )
    monkeypatch.setattr(
        settings,
        'get_folder',
        lambda which, path=settings.get_folder: tmp_path if which == 'outputs' else path(which),
    )
    np.savez(tmp_path / statistics.RESAMPLED_FILE, gone=np.zeros(100, np.float32))
    image_error.resample_compared(pd.DataFrame(), told.append)
    with np.load(tmp_path / statistics.RESAMPLED_FILE) as found:
        scores = dict(found)
    assert set(scores) == {f'{name} mAP', f'{name} micro-F1'} and all(
        x.shape == (100,) and 0 < x.std() < 20 for x in scores.values()
    )
    image_error.resample_compared(pd.DataFrame(), told.append)
    assert len(told) == 1


def test_what_is_kept_is_the_mean_over_all_runs_in_the_metric_that_is_named(tmp_path, monkeypatch):
    configs = [
        Config(loss='an', dataset='mini_voc', regime='linear', seed=s, label_seed=s)
        for s in (0, 1, 2)
    ]
    metrics, logits = list(image_error.RESAMPLED_METRICS), {}

    def made_up(config, task, root):
        logits[config.seed] = torch.randn(
            len(task.test),
            task.observed.shape[1],
            generator=torch.Generator().manual_seed(config.seed),
        )
        scores = {'threshold': 0.3}
        return SimpleNamespace(logits={'test': logits[config.seed].numpy()}, scores=scores)

    monkeypatch.setattr(image_error, 'train', made_up)
    found = image_error._resample_runs(metrics, configs)
    data = load('mini_voc')
    true = data.labels[data.rows('test')]
    draws = statistics.image_draws(len(true))
    for metric in metrics:
        threshold = 0.3 if metric.endswith('chosen threshold') else 0.5
        expected = np.mean(
            [
                image_error.score_samples(metric, each.numpy(), true, draws, threshold)
                for each in logits.values()
            ],
            axis=0,
        )
        assert set(logits) == {0, 1, 2} and found[metric] == pytest.approx(expected, rel=1e-5)


def test_a_run_that_is_at_hand_is_not_trained_again(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path))
    config = Config(loss='bce', labels='full', dataset='mini_voc', regime='linear', epochs=1)
    train(canonical_config(config))
    monkeypatch.setattr(trainer.Trainer, 'fit', None)
    scores = image_error._resample_runs(['mAP'], [config])['mAP']
    assert scores.shape == (100,) and scores.std() > 0


@pytest.mark.skipif(not (OUTPUTS / statistics.RESAMPLED_FILE).is_file(), reason='no record')
def test_the_file_has_every_head_that_is_compared_and_lies_around_its_recorded_score():
    known = read_recorded_runs(OUTPUTS / 'runs.csv')
    wanted = image_error.list_compared_runs(known)
    with np.load(OUTPUTS / statistics.RESAMPLED_FILE) as found:
        scores = dict(found)
    assert set(scores) == {statistics.resampled_name(*heads) for heads in wanted}
    off = [
        scores[statistics.resampled_name(first, metric)].mean()
        - known.loc[[run_key(c) for c in configs], 'test_map'].mean()
        for (first, metric), configs in wanted.items()
        if metric == 'mAP'
    ]
    assert np.abs(off).max() < 2  # with images drawn twice average precision is a little higher
