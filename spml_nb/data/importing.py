"""Labels in another layout become a folder with images/ and labels.csv; the source stays as is."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd

from ..base import progress
from ..base.errors import SpmlError, one_of
from ..base.escaping import escape_for_spreadsheet
from ..base.files import new_folder
from .dataset import PARTS, join_items
from .folder import normalize_name, usable_class_names
from .formats import COMPLETE, POSITIVES_ONLY, Photo, Source, choose_layout

MEANINGS = (COMPLETE, POSITIVES_ONLY)
BAR = '¦'  # what a `|` in the name of a class becomes: `|` stands between names


def read_source(place: Path, layout: str = '', images: Path | None = None) -> Source:
    """Read labels in any layout of `formats.LAYOUTS`, and find the photos that they are of.

    Args:
        place: A file with labels, or a folder.
        layout: A key of LAYOUTS; unset: what the content says.
        images: The folder of the photos; unset: `place`, or the folder around a file, or where that
            has no photos the one above.

    Raises:
        SpmlError: For labels that cannot be read, and where no photo has one.
    """
    if not place.exists():
        raise SpmlError(f'{place} is not there. Name a file with labels, or the folder around it.')
    if images is not None and not images.is_dir():
        raise SpmlError(f'--images {images} is no folder. Name that of the photos.')
    absolute = _without_dots(place)
    chosen, documents = choose_layout(absolute, layout)
    source = Source(absolute, images and _without_dots(images))
    source.title = chosen.title
    chosen.read(documents, source)
    if not any(photo.present for photo in source.photos.values()):
        reasons = f' ({"; ".join(_counted(source.left_out))})' if source.left_out else ''
        raise SpmlError(
            f'{place} was read as {chosen.title}, and no photo below {source.root} has a label'
            f'{reasons}. If the photos are elsewhere: `--images FOLDER`.'
        )
    noted = set().union(source.photos, *source.left_out.values())
    unnamed = [path for path in source.paths if path not in noted]
    if unnamed:
        source.left_out['photos that no label file names'] = unnamed
    _leave_out_undecodable(source)
    _rename_classes(source)
    return source


def _without_dots(path: Path) -> Path:
    """An absolute path without `..`, so that what lies below it is seen to. Only links before a
    `..` are followed, as the system does: a link to labels stands for labels where it lies.
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
    "Spell the names of classes as a table keeps them."
    photos = source.photos.values()
    names = {name for photo in photos for name in photo.present | photo.absent | photo.unknown}
    spelling = {}
    for name in sorted(names):
        spelling[name] = normalize_name(name).replace('|', BAR)
        if '|' in name:
            source.remarks[f'names of classes with `|`, written with {BAR}'].append(name)
            if normalize_name(name).replace('|', BAR) in names:
                raise SpmlError(
                    f'the classes {name!r} and {spelling[name]!r} would get one name: `|` stands '
                    f'between names, and becomes {BAR}. Rename one.'
                )
    for photo in photos:
        for kind in ('present', 'absent', 'unknown'):
            setattr(photo, kind, {spelling[name] for name in getattr(photo, kind)} - {''})
    present = {name for photo in photos for name in photo.present}
    unused = sorted(name for name in source.categories if spelling.get(name) not in present)
    if unused:
        source.left_out['classes that no photo has'] += unused


# ---- the table


def label_table(source: Source, meaning: str) -> pd.DataFrame:
    """Make labels.csv.

    A column `labels` or `positives` where each photo has the same kind of knowledge, else a column
    for each class.

    Args:
        meaning: Of a name that is not given for a photo, one of `MEANINGS`.

    Returns:
        DataFrame of str, sorted by the photos' names; its index are keys of `source.photos`.
    """
    one_of(meaning, MEANINGS, 'meaning of a name that is not given')
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
        words = {1: '1', 0: '', -1: '0'}
        columns |= {name: [words[z] for z in labels[:, c]] for c, name in enumerate(names)}
    if split := _split(photos):
        columns['split'] = split
    if any(photo.group for photo in photos):
        columns['group'] = [photo.group for photo in photos]
    return pd.DataFrame(columns, index=keys, dtype=object)


def _label_matrix(photos: list[Photo], names: list[str], rest: int):
    "(N, C) int8; what is both present and absent is present."
    column = {name: c for c, name in enumerate(names)}
    labels = np.full((len(photos), len(names)), rest, np.int8)
    for k, photo in enumerate(photos):
        for label, group in ((0, photo.unknown), (-1, photo.absent), (1, photo.present)):
            labels[k, [column[name] for name in group if name in column]] = label
    return labels


def _image_names(keys):
    "Paths below the folder that all photos share."
    shared = os.path.commonpath([f'./{os.path.dirname(key)}' for key in keys])
    return [os.path.relpath(f'./{key}', shared).replace(os.sep, '/') for key in keys]


_PLAIN = re.compile(r'[^\W\d_][\w -]*')


def _join_names(labels, names):
    "Cells of names; one ends in a bar where they could be taken for numbers, or joined otherwise."
    cells = ['|'.join(names[c] for c in np.flatnonzero(row > 0)) for row in labels]
    is_clear = any('|' in cell for cell in cells) or all(map(_PLAIN.fullmatch, names))
    if not is_clear:
        first = next(k for k, cell in enumerate(cells) if cell)
        cells[first] += '|'
    return cells


def _split(photos):
    "The column `split`, None where the parts of the source cannot be those of a table."
    parts = {photo.split for photo in photos} - {''}
    if parts == {'train', 'val'}:
        words = {'train': 'train', 'val': 'test', '': 'train'}
        return [words[photo.split] for photo in photos]
    if parts.issuperset(('train', 'test')):
        return [photo.split or 'train' for photo in photos]
    return None


# ---- the folder


def write_folder(source: Source, folder: Path, meaning: str, copy: bool = False) -> pd.DataFrame:
    """Write a new folder with images/ and labels.csv, whole or not at all.

    Args:
        meaning: As in `label_table`.
        copy: Copy the photos; else they are links to those of the source.

    Returns:
        As from `label_table`.

    Raises:
        SpmlError: If the folder is not new, lies in the source, or cannot be written.
    """
    if _without_dots(folder).is_relative_to(source.place):
        raise SpmlError(
            f'{folder} lies in the source {source.place}, which is not changed. Name a folder '
            'elsewhere.'
        )
    table = label_table(source, meaning)
    with new_folder(folder, '; where no links can be made, copy the photos: `--copy`') as temporary:
        images = temporary / 'images'
        pairs = zip(table.index, table['image'], strict=True)
        for key, name in progress.progress_bar(pairs, len(table), 'photos'):
            (images / name).parent.mkdir(parents=True, exist_ok=True)
            _bring(source.photos[key].content, images / name, copy)
        (temporary / 'labels.csv').write_text(as_csv(table), encoding='utf-8', newline='')
    return table


def _bring(content, target, copy):
    if callable(content):
        target.write_bytes(content())
    elif copy:
        shutil.copyfile(content, target)
    else:
        target.symlink_to(content.resolve())


def as_csv(table: pd.DataFrame) -> str:
    "Write labels.csv as text that a spreadsheet can open: no path, and no name, is a formula."
    cells = table.copy()
    for column, guard in (('image', './'), ('labels', '|'), ('positives', '|')):
        if column in cells:  # a table of labels is read as without these
            cells[column] = [escape_for_spreadsheet(cell, guard) for cell in cells[column]]
    return cells.to_csv(index=False, lineterminator='\n')


# ---- what was understood


def preview(source: Source, rows: int = 10) -> str:
    "Say what was read, with some photos and the names that they have."
    photos = source.photos
    counts = [len(photo.present) for photo in photos.values()]
    classes = {name for photo in photos.values() for name in photo.present}
    keys = sorted(photos, key=lambda key: (not photos[key].present, key))
    shown = [keys[k] for k in np.linspace(0, len(keys) - 1, min(rows, len(keys))).astype(int)]
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


def summary(source: Source, table: pd.DataFrame) -> str:
    "Say what of a source is in the table, what is not, and why."
    left_out = dict(source.left_out)
    dropped = sorted(set(source.photos) - set(table.index))
    if dropped:
        left_out['photos without a name, of which nothing would be known'] = dropped
    lines = [f'{len(table):,} photos; columns: {join_items(table.columns, 5)}']
    bare = sum(not source.photos[key].present for key in table.index)
    if bare:
        lines.append(f'kept: {bare:,} photos without a name, which have none of the classes')
    lines += [f'left out: {line}' for line in _counted(left_out)]
    lines += [f'noted: {line}' for line in _counted(source.remarks)]
    return '\n'.join([*lines, *_explain_split(source, table)])


def _counted(kinds):
    return [f'{kind}: {join_items(items, 3)}' for kind, items in kinds.items()]


def _explain_split(source, table):
    parts = [part for part in PARTS if any(source.photos[key].split == part for key in table.index)]
    if 'split' not in table and parts:
        yield f'noted: the source has {join_items(parts)} alone, so no column `split` is written'
    elif 'split' in table and 'test' not in parts:
        yield 'noted: the source has no test part: its val photos are test, and val is drawn'
