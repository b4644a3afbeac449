"""What to take of several methods, on made-up scores: paired intervals, and sentences that do not
claim more.
"""

import dataclasses
import math
import shlex

import numpy as np
import pandas as pd
import pytest

from spml_nb import statistics, sweeps
from spml_nb.metrics import mean_average_precision
from spml_nb.runs.config import Config
from spml_nb.sweeps.search import Row
from spml_nb.use import recommendation
from spml_nb.use.recommendation import MethodResult, Naming, judge_methods, read_method_result
from spml_nb.use.scoring import bootstrap_deviations


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
            read_method_result(
                Row(loss),
                [given],
                pd.DataFrame([scores | names], index=[sweeps.run_key(given)]),
                np.ones((2, 2)),
            )
        )
    table, said = judge_methods(lines)
    assert (
        table.loss.tolist() == ['an', 'em']
        and table.validation.tolist() == [70, 60]
        and said.startswith('Take an: it is the best on validation, 70.0 %')
    )


def test_the_best_on_validation_may_be_below_and_who_is_not_through_is_named():
    table, said = judge_methods(
        [AN, made_up('em', [52.0, 52.1, 52.4], [50.0, 51.1, 50.2]), made_up('hml', [], [])]
    )
    assert (
        'it is 10.0 ± ' in said
        and ' points of mAP below an.' in said
        and said.endswith('\nNot finished: hml.')
        and len(table) == 2
    )


def made_up(loss, val, test, noise=0.3):
    "A method with these scores by seed."
    seeds = range(len(test))
    rng = np.random.default_rng(len(loss) + round(100 * sum(val)))  # other noise for each method
    runs = pd.DataFrame(
        {
            'validation': val,
            'test': test,
            'val_truth': 'complete',
            'test_truth': 'complete',
            'val_measure': 'mAP',
            'test_measure': 'mAP',
            'run': [f'{loss}-{seed}' for seed in seeds],
            'exercised': math.nan,
        }
    )
    resampled = {
        part: {seed: scores[seed] + rng.normal(0, noise, 50) for seed in seeds}
        for part, scores in (('test', test), ('validation', val))
    }
    return MethodResult(Row(loss), runs, resampled)


def keep_test_samples(method, *seeds):
    "The method, with test logits on disk for these seeds alone."
    samples = {seed: method.resampled['test'][seed] for seed in seeds}
    return dataclasses.replace(method, resampled=method.resampled | {'test': samples})


AN = made_up('an', [50.0, 51.0, 50.5], [60.0, 61.0, 60.3])


@pytest.fixture(autouse=True)
def experience(monkeypatch):
    "What six sets of photos taught, made up."
    taught = {
        'methods': {'hml': 3.0, 'em': 2.0, 'an': 0.0},
        'sets': 6,
        'spread': 1.1,
        'photos': {'50': 2.6},
        'observed': 1.5,
        'observed_map': 4.5,
    }
    monkeypatch.setattr(recommendation, 'read_experience', lambda: taught)


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
        and 'apart' not in said
        and 'spml predict em-1' in said
    )
    own = statistics.holm([em.estimate_gain(AN, 'test').p, hml.estimate_gain(AN, 'test').p])
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
            'Take hml: validation cannot tell em and hml apart, and hml did best on the '
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
            resampled=each.resampled
            | {
                'validation': {
                    seed: values + np.random.default_rng(len(each.row.loss)).normal(0, 9, 50)
                    for seed, values in each.resampled['validation'].items()
                }
            },
        )
        for each in blind
    ]
    said = judge_methods(blind)[1]
    assert (
        'observed AUC against observed labels' in said
        and 'add validation photos' in said
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
    assert said.startswith('Take an: it names 3 classes on the validation photos; em, which ')
    assert (
        said.splitlines()[0].endswith(' names only 2.') and said.count('\nOn validation: em ') == 1
    )
    assert '`spml calibrate em-0 FOLDER`' in said and said.endswith('predict an-1 PHOTOS')
    alike = naming(AN, NARROW, NARROW, NARROW)
    assert judge_methods([alike, em])[1].startswith('Take em: ')
    below = naming(made_up('an', [20.0, 21.0, 20.5], [60.0, 61.0, 60.3]), RICH, RICH, RICH)
    assert judge_methods([below, em])[1].startswith('Take em: it is the best')
    leading = naming(made_up('em', [51.2, 52.2, 51.7], [60.5, 60.2, 61.0]), *[NARROW] * 3)
    lead = leading.estimate_gain(an, 'validation')
    assert lead.low > 0 and lead.low < recommendation.NEGLIGIBLE < lead.mean
    said = judge_methods([an, leading])[1]
    assert (
        said.startswith('Take an: it names 3 classes')
        and 'whose lead may be under a point, names only 2' in said
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
    assert '--seeds' not in said and 'To be surer: label photos in full' in said
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
    alone, adjusted = em.estimate_gain(AN, 'test'), table.set_index('loss').p['em']
    assert alone.low > 0 and alone.p < 0.05 < adjusted
    assert ', which may be chance, as 7 methods are compared.' in said


def test_a_difference_that_may_be_chance_is_called_so_with_the_seeds_to_add():
    table, said = judge_methods([AN, made_up('em', [52.0, 50.1, 51.4], [60.5, 60.2, 61.0])])
    assert 'above an, which may be chance.' in said and said.startswith(
        'Take em: validation cannot tell em and an apart, and em '
    )
    assert 'train more seeds (--seeds 10).' in said and table.p[0] > 0.05


def test_methods_that_train_the_same_are_called_so():
    same = [62.0, 62.1, 62.4], [63.0, 64.1, 63.2]
    zlpr = made_up('zlpr', *same)
    _, said = judge_methods([AN, zlpr, dataclasses.replace(zlpr, row=Row('multi_similarity'))])
    assert (
        'Take zlpr' in said
        and 'Same runs as zlpr here: multi_similarity.' in said
        and 'apart' not in said
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
    assert recommendation.estimate_guessing_map(targets, empty) == pytest.approx(mean, abs=0.8)


def test_intervals_over_seeds_alone_are_called_so():
    lines = [AN, made_up('em', [52.0, 52.1, 52.4], [63.0, 64.1, 63.2])]
    assert (
        'over seeds alone' not in judge_methods(lines)[1]
        and 'over seeds alone' in judge_methods([AN, keep_test_samples(lines[1])])[1]
    )


def test_where_the_scores_of_some_runs_are_gone_the_others_say_what_the_images_do():
    em = made_up('em', [52.0, 52.1, 52.4], [63.0, 63.1, 62.9], noise=9.0)
    left = keep_test_samples(em, 1)
    alone = statistics.estimate_effect(
        [3.0, 2.1, 2.6], None, (em.resampled['test'][1] - AN.resampled['test'][1]).std(ddof=1)
    )
    assert (
        left.estimate_gain(AN, 'test').half_width == pytest.approx(alone.half_width)
        and alone.half_width > 10 > keep_test_samples(em).estimate_gain(AN, 'test').half_width
    )
    assert (
        'over seeds alone' not in judge_methods([AN, left])[1]
        and 'which may be chance' in judge_methods([AN, left])[1]
    )
    assert (
        'over seeds alone' in judge_methods([keep_test_samples(AN, 0), left])[1]
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
        judge_methods(noisy)[1].count('add validation photos; more seeds would hardly help.') == 1
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
    return dataclasses.replace(line, runs=line.runs.loc[list(seeds)])


def without_samples(line):
    return dataclasses.replace(line, resampled={'validation': {}, 'test': {}})


BEHIND = {'an': 60.0, 'em': 62.0, 'hml': 30.0}


@pytest.mark.silent('A3')
@pytest.mark.parametrize('lost', [False, True])
def test_with_one_seed_a_method_far_behind_is_not_taken_for_an_equal(lost):
    methods = [made_up(loss, [val] * 3, [val] * 3) for loss, val in BEHIND.items()]
    methods = [without_samples(each) for each in methods] if lost else methods
    for of_one in ([only(each, 0) for each in methods], [*methods[:2], only(methods[2], 1)]):
        said = judge_methods(of_one)[1]
        assert said.startswith('Take em: it is the best on validation, 62.0 %')
        assert 'one seed, which decides nothing' in said
        assert 'To be surer: train more seeds (--seeds 3 or more).' in said
        assert 'hardly help' not in said and 'nan' not in said


def test_with_one_seed_the_photos_alone_say_which_methods_are_near():
    em, hml = made_up('em', [52.0], [63.0]), made_up('hml', [51.9], [62.0])
    said = judge_methods([only(AN, 0), em, hml])[1]
    gap = hml.resampled['validation'][0] - em.resampled['validation'][0]
    half = 1.96 * gap.std(ddof=1)
    assert said.startswith('Take hml: validation cannot tell em and hml apart')
    assert f'hml 0.1 ± {half:.1f} points lower (± over photos alone, as there is one seed).' in said
    assert 'To be surer: train more seeds (--seeds 3 or more).' in said
    gone = judge_methods([*map(without_samples, (only(AN, 0), em, hml))])[1]
    assert gone.startswith('Take em: it is the best on validation')


def test_the_same_run_of_one_seed_is_called_so_and_is_not_what_others_are_compared_with():
    an, em = only(AN, 0), made_up('em', [42.0], [63.0])
    table, said = judge_methods([dataclasses.replace(an, row=Row('bce')), an, em])
    assert 'Same runs as bce here: an.' in said and 'apart' not in said
    base = table.set_index('loss').loc['an']
    assert base[['over', 'over_half']].tolist() == [0, 0] and math.isnan(base.p)
    assert table.over_half.isna().tolist() == (table.loss != 'an').tolist()


@pytest.mark.silent('A3')
def test_a_gain_on_other_photos_does_not_outweigh_a_larger_deficit_here():
    em = made_up('em', [68.0, 68.4, 67.6], [63.0, 63.1, 63.2])
    hml = made_up('hml', [58.7, 61.7, 64.7], [62.0, 62.1, 62.2])
    gap = hml.estimate_gain(em, 'validation')
    assert gap.mean == pytest.approx(-6.3) and gap.high > 0  # not significant, and yet no tie
    said = judge_methods([AN, em, hml])[1]
    assert said.splitlines()[0] == (
        'Take em: validation cannot tell em and hml apart for sure, and the 6.3 points by which '
        "em leads count for more than the 1.0 that hml did better on the project's 6 sets of "
        'photos.'
    )
    said = judge_methods([dataclasses.replace(hml, row=Row('an')), em], complete=True)[1]
    assert said.startswith('Take em: ')  # the plain loss is not as good
    zlpr = dataclasses.replace(hml, row=Row('zlpr'))  # of which nothing is known
    assert judge_methods([AN, em, zlpr])[1].startswith('Take em: ')


def test_a_measured_gain_is_weighed_by_the_precision_of_both():
    gap = statistics.estimate_effect([-0.4, -0.6, -0.5], image_error=1.0)
    precision = np.array([1 / gap.error**2, 1 / 1.1**2])
    expected = recommendation._expect_lead(gap, 0.8)
    assert expected == pytest.approx(np.average([-0.5, 0.8], weights=precision))
    assert recommendation._expect_lead(gap, 0.4) == gap.mean  # the deficit is larger
    assert recommendation._expect_lead(gap, -1.0) == gap.mean


def test_observed_auc_is_said_to_be_against_observed_labels_though_some_are_known():
    given = Config(loss='an', dataset='mini_voc', backbone='mini', device='cpu')
    scores = {
        'val_map': 50.0,
        'test_map': 60.0,
        'observed_val_auc': 70.0,
        'val_truth': 'partly known',
        'test_truth': 'complete',
        'selected_by': 'observed_auc',
        'run': 'r',
    }
    known = pd.DataFrame([scores], index=[sweeps.run_key(given)])
    method = read_method_result(Row('an'), [given], known, np.ones((2, 2)))
    said = judge_methods([method])[1]
    assert '70.0 % observed AUC against observed labels (unknown ones as negatives)' in said


def test_with_one_seed_a_method_far_behind_is_not_taken_for_naming_more():
    em = naming(made_up('em', [52.0], [60.0]), NARROW)
    an = naming(made_up('an', [20.0], [60.0]), RICH)
    for lines in ([an, em], [*map(without_samples, (an, em))]):
        assert judge_methods(lines)[1].startswith('Take em: ')


LATE = made_up('an', [50.0, 51.0, 58.0], [60.0, 61.0, 62.0])
LUCKY = made_up('em', [40.0, 55.0, 55.0], [50.0, 64.0, 65.0])


def test_methods_are_compared_on_the_seeds_that_all_share():
    table, said = judge_methods([LATE, only(LUCKY, 2)])
    assert (
        table.loss.tolist() == ['an', 'em']
        and table.seeds.tolist() == [1, 1]
        and table.test.tolist() == [62, 65]
    )  # with its seeds alone EM would be first
    assert 'one seed decides nothing' in said and said.splitlines()[-2:] == [
        'em: 1 of 3 seeds (the others diverged or have not finished).',
        'All numbers use only the seeds that every method has: 1 of 3.',
    ]
    table, said = judge_methods([LATE, only(LUCKY, 2, 1), made_up('hml', [], [])], 5)
    assert (
        table.equals(judge_methods([only(LATE, 1, 2), only(LUCKY, 1, 2)])[0])
        and said.startswith('Take em: validation cannot tell em and an apart')
        and 'em 55.0 %' in said
        and said.endswith('Not finished: hml.')
    )
    assert (
        'an: 3 of 5 seeds' in said
        and 'em: 2 of 5 seeds' in said
        and 'has: 2 of 5' in said
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
        'No seed has finished for every method, so nothing is recommended yet.',
        *(
            f'{name} seeds (the others diverged or have not finished).'
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
        index=[sweeps.run_key(c) for c in configs],
    )
    said = judge_methods([read_method_result(Row('an'), configs, known, np.ones((2, 2)))], 2)[1]
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
    rival = em.estimate_gain(AN, 'validation')
    assert (
        table.loss[0] == 'an'
        and rival.mean < -8
        and f'; em {-rival.mean:.1f} ± {rival.half_width:.1f} points lower.' in said
    )


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
    assert 'points of mAP above em' in said and table.over[1] == 0
    assert judge_methods([made_up('em', [52.0], [63.0]), AN])[1].startswith(
        'Take em'
    ) and judge_methods([AN])[1].startswith(
        'Only an has finished, so there is nothing to compare: on validation, 50.5 % mAP'
    )


@pytest.mark.parametrize('by_auc', [False, True])
def test_scores_are_resampled_by_groups_of_photos(by_auc):
    "Of 8 groups of 5 equal photos, each counts as one photo, and few of them spread wider."
    rng = np.random.default_rng(0)
    targets = np.where(rng.random((8, 3)) < 0.5, 1, -1)
    scores = rng.normal(size=(8, 3)) + targets
    groups = np.repeat(np.arange(8), 5)
    one = recommendation._resample(scores, targets, by_auc, 'skip')
    many = scores[groups], targets[groups], by_auc, 'skip'
    five = recommendation._resample(*many, groups)
    assert five.std() == pytest.approx(one.std() * bootstrap_deviations(8) / 1.959964)
    assert recommendation._resample(*many).std() < 0.6 * one.std()
    single = recommendation._resample(*many, np.zeros(40, int))
    assert np.ptp(single) < 1e-9
