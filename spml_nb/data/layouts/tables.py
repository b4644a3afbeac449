"""CSV and Excel tables."""

import ast
import csv
import io
import re
from collections import Counter
from pathlib import Path

import pandas as pd

from ...base.errors import SpmlError, require_package
from ..dataset import join_items
from ..folder import CELLS, NAME_COLUMNS, normalize_name, sign_between
from .files import read_text
from .source import COMPLETE, POSITIVES_ONLY, Source, find_part

# usual titles of a column of names, and of a column of parts
_NAME_TITLES = (*NAME_COLUMNS, *'label class classes category categories tag tags name'.split())
_SPLIT_TITLES = ('split', 'subset', 'set', 'fold', 'part')
_CELLS = CELLS | {'true': 1, 'false': -1, 'yes': 1, 'no': -1}


def read_tables(documents: dict[Path, None], source: Source):
    """Read tables with a column of photos, and either one column of names or one column of 1 and 0
    per class. A photo may have several rows.
    """
    for file in documents:
        table = _read_table(file, source)
        image = _photo_column(table, file, source)
        names = [name for name in table if name != image]
        splits = next((name for name in names if name.lower() in _SPLIT_TITLES), None)
        groups = next((name for name in names if name.lower() == 'group'), None)
        names = [name for name in names if name not in (splits, groups)]
        column = _names_column(names)
        if column:
            if column.lower() in NAME_COLUMNS:
                source.meaning = COMPLETE if column.lower() == 'labels' else POSITIVES_ONLY
            present = _split_names(table[column], f'{file}: the column {column!r}')
            absent = [set()] * len(table)
            ignored = [name for name in names if name != column]
            if ignored:
                left_out = source.left_out[f'columns beside {column!r}']
                left_out += [name for name in ignored if name not in left_out]
        else:
            source.categories += names
            present, absent = _read_columns(table, names, file)
            if any(absent) and source.meaning == '':
                source.meaning = POSITIVES_ONLY  # empty cells beside zeros are unknown
        if splits:
            parts = _read_parts(table[splits], source)
        else:
            parts = [find_part(file.stem) or source.part_of(file)] * len(table)
        repeated = 'rows of a photo that has a row already, joined'
        for k, reference in enumerate(table[image]):
            photo = source.find_photo(reference, file.parent, parts[k], repeated)
            if photo is None:
                continue
            if groups:
                source.put_in_group(photo, table[groups][k].strip())
            photo.present |= present[k]
            photo.absent |= absent[k]


def _read_table(file, source):
    "Read a table of strings without blank rows and with different column names."
    rows = _read_excel(file) if file.suffix.lower() == '.xlsx' else _read_csv(file, source)
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    if rows and rows[0][0].lower().startswith('sep='):
        rows = rows[1:]
    if len(rows) < 2:
        raise SpmlError(
            f'{file} has {len(rows)} rows; expected: a line with the names of the columns, and a '
            'row for each photo. Add them.'
        )
    header, *rows = rows
    header = [normalize_name(name) for name in header]
    repeated = [name for name, count in Counter(header[1:]).items() if count > 1 or not name]
    if repeated:
        raise SpmlError(
            f'{file}: columns repeated or without a name: {join_items(map(repr, repeated))}; '
            'expected: different names. Rename them.'
        )
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise SpmlError(
                f'{file}, row {number}: {len(row)} cells; expected: {len(header)}, as in the '
                'header. Empty cells need their separators, names with a separator quotation '
                'marks.'
            )
    return pd.DataFrame(rows, columns=header, dtype=object)


def _read_csv(file, source):
    text, encoding = read_text(file)
    if encoding != 'utf-8':
        source.remarks[f'tables that are not UTF-8, read as {encoding}'].append(file.name)
    first = re.sub('^sep=.*\n', '', text, flags=re.IGNORECASE).partition('\n')[0]
    counts = {sign: len(next(csv.reader([first], delimiter=sign), [])) for sign in ',;\t|'}
    sign = max(counts, key=counts.get)
    if counts[sign] < 2:
        raise SpmlError(
            f'{file}, line 1: {first[:80]!r} is one column; expected: two or more, separated by '
            'commas, semicolons, tabs or bars. Add a column of names to that of the photos.'
        )
    try:
        return list(csv.reader(io.StringIO(text, newline=''), delimiter=sign, strict=True))
    except csv.Error as error:
        raise SpmlError(
            f'{file} is not a table with columns separated by {sign!r}: {error}. Close the '
            'quotation marks, and save it as CSV.'
        ) from error


def _read_excel(file):
    require_package('openpyxl', f'{file}, an Excel file,', 'formats')
    try:
        table = pd.read_excel(file, header=None, dtype=str, keep_default_na=False)
    except Exception as error:  # from zipfile, openpyxl or an XML parser
        raise SpmlError(
            f'{file} is not an Excel file that openpyxl can read ({error}). Save it as .xlsx or '
            '.csv.'
        ) from error
    return table.fillna('').to_numpy().tolist()


def _photo_column(table, file, source):
    "The column whose cells refer to the most photos; at least one."
    counts = {
        name: sum(bool(source.matches(cell, file.parent)) for cell in table[name].head(200))
        for name in table
        if name.lower() not in NAME_COLUMNS
    }
    column = max(counts, key=counts.get)
    if not counts[column]:
        raise SpmlError(
            f'{file}: no column names a photo below {source.root}; its columns are '
            f'{join_items(map(repr, table))}, and row 2 is {join_items(table.iloc[0])}. Say where '
            'the photos are: `--images FOLDER`.'
        )
    if table.columns[0] == '' and column:  # the index that pandas writes
        table.drop(columns='', inplace=True)
    return column


def _read_parts(cells, source):
    "Read a column of parts; '' for a word that names none."
    parts = cells.map(find_part)
    if others := cells[(parts == '') & (cells.str.strip() != '')].unique().tolist():
        source.remarks[f'words in the column {cells.name!r} that name no part'] += others
    return parts


def _names_column(names):
    lowered = {name.lower(): name for name in names}
    return next((lowered[title] for title in _NAME_TITLES if title in lowered), None)


def _split_names(cells, where):
    "Split the cells of a column, which are lists or names with separators, into sets of names."
    cells = [cell.strip() for cell in cells]
    filled = [cell for cell in cells if cell]
    if filled and all(cell[0] + cell[-1] == '[]' for cell in filled):
        return [set(_literal_list(cell, k, where)) for k, cell in enumerate(cells)]
    sign = sign_between(filled)
    pieces = (cell.split(sign) if sign else [cell] for cell in cells)
    return [{piece.strip() for piece in row} - {''} for row in pieces]


def _literal_list(cell, k, where):
    if not cell:
        return []
    try:
        return [str(name) for name in ast.literal_eval(cell)]
    except (ValueError, SyntaxError) as error:
        raise SpmlError(
            f'{where}, row {k + 2}: {cell[:80]!r} is not a list of names; expected: such as '
            f"['cat', 'dog']. Write it like that, or with `|` between the names."
        ) from error


def _read_columns(table, names, file):
    present = [set() for _ in range(len(table))]
    absent = [set() for _ in range(len(table))]
    for name in names:
        for k, cell in enumerate(table[name]):
            label = _CELLS.get(cell.strip().lower())
            if label is None:
                raise SpmlError(
                    f'{file}, row {k + 2}, column {name!r}: {cell[:80]!r}; expected: 1 (present), '
                    '0 (absent) or nothing (unknown). If one column holds names, call it `labels` '
                    '(all that apply) or `positives` (some that do); remove columns of other '
                    'things from a copy of the table.'
                )
            if label:
                (present if label > 0 else absent)[k].add(name)
    return present, absent
