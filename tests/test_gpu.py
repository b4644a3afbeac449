"""What only a GPU can show: the same results as on the CPU, mixed precision, compilation, resident
data, throughput. Skipped without one.

SPML_NB_TEST_DEVICE=cpu runs the tests themselves on the CPU, where none of this gains anything.
"""

import os
import time

import numpy as np
import pytest
import torch
from side_files import invented
from training.test_distributed import config

from spml_nb import methods, models, runs, training
from spml_nb.methods import core
from spml_nb.runs.config import Config
from spml_nb.runs.folder import Run
from spml_nb.training import batches as sources

DEVICE = os.environ.get('SPML_NB_TEST_DEVICE', 'cuda')
pytestmark = pytest.mark.skipif(
    DEVICE == 'cuda' and not torch.cuda.is_available(), reason='needs a GPU'
)


@pytest.fixture(autouse=True)
def exact_float32(monkeypatch):
    "No TF32, so that float noise is all that is left between the devices."
    monkeypatch.setenv('SPML_NB_DEVICE', DEVICE)
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


SCORES = torch.randn(12, 5, generator=torch.Generator().manual_seed(1))


def one_loss(name, device):
    "Loss and gradient of a method on made-up outputs of its head."
    torch.manual_seed(0)
    z = torch.zeros(12, 5, dtype=torch.int8)
    z[torch.arange(12), torch.arange(12) % 5] = 1
    head = core.find(name).head
    model = models.create(
        'mini', 5, head=head, weights='none', **({'d': 16} if head == 'labelwise' else {})
    ).eval()
    method = methods.create(name, z, epochs=6, features=model.embedding_dim)
    method.take(invented(12, 5))
    images = torch.rand(8, 3, 40, 40)
    model, method = model.to(device), method.to(device)
    method.start_stage(method.stages)
    method.end_epoch(
        5, lambda view='plain': SCORES.to(device)
    )  # pseudo-labels, corrections and the like, so that the loss has all its parts
    method.start_epoch(6)
    assert name != 'em_apl' or method.pseudo.any()
    index = torch.arange(8, device=device)
    outputs = core.ViewOutputs({role: model(images.to(device)) for role in method.views})
    method.loss(outputs, index)  # fills LAC's queue
    loss = method.loss(outputs, index)
    gradients = torch.autograd.grad(
        loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True
    )
    return loss.item(), [g.cpu() for g in gradients if g is not None]


@pytest.mark.parametrize('name', methods.names())
def test_every_loss_is_that_of_the_cpu(name):
    (here, ours), (there, theirs) = one_loss(name, 'cpu'), one_loss(name, DEVICE)
    assert there == pytest.approx(here, rel=1e-4, abs=1e-5)
    noise = 1e-3 * max(float(g.abs().max()) for g in ours)  # some gradients are 0 but for rounding
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-3, atol=noise)


def trained(folder, loss, **given):
    return training.train(config(folder, loss, **given))


@pytest.mark.parametrize(
    ('loss', 'given'),
    [
        *(
            (loss, {}) for loss in ('an', 'em_apl', 'role', 'hml', 'gr', 'two_way')
        ),  # LAC's dropout draws on the device
        ('an', {'regime': 'finetune', 'freeze_batchnorm': True, 'epochs': 1}),
        ('an', {'regime': 'finetune', 'freeze_batchnorm': True, 'epochs': 1, 'views': 'flip'}),
    ],
)
def test_a_run_is_that_of_the_cpu(photo_folder, loss, given, monkeypatch, tmp_path):
    found = {}
    for device in (DEVICE, 'cpu'):
        monkeypatch.setenv(
            'SPML_NB_CACHE', str(tmp_path / device)
        )  # each computes its own features
        found[device, len(found)] = trained(photo_folder, loss, device=device, **given)
    there, here = found.values()
    np.testing.assert_allclose(there.curves.loss, here.curves.loss, rtol=1e-3)
    np.testing.assert_allclose(there.logits['test'], here.logits['test'], atol=1e-2)


@pytest.mark.parametrize(
    'name',
    ['an', 'em', 'em_apl', 'role', 'llcp', 'hml', 'gr', 'opml_sp', 'two_way', 'splc', 'crisp'],
)
@pytest.mark.parametrize('regime', ['linear', 'finetune'])
def test_a_step_does_not_wait_for_the_device(photo_folder, name, regime):
    if DEVICE == 'cpu':
        pytest.skip('there is nothing to wait for')
    given = runs.resolve(config(photo_folder, name, regime=regime, device=DEVICE))
    trainer = training.Trainer(given, Run(given), training.make_task(given))
    trainer.begin(1, trainer.stages[0])
    trainer.module.train()
    trainer.method.start_epoch(1)
    trainer.watch.start(1)
    trainer.step(torch.arange(6))  # what is prepared once
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode('error')
        for _ in range(2):
            trainer.step(torch.arange(6))
    finally:
        torch.cuda.set_sync_debug_mode('default')


@pytest.mark.parametrize('precision', ['bf16', 'fp16'])
def test_mixed_precision_learns_as_well(photo_folder, precision):
    if precision == 'fp16' and DEVICE == 'cpu':
        pytest.skip('fp16 is slow on CPUs')
    exact, mixed = (
        trained(photo_folder, 'an', regime='finetune', epochs=4, precision=p).scores['test_map']
        for p in ('float32', precision)
    )
    assert mixed > exact - 5


@pytest.mark.parametrize('regime', ['linear', 'finetune'])
def test_compiled_steps_are_the_same_steps(photo_folder, regime):
    plain, compiled = (trained(photo_folder, 'em', regime=regime, compile=c) for c in (False, True))
    np.testing.assert_allclose(compiled.curves.loss, plain.curves.loss, rtol=2e-3)
    np.testing.assert_allclose(
        compiled.logits['test'], plain.logits['test'], rtol=2e-2, atol=5e-2
    )  # noise, grown over the steps


def test_a_data_set_that_fits_is_resident(photo_folder):
    given = runs.resolve(config(photo_folder, 'an', regime='finetune', device=DEVICE))
    trainer = training.Trainer(given, Run(given), training.make_task(given))
    source, rows = trainer.images, np.array([3, 0, 7])
    assert (source.resident is not None) == (DEVICE != 'cpu')
    copied = sources.ImageSource(source.store, source.names, torch.device('cpu'))
    batch = source.batch(rows, 'plain')
    torch.testing.assert_close(
        batch.cpu(), copied.batch(rows, 'plain'), rtol=0, atol=1e-7
    )  # a GPU divides by multiplying
    assert batch.is_contiguous(memory_format=torch.channels_last)


def test_kept_maps_that_fit_are_resident():
    maps = np.random.RandomState(0).rand(6, 3, 2, 5).astype(np.float16)
    rows, drawn = np.array([3, 0, 3]), {'strong': [maps[[0, 3]]]}
    here, there = (
        sources.FeatureSource(maps, drawn, np.array([0, 3]), torch.device(device))
        for device in ('cpu', DEVICE)
    )
    assert isinstance(there.plain, torch.Tensor) == (DEVICE != 'cpu')
    for role in ('plain', 'strong'):
        batch = there.batch(rows, role)
        assert torch.equal(batch.cpu(), here.batch(rows, role)) and batch.is_contiguous(
            memory_format=torch.channels_last
        )


def images_per_second(given: Config, n=512):
    "Training steps on noise, after a warm-up."
    from spml_nb.data.dataset import Dataset

    rng = np.random.RandomState(0)
    labels = np.where(rng.rand(n, 20) < 0.15, 1, -1).astype(np.int8)
    data = Dataset(
        'noise',
        rng.randint(0, 256, (n, 224, 224, 3), dtype=np.uint8),
        labels,
        [f'c{k}' for k in range(20)],
        np.full(n, 'train'),
    )
    given = runs.resolve(given)
    trainer = training.Trainer(
        given,
        Run(given),
        training.Task(
            data, np.arange(n), np.arange(0), np.arange(0), np.maximum(labels, 0), labels[:0]
        ),
    )
    trainer.begin(1, trainer.stages[0])
    trainer.module.train()
    trainer.watch.start(1)
    trainer.method.start_epoch(1)

    def once():
        for index in torch.arange(n).split(given.batch_size):
            trainer.step(index)
        trainer.watch.look()  # waits for the device

    once()
    started = time.perf_counter()
    once()
    return n / (time.perf_counter() - started)


def test_throughput(capsys):
    """Prints a table; half precision must not be slower than float32 by more than a tenth at the
    larger batch.
    """
    if DEVICE == 'cpu':
        pytest.skip('bench.py measures CPUs')
    table = {}
    for backbone in ('efficientnet_lite0', 'resnet50'):
        for batch in (16, 64):
            for precision in ('float32', 'bf16'):
                for compiled in (False, True):
                    table[backbone, batch, precision, compiled] = images_per_second(
                        Config(
                            loss='an',
                            dataset='noise',
                            backbone=backbone,
                            weights='none',
                            image_size=224,
                            batch_size=batch,
                            lr=1e-4,
                            precision=precision,
                            compile=compiled,
                            selection='last',
                            device=DEVICE,
                        )
                    )
    with capsys.disabled():
        print(f'\n{torch.cuda.get_device_name()}')
        for key, rate in table.items():
            print(*key, f'{rate:.0f} images/s')
    for backbone in ('efficientnet_lite0', 'resnet50'):
        assert table[backbone, 64, 'bf16', False] > 0.9 * table[backbone, 64, 'float32', False]
