"""Whole-file writes: the old file stays when something goes wrong, and links, pipes and permissions are respected."""
import os
import stat
import zipfile

import numpy as np
import pytest

from spml_nb.base.errors import SpmlError
from spml_nb.base.files import refuse_existing, write_arrays, write_atomically


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


def test_files_of_arrays_hold_no_date(tmp_path):
    write_arrays(tmp_path / 'a.npz', {'x': np.arange(3)})
    assert np.load(tmp_path / 'a.npz')['x'].tolist() == [0, 1, 2]
    assert {i.date_time[:3] for i in zipfile.ZipFile(tmp_path / 'a.npz').infolist()} == {(1980, 1, 1)}


@pytest.mark.silent('C8')
def test_what_is_there_is_not_overwritten(tmp_path):
    (tmp_path / 'full').mkdir()
    (tmp_path / 'full' / 'a.txt').write_text('a')
    (tmp_path / 'dangling').symlink_to(tmp_path / 'gone')
    for name in ('full', 'full/a.txt', 'dangling', '/dev/null'):
        with pytest.raises(SpmlError, match=name): refuse_existing(tmp_path / name)
    (tmp_path / 'empty').mkdir()
    for name in ('empty', 'new', 'new/file.csv'): refuse_existing(str(tmp_path / name))
