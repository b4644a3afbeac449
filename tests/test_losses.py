"""What holds for every loss: finite values and gradients, untouched inputs, symmetry, the sign on
positives, and where losses meet.
"""

import doctest
import inspect
import math
import re
import warnings
from functools import partial
from pathlib import Path

import nbformat
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spml_nb import losses as L
from spml_nb import methods
from spml_nb.base.errors import SpmlError, SpmlWarning
from spml_nb.methods.core import REDUCTIONS, LossMethod, ViewOutputs, create, find
from spml_nb.models.heads import Outputs

NOTEBOOK = Path(__file__).resolve().parents[1] / 'nbs' / 'losses.ipynb'
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
PATTERNS = ('single', 'none', 'all', 'negatives', 'mixed', 'one row', 'one column')


def observed(pattern, B, C, generator):
    "Observed labels of a kind that breaks careless code."
    z = torch.zeros(B, C, dtype=torch.int8)
    if pattern == 'single':
        z[torch.arange(B), torch.randint(C, (B,), generator=generator)] = 1
    if pattern == 'all':
        z[:] = 1
    if pattern == 'negatives':
        z[:] = -1
    if pattern == 'mixed':
        z = torch.randint(-1, 2, (B, C), generator=generator).to(torch.int8)
    if pattern == 'one row':
        z[0] = 1
    if pattern == 'one column':
        z[:, -1] = 1
    return z


LOSSES = {
    'an': L.an_loss,
    'an, unknown ignored': lambda s, z: L.an_loss(s, z, unknown='ignore'),
    'bce': L.bce_loss,
    'wan': L.wan_loss,
    'dw': L.dw_loss,
    'wbce': lambda s, z: L.weighted_bce_loss(s, z, positive_weight=0.3, negative_weight=1.7),
    'ls': L.label_smoothing_loss,
    'nls': L.negative_label_smoothing_loss,
    'epr': lambda s, z: L.epr_loss(s, z, k=2.9),
    'entmin': L.entropy_minimization_loss,
    'focal': L.focal_loss,
    'asl': lambda s, z: L.asymmetric_loss(s, z, gamma_neg=4, gamma_pos=1, margin=0.05),
    'zlpr': L.zlpr_loss,
    'll reject': lambda s, z: L.large_loss(s, z, scheme='reject', fraction=0.1),
    'll correct': lambda s, z: L.large_loss(s, z, scheme='correct', fraction=0.1),
    'em': L.em_loss,
    'em_apl': lambda s, z: L.em_apl_loss(s, z, 0.3 * (z == 0).to(s.dtype), alpha=0.1, beta=0.4),
    'opml': lambda s, z: L.opml_loss(s, z, alpha=0.7, beta=0.2),
    'soft opml': lambda s, z: L.soft_opml_loss(
        s, z, torch.where(z == 0, 0.4, 0.0), alpha=0.5, beta=0.5
    ),
    'two_way': L.two_way_loss,
    'two_way paper': lambda s, z: L.two_way_loss(s, z, form='paper'),
    'two_way ignore': lambda s, z: L.two_way_loss(s, z, unknown='ignore'),
    'two_way T=0': lambda s, z: L.two_way_loss(s, z, T_pos=0.0),
    'joint': L.joint_loss,
    'softmax': lambda s, z: L.softmax_two_way_loss(s, z, ways='both'),
    'multi_similarity': L.multi_similarity_loss,
    'gr': L.gr_loss,
    'role': lambda s, z: L.role_loss(s, s.detach() * 0.1, z, k=2.9),
    'plc': lambda s, z: L.plc_loss(s.detach().flip(0), s, z, 0.7),
    'plc code': lambda s, z: L.plc_loss(s.detach().flip(0), s, z, 0.7, 'code'),
    'gr q=0': lambda s, z: L.gr_loss(s, z, q2=0.0, q3=0.0),
    'joint ignore': lambda s, z: L.joint_loss(s, z, unknown='ignore'),
    'softmax ignore': lambda s, z: L.softmax_two_way_loss(s, z, unknown='ignore'),
    'two_way T=100': lambda s, z: L.two_way_loss(s, z, T_pos=100.0),
    'opml ignore': lambda s, z: L.opml_loss(s, z, alpha=0.1, unknown='ignore'),
    'em_apl soft': lambda s, z: L.em_apl_loss(s, z, torch.rand(s.shape)),
    'high rank': lambda s, z: L.high_rank_loss(torch.sigmoid(s.float())),
    'gradient balance': L.gradient_balance,
    'hill': L.hill_loss,
    'splc': L.splc_loss,
    'splc first': lambda s, z: L.splc_loss(s, z, correct=False),
    'hill λ=1': lambda s, z: L.hill_loss(s, z, lam=1.0, gamma=0.5),
    'crisp': lambda s, z: L.crisp_loss(s, z, torch.full((s.shape[1],), 0.3)),
    'nnpu': lambda s, z: L.nnpu_loss(s, z, k=2.9),
    'nnpu clamp': lambda s, z: L.nnpu_loss(s, z, k=2.9, correction='clamp', beta=0.1),
    'nnpu unbiased': lambda s, z: L.nnpu_loss(s, z, k=2.9, beta=math.inf),
    'epr_count': lambda s, z: L.epr_count_loss(s, z, torch.full((len(s),), 2.9)),
    'group_consistency': lambda s, z: L.group_consistency_loss(s, torch.full_like(s, 0.3)),
    'pseudo_scores': lambda s, z: L.pseudo_scores_loss(s, z, s.detach().sigmoid(), threshold=0.6),
    'hml': lambda s, z: L.hml_loss(s.tanh(), z),
    'hml positives': lambda s, z: L.hml_loss(s.tanh(), z, margin_on='positives'),
}


def as_registered(name):
    return lambda s, z: methods.create(name, z, epochs=4).loss(
        ViewOutputs(weak=Outputs(s)), torch.arange(len(z))
    )


# every method that is a pure loss, so that a new one is tested without a line here
LOSSES |= {
    name: as_registered(name)
    for name in methods.names()
    if find(name).__name__.endswith('_method') and name not in LOSSES
}
# where a positive is never pushed down; LS, softmax, ROLE, EPR and high rank may
UP = [
    'an',
    'bce',
    'wbce',
    'wan',
    'dw',
    'nls',
    'em',
    'focal',
    'asl',
    'zlpr',
    'll reject',
    'll correct',
    'opml',
    'two_way',
    'two_way paper',
    'joint',
    'multi_similarity',
    'gr',
    'hill',
    'splc',
    'splc first',
    'pseudo_scores',
]
SYMMETRIC = [name for name in LOSSES if name not in ('plc', 'plc code', 'em_apl soft')]

inputs = st.tuples(
    st.integers(1, 64),
    st.integers(1, 312),
    st.sampled_from(PATTERNS),
    st.sampled_from(DTYPES),
    st.sampled_from([0.1, 1.0, 30.0, 1e3, 1e4]),
    st.integers(0, 2**31),
)
quick = settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def draw(case, grad=True):
    B, C, pattern, dtype, size, seed = case
    generator = torch.Generator().manual_seed(seed)
    logits = (
        (torch.randn(B, C, generator=generator, dtype=torch.float64) * size)
        .clamp(-1e4, 1e4)
        .to(dtype)
    )
    return logits.requires_grad_(grad), observed(pattern, B, C, generator)


@pytest.mark.parametrize('name', LOSSES)
@quick
@given(case=inputs)
def test_finite_and_inputs_untouched(name, case):
    logits, z = draw(case)
    before, z_before = logits.detach().clone(), z.clone()
    value = LOSSES[name](logits, z)
    assert value.ndim == 0 and torch.isfinite(value), value
    assert value.dtype == (
        torch.float64 if logits.dtype == torch.float64 and name != 'high rank' else torch.float32
    )
    if value.requires_grad:
        (gradient,) = torch.autograd.grad(value, logits)
        assert torch.isfinite(gradient).all() and gradient.dtype == logits.dtype
    assert torch.equal(logits.detach(), before) and torch.equal(z, z_before)


@pytest.mark.parametrize('name', UP)
@quick
@given(case=inputs)
def test_a_positive_is_never_pushed_down(name, case):
    logits, z = draw(case)
    value = LOSSES[name](logits, z)
    if not value.requires_grad:
        return
    (gradient,) = torch.autograd.grad(value, logits)
    assert (gradient[z > 0] <= 0).all(), gradient[z > 0].max()


@pytest.mark.parametrize('name', SYMMETRIC)
@quick
@given(case=inputs, order=st.integers(0, 2**31))
def test_order_of_samples_and_classes_does_not_matter(name, case, order):
    B, C, pattern, _, _, seed = case
    logits, z = draw((B, C, pattern, torch.float64, 1.0, seed), grad=False)
    generator = torch.Generator().manual_seed(order)
    rows, columns = torch.randperm(B, generator=generator), torch.randperm(C, generator=generator)
    a, b = LOSSES[name](logits, z), LOSSES[name](logits[rows][:, columns], z[rows][:, columns])
    tolerance = 1e-4 if name == 'high rank' else 1e-10
    assert torch.isclose(a, b, rtol=tolerance, atol=tolerance)


def batch(seed=0, B=12, C=7):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, C, dtype=torch.float64, generator=generator), observed(
        'single', B, C, generator
    )


@pytest.mark.parametrize('seed', range(5))
def test_where_losses_meet(seed):
    s, z = batch(seed)
    an, zlpr = L.an_loss(s, z), L.zlpr_loss(s, z)
    full = torch.where(z > 0, 1, -1)
    pairs = {
        'LS 0 = AN': (L.label_smoothing_loss(s, z, smoothing=0.0), an),
        'N-LS 0 = AN': (L.negative_label_smoothing_loss(s, z, smoothing=0.0), an),
        'DW 1 = AN': (L.dw_loss(s, z, negative_weight=1.0), an),
        'WAN 1 = AN': (L.wan_loss(s, z, negative_weight=1.0), an),
        'weights 1 = AN': (L.weighted_bce_loss(s, z, positive_weight=1.0, negative_weight=1.0), an),
        'LL 0 = AN': (L.large_loss(s, z, fraction=0.0), an),
        'BCE on full = AN': (L.bce_loss(s, full), an),
        'ASL 0 0 0 = AN summed': (
            L.asymmetric_loss(s, z, gamma_neg=0, gamma_pos=0, margin=0),
            L.an_loss(s, z, reduction='sum'),
        ),
        'focal γ=0 α=½ = AN/2': (L.focal_loss(s, z, gamma=0, alpha=0.5), an / 2),
        'OPML ½ ½ = ZLPR': (L.opml_loss(s, z, alpha=0.5, beta=0.5), zlpr),
        'soft OPML w=0 = OPML': (
            L.soft_opml_loss(s, z, torch.zeros_like(s), alpha=0.3, beta=0.6),
            L.opml_loss(s, z, alpha=0.3, beta=0.6),
        ),
        'multi-similarity T=1 = ZLPR': (L.multi_similarity_loss(s, z, T_pos=1.0), zlpr),
        'two-way by sample = softmax': (
            L.two_way_loss(s, z, ways='sample', T_pos=1.0),
            torch.nn.functional.cross_entropy(s, z.argmax(1)),
        ),
        'EM on full = BCE': (L.em_loss(s, full, alpha=0.3), L.bce_loss(s, full)),
        'EM+APL nothing selected = EM': (
            L.em_apl_loss(s, z, torch.zeros_like(s), alpha=0.2, beta=0.4),
            L.em_loss(s, z, alpha=0.2),
        ),
        'Hill on full, m=0, γ=0 = BCE summed': (
            L.hill_loss(s, full, margin=0.0, gamma=0.0),
            L.bce_loss(s, full, reduction='sum'),
        ),
        'SPLC first, m=0 = 2 focal summed': (
            L.splc_loss(s, z, margin=0.0, correct=False),
            2 * L.focal_loss(s, z, alpha=0.5, reduction='sum'),
        ),
        'HML m=0 = scaled': (
            L.an_loss(L.hyperspherical_logits(s.tanh(), scale=20.0, margin=0.0), z),
            L.an_loss(20 * s.tanh(), z),
        ),
    }
    for name, (a, b) in pairs.items():
        assert torch.isclose(a, b, rtol=1e-12, atol=1e-12), (name, a.item(), b.item())


def test_some_losses_may_push_a_positive_down():
    """When: a positive already beyond its smoothed target; the smaller of two positives' rival;
    more predicted positives than expected.
    """

    def gradient(loss, s, z):
        s = torch.tensor(s, dtype=torch.float64, requires_grad=True)
        return torch.autograd.grad(loss(s, torch.tensor(z)), s)[0]

    assert gradient(L.label_smoothing_loss, [[5.0, 0.0]], [[1, 0]])[0, 0] > 0
    assert (
        gradient(lambda s, z: L.softmax_two_way_loss(s, z, ways='sample'), [[3.0, -3.0]], [[1, 1]])[
            0, 0
        ]
        > 0
    )
    assert gradient(lambda s, z: L.epr_loss(s, z, k=1.0), [[4.0, 4.0, 4.0]], [[1, 0, 0]])[0, 0] > 0


def test_a_loss_that_is_not_listed_is_found_by_its_name(monkeypatch):
    from spml_nb.methods import core, hml

    monkeypatch.setattr(hml, 'unlisted_loss', L.an_loss, raising=False)
    assert 'unlisted_loss' not in vars(L) and L.unlisted_loss is L.an_loss
    for name in ('no_such_loss', 'find_equal_loss', 'Method'):
        assert name == 'no_such_loss' or hasattr(core, name)
        with pytest.raises(
            AttributeError, match=f"module 'spml_nb.losses' has no attribute '{name}'"
        ):
            getattr(L, name)


# each public function with every matrix that must fit its logits: (its name in the message, a call
# with that matrix)
FUNCTIONS = [name for name in L.__all__ if name != 'Loss']
TAKES = {name: {'labels': getattr(L, name)} for name in FUNCTIONS} | {
    'apl_select': {'remaining': lambda s, m: L.apl_select(s, m > 0, 1)},
    'em_apl_loss': {
        'labels': lambda s, m: L.em_apl_loss(s, m, torch.zeros_like(s)),
        'soft_negative': lambda s, m: L.em_apl_loss(s, torch.zeros_like(s), m),
    },
    'soft_opml_loss': {
        'labels': lambda s, m: L.soft_opml_loss(s, m, torch.zeros_like(s)),
        'soft_positive': lambda s, m: L.soft_opml_loss(s, torch.zeros_like(s), m),
    },
    'crisp_loss': {'labels': lambda s, m: L.crisp_loss(s, m, torch.tensor(0.3))},
    'epr_count_loss': {'labels': lambda s, m: L.epr_count_loss(s, m, torch.ones(8))},
    'pseudo_scores_loss': {
        'labels': lambda s, m: L.pseudo_scores_loss(s, m, torch.zeros_like(m)),
        'scores': lambda s, m: L.pseudo_scores_loss(s, torch.zeros_like(s), m),
    },
    'outside_labels': {'scores': lambda s, m: L.outside_labels(torch.zeros_like(s), m)},
    'group_consistency_loss': {'means': L.group_consistency_loss},
    'role_loss': {
        'labels': lambda s, m: L.role_loss(s, s, m),
        'estimates': lambda s, m: L.role_loss(s, m, torch.zeros_like(s)),
    },
    'plc_loss': {
        'labels': lambda s, m: L.plc_loss(s, s, m, 0.7),
        'strong_logits': lambda s, m: L.plc_loss(m, s, m, 0.7),
    },
    'large_loss_mask': {'labels': lambda s, m: L.large_loss_mask(s, m, 'reject', 0.1)},
    'correct_labels': {'labels': lambda s, m: L.correct_labels(s, m, torch.ones(5), 0.1, 0.5)},
}
ALONE = (
    'boosted_logits',
    'high_rank_loss',
    'hyperspherical_logits',
    'lac_loss',
)  # without labels (B, C); shapes of the first and the last are tested below
WRONG = ((8, 1), (5,), (8,), (), (7, 5), (8, 4), (1, 5), (8, 5, 1))


@pytest.mark.parametrize('shape', WRONG, ids=str)
@pytest.mark.parametrize('name', [name for name in FUNCTIONS if name not in ALONE])
def test_shapes_that_do_not_fit_are_refused_by_name(name, shape):
    for what, call in TAKES[name].items():
        with pytest.raises(SpmlError) as caught:
            call(torch.randn(8, 5), torch.zeros(shape))
        said = caught.value.message
        assert f'{what} {shape}' in said or (
            what == 'strong_logits' and f'labels {shape}' in said
        ), said
        assert 'same shape (B, C): one row per image, one column per class.' in said and (
            'one_hot' in said
        ) == (f'and labels {shape}' in said)


@pytest.mark.parametrize('name', [name for name in FUNCTIONS if name not in ALONE])
def test_two_of_one_shape_are_refused_unless_they_are_matrices(name):
    for call in TAKES[name].values():
        for shape in ((5,), (8, 5, 1), ()):
            with pytest.raises(SpmlError, match='same shape'):
                call(torch.randn(shape), torch.zeros(shape))


def test_other_shapes_are_refused_by_name_too():
    s, z = batch()
    for shape in ((5,), (), (2, 3, 4)):
        with pytest.raises(SpmlError, match='probabilities .* must be a matrix'):
            L.high_rank_loss(torch.rand(shape))
    with pytest.raises(SpmlError, match=r'maps \(8, 5\) must be \(B, C, h, w\)'):
        L.boosted_logits(torch.randn(8, 5))
    for shape in ((4, 2), (4, 3, 6)):
        with pytest.raises(SpmlError, match='embeddings and labels must be'):
            L.lac_loss(torch.rand(shape), torch.ones(4), temperature=0.5)
    entries = torch.nn.functional.normalize(torch.rand(4, 2, 6), dim=-1)
    with pytest.raises(SpmlError, match='queue and queue_labels must be'):
        L.lac_loss(entries, torch.ones(4), torch.rand(3, 2, 7), torch.ones(3), temperature=0.5)
    for side in ('positive_weight', 'negative_weight'):
        with pytest.raises(SpmlError, match=r'weights \(4,\) must be one number, or \(7,\)'):
            L.weighted_bce_loss(s, z, **{side: torch.ones(4)})
        assert torch.isclose(L.weighted_bce_loss(s, z, **{side: torch.ones(7)}), L.an_loss(s, z))
    with pytest.raises(SpmlError, match=r'count \(4,\) must be one number for each image: \(12,\)'):
        L.epr_count_loss(s, z, torch.ones(4))
    with pytest.raises(SpmlError, match=r'ap \(4,\)'):
        L.correct_labels(s, z, torch.ones(4), 0.1, 0.5)


@pytest.mark.parametrize(
    'name', ['em', 'an', 'opml', 'two_way paper', 'soft opml', 'role', 'gr', 'plc', 'hml', 'nnpu']
)
def test_the_check_lets_a_loss_be_compiled_and_batched(name):
    "One graph without a break; and many batches at once."
    s, z = batch()
    loss = LOSSES[name]
    compiled = torch.compile(loss, backend='eager', fullgraph=True)(s, z)
    torch.testing.assert_close(compiled, loss(s, z), rtol=1e-12, atol=0)
    stacked = torch.stack([s, s.flip(0), -s]), torch.stack([z, z.flip(0), z])
    assert torch.allclose(
        torch.func.vmap(loss)(*stacked),
        torch.stack([loss(*pair) for pair in zip(*stacked, strict=True)]),
        rtol=1e-12,
    )


def contrast(form):
    "LAC's contrast of a batch with a queue."
    entries = torch.nn.functional.normalize(torch.randn(9, 2, 4, dtype=torch.float64), dim=-1)
    labels = torch.arange(9) % 4

    def loss(x):
        queue = entries.flip(0)[:5]
        return L.lac_loss(x, labels, queue, labels[:5], temperature=0.5, form=form)

    return loss, entries


def of_logits(name):
    s, z = batch()
    return (lambda s: LOSSES[name](s, z)), s


def flat_gr():
    "With weights that are constants, as its gradient takes them."
    s, z = batch()
    return (lambda s: L.gr_loss(s, z, w=0.0, sigma=1e9, q2=0.7, q3=0.3)), s


# the losses with a gradient written by hand, and some without
DIFFERENTIABLE = {
    **{name: partial(of_logits, name) for name in ('an', 'em', 'em_apl', 'asl', 'zlpr', 'opml')},
    **{name: partial(of_logits, name) for name in ('two_way', 'two_way ignore', 'joint')},
    **{name: partial(of_logits, name) for name in ('softmax', 'multi_similarity', 'soft opml')},
    'gr': flat_gr,
    'lac paper': partial(contrast, 'paper'),
    'lac code': partial(contrast, 'code'),
}


@pytest.mark.parametrize('name', DIFFERENTIABLE)
def test_a_loss_is_differentiated_in_every_way_that_torch_has(name):
    "Once and twice, by autograd and `torch.func`, forward and backward, alone and in a batch."
    loss, x = DIFFERENTIABLE[name]()
    free = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(free), free)
    direction = torch.randn_like(x)
    stacked = torch.stack([x, -x, x.flip(0)])
    func = torch.func
    for found, wanted in (
        (func.grad(loss)(x), gradient),
        (func.jvp(loss, (x,), (direction,))[1], (gradient * direction).sum()),
        (func.vmap(loss)(stacked), torch.stack([loss(one) for one in stacked])),
        (func.vmap(func.grad(loss))(stacked)[0], gradient),
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(loss, free)
    assert torch.autograd.gradgradcheck(loss, free)


def test_what_is_no_floating_tensor_is_refused_by_name():
    s, z = batch()
    with pytest.raises(
        SpmlError,
        match=(
            r'logits must be a floating tensor and labels a tensor, '
            r'not torch.int64 and torch.int8\.'
        ),
    ):
        L.an_loss(s.long(), z)
    with pytest.raises(SpmlError, match='not torch.float64 and list'):
        L.two_way_loss(s, z.tolist())
    with pytest.raises(SpmlError, match='not ndarray and torch.int8|not float64 and torch.int8'):
        L.em_loss(s.numpy(), z)
    for k in (torch.ones(12), torch.ones(7)):
        with pytest.raises(SpmlError, match='must be one number of positives for all images'):
            L.role_loss(s, s, z, k)
    square = torch.randn(3, 3), torch.randn(3, 3), torch.eye(3)
    with pytest.raises(SpmlError, match=r'k \(3,\)'):
        L.role_loss(*square, torch.arange(3.0))
    assert torch.equal(L.role_loss(*square, torch.tensor(2.0)), L.role_loss(*square, 2.0))


@pytest.mark.parametrize(
    'name',
    [name for name in FUNCTIONS if 'reduction' in inspect.signature(getattr(L, name)).parameters],
)
def test_the_reference_names_every_reduction(name):
    said = inspect.getdoc(getattr(L, name)).split('reduction: ')[1].split('Returns:')[0]
    for reduction in REDUCTIONS:
        if name in ('crisp_loss', 'gradient_balance') and reduction == 'none':
            continue  # one number of the whole batch
        assert repr(reduction) in said, reduction


def test_the_notebook_lists_every_name_with_the_notebook_that_defines_it():
    first = nbformat.read(NOTEBOOK, 4).cells[0].source
    listed = {
        name: row[-2].strip(' `')
        for row in (line.split('|') for line in first.splitlines() if line.startswith('| `'))
        for name in re.findall(r'`(\w+)`', row[1])
    }
    assert listed == {
        name: f'nbs/methods/{getattr(L, name).__module__.rpartition(".")[2]}.ipynb'
        for name in FUNCTIONS
    }


def test_the_notebook_says_which_losses_take_no_logits():
    first = nbformat.read(NOTEBOOK, 4).cells[0].source
    losses = [name for name in FUNCTIONS if name.endswith('_loss')]
    others = [
        name
        for name in losses
        if 'logits' not in next(iter(inspect.signature(getattr(L, name)).parameters))
    ]
    named = re.search('Three take other inputs than logits:(.*?)[.]', first, re.S)[1]
    assert len(others) == 3 and set(re.findall('`(.+?)`', named)) == set(others)


# ---- what is no label

OF_LABELS = sorted(
    (name, what)
    for name in TAKES
    if name not in ALONE
    for what in TAKES[name]
    if what.endswith('labels')
)


@pytest.mark.silent('C6')
@pytest.mark.parametrize(('name', 'what'), OF_LABELS)
def test_labels_that_are_no_labels_are_refused(name, what):
    call, s, z = TAKES[name][what], torch.randn(8, 5), torch.eye(8, 5)
    for value in (2.0, 0.9, float('nan')):
        wrong = z.clone()
        wrong[3, 4] = value
        with pytest.raises(SpmlError, match=f'labels hold {value:g};'):
            call(s, wrong)
    stored = z.to(torch.int8).fill_diagonal_(-1).to(torch.uint8)
    assert stored.max() == 255
    for kind in (torch.uint8, torch.bool):
        with pytest.raises(SpmlError, match=f'{kind}, which cannot hold −1.*int8'):
            call(s, stored.to(kind))


@pytest.mark.silent('C6')
def test_on_other_devices_only_the_type_is_looked_at():
    "`meta` has no values to look at, and a GPU would have to be waited for."
    s = torch.randn(8, 5, device='meta')
    assert L.an_loss(s, torch.full((8, 5), 2, device='meta')).ndim == 0
    assert L.bce_loss(s, torch.zeros(8, 5, device='meta')).ndim == 0
    with pytest.raises(SpmlError, match='torch.uint8, which cannot hold −1'):
        L.an_loss(s, torch.zeros(8, 5, device='meta', dtype=torch.uint8))


@pytest.mark.silent('C6')
def test_labels_are_looked_at_within_vmap_too():
    s, z = torch.randn(2, 8, 5), torch.zeros(2, 8, 5)
    z[1, 0, 0] = 2
    with pytest.raises(SpmlError, match='labels hold 2;'):
        torch.func.vmap(L.an_loss)(s, z)


@pytest.mark.silent('C6')
def test_bce_says_so_when_targets_of_0_and_1_leave_it_nothing_to_push_down():
    s, targets = torch.randn(8, 5, requires_grad=True), torch.eye(8, 5)
    with pytest.warns(SpmlWarning, match='no label is −1'):
        silent = L.bce_loss(s, targets)
    assert torch.autograd.grad(silent, s)[0][targets == 0].abs().max() == 0
    with pytest.warns(SpmlWarning, match='no label is −1'):
        create('bce', targets, epochs=1)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert torch.equal(L.bce_loss(s, targets, unknown='ignore'), silent)
        assert torch.equal(L.bce_loss(s, targets, unknown='negative'), L.an_loss(s, targets))
        labels = 2 * targets - 1
        expected = torch.nn.functional.binary_cross_entropy_with_logits(s, targets)
        torch.testing.assert_close(L.bce_loss(s, labels), expected)
        create('bce', labels, epochs=1)
        for name in ('epr', 'role', 'epr_count', 'pseudo_scores', 'group_consistency', 'an'):
            create(name, targets, epochs=1)
        for call in (
            L.epr_loss,
            lambda s, z: L.role_loss(s, s, z),
            lambda s, z: L.epr_count_loss(s, z, torch.ones(8)),
        ):
            call(s, targets)
    with pytest.raises(SpmlError, match='unknown treatment of unknown labels'):
        L.bce_loss(s, targets, unknown='no')


def test_unknown_is_no_hyper_parameter_of_the_method_bce():
    "Its runs keep their names."
    assert set(methods.resolve_hparams('bce', 'other', {})) == {'reduction'}


@pytest.mark.parametrize(
    'name', sorted(name for name in LOSSES if 'ignore' not in name and name != 'gradient balance')
)
def test_bce_is_the_only_loss_that_learns_nothing_from_unknown_labels(name):
    s, z = batch()
    z = z.clamp(min=0)
    s = s.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(LOSSES[name](s, z).sum(), s)
    assert (gradient[z == 0].abs().max() > 0) == (name != 'bce')


@pytest.mark.parametrize('name', methods.names())
def test_a_loss_as_a_module_is_the_loss_of_the_method_or_refused(name):
    generator = torch.Generator().manual_seed(0)
    z = observed('single', 6, 4, generator)
    logits = torch.randn(6, 4, generator=generator, dtype=torch.float64).tanh()
    if not issubclass(find(name), LossMethod) and name != 'hml':
        with pytest.raises(SpmlError, match=rf"'{name}' is more than .*methods.create"):
            L.Loss(name)
        return
    criterion = L.Loss(name)
    outputs = ViewOutputs(weak=Outputs(logits, cosine=logits))
    expected = create(name, z, epochs=1).loss(outputs, torch.arange(6))
    if name == 'hml':  # the method adapts scale and margin
        expected = L.hml_loss(logits, z)
    assert criterion(logits, z) == expected
    assert list(criterion.state_dict()) == [] and name in repr(criterion)


def every_loss():
    "The names of `losses`, and the registered losses that it does not list."
    kinds = [find(name) for name in methods.names()]
    others = {kind.function.__name__ for kind in kinds if issubclass(kind, LossMethod)}
    return sorted({*L.__all__, *others})


@pytest.mark.parametrize('name', every_loss())
def test_a_loss_shows_an_example_that_is_right(name):
    names = {each: getattr(L, each) for each in L.__all__} | {name: getattr(L, name)}
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(names[name], name, globs={'torch': torch, **names})
    assert any(each.want for each in example.examples), f'{name} needs an example in its docstring'
    assert doctest.DocTestRunner().run(example).failed == 0
