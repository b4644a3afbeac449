"Progress: a bar for a person, whole lines for a log, nothing for what is quick."

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from types import SimpleNamespace

import nbclient
import nbformat
import pytest

from spml_nb.base import progress

SLOW = (
    'import time\nfrom spml_nb.base import progress\nprogress.PATIENCE, progress.LINE_INTERVAL = '
    '0.05, 0.1\nfor _ in progress.progress_bar(range(4), what="work"): time.sleep(0.06)\n'
)


@pytest.fixture
def log(monkeypatch, capsys):
    "What is written where stderr is no terminal, on a clock that a test sets."
    clock = [0.0]
    monkeypatch.setattr(progress, 'time', SimpleNamespace(monotonic=lambda: clock[0]))
    return lambda: capsys.readouterr().err.splitlines(), clock


def test_what_is_quick_shows_nothing(log):
    assert list(progress.progress_bar('abc', what='quick')) == ['a', 'b', 'c'] and log[0]() == []


def test_a_log_gets_a_line_each_half_minute_and_one_at_the_end(log):
    told, clock = log
    for _ in progress.progress_bar(range(10), what='features', unit='images'):
        clock[0] += 10
    lines = told()
    assert lines == [
        'features: 3 of 10 images in 00:30, about 01:10 left',
        'features: 6 of 10 images in 01:00, about 00:40 left',
        'features: 9 of 10 images in 01:30, about 00:10 left',
        'features: 10 of 10 images in 01:40',
    ]


def test_bytes_go_on_from_where_they_were(log):
    told, clock = log
    with progress.progress_meter(
        'voc12.tar', 2_000_000_000, start=1_000_000_000, unit='B'
    ) as count:
        clock[0] = 40
        count.update(500_000_000)
    assert told()[0] == 'voc12.tar: 1.50GB of 2.00GB in 00:40, about 00:40 left'


def test_a_loop_without_a_length_and_one_that_fails(log):
    told, clock = log
    with pytest.raises(ZeroDivisionError):
        for k in progress.progress_bar(iter(range(3)), what='rows'):
            clock[0] += 50
            1 // (1 - k)
    assert told() == ['rows: 1 in 00:50']


def test_nothing_is_shown_when_told_so(log):
    told, clock = log
    for _ in progress.progress_bar(range(3), what='rows', show=False):
        clock[0] += 100
    assert told() == []


def test_a_terminal_gets_a_bar_that_goes():
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack('4H', 24, 80, 0, 0))
    try:
        subprocess.run([sys.executable, '-c', SLOW], stderr=writer, check=True, timeout=60)
        shown = os.read(reader, 10_000).decode()
    finally:
        os.close(reader)
        os.close(writer)
    assert 'work: ' in shown and '/4 ' in shown and shown.endswith('\r') and '\n' not in shown
    log = subprocess.run(
        [sys.executable, '-c', SLOW], stderr=subprocess.PIPE, text=True, check=True
    ).stderr
    assert 'work: 4 of 4 in ' in log and '\r' not in log


def outputs(asking):
    "What a cell leaves in a notebook. asking: whether somebody who could answer has it open."
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SLOW)])
    client = nbclient.NotebookClient(notebook, kernel_name='python3', timeout=60)
    with client.setup_kernel():
        client.kc.allow_stdin = asking
        client.execute_cell(notebook.cells[0], 0)
    return notebook.cells[0].outputs


def test_a_notebook_gets_a_bar_only_where_a_person_has_it_open():
    assert any(
        'application/vnd.jupyter.widget-view+json' in output.get('data', {})
        for output in outputs(True)
    )
    left = outputs(False)
    assert {output.get('name') for output in left} == {'stdout'} and 'work: 4 of 4 in ' in left[
        -1
    ].text
