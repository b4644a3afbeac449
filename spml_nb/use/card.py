"""A trained model as a folder for the model hubs: weights, configuration, and a card with data, scores and limits."""

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
from ..data.dataset import PARTS, Dataset, listed
from ..runs.config import Config, as_dict
from ..runs.folder import Run, as_json, open_run, read_result
from ..training.evaluation import data_of
from ..training.network import Network
from .export import KEY, WEIGHTS, any_network, exported, write_safetensors
from .predictor import Predictor
from .scoring import Scores, in_words, score


@dataclass(frozen=True)
class Facts:
    """What a card says beyond the run.

    Attributes:
        license: a word of the hubs, such as 'apache-2.0'.
        rights: sentences about the photos, their labels and their licences.
        limits: sentences about what the model cannot do, beyond those that hold for every model.
        elsewhere: how well it does on other photos, Markdown.
        model: how commands name it.
        command: what made it; unset: `spml train` with the run's configuration.
    """

    license: str = 'unknown'
    rights: str = 'Origin and licence of the photos are not stated. Say here who may use the model, and for what.'
    limits: tuple[str, ...] = ()
    elsewhere: str = ''
    model: str = 'path/to/this/folder'
    command: str = ''


FEW = 20  # test photos with a label, below which its numbers say little


def scores_of(run: Run, data: Dataset, said: dict) -> Scores:
    """The scores of a finished run on its own test photos.

    Args:
        run: done.
        data: its data set.
        said: the description of its network, which may be calibrated.

    Returns:
        Scores.

    Raises:
        SpmlError: for a run that is damaged or has no test photos.
    """
    result = read_result(run)
    if 'test' not in result.logits:
        raise SpmlError(f'{run.folder} has no test photos, so a card would have no scores.')
    slope, shift = np.array(said.get('calibration', [[1], [0]]), float)
    return score(
        expit(slope * result.logits['test'] + shift),
        data.labels[data.rows('test')],
        data.class_names,
        said['threshold'],
    )


def _of_scores(scores: Scores) -> dict:
    "What the card says about test photos."
    scores = replace(scores, classes=scores.classes.rename(index=escape_for_markdown))
    present, ap = scores.classes.present, scores.classes.ap
    return {
        'scores': scores,
        'truth': label_values.against(scores.truth, scores.left_out),
        'few': FEW,
        'never': listed(present.index[scores.classes.named == 0], 99),
        'weak': listed(present.index[present < FEW], 99),
        'poor': listed(ap.index[(ap < 50) & (present >= FEW)], 99),
        'total': '\n\n'.join(
            filter(
                None, [markdown(in_words(scores.total), 'in percent'), scores.over, scores.bounds]
            )
        ),
        'each': markdown(in_words(scores.classes), 'label'),
    }


def markdown(table: pd.DataFrame, corner: str) -> str:
    """A table as Markdown.

    Args:
        table: of texts.
        corner: what stands above the index.

    Returns:
        A line for the head, one below it, and one a row.
    """
    return files.grid([[corner, *table], *table.reset_index().to_numpy().tolist()]).rstrip()


def _of_data(run: Run, data: Dataset) -> dict:
    "What the card says about training."
    # without `hold_out` the validation photos were trained on
    split = (
        data.split if run.config.hold_out else np.where(data.split == 'val', 'train', data.split)
    )
    parts = [
        (part, len(rows), (data.labels[rows] > 0).sum() / len(rows))
        for part in PARTS
        if len(rows := np.flatnonzero(split == part))
    ]
    return {
        'parts': parts,
        'partly_labelled': (data.labels == 0).any(),
        'bare': (~(data.labels > 0).any(1)).sum(),
        'shown': {
            'full': 'All labels that the table knows were shown in training.',
            'single': (
                'Of each training photo one of its labels was shown, and nothing was said of the '
                'rest.'
            ),
        }.get(run.config.labels, f'Shown in training: {run.config.labels} labels.'),
        'last': run.config.selection == 'last',
        'validated': 'val' in split,
        'val_truth': label_values.against(
            run.result()['scores'].get('val_truth', label_values.TRUTHS[0])
        ),
    }


def _command(config: Config) -> str:
    "What trains such a run again."
    usual = {field.name: field.default for field in fields(Config)}
    given = {
        name: value
        for name, value in as_dict(config).items()
        if value not in (usual[name], []) and name not in ('root', 'device')
    } | {
        'dataset': config.dataset if config.dataset in loading.names() else 'FOLDER'
    }  # of one's own photos
    return f"spml train -y {shlex.quote(json.dumps(given, ensure_ascii=False))}"


def card(name: str, run: Run, said: dict, facts: Facts) -> str:
    """The card of a run.

    Args:
        name: of the model.
        run: done.
        said: the description of its network.
        facts: what the run does not know.

    Returns:
        Markdown behind a head of YAML, as the hubs read it.

    Raises:
        SpmlError: as `scores_of`; where the data of the run are gone or have changed.
    """
    data, result = data_of(run, run.config, True), run.result()
    scores = scores_of(run, data, said)
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {'code': code_span, 'plain': escape_for_markdown}
    template = environment.from_string(
        Path(files.__file__).parents[1].joinpath('assets', 'card.md').read_text(encoding='utf-8')
    )
    return (
        _head(name, said, scores, facts)
        + template.render(
            said,
            **_of_scores(scores),
            **_of_data(run, data),
            name=name,
            facts=facts,
            seed=run.config.seed,
            calibrated='calibration' in said,
            threshold_from=said.get('threshold_from'),
            settings=', '.join(f'{key} {value}' for key, value in run.config.hparams.items()),
            preprocessing=Predictor(said, None).preprocessing,
            commit=result['provenance']['commit'],
            command=facts.command or _command(run.config),
        )
        + '\n'
    )


def _head(name: str, said: dict, scores: Scores, facts: Facts) -> str:
    "What a hub reads, as YAML."
    kinds = {
        'mAP': 'mean_average_precision',
        'micro-F1': 'f1',
        'precision': 'precision',
        'recall': 'recall',
    }
    measured = {of: of for of in kinds}
    if scores.observed_only:  # nothing else was measured against true labels
        measured = {'recall': 'recall of observed labels'}
    numbers = [
        {
            'type': kinds[of],
            'name': f'{name} in percent',
            'value': round(float(scores.total.value[of]), 2),
        }
        for of, name in measured.items()
    ]
    results = {
        'task': {'type': 'image-classification', 'name': 'multi-label image classification'},
        'dataset': {'type': said['dataset'], 'name': said['dataset'], 'split': 'test'},
        'metrics': numbers,
    }
    head = {
        'library_name': KEY,
        'license': facts.license,
        'pipeline_tag': 'image-classification',
        'tags': [
            'multi-label-classification',
            'single-positive-labels',
            said['backbone'],
            said['method'],
        ],
        'model-index': [{'name': name, 'results': [results]}],
    }
    return f'---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---\n'


CONFIG, CARD = 'config.json', 'README.md'


def configuration(network: Network) -> str:
    """What `config.json` says.

    Args:
        network: of the model.

    Returns:
        JSON.
    """
    model = Predictor(network.description, None)
    said = {
        'library_name': KEY,
        'problem_type': 'multi_label_classification',
        'threshold': model.threshold,
        'id2label': dict(enumerate(model.class_names)),
        'label2id': {name: c for c, name in enumerate(model.class_names)},
        'preprocessing': model.preprocessing,
        'description': network.description,
    }
    return as_json(said) + '\n'


def write_folder(
    run: str | Path,
    folder: str | Path = '',
    facts: Facts | None = None,
    head_only: bool = False,
    calibration: list[list[float]] | None = None,
) -> Path:
    """A finished run as a folder in the layout of the model hubs.

    Args:
        run: its folder or its name in the setting `runs`; or a model that has its card already, as
            in `exported`.
        folder: where; unset: the run's name, here. An earlier model in it is replaced.
        facts: what the run does not know.
        head_only: see `spml_nb.use.export.write_safetensors`.
        calibration: see `Network.calibrate`; the threshold is 0.5 then.

    Returns:
        The path of the folder.

    Raises:
        SpmlError: for a run that is not there, not finished or damaged, or has no test photos;
            where its data are gone or have changed; for a folder that holds other files, or cannot
            be written.
    """
    folder, model = Path(folder or Path(run).name), exported(run)
    others = (
        {path.name for path in folder.iterdir() if not files.TEMPORARY.match(path.name)}
        - ({WEIGHTS, CONFIG, CARD} if (folder / WEIGHTS).is_file() else set())
        if folder.is_dir()
        else ()
    )
    if others:
        raise SpmlError(
            f'{folder} holds other files ({listed(sorted(others), 3)}). Name a folder that is new.'
        )
    network = any_network(run)
    if calibration is not None:
        network.calibrate(calibration, 0.5)
    if model is None:
        text = card(folder.name, open_run(run), network.description, facts or Facts())
    elif (kept := model.with_name(CARD)).is_file():
        text = kept.read_text(encoding='utf-8')
    else:
        raise SpmlError(
            f'{model} has no card beside it, and its scores are not known. Give the run it was '
            'made of.'
        )
    files.write_atomically(
        folder / WEIGHTS, lambda file: write_safetensors(network, file, head_only)
    )
    files.write_atomically(folder / CONFIG, configuration(network))
    files.write_atomically(folder / CARD, text)
    return folder
