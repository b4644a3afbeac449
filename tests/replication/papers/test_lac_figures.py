"""What LAC's figures measure."""
import numpy as np
from figure_runs import photos, trained, world  # noqa: F401 (fixtures)

from spml_nb.replication import measuring
from spml_nb.replication.papers import lac_figures


def test_maps_are_of_the_observed_positive_and_of_the_surest_others(photos):  # noqa: F811
    run = trained(photos, loss='lac', hparams={'stage2_threshold': 0.5})
    found, seen = lac_figures.attention(run), measuring.examine(run)
    assert (found['kinds'][:, 0] == 2).all() and (found['kinds'][:, 1:] < 2).all() and found['maps'][:, 0].max((1, 2)).min() == 255
    row = [np.array_equal(seen.trainer.images.store[i], found['images'][0]) for i in seen.index].index(True)
    for name, kind in zip(found['names'][0, 1:], found['kinds'][0, 1:], strict=True):
        c = seen.task.data.class_names.index(name)
        assert kind == (seen.true[row, c] if seen.logits[row, c] >= 0 else 0)
