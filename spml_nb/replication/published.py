"""The tables of the five papers: every printed number with the configuration that reproduces it."""

import math
from functools import lru_cache
from importlib.resources import files

import pandas as pd
import yaml

from ..base.errors import SpmlError, require_one_of

ORDER = ('hml', 'opml', 'lac', 'two_way', 'em_apl')


def list_papers() -> list[str]:
    """The short names of the papers, in the order of all pages."""
    return list(ORDER)


@lru_cache
def read_paper(paper: str) -> dict:
    """A paper's YAML file as a dict; cached, so do not modify it.

    Args:
        paper: One of `ORDER`.

    Raises:
        SpmlError: For an unknown paper, or a file that is not YAML.
    """
    file = files('spml_nb') / 'assets' / 'papers' / f"{require_one_of(paper, ORDER, 'paper')}.yml"
    try:
        return yaml.safe_load(file.read_text(encoding='utf-8'))
    except yaml.YAMLError as error:
        raise SpmlError(
            f'{file} cannot be read: {error}. Correct it, or restore it from version control.'
        ) from error


def table_numbers(paper: str) -> list[str]:
    """The numbers of a paper's tables as it writes them ('2', 'IV'), in its order.

    Args:
        paper: One of `ORDER`.

    Raises:
        SpmlError: For an unknown paper.
    """
    return list(read_paper(paper)['tables'])


def table_entry(paper: str, table: str) -> dict:
    """A table in its paper's file; cached, so do not modify it.

    Args:
        paper: One of `ORDER`.
        table: One of its `table_numbers`.

    Raises:
        SpmlError: For an unknown paper or table.
    """
    tables = read_paper(paper)['tables']
    return tables[require_one_of(str(table), tables, f'table of {paper!r}')]


def merge_mappings(*layers: dict | None) -> dict:
    """Lay mappings over one another.

    Args:
        layers: Dicts or None. A later value wins, nested dicts are merged, and a value of None
            removes the key.

    Returns:
        A new dict.
    """
    merged = {}
    for layer in layers:
        for key, value in (layer or {}).items():
            if value is None:
                merged.pop(key, None)
            elif isinstance(value, dict):
                merged[key] = merge_mappings(merged.get(key), value)
            else:
                merged[key] = value
    return merged


# what a paper, a table, a group, a row, a column or a cell may define for its cells
_INHERITED = {
    *('config', 'stand_in', 'pretraining', 'search', 'no_run'),
    *('metric', 'unit', 'decimals', 'runs', 'source', 'quoted_by', 'baseline'),
}


def _applies_to(entry: dict, row: str, column: str) -> bool:
    return row in entry.get('rows', [row]) and column in entry.get('columns', [column])


def _with_added_cells(table: dict) -> dict:
    """A table with the rows and columns that we added behind the paper's: those under `ours`, and
    under `ours: again` the rows of a group (default: rows without one) on our photo sets.
    """
    ours = table.get('ours', {})
    rows = table['rows'] | ours.get('rows', {})
    again = ours.get('again', {})
    for dataset in again.get('sets', ()):
        for row, entry in table['rows'].items():
            group, _, name = row.rpartition(' / ')
            if group != again.get('group', ''):
                continue
            repeated = {'config': merge_mappings(entry.get('config'), {'dataset': dataset})}
            if 'metric' in entry:
                repeated['metric'] = entry['metric']
            rows[f'{dataset} / {name}'] = repeated
    return table | {'rows': rows, 'columns': table['columns'] | ours.get('columns', {})}


def _merge_levels(paper: dict, table: dict, row: str, column: str) -> dict:
    "The inherited fields of a cell, from the paper down to the cell itself."

    def group(name: str) -> dict:
        return table.get('groups', {}).get(name.split(' / ')[0], {}) if ' / ' in name else {}

    levels = [
        paper,
        table,
        group(row),
        table['rows'][row],
        group(column),
        table['columns'][column] or {},
        *(entry for entry in table.get('cells', []) if _applies_to(entry, row, column)),
    ]
    return merge_mappings(
        *({key: value for key, value in level.items() if key in _INHERITED} for level in levels)
    )


METRICS = {
    'mAP': 'mean over classes of average precision, 0 for a class without positives',
    'mAP@class': 'the same without such classes',
    'mAP@sample': 'mean over images of average precision along the classes',
    'accuracy': 'share of images whose top class is correct',
    'micro-F1': 'F1 of all decisions together',
    'macro-F1': 'mean F1 over classes',
    'micro-F1 at the chosen threshold': 'the same at the threshold that is best on validation',
    'macro-F1 at the chosen threshold': 'the same at the threshold that is best on validation',
    'pseudo-label precision': 'share of positive pseudo-labels that are correct',
    'statistic': 'a count of a data set',
    'setting': 'a hyper-parameter',
}


def table_cells(paper: str, table: str) -> pd.DataFrame:
    """A published table, one row per cell.

    Args:
        paper: One of `ORDER`.
        table: One of its `table_numbers`.

    Returns:
        DataFrame with the columns

        - paper, table, row, column, metric (of `METRICS`), unit
        - mean, std: float, NaN if lost or not printed; lost (bool)
        - printed: '89.42 (0.27)', 'lost', '–' for a dash
        - decimals: digits after the point, None if they differ; runs: behind a mean, None if not
          stated
        - source: short name of the paper that trained it; quoted: 'quoted from Cole et al. 2021',
          'quoted by OPML Table II', '' if at first hand
        - baseline: {'table', 'row'} that its gain is over, {} for the default, AN in its column
        - added: whether we added the cell to the paper's table
        - notes (list of str)
        - dataset: the paper's; one of ours in rows that we added
        - config: fields of `Config`, None if no run can fill the cell; no_run: the reason, else ''
        - pretraining: config of the run whose backbone it starts from, or None
        - search: {field: values the paper chose from}
        - stand_in: {'batch_size': ...} if our runs on photos use the paper's

    Raises:
        SpmlError: For an unknown paper or table.

    Source: the papers' tables.
    """
    entry = table_entry(paper, table)
    extended = _with_added_cells(entry)
    rows = [
        _cell(read_paper(paper), extended, str(table), row, column)
        | {'added': row not in entry['rows'] or column not in entry['columns']}
        for row in extended['rows']
        for column in extended['columns']
    ]
    # object columns, since pandas would turn integers beside None into floats
    integers = {
        name: pd.Series([row[name] for row in rows], dtype=object) for name in ('decimals', 'runs')
    }
    return pd.DataFrame(rows).assign(**integers)


@lru_cache
def index_cells(paper: str, table: str) -> dict[tuple[str, str], dict]:
    """A published table as {(row, column): a row of `table_cells`}; cached, so do not modify it.

    Args:
        paper, table: As in `table_cells`.

    Raises:
        SpmlError: For an unknown paper or table.

    Source: the papers' tables.
    """
    return {
        (cell['row'], cell['column']): cell for cell in table_cells(paper, table).to_dict('records')
    }


def _cell(paper: dict, table: dict, number: str, row: str, column: str) -> dict:
    inherited = _merge_levels(paper, table, row, column)
    values = table['rows'][row]
    printed = {
        name: dict(zip(table['columns'], values.get(name, ()), strict=False)).get(column)
        for name in ('mean', 'std')
    }
    mean, std = map(_number, printed.values())
    lost = printed['mean'] == 'lost'
    notes = [note for note in paper.get('notes', []) if number in note.get('tables', [number])]
    notes += table.get('notes', [])
    config = inherited.get('config', {})
    source = inherited.get('source', paper['short'])
    return {
        'paper': paper['paper'],
        'table': number,
        'row': row,
        'column': column,
        **{name: inherited.get(name) for name in ('metric', 'unit')},
        'mean': mean,
        'std': std,
        'lost': lost,
        'printed': _printed(mean, std, lost, inherited.get('decimals')),
        'decimals': inherited.get('decimals'),
        'runs': inherited.get('runs'),
        'source': source,
        'quoted': _quoted(source, paper['short'], inherited.get('quoted_by')),
        'baseline': inherited.get('baseline', {}),
        'notes': [note['text'] for note in notes if _applies_to(note, row, column)],
        'dataset': config.get('dataset'),
        'config': None if 'no_run' in inherited else config,
        'pretraining': inherited.get('pretraining'),
        'search': inherited.get('search', {}),
        'stand_in': inherited.get('stand_in', {}),
        'no_run': inherited.get('no_run', ''),
    }


def _quoted(source: str, paper: str, by: str | None) -> str:
    if by:
        return f'quoted by {by}'
    return f'quoted from {source}' if source != paper else ''


def _number(value) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _printed(mean: float, std: float, lost: bool, decimals: int | None) -> str:
    if math.isnan(mean):
        return 'lost' if lost else '–'
    form = 'g' if decimals is None else f',.{decimals}f'
    return f'{mean:{form}}' if math.isnan(std) else f'{mean:{form}} ({std:{form}})'


def gain_baseline(cell: dict) -> dict | None:
    """The cell that a gain is over: AN, or binary cross-entropy if all labels are observed.

    Args:
        cell: Of `index_cells`.

    Returns:
        The cell that the paper's file names as `baseline`, else the first baseline in the same
        column and group of rows, of the same data set, metric, labels and head; None without one.
    """
    if cell['baseline']:
        row = cell['baseline']['row']
        return index_cells(cell['paper'], cell['baseline']['table'])[row, cell['column']]
    full = (cell['config'] or {}).get('labels') == 'full'
    losses = ('an', 'bce', 'wbce') if full else ('an',)
    for other in index_cells(cell['paper'], cell['table']).values():
        if _is_plain(other, losses) and _comparison_key(other) == _comparison_key(cell):
            return other
    return None


def _is_plain(cell: dict, losses: tuple[str, ...]) -> bool:
    "Whether a cell is one of the losses with default hyper-parameters and the usual training."
    config = cell['config'] or {}
    return (
        config.get('loss') in losses
        and not config.get('hparams')
        and config.get('regime') != 'linear_init'
    )


def _comparison_key(cell: dict) -> tuple:
    "Equal for cells that may be compared with each other."
    config = cell['config'] or {}
    group = cell['row'].rpartition(' / ')[0]
    return (
        group,
        *(cell[name] for name in ('column', 'dataset', 'metric')),
        *(config.get(name) for name in ('labels', 'head')),
    )


UNCOUNTED = '†'  # marks a gain that `explain_uncounted` speaks of


def explain_uncounted(cell: dict, base: dict | None) -> str:
    """Why a published gain enters no mean or count: it is not over AN of the same source.

    Args:
        cell: A row of `table_cells`.
        base: As from `gain_baseline`.

    Returns:
        '' for a gain that counts.
    """
    if base is None or base is cell:
        return ''
    if base['source'] != cell['source']:
        return (
            f"the gain is over {base['source']}'s {base['row']}, so that part of it may be the "
            'other set-up'
        )
    if cell['baseline']:
        return f"the gain is over {base['source']}'s own {base['row']}, in its own set-up"
    return ''


PHOTOS_SUITE = 'photos'  # the suite of all pages; the suite 'paper' is on the papers' own data sets

# {the paper's data set: (our photo set or None, what it is or why there is none)}
STAND_INS = {
    'voc12': (
        'voc12_animals',
        '3,593 photos of VOC 2012 itself, with 19 of its 20 classes and its split',
    ),
    'coco14': ('coco18', '6,000 photos of COCO itself, with 18 of its classes'),
    'nus': ('mirflickr14', '6,000 photos from Flickr, as those of NUS-WIDE, with 14 classes'),
    'cub': (
        'cub_crops',
        '2,903 photos of CUB itself, cropped to the bird, with its 312 attributes',
    ),
    **dict.fromkeys(
        ('voc07', 'vispr', 'vaw', 'wider'), (None, 'no photos stand for this data set')
    ),
    'imagenet': (
        'corel5k_themes',
        '4,999 photos of Corel 5k, each from one of fifty CDs, its one label',
    ),
    **dict.fromkeys(
        (
            *('aircraft', 'caltech101', 'cars', 'cub-species', 'dtd'),
            *('flowers', 'food101', 'pets', 'sun'),
        ),
        (None, 'one label an image: no photos stand for this data set'),
    ),
}

# {name in the papers' tables: data set that photos stand in for}
ORIGINAL_SETS = {'VOC': 'voc12', 'COCO': 'coco14', 'NUS': 'nus', 'CUB': 'cub'}

DATASET_NAMES = {
    'voc12_animals': 'VOC 2012, photos with animals',
    'coco18': 'COCO, 18 classes',
    'mirflickr14': 'MIRFlickr, 14 classes',
    'cub_crops': 'CUB, cropped birds',
    'corel5k': 'Corel 5k',
    'corel5k_themes': 'Corel 5k, 50 themes',
    'ccp': 'CCP, street photos',
}
PAPERS_DATA = {
    'voc12': 'VOC 2012',
    'coco14': 'COCO 2014',
    'nus': 'NUS-WIDE',
    'cub': 'CUB',
    'imagenet': 'ImageNet',
}


def name_dataset(dataset: str) -> str:
    """The full name of one of our photo sets; other names are returned as they are."""
    return DATASET_NAMES.get(dataset, dataset)


def _find_original_sets(dataset: str) -> str:
    """The papers' data sets that one of our photo sets stands in for, '' for none."""
    return ', '.join(PAPERS_DATA[name] for name, (ours, _) in STAND_INS.items() if ours == dataset)


def find_stand_in(dataset: str, suite: str) -> str | None:
    """The data set used in place of a published one.

    Args:
        dataset: Of a published cell; one of our photo sets stands for itself.
        suite: 'paper' (the data set itself) or 'photos'.

    Returns:
        A name, None if there is no stand-in; `STAND_INS` says why.

    Raises:
        SpmlError: For an unknown data set or suite.
    """
    require_one_of(suite, ('paper', PHOTOS_SUITE), 'suite')
    if dataset in DATASET_NAMES:
        return dataset if suite == PHOTOS_SUITE else None
    photos, _ = STAND_INS[require_one_of(dataset, STAND_INS, 'published data set')]
    return dataset if suite == 'paper' else photos


STATISTIC = 'a statistic of the data set'  # a reason why no run can fill a cell


def describe_photo_sets() -> pd.DataFrame:
    """Counts of our photo sets, as the papers give them for theirs.

    Returns:
        DataFrame by name: for (the papers' data set, '' for none), classes, used (classes in our
        runs), train, val, test (photos), positives (per training photo, of the classes used).
    """
    counted = pd.read_csv(files('spml_nb') / 'assets' / 'photos.csv', index_col='name')
    counted.insert(0, 'for', [_find_original_sets(name) for name in counted.index])
    return counted
