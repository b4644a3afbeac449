"""What is known of each part of a data set, a sheet of its pictures, and what looks wrong with a folder of photos."""

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageOps
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ..base import progress
from . import folder as folders
from .dataset import PARTS, Dataset, listed
from .folder import open_photo, reason, upright
from .labels import TRUTHS, against, for_scoring, missing, observe
from .loading import load


def parts(data: Dataset) -> pd.DataFrame:
    """Count what is known of each part.

    Args:
        data: Any.

    Returns:
        DataFrame, a row for each part that has images: photos, positives and negatives (means of a
        photo), unknown (percent of the labels), unlabelled (photos without a positive), counted
        (photos that count in a score), scores (what they are measured against).
    """
    rows = {}
    for part in PARTS:
        if len(y := data.labels[data.rows(part)]):
            positive, negative, (targets, truth) = (y > 0).sum(1), (y < 0).sum(1), for_scoring(y)
            rows[part] = {
                'photos': len(y),
                'positives': positive.mean(),
                'negatives': negative.mean(),
                'unknown': 100 * (y == 0).mean(),
                'unlabelled': int((positive == 0).sum()),
                'counted': int((targets != 0).any(1).sum()),
                'scores': against(truth),
            }
    return pd.DataFrame.from_dict(rows, 'index')


def observed(data: Dataset) -> str:
    """Say what a run would be told of the training and validation images, unless it is given
    another label setting.

    Args:
        data: Any.

    Returns:
        A sentence.
    """
    y = data.labels[np.isin(data.split, PARTS[:2])]
    z = observe(y, positives=1, negatives=0, unknown='ignore')
    seen, known = ((values > 0).sum(1).mean() for values in (z, y))
    return (
        f'A run will see all labels that the table knows, {known:.1f} positives of a photo '
        '(labels: full)'
        + (
            '.'
            if (z == y).all()
            else f'; `-p labels single` shows it {seen:.1f} and hides the rest.'
        )
    )


def sheet(data: Dataset, count: int = 12, columns: int = 6, side: int = 96) -> Image.Image:
    """Show pictures of a data set on one sheet.

    Args:
        data: With at least one training image.
        count: How many pictures.
        columns: How many of them in a row.
        side: Pixels of each, which is cut to a square at its centre.

    Returns:
        The sheet, row after row.
    """
    rows = data.rows('train')[np.linspace(0, len(data.rows('train')) - 1, count).astype(int)]
    whole = Image.new('RGB', (columns * side, -(-count // columns) * side), 'white')
    for k, row in enumerate(rows):
        with (
            Image.fromarray(data.images[row])
            if data.images_in_memory
            else open_photo(data.images[row]) as picture
        ):
            fitted = ImageOps.fit(upright(picture), (side, side))
        whole.paste(fitted, (k % columns * side, k // columns * side))
    return whole


SIDE, ALIKE = 16, 0.98  # pixels of a small copy, and the correlation of two that show one photo


def _small(file):
    "(3·SIDE²,) float32 of mean 0 and length 1, or a str saying why the photo cannot be used."
    try:
        with open_photo(file) as image:
            image.draft('RGB', (4 * SIDE, 4 * SIDE))
            with folders.budget.hold(image):
                pixels = upright(image).resize((SIDE, SIDE), Image.Resampling.BOX)
    except Exception as error:
        return reason(error, file)  # decoders raise a dozen types for damaged files
    v = np.asarray(pixels, np.float32).ravel()
    v = v - v.mean()
    return v / max(np.linalg.norm(v), SIDE)  # shorter: a plain surface


def _digest(file):
    with open_photo(file) as image, folders.budget.hold(image):
        return hash(upright(image).tobytes())


def look(files: list[Path]) -> tuple[dict[int, str], list[int], list[np.ndarray], list[bool]]:
    """Decode every photo, and find those of one colour and those that look nearly the same.

    Args:
        files: N paths.

    Returns:
        {number of a file that cannot be used: why}; the numbers of files of one colour; arrays of
        the numbers of files that look nearly the same; for each of these, whether all have the same
        pixels.
    """
    with (
        ThreadPoolExecutor() as pool,
        warnings.catch_warnings(action='ignore'),
    ):  # Pillow's, of large or odd photos
        small = list(progress.bar(pool.map(_small, files), len(files), 'looking at photos'))
        unusable = {k: v for k, v in enumerate(small) if isinstance(v, str)}
        plain = [
            k for k, v in enumerate(small) if k not in unusable and np.linalg.norm(v) < 0.99
        ]  # see `_small`
        groups = same(
            np.stack(
                [
                    np.zeros(3 * SIDE**2, np.float32) if k in unusable else v
                    for k, v in enumerate(small)
                ]
            )
        )
        return (
            unusable,
            plain,
            groups,
            [len({*pool.map(lambda k: _digest(files[k]), rows)}) == 1 for rows in groups],
        )


def same(vectors: np.ndarray) -> list[np.ndarray]:
    """Group vectors whose correlation is at least `ALIKE`, directly or over others.

    Args:
        vectors: (N, D), each of length 1 or less.

    Returns:
        Arrays of row numbers, two at least in each, ascending.
    """
    group = np.arange(n := len(vectors))
    for k in range(
        0, n, 512
    ):  # joined block by block: all pairs of like photos would not fit into memory
        i, j = np.nonzero(vectors[k : k + 512] @ vectors.T >= ALIKE)
        ends = (
            np.append(i + k, np.arange(n)),
            np.append(j, np.unique(group, return_index=True)[1][group]),
        )
        _, group = connected_components(
            coo_array((np.ones(len(ends[0]), bool), ends), shape=(n, n)), directed=False
        )
    order = np.argsort(group, kind='stable')
    groups = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    return sorted((rows for rows in groups if len(rows) > 1), key=lambda rows: rows[0])


FEWEST = 20  # positives below which a class is called rare, as in the comparisons on photos


@dataclass(frozen=True)
class Checked:
    """What a look at a folder found.

    Args:
        text: For a person.
        ready: Whether a run could be trained on it as it is: every photo can be used, something is
            to be learned, and no photo is in two parts.
    """

    text: str
    ready: bool


def check(folder: str | Path, root: str | Path | None = None) -> Checked:
    """Look at a folder of photos and everything that may be wrong with it.

    Args:
        folder, root: As in `load`.

    Returns:
        The text and whether the folder is ready.

    Raises:
        SpmlError: As `load`: for mistakes that leave nothing to look at.
    """
    with warnings.catch_warnings(record=True, action='always') as told:
        data = load(folder, root)
    unusable, plain, groups, equal = look(data.images)
    alike = _with_copies(data, groups, equal)
    twice = any(
        equal and len(set(data.split[rows])) > 1 for rows, equal in zip(*alike, strict=True)
    )
    names = _in_table(data)
    known = parts(data)
    blind = [
        part
        for part, words in known.scores.items()
        if part != 'train' and words == against(TRUTHS[2])
    ]
    lines = [
        repr(data),
        *_drawn(data),
        '',
        known.round({'positives': 2, 'negatives': 2, 'unknown': 1}).to_string(),
        '',
        observed(data),
        *_classes(data),
        *_across(data, names, *alike),
    ]
    if blind:
        lines.append(missing(TRUTHS[2], ' and '.join(blind)))
    if unusable:
        named = [f'{names[k]} ({why})' for k, why in unusable.items()]
        lines.append(
            f'Photos that cannot be used: {len(unusable):,} of {len(data):,}, {listed(named, 20)}. '
            'Repair or replace them, or remove their rows.'
        )
    if plain:
        lines.append(
            f'Photos of one colour, as a network sees them: {len(plain):,} of {len(data):,}, '
            f'{listed([names[k] for k in plain])}. What is transparent '
            'becomes white: save those that show something on a ground of another colour.'
        )
    lines += [f'warning: {warning.message}' for warning in told]
    learnable = bool((data.labels[data.rows('train')] > 0).any())
    return Checked('\n'.join(lines), learnable and not unusable and not twice)


def _with_copies(data, groups, equal):
    """Groups as from `look`, and those of the same bytes, which may be part of a larger group that
    only looks alike.
    """
    rows_of = pd.Series(np.arange(len(data))).groupby(data.photo_hashes)
    copies = [rows.to_numpy() for digest, rows in rows_of if digest and len(rows) > 1]
    listed_already = {
        tuple(rows) for rows, same_pixels in zip(groups, equal, strict=True) if same_pixels
    }
    copies = [rows for rows in copies if tuple(rows) not in listed_already]
    return [*groups, *copies], [*equal, *[True] * len(copies)]


def _drawn(data):
    "A line about parts that no column `split` names."
    if data.drawn:
        yield (
            'Drawn by the names of the photos, as no column `split` says otherwise: '
            f'{" and ".join(data.drawn)}. A photo keeps its part when rows are added or sorted.'
        )


def count_shared(data: Dataset) -> int:
    """Count the test photos that are training photos too.

    Args:
        data: Any.

    Returns:
        How many have the same bytes, or pixels in memory, as a training photo.
    """
    hashes = np.array(data.photo_hashes)
    trained = hashes[data.rows('train')]
    return int(np.isin(hashes[data.rows('test')], trained[trained != '']).sum())


def describe_shared(data: Dataset) -> str:
    """Say how many test photos are training photos too.

    Args:
        data: Any.

    Returns:
        Two sentences, the second with the remedy; '' if there is none.
    """
    count = count_shared(data)
    return (
        ''
        if not count
        else (
            f'{data.name}: of {len(data.rows("test")):,} test photos {count:,} are training photos '
            'too, byte for byte, which makes test scores better than they are. In a folder of '
            'your own keep one row of each; `spml data FOLDER --check` names them.'
        )
    )


def _classes(data):
    "Lines about how often each class is positive."
    counts = pd.Series((data.labels > 0).sum(0), data.class_names).sort_values(
        ascending=False, kind='stable'
    )
    words = [f'{name} {n:,}' for name, n in counts.items()]
    yield f'Positives of each class: {listed(words, 12)}, the rarest {words[-1]}.'
    if len(few := counts[counts < FEWEST]):
        stay = len(counts) - len(few)
        rest = '1 class stays' if stay == 1 else f'{stay:,} classes stay'
        yield (
            f'Rare, with fewer than {FEWEST} positives: '
            f'{listed([f"{name} {n}" for name, n in few.items()], 20)}. '
            + (
                f'`-p min_positives {FEWEST}` leaves them out; {rest}{_bare(data, few.index)}.'
                if stay
                else 'Add photos.'
            )
        )
    for part in [part for part in PARTS[1:] if part in data.split]:
        y, names = for_scoring(data.labels[data.rows(part)])[0], np.array(data.class_names)
        unscored = (y == 0).any(0) & ~(y < 0).any(0)
        if len(absent := names[~(y > 0).any(0) & ~unscored]):
            yield (
                f'No {part} photo is known to have: {listed(absent)}. The AP of such a class '
                'counts as 0 there.'
            )
        if unscored.any():
            yield (
                f'No {part} photo is known to lack: {listed(names[unscored])}. Such a class has no '
                'AP there.'
            )


def _bare(data, names):
    "How many photos have no label without those classes, as the end of a sentence."
    of_others = ~np.isin(data.class_names, names)
    bare = ((data.labels > 0).any(1) & ~(data.labels[:, of_others] > 0).any(1)).sum()
    return (
        f', and {bare:,} {"photo has" if bare == 1 else "photos have"} no label then'
        if bare
        else ''
    )


def _in_table(data):
    "The names of the photos as the column `image` has them."
    if data.images_in_memory:
        return data.image_names
    shared = Path(os.path.commonpath([Path(path).parent for path in data.images]))
    below = [folder for folder in (shared, *shared.parents) if folder.name == 'images']
    return (
        [Path(path).relative_to(below[0]).as_posix() for path in data.images]
        if below
        else data.image_names
    )


def _across(data, names, groups, equal):
    """Lines about photos that are there more than once, or look so; those in different parts come
    first.
    """
    groups = sorted(
        zip(groups, equal, strict=True), key=lambda group: len(set(data.split[group[0]])) == 1
    )
    for exact, sign, what, remedy in (
        (True, ' = ', 'are there more than once', 'Keep one row of each.'),
        (False, ' ≈ ', 'look nearly the same', 'Keep one row where it is one photo.'),
    ):
        chosen = [rows for rows, pixels in groups if pixels == exact]
        words = [sign.join(f'{names[k]} ({data.split[k]})' for k in rows) for rows in chosen]
        between = sum(len(set(data.split[rows])) > 1 for rows in chosen)
        where = (
            f', {between:,} of them in different parts, which makes scores better than they are'
            if between
            else ''
        )
        if chosen:
            yield f'Photos that {what}: {len(chosen):,}{where}: {listed(words, 5)}. {remedy}'
