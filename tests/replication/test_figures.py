"""The papers' figures: what runs they take; runs become arrays and arrays become pictures, the same ones every time."""
import os
import shutil
import subprocess
import sys
import zipfile
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from spml_nb.replication import drawing, figures, measuring, tables as papers, published as published_tables
from spml_nb import runs, sweeps, training
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.runs.config import Config, resolve
from spml_nb.runs.folder import Run

EVERY = [pytest.param(p, f, id=f'{p}-{f}') for p in published_tables.ORDER for f in figures.figures(p)]
NONE = pd.DataFrame()
KEYS = {'caption', 'kind', 'datasets', 'runs', 'config', 'series', 'axes', 'labels', 'observed', 'suites', 'marks', 'printed', 'notes'}


def pretended(paper, figure, suite='mini'):
    "What is known when all searches of a figure are done."
    keys = [sweeps.key(c) for c in figures.needed(paper, figure, suite, NONE)[0]]
    return pd.DataFrame({'val_map': 1.0}, index=keys)


# ---- which runs

def test_all_twenty_figures_are_there():
    assert {p: figures.figures(p) for p in published_tables.ORDER} == {
        'hml': ['2', '3', '4', '5', '6'], 'opml': ['3', '4', '5', '6', '7'], 'lac': ['3', '4', '5', '6'], 'two_way': ['1'],
        'em_apl': ['7', '8', '9', '10', '11']}


@pytest.mark.parametrize('paper, figure', EVERY)
def test_a_figure_says_all_that_is_used_and_nothing_else(paper, figure):
    about = figures.description(paper, figure)
    assert not about.keys() - KEYS and {'caption', 'kind', 'datasets', 'runs'} <= about.keys()
    assert not {k for own in about.get('series', {}).values() for k in own} - {'config', 'vary', 'axes'}
    assert about['kind'] in drawing.PENS
    assert about['kind'] in {*measuring.MEASURES, *figures.OBSERVED, 'scores', 'proportions', 'margin'}
    assert bool(about.get('observed')) == (about['kind'] in figures.OBSERVED)
    assert all(published_tables.stand_in(d, 'mini') for d in about['datasets'])
    assert about['caption'] in figures.caption(paper, figure) and about['caption'].endswith('.')


@pytest.mark.parametrize('paper, figure', EVERY)
def test_the_papers_own_data_sets_are_planned_too(paper, figure):
    search, _ = figures.needed(paper, figure, 'paper', pd.DataFrame())
    assert {c.label_seed for c in search} <= {1200}


@pytest.mark.parametrize('paper, figure', EVERY)
def test_a_figure_takes_as_many_valid_runs_as_it_says(paper, figure):
    known = pretended(paper, figure)
    configs = figures.needed(paper, figure, 'mini', known)[1]
    assert len(configs) == figures.description(paper, figure)['runs'] == len({sweeps.key(c) for c in configs})
    for c in configs: assert resolve(c).dataset.startswith('mini_') and (c.seed, c.label_seed) == (0, 0)
    for part in figures.parts(paper, figure, 'mini', known):
        for axis, value in zip(axes_of(paper, figure, part), part.values, strict=True):
            for field in axis['fields']: assert got(part.config, field) == (axis['form'].format(value) if 'form' in axis else value)


def axes_of(paper, figure, part):
    about = figures.description(paper, figure)
    return about['series'][part.series].get('axes', about.get('axes', []))

def got(config, field): return config.hparams[field.removeprefix('hparams.')] if field.startswith('hparams.') else getattr(config, field)


def test_all_figures_together_take_145_runs():
    configs = [c for p in published_tables.ORDER for c in figures.needed(p, None, 'mini', pretended(p, None))[1]]
    assert len({sweeps.key(c) for c in configs}) == 145


@pytest.mark.parametrize('paper, figure, table, row, column', [
    ('hml', '6', '2', 'HML (Ours)', 'COCO'), ('opml', '3', 'III', 'OPML', 'VOC'), ('lac', '6', '2', 'Ours', 'LEM / COCO'),
    ('em_apl', '7', '1', 'AN', 'CUB'), ('em_apl', '11', '1', 'EM', 'COCO')])
def test_a_run_that_a_table_has_is_the_same_run(paper, figure, table, row, column):
    cells = published_tables.cells(paper, table)
    cell = cells[(cells.row == row) & (cells.column == column)].iloc[0].to_dict()
    known = pretended(paper, figure)
    of_table = papers.finals(papers.plan(cell, 'mini'), known, [0])
    assert sweeps.key(of_table[0]) in {sweeps.key(c) for c in figures.needed(paper, figure, 'mini', known)[1]}


def test_while_a_search_is_not_done_its_runs_are_wanted_and_no_others():
    search, final = figures.needed('hml', 3, 'mini', NONE)
    assert len(search) == sweeps.BUDGET and final == []
    assert all(p.config is None for p in figures.parts('hml', 3, 'mini', NONE))


def test_photos_and_the_papers_own_data_too():
    assert {c.dataset for c in figures.needed('opml', 7, 'photos', NONE)[0]} == {'ccp'}
    assert {c.dataset for c in figures.needed('lac', None, 'paper', NONE)[0]} == {'coco14', 'nus'}
    for p in published_tables.ORDER:
        for c in figures.needed(p, None, 'paper', NONE)[0]: resolve(c)


@pytest.mark.parametrize('call, words', [
    (lambda: figures.figures('hmll'), ["'hmll'", 'hml']), (lambda: figures.caption('hml', 1), ["'1'", '2, 3, 4, 5, 6']),
    (lambda: figures.needed('hml', 2, 'photos', NONE), ["'photos'", 'mini']), (lambda: figures.draw('lac', '6', 'poster'), ["'poster'", 'photos']),
    (lambda: figures.collect('lac', 7, 'mini', NONE), ["'7'", '3, 4, 5, 6'])])
def test_unknown_papers_figures_and_suites_are_refused(call, words):
    with pytest.raises(SpmlError) as error: call()
    for word in words: assert word in str(error.value)


# ---- from runs to pictures, with small runs on drawn photos in the place of the suite's

@pytest.fixture(scope='module')
def world(tmp_path_factory):
    "40 drawn photos as in conftest, and a folder of runs that the tests of this file share."
    folder, rng, rows = tmp_path_factory.mktemp('world'), np.random.RandomState(0), []
    (folder / 'photos' / 'images').mkdir(parents=True)
    for i in range(40):
        pixels = rng.randint(0, 60, (40, 40, 3), dtype=np.uint8)
        pixels[:20, :, 2 * (i % 2)] = 220
        if i % 3: pixels[20:] = 230
        Image.fromarray(pixels).save(folder / 'photos' / 'images' / f'{i:03}.png')
        rows.append({'image': f'{i:03}.png', 'labels': ('red', 'blue')[i % 2] + ('|bright' if i % 3 else '')})
    pd.DataFrame(rows).to_csv(folder / 'photos' / 'labels.csv', index=False)
    return folder


@pytest.fixture
def photos(world, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(world / 'runs'))
    return world / 'photos'


@pytest.fixture
def small(photos, monkeypatch):
    "Every search is one run of two epochs on 40 photos, figures keep to two epochs, and runs are trained here and not in another process."
    vary = figures._varied
    def plan(cell, suite):
        given = {k: cell['config'][k] for k in ('loss', 'labels', 'head') if k in cell['config']}
        return papers.Plan([Config(**given, dataset=str(photos), backbone='mini', epochs=2, lr=2e-3)], {})
    def run(configs, *, tell, **launch):
        for c in configs: training.train(c)
        return NONE
    monkeypatch.setattr(papers, 'plan', plan)
    monkeypatch.setattr(sweeps, 'run', run)
    monkeypatch.setattr(figures, '_varied', lambda chosen, changes: vary(chosen, {k: v for k, v in changes.items() if k != 'epochs'}))
    return photos


def check_picture(file):
    svg = file.read_text()
    ElementTree.fromstring(svg)
    assert file.stat().st_size <= 150 * 1024 and '<dc:date>' not in svg
    return svg


OF_EACH_KIND = [('hml', 2), ('hml', 3), ('hml', 4), ('hml', 6), ('opml', 3), ('opml', 4), ('opml', 7), ('lac', 6), ('two_way', 1), ('em_apl', 7),
                ('em_apl', 8), ('em_apl', 9), ('em_apl', 11)]

def test_no_kind_is_forgotten():
    kinds = {figures.description(*f)['kind'] for f in OF_EACH_KIND} | {'proportions'}   # which has a test of its own: it needs whole data sets
    assert kinds == set(drawing.PENS)


@pytest.mark.parametrize('paper, figure', OF_EACH_KIND)
def test_from_runs_to_a_picture(small, paper, figure):
    figures.sweep(paper, figure, 'mini', tell=str)
    file = figures.arrays_file(paper, figure, 'mini')
    collected = drawing.read_collected(file)
    assert file.stat().st_size <= 300 * 1024 and collected.about['missing'] == []
    svg = check_picture(figures.draw(paper, figure, 'mini'))
    assert f'Fig. {figure}' in svg and 'parts are done' not in svg and '>missing<' not in svg
    first = file.read_bytes()
    file.unlink()
    assert figures.collect(paper, figure, 'mini').read_bytes() == first


@pytest.mark.parametrize('suite', ['mini', 'photos'])
def test_a_suite_has_its_own_files(small, suite):
    figures.sweep('opml', 7, suite, tell=str)
    assert figures.draw('opml', 7, suite).name == {'mini': 'fig7.svg', 'photos': 'fig7_photos.svg'}[suite]


def test_another_process_draws_the_same_bytes(small):
    figures.sweep('lac', 6, 'mini', tell=str)
    figures.sweep('hml', 3, 'mini', tell=str)
    ours = [figures.draw(*f, 'mini').read_bytes() for f in (('lac', 6), ('hml', 3))]
    command = "from spml_nb.replication import figures; [figures.draw(*f, 'mini') for f in (('hml', 3), ('lac', 6))]"
    for f in (('lac', 6), ('hml', 3)): figures.arrays_file(*f, 'mini').with_suffix('.svg').unlink()
    subprocess.run([sys.executable, '-c', command], check=True, env={**os.environ, 'PYTHONHASHSEED': '7', 'MPLBACKEND': 'agg'}, cwd=settings.path('outputs'))
    assert [figures.arrays_file(*f, 'mini').with_suffix('.svg').read_bytes() for f in (('lac', 6), ('hml', 3))] == ours


def test_the_users_style_changes_nothing():
    figures.collect('two_way', 1, 'mini', NONE)
    plain = figures.draw('two_way', 1, 'mini').read_bytes()
    with matplotlib.rc_context({'lines.linewidth': 7, 'font.size': 20, 'svg.fonttype': 'path', 'axes.grid': True}):
        assert figures.draw('two_way', 1, 'mini').read_bytes() == plain


def test_nothing_to_draw_gives_the_command_that_fills_it(small):
    assert figures.collect('opml', 7, 'photos', NONE) is None and figures.draw('opml', 7, 'photos') is None
    assert not figures.arrays_file('opml', 7, 'photos').exists()
    assert figures.command('opml', 7, 'photos') == 'spml sweep opml --figure 7 --suite photos'


def test_a_part_that_is_missing_is_left_out_and_the_title_says_so(small):
    figures.sweep('hml', 3, 'mini', tell=str)
    known = sweeps.finished()
    margin = next(p for p in figures.parts('hml', 3, 'mini', known) if p.values == (0.2,))
    figures.arrays_file('hml', 3, 'mini').unlink()
    file = figures.collect('hml', 3, 'mini', known.drop(sweeps.key(margin.config)))
    collected = drawing.read_collected(file)
    assert collected.about['missing'] == [margin.name] and margin.name not in collected.arrays and len(collected.arrays) == 6
    assert 'only 6 of 7 parts are done' in check_picture(figures.draw('hml', 3, 'mini'))
    before = drawing.read_collected(file).arrays
    figures.collect('hml', 3, 'mini', known)
    after = drawing.read_collected(file)
    assert after.about['missing'] == [] and all(np.array_equal(after.arrays[n]['imbalance'], before[n]['imbalance']) for n in before)


def test_arrays_outlive_the_checkpoints_but_not_the_choice_of_another_run(small, monkeypatch):
    figures.sweep('hml', 6, 'mini', tell=str)
    known, file = sweeps.finished(), figures.arrays_file('hml', 6, 'mini')
    whole = file.read_bytes()
    monkeypatch.setenv('SPML_NB_RUNS', str(settings.path('outputs') / 'elsewhere'))
    assert figures.collect('hml', 6, 'mini', known).read_bytes() == whole      # only the table of record is left
    assert figures.collect('hml', 6, 'mini', NONE).read_bytes() == whole       # not even that: nothing says that they are wrong
    other = {**figures.description('hml', 6), 'series': {'HML': {'vary': {'hparams': {'scale': 30}}}}}
    monkeypatch.setattr(figures, 'description', lambda paper, figure: other)
    assert figures.collect('hml', 6, 'mini', known) is None and not file.exists()


def test_where_only_the_record_is_the_networks_a_figure_looks_at_are_trained_again(small, monkeypatch, tmp_path):
    figures.sweep('hml', 6, 'mini', tell=str)
    figures.sweep('em_apl', 7, 'mini', tell=str)
    runs.export_csv()
    said, elsewhere = [], tmp_path / 'elsewhere'
    monkeypatch.setenv('SPML_NB_RUNS', str(elsewhere))
    assert not len(figures.sweep('hml', 6, 'mini', tell=said.append)) and not elsewhere.exists()      # its arrays are there
    figures.arrays_file('hml', 6, 'mini').unlink()
    figures.sweep('hml', 6, 'mini', dry_run=True, tell=said.append)
    assert '1 of them are missing' in said[-1]
    figures.sweep('hml', 6, 'mini', tell=said.append)
    assert figures.arrays_file('hml', 6, 'mini').is_file() and len(list(elsewhere.glob('*/DONE'))) == 1
    figures.sweep('em_apl', 7, 'mini', tell=said.append)                                             # observed, and its arrays are there
    assert len(list(elsewhere.glob('*/DONE'))) == 1 and not (elsewhere / 'observed').exists()


def test_a_dry_run_trains_nothing_and_counts(small, monkeypatch, tmp_path):
    said = []
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'new'))
    figures.sweep('em_apl', 7, 'mini', dry_run=True, tell=said.append)
    assert not settings.path('runs').exists() and '2 runs of search' in said[0]
    figures.sweep('em_apl', 7, 'mini', tell=said.append)
    figures.sweep('em_apl', 7, 'mini', dry_run=True, tell=said.append)
    assert said[-1].startswith('2 runs of search, 2 of the figure known by now; 0 of them are missing, 0 to be observed')


def test_a_damaged_file_is_named():
    file = figures.arrays_file('hml', 2, 'mini')
    file.parent.mkdir(parents=True)
    file.write_bytes(b'not a zip')
    with pytest.raises(SpmlError, match='fig2.npz'): figures.draw('hml', 2, 'mini')


def test_the_files_hold_no_date(tmp_path):
    measuring.write_arrays(tmp_path / 'a.npz', {'x': np.arange(3)})
    assert {i.date_time[:3] for i in zipfile.ZipFile(tmp_path / 'a.npz').infolist()} == {(1980, 1, 1)}


@pytest.mark.parametrize('paper, figure', [('opml', 5), ('opml', 6), ('em_apl', 10), ('em_apl', 8)])
def test_half_filled_figures_are_drawn(paper, figure):
    about, known = figures.description(paper, figure), pretended(paper, figure)
    rng = np.random.RandomState(0)
    made_up = {'scores': lambda: {'test_map': np.float32(rng.uniform(70, 80))}, 'proportions': lambda: {'positive': np.linspace(0.3, 0, 30)},
               'logits': lambda: {'logit': np.sort(rng.rand(5, 3, 3), 2), 'probability': np.sort(rng.rand(5, 3, 3), 2)}}[about['kind']]
    sources = figures._sources(paper, figure, 'mini', known)
    there, missing = sources[:len(sources) // 2], sources[len(sources) // 2:]
    data = [[d, published_tables.stand_in(d, 'mini')] for d in about['datasets']]
    meta = {'paper': paper, 'figure': str(figure), 'suite': 'mini', 'version': 1, 'data': data, 'parts': {n: p for n, p, _ in there}, 'missing': [n for n, *_ in missing]}
    file = figures.arrays_file(paper, figure, 'mini')
    drawing.write_collected(file, drawing.Collected(meta, {n: made_up() for n, *_ in there}))
    svg = check_picture(figures.draw(paper, figure, 'mini'))
    assert '>missing<' in svg and f'only {len(there)} of {len(sources)} parts' in svg
    assert all(ours in svg for _, ours in data) and about['labels']['y'] in svg


# ---- the arrays

def trained(folder, **given):
    config = Config(**{'loss': 'an', 'dataset': str(folder), 'backbone': 'mini', 'epochs': 2, 'labels': 'single', 'label_seed': 0, 'lr': 2e-3, **given})
    training.train(config)
    return Run(resolve(config))


def test_observing_changes_no_bit_and_is_resumed(photos, monkeypatch):
    config = Config(loss='em', dataset=str(photos), backbone='mini', epochs=3, labels='single', selection='last')
    plain = training.train(config)
    run = measuring.observe(config)
    assert np.array_equal(training.read_result(run).logits['test'], plain.logits['test'])
    with np.load(run.folder / 'observed.npz') as arrays: whole = dict(arrays)
    shutil.rmtree(run.folder)
    class Stop(Exception): pass
    def stop(self): raise Stop
    for _ in range(2):
        monkeypatch.setattr(training.Trainer, 'tell', stop)
        with pytest.raises(Stop): measuring.observe(config)
    monkeypatch.undo()
    monkeypatch.setenv('SPML_NB_RUNS', str(run.folder.parent.parent))
    monkeypatch.setenv('SPML_NB_DEVICE', 'cpu')
    measuring.observe(config)
    with np.load(run.folder / 'observed.npz') as arrays:
        for name, value in whole.items(): assert np.array_equal(arrays[name], value, equal_nan=True), name


def test_notes_are_of_the_right_entries(photos):
    config = Config(loss='an', dataset=str(photos), backbone='mini', epochs=3, labels='single', selection='last')
    run = measuring.observe(config)
    with np.load(run.folder / 'observed.npz') as arrays: found = dict(arrays)
    assert found['annotated'].shape == (3 * measuring.POINTS,) and found['logit'].shape == found['probability'].shape == (3, 3, 3)
    seen = measuring.examine(run)
    z, true = seen.task.observed, seen.task.data.labels[seen.index]
    for k, group in enumerate([z == 1, (z == 0) & (true == 1), (z == 0) & (true == -1)]):
        assert np.allclose(found['logit'][-1, k], np.quantile(abs(seen.logits[group]), [0.25, 0.5, 0.75]), atol=1e-5)
        assert np.allclose(found['probability'][-1, k], np.quantile(1 / (1 + np.exp(-seen.logits[group])), [0.25, 0.5, 0.75]), atol=1e-5)


@pytest.mark.parametrize('regime', ['finetune', 'linear'])
def test_a_run_is_examined_at_the_weights_that_its_result_is_of(photos, regime):
    run = trained(photos, regime=regime)
    assert np.allclose(measuring.examine(run, 'test').logits, training.read_result(run).logits['test'], atol=1e-4)


def test_the_loss_of_annotated_positives_is_their_mean(photos):
    notes = measuring.Notes()
    notes.steps = [[2.0, 1], [3.0, 3], [0.0, 0], [4.0, 1], [1.0, 1], [6.0, 2], [1.0, 4], [0.0, 0], [2.0, 2], [3.0, 1]]
    notes.epochs = [[[[0] * 3] * 3] * 2]
    assert np.allclose(notes.arrays()['annotated'], [5 / 4, 4, 7 / 3, 1 / 4, 5 / 3])


def test_gradients_and_cosines_are_those_of_the_formula(photos):
    for margin, labels in ((0.0, 'single'), (0.3, 'single'), (0.0, 'full')):
        run = trained(photos, loss='hml_fixed', labels=labels, hparams={'margin': margin, 'scale': 15})
        found, seen = measuring.density(run), measuring.examine(run)
        z, true = seen.task.observed, seen.task.data.labels[seen.index]
        theta_m = np.arccos(np.clip(seen.logits / 15, -1, 1))                  # the method scores by s·cos(θ + m)
        theta = theta_m - margin
        gradient = abs((z > 0) - 1 / (1 + np.exp(-seen.logits))) * np.sin(theta_m) / np.sin(theta)
        for k, group in enumerate([z == 1, (z != 1) & (true == 1), true == -1]):
            near = [np.histogram(np.clip(np.cos(theta[group]) + e, -1, 1), measuring.COSINES)[0] for e in (-1e-4, 1e-4)]
            assert found['cosine'][k].sum() == group.sum() and (abs(np.cumsum(found['cosine'][k]) - np.cumsum(near, 1)).min(0) == 0).all()
            near = [np.histogram(np.clip(gradient[group] + e, 0, 1.5), measuring.GRADIENTS)[0] for e in (-1e-4, 1e-4)]
            assert (abs(np.cumsum(found['gradient'][k]) - np.cumsum(near, 1)).min(0) == 0).all()
        p = 1 / (1 + np.exp(-seen.logits))
        assert measuring.imbalance(run)['imbalance'] == pytest.approx(abs((1 - p)[z == 1].sum() - p[z < 1].sum()) / len(z), rel=1e-5)


def test_confidences_and_class_densities_count_every_entry_once(photos):
    run = trained(photos)
    seen, test = measuring.examine(run), measuring.examine(run, 'test')
    z, true, true_test = seen.task.observed, seen.task.data.labels[seen.index], test.task.data.labels[test.index]
    assert measuring.confidence(run)['counts'].sum() == (true_test > 0).sum()
    found = measuring.class_density(run)
    for k, name in enumerate(found['names']):
        c = seen.task.data.class_names.index(name)
        assert found['counts'][k].sum(1).tolist() == [((z == 0) & (true == 1))[:, c].sum(), ((z == 0) & (true == -1))[:, c].sum(),
                                                      (true_test[:, c] == 1).sum(), (true_test[:, c] == -1).sum()]
        assert found['ap'][k] == pytest.approx(100 * run.result()['scores']['test_ap'][c], rel=1e-5)
    assert measuring.spread_classes(np.array([5, 80, 3, 40, 9, 1]), 3).tolist() == [1, 4, 2]


def test_maps_are_those_of_the_classes_named(photos):
    run = trained(photos, loss='opml')
    found, seen = measuring.activation(run), measuring.examine(run, 'test')
    names, true = seen.task.data.class_names, seen.task.data.labels[seen.index]
    assert found['maps'].shape[:2] == found['names'].shape == found['kinds'].shape and found['images'].dtype == np.uint8
    assert (found['kinds'][:-2][found['names'][:-2] != ''] == 1).all() and (found['kinds'][-2:] == -1).any(1).all()
    for image, given, kinds in zip(found['images'], found['names'], found['kinds'], strict=True):
        row = [k for k, i in enumerate(seen.index) if np.array_equal(seen.trainer.images.store[i], image)]
        assert all(true[row[0], names.index(n)] == kind for n, kind in zip(given, kinds, strict=True) if n)
    lac = trained(photos, loss='lac', hparams={'stage2_threshold': 0.5})
    found = measuring.attention(lac)
    assert (found['kinds'][:, 0] == 2).all() and (found['kinds'][:, 1:] < 2).all() and found['maps'][:, 0].max((1, 2)).min() == 255
    seen = measuring.examine(lac)
    images = [np.array_equal(seen.trainer.images.store[i], found['images'][0]) for i in seen.index]
    for name, kind in zip(found['names'][0, 1:], found['kinds'][0, 1:], strict=True):
        k, c = images.index(True), names.index(name)
        assert kind == (seen.task.data.labels[seen.index[k], c] if seen.logits[k, c] >= 0 else 0)


def test_shares_of_unannotated_labels(photos):
    config = Config(loss='an', dataset=str(photos), labels='single', label_seed=0)
    task = training.make_task(config)
    shares = []
    for z, t in zip(task.observed.T, task.data.labels[task.train].T, strict=True):
        hidden = [b for a, b in zip(z, t, strict=True) if a == 0]
        shares.append(sum(b == 1 for b in hidden) / len(hidden))
    assert measuring.proportions(config)['positive'].tolist() == pytest.approx(sorted(shares, reverse=True))


def test_labels_that_are_most_alike_come_first(photos):
    run = trained(photos, loss='hml')
    found, seen = measuring.correlation(run), measuring.examine(run)
    w = torch.nn.functional.normalize(seen.trainer.model.head.weight.detach(), dim=1)
    names = [seen.task.data.class_names.index(n) for n in found['names']]
    theta = torch.arccos((w @ w.T).clamp(-1, 1))[names][:, names]
    p = torch.sigmoid(seen.trainer.method.scale * torch.cos(theta + seen.trainer.method.margin)).detach().numpy()
    off = ~np.eye(len(names), dtype=bool)
    assert np.allclose(found['correlation'][off], p[off], atol=1e-4)
    highest = np.where(off, p, -1).max(1)
    assert (np.diff(highest) <= 1e-4).all()


def test_the_tempered_log_sum_exp():
    gap = np.array([0.0, 0.5, 3.0, 50.0])
    for T in measuring.TEMPERATURES:
        plain = [T * np.log(np.exp(5 / T) + np.exp((5 - g) / T)) - 5 for g in gap]
        assert np.allclose(measuring.tempered(gap, T), plain) and measuring.tempered(gap, T)[0] == pytest.approx(T * np.log(2))
