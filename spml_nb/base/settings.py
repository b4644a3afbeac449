"""Folders, device, tracker and plugins: `settings.ini` and the environment."""

import os
import re
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import SpmlError, require_one_of

if TYPE_CHECKING:
    import torch

_DEFAULTS = {
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
DECODE = ('once', 'always')  # keep decoded photos in the cache, or decode them for every batch


def find_settings_file() -> Path | None:
    """Find settings.ini.

    Returns:
        The file in SPML_NB_SETTINGS; else the nearest settings.ini with a section [spml_nb] in the
        current folder or above; else the one beside the package; else None.

    Raises:
        SpmlError: If SPML_NB_SETTINGS is not a file, or a file cannot be read.
    """
    named = os.environ.get('SPML_NB_SETTINGS')
    if named and not Path(named).is_file():
        raise SpmlError(
            f'SPML_NB_SETTINGS names {named!r}, which is no file. Unset it, or create that file.'
        )
    if named:
        return Path(named).resolve()
    current = Path.cwd().resolve()
    for folder in (current, *current.parents, Path(__file__).resolve().parents[2]):
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
            raise ValueError('it contains a NUL character')
        parser.read_string(text, source=str(file))
    except (ConfigError, ValueError) as error:
        raise SpmlError(f'{file} cannot be read: {error}. Mend or remove it.') from error
    if 'spml_nb' not in parser:
        raise SpmlError(f'{file} has no section [spml_nb]. Add that line above its settings.')
    for key in parser['spml_nb']:
        require_one_of(key, _DEFAULTS, f'setting in {file}')
    return dict(parser['spml_nb'])


def read_settings() -> dict[str, Any]:
    """Read all settings; environment variables take precedence over settings.ini.

    Returns:
        {key of `_DEFAULTS`: str}, and 'base', the folder of settings.ini, which relative paths
        start from. An empty value counts as unset.

    Raises:
        SpmlError: If the file cannot be read, has no section [spml_nb], or has an unknown key.
    """
    file = find_settings_file()
    from_file = _read_file(file) if file is not None else {}
    values = {
        key: os.environ.get(f'SPML_NB_{key.upper()}') or from_file.get(key) or default
        for key, default in _DEFAULTS.items()
    }
    return {**values, 'base': file.parent if file else Path.cwd()}


def get_folder(kind: str) -> Path:
    """The absolute path of a folder in the settings, which may not exist yet.

    Args:
        kind: 'data', 'cache', 'runs' or 'outputs'.
    """
    require_one_of(kind, PATHS, 'kind of folder')
    values = read_settings()
    return (values['base'] / expand_home(values[kind])).resolve()


def expand_home(folder: str | Path) -> Path:
    """Expand `~` or `~user` at the start of a path.

    Raises:
        SpmlError: If there is no such home folder.
    """
    try:
        return Path(folder).expanduser()
    except RuntimeError as error:
        raise SpmlError(
            f'{str(folder)!r} begins with a home folder that does not exist. Write the full path.'
        ) from error


def count_cores() -> int:
    "Number of CPU cores that this process may use."
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def choose_device(name: str | None = None) -> 'torch.device':
    """Choose the device to train on.

    Args:
        name: 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps'; by default the setting `device`. 'auto' is
            the first of cuda, mps and cpu that is available.

    Raises:
        SpmlError: If this machine does not have it.
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
    return torch.device(require_one_of(chosen, allowed, 'device', remedy))
