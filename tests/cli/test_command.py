"How `spml` ends: status, last line, and what is left of its output."

import io
import os
import subprocess
import sys

import pandas as pd
import pytest

import spml_nb
from spml_nb.base.escaping import any_name_in_frames
from spml_nb.cli import main
from spml_nb.replication import tables as papers
from spml_nb.tools import reproduce as reproduction
from spml_nb.training import launch as parallel
from spml_nb.use import comparison, scoring
from spml_nb.use import export as exporting
from spml_nb.use import predict as prediction


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as done:
        main(['--version'])
    assert done.value.code == 0 and capsys.readouterr().out.startswith(
        f'spml_nb {spml_nb.__version__}'
    )


@pytest.mark.parametrize(
    ('words', 'module', 'name', 'resumed'),
    [
        (['train'], parallel, 'launch', True),
        (['sweep', 'hml'], papers, 'sweep_tables', True),
        (['compare', 'photos'], comparison, 'compare', True),
        (['predict', 'r', '.'], prediction, 'predict', False),
        (['export', 'r', 'a.onnx'], exporting, 'export', False),
        (['evaluate', 'r', '.'], scoring, 'evaluate_model', False),
        (['reproduce', 'r'], reproduction, 'reproduce', False),
    ],
)
def test_only_what_goes_on_is_said_to_go_on(monkeypatch, capsys, words, module, name, resumed):
    def stop(*words, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, stop)
    assert main(words) == 130
    assert capsys.readouterr().err == (
        'stopped; the same command goes on from here\n' if resumed else 'stopped\n'
    )


def test_names_that_are_not_utf_8_are_printed_as_they_are(monkeypatch):
    with any_name_in_frames():
        table = pd.DataFrame({'image': ['caf\udce9.png'], 'labels': ['red']})
    table.attrs |= {'threshold': 0.5, 'unusable': {}}
    monkeypatch.setattr(prediction, 'predict', lambda *words, **options: table)
    with io.TextIOWrapper(io.BytesIO(), encoding='utf-8') as out:
        monkeypatch.setattr(sys, 'stdout', out)
        assert main(['predict', 'r', '.']) == 0
        assert b'caf\xe9.png,red' in out.buffer.getvalue()


def test_a_reader_that_has_gone_ends_the_command_quietly():
    code = (
        'import sys; from spml_nb.cli import doctor, main; '
        'doctor._doctor = lambda args: print("a line"); '
        'sys.exit(main(["doctor"]))'
    )
    with subprocess.Popen(
        [sys.executable, '-c', code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b'' and process.wait() == 141


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='needs the full device of Linux')
def test_output_to_a_full_disk_is_told():
    code = (
        'import sys; from spml_nb.cli import doctor, main; '
        'doctor._doctor = lambda args: print("a line"); '
        'sys.exit(main(["doctor"]))'
    )
    with open('/dev/full', 'w') as full:
        done = subprocess.run(
            [sys.executable, '-c', code], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (
        done.returncode == 2
        and done.stderr.startswith(
            'error: the output of this command could not be written: the disk is full'
        )
        and done.stderr.count('\n') == 1
    )


@pytest.mark.silent('C11')
@pytest.mark.skipif(sys.platform == 'win32', reason='needs a shell that closes')
@pytest.mark.parametrize('closed', ['>&-', '2>&-', '<&-', '>&- 2>&- <&-'])
def test_what_the_shell_has_closed_stops_nothing(closed):
    code = 'import sys; from spml_nb.cli import main; sys.exit(main(["runs"]))'
    done = subprocess.run(
        f"{sys.executable} -c '{code}' {closed}", shell=True, capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stderr


@pytest.mark.silent('C11')
def test_what_may_not_be_read_is_one_error(monkeypatch, capsys):
    from spml_nb.tools import cleanup

    def barred(*_, **__):
        raise PermissionError(13, 'Permission denied', 'there')

    monkeypatch.setattr(cleanup, 'list_runs', barred)
    assert (
        main(['runs']) == 2
        and 'error: there cannot be read or written (Permission denied)' in capsys.readouterr().err
    )
