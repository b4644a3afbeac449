"""Data sets of Hugging Face on disk."""

import io
import posixpath
from functools import partial
from pathlib import Path

from PIL import Image

from ...base.errors import SpmlError, require_package
from ..dataset import join_items
from ..decoding import PHOTOS
from .source import Photo, Source, find_part


def read_huggingface(documents: dict[Path, None], source: Source):
    "Read the output of `save_to_disk`: an Image column, and one of ClassLabel or lists of them."
    datasets = require_package('datasets', 'a folder of Hugging Face datasets', 'formats')
    for folder in documents:
        try:
            loaded = datasets.load_from_disk(str(folder))
        except Exception as error:  # from pyarrow and many others
            raise SpmlError(
                f'{folder} cannot be read by datasets.load_from_disk: {error}. Save it again with '
                'save_to_disk.'
            ) from error
        parts = loaded if isinstance(loaded, dict) else {'': loaded}
        for part, table in parts.items():
            image, label, names = _find_columns(table.features, folder, datasets)
            source.categories += names
            table = table.cast_column(image, datasets.Image(decode=False))
            split = find_part(part)
            for k, numbers in enumerate(table[label]):
                value = table[k][image]
                if value is None or numbers in (None, -1):  # -1: as in test parts to be predicted
                    missing = 'an image' if value is None else 'a label'
                    source.left_out[f'rows without {missing}'].append(f'{part} {k}'.lstrip())
                    continue
                name = posixpath.join(part, f'{k:06}{_suffix(value)}')
                photo = Photo(name, partial(_read_bytes, table, image, k), split=split)
                numbers = numbers if isinstance(numbers, list) else [numbers]
                photo.present = {names[c] for c in numbers if c is not None and c >= 0}
                source.photos[name] = photo


def _find_columns(features, folder, datasets):
    "Names of the image column and the label column, and the class names."
    images = [name for name, kind in features.items() if isinstance(kind, datasets.Image)]
    for name, kind in features.items():
        kind = getattr(kind, 'feature', kind)  # the elements of a list
        if isinstance(kind, datasets.ClassLabel) and images:
            return images[0], name, kind.names
    kinds = join_items(f'{name} ({type(kind).__name__})' for name, kind in features.items())
    raise SpmlError(
        f'{folder} has the columns {kinds}; expected: an Image, and a ClassLabel or a list of '
        'them. Cast the columns, and save_to_disk again.'
    )


def _read_bytes(table, image, k):
    value = table[k][image]
    return value['bytes'] if value['bytes'] is not None else Path(value['path']).read_bytes()


def _suffix(value):
    suffix = posixpath.splitext(value['path'] or '')[1].lower()
    if suffix in PHOTOS or value['bytes'] is None:
        return suffix
    with Image.open(io.BytesIO(value['bytes'])) as opened:
        return {'JPEG': '.jpg'}.get(opened.format, f'.{opened.format.lower()}')
