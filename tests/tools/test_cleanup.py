"""House-keeping: what is listed, and that nothing goes that is in use, is not a run, or lies
elsewhere.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from patience import within

from spml_nb import runs
from spml_nb.base import files, settings
from spml_nb.base.errors import SpmlError
from spml_nb.runs.config import Config, resolve
from spml_nb.runs.folder import Run
from spml_nb.tools import cleanup as keeping

OLD = time.time() - 40 * 86400


def stand_in(done=True, **fields):
    "A run's folder as training leaves it, with small weights."
    run = Run(resolve(Config(**{'loss': 'an', **fields})))
    run.start()
    files.write_atomically(run.folder / 'metrics.csv', 'epoch,val_map\n1,50.0\n2,60.0\n')
    run.save('best.pt', {'weights': torch.zeros(5000)})
    if not done:
        run.save('last.pt', {'weights': torch.zeros(5000)})
        return run
    np.savez(run.folder / 'logits.npz', test=np.zeros((3, 2)))
    run.finish(
        {
            'scores': {'val_map': 60.0, 'test_map': 61.0},
            'seconds': 5.0,
            'data': 'x',
            'provenance': {'commit': None},
        }
    )
    return run


def states(**filters):
    return dict(
        zip(keeping.list_runs(**filters).name, keeping.list_runs(**filters).state, strict=True)
    )


def aged(path):
    os.utime(path, (OLD, OLD))
    return path


def test_each_state_is_told():
    done, begun, running = stand_in(), stand_in(done=False, seed=1), stand_in(done=False, seed=2)
    with running.lock():
        table = keeping.list_runs().set_index('name')
        assert table.state.to_dict() == {
            done.folder.name: 'done',
            begun.folder.name: 'begun',
            running.folder.name: 'running',
        }
    assert table.note[begun.folder.name] == '2 epochs' and table.test_map[done.folder.name] == 61.0
    assert states()[running.folder.name] == 'begun'  # the lock was only looked at
    told = keeping.format_listing(keeping.list_runs())
    assert 'mini_voc' in told and told.splitlines()[-1].startswith('2 begun, 1 done; ')


def test_what_is_no_run_is_not_listed_and_a_newer_run_is_not_damaged():
    run, root = stand_in(), settings.get_folder('runs')
    for name, content in (
        ('card-for-hub', {'library_name': 'spml_nb', 'id2label': {}}),
        ('my-project', {'private': 1}),
    ):
        (root / name).mkdir()
        (root / name / 'config.json').write_text(json.dumps(content))
        (root / name / 'thesis.tex').write_text('years of work')
    shutil.copytree(run.folder, root / 'my best run')  # a copy under another name is still a run
    changed(run.folder / 'config.json', of_a_newer_version=1)
    assert states() == {run.folder.name: 'done', 'my best run': 'done'}
    foreign = keeping.list_runs(pattern='my best run').assign(folder=root / 'my-project')
    assert (
        keeping.remove_paths(foreign, dry_run=False).outcome.tolist() == ['refused']
        and (root / 'my-project' / 'thesis.tex').is_file()
    )


def test_observed_auc_stands_beside_map_where_it_chooses():
    run = stand_in()
    listing = keeping.format_listing(keeping.list_runs())
    assert 'val_auc' not in listing and 'test_auc' not in listing
    scores = {'val_map': 60.0, 'val_truth': 'observed only', 'observed_val_auc': 81.25}
    changed(run.folder / 'result.json', scores=scores)
    head, row, *notes = keeping.format_listing(keeping.list_runs()).splitlines()
    assert 'val_auc' in head and 'test_auc' not in head
    assert '60.00*' in row and '81.25' in row and any('spml compare' in note for note in notes)


def test_scores_that_are_not_against_all_labels_are_marked():
    part, _ = stand_in(seed=1), stand_in()
    assert '*' not in keeping.format_listing(keeping.list_runs())
    changed(
        part.folder / 'result.json',
        scores={
            'val_map': 60.0,
            'test_map': 61.0,
            'val_truth': 'partly known',
            'test_truth': 'observed only',
        },
    )
    table, (_, *rows, known, observed, total) = (
        keeping.list_runs(),
        keeping.format_listing(keeping.list_runs()).splitlines(),
    )
    assert table.set_index('name').test_truth[
        part.folder.name
    ] == 'observed only' and 'test_truth' not in keeping.format_listing(table)
    assert [('60.00+' in row, '61.00*' in row) for row in rows] == [
        (part.folder.name in row,) * 2 for row in rows
    ] and len(rows) == 2
    assert (
        known.startswith('+ against known labels')
        and observed == '* against observed labels (unknown ones as negatives)'
        and total.startswith('2 done')
    )


@pytest.mark.parametrize(
    ('damage', 'words'),
    [
        (lambda folder: (folder / 'result.json').write_text('{'), 'result.json cannot be read'),
        (lambda folder: (folder / 'config.json').write_text('[]'), 'config.json cannot be read'),
        (
            lambda folder: (folder / 'config.json').write_text(
                '{"loss": "an", "dataset": "mini_voc", "hparams": {}, "seed": "x"}'
            ),
            "'seed' must be a whole number",
        ),
        (
            lambda folder: (folder / 'best.pt').write_bytes(
                (folder / 'best.pt').read_bytes()[:500]
            ),
            'best.pt cannot be read',
        ),
        (lambda folder: (folder / 'logits.npz').unlink(), 'logits.npz is missing'),
        (
            lambda folder: (folder / 'config.json').write_text('{}'),
            'config.json cannot be read: no object with loss, dataset, hparams',
        ),
        (
            lambda folder: changed(folder / 'config.json', seed='abc'),
            "'seed' must be a whole number",
        ),
        (
            lambda folder: changed(folder / 'config.json', seed=[1, 2]),
            "'seed' must be a whole number",
        ),
        (
            lambda folder: changed(folder / 'config.json', hparams=None),
            "'hparams' must be a mapping",
        ),
        (
            lambda folder: changed(folder / 'config.json', dataset=['mini_voc']),
            "'dataset' must be a text",
        ),
        (
            lambda folder: changed(folder / 'config.json', epochs=10**400),
            "'epochs' must be a whole number",
        ),
        (lambda folder: changed(folder / 'result.json', scores=[]), 'result.json cannot be read'),
        (
            lambda folder: changed(folder / 'result.json', scores={'val_map': 'high'}),
            'result.json cannot be read',
        ),
        (
            lambda folder: changed(folder / 'result.json', seconds=None),
            'result.json cannot be read',
        ),
    ],
)
def test_damage_is_named_and_hides_nothing_else(damage, words):
    damage(stand_in().folder)
    stand_in(seed=1)
    table = keeping.list_runs()
    assert (
        sorted(table.state) == ['damaged', 'done']
        and words in table[table.state == 'damaged'].note.item()
    )
    assert keeping.format_listing(table).splitlines()[-1].startswith('1 ')
    for filters in ({'dataset': 'mini_voc'}, {'hparams': {'a': 1}}, {'seed': 1}):
        keeping.format_listing(keeping.list_runs(**filters))
    assert keeping.list_runs(hparams={'a': 1}).empty and keeping.list_runs(
        seed=1
    ).state.tolist() == ['done']


def replaced(file, kind):
    file.unlink()
    os.mkfifo(file) if kind == 'pipe' else file.mkdir()


@pytest.mark.silent('C10')
@pytest.mark.parametrize('name', ['a-mini_voc-0123456789ab', 'called otherwise'])
@pytest.mark.parametrize(
    'damage',
    [
        lambda file: file.write_text('[' * 200_000),
        lambda file: file.write_text('{"loss": ' + '[' * 200_000),
        lambda file: file.write_text('{"loss": 1' + '0' * 5000 + '}'),
        lambda file: file.write_bytes(b'\xff\xfe'),
        lambda file: file.write_text('NaN'),
        lambda file: replaced(file, 'pipe'),
        lambda file: replaced(file, 'folder'),
        lambda file: changed(file, lr=float('nan')),
        lambda file: changed(file, dataset={}),
        lambda file: changed(file, hparams=[1]),
    ],
    ids=[
        'deep',
        'deep in a field',
        'huge number',
        'not UTF-8',
        'no object',
        'pipe',
        'folder',
        'NaN',
        'a mapping for a text',
        'a list for a mapping',
    ],
)
def test_a_configuration_of_any_content_hides_no_other_run(damage, name):
    folder = stand_in().folder
    damage(folder / 'config.json')
    folder.rename(folder.with_name(name))
    stand_in(seed=1)
    with within(20):
        table = keeping.list_runs()
    assert (
        'done' in list(table.state)
        and set(table.state) <= {'done', 'damaged'}
        and len(table) in (1, 2)
    )
    if name.startswith('a-'):
        assert sorted(table.state) == ['damaged', 'done']
    assert keeping.format_listing(table)


@pytest.mark.silent('C10')
@pytest.mark.parametrize(
    'scores', [{'val_map': 1, 'val_truth': ['full']}, {'val_map': 10**400}, {'val_map': {}}, None]
)
def test_a_result_of_any_content_hides_no_other_run(scores):
    changed(stand_in().folder / 'result.json', scores=scores)
    stand_in(seed=1)
    table = keeping.list_runs()
    assert sorted(table.state) == ['damaged', 'done'] and keeping.format_listing(table)


def changed(file, **values):
    file.write_text(json.dumps({**runs.read_json(file), **values}))


@pytest.mark.parametrize('content', [b'', b'\xff\xfe\x00\x01', b'epoch\n1\n2,3,4,5\n'])
def test_damaged_curves_are_a_damaged_run(content):
    run = stand_in(done=False)
    stand_in(seed=1)
    (run.folder / 'metrics.csv').write_bytes(content)
    table = keeping.list_runs().set_index('name')
    assert (
        sorted(table.state) == ['damaged', 'done']
        and 'metrics.csv cannot be read' in table.note[run.folder.name]
    )


def test_what_tells_runs_apart_is_shown_and_sorted():
    runs = [
        stand_in(),
        stand_in(lr=0.02),
        stand_in(lr=0.003, epochs=7),
        stand_in(loss='ls', hparams={'smoothing': 0.2}, min_positives=5),
        stand_in(dataset='mini_cub', epochs=9),
    ]
    table = keeping.sort_listing(keeping.list_runs(), 'lr').set_index('name')
    assert table.lr.tolist() == [0.02, 0.003, 0.001, 0.001, 0.001] and keeping.sort_listing(
        keeping.list_runs(), 'loss'
    ).loss.tolist() == ['an'] * 4 + ['ls']
    assert table.differs.to_dict() == {
        run.folder.name: words
        for run, words in zip(runs, ['epochs=120', 'epochs=120', 'epochs=7', '', ''], strict=True)
    }
    assert (
        'smoothing=0.2' in table.hparams[runs[3].folder.name]
        and table.min_positives[runs[3].folder.name] == 5
    )
    told = keeping.format_listing(keeping.list_runs())
    assert (
        '0.003' in told
        and 'epochs=7' in told
        and 'smoothing=0.2' in told
        and 'min_positives' in told.splitlines()[0]
    )
    assert (
        'min_positives' not in keeping.format_listing(keeping.list_runs(loss='an')).splitlines()[0]
    )  # where all are 0
    with pytest.raises(SpmlError, match="unknown column to sort by 'rate'; allowed: name, state"):
        keeping.sort_listing(keeping.list_runs(), 'rate')


@pytest.mark.parametrize('done', [True, False])
def test_a_renamed_run_or_a_copy_is_whole(done):
    run, name = stand_in(done=done), 'my best model'
    shutil.copytree(run.folder, run.folder.with_name(name))
    table = keeping.list_runs().set_index('name')
    state = 'done' if done else 'begun'
    assert (
        table.state.to_dict() == {run.folder.name: state, name: state}
        and keeping.list_runs(state='damaged').empty
    )
    assert done or '2 epochs' in table.note[name]


def test_runs_of_another_user_are_listed(monkeypatch):
    run = stand_in()
    Path(files.make_lock(run.folder).lock_file).touch()

    def refused(*_, **__):
        raise PermissionError(13, 'Permission denied')

    monkeypatch.setattr(files.FileLock, 'acquire', refused)  # a superuser may open everything
    assert states() == {run.folder.name: 'done'}
    assert keeping.remove_paths(keeping.list_runs(), dry_run=False)[
        ['outcome', 'why']
    ].to_numpy().tolist() == [['refused', 'Permission denied']]
    monkeypatch.setattr(
        keeping.zipfile, 'is_zipfile', lambda file: file.name != 'best.pt'
    )  # False for a file that may not be read
    assert keeping.list_runs().note.tolist() == ['best.pt cannot be read']


@pytest.mark.parametrize('at', ['_size', '_days', 'read_json', '_read_state'])
def test_a_run_that_goes_away_while_it_is_looked_at(monkeypatch, at):
    gone, kept = stand_in(), stand_in(seed=1)
    whole = getattr(keeping, at)

    def vanish(path, *more):
        if gone.folder in (path, path.parent):
            shutil.rmtree(gone.folder, ignore_errors=True)
        return whole(path, *more)

    monkeypatch.setattr(keeping, at, vanish)
    assert keeping.list_runs()[['name', 'state']].to_numpy().tolist() == [
        [kept.folder.name, 'done']
    ]


def test_a_file_that_goes_away_has_no_size_and_no_age(tmp_path):
    assert keeping._size(tmp_path / 'gone') == keeping._days(tmp_path / 'gone') == 0


def test_runs_from_before_a_field_existed_are_whole():
    folder = stand_in().folder
    config = runs.read_json(folder / 'config.json')
    for name in runs.ADDED:
        del config[name]
    (folder / 'config.json').write_text(json.dumps(config))
    assert keeping.list_runs(normalise='true' == 'true', frozen_stages=0).state.tolist() == ['done']


def test_filters():
    old = stand_in(loss='em', hparams={'alpha': 0.3})
    new = stand_in(seed=1, done=False)
    aged(old.folder)
    assert list(keeping.list_runs().seed) == [1, 0]  # newest first
    for given in (
        {'loss': 'em'},
        {'hparams': {'alpha': 0.3}},
        {'pattern': 'em-*'},
        {'days': 30},
        {'state': 'done'},
        {'seed': '0'},
    ):
        assert list(states(**given)) == [old.folder.name], given
    elsewhere = stand_in(loss='an', root='/mnt/data')
    assert list(states(root='/mnt/data')) == [elsewhere.folder.name]
    shutil.rmtree(elsewhere.folder)
    for given in ({'seed': 1, 'dataset': 'mini_voc'}, {'state': 'begun'}):
        assert list(states(**given)) == [new.folder.name], given
    assert (
        not len(keeping.list_runs(loss='em', seed=1))
        and keeping.format_listing(keeping.list_runs(loss='gr')) == 'none'
    )
    for given, words in (
        ({'los': 'em'}, "unknown parameter 'los'"),
        ({'state': 'dnoe'}, "Did you mean 'done'?"),
        ({'seed': 'x'}, "'seed' must be a whole number"),
        ({'regime': 'liner'}, "unknown regime 'liner'"),
    ):
        with pytest.raises(SpmlError) as error:
            keeping.list_runs(**given)
        assert words in str(error.value)


def test_a_run_is_removed_and_the_rest_stays():
    gone, kept = stand_in(), stand_in(seed=1)
    log = gone.folder.parent / f'{gone.folder.name}.log'
    log.write_text('of the last try')
    table = keeping.list_runs(seed=0)
    assert (
        keeping.remove_paths(table, dry_run=True).outcome.tolist() == ['would be removed']
        and gone.done
    )
    done = keeping.remove_paths(table, dry_run=False)
    assert keeping.describe_freed(done).startswith('1 removed, ') and keeping.describe_freed(
        done
    ).endswith(' kB')
    assert not gone.folder.exists() and not log.exists() and list(states()) == [kept.folder.name]
    assert not list(settings.get_folder('runs').glob('.removed-*'))


def test_a_run_that_another_process_trains_stays():
    run = stand_in(done=False)
    code = (
        'import sys\nfrom filelock import FileLock\n'
        f'held = FileLock({files.make_lock(run.folder).lock_file!r}).acquire()\n'
        'print(flush=True)\nsys.stdin.read()'
    )
    with subprocess.Popen(
        [sys.executable, '-c', code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        assert list(states(state='running')) == [run.folder.name]
        for dry_run in (True, False):
            table = keeping.remove_paths(keeping.list_runs(), dry_run=dry_run)
            assert table.outcome.tolist() == [
                'refused'
            ] and 'a process is using it' in keeping.describe_freed(table)
        other.stdin.close()
    assert (run.folder / 'last.pt').is_file() and keeping.remove_paths(
        keeping.list_runs(), dry_run=False
    ).outcome.tolist() == ['removed']


def test_only_runs_right_below_the_folder_of_runs_can_be_removed(tmp_path):
    whole, root = stand_in(), settings.get_folder('runs')
    outside = tmp_path / 'elsewhere'
    whole.folder.rename(outside)
    kept = stand_in()
    (root / 'link').symlink_to(outside)
    (root / 'notes').mkdir()
    (root / 'notes' / 'mine.txt').write_text('mine')
    (root / 'deep').mkdir()
    (root / 'deep' / 'config.json').write_text('{}')
    (root / 'deep' / 'inner').mkdir()
    (root / 'deep' / 'inner' / 'config.json').write_text('{}')
    wrong = [
        outside,
        root / 'link',
        root / 'notes',
        root / '..',
        root,
        root / 'deep' / 'inner',
        root / 'no-such-run',
        root / 'link' / '..' / 'elsewhere',
    ]
    done = keeping.remove_paths(pd.DataFrame({'folder': wrong}), dry_run=False)
    assert (
        set(done.outcome) == {'refused'}
        and done.why.str.contains('neither a run nor a leftover').all()
        and kept.done
    )
    assert (
        (root / 'deep' / 'inner' / 'config.json').is_file()
        and (outside / 'DONE').is_file()
        and (root / 'notes' / 'mine.txt').is_file()
        and 'link' not in states()
    )


def test_a_link_inside_a_run_is_not_followed(tmp_path):
    (tmp_path / 'precious').write_text('kept')
    run = stand_in()
    (run.folder / 'more').symlink_to(tmp_path)
    assert (
        keeping.remove_paths(keeping.list_runs(), dry_run=False).outcome.tolist() == ['removed']
        and (tmp_path / 'precious').read_text() == 'kept'
    )


def killed_at(call, name):
    """Remove a run in a process that is killed just before its call-th change of the disk. Returns:
    whether it was.
    """
    child = os.fork()
    if not child:
        left = [call]

        def watch(event, arguments):
            if event in ('os.mkdir', 'os.rename', 'os.remove', 'os.rmdir'):
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1

        run = keeping.list_runs(pattern=name)
        sys.addaudithook(watch)
        keeping.remove_paths(run, dry_run=False)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings('ignore:.*fork:DeprecationWarning')
def test_a_kill_while_removing_leaves_nothing_that_looks_finished(cache):
    seen, killed, call = [], True, 0
    while killed:
        name = stand_in().folder.name
        killed = killed_at(call, name)
        assert set(keeping.list_runs().state) <= {'done'}  # whole, or not among the runs
        seen.append((killed, len(runs.load())))
        call += 1
    there = [n for _, n in seen]
    assert (
        there == sorted(there, reverse=True) and there.count(1) >= 2 and there.count(0) >= 5
    )  # killed both before and behind the stroke
    for place in settings.get_folder('runs').glob('.removed-*'):
        aged(place)
    left = keeping.find_leftovers()
    assert set(left.what) == {'half-removed run'}
    keeping.remove_paths(left, dry_run=False)
    assert not list(settings.get_folder('runs').glob('.removed-*'))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_CACHE', str(tmp_path / 'cache'))
    for kind in ('images', 'features'):
        (tmp_path / 'cache' / kind).mkdir(parents=True)
    return tmp_path / 'cache'


def test_what_was_left_behind_is_found_and_removed(cache):
    begun, done = stand_in(done=False), stand_in(seed=1)
    root = begun.folder.parent
    wanted = [
        begun.folder / '.last.pt-a1b2c3_d.tmp',
        root / '.removed-a1b2c3_d',
        settings.get_folder('outputs') / 'hml' / '.table1.csv-abcdefgh.tmp',
        cache / 'features' / '.0123.npy-abcdefgh.tmp',
        cache / 'features' / 'old.npy',
        cache / 'reproduction-a1b2c3_d',
    ]
    kept = [
        begun.folder.with_name(f'{begun.folder.name}.log'),
        settings.get_folder('outputs') / '.runs.csv-abcdefgh.tmp',
        cache / 'features' / 'new.npy',
        cache / 'features' / '.old.npy.lock',
        cache / 'notes.txt',
    ]
    for path in (*wanted, *kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix or path.name.startswith('.runs') or path.name.startswith(('.last', '.best')):
            path.write_bytes(b'12345')
        else:
            path.mkdir()
        if path in wanted:
            aged(path)
    assert set(keeping.find_leftovers().path) == set(wanted)
    assert cache / 'features' / 'new.npy' in set(keeping.find_leftovers(0).path)
    assert keeping.remove_paths(
        keeping.find_leftovers(), dry_run=True
    ).outcome.unique().tolist() == ['would be removed'] and all(map(os.path.lexists, wanted))
    assert keeping.remove_paths(
        keeping.find_leftovers(), dry_run=False
    ).outcome.unique().tolist() == ['removed']
    assert (
        not any(map(os.path.lexists, wanted))
        and all(map(os.path.lexists, kept))
        and states() == {begun.folder.name: 'begun', done.folder.name: 'done'}
    )
    with pytest.raises(SpmlError, match='days=-1'):
        keeping.find_leftovers(-1)


def test_the_log_of_a_run_that_never_began_is_a_leftover(cache):
    begun, name = stand_in(done=False).folder, 'an-photos-0123456789ab'
    for log in (f'{begun.name}.log', f'{name}.log', 'mine.log'):
        begun.with_name(log).write_text('why')
        aged(begun.with_name(log))
    assert keeping.find_leftovers().path.tolist() == [begun.with_name(f'{name}.log')]


def test_what_only_has_the_name_of_a_leftover_is_the_users(cache):
    root = settings.get_folder('runs')
    outputs = settings.get_folder('outputs')
    begun = stand_in(done=False).folder
    copied = root / '.backup-20260101'
    copied.mkdir()
    shutil.copytree(stand_in(seed=1).folder, copied / 'run')
    folders = [
        root / '.folder-20260101.tmp',
        outputs / '.folder-20260101.tmp',
        begun / '.folder-20260101.tmp',
        begun / '.last.pt-a1b2c3d4',
        cache / 'features' / '.folder-20260101.tmp',
        cache / 'images' / 'mine',
        cache / 'images' / 'a.npy.tmp',
        root / '.removed-by-me',
        cache / 'reproduction-of-mine',
    ]
    files = [
        root / '.env-template',
        outputs / '.env-template',
        begun / '.env-template',
        outputs / '.runs.csv-abcdefgh',
        cache / 'features' / '.env-template',
        root / 'em-mini_voc-0123456789ac' / '.env-template',
        root / '.removed-a1b2c3d4',
        cache / 'reproduction-a1b2c3d4',
        cache / 'images' / 'photo.jpg',
        cache / 'images' / 'draft.tmp',
    ]
    (cache / 'elsewhere').write_text('mine')
    links = [
        root / '.link-20260101.tmp',
        outputs / '.link-20260101.tmp',
        begun / '.link-20260101.tmp',
        cache / 'features' / '.link-20260101.tmp',
        cache / 'features' / 'link.npy',
    ]
    for path in (*folders, *files, *links):
        path.parent.mkdir(parents=True, exist_ok=True)
    for path in folders:
        path.mkdir()
        (path / 'mine.txt').write_text('mine')
    for path in files:
        path.write_text('mine')
    for path in links:
        path.symlink_to(cache / 'elsewhere')
    for path in (copied, *folders, *files, cache / 'elsewhere'):
        aged(path)
    assert keeping.find_leftovers(0).empty, keeping.find_leftovers(0).path.tolist()
    table = pd.DataFrame(
        [
            {'what': 'temporary file', 'path': path, 'mb': 0.0, 'days': 99.0}
            for path in (copied, *folders, *files, *links)
        ]
    )
    assert (
        set(keeping.remove_paths(table, dry_run=False).outcome) == {'refused'}
        and (copied / 'run' / 'DONE').is_file()
    )
    assert all(path.is_dir() for path in folders) and all(
        path.is_file() for path in (*files, *links)
    )


def test_what_goes_away_while_it_is_looked_at_is_left_out(cache, monkeypatch):
    begun = stand_in(done=False).folder
    wanted, gone = aged_file(begun / '.last.pt-a1b2c3d4.tmp'), cache / 'reproduction-a1b2c3_d'
    gone.mkdir()
    whole = keeping.is_locked

    def vanish(path):
        if path == gone:
            shutil.rmtree(gone, ignore_errors=True)
        return whole(path)

    monkeypatch.setattr(keeping, 'is_locked', vanish)
    assert keeping.find_leftovers().path.tolist() == [wanted]


def test_nothing_goes_that_a_process_holds(cache):
    building = aged_file(cache / 'images' / '.a.npy-a1b2c3d4.tmp')
    unused = aged_file(cache / 'features' / 'b.npy')
    writing = aged_file(stand_in(done=False).folder / '.last.pt-a1b2c3d4.tmp')
    table = keeping.find_leftovers()
    assert set(table.path) == {building, unused, writing}
    with (
        files.make_lock(cache / 'images' / 'a.npy'),
        files.make_lock(unused),
        files.make_lock(writing.parent),
    ):
        assert not len(keeping.find_leftovers())
        assert keeping.remove_paths(table, dry_run=False).outcome.tolist() == ['refused'] * 3
    assert all(path.is_file() for path in (building, unused, writing))


def aged_file(path):
    path.write_bytes(b'half')
    return aged(path)


def test_what_lies_elsewhere_is_refused(cache, tmp_path):
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine' / 'a.npy').write_bytes(b'1')
    (cache / 'linked').symlink_to(tmp_path / 'mine')
    paths = [
        tmp_path / 'mine' / 'a.npy',
        cache / 'linked' / 'a.npy',
        cache / '..' / 'mine' / 'a.npy',
    ]
    assert (
        set(keeping.remove_paths(pd.DataFrame({'path': paths}), dry_run=False).outcome)
        == {'refused'}
        and (tmp_path / 'mine' / 'a.npy').is_file()
    )
