"""Every photo is decoded once, resized once and kept as raw pixels; epochs then only copy bytes."""

import errno
import hashlib
import json
import math
import os
import re
import shutil
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from ..base import files, settings
from ..base.devices import is_queued
from ..base.errors import SpmlError, one_of, warn
from ..base.progress import progress_meter
from .dataset import Dataset, join_items
from .decoding import budget, describe_animated, explain_unreadable, open_photo, upright

CACHE_VERSION = 2  # of the decoding: raise it when the same files would give other pixels
LONGEST_SIDE = 640  # pixels of the longer side of a whole photo
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DECODE_ALWAYS = (
    'To train without that cache: SPML_NB_DECODE=always, or `decode = always` in settings.ini, '
    'decodes photos for every batch, with the same results.'
)
_BILINEAR = Image.Resampling.BILINEAR  # with antialiasing, as Pillow does it


def squash_image(image: Image.Image, size: int) -> np.ndarray:
    """Turn an opened image of any mode into a square of pixels.

    Returns:
        (size, size, 3) uint8, RGB, bilinear with antialiasing.

    Raises:
        SpmlError: For 32-bit grey. Damaged files raise what Pillow raises.

    Source:
        The papers' 448 × 448 squash (Cole et al. 2021).
    """
    return np.asarray(upright(image).resize((size, size), _BILINEAR))


def reduce_image(image: Image.Image, longest: int) -> np.ndarray:
    """Turn an opened image of any mode into pixels, whole.

    Args:
        longest: Pixels that its longer side may have. Larger images are reduced, in proportion.

    Returns:
        (h, w, 3) uint8, RGB.

    Raises:
        SpmlError: As `upright`.
    """
    image = upright(image)
    size = _reduced_size(image.size, longest)
    return np.asarray(image if size == image.size else image.resize(size, _BILINEAR))


def _reduced_size(size, longest):
    scale = min(1, longest / max(size))
    return tuple(max(1, round(scale * n)) for n in size)


def cache_file(dataset: Dataset, size: int) -> Path:
    "Where the decoded images of a data set in files are kept: an .npy file, which need not exist."
    key = [CACHE_VERSION, size, *dataset.photo_hashes]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    return _cache_folder() / f'{_cache_name(dataset.name)}-{size}-{digest}.npy'


def _cache_folder():
    return settings.path('cache') / 'images'


def _cache_name(dataset_name):
    return re.sub(r'[^\w.-]', '_', dataset_name)[:60]


def has_cache(dataset_name: str, size: int, whole: bool = False) -> bool:
    """Whether decoded photos of a data set are kept at a size, perhaps of an earlier state of its
    files.
    """
    pattern = f'{_cache_name(dataset_name)}-{size}-*.{"whole" if whole else "npy"}'
    return any(_cache_folder().glob(pattern))


# ---- a cache of decoded photos


@dataclass
class _Cache:
    """A file of decoded photos, which is built where it is missing or damaged.

    Args:
        dataset: In files.
        file: Where they are kept.
        size: Pixels of a side.
        needed: How many bytes it may take.
        open: From the file to its content; None where it is missing or damaged.
        write: From an open file, the data set, the size and whether to show progress.
        progress: Show a bar (on a terminal) and one line when done.
    """

    dataset: Dataset
    file: Path
    size: int
    needed: int
    open: Callable
    write: Callable
    progress: bool

    def read(self):
        "What `open` gives, built first if need be, by one process while others wait."
        try:
            store = self.open(self.file)
            if store is not None:
                return store
            folder = self.file.parent
            folder.mkdir(parents=True, exist_ok=True)
            files.remove_leftovers(folder)  # of killed builders
            with files.hold_lock(self.file, files.print_line if self.progress else None):
                if self.open(self.file) is None:
                    self._build()
                store = self.open(self.file)
            if store is None:
                raise FileNotFoundError(errno.ENOENT, 'it was removed as soon as it was built')
            return store
        except OSError as error:
            raise self._refused(error) from error

    def _build(self):
        start = time.perf_counter()
        with files.replace_file(self.file) as temporary, open(temporary, 'wb') as out:
            self.write(out, self.dataset, self.size, self.progress)
        seconds = time.perf_counter() - start
        if self.progress:
            n = len(self.dataset)
            space = os.path.getsize(self.file) / 2**20
            print(
                f'{self.dataset.name}: {n:,} images decoded to {self.size} px in {seconds:.1f} s '
                f'({n / seconds:,.0f} per second), {space:,.0f} MiB',
                flush=True,
            )

    def _refused(self, error):
        why = f'it cannot be used ({error.strerror or error}). Name'
        if error.errno in DISK_FULL_ERRORS:
            why = 'there is not enough space. Make room there, or name'
        return SpmlError(
            f'the decoded images of {self.dataset.name} need {self.needed:,} bytes '
            f'({self.needed / 2**30:.2f} GiB) in {self.file.parent}, and {why} another folder: the '
            'line `cache` of settings.ini, or the environment variable SPML_NB_CACHE. '
            f'{DECODE_ALWAYS}'
        )


def _decoded(dataset, size, progress, shape):
    "Pixels of each image in order; after the last one, one error with all that cannot be used."
    bad = []
    if animated := describe_animated(dataset.images, dataset.image_names):
        warn(f'{dataset.name}: {animated}')
    photos = iter(dataset.images)
    counted = progress_meter(
        f'{dataset.name}, {size} px', len(dataset), unit='images', show=progress
    )
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(settings.count_cores()) as pool,
        counted as bar,
    ):
        # A photo of 90 to 179 megapixels is legal here.
        warnings.simplefilter('ignore', Image.DecompressionBombWarning)
        warnings.simplefilter('ignore', UserWarning)

        def submit(count):
            return [pool.submit(_decode, photo, size, shape) for photo in islice(photos, count)]

        # bounded: a slow disk does not let pixels pile up
        waiting = deque(submit(8 * settings.count_cores()))
        for name in dataset.image_names:
            pixels = waiting.popleft().result()
            waiting += submit(1)
            if isinstance(pixels, str):
                bad.append(f'{name} ({pixels})')
            else:
                yield pixels
            bar.update()
    if bad:
        raise SpmlError(
            f'{len(bad):,} of {len(dataset):,} images of {dataset.name} cannot be used: '
            f'{join_items(bad, 20)}. Repair or replace them, or remove their rows from the table.'
        )


def _decode(file, size, shape):
    "The pixels that `shape` makes of a photo, or a str saying why there are none."
    try:
        with open_photo(file) as image, budget.hold(image):
            return shape(image, size)
    except Exception as error:  # decoders raise a dozen different types for damaged files
        return explain_unreadable(error, file)


# ---- photos that are decoded when they are asked for


class PhotoReader:
    """Photos that are decoded for every batch, on all cores and ahead of time, with the pixels that
    a cache of them would hold.

    Args:
        dataset: In files.
        size: Pixels of a side, of whole photos of the longer one.
        whole: Photos in their own proportions, not squares.
    """

    def __init__(self, dataset: Dataset, size: int, whole: bool = False):
        self.dataset = dataset
        self.size = size
        self.cut = reduce_image if whole else squash_image
        self.shape = (len(dataset), size, size, 3)  # of squares
        self.pool = ThreadPoolExecutor(settings.count_cores())
        self.ahead: dict[int, Future] = {}
        self.coming: deque[int] = deque()
        self.latest = [], []
        if animated := describe_animated(dataset.images, dataset.image_names):
            warn(f'{dataset.name}: {animated}')

    def __len__(self):
        return len(self.dataset)

    @cached_property
    def content(self) -> str:
        "What tells these pixels from others, as the name of a cache does."
        return cache_file(self.dataset, self.size).stem.rpartition('-')[2]

    def announce(self, rows: Iterable[int]):
        "Say which rows will be asked for from now on, in this order."
        for future in self.ahead.values():
            future.cancel()
        self.ahead = {}
        self.coming = deque(map(int, rows))

    def read(self, rows: Iterable[int]) -> list[np.ndarray]:
        """Decode photos, and begin with those that are announced behind them.

        Args:
            rows: (B,) row numbers.

        Returns:
            B arrays (h, w, 3) uint8, RGB.

        Raises:
            SpmlError: For the first photo that cannot be used.
        """
        rows = list(map(int, rows))
        if rows != self.latest[0]:  # the views of a method share a batch
            self._read_ahead(len(rows))
            futures = [self.ahead.pop(row, None) or self._submit(row) for row in rows]
            self._read_ahead(len(rows))
            photos = [self._pixels(row, f.result()) for row, f in zip(rows, futures, strict=True)]
            self.latest = rows, photos
        return self.latest[1]

    def _submit(self, row):
        return self.pool.submit(_decode, self.dataset.images[row], self.size, self.cut)

    def _read_ahead(self, count):
        while self.coming and len(self.ahead) < count:
            row = self.coming.popleft()
            if row not in self.ahead:
                self.ahead[row] = self._submit(row)

    def _pixels(self, row, decoded):
        if isinstance(decoded, str):
            raise SpmlError(
                f'an image of {self.dataset.name} cannot be used: '
                f'{self.dataset.image_names[row]} ({decoded}). Repair or replace it, or remove its '
                'row from the table.'
            )
        return decoded


def keeps_decoded() -> bool:
    """Whether decoded photos are kept in the cache, as the setting `decode` says.

    Raises:
        SpmlError: For another word.
    """
    word = settings.read_settings()['decode']
    remedy = 'Set `decode` in settings.ini or SPML_NB_DECODE.'
    return one_of(word, settings.DECODE, 'setting `decode`', remedy) == 'once'


# ---- photos as squares


def open_images(dataset: Dataset, size: int, progress: bool = True) -> np.ndarray:
    """Open all images of a data set as squares of pixels, decoded at the first call and
    memory-mapped from then on.

    Several processes may call this at once: one builds, the others wait. Nothing is left
    half-written. A file that is cut off or has a damaged header is built again; the pixels in it
    are taken as they are.

    Args:
        dataset: In files or in memory.
        size: Side in pixels.
        progress: Show a bar (on a terminal) and one line when done.

    Returns:
        (N, size, size, 3) uint8, RGB, read-only. Images that are in memory at that size are
        returned as they are.

    Raises:
        SpmlError: For unusable images, all named at once; if the cache's disk is full or cannot be
            written; for a wrong size.

    Source:
        The squash is that of Cole et al. 2021.
    """
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= 8192:
        raise SpmlError(
            f'size={size!r}; allowed: a whole number of pixels from 1 to 8192, such as 224 or 448.'
        )
    if dataset.images_in_memory:
        if dataset.images.shape[1:3] == (size, size):
            return dataset.images
        return np.stack([squash_image(Image.fromarray(pixels), size) for pixels in dataset.images])
    shape = len(dataset), size, size, 3
    file = cache_file(dataset, size)
    return _Cache(
        dataset,
        file,
        size,
        needed=math.prod(shape),
        open=lambda file: _opened(file, shape),
        write=_write_squares,
        progress=progress,
    ).read()


def _opened(file, shape):
    "The memory map, or None where there is no whole file."
    try:
        store = np.load(file, mmap_mode='r')
    except FileNotFoundError:
        return None
    except OSError:
        raise
    except Exception:  # a damaged header raises one of a dozen types
        return None
    if not isinstance(store, np.memmap) or store.shape != shape or store.dtype != np.uint8:
        return None
    return store if store.offset + store.nbytes == os.path.getsize(file) else None


def _write_squares(out, dataset, size, progress):
    shape = len(dataset), size, size, 3
    if shutil.disk_usage(os.path.dirname(out.name)).free < math.prod(shape):
        raise OSError(errno.ENOSPC, 'not enough free space')
    header = {'descr': '|u1', 'fortran_order': False, 'shape': shape}
    np.lib.format.write_array_header_1_0(out, header)
    with closing(_decoded(dataset, size, progress, squash_image)) as images:
        for pixels in images:
            out.write(pixels)


def load_pixels(store: np.ndarray, index, device: torch.device | str = 'cpu') -> torch.Tensor:
    """Put some rows of `open_images`' array on a device.

    Args:
        store: (N, S, S, 3) uint8, or a `PhotoReader` of squares.
        index: (B,) row numbers: array, list or tensor (best on the CPU).
        device: Where to.

    Returns:
        (B, 3, S, S) uint8 in channels_last strides. The copy to a CUDA device does not block.

    Raises:
        SpmlError: For rows outside the store.
    """
    rows = _check_rows(index, len(store))
    device = torch.device(device)
    shape = len(rows), *store.shape[1:]
    pixels = torch.empty(shape, dtype=torch.uint8, pin_memory=is_queued(device))
    if isinstance(store, PhotoReader):
        for place, photo in zip(pixels.numpy(), store.read(rows), strict=True):
            place[:] = photo
    else:
        # the rows are checked; any other mode would copy twice
        np.take(store, rows, axis=0, out=pixels.numpy(), mode='clip')
    return pixels.permute(0, 3, 1, 2).to(device, non_blocking=is_queued(device))


def _check_rows(rows, n):
    rows = torch.as_tensor(rows).cpu().numpy()
    if rows.size and not 0 <= rows.min() <= rows.max() < n:
        raise SpmlError(f'rows {rows.min()} … {rows.max()} are asked for; allowed: 0 … {n - 1}.')
    return rows


# ---- whole photos


class Photos:
    """Whole photos one behind the other. Index with a row number: (h, w, 3) uint8, RGB.

    Args:
        pixels: Flat uint8 array, memory-mapped or not.
        sizes: (N, 2) int, height and width of each.
    """

    def __init__(self, pixels: np.ndarray, sizes: np.ndarray):
        self.pixels = pixels
        self.sizes = np.asarray(sizes, np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes.prod(1) * 3)])

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, row) -> np.ndarray:
        h, w = self.sizes[row]
        return self.pixels[self.starts[row] : self.starts[row + 1]].reshape(h, w, 3)


def open_photos(dataset: Dataset, longest: int = LONGEST_SIDE, progress: bool = True) -> Photos:
    """Open all images of a data set whole, decoded at the first call and memory-mapped from then
    on.

    Several processes may call this at once, and nothing is left half-written, as in `open_images`.

    Args:
        dataset: In files or in memory.
        longest: Pixels that a longer side may have; larger photos are reduced.
        progress: As in `open_images`.

    Raises:
        SpmlError: As `open_images`.
    """
    n = len(dataset)
    if dataset.images_in_memory:
        _, height, width, _ = dataset.images.shape
        return Photos(dataset.images.reshape(-1), np.tile([height, width], (n, 1)))
    file = cache_file(dataset, longest).with_suffix('.whole')
    return _Cache(
        dataset,
        file,
        longest,
        needed=n * longest * longest * 9 // 4,  # of sides 4:3
        open=lambda file: _opened_whole(file, n),
        write=_write_photos,
        progress=progress,
    ).read()


def _opened_whole(file, n):
    "The photos, or None where there is no whole file. Its last 8·n bytes are the sizes."
    try:
        pixels = np.memmap(file, np.uint8, 'r')
    except (FileNotFoundError, ValueError):
        return None
    end = len(pixels) - 8 * n
    if end < 0:
        return None
    photos = Photos(pixels, np.frombuffer(pixels[end:].tobytes(), '<i4').reshape(n, 2))
    return photos if photos.starts[-1] == end and (photos.sizes > 0).all() else None


def _count_bytes(dataset, longest):
    "Of all photos whole, by their headers; a file that is no photo is refused when it is decoded."
    count = 0
    for file in dataset.images:
        with suppress(Exception), open_photo(file) as image:
            width, height = _reduced_size(image.size, longest)
            count += 3 * width * height
    return count


def _write_photos(out, dataset, longest, progress):
    if shutil.disk_usage(os.path.dirname(out.name)).free < _count_bytes(dataset, longest):
        raise OSError(errno.ENOSPC, 'not enough free space')
    sizes = []
    with closing(_decoded(dataset, longest, progress, reduce_image)) as images:
        for pixels in images:
            out.write(pixels)
            sizes.append(pixels.shape[:2])
    out.write(np.array(sizes, '<i4').tobytes())


def whole_photos(store: Photos | PhotoReader, rows) -> tuple[Photos, np.ndarray]:
    """Some photos whole, and their rows in what is given: of a reader, those photos alone.

    Args:
        store: as from `open_photos`, or a `PhotoReader`.
        rows: (B,) row numbers.

    Raises:
        SpmlError: For rows outside.
    """
    if isinstance(store, Photos):
        return store, rows
    photos = store.read(_check_rows(rows, len(store)))
    pixels = np.concatenate([photo.reshape(-1) for photo in photos])
    return Photos(pixels, np.array([photo.shape[:2] for photo in photos])), np.arange(len(photos))


def random_crops(photos: Photos, rows, size: int) -> torch.Tensor:
    """Cut a random part of each photo, resized to a square. The parts are drawn from torch's global
    generator.

    Args:
        photos: As from `open_photos`.
        rows: (B,) row numbers.
        size: Side in pixels.

    Returns:
        (B, 3, size, size) uint8 on the CPU in channels_last strides.

    Raises:
        SpmlError: For rows outside.

    Source:
        torchvision's RandomResizedCrop (8 to 100 % of the area, sides 3:4 to 4:3); the authors'
        code of Two-way.
    """
    from torchvision.transforms import RandomResizedCrop  # slow to import, for a dry run say

    rows = _check_rows(rows, len(photos))
    boxes = []
    for height, width in photos.sizes[rows].tolist():
        image = torch.empty(1).expand(1, height, width)
        boxes.append(RandomResizedCrop.get_params(image, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3)))

    def cut(row, box):
        top, left, height, width = box
        pixels = np.ascontiguousarray(photos[row][top : top + height, left : left + width])
        return Image.fromarray(pixels).resize((size, size), _BILINEAR)

    return _cut_all(cut, rows, boxes, size=size)


def centre_crops(photos: Photos, rows, size: int) -> torch.Tensor:
    """Cut the centre of each photo, whose shorter side is first resized to 8/7 of the square's.

    Args:
        photos: As from `open_photos`.
        rows: (B,) row numbers.
        size: Side in pixels, 224 for a photo resized to 256.

    Returns:
        (B, 3, size, size) uint8 on the CPU in channels_last strides.

    Raises:
        SpmlError: For rows outside.

    Source:
        torchvision's Resize(256) and CenterCrop(224); the authors' code of Two-way.
    """
    from torchvision.transforms import CenterCrop, Compose, Resize

    view = Compose([Resize(size * 8 // 7), CenterCrop(size)])
    rows = _check_rows(rows, len(photos))
    return _cut_all(lambda row: view(Image.fromarray(photos[row])), rows, size=size)


def _cut_all(cut, *arguments, size):
    crops = np.empty((len(arguments[0]), size, size, 3), np.uint8)
    with ThreadPoolExecutor(settings.count_cores()) as pool:
        for crop, image in zip(crops, pool.map(cut, *arguments), strict=True):
            crop[:] = np.asarray(image)
    return torch.from_numpy(crops).permute(0, 3, 1, 2)
