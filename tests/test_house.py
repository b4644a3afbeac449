"""The house rules that keep the tree readable: three trees of one shape, and imports that point
downwards.
"""

import ast
import json
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, NOTEBOOKS, TESTS = ROOT / 'spml_nb', ROOT / 'nbs', ROOT / 'tests'
ORDER = (
    'base',
    'data',
    'metrics',
    'models',
    'methods',
    'losses',
    'runs',
    'training',
    'sweeps',
    'replication',
    'use',
    'tools',
    'cli',
)
FREE = (
    'train',
    'evaluate',
)  # papermill's entry points, and folders of notebooks that are only read
READ = ('tutorials', 'papers')


def paths(folder, suffix):
    return {
        file.relative_to(folder).with_suffix('').as_posix()
        for file in folder.rglob(f'*{suffix}')
        if '.ipynb_checkpoints' not in file.parts
    }


MODULES = sorted(
    path for path in paths(PACKAGE, '.py') if not path.endswith('__init__') and path != '_modidx'
)


@cache
def tree(module):
    return ast.parse((PACKAGE / f'{module}.py').read_text(encoding='utf-8'))


def test_every_module_has_its_notebook_and_every_notebook_its_module():
    notebooks = {
        path
        for path in paths(NOTEBOOKS, '.ipynb')
        if path not in FREE and path.split('/')[0] not in READ
    }
    assert notebooks == set(MODULES)


def test_every_test_file_in_a_folder_names_a_module():
    files = {
        path
        for path in paths(TESTS, '.py')
        if '/' in path and path.rpartition('/')[2].startswith('test_')
    }
    assert {path.replace('test_', '') for path in files} <= set(MODULES) | {
        'runs/recorded',
        'benchmarks/speed',
    }


def imported(module):
    """Names of modules or packages below spml_nb that a module imports, anywhere in it:
    'data/labels', 'runs'.
    """
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            folders = ('spml_nb', *module.split('/'))[: -node.level] if node.level else ()
            base = '.'.join((*folders, *([node.module] if node.module else [])))
            names = [f'{base}.{alias.name}' for alias in node.names]
        else:
            continue
        for name in names:
            package, *parts = name.split('.')
            if package != 'spml_nb' or not parts:
                continue
            path = '/'.join(parts)
            yield path if path in MODULES or (PACKAGE / path).is_dir() else '/'.join(parts[:-1])


def rank(path):
    return ORDER.index(path.split('/')[0])


def test_imports_point_downwards():
    upwards = [
        f'{module} imports {other}'
        for module in MODULES
        for other in imported(module)
        if other and rank(other) > rank(module)
    ]
    assert not upwards, upwards


def test_no_module_is_part_of_a_circle():
    edges = {
        module: {other for other in imported(module) if other in MODULES} for module in MODULES
    }
    assert sum(map(len, edges.values())) > 100
    left = dict(edges)
    while leaves := [
        module for module, others in left.items() if not others & set(left) - {module}
    ]:
        for module in leaves:
            del left[module]
    assert not left, f'these import one another: {sorted(left)}'
    assert not [module for module, others in edges.items() if module in others]


def test_a_module_does_not_take_its_neighbours_through_their_package():
    own = [
        f'{module} imports its own package'
        for module in MODULES
        for other in imported(module)
        if '/' in module and other == module.rpartition('/')[0]
    ]
    assert not own, own


def functions(module):
    return [
        node
        for node in ast.walk(tree(module))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_files_of_the_package_stay_small():
    assert (
        sum(len(file.read_text(encoding='utf-8').splitlines()) for file in PACKAGE.rglob('*.yml'))
        <= 1000
    )
    assert all(file.stat().st_size <= 300 * 1024 for file in NOTEBOOKS.rglob('*.ipynb'))
    assert not [
        file
        for file in NOTEBOOKS.rglob('*.ipynb')
        if 'widgets' in json.loads(file.read_text(encoding='utf-8'))['metadata']
    ]  # state of no use


MACHINE = re.compile(r'(?<![\w.])/(?:work|home|root|tmp|usr|var|Users|private)/')


def test_no_notebook_shows_the_paths_of_a_machine():
    assert MACHINE.search("saved in '/tmp/x/run'") and not MACHINE.search(
        'outputs/runs.csv, nbs/work/x, and/or'
    )
    for file in NOTEBOOKS.rglob('*.ipynb'):
        for cell in json.loads(file.read_text(encoding='utf-8'))['cells']:
            for output in cell.get('outputs', []):
                shown = {
                    kind: text
                    for kind, text in output.get('data', {}).items()
                    if not kind.startswith('image/')
                }
                assert not MACHINE.search(json.dumps([shown, output.get('text')])), file


def test_the_readme_lists_notebooks_in_a_dozen_rows():
    table = re.search(
        r'\n\| notebooks? \|.*?\n\n', (ROOT / 'README.md').read_text(encoding='utf-8'), re.S
    )[0]
    assert table.count('\n| ') - 1 <= 12  # without the header
