"""Labels that are probably missing are asked about one by one, and no answer is lost."""

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
import time

import httpx
import numpy as np
import pandas as pd
import pytest
from browsing import find_axe_violations, needs_browser, open_chromium, resize
from PIL import Image

from spml_nb.data.folder import read_folder
from spml_nb.runs.config import Config, resolve
from spml_nb.runs.folder import Run
from spml_nb.use import review as reviewing
from spml_nb.use.review import Review, make_review_app, open_review, retraining_command

CLASSES = ['cat', 'dog']


@pytest.fixture
def folder(tmp_path):
    "Photos, a table in which nothing is known of dogs, and questions about five of them."
    folder = tmp_path / 'photos'
    (folder / 'images').mkdir(parents=True)
    lines = ['image,cat,dog']
    questions = []
    for k in range(6):
        Image.new('RGB', (60, 40), (40 * k, 90, 90)).save(folder / 'images' / f'{k}.png')
        lines.append(f'{k}.png,{k % 2},')
        question = {'image': f'{k}.png', 'class': 'dog', 'label': 0}
        questions.append(question | {'probability': 0.9, 'answer': ''})
    (folder / 'labels.csv').write_text('\n'.join([*lines, '']))
    reviewing.write_questions(folder, questions[:5])
    return folder


def dogs(folder) -> list[int]:
    return read_folder(folder, 'photos').labels[:, 1].tolist()


def ask(app, method, address, host='localhost') -> httpx.Response:
    async def send():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url=f'http://{host}') as client:
            return await client.request(method, address)

    return asyncio.run(send())


def test_an_answer_is_in_the_table_at_once(folder):
    before = (folder / 'labels.csv').read_bytes()
    review = Review(folder)
    app = make_review_app(review)
    for number, word in enumerate(('yes', 'no', 'skip')):
        assert ask(app, 'PUT', f'/answers/{number}/{word}').status_code == 200
    assert dogs(folder) == [1, -1, 0, 0, 0, 0]
    assert review.backup.read_bytes() == before
    assert [path.name for path in folder.glob('*.bak*')] == ['labels.csv.bak']
    kept = [question['answer'] for question in Review(folder).questions]
    assert kept == ['yes', 'no', 'skip', '', '']


def test_an_answer_can_be_taken_back(folder):
    app = make_review_app(Review(folder))
    for word, label in {'yes': 1, 'no': -1, 'skip': 0}.items():
        assert ask(app, 'PUT', f'/answers/3/{word}').status_code == 200
        assert dogs(folder) == [0, 0, 0, label, 0, 0]


def test_a_skip_touches_no_table(folder):
    before = (folder / 'labels.csv').stat()
    Review(folder).answer(0, 'skip')
    assert (folder / 'labels.csv').stat() == before and not [*folder.glob('*.bak*')]


def test_what_somebody_has_written_meanwhile_stays(folder):
    review = Review(folder)
    review.answer(0, 'yes')
    table = (folder / 'labels.csv').read_text()
    (folder / 'labels.csv').write_text(table.replace('5.png,1,', '5.png,0,1'))
    review.answer(1, 'yes')
    assert dogs(folder) == [1, 1, 0, 0, 0, 1]


@pytest.mark.parametrize(
    'method, address, status',
    [
        ('PUT', '/answers/9/yes', 404),
        ('PUT', '/answers/0/maybe', 404),
        ('POST', '/answers/0/yes', 405),
        ('GET', '/answers/0/yes', 405),
        ('GET', '/photos/9', 404),
        ('GET', '/photos/../labels.csv', 404),
    ],
)
def test_anything_else_is_refused(folder, method, address, status):
    assert ask(make_review_app(Review(folder)), method, address).status_code == status
    assert dogs(folder) == [0] * 6


def test_under_another_name_nothing_is_answered(folder):
    app = make_review_app(Review(folder))
    assert ask(app, 'PUT', '/answers/0/yes', host='evil.example').status_code == 400
    assert dogs(folder) == [0] * 6


def test_a_row_that_is_gone_is_an_error_on_the_page(folder):
    app = make_review_app(Review(folder))
    table = (folder / 'labels.csv').read_text()
    (folder / 'labels.csv').write_text(table.replace('0.png,0,\n', ''))
    answer = ask(app, 'PUT', '/answers/0/yes')
    assert answer.status_code == 409 and '0.png' in answer.text
    (folder / 'images' / '1.png').unlink()
    assert ask(app, 'GET', '/photos/1').status_code == 404


@pytest.fixture(scope='module')
def partly(made, tmp_path_factory):
    "The photos of other tests, of which one name each is known."
    folder = shutil.copytree(made.folder, tmp_path_factory.mktemp('review') / 'photos')
    table = pd.read_csv(folder / 'labels.csv')
    names = table.pop('labels').str.split('|').str[0]
    table.assign(positives=names).to_csv(folder / 'labels.csv', index=False)
    return folder


def test_the_questions_are_about_unknown_labels_of_training_photos(
    made, partly, tmp_path, monkeypatch
):
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path))
    monkeypatch.setenv('SPML_NB_DEVICE', 'cpu')
    run = made.run('frozen')
    data = read_folder(partly, 'photos')
    review = open_review(partly, run.folder)
    assert review.questions
    for question in review.questions:
        row = data.image_names.index(question['image'])
        label = data.labels[row, data.class_names.index(question['class'])]
        assert data.split[row] == 'train' and label == question['label']
    missing = [q['probability'] for q in review.questions if q['label'] == 0]
    assert missing == sorted(missing, reverse=True)
    # going on trains nothing
    monkeypatch.setattr(reviewing, 'predict_held_out', None)
    assert open_review(partly, 'no run').questions == review.questions
    # what is answered is not asked again
    for number in range(len(review.questions)):
        review.answer(number, 'skip')
    monkeypatch.setattr(
        reviewing, 'predict_held_out', lambda config, task: np.full(task.observed.shape, 0.5)
    )
    again = open_review(partly, run.folder).questions
    pairs = [(question['image'], question['class']) for question in again]
    assert len(set(pairs)) == len(pairs)
    assert again[: len(review.questions)] == review.questions


def test_explicit_absences_are_no_gaps():
    rng = np.random.default_rng(0)
    p = rng.random((200, 2))
    observed = np.where(p > 0.5, 1, 0).astype(np.int8)
    observed[:20] = -1
    observed[20:40] = 0
    p[:40] = 0.99
    missing, _ = reviewing._choose_doubts(p, observed)
    assert set(missing['row']) == set(range(20, 40))
    missing, _ = reviewing._choose_doubts(p, np.where(observed == 0, np.int8(-1), observed))
    assert set(missing['row']) == set(range(40))


def test_the_end_of_a_review_is_the_command_that_trains_the_same_again(folder):
    run = Run(resolve(Config(dataset=str(folder), backbone='mini', device='cpu')))
    run.folder.mkdir(parents=True)
    run.start()
    command = f'spml train --like {run.folder.name}'
    assert retraining_command(folder, run.folder.name) == command
    assert retraining_command(folder, str(run.folder)) == command
    copy = shutil.copytree(folder, folder.with_name('a copy'))
    assert retraining_command(copy, run.folder.name) == f"{command} -p dataset '{copy}'"
    app = make_review_app(Review(folder), command)
    assert ask(app, 'GET', '/questions').json()['next'] == command
    assert 'seed' not in ask(app, 'GET', '/').text


# ---- a started command


@pytest.fixture
def server(folder):
    with socket.socket() as free:
        free.bind(('localhost', 0))
        port = free.getsockname()[1]
    code = 'import sys; from spml_nb.cli import main; sys.exit(main())'
    command = [sys.executable, '-c', code, 'review', str(folder), 'RUN', '--port', str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            wait_until(lambda: answers(port), process)
            yield process, port
        finally:
            process.kill()


def answers(port):
    try:
        return httpx.get(f'http://localhost:{port}/questions', timeout=5).is_success
    except httpx.TransportError:
        return False


def wait_until(holds, process=None):
    for _ in range(300):
        if holds():
            return
        assert process is None or process.poll() is None, process.stdout.read().decode()
        time.sleep(0.2)
    raise AssertionError('not within a minute')


@pytest.mark.slow
def test_a_kill_between_two_answers_loses_none(folder, server):
    process, port = server
    words = ['yes', 'no', 'yes', 'no', 'yes']
    for number, word in enumerate(words[:3]):
        httpx.put(f'http://localhost:{port}/answers/{number}/{word}', timeout=30)
    with pytest.raises(httpx.HTTPError):
        process.send_signal(signal.SIGKILL)
        httpx.put(f'http://localhost:{port}/answers/3/no', timeout=5)
    kept = [question['answer'] for question in Review(folder).questions]
    assert kept == ['yes', 'no', 'yes', '', '']
    assert dogs(folder) == [1, -1, 1, 0, 0, 0]
    assert 'dog' in (folder / 'labels.csv.bak').read_text()


@pytest.mark.slow
def test_the_terminal_ends_with_what_comes_next(folder, server):
    process, port = server
    httpx.put(f'http://localhost:{port}/answers/0/yes', timeout=30)
    process.send_signal(signal.SIGINT)
    told = process.stdout.read().decode()
    assert '1 of 5 answered' in told and told.endswith('Next: spml train --like RUN\n')


@pytest.mark.parametrize('step', ['back_up_table', 'write_label', 'write_questions'])
def test_a_kill_within_an_answer_leaves_whole_files(folder, monkeypatch, step):
    before = (folder / 'labels.csv').read_text()

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(reviewing, step, die)
    with pytest.raises(KeyboardInterrupt):
        Review(folder).answer(0, 'yes')
    monkeypatch.undo()
    assert Review(folder).questions[0]['answer'] == ''  # it is asked again
    assert dogs(folder)[0] == (1 if step == 'write_questions' else 0)
    if step != 'back_up_table':
        assert (folder / 'labels.csv.bak').read_text() == before
    Review(folder).answer(0, 'no')
    assert dogs(folder)[0] == -1


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize('theme', ['light', 'dark'])
def test_clicking_and_typing_through(folder, server, theme, tmp_path):
    _, port = server
    media = {'features': [{'name': 'prefers-color-scheme', 'value': theme}]}
    with open_chromium(tmp_path / 'profile') as browser:
        browser.execute_cdp_cmd('Emulation.setEmulatedMedia', media)
        browser.get(f'http://localhost:{port}')
        question, remark, photo = (
            browser.find_element('id', name) for name in ('question', 'remark', 'photo')
        )
        wait_until(lambda: '0.png' in remark.text)
        assert 'dog' in question.text
        loaded = 'return arguments[0].complete && arguments[0].naturalWidth'
        wait_until(lambda: browser.execute_script(loaded, photo))
        for width in (1400, 390):
            resize(browser, width)
            overflow = 'return document.documentElement.scrollWidth <= innerWidth'
            assert browser.execute_script(overflow)
            assert find_axe_violations(browser, passes=8) == []
        page = browser.find_element('css selector', 'body')
        page.send_keys('y')
        wait_until(lambda: '1.png' in remark.text)
        page.send_keys('n')
        wait_until(lambda: '2.png' in remark.text)
        page.send_keys('b')  # the second once more
        wait_until(lambda: '1.png' in remark.text)
        browser.find_element('css selector', '[data-answer=yes]').click()
        wait_until(lambda: '2.png' in remark.text)
        for key, after in {'s': '3.png', 'n': '4.png'}.items():
            page.send_keys(key)
            wait_until(lambda after=after: after in remark.text)
        page.send_keys('y')
        wait_until(lambda: not photo.is_displayed())
        assert browser.find_element('id', 'next').text == 'spml train --like RUN'
        assert find_axe_violations(browser, passes=8) == []
    assert dogs(folder) == [1, 1, 0, -1, 1, 0]
    assert json.loads((folder / 'review.json').read_text())['questions'][2]['answer'] == 'skip'


def test_where_answers_are_kept_is_said_as_it_is(folder):
    review = Review(folder)
    review.answer(0, 'yes')
    review.answer(1, 'no')
    assert review.describe_answers() == '2 of 5 answered; every answer is in the table'
    rows = [f'{k}.png,cat' for k in range(6)]
    (folder / 'labels.csv').write_text('\n'.join(['image,positives', *rows, '5.png,dog'][:7]))
    assert 'is in review.json alone' in Review(folder).describe_answers()
