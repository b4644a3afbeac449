"""What the rest of the package builds on: errors, settings, progress, files."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path
from typing import Any


def lazily(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make `__getattr__`, `__dir__` and `__all__` of a package that imports its modules on demand.

    The names are those of its `__init__.pyi`, which type checkers and editors read as a stub.

    Args:
        package: `__name__` of the package.
        file: `__file__` of the package.
    """
    stub = ast.parse(Path(file).with_name('__init__.pyi').read_text(encoding='utf-8'))
    home = {
        alias.name: resolve_name('.' * node.level + (node.module or ''), package)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    module = sys.modules[package]

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        return getattr(import_module(home[name]), name)

    return get, lambda: sorted({*vars(module), *home}), sorted(home)
