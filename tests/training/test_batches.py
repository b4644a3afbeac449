"""Batches: views over stored squares and whole photos, kept features, and the fields of a run that
choose them.
"""

import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from noise import noise_photos, opened
from quick import config as quick
from torchvision.transforms import Resize
from torchvision.transforms import functional as F

from spml_nb import models, runs, training
from spml_nb.base.errors import SpmlError
from spml_nb.data import images, views
from spml_nb.data.dataset import Dataset
from spml_nb.data.images import centre_crops, open_images, random_crops
from spml_nb.data.loading import load
from spml_nb.data.views import find_view
from spml_nb.runs.config import Config, resolve
from spml_nb.training import batches as sources
from spml_nb.training.batches import (
    CropSource,
    FeatureSource,
    ImageSource,
    cached_features,
    image_source,
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_CACHE', str(tmp_path / 'cache'))
    return tmp_path / 'cache' / 'images'


def dataset(files):
    return Dataset(
        'set', files, np.ones((len(files), 1), np.int8), ['c'], np.full(len(files), 'train')
    )


@pytest.fixture
def photos(tmp_path):
    return noise_photos(tmp_path)


# ---- squares


@pytest.mark.parametrize('size', [31, 448])
def test_flip_on_the_cache_is_decode_resize_and_flip_of_every_epoch_bit_for_bit(photos, size):
    source = ImageSource(
        open_images(dataset(photos), size),
        runs.VIEW_SETS['flip'],
        torch.device('cpu'),
    )
    seen = set()
    for epoch in range(4):
        torch.manual_seed(epoch)
        batch = source.batch(np.arange(6), 'weak')
        torch.manual_seed(epoch)
        mirrored = torch.rand(6) < 0.5
        for out, file, m in zip(batch, photos, mirrored.tolist(), strict=True):
            expected = F.to_tensor(Resize((size, size))(opened(file)))
            assert torch.equal(out, F.hflip(expected) if m else expected)
            seen.add(m)
    assert seen == {True, False}
    plain = source.batch(np.array([4, 1]), 'plain')
    assert all(
        torch.equal(out, F.to_tensor(Resize((size, size))(opened(photos[row]))))
        for out, row in zip(plain, (4, 1), strict=True)
    )


def test_the_crop_source_evaluates_centres_and_trains_on_coloured_crops(photos):
    config = resolve(Config(loss='an', dataset='x', views='crop', image_size=28, device='cpu'))
    source = image_source(dataset(photos), config, torch.device('cpu'))
    assert isinstance(source, CropSource)
    assert torch.equal(
        source.batch(np.arange(6), 'plain'), centre_crops(source.store, range(6), 28).float() / 255
    )
    torch.manual_seed(1)
    first = source.batch(np.arange(6), 'weak')
    torch.manual_seed(1)
    again = source.batch(np.arange(6), 'weak')
    assert torch.equal(first, again) and not torch.equal(first, source.batch(np.arange(6), 'weak'))
    torch.manual_seed(1)
    crops = random_crops(source.store, range(6), 28)
    assert torch.equal(first, find_view('crop')(crops))


@pytest.mark.parametrize('views', ['flip', 'crop'])
def test_photos_decoded_for_every_batch_give_the_bits_of_the_cache(
    photos, cache, monkeypatch, views
):
    config = resolve(Config(loss='an', dataset='x', views=views, image_size=28, device='cpu'))
    batches = [[4, 1, 0], [5, 5], [2, 3, 1, 0, 4, 5]]

    def all_batches():
        source = image_source(dataset(photos), config, torch.device('cpu'))
        source.announce(np.array([4, 1, 0, 2]))  # what comes then is another row
        torch.manual_seed(0)
        return source, [
            source.batch(np.array(rows), role) for rows in batches for role in ('weak', 'plain')
        ]

    stored, expected = all_batches()
    shutil.rmtree(cache)
    monkeypatch.setenv('SPML_NB_DECODE', 'always')
    reading, decoded = all_batches()
    assert isinstance(reading.store, images.PhotoReader) and not cache.exists()
    assert all(torch.equal(one, other) for one, other in zip(decoded, expected, strict=True))
    assert sources.hash_pixels(reading.store) != sources.hash_pixels(stored.store)


def test_what_is_announced_is_decoded_once_and_ahead(photos, monkeypatch):
    decode, decoded = images._decode, []
    monkeypatch.setattr(
        images, '_decode', lambda file, *options: decoded.append(file) or decode(file, *options)
    )
    reader = images.PhotoReader(dataset(photos), 20)
    source = ImageSource(reader, runs.VIEW_SETS['flip'], torch.device('cpu'))
    source.announce(np.array([3, 0, 5, 2]))
    for role in ('weak', 'strong', 'plain'):
        source.batch(np.array([3, 0]), role)
    assert list(reader.ahead) == [5, 2]
    source.batch(np.array([5, 2]), 'weak')
    reader.pool.shutdown()
    assert sorted(decoded) == sorted(photos[row] for row in (3, 0, 5, 2))


@pytest.mark.parametrize('regime', ['finetune', 'linear'])
def test_a_run_that_decodes_for_every_batch_ends_as_one_with_a_cache(
    photo_folder, cache, tmp_path, monkeypatch, regime
):
    config = quick(photo_folder, regime=regime)
    first = training.train(config, root=tmp_path / 'a')
    shutil.rmtree(cache.parent)
    monkeypatch.setenv('SPML_NB_DECODE', 'always')
    second = training.train(config, root=tmp_path / 'b')
    assert np.array_equal(first.logits['test'], second.logits['test'])
    assert first.curves.loss.equals(second.curves.loss) and not cache.exists()


def test_another_word_for_when_to_decode_is_refused(photos, monkeypatch):
    monkeypatch.setenv('SPML_NB_DECODE', 'never')
    config = resolve(Config(loss='an', dataset='x', image_size=28, device='cpu'))
    with pytest.raises(SpmlError, match="'never'; allowed: once, always.*SPML_NB_DECODE"):
        image_source(dataset(photos), config, torch.device('cpu'))


def test_a_photo_that_cannot_be_decoded_is_named_when_it_is_asked_for(photos):
    photos[2].write_bytes(b'no photo')
    reader = images.PhotoReader(dataset(photos), 20)
    assert len(reader.read([1, 3])) == 2
    with pytest.raises(SpmlError, match=f'set cannot be used: {photos[2].name} '):
        reader.read([2])


def test_runs_take_the_views_of_their_data_and_method():
    def views(**given):
        return resolve(Config(**given)).views

    assert views(loss='an', dataset='voc12') == views(loss='lac', dataset='coco14') == 'flip'
    assert (
        views(loss='an', dataset='mini_coco') == 'shift'
        and views(loss='lac', dataset='mini_coco')
        == views(loss='lac_plc', dataset='mini_nus')
        == 'shift_hue'
    )
    assert views(loss='lac', dataset='mini_coco', views='shift') == 'shift'
    with pytest.raises(SpmlError, match="unknown views 'flipp'.*flip"):
        Config(views='flipp')
    with pytest.raises(
        SpmlError, match=r"view of views='crop', which 'lac' needs 'strong'; allowed: plain, weak"
    ):
        resolve(Config(loss='lac', dataset='voc12', views='crop'))


def test_every_set_names_views_that_exist_and_has_the_roles_of_evaluation_and_training():
    for names in runs.VIEW_SETS.values():
        assert {'plain', 'weak'} <= set(names) and set(names.values()) <= set(views.VIEWS)


# ---- frozen features


def test_features_are_found_again_by_the_names_of_their_views(monkeypatch):
    store = np.random.RandomState(0).randint(0, 256, (7, 40, 40, 3), dtype=np.uint8)
    model, calls = models.create('mini', 2), []
    extract = sources.extract_features
    monkeypatch.setattr(
        sources, 'extract_features', lambda *given: calls.append(given[3]) or extract(*given)
    )

    def look(views, role):
        return cached_features(
            model,
            ImageSource(store, runs.VIEW_SETS[views], torch.device('cpu')),
            np.arange(7),
            role,
            0,
            'key',
        )

    first = look('shift', 'strong')

    def same(pixels):
        return views.strong_view(pixels, p=0.0, pixels=3)  # another object, as in another process

    monkeypatch.setitem(views.VIEWS, 'strong_shift', same)
    assert np.array_equal(first, look('shift', 'strong')) and calls == ['strong']
    look('shift_hue', 'strong'), look('shift', 'plain')
    assert calls == ['strong', 'strong', 'plain']


def test_a_head_gets_kept_maps_as_the_backbone_gave_them_channels_last():
    model = models.create('mini', 2, head='labelwise')
    source = ImageSource(
        np.random.RandomState(0).randint(0, 256, (5, 40, 40, 3), dtype=np.uint8),
        runs.VIEW_SETS['flip'],
        torch.device('cpu'),
    )
    rows = np.array([3, 0, 3])
    kept = cached_features(model, source, np.arange(5), 'plain', 0, 'key')
    maps = FeatureSource(
        kept, {'strong': [kept[[0, 3]]] * 2}, np.array([0, 3]), torch.device('cpu')
    )
    with torch.inference_mode():
        given = model.eval().features(source.batch(rows, 'plain'))
    for role in ('plain', 'strong'):
        batch = maps.batch(rows, role)
        assert batch.dtype == torch.float32 and batch.is_contiguous(
            memory_format=torch.channels_last
        )
        torch.testing.assert_close(batch, given, rtol=1e-3, atol=1e-3)  # half precision


def test_features_asked_for_twice_at_once_are_computed_once(cache, monkeypatch):
    store, calls = np.random.RandomState(0).randint(0, 256, (5, 40, 40, 3)).astype(np.uint8), []

    def slow(model, source, rows, role):
        calls.append(role)
        time.sleep(0.3)
        return np.ones((len(rows), 2), np.float32)

    monkeypatch.setattr(sources, 'extract_features', slow)
    source = ImageSource(store, runs.VIEW_SETS['flip'], torch.device('cpu'))

    def ask(model):
        return cached_features(model, source, np.arange(5), 'plain', 0, 'key').sum()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask, [models.create('mini', 2) for _ in range(2)])) == [10, 10]
    assert calls == ['plain']


def test_a_cache_that_holds_no_features_says_so_before_they_are_computed(cache, monkeypatch):
    monkeypatch.setattr(sources, 'extract_features', None)
    cache.parent.mkdir()
    (cache.parent / 'features').write_text('in the way')
    source = ImageSource(
        np.zeros((1, 40, 40, 3), np.uint8), runs.VIEW_SETS['flip'], torch.device('cpu')
    )
    with pytest.raises(SpmlError, match='could not be written.*SPML_NB_CACHE'):
        cached_features(models.create('mini', 2), source, np.arange(1), 'plain', 0, 'key')


def test_other_classes_and_a_copy_of_the_folder_cost_no_features(photo_folder, monkeypatch, cache):
    extract, calls = sources.extract_features, []
    monkeypatch.setattr(
        sources, 'extract_features', lambda *given: calls.append(given[3]) or extract(*given)
    )

    def train(folder, **given):
        training.train(quick(folder, regime='linear', epochs=1, **given))

    train(photo_folder)
    assert calls == ['plain']
    train(photo_folder, min_positives=35)  # one class fewer
    copy = shutil.copytree(
        photo_folder, photo_folder.with_name('other') / 'name', copy_function=shutil.copyfile
    )  # other times
    table = (copy / 'labels.csv').read_text()
    (copy / 'labels.csv').write_text(table.replace('red', 'rouge'))
    train(copy)
    assert calls == ['plain']
    (copy / 'images' / '000.png').write_bytes((copy / 'images' / '001.png').read_bytes())
    train(copy, seed=1)
    assert calls == ['plain', 'plain']


@pytest.mark.silent('C11')
@pytest.mark.parametrize('dtype, shape', [(np.float32, (50, 8)), (np.float16, (50, 2, 2, 8))])
def test_features_that_were_damaged_in_the_middle_are_computed_again(
    monkeypatch, cache, dtype, shape
):
    features, calls = np.ones(shape, dtype), []
    monkeypatch.setattr(sources, 'extract_features', lambda *given: calls.append(1) or features)
    source = ImageSource(
        np.zeros((50, 40, 40, 3), np.uint8), runs.VIEW_SETS['flip'], torch.device('cpu')
    )

    def get():
        return np.array(
            cached_features(models.create('mini', 2), source, np.arange(50), 'plain', 0, 'damaged')
        )

    assert np.array_equal(get(), features) and np.array_equal(get(), features) and len(calls) == 1
    (file,) = (cache.parent / 'features').glob('*.npy')
    content = bytearray(file.read_bytes())
    content[400:404] = np.float32(np.nan).tobytes()
    file.write_bytes(content)
    with pytest.warns(UserWarning, match=file.name):
        assert np.array_equal(get(), features)
    assert len(calls) == 2 and np.array_equal(get(), features) and len(calls) == 2


def test_features_of_before_the_checksum_are_taken_as_they_are(monkeypatch, cache):
    monkeypatch.setattr(sources, 'extract_features', lambda *given: np.ones((5, 8), np.float32))
    source = ImageSource(
        np.zeros((5, 40, 40, 3), np.uint8), runs.VIEW_SETS['flip'], torch.device('cpu')
    )

    def get():
        return np.array(
            cached_features(models.create('mini', 2), source, np.arange(5), 'plain', 0, 'older')
        )

    get()
    (file,) = (cache.parent / 'features').glob('*.npy')
    np.save(file, np.full((5, 8), 2, np.float32))
    assert (get() == 2).all()


def test_the_content_of_images_is_that_of_their_pixels(photo_folder, cache):
    data = load(photo_folder)
    squares, whole = images.open_images(data, 20), images.open_photos(data)
    first = sources.hash_pixels(squares)
    assert re.fullmatch('[0-9a-f]{16}', first) and sources.hash_pixels(
        squares
    ) == first == sources.hash_pixels(np.array(squares))
    assert sources.hash_pixels(np.array(squares)[::-1]) != first != sources.hash_pixels(
        np.array(squares)[:-1]
    ) and sources.hash_pixels(whole) not in (first, '')
    assert (
        len(
            {
                sources.hash_pixels(np.array(squares).reshape(shape))
                for shape in ((60, 20, 20, 3), (30, 40, 20, 3), (60, 10, 40, 3))
            }
        )
        == 3
    )
    assert sorted(file.read_text() for file in cache.glob('*.content')) == sorted(
        [first, sources.hash_pixels(whole)]
    )  # nothing is hashed twice


def test_features_of_raw_and_normalised_images_are_not_mixed_up(photo_folder):
    given = dict(
        loss='an',
        dataset=str(photo_folder),
        backbone='mini',
        image_size=40,
        regime='linear',
        epochs=1,
    )
    a, b = (training.train(Config(**given, normalise=n)).logits['test'] for n in (True, False))
    assert not np.allclose(a, b)


# ---- the fields in a run


def test_two_ways_protocol_trains_on_everything_keeps_the_last_epoch_and_can_be_evaluated(
    photo_folder,
):
    config = Config(
        loss='two_way',
        dataset=str(photo_folder),
        backbone='mini',
        image_size=32,
        views='crop',
        labels='full',
        hold_out=False,
        selection='last',
        map_definition='two_way',
        epochs=2,
        batch_size=16,
        optimizer='sgd',
        schedule='cosine',
        lr=1e-3,
    )
    task = training.make_task(config)
    held = training.make_task(replace(config, hold_out=True))
    assert (
        len(task.val) == 0
        and np.array_equal(task.train, np.sort(np.concatenate([held.train, held.val])))
        and len(held.val) > 0
    )
    assert len(task.observed) == len(task.train) and np.array_equal(
        task.observed, task.data.labels[task.train]
    )
    result = training.train(config)
    assert (
        result.scores['map_definition'] == 'two_way'
        and result.scores['best_epoch'] == 2
        and 0 < result.scores['test_map_sample'] <= 100
    )
    assert result.curves.val_map.isna().all() and 'val' not in result.logits
    assert training.evaluate(result.folder)[0]['map'] == pytest.approx(
        result.scores['test_map'], abs=1e-9
    )


def test_training_on_everything_leaves_nothing_to_select_on():
    with pytest.raises(SpmlError, match='hold_out: false.*selection: last'):
        Config(hold_out=False)


def test_a_class_without_positives_counts_zero_or_is_left_out():
    data = dataset(np.zeros((4, 2, 2, 3), np.uint8))
    data = replace(
        data,
        labels=np.array([[1, -1], [1, -1], [-1, -1], [-1, -1]], np.int8),
        class_names=['a', 'b'],
    )
    task = training.Task(
        data, np.arange(0), np.arange(0), np.arange(4), data.labels[:0], data.labels[:0]
    )
    logits = {'test': torch.tensor([[2.0, 0], [1, 0], [0, 1], [-1, 0]])}
    assert training.score_finished_run(logits, task)['test_map'] == 50
    two_way = training.score_finished_run(logits, task, 'two_way')
    assert (
        two_way['test_map'] == 100 and two_way['test_map_sample'] == 100
    )  # samples 3 and 4 have no positive either


def test_frozen_stages_batch_norms_and_raw_images_reach_the_network(photo_folder):
    config = resolve(
        Config(
            loss='an',
            dataset=str(photo_folder),
            backbone='mini',
            image_size=40,
            frozen_stages=2,
            freeze_batchnorm=True,
            normalise=False,
            optimizer='sgd',
            lr=0.1,
            batch_size=16,
        )
    )
    trainer = training.Trainer(config, runs.Run(config), training.make_task(config))
    trainer.begin(1, trainer.stages[0])
    trainer.watch.start(1)
    trainer.method.start_epoch(1)
    trainer.module.train()
    fixed = [
        name for group in models.split_into_stages(trainer.model.backbone)[:2] for name in group
    ]
    before = {name: value.clone() for name, value in trainer.model.backbone.state_dict().items()}
    for _ in range(2):
        trainer.step(torch.arange(16))
    after = trainer.model.backbone.state_dict()
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert all(
        name in same for name in before if name.startswith(tuple(fixed)) or 'running' in name
    )
    assert (
        any(name.endswith('weight') for name in before if name not in same)
        and trainer.model.normalise is False
    )
    assert os.environ['SPML_NB_RUNS'] in str(trainer.run.folder)
