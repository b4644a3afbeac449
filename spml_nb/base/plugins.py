"""Methods from outside: of installed packages, and of modules that the setting `plugins` names."""

import sys
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from . import settings
from .errors import SpmlError

GROUP = 'spml_nb.methods'  # of entry points, in the pyproject.toml of a package with methods


def import_plugins() -> None:
    """Import every module that registers methods from outside.

    A package names its module in the entry-point group `spml_nb.methods`. The setting `plugins`
    names modules, separated by commas, for this project alone; they may lie beside settings.ini.
    Worker processes read the same setting and so know the same methods.

    Raises:
        SpmlError: for a module that is not there or cannot be imported.
    """
    for name, origin in _installed():
        _import(name, origin)
    values = settings.read_settings()
    named = [name.strip() for name in values['plugins'].split(',') if name.strip()]
    folder = str(values['base'])
    if named and folder not in sys.path:
        sys.path.append(folder)  # last: no file beside settings.ini takes the place of a package
    for name in named:
        _import(name, 'the setting `plugins`')


@cache
def _installed() -> tuple[tuple[str, str], ...]:
    """(module, where it is named) of each installed package with methods."""
    return tuple(
        (point.module, f'the installed package {point.dist.name}')  # type: ignore[union-attr]
        for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)
    )


def _import(name: str, origin: str) -> None:
    try:
        import_module(name)
    except Exception as error:  # a module of somebody else may raise anything
        raise SpmlError(
            f'the module {name!r}, which {origin} names, cannot be imported: '
            f'{type(error).__name__}: {error}. Mend it, put it beside settings.ini, or take its '
            'name out.'
        ) from error
