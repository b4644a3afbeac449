"""A progress bar where a person looks, a line now and then in a log, and nothing for quick work."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tqdm.std import tqdm

PATIENCE = 1.0  # seconds before a bar appears
# seconds between two lines of a log, and how long work takes before its end is worth a line
EVERY = 30.0


def _kernel():
    "The kernel that runs this, None outside a notebook."
    shell = sys.modules['IPython'].get_ipython() if 'IPython' in sys.modules else None
    return getattr(shell, 'kernel', None)


def place() -> str:
    """Where progress is shown.

    Returns:
        'terminal', 'notebook' or 'log'.
    """
    if (kernel := _kernel()) is not None:
        return 'notebook' if getattr(kernel, '_allow_stdin', False) else 'log'
    return 'terminal' if getattr(sys.stderr, 'isatty', lambda: False)() else 'log'


class Lines:
    """Progress as lines on stderr, in a notebook on stdout: one every `EVERY` seconds, and one at
    the end of what took that long.

    Args:
        what: for the reader.
        total: how many there are; None: not known.
        start: how many are done already.
        unit: behind the numbers; 'B' for bytes.
    """

    def __init__(self, what: str, total: int | None = None, start: int = 0, unit: str = ''):
        self.what, self.total, self.start, self.unit, self.n = what, total, start, unit, start
        self.began = self.last_time = time.monotonic()
        self.last_count = None

    def update(self, count: int = 1):
        """Note that some more are done.

        Args:
            count: how many.
        """
        self.n += count
        if time.monotonic() - self.last_time >= EVERY:
            self.tell()

    def tell(self):
        "Write a line."
        self.last_time, self.last_count = time.monotonic(), self.n
        seconds = self.last_time - self.began
        pace = (self.n - self.start) / seconds if seconds else 0
        rest = (
            f', about {tqdm.format_interval((self.total - self.n) / pace)} left'
            if self.total and pace and self.n < self.total
            else ''
        )
        amounts = ' of '.join(self._amount(n) for n in (self.n, self.total) if n is not None)
        unit = f' {self.unit}' if self.unit not in ('', 'B') else ''
        where = sys.stderr if _kernel() is None else sys.stdout
        print(
            f'{self.what}: {amounts}{unit} in {tqdm.format_interval(seconds)}{rest}',
            file=where,
            flush=True,
        )

    def _amount(self, n):
        return tqdm.format_sizeof(n, 'B', 1000) if self.unit == 'B' else f'{n:,}'

    def close(self):
        "The last line, if no other has said the same."
        if time.monotonic() - self.began >= EVERY and self.n != self.last_count:
            self.tell()


@contextmanager
def meter(
    what: str, total: int | None = None, *, start: int = 0, unit: str = '', show: bool = True
):
    """Something to call `update(count)` on while work is done.

    Args:
        what: for the reader.
        total: how many there will be; None: not known.
        start: how many are done already.
        unit: of what is counted; 'B' for bytes, shown as kB, MB, GB.
        show: False shows nothing anywhere.

    Returns:
        A context manager that gives an object with `update`.
    """
    if show and place() == 'log':
        shown = Lines(what, total, start, unit)
    else:
        from tqdm.auto import tqdm  # a widget, or the terminal's bar where ipywidgets are missing

        shown = tqdm(
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
        yield shown
    finally:
        shown.close()


def bar(
    iterable: Iterable,
    total: int | None = None,
    what: str = '',
    *,
    unit: str = '',
    show: bool = True,
) -> Iterator:
    """Go through something and show how far that is.

    Args:
        iterable: anything.
        total: how many there are; unset: its length if it has one.
        what: as in `meter`.
        unit: as in `meter`.
        show: as in `meter`.

    Returns:
        An iterator over the same things.
    """
    if total is None and hasattr(iterable, '__len__'):
        total = len(iterable)
    with meter(what, total, unit=unit, show=show) as count:
        for item in iterable:
            yield item
            count.update(1)
