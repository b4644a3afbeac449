"""Finished runs as tables: those on disk, and those in the table of record, outputs/runs.csv."""

import csv
import dataclasses
import io
import json
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pandas as pd

from ..base import settings
from ..base.errors import SpmlError
from ..base.escaping import any_name_in_frames, escape_bytes
from ..base.files import hold_lock, require_regular_file, write_atomically
from .config import ADDED, Config, complete_fields, neutral_fields, science_key
from .folder import read_json


@any_name_in_frames()
def load(root: Path | None = None) -> pd.DataFrame:
    """Every finished run on disk: its configuration, scores, seconds and commit.

    Args:
        root: the folder of runs; unset: the setting `runs`.

    Returns:
        DataFrame with one row per run.

    Raises:
        SpmlError: for a run whose files are damaged.
    """
    root = root or settings.get_folder('runs')
    finished = [done.parent for done in sorted(root.glob('*/DONE'))]
    return pd.DataFrame([_row(folder, _stamp_files(folder)) for folder in finished])


def _stamp_files(folder: Path) -> tuple[tuple[int, int], ...]:
    "What changes when one of the files that `_row` reads is written again."
    stats = [file.stat() for name in _ROW_FILES if (file := folder / name).exists()]
    return tuple((stat.st_ino, stat.st_mtime_ns) for stat in stats)


_ROW_FILES = ('config.json', 'result.json')


@cache  # a sweep asks many times
def _row(folder: Path, stamp: tuple[tuple[int, int], ...]) -> dict:
    "stamp: as from `_stamp_files`; another one means that the files are read again."
    fields = complete_fields(read_json(folder / 'config.json', ('loss', 'dataset', 'hparams')))
    fields = {field.name: fields.get(field.name) for field in dataclasses.fields(Config)}
    result = read_json(folder / 'result.json', ('scores', 'seconds', 'provenance', 'data'))
    key = science_key(Config(**fields), result['data'])
    fields |= {
        'dataset': Path(fields['dataset']).name,
        'side': Path(fields['side']).name,
        'exclude': '|'.join(fields['exclude']),
        'hparams': json.dumps(fields['hparams'], sort_keys=True),
    }
    return {
        'run': folder.name,
        'key': key,
        **fields,
        **{k: v for k, v in result['scores'].items() if not isinstance(v, list | dict)},
        'seconds': result['seconds'],
        # of a run whose seconds are its share of a stack's
        **{k: v for k, v in result['provenance'].items() if k == 'stacked'},
        'commit': result['provenance']['commit'],
        'data': result['data'],
    }


def find_newest_run(root: Path | None = None) -> Path:
    """The folder of the run that finished last.

    Args:
        root: the folder of runs; unset: the setting `runs`.

    Raises:
        SpmlError: if no run is finished.
    """
    root = root or settings.get_folder('runs')
    done = max(root.glob('*/DONE'), key=lambda file: file.stat().st_mtime_ns, default=None)
    if done is None:
        raise SpmlError(f"no finished run in {root}. Train one with nbs/train.ipynb.")
    return done.parent


# columns of every table of record
RECORD = ('run', 'key', 'loss', 'dataset', 'seed', 'seconds')
_REMEDY = 'Restore the file from version control, or remove the line and run `spml sweep` again.'


def read_record(file: Path, needed: tuple[str, ...] = RECORD, **options) -> pd.DataFrame:
    """Read a table of record, with default values filled in.

    Args:
        file: such as outputs/runs.csv.
        needed: columns that it must have.
        **options: of `pandas.read_csv`; unset: those that restore types.

    Returns:
        DataFrame with one row per line.

    Raises:
        SpmlError: for a damaged file, with the number of the line.
    """
    try:
        text = require_regular_file(Path(file)).read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError) as error:
        raise SpmlError(f'{file} cannot be read: {error}. {_REMEDY}') from error
    return _parse_record(text, file, needed, **options)


def _parse_record(text: str, file: Path, needed: tuple[str, ...], **options) -> pd.DataFrame:
    "The table in a text, as `read_record` gives it. file: where it is from, for messages."
    lines = csv.reader(io.StringIO(text, newline=''), strict=True)
    try:
        header = next(lines, [])
        if missing := [name for name in needed if name not in header]:
            raise ValueError(f"the header has no column {', '.join(missing)}")
        _check_lines(header, lines)
        if not text.endswith('\n'):
            raise ValueError('the end of the file is cut off')
    except (csv.Error, ValueError) as error:
        raise SpmlError(f'{file}, line {lines.line_num}: {error}. {_REMEDY}') from error
    return _fill_defaults(pd.read_csv(io.StringIO(text), **(options or _TYPES)))


_TEXTS = (
    'run',
    'key',
    'dataset',
    'root',
    'exclude',
    'labels',
    'hparams',
    'side',
    'weights',
    'trained_validation',
    'data',
    'commit',
)
# a folder of photos may be called 2019, or null
_TYPES = {
    'dtype': dict.fromkeys(_TEXTS, str),
    'keep_default_na': False,
    'na_values': [''],
    'low_memory': False,  # otherwise sparse columns get mixed types
}

# Values of fields that are left empty in the table of record, as most runs have them; with those of
# `neutral_fields`. They must never change.
_DEFAULTS = {
    'min_positives': 20,
    'labels': 'single',
    'regime': 'linear',
    'backbone': 'efficientnet_lite0',
    'weights': 'default',
    'head': 'linear',
    'image_size': 224,
    'epochs': 60,
    'batch_size': 64,
    'head_lr_multiplier': 1.0,
    'linear_epochs': 60,
    'linear_lr': 0.001,
    'optimizer': 'adam',
    'weight_decay': 0.0,
    'momentum': 0.9,
    'schedule': 'constant',
    'ema': 0.0,
    'selection': 'val_clean',
    'patience': 10,
    'stop_below': 0.0,
    'cached_views': 4,
    'precision': 'float32',
    'device': 'cpu',
}
# fields without a default
_MAY_BE_EMPTY = ('root', 'exclude', 'stage2_lr', 'embedding_dim', 'side')


def _find_defaults(datasets: pd.Series, as_text: bool) -> pd.DataFrame:
    "The default of each field in each line; that of `views` depends on the data set."
    defaults = ADDED | _DEFAULTS
    if as_text:
        defaults = {name: str(value) for name, value in defaults.items()}
    views = {name: neutral_fields(name)['views'] for name in datasets.unique()}
    table = pd.DataFrame(defaults | {'views': datasets.map(views)}, datasets.index)
    return table.drop(columns=[*_MAY_BE_EMPTY], errors='ignore')


def _fill_defaults(table: pd.DataFrame) -> pd.DataFrame:
    "Restore a table that was written by `_compact`."
    if 'hparams' not in table or not len(table):
        return table  # no configurations
    as_text = pd.api.types.is_string_dtype(table.seed)
    for name in _MAY_BE_EMPTY:
        if name not in table:
            table[name] = pd.Series(
                '' if as_text else math.nan, table.index, str if name in _TEXTS else None
            )
    defaults = _find_defaults(table.dataset, as_text)
    for name in defaults:
        if name not in table:
            table[name] = defaults[name]
        elif as_text:
            table[name] = table[name].mask(table[name] == '', defaults[name])
        else:
            stored = table[name].astype(object)
            filled = stored.where(stored.notna(), defaults[name])
            table[name] = filled.astype(defaults[name].dtype)
    fields = [field.name for field in dataclasses.fields(Config) if field.name in table]
    first = ['run', 'key', *fields]
    return table[first + [name for name in table if name not in first]]


def _compact(table: pd.DataFrame) -> pd.DataFrame:
    "Empty the defaults in a table of texts, drop empty columns, and round scores to six digits."
    table = table.copy()
    defaults = _find_defaults(table.dataset, as_text=True)
    for name in defaults:
        if name in table:
            table[name] = table[name].mask(table[name] == defaults[name], '')
    for name in table:
        if _is_measured(name):
            table[name] = table[name].map(_six_digits)
    restorable = {*defaults, *_MAY_BE_EMPTY}
    empty = [name for name in table if name in restorable and not any(table[name])]
    return table.drop(columns=empty)


_MEASURED = ('val_', 'test_', 'observed_', 'pseudo_', 'threshold', 'seconds')


def _is_measured(name: str) -> bool:
    return name.startswith(_MEASURED) and not name.endswith('_truth')


def round_score(name: str, value: float) -> float:
    """Round a score as in the table of record. name: its column."""
    return float(_six_digits(repr(value))) if _is_measured(name) else value


def _six_digits(text: str) -> str:
    return f'{float(text):.6g}' if len(text) > 7 else text


# prefixes of the columns of numbers that are not measured
_OTHER_NUMBERS = ('seed', 'label_seed', 'lr', 'late', 'exercised', 'best_epoch', 'diverged')


def _check_lines(header: list[str], lines: Iterable[list[str]]):
    """Raise a ValueError at the first line of wrong length, with a text for a number, or that
    contradicts an earlier line on the same run.
    """
    run, key = header.index('run'), header.index('key')
    numbers = [
        index
        for index, name in enumerate(header)
        if _is_measured(name) or name.startswith(_OTHER_NUMBERS)
    ]
    seen = {}
    for line in lines:
        if len(line) != len(header):
            raise ValueError(f'{len(line)} fields instead of {len(header)}')
        for index in numbers:
            if line[index] and not _is_finite(line[index]):
                raise ValueError(f'{header[index]} is {line[index]!r}, which is no number')
        if seen.setdefault((line[run], line[key]), line) != line:
            raise ValueError(f'the run {line[run]} has two lines that differ')


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def parse_recorded_config(line: dict[str, str]) -> Config:
    """The configuration of a line of the table of record.

    Args:
        line: {column: text}, as from `read_record` with `dtype=str` and `keep_default_na=False`.

    Raises:
        SpmlError: for a value that a field cannot have.
    """
    fields = {
        field.name: line[field.name] for field in dataclasses.fields(Config) if line.get(field.name)
    }
    fields |= {name: text == 'True' for name, text in fields.items() if text in ('True', 'False')}
    exclude = [name for name in line['exclude'].split('|') if name]
    return Config(**fields | {'hparams': json.loads(line['hparams']), 'exclude': exclude})


def _lacks_a_score(old: pd.DataFrame, new: pd.DataFrame) -> pd.Series:
    "Which old lines lack a score that the new line of the same run has. Tables of texts."
    names = [name for name in new if _is_measured(name)]
    keys = ['run', 'key']
    new_lines = old[keys].merge(new[[*keys, *names]].drop_duplicates(keys), 'left', keys)
    is_new = (new_lines[names].fillna('') != '').to_numpy()
    is_missing = old.reindex(columns=names, fill_value='') == ''
    return (is_missing & is_new).any(axis=1)


@any_name_in_frames()
def export_csv(file: Path | None = None, root: Path | None = None) -> pd.DataFrame:
    """Add every finished run to the table of record.

    Existing lines stay as they are, unless they lack a score that the run has now. A run that was
    trained anew on other photos or labels may have the same name; its key differs, so it gets
    another line.

    Args:
        file: unset: `runs.csv` in the setting `outputs`.
        root: as in `load`.

    Returns:
        The complete table as texts, with one row per run and key.

    Raises:
        SpmlError: if a run or the table is damaged; then the table is not changed.
    """
    file = file or settings.get_folder('outputs') / 'runs.csv'
    with hold_lock(file):  # another process may add runs at the same time
        old = pd.DataFrame()
        if file.exists():
            old = read_record(file, dtype=str, keep_default_na=False)
        new = load(root)
        if len(new):
            # before pandas 3, astype writes nan and None
            new = new.astype(str).where(new.notna(), '')
        new = new.map(escape_bytes)
        if len(old) and len(new):
            old = old[~_lacks_a_score(old, new)]
        runs = pd.concat([old, new], ignore_index=True).fillna('')
        if len(runs):
            runs = runs.drop_duplicates(['run', 'key'])
            runs = runs.sort_values(['run', 'key'], ignore_index=True)
        text = _compact(runs) if len(runs) else runs
        write_atomically(file, text.to_csv(index=False, lineterminator='\n'))
    return runs
