"""How well a trained model names labels that are known: counts, precision, recall and mAP, with intervals."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from .. import metrics
from ..base.errors import SpmlError, warn
from ..data import labels as label_values
from ..data.dataset import Dataset, default_part, listed
from ..data.folder import explain_split
from ..data.loading import load
from ..replication.statistics import image_draws, resampled_map
from .predict import open_model

REPEATS, Z = (
    400,
    1.959964,
)  # bootstrap samples of the photos; half the width of a 95 % interval in deviations


@dataclass(frozen=True, eq=False)
class Scores:
    """How well the labels of some photos are named.

    Attributes:
        total: DataFrame of value, low and high (95 % interval over photos), in percent, for 'mAP',
            'micro-F1', 'precision' and 'recall', the last three over all entries. Where the truth
            is 'observed only': 'recall' of the observed labels, and 'precision at least', the share
            of the named labels that are observed.
        classes: DataFrame, one row per class: the counts present, named and right; precision with
            low and high, recall, and ap, in percent; NaN where a number has nothing to stand on. In
            the classes marked in `at_least` a named label that is not in the table may be right, so
            that right and precision are lower bounds.
        labels_a_photo: how many labels are named on a photo, on average.
        without_label: the share of the photos for which none is named, in percent.
        photos: how many.
        unused: how many of them count nowhere, as in `labels.for_scoring`.
        truth, left_out: as from `labels.for_scoring`, and how many entries are unknown.
        threshold: a probability.
        heading: what was scored, in words.
        absent: classes of the model that the data do not have.
    """

    total: pd.DataFrame
    classes: pd.DataFrame
    photos: int
    unused: int
    truth: str
    left_out: int
    threshold: float
    labels_a_photo: float
    without_label: float
    heading: str = ''
    absent: tuple = ()

    @property
    def observed_only(self) -> bool:
        """Whether precision, F1 and mAP cannot be measured, since in no class a label is known to
        be absent.
        """
        return self.truth == label_values.TRUTHS[2]

    @property
    def over(self) -> str:
        """Which classes the mAP leaves out, and what the run's own mAP does with them; '' if it has
        all, or is none.
        """
        out = self.classes.index[self.classes.ap.isna()]
        return (
            ''
            if out.empty or self.observed_only
            else (
                f'mAP over {len(self.classes) - len(out)} of {len(self.classes)} classes: '
                f'{listed(out, 20)} cannot be scored here, since no photo has it or none is known '
                'to lack it; with map_definition cole, that of named data sets and of earlier '
                'versions, `spml train` and `spml runs` count a class that no photo has as 0'
            )
        )

    @property
    def bounds(self) -> str:
        "What is a lower bound, and why; '' if nothing is."
        classes = self.classes.index[self.classes.at_least]
        if classes.empty:
            return ''
        of = '' if self.observed_only else f'of {listed(classes, 20)} '
        rest = '; mAP and F1 cannot be measured' if self.observed_only else ''
        return (
            f'{of}no label is known to be absent, so what is named beside the observed labels '
            f'may be right as well, and the numbers of right labels and the precision are lower '
            f'bounds{rest}. Recall is that of the observed labels.'
        )

    def __str__(self):
        kind = f'against {label_values.against(self.truth, self.left_out)}'
        if self.observed_only:
            kind = 'of which only some labels are known'
        lines = [
            f'{self.heading}{self.photos:,} photos, {kind}; '
            f'a label is named from a probability of {self.threshold:.4g} on (threshold)',
            f'named: {self.labels_a_photo:.2f} labels a photo, none on '
            f'{self.without_label:.1f} % of the photos',
        ]
        lines.append(
            self.unused
            and f'{self.unused:,} of them count nowhere: no label is known to be absent there, so that nothing '
            'could be named wrongly'
        )
        lines.append(
            self.absent
            and f'not scored, because the data do not have them: {listed(self.absent, 20)}'
        )
        return '\n'.join(
            [
                *filter(None, [*lines, self.over, self.bounds]),
                '',
                in_words(self.total).to_string(),
                '',
                in_words(self.classes).to_string(),
            ]
        )


def in_words(table: pd.DataFrame) -> pd.DataFrame:
    """A table of `Scores` for people.

    Args:
        table: `total` or `classes`.

    Returns:
        Its cells as texts: whole counts, one digit behind the point, low and high as '95 %
        interval', a dash for NaN, 'at least' before what is a lower bound.
    """

    def word(value):
        return (
            '–'
            if value != value
            else f'{value:z,.1f}'
            if isinstance(value, float)
            else f'{value:,}'
        )

    one = table.drop(columns='at_least', errors='ignore').map(word)
    if 'at_least' in table:
        for name in ('right', 'precision'):
            bounded = table.at_least & table[name].notna()
            one[name] = one[name].mask(bounded, 'at least ' + one[name])
    one.insert(
        one.columns.get_loc('low'),
        '95 % interval',
        (one.low + ' to ' + one.high).where(table.low.notna(), '–'),
    )
    return one.drop(columns=['low', 'high'])


def _shares(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    "part / whole in percent, NaN where the whole is empty."
    return np.divide(
        100 * part, whole, out=np.full(np.shape(whole), np.nan), where=np.asarray(whole) > 0
    )


def wilson(right: np.ndarray, named: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % interval of a share, which holds for few photos too.

    Args:
        right: counts.
        named: counts, at least as large.

    Returns:
        Lowest and highest share, in percent; NaN where nothing is named.

    Source: Wilson (1927).
    """
    p, n = _shares(right, named) / 100, np.maximum(named, 1)
    middle, half = p + Z**2 / (2 * n), Z * np.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    return tuple(100 * (middle + sign * half) / (1 + Z**2 / n) for sign in (-1, 1))


def _resampled(probabilities: np.ndarray, targets: np.ndarray, draws: np.ndarray) -> np.ndarray:
    "mAP of each draw of photos, (R,); a class counts where a draw has a photo with it."
    each = [
        resampled_map(probabilities[:, [c]], targets[:, [c]], draws)
        for c in range(targets.shape[1])
    ]
    there = draws @ (targets > 0) > 0
    return np.sum(each, axis=0) / np.where(there.any(1), there.sum(1), np.nan)


def _total(
    right: np.ndarray,
    named: np.ndarray,
    present: np.ndarray,
    mean: float | None = None,
    maps: Callable | None = None,
) -> pd.DataFrame:
    """`Scores.total`, from (N, C) masks, and from the mAP and its function of draws of photos if it
    can be measured.
    """
    draws = image_draws(len(right), REPEATS)
    hits, guesses, truths = (
        np.append(of.sum(), draws @ of.sum(1)) for of in (right, named, present)
    )  # (1 + R,)
    precision, recall = _shares(hits, guesses), _shares(hits, truths)
    total = {'recall': recall, 'precision at least': precision}
    if maps is not None:
        total = {
            'mAP': np.append(mean, maps(draws)),
            'micro-F1': _shares(2 * hits, guesses + truths),
            'precision': precision,
            'recall': recall,
        }
    table = pd.DataFrame(
        {
            name: {'value': each[0], 'half': Z * pd.Series(each[1:]).std(ddof=0)}
            for name, each in total.items()
        }
    ).T
    return pd.DataFrame(
        {
            'value': table.value,
            'low': (table.value - table.half).clip(0, 100),
            'high': (table.value + table.half).clip(0, 100),
        }
    )


def score(
    probabilities: np.ndarray, labels: np.ndarray, names: list[str], threshold: float, **words
) -> Scores:
    """Compare what a model says with what is known.

    Args:
        probabilities: (N, C) in [0, 1].
        labels: (N, C) in {1, 0, −1}, 0 for unknown.
        names: C classes.
        threshold: from which probability on a label is named.
        words: heading and absent, as in `Scores`.

    Returns:
        Scores. A class without a known positive, or in which nothing can be wrong, has no AP and no
        part in the mAP.

    Raises:
        SpmlError: where no photo has any of the classes.
    """
    targets, truth = label_values.for_scoring(labels)
    at_least = _are_bounds(labels, truth)
    counted = np.where(at_least, labels > 0, targets != 0)
    said, present = probabilities >= threshold, (labels > 0) & counted
    if not present.any():
        raise SpmlError(
            'no photo is known to have any of the classes, so nothing can be scored. Check the '
            'labels.'
        )
    named, right = said & (counted | at_least), said & present
    ranked = present.any(0) & ~at_least & (truth != label_values.TRUTHS[2])
    counts = {'present': present.sum(0), 'named': named.sum(0), 'right': right.sum(0)}
    low, high = np.where(at_least, np.nan, wilson(counts['right'], counts['named']))
    ap = np.where(
        ranked, 100 * metrics.average_precision(probabilities, targets, unknown='ignore'), np.nan
    )
    table = {
        **counts,
        'precision': _shares(counts['right'], counts['named']),
        'low': low,
        'high': high,
        'recall': _shares(counts['right'], counts['present']),
        'ap': ap,
        'at_least': at_least,
    }
    if ranked.any():
        maps = partial(_resampled, probabilities[:, ranked], targets[:, ranked])
        masks = (mask[:, ~at_least] for mask in (right, named, present))
        total = _total(*masks, ap[ranked].mean(), maps)
    else:
        total = _total(right, named, present)
    return Scores(
        total,
        pd.DataFrame(table, names),
        len(targets),
        int((targets == 0).all(1).sum()),
        truth,
        int((targets == 0).sum()),
        threshold,
        float(said.sum(1).mean()),
        float(100 * (~said.any(1)).mean()),
        **words,
    )


def _are_bounds(labels: np.ndarray, truth: str) -> np.ndarray:
    """(C,) bool: the classes in which a label that is named beside the observed ones may be right
    as well.
    """
    unknown = (labels == 0).any(0)
    return unknown if truth == label_values.TRUTHS[2] else unknown & ~(labels < 0).any(0)


def _is_own(description, data):
    "Whether a model was trained on a data set of this name, or one with these test photos."
    tested = description.get('tested')
    return (
        description['dataset'] == data.name
        or tested == data.photos_of('test')
        or bool(explain_split(data, tested))
    )


def _describe_training(description, data, rows):
    """For the heading: what is known of a model's training on rows. Warns of test photos that it
    was not tested on.
    """
    if not _is_own(description, data):
        return ' (whether the model was trained on some of them is not known)'
    if (data.split[rows] != 'test').any():
        return ' (trained or chosen on photos of these names)'
    tested = description.get('tested')
    if tested not in (None, data.photos_of('test')):
        remedy = explain_split(data, tested) or (
            'If the parts have changed since, give the old ones in a column `split`; if these are '
            'other photos, take all of them (--part all).'
        )
        warn(
            f'{data.name}: these are not the test photos that the model was tested on, so that '
            f'some of them may have been trained on. {remedy}'
        )
    return ''


def evaluate(
    model: str | Path,
    dataset: str | Path,
    part: str | None = None,
    *,
    root: str | None = None,
    device: str | None = None,
) -> Scores:
    """Score a model on photos with known labels.

    Args:
        model: as in `spml_nb.use.predict.open_model`.
        dataset: a name, or a folder with images/ and labels.csv.
        part: 'train', 'val', 'test' or 'all'; unset: as in `default_part`.
        root: where named data sets live.
        device: unset: the setting `device`.

    Returns:
        Scores over the classes that both have.

    Raises:
        SpmlError: as `open_model` and `load`; where the part is empty, or no class is common to
            both.
    """
    opened, data = open_model(model, device), load(dataset, root, scored=True)
    part = part or default_part(data, _is_own(opened.description, data))
    rows = data.rows(part)
    if not len(rows):
        raise SpmlError(
            f'{data.name!r} has no photo in the part {part!r}. Take all of them (--part all), or '
            'mark rows in the column `split`.'
        )
    both = [name for name in opened.class_names if name in data.class_names]
    if not both:
        raise SpmlError(
            f'no class of {data.name!r} ({listed(data.class_names)}) is one of the model '
            f'({listed(opened.class_names)}). Rename those in labels.csv that mean the same.'
        )
    photos = [
        Image.fromarray(data.images[row]) if data.images_in_memory else data.images[row]
        for row in rows
    ]
    p = (
        opened.predict(photos)
        .iloc[:, 1:-1]
        .to_numpy(float)[:, [opened.class_names.index(name) for name in both]]
    )
    seen = _describe_training(opened.description, data, rows)
    return score(
        p,
        data.labels[np.ix_(rows, [data.class_names.index(name) for name in both])],
        both,
        opened.threshold,
        heading=f'{data.name}, part {part}{seen}{_chosen_here(opened.description, data)}: ',
        absent=tuple(name for name in opened.class_names if name not in both),
    )


def _chosen_here(description: dict, data: Dataset) -> str:
    "A remark, where the threshold of a model was set by photos of this folder."
    here = description.get('threshold_from', {}).get('data') == data.fingerprint
    return ' (its threshold was chosen on photos of this folder)' if here else ''
