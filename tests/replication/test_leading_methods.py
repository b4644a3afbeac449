"""Which methods lead: gains by hand, what is due to a head, and equals."""

from pathlib import Path

import pytest
from front_rows import (
    exact,  # noqa: F401 (fixtures)
    levels,
)

from spml_nb.replication import (
    gains,
    leading_methods,
    tables,
)

ROOT = Path(__file__).resolve().parents[2]


def test_what_a_head_adds_is_told_apart_from_its_method(exact):  # noqa: F811
    found = leading_methods.find_leaders(
        levels(
            an_linear=50.0,
            an_cosine=51.4,
            em_linear=52.0,
            em_cosine=51.0,
            hml_cosine=53.0,
            wan_linear=49.0,
            ls_linear=50.0,
            boostlu_llr_maps=49.5,
        )
    )
    assert found.sets == 2
    assert (found.above, found.below, found.open) == (('HML', 'EM'), ('WAN',), ('LS',))
    top, linear = found.top, found.linear
    assert (top.name, top.head, top.second) == ('HML', 'cosine', 'EM')
    assert (linear.name, linear.head, linear.second) == ('EM', 'linear', 'LS')
    effects = (top.gain, found.due_to_head, top.lead, linear.gain)
    assert [(e.mean, e.half_width) for e in effects] == [
        (pytest.approx(mean), pytest.approx(0)) for mean in (3, 1.4, 1, 2)
    ]


def test_a_leader_on_a_linear_head_owes_nothing_to_it(exact):  # noqa: F811
    found = leading_methods.find_leaders(levels(an_linear=50.0, em_linear=52.0, em_cosine=51.0))
    assert (found.top.name, found.top.second, found.top.lead) == ('EM', '', None)
    assert found.due_to_head is None
    assert (
        leading_methods.find_leaders(levels(em_linear=52.0))
        is leading_methods.find_leaders({})
        is None
    )
    assert leading_methods.find_leaders(levels(an_linear=50.0)) is None


def test_a_method_that_ran_on_fewer_sets_may_be_as_good(exact):  # noqa: F811
    everywhere = levels(an_linear=50.0, hml_cosine=53.0, em_linear=52.0, an_cosine=51.0)
    for mean, rivals in ((54.0, ('WAN on the cosine head',)), (52.0, ())):
        found = leading_methods.find_leaders(everywhere | levels(('ccp',), wan_cosine=mean))
        assert (found.top.name, found.top.second, found.top.rivals) == ('HML', 'EM', rivals)


def test_an_equal_that_names_labels_far_worse_is_called_so(exact):  # noqa: F811
    ranks = levels(an_linear=50.0, hml_cosine=53.0, em_linear=53.0)
    ranks |= levels(('ccp',), wan_cosine=54.0)
    micro_f1 = {
        ('hml', 'cosine'): {'coco18': 70.0, 'ccp': 60.0},
        ('em', 'linear'): {'coco18': 66.0, 'ccp': 57.0},  # less than FAR_BELOW, on the mean
        ('wan', 'cosine'): {'ccp': 47.5},
    }
    top = leading_methods.find_leaders(ranks, micro_f1).top
    assert top.second == 'EM'
    assert top.rivals == ('WAN on the cosine head (micro-F1 12.5 points lower)',)
    micro_f1['em', 'linear']['ccp'] = 47.0
    assert (
        leading_methods.find_leaders(ranks, micro_f1).top.second == 'EM (micro-F1 8.5 points lower)'
    )


@pytest.mark.skipif(not (ROOT / 'outputs' / 'runs.csv').is_file(), reason='no table of record')
def test_methods_outside_of_the_picture_stand_in_the_order_too():
    known = tables.read_recorded_runs(ROOT / 'outputs' / 'runs.csv')
    found = leading_methods.method_levels(gains.gains_of_suites(known))
    assert {
        ('an', 'linear'),
        ('an', 'cosine'),
        ('hml', 'cosine'),
        ('two_way_class', 'cosine'),
    } <= found.keys() and ('em_apl', 'linear') not in found
    seeds = found['hml', 'cosine']['coco18']
    assert list(seeds.by_seed.index) == list(range(10)) and seeds.key in known.index
