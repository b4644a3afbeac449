"""Reduce large photos to small JPEGs, which take less disk space and time to decode."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from ...base.errors import SpmlError
from .. import fetch
from ..decoding import open_photo
from ..folder import Listing

QUALITY = 76  # of the JPEGs


@dataclass(frozen=True)
class Small:
    """The size of reduced photos.

    Args:
        side: Maximum of the shorter side in pixels.
        square: Make every photo a square of that side instead.
    """

    side: int
    square: bool = False

    def size(self, width: int, height: int) -> tuple[int, int]:
        "The reduced width and height."
        if self.square:
            return self.side, self.side
        factor = min(1, self.side / min(width, height))
        return round(factor * width), round(factor * height)


def shrink_images(listing: Listing, folder: Path, small: Small):
    """Write the images of a listing as JPEGs, cropped and reduced from their originals.

    Args:
        listing: `originals` are pairs of a file and a box (left, top, right, bottom in pixels), or
            None for the full photo.
        folder: The target, which is replaced.

    Raises:
        SpmlError: If an original is missing or damaged, or an image cannot be written.
    """

    def make(name, original):
        file, box = original
        try:
            with open_photo(file) as image:
                photo = image.convert('RGB').crop(box)
            photo = photo.resize(small.size(*photo.size), Image.Resampling.LANCZOS)
        except Exception as error:  # Pillow's plugins raise many types
            raise SpmlError(
                f'{file} cannot be read as a photo: {error or type(error).__name__}. Remove the '
                'archive and the folder into which it was unpacked, and give the command again.'
            ) from error
        photo.save(temporary / name, 'JPEG', quality=QUALITY)

    shutil.rmtree(folder, ignore_errors=True)
    with fetch.fill_folder(folder) as temporary, ThreadPoolExecutor() as pool:
        for _ in pool.map(make, listing.images, listing.originals):
            pass
