"""COCO JSON, and the negative labels of LVIS."""

from pathlib import Path

from ...base.errors import SpmlError
from ..dataset import join_items
from .files import get_field
from .source import Source, find_part


def read_coco(documents: dict[Path, dict], source: Source):
    "Read COCO instances, crowd regions included, and LVIS's `neg_category_ids` as absent."
    for file, document in documents.items():
        names = _read_categories(document, file)
        source.categories += names.values()
        split = find_part(file.stem) or source.part_of(file)
        photos = _read_photos(document, file, source, split, names)
        annotations = get_field(document, 'annotations', list, f'{file}')
        for k, annotation in enumerate(annotations):
            where = f'{file}: annotations[{k}]'
            image = get_field(annotation, 'image_id', (int, str), where)
            name = _category_name(annotation, names, where)
            if image not in photos:
                left_out = source.left_out['annotations of images that the file does not list']
                left_out.append(f'annotations[{k}]')
                continue
            if (photo := photos[image]) is None:
                continue
            if annotation.get('iscrowd') == 1:
                source.remarks['crowd regions, whose class counts as present'].append(photo.name)
            photo.present.add(name)


def _read_categories(document, file):
    names = {}
    for k, category in enumerate(get_field(document, 'categories', list, f'{file}')):
        where = f'{file}: categories[{k}]'
        number = get_field(category, 'id', (int, str), where)
        name = get_field(category, 'name', str, where)
        if names.setdefault(number, name) != name:
            raise SpmlError(
                f'{where} has the id {number} of another category, {names[number]!r}. Give each '
                'a different id.'
            )
    return names


def _category_name(annotation, names, where):
    number = get_field(annotation, 'category_id', (int, str), where)
    if number not in names:
        raise SpmlError(
            f'{where} has category_id {number}, which is not in `categories`; allowed: '
            f'{join_items(names, 20)}. Export the labels again, or fix that entry.'
        )
    return names[number]


def _read_photos(document, file, source, split, names):
    "{id of an image: Photo, or None if the file is missing}."
    photos, references = {}, {}
    for k, image in enumerate(get_field(document, 'images', list, f'{file}')):
        where = f'{file}: images[{k}]'
        number = get_field(image, 'id', (int, str), where)
        reference = get_field(image, 'file_name', str, where)
        if references.setdefault(number, reference) != reference:
            raise SpmlError(
                f'{where} has the id {number} of another image, {references[number]!r}. Give each '
                'a different id.'
            )
        photo = photos[number] = source.find_photo(reference, file.parent, split)
        if photo and 'neg_category_ids' in image:
            absent = get_field(image, 'neg_category_ids', list, where)
            photo.absent |= {name for key, name in names.items() if key in absent}
    return photos
