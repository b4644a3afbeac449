"""Load any data set by its name or its folder."""

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from ..base.errors import SpmlError, require_one_of, warn
from .dataset import MINIATURES, Dataset, exclude_option, join_items
from .doubts import find_doubts
from .folder import candidate_folders, find_folder, read_folder
from .formats import refuse_other_layout
from .official.files import benchmark_folder
from .official.registry import BENCHMARKS, load_benchmark

_MAX_EXCLUDED = 10  # classes that a warning lists in the option `exclude`


def names() -> list[str]:
    "List the names that `load` accepts: the miniatures, then the benchmarks."
    return [*MINIATURES, *BENCHMARKS]


def is_user_folder(dataset: str) -> bool:
    "Whether `dataset` is an existing folder of the user and not a name in `names()`."
    return dataset not in names() and find_folder(dataset).is_dir()


@lru_cache(maxsize=4)
def _drawn(name):
    "A miniature, drawn once per process and read-only."
    from .miniatures import draw_miniature

    images, labels, class_names, split = draw_miniature(name)
    for array in (images, labels, split):
        array.flags.writeable = False
    return Dataset(name, images, labels, class_names, split)


def _is_benchmark(folder):
    "Whether a folder, given by its path, is that of a benchmark, whose parts are drawn by row."
    if folder.name not in BENCHMARKS:
        return False
    is_ready = (folder / 'ready.json').is_file()
    return is_ready or folder.resolve() == benchmark_folder(folder.name).resolve()


def _load_all_classes(name, root, scored):
    if not isinstance(name, str | os.PathLike) or not str(name):
        raise SpmlError(f'a data set is a name or a folder, not {name!r}.')
    if name in MINIATURES:  # a Path is in neither
        return _drawn(name)
    if name in BENCHMARKS:
        return load_benchmark(name, benchmark_folder(name, root))
    folder = find_folder(name, root)
    if folder.exists():
        refuse_other_layout(folder)
        data = read_folder(folder, folder.name, scored=scored, by_row=_is_benchmark(folder))
        for sentence in find_doubts(data, folder / 'images'):
            warn(sentence)
        return data
    candidates = candidate_folders(name, root)
    if isinstance(name, str) and '/' not in name and os.sep not in name:
        require_one_of(
            name, names(), 'data set', f'Nor is there a folder {join_items(candidates)}.'
        )
    raise SpmlError(
        f'no folder {name} (looked for {join_items(candidates)}). Give a folder, or one of: '
        f'{join_items(names(), 99)}.'
    )


def load(
    name_or_folder: str | Path,
    root: str | Path | None = None,
    min_positives: int = 0,
    exclude: str | Iterable[str] = (),
    scored: bool = False,
) -> Dataset:
    """Load a data set by name, or from a folder with images/ and labels.csv.

    Warns of classes without a positive (in training), of groups in different parts, and of probable
    mistakes in a folder's table.

    Args:
        name_or_folder: One of `names()`, or a folder; a Path is always a folder. A relative one is
            looked for below `root`, the current folder, and the folder of settings.ini.
        root: Folder of the benchmarks; by default the setting `data`.
        min_positives: Exclude classes with fewer positives over all images.
        exclude: Names of classes to exclude.
        scored: The folder is only scored, not trained on, so it needs no training row.

    Raises:
        SpmlError: If the name or an excluded class is unknown, a folder, table or image is missing
            or malformed, or no class remains.

    Source:
        The split of Cole et al. 2021 for benchmarks: 20 % of the training rows validate, seed 1200.
    """
    data = _load_all_classes(name_or_folder, root, scored)
    exclude = [exclude] if isinstance(exclude, str) else list(exclude)
    data = _choose_classes(data, min_positives, exclude)
    if not scored:
        _warn_of_unlearnable(data)
        _warn_of_crossing_groups(data)
    return data


def _choose_classes(data, min_positives, exclude):
    for name in exclude:
        require_one_of(name, data.class_names, f'class to exclude from {data.name}')
    positives = (data.labels > 0).sum(axis=0)
    keep = np.flatnonzero((positives >= min_positives) & ~np.isin(data.class_names, exclude))
    if not len(keep):
        raise SpmlError(
            f'min_positives={min_positives} and exclude leave no class of {data.name}: the most '
            f'frequent of its {len(data.class_names)} classes has {positives.max()} positives. '
            'Lower min_positives or exclude fewer.'
        )
    if len(keep) == len(positives):
        return data
    class_names = [data.class_names[c] for c in keep]
    return replace(data, labels=data.labels[:, keep], class_names=class_names)


def _warn_of_unlearnable(data):
    positive = data.labels > 0
    never = ~positive.any(0)
    untaught = ~positive[data.rows('train')].any(0) & ~never & ('train' in data.split)
    messages = {
        'is never used, because no image has it': never,
        'cannot be learned, because no training image has it': untaught,
    }
    for message, classes in messages.items():
        if classes.any():
            names = np.array(data.class_names)[classes].tolist()
            option = exclude_option(names if len(names) <= _MAX_EXCLUDED else ['NAME', 'NAME'])
            warn(
                f'{data.name}: a class {message}: {join_items(names)}. It is kept and counts in '
                'the mean AP where photos have it, but not in the choice of the epoch. Add photos '
                f'of it, or leave it out: remove its column, or `{option}`.'
            )


def _warn_of_crossing_groups(data):
    parts_of = {}
    for group, part in zip(data.groups or (), data.split, strict=False):
        parts_of.setdefault(group, set()).add(part)
    crossing = [group for group, parts in parts_of.items() if group and len(parts) > 1]
    if crossing:
        groups = '1 group' if len(crossing) == 1 else f'{len(crossing):,} groups'
        warn(
            f'{data.name}: photos of a group are in different parts, which makes scores too high: '
            f'{groups}, {join_items(sorted(crossing), 5)}. Give all photos of a group the same '
            'part in the column `split`, or remove that column and let '
            '`spml data FOLDER --split` draw it.'
        )
