"The doctor: a broken machine is told check by check, and a broken check stops none."

import json
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from torch.utils import collect_env

from spml_nb import runs
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.data import official as benchmarks
from spml_nb.tools import doctor
from spml_nb.use import export as exporting


def of(name):
    "The findings of one check. Returns: list of (state, found, do)."
    return list(map(tuple, doctor._findings(doctor.CHECKS[name])))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_CACHE', str(tmp_path / 'cache'))


def test_everything_is_looked_at_without_the_network(monkeypatch):
    def refuse(*_):
        raise AssertionError('the doctor went to the network')

    for name in ('connect', 'connect_ex', 'sendto'):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, 'getaddrinfo', refuse)
    table = doctor.check_installation()
    assert (
        set(table.check) == set(doctor.CHECKS)
        and not table.found.str.contains('the check itself failed').any()
    ), doctor.format_findings(table)
    assert table.state.isin(['ok', 'warning', 'problem']).all()
    assert (
        not settings.get_folder('runs').exists() and not settings.get_folder('cache').exists()
    )  # looking makes nothing


def test_a_check_that_fails_is_told_and_stops_none(monkeypatch):
    def broken():
        raise RuntimeError('no such bus')

    def half():
        yield doctor.Finding('ok', 'so far')
        raise SpmlError('settings.ini is torn. Mend it.')

    monkeypatch.setattr(
        doctor, 'CHECKS', {'broken': broken, 'half': half, 'python': doctor.CHECKS['python']}
    )
    table = doctor.check_installation()
    assert table.state.tolist() == ['problem', 'problem', 'ok']
    told = doctor.format_findings(table)
    assert (
        'the check itself failed: RuntimeError: no such bus' in told
        and 'settings.ini is torn' in told
        and told.endswith('1 ok, 0 warning, 2 problem')
    )


def test_versions_outside_their_range(monkeypatch):
    have = version('numpy')
    needs = [
        'numpy<1',
        'pandas',
        'absent-one>=3',
        'no-such-ray>=2; extra == "cluster"',
        'numpy<1; extra == "dev"',
        'spml_nb[cluster]; extra == "dev"',
    ]
    monkeypatch.setattr(doctor, 'requires', lambda name: needs)
    old, absent, other, good, optional = of('packages')
    assert (
        old == ('problem', f'numpy {have}, but <1 is needed', "Run `pip install 'numpy<1'`.")
        and good[0] == 'ok'
        and good[1].startswith('pandas ')
    )
    assert (
        absent == ('problem', 'absent-one not installed', 'Run `pip install absent-one`.')
        and other[0] == 'warning'
    )
    assert (
        optional[0] == 'ok'
        and optional[1].startswith('not installed, and optional')
        and 'no-such-ray ("cluster")' in optional[1]
    )


def test_the_packages_named_are_those_of_the_package():
    found = ' '.join(found for _, found, _ in of('packages'))
    assert all(
        f'{name} ' in found for name in ('torch', 'numpy', 'filelock', 'jupyterlab', 'nbdev')
    )


def test_the_quick_checks_load_no_torch():
    code = (
        'import sys; from spml_nb.tools import doctor; table = '
        'doctor.check_installation(quick=True); assert set(table.check) == set(doctor.CHECKS) - '
        'doctor.SLOW, table.check\nassert not table.found.str.contains("the check itself '
        'failed").any(); assert "torch" not in sys.modules'
    )
    subprocess.run([sys.executable, '-c', code], check=True, timeout=60)


@pytest.mark.parametrize(
    ('driver', 'torch_cuda', 'free', 'state', 'word'),
    [
        ('580.1', '13.0', 70, 'ok', '70.0 of 80.0 GiB free'),
        ('580.1', '13.0', 1, 'warning', '1.0 of 80.0'),
        ('550.2', '13.0', None, 'warning', 'cannot use it with the driver 550.2'),
        ('550.2', None, None, 'warning', 'torch (CUDA None)'),
        (None, '13.0', None, 'ok', 'none'),
    ],
)
def test_gpus(monkeypatch, driver, torch_cuda, free, state, word):
    "The driver's and torch's words stand in for a machine with a GPU."
    monkeypatch.setattr(collect_env, 'get_nvidia_driver_version', lambda run: driver)
    monkeypatch.setattr(torch.version, 'cuda', torch_cuda)
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: free is not None)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 1)
    monkeypatch.setattr(torch.cuda, 'get_device_name', lambda k: 'a GPU')
    monkeypatch.setattr(torch.cuda, 'mem_get_info', lambda k: (free * 2**30, 80 * 2**30))
    (finding,) = of('GPU')
    assert finding[0] == state and word in finding[1] and bool(finding[2]) == (state != 'ok')


def test_folders_that_cannot_be_written(monkeypatch, tmp_path):
    (tmp_path / 'file').write_text('')

    def refuse(dir):
        if Path(dir).name == 'shut':
            raise PermissionError(13, 'Permission denied')
        return open(tmp_path / 'file')

    monkeypatch.setattr(
        doctor.tempfile, 'TemporaryFile', refuse
    )  # a superuser may write everywhere
    (tmp_path / 'shut').mkdir()
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'shut' / 'runs'))
    monkeypatch.setenv('SPML_NB_DATA', str(tmp_path / 'shut'))
    monkeypatch.setattr(doctor.shutil, 'disk_usage', lambda path: SimpleNamespace(free=6 * 2**30))
    data, cache, place, outputs = of('folders')
    assert (
        cache[0] == outputs[0] == 'ok'
        and data[0] == 'warning'
        and place[0] == 'problem'
        and 'SPML_NB_RUNS' in place[2]
    )
    monkeypatch.setattr(doctor.shutil, 'disk_usage', lambda path: SimpleNamespace(free=4 * 2**30))
    assert of('folders')[1][0] == 'warning' and '4.0 GiB free' in of('folders')[1][1]


@pytest.mark.parametrize('kind', settings.PATHS)
@pytest.mark.parametrize('below', ['', 'deeper/still'])
def test_a_file_in_the_place_of_a_folder(monkeypatch, tmp_path, kind, below):
    (tmp_path / 'file').write_text('')
    monkeypatch.setenv(f'SPML_NB_{kind.upper()}', str(tmp_path / 'file' / below))
    wrong = next(finding for finding in of('folders') if finding[0] != 'ok')
    assert (
        wrong[1] == f"{kind}: {tmp_path / 'file'} cannot be written (Not a directory)"
        and f'SPML_NB_{kind.upper()}' in wrong[2]
    )
    assert (
        not doctor.check_installation(quick=True)
        .found.str.contains('the check itself failed')
        .any()
    )


def test_wrong_settings(monkeypatch, tmp_path):
    (tmp_path / 'settings.ini').write_text('[spml_nb]\ndvice = cpu\n')
    monkeypatch.setenv('SPML_NB_SETTINGS', str(tmp_path / 'settings.ini'))
    monkeypatch.delenv('SPML_NB_DEVICE')
    assert any(
        state == 'problem' and "Did you mean 'device'?" in found
        for state, found, _ in of('settings')
    )
    (tmp_path / 'settings.ini').write_text('[spml_nb]\ndevice = tpu\n')
    assert [state for state, *_ in of('settings')] == ['ok'] and [
        state for state, *_ in of('torch')
    ] == ['problem']
    monkeypatch.setenv('SPML_NB_SETTINGS', str(tmp_path / 'none.ini'))
    assert of('settings')[0][0] == 'problem' and 'none.ini' in of('settings')[0][1]


def test_data_sets(monkeypatch, tmp_path):
    monkeypatch.setenv('SPML_NB_DATA', str(tmp_path / 'data'))
    assert of('data sets') == [('ok', 'none prepared; the miniatures need no files', '')]
    for name in ('ccp', 'pets'):
        (tmp_path / 'data' / name).mkdir(parents=True)
        (tmp_path / 'data' / name / 'ready.json').write_text(json.dumps({'fingerprint': 'x'}))
    monkeypatch.setattr(
        benchmarks,
        'list_missing_files',
        lambda name, root: [] if name == 'ccp' else ['images have changed.'],
    )
    assert of('data sets') == [
        ('ok', 'ccp; the miniatures need no files', ''),
        ('problem', 'pets: images have changed.', 'Run `spml data pets`.'),
    ]


def test_weights(monkeypatch):
    assert of('weights') == [
        (
            'ok',
            'coco18, mirflickr14, voc12_animals and the weights of their backbone are as published',
            '',
        )
    ]
    monkeypatch.setattr(exporting, 'hash_weights', lambda model: 'another')
    ((state, found, _),) = of('weights')
    assert state == 'problem' and 'but another are installed' in found


def test_damaged_runs():
    assert of('runs') == [('ok', f"none in {settings.get_folder('runs')}", '')]
    folder = settings.get_folder('runs') / 'an-mini_voc-0123456789ab'
    folder.mkdir(parents=True)
    (folder / 'config.json').write_text('{')
    ((state, found, remedy),) = of('runs')
    assert (
        state == 'warning'
        and found.startswith('1 damaged in ')
        and '`spml runs --state damaged`' in remedy
    )


def test_a_run_that_was_renamed_is_not_called_damaged():
    run = runs.Run(runs.resolve(runs.Config(loss='an')))
    run.start()
    run.folder.rename(run.folder.with_name('my best model'))
    assert of('runs') == [('ok', f"1 begun in {settings.get_folder('runs')}", '')]


def test_tools_that_are_missing(monkeypatch, tmp_path):
    import jupyter_client.kernelspec as specs

    assert of('kernel')[0][0] == 'ok'
    monkeypatch.setattr(
        specs.KernelSpecManager,
        'get_kernel_spec',
        lambda self, name: SimpleNamespace(argv=[str(tmp_path / 'python3')]),
    )
    assert of('kernel')[0][0] == 'warning' and str(tmp_path / 'python3') in of('kernel')[0][1]

    def none(self, name):
        raise specs.NoSuchKernel(name)

    monkeypatch.setattr(specs.KernelSpecManager, 'get_kernel_spec', none)
    assert 'the kernel python3 of notebooks is not there' in of('kernel')[0][1]
    monkeypatch.setattr(doctor, 'find_spec', lambda name: None)
    assert of('kernel') == []  # the packages that are missing are told by another check


def test_the_table_for_a_terminal():
    table = pd.DataFrame(
        [('a', 'ok', 'fine', ''), ('longer', 'problem', 'broken', 'Mend it.')],
        columns=['check', 'state', 'found', 'do'],
    )
    assert doctor.format_findings(table).splitlines() == [
        'ok       a       fine',
        'problem  longer  broken',
        '                 → Mend it.',
        '1 ok, 0 warning, 1 problem',
    ]
