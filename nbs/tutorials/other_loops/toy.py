"""What the four loops beside this file train on: drawn vectors as photos, in two views."""

import torch
from torch import nn
from torch.utils.data import Dataset

from spml_nb.models.heads import Outputs

torch.manual_seed(0)
IMAGES = torch.randn(600, 32)  # the first 400 to train on
TRUE = torch.where(IMAGES @ torch.randn(32, 8) + torch.randn(600, 8) > 3, 1, -1)
TRAIN, TEST = slice(0, 400), slice(400, None)
# one observed positive an image, all else unknown
OBSERVED = (TRUE[TRAIN] > 0) & ((TRUE[TRAIN] > 0).cumsum(1) == 1)


class TwoViews(Dataset):
    """A loader carries images, each in two views, and their row numbers; no labels: these are with
    the method.
    """

    def __len__(self):
        return len(OBSERVED)

    def __getitem__(self, index):
        image = IMAGES[index]
        weak, strong = image + 0.1 * torch.randn(32), image + 0.5 * torch.randn(32)
        return {'index': index, 'weak': weak, 'strong': strong}


class Network(nn.Module):
    "Logits and an embedding of each class, (B, 8, 4), which LAC compares."

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(32, 8 * 4)
        self.weight = nn.Parameter(torch.randn(8, 4) / 2)

    def forward(self, images):
        embeddings = self.embed(images).unflatten(1, (8, 4))
        return Outputs((embeddings * self.weight).sum(2), embeddings=embeddings)
