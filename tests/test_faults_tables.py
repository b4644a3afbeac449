"""Absurd tables and photos, from `datasets.load` through the image cache to a training step: the
right result, or one clear error with nothing begun.

What else is refused or accepted on reading stands in test_datasets.py (labels that are no labels,
columns, splits, paths outside, duplicates, BOM, encodings) and test_images.py (modes, 16-bit grey,
EXIF, animated GIF, one pixel, 20,000 pixels, bombs, truncated files)."""

import os
import struct
import unicodedata
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from spml_nb import data as datasets
from spml_nb import runs, training
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.data import images
from spml_nb.runs.config import Config

pytestmark = pytest.mark.filterwarnings('ignore:.*no training image has it')
E_ACUTE, E_AND_ACCENT = 'é', unicodedata.normalize('NFD', 'é')


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_CACHE', str(tmp_path / 'cache'))
    return tmp_path / 'cache'


@pytest.fixture
def folder(tmp_path):
    "A function that writes a data set of small photos, or of given files."

    def write(table, names=(), content=None, encoding='utf-8'):
        (tmp_path / 'set' / 'images').mkdir(parents=True, exist_ok=True)
        for k, name in enumerate(names):
            file = tmp_path / 'set' / 'images' / name
            file.parent.mkdir(parents=True, exist_ok=True)
            photo(k).save(file, format='PNG')
        for name, save in (content or {}).items():
            save(tmp_path / 'set' / 'images' / name)
        (tmp_path / 'set' / 'labels.csv').write_bytes(table.encode(encoding))
        return tmp_path / 'set'

    return write


def photo(seed, mode='RGB', size=(50, 37)):
    pixels = np.random.RandomState(seed).randint(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def numbered(
    rows, split=('train',) * 6 + ('val',) * 2 + ('test',) * 2, header='image,labels,split', end='\n'
):
    "A table with a row for each of the labels, photos 0.png …"
    lines = [
        header,
        *(','.join([f'{k}.png', row, split[k % len(split)]]) for k, row in enumerate(rows)),
    ]
    return end.join(lines) + end, [f'{k}.png' for k in range(len(rows))]


def trained(folder, **given):
    return training.train(
        Config(
            **{
                'dataset': str(folder),
                'backbone': 'mini',
                'loss': 'an',
                'epochs': 1,
                'image_size': 16,
                **given,
            }
        )
    )


def refused(folder, *parts):
    """The message of the SpmlError that training ends with; no run, no cache and no temporary file
    is begun.
    """
    with pytest.raises(SpmlError) as caught:
        trained(folder)
    for part in parts:
        assert part in str(caught.value), str(caught.value)
    assert not [file for file in settings.get_folder('runs').glob('*') if file.is_dir()]
    assert not [
        file
        for file in settings.get_folder('cache').rglob('*')
        if file.is_file() and file.suffix != '.lock'
    ]
    return str(caught.value)


# ---- tables


@pytest.mark.parametrize('end', ['\r\n', '\r', '\n\n', '\r\n\r\n'])
@pytest.mark.parametrize('encoding', ['utf-8', 'utf-8-sig'])
def test_line_ends_of_every_system_and_a_byte_order_mark_train(folder, end, encoding):
    table, names = numbered(['Tür|Größe', 'Tür'] * 5, end=end)
    path = folder(table, names, encoding=encoding)
    data = datasets.load(path)
    assert (
        data.class_names == ['Größe', 'Tür']
        and len(data) == 10
        and data.labels[0].tolist() == [1, 1]
    )
    if end == '\r\n':
        assert np.isfinite(trained(path).scores['test_map'])


def test_names_with_commas_blanks_accents_and_other_scripts_train(folder):
    names = [
        'a, b.png',
        '  two  blanks.png',
        f'caf{E_AND_ACCENT}.png',
        '猫 и кот.png',
        "quote'.png",
        '#hash%20.png',
        '-p.png',
        '🐈.png',
        'x/y, z.png',
        'dot..png',
    ]
    labels = [
        'fee, fi',
        f'caf{E_ACUTE}',
        'кот',
        '猫',
        'naïve "cat"',
        ' blank |🐈|a|b|null|nan',
        '🐈',
        'a|b',
        'null',
        'nan',
    ]
    rows = ['image,labels,split'] + [
        '"{}","{}",{}'.format(name, label.replace('"', '""'), part)
        for name, label, part in zip(
            names, labels, ['train'] * 6 + ['val'] * 2 + ['test'] * 2, strict=True
        )
    ]
    path = folder('\n'.join(rows), names)
    data = datasets.load(path)
    assert data.class_names == sorted(
        [
            'fee, fi',
            f'caf{E_ACUTE}',
            'кот',
            '猫',
            'naïve "cat"',
            'blank',
            '🐈',
            'a',
            'b',
            'null',
            'nan',
        ]
    )
    result = trained(path)
    assert runs.read_json(result.folder / 'result.json')[
        'class_names'
    ] == data.class_names and result.logits['test'].shape == (2, 11)


def test_accents_as_one_character_or_two_are_the_same_class(folder):
    table, names = numbered([f'caf{E_ACUTE}', f'caf{E_AND_ACCENT}|b'] * 5)
    assert datasets.load(folder(table, names)).class_names == ['b', f'caf{E_ACUTE}']
    columns = f'image,caf{E_ACUTE},caf{E_AND_ACCENT},split\n0.png,1,0,train\n1.png,1,0,test\n'
    refused(folder(columns, names), 'columns repeated', f"'caf{E_ACUTE}'")


@pytest.mark.parametrize(
    ('in_table', 'on_disk'), [(E_ACUTE, E_AND_ACCENT), (E_AND_ACCENT, E_ACUTE)]
)
def test_a_photo_is_found_however_its_accent_was_saved(folder, in_table, on_disk):
    names = [f'{k}{on_disk}.png' for k in range(10)]
    table, _ = numbered(['a|b', 'b'] * 5)
    path = folder(table.replace('.png', f'{in_table}.png'), names)
    assert [file.is_file() for file in datasets.load(path).images] == [True] * 10
    trained(path)
    refused_twice = table.replace('.png', f'{in_table}.png') + f'0{on_disk}.png,a,train\n'
    with pytest.raises(SpmlError, match='more than one row for'):
        datasets.load(folder(refused_twice, names))


def test_a_name_too_long_for_any_file_is_only_absent(folder):
    table, names = numbered(['a'] * 10)
    refused(
        folder(table + 'x' * 5000 + '.png,a,train\n', names), '1 image not to be found in', 'xxx'
    )
    refused(folder(table + 'nul\0.png,a,train\n', names), '1 image not to be found in')


@pytest.mark.parametrize('labels', [['cat'] * 10, ['cat', ''] * 5])
def test_one_class_trains(folder, labels):
    result = trained(folder(*numbered(labels)))
    assert result.logits['test'].shape == (2, 1) and np.isfinite(result.logits['test']).all()


def test_no_class_is_refused(folder):
    refused(folder(*numbered([''] * 10)), 'labels.csv', 'names no label at all')
    refused(folder('image,split\n0.png,train\n', ['0.png']), 'unknown layout')


@pytest.mark.parametrize('layout', ['labels', 'columns'])
def test_ten_thousand_classes_train(folder, layout):
    classes, rng = [f'c{k:05}' for k in range(10_000)], np.random.RandomState(0)
    present = [rng.choice(10_000, 5, replace=False) for _ in range(10)]
    if layout == 'labels':
        table, names = numbered(
            [
                '|'.join(classes[:] if k == 0 else [classes[c] for c in row])
                for k, row in enumerate(present)
            ]
        )
    else:
        cells = np.zeros((10, 10_000), int)
        for row, which in zip(cells, present, strict=True):
            row[which] = 1
        table, names = numbered(
            [','.join(map(str, row)) for row in cells],
            header=','.join(['image', *classes, 'split']),
        )
    path = folder(table, names)
    with pytest.warns(UserWarning) if layout == 'columns' else nothing():
        data = datasets.load(path)
    assert data.class_names == classes and sorted(np.flatnonzero(data.labels[3] == 1)) == sorted(
        present[3]
    )
    if layout == 'labels':
        assert trained(path, regime='linear').logits['test'].shape == (2, 10_000)


class nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


@pytest.mark.parametrize(
    ('change', 'parts'),
    [
        (lambda text: text.replace(',', ';'), ['separated by semicolons', 'image;labels;split']),
        (lambda text: text.replace(',', '\t'), ['separated by tabs', 'labels.csv']),
        (
            lambda text: text.replace('image,labels,split', 'image,labels,split,width').replace(
                'train\n', 'train,640\n'
            ),
            ['unknown layout', 'width'],
        ),
        (
            lambda text: text.replace('image,labels', 'image,cat').replace(',a,', ',2,'),
            ["'2'", 'row 1', "column 'cat'", 'allowed: 1'],
        ),
        (
            lambda text: text.replace('image,labels', 'image,cat').replace(',a,', ',NaN,'),
            ["'NaN'", "column 'cat'"],
        ),
        (
            lambda text: text.replace('image,labels', 'image,cat').replace(',a,', ',yes,'),
            ["'yes'", "column 'cat'"],
        ),
        (
            lambda text: text.replace('train', 'test').replace('val', 'test'),
            ['no train row', 'split'],
        ),
        (lambda text: text.replace('3.png', '/etc/hostname'), ["'/etc/hostname'", 'outside']),
        (lambda text: text.replace('3.png', '../3.png'), ["'../3.png'", 'outside']),
        (
            lambda text: text.replace('3.png', '2.png'),
            ['more than one row for: 2.png', 'one row an image'],
        ),
        (lambda text: text.replace('3.png', ''), ['without a name']),
        (lambda text: text + '"', ['cannot be read']),
    ],
)
def test_a_wrong_table_stops_training_before_anything_is_begun(folder, change, parts):
    table, names = numbered(['a'] * 10)
    refused(folder(change(table), names), *parts)


# ---- photos


def sixteen_bit(pixels, alpha=False):
    "A PNG with 16 bits a channel, which Pillow does not write. pixels: (h, w, c) uint16."
    height, width, channels = pixels.shape

    def chunk(kind, body):
        return (
            struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
        )

    rows = b''.join(b'\0' + row.astype('>u2').tobytes() for row in pixels)
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    return (
        b'\x89PNG\r\n\x1a\n'
        + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 16, kind, 0, 0, 0))
        + chunk(b'IDAT', zlib.compress(rows))
        + chunk(b'IEND', b'')
    )


@pytest.mark.parametrize('channels', [1, 2, 3, 4])
def test_sixteen_bits_a_channel_are_scaled_and_not_clipped(folder, channels):
    pixels = np.random.RandomState(0).randint(0, 65536, (16, 16, channels)).astype(np.uint16)
    table, names = numbered(['a|b', 'b'] * 5)
    path = folder(table, names[1:], {'0.png': lambda file: file.write_bytes(sixteen_bit(pixels))})
    found = images.open_images(datasets.load(path), 16)[0].astype(int)
    high = np.broadcast_to(pixels[:, :, : 3 if channels > 2 else 1] >> 8, (16, 16, 3)).astype(int)
    alpha = (pixels[:, :, -1:] >> 8) / 255 if channels in (2, 4) else 1
    assert (
        np.abs(found - (alpha * high + (1 - alpha) * 255)).max() <= 2 and found.std() > 50
    )  # on white
    trained(path)


def animated(file):
    first, *rest = [photo(seed) for seed in range(3)]
    first.save(file, format='WEBP', save_all=True, append_images=rest, lossless=True, duration=100)


def exif_rotated(file):
    exif = Image.Exif()
    exif[0x0112] = 6
    photo(0, size=(40, 16)).save(file, format='JPEG', exif=exif, quality=95)


KINDS = {
    'cmyk.jpg': lambda file: photo(0, 'CMYK').save(file),
    'palette.png': lambda file: photo(0, 'P').save(file),
    'grey.jpg': lambda file: photo(0, 'L').save(file),
    'grey and alpha.png': lambda file: photo(0, 'LA').save(file),
    'alpha.png': lambda file: photo(0, 'RGBA').save(file),
    'one bit.png': lambda file: photo(0, '1').save(file),
    'still.gif': lambda file: photo(0, 'P').save(file),
    'one pixel.png': lambda file: photo(0, size=(1, 1)).save(file),
    'wide.png': lambda file: photo(0, size=(20_000, 3)).save(file),
    'animated.webp': animated,
    'rotated.jpg': exif_rotated,
    'png called.jpg': lambda file: photo(0).save(file, format='PNG'),
}


@pytest.mark.parametrize('views', ['flip', 'crop'])
def test_photos_of_every_kind_train_together(folder, views):
    parts = ['train'] * 8 + ['val'] * 2 + ['test'] * 2
    table = 'image,labels,split\n' + ''.join(
        f'{name},{"a|b" if k % 2 else "a"},{part}\n'
        for k, (name, part) in enumerate(zip(KINDS, parts, strict=True))
    )
    path = folder(table, content=KINDS)
    result = trained(path, views=views)
    assert np.isfinite(result.logits['test']).all() and result.logits['test'].shape == (2, 2)
    store = dict(zip(KINDS, images.open_images(datasets.load(path), 16), strict=True))
    with Image.open(path / 'images' / 'rotated.jpg') as image:
        upright = ImageOps.exif_transpose(image)
    assert upright.size == (16, 40) and np.array_equal(
        store['rotated.jpg'], images.squash_image(upright, 16)
    )
    assert np.array_equal(
        store['animated.webp'], images.squash_image(photo(0), 16)
    )  # the first frame
    assert (store['one pixel.png'] == np.asarray(photo(0, size=(1, 1)))[0, 0]).all()


def cut_short(file):
    photo(0).save(file, format='JPEG')
    os.truncate(file, file.stat().st_size // 2)


def bomb(file):
    file.write_bytes(
        sixteen_bit(np.zeros((1, 1, 3), np.uint16)).replace(
            struct.pack('>IIB', 1, 1, 16), struct.pack('>IIB', 60_000, 60_000, 16)
        )
    )
    content = bytearray(file.read_bytes())
    content[29:33] = struct.pack('>I', zlib.crc32(content[12:29]))
    file.write_bytes(content)


BAD = {
    'cut short.jpg': (cut_short, 'truncated'),
    'a text.jpg': (lambda file: file.write_text('a text'), 'not an image'),
    'nothing.jpg': (lambda file: file.write_bytes(b''), 'an empty file'),
    'bomb.png': (bomb, 'more than the'),
    'deep.tif': (lambda file: photo(0, 'F').save(file), '32 bits'),
}


@pytest.mark.parametrize('views', ['flip', 'crop'])
def test_bad_photos_are_all_named_at_once_before_anything_is_begun(folder, views):
    table, names = numbered(['a|b', 'b'] * 5)
    table += ''.join(f'{name},a,train\n' for name in BAD)
    path = folder(table, names, {name: make for name, (make, _) in BAD.items()})
    with pytest.raises(SpmlError) as caught:
        trained(path, views=views)
    for name, (_, why) in BAD.items():
        assert f'{name} (' in str(caught.value) and why in str(caught.value)
    assert '5 of 15 images' in str(
        caught.value
    ) and 'Repair or replace them, or remove their rows' in str(caught.value)
    refused(path, '5 of 15 images')


def test_photos_that_are_copies_or_links_of_one_another_are_photos(folder):
    table, names = numbered(['a|b', 'b'] * 5)
    path = folder(table, names)
    (path / 'images' / '1.png').unlink()
    (path / 'images' / '1.png').symlink_to('0.png')
    store = images.open_images(datasets.load(path), 16)
    assert np.array_equal(store[0], store[1]) and len(store) == 10
