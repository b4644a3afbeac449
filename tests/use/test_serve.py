"A trained model as a web service: what a browser, a program and somebody unkind get from it."

import asyncio
import io
import socket
import subprocess
import sys
import time

import httpx
import numpy as np
import pytest
from browsing import find_axe_violations, needs_browser, open_chromium, resize
from PIL import EpsImagePlugin, Image

from spml_nb.use.predict import open_model, predict
from spml_nb.use.predictor import Predictor
from spml_nb.use.serve import MAX_BYTES, make_app


@pytest.fixture(scope='module')
def model():
    return open_model('coco18')


def photo(seed=0, format='JPEG') -> bytes:
    "A photo that only its EXIF tag turns upright, as phones write it."
    pixels = np.random.RandomState(seed).randint(0, 255, (6, 9, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    Image.fromarray(pixels).resize((180, 120)).save(file, format, exif=exif)
    return file.getvalue()


def ask(app, method, address, **options) -> httpx.Response:
    async def send():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url='http://service') as client:
            return await client.request(method, address, **options)

    return asyncio.run(send())


def test_the_service_names_what_predict_names(model, tmp_path):
    for seed in range(3):
        file = tmp_path / f'{seed}.jpg'
        file.write_bytes(photo(seed))
        answer = ask(make_app(model), 'POST', '/predict', content=file.read_bytes())
        row = predict('coco18', file).iloc[0]
        assert answer.status_code == 200
        assert '|'.join(answer.json()['labels']) == row['labels']
        probabilities = answer.json()['probabilities']
        assert list(probabilities) == model.class_names
        assert np.allclose([*probabilities.values()], row.iloc[1:-1].to_numpy(float), atol=1e-6)
        assert answer.json()['threshold'] == model.threshold


def test_a_page_and_a_sign_of_life(model):
    page = ask(make_app(model), 'GET', '/')
    assert page.headers['content-type'].startswith('text/html') and 'fetch(' in page.text
    health = ask(make_app(model), 'GET', '/health').json()
    assert health == {'status': 'ok', 'classes': model.class_names}
    assert ask(make_app(model), 'GET', '/predict').status_code == 405


@pytest.mark.parametrize('body', [b'', b'no photo', photo()[:900], photo(format='PNG')[:-40]])
def test_what_is_no_photo_is_refused(model, body):
    answer = ask(make_app(model), 'POST', '/predict', content=body)
    assert answer.status_code == 400 and answer.json()['error']


def test_a_model_without_finite_numbers_is_not_the_fault_of_who_asks(model):
    broken = Predictor(
        model.description, lambda pixels: np.full((len(pixels), len(model.class_names)), np.nan)
    )
    answer = ask(make_app(broken), 'POST', '/predict', content=photo())
    assert answer.status_code == 500 and 'no finite number' in answer.json()['error']
    assert ask(make_app(broken), 'POST', '/predict', content=b'no photo').status_code == 400


def test_a_body_that_is_too_large_is_not_read_to_its_end(model):
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 2**20
            yield bytes(2**20)

    answer = ask(make_app(model), 'POST', '/predict', content=endless())
    assert answer.status_code == 413 and MAX_BYTES < sent <= MAX_BYTES + 2**21


def test_a_body_that_does_not_come_is_given_up(model):
    async def slow():
        yield photo()[:100]
        await asyncio.sleep(60)

    begin = time.monotonic()
    answer = ask(make_app(model, max_seconds=0.5), 'POST', '/predict', content=slow())
    assert answer.status_code == 408 and time.monotonic() - begin < 30


@pytest.mark.silent('C10')
def test_no_other_format_reaches_a_decoder(model, monkeypatch):
    started = []
    monkeypatch.setattr(
        EpsImagePlugin,
        'Ghostscript',
        lambda *_, **__: started.append(1) or Image.new('RGB', (9, 9)).im,
    )
    body = b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n'
    assert ask(make_app(model), 'POST', '/predict', content=body).status_code == 400
    assert not started


@pytest.fixture(scope='module')
def port():
    "Where `spml serve` listens."
    with socket.socket() as free:
        free.bind(('localhost', 0))
        port = free.getsockname()[1]
    code = 'import sys; from spml_nb.cli import main; sys.exit(main())'
    command = [sys.executable, '-c', code, 'serve', 'coco18', '--port', str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        try:
            wait_for(server, port)
            yield port
        finally:
            server.terminate()


def wait_for(server, port):
    for _ in range(300):
        assert server.poll() is None, server.stdout.read().decode()
        try:
            return httpx.get(f'http://localhost:{port}/health', timeout=5)
        except httpx.TransportError:
            time.sleep(0.2)
    raise AssertionError('the service does not answer within a minute')


@pytest.mark.silent('C10')
def test_a_slow_request_holds_up_no_other(port):
    with socket.create_connection(('localhost', port), timeout=20) as slow:
        slow.sendall(b'POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf')
        answer = httpx.post(f'http://localhost:{port}/predict', content=photo(), timeout=60)
        assert 'person' in answer.json()['probabilities']
        slow.setblocking(False)
        with pytest.raises(BlockingIOError):
            slow.recv(4096)  # still open: the other did not wait for its end


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize('theme', ['light', 'dark'])
def test_the_page_shows_what_a_photo_holds(port, theme, tmp_path):
    (tmp_path / 'photo.jpg').write_bytes(photo())
    (tmp_path / 'photo.txt').write_text('no photo')
    with open_chromium(tmp_path / 'profile') as browser:
        browser.execute_cdp_cmd(
            'Emulation.setEmulatedMedia',
            {'features': [{'name': 'prefers-color-scheme', 'value': theme}]},
        )
        browser.get(f'http://localhost:{port}')
        choose, rows, error = (browser.find_element('id', id) for id in ('file', 'rows', 'error'))
        choose.send_keys(str(tmp_path / 'photo.jpg'))
        wait_until(lambda: rows.find_elements('tag name', 'tr'))
        scale = browser.find_element('id', 'scale').text
        assert scale.startswith('From 0.') and 'not the chance' in scale and '%' not in rows.text
        for width in (1400, 390):
            resize(browser, width)
            assert browser.execute_script(
                'return document.documentElement.scrollWidth <= innerWidth'
            )
            assert find_axe_violations(browser, passes=10) == []
        choose.send_keys(str(tmp_path / 'photo.txt'))
        wait_until(lambda: 'photo.txt' in error.text)
        assert not rows.is_displayed()


def wait_until(holds):
    for _ in range(150):
        if holds():
            return
        time.sleep(0.2)
    raise AssertionError('not within half a minute')


def test_without_its_packages_the_command_says_what_to_install(monkeypatch, capsys):
    from spml_nb import cli

    monkeypatch.setitem(sys.modules, 'uvicorn', None)
    assert cli.main(['serve', 'coco18']) == 2
    assert "pip install 'spml_nb[serve]'" in capsys.readouterr().err
