"""Pictures and tables of a run: curves, scores, classes, and photos with their predictions."""

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
from ..data.labels import TRUTHS, choose_score_targets, describe_labels, describe_truth
from .summary import read_observed_auc


def learning_curves(curves: pd.DataFrame, title: str = ''):
    """Plot training loss and validation score over epochs.

    Args:
        curves: one row per epoch: stage, loss, val_map (percent), and if observed labels select the
            epoch also val_auc (percent), which is then plotted.
        title: of the figure.

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
    """Updates a plot of the curves after each epoch in a notebook: `train(config,
    on_epoch=LivePlot())`.

    Args:
        title: of the figure.
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
        DataFrame indexed by 'val' and 'test': observed AUC if it was measured, mAP, micro-F1 and
        macro-F1 in percent, '–' if not measured, and the kind of labels they are against.
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
            'observed AUC (%)': read_observed_auc(scores, part),
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
    """Statistics of label matrices, side by side.

    Args:
        matrices: (N, C) in {1, 0, −1}; the keywords become columns.

    Returns:
        DataFrame with the rows of `spml_nb.data.labels.describe_labels`.

    Raises:
        SpmlError: as `describe_labels`.
    """
    columns = {}
    for name, matrix in matrices.items():
        numbers = {key: round(value, 4) for key, value in describe_labels(matrix).items()}
        columns[name] = pd.Series(numbers, dtype=object)
    return pd.DataFrame(columns)


def class_plot(ap: list[float], class_names: list[str], labels: np.ndarray, most: int = 20):
    """Plot the average precision of each class, best first, with the share of positive images.

    Args:
        ap: (C,) in [0, 1].
        class_names: C texts.
        labels: (N, C) in {1, 0, −1} of the scored images; a class without a positive has no bar.
        most: number of classes in the plot: the best and the worst half of them.

    Returns:
        matplotlib Figure.
    """
    targets, truth = choose_score_targets(labels)
    positives = (targets > 0).sum(0)
    share = positives / np.maximum((targets != 0).sum(0), 1)
    ap = np.where(positives > 0, ap, np.nan)  # undefined without positives
    order, _ = _split_middle(ap, most)
    width = np.clip(2 + 0.2 * len(order), 4, 9)
    figure, axis = plt.subplots(figsize=(width, 3), layout='constrained')
    x = np.arange(len(order))
    axis.bar(x, 100 * ap[order], color='#4477aa', label='average precision')
    axis.plot(x, 100 * share[order], 'k_', label='share of images (AP of chance)')
    names = [wrap_name(class_names[i]) for i in order]
    axis.set_xticks(x, names, rotation=90, fontsize=7, parse_math=False)  # names may contain $
    axis.set(ylabel='%', xlim=(-0.6, len(order) - 0.4))
    if len(order) < len(ap):
        axis.axvline(most // 2 - 0.5, color='grey', linestyle=':')
    figure.legend(fontsize=7, ncols=2, frameon=False, loc='outside upper center')
    if truth != TRUTHS[0]:
        axis.set_title(f'against {describe_truth(truth, (targets == 0).sum())}', fontsize=8)
    return figure


def _split_middle(ap: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    "The classes in a plot, best first, and the middle ones that it leaves out."
    order = np.argsort(-ap, kind='stable')
    middle = order[most // 2 : -(most // 2)]
    return order[~np.isin(order, middle)], middle


def class_table(
    ap: list[float], class_names: list[str], labels: np.ndarray, most: int = 20
) -> pd.DataFrame:
    """The classes that `class_plot` leaves out.

    Args:
        ap, class_names, labels, most: as in `class_plot`.

    Returns:
        DataFrame indexed by class, the best first: average precision (percent) and number of
        photos; empty if the plot shows all classes.
    """
    ap = np.where((choose_score_targets(labels)[0] > 0).any(0), ap, np.nan)
    _, middle = _split_middle(ap, most)
    values = {
        'average precision (%)': (100 * ap[middle]).round(1),
        'photos': (np.asarray(labels)[:, middle] > 0).sum(0),
    }
    names = [class_names[i] for i in middle]
    return pd.DataFrame(values, index=pd.Index(names, name='class'))


def wrap_name(name: str) -> str:
    """Break a name into at most three short lines, shortened with '…' if it is longer."""
    return textwrap.fill(name, 18, max_lines=3, placeholder='…')


def open_thumbnail(images, row: int, size: int = 160) -> np.ndarray:
    """A small version of an image of a data set, decoded as for a network.

    Args:
        images: paths, or (N, H, W, 3) uint8, which are returned at their size.
        row: row number.
        size: pixels of the longer side.

    Returns:
        (h, w, 3) uint8.

    Raises:
        SpmlError: as `spml_nb.data.decoding.to_upright_rgb`.
    """
    if isinstance(images, np.ndarray):
        return images[row]
    with open_photo(images[row]) as image:
        return reduce_image(image, size)


# of a predicted label, by its true label: positive, negative, unknown
_COLOURS = {1: '#117733', -1: '#cc3311', 0: '#997700'}
_MISSED = '#888888'


def prediction_words(
    probability: np.ndarray, truth: np.ndarray, class_names: list[str], threshold: float
) -> list[tuple[str, str]]:
    """The predicted labels of an image, the most confident first, then the missed ones; at most
    six.

    Args:
        probability: (C,) in [0, 1].
        truth: (C,) in {1, 0, −1}.
        class_names: C texts.
        threshold: on the probability.

    Returns:
        [(name and probability, colour)].
    """
    words = [f'{name} {p:.2f}' for name, p in zip(class_names, probability, strict=True)]
    order = np.argsort(-probability, kind='stable')
    predicted = [(words[c], _COLOURS[int(truth[c])]) for c in order if probability[c] >= threshold]
    missed = np.flatnonzero((truth > 0) & (probability < threshold))
    return (predicted + [(words[c], _MISSED) for c in missed])[:6]


def photo_grid(
    data: Dataset, rows: np.ndarray, logits: Tensor | np.ndarray, threshold: float, columns: int = 6
):
    """Plot images with their predicted and missed labels below.

    Args:
        data: images and true labels.
        rows: (n,) row numbers.
        logits: (n, C).
        threshold: on the probability.
        columns: photos per line.

    Returns:
        matplotlib Figure.
    """
    probability = expit(np.asarray(logits, dtype=np.float64))
    images = [open_thumbnail(data.images, row) for row in rows]
    captions = []  # [(line, colour)] of each photo
    for row, p in zip(rows, probability, strict=True):
        words = prediction_words(p, data.labels[row], data.class_names, threshold)
        lines = [(line, colour) for text, colour in words for line in textwrap.wrap(text, 24)]
        captions.append(lines[:9])
    unknown = ', brown: not known' if (data.labels[rows] == 0).any() else ''
    legend = f'green: right, red: wrong, grey: missed{unknown} (threshold {threshold:.2f})'
    title = textwrap.fill(legend, 22 * columns)
    figure, axes = _make_photo_axes(images, [len(lines) for lines in captions], columns, title)
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


_LINE = 9  # points, the distance between lines of a caption
# inches
_CELL = 1.5  # width of a column
_PHOTO = 1.35  # width of a photo
_GAP = 0.15  # below a caption


def _make_photo_axes(images, caption_lines, columns, title):
    """A figure with axes for each photo, in rows that are as high as their photos and captions.

    Args:
        caption_lines: number of lines below each photo.
    """
    photo_heights = [_PHOTO * min(len(image) / image.shape[1], 1.5) for image in images]
    cell_heights = [
        photo + lines * _LINE / 72 + _GAP
        for photo, lines in zip(photo_heights, caption_lines, strict=True)
    ]
    row_heights = [max(cell_heights[k : k + columns]) for k in range(0, len(images), columns)]
    top = 0.15 * (2 + title.count('\n'))
    width = _CELL * columns
    height = top + sum(row_heights)
    figure = plt.figure(figsize=(width, height))
    figure.suptitle(title, fontsize=8, y=1 - 0.05 / height)
    axes = []
    for k, photo_height in enumerate(photo_heights):
        row, column = divmod(k, columns)
        left = column * _CELL + _GAP / 2
        bottom = height - top - sum(row_heights[:row]) - photo_height
        position = (left / width, bottom / height, _PHOTO / width, photo_height / height)
        axis = figure.add_axes(position, anchor='NW')
        axis.axis('off')
        axes.append(axis)
    return figure, axes


def titled_grid(
    images: list[np.ndarray], texts: list[str], colours: list[str] | None = None, columns: int = 6
):
    """Plot photos with a title above each.

    Args:
        images: n of (h, w, 3) uint8.
        texts: n titles, which may have several lines.
        colours: of the titles; unset: black.
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
    """Render a figure as JPEG, so that a notebook with photos stays small.

    Args:
        figure: of matplotlib; it is closed.

    Returns:
        IPython.display.Image.
    """
    from IPython.display import Image as Picture

    file = io.BytesIO()
    figure.savefig(file, format='jpeg', dpi=100, pil_kwargs={'quality': 70})
    plt.close(figure)
    return Picture(file.getvalue())


def worst_mistakes(
    labels: np.ndarray, logits: Tensor | np.ndarray, threshold: float, most: int = 12
) -> pd.DataFrame:
    """The mistakes farthest from the threshold, at most one per photo.

    Args:
        labels: (N, C) in {1, 0, −1}; unknown labels cannot be mistaken.
        logits: (N, C).
        threshold: on the probability.
        most: maximum number.

    Returns:
        DataFrame, the worst first: row, class (number), probability, and there (whether the true
        label is positive).
    """
    s = np.asarray(logits, np.float64)
    labels = np.asarray(labels)
    cut = logit(np.clip(threshold, 1e-6, 1 - 1e-6))
    beyond = -labels * np.where(labels == 0, 0, s - cut)  # 0 · ∞ would be NaN
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
    """Plot the photos with the worst mistakes: the label, its probability, and whether it was
    missed.

    Args:
        data: images and true labels.
        rows: (n,) row numbers.
        logits: (n, C).
        threshold: on the probability.
        most: maximum number of photos.

    Returns:
        matplotlib Figure; None if no known label is mistaken.
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
