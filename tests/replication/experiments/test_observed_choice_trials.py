"""The trials of `observed_choice`: their plans, and the record that pages read."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from choice_trials import make_trials
from quick import config

from spml_nb.base.errors import SpmlError
from spml_nb.data.dataset import Dataset
from spml_nb.data.labels import observe
from spml_nb.replication.experiments import observed_choice_trials
from spml_nb.replication.experiments.observed_choice import (
    CHOSEN_RULE,
    FILE_LABELS,
    LABELS,
    LABELS_DATASETS,
    SEEDS,
    read_trials,
)
from spml_nb.replication.experiments.observed_choice_trials import (
    GROUP_SIZE,
    Trial,
    Watch,
    collect_trials,
    describe_draw,
    draw_grouped_labels,
    draw_salient_labels,
    measure_salience,
    plan_label_trials,
    plan_trials,
    run_trial,
    sweep_observed_choice,
    trials_folder,
)
from spml_nb.training.task import Task


def test_other_draws_are_planned_beside_the_even_one():
    plans = {
        (dataset, seed): plan_label_trials(dataset, seed)
        for dataset in LABELS_DATASETS
        for seed in SEEDS
    }
    assert sum(map(len, plans.values())) == 960
    planned = plans['ccp', 1000]
    even = plan_trials('ccp', 1000)
    assert {trial.labels for trial in planned} == set(LABELS) - {'single'}
    for trial, drawn in planned.items():
        same = even[Trial(trial.dataset, trial.loss, trial.draw, trial.seed)]
        drawn_by_run = 'single' if trial.labels in ('salient', 'grouped') else trial.labels
        assert drawn == same.changed(labels=drawn_by_run)
    names = {trial.name for trial in [*planned, *even]}
    assert len(names) == len(planned) + len(even)
    assert Trial('ccp', 'an', 0, 1000).name == 'ccp-an-0-1000'  # of files that are there already


def test_finished_runs_are_collected_once(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'runs'))
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path / 'outputs'))
    place = trials_folder()
    place.mkdir(parents=True)
    for line in make_trials().head(3).to_dict('records'):
        (place / f"ccp-{line['loss']}-{line['draw']}-1000.json").write_text(json.dumps(line))
    for _ in range(2):
        assert len(collect_trials()) == 3
    assert len(read_trials()) == 3
    with pytest.raises(SpmlError, match="'nuswide'"):
        sweep_observed_choice(['nuswide'], dry_run=True)
    told = []
    table = sweep_observed_choice(['ccp'], dry_run=True, tell=told.append)
    assert len(table) == 480 and (table.state == 'done').sum() == 3 and '477 are missing' in told[0]


def test_runs_whose_labels_are_not_drawn_evenly_have_a_record_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'runs'))
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path / 'outputs'))
    place = trials_folder()
    place.mkdir(parents=True)
    even, other = make_trials().head(2).to_dict('records')
    (place / 'a.json').write_text(json.dumps(even))
    collect_trials()
    before = (tmp_path / 'outputs' / 'observed_choice.csv').read_bytes()
    for name, labels in (('b', 'salient'), ('c', 'single-frequent')):
        (place / f'{name}.json').write_text(json.dumps(other | {'labels': labels}))
        for _ in range(2):
            collect_trials()
    assert (tmp_path / 'outputs' / 'observed_choice.csv').read_bytes() == before
    drawn = read_trials(FILE_LABELS)
    assert sorted(drawn.labels) == ['salient', 'single-frequent']
    # a run that is told which labels it had, as new ones are, is no other run
    (place / 'a.json').write_text(json.dumps(even | {'labels': 'single'}))
    collect_trials()
    assert (tmp_path / 'outputs' / 'observed_choice.csv').read_bytes() == before
    table = sweep_observed_choice(['ccp'], dry_run=True, tell=lambda line: None)
    assert (table.state == 'done').sum() == 3


@pytest.mark.slow
def test_a_run_is_watched_by_every_rule(photo_folder, tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'runs'))
    given = config(photo_folder, regime='linear', epochs=3, patience=0, seed=5, label_seed=5)
    trial = Trial('photos', 'an', 0, 5)
    line = run_trial(trial, given)
    assert line['dataset'] == 'photos' and line['seed'] == 5 and 1 <= line['auc_shrunk_epoch'] <= 3
    assert run_trial(trial, given) == line  # not trained again


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


def follows_one_order(true, shown):
    "Whether an order of classes explains that each photo shows a class and not its others."
    before = {
        (first, other)
        for classes, first in zip(true, shown.tolist(), strict=True)
        for other in np.flatnonzero(classes).tolist()
        if other != first
    }
    return not any((other, first) in before for first, other in before)


def test_photos_of_a_group_show_the_same_label_wherever_they_have_it(several_labels):
    task, _ = several_labels
    photos = np.concatenate([task.train, task.val])
    groups = len(photos) // GROUP_SIZE
    occasion = np.arange(300) % groups
    random = np.random.default_rng(1)
    logits = 10 * random.normal(size=(groups, 5))[occasion] + 0.01 * random.normal(size=(300, 5))

    def count_ordered(task):
        observed = np.concatenate([task.observed, task.observed_val]) > 0
        assert (observed.sum(1) == 1).all() and (true | ~observed).all()
        shown = observed.argmax(1)
        return sum(
            follows_one_order(true[rows], shown[rows])
            for rows in (np.flatnonzero(occasion[photos] == k) for k in range(groups))
        )

    true = task.data.labels[photos] > 0
    drawn = draw_grouped_labels(task, logits, seed=3)
    assert count_ordered(drawn) >= groups - 3  # k-means may halve some
    assert count_ordered(task) <= 3
    other = draw_grouped_labels(task, logits, seed=4)
    assert not np.array_equal(other.observed, drawn.observed)


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
    monkeypatch.setattr(observed_choice_trials, 'search_configs', lambda *place: [of_all_labels])
    with pytest.raises(SpmlError, match='spml sweep methods --dataset photos'):
        measure_salience('photos')
    monkeypatch.setattr(observed_choice_trials, 'choose_config', lambda tried, known: tried[0])
    tasks = []
    train = observed_choice_trials.train
    monkeypatch.setattr(
        observed_choice_trials,
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


@pytest.fixture
def trainer(monkeypatch):
    "Of 8 photos and 2 classes; `score` is what both rules say of an epoch."
    labels = np.where(np.eye(2, dtype=bool)[np.arange(8) % 2], 1, -1)
    val, test = np.arange(4), np.arange(4, 8)
    task = SimpleNamespace(
        data=SimpleNamespace(labels=labels), val=val, test=test, observed_val=labels[val]
    )
    trainer = SimpleNamespace(task=task, module=None, choices=[SimpleNamespace(over=False)])
    trainer.predict = lambda module, rows: trainer.epoch * torch.from_numpy(labels[rows]).float()
    monkeypatch.setattr(observed_choice_trials, 'score_rules', lambda *arrays: trainer.score)
    monkeypatch.setattr(observed_choice_trials, 'classes_seen_in_training', lambda task: [True] * 2)
    return trainer


def run(watch, trainer, scores):
    "The epochs that are trained."
    for epoch, score in enumerate(scores, 1):
        trainer.epoch, trainer.score = (
            epoch,
            dict(zip(('clean_map', CHOSEN_RULE), score, strict=True)),
        )
        watch.end_epoch(trainer)
        if trainer.choices[0].over:
            break
    return epoch


def test_each_rule_keeps_its_best_epoch_and_the_chosen_rule_its_logits(trainer):
    watch = Watch(patience=0)
    assert run(watch, trainer, [(50, 60), (70, 80), (70, 75), (90, 10)]) == 4
    assert watch.best == {'clean_map': (4, 90, 100.0), CHOSEN_RULE: (2, 80, 100.0)}
    assert np.abs(watch.logits['val']).max() == 2 and watch.logits['test'].shape == (4, 2)


def test_a_run_ends_when_every_rule_has_waited_for_its_patience(trainer):
    watch = Watch(patience=2)
    assert run(watch, trainer, [(50, 60), (40, 70), (40, 60), (90, 65), (99, 99)]) == 4
    # clean mAP had stopped one epoch before the other, and looks no more
    assert {rule: best[0] for rule, best in watch.best.items()} == {'clean_map': 1, CHOSEN_RULE: 2}
