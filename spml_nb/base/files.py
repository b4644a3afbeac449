"""Whole-file writes and locks: a file appears complete or not at all, by one process at a time."""

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

# group 1: the name that the file would have got
TEMPORARY = re.compile(r'^\.(.+)-[a-z0-9_]{8}\.tmp$')


@contextlib.contextmanager
def _marked_as_in_use(temporary: Path) -> Iterator[None]:
    "A lock on a temporary file, which the system takes away when its writer is killed."
    with open(temporary, 'rb') as file:
        with contextlib.suppress(OSError):  # some disks of a network have no locks
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_abandoned(file: Path) -> None:
    "Delete what killed writers of a file have left: unlocked, and not made just now."
    if fcntl is None:
        return
    for temporary in file.parent.glob(f'.{glob.escape(file.name)}-????????.tmp'):
        with contextlib.suppress(OSError):  # still in use, another user's, or gone
            if time.time() - temporary.stat().st_mtime > 2:
                with open(temporary, 'rb') as opened:
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    temporary.unlink()


@contextlib.contextmanager
def replace_file(file: Path, follow: bool = False) -> Iterator[Path]:
    """Give a temporary file, which gets its name at the end of the block if nothing went wrong.

    Args:
        file: Its final name. The permissions of an old file stay.
        follow: Write the file behind a link, for a name that a person gave. Elsewhere, as in a
            folder of runs, the link is replaced, whatever it leads to.

    Raises:
        OSError: If the disk is full or refuses.
        SpmlError: For a pipe or a device.
    """
    target = Path(os.path.realpath(file)) if follow else file
    mode = _mode_to_keep(target, file)
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(target)
    temporary = target.with_name(f'.{target.name}-{secrets.token_hex(4)}.tmp')
    # an old file may be private, and stays so
    temporary.touch(0o666 if mode is None else 0o600, exist_ok=False)
    try:
        with _marked_as_in_use(temporary):
            yield temporary
        with open(temporary, 'rb+') as written:
            os.fsync(written.fileno())
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _mode_to_keep(target: Path, file: Path) -> int | None:
    "The permissions of a file that is there, None for a new one, a folder or a link."
    if not os.path.lexists(target):
        return None
    mode = target.lstat().st_mode
    if stat.S_ISREG(mode):
        return stat.S_IMODE(mode)
    if stat.S_ISDIR(mode) or stat.S_ISLNK(mode):
        return None
    raise SpmlError(
        f'{file} is a pipe or a device, which a whole file would replace. Give the name of a file.'
    )


def _refused(file: Path, error: OSError) -> SpmlError:
    return SpmlError(
        f'{file} could not be written: {error}. Free space or choose another folder: a line of '
        'settings.ini, SPML_NB_DATA, SPML_NB_CACHE, SPML_NB_RUNS or SPML_NB_OUTPUTS.'
    )


def write_atomically(
    file: Path, write: Callable[[Path], object] | str, follow: bool = False
) -> None:
    """Put a whole file in place or leave the old one.

    Args:
        file: As in `replace_file`.
        write: Text, or a function that is given the temporary Path and writes it.
        follow: As in `replace_file`.

    Raises:
        SpmlError: When the disk is full or refuses, with the OSError as its cause; for a pipe or a
            device.
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
    """Put an .npz file in place, whole or not at all: the same bytes for the same arrays.

    Args:
        file: As in `replace_file`.
        arrays: {name: array}.
        follow: As in `replace_file`.

    Raises:
        SpmlError: As `write_atomically`.
    """
    import numpy as np

    def write(temporary: Path) -> None:
        with open(temporary, 'wb') as out:  # to a name without .npz, numpy would add it
            np.savez(out, **arrays)

    write_atomically(file, write, follow)


def require_regular_file(file: Path) -> Path:
    """Return a file that has an end: reading a pipe or a device may take for ever.

    Raises:
        OSError: For a pipe, a device or a socket, and if it is not there.
    """
    mode = os.stat(file).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # of a folder, opening it tells what is wrong
        return file
    raise OSError(errno.EINVAL, 'it is a pipe or a device, and no file', str(file))


def refuse_existing(file: Path | str) -> None:
    """Make sure that a name which a person gave for something new is free.

    Raises:
        SpmlError: If something is there, other than an empty folder.
    """
    file = Path(file)
    is_free = not any(file.iterdir()) if file.is_dir() else not os.path.lexists(file)
    if not is_free:
        raise SpmlError(
            f'{file} is there already, and nothing is overwritten. Name another, or move it away '
            'first.'
        )


@contextlib.contextmanager
def new_folder(folder: Path, remedy: str = '') -> Iterator[Path]:
    """Give a temporary folder, which gets its name at the end of the block if nothing went wrong.

    Args:
        folder: Its final name, as `refuse_existing` wants it.
        remedy: What else may help where it cannot be written.

    Raises:
        SpmlError: As `refuse_existing`, and if it cannot be written.
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
    """Delete the temporary files that killed writers left behind.

    Args:
        folder: Where `write_atomically` was at work.
        seconds: How long nobody has written to them. 0 is for a caller who holds the lock; a
            younger file may belong to a living writer.
    """
    for file in Path(folder).glob('.*-????????.tmp'):
        with contextlib.suppress(OSError):  # finished just now, or another user's
            if time.time() - file.stat().st_mtime >= seconds:
                file.unlink()


def make_lock(path: Path) -> FileLock:
    "The lock beside a file or folder, which need not exist; it is not yet taken."
    return FileLock(Path(path).with_name(f'.{Path(path).name}.lock'))


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock beside a path; False for the lock of another user, which
    cannot be asked. No file is made.
    """
    beside = make_lock(path)
    if not os.path.isfile(beside.lock_file):
        return False
    try:
        with beside.acquire(timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return False


def print_line(line: str) -> None:
    "Print a line at once, as it is shown and not obeyed."
    print(escape_for_terminal(line), flush=True)


@contextlib.contextmanager
def hold_lock(path: Path, tell: Callable[[str], object] | None = print_line) -> Iterator[None]:
    """Hold the lock beside a path, waiting for the process that has it.

    Args:
        path: A file or folder, which need not exist.
        tell: Takes one line when there is a wait; None for silence.

    Raises:
        SpmlError: If the folder around the path cannot be made or written.
    """
    path = Path(path)
    beside = make_lock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            beside.acquire(timeout=0)
        except Timeout:
            # where no file can be made, as in /proc, waiting would never end
            Path(beside.lock_file).touch()
            if tell:
                tell(f'another process is at {path.name}; waiting for it')
            beside.acquire()
    except OSError as error:
        raise _refused(path, error) from error
    try:
        for file in path.parent.iterdir():
            match = TEMPORARY.match(file.name)
            if match and match[1] == path.name and file.is_file():
                with contextlib.suppress(OSError):  # another process may have removed it first
                    file.unlink()
        yield
    finally:
        beside.release()


def markdown_table(lines: Sequence[Sequence[object]]) -> str:
    "A Markdown table of anything that has a text; the first line is the header."
    header, *body = lines
    rows = [header, ['---'] * len(header), *body]
    return ''.join(f'| {" | ".join(map(str, row))} |\n' for row in rows)
