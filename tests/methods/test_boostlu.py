"""BoostLU: the boosted mean of maps, and that the methods train, rank, resume and are told apart by
it. The formula is checked in the notebook.
"""

import numpy as np
import pytest
import torch

from spml_nb import training
from spml_nb.base.errors import SpmlError
from spml_nb.methods.boostlu import boosted_logits
from spml_nb.methods.core import ViewOutputs, create, find, resolve_hparams
from spml_nb.models.heads import Outputs
from spml_nb.replication import run_measurements
from spml_nb.runs.config import Config, resolve
from spml_nb.runs.folder import Run
from spml_nb.training.network import open_network

NAMES = {
    'boostlu_llr': ('llr', 0.005),
    'boostlu_llct': ('llct', 0.002),
    'boostlu_llcp': ('llcp', 0.001),
}


def outputs(maps):
    return ViewOutputs(weak=Outputs(maps.mean((2, 3)), maps=maps))


def test_only_what_speaks_for_a_class_is_multiplied():
    maps = torch.tensor([[[[1.0, -1.0], [0.0, 2.0]], [[-4.0, -2.0], [-1.0, -1.0]]]])
    assert boosted_logits(maps, 5.0).tolist() == [[3.5, -2.0]] and boosted_logits(
        maps, 1.0
    ).tolist() == [[0.5, -2.0]]
    assert (
        boosted_logits(maps.half() * 1.5e4, 5.0).isfinite().all()
    )  # half precision would overflow


@pytest.mark.parametrize('name', NAMES)
def test_it_is_large_loss_on_the_boosted_logits_and_at_alpha_1_on_the_plain_ones(name):
    z = torch.eye(6, 5)
    maps = torch.randn(6, 5, 3, 3, generator=torch.manual_seed(0))
    index = torch.tensor([4, 0, 2, 5, 1, 3])
    for alpha in (1.0, 5.0):
        ours = create(name, z, epochs=4, delta=0.1, alpha=alpha)
        theirs = create(NAMES[name][0], z, epochs=4, delta=0.1)
        for e in (1, 2, 3):
            ours.start_epoch(e), theirs.start_epoch(e)
            s = maps.mean((2, 3)) if alpha == 1 else boosted_logits(maps)
            torch.testing.assert_close(
                ours.loss(outputs(maps), index), theirs.loss(ViewOutputs(weak=Outputs(s)), index)
            )
            assert ours.acts_since == theirs.acts_since and torch.equal(ours.z, theirs.z)
        torch.testing.assert_close(ours.predict(outputs(maps)), s)


def test_published_values_and_recipe():
    for name, (plain, delta) in NAMES.items():
        for family in ('voc', 'coco', 'nus', 'cub'):
            assert resolve_hparams(name, family, {}) == {
                'delta': delta,
                'alpha': 5.0,
                'reduction': 'mean',
            }
        config = resolve(Config(loss=name))
        assert (
            config.head == 'maps'
            and config.head_lr_multiplier == 10
            and 'alpha' not in find(plain).values['voc']
        )


@pytest.mark.parametrize('regime', ['linear', 'finetune'])
def test_a_run_ranks_by_the_boosted_logits_and_its_network_does_too(photo_folder, regime):
    config = Config(
        loss='boostlu_llr',
        dataset=str(photo_folder),
        backbone='mini',
        regime=regime,
        epochs=2,
        hparams={'delta': 0.05},
    )
    result = training.train(config)
    network, plain = open_network(result.folder), open_network(result.folder)
    plain.method = None
    pixels = torch.randint(0, 256, (4, 3, 40, 40), dtype=torch.uint8)
    with torch.no_grad():
        head = network.model.head(network.features(pixels / 255))
        torch.testing.assert_close(network(pixels), boosted_logits(head.maps))
        torch.testing.assert_close(plain(pixels), head.logits)
        assert not torch.allclose(network(pixels), plain(pixels))
    pull, _, _, logits = run_measurements.measure_pulls(Run(resolve(config)))
    assert (
        pull.shape == logits.shape == (len(pull), 3)
        and pull.abs().sum() > 0
        and logits.isfinite().all()
    )


def test_with_alpha_1_a_run_is_that_of_large_loss_on_the_linear_head(photo_folder):
    same = {
        'dataset': str(photo_folder),
        'backbone': 'mini',
        'regime': 'finetune',
        'epochs': 3,
        'lr': 1e-3,
    }
    one = training.train(Config(loss='boostlu_llr', hparams={'alpha': 1.0, 'delta': 0.02}, **same))
    other = training.train(Config(loss='llr', hparams={'delta': 0.02}, **same))
    np.testing.assert_allclose(one.logits['test'], other.logits['test'], atol=1e-3)


@pytest.mark.parametrize(
    ('attempt', 'word'),
    [
        (lambda: boosted_logits(torch.zeros(1, 1, 1, 1), 0.0), 'alpha must be above 0'),
        (
            lambda: create('boostlu_llct', torch.eye(2), epochs=1, alpha=-1.0),
            'alpha must be above 0',
        ),
        (
            lambda: create('boostlu_llr', torch.eye(2), epochs=1).predict(
                ViewOutputs(plain=Outputs(torch.eye(2)))
            ),
            "the head 'maps'",
        ),
        (
            lambda: resolve(Config(loss='boostlu_llr', head='linear')),
            "head for 'boostlu_llr' 'linear'; allowed: maps",
        ),
        (lambda: create('boostlu_llr', torch.eye(2), epochs=1, delta=2.0), 'delta'),
    ],
)
def test_wrong_values_are_named(attempt, word):
    with pytest.raises(SpmlError, match=word):
        attempt()
