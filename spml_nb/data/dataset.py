"""Images, a matrix of true labels, class names and a split, checked before anything is trained."""

import hashlib
import json
import os
import shlex
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from ..base import settings
from ..base.errors import SpmlError, one_of
from ..base.escaping import escape_for_terminal

PARTS = ('train', 'val', 'test')
MINIATURES = ('mini_voc', 'mini_coco', 'mini_nus', 'mini_cub')  # drawn by `spml_nb.data.miniatures`
FAMILIES = {  # whose published hyper-parameters a set takes
    'mini_voc': 'voc',
    'voc12': 'voc',
    'voc07': 'voc',
    'voc12_animals': 'voc',
    'mini_coco': 'coco',
    'coco14': 'coco',
    'coco18': 'coco',
    'coco18_30k': 'coco',
    'mini_nus': 'nus',
    'nus': 'nus',
    'nus-official': 'nus',
    'nus-labelled': 'nus',
    'mirflickr14': 'nus',
    'mirflickr14_10k': 'nus',
    'mini_cub': 'cub',
    'cub': 'cub',
    'cub_crops': 'cub',
}


def dataset_family(dataset: str) -> str:
    "Whose published hyper-parameters a data set takes: 'voc', 'coco', 'nus', 'cub' or 'other'."
    return FAMILIES.get(dataset, 'other')


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images with their true labels; files are named here and opened elsewhere.

    Args:
        name: What tables call it.
        images: N paths, or an (N, H, W, 3) uint8 array.
        labels: (N, C) int8: 1 present, 0 unknown, -1 absent. A 0 is never a negative, whatever else
            the matrix holds.
        class_names: C different names.
        split: (N,) array of 'train', 'val', 'test'.
        drawn: The parts that no table names, so that their images were drawn by name; see
            `spml_nb/data/folder.py`.
        groups: N names of what photos share, '' for those that share nothing; None where no table
            says so. Parts that are drawn cut no group.

    Raises:
        SpmlError: If shapes, types or values do not fit together.
    """

    name: str
    images: list[Path] | np.ndarray
    labels: np.ndarray
    class_names: list[str]
    split: np.ndarray
    drawn: tuple[str, ...] = ()
    groups: list[str] | None = None

    def __post_init__(self):
        n = len(self.images)
        labels, split = self.labels, self.split
        shape = n, len(self.class_names)
        if self.images_in_memory and not (
            self.images.dtype == np.uint8 and self.images.ndim == 4 and self.images.shape[3] == 3
        ):
            self._refuse('images in memory must be (N, H, W, 3) uint8.')
        is_array = isinstance(labels, np.ndarray)
        if not is_array or labels.dtype != np.int8 or labels.shape != shape:
            self._refuse(
                f'labels must be an int8 array of shape {shape}: one row per image, one column '
                'per class name.'
            )
        if labels.size and (labels.min() < -1 or labels.max() > 1):
            self._refuse('labels must be 1 (present), 0 (unknown) or -1 (absent).')
        if len(set(self.class_names)) != len(self.class_names):
            self._refuse('two classes have the same name.')
        is_array = isinstance(split, np.ndarray)
        if not is_array or split.shape != (n,) or not set(split.tolist()) <= set(PARTS):
            self._refuse(f"split must be an array of {n} words out of {', '.join(PARTS)}.")

    def _refuse(self, message):
        raise SpmlError(f'data set {self.name!r}: {message}')

    def __len__(self):
        return len(self.labels)

    def __repr__(self):
        parts = ', '.join(f'{part} {len(self.rows(part)):,}' for part in PARTS)
        positives = (self.labels > 0).sum() / max(len(self), 1)
        unknown = (self.labels == 0).sum()
        gaps = f', {unknown:,} of {self.labels.size:,} labels unknown' if unknown else ''
        return (
            f'{self.name}: {len(self):,} images ({parts}), {len(self.class_names)} classes, '
            f'{positives:.2f} positives per image{gaps}'
        )

    def rows(self, part: str) -> np.ndarray:
        "Row numbers, ascending, of 'train', 'val', 'test' or 'all'."
        one_of(part, (*PARTS, 'all'), 'part of a data set')
        return np.arange(len(self)) if part == 'all' else np.flatnonzero(self.split == part)

    @property
    def images_in_memory(self) -> bool:
        "Whether `images` holds pixels rather than paths."
        return isinstance(self.images, np.ndarray)

    @cached_property
    def image_names(self) -> list[str]:
        """N names: paths below the folder that all images share, or row numbers for images in
        memory.
        """
        if self.images_in_memory or not len(self):
            return [str(row) for row in range(len(self))]
        folders = {os.path.dirname(path) for path in self.images}  # few, so each is looked at once
        shared = os.path.commonpath(folders)
        below = {folder: os.path.relpath(folder, shared) for folder in folders}
        names = [
            os.path.normpath(os.path.join(below[os.path.dirname(path)], os.path.basename(path)))
            for path in self.images
        ]
        return [name.replace(os.sep, '/') for name in names]

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits over images (names and byte sizes, or pixels), labels, class names and
        split.

        Raises:
            SpmlError: If a file is gone.
        """
        if self.images_in_memory:
            images = self.images.shape
        else:
            try:
                sizes = [os.path.getsize(file) for file in self.images]
            except OSError as error:
                raise SpmlError(
                    f'the image {error.filename} cannot be read: {error.strerror}. Load the data '
                    'set again.'
                ) from error
            images = list(zip(self.image_names, sizes, strict=True))
        description = [images, self.labels.shape, self.class_names, self.split.tolist()]
        digest = hashlib.sha256(json.dumps(description).encode())
        digest.update(self.labels.tobytes())
        if self.images_in_memory:
            digest.update(self.images.tobytes())
        return digest.hexdigest()[:16]

    @property
    def photo_hashes(self) -> list[str]:
        """N checksums of the images as they are now, as from `hash_photos`, or of their pixels in
        memory.
        """
        if self.images_in_memory:
            return [hashlib.sha256(pixels.tobytes()).hexdigest()[:16] for pixels in self.images]
        return hash_photos(self.images)

    @property
    def content(self) -> str:
        """16 hex digits over all bytes of the images in their order, whatever their names and
        labels.
        """
        return hashlib.sha256(json.dumps(self.photo_hashes).encode()).hexdigest()[:16]

    def photos_of(self, part: str) -> str:
        """12 hex digits over the names of a part's images, in any order: which photos it holds,
        whatever their labels.
        """
        names = sorted(self.image_names[row] for row in self.rows(part))
        return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:12]


def default_part(data: Dataset, trained_on: bool) -> str:
    """Choose the images that a model is scored on unless a part is named.

    Args:
        trained_on: Whether the model was trained on this data set.

    Returns:
        'test' where the model has seen the other parts, or somebody has marked the images for
        testing; else 'all'.
    """
    return 'test' if trained_on or 'test' not in data.drawn else 'all'


def hash_photos(files: Iterable[Path]) -> list[str]:
    "16 hex digits over every byte of each file; '' for one that cannot be read."
    files = list(files)
    # a thread is handed many: most files are already known, and a hand-over costs more than a look
    parts = [files[start : start + 512] for start in range(0, len(files), 512)]
    with ThreadPoolExecutor(settings.count_cores()) as pool:
        hashed = pool.map(lambda part: [_hash_photo(file) for file in part], parts)
        return [digest for part in hashed for digest in part]


def find_copies(files: list[Path], others: list[Path]) -> np.ndarray:
    """Which files are there among others, byte for byte, whatever their names.

    Of the others only those that have the size of a file are read.

    Returns:
        (N,) bool, one for each of `files`; False for what cannot be read.
    """
    sizes = {*_sizes(files)}
    alike = [file for file, size in zip(others, _sizes(others), strict=True) if size in sizes]
    there = {*hash_photos(alike)} - {''}
    return np.array([digest in there for digest in hash_photos(files)], bool)


def _sizes(files):
    "Bytes of each file, -1 for one that is gone."
    return [os.path.getsize(file) if os.path.isfile(file) else -1 for file in files]


def _hash_photo(file):
    try:
        stat = os.stat(file)
        return _hash_file(file, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    except OSError:  # whoever opens the photo explains what is wrong
        return ''


@cache
def _hash_file(file, *state):
    "The checksum of a file. state: what changes when it is written, so that it is read again then."
    with open(file, 'rb') as photo:
        return hashlib.file_digest(photo, 'sha256').hexdigest()[:16]


def exclude_option(names: list[str]) -> str:
    "The option that leaves out classes, for a shell: -p exclude 'stop sign, bear'."
    text = ', '.join(names)
    if text.startswith('[') or any(',' in name for name in names):
        text = json.dumps(names, ensure_ascii=False)  # read as a YAML list
    return f'-p exclude {shlex.quote(text)}'


def join_items(items: Iterable, limit: int = 10) -> str:
    "Join items for a message: 'a, b, … (12 in all)', of which `limit` are written out."
    texts = [escape_for_terminal(str(item)).replace('\n', r'\n') for item in items]
    rest = f', … ({len(texts):,} in all)' if len(texts) > limit else ''
    return ', '.join(texts[:limit]) + rest
