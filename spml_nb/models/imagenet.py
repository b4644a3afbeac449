"""Scores for the classes of any data set from EfficientNet-Lite0, trained on ImageNet."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from ..base.files import write_arrays
from ..data.dataset import Dataset
from ..data.images import copy_pixels, open_images
from ..data.views import plain_view
from .backbones import efficientnet_lite_classifier

COUNTERPARTS = {  # class: indices of ImageNet classes
    'airplane': (404, 895),
    'bench': (703,),
    'bicycle': (444, 671),
    'bird': (*range(7, 25), *range(80, 101), *range(127, 147)),
    'boat': (472, 484, 510, 554, 576, 625, 628, 724, 780, 814, 871, 914),
    'bottle': (440, 737, 898, 907),
    'bus': (654, 779, 874),
    'car': (436, 468, 511, 609, 627, 656, 661, 751, 817),
    'cat': (*range(281, 286),),
    'chair': (423, 559, 765),
    'cow': (345,),
    'diningtable': (532,),
    'dog': (*range(151, 269),),
    'horse': (339, 603),
    'motorbike': (665, 670),
    'motorcycle': (665, 670),
    'parking meter': (704,),
    'pottedplant': (738,),
    'sheep': (348, 349),
    'sofa': (831,),
    'traffic light': (920,),
    'train': (466, 547, 565, 705, 820),
    'truck': (555, 569, 675, 717, 864, 867),
    'tvmonitor': (664, 782, 851),
}


def score_counterparts(probabilities: np.ndarray, class_names: Iterable[str]) -> np.ndarray:
    """Score classes by the summed probabilities of their counterparts in ImageNet.

    Args:
        probabilities: (N, 1000).
        class_names: C names.

    Returns:
        (N, C) in [0, 1]; ½ for a class without a counterpart.
    """
    columns = []
    for name in class_names:
        if name in COUNTERPARTS:
            columns.append(probabilities[:, list(COUNTERPARTS[name])].sum(1))
        else:
            columns.append(np.full(len(probabilities), 0.5))
    return np.stack(columns, 1).clip(0, 1)


def write_imagenet_scores(data: Dataset, file: str | Path) -> np.ndarray:
    """Write the classifier's scores of the training images to a side-information file.

    Args:
        data: the data set.
        file: the .npz file to write.

    Returns:
        The scores, (n, C) float32.

    Raises:
        SpmlError: if the weights are not installed, an image cannot be read, or the file cannot be
            written.
    """
    rows = data.rows('train')
    net = efficientnet_lite_classifier('efficientnet_lite0').eval()
    store = open_images(data, 224)
    probabilities = []
    with torch.no_grad():
        for index in torch.as_tensor(rows).split(64):
            images = (plain_view(copy_pixels(store, index)) * 255 - 127) / 128
            probabilities.append(net(images).softmax(1))
    scores = score_counterparts(torch.cat(probabilities).numpy(), data.class_names)
    names = [data.image_names[row] for row in rows]
    arrays = {'images': names, 'scores': scores, 'class_names': data.class_names}
    write_arrays(Path(file), arrays, follow=True)
    return scores
