"""The papers' data sets: small archives in the official layouts, from a local server to scores; the protocol's order, labels, splits and draws."""
import contextlib
import csv
import dataclasses
import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from serving import drawing, full_circle, jpeg, local, serve, tar_of, zip_of

from spml_nb.data import fetch, folder, labels, official as benchmarks
from spml_nb.data.official import registry
from spml_nb import cli, data as datasets
from spml_nb.data.official.voc import VOC_CLASSES
from spml_nb.data.official.registry import Archive, Listing, check, prepare
from spml_nb.base.errors import SpmlError

ROOT = Path(__file__).resolve().parents[3]
TELL = {'tell': lambda line: None}
pytestmark = pytest.mark.filterwarnings('ignore:.*(never used|no training image has it)')


@contextlib.contextmanager
def refused(*parts):
    with pytest.raises(SpmlError) as caught: yield
    for part in parts: assert str(part) in str(caught.value), str(caught.value)


# ---- the official layouts, small

def voc_members(year, parts, rng=None, images=True):
    """{name in archive: bytes}. parts: {part: (names, (n, 20) of 1, 0, -1)}; the XML has every object, the difficult ones marked."""
    base, members = f'VOCdevkit/VOC{year}', {}
    for part, (names, words) in parts.items():
        for c, name in enumerate(VOC_CLASSES):
            rows = [f'{image} {" " if word >= 0 else ""}{word}' for image, word in zip(names, words[:, c], strict=True)]
            members[f'{base}/ImageSets/Main/{name}_{part}.txt'] = ('\n'.join(rows) + '\n').encode()
        if not images: continue
        for image, row in zip(names, words, strict=True):
            members[f'{base}/JPEGImages/{image}.jpg'] = jpeg(row > 0)
            objects = ''.join(f'<object><name>{VOC_CLASSES[c]}</name><difficult>{int(row[c] == 0)}</difficult></object>' for c in np.flatnonzero(row >= 0))
            members[f'{base}/Annotations/{image}.xml'] = f'<annotation><filename>{image}.jpg</filename>{objects}</annotation>'.encode()
    return members

def voc_words(n, seed):
    words = np.random.RandomState(seed).choice([-1, -1, -1, -1, 0, 1], (n, 20))
    words[np.arange(n), np.arange(n) % 20] = 1
    return words


@pytest.fixture
def voc12(tmp_path):
    "Archive of VOC 2012: 30 + 10 images, listed out of order. Returns: (folder, train names and words, val names and words)."
    train, val = ([f'20{8 + k % 3:02}_{(k * 7919) % 1000:06}' for k in rows] for rows in (range(30), range(30, 40)))
    parts = {'train': (train, voc_words(30, 0)), 'val': (val, voc_words(10, 1))}
    (tmp_path / 'served').mkdir()
    tar_of(tmp_path / 'served' / 'VOCtrainval_11-May-2012.tar', voc_members(2012, parts), 'w')
    return tmp_path / 'served', parts['train'], parts['val']

COUNTS12 = {'train': 30, 'test': 10, 'classes': 20}


def test_voc12_from_server_to_scores(voc12, tmp_path, monkeypatch):
    folder, (train, words), (val, val_words) = voc12
    with serve(folder, drop={'VOCtrainval_11-May-2012.tar': [20_000]}) as server:
        benchmark = local('voc12', folder, server.url, counts=COUNTS12)
        monkeypatch.setattr(fetch.time, 'sleep', lambda seconds: None)
        data, _ = full_circle(benchmark, tmp_path / 'data', monkeypatch, labels='single')
        prepare(benchmark, tmp_path / 'data', **TELL)
        assert [(name, asked) for name, asked in server.log] == [('VOCtrainval_11-May-2012.tar', None), ('VOCtrainval_11-May-2012.tar', 'bytes=20000-')]
    order, val_order = np.argsort(train), np.argsort(val)
    assert [path.stem for path in data.images] == sorted(train) + sorted(val) and data.class_names == VOC_CLASSES
    assert np.array_equal(data.labels > 0, np.concatenate([words[order], val_words[val_order]]) == 1) and (data.labels != 0).all()
    assert (data.split[30:] == 'test').all() and np.array_equal(data.rows('val'), labels.split(30)[1])
    assert (data.labels > 0).sum() < (np.concatenate([words, val_words]) >= 0).sum()   # difficult objects are in the XML and no positives


def test_voc07_takes_two_archives_and_holds_nothing_out(tmp_path, monkeypatch):
    parts = {'trainval': ([f'{k:06}' for k in range(1, 25)], voc_words(24, 2)), 'test': ([f'{k:06}' for k in range(25, 33)], voc_words(8, 3))}
    (tmp_path / 'served').mkdir()
    for part, file in (('trainval', 'VOCtrainval_06-Nov-2007.tar'), ('test', 'VOCtest_06-Nov-2007.tar')):
        tar_of(tmp_path / 'served' / file, voc_members(2007, {part: parts[part]}), 'w')
    with serve(tmp_path / 'served') as server:
        benchmark = local('voc07', tmp_path / 'served', server.url, counts={'train': 24, 'test': 8, 'classes': 20})
        data, _ = full_circle(benchmark, tmp_path / 'data', monkeypatch)
    assert [len(data.rows(part)) for part in datasets.PARTS] == [24, 0, 8]
    assert np.array_equal(data.labels > 0, np.concatenate([parts['trainval'][1], parts['test'][1]]) == 1)


def coco(names, rows, ids, drawn):
    "An instances file. names, rows: images and their positives as numbers of categories; drawn: category ids; a crowd box where a number is negative."
    images = [{'id': number, 'file_name': name} for number, name in zip(ids, names, strict=True)]
    boxes = [{'id': 100 * number + k, 'image_id': number, 'category_id': abs(category), 'iscrowd': int(category < 0), 'bbox': [0, 0, 9, 9], 'segmentation': [[1.5] * 8]}
             for number, row in zip(ids, rows, strict=True) for k, category in enumerate(row)]
    categories = [{'id': number, 'name': f'thing {number}', 'supercategory': 'things'} for number in drawn]
    return {'info': {}, 'images': images, 'annotations': boxes, 'categories': categories}


def test_coco14_orders_names_as_strings_and_counts_crowds(tmp_path, monkeypatch):
    (tmp_path / 'served').mkdir()
    drawn = [13, 1, 90, 4, 11]                                    # ids with gaps, out of order
    train = [f'COCO_train2014_{k}.jpg' for k in [9, 10, 100, 11, 2, *range(200, 220)]]    # as strings: 10, 100, 11, 2, 200 …, 9
    rows = [[1], [-90], [], [4, 4, -13], [11, 1], *[[drawn[k % 5], 1] for k in range(20)]]
    val, val_rows = [f'COCO_val2014_{k}.jpg' for k in (5, 40, 300)], [[1, 13], [90], [4, 11]]
    files = {'train': coco(train, rows, range(1000, 1025), drawn), 'val': coco(val, val_rows, (7, 3, 5), drawn)}
    members = {f'annotations/instances_{part}2014.json': json.dumps(content).encode() for part, content in files.items()}
    zip_of(tmp_path / 'served' / 'annotations_trainval2014.zip', members)
    for part, names, which in (('train', train, rows), ('val', val, val_rows)):
        shown = {f'{part}2014/{name}': jpeg([c in map(abs, row) for c in sorted(drawn)]) for name, row in zip(names, which, strict=True)}
        zip_of(tmp_path / 'served' / f'{part}2014.zip', shown)
    with serve(tmp_path / 'served') as server:
        benchmark = local('coco14', tmp_path / 'served', server.url, counts={'train': 24, 'test': 3, 'classes': 5})
        data, _ = full_circle(benchmark, tmp_path / 'data', monkeypatch)
    order = ['10', '11', '2', *map(str, range(200, 220)), '9']     # 100 has no box
    assert [path.stem.removeprefix('COCO_train2014_') for path in data.images[:24]] == order
    assert [path.name for path in data.images[24:]] == ['COCO_val2014_300.jpg', 'COCO_val2014_40.jpg', 'COCO_val2014_5.jpg']
    assert data.class_names == ['thing 1', 'thing 4', 'thing 11', 'thing 13', 'thing 90']
    assert (data.labels[[0, 1, 2]] > 0).tolist() == [[False] * 4 + [True], [False, True, False, True, False], [True, False, True, False, False]]
    assert (data.labels[24:] > 0).tolist() == [[False, True, True, False, False], [False] * 4 + [True], [True, False, False, True, False]]


def cub_members(present, train, stray=False):
    "CUB's archive without images. present: (N, A) of 0, 1; train: (N,) of 0, 1."
    n, count = present.shape
    names = [f'{k % 3 + 1:03}.Bird/Bird_{k:04}.jpg' for k in range(n)]
    rows = ''.join(f'{i} {a} {word} {1 + a % 4} 1.509\n' for i, row in enumerate(present.tolist(), 1) for a, word in enumerate(row, 1))
    if stray: rows = rows.replace(' 1.509', ' 0 1.509', 3).replace(' 1.509', ' ', 4)
    return names, {
        'attributes.txt': '\n'.join(f'{a} has_part::kind_{a}_(a-b)' for a in range(1, count + 1)).encode(),
        'CUB_200_2011/images.txt': '\n'.join(f'{k} {name}' for k, name in enumerate(names, 1)).encode(),
        'CUB_200_2011/train_test_split.txt': '\n'.join(f'{k} {word}' for k, word in enumerate(train, 1)).encode(),
        'CUB_200_2011/attributes/image_attribute_labels.txt': rows.encode()}


def test_cub_reads_is_present_and_nothing_else(tmp_path, monkeypatch):
    rng = np.random.RandomState(0)
    present, train = (rng.rand(36, 6) < 0.4).astype(int), rng.permutation([0] * 10 + [1] * 26)
    names, members = cub_members(present, train, stray=True)
    (tmp_path / 'served').mkdir()
    shown = {f'CUB_200_2011/images/{name}': jpeg(row) for name, row in zip(names, present, strict=True)}
    tar_of(tmp_path / 'served' / 'CUB_200_2011.tgz', members | shown)
    with serve(tmp_path / 'served') as server:
        data, _ = full_circle(local('cub', tmp_path / 'served', server.url, counts={'train': 26, 'test': 10, 'classes': 6}), tmp_path / 'data', monkeypatch)
    order = np.concatenate([np.flatnonzero(train == 1), np.flatnonzero(train == 0)])
    assert np.array_equal(data.labels > 0, present[order] == 1) and [path.name for path in data.images] == [Path(names[k]).name for k in order]
    assert data.class_names[0] == 'has_part::kind_1_(a-b)' and (data.split[26:] == 'test').all()


def mat(**arrays):
    out = io.BytesIO()
    savemat(out, arrays, do_compression=True)
    return out.getvalue()

def ccp_members(names, positives, pixel=lambda row: row % 2):
    "The repository. names: of classes without null; positives: list of lists of class numbers from 1; pixel: whether a row has a mask in place of tags."
    base = 'clothing-co-parsing-master'
    members = {f'{base}/label_list.mat': mat(label_list=np.array([['null', *names]], object))}
    for row, present in enumerate(positives):
        if pixel(row):
            mask = np.zeros((6, 8), np.uint8)
            mask.flat[:len(present)] = present
            members[f'{base}/annotations/pixel-level/{row + 1:04}.mat'] = mat(groundtruth=mask)
        else: members[f'{base}/annotations/image-level/{row + 1:04}.mat'] = mat(tags=np.array([present], np.uint8))
    return members


def test_ccp_joins_tags_and_masks_and_draws_its_own_split(tmp_path, monkeypatch):
    rng, names = np.random.RandomState(0), ['shirt', 'hat', 'bag', 'coat']
    positives = [sorted(rng.choice(4, rng.randint(1, 4), replace=False) + 1) for _ in range(40)]
    positives[6] = []                                                             # tags without any
    members = ccp_members(names, positives)
    members['clothing-co-parsing-master/annotations/image-level/0002.mat'] = mat(tags=np.array([[0, 4]], np.uint8))   # both kinds, and null
    for row, present in enumerate(positives): members[f'clothing-co-parsing-master/photos/{row + 1:04}.jpg'] = jpeg([c + 1 in present for c in range(4)])
    (tmp_path / 'served').mkdir()
    zip_of(tmp_path / 'served' / 'clothing-co-parsing.zip', members)
    with serve(tmp_path / 'served') as server:
        data, _ = full_circle(local('ccp', tmp_path / 'served', server.url, counts={'images': 40, 'classes': 4}), tmp_path / 'data', monkeypatch)
    positives[1] = sorted({*positives[1], 4})
    assert data.class_names == names and [list(np.flatnonzero(row > 0) + 1) for row in data.labels] == positives
    assert [len(data.rows(part)) for part in datasets.PARTS] == [26, 6, 8]


def test_ccp_agrees_with_the_photos_at_hand(ccp, tmp_path):
    data = datasets.load(ccp)
    names = sorted([*data.class_names, 'intimate', 'panties', 'swimwear'])
    number = np.array([names.index(name) + 1 for name in data.class_names])
    members = ccp_members(names, [number[row > 0] for row in data.labels], pixel=lambda row: row < 1004 and (data.labels[row] > 0).sum() <= 48)
    for member, content in members.items():
        file = tmp_path / 'repository' / member
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    (tmp_path / 'repository' / 'clothing-co-parsing-master' / 'photos').symlink_to(ccp / 'images')
    listing = benchmarks.find('ccp').read(tmp_path)
    kept = [listing.class_names.index(name) for name in data.class_names]
    assert np.array_equal(listing.labels[:, kept], data.labels) and len(listing.class_names) == 58
    assert (np.delete(listing.labels, kept, 1) == -1).all() and [Path(name).name for name in listing.images] == [path.name for path in data.images]
    found = registry._counted(listing)
    assert all(found[what] == count for what, count in benchmarks.find('ccp').counts.items())


# ---- what is wrong with what came

def test_wrong_counts_stop_before_a_table_is_written(voc12, tmp_path):
    folder, *_ = voc12
    with serve(folder) as server, refused('30 training images (expected 5,717)', '10 test images (expected 5,823)', 'not the official files'):
        prepare(local('voc12', folder, server.url), tmp_path / 'data', **TELL)   # the protocol's own counts
    assert not list((tmp_path / 'data' / 'voc12').glob('*.csv')) and not (tmp_path / 'data' / 'voc12' / 'ready.json').exists()


def test_the_counts_are_the_protocols():
    known = {'voc12': (5717, 5823, 20), 'voc07': (5011, 4952, 20), 'coco14': (82081, 40137, 80), 'cub': (5994, 5794, 312)}
    for name, (train, test, classes) in known.items(): assert benchmarks.find(name).counts == {'train': train, 'test': test, 'classes': classes}
    assert benchmarks.find('ccp').counts == {'images': 2098, 'classes': 58}
    for name in benchmarks.names():
        for archive in benchmarks.find(name).archives:
            assert all(url.startswith(('http://', 'https://')) for url in archive.urls) and len(archive.md5 or 32 * ' ') == 32


@pytest.mark.parametrize('damage', ['missing', 'truncated', 'no image'])
def test_images_that_are_missing_or_damaged_are_named(voc12, tmp_path, damage):
    folder, (train, _), _ = voc12
    with serve(folder) as server:
        benchmark = local('voc12', folder, server.url, counts=COUNTS12)
        prepare(benchmark, tmp_path, **TELL)
        (tmp_path / 'voc12' / 'ready.json').unlink()
        file = tmp_path / 'voc12/images/trainval/VOCdevkit/VOC2012/JPEGImages' / f'{train[3]}.jpg'
        content = file.read_bytes()
        file.unlink()
        if damage != 'missing': file.write_bytes(content[:-200] if damage == 'truncated' else b'none')
        with refused('1 images below', train[3]): prepare(benchmark, tmp_path, **TELL)
        assert len(server.log) == 1 and check(benchmark, tmp_path) == [f'{tmp_path / "voc12"} has not been verified: give `spml data voc12`.']


def test_check_says_what_is_missing_at_every_step(voc12, tmp_path):
    folder, (train, _), _ = voc12
    def told(): return ' '.join(check(benchmark, tmp_path))
    with serve(folder, drop={'VOCtrainval_11-May-2012.tar': [30_000]}, status={'VOCtrainval_11-May-2012.tar': [None, 404]}) as server:
        benchmark = local('voc12', folder, server.url, counts=COUNTS12)
        assert 'is not there; from http' in told() and 'has not been verified' in told()
        with refused('404'): prepare(benchmark, tmp_path, **TELL)
        assert 'is half there: 30.0 kB' in told()
        fetch.download([f'{server.url}/VOCtrainval_11-May-2012.tar'], tmp_path / 'voc12' / 'downloads' / 'VOCtrainval_11-May-2012.tar', **TELL)
        assert 'is there, but not unpacked' in told()
        prepare(benchmark, tmp_path, **TELL)
        assert told() == ''
        (tmp_path / 'voc12/images/trainval/VOCdevkit/VOC2012/JPEGImages' / f'{train[3]}.jpg').write_bytes(jpeg([1] * 20) + b' ')
        assert 'have changed since' in told()
        prepare(benchmark, tmp_path, **TELL)                    # decodes, so it is verified as it is now
        assert told() == ''
        (tmp_path / 'voc12/images/trainval/VOCdevkit/VOC2012/JPEGImages' / f'{train[3]}.jpg').unlink()
        assert f'{train[3]}.jpg' in told()


def test_nothing_that_verifies_is_touched(voc12, tmp_path):
    folder, *_ = voc12
    with serve(folder) as server:
        benchmark = local('voc12', folder, server.url, counts=COUNTS12)
        prepare(benchmark, tmp_path, **TELL)
        stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / 'voc12').rglob('*')}
        for away in (None, 'ready.json', 'downloads/VOCtrainval_11-May-2012.tar'):
            if away: stamps.pop(tmp_path / 'voc12' / away); (tmp_path / 'voc12' / away).unlink()
            prepare(benchmark, tmp_path, **TELL)
            assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items() if path.is_file() and path.name != 'ready.json')
        assert len(server.log) == 1


def test_a_table_of_ones_own_is_not_overwritten(voc12, tmp_path):
    folder, *_ = voc12
    (tmp_path / 'voc12').mkdir()
    (tmp_path / 'voc12' / 'labels.csv').write_text('mine')
    with serve(folder) as server:
        benchmark = local('voc12', folder, server.url, counts=COUNTS12)
        with refused('not written by this command', 'move'): prepare(benchmark, tmp_path, **TELL)
        assert server.log == []
        (tmp_path / 'voc12' / 'labels.csv').unlink()
        prepare(benchmark, tmp_path, **TELL)
        (tmp_path / 'voc12' / 'ready.json').unlink()
        (tmp_path / 'voc12' / 'labels.csv').write_text('mine')
        with refused('differs from the official labels'): prepare(benchmark, tmp_path, **TELL)
    assert (tmp_path / 'voc12' / 'labels.csv').read_text() == 'mine'


def test_a_damaged_archive_is_set_aside_and_fetched_anew(tmp_path):
    (tmp_path / 'served').mkdir()
    file = zip_of(tmp_path / 'served' / 'clothing-co-parsing.zip', ccp_members(['hat'], [[1]]) | {'clothing-co-parsing-master/photos/0001.jpg': jpeg([1])})
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    with serve(tmp_path / 'served') as server:
        benchmark = local('ccp', tmp_path / 'served', server.url, counts={'images': 1})
        with refused('is not unpacked', 'clothing-co-parsing.zip.bad'): prepare(benchmark, tmp_path, **TELL)
        assert 'is not there' in check(benchmark, tmp_path)[0]
        file.write_bytes(whole)
        with refused('too few to split'): prepare(benchmark, tmp_path, **TELL)   # one photo: the archive is read, and no split fits
        assert len(server.log) == 2


def test_an_archive_that_leads_outside_is_refused(tmp_path):
    (tmp_path / 'served').mkdir()
    zip_of(tmp_path / 'served' / 'clothing-co-parsing.zip', {'clothing-co-parsing-master/../../../../evil': b'!'})
    with serve(tmp_path / 'served') as server, refused('would be outside'):
        prepare(local('ccp', tmp_path / 'served', server.url), tmp_path / 'data', **TELL)
    assert not list(tmp_path.rglob('evil')) and not (tmp_path / 'data' / 'ccp' / 'images' / 'repository').exists()


def test_two_at_once_prepare_once(voc12, tmp_path):
    folder, *_ = voc12
    told = []
    with serve(folder) as server, ThreadPoolExecutor(2) as both:
        benchmark = local('voc12', folder, server.url, counts=COUNTS12)
        assert len({*both.map(lambda _: prepare(benchmark, tmp_path, tell=told.append), range(2))}) == 1
        assert len(server.log) == 1
    assert sum('unpacking into' in line for line in told) == 1 and sum('voc12 is ready: ' in line for line in told) == 1


def test_files_by_hand_are_asked_for_and_single_files_and_siblings_are_used(voc12, tmp_path):
    folder, *_ = voc12
    with serve(folder) as server:
        given = local('voc12', folder, server.url, counts=COUNTS12)
        (folder / 'note.json').write_text('{}')
        note = Archive('note.json', (f'{server.url}/note.json',), 'extra')
        by_hand = dataclasses.replace(given, archives=(dataclasses.replace(given.archives[0], urls=()), note), instructions='Put it into {downloads}.')
        with refused('VOCtrainval_11-May-2012.tar must be brought by hand', f"Put it into {tmp_path / 'a' / 'voc12' / 'downloads'}."):
            prepare(by_hand, tmp_path / 'a', **TELL)
        assert server.log == []
        (tmp_path / 'a/cub/downloads').mkdir(parents=True)
        sibling = tmp_path / 'a/cub/downloads/VOCtrainval_11-May-2012.tar'
        sibling.write_bytes((folder / sibling.name).read_bytes())
        prepare(dataclasses.replace(given, archives=(given.archives[0], note)), tmp_path / 'a', **TELL)   # its checksum says that it is the same
        assert [name for name, _ in server.log] == ['note.json']
        assert (tmp_path / 'a/voc12/images/extra/note.json').read_text() == '{}'


def test_a_mirror_is_tried_first_and_the_official_address_next(voc12, tmp_path, monkeypatch):
    folder, *_ = voc12
    with serve(folder, status={'VOCtrainval_11-May-2012.tar': [404]}) as server:
        benchmark = local('voc12', folder, server.url, counts=COUNTS12)
        prepare(benchmark, tmp_path / 'a', mirror=f'{server.url}/mirror', **TELL)
        assert len(server.log) == 2
        (tmp_path / 'disk').mkdir()
        (tmp_path / 'disk' / 'voc12').symlink_to(folder)
        prepare(benchmark, tmp_path / 'b', mirror=str(tmp_path / 'disk'), **TELL)
        assert len(server.log) == 2


@pytest.mark.parametrize('name, place, content, told', [
    ('voc12', 'trainval/VOCdevkit/VOC2012/ImageSets/Main/aeroplane_train.txt', 'a 7\n', "'a 7'"),
    ('voc12', 'other/x', '', 'not the official layout'),
    ('coco14', 'annotations/annotations/instances_train2014.json', '{"images": []}', "'categories'"),
    ('coco14', 'annotations/annotations/instances_train2014.json', '{', 'cannot be read'),
    ('cub', 'archive/CUB_200_2011/images.txt', 'x y\n', 'a number and a name'),
    ('ccp', 'repository/clothing-co-parsing-master/label_list.mat', 'none', 'cannot be read as a MATLAB file'),
])
def test_official_files_that_are_garbled_are_named(tmp_path, name, place, content, told):
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_text(content)
    if name == 'cub': (tmp_path / 'archive' / 'attributes.txt').write_text('1 one\n')
    with refused(told): benchmarks.find(name).read(tmp_path)


# ---- tables

def test_a_large_table_is_kept_as_a_matrix_and_means_the_same(tmp_path, monkeypatch):
    rng = np.random.RandomState(0)
    names = [f'd/ü {k}.jpg' for k in range(30)]
    for image in names:
        (tmp_path / 'vaw' / 'images' / image).parent.mkdir(parents=True, exist_ok=True)
        drawing([1]).save(tmp_path / 'vaw' / 'images' / image)
    listing = Listing(names, rng.randint(-1, 2, (30, 4)).astype(np.int8), ['b', 'a|c', 'ä', '0'], ['train'] * 20 + ['test'] * 10)
    benchmark = dataclasses.replace(benchmarks.find('voc12'), name='vaw', read=lambda folder: listing, archives=(), counts={'images': 30})
    tables = {}
    for most, file in ((10**9, 'labels.csv'), (10, 'labels.npz')):
        monkeypatch.setattr(registry, 'MOST_CELLS', most)
        for validation in ('drawn', 'none'):
            prepare(dataclasses.replace(benchmark, validation=validation), tmp_path, **TELL)
            assert [path.name for path in (tmp_path / 'vaw').glob('labels.*')] == [file]
            tables[file, validation] = data = datasets.load('vaw', root=tmp_path)
            assert np.array_equal(data.labels, listing.labels) and data.class_names == listing.class_names
            assert [len(data.rows(part)) for part in datasets.PARTS] == ([16, 4, 10] if validation == 'drawn' else [20, 0, 10])
            (tmp_path / 'vaw' / 'ready.json').unlink()
        (tmp_path / 'vaw' / file).unlink()
    for validation in ('drawn', 'none'): assert tables['labels.csv', validation].fingerprint == tables['labels.npz', validation].fingerprint


def test_an_image_that_is_listed_twice_stops_before_a_table_is_written(tmp_path):
    (tmp_path / 'vaw' / 'images').mkdir(parents=True)
    (tmp_path / 'vaw' / 'images' / 'a.jpg').write_bytes(jpeg([1]))
    listing = Listing(['a.jpg'] * 20, np.ones((20, 1), np.int8), ['a'])
    with refused('only 1 different images'):
        prepare(dataclasses.replace(benchmarks.find('voc12'), name='vaw', read=lambda folder: listing, archives=(), counts={'images': 20}), tmp_path, **TELL)
    assert not (tmp_path / 'vaw' / 'labels.csv').exists()


def test_a_damaged_matrix_is_named(tmp_path):
    (tmp_path / 'vaw').mkdir()
    (tmp_path / 'vaw' / 'labels.npz').write_bytes(b'PK none')
    with refused(tmp_path / 'vaw' / 'labels.npz', 'cannot be read'): datasets.load('vaw', root=tmp_path)


# ---- real label matrices, written in the official formats and read back

def unpacked(matrices, name): return np.unpackbits(matrices[f'{name}_test'], axis=1)[:, :int(matrices[f'{name}_classes'])].astype(int)


def test_the_true_voc_labels_survive_the_image_sets(label_matrices, tmp_path):
    truth, names = unpacked(label_matrices, 'voc12'), [str(name).removesuffix('.jpg') for name in label_matrices['voc12_test_names']]
    words = np.where(truth == 1, 1, np.where(np.random.RandomState(0).rand(*truth.shape) < 0.05, 0, -1))
    shuffled = np.random.RandomState(1).permutation(len(names))
    parts = {part: ([names[k] for k in shuffled], words[shuffled]) for part in ('train', 'val')}
    for member, content in voc_members(2012, parts, images=False).items():
        (tmp_path / 'trainval' / member).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / 'trainval' / member).write_bytes(content)
    listing = benchmarks.find('voc12').read(tmp_path)
    assert [Path(name).stem for name in listing.images[len(names):]] == names == sorted(names)
    assert np.array_equal(listing.labels[len(names):], np.where(truth == 1, 1, -1))


def test_the_true_cub_labels_survive_the_attribute_file(label_matrices, tmp_path):
    truth = unpacked(label_matrices, 'cub')
    train = np.zeros(len(truth), int)
    for member, content in cub_members(truth, train)[1].items():
        (tmp_path / 'archive' / member).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / 'archive' / member).write_bytes(content)
    listing = benchmarks.find('cub').read(tmp_path)
    assert np.array_equal(listing.labels, np.where(truth == 1, 1, -1)) and set(listing.split) == {'test'}


def coles_draw(truth, seed):
    "Single positives by plain loops: of each image in turn, shuffle the positives and keep the first, then shuffle the negatives and keep none."
    rng, kept = np.random.RandomState(seed), np.zeros(truth.shape, int)
    for i in range(len(truth)):
        positives = [c for c in range(truth.shape[1]) if truth[i, c] == 1]
        negatives = [c for c in range(truth.shape[1]) if truth[i, c] != 1]
        rng.shuffle(positives)
        rng.shuffle(negatives)
        for c in positives[:1]: kept[i, c] = 1
    return kept


@pytest.mark.parametrize('name', ['voc12', 'cub', 'nus'])
def test_observed_labels_equal_coles_draw(label_matrices, name):
    truth = unpacked(label_matrices, name)
    assert np.array_equal(labels.observe(truth, positives=1, negatives=0, seed=1200), coles_draw(truth, 1200))


@pytest.mark.parametrize('n, train, val', [(5717, 4574, 1143), (82081, 65665, 16416), (150000, 120000, 30000), (5994, 4795, 1199)])
def test_split_sizes_and_rows_are_the_protocols(n, train, val):
    split = folder._read_split(datasets.pd.DataFrame({'split': ['train'] * n + ['test'] * 10}), 'labels.csv')
    assert [(split == part).sum() for part in datasets.PARTS] == [train, val, 10]
    order = np.random.RandomState(1200).permutation(n)
    assert np.flatnonzero(split == 'val').tolist() == sorted(order[n - val:].tolist())


# ---- the command

def test_the_command_lists_checks_prepares_and_ends_bad_input_in_one_line(voc12, tmp_path, capsys, monkeypatch):
    folder, *_ = voc12
    root = str(tmp_path / 'data')
    with serve(folder) as server:
        monkeypatch.setitem(benchmarks.REGISTRY, 'voc12', local('voc12', folder, server.url, counts=COUNTS12))
        assert cli.main(['data', '--root', root]) == 0 and capsys.readouterr().out.startswith('voc12 ')
        assert cli.main(['data', 'voc12', '--root', root, '--check']) == 1 and 'is not there' in capsys.readouterr().out
        assert cli.main(['data', 'voc12', '--root', root]) == 0
        assert 'ready: ' in capsys.readouterr().out.splitlines()[-1]
        assert cli.main(['data', 'voc12', '--root', root, '--check']) == 0 and capsys.readouterr().out == 'voc12 is ready.\n'
    line = next(line for line in (cli.main(['data', '--root', root]), capsys.readouterr().out)[1].splitlines() if line.startswith('voc12'))
    assert line.endswith('ready')
    for words, told in ((['data', 'voc21'], "unknown benchmark 'voc21'"), (['data', '--check'], 'need the name'), (['data', 'cub', '--mirror', 'x/y'], "the mirror 'x/y'")):
        assert cli.main([*words, '--root', root]) == 2
        said = capsys.readouterr().err
        assert said.startswith('error: ') and told in said and said.count('\n') == 1
    with open(tmp_path / 'data' / 'voc12' / 'labels.csv', newline='') as table: assert next(csv.reader(table))[:3] == ['image', 'split', 'aeroplane']


def test_ctrl_c_ends_quietly(monkeypatch, capsys):
    def stop(*words, **options): raise KeyboardInterrupt
    monkeypatch.setattr(registry, 'prepare', stop)
    assert cli.main(['data', 'voc12']) == 130 and 'goes on from here' in capsys.readouterr().err
