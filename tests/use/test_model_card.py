"""The folder for a model hub: a card that the hubs can read, whose numbers are the run's, and a
model that works from it.
"""

import json
import re
import shlex
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from safetensors.torch import load_file
from trained import CLASSES

from spml_nb import training
from spml_nb.base.errors import SpmlError
from spml_nb.runs.config import Config
from spml_nb.use import model_card
from spml_nb.use.export import export, load_network, read_description
from spml_nb.use.model_card import Facts, write_model_folder
from spml_nb.use.predict import open_model, predict
from spml_nb.use.scoring import evaluate_model, score_labels


@pytest.fixture
def folder(made, tmp_path):
    return write_model_folder(made.run('cosine').folder, tmp_path / 'a model')


def test_the_layout_is_that_of_the_hubs(made, folder):
    from huggingface_hub import ModelCard

    assert sorted(path.name for path in folder.iterdir()) == [
        'README.md',
        'config.json',
        'model.safetensors',
    ]
    head = ModelCard((folder / 'README.md').read_text()).data
    assert (
        head.library_name == 'spml_nb'
        and head.pipeline_tag == 'image-classification'
        and head.license == 'unknown'
    )
    results = {result.metric_type: result for result in head.eval_results}
    assert (
        abs(results['mean_average_precision'].metric_value - made.run('cosine').scores['test_map'])
        < 0.006
    )
    assert (
        abs(results['f1'].metric_value - 100 * made.run('cosine').scores['test_micro_f1']) < 0.006
    )
    assert results['f1'].dataset_name == 'photos' and results['f1'].dataset_split == 'test'
    config = json.loads((folder / 'config.json').read_text())
    assert (
        config['id2label'] == {'0': 'blue', '1': 'bright', '2': 'red'}
        and config['label2id']['red'] == 2
        and config['threshold'] == made.run('cosine').scores['threshold']
    )
    assert (
        config['description'] == open_model(folder).description
        and config['preprocessing'] == open_model(folder).preprocessing
    )


def test_the_card_says_what_it_must(made, folder):
    text = (folder / 'README.md').read_text()
    for heading in (
        '# a model',
        '## Use',
        '## How well',
        '## Trained on',
        '## What it cannot do',
        '## Preprocessing',
        '## Made by',
    ):
        assert f'\n{heading}\n' in text
    data, run = made.data, made.run('cosine')
    for word in (
        f'| train | {len(data.rows("train"))} |',
        '95 % interval',
        f"{run.scores['threshold']:.4g}",
        run.folder.name,
        'not stated',
        'Fewer than 20 test photos have',
        'against all labels',
        'Of each training photo one of its labels was shown',
        'adaptive_lr 0.05',
    ):
        assert word in text, word
    assert '{' not in text.split('## Made by')[0].split('---\n', 2)[2]  # nothing of the template
    command = text.split('## Made by')[1].split('`')[1]
    assert (
        yaml.safe_load(command.split("'")[1])['hparams']['adaptive_lr'] == 0.05
        and str(made.folder) not in text
    )  # no path of this machine


def test_the_card_names_classes_that_no_test_photo_has():
    p, y = np.full((4, 2), 0.7), np.array([[1, -1], [-1, -1], [1, -1], [-1, -1]], np.int8)
    assert (
        'mAP over 1 of 2 classes: b cannot'
        in model_card._describe_scores(score_labels(p, y, ['a', 'b'], 0.5))['total']
    )


@pytest.mark.parametrize('hold_out', [True, False])
def test_what_was_not_chosen_is_not_said_to_be(made, tmp_path, monkeypatch, hold_out):
    for name, value in {
        'SPML_NB_RUNS': tmp_path / 'runs',
        'SPML_NB_CACHE': made.work / 'cache',
        'SPML_NB_DEVICE': 'cpu',
    }.items():
        monkeypatch.setenv(name, str(value))
    config = Config(
        dataset=str(made.folder),
        loss='an',
        backbone='mini',
        image_size=32,
        epochs=1,
        selection='last',
        hold_out=hold_out,
    )
    text = ' '.join(
        (write_model_folder(training.train(config).folder, tmp_path / 'm') / 'README.md')
        .read_text()
        .split()
    )
    n, m = (len(made.data.rows(part)) for part in ('train', 'val'))
    assert (
        'The epoch is the last.' in text
        and 'epoch was chosen' not in text
        and 'epoch and the threshold' not in text
    )
    if hold_out:
        assert (
            f'| train | {n} |' in text
            and 'The threshold was chosen on the validation photos, against all labels.' in text
        )
    else:
        assert (
            f'| train | {n + m} |' in text
            and '| val |' not in text
            and 'No photo was held out for validation, so the threshold was not chosen either.'
            in text
        )
        assert 'validation photos' not in text and 'They are not calibrated. ' in text


@pytest.mark.parametrize('selected_by', ['last', 'clean_map'])
def test_an_epoch_that_validation_could_not_choose_is_the_last(made, selected_by):
    result, calibration = {'scores': {'selected_by': selected_by}}, None
    run = SimpleNamespace(
        config=Config(dataset='photos'), result=lambda: result, calibration=lambda: calibration
    )
    assert model_card.describe_data(run, made.data)['last'] == (selected_by == 'last')


def test_the_command_survives_the_shell():
    command = model_card.training_command(Config(dataset='coco18', exclude=["men's shoe", 'a $b']))
    word, *rest, option, given = shlex.split(command)
    assert [word, *rest, option] == ['spml', 'train', '-y'] and json.loads(given)['exclude'] == [
        "men's shoe",
        'a $b',
    ]


def test_facts_stand_in_the_card(made, tmp_path):
    facts = Facts(
        license='cc-by-4.0',
        rights='Photos of ours.',
        limits=('It is blind at night.',),
        elsewhere='Half as good.',
        model='ours',
        command='make it',
    )
    text = (
        write_model_folder(made.run('linear').folder, tmp_path / 'm', facts) / 'README.md'
    ).read_text()
    for words in (
        'license: cc-by-4.0',
        'Photos of ours.',
        '- It is blind at night.\n',
        '## On other photos\n\nHalf as good.',
        'spml predict ours',
        '`make it`',
    ):
        assert words in text


def test_the_folder_is_a_model_like_any_other(made, folder, tmp_path):
    own = predict(made.run('cosine').folder, made.test)
    assert (
        predict(folder, made.test).equals(own)
        and own.attrs['threshold'] == made.run('cosine').scores['threshold']
    )
    assert predict(export(folder, tmp_path / 'again.safetensors'), made.test).equals(own)
    copy = write_model_folder(folder, tmp_path / 'copy')
    assert (copy / 'README.md').read_text() == (folder / 'README.md').read_text() and predict(
        copy, made.test
    ).equals(own)
    with pytest.raises(SpmlError, match='has no card beside it'):
        write_model_folder(tmp_path / 'again.safetensors', tmp_path / 'none')


@pytest.mark.parametrize('name', ['frozen', 'cosine'])
def test_a_head_without_its_backbone(made, tmp_path, name):
    """What a frozen backbone with its published weights allows; a trained one would be lost, so the
    file is refused.
    """
    from spml_nb.use.export import write_safetensors

    network, file = load_network(made.run(name).folder), tmp_path / 'head.safetensors'
    write_safetensors(network, file, head_only=True)
    assert (
        not [key for key in load_file(file) if key.startswith('backbone')]
        and file.stat().st_size < 20_000
    )
    if name == 'frozen':
        assert predict(file, made.test).equals(predict(made.run(name).folder, made.test))
    else:
        with pytest.raises(
            SpmlError, match='is a head for the pretrained weights .* but .* are installed'
        ):
            open_model(file)


def test_another_file_in_the_folder_is_not_lost(made, tmp_path):
    (tmp_path / 'full').mkdir()
    (tmp_path / 'full' / 'letter.txt').write_text('mine')
    with pytest.raises(SpmlError, match=r'has other files \(letter.txt\)'):
        write_model_folder(made.run('linear').folder, tmp_path / 'full')
    assert [path.name for path in (tmp_path / 'full').iterdir()] == ['letter.txt']
    (tmp_path / 'full' / 'letter.txt').rename(
        tmp_path / 'full' / 'README.md'
    )  # beside no model, it is nobody's card
    with pytest.raises(SpmlError, match=r'has other files \(README.md\)'):
        write_model_folder(made.run('linear').folder, tmp_path / 'full')
    assert (tmp_path / 'full' / 'README.md').read_text() == 'mine'
    (
        write_model_folder(made.run('linear').folder, tmp_path / 'm'),
        write_model_folder(made.run('cosine').folder, tmp_path / 'm'),
    )  # an earlier model is replaced
    assert open_model(tmp_path / 'm').description['method'] == 'hml'


def test_a_calibration_goes_along(made, tmp_path):
    """A slope and a shift for each label change probabilities and labels, in the folder and in what
    is exported from it, and the card's numbers with them.
    """

    def logit(table):
        return -np.log(1 / table.iloc[:, 1:-1].to_numpy(float) - 1)

    slope, shift = [2.0, 1.0, 0.5], [1.0, 0.0, -1.0]
    run = made.run('linear').folder
    folder = write_model_folder(run, tmp_path / 'm', calibration=[slope, shift])
    plain, fitted = predict(run, made.test), predict(folder, made.test)
    assert (
        np.allclose(logit(fitted), slope * logit(plain) + shift, atol=1e-4)
        and fitted.attrs['threshold'] == 0.5
    )
    assert fitted.labels.tolist() == [
        '|'.join(np.array(CLASSES)[row >= 0.5]) for row in fitted[CLASSES].to_numpy()
    ]
    assert predict(export(folder, tmp_path / 'again.safetensors'), made.test).equals(fitted)
    card, text = evaluate_model(folder, made.folder), (folder / 'README.md').read_text()
    assert (
        f"| precision | {card.total.value['precision']:.1f} |" in text
        and 'fitted to the validation photos' in text
        and 'not calibrated' not in text
    )
    said = json.loads((folder / 'config.json').read_text())['description']
    for wrong in ([[1.0], [0.0]], [slope, [0.0, 0.0, float('nan')]], slope):
        with pytest.raises(SpmlError, match=r'invalid \(calibration\)'):
            read_description(json.dumps(said | {'calibration': wrong}), folder)


def positives_only(folder):
    "The photos with the first of their labels each, in a column `positives`."
    table = pd.read_csv(folder / 'labels.csv')
    table.assign(positives=table.labels.str.split('|').str[-1]).drop(columns='labels').to_csv(
        folder / 'labels.csv', index=False
    )
    return folder


@pytest.mark.silent('A4')
@pytest.mark.filterwarnings('ignore:.*known negative')
def test_a_card_of_labels_that_are_observed_only_claims_nothing_that_was_not_measured(photo_folder):
    config = Config(
        dataset=str(positives_only(photo_folder)),
        loss='an',
        backbone='mini',
        image_size=32,
        epochs=2,
        regime='linear',
        labels='full',
    )
    run = training.train(config)
    folder = write_model_folder(run.folder, photo_folder / 'm')
    text = (folder / 'README.md').read_text()
    head = yaml.safe_load(text.split('---\n')[1])
    assert [metric['type'] for metric in head['model-index'][0]['results'][0]['metrics']] == [
        'recall'
    ]
    rows = [line for line in text.split('## Trained on')[0].splitlines() if line.startswith('|')]
    assert not [
        row for row in rows if row.split('|')[1].strip() in ('mAP', 'micro-F1', 'precision')
    ]
    assert [
        row for row in rows if row.startswith('| precision at least |')
    ] and 'lower bounds; mAP and F1 cannot be measured' in text
    assert 'labels a photo, and none to' in text and 'of which only some labels are known' in text
    assert load_network(run.folder).description['map'] is None  # nor does an exported file


@pytest.mark.silent('C9')
def test_no_name_is_markup_in_a_card(photo_folder, tmp_path):
    classes = {'red': '<img src=x onerror=alert(1)>', 'blue': '[b](javascript:x)', 'bright': 'c`d'}
    table = (photo_folder / 'labels.csv').read_text()
    for old, new in classes.items():
        table = table.replace(old, new)
    (photo_folder / 'labels.csv').write_text(table)
    config = Config(
        dataset=str(photo_folder),
        loss='an',
        backbone='mini',
        image_size=32,
        epochs=1,
        exclude=('c`d',),
    )
    run = training.train(config).folder
    folder = write_model_folder(run, tmp_path / '<b>model')
    text = (folder / 'README.md').read_text().split('---\n', 2)[2]
    assert '<' not in re.sub('`+ ?.*?(c`d.*?)? ?`+', '', text, flags=re.S) and '[b](' not in text
    assert (
        '&lt;img src=x onerror=alert(1)&gt;' in text
        and r'\[b\](javascript:x)' in text
        and '# &lt;b&gt;model' in text
    )
    assert json.loads((folder / 'config.json').read_text())['id2label'] == {
        '0': '<img src=x onerror=alert(1)>',
        '1': '[b](javascript:x)',
    }
