"Commands that use a trained model."

import io
import json
import shutil

import pandas as pd
import pytest
from PIL import Image
from quick import fields

from spml_nb.base import settings
from spml_nb.cli import main
from spml_nb.use import export as exporting
from spml_nb.use import scoring


@pytest.mark.silent('A4')
@pytest.mark.filterwarnings('ignore:.*known negative')
def test_predictions_say_how_many_labels_a_photo_the_threshold_names(
    capsys, photo_folder, tmp_path
):
    """And, of a run with one label a photo, what it names on validation, if the run has counted
    that.
    """
    table = photo_folder / 'labels.csv'
    table.write_text(table.read_text().replace('image,labels', 'image,positives'))
    words = [
        'train',
        *fields(dataset=photo_folder, labels='full', backbone='mini', regime='linear', epochs=1),
    ]
    assert main(words) == 0
    (run,) = settings.get_folder('runs').glob('*/result.json')
    result = json.loads(run.read_text())
    result['scores'] |= {
        'val_labels_a_photo': 1.25,
        'val_without_label': 0.5,
        'val_observed_recall': 0.75,
    }
    run.write_text(json.dumps(result))
    assert (
        main(words) == 0
        and '1.25 labels a photo, none on 50 % of the photos, and 75 % of the observed labels'
        in capsys.readouterr().out
    )
    assert (
        main(
            [
                'predict',
                run.parent.name,
                str(photo_folder / 'images'),
                '--out',
                str(tmp_path / 'said.csv'),
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    named = pd.read_csv(tmp_path / 'said.csv', keep_default_na=False).labels.map(
        lambda labels: len([*filter(None, labels.split('|'))])
    )
    assert (
        f'named: {named.mean():.2f} labels a photo, none on {100 * (named == 0).mean():.0f} %'
        in said
        and 'on validation 1.25 labels a photo' in said
    )
    for option in (['--per-class'], ['--threshold', '0.4']):
        assert main(['predict', run.parent.name, str(photo_folder / 'images'), *option]) == 0
        said = capsys.readouterr().err
        assert 'on validation' not in said  # that is what the one threshold names
        overall = f'all on: {named.mean():.2f} labels a photo, none on'
        assert (overall in said) == (option[0] == '--per-class')


@pytest.mark.silent('C8')
def test_a_photo_that_cannot_be_read_is_listed_and_the_status_says_so(tmp_path, capsys):
    photos, file = tmp_path / 'photos', tmp_path / 'found.csv'
    photos.mkdir()
    for k in range(3):
        Image.new('RGB', (40, 30), (90 * k, 80, 60)).save(photos / f'{k}.png')
    assert main(['predict', 'coco18', str(photos)]) == 0
    (photos / '1.png').write_bytes(b'no image')
    assert main(['predict', 'coco18', str(photos), '--out', str(file)]) == 1
    assert (
        pd.read_csv(file).image.tolist() == ['0.png', '2.png']
        and '1.png (not an image' in capsys.readouterr().err
    )


@pytest.mark.silent('C8')
@pytest.mark.parametrize(
    'words',
    [
        ['predict', 'coco18', '.', '--out', 'there.csv'],
        ['export', 'coco18', 'there.safetensors'],
        ['export', 'coco18', 'there', '--card'],
        ['export', 'coco18', '--card'],
    ],
)
def test_no_command_overwrites_a_file_that_is_named(tmp_path, capsys, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    for folder in ('there', 'coco18'):
        (tmp_path / folder).mkdir()
        shutil.copy(exporting.SHIPPED / 'coco18' / exporting.WEIGHTS, tmp_path / folder)
        (tmp_path / folder / 'README.md').write_text('by hand')
    Image.new('RGB', (40, 30)).save(tmp_path / 'x.png')
    for name in ('there.csv', 'there.safetensors'):
        (tmp_path / name).write_text('image,cat,labels\nx.png,0.4,cat\n')
    before = {file: file.read_bytes() for file in tmp_path.rglob('*') if file.is_file()}
    monkeypatch.setattr(scoring, 'open_model', lambda *_: pytest.fail('work was done'))
    assert main(words) == 2
    told = capsys.readouterr().err
    assert (
        words[2]
        if words[0] == 'export' and words[2] != '--card'
        else words[-1]
        if words[0] == 'predict'
        else 'coco18'
    ) in told
    assert {file: file.read_bytes() for file in tmp_path.rglob('*') if file.is_file()} == before


@pytest.mark.silent('A3')
def test_a_threshold_is_given_for_one_call(tmp_path, capsys):
    Image.new('RGB', (40, 30), 'green').save(tmp_path / 'x.png')
    labels = []
    for threshold in ('0.0001', '0.9999'):
        assert main(['predict', 'coco18', str(tmp_path), '--threshold', threshold]) == 0
        shown = capsys.readouterr()
        assert f'threshold {threshold}:' in shown.err
        labels.append(pd.read_csv(io.StringIO(shown.out), keep_default_na=False).labels[0])
    assert labels[0].count('|') > 5 and labels[1] == ''
    for threshold in ('0', '1', '-0.5', 'nan'):
        assert main(['predict', 'coco18', str(tmp_path), f'--threshold={threshold}']) == 2
        assert f'threshold={float(threshold)!r}' in capsys.readouterr().err
