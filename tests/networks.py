"""Small networks that several tests of models use."""

import torch

from spml_nb import models

BACKBONES = {'mini': 40, 'squeezenet1_1': 64, 'test_vit': 160}  # and the pixels of their images
CASES = [(backbone, head) for backbone in BACKBONES for head in models.HEADS]


def images_for(backbone, n=3):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(n, 3, BACKBONES[backbone], BACKBONES[backbone], generator=generator)
