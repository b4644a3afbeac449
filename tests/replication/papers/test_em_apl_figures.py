"""What the figures of EM/APL measure."""
import pytest
from figure_runs import photos, trained, world  # noqa: F401 (fixtures)

from spml_nb import training
from spml_nb.replication import measuring
from spml_nb.replication.papers import em_apl_figures


def test_class_densities_count_every_entry_once(photos):  # noqa: F811
    run = trained(photos)
    seen, true_test = measuring.examine(run), measuring.examine(run, 'test').true
    z, true = seen.task.observed, seen.true
    found = em_apl_figures.class_density(run)
    for k, name in enumerate(found['names']):
        c = seen.task.data.class_names.index(name)
        assert found['counts'][k].sum(1).tolist() == [((z == 0) & (true == 1))[:, c].sum(), ((z == 0) & (true == -1))[:, c].sum(),
                                                      (true_test[:, c] == 1).sum(), (true_test[:, c] == -1).sum()]
        assert found['ap'][k] == pytest.approx(100 * run.result()['scores']['test_ap'][c], rel=1e-5)


def test_shares_of_unannotated_labels(photos):  # noqa: F811
    run = trained(photos)
    task = training.make_task(run.config)
    shares = []
    for z, t in zip(task.observed.T, task.data.labels[task.train].T, strict=True):
        hidden = [b for a, b in zip(z, t, strict=True) if a == 0]
        shares.append(sum(b == 1 for b in hidden) / len(hidden))
    assert em_apl_figures.proportions(run)['positive'].tolist() == pytest.approx(sorted(shares, reverse=True))
