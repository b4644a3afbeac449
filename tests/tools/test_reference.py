"`make docs`: every public name with its docstring, from a disk, without a network."
import ast
import html
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from spml_nb.tools import reference
from spml_nb.base import settings

ROOT = Path(__file__).resolve().parents[2]
LOADED = {('script', 'src'), ('img', 'src'), ('link', 'href'), ('iframe', 'src'), ('source', 'src'), ('object', 'data'), ('image', 'href'), ('use', 'href')}


class Page(HTMLParser):
    "Text, ids, links, and what a browser would load."
    def __init__(self, text):
        super().__init__()
        self.text, self.ids, self.links, self.loaded = [], set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids |= {given['id']} if 'id' in given else set()
        if tag == 'a' and 'href' in given: self.links.append(given['href'])
        self.loaded += [value for name, value in given.items() if (tag, name) in LOADED]

    def handle_data(self, data): self.text.append(data)


@pytest.fixture(scope='module')
def built(tmp_path_factory):
    "All pages, made where nothing may be written elsewhere."
    work = tmp_path_factory.mktemp('reference')
    with pytest.MonkeyPatch.context() as patch:
        for kind in settings.PATHS: patch.setenv(f'SPML_NB_{kind.upper()}', str(work / 'elsewhere' / kind))
        start = reference.build(work / 'docs')
    assert start == work / 'docs' / 'index.html' and not (work / 'elsewhere').exists()   # importing trains and writes nothing
    return work / 'docs'


@pytest.fixture(scope='module')
def pages(built): return {file.relative_to(built).as_posix(): Page(file.read_text()) for file in built.rglob('*.html')}


def public():
    "(module, name, docstring) of every public function and class."
    for name in reference.modules():
        file = ROOT.joinpath(*name.split('.'))
        tree = ast.parse((file / '__init__.py' if file.is_dir() else file.with_suffix('.py')).read_text())
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith('_'): yield name, node.name, ast.get_docstring(node) or ''


def words(text): return re.findall(r'\w+', html.unescape(text))


def test_every_public_name_is_there_with_its_docstring(pages):
    found = {name: ' '.join(words(' '.join(page.text))) for name, page in pages.items()}
    missing = [(module, name) for module, name, text in public()
               if name not in pages[f'{module.replace(".", "/")}.html'].ids or ' '.join(words(text)) not in found[f'{module.replace(".", "/")}.html']]
    assert not missing and len([*public()]) > 400


def test_private_names_are_not(pages):
    for name, page in pages.items(): assert not [i for i in page.ids if re.match(r'_[a-z]', i.rpartition('.')[2]) and '__init__' not in i], name


def test_nothing_is_loaded_from_a_network(built, pages):
    for name, page in pages.items():
        assert [address for address in page.loaded if not address.startswith('data:') and '://' in address] == [], name
        text = (built / name).read_text()
        assert not re.search(r'@import|url\(\s*["\']?(https?:)?//', text) and 'cdn.' not in text, name
    assert not re.search(r'import\(|fetch\(\s*["\']http|src\s*=\s*["\']http', (built / 'search.js').read_text())


def test_links_lead_to_files_and_headings_that_exist(built, pages):
    broken = []
    for name, page in pages.items():
        for link in page.links:
            target, _, place = link.partition('#')
            if '://' in target or (not target and name.startswith('spml_nb')): continue    # pdoc's own, within a page
            file = Path(os.path.normpath((built / name).parent / target)) if target else built / name
            if not file.exists(): broken.append((name, link))
            elif place and file.is_relative_to(built) and place not in pages[file.relative_to(built).as_posix()].ids: broken.append((name, link))
    assert not broken, broken[:10]


def test_each_module_leads_to_its_notebook(pages):
    for name in reference.modules():
        file, page = reference.notebook(name), pages[f'{name.replace(".", "/")}.html']
        assert (file is None) == (name in ('spml_nb', 'spml_nb.methods')), name
        if file: assert file.is_file() and any(link.endswith(f'nbs/{file.name}') for link in page.links), name


def test_readme_and_troubleshooting_are_pages_of_it(pages):
    from spml_nb.base import errors
    assert {*errors.SECTIONS.values(), errors.GENERAL} <= pages['troubleshooting.html'].ids
    assert 'troubleshooting.html' in pages['index.html'].links and any(address.endswith('outputs/front.svg') for address in pages['index.html'].loaded)
    assert {f'{name.replace(".", "/")}.html' for name in reference.modules()} <= {*pages['index.html'].links}


def test_symbols_of_a_docstring_mean_themselves():
    assert reference.markdown('a * b * c, x < y, [0, 1](a). `k*[0]` Returns: n. Source: Eq. 3.') == \
        'a \\* b \\* c, x &lt; y, \\[0, 1\\](a). `k*[0]`\n\n**Returns:** n.\n\n**Source:** Eq. 3.'
