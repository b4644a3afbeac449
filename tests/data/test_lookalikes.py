"""Photos that look the same are found whatever their size, and decoded as training decodes them."""

import tracemalloc

import numpy as np
from PIL import Image

from spml_nb.data.lookalikes import LOOKALIKE_CORRELATION, group_lookalikes, inspect_photos


def test_photos_are_looked_at_as_training_decodes_them(tmp_path, monkeypatch):
    "16 bits a pixel: all values are above 255. And a decoder may give no reason at all."
    pixels = np.random.default_rng(0).integers(300, 65536, (2, 32, 32)).astype(np.uint16)
    files = [tmp_path / f'{k}.png' for k in range(4)]
    for file, k in zip(files, (0, 1, 0, 0), strict=True):
        Image.fromarray(pixels[k]).save(file)
    Image.fromarray((pixels[0] >> 8).astype(np.uint8)).save(files[3])
    looked = inspect_photos(files)
    assert not looked.unusable and not looked.plain
    assert [(group.rows.tolist(), group.equal) for group in looked.groups] == [([0, 2, 3], True)]
    Image.fromarray(pixels[0].astype(np.float32)).save(tmp_path / 'deep.tif')
    unusable = inspect_photos([tmp_path / 'deep.tif']).unusable
    assert unusable[0] == 'grey values of 32 bits have no fixed range: save it with 8 or 16 bits'

    def silent(image):
        raise ValueError

    monkeypatch.setattr('spml_nb.data.lookalikes.to_upright_rgb', silent)
    assert inspect_photos(files[:1]).unusable == {0: 'ValueError'}


def test_like_photos_are_grouped_as_plain_loops_do():
    rng = np.random.default_rng(1)
    v = rng.normal(size=(700, 8)).astype(np.float32)
    v[[600, 20, 699]], v[550] = v[3] + 1e-3, v[1]
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    v[5] = 0  # a plain surface
    pairs = {
        (i, j) for i in range(700) for j in range(i) if float(v[i] @ v[j]) >= LOOKALIKE_CORRELATION
    }
    assert [rows.tolist() for rows in group_lookalikes(v)] == [[1, 550], [3, 20, 600, 699]] and len(
        pairs
    ) == 1 + 6


def test_a_chain_of_like_photos_is_one_group_and_many_like_ones_fit_into_memory():
    angle = (
        np.arange(1300) * 0.15
    )  # each is like its neighbours alone: cos 0.15 is above ALIKE, cos 0.3 below
    chain = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)[
        np.random.default_rng(0).permutation(1300)
    ]
    assert [len(rows) for rows in group_lookalikes(chain)] == [1300]
    alike = np.tile(chain[:1], (4000, 1))
    tracemalloc.start()
    assert [len(rows) for rows in group_lookalikes(alike)] == [4000]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6  # 16 million pairs would take 256
