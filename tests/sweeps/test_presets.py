"""Presets of the papers, the names of runs, the papers' backbones and the dry run."""
import re
from dataclasses import asdict, replace
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
import torch
import torchvision

from spml_nb.data import labels
from spml_nb import models, runs
from spml_nb.sweeps import presets
from spml_nb.base.errors import SpmlError
from spml_nb.methods.core import family, find, resolve_hparams
from spml_nb.runs.config import ADDED, Config, config_hash, resolve
from spml_nb.runs.folder import Run

ROOT = Path(__file__).resolve().parents[2]
EVERY = [(p, d, loss) for p in presets.papers() for d in presets.datasets(p) for loss in presets.losses(p, d)]

# ---- the names of runs

OLD = {   # resolved configurations and their hashes from before any field was added
    '4155857aa148': {'loss': 'em', 'dataset': 'mini_voc', 'root': None, 'min_positives': 0, 'exclude': [], 'labels': 'single', 'label_seed': 1200,
                     'seed': 0, 'regime': 'finetune', 'backbone': 'mini', 'weights': 'default', 'head': 'linear', 'image_size': 40, 'epochs': 10,
                     'batch_size': 16, 'lr': 0.001, 'head_lr_multiplier': 10.0, 'linear_epochs': 25, 'linear_lr': 0.001, 'optimizer': 'adam',
                     'weight_decay': 0.0, 'momentum': 0.9, 'schedule': 'constant', 'ema': 0.0, 'selection': 'val_clean', 'patience': 0,
                     'stop_below': 0.0, 'cached_views': 4, 'precision': 'float32', 'device': 'cpu', 'hparams': {'alpha': 0.2, 'reduction': 'mean'}},
    '011066baa5db': {'loss': 'hml', 'dataset': 'ccp', 'root': None, 'min_positives': 40, 'exclude': ['skin', 'hair'], 'labels': 'single',
                     'label_seed': 1200, 'seed': 0, 'regime': 'linear', 'backbone': 'efficientnet_lite0', 'weights': 'default', 'head': 'cosine',
                     'image_size': 224, 'epochs': 25, 'batch_size': 16, 'lr': 0.001, 'head_lr_multiplier': 10.0, 'linear_epochs': 25,
                     'linear_lr': 0.001, 'optimizer': 'adam', 'weight_decay': 0.0, 'momentum': 0.9, 'schedule': 'constant', 'ema': 0.0,
                     'selection': 'val_clean', 'patience': 0, 'stop_below': 0.0, 'cached_views': 4, 'precision': 'float32', 'device': 'cpu',
                     'hparams': {'scale': 20.0, 'margin': 0.3, 'margin_on': 'both', 'unknown': 'negative', 'adaptive_lr': 0.01, 'reduction': 'mean'}}}


@pytest.mark.parametrize('name', OLD)
def test_fields_added_later_rename_no_old_run(name):
    config = Config(**OLD[name])
    assert config_hash(config) == config_hash(resolve(config)) == name


@pytest.mark.parametrize('field, value', [('frozen_stages', 1), ('freeze_batchnorm', True), ('normalise', False), ('views', 'flip'),
                                          ('map_definition', 'two_way'), ('hold_out', False)])
def test_a_field_added_later_counts_where_it_is_used(field, value):
    assert field in ADDED
    old = Config(**OLD['4155857aa148'])
    base = replace(old, selection='last') if field == 'hold_out' else old
    assert config_hash(replace(base, **{field: value})) != config_hash(base)
    assert config_hash(replace(base, **{field: runs.neutral('mini_voc')[field]})) == config_hash(base)


def test_methods_with_a_strong_view_on_drawn_images_have_new_names_because_their_view_changed():
    config = resolve(Config(loss='lac', dataset='mini_coco', device='cpu'))
    assert config.views == 'shift_hue' and config_hash(config) != config_hash(replace(config, views='shift'))


def test_tables_give_old_runs_the_values_that_everything_had_then(tmp_path):
    run = Run(Config(**OLD['011066baa5db']), tmp_path / 'runs')
    run.start()
    (run.folder / 'config.json').write_text(pd.Series(OLD['011066baa5db']).to_json())
    run.finish({'scores': {'test_map': 1.0}, 'seconds': 1.0, 'data': 'x', 'provenance': {'commit': None}})
    row = runs.load(tmp_path / 'runs').iloc[0]
    assert (row.frozen_stages, row.normalise, row.views, row.hold_out, row.map_definition) == (0, True, 'flip', True, 'cole')
    pd.DataFrame([{'run': 'older', 'key': 'k', 'loss': 'em', 'seed': 0, 'seconds': 1.0, 'dataset': 'mini_voc', 'test_map': 2.0}]).to_csv(tmp_path / 'runs.csv', index=False)
    both = runs.export_csv(tmp_path / 'runs.csv', tmp_path / 'runs').set_index('run')
    assert both.loc['older', ['frozen_stages', 'views', 'normalise']].tolist() == ['0', 'shift', 'True']


# ---- the table of presets

@pytest.mark.parametrize('paper', presets.papers())
def test_every_loss_on_every_data_set_of_a_paper_is_a_valid_configuration(paper):
    assert {'hml', 'opml', 'lac', 'two_way', 'em_apl'} == set(presets.papers())
    for p, dataset, loss in EVERY:
        if p != paper: continue
        config = resolve(Config(**presets.preset(p, dataset, loss)))
        given = presets.preset(p, dataset, loss)
        assert (config.loss, config.dataset) == (loss, dataset) and all(getattr(config, k) == v for k, v in given.items() if k != 'hparams')
        assert all(config.hparams[k] == v for k, v in given['hparams'].items())
        assert {'backbone', 'image_size', 'views', 'optimizer', 'epochs', 'batch_size', 'lr', 'head_lr_multiplier', 'selection', 'labels'} <= set(given)


@pytest.mark.parametrize('paper', presets.papers())
def test_every_loss_of_a_paper_takes_a_training_step_with_its_preset(paper, tmp_path):
    dataset = presets.datasets(paper)[0]
    for k, loss in enumerate(presets.losses(paper, dataset)):
        given = presets.preset(paper, dataset, loss) | {'backbone': 'mini', 'image_size': 40, 'frozen_stages': 0}
        trainer = presets.trial(Config(**given), presets.SIZES[dataset][0], tmp_path / str(k))
        before = [p.detach().clone() for p in trainer.model.head_parameters()]
        trainer.step(torch.arange(2))
        trainer.watch.look()
        assert any(not torch.equal(a, b) for a, b in zip(before, trainer.model.head_parameters(), strict=True)), loss
        assert trainer.config.views == given['views']


@pytest.mark.parametrize('paper, own', [('em_apl', None), ('hml', {'hml', 'hml_fixed', 'ls', 'epr', 'role'}), ('lac', None), ('opml', {'llr', 'llct', 'llcp'})])
def test_presets_and_the_methods_registered_values_are_the_same(paper, own):
    compared = 0
    for p, dataset, loss in EVERY:
        if p != paper or (own and loss not in own): continue
        registered = find(loss).values.get(family(dataset), {})
        given = presets.preset(p, dataset, loss)['hparams']
        for name in set(registered) & set(given):
            assert given[name] == registered[name], (dataset, loss, name)
            compared += 1
        assert set(registered) <= set(given) and resolve_hparams(loss, family(dataset), given)
    assert compared >= 12


def test_numbers_chosen_here_say_so():
    table = presets.table()
    assert set(table.origin) == set(presets.ORIGINS)
    for origin, words in (('lost', 'lost ('), ('chosen', 'not stated (')):
        rows = table[table.origin == origin]
        assert len(rows) and all(s.startswith(words) and s.endswith(f'-> chosen here: {v}') for s, v in zip(rows.source, rows.value, strict=True))
    assert not table[~table.origin.isin(['lost', 'chosen'])].source.str.contains('chosen here').any()
    assert table.source.str.fullmatch(r'(paper|cited|authors. code|Cole et al. 2021): .+|(lost|not stated) \(.+').all()
    opml = table[(table.paper == 'opml') & table.loss.isin(['opml', 'opml_sp', 'zlpr']) & table.value.map(lambda v: isinstance(v, int | float))]
    assert set(opml[~opml.name.isin(['label_seed', 'image_size'])].origin) == {'lost', 'chosen'}   # its text has lost every number


def test_values_that_differ_by_data_set():
    def value(paper, dataset, loss, name): return next(v for v in presets.values(paper, dataset, loss) if v.name == name)
    assert [value('em_apl', d, 'em_apl', 'warm_up').value for d in ('voc12', 'coco14', 'nus', 'cub')] == [5, 5, 4, 3]
    assert value('lac', 'coco14', 'lac', 'threshold').origin == 'code' and value('lac', 'voc12', 'lac', 'threshold').origin == 'chosen'
    assert value('two_way', 'imagenet', 'two_way', 'epochs').value == 90 and value('two_way', 'coco14', 'two_way', 'epochs').value == 40
    assert value('two_way', 'vaw', 'asl', 'unknown').value == 'ignore' and 'unknown' not in presets.preset('two_way', 'coco14', 'asl')['hparams']
    copied = value('opml', 'cub', 'em', 'lr')
    assert copied.value == 1e-4 and copied.origin == 'cited' and copied.source == 'cited: as in em_apl, Table 5'


def test_what_a_paper_does_not_have_is_refused():
    for given, words in ((('hlm', 'voc12', 'hml'), "unknown paper 'hlm'.*mean 'hml'"), (('hml', 'voc07', 'hml'), "data set of 'hml'"),
                         (('hml', 'voc12', 'lac'), "loss of 'hml' on 'voc12'"), (('two_way', 'vispr', 'joint'), "loss of 'two_way' on 'vispr'")):
        with pytest.raises(SpmlError, match=words): presets.preset(*given)
    with pytest.raises(SpmlError, match="backbone of 'hml'"): presets.dry_run('hml', 'voc12', 'hml', 'densenet169')
    with pytest.raises(SpmlError, match="loss of 'lac'"): presets.overview('lac', 'asl')


def test_the_grid_is_the_product_of_what_was_searched():
    points = presets.grid('hml', 'voc12', 'hml')
    assert {(p['batch_size'], p['lr']) for p in points} == {(b, lr) for b in (8, 16) for lr in (1e-2, 1e-3, 1e-4, 1e-5)} and len(points) == 8
    assert presets.preset('hml', 'voc12', 'hml') in points and presets.grid('two_way', 'voc12', 'asl') == [presets.preset('two_way', 'voc12', 'asl')]


def test_sizes_are_those_of_the_splits_and_of_the_readers():
    for _, train, val, _ in presets.SIZES.values():
        if val: assert [len(part) for part in labels.split(train + val)] == [train, val]
    benchmarks = pytest.importorskip('spml_nb.data.official')
    known = getattr(benchmarks, 'BENCHMARKS', None) or {}
    for name, (classes, train, val, test) in presets.SIZES.items():
        counts = getattr(known.get(name), 'counts', None) if isinstance(known, dict) else None
        if counts and 'train' in counts: assert counts == {'train': train + val, 'test': test, 'classes': classes}, name


# ---- numbers that a paper prints are in its text

TEXTS = {'hml': 'hml.txt', 'em_apl': 'em_apl_supplement.txt', 'lac': 'lac.txt', 'two_way': 'two_way.txt', 'opml': 'opml.txt'}
PRINTED = {   # (paper, loss or None for all, name): a fragment of the paper with the numbers, in the order of its data sets
    ('hml', None, 'epochs'): 'trained for 10 epochs',
    ('hml', 'hml_fixed', 'scale'): 'best hyperparameters above with scale=20 and margin=0.3', ('hml', 'hml_fixed', 'margin'): 'scale=20 and margin=0.3',
    ('em_apl', None, 'batch_size'): 'Batch Size 8 16 16 8', ('em_apl', None, 'lr'): 'Learning Rate 1e - 5 1e - 5 1e - 5 1e-4',
    ('em_apl', None, 'alpha'): r'$\alpha$ 0.2 0.1 0.1 0.01', ('em_apl', None, 'beta'): r'$\beta$ 0.02 0.9 0.2 0.4', ('em_apl', None, 'proportion'): 'heta% 90%',
    ('em_apl', None, 'warm_up'): 'T_{ m w}$ 5 5 4 3', ('em_apl', 'dw', 'negative_weight'): '0.1 is selected for VOC, COCO, and NUS, and 0.02 is selected for CUB',
    ('em_apl', 'l1', 'weight'): '1e-6 (resp. 1e-7, 1e-7, 1e-9) for VOC', ('em_apl', 'ls', 'smoothing'): 'In LS, we select 0.1 for all four datasets',
    ('em_apl', 'nls', 'smoothing'): 'we select 0.3 for VOC, and select 0.1 for the other', ('em_apl', 'entmin', 'weight'): '0.01 (resp. 0.9, 0.4, 0.4) for VOC',
    ('em_apl', 'focal', 'gamma'): r'we set $\gamma = 2$', ('em_apl', 'focal', 'alpha'): r'select $\alpha = 0.75$ for all four',
    ('em_apl', 'asl', 'gamma_pos'): r'we set $\gamma_+ = 0$', ('em_apl', 'asl', 'gamma_neg'): r'$\gamma_- = 2$ , m = 0.2 for VOC, COCO, and NUS, and select $\gamma_- = 1$',
    ('em_apl', 'asl', 'margin'): r'm = 0.2 for VOC, COCO, and NUS, and select $\gamma_- = 1$ , m = 0 for CUB',
    ('lac', None, 'seed'): 'random seed is set to 1', ('lac', None, 'image_size'): r'$448 \times 448$', ('lac', None, 'weight_decay'): 'weight decay of 0.01',
    ('lac', None, 'lr'): 'max learning rate of 0.0001', ('lac', None, 'epochs'): 'for 40 epochs with the early stopping', ('lac', None, 'ema'): 'decay of 0.9997',
    ('lac', None, 'lambda_plc'): r'\lambda_{PCL} = 1', ('lac', None, 'lambda_lac'): r'set $\lambda_{LAC} = 1$',
    ('two_way', None, 'momentum'): 'SGD with momentum of 0.9', ('two_way', None, 'weight_decay'): 'weight decay of 10^{-4}',
    ('two_way', None, 'batch_size'): 'a batch of 512 samples', ('two_way', None, 'epochs'): 'over 40 training epochs', ('two_way', None, 'lr'): '0.001 for the other layers',
    ('two_way', None, 'head_lr_multiplier'): 'starting from 0.01 for the FC classifier and 0.001', ('two_way', None, 'bucket'): '4 buckets of M=512/4=128',
    ('two_way', None, 'T_pos'): r'T_{\mathcal{P}}=T=4', ('two_way', None, 'T_neg'): r'T_{\mathcal{N}}=1',
    ('two_way', 'joint', 'T_pos'): r'$T_{\mathcal{P}}$ 1 2 4 1 2 4', ('two_way', 'multi_similarity', 'T_pos'): r'$T_{\mathcal{P}}$ 1 2 4 1 2 4',
    ('two_way', 'focal', 'gamma'): r'$\gamma=2$ in FocalLoss', ('two_way', 'asl', 'gamma_pos'): r'\gamma_+=0,\gamma_-=4,m=0.05',
    ('two_way', 'asl', 'gamma_neg'): r'\gamma_-=4,m=0.05', ('two_way', 'asl', 'margin'): 'm=0.05'}
IMAGENET = {'epochs': 'from scratch over 90 epochs', 'lr': 'initial learning rate of 0.1'}


def numbers(text):
    "The numbers in a fragment: 1e - 5, 10^{-4}, 90 % and plain ones."
    text = re.sub(r'10\^\{?-(\d)\}?', r'1e-\1', re.sub(r'(\d)e\s*-\s*(\d)', r'\1e-\2', text))
    return [float(n) / (100 if percent else 1) for n, percent in re.findall(r'(\d+(?:\.\d+)?(?:e-\d+)?)(%?)', text)]


def test_numbers_are_read_from_fragments():
    assert numbers('1e - 5 and 10^{-4}, 90% of 0.02 or 448') == [1e-5, 1e-4, 0.9, 0.02, 448]


@pytest.mark.parametrize('paper', ['hml', 'em_apl', 'lac', 'two_way'])
def test_every_number_that_a_paper_prints_is_in_its_text(paper):
    file = ROOT.parent / 'shared' / 'papers' / TEXTS[paper]
    if not file.is_file(): pytest.skip('the papers are not here')
    text, seen = ' '.join(file.read_text().split()), 0
    for p, dataset, loss in EVERY:
        if p != paper: continue
        for value in presets.values(p, dataset, loss):
            if value.origin != 'paper' or isinstance(value.value, bool | str): continue
            quote = IMAGENET.get(value.name) if dataset == 'imagenet' else None
            quote = quote or PRINTED.get((p, loss, value.name)) or PRINTED[p, None, value.name]
            assert quote in text, (loss, value.name, quote)
            found = numbers(quote)
            if value.name == 'head_lr_multiplier': assert found[0] / found[1] == pytest.approx(value.value)
            else: assert value.value in found, (dataset, loss, value.name, value.value, quote)
            if len(found) == 4 and p == 'em_apl': assert found[presets.datasets(p).index(dataset)] == value.value, (dataset, loss, value.name)
            seen += 1
    assert seen >= 8
    for value in {v.where for p, d, loss in EVERY if p == paper for v in presets.values(p, d, loss) if v.origin == 'paper'}:
        place = re.match(r'(Table \d+|\d\.\d|C\.3|E$|title)', value)
        assert place and (place[0] == 'title' or place[0] in text), value


# ---- backbones

def without_network(monkeypatch, folder):
    def refuse(*_, **__): raise URLError('no network')
    monkeypatch.setattr(torch.hub, 'download_url_to_file', refuse)
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(folder))


@pytest.mark.parametrize('name, file', [('resnet50', 'resnet50-0676ba61.pth'), ('resnext50_32x4d', 'resnext50_32x4d-7cdf4587.pth'),
                                        ('densenet169', 'densenet169-b2777c0a.pth'), ('regnet_y_32gf', 'regnet_y_32gf-4dee3f7a.pth')])
def test_weights_that_cannot_be_fetched_name_the_file_its_address_and_its_place(name, file, monkeypatch, tmp_path):
    without_network(monkeypatch, tmp_path)
    monkeypatch.setattr(torchvision.models, 'get_model', lambda *_, **__: torch.hub.load_state_dict_from_url(f'https://x/{file}'))   # builds no network
    with pytest.raises(SpmlError, match=rf"{name}.*no network.*Put the file {file} \(from https://download.pytorch.org/models/{file}.*{tmp_path}/checkpoints.*weights=PATH"):
        models.create(name, 3)


@pytest.mark.parametrize('name, file', [('resnet18', 'resnet18-f37072fd.pth'), ('densenet169', 'densenet169-b2777c0a.pth')])
def test_a_file_put_in_that_place_or_given_by_its_path_is_used(name, file, monkeypatch, tmp_path):
    without_network(monkeypatch, tmp_path)
    (tmp_path / 'checkpoints').mkdir()
    state = getattr(torchvision.models, name)(weights=None).state_dict()
    if name == 'densenet169':   # the file that torchvision serves has the names of its first version
        state = {re.sub(r'(denselayer\d+\.(?:norm|relu|conv))([12]\.)', r'\1.\2', k): v for k, v in state.items() if 'num_batches' not in k}
        assert any('denselayer1.norm.1.weight' in k for k in state)
    torch.save(state, tmp_path / 'checkpoints' / file)
    placed, given = models.create(name, 3), models.create(name, 3, weights=tmp_path / 'checkpoints' / file)
    first = next(iter(state))
    assert torch.equal(placed.backbone.state_dict()[first], state[first])
    assert all(torch.equal(a, b) for a, b in zip(placed.backbone.state_dict().values(), given.backbone.state_dict().values(), strict=True))


def test_a_file_in_that_place_that_does_not_serve_is_named(monkeypatch, tmp_path):
    without_network(monkeypatch, tmp_path)
    (tmp_path / 'checkpoints').mkdir()
    (tmp_path / 'checkpoints' / 'resnet50-0676ba61.pth').write_bytes(b'half a file')
    with pytest.raises(SpmlError, match='resnet50-0676ba61.pth is there but does not serve: remove it'): models.create('resnet50', 3)


# ---- the dry run

def test_the_line_through_one_and_two():
    assert presets.extrapolate((5.0, 7.0), 512) == 5 + 511 * 2 and presets.extrapolate((5.0, 4.9), 512) == 5.0 and presets.extrapolate((3, 4), 1) == 3


def test_a_dry_run_adds_up(monkeypatch):
    monkeypatch.setattr(presets, '_measured', {})
    monkeypatch.setattr(presets, 'measure', lambda config, classes: presets.Cost((3.0, 5.0), (1.0, 1.5), (2**30, 3 * 2**30), 4 * 2**30))
    row = presets.dry_run('lac', 'voc12', 'lac')
    step = 3 + 31 * 2   # batch 32
    assert (row['batch_size'], row['steps'], row['epochs'], row['step_seconds']) == (32, 143, 80, step)   # two stages of 40
    assert row['core_hours'] == round((80 * 143 * step + 0.5 * (1143 * 80 * 2 + 5823)) / 3600, 1)   # raw and averaged weights are scored
    assert (row['kept_gib'], row['held_gib'], row['memory_gib']) == (63, 4, 67)
    row = presets.dry_run('two_way', 'voc12', 'asl', 'densenet169')
    assert (row['backbone'], row['steps'], row['batch_size']) == ('densenet169', 12, 512)   # all 5,717 images
    assert row['core_hours'] == round((40 * 12 * (3 + 511 * 2) + 0.5 * 5823) / 3600, 1)


def test_the_same_network_is_measured_once(monkeypatch):
    asked = []
    monkeypatch.setattr(presets, '_measured', {})
    monkeypatch.setattr(presets, 'measure', lambda config, classes: asked.append((config.backbone, config.head, classes)) or presets.Cost((1, 2), (1, 2), (1, 2), 1))
    table = presets.dry_runs(tell=lambda line: None)
    assert len(table) == 4 * 4 + 6 * 4 + 1 and {(r.paper, r.dataset, r.backbone) for r in table.itertuples()} == {
        (p, d, b) for p in presets.papers() for d in presets.datasets(p) for b in presets.backbones(p) if d != 'imagenet' or b == 'resnet50'}
    assert len(asked) == 3 + 4 + 4   # 448 px: cosine, linear under Adam and under SGD; label-wise for four class counts; 224 px: four backbones


def test_memory_is_a_line_in_the_batch_and_counts_what_is_there(tmp_path):
    config = Config(loss='an', dataset='voc12', backbone='resnet18', image_size=64, views='flip', ema=0.9, optimizer='adam')
    def kept(n):
        trainer = presets.trial(config, 20, tmp_path / str(n))
        with presets.Kept([*trainer.module.parameters(), *trainer.module.buffers()]) as count: trainer.step(torch.arange(n) % 4)
        return count.bytes, trainer
    sizes = {n: kept(n)[0] for n in (1, 2, 6)}
    assert sizes[6] == pytest.approx(presets.extrapolate((sizes[1], sizes[2]), 6), rel=0.01) and sizes[2] > 1.8 * sizes[1]
    trainer = kept(2)[1]
    weights = sum(p.numel() for p in trainer.model.parameters()) * 4
    assert presets.held(trainer) == pytest.approx(5 * weights, rel=0.01)   # weights, gradients, two moments, averaged copy


def test_two_ways_real_network_takes_its_step_and_needs_forty_gigabytes_at_its_batch(monkeypatch):
    monkeypatch.setattr(presets, '_measured', {})
    row = presets.dry_run('two_way', 'voc07', 'two_way')
    assert 38 < row['kept_gib'] < 44 and row['kept_2_mib'] / row['kept_1_mib'] == pytest.approx(2, rel=0.02) and row['step_2'] > 0
    assert np.isfinite(row['core_hours']) and 'batch 512' in presets.described(row)


def test_a_trial_leaves_the_preset_as_it_is(tmp_path):
    given = presets.preset('lac', 'voc12', 'lac') | {'backbone': 'mini', 'image_size': 40}
    trainer = presets.trial(Config(**given), 20, tmp_path)
    assert trainer.stage.number == 2 and trainer.method.stage == 2 and trainer.averaged is not None and len(trainer.config.hparams) == 9
    changed = {k for k, v in asdict(resolve(Config(**given))).items() if asdict(trainer.config)[k] != v}
    assert changed <= {'weights', 'device', 'precision', 'batch_size'}
