"""The pretrained backbone of the miniatures: a residual network of 170,000 parameters, with weights
in the package.
"""

from importlib.resources import files
from pathlib import Path

from torch import nn


class _Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.short = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )

    def forward(self, x):
        y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        return (y + self.short(x)).relu()


class MiniNet(nn.Module):
    """A residual network for images of about 40 pixels, with 170,000 parameters.

    Input: (B, 3, H, W) floats, normalised with `mean` and `std`. Output: a feature map (B, 96,
    ⌈H/8⌉, ⌈W/8⌉), 5×5 for 40 pixels.

    Source: residual blocks of He et al. 2016; the sizes are a choice.
    """

    feature_dim = 96
    mean = (0.5, 0.5, 0.5)
    std = (0.25, 0.25, 0.25)

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        )
        self.blocks = nn.Sequential(_Block(16, 24, 2), _Block(24, 48, 1), _Block(48, 96, 2))

    def forward(self, images):
        return self.blocks(self.stem(images))


SHIPPED = Path(str(files('spml_nb') / 'assets' / 'mini_backbone.safetensors'))
