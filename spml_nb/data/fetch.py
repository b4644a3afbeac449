"""Downloads that resume where they stopped and are verified, and archives that are unpacked whole or not at all."""

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
from pathlib import Path

from ..base import settings
from ..base.errors import SpmlError
from ..base.files import alone, regular, write_atomically
from ..base.progress import meter


def size_of(file: Path) -> int:
    """Count the bytes of a file.

    Args:
        file: Its path.

    Returns:
        Bytes, 0 where there is no file.
    """
    return os.path.getsize(file) if os.path.exists(file) else 0


def in_words(count: float) -> str:
    """Write a number of bytes for people.

    Args:
        count: Bytes.

    Returns:
        Text such as '1.9 GB', in powers of 1,000.
    """
    for unit in ('bytes', 'kB', 'MB', 'GB'):
        if count < 1000 or unit == 'GB':
            return f'{count:.{int(unit != "bytes" and count < 100)}f} {unit}'
        count /= 1000


def _beside(file, ending):
    return file.with_name(file.name + ending)


def read_note(file: Path) -> dict:
    """Read a small JSON file.

    Args:
        file: Its path.

    Returns:
        Its content, an empty dict if it is not there, damaged or another kind of JSON.
    """
    try:
        content = json.loads(regular(file).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def checksums(file: Path) -> dict:
    """Take MD5 and SHA-256 of a file, once: the record beside it is used as long as it is of that
    very file.

    Args:
        file: Its path.

    Returns:
        'md5' and 'sha256'; and what tells the file from others and from its own later content:
        'name', 'bytes', 'inode', 'mtime_ns' and 'ctime_ns'. The last cannot be set: a copy of file
        and record is read anew.

    Raises:
        SpmlError: If it cannot be read.
    """
    file, record = Path(file), _beside(Path(file), '.ok')
    try:
        now, note = _identity(file), read_note(record)
        if 'sha256' in note and now.items() <= note.items():
            return note
        sums = {name: hashlib.new(name, usedforsecurity=False) for name in ('md5', 'sha256')}
        with open(file, 'rb') as content:
            while block := content.read(1 << 20):
                for each in sums.values():
                    each.update(block)
    except OSError as error:
        raise SpmlError(f'{file} cannot be read: {error.strerror or error}.') from error
    note = {**now, **{name: each.hexdigest() for name, each in sums.items()}}
    with contextlib.suppress(SpmlError):  # it only saves time: a folder that is read-only will do
        write_atomically(record, json.dumps(note))
    return note


def _identity(file):
    """What tells a file from others: a copy has another inode, and a change of its content another
    time of change.
    """
    now = file.stat()
    return {
        'name': file.name,
        'bytes': now.st_size,
        'inode': now.st_ino,
        'mtime_ns': now.st_mtime_ns,
        'ctime_ns': now.st_ctime_ns,
    }


def agrees(file: Path, *, sha256: str | None = None, md5: str | None = None) -> bool:
    """Tell whether a file has the published checksums.

    Args:
        file: Its path.
        sha256: Hex digits.
        md5: Hex digits.

    Returns:
        False also where none is published.
    """
    wanted = _published(sha256, md5)
    return bool(wanted) and not _wrong(Path(file), wanted)


def _published(sha256, md5):
    return {kind: value.lower() for kind, value in (('sha256', sha256), ('md5', md5)) if value}


def _wrong(file, wanted):
    "What is wrong with the checksums of a file, in words; '' if nothing is."
    sums = checksums(file) if wanted else {}
    return '; '.join(
        f'{kind} is {sums[kind]} where {value} is published'
        for kind, value in wanted.items()
        if sums[kind] != value
    )


@contextlib.contextmanager
def _writing(what, *, reading=False):
    """Turns an error of the disk into words. With `reading`, what a damaged archive makes of
    reading is passed on.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or (reading and error.errno in (errno.EINVAL, errno.EIO)):
            raise
        why = (
            'the disk is full'
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else error.strerror or error
        )
        raise SpmlError(
            f'{what} could not be written: {why}. Free space or choose another folder (--root, or '
            '`data` in settings.ini), then give the same command again.'
        ) from error


class Refused(SpmlError):
    "A server's answer that another try would not change."


class Dropped(Exception):
    "A connection that failed; another try may succeed."


AGAIN = (408, 425, 429, 500, 502, 503, 504)


def _headers(url, have, note, trusted):
    headers = {'User-Agent': 'spml_nb', 'Accept-Encoding': 'identity'}
    weak = str(note.get('etag', 'W/')).startswith('W/')
    validator = note.get('url') == url and note.get('modified' if weak else 'etag')
    if have and (
        validator or trusted
    ):  # another file may be mixed in only where a checksum would tell
        headers['Range'] = f'bytes={have}-'
        if validator:
            headers['If-Range'] = validator
    return headers


def _open(url, headers, timeout):
    "The response; an answer 416 counts as one."
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            return error
        raise (Dropped if error.code in AGAIN else Refused)(
            f'the server answered {error.code} ({error.reason})'
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, 'reason', error)
        hopeless = isinstance(reason, FileNotFoundError) or isinstance(error, ValueError)
        raise (Refused if hopeless else Dropped)(str(reason) or type(reason).__name__) from error


def _blocks(response):
    """What arrives, in blocks; an error of the connection gets its own type, so that it is not
    taken for the disk's.
    """
    try:
        while block := response.read(1 << 18):
            yield block
    except (OSError, http.client.HTTPException) as error:
        raise Dropped(str(error) or type(error).__name__) from error


def _start(response, part, have, note, url):
    "How many bytes of `part` stay, and how many there will be (None: not said)."
    status, headers = getattr(response, 'status', None) or 200, response.headers
    if status == 200:
        if headers.get_content_type() == 'text/html' and is_archive(
            part.name.removesuffix('.part')
        ):
            raise Refused('the server answered with a web page in place of the file')
        return 0, _number(headers['Content-Length'])
    match = re.fullmatch(r'bytes (?:(\d+)-\d+|\*)/(\d+|\*)', headers.get('Content-Range', ''))
    first, total = map(_number, match.groups() if match else (None, None))
    if status == 416 and total == have:
        return have, have
    changed = note.get('url') == url and any(
        headers[name] and note.get(key) and headers[name] != note[key]
        for key, name in VALIDATORS.items()
    )
    if (
        status != 206
        or first != have
        or changed
        or (total is not None and total != (note.get('total') or total))
    ):
        part.unlink()
        raise Dropped('the file on the server has changed; starting again')
    return have, total


VALIDATORS = {'etag': 'ETag', 'modified': 'Last-Modified'}


def _number(text):
    return int(text) if str(text).isdigit() else None


def _transfer(url, part, trusted, about, tell, timeout):
    """One connection: returns when `part` is complete. Raises Dropped; SpmlError: refused, or a
    full disk.
    """
    for file in (part, _beside(part, '.json')):
        if file.is_symlink():
            file.unlink()  # what it leads to is no part of this download
    have, note = size_of(part), read_note(_beside(part, '.json'))
    with _open(url, _headers(url, have, note, trusted), timeout) as response:
        have, total = _start(response, part, have, note, url)
        if have == total and have:
            return
        needed, free = (total or about or 0) - have, shutil.disk_usage(part.parent).free
        if needed > free:
            raise SpmlError(
                f'{part.name.removesuffix(".part")} needs {in_words(needed)}, but {part.parent} '
                f'has {in_words(free)} free. Free space there, or choose another disk (--root, or '
                '`data` in settings.ini).'
            )
        validators = {
            key: response.headers[name]
            for key, name in VALIDATORS.items()
            if response.headers[name]
        }
        if not have:
            part.unlink(
                missing_ok=True
            )  # before the note: what it says must never stand beside another file's bytes
        with _writing(part):
            _beside(part, '.json').write_text(
                json.dumps({'url': url, 'total': total, **validators})
            )
        _receive(response, part, have, total, tell)
    if total is not None and size_of(part) != total:
        raise Dropped(f'the connection was dropped at {size_of(part):,} of {total:,} bytes')


def _receive(response, part, have, total, tell):
    name = part.name.removesuffix('.part')
    begins = f'going on after {in_words(have)} of' if have else 'fetching'
    tell(f'{name}: {begins} {in_words(total) if total else "…"}')
    shown = meter(name, total, start=have, unit='B')
    with _writing(part), open(part, 'r+b' if have else 'wb') as content, shown as progress:
        content.seek(have)
        for block in _blocks(response):
            content.write(block)
            progress.update(len(block))
        content.flush()
        os.fsync(content.fileno())


def _persist(url, part, trusted, about, tell, tries, wait, timeout):
    "Complete `part` from one address. Raises SpmlError: refused, or no progress in `tries` tries."
    best, failed = size_of(part), 0
    while True:
        try:
            return _transfer(url, part, trusted, about, tell, timeout)
        except Dropped as error:
            reason = error
        grown = size_of(part) > best
        best, failed = max(best, size_of(part)), 1 if grown else failed + 1
        if failed >= tries:
            raise Refused(
                f'{reason}; given up after {tries} tries without progress. What has arrived '
                f'({in_words(size_of(part))}) is kept: the same command goes on from there'
            )
        pause = min(wait * 2 ** (failed - 1), 60)
        tell(
            f'{part.name.removesuffix(".part")}: {reason}; trying again in {pause:.0f} s ({failed} '
            f'of {tries})'
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
    timeout: float = 60.0,
) -> Path:
    """Fetch one file, or find it whole.

    A file that is there and verifies is not touched. One that does not verify becomes `NAME.bad`.

    Args:
        urls: Addresses of the same file, tried in turn (http, https, file).
        file: Where it goes.
        sha256: Published checksum.
        md5: Published checksum.
        bytes: About how many, for the check of free space where the server does not say.
        tell: Takes lines of progress.
        tries: Failures in a row without progress, for each address.
        wait: Seconds before the second try, doubled each time.
        timeout: Seconds without a byte.

    Returns:
        `file`.

    Raises:
        SpmlError: For a wrong checksum (what came is kept as `NAME.bad`), a dropped connection, a
            refusal, and a full disk.
    """
    file, part, wanted = Path(file), _beside(Path(file), '.part'), _published(sha256, md5)
    with alone(file, tell):
        if file.is_file():
            if not (wrong := _wrong(file, wanted)):
                return file
            tell(f'{file.name}: {wrong}; it is kept as {set_aside(file).name} and fetched again')
        failures = {}
        for url in urls:
            try:
                return _from(url, file, part, wanted, bytes, tell, (tries, wait, timeout))
            except Refused as error:
                failures[url] = error.message
            tell(f'{file.name}: {failures[url]}')
    reasons = (
        ' '.join(f'{url}: {why}.' for url, why in failures.items()) or 'No address is known for it.'
    )
    raise SpmlError(f'{file.name} could not be fetched. {reasons}')


def set_aside(file: Path, name: Path | None = None) -> Path:
    """Rename a file that is no good.

    Args:
        file: Its path.
        name: What it should have been; itself if unset.

    Returns:
        The new path, NAME.bad.
    """
    bad = _beside(name or file, '.bad')
    file.replace(bad)
    for left in (_beside(file, '.ok'), _beside(file, '.json')):
        left.unlink(missing_ok=True)
    return bad


def _from(url, file, part, wanted, about, tell, patience):
    "Fetch `file` from one address. Raises SpmlError: as `_persist`, and for a wrong checksum."
    for _ in range(
        2 if size_of(part) else 1
    ):  # what was put together from two connections gets a second chance
        _persist(url, part, bool(wanted), about, tell, *patience)
        if not (wrong := _wrong(part, wanted)):
            sums = {**checksums(part), 'url': url}
            part.replace(file)
            with contextlib.suppress(OSError, SpmlError):  # only saves time
                write_atomically(_beside(file, '.ok'), json.dumps(sums | _identity(file)))
            for ending in ('.ok', '.json'):
                _beside(part, ending).unlink(missing_ok=True)
            return file
        bad = set_aside(part, file)
        tell(f'{file.name}: {wrong}; kept as {bad.name}')
    raise Refused(f'wrong checksum, {wrong}. What came is kept as {bad}; it is not used')


def mirrored(urls, path: str, mirror: str | None = None) -> list[str]:
    """List the addresses to try, the mirror's first.

    Args:
        urls: Official addresses.
        path: The file below the mirror, such as 'voc12/x.tar'.
        mirror: An http(s) address or a folder; the environment's SPML_NB_MIRROR if unset.

    Returns:
        Addresses.

    Raises:
        SpmlError: For a mirror that is neither.
    """
    mirror = mirror or os.environ.get('SPML_NB_MIRROR')
    if not mirror:
        return list(urls)
    if not re.match(r'(https?|file)://', str(mirror)):
        folder = settings.expanded(mirror)
        if not folder.is_dir():
            raise SpmlError(
                f'the mirror {mirror!r} is neither an address (http://, https://) nor a folder.'
            )
        mirror = folder.resolve().as_uri()
    return [f'{str(mirror).rstrip("/")}/{path}', *urls]


class Damaged(SpmlError):
    "An archive that is truncated, garbled or none at all."


SUFFIXES = ('.tar', '.tar.gz', '.tgz', '.tar.bz2', '.tar.xz', '.zip')


def is_archive(name: str) -> bool:
    """Tell whether `unpack` knows the ending.

    Args:
        name: Of a file.

    Returns:
        Whether it is an archive.
    """
    return str(name).lower().endswith(SUFFIXES)


def _check_member(name, ordinary):
    """Raises SpmlError: for a name that is not below the root, and for what is neither file nor
    folder.
    """
    if (
        not name
        or name.startswith('/')
        or '..' in name.split('/')
        or re.match(r'[A-Za-z]:', name)
        or {'\\', '\0'} & set(name)
    ):
        raise SpmlError(f'the member {name!r} would be outside the folder')
    if not ordinary:
        raise SpmlError(f'the member {name!r} is a link or a device')


def _untar(archive, folder):
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(
            tarfile, 'data_filter', None
        )  # Python before 3.11.4 has none
        for member in tar:
            _check_member(member.name, member.isdir() or member.isreg())
            tar.extract(member, folder)
        tar.fileobj.seek(tar.offset)
        if tar.fileobj.read(512) != bytes(512):
            raise Damaged('it ends early')
        while tar.fileobj.read(1 << 20):
            pass  # to the end of a compressed stream, where its checksum stands


def _unzip(archive, folder):
    with zipfile.ZipFile(archive) as content:
        for member in content.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            _check_member(member.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR))
        content.extractall(folder)


@contextlib.contextmanager
def whole(folder: Path):
    """Fill a folder that is there with all its content or not at all.

    Args:
        folder: Its final name, not yet there or empty.

    Returns:
        A context manager that gives a temporary folder beside it, renamed at the end and removed
        after an error.

    Raises:
        SpmlError: If the disk refuses.
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


MARK = '.unpacked'  # in an unpacked folder: the name and the checksums of its archive


def unpack(archive: Path, root: Path, tell=print) -> Path:
    """Unpack an archive into a folder of its own. A folder that was unpacked from this archive is
    left as it is.

    Args:
        archive: tar (also gz, bz2, xz) or zip.
        root: The folder, not yet there or empty.
        tell: Takes a line.

    Returns:
        `root`.

    Raises:
        SpmlError: If root holds something else, for members outside root, links and devices, and
            for a full disk.
        Damaged: If the archive is truncated or none. Nothing is left of a failed try.
    """
    archive, root = Path(archive), Path(root)
    with alone(root, tell):
        sums = checksums(archive)
        if read_note(root / MARK).get('sha256') == sums['sha256']:
            return root
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise SpmlError(
                f'{root} is there already and was not unpacked from {archive.name}. Move it away, '
                'then give the same command again.'
            )
        tell(f'{archive.name}: unpacking into {root}')
        try:
            with whole(root) as temporary:
                (_unzip if zipfile.is_zipfile(archive) else _untar)(archive, temporary)
                (temporary / MARK).write_text(json.dumps({'archive': archive.name, **sums}))
        except SpmlError as error:
            raise type(error)(f'{archive} is not unpacked: {error}') from error.__cause__
        except Exception as error:  # readers raise a dozen different types for damaged archives
            raise Damaged(
                f'{archive} is not unpacked: it is truncated or no archive '
                f'({type(error).__name__}: {error})'
            ) from error
    return root
