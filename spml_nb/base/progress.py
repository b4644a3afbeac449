"""A progress bar in a terminal or notebook, occasional lines in a log, nothing for quick work."""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, TypeVar

from tqdm.std import tqdm

T = TypeVar('T')

PATIENCE = 1.0  # seconds before a bar appears
LINE_INTERVAL = 30.0  # seconds between two lines of a log


def _kernel() -> Any:
    "The running notebook kernel, or None."
    shell = sys.modules['IPython'].get_ipython() if 'IPython' in sys.modules else None
    return getattr(shell, 'kernel', None)


def find_display() -> str:
    "Decide where progress is shown: 'terminal', 'notebook' or 'log'."
    kernel = _kernel()
    if kernel is not None:
        return 'notebook' if getattr(kernel, '_allow_stdin', False) else 'log'
    return 'terminal' if getattr(sys.stderr, 'isatty', lambda: False)() else 'log'


class _Lines:
    """Progress as lines on stderr (in a notebook: stdout), one every `LINE_INTERVAL` seconds.

    Work that took less than that prints nothing. The interface is that of `tqdm`.

    Args:
        what: Title of the work.
        total: Number of items; None if unknown.
        start: Number of items done before.
        unit: Name of the items; 'B' for bytes.
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
        self.n += count
        if time.monotonic() - self.last_time >= LINE_INTERVAL:
            self._write()

    def _write(self) -> None:
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
        if time.monotonic() - self.began >= LINE_INTERVAL and self.n != self.last_count:
            self._write()


@contextmanager
def progress_meter(
    what: str, total: int | None = None, *, start: int = 0, unit: str = '', show: bool = True
) -> Iterator[_Lines | tqdm]:
    """Yield a progress display; call `update(count)` on it while the work is done.

    Args:
        what: Title of the work.
        total: Number of items; None if unknown.
        start: Number of items done before.
        unit: Name of the items; 'B' for bytes, shown as kB, MB, GB.
        show: False shows nothing.
    """
    if show and find_display() == 'log':
        progress = _Lines(what, total, start, unit)
    else:
        from tqdm.auto import tqdm  # in a notebook a widget, if ipywidgets is installed

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
    """Iterate and show progress.

    Args:
        total: Number of items; by default the length of `iterable`, if it has one.
        what, unit, show: As in `progress_meter`.
    """
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    with progress_meter(what, total, unit=unit, show=show) as progress:
        for item in iterable:
            yield item
            progress.update(1)
