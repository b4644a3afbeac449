"""Merlin L48: spectrograms of birds, with one positive from the metadata of the recording."""

from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from ...base.errors import SpmlError, require_one_of
from ..dataset import Dataset, join_items
from ..folder import Listing
from ..labels import RECORDING_SETTINGS
from .files import benchmark_folder, find_in_benchmark, get_fields, read_annotation_json, reading

# field of a recording with the species that may occur; all others are absent
_POSSIBLE = {'checklist': 'observed_species_codes', 'geo': 'possible_species_codes'}


def _find_layout(folder):
    "The folder with assets.json."
    return find_in_benchmark(folder, 'ml48s/ml48s/assets.json', 'ml48s/assets.json').parent


def _read_recordings(base):
    "{id: recording} of assets.json."
    file = base / 'assets.json'
    entries = read_annotation_json(file)
    return {get_fields(entry, file, 'id')[0]: entry for entry in entries}


def _get_recording_fields(recordings, number, base, *keys):
    file = base / 'assets.json'
    if number not in recordings:
        raise SpmlError(f'{file} has no recording {number!r}, which clips.json names.')
    return get_fields(recordings[number], file, *keys)


def _drop_unused(entry):
    "Drop boxes and absent species, which are most of the file."
    return {key: entry[key] for key in entry if key not in ('boxes', 'absent_species_codes')}


def _read_validation():
    "Ids of the authors' validation recordings."
    text = (files('spml_nb') / 'assets' / 'l48_validation.txt').read_text(encoding='utf-8')
    return set(map(int, text.split()))


def _read_l48(folder: Path) -> Listing:
    """Read L48: an image is a clip of three seconds, a group is a recording.

    A species is present if it has a box, unknown if the annotation says so, else absent. Classes
    are species codes in the order of taxa.csv. Groups are also written to groups.csv, a file of
    side information.

    Validation images are those of the authors' 945 validation recordings (ten draws per species
    with replacement). As in the benchmark, `load('l48')` validates and tests only on images with
    complete labels; `load` of the folder includes the others of labels.csv.

    Source:
        Sun, Maji and Van Horn 2025.
    """
    base = _find_layout(folder)
    taxa = find_in_benchmark(base, 'taxa.csv')
    with reading(taxa, ' as a table with a column species_code'):
        class_names = pd.read_csv(taxa, dtype=str)['species_code'].tolist()
    column = {name: c for c, name in enumerate(class_names)}
    recordings, validation = _read_recordings(base), _read_validation()
    file = find_in_benchmark(base, 'clips.json')
    clips = read_annotation_json(file, _drop_unused)
    labels = np.full((len(clips), len(column)), -1, np.int8)
    images, split, groups = [], [], []
    for row, clip in zip(labels, clips, strict=True):
        number, image = get_fields(clip, file, 'asset_id', 'file_path')
        codes = get_fields(clip, file, 'present_species_codes', 'unknown_species_codes')
        if unlisted := sorted(set().union(*codes) - column.keys()):
            raise SpmlError(f'{taxa} lacks the species {join_items(unlisted)} of {image}.')
        for value, names in zip((1, 0), codes, strict=True):
            row[[column[name] for name in names]] = value
        [part] = _get_recording_fields(recordings, number, base, 'split')
        require_one_of(part, ('train', 'test'), f'split of recording {number} in assets.json')
        images.append((base / image).relative_to(folder).as_posix())
        split.append('val' if part == 'train' and number in validation else part)
        groups.append(str(number))
    return Listing(images, labels, class_names, split, groups=groups)


def observe_recordings(
    name: str, data: Dataset, setting: str, root: str | Path | None = None
) -> np.ndarray:
    """Observe labels that follow from the metadata of recordings.

    The target species of a recording is positive in clips where it was confirmed, else unknown.
    Species that are not on the observer's checklist ('checklist'), or do not occur at that place
    and time ('geo'), are negative, even if the annotation says unknown.

    Args:
        name: Name of the data set, as in `load`.
        data: The data set, with all or some of its classes.
        setting: One of `RECORDING_SETTINGS`.
        root: Folder of the benchmarks; by default the setting `data`.

    Returns:
        (N, C) int8: 1 observed positive, 0 unknown, −1 observed negative.

    Raises:
        SpmlError: If the data set is another one, or its annotations are missing.

    Source:
        Sun, Maji and Van Horn 2025.
    """
    require_one_of(setting, RECORDING_SETTINGS, 'setting')
    if name != 'l48':
        raise SpmlError(
            f'labels: {setting} needs recordings with a target species, and {name!r} has none; '
            'allowed: l48. Give labels: single, or full.'
        )
    base = _find_layout(benchmark_folder(name, root) / 'images')
    recordings = _read_recordings(base)
    z = np.zeros_like(data.labels)
    keys = ['target_species_code']
    if setting in _POSSIBLE:
        keys.append(_POSSIBLE[setting])
    for number, rows in pd.Series(data.groups).groupby(data.groups).indices.items():
        target, *possible = _get_recording_fields(recordings, int(number), base, *keys)
        if possible:
            z[rows] = np.where(np.isin(data.class_names, possible[0]), 0, -1)
        confirmed = data.labels[rows] > 0
        is_target = np.isin(data.class_names, target)
        z[rows] = np.where(is_target, confirmed, z[rows])
    return z


READERS = {'l48': _read_l48}
