"""Whole-file writes and locks: a file appears complete or not at all, and one process at a time works on it."""

import contextlib
import errno
import glob
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from .errors import SpmlError
from .escaping import escape_for_terminal

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


TEMPORARY = re.compile(
    r'^\.(.+)-[a-z0-9_]{8}\.tmp$'
)  # group 1: the name that the file would have got


@contextlib.contextmanager
def _marked_as_in_use(temporary: Path) -> Iterator[None]:
    "A lock on a temporary file, which the system takes away when its writer is killed."
    with open(temporary, 'rb') as held:
        with contextlib.suppress(OSError):  # some disks of a network have no locks
            if fcntl is not None:
                fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _remove_abandoned(file: Path):
    "Delete what killed writers of a file have left: unlocked, and not made just now."
    for left in file.parent.glob(f'.{glob.escape(file.name)}-????????.tmp'):
        with contextlib.suppress(OSError):  # still in use, another user's, or gone
            if fcntl is not None and time.time() - left.stat().st_mtime > 2:
                with open(left, 'rb') as held:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    left.unlink()


@contextlib.contextmanager
def whole(file: Path, follow: bool = False) -> Iterator[Path]:
    """A temporary file, which gets its name at the end of the block if nothing went wrong.

    Args:
        file: its final name. The permissions of an old file stay.
        follow: write the file behind a link, for a name that a person gave. Elsewhere, as in a
            folder of runs, the link is replaced, whatever it leads to.

    Returns:
        A context manager that gives the path to write to.

    Raises:
        OSError: if the disk is full or refuses.
        SpmlError: for a pipe or a device.
    """
    real = Path(os.path.realpath(file)) if follow else file
    old = real.lstat().st_mode if os.path.lexists(real) else None
    if old is not None and not any(
        kind(old) for kind in (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    ):
        raise SpmlError(
            f'{file} is a pipe or a device, which a whole file would replace. Give the name of a '
            'file.'
        )
    mode = stat.S_IMODE(old) if old is not None and stat.S_ISREG(old) else None
    real.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(real)
    temporary = real.with_name(f'.{real.name}-{secrets.token_hex(4)}.tmp')
    temporary.touch(
        0o666 if mode is None else 0o600, exist_ok=False
    )  # an old file may be private, and stays so
    try:
        with _marked_as_in_use(temporary):
            yield temporary
        with open(temporary, 'rb+') as written:
            os.fsync(written.fileno())
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, real)
    finally:
        temporary.unlink(missing_ok=True)


def _refused(file, error) -> SpmlError:
    return SpmlError(
        f'{file} could not be written: {error}. Free space or choose another folder: a line of '
        'settings.ini, SPML_NB_DATA, SPML_NB_CACHE, SPML_NB_RUNS or SPML_NB_OUTPUTS.'
    )


def write_atomically(file: Path, write: Callable | str, follow: bool = False):
    """Put a whole file in place or leave the old one.

    Args:
        file: as in `whole`.
        write: text, or a function that is given the temporary Path and writes it.
        follow: as in `whole`.

    Raises:
        SpmlError: when the disk is full or refuses, with the OSError as its cause; for a pipe or a
            device.
    """
    try:
        with whole(Path(file), follow) as temporary:
            write(temporary) if callable(write) else temporary.write_text(write, encoding='utf-8')
    except OSError as error:
        raise _refused(file, error) from error


def regular(file: Path) -> Path:
    """A file that has an end: reading a pipe or a device may take for ever.

    Args:
        file: its path.

    Returns:
        `file`.

    Raises:
        OSError: for a pipe, a device or a socket, and if it is not there.
    """
    kind = os.stat(file).st_mode
    if stat.S_ISREG(kind) or stat.S_ISDIR(kind):  # of a folder, opening it says what is wrong
        return file
    raise OSError(errno.EINVAL, 'it is a pipe or a device, and no file', str(file))


def write_arrays(file: Path, arrays: dict, follow: bool = False):
    """Put an .npz file in place, whole or not at all: the same bytes for the same arrays.

    Args:
        file: where to.
        arrays: by name.
        follow: as in `whole`.

    Raises:
        SpmlError: as `write_atomically`.
    """
    import numpy as np

    def write(temporary):
        with open(temporary, 'wb') as out:  # to a name without .npz, numpy would add it
            np.savez(out, **arrays)

    write_atomically(file, write, follow)


def refuse_existing(file: Path | str):
    """Make sure that a name which a person gave for something new is free.

    Args:
        file: a file or folder to be written.

    Raises:
        SpmlError: if something is there, other than an empty folder.
    """
    file = Path(file)
    is_free = not any(file.iterdir()) if file.is_dir() else not os.path.lexists(file)
    if not is_free:
        raise SpmlError(
            f'{file} is there already, and nothing is overwritten. Name another, or move it away '
            'first.'
        )


def remove_leftovers(folder: Path, seconds: float = 3600):
    """Delete the temporary files that killed writers left behind.

    Args:
        folder: where `write_atomically` was at work.
        seconds: how long nobody has written to them. 0 is for a caller who holds the lock; a
            younger file may belong to a living writer.
    """
    for file in Path(folder).glob('.*-????????.tmp'):
        with contextlib.suppress(
            OSError
        ):  # a living writer may have finished just now, or it is another user's
            if time.time() - file.stat().st_mtime >= seconds:
                file.unlink()


def lock(path: Path) -> FileLock:
    """The lock beside a path, not yet taken.

    Args:
        path: a file or folder, which need not exist.

    Returns:
        FileLock.
    """
    return FileLock(Path(path).with_name(f'.{Path(path).name}.lock'))


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock beside a path. No file is made.

    Args:
        path: as in `lock`.

    Returns:
        bool; False for the lock of another user, which cannot be asked.
    """
    held = lock(path)
    if not os.path.isfile(held.lock_file):
        return False
    try:
        with held.acquire(timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return False


def say(line: str):
    """Print a line at once, as it is shown and not obeyed.

    Args:
        line: text.
    """
    print(escape_for_terminal(line), flush=True)


@contextlib.contextmanager
def alone(path: Path, tell: Callable | None = say) -> Iterator[None]:
    """Hold the lock beside a path, waiting for the process that has it.

    Args:
        path: a file or folder, which need not exist.
        tell: is given one line when there is a wait; None says nothing.

    Returns:
        A context manager.

    Raises:
        SpmlError: if the folder around the path cannot be made or written.
    """
    path, held = Path(path), lock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            held.acquire(timeout=0)
        except Timeout:
            Path(
                held.lock_file
            ).touch()  # where no file can be made, as in /proc, waiting would never end
            if tell:
                tell(f'another process is at {path.name}; waiting for it')
            held.acquire()
    except OSError as error:
        raise _refused(path, error) from error
    try:
        for file in path.parent.iterdir():
            if (half := TEMPORARY.match(file.name)) and half[1] == path.name and file.is_file():
                with contextlib.suppress(OSError):  # another process may have removed it first
                    file.unlink()
        yield
    finally:
        held.release()


def grid(lines: list[list]) -> str:
    """A Markdown table.

    Args:
        lines: of anything that has a text; the first is the header.

    Returns:
        A text that ends with a line break.
    """
    return ''.join(
        f"| {' | '.join(map(str, line))} |\n"
        for line in [lines[0], ['---'] * len(lines[0]), *lines[1:]]
    )
