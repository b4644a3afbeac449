"""What a person wants to see of a run: its curves, its numbers, its classes, and photos with their labels."""

import io
import textwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.special import expit, logit
from torch import Tensor

from ..data.dataset import Dataset
from ..data.images import reduced
from ..data.labels import TRUTHS, against, for_scoring, statistics
from ..data.photos import open_photo


def learning_curves(curves: pd.DataFrame, title: str = ''):
    """Training loss and validation mAP over epochs.

    Args:
        curves: one row per epoch with stage, loss, val_map (percent).
        title: above both.

    Returns:
        matplotlib Figure.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.6), layout='constrained')
    for axis, column, label in (
        (left, 'loss', 'training loss'),
        (right, 'val_map', 'validation mAP (%)'),
    ):
        for stage, part in curves.reset_index(drop=True).groupby('stage'):
            axis.plot(part.index + 1, part[column], marker='.', label=f'stage {stage}')
        axis.set(xlabel='epoch', ylabel=label)
        axis.grid(alpha=0.3)
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
        self.title, self.handle = title, None

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
        scores: as from `spml_nb.training.selection.scores`.

    Returns:
        DataFrame with one row per part of the data, in percent, '–' for what was not measured, such
        as F1 where only some labels are known; its last column says what was measured against.
    """
    names = {
        'mAP (%)': ('map', 1),
        'micro-F1 (%)': ('micro_f1', 100),
        'macro-F1 (%)': ('macro_f1', 100),
    }
    rows = {
        part: {
            name: scale * scores.get(f'{part}_{key}', np.nan)
            for name, (key, scale) in names.items()
        }
        | {
            'against': against(
                scores.get(f'{part}_truth', TRUTHS[0]), scores.get(f'{part}_left_out')
            )
        }
        for part in ('val', 'test')
        if f'{part}_map' in scores
    }
    for part in rows:
        if scores.get(f'{part}_truth') == TRUTHS[2]:
            rows[part] |= {'micro-F1 (%)': np.nan, 'macro-F1 (%)': np.nan}
    return pd.DataFrame.from_dict(rows, orient='index').round(4).astype(object).fillna('–')


def label_table(**matrices: np.ndarray) -> pd.DataFrame:
    """Label matrices in numbers, side by side.

    Args:
        matrices: (N, C) in {1, 0, −1}, each under its name.

    Returns:
        DataFrame with the rows of `spml_nb.data.labels.statistics`; counts are whole numbers.

    Raises:
        SpmlError: as `statistics`.
    """
    return pd.DataFrame(
        {
            name: pd.Series(
                {key: round(value, 4) for key, value in statistics(matrix).items()}, dtype=object
            )
            for name, matrix in matrices.items()
        }
    )


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
    targets, truth = for_scoring(labels)
    positives, counted = (targets > 0).sum(0), (targets != 0).sum(0)
    ap = np.where(positives > 0, ap, np.nan)  # a class that no image has was not measured
    order, _ = _ends(ap, most)
    figure, axis = plt.subplots(
        figsize=(np.clip(2 + 0.2 * len(order), 4, 9), 3), layout='constrained'
    )
    x = np.arange(len(order))
    axis.bar(x, 100 * np.asarray(ap)[order], color='#4477aa', label='average precision')
    axis.plot(
        x,
        100 * (positives / np.maximum(counted, 1))[order],
        'k_',
        label='share of images (AP of chance)',
    )
    axis.set_xticks(
        x, [wrapped(class_names[i]) for i in order], rotation=90, fontsize=7, parse_math=False
    )  # names may hold any sign
    axis.set(ylabel='%', xlim=(-0.6, len(order) - 0.4))
    if len(order) < len(ap):
        axis.axvline(most // 2 - 0.5, color='grey', linestyle=':')
    figure.legend(
        fontsize=7, ncols=2, frameon=False, loc='outside upper center'
    )  # beside the bars, not on them
    if truth != TRUTHS[0]:
        axis.set_title(f'against {against(truth, (targets == 0).sum())}', fontsize=8)
    return figure


def _ends(ap: list[float], most: int) -> tuple[np.ndarray, np.ndarray]:
    "The classes in a plot, best first, and those between its two halves."
    order = np.argsort(-np.asarray(ap), kind='stable')
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
    ap = np.where((for_scoring(labels)[0] > 0).any(0), ap, np.nan)
    _, between = _ends(ap, most)
    values = {
        'average precision (%)': (100 * np.asarray(ap)[between]).round(1),
        'photos': (np.asarray(labels)[:, between] > 0).sum(0),
    }
    return pd.DataFrame(values, index=pd.Index([class_names[i] for i in between], name='class'))


def wrapped(name: str) -> str:
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
        return reduced(image, size)


_COLOURS = {
    1: '#117733',
    -1: '#cc3311',
    0: '#997700',
}  # of a predicted label that is right, wrong, or not known


def label_words(
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
    order, missed = (
        np.argsort(-probability, kind='stable'),
        np.flatnonzero((truth > 0) & (probability < threshold)),
    )
    predicted = [(words[c], _COLOURS[int(truth[c])]) for c in order if probability[c] >= threshold]
    return (predicted + [(words[c], '#888888') for c in missed])[:6]


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
    words = [
        label_words(p, data.labels[row], data.class_names, threshold)
        for row, p in zip(rows, probability, strict=True)
    ]
    lines = [
        [(line, colour) for text, colour in of_one for line in textwrap.wrap(text, 24)][:9]
        for of_one in words
    ]
    unknown = ', brown: not known' if (data.labels[rows] == 0).any() else ''
    legend = f'green: right, red: wrong, grey: missed{unknown} (threshold {threshold:.2f})'
    figure, axes = _places(
        images, [len(of_one) for of_one in lines], columns, textwrap.fill(legend, 22 * columns)
    )
    for axis, image, of_one in zip(axes, images, lines, strict=True):
        axis.imshow(image)
        for k, (line, colour) in enumerate(of_one):
            axis.annotate(
                line,
                (0, 0),
                (0, -3 - _LINE * k),
                'axes fraction',
                'offset points',
                color=colour,
                va='top',
                fontsize=7,
                parse_math=False,
            )
    return figure


_LINE = 9  # points from a line of words to the next
_CELL, _PHOTO, _GAP = (
    1.5,
    1.35,
    0.15,
)  # inches: a column, a photo's width in it, free space below a photo's words


def _places(images, counts, columns, title):
    """A figure with a title and a place for each photo; a row is as high as its photos and the
    words below them need.
    """
    tall = [_PHOTO * min(len(image) / image.shape[1], 1.5) for image in images]
    needed = [photo + count * _LINE / 72 + _GAP for photo, count in zip(tall, counts, strict=True)]
    rows = [max(needed[k : k + columns]) for k in range(0, len(images), columns)]
    top = 0.15 * (2 + title.count('\n'))
    wide, high = _CELL * columns, top + sum(rows)
    figure, axes = plt.figure(figsize=(wide, high)), []
    figure.suptitle(title, fontsize=8, y=1 - 0.05 / high)
    for k, photo in enumerate(tall):
        row, column = divmod(k, columns)
        left, base = column * _CELL + _GAP / 2, high - top - sum(rows[:row]) - photo
        axes.append(
            figure.add_axes((left / wide, base / high, _PHOTO / wide, photo / high), anchor='NW')
        )
        axes[-1].axis('off')
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
    height = -(-len(images) // columns)
    figure, axes = plt.subplots(
        height, columns, figsize=(1.1 * columns, 1.5 * height), squeeze=False, layout='constrained'
    )
    for axis in axes.flat:
        axis.axis('off')
    for axis, image, text, colour in zip(
        axes.flat, images, texts, colours or ['black'] * len(images), strict=False
    ):
        axis.imshow(image)
        axis.set_title(text, fontsize=7, color=colour, parse_math=False)
    return figure


def as_jpeg(figure):
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
    """Where a network is surest and wrong, one entry a photo.

    Args:
        labels: (N, C) in {1, 0, −1}; what is unknown cannot be mistaken.
        logits: (N, C).
        threshold: on the probability, in [0, 1].
        most: how many at most.

    Returns:
        DataFrame, the worst first: row, class, probability, and there (whether the label is).
    """
    s, labels = np.asarray(logits, np.float64), np.asarray(labels)
    beyond = -labels * np.where(
        labels == 0, 0, s - logit(np.clip(threshold, 1e-6, 1 - 1e-6))
    )  # 0·∞ is no number
    rows, classes = np.arange(len(s)), beyond.argmax(1)
    each = pd.DataFrame(
        {
            'row': rows,
            'class': classes,
            'probability': expit(s[rows, classes]),
            'there': labels[rows, classes] > 0,
            'beyond': beyond.max(1),
        }
    )
    worst = each[each.beyond > 0].sort_values(
        'beyond', ascending=False, kind='stable', ignore_index=True
    )
    return worst.head(most).drop(columns='beyond')


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
    texts = [
        f"{wrapped(data.class_names[w['class']])}\n{w.probability:.2f}, "
        f"{'missed' if w.there else 'not there'}"
        for _, w in worst.iterrows()
    ]
    figure = titled_grid(
        images, texts, ['#555555' if there else '#cc3311' for there in worst.there]
    )
    figure.suptitle(
        f'red: found and not there, grey: there and missed (threshold {threshold:.2f})', fontsize=8
    )
    return figure
