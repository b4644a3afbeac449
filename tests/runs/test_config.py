"""A run is a folder: configuration, hash, atomic files, the table of runs, and the guard of a notebook's parameters."""
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from spml_nb import runs
from spml_nb.base.errors import SpmlError
from spml_nb.runs.config import Config, config_hash, notebook_parameters, resolve
from spml_nb.runs.folder import Run
from spml_nb.base.files import write_atomically


@pytest.mark.parametrize('given, words', [
    ({'loss': 'emm'}, ["unknown loss 'emm'", 'allowed:', "Did you mean 'em'?"]),
    ({'hparams': {'alfa': 1}}, ["'alfa'", 'allowed: alpha', "Did you mean 'alpha'?"]),
    ({'hparams': {'alpha': 'much'}}, ["'alpha'", 'must be a number', "'much'"]),
    ({'lrr': 1}, ["unknown parameter 'lrr'", "Did you mean 'lr'?"]),
    ({'lr': 'abc'}, ["'lr'", 'must be a number', "'abc'"]),
    ({'lr': 0}, ['lr must be above 0']),
    ({'epochs': 1.5}, ["'epochs'", 'whole number', '1.5']),
    ({'seed': True}, ["'seed'", 'whole number', 'True']),
    ({'regime': 'frozen'}, ["unknown regime 'frozen'", 'finetune, linear, linear_init']),
    ({'selection': 'test'}, ["unknown selection 'test'", 'val_clean, val_observed, last']),
    ({'momentum': 1}, ['momentum must be below 1']),
    ({'device': 'tpu', 'loss': 'an'}, ['tpu']),
])
def test_wrong_configuration_is_told(given, words):
    with pytest.raises(SpmlError) as error: resolve(Config(**given))
    for word in words: assert word in str(error.value)


def test_numeric_strings_are_numbers():
    config = resolve(Config(lr='1e-4', epochs='3', hparams={'alpha': '2e-1'}))
    assert (config.lr, config.epochs, config.hparams['alpha']) == (1e-4, 3, 0.2)


def test_unset_hyper_parameters_take_the_papers_value():
    assert resolve(Config(loss='em', dataset='mini_voc')).hparams['alpha'] == 0.2
    assert resolve(Config(loss='em', dataset='mini_cub')).hparams['alpha'] == 0.01
    assert resolve(Config(loss='em', dataset='mini_cub', hparams={'alpha': 0.3})).hparams['alpha'] == 0.3


def test_hash_names_the_resolved_configuration():
    base = resolve(Config())
    assert config_hash(base) == config_hash(resolve(Config(epochs=base.epochs, lr=base.lr)))
    assert config_hash(base) != config_hash(resolve(Config(hparams={'alpha': 0.11})))


def test_atomic_write_leaves_the_old_file_when_it_fails(tmp_path):
    file = tmp_path / 'a.txt'
    write_atomically(file, 'old')
    def fail(path):
        path.write_text('half')
        raise OSError(28, 'No space left on device')
    with pytest.raises(SpmlError, match='No space left'): write_atomically(file, fail)
    assert file.read_text() == 'old' and [p.name for p in tmp_path.iterdir()] == ['a.txt']


def test_a_link_stays_and_its_file_is_written(tmp_path):
    (tmp_path / 'there').mkdir()
    file, link = tmp_path / 'there' / 'a.txt', tmp_path / 'link.txt'
    link.symlink_to(file)
    for text in ('made', 'replaced'):
        write_atomically(link, text)
        assert link.is_symlink() and file.read_text() == text
    assert [p.name for p in file.parent.iterdir()] == ['a.txt']


def test_a_pipe_is_refused_and_stays(tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    (tmp_path / 'link').symlink_to(tmp_path / 'pipe')
    for name in ('pipe', 'link'):
        with pytest.raises(SpmlError, match=f'{name} is a pipe or a device.*name of a file'): write_atomically(tmp_path / name, 'x')
    assert (tmp_path / 'pipe').is_fifo() and len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize('mask', [0o077, 0o022, 0o002])
def test_permissions_are_those_of_the_old_file_or_the_umask(tmp_path, mask):
    def mode(name): return stat.S_IMODE((tmp_path / name).stat().st_mode)
    (tmp_path / 'old').touch()
    (tmp_path / 'old').chmod(0o640)
    before = os.umask(mask)
    try: [write_atomically(tmp_path / name, 'x') for name in ('old', 'new')]
    finally: os.umask(before)
    assert mode('old') == 0o640 and mode('new') == 0o666 & ~mask


def test_a_folder_of_photos_is_no_miniature_by_its_name():
    for dataset in ('mini_cooper', './mini_cooper', './mini_voc', '/photos/mini_voc'):
        config = resolve(Config(loss='an', dataset=dataset))
        assert (config.backbone, config.image_size, config.views) == ('resnet50', 448, 'flip')
    for dataset in ('mini_voc', 'mini_coco', 'mini_nus', 'mini_cub', 'mini_objects', 'mini_objects_40', 'mini_digits'):
        config = resolve(Config(loss='an', dataset=dataset))
        assert (config.backbone, config.image_size, config.views) == ('mini', 40, 'shift')
    assert config_hash(resolve(Config(loss='an', dataset='mini_voc', device='cpu'))) == '69b6dd554d1c'   # as it was
    a, b = (resolve(Config(loss='an', dataset='./mini_cooper', views=views)) for views in ('shift', 'flip'))
    assert config_hash(a) != config_hash(b)


def test_damaged_files_name_themselves(tmp_path):
    run = Run(resolve(Config()), tmp_path)
    run.start()
    with pytest.raises(SpmlError, match='no DONE'): run.result()
    (run.folder / 'last.pt').write_bytes(b'not a checkpoint')
    with pytest.raises(SpmlError, match='last.pt cannot be read'): run.restore('last.pt')
    run.finish({'scores': {}})
    (run.folder / 'result.json').write_text('{')
    with pytest.raises(SpmlError, match='result.json cannot be read'): run.result()
    with pytest.raises(SpmlError, match='result.json'): runs.load(tmp_path)


def test_checkpoints_never_execute_code(tmp_path):
    class Evil:
        def __reduce__(self): return os.system, (f'touch {tmp_path}/executed',)
    run = Run(resolve(Config()), tmp_path)
    run.start()
    torch.save({'x': Evil()}, run.folder / 'last.pt')
    with pytest.raises(SpmlError, match='cannot be read'): run.restore('last.pt')
    assert not (tmp_path / 'executed').exists()


def test_table_keeps_old_lines_and_adds_new_ones(tmp_path):
    for seed in (0, 1):
        run = Run(resolve(Config(seed=seed)), tmp_path / 'runs')
        run.start()
        run.finish({'scores': {'test_map': 10.0 + seed, 'test_ap': [1]}, 'seconds': 1.0, 'data': 'x', 'provenance': {'commit': None}})
        table = runs.export_csv(tmp_path / 'runs.csv', tmp_path / 'runs')
        assert len(table) == seed + 1
    for folder in (tmp_path / 'runs').iterdir(): (folder / 'DONE').unlink(missing_ok=True)
    assert len(runs.export_csv(tmp_path / 'runs.csv', tmp_path / 'runs')) == 2


def test_missing_values_are_empty_whatever_pandas_writes_for_them(tmp_path, monkeypatch):
    for seed, scores in ((0, {'test_map': 10.0, 'val_map': 9.0}), (1, {'test_map': 11.0})):   # trained without validation
        run = Run(resolve(Config(seed=seed)), tmp_path / 'runs')
        run.start()
        run.finish({'scores': scores, 'seconds': 1.0, 'data': 'x', 'provenance': {'commit': None}})
    runs.export_csv(tmp_path / 'now.csv', tmp_path / 'runs')
    monkeypatch.setattr(pd.DataFrame, 'astype', lambda table, kind: table.map(str))   # as pandas did before version 3
    runs.export_csv(tmp_path / 'before.csv', tmp_path / 'runs')
    assert (tmp_path / 'now.csv').read_bytes() == (tmp_path / 'before.csv').read_bytes()
    assert runs.read_record(tmp_path / 'before.csv').val_map.isna().sum() == 1


def test_the_table_of_record_takes_words_for_how_much_is_known(tmp_path):
    row = dict.fromkeys(runs.RECORD, '1') | {'val_truth': 'complete', 'test_truth': 'observed only', 'test_map': '50.0'}
    pd.DataFrame([row]).to_csv(tmp_path / 'runs.csv', index=False)
    assert runs.read_record(tmp_path / 'runs.csv').test_truth.tolist() == ['observed only']


def test_second_process_waits_for_the_lock(tmp_path):
    run = Run(resolve(Config()), tmp_path)
    code = f'''
import sys; sys.path[:0] = []
from pathlib import Path
from spml_nb.runs import *
run = Run(resolve(Config()), Path({str(tmp_path)!r}))
with run.lock(): print("got it", flush=True)
'''
    with run.lock():
        other = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, text=True)
        assert 'waiting' in other.stdout.readline()
        assert other.poll() is None
    assert 'got it' in other.communicate(timeout=60)[0]


def test_notebook_guard():
    cells = {}
    parameters = notebook_parameters(cells)
    cells |= {'loss': 'lac', 'los': 'em', 'os': os, '_private': 1}
    assert parameters() == {'loss': 'lac', 'los': 'em'}
    with pytest.raises(SpmlError, match="lost its tag 'parameters'"): notebook_parameters({'loss': 'lac'})
    with pytest.raises(SpmlError, match="lost its tag 'parameters'"): notebook_parameters({'unheard_of': 3})


def test_all_cells_can_be_run_again_in_the_same_kernel():
    cells = {}
    for loss in ('em', 'lac'):
        parameters = notebook_parameters(cells)
        cells |= {'parameters': parameters, 'loss': loss}
        given = parameters()
        assert given == {'loss': loss}
        cells |= {'given': given, 'config': Config(**given), 'task': 3}   # what later cells set
    cells['seed'] = 1
    assert parameters() == {'loss': 'lac', 'seed': 1}                     # a field that is new is taken


def test_provenance_names_commit_and_versions():
    found = runs.provenance()
    assert found['versions']['torch'] == torch.__version__.split('+')[0] or found['versions']['torch'] == torch.__version__
    assert json.dumps(found)
    inside = subprocess.run(['git', 'rev-parse', '--short=12', 'HEAD'], cwd=Path(runs.__file__).parent, capture_output=True, text=True)
    if inside.returncode == 0: assert found['commit'].startswith(inside.stdout.strip())
