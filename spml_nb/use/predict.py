"""Names the labels of any photos with a trained model."""

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
    """Open a trained model.

    Args:
        run: the folder of a finished run, its name in the setting `runs`, a file of
            `spml_nb.use.export.export`, a folder of `spml_nb.use.model_card.write_model_folder`, or
            a name of `spml_nb.use.export.shipped_models`.
        device: None: the setting `device`.

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
    """Predict probabilities and labels of any images.

    Args:
        run: as in `open_model`.
        images: a folder (with its subfolders), a file, a PIL image, or a list of files and PIL
            images.
        batch_size: images at a time.
        device: None: the setting `device`.
        threshold: the probability in (0, 1) at which a label is named; None: that of the run.
        per_class: use the run's thresholds per class.
        skip_unreadable: leave out images that cannot be read, if there are others.

    Returns:
        DataFrame with one row per image: `image`; a column per class with its probability in [0,
        1]; and `labels`, the names whose probability reaches the threshold, joined by '|'. Its
        `attrs`:

        - threshold: the one that was used, or {class: threshold}.
        - one_threshold: the run's threshold for all classes.
        - unusable: {name of an image that cannot be read: why}.
        - on_validation: what the run's threshold names on validation photos, as from
          `spml_nb.training.summary.named_on_validation`; None if another one was used, or precision
          and F1 were measured.
        - labels_a_photo: mean number of labels of the photos that chose the threshold; None if
          unknown.
        - calibrated: whether threshold or probabilities were calibrated after the training.

    Raises:
        SpmlError: for a run that is missing, unfinished or damaged, or gives no finite numbers; for
            a threshold out of range; without an image; for images that cannot be read, naming all
            of them before anything is predicted.

    Source: EM/APL's supplement, for how the threshold is tuned.
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
        count: labels per image, at most all.

    Returns:
        The table with other `labels`, the likeliest first.

    Raises:
        SpmlError: for a count below 1.
    """
    if count < 1:
        raise SpmlError(f'top={count}; allowed: a whole number of labels from 1 upwards.')
    names = table.columns[1:-1].to_numpy()
    order = np.argsort(-table.iloc[:, 1:-1].to_numpy(float), axis=1, kind='stable')
    named = table.copy()  # keeps attrs
    named.isetitem(table.shape[1] - 1, ['|'.join(names[row]) for row in order[:, :count]])
    return named


def as_csv(table: pd.DataFrame, names_first: bool = False) -> str:
    """Format predictions as CSV in which no cell is a formula to a spreadsheet.

    Its columns `image` and `labels` can be used as a labels.csv.

    Args:
        table: as from `predict`, or some of its columns.
        names_first: move the last column next to the first.
    """
    guards = {'image': './', 'labels': '|'}  # prefixes that a labels.csv ignores
    shown = table.copy()
    shown.columns = [escape_for_spreadsheet(str(name)) for name in table]
    for k in {0, len(table.columns) - 1}:  # not by name: a class may be called image
        guard = guards.get(table.columns[k])
        if guard:
            cells = [escape_for_spreadsheet(str(cell), guard) for cell in table.iloc[:, k]]
            shown.isetitem(k, cells)
    if names_first:
        shown = shown.iloc[:, [0, -1, *range(1, len(table.columns) - 1)]]
    # before Python 3.13, csv does not quote a carriage return
    has_return = any('\r' in str(cell) for cell in table.iloc[:, 0])
    return shown.to_csv(
        index=False,
        lineterminator='\n',
        float_format='%.7g',  # single precision, as networks compute
        quoting=csv.QUOTE_NONNUMERIC if has_return else csv.QUOTE_MINIMAL,
    )


def write_csv(table: pd.DataFrame, file: str | Path) -> None:
    """Write predictions as CSV in UTF-8, with the labels before the probabilities.

    No file is overwritten, since somebody may have corrected it, unless it has the same content.

    Args:
        table: as from `predict`.
        file: a new file.

    Raises:
        SpmlError: if it cannot be written, and as `spml_nb.base.files.refuse_existing`.
    """
    file = Path(file)
    content = as_csv(table, names_first=True).encode('utf-8', 'surrogateescape')
    if file.is_file() and file.read_bytes() == content:
        return
    files.refuse_existing(file)
    files.write_atomically(file, lambda path: path.write_bytes(content))
