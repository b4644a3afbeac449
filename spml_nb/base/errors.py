"""One exception class and two checks: an error names the value, what is allowed, what to do, and where to read on."""

import re
import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from math import isfinite, nan
from numbers import Real
from reprlib import Repr

from .escaping import escape_for_terminal

PAGE, GENERAL = 'TROUBLESHOOTING.md', 'anything-else'
SECTIONS = {
    'base': 'settings-and-files',
    'cli': 'the-command',
    'data': 'data',
    'metrics': 'data',
    'models': 'networks-and-weights',
    'methods': 'methods-and-hyper-parameters',
    'losses': 'methods-and-hyper-parameters',
    'runs': 'runs-and-their-parameters',
    'training': 'training',
    'sweeps': 'sweeps-tables-and-figures',
    'replication': 'sweeps-tables-and-figures',
    'use': 'using-a-trained-model',
    'tools': 'installation-and-tools',
}


def section(module: str) -> str:
    """The section of the page for an error.

    Args:
        module: where the error is raised, as in `__name__`.

    Returns:
        The anchor of a heading; `GENERAL` for a module outside this library.
    """
    package, *rest = module.split('.')
    return SECTIONS.get(rest[0], GENERAL) if package == 'spml_nb' and rest else GENERAL


def _section_of_caller() -> str:
    "The section for the code that called the function which asks."
    return section(sys._getframe(2).f_globals.get('__name__', ''))


_LINK = re.compile(rf' Help: {re.escape(PAGE)}#([\w-]*)')
_MOST = 8000  # characters of a message


def _bounded(message: str) -> str:
    "A message that fits on a screen or two: its beginning, and its end with the remedy."
    if len(message) <= _MOST:
        return message
    return (
        f'{message[: 3 * _MOST // 4]} … ({len(message):,} characters in all) … '
        f'{message[-_MOST // 8 :]}'
    )


class SpmlError(ValueError):
    """Wrong input or a broken environment, explained to a person: what was given, what is allowed,
    what to do.

    Args:
        message: the text, which may hold that of another SpmlError.
        see: the section of TROUBLESHOOTING.md. Unset: that of the error within the message, else
            that of the module that raises.

    Attributes:
        message: the text without the reference to the page.
        see: the section.
    """

    def __init__(self, message: str, see: str | None = None):
        message = escape_for_terminal(_bounded(message))
        inner = (link for link in _LINK.findall(message) if link in (*SECTIONS.values(), GENERAL))
        self.message = _LINK.sub('', message)
        self.see = see or next(inner, None) or _section_of_caller()
        super().__init__(f'{self.message} Help: {PAGE}#{self.see}')


class SpmlWarning(UserWarning):
    "Something to look at, with a remedy, while the work goes on."


def warn(message: str):
    """Tell a person something; the same sentence is shown once in a process.

    Args:
        message: sentences, the last of them the remedy.
    """
    warnings.warn(message, SpmlWarning, stacklevel=3)


_said = set()


def sentence(message) -> str:
    """How a warning is printed.

    Args:
        message: its text.

    Returns:
        A line; '' for what was said before.
    """
    if (text := escape_for_terminal(_bounded(str(message)))) in _said:
        return ''
    _said.add(text)
    return f'warning: {text}\n'


def _format(message, category, *place, usual=warnings.formatwarning, **line):
    return (
        sentence(message)
        if issubclass(category, SpmlWarning)
        else usual(message, category, *place, **line)
    )


if warnings.formatwarning.__module__ != __name__:  # loaded again, it would call itself
    warnings.formatwarning = _format


_REPR = Repr()
_REPR.maxlevel, _REPR.maxdict, _REPR.maxlist, _REPR.maxtuple, _REPR.maxset = 3, 10, 10, 10, 10
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = 200


def _shown(value) -> str:
    "A value in a message: as in code, without its inner parts where it is large."
    try:
        return _REPR.repr(value)
    except ValueError:  # Python refuses to write out whole numbers of thousands of digits
        return 'a number of thousands of digits'


def one_of(value, allowed: Iterable, what: str, remedy: str = ''):
    """Return `value` if it is allowed.

    Args:
        value: anything.
        allowed: the accepted values.
        what: the noun for the message.
        remedy: a sentence that ends the message.

    Returns:
        `value`.

    Raises:
        SpmlError: if it is not allowed; the message names the value, the allowed ones and the
            nearest of them.
    """
    allowed = list(allowed)
    if value in allowed:
        return value
    word = value if isinstance(value, str) else _shown(value)
    near = get_close_matches(word[:200], [str(a) for a in allowed], n=1, cutoff=0.5)
    guess = f' Did you mean {near[0]!r}?' if near else ''
    raise SpmlError(
        f"unknown {what} {_shown(value)}; allowed: {', '.join(map(str, allowed))}.{guess} {remedy}".rstrip(),
        _section_of_caller(),
    )


def as_number(value) -> float:
    """Convert `value`, whatever it is.

    Args:
        value: anything.

    Returns:
        A float, of a number or of a text that is one; NaN for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, str | Real):
        return nan
    try:
        return float(value)
    except (ValueError, OverflowError):  # a whole number may be too large for a float
        return nan


_WORDS = {
    bool: 'true or false',
    int: 'a whole number',
    float: 'a number',
    str: 'a text',
    dict: 'a mapping',
    tuple: 'a list',
    list: 'a list',
}


def as_kind(value, kind: type, what: str):
    """Convert `value` where that loses nothing.

    Args:
        value: anything; numeric strings count as numbers, NaN and infinity do not.
        kind: bool, int, float, str, dict, list or tuple.
        what: the name for the message.

    Returns:
        `value` as `kind`.

    Raises:
        SpmlError: if it is of another kind; the message names `what`, the value and the kind.
    """
    if kind in (int, float):
        number = as_number(value)
        if isfinite(number) and (kind is float or number.is_integer()):
            return kind(number)
    elif kind is tuple and isinstance(value, list | tuple):
        return tuple(value)
    elif isinstance(value, kind):
        return value
    raise SpmlError(
        f'{what} must be {_WORDS[kind]}, not {_shown(value)} ({type(value).__name__}).',
        _section_of_caller(),
    )
