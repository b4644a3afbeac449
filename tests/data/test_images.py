"""Images: decoding, the cache and its accidents, batches, whole photos and crops."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import numpy as np
import pytest
import torch
from noise import noise_photos, opened
from PIL import Image, ImageOps
from redrawn import redraw
from torchvision.transforms import CenterCrop, RandomResizedCrop, Resize

from spml_nb import data as datasets
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.base.files import TEMPORARY
from spml_nb.data import images
from spml_nb.data.dataset import Dataset
from spml_nb.data.decoding import pixel_budget
from spml_nb.data.images import (
    Photos,
    cache_file,
    centre_crops,
    copy_pixels,
    open_images,
    open_photos,
    random_crops,
    squash_image,
)


def noise(width=50, height=37, channels=3, seed=0):
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.RandomState(seed).randint(0, 256, shape, dtype=np.uint8)


def dataset(files, name='set'):
    split = np.full(len(files), 'train')
    images = files if isinstance(files, np.ndarray) else [Path(file) for file in files]
    return Dataset(name, images, np.ones((len(files), 1), np.int8), ['c'], split)


def resized(image, size):
    return np.asarray(Resize((size, size))(image.convert('RGB')))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_CACHE', str(tmp_path / 'cache'))
    return tmp_path / 'cache' / 'images'


@pytest.fixture
def photos(tmp_path):
    "Six photos of different shapes, JPEG and PNG."
    (tmp_path / 'photos').mkdir()
    files = [tmp_path / 'photos' / f'{k}.{"png" if k % 2 else "jpg"}' for k in range(6)]
    for k, file in enumerate(files):
        Image.fromarray(noise(40 + 9 * k, 70 - 8 * k, seed=k)).save(file)
    return files


def inside(folder):
    return (
        sorted(file.name for file in folder.iterdir() if file.suffix != '.lock')
        if folder.exists()
        else []
    )


# ---- decoding


@pytest.mark.parametrize('size', [1, 16, 37, 64])
def test_pixels_equal_torchvisions_resize_of_the_opened_photo(photos, size):
    store = open_images(dataset(photos), size)
    assert (
        store.shape == (6, size, size, 3) and store.dtype == np.uint8 and not store.flags.writeable
    )
    for pixels, file in zip(store, photos, strict=True):
        with Image.open(file) as image:
            assert np.array_equal(pixels, resized(image, size))


def test_real_photos_equal_torchvisions_resize(ccp):
    data = datasets.load(ccp)
    part = dataset(data.images[:6])
    for pixels, file in zip(open_images(part, 224), part.images, strict=True):
        with Image.open(file) as image:
            assert np.array_equal(pixels, resized(image, 224))


def test_more_photos_than_wait_at_once_stay_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, 'count_cores', lambda: 2)
    files = [tmp_path / f'{k}.png' for k in range(50)]
    for k, file in enumerate(files):
        Image.new('RGB', (3, 3), (k, k, k)).save(file)
    assert open_images(dataset(files), 2)[:, 0, 0, 0].tolist() == list(range(50))


@pytest.mark.parametrize(
    'mode, suffix',
    [
        ('CMYK', 'jpg'),
        ('L', 'jpg'),
        ('L', 'png'),
        ('P', 'png'),
        ('P', 'gif'),
        ('1', 'png'),
        ('LA', 'png'),
        ('RGB', 'bmp'),
        ('RGB', 'tif'),
        ('RGB', 'webp'),
    ],
)
def test_every_common_mode_becomes_rgb_as_pillow_does_it(tmp_path, mode, suffix):
    file = tmp_path / f'x.{suffix}'
    image = Image.fromarray(noise()).convert(mode)
    image.save(file)
    with Image.open(file) as opened:
        expected = resized(opened, 20)
    assert np.array_equal(open_images(dataset([file]), 20)[0], expected) and expected.std() > 5


@pytest.mark.silent('C3')
def test_training_and_prediction_see_a_transparent_picture_alike_and_no_hidden_colour(tmp_path):
    from spml_nb.use.predictor import make_square

    alpha, seen = np.zeros((37, 50), np.uint8), []
    alpha[:, :25] = 255
    for hidden in (0, 200):
        pixels = noise()
        pixels[alpha == 0] = hidden
        file = tmp_path / f'{hidden}.png'
        Image.fromarray(np.dstack([pixels, alpha])).save(file)
        seen.append(open_images(dataset([file]), 16)[0])
        with Image.open(file) as image:
            assert np.array_equal(make_square(image, 16, 'squash'), seen[-1])
        assert (open_photos(dataset([file]))[0][:, 25:] == 255).all()
    assert np.array_equal(*seen) and (seen[0][:, 9:] == 255).all() and seen[0][:, :7].std() > 5


@pytest.mark.silent('C3')
def test_a_cache_of_pixels_without_transparency_is_not_read(photos, monkeypatch):
    now = cache_file(dataset(photos), 16)
    monkeypatch.setattr(images, 'CACHE_VERSION', 1)  # the version that dropped it
    assert cache_file(dataset(photos), 16) != now


@pytest.mark.silent('C10')
def test_nothing_that_opens_photos_starts_ghostscript(tmp_path, monkeypatch):
    from PIL import EpsImagePlugin

    from spml_nb.data.lookalikes import inspect_photos
    from spml_nb.use.predictor import read_images

    started, file = [], tmp_path / 'x.jpg'
    monkeypatch.setattr(
        EpsImagePlugin,
        'Ghostscript',
        lambda *_, **__: started.append(1) or Image.new('RGB', (9, 9)).im,
    )
    file.write_bytes(b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n')
    for use in (
        lambda: open_images(dataset([file]), 4),
        lambda: read_images(['x.jpg'], [file], 4, 'squash'),
    ):
        with pytest.raises(SpmlError, match=r'x\.jpg \(EPS; allowed: JPEG, PNG'):
            use()
    assert inspect_photos([file]).unusable[0].startswith('EPS; allowed: JPEG') and not started


class Counted:
    "Counts the pixels that are being decoded at the same time."

    def __init__(self, monkeypatch, *modules):
        self.now, self.most, self.lock, self.upright = 0, 0, Lock(), images.to_upright_rgb
        for module in modules:
            monkeypatch.setattr(module, 'to_upright_rgb', self)

    def __call__(self, image):
        pixels = image.width * image.height
        with self.lock:
            self.now += pixels
            self.most = max(self.most, self.now)
        time.sleep(0.02)  # so that others would come in
        try:
            return self.upright(image)
        finally:
            with self.lock:
                self.now -= pixels


@pytest.mark.silent('C8')
@pytest.mark.parametrize('how', ['training', 'whole', 'look', 'prediction'])
def test_no_more_pixels_are_decoded_at_a_time_than_there_is_room_for(tmp_path, monkeypatch, how):
    "One photo has more than that by itself, and is decoded alone."
    from spml_nb.data import lookalikes
    from spml_nb.use.predictor import read_images

    monkeypatch.setattr(settings, 'count_cores', lambda: 8)
    limit, sizes = 3000, [(40, 25)] * 12 + [(70, 50)] + [(30, 20)] * 6
    monkeypatch.setattr(pixel_budget, 'limit', limit)
    files = [tmp_path / f'{k}.png' for k in range(len(sizes))]
    for file, (width, height) in zip(files, sizes, strict=True):
        Image.fromarray(noise(width, height)).save(file)
    counted = Counted(monkeypatch, images, lookalikes)
    if how == 'training':
        open_images(dataset(files), 8)
    if how == 'whole':
        open_photos(dataset(files))
    if how == 'look':
        lookalikes.inspect_photos(files)
    if how == 'prediction':
        (
            read_images([*map(str, files[:10])], files[:10], 8, 'squash'),
            read_images(
                [*map(str, files[10:])], [Image.open(file) for file in files[10:]], 8, 'squash'
            ),
        )
    assert (
        2000 <= counted.most <= 3500 and counted.now == 0
    )  # several at a time, and the large one alone


@pytest.mark.silent('C8')
def test_a_photo_that_cannot_be_decoded_gives_its_room_back(tmp_path, photos, monkeypatch):
    monkeypatch.setattr(pixel_budget, 'limit', 100)
    photos[0].write_bytes(photos[0].read_bytes()[:-200])
    with pytest.raises(SpmlError, match='1 of 6'):
        open_images(dataset(photos), 8)
    assert pixel_budget.used == 0


def test_sixteen_bit_grey_keeps_its_high_byte(tmp_path):
    grey = np.random.RandomState(0).randint(0, 65536, (30, 40)).astype(np.uint16)
    for suffix in ('png', 'tif'):
        Image.fromarray(grey).save(tmp_path / f'x.{suffix}')
    store = open_images(dataset([tmp_path / 'x.png', tmp_path / 'x.tif']), 25)
    for pixels in store:
        assert np.array_equal(pixels, resized(Image.fromarray((grey // 256).astype(np.uint8)), 25))


@pytest.mark.parametrize('mode', ['I', 'F'])
def test_grey_of_32_bits_is_refused(tmp_path, mode):
    Image.new(mode, (5, 5), 7).save(tmp_path / 'x.tif')
    with pytest.raises(SpmlError, match=r'x\.tif \(grey values of 32 bits'):
        open_images(dataset([tmp_path / 'x.tif']), 4)


@pytest.mark.parametrize('tag', range(1, 9))
def test_exif_orientation_is_obeyed(tmp_path, tag):
    image, exif = Image.fromarray(noise()), Image.Exif()
    exif[0x0112] = tag
    image.save(tmp_path / 'x.png', exif=exif)
    with Image.open(tmp_path / 'x.png') as opened:
        upright = resized(ImageOps.exif_transpose(opened), 30)
    assert np.array_equal(open_images(dataset([tmp_path / 'x.png']), 30)[0], upright)
    assert (tag == 1) == np.array_equal(upright, resized(image, 30))


def test_unreadable_tags_do_not_lose_a_photo(tmp_path):
    image = Image.fromarray(noise())
    image.save(tmp_path / 'x.png', exif=b'Exif\0\0no tags at all')
    with Image.open(tmp_path / 'x.png') as opened, pytest.raises(SyntaxError):
        ImageOps.exif_transpose(opened)
    assert np.array_equal(open_images(dataset([tmp_path / 'x.png']), 30)[0], resized(image, 30))


def test_one_pixel_photos_and_extreme_shapes_are_photos(tmp_path):
    shapes = [(1, 1), (1, 400), (3000, 2)]
    files = [tmp_path / f'{k}.png' for k in range(3)]
    for file, (width, height) in zip(files, shapes, strict=True):
        Image.fromarray(noise(width, height)).save(file)
    store = open_images(dataset(files), 8)
    assert (store[0] == noise(1, 1)[0, 0]).all()
    for pixels, (width, height) in zip(store, shapes, strict=True):
        assert np.array_equal(pixels, resized(Image.fromarray(noise(width, height)), 8))


def test_an_animation_gives_its_first_frame(tmp_path):
    first, *rest = [Image.fromarray(noise(seed=k)).convert('P') for k in range(3)]
    first.save(tmp_path / 'x.gif', save_all=True, append_images=rest)
    assert np.array_equal(open_images(dataset([tmp_path / 'x.gif']), 20)[0], resized(first, 20))


def png_header(width, height):
    "A file that claims to be a large PNG."

    def chunk(kind, body):
        return (
            struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
        )

    return (
        b'\x89PNG\r\n\x1a\n'
        + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0))
        + chunk(b'IDAT', zlib.compress(b''))
        + chunk(b'IEND', b'')
    )


def test_long_photos_decode_and_bombs_are_named(tmp_path, monkeypatch):
    Image.fromarray(noise(20000, 10)).save(tmp_path / 'long.png')
    with Image.open(tmp_path / 'long.png') as image:
        expected = resized(image, 4)
    assert np.array_equal(open_images(dataset([tmp_path / 'long.png']), 4)[0], expected)
    (tmp_path / 'bomb.png').write_bytes(png_header(20000, 20000))
    with pytest.raises(SpmlError, match=r'bomb\.png \(more than the [\d,]+ pixels'):
        open_images(dataset([tmp_path / 'bomb.png']), 4)
    monkeypatch.setattr(
        Image, 'MAX_IMAGE_PIXELS', 150_000
    )  # Pillow would warn of this photo, and refuse one of 300,000 pixels
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert np.array_equal(
            open_images(dataset([tmp_path / 'long.png'], 'again'), 4)[0], expected
        )


# ---- images in memory


def test_images_in_memory_are_returned_as_they_are_or_resized_alike(cache):
    pixels = np.stack([noise(40, 40, seed=k) for k in range(3)])
    data = Dataset(
        'memory', pixels, np.ones((3, 1), np.int8), ['c'], np.array(['train', 'val', 'test'])
    )
    assert open_images(data, 40) is pixels
    for small, image in zip(open_images(data, 24), pixels, strict=True):
        assert np.array_equal(small, resized(Image.fromarray(image), 24))
    assert not cache.exists()


# ---- the cache


def test_the_second_call_opens_the_file_of_the_first(photos, cache, monkeypatch, capsys):
    first = open_images(dataset(photos), 16)
    assert '6 images decoded to 16 px' in capsys.readouterr().out and isinstance(first, np.memmap)
    monkeypatch.setattr(images, '_decode', None)
    assert np.array_equal(open_images(dataset(photos), 16), first) and capsys.readouterr().out == ''
    assert inside(cache) == [cache_file(dataset(photos), 16).name]


def test_without_a_terminal_there_is_one_line_and_no_bar(photos, capfd):
    open_images(dataset(photos), 16)
    out, err = capfd.readouterr()
    assert out.count('\n') == 1 and err == ''


def test_the_key_follows_the_photos_the_size_and_the_version(photos, monkeypatch, tmp_path):
    def key():
        return cache_file(dataset(photos), 16)

    seen = [
        key(),
        cache_file(dataset(photos), 17),
        cache_file(dataset(photos[:-1]), 16),
        cache_file(dataset(photos[::-1]), 16),
        cache_file(dataset(photos, 'b'), 16),
    ]
    stat = photos[2].stat()
    os.utime(photos[2], ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert key() == seen[0]
    photos[2].write_bytes(photos[2].read_bytes() + b' ')
    os.utime(photos[2], ns=(stat.st_atime_ns, stat.st_mtime_ns))
    seen.append(key())
    monkeypatch.setattr(images, 'CACHE_VERSION', 0)
    seen.append(key())
    assert len(set(seen)) == len(seen)
    shutil.copytree(
        tmp_path / 'photos', tmp_path / 'moved', copy_function=shutil.copyfile
    )  # other times
    assert cache_file(dataset([tmp_path / 'moved' / file.name for file in photos]), 16) == seen[-1]


@pytest.mark.silent('C1')
@pytest.mark.parametrize('whole', [False, True])
def test_photos_of_the_same_sizes_and_times_do_not_share_pixels(tmp_path, whole):
    def pixels():
        return np.array(
            open_photos(dataset([file]))[0] if whole else open_images(dataset([file]), 16)
        )

    for name in ('mine', 'yours'):
        (tmp_path / name).mkdir()
    file = tmp_path / 'mine' / 'a.bmp'
    Image.fromarray(noise()).save(file)
    mine = pixels()
    file = Path(
        shutil.copy2(file, tmp_path / 'yours' / 'a.bmp')
    )  # of another folder with the same names, sizes and times
    redraw(file)
    yours = pixels()
    redraw(file)  # in place
    assert not np.array_equal(mine, yours) and np.array_equal(pixels(), mine)


def test_a_replaced_photo_gives_new_pixels(photos):
    before = open_images(dataset(photos), 16)
    Image.fromarray(noise(seed=99)).save(photos[1])
    assert not np.array_equal(open_images(dataset(photos), 16)[1], before[1])


@pytest.mark.parametrize(
    'damage',
    [
        lambda file: os.truncate(file, 1000),
        lambda file: file.write_bytes(b''),
        lambda file: file.write_bytes(b'x' * 999),
        lambda file: np.save(file, np.zeros((2, 2))),
        lambda file: np.save(file, np.zeros((2, 2), np.uint8)),
    ],
)
def test_a_damaged_cache_is_built_again(photos, damage):
    expected = open_images(dataset(photos), 16).copy()
    damage(cache_file(dataset(photos), 16))
    assert np.array_equal(open_images(dataset(photos), 16), expected)


def test_odd_names_of_data_sets_make_good_file_names(photos):
    for name in ('a/b c', '../up', '猫' * 300):
        assert len(open_images(dataset(photos, name), 4)) == 6


@pytest.mark.parametrize('size', [0, -1, 2.5, '224', None, True, 10**6])
def test_a_wrong_size_is_refused(photos, size):
    with pytest.raises(SpmlError, match='size='):
        open_images(dataset(photos), size)


# ---- bad files


def test_all_bad_files_are_named_at_once_and_nothing_is_left(photos, cache, tmp_path):
    content = photos[0].read_bytes()
    photos[0].write_bytes(content[: len(content) // 2])
    photos[1].write_text('hello, I am a text')
    photos[2].unlink()
    photos[3].write_bytes(b'')
    photos[4].unlink()
    photos[4].mkdir()
    with pytest.raises(SpmlError) as caught:
        open_images(dataset(photos), 16)
    message = str(caught.value)
    for part in (
        '5 of 6 images of set',
        '0.jpg (image file is truncated',
        '1.png (not an image',
        '2.jpg (No such file',
        '3.png (an empty file',
        '4.jpg (Is a directory',
        'Repair or replace',
    ):
        assert part in message, message
    assert '5.png' not in message and str(tmp_path) not in message and inside(cache) == []


def test_twenty_bad_files_are_listed_and_the_rest_counted(tmp_path):
    files = [tmp_path / f'{k:02}.jpg' for k in range(30)]
    for file in files:
        file.write_text('no')
    with pytest.raises(SpmlError) as caught:
        open_images(dataset(files), 16)
    assert (
        caught.value.args[0].count('not an image') == 20
        and '(30 in all)' in str(caught.value)
        and '30 of 30' in str(caught.value)
    )


def test_any_single_flipped_or_missing_byte_gives_pixels_or_one_error(photos):
    content, random = photos[1].read_bytes(), np.random.RandomState(0)
    for _ in range(25):
        broken = bytearray(content)
        broken[random.randint(len(broken))] ^= 1 << random.randint(8)
        photos[1].write_bytes(
            broken[: random.randint(1, len(broken))] if random.rand() < 0.3 else broken
        )
        try:
            assert open_images(dataset(photos[:2]), 8).shape == (2, 8, 8, 3)
        except SpmlError as error:
            assert '1 of 2' in str(error) and '1.png' in str(error)


# ---- accidents

FORK = '''
import json, os, signal, sys, time
from pathlib import Path
import numpy as np
from spml_nb.data import images, views
from spml_nb.data.dataset import Dataset
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
decode = images._decode
def build(until, out, cache, files):
    sys.stdout = open(out, 'w'); os.environ['SPML_NB_CACHE'] = cache
    def held(*given):
        while not os.path.exists(until): time.sleep(0.01)
        return decode(*given)
    images._decode = held
    n = len(files)
    data = Dataset(
        'set', [Path(f) for f in files], np.ones((n, 1), np.int8), ['c'], np.full(n, 'train')
    )
    print('sum', int(images.open_images(data, 16).astype(int).sum()), flush=True)
for line in sys.stdin:
    if not (pid := os.fork()): build(*json.loads(line)); os._exit(0)
    print(pid, flush=True)
'''


@pytest.fixture(scope='module')
def processes():
    """A function that starts another process on `open_images` at 16 px, which decodes when a file
    is there; one interpreter forks them all, to import torch once.
    """
    if not hasattr(os, 'fork'):
        pytest.skip('needs processes that fork')
    parent = subprocess.Popen(
        [sys.executable, '-c', FORK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, 'OMP_NUM_THREADS': '1'},
    )

    def start(until, out, files):
        parent.stdin.write(
            json.dumps(
                [str(until), str(out), os.environ['SPML_NB_CACHE'], [str(file) for file in files]]
            )
            + '\n'
        )
        parent.stdin.flush()
        return int(parent.stdout.readline())

    yield start
    parent.stdin.close()
    parent.wait(timeout=60)


def until(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, 'waited in vain'
        time.sleep(0.01)


def test_of_two_processes_at_once_one_builds_and_the_other_waits_for_it(
    photos, cache, tmp_path, processes
):
    outs = [tmp_path / 'one.txt', tmp_path / 'two.txt']
    for out in outs:
        processes(tmp_path / 'go', out, photos)
    until(lambda: any(out.exists() and 'waiting for it' in out.read_text() for out in outs))
    (tmp_path / 'go').touch()
    until(
        lambda: all(
            out.exists() and 'sum' in out.read_text() and out.read_text().endswith('\n')
            for out in outs
        )
    )
    said = [out.read_text() for out in outs]
    total = int(sum(resized(Image.open(file), 16).astype(int).sum() for file in photos))
    assert all(f'sum {total}\n' in text for text in said)
    assert sorted(('decoded' in text, 'waiting for it' in text) for text in said) == [
        (False, True),
        (True, False),
    ]
    assert inside(cache) == [cache_file(dataset(photos), 16).name]


def test_of_three_threads_at_once_one_builds(photos, monkeypatch):
    decode, decoded = images._decode, []

    def slowly(file, *given):
        time.sleep(0.02)
        decoded.append(file)
        return decode(file, *given)

    monkeypatch.setattr(images, '_decode', slowly)
    with ThreadPoolExecutor(3) as pool:
        stores = list(pool.map(lambda _: open_images(dataset(photos), 16), range(3)))
    assert sorted(decoded) == sorted(photos) and all(
        np.array_equal(store, stores[0]) for store in stores
    )


def test_a_builder_killed_half_way_leaves_nothing_that_counts(photos, cache, tmp_path, processes):
    pid = processes(tmp_path / 'never', tmp_path / 'out.txt', photos)
    final = cache_file(dataset(photos), 16)
    until(lambda: [name for name in inside(cache) if TEMPORARY.match(name)])
    os.kill(pid, signal.SIGKILL)
    (half,) = inside(cache)
    assert TEMPORARY.match(half)[1] == final.name and (cache / f'.{final.name}.lock').exists()
    other = cache / '.gone-16-0123456789abcdef.npy-01234567.tmp'
    other.write_bytes(b'of another killed builder')
    os.utime(other, (time.time() - 7200,) * 2)
    alive = cache / '.busy-16-0123456789abcdef.npy-01234567.tmp'
    alive.write_bytes(b'of one at work')
    store = open_images(dataset(photos), 16)
    assert inside(cache) == [alive.name, final.name]
    with Image.open(photos[5]) as image:
        assert np.array_equal(store[5], resized(image, 16))


NEEDED = f'{6 * 64 * 64 * 3:,} bytes'


def full_disk(photos, cache, *parts):
    with pytest.raises(SpmlError) as caught:
        open_images(dataset(photos), 64)
    for part in (NEEDED, str(cache), 'not enough space', 'SPML_NB_CACHE', '`cache`', *parts):
        assert part in str(caught.value), str(caught.value)
    assert inside(cache) == []


def no_decoding(*_):
    raise AssertionError('work was done before the space was checked')


def test_a_disk_known_to_be_full_is_found_before_any_work(photos, cache, monkeypatch):
    usage = shutil.disk_usage(photos[0].parent)
    monkeypatch.setattr(shutil, 'disk_usage', lambda _: usage._replace(free=6 * 64 * 64 * 3 - 1))
    monkeypatch.setattr(images, '_decode', no_decoding)
    full_disk(photos, cache)


def test_a_disk_too_full_for_whole_photos_is_found_by_their_headers(photos, cache, monkeypatch):
    longest = 30
    wanted = len(open_photos(dataset(photos), longest).pixels) - 8 * len(photos)
    shutil.rmtree(cache)
    assert images._count_bytes(dataset(photos), longest) == wanted
    usage = shutil.disk_usage(photos[0].parent)
    monkeypatch.setattr(shutil, 'disk_usage', lambda _: usage._replace(free=wanted - 1))
    monkeypatch.setattr(images, '_decode', no_decoding)
    with pytest.raises(SpmlError, match='not enough space.*SPML_NB_CACHE.*SPML_NB_DECODE=always'):
        open_photos(dataset(photos), longest)
    assert inside(cache) == []


def test_a_disk_that_fills_while_writing_leaves_nothing(photos, cache):
    resource = pytest.importorskip('resource')
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        full_disk(photos, cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(open_images(dataset(photos), 64)) == 6


def test_a_cache_folder_that_cannot_be_written_names_the_setting(photos, tmp_path, monkeypatch):
    (tmp_path / 'file').write_text('x')
    monkeypatch.setenv('SPML_NB_CACHE', str(tmp_path / 'file'))
    with pytest.raises(SpmlError, match='cannot be used.*SPML_NB_CACHE'):
        open_images(dataset(photos), 16)


def test_an_interrupted_build_leaves_nothing_and_restores_the_warnings(photos, cache, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(images, '_decode', interrupted)
    filters = list(warnings.filters)
    with pytest.raises(KeyboardInterrupt):
        open_images(dataset(photos), 16)
    assert inside(cache) == [] and warnings.filters == filters


# ---- batches


def test_a_batch_has_the_rows_in_order_channels_last_and_is_a_copy(photos):
    store = open_images(dataset(photos), 16)
    for index in ([4, 0, 4], np.array([4, 0, 4]), torch.tensor([4, 0, 4])):
        pixels = copy_pixels(store, index, torch.device('cpu'))
        assert (
            pixels.dtype == torch.uint8
            and pixels.shape == (3, 3, 16, 16)
            and pixels.is_contiguous(memory_format=torch.channels_last)
        )
        assert np.array_equal(pixels.permute(0, 2, 3, 1).numpy(), store[[4, 0, 4]])
    before = store[4].copy()
    pixels.zero_()
    assert np.array_equal(store[4], before)


@pytest.mark.parametrize('index', [[6], [-1], [0, 99]])
def test_rows_outside_the_store_are_refused(index):
    with pytest.raises(SpmlError, match='allowed: 0 … 5'):
        copy_pixels(np.zeros((6, 4, 4, 3), np.uint8), index)


def test_squash_takes_an_opened_image():
    assert np.array_equal(
        squash_image(Image.fromarray(noise()), 12), resized(Image.fromarray(noise()), 12)
    )


@pytest.fixture
def shaped(tmp_path):
    return noise_photos(tmp_path)


# ---- whole photos and crops


def test_whole_photos_keep_their_own_pixels_and_are_built_once(shaped, cache, monkeypatch):
    first = open_photos(dataset(shaped))
    assert len(first) == 6 and all(
        np.array_equal(first[k], opened(file)) for k, file in enumerate(shaped)
    )
    monkeypatch.setattr(images, '_decode', None)
    again = open_photos(dataset(shaped))
    assert all(np.array_equal(first[k], again[k]) for k in range(6))
    assert [file.suffix for file in cache.iterdir() if file.suffix != '.lock'] == ['.whole']


def test_larger_photos_are_reduced_to_the_longest_side_in_proportion(shaped):
    reduced = open_photos(dataset(shaped), longest=60)
    for k, file in enumerate(shaped):
        width, height = opened(file).size
        scale = min(1, 60 / max(width, height))
        assert tuple(reduced.sizes[k]) == (round(height * scale), round(width * scale))
        if scale == 1:
            assert np.array_equal(reduced[k], opened(file))
        else:
            assert np.array_equal(
                reduced[k],
                opened(file).resize(
                    (round(width * scale), round(height * scale)), Image.Resampling.BILINEAR
                ),
            )
    assert images.LONGEST_SIDE >= 640  # photos of VOC and COCO stay as they are


@pytest.mark.parametrize('harm', ['cut', 'longer', 'no room for sizes'])
def test_a_damaged_file_of_whole_photos_is_built_again(shaped, cache, harm):
    data = dataset(shaped)
    open_photos(data)
    (file,) = cache.glob('*.whole')
    whole = file.read_bytes()
    file.write_bytes(
        {'cut': whole[:-9], 'longer': whole + b'12345678', 'no room for sizes': whole[:20]}[harm]
    )
    assert np.array_equal(open_photos(data)[5], opened(shaped[5])) and file.read_bytes() == whole


def test_unusable_photos_are_named_at_once_and_leave_nothing(shaped, cache):
    shaped[0].write_bytes(b'no photo')
    shaped[3].unlink()
    with pytest.raises(SpmlError, match=r'2 of 6 images of set cannot be used: 0.jpg.*3.png'):
        open_photos(dataset(shaped))
    assert [file.name for file in cache.iterdir() if file.suffix != '.lock'] == []


def test_crops_are_torchvisions_random_resized_crop_of_the_opened_photo(shaped):
    store, size = open_photos(dataset(shaped)), 28
    torch.manual_seed(5)
    ours = random_crops(store, [3, 0, 5, 2, 2], size)
    torch.manual_seed(5)
    theirs = [np.asarray(RandomResizedCrop(size)(opened(shaped[row]))) for row in (3, 0, 5, 2, 2)]
    assert ours.is_contiguous(memory_format=torch.channels_last) and ours.dtype == torch.uint8
    assert all(np.array_equal(a.permute(1, 2, 0), b) for a, b in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[3], ours[4])


def test_centre_crops_are_torchvisions_resize_256_and_centre_crop_224(shaped):
    store = open_photos(dataset(shaped))
    for row, out in enumerate(centre_crops(store, range(6), 224)):
        assert np.array_equal(
            out.permute(1, 2, 0), CenterCrop(224)(Resize(256)(opened(shaped[row])))
        )


def test_rows_outside_and_images_in_memory():
    data = dataset(np.random.RandomState(0).randint(0, 256, (5, 20, 30, 3), dtype=np.uint8))
    store = open_photos(data)
    assert len(store) == 5 and np.array_equal(store[3], data.images[3])
    for wrong in ([5], [-1]):
        with pytest.raises(SpmlError, match='allowed: 0 … 4'):
            random_crops(store, wrong, 8)
        with pytest.raises(SpmlError, match='allowed: 0 … 4'):
            centre_crops(store, wrong, 8)


def test_photos_are_indexed_by_row():
    store = Photos(np.arange(2 * 3 * 3 + 1 * 2 * 3, dtype=np.uint8), [(2, 3), (1, 2)])
    assert store[1].tolist() == [[[18, 19, 20], [21, 22, 23]]] and store[0].shape == (2, 3, 3)
