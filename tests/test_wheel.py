"""The package as people install it: a wheel that was built from a source archive, outside the
checkout; and who wrote it, which two files say.
"""

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text(encoding='utf-8'))['project']

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


def call(*words, **options):
    return subprocess.run(
        words, check=True, capture_output=True, text=True, timeout=300, **options
    ).stdout


def ignore_what_is_made(folder, names):
    made = shutil.ignore_patterns('.*', '__pycache__', '*.egg-info')(folder, names)
    at_the_top = {'data', 'runs', 'docs', 'build', 'dist', 'shared'} & set(names)
    return made | (at_the_top if Path(folder) == ROOT else set())


@pytest.fixture(scope='module')
def checkout(tmp_path_factory):
    "A shallow clone without tags of a repository that has the files of this one, in one commit."
    origin, clone = (tmp_path_factory.mktemp('clone') / name for name in ('origin', 'clone'))
    shutil.copytree(ROOT, origin, ignore=ignore_what_is_made)
    git = ('git', '-c', 'user.name=a', '-c', 'user.email=a@b.c')
    for words in (['init', '-q'], ['add', '-A'], ['commit', '-q', '-m', 'all']):
        call(*git, *words, cwd=origin)
    call('git', 'clone', '-q', '--depth', '1', origin.as_uri(), str(clone))
    return clone


@pytest.fixture(scope='module')
def built(checkout, tmp_path_factory):
    "The source archive, and the wheel made of it."
    folder = tmp_path_factory.mktemp('dist')
    command = [sys.executable, '-m', 'build', '--no-isolation', '--outdir', str(folder)]
    call(*command, str(checkout))
    (archive,), (wheel,) = folder.glob('*.tar.gz'), folder.glob('*.whl')
    return archive, wheel


@pytest.fixture(scope='module')
def installed(built, tmp_path_factory):
    "A folder that holds nothing but what the wheel brings."
    place = tmp_path_factory.mktemp('wheel') / 'site'
    command = [sys.executable, '-m', 'pip', 'install', '-q', '--no-deps', '--target', str(place)]
    call(*command, str(built[1]))
    return place


@pytest.mark.slow
def test_the_source_archive_holds_notebooks_tests_and_the_licence(checkout, built):
    names = {name.partition('/')[2] for name in tarfile.open(built[0]).getnames()}
    for folder in ('nbs', 'tests', 'website', 'outputs', 'spml_nb'):
        files = {
            file.relative_to(checkout).as_posix()
            for file in (checkout / folder).rglob('*')
            if file.is_file()
        }
        assert files and files <= names, files - names
    assert {'LICENSE', 'CITATION.cff', 'constraints.txt', 'setup.py', 'Makefile'} <= names
    assert not [name for name in names if name.endswith('.pyc')]


@pytest.mark.slow
def test_the_wheel_has_types_and_a_page_whose_links_lead_to_the_repository(built):
    with ZipFile(built[1]) as wheel:
        names = wheel.namelist()
        (metadata,) = (name for name in names if name.endswith('.dist-info/METADATA'))
        page = email.message_from_bytes(wheel.read(metadata))
    assert {'spml_nb/py.typed', 'spml_nb/__init__.pyi'} <= set(names)
    assert page['Author'] == PROJECT['authors'][0]['name']
    text = page.get_payload(decode=True).decode()
    assert page['Description-Content-Type'] == 'text/markdown' and text.startswith('# spml_nb')
    links = re.findall(r'\]\(([^)]+)\)', text)
    home = PROJECT['urls']['Repository']
    assert len(links) > 20 and all(re.match('https?:|#', link) for link in links)
    assert f'{home}/raw/v{page["Version"]}/outputs/front.svg' in links
    assert f'{home}/blob/v{page["Version"]}/nbs/losses.ipynb' in links


@pytest.mark.slow
def test_the_version_names_the_commit_in_a_checkout_and_in_what_was_built_from_it(
    checkout, installed
):
    commit = call('git', 'rev-parse', 'HEAD', cwd=checkout)[:12]
    command = [sys.executable, '-c', 'from spml_nb.cli import main; main(["--version"])']
    for place in (checkout, installed):
        said = call(*command, cwd=place.parent, env=os.environ | {'PYTHONPATH': str(place)})
        assert said == f'spml_nb 0.2.0 (commit {commit})\n'


def test_the_citation_and_the_package_name_the_same_authors_version_and_address():
    citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text(encoding='utf-8'))
    names = [
        author.get('name') or f'{author["given-names"]} {author["family-names"]}'
        for author in citation['authors']
    ]
    assert names == [author['name'] for author in PROJECT['authors']]
    assert citation['repository-code'] == PROJECT['urls']['Repository']
    assert citation['license'] == PROJECT['license']
    text = (ROOT / 'spml_nb' / '__init__.py').read_text()
    assert f'__version__ = "{citation["version"]}"' in text
    assert f'## {citation["version"]} (' in (ROOT / 'CHANGELOG.md').read_text(encoding='utf-8')


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
