"""What the commands share: the parser, and arguments of more than one of them."""

import argparse
import sys
from collections.abc import Callable

from ..base.escaping import escape_for_terminal
from ..runs.config import Config

# A command is two functions: `_add_NAME` declares its arguments; `_NAME` calls the library, prints,
# and returns something true if the exit status is 1. Imports are local to it, so that commands that
# only list things do not load torch.


class Parser(argparse.ArgumentParser):
    """A parser with shell completion for arguments, and with hints for fields of a run that are
    given in the wrong form.
    """

    def add_argument(self, *names, completes: str = '', **options) -> argparse.Action:
        "As in argparse. completes: a key of `complete_argument`."
        argument = super().add_argument(*names, **options)
        if completes:
            argument.complete = {'bash': f'_spml_{completes}'}
        return argument

    def parse_args(self, args=None, namespace=None) -> argparse.Namespace:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            message = f'unrecognized arguments: {" ".join(unknown)}'
            parsed.parser.error('. '.join(filter(None, [message, parsed.parser.suggest(unknown)])))
        return parsed

    def suggest(self, unknown: list[str]) -> str:
        "How to give a field of a run to this command; '' if no field was given."
        field = _find_field(unknown)
        if not field:
            return ''
        option = f'--{field.replace("_", "-")}'
        train = f'`spml train -p {field} VALUE`'
        options = self._option_string_actions
        if '-p' in options:
            return f'A field of a run is given as -p: `{self.prog} -p {field} VALUE`'
        if option in options:
            return f'`{self.prog}` takes it as {option} VALUE'
        if '--dry-run' in options:
            return f'`{self.prog}` tries settings by itself; one run with your own: {train}'
        if any(action.dest == 'run' for action in self._actions):
            return f'`{self.prog}` takes a run as it was trained; to train another: {train}'
        return f'`{self.prog}` takes no field of a run; {train} does'


def _find_field(words: list[str]) -> str:
    "The field of a run in unrecognised arguments such as ['-p', 'lr', '1'] or ['--lr=1']."
    if words[0] == '-p' and len(words) > 1:
        return words[1]
    options = [word[2:].partition('=')[0] for word in words if word.startswith('--')]
    fields = [option.replace('-', '_') for option in options]
    return next((field for field in fields if field in Config.__annotations__), '')


def add_command(commands, name: str, do: Callable, **options) -> Parser:
    "A sub-command whose description is the docstring of `do`, the function that carries it out."
    command = commands.add_parser(name, description=do.__doc__, **options)
    command.set_defaults(do=do, parser=command)
    return command


def add_fields(command: Parser, help: str):
    "Give a command the option -p NAME VALUE, which may be repeated, for fields of a run."
    command.add_argument(
        '-p',
        nargs=2,
        action='append',
        default=[],
        metavar=('NAME', 'VALUE'),
        dest='values',
        help=help,
        completes='fields',
    )


def print_csv(text: str):
    "Print text as it is; at a terminal, with control characters escaped."
    print(escape_for_terminal(text) if sys.stdout.isatty() else text, end='')
