"""Commands that use a trained model: `predict`, `serve`, `export`, `report`, `evaluate`, …"""

import os
import shlex
import sys

from ..base.errors import SpmlError, require_package
from ..base.files import print_line, refuse_existing
from .parsing import Parser, add_command, print_csv

_RUN = "a finished run's name or folder"


_MODEL = (
    f'{_RUN}, a .safetensors or .onnx file or a folder of `spml export`, or a model that comes '
    'with the package: coco18, mirflickr14 or voc12_animals'
)


def add_commands(commands):
    "Declare the commands that use a trained model."
    _add_predict(commands)
    _add_serve(commands)
    _add_export(commands)
    _add_report(commands)
    _add_evaluate(commands)
    _add_review(commands)
    _add_calibrate(commands)


def _add_per_class(command: Parser):
    command.add_argument(
        '--per-class',
        action='store_true',
        help='use a threshold for each class (default: one for all)',
    )


def _add_predict(commands):
    command = add_command(
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
    from ..use import predict

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
        print_csv(predict.as_csv(table[['image', 'labels']]))
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
    from ..data.dataset import join_items

    if not isinstance(threshold, dict):
        return f'threshold {threshold:.4g}: a label is named from this probability on'
    ordered = sorted(threshold.items(), key=lambda item: item[1])
    words = [f'{name} {number:.3g}' for name, number in ordered]
    return f'thresholds, from the lowest: {join_items(words, 12)}, the highest {words[-1]}'


def _summarise_names(table) -> str:
    "How many labels are named, here and on validation, and warnings about that."
    from ..training.summary import describe_named
    from ..training.thresholds import (
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


def _add_serve(commands):
    command = add_command(commands, 'serve', _serve, help='a model as a small web service')
    command.add_argument('run', help=_MODEL, completes='run')
    command.add_argument('--host', default='localhost', help='address to listen at (%(default)s)')
    command.add_argument('--port', type=int, default=8000, help='port (%(default)s)')


def _serve(args):
    """Answer `curl --data-binary @photo.jpg localhost:8000/predict` with labels and probabilities;
    in a browser, http://localhost:8000 takes a photo that you drop on it. Ctrl+C ends it.
    """
    _require_server('serve')
    from ..use import serve
    from ..use.predict import open_model

    app = serve.make_app(open_model(args.run))
    _run_server(app, args.host, args.port)


def _require_server(command: str):
    "Check that the packages of the extra `serve` are there."
    for package in ('uvicorn', 'starlette.applications'):
        require_package(package, f'`spml {command}`', 'serve')


def _run_server(app, host: str, port: int):
    import uvicorn

    from ..use import serve

    print_line(f'http://{host}:{port} (Ctrl+C ends it)')
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level='warning',
        limit_concurrency=serve.MAX_REQUESTS,
        timeout_keep_alive=serve.MAX_SECONDS,
    )


def _add_export(commands):
    command = add_command(
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
    from ..use import export, model_card

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
    command = add_command(commands, 'report', _report, help='a run as one page for anybody')
    command.add_argument('run', help=_RUN, completes='run')
    command.add_argument(
        'file', nargs='?', help="a new HTML file (default: the run's name.html)", completes='file'
    )


def _report(args):
    """Write a finished run as one HTML file, to be opened in any browser: scores and what they were
    measured against, curves, labels, the worst mistakes, and how to use the model.
    """
    from ..use import report

    print_line(str(report.write_report(args.run, args.file or '')))


def _add_evaluate(commands):
    command = add_command(
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
    from ..use import scoring

    if args.other is not None:
        if args.within is not None:
            raise SpmlError('--within goes with one model: `spml evaluate RUN FOLDER --within 5`.')
        models = (args.run, args.other)
        comparison = scoring.compare_models(
            models, args.folder, args.part, per_class=args.per_class
        )
        print_line(str(comparison))
        return
    scores = scoring.evaluate_model(args.run, args.folder, args.part, per_class=args.per_class)
    print_line(str(scores))
    if args.within is not None:
        print_line(f'\n{scoring.plan_sample(scores, args.within)}')


def _add_review(commands):
    command = add_command(
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
    _require_server('review')
    from ..data.folder import find_folder
    from ..use import review

    folder = find_folder(args.folder)
    opened = review.open_review(folder, args.run)
    next_command = review.retraining_command(folder, args.run)
    _run_server(review.make_review_app(opened, next_command), 'localhost', args.port)
    print_line(opened.describe_answers())
    print_line(f'Next: {next_command}')


def _add_calibrate(commands):
    command = add_command(
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
    from ..runs.folder import CALIBRATION, open_run
    from ..use import calibrate

    calibration = calibrate.calibrate(args.run, args.folder, recall=args.recall)
    print_line(str(calibration))
    folder = open_run(args.run).folder
    if calibration.taken or calibration.keeps_earlier:
        print_line(f'to go back: remove {folder / CALIBRATION}')
    page = os.path.abspath(f'{folder.name}.html')  # the default file of `spml report`
    if os.path.isfile(page):
        command = f'rm {shlex.quote(page)} && spml report {shlex.quote(args.run)}'
        print_line(f'{page} may have another threshold. To write it anew: {command}')
