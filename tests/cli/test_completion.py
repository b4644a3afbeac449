"What the shell completes, and that it executes nothing."

import os
import subprocess
import sys

import pytest

from spml_nb import data, methods
from spml_nb.cli.completion import complete_argument


@pytest.fixture(scope='module')
def complete(tmp_path_factory):
    "What bash offers: complete('spml train -p lo') gives a list of words."
    pytest.importorskip('shtab')
    folder = tmp_path_factory.mktemp('shell')
    done = subprocess.run(
        [
            sys.executable,
            '-c',
            'from spml_nb.cli import main; main()',
            '--print-completion',
            'bash',
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (folder / 'spml.bash').write_text(done.stdout)

    def complete(line, **environment):
        words = line.split(' ')
        code = (
            f'source {folder}/spml.bash; COMP_WORDS=({" ".join(map(repr, words))}); '
            f'COMP_CWORD={len(words) - 1}; _shtab_spml; printf "%s\\n" "${{COMPREPLY[@]}}"'
        )
        return subprocess.run(
            ['bash', '-c', code], capture_output=True, text=True, env={**os.environ, **environment}
        ).stdout.split()

    return complete


@pytest.mark.skipif(sys.platform == 'win32', reason='needs bash')
def test_the_shell_completes_commands_losses_data_sets_and_runs(complete, tmp_path):
    assert complete('spml repr') == ['reproduce'] and '--mirror' in complete('spml data --')
    assert complete('spml train -p lo') == ['loss'] and complete('spml train -p loss two_') == [
        n for n in methods.names() if n.startswith('two_')
    ]
    assert complete('spml train -p loss em -p dataset mini_') == [
        n for n in data.names() if n.startswith('mini_')
    ]
    assert (
        complete('spml runs -p regime lin') == ['linear', 'linear_init']
        and complete('spml sweep two') == ['two_steps', 'two_way']
        and complete('spml sweep me') == ['methods']
        and complete('spml sweep wo') == ['worth']
    )
    assert complete('spml compare photos --suite p') == [
        'photos',
        'photos_finetune',
    ] and 'paper' in complete('spml sweep hml --suite p')
    assert complete('spml data voc') == ['voc12', 'voc07', 'voc12_animals']
    (tmp_path / 'em-mini_voc-1234').mkdir()
    assert complete('spml predict em', SPML_NB_RUNS=str(tmp_path)) == ['em-mini_voc-1234']
    (tmp_path / 'an-$(echo executed)').mkdir()
    assert 'an-executed' not in complete('spml predict an', SPML_NB_RUNS=str(tmp_path))


HOSTILE = (
    '$(touch {})',
    '`touch {}`',
    '"; touch {}; "',
    "'; touch {}; '",
    '}}; touch {}; {{',
    '$(touch {})\n',
)


@pytest.mark.silent('C10')
@pytest.mark.skipif(sys.platform == 'win32', reason='needs bash')
@pytest.mark.parametrize('hostile', HOSTILE)
def test_the_completion_executes_nothing_that_it_was_given(hostile, tmp_path, monkeypatch):
    pytest.importorskip('shtab')
    touched, folder = tmp_path / 'touched', tmp_path / 'here'
    text = hostile.format('../touched')
    folder.mkdir()
    (folder / 'settings.ini').write_text(f'[spml_nb]\nruns = x{text}\n')
    for name in ('SPML_NB_RUNS', 'SPML_NB_SETTINGS'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    for module in (methods, data):
        monkeypatch.setattr(module, 'names', lambda: [f'b{text}', 'plain'])
    bodies = complete_argument()
    script = '\n'.join(f'_spml_{kind}() {{ {body}; }}' for kind, body in bodies.items())
    for kind in bodies:
        script += (
            f'\nCOMP_WORDS=(spml train -p dataset b) COMP_CWORD=4; _spml_{kind} b; _spml_{kind} ""'
        )
    done = subprocess.run(['bash', '-c', script], capture_output=True, text=True)
    assert not touched.exists() and done.returncode == 0 and 'syntax error' not in done.stderr, (
        done.stderr
    )
    assert 'plain' in done.stdout


@pytest.mark.silent('C10')
@pytest.mark.skipif(sys.platform == 'win32', reason='needs bash')
def test_a_completed_name_is_a_word_for_the_shell(complete, tmp_path):
    (tmp_path / 'an-$(echo executed)').mkdir()
    assert (
        ' '.join(complete('spml predict an', SPML_NB_RUNS=str(tmp_path)))
        == r'an-\$\(echo\ executed\)'
    )


@pytest.mark.skipif(sys.platform == 'win32', reason='needs a pipe that closes')
def test_a_reader_that_takes_part_of_the_completion_ends_it_quietly():
    pytest.importorskip('shtab')
    with subprocess.Popen(
        [
            sys.executable,
            '-c',
            'import sys; from spml_nb.cli import main; sys.exit(main())',
            '--print-completion',
            'bash',
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b'' and process.wait() == 141
