"""Clothing Co-Parsing: tags and masks joined, and the photos at hand."""
from pathlib import Path

import numpy as np
import pytest
from serving import jpeg, local, ready, serve, zip_of
from small_copies import ccp_members, mat

from spml_nb import data as datasets
from spml_nb.data.official import registry
from spml_nb.data.official.registry import find

pytestmark = pytest.mark.filterwarnings('ignore:.*(never used|no training image has it|No positive)')


def test_ccp_joins_tags_and_masks_and_draws_its_own_split(tmp_path):
    rng, names = np.random.RandomState(0), ['shirt', 'hat', 'bag', 'coat']
    positives = [sorted(rng.choice(4, rng.randint(1, 4), replace=False) + 1) for _ in range(40)]
    positives[6] = []                                                             # tags without any
    members = ccp_members(names, positives)
    members['clothing-co-parsing-master/annotations/image-level/0002.mat'] = mat(tags=np.array([[0, 4]], np.uint8))   # both kinds, and null
    for row, present in enumerate(positives): members[f'clothing-co-parsing-master/photos/{row + 1:04}.jpg'] = jpeg([c + 1 in present for c in range(4)])
    (tmp_path / 'served').mkdir()
    zip_of(tmp_path / 'served' / 'clothing-co-parsing.zip', members)
    with serve(tmp_path / 'served') as server:
        data = ready(local('ccp', tmp_path / 'served', server.url, counts={'images': 40, 'classes': 4}), tmp_path / 'data')
    positives[1] = sorted({*positives[1], 4})
    assert data.class_names == names and [list(np.flatnonzero(row > 0) + 1) for row in data.labels] == positives
    assert [len(data.rows(part)) for part in datasets.PARTS] == [26, 6, 8]


def test_ccp_agrees_with_the_photos_at_hand(ccp, tmp_path):
    data = datasets.load(ccp)
    names = sorted([*data.class_names, 'intimate', 'panties', 'swimwear'])
    number = np.array([names.index(name) + 1 for name in data.class_names])
    members = ccp_members(names, [number[row > 0] for row in data.labels], pixel=lambda row: row < 1004 and (data.labels[row] > 0).sum() <= 48)
    for member, content in members.items():
        file = tmp_path / 'repository' / member
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    (tmp_path / 'repository' / 'clothing-co-parsing-master' / 'photos').symlink_to(ccp / 'images')
    listing = find('ccp').read(tmp_path)
    kept = [listing.class_names.index(name) for name in data.class_names]
    assert np.array_equal(listing.labels[:, kept], data.labels) and len(listing.class_names) == 58
    assert (np.delete(listing.labels, kept, 1) == -1).all() and [Path(name).name for name in listing.images] == [path.name for path in data.images]
    found = registry._counts(listing)
    assert all(found[what] == count for what, count in find('ccp').counts.items())
