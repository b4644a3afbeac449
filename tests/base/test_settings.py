"""Where folders lie and which device is used: the file, the environment, and what is wrong in
either.
"""

import pytest
import torch

from spml_nb import data as datasets
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.data import fetch
from spml_nb.models import backbones
from spml_nb.runs.folder import hash_file


def written(folder, text):
    folder.mkdir(exist_ok=True)
    (folder / 'settings.ini').write_text(text, encoding='utf-8')
    return folder / 'settings.ini'


def refused(call, *parts):
    with pytest.raises(SpmlError) as caught:
        call()
    for part in parts:
        assert part in str(caught.value), str(caught.value)


def test_a_named_file_without_the_section_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_SETTINGS', str(written(tmp_path, '[other]\nruns = x\n')))
    refused(settings.read_settings, 'settings.ini has no section [spml_nb]')


def test_a_file_that_speaks_of_the_section_only_in_a_comment_is_passed_over(tmp_path, monkeypatch):
    ours = written(tmp_path, '\ufeff[spml_nb]\nruns = here\n')  # as an editor of Windows writes it
    written(tmp_path / 'inner', '# unlike [spml_nb]\n[tool]\nx = 1\n')
    monkeypatch.chdir(tmp_path / 'inner')
    monkeypatch.delenv('SPML_NB_RUNS')
    monkeypatch.delenv('SPML_NB_SETTINGS', raising=False)
    assert (
        settings.find_settings_file() == ours and settings.get_folder('runs') == tmp_path / 'here'
    )


def test_empty_values_are_unset(tmp_path, monkeypatch):
    monkeypatch.setenv(
        'SPML_NB_SETTINGS', str(written(tmp_path, '[spml_nb]\nruns = mine\noutputs =\n'))
    )
    for name in ('RUNS', 'OUTPUTS'):
        monkeypatch.setenv(f'SPML_NB_{name}', '')
    assert (settings.get_folder('runs'), settings.get_folder('outputs')) == (
        tmp_path / 'mine',
        tmp_path / 'outputs',
    )


def test_a_home_folder_of_nobody_is_told(monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', '~nosuchuser/x')
    refused(lambda: settings.get_folder('runs'), "'~nosuchuser/x' begins with a home folder")
    refused(
        lambda: datasets.load('~nosuchuser/photos'),
        "'~nosuchuser/photos' begins with a home folder",
    )
    refused(
        lambda: fetch.list_addresses([], 'x.zip', '~nosuchuser/m'),
        "'~nosuchuser/m' begins with a home folder",
    )
    refused(lambda: hash_file('~nosuchuser/x.pt'), "'~nosuchuser/x.pt' begins with a home folder")
    refused(
        lambda: backbones.read_weights('~nosuchuser/x.pt'),
        "'~nosuchuser/x.pt' begins with a home folder",
    )


@pytest.mark.parametrize('name', ['cpu:abc', 'cpu:', 'auto:0', 'cuda:7', 'cuda:x'])
def test_a_device_with_a_number_that_is_not_there_is_told(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    refused(lambda: settings.choose_device(name), f"unknown device '{name}'", 'SPML_NB_DEVICE')
    assert settings.choose_device('cuda:1') == torch.device('cuda:1') and settings.choose_device(
        'cpu:0'
    ) == torch.device('cpu:0')


@pytest.mark.silent('C11')
def test_a_nul_character_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_SETTINGS', str(written(tmp_path, '[spml_nb]\nruns = a\0b\n')))
    refused(settings.read_settings, 'settings.ini cannot be read', 'NUL')
