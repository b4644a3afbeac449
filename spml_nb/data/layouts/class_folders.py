"""One folder per class."""

from .source import PART_NAMES, POSITIVES_ONLY, Source


def read_class_folders(documents: dict, source: Source):
    "Read one folder per class, optionally below folders train, val and test."
    tops = {path.split('/')[0] for path in source.paths if '/' in path}
    has_parts = bool(tops) and tops <= set(PART_NAMES)
    source.meaning = POSITIVES_ONLY
    for path in source.paths:
        pieces = path.split('/')
        split = PART_NAMES[pieces.pop(0)] if has_parts and len(pieces) > 1 else ''
        if len(pieces) < 2:
            source.left_out['photos outside the folder of a class'].append(path)
            continue
        source.photo(path, split).present.add(pieces[0])
