"""Whole-file writes: the old file stays when something goes wrong, and links, pipes and permissions
are respected.
"""

import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from spml_nb.base.errors import SpmlError
from spml_nb.base.files import (
    hold_lock,
    is_locked,
    new_folder,
    refuse_existing,
    remove_leftovers,
    write_arrays,
    write_atomically,
)


def test_atomic_write_leaves_the_old_file_when_it_fails(tmp_path):
    file = tmp_path / 'a.txt'
    write_atomically(file, 'old')

    def fail(path):
        path.write_text('half')
        raise OSError(28, 'No space left on device')

    with pytest.raises(SpmlError, match='No space left'):
        write_atomically(file, fail)
    assert file.read_text() == 'old' and [p.name for p in tmp_path.iterdir()] == ['a.txt']


def test_a_link_stays_and_its_file_is_written(tmp_path):
    (tmp_path / 'there').mkdir()
    file, link = tmp_path / 'there' / 'a.txt', tmp_path / 'link.txt'
    link.symlink_to(file)
    for text in ('made', 'replaced'):
        write_atomically(link, text, follow=True)  # a name that a person gave
        assert link.is_symlink() and file.read_text() == text
    assert [p.name for p in file.parent.iterdir()] == ['a.txt']


def test_a_pipe_is_refused_and_stays(tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    (tmp_path / 'link').symlink_to(tmp_path / 'pipe')
    for name, follow in (('pipe', False), ('pipe', True), ('link', True)):
        with pytest.raises(SpmlError, match=f'{name} is a pipe or a device.*Name a file'):
            write_atomically(tmp_path / name, 'x', follow)
    assert (tmp_path / 'pipe').is_fifo() and len(list(tmp_path.iterdir())) == 2
    write_atomically(tmp_path / 'link', 'x')  # that nobody named: the link is replaced
    assert (tmp_path / 'pipe').is_fifo() and (tmp_path / 'link').read_text() == 'x'


@pytest.mark.parametrize('mask', [0o077, 0o022, 0o002])
def test_permissions_are_those_of_the_old_file_or_the_umask(tmp_path, mask):
    def mode(name):
        return stat.S_IMODE((tmp_path / name).stat().st_mode)

    (tmp_path / 'old').touch()
    (tmp_path / 'old').chmod(0o640)
    before = os.umask(mask)
    try:
        [write_atomically(tmp_path / name, 'x') for name in ('old', 'new')]
    finally:
        os.umask(before)
    assert mode('old') == 0o640 and mode('new') == 0o666 & ~mask


def test_files_of_arrays_hold_no_date(tmp_path):
    write_arrays(tmp_path / 'a.npz', {'x': np.arange(3)})
    assert np.load(tmp_path / 'a.npz')['x'].tolist() == [0, 1, 2]
    assert {i.date_time[:3] for i in zipfile.ZipFile(tmp_path / 'a.npz').infolist()} == {
        (1980, 1, 1)
    }


@pytest.mark.silent('C8')
def test_what_is_there_is_not_overwritten(tmp_path):
    (tmp_path / 'full').mkdir()
    (tmp_path / 'full' / 'a.txt').write_text('a')
    (tmp_path / 'dangling').symlink_to(tmp_path / 'gone')
    for name in ('full', 'full/a.txt', 'dangling', '/dev/null'):
        with pytest.raises(SpmlError, match=name):
            refuse_existing(tmp_path / name)
    (tmp_path / 'empty').mkdir()
    for name in ('empty', 'new', 'new/file.csv'):
        refuse_existing(str(tmp_path / name))


# ---- links, pipes and folders of the system


@pytest.mark.silent('C10')
@pytest.mark.parametrize(
    'write',
    [
        lambda file: write_atomically(file, 'new'),
        lambda file: write_arrays(file, {'a': np.arange(2)}),
    ],
)
def test_a_link_that_nobody_named_is_replaced_and_what_it_leads_to_stays(tmp_path, write):
    (tmp_path / 'victim').write_text('precious')
    (tmp_path / 'run').mkdir()
    for name, target in (('a', '../victim'), ('b', 'nowhere')):
        link = tmp_path / 'run' / name
        link.symlink_to(target)
        write(link)
        assert not link.is_symlink() and link.is_file()
    assert (tmp_path / 'victim').read_text() == 'precious' and sorted(
        p.name for p in (tmp_path / 'run').iterdir()
    ) == ['a', 'b']


@pytest.mark.silent('C10')
def test_a_lock_that_is_a_link_changes_nothing_behind_it(tmp_path):
    (tmp_path / 'victim').write_text('precious')
    (tmp_path / '.run.lock').symlink_to(tmp_path / 'victim')
    assert not is_locked(tmp_path / 'run')
    with pytest.raises(SpmlError), hold_lock(tmp_path / 'run'):
        pass
    assert (tmp_path / 'victim').read_text() == 'precious'


@pytest.mark.silent('C10')
@pytest.mark.skipif(not os.path.isdir('/proc/self'), reason='needs /proc')
def test_where_no_lock_can_be_made_nobody_waits_for_it():
    code = (
        'from pathlib import Path; from spml_nb.base.files import hold_lock\nwith '
        'hold_lock(Path("/proc/run")): pass'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=60)
    assert 'SpmlError: /proc/run could not be written' in done.stderr and not done.stdout


@pytest.mark.silent('C10')
def test_what_has_no_end_is_no_file(tmp_path):
    from spml_nb.base.files import require_regular_file

    os.mkfifo(tmp_path / 'pipe')
    (tmp_path / 'file').write_text('x')
    (tmp_path / 'link').symlink_to('file')
    for name in ('pipe', 'nowhere'):
        with pytest.raises(OSError):
            require_regular_file(tmp_path / name)
    with pytest.raises(OSError):
        require_regular_file('/dev/zero')
    for name in ('file', 'link', '.'):
        assert require_regular_file(tmp_path / name) == tmp_path / name


# ---- what killed writers leave


@pytest.mark.silent('C11')
def test_the_file_of_a_killed_writer_goes_at_the_next_write_and_that_of_a_living_one_stays(
    tmp_path,
):
    file = tmp_path / 'model [1].onnx'
    code = (
        'import sys, time; from pathlib import Path; from spml_nb.base.files import replace_file\n'
        'with replace_file(Path(sys.argv[1])): print("writing", flush=True); time.sleep(60)'
    )
    with subprocess.Popen(
        [sys.executable, '-c', code, str(file)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout.readline() == 'writing\n'
        (left,) = tmp_path.iterdir()
        old = left.stat().st_mtime - 60
        os.utime(left, (old, old))
        write_atomically(file, 'first')
        assert left.exists()
        writer.kill()
    write_atomically(tmp_path / 'other', 'x')
    assert left.exists()
    write_atomically(file, 'second')
    assert (
        sorted(path.name for path in tmp_path.iterdir()) == ['model [1].onnx', 'other']
        and file.read_text() == 'second'
    )


@pytest.mark.silent('C11')
def test_a_leftover_of_another_user_stops_nothing(tmp_path, monkeypatch):
    (tmp_path / '.a-01234567.tmp').write_text('x')

    def refuse(*_, **__):
        raise PermissionError(13, 'Permission denied')

    monkeypatch.setattr(Path, 'unlink', refuse)
    remove_leftovers(tmp_path, 0)
    assert (tmp_path / '.a-01234567.tmp').exists()


def test_a_new_folder_appears_whole_or_not_at_all(tmp_path):
    (tmp_path / 'empty').mkdir()
    for name in ('new', 'empty'):
        with new_folder(tmp_path / name) as temporary:
            (temporary / 'a').mkdir()
            assert not (tmp_path / name / 'a').exists()
        assert (tmp_path / name / 'a').is_dir()
    with pytest.raises(KeyError), new_folder(tmp_path / 'failed') as temporary:
        raise KeyError
    with pytest.raises(SpmlError, match='nothing is overwritten'), new_folder(tmp_path / 'new'):
        pass
    with pytest.raises(SpmlError, match='could not be written'), new_folder(tmp_path / 'full'):
        raise OSError('no space left')
    assert sorted(path.name for path in tmp_path.iterdir()) == ['empty', 'new']
