"""Photos: transparency, formats, and files that are none."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageOps, features

from spml_nb.data.decoding import (
    FORMATS,
    PHOTOS,
    describe_animated,
    explain_unreadable,
    open_photo,
    to_upright_rgb,
)

# ---- transparency

RNG = np.random.default_rng(0)
VISIBLE = RNG.integers(0, 256, (12, 10, 3), dtype=np.uint8)
ALPHA = RNG.choice(np.array([0, 90, 255], np.uint8), (12, 10))


def transparent(mode, hidden, file):
    """Save a picture that is the same to the eye whatever colour it hides.

    Args:
        mode: RGBA, LA, P (alpha of each palette entry), GIF (one transparent entry), RGB or L (one
            transparent colour), I;16.
        hidden: The hidden grey, 0 to 254.
        file: Where to.

    Returns:
        (12, 10, 3) float, what is seen on white.
    """
    grey, clear = VISIBLE[..., 0], ALPHA == 0
    if mode in ('RGBA', 'LA'):
        colours = VISIBLE if mode == 'RGBA' else np.repeat(grey[..., None], 3, 2)
        pixels = np.where(clear[..., None], hidden, colours).astype(np.uint8)
        Image.fromarray(np.dstack([pixels if mode == 'RGBA' else pixels[..., :1], ALPHA])).save(
            file
        )
        share = ALPHA[..., None] / 255
        return share * colours + (1 - share) * 255
    if mode in ('P', 'GIF'):
        palette = [*range(10, 250, 60), hidden]  # greys; the last is transparent
        index = np.where(clear, len(palette) - 1, grey % (len(palette) - 1)).astype(np.uint8)
        image = Image.fromarray(index, 'P')
        image.putpalette([value for value in palette for _ in range(3)])
        alpha = bytes([255] * (len(palette) - 1) + [0])
        image.save(
            file,
            'PNG' if mode == 'P' else 'GIF',
            transparency=alpha if mode == 'P' else len(palette) - 1,
        )
        return np.repeat(np.where(clear, 255, np.array(palette)[index])[..., None], 3, 2).astype(
            float
        )
    if mode == 'I;16':
        pixels = np.where(clear, hidden * 256 + 7, grey.astype(np.uint16) * 256 + 9).astype(
            np.uint16
        )
        Image.fromarray(pixels).save(file, transparency=hidden * 256 + 7)
        return np.repeat(np.where(clear, 255, grey)[..., None], 3, 2).astype(float)
    colours = (
        np.where(VISIBLE == hidden, 255, VISIBLE)
        if mode == 'RGB'
        else np.where(grey == hidden, 255, grey)
    )
    pixels = np.where(clear[..., None] if mode == 'RGB' else clear, hidden, colours).astype(
        np.uint8
    )
    Image.fromarray(pixels).save(file, transparency=(hidden,) * 3 if mode == 'RGB' else hidden)
    seen = np.where(clear[..., None] if mode == 'RGB' else clear, 255, colours)
    return np.repeat(seen[..., None], 3, 2).astype(float) if mode == 'L' else seen.astype(float)


@pytest.mark.silent('C3')
@pytest.mark.parametrize('hidden', [0, 40, 254])
@pytest.mark.parametrize('mode', ['RGBA', 'LA', 'P', 'GIF', 'RGB', 'L', 'I;16'])
def test_what_is_transparent_is_white_whatever_it_hides(tmp_path, mode, hidden):
    file = tmp_path / ('x.gif' if mode == 'GIF' else 'x.png')
    seen = transparent(mode, hidden, file)
    with Image.open(file) as image:
        assert image.has_transparency_data
        pixels = np.asarray(to_upright_rgb(image))
    assert np.abs(pixels - seen).max() <= 1
    assert (pixels[ALPHA == 0] == 255).all()


@pytest.mark.silent('C3')
def test_a_palette_with_alpha_is_laid_on_white():
    image = Image.fromarray(np.dstack([VISIBLE, ALPHA])).convert('PA')
    pixels, seen = (
        np.asarray(to_upright_rgb(image.copy())),
        np.asarray(image.convert('RGBA'), float),
    )
    share = seen[..., 3:] / 255
    assert (
        np.abs(pixels - (share * seen[..., :3] + (1 - share) * 255)).max() <= 1
        and (pixels[ALPHA == 0] == 255).all()
    )


@pytest.mark.silent('C3')
@pytest.mark.parametrize('mode', ['RGB', 'L', 'CMYK'])
def test_the_pixels_of_a_jpeg_are_as_they_were_bit_for_bit(tmp_path, mode):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(VISIBLE).convert(mode).save(tmp_path / 'x.jpg', exif=exif)
    with Image.open(tmp_path / 'x.jpg') as image:
        expected = ImageOps.exif_transpose(image).convert('RGB')
    with Image.open(tmp_path / 'x.jpg') as image:
        pixels = to_upright_rgb(image)
    assert pixels.size == (12, 10) and pixels.tobytes() == expected.tobytes()


# ---- formats


@pytest.mark.silent('C8')
def test_every_suffix_of_a_photo_is_that_of_a_format_that_is_opened(tmp_path):
    for name, suffixes in FORMATS.items():
        if name == 'AVIF' and not features.check('avif'):
            continue
        for suffix in suffixes:
            file = tmp_path / f'x{suffix}'
            Image.fromarray(VISIBLE).save(file, name)
            with open_photo(file) as image:
                assert image.format == name and to_upright_rgb(image).size == (10, 12)
    assert (
        {'.jfif', '.avif', '.jpg', '.png', '.webp'}
        < PHOTOS
        == {suffix for each in FORMATS.values() for suffix in each}
    )


@pytest.mark.silent('C10')
@pytest.mark.parametrize(
    'found, content',
    [
        ('EPS', b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n'),
        ('PSD', b'8BPS\0\1' + bytes(30)),
        ('PDF', b'%PDF-1.7\n'),
        ('HEIC', b'\0\0\0\x18ftypheic' + bytes(16)),
        ('WMF', b'\xd7\xcd\xc6\x9a\0\0' + bytes(40)),
    ],
)
def test_a_file_of_another_format_reaches_no_decoder_and_is_named(
    tmp_path, monkeypatch, found, content
):
    from PIL import EpsImagePlugin

    monkeypatch.setattr(
        EpsImagePlugin, 'Ghostscript', lambda *_, **__: pytest.fail('Ghostscript was started')
    )
    file = tmp_path / 'x.jpg'
    file.write_bytes(content)
    with pytest.raises(OSError) as told, open_photo(file) as image:
        image.load()
    why = explain_unreadable(told.value, file)
    assert why.startswith(found) and all(name in why for name in FORMATS)


# ---- huge, animated and HEIC

PEAK = """
import resource, sys
from spml_nb.data.decoding import open_photo, to_upright_rgb

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

before = peak()
with open_photo(sys.argv[1]) as image:
    small = to_upright_rgb(image).resize((224, 224))
print(peak() - before, *small.getpixel((100, 100)))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != 'linux', reason='peak memory as Linux has it')
@pytest.mark.parametrize(
    'suffix, orientation, most', [('.jpg', 1, 160), ('.jpg', 6, 280), ('.png', 1, 480)]
)
def test_a_photo_of_108_megapixels_takes_little_memory(tmp_path, suffix, orientation, most):
    file = tmp_path / f'huge{suffix}'
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {'compress_level': 0} if suffix == '.png' else {'exif': exif}
    Image.new('RGB', (12_000, 9_000), (200, 100, 40)).save(file, **options)
    done = subprocess.run([sys.executable, '-c', PEAK, file], capture_output=True, text=True)
    taken, *colour = map(int, done.stdout.split())
    assert taken < most * 2**20, f'{taken / 2**20:.0f} MiB'
    assert np.allclose(colour, (200, 100, 40), atol=2)


def test_only_huge_photos_are_decoded_at_half_size(tmp_path, monkeypatch):
    photo = Image.effect_noise((90, 60), 80).resize((180, 120)).convert('RGB')
    photo.save(tmp_path / 'x.jpg')
    with open_photo(tmp_path / 'x.jpg') as image:
        assert np.array_equal(to_upright_rgb(image), np.asarray(Image.open(tmp_path / 'x.jpg')))
    monkeypatch.setattr('spml_nb.data.decoding.HUGE', 180 * 120 - 1)
    with open_photo(tmp_path / 'x.jpg') as image:
        assert to_upright_rgb(image).size == (90, 60)


def test_animated_gifs_are_known_and_show_their_first_picture(tmp_path):
    pictures = [Image.new('RGB', (8, 6), colour) for colour in ('red', 'blue')]
    pictures[0].save(tmp_path / 'a.gif', save_all=True, append_images=pictures[1:])
    pictures[1].save(tmp_path / 'b.gif')
    (tmp_path / 'c.gif').write_bytes(b'GIF89a')
    files = [tmp_path / name for name in ('b.gif', 'a.gif', 'c.gif', 'gone.gif')]
    text = describe_animated([*files, pictures[0]], ['b', 'moving', 'c', 'gone', 'x'])
    assert text.startswith('1 ') and 'moving.' in text
    assert describe_animated(files[:1], ['b']) == ''
    with open_photo(files[1]) as image:
        assert np.asarray(to_upright_rgb(image))[0, 0].tolist() == [255, 0, 0]


@pytest.mark.skipif('HEIF' in FORMATS, reason='pillow-heif is installed')
def test_a_heic_says_what_to_install(tmp_path):
    (tmp_path / 'x.heic').write_bytes(b'\0\0\0\x18ftypheic' + bytes(16))
    with pytest.raises(OSError) as caught:
        open_photo(tmp_path / 'x.heic')
    assert "pip install 'spml_nb[photos]'" in explain_unreadable(caught.value, tmp_path / 'x.heic')


def test_a_heic_is_opened_where_that_is_installed(tmp_path):
    pillow_heif = pytest.importorskip('pillow_heif')
    pillow_heif.register_heif_opener()
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:20] = 200
    Image.fromarray(pixels).save(tmp_path / 'x.heic', quality=-1)
    assert '.heic' in PHOTOS
    with open_photo(tmp_path / 'x.heic') as image:
        seen = np.asarray(to_upright_rgb(image))
    assert seen.shape == pixels.shape
    assert abs(seen.astype(int) - pixels).max() < 8
