"What may be said of a difference: intervals that cover, words that are seldom wrong, and errors for what does not belong together."
import numpy as np
import pytest

from spml_nb.base.errors import SpmlError
from spml_nb.metrics import mean_average_precision
from spml_nb.replication.statistics import (
    MARGIN,
    WORDS,
    decide,
    effect,
    holm,
    image_draws,
    pooled,
    rank_correlation,
    resampled_map,
    welch,
    word,
)

SEEDS_SD, TEST_SD = 0.56, 0.75   # EM over AN on mini_voc, heads on frozen features, ten seeds


def invented(random, gain, seeds, places=4):
    "Effects of one invented table: the chance of the test images is shared by the seeds of a place."
    for _ in range(places):
        d = gain + random.normal(0, TEST_SD) + random.normal(0, SEEDS_SD, seeds)
        yield effect(d, d[:, None] + random.normal(0, TEST_SD, 100))


@pytest.mark.parametrize('seeds', [3, 10])
def test_words_are_seldom_wrong_and_intervals_cover(seeds):
    random, words, covered = np.random.RandomState(seeds), [], []
    for _ in range(1000):
        effects = list(invented(random, 0, seeds))
        words.append(decide(effects).word)
        covered += [each.low <= 0 <= each.high for each in effects]
    assert words.count(WORDS[0]) <= 50 and words.count(WORDS[1]) <= 50
    assert 0.93 <= np.mean(covered) <= 0.97


def test_a_gain_of_two_points_is_found():
    random = np.random.RandomState(0)
    assert sum(decide(list(invented(random, 2, 3))).word == WORDS[0] for _ in range(100)) > 90


def test_without_the_chance_of_the_test_images_intervals_are_too_narrow():
    "What would be wrong with seeds alone, so that the test above can fail."
    random, covered = np.random.RandomState(1), []
    for _ in range(500):
        d = random.normal(0, TEST_SD) + random.normal(0, SEEDS_SD, 10)
        alone = effect(d)
        covered.append(alone.low <= 0 <= alone.high)
    assert np.mean(covered) < 0.7


def test_one_seed_decides_nothing():
    alone = effect([3.0])
    assert alone.mean == 3 and np.isnan([alone.low, alone.high, alone.p, alone.detectable]).all()
    both = decide([alone, effect([2.0, 2.1, 1.9])])
    assert both.words == (WORDS[3], WORDS[0]) and both.whole.mean == pytest.approx(2)
    with pytest.raises(SpmlError, match='no effects to pool'): decide([alone])


def test_words():
    assert word(1.0, 0.01, 0.9) == WORDS[0] and word(-1.0, 0.01, 0.9) == WORDS[1]
    assert word(-1.0, 0.01, 0.9, sign=-1) == WORDS[0]
    assert word(0.1, 0.5, 0.01) == WORDS[2] and word(0.1, 0.5, 0.2) == WORDS[3]
    assert word(0.1, 0.5, 0.01, sign=0) == WORDS[0] and word(2.0, 0.01, 0.9, sign=0) == WORDS[1]


def test_equal_differences_have_no_width():
    same = effect([1.0, 1.0, 1.0])
    assert (same.low, same.high, same.p, same.equivalent) == (1, 1, 0, 1) and effect([0.0, 0.0]).equivalent == 0
    assert MARGIN == 0.5


def test_holm_is_monotone_and_never_above_one():
    assert holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06]) and holm([0.9, 0.8]).max() == 1


def test_pooling_independent_places_narrows_the_interval():
    places = [effect([2.0, 1.0, 3.0]), effect([1.5, 2.5, 2.0])]
    assert pooled(places).half_width < max(each.half_width for each in places) and pooled(places).mean == 2


def test_draws_repeat_and_weights_equal_copies():
    draws = image_draws(30, 4)
    assert np.array_equal(draws, image_draws(30, 4)) and (draws.sum(1) == 30).all()
    random = np.random.RandomState(2)
    scores, targets = random.normal(size=(30, 2)), random.choice([-1, 1], (30, 2))
    assert resampled_map(scores, targets, draws)[1] == pytest.approx(
        mean_average_precision(scores.repeat(draws[1], 0), targets.repeat(draws[1], 0)))


@pytest.mark.parametrize('wrong', [lambda: effect([]), lambda: effect([1.0, 2.0], np.zeros((3, 5))),
                                   lambda: resampled_map(np.zeros((3, 1)), np.ones((2, 1)), np.ones((1, 3), int))])
def test_what_does_not_belong_together_is_refused(wrong):
    with pytest.raises(SpmlError): wrong()


def test_published_means_and_ranks():
    assert welch((88.2, 0.1, 3), (87.0, 0.2, 3)) < 0.01 < welch((88.2, 2.0, 3), (87.0, 2.0, 3))
    table = np.array([[1.0, 5], [2, 6], [3, 4], [np.nan, 9]])
    assert rank_correlation(table, table, 50)[0] == 1 and np.isnan(rank_correlation(table[:2], table[:2], 50)[0])
