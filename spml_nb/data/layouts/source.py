"""The labels that a reader has read, and the photos they belong to."""

import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ...base.errors import SpmlError
from ..folder import photos_below

COMPLETE = 'complete'  # classes that are not listed for a photo are absent
POSITIVES_ONLY = 'positives-only'  # they are unknown


@dataclass
class Photo:
    """A photo with its labels.

    Args:
        name: Path below the folder of photos.
        content: The file, or a function that returns its bytes.
        present, absent, unknown: Names of classes. The others are absent or unknown, the same for
            all photos of a source.
        split, group: As in the columns of labels.csv; '' if the source has none.
    """

    name: str
    content: Path | Callable[[], bytes]
    present: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    split: str = ''
    group: str = ''


class Source:
    """Labels that a reader has read, and the photos they belong to.

    Args:
        location: The file or folder with the labels.
        root: The folder of the photos; by default `location`, or the first folder around it with
            photos.

    Attributes:
        paths: All photos below root, sorted.
        photos: {path: Photo} of the photos with labels.
        title: Name of the layout.
        categories: Classes that the source declares, with or without photos.
        meaning: `COMPLETE` or `POSITIVES_ONLY`, or '' if the source does not tell.
        left_out: {reason: items that were not read}.
        remarks: {what was done: items}.
    """

    title = ''

    def __init__(self, location: Path, root: Path | None = None):
        self.location = location
        self.root = root or (location if location.is_dir() else location.parent)
        self.categories: list[str] = []
        self.paths = photos_below(self.root)
        if not self.paths and root is None and location.is_file():
            self.root = self.root.parent
            self.paths = photos_below(self.root)
        self.photos: dict[str, Photo] = {}
        self.meaning = ''
        self.left_out: dict[str, list[str]] = defaultdict(list)
        self.remarks: dict[str, list[str]] = defaultdict(list)
        self._references: dict[str, str] = {}  # {path: the reference that led to it}
        self._by_form = defaultdict(list)
        for path in self.paths:
            for form in dict.fromkeys(_forms(path)):
                self._by_form[form].append(path)

    def matches(self, reference: str, beside: Path) -> list[str]:
        "Paths of the photos that a reference may mean; arguments as in `find`."
        reference = reference.replace('\\', '/')
        near = os.path.relpath(beside, self.root).replace(os.sep, '/')
        for base in (near, '.'):
            path = posixpath.normpath(posixpath.join(base, reference))
            if path in self._by_form.get(path.lower(), ()):
                return [path]
        forms = _forms(posixpath.normpath(reference).lstrip('./'))
        return next((self._by_form[form] for form in forms if form in self._by_form), [])

    def find(self, reference: str, beside: Path) -> str | None:
        """Find the photo that a label file refers to.

        Args:
            reference: A path, or a name with or without suffix.
            beside: The folder that the path is relative to.

        Returns:
            Its path below root; None if there is no such photo or several, which is noted in
            `left_out`.

        Raises:
            SpmlError: If another reference led to the same photo.
        """
        matches = self.matches(reference, beside)
        if not matches:
            self.left_out['labels without photos'].append(reference)
            return None
        if len(matches) > 1:
            self.left_out['labels whose name several photos have'].append(reference)
            return None
        (path,) = matches
        target = posixpath.normpath(posixpath.join(beside.as_posix(), reference))
        if self._references.setdefault(path, target) != target:
            raise SpmlError(
                f'{self._references[path]!r} and {target!r} both lead to the photo {path}; '
                'expected: a photo for each. Add the missing photos, or name the folder that '
                'these paths are relative to: `--images FOLDER`.'
            )
        return path

    def find_photo(
        self,
        reference: str,
        beside: Path,
        split: str = '',
        repeated: str = 'entries of a photo that was listed before, joined',
    ) -> Photo | None:
        """Get or create the `Photo` that a label file refers to.

        Args:
            reference, beside: As in `find`.
            split: Its part, unless an earlier entry gave one.
            repeated: The remark on a photo that has an entry already.

        Returns:
            None if `find` finds none.
        """
        path = self.find(reference, beside)
        if path is None:
            return None
        if path in self.photos:
            self.remarks[repeated].append(path)
        return self.photo(path, split)

    def photo(self, path: str, split: str = '') -> Photo:
        "Get or create the `Photo` of a path below root."
        photo = self.photos.setdefault(path, Photo(path, self.root / path))
        if split and photo.split and photo.split != split:
            self.remarks['photos of two parts, of which the first counts'].append(path)
        photo.split = photo.split or split
        return photo

    def put_in_group(self, photo: Photo, group: str):
        """Note the group of a photo, unless an earlier entry gave one."""
        if group and photo.group and photo.group != group:
            self.remarks['photos of two groups, of which the first counts'].append(photo.name)
        photo.group = photo.group or group

    def part_of(self, file: Path) -> str:
        """The part that a folder of the source contains, by the name of the file's own; '' for the
        source itself, whose name says nothing about its photos.
        """
        return find_part(file.parent.name) if self.location in file.parent.parents else ''


def _forms(path):
    "Names by which a photo may be referred to: its path, ends of the path, its stem."
    path = path.lower()
    pieces = path.split('/')
    for k in range(len(pieces)):
        yield '/'.join(pieces[k:])
    yield posixpath.splitext(pieces[-1])[0]


PART_NAMES = {
    **dict.fromkeys(('train', 'training'), 'train'),
    **dict.fromkeys(('val', 'valid', 'validation', 'dev'), 'val'),
    **dict.fromkeys(('test', 'testing'), 'test'),
}


def find_part(text: str) -> str:
    "The part that the name of a file or folder contains, such as val in val2017; else ''."
    words = re.findall('[a-z]+', text.lower())
    return next((PART_NAMES[word] for word in words if word in PART_NAMES), '')
