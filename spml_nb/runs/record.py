"""Finished runs as rows: those of this machine, and those of the table of record in outputs/."""

import csv
import dataclasses
import io
import json
import math
from pathlib import Path

import pandas as pd

from ..base import settings
from ..base.errors import SpmlError, parse_number
from ..base.escaping import any_name_in_frames, escape_bytes
from ..base.files import hold_lock, require_regular_file, write_atomically
from .config import ADDED, Config, complete_fields, neutral_fields, science_key
from .folder import read_json


@any_name_in_frames()
def load(root: Path | None = None) -> pd.DataFrame:
    """Every finished run: its configuration, scores, seconds and commit.

    Args:
        root: the folder of runs; unset: the setting `runs`.

    Returns:
        DataFrame with one row per run, empty when there is none.

    Raises:
        SpmlError: for a run whose files are damaged.
    """
    return pd.DataFrame(
        [_row(done.parent) for done in sorted((root or settings.path('runs')).glob('*/DONE'))]
    )


def _row(folder: Path) -> dict:
    """A finished run as a row; fields that it was trained without have the value that they stood
    for.
    """
    config = complete_fields(read_json(folder / 'config.json', ('loss', 'dataset', 'hparams')))
    config = {field.name: config.get(field.name) for field in dataclasses.fields(Config)}
    result = read_json(folder / 'result.json', ('scores', 'seconds', 'provenance', 'data'))
    key = science_key(Config(**config), result['data'])
    config |= {
        'dataset': Path(config['dataset']).name,
        'side': Path(config['side']).name,
        'exclude': '|'.join(config['exclude']),
        'hparams': json.dumps(config['hparams'], sort_keys=True),
    }
    return {
        'run': folder.name,
        'key': key,
        **config,
        **{k: v for k, v in result['scores'].items() if not isinstance(v, list | dict)},
        'seconds': result['seconds'],
        'commit': result['provenance']['commit'],
        'data': result['data'],
    }


def newest(root: Path | None = None) -> Path:
    """The run that finished last.

    Args:
        root: the folder of runs; unset: the setting `runs`.

    Returns:
        The folder of the run.

    Raises:
        SpmlError: if no run is finished.
    """
    root = root or settings.path('runs')
    done = max(root.glob('*/DONE'), key=lambda file: file.stat().st_mtime_ns, default=None)
    if done is None:
        raise SpmlError(f"no finished run in {root}. Train one with nbs/train.ipynb.")
    return done.parent


RECORD = (
    'run',
    'key',
    'loss',
    'dataset',
    'seed',
    'seconds',
)  # columns that every table of record has
_REMEDY = 'Take the file back from version control, or remove the line and give `spml sweep` again.'


def read_record(file: Path, needed: tuple[str, ...] = RECORD, **options) -> pd.DataFrame:
    """Read a table of record.

    Args:
        file: such as outputs/runs.csv.
        needed: columns that it must have.
        **options: of `pandas.read_csv`.

    Returns:
        DataFrame with one row per line.

    Raises:
        SpmlError: for a damaged file; the message names the file and the line.
    """
    try:
        text = require_regular_file(Path(file)).read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError) as error:
        raise SpmlError(f'{file} cannot be read: {error}. {_REMEDY}') from error
    lines = csv.reader(io.StringIO(text, newline=''), strict=True)
    try:
        header, seen = next(lines, []), {}
        if missing := [name for name in needed if name not in header]:
            raise ValueError(f"the header has no column {', '.join(missing)}")
        numbers = [
            place
            for place, name in enumerate(header)
            if name.startswith(_NUMBERS) and not name.endswith('_truth')
        ]
        for line in lines:
            _check_line(header, line, numbers, seen)
        if not text.endswith('\n'):
            raise ValueError('the end of the file is cut off')
    except (csv.Error, ValueError) as error:
        raise SpmlError(f'{file}, line {lines.line_num}: {error}. {_REMEDY}') from error
    return _with_usual(pd.read_csv(io.StringIO(text), **(options or _TYPES)))


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
    'low_memory': False,  # or a column that is seldom filled has several types
}

# What an empty field of a configuration stands for, beside what `neutral_fields` says: most runs
# are heads on frozen features, and their lines show only what is special about them. A value that
# is here once may never change.
_USUAL = {
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
_NEVER_USUAL = ('root', 'exclude', 'embedding_dim', 'side')  # empty is a value of their own


def _usual_fields(datasets: pd.Series) -> dict[str, pd.Series]:
    "{field: what an empty one stands for in each line}."
    usual = {name: neutral_fields(name) | _USUAL for name in datasets.unique()}
    names = [f.name for f in dataclasses.fields(Config)]
    return {
        name: datasets.map({dataset: values[name] for dataset, values in usual.items()})
        for name in names
        if any(name in values for values in usual.values()) and name not in _NEVER_USUAL
    }


def _with_usual(table: pd.DataFrame) -> pd.DataFrame:
    "A table as it was before `_compact`."
    if 'hparams' not in table or not len(table):
        return table  # no table of configurations
    as_text = pd.api.types.is_string_dtype(table.seed)
    for name in _NEVER_USUAL:
        if name not in table:
            table[name] = pd.Series(
                '' if as_text else math.nan, table.index, str if name in _TEXTS else None
            )
    for name, usual in _usual_fields(table.dataset).items():
        values = usual.map(str) if as_text else usual
        if name in table:
            given = table[name].replace('', math.nan).astype(object)
            values = given.where(given.notna(), values)
        table[name] = values if as_text else values.astype(usual.dtype)
    fields = [f.name for f in dataclasses.fields(Config) if f.name in table]
    first = ['run', 'key', *fields]
    return table[first + [name for name in table if name not in first]]


def _compact(table: pd.DataFrame) -> pd.DataFrame:
    "A table of texts with usual values left empty, empty columns left out, and six digits."
    table = table.copy()
    for name, usual in _usual_fields(table.dataset).items():
        if name in table:
            table[name] = table[name].mask(table[name] == usual.map(str), '')
    for name in table:
        if _is_measured(name):
            table[name] = table[name].map(_six_digits)
    restored = {*_usual_fields(table.dataset), *_NEVER_USUAL}
    return table.drop(columns=[name for name in table if name in restored and not any(table[name])])


_MEASURED = ('val_', 'test_', 'observed_', 'pseudo_', 'threshold', 'seconds')


def _is_measured(name: str) -> bool:
    return name.startswith(_MEASURED) and not name.endswith('_truth')


def round_score(name: str, value: float) -> float:
    """A score to the digits that the table of record has of it. name: its column."""
    return float(_six_digits(repr(value))) if _is_measured(name) else value


def _six_digits(text: str) -> str:
    return f'{float(text):.6g}' if len(text) > 7 else text


# how the names of columns of numbers begin
_NUMBERS = (
    'val_',
    'test_',
    'observed_',
    'pseudo_',
    'seed',
    'label_seed',
    'seconds',
    'lr',
    'late',
    'exercised',
    'best_epoch',
    'diverged',
)


def _check_line(
    header: list[str], line: list[str], numbers: list[int], seen: dict[tuple, list[str]]
):
    """Refuse, with a ValueError, a line that does not fit its header, whose places `numbers` hold
    something else, or another line of its run and key.
    """
    if len(line) != len(header):
        raise ValueError(f'{len(line)} fields instead of {len(header)}')
    for place in numbers:
        value = line[place]
        if value and not math.isfinite(parse_number(value)):
            raise ValueError(f'{header[place]} is {value!r}, which is no number')
    run, key = (line[header.index(name)] for name in ('run', 'key'))
    if seen.setdefault((run, key), line) != line:
        raise ValueError(f'the run {run} has two lines that differ')


def parse_recorded_config(line: dict[str, str]) -> Config:
    """The configuration of a line of the table of record.

    Args:
        line: {column: text}, as from `read_record` with `dtype=str` and `keep_default_na=False`.

    Returns:
        Config.

    Raises:
        SpmlError: for a value that no field can have.
    """
    given = {
        field.name: line[field.name] for field in dataclasses.fields(Config) if line.get(field.name)
    }
    given |= {name: text == 'True' for name, text in given.items() if text in ('True', 'False')}
    exclude = [name for name in line['exclude'].split('|') if name]
    return Config(**given | {'hparams': json.loads(line['hparams']), 'exclude': exclude})


def _lacks_a_score(old: pd.DataFrame, new: pd.DataFrame) -> pd.Series:
    "Which lines are of runs that have a score now which is not in the line. Tables of texts."
    names = [name for name in new if _is_measured(name)]
    place = ['run', 'key']
    now = old[place].merge(new[[*place, *names]].drop_duplicates(place), 'left', place)
    before = old.reindex(columns=names, fill_value='')
    return ((before == '') & (now[names].fillna('') != '').to_numpy()).any(axis=1)


@any_name_in_frames()
def export_csv(file: Path | None = None, root: Path | None = None) -> pd.DataFrame:
    """Add every finished run to the table of record; lines that are there stay as they are, unless
    they were recorded without a score that the run has now. A run that was trained anew on other
    photos or labels has its old name and another key, and gets a line of its own.

    Args:
        file: unset: `runs.csv` in the setting `outputs`.
        root: as in `load`.

    Returns:
        The whole table, with one row per run and key.

    Raises:
        SpmlError: for a run or a table that is damaged; then the table stays as it is.
    """
    file = file or settings.path('outputs') / 'runs.csv'
    with hold_lock(file):  # two at once would each write without the other's new lines
        old = (
            read_record(file, dtype=str, keep_default_na=False) if file.exists() else pd.DataFrame()
        )
        for name in ADDED:  # lines written before the field existed
            if len(old) and name not in old:
                old[name] = [str(neutral_fields(dataset)[name]) for dataset in old.dataset]
        new = load(root)
        if len(new):
            new = new.astype(str).where(
                new.notna(), ''
            )  # before pandas 3, astype writes nan and None
        new = new.map(escape_bytes)
        if len(old) and len(new):
            old = old[~_lacks_a_score(old, new)]
        # a score that either has not is empty
        both = pd.concat([old, new], ignore_index=True).fillna('')
        if len(both):
            both = both.drop_duplicates(['run', 'key']).sort_values(
                ['run', 'key'], ignore_index=True
            )
        text = _compact(both) if len(both) else both
        write_atomically(file, text.to_csv(index=False, lineterminator='\n'))
    return both
