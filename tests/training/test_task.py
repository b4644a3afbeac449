"""What a run learns from: wrong input is told before anything is written, and what a table leaves empty stays unknown."""
import warnings

import numpy as np
import pandas as pd
import pytest
from quick import config, empty_zeros
from sklearn.metrics import average_precision_score

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


def one_name_each(folder):
    "Write the table as a column `positives`: of every photo one name, the colour or the brightness."
    names = [labels.split('|')[k % 2 - 1] for k, labels in enumerate(pd.read_csv(folder / 'labels.csv')['labels'])]
    lines = [f'{i:03}.png,{name},{part}' for i, (name, part) in enumerate(zip(names, np.repeat(['train', 'val', 'test'], [36, 12, 12]), strict=True))]
    (folder / 'labels.csv').write_text('\n'.join(['image,positives,split', *lines]))


TABLES = {'ones and empty cells': empty_zeros, 'positives': one_name_each, 'training single, test complete': lambda folder: empty_zeros(folder, ['val', 'test'])}


@pytest.mark.parametrize('kind', TABLES)
def test_what_is_unknown_stays_unknown_in_every_kind_of_table(folder, kind):
    TABLES[kind](folder)
    table = pd.read_csv(folder / 'labels.csv', dtype=str, keep_default_na=False)
    given = {'labels': 'full', 'regime': 'linear'}
    task = training.make_task(config(folder, **given))
    for z, rows in ((task.observed, task.train), (task.observed_val, task.val)):
        for k, row in enumerate(rows):   # the table again, cell by cell
            cells = table.loc[row]
            named = cells.get('positives', '').split('|')
            said = [{'1': 1, '0': -1, '': 0}[cells[c]] if c in cells else int(c in named) for c in task.data.class_names]
            assert z[k].tolist() == said
    assert (task.observed == 0).any() and not (task.observed < 0).any()
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        an, em = (training.train(config(folder, loss=loss, **given)) for loss in ('an', 'em'))
    assert not np.allclose(an.curves.loss, em.curves.loss) and not np.allclose(an.logits['test'], em.logits['test'])
    whole = kind.endswith('complete')
    assert an.scores['test_truth'] == ('complete' if whole else 'observed only')
    true = np.where(task.data.labels[task.test] > 0, 1, -1)
    assert not whole or (true == task.data.labels[task.test]).all()
    expected = [average_precision_score(true[:, c] > 0, an.logits['test'][:, c]) if (true[:, c] > 0).any() else 0 for c in range(true.shape[1])]
    assert an.scores['test_map'] == pytest.approx(100 * np.mean(expected))


@pytest.mark.parametrize('complete, rows', [(['test'], []), ([0, 36, 37, 38, 39], [0])])   # one row of train, four of val
def test_a_table_of_ones_and_gaps_is_observed_as_it_is(folder, complete, rows):
    empty_zeros(folder, complete)
    task = training.make_task(config(folder, labels='full'))
    assert observes_its_table(task) and np.flatnonzero((task.observed < 0).any(1)).tolist() == rows
