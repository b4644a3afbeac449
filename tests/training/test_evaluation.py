"""A finished run on other data: the same score as at its end, and nothing is scored on data that do not fit."""
import json

import numpy as np
import pandas as pd
import pytest
from quick import config

from spml_nb import runs, training
from spml_nb.base.errors import SpmlError


@pytest.fixture
def folder(photo_folder): return photo_folder


def test_evaluate_repeats_the_result_and_checks_classes(folder, tmp_path):
    for regime in ('finetune', 'linear'):
        result = training.train(config(folder, regime=regime))
        scores, logits, data = training.evaluate(result.folder)
        assert np.allclose(logits.numpy(), result.logits['test'], atol=1e-5) and abs(scores['map'] - result.scores['test_map']) < 1e-3
    table = pd.read_csv(folder / 'labels.csv')
    table['labels'] = table['labels'].str.replace('red', 'green')
    (tmp_path / 'other').mkdir()
    (tmp_path / 'other' / 'images').symlink_to(folder / 'images')
    table.to_csv(tmp_path / 'other' / 'labels.csv', index=False)
    with pytest.raises(SpmlError, match='lacks 1 of the run.s 3 classes: red'): training.evaluate(result.folder, tmp_path / 'other')
    with pytest.raises(SpmlError, match='no run'): training.evaluate('no-such-run')


def test_a_run_is_not_scored_on_its_own_data_when_these_have_changed(folder, tmp_path):
    result = training.train(config(folder, regime='linear', epochs=1))
    stored = runs.read_json(result.folder / 'result.json')['data']
    table = pd.read_csv(folder / 'labels.csv')
    table.loc[0, 'labels'] = 'blue'
    table.to_csv(folder / 'labels.csv', index=False)
    with pytest.raises(SpmlError, match=f'{stored}; what is found there now has .*Put the old data back'): training.evaluate(result.folder)
    assert training.evaluate(result.folder, folder)[0]['map'] >= 0   # named, any data will do
    (result.folder / 'result.json').write_text(json.dumps({k: v for k, v in runs.read_json(result.folder / 'result.json').items() if k != 'data'}))
    assert training.evaluate(result.folder)[0]['map'] >= 0


def test_photos_that_are_all_for_the_test_are_scored(folder):
    result = training.train(config(folder, regime='linear', epochs=1))
    pd.read_csv(folder / 'labels.csv').assign(split='test').to_csv(folder / 'labels.csv', index=False)
    assert len(training.evaluate(result.folder, folder)[1]) == 60


def test_the_root_of_a_runs_own_data_can_be_another(folder, tmp_path):
    result = training.train(config(folder, dataset=folder.name, root=str(tmp_path), regime='linear', epochs=1))
    score = training.evaluate(result.folder)[0]['map']
    with pytest.raises(SpmlError, match='photos'): training.evaluate(result.folder, root=str(tmp_path / 'nowhere'))
    (tmp_path / 'moved').mkdir()
    folder.rename(tmp_path / 'moved' / folder.name)
    assert training.evaluate(result.folder, root=str(tmp_path / 'moved'))[0]['map'] == score
    table = tmp_path / 'moved' / folder.name / 'labels.csv'
    table.write_text(table.read_text().replace('red', 'blue', 1))
    with pytest.raises(SpmlError, match='with the fingerprint'): training.evaluate(result.folder, root=str(tmp_path / 'moved'))
