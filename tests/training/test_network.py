"""The network of a finished run: what it is described by, and which runs and checkpoints are
refused.
"""

import json
import pickle

import pytest
import torch
from trained import Attack

from spml_nb import models, runs, training
from spml_nb.base.errors import SpmlError
from spml_nb.training.network import open_network
from spml_nb.use.predict import open_model, predict


def test_a_learnt_margin_and_the_rule_to_resize_count(made):
    model = open_model(made.run('cosine').folder)
    network = open_network(made.run('cosine').folder)
    assert (
        network.method.margin.item() != pytest.approx(0.3, abs=1e-3)
        and model.description['ranks_by'] == 'method'
    )
    assert [
        open_model(made.run(name).folder).preprocessing['resize'] for name in ('linear', 'crop')
    ] == ['squash', 'centre']


def test_a_whole_method_knows_its_training_labels_and_all_that_it_has_learnt(made):
    run = training.open_run(made.run('cosine').folder)
    small = open_network(run)
    whole = open_network(run, restore_method=True)
    saved = run.best()['method']
    assert small.method.z.shape == (1, 3) and saved.keys() == whole.method.state_dict().keys()
    assert all(torch.equal(value, saved[name]) for name, value in whole.method.state_dict().items())


def test_no_run_an_unfinished_one_and_one_without_weights(made, tmp_path):
    with pytest.raises(SpmlError, match="no run 'nothing'"):
        predict('nothing', made.test)
    copied = made.copy('linear', tmp_path)
    (copied / 'DONE').unlink()
    with pytest.raises(SpmlError, match='no DONE: the run is not finished'):
        predict(copied, made.test)
    (copied / 'DONE').touch()
    (copied / 'best.pt').unlink()
    with pytest.raises(SpmlError, match='best.pt is missing'):
        predict(copied, made.test)
    result = json.loads((copied / 'result.json').read_text())
    (copied / 'result.json').write_text(
        json.dumps({k: v for k, v in result.items() if k != 'class_names'})
    )
    with pytest.raises(SpmlError, match="result.json is damaged.*class_names"):
        predict(copied, made.test)


def test_a_frozen_backbone_with_other_weights_is_refused(made, tmp_path):
    weights = tmp_path / 'weights.pt'
    state = models.create('mini', 1).backbone.state_dict()
    torch.save(state, weights)
    config = {
        'dataset': str(made.folder),
        'backbone': 'mini',
        'image_size': 32,
        'epochs': 1,
        'loss': 'an',
        'regime': 'linear',
        'weights': str(weights),
    }
    result = training.train(runs.Config(**config))
    before = predict(result.folder, made.test)
    torch.save(
        {name: value * 2 if value.is_floating_point() else value for name, value in state.items()},
        weights,
    )
    for use in (
        lambda: predict(result.folder, made.test),
        lambda: training.evaluate(result.folder),
    ):
        with pytest.raises(
            SpmlError,
            match=(
                r'frozen backbone .mini. with other weights .*weights\.pt.* '
                r'Put the old weights back'
            ),
        ):
            use()
    file = result.folder / 'result.json'
    kept = json.loads(file.read_text())
    assert 'backbone' not in json.loads(
        (made.run('linear').folder / 'result.json').read_text()
    )  # best.pt holds all of it
    torch.save(state, weights)
    assert predict(result.folder, made.test).equals(before)
    file.write_text(
        json.dumps({k: v for k, v in kept.items() if k != 'backbone'})
    )  # as older versions wrote it
    assert predict(result.folder, made.test).equals(before)


@pytest.mark.parametrize(
    'damage', ['half', 'text', 'something else', 'another head', 'pickle', 'pickle in torch']
)
def test_a_damaged_or_malicious_checkpoint_is_refused_and_not_executed(made, tmp_path, damage):
    copied, trap = made.copy('linear', tmp_path), tmp_path / 'executed'
    file = copied / 'best.pt'
    saved = torch.load(file, weights_only=True)
    if damage == 'half':
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    if damage == 'text':
        file.write_text('no checkpoint')
    if damage == 'something else':
        torch.save([1, 2], file)
    if damage == 'another head':
        torch.save(
            {
                **saved,
                'network': {
                    k: v[:2] if k.startswith('head') else v for k, v in saved['network'].items()
                },
            },
            file,
        )
    if damage == 'pickle':
        file.write_bytes(pickle.dumps(Attack(trap), 2))
    if damage == 'pickle in torch':
        torch.save({**saved, 'more': Attack(trap)}, file)
    with pytest.raises(SpmlError, match=r'best\.pt (cannot be read|does not hold)'):
        predict(copied, made.test)
    assert not trap.exists()
    if damage.startswith('pickle'):  # the trap works where unpickling is allowed
        pickle.loads(pickle.dumps(Attack(trap)))
        assert trap.exists()
