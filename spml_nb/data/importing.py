"""Convert labels in another layout to a new folder with images/ and labels.csv."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd

from ..base import progress
from ..base.errors import SpmlError, require_one_of
from ..base.escaping import escape_for_spreadsheet
from ..base.files import new_folder
from .dataset import PARTS, join_items
from .folder import LABEL_CELLS, normalize_name, usable_class_names
from .formats import choose_layout
from .layouts.source import COMPLETE, POSITIVES_ONLY, Photo, Source

_BAR = '¦'  # replaces `|` in names of classes, because `|` separates names


def read_source(location: Path, layout: str = '', images: Path | None = None) -> Source:
    """Read labels in any layout of `formats.LAYOUTS`, and find their photos.

    Args:
        location: A file with labels, or a folder.
        layout: A key of LAYOUTS; by default it is recognised by the content.
        images: The folder of the photos; by default as in `Source`.

    Raises:
        SpmlError: If the labels cannot be read, or no photo has a label.
    """
    if not location.exists():
        raise SpmlError(f'{location} does not exist. Name a file with labels, or its folder.')
    if images is not None and not images.is_dir():
        raise SpmlError(f'--images {images} is not a folder. Name the folder of the photos.')
    absolute = _without_dots(location)
    chosen, documents = choose_layout(absolute, layout)
    source = Source(absolute, images and _without_dots(images))
    source.title = chosen.title
    chosen.read(documents, source)
    if not any(photo.present for photo in source.photos.values()):
        reasons = f' ({"; ".join(_counted(source.left_out))})' if source.left_out else ''
        raise SpmlError(
            f'{location} was read as {chosen.title}, and no photo below {source.root} has a label'
            f'{reasons}. If the photos are elsewhere: `--images FOLDER`.'
        )
    mentioned = set().union(source.photos, *source.left_out.values())
    unmentioned = [path for path in source.paths if path not in mentioned]
    if unmentioned:
        source.left_out['photos that no label file names'] = unmentioned
    _leave_out_undecodable(source)
    _rename_classes(source)
    return source


def _without_dots(path: Path) -> Path:
    """Make a path absolute, without `..`.

    Links before a `..` are resolved, as the operating system does; others are kept, so that a link
    to a label file counts as a file in the folder of the link.
    """
    parts = path.absolute().parts
    start = max((k for k, part in enumerate(parts, 1) if part == '..'), default=0)
    return Path(*parts[:start]).resolve().joinpath(*parts[start:]) if start else path.absolute()


def _leave_out_undecodable(source):
    for path in list(source.photos):
        try:
            path.encode()
        except UnicodeEncodeError:
            del source.photos[path]
            source.left_out['photos whose names are no UTF-8'].append(path)


def _rename_classes(source):
    "Normalize the names of classes as in labels.csv."
    photos = source.photos.values()
    names = {name for photo in photos for name in photo.present | photo.absent | photo.unknown}
    spelling = {}
    for name in sorted(names):
        spelling[name] = normalize_name(name).replace('|', _BAR)
        if '|' in name:
            source.remarks[f'names of classes with `|`, written with {_BAR}'].append(name)
            if spelling[name] in names:
                raise SpmlError(
                    f'the classes {name!r} and {spelling[name]!r} would get the same name: `|` '
                    f'separates names, so it is replaced by {_BAR}. Rename one.'
                )
    for photo in photos:
        photo.present = {spelling[name] for name in photo.present} - {''}
        photo.absent = {spelling[name] for name in photo.absent} - {''}
        photo.unknown = {spelling[name] for name in photo.unknown} - {''}
    present = {name for photo in photos for name in photo.present}
    unused = sorted(name for name in source.categories if spelling.get(name) not in present)
    if unused:
        source.left_out['classes that no photo has'] += unused


# ---- the table


def label_table(source: Source, meaning: str) -> pd.DataFrame:
    """Make the table of labels.csv.

    It has a column `labels` or `positives` if that can express all labels, else one per class.

    Args:
        meaning: Of classes that are not listed for a photo: COMPLETE or POSITIVES_ONLY.

    Returns:
        DataFrame of str; the index are sorted keys of `source.photos`.
    """
    require_one_of(meaning, (COMPLETE, POSITIVES_ONLY), 'meaning of a name that is not given')
    keys = sorted(source.photos)
    if meaning == POSITIVES_ONLY:
        keys = [key for key in keys if source.photos[key].present | source.photos[key].absent]
    photos = [source.photos[key] for key in keys]
    names = sorted({name for photo in photos for name in photo.present})
    labels = _label_matrix(photos, names, -1 if meaning == COMPLETE else 0)
    columns = {'image': _image_names(keys)}
    if meaning == COMPLETE and (labels != 0).all():
        columns['labels'] = _join_names(labels, names)
    elif meaning == POSITIVES_ONLY and (labels >= 0).all():
        columns['positives'] = _join_names(labels, names)
    else:
        usable_class_names(names, 'where some names are unknown, each class gets a column, and ')
        columns |= dict(zip(names, LABEL_CELLS[labels].T, strict=True))
    if split := _split(photos):
        columns['split'] = split
    if any(photo.group for photo in photos):
        columns['group'] = [photo.group for photo in photos]
    return pd.DataFrame(columns, index=keys, dtype=object)


def _label_matrix(photos: list[Photo], names: list[str], rest: int):
    "(N, C) int8; a class that is both present and absent counts as present."
    column = {name: c for c, name in enumerate(names)}
    labels = np.full((len(photos), len(names)), rest, np.int8)
    for row, photo in zip(labels, photos, strict=True):
        for label, classes in ((0, photo.unknown), (-1, photo.absent), (1, photo.present)):
            row[[column[name] for name in classes if name in column]] = label
    return labels


def _image_names(keys):
    "Paths relative to the deepest folder that all photos share."
    shared = os.path.commonpath([f'./{os.path.dirname(key)}' for key in keys])
    return [os.path.relpath(f'./{key}', shared).replace(os.sep, '/') for key in keys]


_PLAIN_NAME = re.compile(r'[^\W\d_][\w -]*')


def _join_names(labels, names):
    """Cells of names joined by `|`.

    If no cell has a `|`, and names look like numbers or have other separators, one cell gets a `|`
    at its end, so that the table is read as intended.
    """
    cells = ['|'.join(names[c] for c in np.flatnonzero(row > 0)) for row in labels]
    is_clear = any('|' in cell for cell in cells) or all(map(_PLAIN_NAME.fullmatch, names))
    if not is_clear:
        first = next(k for k, cell in enumerate(cells) if cell)
        cells[first] += '|'
    return cells


def _split(photos):
    "The column `split`; None if the parts of the source cannot be used."
    parts = {photo.split for photo in photos} - {''}
    if parts == {'train', 'val'}:
        return ['test' if photo.split == 'val' else 'train' for photo in photos]
    if parts.issuperset(('train', 'test')):
        return [photo.split or 'train' for photo in photos]
    return None


# ---- the folder


def write_folder(source: Source, folder: Path, meaning: str, copy: bool = False) -> pd.DataFrame:
    """Write a new folder with images/ and labels.csv, completely or not at all.

    Args:
        meaning: As in `label_table`.
        copy: Copy the photos instead of linking to them.

    Returns:
        The table, as from `label_table`.

    Raises:
        SpmlError: If the folder exists, is inside the source, or cannot be written.
    """
    if _without_dots(folder).is_relative_to(source.location):
        raise SpmlError(
            f'{folder} is inside the source {source.location}, which must not change. Name a '
            'folder elsewhere.'
        )
    table = label_table(source, meaning)
    with new_folder(folder, '; where no links can be made, copy the photos: `--copy`') as temporary:
        images = temporary / 'images'
        pairs = zip(table.index, table['image'], strict=True)
        for key, name in progress.progress_bar(pairs, len(table), 'photos'):
            (images / name).parent.mkdir(parents=True, exist_ok=True)
            _write_photo(source.photos[key].content, images / name, copy)
        (temporary / 'labels.csv').write_text(as_csv(table), encoding='utf-8', newline='')
    return table


def _write_photo(content, target, copy):
    if callable(content):
        target.write_bytes(content())
    elif copy:
        shutil.copyfile(content, target)
    else:
        target.symlink_to(content.resolve())


def as_csv(table: pd.DataFrame) -> str:
    "Format labels.csv so that no cell is a formula to a spreadsheet."
    cells = table.copy()
    # prefixes that do not change how the table is read
    for column, prefix in (('image', './'), ('labels', '|'), ('positives', '|')):
        if column in cells:
            cells[column] = [escape_for_spreadsheet(cell, prefix) for cell in cells[column]]
    return cells.to_csv(index=False, lineterminator='\n')


# ---- reports


def preview_import(source: Source) -> str:
    "Summarise a source in a line, followed by a table of ten photos with their names."
    photos = source.photos
    counts = [len(photo.present) for photo in photos.values()]
    classes = {name for photo in photos.values() for name in photo.present}
    keys = sorted(photos, key=lambda key: (not photos[key].present, key))
    shown = [keys[k] for k in np.linspace(0, len(keys) - 1, min(10, len(keys))).astype(int)]
    lines = {key: {'names': ' | '.join(sorted(photos[key].present))} for key in shown}
    for key in shown:
        if photos[key].absent:
            lines[key]['absent'] = ' | '.join(sorted(photos[key].absent))
        if photos[key].split:
            lines[key]['split'] = photos[key].split
    table = pd.DataFrame.from_dict(lines, 'index').fillna('')
    return (
        f'{source.title}: {len(photos):,} photos, {len(classes):,} classes, '
        f'{np.mean(counts):.2f} names a photo\n{table.to_string(max_colwidth=60)}'
    )


def summarize_import(source: Source, table: pd.DataFrame) -> str:
    "Describe which photos of a source are in the table, and which are not, and why."
    left_out = dict(source.left_out)
    dropped = sorted(set(source.photos) - set(table.index))
    if dropped:
        left_out['photos without a name, whose labels would all be unknown'] = dropped
    lines = [f'{len(table):,} photos; columns: {join_items(table.columns, 5)}']
    unlabelled = sum(not source.photos[key].present for key in table.index)
    if unlabelled:
        lines.append(f'kept: {unlabelled:,} photos without a name, which have none of the classes')
    lines += [f'left out: {line}' for line in _counted(left_out)]
    lines += [f'noted: {line}' for line in _counted(source.remarks)]
    return '\n'.join([*lines, *_explain_split(source, table)])


def _counted(kinds):
    return [f'{kind}: {join_items(items, 3)}' for kind, items in kinds.items()]


def _explain_split(source, table):
    parts = [part for part in PARTS if any(source.photos[key].split == part for key in table.index)]
    if 'split' not in table and parts:
        yield f'noted: the source has only {join_items(parts)}, so no column `split` is written'
    elif 'split' in table and 'test' not in parts:
        yield 'noted: the source has no test part: its val photos are test, and val is drawn'
