"""Scores of photos whose labels are known: counts by hand, scikit-learn as an oracle, folders that
are test only, and the run's own numbers.
"""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, precision_recall_fscore_support

from spml_nb import runs, training
from spml_nb.base.errors import SpmlError
from spml_nb.cli import main
from spml_nb.data import load, loading
from spml_nb.statistics import image_draws
from spml_nb.training import evaluate as evaluate_run
from spml_nb.use.export import export
from spml_nb.use.predict import open_model
from spml_nb.use.predictor import predict_rows
from spml_nb.use.scoring import (
    FEWEST_TO_STOP,
    REPEATS,
    _subtract,
    bootstrap_deviations,
    compare_models,
    evaluate_model,
    format_scores,
    plan_sample,
    score_labels,
    wilson_interval,
)


def drawn(seed, n=150, classes=4, unknown=0.0):
    rng = np.random.RandomState(seed)
    labels = np.where(rng.rand(n, classes) < 0.3, 1, -1).astype(np.int8)
    labels[rng.rand(n, classes) < unknown] = 0
    return np.round(rng.rand(n, classes), 2), labels


def test_counts_by_hand():
    p = np.array([[0.9, 0.2, 0.1], [0.5, 0.9, 0.1], [0.7, 0.4, 0.1], [0.1, 0.1, 0.9]])
    y = np.array([[1, -1, 0], [-1, 1, 0], [1, 0, 0], [1, 1, 1]], np.int8)
    found = score_labels(p, y, ['a', 'b', 'only positive'], 0.5)
    assert found.classes[['present', 'named', 'right']].values.tolist() == [
        [3, 3, 2],
        [2, 1, 1],
        [1, 1, 1],
    ]
    assert found.classes.at_least.tolist() == [
        False,
        False,
        True,
    ]  # in the third nothing can be wrong
    assert (
        np.isnan(found.classes.ap['only positive'])
        and found.left_out == 4
        and found.truth == 'partly known'
        and found.photos == 4
    )
    assert np.allclose(
        found.total.value[['precision', 'recall', 'micro-F1']], [75, 60, 200 * 3 / 9]
    )
    assert (
        '–' in str(found)
        and '(threshold)' in str(found)
        and '4 unknown ones left out' in str(found)
    )


def test_photos_on_which_nothing_can_be_wrong_count_nowhere():
    p, y = drawn(0, n=10)
    y[:4] = np.where(y[:4] < 0, 0, y[:4])
    found = score_labels(p, y, list('abcd'), 0.5)
    assert (
        found.unused == 4
        and '4 of them count nowhere: no label is known to be absent there' in str(found)
    )
    rest = score_labels(p[4:], y[4:], list('abcd'), 0.5)
    assert found.classes.equals(rest.classes) and found.total.value.equals(rest.total.value)
    assert rest.unused == 0 and 'count nowhere' not in str(rest)


@pytest.mark.parametrize('seed', range(3))
def test_they_are_those_of_scikit_learn(seed):
    p, y = drawn(seed)
    found = score_labels(p, y, list('abcd'), 0.6)
    precision, recall, f1, _ = precision_recall_fscore_support(
        y.ravel() > 0, p.ravel() >= 0.6, average='binary'
    )
    each = [average_precision_score(y[:, c] > 0, p[:, c]) for c in range(4)]
    assert np.allclose(found.total.value, 100 * np.array([np.mean(each), f1, precision, recall]))
    precision, recall, _, support = precision_recall_fscore_support(y > 0, p >= 0.6, average=None)
    assert (
        np.allclose(found.classes.precision, 100 * precision)
        and np.allclose(found.classes.recall, 100 * recall)
        and found.classes.present.tolist() == support.tolist()
    )
    known = drawn(seed, unknown=0.3)
    part = score_labels(*known, list('abcd'), 0.6)
    whole = [
        score_labels(known[0][rows, c : c + 1], known[1][rows, c : c + 1], ['x'], 0.6)
        for c in range(4)
        for rows in [known[1][:, c] != 0]
    ]
    assert np.allclose(
        part.classes.ap, [one.classes.ap['x'] for one in whole]
    ) and part.classes.right.tolist() == [one.classes.right['x'] for one in whole]


@pytest.mark.filterwarnings('error')
def test_where_nothing_is_named_precision_has_no_value_and_no_warning():
    total = score_labels(
        np.full((4, 2), 0.1),
        np.array([[1, -1], [-1, 1], [1, 1], [-1, -1]], np.int8),
        ['a', 'b'],
        0.5,
    ).total
    assert np.isnan(total.value['precision']) and total.value['recall'] == 0


def test_classes_without_a_photo_are_named_since_the_runs_own_map_counts_them_as_0():
    p, y = drawn(0)
    assert 'mAP over' not in str(score_labels(p, y, list('abcd'), 0.6))
    y[:, 1] = -1
    found = str(score_labels(p, y, list('abcd'), 0.6))
    assert 'mAP over 3 of 4 classes: b cannot be scored here' in found


def test_intervals_shrink_with_the_root_of_the_number_of_photos_and_are_near_the_binomial():
    small, large = (score_labels(*drawn(0, n), list('abcd'), 0.6).total for n in (200, 3200))
    ratio = ((small.high - small.low) / (large.high - large.low))['precision']
    assert 3 < ratio < 5.4
    p, y = drawn(1, 1500, 1)
    row = score_labels(p, y, ['a'], 0.6).classes.loc['a']
    expected = (
        2 * 1.96 * 100 * np.sqrt(row.right / row.named * (1 - row.right / row.named) / row.named)
    )
    assert abs((row.high - row.low) / expected - 1) < 0.2


def guesses(n, classes=4, seed=7):
    "Probabilities and true labels of photos, some of which are harder than others."
    rng = np.random.default_rng(seed)
    true = rng.random((n, classes)) < 0.3
    logits = rng.normal(size=true.shape) + 2 * true - 1.5 + rng.normal(size=(n, 1))
    return 1 / (1 + np.exp(-logits)), np.where(true, 1, -1).astype(np.int8)


@pytest.mark.slow
def test_the_interval_of_a_sample_covers_the_score_of_all_photos_as_often_as_it_says():
    """400 samples of 12 photos. Of 400 intervals that cover at 95 %, 365 to 392 cover in 998 of
    1,000 tests; 1.96 deviations alone, without more for few photos, cover 364 times.
    """
    p, labels = guesses(20000)
    names = list('abcd')
    true = score_labels(p, labels, names, 0.5).total.value['micro-F1']
    rng, covered = np.random.default_rng(0), 0
    for _ in range(400):
        rows = rng.choice(len(p), 12, replace=False)
        total = score_labels(p[rows], labels[rows], names, 0.5).total
        covered += total.low['micro-F1'] <= true <= total.high['micro-F1']
    assert 365 <= covered <= 392


@pytest.mark.slow
def test_who_labels_until_the_interval_is_as_narrow_as_wanted_has_one_that_covers():
    "Photos are added as the plan says until it says enough, 100 times over."
    p, labels = guesses(20000)
    names = list('abcd')
    true = score_labels(p, labels, names, 0.5).total.value['micro-F1']
    rng, covered, sizes = np.random.default_rng(1), 0, []
    for _ in range(100):
        order, count = rng.choice(len(p), 1000, replace=False), 20
        while True:
            scores = score_labels(p[order[:count]], labels[order[:count]], names, 0.5)
            plan = plan_sample(scores, 10)
            if plan.needed <= count:
                break
            count = min(plan.needed, 2 * count)
        assert plan.half_width <= 10 and count >= FEWEST_TO_STOP
        covered += abs(scores.total.value['micro-F1'] - true) <= plan.half_width
        sizes.append(count)
    assert covered >= 87  # 95 % would be 95, and fall below 87 once in 1,000 tests
    # the plan of a first sample is right on average
    large = score_labels(p[:2000], labels[:2000], names, 0.5)
    assert np.median(sizes) == pytest.approx(plan_sample(large, 10).needed, rel=0.2)


def test_four_times_as_many_photos_halve_the_interval_that_is_expected():
    scores = score_labels(*guesses(100), list('abcd'), 0.5)
    row = scores.total.loc['micro-F1']
    plan = plan_sample(scores, 2)
    assert plan.half_width == pytest.approx((row.high - row.low) / 2)
    assert plan.expect_half_width(400) == pytest.approx(plan.half_width / 2)
    assert plan.expect_half_width(plan.needed) <= 2 < plan.expect_half_width(plan.needed - 1)
    assert f'label about {plan.needed - 100:,} more in full, drawn at random' in str(plan)
    assert 'enough for ± 50.' in str(plan_sample(scores, '50'))
    few = score_labels(*guesses(5), list('abcd'), 0.5)
    assert plan_sample(few, 99).needed == FEWEST_TO_STOP


def test_the_command_says_how_many_photos_more(made, capsys):
    run = made.run('linear').folder
    assert main(['evaluate', str(run), str(made.folder), '--part', 'all', '--within', '2']) == 0
    plan = plan_sample(evaluate_model(run, made.folder, 'all'), 2)
    assert capsys.readouterr().out.endswith(f'\n\n{plan}\n') and plan.photos == 48
    assert main(['evaluate', str(run), str(made.folder), '--within', 'wide']) == 2
    assert "within='wide'; allowed: a number above 0" in capsys.readouterr().err


@pytest.mark.parametrize('within', [0, -1, 'much', float('inf'), float('nan')])
def test_a_width_that_is_none_is_refused(within):
    scores = score_labels(*drawn(0), list('abcd'), 0.5)
    with pytest.raises(SpmlError, match='allowed: a number above 0, in points'):
        plan_sample(scores, within)


def test_without_fully_labelled_photos_nothing_is_planned():
    p, y = drawn(0, n=20)
    for labels in (np.maximum(y, 0), np.where(np.arange(20)[:, None] == np.argmax(y[:, 0]), y, 0)):
        with pytest.raises(SpmlError, match='Label some photos in full, drawn at random'):
            plan_sample(score_labels(p, labels, list('abcd'), 0.5), 5)


@pytest.mark.parametrize('right, named', [(75, 80), (2, 2), (0, 7), (3, 4)])
def test_bounds_of_a_share_are_those_that_a_test_at_5_percent_just_does_not_reject(right, named):
    for bound in np.array(wilson_interval(right, named)) / 100:
        deviation = (right / named - bound) ** 2
        assert abs(deviation - 1.959964**2 * bound * (1 - bound) / named) < 1e-7
    assert np.isnan(wilson_interval(0, 0)).all()


def test_a_rare_class_that_a_draw_of_photos_misses_does_not_count_there():
    """One photo in forty has the rare class, found at once: it is missing from a third of the
    draws, and the mAP is 100 % in all.
    """
    y = np.full((40, 2), -1)
    y[0, 0] = y[::2, 1] = 1
    p = np.where(y > 0, 0.9, 0.1)
    found = score_labels(p, y, ['rare', 'usual'], 0.5)
    assert (found.samples['mAP'] == 100).all()


def test_where_all_is_right_the_interval_is_that_of_a_share_and_the_plan_knows_it():
    p = np.where(np.arange(30)[:, None] % 3 == np.arange(3), 0.9, 0.1)
    labels = np.where(p > 0.5, 1, -1).astype(np.int8)
    found = score_labels(p, labels, list('abc'), 0.5)
    low = wilson_interval(30, 30)[0]
    assert np.allclose(found.total[['value', 'low', 'high']], [100, low, 100])
    plan = plan_sample(found, 5)
    assert plan.half_width == pytest.approx(100 - low) and plan.needed > 60
    assert 'enough' not in str(plan)
    # one error more may not narrow it
    p[0] = p[1]
    worse = score_labels(p, labels, list('abc'), 0.5)
    assert (worse.total.low < found.total.low).all()
    none = score_labels(np.where(labels > 0, 0.4, 0.6), labels, list('abc'), 0.5)
    high = wilson_interval(0, 30)[1]
    assert np.allclose(none.total.loc['recall'], [0, 0, high])
    of_two = score_labels(p[1:3], labels[1:3], list('abc'), 0.5)
    assert of_two.total.low['precision'] < 40
    assert score_labels(p[1:2], labels[1:2], list('abc'), 0.5).total.low.isna().all()


def test_two_models_of_which_one_is_always_right_do_not_differ_by_an_exact_number(made):
    p = np.where(np.arange(30)[:, None] % 3 == np.arange(3), 0.9, 0.1)
    labels = np.where(p > 0.5, 1, -1).astype(np.int8)
    right, wrong = (score_labels(each, labels, list('abc'), 0.5) for each in (p, 1 - p))
    row = _subtract(right, wrong).loc['recall']
    assert row.value == row.high == 100 and 70 < row.low < 90
    assert (_subtract(right, right) == 0).all(None)


def test_groups_of_equal_photos_count_as_one_photo_each():
    p, labels = drawn(0, n=40)
    groups = np.repeat(np.arange(40), 5)
    one = score_labels(p, labels, list('abcd'), 0.5)
    five = score_labels(p[groups], labels[groups], list('abcd'), 0.5, groups=groups)
    assert np.allclose(one.total, five.total) and one.groups is None and five.groups == 40
    assert one.units == five.units == 40
    alone = score_labels(p[groups], labels[groups], list('abcd'), 0.5)
    for found, wide in ((alone.total, five.total), (alone.classes, five.classes)):
        assert ((found.high - found.low) < 0.7 * (wide.high - wide.low)).all()
    assert 'over 40 groups of photos' in str(five) and 'groups' not in str(alone)
    plan, of_photos = plan_sample(five, 5), plan_sample(one, 5)
    assert plan.needed == pytest.approx(5 * of_photos.needed, abs=5)
    assert '200 fully labelled photos of 40 groups' in str(plan) and 'of other groups' in str(plan)
    # as few groups as this may have a narrow interval by chance
    few = score_labels(p[groups[:50]], labels[groups[:50]], list('abcd'), 0.5, groups=groups[:50])
    assert plan_sample(few, 99).needed == 5 * FEWEST_TO_STOP


def test_photos_of_one_group_have_no_interval():
    p, labels = drawn(0, n=40)
    found = score_labels(p, labels, list('abcd'), 0.5, groups=np.zeros(40, int))
    assert found.total.low.isna().all() and found.classes.low.isna().all()
    assert 'of one group' in str(found)
    with pytest.raises(SpmlError, match='40 photos of one group. Label some photos of other'):
        plan_sample(found, 5)


@pytest.mark.slow
def test_intervals_over_groups_cover_as_often_as_they_say():
    """200 times 10 groups of 20 alike photos; intervals over single photos cover less than half as
    often.
    """
    rng, groups = np.random.default_rng(0), np.repeat(np.arange(10), 20)
    p, labels = guesses(20000)
    true = score_labels(p, labels, list('abcd'), 0.5).total.value['micro-F1']
    covered = np.zeros((200, 2), bool)
    for k in range(200):
        rows = rng.choice(len(p), 10, replace=False)[groups]
        for of, each in enumerate((groups, None)):
            total = score_labels(p[rows], labels[rows], list('abcd'), 0.5, groups=each).total
            covered[k, of] = total.low['micro-F1'] <= true <= total.high['micro-F1']
    by_groups, by_photos = covered.mean(0)
    assert by_groups >= 0.88 and by_photos < 0.5


def test_the_column_group_is_used_by_scores_comparisons_and_the_command(made, tmp_path, capsys):
    groups = [f'site {k // 6}' if k < 42 else '' for k in range(48)]
    folder = table(made, tmp_path, lambda rows: rows.assign(group=groups))
    first, second = made.run('cosine').folder, made.run('frozen').folder
    found = evaluate_model(first, folder, 'all')
    assert found.groups == 7 + 6
    plain = evaluate_model(first, made.folder, 'all')
    assert found.total.value.equals(plain.total.value) and not found.total.low.equals(
        plain.total.low
    )
    compared = compare_models((first, second), folder, 'all')
    assert 'over 13 groups of photos' in str(compared)
    half = bootstrap_deviations(13) * (compared.scores[0].samples - compared.scores[1].samples)[
        1:
    ].std(ddof=0)
    assert np.allclose(compared.difference.high - compared.difference.value, half)
    words = ['evaluate', str(first), str(folder), '--part', 'all', '--within', '5']
    assert main(words) == 0 and '48 fully labelled photos of 13 groups' in capsys.readouterr().out


def test_a_class_that_a_complete_table_never_names_can_be_named_wrongly(made, tmp_path):
    run = made.run('linear').folder
    dark = np.flatnonzero(made.data.labels[:, made.data.class_names.index('bright')] < 0)
    folder = table(made, tmp_path, lambda rows: rows.iloc[dark])
    found = evaluate_model(run, folder, 'all')
    p = predict_rows(open_model(run), made.data, dark)
    whole = score_labels(p, made.data.labels[dark], made.data.class_names, found.threshold)
    assert found.total.equals(whole.total) and found.classes.equals(whole.classes)
    assert (found.absent, found.unlisted) == ((), ('bright',))
    assert 'counted as absent from every photo' in str(found)
    compared = compare_models((run, run), folder, 'all')
    assert compared.scores[0].total.equals(whole.total)
    assert 'counted as absent from every photo' in str(compared)
    cells = pd.DataFrame({'blue': [1, 0] * 8, 'red': [0, 1] * 8})  # says nothing about others
    columns = pd.concat([pd.read_csv(folder / 'labels.csv')[['image']], cells], axis=1)
    columns.to_csv(folder / 'labels.csv', index=False)
    assert evaluate_model(run, folder, 'all').absent == ('bright',)


def test_a_run_on_its_own_test_photos_gets_its_own_scores(made):
    for name in ('cosine', 'frozen'):
        run = made.run(name)
        found, known = evaluate_model(run.folder, made.folder), evaluate_run(run.folder)[0]
        assert (
            abs(found.total.value['mAP'] - known['map']) < 1e-4
            and abs(found.total.value['micro-F1'] - 100 * known['micro_f1']) < 1e-4
        )
        assert (
            np.allclose(found.classes.ap, 100 * np.array(known['ap']), atol=1e-4)
            and found.threshold == known['threshold']
        )
        assert (
            'trained or chosen' not in found.heading
            and 'trained or chosen' in evaluate_model(run.folder, made.folder, 'all').heading
        )


def table(made, tmp_path, change):
    "The photos with another table. change(table) gives it."
    folder = tmp_path / 'sample'
    (folder / 'images').parent.mkdir()
    (folder / 'images').symlink_to(made.folder / 'images')
    change(pd.read_csv(made.folder / 'labels.csv')).to_csv(folder / 'labels.csv', index=False)
    return folder


def test_other_test_photos_than_the_run_had_are_said(made, tmp_path, recwarn):
    """Without a column `split` a sorted table has the same test photos; a column can name others,
    which the run may have been trained on.
    """
    model, places = export(made.run('linear').folder, tmp_path / 'model.safetensors'), []
    for name, order, more in (
        ('same', 1, {}),
        ('turned', -1, {}),
        ('marked', 1, {'split': ['test'] * 12 + ['train'] * 36}),
    ):
        place = tmp_path / name / made.folder.name
        place.mkdir(parents=True)
        (place / 'images').symlink_to(made.folder / 'images')
        pd.read_csv(made.folder / 'labels.csv').drop(columns='split', errors='ignore')[
            ::order
        ].assign(**more).to_csv(place / 'labels.csv', index=False)
        places.append(place)
    for place in places[:2]:
        evaluate_model(model, place)
    assert not [
        w for w in recwarn if 'other' in str(w.message) or 'not the test photos' in str(w.message)
    ]
    with pytest.warns(UserWarning, match='not the test photos that the model was tested on'):
        evaluate_model(model, places[2])
    evaluate_model(model, places[2], 'all')


def test_a_copy_under_another_name_is_known_by_its_test_photos(made, tmp_path):
    model = export(made.run('linear').folder, tmp_path / 'model.safetensors')
    copy = table(made, tmp_path, lambda rows: rows)
    assert (
        'trained or chosen on photos of these names' in evaluate_model(model, copy, 'all').heading
        and evaluate_model(model, copy).heading == 'sample, part test: '
    )
    pd.read_csv(copy / 'labels.csv').assign(split=['test'] * 12 + ['train'] * 36).to_csv(
        copy / 'labels.csv', index=False
    )  # other test photos
    for part in ('all', 'train', 'test'):
        assert (
            'whether the model was trained on some of them is not known: it learned from photos of '
            in evaluate_model(model, copy, part).heading
        )


def test_a_folder_that_is_test_only(made, tmp_path):
    folder = table(made, tmp_path, lambda rows: rows.assign(split='test'))
    model = export(
        made.run('cosine').folder, tmp_path / 'model.safetensors'
    )  # a file is as good as the run
    found = evaluate_model(model, folder)
    assert found.photos == 48 and str(found) == str(evaluate_model(model, folder, 'all')).replace(
        'part all', 'part test'
    )
    for part in ('train', 'val'):
        with pytest.raises(
            SpmlError, match=f"'sample' has no photo in the part '{part}'.*--part all"
        ):
            evaluate_model(model, folder, part)
    with pytest.raises(SpmlError, match='allowed: train, val, test, all'):
        evaluate_model(model, folder, 'tset')
    with pytest.raises(SpmlError, match='names no train row'):
        load(folder)  # it cannot be trained on


@pytest.mark.silent('A6')
def test_of_another_folder_all_photos_are_scored_unless_a_column_says_which(made, tmp_path):
    model = export(made.run('linear').folder, tmp_path / 'model.safetensors')
    folder = table(made, tmp_path, lambda rows: rows.drop(index=load(made.folder).rows('test')[0]))
    drawn = load(folder)
    found = evaluate_model(model, folder)
    assert found.photos == 47 and 'part all' in found.heading and '47 photos' in str(found)
    assert [
        evaluate_model(model, folder, part).photos for part in ('train', 'val', 'test', 'all')
    ] == [
        *(len(drawn.rows(part)) for part in ('train', 'val', 'test')),
        47,
    ]
    pd.read_csv(folder / 'labels.csv').assign(split=['train'] * 32 + ['test'] * 15).to_csv(
        folder / 'labels.csv', index=False
    )
    assert (
        evaluate_model(model, folder).photos == 15
        and 'part test' in evaluate_model(model, folder).heading
    )


def test_of_its_own_folder_the_test_photos_are_scored_under_any_name_and_with_the_older_split(
    made, tmp_path, monkeypatch
):
    model = export(made.run('linear').folder, tmp_path / 'model.safetensors')
    assert (
        evaluate_model(model, table(made, tmp_path, lambda rows: rows)).photos
        == evaluate_model(model, made.folder).photos
        == len(load(made.folder).rows('test'))
    )
    monkeypatch.setattr(
        loading, '_is_benchmark', lambda folder: True
    )  # what earlier versions tested
    older = training.train(
        runs.Config(
            loss='an', dataset=str(made.folder), backbone='mini', regime='linear', epochs=1
        ),
        root=tmp_path,
    ).folder
    monkeypatch.undo()
    with pytest.warns(
        UserWarning, match='not the test photos that the model was tested on.*split_by_row'
    ):
        found = evaluate_model(older, made.folder)
    assert found.photos == len(load(made.folder).rows('test'))


@pytest.mark.filterwarnings('ignore')
def test_a_run_knows_by_their_bytes_which_photos_trained_it(made, tmp_path):
    run = made.run('linear').folder
    test = made.data.rows('test')[0]
    trained = made.data.rows('train')[0]
    folder = table(made, tmp_path, lambda rows: rows)
    (folder / 'images').unlink()
    (folder / 'images').mkdir()
    others = [row for row in range(48) if row not in (test, trained)]
    for rows, said in (
        ([test], 'the model was trained on none of them'),
        ([test, trained], '1 of them trained the model'),
        (others[:3], ' of them trained the model'),
    ):
        names = [f'{row}{made.data.images[row].suffix}' for row in rows]
        for row, name in zip(rows, names, strict=True):
            shutil.copy(made.data.images[row], folder / 'images' / name)
        labels = pd.read_csv(made.folder / 'labels.csv').labels[rows].to_numpy()
        pd.DataFrame({'image': names, 'labels': labels}).to_csv(folder / 'labels.csv', index=False)
        assert said in evaluate_model(run, folder, 'all').heading
    assert main(['export', str(run), str(tmp_path / 'm.safetensors')]) == 0
    exported = evaluate_model(tmp_path / 'm.safetensors', folder, 'all').heading
    assert 'is not known' in exported


@pytest.mark.filterwarnings('ignore')
def test_how_many_photos_the_part_has_is_said_where_nobody_chose_it(made, tmp_path):
    model = export(made.run('linear').folder, tmp_path / 'model.safetensors')
    parts = ['train'] * 32 + ['test'] * 14
    folder = table(made, tmp_path, lambda rows: rows[:46].assign(split=parts))
    remark = '14 of 46 photos; --part all for all'
    assert remark in evaluate_model(model, folder).heading
    for part in ('test', 'all'):
        assert remark not in evaluate_model(model, folder, part).heading
    assert '--part all' not in evaluate_model(model, made.folder).heading


def test_two_models_are_compared_on_the_same_photos(made, tmp_path, capsys):
    first, second = made.run('cosine').folder, made.run('frozen').folder
    found = compare_models((first, second), made.folder, 'all')
    own = [evaluate_model(model, made.folder, 'all') for model in (first, second)]
    for scores, alone in zip(found.scores, own, strict=True):
        assert scores.total.equals(alone.total)
    value = own[0].total.value - own[1].total.value
    assert np.allclose(found.difference.value, value)
    # by hand: the same draws of photos for both
    rows = made.data.rows('all')
    draws = image_draws(len(rows), REPEATS)
    f1 = []
    for model, scores in zip((first, second), own, strict=True):
        p = predict_rows(open_model(model), made.data, rows)
        named, there = p >= scores.threshold, made.data.labels[rows] > 0
        hits, sums = draws @ (named & there).sum(1), draws @ (named.sum(1) + there.sum(1))
        f1.append(200 * hits / sums)
    row = found.difference.loc['micro-F1']
    half = bootstrap_deviations(len(rows)) * (f1[0] - f1[1]).std()
    assert np.allclose([row.low, row.high], [row.value - half, row.value + half])
    assert main(['evaluate', str(first), str(second), str(made.folder), '--part', 'all']) == 0
    told = capsys.readouterr().out
    assert first.name in told and second.name in told and f'{row.low:.1f} to {row.high:.1f}' in told
    same = compare_models((first, first), made.folder)
    assert (same.difference == 0).all(None) and 'may be chance' in str(same)
    ahead = same.difference.assign(value=-5.0, low=-8.0, high=-2.0)
    better = replace(found, difference=ahead)
    assert f'{second.name} is better than {first.name}, by 5.0 ± 3.0 points' in str(better)
    assert 'due to their thresholds' not in str(better)
    ahead.loc['mAP', ['low', 'high']] = [-3.0, 1.0]
    assert 'due to their thresholds' in str(replace(found, difference=ahead))
    assert f'from a probability of {own[0].threshold:.4g} on' in told
    words = ['evaluate', str(first), str(second), str(made.folder), '--within', '5']
    assert main(words) == 2 and '--within goes with one model' in capsys.readouterr().err


def test_models_are_compared_over_the_classes_that_both_have(made, tmp_path):
    run = made.run('linear').folder
    with pytest.raises(SpmlError, match='no class of'):
        compare_models((run, 'coco18'), made.folder)
    first = [name for name in made.data.class_names if name != 'bright']
    folder = table(made, tmp_path, lambda rows: rows.assign(labels=first[0]))
    found = compare_models((run, run), folder, 'all')
    assert found.scores[0].classes.index.tolist() == made.data.class_names
    cells = {'labels': None, first[0]: 1, 'loud': 0}
    columns = pd.read_csv(folder / 'labels.csv').assign(**cells).dropna(axis=1)
    columns.to_csv(folder / 'labels.csv', index=False)
    found = compare_models((run, run), folder, 'all')
    assert found.scores[0].classes.index.tolist() == [first[0]]


@pytest.mark.silent('A6')
def test_two_photos_are_scored(made, tmp_path):
    model = export(made.run('linear').folder, tmp_path / 'model.safetensors')
    assert evaluate_model(model, table(made, tmp_path, lambda rows: rows[:2])).photos == 2


def test_the_part_all_looks_at_every_photo_and_validation_rows_stay_where_training_has_them(
    made, tmp_path
):
    split = ['train'] * 30 + ['test'] * 18
    folder = table(made, tmp_path, lambda rows: rows.assign(split=split))
    assert [
        evaluate_model(made.run('linear').folder, folder, part).photos
        for part in ('all', 'test', 'val', 'train')
    ] == [48, 18, *(len(load(folder).rows(part)) for part in ('val', 'train'))]
    assert (load(folder).split == load(folder, scored=True).split).all()


def test_classes_are_matched_by_name(made, tmp_path):
    run = made.run('linear').folder
    folder = table(
        made,
        tmp_path,
        lambda rows: rows.assign(
            labels=rows.labels.str.replace('bright', 'dark') + '|loud', split='test'
        ),
    )
    found = evaluate_model(run, folder)
    assert found.classes.index.tolist() == ['blue', 'bright', 'red']
    assert found.unlisted == ('bright',) and found.classes.present['bright'] == 0
    full = evaluate_model(
        run,
        table(made, tmp_path / 'again', lambda rows: rows.assign(split='test'))
        if (tmp_path / 'again').mkdir() is None
        else '',
    )
    both = ['blue', 'red']
    assert full.classes.right[both].tolist() == found.classes.right[both].tolist()
    shutil.rmtree(folder)
    other = table(made, tmp_path, lambda rows: rows.assign(labels='loud', split='test'))
    with pytest.raises(
        SpmlError, match=r"no class of 'sample' \(loud\) is one of the model \(blue, bright, red\)"
    ):
        evaluate_model(run, other)


def test_photos_without_any_of_the_classes_are_refused():
    with pytest.raises(SpmlError, match='no photo is known to have any of the classes'):
        score_labels(np.full((5, 2), 0.7), np.full((5, 2), -1, np.int8), ['a', 'b'], 0.5)


def single_positives(random, n=2000, classes=6):
    """A model on photos of which the truth is known: 3 of 6 labels apply, chance observes one.
    Returns: probabilities, truth, observed labels.
    """
    truth = np.argsort(random.random((n, classes)), axis=1) < classes // 2
    observed = (truth * random.random(truth.shape)).argmax(1)[:, None] == np.arange(classes)
    logits = random.normal(np.where(truth, 1.5, -2.5))
    return 1 / (1 + np.exp(-logits)), truth, observed


@pytest.mark.silent('A4')
def test_labels_that_are_observed_only_give_no_precision_f1_or_map_but_their_recall():
    p, truth, observed = single_positives(np.random.default_rng(0))
    true = score_labels(p, np.where(truth, 1, -1), list('abcdef'), 0.5)
    found = score_labels(p, observed.astype(np.int8), list('abcdef'), 0.5)
    assert found.truth == 'observed only' and found.observed_only and not true.observed_only
    assert (
        not {'mAP', 'micro-F1', 'precision'} & set(found.total.index)
        and found.classes.ap.isna().all()
    )
    assert (
        true.total.value['precision'] > 95 and found.total.value['precision at least'] < 40
    )  # a third of the labels is observed
    assert abs(found.total.value['recall'] - true.total.value['recall']) < 2
    assert (
        (found.classes.right <= true.classes.right).all()
        and (found.classes.named == true.classes.named).all()
        and found.classes.at_least.all()
    )
    text = str(found)
    assert (
        f'at least {found.classes.right["a"]:,}' in text
        and 'mAP and F1 cannot be measured' in text
        and 'at least' not in str(true)
    )
    assert (
        found.labels_a_photo == true.labels_a_photo == pytest.approx((p >= 0.5).sum(1).mean())
        and f'{found.labels_a_photo:.2f} labels a photo' in text
    )
    assert (
        found.without_label
        == true.without_label
        == pytest.approx(100 * (~(p >= 0.5).any(1)).mean())
    )


@pytest.mark.silent('A4')
def test_classes_of_which_nothing_is_known_to_be_absent_are_lower_bounds_beside_the_others():
    p, truth, observed = single_positives(np.random.default_rng(1), 400)
    labels = np.where(truth, 1, -1)
    labels[:, :2] = observed[:, :2]
    found = score_labels(p, labels, list('abcdef'), 0.5)
    rest = score_labels(p[:, 2:], labels[:, 2:], list('cdef'), 0.5)
    assert found.truth == 'partly known' and found.classes.at_least.tolist() == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert found.total.equals(rest.total) and found.classes[2:].equals(
        rest.classes
    )  # the total is over what can be measured
    assert (
        found.classes.present[:2].tolist() == observed[:, :2].sum(0).tolist()
        and found.classes.named[:2].tolist() == (p >= 0.5)[:, :2].sum(0).tolist()
    )
    assert found.classes.right[:2].tolist() == ((p >= 0.5) & observed)[:, :2].sum(0).tolist()
    assert 'of a, b no label is known to be absent' in str(found)


@pytest.mark.silent('C11')
def test_zero_has_no_minus():
    low, high = np.transpose([wilson_interval(0, n) for n in (67, 13, 7)])
    table = format_scores(
        pd.DataFrame({'value': [-0.0, -0.04, 0.0], 'low': np.minimum(low, -1e-15), 'high': high})
    )
    assert not [cell for cell in table.to_numpy().ravel() if '-0.0' in cell or '−0.0' in cell]


def test_with_a_threshold_for_each_class():
    p, labels = drawn(3)
    limits = {'a': 0.2, 'b': 0.9, 'c': 0.5, 'd': 0.5}
    scores = score_labels(p, labels, list(limits), limits)
    named = p >= list(limits.values())
    assert scores.classes.named.tolist() == named.sum(0).tolist()
    assert scores.labels_a_photo == named.sum(1).mean()
    assert format_scores(scores.classes)['threshold'].tolist() == ['0.2', '0.9', '0.5', '0.5']
    assert (
        scores.total.value['mAP'] == score_labels(p, labels, list(limits), 0.5).total.value['mAP']
    )
    assert str(scores)


def test_naming_nearly_everything_is_said():
    p, labels = drawn(3)
    names = list('abcd')
    most = score_labels(p, labels, names, 0.01)
    assert most.overnaming and most.overnaming in str(most)
    assert not score_labels(p, labels, names, 0.6).overnaming
    observed = np.where(labels > 0, 1, 0).astype(np.int8)  # what is named beside may be right
    twice = score_labels(p, observed, names, 0.3)
    assert twice.labels_a_photo > 2 * (observed > 0).sum(1).mean() and not twice.overnaming


def test_naming_hardly_more_than_one_class_is_said():
    p, labels = drawn(3)
    p[:, 0], p[:, 1:] = 0.9, 0.1
    observed = np.where(labels > 0, 1, 0).astype(np.int8)
    p[:, 1:] = np.where(np.arange(150)[:, None] % 3 == 0, 0.9, 0.1)
    often = score_labels(p, observed, list('abcd'), 0.5)
    count = (observed[:, 0] > 0).sum()
    said = f'a is named on 150 of 150 photos, and {count} are known to have it'
    assert often.narrow_naming.startswith(said)
    assert not score_labels(p, labels, list('abcd'), 0.5).narrow_naming
    p[:, 1:] = 0.1
    narrow = score_labels(p, observed, list('abcd'), 0.5)
    assert narrow.narrow_naming.startswith('a is 100 % of the names, and 3 of 4 classes')
    assert narrow.narrow_naming in str(narrow)
    assert not score_labels(p, observed, list('abcd'), 0.05).narrow_naming
    # where all labels are known, the table says what is missed
    assert not score_labels(p, labels, list('abcd'), 0.5).narrow_naming


def test_an_evaluation_may_take_the_threshold_of_each_class(made):
    folder = made.run('linear').folder
    per_class = evaluate_model(folder, made.folder, per_class=True)
    limits = per_class.threshold
    assert per_class.classes.threshold.tolist() == list(limits.values())
    rows = made.data.rows('test')
    run = runs.folder.read_result(runs.folder.open_run(folder))
    p = 1 / (1 + np.exp(-run.logits['test'].astype(float)))
    expected = score_labels(p, made.data.labels[rows], made.data.class_names, limits)
    assert (per_class.classes.named == expected.classes.named).all()


def test_a_model_without_thresholds_of_classes_is_named(made, tmp_path):
    run = made.copy('linear', tmp_path)
    result = json.loads((run / 'result.json').read_text())
    del result['thresholds']
    (run / 'result.json').write_text(json.dumps(result))
    other = made.run('cosine').folder
    with pytest.raises(SpmlError, match=f'^{re.escape(str(run))}: the model has one threshold'):
        compare_models((other, run), made.folder, 'all', per_class=True)
