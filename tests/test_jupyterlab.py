"""The notebooks as a person runs them in JupyterLab: opened in a browser, all cells run from the
menu. Needs what test_index_page.py needs.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pandas as pd
import psutil
import pytest
from conftest import draw_photo_folder
from replication import test_index_page
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

pytest.importorskip('jupyterlab', reason='JupyterLab is not installed')
chromium, pytestmark = test_index_page.chromium, test_index_page.pytestmark
ROOT = Path(__file__).resolve().parents[1]
SETTINGS = {
    '@jupyterlab/apputils-extension/notification': {'fetchNews': 'false', 'checkForUpdates': False}
}
SMALL = "import os; os.environ['IN_TEST'] = '1'"


def edited(notebook, code):
    """A copy of a notebook whose parameters cell (where it has none: its first code cell) ends or
    begins with `code`.
    """
    cells = [c for c in notebook.cells if c.cell_type == 'code']
    tagged = [c for c in cells if 'parameters' in c.metadata.get('tags', [])]
    if tagged:
        tagged[0].source += f'\n{code}'
    else:
        cells[0].source = f'{code}\n{cells[0].source}'
    for cell in cells:
        cell.outputs, cell.execution_count = [], None
    return notebook


def put(folder, name, code):
    (folder / name).parent.mkdir(exist_ok=True)
    nbformat.write(edited(nbformat.read(ROOT / 'nbs' / name, 4), code), folder / name)


@pytest.fixture(scope='module')
def lab(tmp_path_factory):
    """A JupyterLab of its own: settings, runs and notebooks in temporary folders, stopped with its
    kernels afterwards. Yields: (its address, the notebooks).
    """
    base = tmp_path_factory.mktemp('lab')
    folders = {
        name: base / name
        for name in (
            'config',
            'data',
            'runtime',
            'settings',
            'workspaces',
            'notebooks',
            'runs',
            'ipython',
        )
    }
    for folder in folders.values():
        folder.mkdir()
    for plugin, values in SETTINGS.items():
        file = folders['settings'] / f'{plugin}.jupyterlab-settings'
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    env = {
        name: value
        for name, value in os.environ.items()
        if name != 'IN_TEST' and not name.startswith('JUPYTER')
    }
    env |= {
        'JUPYTER_CONFIG_DIR': str(folders['config']),
        'JUPYTER_DATA_DIR': str(folders['data']),
        'JUPYTER_RUNTIME_DIR': str(folders['runtime']),
        'JUPYTERLAB_SETTINGS_DIR': str(folders['settings']),
        'JUPYTERLAB_WORKSPACES_DIR': str(folders['workspaces']),
        'IPYTHONDIR': str(folders['ipython']),
        'SPML_NB_RUNS': str(folders['runs']),
        'SPML_NB_OUTPUTS': str(ROOT / 'outputs'),
        'SPML_NB_DEVICE': 'cpu',
        'SPML_NB_SETTINGS': str(ROOT / 'settings.ini'),
        'JUPYTER_PREFER_ENV_PATH': '1',
    }
    with open(base / 'log', 'wb') as log:
        server = subprocess.Popen(
            [
                sys.executable,
                '-m',
                'jupyterlab',
                '--no-browser',
                '--allow-root',
                '--ip=127.0.0.1',
                '--port=0',
                '--IdentityProvider.token=',
                f'--ServerApp.root_dir={folders["notebooks"]}',
                '--ServerApp.terminals_enabled=False',
                '--LabApp.extension_manager=readonly',
            ],
            cwd=base,
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield address(server, folders['runtime'], base / 'log'), folders['notebooks']
    finally:
        stop(server)


def address(server, runtime, log):
    file = runtime / f'jpserver-{server.pid}.json'
    for _ in range(600):
        if file.is_file():
            try:
                return json.loads(file.read_text())['url']
            except ValueError:
                pass  # it is being written
        assert server.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def stop(server):
    "End the server and every process it has started, and see that none is left."
    mine = (
        [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        if server.poll() is None
        else []
    )
    server.terminate()
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        pass
    _, alive = psutil.wait_procs(mine, timeout=10)
    for process in alive:
        process.kill()
    assert alive == [], f'left running: {alive}'


# ---- a notebook in the browser

WATCH = """
const cell = document.querySelectorAll('.jp-Notebook .jp-Cell')[arguments[0]];
window.seen = [];
function look() {
  const images = [...cell.querySelectorAll('.jp-OutputArea-output img')];
  const shown = images.map(image => image.src), last = window.seen.at(-1);
  if (shown.length && (!last || last.images.join() != shown.join()))
    window.seen.push({images: shown, prompt: cell.querySelector('.jp-InputPrompt').textContent});
}
new MutationObserver(look).observe(
  cell, {subtree: true, childList: true, attributes: true, attributeFilter: ['src']});
"""


def cells(browser):
    return browser.find_elements(By.CSS_SELECTOR, '.jp-Notebook .jp-Cell')


def prompts(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputPrompt')].map(p "
        "=> p.textContent.trim())"
    )


def until(browser, seconds, what):
    "Wait for something; what is on the page then stands in the message."
    try:
        return WebDriverWait(browser, seconds, poll_frequency=0.2).until(what)
    except TimeoutException:
        raise AssertionError(
            f'after {seconds} s: prompts {prompts(browser)}, errors {errors(browser)}'
        ) from None


def outputs(browser, mime):
    "The texts of all outputs of a kind, in order."
    found = f'.jp-Notebook .jp-OutputArea-output[data-mime-type="{mime}"]'
    return browser.execute_script(
        'return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)', found
    )  # at once: outputs come and go


def errors(browser):
    """Exceptions and whatever else was told in red, but for advice on photos that nobody has
    labelled yet.
    """
    told = outputs(browser, 'application/vnd.jupyter.stderr')
    return outputs(browser, 'application/vnd.jupyter.error') + [
        text for text in told if ': labels.csv has no row for ' not in text
    ]


def says(browser, mime, part):
    "Wait for an output with some words; the last ones are drawn after their cell has its number."
    return until(
        browser, 60, lambda b: next((text for text in outputs(b, mime) if part in text), None)
    )


def pictures(browser, n):
    "Wait for n pictures or more, all of them drawn. Returns: their widths."
    script = (
        "return [...document.querySelectorAll('.jp-Notebook .jp-OutputArea-output "
        "img')].map(image => image.complete ? image.naturalWidth : 0)"
    )
    return until(
        browser,
        60,
        lambda b: len(widths := b.execute_script(script)) >= n and all(widths) and widths,
    )


def open_notebook(browser, lab, name):
    "Open a notebook as the only one; back when its kernel is ready and every cell is there."
    url, folder = lab
    count = len(nbformat.read(folder / name, 4).cells)
    browser.get('about:blank')
    browser.get_log('browser')
    browser.get(f'{url}lab/tree/{name}?reset')
    until(
        browser,
        60,
        lambda b: (
            len(cells(b)) == count
            and b.find_elements(
                By.CSS_SELECTOR, '.jp-Notebook-ExecutionIndicator[data-status="idle"]'
            )
        ),
    )


def choose(browser, menu, entry):
    "Choose an entry of a menu with the mouse."

    def named(selector, text):
        return next(
            (
                e
                for e in browser.find_elements(By.CSS_SELECTOR, selector)
                if e.is_displayed() and e.text == text
            ),
            None,
        )

    named('.lm-MenuBar-itemLabel', menu).click()
    until(browser, 10, lambda b: named('.lm-Menu-itemLabel', entry)).click()


def run_all(browser, seconds=400):
    "Run -> Run All Cells; back when every cell has run (again) or one has failed."

    def numbers(b):
        return [int(n) if (n := p.strip('[]:')).isdigit() else 0 for p in prompts(b)]

    before = max(numbers(browser))

    def ended(b):
        return errors(b) or min(numbers(b)) > before

    def begun(b):
        return ended(b) or '[*]:' in prompts(b)

    choose(browser, 'Run', 'Run All Cells')
    try:
        WebDriverWait(browser, 30, poll_frequency=0.2).until(begun)
    except TimeoutException:
        choose(
            browser, 'Run', 'Run All Cells'
        )  # JupyterLab drops a click while it is still loading
    until(browser, seconds, ended)


def close_notebook(browser):
    "End the kernel of the notebook, so that only one takes memory and time."
    choose(browser, 'Kernel', 'Shut Down Kernel')
    until(
        browser,
        20,
        lambda b: (
            not b.find_elements(
                By.CSS_SELECTOR, '.jp-Notebook-ExecutionIndicator[data-status="idle"]'
            )
        ),
    )


def check_console(browser):
    "Nothing severe that the page itself has caused."
    assert [entry for entry in browser.get_log('browser') if entry['level'] == 'SEVERE'] == []


def run_whole(browser, lab, name, code):
    """Open a copy of a notebook, changed by `code` as in `edited`, and run it to its end; nothing
    on it or on the console may be an error.
    """
    put(lab[1], name, code)
    open_notebook(browser, lab, name)
    run_all(browser)
    assert errors(browser) == []
    check_console(browser)


def test_train_draws_while_it_trains(chromium, lab):
    folder = lab[1]
    put(folder, 'train.ipynb', 'epochs = 3')
    open_notebook(chromium, lab, 'train.ipynb')
    notebook = nbformat.read(folder / 'train.ipynb', 4)
    live = next(k for k, cell in enumerate(notebook.cells) if 'LivePlot(' in cell.source)
    chromium.execute_script(WATCH, live)
    run_all(chromium)
    assert errors(chromium) == []
    seen = chromium.execute_script('return window.seen')
    during = [s for s in seen if s['prompt'].strip() == '[*]:']
    assert len(during) >= 3, (
        f'{len(seen)} pictures, {len(during)} of them while the cell ran'
    )  # the first, and two changes
    assert all(len(s['images']) == 1 for s in seen)  # in place, not one below the other
    table = says(chromium, 'text/html', 'mAP (%)')
    result = json.loads(
        next((folder.parent / 'runs').glob('em-mini_voc-*/result.json')).read_text()
    )['scores']
    assert f"{result['test_map']:.4f}".rstrip('0') in table
    pictures(chromium, 4)
    run_all(chromium)  # a second time: the result is there already, and is shown
    assert errors(chromium) == [] and says(chromium, 'text/html', table)
    assert len(list((folder.parent / 'runs').glob('em-mini_voc-*'))) == 1
    check_console(chromium)
    close_notebook(chromium)


def test_evaluate_scores_the_run(chromium, lab):
    run_whole(chromium, lab, 'evaluate.ipynb', SMALL)
    says(chromium, 'application/vnd.jupyter.stdout', 'on mini_voc (part test, ')
    close_notebook(chromium)


@pytest.mark.parametrize(
    'name, count', [('choose_a_method', 1), ('label_photos', 3), ('your_own_data', 3)]
)
def test_a_tutorial_comes_to_its_answer(chromium, lab, name, count):
    run_whole(chromium, lab, f'tutorials/{name}.ipynb', SMALL)
    says(chromium, 'text/markdown', 'In short')
    assert min(pictures(chromium, count)) > 100
    close_notebook(chromium)


def test_a_method_of_ones_own_is_compared(chromium, lab):
    template = ROOT / 'nbs' / 'tutorials' / 'my_method'
    shutil.copytree(template, lab[1] / 'tutorials' / 'my_method')
    run_whole(chromium, lab, 'tutorials/your_own_method.ipynb', SMALL)
    says(chromium, 'application/vnd.jupyter.stdout', 'my_hill')
    assert min(pictures(chromium, 1)) > 100
    close_notebook(chromium)


# ---- labelling by keys


def shown(browser):
    "What the labeller says: how many are to go, and the photo."
    return next(
        (
            e.text
            for e in browser.find_elements(By.CSS_SELECTOR, '.jp-Notebook .widget-html-content')
            if 'to go' in e.text
        ),
        '',
    )


def type_answers(browser, answers, count):
    """Answer photos as a person does: read the photo's name, type, press Enter, look at the next.
    Returns: their names.
    """
    field = until(
        browser,
        60,
        lambda b: (
            shown(b)
            and next(
                iter(b.find_elements(By.CSS_SELECTOR, '.jp-Notebook .widget-text input')), None
            )
        ),
    )
    browser.execute_script(
        "arguments[0].scrollIntoView({block: 'center'}); arguments[0].focus()", field
    )  # cells above may still grow, and move it from under a click
    done = []
    for _ in range(count):
        before = shown(browser)
        done.append(before.split()[-1])
        field.send_keys(answers(done[-1]), Keys.ENTER)
        until(
            browser,
            60,
            lambda b, before=before: (
                shown(b) not in ('', before) and not field.get_property('value')
            ),
        )
    return done


@pytest.fixture
def photos(lab):
    "Sixty drawn photos without a table, and the names that apply, by file."
    folder = draw_photo_folder(lab[1].parent / 'photos to label')
    table = pd.read_csv(folder / 'labels.csv', index_col='image')['labels'].str.split('|')
    (folder / 'labels.csv').unlink()
    return folder, table


def test_twenty_photos_are_labelled_by_keys_and_survive_a_kill(chromium, lab, photos):
    folder, truth = photos
    put(
        lab[1],
        'tutorials/label_photos.ipynb',
        f"dataset, classes, sample, backbone, image_size = {str(folder)!r}, 'red|blue|bright', 6, "
        f"'mini', 40\n{SMALL}",
    )
    open_notebook(chromium, lab, 'tutorials/label_photos.ipynb')
    run_all(chromium)
    assert errors(chromium) == [] and says(chromium, 'text/markdown', 'Label ten photos or more')
    number = {'red': '1', 'blue': '2', 'bright': '3'}
    first = type_answers(chromium, lambda image: number[truth[image][0]], 8)
    for kernel in psutil.Process().children(
        recursive=True
    ):  # as a crash does it: nothing is asked, nothing is saved
        with contextlib.suppress(
            psutil.NoSuchProcess
        ):  # a process of the browser may have ended meanwhile
            if 'ipykernel_launcher' in ' '.join(kernel.cmdline()):
                kernel.kill()
    kept = pd.read_csv(folder / 'labels.csv', index_col='image')
    assert kept.index.tolist() == first and all(
        kept.at[image, truth[image][0]] == 1 for image in first
    )
    open_notebook(chromium, lab, 'tutorials/label_photos.ipynb')
    run_all(chromium)
    then = type_answers(
        chromium, lambda image: truth[image][0][:3], 6
    )  # the beginning of a name is enough
    next(
        b
        for b in chromium.find_elements(By.CSS_SELECTOR, '.jp-Notebook .widget-toggle-button')
        if 'sample' in b.text
    ).click()
    until(chromium, 60, lambda b: shown(b).startswith('6 to go'))
    last = type_answers(chromium, lambda image: ' '.join(number[name] for name in truth[image]), 6)
    kept = pd.read_csv(folder / 'labels.csv', index_col='image')
    assert kept.index.tolist() == [*first, *then, *last] and len(set(kept.index)) == 20
    for image, row in kept.iterrows():
        said = [name for name in number if row[name] == 1]
        assert said == (
            [name for name in number if name in truth[image]] if image in last else truth[image][:1]
        ) and (row.split in ('val', 'test')) == (image in last)
    run_all(chromium)  # now it trains
    assert errors(chromium) == []
    in_short = says(chromium, 'text/markdown', 'In short')
    assert (
        '20 photos' in in_short and '6 of them in full' in in_short and '95 % interval' in in_short
    )
    until(
        chromium,
        60,
        lambda b: b.find_elements(
            By.CSS_SELECTOR, '.jp-Notebook .jp-OutputArea-output[data-mime-type="image/jpeg"] img'
        ),
    )  # the suggestions
    missing = pd.read_csv(next((lab[1].parent / 'runs').glob('labelled-*/*/*/missing.csv')))
    assert set(missing.image) <= {*first, *then} and not [
        1
        for image, label in zip(missing.image, missing.label, strict=True)
        if kept.at[image, label] == 1
    ]

    def suggested(b):
        return [
            button.text
            for button in b.find_elements(By.CSS_SELECTOR, '.jp-Notebook .widget-button')
            if button.text[:1].isdigit()
        ]

    buttons = until(chromium, 60, lambda b: len(found := suggested(b)) == 3 and found)
    guesses = [float(text.split()[-1]) for text in buttons]
    assert guesses == sorted(guesses, reverse=True)  # in the order of the model's guess
    check_console(chromium)
    close_notebook(chromium)


def test_a_failing_cell_is_seen(chromium, lab):
    """The checks above can fail: the same reading finds the error of a notebook that raises, and
    that later cells have not run.
    """
    cells = map(nbformat.v4.new_code_cell, ('print(1)', "raise ValueError('broken')", '2'))
    notebook = nbformat.v4.new_notebook(
        cells=list(cells), metadata={'kernelspec': {'name': 'python3', 'display_name': 'python3'}}
    )
    nbformat.write(notebook, lab[1] / 'broken.ipynb')
    open_notebook(chromium, lab, 'broken.ipynb')
    run_all(chromium)
    assert len(errors(chromium)) == 1 and 'ValueError: broken' in errors(chromium)[0]
    close_notebook(chromium)
