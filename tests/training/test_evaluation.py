"""A finished run on other data: the same score as at its end, and nothing is scored on data that do
not fit.
"""

import json

import numpy as np
import pandas as pd
import pytest
from quick import config
from redrawn import as_bitmaps, redraw

from spml_nb import runs, training
from spml_nb.base.errors import SpmlError
from spml_nb.data import load
from spml_nb.use import scoring


@pytest.fixture
def folder(photo_folder):
    return photo_folder


def test_evaluate_repeats_the_result_and_checks_classes(folder, tmp_path):
    for regime in ('finetune', 'linear'):
        result = training.train(config(folder, regime=regime))
        scores, logits, data = training.evaluate(result.folder)
        assert (
            np.allclose(logits.numpy(), result.logits['test'], atol=1e-5)
            and abs(scores['map'] - result.scores['test_map']) < 1e-3
        )
    table = pd.read_csv(folder / 'labels.csv')
    table['labels'] = table['labels'].str.replace('red', 'green')
    (tmp_path / 'other').mkdir()
    (tmp_path / 'other' / 'images').symlink_to(folder / 'images')
    table.to_csv(tmp_path / 'other' / 'labels.csv', index=False)
    with pytest.raises(SpmlError, match='lacks 1 of the run.s 3 classes: red'):
        training.evaluate(result.folder, tmp_path / 'other')
    with pytest.raises(SpmlError, match='no run'):
        training.evaluate('no-such-run')


def test_a_run_is_not_scored_on_its_own_data_when_these_have_changed(folder, tmp_path):
    result = training.train(config(folder, regime='linear', epochs=1))
    stored = runs.read_json(result.folder / 'result.json')['data']
    table = pd.read_csv(folder / 'labels.csv')
    table.loc[0, 'labels'] = 'blue'
    table.to_csv(folder / 'labels.csv', index=False)
    with pytest.raises(SpmlError, match=f'{stored}; now it has .*Put the old data back'):
        training.evaluate(result.folder)
    assert training.evaluate(result.folder, folder)[0]['map'] >= 0  # named, any data will do
    (result.folder / 'result.json').write_text(
        json.dumps(
            {k: v for k, v in runs.read_json(result.folder / 'result.json').items() if k != 'data'}
        )
    )
    assert training.evaluate(result.folder)[0]['map'] >= 0


@pytest.mark.silent('C1')
def test_a_run_is_not_scored_on_its_own_photos_when_they_were_redrawn_in_place(folder):
    result = training.train(config(as_bitmaps(folder), regime='linear', epochs=1))
    stored = runs.read_json(result.folder / 'result.json')['photos']
    redraw(folder / 'images' / '007.bmp')
    with pytest.raises(SpmlError, match=f'{stored}; now it has .*Put the old data back'):
        training.evaluate(result.folder)


@pytest.mark.silent('A6')
def test_of_another_folder_all_photos_are_scored_unless_a_column_says_which(folder, tmp_path):
    result = training.train(config(folder, regime='linear', epochs=1))
    other = tmp_path / 'other'
    other.mkdir()
    (other / 'images').symlink_to(folder / 'images')
    table = pd.read_csv(folder / 'labels.csv').drop(index=load(folder).rows('test')[:4])

    def scored(**given):
        scores, logits, _ = training.evaluate(result.folder, other, **given)
        return scores['part'], len(logits)

    table.to_csv(other / 'labels.csv', index=False)
    assert (
        scored() == ('all', 56)
        and scored(part='test') == ('test', len(load(other).rows('test')))
        and scored(part='all') == ('all', 56)
    )
    table.assign(split=['train'] * 36 + ['test'] * 20).to_csv(other / 'labels.csv', index=False)
    assert scored() == ('test', 20)
    scores, logits, data = training.evaluate(result.folder)
    assert (
        (scores['part'], len(logits))
        == ('test', len(data.rows('test')))
        == ('test', len(result.logits['test']))
    )


def test_photos_that_are_all_for_the_test_are_scored(folder):
    result = training.train(config(folder, regime='linear', epochs=1))
    pd.read_csv(folder / 'labels.csv').assign(split='test').to_csv(
        folder / 'labels.csv', index=False
    )
    assert len(training.evaluate(result.folder, folder)[1]) == 60


def test_the_root_of_a_runs_own_data_can_be_another(folder, tmp_path):
    result = training.train(
        config(folder, dataset=folder.name, root=str(tmp_path), regime='linear', epochs=1)
    )
    score = training.evaluate(result.folder)[0]['map']
    with pytest.raises(SpmlError, match='photos'):
        training.evaluate(result.folder, root=str(tmp_path / 'nowhere'))
    (tmp_path / 'moved').mkdir()
    folder.rename(tmp_path / 'moved' / folder.name)
    assert training.evaluate(result.folder, root=str(tmp_path / 'moved'))[0]['map'] == score
    table = tmp_path / 'moved' / folder.name / 'labels.csv'
    table.write_text(table.read_text().replace('red', 'blue', 1))
    with pytest.raises(SpmlError, match='with the fingerprint'):
        training.evaluate(result.folder, root=str(tmp_path / 'moved'))


@pytest.fixture
def without_a_blue_test_photo(photo_folder):
    "The table with a split whose test photos are all red, bright or not."
    table = pd.read_csv(photo_folder / 'labels.csv')
    blue = table.labels.str.contains('blue')
    table['split'] = np.where(
        blue, 'train', np.resize(['train', 'val', 'test', 'test'], len(table))
    )
    table.loc[blue & (table.index % 5 == 0), 'split'] = 'val'
    table.to_csv(photo_folder / 'labels.csv', index=False)
    return photo_folder


@pytest.mark.silent('C4')
def test_a_class_that_no_test_photo_has_is_left_out_by_all_who_score_a_folder(
    without_a_blue_test_photo,
):
    folder = without_a_blue_test_photo
    result = training.train(config(folder, regime='linear'))
    scores, _, data = training.evaluate(result.folder)
    counted = scoring.evaluate_model(result.folder, folder)
    assert not (data.labels[data.rows('test')] > 0).any(0)[
        data.class_names.index('blue')
    ] and np.isnan(counted.classes.ap['blue'])
    assert result.scores['map_definition'] == scores['map_definition'] == 'two_way'
    assert (
        result.scores['test_map']
        == result.scores['test_map_class']
        == pytest.approx(100 * np.mean([ap for ap in scores['ap'] if ap > 0]))
    )
    assert scores['map'] == pytest.approx(
        result.scores['test_map'], abs=1e-4
    ) and counted.total.value['mAP'] == pytest.approx(result.scores['test_map'], abs=1e-4)


@pytest.mark.silent('C4')
def test_a_run_of_the_papers_definition_is_scored_on_a_folder_without_classes_that_no_photo_has(
    without_a_blue_test_photo, tmp_path
):
    folder = without_a_blue_test_photo
    result = training.train(config(folder, regime='linear', epochs=1, map_definition='cole'))
    assert result.scores['test_map'] == pytest.approx(
        training.evaluate(result.folder)[0]['map'], abs=1e-4
    )  # its own number again
    assert (
        training.evaluate(result.folder, folder)[0]['map']
        == pytest.approx(result.scores['test_map_class'], abs=1e-4)
        != result.scores['test_map']
    )
