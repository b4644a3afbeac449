"""Downloads with resumption and checksums, and atomic unpacking of archives."""

import contextlib
import errno
import hashlib
import http.client
import json
import os
import re
import shutil
import stat
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..base import settings
from ..base.errors import SpmlError
from ..base.files import hold_lock, require_regular_file, write_atomically
from ..base.progress import progress_meter


def file_size(file: Path) -> int:
    "Size of a file in bytes, 0 if it does not exist."
    return os.path.getsize(file) if os.path.exists(file) else 0


def format_bytes(count: float) -> str:
    "Format a number of bytes in powers of 1,000: '1.9 GB'."
    for unit in ('bytes', 'kB', 'MB', 'GB'):
        if count < 1000 or unit == 'GB':
            digits = 1 if unit != 'bytes' and count < 100 else 0
            return f'{count:.{digits}f} {unit}'
        count /= 1000


def _beside(file, ending):
    return file.with_name(file.name + ending)


def read_json_note(file: Path) -> dict:
    "Read a small JSON object; an empty dict if it is missing, damaged or not an object."
    try:
        content = json.loads(require_regular_file(file).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


# ---- checksums


def file_checksums(file: Path) -> dict:
    """Compute MD5 and SHA-256 of a file; cached in FILE.ok beside it while the file is unchanged.

    Returns:
        'md5', 'sha256', and the identity of the file: 'name', 'bytes', 'inode', 'mtime_ns' and
        'ctime_ns'.

    Raises:
        SpmlError: If it cannot be read.
    """
    file = Path(file)
    record = _beside(file, '.ok')
    try:
        identity = _identity(file)
        note = read_json_note(record)
        if 'sha256' in note and identity.items() <= note.items():
            return note
        hashes = [hashlib.new(name, usedforsecurity=False) for name in ('md5', 'sha256')]
        with open(file, 'rb') as content:
            while block := content.read(1 << 20):
                for digest in hashes:
                    digest.update(block)
    except OSError as error:
        raise SpmlError(f'{file} cannot be read: {error.strerror or error}.') from error
    note = identity | {digest.name: digest.hexdigest() for digest in hashes}
    with contextlib.suppress(SpmlError):  # it only saves time, so the folder may be read-only
        write_atomically(record, json.dumps(note))
    return note


def _identity(file):
    "Fields that differ for a copy (inode) or changed content (ctime, which cannot be set)."
    state = file.stat()
    return {
        'name': file.name,
        'bytes': state.st_size,
        'inode': state.st_ino,
        'mtime_ns': state.st_mtime_ns,
        'ctime_ns': state.st_ctime_ns,
    }


def matches_checksum(file: Path, *, sha256: str | None = None, md5: str | None = None) -> bool:
    "Whether a file has the given checksums (hex digits); False if none is given."
    published = _published(sha256, md5)
    return bool(published) and not _differences(Path(file), published)


def _published(sha256, md5):
    sums = {'sha256': sha256, 'md5': md5}
    return {kind: value.lower() for kind, value in sums.items() if value}


def _differences(file, published):
    "Describe checksums of a file that are not the published ones; '' if all are."
    sums = file_checksums(file) if published else {}
    return '; '.join(
        f'{kind} is {sums[kind]} where {value} is published'
        for kind, value in published.items()
        if sums[kind] != value
    )


# ---- one connection


class _RefusedDownload(SpmlError):
    "A failure that another try would not change."


class _DroppedConnection(Exception):
    "A failure after which another try may succeed."


_TIMEOUT = 60  # seconds without a byte
_RETRY_STATUSES = (408, 425, 429, 500, 502, 503, 504)
# HTTP headers by which a server tells versions of a file apart
_VALIDATORS = {'etag': 'ETag', 'modified': 'Last-Modified'}


@contextlib.contextmanager
def _writing(path, *, reading=False):
    """Explain errors of the disk.

    Args:
        path: What is written.
        reading: Whether an archive is read in the block: damage in it raises EINVAL or EIO, which
            pass through.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or (reading and error.errno in (errno.EINVAL, errno.EIO)):
            raise
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = 'the disk is full' if is_full else error.strerror or error
        raise SpmlError(
            f'{path} could not be written: {why}. Free space or choose another folder (--root, or '
            '`data` in settings.ini), then give the same command again.'
        ) from error


@dataclass
class _Transfer:
    """The download of one file from one address.

    Args:
        part: File for the bytes that have arrived; PART.json beside it says what they are of.
        verified: Whether there is a checksum, which would reveal a mix of two versions.
        bytes: Approximate size, or None.
        tell: Called with lines of progress.
    """

    url: str
    part: Path
    verified: bool
    bytes: int | None
    tell: Callable[[str], None]

    @property
    def name(self):
        return self.part.name.removesuffix('.part')

    def run(self):
        """Complete `part` in one connection.

        Raises:
            _DroppedConnection: If the connection failed.
            SpmlError: If the server refused, or the disk is full.
        """
        note_file = _beside(self.part, '.json')
        for file in (self.part, note_file):
            if file.is_symlink():
                file.unlink()  # its target does not belong to this download
        have = file_size(self.part)
        note = read_json_note(note_file)
        with self._open(self._headers(have, note)) as response:
            have, total = self._resume(response, have, note)
            if have == total and have:
                return
            self._refuse_without_space((total or self.bytes or 0) - have)
            if not have:  # before the note is written, which must not describe other bytes
                self.part.unlink(missing_ok=True)
            note = {'url': self.url, 'total': total}
            for key, header in _VALIDATORS.items():
                if response.headers[header]:
                    note[key] = response.headers[header]
            with _writing(self.part):
                note_file.write_text(json.dumps(note))
            self._receive(response, have, total)
        if total is not None and file_size(self.part) != total:
            raise _DroppedConnection(
                f'the connection was dropped at {file_size(self.part):,} of {total:,} bytes'
            )

    def _headers(self, have, note):
        headers = {'User-Agent': 'spml_nb', 'Accept-Encoding': 'identity'}
        is_weak = str(note.get('etag', 'W/')).startswith('W/')
        validator = note.get('modified' if is_weak else 'etag')
        if note.get('url') != self.url:
            validator = None
        if have and (validator or self.verified):
            headers['Range'] = f'bytes={have}-'
            if validator:
                headers['If-Range'] = validator
        return headers

    def _open(self, headers):
        "Open the connection. Status 416 (range not satisfiable) is an ordinary response."
        try:
            request = urllib.request.Request(self.url, headers=headers)
            return urllib.request.urlopen(request, timeout=_TIMEOUT)
        except urllib.error.HTTPError as error:
            if error.code == 416:
                return error
            kind = _DroppedConnection if error.code in _RETRY_STATUSES else _RefusedDownload
            raise kind(f'the server answered {error.code} ({error.reason})') from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, 'reason', error)
            is_final = isinstance(reason, FileNotFoundError) or isinstance(error, ValueError)
            kind = _RefusedDownload if is_final else _DroppedConnection
            raise kind(str(reason) or type(reason).__name__) from error

    def _resume(self, response, have, note):
        "Bytes of `part` to keep, and the total size (None if unknown)."
        status = getattr(response, 'status', None) or 200
        headers = response.headers
        if status == 200:
            if headers.get_content_type() == 'text/html' and is_archive(self.name):
                raise _RefusedDownload('the server answered with a web page in place of the file')
            return 0, _parse_count(headers['Content-Length'])
        pattern = r'bytes (?:(\d+)-\d+|\*)/(\d+|\*)'
        match = re.fullmatch(pattern, headers.get('Content-Range', ''))
        first, total = map(_parse_count, match.groups()) if match else (None, None)
        if status == 416 and total == have:
            return have, have
        same_content = note.get('url') != self.url or all(
            note[key] == headers[header]
            for key, header in _VALIDATORS.items()
            if note.get(key) and headers[header]
        )
        same_size = total in (None, note.get('total') or total)
        if status != 206 or first != have or not same_content or not same_size:
            self.part.unlink()
            raise _DroppedConnection('the file on the server has changed; starting again')
        return have, total

    def _refuse_without_space(self, needed):
        folder = self.part.parent
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise SpmlError(
                f'{self.name} needs {format_bytes(needed)}, but {folder} has {format_bytes(free)} '
                'free. Free space there, or choose another disk (--root, or `data` in '
                'settings.ini).'
            )

    def _receive(self, response, have, total):
        begins = f'going on after {format_bytes(have)} of' if have else 'fetching'
        self.tell(f'{self.name}: {begins} {format_bytes(total) if total else "…"}')
        shown = progress_meter(self.name, total, start=have, unit='B')
        with _writing(self.part), open(self.part, 'r+b' if have else 'wb') as file, shown as bar:
            file.seek(have)
            for block in _blocks(response):
                file.write(block)
                bar.update(len(block))
            file.flush()
            os.fsync(file.fileno())


def _blocks(response):
    "Read a response in blocks; its errors get a type that differs from errors of the disk."
    try:
        while block := response.read(1 << 18):
            yield block
    except (OSError, http.client.HTTPException) as error:
        raise _DroppedConnection(str(error) or type(error).__name__) from error


def _parse_count(text):
    return int(text) if str(text).isdigit() else None


# ---- retries


def _run_with_retries(transfer, tries, wait):
    """Complete `transfer.part`.

    Raises:
        SpmlError: If the server refused, or `tries` connections in a row brought no progress.
    """
    best = file_size(transfer.part)
    failed = 0
    while True:
        try:
            return transfer.run()
        except _DroppedConnection as error:
            reason = error
        size = file_size(transfer.part)
        failed = 1 if size > best else failed + 1
        best = max(best, size)
        if failed >= tries:
            raise _RefusedDownload(
                f'{reason}; given up after {tries} tries without progress. What has arrived '
                f'({format_bytes(size)}) is kept, and the same command continues from there'
            )
        pause = min(wait * 2 ** (failed - 1), 60)
        transfer.tell(
            f'{transfer.name}: {reason}; trying again in {pause:.0f} s ({failed} of {tries})'
        )
        time.sleep(pause)


def download(
    urls,
    file: Path,
    *,
    sha256: str | None = None,
    md5: str | None = None,
    bytes: int | None = None,
    tell=print,
    tries: int = 5,
    wait: float = 1.0,
) -> Path:
    """Download a file, unless it exists and has the right checksums.

    A file with a wrong checksum is renamed to NAME.bad.

    Args:
        urls: Addresses of the same file, tried in turn (http, https, file).
        file: The target.
        sha256, md5: Published checksums.
        bytes: Approximate size, to check the free space if the server does not tell it.
        tell: Called with lines of progress.
        tries: Maximum number of failures in a row without progress, for each address.
        wait: Seconds before the second try, doubled each time.

    Returns:
        `file`.

    Raises:
        SpmlError: If no address has the file, its checksum is wrong, or the disk is full.
    """
    file = Path(file)
    published = _published(sha256, md5)
    with hold_lock(file, tell):
        if file.is_file():
            wrong = _differences(file, published)
            if not wrong:
                return file
            bad = set_aside_download(file)
            tell(f'{file.name}: {wrong}; it is kept as {bad.name} and fetched again')
        reasons = []
        for url in urls:
            part = _beside(file, '.part')
            transfer = _Transfer(url, part, bool(published), bytes, tell)
            try:
                return _complete(transfer, file, published, tries, wait)
            except _RefusedDownload as error:
                tell(f'{file.name}: {error}')
                reasons.append(f'{url}: {error}.')
    why = ' '.join(reasons) or 'No address is known for it.'
    raise SpmlError(f'{file.name} could not be fetched. {why}')


def _complete(transfer, file, published, tries, wait):
    """Download `file` from one address and verify it.

    Raises:
        SpmlError: As `_run_with_retries`, and for a wrong checksum.
    """
    part = transfer.part
    # a resumed file with a wrong checksum is fetched a second time
    for _ in range(2 if file_size(part) else 1):
        _run_with_retries(transfer, tries, wait)
        wrong = _differences(part, published)
        if not wrong:
            sums = {**file_checksums(part), 'url': transfer.url}
            part.replace(file)
            with contextlib.suppress(OSError, SpmlError):  # it only saves time
                write_atomically(_beside(file, '.ok'), json.dumps(sums | _identity(file)))
            for ending in ('.ok', '.json'):
                _beside(part, ending).unlink(missing_ok=True)
            return file
        bad = set_aside_download(part, file)
        transfer.tell(f'{file.name}: {wrong}; kept as {bad.name}')
    raise _RefusedDownload(f'wrong checksum, {wrong}. The file is kept as {bad} and not used')


def set_aside_download(file: Path, name: Path | None = None) -> Path:
    "Rename a damaged file to NAME.bad, where NAME is that of `file` by default."
    bad = _beside(name or file, '.bad')
    file.replace(bad)
    for ending in ('.ok', '.json'):
        _beside(file, ending).unlink(missing_ok=True)
    return bad


def list_addresses(urls, path: str, mirror: str | None = None) -> list[str]:
    """List the addresses of a file, the mirror's first.

    Args:
        urls: Official addresses.
        path: The file below the mirror, such as 'voc12/x.tar'.
        mirror: An address or a folder; by default the environment variable SPML_NB_MIRROR.

    Raises:
        SpmlError: If the mirror is neither.
    """
    mirror = mirror or os.environ.get('SPML_NB_MIRROR')
    if not mirror:
        return list(urls)
    if not re.match(r'(https?|file)://', str(mirror)):
        folder = settings.expand_home(mirror)
        if not folder.is_dir():
            raise SpmlError(
                f'the mirror {mirror!r} is neither an address (http://, https://) nor a folder.'
            )
        mirror = folder.resolve().as_uri()
    return [f'{str(mirror).rstrip("/")}/{path}', *urls]


# ---- archives


class DamagedArchive(SpmlError):
    "A file that is truncated, damaged or not an archive."


_SUFFIXES = ('.tar', '.tar.gz', '.tgz', '.tar.bz2', '.tar.xz', '.zip')
UNPACKED_MARK = '.unpacked'  # file in an unpacked folder with the archive's name and checksums


def is_archive(name: str) -> bool:
    "Whether the suffix of a file is that of an archive."
    return str(name).lower().endswith(_SUFFIXES)


def _check_member(name, is_ordinary):
    """Refuse a member with a path outside the folder, and a link or device.

    Args:
        is_ordinary: Whether it is a file or a folder.
    """
    is_below = name and not name.startswith('/') and '..' not in name.split('/')
    if not is_below or re.match(r'[A-Za-z]:', name) or '\\' in name or '\0' in name:
        raise SpmlError(f'the member {name!r} would be outside the folder')
    if not is_ordinary:
        raise SpmlError(f'the member {name!r} is a link or a device')


def _untar(archive, folder):
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(tarfile, 'data_filter', None)  # new in Python 3.11.4
        for member in tar:
            _check_member(member.name, member.isdir() or member.isreg())
            tar.extract(member, folder)
        tar.fileobj.seek(tar.offset)
        if tar.fileobj.read(512) != bytes(512):
            raise DamagedArchive('it ends early')
        while tar.fileobj.read(1 << 20):
            pass  # the checksum is at the end of a compressed stream


def _unzip(archive, folder):
    with zipfile.ZipFile(archive) as content:
        for member in content.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            _check_member(member.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR))
        content.extractall(folder)


@contextlib.contextmanager
def fill_folder(folder: Path):
    """Yield a temporary folder, renamed to `folder` at the end of the block unless that raises.

    Unlike `base.files.new_folder` it does not check that `folder` is new, and lets errors of a
    damaged archive pass.

    Raises:
        SpmlError: If it cannot be written.
    """
    folder = Path(folder)
    temporary = folder.with_name(f'.{folder.name}.partial')
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with _writing(folder, reading=True):
            temporary.mkdir(parents=True)
            yield temporary
            if folder.is_dir():
                folder.rmdir()
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def unpack_archive(archive: Path, root: Path, tell=print) -> Path:
    """Unpack an archive completely or not at all, unless it is unpacked already.

    Args:
        archive: tar (also gz, bz2, xz) or zip.
        root: A folder, new or empty.
        tell: Called with lines of progress.

    Returns:
        `root`.

    Raises:
        SpmlError: If root has other content, a member is outside root, a link or a device, or root
            cannot be written.
        DamagedArchive: If the archive is damaged.
    """
    archive, root = Path(archive), Path(root)
    with hold_lock(root, tell):
        sums = file_checksums(archive)
        if read_json_note(root / UNPACKED_MARK).get('sha256') == sums['sha256']:
            return root
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise SpmlError(
                f'{root} exists already and was not unpacked from {archive.name}. Move it away, '
                'then give the same command again.'
            )
        tell(f'{archive.name}: unpacking into {root}')
        extract = _unzip if zipfile.is_zipfile(archive) else _untar
        try:
            with fill_folder(root) as temporary:
                extract(archive, temporary)
                (temporary / UNPACKED_MARK).write_text(
                    json.dumps({'archive': archive.name, **sums})
                )
        except SpmlError as error:
            raise type(error)(f'{archive} is not unpacked: {error}') from error.__cause__
        except Exception as error:  # the readers raise many types for damaged archives
            raise DamagedArchive(
                f'{archive} is not unpacked: it is truncated or not an archive '
                f'({type(error).__name__}: {error})'
            ) from error
    return root
