"""What a run does at each step: the optimiser's groups, the course of the rate, the averaged copy,
the penalty and the views.
"""

from inspect import signature
from itertools import pairwise

import numpy as np
import pytest
import torch
from quick import config

from spml_nb import methods, models, runs, training
from spml_nb.base.errors import SpmlError
from spml_nb.data import views
from spml_nb.training.schedule import Stage, make_optimizer, make_schedule, plan_stages


def groups(regime, loss='an', **given):
    """(learning rate, weight decay, number of tensors) of each group of the optimiser, and the
    optimiser.
    """
    given = runs.resolve(
        config(
            'mini_voc', loss=loss, regime=regime, head_lr_multiplier=10, weight_decay=0.01, **given
        )
    )
    model = models.create('mini', 3, head=given.head)
    for p in model.backbone_parameters():
        p.requires_grad_(regime != 'linear')
    method = methods.create(
        loss,
        torch.eye(3, dtype=torch.int8),
        epochs=2,
        features=model.embedding_dim,
        **given.hparams,
    )
    optimizer = make_optimizer(
        given, Stage('linear' if regime == 'linear' else 'finetune', 2, 0.003, 0, 1), model, method
    )
    return (
        [
            (group['lr'], group['weight_decay'], len(group['params']))
            for group in optimizer.param_groups
        ],
        optimizer,
        model,
    )


def test_the_optimiser_trains_backbone_and_head_at_their_rates_and_a_head_alone_at_its_own():
    found, optimizer, model = groups('finetune', optimizer='adamw')
    head = len(list(model.head.parameters()))
    assert (
        found
        == [
            (0.003, 0.01, len(list(model.backbone_parameters()))),
            (pytest.approx(0.03), 0.01, head),
        ]
        and type(optimizer) is torch.optim.AdamW
    )
    found, optimizer, _ = groups('linear', optimizer='sgd', momentum=0.8, nesterov=True)
    assert found == [(0.003, 0.01, head)] and type(optimizer) is torch.optim.SGD
    assert (optimizer.defaults['momentum'], optimizer.defaults['nesterov']) == (0.8, True)
    assert type(groups('linear')[1]) is torch.optim.Adam
    found, _, _ = groups('linear', loss='role', hparams={'estimate_lr': 10.0})
    assert found[0][0] == 0.003 and [rate for rate, *_ in found[1:]] == [
        pytest.approx(0.03)
    ]  # the table of estimates


@pytest.mark.parametrize(
    ('given', 'rates'), [({}, [0.01, 0.01]), ({'stage2_lr': 2e-4}, [0.01, 2e-4])]
)
def test_the_second_stage_has_a_rate_of_its_own_if_one_is_given(given, rates):
    planned = runs.resolve(config('mini_voc', loss='lac', regime='linear', lr=0.01, **given))
    assert [stage.lr for stage in plan_stages(planned, methods.find('lac'))] == rates


@pytest.mark.parametrize(
    'given', [{'loss': 'em'}, {'loss': 'lac', 'hparams': {'two_stage': False}}]
)
def test_a_rate_for_a_stage_that_there_is_not_is_refused_before_anything_is_written(
    given, tmp_path
):
    planned = config('mini_voc', regime='linear', stage2_lr=1e-3, **given)
    with pytest.raises(SpmlError, match=f"stage2_lr=0.001, but '{given['loss']}' trains in one"):
        training.train(planned, root=tmp_path)
    assert not [path for path in tmp_path.rglob('*') if path.suffix != '.lock']


@pytest.mark.parametrize('schedule', ['constant', 'cosine', 'onecycle'])
def test_the_rate_takes_its_course_batch_by_batch(photo_folder, schedule):
    rates = []
    training.train(
        config(photo_folder, regime='linear', schedule=schedule, lr=0.01, epochs=2, batch_size=4),
        on_step=lambda trainer, *_: rates.append(trainer.optimizer.param_groups[0]['lr']),
    )  # as it is for the next step
    n = len(rates)
    assert n == 2 * -(-38 // 4)
    if schedule == 'constant':
        assert rates == [0.01] * n
    elif schedule == 'cosine':
        assert rates == pytest.approx(
            [0.005 * (1 + np.cos(np.pi * k / n)) for k in range(1, n + 1)], abs=1e-9
        )
    else:
        assert (
            np.argmax(rates) == round(0.2 * n) - 2
            and max(rates) == pytest.approx(0.01, rel=0.02)
            and rates[-2] < 1e-6
        )


def test_the_averaged_copy_follows_the_weights(photo_folder):
    "The decay is the one given, or that of a tenth of the run where this is less."
    seen = {}
    for ema, decay in ((0.5, 0.5), (0.9997, 1 - 10 / 38)):
        pairs = []

        def step(trainer, *_, pairs=pairs):
            pairs.append(
                [
                    module.weight.detach().clone()
                    for module in (trainer.averaged.module, trainer.module)
                ]
            )

        training.train(config(photo_folder, regime='linear', ema=ema, batch_size=2), on_step=step)
        for (before, _), (after, own) in pairwise(pairs):
            assert torch.allclose(after, decay * before + (1 - decay) * own, atol=1e-6)
        seen[ema] = len(pairs)
    assert set(seen.values()) == {38}


def test_a_penalty_is_part_of_the_loss(photo_folder):
    def first(trainer, index, outputs, loss):
        lost.append((loss.item(), trainer.method.loss(outputs, index).item()))

    for loss, more in (('l2', True), ('an', False)):
        lost = []
        training.train(
            config(
                photo_folder,
                loss=loss,
                regime='linear',
                epochs=1,
                **({'hparams': {'weight': 1.0}} if more else {}),
            ),
            on_step=first,
        )
        assert lost and all((total > own + 1e-3) == more for total, own in lost)


@pytest.mark.parametrize(('loss', 'roles'), [('an', ['weak']), ('lac_plc', ['weak', 'strong'])])
def test_a_method_is_trained_on_its_views_and_scored_on_the_plain_one(photo_folder, loss, roles):
    given = runs.resolve(config(photo_folder, loss=loss, regime='finetune', epochs=1))
    trainer = training.Trainer(given, runs.Run(given), training.make_task(given))
    trainer.begin(1, trainer.stages[0])
    asked, batch = [], trainer.source.batch

    def noted(rows, role):
        asked.append(role)
        return batch(rows, role)

    trainer.source.batch = noted
    trainer.watch.start(1)
    trainer.method.start_epoch(1)
    trainer.step(torch.arange(6))
    assert asked == roles
    asked.clear()
    trainer.score()
    assert set(asked) == {'plain'}


def test_the_strong_view_is_as_strong_as_the_paper_and_its_code_say():
    """LAC, section 4.1: Cutout and RandAugment; half the sides, two operations of magnitude 9, and
    the jitter are the code's.
    """
    assert {
        name: p.default
        for name, p in signature(views.strong_view).parameters.items()
        if name != 'images'
    } == {
        'p': 0.5,
        'pixels': 0,
        'cutout': 0.5,
        'operations': 2,
        'magnitude': 9,
        'jitter': 0.4,
        'jitter_p': 0.8,
        'grey_p': 0.2,
        'keep_hue': False,
    }


@pytest.mark.parametrize(
    ('optimizer', 'at_peak'), [('sgd', 0.3), ('adamw', 0.85)]
)  # Adam's first moment takes the usual course
def test_one_cycle_leaves_a_given_momentum_alone(optimizer, at_peak):
    given = runs.resolve(
        runs.Config(loss='an', optimizer=optimizer, schedule='onecycle', momentum=0.3)
    )
    weights = torch.nn.Parameter(torch.zeros(1))
    made = (
        torch.optim.SGD([weights], lr=0.1, momentum=0.3)
        if optimizer == 'sgd'
        else torch.optim.AdamW([weights], lr=0.1)
    )
    course = make_schedule(given, made, 10)
    made.step(), course.step()
    group = made.param_groups[0]
    assert (group['momentum'] if optimizer == 'sgd' else group['betas'][0]) == pytest.approx(
        at_peak, abs=0.05
    )
