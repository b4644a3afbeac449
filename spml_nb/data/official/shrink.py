"""Shrinks large photos to small JPEGs, so that a set fits on any disk and is decoded quickly."""

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
    """The size that photos are made.

    Args:
        side: Pixels of the shorter side, if it is longer than that.
        square: Whether every photo becomes a square of that side instead.
    """

    side: int
    square: bool = False

    def size(self, width: int, height: int) -> tuple[int, int]:
        "The new width and height of a photo, or of its box."
        if self.square:
            return self.side, self.side
        factor = min(1, self.side / min(width, height))
        return round(factor * width), round(factor * height)


def shrink(listing: Listing, folder: Path, small: Small):
    """Make the images of a listing from their originals, as JPEGs of quality 76.

    Args:
        listing: With `originals`: a file each, and the box (left, top, right, bottom, in pixels)
            that is kept, or None.
        folder: Where the images come; what is there is removed.
        small: Their size.

    Raises:
        SpmlError: For an original that is missing or no whole photo, and if the disk refuses.
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
                'archive it came from and what was unpacked of it, and give the command again.'
            ) from error
        photo.save(temporary / name, 'JPEG', quality=QUALITY)

    shutil.rmtree(folder, ignore_errors=True)
    with fetch.fill_folder(folder) as temporary, ThreadPoolExecutor() as pool:
        for _ in pool.map(make, listing.images, listing.originals):
            pass
