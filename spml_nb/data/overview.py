"""A report on a data set before training: label counts, unusable or duplicate photos, remedies."""

import json
import warnings
from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from .dataset import PARTS, Dataset, join_items
from .decoding import describe_animated
from .folder import find_folder
from .labels import Truth, choose_score_targets, describe_truth, explain_missing_scores, observe
from .loading import load
from .lookalikes import LookalikeGroup, inspect_photos

_RARE_BELOW = 20  # positives; also in the comparisons on photos
_MIN_POSITIVES = (_RARE_BELOW, 10, 5, 3)  # candidates for the advice --min-positives
_DOMINANT_FROM = 0.5  # share of all positives from which a class dominates


def count_parts(data: Dataset) -> pd.DataFrame:
    """Count photos and labels of each part.

    Returns:
        DataFrame, one row per non-empty part: photos, positives and negatives (means per photo),
        unknown (percent of the labels), unlabelled (photos without a positive), counted (photos
        that enter a score), scores (which labels scores are measured against).
    """
    rows = {}
    for part in PARTS:
        y = data.labels[data.rows(part)]
        if len(y):
            targets, truth = choose_score_targets(y)
            positives = (y > 0).sum(1)
            rows[part] = {
                'photos': len(y),
                'positives': positives.mean(),
                'negatives': (y < 0).sum(1).mean(),
                'unknown': 100 * (y == 0).mean(),
                'unlabelled': int((positives == 0).sum()),
                'counted': int((targets != 0).any(1).sum()),
                'scores': describe_truth(truth),
            }
    return pd.DataFrame.from_dict(rows, 'index')


def describe_observed(data: Dataset) -> str:
    "Describe the labels that a run with the default label setting observes."
    y = data.labels[np.isin(data.split, PARTS[:2])]
    z = observe(y, positives=1, negatives=0, unknown='ignore')
    all_positives = (y > 0).sum(1).mean()
    unknown = '; the others are unknown' if (y == 0).any() else ''
    text = f'A run sees all labels of the table, {all_positives:.1f} positives per photo{unknown}'
    if (z == y).all():
        return f'{text}.'
    single_positives = (z > 0).sum(1).mean()
    return f'{text}. With `-p labels single` it sees {single_positives:.1f} per photo.'


# ---- the report on a folder


@dataclass(frozen=True)
class FolderCheck:
    """The result of `check_folder`.

    Args:
        text: The report.
        ready: Whether a run can be trained on the folder as it is: all photos are usable, there is
            a training label, and no photo is in two parts.
        next_steps: One line each, with {0} for the folder; none unless `ready`.
    """

    text: str
    ready: bool
    next_steps: tuple[str, ...] = ()


def check_folder(folder: str | Path, root: str | Path | None = None) -> FolderCheck:
    """Check a folder of photos for everything that may go wrong in training.

    Args:
        folder, root: As in `load`.

    Raises:
        SpmlError: If the folder cannot be loaded.
    """
    with warnings.catch_warnings(record=True, action='always') as caught:
        data = load(Path(folder), root)
    inspection = inspect_photos(data.images)
    groups = inspection.groups + _groups_of_copies(data, inspection.groups)
    leaking = [group for group in groups if group.equal and _crosses_parts(data, group)]
    images = find_folder(folder, root) / 'images'
    names = [photo.relative_to(images).as_posix() for photo in data.images]
    counts = count_parts(data)
    lines = [
        repr(data),
        # problems first
        *_unusable(data, names, inspection),
        *_across(data, names, groups),
        *(f'warning: {warning.message}' for warning in caught),
        *_dominant(data),
        *_rare(data),
        '',
        counts.round({'positives': 2, 'negatives': 2, 'unknown': 1}).to_string(),
        '',
        *_drawn(data),
        describe_observed(data),
        _positives(data),
        *(line for part in PARTS[1:] if part in data.split for line in _unscored(data, part)),
        *_grouped(data),
        *_unmeasured(counts),
        *_shipped(data),
    ]
    has_training_label = bool((data.labels[data.rows('train')] > 0).any())
    ready = has_training_label and not inspection.unusable and not leaking
    return FolderCheck('\n'.join(lines), ready, tuple(_next_steps(data)) if ready else ())


def _next_steps(data):
    if 'test' in data.drawn:
        if (data.labels != 0).all():  # perhaps labelled in full to evaluate a run
            yield 'Next, to score a run on these photos: spml evaluate RUN {0}'
            yield 'Next, to choose the threshold of a run by them: spml calibrate RUN {0}'
            yield 'Next, to train on them: spml data {0} --split'
        else:
            yield 'Next: spml data {0} --split'
        return
    is_complete = (data.labels[data.rows('train')] != 0).all()
    methods = 'bce asl two_way' if is_complete else 'an em hml'
    command = f'spml compare {{0}} {methods} --seeds 3'
    yield f'Next: {command}'
    counts = _count_positives(data)
    if limit := _limit_for_rare(counts):
        rare = join_items(counts.index[counts < limit], 12)
        yield f'or, with a model that never names {rare}: {command} --min-positives {limit}'


def _groups_of_copies(data, groups):
    "Groups of equal files that are not among `groups`, such as a subset of one that looks alike."
    found = {tuple(group.rows) for group in groups if group.equal}
    rows_of = pd.Series(np.arange(len(data))).groupby(data.photo_hashes)
    copies = [rows.to_numpy() for digest, rows in rows_of if digest and len(rows) > 1]
    return [LookalikeGroup(rows, equal=True) for rows in copies if tuple(rows) not in found]


def _crosses_parts(data, group):
    return len(set(data.split[group.rows])) > 1


def _drawn(data):
    if not data.drawn:
        return
    parts = ' and '.join(data.drawn)
    drawn = f'drawn by the names of the photos: {parts}. A photo keeps its part when rows are added'
    command = '`spml data FOLDER --split`'
    if 'test' in data.drawn:
        yield (
            f'There is no column `split`, so parts are {drawn}. To have rare classes in each part, '
            f'let {command} write the column before the first run.'
        )
    else:
        yield (
            f'The column `split` has no {parts} row, so these are {drawn}. To have rare classes in '
            f'each part, remove the column and give {command}, which draws all parts again.'
        )


def _count_positives(data):
    counts = pd.Series((data.labels > 0).sum(0), data.class_names)
    return counts.sort_values(ascending=False, kind='stable')


def _positives(data):
    words = [f'{name} {n:,}' for name, n in _count_positives(data).items()]
    return f'Positives of each class: {join_items(words, 12)}, the rarest {words[-1]}.'


def _dominant(data):
    "A line if labels are partial and one class is most of the positives."
    counts = _count_positives(data)
    if len(counts) < 3 or not (data.labels == 0).any() or not counts.iloc[0]:
        return
    name, n, total = counts.index[0], counts.iloc[0], counts.sum()
    if n / total < _DOMINANT_FROM:
        return
    yield (
        f'{name} is {100 * n / total:.0f} % of all names written down ({n:,} of {total:,}), so a '
        'model trained on them may name hardly anything else. Where a photo also shows another '
        f'class, write that down too or instead of {name}; or add photos of the other classes.'
    )


def _rare(data):
    "A line about classes with few positives, and the effect of excluding them."
    counts = _count_positives(data)
    few = counts[counts < _RARE_BELOW]
    if not len(few):
        return
    rare = join_items([f'{name} {n}' for name, n in few.items()])
    yield (
        f'Rare, with fewer than {_RARE_BELOW} positives, {len(few):,} of {len(counts):,} classes: '
        f'{rare}. {_remedy_for_rare(data, counts)}'
    )


def _limit_for_rare(counts):
    """Choose the largest of `_MIN_POSITIVES` that keeps at least half of the classes.

    Returns:
        0 if it keeps all classes, None if no limit keeps half.
    """
    half = max(len(counts) / 2, 2)
    limit = next((k for k in _MIN_POSITIVES if (counts >= k).sum() >= half), None)
    return 0 if limit and (counts >= limit).all() else limit


def _remedy_for_rare(data, counts):
    limit = _limit_for_rare(counts)
    if limit is None:
        lowest = _MIN_POSITIVES[-1]
        return (
            'Add photos, or give classes that mean nearly the same one name. Leaving out rare ones '
            f'is no remedy: {(counts >= lowest).sum():,} of {len(counts):,} have {lowest} or more.'
        )
    if not limit:
        return 'Add photos.'
    kept = counts.index[counts >= limit]
    labelled = (data.labels[:, np.isin(data.class_names, kept)] > 0).any(1).sum()
    return (
        f'Add photos; or leave out those with fewer than {limit} by `spml compare --min-positives '
        f'{limit}` and `spml train -p min_positives {limit}`, which leaves {len(kept):,} of '
        f'{len(counts):,} classes, and {labelled:,} of {len(data):,} photos with a label.'
    )


def _unscored(data, part):
    targets, _ = choose_score_targets(data.labels[data.rows(part)])
    names = np.array(data.class_names)
    without_negative = (targets == 0).any(0) & ~(targets < 0).any(0)
    absent = names[~(targets > 0).any(0) & ~without_negative]
    if len(absent):
        yield (
            f'No {part} photo is known to have: {join_items(absent)}. Such a class cannot be '
            'evaluated there; add photos of it.'
        )
    if without_negative.any():
        yield (
            f'No {part} photo is known to lack: {join_items(names[without_negative])}. Such a '
            'class has no AP there.'
        )


def _grouped(data):
    "A line about the groups of photos; `load` warns of those that cross parts."
    if data.groups is None:
        return
    sizes = {name: n for name, n in Counter(data.groups).items() if name and n > 1}
    largest = max(sorted(sizes), key=sizes.get, default='')
    example = f', the largest {largest} with {sizes[largest]:,}' if sizes else ''
    grouped = sum(sizes.values())
    yield (
        f'Groups: {grouped:,} photos share {len(sizes):,} groups{example}; '
        f'{len(data) - grouped:,} share none.'
    )


def _across(data, names, groups):
    "Lines about duplicates and lookalikes; those that cross parts come first."
    groups = sorted(groups, key=lambda group: not _crosses_parts(data, group))
    for equal, sign, what, remedy in (
        (True, ' = ', 'are equal', 'Keep one row of each.'),
        (False, ' ≈ ', 'look nearly the same', 'If it is one photo, keep one row.'),
    ):
        chosen = [group for group in groups if group.equal == equal]
        if not chosen:
            continue
        words = [sign.join(f'{names[k]} ({data.split[k]})' for k in group.rows) for group in chosen]
        between = sum(_crosses_parts(data, group) for group in chosen)
        where = ''
        if between:
            where = f', {between:,} of them in different parts, which makes scores too high'
        yield f'Photos that {what}: {len(chosen):,}{where}: {join_items(words, 5)}. {remedy}'


def _unmeasured(counts):
    "A line about validation and test parts without true scores."
    truth = Truth.OBSERVED_ONLY
    parts = counts.index[counts.scores == describe_truth(truth)].drop('train', errors='ignore')
    if len(parts):
        yield explain_missing_scores(truth, ' and '.join(parts))


@dataclass(frozen=True)
class ShippedModel:
    """A model that comes with the package.

    Args:
        folder: Its folder, whose name is the model's.
        known: Number of classes of a data set that it can name.
    """

    folder: Path
    known: int


def find_shipped_model(data: Dataset) -> ShippedModel | None:
    "Find the model of the package with the most classes in common, if that is over half of them."
    models = []
    for folder in sorted(Path(str(files('spml_nb') / 'assets' / 'weights')).iterdir()):
        config = folder / 'config.json'
        if config.is_file() and folder.name != data.name:
            names = json.loads(config.read_text(encoding='utf-8'))['id2label'].values()
            models.append(ShippedModel(folder, len({*names}.intersection(data.class_names))))
    best = max(models, key=lambda model: model.known, default=None)
    return best if best and 2 * best.known > len(data.class_names) else None


def _shipped(data):
    model = find_shipped_model(data)
    if model is None:
        return
    name = model.folder.name
    yield (
        f'{name}, a model of the package, knows {model.known} of the {len(data.class_names)} '
        f'classes: `spml predict {name} FOLDER/images` names them without training. To compare it '
        'with a RUN of yours, give `spml evaluate` for both on the same photos, labelled in full. '
        f'Its limits: {model.folder / "README.md"}'
    )


def _unusable(data, names, inspection):
    if inspection.unusable:
        reasons = [f'{names[row]} ({why})' for row, why in inspection.unusable.items()]
        yield (
            f'Photos that cannot be used: {len(reasons):,} of {len(data):,}, '
            f'{join_items(reasons, 20)}. Repair or replace them, or remove their rows.'
        )
    if animated := describe_animated(data.images, names):
        yield animated
    if inspection.plain:
        plain = [names[row] for row in inspection.plain]
        yield (
            f'Photos of one colour, as a network sees them: {len(plain):,} of {len(data):,}, '
            f'{join_items(plain)}. Transparent pixels become white: save a white drawing on a '
            'background of another colour.'
        )


# ---- photos shared by parts


def count_shared_photos(data: Dataset) -> int:
    "Count test photos with the same bytes (or pixels in memory) as a training photo."
    hashes = np.array(data.photo_hashes)
    training = hashes[data.rows('train')]
    return int(np.isin(hashes[data.rows('test')], training[training != '']).sum())


def describe_shared_photos(data: Dataset) -> str:
    "Warn of test photos that are training photos too, with the remedy; '' if there are none."
    count = count_shared_photos(data)
    if not count:
        return ''
    return (
        f'{data.name}: of {len(data.rows("test")):,} test photos {count:,} are training photos '
        'too, byte for byte, which makes test scores too high. In your own folder keep one row of '
        'each; `spml data FOLDER --check` lists them.'
    )
