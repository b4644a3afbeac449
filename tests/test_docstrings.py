"""Every public function and class says what it takes, what it returns and what it refuses."""

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


def public(module):
    """(name, its signature's function or None, its docstring, its node) of everything public at the
    top of a module.
    """
    for node in ast.parse((PACKAGE / module).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith('_'):
            own = (
                node
                if isinstance(node, ast.FunctionDef)
                else next(
                    (
                        m
                        for m in node.body
                        if isinstance(m, ast.FunctionDef) and m.name == '__init__'
                    ),
                    None,
                )
            )
            yield node.name, own, ast.get_docstring(node) or '', node


def problems(name, own, text, node):
    arguments = (
        [
            a.arg
            for a in (*own.args.posonlyargs, *own.args.args, *own.args.kwonlyargs)
            if a.arg not in ('self', 'cls')
        ]
        if own
        else []
    )
    yield from (
        f'{name}: nothing about {a!r}' for a in arguments if not re.search(rf'\b{a}\b', text)
    )
    if isinstance(node, ast.FunctionDef):
        inside = list(ast.walk(node))
        if (
            any(isinstance(n, ast.Return | ast.Yield) and n.value is not None for n in inside)
            and 'Returns' not in text
        ):
            yield f'{name}: no Returns'
        if (
            any(isinstance(n, ast.Raise) and n.exc is not None for n in inside)
            and 'Raises' not in text
        ):
            yield f'{name}: no Raises'


@pytest.mark.parametrize('module', MODULES)
def test_public_names_are_documented(module):
    found = [problem for each in public(module) for problem in problems(*each)]
    assert not found, '\n'.join(found)


def test_what_is_missing_is_found():
    tree = ast.parse('def f(a, b):\n    "a: one."\n    if a: raise ValueError\n    return b\n')
    node = tree.body[0]
    assert list(problems('f', node, ast.get_docstring(node), node)) == [
        "f: nothing about 'b'",
        'f: no Returns',
        'f: no Raises',
    ]
