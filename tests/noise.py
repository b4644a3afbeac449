"Photos of noise in all shapes, and how Pillow sees them."

import numpy as np
from PIL import Image

SHAPES = [(90, 61), (64, 100), (33, 47), (139, 100), (57, 57), (200, 150)]


def noise_photos(folder):
    """Six photos of noise in colour, wide and tall, JPEG and PNG; one lies on its side by its EXIF
    tag.
    """
    (folder / 'photos').mkdir()
    files = []
    for k, (width, height) in enumerate(SHAPES):
        pixels = np.random.RandomState(k).randint(
            0, 256, (height // 4 + 1, width // 4 + 1, 3), dtype=np.uint8
        )
        image = Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)
        file = folder / 'photos' / f'{k}.{"png" if k % 2 else "jpg"}'
        exif = image.getexif()
        if k == 2:
            exif[0x0112] = 6
        image.save(file, exif=exif)
        files.append(file)
    return files


def opened(file):
    with Image.open(file) as image:
        if image.getexif().get(0x0112) == 6:
            image = image.transpose(Image.Transpose.ROTATE_270)
        return image.convert('RGB')
