"""Public functions and classes say something, and nothing about parameters that are not there."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / 'spml_nb'
MODULES = sorted(
    str(file.relative_to(PACKAGE))
    for file in PACKAGE.rglob('*.py')
    if file.name not in ('__init__.py', '_modidx.py')
)


def words(text):
    return re.findall('[a-z0-9]+', text.lower())


def parameters(node):
    "Names that `Args:` may describe: of a function, or of a class with its fields."
    if isinstance(node, ast.FunctionDef):
        a = node.args
        every = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
        return {each.arg for each in every if each}
    found = set()
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == '__init__':
            found |= parameters(member)
        if isinstance(member, ast.AnnAssign):
            found.add(member.target.id)
    return found


def described(text):
    "Names with an entry under `Args:`; several may share one, as in `y, x: …`."
    if not (section := re.search(r'^Args:\n((?:[ ]+.*\n?|\n)+)', text, re.M)):
        return set()
    entries = re.findall(r'^    (\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \(.*?\))?:', section[1], re.M)
    return {name.strip('* ') for entry in entries for name in entry.split(',')}


def problems(node):
    text = ast.get_docstring(node) or ''
    first = text.partition('\n')[0]
    if not first or words(first) == words(node.name.replace('_', ' ')):
        yield f'{node.name}: no docstring that says more than the name'
    if unknown := described(text) - parameters(node):
        yield f'{node.name}: entries for {sorted(unknown)}, which are no parameters'


@pytest.mark.parametrize('module', MODULES)
def test_public_names_are_documented(module):
    nodes = [
        node
        for node in ast.parse((PACKAGE / module).read_text(encoding='utf-8')).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith('_')
    ]
    assert [problem for node in nodes for problem in problems(node)] == []


def test_what_is_wrong_is_found():
    def of(source):
        return len(list(problems(ast.parse(source).body[0])))

    assert of('def read_table(a):\n    "Read table."\n') == 1
    assert of('def f(a):\n    pass\n') == 1
    assert of('def f(a):\n    """Add one.\n\n    Args:\n        b: Any.\n    """\n') == 1
    assert of('def f(a, *b):\n    """Add one.\n\n    Args:\n        a, *b: Any.\n    """\n') == 0
    assert of('class C:\n    """Two.\n\n    Args:\n        a: One.\n    """\n    a: int\n') == 0
