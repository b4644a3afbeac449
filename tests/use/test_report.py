"""One page about a run: its numbers are the run's, it needs nothing else, and it goes on where the
photos are gone.
"""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from browsing import find_axe_violations, needs_browser, open_chromium, resize
from scipy.special import expit
from trained import change_threshold

from spml_nb import cli, training
from spml_nb.base.errors import SpmlError
from spml_nb.data.loading import load
from spml_nb.runs.config import Config
from spml_nb.runs.folder import CALIBRATION, open_run
from spml_nb.use import scoring
from spml_nb.use.calibrate import calibrate
from spml_nb.use.model_card import write_model_folder
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


@pytest.mark.silent('A4')
def test_what_chose_is_not_called_known_labels_where_unknown_ones_counted_as_negatives(
    partly, tmp_path
):
    run = tmp_path / partly.folder.name
    shutil.copytree(partly.folder, run)
    result = json.loads((run / 'result.json').read_text())
    result['scores']['val_truth'] = 'partly known'  # few validation photos are labelled in full
    (run / 'result.json').write_text(json.dumps(result))
    page = write_report(run, tmp_path / 'page.html').read_text()
    assert 'validation photos, against observed labels (unknown ones as negatives)' in page


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
    monkeypatch.setattr(scoring, 'explain_narrow_naming', lambda *counts: narrow)
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


@pytest.fixture
def calibrated(made, partly, tmp_path):
    """A run on photos of which one name each is known, the folder of its test photos labelled in
    full, which chose its threshold, and how many these are.
    """
    run = shutil.copytree(partly.folder, tmp_path / 'runs' / partly.folder.name)
    data = load(partly.config.dataset)
    full = tmp_path / 'full'
    (full / 'images').mkdir(parents=True)
    table = pd.read_csv(made.folder / 'labels.csv')
    rows = data.rows('test')[:-1]
    for row in rows:
        shutil.copy(data.images[row], full / 'images' / f'{row}{data.images[row].suffix}')
    names = [f'{row}{data.images[row].suffix}' for row in rows]
    labels = table.labels[rows].to_numpy()
    pd.DataFrame({'image': names, 'labels': labels}).to_csv(full / 'labels.csv', index=False)
    change_threshold(run, 1 - 1e-7)
    assert calibrate(run, full).taken
    return run, full, len(rows)


@pytest.mark.filterwarnings('ignore')
def test_test_photos_that_chose_the_threshold_are_known_by_their_bytes(
    calibrated, partly, tmp_path
):
    run, full, count = calibrated
    words = f'{count} of the test photos chose the threshold'
    page = write_report(run, tmp_path / 'page.html').read_text()
    assert words in page and 'or in any choice' not in page
    f1 = json.loads((run / CALIBRATION).read_text())['f1']
    assert f'On the {count} photos of full, labelled in full' in page.replace('\n', ' ')
    assert f'micro-F1 is {100 * f1:.1f} %' in page
    card = (write_model_folder(run, tmp_path / 'card') / 'README.md').read_text()
    assert f'{count} of them chose the threshold' in card and 'or in any choice' not in card
    assert f'{count} of them chose its threshold' in evaluate_model(run, full).heading
    before = write_report(partly.folder, tmp_path / 'before.html').read_text()
    assert 'or in any choice' in before and 'chose the threshold' not in before


def test_a_class_that_nearly_all_photos_get_is_said_first(partly, calibrated, tmp_path):
    run = calibrated[0]
    change = json.loads((run / CALIBRATION).read_text())
    names = open_run(run).result()['class_names']
    p = expit(np.load(run / 'logits.npz')['test'].astype(float))
    lowest = p.min(0)
    c = int(lowest.argmax())
    (run / CALIBRATION).write_text(json.dumps(change | {'threshold': float(lowest[c])}))
    begin = write_report(run, tmp_path / 'page.html').read_text().split('<h2>')[0]
    text = f'{names[c]} is named on {len(p)} of {len(p)} photos'
    everywhere = ((p >= lowest[c]).mean(0) >= 0.9).sum()
    assert (text in begin) == (2 * everywhere <= len(names))


def test_an_exported_model_has_no_report_and_its_card_is_named(made, tmp_path, capsys):
    folder = write_model_folder(made.run('linear').folder, tmp_path / 'card')
    for model, card in ((folder, folder / 'README.md'), ('coco18', 'coco18/README.md')):
        assert cli.main(['report', str(model), str(tmp_path / 'page.html')]) == 2
        told = capsys.readouterr().err
        assert 'a report needs the run' in told and f'{card}.' in told
        assert f'`spml evaluate {model} FULL`' in told


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
    assert f'<td>{scores["test_map"]:.1f}</td>' in page
    aps = [float(value) for (value,) in cells(page).values()]
    assert aps == pytest.approx([100 * ap for ap in scores['test_ap']])


def test_a_page_is_never_overwritten(made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = made.run('cosine').folder
    assert cli.main(['report', str(run)]) == 0
    file = tmp_path / f'{run.name}.html'
    assert file.name in capsys.readouterr().out
    before = file.read_bytes()
    with pytest.raises(SpmlError, match='already'):
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
