"""L48: what is known of clips, by the labels of each and by the recordings that they are from."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from serving import ready, trained
from small_copies import L48_RECORDINGS, L48_SPECIES, refused

from spml_nb import data as datasets
from spml_nb.data.labels import RECORDING_SETTINGS, observe, parse_label_setting
from spml_nb.data.official.l48 import _read_validation, observe_recordings
from spml_nb.data.official.registry import find_benchmark
from spml_nb.data.side_information import read_side
from spml_nb.runs.config import Config, resolve
from spml_nb.training.task import make_task

pytestmark = pytest.mark.filterwarnings(
    'ignore:.*(never used|no training image has it|No positive)'
)


def scored(labels, split):
    "Rows that train, or of which every label is known."
    return [
        k
        for k, (row, part) in enumerate(zip(labels, split, strict=True))
        if part == 'train' or 0 not in row.tolist()
    ]


def test_from_the_official_files_to_the_clips_that_the_benchmark_uses(copy):
    benchmark, root, (names, labels, split, files), server = copy('l48')
    data = ready(benchmark, root)
    rows = scored(labels, split)
    assert data.class_names == names and np.array_equal(data.labels, labels[rows])
    assert data.split.tolist() == [split[k] for k in rows]
    assert [path.as_posix().rsplit('/ml48s/', 1)[-1] for path in data.images] == [
        files[k] for k in rows
    ]
    assert data.groups == [files[k].split('/')[1] for k in rows]
    assert [len(data.rows(part)) for part in datasets.PARTS] == [7, 3, 2]
    assert (data.labels[data.rows('train')] == 0).any()
    assert [name for name, _ in server.log] == ['ml48s.tar.gz']


def test_the_folder_has_every_clip_with_all_that_is_known_of_it(copy):
    benchmark, root, (names, labels, split, _), _ = copy('l48')
    ready(benchmark, root)
    data = datasets.load(root / 'l48')
    assert data.class_names == names and np.array_equal(data.labels, labels)
    assert data.split.tolist() == split


def test_each_clip_has_its_recording_as_group(copy):
    benchmark, root, _, _ = copy('l48')
    data = ready(benchmark, root)
    groups = read_side(str(root / 'l48' / 'groups.csv'), data, data.rows('all'))['group']
    assert groups.tolist() == np.unique(data.groups, return_inverse=True)[1].tolist()
    assert pd.Series(data.split).groupby(data.groups).nunique().max() == 1


def observed_by_loops(folder, setting):
    "{image: observed labels}, cell by cell from the two files."
    assets = json.loads(next(folder.rglob('assets.json')).read_text())
    clips = json.loads(next(folder.rglob('clips.json')).read_text())
    observed = {}
    for clip in clips:
        asset = next(asset for asset in assets if asset['id'] == clip['asset_id'])
        row = []
        for species in L48_SPECIES:
            z = 0
            if setting == 'checklist' and species not in asset['observed_species_codes']:
                z = -1
            if setting == 'geo' and species not in asset['possible_species_codes']:
                z = -1
            if setting == 'full':
                z = 0 if species in clip['unknown_species_codes'] else -1
            is_present = species in clip['present_species_codes']
            if setting == 'full' and is_present:
                z = 1
            if setting != 'full' and species == asset['target_species_code']:
                z = 1 if is_present else 0
            row.append(z)
        observed[clip['file_path']] = row
    return observed


@pytest.mark.parametrize('setting', ['full', *RECORDING_SETTINGS])
def test_a_run_observes_what_is_known_of_recordings(copy, setting):
    benchmark, root, _, _ = copy('l48')
    ready(benchmark, root)
    task = make_task(Config(loss='an', dataset='l48', root=str(root), labels=setting))
    expected = observed_by_loops(root, setting)
    names = [path.as_posix().rsplit('/ml48s/', 1)[-1] for path in task.data.images]
    known = [row for row in task.data.rows('train') if any(expected[names[row]])]
    assert task.train.tolist() == known and len(known) == (4 if setting == 'target' else 7)
    assert task.observed.tolist() == [expected[names[row]] for row in task.train]
    assert task.observed_val.tolist() == [expected[names[row]] for row in task.val]
    assert (task.data.labels[task.val] != 0).all() and (task.data.labels[task.test] != 0).all()


def test_the_target_is_what_is_observed_unless_asked(copy):
    benchmark, root, _, _ = copy('l48')
    ready(benchmark, root)
    task = make_task(Config(loss='an', dataset='l48', root=str(root), exclude=['mouchi']))
    assert (task.observed.sum(1) == 1).all() and (task.observed >= 0).all()
    targets = [L48_RECORDINGS[int(task.data.groups[row])][0] for row in task.train]
    assert [task.data.class_names[c] for c in task.observed.argmax(1)] == targets
    assert set(targets) == {'norcar'}  # clips whose target is left out teach nothing


def test_a_run_trains_on_targets_and_is_scored_on_complete_clips(copy, monkeypatch):
    benchmark, root, _, _ = copy('l48')
    data, scores = trained(benchmark, root, monkeypatch, labels='target')
    assert scores['truth'] == 'complete' and scores['part'] == 'test' and len(data) == 12


def test_a_run_mirrors_no_spectrogram_and_observes_targets_unless_it_is_asked_to():
    config = resolve(Config(loss='an', dataset='l48'))
    assert (config.views, config.labels) == ('unmirrored', 'target')
    asked = resolve(Config(loss='an', dataset='l48', views='flip', labels='full'))
    assert (asked.views, asked.labels) == ('flip', 'full')


def test_settings_of_recordings_are_for_recordings(copy):
    data = datasets.load('mini_voc')
    for setting in RECORDING_SETTINGS:
        with refused(f'labels: {setting} needs recordings', "'mini_voc' has none", 'allowed: l48'):
            observe_recordings('mini_voc', data, setting)
        with refused(repr(setting), 'frequent, rare'):
            observe(data.labels, **parse_label_setting(setting))


def test_the_validation_recordings_are_ten_draws_a_species():
    chosen, random = _read_validation(), np.random.RandomState(0)
    assert len(chosen) == sum(len(set(random.choice(80, 10))) for _ in range(100))
    assert min(chosen) >= 0 and max(chosen) < 8000 and 12 in chosen and not {3, 7} & chosen


def change(file, **values):
    entries = json.loads(file.read_text())
    for name, value in values.items():
        if value is None:
            entries[0].pop(name)
        else:
            entries[0][name] = value
    file.write_text(json.dumps(entries))


@pytest.mark.parametrize(
    'damage, told',
    [
        (lambda base: (base / 'assets.json').unlink(), ['has no', 'ml48s/assets.json']),
        (lambda base: (base / 'taxa.csv').unlink(), ['has no taxa.csv']),
        (lambda base: (base / 'clips.json').unlink(), ['has no clips.json']),
        (lambda base: (base / 'clips.json').write_text('{'), ['clips.json cannot be read']),
        (lambda base: (base / 'taxa.csv').write_text('code\na\n'), ['a column species_code']),
        (
            lambda base: (base / 'taxa.csv').write_text('species_code\nnorcar\n'),
            ['taxa.csv lacks the species amerob', 'images/3/0.jpg'],
        ),
        (lambda base: change(base / 'clips.json', asset_id=4711), ['no recording 4711']),
        (lambda base: change(base / 'clips.json', file_path=None), ['no file_path']),
        (lambda base: change(base / 'assets.json', split='valid'), ["'valid'", 'train, test']),
        (lambda base: change(base / 'assets.json', id=None), ['assets.json: an entry has no id']),
    ],
)
def test_files_that_are_missing_or_wrong_are_named(unpacked, damage, told):
    folder, _ = unpacked('l48')
    damage(next(folder.rglob('assets.json')).parent)
    with refused(*told):
        find_benchmark('l48').read(folder)


def test_files_may_lie_in_the_folder_itself(unpacked):
    folder, (_, labels, _, files) = unpacked('l48')
    shutil.move(folder / 'ml48s' / 'ml48s', folder / 'moved')
    shutil.rmtree(folder / 'ml48s')
    shutil.move(folder / 'moved', folder / 'ml48s')
    listing = find_benchmark('l48').read(folder)
    assert np.array_equal(listing.labels, labels)
    assert listing.images == [f'ml48s/{file}' for file in files]
