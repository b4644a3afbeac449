"""Files that cannot be written, cannot be read or are damaged, and two commands at once: one clear
error or the right result, and nothing is lost.
"""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import draw_photo_folder
from faulty import (
    bytes_of,
    end,
    leftovers,
    needs_fork,
    of_run,
    of_runs,
    read_without_clean,
    room,
    start,
    wait_for,
)
from filelock import FileLock
from quick import fields
from replication.test_pages import lines_for, put_record

from spml_nb import cli, runs, sweeps, training
from spml_nb import data as datasets
from spml_nb.base import files, settings
from spml_nb.base.errors import SpmlError
from spml_nb.data import folder as folders
from spml_nb.data import images
from spml_nb.replication import pages
from spml_nb.replication import published as published_tables
from spml_nb.runs.config import Config
from spml_nb.runs.folder import Run
from spml_nb.training import batches as sources


@pytest.fixture(scope='module')
def drawn(tmp_path_factory):
    return draw_photo_folder(tmp_path_factory.mktemp('drawn') / 'photos')


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_CACHE', str(tmp_path / 'cache'))
    return tmp_path / 'cache'


@pytest.fixture
def config(drawn):
    return Config(dataset=str(drawn), loss='an', backbone='mini', regime='linear', epochs=2)


def refused(do, *parts):
    "The message of the SpmlError; it has every part and is of one line."
    with pytest.raises(SpmlError) as caught:
        do()
    for part in parts:
        assert str(part) in str(caught.value), str(caught.value)
    return str(caught.value)


def folder_of(config):
    return Run(runs.resolve(config)).folder


def once_more(config):
    return of_run(training.train(config).folder)


@pytest.fixture
def whole(config, monkeypatch):
    "What the run comes to when nothing happens."
    with monkeypatch.context() as patch:
        patch.setenv('SPML_NB_RUNS', str(settings.get_folder('runs')) + '-whole')
        return once_more(config)


# ---- a full disk

FULL = 'could not be written'


@pytest.fixture
def config_of_all(config):
    "Trains the whole network, whose checkpoints are larger than all else that a run writes."
    return replace(config, regime='finetune', lr=1e-3)


def test_no_room_for_the_first_checkpoint(config_of_all, drawn):
    config = config_of_all
    whole = of_run(training.train(config).folder)  # the caches are there
    shutil.rmtree(folder_of(config))
    with room(20_000):
        refused(
            lambda: training.train(config),
            folder_of(config) / 'best.pt',
            FULL,
            'the disk is full',
            'Free space',
            'settings.ini',
        )
    assert sorted(file.name for file in folder_of(config).iterdir()) == ['config.json']
    assert once_more(config) == whole


def test_no_room_for_a_later_checkpoint_keeps_the_one_before(config_of_all):
    config, before = config_of_all, {}
    whole = of_run(training.train(config).folder)
    shutil.rmtree(folder_of(config))
    with ExitStack() as small:

        def full(curves):
            before.update(bytes_of(folder_of(config)))
            small.enter_context(room(20_000))

        refused(lambda: training.train(config, on_epoch=full), '.pt', FULL, 'the disk is full')
    now = bytes_of(folder_of(config))
    assert now['last.pt'] == before['last.pt'] and set(now) == set(before)
    resumed = []
    training.train(config, on_epoch=lambda curves: resumed.append(len(curves)))
    assert (
        resumed == [2] and of_run(folder_of(config)) == whole
    )  # it went on behind the first epoch


@pytest.mark.parametrize('name', ['logits.npz', 'result.json'])
def test_no_room_for_the_result(config, whole, name, monkeypatch):
    whole_file = files.replace_file

    @contextmanager
    def full(file, *more):
        with (
            room(100) if file.name == name else nullcontext(),
            whole_file(file, *more) as temporary,
        ):
            yield temporary

    with monkeypatch.context() as patch:
        patch.setattr(files, 'replace_file', full)
        refused(lambda: training.train(config), folder_of(config) / name, FULL)
    assert not (folder_of(config) / 'DONE').exists() and leftovers(folder_of(config)) == []
    assert (
        training.train(config, on_epoch=lambda curves: pytest.fail('it trained again')).scores
        == whole['scores']
    )


def test_no_room_for_features(config, cache, drawn):
    images.open_images(datasets.load(drawn), 40)
    with room(5_000):
        refused(lambda: training.train(config), cache / 'features', '.npy', FULL, 'Free space')
    assert leftovers(cache) == [] and [file.name for file in folder_of(config).iterdir()] == [
        'config.json'
    ]
    training.train(config)


@pytest.fixture
def record():
    "A table of record with two lines."
    for seed in (0, 1):
        finish(seed)
    runs.export_csv()
    return settings.get_folder('outputs') / 'runs.csv'


def finish(seed):
    run = Run(runs.resolve(Config(seed=seed)))
    run.start()
    run.finish(
        {
            'scores': {'val_map': 40.0, 'test_map': 50.0 + seed},
            'seconds': 1.0,
            'data': 'x',
            'provenance': {'commit': None},
        }
    )


def test_no_room_for_the_table_of_record_keeps_the_old_one(record):
    old = record.read_bytes()
    finish(2)
    with room(300):
        refused(runs.export_csv, record, FULL, 'Free space')
    assert record.read_bytes() == old and leftovers(record.parent) == []
    assert len(runs.export_csv()) == 3


@pytest.mark.slow
def test_no_room_for_the_pages_leaves_old_ones_or_new_ones(monkeypatch):
    monkeypatch.setattr(published_tables, 'list_papers', lambda: ['hml'])
    lines = lines_for('hml', '5', 'photos', lambda row, column, seed: 70.0)
    outputs = settings.get_folder('outputs')
    put_record(outputs, lines[:5])
    pages.write_pages(tell=quiet)
    old = bytes_of(outputs)
    put_record(outputs, lines)
    with room(30_000):
        refused(lambda: pages.write_pages(tell=quiet), outputs / 'index.html', FULL)
    now = bytes_of(outputs)
    pages.write_pages(tell=quiet)
    new = bytes_of(outputs)
    assert (
        set(now) == set(old) == set(new)
        and all(now[name] in (old[name], new[name]) for name in old)
        and now['index.html'] == old['index.html'] != new['index.html']
    )


def quiet(line):
    pass


def test_a_folder_that_cannot_be_made_or_has_no_room_for_a_name_is_told(tmp_path, monkeypatch):
    (tmp_path / 'file').write_text('x')
    refused(
        lambda: files.write_atomically(tmp_path / 'file' / 'a.txt', 'x'),
        tmp_path / 'file' / 'a.txt',
        FULL,
    )

    def full(*_, **words):
        raise OSError(errno.ENOSPC, 'No space left on device')

    monkeypatch.setattr(Path, 'touch', full)
    refused(
        lambda: files.write_atomically(tmp_path / 'a.txt', 'x'), tmp_path / 'a.txt', 'No space left'
    )


@pytest.mark.parametrize('kind', ['RUNS', 'OUTPUTS', 'CACHE'])
def test_a_file_where_a_folder_should_be_is_one_line_at_the_terminal(
    config, tmp_path, monkeypatch, capsys, kind
):
    (tmp_path / 'taken').write_text('mine')
    monkeypatch.setenv(f'SPML_NB_{kind}', str(tmp_path / 'taken'))
    if kind == 'OUTPUTS':
        refused(runs.export_csv, tmp_path / 'taken', 'settings.ini')
    else:
        assert (
            cli.main(['train', *fields(dataset=config.dataset, backbone='mini', regime='linear')])
            == 2
        )
        told = capsys.readouterr().err
        assert (
            told.startswith('error: ')
            and str(tmp_path / 'taken') in told
            and f'SPML_NB_{kind}' in told
            and 'Traceback' not in told
        )
    assert (tmp_path / 'taken').read_text() == 'mine'


def test_a_log_without_room_fails_its_run_and_says_where(config):
    folder_of(config).parent.mkdir()
    Path(f'{folder_of(config)}.log').mkdir()
    message = sweeps.attempt_run(config)
    assert '.log' in message and 'Free space' in message


def test_text_is_utf8_whatever_the_locale(drawn, tmp_path):
    code = (
        "from pathlib import Path; from spml_nb import runs; from spml_nb.base import files; "
        "import sys; assert sys.flags.utf8_mode == "
        f"0\nfiles.write_atomically(Path({str(tmp_path)!r}) / 'a.json', "
        f"'{{\"name\": \"Gr\\u00f6\\u00dfe \\u732b\"}}'); "
        f"print(ascii(runs.read_json(Path({str(tmp_path)!r}) / 'a.json')))"
    )
    environment = {**os.environ, 'LC_ALL': 'C', 'PYTHONCOERCECLOCALE': '0', 'PYTHONUTF8': '0'}
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / 'a.json').read_bytes().decode('utf-8')) == {'name': 'Größe 猫'}


# ---- files that cannot be read


def no_rights(file):
    file.chmod(0)


def a_folder(file):
    file.unlink()
    file.mkdir()


def nowhere(file):
    file.unlink()
    file.symlink_to('nowhere')


WAYS = [
    a_folder,
    nowhere,
    pytest.param(
        no_rights,
        marks=pytest.mark.skipif(
            hasattr(os, 'geteuid') and os.geteuid() == 0, reason='root may read everything'
        ),
    ),
]


@pytest.fixture
def own(drawn, tmp_path):
    shutil.copytree(drawn, tmp_path / 'own')
    return tmp_path / 'own'


@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('name', ['labels.csv', 'images/003.png'])
def test_data_that_cannot_be_read_are_named_and_nothing_is_begun(own, way, name):
    way(own / name)
    refused(
        lambda: training.train(Config(dataset=str(own), backbone='mini')), Path(name).name, own.name
    )
    assert not [file for file in settings.get_folder('runs').glob('*') if file.is_dir()]


def test_a_disk_that_fails_while_a_photo_or_the_table_is_read_is_told(own, monkeypatch):
    def fail(file, *words, **more):
        raise OSError(errno.EIO, 'Input/output error')

    with monkeypatch.context() as patch:
        patch.setattr(folders, 'open', fail, raising=False)
        refused(lambda: datasets.load(own), own / 'labels.csv', 'Input/output error')
    monkeypatch.setattr(images.Image, 'open', fail)
    refused(
        lambda: images.open_images(datasets.load(own), 24),
        '60 of 60',
        '000.png (Input/output error',
        'Repair or replace',
    )


@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('name', ['images', 'features'])
def test_a_cache_file_that_cannot_be_read_is_made_anew_or_named(config, whole, cache, way, name):
    (file,) = (cache / name).glob('*.npy')
    way(file)
    if way is a_folder:
        refused(lambda: training.train(config), cache / name, 'Is a directory', 'settings.ini')
    else:
        assert once_more(config) == whole


@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize(
    'name', ['config.json', 'result.json', 'best.pt', 'logits.npz', 'metrics.csv']
)
def test_files_of_a_finished_run_that_cannot_be_read_are_named(config, way, name):
    run = training.open_run(training.train(config).folder)
    way(folder_of(config) / name)
    if name == 'config.json':
        refused(lambda: training.open_run(folder_of(config)), 'config.json')
    elif name == 'best.pt':
        refused(
            lambda: training.evaluate(folder_of(config)), 'best.pt', 'Remove', folder_of(config)
        )
    else:
        refused(lambda: training.read_result(run), name, 'Remove', folder_of(config).name)
    if name.endswith('.json'):
        refused(runs.load, name)


@pytest.mark.parametrize('way', WAYS[:1])
@pytest.mark.parametrize('name', ['config.json', 'best.pt', 'last.pt', 'metrics.csv'])
def test_what_cannot_be_overwritten_in_a_begun_run_is_named(config, way, name):
    (folder_of(config) / name).mkdir(parents=True)
    refused(lambda: training.train(config), folder_of(config) / name, FULL)


@pytest.mark.parametrize('way', WAYS[:1] + WAYS[2:])
def test_a_table_of_record_that_cannot_be_read_is_named(record, way):
    way(record)
    for do in (runs.export_csv, sweeps.load_finished_runs, pages.read_recorded_runs):
        refused(do, record, 'cannot be read', 'version control')


# ---- damaged files


def cut(file):
    os.truncate(file, file.stat().st_size * 2 // 3)


def emptied(file):
    file.write_bytes(b'')


def junk(file):
    file.write_bytes(bytes(np.random.RandomState(0).randint(0, 256, 5000, dtype=np.uint8)))


def one_bit(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize('damage', [cut, emptied, junk, one_bit])
@pytest.mark.parametrize('name', ['last.pt', 'best.pt'])
def test_a_damaged_checkpoint_is_named_and_the_remedy_helps(config, whole, damage, name):
    class Stop(Exception):
        pass

    def stop(curves):
        raise Stop

    with pytest.raises(Stop):
        training.train(config, on_epoch=stop)
    damage(folder_of(config) / name)
    run, file = training.open_run(folder_of(config)), folder_of(config) / name
    refused(
        lambda: run.restore(name),
        file,
        'cannot be read',
        f'Remove {folder_of(config)} to train from the start',
    )
    if name == 'last.pt':
        refused(lambda: training.train(config), file, 'Remove')
    shutil.rmtree(folder_of(config))
    assert once_more(config) == whole


@pytest.mark.parametrize('damage', [cut, emptied, junk])
@pytest.mark.parametrize('name', ['result.json', 'logits.npz', 'metrics.csv', 'config.json'])
def test_a_damaged_file_of_a_finished_run_is_named_and_the_remedy_helps(
    config, whole, damage, name
):
    run = training.open_run(training.train(config).folder)
    damage(folder_of(config) / name)
    if (damage, name) == (cut, 'metrics.csv'):
        return  # fewer numbers, which nothing can tell
    if name == 'config.json':
        refused(runs.load, name, 'cannot be read', 'Remove its folder')
    else:
        refused(
            lambda: training.train(config), folder_of(config) / name, 'cannot be read', 'Remove'
        )
    assert run.done
    shutil.rmtree(folder_of(config))
    assert once_more(config) == whole


@pytest.mark.parametrize('content', ['[]', '{}', 'null', '{"scores": 1}'])
def test_json_that_holds_something_else_is_named(config, content):
    training.train(config)
    for name in ('result.json', 'config.json'):
        (folder_of(config) / name).write_text(content)
        refused(runs.load, name, 'no object with', 'Remove its folder')


def test_done_without_a_result_is_named(config):
    folder_of(config).mkdir(parents=True)
    (folder_of(config) / 'DONE').touch()
    for do in (lambda: training.train(config), lambda: Run(runs.resolve(config)).result()):
        refused(do, 'result.json cannot be read', 'Remove its folder')


def test_damaged_curves_of_a_begun_run_are_written_anew(config, whole):
    class Stop(Exception):
        pass

    def stop(curves):
        raise Stop

    with pytest.raises(Stop):
        training.train(config, on_epoch=stop)
    junk(folder_of(config) / 'metrics.csv')
    assert once_more(config) == whole


@pytest.mark.parametrize(
    'damage',
    [
        cut,
        emptied,
        junk,
        lambda file: np.save(file, np.zeros((60, 3))),
        lambda file: np.save(file, np.zeros((60, 3, 3), np.float32)),
    ],
)
def test_damaged_features_are_computed_again(config, whole, cache, damage):
    for file in (cache / 'features').glob('*.npy'):
        damage(file)
    assert once_more(config) == whole


@pytest.mark.parametrize('kind', ['images', 'whole', 'features'])
def test_any_damage_to_the_header_of_a_cache_is_noticed(config, whole, cache, drawn, kind):
    data, rng = datasets.load(drawn), np.random.RandomState(0)
    if kind == 'whole':
        images.open_photos(data)
    (file,) = (cache / ('features' if kind == 'features' else 'images')).glob(
        '*.whole' if kind == 'whole' else '*.npy'
    )

    def opened():
        if kind == 'images':
            return images._opened(file, (60, 40, 40, 3))
        return (
            sources._open_features(file, 60)
            if kind == 'features'
            else images._opened_whole(file, 60).pixels
        )

    content = file.read_bytes()
    size, expected = (len(content), 0 if kind == 'whole' else 128), np.array(opened())
    for _ in range(60):
        broken = bytearray(content)
        place = rng.randint(128) if kind != 'whole' else len(content) - 1 - rng.randint(8 * 60)
        broken[place] ^= 1 << rng.randint(8)
        file.write_bytes(broken)
        try:
            found = opened()
        except AttributeError:
            found = None  # None has no pixels
        assert found is None or (kind != 'whole' and np.array_equal(found, expected)), (place, size)


# ---- a damaged table of record

HARM = {
    'cut off': lambda text: text[:-30],
    'a line cut off': lambda text: text.replace(text.split('\n')[1], text.split('\n')[1][:40]),
    'junk in it': lambda text: text.replace('\n', '\n\0\x01\x02\n', 1),
    'another column': lambda text: text.replace('key', 'kee', 1),
    'empty': lambda text: '',
    'no number': lambda text: text.replace('50.0', '5O.0', 1),
    'a conflict': lambda text: text.replace('\n', '\n<<<<<<< HEAD\n', 1),
}


@pytest.mark.parametrize('harm', HARM)
def test_a_damaged_table_of_record_is_neither_read_nor_written(record, harm):
    record.write_text(HARM[harm](record.read_text()))
    damaged = record.read_bytes()
    finish(2)
    for do in (runs.export_csv, sweeps.load_finished_runs, lambda: sweeps.plan_runs([Config()])):
        refused(do, record, 'line', 'version control')
    assert record.read_bytes() == damaged


def test_a_table_of_record_that_is_not_text_is_refused(record):
    record.write_bytes(record.read_bytes() + b'\xff\xfe\x00')
    for do in (runs.export_csv, sweeps.load_finished_runs):
        refused(do, record, 'cannot be read')


def test_lines_that_are_there_twice_count_once(record):
    text = record.read_text()
    record.write_text(text + text.split('\n')[1] + '\n')
    assert (
        len(sweeps.load_finished_runs()) == 2
        and len(runs.export_csv()) == 2
        and record.read_text() == text
    )


# ---- two at once


@pytest.mark.slow
@needs_fork
def test_two_trainings_of_one_run_end_as_one(config, whole, tmp_path):
    said = [tmp_path / f'{k}.txt' for k in range(2)]
    given = {
        name: getattr(config, name) for name in ('dataset', 'loss', 'backbone', 'regime', 'epochs')
    }
    with Run(runs.resolve(config)).lock():  # both find it taken, and then one of them the other
        both = [start('train', config=given, said=file) for file in said]
        wait_for(
            lambda: all(file.exists() and 'waiting for it' in file.read_text() for file in said)
        )
    assert [end(process) for process in both] == [0, 0]
    assert list(of_runs().values()) == [whole]
    assert sorted('already done' in file.read_text() for file in said) == [False, True]


def test_a_run_is_free_as_soon_as_its_lock_is_left(config):
    run = Run(runs.resolve(config))
    held = run.lock()
    with held:
        pass
    with FileLock(run.folder.parent / f'.{run.folder.name}.lock').acquire(timeout=0):
        pass  # although `held` is still there


@needs_fork
def test_of_two_that_need_the_same_features_one_computes_them(config, cache, tmp_path):
    given = {name: getattr(config, name) for name in ('dataset', 'loss', 'backbone', 'regime')}
    said = [tmp_path / f'{k}.txt' for k in range(2)]
    both = [start('keep_features', config=given, said=file, pause=0.05) for file in said]
    assert [end(process) for process in both] == [0, 0]
    assert sum(file.read_text().count('computing') for file in said) == 1


@pytest.mark.slow
@needs_fork
def test_two_sweeps_at_once_end_as_one_and_none_says_that_a_run_failed(
    config, tmp_path, monkeypatch
):
    configs = [
        {
            'dataset': config.dataset,
            'loss': loss,
            'backbone': 'mini',
            'regime': 'linear',
            'epochs': 3,
        }
        for loss in ('an', 'em')
    ]
    assert end(start('sweep', configs=configs)) == 0
    whole, table = of_runs(), read_without_clean()
    for kind in ('RUNS', 'OUTPUTS'):
        monkeypatch.setenv(f'SPML_NB_{kind}', str(tmp_path / 'both' / kind))
    said = [tmp_path / f'{k}.txt' for k in range(2)]
    both = [start('sweep', configs=configs, said=file, pause=0.05) for file in said]
    assert [end(process) for process in both] == [0, 0], [file.read_text() for file in said]
    assert (of_runs(), read_without_clean()) == (whole, table)
    for file in said:
        assert (
            re.search(r'([12])/\1 done, 0 failed', file.read_text()) or not file.read_text()
        )  # of what was left when it looked
    assert leftovers(tmp_path / 'both') == [] and all(
        (folder / 'log.txt').is_file()
        for folder in settings.get_folder('runs').iterdir()
        if folder.is_dir()
    )


@pytest.mark.slow
@needs_fork
def test_two_builds_of_the_tables_at_once_end_as_one():
    outputs = settings.get_folder('outputs')
    put_record(outputs, lines_for('hml', '5', 'photos', lambda row, column, seed: 70.0))
    assert end(start('build_pages')) == 0
    whole = bytes_of(outputs)
    for name in whole:
        if name != 'runs.csv':
            (outputs / name).unlink()
    both = [start('build_pages', pause=0.01) for _ in range(2)]
    assert [end(process) for process in both] == [0, 0] and bytes_of(outputs) == whole


def test_two_exports_at_once_lose_no_line(record):
    found = []
    with FileLock(record.with_name('.runs.csv.lock')):  # another export is at work
        thread = threading.Thread(target=lambda: found.append(runs.export_csv()))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        finish(2)
        lines = record.read_text().splitlines()
        record.write_text('\n'.join(lines[:2]) + '\n')
    thread.join(60)
    assert len(found[0]) == 3  # it looked again when its turn came


def test_settings_that_are_no_text_are_named(tmp_path, monkeypatch):
    (tmp_path / 'settings.ini').write_bytes(b'[spml_nb]\nruns = \xff\xfe\n')
    monkeypatch.setenv('SPML_NB_SETTINGS', str(tmp_path / 'settings.ini'))
    refused(
        settings.read_settings, tmp_path / 'settings.ini', 'cannot be read', 'Mend or remove it'
    )
