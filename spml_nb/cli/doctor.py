"""`spml doctor`: what a run needs of this machine."""

from ..base.files import print_line
from .parsing import add_command


def add_commands(commands):
    "Declare `spml doctor`."
    command = add_command(
        commands,
        'doctor',
        _doctor,
        help='check environment, GPU, disk, data and versions',
    )
    command.add_argument(
        '--quick', action='store_true', help='only checks that do not import torch'
    )


def _doctor(args) -> bool:
    "Check environment, GPU, disk, data and versions; exit status 1 if there is a problem."
    from ..tools import doctor

    table = doctor.check_installation(quick=args.quick)
    print_line(doctor.format_findings(table))
    return (table.state == 'problem').any()
