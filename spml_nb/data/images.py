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
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, RandomResizedCrop, Resize

from ..base import files, settings
from ..base.errors import SpmlError
from ..base.progress import meter
from . import folder as folders
from .dataset import Dataset, listed
from .folder import open_photo, reason, upright


def squash(image: Image.Image, size: int) -> np.ndarray:
    """Turn one opened image into a square of pixels.

    Args:
        image: PIL image of any mode.
        size: Side in pixels.

    Returns:
        (size, size, 3) uint8, RGB, bilinear with antialiasing.

    Raises:
        SpmlError: For 32-bit grey. Damaged files raise what Pillow raises.

    Source:
        The papers' 448 × 448 squash (Cole et al. 2021).
    """
    return np.asarray(upright(image).resize((size, size), _BILINEAR))


_BILINEAR = Image.Resampling.BILINEAR  # with antialiasing, as Pillow does it


CACHE_VERSION = 2  # of the decoding above: raise it when the same files would give other pixels


def cache_file(dataset: Dataset, size: int) -> Path:
    """Say where the decoded images of a data set are kept.

    Args:
        dataset: With its images in files.
        size: Side in pixels.

    Returns:
        Path of an .npy file, which need not exist.

    Raises:
        SpmlError: If the settings cannot be read.
    """
    key = [CACHE_VERSION, size, *dataset.photo_hashes]
    digest = hashlib.sha256(json.dumps(key).encode())
    name = re.sub(r'[^\w.-]', '_', dataset.name)[:60]
    return settings.path('cache') / 'images' / f'{name}-{size}-{digest.hexdigest()[:16]}.npy'


def _opened(file, shape):
    "The memory map, or None where there is no whole file."
    try:
        store = np.load(file, mmap_mode='r')
    except FileNotFoundError:
        return None
    except OSError:
        raise
    except Exception:
        return None  # a damaged header raises one of a dozen types
    whole = isinstance(store, np.memmap) and store.offset + store.nbytes == os.path.getsize(file)
    return store if whole and store.shape == shape and store.dtype == np.uint8 else None


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
        return np.stack([squash(Image.fromarray(pixels), size) for pixels in dataset.images])
    shape = len(dataset), size, size, 3
    return _kept(
        dataset,
        cache_file(dataset, size),
        size,
        math.prod(shape),
        progress,
        lambda file: _opened(file, shape),
        _write_squares,
    )


def _kept(dataset, file, size, needed, progress, opened, write):
    """What `opened` gives for a cache file, which `write` fills first where it is missing or
    damaged.
    """
    try:
        if (store := opened(file)) is not None:
            return store
        file.parent.mkdir(parents=True, exist_ok=True)
        files.remove_leftovers(file.parent)  # of killed builders
        with files.alone(file, files.say if progress else None):
            if opened(file) is None:
                _build(dataset, file, size, progress, write)
            store = opened(file)
        if store is None:
            raise FileNotFoundError(errno.ENOENT, 'it was removed as soon as it was built')
        return store
    except OSError as error:
        full = error.errno in FULL
        why = (
            'there is not enough space'
            if full
            else f'it cannot be used ({error.strerror or error})'
        )
        raise SpmlError(
            f'the decoded images of {dataset.name} need {needed:,} bytes ({needed / 2**30:.2f} '
            f'GiB) in {file.parent}, and {why}. {"Make room there, or name" if full else "Name"} '
            'another folder: the line `cache` of settings.ini, or the environment variable '
            'SPML_NB_CACHE.'
        ) from error


def _build(dataset, file, size, progress, write):
    start = time.perf_counter()
    with files.whole(file) as temporary, open(temporary, 'wb') as out:
        write(out, dataset, size, progress)
    seconds, space = time.perf_counter() - start, os.path.getsize(file) / 2**20
    if progress:
        print(
            f'{dataset.name}: {len(dataset):,} images decoded to {size} px in {seconds:.1f} s '
            f'({len(dataset) / seconds:,.0f} per second), {space:,.0f} MiB',
            flush=True,
        )


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _write_squares(out, dataset, size, progress):
    shape = len(dataset), size, size, 3
    if shutil.disk_usage(os.path.dirname(out.name)).free < math.prod(shape):
        raise OSError(errno.ENOSPC, 'not enough free space')
    np.lib.format.write_array_header_1_0(
        out, {'descr': '|u1', 'fortran_order': False, 'shape': shape}
    )
    with closing(_decoded(dataset, size, progress, squash)) as images:
        for pixels in images:
            out.write(pixels)


def _decoded(dataset, size, progress, shape):
    "Pixels of each image in order; after the last one, one error with all that cannot be used."
    bad, photos = [], iter(dataset.images)
    counted = meter(f'{dataset.name}, {size} px', len(dataset), unit='images', show=progress)
    with warnings.catch_warnings(), ThreadPoolExecutor(settings.cores()) as pool, counted as bar:
        # A photo of 90 to 179 megapixels is legal here.
        warnings.simplefilter('ignore', Image.DecompressionBombWarning)
        warnings.simplefilter('ignore', UserWarning)

        def submit(count):
            return [pool.submit(_decode, photo, size, shape) for photo in islice(photos, count)]

        waiting = deque(
            submit(8 * settings.cores())
        )  # bounded: a slow disk does not let pixels pile up
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
            f'{listed(bad, 20)}. Repair or replace them, or remove their rows from the table.'
        )


def _decode(file, size, shape):
    "The pixels that `shape` makes of a photo, or a str saying why there are none."
    try:
        with open_photo(file) as image, folders.budget.hold(image):
            return shape(image, size)
    except Exception as error:
        return reason(error, file)  # decoders raise a dozen different types for damaged files


def batch(store: np.ndarray, index, device: torch.device | str = 'cpu') -> torch.Tensor:
    """Put some rows of `open_images`' array on a device.

    Args:
        store: (N, S, S, 3) uint8.
        index: (B,) row numbers: array, list or tensor (best on the CPU).
        device: Where to.

    Returns:
        (B, 3, S, S) uint8 in channels_last strides. The copy to a CUDA device does not block.

    Raises:
        SpmlError: For rows outside the store.
    """
    rows, device = _within(index, len(store)), torch.device(device)
    pixels = torch.empty(
        (len(rows), *store.shape[1:]), dtype=torch.uint8, pin_memory=device.type == 'cuda'
    )
    np.take(
        store, rows, axis=0, out=pixels.numpy(), mode='clip'
    )  # checked above; any other mode would copy twice
    return pixels.permute(0, 3, 1, 2).to(device, non_blocking=True)


def _within(rows, n):
    rows = torch.as_tensor(rows).cpu().numpy()
    if rows.size and not 0 <= rows.min() <= rows.max() < n:
        raise SpmlError(f'rows {rows.min()} … {rows.max()} are asked for; allowed: 0 … {n - 1}.')
    return rows


LONGEST = 640


class Photos:
    """Whole photos one behind the other. Index with a row number: (h, w, 3) uint8, RGB.

    Args:
        pixels: Flat uint8 array, memory-mapped or not.
        sizes: (N, 2) int, height and width of each.
    """

    def __init__(self, pixels: np.ndarray, sizes: np.ndarray):
        self.pixels, self.sizes = pixels, np.asarray(sizes, np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes.prod(1) * 3)])

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, row) -> np.ndarray:
        h, w = self.sizes[row]
        return self.pixels[self.starts[row] : self.starts[row + 1]].reshape(h, w, 3)


def reduced(image: Image.Image, longest: int) -> np.ndarray:
    """Turn one opened image into pixels, whole.

    Args:
        image: PIL image of any mode.
        longest: Pixels that its longer side may have. Larger images are reduced, in proportion.

    Returns:
        (h, w, 3) uint8, RGB.

    Raises:
        SpmlError: As `upright`.
    """
    image = upright(image)
    scale = longest / max(image.size)
    if scale < 1:
        image = image.resize([max(1, round(scale * n)) for n in image.size], _BILINEAR)
    return np.asarray(image)


def open_photos(dataset: Dataset, longest: int = LONGEST, progress: bool = True) -> Photos:
    """Open all images of a data set whole, decoded at the first call and memory-mapped from then
    on.

    Several processes may call this at once, and nothing is left half-written, as in `open_images`.

    Args:
        dataset: In files or in memory.
        longest: Pixels that a longer side may have; larger photos are reduced.
        progress: As in `open_images`.

    Returns:
        The photos.

    Raises:
        SpmlError: As `open_images`.
    """
    if dataset.images_in_memory:
        n, height, width, _ = dataset.images.shape
        return Photos(dataset.images.reshape(-1), np.tile([height, width], (n, 1)))
    file = cache_file(dataset, longest).with_suffix('.whole')
    return _kept(
        dataset,
        file,
        longest,
        len(dataset) * longest * longest * 9 // 4,
        progress,
        lambda file: _opened_whole(file, len(dataset)),
        _write_photos,
    )


def _opened_whole(file, n):
    "The photos, or None where there is no whole file. Its last 8·n bytes are the sizes."
    try:
        pixels = np.memmap(file, np.uint8, 'r')
    except (FileNotFoundError, ValueError):
        return None
    if len(pixels) < 8 * n:
        return None
    photos = Photos(
        pixels, np.frombuffer(pixels[len(pixels) - 8 * n :].tobytes(), '<i4').reshape(n, 2)
    )
    return photos if photos.starts[-1] + 8 * n == len(pixels) and (photos.sizes > 0).all() else None


def _write_photos(out, dataset, longest, progress):
    sizes = []
    with closing(_decoded(dataset, longest, progress, reduced)) as images:
        for pixels in images:
            out.write(pixels)
            sizes.append(pixels.shape[:2])
    out.write(np.array(sizes, '<i4').tobytes())


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
    rows = _within(rows, len(photos))
    shapes = [torch.empty(1).expand(1, *photos.sizes[row].tolist()) for row in rows]
    boxes = [
        RandomResizedCrop.get_params(shape, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3))
        for shape in shapes
    ]

    def cut(row, box):
        top, left, height, width = box
        pixels = np.ascontiguousarray(photos[row][top : top + height, left : left + width])
        return Image.fromarray(pixels).resize((size, size), _BILINEAR)

    return _together(cut, rows, boxes, size=size)


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
    view = Compose([Resize(size * 8 // 7), CenterCrop(size)])
    return _together(
        lambda row: view(Image.fromarray(photos[row])), _within(rows, len(photos)), size=size
    )


def _together(cut, rows, *more, size):
    pixels = np.empty((len(rows), size, size, 3), np.uint8)
    with ThreadPoolExecutor(settings.cores()) as pool:
        for place, image in zip(pixels, pool.map(cut, rows, *more), strict=True):
            place[:] = np.asarray(image)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)
