"""A trained model in one file: the same probabilities from every format, everything inside, and
nothing in a file is ever executed.
"""

import io
import json
import pickle
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from trained import CLASSES, Attack

from spml_nb import models
from spml_nb.base.errors import SpmlError
from spml_nb.data import images
from spml_nb.data.loading import load as load_photos
from spml_nb.runs.folder import open_run
from spml_nb.use import export as exporting
from spml_nb.use.export import export, load_exported
from spml_nb.use.model_card import write_model_folder
from spml_nb.use.predict import open_model, predict


@pytest.fixture
def exported(made, tmp_path):
    "A run's .safetensors file, a copy to do anything with."
    first = made.work / 'first.safetensors'
    if not first.is_file():
        export(made.run('cosine').folder, first)
    return Path(shutil.copy(first, tmp_path / 'model.safetensors'))


def pixels_of(photos, preprocessing):
    "What another program does for `squash_image`, written from the words in the file."
    size = preprocessing['image_size']

    def bytes_of(file):
        with Image.open(file) as image:
            return np.asarray(
                images.to_upright_rgb(image).resize((size, size), Image.Resampling.BILINEAR)
            )

    return np.stack([bytes_of(file) for file in photos]).transpose(0, 3, 1, 2).copy()


# ---- the same probabilities


@pytest.mark.parametrize(
    'name',
    [
        'linear',
        'cosine',
        'label-wise',
        'frozen',
        'frozen, label-wise',
        'frozen, random',
        'crop',
        'as they are',
    ],
)
def test_safetensors_say_the_same_as_the_run(made, tmp_path, name):
    folder = made.run(name).folder
    model = load_exported(export(folder, tmp_path / 'model.safetensors'))
    own = predict(folder, made.test)
    assert model.predict(made.test).equals(own) and predict(
        tmp_path / 'model.safetensors', made.test
    ).equals(own)
    assert model.class_names == CLASSES and model.threshold == made.run(name).scores['threshold']
    again = export(
        tmp_path / 'model.safetensors', tmp_path / 'again.safetensors'
    )  # a file is as good as a run
    assert load_file(again).keys() == load_file(
        tmp_path / 'model.safetensors'
    ).keys() and load_exported(again).predict(made.test).equals(own)


@pytest.mark.parametrize('name', ['cosine', 'frozen, label-wise'])
def test_onnx_and_torch_programs_say_the_same_as_the_run(made, tmp_path, name):
    import onnx
    import onnxruntime

    folder = made.run(name).folder
    files = {suffix: export(folder, tmp_path / f'model{suffix}') for suffix in ('.onnx', '.pt2')}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        'model.onnx',
        'model.pt2',
    ]  # no weights beside them
    own = predict(folder, made.test)
    model = load_exported(files['.onnx'])
    for given in (made.test, made.test[:1]):
        assert (
            np.abs(
                model.predict(given)[CLASSES].to_numpy() - own[CLASSES][: len(given)].to_numpy()
            ).max()
            < 1e-5
        )
    assert predict(files['.onnx'], made.test).labels.tolist() == own.labels.tolist()
    onnx.checker.check_model(onnx.load(files['.onnx']), full_check=True)
    session = onnxruntime.InferenceSession(files['.onnx'], providers=['CPUExecutionProvider'])
    assert session.get_inputs()[0].shape[0] == session.get_outputs()[0].shape[0] == 'batch'
    said = {k: json.loads(v) for k, v in session.get_modelmeta().custom_metadata_map.items()}
    extra = dict.fromkeys((f'{k}.json' for k in said), '')
    program = torch.export.load(files['.pt2'], extra_files=extra).module()
    assert {k.removesuffix('.json'): json.loads(v) for k, v in extra.items()} == said
    assert (
        said['class_names'] == CLASSES
        and said['threshold'] == made.run(name).scores['threshold']
        and said['preprocessing'] == model.preprocessing
        and said['class_thresholds'] == model.class_thresholds
        and len(model.class_thresholds) == len(CLASSES)
    )
    pixels = pixels_of(made.test, said['preprocessing'])
    for n in (1, 5, len(pixels)):  # any number of images at once
        assert (
            np.abs(session.run(None, {'images': pixels[:n]})[0] - own[CLASSES][:n].to_numpy()).max()
            < 1e-5
        )
        assert (
            np.abs(
                program(torch.from_numpy(pixels[:n])).detach().numpy() - own[CLASSES][:n].to_numpy()
            ).max()
            < 3e-5
        )  # maps are rounded to halves


# ---- everything inside


def test_the_header_says_all(made, exported):
    with safe_open(exported, 'pt') as opened:
        header = opened.metadata()
    result, said = made.run('cosine'), json.loads(header['spml_nb'])
    told = {
        'format': 1,
        'run': result.folder.name,
        'dataset': 'photos',
        'tested': load_photos(made.folder).photos_of('test'),
        'method': 'hml',
        'ranks_by': 'method',
        'backbone': 'mini',
        'head': 'cosine',
        'head_options': {},
        'frozen_features': False,
        'normalise': True,
        'mean': [0.5] * 3,
        'std': [0.25] * 3,
        'image_size': 32,
        'resize': 'squash',
        'class_names': CLASSES,
        'threshold': result.scores['threshold'],
        'map': result.scores['test_map'],
        'class_thresholds': open_run(result.folder).thresholds()['class_thresholds'],
        'labels_a_photo': (made.data.labels[made.data.rows('val')] > 0).sum(1).mean(),
    }
    assert said == told | {'hparams': result.config.hparams} and json.loads(
        header['preprocessing']
    )['steps'].startswith('turned upright')


def test_the_file_is_the_authority_on_the_normalisation(made, exported, tmp_path):
    own = load_exported(exported).predict(made.test)
    changed = changed_file(exported, tmp_path, mean=[0.2, 0.5, 0.5])
    assert (
        np.abs(load_exported(changed).predict(made.test)[CLASSES] - own[CLASSES]).to_numpy().max()
        > 1e-3
    )


def test_an_exported_backbone_starts_another_run(made, exported):
    backbone = models.create('mini', 7, weights=str(exported)).backbone.state_dict()
    state = torch.load(made.run('cosine').folder / 'best.pt', weights_only=True)['network']
    assert backbone and all(
        torch.equal(value, state[f'backbone.{name}']) for name, value in backbone.items()
    )


def test_a_run_goes_before_its_card_folder_of_an_earlier_training(made, tmp_path, monkeypatch):
    """`export RUN --card` writes ./RUN. When the run was trained again, its name still means the
    run, and the folder is written anew.
    """
    name = made.run('linear').folder.name
    monkeypatch.setenv('SPML_NB_RUNS', str(made.work / 'runs'))
    monkeypatch.chdir(tmp_path)
    old = write_model_folder(made.run('cosine').folder, name)
    assert exporting.find_exported(name) is None and open_model(name).description['method'] == 'an'
    for given in (f'./{name}', old.absolute()):
        assert open_model(given).description['method'] == 'hml'
    assert (
        open_model(write_model_folder(name)).description['run']
        == open_model(f'./{name}').description['run']
        == name
    )
    assert open_model(Path(name).rename('other')).description['run'] == name  # of no run


def test_a_torch_program_takes_no_gradients(made, tmp_path):
    file = export(made.run('linear').folder, tmp_path / 'model.pt2')
    assert (
        not torch.export.load(file)
        .module()(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))
        .requires_grad
    )


# ---- wrong files


@pytest.mark.parametrize(
    'file, told',
    [
        ('model.pt', "unknown suffix .*model.pt.* '.pt'.*.safetensors, .pt2, .onnx"),
        ('model', "unknown suffix .* ''"),
    ],
)
def test_another_suffix(made, tmp_path, file, told):
    with pytest.raises(SpmlError, match=told):
        export(made.run('cosine').folder, tmp_path / file)
    with pytest.raises(SpmlError, match=told):
        load_exported(tmp_path / file)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize('suffix', exporting.WRITERS)
def test_no_such_file(tmp_path, suffix):
    with pytest.raises(SpmlError, match='no file .*nothing'):
        predict(tmp_path / f'nothing{suffix}', tmp_path)
    with pytest.raises(SpmlError, match="no run 'nothing'"):
        export('nothing', tmp_path / f'model{suffix}')
    assert not any(tmp_path.iterdir())


def changed_file(file, tmp_path, drop=(), tensors=None, text=None, **changes):
    "A copy of a .safetensors file with another description."
    with safe_open(file, 'pt') as opened:
        said = json.loads(opened.metadata()['spml_nb'])
    said = {k: v for k, v in (said | changes).items() if k not in drop}
    save_file(
        load_file(file) if tensors is None else tensors,
        tmp_path / 'changed.safetensors',
        metadata={'spml_nb': json.dumps(said) if text is None else text},
    )
    return tmp_path / 'changed.safetensors'


@pytest.mark.parametrize(
    'changes, told',
    [
        ({'format': 2}, 'has format 2, this library reads 1'),
        ({'text': '{'}, 'description cannot be read'),
        ({'text': '[1]'}, 'description cannot be read'),
        ({'drop': ['class_names']}, r'invalid \(class_names\)'),
        ({'class_names': []}, 'missing or invalid'),
        ({'class_names': [1, 2, 3]}, 'missing or invalid'),
        ({'class_names': CLASSES[:2], 'class_thresholds': None}, 'do not fit'),
        ({'image_size': True}, r'invalid \(image_size\)'),
        ({'image_size': 0}, 'missing or invalid'),
        ({'threshold': float('nan')}, 'missing or invalid'),
        ({'threshold': 7.0}, 'missing or invalid'),
        ({'class_names': ['same'] * 3}, 'missing or invalid'),
        ({'std': [0.25, 0.0, 0.25]}, 'missing or invalid'),
        ({'resize': 'other'}, 'missing or invalid'),
        ({'std': [1.0]}, 'missing or invalid'),
        ({'class_thresholds': [0.5]}, r'invalid \(class_thresholds\)'),
        ({'class_thresholds': [0.5, 0.5, 1.5]}, 'missing or invalid'),
        ({'class_thresholds': [0.5, float('nan'), 0.5]}, 'missing or invalid'),
        ({'class_thresholds': 0.5}, 'missing or invalid'),
        ({'mean': ['a', 'b', 'c']}, 'missing or invalid'),
        ({'backbone': 'resnet_nothing'}, "do not fit .unknown backbone 'resnet_nothing'"),
        ({'head': 'none'}, "do not fit .unknown head 'none'"),
        ({'head': 'labelwise', 'head_options': {'d': 4, 'heads': 0}}, 'do not fit'),
        ({'head_options': {'x': 1}}, 'do not fit'),
        ({'method': 'none'}, "do not fit .unknown loss 'none'"),
        ({'hparams': {'x': 1}}, 'do not fit'),
        ({'ranks_by': 'logits'}, None),
        ({'tensors': {'x': torch.zeros(1)}}, 'do not fit'),
    ],
)
def test_a_damaged_description_is_told(exported, tmp_path, changes, told):
    file = changed_file(exported, tmp_path, **changes)
    if told is None:
        assert load_exported(file).description['ranks_by'] == 'logits'
        return  # the method's weights are then of no account
    with pytest.raises(SpmlError, match=f'changed.safetensors (cannot be used: .*)?{told}'):
        load_exported(file)


def test_damaged_files_and_files_of_something_else(made, exported, tmp_path):
    whole, part = exported.read_bytes(), tmp_path / 'part.safetensors'
    for damaged in (b'', b'text', whole[: len(whole) // 2], whole[:20], b'\xff' * 100):
        part.write_bytes(damaged)
        with pytest.raises(
            SpmlError, match='part.safetensors cannot be used: it is no complete safetensors'
        ):
            load_exported(part)
    save_file({'a': torch.zeros(2)}, part)
    with pytest.raises(SpmlError, match='part.safetensors was not written by spml_nb'):
        load_exported(part)


def test_damaged_onnx_files_and_those_of_something_else(tmp_path):
    from onnx import TensorProto, helper

    file = tmp_path / 'part.onnx'
    for damaged in (b'', b'text' * 10):
        file.write_bytes(damaged)
        with pytest.raises(SpmlError, match='part.onnx cannot be used: it is no complete ONNX'):
            load_exported(file)
    put, got = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in 'xy')
    other = helper.make_model(
        helper.make_graph([helper.make_node('Relu', ['x'], ['y'])], 'g', [put], [got]),
        opset_imports=[helper.make_opsetid('', 20)],
        ir_version=10,
    )
    file.write_bytes(other.SerializeToString())
    with pytest.raises(SpmlError, match='part.onnx was not written by spml_nb'):
        load_exported(file)
    helper.set_model_props(other, {'spml_nb': json.dumps(DESCRIPTION)})
    file.write_bytes(other.SerializeToString())
    with pytest.raises(SpmlError, match='inputs and outputs do not fit'):
        load_exported(file)


def test_an_onnx_input_that_is_not_that_of_its_description_is_told(tmp_path):
    from onnx import TensorProto, helper

    def written(kind, shape):
        put = helper.make_tensor_value_info('images', kind, shape)
        got = helper.make_tensor_value_info('probabilities', TensorProto.FLOAT, [shape[0], 1])
        nodes = [
            helper.make_node('Cast', ['images'], ['f'], to=TensorProto.FLOAT),
            helper.make_node('ReduceMean', ['f', 'axes'], ['m'], keepdims=0),
            helper.make_node('Unsqueeze', ['m', 'last'], ['probabilities']),
        ]
        fixed = [
            helper.make_tensor('axes', TensorProto.INT64, [3], [1, 2, 3]),
            helper.make_tensor('last', TensorProto.INT64, [1], [1]),
        ]
        model = helper.make_model(
            helper.make_graph(nodes, 'g', [put], [got], fixed),
            opset_imports=[helper.make_opsetid('', 20)],
            ir_version=10,
        )
        helper.set_model_props(model, {'spml_nb': json.dumps(DESCRIPTION)})
        (tmp_path / 'model.onnx').write_bytes(model.SerializeToString())
        return tmp_path / 'model.onnx'

    assert load_exported(written(TensorProto.UINT8, ['batch', 3, 32, 32]))(
        np.ones((2, 3, 32, 32), np.uint8)
    ).tolist() == [[1.0], [1.0]]
    for kind, shape in (
        (TensorProto.UINT8, ['batch', 3, 8, 8]),
        (TensorProto.UINT8, ['batch', 1, 32, 32]),
        (TensorProto.FLOAT, ['batch', 3, 32, 32]),
        (TensorProto.UINT8, [2, 3, 32, 32]),
    ):
        with pytest.raises(SpmlError, match='inputs and outputs do not fit'):
            load_exported(written(kind, shape))


DESCRIPTION = {
    'format': 1,
    'run': 'r',
    'dataset': 'd',
    'method': 'an',
    'hparams': {},
    'ranks_by': 'logits',
    'backbone': 'mini',
    'head': 'linear',
    'head_options': {},
    'frozen_features': False,
    'normalise': True,
    'image_size': 32,
    'resize': 'squash',
    'class_names': ['a'],
    'threshold': 0.5,
    'mean': [0.5] * 3,
    'std': [0.5] * 3,
}


@pytest.mark.parametrize('package, suffix', [('onnx', '.onnx'), ('onnxscript', '.onnx')])
def test_a_missing_package_is_named(made, tmp_path, monkeypatch, package, suffix):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SpmlError, match=rf"needs the package '{package}'.*spml_nb\[export\]"):
        export(made.run('linear').folder, tmp_path / f'model{suffix}')
    assert not any(tmp_path.iterdir())
    monkeypatch.setitem(sys.modules, 'onnxruntime', None)
    (tmp_path / 'model.onnx').touch()
    with pytest.raises(SpmlError, match="needs the package 'onnxruntime'"):
        load_exported(tmp_path / 'model.onnx')


def test_a_backbone_that_cannot_be_traced_is_told(made, exported, tmp_path, monkeypatch):
    def untraceable(*_, **__):
        raise RuntimeError('data-dependent')

    monkeypatch.setattr(torch.export, 'export', untraceable)
    for suffix in ('.onnx', '.pt2'):
        with pytest.raises(
            SpmlError, match="backbone 'mini' cannot be exported .*data-dependent.*as .safetensors"
        ):
            export(exported, tmp_path / f'model{suffix}')
    assert [path.name for path in tmp_path.iterdir()] == ['model.safetensors']


def test_a_file_is_replaced_whole_or_not_at_all(made, exported, tmp_path, monkeypatch):
    before = exported.read_bytes()

    def full(path, data):
        with open(path, 'wb') as out:
            out.write(data[:100])
        raise OSError(28, 'No space left on device')

    with monkeypatch.context() as patched:
        patched.setattr(Path, 'write_bytes', full)
        with pytest.raises(
            SpmlError, match='model.safetensors could not be written.*No space left'
        ):
            export(made.run('linear').folder, exported)
    assert exported.read_bytes() == before and [path.name for path in tmp_path.iterdir()] == [
        'model.safetensors'
    ]
    export(made.run('linear').folder, exported)
    assert load_exported(exported).description['method'] == 'an'


# ---- attacks


@pytest.mark.parametrize('suffix', exporting.WRITERS)
@pytest.mark.parametrize('protocol', [2, 4])
def test_a_pickle_under_another_name_is_refused_and_not_executed(tmp_path, suffix, protocol):
    trap, file = tmp_path / 'executed', tmp_path / f'model{suffix}'
    file.write_bytes(pickle.dumps(Attack(trap), protocol))
    with pytest.raises(SpmlError, match=f'model{suffix} '):
        load_exported(file)
    buffer = io.BytesIO()
    torch.save({'x': Attack(trap)}, buffer)
    file.write_bytes(buffer.getvalue())
    with pytest.raises(SpmlError, match=f'model{suffix} '):
        predict(file, tmp_path)
    if suffix == '.safetensors':
        with pytest.raises(SpmlError, match='cannot be used'):
            export(file, tmp_path / 'out.onnx')
    assert not trap.exists()


def test_a_torch_program_with_an_attack_in_it_is_refused_and_not_executed(exported, tmp_path):
    original = export(exported, tmp_path / 'model.pt2')
    trap = tmp_path / 'executed'
    attack = tmp_path / 'attack.pt2'
    with zipfile.ZipFile(original) as old:
        members = {name: old.read(name) for name in old.namelist()}
    pickled = {
        name: pickle.dumps(Attack(trap), 2)
        if '/data/' in name and not name.endswith('.json')
        else data
        for name, data in members.items()
    }
    code = f'__import__(\\"pathlib\\").Path(\\"{trap}\\").touch() or Symbol'
    evaluated = {
        name: data.replace(b'"expr_str": "Symbol', f'"expr_str": "{code}'.encode())
        if name.endswith('model.json')
        else data
        for name, data in members.items()
    }
    for changed in (pickled, evaluated):
        assert changed != members
        with zipfile.ZipFile(attack, 'w') as new:
            for name, data in changed.items():
                new.writestr(name, data)
        for use in (
            load_exported,
            lambda file: predict(file, tmp_path),
            lambda file: export(file, tmp_path / 'out.onnx'),
        ):
            with pytest.raises(SpmlError, match=r'not loaded here, because|no run .*attack\.pt2'):
                use(attack)
    assert not trap.exists()


@pytest.mark.silent('C8')
@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_a_network_of_weights_that_are_no_numbers_is_neither_exported_nor_used(
    made, exported, tmp_path, value
):
    with safe_open(exported, framework='pt') as opened:
        said = opened.metadata()
    state = load_file(exported)
    name = next(name for name in state if name.startswith('backbone.') and name.endswith('weight'))
    state[name] = torch.full_like(state[name], value)
    save_file(state, tmp_path / 'broken.safetensors', metadata=said)
    with pytest.raises(SpmlError, match='3 of its 3 classes'):
        load_exported(tmp_path / 'broken.safetensors', device='cpu').predict(made.test[0])
    for suffix in ('.safetensors', '.onnx', '.pt2'):
        with pytest.raises(SpmlError, match='3 of its 3 classes'):
            export(tmp_path / 'broken.safetensors', tmp_path / f'new{suffix}')
    with pytest.raises(SpmlError, match='3 of its 3 classes'):
        write_model_folder(tmp_path / 'broken.safetensors', tmp_path / 'hub')
    assert {path.name for path in tmp_path.iterdir()} == {'model.safetensors', 'broken.safetensors'}


@pytest.mark.silent('C8')
def test_an_onnx_model_that_gives_nan_names_no_labels(made, tmp_path, monkeypatch):
    monkeypatch.setattr(
        exporting, 'refuse_non_finite', lambda *_: None, raising=False
    )  # a file of an older version
    with safe_open(
        export(made.run('linear').folder, tmp_path / 'whole.safetensors'), framework='pt'
    ) as opened:
        said = opened.metadata()
    state = load_file(tmp_path / 'whole.safetensors')
    save_file(
        {
            name: torch.full_like(value, float('nan')) if name.startswith('head.') else value
            for name, value in state.items()
        },
        tmp_path / 'broken.safetensors',
        metadata=said,
    )
    model = load_exported(export(tmp_path / 'broken.safetensors', tmp_path / 'broken.onnx'))
    with pytest.raises(SpmlError, match='3 of its 3 classes'):
        model.predict(made.test[0])
