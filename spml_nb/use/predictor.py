"""A trained model for any images: it finds, decodes and prepares them exactly as for its evaluation."""

import os
import stat
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock

import numpy as np
import pandas as pd
import torch
from PIL import Image

from ..base import progress, settings
from ..base.errors import SpmlError, as_kind, as_number, one_of, warn
from ..base.files import regular
from ..data import images
from ..data.dataset import listed
from ..data.photos import PHOTOS, budget, open_photo, reason
from ..training.network import Network

LEFT_OUT = ('.heic', '.heif', '.jxl')  # suffixes of photos that Pillow alone cannot read


def find_images(given) -> tuple[list[str], list[Path | Image.Image]]:
    """What `predict` is to look at.

    Args:
        given: a folder, an image file, a PIL image, or a list of files and PIL images. Links to
            folders are followed, each folder is searched once, and names that begin with a dot are
            left out. A warning counts photos of other formats in a folder.

    Returns:
        N names: paths below the folder, paths as they were given, or places in the list from 0; and
        the N Paths or PIL images.

    Raises:
        SpmlError: when there is no image, a folder cannot be read, or something else is given.
    """
    if isinstance(given, str | Path) and _is_folder(Path(given)):
        return _in_folder(Path(given))
    if isinstance(given, str | Path | Image.Image):
        given = [given]
    try:
        given = list(given)
    except TypeError:
        raise _not_images(given) from None
    if not given:
        raise SpmlError('there is no image in the list. Give at least one.')
    if wrong := [
        source
        for source in given
        if not isinstance(source, Image.Image)
        and (not isinstance(source, str | Path) or os.path.isdir(source))
    ]:
        raise _not_images(wrong[0])
    names = [
        str(k if isinstance(source, Image.Image) else source) for k, source in enumerate(given)
    ]
    return names, [Path(source) if isinstance(source, str) else source for source in given]


def _is_folder(path):
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise SpmlError(f'no folder or image {path}. Name one that is there.') from None
    except OSError as error:
        _refuse(error)


def _refuse(error: OSError):
    raise SpmlError(
        f'{error.filename} cannot be searched for images ({error.strerror or error}). '
        'Give yourself the right to read it, or name the files to use.'
    ) from error


def _in_folder(folder):
    below, left, places, seen = {}, [], [folder], set()
    for place in (
        places
    ):  # it grows by links to folders; they come last, so that what they lead to keeps its own name
        for here, folders, names in os.walk(place, onerror=_refuse):
            real = os.path.realpath(here)
            folders[:], names = (
                ([], [])
                if real in seen
                else (
                    [n for n in sorted(part) if not n.startswith('.')] for part in (folders, names)
                )
            )
            seen.add(real)
            places += [
                Path(here, name) for name in folders if os.path.islink(os.path.join(here, name))
            ]
            photos = [(Path(here, name), os.path.splitext(name)[1].lower()) for name in names]
            below |= {
                path.relative_to(folder).as_posix(): path
                for path, suffix in photos
                if suffix in PHOTOS and _is_file(path)
            }
            left += [suffix for _, suffix in photos if suffix in LEFT_OUT]
    if left:
        warn(
            f"{folder} has {len(left):,} photos that are left out "
            f"({', '.join(sorted(set(left)))}). Save them as .jpg "
            'or .png.'
        )
    if below:
        return sorted(below), [below[name] for name in sorted(below)]
    raise SpmlError(
        f"no image in {folder} or below it; looked for {', '.join(sorted(PHOTOS))}. Name another "
        'folder, or the files themselves.'
    )


def _is_file(path):
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True  # reading it says what is wrong


def _not_images(given):
    return SpmlError(
        'images are a folder, a file, a PIL image, or a list of files and PIL images, not '
        + (
            f'the folder {given} in a list. Give one at a time'
            if isinstance(given, str | Path)
            else type(given).__name__
        )
        + '. For an array of bytes (h, w, 3) give PIL.Image.fromarray(array).'
    )


RESIZES = {
    'squash': 'resized to image_size × image_size, whatever the shape',
    'centre': (
        f'reduced to at most {images.LONGEST} pixels on the longer side, the shorter side resized '
        'to ⌊8/7 · image_size⌋, the image_size × image_size in the middle cut out'
    ),
}
STEPS = (
    'turned upright by its EXIF tag, RGB (of 16-bit grey the upper 8 bits) with white where it is transparent, '
    '{}, bilinear with antialiasing, bytes (batch, 3, image_size, image_size)'
)


def square(image: Image.Image, size: int, resize: str) -> np.ndarray:
    """One image as the bytes that a network takes.

    Args:
        image: PIL image of any mode; it may be turned upright in place.
        size: side in pixels.
        resize: a key of `RESIZES`.

    Returns:
        (size, size, 3) uint8, RGB.

    Raises:
        SpmlError: for another way to resize, or 32-bit grey. Pillow's own errors for damaged images
            pass through.

    Source: Cole et al. (2021) for 'squash', the authors' code of Two-way for 'centre'.
    """
    if one_of(resize, RESIZES, 'way to resize') == 'squash':
        return images.squash(image, size)
    pixels = images.reduced(image, images.LONGEST)
    photos = images.Photos(pixels.reshape(-1), [pixels.shape[:2]])
    return images.centre_crops(photos, [0], size)[0].permute(1, 2, 0).numpy()


KEPT = (
    2**29
    # bytes of decoded images that are kept between reading and predicting; beyond, they are decoded
    # twice
)

_one_at_a_time = (
    Lock()
)  # an opened image may be in the list twice, and Pillow loads it at its first use


def _attempt(source, fit, keep):
    "Decoded pixels (None where they are not kept), or a str that says why there are none."
    try:
        if isinstance(source, Image.Image):
            with budget.hold(source):
                with _one_at_a_time:
                    image = source.copy()  # turning it upright must not change the caller's
                pixels = fit(image)
        else:
            with open_photo(regular(source)) as image, budget.hold(image):
                pixels = fit(image)
        return pixels if keep else None
    except Exception as error:  # decoders raise a dozen different types for damaged files
        return reason(error, source)


def _try_each(sources, size, resize, keep=True, show=False):
    "For each source what `_attempt` gives."
    attempt = partial(_attempt, fit=partial(square, size=size, resize=resize), keep=keep)
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor() as pool,
    ):  # Pillow's warnings, as in the image cache
        for kind in (Image.DecompressionBombWarning, UserWarning):
            warnings.simplefilter('ignore', kind)
        decoded = pool.map(attempt, sources)
        return list(progress.bar(decoded, len(sources), 'reading', unit='images', show=show))


def _refuse_unreadable(names, decoded):
    bad = [
        f'{name} ({why})' for name, why in zip(names, decoded, strict=True) if isinstance(why, str)
    ]
    if bad:
        raise SpmlError(
            f'{len(bad):,} of {len(names):,} images cannot be used: {listed(bad, 20)}. Repair or '
            'replace them, or leave them out.'
        )


def read_images(names: list[str], sources: list, size: int, resize: str) -> list[np.ndarray]:
    """Decode images.

    Args:
        names: N texts for messages.
        sources: N Paths and PIL images.
        size, resize: as in `square`.

    Returns:
        N arrays (size, size, 3) uint8.

    Raises:
        SpmlError: naming all unusable images.
    """
    decoded = _try_each(sources, size, resize)
    _refuse_unreadable(names, decoded)
    return decoded


BATCH = 32


def refuse_non_finite(values: np.ndarray, class_names: list[str]):
    """Refuse the output of a network whose weights are NaN or infinite: nothing reaches a threshold
    then, silently.

    Args:
        values: (B, C) logits or probabilities.
        class_names: C texts for the message.

    Raises:
        SpmlError: for NaN and infinity.
    """
    broken = [
        name
        for name, fine in zip(class_names, np.isfinite(values).all(axis=0), strict=True)
        if not fine
    ]
    if broken:
        raise SpmlError(
            f'the model gives no finite number for {len(broken):,} of its {len(class_names):,} '
            f'classes ({listed(broken, 5)}): its training diverged, or its weights are damaged. '
            'Train it again with a lower learning rate, or take another model.'
        )


class Predictor:
    """A trained model with what belongs to it. Call it with bytes, or give images to its `predict`.

    Args:
        description: as from `spml_nb.training.network.describe`.
        function: (B, 3, S, S) uint8 tensor → (B, C) float64 array of probabilities.

    `class_names`: C texts, in the order of the probabilities. `threshold`: the probability from
    which on a label counts as present, chosen on validation or by `spml calibrate`.
    `preprocessing`: image_size (pixels), resize, steps in words; mean and std, which are applied
    inside the network.
    """

    def __init__(self, description: dict, function: Callable | None):
        self.description, self.function = description, function
        self.class_names, self.threshold = (
            list(description['class_names']),
            description['threshold'],
        )
        kept = {k: description[k] for k in ('image_size', 'resize', 'normalise', 'mean', 'std')}
        self.preprocessing = {**kept, 'steps': STEPS.format(RESIZES[kept['resize']])}

    def __call__(self, pixels) -> np.ndarray:
        """Probabilities of prepared images.

        Args:
            pixels: (B, 3, S, S) uint8, array or tensor, prepared as `preprocessing` says.

        Returns:
            (B, C) float64.

        Raises:
            SpmlError: for another shape or type, and as `refuse_non_finite`.
        """
        pixels, size = torch.as_tensor(pixels), self.description['image_size']
        if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[1:] != (3, size, size):
            raise SpmlError(
                f'the model takes (B, 3, {size}, {size}) uint8, not {tuple(pixels.shape)} '
                f'{pixels.dtype}. Its `predict` prepares images by itself.'
            )
        probabilities = self.function(pixels)
        refuse_non_finite(probabilities, self.class_names)
        return probabilities

    def predict(
        self,
        given,
        *,
        batch_size: int = BATCH,
        threshold: float | None = None,
        skip_unreadable: bool = False,
    ) -> pd.DataFrame:
        """Probabilities and labels of images; arguments, table and errors as of the function
        `predict`.
        """
        batch_size = as_kind(batch_size, int, 'batch_size')
        if batch_size < 1:
            raise SpmlError(f'batch_size must be at least 1, not {batch_size}.')
        threshold = self.threshold if threshold is None else _checked_threshold(threshold)
        names, sources = find_images(given)
        size, resize = self.description['image_size'], self.description['resize']
        fits = len(names) * size * size * 3 <= KEPT
        decoded = _try_each(sources, size, resize, keep=fits, show=True)
        usable = [k for k, pixels in enumerate(decoded) if not isinstance(pixels, str)]
        if not (skip_unreadable and usable):
            _refuse_unreadable(names, decoded)
        unusable = {names[k]: why for k, why in enumerate(decoded) if isinstance(why, str)}
        names, sources, kept = ([each[k] for k in usable] for each in (names, sources, decoded))
        probabilities = []
        for k in progress.bar(range(0, len(names), batch_size), what='predicting', unit='batches'):
            part = slice(k, k + batch_size)
            pixels = np.stack(
                kept[part] if fits else read_images(names[part], sources[part], size, resize)
            )
            probabilities.append(self(torch.from_numpy(pixels).permute(0, 3, 1, 2)))
        table = _table(names, np.concatenate(probabilities), self.class_names, threshold)
        table.attrs['unusable'] = unusable
        table.attrs['on_validation'] = self.description.get('on_validation')
        return table


def _checked_threshold(threshold):
    number = as_number(threshold)
    if not 0 < number < 1:
        raise SpmlError(
            f'threshold={threshold!r}; allowed: a probability above 0 and below 1, such as 0.3. '
            'Leave it '
            "out for the model's own."
        )
    return number


def _table(names, probabilities, class_names, threshold):
    table = pd.DataFrame(probabilities, columns=class_names)
    table.insert(
        0, 'image', names, allow_duplicates=True
    )  # a class may be called like that as well
    labels = [
        '|'.join(name for name, p in zip(class_names, row, strict=True) if p >= threshold)
        for row in probabilities
    ]
    table.insert(table.shape[1], 'labels', labels, allow_duplicates=True)
    table.attrs['threshold'] = threshold
    return table


def as_predictor(network: Network, device: str | None = None) -> Predictor:
    """Make a network ready for use.

    Args:
        network: in evaluation mode.
        device: unset: the setting `device`.

    Returns:
        Predictor.

    Raises:
        SpmlError: for a device that is not there.
    """
    device = settings.device(device)
    network = network.to(device, memory_format=torch.channels_last)

    @torch.inference_mode()
    def function(pixels):
        logits = network(pixels.to(device)).cpu().double()
        return (
            torch.sigmoid(logits).where(logits.isfinite(), torch.nan).numpy()
        )  # of an infinite one it is 0 or 1

    return Predictor(network.description, function)
