"""The measurements of speed: on little data every pair agrees, and the record keeps what is not
measured again.
"""

import shutil
from pathlib import Path

import pandas as pd
import papermill
import pytest

from spml_nb.base import settings

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_every_pair_is_measured_and_the_record_continued(tmp_path):
    outputs = settings.get_folder('outputs')
    outputs.mkdir()
    older = pd.read_csv(ROOT / 'outputs' / 'benchmarks.csv')
    older.to_csv(outputs / 'benchmarks.csv', index=False)
    shutil.copy(ROOT / 'outputs' / 'launches.csv', outputs)
    papermill.execute_notebook(
        ROOT / 'benchmarks' / 'speed.ipynb',
        tmp_path / 'out.ipynb',
        {'quick': True},
        progress_bar=False,
    )
    record = pd.read_csv(outputs / 'benchmarks.csv')
    pd.testing.assert_frame_equal(record[: len(older)], older)
    new = record[len(older) :]
    assert len(new) == 11 and new.machine.nunique() == 1 and (new.ratio > 0).all()
    launches = pd.read_csv(outputs / 'launches.csv')
    page = (outputs / 'benchmarks.md').read_text()
    assert (
        page.startswith((ROOT / 'outputs' / 'benchmarks.md').read_text())
        and page.count('\n| ') == len(record) + record.machine.nunique() + len(launches) + 1
    )
