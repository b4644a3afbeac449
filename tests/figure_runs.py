"""Small runs for the tests of figures: 40 drawn photos with three classes, and runs of two epochs
that the tests of a file share.
"""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from spml_nb import training
from spml_nb.runs.config import Config, resolve
from spml_nb.runs.folder import Run


@pytest.fixture(scope='module')
def world(tmp_path_factory):
    "A folder with the photos, as in conftest, and with the runs of a file."
    folder, rng, rows = tmp_path_factory.mktemp('world'), np.random.RandomState(0), []
    (folder / 'photos' / 'images').mkdir(parents=True)
    for i in range(40):
        pixels = rng.randint(0, 60, (40, 40, 3), dtype=np.uint8)
        pixels[:20, :, 2 * (i % 2)] = 220
        if i % 3:
            pixels[20:] = 230
        Image.fromarray(pixels).save(folder / 'photos' / 'images' / f'{i:03}.png')
        rows.append(
            {
                'image': f'{i:03}.png',
                'labels': ('red', 'blue')[i % 2] + ('|bright' if i % 3 else ''),
            }
        )
    pd.DataFrame(rows).to_csv(folder / 'photos' / 'labels.csv', index=False)
    return folder


@pytest.fixture
def photos(world, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(world / 'runs'))
    return world / 'photos'


def trained(photos, **given):
    "A finished run of two epochs on the photos."
    config = Config(
        **{
            'loss': 'an',
            'dataset': str(photos),
            'backbone': 'mini',
            'epochs': 2,
            'labels': 'single',
            'label_seed': 0,
            'lr': 2e-3,
            **given,
        }
    )
    training.train(config)
    return Run(resolve(config))
