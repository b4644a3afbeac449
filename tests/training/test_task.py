"""What a run learns from: wrong input is told before anything is written, and what a table leaves
empty stays unknown.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from quick import config, empty_zeros
from side_files import draw_side
from sklearn.metrics import average_precision_score

from spml_nb import runs, training
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.data import labels
from spml_nb.runs.config import Config


@pytest.fixture
def folder(photo_folder):
    return photo_folder


@pytest.mark.parametrize(
    'given, words',
    [
        ({'dataset': 'mini_vocc'}, ["'mini_vocc'", "Did you mean 'mini_voc'?"]),
        ({'backbone': 'resnet5O'}, ["'resnet5O'", 'resnet50']),
        ({'labels': 'some'}, ["'some'", 'single']),
        ({'exclude': ['green']}, ['green']),
        ({'min_positives': 1000}, ['1000']),
        ({'weights': 'absent.pt'}, ['absent.pt']),
        (
            {'loss': 'epr_count'},
            ["'epr_count' learns from more than labels (count)", '-p side FILE'],
        ),
        ({'loss': 'epr_count', 'side': 'absent.csv'}, ['absent.csv', 'is not there']),
        ({'side': 'absent.csv'}, ["side='absent.csv', but 'an' learns from labels alone"]),
    ],
)
def test_wrong_input_is_told_and_leaves_nothing(folder, given, words):
    with pytest.raises(SpmlError) as error:
        training.train(config(folder, **given))
    for word in words:
        assert word in str(error.value)
    assert not [p for p in settings.get_folder('runs').glob('*') if p.is_dir()]


@pytest.mark.silent('A5')
def test_a_folder_of_ones_own_hides_no_label(folder):
    unset = config(folder, labels=None)
    for given in (unset, runs.resolve(unset), config(folder, labels='full')):
        task = training.make_task(given)
        assert np.array_equal(task.observed, task.data.labels[task.train]) and np.array_equal(
            task.observed_val, task.data.labels[task.val]
        )
    task = training.make_task(config(folder, labels='single'))
    assert ((task.observed > 0).sum(1) == 1).all() and not (task.observed < 0).any()


def test_nothing_observed_is_refused(folder):
    table = pd.read_csv(folder / 'labels.csv').assign(
        labels='', split=['train'] * 40 + ['test'] * 20
    )
    table.loc[50:, 'labels'] = 'red'
    table.to_csv(folder / 'labels.csv', index=False)
    with (
        pytest.warns(UserWarning),
        pytest.raises(SpmlError, match='no label is observed in the 32 training images'),
    ):
        training.train(config(folder, labels='single'))


def observes_its_table(task):
    return all(
        np.array_equal(z, task.data.labels[rows]) and (z == 0).any()
        for z, rows in ((task.observed, task.train), (task.observed_val, task.val))
    )


def one_name_each(folder):
    """Write the table as a column `positives`: of every photo one name, the colour or the
    brightness.
    """
    names = [
        labels.split('|')[k % 2 - 1]
        for k, labels in enumerate(pd.read_csv(folder / 'labels.csv')['labels'])
    ]
    lines = [
        f'{i:03}.png,{name},{part}'
        for i, (name, part) in enumerate(
            zip(names, np.repeat(['train', 'val', 'test'], [36, 12, 12]), strict=True)
        )
    ]
    (folder / 'labels.csv').write_text('\n'.join(['image,positives,split', *lines]))


TABLES = {
    'ones and empty cells': empty_zeros,
    'positives': one_name_each,
    'training single, test complete': lambda folder: empty_zeros(folder, ['val', 'test']),
}


@pytest.mark.parametrize('kind', TABLES)
def test_what_is_unknown_stays_unknown_in_every_kind_of_table(folder, kind):
    TABLES[kind](folder)
    table = pd.read_csv(folder / 'labels.csv', dtype=str, keep_default_na=False)
    given = {'labels': 'full', 'regime': 'linear'}
    task = training.make_task(config(folder, **given))
    for z, rows in ((task.observed, task.train), (task.observed_val, task.val)):
        for k, row in enumerate(rows):  # the table again, cell by cell
            cells = table.loc[row]
            named = cells.get('positives', '').split('|')
            said = [
                {'1': 1, '0': -1, '': 0}[cells[c]] if c in cells else int(c in named)
                for c in task.data.class_names
            ]
            assert z[k].tolist() == said
    assert (task.observed == 0).any() and not (task.observed < 0).any()
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        an, em = (training.train(config(folder, loss=loss, **given)) for loss in ('an', 'em'))
    assert not np.allclose(an.curves.loss, em.curves.loss) and not np.allclose(
        an.logits['test'], em.logits['test']
    )
    whole = kind.endswith('complete')
    assert an.scores['test_truth'] == ('complete' if whole else 'observed only')
    true = np.where(task.data.labels[task.test] > 0, 1, -1)
    assert not whole or (true == task.data.labels[task.test]).all()
    expected = [
        average_precision_score(true[:, c] > 0, an.logits['test'][:, c])
        if (true[:, c] > 0).any()
        else 0
        for c in range(true.shape[1])
    ]
    assert an.scores['test_map'] == pytest.approx(100 * np.mean(expected))


@pytest.mark.parametrize(
    'complete, rows', [(['test'], []), ([0, 36, 37, 38, 39], [0])]
)  # one row of train, four of val
def test_a_table_of_ones_and_gaps_is_observed_as_it_is(folder, complete, rows):
    empty_zeros(folder, complete)
    task = training.make_task(config(folder, labels='full'))
    assert observes_its_table(task) and np.flatnonzero((task.observed < 0).any(1)).tolist() == rows


@pytest.mark.parametrize(
    'given', [{}, {'map_definition': 'two_way'}, {'selection': 'val_observed'}]
)
def test_validation_images_without_any_label_choose_no_epoch(folder, given):
    table = pd.read_csv(folder / 'labels.csv').assign(
        split=np.repeat(['train', 'val', 'test'], [36, 12, 12])
    )
    table.loc[table.split == 'val', 'labels'] = ''
    table.to_csv(folder / 'labels.csv', index=False)
    with (
        pytest.raises(
            SpmlError,
            match=(
                'needs validation images with labels that training images have too, and .photos. '
                'has none. Add some, or set selection: last'
            ),
        ),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter('ignore')
        training.train(config(folder, regime='linear', **given))
    assert not [p for p in settings.get_folder('runs').glob('*') if p.is_dir()]
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        assert (
            len(
                training.train(
                    config(folder, regime='linear', **given | {'selection': 'last'})
                ).curves
            )
            == 2
        )


def test_validation_images_whose_classes_no_training_image_has_choose_no_epoch(folder):
    names = np.repeat(['red', 'bright', 'red|bright'], [36, 12, 12])
    pd.read_csv(folder / 'labels.csv').assign(
        labels=names, split=np.repeat(['train', 'val', 'test'], [36, 12, 12])
    ).to_csv(folder / 'labels.csv', index=False)
    with pytest.raises(
        SpmlError, match='validation images with labels that training images have too'
    ):
        training.make_task(config(folder))
    assert len(training.make_task(config(folder, selection='last')).val) == 12


# ---- a part of the training images


def test_fewer_training_images_lie_inside_more_and_keep_their_labels_and_all_others_stay(folder):
    whole = training.make_task(config(folder, labels='single', label_seed=3))
    tasks = {
        n: training.make_task(config(folder, labels='single', label_seed=3, train_images=n))
        for n in (1, 7, 20, len(whole.train))
    }
    before = set()
    for n, task in tasks.items():
        order = np.random.RandomState(3).permutation(len(whole.train))[:n]
        assert (
            sorted(whole.train[k] for k in order) == task.train.tolist()
            and before <= set(task.train)
            and len(task.observed) == n
        )
        assert all(
            (task.observed[k] == whole.observed[whole.train.tolist().index(row)]).all()
            for k, row in enumerate(task.train)
        )
        assert (
            (task.val == whole.val).all()
            and (task.test == whole.test).all()
            and (task.observed_val == whole.observed_val).all()
        )
        assert task.length == len(whole.train)
        before = set(task.train)
    other = training.make_task(config(folder, labels='single', label_seed=4, train_images=7))
    assert set(other.train) != set(tasks[7].train)


def test_side_information_is_cut_with_the_images(folder, tmp_path):
    given = {'loss': 'epr_count', 'side': str(draw_side(folder, tmp_path / 'side.csv'))}
    for more in (
        {},
        {'train_images': 7},
        {'hold_out': False, 'selection': 'last'},
        {'exclude': ['bright']},
    ):
        task = training.make_task(config(folder, **given, **more))
        true = pd.read_csv(folder / 'labels.csv')['labels'].str.count(r'\|').to_numpy() + 1
        assert task.side['count'].tolist() == true[task.train].tolist() and len(
            task.side['count']
        ) == len(task.observed)
        assert (
            task.side['scores'].shape == task.observed.shape
            and (task.side['group'] == task.train % 3).all()
        )
    assert training.make_task(config(folder)).side == {}


def test_half_of_validation_is_trained_on_with_all_its_labels_and_the_other_half_chooses(folder):
    whole = training.make_task(config(folder, labels='single', label_seed=3))
    beside, alone = (
        training.make_task(config(folder, labels='single', label_seed=3, trained_validation=each))
        for each in ('beside', 'alone')
    )
    clean = set(alone.train)
    assert clean < set(whole.val) and len(clean) == len(whole.val) // 2
    for task in (beside, alone):
        assert set(task.val) == set(whole.val) - clean
        assert task.length == len(whole.train) + len(clean)
        assert (task.test == whole.test).all()
    assert (alone.observed == whole.data.labels[alone.train]).all()
    assert beside.train.tolist() == sorted([*whole.train, *clean])
    of_single = [row not in clean for row in beside.train]
    assert (beside.observed[of_single] == whole.observed).all()
    assert (beside.observed[~np.array(of_single)] == alone.observed).all()
    other = training.make_task(
        config(folder, labels='single', label_seed=4, trained_validation='alone')
    )
    assert set(other.train) != clean


def test_what_is_trained_on_whole_is_not_trained_on_by_halves():
    with pytest.raises(SpmlError, match="trained_validation='beside'.*hold_out: false"):
        Config(trained_validation='beside', hold_out=False, selection='last')


def test_more_training_images_than_there_are_are_refused(folder):
    with pytest.raises(
        SpmlError,
        match=r"train_images=99, but 'photos' has only 38 training images. Give that many or fewer",
    ):
        training.make_task(config(folder, train_images=99))


def test_an_epoch_over_few_images_has_as_many_steps_as_one_over_all_and_sees_each_as_often(folder):
    seen = {}

    def note(trainer, index, outputs, loss):
        seen.setdefault(trainer.epoch, []).append(index.tolist())

    training.train(
        config(folder, regime='linear', labels='single', train_images=5, batch_size=16),
        on_step=note,
    )
    for batches in seen.values():
        visits = np.bincount(np.concatenate(batches), minlength=5)
        assert (
            [len(b) for b in batches] == [16, 16, 6]
            and visits.sum() == 38
            and visits.max() - visits.min() == 1
        )
    assert len(seen) == 2


def test_labels_that_are_not_drawn_evenly_are_drawn_by_the_classes_of_training_and_validation_alone(
    folder,
):
    task = training.make_task(config(folder, labels='single-rare', label_seed=5))
    drawn = np.sort(np.concatenate([task.train, task.val]))
    expected = labels.observe(
        task.data.labels[drawn], 1, 0, weights='rare', seed=5, unknown='ignore'
    )
    assert (task.observed == expected[np.isin(drawn, task.train)]).all() and (
        task.observed_val == expected[np.isin(drawn, task.val)]
    ).all()
