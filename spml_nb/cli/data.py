"""`spml data` and `spml import`: benchmarks, and folders of one's own."""

import contextlib
import os
import shlex
import sys

from ..base import settings
from ..base.errors import SpmlError, require_one_of
from ..base.files import print_line, refuse_existing
from .parsing import add_command


def add_commands(commands):
    "Declare `spml data` and `spml import`."
    _add_data(commands)
    _add_import(commands)


def _add_data(commands):
    command = add_command(
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
    from ..data.dataset import MINIATURES, join_items
    from ..data.official import registry

    is_benchmark = args.name in registry.BENCHMARKS
    _check_data_options(args, is_benchmark)
    if args.name is None:
        print_line(registry.describe_benchmarks(args.root))
        print_line(f'Drawn when they are used, without files: {join_items(MINIATURES)}')
        return None
    if not is_benchmark:
        return _look_at_folder(args)
    if args.check:
        missing = registry.list_missing_files(args.name, args.root)
        print_line('\n'.join(missing) or f'{args.name} is ready.')
        return bool(missing)
    registry.prepare_benchmark(args.name, args.root, args.mirror, tell=print_line)
    return None


def _look_at_folder(args) -> bool | None:
    from ..data import overview
    from ..data.dataset import join_items
    from ..data.folder import candidate_folders, find_folder
    from ..data.official import registry

    folder = find_folder(args.name, args.root)
    if not os.path.isdir(folder):
        folders = candidate_folders(args.name, args.root)
        remedy = f'Nor is there a folder {join_items(folders)}. Miniatures need no files.'
        require_one_of(args.name, registry.BENCHMARKS, 'benchmark', remedy)
    if args.fix:
        _fix(folder)
    if args.split:
        _split(folder)
    if args.sample:
        _sample(folder, *args.sample)
        return None
    name = shlex.quote(args.name)
    if args.split and not args.check:
        print_line(f'Next: spml data {name} --check')
        return None
    report = overview.check_folder(args.name, args.root)
    print_line(report.text)
    for step in report.next_steps:
        print_line(step.replace('{0}', name))  # names of classes may have braces, too
    return not report.ready


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
    from ..data.labels import FULL_PHOTOS_GUIDE
    from ..use import annotate

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
    from ..data.folder import read_label_table
    from ..data.splitting import write_split

    backup = write_split(folder)
    counts = read_label_table(folder / 'labels.csv')['split'].value_counts()
    parts = ', '.join(f'{part} {count:,}' for part, count in counts.items())
    print_line(f'column `split` written: {parts} photos; the old table is {backup.name}')


def _fix(folder):
    from ..data.table_repair import mend_table

    mending = mend_table(folder)
    for change in mending.changes:
        print_line(f'mended: {change}')
    if mending.backup:
        print_line(f'The old table is {mending.backup.name}.')
    else:
        print_line('Nothing in labels.csv that could be mended with certainty.')


def _add_import(commands):
    command = add_command(
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
    from ..data import importing

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
