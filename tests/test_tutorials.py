"The tutorials: what a reader meets first, what is kept in them, and that what they say follows from what they computed."
import json
import os
import re
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
import torch

from spml_nb import methods, sweeps

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / 'nbs' / 'tutorials'
NAMES = ('choose_a_method', 'your_own_data', 'your_own_method')
MACHINE = re.compile(r'(?<![\w.])/(?:work|home|root|tmp|usr|var|Users|private)/')


def read(name): return nbformat.read(FOLDER / f'{name}.ipynb', 4)


def environment():
    "What a tutorial must leave alone; scikit-learn and torch set these others themselves, once a process."
    return {key: value for key, value in os.environ.items() if not key.startswith(('KMP_', 'TORCHINDUCTOR_'))}


def run(name, tmp_path, outputs=ROOT / 'outputs', **changed):
    "Execute a tutorial's code in this process, small, with `changed` names set after the cell that defines them. Returns: its names."
    before = environment(), methods.names(), set(sweeps.SUITES)
    names = {'__name__': '__main__'}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('IN_TEST', '1')
        patch.setenv('SPML_NB_OUTPUTS', str(outputs))
        patch.chdir(tmp_path)
        inside = environment()
        for cell in read(name).cells:
            if cell.cell_type != 'code': continue
            exec(compile(cell.source, f'{name}.ipynb', 'exec'), names)
            for key in list(changed):
                if key in names: names[key] = changed.pop(key)
            for number in plt.get_fignums(): plt.figure(number).canvas.draw()   # as a notebook shows it
            plt.close('all')
        assert environment() == inside, 'the environment is not as it was'
    assert (environment(), methods.names(), set(sweeps.SUITES)) == before and not changed
    return names


@pytest.mark.parametrize('name', NAMES)
def test_the_first_screen_says_what_it_is(name):
    first = read(name).cells[0]
    assert first.cell_type == 'markdown' and first.source.startswith('# ')
    assert re.search(r'^> \w', first.source, re.M), 'no sentence that says what it is for'
    assert re.search(r'\b(seconds?|minutes?)\b', first.source), 'no time'
    assert re.search(r'\b(change|set)\b', first.source), 'nothing to change'
    assert len(first.source) < 1600


@pytest.mark.parametrize('name', NAMES)
def test_what_is_kept_is_small_whole_and_from_no_machine(name):
    assert (FOLDER / f'{name}.ipynb').stat().st_size <= 300 * 1024
    code = [cell for cell in read(name).cells if cell.cell_type == 'code']
    outputs = [output for cell in code for output in cell.outputs]
    assert sum(any(kind.startswith('image/') for kind in o.get('data', {})) for o in outputs) >= 3, 'it was not run'
    assert not [o for o in outputs if o.output_type == 'error' or o.get('name') == 'stderr']
    texts = [json.dumps({k: v for k, v in o.get('data', {}).items() if not k.startswith('image/')}) + o.get('text', '') for o in outputs]
    assert not [t for t in texts if MACHINE.search(t)]
    assert 'In short' in texts[-1] or 'In short' in ''.join(texts[-3:])


def test_the_pattern_of_machine_paths_can_match():
    assert MACHINE.search("saved in '/tmp/x/run'") and not MACHINE.search('outputs/runs.csv, nbs/work/x, and/or')


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
    table = pd.read_csv(kept / 'photos' / 'labels.csv', dtype=str, keep_default_na=False).set_index('image')
    train = table[table.split == 'train'].drop(columns='split')
    assert ((train == '1').sum(axis=1) == 1).all() and set(np.unique(train)) == {'', '1'}
    wrong, missing = (pd.read_csv(kept / 'doubtful' / f'{name}.csv') for name in ('wrong', 'missing'))
    assert sorted(wrong.image) == sorted(train.index) and (wrong.given == [train.columns[(train.loc[i] == '1').argmax()] for i in wrong.image]).all()
    assert wrong.support.is_monotonic_increasing and missing.probability.is_monotonic_decreasing
    assert all(train.at[i, c] == '' for i, c in zip(missing.image, missing.label, strict=True))
    truth, data = names['truth'], names['data']
    row = {name: k for k, name in enumerate(data.image_names)}
    first = [truth[row[i], data.class_names.index(g)] < 0 for i, g in zip(wrong.image, wrong.given, strict=True)][:names['k']]
    assert np.mean(first) == names['found']


def test_nobody_judges_a_photo_it_was_trained_on(own_data):
    names, kept = own_data
    images = [set(t.image[t.split == 'train']) for t in (pd.read_csv(kept / f'half {k}' / 'labels.csv') for k in (0, 1))]
    assert not images[0] & images[1] and len(images[0] | images[1]) == len(names['train'])


def test_predictions_are_probabilities_of_the_chosen_run(own_data):
    names, kept = own_data
    table = pd.read_csv(kept / 'predictions.csv', keep_default_na=False)
    p = table[names['data'].class_names].to_numpy()
    assert p.shape == (12, 10) and p.min() >= 0 and p.max() <= 1
    threshold = names['chosen'].scores['threshold']
    above = [{c for c, v in zip(names['data'].class_names, row, strict=True) if v >= threshold} for row in p]
    assert [set(text.split('|')) - {''} for text in table.labels] == above


def test_a_folder_of_the_readers_whose_names_hold_any_sign(tmp_path, photo_folder):
    table = photo_folder / 'labels.csv'
    table.write_text(table.read_text().replace('red', '$\\red$'))
    names = run('your_own_data', tmp_path, folder=photo_folder, photos_network={'backbone': 'efficientnet_lite0', 'regime': 'linear', 'image_size': 64},
                methods=('an', 'em'), runs_folder=tmp_path / 'kept', new_photos=photo_folder / 'images')
    assert names['truth'] is None and set(names['best']) == {'an', 'em'}
    assert len(names['doubtful']) == (names['observed'] > 0).sum() and len(names['again']) == 60


# ---- your own method

@pytest.fixture(scope='module')
def own_method(tmp_path_factory): return run('your_own_method', tmp_path_factory.mktemp('method'))


def test_the_loss_has_the_gradient_of_its_formula(own_method):
    s = torch.linspace(-8, 8, 161, dtype=torch.float64, requires_grad=True)
    for z, slope in ((0, lambda p: 3 * p ** 2 * (1 - p) ** 2), (1, lambda p: p - 1), (-1, lambda p: p)):
        gradient, = torch.autograd.grad(own_method['hill_loss'](s[None], torch.full((1, 161), z), reduction='sum'), s)
        assert torch.allclose(gradient, slope(torch.sigmoid(s)).detach(), atol=1e-12)


def test_all_had_the_same_search_and_are_compared_by_seed(own_method):
    table, suite = own_method['table'], own_method['sweeps']
    assert set(table.loss) == {'an', 'em', 'hill'} and (table.n == 2).all() and suite is sweeps
    tests = own_method['tests']
    mine, plain = (np.array(table.set_index('loss').test_maps[name]) for name in ('hill', 'an'))
    line = tests.loc['an']
    assert line.difference == pytest.approx((mine - plain).mean(), abs=0.02) and line.low < line.difference < line.high
    assert line['p paired'] == pytest.approx(own_method['stats'].ttest_rel(mine, plain).pvalue, rel=0.2)


def test_the_number_of_seeds_is_that_of_a_simulation(own_method):
    random = np.random.default_rng(0)
    draws = random.normal(1.0, 1.0, (20000, 10))
    t = draws.mean(1) / (draws.std(1, ddof=1) / 10 ** 0.5)
    found = (abs(t) > own_method['stats'].t.ppf(0.975, 9)).mean()
    assert own_method['power'](10, 1.0) == pytest.approx(found, abs=0.015)
    assert own_method['seeds_needed'](1.0, 1.0) == 10


# ---- choose a method

@pytest.fixture(scope='module')
def choose(tmp_path_factory): return run('choose_a_method', tmp_path_factory.mktemp('choose'))


def test_gains_are_those_of_the_record(choose):
    compared = choose['compared']
    both = compared.dropna(subset=['over_an'])
    assert len(both) and np.allclose(both.gain, both.over_an, atol=0.011)
    clear = compared[compared.verdict == 'gains']
    assert (clear.low > 0).all() and (clear.maps.map(len) >= 2).all()


def test_advice_is_backed_or_withheld(choose):
    decision, compared = choose['decision'], choose['compared']
    for _, line in decision.iterrows():
        if line.advice in set(compared.method):
            verdicts = compared[(compared.method == line.advice) & compared.dataset.isin(line['evidence from'].split(', '))].verdict
            assert 'loses' not in set(verdicts)
        if line['evidence from'].startswith(('no finished', 'fewer')): assert line.advice == 'no advice'


def test_advice_follows_the_numbers(tmp_path):
    "With the numbers of two methods exchanged in the files, the advice names the other one; with one data set alone, nothing breaks."
    outputs, numbers = tmp_path / 'outputs', ['val_map', 'test_map', 'sd', 'over_an', 'test_maps']
    shutil.copytree(ROOT / 'outputs', outputs, ignore=shutil.ignore_patterns('*.svg', '*.npz', '*.html'))
    file = min(f for f in (outputs / 'methods').glob('*.csv') if not f.stem.endswith(('_search', '_diagnosis', '_best_of_k')))
    for other in (outputs / 'methods').glob('*'):
        if not re.fullmatch(f'{file.stem}(_search|_diagnosis|_best_of_k)?.csv', other.name): other.unlink()
    table = pd.read_csv(file)
    table = table[(table['head'] == 'linear') & (table.n == table.n.max()) & ~(table.get('exercised', pd.Series(1.0, table.index)) < 0.5)]
    others = table[(table.labels == 'single') & (table.loss != 'an')]
    top, low = others.val_map.idxmax(), others.val_map.idxmin()
    table.loc[[top, low], numbers] = table.loc[[low, top], numbers].to_numpy()
    table.to_csv(file, index=False)
    names = run('choose_a_method', tmp_path, outputs=outputs)
    advice = names['decision'].set_index('situation').advice
    own, none = ['features frozen', 'fine-tuning, end to end'][::1 if names['facts'].regime.iloc[0] == 'linear' else -1]
    assert re.search(rf'\b{table.loss[low]}\b', advice[own]) and advice[none] == 'no advice'
