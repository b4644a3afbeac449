"""Transfer: frozen features, and a linear classifier with its penalty chosen on validation."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.optimize import minimize
from scipy.special import logsumexp

from spml_nb import models, runs, training
from spml_nb.base.errors import SpmlError
from spml_nb.data import labels
from spml_nb.data.dataset import Dataset
from spml_nb.sweeps.transfer import (
    choose_penalty,
    class_scores,
    linear_transfer,
    load_run_backbone,
    make_regression,
    multi_label_transfer,
    pool_features,
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_CACHE', str(tmp_path / 'cache'))


def toy(n=300, classes=3, noise=0.6, seed=0, name='toy', split=None):
    "A Dataset whose images tell nothing, and features that tell its classes."
    rng = np.random.RandomState(seed)
    c = rng.randint(0, classes, n)
    table = np.full((n, classes), -1, np.int8)
    table[np.arange(n), c] = 1
    split = (
        np.array(['train', 'train', 'val', 'test'])[np.arange(n) % 4] if split is None else split
    )
    data = Dataset(
        name, np.zeros((n, 8, 8, 3), np.uint8), table, [f'c{k}' for k in range(classes)], split
    )
    return data, (np.eye(classes, 12)[c] + noise * rng.standard_normal((n, 12))).astype(np.float32)


def test_images_with_other_than_one_label_are_refused():
    data, f = toy()
    table = data.labels.copy()
    table[7] = [1, -1, 1]
    with pytest.raises(SpmlError, match='image 7 has 2 positive'):
        linear_transfer(f, replace(data, labels=table))


# ---- the classifier


def test_the_classifier_minimises_the_stated_objective():
    data, f = toy(60)
    y, penalty = data.labels.argmax(1), 0.7
    model = make_regression(penalty).fit(f, y)

    def objective(w):
        W, b = w[:-3].reshape(3, 12), w[-3:]
        s = f @ W.T + b
        return (logsumexp(s, axis=1) - s[np.arange(60), y]).sum() + penalty / 2 * (W**2).sum()

    best = minimize(objective, np.zeros(39), options={'maxiter': 2000}).fun
    assert objective(np.concatenate([model.coef_.ravel(), model.intercept_])) == pytest.approx(
        best, rel=1e-4
    )
    with pytest.raises(SpmlError, match='above 0'):
        make_regression(0)


def test_the_penalty_is_chosen_on_validation_and_the_classifier_sees_train_and_val():
    data, f = toy(120, noise=1.2)
    found = linear_transfer(f, data, penalties=(1000.0, 1.0, 1e-4))
    train, val, test = (data.rows(p) for p in ('train', 'val', 'test'))
    y = data.labels.argmax(1)
    own = {
        p: 100 * np.mean(make_regression(p).fit(f[train], y[train]).predict(f[val]) == y[val])
        for p in (1000.0, 1.0, 1e-4)
    }
    assert found['validation'] == pytest.approx(own) and found['penalty'] == max(own, key=own.get)
    both = np.sort([*train, *val])
    final = make_regression(found['penalty']).fit(f[both], y[both]).predict(f[test])
    assert found['top1'] == pytest.approx(100 * np.mean(final == y[test])) and found['images'] == {
        'train': 60,
        'val': 30,
        'test': 30,
    }


def test_a_test_image_never_influences_the_choice():
    data, f = toy(120, noise=1.2)
    test, other = data.rows('test'), f.copy()
    other[test] = np.random.RandomState(9).standard_normal(other[test].shape)
    a, b = linear_transfer(f, data), linear_transfer(other, data)
    assert (a['validation'], a['penalty']) == (b['validation'], b['penalty']) and a['accuracy'] > b[
        'accuracy'
    ] + 15


def test_of_equal_penalties_the_strongest_is_taken_and_warm_starts_change_nothing():
    data, f = toy(noise=0.05)
    found = linear_transfer(f, data, penalties=(1e-3, 1.0, 0.1))
    assert (
        set(found['validation'].values()) == {100.0}
        and found['penalty'] == 1.0
        and found['accuracy'] == 100
    )
    train, val, y = data.rows('train'), data.rows('val'), data.labels.argmax(1)
    noisy = toy(noise=1.5)[1]
    together = choose_penalty(noisy, y, train, val, (10.0, 1.0, 0.1))
    alone = {p: choose_penalty(noisy, y, train, val, (p,))[p] for p in (10.0, 1.0, 0.1)}
    assert together == pytest.approx(alone, abs=2)


def test_without_validation_rows_a_fifth_of_the_training_rows_validates():
    data, f = toy(100, split=np.repeat(['train', 'test'], [60, 40]))
    found = linear_transfer(f, data)
    assert found['images'] == {'train': 48, 'val': 12, 'test': 40}
    first, last = labels.split_rows(60)
    given = np.full(100, 'test', '<U5')
    given[first], given[last] = 'train', 'val'
    assert linear_transfer(f, replace(data, split=given))['validation'] == found['validation']
    with pytest.raises(SpmlError, match='no test image'):
        linear_transfer(f, replace(data, split=np.full(100, 'train')))
    with pytest.raises(SpmlError, match=r'expected \(100, D\)'):
        linear_transfer(f[:90], data)


def test_the_convention_follows_the_name_of_the_set():
    data, f = toy(200, noise=1.0)
    for name, average in {
        'pets': 'class',
        'flowers': 'class',
        'aircraft': 'class',
        'caltech101': 'class',
        'dtd': 'image',
        'food101': 'image',
        'sun': 'image',
        'cars': 'image',
        'cub-species': 'image',
    }.items():
        found = linear_transfer(f, replace(data, name=name), penalties=(1.0,))
        assert (
            found['average'] == average
            and found['accuracy'] == found[{'class': 'mean_per_class', 'image': 'top1'}[average]]
        )
    assert (
        linear_transfer(f, replace(data, name='pets'), average='image', penalties=(1.0,))[
            'accuracy'
        ]
        == found['top1']
    )
    assert found['top1'] != found['mean_per_class']


# ---- several labels an image


def several(n=240, seed=0):
    "Three labels that features tell, one that nobody has in training, and features."
    rng = np.random.RandomState(seed)
    table = np.where(rng.rand(n, 4) < 0.4, 1, -1).astype(np.int8)
    split = np.array(['train', 'train', 'val', 'test'])[np.arange(n) % 4]
    table[split != 'test', 3] = -1
    data = Dataset('several', np.zeros((n, 8, 8, 3), np.uint8), table, list('abcd'), split)
    return data, (table @ rng.standard_normal((4, 9)) + 2.5 * rng.standard_normal((n, 9))).astype(
        np.float32
    )


def test_a_classifier_a_class_minimises_what_is_said():
    data, f = several()
    rows = data.rows('train')
    found = class_scores(f, data.labels, rows, 3.0)
    assert (found[:, 3] == 0).all()  # nobody has it in training
    y, x = torch.from_numpy(data.labels[rows, :3]).double(), torch.from_numpy(f[rows]).double()
    w = torch.zeros(9, 3, dtype=torch.double, requires_grad=True)
    b = torch.zeros(3, dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [w, b],
        max_iter=500,
        tolerance_grad=1e-9,
        tolerance_change=1e-14,
        line_search_fn='strong_wolfe',
    )

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.softplus(-y * (x @ w + b)).sum() + 1.5 * (w**2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert np.allclose(
        found[:, :3], (torch.from_numpy(f).double() @ w + b).detach().numpy(), atol=1e-2
    )


@pytest.mark.filterwarnings('error')
def test_small_features_under_a_weak_penalty_are_as_good_as_large_ones_under_a_strong_one():
    data, f = several()
    f = np.hstack([f, f[:, :4] + 1e-4 * several(seed=1)[1][:, :4]])  # nearly the same again
    rows = data.rows('train')
    large = class_scores(f, data.labels, rows, 1.0)
    small = class_scores(f * np.float32(2**-12), data.labels, rows, 2.0**-24)
    assert np.allclose(small, large, atol=1e-3) and np.abs(large).max() > 1


def test_the_penalty_is_chosen_on_validation_and_the_rest_trained_together():
    data, f = several()
    data = replace(data, labels=data.labels[:, :3], class_names=list('abc'))
    train, val, test = (data.rows(part) for part in ('train', 'val', 'test'))
    found = multi_label_transfer(f, data, penalties=(1e-3, 10.0, 1e4))

    def by_hand(rows, part, penalty):  # the mean over classes of the precision at each positive
        scores, aps = class_scores(f, data.labels, rows, penalty)[part], []
        for s, y in zip(scores.T, data.labels[part].T, strict=True):
            order = np.argsort(-s, kind='stable')
            hits = y[order] > 0
            aps.append((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())
        return 100 * np.mean(aps)

    learned = [by_hand(train, val, penalty) for penalty in (1e4, 10.0, 1e-3)]
    assert [*found['validation']] == [1e4, 10.0, 1e-3] and [
        *found['validation'].values()
    ] == pytest.approx(learned)
    chosen = max(found['validation'], key=found['validation'].get)
    assert found['penalty'] == chosen and found['map'] > 70
    assert found['map'] == pytest.approx(
        by_hand(np.sort(np.concatenate([train, val])), test, chosen)
    )


def test_unknown_labels_are_refused():
    data, f = several()
    labels = data.labels.copy()
    labels[3, :2] = 0
    with pytest.raises(SpmlError, match="'several' has 2 unknown labels"):
        multi_label_transfer(f, replace(data, labels=labels))


# ---- features


def test_features_are_the_mean_of_the_last_map_in_evaluation_mode():
    torch.manual_seed(0)
    pixels = np.random.RandomState(0).randint(0, 256, (70, 40, 40, 3), dtype=np.uint8)
    data = Dataset('mini_x', pixels, np.ones((70, 1), np.int8), ['x'], np.full(70, 'train'))
    model = models.create('mini', 5)
    found = pool_features(model, data)
    with torch.inference_mode():
        own = (
            model.eval()
            .feature_map(torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255)
            .mean((2, 3))
        )
    assert found.shape == (70, 96) and np.allclose(found, own.numpy(), atol=1e-4)
    other = pool_features(models.create('mini', 5, weights='none'), data)
    assert not np.allclose(
        found, other, atol=1e-2
    )  # another backbone is not answered from the cache
    assert pool_features(model, data, 32).shape == (70, 96) and not np.allclose(
        pool_features(model, data, 32), found, atol=1e-3
    )
    with pytest.raises(SpmlError, match='load_run_backbone'):
        pool_features(models.create('mini', 5, head='labelwise', d=8), data)


def test_photos_are_cut_out_of_the_middle(tmp_path):
    wide = np.zeros((64, 192, 3), np.uint8)
    wide[:, 64:128] = 255
    Image.fromarray(wide).save(tmp_path / 'wide.png')
    Image.fromarray(wide[:, 64:128]).save(tmp_path / 'middle.png')
    data = Dataset(
        'photos',
        [tmp_path / 'wide.png', tmp_path / 'middle.png'],
        np.ones((2, 1), np.int8),
        ['x'],
        np.full(2, 'train'),
    )
    model = models.create('mini', 1)
    f = pool_features(model, data, 56)  # the shorter side becomes 64, the middle 56 × 56 are white
    with torch.inference_mode():
        white = model.eval().feature_map(torch.ones(1, 3, 56, 56)).mean((2, 3))[0].numpy()
    assert np.allclose(f[0], white, atol=1e-4) and np.allclose(f[1], white, atol=1e-4)


# ---- networks from runs


def pretrain(loss, **given):
    "A network trained from scratch on 72 images of one colour each. Returns: (the run, its data)."
    colours = np.arange(72) % 3
    pixels = np.zeros((72, 40, 40, 3), np.uint8)
    pixels[np.arange(72), :, :, colours] = 255
    data = Dataset(
        'mini_colours',
        pixels,
        2 * np.eye(3, dtype=np.int8)[colours] - 1,
        ['red', 'green', 'blue'],
        np.repeat(['train', 'test'], [48, 24]),
    )
    rows = {part: data.rows(part) for part in ('train', 'val', 'test')}
    task = training.Task(data, *rows.values(), data.labels[rows['train']], data.labels[rows['val']])
    fields = {
        'labels': 'full',
        'weights': 'none',
        'selection': 'last',
        'backbone': 'mini',
        'image_size': 40,
        'views': 'shift',
        'epochs': 1,
        'batch_size': 16,
    }
    return training.train(
        runs.Config(loss=loss, dataset=data.name, **fields, **given), task=task
    ), data


@pytest.mark.parametrize('loss', ['an', 'asl', 'softmax', 'two_way'])
def test_any_loss_pretrains_and_its_backbone_transfers(loss):
    result, data = pretrain(loss)
    true = data.labels[data.rows('test')]
    assert result.scores['test_top1'] == pytest.approx(
        100 * np.mean(result.logits['test'].argmax(1) == true.argmax(1))
    )
    model = load_run_backbone(result.folder)
    state = torch.load(result.folder / 'best.pt', weights_only=True)['network']
    assert all(
        torch.equal(value, state[f'backbone.{name}'])
        for name, value in model.backbone.state_dict().items()
    )
    of_run, of_model = (
        linear_transfer(network, data, penalties=(1.0,), iterations=20)
        for network in (result.folder, model)
    )
    assert of_run == of_model and of_run['top1'] == 100


def test_only_a_finished_run_gives_its_backbone():
    folder = pretrain('softmax')[0].folder
    (folder / 'DONE').unlink()
    with pytest.raises(SpmlError, match='no DONE'):
        load_run_backbone(folder)


@pytest.mark.parametrize('weights', ['default', 'none'])
def test_the_backbone_of_a_linear_run_is_the_one_it_started_from(photo_folder, weights):
    config = runs.Config(
        weights=weights,
        seed=5,
        loss='an',
        dataset=str(photo_folder),
        backbone='mini',
        image_size=40,
        regime='linear',
        epochs=1,
    )
    folder, random = training.train(config).folder, torch.get_rng_state()
    model = load_run_backbone(folder)
    assert torch.equal(torch.get_rng_state(), random)
    torch.manual_seed(5)
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            model.backbone.state_dict().values(),
            models.create('mini', 1, weights=weights).backbone.state_dict().values(),
            strict=True,
        )
    )
