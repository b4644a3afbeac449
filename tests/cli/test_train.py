"`spml train`: where its fields come from, and what it says at the end."

import json
import os
import shlex
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
from patience import within
from quick import fields
from scipy.special import expit
from side_files import draw_side

from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.cli import main
from spml_nb.data import load
from spml_nb.data.dataset import exclude_option
from spml_nb.runs import record
from spml_nb.runs.config import ADDED, Config, config_to_dict, resolve, science_key
from spml_nb.runs.config_parsing import parse_fields
from spml_nb.runs.folder import Run, open_run, read_result
from spml_nb.training import launch as parallel
from spml_nb.training import thresholds

ROOT = Path(__file__).resolve().parents[2]


def test_the_help_of_train_has_every_field_with_kind_default_and_meaning(capsys):
    with pytest.raises(SystemExit):
        main(['train', '--help'])
    lines = {
        line.split()[0]: ' '.join(line.split())
        for line in capsys.readouterr().out.splitlines()
        if line[:2] == '  ' and line.split()
    }
    assert set(Config.__annotations__) <= set(lines)
    assert (
        lines['loss'] == 'loss str em a registered method'
        and lines['lr'] == 'lr float of the backbone, and of the head on frozen features'
    )
    assert lines[
        'min_positives'
    ] == 'min_positives int 0 leave out classes with fewer positives' and lines[
        'batch_size'
    ].startswith('batch_size int 16 ')
    assert (
        lines['optimizer'] == 'optimizer str adam (adam, adamw, sgd)'
        and lines['regime'].count('linear_init') == 1
    )


def test_fields_come_from_a_file_and_the_command_line_comes_on_top(tmp_path, monkeypatch):
    (tmp_path / 'run.yml').write_text('loss: ls\nlr: 0.001\nseed: 3\nhparams: {smoothing: 0.2}\n')
    asked = []

    def launch(config, *words, **options):
        asked.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr(parallel, 'launch', launch)
    assert (
        main(['train', '-p', 'seed', '5', '-y', 'lr: 0.002', '--config', str(tmp_path / 'run.yml')])
        == 130
    )
    assert (asked[0].loss, asked[0].lr, asked[0].seed, asked[0].hparams) == (
        'ls',
        0.002,
        5,
        {'smoothing': 0.2},
    )


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        ('loss: [em', 'run.yml cannot be read as YAML: while parsing'),
        ('em', 'holds no fields'),
        ('1: 2', 'holds no fields'),
        (None, 'No such file'),
        ('lrr: 1', "unknown parameter 'lrr'"),
    ],
)
def test_a_wrong_file_of_fields_is_refused(tmp_path, capsys, content, message):
    if content:
        (tmp_path / 'run.yml').write_text(content)
    assert (
        main(['train', '--config', str(tmp_path / 'run.yml')]) == 2
        and message in capsys.readouterr().err
    )


def test_a_run_is_trained_from_the_terminal(capsys, photo_folder):
    words = [
        'train',
        *fields(loss='ls', dataset=photo_folder, backbone='mini', regime='linear', lr='1e-3'),
        '-y',
        '{epochs: 1, image_size: 40, hparams: {smoothing: 0.2}}',
    ]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert 'epoch  1/1' in told and 'test mAP' in told
    (run,) = (file.parent.name for file in settings.get_folder('runs').glob('*/config.json'))
    assert told.splitlines()[-1] == f'Next: spml predict {run} PHOTOS'
    (config,) = (
        json.loads(file.read_text()) for file in settings.get_folder('runs').glob('*/config.json')
    )
    assert (config['loss'], config['lr'], config['hparams']['smoothing']) == ('ls', 1e-3, 0.2)
    assert main(words) == 0 and 'already done' in capsys.readouterr().out


@pytest.fixture
def asked(monkeypatch):
    "The configurations that `spml train` would train."
    found = []

    def launch(config, nproc, tell):
        found.append(config)
        raise SpmlError('stop here')

    monkeypatch.setattr(parallel, 'launch', launch)
    return found


def test_like_takes_every_value_of_a_line_of_the_record(asked, monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))
    lines = record.read_record(ROOT / 'outputs' / 'runs.csv')
    some = pd.concat(
        [
            lines.iloc[::150],
            lines[lines.dataset.str.startswith('mini')].head(1),
            lines[lines.loss.isin(['hml', 'opml_sp'])].head(2),
        ]
    )
    for k, line in enumerate(some.itertuples()):
        names = (line.run, line.key)
        for name in names if k % 8 == 0 else [names[k % 2]]:
            main(['train', '--like', name])
            assert science_key(resolve(asked.pop())) == line.key


def test_like_is_changed_by_what_is_given(asked, monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))
    lines = record.read_record(ROOT / 'outputs' / 'runs.csv')
    line = lines[lines.loss == 'opml_sp'].iloc[0]
    main(['train', '--like', line.run, '-p', 'seed', '7', '-y', 'hparams: {gamma: 3.5}'])
    main(['train', '--like', line.run, '-p', 'loss', 'hml'])
    changed, other = asked
    assert changed.seed == 7 and changed.label_seed == line.label_seed and changed.lr == line.lr
    assert changed.hparams == json.loads(line.hparams) | {'gamma': 3.5}
    assert other.hparams == {} and resolve(other).head == 'cosine' and other.lr == line.lr


def test_another_method_brings_its_own_recipe(asked, photo_folder):
    words = [
        'train',
        *fields(backbone='mini', regime='linear', dataset=photo_folder, epochs=1),
        '-p',
        'loss',
    ]
    main([*words, 'an'])
    folder = Path(Run(resolve(asked[0])).folder)
    folder.mkdir(parents=True)
    (folder / 'config.json').write_text(json.dumps(config_to_dict(resolve(asked[0]))))
    for name in ('result.json', 'metrics.csv'):
        (folder / name).write_text(
            '{"scores": {"val_map": 1}, "class_names": [], "seconds": 1, "data": "0", '
            '"provenance": {"commit": null}}'
        )
    (folder / 'DONE').touch()
    for loss in ('lac', 'llr'):
        main([*words, loss])
        main(['train', '--like', folder.name, '-p', 'loss', loss])
        assert resolve(asked[-1]) == resolve(asked[-2])


def test_like_never_takes_other_photos_in_silence(asked, capsys, photo_folder):
    """The record has names and no paths: a folder may be called like a data set, and a run in it be
    of others.
    """
    folder = photo_folder.rename(photo_folder.with_name('mini_nus'))
    run = Run(resolve(Config(loss='an', dataset=str(folder), backbone='mini', regime='linear')))
    run.start()
    run.finish(
        {
            'scores': {'test_map': 1.0},
            'seconds': 1.0,
            'data': load(folder).fingerprint,
            'provenance': {'commit': None},
        }
    )
    table = record.export_csv()
    shutil.rmtree(run.folder)
    assert main(['train', '--like', run.folder.name]) == 2 and not asked
    assert (
        f"{run.folder.name} was trained on other photos or labels than 'mini_nus' has here"
        in capsys.readouterr().err
    )
    main(['train', '--like', table.key[0], '-p', 'dataset', str(folder)])
    assert asked[0].dataset == str(folder)


def test_like_of_a_run_of_an_older_version_has_what_its_fields_stood_for(asked):
    run = Run(resolve(Config(loss='lac_plc', dataset='mini_voc', views='shift', regime='linear')))
    run.start()
    fields = json.loads((run.folder / 'config.json').read_text())
    (run.folder / 'config.json').write_text(
        json.dumps({name: value for name, value in fields.items() if name not in ADDED})
    )
    (run.folder / 'result.json').write_text(
        '{"scores": {}, "seconds": 1, "data": "0", "provenance": {"commit": null}}'
    )
    (run.folder / 'DONE').touch()
    main(['train', '--like', run.folder.name])
    assert resolve(asked[0]).views == 'shift'


def test_numbers_are_read_as_they_are_written_and_mappings_come_together(asked, capsys):
    main(
        [
            'train',
            *fields(loss='em', seed='010', lr='1e-3', hparams='{alpha: 0.1}'),
            *fields(hparams='{reduction: sum}', image_size='null'),
        ]
    )
    assert (asked[0].seed, asked[0].lr, asked[0].image_size) == (10, 1e-3, None) and asked[
        0
    ].hparams == {'alpha': 0.1, 'reduction': 'sum'}
    main(['train', '-p', 'dataset', 'shoot #2'])
    main(['train', '-p', 'dataset', "'shoot #2'", '-p', 'exclude', "['a #1', b]"])
    assert asked[1].dataset == asked[2].dataset == 'shoot #2' and list(asked[2].exclude) == [
        'a #1',
        'b',
    ]  # for YAML a comment begins there
    for wrong in ('1:30', '0x10', 'true'):
        assert (
            main(['train', '-p', 'seed', wrong]) == 2
            and f"not '{wrong}'" in capsys.readouterr().err
        )


def test_like_of_a_damaged_run_is_told(capsys, monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))
    run = record.read_record(ROOT / 'outputs' / 'runs.csv').run[0]
    (settings.get_folder('runs') / run).mkdir(parents=True)
    (settings.get_folder('runs') / run / 'config.json').write_text('{')
    assert (
        main(['train', '--like', run]) == 2
        and 'config.json cannot be read: ' in capsys.readouterr().err
    )


def test_hyper_parameters_of_several_places_come_together(asked, tmp_path):
    (tmp_path / 'run.yml').write_text('loss: em_apl\nhparams: {alpha: 0.5}\n')
    main(
        [
            'train',
            '--config',
            str(tmp_path / 'run.yml'),
            '-y',
            'hparams: {beta: 0.7}',
            '-y',
            'hparams: {warm_up: 2}',
            '-p',
            'hparams',
            '{beta: 0.6}',
        ]
    )
    assert asked[0].hparams == {'alpha': 0.5, 'beta': 0.6, 'warm_up': 2}


def test_side_information_belongs_to_its_method(capsys, photo_folder, tmp_path, monkeypatch):
    words = [
        'train',
        *fields(loss='epr_count', dataset=photo_folder, backbone='mini', regime='linear', epochs=1),
    ]
    assert (
        main(words) == 2
        and "'epr_count' learns from more than labels (count)" in capsys.readouterr().err
    )
    draw_side(photo_folder, tmp_path / 'known.csv')
    monkeypatch.chdir(tmp_path)
    assert main([*words, '-p', 'side', 'known.csv']) == 0
    (folder,) = settings.get_folder('runs').glob('epr_count-*')
    assert json.loads((folder / 'config.json').read_text())['side'].startswith(
        f'{tmp_path}/known.csv@'
    )
    (tmp_path / 'known.csv').unlink()
    assert main(['train', '--like', folder.name, '-p', 'loss', 'an']) == 0  # which uses none
    assert (
        main(['train', '--like', folder.name, '-p', 'seed', '1']) == 2
        and 'known.csv is not there' in capsys.readouterr().err
    )


def test_like_finds_a_run_of_this_machine_and_one_that_only_the_record_has(capsys, monkeypatch):
    words = ['train', *fields(dataset='mini_voc', regime='linear', epochs=1, device='cpu')]
    seen, launch = [], parallel.launch
    monkeypatch.setattr(
        parallel,
        'launch',
        lambda config, nproc, tell: seen.append(config) or launch(config, nproc, tell=tell),
    )
    assert main(words) == 0
    (folder,) = (done.parent for done in settings.get_folder('runs').glob('*/DONE'))
    told, key = capsys.readouterr().out.splitlines()[-1], record.load().key[0]
    assert (
        main(['train', '--like', folder.name]) == 0
        and capsys.readouterr().out.splitlines()[-1] == told
    )  # done already
    record.export_csv()
    shutil.rmtree(folder)
    assert (
        main(['train', '--like', key]) == 0 and capsys.readouterr().out.splitlines()[-1] == told
    )  # the same score, trained again
    assert [science_key(resolve(config)) for config in seen] == [key] * 3
    assert (
        main(['train', '--like', key[:-3] + 'xyz']) == 2
        and f'Similar: {key}' in capsys.readouterr().err
    )


def test_scores_against_observed_labels_are_marked_where_a_run_is_trained(capsys, photo_folder):
    table = photo_folder / 'labels.csv'
    table.write_text(table.read_text().replace('image,labels', 'image,positives'))
    words = [
        'train',
        *fields(dataset=photo_folder, labels='full', backbone='mini', regime='linear', epochs=1),
    ]
    with pytest.warns(UserWarning, match='known negative'):
        assert main(words) == 0
    (run,) = settings.get_folder('runs').glob('*/result.json')
    scores = json.loads(run.read_text())['scores']
    said = capsys.readouterr().out
    assert (
        f'validation observed AUC {scores["observed_val_auc"]:.2f}; '
        f'test observed AUC {scores["observed_test_auc"]:.2f}\n' in said
    )
    assert (
        f'mAP against observed labels (validation {scores["val_map"]:.2f}, '
        f'test {scores["test_map"]:.2f})' in said
    )


@pytest.mark.parametrize('column', ['positives', 'labels'])
@pytest.mark.filterwarnings('ignore:.*known negative')
def test_a_run_that_names_hardly_a_class_says_so_where_no_f1_does(
    capsys, photo_folder, monkeypatch, column
):
    table = photo_folder / 'labels.csv'
    table.write_text(table.read_text().replace('image,labels', f'image,{column}'))
    asked = []
    monkeypatch.setattr(
        thresholds,
        'explain_narrow_naming',
        lambda photos, classes, _: asked.append((photos, classes)) or 'hardly any',
    )
    words = ['train', *fields(dataset=photo_folder, backbone='mini', regime='linear', epochs=1)]
    assert main(words) == 0
    assert ('On validation hardly any\n' in capsys.readouterr().out) == (column == 'positives')
    if asked:
        run = open_run(next(settings.get_folder('runs').glob('*/DONE')).parent)
        named = expit(read_result(run).logits['val'].astype(float)) >= run.threshold()
        names = run.result()['class_names']
        assert asked == [(dict(zip(names, named.sum(0).tolist(), strict=True)), len(names))]


@pytest.mark.silent('C4')
def test_a_test_map_that_counts_classes_without_a_photo_as_0_says_so(capsys, photo_folder):
    table = pd.read_csv(photo_folder / 'labels.csv')
    split = [
        'train' if 'blue' in labels else ('train', 'test')[k % 4 == 0]
        for k, labels in enumerate(table.labels)
    ]
    table.assign(split=split).to_csv(photo_folder / 'labels.csv', index=False)
    words = [
        'train',
        *fields(dataset=photo_folder, loss='an', backbone='mini', regime='linear', epochs=1),
    ]
    assert (
        main([*words, '-p', 'map_definition', 'cole']) == 0
        and 'classes that no test photo has count 0' in capsys.readouterr().out
    )
    assert main(words) == 0 and 'count 0' not in capsys.readouterr().out


def test_a_number_is_a_text_where_the_field_is_one(monkeypatch):
    asked = []

    def launch(config, *words, **options):
        asked.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr(parallel, 'launch', launch)
    assert (
        main(['train', *fields(dataset=2024, seed=7, exclude=3, root='null', device='cpu')]) == 130
    )
    assert (asked[0].dataset, asked[0].seed, asked[0].exclude, asked[0].root) == (
        '2024',
        7,
        ('3',),
        None,
    )
    for text, names in (
        ('null', ('null',)),
        ('-', ('-',)),
        ('?, cat', ('?', 'cat')),
        ('[a, "b, c"]', ('a', 'b, c')),
        ('[2019, b]', ('2019', 'b')),
    ):
        main(['train', '-p', 'exclude', text])
        assert asked[-1].exclude == names


@pytest.mark.silent('C10')
@pytest.mark.parametrize(
    'text',
    [
        'a: ' + '[' * 1500,
        'lr: 1' + '0' * 5000,
        'lr: 0x' + 'f' * 5000,
        'seed: [' + '1, ' * 20_000 + ']',
        'loss: ' + 'x' * 10**6,
    ],
)
def test_a_large_or_deep_value_is_one_short_error(text, tmp_path, capsys):
    (tmp_path / 'run.yml').write_text(text)
    assert main(['train', '--config', str(tmp_path / 'run.yml')]) == 2
    said = capsys.readouterr().err
    assert said.startswith('error: ') and len(said) < 12_000


@pytest.mark.silent('C10')
def test_a_pipe_for_a_configuration_is_named_and_not_waited_for(tmp_path, capsys):
    os.mkfifo(tmp_path / 'run.yml')
    with within(20):
        assert main(['train', '--config', str(tmp_path / 'run.yml')]) == 2
    assert 'run.yml cannot be read' in capsys.readouterr().err


@pytest.mark.silent('C11')
@pytest.mark.parametrize(
    'words',
    [
        ['-y', 'seed: 010'],
        ['-y', 'epochs: 1:30'],
        ['-p', 'exclude', '[010]'],
        ['-y', 'hparams: {alpha: 012}'],
    ],
)
def test_what_yaml_reads_otherwise_than_a_person_is_refused(words, capsys):
    assert main(['train', *words]) == 2
    assert 'which YAML reads as' in capsys.readouterr().err


@pytest.mark.silent('C11')
def test_plain_numbers_and_texts_with_zeros_are_what_they_look_like(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(
        parallel, 'launch', lambda config, *_, **__: given.append(config) or sys.exit(0)
    )
    for words in (
        ['-y', "seed: 0", '-p', 'lr', '0.01'],
        ['-p', 'seed', '010'],
        ['-y', "dataset: '010'"],
        ['-p', 'dataset', '010'],
    ):
        with pytest.raises(SystemExit):
            main(['train', *words])
    assert [given[0].seed, given[0].lr, given[1].seed, given[2].dataset, given[3].dataset] == [
        0,
        0.01,
        10,
        '010',
        '010',
    ]


def test_a_threshold_that_names_nearly_everything_is_said_after_the_training(photo_folder, capsys):
    words = ['train', *fields(dataset=photo_folder, backbone='mini', regime='linear', epochs=1)]
    assert main(words) == 0
    (run,) = settings.get_folder('runs').glob('*/result.json')
    result = json.loads(run.read_text())
    result['thresholds'] |= {'named': 2.9, 'labels': 1.2}
    run.write_text(json.dumps(result))
    assert main(words) == 0
    said = capsys.readouterr().out
    assert '2.90 labels' in said and '1.20 are there' in said and 'spml calibrate' in said


@pytest.mark.parametrize(
    'pairs, remedy',
    [
        ((('exclude', 'stop sign'), ('exclude', 'bear')), "`-p exclude 'stop sign, bear'`"),
        ((('exclude', '["a, b"]'), ('exclude', 'bear')), """`-p exclude '["a, b", "bear"]'`"""),
        ((('lr', '0.1'), ('seed', '1'), ('lr', '0.2')), "'0.1' and as '0.2'"),
    ],
)
def test_a_field_given_twice_is_refused(pairs, remedy, capsys):
    assert main(['train', *(word for pair in pairs for word in ('-p', *pair))]) == 2
    assert remedy in capsys.readouterr().err


def test_the_names_of_a_remedy_are_read_as_those_classes():
    for names in (['stop sign', 'bear'], ['a, b', 'c'], ['[x]', "cat's"]):
        _, field, text = shlex.split(exclude_option(names))
        assert list(Config(**parse_fields([(field, text)])).exclude) == names
