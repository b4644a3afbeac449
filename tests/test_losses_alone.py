"""The losses in an environment that holds only torch, torchvision, numpy, pandas and what these
require: no Jupyter, nbdev, papermill, timm.
"""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

import spml_nb

WANTED = ('torch', 'torchvision', 'numpy', 'pandas')


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


def test_that_environment_lacks_the_rest(bare):
    for package in (
        'papermill',
        'nbdev',
        'fastcore',
        'IPython',
        'timm',
        'sklearn',
        'matplotlib',
        'yaml',
        'tqdm',
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
