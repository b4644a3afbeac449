"""What a person wants to see of a run: its curves, its numbers, its classes, and photos with their
labels.
"""

import io
import math
import textwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.special import expit, logit
from torch import Tensor

from ..data.dataset import Dataset
from ..data.decoding import open_photo
from ..data.images import reduce_image
from ..data.labels import TRUTHS, describe_labels, describe_truth, labels_for_scoring
from .summary import observed_auc_of


def learning_curves(curves: pd.DataFrame, title: str = ''):
    """Training loss over epochs, and the validation score that chose among them.

    Args:
        curves: one row per epoch with stage, loss, val_map (percent), and val_auc (percent) where
            observed labels chose.
        title: above both.

    Returns:
        matplotlib Figure.
    """
    score, measure = ('val_auc', 'observed AUC') if 'val_auc' in curves else ('val_map', 'mAP')
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.6), layout='constrained')
    for stage, rows in curves.reset_index(drop=True).groupby('stage'):
        epochs = rows.index + 1
        left.plot(epochs, rows['loss'], marker='.', label=f'stage {stage}')
        right.plot(epochs, rows[score], marker='.', label=f'stage {stage}')
    left.set(xlabel='epoch', ylabel='training loss')
    right.set(xlabel='epoch', ylabel=f'validation {measure} (%)')
    left.grid(alpha=0.3)
    right.grid(alpha=0.3)
    if curves['stage'].nunique() > 1:
        right.legend()
    figure.suptitle(title, fontsize=10, parse_math=False)
    return figure


class LivePlot:
    """Draws the curves anew after each epoch, in place, in a notebook: `train(config,
    on_epoch=LivePlot())`.

    Args:
        title: above the curves.
    """

    def __init__(self, title: str = ''):
        self.title = title
        self.handle = None

    def __call__(self, curves: pd.DataFrame):
        from IPython.display import display

        figure = learning_curves(curves, self.title)
        if self.handle is None:
            self.handle = display(figure, display_id=True)
        else:
            self.handle.update(figure)
        plt.close(figure)


def score_table(scores: dict) -> pd.DataFrame:
    """The scores of a run as a small table.

    Args:
        scores: as from `spml_nb.training.selection.score_finished_run`.

    Returns:
        DataFrame with one row per part of the data, in percent, '–' for what was not measured, such
        as F1 where only some labels are known; its last column says what was measured against, and
        its first is observed AUC where that was measured.
    """
    rows = {}
    for part in ('val', 'test'):
        if f'{part}_map' not in scores:
            continue
        truth = scores.get(f'{part}_truth', TRUTHS[0])
        f1 = {'micro': np.nan, 'macro': np.nan}
        if truth != TRUTHS[2]:
            f1 = {kind: scores.get(f'{part}_{kind}_f1', np.nan) for kind in f1}
        rows[part] = {
            'observed AUC (%)': observed_auc_of(scores, part),
            'mAP (%)': scores[f'{part}_map'],
            'micro-F1 (%)': 100 * f1['micro'],
            'macro-F1 (%)': 100 * f1['macro'],
            'against': describe_truth(truth, scores.get(f'{part}_left_out')),
        }
    table = pd.DataFrame.from_dict(rows, orient='index').round(4)
    if len(table) and table['observed AUC (%)'].isna().all():
        table = table.drop(columns='observed AUC (%)')
    return table.astype(object).fillna('–')


def label_table(**matrices: np.ndarray) -> pd.DataFrame:
    """Label matrices in numbers, side by side.

    Args:
        matrices: (N, C) in {1, 0, −1}, each under its name.

    Returns:
        DataFrame with the rows of `spml_nb.data.labels.describe_labels`; counts are whole numbers.

    Raises:
        SpmlError: as `describe_labels`.
    """
    columns = {}
    for name, matrix in matrices.items():
        numbers = {key: round(value, 4) for key, value in describe_labels(matrix).items()}
        columns[name] = pd.Series(numbers, dtype=object)
    return pd.DataFrame(columns)


def class_plot(ap: list[float], class_names: list[str], labels: np.ndarray, most: int = 20):
    """Average precision per class, best first, with the share of images that have the class.

    Args:
        ap: (C,) in [0, 1]; a class without a positive has no bar.
        class_names: C texts.
        labels: (N, C) in {1, 0, −1} of the images that were scored; the share of positives among
            those that count is the AP of random scores.
        most: how many classes are shown, half from each end.

    Returns:
        matplotlib Figure.
    """
    targets, truth = labels_for_scoring(labels)
    positives = (targets > 0).sum(0)
    share = positives / np.maximum((targets != 0).sum(0), 1)
    ap = np.where(positives > 0, ap, np.nan)  # a class that no image has was not measured
    order, _ = _ends(ap, most)
    width = np.clip(2 + 0.2 * len(order), 4, 9)
    figure, axis = plt.subplots(figsize=(width, 3), layout='constrained')
    x = np.arange(len(order))
    axis.bar(x, 100 * ap[order], color='#4477aa', label='average precision')
    axis.plot(x, 100 * share[order], 'k_', label='share of images (AP of chance)')
    names = [wrap_name(class_names[i]) for i in order]
    axis.set_xticks(x, names, rotation=90, fontsize=7, parse_math=False)  # any sign may be in them
    axis.set(ylabel='%', xlim=(-0.6, len(order) - 0.4))
    if len(order) < len(ap):
        axis.axvline(most // 2 - 0.5, color='grey', linestyle=':')
    # beside the bars, not on them
    figure.legend(fontsize=7, ncols=2, frameon=False, loc='outside upper center')
    if truth != TRUTHS[0]:
        axis.set_title(f'against {describe_truth(truth, (targets == 0).sum())}', fontsize=8)
    return figure


def _ends(ap: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    "The classes in a plot, best first, and those between its two halves."
    order = np.argsort(-ap, kind='stable')
    between = order[most // 2 : -(most // 2)]
    return order[~np.isin(order, between)], between


def class_table(
    ap: list[float], class_names: list[str], labels: np.ndarray, most: int = 20
) -> pd.DataFrame:
    """The classes that `class_plot` leaves out.

    Args:
        ap, class_names, labels, most: as in `class_plot`.

    Returns:
        DataFrame, the best first: average precision (percent) and photos (how many have the class),
        by name; without a row where the plot shows all.
    """
    ap = np.where((labels_for_scoring(labels)[0] > 0).any(0), ap, np.nan)
    _, between = _ends(ap, most)
    values = {
        'average precision (%)': (100 * ap[between]).round(1),
        'photos': (np.asarray(labels)[:, between] > 0).sum(0),
    }
    names = [class_names[i] for i in between]
    return pd.DataFrame(values, index=pd.Index(names, name='class'))


def wrap_name(name: str) -> str:
    """A name on at most three short lines.

    Args:
        name: any text.

    Returns:
        Text with line breaks; what does not fit ends in '…'.
    """
    return textwrap.fill(name, 18, max_lines=3, placeholder='…')


def open_thumbnail(images, row: int, size: int = 160) -> np.ndarray:
    """An image of a data set, small, decoded as for a network.

    Args:
        images: paths, or (N, H, W, 3) uint8.
        row: which of them.
        size: of the longer side in pixels.

    Returns:
        (h, w, 3) uint8.

    Raises:
        SpmlError: as `spml_nb.data.images.upright`.
    """
    if isinstance(images, np.ndarray):
        return images[row]
    with open_photo(images[row]) as image:
        return reduce_image(image, size)


# of a predicted label by its truth: right, wrong, or not known
_COLOURS = {1: '#117733', -1: '#cc3311', 0: '#997700'}
_MISSED = '#888888'


def prediction_words(
    probability: np.ndarray, truth: np.ndarray, class_names: list[str], threshold: float
) -> list[tuple[str, str]]:
    """What was predicted and what was missed for one image, in six words at most.

    Args:
        probability: (C,) in [0, 1].
        truth: (C,) in {1, 0, −1}.
        class_names: C texts.
        threshold: in [0, 1].

    Returns:
        [(text, colour)], the most confident first.
    """
    words = [f'{name} {p:.2f}' for name, p in zip(class_names, probability, strict=True)]
    order = np.argsort(-probability, kind='stable')
    predicted = [(words[c], _COLOURS[int(truth[c])]) for c in order if probability[c] >= threshold]
    missed = np.flatnonzero((truth > 0) & (probability < threshold))
    return (predicted + [(words[c], _MISSED) for c in missed])[:6]


def photo_grid(
    data: Dataset, rows: np.ndarray, logits: Tensor | np.ndarray, threshold: float, columns: int = 6
):
    """Images with their true and predicted labels beneath, a line each.

    Args:
        data: images and true labels.
        rows: (n,) its row numbers.
        logits: (n, C).
        threshold: on the probability, in [0, 1].
        columns: photos per line.

    Returns:
        matplotlib Figure.
    """
    probability = expit(np.asarray(logits, dtype=np.float64))
    images = [open_thumbnail(data.images, row) for row in rows]
    captions = []  # of each photo: [(line, colour)]
    for row, p in zip(rows, probability, strict=True):
        words = prediction_words(p, data.labels[row], data.class_names, threshold)
        lines = [(line, colour) for text, colour in words for line in textwrap.wrap(text, 24)]
        captions.append(lines[:9])
    unknown = ', brown: not known' if (data.labels[rows] == 0).any() else ''
    legend = f'green: right, red: wrong, grey: missed{unknown} (threshold {threshold:.2f})'
    title = textwrap.fill(legend, 22 * columns)
    figure, axes = _places(images, [len(lines) for lines in captions], columns, title)
    for axis, image, lines in zip(axes, images, captions, strict=True):
        axis.imshow(image)
        for k, (line, colour) in enumerate(lines):
            axis.annotate(
                line,
                xy=(0, 0),
                xytext=(0, -3 - _LINE * k),
                xycoords='axes fraction',
                textcoords='offset points',
                color=colour,
                va='top',
                fontsize=7,
                parse_math=False,
            )
    return figure


_LINE = 9  # points from a line of words to the next
_CELL = 1.5  # inches, the width of a column
_PHOTO = 1.35  # inches, the width of a photo in it
_GAP = 0.15  # inches, the free space below a photo's words


def _places(images, counts, columns, title):
    """A figure with a title and a place for each photo; a row is as high as its photos and the
    words below them need.

    counts: lines of words below each photo.
    """
    photos = [_PHOTO * min(len(image) / image.shape[1], 1.5) for image in images]  # their heights
    cells = [photo + n * _LINE / 72 + _GAP for photo, n in zip(photos, counts, strict=True)]
    rows = [max(cells[k : k + columns]) for k in range(0, len(images), columns)]
    top = 0.15 * (2 + title.count('\n'))
    width = _CELL * columns
    height = top + sum(rows)
    figure = plt.figure(figsize=(width, height))
    figure.suptitle(title, fontsize=8, y=1 - 0.05 / height)
    axes = []
    for k, photo in enumerate(photos):
        row, column = divmod(k, columns)
        left = column * _CELL + _GAP / 2
        base = height - top - sum(rows[:row]) - photo
        place = (left / width, base / height, _PHOTO / width, photo / height)
        axis = figure.add_axes(place, anchor='NW')
        axis.axis('off')
        axes.append(axis)
    return figure, axes


def titled_grid(
    images: list[np.ndarray], texts: list[str], colours: list[str] | None = None, columns: int = 6
):
    """Photos with a few words above each.

    Args:
        images: n of (h, w, 3) uint8.
        texts: n titles, on as many lines as they have.
        colours: n colours of the titles; unset: black.
        columns: photos per line.

    Returns:
        matplotlib Figure.
    """
    rows = math.ceil(len(images) / columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(1.1 * columns, 1.5 * rows), squeeze=False, layout='constrained'
    )
    for axis in axes.flat:
        axis.axis('off')
    colours = colours or ['black'] * len(images)
    for axis, image, text, colour in zip(axes.flat, images, texts, colours, strict=False):
        axis.imshow(image)
        axis.set_title(text, fontsize=7, color=colour, parse_math=False)
    return figure


def figure_to_jpeg(figure):
    """A figure as JPEG, so that a notebook with photos stays small.

    Args:
        figure: of matplotlib; it is closed.

    Returns:
        What a notebook shows as a picture.
    """
    from IPython.display import Image as Picture

    file = io.BytesIO()
    figure.savefig(file, format='jpeg', dpi=100, pil_kwargs={'quality': 70})
    plt.close(figure)
    return Picture(file.getvalue())


def worst_mistakes(
    labels: np.ndarray, logits: Tensor | np.ndarray, threshold: float, most: int = 12
) -> pd.DataFrame:
    """The mistakes farthest beyond the threshold, one entry a photo.

    Args:
        labels: (N, C) in {1, 0, −1}; what is unknown cannot be mistaken.
        logits: (N, C).
        threshold: on the probability, in [0, 1].
        most: how many at most.

    Returns:
        DataFrame, the worst first: row, class, probability, and there (whether the label is).
    """
    s = np.asarray(logits, np.float64)
    labels = np.asarray(labels)
    cut = logit(np.clip(threshold, 1e-6, 1 - 1e-6))
    beyond = -labels * np.where(labels == 0, 0, s - cut)  # 0·∞ is no number
    classes = beyond.argmax(1)
    farthest = beyond.max(1)
    rows = np.argsort(-farthest, kind='stable')[:most]
    rows = rows[farthest[rows] > 0]
    classes = classes[rows]
    return pd.DataFrame(
        {
            'row': rows,
            'class': classes,
            'probability': expit(s[rows, classes]),
            'there': labels[rows, classes] > 0,
        }
    )


def mistake_grid(
    data: Dataset, rows: np.ndarray, logits: Tensor | np.ndarray, threshold: float, most: int = 12
):
    """The photos of the worst mistakes, with the label, its probability, and what is true.

    Args:
        data: images and true labels.
        rows: (n,) its row numbers.
        logits: (n, C).
        threshold: on the probability, in [0, 1].
        most: how many photos at most.

    Returns:
        matplotlib Figure; None where no known label is mistaken.
    """
    worst = worst_mistakes(data.labels[rows], logits, threshold, most)
    if not len(worst):
        return None
    images = [open_thumbnail(data.images, rows[row]) for row in worst['row']]
    texts, colours = [], []
    for c, p, there in zip(worst['class'], worst.probability, worst.there, strict=True):
        mistake = 'missed' if there else 'not there'
        texts.append(f'{wrap_name(data.class_names[c])}\n{p:.2f}, {mistake}')
        colours.append('#555555' if there else '#cc3311')
    figure = titled_grid(images, texts, colours)
    title = f'red: found and not there, grey: there and missed (threshold {threshold:.2f})'
    figure.suptitle(title, fontsize=8)
    return figure
