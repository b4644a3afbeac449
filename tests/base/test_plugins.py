"""Methods from outside are methods like any other: beside settings.ini or installed, in this
process and in workers, in searches, comparisons, predictions and exported files.
"""

import os
import subprocess
import sys
import textwrap

import pytest
from quick import shorten_photos_suite

from spml_nb import methods, training
from spml_nb.base import plugins, settings
from spml_nb.base.errors import SpmlError
from spml_nb.methods import core
from spml_nb.runs.config import Config
from spml_nb.sweeps import search
from spml_nb.use.comparison import compare
from spml_nb.use.export import export
from spml_nb.use.predict import predict

METHOD = '''
from spml_nb.methods.baselines import softplus, wrong_logits
from spml_nb.methods.core import LogUniform, reduce, register_loss


def hesitant_loss(logits, z, *, weight: float = 0.5, reduction: str = 'mean'):
    "AN with a weight on unknown labels."
    losses = softplus(wrong_logits(logits, z))
    return reduce(losses * (1 - (1 - weight) * (z == 0)), reduction)


register_loss('hesitant', hesitant_loss, search={'weight': LogUniform(0.01, 1)})
'''
PROJECT = '''
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "hesitant"
version = "1"
[project.entry-points."spml_nb.methods"]
hesitant = "hesitant"
[tool.setuptools]
py-modules = ["hesitant"]
'''


@pytest.fixture
def beside(tmp_path, monkeypatch):
    "A project whose settings.ini names a module beside it; afterwards all is as before."
    (tmp_path / 'hesitant.py').write_text(METHOD)
    (tmp_path / 'settings.ini').write_text('[spml_nb]\nruns = runs\nplugins = hesitant\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', [*sys.path])
    yield tmp_path
    core._registry.pop('hesitant', None)
    sys.modules.pop('hesitant', None)


def test_a_module_beside_the_settings_is_a_method_everywhere(beside, photo_folder, monkeypatch):
    shorten_photos_suite(monkeypatch)
    assert 'hesitant' in methods.names()
    drawn = search.search_configs(search.Row('hesitant'), 'mini', 'mini_voc')
    assert len({config.hparams['weight'] for config in drawn if config.hparams}) > 1
    config = Config(loss='hesitant', dataset=str(photo_folder), backbone='mini', epochs=1)
    run = training.train(config).folder
    table = predict(run, photo_folder / 'images')
    export(run, beside / 'model.safetensors')
    assert predict(beside / 'model.safetensors', photo_folder / 'images').equals(table)
    ran = compare(str(photo_folder), ['an', 'hesitant'], seeds=1, jobs=2, tell=lambda line: None)
    assert set(ran.state) == {'done'}  # by two workers
    assert {config.loss for config in ran.config} == {'an', 'hesitant'}


def test_an_installed_package_is_known_without_a_setting(tmp_path):
    (tmp_path / 'package').mkdir()
    (tmp_path / 'package' / 'hesitant.py').write_text(METHOD)
    (tmp_path / 'package' / 'pyproject.toml').write_text(PROJECT)
    pip = [sys.executable, '-m', 'pip', 'install', '-q', '--no-deps', '--no-build-isolation']
    target = ['--target', str(tmp_path / 'site'), str(tmp_path / 'package')]
    subprocess.run([*pip, *target], check=True, timeout=300)
    code = '''
        from spml_nb import losses, methods
        assert methods.find('hesitant').source == ''
        from spml_nb.cli import main
        main(['train', '-p', 'loss', 'hesitant', '-p', 'dataset', 'mini_voc', '-p', 'epochs', '1'])
    '''
    path = os.pathsep.join([str(tmp_path / 'site'), *sys.path])
    environment = {**os.environ, 'PYTHONPATH': path, 'SPML_NB_RUNS': str(tmp_path / 'runs')}
    done = subprocess.run(
        [sys.executable, '-c', textwrap.dedent(code)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert [folder.name[:8] for folder in (tmp_path / 'runs').glob('[!.]*')] == ['hesitant']


@pytest.mark.parametrize(
    'name, content, told',
    [
        ('not_there', None, "'not_there', which the setting `plugins` names.*No module named"),
        ('broken', '1 / 0', "'broken'.*ZeroDivisionError: division by zero.*remove its name"),
        ('twice', METHOD.replace("'hesitant'", "'em'"), "'twice'.*'em' is registered already"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(tmp_path, monkeypatch, name, content, told):
    if content:
        (tmp_path / f'{name}.py').write_text(content)
    (tmp_path / 'settings.ini').write_text(f'[spml_nb]\nplugins = {name}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', [*sys.path])
    methods.find('em')
    with pytest.raises(SpmlError, match=told):
        methods.names()
    with pytest.raises(SpmlError, match=told):
        plugins.import_plugins()


def test_an_unknown_method_says_where_others_come_from():
    assert settings.read_settings()['plugins'] == ''
    with pytest.raises(SpmlError, match=r'the setting `plugins` names modules with others'):
        methods.find('hesitant')
