"""Losses, methods and metrics in an environment that holds only what a plain `pip install` brings:
no torchvision, pandas, timm, Jupyter or papermill.
"""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

import spml_nb

PROJECT = tomllib.loads((Path(__file__).parents[1] / 'pyproject.toml').read_text())['project']
WANTED = [re.match(r'[\w.-]+', needed)[0] for needed in PROJECT['dependencies']]


def closure(names):
    """Installed distributions that `names` need, themselves included; optional extras are not
    followed.
    """
    found, open_ = {}, list(names)
    while open_:
        name = re.sub(r'[-_.]+', '-', open_.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform
        open_ += [
            re.match(r'[\w.-]+', r)[0] for r in found[name].requires or [] if 'extra ==' not in r
        ]
    return found


@pytest.fixture(scope='module')
def bare(tmp_path_factory):
    "A folder of links to just those packages, and to spml_nb."
    folder = tmp_path_factory.mktemp('bare')
    for dist in closure(WANTED).values():
        for top in {
            Path(file).parts[0]
            for file in dist.files or []
            if Path(file).parts[0] not in ('..', '__pycache__')
        }:
            target = Path(dist.locate_file(top))
            if target.exists() and not (folder / top).exists():
                (folder / top).symlink_to(target)
    (folder / 'spml_nb').symlink_to(Path(spml_nb.__file__).parent)
    return folder


def run(bare, code):  # -I: no user or script folder; -S: no site-packages
    return subprocess.run(
        [sys.executable, '-I', '-S', '-c', f'import sys; sys.path.append({str(bare)!r})\n{code}'],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_plain_installation_has_six_requirements():
    assert len(WANTED) <= 6


def test_that_environment_lacks_the_rest(bare):
    for package in (
        'papermill',
        'nbdev',
        'fastcore',
        'IPython',
        'timm',
        'sklearn',
        'matplotlib',
        'pandas',
        'torchvision',
        'PIL',
    ):
        assert 'ModuleNotFoundError' in run(bare, f'import {package}').stderr, package


def test_a_trainer_of_ones_own_can_use_every_loss(bare):
    done = run(
        bare,
        '''
import torch, spml_nb.losses as L
from spml_nb.losses import two_way_loss
logits = torch.randn(8, 5, requires_grad=True)
z = torch.zeros(8, 5, dtype=torch.int8); z[range(8), [0, 1, 2, 3, 4, 0, 1, 2]] = 1
two_way_loss(logits, z).backward()
assert logits.grad.abs().sum() > 0
for name in ('bce', 'an', 'wan', 'em', 'focal', 'asymmetric', 'zlpr', 'opml', 'joint'):
    assert getattr(L, name + '_loss')(logits, z).isfinite()
print('fine')
''',
    )
    assert done.stdout.strip() == 'fine', done.stderr


def test_methods_and_metrics_need_no_more(bare):
    done = run(
        bare,
        '''
import numpy as np, torch
from spml_nb import methods, metrics
from spml_nb.data import labels
truth = np.where(np.random.RandomState(0).rand(40, 5) < 0.4, 1, -1)
truth[:, 0] = 1
seen = labels.observe(truth, positives=1)
for name in ('em', 'role', 'hml', 'opml'):
    methods.create(name, torch.as_tensor(seen), epochs=3)
assert metrics.mean_average_precision(np.random.rand(40, 5), truth) > 0
print('fine')
''',
    )
    assert done.stdout.strip() == 'fine', done.stderr


def test_the_command_names_what_a_plain_installation_lacks(bare):
    done = run(bare, "from spml_nb.cli import main; sys.exit(main(['runs']))")
    assert done.returncode == 2 and "needs pandas" in done.stderr and 'report' in done.stderr
