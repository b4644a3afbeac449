"""A comparison on photos of one's own: one search for each method, paired intervals, and what to
take.
"""

import dataclasses
import math
import re
import shlex
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
from spml_nb.data.labels import labels_for_scoring
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
from spml_nb.use.comparison import (
    MethodLine,
    Naming,
    compare,
    judge_methods,
    score_method_line,
)


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
    said, known = told[-1], sweeps.finished()
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
    (place,) = (settings.path('runs') / 'compare').glob('photos-*')
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
    known = sweeps.finished()
    data = load(complete_test)
    targets, truth = labels_for_scoring(data.labels[data.rows('test')])
    draws, each = statistics.image_draws(len(targets)), {}
    there = (targets > 0).any(0)  # a class that no test photo has is left out
    lines = [
        score_method_line(
            row,
            sweeps.finals(row, 'photos', str(complete_test), known, range(2)),
            known,
            draws,
            targets,
        )
        for row in rows
    ]
    for row in rows:
        for config in sweeps.finals(row, 'photos', str(complete_test), known, range(2)):
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
    found = lines[1].over(lines[0])
    assert truth == 'complete' and (found.mean, found.low, found.high) == pytest.approx(
        (own.mean, own.low, own.high), abs=1e-4
    )


def test_after_a_correction_of_the_table_old_runs_do_not_pass_for_new_ones(one_label_each):
    compare(one_label_each, ('an',), seeds=2, tell=lambda line: None)
    table = pd.read_csv(one_label_each / 'labels.csv')
    table.loc[0, 'positives'] = 'blue'
    table.to_csv(one_label_each / 'labels.csv', index=False)
    old = [folder.parent.name for folder in settings.path('runs').glob('*/DONE')]
    told = []
    assert set(compare(one_label_each, ('an',), seeds=2, tell=told.append).state) == {'done'}
    mark = load(one_label_each).fingerprint[:6]
    assert told[1].startswith('4 runs were trained before photos, labels or split changed')
    assert told[1].endswith(f'-{mark}.')
    now = {folder.parent.name for folder in settings.path('runs').glob('*/DONE')} - {*old}
    assert len(now) == len(old) == 4 and all(name.endswith(f'-{mark}') for name in now)
    assert re.search(r'spml predict (\S+) PHOTOS', told[-1])[1] in now
    assert len([*(settings.path('runs') / 'compare').glob('photos-*/table.csv')]) == 2
    assert len(sweeps.finished()) == 8
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
    kept = {file: file.read_bytes() for file in (settings.path('runs') / 'compare').glob('*/*')}
    told = []

    def say(line):
        told.append(line)
        if '1/2 done' in line:
            raise KeyboardInterrupt

    monkeypatch.setattr(cli, 'print_line', say)
    assert (
        cli.main(['compare', str(one_label_each), 'an', '--seeds', '3']) == 130
    )  # as of every command after Ctrl-C
    assert (
        told[-1].startswith('interrupted')
        and capsys.readouterr().err == 'stopped; the same command goes on from here\n'
    )
    assert (
        len(kept) == 3
        and {file: file.read_bytes() for file in (settings.path('runs') / 'compare').glob('*/*')}
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
    shutil.rmtree(settings.path('runs') / first)
    compare(one_label_each, ('an',), seeds=2, tell=told.append)
    assert told[-2] == 'Every run is done.' and len(best()) == 1 and best() != [first]
    shutil.rmtree(settings.path('runs') / best()[0])
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
    assert len([*(settings.path('runs') / 'compare').glob('photos-*/table.csv')]) == 2
    with pytest.raises(SpmlError, match="class to exclude from photos 'violett'"):
        compare(photo_folder, ('an',), exclude=['violett'], **given)


def test_places_do_not_overwrite_one_another(photo_folder, quick):
    for labels in ('full', 'single'):
        compare(photo_folder, ('an',), labels=labels, seeds=1, tell=lambda line: None)
    assert len([*(settings.path('runs') / 'compare').glob('photos-*/table.csv')]) == 2


@pytest.mark.parametrize('jobs', [0, -2])
def test_no_jobs_are_refused_before_anything_is_planned(photo_folder, jobs):
    with pytest.raises(SpmlError, match=f'^jobs must be 1 or more, not {jobs}'):
        compare(photo_folder, ('an', 'em'), jobs=jobs, dry_run=True)


def test_classes_that_nobody_could_learn_do_not_choose():
    names = {'val_truth': 'complete', 'test_truth': 'complete', 'run': 'r'}
    known = {
        'an': {'val_map': 50.0, 'val_map_seen': 70.0, 'test_map': 60.0},
        'em': {'val_map': 55.0, 'val_map_seen': 60.0, 'test_map': 50.0},
    }
    lines = []
    for loss, scores in known.items():
        given = Config(loss=loss, dataset='mini_voc', backbone='mini', device='cpu')
        lines.append(
            score_method_line(
                Row(loss),
                [given],
                pd.DataFrame([scores | names], index=[sweeps.key(given)]),
                np.zeros((1, 2)),
                np.ones((2, 2)),
            )
        )
    table, said = judge_methods(lines)
    assert (
        table.loss.tolist() == ['an', 'em']
        and table.validation.tolist() == [70, 60]
        and 'On validation: an 70.0 %' in said
    )


def test_the_best_on_validation_may_be_below_and_who_is_not_through_is_named():
    table, said = judge_methods(
        [AN, made_up('em', [52.0, 52.1, 52.4], [50.0, 51.1, 50.2]), made_up('hml', [], [])]
    )
    assert (
        'it is 10.0 ± ' in said
        and ' points of mAP below an.' in said
        and said.endswith('\nNot through: hml.')
        and len(table) == 2
    )


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
    known = sweeps.finished()
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


def made_up(loss, val, test, noise=0.3):
    rng, seeds = (
        np.random.default_rng(len(loss) + round(100 * sum(val))),
        range(len(test)),
    )  # noise of its own
    runs = pd.DataFrame(
        {
            'validation': val,
            'test': test,
            'val_truth': 'complete',
            'test_truth': 'complete',
            'val_measure': 'mAP',
            'test_measure': 'mAP',
            'run': [f'{loss}-{s}' for s in seeds],
            'exercised': math.nan,
        }
    )
    return MethodLine(
        Row(loss),
        runs,
        *({s: part[s] + rng.normal(0, noise, 50) for s in seeds} for part in (test, val)),
    )


AN = made_up('an', [50.0, 51.0, 50.5], [60.0, 61.0, 60.3])


@pytest.fixture(autouse=True)
def experience(monkeypatch):
    "What six sets of photos taught, made up."
    taught = {
        'methods': {'hml': 3.0, 'em': 2.0, 'an': 0.0},
        'sets': 6,
        'photos': {'50': 2.6},
        'observed': 1.5,
        'observed_map': 4.5,
    }
    monkeypatch.setattr(comparison, 'read_experience', lambda: taught)


def test_validation_chooses_and_the_test_images_only_say_what_it_is_worth():
    em = made_up('em', [52.0, 53.1, 52.4], [63.0, 64.1, 63.2])
    hml = made_up('hml', [48.0, 49.0, 48.5], [69.0, 70.0, 69.5])
    table, said = judge_methods([AN, em, hml])
    assert table.loss.tolist() == ['em', 'an', 'hml'] and said.startswith(
        'Take em: it is the best on validation, 52.5 % mAP against all labels.'
    )
    assert (
        '+3.0 ± ' in said
        and 'points of mAP above an.' in said
        and 'chance' not in said
        and 'are equal' not in said
        and 'spml predict em-1' in said
    )
    own = statistics.holm([em.over(AN).p, hml.over(AN).p])
    assert table.set_index('loss').p[['em', 'hml']].tolist() == pytest.approx(
        own, rel=1e-6
    ) and math.isnan(table.set_index('loss').p['an'])


@pytest.mark.silent('A3')
def test_where_validation_cannot_tell_what_other_photos_taught_decides():
    "The test images, on which AN is far ahead here, have no say."
    em = made_up('em', [52.0, 52.1, 52.4], [50.0, 50.1, 50.2])
    hml = made_up('hml', [51.9, 52.2, 52.3], [55.0, 55.1, 55.2])
    table, said = judge_methods([AN, em, hml])
    assert (
        table.loss[0] == 'em'
        and said.startswith(
            'Take hml: em and hml are equal as far as this can tell, and hml did best on the '
            "project's 6 sets of photos, +3.0 points of mAP over AN (em +2.0).\nOn validation: em "
        )
        and 'spml predict hml-2 ' in said
    )
    assert '+3.0 points of mAP over AN' in said and 'em +2.0' in said and 'below an.' in said
    assert judge_methods([AN, em, made_up('zlpr', [51.9, 52.2, 52.3], [55.0, 55.1, 55.2])])[
        1
    ].startswith('Take em: ')  # nothing is known of ZLPR


@pytest.mark.silent('A3')
def test_without_clean_labels_it_says_what_would_settle_it():
    blind = [
        dataclasses.replace(
            each, runs=each.runs.assign(val_measure='observed AUC', val_truth='observed only')
        )
        for each in (
            AN,
            made_up('em', [52.0, 52.1, 52.4], [60.5, 60.2, 61.0]),
            made_up('hml', [51.9, 52.2, 52.3], [55.0, 55.1, 55.2]),
        )
    ]
    blind = [
        dataclasses.replace(
            each,
            resampled_val={
                seed: values + np.random.default_rng(len(each.row.loss)).normal(0, 9, 50)
                for seed, values in each.resampled_val.items()
            },
        )
        for each in blind
    ]
    said = judge_methods(blind)[1]
    assert (
        'observed AUC against observed labels' in said
        and 'More validation photos would tell' in said
        and '--seeds' not in said
    )
    assert 'lost 2.6 points of mAP' in said and 'all validation photos 1.5.' in said
    decides = next(line for line in said.splitlines() if line.startswith('The score: '))
    assert 'AUC lost 1.5 points' in decides and decides.endswith(' 4.5.')
    assert 'The score: ' not in judge_methods(blind[:1])[1]  # nothing was chosen


NARROW = Naming({'person': 40, 'dog': 1, 'cat': 0}, labels_a_photo=0.8, threshold=0.3)
RICH = Naming({'person': 20, 'dog': 12, 'cat': 9}, labels_a_photo=1.2, threshold=0.3)


def naming(line, *of_seeds, val_measure='observed AUC'):
    "A line whose runs name so much."
    runs = line.runs.assign(val_measure=val_measure)
    if val_measure == 'observed AUC':
        runs = runs.assign(val_truth='observed only')
    return dataclasses.replace(line, runs=runs, naming=dict(enumerate(of_seeds)))


def test_what_the_best_run_names_is_in_the_table_and_told_where_it_is_hardly_a_class():
    em = naming(made_up('em', [52.0, 53.1, 52.4], [63.0, 64.1, 63.2]), RICH, NARROW, RICH)
    an = naming(AN, RICH, RICH, RICH)
    table, said = judge_methods([an, em])
    assert table.set_index('loss').names.to_dict() == {'em': 0.8, 'an': 1.2}
    assert table.set_index('loss').classes.to_dict() == {'em': 2, 'an': 3}
    (line,) = [line for line in said.splitlines() if line.startswith('What it names: ')]
    assert 'person is 98 % of the names, and 1 of 3 classes' in line
    assert said.startswith('Take em: it is the best') and said.endswith('predict em-1 PHOTOS')
    wide = naming(em, RICH, RICH, RICH)
    assert 'What it names' not in judge_methods([an, wide])[1]


@pytest.mark.parametrize('val_measure', ['observed AUC', 'mAP'])
def test_of_methods_that_nothing_tells_apart_one_that_names_many_classes_is_taken(val_measure):
    em = naming(
        made_up('em', [52.0, 50.1, 51.4], [60.5, 60.2, 61.0]),
        *[NARROW] * 3,
        val_measure=val_measure,
    )
    an = naming(AN, RICH, RICH, RICH, val_measure=val_measure)
    said = judge_methods([an, em])[1]
    if val_measure == 'mAP':  # negatives are known: F1 has chosen what is named
        assert said.startswith('Take em: ')
        return
    assert said.startswith('Take an: it names 3 classes on the validation photos, em, equal ')
    assert said.splitlines()[0].endswith(', only 2.') and said.count('\nOn validation: em ') == 1
    assert '`spml calibrate em-0 FOLDER`' in said and said.endswith('predict an-1 PHOTOS')
    alike = naming(AN, NARROW, NARROW, NARROW)
    assert judge_methods([alike, em])[1].startswith('Take em: ')
    below = naming(made_up('an', [20.0, 21.0, 20.5], [60.0, 61.0, 60.3]), RICH, RICH, RICH)
    assert judge_methods([below, em])[1].startswith('Take em: it is the best')
    leading = naming(made_up('em', [51.2, 52.2, 51.7], [60.5, 60.2, 61.0]), *[NARROW] * 3)
    lead = leading.over(an, 'validation')
    assert lead.low > 0 and lead.low < comparison.CLOSE < lead.mean
    said = judge_methods([an, leading])[1]
    assert (
        said.startswith('Take an: it names 3 classes')
        and 'whose lead may be under a point, only 2' in said
    )
    assert f'an {lead.mean:.1f} ± {lead.half_width:.1f} points lower.' in said
    gone = dataclasses.replace(an, naming={})
    table, said = judge_methods([gone, em])
    assert said.startswith('Take em: ') and table.set_index('loss').names.isna()['an']


def test_thresholds_that_differ_much_between_seeds_call_for_labelled_photos_not_for_seeds():
    em = made_up('em', [52.0, 50.1, 51.4], [60.5, 60.2, 61.0])
    low, high = (dataclasses.replace(RICH, threshold=value) for value in (0.168, 0.61))
    an = naming(AN, RICH, RICH, RICH)
    table, said = judge_methods([an, naming(em, low, high, low)])
    assert table.iloc[0][['lowest', 'highest']].tolist() == [0.168, 0.61]
    assert 'from 0.168 to 0.61' in said and 'spml calibrate' in said
    assert '--seeds' not in said and 'To know better: photos labelled in full' in said
    for other in (
        naming(em, RICH, RICH, RICH),  # all the same
        naming(em, dataclasses.replace(low, calibrated=True), high, low),  # labelled photos chose
    ):
        said = judge_methods([an, other])[1]
        assert 'Its threshold' not in said and '--seeds 10' in said
    clean = naming(em, low, high, low, val_measure='mAP')
    assert 'Its threshold' not in judge_methods([naming(AN, RICH, val_measure='mAP'), clean])[1]


@pytest.mark.silent('A3')
def test_a_gain_and_its_doubt_do_not_contradict_each_other():
    """An interval that leaves out 0, and yet as many comparisons bring forth as much by chance:
    both are said as what they are.
    """
    rivals = [
        made_up(loss, [40.0 + k] * 3, [60.0, 61.0, 60.2 + k / 10])
        for k, loss in enumerate(('ls', 'nls', 'dw', 'wan', 'asl', 'gr'))
    ]
    em = made_up('em', [72.0, 72.1, 72.4], [62.5, 66.5, 64.6])
    table, said = judge_methods([AN, *rivals, em])
    alone, adjusted = em.over(AN), table.set_index('loss').p['em']
    assert alone.low > 0 and alone.p < 0.05 < adjusted
    assert ', which may be chance, as 7 methods are compared.' in said


def test_a_difference_that_may_be_chance_is_called_so_with_the_seeds_to_add():
    table, said = judge_methods([AN, made_up('em', [52.0, 50.1, 51.4], [60.5, 60.2, 61.0])])
    assert 'above an, which may be chance.' in said and said.startswith(
        'Take em: em and an are equal as far as this can tell, and em '
    )
    assert 'More seeds would tell: --seeds 10.' in said and table.p[0] > 0.05


def test_methods_that_train_the_same_are_called_so():
    same = [62.0, 62.1, 62.4], [63.0, 64.1, 63.2]
    zlpr = made_up('zlpr', *same)
    _, said = judge_methods([AN, zlpr, dataclasses.replace(zlpr, row=Row('multi_similarity'))])
    assert (
        'Take zlpr' in said
        and 'The same runs here: multi_similarity.' in said
        and 'are equal' not in said
    )  # of equals the first


def test_where_no_label_is_unknown_what_single_labels_taught_does_not_choose():
    em = made_up('em', [52.0, 52.1, 52.4], [63.0, 64.1, 63.2])
    near = made_up('an', [51.9, 52.2, 52.3], [60.0, 61.0, 60.3])
    asl = made_up('asl', [51.9, 52.1, 52.4], [60.0, 61.0, 60.3])
    hml = made_up('hml', [52.0, 52.1, 52.3], [63.0, 64.1, 63.2])
    assert 'Take hml: ' in judge_methods([near, em, hml])[1]
    for lines, taken in (
        ([near, em, hml], 'an'),  # told apart from none
        ([AN, em, hml], 'em'),  # AN is behind
        ([AN, asl, hml], 'asl'),
        ([dataclasses.replace(em, row=Row('hml')), dataclasses.replace(em, row=Row('bce'))], 'bce'),
    ):
        said = judge_methods(lines, complete=True)[1]
        assert said.startswith(f'Take {taken}: ') and 'No training label is unknown' in said
        assert "project's" not in said


def test_scores_as_of_guessing_are_called_so_before_the_recommendation():
    guessing = dataclasses.replace(AN, guess=AN.runs.validation.mean() - 0.5)
    first, second = judge_methods([guessing])[1].splitlines()[:2]
    assert first.startswith('On validation an ') and second.startswith('Only an has finished')
    assert f'{guessing.guess:.1f} %' in judge_methods([guessing])[1]
    one = dataclasses.replace(guessing, runs=guessing.runs.iloc[:1])
    assert judge_methods([one])[1].startswith('On validation an ')
    above = dataclasses.replace(AN, guess=30.0)
    assert 'On validation' not in judge_methods([above])[1]


@pytest.mark.parametrize('empty', ['zero', 'skip'])
def test_the_map_of_guessing_is_that_of_random_scores(empty):
    rng = np.random.default_rng(0)
    targets = np.where(rng.random((12, 4)) < [0.1, 0.3, 0.6, 0], 1, -1)
    targets[0, :3] = 1
    targets[1:4, 1] = 0
    mean = np.mean(
        [
            mean_average_precision(
                rng.random(targets.shape), targets, empty=empty, unknown='ignore'
            )
            for _ in range(4000)
        ]
    )
    assert comparison.guessed_map(targets, empty) == pytest.approx(mean, abs=0.8)


def test_intervals_over_seeds_alone_are_called_so():
    lines = [AN, made_up('em', [52.0, 52.1, 52.4], [63.0, 64.1, 63.2])]
    assert (
        'over seeds alone' not in judge_methods(lines)[1]
        and 'The scores of some runs are gone, so that intervals are over seeds alone.'
        in judge_methods([*lines[:1], dataclasses.replace(lines[1], resampled={})])[1]
    )


def test_where_the_scores_of_some_runs_are_gone_the_others_say_what_the_images_do():
    em = made_up('em', [52.0, 52.1, 52.4], [63.0, 63.1, 62.9], noise=9.0)
    left = dataclasses.replace(em, resampled={1: em.resampled[1]})
    alone = statistics.estimate_effect(
        [3.0, 2.1, 2.6], None, (em.resampled[1] - AN.resampled[1]).std(ddof=1)
    )
    assert (
        left.over(AN).half_width == pytest.approx(alone.half_width)
        and alone.half_width > 10 > dataclasses.replace(em, resampled={}).over(AN).half_width
    )
    assert (
        'over seeds alone' not in judge_methods([AN, left])[1]
        and 'which may be chance' in judge_methods([AN, left])[1]
    )
    assert (
        'over seeds alone'
        in judge_methods([dataclasses.replace(AN, resampled={0: AN.resampled[0]}), left])[1]
    )  # no seed has both


def test_a_mechanism_that_never_acted_is_named():
    idle = made_up('em_apl', [62.0, 62.1, 62.4], [63.0, 64.1, 63.2])
    said = judge_methods(
        [AN, dataclasses.replace(idle, runs=idle.runs.assign(exercised=[0.0, 1.0, 0.0]))]
    )[1]
    assert (
        said.startswith('Take em_apl')
        and "em_apl: in 2 of 3 runs the best epoch came before APL's choice of negatives began."
        in said
        and ' began.' not in judge_methods([AN, idle])[1]
    )


def test_more_seeds_are_advised_only_where_they_would_tell():
    noisy = [
        made_up(name, val, test, noise=9.0)
        for name, val, test in (
            ('an', [51.9, 52.0, 52.1], [60.0] * 3),
            ('em', [52.0, 52.1, 52.2], [60.5] * 3),
        )
    ]
    assert (
        judge_methods(noisy)[1].count('More validation photos would tell, more seeds hardly.') == 1
        and '--seeds' not in judge_methods(noisy)[1]
    )


def test_one_seed_decides_nothing():
    table, said = judge_methods([made_up('an', [50.0], [60.0]), made_up('em', [52.0], [63.0])])
    assert (
        'it is +3.0 points of mAP above an, with one seed, which decides nothing.' in said
        and table.p.isna().all()
        and math.isnan(table.over_half[0])
    )


def only(line, *seeds):
    return MethodLine(line.row, line.runs.loc[list(seeds)], line.resampled, line.resampled_val)


LATE = made_up('an', [50.0, 51.0, 58.0], [60.0, 61.0, 62.0])
LUCKY = made_up('em', [40.0, 55.0, 55.0], [50.0, 64.0, 65.0])


def test_methods_are_compared_on_the_seeds_that_all_share():
    table, said = judge_methods([LATE, only(LUCKY, 2)])
    assert (
        table.loss.tolist() == ['an', 'em']
        and table.seeds.tolist() == [1, 1]
        and table.test.tolist() == [62, 65]
    )  # with its seeds alone EM would be first
    assert 'with one seed, which decides nothing' in said and said.splitlines()[-2:] == [
        'em: 1 of 3 seeds (the others diverged or are not done).',
        'All numbers are of the seeds that the methods share: 1 of 3.',
    ]
    table, said = judge_methods([LATE, only(LUCKY, 2, 1), made_up('hml', [], [])], 5)
    assert (
        table.equals(judge_methods([only(LATE, 1, 2), only(LUCKY, 1, 2)])[0])
        and said.startswith('Take em: em and an are equal')
        and 'em 55.0 %' in said
        and said.endswith('Not through: hml.')
    )
    assert (
        'an: 3 of 5 seeds' in said
        and 'em: 2 of 5 seeds' in said
        and 'share: 2 of 5' in said
        and 'decides nothing' not in said
    )
    table, said = judge_methods([only(LATE, 0), made_up('em', [52.0] * 3, [62.0, 63.0, 64.0])])
    assert (
        'it is +2.0 points of mAP above an, with one seed, which decides nothing.' in said
        and 'an: 1 of 3 seeds' in said
        and 'nan' not in said
    )
    assert 'of 3 seeds' not in judge_methods([LATE, LUCKY], 3)[1]


def test_without_a_common_seed_nothing_is_advised():
    table, said = judge_methods([only(LATE, 0, 1), only(LUCKY, 2)], 3)
    assert not len(table) and said.splitlines() == [
        'No seed is done with every method, so nothing is advised.',
        *(
            f'{name} seeds (the others diverged or are not done).'
            for name in ('an: 2 of 3', 'em: 1 of 3')
        ),
    ]


def test_a_run_that_diverged_counts_for_no_seed(photo_folder):
    configs = [
        Config(loss='an', dataset=str(photo_folder), backbone='mini', device='cpu', seed=seed)
        for seed in range(2)
    ]
    names = {'val_truth': 'complete', 'test_truth': 'complete', 'val_map_seen': math.nan}
    known = pd.DataFrame(
        [
            names | {'run': 'a', 'val_map': 50.0, 'test_map': 60.0},
            names | {'run': 'b', 'val_map': 0.0, 'diverged': 1},
        ],
        index=[sweeps.key(c) for c in configs],
    )
    said = judge_methods(
        [score_method_line(Row('an'), configs, known, np.zeros((1, 2)), np.ones((2, 2)))], 2
    )[1]
    assert (
        said.splitlines()[0].endswith('50.0 % mAP against all labels.')
        and 'one seed decides nothing' in said
        and 'an: 1 of 2 seeds' in said
    )


def test_one_seed_decides_nothing_where_the_base_is_the_best():
    said = judge_methods([made_up('an', [53.0], [60.0]), made_up('ls', [52.0], [63.0])])[1]
    assert said.startswith('Take an: ') and 'one seed decides nothing.' in said
    assert (
        'decides nothing'
        not in judge_methods([AN, made_up('em', [42.0] * 3, [63.0, 64.1, 63.2])])[1]
    )


def test_a_rival_is_said_to_be_lower_without_a_sign():
    em = made_up('em', [20.0, 42.0, 65.0], [40.0] * 3)
    table, said = judge_methods([AN, em])
    rival = em.over(AN, 'validation')
    assert (
        table.loss[0] == 'an'
        and rival.mean < -8
        and f'; em {-rival.mean:.1f} ± {rival.half_width:.1f} points lower.' in said
    )


def test_a_title_of_any_length_fits_the_picture():
    table = judge_methods([AN, made_up('em', [52.0, 52.1, 52.4], [63.0, 64.1, 63.2])])[0]
    title = 'photos, test observed AUC against observed labels (unknown ones as negatives), 3 seeds'
    for given in (title, f'{title}, 95 % intervals', 'x' * 300):
        with style.context(['default', STYLE]):
            figure = comparison._picture(table, given)
            renderer = FigureCanvasAgg(figure).get_renderer()
            figure.draw(renderer)
            box, whole = figure._suptitle.get_window_extent(renderer), figure.bbox
        assert box.x0 >= 0 and box.x1 <= whole.width and box.y1 <= whole.height
        assert all(ax.bbox.y1 <= box.y0 for ax in figure.axes)


def test_a_run_of_a_folder_with_a_space_is_quoted():
    lone = made_up('an', [50.0], [60.0])
    lone.runs['run'] = 'an-my photos-f6a0'
    assert shlex.split(judge_methods([lone])[1])[-4:] == [
        'spml',
        'predict',
        'an-my photos-f6a0',
        'PHOTOS',
    ]


def test_without_an_the_first_method_is_what_the_others_are_compared_with():
    table, said = judge_methods(
        [
            made_up('em', [52.0] * 3, [63.0, 63.1, 63.2]),
            made_up('hml', [53.0] * 3, [65.0, 65.1, 65.0]),
        ]
    )
    assert (
        'points of mAP above em' in said
        and table.over[1] == 0
        and b'over em' in comparison.draw_comparison(table, 'two')
    )
    assert judge_methods([made_up('em', [52.0], [63.0]), AN])[1].startswith(
        'Take em'
    ) and judge_methods([AN])[1].startswith(
        'Only an has finished, so there is nothing to compare: on validation, 50.5 % mAP'
    )


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
    assert seconds(first) == seconds(runs) + 40 and '40 s of it for the features' in first
    unknown = comparison.describe_time_left(short, 2, math.nan)
    assert seconds(unknown) == seconds(runs) and 'once the features of all photos' in unknown
    assert seconds(comparison.describe_time_left(left, 1)) == 5 * 60
    nothing = comparison.describe_time_left(left.assign(expected=math.nan), 1)
    assert nothing.endswith('said after the first one.')


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
        finals = sweeps.finals(
            Row(loss, labels='full'), 'photos', str(folder), sweeps.finished(), range(2)
        )
        logits = [
            read_result(Run(sweeps.canonical_config(config))).logits['test'] for config in finals
        ]
        reached[loss] = np.mean(
            [mean_average_precision(scores, true[800:, columns], empty='skip') for scores in logits]
        )
    assert reached[taken] >= max(reached.values()) - 1, (taken, reached)
