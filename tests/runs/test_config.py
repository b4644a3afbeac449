"""A configuration is checked, completed and named by a hash; the parameters of a notebook are guarded."""
import os
import subprocess
import sys

import pytest

from spml_nb.base.errors import SpmlError
from spml_nb.runs.config import Config, config_hash, notebook_parameters, resolve


@pytest.mark.parametrize('given, words', [
    ({'loss': 'emm'}, ["unknown loss 'emm'", 'allowed:', "Did you mean 'em'?"]),
    ({'hparams': {'alfa': 1}}, ["'alfa'", 'allowed: alpha', "Did you mean 'alpha'?"]),
    ({'hparams': {'alpha': 'much'}}, ["'alpha'", 'must be a number', "'much'"]),
    ({'lrr': 1}, ["unknown parameter 'lrr'", "Did you mean 'lr'?"]),
    ({'lr': 'abc'}, ["'lr'", 'must be a number', "'abc'"]),
    ({'lr': 0}, ['lr must be above 0']),
    ({'epochs': 1.5}, ["'epochs'", 'whole number', '1.5']),
    ({'seed': True}, ["'seed'", 'whole number', 'True']),
    ({'regime': 'frozen'}, ["unknown regime 'frozen'", 'finetune, linear, linear_init']),
    ({'selection': 'test'}, ["unknown selection 'test'", 'val_clean, val_observed, last']),
    ({'momentum': 1}, ['momentum must be below 1']),
    ({'device': 'tpu', 'loss': 'an'}, ['tpu']),
])
def test_wrong_configuration_is_told(given, words):
    with pytest.raises(SpmlError) as error: resolve(Config(**given))
    for word in words: assert word in str(error.value)


def test_numeric_strings_are_numbers():
    config = resolve(Config(lr='1e-4', epochs='3', hparams={'alpha': '2e-1'}))
    assert (config.lr, config.epochs, config.hparams['alpha']) == (1e-4, 3, 0.2)


def test_unset_hyper_parameters_take_the_papers_value():
    assert resolve(Config(loss='em', dataset='mini_voc')).hparams['alpha'] == 0.2
    assert resolve(Config(loss='em', dataset='mini_cub')).hparams['alpha'] == 0.01
    assert resolve(Config(loss='em', dataset='mini_cub', hparams={'alpha': 0.3})).hparams['alpha'] == 0.3


def test_hash_names_the_resolved_configuration():
    base = resolve(Config())
    assert config_hash(base) == config_hash(resolve(Config(epochs=base.epochs, lr=base.lr)))
    assert config_hash(base) != config_hash(resolve(Config(hparams={'alpha': 0.11})))


def test_a_folder_of_photos_is_no_miniature_by_its_name():
    for dataset in ('mini_cooper', './mini_cooper', './mini_voc', '/photos/mini_voc'):
        config = resolve(Config(loss='an', dataset=dataset))
        assert (config.backbone, config.image_size, config.views) == ('resnet50', 448, 'flip')
    for dataset in ('mini_voc', 'mini_coco', 'mini_nus', 'mini_cub', 'mini_objects', 'mini_objects_40', 'mini_digits'):
        config = resolve(Config(loss='an', dataset=dataset))
        assert (config.backbone, config.image_size, config.views) == ('mini', 40, 'shift')
    assert config_hash(resolve(Config(loss='an', dataset='mini_voc', device='cpu'))) == '69b6dd554d1c'   # as it was
    a, b = (resolve(Config(loss='an', dataset='./mini_cooper', views=views)) for views in ('shift', 'flip'))
    assert config_hash(a) != config_hash(b)


def test_notebook_guard():
    cells = {}
    parameters = notebook_parameters(cells)
    cells |= {'loss': 'lac', 'los': 'em', 'os': os, '_private': 1}
    assert parameters() == {'loss': 'lac', 'los': 'em'}
    with pytest.raises(SpmlError, match="lost its tag 'parameters'"): notebook_parameters({'loss': 'lac'})
    with pytest.raises(SpmlError, match="lost its tag 'parameters'"): notebook_parameters({'unheard_of': 3})


def test_all_cells_can_be_run_again_in_the_same_kernel():
    cells = {}
    for loss in ('em', 'lac'):
        parameters = notebook_parameters(cells)
        cells |= {'parameters': parameters, 'loss': loss}
        given = parameters()
        assert given == {'loss': loss}
        cells |= {'given': given, 'config': Config(**given), 'task': 3}   # what later cells set
    cells['seed'] = 1
    assert parameters() == {'loss': 'lac', 'seed': 1}                     # a field that is new is taken


def test_runs_are_listed_and_named_without_torch():
    code = ('import sys\nfrom spml_nb import runs\nfrom spml_nb.runs import record\n'
            'runs.load(), runs.read_record, runs.Run, runs.open_run\n'
            'config = runs.Config(loss="em", dataset="mini_voc")\n'
            'assert runs.config_hash(config) and runs.science_key(config).startswith("em-mini_voc-")\n'
            'assert "torch" not in sys.modules')
    subprocess.run([sys.executable, '-c', code], check=True)
