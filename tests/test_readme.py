"""README.md names every folder of notebooks and only commands that there are; the recipe for ONNX
Runtime in the tutorial runs as it stands.
"""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]


def test_every_folder_of_notebooks_is_named_in_readme():
    after = (ROOT / 'README.md').read_text().split('## How it is built')[1]
    places = {
        file.relative_to(ROOT / 'nbs').with_suffix('').parts[0]
        for file in (ROOT / 'nbs').rglob('*.ipynb')
        if '.ipynb_checkpoints' not in file.parts
    }
    missing = sorted(place for place in places if f'`nbs/{place}' not in after)
    assert len(places) > 10 and not missing, f'a word for {missing} in "How it is built"'


def test_readme_begins_with_what_people_look_for():
    text = (ROOT / 'README.md').read_text()
    places = [
        text.index(words)
        for words in (
            'one positive label',
            '](spml_nb/assets/one_label.svg)',
            'make demo',
            'TROUBLESHOOTING.md',
            '](outputs/front.svg)',
            '| gain as published |',
            '## Your photos',
            '## The losses in your own loop',
            '## Replicate a paper',
            '## How it is built',
        )
    ]
    assert places == sorted(places)
    first = '\n'.join(text.splitlines()[:30])
    assert 'make demo' in first and 'Python 3.11' in first


def test_readme_is_read_in_a_minute():
    assert len((ROOT / 'README.md').read_bytes()) <= 9 * 1024


def test_the_loop_in_readme_runs():
    loop, estimator = re.findall(r'```python\n(.*?)```', (ROOT / 'README.md').read_text(), re.S)
    names = {}
    exec(loop, names)
    assert names['logits'].grad.abs().sum() > 0
    random = np.random.RandomState(0)
    names |= {'X': random.rand(60, 8).astype('float32'), 'X_new': random.rand(5, 8)}
    names['y'] = np.eye(3, dtype=int)[random.randint(3, size=60)]  # one label each
    *before, last = estimator.strip().splitlines()
    exec('\n'.join(before), names)
    assert eval(last, names).shape == (5, 3)


def test_every_command_in_readme_is_one():
    from spml_nb import cli

    text = (ROOT / 'README.md').read_text()
    used = {
        line.split()[1]
        for part in text.split('`')
        for line in part.splitlines()
        if line.startswith('spml ')
    }
    (commands,) = [action for action in cli.build_parser()._actions if action.dest == 'command']
    assert used - {'--help'} <= set(commands.choices)
    targets = {
        line.split(':')[0]
        for line in (ROOT / 'Makefile').read_text().splitlines()
        if line[:1].isalpha()
    }
    assert {
        line.split()[1]
        for part in text.split('`')
        for line in part.splitlines()
        if line.startswith('make ')
    } <= targets


def recipe():
    "What the tutorial does without this library."
    notebook = nbformat.read(ROOT / 'nbs' / 'tutorials' / 'use_a_model.ipynb', 4)
    (code,) = [cell.source for cell in notebook.cells if 'import onnxruntime' in cell.source]
    known = 'import json\nfrom pathlib import Path\nfrom PIL import Image\nplace = Path()\n'
    return f'{known}{code}\nprint(json.dumps(probabilities.tolist()))'


def lying_photo(file, seed=0):
    "A photo that only its EXIF tag turns upright, as phones write it."
    pixels = np.random.RandomState(seed).randint(0, 255, (6, 9, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).resize((180, 120)).save(file, exif=exif, quality=95)
    return file


def test_the_recipe_for_onnx_runtime_names_what_the_model_names(made, tmp_path):
    from spml_nb.use.export import export
    from spml_nb.use.predict import open_model

    code, run = recipe(), made.run('cosine').folder
    assert 'spml_nb' not in code
    export(run, tmp_path / 'model.onnx')
    for seed in range(3):
        photo = lying_photo(tmp_path / 'photo.jpg', seed)
        done = subprocess.run(
            [sys.executable, '-c', code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        named, p = done.stdout.splitlines()
        table = open_model(run).predict(photo)
        assert np.abs(np.array(json.loads(p)) - table.iloc[0, 1:-1].to_numpy(float)).max() < 1e-5
        assert '|'.join(ast.literal_eval(named)) == table.labels[0]
        straight = Image.open(photo).convert('RGB')
        straight.save(tmp_path / 'straight.png')  # the tag matters to this model
        assert (
            np.abs(
                open_model(run).predict(tmp_path / 'straight.png').iloc[0, 1:-1].to_numpy(float)
                - np.array(json.loads(p))
            ).max()
            > 1e-4
        )


@pytest.mark.silent('C3')
def test_the_recipe_for_onnx_runtime_sees_white_where_a_picture_is_transparent(made, tmp_path):
    from spml_nb.use.export import export
    from spml_nb.use.predict import open_model

    run, said = made.run('cosine').folder, []
    export(run, tmp_path / 'model.onnx')
    for hidden in (0, 200):
        pixels = np.random.RandomState(0).randint(0, 255, (60, 90, 4), dtype=np.uint8)
        pixels[:, :45] = hidden, hidden, hidden, 0
        Image.fromarray(pixels).save(tmp_path / 'photo.jpg', 'png')
        done = subprocess.run(
            [sys.executable, '-c', recipe()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        said.append(json.loads(done.stdout.splitlines()[1]))
        assert (
            np.abs(
                np.array(said[-1])
                - open_model(run).predict(tmp_path / 'photo.jpg').iloc[0, 1:-1].to_numpy(float)
            ).max()
            < 1e-5
        )
    assert said[0] == said[1]


def test_the_recipe_refuses_a_model_that_cuts_the_middle_out(made, tmp_path):
    from spml_nb.use.export import export

    export(made.run('crop').folder, tmp_path / 'model.onnx')
    Image.new('RGB', (40, 30)).save(tmp_path / 'photo.jpg')
    done = subprocess.run(
        [sys.executable, '-c', recipe()], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (
        done.returncode
        and 'AssertionError: this model takes another resize: a photo turned upright' in done.stderr
        and 'the middle cut out' in done.stderr
    )
