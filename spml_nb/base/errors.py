"""Errors and warnings that name the value, what is allowed, and the remedy; and checks."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from math import isfinite, nan
from numbers import Real
from reprlib import Repr
from types import ModuleType
from typing import Any, TypeVar

from .escaping import escape_for_terminal

T = TypeVar('T')

_MAX_LENGTH = 8000  # characters of a message


def _fit_screen(message: str) -> str:
    "Escape control characters, and cut the middle out of a long message: its end is the remedy."
    if len(message) > _MAX_LENGTH:
        start = message[: 3 * _MAX_LENGTH // 4]
        end = message[-_MAX_LENGTH // 8 :]
        message = f'{start} … ({len(message):,} characters in all) … {end}'
    return escape_for_terminal(message)


class SpmlError(ValueError):
    "Wrong input or a broken environment; the message is written for the user."

    def __init__(self, message: str):
        super().__init__(_fit_screen(message))

    @property
    def message(self) -> str:
        return str(self.args[0])


class SpmlWarning(UserWarning):
    "Something to look into, with a remedy; the work continues."


def warn(message: str) -> None:
    "Warn on behalf of the caller's caller."
    warnings.warn(message, SpmlWarning, stacklevel=3)


@contextmanager
def short_warnings() -> Iterator[None]:
    "Print each warning, of any library, only once and as one line without source code."
    original = warnings.formatwarning
    printed: set[str] = set()

    def format_once(message: Warning | str, *_: object, **__: object) -> str:
        text = _fit_screen(str(message))
        if text in printed:
            return ''
        printed.add(text)
        return f'warning: {text}\n'

    warnings.formatwarning = format_once
    try:
        yield
    finally:
        warnings.formatwarning = original


_REPR = Repr()
_REPR.maxlevel = 3
_REPR.maxdict = _REPR.maxlist = _REPR.maxtuple = _REPR.maxset = 10
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = 200


def _abbreviate(value: object) -> str:
    "The repr of a value, shortened where it is long or deep."
    try:
        return _REPR.repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return 'a number of thousands of digits'


def require_one_of(value: T, allowed: Iterable[object], what: str, remedy: str = '') -> T:
    """Return `value` if it is allowed.

    Args:
        what: Noun for the message, such as 'loss'.
        remedy: Last sentence of the message.

    Raises:
        SpmlError: If it is not; the message lists the allowed values and suggests the nearest.
    """
    allowed = list(allowed)
    if value in allowed:
        return value
    word = value if isinstance(value, str) else _abbreviate(value)
    names = [str(name) for name in allowed]
    near = get_close_matches(word[:200], names, n=1, cutoff=0.5)
    hint = f' Did you mean {near[0]!r}?' if near else ''
    message = f'unknown {what} {_abbreviate(value)}; allowed: {", ".join(names)}.{hint} {remedy}'
    raise SpmlError(message.rstrip())


def parse_number(value: object) -> float:
    "Convert a number or a numeric string to float; anything else, also a boolean, gives NaN."
    if isinstance(value, bool) or not isinstance(value, str | Real):
        return nan
    try:
        return float(value)
    except (ValueError, OverflowError):  # an integer may be too large for a float
        return nan


_NOUNS = {
    bool: 'true or false',
    int: 'a whole number',
    float: 'a number',
    str: 'a text',
    dict: 'a mapping',
    tuple: 'a list',
    list: 'a list',
}


def require_kind(value: Any, kind: type, what: str) -> Any:
    """Convert `value` to `kind` if nothing is lost.

    Numeric strings are numbers, NaN and infinity are not. A list may become a tuple.

    Args:
        kind: bool, int, float, str, dict, list or tuple.
        what: Name of the value in the message.

    Raises:
        SpmlError: If it cannot be converted.
    """
    if kind in (int, float):
        number = parse_number(value)
        if isfinite(number) and (kind is float or number.is_integer()):
            return kind(number)
    elif kind is tuple and isinstance(value, list | tuple):
        return tuple(value)
    elif isinstance(value, kind):
        return value
    raise SpmlError(
        f'{what} must be {_NOUNS[kind]}, not {_abbreviate(value)} ({type(value).__name__}).'
    )


def require_package(package: str, what: str, extra: str) -> ModuleType:
    """Import an optional dependency.

    Args:
        package: name of the module.
        what: what needs it, for the error.
        extra: the extra of spml_nb that installs it.

    Raises:
        SpmlError: if it cannot be imported.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise SpmlError(
            f'{what} needs the package {package!r}, which cannot be imported ({error}). Install '
            f"spml_nb with its extra: pip install 'spml_nb[{extra}]'."
        ) from error
