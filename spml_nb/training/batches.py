"""Where a batch comes from: the photos themselves, or features computed once by a frozen
backbone.
"""

import contextlib
import hashlib
import zlib
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ..base import progress, settings
from ..base.devices import copy_to_device
from ..base.errors import SpmlError, warn
from ..base.files import hold_lock, remove_leftovers, write_atomically
from ..data import images, views
from ..data.dataset import Dataset
from ..runs.config import VIEW_SETS, Config


def has_gpu_room(size: int, device: torch.device) -> bool:
    """Whether a device is a GPU that can hold a data set and still train.

    Args:
        size: of the data in bytes.
        device: any.

    Returns:
        True up to half of the free memory.
    """
    if device.type != 'cuda':
        return False
    free, _ = torch.cuda.mem_get_info(device)
    # what earlier runs of this process have left with torch's allocator
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return size <= (free + cached) // 2


class ImageSource:
    """Batches of images, augmented on the training device. On a GPU that has room, all images lie
    there from the start.

    Args:
        store: (N, S, S, 3) uint8, or a `PhotoReader` of squares.
        names: {role: view of `spml_nb.data.views`}.
        device: where batches go.
    """

    def __init__(
        self, store: np.ndarray | images.PhotoReader, names: dict[str, str], device: torch.device
    ):
        self.store = store
        self.names = names
        self.device = device
        self.views = {role: views.find_view(name) for role, name in names.items()}

    @cached_property
    def resident(self) -> Tensor | None:
        """All images on the device; only looked for when a batch is asked for, as kept features may
        be all that is.
        """
        if isinstance(self.store, np.ndarray) and has_gpu_room(self.store.nbytes, self.device):
            return torch.tensor(self.store, device=self.device)
        return None

    def announce(self, rows: np.ndarray):
        "Say which rows batches will have from now on, in this order."
        if isinstance(self.store, images.PhotoReader):
            self.store.announce(rows)

    def batch(self, rows: np.ndarray, role: str) -> Tensor:
        """(B, 3, S, S) float32 in [0, 1] for (B,) row numbers of the data set and the role of a
        view.
        """
        if self.resident is None:
            pixels = images.load_pixels(self.store, rows, self.device)
        else:
            pixels = self.resident[copy_to_device(rows, self.device)].permute(0, 3, 1, 2)
        return self.views[role](pixels)


class CropSource(ImageSource):
    """Batches of parts of whole photos: the centre for the role 'plain', random crops for all
    others.

    Args:
        store: whole photos, or a reader of them.
        names, device: as in `ImageSource`.
        size: side of a batch's images in pixels.

    Source: the authors' code of Two-way.
    """

    def __init__(
        self,
        store: images.Photos | images.PhotoReader,
        names: dict[str, str],
        device: torch.device,
        size: int,
    ):
        super().__init__(store, names, device)
        self.size = size

    def batch(self, rows: np.ndarray, role: str) -> Tensor:
        "(B, 3, size, size) float32 for (B,) row numbers of the data set and the role of a view."
        cut = images.centre_crops if role == 'plain' else images.random_crops
        photos, rows = images.whole_photos(self.store, rows)
        return self.views[role](copy_to_device(cut(photos, rows, self.size), self.device))


def image_source(data: Dataset, config: Config, device: torch.device) -> ImageSource:
    """The images of a data set under a run's views.

    Args:
        data: any.
        config: resolved.
        device: where batches go.

    Returns:
        ImageSource or CropSource.

    Raises:
        SpmlError: as `spml_nb.data.images.open_images`.
    """
    names = VIEW_SETS[config.views]
    kept = data.images_in_memory or images.keeps_decoded()
    if config.views == 'crop':
        photos = (
            images.open_photos(data)
            if kept
            else images.PhotoReader(data, images.LONGEST_SIDE, whole=True)
        )
        return CropSource(photos, names, device, config.image_size)
    if not kept:
        return ImageSource(images.PhotoReader(data, config.image_size), names, device)
    return ImageSource(images.open_images(data, config.image_size), names, device)


VERSION = 3  # raise it when features would come out differently


def hash_weights(model: nn.Module) -> str:
    """What tells one backbone from another: a hash of its parameters and buffers.

    Args:
        model: of `spml_nb.models`.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for name, value in model.backbone.state_dict().items():
        digest.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def hash_pixels(store: np.ndarray | images.Photos | images.PhotoReader) -> str:
    """What tells one set of images from another: a hash of all pixels, kept beside the file that
    holds them.

    Args:
        store: (N, S, S, 3) uint8 or whole photos, as from `open_images` and `open_photos`.

    Returns:
        16 hexadecimal digits, the same for the same photos in the same order, wherever they lie;
        of a reader by its files.
    """
    if isinstance(store, images.PhotoReader):
        return store.content
    pixels = getattr(store, 'pixels', store)
    note = Path(f'{pixels.filename}.content') if isinstance(pixels, np.memmap) else None
    if note is not None and note.is_file():
        return note.read_text()
    digest = hashlib.sha256(f'{len(store)} {pixels.shape}'.encode())
    digest.update(np.ascontiguousarray(pixels))
    name = digest.hexdigest()[:16]
    if note is not None:
        with contextlib.suppress(SpmlError):
            write_atomically(note, name)  # a cache that is only read
    return name


@torch.inference_mode()
def extract_features(
    model: nn.Module, source: ImageSource, rows: np.ndarray, role: str, batch_size: int = 64
) -> np.ndarray:
    """What the head would eat, for each row.

    Args:
        model: of `spml_nb.models`.
        source: of images.
        rows: (N,) row numbers.
        role: of a view.
        batch_size: images at a time.

    Returns:
        (N, D) float32, or maps (N, h, w, D) float16: channels last, like the weights that they
        meet.
    """
    model.eval()
    source.announce(rows)
    batches = []
    for start in progress.progress_bar(range(0, len(rows), batch_size), what=f'features ({role})'):
        features = model.features(source.batch(rows[start : start + batch_size], role))
        if features.ndim == 4:
            features = features.half().permute(0, 2, 3, 1)
        else:
            features = features.float()
        batches.append(features.cpu().numpy())
    return np.concatenate(batches)


def cached_features(
    model: nn.Module, source: ImageSource, rows: np.ndarray, role: str, draw: int, key: str
) -> np.ndarray:
    """`extract_features`, kept in the cache folder and memory-mapped.

    Args:
        model, source, rows, role: as in `extract_features`.
        draw: number of the draw of an augmented view; its random numbers follow from it.
        key: what else the features depend on.

    Returns:
        As `extract_features`.

    Raises:
        SpmlError: when the cache cannot be written.
    """
    rows_key = hashlib.sha256(rows.tobytes()).hexdigest()
    text = f'{VERSION}-{key}-{model.head.needs}-{role}-{source.names[role]}-{draw}-{rows_key}'
    name = hashlib.sha256(text.encode()).hexdigest()[:20]
    file = settings.path('cache') / 'features' / f'{name}.npy'
    features = _opened(file, len(rows))
    if features is None:
        # a second process waits for the features instead of computing them as well
        with hold_lock(file):
            features = _opened(file, len(rows))
            if features is None:
                _write_features(file, model, source, rows, role, draw)
                features = np.load(file, mmap_mode='r')
    return features


def _opened(file: Path, n: int) -> np.ndarray | None:
    "The memory map, or None where there is no file, or one that does not hold what was written."
    if not file.exists():
        return None
    try:
        features = np.load(file, mmap_mode='r')
        if _matches_checksum(features, file, n):
            return features
    except Exception:
        pass  # a header whose damage raises one of a dozen types
    warn(
        f'{file} does not hold the features that were written there, so they are computed again. '
        'If this happens often, check the disk of the cache.'
    )
    return None


def _matches_checksum(features: np.ndarray, file: Path, n: int) -> bool:
    if not isinstance(features, np.memmap) or len(features) != n:
        return False
    if (features.ndim, features.dtype) not in ((2, np.float32), (4, np.float16)):
        return False
    with open(file, 'rb') as handle:
        handle.seek(features.offset + features.nbytes)
        return handle.read() in (b'', _checksum(features))  # older versions wrote no checksum


def _checksum(features: np.ndarray) -> bytes:
    return zlib.crc32(features).to_bytes(4, 'little')


def _write_features(file, model, source, rows, role, draw):
    remove_leftovers(file.parent)
    with torch.random.fork_rng():
        torch.manual_seed(1000 + draw)
        features = extract_features(model, source, rows, role)

    def save(path):
        with open(path, 'wb') as handle:
            np.save(handle, features)
            handle.write(_checksum(features))

    write_atomically(file, save)


class FeatureSource:
    """Batches of frozen features. A view without draws of its own is the plain one.

    Args:
        plain: (N, ...) of all images.
        drawn: {role: (draws, n, ...)} of the training images.
        rows: (n,) their row numbers.
        device: where batches go.
    """

    def __init__(
        self,
        plain: np.ndarray,
        drawn: dict[str, list[np.ndarray]],
        rows: np.ndarray,
        device: torch.device,
    ):
        self.device = device
        self.plain = self._hold(plain)
        self.drawn = {role: [self._hold(d) for d in draws] for role, draws in drawn.items()}
        self.position = np.full(len(plain), -1)
        self.position[rows] = np.arange(len(rows))

    def announce(self, rows: np.ndarray):
        "Features are at hand in any order."

    def _hold(self, features: np.ndarray):
        """Vectors live on the device, and maps too if it is a GPU that has room; else these stay
        memory-mapped.
        """
        if features.ndim == 2 or has_gpu_room(features.nbytes, self.device):
            return torch.tensor(features, device=self.device)
        return features

    def _take(self, features, index: np.ndarray) -> Tensor:
        if isinstance(features, Tensor):
            batch = features[copy_to_device(index, self.device)]
        else:
            batch = copy_to_device(features[index], self.device)
        if batch.ndim == 2:
            return batch
        return batch.permute(0, 3, 1, 2).float()  # which keeps channels last

    def batch(self, rows: np.ndarray, role: str) -> Tensor:
        """(B, D) or (B, D, h, w) float32 for (B,) row numbers of the data set and the role of a
        view.
        """
        if role not in self.drawn:
            return self._take(self.plain, rows)
        draws = self.drawn[role]
        index = self.position[rows]
        draw = torch.randint(len(draws), (len(rows),)).numpy()
        batch = self._take(draws[0], index)
        for k in range(1, len(draws)):
            chosen = np.flatnonzero(draw == k)
            if len(chosen):
                batch[copy_to_device(chosen, self.device)] = self._take(draws[k], index[chosen])
        return batch


def feature_source(
    model: nn.Module, source: ImageSource, rows: np.ndarray, roles: tuple[str, ...], config: Config
) -> FeatureSource:
    """Frozen features for a run, computed or read from the cache.

    Args:
        model: of `spml_nb.models`.
        source: of images.
        rows: (n,) row numbers of the training images.
        roles: the views that the method asks for.
        config: resolved.

    Returns:
        FeatureSource.

    Raises:
        SpmlError: when the cache cannot be written.

    Source: Cole et al. (2021), linear regime.
    """
    of_images = f'{config.image_size}-{config.normalise}-{config.views == "crop"}'
    key = f'{hash_pixels(source.store)}-{config.backbone}-{hash_weights(model)}-{of_images}'
    plain = cached_features(model, source, np.arange(len(source.store)), 'plain', 0, key)
    drawn = {}
    if len(roles) > 1:  # one view alone is the plain one
        for role in roles:
            drawn[role] = [
                cached_features(model, source, rows, role, draw, key)
                for draw in range(config.cached_views)
            ]
    return FeatureSource(plain, drawn, rows, source.device)
