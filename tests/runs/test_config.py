"""A configuration is checked, completed and named by a hash, which later fields do not change; the
parameters of a notebook are guarded.
"""

import compileall
import dataclasses
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from spml_nb.base.errors import SpmlError
from spml_nb.runs import config as configs
from spml_nb.runs import record
from spml_nb.runs.config import ADDED, Config, config_hash, notebook_parameters, resolve
from spml_nb.runs.folder import Run


@pytest.mark.parametrize(
    'given, words',
    [
        ({'loss': 'emm'}, ["unknown loss 'emm'", 'allowed:', "Did you mean 'em'?"]),
        ({'hparams': {'alfa': 1}}, ["'alfa'", 'allowed: alpha', "Did you mean 'alpha'?"]),
        ({'hparams': {'alpha': 'much'}}, ["'alpha'", 'must be a number', "'much'"]),
        ({'lrr': 1}, ["unknown parameter 'lrr'", "Did you mean 'lr'?"]),
        ({'lr': 'abc'}, ["'lr'", 'must be a number', "'abc'"]),
        ({'lr': 0}, ['lr must be above 0']),
        ({'epochs': 1.5}, ["'epochs'", 'whole number', '1.5']),
        ({'seed': True}, ["'seed'", 'whole number', 'True']),
        ({'regime': 'frozen'}, ["unknown regime 'frozen'", 'finetune, linear, linear_init']),
        ({'selection': 'test'}, ["unknown selection 'test'", 'val_clean, val_observed, last']),
        ({'momentum': 1}, ['momentum must be below 1']),
        ({'train_images': -1}, ['train_images must be 0 or more, not -1']),
        ({'momentum': 0, 'nesterov': True}, ['nesterov: true needs momentum above 0']),
        ({'device': 'tpu', 'loss': 'an'}, ['tpu']),
    ],
)
def test_wrong_configuration_is_told(given, words):
    with pytest.raises(SpmlError) as error:
        resolve(Config(**given))
    for word in words:
        assert word in str(error.value)


def test_numeric_strings_are_numbers():
    config = resolve(Config(lr='1e-4', epochs='3', hparams={'alpha': '2e-1'}))
    assert (config.lr, config.epochs, config.hparams['alpha']) == (1e-4, 3, 0.2)


@pytest.mark.parametrize(
    ('field', 'value', 'limit'),
    [
        ('lr', 0.0, 'above 0'),
        ('embedding_dim', -4, 'above 0'),
        ('patience', -1, '0 or more'),
        ('ema', 1.0, 'below 1'),
        ('seed', -1, '0 or more'),
    ],
)
def test_a_number_out_of_its_range_is_refused_with_the_limit(field, value, limit):
    with pytest.raises(SpmlError, match=f'^{field} must be {limit}, not {value}'):
        Config(**{field: value})
    for no_number in (float('nan'), float('inf'), 10**400, '1e999'):
        with pytest.raises(SpmlError, match=f"'{field}' must be a (whole )?number"):
            Config(**{field: no_number})


def test_classes_to_leave_out_are_a_list_or_names_with_commas():
    assert Config(exclude='skin, hair,').exclude == ('skin', 'hair')
    for names in (['skin', 2019], ('skin', 2019)):  # YAML reads a class called 2019 as a number
        assert Config(exclude=names).exclude == ('skin', '2019')
    with pytest.raises(SpmlError, match="'exclude' must be a list"):
        Config(exclude={'skin': 1})


def test_configurations_can_be_hashed_pickled_and_not_changed():
    config = Config(loss='em', exclude=['skin'], hparams={'alpha': 0.1})
    again = pickle.loads(pickle.dumps(config))
    assert again == config and hash(again) == hash(config) and vars(again) == vars(config)
    assert hash(Config()) == hash(Config(lr=None)) and len({Config(), Config(), config}) == 2
    assert Config() != Config(seed=1) and Config() != 'em'
    # a run is named by the JSON of its configuration, in which these differ
    assert Config(hparams={'alpha': 1}) != Config(hparams={'alpha': 1.0})
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.lr = 0.1
    with pytest.raises(TypeError):
        Config('em')


def test_a_changed_configuration_is_checked_where_it_has_changed():
    config = Config(loss='em', lr=0.1, optimizer='sgd')
    assert config.changed(lr='1e-3', seed=2) == replace(config, lr=1e-3, seed=2)
    assert config.lr == 0.1 and list(vars(config.changed(lr=1e-3))) == list(vars(config))
    for values, words in (
        ({'lr': 0}, 'lr must be above 0'),
        ({'lrr': 1}, "unknown parameter 'lrr'"),
        ({'momentum': 0, 'nesterov': True}, 'nesterov: true needs momentum'),
    ):
        with pytest.raises(SpmlError, match=words):
            config.changed(**values)


def test_every_field_says_what_it_is_for_or_what_it_may_be():
    for field in dataclasses.fields(Config):
        assert field.metadata['meaning'] or field.metadata['choices'], field.name


def test_help_needs_no_sources(tmp_path):
    "As in an installation that holds compiled files alone."
    source = Path(configs.__file__).parents[1]
    package = tmp_path / 'spml_nb'
    shutil.copytree(source, package, ignore=shutil.ignore_patterns('__pycache__', 'assets'))
    compileall.compile_dir(package, quiet=1, legacy=True)
    for file in package.rglob('*.py'):
        file.unlink()
    code = (
        'import spml_nb\nfrom spml_nb.cli import main\n'
        'assert spml_nb.__file__.endswith("__init__.pyc")\nmain(["train", "--help"])'
    )
    environment = os.environ | {'PYTHONPATH': str(tmp_path)}
    done = subprocess.run(
        [sys.executable, '-c', code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for field in dataclasses.fields(Config):
        assert f'  {field.name} ' in done.stdout and field.metadata['meaning'] in done.stdout


def test_unset_hyper_parameters_take_the_papers_value():
    assert resolve(Config(loss='em', dataset='mini_voc')).hparams['alpha'] == 0.2
    assert resolve(Config(loss='em', dataset='mini_cub')).hparams['alpha'] == 0.01
    assert (
        resolve(Config(loss='em', dataset='mini_cub', hparams={'alpha': 0.3})).hparams['alpha']
        == 0.3
    )


def test_hash_names_the_resolved_configuration():
    base = resolve(Config())
    assert config_hash(base) == config_hash(resolve(Config(epochs=base.epochs, lr=base.lr)))
    assert config_hash(base) != config_hash(resolve(Config(hparams={'alpha': 0.11})))


def test_a_folder_of_photos_is_no_miniature_by_its_name():
    for dataset in ('mini_cooper', './mini_cooper', './mini_voc', '/photos/mini_voc'):
        config = resolve(Config(loss='an', dataset=dataset))
        assert (config.backbone, config.image_size, config.views) == ('resnet50', 448, 'flip')
    for dataset in ('mini_voc', 'mini_coco', 'mini_nus', 'mini_cub'):
        config = resolve(Config(loss='an', dataset=dataset))
        assert (config.backbone, config.image_size, config.views) == ('mini', 40, 'shift')
    before = {
        'device': 'cpu',
        'epochs': 10,
        'patience': 0,
        'head_lr_multiplier': 10,
        'linear_epochs': 25,
    }  # the protocol's values then
    assert config_hash(resolve(Config(loss='an', dataset='mini_voc', **before))) == '69b6dd554d1c'
    a, b = (
        resolve(Config(loss='an', dataset='./mini_cooper', views=views))
        for views in ('shift', 'flip')
    )
    assert config_hash(a) != config_hash(b)


def test_notebook_guard():
    cells = {}
    parameters = notebook_parameters(cells)
    cells |= {'loss': 'lac', 'los': 'em', 'os': os, '_private': 1}
    assert parameters() == {'loss': 'lac', 'los': 'em'}
    with pytest.raises(SpmlError, match="lost its tag 'parameters'"):
        notebook_parameters({'loss': 'lac'})
    with pytest.raises(SpmlError, match="lost its tag 'parameters'"):
        notebook_parameters({'unheard_of': 3})


def test_all_cells_can_be_run_again_in_the_same_kernel():
    cells = {}
    for loss in ('em', 'lac'):
        parameters = notebook_parameters(cells)
        cells |= {'parameters': parameters, 'loss': loss}
        given = parameters()
        assert given == {'loss': loss}
        cells |= {'given': given, 'config': Config(**given), 'task': 3}  # what later cells set
    cells['seed'] = 1
    assert parameters() == {'loss': 'lac', 'seed': 1}  # a field that is new is taken


def test_runs_are_listed_and_named_without_torch():
    code = (
        'import sys\nfrom spml_nb import runs\nfrom spml_nb.runs import record\n'
        'runs.load(), runs.read_record, runs.Run, runs.open_run\n'
        'config = runs.Config(loss="em", dataset="mini_voc")\n'
        'assert runs.config_hash(config) and runs.science_key(config).startswith("em-mini_voc-")\n'
        'assert "torch" not in sys.modules'
    )
    subprocess.run([sys.executable, '-c', code], check=True)


# ---- names: fields that are added later rename no run that was trained before

OLD = {  # resolved configurations and their hashes from before any field was added
    '4155857aa148': {
        'loss': 'em',
        'dataset': 'mini_voc',
        'root': None,
        'min_positives': 0,
        'exclude': [],
        'labels': 'single',
        'label_seed': 1200,
        'seed': 0,
        'regime': 'finetune',
        'backbone': 'mini',
        'weights': 'default',
        'head': 'linear',
        'image_size': 40,
        'epochs': 10,
        'batch_size': 16,
        'lr': 0.001,
        'head_lr_multiplier': 10.0,
        'linear_epochs': 25,
        'linear_lr': 0.001,
        'optimizer': 'adam',
        'weight_decay': 0.0,
        'momentum': 0.9,
        'schedule': 'constant',
        'ema': 0.0,
        'selection': 'val_clean',
        'patience': 0,
        'stop_below': 0.0,
        'cached_views': 4,
        'precision': 'float32',
        'device': 'cpu',
        'hparams': {'alpha': 0.2, 'reduction': 'mean'},
    },
    '011066baa5db': {
        'loss': 'hml',
        'dataset': 'ccp',
        'root': None,
        'min_positives': 40,
        'exclude': ['skin', 'hair'],
        'labels': 'single',
        'label_seed': 1200,
        'seed': 0,
        'regime': 'linear',
        'backbone': 'efficientnet_lite0',
        'weights': 'default',
        'head': 'cosine',
        'image_size': 224,
        'epochs': 25,
        'batch_size': 16,
        'lr': 0.001,
        'head_lr_multiplier': 10.0,
        'linear_epochs': 25,
        'linear_lr': 0.001,
        'optimizer': 'adam',
        'weight_decay': 0.0,
        'momentum': 0.9,
        'schedule': 'constant',
        'ema': 0.0,
        'selection': 'val_clean',
        'patience': 0,
        'stop_below': 0.0,
        'cached_views': 4,
        'precision': 'float32',
        'device': 'cpu',
        'hparams': {
            'scale': 20.0,
            'margin': 0.3,
            'margin_on': 'both',
            'unknown': 'negative',
            'adaptive_lr': 0.01,
            'reduction': 'mean',
        },
    },
}


@pytest.mark.parametrize('name', OLD)
def test_fields_added_later_rename_no_old_run(name):
    config = Config(**OLD[name])
    assert config_hash(config) == config_hash(resolve(config)) == name


@pytest.mark.parametrize(
    'field, value',
    [
        ('frozen_stages', 1),
        ('freeze_batchnorm', True),
        ('normalise', False),
        ('views', 'flip'),
        ('map_definition', 'two_way'),
        ('hold_out', False),
        ('train_images', 40),
        ('trained_validation', 'alone'),
    ],
)
def test_a_field_added_later_counts_where_it_is_used(field, value):
    assert field in ADDED
    old = Config(**OLD['4155857aa148'])
    base = replace(old, selection='last') if field == 'hold_out' else old
    assert config_hash(replace(base, **{field: value})) != config_hash(base)
    assert config_hash(
        replace(base, **{field: configs.neutral_fields('mini_voc')[field]})
    ) == config_hash(base)


def test_a_folder_named_by_one_word_counts_by_its_content(tmp_path, monkeypatch):
    for place, names in (('here', 'xy'), ('there', 'pq')):
        (images := tmp_path / place / 'photos' / 'images').mkdir(parents=True)
        for k in range(8):
            (images / f'{k}.jpg').write_bytes(b'0')
        (images.parent / 'labels.csv').write_text(
            '\n'.join(['image,labels', *(f'{k}.jpg,{names[k % 2]}' for k in range(8))])
        )

    def key(place):
        monkeypatch.chdir(tmp_path / place)
        return configs.science_key(resolve(Config(dataset='photos', device='cpu')))

    assert key('here') != key('there') and key('here') == key('here')


def test_seeds_that_no_generator_takes_are_refused():
    for name in ('seed', 'label_seed'):
        assert getattr(Config(**{name: 2**32 - 1}), name) == 2**32 - 1
        with pytest.raises(
            SpmlError, match=f'^{name} must be below 4294967296, not 18446744073709551616'
        ):
            Config(**{name: 2**64})


def test_side_information_counts_by_its_name_and_content(tmp_path):
    "And a run of a method without it has the name that it had before the field existed."
    given = {'loss': 'epr_count', 'dataset': 'mini_voc', 'device': 'cpu'}
    files = [tmp_path / place / 'side.csv' for place in 'ab']
    for file in files:
        file.parent.mkdir()
        file.write_text('image,count\n1,2\n')
    one, two = (resolve(Config(side=file, **given)) for file in files)
    assert (
        one.side == f'{files[0]}@{one.side[-16:]}' and one.side != two.side and resolve(one) == one
    )
    assert config_hash(one) == config_hash(two) and configs.science_key(one) == configs.science_key(
        two
    )
    files[1].write_text('image,count\n1,3\n')
    other = resolve(Config(side=files[1], **given))
    assert config_hash(other) != config_hash(one) and configs.science_key(
        other
    ) != configs.science_key(one)
    files[0].unlink()
    assert (
        config_hash(resolve(replace(one, seed=1))) != config_hash(resolve(one)) == config_hash(one)
    )  # the name of a run needs no file


def test_methods_with_a_strong_view_on_drawn_images_have_new_names_because_their_view_changed():
    config = resolve(Config(loss='lac', dataset='mini_coco', device='cpu'))
    assert config.views == 'shift_hue' and config_hash(config) != config_hash(
        replace(config, views='shift')
    )


def test_tables_give_old_runs_the_values_that_everything_had_then(tmp_path):
    run = Run(Config(**OLD['011066baa5db']), tmp_path / 'runs')
    run.start()
    (run.folder / 'config.json').write_text(pd.Series(OLD['011066baa5db']).to_json())
    run.finish(
        {'scores': {'test_map': 1.0}, 'seconds': 1.0, 'data': 'x', 'provenance': {'commit': None}}
    )
    row = record.load(tmp_path / 'runs').iloc[0]
    assert (row.frozen_stages, row.normalise, row.views, row.hold_out, row.map_definition) == (
        0,
        True,
        'flip',
        True,
        'cole',
    )
    pd.DataFrame(
        [
            {
                'run': 'older',
                'key': 'k',
                'loss': 'em',
                'seed': 0,
                'seconds': 1.0,
                'dataset': 'mini_voc',
                'hparams': '{}',
                'test_map': 2.0,
            }
        ]
    ).to_csv(tmp_path / 'runs.csv', index=False)
    both = record.export_csv(tmp_path / 'runs.csv', tmp_path / 'runs').set_index('run')
    assert both.loc['older', ['frozen_stages', 'views', 'normalise']].tolist() == [
        '0',
        'shift',
        'True',
    ]


def test_a_folder_is_known_by_its_name_and_content_wherever_it_lies(photo_folder, tmp_path):
    elsewhere = tmp_path / 'moved' / photo_folder.name
    shutil.copytree(photo_folder, elsewhere)
    given = {'loss': 'an', 'backbone': 'mini', 'device': 'cpu'}
    one, two = (
        configs.science_key(resolve(Config(dataset=str(place), **given)))
        for place in (photo_folder, elsewhere)
    )
    assert one == two
    table = elsewhere / 'labels.csv'
    table.write_text(table.read_text().replace('red', 'crimson'))
    assert configs.science_key(resolve(Config(dataset=str(elsewhere), **given))) != one


def test_runs_whose_code_has_changed_since_have_new_names():
    """The label-wise head is another, and SGD need not be Nesterov's: neither may be taken for a
    run of before.
    """
    given = {'loss': 'an', 'dataset': 'mini_voc', 'device': 'cpu'}
    plain, labelwise = (resolve(Config(head=head, **given)) for head in ('linear', 'labelwise'))
    assert configs._renaming(plain) == {} and configs._renaming(labelwise) == {'decoder': 2}
    sgd = resolve(Config(optimizer='sgd', **given))
    assert sgd.nesterov is False and config_hash(sgd) != config_hash(replace(sgd, nesterov=True))


@pytest.mark.silent('A5')
@pytest.mark.parametrize('dataset', ['mini_voc', 'coco14', 'ccp'])
def test_named_sets_show_one_label_unless_told_otherwise(dataset):
    assert (
        Config().labels is None
        and resolve(Config(dataset=dataset)).labels == 'single'
        and resolve(Config(dataset=dataset, labels='full')).labels == 'full'
    )
    assert config_hash(resolve(Config(dataset=dataset))) == config_hash(
        resolve(Config(dataset=dataset, labels='single'))
    )


@pytest.mark.silent('A5')
def test_a_folder_of_ones_own_shows_all_labels_unless_told_otherwise(photo_folder, tmp_path):
    own = str(photo_folder)
    assert (
        resolve(Config(dataset=own)).labels == 'full'
        and resolve(Config(dataset=own, labels='single')).labels == 'single'
    )
    assert resolve(Config(dataset=str(tmp_path / 'coco14'))).labels == 'full'  # a path is no name


@pytest.mark.silent('C4')
def test_a_class_without_positives_is_left_out_on_folders_and_named_sets_keep_their_names():
    folder, named = (
        resolve(Config(dataset=dataset, device='cpu'))
        for dataset in ('/photos/of/mine', 'voc12_animals')
    )
    assert (
        folder.map_definition == 'two_way'
        and named.map_definition == 'cole'
        and resolve(named) == named
    )
    assert config_hash(named) == config_hash(
        replace(named, map_definition=None)
    )  # as it was before the field existed
    old = replace(folder, map_definition='cole')  # what a run on a folder stood for
    assert config_hash(folder) != config_hash(old) and resolve(old).map_definition == 'cole'
    assert (
        configs.complete_fields({'dataset': '/photos/of/mine', 'loss': 'an'})['map_definition']
        == 'cole'
    )


@pytest.mark.silent('C11')
@pytest.mark.parametrize(
    ('name', 'value'), [('dataset', 2024), ('exclude', 2019), ('weights', 1.5)]
)
def test_a_number_for_a_text_names_the_option_of_papermill(name, value):
    with pytest.raises(SpmlError, match=f'-r {name} {value}'):
        Config(**{name: value})


@pytest.mark.silent('C11')
def test_a_nul_character_is_refused():
    with pytest.raises(SpmlError, match="'dataset'.*NUL"):
        Config(dataset='a\0b')


@pytest.mark.silent('C11')
def test_a_name_that_is_not_utf_8_can_be_hashed():
    assert len(config_hash(Config(dataset='ph\udcff'))) == 12
