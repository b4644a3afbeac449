"README.md names every notebook and only commands that there are."
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_notebook_is_named_in_readme():
    text = (ROOT / 'README.md').read_text()
    after = text.split('## Which notebook for what')[1]
    missing = [file.stem for file in sorted((ROOT / 'nbs').rglob('*.ipynb')) if '.ipynb_checkpoints' not in file.parts and f'{file.stem}`' not in after
               and f'{file.name}`' not in after]
    assert not missing, f'a line for {missing} in "Which notebook for what"'


def test_readme_begins_with_what_people_look_for():
    text = (ROOT / 'README.md').read_text()
    assert text.index('one positive label') < text.index('](outputs/front.svg)') < text.index('| published / ours |') < text.index('```')
    assert [line.split('#')[0].strip() for line in text.split('```')[1].strip().splitlines()[:2]] == ['make demo', 'make test']


def test_every_command_in_readme_is_one():
    from spml_nb import cli
    text = (ROOT / 'README.md').read_text()
    used = {line.split()[1] for part in text.split('`') for line in part.splitlines() if line.startswith('spml ')}
    assert used == set(cli.COMMANDS)
    targets = {line.split(':')[0] for line in (ROOT / 'Makefile').read_text().splitlines() if line[:1].isalpha()}
    assert {line.split()[1] for part in text.split('`') for line in part.splitlines() if line.startswith('make ')} <= targets
