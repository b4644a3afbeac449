"""The folder of a run: damaged files name themselves, nothing in a checkpoint is executed, and one
process at a time trains a run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from patience import within

from spml_nb import runs
from spml_nb.base.errors import SpmlError
from spml_nb.runs import folder as folder_module
from spml_nb.runs import record
from spml_nb.runs.config import Config, resolve
from spml_nb.runs.folder import Run


def test_damaged_files_name_themselves(tmp_path):
    run = Run(resolve(Config()), tmp_path)
    run.start()
    with pytest.raises(SpmlError, match='no DONE'):
        run.result()
    (run.folder / 'last.pt').write_bytes(b'not a checkpoint')
    with pytest.raises(SpmlError, match='last.pt cannot be read'):
        run.restore('last.pt')
    with pytest.raises(SpmlError, match='best.pt is missing. Remove'):
        run.best()
    run.finish({'scores': {}})
    (run.folder / 'result.json').write_text('{')
    with pytest.raises(SpmlError, match='result.json cannot be read'):
        run.result()
    with pytest.raises(SpmlError, match='result.json'):
        runs.load(tmp_path)


def test_a_name_is_looked_for_among_the_runs_first(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'runs'))
    run = Run(resolve(Config()))
    run.start()
    (tmp_path / 'here' / run.folder.name).mkdir(
        parents=True
    )  # as a folder with a card, which has a config.json of its own
    (tmp_path / 'here' / run.folder.name / 'config.json').write_text('{"library_name": "spml_nb"}')
    monkeypatch.chdir(tmp_path / 'here')
    assert runs.open_run(run.folder.name).folder == run.folder == runs.open_run(run.folder).folder
    monkeypatch.chdir(tmp_path)
    assert runs.open_run(f'runs/{run.folder.name}').folder == run.folder
    with pytest.raises(SpmlError, match=r'config.json in \S+ and \S+\.'):
        runs.open_run('no-such-run')


def test_checkpoints_never_execute_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f'touch {tmp_path}/executed',)

    run = Run(resolve(Config()), tmp_path)
    run.start()
    torch.save({'x': Evil()}, run.folder / 'last.pt')
    with pytest.raises(SpmlError, match='cannot be read'):
        run.restore('last.pt')
    assert not (tmp_path / 'executed').exists()


def test_second_process_waits_for_the_lock(tmp_path):
    run = Run(resolve(Config()), tmp_path)
    code = f'''
from pathlib import Path
from spml_nb.runs import Config, Run, resolve
run = Run(resolve(Config()), Path({str(tmp_path)!r}))
with run.lock(): print("got it", flush=True)
'''
    with run.lock():
        other = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, text=True)
        assert 'waiting' in other.stdout.readline()
        assert other.poll() is None
    assert 'got it' in other.communicate(timeout=60)[0]


def test_a_package_below_another_checkout_names_no_commit(tmp_path, monkeypatch):
    place = tmp_path / 'venv' / 'spml_nb' / 'base'
    place.mkdir(parents=True)
    for words in ('init -q', '-c user.name=a -c user.email=a@b commit -q --allow-empty -m first'):
        subprocess.run(['git', *words.split()], cwd=tmp_path, check=True)
    monkeypatch.setattr('spml_nb.base.commit.__file__', str(place / 'commit.py'))
    assert runs.provenance()['commit'] is None
    (tmp_path / '.git').rename(tmp_path / 'venv' / '.git')
    assert len(runs.provenance()['commit'].rstrip('+')) == 12


def test_weights_in_the_home_folder_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    (tmp_path / 'pre.pt').write_bytes(b'1')
    assert (
        folder_module.hash_file('~/pre.pt')
        == folder_module.hash_file(tmp_path / 'pre.pt')
        is not None
    )


def test_provenance_names_commit_and_versions():
    found = runs.provenance()
    assert (
        found['versions']['torch'] == torch.__version__.split('+')[0]
        or found['versions']['torch'] == torch.__version__
    )
    assert json.dumps(found)
    inside = subprocess.run(
        ['git', 'rev-parse', '--short=12', 'HEAD'],
        cwd=Path(runs.__file__).parent,
        capture_output=True,
        text=True,
    )
    if inside.returncode == 0:
        assert found['commit'].startswith(inside.stdout.strip())


@pytest.mark.parametrize(
    ('words', 'error'),
    [
        ('CUDA error: device-side assert triggered', RuntimeError),
        ('[enforce fail at inline_container.cc:668] . unexpected pos', SpmlError),
    ],
)
def test_only_what_torch_says_of_a_file_is_a_full_disk(tmp_path, monkeypatch, words, error):
    def save(state, file):
        raise RuntimeError(words)

    monkeypatch.setattr(torch, 'save', save)
    run = Run(resolve(Config(loss='an')), tmp_path)
    run.folder.mkdir()
    with pytest.raises(
        error, match='device-side' if error is RuntimeError else 'the disk is full or refuses'
    ):
        run.save('x.pt', {})
    assert not list(run.folder.iterdir())


@pytest.mark.silent('C4')
def test_a_run_of_an_older_version_keeps_its_definition_of_map(tmp_path):
    run = Run(resolve(Config(dataset='/photos/of/mine', map_definition='cole')), tmp_path)
    run.start()
    fields = json.loads((run.folder / 'config.json').read_text())
    del fields['map_definition']
    (run.folder / 'config.json').write_text(json.dumps(fields))
    assert runs.open_run(run.folder).config == run.config


# ---- files that somebody else has made


@pytest.mark.silent('C10')
def test_links_in_a_run_folder_lead_no_write_elsewhere(tmp_path):
    run = Run(resolve(Config()), tmp_path / 'runs')
    names = ('config.json', 'result.json', 'DONE', 'best.pt')
    run.folder.mkdir(parents=True)
    for name in names:
        (tmp_path / name).write_text('precious')
        (run.folder / name).symlink_to(tmp_path / name)
    run.start()
    run.save('best.pt', {'a': torch.zeros(2)})
    run.finish({'scores': {}})
    assert all(
        (tmp_path / name).read_text() == 'precious' and not (run.folder / name).is_symlink()
        for name in names
    )


@pytest.mark.silent('C10')
@pytest.mark.parametrize('name', ['config.json', 'result.json', 'metrics.csv', 'logits.npz'])
def test_a_pipe_in_a_run_folder_is_named_and_not_waited_for(tmp_path, name):
    run = Run(resolve(Config()), tmp_path)
    run.start()
    (run.folder / 'metrics.csv').write_text('epoch\n1\n')
    np.savez(run.folder / 'logits.npz', test=np.zeros(1))
    run.finish({'scores': {}})
    (run.folder / name).unlink()
    os.mkfifo(run.folder / name)
    with within(20), pytest.raises(SpmlError, match=name):
        folder_module.read_json(run.folder / 'config.json')
        folder_module.read_result(run)


@pytest.mark.silent('C10')
@pytest.mark.parametrize('text', ['[' * 200_000, '{"a":' * 100_000, '1' * 5000, '[]'])
def test_json_of_any_shape_is_a_damaged_file(tmp_path, text):
    (tmp_path / 'a.json').write_text(text)
    with pytest.raises(SpmlError, match='a.json cannot be read'):
        folder_module.read_json(tmp_path / 'a.json')


@pytest.mark.silent('C11')
def test_a_folder_whose_name_is_not_utf_8_is_written_down_and_read_back(tmp_path):
    run = Run(
        resolve(Config(dataset=str(tmp_path / 'ph\udcff'), backbone='mini', image_size=32)),
        tmp_path / 'runs',
    )
    run.start()
    run.finish(
        {'scores': {'val_map': 1.0}, 'seconds': 1.0, 'data': 'x', 'provenance': {'commit': None}}
    )
    assert runs.open_run(run.folder).config == run.config and run.result()['scores'] == {
        'val_map': 1.0
    }
    assert b'ph\\udcff' in (run.folder / 'config.json').read_bytes()
    table = record.export_csv(tmp_path / 'runs.csv', tmp_path / 'runs')
    assert (
        table.dataset.tolist() == [r'ph\udcff']
        and len(record.read_record(tmp_path / 'runs.csv')) == 1
    )


@pytest.mark.silent('C11')
def test_sessions_under_other_threads_are_noted(monkeypatch):
    first = folder_module.add_session([])
    assert type(first[0]['torch']) is str  # a checkpoint takes plain values alone
    assert (
        first == [{'torch': torch.__version__, 'threads': torch.get_num_threads()}]
        and folder_module.add_session(first) == first
    )
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 77)
    assert folder_module.add_session(first) == [*first, {'torch': torch.__version__, 'threads': 77}]
