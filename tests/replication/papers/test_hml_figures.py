"""What HML's figures measure."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from figure_runs import photos, trained, world  # noqa: F401 (fixtures)

from spml_nb.replication import run_measurements
from spml_nb.replication.papers import hml_figures


@pytest.mark.parametrize('margin, labels', [(0.0, 'single'), (0.3, 'single'), (0.0, 'full')])
def test_gradients_and_cosines_are_those_of_the_formula(photos, margin, labels):  # noqa: F811
    run = trained(photos, loss='hml_fixed', labels=labels, hparams={'margin': margin, 'scale': 15})
    found, seen = hml_figures.count_cosines(run), run_measurements.score_run(run)
    z, true = seen.task.observed, seen.true
    theta_m = np.arccos(np.clip(seen.logits / 15, -1, 1))  # the method scores by s·cos(θ + m)
    theta = theta_m - margin
    p = 1 / (1 + np.exp(-seen.logits))
    gradient = abs((z > 0) - p) * np.sin(theta_m) / np.sin(theta)
    for k, group in enumerate([z == 1, (z != 1) & (true == 1), true == -1]):
        near = [
            np.histogram(np.clip(np.cos(theta[group]) + e, -1, 1), hml_figures.COSINES)[0]
            for e in (-1e-4, 1e-4)
        ]
        assert (
            found['cosine'][k].sum() == group.sum()
            and (abs(np.cumsum(found['cosine'][k]) - np.cumsum(near, 1)).min(0) == 0).all()
        )
        near = [
            np.histogram(np.clip(gradient[group] + e, 0, 1.5), hml_figures.GRADIENTS)[0]
            for e in (-1e-4, 1e-4)
        ]
        assert (abs(np.cumsum(found['gradient'][k]) - np.cumsum(near, 1)).min(0) == 0).all()
    assert hml_figures.measure_balance(run)['imbalance'] == pytest.approx(
        abs((1 - p)[z == 1].sum() - p[z < 1].sum()) / len(z), rel=1e-5
    )


def test_labels_that_are_most_alike_come_first(photos):  # noqa: F811
    run = trained(photos, loss='hml')
    found, seen = hml_figures.find_correlated_labels(run), run_measurements.score_run(run)
    w = torch.nn.functional.normalize(seen.model.head.weight.detach(), dim=1)
    names = [seen.task.data.class_names.index(n) for n in found['names']]
    theta = torch.arccos((w @ w.T).clamp(-1, 1))[names][:, names]
    p = torch.sigmoid(seen.method.scale * torch.cos(theta + seen.method.margin)).detach().numpy()
    off = ~np.eye(len(names), dtype=bool)
    assert np.allclose(found['correlation'][off], p[off], atol=1e-4)
    highest = np.where(off, p, -1).max(1)
    assert (np.diff(highest) <= 1e-4).all()


def test_an_axis_reaches_as_far_as_its_data():
    counts = np.zeros((3, 80), int)
    counts[0, 30:40], counts[1, 50:55], counts[0, 0] = (
        1000,
        10,
        1,
    )  # one in ten thousand is left out, a small group is not
    given = hml_figures.FigureArrays({}, {'one': {'cosine': counts}})
    assert hml_figures._reach(given, 'cosine', hml_figures.COSINES) == pytest.approx(
        (hml_figures.COSINES[30], hml_figures.COSINES[55])
    )


def test_a_label_is_not_set_beside_itself():
    found = {'correlation': np.array([[1.0, 0.2], [0.3, 1.0]]), 'names': np.array(['cat', 'dog'])}
    about = {
        'parts': {'x': {'dataset': 'coco14', 'series': 'HML', 'values': [], 'seed': 0}},
        'data': [['coco14', 'coco18']],
    }
    ax = hml_figures.FIGURES['6'].draw(hml_figures.FigureArrays(about, {'x': found})).axes[0]
    assert ax.images[0].get_clim() == pytest.approx((0.2, 0.3)) and sorted(
        t.get_text() for t in ax.texts
    ) == ['0.20', '0.30']


def test_the_correlation_of_labels_is_set_beside_how_they_occur_together(photos):  # noqa: F811
    run = trained(photos, loss='hml')
    found, seen = hml_figures.co_occurrence(run), run_measurements.score_run(run)
    w = torch.nn.functional.normalize(seen.model.head.weight.detach(), dim=1)
    theta = torch.arccos((w @ w.T).clamp(-1, 1))
    p = torch.sigmoid(seen.method.scale * torch.cos(theta + seen.method.margin)).detach().numpy()
    there = seen.true > 0
    pairs = list(combinations(range(there.shape[1]), 2))
    assert len(pairs) == 3
    lift = pd.Series(
        [
            (there[:, i] & there[:, j]).mean() / there[:, i].mean() / there[:, j].mean()
            for i, j in pairs
        ]
    )
    learnt = pd.Series([p[pair] for pair in pairs])
    expected = learnt.rank().corr(lift.rank())
    assert found['agreement'] == pytest.approx(expected, abs=1e-6)
    assert np.allclose(found['correlation'], learnt[lift.argsort(kind='stable')], atol=1e-4)


def test_labels_that_never_occur_have_no_lift_and_independent_ones_have_one():
    true = np.array([[1, 1, -1], [1, -1, -1], [-1, 1, -1], [-1, -1, -1]])
    lift = hml_figures.label_lift(true)
    assert lift[0, 1] == 1 and lift[0, 0] == 2 and np.isnan(lift[2]).all()
