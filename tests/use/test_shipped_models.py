"The models that come with the package: small, with whole cards, chosen by validation, and at work."

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from spml_nb.base.errors import SpmlError
from spml_nb.replication import tables
from spml_nb.runs.config import resolve
from spml_nb.runs.folder import Run
from spml_nb.use import shipped_models as made_of
from spml_nb.use.export import SHIPPED, WEIGHTS, export, load_network, shipped_models
from spml_nb.use.predict import open_model, predict

ROOT = Path(__file__).resolve().parents[2]
CLASSES = {'coco18': 18, 'mirflickr14': 14, 'voc12_animals': 13}


def test_they_are_there_and_small():
    assert {*shipped_models()} == {*CLASSES} == {*made_of.PHOTOS}
    for name in CLASSES:
        assert sum(path.stat().st_size for path in (SHIPPED / name).iterdir()) <= 300 * 1024


@pytest.mark.parametrize('name', CLASSES)
def test_weights_configuration_and_card_say_the_same(name):
    config = json.loads((SHIPPED / name / 'config.json').read_text())
    text = (SHIPPED / name / 'README.md').read_text()
    with safe_open(SHIPPED / name / WEIGHTS, 'pt') as opened:
        said = {key: json.loads(value) for key, value in opened.metadata().items()}
        assert not [key for key in opened.keys() if key.startswith('backbone')]
    assert (
        said['class_names'] == [*config['id2label'].values()]
        and len(said['class_names']) == CLASSES[name]
    )
    assert (
        said['threshold'] == config['threshold']
        and said['preprocessing'] == config['preprocessing']
        and said['spml_nb']['backbone_key'] == '653246f58bc51a83'
    )
    for words in (
        *said['class_names'],
        f"{config['threshold']:.4g}",
        'license: apache-2.0',
        '95 % interval',
        '## What it cannot do',
        'It must not be used to watch, identify or judge people',
        f"pack_shipped_model('{name}')",
        config['description']['run'],
    ):
        assert words in text, words
    assert '/work' not in text and 'None' not in text


@pytest.mark.parametrize('name', CLASSES)
def test_the_record_has_the_run_and_its_scores(name, monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))
    known = tables.read_recorded_runs()
    said = json.loads((SHIPPED / name / 'config.json').read_text())['description']
    run = known[known.run == said['run']].iloc[0]
    assert (run.loss, run['head'], run.labels, run.seed, run.dataset) == (
        said['method'],
        said['head'],
        'single',
        0,
        name,
    )
    assert (
        abs(run.test_map - said['map']) < 1e-4
        and f'| mAP | {run.test_map:.1f} |' in (SHIPPED / name / 'README.md').read_text()
    )
    assert (
        Run(resolve(made_of.shipped_config(name))).folder.name == said['run'] == made_of.RUNS[name]
    )  # what `pack` trains again


def test_they_name_photos_without_training(tmp_path):
    rng = np.random.RandomState(0)
    for k in range(3):
        Image.fromarray(rng.randint(0, 255, (90, 120, 3), dtype=np.uint8)).save(
            tmp_path / f'{k}.png'
        )
    table = predict('coco18', tmp_path)
    assert (
        len(table) == 3
        and {'person', 'dog', 'fire hydrant'} <= set(table)
        and table.attrs['threshold'] == open_model('coco18').threshold
    )
    whole = export(
        'coco18', tmp_path / 'whole.safetensors'
    )  # with its backbone: for people without this package
    assert whole.stat().st_size > 5e6 and predict(whole, tmp_path).equals(table)


def test_a_folder_of_the_same_name_is_not_taken_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path('coco18').mkdir()
    assert load_network('coco18').description['method'] == 'hml'
    with pytest.raises(SpmlError, match='no run'):
        load_network(Path('coco18'))


def test_counts_by_hand():
    named = np.array([1, 1, 1, 1, 0, 0], bool)
    seen = made_of.score_label(named, np.array([1, 1, 1, 0, 1, 0], bool))
    assert (seen['precision'], seen['recall'], seen['false_alarms']) == (75, 75, 50) and abs(
        seen['share'] - 100 * 4 / 6
    ) < 1e-9
    assert (
        abs(seen['low'] - 30.06) < 0.01 and abs(seen['high'] - 95.44) < 0.01
    )  # Wilson's interval of 3 in 4, as statsmodels gives it
    assert made_of.score_label(np.zeros(3, bool), np.zeros(3, bool))['precision'] == 0


def test_the_card_says_how_far_people_fall():
    """The precision that the card promises, the one on other photos, and the command: in the card
    of coco18.
    """
    text = (
        (SHIPPED / 'coco18' / 'README.md')
        .read_text()
        .split('## On other photos')[1]
        .split('\n## ')[0]
    )
    assert (
        '600 of mirflickr14, `people`' in text
        and '1,200 of coco18, `person`' in text
        and "elsewhere('coco18')" in text
    )
    own, other = (
        float(line.split('|')[2])
        for line in text.splitlines()
        if line.startswith('| ') and ' of ' in line
    )
    per_label = (SHIPPED / 'coco18' / 'README.md').read_text().split('\n| person |')[1].split('|')
    assert abs(float(per_label[3]) - own) < 0.06 and f'{other:.1f} %' in text


@pytest.mark.slow
@pytest.mark.skipif(
    not (ROOT.parent / 'shared' / 'data' / 'coco18').is_dir(), reason='the photos are not here'
)
def test_what_the_card_says_of_people_is_what_comes_out(monkeypatch):
    monkeypatch.setenv('SPML_NB_DATA', str(ROOT.parent / 'shared' / 'data'))
    assert (
        made_of.measure_precision_elsewhere('coco18')
        in (SHIPPED / 'coco18' / 'README.md').read_text()
    )
