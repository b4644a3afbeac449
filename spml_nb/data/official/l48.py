"""Merlin L48: spectrograms of birds, of which one species is known without any annotation."""

from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from ...base.errors import SpmlError, one_of
from ..dataset import Dataset, join_items
from ..folder import Listing
from ..labels import RECORDING_SETTINGS
from .registry import (
    benchmark_folder,
    find_in_benchmark,
    get_fields,
    read_annotation_json,
    read_with_remedy,
    register,
)

# the list of a recording whose complement is absent from it
_POSSIBLE = {'checklist': 'observed_species_codes', 'geo': 'possible_species_codes'}


def _find_layout(folder):
    "The folder with assets.json, wherever the archive has it."
    return find_in_benchmark(folder, 'ml48s/ml48s/assets.json', 'ml48s/assets.json').parent


def _read_recordings(base):
    "{id: entry} of assets.json."
    file = base / 'assets.json'
    entries = read_annotation_json(file)
    return {get_fields(entry, file, 'id')[0]: entry for entry in entries}


def _find_recording(recordings, number, base, *keys):
    "Values of a recording that a clip names."
    file = base / 'assets.json'
    if number not in recordings:
        raise SpmlError(f'{file} has no recording {number!r}, which clips.json names.')
    return get_fields(recordings[number], file, *keys)


def _drop_unused(entry):
    "A clip without boxes and absent species, which are most of the file."
    return {key: entry[key] for key in entry if key not in ('boxes', 'absent_species_codes')}


def _read_validation():
    "The ids of the recordings that the authors validate on."
    text = (files('spml_nb') / 'assets' / 'l48_validation.txt').read_text(encoding='utf-8')
    return set(map(int, text.split()))


def read_l48(folder: Path) -> Listing:
    """Read L48: three seconds of sound in each image, a recording in each group.

    `spml data l48` writes the groups into groups.csv too, a file of side information. A species
    is present where a box has it, unknown where annotation leaves it open, else absent.

    Classes are the species' codes in the order of taxa.csv, which all files of the set use;
    validation images are those of the recordings that the authors validate on: ten draws a species
    with replacement, so 945 recordings, not 1,000. As in the benchmark, only images of which every
    label is known are loaded for validation and testing; labels.csv has the others too, and
    `load` of the folder in place of the name scores every known label.

    Source:
        Sun, Maji and Van Horn 2025.
    """
    base = _find_layout(folder)
    taxa = find_in_benchmark(base, 'taxa.csv')
    form = ' as a table with a column species_code'
    class_names = read_with_remedy(
        taxa, lambda: pd.read_csv(taxa, dtype=str)['species_code'].tolist(), form
    )
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
        [part] = _find_recording(recordings, number, base, 'split')
        one_of(part, ('train', 'test'), f'split of recording {number} in assets.json')
        images.append((base / image).relative_to(folder).as_posix())
        split.append('val' if part == 'train' and number in validation else part)
        groups.append(str(number))
    return Listing(images, labels, class_names, split, groups=groups)


def observe_recordings(
    name: str, data: Dataset, setting: str, root: str | Path | None = None
) -> np.ndarray:
    """Observe what is known of clips by the recordings that they are from.

    The target species of a recording is present in the clips where it was confirmed, and unknown in
    the others. Species that are not on the checklist of whoever recorded ('checklist'), or do not
    live at that place and time ('geo'), are absent, even where annotation leaves them open.

    Args:
        name: Of the data set, as in `load`.
        data: What was loaded, with all or some of its classes.
        setting: One of `RECORDING_SETTINGS`.
        root: Where named data sets lie; the setting `data` if unset.

    Returns:
        (N, C) int8: 1 observed positive, 0 unknown, −1 observed negative.

    Raises:
        SpmlError: For another data set, and for annotations that are not there.

    Source:
        Sun, Maji and Van Horn 2025.
    """
    one_of(setting, RECORDING_SETTINGS, 'setting')
    if name != 'l48':
        raise SpmlError(
            f'labels: {setting} needs recordings with a target species, and {name!r} has none; '
            'allowed: l48. Give labels: single, or full.'
        )
    base = _find_layout(benchmark_folder(name, root) / 'images')
    recordings = _read_recordings(base)
    z = np.zeros_like(data.labels)
    for number, rows in pd.Series(data.groups).groupby(data.groups).indices.items():
        keys = ['target_species_code', *filter(None, [_POSSIBLE.get(setting)])]
        target, *possible = _find_recording(recordings, int(number), base, *keys)
        if possible:
            z[rows] = np.where(np.isin(data.class_names, possible[0]), 0, -1)
        confirmed = data.labels[rows] > 0
        is_target = np.isin(data.class_names, target)
        z[rows] = np.where(is_target, confirmed, z[rows])
    return z


register('l48', read_l48)
