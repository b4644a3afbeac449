"""What earlier versions wrote stays valid: the keys of all recorded runs, and a run that one of
them began.
"""

import json
import warnings
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from spml_nb import runs, training
from spml_nb.base import settings
from spml_nb.runs import Config
from spml_nb.runs.record import parse_recorded_config, read_record

ROOT = Path(__file__).resolve().parents[2]


def test_every_recorded_run_still_has_its_key():
    table = read_record(ROOT / 'outputs' / 'runs.csv', dtype=str, keep_default_na=False)
    lines = table.to_dict('records')
    assert len(lines) > 100
    changed = [
        line['run']
        for line in lines
        if runs.science_key(parse_recorded_config(line)) != line['key']
    ]
    assert not changed, f'{len(changed)} of {len(lines)} keys have changed, such as {changed[:3]}'


def test_the_record_is_read_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter('error')  # such as of a column that is text in some lines alone
        read_record(ROOT / 'outputs' / 'runs.csv')


def test_a_run_begun_before_the_modules_moved_ends_as_it_would_have():
    """begun.zip: HML on frozen features of mini_voc, stopped after three of five epochs by the flat
    modules of commit 441b4db; the other numbers are those of the same run that was not stopped."""
    with zipfile.ZipFile(Path(__file__).parent / 'begun.zip') as begun:
        begun.extractall(settings.get_folder('runs'))
    (folder,) = settings.get_folder('runs').glob('hml-*')
    before = pd.read_csv(folder / 'metrics.csv')
    config = Config(**json.loads((folder / 'config.json').read_text()))
    result = training.train(config)
    assert result.folder == folder and len(before) == 3
    pd.testing.assert_frame_equal(result.curves[:3], before)
    assert result.curves.val_map.tolist()[3:] == pytest.approx(
        [75.13738229426643, 76.07575026745323], abs=0.05
    )
    assert result.scores['test_map'] == pytest.approx(78.0281385446329, abs=0.05)
