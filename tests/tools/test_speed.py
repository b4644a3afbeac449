"""Pairs measured in turn: the arithmetic of the ratios, the agreement that comes first, and the files of the record."""
import os

import numpy as np
import pandas as pd
import pytest
import torch

from spml_nb.tools import speed as bench
from spml_nb import losses, sweeps
from spml_nb.base import settings
from spml_nb.tools.speed import Pair, measure


class Clock:
    "A clock that only sleeping moves: a busy machine decides no test."
    now = 0.0
    def perf_counter(self): return self.now
    def sleep(self, seconds): self.now += seconds


clock = Clock()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch): monkeypatch.setattr(bench, 'time', clock)


def pair(ours=0.002, peer=0.006, case='case', **given):
    return Pair('sleep', case, 'peer', lambda: clock.sleep(ours), lambda: clock.sleep(peer), repetitions=3, warm_up=0, **given)


def test_the_ratio_is_the_peers_time_over_ours():
    row = measure(pair())
    assert [row[k] for k in ('ratio', 'low', 'high', 'ours_ms')] == pytest.approx([3, 3, 3, 2])
    assert measure(pair(scale=10))['ratio'] == pytest.approx(30)


def test_ratio_and_spread_are_of_medians_and_of_neighbours():
    ours, peer = iter([0.1, 0.4, 0.2]), iter([0.2, 0.4, 1.0])
    row = measure(Pair('sleep', 'case', 'peer', lambda: clock.sleep(next(ours)), lambda: clock.sleep(next(peer)), repetitions=3, warm_up=0))
    assert [row[k] for k in ('ours_ms', 'peer_ms', 'ratio', 'low', 'high')] == pytest.approx([200, 400, 2, 1, 5])


@pytest.mark.parametrize(('given', 'met'), [({'goal': 1.5}, True), ({'goal': 9}, False), ({'limit': 1.0}, True), ({'limit': 1e-4}, False),
                                            ({'goal': 1.5, 'limit': 1e-4}, False), ({}, True)])
def test_goals_and_limits_are_told_apart(given, met): assert measure(pair(**given))['met'] is met


def test_calls_alternate_after_the_warm_up():
    order = []
    measure(Pair('p', 'c', 'peer', lambda: order.append('o') or clock.sleep(0.03), lambda: order.append('p') or clock.sleep(0.03), repetitions=3, warm_up=1))
    assert ''.join(order) == 'op' * 4


def test_what_does_not_agree_is_not_measured(monkeypatch):
    monkeypatch.setattr(bench, 'masked_an', lambda logits, z: losses.an_loss(logits, z) + 1)
    with pytest.raises(AssertionError, match='ours gives'): list(bench.loss_pairs([(4, 5)]))
    monkeypatch.setattr(bench, 'select_by_class', lambda s, remaining, quota: ~remaining)
    with pytest.raises(AssertionError, match='differ'): list(bench.selection_pairs(40, 3))
    monkeypatch.setattr(bench, 'sklearn_average_precision', lambda s, y: np.zeros(y.shape[1]))
    with pytest.raises(AssertionError): list(bench.average_precision_pairs([(50, 3, 1.0)]))


def test_the_peers_gradients_are_ours():
    for ours, peer in ((losses.an_loss, bench.masked_an), (losses.em_loss, bench.masked_em), (losses.two_way_loss, bench.direct_two_way)):
        logits, z = bench.batch(7, 6)
        (a,), (b,) = (torch.autograd.grad(loss(logits, z), logits) for loss in (ours, peer))
        torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-3)


def test_both_linear_regimes_learn_the_same_task(tmp_path):
    task, features = bench.linear_task(300, 80, 120, C=5, D=32)
    curves, peer = bench.own_linear_regime(task, features, 3, tmp_path), bench.dataloader_linear_regime(task, features, 3)
    assert len(curves) == len(peer) == 3 and curves.val_map.iloc[-1] == pytest.approx(peer[-1][0], abs=8) and peer[-1][0] > 50


def test_the_record_is_a_table_and_a_page(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path))
    monkeypatch.setattr(bench, 'every_pair', lambda: iter([pair(case='a', goal=1.5), pair(case='b', goal=99), pair(case='c', limit=2.0)]))
    told = []
    table = bench.record(tell=told.append)
    assert len(told) == 3 and 'asked: 1.5×' in told[0] and 'missed' in told[1] and 'missed' not in told[0]
    kept = pd.read_csv(tmp_path / 'benchmarks.csv')
    assert len(kept) == len(table) == 3 and kept.met.tolist() == [True, False, True] and kept.machine.nunique() == 1
    page = (tmp_path / 'benchmarks.md').read_text()
    assert page.count('\n| sleep') == 3 and '99× (missed)' in page and bench.machine() in page


def test_the_record_keeps_other_machines_and_other_pairs(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path))
    monkeypatch.setattr(bench, 'machine', lambda: 'one')
    bench.record([pair(case='a'), pair(case='b')], lambda line: None)
    first = pd.read_csv(tmp_path / 'benchmarks.csv')
    bench.record([pair(case='b', goal=99)], lambda line: None)
    monkeypatch.setattr(bench, 'machine', lambda: 'two')
    bench.record([pair(case='a')], lambda line: None)
    kept = pd.read_csv(tmp_path / 'benchmarks.csv')
    assert list(zip(kept.machine, kept.case, strict=True)) == [('one', 'a'), ('one', 'b'), ('two', 'a')]
    pd.testing.assert_frame_equal(kept[:1], first[:1])
    assert kept.goal[1] == 99 and not kept.met[1]
    page = (tmp_path / 'benchmarks.md').read_text()
    assert page.index('## one') < page.index('## two') and page.count('| what |') == 2 and page.count('\n| sleep') == 3


@pytest.mark.skipif(not hasattr(os, 'sched_getaffinity') or len(os.sched_getaffinity(0)) < 2, reason='needs two cores that can be given to a process')
def test_two_runs_at_a_time_are_the_runs_one_at_a_time(monkeypatch):
    asked = []
    def run(configs, jobs, tell):
        asked.append((jobs, len(configs), len(os.sched_getaffinity(0)), settings.path('runs')))
        return pd.DataFrame({'state': ['done'] * len(configs), 'message': [''] * len(configs)})
    monkeypatch.setattr(sweeps, 'run', run)
    cores, before = os.sched_getaffinity(0), settings.path('runs')
    for found in bench.jobs_pairs(2, 1): found.ours(), found.peer()
    assert [a[:3] for a in asked] == [(2, 2, len(cores)), (1, 2, len(cores)), (2, 2, len(cores)), (1, 2, 1)]
    assert len({a[3] for a in asked}) == 4 and settings.path('runs') == before and os.sched_getaffinity(0) == cores
    with bench.one_core(): assert list(bench.jobs_pairs()) == []
