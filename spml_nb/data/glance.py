"""What is known of each part of a data set, and what looks wrong with a folder of photos."""

import json
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from ..base import progress
from .dataset import PARTS, Dataset, join_items
from .decoding import budget, describe_animated, explain_unreadable, open_photo, upright
from .labels import Truth, describe_truth, explain_missing_scores, labels_for_scoring, observe
from .loading import load

RARE_BELOW = 20  # positives below which a class is called rare, as in the comparisons on photos
FEWEST_POSITIVES = (RARE_BELOW, 10, 5, 3)  # that a class may be asked to have, the first that fits
COMMON_FROM = 0.5  # of all names that are written down: from this share on, one class is most


def count_parts(data: Dataset) -> pd.DataFrame:
    """Count what is known of each part.

    Returns:
        DataFrame, a row for each part that has images: photos, positives and negatives (means of a
        photo), unknown (percent of the labels), unlabelled (photos without a positive), counted
        (photos that count in a score), scores (what they are measured against).
    """
    rows = {}
    for part in PARTS:
        y = data.labels[data.rows(part)]
        if len(y):
            targets, truth = labels_for_scoring(y)
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
    """Say what a run would be told of the training and validation images, unless it is given
    another label setting.
    """
    y = data.labels[np.isin(data.split, PARTS[:2])]
    z = observe(y, positives=1, negatives=0, unknown='ignore')
    all_positives = (y > 0).sum(1).mean()
    unknown = ', and the rest as unknown' if (y == 0).any() else ''
    text = (
        f'A run will see every label that the table knows, {all_positives:.1f} positives of a '
        f'photo{unknown}'
    )
    if (z == y).all():
        return f'{text}.'
    single_positives = (z > 0).sum(1).mean()
    return f'{text}; `-p labels single` shows it {single_positives:.1f} and hides the rest.'


# ---- photos that are damaged, plain or there twice

SIDE = 16  # pixels of a small copy
LOOKALIKE_CORRELATION = 0.98  # correlation of two small copies that show one photo


@dataclass(frozen=True)
class LookalikeGroup:
    """Photos that are one photo, or look so.

    Args:
        rows: Numbers of two photos or more, ascending.
        equal: Whether all have the same pixels or bytes.
    """

    rows: np.ndarray
    equal: bool


@dataclass(frozen=True)
class PhotoInspection:
    """What decoding every photo has shown.

    Args:
        unusable: {number of a file that cannot be used: why}.
        plain: Numbers of the files of one colour.
        groups: Files that look nearly the same.
    """

    unusable: dict[int, str]
    plain: list[int]
    groups: list[LookalikeGroup]


def _shrink(file):
    "(3·SIDE²,) float32 of mean 0 and length 1, or a str saying why the photo cannot be used."
    try:
        with open_photo(file) as image:
            image.draft('RGB', (4 * SIDE, 4 * SIDE))
            with budget.hold(image):
                pixels = upright(image).resize((SIDE, SIDE), Image.Resampling.BOX)
    except Exception as error:  # decoders raise a dozen types for damaged files
        return explain_unreadable(error, file)
    v = np.asarray(pixels, np.float32).ravel()
    v = v - v.mean()
    return v / max(np.linalg.norm(v), SIDE)  # shorter: a plain surface


def _hash_pixels(file):
    with open_photo(file) as image, budget.hold(image):
        return hash(upright(image).tobytes())


def inspect_photos(files: list[Path]) -> PhotoInspection:
    "Decode every photo, and find those of one colour and those that look nearly the same."
    # Pillow warns of large or odd photos
    with ThreadPoolExecutor() as pool, warnings.catch_warnings(action='ignore'):
        small = list(
            progress.progress_bar(pool.map(_shrink, files), len(files), 'looking at photos')
        )
        unusable = {k: v for k, v in enumerate(small) if isinstance(v, str)}
        for k in unusable:
            small[k] = np.zeros(3 * SIDE**2, np.float32)
        vectors = np.stack(small)
        lengths = np.linalg.norm(vectors, axis=1)
        plain = [k for k in np.flatnonzero(lengths < 0.99).tolist() if k not in unusable]
        groups = []
        for rows in group_lookalikes(vectors):
            hashes = set(pool.map(_hash_pixels, (files[k] for k in rows)))
            groups.append(LookalikeGroup(rows, equal=len(hashes) == 1))
        return PhotoInspection(unusable, plain, groups)


def group_lookalikes(vectors: np.ndarray) -> list[np.ndarray]:
    """Group vectors whose correlation is at least `LOOKALIKE_CORRELATION`, directly or over others.

    Args:
        vectors: (N, D), each of length 1 or less.

    Returns:
        Arrays of row numbers, two at least in each, ascending.
    """
    # here, as training does without scipy, which a packed sweep may not find
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(vectors)
    group = np.arange(n)
    # joined block by block: all pairs of like photos would not fit into memory
    for k in range(0, n, 512):
        i, j = np.nonzero(vectors[k : k + 512] @ vectors.T >= LOOKALIKE_CORRELATION)
        first_of_group = np.unique(group, return_index=True)[1]
        starts = np.append(i + k, np.arange(n))
        ends = np.append(j, first_of_group[group])
        edges = coo_array((np.ones(len(starts), bool), (starts, ends)), shape=(n, n))
        _, group = connected_components(edges, directed=False)
    order = np.argsort(group, kind='stable')
    groups = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    return sorted((rows for rows in groups if len(rows) > 1), key=lambda rows: rows[0])


# ---- the text about a folder


@dataclass(frozen=True)
class FolderCheck:
    """What a look at a folder found.

    Args:
        text: For a person.
        ready: Whether a run could be trained on it as it is: every photo can be used, something is
            to be learned, and no photo is in two parts.
        next_steps: What to do then, a line each, with {0} for the folder; none where it is not
            ready.
    """

    text: str
    ready: bool
    next_steps: tuple[str, ...] = ()


def check_folder(folder: str | Path, root: str | Path | None = None) -> FolderCheck:
    """Look at a folder of photos and everything that may be wrong with it.

    Args:
        folder, root: As in `load`.

    Raises:
        SpmlError: As `load`: for mistakes that leave nothing to look at.
    """
    with warnings.catch_warnings(record=True, action='always') as caught:
        data = load(folder, root)
    looked = inspect_photos(data.images)
    groups = looked.groups + _copies(data, looked.groups)
    crossing = [group for group in groups if group.equal and _crosses_parts(data, group)]
    names = _names_in_table(data)
    counts = count_parts(data)
    lines = [
        repr(data),
        # what is to be mended, before what is to be known
        *_unusable(data, names, looked),
        *_across(data, names, groups),
        *(f'warning: {warning.message}' for warning in caught),
        *_common(data),
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
    is_learnable = bool((data.labels[data.rows('train')] > 0).any())
    ready = is_learnable and not looked.unusable and not crossing
    return FolderCheck('\n'.join(lines), ready, tuple(_next_steps(data)) if ready else ())


def _next_steps(data):
    if 'test' in data.drawn:
        if (data.labels != 0).all():  # a sample to measure by, or photos to train on
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


def _copies(data, groups):
    """Photos of the same bytes, which may belong to a larger group that only looks alike, unless
    such a group is there already.
    """
    there = {tuple(group.rows) for group in groups if group.equal}
    rows_of = pd.Series(np.arange(len(data))).groupby(data.photo_hashes)
    copies = [rows.to_numpy() for digest, rows in rows_of if digest and len(rows) > 1]
    return [LookalikeGroup(rows, equal=True) for rows in copies if tuple(rows) not in there]


def _crosses_parts(data, group):
    return len(set(data.split[group.rows])) > 1


def _names_in_table(data):
    "The names of the photos as the column `image` has them."
    if not data.images_in_memory:
        shared = Path(os.path.commonpath([Path(path).parent for path in data.images]))
        for folder in (shared, *shared.parents):
            if folder.name == 'images':
                return [Path(path).relative_to(folder).as_posix() for path in data.images]
    return data.image_names


def _drawn(data):
    if not data.drawn:
        return
    parts = ' and '.join(data.drawn)
    keeps = 'A photo keeps its part when rows are added or sorted.'
    command = '`spml data FOLDER --split`'
    if 'test' in data.drawn:
        yield (
            f'Drawn by the names of the photos, as no column `split` says otherwise: {parts}. '
            f'{keeps} Before the first run, {command} writes a column in which rare classes reach '
            'each part.'
        )
    else:
        yield (
            f'Drawn by the names of the photos, as the column `split` has none: {parts}. {keeps} '
            'Where rare classes should reach each part and those of the column need not stay, '
            f'remove it and give {command}.'
        )


def _count_positives(data):
    counts = pd.Series((data.labels > 0).sum(0), data.class_names)
    return counts.sort_values(ascending=False, kind='stable')


def _positives(data):
    words = [f'{name} {n:,}' for name, n in _count_positives(data).items()]
    return f'Positives of each class: {join_items(words, 12)}, the rarest {words[-1]}.'


def _common(data):
    "A line where one class is most of what is written down, and the others may be there as well."
    counts = _count_positives(data)
    if len(counts) < 3 or not (data.labels == 0).any() or not counts.iloc[0]:
        return
    name, n, names = counts.index[0], counts.iloc[0], counts.sum()
    if n / names < COMMON_FROM:
        return
    yield (
        f'{name} is {100 * n / names:.0f} % of all names written down ({n:,} of {names:,}), so a '
        'model trained on them may name hardly anything else. Where a photo also shows another '
        f'class, write that down too or instead of {name}; or add photos of the other classes.'
    )


def _rare(data):
    "A line about classes with few positives, and what leaving out the rarest would leave."
    counts = _count_positives(data)
    few = counts[counts < RARE_BELOW]
    if not len(few):
        return
    rare = join_items([f'{name} {n}' for name, n in few.items()])
    yield (
        f'Rare, with fewer than {RARE_BELOW} positives, {len(few):,} of {len(counts):,} classes: '
        f'{rare}. {_remedy_for_rare(data, counts)}'
    )


def _limit_for_rare(counts):
    """The positives that a class may be asked to have: the largest limit that leaves at least half
    of the classes, as with fewer the photos would be about something else. 0 where all have them,
    None where no limit does.
    """
    half = max(len(counts) / 2, 2)
    limit = next((k for k in FEWEST_POSITIVES if (counts >= k).sum() >= half), None)
    return 0 if limit and (counts >= limit).all() else limit


def _remedy_for_rare(data, counts):
    limit = _limit_for_rare(counts)
    if limit is None:
        lowest = FEWEST_POSITIVES[-1]
        return (
            'Add photos, or give classes that mean nearly the same one name. Leaving out rare ones '
            f'is no remedy: {(counts >= lowest).sum():,} of {len(counts):,} have {lowest} or more.'
        )
    if not limit:
        return 'Add photos.'
    stay = (counts >= limit).sum()
    kept = (data.labels[:, np.isin(data.class_names, counts.index[:stay])] > 0).any(1).sum()
    return (
        f'Add photos; or leave out those with fewer than {limit} by `spml compare --min-positives '
        f'{limit}` and `spml train -p min_positives {limit}`, which leaves {stay:,} of '
        f'{len(counts):,} classes, and {kept:,} of {len(data):,} photos with a label.'
    )


def _unscored(data, part):
    targets, _ = labels_for_scoring(data.labels[data.rows(part)])
    names = np.array(data.class_names)
    without_negative = (targets == 0).any(0) & ~(targets < 0).any(0)
    absent = names[~(targets > 0).any(0) & ~without_negative]
    if len(absent):
        yield (
            f'No {part} photo is known to have: {join_items(absent)}. How well such a class is '
            'found cannot be measured there; add photos of it.'
        )
    if without_negative.any():
        yield (
            f'No {part} photo is known to lack: {join_items(names[without_negative])}. Such a '
            'class has no AP there.'
        )


def _grouped(data):
    "Lines about photos that share a group."
    if data.groups is None:
        return
    groups = pd.Series(data.split).groupby(np.array(data.groups, object))
    parts_of = {name: split for name, split in groups if name}
    shared = {name: len(split) for name, split in parts_of.items() if len(split) > 1}
    largest = max(shared, key=shared.get, default='')
    example = f', the largest {largest} with {shared[largest]:,}' if shared else ''
    rest = len(data) - sum(shared.values())
    yield (
        f'Groups: {sum(shared.values()):,} photos share {len(shared):,} groups{example}; {rest:,} '
        'share none.'
    )
    cut = [name for name, split in parts_of.items() if split.nunique() > 1]
    if cut:
        yield (
            f'Groups in different parts, which makes scores better than they are: {len(cut):,}, '
            f'{join_items(cut, 5)}. Mark all photos of a group alike in the column `split`, or '
            'remove the column.'
        )


def _across(data, names, groups):
    """Lines about photos that are there more than once, or look so; those in different parts come
    first.
    """
    groups = sorted(groups, key=lambda group: not _crosses_parts(data, group))
    for equal, sign, what, remedy in (
        (True, ' = ', 'are there more than once', 'Keep one row of each.'),
        (False, ' ≈ ', 'look nearly the same', 'Keep one row where it is one photo.'),
    ):
        chosen = [group for group in groups if group.equal == equal]
        if not chosen:
            continue
        words = [sign.join(f'{names[k]} ({data.split[k]})' for k in group.rows) for group in chosen]
        between = sum(_crosses_parts(data, group) for group in chosen)
        where = ''
        if between:
            where = (
                f', {between:,} of them in different parts, which makes scores better than they are'
            )
        yield f'Photos that {what}: {len(chosen):,}{where}: {join_items(words, 5)}. {remedy}'


def _unmeasured(counts):
    "A line about parts whose true scores cannot be had."
    truth = Truth.OBSERVED_ONLY
    blind = [
        part for part in counts.index[counts.scores == describe_truth(truth)] if part != 'train'
    ]
    if blind:
        yield explain_missing_scores(truth, ' and '.join(blind))


@dataclass(frozen=True)
class ShippedModel:
    """A model that comes with the package.

    Args:
        folder: Its folder, called as the model is.
        known: How many classes of a data set it knows.
    """

    folder: Path
    known: int


def find_shipped_model(data: Dataset) -> ShippedModel | None:
    "Find the model of the package that knows the most classes, if it knows most of them."
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
        f'classes: `spml predict {name} FOLDER/images` names them without training. Which is '
        'better, it or a RUN of yours, `spml evaluate` says of each on the same photos, labelled '
        f'in full. Its limits: {model.folder / "README.md"}'
    )


def _unusable(data, names, looked):
    if looked.unusable:
        named = [f'{names[k]} ({why})' for k, why in looked.unusable.items()]
        yield (
            f'Photos that cannot be used: {len(named):,} of {len(data):,}, '
            f'{join_items(named, 20)}. Repair or replace them, or remove their rows.'
        )
    if animated := describe_animated(data.images, names):
        yield animated
    if looked.plain:
        yield (
            f'Photos of one colour, as a network sees them: {len(looked.plain):,} of '
            f'{len(data):,}, {join_items([names[k] for k in looked.plain])}. What is transparent '
            'becomes white: save those that show something on a ground of another colour.'
        )


# ---- photos shared by parts


def count_shared_photos(data: Dataset) -> int:
    "Count the test photos that have the same bytes, or pixels in memory, as a training photo."
    hashes = np.array(data.photo_hashes)
    trained = hashes[data.rows('train')]
    return int(np.isin(hashes[data.rows('test')], trained[trained != '']).sum())


def describe_shared_photos(data: Dataset) -> str:
    "Say how many test photos are training photos too, and the remedy; '' if there is none."
    count = count_shared_photos(data)
    if not count:
        return ''
    return (
        f'{data.name}: of {len(data.rows("test")):,} test photos {count:,} are training photos '
        'too, byte for byte, which makes test scores better than they are. In a folder of '
        'your own keep one row of each; `spml data FOLDER --check` names them.'
    )
