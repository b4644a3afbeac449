"""`spml runs` and `spml reproduce`: runs that are on disk or in the record."""

from ..base.errors import SpmlError
from ..base.escaping import csv_for_spreadsheet
from ..base.files import print_line
from .parsing import add_command, add_fields, print_csv


def add_commands(commands):
    "Declare `spml runs` and `spml reproduce`."
    _add_runs(commands)
    _add_reproduce(commands)


def _add_runs(commands):
    command = add_command(commands, 'runs', _runs, help='list, filter and remove runs')
    add_fields(command, 'only runs with this value of a field of the configuration')
    command.add_argument(
        '--state', help='only done, begun, damaged or running ones', completes='state'
    )
    command.add_argument('--name', help='only names of this pattern, with * and ?', completes='run')
    command.add_argument('--days', type=float, help='only runs unchanged for so many days')
    command.add_argument(
        '--sort',
        metavar='COLUMN',
        help='numbers from high to low, words from A to Z (default: the newest first)',
    )
    command.add_argument('--csv', action='store_true', help='print all columns as CSV')
    command.add_argument(
        '--leftovers',
        action='store_true',
        help='list leftovers of killed processes, and caches unused for 30 days (or --days), '
        'instead of runs',
    )
    command.add_argument(
        '--remove',
        action='store_true',
        help='remove what is listed; without --yes only report what would be removed',
    )
    command.add_argument('--yes', action='store_true', help='really remove')


def _runs(args) -> bool | None:
    "List runs, or leftovers of killed processes; remove them with --remove --yes."
    from ..runs.config_parsing import parse_fields
    from ..tools import cleanup

    _check_runs_options(args)
    if args.leftovers:
        table = cleanup.find_leftovers(30 if args.days is None else args.days)
    else:
        fields = parse_fields(args.values)
        table = cleanup.list_runs(state=args.state, pattern=args.name, days=args.days, **fields)
    if args.sort:
        table = cleanup.sort_listing(table, args.sort)
    if args.csv:
        print_csv(csv_for_spreadsheet(table))
    else:
        print_line(cleanup.format_listing(table))
    if not args.remove:
        return None
    done = cleanup.remove_paths(table, dry_run=not args.yes)
    print_line(cleanup.describe_freed(done))
    print_line('' if args.yes else 'Add --yes to remove them.')
    return (done.outcome == 'refused').any()


def _check_runs_options(args):
    if args.yes and not args.remove:
        raise SpmlError('--yes goes with --remove: `spml runs --state damaged --remove --yes`.')
    if args.leftovers and (args.values or args.state or args.name):
        raise SpmlError(
            '--leftovers goes without -p, --state and --name: `spml runs --leftovers --days 7`.'
        )
    if args.csv and args.remove:
        raise SpmlError('--csv goes without --remove: `spml runs --csv > runs.csv`.')


def _add_reproduce(commands):
    command = add_command(
        commands, 'reproduce', _reproduce, help='train a finished run again and compare'
    )
    command.add_argument(
        'run', help="a finished run's name or folder, or a run of outputs/runs.csv", completes='run'
    )
    command.add_argument('--device', help='device to train on (default: that of the run)')


def _reproduce(args):
    "Train the configuration of a run again, and report every difference."
    from ..tools import reproduce

    print_line(reproduce.format_reproduction(reproduce.reproduce(args.run, device=args.device)))
