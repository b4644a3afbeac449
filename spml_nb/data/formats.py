"""Readers of labels in other layouts: COCO JSON, YOLO, Pascal VOC, tables, folders of classes, …"""

import ast
import csv
import io
import json
import os
import posixpath
import re
import shlex
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pandas as pd
import yaml

from ..base.errors import SpmlError
from .dataset import join_items
from .decoding import PHOTOS
from .folder import CELLS, NAME_COLUMNS, normalize_name, photos_below, sign_between

# ---- what a reader gives

COMPLETE = 'complete'  # a name that is not given for a photo is absent
POSITIVES_ONLY = 'positives-only'  # it is unknown


@dataclass
class Photo:
    """A photo and what is known of it.

    Args:
        name: Its path below the folder of the photos.
        content: The file, or a function that gives its bytes.
        present, absent, unknown: Names of classes. What is in none of them is decided for all
            photos of a source at once.
        split, group: As in the columns of labels.csv; '' where the source does not say.
    """

    name: str
    content: Path | Callable[[], bytes]
    present: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    split: str = ''
    group: str = ''


class Source:
    """What a reader has understood.

    Args:
        root: The folder below which the photos lie.

    Attributes:
        paths: Of all photos below root, sorted.
        photos: {path of a photo that has an entry: Photo}.
        title: The layout, for people.
        categories: Names that the source declares, whether a photo has them or not.
        meaning: `COMPLETE` or `POSITIVES_ONLY` where the source itself says so, else ''.
        left_out, remarks: {a kind of thing: what was left out, or done with it}.
    """

    title = ''

    def __init__(self, place: Path, root: Path | None = None):
        self.place = place
        self.root = root or (place if place.is_dir() else place.parent)
        self.categories: list[str] = []
        self.paths = photos_below(self.root)
        if not self.paths and root is None and place.is_file():
            self.root = self.root.parent
            self.paths = photos_below(self.root)
        self.photos: dict[str, Photo] = {}
        self.meaning = ''
        self.left_out: dict[str, list[str]] = defaultdict(list)
        self.remarks: dict[str, list[str]] = defaultdict(list)
        self._references: dict[str, str] = {}  # what has led to each photo
        self._by_form = defaultdict(list)
        for path in self.paths:
            for form in dict.fromkeys(_forms(path)):
                self._by_form[form].append(path)

    def matches(self, reference: str, beside: Path) -> list[str]:
        "Paths of the photos that a reference may mean, as in `find`."
        reference = reference.replace('\\', '/')
        near = os.path.relpath(beside, self.root).replace(os.sep, '/')
        for base in (near, '.'):
            path = posixpath.normpath(posixpath.join(base, reference))
            if path in self._by_form.get(path.lower(), ()):
                return [path]
        forms = _forms(posixpath.normpath(reference).lstrip('./'))
        return next((self._by_form[form] for form in forms if form in self._by_form), [])

    def find(self, reference: str, beside: Path) -> str | None:
        """Find the photo that a source names, and note it where there is none, or several.

        Args:
            reference: A path, or a name with or without its suffix.
            beside: The folder from which a path starts.

        Returns:
            Its path below root.
        """
        matches = self.matches(reference, beside)
        if not matches:
            self.left_out['labels without photos'].append(reference)
            return None
        if len(matches) > 1:
            self.left_out['labels whose name several photos have'].append(reference)
            return None
        (path,) = matches
        here = posixpath.normpath(posixpath.join(beside.as_posix(), reference))
        if self._references.setdefault(path, here) != here:
            raise SpmlError(
                f'{self._references[path]!r} and {here!r} both lead to the photo {path}; '
                'expected: a photo for each. Bring the photos that are missing, or name the '
                'folder from which these paths start: `--images FOLDER`.'
            )
        return path

    def photo(self, path: str, split: str = '') -> Photo:
        "The photo of a path below root, which is new or was there before."
        if path not in self.photos:
            self.photos[path] = Photo(path, self.root / path)
        photo = self.photos[path]
        photo.split = photo.split or split
        return photo


def _forms(path):
    "What a photo may be called, the likeliest first: its path, the ends of it, its bare name."
    path = path.lower()
    pieces = path.split('/')
    for k in range(len(pieces)):
        yield '/'.join(pieces[k:])
    yield posixpath.splitext(pieces[-1])[0]


_PARTS = {
    'train': 'train',
    'training': 'train',
    'val': 'val',
    'valid': 'val',
    'validation': 'val',
    'dev': 'val',
    'test': 'test',
    'testing': 'test',
}


def _part_in(text: str) -> str:
    "The part of a data set that a file or folder is named after, such as val for val2017; else ''."
    words = re.findall('[a-z]+', text.lower())
    return next((_PARTS[word] for word in words if word in _PARTS), '')


# ---- files


def read_text(file: Path) -> tuple[str, str]:
    """Read a text whatever its encoding.

    Returns:
        The text; 'cp1252' where it is no Unicode, else 'utf-8' or 'utf-16'.
    """
    content = file.read_bytes()
    if content.startswith((b'\xff\xfe', b'\xfe\xff')):
        encodings = ['utf-16']
    else:
        encodings = ['utf-8-sig', 'cp1252']
    for encoding in encodings:
        try:
            return content.decode(encoding), encoding.removesuffix('-sig')
        except UnicodeDecodeError as error:
            reason = error
    raise SpmlError(f'{file} is no text: {reason}. Save it in UTF-8.')


def _read_json(file):
    try:
        return json.loads(read_text(file)[0])
    except json.JSONDecodeError as error:
        raise SpmlError(
            f'{file}, line {error.lineno}, column {error.colno}: this is no JSON ({error.msg}). '
            'Export it again: the file may have been cut off.'
        ) from error


def _read_xml(file):
    try:
        return ElementTree.parse(file).getroot()
    except ElementTree.ParseError as error:
        line, column = error.position
        raise SpmlError(
            f'{file}, line {line}, column {column + 1}: this is no XML ({error.msg}). Export it '
            'again: the file may have been cut off.'
        ) from error


def _read_yaml(file):
    try:
        content = yaml.safe_load(read_text(file)[0])
    except yaml.YAMLError as error:
        raise SpmlError(f'{file} is no YAML: {error}. Mend that line.') from error
    return content if isinstance(content, dict) else {}


def _get(entry, name: str, kind: type | tuple, where: str):
    "A field of an object in a JSON file."
    value = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        nouns = {int: 'a whole number', str: 'a text', list: 'a list'}
        kinds = kind if isinstance(kind, tuple) else (kind,)
        expected = ' or '.join(nouns[each] for each in kinds)
        raise SpmlError(
            f'{where} has no usable `{name}`; expected: {expected}. Export the labels again, or '
            'mend that entry.'
        )
    return value


# ---- COCO


def _read_coco(documents: dict[Path, dict], source: Source):
    """Read instances as COCO has them, and the labels known to be absent as LVIS has them. A crowd
    region shows that a class is there.
    """
    for file, document in documents.items():
        names = _coco_categories(document, file)
        source.categories += names.values()
        split = _part_in(file.stem) or _part_in(file.parent.name)
        photos = _coco_photos(document, file, source, split, names)
        annotations = _get(document, 'annotations', list, f'{file}')
        for k, annotation in enumerate(annotations):
            where = f'{file}: annotations[{k}]'
            image = _get(annotation, 'image_id', (int, str), where)
            name = _category(annotation, names, where)
            if image not in photos:
                source.left_out['annotations of images that the file does not list'].append(
                    f'annotations[{k}]'
                )
                continue
            photo = photos[image]
            if photo is None:
                continue
            if annotation.get('iscrowd') == 1:
                source.remarks['crowd regions, whose class counts as present'].append(photo.name)
            photo.present.add(name)


def _coco_categories(document, file):
    names = {}
    for k, category in enumerate(_get(document, 'categories', list, f'{file}')):
        where = f'{file}: categories[{k}]'
        number = _get(category, 'id', (int, str), where)
        name = _get(category, 'name', str, where)
        if names.setdefault(number, name) != name:
            raise SpmlError(
                f'{where} has the id {number} of another category, {names[number]!r}. Give each '
                'an id of its own.'
            )
    return names


def _category(annotation, names, where):
    number = _get(annotation, 'category_id', (int, str), where)
    if number not in names:
        raise SpmlError(
            f'{where} has category_id {number}, which is not in `categories`; allowed: '
            f'{join_items(names, 20)}. Export the labels again, or mend that entry.'
        )
    return names[number]


def _coco_photos(document, file, source, split, names):
    "{id of an image: its Photo, None where no file is there}"
    photos = {}
    for k, image in enumerate(_get(document, 'images', list, f'{file}')):
        where = f'{file}: images[{k}]'
        number = _get(image, 'id', (int, str), where)
        reference = _get(image, 'file_name', str, where)
        path = source.find(reference, file.parent)
        if path in source.photos:
            source.remarks['entries of a photo that was listed before, joined'].append(path)
        photos[number] = source.photo(path, split) if path else None
        if path and 'neg_category_ids' in image:
            absent = _get(image, 'neg_category_ids', list, where)
            photos[number].absent |= {name for key, name in names.items() if key in absent}
    return photos


# ---- YOLO


def _read_yolo(documents: dict[Path, dict], source: Source):
    """Read `names` and the folders of photos from a .yaml, or names from classes.txt; each photo
    has its .txt in a folder `labels` instead of `images`, or beside it.
    """
    for file, document in documents.items():
        names = _yolo_names(file, document)
        source.categories += names.values()
        used = set()
        for path, split in _yolo_photos(file, document, source):
            labels = _yolo_label_file(source.root, path)
            photo = source.photo(path, split)
            if labels is None:
                source.remarks['photos without a .txt'].append(path)
                continue
            used.add(labels)
            photo.present |= _yolo_classes(labels, names)
        for text in sorted(set(source.root.rglob('*.txt')) - used):
            place = text.relative_to(source.root)
            if 'labels' in place.parts[:-1] and text.name != 'classes.txt':
                source.left_out['labels without photos'].append(place.as_posix())


def _yolo_names(file, document):
    names = document.get('names')
    if isinstance(names, dict):
        try:
            return {int(key): str(name) for key, name in names.items()}
        except ValueError:
            names = None
    if isinstance(names, list) and names:
        return dict(enumerate(map(str, names)))
    raise SpmlError(
        f'{file} has no usable `names`; expected: a list of class names, or numbers with names. '
        'Add the names in the order of the numbers in the .txt files.'
    )


def _yolo_photos(file, document, source):
    "Paths and parts, from what the .yaml says of them; all photos where it says nothing."
    parts = {key: document[key] for key in ('train', 'val', 'valid', 'test') if document.get(key)}
    if not parts:
        for path in source.paths:
            yield path, _part_in(path.split('/')[0])
        return
    for key, entries in parts.items():
        entries = [entries] if isinstance(entries, str) else entries
        if not isinstance(entries, list):
            raise SpmlError(
                f'{file}: `{key}` is {entries!r}; expected: a folder of photos, or a list of '
                'folders. Write it.'
            )
        for entry in entries:
            paths = _yolo_entry(file, document, str(entry), source)
            if paths is None:
                source.left_out['parts whose folder is not there'].append(f'{key}: {entry}')
            for path in paths or ():
                yield path, _PARTS[key]


def _yolo_entry(file, document, entry, source):
    "Paths of the photos in a folder or a list that a .yaml names; None if it is not there."
    base = file.parent
    inside = re.sub(r'^(\.\./)+', '', entry)  # Roboflow's begin with ../
    for place in (base / str(document.get('path') or '') / entry, base / entry, base / inside):
        place = Path(os.path.abspath(place))
        if not place.is_relative_to(source.root):
            continue
        if place.is_dir():
            prefix = place.relative_to(source.root).as_posix() + '/'
            prefix = '' if prefix == './' else prefix
            return [path for path in source.paths if path.startswith(prefix)]
        if place.is_file():
            lines = (line.strip() for line in read_text(place)[0].splitlines())
            found = (source.find(line, place.parent) for line in lines if line)
            return [path for path in found if path]
    return None


def _yolo_label_file(root, path):
    folder, name = posixpath.split(path)
    name = posixpath.splitext(name)[0] + '.txt'
    pieces = folder.split('/')
    places = [folder]
    if 'images' in pieces:
        last = len(pieces) - 1 - pieces[::-1].index('images')
        places.insert(0, '/'.join([*pieces[:last], 'labels', *pieces[last + 1 :]]))
    files = (root / place / name for place in places)
    return next((file for file in files if file.is_file()), None)


def _yolo_classes(file, names):
    present = set()
    for number, line in enumerate(read_text(file)[0].splitlines(), 1):
        cells = line.split()
        if not cells:
            continue
        try:
            column, *_ = [float(cell) for cell in cells]
        except ValueError:
            column = None
        if column not in names:
            raise SpmlError(
                f'{file}, line {number}: {line.strip()[:80]!r} is no line of YOLO; expected: the '
                f'number of a class out of {join_items(sorted(names), 20)}, then numbers of a box. '
                'Mend the line, or the names.'
            )
        present.add(names[int(column)])
    return present


# ---- Pascal VOC and CVAT


def read_voc(documents: dict[Path, ElementTree.Element], source: Source):
    """Read one .xml for each photo; a class of which a photo has difficult objects alone is
    unknown there.
    """
    splits = {}
    for text in source.root.rglob('ImageSets/Main/*.txt'):
        if text.stem in _PARTS:
            for line in read_text(text)[0].splitlines():
                splits[line.strip()] = _PARTS[text.stem]
    for file, root in documents.items():
        present, difficult = set(), set()
        for k, entry in enumerate(root.iter('object')):
            name = (entry.findtext('name') or '').strip()
            if not name:
                raise SpmlError(
                    f'{file}: object {k + 1} has no <name>; expected: the name of its class. '
                    'Write it, or remove the object.'
                )
            is_difficult = (entry.findtext('difficult') or '').strip() == '1'
            (difficult if is_difficult else present).add(name)
        reference = (root.findtext('filename') or '').strip() or file.stem
        path = source.find(reference, file.parent)
        if path is None:
            continue
        photo = source.photo(path, splits.get(file.stem, ''))
        photo.present |= present
        photo.unknown |= difficult - photo.present
        if difficult - present:
            source.remarks['photos with difficult objects of a class alone: unknown'].append(path)


def _read_cvat(documents: dict[Path, ElementTree.Element], source: Source):
    "Read `CVAT for images`: shapes and tags of each image."
    for file, root in documents.items():
        if root.find('track') is not None:
            raise SpmlError(
                f'{file} holds the tracks of a video; expected: <image> with shapes or tags. '
                'Export it as "CVAT for images 1.1".'
            )
        for k, image in enumerate(root.iter('image')):
            reference = image.get('name')
            if not reference:
                raise SpmlError(
                    f'{file}: image {k + 1} has no `name`; expected: the path of a photo. Export '
                    'the labels again.'
                )
            path = source.find(reference, file.parent)
            if path is None:
                continue
            if path in source.photos:
                source.remarks['entries of a photo that was listed before, joined'].append(path)
            photo = source.photo(path, _part_in(image.get('subset') or ''))
            photo.present |= {shape.get('label') for shape in image if shape.get('label')}


# ---- Label Studio


def _read_label_studio(documents: dict[Path, list], source: Source):
    "Read an export as JSON or JSON-MIN: choices and the labels of regions, of all annotators."
    for file, tasks in documents.items():
        for k, task in enumerate(tasks):
            where = f'{file}: task {k + 1}'
            try:
                _read_task(task, where, file, source)
            except (AttributeError, TypeError) as error:
                raise SpmlError(
                    f'{where} is not as Label Studio exports it ({error}); expected: `data` with '
                    'a photo, and `annotations`. Export the project as JSON again.'
                ) from error


def _read_task(task, where, file, source):
    path = _label_studio_photo(task, where, file, source)
    if path is None:
        return
    annotations = task.get('annotations', [task] if 'data' not in task else [])
    valid = [each for each in annotations if not each.get('was_cancelled')]
    if len(valid) < len(annotations):
        source.left_out['cancelled annotations'].append(path)
    if not valid:
        source.left_out['photos that nobody has annotated'].append(path)
        return
    if len(valid) > 1 or path in source.photos:
        source.remarks['photos annotated more than once, joined'].append(path)
    photo = source.photo(path)
    for annotation in valid:
        for name in _label_studio_names(annotation):
            if not isinstance(name, str):
                raise TypeError(f'{name!r} is no name')
            photo.present.add(name)


_STORED = re.compile('^[0-9a-f]{8}-')  # what Label Studio puts before the name of a file


def _label_studio_photo(task, where, file, source):
    data = task.get('data', task) if isinstance(task, dict) else None
    texts = [value for value in (data or {}).values() if isinstance(value, str)]
    for text in texts:
        address = urlsplit(text)
        reference = parse_qs(address.query).get('d', [unquote(address.path)])[0]
        if posixpath.splitext(reference)[1].lower() in PHOTOS:
            folder, name = posixpath.split(reference.lstrip('/'))
            original = posixpath.join(folder, _STORED.sub('', name))
            is_there = source.matches(reference.lstrip('/'), file.parent)
            return source.find(reference.lstrip('/') if is_there else original, file.parent)
    raise SpmlError(
        f'{where} names no photo in `data`; expected: the path or address of a file such as .jpg. '
        'Export the project as JSON.'
    )


def _label_studio_names(annotation):
    "Names of choices and of regions, in both forms of the export."
    if 'result' not in annotation:
        for value in annotation.values():
            if isinstance(value, dict):
                yield from value.get('choices', [])
            for region in value if isinstance(value, list) else []:
                yield from _names_of_region(region)
        if isinstance(annotation.get('choice'), str):
            yield annotation['choice']
        return
    for region in annotation['result']:
        yield from _names_of_region(region.get('value', {}))


def _names_of_region(region):
    if not isinstance(region, dict):
        return
    for key, names in region.items():
        if key == 'choices' or key.endswith('labels'):
            yield from names


# ---- folders of classes


def _read_class_folders(documents: dict, source: Source):
    "Read one folder for each class, below folders train, val and test where there are any."
    tops = {path.split('/')[0] for path in source.paths if '/' in path}
    has_parts = bool(tops) and tops <= set(_PARTS)
    source.meaning = POSITIVES_ONLY
    for path in source.paths:
        pieces = path.split('/')
        split = _PARTS[pieces.pop(0)] if has_parts and len(pieces) > 1 else ''
        if len(pieces) < 2:
            source.left_out['photos outside the folder of a class'].append(path)
            continue
        source.photo(path, split).present.add(pieces[0])


# ---- tables

# what people call a column of names, and one of parts
_OF_NAMES = (
    *NAME_COLUMNS,
    'label',
    'class',
    'classes',
    'category',
    'categories',
    'tag',
    'tags',
    'name',
)
_OF_PARTS = ('split', 'subset', 'set', 'fold', 'part')
_CELLS = CELLS | {'true': 1, 'false': -1, 'yes': 1, 'no': -1}


def _read_tables(documents: dict[Path, None], source: Source):
    """Read tables with a column of photos, and one column of names or one column of 1 and 0 for
    each class. A photo may have several rows.
    """
    for file in documents:
        table = _read_table(file, source)
        image = _photo_column(table, file, source)
        names = [name for name in table if name != image]
        splits = next((name for name in names if name.lower() in _OF_PARTS), None)
        groups = next((name for name in names if name.lower() == 'group'), None)
        names = [name for name in names if name not in (splits, groups)]
        column = _names_column(names)
        if column:
            if column.lower() in NAME_COLUMNS:
                source.meaning = {-1: COMPLETE, 0: POSITIVES_ONLY}[NAME_COLUMNS[column.lower()]]
            present = _split_names(table[column], f'{file}: the column {column!r}')
            absent = [set()] * len(table)
        else:
            source.categories += names
            present, absent = _read_columns(table, names, file)
            if any(absent) and source.meaning == '':
                source.meaning = POSITIVES_ONLY  # what is left empty is unknown
        for k, reference in enumerate(table[image]):
            path = source.find(reference, file.parent)
            if path is None:
                continue
            if path in source.photos:
                source.remarks['rows of a photo that has a row already, joined'].append(path)
            photo = source.photo(path, _part_in(table[splits][k]) if splits else '')
            photo.group = table[groups][k] if groups else ''
            photo.present |= present[k]
            photo.absent |= absent[k]


def _read_table(file, source):
    "A table of texts without empty rows; its columns have different names."
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
    repeated = [name for name, times in Counter(header[1:]).items() if times > 1 or not name]
    if repeated:
        raise SpmlError(
            f'{file}: columns repeated or without a name: {join_items(map(repr, repeated))}; '
            'expected: a name of its own for each. Rename them.'
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
        source.remarks[f'tables that are no UTF-8, read as {encoding}'].append(file.name)
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
            f'{file} is no table with columns separated by {sign!r}: {error}. Close the quotation '
            'marks, and save it as CSV.'
        ) from error


def _read_excel(file):
    _require('openpyxl', f'{file}, an Excel file,', 'formats')
    try:
        table = pd.read_excel(file, header=None, dtype=str, keep_default_na=False)
    except Exception as error:  # of zipfile, openpyxl or the XML in it
        raise SpmlError(
            f'{file} is no Excel file that openpyxl can read ({error}). Save it as .xlsx or .csv.'
        ) from error
    return table.fillna('').to_numpy().tolist()


def _photo_column(table, file, source):
    "The column that names the most photos which are there; at least one."
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
    if table.columns[0] == '' and column:  # row numbers, as pandas writes them
        table.drop(columns='', inplace=True)
    return column


def _names_column(names):
    plain = {name.lower(): name for name in names}
    return next((plain[word] for word in _OF_NAMES if word in plain), None)


def _split_names(cells, where):
    "Sets of names of a column, whose cells are lists or joined by a sign."
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
            f'{where}, row {k + 2}: {cell[:80]!r} is no list of names; expected: as in '
            f"['cat', 'dog']. Write it so, or with `|` between the names."
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


# ---- Hugging Face datasets


def _require(package: str, what: str, extra: str):
    "Import a package that an extra of this library brings; an error says which."
    try:
        return __import__(package)
    except ImportError as error:
        raise SpmlError(
            f'{what} needs the package {package!r}, which cannot be imported ({error}). Install '
            f"it: pip install {package}, or pip install 'spml_nb[{extra}]'."
        ) from error


def _read_huggingface(documents: dict[Path, None], source: Source):
    "Read what `save_to_disk` wrote: a column of images, and one of ClassLabel or lists of them."
    datasets = _require('datasets', 'a folder of Hugging Face datasets', 'formats')
    for folder in documents:
        try:
            loaded = datasets.load_from_disk(str(folder))
        except Exception as error:  # of arrow, or a hundred others
            raise SpmlError(
                f'{folder} cannot be read by datasets.load_from_disk: {error}. Save it again with '
                'save_to_disk.'
            ) from error
        parts = loaded if isinstance(loaded, dict) else {'': loaded}
        for part, table in parts.items():
            image, label, names = _huggingface_columns(table.features, folder, datasets)
            source.categories += names
            table = table.cast_column(image, datasets.Image(decode=False))
            split = _part_in(part)
            for k, numbers in enumerate(table[label]):
                suffix = _huggingface_suffix(table[k][image])
                name = posixpath.join(part, f'{k:06}{suffix}')
                photo = Photo(name, partial(_huggingface_bytes, table, image, k), split=split)
                numbers = numbers if isinstance(numbers, list) else [numbers]
                photo.present = {names[c] for c in numbers if c is not None and c >= 0}
                source.photos[name] = photo


def _huggingface_columns(features, folder, datasets):
    "Names of the column of images and of that of labels, and names of the classes."
    images = [name for name, kind in features.items() if isinstance(kind, datasets.Image)]
    for name, kind in features.items():
        kind = getattr(kind, 'feature', kind)  # of a list
        if isinstance(kind, datasets.ClassLabel) and images:
            return images[0], name, kind.names
    kinds = join_items(f'{name} ({type(kind).__name__})' for name, kind in features.items())
    raise SpmlError(
        f'{folder} has the columns {kinds}; expected: an Image, and a ClassLabel or a list of '
        'them. Cast the columns, and save_to_disk again.'
    )


def _huggingface_bytes(table, image, k):
    value = table[k][image]
    return value['bytes'] if value['bytes'] is not None else Path(value['path']).read_bytes()


def _huggingface_suffix(value):
    from PIL import Image

    suffix = posixpath.splitext(value['path'] or '')[1].lower()
    if suffix in PHOTOS or value['bytes'] is None:
        return suffix
    with Image.open(io.BytesIO(value['bytes'])) as opened:
        return {'JPEG': '.jpg'}.get(opened.format, f'.{opened.format.lower()}')


# ---- which layout it is


@dataclass(frozen=True)
class Layout:
    """A layout of labels.

    Args:
        title: For people.
        read: Takes {file: what it holds} and a Source, and fills the Source.
    """

    title: str
    read: Callable[[dict, Source], None]


LAYOUTS = {
    'huggingface': Layout('Hugging Face datasets', _read_huggingface),
    'yolo': Layout('YOLO', _read_yolo),
    'coco': Layout('COCO JSON', _read_coco),
    'label-studio': Layout('Label Studio JSON', _read_label_studio),
    'cvat': Layout('CVAT for images', _read_cvat),
    'voc': Layout('Pascal VOC XML', read_voc),
    'table': Layout('a table', _read_tables),
    'folders': Layout('one folder a class', _read_class_folders),
}
_LAST = ('table', 'folders')  # what other layouts have beside their label files too
_SUFFIXES = ('.json', '.xml', '.yaml', '.yml', '.csv', '.tsv', '.txt', '.xlsx')


def recognise(place: Path) -> dict[str, dict]:
    """Find the label files of a file or folder, by their content.

    Returns:
        {key of LAYOUTS: {file: what it holds}}, all layouts that it may be.
    """
    if place.is_file():
        candidates = _recognise_file(place, named=True)
        return {candidates[0]: {place: candidates[1]}} if candidates else {}
    if (place / 'dataset_dict.json').is_file() or (place / 'state.json').is_file():
        return {'huggingface': {place: None}}
    formats = defaultdict(dict)
    for file in _label_files(place):
        if candidate := _recognise_file(file, named=False):
            formats[candidate[0]][file] = candidate[1]
    if 'yolo' not in formats:
        for file in [*place.rglob('classes.txt'), *place.rglob('obj.names')][:1]:
            formats['yolo'][file] = {'names': read_text(file)[0].splitlines()}
    sure = {name: files for name, files in formats.items() if name not in _LAST}
    if sure or formats:
        return sure or dict(formats)
    return {'folders': {place: None}} if _has_class_folders(place) else {}


def _label_files(folder):
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] != '.')
        for name in sorted(names):
            if name[0] != '.' and os.path.splitext(name)[1].lower() in _SUFFIXES:
                yield Path(base, name)


def _recognise_file(file: Path, named: bool):
    """(key of LAYOUTS, what the file holds), or None. named: by a person, so that a damaged file is
    an error and a .txt may be a table.
    """
    suffix = file.suffix.lower()
    if suffix in ('.csv', '.tsv', '.xlsx') or (suffix == '.txt' and named):
        return 'table', None
    kinds = {'.json': _kind_of_json, '.xml': _kind_of_xml, '.yaml': _kind_of_yaml}
    kinds['.yml'] = _kind_of_yaml
    return kinds[suffix](file) if suffix in kinds else None


def _kind_of_json(file):
    document = _read_json(file)
    if isinstance(document, dict) and not {'images', 'annotations'}.isdisjoint(document):
        return 'coco', document
    is_tasks = isinstance(document, list) and document and isinstance(document[0], dict)
    if is_tasks and not {'data', 'image', 'annotations'}.isdisjoint(document[0]):
        return 'label-studio', document
    return None


def _kind_of_xml(file):
    root = _read_xml(file)
    if root.tag == 'annotation':
        return 'voc', root
    return ('cvat', root) if root.tag == 'annotations' else None


def _kind_of_yaml(file):
    document = _read_yaml(file)
    return ('yolo', document) if not {'names', 'train', 'nc'}.isdisjoint(document) else None


def _has_class_folders(place: Path) -> bool:
    return any('/' in path for path in photos_below(place))


def choose_layout(place: Path, name: str = '') -> tuple[Layout, dict]:
    """Choose the layout of a file or folder.

    Args:
        name: A key of LAYOUTS; unset: what the content says.

    Returns:
        The layout, and {file: what it holds} for its reader.

    Raises:
        SpmlError: If it is none, or may be several.
    """
    if name in ('folders', 'huggingface'):
        return LAYOUTS[name], {place: None}
    formats = recognise(place)
    if name:
        formats = {key: files for key, files in formats.items() if key == name}
    if len(formats) == 1:
        (key,) = formats
        return LAYOUTS[key], formats[key]
    allowed = ', '.join(f'{key} ({each.title})' for key, each in LAYOUTS.items())
    if not formats:
        as_what = f' as {name}' if name else ''
        raise SpmlError(
            f'{place} has no labels that can be read{as_what}; allowed: {allowed}. Give the file '
            'or folder with the labels, or save them as one of these.'
        )
    files = join_items(f'{key}: {next(iter(each)).name}' for key, each in formats.items())
    raise SpmlError(
        f'{place} has labels in several layouts ({files}). Choose one with --format, or give its '
        'file.'
    )


def refuse_other_layout(folder: Path):
    """Name `spml import` to whoever's labels are of another tool.

    Raises:
        SpmlError: For a folder without labels.csv that has labels in one other layout.
    """
    try:
        if not folder.is_dir() or (folder / 'labels.csv').exists():
            return
        layout, _ = choose_layout(folder)
    except (SpmlError, OSError):
        return  # none, several, or a damaged file: what is said of any folder is said
    # a table may only need its name, and a folder for each class only a table
    if layout in (LAYOUTS['table'], LAYOUTS['folders']):
        return
    raise SpmlError(
        f'This looks like {layout.title}: `spml import {shlex.quote(str(folder))} NEW_FOLDER`. '
        f'That makes a new folder with images/ and labels.csv, which {folder} lacks.'
    )
