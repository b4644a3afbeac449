"""Exports of Label Studio."""

import posixpath
import re
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from ...base.errors import SpmlError
from ..decoding import PHOTOS
from .source import Source


def read_label_studio(documents: dict[Path, list], source: Source):
    "Read an export as JSON or JSON-MIN: choices and labels of regions by all annotators."
    for file, tasks in documents.items():
        for k, task in enumerate(tasks):
            where = f'{file}: task {k + 1}'
            try:
                _read_task(task, where, file, source)
            except (AttributeError, TypeError) as error:
                raise SpmlError(
                    f'{where} is not as Label Studio exports it ({error}); expected: `data` with '
                    'a photo, and `annotations`. Export the project as JSON again.'
                ) from error


def _read_task(task, where, file, source):
    path = _find_photo(task, where, file, source)
    if path is None:
        return
    annotations = task.get('annotations', [task] if 'data' not in task else [])
    valid = [annotation for annotation in annotations if not annotation.get('was_cancelled')]
    if len(valid) < len(annotations):
        source.left_out['cancelled annotations'].append(path)
    if not valid:
        source.left_out['photos that nobody has annotated'].append(path)
        return
    if len(valid) > 1 or path in source.photos:
        source.remarks['photos annotated more than once, joined'].append(path)
    photo = source.photo(path)
    for annotation in valid:
        for name in _names_of_annotation(annotation):
            if not isinstance(name, str):
                raise TypeError(f'{name!r} is not a name')
            photo.present.add(name)


_STORED = re.compile('^[0-9a-f]{8}-')  # prefix that Label Studio adds to file names


def _find_photo(task, where, file, source):
    data = task.get('data', task) if isinstance(task, dict) else None
    texts = [value for value in (data or {}).values() if isinstance(value, str)]
    for text in texts:
        address = urlsplit(text)
        reference = parse_qs(address.query).get('d', [unquote(address.path)])[0]
        if posixpath.splitext(reference)[1].lower() in PHOTOS:
            folder, name = posixpath.split(reference.lstrip('/'))
            original = posixpath.join(folder, _STORED.sub('', name))
            exists = source.matches(reference.lstrip('/'), file.parent)
            return source.find(reference.lstrip('/') if exists else original, file.parent)
    raise SpmlError(
        f'{where} names no photo in `data`; expected: the path or address of a file such as .jpg. '
        'Export the project as JSON.'
    )


def _names_of_annotation(annotation):
    "Yield the names of choices and regions, in either form of the export."
    if 'result' not in annotation:
        for value in annotation.values():
            if isinstance(value, dict):
                yield from value.get('choices', [])
            for region in value if isinstance(value, list) else []:
                yield from _names_of_region(region)
        if isinstance(annotation.get('choice'), str):
            yield annotation['choice']
        return
    for region in annotation['result']:
        yield from _names_of_region(region.get('value', {}))


def _names_of_region(region):
    if not isinstance(region, dict):
        return
    for key, names in region.items():
        if key == 'choices' or key.endswith('labels'):
            yield from names
