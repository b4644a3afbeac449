"README.md names every folder of notebooks and only commands that there are."
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_folder_of_notebooks_is_named_in_readme():
    after = (ROOT / 'README.md').read_text().split('## Which notebook for what')[1]
    places = {file.relative_to(ROOT / 'nbs').with_suffix('').parts[0] for file in (ROOT / 'nbs').rglob('*.ipynb') if '.ipynb_checkpoints' not in file.parts}
    missing = sorted(place for place in places if f'`nbs/{place}' not in after)
    assert len(places) > 10 and not missing, f'a word for {missing} in "Which notebook for what"'


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
