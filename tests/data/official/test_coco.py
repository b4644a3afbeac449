"""COCO: names in order as strings, crowds, images without a box."""

import json

import pytest
from serving import jpeg, local, ready, serve, zip_of
from small_copies import coco

pytestmark = pytest.mark.filterwarnings(
    'ignore:.*(never used|no training image has it|No positive)'
)


def test_coco14_orders_names_as_strings_and_counts_crowds(tmp_path):
    (tmp_path / 'served').mkdir()
    drawn = [13, 1, 90, 4, 11]  # ids with gaps, out of order
    train = [
        f'COCO_train2014_{k}.jpg' for k in [9, 10, 100, 11, 2, *range(200, 220)]
    ]  # as strings: 10, 100, 11, 2, 200 …, 9
    rows = [[1], [-90], [], [4, 4, -13], [11, 1], *[[drawn[k % 5], 1] for k in range(20)]]
    val, val_rows = [f'COCO_val2014_{k}.jpg' for k in (5, 40, 300)], [[1, 13], [90], [4, 11]]
    files = {
        'train': coco(train, rows, range(1000, 1025), drawn),
        'val': coco(val, val_rows, (7, 3, 5), drawn),
    }
    members = {
        f'annotations/instances_{part}2014.json': json.dumps(content).encode()
        for part, content in files.items()
    }
    zip_of(tmp_path / 'served' / 'annotations_trainval2014.zip', members)
    for part, names, which in (('train', train, rows), ('val', val, val_rows)):
        shown = {
            f'{part}2014/{name}': jpeg([c in map(abs, row) for c in sorted(drawn)])
            for name, row in zip(names, which, strict=True)
        }
        zip_of(tmp_path / 'served' / f'{part}2014.zip', shown)
    with serve(tmp_path / 'served') as server:
        benchmark = local(
            'coco14', tmp_path / 'served', server.url, counts={'train': 24, 'test': 3, 'classes': 5}
        )
        data = ready(benchmark, tmp_path / 'data')
    order = ['10', '11', '2', *map(str, range(200, 220)), '9']  # 100 has no box
    assert [path.stem.removeprefix('COCO_train2014_') for path in data.images[:24]] == order
    assert [path.name for path in data.images[24:]] == [
        'COCO_val2014_300.jpg',
        'COCO_val2014_40.jpg',
        'COCO_val2014_5.jpg',
    ]
    assert data.class_names == ['thing 1', 'thing 4', 'thing 11', 'thing 13', 'thing 90']
    assert (data.labels[[0, 1, 2]] > 0).tolist() == [
        [False] * 4 + [True],
        [False, True, False, True, False],
        [True, False, True, False, False],
    ]
    assert (data.labels[24:] > 0).tolist() == [
        [False, True, True, False, False],
        [False] * 4 + [True],
        [True, False, False, True, False],
    ]
