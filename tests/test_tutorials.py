"""The tutorials: what a reader meets first, what is kept in them, and that what they say follows
from what they computed.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
import test_notebooks
import torch
from PIL import Image
from quick import fields

from spml_nb import methods, runs, sweeps
from spml_nb.base.errors import SpmlError
from spml_nb.methods import core
from spml_nb.models.backbones import EFFICIENTNET_LITE
from spml_nb.replication.board import read_boards
from spml_nb.use import annotate

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / 'nbs' / 'tutorials'
NAMES = ('label_photos', 'your_own_data')  # they train on a folder, and take its backbone


def read(name):
    return nbformat.read(FOLDER / f'{name}.ipynb', 4)


def environment():
    """What a tutorial must leave alone; scikit-learn and torch set these others themselves, once a
    process.
    """
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(('KMP_', 'TORCHINDUCTOR_'))
    }


def run(name, tmp_path, outputs=ROOT / 'outputs', **changed):
    """Execute a tutorial's code in this process, small, with `changed` names set behind its
    parameters cell. Returns: its names.
    """
    before = environment(), methods.names(), set(sweeps.SUITES)
    names = {'__name__': '__main__'}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('IN_TEST', '1')
        patch.setenv('SPML_NB_OUTPUTS', str(outputs))
        patch.chdir(tmp_path)
        patch.setattr(sys, 'path', [*sys.path])
        shutil.copytree(FOLDER / 'my_method', tmp_path / 'my_method')  # what lies beside them
        inside = environment()
        for cell in read(name).cells:
            if cell.cell_type != 'code':
                continue
            exec(compile(cell.source, f'{name}.ipynb', 'exec'), names)
            if 'parameters' in cell.metadata.get('tags', []):
                names |= changed
            for number in plt.get_fignums():
                plt.figure(number).canvas.draw()  # as a notebook shows it
            plt.close('all')
        assert environment() == inside, 'the environment is not as it was'
    core._registry.pop('my_hill', None)  # a setting names it, which is gone now
    sys.modules.pop('my_hill', None)
    assert (environment(), methods.names(), set(sweeps.SUITES)) == before
    if 'parameters' in names:
        assert set(names['parameters']()) <= set(parameters(name)), (
            'a name of a later cell would be refused when all cells are run again'
        )
    return names


def parameters(name):
    "What the parameters cell of a tutorial sets."
    (cell,) = (cell for cell in read(name).cells if 'parameters' in cell.metadata.get('tags', []))
    names = {}
    exec(cell.source, names)
    return names.keys() - {'__builtins__'}


# ---- parameters


def begin(name, given, where):
    """Execute the first cells of a tutorial, with names set as papermill does: behind the
    parameters cell, or first where the tag is missing.
    """
    names = {'__name__': '__main__'} | (given if where == 'first' else {})
    for cell in [cell for cell in read(name).cells if cell.cell_type == 'code'][:3]:
        exec(compile(cell.source, f'{name}.ipynb', 'exec'), names)
        if where in cell.metadata.get('tags', []):
            names |= given


@pytest.mark.parametrize('name', (*NAMES, 'your_own_method'))
def test_a_wrong_name_or_a_lost_tag_stops_a_tutorial(name):
    begin(name, {'dataset': 'x'}, 'parameters')
    with pytest.raises(
        SpmlError,
        match=f"unknown parameter of {name}.ipynb 'datset'; allowed: .*Did you mean 'dataset'",
    ):
        begin(name, {'datset': 'x'}, 'parameters')
    with pytest.raises(SpmlError, match="lost its tag 'parameters'"):
        begin(name, {'dataset': 'x'}, 'first')


def test_a_wrong_name_ends_papermill_with_an_error(tmp_path):
    process, _ = test_notebooks.papermill(
        tmp_path, '-p', 'folder', 'photos', notebook='tutorials/your_own_data.ipynb'
    )
    assert (
        process.returncode != 0
        and "unknown parameter of your_own_data.ipynb 'folder'" in process.stderr
    )


@pytest.mark.parametrize(
    'file',
    [FOLDER.parent / 'train.ipynb', *(FOLDER / f'{name}.ipynb' for name in NAMES)],
    ids=lambda file: file.stem,
)
def test_the_size_of_photos_that_is_unset_is_the_one_told(file):
    (line,) = (
        line
        for cell in nbformat.read(file, 4).cells
        for line in cell.source.splitlines()
        if line.startswith('# pixels a side; None')
    )
    told = re.search(
        r'None: (\d+) for mini, (\d+), (\d+), (\d+) for efficientnet_lite0, 1, 2, else (\d+)$', line
    ).groups()
    sizes = [
        runs.resolve(runs.Config(dataset='folder', backbone=backbone)).image_size
        for backbone in ('mini', *EFFICIENTNET_LITE, 'resnet18')
    ]
    assert [int(size) for size in told] == sizes


# ---- folders of a reader


def draw_set(folder, kind):
    "A few drawn photos: 25 cells of a grid, of which one to three are lit. Returns: the folder."
    random = np.random.default_rng(5)
    count, classes = {'25 classes': (240, 25), 'positives': (90, 4), 'two classes': (80, 2)}[kind]
    share = np.geomspace(1, 0.1, classes) / np.geomspace(1, 0.1, classes).sum()
    (folder / 'images').mkdir(parents=True)
    true = np.zeros((count, classes), int)
    for row in range(count):
        true[
            row,
            random.choice(classes, random.integers(1, min(3, classes) + 1), replace=False, p=share),
        ] = 1
        pixels = random.integers(0, 60, (40, 40, 3), dtype=np.uint8)
        for c in np.flatnonzero(true[row]):
            pixels[8 * (c // 5) : 8 * (c // 5) + 8, 8 * (c % 5) : 8 * (c % 5) + 8] = [
                250,
                40 * (c % 6),
                200 - 40 * (c % 5),
            ]
        Image.fromarray(pixels).save(folder / 'images' / f'{row:03}.png')
    names = [f'a class with a long name and the number {c}' for c in range(classes)]
    table = pd.DataFrame({'image': [f'{row:03}.png' for row in range(count)]})
    first = [random.choice(np.flatnonzero(row)) for row in true]
    if kind == 'positives':
        table['positives'] = [names[c] for c in first]  # one label each, nothing in full
    elif kind == 'two classes':
        table['labels'] = ['|'.join(np.array(names)[row > 0]) for row in true]  # complete
    else:  # one label each to train on, the rest in full
        split = np.repeat(['train', 'val', 'test'], [140, 40, 60])
        single = np.arange(classes) == np.array(first)[:, None]
        cells = np.where((split == 'train')[:, None], np.where(single, '1', ''), true.astype(str))
        table = pd.concat([table, pd.DataFrame(cells, columns=names)], axis=1).assign(split=split)
    table.to_csv(folder / 'labels.csv', index=False)
    return folder


SETS = ('25 classes', 'positives', 'two classes')
KINDS = {'25 classes': 'complete', 'positives': 'observed only', 'two classes': 'complete'}


@pytest.mark.filterwarnings('ignore:.*(no training image has it|known negative)')
@pytest.mark.parametrize('kind', SETS)
@pytest.mark.parametrize('name', NAMES)
def test_a_tutorial_runs_on_the_folder_of_its_reader(tmp_path, name, kind):
    folder = draw_set(tmp_path / 'photos', kind)
    before = (folder / 'labels.csv').read_bytes()
    names = run(name, tmp_path, dataset=str(folder), backbone='mini', image_size=40)
    data = names['data']
    assert (
        len(data.class_names) == {'25 classes': 25, 'positives': 4, 'two classes': 2}[kind]
        and Path(data.images[0]).parent.parent == folder
    )
    if name == 'your_own_data':
        result = names['chosen']
        assert (
            result.scores['test_truth'] == KINDS[kind]
            and names['truth'] is None
            and set(names['best']) == {'an', 'em', 'hml'}
        )
        # mAP against observed labels chooses worse than their AUC
        score = 'val_map_seen' if kind != 'positives' else 'observed_val_auc'
        of_methods = [result.scores[score] for result in names['best'].values()]
        shown = names['table'][names['validation']].tolist()
        assert shown == sorted(of_methods, reverse=True) and result.scores[score] == shown[0]
        assert len(names['doubtful']) == (names['observed'] > 0).sum() and len(names['again']) == 12
        listed = pd.read_csv(result.folder / 'missing.csv')
        assert set(listed.label) <= set(data.class_names) and listed.label[:30].nunique() > 1
        assert names['first'].groupby('class').size().max() <= 3  # no class fills the pictures
        assert names['words'] == [
            'compare',
            str(folder),
            'an',
            'em',
            'hml',
            '--seeds',
            '3',
        ]  # the command as one can give it: the folder as the reader gave it
    if name == 'label_photos':
        assert names['result'].scores['test_truth'] == KINDS[kind] and names['scores'].notna().all(
            axis=None
        )
    assert (folder / 'labels.csv').read_bytes() == before  # reading a folder changes nothing in it


@pytest.mark.slow
def test_one_command_goes_all_the_way_on_a_folder(tmp_path):
    folder = draw_set(tmp_path / 'photos', 'positives')
    process, outputs = test_notebooks.papermill(
        tmp_path,
        *fields(dataset=folder, backbone='mini', image_size=40),
        notebook='tutorials/your_own_data.ipynb',
    )
    assert process.returncode == 0, process.stderr
    assert 'unknown parameter' not in process.stderr
    said = ''.join(o.get('data', {}).get('text/markdown', '') for o in outputs)
    assert 'In short' in said and 'against observed labels' in said
    assert (
        len(list((tmp_path / 'runs').glob('*/DONE'))) == 6
        and len(list((tmp_path / 'runs').glob('*/missing.csv'))) == 1
    )


@pytest.mark.parametrize('name', NAMES)
def test_the_first_screen_says_what_it_is(name):
    first = read(name).cells[0]
    assert first.cell_type == 'markdown' and first.source.startswith('# ')
    assert re.search(r'^> \w', first.source, re.M), 'no sentence that says what it is for'
    assert re.search(r'\b(seconds?|minutes?)\b', first.source), 'no time'
    assert re.search(r'\b(change|set)\b', first.source), 'nothing to change'
    assert len(first.source) < 1600


@pytest.mark.parametrize('name', NAMES)
def test_what_is_kept_is_small_and_whole(name):
    assert (FOLDER / f'{name}.ipynb').stat().st_size <= 300 * 1024
    code = [cell for cell in read(name).cells if cell.cell_type == 'code']
    outputs = [output for cell in code for output in cell.outputs]
    assert (
        sum(any(kind.startswith('image/') for kind in o.get('data', {})) for o in outputs) >= 3
    ), 'it was not run'
    assert not [o for o in outputs if o.output_type == 'error' or o.get('name') == 'stderr']
    texts = [
        json.dumps({k: v for k, v in o.get('data', {}).items() if not k.startswith('image/')})
        + o.get('text', '')
        for o in outputs
    ]
    assert 'In short' in texts[-1] or 'In short' in ''.join(texts[-3:])


# ---- your own data


@pytest.fixture(scope='module')
def own_data(tmp_path_factory):
    place = tmp_path_factory.mktemp('own')
    return run('your_own_data', place, runs_folder=place / 'kept'), place / 'kept'


def test_wrong_and_missing_labels_are_found_better_than_by_chance(own_data):
    names, _ = own_data
    assert 0.03 < names['chance'] < 0.15 and names['found'] > 2.5 * names['chance']
    assert names['random_share'] < 0.1 and names['got'] > 5 * names['random_share']


def test_the_lists_say_what_the_table_and_the_truth_say(own_data):
    names, kept = own_data
    table = pd.read_csv(kept / 'photos' / 'labels.csv', dtype=str, keep_default_na=False).set_index(
        'image'
    )
    train = table[table.split == 'train'].drop(columns='split')
    assert ((train == '1').sum(axis=1) == 1).all() and set(np.unique(train)) == {'', '1'}
    wrong, missing = (
        pd.read_csv(names['chosen'].folder / f'{name}.csv') for name in ('doubtful', 'missing')
    )
    assert (
        sorted(wrong.image) == sorted(train.index)
        and (
            wrong.given == [train.columns[(train.loc[i] == '1').argmax()] for i in wrong.image]
        ).all()
    )
    assert wrong.support.is_monotonic_increasing and missing.probability.is_monotonic_decreasing
    assert all(train.at[i, c] == '' for i, c in zip(missing.image, missing.label, strict=True))
    truth, data = names['truth'], names['data']
    row = {name: k for k, name in enumerate(data.image_names)}
    first = [
        truth[row[i], data.class_names.index(g)] < 0
        for i, g in zip(wrong.image, wrong.given, strict=True)
    ][: names['k']]
    assert np.mean(first) == names['found']


def test_predictions_are_probabilities_of_the_chosen_run(own_data):
    names, _ = own_data
    table = pd.read_csv(names['chosen'].folder / 'predictions.csv', keep_default_na=False)
    p = table[names['data'].class_names].to_numpy()
    assert p.shape == (12, 10) and p.min() >= 0 and p.max() <= 1
    threshold = names['chosen'].scores['threshold']
    above = [
        {c for c, v in zip(names['data'].class_names, row, strict=True) if v >= threshold}
        for row in p
    ]
    assert [set(text.split('|')) - {''} for text in table.labels] == above


def test_a_folder_of_the_readers_whose_names_hold_any_sign(tmp_path, photo_folder):
    table = photo_folder / 'labels.csv'
    table.write_text(table.read_text().replace('red', '$\\red$'))
    names = run(
        'your_own_data',
        tmp_path,
        dataset=photo_folder,
        image_size=64,
        methods=['an', 'em'],
        runs_folder=tmp_path / 'kept',
        new_photos=photo_folder / 'images',
    )
    assert set(names['best']) == {'an', 'em'} and len(names['again']) == 60
    assert names['chosen'].folder.parent == tmp_path / 'kept' / 'runs'


# ---- label photos


@pytest.fixture(scope='module')
def labelled(tmp_path_factory):
    return run('label_photos', tmp_path_factory.mktemp('label'), sample=20)


def test_the_answers_of_the_program_are_in_the_table_and_train(labelled):
    sheet, truth = labelled['sheet'], labelled['truth']
    table = sheet.table()
    assert (
        len(sheet.waiting(full=True)) == 0
        and (table.split != 'train').sum() == len(sheet.sample) == 30
        and (table.split == 'test').sum() == 15
    )
    for image, row in table.iterrows():
        there = {name for name in sheet.class_names if row[name] == '1'}
        assert (
            there == set(truth[image])
            if image in sheet.sample
            else len(there) == bool(truth[image]) and there <= set(truth[image])
        )
    assert (
        labelled['result'].scores['test_truth'] == 'complete'
        and labelled['got'] > 2 * labelled['random_share']
    )
    line = labelled['scores'].loc['mAP']
    assert line.low < line.value < line.high


@pytest.mark.filterwarnings('ignore')
def test_a_folder_that_is_to_be_labelled_in_full_trains_nothing_and_says_what_is_next(tmp_path):
    folder = draw_set(tmp_path / 'photos', 'positives')
    full = tmp_path / 'FULL'
    annotate.write_sample(folder, full, 12)
    before = (full / 'labels.csv').read_bytes()
    for is_answered in (False, True):
        place = tmp_path / str(is_answered)
        place.mkdir()
        names = run('label_photos', place, dataset=str(full), sample=12, backbone='mini')
        assert not names['ready'] and f'`spml calibrate RUN {full}`' in names['next_step']
        said = 'all are labelled' if is_answered else '12 wait for an answer'
        assert said in names['next_step']
        if not is_answered:
            assert (full / 'labels.csv').read_bytes() == before
            for image in names['sheet'].waiting(full=True):
                names['sheet'].answer(image, [])


def test_the_models_first_guess_is_number_one(labelled):
    labeller = labelled['labeller']
    guesses = pd.read_csv(labelled['result'].folder / 'guesses.csv', index_col='image')
    likely = guesses.loc[labeller.image].sort_values(ascending=False).index
    assert labeller.shown[0] == likely[0] and labeller.buttons[0].description.startswith(
        f'1 {likely[0]} '
    )


@pytest.fixture
def labeller(tmp_path, labelled):
    "The labeller of the notebook, before a person, on eight photos."
    (tmp_path / 'photos' / 'images').mkdir(parents=True)
    for k in range(8):
        Image.new('RGB', (20, 20), (30 * k, 0, 0)).save(tmp_path / 'photos' / 'images' / f'{k}.png')
    return labelled['Labeller'](
        labelled['annotate'].Sheet(tmp_path / 'photos', ['cat', 'car', 'dog'], sample=2)
    )


def enter(labeller, text):
    "What JupyterLab sends for keys and Enter: the word that Enter was pressed, then the text."
    labeller.on_enter(None, {'event': 'submit'}, [])
    labeller.field.value = text


def test_keys_answer_and_a_wrong_one_changes_nothing(labeller):
    sheet, first = labeller.sheet, labeller.image
    enter(labeller, 'ca')
    assert (
        labeller.image == first
        and 'may mean cat, car' in labeller.wrong.value
        and labeller.field.value == ''
        and not len(sheet.table())
    )
    enter(labeller, '3')
    assert (
        labeller.image != first
        and labeller.wrong.value == ''
        and sheet.table().loc[first, 'dog'] == '1'
    )
    second = labeller.image
    labeller.field.value = 'cat'  # somebody clicked elsewhere: no Enter, no answer
    assert labeller.image == second and labeller.field.value == ''
    enter(labeller, '-')
    assert labeller.image == first and labeller.marked == {'dog'}
    enter(labeller, '0')
    assert (
        sheet.table().loc[first, ['cat', 'car', 'dog']] == '0'
    ).all() and labeller.image == second
    enter(labeller, '?')
    third = labeller.image
    enter(labeller, '+ bird')
    assert (
        third != second
        and sheet.table().loc[third, 'bird'] == '1'
        and [b.description for b in labeller.buttons] == ['1 cat', '2 car', '3 dog', '4 bird']
    )
    for _ in range(4):
        enter(labeller, '1')
    assert (
        sheet.waiting() == []
        and labeller.image is None
        and 'all of them are labelled' in labeller.told.value
    )


def test_back_shows_a_photo_in_its_own_mode(labeller):
    "A click on a photo of the sample in the mode of one label would take its other labels away."
    labeller.kind.value = True
    image = labeller.image
    for k in (0, 1):
        labeller.buttons[k].click()
    labeller.done.click()
    labeller.kind.value = False
    enter(labeller, '-')
    assert (
        labeller.image == image
        and labeller.kind.value
        and labeller.marked == {'cat', 'car'}
        and not labeller.done.disabled
    )
    labeller.buttons[2].click()
    labeller.done.click()
    assert labeller.sheet.table().loc[image].tolist() == ['1', '1', '1', 'test']


def test_clicks_mark_all_that_is_on_a_photo_of_the_sample(labeller):
    labeller.kind.value = True
    image = labeller.image
    for k in (0, 2, 1, 1):
        labeller.buttons[k].click()
    assert (
        labeller.marked == {'cat', 'dog'}
        and [b.button_style for b in labeller.buttons] == ['success', '', 'success']
        and not len(labeller.sheet.table())
    )
    labeller.done.click()
    assert labeller.sheet.table().loc[image].tolist() == ['1', '0', '1', 'test']
    labeller.kind.value = False
    once = labeller.image
    labeller.buttons[1].click()
    assert labeller.sheet.table().loc[once].tolist() == ['', '1', '', 'train']


# ---- your own method


@pytest.fixture(scope='module')
def own_method(tmp_path_factory):
    folder = tmp_path_factory.mktemp('method')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('SPML_NB_RUNS', str(folder / 'runs'))  # else what is done is not run again
        return run('your_own_method', folder)


def test_the_loss_has_the_gradient_of_its_formula(own_method):
    s = torch.linspace(-8, 8, 161, dtype=torch.float64, requires_grad=True)
    slopes = {
        0: lambda p: 3 * p**2 * (1 - p) ** 2,
        1: lambda p: p - 1,
        -1: lambda p: p,
    }
    for z, slope in slopes.items():
        loss = own_method['my_loss'](s[None], torch.full((1, 161), z), reduction='sum')
        (gradient,) = torch.autograd.grad(loss, s)
        assert torch.allclose(gradient, slope(torch.sigmoid(s)).detach(), atol=1e-12)


def test_all_had_the_same_search_and_seeds(own_method):
    ran = own_method['ran']
    assert set(ran.state) == {'done'}
    tried = [(c.loss, c.lr) for c in ran.config if c.seed == sweeps.SEARCH_SEED]
    rates = {loss: {lr for other, lr in tried if other == loss} for loss, _ in tried}
    assert set(rates) == {'an', 'em', 'my_hill'} and rates['an'] == rates['em'] == rates['my_hill']
    seeds = {(c.loss, c.seed) for c in ran.config if c.seed != sweeps.SEARCH_SEED}
    assert seeds == {(loss, seed) for loss in rates for seed in (0, 1)}
    assert {c.labels for c in ran.config} == {'single'}
    assert len(own_method['named']) == 4 and own_method['run'].startswith('my_hill')


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore:.*(no training image has it|known negative)')
@pytest.mark.parametrize('kind', SETS)
def test_a_method_is_compared_on_the_folder_of_its_reader(tmp_path, kind):
    folder = draw_set(tmp_path / 'photos', kind)
    names = run('your_own_method', tmp_path, dataset=str(folder))
    assert {c.labels for c in names['ran'].config} == {'full'}
    assert set(names['ran'].state) == {'done'}


# ---- choose a method


@pytest.fixture(scope='module')
def choose(tmp_path_factory):
    return run('choose_a_method', tmp_path_factory.mktemp('choose'))


def test_the_method_to_take_gains_most_on_the_boards(choose):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))
        boards = read_boards()
    boards = boards[(boards.labels == 'single') & ~(boards.exercised < 0.5)]
    rows = boards.groupby(['loss', 'head']).over_plain_an.agg(['mean', 'size'])
    everywhere = rows[rows['size'] == boards.dataset.nunique()]['mean'].sort_values()[::-1]
    leaders = choose['leaders']
    assert [*zip(leaders.loss, leaders['head'], strict=True)] == [*everywhere.index[:8]]
    means = [effect.mean for effect in leaders.over_an]
    assert means == pytest.approx(everywhere[:8].tolist(), abs=0.02)
    assert f'**Take `{everywhere.index[0][0]}`**' in choose['answer']


@pytest.mark.parametrize(
    'clean_validation, labels_a_photo', [(True, 1.4), (False, 1.4), (False, 40)]
)
def test_the_answer_follows_the_situation(choose, clean_validation, labels_a_photo):
    (cell,) = (c.source for c in read('choose_a_method').cells if 'In short' in c.source)
    source = cell.replace('clean_validation = False', f'clean_validation = {clean_validation}')
    source = source.replace('labels_a_photo = 1.5', f'labels_a_photo = {labels_a_photo}')
    names = dict(choose)
    exec(source, names)
    answer = names['answer']
    first = choose['leaders'].loss.iloc[0]
    if not clean_validation:
        first = choose['blind']['rows'][0]['loss']
    assert f'**Take `{first}`**' in answer
    near = 'cub_crops' if labels_a_photo == 40 else 'voc12_animals'
    expected = choose['expected'].loc[near]
    assert f'{near} ({expected["labels"]:.1f})' in answer
    assert f'{expected.lowest:+.1f}' in answer and f'{expected.highest:+.1f}' in answer
