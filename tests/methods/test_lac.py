"""LAC: golden values of the released code, the queue's state, and what the contrast may cost. The
formulas are checked in the notebook.
"""

import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import normalize

from spml_nb.base.errors import SpmlError
from spml_nb.methods import lac
from spml_nb.methods.baselines import an_loss
from spml_nb.methods.core import ViewOutputs, create, find, resolve_hparams
from spml_nb.methods.lac import EmbeddingQueue, lac_loss, log_partition, plc_loss, plc_masks
from spml_nb.runs.config import Config, resolve
from spml_nb.training.schedule import plan_stages

FORMS = ('paper', 'code')


def entries(n, classes, *, d=6, empty=0, seed=0, dtype=torch.double):
    "n entries with unit embeddings, the last `empty` of them without a label."
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(1, classes + 1, (n,), generator=g)
    labels[n - empty :] = 0
    return normalize(torch.randn(n, 2, d, generator=g, dtype=torch.double), dim=-1).to(
        dtype
    ).requires_grad_(), labels


@pytest.fixture(params=['whole', 'chunks'])
def chunks(request, monkeypatch):
    if request.param == 'chunks':
        monkeypatch.setattr(lac, 'MAX_SIMILARITIES', 70)


# ---- golden values


def test_contrast_agrees_with_the_released_code(golden, chunks):
    case = golden.case('lac_contrast')
    e = torch.from_numpy(case['embeddings']).requires_grad_()
    loss = lac_loss(
        e, torch.from_numpy(case['labels']), temperature=case['hp']['temperature'], form='code'
    )
    (grad,) = torch.autograd.grad(loss, e)
    assert abs(loss.item() - case['loss']) <= 1e-6 * abs(case['loss'])
    assert abs(grad.numpy() - case['grad']).max() <= 1e-6 * abs(case['grad']).max()


def test_contrast_agrees_with_the_released_code_when_part_of_it_is_the_queue(golden):
    case = golden.case('lac_contrast')
    e, y = torch.from_numpy(case['embeddings']), torch.from_numpy(case['labels'])
    batch = e[:12].clone().requires_grad_()
    loss = lac_loss(
        batch, y[:12], e[12:], y[12:], temperature=case['hp']['temperature'], form='code'
    )
    (grad,) = torch.autograd.grad(loss, batch)
    assert abs(loss.item() - case['loss']) <= 1e-6 * abs(case['loss'])
    assert abs(grad.numpy() - case['grad'][:12]).max() <= 1e-6 * abs(case['grad']).max()


def test_plc_agrees_with_the_released_code(golden):
    case = golden.case('plc')
    strong = torch.from_numpy(case['strong_logits']).requires_grad_()
    loss = plc_loss(
        torch.from_numpy(case['weak_logits']),
        strong,
        torch.from_numpy(case['z']),
        case['hp']['threshold'],
        form='code',
    )
    (grad,) = torch.autograd.grad(loss, strong)
    assert abs(loss.item() - case['loss']) <= 1e-6 * abs(case['loss'])
    assert abs(grad.numpy() - case['grad']).max() <= 1e-6 * abs(case['grad']).max()


# ---- PLC


def test_plc_at_the_thresholds_themselves():
    edge = torch.tensor([[0.75, 0.25]], dtype=torch.double).logit()
    assert edge.sigmoid().tolist() == [[0.75, 0.25]]
    z = torch.zeros(1, 2)
    assert [m.tolist() for m in plc_masks(edge, z, 0.75, 'paper')] == [
        [[True, False]],
        [[False, True]],
    ]
    assert [m.tolist() for m in plc_masks(edge, z, 0.75, 'code')] == [
        [[True, False]],
        [[False, False]],
    ]


def test_plc_teaches_observed_positives_in_the_code_form_only_and_observed_negatives_never():
    weak = torch.tensor([[-9.0, 9.0, 9.0, -9.0]])
    z = torch.tensor([[1, 1, -1, -1]])
    assert [m.any().item() for m in plc_masks(weak, z, 0.6, 'paper')] == [False, False]
    up, down = plc_masks(weak, z, 0.6, 'code')
    assert up.tolist() == [[True, True, False, False]] and not down.any()


def test_plc_gives_the_weak_view_no_gradient():
    weak, strong = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    for form in FORMS:
        grads = torch.autograd.grad(
            plc_loss(weak, strong, torch.zeros(3, 4), 0.5, form), (weak, strong), allow_unused=True
        )
        assert grads[0] is None and grads[1].any()


def test_plc_reductions_and_the_forms_own():
    g = torch.Generator().manual_seed(0)
    weak, strong = torch.randn(5, 6, generator=g), torch.randn(5, 6, generator=g)
    z = torch.randint(0, 2, (5, 6), generator=g)
    for form in FORMS:
        each = plc_loss(weak, strong, z, 0.6, form, reduction='none')
        taught = torch.stack(plc_masks(weak, z, 0.6, form)).any(0)
        own = each.sum() / (5 if form == 'paper' else taught.sum())
        torch.testing.assert_close(plc_loss(weak, strong, z, 0.6, form), own)
        torch.testing.assert_close(
            plc_loss(weak, strong, z, 0.6, form, reduction='mean'), each.mean()
        )


# ---- LAC


def test_log_partition_has_the_right_gradient(monkeypatch):
    monkeypatch.setattr(lac, 'MAX_SIMILARITIES', 12)
    g = torch.Generator().manual_seed(0)
    a, c = (torch.randn(n, 3, generator=g, dtype=torch.double).requires_grad_() for n in (5, 6))
    keys, others = torch.tensor([0, 1, 2, 1, 9]), torch.tensor([0, 0, 1, 1, 2, 0])

    def in_three_sets(a, c):
        return log_partition(
            a, keys, *((c[part], others[part]) for part in (slice(4), slice(4, 6), slice(0)))
        )

    assert torch.autograd.gradcheck(in_three_sets, (a, c))


@pytest.mark.parametrize('form', FORMS)
def test_order_names_of_classes_and_empty_slots_do_not_matter(form):
    z, y = entries(8, 3)
    queue, queue_y = entries(6, 3, seed=1)
    given = {'temperature': 0.5, 'form': form, 'total': 99}
    loss = lac_loss(z, y, queue, queue_y, **given)
    order, name = torch.randperm(8), torch.tensor([0, 80, 7, 312])
    assert (
        abs(
            lac_loss(z[order], name[y[order]], queue.flip(0), name[queue_y.flip(0)], **given) - loss
        )
        < 1e-12
    )
    padding = torch.full((4, 2, 6), torch.nan, dtype=torch.double)
    zeros = torch.zeros(4, dtype=torch.long)
    padded = lac_loss(
        torch.cat([z, padding]),
        torch.cat([y, zeros]),
        torch.cat([padding, queue]),
        torch.cat([zeros, queue_y]),
        **given,
    )
    assert abs(padded - loss) < 1e-12


def test_paper_form_may_be_negative_and_scales_with_total():
    a, b = torch.tensor([1.0, 0.0]), torch.tensor([-1.0, 0.0])
    z, y = torch.stack([a, a, b])[:, None].expand(3, 2, 2), torch.tensor([1, 1, 2])
    loss = lac_loss(z, y, temperature=0.5, total=3)
    assert loss < 0
    torch.testing.assert_close(lac_loss(z, y, temperature=0.5, total=30), loss / 10)
    torch.testing.assert_close(lac_loss(z, y, temperature=0.5), loss)


@pytest.mark.parametrize('form', FORMS)
def test_a_batch_without_entries_gives_zero_with_zero_gradient(form):
    queue, queue_y = entries(6, 3, seed=1)
    for n in (0, 4):
        z = torch.randn(n, 2, 6, requires_grad=True)
        loss = lac_loss(
            z,
            torch.zeros(n, dtype=torch.long),
            queue.detach().float(),
            queue_y,
            temperature=0.5,
            form=form,
        )
        assert loss == 0 and not torch.autograd.grad(loss, z)[0].any()


@pytest.mark.parametrize('form', FORMS)
def test_one_class_alone_and_a_single_entry_are_finite(form):
    for n in (1, 5):
        z, y = entries(n, 1, dtype=torch.float32)
        loss = lac_loss(z, y, temperature=0.01, form=form)
        assert loss.isfinite() and torch.autograd.grad(loss, z)[0].isfinite().all()
        if form == 'paper' or n == 1:
            assert loss.abs() < 1e-5


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
@pytest.mark.parametrize('form', FORMS)
def test_contrast_is_computed_in_float32(dtype, form):
    z, y = entries(8, 3)
    half = z.detach().to(dtype).requires_grad_()
    with torch.autocast('cpu', torch.bfloat16):
        loss = lac_loss(half, y, temperature=0.1, form=form)
    exact = lac_loss(half.detach().float(), y, temperature=0.1, form=form)
    assert loss.dtype == torch.float32 and abs(loss - exact) < 1e-6 * abs(exact)
    assert torch.autograd.grad(loss, half)[0].isfinite().all()


def test_left_out_entries_are_dropped_or_masked_to_the_same_end(monkeypatch):
    padding = torch.full((4, 2, 6), torch.nan, dtype=torch.double)
    z, y = entries(9, 3, empty=3)
    queue, queue_y = entries(7, 4, empty=2, seed=1)
    z = torch.cat([z, padding])
    y = torch.cat([y, torch.zeros(4, dtype=torch.long)])

    def losses():
        for form in FORMS:
            for labels in (y, 0 * y, (y == 1).long()):
                for beside in (queue_y, 0 * queue_y):
                    given = {'temperature': 0.5, 'form': form, 'classes': 5}
                    loss = lac_loss(z, labels, queue.detach(), beside, **given)
                    yield loss.detach(), torch.autograd.grad(loss, z, materialize_grads=True)[0]

    dropped = list(losses())
    monkeypatch.setattr(lac, 'cheap_values', lambda labels: None)  # as on a GPU
    torch.testing.assert_close(list(losses()), dropped, rtol=1e-12, atol=1e-12)


# ---- what it costs


def test_only_valid_entries_are_multiplied(monkeypatch):
    shapes, true = [], lac.log_partition

    def spy(a, k, *sets):
        shapes.append((len(a), sum(len(c) for c, _ in sets)))
        return true(a, k, *sets)

    monkeypatch.setattr(lac, 'log_partition', spy)
    z, y = entries(320, 4, empty=310)
    queue, queue_y = entries(64, 4, empty=59, seed=1)
    for form in FORMS:
        lac_loss(z, y, queue, queue_y, temperature=0.5, form=form)
    assert shapes == [(10, 15), (20, 30), (10, 30)]


MEASURE = """
    import resource, torch
    from torch.nn.functional import normalize
    from spml_nb.methods.lac import lac_loss
    def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    z = normalize(torch.randn(32 * 80, 2, 128), dim=-1).requires_grad_()
    y = torch.arange(80).repeat(32) + 1
    queue, queue_y = normalize(torch.randn(8192, 2, 128), dim=-1), torch.randint(1, 81, (8192,))
    lac_loss(z[:9], y[:9], temperature=0.5, form='code').backward()
    before = peak()
    for form in ('paper', 'code'):
        lac_loss(z, y, queue, queue_y, temperature=0.5, form=form).backward()
    print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != 'linux', reason='ru_maxrss is in KiB on Linux only')
def test_a_full_batch_with_the_longest_queue_stays_far_below_a_gibibyte():
    done = subprocess.run(
        [sys.executable, '-c', textwrap.dedent(MEASURE)], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 512, f'{done.stdout} MiB'


# ---- the queue


def add(queue, numbers):
    labels = torch.tensor(numbers, dtype=torch.long)
    queue.add(
        labels[:, None, None]
        + torch.tensor([[[0.25]], [[0.5]]]).view(1, 2, 1).expand(len(numbers), 2, 3),
        labels,
    )


def test_queue_keeps_the_newest_with_both_views():
    queue = EmbeddingQueue(5, 3)
    seen = []
    for numbers in (
        [1, 2],
        [],
        [3, 4, 5, 6],
        [7],
        list(range(8, 20)),
        [20, 21, 22, 23, 24],
        [25, 26],
    ):
        add(queue, numbers)
        seen += numbers
        assert sorted(queue.labels[queue.labels > 0].tolist()) == sorted(seen[-5:])
        kept = queue.labels > 0
        assert torch.equal(
            queue.embeddings[kept][:, :, 0], queue.labels[kept][:, None] + torch.tensor([0.25, 0.5])
        )


def test_queue_of_length_zero_stays_empty():
    queue = EmbeddingQueue(0, 3)
    add(queue, [1, 2])
    assert queue.labels.shape == (0,) and queue.embeddings.shape == (0, 2, 3)


def test_an_overflow_leaves_no_trace_in_the_queue():
    queue = EmbeddingQueue(4, 3)
    z = torch.ones(3, 2, 3)
    z[1, 1, 2] = torch.nan
    queue.add(z, torch.tensor([1, 2, 3]))
    assert queue.labels.tolist() == [1, 0, 3, 0] and queue.embeddings.isfinite().all()


# ---- the methods

C, D = 5, 8


def observed(n=24, negatives=False):
    g = torch.Generator().manual_seed(0)
    z = torch.zeros(n, C, dtype=torch.int8)
    z[torch.arange(n), torch.randint(0, C, (n,), generator=g)] = 1
    if negatives:
        z[z == 0] = -1
    return z


def outputs(index, seed=0, dtype=torch.float32, scale=2.0):
    g = torch.Generator().manual_seed(seed + int(index.sum()))

    def view():
        return SimpleNamespace(
            logits=(scale * torch.randn(len(index), C, generator=g)).to(dtype).requires_grad_(),
            embeddings=torch.randn(len(index), C, D, generator=g).to(dtype).requires_grad_(),
        )

    return ViewOutputs(weak=view(), strong=view())


def make(name='lac', z=None, stage=None, **hparams):
    torch.manual_seed(0)
    method = create(name, observed() if z is None else z, epochs=2, features=D, **hparams)
    if stage:
        method.start_stage(stage)
    return method


INDEX = torch.arange(6)


def test_each_stage_has_the_whole_allowance():
    for regime, epochs in (('finetune', 120), ('linear', 60)):
        for name, hparams in (('lac_plc', {}), ('lac', {}), ('lac', {'two_stage': False})):
            config = resolve(Config(loss=name, dataset='mini_voc', regime=regime, hparams=hparams))
            method = make(name, **hparams)
            parts = plan_stages(config, method)
            assert len(parts) == method.stages and {part.epochs for part in parts} == {epochs}


def test_what_the_methods_ask_for():
    assert (
        find('lac').stages == 2
        and make().stages == 2
        and make(two_stage=False).stages == find('lac_plc').stages == 1
    )
    for name in ('lac', 'lac_plc'):
        assert find(name).head == 'labelwise' and find(name).views == (
            'weak',
            'strong',
        )
    assert find('lac').heads == ('labelwise',)
    assert (
        find('lac').recipe
        | {'optimizer': 'adamw', 'weight_decay': 0.01, 'schedule': 'onecycle', 'ema': 0.9997}
        == find('lac').recipe
    )
    assert {k: v for k, v in resolve_hparams('lac', 'coco', {}).items() if 'threshold' in k} == {
        'threshold': 0.6,
        'stage2_threshold': 0.9,
    }
    cub = resolve_hparams('lac', 'cub', {})
    assert (
        cub['threshold']
        == cub['stage2_threshold']
        == resolve_hparams('lac_plc', 'cub', {})['threshold']
        == 0.5
    )
    assert (
        resolve_hparams('lac', 'voc', {})['queue'],
        resolve_hparams('lac', 'nus', {})['temperature'],
    ) == (512, 0.5)


@pytest.mark.parametrize('form', FORMS)
def test_loss_is_the_sum_of_its_parts(form):
    views, z = outputs(INDEX), observed()[INDEX]
    weak, strong = views['weak'].logits, views['strong'].logits
    an = an_loss(weak, z, reduction='sample' if form == 'paper' else 'mean')
    plc = [plc_loss(weak, strong, z, delta, form) for delta in (0.7, 0.8)]
    torch.testing.assert_close(make('lac_plc', lambda_plc=0.0, form=form).loss(views, INDEX), an)
    torch.testing.assert_close(
        make('lac_plc', lambda_plc=2.0, threshold=0.7, form=form).loss(views, INDEX),
        an + 2 * plc[0],
    )
    given = {
        'lambda_plc': 2.0,
        'lambda_lac': 3.0,
        'threshold': 0.7,
        'stage2_threshold': 0.8,
        'form': form,
    }
    torch.testing.assert_close(make(**given).loss(views, INDEX), an + 2 * plc[0])
    method = make(stage=2, **given)
    pairs = [
        (i, c)
        for i in range(6)
        for c in range(C)
        if z[i, c] == 1 or (z[i, c] == 0 and weak[i, c].sigmoid() >= 0.8)
    ]
    both = [torch.stack([views[v].embeddings[i, c] for v in views]) for i, c in pairs]
    projected = torch.stack([normalize(method.projector(f), dim=-1) for f in both])
    labels = torch.tensor([c + 1 for _, c in pairs])
    contrast = lac_loss(projected, labels, temperature=0.5, form=form, total=6 * C)
    torch.testing.assert_close(method.loss(views, INDEX), an + 2 * plc[1] + 3 * contrast)
    assert (
        torch.equal(method.queue.labels[: len(labels)], labels)
        and not method.queue.labels[len(labels) :].any()
    )
    torch.testing.assert_close(method.queue.embeddings[: len(labels)], projected.detach())


def test_end_to_end_contrasts_from_the_start():
    views = outputs(INDEX)
    method = make(two_stage=False, queue=0)
    assert method.loss(views, INDEX) != make('lac_plc').loss(views, INDEX)
    assert make(queue=0).loss(views, INDEX) == make('lac_plc').loss(views, INDEX)


def test_first_stage_leaves_projector_and_queue_alone():
    method = make()
    before = {k: v.clone() for k, v in method.state_dict().items()}
    optimizer = torch.optim.AdamW(method.parameters(), lr=1.0, weight_decay=0.1)
    method.loss(outputs(INDEX), INDEX).backward()
    optimizer.step()
    assert all(torch.equal(v, before[k]) for k, v in method.state_dict().items())
    method.start_stage(2)
    method.loss(outputs(INDEX), INDEX).backward()
    optimizer.step()
    assert all(
        not torch.equal(v, before[k])
        for k, v in method.state_dict().items()
        if k not in ('z', 'acts_since')
    )


def test_second_batch_is_compared_with_the_first_and_a_queue_gets_no_gradient():
    first, second, later = outputs(INDEX), outputs(INDEX + 6), INDEX + 6
    losses = []
    for size in (0, 512):
        method = make(stage=2, queue=size)
        method.loss(first, INDEX)
        losses.append(method.loss(second, later))
    losses[1].backward()
    assert (
        losses[0] != losses[1]
        and first['weak'].embeddings.grad is None
        and second['strong'].embeddings.grad.any()
    )
    stored = method.queue.embeddings[method.queue.labels > 0]
    torch.testing.assert_close(stored.norm(dim=-1), torch.ones(len(stored), 2))


@pytest.mark.parametrize('size', [0, 1, 15, 40])
@pytest.mark.parametrize('form', FORMS)
def test_the_codes_queue_counts_the_batch_and_the_papers_does_not(form, size):
    "Against a Python list of everything that was ever compared, newest last."
    method = make(stage=2, queue=size, form=form, lambda_plc=0.0, stage2_threshold=0.7)
    seen = []
    shares = []
    an = make('lac_plc', form=form, lambda_plc=0.0)
    for k in range(6):
        index = (INDEX + 6 * k) % 24
        views = outputs(index, seed=k)
        weak, z = views['weak'].logits, observed()[index]
        pairs = [
            (i, c)
            for i in range(6)
            for c in range(C)
            if z[i, c] == 1 or (z[i, c] == 0 and weak[i, c].sigmoid() >= 0.7)
        ]
        batch = [
            (
                torch.stack(
                    [normalize(method.projector(views[v].embeddings[i, c]), dim=-1) for v in views]
                ).detach(),
                c + 1,
            )
            for i, c in pairs
        ]
        room = size if form == 'paper' else max(size - len(batch), 0)
        past = seen[len(seen) - min(room, len(seen)) :]
        known = (
            [torch.stack([e for e, _ in past]), torch.tensor([y for _, y in past])] if past else []
        )
        wanted = lac_loss(
            torch.stack([e for e, _ in batch]),
            torch.tensor([y for _, y in batch]),
            *known,
            temperature=0.5,
            form=form,
            total=6 * C,
        )
        torch.testing.assert_close(method.loss(views, index), an.loss(views, index) + wanted)
        seen += batch
        shares.append(len(past))
    assert (
        6 <= len(batch) < 15
        and (max(shares) > 0) == (size > 1 or (size, form) == (1, 'paper'))
        and (max(shares) == size) == (size == 0 or form == 'paper')
    )


@pytest.mark.parametrize('size', [0, 1, 7, 40])
@pytest.mark.parametrize('form', FORMS)
def test_steps_that_wait_for_nothing_are_the_same_steps(form, size, monkeypatch):
    "Losses, gradients and the queue, where all entries of a batch are computed and masked."

    def steps():
        method = make(stage=2, form=form, queue=size, stage2_threshold=0.7).double()
        for k in range(5):
            index = (INDEX + 6 * k) % 24
            views = outputs(index, seed=k, dtype=torch.double)
            loss = method.loss(views, index)
            loss.backward()
            yield loss.detach(), *(view.embeddings.grad for view in views.values())
        yield tuple(p.grad for p in method.parameters())
        yield tuple(method.queue.buffers())

    waiting = list(steps())
    monkeypatch.setattr(lac, 'cheap_values', lambda labels: None)
    torch.testing.assert_close(list(steps()), waiting, rtol=1e-12, atol=1e-12)


def test_the_second_stage_is_a_mechanism_of_the_two_stage_method_only():
    method = make()
    method.start_stage(1)
    method.start_epoch(1)
    assert method.acts_since == -1
    method.start_stage(2)
    method.start_epoch(1)
    method.start_epoch(2)
    assert method.acts_since == 1 and method.mechanism == 'the second stage'
    for other in (make(two_stage=False), make('lac_plc')):
        other.start_stage(1), other.start_epoch(1)
        assert not other.mechanism and 'acts_since' not in other.state_dict()


def test_a_batch_larger_than_the_queue_keeps_the_newest():
    method = make(stage=2, queue=3, stage2_threshold=0.5)
    views = outputs(INDEX)
    method.loss(views, INDEX).backward()
    up, _ = plc_masks(views['weak'].logits, observed()[INDEX], 0.5, 'code')
    assert up.sum() > 3 and sorted(method.queue.labels.tolist()) == sorted(
        (up.nonzero()[-3:, 1] + 1).tolist()
    )


def test_a_single_positive_and_none_at_all():
    z = observed(2)
    z[1] = 0
    method = make(z=z, stage=2, stage2_threshold=1.0)
    for index in (torch.tensor([0]), torch.tensor([1])):
        views = outputs(index, scale=0.1)
        loss = method.loss(views, index)
        loss.backward()
        assert loss.isfinite() and views['weak'].embeddings.grad.isfinite().all()
        assert all(p.grad.isfinite().all() for p in method.parameters())
    assert not views['weak'].embeddings.grad.any() and int((method.queue.labels > 0).sum()) == 1


def test_observed_negatives_are_never_compared():
    z = observed(negatives=True)
    method = make(z=z, stage=2)
    views = outputs(INDEX)
    views['weak'].logits = torch.full((6, C), 9.0, requires_grad=True)
    method.loss(views, INDEX)
    assert sorted(method.queue.labels[method.queue.labels > 0].tolist()) == sorted(
        (z[INDEX] > 0).nonzero()[:, 1].add(1).tolist()
    )


def test_evaluation_does_not_fill_the_queue():
    method = make(stage=2).eval()
    method.loss(outputs(INDEX), INDEX)
    assert not method.queue.labels.any()


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16, torch.float64])
def test_loss_takes_outputs_of_any_precision(dtype):
    method = make(stage=2)
    for step in range(2):
        index = INDEX + 6 * step
        views = outputs(index, dtype=dtype)
        loss = method.loss(views, index)
        loss.backward()
        assert (
            loss.isfinite()
            and views['strong'].embeddings.grad.isfinite().all()
            and views['strong'].embeddings.grad.any()
        )
    assert method.queue.embeddings.dtype == torch.float32


@pytest.mark.parametrize('form', FORMS)
def test_a_resumed_method_goes_on_exactly(form, tmp_path):
    def steps(method, optimizer, numbers):
        for k in numbers:
            index = (INDEX + 6 * k) % 24
            optimizer.zero_grad()
            loss = method.loss(outputs(index), index)
            loss.backward()
            optimizer.step()
        return loss

    def build():
        method = make(queue=17, form=form)
        return method, torch.optim.AdamW(method.parameters(), lr=0.01)

    whole, optimizer = build()
    whole.start_stage(2)
    steps(whole, optimizer, range(3))
    torch.save([whole.state_dict(), optimizer.state_dict()], tmp_path / 'saved.pt')
    expected = steps(whole, optimizer, range(3, 7))
    resumed, optimizer = build()
    saved = torch.load(tmp_path / 'saved.pt', weights_only=True)
    for part, state in zip((resumed, optimizer), saved, strict=True):
        part.load_state_dict(state)
    assert steps(resumed, optimizer, range(3, 7)) == expected
    assert all(torch.equal(v, whole.state_dict()[k]) for k, v in resumed.state_dict().items())


@pytest.mark.parametrize(
    'call, words',
    [
        (lambda: make('lac_plc', threshold=0.4), ['threshold', '0.4', '0.5 and 1']),
        (lambda: make(stage2_threshold=1.5), ['stage2_threshold', '1.5']),
        (lambda: make(temperature=0.0), ['temperature', '0.0']),
        (lambda: make(queue=-1), ['queue', '-1']),
        (lambda: make(projection=0), ['projection', '0']),
        (lambda: make(form='papre'), ['papre', 'paper']),
        (lambda: make(temprature=1.0), ['temprature', 'temperature']),
        (lambda: create('lac', observed(), epochs=1), ['features', 'labelwise']),
        (
            lambda: plc_loss(torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 3), 0.6, 'both'),
            ['both', 'code'],
        ),
        (
            lambda: lac_loss(torch.zeros(3, 2, 4), torch.ones(3), temperature=-1.0),
            ['temperature', '-1.0'],
        ),
        (
            lambda: lac_loss(torch.zeros(3, 4), torch.ones(3), temperature=1.0),
            ['(n, 2, d)', '(3, 4)'],
        ),
        (lambda: lac_loss(torch.zeros(3, 2, 4), torch.ones(2), temperature=1.0), ['(n,)', '(2,)']),
        (
            lambda: lac_loss(
                torch.zeros(3, 2, 4), torch.ones(3), torch.zeros(3, 2, 4), temperature=1.0
            ),
            ['queue_labels', 'None'],
        ),
    ],
)
def test_wrong_input_is_named(call, words):
    with pytest.raises(SpmlError) as error:
        call()
    assert all(word in str(error.value) for word in words), error.value
