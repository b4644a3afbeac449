"""What LAC's figures measure."""

import re

import numpy as np
from figure_runs import photos, trained, world  # noqa: F401 (fixtures)

from spml_nb.replication import drawing, measuring
from spml_nb.replication.papers import lac_figures


def test_maps_are_of_the_observed_positive_and_of_the_surest_others(photos):  # noqa: F811
    run = trained(photos, loss='lac', hparams={'stage2_threshold': 0.5})
    found, seen = lac_figures.attention(run), measuring.examine(run)
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
    found = lac_figures.attention(run)
    given = drawing.Collected(
        {'parts': {'x': {'dataset': 'coco14', 'series': 'LAC', 'values': [], 'seed': 0}}},
        {'x': found},
    )
    seen = measuring.examine(run)
    hidden = (seen.task.observed == 0) & (seen.true > 0)
    surer = (seen.task.observed == 0) & (seen.logits >= 0)  # probabilities of a half and more
    assert found['counts'].tolist() == [surer.sum(), (surer & hidden).sum(), hidden.sum()]
    text = lac_figures.FIGURES['6'].draw(given).get_supxlabel()
    numbers = [(surer & hidden).sum(), hidden.sum(), (surer & ~hidden).sum()]
    assert [int(number) for number in re.findall(r'\d+', text)] == numbers
