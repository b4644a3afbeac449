"""What every other part uses and what knows none of them: errors, settings, progress, files."""

from collections.abc import Callable
from importlib import import_module


def lazily(package: str, homes: dict[str, str]) -> Callable:
    """Make the `__getattr__` of a package whose names live in its modules, so that importing the
    package loads none of them.

    Args:
        package: `__name__` of the package.
        homes: {module: the names that come from it, separated by blanks}.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def get(name):
        if name not in home:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        return getattr(import_module(f'{package}.{home[name]}'), name)

    return get
