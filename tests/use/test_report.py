"""One page about a run: its numbers are the run's, it needs nothing else, and it goes on where the
photos are gone.
"""

import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from browsing import find_axe_violations, needs_browser, open_chromium, resize
from scipy.special import expit

from spml_nb import cli, training
from spml_nb.base.errors import SpmlError
from spml_nb.data.loading import load
from spml_nb.runs.config import Config
from spml_nb.runs.folder import open_run
from spml_nb.use import scoring
from spml_nb.use.report import write_report
from spml_nb.use.scoring import evaluate_model


def cells(page) -> dict[str, list[str]]:
    "What the table of classes is sorted by."
    body = page.split('<table id="classes">')[1].split('</table>')[0]
    rows = [re.findall(r'data-value="([^"]*)"', row) for row in body.split('<tr>')[2:]]
    return {name: values for name, *values in rows}


@pytest.fixture(scope='module')
def partly(made, tmp_path_factory):
    "A run on the same photos, of each of which one name is known."
    folder = tmp_path_factory.mktemp('partly') / 'photos'
    shutil.copytree(made.folder, folder)
    table = pd.read_csv(folder / 'labels.csv')
    names = table.pop('labels').str.split('|').str[0]
    table.assign(positives=names).to_csv(folder / 'labels.csv', index=False)
    config = replace(made.run('frozen').config, dataset=str(folder), labels='full')
    fields = {name: getattr(config, name) for name in ('loss', 'regime', 'backbone', 'image_size')}
    return training.train(
        Config(dataset=str(folder), epochs=2, device='cpu', **fields), root=folder.parent / 'runs'
    )


def test_the_numbers_are_those_of_the_run(made, tmp_path):
    run = made.run('cosine')
    page = write_report(run.folder, tmp_path / 'page.html').read_text()
    scores = evaluate_model(run.folder, made.folder)
    for name, row in scores.total.iterrows():
        assert f'<th scope="row">{name}</th><td>{row.value:.1f}</td>' in page
        assert f'<td>{row.low:.1f} to {row.high:.1f}</td>' in page
    of_classes = cells(page)
    assert [*of_classes] == ['blue', 'bright', 'red']
    for name, row in scores.classes.iterrows():
        assert [*map(int, of_classes[name][:3])] == [row.present, row.named, row.right]
        assert float(of_classes[name][6]) == pytest.approx(row.ap)
    assert f'{run.scores["threshold"]:.4g}' in page
    assert f'spml predict {run.folder.name} ' in page


def test_the_page_needs_nothing_else(made, tmp_path):
    file = write_report(made.run('frozen').folder, tmp_path / 'page.html')
    page = file.read_text()
    assert file.stat().st_size < 3 * 2**20
    addresses = re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?([^"\')\s>]+)', page)
    assert addresses and all(address.startswith(('data:', '#')) for address in addresses)
    assert 'data:image/jpeg' in page and str(made.folder) not in page


def test_the_photos_are_those_of_the_worst_mistakes(made, tmp_path):
    run = made.run('frozen')
    page = write_report(run.folder, tmp_path / 'page.html').read_text()
    data = load(made.folder)
    rows = data.rows('test')
    p = 1 / (1 + np.exp(-run.logits['test'].astype(float)))
    wrong = ((p >= run.scores['threshold']) != (data.labels[rows] > 0)).any(1)
    expected = {data.image_names[row] for row in rows[wrong]}
    shown = re.findall(r'alt="Photo ([^"]+)"', page)
    assert set(shown) == expected and len(shown) == len(expected)


def test_without_clean_labels_no_precision_is_given(partly, tmp_path):
    page = write_report(partly.folder, tmp_path / 'page.html').read_text()
    rows = re.findall(r'<th scope="row">([^<]+)</th><td>', page.split('Label by label')[0])
    assert rows == ['observed AUC', 'recall', 'precision at least']
    assert 'class="notice"' in page
    heads = re.findall('<button type="button">([^<]+)<', page)
    assert 'ap' not in heads and {'named', 'right', 'recall', 'own threshold'} <= {*heads}
    assert '<dt>F1' not in page and '<dt>precision at least' in page


def test_the_measure_that_chose_is_shown(made, partly, tmp_path):
    page = write_report(partly.folder, tmp_path / 'page.html').read_text()
    scores = partly.scores
    assert f'observed AUC</th><td>{scores["observed_test_auc"]:.1f}</td>' in page
    assert f'by observed AUC: {scores["observed_val_auc"]:.1f} % there' in page
    assert 'validation observed AUC (%)' in page and 'validation mAP (%)' not in page
    page = write_report(made.run('cosine').folder, tmp_path / 'clean.html').read_text()
    assert 'validation mAP (%)' in page and 'AUC' not in page


@pytest.mark.parametrize('of_one_label', [False, True])
def test_thresholds_of_classes_are_suggested_with_what_they_leave_without_a_name(
    made, partly, tmp_path, of_one_label
):
    run = partly if of_one_label else made.run('cosine')
    page = write_report(run.folder, tmp_path / 'page.html').read_text()
    p = expit(run.logits['test'].astype(float))
    limits = open_run(run.folder).thresholds()['class_thresholds']
    for named in (p >= limits, p >= run.scores['threshold']):
        assert f'{named.sum(1).mean():.2f} labels a photo' in page.replace('\n', ' ') or (
            f'{named.sum(1).mean():.2f}, and none to' in page
        )
        assert f'none to {100 * (~named.any(1)).mean():.1f} %' in page
    assert ('cannot say which is better' in page) == of_one_label


def test_the_page_begins_with_what_a_model_hardly_names(partly, tmp_path, monkeypatch):
    narrow = 'red is 90 % of the names'
    page = write_report(partly.folder, tmp_path / 'page.html').read_text()
    assert narrow not in page
    monkeypatch.setattr(scoring, 'explain_narrow_naming', lambda photos, classes: narrow)
    page = write_report(partly.folder, tmp_path / 'other.html').read_text()
    assert narrow in page.split('<h2>')[0]


def test_probably_missing_labels_are_unknown_ones_of_photos_that_were_not_trained_on(
    partly, tmp_path
):
    page = write_report(partly.folder, tmp_path / 'page.html').read_text()
    section = page.split('probably missing</h2>')[1].split('<h2>')[0]
    data = load(partly.config.dataset)
    shown = re.findall(r'alt="Photo ([^"]+)">\s*<b>(\w+)</b>', section)
    assert shown
    for name, label in shown:
        row = data.image_names.index(name)
        assert data.split[row] != 'train'
        assert data.labels[row, data.class_names.index(label)] == 0


@pytest.mark.parametrize('gone', ['photo', 'folder', 'label'])
def test_without_the_photos_the_page_has_the_rest(made, tmp_path, gone):
    run = made.copy('cosine', tmp_path)
    folder = shutil.copytree(made.folder, tmp_path / 'photos')
    config = (run / 'config.json').read_text()
    (run / 'config.json').write_text(config.replace(str(made.folder), str(folder)))
    write_report(run, tmp_path / 'before.html')
    if gone == 'photo':
        (folder / 'images' / 'a' / '00.png').unlink()
    elif gone == 'folder':
        shutil.rmtree(folder)
    else:
        table = (folder / 'labels.csv').read_text()
        (folder / 'labels.csv').write_text(table.replace('blue', 'red', 1))
    page = write_report(run, tmp_path / 'after.html').read_text()
    assert 'class="notice"' in page and 'data:image/jpeg' not in page and '<svg' in page
    scores = made.run('cosine').scores
    assert f'<td>{scores["test_map"]:.4f}'.rstrip('0') in page
    aps = [float(value) for (value,) in cells(page).values()]
    assert aps == pytest.approx([100 * ap for ap in scores['test_ap']])


def test_a_page_is_never_overwritten(made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = made.run('cosine').folder
    assert cli.main(['report', str(run)]) == 0
    file = tmp_path / f'{run.name}.html'
    assert file.name in capsys.readouterr().out
    before = file.read_bytes()
    with pytest.raises(SpmlError, match='there already'):
        write_report(run)
    assert file.read_bytes() == before


def test_names_are_shown_and_not_obeyed(made, tmp_path, monkeypatch):
    from spml_nb.use import report

    description = report.describe_network(report.open_run(made.run('cosine').folder))
    evil = ['<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', 'a & b']
    monkeypatch.setattr(report, 'describe_network', lambda run: description | {'class_names': evil})
    page = write_report(made.run('cosine').folder, tmp_path / 'page.html').read_text()
    assert evil[0] not in page and evil[1] not in page and '&lt;script&gt;' in page


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize('theme', ['light', 'dark'])
def test_the_page_in_a_browser(made, partly, theme, tmp_path):
    pages = [
        write_report(made.run('cosine').folder, tmp_path / 'full.html'),
        write_report(partly.folder, tmp_path / 'partly.html'),
    ]
    media = {'features': [{'name': 'prefers-color-scheme', 'value': theme}]}
    with open_chromium(tmp_path / 'profile') as browser:
        browser.execute_cdp_cmd('Emulation.setEmulatedMedia', media)
        for page in pages:
            browser.get(page.as_uri())
            for width in (1400, 390):
                resize(browser, width)
                overflow = 'return document.documentElement.scrollWidth <= innerWidth'
                assert browser.execute_script(overflow)
                assert find_axe_violations(browser, passes=10) == []
        browser.get(pages[0].as_uri())
        resize(browser, 1400)
        head = browser.find_elements('css selector', '#classes th button')[7]
        for sign in (1, -1):
            head.click()
            column = browser.find_elements('css selector', '#classes td:nth-child(8)')
            values = [float(cell.get_attribute('data-value')) for cell in column]
            assert values == sorted(values, reverse=sign < 0)
