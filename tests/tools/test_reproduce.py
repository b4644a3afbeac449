"""Reproduction: the same run has the same bits, and whatever else was different is said and
measured.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from spml_nb import runs, training
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.runs.config import Config
from spml_nb.tools import reproduce as reproduction


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_CACHE', str(tmp_path / 'cache'))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def config(folder, **fields):
    return Config(
        **{
            'loss': 'em',
            'dataset': str(folder),
            'backbone': 'mini',
            'image_size': 40,
            'epochs': 2,
            'lr': 1e-3,
            'batch_size': 8,
            **fields,
        }
    )


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize(
    'fields',
    [
        {},
        {'regime': 'linear'},
        {'loss': 'lac', 'epochs': 1, 'regime': 'linear', 'batch_size': 6},
        {'regime': 'linear_init', 'linear_epochs': 1, 'ema': 0.9},
    ],
)
def test_the_same_again_has_the_same_bits_and_leaves_the_first_alone(photo_folder, fields):
    first = training.train(config(photo_folder, **fields))
    before = contents(first.folder)
    cached = {file: file.stat().st_mtime_ns for file in settings.get_folder('cache').rglob('*.npy')}
    found = reproduction.reproduce(first.folder.name)
    assert found.identical and found.differs == [] and set(found.logits.values()) == {0.0}
    assert (
        (found.epochs.difference == 0).all()
        and len(found.epochs) == len(first.curves)
        and (found.scores.difference == 0).all()
    )
    assert contents(first.folder) == before and [
        path.name for path in settings.get_folder('runs').glob('[!.]*')
    ] == [first.folder.name]
    assert {
        file: file.stat().st_mtime_ns for file in settings.get_folder('cache').rglob('*.npy')
    } == cached and not list(settings.get_folder('cache').glob('reproduction-*'))
    assert 'the same bits' in reproduction.format_reproduction(
        found
    ) and 'no known difference' in reproduction.format_reproduction(found)
    assert torch.get_num_threads() == 1


def test_frozen_features_are_computed_again(photo_folder):
    "A cache that is wrong must not make a run look reproduced."
    first = training.train(config(photo_folder, regime='linear'))
    (file,) = settings.get_folder('cache').glob('features/*.npy')
    features = np.load(file)
    np.save(file, features + 1)
    assert reproduction.reproduce(first.folder).identical


def test_a_result_carries_what_a_reproduction_needs(photo_folder):
    result = runs.read_json(
        training.train(config(photo_folder, seed=3, epochs=1)).folder / 'result.json'
    )
    assert (
        result['seeds'] == {'seed': 3, 'label_seed': 1200}
        and result['device'] == 'cpu'
        and result['seconds'] > 0
        and len(result['data']) == 16
    )
    kept = result['provenance']
    assert {
        'commit',
        'versions',
        'python',
        'machine',
        'system',
        'threads',
        'processes',
        'instructions',
        'cuda',
        'cuda_version',
    } <= set(kept)
    assert (
        kept['threads'] == kept['processes'] == 1
        and kept['versions']['torch']
        and kept['instructions']
    )


def test_other_threads_are_said_and_measured(photo_folder):
    first = training.train(config(photo_folder, epochs=1, batch_size=20))
    found = reproduction.reproduce(first.folder, threads=2)
    assert found.differs == ['threads'] and found.facts.set_index('fact').loc[
        'threads', ['first', 'second']
    ].tolist() == [1, 2]
    assert 0 <= found.logits['test'] < 1 and found.identical == (
        found.logits['test'] == 0 == found.logits['val']
    )
    assert (
        'threads: 1 then, 2 now' in reproduction.format_reproduction(found)
        and torch.get_num_threads() == 1
    )


def test_data_that_changed_since_are_said(photo_folder):
    first = training.train(config(photo_folder))
    table = (photo_folder / 'labels.csv').read_text().replace('|bright', '')
    (photo_folder / 'labels.csv').write_text(table)
    found = reproduction.reproduce(first.folder)
    assert found.differs == ['data'] and not found.identical
    told = reproduction.format_reproduction(found)
    assert (
        'data: ' in told
        and 'the data have changed since' in told
        and 'validation mAP by epoch' in told
    )
    (photo_folder / 'labels.csv').write_text(
        '\n'.join(line for line in table.splitlines() if '1.png' not in line) + '\n'
    )
    found = reproduction.reproduce(first.folder)
    assert np.isnan(
        found.logits['test']
    ) and 'other images or classes' in reproduction.format_reproduction(found)


def test_other_versions_commits_and_older_results(photo_folder):
    first = training.train(config(photo_folder, epochs=1))
    result = runs.read_json(first.folder / 'result.json')
    result['provenance']['versions']['torch'] = '1.0'
    result['provenance']['commit'] = '0123456789ab'
    for name in ('seeds', 'device'):
        del result[name]
    for name in ('processes', 'instructions', 'cuda_version'):
        del result['provenance'][name]
    (first.folder / 'result.json').write_text(json.dumps(result))
    found = reproduction.reproduce(first.folder)
    assert (
        found.identical
        and {'torch', 'commit', 'instructions'} <= set(found.differs)
        and not {'seed', 'device', 'data'} & set(found.differs)
    )
    assert 'torch: 1.0 then, ' in reproduction.format_reproduction(
        found
    ) and 'instructions: not recorded then' in reproduction.format_reproduction(found)


@pytest.mark.parametrize('name', ['provenance', 'data'])
def test_a_result_without_what_is_compared(photo_folder, monkeypatch, name):
    first = training.train(config(photo_folder, epochs=1))
    result = runs.read_json(first.folder / 'result.json')
    del result[name]
    (first.folder / 'result.json').write_text(json.dumps(result))
    monkeypatch.setattr(training, 'train', lambda config: pytest.fail('it was trained'))
    with pytest.raises(
        SpmlError, match=rf'result\.json cannot be read: no object with .*{name}.*Remove its folder'
    ):
        reproduction.reproduce(first.folder)


def test_a_line_of_the_record_is_enough(tmp_path, monkeypatch):
    first = training.train(
        Config(loss='em', dataset='mini_voc', regime='linear', epochs=1, device='cpu')
    )
    runs.export_csv()
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'another'))  # the run's folder is not here
    found = reproduction.reproduce(first.folder.name)
    assert (
        found.identical
        and found.differs == []
        and set(found.scores.score) >= {'val_map', 'test_map', 'best_epoch'}
        and not found.logits
        and found.epochs.empty
    )
    assert reproduction.format_reproduction(found).splitlines()[
        0
    ] == f'{first.folder.name}: the same scores' and not list(settings.get_folder('runs').glob('*'))
    file = settings.get_folder('outputs') / 'runs.csv'
    file.write_text(file.read_text().replace(f"{first.scores['test_map']:.6g}", '12.5'))
    monkeypatch.setattr(training, 'train', lambda config: first)
    found = reproduction.reproduce(first.folder.name)
    told, scores = reproduction.format_reproduction(found), found.scores.set_index('score')
    assert (
        not found.identical
        and scores.difference['test_map']
        == pytest.approx(first.scores['test_map'] - 12.5, abs=1e-4)
        and scores.difference['val_map'] == 0
    )
    assert (
        ': not the same scores' in told
        and 'test_map' in told
        and 'validation mAP by epoch' not in told
    )
    with pytest.raises(SpmlError, match='no run'):
        reproduction.reproduce('em-none')


def test_another_seed_would_be_seen(photo_folder, monkeypatch):
    "The comparison is not blind: the second run is made with another seed."
    first = training.train(config(photo_folder))
    resolved = reproduction._resolve_again
    monkeypatch.setattr(
        reproduction,
        '_resolve_again',
        lambda given, device: replace(resolved(given, device), seed=1),
    )
    found = reproduction.reproduce(first.folder)
    assert not found.identical and found.differs == ['seed'] and found.logits['test'] > 0.01
    assert 'largest difference of a logit, test' in reproduction.format_reproduction(found)


def test_what_cannot_be_reproduced(photo_folder):
    class Stop(Exception):
        pass

    def stop(curves):
        raise Stop

    with pytest.raises(Stop):
        training.train(config(photo_folder), on_epoch=stop)
    (folder,) = settings.get_folder('runs').glob('em-*')
    with pytest.raises(SpmlError, match='has no DONE'):
        reproduction.reproduce(folder)
    done = training.train(config(photo_folder)).folder
    if not torch.cuda.is_available():
        with pytest.raises(SpmlError, match="'cuda' is not available"):
            reproduction.reproduce(done, device='cuda')
    with pytest.raises(SpmlError, match='no run'):
        reproduction.reproduce('em-none')
    for file in photo_folder.rglob('*.png'):
        file.unlink()
    with pytest.raises(SpmlError, match='photos.images is empty'):
        reproduction.reproduce(done)
    assert not list(settings.get_folder('cache').glob('reproduction-*'))
