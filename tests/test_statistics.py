"""What may be said of a difference: intervals that cover, words that are seldom wrong, and errors
for what does not belong together.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from spml_nb.base.errors import SpmlError
from spml_nb.metrics import mean_average_precision
from spml_nb.statistics import (
    EQUIVALENCE_MARGIN,
    IMAGE_SD,
    Effect,
    Scores,
    Size,
    Verdict,
    classify_size,
    decide_by_effects,
    default_image_error,
    describe_decision,
    estimate_effect,
    estimate_paired_effect,
    format_number,
    holm,
    image_draws,
    pool_effects,
    rank_correlation,
    resampled_auc,
    resampled_map,
)

SEEDS_SD, TEST_SD = 0.56, 0.75  # EM over AN on mini_voc, heads on frozen features, ten seeds


def invented(random, gain, seeds, places=4):
    """Effects of one invented table: the chance of the test images is shared by the seeds of a
    place.
    """
    for _ in range(places):
        d = gain + random.normal(0, TEST_SD) + random.normal(0, SEEDS_SD, seeds)
        yield estimate_effect(d, d[:, None] + random.normal(0, TEST_SD, 100))


@pytest.mark.parametrize('seeds', [3, 10])
def test_words_are_seldom_wrong_and_intervals_cover(seeds):
    random, words, covered = np.random.RandomState(seeds), [], []
    for _ in range(1000):
        effects = list(invented(random, 0, seeds))
        words.append(decide_by_effects(effects).verdict)
        covered += [each.low <= 0 <= each.high for each in effects]
    assert words.count(Verdict.REPRODUCED) <= 50 and words.count(Verdict.NOT_REPRODUCED) <= 50
    assert 0.93 <= np.mean(covered) <= 0.97


def test_a_gain_of_two_points_is_found():
    random = np.random.RandomState(0)
    assert (
        sum(
            decide_by_effects(list(invented(random, 2, 3))).verdict == Verdict.REPRODUCED
            for _ in range(100)
        )
        > 90
    )


def test_without_the_chance_of_the_test_images_intervals_are_too_narrow():
    "What would be wrong with seeds alone, so that the test above can fail."
    random, covered = np.random.RandomState(1), []
    for _ in range(500):
        d = random.normal(0, TEST_SD) + random.normal(0, SEEDS_SD, 10)
        alone = estimate_effect(d)
        covered.append(alone.low <= 0 <= alone.high)
    assert np.mean(covered) < 0.7


def test_one_seed_decides_nothing():
    alone = estimate_effect([3.0])
    assert alone.mean == 3 and np.isnan([alone.low, alone.high, alone.p, alone.detectable]).all()
    both = decide_by_effects([alone, estimate_effect([2.0, 2.1, 1.9])])
    assert both.verdicts == (Verdict.UNDECIDED, Verdict.REPRODUCED) and both.means[
        ''
    ].mean == pytest.approx(2)
    assert (
        decide_by_effects([alone]).verdict == Verdict.UNDECIDED
        and decide_by_effects([alone]).means == {}
    )
    with pytest.raises(SpmlError, match='no effects to pool'):
        pool_effects([])


UP, DOWN, NONE, WIDE = [2.0, 2.1, 1.9], [-2.0, -2.1, -1.9], [0.1, 0.0, -0.1], [3.0, -2.0, 1.0]


@pytest.mark.parametrize(
    ('place', 'word'),
    [
        ({'a': UP, 'b': UP}, Verdict.REPRODUCED),
        ({'a': UP, 'b': DOWN}, Verdict.NOT_REPRODUCED),
        ({'a': NONE, 'b': NONE}, Verdict.NO_DIFFERENCE),
        ({'a': UP, 'b': WIDE}, Verdict.UNDECIDED),
        ({'a': UP, 'b': [1.0]}, Verdict.UNDECIDED),
        ({'a': UP, 'b': None}, Verdict.NOT_RUN),
        ({'a': None}, Verdict.NOT_RUN),
        ({'a': DOWN, 'b': None}, Verdict.NOT_REPRODUCED),
    ],
)
def test_a_place_is_as_good_as_all_of_its_comparisons(place, word):
    decision = decide_by_effects([{name: d and estimate_effect(d) for name, d in place.items()}])
    assert decision.verdicts == (word,) and decision.verdict == word


@pytest.mark.parametrize(
    ('words', 'pooled', 'text'),
    [
        ((Verdict.REPRODUCED,) * 4, 4, 'on the mean of 4 of 4 places; 4 decide alone'),
        (
            (Verdict.REPRODUCED, Verdict.UNDECIDED),
            1,
            'on the least favourable of 2 of 2 places; 1 decides alone (1 reproduced)',
        ),
        (
            (Verdict.REPRODUCED, Verdict.NOT_RUN, Verdict.NOT_RUN),
            1,
            'on 1 of 3 places; 1 decides alone',
        ),
        (
            (Verdict.REPRODUCED,) * 4,
            2,
            'on the least favourable mean, of 2 of 4 places; 4 decide alone',
        ),
        ((Verdict.UNDECIDED,), 1, 'on 1 of 1 place'),
        ((Verdict.UNDECIDED,), 0, 'on 0 of 1 place with more than one seed'),
    ],
)
def test_it_is_said_of_how_many_places_the_number_is(words, pooled, text):
    assert (
        describe_decision(
            Verdict.UNDECIDED if '(' in text else Verdict.REPRODUCED,
            words,
            pooled,
            len(words) - words.count(Verdict.NOT_RUN),
        )
        == text
    )


def test_a_place_with_one_seed_is_not_counted_among_those_behind_a_number():
    decision = decide_by_effects([{'a': estimate_effect(UP)}, {'b': estimate_effect([1.0])}])
    assert (
        decision.tested == 1
        and describe_decision(decision.verdict, decision.verdicts, 1, decision.tested)
        == 'on 1 of 2 places; 1 decides alone (1 reproduced)'
    )


def test_a_comparison_of_one_place_refutes_a_claim_only_with_that_place():
    wide, down, weak = (
        estimate_effect(WIDE),
        estimate_effect([-1.0, -1.25, -0.75]),
        estimate_effect([-1.0, -1.3, -0.6]),
    )
    decision = decide_by_effects([{'a': wide, 'b': down}, {'a': wide}, {'a': wide}])
    assert (
        2 * down.p < 0.05
        and decision.counts == {'a': 3, 'b': 1}
        and set(decision.verdicts) == {Verdict.UNDECIDED}
        and decision.verdict == Verdict.UNDECIDED
    )
    alone = decide_by_effects(
        [{'a': wide, 'b': estimate_effect([-9.0, -9.1, -8.9])}, {'a': wide}, {'a': wide}]
    )
    assert alone.verdicts[0] == alone.verdict == Verdict.NOT_REPRODUCED
    several = decide_by_effects([{'a': wide, 'b': weak}] * 3)  # a mean of three places is one
    assert (
        several.counts['b'] == 3
        and set(several.verdicts) == {Verdict.UNDECIDED}
        and several.verdict == Verdict.NOT_REPRODUCED
    )


def test_places_that_contradict_each_other_leave_a_claim_undecided():
    up, down = estimate_effect([9.0, 9.1, 8.9]), estimate_effect(DOWN)
    assert (
        decide_by_effects([up, down]).verdicts == (Verdict.REPRODUCED, Verdict.NOT_REPRODUCED)
        and decide_by_effects([up, down]).verdict == Verdict.UNDECIDED
        and decide_by_effects([up, estimate_effect(WIDE)]).verdict == Verdict.REPRODUCED
    )
    small = (
        estimate_effect([0.6, 0.62, 0.58]),
        estimate_effect([-0.6, -0.62, -0.58]),
    )  # their mean is 0, and neither is
    assert (
        decide_by_effects(small).means[''].equivalent < 0.05
        and decide_by_effects(small).verdicts == (Verdict.REPRODUCED, Verdict.NOT_REPRODUCED)
        and decide_by_effects(small).verdict == Verdict.UNDECIDED
    )


def test_a_bound_of_ones_own_leaves_no_difference_unsaid():
    assert (
        decide_by_effects([estimate_effect(NONE)]).verdict == Verdict.NO_DIFFERENCE
        and decide_by_effects([estimate_effect(NONE)], margin=False).verdict == Verdict.UNDECIDED
    )


def test_more_places_need_more():
    one = estimate_effect([1.0, 1.3, 0.7])
    assert (
        0.01 < one.p < 0.05
        and decide_by_effects([one]).verdicts == (Verdict.REPRODUCED,)
        and decide_by_effects([one] + [estimate_effect(WIDE)] * 6).verdicts[0] == Verdict.UNDECIDED
    )


def test_the_chance_of_the_test_images_is_counted_where_only_scores_are_known():
    d = [1.0, 1.2, 0.8]
    alone, counted = estimate_effect(d), estimate_effect(d, None, 0.7)
    assert (
        np.isfinite(estimate_effect([1.1, 1.1, 1.1 + 1e-15], None, 0.7).low)
        and isinstance(counted, Effect)
        and counted.error == pytest.approx((alone.error**2 + 0.49) ** 0.5)
    )
    assert default_image_error('mini_voc') == IMAGE_SD['mini_voc'] and default_image_error(
        'my own photos'
    ) == max(IMAGE_SD.values())
    assert (
        default_image_error('coco18', 'mAP@sample')
        == 0.5
        == default_image_error('my own photos', 'mAP@sample')
        < default_image_error('coco18', 'mAP@class')
        == IMAGE_SD['coco18']
    )
    a, b = (Scores(pd.Series(each), '') for each in (d, [0.0] * 3))
    assert (
        estimate_paired_effect(a, b, default_image_error('coco18', 'mAP@sample')).error
        < estimate_paired_effect(a, b, default_image_error('coco18')).error
    )


def test_equal_differences_have_no_width():
    same = estimate_effect([1.0, 1.0, 1.0])
    assert (same.low, same.high, same.p, same.equivalent) == (1, 1, 0, 1) and estimate_effect(
        [0.0, 0.0]
    ).equivalent == 0
    assert EQUIVALENCE_MARGIN == 0.5


def test_holm_is_monotone_and_never_above_one():
    assert (
        holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
        and holm([0.9, 0.8]).max() == 1
    )


def test_pooling_independent_places_narrows_the_interval():
    places = [estimate_effect([2.0, 1.0, 3.0]), estimate_effect([1.5, 2.5, 2.0])]
    assert (
        pool_effects(places).half_width < max(each.half_width for each in places)
        and pool_effects(places).mean == 2
    )


def test_draws_repeat_and_weights_equal_copies():
    draws = image_draws(30, 4)
    assert np.array_equal(draws, image_draws(30, 4)) and (draws.sum(1) == 30).all()
    random = np.random.RandomState(2)
    scores, targets = random.normal(size=(30, 2)), random.choice([-1, 1], (30, 2))
    assert resampled_map(scores, targets, draws)[1] == pytest.approx(
        mean_average_precision(scores.repeat(draws[1], 0), targets.repeat(draws[1], 0))
    )


@pytest.mark.parametrize(
    ('wrong', 'told'),
    [
        (lambda: estimate_effect([]), 'no differences'),
        (lambda: estimate_effect([1.0, 2.0], np.zeros((3, 5))), '2 differences and 3 rows'),
        (
            lambda: resampled_map(np.zeros((3, 1)), np.ones((2, 1)), np.ones((1, 3), int)),
            'must be of the same images',
        ),
    ],
)
def test_what_does_not_belong_together_is_refused(wrong, told):
    with pytest.raises(SpmlError, match=told):
        wrong()


def test_ranks_of_one_table_agree_and_two_rows_say_nothing():
    table = np.array([[1.0, 5], [2, 6], [3, 4], [np.nan, 9]])
    assert rank_correlation(table, table, 50)[0] == 1 and np.isnan(
        rank_correlation(table[:2], table[:2], 50)[0]
    )


def test_the_resampled_auc_is_that_of_repeated_images():
    random = np.random.default_rng(0)
    scores = random.integers(0, 8, (40, 3)).astype(float)
    targets = random.choice([-1, 0, 1], (40, 3))
    draws = image_draws(40, 5)
    for drawn, value in zip(draws, resampled_auc(scores, targets, draws), strict=True):
        rows = np.repeat(np.arange(40), drawn)
        areas = [
            roc_auc_score(
                targets[rows, c][targets[rows, c] != 0], scores[rows, c][targets[rows, c] != 0]
            )
            for c in range(3)
        ]
        assert value == pytest.approx(100 * np.mean(areas))
    assert (
        resampled_auc(scores, np.ones_like(targets), draws).tolist() == [50] * 5
    )  # nothing to part


@pytest.mark.silent('C11')
@pytest.mark.parametrize(
    ('value', 'form', 'text'),
    [
        (-0.04, '.1f', '0.0'),
        (-1e-9, '.2f', '0.00'),
        (-0.0, '.0f', '0'),
        (-0.06, '.1f', '-0.1'),
        (-10, '.0f', '-10'),
    ],
)
def test_zero_has_no_minus(value, form, text):
    assert format_number(value, form) == text


@pytest.mark.parametrize(
    ('differences', 'expected'),
    [
        ([0.2, 0.22, 0.18], Verdict.NO_DIFFERENCE),  # surely above 0, and surely below the bound
        ([-0.2, -0.22, -0.18], Verdict.NO_DIFFERENCE),
        ([0.48, 0.5, 0.52], Verdict.REPRODUCED),  # perhaps above the bound
        ([0.8, 0.82, 0.78], Verdict.REPRODUCED),
    ],
)
def test_a_sign_needs_a_size_for_its_word(differences, expected):
    one = estimate_effect(differences)
    assert one.p < 0.05 and decide_by_effects([one]).verdict == expected
    signed = Verdict.REPRODUCED if one.mean > 0 else Verdict.NOT_REPRODUCED
    assert decide_by_effects([one], margin=False).verdict == signed


def test_a_claim_against_many_is_as_little_as_its_least():
    large, little, open_ = (
        estimate_effect([5.0, 5.2, 5.1]),
        estimate_effect([0.2, 0.22, 0.18]),
        estimate_effect(WIDE),
    )
    assert decide_by_effects([{'a': large, 'b': little}]).verdict == Verdict.NO_DIFFERENCE
    assert decide_by_effects([{'a': large, 'b': open_}]).verdict == Verdict.UNDECIDED
    assert decide_by_effects([{'a': large, 'b': little, 'c': None}]).verdict == Verdict.NOT_RUN


def test_a_decision_is_on_average_where_no_place_is_decided_alone():
    weak = estimate_effect([1.5, 1.8, 1.0])
    assert (
        decide_by_effects([weak] * 3).on_average
        and decide_by_effects([weak] * 3).verdict == Verdict.REPRODUCED
    )
    assert not decide_by_effects([weak, weak, estimate_effect([5.0, 5.2, 5.1])]).on_average
    assert not decide_by_effects([estimate_effect(WIDE)] * 2).on_average  # undecided


@pytest.mark.parametrize(
    ('published', 'mixed', 'expected'),
    [
        (1.0, False, Size.AS_LARGE),
        (9.0, False, Size.SMALLER),
        (-9.0, False, Size.LARGER),
        (9.0, True, Size.MIXED),
        (np.nan, True, Size.NOT_PRINTED),
    ],
)
def test_a_size_is_where_the_published_effect_lies(published, mixed, expected):
    ours = estimate_effect([1.0, 1.3, 0.7])
    assert classify_size(ours, published, mixed) is expected
    at_the_end = {ours.low: Size.AS_LARGE, ours.high: Size.AS_LARGE}
    assert {end: classify_size(ours, end) for end in at_the_end} == at_the_end


def test_nothing_has_no_size():
    assert (
        classify_size(None, 1.0) is classify_size(estimate_effect([1.0]), 1.0) is Size.NOT_MEASURED
    )
