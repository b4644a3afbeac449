"""Photo formats: opening files safely, converting to upright RGB, explaining what is unreadable."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ..base.errors import SpmlError
from .dataset import join_items

FORMATS = {  # Pillow's name of a format: suffixes of its files
    'JPEG': ('.jpg', '.jpeg', '.jfif', '.mpo'),
    'PNG': ('.png',),
    'GIF': ('.gif',),
    'BMP': ('.bmp',),
    'TIFF': ('.tif', '.tiff'),
    'WEBP': ('.webp',),
    'AVIF': ('.avif',),
    'JPEG2000': ('.jp2',),
    'PPM': ('.ppm', '.pgm', '.pbm', '.pnm'),
}
try:
    import pillow_heif
except ImportError:
    pillow_heif = None
else:
    pillow_heif.register_heif_opener()
    FORMATS['HEIF'] = ('.heic', '.heif')
PHOTOS = {suffix for suffixes in FORMATS.values() for suffix in suffixes}


def open_photo(file: Path | BinaryIO) -> Image.Image:
    """Open a file in one of `FORMATS`, whatever its suffix, without decoding it.

    Other formats are refused for safety: Pillow would pass an EPS named .jpg to Ghostscript, which
    runs programs.

    Raises:
        UnidentifiedImageError: For any other format; `explain_unreadable` names it.
    """
    return Image.open(file, formats=tuple(FORMATS))


HUGE = 2**26  # pixels


def to_upright_rgb(image: Image.Image) -> Image.Image:
    """Convert an opened image of any mode to RGB, rotated as its EXIF tag says, on white.

    A JPEG of more than `HUGE` pixels is decoded at half its size, which saves three quarters of
    the memory and makes no visible difference at the size of a network's input.

    Returns:
        A new image, or `image` itself if nothing had to be done.

    Raises:
        SpmlError: For 32-bit grey. For damaged files Pillow raises various exceptions.
    """
    if image.width * image.height > HUGE:
        image.draft(None, (image.width // 2, image.height // 2))
    with suppress(Exception):  # unreadable tags do no harm; damaged pixels raise again below
        ImageOps.exif_transpose(image, in_place=True)
    if image.mode in ('I', 'F'):
        raise SpmlError('grey values of 32 bits have no fixed range: save it with 8 or 16 bits')
    if image.mode.startswith('I;16'):
        values = np.asarray(image)
        values = np.where(values == image.info.get('transparency', -1), 65535, values)
        image = Image.fromarray((values >> 8).astype(np.uint8))
    if not image.has_transparency_data:
        # convert() would copy an RGB image
        return image if image.mode == 'RGB' else image.convert('RGB')
    image = image.convert('RGBA')
    return Image.alpha_composite(Image.new('RGBA', image.size, 'white'), image).convert('RGB')


def explain_unreadable(error: Exception, file: Path) -> str:
    "Explain in a few words why opening or decoding a photo raised this error."
    if isinstance(error, UnidentifiedImageError):
        if not os.path.getsize(file):
            return 'an empty file'
        if other := _other_format(file):
            return f'{other}{_REMEDIES.get(other, "")}; allowed: {", ".join(FORMATS)}'
        return 'not an image that Pillow can read'
    if isinstance(error, Image.DecompressionBombError):
        return f'more than the {2 * Image.MAX_IMAGE_PIXELS:,} pixels that Pillow opens'
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error) or type(error).__name__
    return text.splitlines()[0][:120]


_NOT_PILLOWS = {
    'PDF': re.compile(rb'%PDF'),
    'HEIC': re.compile(rb'.{4}ftyp(hei|hev|mif1)', re.DOTALL),
}
_REMEDIES = {'HEIC': ' that cannot be decoded'}
if pillow_heif is None:
    _REMEDIES['HEIC'] = ", for which pillow-heif is needed: pip install 'spml_nb[photos]'"


def _other_format(file):
    "Guess the format of a file outside `FORMATS` from its first bytes; None if they do not tell."
    with open(file, 'rb') as opened:
        start = opened.read(16).ljust(16, b'\0')
    Image.init()
    for name, (_, accepts) in Image.OPEN.items():
        if name not in FORMATS and accepts and accepts(start) is True:
            return name
    return next((name for name, form in _NOT_PILLOWS.items() if form.match(start)), None)


class PixelBudget:
    """Limit on the pixels that threads decode at the same time.

    Without it, eight threads that decode photos of 178 megapixels take 9 GB.

    Args:
        limit: Pixels. A larger photo is decoded alone.
    """

    def __init__(self, limit: int):
        self.limit = limit
        self.used = 0
        self._changed = Condition()

    @contextmanager
    def hold(self, image: Image.Image) -> Iterator[None]:
        "Reserve the pixels of an image for the block, waiting until they are available."
        pixels = min(image.width * image.height, self.limit)
        with self._changed:
            self._changed.wait_for(lambda: self.used + pixels <= self.limit)
            self.used += pixels
        try:
            yield
        finally:
            with self._changed:
                self.used -= pixels
                self._changed.notify_all()


# for all threads of the process: about 1 GiB, counting the copies made by conversion and rotation
pixel_budget = PixelBudget(2**27)


def describe_animated(files: Iterable, names: Iterable[str]) -> str:
    """Name the animated GIFs among files, of which only the first frame is used; '' if none.

    Args:
        files: Paths; anything else, such as an array, is skipped.
        names: Name of each file for the message.
    """
    animated = [name for file, name in zip(files, names, strict=True) if _is_animated_gif(file)]
    if not animated:
        return ''
    return (
        f'{len(animated):,} images are animated, of which the first frame is used: '
        f'{join_items(animated, 5)}. To use another, save it as a photo.'
    )


def _is_animated_gif(file):
    if not isinstance(file, Path) or file.suffix.lower() != '.gif':
        return False
    try:
        with open_photo(file) as image:
            return getattr(image, 'is_animated', False)
    except Exception:  # decoding it will explain what is wrong
        return False
