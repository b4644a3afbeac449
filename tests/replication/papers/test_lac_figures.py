"""What LAC's figures measure."""

import re

import numpy as np
import pytest
import torch
from figure_runs import photos, trained, world  # noqa: F401 (fixtures)
from sklearn.metrics import average_precision_score

from spml_nb.replication import figure_drawing, run_measurements
from spml_nb.replication.papers import lac_figures


def test_maps_are_of_the_observed_positive_and_of_the_surest_others(photos):  # noqa: F811
    run = trained(photos, loss='lac', hparams={'stage2_threshold': 0.5})
    found, seen = lac_figures.make_attention_maps(run), run_measurements.score_run(run)
    assert (
        (found['kinds'][:, 0] == 2).all()
        and (found['kinds'][:, 1:] < 2).all()
        and found['maps'][:, 0].max((1, 2)).min() == 255
    )
    row = [np.array_equal(seen.images.store[i], found['images'][0]) for i in seen.index].index(True)
    for name, kind in zip(found['names'][0, 1:], found['kinds'][0, 1:], strict=True):
        c = seen.task.data.class_names.index(name)
        assert kind == (seen.true[row, c] if seen.logits[row, c] >= 0 else 0)


def test_the_figure_counts_what_is_identified(photos):  # noqa: F811
    run = trained(photos, loss='lac', hparams={'stage2_threshold': 0.5})
    found = lac_figures.make_attention_maps(run)
    given = figure_drawing.FigureArrays(
        {'parts': {'x': {'dataset': 'coco14', 'series': 'LAC', 'values': [], 'seed': 0}}},
        {'x': found},
    )
    seen = run_measurements.score_run(run)
    hidden = (seen.task.observed == 0) & (seen.true > 0)
    surer = (seen.task.observed == 0) & (seen.logits >= 0)  # probabilities of a half and more
    assert found['counts'].tolist() == [surer.sum(), (surer & hidden).sum(), hidden.sum()]
    text = lac_figures.FIGURES['6'].draw(given).get_supxlabel()
    numbers = [(surer & hidden).sum(), hidden.sum(), (surer & ~hidden).sum()]
    assert [int(number) for number in re.findall(r'\d+', text)] == numbers


@pytest.mark.parametrize('loss', ['lac', 'an'])
def test_hidden_positives_are_counted_and_told_from_other_unobserved_labels(photos, loss):  # noqa: F811
    hparams = {'stage2_threshold': 0.5} if loss == 'lac' else {}
    run = trained(photos, loss=loss, head='labelwise', hparams=hparams)
    found, seen = lac_figures.hidden_positives(run), run_measurements.score_run(run)
    z = seen.task.observed
    hidden = (z == 0) & (seen.true > 0)
    threshold = 0 if loss == 'lac' else np.log(9)  # of a probability of a half, and of 0.9
    assert found['recall'] == pytest.approx(100 * (seen.logits[hidden] >= threshold).mean())
    each = [
        average_precision_score(hidden[z[:, c] == 0, c], seen.logits[z[:, c] == 0, c])
        for c in range(z.shape[1])
        if hidden[:, c].any()
    ]
    assert found['ap'] == pytest.approx(100 * np.mean(each), abs=1e-3)


def test_a_silhouette_sets_embeddings_beside_their_own_class_and_the_nearest_other(photos):  # noqa: F811
    run = trained(photos, loss='an', head='labelwise')
    seen = run_measurements.open_own_data(run, 'val')
    with torch.no_grad():
        f = seen.module.eval()(seen.source.batch(seen.index, 'plain')).embeddings.numpy()
    photo, of = np.nonzero(seen.true > 0)
    unit = f[photo, of] / np.linalg.norm(f[photo, of], axis=1, keepdims=True)
    distance = 1 - unit @ unit.T
    values = []
    for k, c in enumerate(of):
        own = distance[k, of == c]
        if len(own) == 1:
            values.append(0)
            continue
        a = own.sum() / (len(own) - 1)
        b = min(distance[k, of == other].mean() for other in set(of) - {c})
        values.append((b - a) / max(a, b))
    assert lac_figures.hidden_positives(run)['silhouette'] == pytest.approx(
        np.mean(values), abs=1e-4
    )


def test_the_figure_has_a_panel_for_each_quantity():
    arrays = {'recall': np.float32(4), 'ap': np.float32(20), 'silhouette': np.float32(0.1)}
    parts = {
        f'{dataset} {name}': {'dataset': dataset, 'series': name, 'values': [], 'seed': 0}
        for dataset in ('voc12', 'coco14')
        for name in lac_figures.MODELS
    }
    about = {'parts': parts, 'data': [['voc12', 'voc12_animals'], ['coco14', 'coco18']]}
    picture = lac_figures.FIGURES['F6'].draw(
        figure_drawing.FigureArrays(about, dict.fromkeys(parts, arrays))
    )
    assert [len(ax.lines) for ax in picture.axes] == [6, 6, 6]
