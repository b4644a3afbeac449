"""What the figures of Two-way measure and draw."""

import numpy as np
import pytest
import torch
from figure_runs import photos, trained, world  # noqa: F401 (fixtures)

from spml_nb import models
from spml_nb.data import loading
from spml_nb.replication import figure_drawing
from spml_nb.replication.papers import two_way_figures
from spml_nb.sweeps import transfer


def test_the_tempered_log_sum_exp():
    gap = np.array([0.0, 0.5, 3.0, 50.0])
    for T in two_way_figures.TEMPERATURES:
        plain = [T * np.log(np.exp(5 / T) + np.exp((5 - g) / T)) - 5 for g in gap]
        assert np.allclose(
            two_way_figures.temper_gap(gap, T), plain
        ) and two_way_figures.temper_gap(gap, T)[0] == pytest.approx(T * np.log(2))


def test_features_are_measured_as_trained_and_as_before(photos, monkeypatch):  # noqa: F811
    run = trained(
        photos,
        loss='softmax',
        head='linear',
        labels='full',
        regime='finetune',
        weights='none',
        backbone='mini',
        image_size=40,
        seed=3,
    )
    data, asked, measured = loading.load(photos), [], []
    monkeypatch.setattr(
        two_way_figures.loading,
        'load',
        lambda name, min_positives: asked.append((name, min_positives)) or data,
    )

    def measure(network, given, image_size):
        measured.append(network.backbone.state_dict())
        return {'map': float(len(measured))} if given is data and image_size == 40 else None

    monkeypatch.setattr(two_way_figures, 'multi_label_transfer', measure)
    found = two_way_figures.score_transfer(run)
    assert asked == [(name, 20) for name in two_way_figures.TARGETS]
    assert {name: values.tolist() for name, values in found.items()} == {
        'voc12_animals': [1, 2],
        'coco18': [3, 4],
        'mirflickr14': [5, 6],
    }
    torch.manual_seed(3)
    before = models.create(
        'mini', len(data.class_names), weights='none'
    ).backbone.state_dict()  # as the trainer makes it
    after = transfer.load_run_backbone(run.folder).backbone.state_dict()
    for k, expected in enumerate([after, before] * 3):
        assert all(torch.equal(measured[k][name], value) for name, value in expected.items())
    assert any(not torch.equal(after[name], value) for name, value in before.items())


def test_a_panel_shows_every_seed_its_mean_and_the_untrained_networks():
    values = {('ASL', 0): (10, 4), ('ASL', 1): (14, 6), ('Softmax', 0): (20, 4)}
    parts = {
        f'{row} {seed}': {'dataset': 'imagenet', 'series': row, 'values': [], 'seed': seed}
        for row, seed in values
    }
    arrays = {
        f'{row} {seed}': dict.fromkeys(two_way_figures.TARGETS, np.array(both, float))
        for (row, seed), both in values.items()
    }
    picture = two_way_figures.FIGURES['T8'].draw(
        figure_drawing.FigureArrays({'parts': parts}, arrays)
    )
    assert [ax.get_title() for ax in picture.axes] == list(two_way_figures.TARGETS)
    drawn = [[list(line.get_ydata()) for line in ax.lines] for ax in picture.axes]
    assert drawn == [[[10, 14], [12, 12], [20], [20, 20], [pytest.approx(14 / 3)] * 2]] * 3
    assert [tick.get_text() for tick in picture.axes[0].get_xticklabels()] == [
        'ASL',
        'Softmax',
        'Ours',
    ]
