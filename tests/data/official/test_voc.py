"""VOC 2012 from the server to scores, VOC 2007 from two archives, and the true labels."""

from pathlib import Path

import numpy as np
import pytest
from serving import local, ready, serve, tar_of, trained
from small_copies import COUNTS12, TELL, voc_members, voc_words

from spml_nb import data as datasets
from spml_nb.data import fetch, labels
from spml_nb.data.official.registry import find_benchmark, prepare_benchmark
from spml_nb.data.official.voc import VOC_CLASSES

pytestmark = pytest.mark.filterwarnings(
    'ignore:.*(never used|no training image has it|No positive)'
)


def test_voc12_from_server_to_scores(voc12, tmp_path, monkeypatch):
    folder, (train, words), (val, val_words) = voc12
    with serve(folder, drop={'VOCtrainval_11-May-2012.tar': [20_000]}) as server:
        benchmark = local('voc12', folder, server.url, counts=COUNTS12)
        monkeypatch.setattr(fetch.time, 'sleep', lambda seconds: None)
        data, scores = trained(benchmark, tmp_path / 'data', monkeypatch, labels='single')
        assert 0 <= scores['map'] <= 100
        prepare_benchmark(benchmark, tmp_path / 'data', **TELL)
        assert [(name, asked) for name, asked in server.log] == [
            ('VOCtrainval_11-May-2012.tar', None),
            ('VOCtrainval_11-May-2012.tar', 'bytes=20000-'),
        ]
    order, val_order = np.argsort(train), np.argsort(val)
    assert [path.stem for path in data.images] == sorted(train) + sorted(
        val
    ) and data.class_names == VOC_CLASSES
    assert (
        np.array_equal(data.labels > 0, np.concatenate([words[order], val_words[val_order]]) == 1)
        and (data.labels != 0).all()
    )
    assert (data.split[30:] == 'test').all() and np.array_equal(
        data.rows('val'), labels.split_rows(30)[1]
    )
    assert (data.labels > 0).sum() < (
        np.concatenate([words, val_words]) >= 0
    ).sum()  # difficult objects are in the XML and no positives


def test_voc07_takes_two_archives_and_holds_nothing_out(tmp_path):
    parts = {
        'trainval': ([f'{k:06}' for k in range(1, 25)], voc_words(24, 2)),
        'test': ([f'{k:06}' for k in range(25, 33)], voc_words(8, 3)),
    }
    (tmp_path / 'served').mkdir()
    for part, file in (
        ('trainval', 'VOCtrainval_06-Nov-2007.tar'),
        ('test', 'VOCtest_06-Nov-2007.tar'),
    ):
        tar_of(tmp_path / 'served' / file, voc_members(2007, {part: parts[part]}), 'w')
    with serve(tmp_path / 'served') as server:
        benchmark = local(
            'voc07', tmp_path / 'served', server.url, counts={'train': 24, 'test': 8, 'classes': 20}
        )
        data = ready(benchmark, tmp_path / 'data')
    assert [len(data.rows(part)) for part in datasets.PARTS] == [24, 0, 8]
    assert np.array_equal(
        data.labels > 0, np.concatenate([parts['trainval'][1], parts['test'][1]]) == 1
    )


def unpacked(matrices, name):
    return np.unpackbits(matrices[f'{name}_test'], axis=1)[
        :, : int(matrices[f'{name}_classes'])
    ].astype(int)


def test_the_true_voc_labels_survive_the_image_sets(label_matrices, tmp_path):
    truth = unpacked(label_matrices, 'voc12')
    names = [str(name).removesuffix('.jpg') for name in label_matrices['voc12_test_names']]
    words = np.where(
        truth == 1, 1, np.where(np.random.RandomState(0).rand(*truth.shape) < 0.05, 0, -1)
    )
    shuffled = np.random.RandomState(1).permutation(len(names))
    parts = {part: ([names[k] for k in shuffled], words[shuffled]) for part in ('train', 'val')}
    for member, content in voc_members(2012, parts, images=False).items():
        (tmp_path / 'trainval' / member).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / 'trainval' / member).write_bytes(content)
    listing = find_benchmark('voc12').read(tmp_path)
    assert [Path(name).stem for name in listing.images[len(names) :]] == names == sorted(names)
    assert np.array_equal(listing.labels[len(names) :], np.where(truth == 1, 1, -1))
