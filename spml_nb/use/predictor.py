"""Runs a trained model on any images: finds, decodes and prepares them as in evaluation."""

import os
import stat
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor

from ..base import progress, settings
from ..base.errors import SpmlError, parse_number, require_kind, require_one_of, warn
from ..base.escaping import any_name_in_frames
from ..base.files import require_regular_file
from ..data import images as image_cache
from ..data.dataset import Dataset, join_items
from ..data.decoding import PHOTOS, describe_animated, explain_unreadable, open_photo, pixel_budget
from ..training.network import Network

# ---- images

# a folder, a file, a PIL image, or several files and PIL images
Images = str | Path | Image.Image | Iterable[str | Path | Image.Image]

# for all classes, or {class: probability}
Threshold = float | dict[str, float]

# suffixes of photos that cannot be read with the packages installed
UNREADABLE_SUFFIXES = {'.heic', '.heif', '.jxl'} - PHOTOS


def find_images(sources: Images) -> tuple[list[str], list[Path | Image.Image]]:
    """List the images to predict.

    Args:
        sources: a folder, an image file, a PIL image, or a list of files and PIL images. A file may
            be anything that Pillow opens; in a folder, only the suffixes in `PHOTOS` count. Links
            to folders are followed, each folder is searched once, and names that begin with a dot
            are left out. A warning counts photos of other formats in a folder.

    Returns:
        N names (paths below the folder, paths as in the list, or indices of PIL images in it), and
        N Paths or PIL images.

    Raises:
        SpmlError: if there is no image, a folder cannot be read, or for another type.
    """
    if isinstance(sources, str | Path) and _is_folder(Path(sources)):
        names, files = _search_folder(Path(sources))
        return names, [*files]
    if isinstance(sources, str | Path | Image.Image):
        sources = [sources]
    try:
        listed = list(sources)
    except TypeError:
        raise _not_images(sources) from None
    if not listed:
        raise SpmlError('there is no image in the list. Give at least one.')
    names = []
    for k, source in enumerate(listed):
        is_image = isinstance(source, Image.Image)
        if not is_image and (not isinstance(source, str | Path) or os.path.isdir(source)):
            raise _not_images(source)
        names.append(str(k if is_image else source))
    images: list[Path | Image.Image] = [
        Path(source) if isinstance(source, str) else source for source in listed
    ]
    return names, images


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise SpmlError(f'no folder or image {path}. Check the path.') from None
    except OSError as error:
        _refuse_unsearchable(error)


def _refuse_unsearchable(error: OSError) -> NoReturn:
    raise SpmlError(
        f'{error.filename} cannot be searched for images ({error.strerror or error}). '
        'Make it readable, or name the files to use.'
    ) from error


def _search_folder(folder: Path) -> tuple[list[str], list[Path]]:
    photos = {}
    left_out = []
    visited = set()
    # links to folders are appended, so that photos below a real folder keep that name
    tops = [folder]
    for top in tops:
        for parent, folders, names in os.walk(top, onerror=_refuse_unsearchable):
            target = os.path.realpath(parent)
            if target in visited:
                folders.clear()
                continue
            visited.add(target)
            folders[:] = sorted(name for name in folders if not name.startswith('.'))
            paths = [Path(parent, name) for name in folders]
            tops += [path for path in paths if path.is_symlink()]
            for path in (Path(parent, name) for name in names if not name.startswith('.')):
                suffix = path.suffix.lower()
                if suffix in UNREADABLE_SUFFIXES:
                    left_out.append(suffix)
                elif suffix in PHOTOS and _is_file(path):
                    photos[path.relative_to(folder).as_posix()] = path
    if left_out:
        warn(
            f"{folder} has {len(left_out):,} photos that are left out "
            f"({', '.join(sorted(set(left_out)))}). Save them as .jpg or .png; for .heic and .heif "
            "`pip install 'spml_nb[photos]'` is enough."
        )
    if not photos:
        raise SpmlError(
            f"no image in {folder} or below it; looked for {', '.join(sorted(PHOTOS))}. Name "
            'another folder, or the files themselves.'
        )
    names = sorted(photos)
    return names, [photos[name] for name in names]


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True  # reading it will say what is wrong


def _not_images(source: object) -> SpmlError:
    what = type(source).__name__
    if isinstance(source, str | Path):
        what = f'the folder {source} in a list. Give one at a time'
    return SpmlError(
        f'images are a folder, a file, a PIL image, or a list of files and PIL images, not {what}. '
        'For an array of bytes (h, w, 3) give PIL.Image.fromarray(array).'
    )


# ---- from an image to a square

RESIZES = {
    'squash': 'resized to image_size × image_size, whatever the shape',
    'centre': (
        f'reduced to at most {image_cache.LONGEST_SIDE} pixels on the longer side, the shorter '
        'side resized to ⌊8/7 · image_size⌋, the image_size × image_size in the middle cut out'
    ),
}
STEPS = (
    'turned upright by its EXIF tag, RGB (of 16-bit grey the upper 8 bits) with white where it is '
    'transparent, {}, bilinear with antialiasing, bytes (batch, 3, image_size, image_size)'
)


def make_square(image: Image.Image, size: int, resize: str) -> np.ndarray:
    """Turn an image into the pixels that a network takes.

    Args:
        image: PIL image of any mode; it may be turned upright in place.
        size: side in pixels.
        resize: a key of `RESIZES`.

    Returns:
        (size, size, 3) uint8, RGB.

    Raises:
        SpmlError: for another `resize`, or 32-bit grey. Pillow's errors for damaged images pass
            through.

    Source: Cole et al. (2021) for 'squash', the authors' code of Two-way for 'centre'.
    """
    if require_one_of(resize, RESIZES, 'way to resize') == 'squash':
        return image_cache.squash_image(image, size)
    pixels = image_cache.reduce_image(image, image_cache.LONGEST_SIDE)
    photos = image_cache.Photos(pixels.reshape(-1), np.array([pixels.shape[:2]]))
    return image_cache.centre_crops(photos, [0], size)[0].permute(1, 2, 0).numpy()


# a PIL image may be in the list twice, and Pillow loads it lazily, which is not thread-safe
_one_at_a_time = Lock()


def _decode(source: Path | Image.Image, size: int, resize: str) -> np.ndarray | str:
    """Pixels, or why there are none.

    A JPEG is decoded at full size: Pillow's `draft` is faster but scales differently, so the
    network would see other pixels than in training. (Huge photos are scaled that way in training as
    well: `spml_nb.data.decoding.to_upright_rgb`.)
    """
    try:
        if isinstance(source, Image.Image):
            with pixel_budget.hold(source):
                with _one_at_a_time:
                    image = source.copy()  # turning it upright must not change the caller's
                return make_square(image, size, resize)
        with open_photo(require_regular_file(source)) as image, pixel_budget.hold(image):
            return make_square(image, size, resize)
    except Exception as error:  # decoders raise a dozen different types for damaged files
        return explain_unreadable(error, source)  # type: ignore[arg-type]


def _decode_all(
    sources: list[Any], size: int, resize: str, keep: bool = True, show: bool = False
) -> tuple[list[Any], dict[int, str]]:
    """Pixels of each source (None if it is unusable, or `keep` is false), and {index of an unusable
    source: why}.
    """
    decode = partial(_decode, size=size, resize=resize)
    pixels: list[Any] = []
    reasons = {}
    with warnings.catch_warnings(), ThreadPoolExecutor() as pool:
        for kind in (Image.DecompressionBombWarning, UserWarning):  # as in the image cache
            warnings.simplefilter('ignore', kind)
        results = progress.progress_bar(
            pool.map(decode, sources), len(sources), 'reading', unit='images', show=show
        )
        for k, result in enumerate(results):
            if isinstance(result, str):
                reasons[k] = result
            pixels.append(result if keep and k not in reasons else None)
    return pixels, reasons


def _refuse_unreadable(names: list[str], reasons: dict[int, str]) -> None:
    if reasons:
        bad = [f'{names[k]} ({why})' for k, why in reasons.items()]
        raise SpmlError(
            f'{len(bad):,} of {len(names):,} images cannot be used: {join_items(bad, 20)}. Repair '
            'or replace them, or leave them out.'
        )


def read_images(names: list[str], sources: list[Any], size: int, resize: str) -> list[np.ndarray]:
    """Decode N Paths and PIL images to arrays (size, size, 3) uint8, as in `make_square`.

    Raises:
        SpmlError: naming all unusable images.
    """
    pixels, reasons = _decode_all(sources, size, resize)
    _refuse_unreadable(names, reasons)
    return pixels


# ---- a model to use

BATCH = 32
# decoded images up to this size are kept between checking and predicting; more are decoded twice
DECODED_BYTES = 2**29


def refuse_non_finite(values: np.ndarray, class_names: list[str]) -> None:
    """Raise an SpmlError if logits or probabilities (B, C) are NaN or infinite, since NaN would
    silently name nothing.
    """
    finite = np.asarray(np.isfinite(values).all(axis=0))
    broken = [name for name, fine in zip(class_names, finite, strict=True) if not fine]
    if broken:
        raise SpmlError(
            f'the model gives no finite number for {len(broken):,} of its {len(class_names):,} '
            f'classes ({join_items(broken, 5)}): its training diverged, or its weights are '
            'damaged. Train it again with a lower learning rate, or take another model.'
        )


def describe_preprocessing(description: dict) -> dict:
    """How images become the input of a network, as plain data.

    That is image_size (pixels), resize, steps in words, and normalise, mean and std, which the
    network applies itself.

    Args:
        description: of a `spml_nb.training.network.Network`.
    """
    fields = ('image_size', 'resize', 'normalise', 'mean', 'std')
    steps = STEPS.format(RESIZES[description['resize']])
    return {field: description[field] for field in fields} | {'steps': steps}


class Predictor:
    """A trained model with its classes, threshold and preprocessing.

    Call it with prepared pixels, or its `predict` with images.

    Args:
        description: as from `spml_nb.training.network.describe_network`.
        function: (B, 3, S, S) uint8 tensor → (B, C) float64 array of probabilities.

    Attributes:
        class_names: C texts, in the order of the probabilities.
        threshold: the probability at which a label is named, chosen on validation photos or by
            `spml calibrate`.
        class_thresholds: (C,) one per class; None if the model has none.
        preprocessing: as from `describe_preprocessing`.
    """

    def __init__(self, description: dict, function: Callable):
        self.description = description
        self.function = function
        self.class_names = list(description['class_names'])
        self.threshold = description['threshold']
        self.class_thresholds = description.get('class_thresholds')
        self.preprocessing = describe_preprocessing(description)

    def __call__(self, pixels: np.ndarray | Tensor) -> np.ndarray:
        """Probabilities of prepared images.

        Args:
            pixels: (B, 3, S, S) uint8, array or tensor, prepared as `preprocessing` says.

        Returns:
            (B, C) float64.

        Raises:
            SpmlError: for another shape or type, and as `refuse_non_finite`.
        """
        pixels = torch.as_tensor(pixels)
        size = self.description['image_size']
        if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[1:] != (3, size, size):
            raise SpmlError(
                f'the model takes (B, 3, {size}, {size}) uint8, not {tuple(pixels.shape)} '
                f'{pixels.dtype}. Its `predict` prepares images by itself.'
            )
        probabilities = self.function(pixels)
        refuse_non_finite(probabilities, self.class_names)
        return probabilities

    @any_name_in_frames()
    def predict(
        self,
        images: Images,
        *,
        batch_size: int = BATCH,
        threshold: float | None = None,
        per_class: bool = False,
        skip_unreadable: bool = False,
    ) -> pd.DataFrame:
        """Probabilities and labels of images, as from the function `spml_nb.use.predict.predict`.

        All images are decoded first, so that an error names every unusable one at once.
        """
        batch_size = require_kind(batch_size, int, 'batch_size')
        if batch_size < 1:
            raise SpmlError(f'batch_size must be at least 1, not {batch_size}.')
        limits = self.choose_threshold(threshold, per_class)
        size = self.description['image_size']
        resize = self.description['resize']
        names, sources = find_images(images)
        if animated := describe_animated(sources, names):
            warn(animated)
        keep = len(names) * size * size * 3 <= DECODED_BYTES
        decoded, reasons = _decode_all(sources, size, resize, keep=keep, show=True)
        if not skip_unreadable or len(reasons) == len(names):
            _refuse_unreadable(names, reasons)
        usable = [k for k in range(len(names)) if k not in reasons]
        probabilities = []
        starts = range(0, len(usable), batch_size)
        for start in progress.progress_bar(starts, what='predicting', unit='batches'):
            rows = usable[start : start + batch_size]
            pixels = [decoded[k] for k in rows]
            if not keep:
                pixels = read_images(
                    [names[k] for k in rows], [sources[k] for k in rows], size, resize
                )
            probabilities.append(self(torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)))
        table = _make_table(
            [names[k] for k in usable], np.concatenate(probabilities), self.class_names, limits
        )
        table.attrs['unusable'] = {names[k]: why for k, why in reasons.items()}
        table.attrs['one_threshold'] = self.threshold
        is_default = threshold is None and not per_class  # what was counted on validation
        table.attrs['on_validation'] = self.description.get('on_validation') if is_default else None
        table.attrs['labels_a_photo'] = self.description.get('labels_a_photo')
        table.attrs['calibrated'] = self.is_calibrated
        return table

    @property
    def is_calibrated(self) -> bool:
        "Whether threshold or probabilities were calibrated after the training."
        return not {'threshold_from', 'calibration'}.isdisjoint(self.description)

    def choose_threshold(
        self, threshold: float | None = None, per_class: bool = False
    ) -> Threshold:
        """The probability at which a label is named.

        Args:
            threshold: a number or its text; None: that of the model.
            per_class: use one threshold per class.

        Raises:
            SpmlError: for a threshold outside (0, 1), both arguments together, or a model without
                class thresholds.
        """
        if not per_class:
            return self.threshold if threshold is None else _check_threshold(threshold)
        if threshold is not None:
            raise SpmlError(
                f'threshold={threshold!r} is for all classes, but per_class uses one per class. '
                'Give one of the two.'
            )
        if self.class_thresholds is None:
            raise SpmlError(
                'the model has one threshold for all classes and none per class: it comes from an '
                'earlier version, had no validation photos, or is calibrated. `spml calibrate RUN '
                'FOLDER` chooses them on labelled photos; then export the run again.'
            )
        return dict(zip(self.class_names, self.class_thresholds, strict=True))


def _check_threshold(threshold: object) -> float:
    number = parse_number(threshold)
    if not 0 < number < 1:
        raise SpmlError(
            f'threshold={threshold!r}; allowed: a probability above 0 and below 1, such as 0.3. '
            "Leave it out for the model's own."
        )
    return number


def _make_table(
    names: list[str], probabilities: np.ndarray, class_names: list[str], threshold: Threshold
) -> pd.DataFrame:
    named = probabilities >= thresholds_as_array(threshold)
    labels = ['|'.join(class_names[c] for c in np.flatnonzero(row)) for row in named]
    table = pd.DataFrame(probabilities, columns=class_names)
    # a class may have the same name
    table.insert(0, 'image', names, allow_duplicates=True)
    table.insert(table.shape[1], 'labels', labels, allow_duplicates=True)
    table.attrs['threshold'] = threshold
    return table


def thresholds_as_array(threshold: Threshold) -> np.ndarray:
    "() or (C,), to compare with probabilities (N, C)."
    return np.array(list(threshold.values()) if isinstance(threshold, dict) else threshold)


def predict_rows(model: Predictor, data: Dataset, rows: Sequence[int] | np.ndarray) -> np.ndarray:
    """Probabilities of photos of a data set, whatever its classes.

    Args:
        rows: n indices of `data.images`.

    Returns:
        (n, C) float64, in the order of the model's classes.

    Raises:
        SpmlError: as `Predictor.predict`.
    """
    photos: list[Any] = [data.images[row] for row in rows]
    if data.images_in_memory:
        photos = [Image.fromarray(pixels) for pixels in photos]
    return model.predict(photos).iloc[:, 1:-1].to_numpy(float)


def as_predictor(network: Network, device: str | None = None) -> Predictor:
    """Make a network in evaluation mode ready for use.

    Args:
        device: None: the setting `device`.

    Raises:
        SpmlError: for a device that this machine lacks.
    """
    target = settings.choose_device(device)
    network = network.to(device=target, memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.inference_mode()
    def function(pixels: Tensor) -> np.ndarray:
        logits = network(pixels.to(target)).cpu().double()
        # the sigmoid of an infinite logit would be finite and hide it
        return torch.sigmoid(logits).where(logits.isfinite(), torch.nan).numpy()

    return Predictor(network.description, function)
