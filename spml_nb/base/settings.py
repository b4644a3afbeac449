"""Folders, device and tracker: `settings.ini` and the environment."""

import os
import re
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path

from .errors import SpmlError, one_of

DEFAULTS = {
    'data': 'data',
    'cache': '~/.cache/spml_nb',
    'runs': 'runs',
    'outputs': 'outputs',
    'device': 'auto',
    'tracker': 'none',
}
PATHS = ('data', 'cache', 'runs', 'outputs')


def settings_file() -> Path | None:
    """The settings.ini in force.

    Returns:
        `SPML_NB_SETTINGS`, else the nearest settings.ini with a section [spml_nb] at or above the
        current folder, else the one beside the package, else None.

    Raises:
        SpmlError: if SPML_NB_SETTINGS names no file, or a file cannot be read.
    """
    named, here = os.environ.get('SPML_NB_SETTINGS'), Path.cwd().resolve()
    if named and not Path(named).is_file():
        raise SpmlError(
            f'SPML_NB_SETTINGS names {named!r}, which is no file. Unset it, or write that file.'
        )
    if named:
        return Path(named).resolve()
    for folder in (
        here,
        *here.parents,
        Path(__file__).resolve().parents[2] if '__file__' in globals() else here,
    ):
        file = folder / 'settings.ini'
        if file.is_file() and re.search(rb'^(\xef\xbb\xbf)?\s*\[spml_nb\]', _content(file), re.M):
            return file
    return None


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SpmlError(f'{file} cannot be read: {error}. Mend or remove it.') from error


def read() -> dict:
    """All settings: the file's, with the environment's on top.

    Returns:
        dict with the keys of `DEFAULTS` as strings, and 'base', the folder that relative paths
        start from. Empty values count as unset.

    Raises:
        SpmlError: for an unreadable file, one without a section [spml_nb], or an unknown key in it.
    """
    file, values = settings_file(), dict(DEFAULTS)
    if file is not None:
        parser = ConfigParser(interpolation=None)
        try:
            text = _content(file).decode('utf-8-sig')
            if '\0' in text:
                raise ValueError('it holds a NUL character')
            parser.read_string(text, source=str(file))
        except (ConfigError, ValueError) as error:
            raise SpmlError(f'{file} cannot be read: {error}. Mend or remove it.') from error
        if 'spml_nb' not in parser:
            raise SpmlError(f'{file} has no section [spml_nb]. Write that line above its settings.')
        for key, value in parser['spml_nb'].items():
            values[one_of(key, DEFAULTS, f'setting in {file}')] = value or DEFAULTS[key]
    values |= {
        key: os.environ[name]
        for key in DEFAULTS
        if os.environ.get(name := f'SPML_NB_{key.upper()}')
    }
    return {**values, 'base': file.parent if file else Path.cwd()}


def path(kind: str) -> Path:
    """The folder for one kind of files. It is not made here.

    Args:
        kind: 'data', 'cache', 'runs' or 'outputs'.

    Returns:
        An absolute Path.

    Raises:
        SpmlError: for another kind, and as `expanded`.
    """
    values = read()
    return (values['base'] / expanded(values[one_of(kind, PATHS, 'kind of folder')])).resolve()


def expanded(folder: str | Path) -> Path:
    """A path with the home folder in place of `~` or `~name`.

    Args:
        folder: any path.

    Returns:
        Path.

    Raises:
        SpmlError: where there is no such home folder.
    """
    try:
        return Path(folder).expanduser()
    except RuntimeError as error:
        raise SpmlError(
            f'{str(folder)!r} begins with a home folder that is not known here. Write the whole '
            'path.'
        ) from error


def cores() -> int:
    "How many processor cores this process may use. Returns: int."
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def device(name: str | None = None):
    """The device to train on.

    Args:
        name: 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps'; unset: the setting. 'auto' is the first of
            cuda, mps and cpu that is there.

    Returns:
        torch.device.

    Raises:
        SpmlError: for one that this machine does not have, such as a number without a GPU.
    """
    import torch

    name = name or read()['device']
    counts = {
        'cuda': torch.cuda.device_count() if torch.cuda.is_available() else 0,
        'mps': int(torch.backends.mps.is_available()),
        'cpu': 1,
    }
    if name == 'auto':
        return torch.device(next(kind for kind, count in counts.items() if count))
    allowed = [
        'auto',
        *(
            each
            for kind, count in counts.items()
            if count
            for each in (kind, *(f'{kind}:{k}' for k in range(count)))
        ),
    ]
    return torch.device(
        one_of(name, allowed, 'device', 'Set `device` in settings.ini or SPML_NB_DEVICE.')
    )
