"Weights of the papers' backbones: what is said where they cannot be fetched, and files put in their place."
import re
from urllib.error import URLError

import pytest
import torch
import torchvision

from spml_nb import models
from spml_nb.base.errors import SpmlError


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
