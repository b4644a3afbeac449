"""Warnings about a table of labels that is valid but probably wrong."""

import re
from collections import defaultdict
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from .dataset import PARTS, Dataset, exclude_option, join_items
from .folder import photos_below

_USUAL_COUNT = 5  # photos of a class, from which a similar name with one photo may be a misspelling
_PLACEHOLDERS = {'nan', 'none', 'null', 'n/a', 'na', 'unknown', 'unlabelled', 'unlabeled', '?', '-'}
_SEPARATORS = ' *[,;/+&] *| and | und '  # regular expression


def find_doubts(data: Dataset, folder: Path) -> list[str]:
    """Find probable mistakes in the labels of a folder.

    Args:
        data: As from `read_folder`.
        folder: The folder images/.

    Returns:
        Warnings, each with a remedy.
    """
    checks = (
        _without_row(data, folder),
        _without_label(data, folder),
        _every_photo_one_label(data),
        _parts_without_label(data),
        _twins(data),
        _misspelt(data),
        _joined(data),
        _placeholders(data),
        _constant_classes(data),
    )
    return [f'{data.name}: {text}' for check in checks for text in check]


def _without_row(data, folder) -> Iterator[str]:
    listed = {path.relative_to(folder).as_posix() for path in data.images}
    unlisted = [path for path in photos_below(folder) if path not in listed]
    if unlisted:
        yield (
            f'labels.csv has no row for {len(unlisted):,} photos of images/, which are not used: '
            f'{join_items(unlisted)}. Add rows, or move the photos away.'
        )


def _without_label(data, folder):
    names = np.array([path.relative_to(folder).as_posix() for path in data.images])
    meanings = {-1: 'so that every class counts as absent', 0: 'and nothing is known'}
    for value, meaning in meanings.items():
        rows = (data.labels == value).all(1)
        if rows.any():
            yield (
                f'photos with no label, {meaning}: {rows.sum():,} of {len(data):,}, '
                f'{join_items(names[rows])}. Fill in their cells, or remove their rows if nobody '
                'has looked at them.'
            )


def _every_photo_one_label(data):
    is_complete = data.labels.all()
    if min(data.labels.shape) > 1 and is_complete and ((data.labels > 0).sum(1) == 1).all():
        yield (
            'every photo has exactly one label, so that all other classes count as absent. If '
            'only one of its labels was written down, name the column `positives`, or in a matrix '
            'leave the other cells empty; if a photo never has more than one, nothing has to be '
            'done.'
        )


def _parts_without_label(data):
    for part in PARTS:
        rows = data.rows(part)
        if len(rows) and not (data.labels[rows] > 0).any():
            yield (
                f'no photo of the part {part} has a label. Give it some, or mark other rows {part}.'
            )


def _placeholders(data):
    names = [name for name in data.class_names if name.casefold() in _PLACEHOLDERS]
    if names:
        yield (
            f'{join_items(map(repr, names))} counts as a class. Leave the cell empty, or exclude '
            f'it: `{exclude_option(names)}`.'
        )


def _constant_classes(data):
    if len(data.class_names) == 1:
        yield 'there is one class. Methods compare classes: give two or more.'
    everywhere = [name for name, n in _counts(data).items() if n == len(data) > 1]
    if everywhere:
        yield (
            f'every photo has {join_items(map(repr, everywhere))}: nothing can be learned there. '
            f'Exclude it: `{exclude_option(everywhere)}`.'
        )


def _counts(data):
    "{class: number of positives}."
    return dict(zip(data.class_names, (data.labels > 0).sum(0).tolist(), strict=True))


def _twins(data):
    spellings = defaultdict(list)
    for name in data.class_names:
        spellings[re.sub(r'[\s_-]+', '', name).casefold() or name].append(name)
    twins = [' and '.join(map(repr, names)) for names in spellings.values() if len(names) > 1]
    if twins:
        yield (
            f'classes that differ only in capitals, blanks or hyphens: {join_items(twins)}. Spell '
            'each class in one way.'
        )


def _misspelt(data):
    counts = _counts(data)
    usual = [name for name, n in counts.items() if n >= _USUAL_COUNT]
    once = [name for name, n in counts.items() if n == 1]
    digit = re.compile(r'\d')
    suspects = []
    for name in once[:300]:  # more would take seconds whenever the folder is loaded
        # 'size 3' is not a misspelling of 'size 4'
        others = [other for other in usual if digit.sub('', other) != digit.sub('', name)]
        for match in get_close_matches(name, others, 1, 0.8):
            suspects.append(f'{name!r} (did you mean {match}?)')
    if suspects:
        yield (
            f'names of one photo that resemble a frequent name: {join_items(suspects)}. Mend the '
            'table if so.'
        )


def _joined(data):
    names = set(data.class_names)
    by_sign, by_blank = [], []
    for name in data.class_names:
        pieces = re.split(_SEPARATORS, name)
        words = name.split()
        if len(pieces) > 1 and all(pieces) and names.intersection(pieces):
            by_sign.append(repr(name))
        if len(words) > 1 and names.issuperset(words):
            by_blank.append(repr(name))
    if by_sign or by_blank:
        yield (
            f'classes that are made of others: {join_items(by_sign + by_blank)}. Write `|` between '
            'names.'
        )
