"""What OPML's figures measure."""

import numpy as np
import pytest
from figure_runs import photos, trained, world  # noqa: F401 (fixtures)

from spml_nb.replication import run_measurements
from spml_nb.replication.papers import opml_figures
from spml_nb.runs.config import Config


def test_confidences_count_every_positive_once_and_maps_are_those_of_the_classes_named(photos):  # noqa: F811
    run = trained(photos, loss='opml')
    found, seen = opml_figures.make_activation_maps(run), run_measurements.score_run(run, 'test')
    assert opml_figures.count_confidences(run)['counts'].sum() == (seen.true > 0).sum()
    names = seen.task.data.class_names
    assert (
        found['maps'].shape[:2] == found['names'].shape == found['kinds'].shape
        and found['images'].dtype == np.uint8
    )
    assert (found['kinds'][:-2][found['names'][:-2] != ''] == 1).all() and (
        found['kinds'][-2:] == -1
    ).any(1).all()
    for image, given, kinds in zip(found['images'], found['names'], found['kinds'], strict=True):
        row = [k for k, i in enumerate(seen.index) if np.array_equal(seen.images.store[i], image)]
        assert all(
            seen.true[row[0], names.index(n)] == kind
            for n, kind in zip(given, kinds, strict=True)
            if n
        )


def test_positives_that_turned_negative_are_those_that_nobody_annotated(photos):  # noqa: F811
    config = Config(
        loss='opml', dataset=str(photos), backbone='mini', epochs=2, labels='single', label_seed=0
    ).changed(selection='last')
    run = run_measurements.note_training(config)
    shares, seen = opml_figures.negative_scores(run)['negative'], run_measurements.score_run(run)
    hidden = (seen.task.observed == 0) & (seen.true == 1)
    assert len(shares) == 2
    assert shares[-1] == pytest.approx(100 * (seen.logits[hidden] < 0).mean(), abs=1e-3)
