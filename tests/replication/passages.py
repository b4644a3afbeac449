"""Whether the numbers of spml_nb/assets/papers are those that the papers' texts print; passages.yml
says where each table stands.
"""

import hashlib
import math
import re
from functools import lru_cache
from pathlib import Path

import yaml

from spml_nb.replication import published

NUMBER = re.compile(r'(?<![A-Za-z\d])\d+(?:,\d{3})*(?:\.\d+)?(?:\s?e\s?[-−]\s?\d+)?')


@lru_cache
def passages():
    return yaml.safe_load(Path(__file__).with_name('passages.yml').read_text(encoding='utf-8'))


def numbers(text):
    """'ResNet-50 [9] 82,081' → ['50', '9', '82081']. Digits glued to a letter, as in VOC12 or F1,
    belong to a name.
    """
    return [re.sub(r'[\s,]', '', n).replace('−', '-') for n in NUMBER.findall(text)]


def others(text):
    """'7 18: references' → [(7.0, None, '7 (references)'), …]: numbers of the text that are no
    values of the table.
    """
    before, _, why = (text or '').partition(':')
    return [(float(n), None, f'{n} ({why.strip()})') for n in numbers(before)]


def values(cells, row, column):
    "A cell's mean and standard deviation, those that are numbers: [(value, decimals, what)]."
    cell = cells.loc[(row, column)]
    return [
        (cell[part], cell.decimals, f'{row}, {column}, {part}')
        for part in ('mean', 'std')
        if not math.isnan(cell[part])
    ]


def expected_lines(paper, table):
    """The numbers that each line of a table's text should have. As a rule a line is a row; where a
    text has merged lines, `lines` says what stands in each.
    """
    place = passages()[paper]['tables'][table]
    cells = published.table_cells(paper, table).set_index(['row', 'column'])
    columns, rows = list(cells.index.unique('column')), list(cells.index.unique('row'))
    if 'lines' in place:
        body = []
        for line in place['lines']:
            at = (
                [(r, c) for c in columns for r in line['rows']]
                if 'rows' in line
                else [(r, c) for r, c, *_ in line['cells']]
            )
            body.append(others(line.get('other')) + [v for r, c in at for v in values(cells, r, c)])
    else:
        body = [
            others(place.get('other', {}).get(row))
            + [v for c in columns for v in values(cells, row, c)]
            for row in rows
        ]
    lines = [*map(others, place.get('header', [])), *body, *map(others, place.get('footer', []))]
    return [line for line in lines if line]


def text_of(paper, table, folder):
    "The part of a paper's text that holds a table."
    parts = []
    for place in passages()[paper]['tables'][table]['blocks']:
        text = (Path(folder) / place.get('file', passages()[paper]['text'])).read_text(
            encoding='utf-8'
        )
        assert text.count(place['start']) == 1, (
            f'{paper}, table {table}: {place["start"]!r} is in the text '
            f'{text.count(place["start"])} times'
        )
        begin = text.index(place['start'])
        parts.append(text[begin : text.index(place['end'], begin + len(place['start']))])
    return '\n'.join(parts)


def _equal(text, number):
    value, decimals, _ = number
    return float(text) == value and (
        decimals is None or 'e' in text or len(text.partition('.')[2]) == decimals
    )


def problems(paper, table, folder):
    "How a table differs from its text: messages, none if all is well."
    lines = [n for n in map(numbers, text_of(paper, table, folder).splitlines()) if n]
    wanted = expected_lines(paper, table)
    wrong = (
        [f'the text has {len(lines)} lines with numbers, the file {len(wanted)}']
        if len(lines) != len(wanted)
        else []
    )
    for line, want in zip(lines, wanted, strict=False):
        if len(line) == len(want) and all(map(_equal, line, want)):
            continue
        first = next(
            (w[2] for n, w in zip(line, want, strict=False) if not _equal(n, w)),
            'the number of numbers',
        )
        wrong.append(
            f"the text has {' '.join(line)}; the file has {' '.join(f'{w[0]:g}' for w in want)}; "
            f"first difference: {first}"
        )
    return wrong


def digest(paper):
    """A fingerprint of all numbers of a paper, so that a changed one is noticed where the texts are
    not at hand.
    """
    lines = [
        ' '.join(repr(float(number[0])) for number in line)
        for table in published.table_numbers(paper)
        for line in expected_lines(paper, table)
    ]
    return hashlib.sha256('\n'.join(lines).encode()).hexdigest()[:16]
