"""The papers' presets: they are valid configurations, train, agree with the methods' own values,
and are in the papers' texts.
"""

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.data.dataset import Dataset
from spml_nb.methods.core import find, find_family, resolve_hparams
from spml_nb.runs.config import Config, resolve
from spml_nb.runs.folder import Run
from spml_nb.sweeps import presets
from spml_nb.training.task import Task
from spml_nb.training.trainer import Trainer

ROOT = Path(__file__).resolve().parents[2]
EVERY = [
    (p, d, loss)
    for p in presets.PAPERS
    for d in presets.paper_datasets(p)
    for loss in presets.paper_losses(p, d)
]


@pytest.mark.parametrize('paper', presets.PAPERS)
def test_every_loss_on_every_data_set_of_a_paper_is_a_valid_configuration(paper):
    assert {'hml', 'opml', 'lac', 'two_way', 'em_apl'} == set(presets.PAPERS)
    for p, dataset, loss in EVERY:
        if p != paper:
            continue
        config = resolve(Config(**presets.preset(p, dataset, loss)))
        given = presets.preset(p, dataset, loss)
        assert (config.loss, config.dataset) == (loss, dataset) and all(
            getattr(config, k) == v for k, v in given.items() if k != 'hparams'
        )
        assert all(config.hparams[k] == v for k, v in given['hparams'].items())
        assert {
            'backbone',
            'image_size',
            'views',
            'optimizer',
            'epochs',
            'batch_size',
            'lr',
            'head_lr_multiplier',
            'selection',
            'labels',
        } <= set(given)


def drawn_task(dataset, classes, side):
    "Four images of noise with one observed positive each."
    random, first = np.random.RandomState(0), np.arange(4) % classes
    labels = np.where(random.rand(4, classes) < 0.2, 1, -1).astype(np.int8)
    observed = np.zeros_like(labels)
    labels[np.arange(4), first] = observed[np.arange(4), first] = 1
    pixels = random.randint(0, 256, (4, side, side, 3), dtype=np.uint8)
    data = Dataset(dataset, pixels, labels, [str(c) for c in range(classes)], np.full(4, 'train'))
    return Task(data, np.arange(4), np.arange(0), np.arange(0), observed, observed[:0])


@pytest.mark.parametrize('paper', presets.PAPERS)
def test_every_loss_of_a_paper_takes_a_training_step_with_its_preset(paper, tmp_path):
    dataset = presets.paper_datasets(paper)[0]
    for k, loss in enumerate(presets.paper_losses(paper, dataset)):
        given = presets.preset(paper, dataset, loss)
        small = {
            'backbone': 'mini',
            'image_size': 40,
            'frozen_stages': 0,
            'weights': 'none',
            'device': 'cpu',
            'precision': 'float32',
            'batch_size': 2,
        }
        config = resolve(Config(**given | small))
        trainer = Trainer(
            config,
            Run(config, tmp_path / str(k)),
            drawn_task(dataset, 20, 45 if config.views == 'crop' else 40),
        )
        trainer.begin(len(trainer.stages), trainer.stages[-1])
        trainer.watch.start(1)
        trainer.method.start_epoch(1)
        trainer.module.train()
        before = [p.detach().clone() for p in trainer.model.head.parameters()]
        trainer.step(torch.arange(2))
        trainer.watch.look()
        assert any(
            not torch.equal(a, b)
            for a, b in zip(before, trainer.model.head.parameters(), strict=True)
        ), loss
        assert trainer.config.views == given['views'] and trainer.stage.number == len(
            trainer.stages
        ) == (2 if loss == 'lac' else 1)


@pytest.mark.parametrize(
    'paper, own',
    [
        ('em_apl', None),
        ('hml', {'hml', 'hml_fixed', 'ls', 'epr', 'role'}),
        ('lac', None),
        (
            'two_way',
            {
                'two_way',
                'two_way_class',
                'two_way_sample',
                'softmax',
                'softmax_two_way',
                'joint',
                'multi_similarity',
            },
        ),
        ('opml', {'llr', 'llct', 'llcp', 'opml', 'opml_sp'}),
    ],
)
def test_presets_and_the_methods_registered_values_are_the_same(paper, own):
    compared = 0
    for p, dataset, loss in EVERY:
        if p != paper or (own and loss not in own):
            continue
        registered = find(loss).values.get(find_family(dataset), {})
        given = presets.preset(p, dataset, loss)['hparams']
        for name in set(registered) & set(given):
            assert given[name] == registered[name], (dataset, loss, name)
            compared += 1
        assert set(registered) <= set(given) and resolve_hparams(loss, find_family(dataset), given)
    assert compared >= 12


def test_numbers_chosen_here_say_so():
    table = presets.preset_table()
    assert set(table.origin) == set(presets.ORIGINS)
    for origin, words in (('lost', 'lost ('), ('chosen', 'not stated (')):
        rows = table[table.origin == origin]
        assert len(rows) and all(
            s.startswith(words) and s.endswith(f'-> chosen here: {v}')
            for s, v in zip(rows.source, rows.value, strict=True)
        )
    assert (
        not table[~table.origin.isin(['lost', 'chosen'])].source.str.contains('chosen here').any()
    )
    assert table.source.str.fullmatch(
        r'(paper|cited|authors. code|Cole et al. 2021): .+|(lost|not stated) \(.+'
    ).all()
    opml = table[
        (table.paper == 'opml')
        & table.loss.isin(['opml', 'opml_sp', 'zlpr'])
        & table.value.map(lambda v: isinstance(v, int | float))
    ]
    assert set(opml[~opml.name.isin(['label_seed', 'image_size'])].origin) == {
        'lost',
        'chosen',
    }  # its text has lost every number


def test_values_that_differ_by_data_set():
    def value(paper, dataset, loss, name):
        return presets.paper_values(paper, dataset, loss)[name]

    assert [
        value('em_apl', d, 'em_apl', 'warm_up').value for d in ('voc12', 'coco14', 'nus', 'cub')
    ] == [5, 5, 4, 3]
    assert (
        value('lac', 'coco14', 'lac', 'threshold').origin == 'code'
        and value('lac', 'voc12', 'lac', 'threshold').origin == 'chosen'
    )
    assert (
        value('two_way', 'imagenet', 'two_way', 'epochs').value == 90
        and value('two_way', 'coco14', 'two_way', 'epochs').value == 40
    )
    assert (
        value('two_way', 'vaw', 'asl', 'unknown').value == 'ignore'
        and 'unknown' not in presets.preset('two_way', 'coco14', 'asl')['hparams']
    )
    copied = value('opml', 'cub', 'em', 'lr')
    assert (
        copied.value == 1e-4
        and copied.origin == 'cited'
        and copied.source == 'cited: as in em_apl, Table 5'
    )


def test_what_a_paper_does_not_have_is_refused():
    for given, words in (
        (('hlm', 'voc12', 'hml'), "unknown paper 'hlm'.*mean 'hml'"),
        (('hml', 'voc07', 'hml'), "data set of 'hml'"),
        (('hml', 'voc12', 'lac'), "loss of 'hml' on 'voc12'"),
        (('two_way', 'vispr', 'joint'), "loss of 'two_way' on 'vispr'"),
    ):
        with pytest.raises(SpmlError, match=words):
            presets.preset(*given)
    with pytest.raises(SpmlError, match="loss of 'lac'"):
        presets.preset_overview('lac', 'asl')


# ---- numbers that a paper prints are in its text

TEXTS = {
    'hml': 'hml.txt',
    'em_apl': 'em_apl_supplement.txt',
    'lac': 'lac.txt',
    'two_way': 'two_way.txt',
    'opml': 'opml.txt',
}
# (paper, loss or None for all, name): a fragment of the paper with the numbers, in the order of its
# data sets
PRINTED = {
    ('hml', None, 'epochs'): 'trained for 10 epochs',
    ('hml', 'hml_fixed', 'scale'): 'best hyperparameters above with scale=20 and margin=0.3',
    ('hml', 'hml_fixed', 'margin'): 'scale=20 and margin=0.3',
    ('em_apl', None, 'batch_size'): 'Batch Size 8 16 16 8',
    ('em_apl', None, 'lr'): 'Learning Rate 1e - 5 1e - 5 1e - 5 1e-4',
    ('em_apl', None, 'alpha'): r'$\alpha$ 0.2 0.1 0.1 0.01',
    ('em_apl', None, 'beta'): r'$\beta$ 0.02 0.9 0.2 0.4',
    ('em_apl', None, 'proportion'): 'heta% 90%',
    ('em_apl', None, 'warm_up'): 'T_{ m w}$ 5 5 4 3',
    (
        'em_apl',
        'dw',
        'negative_weight',
    ): '0.1 is selected for VOC, COCO, and NUS, and 0.02 is selected for CUB',
    ('em_apl', 'l1', 'weight'): '1e-6 (resp. 1e-7, 1e-7, 1e-9) for VOC',
    ('em_apl', 'ls', 'smoothing'): 'In LS, we select 0.1 for all four datasets',
    ('em_apl', 'nls', 'smoothing'): 'we select 0.3 for VOC, and select 0.1 for the other',
    ('em_apl', 'entmin', 'weight'): '0.01 (resp. 0.9, 0.4, 0.4) for VOC',
    ('em_apl', 'focal', 'gamma'): r'we set $\gamma = 2$',
    ('em_apl', 'focal', 'alpha'): r'select $\alpha = 0.75$ for all four',
    ('em_apl', 'asl', 'gamma_pos'): r'we set $\gamma_+ = 0$',
    (
        'em_apl',
        'asl',
        'gamma_neg',
    ): r'$\gamma_- = 2$ , m = 0.2 for VOC, COCO, and NUS, and select $\gamma_- = 1$',
    (
        'em_apl',
        'asl',
        'margin',
    ): r'm = 0.2 for VOC, COCO, and NUS, and select $\gamma_- = 1$ , m = 0 for CUB',
    ('lac', None, 'seed'): 'random seed is set to 1',
    ('lac', None, 'image_size'): r'$448 \times 448$',
    ('lac', None, 'weight_decay'): 'weight decay of 0.01',
    ('lac', None, 'lr'): 'max learning rate of 0.0001',
    ('lac', None, 'epochs'): 'for 40 epochs with the early stopping',
    ('lac', None, 'ema'): 'decay of 0.9997',
    ('lac', None, 'lambda_plc'): r'\lambda_{PCL} = 1',
    ('lac', None, 'lambda_lac'): r'set $\lambda_{LAC} = 1$',
    ('two_way', None, 'momentum'): 'SGD with momentum of 0.9',
    ('two_way', None, 'weight_decay'): 'weight decay of 10^{-4}',
    ('two_way', None, 'batch_size'): 'a batch of 512 samples',
    ('two_way', None, 'epochs'): 'over 40 training epochs',
    ('two_way', None, 'lr'): '0.001 for the other layers',
    ('two_way', None, 'head_lr_multiplier'): 'starting from 0.01 for the FC classifier and 0.001',
    ('two_way', None, 'bucket'): '4 buckets of M=512/4=128',
    ('two_way', None, 'T_pos'): r'T_{\mathcal{P}}=T=4',
    ('two_way', None, 'T_neg'): r'T_{\mathcal{N}}=1',
    ('two_way', 'joint', 'T_pos'): r'$T_{\mathcal{P}}$ 1 2 4 1 2 4',
    ('two_way', 'multi_similarity', 'T_pos'): r'$T_{\mathcal{P}}$ 1 2 4 1 2 4',
    ('two_way', 'focal', 'gamma'): r'$\gamma=2$ in FocalLoss',
    ('two_way', 'asl', 'gamma_pos'): r'\gamma_+=0,\gamma_-=4,m=0.05',
    ('two_way', 'asl', 'gamma_neg'): r'\gamma_-=4,m=0.05',
    ('two_way', 'asl', 'margin'): 'm=0.05',
}
IMAGENET = {'epochs': 'from scratch over 90 epochs', 'lr': 'initial learning rate of 0.1'}


def numbers(text):
    "The numbers in a fragment: 1e - 5, 10^{-4}, 90 % and plain ones."
    text = re.sub(r'10\^\{?-(\d)\}?', r'1e-\1', re.sub(r'(\d)e\s*-\s*(\d)', r'\1e-\2', text))
    return [
        float(n) / (100 if percent else 1)
        for n, percent in re.findall(r'(\d+(?:\.\d+)?(?:e-\d+)?)(%?)', text)
    ]


def test_numbers_are_read_from_fragments():
    assert numbers('1e - 5 and 10^{-4}, 90% of 0.02 or 448') == [1e-5, 1e-4, 0.9, 0.02, 448]


@pytest.mark.parametrize('paper', ['hml', 'em_apl', 'lac', 'two_way'])
def test_every_number_that_a_paper_prints_is_in_its_text(paper):
    file = ROOT.parent / 'shared' / 'papers' / TEXTS[paper]
    if not file.is_file():
        pytest.skip('the papers are not here')
    text, seen = ' '.join(file.read_text().split()), 0
    for p, dataset, loss in EVERY:
        if p != paper:
            continue
        for name, value in presets.paper_values(p, dataset, loss).items():
            if value.origin != 'paper' or isinstance(value.value, bool | str):
                continue
            quote = IMAGENET.get(name) if dataset == 'imagenet' else None
            quote = quote or PRINTED.get((p, loss, name)) or PRINTED[p, None, name]
            assert quote in text, (loss, name, quote)
            found = numbers(quote)
            if name == 'head_lr_multiplier':
                assert found[0] / found[1] == pytest.approx(value.value)
            else:
                assert value.value in found, (dataset, loss, name, value.value, quote)
            if len(found) == 4 and p == 'em_apl':
                assert found[presets.paper_datasets(p).index(dataset)] == value.value, (
                    dataset,
                    loss,
                    name,
                )
            seen += 1
    assert seen >= 8
    for where in {
        v.where
        for p, d, loss in EVERY
        if p == paper
        for v in presets.paper_values(p, d, loss).values()
        if v.origin == 'paper'
    }:
        place = re.match(r'(Table \d+|\d\.\d|C\.3|E$|title)', where)
        assert place and (place[0] == 'title' or place[0] in text), where


def test_numbers_are_those_that_were_once_compared_with_the_texts():
    "Change the digest only together with a source: what differs is `presets.preset_table()`."
    assert (
        hashlib.sha256(presets.preset_table().to_csv().encode()).hexdigest()[:16]
        == '8532029a80e610ae'
    )
