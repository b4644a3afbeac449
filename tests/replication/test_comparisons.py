"""The comparisons of a claim: effects, verdicts and the words for them, from numbers made here."""

import re
from dataclasses import replace

import numpy as np
import pytest

from spml_nb import statistics
from spml_nb.replication.comparisons import (
    Number,
    claim_above,
    claim_between,
    claim_peak,
    claim_rising,
    claim_share,
    claim_steady,
    claim_trend,
    decide_claim,
)
from spml_nb.statistics import EQUIVALENCE_MARGIN, Size, Verdict

REPRODUCED, REVERSED, NONE, UNDECIDED, NOT_RUN, NOT_EXERCISED = Verdict


def seeds(*values):
    return dict(enumerate(values))


def side(**values):
    return {name: Number(each, 'mini_voc for ', name) for name, each in values.items()}


def one(place):
    return decide_claim([place]).places[0]


def word(place):
    return decide_claim([place]).verdict


def printed_place(ours, theirs, sources=('', ''), name='VOC'):
    "EM above AN: our seeds of EM, where AN has 1, and what a paper prints of both."
    numbers = [
        Number(each, f'{name} for ', printed=(number, np.nan, np.nan), source=source)
        for each, number, source in zip(
            (ours, seeds(*[1.0] * len(ours))), theirs, sources, strict=True
        )
    ]
    return claim_above(name, {'EM': numbers[0]}, {'AN': numbers[1]})


@pytest.mark.parametrize(
    ('theirs', 'sources', 'expected'),
    [
        ((90.1, 87.0), ('', ''), Size.AS_LARGE),
        ((95.0, 87.0), ('', ''), Size.SMALLER),
        ((87.5, 87.0), ('', ''), Size.LARGER),
        ((80.0, 87.0), ('', ''), Size.LARGER),
        ((95.0, 87.0), ('theirs', 'Cole et al.'), Size.MIXED),
        ((95.0, 87.0), ('Cole et al.', 'Cole et al.'), Size.SMALLER),
        ((np.nan, 87.0), ('theirs', 'Cole et al.'), Size.NOT_PRINTED),
    ],
)
def test_the_second_word_is_where_the_published_effect_lies(theirs, sources, expected):
    result = decide_claim([printed_place(seeds(3.9, 4.0, 4.2), theirs, sources)])
    assert result.verdict == REPRODUCED  # 3.03 ± 0.38
    assert result.size is result.places[0].size is expected


def test_one_seed_or_none_has_no_size():
    for ours in ({}, seeds(4.0)):
        result = decide_claim([printed_place(ours, (95.0, 87.0))])
        assert result.size is Size.NOT_MEASURED and result.sign in (NOT_RUN, UNDECIDED)


def test_one_place_of_mixed_sources_leaves_the_mean_without_a_size():
    own = printed_place(seeds(3.9, 4.0, 4.2), (95.0, 87.0), name='VOC')
    mixed = printed_place(seeds(3.9, 4.0, 4.2), (95.0, 87.0), ('', 'Cole et al.'), name='CUB')
    lost = printed_place(seeds(3.9, 4.0, 4.2), (np.nan, 87.0), name='CUB')
    assert decide_claim([own, mixed]).size is Size.MIXED and '†' in str(decide_claim([own, mixed]))
    assert decide_claim([own, lost]).size is Size.NOT_PRINTED  # not that of half of its places
    assert [each.size for each in decide_claim([own, mixed]).places] == [Size.SMALLER, Size.MIXED]


def test_the_size_is_taken_where_the_paper_has_numbers():
    own = printed_place(seeds(3.9, 4.0, 4.2), (90.1, 87.0), name='VOC')  # 3.03 ± .38, paper 3.1
    ours = {name: Number(seeds(*values), 'ours', name, added=True) for name, values in PAIR.items()}
    added = claim_above('ours', {'EM': ours['EM']}, {'AN': ours['AN']})
    both = decide_claim([own, added])
    assert (both.pooled, both.effect.mean) == (2, pytest.approx((3.0333 + 9) / 2, abs=1e-3))
    assert both.size is Size.AS_LARGE and both.published == pytest.approx(3.1)
    assert decide_claim([added]).size is Size.NOT_PRINTED


PAIR = {'EM': (10.0, 10.1, 9.9), 'AN': (1.0, 1.1, 0.9)}


def test_a_bound_is_no_effect_whose_size_compares():
    place = printed_place(seeds(3.9, 4.0, 4.2), (95.0, 87.0))
    (contrast,) = place.contrasts
    bounded = replace(place, contrasts=[replace(contrast, bound=1.0)])
    result = decide_claim([bounded])
    assert result.size is result.places[0].size is Size.BOUNDED


def test_what_decides_is_named_with_its_measure_where_there_are_several():
    def place(metric, EM):
        AN, LS, EM = (
            Number(values, 'ours', (k, metric), metric=metric)
            for k, values in enumerate((seeds(1, 1.1, 1.2), seeds(2, 2.1, 2.2), EM))
        )
        return claim_above(metric, {'EM': EM}, {'AN': AN, 'LS': LS})

    by_class, by_sample = place('mAP@class', seeds(9, 9.1, 9)), place('mAP@sample', seeds(5, 5, 6))
    assert decide_claim([by_class, by_sample]).between == 'against LS, mAP@sample'
    assert decide_claim([printed_place(seeds(3, 4), (9, 8))]).between == ''


def test_a_sign_is_on_average_only_where_no_place_decides():
    names = ('VOC', 'CUB', 'NUS')
    weak = [printed_place(seeds(2.5, 2.8, 2.0), (90.0, 87.0), name=name) for name in names]
    strong = printed_place(seeds(3.9, 4.0, 4.2), (95.0, 87.0), name='COCO')
    assert decide_claim(weak).sign == 'reproduced on average'
    assert decide_claim([*weak, strong]).sign == 'reproduced'
    assert decide_claim([printed_place(seeds(0, 4, 1), (95.0, 87.0))]).sign == 'undecided'


def test_places_that_contradict_one_another_are_counted():
    yes = [printed_place(seeds(3.9, 4.0, 4.2), (9, 8), name=name) for name in ('VOC', 'CUB')]
    no = printed_place(seeds(-3.9, -4.0, -4.2), (9, 8), name='NUS')
    assert decide_claim([*yes, no]).sign == 'undecided (2 yes, 1 no)'


@pytest.mark.parametrize(
    ('left', 'right', 'expected'),
    [
        (seeds(3, 3.1, 3.2), seeds(2, 2.1, 2.2), REPRODUCED),
        (seeds(2, 2.1, 2.2), seeds(3, 3.1, 3.2), REVERSED),
        (seeds(19, 18.9, 18.95), seeds(18.9, 18.95, 19), NONE),
        (seeds(1, 2, 3), seeds(1, 2, 3), NONE),  # the same training twice
        (seeds(17, 21, 18), seeds(18, 17, 19), UNDECIDED),
        (seeds(1.1), seeds(1), UNDECIDED),
        (seeds(1.1, 5), seeds(1), UNDECIDED),
        (
            seeds(1, 9, 5),
            seeds(0.2, 8.2, 4.25),
            REPRODUCED,
        ),  # seeds are paired: what they share does not count
        (seeds(1, 9, 5), seeds(0.9, 8.9, 4.95), NONE),  # surely above 0, and by less than a word
        ({}, seeds(1, 2), NOT_RUN),
        ({0: 1.0}, {1: 0.5}, NOT_RUN),
    ],
)
def test_a_difference_gets_one_of_the_words(left, right, expected):
    assert word(claim_above('VOC', side(a=left), side(b=right))) == expected


def test_an_effect_is_told_with_its_interval_its_seeds_and_what_could_have_been_seen():
    place = one(claim_above('VOC', side(a=seeds(4, 5, 6)), side(b=seeds(2, 2, 2))))
    assert (place.effect.mean, place.effect.seeds) == (
        3,
        3,
    ) and place.effect.half_width == pytest.approx(4.302653 / 3**0.5)
    assert str(place) == 'mini_voc for VOC: reproduced, +3.00 ± 2.48'
    assert (
        str(decide_claim([place.place])) == 'reproduced on 1 of 1 place: +3.00 ± 2.48, 3 seeds, '
        f'power 80 % from {place.effect.detectable:.1f} on'
    )


def test_the_test_images_widen_the_interval_where_a_number_is_measured_on_them():
    def error(dataset):
        return one(
            claim_above(
                '',
                {'a': Number(seeds(4, 5, 6), dataset=dataset)},
                {'b': Number(seeds(2, 2, 2.1), dataset=dataset)},
            )
        ).effect.error

    assert error('mini_voc') == pytest.approx(
        (error('') ** 2 + statistics.default_image_error('mini_voc') ** 2) ** 0.5
    )


def test_a_measure_has_test_images_of_its_own_and_two_measures_the_larger():
    seed = {'a': seeds(4, 5, 6), 'b': seeds(2, 2, 2.1)}

    def error(*metrics):
        return one(
            claim_above(
                '',
                *(
                    {name: Number(seed[name], dataset='coco18', metric=metric)}
                    for name, metric in zip('ab', metrics, strict=True)
                ),
            )
        ).effect.error

    apart = error('mAP@class', 'mAP@class') ** 2 - error('mAP@sample', 'mAP@sample') ** 2
    assert apart == pytest.approx(0.67**2 - 0.50**2) and error('mAP@class', 'mAP@sample') == error(
        'mAP@class', 'mAP@class'
    )


def test_only_common_seeds_are_compared_and_their_number_is_told():
    assert (
        str(one(claim_above('VOC', side(a=seeds(5)), side(b=seeds(4, 9, 9)))))
        == 'mini_voc for VOC: undecided, +1.00, 1 seed'
    )
    assert one(claim_above('VOC', side(a=seeds(5, 6, 7)), side(b=seeds(4, 5)))).effect.seeds == 2


def test_a_claim_against_many_needs_all_of_them_and_falls_with_one():
    left = side(a=seeds(5, 5.1, 5.2))
    low = side(low=seeds(4, 4.1, 4.25))
    high = side(high=seeds(6, 6.1, 6.25))
    gone = side(gone={}, lost={})
    assert (
        str(one(claim_above('VOC', left, low | side(gone={}))))
        == 'mini_voc for VOC (1 of 3 numbers missing): incomplete, '
        + str(one(claim_above('VOC', left, low))).partition('reproduced, ')[2]
        + ' (against low)'
    )
    assert word(claim_above('VOC', left, low)) == REPRODUCED
    against = one(claim_above('VOC', left, low | gone | high))
    assert against.verdict == REVERSED and against.contrast.between == 'against high'
    assert (
        one(claim_above('VOC', left | high, low)).contrast.between == 'a'
        and one(claim_above('VOC', left | low, high | low)).contrast.between == 'low against high'
    )


def test_what_was_not_exercised_decides_nothing():
    idle = {'apl': Number(seeds(5, 5.1, 5.2), 'mini_voc for ', exercised=False)}
    place = one(claim_above('VOC', idle, side(b=seeds(1, 1, 1))))
    assert (
        place.verdict == NOT_RUN and str(place) == 'mini_voc for VOC (1 of 2 numbers not exercised)'
    )


SIDES = side(
    a=seeds(1, 1.5, 2),
    b=seeds(1.1, 1.4, 2),
    c=seeds(2, 2.5, 3.1),
    d=seeds(4, 4.5, 5.1),
    noise=seeds(0, 7, 2),
)


def of(names):
    return {name: SIDES[name] for name in names.split()}


@pytest.mark.parametrize(
    ('place', 'expected'),
    [
        (claim_above('', of('b'), of('a'), by=-EQUIVALENCE_MARGIN), REPRODUCED),
        (claim_above('', of('d'), of('a'), by=2), REPRODUCED),
        (claim_above('', of('c'), of('a'), by=2), REVERSED),
        (claim_between('', of('c'), of('a'), low=0.5, high=2), REPRODUCED),
        (claim_between('', of('c'), of('a'), high=0.5), REVERSED),
        (claim_between('', of('noise'), low=0, high=4), UNDECIDED),
        (claim_share('', of('c'), of('d'), 0.3, 0.8), REPRODUCED),
        (claim_share('', of('c'), of('d'), 0.1, 0.2), REVERSED),
        (claim_steady('', of('a b'), within=EQUIVALENCE_MARGIN), REPRODUCED),
        (claim_steady('', of('a c'), within=EQUIVALENCE_MARGIN), REVERSED),
        (claim_steady('', of('a noise'), within=EQUIVALENCE_MARGIN), UNDECIDED),
        (claim_rising('', of('a c d')), REPRODUCED),
        (claim_rising('', of('a d c')), REVERSED),
        (claim_rising('', of('a noise d')), UNDECIDED),
        (claim_trend('', of('a c d')), REPRODUCED),
        (claim_trend('', of('a noise d')), REPRODUCED),
        (claim_trend('', of('a c d'), of('a b noise')), UNDECIDED),
        (claim_trend('', of('a c d'), falling=True), REVERSED),
        (claim_trend('', of('a d b')), NONE),
        (claim_peak('', of('a d c'), best=range(1, 2)), REPRODUCED),
        (claim_peak('', of('a c d'), best=range(1, 2)), REVERSED),
    ],
)
def test_every_kind_knows_its_bound(place, expected):
    assert word(place) == expected, str(one(place))


@pytest.mark.parametrize(
    ('place', 'told'),
    [
        (claim_steady('', of('a b'), within=EQUIVALENCE_MARGIN), ' at most 0.5)'),
        (claim_trend('', of('d c a'), falling=True), '(from last to first)'),
        (claim_share('', of('c'), of('d'), 0.3, 0.8), '(below 80 % of the other)'),
        (claim_share('', of('c'), of('d'), 0.3, 0.95), '(above 30 % of the other)'),
    ],
)
def test_the_number_that_is_told_is_that_of_its_words(place, told):
    "Without a bound, or below one, a claim that holds is told with a +."
    said = re.sub(r', \d seeds, power 80 % from [\d.]+ on', '', str(decide_claim([place])))
    each = str(one(place))
    assert (
        said.startswith('reproduced on 1 of 1 place: +')
        and each.endswith(f": reproduced, {said.partition(': ')[2]}")
        and said.endswith(told)
    )


def test_several_places_on_one_data_set_must_all_hold():
    def place(measure, by, dataset):
        return claim_above(
            f'{dataset}, {measure}',
            {'a': Number(seeds(by, by + 0.2, by + 0.1), dataset=dataset)},
            {'b': Number(seeds(0, 0.1, 0))},
        )

    by_class, by_sample = (
        [place(measure, by, name) for name in ('coco18', 'ccp')]
        for measure, by in (('mAP@class', 0.0), ('mAP@sample', 8.0))
    )
    both = decide_claim([*by_class, *by_sample])
    assert (
        decide_claim(by_sample).verdict == REPRODUCED
        and both.verdict != REPRODUCED
        and both.pooled == 2
        and both.effect.mean == pytest.approx(0.07, abs=0.01)
    )


def test_a_trend_is_the_gain_of_the_straight_line():
    values = [3.0, 1.0, 4.0, 1.5, 5.0]
    got = (
        claim_trend('', {str(k): Number(seeds(v)) for k, v in enumerate(values)})
        .contrasts[0]
        .by_seed[0]
    )
    assert got == pytest.approx(4 * np.polyfit(range(5), values, 1)[0])


def test_equal_runs_are_one_place_and_equal_data_one_share_of_the_mean():
    def number(value, runs, dataset):
        return Number(seeds(value, value + 0.1, value + 0.3), f'{dataset} for ', runs, dataset)

    def place(name, run, dataset='mini_voc', gain=2.0):
        return claim_above(
            name,
            {'a': number(50 + gain, ('a', run), dataset)},
            {'b': number(50, ('b', run), dataset)},
        )

    assert [
        p.place.name for p in decide_claim([place('Full / VOC', 1), place('Full / NUS', 1)]).places
    ] == ['mini_voc for Full / VOC = NUS']
    lone = decide_claim([place('x', 1)]).effect
    twice = decide_claim([place('x', 1), place('y', 2)]).effect
    assert (
        twice.error == pytest.approx(lone.error)
        and decide_claim([place('x', 1), place('y', 2, 'mini_cub')]).effect.error < 0.8 * lone.error
    )


def test_a_claim_that_no_place_decides_alone_is_told_so():
    def place(name, *values):
        return claim_above(
            name, {'a': Number(seeds(*values), dataset=name)}, {'b': Number(seeds(0, 0.1, 0))}
        )

    weak = decide_claim([place(name, 1.5, 1.8, 1.0) for name in 'abc'])
    assert [p.verdict for p in weak.places] == [UNDECIDED] * 3 and str(weak).startswith(
        'reproduced on the mean of 3 of 3 places; none decides alone: +1.40 ± '
    )
    apart = decide_claim([place('a', 9.0, 9.3, 9.1), place('b', -9.0, -9.3, -9.1)])
    assert str(apart).startswith(
        f'undecided on the mean of 2 of 2 places; 2 decide alone (1 {REPRODUCED}, 1 {REVERSED})'
    )
    assert (
        str(decide_claim([claim_above('VOC', side(a=seeds(5)), side(b=seeds(4)))]))
        == 'undecided on 0 of 1 place with more than one seed'
    )


def test_a_forest_plot_sets_the_same_comparison_of_the_paper_beside_ours():
    def number(ours, printed):
        return Number(seeds(ours, ours + 0.1, ours), printed=(printed, np.nan, np.nan))

    places = [
        claim_above(name, {'a': number(60, 70)}, {'b': number(57, 64), 'c': number(55 + k, 69)})
        for k, name in enumerate(('VOC', 'COCO'))
    ]
    verdict = decide_claim(places)
    assert (verdict.contrast.between, verdict.pooled, verdict.published) == (
        'against b',
        2,
        6,
    )  # ours is least against b: 3 points; the paper is against c
    assert [p.contrast.published for p in verdict.places] == [6, 6]
    unprinted = decide_claim(
        [claim_above('VOC', {'a': Number(seeds(1, 2, 3))}, {'b': number(1, 64)})]
    )
    assert np.isnan(unprinted.published) and np.isnan(
        claim_above('VOC', {'a': Number({})}, {'b': Number({})}).contrasts[0].published
    )
    low = claim_between('VOC', {'a': number(60, 70)}, high=80).contrasts[0]
    assert low.published == 10  # on the claimed side of the bound


def test_a_claim_is_called_idle_where_no_run_could_decide_it():
    "Beside comparisons that have numbers, runs that are missing come first."
    idle = Number(seeds(5, 5.1, 5.2), 'mini_voc for ', exercised=False)
    ours = side(ours=seeds(6, 6.1, 6.2))
    for others, word in (
        ({'apl': idle}, NOT_EXERCISED),
        (side(b=seeds(1, 1, 1)) | {'apl': idle}, NOT_EXERCISED),
        ({'c': Number({}, ''), 'apl': idle}, NOT_EXERCISED),
        (side(b=seeds(1, 1, 1)) | {'c': Number({}, ''), 'apl': idle}, NOT_RUN),
    ):
        assert decide_claim([claim_above('VOC', ours, others)]).verdict == word
