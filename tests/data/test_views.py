"""Views: each by name, each step against torchvision or a loop, and the hue that is a label."""

from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torchvision.transforms import ColorJitter, v2
from torchvision.transforms import functional as F

from spml_nb.base.errors import SpmlError
from spml_nb.data import miniatures, views
from spml_nb.data.images import copy_pixels
from spml_nb.data.views import VIEWS, find_view, jitter_in_order


def noise(width=50, height=37, channels=3, seed=0):
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.RandomState(seed).randint(0, 256, shape, dtype=np.uint8)


# ---- by name

X = torch.from_numpy(np.stack([noise(11, 8, seed=k) for k in range(28)])).permute(0, 3, 1, 2)


@pytest.mark.parametrize('name', VIEWS)
def test_every_view_gives_floats_in_range_channels_last_and_repeats_with_the_seed(name):
    before, function = X.clone(), find_view(name)
    torch.manual_seed(3)
    first = function(X)
    torch.manual_seed(3)
    again = function(X)
    other = function(X)
    assert (
        first.dtype == torch.float32
        and first.shape == X.shape
        and first.is_contiguous(memory_format=torch.channels_last)
    )
    low, high = (-0.2, 1.2) if name == 'crop' else (0, 1)  # PCA lighting is added last
    assert (
        low <= first.min()
        and first.max() <= high
        and torch.equal(first, again)
        and torch.equal(X, before)
    )
    assert torch.equal(first, other) == (name in ('plain', 'centre'))
    assert function(X[:1]).shape == (1, 3, 8, 11)


def test_the_views_have_their_fixed_names():
    assert set(VIEWS) == {
        'plain',
        'flip',
        'shift',
        'strong',
        'strong_bare',
        'strong_unmirrored',
        'strong_code',
        'strong_shift',
        'strong_shift_hue',
        'crop',
        'centre',
    }


def test_plain_is_the_bytes_over_255():
    assert torch.equal(find_view('plain')(X), X.float() / 255)


@pytest.mark.parametrize('name', ['flip'])
def test_flip_mirrors_about_half_of_the_images_and_changes_nothing_else(name):
    torch.manual_seed(0)
    many = X.repeat(20, 1, 1, 1)
    out = find_view(name)(many)
    same, mirrored = ((out == y.float() / 255).flatten(1).all(1) for y in (many, many.flip(3)))
    assert (same ^ mirrored).all() and 0.4 < mirrored.float().mean() < 0.6


@pytest.mark.parametrize('name', ['shift'])
def test_shift_draws_every_offset_up_to_three_and_never_mirrors(name):
    torch.manual_seed(0)
    ramp = torch.arange(8)[:, None] * 20 + torch.arange(11)
    out = (find_view(name)(ramp.to(torch.uint8).expand(600, 3, 8, 11)) * 255).round()
    offsets = 4 * 20 + 5 - out[:, 0, 4, 5]  # of the centre, which no shift moves out
    assert {(round(float(o) / 20), float(o) - 20 * round(float(o) / 20)) for o in offsets} == {
        (i, j) for i in range(-3, 4) for j in range(-3, 4)
    }
    assert (out[..., 1:] >= out[..., :-1]).all() and (out[:, :, 1:] >= out[:, :, :-1]).all()


def test_mirror_shift_and_cutout_equal_loops_over_pixels():
    x, which = X[:4, :, :7, :9], torch.tensor([True, False, True, False])
    down, right = torch.tensor([0, -3, 2, 1]), torch.tensor([3, 0, -1, -3])
    y = torch.tensor([0, 6, 3, 2])
    z = torch.tensor([0, 8, 4, 7])
    colour = torch.randint(0, 256, (4, 3), dtype=torch.uint8)
    mirrored = views.mirror_images(x, which)
    moved = views.translate_images(x, down, right)
    holed = views.cut_out(x, y, z, colour, 0.5)
    for b, c, i, j in np.ndindex(*x.shape):
        assert mirrored[b, c, i, j] == x[b, c, i, 8 - j if which[b] else j]
        assert (
            moved[b, c, i, j] == x[b, c, min(max(i - down[b], 0), 6), min(max(j - right[b], 0), 8)]
        )
        assert holed[b, c, i, j] == (
            colour[b, c] if y[b] - 2 <= i < y[b] + 2 and z[b] - 2 <= j < z[b] + 3 else x[b, c, i, j]
        )
    assert torch.equal(views.cut_out(x, y, z, colour, 0), x) and torch.equal(
        views.translate_images(x, 0 * down, 0 * right), x
    )


@pytest.mark.parametrize('name', v2.RandAugment._AUGMENTATION_SPACE)
def test_each_operation_is_torchvisions_randaugment(name):
    class Only(v2.RandAugment):
        _AUGMENTATION_SPACE = {name: v2.RandAugment._AUGMENTATION_SPACE[name]}  # noqa: RUF012

    index = [key.replace('_', '') for key in views.OPERATIONS].index(name.lower())
    for magnitude in (0, 9, 30):
        torch.manual_seed(magnitude)
        signs = {tuple(Only(1, magnitude)(X[:1]).flatten().tolist()) for _ in range(8)}
        ours = {
            tuple(
                views.rand_augment(
                    X[:1], torch.tensor([[index]]), torch.tensor([[sign]]), magnitude
                )
                .flatten()
                .tolist()
            )
            for sign in (1, -1)
        }
        assert ours == signs, magnitude
    assert len(views.OPERATIONS) == 14


def test_what_an_image_becomes_does_not_depend_on_its_batch():
    torch.manual_seed(0)
    operations = torch.stack([torch.arange(28) % 14, torch.randint(14, (28,))])
    signs = 2 * torch.randint(2, (2, 28)) - 1
    together, factors = views.rand_augment(X, operations, signs), 2 * torch.rand(3, 28)
    jittered = views.colour_jitter(X / 255, *factors)
    for b in range(28):
        assert torch.equal(
            together[b],
            views.rand_augment(X[b : b + 1], operations[:, b : b + 1], signs[:, b : b + 1])[0],
        )
        torch.testing.assert_close(
            jittered[b : b + 1], views.colour_jitter(X[b : b + 1] / 255, *factors[:, b : b + 1])
        )


def test_colour_jitter_is_torchvisions_with_a_factor_an_image():
    factors = torch.tensor([[0.7, 1.0, 1.3], [1.2, 1.0, 0.6], [0.0, 1.0, 1.4]])
    out = views.colour_jitter(X[:3] / 255, *factors)
    for b in range(3):
        f = [float(value) for value in factors[:, b]]
        expected = v2.functional.adjust_saturation(
            v2.functional.adjust_contrast(v2.functional.adjust_brightness(X[b] / 255, f[0]), f[1]),
            f[2],
        )
        torch.testing.assert_close(out[b], expected, atol=2e-4, rtol=0)
    assert torch.equal(out[1], X[1] / 255) and (out[0, 0] - out[0, 1]).abs().max() < 1e-6
    assert ColorJitter(0.4).brightness == (0.6, 1.4)  # the range that 0.4 stands for


def test_each_part_of_the_strong_view_can_be_seen_alone():
    torch.manual_seed(0)
    many, off = X.repeat(20, 1, 1, 1), dict(p=0, cutout=0, operations=0, jitter=0, grey_p=0)
    n = len(many)
    assert torch.equal(partial(VIEWS['strong'], **off)(many), many.float() / 255)
    moved = partial(VIEWS['strong'], **off | {'p': 1.0})(many)
    assert torch.equal(moved, many.flip(3) / 255)
    changed = (partial(VIEWS['strong'], **off | {'cutout': 0.5})(many) * 255).round() != many
    assert (
        0.05 < changed.float().mean() < 0.25
        and changed.any(1)[:, :, 0].any()
        and changed.any(1)[:, 7].any()
    )
    grey = partial(VIEWS['strong'], **off | {'grey_p': 0.2})(many)
    assert 0.15 < ((grey.amax(1) - grey.amin(1)).flatten(1).amax(1) < 1e-6).float().mean() < 0.25
    jittered = partial(VIEWS['strong'], **off | {'jitter': 0.4})(many)
    assert (
        0.15 < (jittered == many.float() / 255).flatten(1).all(1).float().mean() < 0.25
        and len(jittered) == n
    )
    shifted = partial(VIEWS['strong_shift'], **{**off, 'p': 0.0})(many)
    assert ((shifted * 255).round() != many).flatten(1).any(1).float().mean() > 0.9


def test_strong_shift_never_mirrors():
    torch.manual_seed(0)
    ramp = (20 * torch.arange(11, dtype=torch.uint8)).expand(200, 3, 8, 11)
    out = partial(VIEWS['strong_shift'], cutout=0, operations=0)(ramp)
    assert (out[..., 1:] >= out[..., :-1]).all()


def test_views_refuse_what_they_do_not_know():
    with pytest.raises(SpmlError, match=r"unknown view 'stron'.*Did you mean 'strong'"):
        find_view('stron')
    for wrong in (X.float(), X[0], X[:, :1]):
        with pytest.raises(SpmlError, match='uint8 images'):
            find_view('plain')(wrong)


def test_a_saved_generator_state_repeats_a_view():
    state = torch.get_rng_state()
    first = find_view('strong')(X)
    torch.set_rng_state(state)
    assert torch.equal(find_view('strong')(X), first)


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_on_a_gpu_the_same_seed_gives_the_same_views():
    store = np.stack([noise(40, 40, seed=k) for k in range(8)])
    here, there = copy_pixels(store, range(8)), copy_pixels(store, range(8), 'cuda')
    assert (
        there.is_cuda
        and there.is_contiguous(memory_format=torch.channels_last)
        and torch.equal(there.cpu(), here)
    )
    for name in VIEWS:
        torch.manual_seed(0)
        expected = find_view(name)(here)
        torch.manual_seed(0)
        assert (find_view(name)(there).cpu() - expected).abs().mean() < 0.02, name


# ---- Two-way's colours


def test_jitter_in_order_is_torchvisions_steps_one_after_another():
    torch.manual_seed(0)
    x = torch.rand(6, 3, 9, 8)
    factors = 0.5 + torch.rand(3, 6)
    order = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1], [2, 1, 2, 0, 1, 0]])
    steps = [F.adjust_brightness, F.adjust_contrast, F.adjust_saturation]
    out = jitter_in_order(x.clone(), factors, order)
    for b in range(6):
        expected = x[b]
        for k in order[:, b].tolist():
            expected = steps[k](expected, float(factors[k, b]))
        assert torch.allclose(out[b], expected, atol=1e-5), b


def test_lighting_adds_one_colour_an_image_along_the_principal_axes():
    torch.manual_seed(0)
    grey = torch.full((4000, 3, 2, 2), 128, dtype=torch.uint8)
    added = partial(VIEWS['crop'], p=0.0, jitter=0.0)(grey) - 128 / 255
    assert (added.flatten(2).amax(2) - added.flatten(2).amin(2)).max() < 1e-6
    axes = torch.tensor(
        [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
    )
    expected = axes @ torch.diag((0.1 * torch.tensor([0.2175, 0.0188, 0.0045])) ** 2) @ axes.T
    assert torch.allclose(torch.cov(added[:, :, 0, 0].T), expected, rtol=0.15, atol=2e-6)


def test_without_jitter_and_lighting_a_crop_is_mirrored_or_not():
    torch.manual_seed(0)
    x = torch.randint(0, 256, (300, 3, 6, 5), dtype=torch.uint8)
    out = partial(VIEWS['crop'], jitter=0.0, lighting=0.0)(x)
    same, mirrored = (
        torch.isclose(out, y / 255, atol=1e-6).flatten(1).all(1) for y in (x, x.flip(3))
    )
    assert (same ^ mirrored).all() and 0.4 < mirrored.float().mean() < 0.6


# ---- LAC's strong views


def test_the_bare_strong_view_has_neither_jitter_nor_grey():
    torch.manual_seed(0)
    x = torch.randint(0, 256, (200, 3, 6, 5), dtype=torch.uint8)
    off = dict(p=0.0, cutout=0.0, operations=0)
    assert torch.equal(partial(VIEWS['strong_bare'], **off)(x), x / 255)
    assert not torch.isclose(partial(VIEWS['strong'], **off)(x), x / 255, atol=1e-6).all()
    changed = (partial(VIEWS['strong_bare'], p=0.0)(x) != x / 255).flatten(1).any(1).float().mean()
    assert changed > 0.9  # Cutout and RandAugment are there


OF_PIL = {
    'brightness': lambda image, m: ImageEnhance.Brightness(image).enhance(1 + 0.9 * m),
    'color': lambda image, m: ImageEnhance.Color(image).enhance(1 + 0.9 * m),
    'contrast': lambda image, m: ImageEnhance.Contrast(image).enhance(1 + 0.9 * m),
    'sharpness': lambda image, m: ImageEnhance.Sharpness(image).enhance(1 + 0.9 * m),
    'solarize': lambda image, m: ImageOps.solarize(image, 256 - 256 * abs(m)),
    'posterize': lambda image, m: ImageOps.posterize(image, round(8 - 4 * abs(m))),
    'autocontrast': lambda image, m: ImageOps.autocontrast(image),
    'equalize': lambda image, m: ImageOps.equalize(image),
    'invert': lambda image, m: ImageOps.invert(image),
    'rotate': lambda image, m: image.rotate(30 * abs(m), fillcolor=(128,) * 3),
}


def coded(name, step, places=((20, 20),)):
    "One operation of LAC's code on one image of 37 × 50 pixels."
    x = torch.from_numpy(noise(50, 37)).permute(2, 0, 1)[None]
    k = torch.tensor([[list(views.CODE_OPERATIONS).index(name)]])
    y, x_ = torch.tensor(places).T[:, None]
    return x, views.rand_augment_code(x, k, torch.tensor([[step]]), y, x_)


@pytest.mark.parametrize('name', OF_PIL)
def test_each_operation_of_lacs_code_is_that_of_pil(name):
    for step in (1, -4, 9):
        before, after = coded(name, step)
        expected = OF_PIL[name](Image.fromarray(before[0].permute(1, 2, 0).numpy()), step / 9)
        off = (
            after[0].permute(1, 2, 0).int() - torch.from_numpy(np.array(expected, np.int32))
        ).abs()
        assert (off > 2).float().mean() < 0.01, (step, off.max())


@pytest.mark.parametrize('name', ['shear_x', 'shear_y', 'translate_x', 'translate_y'])
def test_geometric_operations_of_lacs_code_have_both_signs_and_uncover_grey(name):
    grey = []
    for step in (9, -9):
        _, after = coded(name, step)
        grey.append((after == 128).all(1)[0])
        assert 0.05 < grey[-1].float().mean() < 0.5
    assert not torch.equal(*grey)
    assert set(views.CODE_OPERATIONS) == {
        *(OF_PIL | {'cutout': 0}),
        *('shear_x', 'shear_y', 'translate_x', 'translate_y'),
    }


def test_the_small_cutout_of_lacs_code_has_at_most_twenty_pixels():
    sides = []
    for step in range(1, 10):
        before, after = coded('cutout', step, [(18, 25)])
        painted = (after[0] == torch.tensor([125, 122, 113])[:, None, None]).all(0)
        assert torch.equal(before[0][:, ~painted], after[0][:, ~painted])
        sides.append(int(painted.sum()) ** 0.5)
        assert painted[18, 25] and painted.sum(0).max() == painted.sum(1).max() == sides[-1]
    assert sides == [2, 4, 6, 8, 10, 12, 16, 18, 20]


def test_each_part_of_lacs_strong_view_can_be_seen_alone():
    torch.manual_seed(0)
    many = X.repeat(20, 1, 1, 1)
    off = dict(p=0.0, cutout=0.0, applied_p=0.0, jitter_p=0.0, grey_p=0.0)
    assert torch.equal(views.strong_view_code(many, **off), many / 255)
    assert torch.equal(views.strong_view_code(many, **off | {'p': 1.0}), many.flip(3) / 255)

    def changed(**options):
        return (views.strong_view_code(many, **off | options) != many / 255).flatten(1).any(1)

    # of two operations none is applied in a quarter of the images; some change nothing in noise
    assert 0.5 < changed(applied_p=0.5).float().mean() < 0.75
    assert 0.7 < changed(jitter_p=0.8).float().mean() < 0.9
    assert changed(jitter_p=1.0, jitter=0.0).float().mean() > 0.95  # the hue alone
    grey = views.strong_view_code(many, **off | {'grey_p': 0.2})
    assert 0.15 < ((grey.amax(1) - grey.amin(1)).flatten(1).amax(1) < 1e-6).float().mean() < 0.25
    torch.manual_seed(0)
    alone = views.strong_view_code(many[:1], **off | {'jitter_p': 1.0})
    torch.manual_seed(0)
    views_before_jitter(1)
    factors = torch.tensor([0.4, 0.4, 0.4, 0.1])[:, None] * (2 * torch.rand(4, 1) - 1)
    factors[:3] += 1
    expected = many[0] / 255
    adjust = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
    for k in torch.rand(4, 1).argsort(0)[:, 0].tolist():
        expected = adjust[k](expected, factors[k, 0].item())
    torch.testing.assert_close(alone[0], expected, atol=1e-5, rtol=0)


def views_before_jitter(n):
    "Draw what the strong view of LAC's code draws before its jitter."
    torch.rand(n)
    torch.randint(0, 256, (n, 3), dtype=torch.uint8)
    for high, shape in ((8, (n,)), (11, (n,)), (15, (2, n))):
        torch.randint(high, shape)
    torch.rand(2, n)
    for low, high in ((1, 10), (0, 2), (0, 8), (0, 11)):
        torch.randint(low, high, (2, n))


def named_hue(floats):
    "(B, H, W) number of the nearest named hue, and saturation."
    from matplotlib.colors import rgb_to_hsv

    hsv = rgb_to_hsv(floats.permute(0, 2, 3, 1).clamp(0, 1).numpy())
    apart = np.abs((hsv[..., :1] - np.array([*miniatures.HUES.values()]) / 360 + 0.5) % 1 - 0.5)
    return apart.argmin(-1), hsv[..., 1]


def test_the_miniatures_strong_view_keeps_the_hue_and_the_photos_does_not():
    torch.manual_seed(0)
    hues = torch.tensor(
        [
            [200, 30, 30],
            [200, 110, 30],
            [200, 190, 30],
            [30, 190, 40],
            [30, 190, 190],
            [40, 70, 200],
            [130, 30, 200],
            [200, 30, 130],
        ],
        dtype=torch.uint8,
    )
    x = hues.repeat(60, 1)[:, :, None, None].repeat(1, 1, 9, 9).clone()
    x[:, :, :2] = 90  # a grey border, so that there is something to stretch
    before, _ = named_hue(x / 255)

    def kept(name):
        after, saturation = named_hue(partial(VIEWS[name], cutout=0.0)(x))
        inner = (after[:, 4:7, 4:7], before[:, 4:7, 4:7], saturation[:, 4:7, 4:7])
        return ((inner[0] == inner[1]) & (inner[2] > 0.15)).mean()

    assert kept('strong_shift_hue') > 0.9 > 0.75 > kept('strong_shift')
