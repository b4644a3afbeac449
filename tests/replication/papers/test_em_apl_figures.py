"""What the figures of EM/APL measure."""

import numpy as np
import pytest
from figure_runs import photos, trained, world  # noqa: F401 (fixtures)

from spml_nb import training
from spml_nb.replication import figure_drawing, run_measurements
from spml_nb.replication.papers import em_apl_figures


def test_class_densities_count_every_entry_once(photos):  # noqa: F811
    run = trained(photos)
    seen, true_test = (
        run_measurements.score_run(run),
        run_measurements.score_run(run, 'test').true,
    )
    z, true = seen.task.observed, seen.true
    found = em_apl_figures.class_density(run)
    for k, name in enumerate(found['names']):
        c = seen.task.data.class_names.index(name)
        assert found['counts'][k].sum(1).tolist() == [
            ((z == 0) & (true == 1))[:, c].sum(),
            ((z == 0) & (true == -1))[:, c].sum(),
            (true_test[:, c] == 1).sum(),
            (true_test[:, c] == -1).sum(),
        ]
        assert found['ap'][k] == pytest.approx(100 * run.result()['scores']['test_ap'][c], rel=1e-5)


def test_shares_of_unannotated_labels(photos):  # noqa: F811
    run = trained(photos)
    task = training.make_task(run.config)
    shares = []
    for z, t in zip(task.observed.T, task.data.labels[task.train].T, strict=True):
        hidden = [b for a, b in zip(z, t, strict=True) if a == 0]
        shares.append(sum(b == 1 for b in hidden) / len(hidden))
    assert em_apl_figures.count_label_kinds(run)['positive'].tolist() == pytest.approx(
        sorted(shares, reverse=True)
    )


def test_cumulative_shares_go_from_nothing_to_everything():
    assert em_apl_figures._shares_up_to(np.array([1, 0, 3])).tolist() == [
        0,
        25,
        25,
        100,
    ] and em_apl_figures._shares_up_to(np.zeros(2)).tolist() == [0, 0, 0]
    rows = {
        name: {
            'counts': np.full((8, 4, 50), k + 1),
            'ap': np.full(8, 40.0 + 4 * k),
            'names': np.array(list('abcdefgh')),
        }
        for k, name in enumerate(('AN', 'EM'))
    }
    about = {
        'parts': {
            name: {'dataset': 'coco14', 'series': name, 'values': [], 'seed': 0} for name in rows
        },
        'data': [['coco14', 'coco18']],
    }
    picture = em_apl_figures.FIGURES['11'].draw(figure_drawing.FigureArrays(about, rows))
    assert [ax.get_title() for ax in picture.axes[:4]] == [
        f'{c}\nAP 40.0 → 44.0 (+10 %)'
        for c in 'acfh'  # the first and the last, too
    ] and len(picture.axes) == 8
    assert all(line.get_ydata()[-1] == 100 for ax in picture.axes for line in ax.lines)
