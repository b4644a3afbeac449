"""A comparison on photos of one's own: one search for each method, paired intervals, and what to
take.
"""

import math
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image
from quick import shorten_photos_suite
from redrawn import as_bitmaps, redraw
from scipy.special import expit
from side_files import draw_side

from spml_nb import cli, methods, statistics, sweeps
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.cli import sweeps as sweep_commands
from spml_nb.data.labels import choose_score_targets
from spml_nb.data.loading import load
from spml_nb.drawing import STYLE
from spml_nb.methods.core import find
from spml_nb.metrics import mean_average_precision
from spml_nb.runs import record
from spml_nb.runs.config import Config, resolve
from spml_nb.runs.folder import Run, open_run, read_result
from spml_nb.sweeps import search
from spml_nb.sweeps.search import Row
from spml_nb.use import comparison, predict
from spml_nb.use.comparison import compare
from spml_nb.use.recommendation import read_method_result


@pytest.fixture
def quick(monkeypatch, in_process):
    "The suite photos with two draws on the mini backbone."
    shorten_photos_suite(monkeypatch)


@pytest.fixture
def one_label_each(photo_folder, quick):
    "Photos with one known label each and no clean label anywhere."
    table = pd.read_csv(photo_folder / 'labels.csv')
    table.assign(positives=table.pop('labels').str.split('|').str[-1]).to_csv(
        photo_folder / 'labels.csv', index=False
    )
    return photo_folder


@pytest.fixture
def complete_test(photo_folder, quick):
    "One known label a photo in train and val, all labels in test."
    table = pd.read_csv(photo_folder / 'labels.csv')
    names = ['red', 'blue', 'bright']
    rows = [['image', *names, 'split']]
    for k, (image, labels) in enumerate(zip(table.image, table.labels, strict=True)):
        there, part = labels.split('|'), ('train', 'train', 'val', 'test')[k % 4]
        cells = (
            ['1' if name in there else '0' for name in names]
            if part == 'test'
            else ['1' if name == there[-1] else '' for name in names]
        )
        rows.append([image, *cells, part])
    (photo_folder / 'labels.csv').write_text('\n'.join(map(','.join, rows)))
    return photo_folder


def test_one_call_searches_chooses_and_says_what_to_take(one_label_each):
    told = []
    assert (
        compare(one_label_each, ('an', 'em'), seeds=2, dry_run=True, tell=told.append).state
        == 'missing'
    ).all()
    assert (
        '60 images' in told[0]
        and told[0].endswith(
            '2 methods; all labels in the table are used, unknown ones stay unknown; seeds change '
            'the training only.'
        )
        and told[1].startswith('8 runs to train: no run of this kind is recorded')
        and len(told) == 2
    )
    done = compare(one_label_each, ('an', 'em'), seeds=2, tell=told.append)
    assert len(done) == 8 and set(done.state) == {
        'done'
    }  # what a table leaves open is unknown: AN and EM are two losses there
    said, known = told[-1], sweeps.load_finished_runs()
    assert (
        said.count('The true mAP and F1 of') == 1
        and 'of val and test are missing, because no class' in said
    )
    finals = known[known.seed != sweeps.SEARCH_SEED]
    assert (
        set(finals.labels) == {'full'}
        and set(finals.loss) == {'an', 'em'}
        and set(finals.seed) == {0, 1}
    )
    means = finals.groupby('loss').observed_val_auc.mean()
    assert f' {means.max():.1f} % observed AUC against observed labels' in said
    best = re.search(r'For new photos: spml predict (\S+) PHOTOS', said)[1]
    taken = re.search(r'Take (\w+):', said)[1]
    theirs = finals[finals.loss == taken].set_index('run').observed_val_auc
    assert (
        theirs[best] == theirs.max() and len(predict.predict(best, one_label_each / 'images')) == 60
    )
    (place,) = (settings.get_folder('runs') / 'compare').glob('photos-*')
    table = pd.read_csv(place / 'table.csv').set_index('loss')
    assert (
        table.over['an'] == 0
        and table.over['em'] == pytest.approx(table.test['em'] - table.test['an'])
        and table.over_half['em'] >= 0
    )
    shown = said[said.index('method ') :].splitlines()[: 1 + len(table)]
    assert shown[0].split()[:3] == ['method', 'validation', 'test'] and 'Holm' not in said
    for line, loss in zip(shown[1:], table.index, strict=True):
        row = table.loc[loss]
        assert line.split()[:2] == [loss, f'{row.validation:.1f}']
        assert f'{row.test:.1f} ± {row.half:.1f}' in line
        assert f'{row.names:.2f} {row.classes:.0f} of 3' in ' '.join(line.split())
        assert line.endswith(f'{row.lowest:.3g}–{row.highest:.3g}')
    for run, names, classes in table[['run', 'names', 'classes']].itertuples(index=False):
        logits, limit = read_result(open_run(run)).logits['val'], open_run(run).threshold()
        named = expit(logits.astype(float)) >= limit
        assert (named.sum(1).mean(), named.any(0).sum()) == (pytest.approx(names), classes)
    assert (place / 'picture.svg').read_bytes().startswith(b'<?xml') and said.startswith(
        (place / 'said.txt').read_text()
    )
    told.clear()
    again = compare(one_label_each, ('an', 'em'), seeds=2, tell=told.append)
    assert told[1:] == ['Every run is done.', said]  # resumed: nothing is run twice
    assert set(again.run) == set(done.run) == set(known.run)
    assert set(again.state) == {'done'} and list(again) == list(done)


def test_a_second_call_returns_what_was_done_before_and_what_it_adds(one_label_each):
    first = compare(one_label_each, ('an',), seeds=1, tell=lambda line: None)
    second = compare(one_label_each, ('an', 'em'), seeds=2, tell=lambda line: None)
    assert len(first) == 3 and len(second) == 8 and set(second.run) > set(first.run)
    assert not second.run.duplicated().any() and set(second.state) == {'done'}
    losses = [config.loss for config in second.config]
    assert losses.count('an') == losses.count('em') == 4


def test_with_complete_test_labels_the_interval_is_that_of_the_runs_own_scores(complete_test):
    told = []
    compare(complete_test, ('an', 'em'), seeds=2, tell=told.append)
    said = told[-1]
    assert (
        'of val are missing' in said
        and 'of test are missing' not in said
        and said.count('against all labels') == (1 if 'Take an' in said else 2)
    )
    assert (
        'validation: observed AUC against observed labels' in said
        and '\ntest: mAP against all labels' in said
    )  # each number has its kind
    rows = [Row(name, labels='full') for name in ('an', 'em')]
    known = sweeps.load_finished_runs()
    data = load(complete_test)
    targets, truth = choose_score_targets(data.labels[data.rows('test')])
    draws, each = statistics.image_draws(len(targets)), {}
    there = (targets > 0).any(0)  # a class that no test photo has is left out
    lines = [
        read_method_result(
            row,
            sweeps.final_configs(row, 'photos', str(complete_test), known, range(2)),
            known,
            targets,
        )
        for row in rows
    ]
    for row in rows:
        for config in sweeps.final_configs(row, 'photos', str(complete_test), known, range(2)):
            scores = read_result(Run(sweeps.canonical_config(config))).logits['test'][:, there]
            true = targets[:, there]
            each[row.loss, config.seed] = (
                [mean_average_precision(scores.repeat(d, 0), true.repeat(d, 0)) for d in draws],
                mean_average_precision(scores, true),
            )
    own = statistics.estimate_effect(
        [each['em', s][1] - each['an', s][1] for s in (0, 1)],
        np.array([np.subtract(each['em', s][0], each['an', s][0]) for s in (0, 1)]),
    )
    found = lines[1].estimate_gain(lines[0], 'test')
    assert truth == 'complete' and (found.mean, found.low, found.high) == pytest.approx(
        (own.mean, own.low, own.high), abs=1e-4
    )


@pytest.mark.silent('A4')
def test_with_few_validation_photos_labelled_in_full_it_says_what_was_measured(photo_folder, quick):
    table = pd.read_csv(photo_folder / 'labels.csv')
    names, parts = ['red', 'blue', 'bright'], ('train', 'train', 'val', 'test')
    rows = [','.join(['image', *names, 'split'])]
    for k, (image, labels) in enumerate(zip(table.image, table.labels, strict=True)):
        there, is_full = labels.split('|'), k % 4 == 3 or k % 16 == 2
        cells = ['1' if name in there else '0' for name in names]
        if not is_full:
            cells = ['1' if name == there[-1] else '' for name in names]
        rows.append(','.join([image, *cells, parts[k % 4]]))
    (photo_folder / 'labels.csv').write_text('\n'.join(rows))
    told = []
    compare(photo_folder, ('an',), seeds=1, tell=told.append)
    (run,) = sweeps.load_finished_runs().query('seed == 0').itertuples()
    assert (run.selected_by, run.val_truth) == ('observed_auc', 'partly known')
    measured = f'{run.observed_val_auc:.1f} % observed AUC against observed labels (unknown ones'
    assert measured in told[-1] and 'known labels' not in told[-1]
    assert 'validation: observed AUC against observed labels (unknown ones as neg' in told[-1]
    assert 'val photos count' not in told[-1] and 'of val are missing' not in told[-1]


def test_intervals_over_groups_are_said_to_be_so(one_label_each):
    file = one_label_each / 'labels.csv'
    table = pd.read_csv(file)
    parts = [('train', 'train', 'val', 'test')[k % 4] for k in range(len(table))]
    groups = ['north' if part == 'val' else f'site {k % 8}' for k, part in enumerate(parts)]
    table.assign(split=parts, group=groups).to_csv(file, index=False)
    told = []
    compare(one_label_each, ('an',), seeds=2, tell=told.append)
    assert 'test: intervals are over 2 groups of photos (column `group`)' in told[-1]
    assert (
        'validation: all photos that count are of one group (column `group`), so intervals are over'
        in told[-1]
    )


def test_after_a_correction_of_the_table_old_runs_do_not_pass_for_new_ones(one_label_each):
    compare(one_label_each, ('an',), seeds=2, tell=lambda line: None)
    table = pd.read_csv(one_label_each / 'labels.csv')
    table.loc[0, 'positives'] = 'blue'
    table.to_csv(one_label_each / 'labels.csv', index=False)
    old = [folder.parent.name for folder in settings.get_folder('runs').glob('*/DONE')]
    told = []
    assert set(compare(one_label_each, ('an',), seeds=2, tell=told.append).state) == {'done'}
    mark = load(one_label_each).fingerprint[:6]
    assert told[1].startswith('4 runs were trained before photos, labels or split changed')
    assert told[1].endswith(f'-{mark}.')
    now = {folder.parent.name for folder in settings.get_folder('runs').glob('*/DONE')} - {*old}
    assert len(now) == len(old) == 4 and all(name.endswith(f'-{mark}') for name in now)
    assert re.search(r'spml predict (\S+) PHOTOS', told[-1])[1] in now
    assert len([*(settings.get_folder('runs') / 'compare').glob('photos-*/table.csv')]) == 2
    assert len(sweeps.load_finished_runs()) == 8
    told.clear()
    compare(one_label_each, ('an',), seeds=2, tell=told.append)
    assert told[1] == 'Every run is done.'


@pytest.mark.silent('C1')
def test_photos_that_were_changed_in_place_are_told_from_those_of_the_runs(one_label_each):
    folder = as_bitmaps(one_label_each)
    compare(folder, ('an',), seeds=1, tell=lambda line: None)
    redraw(*load(folder).images[:3])
    with pytest.raises(SpmlError, match='3 runs of .* before its photos were changed in place'):
        compare(folder, ('an',), seeds=1, tell=lambda line: None)


def test_where_no_training_label_is_unknown_that_is_said(photo_folder, quick):
    told = []
    for labels in ('full', 'single'):
        compare(photo_folder, ('an', 'an'), labels=labels, dry_run=True, tell=told.append)
    assert (
        'No training label is unknown' in told[0]
        and '\n1 method;' in told[0]
        and 'No training label' not in told[2]
    )


@pytest.mark.silent('C2')
def test_test_photos_that_are_training_photos_are_told_before_and_after(photo_folder, quick):
    data, told = load(photo_folder), []
    data.images[data.rows('test')[0]].write_bytes(data.images[data.rows('train')[0]].read_bytes())
    compare(photo_folder, ['an'], seeds=1, tell=told.append)
    assert all(
        f'of {len(data.rows("test"))} test photos 1 are' in said for said in (told[0], told[-1])
    )


def test_an_interrupted_comparison_gives_no_verdict_and_leaves_what_was_kept(
    one_label_each, monkeypatch, capsys
):
    compare(one_label_each, ('an',), seeds=1, tell=lambda line: None)
    kept = {
        file: file.read_bytes() for file in (settings.get_folder('runs') / 'compare').glob('*/*')
    }
    told = []

    def say(line):
        told.append(line)
        if '1/2 done' in line:
            raise KeyboardInterrupt

    monkeypatch.setattr(sweep_commands, 'print_line', say)
    assert (
        cli.main(['compare', str(one_label_each), 'an', '--seeds', '3']) == 130
    )  # as of every command after Ctrl-C
    assert (
        told[-1].startswith('interrupted')
        and capsys.readouterr().err == 'stopped; the same command goes on from here\n'
    )
    assert (
        len(kept) == 3
        and {
            file: file.read_bytes()
            for file in (settings.get_folder('runs') / 'compare').glob('*/*')
        }
        == kept
    )
    assert (
        cli.main(['compare', str(one_label_each), 'an', '--seeds', '3']) == 0
        and 'Only an has finished' in told[-1]
    )


def test_only_a_run_that_is_at_hand_is_recommended(one_label_each):
    told = []

    def best():
        return re.findall(r'For new photos: spml predict (\S+) PHOTOS', told[-1])

    compare(one_label_each, ('an',), seeds=2, tell=told.append)
    record.export_csv()
    (first,) = best()
    shutil.rmtree(settings.get_folder('runs') / first)
    compare(one_label_each, ('an',), seeds=2, tell=told.append)
    assert told[-2] == 'Every run is done.' and len(best()) == 1 and best() != [first]
    shutil.rmtree(settings.get_folder('runs') / best()[0])
    again = compare(one_label_each, ('an',), seeds=2, tell=told.append)
    assert told[-2] == 'Every run is done.' and set(again.state) == {'done'}
    assert 'Only an has finished' in told[-1] and not best()


def test_classes_that_are_left_out_are_neither_trained_nor_scored(photo_folder, quick):
    told, names = [], load(photo_folder).class_names
    given = {'labels': 'single', 'seeds': 1, 'tell': told.append}
    done = compare(photo_folder, ('an',), exclude=f'{names[0]}, {names[2]}', **given)
    assert f'{len(names) - 2} classes' in told[0]
    assert {config.exclude for config in done.config} == {(names[0], names[2])}
    whole = compare(photo_folder, ('an',), **given)
    assert not set(whole.run) & set(done.run)
    assert len([*(settings.get_folder('runs') / 'compare').glob('photos-*/table.csv')]) == 2
    with pytest.raises(SpmlError, match="class to exclude from photos 'violett'"):
        compare(photo_folder, ('an',), exclude=['violett'], **given)


def test_places_do_not_overwrite_one_another(photo_folder, quick):
    for labels in ('full', 'single'):
        compare(photo_folder, ('an',), labels=labels, seeds=1, tell=lambda line: None)
    assert len([*(settings.get_folder('runs') / 'compare').glob('photos-*/table.csv')]) == 2


@pytest.mark.parametrize('jobs', [0, -2])
def test_no_jobs_are_refused_before_anything_is_planned(photo_folder, jobs):
    with pytest.raises(SpmlError, match=f'^jobs must be 1 or more, not {jobs}'):
        compare(photo_folder, ('an', 'em'), jobs=jobs, dry_run=True)


def test_methods_that_need_side_information_take_part_where_it_is_given(
    photo_folder, quick, tmp_path
):
    told = []
    every = set(methods.names())
    plain = {name for name in methods.names() if not find(name).side}

    def asked(**given):
        return set(
            compare(photo_folder, seeds=1, dry_run=True, tell=told.append, labels='single', **given)
            .run.str.split('-photos-')
            .str[0]
        )

    assert asked() < plain and told[0].endswith(
        f'{len(plain)} methods, labels single.'
    )  # some losses are one loss
    file = draw_side(photo_folder, tmp_path / 'side.csv')
    aided = {'epr_count', 'pseudo_scores', 'group_consistency'}
    assert asked(side=str(file)) - asked() == every - plain == aided
    pd.read_csv(file).loc[:, ['image', 'count']].to_csv(file, index=False)
    assert asked(side=str(file)) - asked() == {'epr_count'}
    with pytest.raises(SpmlError, match="'pseudo_scores' learns from more than labels"):
        asked(methods=('an', 'pseudo_scores'))
    done = compare(
        photo_folder,
        ('an', 'epr_count'),
        labels='single',
        seeds=1,
        side=str(file),
        tell=told.append,
    )
    assert set(done.state) == {'done'} and len(done) == 6 and 'epr_count' in told[-1]
    known = sweeps.load_finished_runs()
    assert (known.side.fillna('').str.startswith('side.csv@') == (known.loss == 'epr_count')).all()
    again = compare(
        photo_folder,
        ('an', 'epr_count'),
        labels='single',
        seeds=1,
        side=str(file),
        tell=told.append,
    )
    # nothing runs twice
    assert told[-2] == 'Every run is done.' and set(again.run) == set(done.run)
    table = pd.read_csv(file)
    table.assign(count=1).to_csv(file, index=False)
    left = compare(
        photo_folder,
        ('an', 'epr_count'),
        labels='single',
        seeds=1,
        side=str(file),
        dry_run=True,
        tell=told.append,
    )
    assert len(left) == 3 and set(left.run.str.split('-').str[0]) == {
        'epr_count'
    }  # other counts are other runs


JUDGED = pd.DataFrame(
    {
        'loss': ['hml', 'em'],
        'test': [65.0, 63.1],
        'half': [0.4, math.nan],
        'test_measure': 'mAP',
        'over': [1.9, 0.0],
        'over_half': [0.5, 0.0],
        'p': [0.01, math.nan],
    }
)


def test_the_picture_names_the_method_that_the_others_are_compared_with():
    assert b'over em' in comparison.draw_comparison(JUDGED, 'two')
    same = JUDGED.assign(over=0.0, over_half=[math.nan, 0.0], p=math.nan)  # one seed, equal runs
    assert b'over em' in comparison.draw_comparison(same, 'two')


def test_a_title_of_any_length_fits_the_picture():
    title = 'photos, test observed AUC against observed labels (unknown ones as negatives), 3 seeds'
    for given in (title, f'{title}, 95 % intervals', 'x' * 300):
        with style.context(['default', STYLE]):
            figure = comparison._make_figure(JUDGED, given)
            renderer = FigureCanvasAgg(figure).get_renderer()
            figure.draw(renderer)
            box, whole = figure._suptitle.get_window_extent(renderer), figure.bbox
        assert box.x0 >= 0 and box.x1 <= whole.width and box.y1 <= whole.height
        assert all(ax.bbox.y1 <= box.y0 for ax in figure.axes)


@pytest.mark.parametrize(
    ('folder', 'given', 'message'),
    [
        ('ccp', {}, 'ccp is no folder of photos. Give one'),
        ('nowhere', {}, 'nowhere is no folder'),
        ('', {'seeds': 0}, 'seeds=0; allowed: 1 or more'),
        ('', {'suite': 'x'}, "unknown suite 'x'"),
        ('', {'methods': ['hmm']}, "unknown loss 'hmm'"),
    ],
)
def test_wrong_orders_are_refused(photo_folder, folder, given, message):
    with pytest.raises(SpmlError, match=message):
        compare(folder or photo_folder, tell=lambda line: None, **given)


def test_the_time_is_that_of_like_runs_shared_by_the_jobs_with_start_and_features():
    left = pd.DataFrame({'expected': [60.0, math.nan, 120.0]})

    def seconds(text):
        number, unit = re.search(r'3 runs to train: about (\d+) (s|min) on an idle', text).groups()
        return int(number) * {'s': 1, 'min': 60}[unit]

    short = left / 10
    runs = comparison.describe_time_left(short, 2)
    assert seconds(runs) == round(27 / 2 + 2 * comparison.STARTUP) and 'features' not in runs
    first = comparison.describe_time_left(short, 2, 40.0)
    assert seconds(first) == seconds(runs) + 40 and 'with 40 s for the features' in first
    unknown = comparison.describe_time_left(short, 2, math.nan)
    assert seconds(unknown) == seconds(runs) and 'plus the features of all photos' in unknown
    assert seconds(comparison.describe_time_left(left, 1)) == 5 * 60
    nothing = comparison.describe_time_left(left.assign(expected=math.nan), 1)
    assert nothing.endswith('shown after the first one.')


def test_features_are_timed_on_a_few_photos_before_the_first_run_alone(photo_folder, monkeypatch):
    config = resolve(Config(loss='an', dataset=str(photo_folder), regime='linear', backbone='mini'))
    left, data = pd.DataFrame({'config': [config]}), load(photo_folder)
    monkeypatch.setattr(comparison, 'time_photos', lambda config, data: 0.5)
    none = pd.DataFrame()
    assert comparison._time_features(left, data, none) == 0.5 * len(data)
    known = pd.DataFrame({'dataset': [photo_folder.name]})
    assert comparison._time_features(left, data, known) == 0
    assert comparison._time_features(left[:0], data, none) == 0
    tuned = pd.DataFrame({'config': [config.changed(regime='finetune')]})
    assert comparison._time_features(tuned, data, none) == 0


@pytest.mark.slow
@pytest.mark.silent('A1')
@pytest.mark.parametrize('draw', range(3))
def test_one_positive_label_a_photo_finds_a_method_within_a_point_of_the_best(
    tmp_path, monkeypatch, draw
):
    """Photos with 2.9 labels each, of which the table names one: what is taken is measured against
    all labels.
    """
    monkeypatch.setitem(
        search.SUITES,
        'photos',
        search.SUITES['photos']
        | {
            'config': {'backbone': 'mini', 'image_size': 40, 'regime': 'linear', 'batch_size': 64},
            'draws': 4,
            'widened': 0,
        },
    )
    data = load('mini_coco')
    rows = np.concatenate(
        [data.rows(part)[:n] for part, n in (('train', 600), ('val', 200), ('test', 400))]
    )
    true, random = data.labels[rows] > 0, np.random.default_rng(draw)
    folder = tmp_path / 'photos'
    (folder / 'images').mkdir(parents=True)
    lines = ['image,positives,split']
    for k, row in enumerate(rows):
        Image.fromarray(data.images[row]).save(folder / 'images' / f'{k:04}.png')
        name = data.class_names[random.choice(np.flatnonzero(true[k]))]
        lines.append(f"{k:04}.png,{name},{'train' if k < 600 else 'val' if k < 800 else 'test'}")
    (folder / 'labels.csv').write_text('\n'.join(lines))
    told, losses = [], ('an', 'em', 'llr', 'hml')
    compare(folder, losses, seeds=2, tell=told.append)
    taken, names = re.search(r'Take (\w+):', told[-1])[1], load(folder).class_names
    columns = [data.class_names.index(name) for name in names]
    reached = {}
    for loss in losses:
        finals = sweeps.final_configs(
            Row(loss, labels='full'), 'photos', str(folder), sweeps.load_finished_runs(), range(2)
        )
        logits = [
            read_result(Run(sweeps.canonical_config(config))).logits['test'] for config in finals
        ]
        reached[loss] = np.mean(
            [mean_average_precision(scores, true[800:, columns], empty='skip') for scores in logits]
        )
    assert reached[taken] >= max(reached.values()) - 1, (taken, reached)
