"""`make docs`: every link within the site leads somewhere, nothing is fetched from elsewhere, every
formula is rendered, and the pages can be read on a window and on a phone.
"""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from browsing import find_axe_violations, needs_browser, open_chromium, resize

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow
PAGES = [
    'index.html',
    'nbs/methods/hml.html',
    'nbs/papers/em_apl.html',
    'nbs/tutorials/other_loops/index.html',
    'outputs/README.html',
    'reference/index.html',
    'reference/spml_nb/losses.html',
    'reference/spml_nb/use/estimator.html',
]


class Page(HTMLParser):
    """The anchors of a page, what it links to, and what it loads by itself."""

    def __init__(self, file):
        super().__init__()
        self.anchors, self.links, self.loaded = set(), [], []
        self.feed(file.read_text(encoding='utf-8'))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given[key] for key in ('id', 'name') if given.get(key)}
        if given.get('href'):
            (self.links if tag == 'a' else self.loaded).append(given['href'])
        if given.get('src'):
            self.loaded.append(given['src'])


@pytest.fixture(scope='module')
def site(tmp_path_factory):
    for name in ('pdoc', 'nbconvert', 'ziamath'):
        pytest.importorskip(name)
    folder = tmp_path_factory.mktemp('site') / 'docs'
    code = f'from pathlib import Path; import build; build.build(Path({str(folder)!r}))'
    done = subprocess.run(
        [sys.executable, '-c', code],
        cwd=ROOT / 'website',
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0 and 'warn' not in done.stderr.lower(), done.stderr
    return folder


@pytest.fixture(scope='module')
def pages(site):
    return {file: Page(file) for file in site.rglob('*.html')}


def is_local(link):
    return not re.match(r'[a-z]+:', link)


def test_every_link_and_anchor_within_the_site_leads_somewhere(site, pages):
    assert len(pages) > 200
    lost = []
    for file, page in pages.items():
        for link in filter(is_local, page.links + page.loaded):
            path, _, anchor = unquote(link).partition('#')
            goal = (file.parent / path).resolve() if path else file
            if not (goal.is_file() and goal.is_relative_to(site)):
                lost.append((file, link))
            elif anchor and goal in pages and anchor not in pages[goal].anchors:
                lost.append((file, link))
    assert not lost, lost


def test_no_page_loads_anything_from_elsewhere(site, pages):
    loaded = {link for page in pages.values() for link in page.loaded}
    assert not [link for link in loaded if not is_local(link) and not link.startswith('data:')]
    texts = [file.read_text(encoding='utf-8') for file in site.rglob('*.css')]
    texts += re.findall(r'<style.*?</style>', ''.join(map(Path.read_text, pages)), re.S)
    urls = re.findall(r'@import[^;]*|url\([^)]*\)', ''.join(texts))
    assert not [url for url in urls if '//' in url.partition('data:')[0]]


def test_each_notebook_and_public_module_has_a_page(site):
    notebooks = [
        file for file in (ROOT / 'nbs').rglob('*.ipynb') if '_checkpoints' not in str(file)
    ]
    assert len(notebooks) > 30
    for file in notebooks:
        page = site / file.relative_to(ROOT).with_suffix('.html')
        shown = re.search(r'<main.*</main>', page.read_text(encoding='utf-8'), re.S)[0]
        cells = json.loads(file.read_text(encoding='utf-8'))['cells']
        pictures = [
            output
            for cell in cells
            for output in cell.get('outputs', [])
            if {'image/png', 'image/jpeg'} & set(output.get('data', {}))
        ]
        assert shown.count('<img') >= len(pictures)
    for module in ('losses', 'methods/hml', 'use/estimator', 'data', 'cli'):
        assert (site / 'reference/spml_nb' / f'{module}.html').is_file()
    assert '<code' in (site / 'reference/spml_nb/losses.html').read_text(encoding='utf-8')


def test_formulas_are_rendered(site, pages):
    texts = {file: file.read_text(encoding='utf-8') for file in pages}
    formulas = re.findall(r'<math.*?</math>', ''.join(texts.values()), re.S)
    assert len(formulas) > 500
    assert not [formula for formula in formulas if '\\' in formula]
    for file, text in texts.items():
        if 'reference' in file.parts:  # docstrings have no TeX, but for one of torch's
            continue
        prose = re.sub(r'<(pre|code|script|math|svg)\b.*?</\1>', '', text, flags=re.S)
        assert not re.findall(r'\$[^$<]*\\[a-z]+[^$<]*\$', prose), file


@pytest.fixture(scope='module')
def chromium(tmp_path_factory):
    with open_chromium(tmp_path_factory.mktemp('profile')) as browser:
        yield browser


@needs_browser
@pytest.mark.parametrize('page', PAGES)
def test_a_page_fits_and_can_be_read_by_all(site, chromium, page):
    chromium.get((site / page).as_uri())
    for width in (390, 1400):
        resize(chromium, width)
        assert chromium.execute_script('return document.documentElement.scrollWidth') <= width
    assert find_axe_violations(chromium, passes=5) == []
    assert chromium.get_log('browser') == []


@needs_browser
def test_the_menu_opens_on_a_phone_and_is_there_on_a_window(site, chromium):
    place = "return document.getElementById('menu').getBoundingClientRect().toJSON()"
    resize(chromium, 390)
    chromium.get((site / 'index.html').as_uri())
    assert chromium.execute_script(place)['height'] == 0
    chromium.find_element('css selector', 'header button').click()
    menu = chromium.execute_script(place)
    assert 40 < menu['top'] < 100 and menu['bottom'] <= 800
    resize(chromium, 1400)
    chromium.get((site / 'nbs/losses.html').as_uri())
    assert chromium.execute_script(place)['width'] > 200
