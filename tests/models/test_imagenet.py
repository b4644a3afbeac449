"""The classifier that comes with the weights of EfficientNet-Lite0, and its classes as those of
other sets.
"""

import numpy as np
import pytest
from conftest import draw_photo_folder
from torchvision.models import ResNet50_Weights

from spml_nb.base.errors import SpmlError
from spml_nb.data import load
from spml_nb.data.side_information import read_side
from spml_nb.models import imagenet
from spml_nb.models.backbones import efficientnet_lite_classifier

ANIMALS = (
    'bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person '
    'pottedplant sheep sofa train tvmonitor'
).split()
COCO = [
    'airplane',
    'bench',
    'bicycle',
    'bird',
    'boat',
    'bus',
    'car',
    'cat',
    'dog',
    'fire hydrant',
    'horse',
    'motorcycle',
    'parking meter',
    'person',
    'stop sign',
    'traffic light',
    'train',
    'truck',
]


def test_every_class_of_both_sets_has_counterparts_but_for_three_and_no_number_stands_twice():
    assert {*ANIMALS, *COCO} - set(imagenet.COUNTERPARTS) == {
        'person',
        'fire hydrant',
        'stop sign',
    } and set(imagenet.COUNTERPARTS) <= {*ANIMALS, *COCO}
    every = [
        k
        for name, numbers in imagenet.COUNTERPARTS.items()
        if name != 'motorcycle'
        for k in numbers
    ]  # VOC's motorbike
    assert (
        len(set(every)) == len(every)
        and imagenet.COUNTERPARTS['motorcycle'] == imagenet.COUNTERPARTS['motorbike']
    )


@pytest.mark.parametrize(
    'name, some, others',
    [
        (
            'bird',
            {'cock', 'robin', 'peacock', 'king penguin', 'flamingo', 'goose'},
            {'tench', 'koala', 'wallaby', 'jellyfish', 'European fire salamander'},
        ),
        (
            'dog',
            {'Chihuahua', 'golden retriever', 'Mexican hairless'},
            {'timber wolf', 'dingo', 'tiger cat', 'hotdog'},
        ),
        ('cat', {'tabby', 'Egyptian cat'}, {'cougar', 'lynx', 'Madagascar cat'}),
        (
            'car',
            {'sports car', 'Model T', 'cab'},
            {'passenger car', 'car mirror', 'car wheel', 'freight car'},
        ),
        ('airplane', {'airliner', 'warplane'}, {'plane', 'airship'}),
        ('bench', {'park bench'}, set()),
        ('truck', {'pickup', 'trailer truck'}, {'tractor'}),
        ('train', {'bullet train'}, {'streetcar'}),
    ],
)
def test_numbers_mean_what_they_should_in_imagenets_order(name, some, others):
    called = ResNet50_Weights.IMAGENET1K_V1.meta['categories']
    mine = {called[k] for k in imagenet.COUNTERPARTS[name]}
    assert some <= mine and not others & mine and others <= set(called) and len(called) == 1000


def test_a_score_is_the_sum_of_its_counterparts_and_a_half_without_any():
    probabilities = np.random.RandomState(0).dirichlet(np.ones(1000), 4).astype(np.float32)
    found = imagenet.score_counterparts(probabilities, ['person', 'cat', 'cow'])
    assert (
        np.array_equal(found[:, 0], [0.5] * 4)
        and np.allclose(found[:, 1], probabilities[:, 281:286].sum(1))
        and np.allclose(found[:, 2], probabilities[:, 345])
    )


def test_scores_are_written_as_side_information_of_the_training_images(tmp_path):
    try:
        net = efficientnet_lite_classifier('efficientnet_lite0')
    except SpmlError:
        pytest.skip('the weights of EfficientNet-Lite0 are not installed')
    assert net.classifier.out_features == 1000
    folder = draw_photo_folder(tmp_path / 'photos')
    table = (folder / 'labels.csv').read_text()
    (folder / 'labels.csv').write_text(table.replace('red', 'cat'))
    data = load(folder)
    scores = imagenet.write_imagenet_scores(data, tmp_path / 'scores.npz')
    rows = data.rows('train')
    again = read_side(str(tmp_path / 'scores.npz'), data, rows[::-1])
    assert (
        scores.shape == (len(rows), 3)
        and np.allclose(again['scores'][::-1], scores)
        and (scores[:, :2] == 0.5).all()
        and (scores[:, 2] != 0.5).all()
    )
