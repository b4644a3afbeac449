"""Reports a trained run on one page, for people who do not know the project."""

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from PIL import Image
from scipy.special import expit

from ..base import files
from ..base.errors import SpmlError
from ..data import labels as label_values
from ..data.dataset import Dataset, join_items
from ..replication.templates import render_template
from ..runs.folder import Result, Run, open_run, read_result
from ..training import plots
from ..training.evaluation import load_run_data
from ..training.network import describe_network
from ..training.summary import OBSERVED_AUC, read_observed_auc
from .annotate import find_doubtful_labels
from .export import find_exported
from .model_card import CARD, FEW_TEST_PHOTOS, describe_data, score_test_photos, training_command
from .scoring import LabelScores, format_scores

SHOWN_PHOTOS = 12  # worst mistakes, and as many labels that are probably missing
MOST_OF_A_CLASS = 3  # of the latter
INK = '#123456'  # of text and axes in a figure, to be replaced by the colour of the page


@dataclass(frozen=True)
class Picture:
    """A small photo of a report.

    Attributes:
        address: the photo as a data: URL.
        label: the class in question.
        probability: of that class.
        remark: what is wrong.
    """

    name: str
    address: str
    label: str
    probability: float
    remark: str


def write_report(run: str | Path, file: str | Path = '') -> Path:
    """Write a report on a finished run as one self-contained HTML page.

    It has scores with intervals and what they were measured against, curves, classes, photos of the
    worst mistakes and of labels that are probably missing, thresholds, and how to use the model. If
    the photos or their table are gone or have changed, the page says so and has the rest.

    Args:
        run: its folder or its name in the setting `runs`.
        file: default: the run's name and .html in the current folder.

    Returns:
        The path of the page.

    Raises:
        SpmlError: for a run that is missing, unfinished or damaged, or has no test photos; for an
            exported model; for a file that exists or cannot be written.
    """
    _refuse_exported(run)
    opened = open_run(run)
    file = Path(file or f'{opened.folder.name}.html')
    files.refuse_existing(file)
    files.write_atomically(file, _render_report(opened))
    return file


def _refuse_exported(model: str | Path) -> None:
    "An exported model has no curves, and does not know its test photos."
    file = find_exported(model)
    if file is None:
        return
    card = file.with_name(CARD)
    hint = f' Its card describes it: {card}.' if card.is_file() else ''
    raise SpmlError(
        f'{model} is a model without its run, and a report needs the run; `spml runs` lists '
        f'yours.{hint} How good it is on photos labelled in full: `spml evaluate {model} FULL`.'
    )


def _render_report(run: Run) -> str:
    result = read_result(run)
    description = describe_network(run)
    try:
        data, trouble = load_run_data(run, run.config, own=True), ''
    except SpmlError as error:
        data, trouble = None, str(error)
    fields = {
        'name': run.folder.name,
        'dataset': description['dataset'],
        'description': description,
        'stored': plots.score_table(result.scores),
        'class_rows': _stored_class_rows(result, description),
        'class_heads': ['average precision'],
        'curves': _draw_curves(result.curves),
        'auc': {part: read_observed_auc(result.scores, part) for part in ('val', 'test')},
        'what_auc_is': OBSERVED_AUC,
        'settings': run.config.hparams,
        'command': training_command(run.config),
        'commit': run.result()['provenance']['commit'],
        'seed': run.config.seed,
        'trouble': trouble,
        'few': FEW_TEST_PHOTOS,
        'scores': None,
        'per_class': None,
        'sample': run.calibration(),
    }
    if data is not None:
        fields |= describe_data(run, data)
        fields |= _describe_scores(score_test_photos(run, data, description), description)
        if description.get('class_thresholds'):
            fields['per_class'] = score_test_photos(run, data, description, per_class=True)
        fields |= _choose_pictures(result, data, description['threshold'])
    return render_template('report.html', **fields)


# ---- numbers


def _describe_scores(scores: LabelScores, description: dict) -> dict:
    classes = scores.classes
    rare = classes.index[classes.present < FEW_TEST_PHOTOS]
    texts = format_scores(classes)
    texts = texts.loc[:, (texts != '–').any()]  # without clean labels no class has an AP
    values = classes.rename(columns={'low': '95 % interval'})
    if thresholds := description.get('class_thresholds'):
        values['own threshold'] = thresholds
        texts['own threshold'] = [f'{threshold:.3g}' for threshold in thresholds]
    return {
        'scores': scores,
        'truth': label_values.describe_truth(scores.truth, scores.left_out),
        'total': format_scores(scores.total),
        'class_heads': list(texts),
        'class_rows': _rows(texts, values),
        'rare': join_items(rare, 30),
        'never': join_items(classes.index[classes.named == 0], 30),
    }


def _rows(texts: pd.DataFrame, values: pd.DataFrame) -> list[tuple[str, list]]:
    "(name, [(text, number to sort by, '' for NaN)]) of each class."
    numbers = values[list(texts)].astype(object).where(values[list(texts)].notna(), '')
    return [
        (name, list(zip(texts.loc[name], numbers.loc[name], strict=True))) for name in texts.index
    ]


def _stored_class_rows(result: Result, description: dict) -> list[tuple[str, list]]:
    "Rows with the average precision of each class, as stored with the run."
    ap = 100 * np.array(result.scores.get('test_ap', []))
    values = pd.DataFrame({'average precision': ap}, description['class_names'][: len(ap)])
    return _rows(values.map('{:.1f}'.format), values)


def _draw_curves(curves: pd.DataFrame) -> str:
    "Draw loss and validation score as SVG, in the text colour of the page around it."
    colours = ('text.color', 'axes.labelcolor', 'axes.edgecolor', 'xtick.color', 'ytick.color')
    style: dict[Any, Any] = dict.fromkeys(colours, INK)
    style |= {'svg.fonttype': 'none', 'svg.hashsalt': 'curves', 'legend.framealpha': 0}
    with plt.rc_context(style):
        figure = plots.learning_curves(curves)
        drawn = io.StringIO()
        figure.savefig(drawn, format='svg', transparent=True, metadata={'Date': None})
        plt.close(figure)
    svg = drawn.getvalue()
    return svg[svg.index('<svg') :].replace(INK, 'currentColor')


# ---- photos


def _choose_pictures(result: Result, data: Dataset, threshold: float) -> dict:
    "Photos not trained on: where the model is wrong, and where the table may lack a label."
    rows = data.rows('test')
    mistakes = []
    worst = plots.worst_mistakes(data.labels[rows], result.logits['test'], threshold, SHOWN_PHOTOS)
    for row, c, probability, is_present in worst.itertuples(index=False):
        remark = 'there and missed' if is_present else 'named and not there'
        mistakes.append(_picture(data, rows[row], c, probability, remark))
    parts = [part for part in result.logits if part == 'test' or result.config.hold_out]
    held_out = np.concatenate([data.rows(part) for part in parts])
    p = expit(np.concatenate([result.logits[part] for part in parts]).astype(float))
    labels = data.labels[held_out]
    _, missing = find_doubtful_labels(p, labels)
    is_unknown = labels[missing['row'], missing['class']] == 0
    likely = missing[is_unknown & (missing.probability >= 0.5)]
    first = likely.groupby('class', sort=False).head(MOST_OF_A_CLASS).head(SHOWN_PHOTOS)
    return {
        'mistakes': mistakes,
        'missing': [
            _picture(data, held_out[row], c, p[row, c], 'not in the table')
            for row, c, _ in first.itertuples(index=False)
        ],
        'unknown': int((labels == 0).sum()),
        'held_out': len(held_out),
    }


def _picture(data: Dataset, row: int, c: int, probability: float, remark: str) -> Picture:
    jpeg = io.BytesIO()
    Image.fromarray(plots.open_thumbnail(data.images, row)).save(jpeg, 'JPEG', quality=70)
    address = f'data:image/jpeg;base64,{base64.b64encode(jpeg.getvalue()).decode()}'
    return Picture(data.image_names[row], address, data.class_names[c], probability, remark)
