"""Lists runs, damaged runs and leftovers of killed processes, and removes what you choose and nothing else."""

import contextlib
import os
import re
import shutil
import tempfile
import time
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pandas as pd

from ..base import settings
from ..base.errors import SpmlError, one_of
from ..base.files import TEMPORARY, is_locked, lock
from ..data.fetch import in_words
from ..data.labels import TRUTHS, against
from ..runs.config import Config, completed
from ..runs.folder import read_json

STATES = ('done', 'begun', 'damaged', 'running')


def _truth(value) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f'{value!r} says nothing of what a score was measured against')


def _state(folder) -> dict:
    "State, note, scores and seconds of a run that no process holds."
    done = (folder / 'DONE').is_file()
    file = folder / ('result.json' if done else 'metrics.csv')
    archives = ('best.pt', 'logits.npz' if done else 'last.pt')
    missing = [name for name in archives if not (folder / name).is_file()]
    cut = [
        name for name in archives if name not in missing and not zipfile.is_zipfile(folder / name)
    ]
    if cut:
        return {'state': 'damaged', 'note': f'{cut[0]} cannot be read'}
    try:
        if not done:
            epochs = len(pd.read_csv(file)) if file.is_file() and 'last.pt' not in missing else 0
            return {'state': 'begun', 'note': f'{epochs} epochs' if epochs else 'no checkpoint yet'}
        result = read_json(file)
        if missing and 'diverged' not in result:
            return {'state': 'damaged', 'note': f'{missing[0]} is missing'}
        scores = {name: result['scores'].get(name) for name in ('val_map', 'test_map')}
        scores = {name: float(score) for name, score in scores.items() if score is not None}
        return {
            'state': 'done',
            'seconds': float(result['seconds']),
            **scores,
            **{name: _truth(result['scores'].get(name)) for name in ('val_truth', 'test_truth')},
        }
    except Exception as error:  # a damaged file may raise anything
        return {'state': 'damaged', 'note': f'{file.name} cannot be read: {error}'}


COLUMNS = [
    'name',
    'state',
    'loss',
    'dataset',
    'regime',
    'labels',
    'seed',
    'lr',
    'min_positives',
    'hparams',
    'differs',
    'val_map',
    'test_map',
    'val_truth',
    'test_truth',
    'seconds',
    'mb',
    'days',
    'note',
    'folder',
]


_OWN = (
    'loss',
    'dataset',
    'regime',
    'labels',
    'seed',
    'lr',
    'min_positives',
)  # fields with columns of their own


def _words(values) -> str:
    return ' '.join(f'{name}={value}' for name, value in values.items())


def _differences(configs) -> list[str]:
    """For each configuration, its fields that differ among those of the same loss and data set, as
    text.
    """
    alike = {}
    for config in configs:
        alike.setdefault((config.loss, config.dataset), []).append(vars(config))
    several = {
        place: [
            name
            for name in each[0]
            if name not in (*_OWN, 'hparams', 'label_seed')
            and any(fields[name] != each[0][name] for fields in each)
        ]
        for place, each in alike.items()
    }
    return [
        _words({name: getattr(c, name) for name in several[c.loss, c.dataset]}) for c in configs
    ]


def _size(path) -> int:
    """Bytes of a file, or of all in a folder; what goes away meanwhile or may not be read counts
    nothing.
    """
    with contextlib.suppress(OSError):
        return (
            sum(map(_size, path.iterdir()))
            if path.is_dir() and not path.is_symlink()
            else path.lstat().st_size
        )
    return 0


def _days(path) -> float:
    "Days since a file was read or written, or a folder changed; 0 for what goes away meanwhile."
    with contextlib.suppress(OSError):
        stat = path.lstat()
        return (time.time() - max(stat.st_mtime, stat.st_atime if path.is_file() else 0)) / 86400
    return 0.0


def _row(folder) -> dict | None:
    "A line of `listing`; None if the run goes away meanwhile."
    row = {
        'name': folder.name,
        'note': '',
        'folder': folder,
        'mb': _size(folder) / 1e6,
        'days': _days(folder),
    }
    try:
        fields = read_json(folder / 'config.json', ('loss', 'dataset', 'hparams'))
        row['config'] = config = Config(
            **{  # a newer version may have written more fields
                name: value
                for name, value in completed(fields).items()
                if name in Config.__annotations__
            }
        )
        row |= {name: getattr(config, name) for name in _OWN} | {'hparams': _words(config.hparams)}
        row |= _state(folder)
    except (
        Exception
    ) as error:  # a damaged file may raise anything; the other runs are listed all the same
        row |= {
            'state': 'damaged',
            'note': f'{type(error).__name__}: {error}'.removeprefix('SpmlError: '),
        }
    if is_locked(folder):
        row['state'] = 'running'
    return row if os.path.lexists(folder) else None


def listing(
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
        filters: fields of `Config` with the value wanted.

    Returns:
        DataFrame: name, state, loss, dataset, regime, labels, seed, lr, min_positives, hparams,
            differs (other fields
        in which the listed runs of a loss on a data set differ), val_map and test_map in percent,
        val_truth and test_truth (what they were measured against, as from `labels.for_scoring`),
        seconds, mb (1e6 bytes), days since the last change, note (what is damaged, how far the run
        is), folder.

    Raises:
        SpmlError: for an unknown state or field, a value of a wrong kind, or negative days.
    """
    if state is not None:
        one_of(state, STATES, 'state')
    if (days or 0) < 0:
        raise SpmlError(f'days={days}; allowed: 0 or more, 0 lists every run.')
    wanted = Config(**{'selection': 'last'} | filters)  # converts and checks each value
    root = Path(root or settings.path('runs'))
    rows = [
        row
        for row in map(_row, _run_folders(root))
        if row
        and state in (None, row['state'])
        and row['days'] >= (days or 0)
        and fnmatch(row['name'], pattern or '*')
        and all(
            'config' in row and _fits(row['config'], name, getattr(wanted, name))
            for name in filters
        )
    ]
    known = [row for row in rows if 'config' in row]
    for row, words in zip(known, _differences([row['config'] for row in known]), strict=True):
        row['differs'] = words
    return pd.DataFrame(sorted(rows, key=lambda row: row['days']), columns=COLUMNS)


def _run_folders(root) -> list[Path]:
    return [
        file.parent
        for file in root.glob('[!.]*/config.json')
        if not file.parent.is_symlink() and _of_run(file)
    ]


def _of_run(file) -> bool:
    """Whether a config.json is a run's, by its folder's name or by its content: exported models and
    others have one too.
    """
    if re.fullmatch('.+-[0-9a-f]{12}', file.parent.name):
        return True
    with contextlib.suppress(SpmlError):
        return bool(read_json(file, ('loss', 'dataset', 'hparams')))
    return False


def _fits(config, name, wanted) -> bool:
    value = getattr(config, name)
    if name == 'dataset':
        return wanted in (value, Path(value).name)
    return wanted.items() <= value.items() if name == 'hparams' else value == wanted


def by(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Sort a listing.

    Args:
        table: as from `listing` or `leftovers`.
        column: one of its names.

    Returns:
        The same rows: numbers from high to low, words from A to Z, what is missing last.

    Raises:
        SpmlError: for another column.
    """
    one_of(column, table.columns, 'column to sort by')
    return table.sort_values(
        column, ascending=not pd.api.types.is_numeric_dtype(table[column]), kind='stable'
    )


HOUR = 1 / 24
_DRAWN = 8 * '[a-z0-9_]'  # of tempfile
_AWAY, _UNUSED = '.removed-', 'unused cache'

KINDS = [  # what, in which setting, pattern of its path, what it must be
    *(
        ('temporary file', setting, pattern, Path.is_file)
        for setting in ('runs', 'outputs', 'cache')
        for pattern in (f'.*-{_DRAWN}.tmp', f'*/.*-{_DRAWN}.tmp')
    ),
    ('half-removed run', 'runs', f'{_AWAY}{_DRAWN}', Path.is_dir),
    (
        'log of a run that never began',
        'runs',
        f'*-*-{12 * "[0-9a-f]"}.log',
        lambda path: path.is_file() and not path.with_suffix('').exists(),
    ),
    ('killed reproduction', 'cache', f'reproduction-{_DRAWN}', Path.is_dir),
    *(
        (_UNUSED, 'cache', pattern, Path.is_file)
        for pattern in ('images/*.npy', 'images/*.whole', 'images/*.content', 'features/*.npy')
    ),
]


def leftovers(days: float = 30) -> pd.DataFrame:
    """What killed processes left behind in the settings `runs`, `outputs` and `cache`, and caches
    long unused.

    Args:
        days: since a cache's last use.

    Returns:
        DataFrame, the largest first: what, path, mb (1e6 bytes), days since the last use.

    Raises:
        SpmlError: if days is negative.
    """
    if days < 0:
        raise SpmlError(
            f'days={days}; allowed: 0 or more, 0 lists every cache that is not being built.'
        )
    rows = [(what, path, _size(path) / 1e6, _days(path)) for path, what in _left_over(days).items()]
    return pd.DataFrame(
        sorted(rows, key=lambda row: -row[2]), columns=['what', 'path', 'mb', 'days']
    )


def _left_over(days) -> dict[Path, str]:
    "What each path is; a folder stands for all that is in it."
    left = {}
    for what, setting, pattern, kind in KINDS:
        for path in list(settings.path(setting).glob(pattern)):
            plain = kind(path) and not path.is_symlink() and not path.parent.is_symlink()
            if plain and not _in_use(path) and _days(path) >= (days if what == _UNUSED else HOUR):
                left[path] = what
    return {path: what for path, what in left.items() if path.parent not in left}


def _in_use(path) -> bool:
    """Whether a process holds the lock of a path, of its folder, of a run in it, or of what a
    temporary file becomes.
    """
    half = TEMPORARY.match(path.name)
    places = (
        path,
        path.parent,
        path / 'run',
        path.with_name(half[1]) if half else path.with_suffix(''),
    )
    return any(map(is_locked, places))


def remove(table: pd.DataFrame, *, dry_run: bool, root: Path | None = None) -> pd.DataFrame:
    """Remove what `listing` or `leftovers` lists.

    Args:
        table: rows of it.
        dry_run: only say what would go.
        root: as in `listing`.

    Returns:
        DataFrame, one row per path: path, outcome ('removed', 'would be removed', 'refused'), mb,
        why. `freed` says it in a sentence.
    """
    runs, left, rows = _run_folders(Path(root or settings.path('runs'))), _left_over(0), []
    for path in table['folder' if 'folder' in table else 'path']:
        size, known = _size(path), path in runs or path in left
        why = (
            _stays(path, path in runs, dry_run)
            if known
            else 'in use or gone, or neither a run nor left over'
        )
        outcome = 'refused' if why else 'would be removed' if dry_run else 'removed'
        rows.append({'path': path, 'outcome': outcome, 'mb': size / 1e6, 'why': why})
    return pd.DataFrame(rows, columns=['path', 'outcome', 'mb', 'why'])


def _stays(path: Path, run: bool, dry_run: bool) -> str:
    "Delete a path. Returns: why it stays, '' if it does not."
    if _in_use(path):
        return 'a process is using it'
    if dry_run:
        return ''
    try:
        if run:
            with (
                lock(path).acquire(timeout=0),
                tempfile.TemporaryDirectory(dir=path.parent, prefix=_AWAY) as away,
            ):
                path.rename(Path(away) / path.name)
            path.with_name(f'{path.name}.log').unlink(missing_ok=True)
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ''


def freed(table: pd.DataFrame) -> str:
    """A sentence about what was removed.

    Args:
        table: as from `remove`.

    Returns:
        str; what was refused stands on lines of its own.
    """
    parts = [
        f'{len(rows)} {outcome}, {in_words(1e6 * rows.mb.sum())}'
        for outcome, rows in table.groupby('outcome')
    ]
    refused = [f'{row.path}: {row.why}' for row in table[table.outcome == 'refused'].itertuples()]
    return '\n'.join(['; '.join(parts) or 'nothing to remove', *refused])


MARKS = dict(zip(TRUTHS[1:], '+*', strict=True))  # of scores that are not against all labels


def text(table: pd.DataFrame) -> str:
    """A listing for the terminal.

    Args:
        table: as from `listing` or `leftovers`.

    Returns:
        str; its last line is the sum.
    """
    if not len(table):
        return 'none'
    shown = table.drop(columns=['folder', 'val_truth', 'test_truth'], errors='ignore').astype(
        object
    )
    shown = shown.where(shown.notna(), '')
    if 'dataset' in shown:
        shown['dataset'] = [Path(str(name)).name for name in shown.dataset]
    forms = {
        'val_map': '.2f',
        'test_map': '.2f',
        'seconds': '.0f',
        'mb': '.1f',
        'days': '.1f',
        'seed': '.0f',
        'lr': 'g',
        'min_positives': '.0f',
    }
    for name in shown.columns.intersection(list(forms)):
        shown[name] = [
            value if value == '' else format(value, forms[name]) for value in shown[name]
        ]
    for name in shown.columns.intersection(['val_map', 'test_map']):
        shown[name] += table[name.replace('map', 'truth')].map(MARKS).fillna(' ')
    notes = [
        f'{mark} against {against(truth)}'
        for truth, mark in MARKS.items()
        if (table == truth).any(axis=None)
    ]
    empty = [
        name
        for name in ('min_positives', 'hparams', 'differs', 'note')
        if name in shown and shown[name].isin(['', '0']).all()
    ]
    kinds = table['state' if 'state' in table else 'what'].value_counts()
    total = (
        f'{", ".join(f"{n} {kind}" for kind, n in kinds.items())}; {in_words(1e6 * table.mb.sum())}'
    )
    return '\n'.join([shown.drop(columns=empty).to_string(index=False), *notes, total])
