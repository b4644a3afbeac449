"""Writes a trained model as a folder for model hubs: weights, configuration and model card."""

import json
import shlex
from dataclasses import dataclass, fields, replace
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd
import yaml
from scipy.special import expit

from ..base import files
from ..base.errors import SpmlError
from ..base.escaping import code_span, escape_for_markdown
from ..data import labels as label_values
from ..data import loading
from ..data.dataset import PARTS, Dataset, join_items
from ..runs.config import Config, config_to_dict
from ..runs.folder import Run, format_json, open_run, read_result
from ..training.evaluation import load_run_data
from .export import METADATA_KEY, WEIGHTS, find_exported, load_network, write_safetensors
from .predictor import describe_preprocessing
from .scoring import (
    LabelScores,
    count_calibration_photos,
    format_scores,
    number_groups,
    score_labels,
)


@dataclass(frozen=True)
class Facts:
    """What a model card says that the run does not know.

    Attributes:
        license: an identifier of the hubs, such as 'apache-2.0'.
        rights: sentences about the photos, their labels and their licences.
        limits: sentences about what the model cannot do, besides those true of every model.
        elsewhere: Markdown about its scores on other photos.
        model: what commands call it.
        command: what made it; default: `spml train` with the run's configuration.
    """

    license: str = 'unknown'
    rights: str = (
        'Origin and licence of the photos are not stated. Say here who may use the model, and for '
        'what.'
    )
    limits: tuple[str, ...] = ()
    elsewhere: str = ''
    model: str = 'path/to/this/folder'
    command: str = ''


FEW_TEST_PHOTOS = 20  # the scores of a class with fewer positive test photos say little


def score_test_photos(
    run: Run, data: Dataset, description: dict, per_class: bool = False
) -> LabelScores:
    """Score the test logits that a run has stored, with the calibration of the description.

    Args:
        description: as from `describe_network`.
        per_class: use one threshold per class.

    Raises:
        SpmlError: if the run has no test photos.
    """
    result = read_result(run)
    if 'test' not in result.logits:
        raise SpmlError(f'{run.folder} has no test photos, so there are no scores to show.')
    slope, shift = np.array(description.get('calibration', [[1], [0]]), float)
    threshold = description['threshold']
    if per_class:
        threshold = dict(zip(data.class_names, description['class_thresholds'], strict=True))
    rows = data.rows('test')
    scores = score_labels(
        expit(slope * result.logits['test'] + shift),
        data.labels[rows],
        data.class_names,
        threshold,
        number_groups(data, rows),
    )
    return replace(scores, calibrated=not {'threshold_from', 'calibration'}.isdisjoint(description))


def _describe_scores(scores: LabelScores, thresholds: list[float] | None = None) -> dict:
    "Fields of the template about test photos. thresholds: per class."
    scores = replace(scores, classes=scores.classes.rename(index=escape_for_markdown))
    classes = scores.classes
    rare = classes.present < FEW_TEST_PHOTOS
    total = [format_card_table(format_scores(scores.total), 'in percent'), *scores.remarks]
    each = format_scores(classes)
    if thresholds:
        each['own threshold'] = [f'{t:.3g}' for t in thresholds]
    return {
        'scores': scores,
        'truth': label_values.describe_truth(scores.truth, scores.left_out),
        'few': FEW_TEST_PHOTOS,
        'never': join_items(classes.index[classes.named == 0], 99),
        'weak': join_items(classes.index[rare], 99),
        'poor': join_items(classes.index[(classes.ap < 50) & ~rare], 99),
        'total': '\n\n'.join(total),
        'each': format_card_table(each, 'label'),
    }


def format_card_table(table: pd.DataFrame, corner: str) -> str:
    "Format a table of texts as Markdown. corner: text above the index."
    return files.markdown_table(
        [[corner, *table], *table.reset_index().to_numpy().tolist()]
    ).rstrip()


SHOWN_LABELS = {
    'full': 'All labels that the table knows were shown in training.',
    'single': (
        'Of each training photo one of its labels was shown, and nothing was said of the rest.'
    ),
}


def describe_data(run: Run, data: Dataset) -> dict:
    "Fields of a template about the training data."
    config = run.config
    split = data.split
    if not config.hold_out:  # the validation photos were trained on
        split = np.where(split == 'val', 'train', split)
    positives = (data.labels > 0).sum(1)
    parts = []
    for part in PARTS:
        rows = split == part
        if rows.any():
            parts.append((part, rows.sum(), positives[rows].mean()))
    scores = run.result()['scores']
    val_truth = scores.get('val_truth', label_values.TRUTHS[0])
    if scores.get('selected_by') == 'observed_auc':  # also where some labels are known
        val_truth = label_values.Truth.OBSERVED_ONLY
    return {
        'parts': parts,
        'chose': count_calibration_photos(run, data, data.rows('test')),
        'partly_labelled': (data.labels == 0).any(),
        'bare': (positives == 0).sum(),
        'shown': SHOWN_LABELS.get(
            str(config.labels), f'Shown in training: {config.labels} labels.'
        ),
        'last': 'last' in (config.selection, scores.get('selected_by')),
        'validated': 'val' in split,
        'val_truth': label_values.describe_truth(val_truth),
    }


def training_command(config: Config) -> str:
    "The command that repeats a run; FOLDER stands for the user's own photos."
    defaults = {field.name: field.default for field in fields(Config)}
    changed = {
        name: value
        for name, value in config_to_dict(config).items()
        if name not in ('root', 'device') and value not in (defaults[name], [])
    }
    is_named = config.dataset in loading.names()
    changed['dataset'] = config.dataset if is_named else 'FOLDER'
    return f"spml train -y {shlex.quote(json.dumps(changed, ensure_ascii=False))}"


def _render_card(name: str, run: Run, description: dict, facts: Facts) -> str:
    "Markdown with a YAML header, as the hubs read it."
    data = load_run_data(run, run.config, True)
    scores = score_test_photos(run, data, description)
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {'code': code_span, 'plain': escape_for_markdown}
    file = Path(files.__file__).parents[1] / 'assets' / 'card.md'
    text = environment.from_string(file.read_text(encoding='utf-8')).render(
        description,
        **_describe_scores(scores, description.get('class_thresholds')),
        **describe_data(run, data),
        name=name,
        facts=facts,
        seed=run.config.seed,
        calibrated='calibration' in description,
        threshold_from=description.get('threshold_from'),
        class_thresholds=description.get('class_thresholds'),
        settings=', '.join(f'{key} {value}' for key, value in run.config.hparams.items()),
        preprocessing=describe_preprocessing(description),
        commit=run.result()['provenance']['commit'],
        command=facts.command or training_command(run.config),
    )
    head = yaml.safe_dump(
        _head(name, description, scores, facts), sort_keys=False, allow_unicode=True
    )
    return f'---\n{head}---\n{text}\n'


HUB_METRICS = {
    'mAP': 'mean_average_precision',
    'micro-F1': 'f1',
    'precision': 'precision',
    'recall': 'recall',
}


def _head(name: str, description: dict, scores: LabelScores, facts: Facts) -> dict:
    "The YAML header of a card."
    labels = {metric: metric for metric in HUB_METRICS}
    if scores.observed_only:  # nothing else can be measured
        labels = {'recall': 'recall of observed labels'}
    metrics = [
        {
            'type': HUB_METRICS[metric],
            'name': f'{label} in percent',
            'value': round(float(scores.total.value[metric]), 2),
        }
        for metric, label in labels.items()
    ]
    dataset = description['dataset']
    result = {
        'task': {'type': 'image-classification', 'name': 'multi-label image classification'},
        'dataset': {'type': dataset, 'name': dataset, 'split': 'test'},
        'metrics': metrics,
    }
    tags = ['multi-label-classification', 'single-positive-labels']
    return {
        'library_name': METADATA_KEY,
        'license': facts.license,
        'pipeline_tag': 'image-classification',
        'tags': [*tags, description['backbone'], description['method']],
        'model-index': [{'name': name, 'results': [result]}],
    }


CONFIG = 'config.json'
CARD = 'README.md'


def _config_json(description: dict) -> str:
    class_names = description['class_names']
    thresholds = description.get('class_thresholds')
    content = {
        'library_name': METADATA_KEY,
        'problem_type': 'multi_label_classification',
        'threshold': description['threshold'],
        'class_thresholds': thresholds and dict(zip(class_names, thresholds, strict=True)),
        'id2label': dict(enumerate(class_names)),
        'label2id': {name: c for c, name in enumerate(class_names)},
        'preprocessing': describe_preprocessing(description),
        'description': description,
    }
    return format_json({name: value for name, value in content.items() if value is not None}) + '\n'


def write_model_folder(
    run: str | Path,
    folder: str | Path = '',
    facts: Facts | None = None,
    head_only: bool = False,
    calibration: list[list[float]] | None = None,
) -> Path:
    """Write a finished run as a folder in the layout of the model hubs.

    `model.safetensors` is a file as `export` writes it, `config.json` repeats its description for
    programs that do not read the header, `README.md` is the model card: data, scores and limits. If
    only some labels of the test photos are known, the card has their recall and lower bounds
    instead of mAP, F1 and precision.

    Args:
        run: its folder or its name in the setting `runs`; or a model with a card, as in
            `find_exported`.
        folder: default: the run's name in the current folder. An earlier model in it is replaced.
        facts: what the run does not know.
        head_only: as in `spml_nb.use.export.write_safetensors`.
        calibration: as in `Network.calibrate`; sets the threshold to 0.5.

    Returns:
        The path of the folder.

    Raises:
        SpmlError: for a run that is missing, unfinished or damaged, or has no test photos; if its
            data are gone or have changed; for a folder with other files, or that cannot be written.
    """
    folder = Path(folder or Path(run).name)
    _refuse_other_files(folder)
    network = load_network(run)
    if calibration is not None:
        network.calibrate(calibration, 0.5)
    model = find_exported(run)
    if model is None:
        text = _render_card(folder.name, open_run(run), network.description, facts or Facts())
    elif model.with_name(CARD).is_file():
        text = model.with_name(CARD).read_text(encoding='utf-8')
    else:
        raise SpmlError(
            f'{model} has no card beside it, so its scores are unknown. Give the run that it was '
            'made from.'
        )
    files.write_atomically(
        folder / WEIGHTS, lambda file: write_safetensors(network, file, head_only)
    )
    files.write_atomically(folder / CONFIG, _config_json(network.description))
    files.write_atomically(folder / CARD, text)
    return folder


def _refuse_other_files(folder: Path) -> None:
    "Raise if a folder has files besides an earlier model and leftovers of killed writers."
    if not folder.is_dir():
        return
    replaceable = (WEIGHTS, CONFIG, CARD) if (folder / WEIGHTS).is_file() else ()
    names = [path.name for path in folder.iterdir() if not files.TEMPORARY.match(path.name)]
    others = sorted(set(names) - set(replaceable))
    if others:
        raise SpmlError(f'{folder} has other files ({join_items(others, 3)}). Name a new folder.')
