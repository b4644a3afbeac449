"""Atomic writes and locks: a file appears complete or not at all, written by one process."""

import contextlib
import errno
import glob
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from .errors import SpmlError
from .escaping import escape_for_terminal

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# name of a temporary file; group 1: the final name
TEMPORARY = re.compile(r'^\.(.+)-[a-z0-9_]{8}\.tmp$')


def _temporary_files(file: Path) -> Iterator[Path]:
    for path in file.parent.glob(f'.{glob.escape(file.name)}-????????.tmp'):
        if TEMPORARY.match(path.name) and path.is_file():  # others of such a name are the user's
            yield path


@contextlib.contextmanager
def _marked_as_in_use(temporary: Path) -> Iterator[None]:
    "Lock a temporary file; the system releases the lock if its writer is killed."
    with open(temporary, 'rb') as file:
        with contextlib.suppress(OSError):  # some network drives have no locks
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_abandoned(file: Path) -> None:
    "Delete temporary files that killed writers of `file` left: unlocked and older than 2 s."
    if fcntl is None:
        return
    for temporary in _temporary_files(file):
        with contextlib.suppress(OSError):  # still in use, another user's, or gone
            if time.time() - temporary.stat().st_mtime > 2:
                with open(temporary, 'rb') as opened:
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    temporary.unlink()


@contextlib.contextmanager
def replace_file(file: Path, follow: bool = False) -> Iterator[Path]:
    """Yield a temporary file, renamed to `file` at the end of the block unless that raises.

    Args:
        file: The final name. An old file keeps its permissions.
        follow: If `file` is a symbolic link, write its target (for names that users give);
            otherwise replace the link.

    Raises:
        OSError: If it cannot be written.
        SpmlError: If `file` is a pipe or a device.
    """
    target = Path(os.path.realpath(file)) if follow else file
    mode = _mode_to_keep(target, file)
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(target)
    temporary = target.with_name(f'.{target.name}-{secrets.token_hex(4)}.tmp')
    # 0o600: the old file may be private
    temporary.touch(0o666 if mode is None else 0o600, exist_ok=False)
    try:
        with _marked_as_in_use(temporary):
            yield temporary
        with open(temporary, 'rb+') as opened:
            os.fsync(opened.fileno())
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _mode_to_keep(target: Path, file: Path) -> int | None:
    "Permissions of an existing file; None for a new one, a folder or a link."
    if not os.path.lexists(target):
        return None
    mode = target.lstat().st_mode
    if stat.S_ISREG(mode):
        return stat.S_IMODE(mode)
    if stat.S_ISDIR(mode) or stat.S_ISLNK(mode):
        return None
    raise SpmlError(
        f'{file} is a pipe or a device, which would be replaced by a file. Name a file.'
    )


def _refused(file: Path, error: OSError) -> SpmlError:
    return SpmlError(
        f'{file} could not be written: {error}. Free space or choose another folder: a line of '
        'settings.ini, SPML_NB_DATA, SPML_NB_CACHE, SPML_NB_RUNS or SPML_NB_OUTPUTS.'
    )


def write_atomically(
    file: Path, write: Callable[[Path], object] | str, follow: bool = False
) -> None:
    """Write a file completely, or leave the old one.

    Args:
        file, follow: As in `replace_file`.
        write: The text, or a function that writes to the path it is called with.

    Raises:
        SpmlError: If it cannot be written (the cause is the OSError), or is a pipe or a device.
    """
    try:
        with replace_file(Path(file), follow) as temporary:
            if callable(write):
                write(temporary)
            else:
                temporary.write_text(write, encoding='utf-8')
    except OSError as error:
        raise _refused(file, error) from error


def write_arrays(file: Path, arrays: dict[str, Any], follow: bool = False) -> None:
    """Write {name: array} as an .npz file, atomically; the same arrays give the same bytes.

    Args:
        file, follow: As in `replace_file`.

    Raises:
        SpmlError: As `write_atomically`.
    """
    import numpy as np

    def write(temporary: Path) -> None:
        with open(temporary, 'wb') as out:  # numpy would append .npz to a name
            np.savez(out, **arrays)

    write_atomically(file, write, follow)


def require_regular_file(file: Path) -> Path:
    """Return `file` unless reading it might never end.

    Raises:
        OSError: If it is a pipe, a device or a socket, or missing.
    """
    mode = os.stat(file).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # opening a folder has an error of its own
        return file
    raise OSError(errno.EINVAL, 'it is a pipe or a device, and no file', str(file))


def refuse_existing(file: Path | str) -> None:
    """Refuse to overwrite what a user named as new.

    Raises:
        SpmlError: If it exists and is not an empty folder.
    """
    file = Path(file)
    is_free = not any(file.iterdir()) if file.is_dir() else not os.path.lexists(file)
    if not is_free:
        raise SpmlError(
            f'{file} exists already, and nothing is overwritten. Name another, or move it away '
            'first.'
        )


@contextlib.contextmanager
def new_folder(folder: Path, remedy: str = '') -> Iterator[Path]:
    """Yield a temporary folder, renamed to `folder` at the end of the block unless that raises.

    Args:
        folder: The final name, new or an empty folder.
        remedy: Appended to the error if it cannot be written.

    Raises:
        SpmlError: If it exists and is not empty, or cannot be written.
    """
    refuse_existing(folder)
    folder = folder.absolute()
    temporary = folder.with_name(f'.{folder.name}-{secrets.token_hex(4)}.tmp')
    try:
        temporary.mkdir(parents=True)
        yield temporary
        if folder.is_dir():
            folder.rmdir()  # it is empty
        os.replace(temporary, folder)
    except OSError as error:
        raise SpmlError(
            f'{folder} could not be written: {error}. Free space or name another folder{remedy}.'
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(folder: Path, seconds: float = 3600) -> None:
    """Delete temporary files that killed writers left behind in a folder.

    Args:
        seconds: Minimum age; a younger file may still be written. Callers that hold the lock of
            the folder use 0.
    """
    for file in Path(folder).glob('.*-????????.tmp'):
        with contextlib.suppress(OSError):  # just renamed, or another user's
            if time.time() - file.stat().st_mtime >= seconds:
                file.unlink()


def make_lock(path: Path) -> FileLock:
    "Make the lock beside a file or folder, which need not exist; it is not acquired."
    return FileLock(Path(path).with_name(f'.{Path(path).name}.lock'))


def is_locked(path: Path) -> bool:
    "Whether a process holds the lock beside a path; False if the lock file cannot be opened."
    lock = make_lock(path)
    if not os.path.isfile(lock.lock_file):
        return False  # acquiring would create the file
    try:
        with lock.acquire(timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return False


def print_line(line: str) -> None:
    "Print a line immediately, with control characters escaped."
    print(escape_for_terminal(line), flush=True)


@contextlib.contextmanager
def hold_lock(path: Path, tell: Callable[[str], object] | None = print_line) -> Iterator[None]:
    """Hold the lock beside a path, waiting if another process holds it.

    Args:
        path: A file or folder, which need not exist.
        tell: Called with one line before waiting; None for silence.

    Raises:
        SpmlError: If the parent folder cannot be created or written.
    """
    path = Path(path)
    lock = make_lock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            # raises where no file can be created, as in /proc; waiting there would never end
            Path(lock.lock_file).touch()
            if tell:
                tell(f'another process is at {path.name}; waiting for it')
            lock.acquire()
    except OSError as error:
        raise _refused(path, error) from error
    try:
        for temporary in _temporary_files(path):
            with contextlib.suppress(OSError):  # another process may have removed it
                temporary.unlink()
        yield
    finally:
        lock.release()


def markdown_table(lines: Sequence[Sequence[object]]) -> str:
    "Make a Markdown table; the first line is the header."
    header, *body = lines
    rows = [header, ['---'] * len(header), *body]
    return ''.join(f'| {" | ".join(map(str, row))} |\n' for row in rows)


def write_changed(texts: dict[Path, str]) -> list[Path]:
    """Write the files whose text changes.

    Args:
        texts: {file: text}.

    Returns:
        The files that changed.

    Raises:
        SpmlError: For a file that cannot be written.
    """
    changed = [
        file
        for file, text in texts.items()
        if not file.is_file() or file.read_bytes() != text.encode()
    ]
    for file in changed:
        write_atomically(file, texts[file])
    return changed
