"""SPLC: the authors' values in the first epoch and later, and when its correction begins. The
formula is checked in the notebook.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.methods.core import ViewOutputs, create, resolve_hparams
from spml_nb.methods.splc import missing_positives, splc_loss


def run(method, s, index=None):
    return method.loss(
        ViewOutputs(weak=SimpleNamespace(logits=s)),
        torch.arange(len(s)) if index is None else index,
    )


@pytest.mark.parametrize(('case', 'epoch'), [('splc_first', 1), ('splc', 2), ('splc', 7)])
def test_golden_through_the_method(case, epoch):
    with np.load(Path(__file__).parents[1] / 'hill_splc.npz') as golden:
        s = torch.tensor(golden['hill/logits'], requires_grad=True)
        z = torch.tensor(golden['hill/z'])
        method = create('splc', z, epochs=9)
        method.start_epoch(epoch)
        value = run(method, s)
        gradient = torch.autograd.grad(value, s)[0].numpy()
        assert abs(value.item() - golden[f'{case}/loss']) <= 1e-6 * golden[f'{case}/loss']
        assert (
            np.abs(gradient - golden[f'{case}/grad']).max()
            <= 1e-6 * np.abs(golden[f'{case}/grad']).max()
        )
    assert torch.equal(method.z, z.to(torch.int8))  # nothing is written down


def test_known_labels_are_never_corrected_and_the_threshold_itself_is_not_above_it():
    s, z = torch.tensor([[9.0, 9.0, 9.0, 0.0, -1.0]]), torch.tensor([[1, -1, 0, 0, 0]])
    assert missing_positives(s, z, 0.5).tolist() == [[False, False, True, False, False]]
    assert missing_positives(torch.tensor([[0.41, 0.40]]), torch.zeros(1, 2)).tolist() == [
        [True, False]
    ]  # p is above 0.6 from 0.4055 on
    assert missing_positives(s, z, 1.0).sum() == 0 and missing_positives(s, z, 0.0).tolist() == [
        [False, False, True, True, True]
    ]


def test_a_corrected_label_has_no_margin():
    s = torch.tensor([[2.0]], dtype=torch.float64)
    unknown, positive = torch.zeros(1, 1), torch.ones(1, 1)
    assert splc_loss(s, unknown) == splc_loss(s, positive, margin=0.0) < splc_loss(s, positive)


def test_the_mechanism_begins_with_the_first_corrected_label():
    z, sure, unsure = torch.eye(3), torch.full((3, 3), 2.0), torch.full((3, 3), -2.0)
    for later, wanted in ((sure, [-1, 2, 2, 2]), (unsure, [-1, -1, -1, 4])):
        method, seen = create('splc', z, epochs=4), []
        for e, s in enumerate((sure, later, later, sure), 1):
            method.start_epoch(e)
            run(method, s)
            seen.append(int(method.acts_since))
        assert seen == wanted
    method.start_stage(1)
    assert method.acts_since == -1


def test_the_published_values_are_used_on_every_data_set():
    for family in ('voc', 'coco', 'nus', 'cub', 'other'):
        assert resolve_hparams('splc', family, {}) == {
            'threshold': 0.6,
            'margin': 1.0,
            'gamma': 2.0,
            'reduction': 'sum',
        }


@pytest.mark.parametrize(
    ('attempt', 'word'),
    [
        (
            lambda s, z: splc_loss(s, z, threshold=1.5),
            'threshold must lie between 0 and 1, not 1.5',
        ),
        (lambda s, z: splc_loss(s, z, gamma=-1.0), 'gamma'),
        (lambda s, z: splc_loss(s, z[:1]), r'\(1, 3\)'),
        (lambda s, z: create('splc', z, epochs=1, threshold=-0.1), 'threshold'),
    ],
)
def test_wrong_values_are_named(attempt, word):
    with pytest.raises(SpmlError, match=word):
        attempt(torch.zeros(2, 3), torch.zeros(2, 3))
