"""Making a benchmark ready: faults of the server and of the files, tables that are kept, and the
command.
"""

import csv
import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from serving import drawing, jpeg, local, serve, zip_of
from small_copies import COUNTS12, MAKERS, TELL, ccp_members, refused

from spml_nb import cli
from spml_nb import data as datasets
from spml_nb.base.errors import SpmlError
from spml_nb.data import fetch
from spml_nb.data.official import registry
from spml_nb.data.official.registry import (
    BENCHMARKS,
    Archive,
    Listing,
    find_benchmark,
    list_missing_files,
    prepare_benchmark,
)

pytestmark = pytest.mark.filterwarnings(
    'ignore:.*(never used|no training image has it|No positive)'
)


def test_every_benchmark_is_registered_with_the_protocols_counts():
    found = {name: find_benchmark(name) for name in MAKERS}
    assert {
        name: (b.counts['train'], b.counts['test'], b.counts['classes'])
        for name, b in found.items()
    } == {
        'l48': (97_641, 31_365, 100),
        'nus': (150_000, 60_260, 81),
        'vispr': (14_167, 8_000, 68),
        'vaw': (229_076, 31_819, 620),
        'wider': (28_340, 29_117, 14),
        'imagenet': (1_281_167, 50_000, 1000),
        'aircraft': (6_667, 3_333, 100),
        'caltech101': (3_060, 6_084, 102),
        'cars': (8_144, 8_041, 196),
        'cub-species': (5_994, 5_794, 200),
        'dtd': (3_760, 1_880, 47),
        'flowers': (2_040, 6_149, 102),
        'food101': (75_750, 25_250, 101),
        'pets': (3_680, 3_669, 37),
        'sun': (19_850, 19_850, 397),
    }


def test_each_benchmark_has_one_reader_and_each_reader_a_benchmark():
    readers = [name for module in registry.READER_MODULES for name in module.READERS]
    assert sorted(readers) == sorted(BENCHMARKS)


def test_wrong_counts_stop_before_a_table_is_written(voc12, tmp_path):
    folder, *_ = voc12
    with (
        serve(folder) as server,
        refused(
            '30 training images (expected 5,717)',
            '10 test images (expected 5,823)',
            'not the official files',
        ),
    ):
        prepare_benchmark(
            local('voc12', folder, server.url), tmp_path / 'data', **TELL
        )  # the protocol's own counts
    assert (
        not list((tmp_path / 'data' / 'voc12').glob('*.csv'))
        and not (tmp_path / 'data' / 'voc12' / 'ready.json').exists()
    )


def test_the_counts_are_the_protocols():
    known = {
        'voc12': (5717, 5823, 20),
        'voc07': (5011, 4952, 20),
        'coco14': (82081, 40137, 80),
        'cub': (5994, 5794, 312),
    }
    for name, (train, test, classes) in known.items():
        assert find_benchmark(name).counts == {'train': train, 'test': test, 'classes': classes}
    assert find_benchmark('ccp').counts == {'images': 2098, 'classes': 58}
    for name in BENCHMARKS:
        for archive in find_benchmark(name).archives:
            assert (
                all(url.startswith(('http://', 'https://')) for url in archive.urls)
                and len(archive.md5 or 32 * ' ') == 32
            )


@pytest.mark.parametrize('damage', ['missing', 'truncated', 'no image'])
def test_images_that_are_missing_or_damaged_are_named(voc12, tmp_path, damage):
    folder, (train, _), _ = voc12
    with serve(folder) as server:
        benchmark = local('voc12', folder, server.url, counts=COUNTS12)
        prepare_benchmark(benchmark, tmp_path, **TELL)
        (tmp_path / 'voc12' / 'ready.json').unlink()
        file = tmp_path / 'voc12/images/trainval/VOCdevkit/VOC2012/JPEGImages' / f'{train[3]}.jpg'
        content = file.read_bytes()
        file.unlink()
        if damage != 'missing':
            file.write_bytes(content[:-200] if damage == 'truncated' else b'none')
        with refused('1 images below', train[3]):
            prepare_benchmark(benchmark, tmp_path, **TELL)
        assert len(server.log) == 1 and list_missing_files(benchmark, tmp_path) == [
            f'{tmp_path / "voc12"} has not been verified: give `spml data voc12`.'
        ]


def test_check_says_what_is_missing_at_every_step(voc12, tmp_path):
    folder, (train, _), _ = voc12

    def told():
        return ' '.join(list_missing_files(benchmark, tmp_path))

    with serve(
        folder,
        drop={'VOCtrainval_11-May-2012.tar': [30_000]},
        status={'VOCtrainval_11-May-2012.tar': [None, 404]},
    ) as server:
        benchmark = local('voc12', folder, server.url, counts=COUNTS12)
        assert 'is missing; from http' in told() and 'has not been verified' in told()
        with refused('404'):
            prepare_benchmark(benchmark, tmp_path, **TELL)
        assert '30.0 kB' in told()
        fetch.download(
            [f'{server.url}/VOCtrainval_11-May-2012.tar'],
            tmp_path / 'voc12' / 'downloads' / 'VOCtrainval_11-May-2012.tar',
            **TELL,
        )
        assert 'not unpacked' in told()
        prepare_benchmark(benchmark, tmp_path, **TELL)
        assert told() == ''
        (
            tmp_path / 'voc12/images/trainval/VOCdevkit/VOC2012/JPEGImages' / f'{train[3]}.jpg'
        ).write_bytes(jpeg([1] * 20) + b' ')
        assert 'have changed since' in told()
        prepare_benchmark(benchmark, tmp_path, **TELL)  # decodes, so it is verified as it is now
        assert told() == ''
        (
            tmp_path / 'voc12/images/trainval/VOCdevkit/VOC2012/JPEGImages' / f'{train[3]}.jpg'
        ).unlink()
        assert f'{train[3]}.jpg' in told()


def test_nothing_that_verifies_is_touched(voc12, tmp_path):
    folder, *_ = voc12
    with serve(folder) as server:
        benchmark = local('voc12', folder, server.url, counts=COUNTS12)
        prepare_benchmark(benchmark, tmp_path, **TELL)
        stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / 'voc12').rglob('*')}
        for away in (None, 'ready.json', 'downloads/VOCtrainval_11-May-2012.tar'):
            if away:
                stamps.pop(tmp_path / 'voc12' / away)
                (tmp_path / 'voc12' / away).unlink()
            prepare_benchmark(benchmark, tmp_path, **TELL)
            assert all(
                path.stat().st_mtime_ns == stamp
                for path, stamp in stamps.items()
                if path.is_file() and path.name != 'ready.json'
            )
        assert len(server.log) == 1


def test_a_table_of_ones_own_is_not_overwritten(voc12, tmp_path):
    folder, *_ = voc12
    (tmp_path / 'voc12').mkdir()
    (tmp_path / 'voc12' / 'labels.csv').write_text('mine')
    with serve(folder) as server:
        benchmark = local('voc12', folder, server.url, counts=COUNTS12)
        with refused('not written by this command', 'move'):
            prepare_benchmark(benchmark, tmp_path, **TELL)
        assert server.log == []
        (tmp_path / 'voc12' / 'labels.csv').unlink()
        prepare_benchmark(benchmark, tmp_path, **TELL)
        (tmp_path / 'voc12' / 'ready.json').unlink()
        (tmp_path / 'voc12' / 'labels.csv').write_text('mine')
        with refused('differs from the official labels'):
            prepare_benchmark(benchmark, tmp_path, **TELL)
        (tmp_path / 'voc12' / 'labels.csv').unlink()
        prepare_benchmark(benchmark, tmp_path, **TELL)
        (tmp_path / 'voc12' / 'labels.csv').write_text('mine')  # corrections after it was verified
        with refused('differs from the official labels'):
            prepare_benchmark(benchmark, tmp_path, **TELL)
    assert (tmp_path / 'voc12' / 'labels.csv').read_text() == 'mine'


def test_a_damaged_archive_is_set_aside_and_fetched_anew(tmp_path):
    (tmp_path / 'served').mkdir()
    file = zip_of(
        tmp_path / 'served' / 'clothing-co-parsing.zip',
        ccp_members(['hat'], [[1]]) | {'clothing-co-parsing-master/photos/0001.jpg': jpeg([1])},
    )
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    with serve(tmp_path / 'served') as server:
        benchmark = local('ccp', tmp_path / 'served', server.url, counts={'images': 1})
        with refused('is not unpacked', 'clothing-co-parsing.zip.bad'):
            prepare_benchmark(benchmark, tmp_path, **TELL)
        assert 'is missing' in list_missing_files(benchmark, tmp_path)[0]
        file.write_bytes(whole)
        with refused('too few to split'):
            prepare_benchmark(
                benchmark, tmp_path, **TELL
            )  # one photo: the archive is read, and no split fits
        assert len(server.log) == 2


def test_an_archive_that_leads_outside_is_refused(tmp_path):
    (tmp_path / 'served').mkdir()
    zip_of(
        tmp_path / 'served' / 'clothing-co-parsing.zip',
        {'clothing-co-parsing-master/../../../../evil': b'!'},
    )
    with serve(tmp_path / 'served') as server, refused('would be outside'):
        prepare_benchmark(local('ccp', tmp_path / 'served', server.url), tmp_path / 'data', **TELL)
    assert (
        not list(tmp_path.rglob('evil'))
        and not (tmp_path / 'data' / 'ccp' / 'images' / 'repository').exists()
    )


def test_two_at_once_prepare_once(voc12, tmp_path):
    folder, *_ = voc12
    told = []
    with serve(folder) as server, ThreadPoolExecutor(2) as both:
        benchmark = local('voc12', folder, server.url, counts=COUNTS12)
        assert (
            len(
                {
                    *both.map(
                        lambda _: prepare_benchmark(benchmark, tmp_path, tell=told.append), range(2)
                    )
                }
            )
            == 1
        )
        assert len(server.log) == 1
    assert (
        sum('unpacking into' in line for line in told) == 1
        and sum('voc12 is ready: ' in line for line in told) == 1
    )


def test_files_by_hand_are_asked_for_and_single_files_and_siblings_are_used(voc12, tmp_path):
    folder, *_ = voc12
    with serve(folder) as server:
        given = local('voc12', folder, server.url, counts=COUNTS12)
        (folder / 'note.json').write_text('{}')
        note = Archive('note.json', (f'{server.url}/note.json',), 'extra')
        by_hand = dataclasses.replace(
            given,
            archives=(dataclasses.replace(given.archives[0], urls=()), note),
            instructions='Put it into {downloads}.',
        )
        with refused(
            'VOCtrainval_11-May-2012.tar must be brought by hand',
            f"Put it into {tmp_path / 'a' / 'voc12' / 'downloads'}.",
        ):
            prepare_benchmark(by_hand, tmp_path / 'a', **TELL)
        assert server.log == []
        (tmp_path / 'a/cub/downloads').mkdir(parents=True)
        sibling = tmp_path / 'a/cub/downloads/VOCtrainval_11-May-2012.tar'
        sibling.write_bytes((folder / sibling.name).read_bytes())
        prepare_benchmark(
            dataclasses.replace(given, archives=(given.archives[0], note)), tmp_path / 'a', **TELL
        )  # its checksum says that it is the same
        assert [name for name, _ in server.log] == ['note.json']
        assert (tmp_path / 'a/voc12/images/extra/note.json').read_text() == '{}'


def test_a_mirror_is_tried_first_and_the_official_address_next(voc12, tmp_path, monkeypatch):
    folder, *_ = voc12
    with serve(folder, status={'VOCtrainval_11-May-2012.tar': [404]}) as server:
        benchmark = local('voc12', folder, server.url, counts=COUNTS12)
        prepare_benchmark(benchmark, tmp_path / 'a', mirror=f'{server.url}/mirror', **TELL)
        assert len(server.log) == 2
        (tmp_path / 'disk').mkdir()
        (tmp_path / 'disk' / 'voc12').symlink_to(folder)
        prepare_benchmark(benchmark, tmp_path / 'b', mirror=str(tmp_path / 'disk'), **TELL)
        assert len(server.log) == 2


@pytest.mark.parametrize(
    'name, place, content, told',
    [
        (
            'voc12',
            'trainval/VOCdevkit/VOC2012/ImageSets/Main/aeroplane_train.txt',
            'a 7\n',
            "'a 7'",
        ),
        ('voc12', 'other/x', '', 'not the official layout'),
        (
            'coco14',
            'annotations/annotations/instances_train2014.json',
            '{"images": []}',
            "'categories'",
        ),
        ('coco14', 'annotations/annotations/instances_train2014.json', '{', 'cannot be read'),
        ('cub', 'archive/CUB_200_2011/images.txt', 'x y\n', 'a number and a name'),
        (
            'ccp',
            'repository/clothing-co-parsing-master/label_list.mat',
            'none',
            'cannot be read as a MATLAB file',
        ),
    ],
)
def test_official_files_that_are_garbled_are_named(tmp_path, name, place, content, told):
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_text(content)
    if name == 'cub':
        (tmp_path / 'archive' / 'attributes.txt').write_text('1 one\n')
    with refused(told):
        find_benchmark(name).read(tmp_path)


# ---- tables


def test_a_large_table_is_kept_as_a_matrix_and_means_the_same(tmp_path, monkeypatch):
    rng = np.random.RandomState(0)
    names = [f'd/ü {k}.jpg' for k in range(30)]
    for image in names:
        (tmp_path / 'vaw' / 'images' / image).parent.mkdir(parents=True, exist_ok=True)
        drawing([1]).save(tmp_path / 'vaw' / 'images' / image)
    listing = Listing(
        names,
        rng.randint(-1, 2, (30, 4)).astype(np.int8),
        ['b', 'a,c', 'ä', '0'],
        ['train'] * 20 + ['test'] * 10,
    )
    benchmark = dataclasses.replace(
        find_benchmark('voc12'),
        name='vaw',
        read=lambda folder: listing,
        archives=(),
        counts={'images': 30},
    )
    tables = {}
    for most, file in ((10**9, 'labels.csv'), (10, 'labels.npz')):
        monkeypatch.setattr(registry, 'MOST_CELLS', most)
        for validation in ('drawn', 'none'):
            prepare_benchmark(
                dataclasses.replace(benchmark, validation=validation), tmp_path, **TELL
            )
            assert [path.name for path in (tmp_path / 'vaw').glob('labels.*')] == [file]
            tables[file, validation] = data = datasets.load('vaw', root=tmp_path)
            assert (
                np.array_equal(data.labels, listing.labels)
                and data.class_names == listing.class_names
            )
            assert [len(data.rows(part)) for part in datasets.PARTS] == (
                [16, 4, 10] if validation == 'drawn' else [20, 0, 10]
            )
            (tmp_path / 'vaw' / 'ready.json').unlink()
        (tmp_path / 'vaw' / file).unlink()
    for validation in ('drawn', 'none'):
        assert (
            tables['labels.csv', validation].fingerprint
            == tables['labels.npz', validation].fingerprint
        )


def test_an_image_that_is_listed_twice_stops_before_a_table_is_written(tmp_path):
    (tmp_path / 'vaw' / 'images').mkdir(parents=True)
    (tmp_path / 'vaw' / 'images' / 'a.jpg').write_bytes(jpeg([1]))
    listing = Listing(['a.jpg'] * 20, np.ones((20, 1), np.int8), ['a'])
    with refused('only 1 different images'):
        prepare_benchmark(
            dataclasses.replace(
                find_benchmark('voc12'),
                name='vaw',
                read=lambda folder: listing,
                archives=(),
                counts={'images': 20},
            ),
            tmp_path,
            **TELL,
        )
    assert not (tmp_path / 'vaw' / 'labels.csv').exists()


def test_a_damaged_matrix_is_named(tmp_path):
    (tmp_path / 'vaw').mkdir()
    (tmp_path / 'vaw' / 'labels.npz').write_bytes(b'PK none')
    with refused(tmp_path / 'vaw' / 'labels.npz', 'cannot be read'):
        datasets.load('vaw', root=tmp_path)


# ---- the command


def test_the_command_lists_checks_prepares_and_ends_bad_input_in_one_line(
    voc12, tmp_path, capsys, monkeypatch
):
    folder, *_ = voc12
    root = str(tmp_path / 'data')
    with serve(folder) as server:
        monkeypatch.setitem(
            registry.REGISTRY, 'voc12', local('voc12', folder, server.url, counts=COUNTS12)
        )
        assert cli.main(['data', '--root', root]) == 0 and capsys.readouterr().out.startswith(
            'voc12 '
        )
        assert (
            cli.main(['data', 'voc12', '--root', root, '--check']) == 1
            and 'is missing' in capsys.readouterr().out
        )
        assert cli.main(['data', 'voc12', '--root', root]) == 0
        assert 'ready: ' in capsys.readouterr().out.splitlines()[-1]
        assert (
            cli.main(['data', 'voc12', '--root', root, '--check']) == 0
            and capsys.readouterr().out == 'voc12 is ready.\n'
        )
    line = next(
        line
        for line in (cli.main(['data', '--root', root]), capsys.readouterr().out)[1].splitlines()
        if line.startswith('voc12')
    )
    assert line.endswith('ready')
    for words, told in (
        (['data', 'voc21'], "unknown benchmark 'voc21'"),
        (['data', '--check'], 'needs the name'),
        (['data', 'cub', '--mirror', 'x/y'], "the mirror 'x/y'"),
    ):
        assert cli.main([*words, '--root', root]) == 2
        said = capsys.readouterr().err
        assert said.startswith('error: ') and told in said and said.count('\n') == 1
    with open(tmp_path / 'data' / 'voc12' / 'labels.csv', newline='') as table:
        assert next(csv.reader(table))[:3] == ['image', 'split', 'aeroplane']


def test_ctrl_c_ends_quietly(monkeypatch, capsys):
    def stop(*words, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, 'prepare_benchmark', stop)
    assert cli.main(['data', 'voc12']) == 130 and 'goes on from here' in capsys.readouterr().err


def test_what_must_be_brought_is_named_with_its_place(tmp_path):
    for name in ('nus', 'wider', 'vispr', 'imagenet', 'cars'):
        with pytest.raises(SpmlError) as caught:
            prepare_benchmark(name, tmp_path, tell=lambda line: None)
        assert 'must be brought by hand' in str(caught.value) and str(tmp_path / name) in str(
            caught.value
        )
        assert next(a.file for a in find_benchmark(name).archives if not a.urls) in str(
            caught.value
        )
