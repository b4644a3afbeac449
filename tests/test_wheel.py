"The package as people install it: a wheel, outside the checkout."

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

USE = """
import sys
from pathlib import Path
import spml_nb, torch
from spml_nb import predict, runs, training
from spml_nb.data import load
from spml_nb.losses import em_loss, two_way_loss
from PIL import Image

assert Path(spml_nb.__file__).is_relative_to(sys.argv[1]), spml_nb.__file__
z = torch.tensor([[1, 0, -1]])
assert torch.isfinite(em_loss(torch.randn(1, 3), z, alpha=0.1))
assert torch.isfinite(two_way_loss(torch.randn(1, 3), z))
result = training.train(runs.Config(loss='em', dataset='mini_voc', regime='linear', epochs=2))
photos = Path('photos'); photos.mkdir()
data = load('mini_voc')
for row in data.rows('test')[:3]: Image.fromarray(data.images[row]).save(photos / f'{row}.png')
# with its weights and card, without training
assert {'person', 'bicycle'} <= set(predict('coco18', photos))
table = predict(result.folder, photos)
assert len(table) == 3 and set(data.class_names) <= set(table.columns)
print(f"{result.scores['test_map']:.1f}")
"""


@pytest.fixture(scope='module')
def installed(tmp_path_factory):
    "A folder that holds nothing but what the wheel brings."
    place = tmp_path_factory.mktemp('wheel')
    shutil.copytree(
        ROOT / 'spml_nb', place / 'source' / 'spml_nb', ignore=shutil.ignore_patterns('__pycache__')
    )
    for name in ('pyproject.toml', 'README.md', 'LICENSE'):
        shutil.copy(ROOT / name, place / 'source')
    build = [
        sys.executable,
        '-m',
        'build',
        '--wheel',
        '--no-isolation',
        '--outdir',
        str(place / 'dist'),
        str(place / 'source'),
    ]
    subprocess.run(build, check=True, capture_output=True, timeout=300)
    (wheel,) = (place / 'dist').glob('*.whl')
    subprocess.run(
        [
            sys.executable,
            '-m',
            'pip',
            'install',
            '-q',
            '--no-deps',
            '--target',
            str(place / 'site'),
            str(wheel),
        ],
        check=True,
        capture_output=True,
        timeout=300,
    )
    return place / 'site'


@pytest.mark.slow
def test_the_wheel_trains_and_predicts_outside_the_checkout(installed, tmp_path):
    assert (installed / 'spml_nb' / 'assets' / 'mini_backbone.safetensors').is_file()
    weights = [
        path.relative_to(ROOT / 'spml_nb')
        for path in (ROOT / 'spml_nb' / 'assets' / 'weights').glob('*/*')
    ]
    assert len(weights) == 9 and all((installed / 'spml_nb' / path).is_file() for path in weights)
    environment = {
        **os.environ,
        'PYTHONPATH': str(installed),
        'SPML_NB_RUNS': str(tmp_path / 'runs'),
    }
    done = subprocess.run(
        [sys.executable, '-c', USE, str(installed)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) > 40
