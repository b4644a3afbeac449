"""Which files are photos, and how one is opened, turned upright and refused."""

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

FORMATS = {  # of photos, as Pillow calls them, with the suffixes that their files have
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
    """Open a file as a photo, whatever its suffix; it is not decoded yet.

    Pillow would hand an EPS named .jpg to Ghostscript, which runs programs; here only the decoders
    of `FORMATS` see a file.

    Raises:
        UnidentifiedImageError: For any other format; `explain_unreadable` names it.
    """
    return Image.open(file, formats=tuple(FORMATS))


HUGE = 2**26  # pixels


def upright(image: Image.Image) -> Image.Image:
    """Turn an opened image of any mode into RGB, the right way up, with white where it is
    transparent.

    A JPEG of more than `HUGE` pixels is decoded at half its size: what a network sees of it is the
    same to the eye, and takes a quarter of the memory.

    Returns:
        A new image, or the given one where nothing has to be done.

    Raises:
        SpmlError: For 32-bit grey. Damaged files raise what Pillow raises.
    """
    if image.width * image.height > HUGE:
        image.draft(None, (image.width // 2, image.height // 2))
    with suppress(Exception):  # unreadable tags do not spoil a photo; bad pixels raise again below
        ImageOps.exif_transpose(image, in_place=True)
    if image.mode in ('I', 'F'):
        raise SpmlError('grey values of 32 bits have no fixed range: save it with 8 or 16 bits')
    if image.mode.startswith('I;16'):
        values = np.asarray(image)
        values = np.where(values == image.info.get('transparency', -1), 65535, values)
        image = Image.fromarray((values >> 8).astype(np.uint8))
    if not image.has_transparency_data:
        # a copy of a huge photo would take as much again
        return image if image.mode == 'RGB' else image.convert('RGB')
    image = image.convert('RGBA')  # the colour that a transparent pixel hides is never seen
    return Image.alpha_composite(Image.new('RGBA', image.size, 'white'), image).convert('RGB')


def explain_unreadable(error: Exception, file: Path) -> str:
    "Say in a few words why a photo cannot be used, from what opening it raised."
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
    "The format of a file that is no photo, by its first bytes alone; None if they do not tell."
    with open(file, 'rb') as opened:
        start = opened.read(16).ljust(16, b'\0')
    Image.init()
    for name, (_, accepts) in Image.OPEN.items():
        if name not in FORMATS and accepts and accepts(start) is True:
            return name
    return next((name for name, form in _NOT_PILLOWS.items() if form.match(start)), None)


class PixelBudget:
    """What threads may decode at a time, in pixels rather than photos: eight photos of 178
    megapixels take 9 GB.

    Args:
        limit: Pixels. A photo that has more is decoded while no other is.
    """

    def __init__(self, limit: int):
        self.limit = limit
        self.used = 0
        self._changed = Condition()

    @contextmanager
    def hold(self, image: Image.Image) -> Iterator[None]:
        "Wait until there is room for an image not decoded yet, and take it until the block ends."
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


# one for all threads of the process: about 1 GiB while they are decoded, converted and turned
budget = PixelBudget(2**27)


def describe_animated(files: Iterable, names: Iterable[str]) -> str:
    """Say which files are GIFs of several pictures; '' where none is.

    Args:
        files: Paths; what is none counts as a photo.
        names: Of each, for the message.
    """
    animated = [name for file, name in zip(files, names, strict=True) if _is_animated_gif(file)]
    if not animated:
        return ''
    shown = ', '.join(animated[:5]) + ', …' * (len(animated) > 5)
    return (
        f'{len(animated):,} images are animated, of which the first picture is used: {shown}. Save '
        'another as a photo to use that.'
    )


def _is_animated_gif(file):
    if not isinstance(file, Path) or file.suffix.lower() != '.gif':
        return False
    try:
        with open_photo(file) as image:
            return getattr(image, 'is_animated', False)
    except Exception:  # whoever decodes it says what is wrong
        return False
