"""Every error names the section of TROUBLESHOOTING.md that explains it, and the page speaks of
every error there is.
"""

import ast
import functools
import pickle
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from spml_nb import cli
from spml_nb.base import errors, settings
from spml_nb.base.errors import SpmlError, as_kind, one_of, section
from spml_nb.data import labels

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, PAGE = ROOT / 'spml_nb', ROOT / errors.PAGE
LONG = 12  # characters of a message that the page must quote; all of it where there are fewer
CHECKS = ('one_of', 'as_kind')
WORDLESS = {
    ('spml_nb.base.errors', 'one_of'),
    ('spml_nb.data.official.registry', '_bring'),
}  # these raise a text made elsewhere: with `Did you mean`, with instructions

# one row explains them all: the message names the file, the remedy is the same
COMMON = 'any other message about a file of a set of the papers'


class Site(NamedTuple):
    """A place where an error is raised. name: of the function or class around it; check: one_of or
    as_kind, '' for a raise; parts: the fixed parts of its text.
    """

    module: str
    line: int
    name: str
    see: str | None
    check: str
    parts: list[str]

    @property
    def section(self):
        return self.see or section(self.module)


def fixed(node):
    """The fixed parts of a text: of f-strings between the holes, of sums, of both ways of a
    condition.
    """
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr | ast.FormattedValue | ast.BinOp | ast.IfExp):
        return [part for child in ast.iter_child_nodes(node) for part in fixed(child)]
    if isinstance(node, ast.Call):
        return fixed(node.func.value) if isinstance(node.func, ast.Attribute) else []
    return []


def kinds(trees):
    "SpmlError and the classes made of it."
    found = {'SpmlError'}
    for tree in trees:
        found |= {
            n.name
            for n in ast.walk(tree)
            if isinstance(n, ast.ClassDef)
            and any(isinstance(b, ast.Name) and b.id in found for b in n.bases)
        }
    return found


def sites_of(module, tree, names):
    for top in tree.body:
        for call in ast.walk(top):
            called = call.func if isinstance(call, ast.Call) else None
            name = (
                called.id
                if isinstance(called, ast.Name)
                else called.attr
                if isinstance(called, ast.Attribute)
                else None
            )
            if name not in (*names, *CHECKS) or not call.args:
                continue
            given = {k.arg: k.value for k in call.keywords}
            text = (
                given.get('what', call.args[2] if len(call.args) > 2 else None)
                if name in CHECKS
                else call.args[0]
            )
            see = given.get('see')
            yield Site(
                module,
                call.lineno,
                getattr(top, 'name', ''),
                see.value if isinstance(see, ast.Constant) else None,
                name if name in CHECKS else '',
                [part for part in fixed(text) if re.search(r'\w{3}', part)],
            )


def module_of(file):
    return '.'.join(('spml_nb', *file.relative_to(PACKAGE).with_suffix('').parts))


@functools.cache
def sites():
    trees = {
        module_of(file): ast.parse(file.read_text())
        for file in sorted(PACKAGE.rglob('*.py'))
        if file.name != '_modidx.py'
    }
    names = kinds(trees.values())
    return [site for module, tree in trees.items() for site in sites_of(module, tree, names)]


def anchor(heading):
    return re.sub(r'[-\s]+', '-', re.sub(r'[^\w\s-]', '', heading).strip().lower())


@functools.cache
def quoted():
    "{section: the phrases in code marks in the first cell of its rows, cut at the holes …}"
    found = {}
    for part in re.split(r'^## ', PAGE.read_text(encoding='utf-8'), flags=re.M)[1:]:
        cells = [
            re.split(r'(?<!\\)\|', line)[1] for line in part.splitlines() if line.startswith('| ')
        ]
        spans = [
            span.replace(r'\|', '|')
            for cell in cells
            for span in re.findall(r'`` ?(.+?) ?``|`([^`]+)`', cell)
            for span in span
            if span
        ]
        found[anchor(part.splitlines()[0])] = [
            phrase.strip() for span in spans for phrase in span.split('…') if phrase.strip()
        ]
    return found


def explained(site, phrases):
    """Whether a phrase of the page is in the message, long enough to find it by; the noun of a
    check must be there whole.
    """
    if site.module.startswith('spml_nb.data.official.') and not site.check:
        return COMMON in PAGE.read_text(encoding='utf-8')
    parts = [' '.join(part.split()).strip() for part in site.parts]
    if not parts:
        return (
            bool(site.check) or (site.module, site.name) in WORDLESS
        )  # a noun not known here is in the row of the check itself
    longest = max(parts, key=len)
    if site.check:
        return any(longest in phrase for phrase in phrases)
    return any(
        phrase in part and len(phrase) >= min(LONG, len(longest))
        for phrase in phrases
        for part in parts
    )


def test_every_section_is_a_heading_and_every_sub_package_has_one():
    assert {
        *errors.SECTIONS.values(),
        errors.GENERAL,
        *(site.see for site in sites() if site.see),
    } <= set(quoted())
    parts = {
        file.name.removesuffix('.py')
        for file in PACKAGE.iterdir()
        if file.suffix == '.py' or (file / '__init__.py').is_file()
    }
    assert parts - {'__init__', '_modidx'} == set(errors.SECTIONS), (
        'a sub-package needs its line in SECTIONS of spml_nb/base/errors.py, and no other has one'
    )


def test_the_links_on_top_lead_to_every_section():
    assert re.findall(
        r'\]\(#([\w-]+)\)', PAGE.read_text(encoding='utf-8').split('\n## ')[0]
    ) == list(quoted())


@pytest.mark.parametrize('name', sorted(set(errors.SECTIONS.values())))
def test_the_page_speaks_of_every_error(name):
    here = [site for site in sites() if site.section == name]
    missing = [
        f'{site.module}:{site.line} {site.name}: '
        f'{max(site.parts, key=len, default="(no fixed text: quote it as a constant)")!r}'
        for site in here
        if not explained(site, quoted()[name])
    ]
    assert not missing, (
        f'under "{name}" of {errors.PAGE} add a row for each, whose first cell quotes {LONG} or '
        'more characters of the text in code marks (the whole noun for one_of and as_kind), then '
        'why it happens and what to do:\n' + '\n'.join(missing)
    )


def test_nothing_on_the_page_is_out_of_date():
    """A quoted phrase that no error has any more is a leftover. What other programs say, and what
    is only printed, is marked with *.
    """
    texts = [
        ' '.join(node.value.split())
        for file in PACKAGE.rglob('*.py')
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    old = []
    for line in PAGE.read_text(encoding='utf-8').splitlines():
        cell = line.split('|')[1] if line.startswith('| `') else ''
        if '\\*' in cell:
            continue
        for span in re.findall(r'`` ?(.+?) ?``|`([^`]+)`', cell):
            old += [
                p.strip()
                for text in span
                for p in text.split('…')
                if len(p.strip()) >= LONG and not any(part(p.strip()) in text for text in texts)
            ]
    assert not old, f'{errors.PAGE} quotes what nothing says: {old}'


def part(phrase):
    return phrase.removeprefix('unknown ')


def test_no_site_is_overlooked():
    found = {(site.module.rpartition('.')[2], site.check) for site in sites()}
    assert {
        ('folder', ''),
        ('config', 'one_of'),
        ('config', 'as_kind'),
        ('fetch', ''),
        ('hml', ''),
        ('cli', ''),
    } <= found and len(sites()) > 250
    tree = ast.parse(
        "def f(a):\n    raise SpmlError(f'{a} is too long to be a name, {a!r} is'\n                    ' not.' if a else 'b' + str(a), see='training')\n"
        "class G:\n    def g(self): one_of(1, (2,), 'colour')\n"
    )
    first, second = sites_of('spml_nb.runs', tree, {'SpmlError'})
    assert (first.name, first.section, second.name, second.check, second.parts) == (
        'f',
        'training',
        'G',
        'one_of',
        ['colour'],
    )
    assert 'is too long to be a name, ' in [part.lstrip() for part in first.parts]
    assert (
        explained(first, ['too long to be'])
        and not explained(first, ['too long'])
        and not explained(first, ['too long to bee'])
    )
    assert explained(second, ['unknown colour']) and not explained(second, ['unknown col'])


def raised(call):
    with pytest.raises(SpmlError) as caught:
        call()
    return caught.value


def test_the_section_is_that_of_the_module_which_raises():
    for call, name in (
        (lambda: labels.full(5), 'data'),
        (lambda: labels.setting('half'), 'data'),
        (lambda: one_of(1, [2], 'number'), errors.GENERAL),
        (lambda: as_kind('a', int, 'number'), errors.GENERAL),
    ):
        error = raised(call)
        assert str(error) == f'{error.message} Help: {errors.PAGE}#{name}' and '\n' not in str(
            error
        )


def test_a_check_speaks_for_its_caller():
    from spml_nb import runs
    from spml_nb.methods.core import find

    for call, name in (
        (lambda: runs.Config(lr=-1), 'runs-and-their-parameters'),
        (lambda: runs.Config(lrr=1), 'runs-and-their-parameters'),
        (lambda: runs.Config(epochs='x'), 'runs-and-their-parameters'),
        (lambda: find('emm'), 'methods-and-hyper-parameters'),
        (lambda: settings.path('shed'), 'settings-and-files'),
    ):
        assert raised(call).see == name


def test_an_error_within_an_error_shows_one_link():
    inner = raised(lambda: labels.full(5))
    outer = SpmlError(f'{inner} It came from a.csv; also: {inner}')
    assert (
        str(outer)
        == f'{inner.message} It came from a.csv; also: {inner.message} Help: {errors.PAGE}#data'
    )
    assert (
        str(SpmlError(f'again: {inner}', see='training'))
        == f'again: {inner.message} Help: {errors.PAGE}#training'
    )
    assert (
        SpmlError(f'cut: {str(inner)[:-4]}').see == errors.GENERAL
        and str(SpmlError(f'cut: {str(inner)[:-4]}')).count('Help') == 1
    )


class Own(SpmlError):
    pass


@pytest.mark.parametrize('kind', [SpmlError, Own])
def test_an_error_travels_between_processes_and_is_raised_again(kind):
    first = kind('two\nlines', see='training')
    for copy in (pickle.loads(pickle.dumps(first)), kind(*first.args), kind(str(first))):
        assert type(copy) is kind and (str(copy), copy.message, copy.see) == (
            f'two\nlines Help: {errors.PAGE}#training',
            'two\nlines',
            'training',
        )
    try:
        try:
            raise first
        except SpmlError as error:
            raise type(error)(f'more: {error}') from error
    except kind as error:
        assert str(error) == f'more: {first}'


def test_the_command_prints_one_line_with_the_link(capsys):
    assert cli.main(['train', '-p', 'lrr', '1']) == 2
    told = capsys.readouterr().err
    assert told.count('\n') == told.count('Help: ') == 1 and told.endswith(
        f' Help: {errors.PAGE}#runs-and-their-parameters\n'
    )
