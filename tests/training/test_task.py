"""What a run learns from: wrong input is told before anything is written, and what a table leaves empty stays unknown."""
import numpy as np
import pandas as pd
import pytest
from quick import config, empty_zeros

from spml_nb import training
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError


@pytest.fixture
def folder(photo_folder): return photo_folder


@pytest.mark.parametrize('given, words', [
    ({'dataset': 'mini_vocc'}, ["'mini_vocc'", "Did you mean 'mini_voc'?"]),
    ({'backbone': 'resnet5O'}, ["'resnet5O'", 'resnet50']),
    ({'labels': 'some'}, ["'some'", 'single']),
    ({'exclude': ['green']}, ['green']),
    ({'min_positives': 1000}, ['1000']),
    ({'weights': 'absent.pt'}, ['absent.pt']),
])
def test_wrong_input_is_told_and_leaves_nothing(folder, given, words):
    with pytest.raises(SpmlError) as error: training.train(config(folder, **given))
    for word in words: assert word in str(error.value)
    assert not [p for p in settings.path('runs').glob('*') if p.is_dir()]


def test_nothing_observed_is_refused(folder):
    table = pd.read_csv(folder / 'labels.csv').assign(labels='', split=['train'] * 40 + ['test'] * 20)
    table.loc[50:, 'labels'] = 'red'
    table.to_csv(folder / 'labels.csv', index=False)
    with pytest.warns(UserWarning), pytest.raises(SpmlError, match='nothing is observed in the 32 training images'): training.train(config(folder))


def observes_its_table(task):
    return all(np.array_equal(z, task.data.labels[rows]) and (z == 0).any() for z, rows in ((task.observed, task.train), (task.observed_val, task.val)))


@pytest.mark.parametrize('complete, rows', [(['test'], []), ([0, 36, 37, 38, 39], [0])])   # one row of train, four of val
def test_a_table_of_ones_and_gaps_is_observed_as_it_is(folder, complete, rows):
    empty_zeros(folder, complete)
    task = training.make_task(config(folder, labels='full'))
    assert observes_its_table(task) and np.flatnonzero((task.observed < 0).any(1)).tolist() == rows
