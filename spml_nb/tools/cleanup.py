"""List runs and leftovers of killed processes, and remove them."""

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
from ..base.errors import SpmlError, require_one_of
from ..base.files import TEMPORARY, is_locked, make_lock
from ..data.fetch import format_bytes
from ..data.labels import TRUTHS, describe_truth
from ..runs.config import Config, complete_fields
from ..runs.folder import WITHOUT_WEIGHTS, read_json

# running: a process holds its lock
# done: finished, and its files can be opened
# begun: the same command resumes it
# damaged: a file is missing, truncated or unreadable
STATES = ('done', 'begun', 'damaged', 'running')


def _read_state(folder: Path) -> dict:
    "The columns state, note, seconds and scores of a run that is not running."
    done = (folder / 'DONE').is_file()
    archives = [folder / 'best.pt', folder / ('logits.npz' if done else 'last.pt')]
    missing = [file.name for file in archives if not file.is_file()]
    for file in archives:
        # quick: the directory of a zip file is at its end, so a truncated one is none
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
        scores = _select_scores(result['scores'])
        return {'state': 'done', 'note': note, 'seconds': float(result['seconds']), **scores}
    except Exception as error:  # a damaged file may raise anything
        return {'state': 'damaged', 'note': f'{file.name} cannot be read: {error}'}


def _select_scores(scores: dict) -> dict:
    "The score columns of a listing."
    selected = {}
    for column, name in _SCORES.items():
        if scores.get(name) is not None:
            selected[column] = float(scores[name])
    for name in ('val_truth', 'test_truth'):
        if not isinstance(scores.get(name), str | None):
            raise TypeError(f'{name} is {scores[name]!r} instead of a text')
        selected[name] = scores.get(name)
    return selected


# {column: score of a run}
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


def _join_pairs(values: dict) -> str:
    return ' '.join(f'{name}={value}' for name, value in values.items())


def _describe_differences(configs: list[Config]) -> list[str]:
    "For each configuration, the fields that vary between those of its loss and data set, as text."
    if not configs:
        return []
    fields = pd.DataFrame(list(map(vars, configs)), dtype=object)
    names = fields.columns.difference([*_FIELDS, 'hparams', 'label_seed'], sort=False)
    groups = fields[names].map(str).groupby([fields.loss, fields.dataset])
    varies = (groups.transform('nunique') > 1).to_numpy()
    return [
        _join_pairs({name: getattr(config, name) for name in names[varying]})
        for config, varying in zip(configs, varies, strict=True)
    ]


def _size(path: Path) -> int:
    "Bytes of a file, or of all files in a folder; 0 for what vanishes or cannot be read."
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            return sum(map(_size, path.iterdir()))
        return path.lstat().st_size
    return 0


def _days(path: Path) -> float:
    "Days since a file was read or written, or a folder changed; 0 for what vanishes."
    with contextlib.suppress(OSError):
        stat = path.lstat()
        last_use = max(stat.st_mtime, stat.st_atime) if path.is_file() else stat.st_mtime
        return (time.time() - last_use) / 86400
    return 0.0


def _read_run(folder: Path) -> dict | None:
    "A row of `list_runs`, with `config` (None if unreadable); None if the run vanishes."
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
        # newer versions may have more fields
        config = Config(**{name: fields[name] for name in Config.__annotations__ if name in fields})
        row |= {name: getattr(config, name) for name in _FIELDS}
        row |= {'config': config, 'hparams': _join_pairs(config.hparams)}
        row |= _read_state(folder)
    except Exception as error:  # a damaged file may raise anything
        why = f'{type(error).__name__}: {error}'.removeprefix('SpmlError: ')
        row |= {'state': 'damaged', 'note': why}
    if is_locked(folder):
        row['state'] = 'running'
    return row if os.path.lexists(folder) else None


def list_runs(
    *,
    state: str | None = None,
    pattern: str | None = None,
    days: float | None = None,
    **filters,
) -> pd.DataFrame:
    """Every run folder, the newest first.

    Args:
        state: one of `STATES`; unset: all.
        pattern: of the name, with * and ?.
        days: only runs that have not changed for so many days.
        filters: {field of `Config`: value}, perhaps as text; `dataset` may be a name or a folder;
            of `hparams`, only those in the filter are compared.

    Returns:
        DataFrame: name, state, loss, dataset, regime, labels, seed, lr, min_positives, hparams,
        differs (other fields that vary between the listed runs of the same loss and data set),
        val_map and test_map in percent, val_auc and test_auc (observed AUC in percent), val_truth
        and test_truth (the labels they were measured against, as from
        `labels.choose_score_targets`), seconds, mb (1e6 bytes), days since the last change, note
        (the damage, or the progress), folder.

    Raises:
        SpmlError: for an unknown state or field, a value of a wrong type, or negative days.
    """
    if state is not None:
        require_one_of(state, STATES, 'state')
    days = days or 0
    if days < 0:
        raise SpmlError(f'days={days}; allowed: 0 or more, 0 lists every run.')
    converted = vars(Config(**{'selection': 'last'} | filters))
    wanted = {name: converted[name] for name in filters}
    rows = []
    for folder in _run_folders():
        row = _read_run(folder)
        if (
            row is not None
            and state in (None, row['state'])
            and row['days'] >= days
            and fnmatch(row['name'], pattern or '*')
            and _matches(row['config'], wanted)
        ):
            rows.append(row)
    readable = [row for row in rows if row['config'] is not None]
    differences = _describe_differences([row['config'] for row in readable])
    for row, difference in zip(readable, differences, strict=True):
        row['differs'] = difference
    rows.sort(key=lambda row: row['days'])
    return pd.DataFrame(rows, columns=COLUMNS)


def _run_folders() -> list[Path]:
    return [
        file.parent
        for file in settings.get_folder('runs').glob('[!.]*/config.json')
        if not file.parent.is_symlink() and _is_run_config(file)
    ]


def _is_run_config(file: Path) -> bool:
    "Whether a config.json is that of a run; exported models have one, too."
    if re.fullmatch('.+-[0-9a-f]{12}', file.parent.name):
        return True
    with contextlib.suppress(SpmlError):
        return bool(read_json(file, ('loss', 'dataset', 'hparams')))
    return False


def _matches(config: Config | None, wanted: dict) -> bool:
    if config is None:  # unreadable
        return not wanted
    wanted = dict(wanted)
    dataset = wanted.pop('dataset', config.dataset)
    hparams = wanted.pop('hparams', {})
    return (
        dataset in (config.dataset, Path(config.dataset).name)
        and hparams.items() <= config.hparams.items()
        and all(getattr(config, name) == value for name, value in wanted.items())
    )


def sort_listing(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Sort the table of `list_runs` or `find_leftovers` by a column: numbers in descending order,
    words in ascending order, missing values last.

    Raises:
        SpmlError: for an unknown column.
    """
    require_one_of(column, table.columns, 'column to sort by')
    is_number = pd.api.types.is_numeric_dtype(table[column])
    return table.sort_values(column, ascending=not is_number, kind='stable')


HOUR = 1 / 24
_RANDOM = 8 * '[a-z0-9_]'  # as in names of tempfile
_REMOVED_PREFIX = '.removed-'
_UNUSED = 'unused cache'


@dataclass(frozen=True)
class Leftover:
    """A kind of path that may be removed.

    Args:
        what: in words.
        setting: the folder that it is in.
        pattern: glob pattern in that folder.
        test: for a matching path; a folder or link named like a temporary file is the user's.
    """

    what: str
    setting: str
    pattern: str
    test: Callable[[Path], bool]


def _is_log_without_run(path: Path) -> bool:
    return path.is_file() and not path.with_suffix('').exists()


KINDS = [
    *(
        Leftover('temporary file', setting, f'{folder}.*-{_RANDOM}.tmp', Path.is_file)
        for setting in ('runs', 'outputs', 'cache')
        for folder in ('', '*/')
    ),
    Leftover('half-removed run', 'runs', f'{_REMOVED_PREFIX}{_RANDOM}', Path.is_dir),
    Leftover(
        'log of a run that never began',
        'runs',
        f'*-*-{12 * "[0-9a-f]"}.log',
        _is_log_without_run,
    ),
    Leftover('killed reproduction', 'cache', f'reproduction-{_RANDOM}', Path.is_dir),
    *(
        Leftover(_UNUSED, 'cache', pattern, Path.is_file)
        for pattern in ('images/*.npy', 'images/*.whole', 'images/*.content', 'features/*.npy')
    ),
]


def find_leftovers(days: float = 30) -> pd.DataFrame:
    """Find what killed processes left in the settings `runs`, `outputs` and `cache`, and unused
    caches.

    Args:
        days: list caches that were not used for so long. The precision of access times is about a
            day; without access times, the last writing counts.

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
        for path, what in _list_leftovers(days).items()
    ]
    rows.sort(key=lambda row: -row['mb'])
    return pd.DataFrame(rows, columns=['what', 'path', 'mb', 'days'])


def _list_leftovers(days: float) -> dict[Path, str]:
    "{path: what it is}, without the contents of listed folders."
    leftovers = {}
    for kind in KINDS:
        min_days = days if kind.what == _UNUSED else HOUR
        for path in list(settings.get_folder(kind.setting).glob(kind.pattern)):
            is_link = path.is_symlink() or path.parent.is_symlink()
            if kind.test(path) and not is_link and not _in_use(path) and _days(path) >= min_days:
                leftovers[path] = kind.what
    return {path: what for path, what in leftovers.items() if path.parent not in leftovers}


def _in_use(path: Path) -> bool:
    """Whether a process holds the lock of a path, of its folder, of a run in it, or of the target
    of a temporary file.
    """
    temporary = TEMPORARY.match(path.name)
    target = path.with_name(temporary[1]) if temporary else path.with_suffix('')
    return any(map(is_locked, (path, path.parent, path / 'run', target)))


def remove_paths(table: pd.DataFrame, *, dry_run: bool) -> pd.DataFrame:
    """Remove the paths of `list_runs` or `find_leftovers`. Each is checked again; paths that are
    neither runs nor leftovers, or that are in use, are refused.

    Args:
        table: all rows, or some of them.
        dry_run: remove nothing.

    Returns:
        DataFrame, one row per path: path, outcome ('removed', 'would be removed', 'refused'), mb,
        why (of a refusal).
    """
    runs = _run_folders()
    leftovers = _list_leftovers(0)
    rows = []
    for path in table['folder' if 'folder' in table else 'path']:
        size = _size(path)
        outcome = 'would be removed' if dry_run else 'removed'
        why = ''
        if path not in runs and path not in leftovers:
            why = 'in use or gone, or neither a run nor a leftover'
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
    """Delete a path. A run is first moved away in one step, so that a kill leaves either all of it
    or none among the runs.
    """
    if is_run:
        with (
            make_lock(path).acquire(timeout=0),
            tempfile.TemporaryDirectory(dir=path.parent, prefix=_REMOVED_PREFIX) as folder,
        ):
            path.rename(Path(folder) / path.name)
        path.with_name(f'{path.name}.log').unlink(missing_ok=True)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def describe_freed(table: pd.DataFrame) -> str:
    """The result of `remove_paths` in words, with a line for each refused path."""
    totals = [
        f'{len(rows)} {outcome}, {format_bytes(1e6 * rows.mb.sum())}'
        for outcome, rows in table.groupby('outcome')
    ]
    refused = table[table.outcome == 'refused']
    reasons = [f'{row.path}: {row.why}' for row in refused.itertuples()]
    return '\n'.join(['; '.join(totals) or 'nothing to remove', *reasons])


_MARKS = dict(zip(TRUTHS[1:], '+*', strict=True))  # of scores that are not against full labels
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
    """The table of `list_runs` or `find_leftovers` as text, with the totals in the last line."""
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
        shown[name] += table[name.replace('map', 'truth')].map(_MARKS).fillna(' ')
    for name in ('min_positives', 'hparams', 'differs', 'note', 'val_auc', 'test_auc'):
        if name in shown and shown[name].isin(['', '0']).all():
            shown = shown.drop(columns=name)
    notes = [
        f'{mark} against {describe_truth(truth)}'
        for truth, mark in _MARKS.items()
        if (table == truth).any(axis=None)
    ]
    if 'val_auc' in shown:
        notes.append(
            'val_auc, the observed AUC, selected the epoch of these runs, and `spml compare` goes '
            'by it: mAP takes every label that was not written down for absent'
        )
    kinds = table['state' if 'state' in table else 'what'].value_counts()
    counts = ', '.join(f'{n} {kind}' for kind, n in kinds.items())
    total = f'{counts}; {format_bytes(1e6 * table.mb.sum())}'
    return '\n'.join([shown.to_string(index=False), *notes, total])
