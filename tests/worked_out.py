"""What the pages say of outputs/runs.csv, worked out once for all test files of a process: it takes
seconds, and nothing changes it.
"""

from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from spml_nb.replication import claims, gains, published, tables

OUTPUTS = Path(__file__).resolve().parents[1] / 'outputs'
RECORD = OUTPUTS / 'runs.csv'


def recorded_runs() -> pd.DataFrame:
    "The table of record; without one the test is skipped."
    runs = tables.read_recorded_runs(RECORD)
    if not len(runs):
        pytest.skip('the table of record is empty')
    return runs


@cache
def suite_gains() -> pd.DataFrame:
    "As from `gains.gains_of_suites`."
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('SPML_NB_OUTPUTS', str(OUTPUTS))  # test_images.npz
        return gains.gains_of_suites(tables.read_recorded_runs(RECORD))


@cache
def claims_without_runs() -> pd.DataFrame:
    "As from `claims.report_claims` for the suite on photos and all papers, before any run."
    return claims.report_claims(published.PHOTOS_SUITE, pd.DataFrame())


@cache
def paper_claims(paper: str) -> pd.DataFrame:
    "As from `claims.report_claims`, for the suite on photos."
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('SPML_NB_OUTPUTS', str(OUTPUTS))
        return claims.report_claims(
            published.PHOTOS_SUITE, tables.read_recorded_runs(RECORD), paper
        )
