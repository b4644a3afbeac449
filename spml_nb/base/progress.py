"""A progress bar where a person looks, a line now and then in a log, and nothing for quick work."""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, TypeVar

from tqdm.std import tqdm

T = TypeVar('T')

PATIENCE = 1.0  # seconds before a bar appears
# seconds between two lines of a log, and how long work takes before its end is worth a line
LINE_INTERVAL = 30.0


def _kernel() -> Any:
    "The kernel that runs this, None outside a notebook."
    shell = sys.modules['IPython'].get_ipython() if 'IPython' in sys.modules else None
    return getattr(shell, 'kernel', None)


def find_display() -> str:
    "Where progress is shown: 'terminal', 'notebook' or 'log'."
    kernel = _kernel()
    if kernel is not None:
        return 'notebook' if getattr(kernel, '_allow_stdin', False) else 'log'
    return 'terminal' if getattr(sys.stderr, 'isatty', lambda: False)() else 'log'


class Lines:
    """Progress as lines on stderr, in a notebook on stdout: one every `LINE_INTERVAL` seconds, and
    one at the end of what took that long.

    Args:
        what: For the reader.
        total: How many there are; None if nobody knows.
        start: How many are done already.
        unit: Behind the numbers; 'B' for bytes.
    """

    def __init__(self, what: str, total: int | None = None, start: int = 0, unit: str = ''):
        self.what = what
        self.total = total
        self.start = start
        self.unit = unit
        self.n = start
        self.began = self.last_time = time.monotonic()
        self.last_count: int | None = None

    def update(self, count: int = 1) -> None:
        "Note that `count` more are done."
        self.n += count
        if time.monotonic() - self.last_time >= LINE_INTERVAL:
            self.write()

    def write(self) -> None:
        "Write a line."
        self.last_time = time.monotonic()
        self.last_count = self.n
        seconds = self.last_time - self.began
        amounts = self._amount(self.n)
        if self.total is not None:
            amounts += f' of {self._amount(self.total)}'
        if self.unit not in ('', 'B'):
            amounts += f' {self.unit}'
        done = self.n - self.start
        left = ''
        if self.total and done and seconds and self.n < self.total:
            left = f', about {tqdm.format_interval((self.total - self.n) * seconds / done)} left'
        print(
            f'{self.what}: {amounts} in {tqdm.format_interval(seconds)}{left}',
            file=sys.stderr if _kernel() is None else sys.stdout,
            flush=True,
        )

    def _amount(self, n: int) -> str:
        return tqdm.format_sizeof(n, 'B', 1000) if self.unit == 'B' else f'{n:,}'

    def close(self) -> None:
        "Write the last line, unless another had the same numbers."
        if time.monotonic() - self.began >= LINE_INTERVAL and self.n != self.last_count:
            self.write()


@contextmanager
def progress_meter(
    what: str, total: int | None = None, *, start: int = 0, unit: str = '', show: bool = True
) -> Iterator[Lines | tqdm]:
    """Give something to call `update(count)` on while work is done.

    Args:
        what: For the reader.
        total: How many there will be; None if nobody knows.
        start: How many are done already.
        unit: Of what is counted; 'B' for bytes, shown as kB, MB, GB.
        show: False shows nothing anywhere.
    """
    if show and find_display() == 'log':
        progress = Lines(what, total, start, unit)
    else:
        from tqdm.auto import tqdm  # a widget, or the terminal's bar where ipywidgets are missing

        progress = tqdm(
            desc=what,
            total=total,
            initial=start,
            unit=unit or 'it',
            unit_scale=unit == 'B',
            delay=PATIENCE,
            leave=False,
            disable=not show,
        )
    try:
        yield progress
    finally:
        progress.close()


def progress_bar(
    iterable: Iterable[T],
    total: int | None = None,
    what: str = '',
    *,
    unit: str = '',
    show: bool = True,
) -> Iterator[T]:
    """Go through something and show how far that is.

    Args:
        iterable: Anything.
        total: How many there are; unset: its length if it has one.
        what, unit, show: As in `progress_meter`.
    """
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    with progress_meter(what, total, unit=unit, show=show) as progress:
        for item in iterable:
            yield item
            progress.update(1)
