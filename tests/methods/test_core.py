"""The registry; every registered method gives gradients and trains through the loop; its state
survives an interruption.
"""

import copy
import multiprocessing
import pickle
import warnings

import numpy as np
import pytest
import torch
from conftest import check_resumes_equally
from side_files import draw_side, invented, side_of

from spml_nb import methods, models, training
from spml_nb.base.errors import SpmlError, SpmlWarning
from spml_nb.methods.baselines import decay_parameters
from spml_nb.methods.core import (
    Method,
    Uniform,
    ViewOutputs,
    check_labels,
    find,
    find_equal_loss,
    find_family,
    forward_views,
    register,
    register_loss,
    resolve_hparams,
)
from spml_nb.models.heads import Outputs
from spml_nb.replication import published
from spml_nb.runs.config import Config, resolve
from spml_nb.training.batches import image_source

STATEFUL = {
    'role': {},
    'em_apl': {'warm_up': 1},
    'llcp': {'delta': 0.02},
    'opml_sp': {},
    'hml': {},
    'lac': {'threshold': 0.5},
    'gr': {},
    'splc': {},
    'boostlu_llcp': {'delta': 0.02},
    'crisp': {},
}


def config(photo_folder, loss, **given):
    if find(loss).side:
        given['side'] = draw_side(photo_folder, photo_folder / 'side.csv')
    return Config(
        **{
            'loss': loss,
            'dataset': str(photo_folder),
            'backbone': 'mini',
            'regime': 'linear',
            'epochs': 2,
            'cached_views': 2,
            **given,
        }
    )


@pytest.mark.parametrize('loss', methods.names())
def test_every_method_trains(photo_folder, loss):
    hparams = STATEFUL.get(loss, {})
    result = training.train(config(photo_folder, loss, hparams=hparams))
    assert np.isfinite(result.curves['loss']).all() and np.isfinite(result.logits['test']).all()
    assert 0 <= result.scores['test_map'] <= 100


@pytest.mark.parametrize('head', ['linear', 'cosine', 'labelwise', 'maps'])
def test_a_loss_works_with_any_head(photo_folder, head):
    assert np.isfinite(training.train(config(photo_folder, 'em', head=head)).logits['test']).all()


def test_a_head_that_makes_no_sense_is_refused(photo_folder):
    with pytest.raises(SpmlError, match="head for 'lac' 'linear'; allowed: labelwise"):
        training.train(config(photo_folder, 'lac', head='linear'))


@pytest.mark.parametrize('loss, hparams', STATEFUL.items())
def test_state_survives_an_interruption_after_every_epoch(photo_folder, loss, hparams, monkeypatch):
    epochs = 2 if loss == 'lac' else 3  # of each of its two stages
    check_resumes_equally(
        config(photo_folder, loss, hparams=hparams, regime='finetune', epochs=epochs, lr=1e-3),
        monkeypatch,
    )


NAMES = {
    'an',
    'bce',
    'wbce',
    'wan',
    'dw',
    'ls',
    'nls',
    'l1',
    'l2',
    'epr',
    'role',
    'entmin',
    'focal',
    'asl',
    'zlpr',
    'llr',
    'llct',
    'llcp',
    'em',
    'em_apl',
    'hml',
    'hml_fixed',
    'opml',
    'opml_sp',
    'two_way',
    'two_way_class',
    'two_way_sample',
    'joint',
    'softmax',
    'softmax_two_way',
    'multi_similarity',
    'lac',
    'lac_plc',
    'gr',
    'hill',
    'splc',
    'boostlu_llr',
    'boostlu_llct',
    'boostlu_llcp',
    'crisp',
    'nnpu',
    'epr_count',
    'pseudo_scores',
    'group_consistency',
}


def test_every_promised_method_is_registered():
    assert set(methods.names()) >= NAMES


@pytest.mark.parametrize('name', methods.names())
def test_every_method_gives_a_finite_loss_with_gradients(name):
    torch.manual_seed(0)
    z = torch.eye(6, dtype=torch.int8)[torch.randint(6, (20,))]
    method = methods.create(name, z, epochs=4, features=8)
    method.take(invented(20, 6))
    model = torch.nn.Linear(4, 6)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # em_apl: too few epochs to select
        method.start_stage(1)
    index = torch.tensor([3, 4, 11])

    def score(view='plain'):
        return torch.linspace(-3, 3, 120).view(20, 6)

    for e in (1, 2, 3, 4):
        method.start_epoch(e)
        logits = model(torch.randn(3, 4))
        maps = torch.randn(3, 6, 2, 2) + logits[..., None, None]
        outputs = Outputs(
            logits, torch.tanh(logits), torch.randn(3, 6, 8) + logits[..., None], None, maps
        )
        value = method.loss(ViewOutputs({role: outputs for role in method.views}), index)
        penalty = method.penalty(model)
        value = value if penalty is None else value + penalty
        assert value.ndim == 0 and torch.isfinite(value)
        (gradient,) = torch.autograd.grad(value, model.weight)
        assert torch.isfinite(gradient).all() and gradient.abs().sum() > 0
        with torch.no_grad():
            method.end_epoch(e, score)
    fresh = methods.create(name, z, epochs=4, features=8)
    fresh.load_state_dict(method.state_dict())


# ---- what begins later than the first step

MECHANISMS = {
    'em_apl': {'warm_up': 4},
    'llr': {},
    'llct': {},
    'llcp': {'delta': 0.05},
    'opml_sp': {'ratio': 0.5},
    'lac': {},
    'splc': {},
    'boostlu_llr': {},
    'boostlu_llct': {},
    'boostlu_llcp': {'delta': 0.05},
    'crisp': {},
}


def test_the_methods_with_a_mechanism_are_these():
    assert {name for name in methods.names() if name in NAMES and find(name).mechanism} == set(
        MECHANISMS
    )


@pytest.mark.parametrize('name', sorted(NAMES))
def test_acts_since_is_in_the_state_of_methods_with_a_mechanism_only(name):
    torch.manual_seed(0)
    z = torch.eye(6, dtype=torch.int8)[torch.arange(24) % 6]
    first, second = (
        methods.create(name, z, epochs=10, features=8, **MECHANISMS.get(name, {})) for _ in range(2)
    )
    if name not in MECHANISMS:
        assert (
            'acts_since' not in first.state_dict()
            and not hasattr(first, 'acts_since')
            and not first.mechanism
        )
        return
    assert (
        first.acts_since == -1
        and first.acts_since.dtype == torch.int64
        and first.acts_since.ndim == 0
    )
    logits, index = torch.randn(24, 6), torch.arange(24)
    maps = logits[..., None, None]
    outputs = ViewOutputs(
        {role: Outputs(logits, None, torch.randn(24, 6, 8), None, maps) for role in first.views}
    )
    seen = []
    for stage in range(1, first.stages + 1):
        first.start_stage(stage)
        for e in range(1, 8):
            first.start_epoch(e)
            first.loss(outputs, index)
            first.end_epoch(e, lambda view='plain': logits)
            seen.append(int(first.acts_since))
    wanted = {'em_apl': [-1] * 4 + [5] * 3, 'lac': [-1] * 7 + [1] * 7}.get(name, [-1] + [2] * 6)
    assert seen == wanted
    second.load_state_dict(first.state_dict())
    assert second.acts_since == wanted[-1]
    earlier = {key: value for key, value in first.state_dict().items() if key != 'acts_since'}
    third = methods.create(name, z, epochs=10, features=8, **MECHANISMS[name])
    third.load_state_dict(earlier)  # a checkpoint of an earlier version
    assert third.acts_since == -1


def test_without_correction_opml_sp_has_no_mechanism():
    method = methods.create('opml_sp', torch.eye(4), epochs=2, correction=False)
    method.start_stage(1), method.start_epoch(1)
    assert not method.mechanism and 'acts_since' not in method.state_dict()


# ---- families, recipes, and losses that are one


def test_photo_sets_take_the_values_of_the_set_they_stand_for():
    sets = {
        'voc': ['voc12', 'voc07', 'voc12_animals', 'mini_voc'],
        'coco': ['coco14', 'coco18', 'mini_coco'],
        'cub': ['cub', 'cub_crops', 'mini_cub'],
        'nus': ['nus', 'nus-official', 'nus-labelled', 'mirflickr14', 'mini_nus'],
        'other': ['corel5k', 'ccp', 'vaw', 'my/photos'],
    }
    for wanted, names in sets.items():
        assert {find_family(name) for name in names} == {wanted}


@pytest.mark.parametrize('name', ['epr', 'role', 'nnpu'])
def test_the_expected_positives_of_a_set_of_photos_are_those_that_were_counted(name):
    for dataset, counted in published.describe_photo_sets().positives.items():
        if dataset != 'corel5k_themes':
            assert resolve_hparams(name, dataset, {})['k'] == pytest.approx(counted, rel=0.1)


def test_a_value_of_the_data_set_goes_before_that_of_its_family():
    assert (
        resolve_hparams('epr', 'coco14', {})['k'] == resolve_hparams('epr', 'coco', {})['k'] == 2.9
    )
    assert (
        resolve(Config(loss='epr', dataset='coco')).hparams['k'] is None
    )  # a folder of one's own with that name
    assert (
        resolve_hparams('epr', 'coco18', {})['k'] == 1.55
        and resolve_hparams('epr', 'coco18', {'k': 2})['k'] == 2
    )
    deltas = [
        resolve_hparams(f'boostlu_{name}', dataset, {})['delta']
        for name in ('llr', 'llct', 'llcp')
        for dataset in ('ccp', 'coco18')
    ]
    assert deltas == [0.005, 0.005, 0.002, 0.002, 0.001, 0.001]


@pytest.mark.parametrize('name', methods.names())
def test_every_recipe_and_every_familys_values_make_a_configuration(name):
    ten = {
        'gr',
        'llr',
        'llct',
        'llcp',
        'boostlu_llr',
        'boostlu_llct',
        'boostlu_llcp',
    }  # where the source has it
    rate = (
        10
        if name in ten
        else 1
        if name in NAMES
        else find(name).recipe.get('head_lr_multiplier', 1)
    )
    for dataset in (
        'voc12_animals',
        'coco18',
        'mirflickr14',
        'cub_crops',
        'corel5k',
        'ccp',
        'mini_voc',
    ):
        for regime in ('finetune', 'linear', 'linear_init'):
            config = resolve(Config(loss=name, dataset=dataset, regime=regime, **side_of(name)))
            assert all(
                getattr(config, field) == value for field, value in find(name).recipe.items()
            )
            assert config.hparams == resolve_hparams(name, dataset, {}) and config.nesterov is False
            assert config.head_lr_multiplier == rate


LABELS = ('single', 'single+negatives', 'partial-0.3', 'full')
DRAWS = [(name, {}) for name in methods.names()] + [
    ('opml', {'alpha': 0.5, 'beta': 0.4}),
    ('opml', {'unknown': 'ignore'}),
    *(('opml', {'reduction': r}) for r in ('mean', 'sum', 'none')),
    ('zlpr', {'unknown': 'ignore'}),
    *(('multi_similarity', {'T_pos': T}) for T in (0, 0.3, 1, 2)),
    ('multi_similarity', {'T_pos': 1, 'unknown': 'ignore'}),
    *(('multi_similarity', {'T_pos': 1, 'reduction': r}) for r in ('sum', 'sample')),
    ('multi_similarity', {'reduction': 'sample'}),
    *(('two_way_sample', {'T_pos': T}) for T in (0, 0.3, 1)),
    ('two_way_sample', {'T_neg': 2.0}),
    ('two_way_sample', {'bias': 1.0}),
    ('two_way_sample', {'bucket': 4}),
    *(('two_way_sample', {'form': 'paper', 'reduction': r}) for r in ('mean', 'sum', 'sample')),
    ('two_way_sample', {'unknown': 'ignore'}),
    ('softmax', {'bucket': 4}),
    ('an', {'unknown': 'ignore'}),
    ('an', {'reduction': 'sum'}),
    ('nls', {'unknown': 'ignore'}),
    ('em', {'alpha': 0.5}),
    ('entmin', {'reduction': 'sample'}),
    ('nnpu', {'k': 2.9}),
]


def observed_as(labels, B=9, C=6):
    "Observed labels of a setting; the last row has no positive, unless all labels are drawn."
    g = torch.Generator().manual_seed(len(labels))
    if labels == 'full':
        return 2 * torch.randint(0, 2, (B, C), generator=g) - 1
    if labels.startswith('partial'):
        return torch.randint(0, 2, (B, C), generator=g)
    z = torch.eye(C, dtype=torch.long)[torch.randint(C, (B,), generator=g)]
    if labels == 'single+negatives':
        z[(torch.rand(B, C, generator=g) < 0.5) & (z == 0)] = -1
    z[-1].clamp_(max=0)
    return z


def value_and_gradient(name, hparams, z):
    "In float64, on logits that differ by tens."
    s = (
        6 * torch.randn(z.shape, dtype=torch.float64, generator=torch.manual_seed(1))
    ).requires_grad_()
    method = methods.create(name, z, epochs=4, features=8, **hparams)
    method.take(invented(*z.shape))
    value = method.loss(ViewOutputs(weak=Outputs(s, None, None, None)), torch.arange(len(z)))
    return value.detach(), torch.autograd.grad(value.sum(), s)[0]


@pytest.mark.parametrize('labels', LABELS)
@pytest.mark.parametrize('case', range(len(DRAWS)))
def test_losses_that_are_one_loss_agree_in_value_and_gradient(case, labels):
    name, given = DRAWS[case]
    hparams = resolve_hparams(name, 'other', given)
    other, theirs = find_equal_loss(name, hparams, labels)
    assert theirs == resolve_hparams(other, 'other', theirs) and find_equal_loss(
        other, theirs, labels
    ) == (other, theirs)  # complete, and the last
    if other == name:
        assert theirs == hparams
        return
    assert find(name).recipe == find(other).recipe and find(name).head == find(other).head
    for one, two in zip(
        value_and_gradient(name, hparams, observed_as(labels)),
        value_and_gradient(other, theirs, observed_as(labels)),
        strict=True,
    ):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-12)


def test_losses_that_are_one_loss_by_name():
    def of(name, labels, **given):
        return find_equal_loss(name, resolve_hparams(name, 'coco', given), labels)

    for labels in LABELS:
        assert (
            of('opml', labels)
            == of('zlpr', labels)
            == of('multi_similarity', labels, T_pos=1)
            == ('zlpr', {'unknown': 'negative', 'reduction': 'sample'})
        )
        assert (
            of('opml', labels, alpha=0.9)[0] == 'opml'
            and of('ls', labels)[0] == 'ls'
            and of('two_way', labels)[0] == 'two_way'
        )
        assert (of('an', labels) == of('bce', labels)) == (labels == 'full')
        single = labels.startswith('single')
        assert (
            (of('multi_similarity', labels, T_pos=4) == of('zlpr', labels))
            == (of('two_way_sample', labels, T_pos=2) == of('softmax', labels))
            == single
        )
        assert (
            of('two_way_sample', labels, bias=4)[0] == 'two_way_sample'
            and of('multi_similarity', labels, reduction='sum')[0] == 'multi_similarity'
        )
    for name in (
        'voc',
        'coco',
        'nus',
        'cub',
        'other',
    ):  # with the papers' values, whatever the data set
        assert find_equal_loss(
            'two_way_sample', resolve_hparams('two_way_sample', name, {}), 'single'
        ) == ('softmax', resolve_hparams('softmax', name, {}))


@pytest.mark.parametrize(
    ('name', 'given', 'labels'),
    [
        ('multi_similarity', {'T_pos': 4}, 'partial-0.3'),
        ('two_way_sample', {'T_pos': 4}, 'full'),
        ('opml', {'beta': 0.4}, 'single'),
        ('two_way_sample', {'T_neg': 2.0}, 'single'),
        ('an', {}, 'single'),
        ('multi_similarity', {'reduction': 'sum'}, 'single'),
    ],
)
def test_elsewhere_they_are_different_losses(name, given, labels):
    other = {'multi_similarity': 'zlpr', 'opml': 'zlpr', 'two_way_sample': 'softmax', 'an': 'bce'}[
        name
    ]
    hparams = resolve_hparams(name, 'other', given)
    assert find_equal_loss(name, hparams, labels) == (name, hparams)
    one = value_and_gradient(name, hparams, observed_as(labels))[0]
    two = value_and_gradient(other, resolve_hparams(other, 'other', {}), observed_as(labels))[0]
    assert abs(one - two) > 1e-3 * abs(two)


def test_two_methods_under_one_name_are_refused_and_a_wrong_value_too():
    class Mine(Method):
        def __init__(self, observed, *, epochs, features=None, weight: float = 1.0):
            super().__init__(observed, epochs=epochs, features=features)

    with pytest.raises(SpmlError, match="a method named 'em' is registered already"):
        register('em')(Mine)
    for given in ({'values': {'voc': {'wait': 1}}}, {'search': {'wait': Uniform(0, 1)}}):
        with pytest.raises(
            SpmlError, match="unknown hyper-parameter of 'mine' 'wait'; allowed: weight"
        ):
            register('mine', **given)(Mine)
    assert 'mine' not in methods.names() and find('em').source


@pytest.mark.parametrize(
    ('loss', 'given', 'value'),
    [
        ('wan', {'negative_weight': '1e-1'}, 0.1),
        ('wan', {'negative_weight': None}, None),
        ('two_way', {'bucket': 4.0}, 4),
        ('gr', {'w': [0, 1]}, (0, 1)),
        ('opml_sp', {'smoothing': False}, False),
    ],
)
def test_a_hyper_parameter_becomes_what_its_annotation_says(loss, given, value):
    assert resolve_hparams(loss, 'other', given)[next(iter(given))] == value


@pytest.mark.parametrize(
    ('loss', 'given', 'message'),
    [
        ('emm', {}, "unknown loss 'emm'.*'em'"),
        ('em', {'alhpa': 1}, "unknown hyper-parameter of 'em' 'alhpa'.*'alpha'"),
        (
            'two_way',
            {'bucket': 1.5},
            "hyper-parameter 'bucket' of 'two_way' must be a whole number",
        ),
        ('opml_sp', {'smoothing': 1}, 'must be true or false'),
        ('em', {'alpha': None}, 'must be a number'),
    ],
)
def test_wrong_names_and_kinds_are_told(loss, given, message):
    with pytest.raises(SpmlError, match=message):
        resolve_hparams(loss, 'voc', given)


# ---- a loop of one's own: what it leaves out is refused, and what it does is what the trainer does

IN_PACKAGE = [name for name in methods.names() if find(name).__module__.startswith('spml_nb.')]
AS_PLAIN = {
    'backbone': 'mini',
    'epochs': 2,
    'lr': 1e-3,
    'optimizer': 'adam',
    'weight_decay': 0.0,
    'schedule': 'constant',
    'ema': 0.0,
    'patience': 0,
    'selection': 'last',
    'head_lr_multiplier': 1.0,
}


def plain_loop(config, task):
    "A loop as somebody would write it. Returns: logits of the test images."
    torch.manual_seed(config.seed)
    network = models.create(config.backbone, 3, head=config.head).to(
        memory_format=torch.channels_last
    )
    observed, features = torch.from_numpy(task.observed), network.embedding_dim
    method = methods.create(
        config.loss, observed, epochs=config.epochs, features=features, **config.hparams
    )
    if method.side:
        method.take(task.side)
    photos = image_source(task.data, config, torch.device('cpu'))

    def score(view='plain'):
        return method.scores(network, photos.batch(task.train, view))

    for stage in range(1, method.stages + 1):
        method.start_stage(stage)
        groups = [{'params': network.parameters()}, *method.parameter_groups(config.lr)]
        optimizer = torch.optim.Adam(groups, lr=config.lr, fused=True)
        for epoch in range(1, method.epochs + 1):
            method.start_epoch(epoch)
            network.train()
            for index in torch.randperm(len(observed)).split(config.batch_size):
                views = {role: photos.batch(task.train[index], role) for role in method.views}
                loss = method.step(network, views, index)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            method.end_epoch(epoch, score)
    return method.scores(network, photos.batch(task.test, 'plain'))


@pytest.mark.silent('C6')
@pytest.mark.parametrize('loss', IN_PACKAGE)
def test_a_plain_loop_trains_as_the_trainer_does_bit_for_bit(photo_folder, loss):
    hparams = STATEFUL.get(loss, {'weight': 0.01} if loss in ('l1', 'l2') else {})
    given = resolve(config(photo_folder, loss, **AS_PLAIN, regime='finetune', hparams=hparams))
    trained = training.train(given).logits['test']
    assert np.array_equal(plain_loop(given, training.make_task(given)).numpy(), trained)


class Toy(torch.nn.Module):
    "Gives logits alone."

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 6)

    def forward(self, x):
        return self.layer(x)


class Cosines(Toy):
    def forward(self, x):
        return Outputs(self.layer(x), cosine=torch.tanh(self.layer(x)))


OBSERVED = torch.eye(6, dtype=torch.int8)[torch.arange(12) % 6]
OBSERVED[1::6, 0] = -1  # one class has negatives


def begun(name, **hparams):
    "A method that is ready for its first step."
    method = methods.create(name, OBSERVED, epochs=4, features=8, **hparams)
    if method.side:
        method.take(invented(12, 6))
    method.parameter_groups(0.1)
    method.start_stage(1)
    method.start_epoch(1)
    return method


def views_of(method, rows=3):
    return {role: torch.randn(rows, 4) for role in method.views}


@pytest.mark.silent('C6')
@pytest.mark.parametrize('name', IN_PACKAGE)
def test_a_network_that_gives_logits_will_do_or_is_refused(name):
    torch.manual_seed(0)
    method, network, index = begun(name), Toy(), torch.tensor([1, 7, 5])
    reads = {'hml': 'cosine', 'hml_fixed': 'cosine', 'lac': 'embeddings'} | dict.fromkeys(
        ('boostlu_llr', 'boostlu_llct', 'boostlu_llcp'), 'maps'
    )
    if name in reads:
        with pytest.raises(SpmlError, match=f'reads {reads[name]} of the network'):
            method.step(network, views_of(method), index)
        return
    loss = method.step(network, views_of(method), index)
    loss.backward()
    assert loss.ndim == 0 and network.layer.weight.grad.abs().sum() > 0
    images = torch.randn(5, 4)
    scores = method.scores(network, images)
    assert torch.equal(scores, network(images)) and not scores.requires_grad
    network.layer.eval()  # as somebody's frozen batch norm would be
    method.scores(network, images)
    assert network.training and not network.layer.training


@pytest.mark.silent('C6')
def test_scores_are_what_the_method_ranks_by():
    method, network, images = begun('hml', margin=0.5), Cosines(), torch.randn(5, 4)
    scores = method.scores(network, images)
    assert torch.equal(scores, method.predict(forward_views(network, {'plain': images})))
    assert not torch.allclose(scores, network(images).logits)
    with pytest.raises(SpmlError, match='cosine'):
        method.scores(Toy(), images)


@pytest.mark.silent('C6')
@pytest.mark.parametrize(('name', 'measure'), [('l1', torch.abs), ('l2', torch.square)])
def test_a_step_has_the_penalty_on_any_network(name, measure):
    torch.manual_seed(0)
    parts = [
        torch.nn.Conv2d(1, 4, 2),
        torch.nn.BatchNorm2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 6),
        torch.nn.LayerNorm(6),
    ]
    network = torch.nn.Sequential(*parts)
    index = torch.tensor([1, 7, 5])
    images = torch.randn(3, 1, 3, 3)
    loss, plain = (
        begun(n, **h).step(network, {'weak': images}, index)
        for n, h in ((name, {'weight': 0.5}), ('an', {}))
    )
    penalty = 0.5 * (measure(parts[0].weight).sum() + measure(parts[3].weight).sum())
    torch.testing.assert_close(loss - plain, penalty)


@pytest.mark.silent('C6')
@pytest.mark.parametrize(
    'network',
    [torch.nn.BatchNorm1d(6), torch.relu, Toy().requires_grad_(False)],
    ids=['norm', 'function', 'frozen'],
)
def test_a_penalty_without_weights_is_refused(network):
    images = torch.randn(3, 4 if isinstance(network, Toy) else 6)
    with pytest.raises(SpmlError, match='has no weights for a penalty'):
        begun('l2').step(network, {'weak': images}, torch.tensor([1, 7, 5]))


@pytest.mark.parametrize('head', models.HEADS)
def test_penalised_are_matrices_and_filters_alone(head):
    model = models.create('mini', 3, head=head)
    names = {id(p): name for name, p in model.named_parameters()}
    chosen = [names[id(p)] for p in decay_parameters(model)]
    wanted = [
        name for name, p in model.named_parameters() if p.ndim >= 2 and name.endswith('weight')
    ]
    assert chosen == wanted and 'head.weight' in chosen
    model.backbone.requires_grad_(False)
    assert [names[id(p)] for p in decay_parameters(model)] == [
        name for name in wanted if name.startswith('head.')
    ]


def fresh(name='em_apl', **hparams):
    return methods.create(name, OBSERVED, epochs=4, features=8, **hparams)


def step(method, **given):
    views = given.get('views', views_of(method))
    return method.step(
        given.get('network', Toy()), views, given.get('index', torch.tensor([1, 7, 5]))
    )


@pytest.mark.silent('C6')
def test_what_a_loop_leaves_out_is_refused_before_it_can_matter():
    method = fresh('splc')
    with pytest.raises(SpmlError, match=r'method\.start_stage'):
        step(method)
    method.start_stage(1)
    with pytest.raises(SpmlError, match=r'method\.start_epoch'):
        step(method)
    method.start_epoch(1)
    step(method)
    method.start_epoch(2)
    with pytest.raises(SpmlError, match=r'method\.end_epoch'):
        step(method)
    method.end_epoch(1, None)
    with pytest.raises(SpmlError, match=r'method\.start_epoch'):
        step(method)  # once before all epochs is not enough
    method.start_epoch(2)
    step(method)
    method.start_stage(1)  # begins anew
    method.start_epoch(1)
    step(method)
    method.eval()
    with pytest.raises(SpmlError, match='evaluation mode'):
        step(method)


@pytest.mark.silent('C6')
def test_parameters_that_nobody_trains_are_refused():
    method = fresh('role')
    method.start_stage(1)
    method.start_epoch(1)
    with pytest.raises(SpmlError, match=r'method\.parameter_groups'):
        step(method)
    method.estimate.requires_grad_(False)
    step(method)


@pytest.mark.silent('C6')
@pytest.mark.parametrize('side', ['count', 'scores', 'group'])
def test_side_information_that_is_missing_or_of_other_images_is_refused(side):
    methods_with = {'count': 'epr_count', 'scores': 'pseudo_scores', 'group': 'group_consistency'}
    name = methods_with[side]
    method = fresh(name)
    method.start_stage(1)
    method.start_epoch(1)
    with pytest.raises(SpmlError, match=f'learns from {side} of each training image'):
        step(method)
    with pytest.raises(SpmlError, match=f'{side} has 13 rows, and there are 12 training images'):
        method.take(invented(13, 6))
    method.take(invented(12, 6))
    step(method)


@pytest.mark.silent('C6')
@pytest.mark.parametrize(
    ('views', 'given'),
    [({'weak': torch.zeros(3, 4)}, 'weak'), ({}, 'dict'), (torch.zeros(3, 4), 'Tensor')],
)
def test_a_missing_view_is_refused(views, given):
    with pytest.raises(SpmlError, match=f'needs the view .*strong of its images, not {given}'):
        step(begun('lac_plc'), views=views)


@pytest.mark.silent('C6')
@pytest.mark.parametrize(
    ('network', 'words'),
    [(lambda x: (x, x), 'tuple'), (lambda x: x[:2], r'logits \(2, 4\) for 3 images')],
)
def test_a_network_that_gives_something_else_is_refused(network, words):
    with pytest.raises(SpmlError, match=words):
        step(begun('an'), network=network)


@pytest.mark.silent('C6')
def test_scores_of_a_stage_that_is_not_the_last_are_announced():
    class LabelWise(Toy):
        def forward(self, x):
            return Outputs(self.layer(x), embeddings=self.layer(x)[..., None].expand(-1, -1, 8))

    method, images = begun('lac', threshold=0.5), torch.randn(2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        for e in range(1, 5):
            method.scores(LabelWise(), images)
            method.end_epoch(e, None)
    with pytest.warns(SpmlWarning, match='stage 1 of 2'):
        method.scores(LabelWise(), images)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        method.start_stage(2)
        for e in range(1, 5):
            method.end_epoch(e, None)
        method.scores(LabelWise(), images)


@pytest.mark.silent('C6')
def test_hooks_of_a_subclass_count_whether_or_not_they_call_the_overridden_one():
    class Counter:
        def start_epoch(self, e):
            self.seen = e

    class Mine(Counter, find('splc')):
        def start_stage(self, k):
            super().start_stage(k)

        def end_epoch(self, e, score):
            super().end_epoch(e, score)
            return 'ended'

    method = Mine(OBSERVED, epochs=4)
    method.start_stage(1)
    method.start_epoch(e=1)
    step(method)
    assert method.end_epoch(1, None) == 'ended' and method.seen == 1
    assert (method._calls.stages, method._calls.epochs) == (1, 1)


# ---- other processes


@pytest.mark.silent('C6')
@pytest.mark.parametrize('name', IN_PACKAGE)
@pytest.mark.parametrize(
    'copied', [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy], ids=['pickle', 'deepcopy']
)
def test_a_copy_of_a_method_goes_on_as_the_original_does(name, copied):
    method = begun(name)
    other = copied(method)
    assert type(other) is type(method) and other.z.data_ptr() != method.z.data_ptr()
    torch.manual_seed(0)
    logits = torch.randn(3, 6)
    outputs = Outputs(logits, logits.tanh(), torch.randn(3, 6, 8), None, torch.randn(3, 6, 2, 2))
    index, network = torch.tensor([1, 7, 5]), Toy()
    one, two = (
        m.total_loss(ViewOutputs(dict.fromkeys(m.views, outputs)), index, network)
        for m in (method, other)
    )
    assert torch.equal(one, two)
    for (key, mine), theirs in zip(
        method.state_dict().items(), other.state_dict().values(), strict=True
    ):
        assert torch.equal(mine, theirs), key


@pytest.mark.silent('C6')
def test_a_spawned_process_can_take_and_save_every_method(tmp_path):
    made = {name: begun(name) for name in IN_PACKAGE}
    process = multiprocessing.get_context('spawn').Process(
        target=torch.save, args=(made, tmp_path / 'methods.pt')
    )
    process.start()
    process.join()
    assert process.exitcode == 0
    saved = torch.load(tmp_path / 'methods.pt', weights_only=False)
    assert {name: type(method) for name, method in saved.items()} == {
        name: find(name) for name in IN_PACKAGE
    }


def doubled_loss(logits, z, *, weight: float = 2.0):
    return weight * logits.sigmoid().mean()


@pytest.mark.silent('C6')
def test_a_method_is_restored_where_its_name_is_not_registered(monkeypatch):
    from spml_nb.methods import core

    monkeypatch.setattr(core, '_registry', dict(core._registry))
    register_loss('doubled', doubled_loss)
    state = begun('doubled', weight=3.0).__reduce__()
    del core._registry['doubled']
    restored = state[0](*state[1])
    restored.__setstate__(state[2])
    assert restored.hparams == {'weight': 3.0} and torch.equal(restored.z, OBSERVED)
    assert step(restored).ndim == 0


# ---- labels


@pytest.mark.silent('C6')
@pytest.mark.parametrize('dtype', [torch.bool, torch.uint8, torch.uint16, torch.complex64], ids=str)
def test_a_type_that_cannot_hold_minus_one_is_refused(dtype):
    with pytest.raises(SpmlError, match=f'{dtype}, which cannot hold −1.*int8'):
        check_labels(torch.ones(3, 4).to(dtype))
    with pytest.raises(SpmlError, match=f'{dtype}, which cannot hold −1'):
        methods.create('an', torch.ones(3, 4).to(dtype), epochs=1)


@pytest.mark.silent('C6')
@pytest.mark.parametrize(
    'dtype',
    [torch.int8, torch.int16, torch.int64, torch.float16, torch.float32, torch.float64],
    ids=str,
)
def test_other_values_than_three_are_refused(dtype):
    values = torch.tensor([[1, 0, -1], [-1, 1, 0]]).to(dtype)
    check_labels(values)
    check_labels(values[:0])
    wrong = [2, -2, 127] + (
        [0.9, 1e-6, float('nan'), float('inf')] if dtype.is_floating_point else []
    )
    for value in wrong:
        z = values.clone()
        z[1, 2] = value
        shown = f'{z[1, 2].item():g}'
        with pytest.raises(SpmlError, match=f'labels hold {shown};'):
            check_labels(z)
        with pytest.raises(SpmlError, match='observed labels must be'):
            methods.create('an', z, epochs=1)
