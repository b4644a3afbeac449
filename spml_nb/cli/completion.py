"""Completion of commands and their arguments by the shell."""

import argparse
import shlex

from ..base import settings
from ..runs.config import CHOICES, Config


def complete_argument() -> dict[str, str]:
    """Shell completion of arguments.

    Returns:
        {kind of argument: body of a bash function that prints the words starting with $1}.
    """
    from .. import data, methods
    from ..data.official import registry
    from ..replication import study
    from ..sweeps import presets, queue, search
    from ..tools import cleanup
    from ..use import comparison

    lists = {
        'loss': methods.names(),
        'benchmark': list(registry.BENCHMARKS),
        'paper': presets.PAPERS,
        'swept': ['methods', *study.EXPERIMENTS, *presets.PAPERS],
        'engine': queue.ENGINES,
        'state': cleanup.STATES,
        'suite': ('paper', *search.SUITES),
        'taken': comparison.PHOTO_SUITES,
    }
    values_of_fields = {'loss': methods.names(), 'dataset': data.names(), **CHOICES}
    cases = ' '.join(f'{name}) {_compgen(words)};;' for name, words in values_of_fields.items())
    names_of_fields = _compgen(Config.__annotations__)
    runs = shlex.quote(str(settings.get_folder('runs')))
    return {kind: _compgen(words) for kind, words in lists.items()} | {
        'file': 'compgen -f -- "$1"',
        'run': (
            f'local runs="$SPML_NB_RUNS" name; [ -n "$runs" ] || runs={runs}; '
            '{ (cd -- "$runs" > /dev/null 2>&1 && compgen -d -- "$1"); compgen -f -- "$1"; } | '
            r'while IFS= read -r name; do printf "%q\n" "$name"; done'
        ),
        'fields': f'case "${{COMP_WORDS[COMP_CWORD-1]}}" in -p) {names_of_fields};; {cases} esac',
    }


def _compgen(words) -> str:
    "A bash command that completes words. Bash expands each again, so each is quoted twice."
    return f'compgen -W {shlex.quote(shlex.join(words))} -- "$1"'


class PrintCompletion(argparse.Action):
    "Print the completion script of a shell, and exit."

    def __call__(self, command, namespace, shell, option=None):
        import shtab

        bodies = complete_argument().items()
        preamble = ''.join(f'_spml_{kind}() {{ {body}; }}\n' for kind, body in bodies)
        script = shtab.complete(command, shell, preamble={shell: preamble})
        print(script, flush=True)  # raises BrokenPipeError here, not at exit
        command.exit()
