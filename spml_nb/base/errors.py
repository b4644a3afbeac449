"""One exception class and two checks: an error names the value, what is allowed, and what to do."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from math import isfinite, nan
from numbers import Real
from reprlib import Repr
from typing import Any, TypeVar

from .escaping import escape_for_terminal

T = TypeVar('T')

MAX_LENGTH = 8000  # characters of a message


def _fit_screen(message: str) -> str:
    "The beginning of a message, and its end with the remedy, without control characters."
    if len(message) > MAX_LENGTH:
        start = message[: 3 * MAX_LENGTH // 4]
        end = message[-MAX_LENGTH // 8 :]
        message = f'{start} … ({len(message):,} characters in all) … {end}'
    return escape_for_terminal(message)


class SpmlError(ValueError):
    """Wrong input or a broken environment, explained to a person: what came, what is allowed, what
    to do.
    """

    def __init__(self, message: str):
        super().__init__(_fit_screen(message))

    @property
    def message(self) -> str:
        "The text."
        return str(self.args[0])


class SpmlWarning(UserWarning):
    "Something to look at, with a remedy, while the work goes on."


def warn(message: str) -> None:
    "Warn at the place that called the caller; the last sentence of the message is the remedy."
    warnings.warn(message, SpmlWarning, stacklevel=3)


@contextmanager
def short_warnings() -> Iterator[None]:
    "Within it, a warning of any library is printed as one line without source code, and once."
    usual = warnings.formatwarning
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
        warnings.formatwarning = usual


_REPR = Repr()
_REPR.maxlevel = 3
_REPR.maxdict = _REPR.maxlist = _REPR.maxtuple = _REPR.maxset = 10
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = 200


def _abbreviate(value: object) -> str:
    "A value as in code, without the inside of a large one."
    try:
        return _REPR.repr(value)
    except ValueError:  # Python refuses to write out whole numbers of thousands of digits
        return 'a number of thousands of digits'


def one_of(value: T, allowed: Iterable[object], what: str, remedy: str = '') -> T:
    """Return `value` if it is allowed.

    Args:
        what: The noun in the message: 'loss'.
        remedy: A sentence that ends the message.

    Raises:
        SpmlError: If not; the message names the value, the allowed ones and the nearest of them.
    """
    allowed = list(allowed)
    if value in allowed:
        return value
    word = value if isinstance(value, str) else _abbreviate(value)
    names = [str(each) for each in allowed]
    near = get_close_matches(word[:200], names, n=1, cutoff=0.5)
    guess = f' Did you mean {near[0]!r}?' if near else ''
    message = f'unknown {what} {_abbreviate(value)}; allowed: {", ".join(names)}.{guess} {remedy}'
    raise SpmlError(message.rstrip())


def parse_number(value: object) -> float:
    "A number, or a text that is one, as a float; NaN for anything else, booleans too."
    if isinstance(value, bool) or not isinstance(value, str | Real):
        return nan
    try:
        return float(value)
    except (ValueError, OverflowError):  # a whole number may be too large for a float
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
    """Convert `value` where that loses nothing.

    Numeric strings count as numbers, NaN and infinity do not. A tuple may come as a list.

    Args:
        kind: bool, int, float, str, dict, list or tuple.
        what: The name in the message.

    Raises:
        SpmlError: If it is of another kind; the message names `what`, the value and the kind.
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
