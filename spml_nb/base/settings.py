"""Folders, device, tracker and plugins: `settings.ini` and the environment."""

import os
import re
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import SpmlError, one_of

if TYPE_CHECKING:
    import torch

DEFAULTS = {
    'data': 'data',
    'cache': '~/.cache/spml_nb',
    'runs': 'runs',
    'outputs': 'outputs',
    'decode': 'once',
    'device': 'auto',
    'tracker': 'none',
    'plugins': '',
}
PATHS = ('data', 'cache', 'runs', 'outputs')
DECODE = ('once', 'always')  # photos: kept decoded in the cache, or decoded for every batch


def settings_file() -> Path | None:
    """Find the settings.ini in force.

    Returns:
        `SPML_NB_SETTINGS`, else the nearest settings.ini with a section [spml_nb] at or above the
        current folder, else the one beside the package, else None.

    Raises:
        SpmlError: If SPML_NB_SETTINGS names no file, or a file cannot be read.
    """
    named = os.environ.get('SPML_NB_SETTINGS')
    if named and not Path(named).is_file():
        raise SpmlError(
            f'SPML_NB_SETTINGS names {named!r}, which is no file. Unset it, or write that file.'
        )
    if named:
        return Path(named).resolve()
    here = Path.cwd().resolve()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[2]):
        file = folder / 'settings.ini'
        if file.is_file() and re.search(rb'^(\xef\xbb\xbf)?\s*\[spml_nb\]', _content(file), re.M):
            return file
    return None


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SpmlError(f'{file} cannot be read: {error}. Mend or remove it.') from error


def _read_file(file: Path) -> dict[str, str]:
    "The settings in a file, as strings."
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
    for key in parser['spml_nb']:
        one_of(key, DEFAULTS, f'setting in {file}')
    return dict(parser['spml_nb'])


def read_settings() -> dict[str, Any]:
    """Read all settings: the file's, with the environment's on top.

    Returns:
        dict with the keys of `DEFAULTS` as strings, and 'base', the folder that relative paths
        start from. Empty values count as unset.

    Raises:
        SpmlError: For an unreadable file, one without a section [spml_nb], or an unknown key in it.
    """
    file = settings_file()
    written = _read_file(file) if file is not None else {}
    values = {
        key: os.environ.get(f'SPML_NB_{key.upper()}') or written.get(key) or default
        for key, default in DEFAULTS.items()
    }
    return {**values, 'base': file.parent if file else Path.cwd()}


def path(kind: str) -> Path:
    """The folder for one kind of files, an absolute path. It is not made here.

    Args:
        kind: 'data', 'cache', 'runs' or 'outputs'.
    """
    values = read_settings()
    return (values['base'] / expand_home(values[one_of(kind, PATHS, 'kind of folder')])).resolve()


def expand_home(folder: str | Path) -> Path:
    """Expand `~` or `~name` at the beginning of a path.

    Raises:
        SpmlError: Where there is no such home folder.
    """
    try:
        return Path(folder).expanduser()
    except RuntimeError as error:
        raise SpmlError(
            f'{str(folder)!r} begins with a home folder that is not known here. Write the whole '
            'path.'
        ) from error


def count_cores() -> int:
    "How many processor cores this process may use."
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def device(name: str | None = None) -> 'torch.device':
    """Choose the device to train on.

    Args:
        name: 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps'; unset: the setting. 'auto' is the first of
            cuda, mps and cpu that is there.

    Returns:
        torch.device.

    Raises:
        SpmlError: For one that this machine does not have, such as a number without a GPU.
    """
    import torch

    chosen: str = name or read_settings()['device']
    counts = {
        'cuda': torch.cuda.device_count() if torch.cuda.is_available() else 0,
        'mps': int(torch.backends.mps.is_available()),
        'cpu': 1,
    }
    kinds = [kind for kind, count in counts.items() if count]
    if chosen == 'auto':
        return torch.device(kinds[0])
    allowed = ['auto']
    for kind in kinds:
        allowed += [kind, *(f'{kind}:{k}' for k in range(counts[kind]))]
    remedy = 'Set `device` in settings.ini or SPML_NB_DEVICE.'
    return torch.device(one_of(chosen, allowed, 'device', remedy))
