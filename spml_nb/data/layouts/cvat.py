"""The export `CVAT for images`."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from ...base.errors import SpmlError
from .source import Source, find_part


def read_cvat(documents: dict[Path, ElementTree.Element], source: Source):
    "Read `CVAT for images`: the labels of shapes and tags."
    for file, root in documents.items():
        if root.find('track') is not None:
            raise SpmlError(
                f'{file} contains the tracks of a video; expected: <image> with shapes or tags. '
                'Export it as "CVAT for images 1.1".'
            )
        for k, image in enumerate(root.iter('image')):
            reference = image.get('name')
            if not reference:
                raise SpmlError(
                    f'{file}: image {k + 1} has no `name`; expected: the path of a photo. Export '
                    'the labels again.'
                )
            split = find_part(image.get('subset') or '')
            if photo := source.find_photo(reference, file.parent, split):
                photo.present |= {shape.get('label') for shape in image if shape.get('label')}
