"""A data set: images, a matrix of true labels, class names and a split, validated when created."""

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
from ..base.errors import SpmlError, require_one_of
from ..base.escaping import escape_for_terminal

PARTS = ('train', 'val', 'test')
MINIATURES = ('mini_voc', 'mini_coco', 'mini_nus', 'mini_cub')  # drawn by `spml_nb.data.miniatures`
_NUS_LIKE = ('mini_nus', 'nus', 'nus-official', 'nus-labelled', 'mirflickr14', 'mirflickr14_10k')
FAMILIES = {  # data sets that take the published hyper-parameters of a paper's set
    **dict.fromkeys(('mini_voc', 'voc12', 'voc07', 'voc12_animals'), 'voc'),
    **dict.fromkeys(('mini_coco', 'coco14', 'coco18', 'coco18_30k'), 'coco'),
    **dict.fromkeys(_NUS_LIKE, 'nus'),
    **dict.fromkeys(('mini_cub', 'cub', 'cub_crops'), 'cub'),
}


def find_family(dataset: str) -> str:
    "The set whose published hyper-parameters apply: 'voc', 'coco', 'nus', 'cub' or 'other'."
    return FAMILIES.get(dataset, 'other')


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images with their true labels. Image files are not opened.

    Args:
        name: Name in tables and messages.
        images: N paths, or an (N, H, W, 3) uint8 array.
        labels: (N, C) int8: 1 present, 0 unknown, -1 absent. A 0 is unknown even if there is no -1.
        class_names: C different names.
        split: (N,) array of 'train', 'val', 'test'.
        drawn: Parts of the split that were drawn at random (by file name), because the table does
            not assign them.
        groups: N group names, '' for photos without one; None if the table has no groups. A drawn
            split never separates photos of one group.

    Raises:
        SpmlError: If shapes, types or values do not match.
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
        "Sorted row numbers of 'train', 'val', 'test' or 'all'."
        require_one_of(part, (*PARTS, 'all'), 'part of a data set')
        return np.arange(len(self)) if part == 'all' else np.flatnonzero(self.split == part)

    @property
    def images_in_memory(self) -> bool:
        "Whether `images` is an array of pixels, not a list of paths."
        return isinstance(self.images, np.ndarray)

    @cached_property
    def image_names(self) -> list[str]:
        "N paths below the folder that all images share; row numbers for images in memory."
        if self.images_in_memory or not len(self):
            return [str(row) for row in range(len(self))]
        shared = os.path.commonpath({os.path.dirname(path) for path in self.images})
        return [os.path.relpath(path, shared).replace(os.sep, '/') for path in self.images]

    @cached_property
    def fingerprint(self) -> str:
        """Hash (16 hex digits) of images (names and file sizes, or pixels), labels, class names
        and split.

        Raises:
            SpmlError: If a file is missing.
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
        "N hashes of the files' current content (`hash_photos`), or of the pixels in memory."
        if self.images_in_memory:
            return [hashlib.sha256(pixels.tobytes()).hexdigest()[:16] for pixels in self.images]
        return hash_photos(self.images)

    @property
    def content(self) -> str:
        "Hash (16 hex digits) of the bytes of all images in order; names and labels do not matter."
        return hashlib.sha256(json.dumps(self.photo_hashes).encode()).hexdigest()[:16]

    def photos_of(self, part: str) -> str:
        "Hash (12 hex digits) of the image names of a part; order and labels do not matter."
        names = sorted(self.image_names[row] for row in self.rows(part))
        return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:12]


def choose_default_part(data: Dataset, trained_on: bool) -> str:
    """Choose the part that a model is scored on by default.

    Args:
        trained_on: Whether the model was trained on this data set.

    Returns:
        'test' if the model has seen the other parts, or if the test part was assigned and not
        drawn; else 'all'.
    """
    return 'test' if trained_on or 'test' not in data.drawn else 'all'


def hash_photos(files: Iterable[Path]) -> list[str]:
    "Hash each file's content (16 hex digits); '' for a file that cannot be read."
    files = list(files)
    # in chunks: most hashes are cached, and then a task costs more than its work
    chunks = [files[start : start + 512] for start in range(0, len(files), 512)]
    with ThreadPoolExecutor(settings.count_cores()) as pool:
        hashed = pool.map(lambda chunk: [_hash_photo(file) for file in chunk], chunks)
        return [digest for chunk in hashed for digest in chunk]


def find_copies(files: list[Path], others: list[Path]) -> np.ndarray:
    """Find the files that have a byte-for-byte copy among `others`, under any name.

    Returns:
        (N,) bool, one for each of `files`; False for a file that cannot be read.
    """
    sizes = {*_sizes(files)}
    same_size = [file for file, size in zip(others, _sizes(others), strict=True) if size in sizes]
    hashes = {*hash_photos(same_size)} - {''}
    return np.array([digest in hashes for digest in hash_photos(files)], bool)


def _sizes(files):
    "Size of each file in bytes, -1 if it is missing."
    return [os.path.getsize(file) if os.path.isfile(file) else -1 for file in files]


def _hash_photo(file):
    try:
        stat = os.stat(file)
        return _hash_file(file, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    except OSError:  # opening the photo will explain what is wrong
        return ''


@cache
def _hash_file(file, *state):
    "Hash a file. `state` (size, mtime, ctime) is only part of the cache's key."
    with open(file, 'rb') as photo:
        return hashlib.file_digest(photo, 'sha256').hexdigest()[:16]


def exclude_option(names: list[str]) -> str:
    "Write the option that excludes classes, quoted for a shell: -p exclude 'stop sign, bear'."
    text = ', '.join(names)
    if text.startswith('[') or any(',' in name for name in names):
        text = json.dumps(names, ensure_ascii=False)  # a YAML list
    return f'-p exclude {shlex.quote(text)}'


def join_items(items: Iterable, limit: int = 10) -> str:
    "Join items for a message, at most `limit` of them: 'a, b, … (12 in all)'."
    texts = [escape_for_terminal(str(item)).replace('\n', r'\n') for item in items]
    rest = f', … ({len(texts):,} in all)' if len(texts) > limit else ''
    return ', '.join(texts[:limit]) + rest
