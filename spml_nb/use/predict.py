"""Predicts the labels of any photos with a trained run."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd

from ..base import files
from ..base.errors import SpmlError
from ..base.escaping import escape_for_spreadsheet
from ..training.network import open_network
from .export import find_exported, load_exported
from .predictor import BATCH, Images, Predictor, as_predictor

WHAT_PROBABILITIES_ARE = (
    'A probability orders the photos of a class and is compared with the threshold; it is not the '
    'chance that the name is right.'
)


def open_model(run: str | Path, device: str | None = None) -> Predictor:
    """A trained model, ready for use.

    Args:
        run: the folder of a finished run, its name in the setting `runs`, a file of
            `spml_nb.use.export.export`, a folder of `spml_nb.use.card.write_model_folder`, or a
            name of `spml_nb.use.export.shipped_models`.
        device: unset: the setting `device`.

    Returns:
        Predictor.

    Raises:
        SpmlError: as `spml_nb.training.network.open_network` and
            `spml_nb.use.export.load_exported`.
    """
    file = find_exported(run)
    if file is not None:
        return load_exported(file, device=device)
    return as_predictor(open_network(run), device)


def predict(
    run: str | Path,
    images: Images,
    *,
    batch_size: int = BATCH,
    device: str | None = None,
    threshold: float | None = None,
    per_class: bool = False,
    skip_unreadable: bool = False,
) -> pd.DataFrame:
    """Probabilities and labels of any images, by a trained run.

    Args:
        run: as in `open_model`.
        images: a folder (with all below it), a file, a PIL image, or a list of files and PIL
            images.
        batch_size: images at a time.
        device: unset: the setting `device`.
        threshold: the probability in (0, 1) from which on a label is named; unset: the run's own.
        per_class: name each class from a threshold of its own on, as the run has chosen them.
        skip_unreadable: leave out images that cannot be read, if there are others; they are in
            `attrs['unusable']`, {name: why}.

    Returns:
        DataFrame with one row per image: `image`; for each class a column with its probability in
        [0, 1]; and `labels`, the names, joined by '|', whose probability reaches the threshold,
        which is `attrs['threshold']`, a number, or {class: number}; `attrs['one_threshold']` is the
        run's own for all classes. `attrs['on_validation']` says what that names on validation where
        only some labels are known, as `spml_nb.training.summary.named_on_validation` has it, None
        where another one names; `attrs['labels_a_photo']` how many labels a photo had where the
        threshold was chosen, None where that is not known; `attrs['calibrated']` whether labelled
        photos chose it after the training.

    Raises:
        SpmlError: for a run that is not there, not finished or damaged, or gives no finite numbers;
            for a threshold out of range; when there is no image; for images that cannot be read,
            naming all of them before anything is predicted.

    Source: EM/APL's supplement, for the way in which the threshold is tuned.
    """
    model = open_model(run, device)
    return model.predict(
        images,
        batch_size=batch_size,
        threshold=threshold,
        per_class=per_class,
        skip_unreadable=skip_unreadable,
    )


def name_likeliest(table: pd.DataFrame, count: int) -> pd.DataFrame:
    """Name the same number of labels on each image, whatever their probability.

    Args:
        table: as from `predict`.
        count: of labels; more than there are means all.

    Returns:
        The table, with the likeliest labels of each image, the likeliest first.

    Raises:
        SpmlError: for a count below 1.
    """
    if count < 1:
        raise SpmlError(f'top={count}; allowed: a whole number of labels from 1 upwards.')
    names = table.columns[1:-1].to_numpy()
    order = np.argsort(-table.iloc[:, 1:-1].to_numpy(float), axis=1, kind='stable')
    named = table.copy()  # with its attrs
    named.isetitem(table.shape[1] - 1, ['|'.join(names[row]) for row in order[:, :count]])
    return named


def as_csv(table: pd.DataFrame, names_first: bool = False) -> str:
    """Predictions as comma-separated text that a spreadsheet can open: no cell is a formula.

    Args:
        table: as from `predict`, or some of its columns.
        names_first: put the last column behind the first.

    Returns:
        The text. As a labels.csv, its columns `image` and `labels` say what the table says.
    """
    guards = {'image': './', 'labels': '|'}  # a table of labels is read as without them
    shown = table.copy()
    shown.columns = [escape_for_spreadsheet(str(name)) for name in table]
    for place in {0, len(table.columns) - 1}:  # by place: a class may be called image
        guard = guards.get(table.columns[place])
        if guard:
            cells = [escape_for_spreadsheet(str(cell), guard) for cell in table.iloc[:, place]]
            shown.isetitem(place, cells)
    if names_first:
        shown = shown.iloc[:, [0, -1, *range(1, len(table.columns) - 1)]]
    # Python before 3.13 leaves a carriage return bare
    broken = any('\r' in str(cell) for cell in table.iloc[:, 0])
    return shown.to_csv(
        index=False,
        lineterminator='\n',
        float_format='%.7g',  # single precision, as networks compute
        quoting=csv.QUOTE_NONNUMERIC if broken else csv.QUOTE_MINIMAL,
    )


def write_csv(table: pd.DataFrame, file: str | Path) -> None:
    """Keep predictions as a comma-separated table in UTF-8, whole or not at all.

    The names stand behind the photo, before the probabilities. Nothing is overwritten, be it a
    table of labels or predictions that somebody has corrected since. The same predictions may be
    written again.

    Args:
        table: as from `predict`.
        file: its name.

    Raises:
        SpmlError: when it cannot be written, and as `spml_nb.base.files.refuse_existing`.
    """
    file = Path(file)
    content = as_csv(table, names_first=True).encode('utf-8', 'surrogateescape')
    if file.is_file() and file.read_bytes() == content:
        return
    files.refuse_existing(file)
    files.write_atomically(file, lambda path: path.write_bytes(content))
