"""A trained run on any images: the same numbers as its evaluation, whole tables, and one clear
message for what cannot be done.
"""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from patience import within
from PIL import Image
from trained import CLASSES, CONFIGS, change_threshold

from spml_nb import cli, runs
from spml_nb import data as datasets
from spml_nb.base.errors import SpmlError, SpmlWarning
from spml_nb.data.decoding import PHOTOS
from spml_nb.data.folder import parse_label_table, read_label_table
from spml_nb.use import predict as prediction
from spml_nb.use import predictor
from spml_nb.use.predict import name_likeliest, open_model, predict, write_csv
from spml_nb.use.predictor import find_images


@pytest.mark.parametrize('name', CONFIGS)
def test_predictions_are_those_of_the_evaluation(made, name):
    result = made.run(name)
    table = predict(result.folder, made.test)
    assert table.columns.tolist() == ['image', *CLASSES, 'labels'] and table.image.tolist() == list(
        map(str, made.test)
    )
    stored = 1 / (1 + np.exp(-result.logits['test'].astype(np.float64)))
    assert np.abs(table[CLASSES].to_numpy() - stored).max() < 1e-6 and np.ptp(stored) > 0.01
    threshold = result.scores['threshold']
    assert table.labels.tolist() == [
        '|'.join(c for c, p in zip(CLASSES, row, strict=True) if p >= threshold)
        for row in table[CLASSES].to_numpy()
    ]


def test_neither_data_set_nor_pretrained_weights_are_needed(made, tmp_path, monkeypatch):
    copied = made.copy('linear', tmp_path)
    config = json.loads((copied / 'config.json').read_text())
    config |= {'dataset': str(tmp_path / 'gone'), 'weights': str(tmp_path / 'gone.pt')}
    (copied / 'config.json').write_text(json.dumps(config))
    copied = copied.rename(runs.Run(runs.Config(**config), tmp_path).folder)
    monkeypatch.setattr(datasets, 'load', lambda *_, **__: pytest.fail('the data set was opened'))
    assert np.array_equal(
        predict(copied, made.test)[CLASSES], predict(made.run('linear').folder, made.test)[CLASSES]
    )


def test_a_batch_or_two_passes_change_nothing_and_random_numbers_stay(made, monkeypatch):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    whole = predict(made.run('frozen, random').folder, made.test)
    assert torch.equal(torch.rand(3), expected)
    monkeypatch.setattr(predictor, 'DECODED_BYTES', 0)
    one = predict(made.run('frozen, random').folder, made.test, batch_size='1')
    assert np.allclose(one[CLASSES], whole[CLASSES], atol=1e-6)


def test_a_run_by_its_name_and_a_function_of_the_package(made, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(made.work / 'runs'))
    from spml_nb import predict as function

    assert function is predict and len(predict(made.run('linear').folder.name, made.test[0])) == 1


def test_the_package_alone_loads_no_torch():
    code = (
        'import sys, spml_nb; assert "torch" not in sys.modules and spml_nb.__version__\ntry: '
        'spml_nb.nothing\nexcept AttributeError as error: assert "nothing" in str(error)\nelse: '
        'raise SystemExit("no error")\nfrom spml_nb import predict; assert predict.__module__ == '
        '"spml_nb.use.predict"'
    )
    subprocess.run([sys.executable, '-c', code], check=True)


def test_a_folder_is_searched_with_all_below_it_in_order(made, tmp_path):
    folder = Path(shutil.copytree(made.folder, tmp_path / 'mine'))
    (folder / 'images' / '.hidden.png').write_bytes(b'x')
    (folder / 'images' / '.thumbs').mkdir()
    (folder / 'images' / '.thumbs' / 'x.png').write_bytes(b'x')
    (folder / 'images' / 'folder.png').mkdir()
    (folder / 'images' / 'notes.txt').write_text('x')
    names, sources = find_images(str(folder))
    assert (
        names
        == sorted(
            f'images/{path.relative_to(made.folder / "images").as_posix()}'
            for path in made.data.images
        )
        and len(names) == 48
    )
    assert {Path(name).suffix for name in names} == {
        '.png',
        '.JPG',
        '.gif',
        '.webp',
        '.tif',
        '.bmp',
    } and all(path.is_file() for path in sources)
    assert predict(made.run('linear').folder, folder).image.tolist() == names


@pytest.mark.skipif('.heic' in PHOTOS, reason='pillow-heif is installed')
def test_photos_of_formats_that_are_left_out_are_counted(tmp_path):
    for name in ('a.jfif', 'b.jpg'):
        Image.new('RGB', (4, 4)).save(tmp_path / name, 'jpeg')
    for name in ('c.HEIC', 'd.heic', 'e.jxl', '.f.heic', 'g.txt'):
        (tmp_path / name).touch()
    with pytest.warns(SpmlWarning, match=r'has 3 photos that are left out \(\.heic, \.jxl\)'):
        assert find_images(tmp_path)[0] == ['a.jfif', 'b.jpg']
    for name in ('c.HEIC', 'd.heic', 'e.jxl'):
        (tmp_path / name).unlink()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert find_images(tmp_path)[0] == ['a.jfif', 'b.jpg']


def test_a_list_of_folders_is_refused_in_words(made):
    with pytest.raises(SpmlError, match='not the folder .* in a list. Give one at a time'):
        predict(made.run('linear').folder, [made.folder, made.folder])


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
    assert names == ['linked/deep/x.png', 'own/gone.png', 'own/x.png'] and sources == [
        folder / name for name in names
    ]
    (tmp_path / 'entrance').symlink_to(folder)
    assert find_images(tmp_path / 'entrance')[0] == names


def test_an_unreadable_folder_is_told(tmp_path, monkeypatch):
    Image.new('RGB', (4, 4)).save(tmp_path / 'x.png')
    (tmp_path / 'locked' / 'in').mkdir(parents=True)
    (tmp_path / '.hidden').mkdir()
    scan, look = os.scandir, os.stat

    def refusing(call):  # root may read everything, so that rights alone would not do
        def guarded(path, *given, **options):
            if {'locked', '.hidden'} & set(Path(os.fspath(path)).parts[len(tmp_path.parts) :]):
                raise PermissionError(13, 'Permission denied', str(path))
            return call(path, *given, **options)

        return guarded

    monkeypatch.setattr(os, 'scandir', refusing(scan))
    with pytest.raises(
        SpmlError, match=r'locked cannot be searched for images \(Permission denied\)'
    ):
        find_images(tmp_path)
    monkeypatch.setattr(os, 'stat', refusing(look))
    with pytest.raises(
        SpmlError, match=r'locked/in cannot be searched for images \(Permission denied\)'
    ):
        find_images(tmp_path / 'locked' / 'in')
    (tmp_path / 'locked' / 'in').rmdir()
    (tmp_path / 'locked').rmdir()
    assert find_images(tmp_path)[0] == ['x.png']


def test_opened_images_are_treated_like_files_and_stay_as_they_are(made):
    turned = next(
        path
        for path in made.data.images
        if path.suffix == '.JPG' and Image.open(path).getexif()[0x0112] == 6
    )
    opened = Image.open(turned)
    size = opened.size
    table = predict(made.run('linear').folder, [opened, turned, str(turned), opened])
    assert table.image.tolist() == ['0', str(turned), str(turned), '3'] and opened.size == size
    assert np.ptp(table[CLASSES].to_numpy(), axis=0).max() < 1e-6
    with pytest.raises(SpmlError, match='(?s)1 of 2 images cannot be used: 1 .*32 bits'):
        predict(made.run('linear').folder, [opened, Image.new('F', (4, 4))])


def test_all_unreadable_images_are_named_before_anything_is_predicted(made, tmp_path, monkeypatch):
    (tmp_path / 'empty.png').touch()
    (tmp_path / 'cut.webp').write_bytes(made.test[0].read_bytes()[:60])
    shutil.copy(made.test[0], tmp_path / 'good.png')
    (tmp_path / 'text.gif').write_text('no image')
    monkeypatch.setattr(predictor.Network, 'forward', lambda *_: pytest.fail('predicted'))
    with pytest.raises(
        SpmlError,
        match=r'3 of 4 images cannot be used: cut\.webp \(.*empty\.png \(an empty file\).*'
        r'text\.gif \(not an image',
    ) as told:
        predict(made.run('linear').folder, tmp_path)
    assert 'good.png' not in str(told.value)
    with pytest.raises(SpmlError, match=r'1 of 2 images.*gone\.png \(No such file'):
        predict(made.run('linear').folder, [tmp_path / 'good.png', tmp_path / 'gone.png'])


@pytest.mark.parametrize(
    'given, told',
    [
        ([], 'no image in the list'),
        ('nowhere', 'no folder or image nowhere'),
        (7, 'not int'),
        (None, 'not NoneType'),
        (np.zeros((2, 4, 4, 3), np.uint8), 'not ndarray.*fromarray'),
        ([['a.png']], 'not list'),
    ],
)
def test_what_is_no_image_is_refused(made, given, told):
    with pytest.raises(SpmlError, match=told):
        predict(made.run('linear').folder, given)


def test_an_empty_folder_is_refused(made, tmp_path):
    (tmp_path / 'notes.txt').write_text('x')
    with pytest.raises(SpmlError, match=r'no image in .*looked for .*\.jpeg'):
        predict(made.run('linear').folder, tmp_path)


@pytest.mark.parametrize(
    'given, told',
    [
        ({'batch_size': 0}, 'at least 1, not 0'),
        ({'batch_size': 'x'}, "batch_size must be a whole number, not 'x'"),
        ({'device': 'tpu'}, "unknown device 'tpu'"),
    ],
)
def test_wrong_options(made, given, told):
    with pytest.raises(SpmlError, match=told):
        predict(made.run('linear').folder, made.test, **given)


def test_bytes_of_another_shape_are_refused(made):
    model = open_model(made.run('linear').folder)
    assert model(np.zeros((2, 3, 32, 32), np.uint8)).shape == (2, 3)
    for wrong in (
        np.zeros((2, 3, 32, 32), np.float32),
        np.zeros((2, 3, 40, 40), np.uint8),
        np.zeros((3, 32, 32), np.uint8),
    ):
        with pytest.raises(SpmlError, match=r'takes \(B, 3, 32, 32\) uint8'):
            model(wrong)


def test_the_table_is_written_whole_or_not_at_all(made, tmp_path, monkeypatch):
    table = predict(made.run('linear').folder, made.test).rename(columns={'red': 'röt, "dark"'})
    file = tmp_path / 'new' / 'labels.csv'
    folder = file.parent
    write_csv(table, file)
    again = pd.read_csv(file, keep_default_na=False)
    assert (
        again.columns.tolist() == ['image', 'labels', *table.columns[1:-1]]
        and again.labels.tolist() == table.labels.tolist()
        and again.image.tolist() == table.image.tolist()
    )
    assert np.allclose(
        again[['blue', 'bright', 'röt, "dark"']],
        table[['blue', 'bright', 'röt, "dark"']],
        atol=1e-6,
    )
    before = file.read_bytes()

    def full(path, content):
        path.write_text('half a table')
        raise OSError(28, 'No space left on device')

    with monkeypatch.context() as patched:
        patched.setattr(Path, 'write_bytes', full)
        with pytest.raises(SpmlError, match='more.csv could not be written.*No space left'):
            write_csv(table[:2], folder / 'more.csv')
    assert file.read_bytes() == before and [path.name for path in folder.iterdir()] == [
        'labels.csv'
    ]
    write_csv(table, file)  # the same again
    file.unlink()
    write_csv(table[:2], file)
    assert len(pd.read_csv(file)) == 2


@pytest.mark.parametrize(
    'text',
    [
        'image,labels\na.png,red\n',
        'image,positives,split\na.png,red,train\n',
        'image,split,labels\na.png,train,red\n',
        'image,red,blue\na.png,1,0\n',
        '',
        'a diary',
        'image,blue,bright,red,labels\na.png,0.1,0.9,0.2,red\n',
    ],
)  # predictions, corrected by hand
@pytest.mark.silent('C8')
def test_a_table_that_is_there_is_never_replaced(made, tmp_path, text):
    file = tmp_path / 'labels.csv'
    file.write_text(text)
    with pytest.raises(SpmlError, match=r'labels\.csv'):
        write_csv(predict(made.run('linear').folder, made.test[:1]), file)
    assert file.read_text() == text and [path.name for path in tmp_path.iterdir()] == ['labels.csv']


@pytest.mark.silent('C8')
def test_one_unreadable_photo_does_not_cost_the_others_their_labels(made, tmp_path, monkeypatch):
    names = [f'{k}.png' for k in range(4)]
    for name in names:
        shutil.copy(made.test[0], tmp_path / name)
    (tmp_path / '1.png').write_bytes(b'no image')
    expected = predict(
        made.run('linear').folder, [tmp_path / name for name in names if name != '1.png']
    )
    for kept in (predictor.DECODED_BYTES, 0):  # decoded once or twice
        monkeypatch.setattr(predictor, 'DECODED_BYTES', kept)
        table = predict(made.run('linear').folder, tmp_path, batch_size=2, skip_unreadable=True)
        assert table.image.tolist() == ['0.png', '2.png', '3.png'] and list(
            table.attrs['unusable']
        ) == ['1.png']
        assert (
            np.allclose(table[CLASSES], expected[CLASSES], atol=1e-6)
            and table.labels.tolist() == expected.labels.tolist()
        )
    assert expected.attrs['unusable'] == {}
    with pytest.raises(SpmlError, match=r'1 of 1.*1\.png'):
        predict(made.run('linear').folder, tmp_path / '1.png', skip_unreadable=True)


@pytest.mark.silent('C8')
def test_a_photo_of_every_suffix_that_trains_is_predicted(made, tmp_path):
    names = {f'x{suffix}' for suffix in PHOTOS | {'.avif', '.jfif'}}
    for name in names:
        shutil.copy(made.test[0], tmp_path / name)  # the suffix does not say the format
    assert predict(made.run('linear').folder, tmp_path).image.tolist() == sorted(names)


@pytest.mark.silent('C8')
@pytest.mark.parametrize('value', [np.nan, np.inf, -np.inf])
def test_a_model_that_gives_no_numbers_names_no_labels(value):
    description = {
        'class_names': ['cat', 'dog'],
        'threshold': 0.5,
        'image_size': 8,
        'resize': 'squash',
        'normalise': False,
        'mean': [0.0] * 3,
        'std': [1.0] * 3,
    }

    class Broken(torch.nn.Module):
        def forward(self, pixels):
            return torch.tensor([[1.0, value]]).expand(len(pixels), 2)

    network = Broken()
    network.description = description
    with pytest.raises(SpmlError, match=r'1 of its 2 classes \(dog\)'):
        predictor.as_predictor(network, 'cpu').predict(Image.new('RGB', (9, 9)))


@pytest.mark.silent('A3')
def test_a_threshold_of_the_caller_comes_before_the_models(made):
    model = open_model(made.run('linear').folder)
    own = model.predict(made.test)
    threshold = float(np.median(own[CLASSES]))
    table = model.predict(made.test, threshold=threshold)
    assert (
        table.attrs['threshold'] == threshold
        and own.attrs['threshold'] == model.threshold == made.run('linear').scores['threshold']
    )
    assert table.labels.tolist() == [
        '|'.join(c for c, p in zip(CLASSES, row, strict=True) if p >= threshold)
        for row in own[CLASSES].to_numpy()
    ]
    assert model.predict(made.test).labels.tolist() == own.labels.tolist()


@pytest.mark.silent('A3')
@pytest.mark.parametrize('threshold', [0, 1, -0.1, 1.5, float('nan'), float('inf'), 'much', True])
def test_a_threshold_that_is_no_probability_is_refused(made, threshold):
    with pytest.raises(SpmlError, match=f'threshold={threshold!r}'):
        predict(made.run('linear').folder, made.test, threshold=threshold)


@pytest.mark.silent('C3')
def test_a_hidden_colour_changes_no_probability(made):
    pixels, tables = np.random.default_rng(0).integers(0, 256, (40, 40, 4), dtype=np.uint8), []
    for hidden in ([0, 0, 0], [240, 30, 10]):
        pixels[:, 20:] = *hidden, 0
        tables.append(predict(made.run('linear').folder, Image.fromarray(pixels)))
    assert np.array_equal(tables[0][CLASSES], tables[1][CLASSES])


def test_classes_may_be_called_like_the_other_columns():
    table = predictor._make_table(['a.png'], np.array([[0.5, 0.2]]), ['image', 'labels'], 0.5)
    assert table.columns.tolist() == ['image', 'image', 'labels', 'labels'] and table.iloc[
        0
    ].tolist() == ['a.png', 0.5, 0.2, 'image']


# ---- spreadsheets


@pytest.mark.silent('C9')
def test_predictions_hold_no_formula_and_are_read_back_as_labels(tmp_path):
    images = ['=x.png', '-y.png', 'a/+z.png', 'a\rb.png', 'q,"r".png']
    classes = ['=1+1', '@b', 'c, d']
    (tmp_path / 'images' / 'a').mkdir(parents=True)
    for image in images:
        Image.new('RGB', (4, 4)).save(tmp_path / 'images' / image)
    there = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 0], [0, 1, 0]])
    table = predictor._make_table(images, there.astype(float), classes, 0.5)
    write_csv(table, tmp_path / 'found.csv')
    write_csv(table, tmp_path / 'found.csv')  # it is known as a table of predictions
    with open(tmp_path / 'found.csv', newline='') as file:
        rows = list(csv.reader(file, strict=True))
    assert len(rows) == 6 and not [
        cell for row in rows for cell in row if cell[:1] in tuple('=+-@')
    ]
    (tmp_path / 'labels.csv').write_text(
        prediction.as_csv(table[['image', 'labels']]), encoding='utf-8', newline=''
    )
    listing = read_label_table(tmp_path / 'labels.csv')
    labels, names = parse_label_table(listing, tmp_path / 'labels.csv')
    assert names == sorted(classes) and ((labels > 0) == there[:, np.argsort(classes)]).all()
    assert [os.path.normpath(name) for name in listing.image] == images


@pytest.mark.silent('C9')
def test_plain_predictions_are_written_as_before(tmp_path):
    table = predictor._make_table(
        ['a/1.png', '2.png'], np.array([[0.25, 1e-7], [1, 0]]), ['cat', 'dog'], 0.2
    )
    write_csv(table, tmp_path / 'found.csv')
    assert (
        tmp_path / 'found.csv'
    ).read_text() == 'image,labels,cat,dog\na/1.png,cat,0.25,1e-07\n2.png,cat,1,0\n'


@pytest.mark.silent('C10')
def test_a_pipe_for_a_photo_is_named_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / 'a.png')
    with within(20), pytest.raises(SpmlError, match='a.png.*pipe'):
        predictor.read_images(['a.png'], [tmp_path / 'a.png'], 8, 'squash')


def test_each_class_may_have_a_threshold_of_its_own(made):
    folder = made.run('linear').folder
    table = predict(folder, made.test, per_class=True)
    thresholds = table.attrs['threshold']
    assert list(thresholds) == CLASSES
    named = table[CLASSES].to_numpy() >= list(thresholds.values())
    expected = ['|'.join(np.array(CLASSES)[row]) for row in named]
    assert table['labels'].tolist() == expected
    assert isinstance(predict(folder, made.test).attrs['threshold'], float)
    with pytest.raises(SpmlError, match=r'threshold=0\.3 .* per_class'):
        predict(folder, made.test, threshold=0.3, per_class=True)
    with pytest.raises(SpmlError, match='spml calibrate RUN FOLDER'):
        predict('coco18', made.test, per_class=True)


def test_a_photo_may_have_a_name_that_is_not_utf_8(made, tmp_path):
    photo = next((made.folder / 'images').rglob('*.png'))
    shutil.copy(photo, os.fsencode(tmp_path) + b'/caf\xe9.png')
    table = predict(made.run('linear').folder, tmp_path)
    assert table['image'].tolist() == ['caf\udce9.png']


def test_so_many_labels_as_are_asked_for_the_likeliest_first():
    columns = ['image', 'b', 'a', 'c', 'labels']
    table = pd.DataFrame([['1', 0.1, 0.7, 0.2, 'a'], ['2', 0.3, 0.3, 0.3, '']], columns=columns)
    table.attrs['threshold'] = 0.5
    assert name_likeliest(table, 1)['labels'].tolist() == ['a', 'b']
    assert name_likeliest(table, 2)['labels'].tolist() == ['a|c', 'b|a']
    assert name_likeliest(table, 9)['labels'].tolist() == ['a|c|b', 'b|a|c']
    assert table['labels'].tolist() == ['a', ''] and name_likeliest(table, 1).attrs == table.attrs
    with pytest.raises(SpmlError, match='top=0'):
        name_likeliest(table, 0)


def test_the_command_names_the_likeliest_and_leaves_out_what_is_damaged(tmp_path, capsys):
    Image.new('RGB', (40, 30), 'green').save(tmp_path / 'good.png')
    assert cli.main(['predict', 'coco18', str(tmp_path), '--top', '3']) == 0
    printed = capsys.readouterr()
    table = pd.read_csv(io.StringIO(printed.out))
    p = predict('coco18', tmp_path).iloc[0, 1:-1].astype(float)
    assert table['labels'][0].split('|') == p.nlargest(3).index.tolist()
    (tmp_path / 'bad.png').write_bytes(b'no photo')
    assert cli.main(['predict', 'coco18', str(tmp_path), '--top', '1']) == 1
    printed = capsys.readouterr()
    assert 'bad.png' in printed.err and 'bad.png' not in printed.out and 'good.png' in printed.out
    for wrong in (['--per-class'], ['--threshold', '0.5']):
        assert cli.main(['predict', 'coco18', str(tmp_path), '--top', '1', *wrong]) == 2


def test_what_probabilities_are_is_said_beside_the_file_that_has_them(made, tmp_path, capsys):
    photos = list(map(str, made.test))
    run = str(made.run('linear').folder)
    for words in ([], ['--top', '1'], ['--per-class']):
        out = tmp_path / f'{len(words)}{"".join(words)}.csv'
        assert cli.main(['predict', run, *photos, *words, '--out', str(out)]) == 0
        assert prediction.WHAT_PROBABILITIES_ARE in capsys.readouterr().out
    assert cli.main(['predict', run, *photos]) == 0
    assert prediction.WHAT_PROBABILITIES_ARE not in str(capsys.readouterr())


@pytest.mark.parametrize('is_calibrated', [False, True])
def test_a_threshold_that_labelled_photos_chose_is_not_sent_to_them_again(
    made, tmp_path, capsys, is_calibrated
):
    run = made.copy('linear', tmp_path)
    change_threshold(run, 1e-9)
    result = json.loads((run / 'result.json').read_text())
    result['thresholds']['labels'] = 1.2
    (run / 'result.json').write_text(json.dumps(result))
    if is_calibrated:
        calibration = {'threshold': 1e-9, 'photos': 50, 'labels_a_photo': 1.2}
        (run / runs.folder.CALIBRATION).write_text(json.dumps(calibration))
    assert predict(run, made.test).attrs['calibrated'] == is_calibrated
    assert predict('coco18', made.test).attrs['calibrated']
    assert cli.main(['predict', str(run), *map(str, made.test)]) == 0
    told = capsys.readouterr().err
    assert 'labels are named on a photo' in told and ('calibrate' in told) == (not is_calibrated)
