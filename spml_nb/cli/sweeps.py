"""Commands that train many runs: `sweep` and `compare`; `presets` and `tables` of the study."""

import shlex
from collections.abc import Callable
from functools import partial

from ..base.errors import SpmlError, parse_number, require_one_of
from ..base.files import print_line
from .parsing import Parser, add_command


def add_commands(commands):
    "Declare the commands that train many runs, and `spml tables`."
    _add_presets(commands)
    _add_sweep(commands)
    _add_compare(commands)
    _add_tables(commands)


def _add_presets(commands):
    command = add_command(
        commands,
        'presets',
        _presets,
        help="the papers' hyper-parameters, each with its source",
    )
    command.add_argument(
        '--paper', help='hml, em_apl, opml, lac or two_way (default: all)', completes='paper'
    )
    command.add_argument(
        '--loss', help="one of the paper's losses (default: its own)", completes='loss'
    )


def _presets(args):
    """The papers' hyper-parameters: printed, from the authors' code, or chosen here where the
    sources are silent.
    """
    from ..methods import paper_values
    from ..sweeps import presets

    if args.loss and not args.paper:
        raise SpmlError('--loss goes with --paper: `spml presets --paper lac --loss em`.')
    for paper in [args.paper] if args.paper else presets.PAPERS:
        table = presets.preset_overview(paper, args.loss)
        print(paper_values.read_paper_values(paper).title, table.to_string(), sep='\n', end='\n\n')


def _add_launch(command: Parser):
    command.add_argument('--jobs', type=int, default=1, help='runs at a time (default: 1)')
    command.add_argument(
        '--engine',
        default='local',
        help='local: processes of this machine; ray: a cluster; stacked: as local, with many heads '
        'on frozen features in one pass of a GPU (default: local)',
        completes='engine',
    )
    command.add_argument(
        '--address', help='of the Ray cluster, such as auto (default: Ray on this machine alone)'
    )
    command.add_argument(
        '--dry-run',
        action='store_true',
        help='only report how many runs are missing, and the time and disk that they need',
    )
    command.add_argument(
        '--measure',
        action='store_true',
        help='with --dry-run: first time a few steps of each kind of run that no finished run is '
        'similar to, for about two minutes',
    )


def _add_sweep(commands):
    command = add_command(
        commands,
        'sweep',
        _sweep,
        help="train the missing runs of a paper's tables or figures, or of all methods",
    )
    command.add_argument(
        'paper',
        nargs='?',
        help='hml, opml, lac, two_way or em_apl; methods, for the board of all methods; biased, '
        'for labels that are not drawn at random; worth, for what a label is worth; '
        'observed_choice, for choosing without clean labels; '
        'ablations, for what each part of a method adds; two_steps, for LAC with a search for each '
        'of its stages; budget, for what a search buys; '
        'clean_photos, for what fully labelled photos are best used for; more_photos, for gains '
        'by the number of photos; second_backbone, for gains on another backbone; thresholds, for '
        'what one for each class or a few full labels change; ensembles, for what averaging '
        'networks adds; or whole_network, for methods and optimisers where all weights are '
        'trained, on a GPU',
        completes='swept',
    )
    command.add_argument('--table', help='one table of it, such as 2 or IV (default: all)')
    command.add_argument(
        '--figure',
        help='one figure of it, such as 3, instead of its tables; collects its arrays at the end',
    )
    command.add_argument(
        '--suite',
        help="paper: the papers' own data sets; photos: sets of photos that stand for them, a "
        'head on frozen features (default: photos). The board of methods also has photos_finetune '
        'and mini',
        completes='suite',
    )
    command.add_argument(
        '--dataset',
        nargs='+',
        default=(),
        metavar='NAME',
        help="not for papers: some of the suite's data sets (default: all)",
    )
    command.add_argument(
        '--loss',
        nargs='+',
        default=(),
        metavar='NAME',
        help='for methods: some of them (default: all)',
        completes='loss',
    )
    command.add_argument(
        '--seeds',
        type=int,
        nargs='+',
        metavar='S',
        help="seeds of observed labels and training (default: those of the suite; a figure has its "
        'own)',
    )
    _add_launch(command)
    command.add_argument(
        '--pack',
        metavar='FOLDER',
        help='instead of training, write all that another machine needs for it into a new folder: '
        'code, photos, weights, and run.sh, which needs no internet',
        completes='file',
    )
    command.add_argument(
        '--unpack',
        metavar='FILE',
        help='instead of a sweep: add the results of run.sh to your runs',
        completes='file',
    )
    command.add_argument(
        '--slice',
        nargs=2,
        metavar=('MINUTES', 'FILE'),
        help='used by run.sh: train for so long, then write finished runs into FILE for --unpack',
    )


def _sweep(args) -> bool | None:
    """Search on validation, then train the best settings with fresh seeds; finished runs are
    skipped. --pack prepares training on another machine, such as one with a GPU and no internet.
    """
    if args.pack or args.unpack or args.slice:
        return _sweep_elsewhere(args)
    _check_sweep(args)
    done = _with_measure(args, partial(_train_sweep, args))
    if args.dry_run:
        return None
    from ..runs import record

    record.export_csv()
    return (done.state != 'done').any()


def _train_sweep(args, **options):
    "Train the missing runs of a sweep. Options and result are those of `sweeps.run_stages`."
    from ..replication import study
    from ..sweeps import boards

    suite = args.suite or 'photos'
    if args.paper in study.EXPERIMENTS:
        return study.find_experiment(args.paper).sweep(args.dataset, **options)
    if args.paper == 'methods':
        return boards.sweep(suite, args.dataset, args.loss, **options)
    if args.figure:
        from ..replication import paper_figures

        return paper_figures.sweep_figures(args.paper, args.figure, suite, **options)
    from ..replication import tables

    return tables.sweep_tables(args.paper, args.table, suite, seeds=args.seeds, **options)


def _with_measure(args, launch: Callable):
    "Launch runs; with `--measure`, first time a few steps of those whose length is unknown."
    from ..sweeps import estimate

    options = {name: getattr(args, name) for name in ('jobs', 'engine', 'address', 'dry_run')}
    if args.measure and not args.dry_run:
        raise SpmlError('--measure goes with --dry-run: `spml sweep hml --dry-run --measure`.')
    if args.measure:
        plan = launch(tell=lambda line: None, **options)
        estimate.measure_paces(plan.config[_is_length_unknown(plan)], print_line)
    done = launch(tell=print_line, **options)
    if args.dry_run and not args.measure and (count := _is_length_unknown(done).sum()):
        print_line(
            f'How long {count} of these runs take is not known: nothing like them was run or timed '
            'here. To time a few steps of each kind, in about two minutes: '
            f'`spml {shlex.join(args.words)} --measure`'
        )
    return done


def _is_length_unknown(plan):
    return plan.expected.isna() & (plan.state != 'done')


def _sweep_elsewhere(args) -> bool | None:
    "Pack a sweep, train it for some minutes, or unpack its results."
    from ..sweeps import packing

    if args.dry_run or args.engine != 'local' or args.address:
        raise SpmlError(
            '--pack, --unpack and --slice go without --dry-run, --engine and --address.'
        )
    if args.unpack:
        if args.paper or args.pack or args.slice:
            raise SpmlError(
                'the file names its sweep itself: `spml sweep --unpack results.zip` alone.'
            )
        packing.unpack_results(args.unpack, _plan_sweep)
        return None
    words = _name_sweep(args)
    plans = _plan_sweep(words)
    if args.pack:
        packing.pack_sweep(args.pack, words, plans)
        return None
    minutes, file = args.slice
    packing.train_slice(plans, _parse_minutes(minutes), args.jobs)
    return not packing.collect_results(file, words, plans)


def _parse_minutes(text: str) -> float:
    minutes = parse_number(text)
    if not 0 < minutes < float('inf'):
        raise SpmlError(f'{text} minutes; allowed: a number above 0.')
    return minutes


def _name_sweep(args) -> list[str]:
    "The arguments that name a sweep, without options of the launch."
    words = [args.paper] if args.paper else []
    for option in ('table', 'figure', 'suite', 'dataset', 'loss', 'seeds'):
        value = getattr(args, option)
        values = value if isinstance(value, list) else [value]
        if value:
            words += [f'--{option}', *map(str, values)]
    return words


def _plan_sweep(words: list[str]) -> list:
    "A `sweeps.queue.Plan` for each step of a sweep."
    parser = Parser('spml')
    _add_sweep(parser.add_subparsers())
    args = parser.parse_args(['sweep', *words])
    _check_sweep(args)
    if args.figure or args.paper in ('observed_choice', 'thresholds', 'ensembles'):
        raise SpmlError(
            'figures, observed_choice, thresholds and ensembles need arrays of their runs, which '
            'stay where they are trained: give --pack with a table, another experiment or the '
            'board of methods.'
        )
    plans = []
    _train_sweep(args, dry_run=True, plans=plans, tell=lambda line: None)
    return plans


def _check_sweep(args):
    "Refuse options that exclude each other, or that the sweep does not have."
    from ..replication import study
    from ..sweeps import presets

    require_one_of(args.paper or '', [*presets.PAPERS, 'methods', *study.EXPERIMENTS], 'paper')
    if args.figure and (args.table or args.seeds):
        raise SpmlError('--figure goes without --table and --seeds: `spml sweep hml --figure 3`.')
    if args.loss and args.paper != 'methods':
        raise SpmlError('--loss goes with methods alone: `spml sweep methods --loss em hml`.')
    not_papers = ('methods', *study.EXPERIMENTS)
    if args.paper in not_papers:
        is_wrong = args.table or args.figure or args.seeds
    else:
        is_wrong = args.dataset
    if is_wrong or (args.suite and args.paper in study.EXPERIMENTS):
        raise SpmlError(
            f"--dataset goes with {', '.join(not_papers)}, --table, --figure and --seeds with a "
            'paper, --suite with a paper or methods: `spml sweep methods --dataset voc12_animals`.'
        )


def _add_compare(commands):
    command = add_command(
        commands, 'compare', _compare, help='which method to take on photos of your own'
    )
    command.add_argument('folder', help='a folder with images/ and labels.csv', completes='file')
    command.add_argument(
        'methods',
        nargs='*',
        default=[],
        metavar='LOSS',
        help='methods to compare (default: all), such as an em hml: unknown labels as negative, as '
        'uncertain, or as negative with a margin for false negatives',
        completes='loss',
    )
    command.add_argument(
        '--seeds', type=int, default=3, help='final runs of each method (default: 3)'
    )
    command.add_argument(
        '--labels',
        default='full',
        help='what is observed (default: full, all that the table knows)',
    )
    command.add_argument(
        '--min-positives',
        type=int,
        default=0,
        help='leave out classes with fewer positives (default: 0), as -p min_positives does with '
        '`spml train`',
    )
    command.add_argument(
        '--exclude',
        default='',
        metavar='NAMES',
        help="leave out these classes, such as 'stop sign, bear' (default: none)",
    )
    command.add_argument(
        '--side',
        default='',
        help='a .csv or .npz with side information about each photo (default: none)',
        completes='file',
    )
    command.add_argument(
        '--suite',
        default='photos',
        help='photos: heads on frozen features; photos_finetune: whole networks (default: photos)',
        completes='taken',
    )
    _add_launch(command)


def _compare(args) -> bool | None:
    """Give each method the same search on a folder of photos, train its best settings with fresh
    seeds, and recommend one, with its uncertainty. It may be stopped and resumed at any time.
    """
    from ..use import comparison

    done = _with_measure(
        args,
        partial(
            comparison.compare,
            args.folder,
            args.methods,
            args.labels,
            args.suite,
            args.seeds,
            args.min_positives,
            exclude=args.exclude,
            side=args.side,
        ),
    )
    return None if args.dry_run else (done.state != 'done').any()


def _add_tables(commands):
    add_command(
        commands,
        'tables',
        _tables,
        help='rebuild the tables, figures, claims and pages in outputs/ from outputs/runs.csv',
    )


def _tables(args):
    """Rebuild outputs/ from runs.csv and the arrays of the figures, without training; open
    outputs/index.html then.
    """
    from ..replication import study

    study.write_study(tell=print_line)
