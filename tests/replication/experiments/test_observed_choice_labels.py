"""Labels that are drawn by how obvious they are to a head that saw other photos."""

import numpy as np
import pytest
from quick import config

from spml_nb.base.errors import SpmlError
from spml_nb.data.dataset import Dataset
from spml_nb.data.labels import observe
from spml_nb.replication.experiments import observed_choice_labels, observed_choice_watch
from spml_nb.replication.experiments.observed_choice_labels import (
    describe_draw,
    draw_salient_labels,
    measure_salience,
)
from spml_nb.replication.experiments.observed_choice_trials import Trial, run_trial
from spml_nb.training.task import Task


@pytest.fixture
def several_labels():
    "A task of 300 photos and 5 classes whose labels are drawn evenly, and how salient each is."
    random = np.random.default_rng(0)
    true = np.where(random.random((300, 5)) < [0.7, 0.5, 0.4, 0.3, 0.2], 1, -1).astype(np.int8)
    true[:, 0] = np.where((true > 0).any(1), true[:, 0], 1)
    names = [f'{k}.jpg' for k in range(300)]
    data = Dataset('made', names, true, tuple('abcde'), np.full(300, 'train'))
    rows = random.permutation(300)
    train, val, test = np.sort(rows[:200]), np.sort(rows[200:260]), np.sort(rows[260:])
    even = observe(true, 1, 0)
    task = Task(data, train, val, test, observed=even[train], observed_val=even[val])
    return task, random.normal(size=(300, 5)) * 2


def test_a_salient_draw_shows_one_true_label_and_rather_the_salient_one(several_labels):
    task, logits = several_labels
    drawn = draw_salient_labels(task, logits, seed=3)
    for rows, observed in ((task.train, drawn.observed), (task.val, drawn.observed_val)):
        assert (observed.sum(1) == 1).all() and set(np.unique(observed)) == {0, 1}
        assert (task.data.labels[rows][observed == 1] == 1).all()
    assert (draw_salient_labels(task, logits, seed=3).observed == drawn.observed).all()
    assert (draw_salient_labels(task, logits, seed=4).observed != drawn.observed).any()
    # where two labels are there, the odds are those of the logits
    repeated = np.zeros(2)
    row = np.flatnonzero((task.data.labels[task.train] > 0).sum(1) == 2)[0]
    pair = np.flatnonzero(task.data.labels[task.train[row]] > 0)
    for seed in range(400):
        repeated += draw_salient_labels(task, logits, seed).observed[row, pair]
    gap = np.subtract(*logits[task.train[row], pair])
    assert repeated[0] / 400 == pytest.approx(1 / (1 + np.exp(-gap)), abs=0.08)


def test_a_draw_is_described_by_what_photos_with_several_labels_show(several_labels):
    task, logits = several_labels
    even, salient = (
        describe_draw(each, logits) for each in (task, draw_salient_labels(task, logits, seed=3))
    )
    several, frequent, chance, shown = 0, 0, [], 0
    rows = [*task.train, *task.val]
    counts = [sum(task.data.labels[row][c] > 0 for row in rows) for c in range(5)]
    observed = [*task.observed, *task.observed_val]
    for row, z in zip(rows, observed, strict=True):
        positives = [c for c in range(5) if task.data.labels[row][c] > 0]
        if len(positives) > 1:
            several += 1
            chance.append(1 / len(positives))
            frequent += int(z[max(positives, key=lambda c: counts[c])])
            shown += int(z[max(positives, key=lambda c, row=row: logits[row, c])])
    assert even == pytest.approx(
        {
            'several': 100 * several / 260,
            'by_chance': 100 * np.mean(chance),
            'most_frequent': 100 * frequent / several,
            'most_salient': 100 * shown / several,
        }
    )
    assert salient['most_salient'] > even['most_salient'] + 20
    assert salient['by_chance'] == even['by_chance']


@pytest.mark.slow
def test_salience_is_that_of_a_head_that_saw_other_photos(photo_folder, tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'runs'))
    settings = {'regime': 'linear', 'epochs': 3, 'patience': 0}
    of_all_labels = config(photo_folder, loss='bce', labels='full', **settings)
    monkeypatch.setattr(observed_choice_labels, 'search_configs', lambda *place: [of_all_labels])
    with pytest.raises(SpmlError, match='spml sweep methods --dataset photos'):
        measure_salience('photos')
    monkeypatch.setattr(observed_choice_labels, 'choose_config', lambda tried, known: tried[0])
    tasks = []
    train = observed_choice_watch.train
    monkeypatch.setattr(
        observed_choice_watch,
        'train',
        lambda config, task, **given: tasks.append(task) or train(config, task=task, **given),
    )
    logits = measure_salience('photos')
    learnt, judged = zip(*((set(task.train), set(task.val)) for task in tasks), strict=True)
    assert learnt == judged[::-1] and not learnt[0] & learnt[1]
    for task in tasks:
        assert (task.observed == task.data.labels[task.train]).all()
        assert not logits[task.test].any() and (logits[task.val] != 0).all()
    given = config(photo_folder, seed=5, label_seed=5, **settings)
    line = run_trial(Trial('photos', 'an', 0, 5, 'salient'), given)
    assert len(tasks) == 3  # the salience was kept
    assert line['labels'] == 'salient' and 0 <= line['most_salient'] <= 100
    z = np.concatenate([tasks[2].observed, tasks[2].observed_val])
    rows = np.concatenate([tasks[2].train, tasks[2].val])
    assert (tasks[2].data.labels[rows][z == 1] == 1).all() and (z.sum(1) <= 1).all()
