"""Every number of every table of the five papers, with the configuration that produces it here."""

import math
from functools import lru_cache
from importlib.resources import files

import pandas as pd
import yaml

from ..base.errors import SpmlError, one_of

ORDER = ('hml', 'opml', 'lac', 'two_way', 'em_apl')


def list_papers() -> list[str]:
    """The papers whose numbers are here, in the order of all pages."""
    return list(ORDER)


@lru_cache
def read_paper(paper: str) -> dict:
    """A paper's file, not to be changed.

    Args:
        paper: one of `ORDER`.

    Returns: dict as in the YAML file, with the keys `title`, `venue`, `tables` and so on.

    Raises:
        SpmlError: for another paper, or a file that is not YAML.
    """
    file = files('spml_nb') / 'assets' / 'papers' / f"{one_of(paper, ORDER, 'paper')}.yml"
    try:
        return yaml.safe_load(file.read_text(encoding='utf-8'))
    except yaml.YAMLError as error:
        raise SpmlError(
            f'{file} cannot be read: {error}. Mend it, or take it back from version control.'
        ) from error


def table_numbers(paper: str) -> list[str]:
    """The tables of a paper.

    Args:
        paper: one of `ORDER`.

    Returns: list of numbers as the paper writes them ('2', 'IV'), in its order.

    Raises:
        SpmlError: for another paper.
    """
    return list(read_paper(paper)['tables'])


def table_entry(paper: str, table: str) -> dict:
    """A table as its paper's file has it, not to be changed.

    Args:
        paper: one of `ORDER`.
        table: one of its `table_numbers`.

    Returns: dict with the keys `title`, `columns`, `rows` and so on.

    Raises:
        SpmlError: for another paper or table.
    """
    return read_paper(paper)['tables'][
        one_of(str(table), table_numbers(paper), f'table of {paper!r}')
    ]


def merge_mappings(*pieces: dict | None) -> dict:
    """Lay mappings over one another.

    Args:
        pieces: dicts or None. A later value wins, dicts are merged key by key, and None removes the
            key.

    Returns: a new dict.
    """
    whole = {}
    for piece in pieces:
        for key, value in (piece or {}).items():
            if value is None:
                whole.pop(key, None)
            else:
                whole[key] = (
                    merge_mappings(whole.get(key), value) if isinstance(value, dict) else value
                )
    return whole


_PIECE = (
    'config',
    'stand_in',
    'pretraining',
    'search',
    'runs',
    'metric',
    'unit',
    'decimals',
    'no_run',
    'source',
    'quoted_by',
    'baseline',
)


def _is_about(entry: dict, row: str, column: str) -> bool:
    return row in entry.get('rows', [row]) and column in entry.get('columns', [column])


def _with_own(spec: dict) -> dict:
    """A table with our rows and columns behind the paper's: more of them, and the paper's rows of a
    group, or of a table without groups, again on each of our sets of photos that is named.
    """
    own = spec.get('ours', {})
    rows = spec['rows'] | own.get('rows', {})
    again = own.get('again', {})
    for dataset in again.get('sets', ()):
        for row, entry in spec['rows'].items():
            group, _, name = row.rpartition(' / ')
            if group == again.get('group', ''):
                config = merge_mappings(entry.get('config'), {'dataset': dataset})
                of_own = {key: entry[key] for key in ('metric',) if key in entry}
                rows[f'{dataset} / {name}'] = of_own | {'config': config}
    return spec | {'rows': rows, 'columns': spec['columns'] | own.get('columns', {})}


def _merged(whole: dict, spec: dict, row: str, column: str) -> dict:
    "All pieces of a cell of a table."

    def group(name):
        return spec.get('groups', {}).get(name.split(' / ')[0]) if ' / ' in name else None

    of_cell = [entry for entry in spec.get('cells', []) if _is_about(entry, row, column)]
    levels = [
        whole,
        spec,
        group(row),
        spec['rows'][row],
        group(column),
        spec['columns'][column],
        *of_cell,
    ]
    return merge_mappings(
        *({key: value for key, value in (level or {}).items() if key in _PIECE} for level in levels)
    )


METRICS = {
    'mAP': 'mean over classes of average precision, 0 for a class without positives',
    'mAP@class': 'the same without such classes',
    'mAP@sample': 'mean over images of average precision along the classes',
    'accuracy': 'share of images whose first class is right',
    'micro-F1': 'F1 of all decisions together',
    'macro-F1': 'mean F1 over classes',
    'micro-F1 at the chosen threshold': 'the same with the threshold that is best on validation',
    'macro-F1 at the chosen threshold': 'the same with the threshold that is best on validation',
    'pseudo-label precision': 'share of positive pseudo-labels that are right',
    'statistic': 'a count of a data set',
    'setting': 'a hyper-parameter',
}


def table_cells(paper: str, table: str) -> pd.DataFrame:
    """A published table, one row per cell.

    Args:
        paper: one of `ORDER`.
        table: one of its `table_numbers`.

    Returns: DataFrame with paper, table, row, column, metric (of `METRICS`), unit, mean and std
        (float, NaN if not printed or lost), lost (bool), printed ('89.42 (0.27)', 'lost', '–' for a
        dash), decimals (digits after the point, None if they differ), runs (behind a mean, None if
        unsaid), source (who trained it: a paper's short name), quoted ('quoted from Cole et al.
        2021', 'quoted by OPML Table II', '' for a number at first hand), baseline ({'table', 'row'}
        of another row than AN's that its gain is over, else {}), own (whether it is a cell of ours,
        which the paper does not have), notes (list of str), dataset (there one of ours), config
        (dict or None), pretraining (config of the run whose backbone it starts from, or None),
        search ({field: values the paper chose from}), stand_in ({'batch_size': ...} where photos
        take the paper's own), no_run (why config is None, else '').

    Raises:
        SpmlError: for another paper or table.

    Source: the papers' tables.
    """
    spec = table_entry(paper, table)
    whole = _with_own(spec)
    rows = [
        _cell(read_paper(paper), whole, str(table), row, column)
        | {'own': row not in spec['rows'] or column not in spec['columns']}
        for row in whole['rows']
        for column in whole['columns']
    ]
    # else pandas makes floats of numbers beside None
    whole_numbers = {
        name: pd.Series([row[name] for row in rows], dtype=object) for name in ('decimals', 'runs')
    }
    return pd.DataFrame(rows).assign(**whole_numbers)


@lru_cache
def index_cells(paper: str, table: str) -> dict[tuple[str, str], dict]:
    """A published table, cell by cell, not to be changed.

    Args:
        paper, table: as in `table_cells`.

    Returns: {(row, column): a row of `table_cells`}.

    Raises:
        SpmlError: for another paper or table.

    Source: the papers' tables.
    """
    return {
        (cell['row'], cell['column']): cell for cell in table_cells(paper, table).to_dict('records')
    }


def _cell(whole: dict, spec: dict, table: str, row: str, column: str) -> dict:
    piece = _merged(whole, spec, row, column)
    numbers = spec['rows'][row]
    printed = {
        name: dict(zip(spec['columns'], numbers.get(name, ()), strict=False)).get(column)
        for name in ('mean', 'std')
    }
    mean, std = map(_number, printed.values())
    lost = printed['mean'] == 'lost'
    notes = [note for note in whole.get('notes', []) if table in note.get('tables', [table])]
    notes += spec.get('notes', [])
    config = piece.get('config', {})
    source = piece.get('source', whole['short'])
    return {
        'paper': whole['paper'],
        'table': table,
        'row': row,
        'column': column,
        'metric': piece.get('metric'),
        'unit': piece.get('unit'),
        'mean': mean,
        'std': std,
        'lost': lost,
        'printed': _printed(mean, std, lost, piece.get('decimals')),
        'decimals': piece.get('decimals'),
        'runs': piece.get('runs'),
        'source': source,
        'quoted': _quoted(source, whole['short'], piece.get('quoted_by')),
        'baseline': piece.get('baseline', {}),
        'notes': [note['text'] for note in notes if _is_about(note, row, column)],
        'dataset': config.get('dataset'),
        'config': None if 'no_run' in piece else config,
        'pretraining': piece.get('pretraining'),
        'search': piece.get('search', {}),
        'stand_in': piece.get('stand_in', {}),
        'no_run': piece.get('no_run', ''),
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


def gain_baseline(cell: dict, whole: list[dict]) -> dict | None:
    """Where a gain is measured from: AN, or binary cross-entropy where all labels are known.

    Args:
        cell: a row of `table_cells`.
        whole: all rows of the table.

    Returns: the cell that the paper's file names as its `gain_baseline`, else the first such cell
        in the same column, group of rows, data set and kind of labels; None without one.
    """
    if cell['baseline']:
        row = cell['baseline']['row']
        return index_cells(cell['paper'], cell['baseline']['table'])[row, cell['column']]

    def kind(one):
        config = one['config'] or {}
        group = one['row'].rpartition(' / ')[0]
        return (
            group,
            one['column'],
            one['dataset'],
            one['metric'],
            config.get('labels'),
            config.get('head'),
        )

    names = ('an', 'bce', 'wbce') if (cell['config'] or {}).get('labels') == 'full' else ('an',)
    return next(
        (
            one
            for one in whole
            if (one['config'] or {}).get('loss') in names
            and not one['config'].get('hparams')
            and one['config'].get('regime') != 'linear_init'
            and kind(one) == kind(cell)
        ),
        None,
    )


UNCOUNTED = '†'  # behind such a gain


def explain_uncounted(cell: dict, base: dict | None) -> str:
    """Why a published gain is not one over AN of the same source, and so enters no mean or count.

    Args:
        cell: a row of `table_cells`.
        base: as from `gain_baseline`.

    Returns: str, '' for a gain that counts.
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


SUITE = 'photos'  # fills the tables and figures; 'paper' would be the papers' own data sets

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
            'aircraft',
            'caltech101',
            'cars',
            'cub-species',
            'dtd',
            'flowers',
            'food101',
            'pets',
            'sun',
        ),
        (None, 'one label an image: no photos stand for this data set'),
    ),
}

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
    """A data set as people read it, its name where it has no other."""
    return DATASET_NAMES.get(dataset, dataset)


def find_original_set(dataset: str) -> str:
    """Which of the papers' data sets photos stand for, '' for none."""
    return ', '.join(PAPERS_DATA[name] for name, (ours, _) in STAND_INS.items() if ours == dataset)


def find_stand_in(dataset: str, suite: str) -> str | None:
    """The data set that takes a published one's place.

    Args:
        dataset: of a published cell, or a set of photos, which stands for itself.
        suite: 'paper' (the data set itself) or 'photos'.

    Returns: a name, or None where there is nothing like it (`STAND_INS` says why).

    Raises:
        SpmlError: for another data set or suite.
    """
    one_of(suite, ('paper', SUITE), 'suite')
    if dataset in DATASET_NAMES:
        return dataset if suite == SUITE else None
    photos, _ = STAND_INS[one_of(dataset, STAND_INS, 'published data set')]
    return dataset if suite == 'paper' else photos


STATISTIC = 'a statistic of the data set'  # why a cell of a table has no run


def describe_photo_sets() -> pd.DataFrame:
    """Our sets of photos, counted as the papers count theirs.

    Returns: DataFrame by name: for (of the papers, '' for none), classes, used (those that runs are
        about), train, val and test (photos), positives (labels of a training photo, of the classes
        used).
    """
    counted = pd.read_csv(files('spml_nb') / 'assets' / 'photos.csv', index_col='name')
    counted.insert(0, 'for', [find_original_set(name) for name in counted.index])
    return counted
