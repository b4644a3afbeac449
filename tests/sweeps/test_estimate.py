"""How long runs take by timed steps, and what they write: arithmetic on counts of data sets, real
steps of small runs, and a disk that is too small.
"""

import math
import shutil
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from quick import config as quick

from spml_nb import cli
from spml_nb.data import images
from spml_nb.data.loading import load
from spml_nb.runs.config import Config, resolve
from spml_nb.sweeps import estimate, queue
from spml_nb.training.trainer import Trainer

TRAIN, VAL, TEST = 0.8 * 82_081, 0.2 * 82_081, 40_137  # of COCO 2014


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_CACHE', str(tmp_path / 'cache'))
    return tmp_path / 'cache'


def paper_run(**changes):
    fields = {'loss': 'an', 'dataset': 'coco14', 'device': 'cpu', 'epochs': 10}
    return resolve(Config(**fields | changes))


def pace(**changes):
    fields = {'batch_size': 2, 'train': 2.0, 'score': 0.5, 'extract': 0.25}
    return estimate.Pace(**fields | {'weights': 10**8, 'features': 8192, 'fits': True} | changes)


def keep(config, *paces):
    for kind, each in zip(estimate.list_step_kinds(config), paces, strict=True):
        estimate._store(kind, each)


def seconds(config):
    return estimate.estimate_seconds([config])[0]


@pytest.mark.parametrize(
    ('changes', 'expected'),
    [
        ({}, 10 * (TRAIN * 2 + VAL * 0.5) + (VAL + TEST) * 0.5),
        ({'ema': 0.9}, 10 * (TRAIN * 2 + 2 * VAL * 0.5) + (VAL + TEST) * 0.5),
        ({'hold_out': False, 'selection': 'last'}, 10 * (TRAIN + VAL) * 2 + TEST * 0.5),
        ({'train_images': 100}, 10 * (100 * 2 + VAL * 0.5) + (VAL + TEST) * 0.5),
        # pseudo-labels after an epoch
        ({'loss': 'em_apl'}, 10 * (TRAIN * 2 + (VAL + TRAIN) * 0.5) + (VAL + TEST) * 0.5),
        # two stages
        ({'loss': 'lac', 'ema': 0}, 20 * (TRAIN * 2 + VAL * 0.5) + (VAL + TEST) * 0.5),
    ],
)
def test_every_photo_of_every_epoch_counts(changes, expected):
    config = paper_run(**changes)
    assert math.isnan(seconds(config))
    keep(config, pace())
    assert seconds(config) == pytest.approx(expected)


def test_of_linear_init_features_and_both_regimes_count():
    config = paper_run(regime='linear_init', linear_epochs=25)
    linear, finetune = pace(train=0.001, score=0.002), pace()
    keep(config, linear, finetune)
    of_head = (TRAIN + VAL + TEST) * 0.25 + 25 * (TRAIN * 0.001 + VAL * 0.002)
    assert seconds(config) == pytest.approx(
        of_head + 10 * (TRAIN * 2 + VAL * 0.5) + (VAL + TEST) * 0.5
    )


@pytest.mark.parametrize(
    'changes',
    [
        {'image_size': 224},
        {'batch_size': 8},
        {'backbone': 'resnet18'},
        {'regime': 'linear'},
        {'head': 'cosine'},
        {'precision': 'bf16'},
        {'loss': 'lac_plc', 'head': 'labelwise'},
        {'views': 'crop'},
    ],
)
def test_a_pace_says_nothing_of_steps_of_another_kind(changes):
    keep(paper_run(), pace())
    assert seconds(paper_run(loss='em', seed=7)) == seconds(paper_run())
    assert math.isnan(seconds(paper_run(**changes)))


def test_steps_on_another_device_say_nothing(monkeypatch):
    keep(paper_run(), pace())
    monkeypatch.setattr(estimate, 'name_device', lambda device: 'another')
    assert math.isnan(seconds(paper_run()))


def test_a_damaged_note_counts_as_none(cache):
    keep(paper_run(), pace())
    (cache / 'pace.json').write_text('{"paces": [[1')
    assert estimate.read_paces() == {}


@pytest.mark.parametrize(
    'fields', [{}, {'regime': 'linear'}, {'loss': 'lac', 'head': 'labelwise'}, {'views': 'crop'}]
)
def test_each_kind_of_steps_is_timed_once(photo_folder, fields):
    given = [resolve(quick(photo_folder, **fields, seed=seed, device='cpu')) for seed in (0, 1)]
    lines = []
    state = torch.get_rng_state()
    estimate.measure_paces(given, lines.append)
    assert len(lines) == 1 and 'photos a second in training' in lines[0]
    assert torch.equal(torch.get_rng_state(), state)
    (kept,) = estimate.read_paces().values()
    assert kept.batch_size == given[0].batch_size and kept.fits
    assert min(kept.train, kept.score, kept.weights) > 0
    assert (kept.extract > 0) == (kept.features > 0) == ('regime' in fields)
    assert all(0 < each < 600 for each in estimate.estimate_seconds(given))
    estimate.measure_paces(given, lambda line: pytest.fail(line))
    assert not any((photo_folder / name).exists() for name in ('runs', 'cache'))


def test_steps_that_a_cpu_would_emulate_for_minutes_are_not_timed(photo_folder):
    lines = []
    fields = {'loss': 'lac', 'head': 'labelwise', 'precision': 'fp16', 'device': 'cpu'}
    estimate.measure_paces([resolve(quick(photo_folder, **fields))], lines.append)
    assert len(lines) == 1 and 'not timed, as a CPU emulates fp16' in lines[0]
    assert estimate.read_paces() == {}


def test_without_time_nothing_is_timed_and_the_rest_is_counted(photo_folder):
    lines = []
    given = [resolve(quick(photo_folder, batch_size=size)) for size in (2, 4)]
    estimate.measure_paces(given, lines.append, seconds=0)
    assert lines[0].startswith('2 kinds of steps are left') and estimate.read_paces() == {}


@pytest.mark.parametrize('most', [4, 1])
def test_a_batch_that_does_not_fit_into_the_memory_is_told(photo_folder, monkeypatch, most):
    step = Trainer.step

    def limited(trainer, index):
        if len(index) > most:
            raise torch.OutOfMemoryError
        step(trainer, index)

    monkeypatch.setattr(Trainer, 'step', limited)
    lines = []
    estimate.measure_paces([resolve(quick(photo_folder))], lines.append)
    if most == 1:
        assert '2 photos do not fit' in lines[0] and estimate.read_paces() == {}
        return
    (kept,) = estimate.read_paces().values()
    assert kept.batch_size == 4 and not kept.fits
    assert 'more than 4 do not fit into the memory' in lines[0]


# ---- disk


def say_free(monkeypatch, count):
    monkeypatch.setattr(shutil, 'disk_usage', lambda place: SimpleNamespace(free=count))


def test_a_cache_that_will_not_fit_is_told_with_what_does_without(monkeypatch):
    configs = [paper_run(seed=seed) for seed in (0, 1)] + [paper_run(dataset='cub', views='crop')]
    squares = 122_218 * 448 * 448 * 3
    whole = 11_788 * 640 * 480 * 3
    say_free(monkeypatch, squares + whole - 1)
    text = estimate.describe_disk(configs)
    for piece in ('84.5 GB of', 'coco14 at 448 px 73.6 GB', 'cub at 640 px 10.9 GB'):
        assert piece in text
    assert 'Too little is free' in text and 'SPML_NB_DECODE=always' in text
    say_free(monkeypatch, squares + whole)
    assert estimate.describe_disk(configs).endswith('; there is room.')
    monkeypatch.setenv('SPML_NB_DECODE', 'always')
    assert estimate.describe_disk(configs) == ''


def test_photos_that_are_decoded_take_no_more_disk(photo_folder):
    config = resolve(quick(photo_folder))
    assert f'{photo_folder.name} at 40 px 288 kB' in estimate.describe_disk([config])
    images.open_images(load(photo_folder), 40)
    assert estimate.describe_disk([config]) == ''


def test_weights_and_features_of_all_runs_share_a_disk_with_the_photos(monkeypatch):
    config = paper_run(regime='linear_init')
    keep(config, pace(features=8192), pace(weights=94_000_000))
    photos, features = (122_218 * 448 * 448 * 3), 122_218 * 8192
    say_free(monkeypatch, photos + features + 3 * 94_000_000 - 1)
    text = estimate.describe_disk([paper_run(regime='linear_init', seed=s) for s in range(3)])
    assert "1.0 GB of frozen features, 282 MB of the runs' weights" in text
    assert 'SPML_NB_RUNS' in text and 'SPML_NB_CACHE' in text


# ---- the features of photos


def test_photos_are_timed_with_their_decoding_and_nothing_is_kept(photo_folder, cache, monkeypatch):
    config, data = resolve(quick(photo_folder).changed(device='cpu')), load(photo_folder)
    taken = []
    real = estimate._time
    monkeypatch.setattr(estimate, '_time', lambda *given: taken.append(real(*given)) or taken[-1])
    assert estimate.time_photos(config, data) == taken[1] / estimate.TIMED_PHOTOS > 0
    assert len(taken) == 2 and not list(cache.rglob('*.npy'))
    for file in data.images:
        file.write_bytes(b'')
    assert math.isnan(estimate.time_photos(config, data))


# ---- the dry run


def test_a_dry_run_counts_runs_that_will_be_chosen(photo_folder):
    search = [quick(photo_folder, seed=seed) for seed in (0, 1)]
    finals = [quick(photo_folder, seed=seed) for seed in (2, 3, 4)]
    lines = []

    def dry():
        lines.clear()
        queue.run_stages(
            search, lambda known: [], unchosen=lambda known: finals, dry_run=True, tell=lines.append
        )
        return lines[0]

    assert 'The search will choose 3 more. One after another: unknown. Disk: ' in dry()
    config = resolve(search[0].changed(device='cpu'))
    keep(config, pace(train=0.1, score=0, extract=0))
    train = len(load(photo_folder).rows('train'))
    assert f'about {5 * 2 * train * 0.1:.0f} s, by steps timed here' in dry()
    assert 'for 5 of the runs' in dry()


def test_what_is_known_of_some_runs_says_nothing_of_the_others():
    left = pd.DataFrame({'expected': [100.0, math.nan], 'timed': [False, False]})
    assert queue.describe_length(left) == 'about 2 min, and unknown for 1 of them'


def test_the_command_names_the_line_that_measures_and_measures(monkeypatch, capsys):
    timed = []
    monkeypatch.setattr(estimate, 'time_steps', lambda kind, *_: timed.append(kind) or pace())
    line = ['sweep', 'em_apl', '--table', '1', '--suite', 'paper', '--dry-run']
    assert cli.main(line) == 0
    out = capsys.readouterr().out
    assert '`spml sweep em_apl --table 1 --suite paper --dry-run --measure`' in out
    assert cli.main([*line, '--measure']) == 0
    out = capsys.readouterr().out
    assert 'One after another: about ' in out and ' days), by steps timed here' in out
    assert 'nothing like them' not in out and len(timed) == len(set(timed)) == 4
    assert cli.main(line) == 0 and len(timed) == 4
    assert capsys.readouterr().out in out
    assert cli.main([*line[:-1], '--measure']) == 2
