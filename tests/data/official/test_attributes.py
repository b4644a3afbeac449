"""Boxes cut out of photos, and what VAW, WIDER and VISPR leave unknown."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image
from serving import drawing, jpeg

from spml_nb import data as datasets
from spml_nb import metrics
from spml_nb.base.errors import SpmlError
from spml_nb.data.official.attributes import cut_boxes
from spml_nb.data.official.registry import find_benchmark

pytestmark = pytest.mark.filterwarnings(
    'ignore:.*(never used|no training image has it|No positive)'
)


@pytest.mark.parametrize('name', ['vaw', 'wider', 'vispr'])
def test_from_the_official_files_to_a_dataset(goes_round, name):
    goes_round(name)


def test_a_crop_shows_what_is_in_the_box(tmp_path):
    photo = np.zeros((50, 60, 3), np.uint8)
    photo[10:30, 20:50] = (200, 30, 60)
    Image.fromarray(photo).save(tmp_path / 'photo.png')
    boxes = {
        'all.jpg': (20, 10, 30, 20),
        'part.jpg': (-5, -5, 30.2, 20),
        'none.jpg': (60, 0, 9, 9),
        'thin.jpg': (30, 20, 0.3, 0.3),
    }
    assert cut_boxes(tmp_path, {tmp_path / 'photo.png': boxes}) == {
        'all.jpg',
        'part.jpg',
        'thin.jpg',
    }
    with Image.open(tmp_path / 'crops/all.jpg') as image:
        assert (
            image.size == (30, 20) and abs(np.asarray(image).astype(int) - (200, 30, 60)).max() < 6
        )
    with Image.open(tmp_path / 'crops/part.jpg') as image:
        assert image.size == (26, 15) and np.asarray(image)[:8].max() < 40
    with Image.open(tmp_path / 'crops/thin.jpg') as image:
        assert image.size == (1, 1)


def test_a_damaged_photo_leaves_no_crops(tmp_path):
    (tmp_path / 'bad.jpg').write_bytes(jpeg([1])[:300])
    drawing([1]).save(tmp_path / 'good.jpg')
    with pytest.raises(SpmlError, match='bad.jpg'):
        cut_boxes(
            tmp_path,
            {
                tmp_path / 'good.jpg': {'a.jpg': (0, 0, 9, 9)},
                tmp_path / 'bad.jpg': {'b.jpg': (0, 0, 9, 9)},
            },
        )
    assert sorted(file.name for file in tmp_path.iterdir()) == ['bad.jpg', 'good.jpg']


def test_what_vaw_does_not_say_is_unknown_and_in_no_metric(unpacked, tmp_path):
    folder, (_, labels, _, _) = unpacked('vaw')
    data = datasets.load('vaw', root=tmp_path / 'data')
    z = data.labels[data.rows('test')]
    assert (z == 0).any() and np.array_equal(data.labels == 0, labels == 0)
    scores = np.random.RandomState(0).standard_normal(z.shape)
    moved = np.where(z == 0, 99 * np.random.RandomState(1).standard_normal(z.shape), scores)
    for axis in ('class', 'sample'):
        assert metrics.mean_average_precision(
            scores, z, axis=axis
        ) == metrics.mean_average_precision(moved, z, axis=axis)
    assert metrics.mean_average_precision(-scores, z) != metrics.mean_average_precision(scores, z)


def change(file, edit):
    content = json.loads(file.read_text())
    edit(content)
    file.write_text(json.dumps(content))


def test_what_vaw_says_both_ways_is_unknown_and_other_words_are_refused(unpacked):
    folder, _ = unpacked('vaw')
    file = next(folder.rglob('val.json'))
    change(
        file,
        lambda found: found[0].update(
            positive_attributes=['red', 'tall'], negative_attributes=['tall', 'wet']
        ),
    )
    listing = find_benchmark('vaw').read(folder)
    assert listing.labels[10].tolist() == [0, 1, 0, 0, -1]
    change(file, lambda found: found[0].update(positive_attributes=['reddish']))
    with pytest.raises(SpmlError, match="9010.*'reddish'"):
        find_benchmark('vaw').read(folder)
    change(file, lambda found: found[0].pop('positive_attributes'))
    with pytest.raises(SpmlError, match='positive_attributes'):
        find_benchmark('vaw').read(folder)
    change(file, lambda found: found[0].update(positive_attributes=[], image_id=4711))
    with pytest.raises(SpmlError, match='4711.jpg'):
        find_benchmark('vaw').read(folder)


def test_wider_refuses_other_values(unpacked):
    folder, _ = unpacked('wider')
    change(
        next(folder.rglob('wider_attribute_test.json')),
        lambda found: found['images'][0]['targets'][0]['attribute'].__setitem__(0, 7),
    )
    with pytest.raises(SpmlError, match='wider_attribute_test.json'):
        find_benchmark('wider').read(folder)


def test_wider_reads_train_and_val_apart_as_well(unpacked):
    folder, (_, labels, split, _) = unpacked('wider')
    file = next(folder.rglob('wider_attribute_trainval.json'))
    content = json.loads(file.read_text())
    for part, rows in (('train', slice(0, 4)), ('val', slice(4, None))):
        (file.parent / f'wider_attribute_{part}.json').write_text(
            json.dumps({**content, 'images': content['images'][rows]})
        )
    file.unlink()
    shutil.rmtree(folder / 'crops')
    listing = find_benchmark('wider').read(folder)
    assert (
        np.array_equal(listing.labels, labels)
        and listing.split == split
        and listing.images[8] == 'crops/val-00000.jpg'
    )


def test_vispr_needs_an_annotation_for_each_photo(unpacked):
    folder, _ = unpacked('vispr')
    next(folder.rglob('2017_00000009.json')).unlink()
    with pytest.raises(SpmlError, match='val/2017_00000009'):
        find_benchmark('vispr').read(folder)
