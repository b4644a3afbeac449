"""Find and read the official files of a benchmark, with errors that name the file."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import numpy as np

from ...base import settings
from ...base.errors import SpmlError
from ..dataset import join_items
from ..folder import find_folder

ASSETS = files('spml_nb') / 'assets'


def benchmark_folder(name: str, root: Path | None = None) -> Path:
    "The folder of a benchmark, which may not exist, below `root` or the setting `data`."
    if root is None:
        return settings.get_folder('data') / name
    return find_folder(root) / name


def find_in_benchmark(folder: Path, *candidates: str) -> Path:
    """Return the first of several paths below a folder that exists.

    Raises:
        SpmlError: If none exists.
    """
    for candidate in candidates:
        if (folder / candidate).exists():
            return folder / candidate
    raise SpmlError(
        f'{folder} has no {" or ".join(candidates)}: not the official layout. Remove the folder '
        'and give the command again.'
    )


def find_nested(folder: Path, name: str) -> Path:
    "Find the folder NAME in the folder NAME of an archive, or that of the archive if it has none."
    return find_in_benchmark(folder, f'{name}/{name}', name)


@contextmanager
def reading(file: Path, form: str = '') -> Iterator[None]:
    """Turn any exception in the block into an error that names the file.

    Args:
        form: The expected form, such as ' as a MATLAB file'.
    """
    try:
        yield
    except Exception as error:
        raise SpmlError(f'{file} cannot be read{form}: {error}. Bring it again.') from error


def read_listing_lines(file: Path) -> list[str]:
    "Read the non-blank lines of a UTF-8 file, without blanks at their ends."
    with reading(file):
        text = Path(file).read_text(encoding='utf-8')
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def read_annotation_json(file: Path, hook: Callable | None = None):
    "Read a JSON file; `hook` maps each object to its replacement."
    with reading(file):
        return json.loads(file.read_text(encoding='utf-8'), object_hook=hook)


def get_fields(record: dict, file: Path, *keys: str) -> list:
    """Get the values of some keys of a JSON object.

    Raises:
        SpmlError: If a key is missing.
    """
    missing = [key for key in keys if not isinstance(record, dict) or key not in record]
    if missing:
        raise SpmlError(f'{file}: an entry has no {join_items(missing)}: not the official form.')
    return [record[key] for key in keys]


def read_matlab(file: Path, key: str | None = None, squeeze: bool = False) -> np.ndarray:
    """Read one array of a MATLAB file.

    Args:
        file: In a format before version 7.3.
        key: Name of the array; by default the only one.
        squeeze: Drop axes of length one.

    Raises:
        SpmlError: If it cannot be read, or contains other arrays.
    """
    from scipy.io import loadmat

    with reading(file, ' as a MATLAB file'):
        arrays = loadmat(file, squeeze_me=squeeze)
    content = {name: value for name, value in arrays.items() if not name.startswith('__')}
    if key is None and len(content) == 1:
        return next(iter(content.values()))
    if key not in content:
        raise SpmlError(
            f'{file} has {join_items(sorted(content))} where {key or "one array"} is expected.'
        )
    return content[key]
