"""The registry; every registered method gives gradients and trains through the loop; its state survives an interruption."""
import warnings

import numpy as np
import pytest
import torch
from conftest import check_resumes_equally

from spml_nb import methods, training
from spml_nb.base.errors import SpmlError
from spml_nb.methods.core import Method, ViewOutputs, find, register, resolve_hparams
from spml_nb.models.heads import Outputs
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
    with pytest.raises(SpmlError, match="head for 'lac' 'linear'; allowed: labelwise"): training.train(config(photo_folder, 'lac', head='linear'))


@pytest.mark.parametrize('loss, hparams', STATEFUL.items())
def test_state_survives_an_interruption_after_every_epoch(photo_folder, loss, hparams, monkeypatch):
    epochs = 2 if loss == 'lac' else 3   # of each of its two stages
    check_resumes_equally(config(photo_folder, loss, hparams=hparams, regime='finetune', epochs=epochs, lr=1e-3), monkeypatch)


NAMES = {'an', 'bce', 'wbce', 'wan', 'dw', 'ls', 'nls', 'l1', 'l2', 'epr', 'role', 'entmin', 'focal', 'asl', 'zlpr', 'llr', 'llct', 'llcp', 'em', 'em_apl', 'hml', 'hml_fixed',
         'opml', 'opml_sp', 'two_way', 'two_way_class', 'two_way_sample', 'joint', 'softmax', 'softmax_two_way', 'multi_similarity', 'lac', 'lac_plc', 'gr'}


def test_every_promised_method_is_registered():
    assert set(methods.names()) >= NAMES


@pytest.mark.parametrize('name', sorted(NAMES))
def test_every_method_gives_a_finite_loss_with_gradients(name):
    torch.manual_seed(0)
    z = torch.eye(6, dtype=torch.int8)[torch.randint(6, (20,))]
    method = methods.create(name, z, epochs=4, features=8)
    model = torch.nn.Linear(4, 6)
    model.decay_parameters = lambda: iter([model.weight])
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')   # em_apl: too few epochs to select
        method.start_stage(1)
    index = torch.tensor([3, 4, 11])
    def score(view='plain'): return torch.linspace(-3, 3, 120).view(20, 6)
    for e in (1, 2, 3, 4):
        method.start_epoch(e)
        logits = model(torch.randn(3, 4))
        outputs = Outputs(logits, torch.tanh(logits), torch.randn(3, 6, 8) + logits[..., None], None)
        value = method.loss(ViewOutputs({role: outputs for role in method.views}), index)
        penalty = method.penalty(model)
        value = value if penalty is None else value + penalty
        assert value.ndim == 0 and torch.isfinite(value)
        gradient, = torch.autograd.grad(value, model.weight)
        assert torch.isfinite(gradient).all() and gradient.abs().sum() > 0
        with torch.no_grad(): method.end_epoch(e, score)
    fresh = methods.create(name, z, epochs=4, features=8)
    fresh.load_state_dict(method.state_dict())


def test_two_methods_under_one_name_are_refused_and_a_wrong_value_too():
    class Mine(Method):
        def __init__(self, observed, *, epochs, features=None, weight: float = 1.0): super().__init__(observed, epochs=epochs, features=features)
    with pytest.raises(SpmlError, match="a method named 'em' is registered already"): register('em')(Mine)
    with pytest.raises(SpmlError, match="unknown hyper-parameter of 'mine' 'wait'; allowed: weight"): register('mine', values={'voc': {'wait': 1}})(Mine)
    assert 'mine' not in methods.names() and find('em').source


@pytest.mark.parametrize(('loss', 'given', 'value'), [('wan', {'negative_weight': '1e-1'}, 0.1), ('wan', {'negative_weight': None}, None), ('two_way', {'bucket': 4.0}, 4),
                                                      ('gr', {'w': [0, 1]}, (0, 1)), ('opml_sp', {'smoothing': False}, False)])
def test_a_hyper_parameter_becomes_what_its_annotation_says(loss, given, value):
    assert resolve_hparams(loss, 'other', given)[next(iter(given))] == value


@pytest.mark.parametrize(('loss', 'given', 'message'), [
    ('emm', {}, "unknown loss 'emm'.*'em'"), ('em', {'alhpa': 1}, "unknown hyper-parameter of 'em' 'alhpa'.*'alpha'"), ('two_way', {'bucket': 1.5}, "hyper-parameter 'bucket' of 'two_way' must be a whole number"),
    ('opml_sp', {'smoothing': 1}, 'must be true or false'), ('em', {'alpha': None}, 'must be a number')])
def test_wrong_names_and_kinds_are_told(loss, given, message):
    with pytest.raises(SpmlError, match=message): resolve_hparams(loss, 'voc', given)
