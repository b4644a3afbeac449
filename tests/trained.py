"""Photos of every format with their data set, and small runs on them that are trained when a test
asks for them.
"""

import json
import os
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from PIL import Image

from spml_nb import data as datasets
from spml_nb import runs, training

CLASSES = ['blue', 'bright', 'red']


def draw_photos(folder):
    """48 photos of every format and many shapes, with three classes: the colour of the left half,
    and whether the right half is bright. Returns: the folder.
    """
    rng = np.random.RandomState(0)
    rows = []
    for i in range(48):
        pixels = rng.randint(0, 90, (30 + i, 70 - i, 3), dtype=np.uint8)
        half = pixels.shape[1] // 2
        pixels[:, :half, 0 if i % 2 else 2] = 220
        if i % 3:
            pixels[:, half:] = 230
        suffix = ('.png', '.JPG', '.gif', '.webp', '.tif', '.bmp')[i % 6]
        name = f'{"ab"[i // 2 % 2]}/{i:02}{suffix}'
        image, options = Image.fromarray(pixels), {}
        if suffix == '.png':
            image = image.convert('RGBA')
        if suffix == '.gif':
            image = image.quantize(32)
        if suffix == '.JPG':
            exif = Image.Exif()
            exif[0x0112] = 1 + i % 8
            options = {'exif': exif}
        (folder / 'images' / name).parent.mkdir(parents=True, exist_ok=True)
        image.save(folder / 'images' / name, **options)
        rows.append(
            {
                'image': name,
                'labels': '|'.join([('blue', 'red')[i % 2], *(['bright'] if i % 3 else [])]),
            }
        )
    pd.DataFrame(rows).to_csv(folder / 'labels.csv', index=False)
    return folder


def change_threshold(run, threshold):
    "Give a run another threshold of the training. Returns: its folder."
    result = json.loads((run / 'result.json').read_text())
    result['scores']['threshold'] = threshold
    (run / 'result.json').write_text(json.dumps(result))
    return run


CONFIGS = {
    'linear': {'loss': 'an'},
    'cosine': {'loss': 'hml', 'head': 'cosine', 'hparams': {'adaptive_lr': 0.05}},
    'label-wise': {'loss': 'an', 'head': 'labelwise', 'embedding_dim': 8},
    'frozen': {'loss': 'em', 'regime': 'linear'},
    'frozen, label-wise': {
        'loss': 'an',
        'head': 'labelwise',
        'embedding_dim': 8,
        'regime': 'linear',
    },
    'frozen, maps': {'loss': 'boostlu_llr', 'head': 'maps', 'regime': 'linear'},
    'frozen, random': {'loss': 'an', 'regime': 'linear', 'weights': 'none', 'seed': 5},
    'linear, then all': {'loss': 'an', 'regime': 'linear_init', 'linear_epochs': 1, 'ema': 0.5},
    'crop': {'loss': 'an', 'views': 'crop'},
    'as they are': {'loss': 'an', 'normalise': False, 'frozen_stages': 2},
}


class Made:
    "Photos with their data set, and runs that are trained when they are asked for."

    def __init__(self, work):
        self.work, self.folder, self.results = work, draw_photos(work / 'photos'), {}
        self.data = datasets.load(self.folder)
        self.test = [self.data.images[row] for row in self.data.rows('test')]

    def run(self, name):
        if name not in self.results:
            config = {
                'dataset': str(self.folder),
                'labels': 'single',
                'backbone': 'mini',
                'image_size': 32,
                'epochs': 1,
                'lr': 3e-3,
                **CONFIGS[name],
            }
            with mock.patch.dict(
                os.environ,
                SPML_NB_RUNS=str(self.work / 'runs'),
                SPML_NB_CACHE=str(self.work / 'cache'),
                SPML_NB_DEVICE='cpu',
            ):
                self.results[name] = training.train(runs.Config(**config))
        return self.results[name]

    def copy(self, name, to):
        "The run's folder, somewhere else."
        return Path(
            shutil.copytree(self.run(name).folder, to / 'copied' / self.run(name).folder.name)
        )


class Attack:
    "Unpickling it makes a file."

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)
