"The names of runs: fields added to the configuration later rename no run that was trained before."
from dataclasses import replace

import pandas as pd
import pytest

from spml_nb.runs import config as configs
from spml_nb.runs import record
from spml_nb.runs.config import ADDED, Config, config_hash, resolve
from spml_nb.runs.folder import Run

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
    assert config_hash(replace(base, **{field: configs.neutral('mini_voc')[field]})) == config_hash(base)


def test_methods_with_a_strong_view_on_drawn_images_have_new_names_because_their_view_changed():
    config = resolve(Config(loss='lac', dataset='mini_coco', device='cpu'))
    assert config.views == 'shift_hue' and config_hash(config) != config_hash(replace(config, views='shift'))


def test_tables_give_old_runs_the_values_that_everything_had_then(tmp_path):
    run = Run(Config(**OLD['011066baa5db']), tmp_path / 'runs')
    run.start()
    (run.folder / 'config.json').write_text(pd.Series(OLD['011066baa5db']).to_json())
    run.finish({'scores': {'test_map': 1.0}, 'seconds': 1.0, 'data': 'x', 'provenance': {'commit': None}})
    row = record.load(tmp_path / 'runs').iloc[0]
    assert (row.frozen_stages, row.normalise, row.views, row.hold_out, row.map_definition) == (0, True, 'flip', True, 'cole')
    pd.DataFrame([{'run': 'older', 'key': 'k', 'loss': 'em', 'seed': 0, 'seconds': 1.0, 'dataset': 'mini_voc', 'test_map': 2.0}]).to_csv(tmp_path / 'runs.csv', index=False)
    both = record.export_csv(tmp_path / 'runs.csv', tmp_path / 'runs').set_index('run')
    assert both.loc['older', ['frozen_stages', 'views', 'normalise']].tolist() == ['0', 'shift', 'True']
