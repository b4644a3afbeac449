"""Photos made small: sizes, boxes, and all of them or none."""

import numpy as np
import pytest
from PIL import Image
from small_copies import refused

from spml_nb.data.folder import Listing
from spml_nb.data.official.shrink import QUALITY, Small, shrink_images


@pytest.mark.parametrize(
    ('side', 'square', 'before', 'after'),
    [
        (192, False, (500, 375), (256, 192)),
        (192, False, (375, 500), (192, 256)),
        (192, False, (500, 281), (342, 192)),
        (192, False, (500, 335), (287, 192)),
        (192, False, (192, 300), (192, 300)),
        (192, False, (500, 88), (500, 88)),
        (192, True, (31, 900), (192, 192)),
        (128, True, (60, 40), (128, 128)),
    ],
)
def test_only_the_shorter_side_counts_and_no_photo_grows(side, square, before, after):
    assert Small(side, square).size(*before) == after


def test_a_photo_keeps_its_place_its_colours_and_its_box(tmp_path):
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:, :20], pixels[:, 20:40], pixels[:, 40:] = (200, 0, 0), (0, 200, 0), (0, 0, 200)
    Image.fromarray(pixels).save(tmp_path / 'flag.png')
    Image.fromarray(pixels[..., 0]).save(tmp_path / 'grey.png')
    originals = [
        (tmp_path / 'flag.png', None),
        (tmp_path / 'flag.png', (20.2, 0.0, 39.9, 30.0)),
        (tmp_path / 'grey.png', None),
    ]
    (tmp_path / 'images').mkdir()
    (tmp_path / 'images' / 'old.jpg').touch()
    shrink_images(
        Listing(['c.jpg', 'a.jpg', 'b.jpg'], np.ones((3, 1), np.int8), ['x'], None, originals),
        tmp_path / 'images',
        Small(20),
    )
    made = {path.name: Image.open(path) for path in (tmp_path / 'images').iterdir()}
    assert {name: (image.size, image.mode, image.format) for name, image in made.items()} == {
        'c.jpg': ((30, 20), 'RGB', 'JPEG'),
        'a.jpg': ((20, 30), 'RGB', 'JPEG'),
        'b.jpg': ((30, 20), 'RGB', 'JPEG'),
    }
    assert (
        np.asarray(made['c.jpg'])[10, [3, 26]].argmax(1).tolist() == [0, 2]
        and (np.asarray(made['a.jpg']).argmax(2) == 1).all()
    )
    Image.new('RGB', (8, 8)).save(tmp_path / 'known.jpg', quality=QUALITY)
    with Image.open(tmp_path / 'known.jpg') as known:
        assert known.quantization == made['c.jpg'].quantization


@pytest.mark.parametrize('damage', ['missing', 'no image', 'truncated', 'empty box'])
def test_all_photos_or_none(tmp_path, damage):
    for name in 'abc':
        Image.effect_noise((90, 60), 40).save(tmp_path / f'{name}.jpg')
    if damage == 'missing':
        (tmp_path / 'b.jpg').unlink()
    elif damage != 'empty box':
        (tmp_path / 'b.jpg').write_bytes(
            b'none' if damage == 'no image' else (tmp_path / 'b.jpg').read_bytes()[:-300]
        )
    originals = [
        (tmp_path / f'{name}.jpg', (5, 5, 5, 9) if (damage, name) == ('empty box', 'b') else None)
        for name in 'abc'
    ]
    with refused(tmp_path / 'b.jpg', 'cannot be read as a photo', 'Remove the archive'):
        shrink_images(
            Listing(['a.jpg', 'b.jpg', 'c.jpg'], np.ones((3, 1), np.int8), ['x'], None, originals),
            tmp_path / 'images',
            Small(30),
        )
    assert sorted(path.name for path in tmp_path.iterdir() if 'images' in path.name) == []
