"""Recognise labels in the layouts of other tools, and choose their reader."""

import os
import shlex
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..base.errors import SpmlError
from .dataset import join_items
from .folder import photos_below
from .layouts.class_folders import read_class_folders
from .layouts.coco import read_coco
from .layouts.cvat import read_cvat
from .layouts.files import read_json, read_text, read_xml, read_yaml
from .layouts.huggingface import read_huggingface
from .layouts.label_studio import read_label_studio
from .layouts.source import Source
from .layouts.tables import read_tables
from .layouts.voc import read_voc
from .layouts.yolo import read_yolo


@dataclass(frozen=True)
class Layout:
    """A layout of labels.

    Args:
        title: Its name for messages.
        read: Function ({file: parsed content}, source) that fills the `Source`.
    """

    title: str
    read: Callable[[dict, Source], None]


LAYOUTS = {
    'huggingface': Layout('Hugging Face datasets', read_huggingface),
    'yolo': Layout('YOLO', read_yolo),
    'coco': Layout('COCO JSON', read_coco),
    'label-studio': Layout('Label Studio JSON', read_label_studio),
    'cvat': Layout('CVAT for images', read_cvat),
    'voc': Layout('Pascal VOC XML', read_voc),
    'table': Layout('a table', read_tables),
    'folders': Layout('one folder a class', read_class_folders),
}
_UNSPECIFIC = ('table', 'folders')  # also found beside the label files of other layouts
_SUFFIXES = ('.json', '.xml', '.yaml', '.yml', '.csv', '.tsv', '.txt', '.xlsx')


def recognise_layout(location: Path) -> dict[str, dict]:
    """Find the label files of a file or folder, by their content.

    Returns:
        {key of LAYOUTS: {file: parsed content}}, of all possible layouts.
    """
    if location.is_file():
        candidates = _recognise_file(location, named=True)
        return {candidates[0]: {location: candidates[1]}} if candidates else {}
    if (location / 'dataset_dict.json').is_file() or (location / 'state.json').is_file():
        return {'huggingface': {location: None}}
    formats = defaultdict(dict)
    for file in _label_files(location):
        if candidate := _recognise_file(file, named=False):
            formats[candidate[0]][file] = candidate[1]
    if 'yolo' not in formats:
        for file in [*location.rglob('classes.txt'), *location.rglob('obj.names')][:1]:
            formats['yolo'][file] = {'names': read_text(file)[0].splitlines()}
    specific = {name: files for name, files in formats.items() if name not in _UNSPECIFIC}
    if specific or formats:
        return specific or dict(formats)
    has_folders = any('/' in path for path in photos_below(location))
    return {'folders': {location: None}} if has_folders else {}


def _label_files(folder):
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] != '.')
        for name in sorted(names):
            if name[0] != '.' and os.path.splitext(name)[1].lower() in _SUFFIXES:
                yield Path(base, name)


def _recognise_file(file: Path, named: bool):
    """(key of LAYOUTS, parsed content), or None.

    Args:
        named: Whether the user named this file, so that a .txt is a table.
    """
    suffix = file.suffix.lower()
    if suffix in ('.csv', '.tsv', '.xlsx') or (suffix == '.txt' and named):
        return 'table', None
    if suffix == '.json':
        return _recognise_json(file)
    if suffix == '.xml':
        return _recognise_xml(file)
    return _recognise_yaml(file) if suffix in ('.yaml', '.yml') else None


def _recognise_json(file):
    document = read_json(file)
    if isinstance(document, dict) and not {'images', 'annotations'}.isdisjoint(document):
        return 'coco', document
    is_tasks = isinstance(document, list) and document and isinstance(document[0], dict)
    if is_tasks and not {'data', 'image', 'annotations'}.isdisjoint(document[0]):
        return 'label-studio', document
    return None


def _recognise_xml(file):
    root = read_xml(file)
    if root.tag == 'annotation':
        return 'voc', root
    return ('cvat', root) if root.tag == 'annotations' else None


def _recognise_yaml(file):
    document = read_yaml(file)
    return ('yolo', document) if not {'names', 'train', 'nc'}.isdisjoint(document) else None


def choose_layout(location: Path, name: str = '') -> tuple[Layout, dict]:
    """Choose the layout of a file or folder.

    Args:
        name: A key of LAYOUTS; by default it is recognised by the content.

    Returns:
        The layout, and {file: parsed content} for its reader.

    Raises:
        SpmlError: If it has no layout, or several.
    """
    if name in ('folders', 'huggingface'):
        return LAYOUTS[name], {location: None}
    formats = recognise_layout(location)
    if name:
        formats = {key: files for key, files in formats.items() if key == name}
    if len(formats) == 1:
        (key,) = formats
        return LAYOUTS[key], formats[key]
    allowed = ', '.join(f'{key} ({layout.title})' for key, layout in LAYOUTS.items())
    if not formats:
        as_what = f' as {name}' if name else ''
        raise SpmlError(
            f'{location} has no labels that can be read{as_what}; allowed: {allowed}. Give the '
            'file or folder with the labels, or save them as one of these.'
        )
    files = join_items(f'{key}: {next(iter(files)).name}' for key, files in formats.items())
    raise SpmlError(
        f'{location} has labels in several layouts ({files}). Choose one with --format, or give '
        'its file.'
    )


def refuse_other_layout(folder: Path):
    """Refuse a folder with another tool's labels, which `spml import` can convert.

    Raises:
        SpmlError: If a folder has no labels.csv, and labels in one other layout.
    """
    try:
        if not folder.is_dir() or (folder / 'labels.csv').exists():
            return
        layout, _ = choose_layout(folder)
    except (SpmlError, OSError):
        return  # no layout, several, or a damaged file: `read_folder` has an error for it
    if layout in (LAYOUTS['table'], LAYOUTS['folders']):
        return  # `read_folder` has a remedy for these
    raise SpmlError(
        f'This looks like {layout.title}: `spml import {shlex.quote(str(folder))} NEW_FOLDER`. '
        f'That makes a new folder with images/ and labels.csv, which {folder} lacks.'
    )
