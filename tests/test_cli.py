"The command `spml` as a whole: what it lists, refuses and prints, from one command to the next."

import io
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest
from conftest import draw_photo_folder
from patience import within

from spml_nb.base import settings
from spml_nb.cli import main

ROOT = Path(__file__).resolve().parents[1]


LISTING = (
    '--help',
    '--version',
    'train --help',
    'compare --help',
    'presets --paper lac',
    'runs',
    'runs -p loss em --state done',
    'runs --csv --sort lr',
    'runs --leftovers',
    'data',
    'data FOLDER --check',
    'import FOLDER FOLDER-new',
    'doctor --quick',
)


MISTYPED = {
    'trian': 'train',
    'train -p los em': 'loss',
    'sweep metods --dry-run': 'methods',
}


# importing torch raises
WITHOUT_TORCH = """
import contextlib, io, json, sys

sys.modules['torch'] = None
from spml_nb.cli import main

for command in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(command)
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


@pytest.fixture(scope='module')
def listed(tmp_path_factory):
    "{words: (exit status, output, errors)} in one process, which can import no torch."
    place = tmp_path_factory.mktemp('listed')
    folder = str(draw_photo_folder(place / 'photos'))
    commands = [words.replace('FOLDER', folder).split() for words in (*LISTING, *MISTYPED)]
    done = subprocess.run(
        [sys.executable, '-c', WITHOUT_TORCH, json.dumps(commands)],
        env=os.environ
        | {'SPML_NB_RUNS': str(place / 'runs'), 'SPML_NB_OUTPUTS': str(place / 'outputs')},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    results = map(json.loads, done.stdout.splitlines())
    return dict(zip((*LISTING, *MISTYPED), results, strict=True))


@pytest.mark.parametrize('words', LISTING)
def test_what_only_lists_loads_no_torch(words, listed):
    code, out, err = listed[words]
    assert (code == 0 or words == 'doctor --quick') and out and not err, err


@pytest.mark.parametrize(('words', 'meant'), MISTYPED.items())
def test_a_mistyped_word_is_refused_without_torch(words, meant, listed):
    code, out, err = listed[words]
    assert code == 2 and meant in err and not out


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (
            ['sweep', 'hmm'],
            "unknown paper 'hmm'; allowed: hml, em_apl, opml, lac, two_way, methods, biased, worth",
        ),
        (['sweep', 'hml', '--suite', 'maxi'], "unknown suite 'maxi'; allowed: paper, photos"),
        (
            ['sweep', 'methods', '--suite', 'maxi'],
            "unknown suite 'maxi'; allowed: photos, photos_finetune, mini",
        ),
        (['sweep', 'hml', '--dataset', 'ccp'], '--dataset goes with methods'),
        (['sweep', 'hml', '--loss', 'em'], '--loss goes with methods alone'),
        (['sweep', 'biased', '--suite', 'mini'], '--suite with a paper or methods'),
        (['sweep', 'worth', '--loss', 'em'], '--loss goes with methods alone'),
        (['sweep', 'methods', '--table', '2'], '--dataset goes with methods'),
        (
            ['sweep', 'worth', '--seeds', '0'],
            '--dataset goes with methods, biased, worth, observed_choice',
        ),
        (['sweep', 'ensembles', '--dataset', 'voc'], "unknown set of photos 'voc'; allowed: "),
        (['sweep', 'worth', '--dataset', 'voc'], "unknown data set of the suite 'photos' 'voc'"),
        (['sweep', 'biased', '--dataset', 'voc'], "unknown data set of the suite 'photos' 'voc'"),
        (['sweep', 'methods', '--dataset', 'voc'], "unknown data set of the suite 'photos' 'voc'"),
        (['compare', 'ccp', 'an', 'em'], 'ccp is no folder of photos'),
        (
            ['compare', '.', '--suite', 'mini'],
            "unknown suite 'mini'; allowed: photos, photos_finetune",
        ),
        (['compare', '.', '--labels', 'foo', '--dry-run'], "unknown label setting 'foo'"),
        (['compare', '.', '--engine', 'foo', '--dry-run'], "unknown engine 'foo'"),
        (
            ['compare', '.', '--address', 'auto', '--dry-run'],
            "an address (auto) is for engine='ray'",
        ),
        (['sweep', 'hml', '--jobs', '0', '--dry-run'], 'jobs must be 1 or more'),
        (['data', 'my_photos', '--check'], "unknown benchmark 'my_photos'; allowed: "),
        (['data', 'my_photos'], 'Nor is there a folder '),
        (['data', 'mini_voc'], 'Miniatures need no files.'),
        (['data', str(ROOT / 'tests'), '--mirror', 'x'], 'and --mirror that of a benchmark'),
        (
            ['predict', 'r', '.', '--out', 'pred.xlsx'],
            'pred.xlsx: predictions are written as comma-separated text',
        ),
        (['runs', '--days', '-1'], 'days=-1.0; allowed: 0 or more'),
        (['sweep', 'hml', '--table', '17'], "unknown table of 'hml' '17'"),
        (['sweep', 'hml', '--figure', '17'], "unknown figure of 'hml' '17'"),
        (['sweep', 'hml', '--figure', '3', '--table', '2'], '--figure goes without --table'),
        (['train', '-p', 'loss', 'hmm'], "unknown loss 'hmm'"),
        (['train', '-p', 'lrr', '1'], "unknown parameter 'lrr'"),
        (['train', '-y', 'loss'], "'loss' holds no fields. Write -y 'name: value'"),
        (['train', '-y', '{1: 2}'], "'{1: 2}' holds no fields. Write -y 'name: value'"),
        (
            ['train', '-y', 'hparams: {alpha: 0.1'],
            "'hparams: {alpha: 0.1' cannot be read as YAML. Write -y 'name: value', such as ",
        ),
        (
            ['train', '-p', 'dataset', '@photos'],
            """'@photos' cannot be read as YAML. Write it as -p dataset "'@photos'" """,
        ),
        (['train', '-p', 'dataset', '2024-13-45'], "'2024-13-45' cannot be read as YAML"),
        (['train', '-p', 'seed', 'yes'], "'seed' must be a whole number, not 'yes'"),
        (['runs', '-p', 'dataset', '[x'], "'[x' cannot be read as YAML"),
        (['train', '--like', 'em-coco18-000'], "no recorded run 'em-coco18-000' in "),
        (['train', '--nproc', '0'], 'processes must be 1 or more, not 0'),
        (['presets', '--paper', 'hmm'], "unknown paper 'hmm'"),
        (['presets', '--loss', 'em'], '--loss goes with --paper'),
        (
            ['runs', '--state', 'dead'],
            "unknown state 'dead'; allowed: done, begun, damaged, running",
        ),
        (['runs', '-p', 'lrr', '1'], "'lrr'; allowed: loss, dataset"),
        (['runs', '--yes'], '--yes goes with --remove'),
        (['runs', '--csv', '--remove'], '--csv goes without --remove'),
        (['runs', '--sort', 'lrr'], "unknown column to sort by 'lrr'"),
        (
            ['runs', '--leftovers', '--state', 'done'],
            '--leftovers goes without -p, --state and --name',
        ),
        (['predict', 'no-such-run', '.'], "no-such-run"),
        (['export', 'no-such-run'], '--card'),
        (['export', 'no-such-run', 'model.onnx'], "no-such-run"),
        (['reproduce', 'no-such-run'], "no-such-run"),
    ],
)
def test_wrong_words_end_in_one_line_and_status_2(capsys, words, message):
    assert main(words) == 2
    told = capsys.readouterr().err
    assert told.startswith('error: ') and message in told and told.count('\n') == 1


def test_the_life_of_a_run(capsys, photo_folder, tmp_path):
    "Trained, listed, used, exported, made again, removed: every command of it."
    fields = {
        'loss': 'an',
        'dataset': str(photo_folder),
        'backbone': 'mini',
        'image_size': '40',
        'regime': 'linear',
        'epochs': '2',
    }
    assert (
        main(['train', *(word for name, value in fields.items() for word in ('-p', name, value))])
        == 0
    )
    name = next(settings.get_folder('runs').glob('an-*')).name

    def told(*words, status=0):
        capsys.readouterr()
        assert main(list(words)) == status
        return capsys.readouterr().out

    table = pd.read_csv(io.StringIO(told('runs', '--csv', '--sort', 'val_map')))
    assert (
        table.name.tolist() == [name]
        and table.lr[0] == 1e-3
        and 'reduction=mean' in table.hparams[0]
        and table.folder[0].endswith(name)
    )
    assert (
        name in told('runs')
        and name in told('runs', '-p', 'loss', 'an', '--state', 'done')
        and told('runs', '-p', 'loss', 'em').strip() == 'none'
    )
    table, model = tmp_path / 'found.csv', tmp_path / 'model.safetensors'
    assert 'threshold 0.' in told(
        'predict', name, str(photo_folder / 'images'), '--out', str(table)
    )
    found = pd.read_csv(table)
    assert len(found) == 60 and {'image', 'labels', 'red', 'blue', 'bright'} == set(found)
    assert (
        told(
            'predict',
            name,
            str(photo_folder / 'images' / '000.png'),
            str(photo_folder / 'images' / '001.png'),
        ).count('\n')
        == 3
    )
    assert main(['predict', name, str(photo_folder / 'images' / '000.png')]) == 0
    shown = capsys.readouterr()
    assert 'threshold' in shown.err and 'threshold' not in shown.out  # the table alone can be piped
    scores = told('evaluate', name, str(photo_folder), '--part', 'all')
    assert (
        'part all' in scores
        and '60 photos, against all labels' in scores
        and '(threshold)' in scores
        and '95 % interval' in scores
    )
    assert (
        told('export', name, str(tmp_path / 'hub'), '--card').strip() == str(tmp_path / 'hub')
        and (tmp_path / 'hub' / 'README.md').is_file()
    )
    told('export', name, str(model))
    again = tmp_path / 'again.csv'
    told('predict', str(model), str(photo_folder / 'images'), '--out', str(again))
    pd.testing.assert_frame_equal(pd.read_csv(again), found)
    assert ': the same bits' in told('reproduce', name)
    assert 'Add --yes' in told('runs', '--name', 'an-*', '--remove') and name in told('runs')
    assert (
        '1 removed' in told('runs', '--name', 'an-*', '--remove', '--yes')
        and told('runs').strip() == 'none'
    )
    assert told('runs', '--leftovers').strip() == 'none'


def test_a_report_reaches_an_output_that_lacks_its_letters(photo_folder, monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), encoding='latin-1')
    monkeypatch.setattr(sys, 'stdout', output)
    assert main(['data', str(photo_folder), '--check']) == 0
    output.seek(0)
    assert '60' in output.read() and '\\u' in output.buffer.getvalue().decode('latin-1')


@pytest.mark.silent('C9')
def test_names_are_shown_and_not_obeyed(photo_folder, tmp_path, capsys, monkeypatch):
    hostile = '\x1b[2Jred'
    (photo_folder / 'labels.csv').write_text(
        (photo_folder / 'labels.csv').read_text().replace('red', hostile)
    )
    (photo_folder / 'images' / '\x1b]0;x\x07.png').write_bytes(b'no photo')
    with warnings.catch_warnings():
        main(['data', str(photo_folder), '--check'])
    out, err = capsys.readouterr()
    assert not set(out + err) & {'\x1b', '\x07'} and r'\x1b' in out + err
    folder = tmp_path / 'runs' / 'an-\x1b[2J-0123456789ab'
    folder.mkdir(parents=True)
    (folder / 'config.json').write_text('{')
    assert main(['runs']) == 0 and '\x1b' not in capsys.readouterr().out


@pytest.mark.silent('C10')
@pytest.mark.parametrize('field', ['lr', 'loss', 'exclude', 'nothing'])
def test_a_short_text_does_not_become_an_endless_message(field, tmp_path, capsys):
    lines = ['a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]']
    lines += [f'a{k}: &a{k} [{", ".join(10 * [f"*a{k - 1}"])}]' for k in range(1, 7)]
    (tmp_path / 'run.yml').write_text('\n'.join([*lines, f'{field}: *a6']))
    with within(30):
        assert main(['train', '--config', str(tmp_path / 'run.yml')]) == 2
    assert 'alias' in (said := capsys.readouterr().err) and len(said) < 2000
