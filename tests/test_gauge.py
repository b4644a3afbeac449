"""How much code there is to read, and how dense it is: limits that may only fall.

Lines are counted as `ruff format` lays them out, so packing several ideas into one line makes the
package smaller only until the mean length and the nesting of comprehensions forbid it.
"""

import ast
import io
import tokenize
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / 'spml_nb'
TEXTS = {
    file.relative_to(PACKAGE).as_posix(): file.read_text(encoding='utf-8')
    for file in sorted(PACKAGE.rglob('*.py'))
    if file.name != '_modidx.py'
}

# raised from 20,700 and 797 for ablations, what a search buys, conclusions and maps of the papers;
# then for `spml serve`, methods from outside, what the front says of all methods,
# and labels in other layouts, thresholds of each class and groups; slopes
# in closed form and a step that waits for nothing; gains without clean labels,
# rows of fully labelled photos, claims on figures, longer names; then for a report, a review and
# the mending of tables, sweeps that travel, hours and disk of a plan, an estimator, and types;
# then for gains by the number of photos, thresholds on six sets, how many photos to label in full,
# and cells that their own measure chooses; a second backbone, the gap to all labels, nnPU;
# then for choices under other draws of the label, averages of networks, and what compare says;
# then for what a model names in compare and train, gains of a calibration measured on other photos,
# and times that count photos and start; imports of modules that were split; an earlier calibration
# that stays; runs on frozen features that train as one stack (training/stacked.py, 280 lines), LAC
# searched in two steps, one label a group; a rate of its own for a second stage; conclusions that
# show both measures, the rival that decides and what else differs; intervals and samples by group,
# and calibration without the photos that trained; the command line as a package (50 lines of
# imports and heads, 10 names), what import lost in silence, groups that compare names, what few
# photos with all labels lose as choosers, with an interval
CODE_LINES = 31_821
PUBLIC_NAMES = 1_078
CHARACTERS_A_LINE = 42  # the mean, without indentation

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def span(node):
    return set(range(node.lineno, node.end_lineno + 1))


@cache
def code_lines(text):
    "The lines of a module that are code: without docstrings, comments, blanks and `__all__`."
    numbers = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            numbers |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            numbers -= span(node.body[0])
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == '__all__':
            numbers -= span(node)
    lines = text.splitlines()
    return [lines[number - 1].strip() for number in sorted(numbers)]


def public_names(text):
    return [
        node.name
        for node in ast.parse(text).body
        if isinstance(node, DOCUMENTED) and not node.name.startswith('_')
    ]


def too_nested(node, depth=0):
    """Lines of comprehensions that stand in a comprehension which stands in another one.

    One in another is allowed: a matrix is read as such. Whether it stands in the element, a
    condition or the iterable makes no difference to who reads it; a lambda in between makes none
    either.
    """
    depth += isinstance(node, COMPREHENSIONS)
    if depth > 2:
        return [node.lineno]
    return [line for child in ast.iter_child_nodes(node) for line in too_nested(child, depth)]


def test_the_package_grows_by_no_line_and_no_public_name_unnoticed():
    lines = sum(len(code_lines(text)) for text in TEXTS.values())
    names = sum(len(public_names(text)) for text in TEXTS.values())
    assert lines <= CODE_LINES and names <= PUBLIC_NAMES, (
        f'{lines:,} lines of code of at most {CODE_LINES:,}, {names} public names of at most '
        f'{PUBLIC_NAMES}: remove what nobody would miss, or raise the limits and say why'
    )


def test_lines_are_short_on_average():
    lines = [line for text in TEXTS.values() for line in code_lines(text)]
    assert sum(map(len, lines)) / len(lines) <= CHARACTERS_A_LINE


def test_comprehensions_are_nested_at_most_once():
    nested = [
        f'{name}:{line}' for name, text in TEXTS.items() for line in too_nested(ast.parse(text))
    ]
    assert not nested, f'give the inner comprehension a name: {nested}'


def test_the_gauge_counts_what_it_says():
    text = '''"""One
docstring."""

__all__ = [
    'f',
]


# a comment
def f(x):
    "Another."
    return [
        x,  # two lines of code above, one here
    ]


class _Hidden:
    pass
'''
    assert code_lines(text) == [
        'def f(x):',
        'return [',
        'x,  # two lines of code above, one here',
        ']',
        'class _Hidden:',
        'pass',
    ]
    assert public_names(text) == ['f']
    assert too_nested(ast.parse('[[a for a in b] for b in c]')) == []
    assert too_nested(ast.parse('[{x for a in b for x in {y for y in a}} for b in c]')) == [1]
