"""Pascal VOC XML."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from ...base.errors import SpmlError
from .files import read_text
from .source import PART_NAMES, Source


def read_voc(documents: dict[Path, ElementTree.Element], source: Source):
    "Read one .xml per photo. A class with only difficult objects is unknown."
    splits = {}
    for text in source.root.rglob('ImageSets/Main/*.txt'):
        if text.stem in PART_NAMES:
            for line in read_text(text)[0].splitlines():
                splits[line.strip()] = PART_NAMES[text.stem]
    for file, root in documents.items():
        present, difficult = set(), set()
        for k, entry in enumerate(root.iter('object')):
            name = (entry.findtext('name') or '').strip()
            if not name:
                raise SpmlError(
                    f'{file}: object {k + 1} has no <name>; expected: the name of its class. '
                    'Write it, or remove the object.'
                )
            is_difficult = (entry.findtext('difficult') or '').strip() == '1'
            (difficult if is_difficult else present).add(name)
        reference = (root.findtext('filename') or '').strip() or file.stem
        split = splits.get(file.stem) or source.part_of(file)
        photo = source.find_photo(reference, file.parent, split)
        if photo is None:
            continue
        photo.present |= present
        photo.unknown |= difficult - photo.present
        if difficult - present:
            remark = 'photos with difficult objects of a class alone: unknown'
            source.remarks[remark].append(photo.name)
