"""Lists runs and leftovers of killed processes, and removes what you choose and nothing else."""

import contextlib
import os
import re
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pandas as pd

from ..base import settings
from ..base.errors import SpmlError, one_of
from ..base.files import TEMPORARY, is_locked, make_lock
from ..data.fetch import format_bytes
from ..data.labels import TRUTHS, describe_truth
from ..runs.config import Config, complete_fields
from ..runs.folder import WITHOUT_WEIGHTS, read_json

# running: a process holds its lock; done: DONE is there, and every file of a finished run can be
# opened; begun: the same command goes on from the last checkpoint; damaged: a file is missing, cut
# off or unreadable
STATES = ('done', 'begun', 'damaged', 'running')


def _state(folder: Path) -> dict:
    "State, note, scores and seconds of a run that no process holds."
    done = (folder / 'DONE').is_file()
    archives = [folder / 'best.pt', folder / ('logits.npz' if done else 'last.pt')]
    missing = [file.name for file in archives if not file.is_file()]
    for file in archives:
        # an archive has its directory at the end, which one that is cut off has lost
        if file.name not in missing and not zipfile.is_zipfile(file):
            return {'state': 'damaged', 'note': f'{file.name} cannot be read'}
    file = folder / ('result.json' if done else 'metrics.csv')
    try:
        if not done:
            epochs = len(pd.read_csv(file)) if file.is_file() and 'last.pt' not in missing else 0
            return {'state': 'begun', 'note': f'{epochs} epochs' if epochs else 'no checkpoint yet'}
        result = read_json(file)
        elsewhere = (folder / WITHOUT_WEIGHTS).is_file()
        if missing and 'diverged' not in result and not elsewhere:
            return {'state': 'damaged', 'note': f'{missing[0]} is missing'}
        note = 'trained elsewhere, without weights' if elsewhere else ''
        scores = _scores(result['scores'])
        return {'state': 'done', 'note': note, 'seconds': float(result['seconds']), **scores}
    except Exception as error:  # a damaged file may raise anything
        return {'state': 'damaged', 'note': f'{file.name} cannot be read: {error}'}


def _scores(scores: dict) -> dict:
    shown = {}
    for name, source in _SCORES.items():
        if scores.get(source) is not None:
            shown[name] = float(scores[source])
    for name in ('val_truth', 'test_truth'):
        if not isinstance(scores.get(name), str | None):
            raise TypeError(f'{scores[name]!r} says nothing of what a score was measured against')
        shown[name] = scores.get(name)
    return shown


# column: the score of a run; observed AUC is there where only observed labels are known
_SCORES = {
    'val_map': 'val_map',
    'test_map': 'test_map',
    'val_auc': 'observed_val_auc',
    'test_auc': 'observed_test_auc',
}
_FIELDS = ('loss', 'dataset', 'regime', 'labels', 'seed', 'lr', 'min_positives')
COLUMNS = [
    'name',
    'state',
    *_FIELDS,
    'hparams',
    'differs',
    *_SCORES,
    'val_truth',
    'test_truth',
    'seconds',
    'mb',
    'days',
    'note',
    'folder',
]


def _pairs(values: dict) -> str:
    return ' '.join(f'{name}={value}' for name, value in values.items())


def _differences(configs: list[Config]) -> list[str]:
    """For each configuration, its fields that differ among those of the same loss and data set, as
    text.
    """
    if not configs:
        return []
    fields = pd.DataFrame(list(map(vars, configs)), dtype=object)
    names = fields.columns.difference([*_FIELDS, 'hparams', 'label_seed'], sort=False)
    groups = fields[names].map(str).groupby([fields.loss, fields.dataset])
    differs = (groups.transform('nunique') > 1).to_numpy()
    return [
        _pairs({name: getattr(config, name) for name in names[row]})
        for config, row in zip(configs, differs, strict=True)
    ]


def _size(path: Path) -> int:
    """Bytes of a file, or of all in a folder; what goes away meanwhile or may not be read counts
    nothing.
    """
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            return sum(map(_size, path.iterdir()))
        return path.lstat().st_size
    return 0


def _days(path: Path) -> float:
    "Days since a file was read or written, or a folder changed; 0 for what goes away meanwhile."
    with contextlib.suppress(OSError):
        stat = path.lstat()
        last = max(stat.st_mtime, stat.st_atime) if path.is_file() else stat.st_mtime
        return (time.time() - last) / 86400
    return 0.0


def _row(folder: Path) -> dict | None:
    "A line of `list_runs` with its `config`; None if the run goes away meanwhile."
    row = {
        'name': folder.name,
        'note': '',
        'folder': folder,
        'mb': _size(folder) / 1e6,
        'days': _days(folder),
        'config': None,
    }
    try:
        fields = complete_fields(read_json(folder / 'config.json', ('loss', 'dataset', 'hparams')))
        # a newer version may have written more fields
        config = Config(**{name: fields[name] for name in Config.__annotations__ if name in fields})
        row |= {name: getattr(config, name) for name in _FIELDS}
        row |= {'config': config, 'hparams': _pairs(config.hparams)}
        row |= _state(folder)
    except Exception as error:  # a damaged file may raise anything; the other runs are listed
        why = f'{type(error).__name__}: {error}'.removeprefix('SpmlError: ')
        row |= {'state': 'damaged', 'note': why}
    if is_locked(folder):
        row['state'] = 'running'
    return row if os.path.lexists(folder) else None


def list_runs(
    root: Path | None = None,
    /,
    *,
    state: str | None = None,
    pattern: str | None = None,
    days: float | None = None,
    **filters,
) -> pd.DataFrame:
    """Every run folder, the newest first.

    Args:
        root: the folder of runs; unset: the setting `runs`.
        state: one of `STATES`.
        pattern: of the name, with * and ?.
        days: only runs unchanged for longer.
        filters: fields of `Config` with the value wanted, which may be a text as from a command
            line; dataset: a name or a folder; hparams: only those given are compared.

    Returns:
        DataFrame: name, state, loss, dataset, regime, labels, seed, lr, min_positives, hparams,
        differs (other fields in which the listed runs of a loss on a data set differ), val_map and
        test_map in percent, val_auc and test_auc (observed AUC in percent, NaN where it chose
        nothing), val_truth and test_truth (what they were measured against, as from
        `labels.labels_for_scoring`), seconds, mb (1e6 bytes), days since the last change, note
        (what is damaged, how far the run is), folder.

    Raises:
        SpmlError: for an unknown state or field, a value of a wrong kind, or negative days.
    """
    if state is not None:
        one_of(state, STATES, 'state')
    days = days or 0
    if days < 0:
        raise SpmlError(f'days={days}; allowed: 0 or more, 0 lists every run.')
    wanted = vars(Config(**{'selection': 'last'} | filters))  # converts and checks each value
    wanted = {name: wanted[name] for name in filters}
    rows = []
    for folder in _run_folders(Path(root or settings.path('runs'))):
        row = _row(folder)
        if (
            row is not None
            and state in (None, row['state'])
            and row['days'] >= days
            and fnmatch(row['name'], pattern or '*')
            and _fits(row['config'], wanted)
        ):
            rows.append(row)
    readable = [row for row in rows if row['config'] is not None]
    differences = _differences([row['config'] for row in readable])
    for row, difference in zip(readable, differences, strict=True):
        row['differs'] = difference
    rows.sort(key=lambda row: row['days'])
    return pd.DataFrame(rows, columns=COLUMNS)


def _run_folders(root: Path) -> list[Path]:
    return [
        file.parent
        for file in root.glob('[!.]*/config.json')
        if not file.parent.is_symlink() and _is_of_run(file)
    ]


def _is_of_run(file: Path) -> bool:
    """Whether a config.json is a run's, by its folder's name or by its content: exported models and
    others have one too.
    """
    if re.fullmatch('.+-[0-9a-f]{12}', file.parent.name):
        return True
    with contextlib.suppress(SpmlError):
        return bool(read_json(file, ('loss', 'dataset', 'hparams')))
    return False


def _fits(config: Config | None, wanted: dict) -> bool:
    if config is None:  # it cannot be read
        return not wanted
    for name, value in wanted.items():
        actual = getattr(config, name)
        if name == 'dataset':
            fits = value in (actual, Path(actual).name)
        elif name == 'hparams':
            fits = value.items() <= actual.items()
        else:
            fits = value == actual
        if not fits:
            return False
    return True


def sort_listing(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Sort a listing, as from `list_runs` or `find_leftovers`, by one of its columns: numbers from
    high to low, words from A to Z, what is missing last.

    Raises:
        SpmlError: for another column.
    """
    one_of(column, table.columns, 'column to sort by')
    is_number = pd.api.types.is_numeric_dtype(table[column])
    return table.sort_values(column, ascending=not is_number, kind='stable')


HOUR = 1 / 24
_DRAWN = 8 * '[a-z0-9_]'  # of tempfile
_AWAY = '.removed-'
_UNUSED = 'unused cache'


@dataclass(frozen=True)
class Leftover:
    """A kind of path that may be removed. The name is not enough: a folder or a link with the name
    of a temporary file is the user's.

    Args:
        what: in words.
        setting: whose folder it lies in.
        pattern: of its path in that folder.
        test: whether a path that matches is one.
    """

    what: str
    setting: str
    pattern: str
    test: Callable[[Path], bool]


def _is_log_without_run(path: Path) -> bool:
    return path.is_file() and not path.with_suffix('').exists()


KINDS = [
    *(
        Leftover('temporary file', setting, f'{folder}.*-{_DRAWN}.tmp', Path.is_file)
        for setting in ('runs', 'outputs', 'cache')
        for folder in ('', '*/')
    ),
    Leftover('half-removed run', 'runs', f'{_AWAY}{_DRAWN}', Path.is_dir),
    Leftover(
        'log of a run that never began',
        'runs',
        f'*-*-{12 * "[0-9a-f]"}.log',
        _is_log_without_run,
    ),
    Leftover('killed reproduction', 'cache', f'reproduction-{_DRAWN}', Path.is_dir),
    *(
        Leftover(_UNUSED, 'cache', pattern, Path.is_file)
        for pattern in ('images/*.npy', 'images/*.whole', 'images/*.content', 'features/*.npy')
    ),
]


def find_leftovers(days: float = 30) -> pd.DataFrame:
    """What killed processes left behind in the settings `runs`, `outputs` and `cache`, and caches
    long unused.

    Args:
        days: since a cache's last use. The file system records that within a day; one that is
            mounted without access times records only writing.

    Returns:
        DataFrame, the largest first: what, path, mb (1e6 bytes), days since the last use.

    Raises:
        SpmlError: if days is negative.
    """
    if days < 0:
        raise SpmlError(
            f'days={days}; allowed: 0 or more, 0 lists every cache that is not being built.'
        )
    rows = [
        {'what': what, 'path': path, 'mb': _size(path) / 1e6, 'days': _days(path)}
        for path, what in _left_over(days).items()
    ]
    rows.sort(key=lambda row: -row['mb'])
    return pd.DataFrame(rows, columns=['what', 'path', 'mb', 'days'])


def _left_over(days: float) -> dict[Path, str]:
    "What each path is; a folder stands for all that is in it."
    left = {}
    for kind in KINDS:
        least = days if kind.what == _UNUSED else HOUR
        for path in list(settings.path(kind.setting).glob(kind.pattern)):
            is_link = path.is_symlink() or path.parent.is_symlink()
            if kind.test(path) and not is_link and not _in_use(path) and _days(path) >= least:
                left[path] = kind.what
    return {path: what for path, what in left.items() if path.parent not in left}


def _in_use(path: Path) -> bool:
    """Whether a process holds the lock of a path, of its folder, of a run in it, or of what a
    temporary file becomes.
    """
    temporary = TEMPORARY.match(path.name)
    becomes = path.with_name(temporary[1]) if temporary else path.with_suffix('')
    return any(map(is_locked, (path, path.parent, path / 'run', becomes)))


def remove_paths(table: pd.DataFrame, *, dry_run: bool, root: Path | None = None) -> pd.DataFrame:
    """Remove what `list_runs` or `find_leftovers` lists. Each path is checked again: what is
    neither a run in the folder of runs nor left over stays, and so does what a process is using.

    Args:
        table: rows of it.
        dry_run: only say what would go.
        root: as in `list_runs`.

    Returns:
        DataFrame, one row per path: path, outcome ('removed', 'would be removed', 'refused'), mb,
        why. `describe_freed` says it in a sentence.
    """
    runs = _run_folders(Path(root or settings.path('runs')))
    left = _left_over(0)
    rows = []
    for path in table['folder' if 'folder' in table else 'path']:
        size = _size(path)
        outcome = 'would be removed' if dry_run else 'removed'
        why = ''
        if path not in runs and path not in left:
            why = 'in use or gone, or neither a run nor left over'
        elif _in_use(path):
            why = 'a process is using it'
        elif not dry_run:
            try:
                _delete(path, is_run=path in runs)
            except OSError as error:
                why = error.strerror or str(error)
        rows.append(
            {'path': path, 'outcome': 'refused' if why else outcome, 'mb': size / 1e6, 'why': why}
        )
    return pd.DataFrame(rows, columns=['path', 'outcome', 'mb', 'why'])


def _delete(path: Path, is_run: bool):
    """A run is moved away at a stroke and then deleted: a kill leaves it complete, or no longer
    among the runs.
    """
    if is_run:
        with (
            make_lock(path).acquire(timeout=0),
            tempfile.TemporaryDirectory(dir=path.parent, prefix=_AWAY) as away,
        ):
            path.rename(Path(away) / path.name)
        path.with_name(f'{path.name}.log').unlink(missing_ok=True)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def describe_freed(table: pd.DataFrame) -> str:
    """A sentence about what was removed, as from `remove_paths`; what was refused stands on lines
    of its own.
    """
    sums = [
        f'{len(rows)} {outcome}, {format_bytes(1e6 * rows.mb.sum())}'
        for outcome, rows in table.groupby('outcome')
    ]
    refused = table[table.outcome == 'refused']
    reasons = [f'{row.path}: {row.why}' for row in refused.itertuples()]
    return '\n'.join(['; '.join(sums) or 'nothing to remove', *reasons])


MARKS = dict(zip(TRUTHS[1:], '+*', strict=True))  # of scores that are not against all labels
_FORMATS = {
    **dict.fromkeys(_SCORES, '.2f'),
    'seconds': '.0f',
    'mb': '.1f',
    'days': '.1f',
    'seed': '.0f',
    'lr': 'g',
    'min_positives': '.0f',
}


def format_listing(table: pd.DataFrame) -> str:
    """A listing, as from `list_runs` or `find_leftovers`, for the terminal; its last line is the
    sum."""
    if not len(table):
        return 'none'
    shown = table.drop(columns=['folder', 'val_truth', 'test_truth'], errors='ignore')
    shown = shown.astype(object).where(shown.notna(), '')
    if 'dataset' in shown:
        shown['dataset'] = [Path(str(name)).name for name in shown.dataset]
    for name in shown.columns.intersection(list(_FORMATS)):
        shown[name] = [
            value if value == '' else format(value, _FORMATS[name]) for value in shown[name]
        ]
    for name in shown.columns.intersection(['val_map', 'test_map']):
        shown[name] += table[name.replace('map', 'truth')].map(MARKS).fillna(' ')
    for name in ('min_positives', 'hparams', 'differs', 'note', 'val_auc', 'test_auc'):
        if name in shown and shown[name].isin(['', '0']).all():
            shown = shown.drop(columns=name)
    notes = [
        f'{mark} against {describe_truth(truth)}'
        for truth, mark in MARKS.items()
        if (table == truth).any(axis=None)
    ]
    if 'val_auc' in shown:
        notes.append(
            'val_auc, observed AUC, chose epoch and settings there, and is what `spml compare` '
            'goes by: mAP takes every label that was not written down for absent'
        )
    kinds = table['state' if 'state' in table else 'what'].value_counts()
    counts = ', '.join(f'{n} {kind}' for kind, n in kinds.items())
    total = f'{counts}; {format_bytes(1e6 * table.mb.sum())}'
    return '\n'.join([shown.to_string(index=False), *notes, total])
