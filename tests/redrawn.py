"""Photos that change in place: same names, byte sizes and times, other pixels."""

import os

import pandas as pd
from PIL import Image, ImageOps


def as_bitmaps(folder):
    """Turns the PNGs of a folder of photos into BMPs, whose size does not depend on what they show.
    Returns: the folder.
    """
    for file in (folder / 'images').glob('*.png'):
        Image.open(file).save(file.with_suffix('.bmp'))
        file.unlink()
    table = pd.read_csv(folder / 'labels.csv')
    table.assign(image=table.image.str.replace('.png', '.bmp')).to_csv(
        folder / 'labels.csv', index=False
    )
    return folder


def redraw(*files):
    "Inverts photos, and sets their times back as an archive would."
    for file in files:
        before = file.stat()
        with Image.open(file) as image:
            inverted = ImageOps.invert(image.convert('RGB'))
        inverted.save(file)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert file.stat().st_size == before.st_size
