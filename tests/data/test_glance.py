"""A data set at a glance: its numbers, and a sheet of its pictures."""
import numpy as np
import pytest
from PIL import Image

from spml_nb.data.dataset import Dataset
from spml_nb.data.glance import describe, sheet


@pytest.fixture
def data():
    labels = np.array([[1, 1, -1, -1], [1, 0, -1, -1], [-1, -1, 1, -1], [1, -1, 1, 0]], np.int8)
    pixels = np.arange(4, dtype=np.uint8)[:, None, None, None] * np.full((4, 8, 8, 3), 60, np.uint8)
    return Dataset('four', pixels, labels, list('abcd'), np.array(['train', 'train', 'val', 'test']))


def test_the_numbers_are_counted(data):
    assert describe(data) == {'train': 2, 'val': 1, 'test': 1, 'classes': 4, 'positives': 1.5, 'several': 0.5, 'untaught': 2, 'untested': 2}


def test_a_sheet_shows_training_images_in_their_order(data, tmp_path):
    for images in (data.images, [tmp_path / f'{k}.png' for k in range(4)]):
        if images is not data.images:
            for path, pixels in zip(images, data.images, strict=True): Image.fromarray(pixels).resize((20, 12)).save(path)
        shown = np.asarray(sheet(Dataset('four', images, data.labels, data.class_names, data.split), count=3, columns=2, side=10))
        assert shown.shape == (20, 20, 3) and shown[5, [5, 15], 0].tolist() == [0, 0] and shown[15, [5, 15], 0].tolist() == [60, 255]


def test_the_photos_at_hand_have_the_papers_kind_of_numbers(ccp):
    from spml_nb.data.loading import load
    numbers = describe(load(ccp, min_positives=40, exclude=['skin', 'hair']))
    assert (numbers['train'], numbers['test'], numbers['classes'], round(numbers['positives'], 1)) == (1342, 420, 47, 5.5)
