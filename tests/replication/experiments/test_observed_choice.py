"""What is lost by choosing without clean labels: the rules, the thresholds, and the record that the
pages read.
"""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from spml_nb.base.errors import SpmlError
from spml_nb.data.dataset import Dataset
from spml_nb.data.labels import observe
from spml_nb.replication.experiments import observed_choice
from spml_nb.replication.experiments.observed_choice import (
    CHOSEN_RULE,
    LABELS,
    LABELS_DATASETS,
    LABELS_METHODS,
    LABELS_SEEDS,
    METHODS,
    RULES,
    Trial,
    average_choice_losses,
    compare_label_rules,
    compare_with_even_draw,
    count_choice_losses,
    count_label_losses,
    describe_draw,
    draw_salient_labels,
    join_label_trials,
    plan_label_trials,
    plan_trials,
    score_rules,
    score_thresholds,
)
from spml_nb.training.task import Task


@pytest.fixture
def made():
    "(logits, observed, true) of 150 photos and 6 classes, the last of which nobody observed."
    random = np.random.default_rng(0)
    true = random.random((150, 6)) < [0.5, 0.3, 0.2, 0.1, 0.1, 0.1]
    observed = true & (random.random(true.shape) < 0.5)
    observed[:, 5] = False
    return random.normal(size=true.shape) + 1.5 * true, observed, true


def test_the_rules_are_those_of_scikit_learn(made):
    logits, observed, true = made
    values = score_rules(logits, observed, true, np.array([1, 1, 1, 1, 1, 0], bool))
    areas = np.array([roc_auc_score(observed[:, c], logits[:, c]) for c in range(5)])
    counts = observed[:, :5].sum(0)
    overall = (areas * counts).sum() / counts.sum()
    standard = (logits - logits.mean(0)) / logits.std(0)
    expected = {
        'auc_mean': areas.mean(),
        'auc_weighted': overall,
        'auc_root': (areas * counts**0.5).sum() / (counts**0.5).sum(),
        'auc_shrunk': sum(
            (n * a + 10 * overall) / (n + 10) for n, a in zip(counts, areas, strict=True)
        )
        / 5,
        'auc_pooled': roc_auc_score(observed[:, :5].ravel(), standard[:, :5].ravel()),
        'clean_map': np.mean([average_precision_score(true[:, c], logits[:, c]) for c in range(5)]),
        'observed_map': np.mean(
            [average_precision_score(observed[:, c], logits[:, c]) for c in range(5)]
        ),
    }
    assert values == pytest.approx({rule: 100 * value for rule, value in expected.items()}) and set(
        values
    ) == set(RULES)


def test_labels_known_to_be_absent_have_rules_of_their_own(made):
    logits, observed, true = made
    absent = ~true & (np.random.default_rng(4).random(true.shape) < 0.4)
    z = observed.astype(int) - absent
    seen = np.ones(6, bool)
    values, before = score_rules(logits, z, true, seen), score_rules(logits, observed, true, seen)
    assert {rule: values[rule] for rule in RULES} == before
    areas, precisions, counts = [], [], []
    for c in range(5):
        known = z[:, c] != 0
        areas.append(roc_auc_score(z[known, c] > 0, logits[known, c]))
        precisions.append(average_precision_score(z[known, c] > 0, logits[known, c]))
        counts.append((z[:, c] > 0).sum())
    overall = np.average(areas, weights=counts)
    shrunk = [(n * a + 10 * overall) / (n + 10) for n, a in zip(counts, areas, strict=True)]
    assert values['known_auc'] == pytest.approx(100 * np.mean(shrunk))
    assert values['known_map'] == pytest.approx(100 * np.mean(precisions))


def test_other_draws_are_planned_beside_the_even_one():
    plans = {
        (dataset, seed): plan_label_trials(dataset, seed)
        for dataset in LABELS_DATASETS
        for seed in LABELS_SEEDS
    }
    assert sum(map(len, plans.values())) == 480
    planned = plans['ccp', 1000]
    even = plan_trials('ccp', 1000)
    assert {trial.labels for trial in planned} == set(LABELS) - {'single'}
    for trial, config in planned.items():
        same = even[Trial(trial.dataset, trial.loss, trial.draw, trial.seed)]
        drawn_by_run = 'single' if trial.labels == 'salient' else trial.labels
        assert config == same.changed(labels=drawn_by_run)
    names = {trial.name for trial in [*planned, *even]}
    assert len(names) == len(planned) + len(even)
    assert Trial('ccp', 'an', 0, 1000).name == 'ccp-an-0-1000'  # of files that are there already


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


def test_thresholds_are_chosen_on_validation_and_measured_on_test(made):
    logits, observed, true = made
    test, true_test = logits[:, ::-1], true[:, ::-1]
    line = score_thresholds(logits, test, observed, true, true_test, seed=0)
    candidates = np.unique(logits[observed])
    value = [(observed & (logits >= t)).sum() ** 2 / (logits >= t).mean() for t in candidates]
    best = candidates[int(np.argmax(value))]
    assert line['f1_lee_liu'] == pytest.approx(
        100 * f1_score(true_test.ravel(), test.ravel() >= best), abs=1.0
    )
    assert line['f1_best'] >= max(value for name, value in line.items() if name.startswith('f1_'))
    assert line['named_lee_liu'] == pytest.approx((test >= best).sum(1).mean(), abs=0.05)


def make_lines(seeds=(1000,)):
    """A record in which clean mAP takes draw 0 (test 50), observed mAP draw 1 (test 40); HML is 5
    above the others.
    """
    rows = []
    for seed in seeds:
        for loss in METHODS:
            for draw in range(2):
                line = {'dataset': 'ccp', 'loss': loss, 'draw': draw, 'seed': seed, 'seconds': 1.0}
                for rule in RULES:
                    test = (50 if draw == 0 else 40) + 5 * (loss == 'hml')
                    line |= {
                        rule: (test if rule != 'observed_map' else -test),
                        f'{rule}_epoch': 1,
                        f'{rule}_test': test,
                    }
                rows.append(line)
    return pd.DataFrame(rows)


def test_losses_count_from_the_best_run():
    losses = count_choice_losses(make_lines()).set_index('rule')
    assert (
        losses.within['clean_map'] == 0
        and losses.pick['clean_map'] == 0
        and losses.loss['clean_map'] == 'hml'
    )
    assert (
        losses.within['observed_map'] == 10
        and losses.pick['observed_map'] == 15
        and losses.loss['observed_map'] == 'an'
    )
    assert losses.correlation['clean_map'] == pytest.approx(1) and losses.correlation[
        'observed_map'
    ] == pytest.approx(-1)
    assert average_choice_losses(losses.reset_index(), 'pick').loc[
        'observed_map', ['mean', 'worst']
    ].tolist() == [15, 15]


def make_label_lines():
    """(even, drawn): AUC and clean mAP take the run that scores 50, and observed mAP one that
    scores 48, but under a salient draw the other way round with one of two seeds.
    """
    rows = []
    for labels in LABELS:
        for dataset in LABELS_DATASETS:
            for seed in LABELS_SEEDS:
                for loss in LABELS_METHODS:
                    for draw in range(5):
                        test = 50 if draw == 0 else 48
                        turned = labels == 'salient' and seed == LABELS_SEEDS[0]
                        line = {'dataset': dataset, 'loss': loss, 'draw': draw, 'seed': seed}
                        for rule in RULES:
                            good = turned != (rule != 'observed_map') or rule == 'clean_map'
                            line |= {rule: test if good else -test, f'{rule}_test': float(test)}
                        if 'negatives' in labels:
                            line |= {'known_map': test, 'known_map_test': float(test)}
                            line |= {'known_auc': test, 'known_auc_test': float(test)}
                        rows.append(line | {'labels': labels, 'seconds': 1.0})
    shown = {'by_chance': 40.0, 'most_frequent': 50.0, 'most_salient': 60.0}
    both = pd.DataFrame(rows).assign(**shown, f1_clean_f1=70.0, f1_lee_liu=65.0)
    even = both.labels == 'single'
    return both[even].drop(columns='labels'), both[~even]


def test_rules_are_compared_under_each_draw_on_the_same_runs():
    even, drawn = make_label_lines()
    more = compare_label_rules(
        count_label_losses(join_label_trials(even, drawn)), 'observed_map', CHOSEN_RULE
    )
    for labels in ('single', 'single-frequent', 'single+3-negatives'):
        assert more.within[labels].mean == more.pick[labels].mean == 2
        assert more.within[labels].low > 0
    salient = more.within['salient']
    assert salient.mean == 0 and salient.low < 0 < salient.high
    losses = count_label_losses(join_label_trials(even, drawn))
    over_even = compare_with_even_draw(losses, CHOSEN_RULE)
    assert list(over_even.index) == ['single-frequent', 'single+3-negatives', 'salient']
    assert over_even.pick['single-frequent'].mean == 0 and over_even.pick['salient'].mean == -1


def test_only_sets_and_seeds_that_are_whole_under_every_draw_are_compared():
    even, drawn = make_label_lines()
    first = drawn.iloc[[0]]
    both = join_label_trials(even, drawn.drop(first.index))
    left = set(map(tuple, both[['dataset', 'seed']].to_numpy().tolist()))
    gone = (first.dataset.item(), first.seed.item())
    assert len(left) == 7 and gone not in left
    assert join_label_trials(even, drawn.iloc[:0]).empty


def test_the_page_says_of_which_draws_the_interval_decides():
    even, drawn = make_label_lines()
    page = observed_choice.format_label_draws(join_label_trials(even, drawn))
    assert page.count(': loses less (even, frequent, sure negatives); undecided (salient).') == 2
    assert (
        page.count(': within 0.5 points (even, frequent, sure negatives); undecided (salient).')
        == 2
    )
    assert page.count('| ccp |') == len(LABELS) and '+2.00 ± 0.00' in page


def test_a_set_that_is_not_whole_does_not_count():
    assert not len(count_choice_losses(make_lines().iloc[:-1]))


def test_finished_runs_are_collected_once(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'runs'))
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path / 'outputs'))
    place = observed_choice.trials_folder()
    place.mkdir(parents=True)
    for line in make_lines().head(3).to_dict('records'):
        (place / f"ccp-{line['loss']}-{line['draw']}-1000.json").write_text(json.dumps(line))
    for _ in range(2):
        assert len(observed_choice.collect_trials()) == 3
    assert len(observed_choice.read_trials()) == 3
    with pytest.raises(SpmlError, match="'nuswide'"):
        observed_choice.sweep_observed_choice(['nuswide'], dry_run=True)
    told = []
    table = observed_choice.sweep_observed_choice(['ccp'], dry_run=True, tell=told.append)
    assert len(table) == 360 and (table.state == 'done').sum() == 3 and '357 are missing' in told[0]


def test_runs_whose_labels_are_not_drawn_evenly_have_a_record_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'runs'))
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path / 'outputs'))
    place = observed_choice.trials_folder()
    place.mkdir(parents=True)
    even, other = make_lines().head(2).to_dict('records')
    (place / 'a.json').write_text(json.dumps(even))
    observed_choice.collect_trials()
    before = (tmp_path / 'outputs' / 'observed_choice.csv').read_bytes()
    for name, labels in (('b', 'salient'), ('c', 'single-frequent')):
        (place / f'{name}.json').write_text(json.dumps(other | {'labels': labels}))
        for _ in range(2):
            observed_choice.collect_trials()
    assert (tmp_path / 'outputs' / 'observed_choice.csv').read_bytes() == before
    drawn = observed_choice.read_trials(observed_choice.FILE_LABELS)
    assert sorted(drawn.labels) == ['salient', 'single-frequent']
    # a run that is told which labels it had, as new ones are, is no other run
    (place / 'a.json').write_text(json.dumps(even | {'labels': 'single'}))
    observed_choice.collect_trials()
    assert (tmp_path / 'outputs' / 'observed_choice.csv').read_bytes() == before
    table = observed_choice.sweep_observed_choice(['ccp'], dry_run=True, tell=lambda line: None)
    assert (table.state == 'done').sum() == 3


@pytest.mark.slow
def test_a_run_is_watched_by_every_rule(photo_folder, tmp_path, monkeypatch):
    from quick import config

    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'runs'))
    given = config(photo_folder, regime='linear', epochs=3, patience=0, seed=5, label_seed=5)
    trial = observed_choice.Trial('photos', 'an', 0, 5)
    line = observed_choice.run_choice_trial(trial, given)
    assert line['dataset'] == 'photos' and line['seed'] == 5 and 1 <= line['auc_shrunk_epoch'] <= 3
    assert observed_choice.run_choice_trial(trial, given) == line  # not trained again


@pytest.mark.slow
def test_salience_is_that_of_a_head_that_saw_other_photos(photo_folder, tmp_path, monkeypatch):
    from quick import config

    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'runs'))
    settings = {'regime': 'linear', 'epochs': 3, 'patience': 0}
    of_all_labels = config(photo_folder, loss='bce', labels='full', **settings)
    monkeypatch.setattr(observed_choice, 'candidates', lambda *place: [of_all_labels])
    with pytest.raises(SpmlError, match='spml sweep methods --dataset photos'):
        observed_choice.measure_salience('photos')
    monkeypatch.setattr(observed_choice, 'choose_config', lambda tried, known: tried[0])
    tasks = []
    train = observed_choice.train
    monkeypatch.setattr(
        observed_choice,
        'train',
        lambda config, task, **given: tasks.append(task) or train(config, task=task, **given),
    )
    logits = observed_choice.measure_salience('photos')
    learnt, judged = zip(*((set(task.train), set(task.val)) for task in tasks), strict=True)
    assert learnt == judged[::-1] and not learnt[0] & learnt[1]
    for task in tasks:
        assert (task.observed == task.data.labels[task.train]).all()
        assert not logits[task.test].any() and (logits[task.val] != 0).all()
    given = config(photo_folder, seed=5, label_seed=5, **settings)
    line = observed_choice.run_choice_trial(Trial('photos', 'an', 0, 5, 'salient'), given)
    assert len(tasks) == 3  # the salience was kept
    assert line['labels'] == 'salient' and 0 <= line['most_salient'] <= 100
    z = np.concatenate([tasks[2].observed, tasks[2].observed_val])
    rows = np.concatenate([tasks[2].train, tasks[2].val])
    assert (tasks[2].data.labels[rows][z == 1] == 1).all() and (z.sum(1) <= 1).all()
