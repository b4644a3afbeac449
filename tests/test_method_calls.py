"""A method as a torch module: called, shown and copied, with bare logits where they are enough."""

import copy
import pickle

import pytest
import torch

from spml_nb.base.errors import SpmlError
from spml_nb.losses import Loss, em_loss
from spml_nb.methods.core import ViewOutputs, create, hyper_parameters
from spml_nb.models.heads import Outputs

Z = torch.eye(4, dtype=torch.int8)[[0, 1, 2, 3, 0, 2]]
INDEX = torch.arange(6)


@pytest.fixture
def logits():
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)


@pytest.mark.parametrize('name', ['em', 'an', 'role', 'llr', 'em_apl', 'crisp', 'gr'])
def test_a_call_and_bare_logits_give_the_loss(name, logits):
    values = []
    for _ in range(4):
        torch.manual_seed(0)
        values.append(create(name, Z, epochs=3))
        values[-1].start_stage(1)
        values[-1].start_epoch(1)
    outputs = ViewOutputs(weak=Outputs(logits))
    expected = values[0].loss(outputs, INDEX)
    assert torch.equal(values[1](outputs, INDEX), expected)
    assert torch.equal(values[2].loss(logits, INDEX), expected)
    assert torch.equal(values[3](logits, INDEX), expected)


def test_a_call_runs_hooks(logits):
    method = create('em', Z, epochs=3)
    seen = []
    method.register_forward_hook(lambda module, inputs, output: seen.append(output))
    assert seen == [] and method(logits, INDEX) == seen[0]


def test_what_bare_logits_lack_is_named(logits):
    with pytest.raises(SpmlError, match='cosine'):
        create('hml', Z, epochs=3)(logits, INDEX)
    with pytest.raises(SpmlError, match='strong.*forward_views'):
        create('lac_plc', Z, epochs=3)(logits, INDEX)
    with pytest.raises(SpmlError, match='count.*take'):
        create('epr_count', Z, epochs=3)(logits, INDEX)


@pytest.mark.parametrize('name', ['em', 'an', 'gr', 'role', 'lac', 'opml_sp'])
def test_repr_shows_every_hyper_parameter(name):
    method = create(name, Z, epochs=3, features=8)
    for each in (method, copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert all(f'{key}=' in repr(each) for key in hyper_parameters(type(each)))
    assert 'alpha=0.25' in repr(create('em', Z, epochs=3, alpha=0.25))


def test_a_loss_is_copied_saved_and_part_of_a_model(tmp_path, logits):
    model = torch.nn.ModuleDict({'criterion': Loss('em', alpha=0.3)})
    torch.save(model, tmp_path / 'model.pt')
    loaded = torch.load(tmp_path / 'model.pt', weights_only=False)
    for each in (model, copy.deepcopy(model), loaded):
        assert each['criterion'](logits, Z) == em_loss(logits, Z, alpha=0.3)
        assert each.state_dict() == {} and 'em, alpha=0.3' in repr(each)
