"""Types reach whoever imports the package: names of lazy packages, a user's file, and no error in
the modules that people import.
"""

import ast
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STUBS = sorted((ROOT / 'spml_nb').rglob('__init__.pyi'))

USER = """
from pathlib import Path

import torch

from spml_nb import compare, predict
from spml_nb.data import load
from spml_nb.data.labels import observe
from spml_nb.losses import Loss, em_loss
from spml_nb.methods import create
from spml_nb.metrics import mean_average_precision
from spml_nb.runs import Config
from spml_nb.training import train
from spml_nb.use.estimator import SinglePositiveClassifier

observed = observe(torch.eye(5), positives=1, negatives=0)
z = torch.from_numpy(observed)
logits = torch.randn(5, 5, requires_grad=True)
criterion = Loss('em', alpha=0.1)
loss = criterion(logits, z) + em_loss(logits, z, alpha=0.1)
method = create('role', z, epochs=3)
of_method = method(logits, torch.arange(5))
score = mean_average_precision(logits, z)
config = Config(loss='em', dataset='mini_voc', epochs=2)
result = train(config)
table = predict(result.folder, Path('photos'))
data = load('mini_voc')
lines = compare('photos', seeds=2)
classifier = SinglePositiveClassifier('hml').fit(logits.detach().numpy(), observed)
chances = classifier.predict_proba(logits.detach().numpy())
"""
REVEALED = {
    'observed': 'ndarray',
    'criterion': 'Loss',
    'loss': 'Tensor',
    'method': 'Method',
    'of_method': 'Tensor',
    'score': 'float',
    'config': 'Config',
    'config.loss': 'str',
    'config.epochs': 'int | None',
    'result': 'Result',
    'table': 'DataFrame',
    'data': 'Dataset',
    'lines': 'DataFrame',
    'classifier': 'SinglePositiveClassifier',
    'chances': 'ndarray',
}
FUNCTIONS = ('observe', 'em_loss', 'create', 'mean_average_precision', 'train', 'predict', 'load')
MISTAKES = """
from spml_nb.losses import Loss
from spml_nb.runs import Config
from spml_nb.training import trian

Config(epoch=3)
Loss(3)
"""


def names_of(stub):
    nodes = ast.parse(stub.read_text()).body
    return [a.name for node in nodes if isinstance(node, ast.ImportFrom) for a in node.names]


@pytest.mark.parametrize('stub', STUBS, ids=lambda stub: stub.parent.name)
def test_a_lazy_package_has_each_name_of_its_stub(stub):
    package = import_module('.'.join(stub.parent.relative_to(ROOT).parts))
    assert package.__all__ == sorted(names_of(stub))
    assert set(package.__all__) <= set(dir(package)) and '__name__' in dir(package)
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match='no_such_name'):
        getattr(package, 'no_such_name')  # noqa: B009


def test_packages_list_their_names_without_loading_torch():
    packages = ['.'.join(stub.parent.relative_to(ROOT).parts) for stub in STUBS]
    code = f"""
import importlib, sys
for name in {packages!r}:
    dir(importlib.import_module(name))
assert 'torch' not in sys.modules
"""
    subprocess.run([sys.executable, '-c', code], check=True, timeout=60)


@pytest.fixture
def site(tmp_path):
    """A folder from which a user imports the package: without py.typed there are no types in it."""
    folder = tmp_path / 'site'
    folder.mkdir()
    (folder / 'spml_nb').symlink_to(ROOT / 'spml_nb')
    return folder


def check_with_mypy(site, text):
    pytest.importorskip('mypy')
    file = site.parent / 'user.py'
    file.write_text(text)
    return subprocess.run(
        [sys.executable, '-m', 'mypy', '--strict', '--no-error-summary', file.name],
        cwd=site.parent,
        env=os.environ | {'PYTHONPATH': str(site)},
        capture_output=True,
        text=True,
        timeout=600,
    ).stdout


def check_with_pyright(folder, *options):
    pytest.importorskip('pyright')
    command = [sys.executable, '-m', 'pyright', '--pythonpath', sys.executable, '--outputjson']
    done = subprocess.run(
        [*command, *options], cwd=folder, capture_output=True, text=True, timeout=900
    )
    return json.loads(done.stdout)['generalDiagnostics']


def with_reveals(names):
    return USER + ''.join(f'reveal_type({name})\n' for name in names)


@pytest.mark.slow
def test_mypy_sees_types_in_a_users_file(site):
    lines = check_with_mypy(site, with_reveals([*REVEALED, *FUNCTIONS])).splitlines()
    assert all('note: Revealed type is' in line for line in lines), lines
    revealed = [re.search(r'Revealed type is "(.*)"', line)[1] for line in lines]
    for (name, kind), text in zip(REVEALED.items(), revealed, strict=False):
        assert re.sub(r'\w+\.', '', text).startswith(kind), (name, text)
    for name, text in zip(FUNCTIONS, revealed[len(REVEALED) :], strict=True):
        assert text.startswith('def (') and not text.endswith('-> Any'), (name, text)
    assert check_with_mypy(site, MISTAKES).count(' error: ') == 3


@pytest.mark.slow
def test_pyright_sees_types_in_a_users_file(site):
    settings = {'include': ['user.py'], 'extraPaths': ['site'], 'typeCheckingMode': 'standard'}
    (site.parent / 'pyrightconfig.json').write_text(json.dumps(settings))
    (site.parent / 'user.py').write_text(with_reveals(REVEALED))
    notes = check_with_pyright(site.parent)
    assert {note['severity'] for note in notes} == {'information'}, notes
    for (name, kind), note in zip(REVEALED.items(), notes, strict=True):
        text = re.search(r'is "(.*)"', note['message'])[1]
        assert text.startswith(kind) or (kind == 'ndarray' and 'NDArray' in text), (name, text)
    (site.parent / 'user.py').write_text(MISTAKES)
    assert len(check_with_pyright(site.parent)) == 3


def is_strict(file):
    """Whether a module is one of those in which there is no error, as pyproject.toml names them."""
    import tomllib

    settings = tomllib.loads((ROOT / 'pyproject.toml').read_text(encoding='utf-8'))
    (strict,) = settings['tool']['mypy']['overrides']
    parts = Path(file).with_suffix('').parts
    module = '.'.join(parts[: -1 if parts[-1] == '__init__' else None])
    return any(
        module == name or (name.endswith('.*') and f'{module}.'.startswith(name[:-1]))
        for name in strict['module']
    )


@pytest.mark.slow
def test_mypy_finds_nothing_in_the_modules_that_people_import():
    pytest.importorskip('mypy')
    done = subprocess.run(
        [sys.executable, '-m', 'mypy', '--no-error-summary'],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    lines = [line.split(':', 2) for line in done.stdout.splitlines() if ': error: ' in line]
    assert not [line for line in lines if is_strict(line[0])]
    assert done.returncode < 2, done.stderr
