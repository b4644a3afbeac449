"""A cache of decoded and resized photos: epochs only copy pixels. And a reader without cache."""

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
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from ..base import files, settings
from ..base.devices import copies_asynchronously
from ..base.errors import SpmlError, require_one_of, warn
from ..base.progress import progress_meter
from .dataset import Dataset, join_items
from .decoding import (
    describe_animated,
    explain_unreadable,
    open_photo,
    pixel_budget,
    to_upright_rgb,
)

CACHE_VERSION = 2  # raise it when decoding the same files would give other pixels
LONGEST_SIDE = 640  # pixels of the longer side of a photo that keeps its proportions
_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DECODE_ALWAYS = (
    'To train without that cache: SPML_NB_DECODE=always, or `decode = always` in settings.ini, '
    'decodes photos for every batch, with the same results.'
)
_BILINEAR = Image.Resampling.BILINEAR  # with antialiasing, as Pillow does it


def squash_image(image: Image.Image, size: int) -> np.ndarray:
    """Resize an opened image of any mode to a square, whatever its proportions.

    Returns:
        (size, size, 3) uint8, RGB, bilinear with antialiasing.

    Raises:
        SpmlError: As `to_upright_rgb`.

    Source:
        Cole et al. 2021 (448 × 448).
    """
    return np.asarray(to_upright_rgb(image).resize((size, size), _BILINEAR))


def reduce_image(image: Image.Image, longest: int) -> np.ndarray:
    """Reduce an opened image of any mode in its proportions.

    Args:
        longest: Maximum of its longer side in pixels.

    Returns:
        (h, w, 3) uint8, RGB.

    Raises:
        SpmlError: As `to_upright_rgb`.
    """
    image = to_upright_rgb(image)
    size = _reduced_size(image.size, longest)
    return np.asarray(image if size == image.size else image.resize(size, _BILINEAR))


def _reduced_size(size, longest):
    scale = min(1, longest / max(size))
    return tuple(max(1, round(scale * n)) for n in size)


def cache_file(dataset: Dataset, size: int) -> Path:
    "The .npy file in the cache for the decoded images of a data set; it may not exist yet."
    key = [CACHE_VERSION, size, *dataset.photo_hashes]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    return _cache_folder() / f'{_cache_name(dataset.name)}-{size}-{digest}.npy'


def _cache_folder():
    return settings.get_folder('cache') / 'images'


def _cache_name(dataset_name):
    return re.sub(r'[^\w.-]', '_', dataset_name)[:60]


def has_cache(dataset_name: str, size: int, whole: bool = False) -> bool:
    "Whether photos of a data set are cached at a size; they may be of an older version of it."
    pattern = f'{_cache_name(dataset_name)}-{size}-*.{"whole" if whole else "npy"}'
    return any(_cache_folder().glob(pattern))


# ---- a cache of decoded photos


def _open_cache(dataset, file, size, *, needed, open_file, write):
    """Open a file of decoded photos. If it is missing or damaged, one process builds it while
    others wait.

    Args:
        needed: Approximate size of the file in bytes.
        open_file: Function (path) → content, or None if the file is missing or damaged.
        write: Function (opened file, dataset, size).
    """
    try:
        store = open_file(file)
        if store is None:
            file.parent.mkdir(parents=True, exist_ok=True)
            files.remove_leftovers(file.parent)
            with files.hold_lock(file):
                if open_file(file) is None:
                    _build_cache(dataset, file, size, write)
                store = open_file(file)
        if store is None:
            raise FileNotFoundError(errno.ENOENT, 'it was removed just after it was built')
        return store
    except OSError as error:
        why = f'it cannot be used ({error.strerror or error}). Name'
        if error.errno in _DISK_FULL_ERRORS:
            why = 'there is not enough space. Make room there, or name'
        raise SpmlError(
            f'the decoded images of {dataset.name} need {needed:,} bytes '
            f'({needed / 2**30:.2f} GiB) in {file.parent}, and {why} another folder: the line '
            '`cache` of settings.ini, or the environment variable SPML_NB_CACHE. '
            f'{DECODE_ALWAYS}'
        ) from error


def _build_cache(dataset, file, size, write):
    start = time.perf_counter()
    with files.replace_file(file) as temporary, open(temporary, 'wb') as out:
        write(out, dataset, size)
    seconds = time.perf_counter() - start
    n = len(dataset)
    print(
        f'{dataset.name}: {n:,} images decoded to {size} px in {seconds:.1f} s '
        f'({n / seconds:,.0f} per second), {os.path.getsize(file) / 2**20:,.0f} MiB',
        flush=True,
    )


def _decoded(dataset, size, shape):
    """Decode all images in order, in threads.

    Args:
        shape: `squash_image` or `reduce_image`.

    Raises:
        SpmlError: After the last image, if some cannot be used; it names them all.
    """
    unusable = []
    if animated := describe_animated(dataset.images, dataset.image_names):
        warn(f'{dataset.name}: {animated}')
    photos = iter(dataset.images)
    meter = progress_meter(f'{dataset.name}, {size} px', len(dataset), unit='images')
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(settings.count_cores()) as pool,
        meter as bar,
    ):
        # Pillow warns from 90 megapixels; more than 179 are an error
        warnings.simplefilter('ignore', Image.DecompressionBombWarning)
        warnings.simplefilter('ignore', UserWarning)

        def submit(count):
            return [pool.submit(_decode, photo, size, shape) for photo in islice(photos, count)]

        # bounded, so that decoded photos do not pile up before a slow disk
        waiting = deque(submit(8 * settings.count_cores()))
        for name in dataset.image_names:
            pixels = waiting.popleft().result()
            waiting += submit(1)
            if isinstance(pixels, str):
                unusable.append(f'{name} ({pixels})')
            else:
                yield pixels
            bar.update()
    if unusable:
        raise SpmlError(
            f'{len(unusable):,} of {len(dataset):,} images of {dataset.name} cannot be used: '
            f'{join_items(unusable, 20)}. Repair or replace them, or remove their rows from the '
            'table.'
        )


def _decode(file, size, shape):
    "The pixels of a photo as `shape` makes them, or why it cannot be used (str)."
    try:
        with open_photo(file) as image, pixel_budget.hold(image):
            return shape(image, size)
    except Exception as error:  # decoders raise many types for damaged files
        return explain_unreadable(error, file)


# ---- photos without a cache


class PhotoReader:
    """Decodes photos for every batch, in threads and ahead of time; the pixels are the cache's.

    Args:
        dataset: Of image files.
        size: Side in pixels; with `whole`, maximum of the longer side.
        whole: Keep the proportions of a photo instead of making it a square.
    """

    def __init__(self, dataset: Dataset, size: int, whole: bool = False):
        self.dataset = dataset
        self.size = size
        self._transform = reduce_image if whole else squash_image
        self.shape = (len(dataset), size, size, 3)  # of squares
        self.pool = ThreadPoolExecutor(settings.count_cores())
        self.ahead: dict[int, Future] = {}
        self._coming: deque[int] = deque()
        self._latest_batch = [], []
        if animated := describe_animated(dataset.images, dataset.image_names):
            warn(f'{dataset.name}: {animated}')

    def __len__(self):
        return len(self.dataset)

    @cached_property
    def content(self) -> str:
        "The hash of the photos and the size, as in the name of their cache."
        return cache_file(self.dataset, self.size).stem.rpartition('-')[2]

    def announce(self, rows: Iterable[int]):
        "Announce the rows of the coming calls of `read`, so that they are decoded ahead."
        for future in self.ahead.values():
            future.cancel()
        self.ahead = {}
        self._coming = deque(map(int, rows))

    def read(self, rows: Iterable[int]) -> list[np.ndarray]:
        """Decode photos, and start to decode as many announced ones.

        Args:
            rows: (B,) row numbers.

        Returns:
            B arrays (h, w, 3) uint8, RGB.

        Raises:
            SpmlError: For the first photo that cannot be used.
        """
        rows = list(map(int, rows))
        if rows != self._latest_batch[0]:  # each view of a method reads the same batch
            self._read_ahead(len(rows))
            futures = [self.ahead.pop(row, None) or self._submit(row) for row in rows]
            self._read_ahead(len(rows))
            photos = [self._result(row, f) for row, f in zip(rows, futures, strict=True)]
            self._latest_batch = rows, photos
        return self._latest_batch[1]

    def _submit(self, row):
        return self.pool.submit(_decode, self.dataset.images[row], self.size, self._transform)

    def _read_ahead(self, count):
        while self._coming and len(self.ahead) < count:
            row = self._coming.popleft()
            if row not in self.ahead:
                self.ahead[row] = self._submit(row)

    def _result(self, row, future):
        pixels = future.result()
        if isinstance(pixels, str):
            raise SpmlError(
                f'an image of {self.dataset.name} cannot be used: '
                f'{self.dataset.image_names[row]} ({pixels}). Repair or replace it, or remove its '
                'row from the table.'
            )
        return pixels


def caches_photos() -> bool:
    """Whether the setting `decode` is 'once', so that decoded photos are cached.

    Raises:
        SpmlError: If it is neither 'once' nor 'always'.
    """
    decode = settings.read_settings()['decode']
    remedy = 'Set `decode` in settings.ini or SPML_NB_DECODE.'
    return require_one_of(decode, settings.DECODE, 'setting `decode`', remedy) == 'once'


# ---- photos as squares


def open_images(dataset: Dataset, size: int) -> np.ndarray:
    """Open all images of a data set as squares, decoded and cached at the first call.

    Several processes may call this at the same time: one builds the cache, the others wait. A
    cache that is truncated or has a damaged header is built again; its pixels are not verified.

    Args:
        dataset: Of image files, or in memory.
        size: Side in pixels.

    Returns:
        (N, size, size, 3) uint8, RGB, memory-mapped read-only. Images that are in memory at that
        size are returned unchanged.

    Raises:
        SpmlError: If images cannot be used (it names them all), the cache cannot be written, or
            `size` is invalid.
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
    return _open_cache(
        dataset,
        cache_file(dataset, size),
        size,
        needed=math.prod(shape),
        open_file=lambda file: _opened(file, shape),
        write=_write_squares,
    )


def _opened(file, shape):
    "The memory-mapped array, or None if the file is missing or damaged."
    try:
        store = np.load(file, mmap_mode='r')
    except FileNotFoundError:
        return None
    except OSError:
        raise
    except Exception:  # a damaged header raises many types
        return None
    if not isinstance(store, np.memmap) or store.shape != shape or store.dtype != np.uint8:
        return None
    return store if store.offset + store.nbytes == os.path.getsize(file) else None


def _write_squares(out, dataset, size):
    shape = len(dataset), size, size, 3
    if shutil.disk_usage(os.path.dirname(out.name)).free < math.prod(shape):
        raise OSError(errno.ENOSPC, 'not enough free space')
    header = {'descr': '|u1', 'fortran_order': False, 'shape': shape}
    np.lib.format.write_array_header_1_0(out, header)
    with closing(_decoded(dataset, size, squash_image)) as images:
        for pixels in images:
            out.write(pixels)


def copy_pixels(store: np.ndarray, index, device: torch.device | str = 'cpu') -> torch.Tensor:
    """Copy some images to a device; to a CUDA device asynchronously.

    Args:
        store: (N, S, S, 3) uint8 from `open_images`, or a `PhotoReader` of squares.
        index: (B,) row numbers: array, list or tensor (best on the CPU).

    Returns:
        (B, 3, S, S) uint8 in channels_last strides.

    Raises:
        SpmlError: For rows outside the store.
    """
    rows = _check_rows(index, len(store))
    device = torch.device(device)
    shape = len(rows), *store.shape[1:]
    pixels = torch.empty(shape, dtype=torch.uint8, pin_memory=copies_asynchronously(device))
    if isinstance(store, PhotoReader):
        for target, photo in zip(pixels.numpy(), store.read(rows), strict=True):
            target[:] = photo
    else:
        # the rows are valid; with mode='raise' numpy would buffer the output
        np.take(store, rows, axis=0, out=pixels.numpy(), mode='clip')
    return pixels.permute(0, 3, 1, 2).to(device, non_blocking=copies_asynchronously(device))


def _check_rows(rows, n):
    rows = torch.as_tensor(rows).cpu().numpy()
    if rows.size and not 0 <= rows.min() <= rows.max() < n:
        raise SpmlError(f'rows {rows.min()} … {rows.max()} are asked for; allowed: 0 … {n - 1}.')
    return rows


# ---- photos in their proportions


class Photos:
    """Photos of different sizes in one flat array; `photos[row]` is (h, w, 3) uint8, RGB.

    Args:
        pixels: Flat uint8 array, memory-mapped or not.
        sizes: (N, 2) int, height and width.
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


def open_photos(dataset: Dataset, longest: int = LONGEST_SIDE) -> Photos:
    """Open all images of a data set in their proportions, decoded and cached as in `open_images`.

    Args:
        dataset: Of image files, or in memory.
        longest: Maximum of the longer side in pixels; larger photos are reduced.

    Raises:
        SpmlError: As `open_images`.
    """
    n = len(dataset)
    if dataset.images_in_memory:
        _, height, width, _ = dataset.images.shape
        return Photos(dataset.images.reshape(-1), np.tile([height, width], (n, 1)))
    file = cache_file(dataset, longest).with_suffix('.whole')
    return _open_cache(
        dataset,
        file,
        longest,
        needed=n * longest * longest * 9 // 4,  # if all are 4:3
        open_file=lambda file: _opened_whole(file, n),
        write=_write_photos,
    )


def _opened_whole(file, n):
    "The photos, or None if the file is missing or damaged. Its last 8·n bytes are the sizes."
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
    "Bytes of all decoded photos, from the headers of their files."
    count = 0
    for file in dataset.images:
        with suppress(Exception), open_photo(file) as image:  # decoding will name damaged files
            width, height = _reduced_size(image.size, longest)
            count += 3 * width * height
    return count


def _write_photos(out, dataset, longest):
    if shutil.disk_usage(os.path.dirname(out.name)).free < _count_bytes(dataset, longest):
        raise OSError(errno.ENOSPC, 'not enough free space')
    sizes = []
    with closing(_decoded(dataset, longest, reduce_image)) as images:
        for pixels in images:
            out.write(pixels)
            sizes.append(pixels.shape[:2])
    out.write(np.array(sizes, '<i4').tobytes())


def whole_photos(store: Photos | PhotoReader, rows) -> tuple[Photos, np.ndarray]:
    """Get photos in their proportions from a cache or a reader.

    Args:
        rows: (B,) row numbers.

    Returns:
        Photos that include these, and their row numbers in it.

    Raises:
        SpmlError: For rows outside the store.
    """
    if isinstance(store, Photos):
        return store, rows
    photos = store.read(_check_rows(rows, len(store)))
    pixels = np.concatenate([photo.reshape(-1) for photo in photos])
    return Photos(pixels, np.array([photo.shape[:2] for photo in photos])), np.arange(len(photos))


def random_crops(photos: Photos, rows, size: int) -> torch.Tensor:
    """Crop a random part of each photo and resize it to a square; uses torch's global generator.

    Args:
        photos: As from `open_photos`.
        rows: (B,) row numbers.
        size: Side in pixels.

    Returns:
        (B, 3, size, size) uint8 on the CPU in channels_last strides.

    Raises:
        SpmlError: For rows outside.

    Source:
        torchvision's RandomResizedCrop (8 to 100 % of the area, sides 3:4 to 4:3), as in the
        authors' code of Two-way.
    """
    from torchvision.transforms import RandomResizedCrop  # slow to import

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
    """Resize each photo's shorter side to 8/7 · `size` (256 for 224), and crop the centre.

    Args:
        photos: As from `open_photos`.
        rows: (B,) row numbers.
        size: Side in pixels.

    Returns:
        (B, 3, size, size) uint8 on the CPU in channels_last strides.

    Raises:
        SpmlError: For rows outside.

    Source:
        torchvision's Resize(256) and CenterCrop(224), as in the authors' code of Two-way.
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
