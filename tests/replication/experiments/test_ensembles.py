"""Averages of networks: who the members are, scores by plain loops, effects, the page."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from spml_nb.base import settings
from spml_nb.replication.experiments import ensembles, thresholds
from spml_nb.replication.experiments.ensembles import (
    ALONE,
    AVERAGES,
    BEST,
    COPIES,
    DRAWS,
    ENSEMBLES,
    KINDS,
    LOSSES,
    Member,
)
from spml_nb.runs.record import read_record
from spml_nb.statistics import image_draws
from spml_nb.sweeps.queue import run_key

OUTPUTS = Path(__file__).resolve().parents[3] / 'outputs'


def test_members_know_the_same_labels_and_differ_in_the_seed_of_training(monkeypatch):
    known = read_record(OUTPUTS / 'runs.csv').set_index('key')
    monkeypatch.setattr(thresholds.queue, 'load_finished_runs', lambda: known)
    planned = ensembles.plan_members('coco18')
    assert len({run_key(config) for config in planned}) == len(planned) == 3 * len(DRAWS) * COPIES
    for draw in DRAWS:
        for loss in LOSSES:
            of_both = [c for c in planned if c.label_seed == draw and c.loss == loss]
            assert [config.seed for config in of_both] == [draw, draw + 100, draw + 200]
            assert run_key(of_both[0]) in known.index  # a final run of the board
            assert len({run_key(config.changed(seed=0)) for config in of_both}) == 1


def test_every_average_is_of_networks_that_are_trained():
    trained = {Member(loss, copy) for loss in LOSSES for copy in range(COPIES)}
    assert set().union(*ENSEMBLES.values()) == trained
    assert 'HML, 3 seeds' in ENSEMBLES and ENSEMBLES['EM + HML'] == [Member('em'), Member('hml')]


def ap_by_loops(scores, true):
    "The mean precision at the ranks of the positives."
    ranked = [label for _, label in sorted(zip(scores, true, strict=True), reverse=True)]
    found, total = 0, 0.0
    for rank, label in enumerate(ranked, 1):
        found += label
        total += label * found / rank
    return total / found


def map_by_loops(scores, true):
    columns = range(true.shape[1])
    return 100 * sum(ap_by_loops(scores[:, c], true[:, c]) for c in columns) / true.shape[1]


def test_scores_are_those_of_plain_loops():
    random = np.random.default_rng(3)
    true = random.random((40, 3)) < 0.4
    logits = {
        Member(loss, copy): (random.normal(size=true.shape) * 3 + true).astype(np.float32)
        for loss in LOSSES
        for copy in range(COPIES)
    }
    val_map = {member: random.random() for member in logits}
    found = ensembles.score_ensembles(logits, val_map, np.where(true, 1, -1))
    draws = image_draws(40)
    assert found.shape == (len(ENSEMBLES), len(AVERAGES), len(KINDS), 1 + len(draws))
    for place, members in enumerate(ENSEMBLES.values()):
        alone = [map_by_loops(logits[member], true) for member in members]
        best = alone[max(range(len(members)), key=lambda k: val_map[members[k]])]
        sums, probabilities = np.zeros(true.shape), np.zeros(true.shape)
        for member in members:
            for row in range(40):
                for c in range(3):
                    s = float(logits[member][row, c])
                    sums[row, c] += s / len(members)
                    probabilities[row, c] += 1 / (1 + math.exp(-s)) / len(members)
        for column, scores in enumerate((sums, probabilities)):
            expected = [map_by_loops(scores, true), sum(alone) / len(alone), best]
            assert found[place, column, :, 0] == pytest.approx(expected, abs=1e-9)
    # a bootstrap sample is the photos of that sample, each as often as it was drawn
    again = np.repeat(np.arange(40), draws[4])
    last = [logits[member][again] for member in ENSEMBLES['EM, 2 seeds']]
    expected = map_by_loops(np.mean([m.astype(float) for m in last], axis=0), true[again])
    place = list(ENSEMBLES).index('EM, 2 seeds')
    assert found[place, 0, 0, 1 + 4] == pytest.approx(expected, abs=1.5)  # ties have no order


def test_equal_members_average_to_themselves():
    random = np.random.default_rng(4)
    true = np.where(random.random((30, 2)) < 0.5, 1, -1)
    same = random.normal(size=true.shape)
    logits = {Member(loss, copy): same for loss in LOSSES for copy in range(COPIES)}
    found = ensembles.score_ensembles(logits, dict.fromkeys(logits, 0.5), true)
    assert found == pytest.approx(np.broadcast_to(found[:1, :1, :1], found.shape))


def made(sets=('coco18', 'ccp')):
    "Members have 50 and the draw; averages are better by their place, and the best by a half."
    random, lines = np.random.default_rng(0), []
    for dataset in sets:
        for draw in DRAWS:
            for place, name in enumerate(ENSEMBLES):
                for average in AVERAGES:
                    own = 50.0 + draw + place + 0.1 * draw
                    lines.append([dataset, draw, name, average, own, 50.0 + draw, 50.5 + draw])
    shape = len(ENSEMBLES), len(AVERAGES), len(KINDS), 100
    images = {dataset: random.normal(size=shape).astype(np.float32) for dataset in sets}
    return pd.DataFrame(lines, columns=['dataset', 'draw', 'ensemble', 'average', *KINDS]), images


def test_gains_are_paired_by_draw_and_have_the_error_of_the_test_images():
    lines, images = made()
    gains = ensembles.estimate_gains(lines, images)
    names = list(ENSEMBLES)
    second = gains.loc[(ALONE, 'logits', names[1])]
    assert second['ccp'].mean == pytest.approx(1 + 0.2) and second['ccp'].seeds == len(DRAWS)
    assert second['mean'].mean == pytest.approx(1.2) and second['mean'].error < second['ccp'].error
    parted = images['ccp'][1, 0, 0].astype(float) - images['ccp'][1, 0, 1]
    over_draws = np.var([0, 0.1, 0.2, 0.3, 0.4], ddof=1) / 5
    assert second['ccp'].error ** 2 == pytest.approx(over_draws + parted.var(ddof=1), rel=1e-5)
    assert gains.loc[(BEST, 'probabilities', names[1])]['ccp'].mean == pytest.approx(0.7)


def test_the_page_comes_from_what_was_measured_and_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, 'get_folder', lambda name: tmp_path)
    assert ensembles.write_ensembles() == []
    for name in ('ccp', 'coco18'):
        ensembles.MEASUREMENTS.add(*made((name,)))
    assert [file.name for file in ensembles.write_ensembles()] == ['ensembles.md']
    page = (tmp_path / 'ensembles.md').read_text()
    assert '| AN, 3 seeds | +1.2 ± ' in page
    text = ' '.join(page.split())
    assert 'over the better one by the mean of logits, +' in text
    assert 'held against one network, trained once' in text
    assert 'spml sweep ensembles --dataset voc12_animals cub_crops mirflickr14 corel5k' in page
    assert ensembles.write_ensembles() == []


def test_probabilities_are_averaged_as_probabilities():
    assert AVERAGES['probabilities'](np.array([0.0, 2.0])) == pytest.approx(expit([0.0, 2.0]))
