"""`spml`: one command, with a sub-command for each task at a terminal."""

import argparse
import contextlib
import errno
import os
import re
import shlex
import sys
import typing
from importlib import import_module
from pathlib import Path

from . import __version__
from .base import settings
from .base.errors import SpmlError, one_of, short_warnings
from .base.escaping import csv_for_spreadsheet, escape_for_terminal
from .base.files import refuse_existing, regular, say
from .runs.config import CHOICES, PROTOCOL, Config

# {sub-command: (what it does, its two texts of help, its arguments as from `_argument`, what makes
# the text below its help)}. Where what it does gives something true, the exit status is 1.
COMMANDS = {}


def _argument(*names: str, completes: str = '', **options):
    """An argument of a command: names and options as of argparse's add_argument; completes: a key
    of `completions`.
    """
    return names, options, completes


def _command(help: str, description: str, *arguments, below=str):
    "A decorator that makes the function `_NAME` the sub-command NAME."

    def register(do):
        COMMANDS[do.__name__.removeprefix('_')] = do, help, description, arguments, below
        return do

    return register


@_command(
    'look at a folder of your own; fetch and verify a data set of the papers; list them',
    'Fetch, unpack, verify a benchmark and write its table; or look at a folder of your own. '
    'Without a name: list all benchmarks.',
    _argument(
        'name',
        nargs='?',
        help='a benchmark, such as ccp, voc12 or coco14; or a folder with images/ and labels.csv',
        completes='benchmark',
    ),
    _argument('--root', help='folder of data sets (unset: `data` in settings.ini)'),
    _argument(
        '--check',
        action='store_true',
        help='only say what is missing, or what is wrong with your folder; exit status 1 if '
        'something is missing, photos cannot be used or are in two parts, or there is '
        'nothing to learn',
    ),
    _argument(
        '--mirror',
        help='address or folder to try first, with files as NAME/FILE (unset: SPML_NB_MIRROR)',
    ),
)
def _data(args) -> bool | None:
    from spml_nb.data import glance
    from spml_nb.data.dataset import MINIATURES, listed
    from spml_nb.data.folder import first_there, places
    from spml_nb.data.official import registry

    if (args.check and args.name is None) or (args.mirror and args.name not in registry.BENCHMARKS):
        raise SpmlError(
            '--check needs the name of a data set, and --mirror that of a benchmark: '
            '`spml data ccp --check`.'
        )
    if args.name is None:
        say(
            f'{registry.overview(args.root)}\nDrawn when they are used, without files: '
            f'{listed(MINIATURES)}'
        )
    elif args.name not in registry.BENCHMARKS and os.path.isdir(
        first_there(places(args.name, args.root))
    ):
        found = glance.check(args.name, args.root)
        say(found.text)
        return not found.ready
    elif args.name not in registry.BENCHMARKS:
        one_of(
            args.name,
            registry.names(),
            'benchmark',
            f'Nor is there a folder {listed(places(args.name, args.root))}. Miniatures need no '
            'files.',
        )
    elif args.check:
        missing = registry.check(args.name, args.root)
        say('\n'.join(missing) or f'{args.name} is ready.')
        return bool(missing)
    else:
        registry.prepare(args.name, args.root, args.mirror, tell=say)


def _fields_argument(meaning: str):
    return _argument(
        '-p',
        nargs=2,
        action='append',
        default=[],
        metavar=('NAME', 'VALUE'),
        dest='values',
        help=meaning,
        completes='fields',
    )


def _yaml(text: str, form: str, source: str = ''):
    "What a text says. form: how it ought to be written; source: the file that it comes from."
    import yaml

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise ValueError(
                'it uses an alias (*name), by which a short text may stand for an endless one'
            )
        return yaml.safe_load(text)
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ) as error:  # ValueError: a date that does not exist
        why = f": {' '.join(str(error).split())}" if source else ''
        raise SpmlError(
            f'{source or repr(text)} cannot be read as YAML{why}. Write {form}.'
        ) from error


def _mapping(text: str, form: str, source: str = '') -> dict:
    "The fields that a text names."
    fields = _yaml(text, form, source)
    _refuse_misread(text, source)
    if isinstance(fields, dict) and all(isinstance(name, str) for name in fields):
        return fields
    raise SpmlError(f'{source or repr(text)} holds no fields. Write {form}.')


_MISREAD = re.compile(r'[-+]?(0[0-7_]+|[1-9][0-9_]*(:[0-5]?[0-9])+)')


def _refuse_misread(text: str, source: str = ''):
    "Refuse what YAML takes for another number than a person: 010 for 8, 1:30 for 90."
    import yaml

    for event in yaml.parse(text, yaml.SafeLoader):
        if (
            isinstance(event, yaml.ScalarEvent)
            and event.style is None
            and _MISREAD.fullmatch(event.value)
        ):
            raise SpmlError(
                f'{source or repr(text)} holds {event.value}, which YAML reads as '
                f'{yaml.safe_load(event.value)}. Write a number without 0 in front and without a '
                'colon, '
                f"or '{event.value}' in quotation marks for a text."
            )


def _fields(args) -> dict:
    """What -p gave, each value read as YAML; where the field is a text or a number, a number or a
    date stays a text.
    """
    given = {}
    for name, text in args.values:
        kind = Config.__annotations__.get(name)
        worded = {str, tuple, int, float} & {kind, *typing.get_args(kind)}
        plain = name == 'exclude' and not text.lstrip().startswith(
            '['
        )  # a class may be called null
        plain |= str in worded and not text.isprintable()  # a name that is not UTF-8 is no YAML
        value = (
            text
            if plain
            else _yaml(
                text,
                f"""it as -p {name} "'{text}'" if it is a text, or as -p {name} '[a, b]' if it is a list""",
            )
        )
        if worded and (
            (' #' in text and text[0] not in '\'"[')  # a comment for YAML, which reads 010 as 8
            or not isinstance(value, str | list | dict | None)
        ):
            value = text
        elif isinstance(value, list | dict):
            _refuse_misread(text)
        given = _over(given, {name: value})
    return given


def _like(name: str, given: dict) -> dict:
    """The fields of a recorded run, but for those of the machine that it ran on. given: what is
    laid over them.
    """
    import difflib

    import pandas as pd

    from spml_nb.runs import record
    from spml_nb.runs.config import completed, resolve, science_key
    from spml_nb.runs.folder import read_json

    runs, file = settings.path('runs'), settings.path('outputs') / 'runs.csv'
    lines = (
        record.read_record(file, dtype=str, keep_default_na=False)
        if file.is_file()
        else pd.DataFrame(columns=['run', 'key'])
    )
    known = pd.concat([each.reindex(columns=['run', 'key']) for each in (record.load(), lines)])
    found = known.run[(known.run == name) | (known.key == name)]
    if found.empty:
        near = difflib.get_close_matches(name, [*known.run, *known.key], 3, 0.5)
        raise SpmlError(
            f'no recorded run {name!r} in {file} or {runs}. '
            + (f"Near it: {', '.join(near)}. " if near else '')
            + 'Take a run or a key of runs.csv, or a name that `spml runs` prints.'
        )
    own = runs / found.iloc[0] / 'config.json'
    if own.is_file():
        fields, elsewhere = completed(read_json(own, ('loss', 'dataset', 'hparams'))), ('device',)
    else:
        line = lines[lines.run == found.iloc[0]].iloc[0].to_dict()
        config, elsewhere = (
            Config(**vars(record.configuration(line)) | {'device': None}),
            ('device', 'root'),
        )
        if (
            'dataset' not in given and science_key(resolve(config)) != line['key']
        ):  # the record has no paths
            raise SpmlError(
                f"{name} was trained on other photos or labels than {line['dataset']!r} has here. "
                "Give "
                'theirs: -p dataset FOLDER.'
            )
        fields = vars(config)
    return {
        field: fields[field]
        for field in Config.__annotations__
        if field in fields and field not in elsewhere
    }


def _changed(recorded: dict, given: dict) -> dict:
    """A recorded configuration with other values; another method brings its own hyper-parameters,
    head and recipe.
    """
    from spml_nb.methods.core import find

    old, new = recorded['loss'], given.get('loss', recorded['loss'])
    if new != old:
        own = {
            'hparams',
            'head',
            'side',
            'embedding_dim',
            'views',
            *find(old).recipe,
            *find(new).recipe,
        }
        recorded = {key: value for key, value in recorded.items() if key not in own}
    return _over(recorded, given)


def _over(given: dict, more: dict) -> dict:
    "Fields with others on top of them, hyper-parameters one by one."
    each = [fields['hparams'] for fields in (given, more) if 'hparams' in fields]
    return (
        given
        | more
        | ({'hparams': each[0] | each[1]} if [*map(type, each)] == [dict, dict] else {})
    )


def _of_file(file: str) -> dict:
    "The fields in a YAML file."
    try:
        text = regular(Path(file)).read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError) as error:
        raise SpmlError(
            f'{file} cannot be read: {error}. Name a file with lines such as `loss: em`.'
        ) from error
    return _mapping(text, 'lines such as `loss: em`', file)


def _described() -> str:
    """Every field of a configuration with its kind, its default and its meaning."""
    import dataclasses

    lines = [
        'fields (-p NAME VALUE); loss, data and regime decide those without a default, a loss may '
        'change others:'
    ]
    for field in dataclasses.fields(Config):
        kind, *_ = typing.get_args(field.type) or (field.type,)
        text = field.metadata['meaning']
        choices = field.metadata.get('choices', ())
        if not all(choice in text for choice in choices):
            text = f'{text} ({", ".join(choices)})'.strip()
        default = (
            field.default
            if field.default not in (None, dataclasses.MISSING)
            else PROTOCOL.get(field.name, '')
        )
        lines.append(f'  {field.name:<20}{kind.__name__:<7}{default!s:<11}{text}'.rstrip())
    return '\n'.join(lines)


@_command(
    'one run: train, go on, or say what came of it',
    'Train a run; the names are those of nbs/train.ipynb.',
    _fields_argument('a field of the configuration, as with papermill'),
    _argument(
        '-y',
        action='append',
        default=[],
        metavar='YAML',
        dest='yaml',
        help="fields as YAML, such as 'hparams: {alpha: 0.1}'",
    ),
    _argument(
        '--config', completes='file', help='a YAML file of fields; -y and -p come on top of it'
    ),
    _argument(
        '--like',
        metavar='RUN',
        completes='run',
        help='start from the configuration of a recorded run, its name or key; -p and -y change it',
    ),
    _argument(
        '--nproc',
        type=int,
        default=1,
        help='processes of this machine that train it together (unset: 1)',
    ),
    below=_described,
)
def _train(args):
    from spml_nb.data.labels import against
    from spml_nb.training import launch
    from spml_nb.training.summary import absent_classes, named_in_words, named_on_validation

    given = _of_file(args.config) if args.config else {}
    for text in args.yaml:
        given = _over(given, _mapping(text, "-y 'name: value', such as -y 'hparams: {alpha: 0.1}'"))
    given = _over(given, _fields(args))
    if args.like:
        given = _changed(_like(args.like, given), given)
    result = launch.launch(Config(**given), args.nproc, tell=say)
    val, test = (
        f"{result.scores[f'{part}_map']:.2f} against {against(result.scores[f'{part}_truth'])}"
        if f'{part}_map' in result.scores
        else 'not measured'
        for part in ('val', 'test')
    )
    say(
        f'{result.folder}: validation mAP {val}; test mAP {test}'
        + absent_classes(result.scores)
        + _seen(result.scores)
    )
    if named := named_on_validation(result.scores):
        threshold = result.scores['threshold']
        say(f'On validation the threshold {threshold:.4g} names {named_in_words(named)}.')


def _seen(scores: dict) -> str:
    "What the choice of the epoch went by, where it is another number."
    seen = scores.get('val_map_seen')
    if seen is None or seen == scores['val_map']:
        return ''
    return (
        '. Over the classes that training photos have, by which the epoch was chosen: validation '
        f'mAP {seen:.2f}'
    )


def _print_csv(text: str):
    """A file of comma-separated text as it is; a person at a terminal sees control characters
    written out.
    """
    print(escape_for_terminal(text) if sys.stdout.isatty() else text, end='')


_MODEL = (
    "a finished run's name or folder, a .safetensors or .onnx file or a folder of `spml export`, "
    "or a model that "
    'comes with the package: coco18, mirflickr14 or voc12_animals'
)


@_command(
    'the labels of new images, with probabilities',
    'Labels and the probability of every class for images that have none.',
    _argument('run', completes='run', help=_MODEL),
    _argument('images', nargs='+', completes='file', help='a folder, or image files'),
    _argument(
        '--out',
        completes='file',
        help='a new CSV file for the whole table (unset: image and labels are printed)',
    ),
    _argument(
        '--threshold',
        type=float,
        metavar='T',
        help=(
            "the probability from which on a label is named, between 0 and 1 (unset: the model's "
            "own)"
        ),
    ),
)
def _predict(args) -> bool:
    from spml_nb.use import predict

    if args.out:  # before the work
        if os.path.splitext(args.out)[1].lower() not in ('.csv', ''):
            raise SpmlError(
                f'{args.out}: predictions are written as comma-separated text. Name a file that '
                'ends in .csv.'
            )
        refuse_existing(args.out)
    images = args.images[0] if len(args.images) == 1 else args.images
    table = predict.predict(args.run, images, threshold=args.threshold, skip_unreadable=True)
    said = f"threshold {table.attrs['threshold']:.4g}: a label is named from this probability on"
    said += f'\n{_named(table)}'
    if args.out:
        predict.write_csv(table, args.out)
        say(f'{len(table)} images: {args.out}\n{said}')
    else:
        print(said, file=sys.stderr)  # the table alone goes where output is sent to
        _print_csv(predict.as_csv(table[['image', 'labels']]))
    unusable = table.attrs['unusable']
    if unusable:
        print(f'{len(unusable):,} images cannot be used and are left out:', file=sys.stderr)
    for name, why in unusable.items():
        print(f'{name} ({why})', file=sys.stderr)
    return bool(unusable)


def _named(table) -> str:
    "How many labels are named here, and on validation photos with one label each."
    from spml_nb.training.summary import named_in_words

    count = table.iloc[:, -1].map(lambda labels: labels.count('|') + 1 if labels else 0)
    here = {'labels_a_photo': count.mean(), 'without_label': (count == 0).mean()}
    text = f'named: {named_in_words(here)}'
    on_validation = table.attrs.get('on_validation')
    return f'{text}; on validation {named_in_words(on_validation)}' if on_validation else text


@_command(
    'a run as one file, or as a folder with a card',
    'Write a finished run as .safetensors, .pt2 (torch.export) or .onnx; with --card as a folder '
    'for a hub.',
    _argument('run', completes='run', help="a finished run's name or folder"),
    _argument(
        'file',
        nargs='?',
        completes='file',
        help="a new file; its suffix says how; with --card a new folder (unset: the run's name)",
    ),
    _argument(
        '--card', action='store_true', help='write weights, configuration and card into a folder'
    ),
)
def _export(args):
    from spml_nb.use import card, export

    if not (args.file or args.card):
        raise SpmlError(
            'spml export wants a file, or --card: `spml export RUN model.onnx`, `spml export RUN '
            '--card`.'
        )
    file = args.file or os.path.basename(os.path.normpath(args.run))
    refuse_existing(file)
    say(str(card.write_folder(args.run, file) if args.card else export.export(args.run, file)))


@_command(
    'how well a model names labels that are known',
    'Score a model on a folder with images/ and labels.csv: counts, precision, recall and mAP, '
    'with intervals.',
    _argument('run', completes='run', help=_MODEL),
    _argument(
        'folder', completes='file', help='photos with known labels, or the name of a data set'
    ),
    _argument(
        '--part',
        help='train, val, test, or all photos whatever the column `split` says (unset: test '
        'for the data that the model was trained on, for a named set, and for a folder '
        'with a column `split`; else all)',
    ),
)
def _evaluate(args):
    from spml_nb.use import scoring

    say(str(scoring.evaluate(args.run, args.folder, args.part)))


@_command(
    'the threshold of a run, from a few photos that are labelled in full',
    'Set the threshold of a finished run to the one with the best micro-F1 on fully labelled '
    'photos. It is kept with the run, and predict, evaluate and export use it.',
    _argument('run', completes='run', help="a finished run's name or folder"),
    _argument('folder', completes='file', help='a folder with images/ and labels.csv'),
)
def _calibrate(args):
    from spml_nb.use import calibrate

    print(calibrate.calibrate(args.run, args.folder))


@_command(
    'list, filter and remove runs',
    'List the runs, or what killed processes left behind; remove them with --remove --yes.',
    _fields_argument('only runs with this value of a field of the configuration'),
    _argument('--state', help='only done, begun, damaged or running ones', completes='state'),
    _argument('--name', help='only names of this pattern, with * and ?', completes='run'),
    _argument('--days', type=float, help='only what has not changed for so many days'),
    _argument(
        '--sort',
        metavar='COLUMN',
        help='numbers from high to low, words from A to Z (unset: the newest first)',
    ),
    _argument('--csv', action='store_true', help='the whole table, separated by commas'),
    _argument(
        '--leftovers',
        action='store_true',
        help=(
            'instead of runs: what killed processes left, and caches not used for 30 days (or '
            '--days)'
        ),
    ),
    _argument(
        '--remove',
        action='store_true',
        help='remove what is listed; without --yes only say what would go',
    ),
    _argument('--yes', action='store_true', help='really remove'),
)
def _runs(args) -> bool | None:
    from spml_nb.tools import cleanup

    for wrong, error in (
        (
            args.yes and not args.remove,
            SpmlError('--yes goes with --remove: `spml runs --state damaged --remove --yes`.'),
        ),
        (
            args.leftovers and (args.values or args.state or args.name),
            SpmlError(
                '--leftovers goes without -p, --state and --name: `spml runs --leftovers --days 7`.'
            ),
        ),
        (
            args.csv and args.remove,
            SpmlError('--csv goes without --remove: `spml runs --csv > runs.csv`.'),
        ),
    ):
        if wrong:
            raise error
    if args.leftovers:
        table = cleanup.leftovers(30 if args.days is None else args.days)
    else:
        table = cleanup.listing(
            state=args.state, pattern=args.name, days=args.days, **_fields(args)
        )
    if args.sort:
        table = cleanup.by(table, args.sort)
    if args.csv:
        _print_csv(csv_for_spreadsheet(table))
    else:
        say(cleanup.text(table))
    if not args.remove:
        return None
    done = cleanup.remove(table, dry_run=not args.yes)
    say('\n'.join([cleanup.freed(done), '' if args.yes else 'Add --yes to remove them.']))
    return (done.outcome == 'refused').any()


@_command(
    'train a finished run again and compare',
    'Train the same configuration again, beside the first, and report every difference.',
    _argument(
        'run', completes='run', help="a finished run's name or folder, or a run of outputs/runs.csv"
    ),
    _argument('--device', help='train it there (unset: where the run was trained)'),
)
def _reproduce(args):
    from spml_nb.tools import reproduce

    say(reproduce.text(reproduce.reproduce(args.run, device=args.device)))


@_command(
    "the papers' hyper-parameters, each with its source",
    "The papers' hyper-parameters: printed, from the authors' code, or chosen here where the "
    "sources are silent.",
    _argument('--paper', help='hml, em_apl, opml, lac or two_way (unset: all)', completes='paper'),
    _argument('--loss', help="one of the paper's losses (unset: its own)", completes='loss'),
)
def _presets(args):
    from spml_nb.sweeps import presets

    if args.loss and not args.paper:
        raise SpmlError('--loss goes with --paper: `spml presets --paper lac --loss em`.')
    for paper in [args.paper] if args.paper else presets.PAPERS:
        table = presets.overview(paper, args.loss)
        print(presets.PAPERS[paper].title, table.to_string(), sep='\n', end='\n\n')


_LAUNCH = (
    _argument('--jobs', type=int, default=1, help='runs at a time (unset: 1)'),
    _argument(
        '--engine',
        default='local',
        completes='engine',
        help='local: processes of this machine; ray: a cluster (unset: local)',
    ),
    _argument(
        '--address', help='of the Ray cluster, such as auto (unset: Ray on this machine alone)'
    ),
    _argument(
        '--dry-run',
        action='store_true',
        help='only say how many runs are missing and how long they will take',
    ),
)

_BOARDS = (
    'methods',
    'biased',
    'choice',
    'worth',
    'observed_choice',
)  # what `spml sweep` knows besides papers


def _launched(args) -> dict:
    return {name: getattr(args, name) for name in ('jobs', 'engine', 'address', 'dry_run')}


@_command(
    "run what a paper's tables or figures, or the board of all methods, still need",
    'Search on validation, then train the choice with fresh seeds; finished runs are never run '
    'again.',
    _argument(
        'paper',
        help=(
            'hml, opml, lac, two_way or em_apl; methods, for the board of all methods; biased, '
            'for labels that are not drawn at random; choice, for AN at other rates of its '
            'search; worth, for what a label is worth; or observed_choice, for choosing without '
            'clean labels'
        ),
        completes='swept',
    ),
    _argument('--table', help='one table of it, such as 2 or IV (unset: all)'),
    _argument(
        '--figure',
        help=(
            'one figure of it, such as 3, instead of its tables; its arrays are collected in the '
            'end'
        ),
    ),
    _argument(
        '--suite',
        completes='suite',
        help="paper: the papers' own data sets; photos: sets of photos that stand for them, a head on "
        'frozen features (unset: photos). The board of methods also has photos_finetune and mini',
    ),
    _argument(
        '--dataset',
        nargs='+',
        default=(),
        metavar='NAME',
        help="of all but papers: some of the suite's data sets (unset: all)",
    ),
    _argument(
        '--loss',
        nargs='+',
        default=(),
        metavar='NAME',
        completes='loss',
        help='of methods: some of them (unset: all)',
    ),
    _argument(
        '--seeds',
        type=int,
        nargs='+',
        metavar='S',
        help=(
            "of observed labels and training (unset: the suite's number from 0; a figure takes "
            "its own)"
        ),
    ),
    *_LAUNCH,
)
def _sweep(args) -> bool | None:
    # each imports what it needs and no more: a dry run need not wait for all of the study
    from spml_nb.sweeps import presets, search

    one_of(args.paper, [*presets.PAPERS, *_BOARDS], 'paper')
    own_suite, of_paper = args.paper in _BOARDS[1:], args.table or args.figure or args.seeds
    for wrong, error in (
        (
            args.figure and (args.table or args.seeds),
            SpmlError('--figure goes without --table and --seeds: `spml sweep hml --figure 3`.'),
        ),
        (
            args.loss and args.paper != 'methods',
            SpmlError('--loss goes with methods alone: `spml sweep methods --loss em hml`.'),
        ),
        (
            (own_suite and args.suite) or (of_paper if args.paper in _BOARDS else args.dataset),
            SpmlError(
                f"--dataset goes with {', '.join(_BOARDS)}, --table, --figure and --seeds with a "
                "paper, "
                '--suite with a paper or methods: `spml sweep methods --dataset voc12_animals`.'
            ),
        ),
    ):
        if wrong:
            raise error
    options, suite = _launched(args) | {'tell': say}, args.suite or 'photos'
    if own_suite:
        board = import_module(f'spml_nb.replication.{args.paper}')
        done = board.sweep(args.dataset, **options)
    elif args.paper == 'methods':
        done = search.sweep(suite, args.dataset, args.loss, **options)
    elif args.figure:
        from spml_nb.replication import figures

        done = figures.sweep(args.paper, args.figure, suite, **options)
    else:
        from spml_nb.replication import tables

        done = tables.sweep(args.paper, args.table, suite, seeds=args.seeds, **options)
    if args.dry_run:
        return None
    from spml_nb.runs import record

    record.export_csv()
    return (done.state != 'done').any()


@_command(
    'which method to take on photos of your own',
    'Give each method the same search on a folder of photos, train its choice with fresh seeds, '
    'and say what to take and how sure that is. It may be stopped and given again at any time.',
    _argument('folder', help='a folder with images/ and labels.csv', completes='file'),
    _argument(
        'methods',
        nargs='*',
        default=[],
        metavar='LOSS',
        completes='loss',
        help='what to compare (unset: every method)',
    ),
    _argument('--seeds', type=int, default=3, help='final runs of each method (unset: 3)'),
    _argument(
        '--labels', default='full', help='what is observed (unset: full, all that the table knows)'
    ),
    _argument(
        '--min-positives',
        type=int,
        default=0,
        help='leave out classes with fewer positives (unset: 0)',
    ),
    _argument(
        '--side',
        default='',
        completes='file',
        help='a .csv or .npz with what is known of each photo besides labels (unset: none)',
    ),
    _argument(
        '--suite',
        default='photos',
        completes='taken',
        help=(
            'whose recipe is taken: photos, a head on frozen features; photos_finetune (unset: '
            'photos)'
        ),
    ),
    *_LAUNCH,
)
def _compare(args) -> bool | None:
    from spml_nb.replication import comparison

    done = comparison.compare(
        args.folder,
        args.methods,
        args.labels,
        args.suite,
        args.seeds,
        args.min_positives,
        side=args.side,
        tell=say,
        **_launched(args),
    )
    return None if args.dry_run else (done.state != 'done').any()


@_command(
    'rebuild the tables, figures, claims and pages in outputs/ from outputs/runs.csv',
    'Rebuild outputs/ from runs.csv and the arrays of the figures, without training; '
    'open outputs/index.html then.',
)
def _tables(args):
    from spml_nb.replication import biased, front, observed_choice, pages, tables, worth
    from spml_nb.sweeps import search

    known = tables.record()
    search.boards(known)  # first, since the pages link what is there
    pages.write(known, tell=say)
    front.write()
    for each in (biased.write, worth.write, observed_choice.write):
        each(known)


@_command(
    'check environment, GPU, disk, data and versions',
    'Check environment, GPU, disk, data and versions; exit status 1 if there is a problem.',
    _argument('--quick', action='store_true', help='only what can be said without loading torch'),
)
def _doctor(args) -> bool:
    from spml_nb.tools import doctor

    table = doctor.check(quick=args.quick)
    say(doctor.text(table))
    return (table.state == 'problem').any()


def completions() -> dict[str, str]:
    """What completes an argument.

    Returns:
        {kind: the body of a bash function that prints the words which begin with $1}.
    """
    from spml_nb import data, methods
    from spml_nb.data.official import registry
    from spml_nb.replication import comparison
    from spml_nb.sweeps import presets, queue, search
    from spml_nb.tools import cleanup

    def words(of):  # bash expands each word once more, so each has quotes of its own
        return f'compgen -W {shlex.quote(shlex.join(of))} -- "$1"'

    lists = {
        'loss': methods.names(),
        'benchmark': registry.names(),
        'paper': presets.PAPERS,
        'swept': [*_BOARDS, *presets.PAPERS],
        'engine': queue.ENGINES,
        'state': cleanup.STATES,
        'suite': ('paper', *search.SUITES),
        'taken': comparison.TAKEN,
    }
    runs = (
        'local runs="$SPML_NB_RUNS" name; [ -n "$runs" ] || '
        f'runs={shlex.quote(str(settings.path("runs")))}'
    )
    found = '(cd -- "$runs" > /dev/null 2>&1 && compgen -d -- "$1"); compgen -f -- "$1"'
    quoted = r'while IFS= read -r name; do printf "%q\n" "$name"; done'
    values = {
        'loss': methods.names(),
        'dataset': data.names(),
        **CHOICES,
    }  # of the fields of a configuration
    cases = ' '.join(f'{name}) {words(of)};;' for name, of in values.items())
    return {kind: words(of) for kind, of in lists.items()} | {
        'file': 'compgen -f -- "$1"',
        'run': f'{runs}; {{ {found}; }} | {quoted}',
        'fields': (
            f'case "${{COMP_WORDS[COMP_CWORD-1]}}" in -p) {words(Config.__annotations__)};; '
            f'{cases} esac'
        ),
    }


class _PrintCompletion(argparse.Action):
    "Print the script of a shell and end."

    def __call__(self, command, namespace, shell, option=None):
        import shtab

        preamble = ''.join(
            f'_spml_{kind}() {{ {body}; }}\n' for kind, body in completions().items()
        )
        print(
            shtab.complete(command, shell, preamble={shell: preamble}), flush=True
        )  # a reader may have gone
        command.exit()


RESUMED = ('data', 'train', 'sweep', 'compare')  # what goes on where it stopped


class _Help(argparse.HelpFormatter):
    "Leaves a text of several lines as it is."

    def _fill_text(self, text, width, indent):
        return text if '\n' in text else super()._fill_text(text, width, indent)


def parser() -> argparse.ArgumentParser:
    """The whole command.

    Returns:
        A parser whose results have `do`, the function that does the work.
    """
    whole = argparse.ArgumentParser(
        'spml', description='Multi-label image classification from single positive labels.'
    )
    whole.add_argument('--version', action='version', version=f'spml_nb {__version__}')
    whole.add_argument(
        '--print-completion',
        choices=['bash'],
        action=_PrintCompletion,
        help='print the script that teaches a shell to complete this command',
    )
    subparsers = whole.add_subparsers(
        title='commands', dest='command', required=True, metavar='COMMAND'
    )
    for name, (do, help, description, arguments, below) in COMMANDS.items():
        sub = subparsers.add_parser(
            name, help=help, description=description, epilog=below(), formatter_class=_Help
        )
        for names, options, completes in arguments:
            sub.add_argument(*names, **options).complete = (
                {'bash': f'_spml_{completes}'} if completes else {}
            )
        sub.set_defaults(do=do)
    return whole


@short_warnings()
def main(argv: list[str] | None = None) -> int:
    """Run `spml`.

    Args:
        argv: words after the command; unset: the process's.

    Returns:
        Exit status: 0; 1 as the command says; 2 for bad input; 130 after Ctrl-C; 141 where nobody
        reads the output.
    """
    args = None
    _open_closed()
    if hasattr(sys.stdout, 'reconfigure'):
        sys.stdout.reconfigure(  # names that are not UTF-8
            errors='surrogateescape'
            if sys.stdout.encoding.lower() == 'utf-8'
            else 'backslashreplace'
        )
    try:
        args = parser().parse_args(argv)
        wrong = args.do(args)
        sys.stdout.flush()
        return int(bool(wrong))
    except SpmlError as error:
        print(f'error: {error}', file=sys.stderr)
    except KeyboardInterrupt:
        print(
            'stopped; the same command goes on from here'
            if args and args.command in RESUMED
            else 'stopped',
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:
        _drop_output()
        return 141
    except PermissionError as error:
        barred = SpmlError(
            f'{error.filename} may not be read or written ({error.strerror}). Give yourself the '
            'right to, or name another place.'
        )
        print(f'error: {barred}', file=sys.stderr)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _drop_output()
        full = SpmlError(
            'what this command prints could not be written: the disk is full. '
            'Free space there, or let it print elsewhere.'
        )
        print(f'error: {full}', file=sys.stderr)
    return 2


def _open_closed():
    """What a shell has closed (`>&-`) is thrown away; the next file to be opened would otherwise
    take its place.
    """
    for name in ('stdin', 'stdout', 'stderr'):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, 'r' if name == 'stdin' else 'w'))


def _drop_output():
    "What Python still holds would fail again when it ends."
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
