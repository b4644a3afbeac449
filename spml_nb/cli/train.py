"""`spml train`: a run from its configuration."""

import argparse
import dataclasses
import shlex
import typing
from collections.abc import Iterator

from ..base.files import print_line
from ..runs.config import PROTOCOL, Config
from .parsing import add_command, add_fields


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


def add_commands(commands):
    "Declare `spml train`, with the fields of a run in its help."
    command = add_command(
        commands,
        'train',
        _train,
        help='train a run, resume it, or show its result',
        epilog=_describe_fields(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_fields(command, 'a field of the configuration, as with papermill')
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
    from ..runs.config_parsing import gather_fields
    from ..runs.folder import open_run

    config = Config(**gather_fields(args.config, args.yaml, args.values, args.like))

    # torch is loaded only once the fields are right
    from ..training import launch
    from ..training.summary import describe_scores

    result = launch.launch(config, args.nproc, tell=print_line)
    print_line(f'{result.folder}: {describe_scores(result.scores)}')
    for line in _describe_naming(result, open_run(result.folder)):
        print_line(line)
    print_line(f'Next: spml predict {shlex.quote(result.folder.name)} PHOTOS')


def _describe_naming(result, run) -> Iterator[str]:
    "How many labels the threshold of a run names on validation, and warnings about that."
    from ..data.labels import TRUTHS
    from ..training.summary import count_names, describe_named, named_on_validation
    from ..training.thresholds import explain_narrow_naming, warn_of_overprediction

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
