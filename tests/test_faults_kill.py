"""kill -9 at any moment: the same command goes on and ends with the same bits, and nothing
half-written is taken for whole.
"""

import os
import random
import shutil
import signal
import time

import numpy as np
import pytest
from conftest import draw_photo_folder
from faulty import (
    bytes_of,
    end,
    kill_after,
    leftovers,
    moments,
    needs_fork,
    of_runs,
    read_without_clean,
    start,
    timed,
    wait_for,
)
from replication.test_pages import lines_for, put_record

from spml_nb import data as datasets
from spml_nb.base import settings
from spml_nb.data import images

pytestmark = [needs_fork, pytest.mark.slow]
HOUR = 3600


@pytest.fixture(scope='module')
def photos(tmp_path_factory):
    return draw_photo_folder(tmp_path_factory.mktemp('drawn') / 'photos')


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_CACHE', str(tmp_path / 'cache'))
    return tmp_path / 'cache'


def elsewhere(monkeypatch, tmp_path, name):
    "Runs, outputs and cache from here on in folders of their own."
    for kind in ('RUNS', 'OUTPUTS', 'CACHE'):
        monkeypatch.setenv(f'SPML_NB_{kind}', str(tmp_path / name / kind.lower()))


# ---- training

TWO_STAGES = {
    'loss': 'em',
    'backbone': 'mini',
    'regime': 'linear_init',
    'ema': 0.9,
    'schedule': 'onecycle',
}
OWN_STAGES = {
    'loss': 'lac',
    'backbone': 'mini',
    'regime': 'linear',
    'cached_views': 2,
}  # two of the method's own


@pytest.mark.parametrize(
    ('given', 'times'),
    [(TWO_STAGES | {'linear_epochs': 3, 'epochs': 2}, 4), (OWN_STAGES | {'epochs': 3}, 3)],
    ids=['linear_init', 'lac'],
)
def test_training_killed_at_random_moments_ends_with_the_same_bits(
    photos, tmp_path, monkeypatch, given, times
):
    config, rng, killed = {'dataset': str(photos), **given}, random.Random(0), 0
    elsewhere(monkeypatch, tmp_path, 'whole')
    duration, whole = timed('train', config=config), of_runs()
    first = moments(rng, duration, times)
    for k in range(6 * times):
        if k >= times and killed >= times:
            break
        elsewhere(monkeypatch, tmp_path, f'killed{k}')
        before = killed
        for seconds in (
            first[k] if k < times else rng.random() * duration,
            rng.random() * duration,
        ):
            killed += kill_after(start('train', config=config), seconds)
            assert [numbers(found) for found in of_runs().values() if found] in (
                [],
                [numbers(found) for found in whole.values()],
            )  # DONE is there with everything, or not at all
        assert end(start('train', config=config)) == 0
        assert of_runs() == whole  # the numbers, and no file more or less
        if killed == before:
            duration /= 2  # the machine is quicker now than when it was timed
    assert killed >= times


def numbers(found):
    """What `of_run` gives without the checkpoints that a process killed right after DONE leaves;
    `train` removes them when it comes by.
    """
    return found | {
        'files': [name for name in found['files'] if name not in ('last.pt', 'val_observed.pt')]
    }


@pytest.mark.parametrize(
    'given',
    [TWO_STAGES | {'linear_epochs': 1, 'epochs': 1}, OWN_STAGES | {'epochs': 1, 'cached_views': 1}],
    ids=['linear_init', 'lac'],
)
def test_training_killed_before_each_of_its_files_gets_its_name_ends_with_the_same_bits(
    photos, tmp_path, monkeypatch, given
):
    config = {'dataset': str(photos), **given}
    elsewhere(monkeypatch, tmp_path, 'whole')
    assert end(start('train', config=config)) == 0
    whole = of_runs()
    for n in range(1, 40):
        elsewhere(monkeypatch, tmp_path, f'killed{n}')
        monkeypatch.setenv(
            'SPML_NB_CACHE', str(tmp_path / 'whole' / 'cache')
        )  # the caches have tests of their own
        status = end(start('train', config=config, dies_at=n))
        if status == 0:
            break
        assert (
            status == -signal.SIGKILL
            and leftovers(settings.get_folder('runs'))
            and not any(of_runs().values())
        )
        assert end(start('train', config=config)) == 0
        assert of_runs() == whole, n
        assert leftovers(settings.get_folder('runs')) == []  # cleaned by the next command
    assert (
        n == 14
        # config; best by two rules, metrics and last of each epoch; last again between the stages;
        # logits, result, DONE; and one that is not killed
    )


def test_what_is_left_when_a_run_is_killed_in_its_last_step_is_cleaned(photos, cache):
    config = {
        'dataset': str(photos),
        'loss': 'an',
        'backbone': 'mini',
        'regime': 'linear',
        'epochs': 1,
    }
    assert end(start('train', config=config)) == 0
    whole, folder = of_runs(), next(settings.get_folder('runs').glob('an-*'))
    shutil.copy(folder / 'best.pt', folder / 'last.pt')
    assert end(start('train', config=config)) == 0
    assert of_runs() == whole


def test_the_command_itself_killed_and_given_again_ends_as_if_nothing_had_been(
    photos, tmp_path, monkeypatch
):
    config = {'dataset': str(photos), 'backbone': 'mini', 'loss': 'em', 'epochs': 40, 'patience': 0}
    elsewhere(monkeypatch, tmp_path, 'whole')
    assert end(start('train', config=config)) == 0
    whole = of_runs()
    elsewhere(monkeypatch, tmp_path, 'killed')
    words = [
        'train',
        *(part for name, value in config.items() for part in ('-p', name, str(value))),
    ]
    rng = random.Random(0)
    for lines in (1, 5):  # of epochs that it has printed
        said = tmp_path / f'{lines}.txt'
        process = start('command', said=said, words=words, pause=0.05)
        wait_for(
            lambda said=said, lines=lines: (
                said.exists() and said.read_text().count('  loss ') >= lines
            )
        )
        assert kill_after(process, 0.1 * rng.random())
        assert said.read_text().count('  loss ') < 40 and not any(of_runs().values())
    last = tmp_path / 'last.txt'
    assert end(start('command', said=last, words=words)) == 0
    assert (
        of_runs() == whole and last.read_text().count('  loss ') < 38
    )  # it went on, and did not begin anew


# ---- caches


@pytest.mark.parametrize('whole', [False, True])
def test_building_the_image_cache_killed_at_random_moments(
    photos, tmp_path, monkeypatch, cache, whole
):
    data, rng = datasets.load(photos), random.Random(1)
    pixels = np.stack(
        [
            np.asarray(
                images.Image.open(file)
                .convert('RGB')
                .resize((24, 24), images.Image.Resampling.BILINEAR)
            )
            for file in data.images
        ]
    )
    duration = timed('build_images', folder=str(photos), whole=whole, pause=0.02)
    for moment in moments(rng, duration, 4):
        shutil.rmtree(cache)
        kill_after(start('build_images', folder=str(photos), whole=whole, pause=0.02), moment)
        found = images.open_photos(data, 24) if whole else images.open_images(data, 24)
        assert all(np.array_equal(found[k], pixels[k]) for k in range(60))
        assert leftovers(cache) == []  # cleaned by the next builder


def test_computing_features_killed_at_random_moments(photos, tmp_path, monkeypatch, cache):
    config, rng = {'dataset': str(photos), **OWN_STAGES}, random.Random(2)
    duration = timed('keep_features', config=config, pause=0.01)
    whole = bytes_of(cache / 'features')
    for moment in moments(rng, duration, 4):
        shutil.rmtree(cache)
        kill_after(start('keep_features', config=config, pause=0.01), moment)
        left = bytes_of(cache / 'features') if (cache / 'features').exists() else {}
        assert all(
            content == whole[name]
            for name, content in left.items()
            if name in whole and not name.endswith('.lock')
        )  # whole, or not there
        assert end(start('keep_features', config=config)) == 0
        now = bytes_of(cache / 'features')
        assert {
            name: content for name, content in now.items() if not name.endswith('.tmp')
        } == whole


def test_what_killed_writers_of_features_left_is_removed_after_an_hour(photos, cache):
    config = {'dataset': str(photos), 'loss': 'an', 'backbone': 'mini', 'regime': 'linear'}
    old, young = age(cache / 'features', 2 * HOUR), age(cache / 'features', 60)
    assert end(start('keep_features', config=config)) == 0
    assert young.exists() and not old.exists()  # the young one may be somebody's who is at work


def age(folder, seconds):
    "A temporary file as `write_atomically` makes it, not written to for so long."
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f'.index.html-{seconds:08}.tmp'
    file.write_text('half')
    os.utime(file, (time.time() - seconds,) * 2)
    return file


# ---- sweeps


def configs(photos, epochs):
    return [
        {
            'dataset': str(photos),
            'loss': loss,
            'backbone': 'mini',
            'regime': 'linear',
            'epochs': epochs,
        }
        for loss in ('an', 'em', 'wan')
    ]


@pytest.mark.parametrize('victim', ['launcher', 'worker'])
def test_a_sweep_killed_at_random_moments_ends_with_the_same_runs_and_table(
    photos, tmp_path, monkeypatch, victim
):
    words, rng = {'configs': configs(photos, 4), 'pause': 0.02}, random.Random(3)
    elsewhere(monkeypatch, tmp_path, 'whole')
    duration, whole, table = timed('sweep', **words), of_runs(), read_without_clean()
    for k, moment in enumerate(moments(rng, duration, 4)):
        elsewhere(monkeypatch, tmp_path, f'killed{k}')
        said = tmp_path / f'said{k}.txt'
        process = start('sweep', said=said, **words)
        if victim == 'launcher':
            kill_after(process, moment)
        else:
            process.join(moment)
            for pid in workers(said):
                kill_quietly(pid)
            assert end(process) in (0, 1)  # the others are run by a new worker
        assert all(
            found is None or numbers(found) == numbers(whole[name])
            for name, found in of_runs().items()
        )
        assert end(start('sweep', said=said, **words)) == 0, said.read_text()
        assert (
            {name: numbers(found) for name, found in of_runs().items()},
            read_without_clean(),
        ) == (
            {name: numbers(found) for name, found in whole.items()},
            table,
        )
        assert [
            name for name in leftovers(tmp_path / f'killed{k}') if '.content-' not in name
        ] == []  # `content` writes its note without a lock: an hour's matter


def workers(said):
    return (
        [
            int(line.split()[1])
            for line in said.read_text().splitlines()
            if line.startswith('worker ')
        ]
        if said.exists()
        else []
    )


def kill_quietly(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it had done its work


# ---- tables


@pytest.fixture(scope='module')
def lines():
    return lines_for('hml', '5', 'photos', lambda row, column, seed: 70.0)


def test_building_the_tables_killed_at_random_moments(lines, tmp_path, monkeypatch):
    elsewhere(monkeypatch, tmp_path, 'old')
    outputs = settings.get_folder('outputs')
    put_record(outputs, lines[:5])
    assert end(start('build_pages')) == 0
    old, rng = bytes_of(outputs), random.Random(4)

    def rebuild_in(name):
        elsewhere(monkeypatch, tmp_path, name)
        shutil.copytree(outputs, settings.get_folder('outputs'))
        put_record(settings.get_folder('outputs'), lines)

    rebuild_in('whole')
    duration, whole = timed('build_pages', pause=0.1), bytes_of(settings.get_folder('outputs'))
    assert sum(old[name] != whole[name] for name in whole) >= 5
    for k, moment in enumerate(moments(rng, duration, 4)):
        rebuild_in(f'killed{k}')
        kill_after(
            start('build_pages', pause=0.1), (duration + moment) / 2
        )  # in the second half, when files are written
        left = leftovers(settings.get_folder('outputs'))
        now = bytes_of(settings.get_folder('outputs'))
        assert all(now[name] in (old[name], whole[name]) for name in old)
        for name in left:
            os.utime(
                settings.get_folder('outputs') / name, (time.time() - 2 * HOUR,) * 2
            )  # what an hour does
        assert end(start('build_pages')) == 0
        assert bytes_of(settings.get_folder('outputs')) == whole


def test_a_build_of_the_tables_removes_only_what_is_old(lines):
    put_record(settings.get_folder('outputs'), lines)
    old, young = (
        age(settings.get_folder('outputs'), 2 * HOUR),
        age(settings.get_folder('outputs') / 'hml', 60),
    )
    assert end(start('build_pages')) == 0
    assert young.exists() and not old.exists()
