"""A trained run on any images: the same numbers as its evaluation, whole tables, and one clear message for what cannot be done."""
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from spml_nb import data as datasets, models, runs, training
from spml_nb.use import predict as prediction
from spml_nb.base.errors import SpmlError
from spml_nb.use.predict import find_images, open_model, predict, write_csv

CLASSES = ['blue', 'bright', 'red']


def draw_photos(folder):
    "48 photos of every format and many shapes, with three classes: the colour of the left half, and whether the right half is bright. Returns: the folder."
    rng = np.random.RandomState(0)
    rows = []
    for i in range(48):
        pixels = rng.randint(0, 90, (30 + i, 70 - i, 3), dtype=np.uint8)
        half = pixels.shape[1] // 2
        pixels[:, :half, 0 if i % 2 else 2] = 220
        if i % 3: pixels[:, half:] = 230
        suffix = ('.png', '.JPG', '.gif', '.webp', '.tif', '.bmp')[i % 6]
        name = f'{"ab"[i // 2 % 2]}/{i:02}{suffix}'
        image, options = Image.fromarray(pixels), {}
        if suffix == '.png': image = image.convert('RGBA')
        if suffix == '.gif': image = image.quantize(32)
        if suffix == '.JPG':
            exif = Image.Exif()
            exif[0x0112] = 1 + i % 8
            options = {'exif': exif}
        (folder / 'images' / name).parent.mkdir(parents=True, exist_ok=True)
        image.save(folder / 'images' / name, **options)
        rows.append({'image': name, 'labels': '|'.join([('blue', 'red')[i % 2], *(['bright'] if i % 3 else [])])})
    pd.DataFrame(rows).to_csv(folder / 'labels.csv', index=False)
    return folder


CONFIGS = {
    'linear': {'loss': 'an'},
    'cosine': {'loss': 'hml', 'head': 'cosine', 'hparams': {'adaptive_lr': 0.05}},
    'label-wise': {'loss': 'an', 'head': 'labelwise', 'embedding_dim': 8},
    'frozen': {'loss': 'em', 'regime': 'linear'},
    'frozen, label-wise': {'loss': 'an', 'head': 'labelwise', 'embedding_dim': 8, 'regime': 'linear'},
    'frozen, random': {'loss': 'an', 'regime': 'linear', 'weights': 'none', 'seed': 5},
    'linear, then all': {'loss': 'an', 'regime': 'linear_init', 'linear_epochs': 1, 'ema': 0.5},
    'crop': {'loss': 'an', 'views': 'crop'},
    'as they are': {'loss': 'an', 'normalise': False, 'frozen_stages': 2}}


class Made:
    "Photos with their data set, and runs that are trained when they are asked for."
    def __init__(self, work):
        self.work, self.folder, self.results = work, draw_photos(work / 'photos'), {}
        self.data = datasets.load(self.folder)
        self.test = [self.data.images[row] for row in self.data.rows('test')]

    def run(self, name):
        if name not in self.results:
            config = {'dataset': str(self.folder), 'backbone': 'mini', 'image_size': 32, 'epochs': 1, 'lr': 3e-3, **CONFIGS[name]}
            with mock.patch.dict(os.environ, SPML_NB_RUNS=str(self.work / 'runs'), SPML_NB_CACHE=str(self.work / 'cache'), SPML_NB_DEVICE='cpu'):
                self.results[name] = training.train(runs.Config(**config))
        return self.results[name]

    def copy(self, name, to):
        "The run's folder, somewhere else."
        return Path(shutil.copytree(self.run(name).folder, to / 'copied' / self.run(name).folder.name))


@pytest.fixture(scope='session')
def made(tmp_path_factory): return Made(tmp_path_factory.mktemp('made'))


# ---- the numbers

@pytest.mark.parametrize('name', CONFIGS)
def test_predictions_are_those_of_the_evaluation(made, name):
    result = made.run(name)
    table = predict(result.folder, made.test)
    assert table.columns.tolist() == ['image', *CLASSES, 'labels'] and table.image.tolist() == list(map(str, made.test))
    stored = 1 / (1 + np.exp(-result.logits['test'].astype(np.float64)))
    assert np.abs(table[CLASSES].to_numpy() - stored).max() < 1e-6 and np.ptp(stored) > 0.01
    threshold = result.scores['threshold']
    assert table.labels.tolist() == ['|'.join(c for c, p in zip(CLASSES, row, strict=True) if p >= threshold) for row in table[CLASSES].to_numpy()]


def test_a_learnt_margin_and_the_rule_to_resize_count(made):
    model = open_model(made.run('cosine').folder)
    network = prediction.open_network(made.run('cosine').folder)
    assert network.method.margin.item() != pytest.approx(0.3, abs=1e-3) and model.description['ranks_by'] == 'method'
    assert [open_model(made.run(name).folder).preprocessing['resize'] for name in ('linear', 'crop')] == ['squash', 'centre']


def test_neither_data_set_nor_pretrained_weights_are_needed(made, tmp_path, monkeypatch):
    copied = made.copy('linear', tmp_path)
    config = json.loads((copied / 'config.json').read_text())
    config |= {'dataset': str(tmp_path / 'gone'), 'weights': str(tmp_path / 'gone.pt')}
    (copied / 'config.json').write_text(json.dumps(config))
    copied = copied.rename(runs.Run(runs.Config(**config), tmp_path).folder)
    monkeypatch.setattr(datasets, 'load', lambda *_, **__: pytest.fail('the data set was opened'))
    assert np.array_equal(predict(copied, made.test)[CLASSES], predict(made.run('linear').folder, made.test)[CLASSES])


def test_a_batch_or_two_passes_change_nothing_and_random_numbers_stay(made, monkeypatch):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    whole = predict(made.run('frozen, random').folder, made.test)
    assert torch.equal(torch.rand(3), expected)
    monkeypatch.setattr(prediction, 'KEPT', 0)
    one = predict(made.run('frozen, random').folder, made.test, batch_size='1')
    assert np.allclose(one[CLASSES], whole[CLASSES], atol=1e-6)


def test_a_run_by_its_name_and_a_function_of_the_package(made, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(made.work / 'runs'))
    from spml_nb import predict as function
    assert function is predict and len(predict(made.run('linear').folder.name, made.test[0])) == 1


def test_the_package_alone_loads_no_torch():
    code = ('import sys, spml_nb; assert "torch" not in sys.modules and spml_nb.__version__\n'
            'try: spml_nb.nothing\nexcept AttributeError as error: assert "nothing" in str(error)\nelse: raise SystemExit("no error")\n'
            'from spml_nb import predict; assert predict.__module__ == "spml_nb.use.predict"')
    subprocess.run([sys.executable, '-c', code], check=True)


# ---- images

def test_a_folder_is_searched_with_all_below_it_in_order(made, tmp_path):
    folder = Path(shutil.copytree(made.folder, tmp_path / 'mine'))
    (folder / 'images' / '.hidden.png').write_bytes(b'x')
    (folder / 'images' / '.thumbs').mkdir()
    (folder / 'images' / '.thumbs' / 'x.png').write_bytes(b'x')
    (folder / 'images' / 'folder.png').mkdir()
    (folder / 'images' / 'notes.txt').write_text('x')
    names, sources = find_images(str(folder))
    assert names == sorted(f'images/{path.relative_to(made.folder / "images").as_posix()}' for path in made.data.images) and len(names) == 48
    assert {Path(name).suffix for name in names} == {'.png', '.JPG', '.gif', '.webp', '.tif', '.bmp'} and all(path.is_file() for path in sources)
    assert predict(made.run('linear').folder, folder).image.tolist() == names


def test_links_to_folders_are_followed_once_and_loops_end(tmp_path):
    folder, elsewhere = tmp_path / 'mine', tmp_path / 'elsewhere'
    for place in (folder / 'own', elsewhere / 'deep'):
        place.mkdir(parents=True)
        Image.new('RGB', (4, 4)).save(place / 'x.png')
    (folder / 'linked').symlink_to(elsewhere)
    (folder / 'again').symlink_to(folder / 'own')
    (elsewhere / 'deep' / 'back').symlink_to(folder)
    (folder / 'own' / 'gone.png').symlink_to(tmp_path / 'gone')
    names, sources = find_images(folder)
    assert names == ['linked/deep/x.png', 'own/gone.png', 'own/x.png'] and sources == [folder / name for name in names]
    (tmp_path / 'entrance').symlink_to(folder)
    assert find_images(tmp_path / 'entrance')[0] == names


def test_an_unreadable_folder_is_told(tmp_path, monkeypatch):
    Image.new('RGB', (4, 4)).save(tmp_path / 'x.png')
    (tmp_path / 'locked' / 'in').mkdir(parents=True)
    (tmp_path / '.hidden').mkdir()
    scan, look = os.scandir, os.stat
    def refusing(call):   # root may read everything, so that rights alone would not do
        def guarded(path, *given, **options):
            if {'locked', '.hidden'} & set(Path(os.fspath(path)).parts[len(tmp_path.parts):]): raise PermissionError(13, 'Permission denied', str(path))
            return call(path, *given, **options)
        return guarded
    monkeypatch.setattr(os, 'scandir', refusing(scan))
    with pytest.raises(SpmlError, match=r'locked cannot be searched for images \(Permission denied\)'): find_images(tmp_path)
    monkeypatch.setattr(os, 'stat', refusing(look))
    with pytest.raises(SpmlError, match=r'locked/in cannot be searched for images \(Permission denied\)'): find_images(tmp_path / 'locked' / 'in')
    (tmp_path / 'locked' / 'in').rmdir()
    (tmp_path / 'locked').rmdir()
    assert find_images(tmp_path)[0] == ['x.png']


def test_opened_images_are_treated_like_files_and_stay_as_they_are(made):
    turned = next(path for path in made.data.images if path.suffix == '.JPG' and Image.open(path).getexif()[0x0112] == 6)
    opened = Image.open(turned)
    size = opened.size
    table = predict(made.run('linear').folder, [opened, turned, str(turned), opened])
    assert table.image.tolist() == ['0', str(turned), str(turned), '3'] and opened.size == size
    assert np.ptp(table[CLASSES].to_numpy(), axis=0).max() < 1e-6
    with pytest.raises(SpmlError, match='(?s)1 of 2 images cannot be used: 1 .*32 bits'): predict(made.run('linear').folder, [opened, Image.new('F', (4, 4))])


def test_all_unreadable_images_are_named_before_anything_is_predicted(made, tmp_path, monkeypatch):
    (tmp_path / 'empty.png').touch()
    (tmp_path / 'cut.webp').write_bytes(made.test[0].read_bytes()[:60])
    shutil.copy(made.test[0], tmp_path / 'good.png')
    (tmp_path / 'text.gif').write_text('no image')
    monkeypatch.setattr(prediction.Network, 'forward', lambda *_: pytest.fail('predicted'))
    with pytest.raises(SpmlError, match=r'3 of 4 images cannot be used: cut\.webp \(.*empty\.png \(.*text\.gif \(') as told: predict(made.run('linear').folder, tmp_path)
    assert 'good.png' not in str(told.value)
    with pytest.raises(SpmlError, match=r'1 of 2 images.*gone\.png \(No such file'): predict(made.run('linear').folder, [tmp_path / 'good.png', tmp_path / 'gone.png'])


@pytest.mark.parametrize('given, told', [([], 'no image in the list'), ('nowhere', 'no folder or image nowhere'), (7, 'not int'), (None, 'not NoneType'),
                                         (np.zeros((2, 4, 4, 3), np.uint8), 'not ndarray.*fromarray'), ([['a.png']], 'not list')])
def test_what_is_no_image_is_refused(made, given, told):
    with pytest.raises(SpmlError, match=told): predict(made.run('linear').folder, given)


def test_an_empty_folder_is_refused(made, tmp_path):
    (tmp_path / 'notes.txt').write_text('x')
    with pytest.raises(SpmlError, match=r'no image in .*looked for .*\.jpeg'): predict(made.run('linear').folder, tmp_path)


@pytest.mark.parametrize('given, told', [({'batch_size': 0}, 'at least 1, not 0'), ({'batch_size': 'x'}, "batch_size must be a whole number, not 'x'"),
                                         ({'device': 'tpu'}, "unknown device 'tpu'")])
def test_wrong_options(made, given, told):
    with pytest.raises(SpmlError, match=told): predict(made.run('linear').folder, made.test, **given)


def test_bytes_of_another_shape_are_refused(made):
    model = open_model(made.run('linear').folder)
    assert model(np.zeros((2, 3, 32, 32), np.uint8)).shape == (2, 3)
    for wrong in (np.zeros((2, 3, 32, 32), np.float32), np.zeros((2, 3, 40, 40), np.uint8), np.zeros((3, 32, 32), np.uint8)):
        with pytest.raises(SpmlError, match=r'takes \(B, 3, 32, 32\) uint8'): model(wrong)


# ---- runs

def test_no_run_an_unfinished_one_and_one_without_weights(made, tmp_path):
    with pytest.raises(SpmlError, match="no run 'nothing'"): predict('nothing', made.test)
    copied = made.copy('linear', tmp_path)
    (copied / 'DONE').unlink()
    with pytest.raises(SpmlError, match='no DONE: the run is not finished'): predict(copied, made.test)
    (copied / 'DONE').touch()
    (copied / 'best.pt').unlink()
    with pytest.raises(SpmlError, match='best.pt is not there'): predict(copied, made.test)
    result = json.loads((copied / 'result.json').read_text())
    (copied / 'result.json').write_text(json.dumps({k: v for k, v in result.items() if k != 'class_names'}))
    with pytest.raises(SpmlError, match="result.json is damaged.*class_names"): predict(copied, made.test)


def test_a_frozen_backbone_with_other_weights_is_refused(made, tmp_path):
    weights = tmp_path / 'weights.pt'
    state = models.create('mini', 1).backbone.state_dict()
    torch.save(state, weights)
    config = {'dataset': str(made.folder), 'backbone': 'mini', 'image_size': 32, 'epochs': 1, 'loss': 'an', 'regime': 'linear', 'weights': str(weights)}
    result = training.train(runs.Config(**config))
    before = predict(result.folder, made.test)
    torch.save({name: value * 2 if value.is_floating_point() else value for name, value in state.items()}, weights)
    for use in (lambda: predict(result.folder, made.test), lambda: training.evaluate(result.folder)):
        with pytest.raises(SpmlError, match=r'frozen backbone .mini. with other weights .*weights\.pt.* Put the old weights back'): use()
    file = result.folder / 'result.json'
    kept = json.loads(file.read_text())
    assert 'backbone' not in json.loads((made.run('linear').folder / 'result.json').read_text())   # best.pt holds all of it
    torch.save(state, weights)
    assert predict(result.folder, made.test).equals(before)
    file.write_text(json.dumps({k: v for k, v in kept.items() if k != 'backbone'}))   # as older versions wrote it
    assert predict(result.folder, made.test).equals(before)


class Attack:
    "Unpickling it makes a file."
    def __init__(self, file): self.file = file
    def __reduce__(self): return Path.touch, (self.file,)


@pytest.mark.parametrize('damage', ['half', 'text', 'something else', 'another head', 'pickle', 'pickle in torch'])
def test_a_damaged_or_malicious_checkpoint_is_refused_and_not_executed(made, tmp_path, damage):
    copied, trap = made.copy('linear', tmp_path), tmp_path / 'executed'
    file = copied / 'best.pt'
    saved = torch.load(file, weights_only=True)
    if damage == 'half': file.write_bytes(file.read_bytes()[:file.stat().st_size // 2])
    if damage == 'text': file.write_text('no checkpoint')
    if damage == 'something else': torch.save([1, 2], file)
    if damage == 'another head': torch.save({**saved, 'network': {k: v[:2] if k.startswith('head') else v for k, v in saved['network'].items()}}, file)
    if damage == 'pickle': file.write_bytes(pickle.dumps(Attack(trap), 2))
    if damage == 'pickle in torch': torch.save({**saved, 'more': Attack(trap)}, file)
    with pytest.raises(SpmlError, match=r'best\.pt (cannot be read|does not hold)'): predict(copied, made.test)
    assert not trap.exists()
    if damage.startswith('pickle'):   # the trap works where unpickling is allowed
        pickle.loads(pickle.dumps(Attack(trap)))
        assert trap.exists()


# ---- the file

def test_the_table_is_written_whole_or_not_at_all(made, tmp_path, monkeypatch):
    table = predict(made.run('linear').folder, made.test).rename(columns={'red': 'röt, "dark"'})
    file = tmp_path / 'new' / 'labels.csv'
    write_csv(table, file)
    again = pd.read_csv(file, keep_default_na=False)
    assert again.columns.tolist() == table.columns.tolist() and again.labels.tolist() == table.labels.tolist() and again.image.tolist() == table.image.tolist()
    assert np.allclose(again[['blue', 'bright', 'röt, "dark"']], table[['blue', 'bright', 'röt, "dark"']], atol=1e-6)
    before = file.read_bytes()
    def full(*_, **__): raise OSError(28, 'No space left on device')
    with monkeypatch.context() as patched:
        patched.setattr(Path, 'write_text', full)
        with pytest.raises(SpmlError, match='labels.csv could not be written.*No space left'): write_csv(table[:2], file)
    assert file.read_bytes() == before and [path.name for path in file.parent.iterdir()] == ['labels.csv']
    write_csv(table[:2], file)
    assert len(pd.read_csv(file)) == 2


def test_classes_may_be_called_like_the_other_columns():
    table = prediction._table(['a.png'], np.array([[0.5, 0.2]]), ['image', 'labels'], 0.5)
    assert table.columns.tolist() == ['image', 'image', 'labels', 'labels'] and table.iloc[0].tolist() == ['a.png', 0.5, 0.2, 'image']
