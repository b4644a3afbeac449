"""Downloads and archives: half is never whole, whole is never fetched again, nothing is written
outside the folder.
"""

import contextlib
import errno
import hashlib
import io
import json
import os
import select
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import pytest
from serving import serve, tar_of, zip_of

from spml_nb.base.errors import SpmlError
from spml_nb.data import fetch
from spml_nb.data.fetch import DamagedArchive, download, unpack_archive

CONTENT = os.urandom(700_000)
SUMS = {'sha256': hashlib.sha256(CONTENT).hexdigest(), 'md5': hashlib.md5(CONTENT).hexdigest()}
quiet = {'tell': lambda line: None, 'wait': 0.001}


@pytest.fixture
def source(tmp_path):
    "A folder to serve, with one file of random bytes."
    folder = tmp_path / 'source'
    folder.mkdir()
    (folder / 'a.bin').write_bytes(CONTENT)
    return folder


def left(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith('.'))


@contextlib.contextmanager
def refused(*parts, kind=SpmlError):
    "The block ends with an SpmlError whose message has every part."
    with pytest.raises(kind) as caught:
        yield
    for part in parts:
        assert str(part) in str(caught.value), str(caught.value)


# ---- whole, and once


@pytest.mark.parametrize('sums', [{}, {'md5': SUMS['md5']}, SUMS])
def test_a_whole_file_is_fetched_once(source, tmp_path, sums):
    with serve(source) as server:
        for _ in range(3):
            file = download([server.url + '/a.bin'], tmp_path / 'new' / 'a.bin', **sums, **quiet)
        assert file.read_bytes() == CONTENT and server.log == [('a.bin', None)]
    assert left(file.parent) == ['a.bin', 'a.bin.ok']


def test_a_file_that_was_put_there_by_hand_is_verified_and_kept(source, tmp_path):
    shutil.copy(source / 'a.bin', tmp_path)
    assert download([], tmp_path / 'a.bin', **SUMS, **quiet).read_bytes() == CONTENT


def test_a_file_that_does_not_verify_is_set_aside_and_fetched_again(source, tmp_path):
    (tmp_path / 'a.bin').write_bytes(b'something else')
    with serve(source) as server:
        download([server.url + '/a.bin'], tmp_path / 'a.bin', **SUMS, **quiet)
    assert (tmp_path / 'a.bin').read_bytes() == CONTENT and (
        tmp_path / 'a.bin.bad'
    ).read_bytes() == b'something else'


def test_checksums_are_taken_again_when_the_file_has_changed(tmp_path):
    (tmp_path / 'a').write_bytes(b'one')
    assert fetch.file_checksums(tmp_path / 'a')['md5'] == hashlib.md5(b'one').hexdigest()
    (tmp_path / 'a').write_bytes(b'two')
    os.utime(tmp_path / 'a', ns=(1, 1))
    assert fetch.file_checksums(tmp_path / 'a')['md5'] == hashlib.md5(b'two').hexdigest()


# ---- connections


@pytest.mark.parametrize('length', [True, False])
def test_a_dropped_connection_is_taken_up_where_it_broke(source, tmp_path, length):
    with serve(source, drop={'a.bin': [300_000, 200_000]}, length=length) as server:
        if length:
            download([server.url + '/a.bin'], tmp_path / 'a.bin', **SUMS, **quiet)
            assert server.log == [
                ('a.bin', None),
                ('a.bin', 'bytes=300000-'),
                ('a.bin', 'bytes=500000-'),
            ]
        else:  # nobody can know that something is missing, but the checksum does
            with refused('wrong checksum', 'a.bin.bad'):
                download([server.url + '/a.bin'], tmp_path / 'a.bin', **SUMS, **quiet)
            assert left(tmp_path) == ['a.bin.bad', 'source']
            return
    assert (tmp_path / 'a.bin').read_bytes() == CONTENT and left(tmp_path) == [
        'a.bin',
        'a.bin.ok',
        'source',
    ]


def test_after_so_many_tries_it_says_so_and_the_next_command_goes_on(source, tmp_path):
    with serve(source, drop={'a.bin': [300_000, *[0] * 5]}) as server:
        with refused('dropped at 300,000 of 700,000 bytes', '5 tries', 'continues from there'):
            download([server.url + '/a.bin'], tmp_path / 'a.bin', **quiet)
        assert (
            left(tmp_path) == ['a.bin.part', 'a.bin.part.json', 'source'] and len(server.log) == 5
        )
        download([server.url + '/a.bin'], tmp_path / 'a.bin', **quiet | {'tries': 2})
    assert (
        server.log[-1] == ('a.bin', 'bytes=300000-')
        and (tmp_path / 'a.bin').read_bytes() == CONTENT
    )


def test_a_server_that_moves_on_a_little_each_time_is_slow_and_not_broken(source, tmp_path):
    with serve(source, drop={'a.bin': 40_000}) as server:
        download([server.url + '/a.bin'], tmp_path / 'a.bin', **SUMS, **quiet | {'tries': 2})
        assert len(server.log) == 18
    assert (tmp_path / 'a.bin').read_bytes() == CONTENT


def test_a_server_that_ignores_ranges_sends_all_again(source, tmp_path):
    with serve(source, drop={'a.bin': [300_000, 400_000]}, ranges=False) as server:
        download([server.url + '/a.bin'], tmp_path / 'a.bin', **quiet)
        assert len(server.log) == 3
    assert (tmp_path / 'a.bin').read_bytes() == CONTENT
    with serve(source, drop={'a.bin': 300_000}, ranges=False) as server:
        with refused('dropped'):
            download([server.url + '/a.bin'], tmp_path / 'b.bin', **quiet | {'tries': 3})
        assert len(server.log) == 3 and not (tmp_path / 'b.bin').exists()


@pytest.mark.parametrize('etag', [True, False])
@pytest.mark.parametrize(
    'now',
    [os.urandom(700_000), os.urandom(800_000), os.urandom(100)],
    ids=['same size', 'longer', 'shorter'],
)  # two processes collect
def test_a_file_that_changed_meanwhile_is_fetched_from_the_start(source, tmp_path, now, etag):
    with serve(source, drop={'a.bin': [300_000]}, etag=etag) as server:
        with refused('dropped'):
            download([server.url + '/a.bin'], tmp_path / 'a.bin', **quiet | {'tries': 1})
        (source / 'a.bin').write_bytes(now)
        download([server.url + '/a.bin'], tmp_path / 'a.bin', **quiet)
    assert (tmp_path / 'a.bin').read_bytes() == now


def test_a_part_that_is_whole_but_was_not_renamed_is_finished(source, tmp_path):
    (tmp_path / 'a.bin.part').write_bytes(CONTENT)
    with serve(source) as server:
        (tmp_path / 'a.bin.part.json').write_text(
            json.dumps({'url': server.url + '/a.bin', 'total': len(CONTENT)})
        )
        download([server.url + '/a.bin'], tmp_path / 'a.bin', **SUMS, **quiet)
        assert server.log == [('a.bin', f'bytes={len(CONTENT)}-')]


def test_a_part_of_another_file_is_found_out_by_the_checksum_and_fetched_anew(source, tmp_path):
    (tmp_path / 'a.bin.part').write_bytes(b'x' * 300_000)
    with serve(source) as server:
        download([server.url + '/a.bin'], tmp_path / 'a.bin', **SUMS, **quiet)
    assert (tmp_path / 'a.bin').read_bytes() == CONTENT


# ---- servers and mirrors


def test_a_wrong_checksum_is_kept_aside_and_the_next_address_is_tried(source, tmp_path):
    (source / 'b.bin').write_bytes(CONTENT[:-1] + b'!')
    with serve(source) as server:
        with refused('wrong checksum', SUMS['sha256'], SUMS['md5'], 'a.bin.bad', 'not used'):
            download([server.url + '/b.bin'], tmp_path / 'a.bin', **SUMS, **quiet)
        assert left(tmp_path) == ['a.bin.bad', 'source']
        download(
            [server.url + '/b.bin', server.url + '/a.bin'], tmp_path / 'a.bin', **SUMS, **quiet
        )
    assert (tmp_path / 'a.bin').read_bytes() == CONTENT


def test_what_will_not_change_is_asked_once_and_what_may_is_asked_again(source, tmp_path):
    with serve(source, status={'a.bin': [503, 429], 'gone.bin': 404, 'shut.bin': 403}) as server:
        for name, code in (('gone.bin', 404), ('shut.bin', 403)):
            with refused(f'answered {code}', server.url):
                download([f'{server.url}/{name}'], tmp_path / name, **quiet)
        assert len(server.log) == 2
        download([server.url + '/gone.bin', server.url + '/a.bin'], tmp_path / 'a.bin', **quiet)
        assert [name for name, _ in server.log[2:]] == ['gone.bin', 'a.bin', 'a.bin', 'a.bin']


def test_no_server_no_address_and_no_file_are_told(tmp_path):
    with serve(tmp_path) as server:
        pass
    with refused('could not be fetched', '2 tries'):
        download([server.url + '/a.bin'], tmp_path / 'a.bin', **quiet | {'tries': 2})
    with refused('No address is known'):
        download([], tmp_path / 'a.bin', **quiet)
    with refused('No such file'):
        download([(tmp_path / 'none').as_uri()], tmp_path / 'a.bin', **quiet)
    with refused('unknown url type'):
        download(['photos'], tmp_path / 'a.bin', **quiet)


def test_a_web_page_is_no_archive(source, tmp_path, monkeypatch):
    (source / 'a.zip').write_bytes(b'<html>Please log in</html>')
    from serving import Handler

    send = Handler.send_response
    monkeypatch.setattr(
        Handler,
        'send_response',
        lambda self, code: (send(self, code), self.send_header('Content-Type', 'text/html')),
    )
    with serve(source) as server, refused('a web page'):
        download([server.url + '/a.zip'], tmp_path / 'a.zip', **quiet)
    assert left(tmp_path) == ['source']


def test_mirrors_come_first_and_are_an_address_or_a_folder(source, tmp_path, monkeypatch):
    assert fetch.list_addresses(['u'], 'voc12/x.tar') == ['u']
    assert fetch.list_addresses(['u'], 'voc12/x.tar', 'https://m.org/data/') == [
        'https://m.org/data/voc12/x.tar',
        'u',
    ]
    monkeypatch.setenv('SPML_NB_MIRROR', str(tmp_path))
    assert (
        download(
            fetch.list_addresses([], 'source/a.bin'), tmp_path / 'a.bin', **SUMS, **quiet
        ).read_bytes()
        == CONTENT
    )
    with refused('nowhere', 'neither an address'):
        fetch.list_addresses(['u'], 'x', 'nowhere')


# ---- the disk


def test_too_little_space_is_told_before_the_first_byte(source, tmp_path, monkeypatch):
    monkeypatch.setattr(
        shutil, 'disk_usage', lambda folder: shutil._ntuple_diskusage(10**9, 10**9, 1000)
    )
    with serve(source) as server, refused('a.bin needs 700 kB', '1.0 kB free'):
        download([server.url + '/a.bin'], tmp_path / 'a.bin', **quiet)
    assert left(tmp_path) == ['source']
    with serve(source, length=False) as server, refused('a.bin needs 5.0 GB'):
        download([server.url + '/a.bin'], tmp_path / 'a.bin', bytes=5 * 10**9, **quiet)


@pytest.mark.skipif(not Path('/dev/full').exists(), reason='no /dev/full on this system')
@pytest.mark.parametrize('size', [100, 700_000])
def test_a_disk_that_is_full_says_so_and_is_not_tried_again(source, tmp_path, size, monkeypatch):
    (source / 'a.bin').write_bytes(CONTENT[:size])
    for module in (fetch, zipfile):
        monkeypatch.setattr(
            module,
            'open',
            lambda file, mode: open('/dev/full' if 'b' in mode and mode != 'rb' else file, mode),
            raising=False,
        )
    with serve(source) as server, refused('the disk is full', 'Free space', tmp_path):
        download([server.url + '/a.bin'], tmp_path / 'a.bin', **quiet)
    assert len(server.log) == 1 and not (tmp_path / 'a.bin').exists()
    archive = zip_of(tmp_path / 'x.zip', {'a': CONTENT[:size]})
    with refused('the disk is full'):
        unpack_archive(archive, tmp_path / 'x', **TELL)
    assert not (tmp_path / 'x').exists() and not list(tmp_path.glob('.x*partial'))


def test_other_refusals_of_the_disk_are_told(source, tmp_path, monkeypatch):
    def broken(*words):
        raise OSError(errno.EIO, 'Input/output error')

    monkeypatch.setattr(fetch.os, 'fsync', broken)
    with serve(source) as server, refused('Input/output error', 'a.bin.part'):
        download([server.url + '/a.bin'], tmp_path / 'a.bin', **quiet)
    assert not (tmp_path / 'a.bin').exists()
    (tmp_path / 'file').write_text('')
    with refused('could not be written'):
        download(['http://localhost'], tmp_path / 'file' / 'below' / 'a.bin', **quiet)


# ---- two at once


def test_two_processes_fetch_a_file_once(source, tmp_path):
    code = (
        'import sys; from spml_nb.data.fetch import download; download([sys.argv[1]], '
        'sys.argv[2], sha256=sys.argv[3])'
    )
    go = threading.Event()
    with serve(source, hold=go) as server:
        words = [
            sys.executable,
            '-u',
            '-c',
            code,
            server.url + '/a.bin',
            str(tmp_path / 'a.bin'),
            SUMS['sha256'],
        ]
        both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        try:
            speaking, _, _ = select.select(
                [b.stdout for b in both], [], [], 60
            )  # the one that waits speaks first: the other has no answer yet
            assert len(speaking) == 1 and speaking[0].readline().startswith(
                'another process is at a.bin'
            )
            go.set()
            assert [b.wait(60) for b in both] == [0, 0]
        finally:
            go.set()
            for b in both:
                b.kill()
                b.stdout.close()
    assert len(server.log) == 1 and (tmp_path / 'a.bin').read_bytes() == CONTENT


def test_what_a_killed_process_leaves_is_gone_on_with(source, tmp_path):
    code = (
        'import sys; from spml_nb.data.fetch import download; download([sys.argv[1]], '
        'sys.argv[2], wait=60)'
    )
    with serve(source, drop={'a.bin': [300_000]}) as server:
        hang = subprocess.Popen(
            [sys.executable, '-c', code, server.url + '/a.bin', str(tmp_path / 'a.bin')],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.time() + 300
        while fetch.file_size(tmp_path / 'a.bin.part') < 300_000 and time.time() < deadline:
            time.sleep(0.005)
        hang.kill()  # while it waits a minute before the next try
        hang.wait()
        assert not (tmp_path / 'a.bin').exists()
        download([server.url + '/a.bin'], tmp_path / 'a.bin', **SUMS, **quiet)
    assert (
        server.log[-1] == ('a.bin', 'bytes=300000-')
        and (tmp_path / 'a.bin').read_bytes() == CONTENT
    )


# ---- archives

TELL = {'tell': lambda line: None}
MEMBERS = {
    'top.txt': b'top',
    'a/b/c.bin': CONTENT,
    'a/empty': b'',
    './a/dot.txt': b'dot',
    'é/ñ.txt': b'unicode',
}
MODES = {
    'x.tar': 'w',
    'x.tar.gz': 'w:gz',
    'x.tgz': 'w:gz',
    'x.tar.bz2': 'w:bz2',
    'x.tar.xz': 'w:xz',
}


def archive_of(file, members=MEMBERS):
    return (
        zip_of(file, members) if file.suffix == '.zip' else tar_of(file, members, MODES[file.name])
    )


@pytest.mark.parametrize('name', [*MODES, 'x.zip'])
def test_archives_are_unpacked_once(tmp_path, name):
    assert fetch.is_archive(name)
    archive = archive_of(tmp_path / name)
    root = unpack_archive(archive, tmp_path / 'images' / 'x', **TELL)
    for member, content in MEMBERS.items():
        assert (root / member).read_bytes() == content
    assert (
        fetch.read_json_note(root / fetch.UNPACKED_MARK)['sha256']
        == hashlib.sha256(archive.read_bytes()).hexdigest()
    )
    (root / 'top.txt').write_text('mine')
    assert (unpack_archive(archive, root, **TELL) / 'top.txt').read_text() == 'mine'


@pytest.mark.parametrize('name', [*MODES, 'x.zip'])
@pytest.mark.parametrize('part', [0.02, 0.5, 0.97, 'between members', 'none'])
def test_a_truncated_archive_is_refused_whole(tmp_path, name, part):
    members = {f'{k}.bin': CONTENT[10_000 * k : 10_000 * k + 5_120] for k in range(8)}
    archive = archive_of(tmp_path / name, members)
    content = archive.read_bytes()
    if part == 'between members':
        content = content[: 4 * 5632] if name == 'x.tar' else content[:-9]
    elif part == 'none':
        content = b'this is no archive at all'
    else:
        content = content[: int(part * (8 * 5632 if name == 'x.tar' else len(content)))]
    archive.write_bytes(content)
    with refused('x', 'is not unpacked', kind=DamagedArchive):
        unpack_archive(archive, tmp_path / 'out', **TELL)
    assert left(tmp_path) == [name, f'{name}.ok'] and not list(tmp_path.glob('.out.partial'))


@pytest.mark.parametrize('number', [errno.EIO, errno.EINVAL])
def test_an_archive_that_cannot_be_read_is_damaged_and_no_full_disk(tmp_path, monkeypatch, number):
    archive = archive_of(tmp_path / 'x.zip')

    def unreadable(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fetch.zipfile.ZipFile, 'open', unreadable)
    monkeypatch.setattr(fetch.zipfile.ZipFile, 'extract', unreadable)
    with refused('is not unpacked', kind=DamagedArchive):
        unpack_archive(archive, tmp_path / 'out', **TELL)


def test_a_garbled_archive_is_refused(tmp_path):
    for name in ('x.zip', 'x.tgz'):
        content = bytearray(archive_of(tmp_path / name).read_bytes())
        content[len(content) // 2] ^= 255
        (tmp_path / name).write_bytes(content)
        with refused('is not unpacked', kind=DamagedArchive):
            unpack_archive(tmp_path / name, tmp_path / 'out', **TELL)
        assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize(
    'name', ['../evil', 'a/../../evil', '{here}/evil', '..', 'a\\..\\evil', 'C:evil']
)
@pytest.mark.parametrize('file', ['x.tar', 'x.zip'])
def test_nothing_is_written_outside(tmp_path, name, file):
    name = name.format(here=tmp_path)
    archive = archive_of(tmp_path / file, {'fine': b'1', name: b'outside', 'later': b'2'})
    with refused('would be outside', repr(name)):
        unpack_archive(archive, tmp_path / 'deep' / 'out', **TELL)
    assert sorted(
        path.name for path in tmp_path.rglob('*') if not path.name.endswith('.lock')
    ) == sorted(['deep', file, f'{file}.ok'])


def test_links_and_devices_are_refused(tmp_path):
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
        with tarfile.open(tmp_path / 'x.tar', 'w') as tar:
            entry = tarfile.TarInfo('door')
            entry.type, entry.linkname = kind, '/etc'
            tar.addfile(entry)
            tar.addfile(tarfile.TarInfo('door/file'), io.BytesIO())
        with refused("'door' is a link or a device"):
            unpack_archive(tmp_path / 'x.tar', tmp_path / 'out', **TELL)
    with zipfile.ZipFile(tmp_path / 'x.zip', 'w') as archive:
        entry = zipfile.ZipInfo('door')
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, '/etc')
    with refused("'door' is a link or a device"):
        unpack_archive(tmp_path / 'x.zip', tmp_path / 'out', **TELL)
    assert not (tmp_path / 'out').exists()


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    archive = archive_of(tmp_path / 'x.zip')
    (tmp_path / 'out').mkdir()
    (tmp_path / 'out' / 'mine').write_text('mine')
    with refused('was not unpacked from x.zip'):
        unpack_archive(archive, tmp_path / 'out', **TELL)
    assert left(tmp_path / 'out') == ['mine']


def test_what_a_killed_unpacking_left_is_removed(tmp_path):
    (tmp_path / '.out.partial').mkdir()
    (tmp_path / '.out.partial' / 'half').write_text('')
    unpack_archive(archive_of(tmp_path / 'x.zip', {'a': b'1'}), tmp_path / 'out', **TELL)
    assert left(tmp_path / 'out') == ['a'] and not (tmp_path / '.out.partial').exists()


def test_a_whole_folder_appears_at_the_end_or_not_at_all(tmp_path):
    with pytest.raises(ZeroDivisionError), fetch.fill_folder(tmp_path / 'crops') as folder:
        (folder / 'one').write_text('')
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with fetch.fill_folder(tmp_path / 'crops') as folder:
        (folder / 'one').write_text('')
    assert left(tmp_path / 'crops') == ['one']


def test_a_download_says_how_much_there_is_and_how_much_is_to_come(source, tmp_path):
    told = []
    with serve(source, drop={'a.bin': [300_000]}) as server:
        download([f'{server.url}/a.bin'], tmp_path / 'x.tar', tell=told.append, wait=0.01)
    assert (
        told[0] == 'x.tar: fetching 700 kB' and told[-1] == 'x.tar: going on after 300 kB of 700 kB'
    )


# ---- a record of checksums vouches for one file


@pytest.mark.silent('C10')
@pytest.mark.parametrize('kept', ['nothing', 'times'])
def test_a_copied_record_vouches_for_no_other_file(tmp_path, kept):
    genuine, other = tmp_path / 'a.bin', tmp_path / 'there' / 'a.bin'
    other.parent.mkdir()
    genuine.write_bytes(CONTENT)
    assert fetch.matches_checksum(genuine, **SUMS)
    other.write_bytes(CONTENT[::-1])
    if kept == 'times':
        shutil.copystat(genuine, other)
    shutil.copy2(genuine.with_name('a.bin.ok'), other.with_name('a.bin.ok'))
    assert not fetch.matches_checksum(other, **SUMS)
    stamp = genuine.stat()
    genuine.write_bytes(CONTENT[::-1])  # of the same size, with the old time stamp
    os.utime(genuine, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert not fetch.matches_checksum(genuine, **SUMS)


@pytest.mark.silent('C10')
def test_a_file_is_read_once_as_long_as_it_stays(source, tmp_path, monkeypatch):
    file = download([(source / 'a.bin').as_uri()], tmp_path / 'a.bin', **SUMS, **quiet)
    monkeypatch.setattr(hashlib, 'new', lambda *_, **__: pytest.fail('it was read again'))
    assert fetch.matches_checksum(file, **SUMS)


@pytest.mark.silent('C11')
@pytest.mark.parametrize('text', ['[1, 2]', '"x"', '7', 'null', '[' * 100_000])
def test_a_record_of_another_kind_counts_as_none(tmp_path, text):
    (tmp_path / 'a.bin').write_bytes(CONTENT)
    (tmp_path / 'a.bin.ok').write_text(text)
    assert (
        fetch.matches_checksum(tmp_path / 'a.bin', **SUMS)
        and fetch.read_json_note(tmp_path / 'a.bin.ok')['sha256'] == SUMS['sha256']
    )


@pytest.mark.silent('C10')
def test_a_download_follows_no_link(source, tmp_path):
    (tmp_path / 'victim').write_bytes(b'precious')
    for name in ('a.bin.part', 'a.bin.part.json', 'a.bin.ok'):
        (tmp_path / name).symlink_to(tmp_path / 'victim')
    with serve(source) as server:
        file = download([server.url + '/a.bin'], tmp_path / 'a.bin', **SUMS, **quiet)
    assert (
        (tmp_path / 'victim').read_bytes() == b'precious'
        and file.read_bytes() == CONTENT
        and not file.is_symlink()
    )
