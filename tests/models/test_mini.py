"""The small backbone that ships with the package."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from spml_nb.base.errors import SpmlError
from spml_nb.data import miniatures
from spml_nb.models.backbones import build_backbone
from spml_nb.models.mini import SHIPPED, MiniNet

RECORDED = 0.93  # share of held-out symbols that the shipped weights name


def test_the_backbone_has_the_announced_size_and_maps():
    net = MiniNet().eval()
    assert 165_000 < sum(p.numel() for p in net.parameters()) < 180_000
    assert net(torch.zeros(1, 3, 40, 40)).shape == (1, 96, 5, 5)


def test_the_shipped_weights_are_small_and_load_in_float32():
    assert SHIPPED.stat().st_size < 460 * 1024
    net = build_backbone('mini').net
    assert (
        all(p.dtype == torch.float32 and p.isfinite().all() for p in net.parameters())
        and not net.training
    )
    assert not torch.equal(net.stem[0].weight, build_backbone('mini', 'none').net.stem[0].weight)


def test_weights_with_their_head_come_back_and_foreign_ones_are_refused(tmp_path):
    net = MiniNet()
    save_file({**net.state_dict(), 'head.weight': torch.zeros(2)}, tmp_path / 'net.safetensors')
    again = build_backbone('mini', tmp_path / 'net.safetensors').net
    assert all(
        torch.equal(a, b)
        for a, b in zip(net.state_dict().values(), again.state_dict().values(), strict=True)
    )
    save_file({'fc.weight': torch.zeros(2)}, tmp_path / 'other.safetensors')
    with pytest.raises(SpmlError, match='does not fit this backbone'):
        build_backbone('mini', tmp_path / 'other.safetensors')
    (tmp_path / 'text.safetensors').write_text('no tensors')
    with pytest.raises(SpmlError, match='cannot be read'):
        build_backbone('mini', tmp_path / 'text.safetensors')


def test_the_shipped_weights_tell_held_out_symbols_apart():
    images, targets = miniatures.draw_objects(320, seed=11, pool='train')
    tensors, net = load_file(SHIPPED), build_backbone('mini').net
    x = (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25
    with torch.no_grad():
        answers = (
            net(x).mean((2, 3)) @ tensors['head.weight'].float().T + tensors['head.bias'].float()
        )
    known = targets['hue'] >= 0
    assert (answers[:, :28].argmax(1).numpy() == targets['symbol'])[known].mean() > RECORDED - 0.05


def test_the_file_of_the_shipped_weights_records_its_own_training():
    with safe_open(SHIPPED, 'pt') as file:
        record = json.loads(file.metadata()['record'])
    assert (
        record['objects'] >= 90_000 and record['held-out accuracy']['symbol'] > 100 * RECORDED - 1
    )
