"""Fixtures of the tests of data sets."""

import pytest
from tables import NAMES, ROWS


@pytest.fixture
def folder(tmp_path):
    "A function that writes a data set; loading needs the files' names, never their content."

    def write(table=ROWS, names=NAMES, at='set', encoding='utf-8'):
        for name in names:
            file = tmp_path / at / 'images' / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b'x' * (1 + len(name)))
        if table is not None:
            (tmp_path / at / 'labels.csv').write_text(table, encoding=encoding)
        return tmp_path / at

    return write
