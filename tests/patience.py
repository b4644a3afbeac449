"A limit for what used to wait for ever."

import contextlib
import signal

import pytest


@contextlib.contextmanager
def within(seconds):
    "The block fails where it takes longer."

    def late(*_):
        pytest.fail(
            f'it took more than {seconds} seconds'
        )  # no Exception, which a reader of damaged files may catch

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
