"""Data sources of a run: batches of images, or of cached features of a frozen backbone."""

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
    """Whether a device is a GPU of which the data take at most half of the free memory.

    Args:
        size: of the data in bytes.
        device: any.
    """
    if device.type != 'cuda':
        return False
    free, _ = torch.cuda.mem_get_info(device)
    # freed by earlier runs of this process, but kept by torch's allocator
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return size <= (free + cached) // 2


class ImageSource:
    """Batches of images, augmented on the training device. A GPU with enough memory holds all
    images.

    Args:
        store: (N, S, S, 3) uint8, or a `PhotoReader` of squares.
        names: {role: view of `spml_nb.data.views`}.
        device: of the batches.
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
        """All images on the device, None if they do not fit. Lazy, as runs on cached features need
        no images.
        """
        if isinstance(self.store, np.ndarray) and has_gpu_room(self.store.nbytes, self.device):
            return torch.tensor(self.store, device=self.device)
        return None

    def announce(self, rows: np.ndarray):
        "Prefetch the rows of the next batches, in this order."
        if isinstance(self.store, images.PhotoReader):
            self.store.announce(rows)

    def batch(self, rows: np.ndarray, role: str) -> Tensor:
        """(B, 3, S, S) float32 in [0, 1] for (B,) row numbers of the data set and the role of a
        view.
        """
        if self.resident is None:
            pixels = images.copy_pixels(self.store, rows, self.device)
        else:
            pixels = self.resident[copy_to_device(rows, self.device)].permute(0, 3, 1, 2)
        return self.views[role](pixels)


class CropSource(ImageSource):
    """Batches of crops from photos in their own proportions: the centre for the role 'plain',
    random for all others.

    Args:
        store: photos, or a reader of them.
        names, device: as in `ImageSource`.
        size: pixels per side of a crop.

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
        make_crops = images.centre_crops if role == 'plain' else images.random_crops
        photos, rows = images.whole_photos(self.store, rows)
        crops = make_crops(photos, rows, self.size)
        return self.views[role](copy_to_device(crops, self.device))


def image_source(data: Dataset, config: Config, device: torch.device) -> ImageSource:
    """The images of a data set with the views of a run.

    Args:
        data: any.
        config: resolved.
        device: of the batches.

    Raises:
        SpmlError: as `spml_nb.data.images.open_images`.
    """
    names = VIEW_SETS[config.views]
    size = config.image_size
    decoded = data.images_in_memory or images.caches_photos()
    if config.views == 'crop':
        if decoded:
            photos = images.open_photos(data)
        else:
            photos = images.PhotoReader(data, images.LONGEST_SIDE, whole=True)
        return CropSource(photos, names, device, size)
    store = images.open_images(data, size) if decoded else images.PhotoReader(data, size)
    return ImageSource(store, names, device)


VERSION = 3  # of cached features: raise it when new ones would differ


def hash_weights(model: nn.Module) -> str:
    """A hash of a backbone's parameters and buffers, as 16 hexadecimal digits.

    Args:
        model: of `spml_nb.models`.
    """
    digest = hashlib.sha256()
    for name, value in model.backbone.state_dict().items():
        digest.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def hash_pixels(store: np.ndarray | images.Photos | images.PhotoReader) -> str:
    """A hash of all pixels, as 16 hexadecimal digits; of a reader, the hash of its files. Cached
    beside a memory-mapped file.

    Args:
        store: images as from `open_images` or `open_photos`, or a reader.
    """
    if isinstance(store, images.PhotoReader):
        return store.content
    pixels = getattr(store, 'pixels', store)
    cached = Path(f'{pixels.filename}.content') if isinstance(pixels, np.memmap) else None
    if cached is not None and cached.is_file():
        return cached.read_text()
    digest = hashlib.sha256(f'{len(store)} {pixels.shape}'.encode())
    digest.update(np.ascontiguousarray(pixels))
    digits = digest.hexdigest()[:16]
    if cached is not None:
        with contextlib.suppress(SpmlError):  # the cache may be read-only
            write_atomically(cached, digits)
    return digits


@torch.inference_mode()
def extract_features(
    model: nn.Module, source: ImageSource, rows: np.ndarray, role: str, batch_size: int = 64
) -> np.ndarray:
    """Compute the inputs of the head for many images.

    Args:
        model: of `spml_nb.models`.
        source: of images.
        rows: (N,) row numbers.
        role: of a view.
        batch_size: images at a time.

    Returns:
        (N, D) float32, or maps (N, h, w, D) float16, channels last.
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
    """`extract_features`, cached on disk and memory-mapped.

    Args:
        model, source, rows, role: as in `extract_features`.
        draw: number of the draw of an augmented view, the seed of its randomness.
        key: a text with all else that the features depend on.

    Raises:
        SpmlError: if the cache cannot be written.
    """
    rows_key = hashlib.sha256(rows.tobytes()).hexdigest()
    text = f'{VERSION}-{key}-{model.head.needs}-{role}-{source.names[role]}-{draw}-{rows_key}'
    name = hashlib.sha256(text.encode()).hexdigest()[:20]
    file = settings.get_folder('cache') / 'features' / f'{name}.npy'
    features = _open_features(file, len(rows))
    if features is None:
        # another process that needs the same features waits here
        with hold_lock(file):
            features = _open_features(file, len(rows))
            if features is None:
                _write_features(file, model, source, rows, role, draw)
                features = np.load(file, mmap_mode='r')
    return features


def _open_features(file: Path, n: int) -> np.ndarray | None:
    "The memory map; None if the file is missing or damaged."
    if not file.exists():
        return None
    try:
        features = np.load(file, mmap_mode='r')
        if _matches_checksum(features, file, n):
            return features
    except Exception:
        pass  # damaged headers raise a dozen different types
    warn(
        f'{file} is damaged, so its features are computed again. If this happens often, check the '
        'disk of the cache.'
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
    """Batches of frozen features.

    Args:
        plain: (N, ...) of all images.
        drawn: {role: draws of (n, ...)} of the training images; a view without draws uses `plain`.
        rows: (n,) row numbers of the training images.
        device: of the batches.
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
        "Nothing to prefetch; as in `ImageSource`."

    def _hold(self, features: np.ndarray):
        "Copy features to the device, except for maps that are too large: these stay memory-mapped."
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
        return batch.permute(0, 3, 1, 2).float()  # keeps the channels-last layout

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
            positions = np.flatnonzero(draw == k)
            if len(positions):
                features = self._take(draws[k], index[positions])
                batch[copy_to_device(positions, self.device)] = features
        return batch


def feature_source(
    model: nn.Module, source: ImageSource, rows: np.ndarray, roles: tuple[str, ...], config: Config
) -> FeatureSource:
    """Frozen features for a run, computed or read from the cache.

    Args:
        model: of `spml_nb.models`.
        source: of images.
        rows: (n,) row numbers of the training images.
        roles: the views that the method needs.
        config: resolved.

    Raises:
        SpmlError: if the cache cannot be written.

    Source: Cole et al. (2021), linear regime.
    """
    preprocessing = f'{config.image_size}-{config.normalise}-{config.views == "crop"}'
    key = f'{hash_pixels(source.store)}-{config.backbone}-{hash_weights(model)}-{preprocessing}'
    plain = cached_features(model, source, np.arange(len(source.store)), 'plain', 0, key)
    drawn = {}
    if len(roles) > 1:  # a single view is not augmented
        for role in roles:
            drawn[role] = [
                cached_features(model, source, rows, role, draw, key)
                for draw in range(config.cached_views)
            ]
    return FeatureSource(plain, drawn, rows, source.device)
