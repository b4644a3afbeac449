"""YOLO: a .txt with class numbers for each photo."""

import os
import posixpath
import re
from pathlib import Path

from ...base.errors import SpmlError
from ..dataset import join_items
from .files import read_text
from .source import PART_NAMES, Source, find_part


def read_yolo(documents: dict[Path, dict], source: Source):
    """Read the classes and photos that a .yaml or classes.txt lists, and each photo's .txt.

    The .txt is beside the photo, or in a folder `labels` in place of the folder `images`.
    """
    used = set()
    for file, document in documents.items():
        names = _read_names(file, document)
        source.categories += names.values()
        for path, split in _list_photos(file, document, source):
            labels = _find_label_file(source.root, path)
            photo = source.photo(path, split)
            if labels is None:
                source.remarks['photos without a .txt'].append(path)
                continue
            used.add(labels)
            photo.present |= _read_classes(labels, names)
    for text in sorted(set(source.root.rglob('*.txt')) - used):
        path = text.relative_to(source.root)
        if 'labels' in path.parts[:-1] and text.name != 'classes.txt':
            source.left_out['labels without photos'].append(path.as_posix())


def _read_names(file, document):
    names = document.get('names')
    if isinstance(names, dict):
        try:
            return {int(key): str(name) for key, name in names.items()}
        except ValueError:
            names = None
    if isinstance(names, list) and names:
        return dict(enumerate(map(str, names)))
    raise SpmlError(
        f'{file} has no usable `names`; expected: a list of class names, or numbers with names. '
        'Add the names in the order of the numbers in the .txt files.'
    )


def _list_photos(file, document, source):
    "Yield (path, part) of the photos that the .yaml lists, or of all photos if it lists none."
    parts = {key: document[key] for key in ('train', 'val', 'valid', 'test') if document.get(key)}
    if not parts:
        for path in source.paths:
            yield path, find_part(path.split('/')[0])
        return
    for key, entries in parts.items():
        entries = [entries] if isinstance(entries, str) else entries
        if not isinstance(entries, list):
            raise SpmlError(
                f'{file}: `{key}` is {entries!r}; expected: a folder of photos, or a list of '
                'folders. Write it.'
            )
        for entry in entries:
            paths = _list_photos_of_entry(file, document, str(entry), source)
            if paths is None:
                source.left_out['parts whose folder is not there'].append(f'{key}: {entry}')
            for path in paths or ():
                yield path, PART_NAMES[key]


def _list_photos_of_entry(file, document, entry, source):
    "Paths of the photos in a folder or listed in a file; None if that is missing."
    base = file.parent
    inside = re.sub(r'^(\.\./)+', '', entry)  # Roboflow's entries start with ../
    for target in (base / str(document.get('path') or '') / entry, base / entry, base / inside):
        target = Path(os.path.abspath(target))
        if not target.is_relative_to(source.root):
            continue
        if target.is_dir():
            return [path for path in source.paths if (source.root / path).is_relative_to(target)]
        if target.is_file():
            lines = (line.strip() for line in read_text(target)[0].splitlines())
            paths = (source.find(line, target.parent) for line in lines if line)
            return [path for path in paths if path]
    return None


def _find_label_file(root, path):
    folder, name = posixpath.split(path)
    name = posixpath.splitext(name)[0] + '.txt'
    folders = [folder]
    if 'images' in (pieces := folder.split('/')):
        last = len(pieces) - 1 - pieces[::-1].index('images')
        folders.insert(0, '/'.join([*pieces[:last], 'labels', *pieces[last + 1 :]]))
    files = (root / folder / name for folder in folders)
    return next((file for file in files if file.is_file()), None)


def _read_classes(file, names):
    present = set()
    for number, line in enumerate(read_text(file)[0].splitlines(), 1):
        cells = line.split()
        if not cells:
            continue
        try:
            column, *_ = [float(cell) for cell in cells]
        except ValueError:
            column = None
        if column not in names:
            raise SpmlError(
                f'{file}, line {number}: {line.strip()[:80]!r} is not a line of YOLO; expected: '
                f'the number of a class out of {join_items(sorted(names), 20)}, then the numbers '
                'of a box. Fix the line, or the names.'
            )
        present.add(names[int(column)])
    return present
