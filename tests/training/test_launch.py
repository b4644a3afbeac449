"""One command starts several processes: one of them talks, and what goes wrong in any of them is
told.
"""

import json
from dataclasses import replace

import pytest
from quick import config
from side_files import draw_side

from spml_nb.base.errors import SpmlError
from spml_nb.training import launch

SMALL = {'regime': 'linear', 'batch_size': 6, 'lr': 2e-3}


@pytest.mark.slow
def test_the_command_line_trains_with_two_processes(photo_folder, tmp_path, monkeypatch):
    given, told = config(photo_folder, **SMALL), []
    monkeypatch.setenv('OMP_NUM_THREADS', '1')
    result = launch.launch(given, 2, told.append)
    assert (
        sum('epoch' in line for line in told) == 2 and result.scores['test_map'] > 0
    )  # one process talks
    assert json.loads((result.folder / 'config.json').read_text())['lr'] == 2e-3


@pytest.mark.slow
def test_two_processes_read_the_same_side_information(photo_folder, tmp_path, monkeypatch):
    monkeypatch.setenv('OMP_NUM_THREADS', '1')
    given = config(
        photo_folder,
        loss='epr_count',
        side=str(draw_side(photo_folder, tmp_path / 'side.npz')),
        **SMALL,
    )
    told = []
    two = launch.launch(given, 2, told.append)
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'alone'))
    one = launch.launch(given, 1)
    assert (
        two.folder.name == one.folder.name
        and two.folder != one.folder
        and sum('epoch' in line for line in told) == 2
    )
    assert two.curves.loss.tolist() == pytest.approx(one.curves.loss.tolist(), rel=1e-5)
    with pytest.raises(
        SpmlError, match='processes ended with exit status 1. error: .*none.csv is not there'
    ):
        launch.launch(replace(given, side='none.csv'), 2, told.append)


@pytest.mark.slow
def test_what_goes_wrong_in_a_process_is_told(photo_folder, monkeypatch):
    monkeypatch.setenv('OMP_NUM_THREADS', '1')
    with pytest.raises(SpmlError, match='2 processes ended with exit status 1. error: .*none'):
        launch.launch(config(photo_folder / 'none'), 2, lambda line: None)
    with pytest.raises(SpmlError, match='1 or more, not 0'):
        launch.launch(config(photo_folder), 0)
