"""CUB: what is present and nothing else, and the true labels."""

from pathlib import Path

import numpy as np
import pytest
from serving import jpeg, local, ready, serve, tar_of
from small_copies import cub_members

from spml_nb.data.official.registry import find_benchmark

pytestmark = pytest.mark.filterwarnings(
    'ignore:.*(never used|no training image has it|No positive)'
)


def test_cub_reads_is_present_and_nothing_else(tmp_path):
    rng = np.random.RandomState(0)
    present, train = (rng.rand(36, 6) < 0.4).astype(int), rng.permutation([0] * 10 + [1] * 26)
    names, members = cub_members(present, train, stray=True)
    (tmp_path / 'served').mkdir()
    shown = {
        f'CUB_200_2011/images/{name}': jpeg(row) for name, row in zip(names, present, strict=True)
    }
    tar_of(tmp_path / 'served' / 'CUB_200_2011.tgz', members | shown)
    with serve(tmp_path / 'served') as server:
        data = ready(
            local(
                'cub',
                tmp_path / 'served',
                server.url,
                counts={'train': 26, 'test': 10, 'classes': 6},
            ),
            tmp_path / 'data',
        )
    order = np.concatenate([np.flatnonzero(train == 1), np.flatnonzero(train == 0)])
    assert np.array_equal(data.labels > 0, present[order] == 1) and [
        path.name for path in data.images
    ] == [Path(names[k]).name for k in order]
    assert data.class_names[0] == 'has_part::kind_1_(a-b)' and (data.split[26:] == 'test').all()


def unpacked(matrices, name):
    return np.unpackbits(matrices[f'{name}_test'], axis=1)[
        :, : int(matrices[f'{name}_classes'])
    ].astype(int)


def test_the_true_cub_labels_survive_the_attribute_file(label_matrices, tmp_path):
    truth = unpacked(label_matrices, 'cub')
    train = np.zeros(len(truth), int)
    for member, content in cub_members(truth, train)[1].items():
        (tmp_path / 'archive' / member).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / 'archive' / member).write_bytes(content)
    listing = find_benchmark('cub').read(tmp_path)
    assert np.array_equal(listing.labels, np.where(truth == 1, 1, -1)) and set(listing.split) == {
        'test'
    }
