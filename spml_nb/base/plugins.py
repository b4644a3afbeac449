"""Third-party methods: from installed packages, and from modules in the setting `plugins`."""

import sys
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from . import settings
from .errors import SpmlError

_GROUP = 'spml_nb.methods'  # the entry-point group of packages with methods


def import_plugins() -> None:
    """Import every module that registers third-party methods.

    Installed packages list theirs in the entry-point group `spml_nb.methods`. A project lists its
    own in the setting `plugins`, separated by commas; they may lie beside settings.ini. Worker
    processes read the same setting, so they have the same methods.

    Raises:
        SpmlError: If a module cannot be imported.
    """
    for name, origin in _installed():
        _import(name, origin)
    values = settings.read_settings()
    named = [name.strip() for name in values['plugins'].split(',') if name.strip()]
    folder = str(values['base'])
    if named and folder not in sys.path:
        sys.path.append(folder)  # last: a file beside settings.ini must not shadow a package
    for name in named:
        _import(name, 'the setting `plugins`')


@cache
def _installed() -> tuple[tuple[str, str], ...]:
    """(module, where it is listed) of each installed package with methods."""
    return tuple(
        (point.module, f'the installed package {point.dist.name}')  # type: ignore[union-attr]
        for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name)
    )


def _import(name: str, origin: str) -> None:
    try:
        import_module(name)
    except Exception as error:  # third-party code may raise anything
        raise SpmlError(
            f'the module {name!r}, which {origin} names, cannot be imported: '
            f'{type(error).__name__}: {error}. Fix it, put it beside settings.ini, or remove its '
            'name.'
        ) from error
