"""Labels drawn by official boxes: what a box weighs, and what is drawn of a small copy of VOC and
of COCO.
"""

import json

import numpy as np
import pytest
from serving import local, ready, serve
from small_copies import COUNTS12, coco

from spml_nb.base.errors import SpmlError
from spml_nb.data import labels
from spml_nb.data.official import boxes
from spml_nb.data.official.boxes import box_area, box_centrality, weigh_benchmark_by_boxes
from spml_nb.data.official.voc import VOC_CLASSES
from spml_nb.runs.config import Config
from spml_nb.training.task import make_task

pytestmark = pytest.mark.filterwarnings(
    'ignore:.*(never used|no training image has it|No positive)'
)


def test_a_box_weighs_what_it_covers_or_how_near_it_is_to_the_middle():
    assert box_area(0, 0, 1, 1) == 1 and box_area(0.25, 0.5, 0.75, 0.6) == pytest.approx(0.05)
    assert box_centrality(0.2, 0.1, 0.8, 0.9) == 1 and box_centrality(0, 0, 0, 0) == box_centrality(
        1, 0, 1, 0
    ) == pytest.approx(0)
    assert box_centrality(0.5, 0, 0.5, 0) == pytest.approx(1 - 0.5**0.5)  # the middle of an edge
    random = np.random.RandomState(0)
    for x0, y0, x1, y1 in np.sort(random.random_sample((50, 2, 2)), axis=1).reshape(50, 4):
        away = np.hypot((x0 + x1) / 2 - 0.5, (y0 + y1) / 2 - 0.5) / np.hypot(
            0.5, 0.5
        )  # as a share of the way to a corner
        assert box_centrality(x0, y0, x1, y1) == pytest.approx(1 - away)


@pytest.fixture
def small_voc(voc12, tmp_path, monkeypatch):
    """A prepared copy of VOC 2012 whose class c has the box (c, 10, 2c + 2, 20) in photos of 50 by
    40.
    """
    with serve(voc12[0]) as server:
        data = ready(local('voc12', voc12[0], server.url, counts=COUNTS12), tmp_path / 'data')
    boxes._boxes.cache_clear()
    yield data, tmp_path / 'data'
    boxes._boxes.cache_clear()


def test_the_weights_of_voc_are_those_of_its_boxes(small_voc):
    data, root = small_voc
    for kind, of in (
        ('large', lambda c: (c + 2) / 50 * 10 / 40),
        ('central', lambda c: 1 - np.hypot((3 * c + 2) / 50 - 1, 30 / 40 - 1) / 2**0.5),
    ):
        weights = weigh_benchmark_by_boxes('voc12', data, kind, root)
        positive = data.labels > 0
        expected = np.broadcast_to([of(c) for c in range(len(VOC_CLASSES))], data.labels.shape)
        assert (
            weights[positive] == pytest.approx(expected[positive])
            and (weights[~positive] == 0).all()
        )  # difficult objects have no box


@pytest.mark.parametrize('kind', labels.BOX_WEIGHTINGS)
def test_a_run_draws_by_the_boxes_of_its_classes(small_voc, kind):
    data, root = small_voc
    task = make_task(
        Config(
            loss='an',
            dataset='voc12',
            root=str(root),
            labels=f'single-{kind}',
            label_seed=4,
            exclude=('dog', 'bird'),
        )
    )
    drawn = np.sort(np.concatenate([task.train, task.val]))
    weights = weigh_benchmark_by_boxes('voc12', task.data, kind, root)[drawn]
    expected = labels.observe(
        task.data.labels[drawn], 1, 0, weights=weights, seed=4, unknown='ignore'
    )
    assert (
        len(task.data.class_names) == 18
        and (task.observed == expected[np.isin(drawn, task.train)]).all()
    )
    many = [
        labels.observe(task.data.labels[drawn], 1, 0, weights=weights, seed=seed, unknown='ignore')
        for seed in range(600)
    ]
    positive = np.where(task.data.labels[drawn] > 0, weights, 0)
    share = positive / np.maximum(positive.sum(1, keepdims=True), 1e-12)
    assert np.abs(np.mean(many, 0) - share).max() < 4 * (0.25 / 600) ** 0.5


def test_missing_annotations_and_sets_without_boxes_are_told(small_voc):
    data, root = small_voc
    with pytest.raises(
        SpmlError,
        match=(
            "labels: single-large needs boxes, and 'coco18' has none; allowed: voc12, voc07, coco14"
        ),
    ):
        weigh_benchmark_by_boxes('coco18', data, 'large', root)
    next((root / 'voc12' / 'images').glob('trainval/VOCdevkit/VOC2012/Annotations/*.xml')).unlink()
    with pytest.raises(SpmlError, match="1 of the 40 photos of 'voc12' have no boxes below"):
        weigh_benchmark_by_boxes('voc12', data, 'large', root)
    boxes._boxes.cache_clear()
    next(
        (root / 'voc12' / 'images').glob('trainval/VOCdevkit/VOC2012/Annotations/*.xml')
    ).write_text('<annotation><object/></annotation>')
    with pytest.raises(SpmlError, match=r'\.xml cannot be read'):
        weigh_benchmark_by_boxes('voc12', data, 'large', root)


def test_coco_has_boxes_by_file_name(tmp_path):
    drawn, names, rows = [4, 1], ['a.jpg', 'b.jpg'], [[1, 4, 4], [-4]]
    folder = tmp_path / 'annotations' / 'annotations'
    folder.mkdir(parents=True)
    for part, shown in (('train', names), ('val', ['c.jpg', 'd.jpg'])):
        content = coco(shown, rows, (7, 9), drawn)
        for k, entry in enumerate(content['annotations']):
            entry['bbox'] = [9 * k, 0, 9, 9]
        (folder / f'instances_{part}2014.json').write_text(json.dumps(content))
    found = boxes.READERS['coco14'](tmp_path)
    assert found['a.jpg'] == [
        ('thing 1', 0, 0, 0.25, 0.5),
        ('thing 4', 0.25, 0, 0.5, 0.5),
        ('thing 4', 0.5, 0, 0.75, 0.5),
    ]
    assert found['d.jpg'] == [('thing 4', 0.75, 0, 1, 0.5)] and set(found) == {
        'a.jpg',
        'b.jpg',
        'c.jpg',
        'd.jpg',
    }  # a crowd's box counts
    (folder / 'instances_val2014.json').write_text('{"images": []}')
    with pytest.raises(SpmlError, match='cannot be read as an instances file of COCO'):
        boxes.READERS['coco14'](tmp_path)
