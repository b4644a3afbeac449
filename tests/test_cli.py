"The command `spml`: what it prints and how it ends."

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest
from conftest import draw_photo_folder
from patience import within
from PIL import Image
from quick import fields
from scipy.special import expit
from side_files import draw_side

import spml_nb
from spml_nb import data, methods
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.base.escaping import any_name_in_frames
from spml_nb.cli import complete_argument, main
from spml_nb.data import load
from spml_nb.data.dataset import exclude_option
from spml_nb.replication import paper_figures, study
from spml_nb.replication import tables as papers
from spml_nb.runs import record
from spml_nb.runs.config import ADDED, Config, config_to_dict, resolve, science_key
from spml_nb.runs.config_parsing import parse_fields
from spml_nb.runs.folder import Run, open_run, read_result
from spml_nb.sweeps import boards
from spml_nb.tools import doctor
from spml_nb.tools import reproduce as reproduction
from spml_nb.training import launch as parallel
from spml_nb.training import thresholds
from spml_nb.use import comparison, scoring
from spml_nb.use import export as exporting
from spml_nb.use import predict as prediction

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


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as done:
        main(['--version'])
    assert done.value.code == 0 and capsys.readouterr().out.startswith(
        f'spml_nb {spml_nb.__version__}'
    )


def test_the_help_of_train_has_every_field_with_kind_default_and_meaning(capsys):
    with pytest.raises(SystemExit):
        main(['train', '--help'])
    lines = {
        line.split()[0]: ' '.join(line.split())
        for line in capsys.readouterr().out.splitlines()
        if line[:2] == '  ' and line.split()
    }
    assert set(Config.__annotations__) <= set(lines)
    assert (
        lines['loss'] == 'loss str em a registered method'
        and lines['lr'] == 'lr float of the backbone, and of the head on frozen features'
    )
    assert lines[
        'min_positives'
    ] == 'min_positives int 0 leave out classes with fewer positives' and lines[
        'batch_size'
    ].startswith('batch_size int 16 ')
    assert (
        lines['optimizer'] == 'optimizer str adam (adam, adamw, sgd)'
        and lines['regime'].count('linear_init') == 1
    )


def test_fields_come_from_a_file_and_the_command_line_comes_on_top(tmp_path, monkeypatch):
    (tmp_path / 'run.yml').write_text('loss: ls\nlr: 0.001\nseed: 3\nhparams: {smoothing: 0.2}\n')
    asked = []

    def launch(config, *words, **options):
        asked.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr(parallel, 'launch', launch)
    assert (
        main(['train', '-p', 'seed', '5', '-y', 'lr: 0.002', '--config', str(tmp_path / 'run.yml')])
        == 130
    )
    assert (asked[0].loss, asked[0].lr, asked[0].seed, asked[0].hparams) == (
        'ls',
        0.002,
        5,
        {'smoothing': 0.2},
    )


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        ('loss: [em', 'run.yml cannot be read as YAML: while parsing'),
        ('em', 'holds no fields'),
        ('1: 2', 'holds no fields'),
        (None, 'No such file'),
        ('lrr: 1', "unknown parameter 'lrr'"),
    ],
)
def test_a_wrong_file_of_fields_is_refused(tmp_path, capsys, content, message):
    if content:
        (tmp_path / 'run.yml').write_text(content)
    assert (
        main(['train', '--config', str(tmp_path / 'run.yml')]) == 2
        and message in capsys.readouterr().err
    )


# ---- completion


@pytest.fixture(scope='module')
def complete(tmp_path_factory):
    "What bash offers: complete('spml train -p lo') gives a list of words."
    pytest.importorskip('shtab')
    folder = tmp_path_factory.mktemp('shell')
    done = subprocess.run(
        [
            sys.executable,
            '-c',
            'from spml_nb.cli import main; main()',
            '--print-completion',
            'bash',
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (folder / 'spml.bash').write_text(done.stdout)

    def complete(line, **environment):
        words = line.split(' ')
        code = (
            f'source {folder}/spml.bash; COMP_WORDS=({" ".join(map(repr, words))}); '
            f'COMP_CWORD={len(words) - 1}; _shtab_spml; printf "%s\\n" "${{COMPREPLY[@]}}"'
        )
        return subprocess.run(
            ['bash', '-c', code], capture_output=True, text=True, env={**os.environ, **environment}
        ).stdout.split()

    return complete


@pytest.mark.skipif(sys.platform == 'win32', reason='needs bash')
def test_the_shell_completes_commands_losses_data_sets_and_runs(complete, tmp_path):
    assert complete('spml repr') == ['reproduce'] and '--mirror' in complete('spml data --')
    assert complete('spml train -p lo') == ['loss'] and complete('spml train -p loss two_') == [
        n for n in methods.names() if n.startswith('two_')
    ]
    assert complete('spml train -p loss em -p dataset mini_') == [
        n for n in data.names() if n.startswith('mini_')
    ]
    assert (
        complete('spml runs -p regime lin') == ['linear', 'linear_init']
        and complete('spml sweep two') == ['two_steps', 'two_way']
        and complete('spml sweep me') == ['methods']
        and complete('spml sweep wo') == ['worth']
    )
    assert complete('spml compare photos --suite p') == [
        'photos',
        'photos_finetune',
    ] and 'paper' in complete('spml sweep hml --suite p')
    assert complete('spml data voc') == ['voc12', 'voc07', 'voc12_animals']
    (tmp_path / 'em-mini_voc-1234').mkdir()
    assert complete('spml predict em', SPML_NB_RUNS=str(tmp_path)) == ['em-mini_voc-1234']
    (tmp_path / 'an-$(echo executed)').mkdir()
    assert 'an-executed' not in complete('spml predict an', SPML_NB_RUNS=str(tmp_path))


HOSTILE = (
    '$(touch {})',
    '`touch {}`',
    '"; touch {}; "',
    "'; touch {}; '",
    '}}; touch {}; {{',
    '$(touch {})\n',
)


@pytest.mark.silent('C10')
@pytest.mark.skipif(sys.platform == 'win32', reason='needs bash')
@pytest.mark.parametrize('hostile', HOSTILE)
def test_the_completion_executes_nothing_that_it_was_given(hostile, tmp_path, monkeypatch):
    pytest.importorskip('shtab')
    touched, folder = tmp_path / 'touched', tmp_path / 'here'
    text = hostile.format('../touched')
    folder.mkdir()
    (folder / 'settings.ini').write_text(f'[spml_nb]\nruns = x{text}\n')
    for name in ('SPML_NB_RUNS', 'SPML_NB_SETTINGS'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    for module in (methods, data):
        monkeypatch.setattr(module, 'names', lambda: [f'b{text}', 'plain'])
    bodies = complete_argument()
    script = '\n'.join(f'_spml_{kind}() {{ {body}; }}' for kind, body in bodies.items())
    for kind in bodies:
        script += (
            f'\nCOMP_WORDS=(spml train -p dataset b) COMP_CWORD=4; _spml_{kind} b; _spml_{kind} ""'
        )
    done = subprocess.run(['bash', '-c', script], capture_output=True, text=True)
    assert not touched.exists() and done.returncode == 0 and 'syntax error' not in done.stderr, (
        done.stderr
    )
    assert 'plain' in done.stdout


@pytest.mark.silent('C10')
@pytest.mark.skipif(sys.platform == 'win32', reason='needs bash')
def test_a_completed_name_is_a_word_for_the_shell(complete, tmp_path):
    (tmp_path / 'an-$(echo executed)').mkdir()
    assert (
        ' '.join(complete('spml predict an', SPML_NB_RUNS=str(tmp_path)))
        == r'an-\$\(echo\ executed\)'
    )


@pytest.mark.skipif(sys.platform == 'win32', reason='needs a pipe that closes')
def test_a_reader_that_takes_part_of_the_completion_ends_it_quietly():
    pytest.importorskip('shtab')
    with subprocess.Popen(
        [
            sys.executable,
            '-c',
            'import sys; from spml_nb.cli import main; sys.exit(main())',
            '--print-completion',
            'bash',
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b'' and process.wait() == 141


def test_presets_are_printed_with_their_sources(capsys):
    assert main(['presets', '--paper', 'lac']) == 0
    told = capsys.readouterr().out
    assert 'threshold' in told and "authors' code" in told


def test_a_dry_sweep_says_how_much_there_is(capsys):
    assert main(['sweep', 'hml', '--table', '5', '--dry-run']) == 0
    assert '10 runs of search, of which 10 are missing' in capsys.readouterr().out


@pytest.mark.parametrize('name', study.EXPERIMENTS)
def test_every_experiment_says_how_much_there_is(name, capsys, monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))
    assert main(['sweep', name, '--dry-run']) == 0
    assert 'missing' in capsys.readouterr().out


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


def test_a_figure_is_swept_and_its_arrays_collected(capsys, monkeypatch):
    asked = []

    def sweep(paper, figure, suite, **options):
        asked.append((paper, figure, suite, options['jobs'], options['dry_run']))
        return pd.DataFrame({'state': ['done', 'failed'], 'expected': 1.0})

    monkeypatch.setattr(paper_figures, 'sweep_figures', sweep)
    assert main(['sweep', 'hml', '--figure', '3', '--jobs', '2', '--dry-run']) == 0
    assert main(['sweep', 'lac', '--figure', '4']) == 1  # a run failed
    assert asked == [('hml', '3', 'photos', 2, True), ('lac', '4', 'photos', 1, False)]


def test_a_dry_sweep_of_a_figure_says_how_much_there_is(capsys):
    assert main(['sweep', 'hml', '--figure', '3', '--dry-run']) == 0
    assert 'runs of search' in capsys.readouterr().out


def test_a_run_is_trained_from_the_terminal(capsys, photo_folder):
    words = [
        'train',
        *fields(loss='ls', dataset=photo_folder, backbone='mini', regime='linear', lr='1e-3'),
        '-y',
        '{epochs: 1, image_size: 40, hparams: {smoothing: 0.2}}',
    ]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert 'epoch  1/1' in told and 'test mAP' in told
    (run,) = (file.parent.name for file in settings.get_folder('runs').glob('*/config.json'))
    assert told.splitlines()[-1] == f'Next: spml predict {run} PHOTOS'
    (config,) = (
        json.loads(file.read_text()) for file in settings.get_folder('runs').glob('*/config.json')
    )
    assert (config['loss'], config['lr'], config['hparams']['smoothing']) == ('ls', 1e-3, 0.2)
    assert main(words) == 0 and 'already done' in capsys.readouterr().out


@pytest.fixture
def asked(monkeypatch):
    "The configurations that `spml train` would train."
    found = []

    def launch(config, nproc, tell):
        found.append(config)
        raise SpmlError('stop here')

    monkeypatch.setattr(parallel, 'launch', launch)
    return found


def test_like_takes_every_value_of_a_line_of_the_record(asked, monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))
    lines = record.read_record(ROOT / 'outputs' / 'runs.csv')
    some = pd.concat(
        [
            lines.iloc[::150],
            lines[lines.dataset.str.startswith('mini')].head(1),
            lines[lines.loss.isin(['hml', 'opml_sp'])].head(2),
        ]
    )
    for k, line in enumerate(some.itertuples()):
        names = (line.run, line.key)
        for name in names if k % 8 == 0 else [names[k % 2]]:
            main(['train', '--like', name])
            assert science_key(resolve(asked.pop())) == line.key


def test_like_is_changed_by_what_is_given(asked, monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))
    lines = record.read_record(ROOT / 'outputs' / 'runs.csv')
    line = lines[lines.loss == 'opml_sp'].iloc[0]
    main(['train', '--like', line.run, '-p', 'seed', '7', '-y', 'hparams: {gamma: 3.5}'])
    main(['train', '--like', line.run, '-p', 'loss', 'hml'])
    changed, other = asked
    assert changed.seed == 7 and changed.label_seed == line.label_seed and changed.lr == line.lr
    assert changed.hparams == json.loads(line.hparams) | {'gamma': 3.5}
    assert other.hparams == {} and resolve(other).head == 'cosine' and other.lr == line.lr


def test_another_method_brings_its_own_recipe(asked, photo_folder):
    words = [
        'train',
        *fields(backbone='mini', regime='linear', dataset=photo_folder, epochs=1),
        '-p',
        'loss',
    ]
    main([*words, 'an'])
    folder = Path(Run(resolve(asked[0])).folder)
    folder.mkdir(parents=True)
    (folder / 'config.json').write_text(json.dumps(config_to_dict(resolve(asked[0]))))
    for name in ('result.json', 'metrics.csv'):
        (folder / name).write_text(
            '{"scores": {"val_map": 1}, "class_names": [], "seconds": 1, "data": "0", '
            '"provenance": {"commit": null}}'
        )
    (folder / 'DONE').touch()
    for loss in ('lac', 'llr'):
        main([*words, loss])
        main(['train', '--like', folder.name, '-p', 'loss', loss])
        assert resolve(asked[-1]) == resolve(asked[-2])


def test_like_never_takes_other_photos_in_silence(asked, capsys, photo_folder):
    """The record has names and no paths: a folder may be called like a data set, and a run in it be
    of others.
    """
    folder = photo_folder.rename(photo_folder.with_name('mini_nus'))
    run = Run(resolve(Config(loss='an', dataset=str(folder), backbone='mini', regime='linear')))
    run.start()
    run.finish(
        {
            'scores': {'test_map': 1.0},
            'seconds': 1.0,
            'data': load(folder).fingerprint,
            'provenance': {'commit': None},
        }
    )
    table = record.export_csv()
    shutil.rmtree(run.folder)
    assert main(['train', '--like', run.folder.name]) == 2 and not asked
    assert (
        f"{run.folder.name} was trained on other photos or labels than 'mini_nus' has here"
        in capsys.readouterr().err
    )
    main(['train', '--like', table.key[0], '-p', 'dataset', str(folder)])
    assert asked[0].dataset == str(folder)


def test_like_of_a_run_of_an_older_version_has_what_its_fields_stood_for(asked):
    run = Run(resolve(Config(loss='lac_plc', dataset='mini_voc', views='shift', regime='linear')))
    run.start()
    fields = json.loads((run.folder / 'config.json').read_text())
    (run.folder / 'config.json').write_text(
        json.dumps({name: value for name, value in fields.items() if name not in ADDED})
    )
    (run.folder / 'result.json').write_text(
        '{"scores": {}, "seconds": 1, "data": "0", "provenance": {"commit": null}}'
    )
    (run.folder / 'DONE').touch()
    main(['train', '--like', run.folder.name])
    assert resolve(asked[0]).views == 'shift'


def test_numbers_are_read_as_they_are_written_and_mappings_come_together(asked, capsys):
    main(
        [
            'train',
            *fields(loss='em', seed='010', lr='1e-3', hparams='{alpha: 0.1}'),
            *fields(hparams='{reduction: sum}', image_size='null'),
        ]
    )
    assert (asked[0].seed, asked[0].lr, asked[0].image_size) == (10, 1e-3, None) and asked[
        0
    ].hparams == {'alpha': 0.1, 'reduction': 'sum'}
    main(['train', '-p', 'dataset', 'shoot #2'])
    main(['train', '-p', 'dataset', "'shoot #2'", '-p', 'exclude', "['a #1', b]"])
    assert asked[1].dataset == asked[2].dataset == 'shoot #2' and list(asked[2].exclude) == [
        'a #1',
        'b',
    ]  # for YAML a comment begins there
    for wrong in ('1:30', '0x10', 'true'):
        assert (
            main(['train', '-p', 'seed', wrong]) == 2
            and f"not '{wrong}'" in capsys.readouterr().err
        )


def test_like_of_a_damaged_run_is_told(capsys, monkeypatch):
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(ROOT / 'outputs'))
    run = record.read_record(ROOT / 'outputs' / 'runs.csv').run[0]
    (settings.get_folder('runs') / run).mkdir(parents=True)
    (settings.get_folder('runs') / run / 'config.json').write_text('{')
    assert (
        main(['train', '--like', run]) == 2
        and 'config.json cannot be read: ' in capsys.readouterr().err
    )


def test_the_miniatures_are_listed(capsys):
    assert (
        main(['data']) == 0 and 'mini_voc, mini_coco, mini_nus, mini_cub' in capsys.readouterr().out
    )


def test_compare_asks_for_a_folder_alone(capsys):
    with pytest.raises(SystemExit):
        main(['compare'])
    assert capsys.readouterr().err.endswith('required: folder\n')


def test_hyper_parameters_of_several_places_come_together(asked, tmp_path):
    (tmp_path / 'run.yml').write_text('loss: em_apl\nhparams: {alpha: 0.5}\n')
    main(
        [
            'train',
            '--config',
            str(tmp_path / 'run.yml'),
            '-y',
            'hparams: {beta: 0.7}',
            '-y',
            'hparams: {warm_up: 2}',
            '-p',
            'hparams',
            '{beta: 0.6}',
        ]
    )
    assert asked[0].hparams == {'alpha': 0.5, 'beta': 0.6, 'warm_up': 2}


def test_side_information_belongs_to_its_method(capsys, photo_folder, tmp_path, monkeypatch):
    words = [
        'train',
        *fields(loss='epr_count', dataset=photo_folder, backbone='mini', regime='linear', epochs=1),
    ]
    assert (
        main(words) == 2
        and "'epr_count' learns from more than labels (count)" in capsys.readouterr().err
    )
    draw_side(photo_folder, tmp_path / 'known.csv')
    monkeypatch.chdir(tmp_path)
    assert main([*words, '-p', 'side', 'known.csv']) == 0
    (folder,) = settings.get_folder('runs').glob('epr_count-*')
    assert json.loads((folder / 'config.json').read_text())['side'].startswith(
        f'{tmp_path}/known.csv@'
    )
    (tmp_path / 'known.csv').unlink()
    assert main(['train', '--like', folder.name, '-p', 'loss', 'an']) == 0  # which uses none
    assert (
        main(['train', '--like', folder.name, '-p', 'seed', '1']) == 2
        and 'known.csv is not there' in capsys.readouterr().err
    )


def test_like_finds_a_run_of_this_machine_and_one_that_only_the_record_has(capsys, monkeypatch):
    words = ['train', *fields(dataset='mini_voc', regime='linear', epochs=1, device='cpu')]
    seen, launch = [], parallel.launch
    monkeypatch.setattr(
        parallel,
        'launch',
        lambda config, nproc, tell: seen.append(config) or launch(config, nproc, tell=tell),
    )
    assert main(words) == 0
    (folder,) = (done.parent for done in settings.get_folder('runs').glob('*/DONE'))
    told, key = capsys.readouterr().out.splitlines()[-1], record.load().key[0]
    assert (
        main(['train', '--like', folder.name]) == 0
        and capsys.readouterr().out.splitlines()[-1] == told
    )  # done already
    record.export_csv()
    shutil.rmtree(folder)
    assert (
        main(['train', '--like', key]) == 0 and capsys.readouterr().out.splitlines()[-1] == told
    )  # the same score, trained again
    assert [science_key(resolve(config)) for config in seen] == [key] * 3
    assert (
        main(['train', '--like', key[:-3] + 'xyz']) == 2
        and f'Similar: {key}' in capsys.readouterr().err
    )


def test_scores_against_observed_labels_are_marked_where_a_run_is_trained(capsys, photo_folder):
    table = photo_folder / 'labels.csv'
    table.write_text(table.read_text().replace('image,labels', 'image,positives'))
    words = [
        'train',
        *fields(dataset=photo_folder, labels='full', backbone='mini', regime='linear', epochs=1),
    ]
    with pytest.warns(UserWarning, match='known negative'):
        assert main(words) == 0
    (run,) = settings.get_folder('runs').glob('*/result.json')
    scores = json.loads(run.read_text())['scores']
    said = capsys.readouterr().out
    assert (
        f'validation observed AUC {scores["observed_val_auc"]:.2f}; '
        f'test observed AUC {scores["observed_test_auc"]:.2f}\n' in said
    )
    assert (
        f'mAP against observed labels (validation {scores["val_map"]:.2f}, '
        f'test {scores["test_map"]:.2f})' in said
    )


@pytest.mark.parametrize('column', ['positives', 'labels'])
@pytest.mark.filterwarnings('ignore:.*known negative')
def test_a_run_that_names_hardly_a_class_says_so_where_no_f1_does(
    capsys, photo_folder, monkeypatch, column
):
    table = photo_folder / 'labels.csv'
    table.write_text(table.read_text().replace('image,labels', f'image,{column}'))
    asked = []
    monkeypatch.setattr(
        thresholds,
        'explain_narrow_naming',
        lambda photos, classes, _: asked.append((photos, classes)) or 'hardly any',
    )
    words = ['train', *fields(dataset=photo_folder, backbone='mini', regime='linear', epochs=1)]
    assert main(words) == 0
    assert ('On validation hardly any\n' in capsys.readouterr().out) == (column == 'positives')
    if asked:
        run = open_run(next(settings.get_folder('runs').glob('*/DONE')).parent)
        named = expit(read_result(run).logits['val'].astype(float)) >= run.threshold()
        names = run.result()['class_names']
        assert asked == [(dict(zip(names, named.sum(0).tolist(), strict=True)), len(names))]


@pytest.mark.silent('A4')
@pytest.mark.filterwarnings('ignore:.*known negative')
def test_predictions_say_how_many_labels_a_photo_the_threshold_names(
    capsys, photo_folder, tmp_path
):
    """And, of a run with one label a photo, what it names on validation, if the run has counted
    that.
    """
    table = photo_folder / 'labels.csv'
    table.write_text(table.read_text().replace('image,labels', 'image,positives'))
    words = [
        'train',
        *fields(dataset=photo_folder, labels='full', backbone='mini', regime='linear', epochs=1),
    ]
    assert main(words) == 0
    (run,) = settings.get_folder('runs').glob('*/result.json')
    result = json.loads(run.read_text())
    result['scores'] |= {
        'val_labels_a_photo': 1.25,
        'val_without_label': 0.5,
        'val_observed_recall': 0.75,
    }
    run.write_text(json.dumps(result))
    assert (
        main(words) == 0
        and '1.25 labels a photo, none on 50 % of the photos, and 75 % of the observed labels'
        in capsys.readouterr().out
    )
    assert (
        main(
            [
                'predict',
                run.parent.name,
                str(photo_folder / 'images'),
                '--out',
                str(tmp_path / 'said.csv'),
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    named = pd.read_csv(tmp_path / 'said.csv', keep_default_na=False).labels.map(
        lambda labels: len([*filter(None, labels.split('|'))])
    )
    assert (
        f'named: {named.mean():.2f} labels a photo, none on {100 * (named == 0).mean():.0f} %'
        in said
        and 'on validation 1.25 labels a photo' in said
    )
    for option in (['--per-class'], ['--threshold', '0.4']):
        assert main(['predict', run.parent.name, str(photo_folder / 'images'), *option]) == 0
        said = capsys.readouterr().err
        assert 'on validation' not in said  # that is what the one threshold names
        overall = f'all on: {named.mean():.2f} labels a photo, none on'
        assert (overall in said) == (option[0] == '--per-class')


@pytest.mark.parametrize(
    'words, remedy',
    [
        (['compare', 'x', 'an', '-p', 'min_positives', '20'], '--min-positives VALUE'),
        (['compare', 'x', '-p', 'lr', '0.1'], 'tries settings by itself'),
        (['train', '--min-positives', '20'], '`spml train -p min_positives VALUE`'),
        (
            ['train', '-p', 'loss', 'em', '--min_positives=20'],
            '`spml train -p min_positives VALUE`',
        ),
        (['runs', '--loss', 'em'], '`spml runs -p loss VALUE`'),
        (['sweep', 'hml', '-p', 'loss', 'em'], '`spml sweep` takes it as --loss VALUE'),
        (['predict', 'r', 'x', '-p', 'lr', '0.1'], '`spml predict` takes a run as it was trained'),
        (['report', 'r', '--lr', '0.1'], '`spml report` takes a run as it was trained'),
        (['data', 'x', '-p', 'min_positives', '20'], '`spml data` takes no field of a run'),
        (['train', '--foo'], ''),
    ],
)
def test_a_field_in_the_form_of_another_command_brings_the_right_one(capsys, words, remedy):
    with pytest.raises(SystemExit):
        main(words)
    message = capsys.readouterr().err.splitlines()[-1]
    assert remedy in message and (remedy or message.endswith(words[-1]))


@pytest.mark.silent('C4')
def test_a_test_map_that_counts_classes_without_a_photo_as_0_says_so(capsys, photo_folder):
    table = pd.read_csv(photo_folder / 'labels.csv')
    split = [
        'train' if 'blue' in labels else ('train', 'test')[k % 4 == 0]
        for k, labels in enumerate(table.labels)
    ]
    table.assign(split=split).to_csv(photo_folder / 'labels.csv', index=False)
    words = [
        'train',
        *fields(dataset=photo_folder, loss='an', backbone='mini', regime='linear', epochs=1),
    ]
    assert (
        main([*words, '-p', 'map_definition', 'cole']) == 0
        and 'classes that no test photo has count 0' in capsys.readouterr().out
    )
    assert main(words) == 0 and 'count 0' not in capsys.readouterr().out


def test_the_board_of_all_methods_is_swept(capsys, monkeypatch):
    asked = []

    def sweep(suite, datasets, losses, **options):
        asked.append((suite, list(datasets), list(losses), options['jobs'], options['dry_run']))
        return pd.DataFrame({'state': ['done'], 'expected': 1.0})

    monkeypatch.setattr(boards, 'sweep', sweep)
    assert (
        main(
            [
                'sweep',
                'methods',
                '--dataset',
                'voc12_animals',
                'ccp',
                '--loss',
                'em',
                '--jobs',
                '2',
                '--dry-run',
            ]
        )
        == main(['sweep', 'methods', '--suite', 'mini'])
        == 0
    )
    assert asked == [
        ('photos', ['voc12_animals', 'ccp'], ['em'], 2, True),
        ('mini', [], [], 1, False),
    ]


def test_a_folder_of_ones_own_is_compared_by_one_command(monkeypatch, photo_folder):
    asked, states = [], ['done']

    def compare(folder, methods, labels, suite, seeds, min_positives, **options):
        asked.append(
            (
                folder,
                list(methods),
                labels,
                suite,
                seeds,
                min_positives,
                options['jobs'],
                options['dry_run'],
            )
        )
        return pd.DataFrame({'state': states, 'expected': 1.0})

    monkeypatch.setattr(comparison, 'compare', compare)
    words = ['compare', str(photo_folder)]
    more = [
        'an',
        'em',
        '--labels',
        'single',
        '--suite',
        'photos_finetune',
        '--seeds',
        '5',
        '--min-positives',
        '20',
        '--jobs',
        '2',
        '--dry-run',
    ]
    assert main(words) == main([*words, *more]) == 0
    assert asked == [
        (str(photo_folder), [], 'full', 'photos', 3, 0, 1, False),
        (str(photo_folder), ['an', 'em'], 'single', 'photos_finetune', 5, 20, 2, True),
    ]
    states[0] = 'failed'
    assert (
        main(words) == 1 and not (settings.get_folder('outputs') / 'runs.csv').exists()
    )  # no part of the record


def test_a_folder_of_ones_own_is_checked(capsys, photo_folder):
    assert main(['data', str(photo_folder), '--check']) == main(['data', str(photo_folder)]) == 0
    told = capsys.readouterr().out
    assert (
        '60 images' in told
        and '1.7 positives per photo' in told
        and 'Positives of each class' in told
    )
    assert told.endswith(f': spml data {photo_folder} --split\n')  # no column says what is what
    table = photo_folder / 'labels.csv'
    split = [('train', 'train', 'val', 'test')[k % 4] for k in range(60)]
    pd.read_csv(table).assign(split=split).to_csv(table, index=False)
    for column, advised in (('labels', 'bce asl two_way'), ('positives', 'an em hml')):
        table.write_text(table.read_text().replace('image,labels', f'image,{column}'))
        main(['data', str(photo_folder), '--check'])
        told = capsys.readouterr().out
        assert told.endswith(f'Next: spml compare {photo_folder} {advised} --seeds 3\n')
    (photo_folder / 'images' / '007.png').write_bytes(b'')
    assert (
        main(['data', str(photo_folder), '--check']) == 1
        and '007.png (an empty file)' in (told := capsys.readouterr().out)
        and 'Next' not in told
    )
    (photo_folder / 'labels.csv').write_text('image;labels\n')
    assert (
        main(['data', str(photo_folder), '--check']) == 2
        and 'semicolons' in capsys.readouterr().err
    )


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


def test_the_doctor_ends_with_1_when_there_is_a_problem(capsys, monkeypatch):
    for state, status in (('warning', 0), ('problem', 1)):
        table = pd.DataFrame(
            [{'check': 'a check', 'state': state, 'found': 'this', 'remedy': 'do that'}]
        )
        monkeypatch.setattr(doctor, 'check_installation', lambda quick=False, table=table: table)
        monkeypatch.setattr(doctor, 'format_findings', lambda table: table.to_string())
        assert (
            main(['doctor']) == main(['doctor', '--quick']) == status
            and 'do that' in capsys.readouterr().out
        )


def test_a_number_is_a_text_where_the_field_is_one(monkeypatch):
    asked = []

    def launch(config, *words, **options):
        asked.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr(parallel, 'launch', launch)
    assert (
        main(['train', *fields(dataset=2024, seed=7, exclude=3, root='null', device='cpu')]) == 130
    )
    assert (asked[0].dataset, asked[0].seed, asked[0].exclude, asked[0].root) == (
        '2024',
        7,
        ('3',),
        None,
    )
    for text, names in (
        ('null', ('null',)),
        ('-', ('-',)),
        ('?, cat', ('?', 'cat')),
        ('[a, "b, c"]', ('a', 'b, c')),
        ('[2019, b]', ('2019', 'b')),
    ):
        main(['train', '-p', 'exclude', text])
        assert asked[-1].exclude == names


@pytest.mark.parametrize(
    ('words', 'module', 'name', 'resumed'),
    [
        (['train'], parallel, 'launch', True),
        (['sweep', 'hml'], papers, 'sweep_tables', True),
        (['compare', 'photos'], comparison, 'compare', True),
        (['predict', 'r', '.'], prediction, 'predict', False),
        (['export', 'r', 'a.onnx'], exporting, 'export', False),
        (['evaluate', 'r', '.'], scoring, 'evaluate_model', False),
        (['reproduce', 'r'], reproduction, 'reproduce', False),
    ],
)
def test_only_what_goes_on_is_said_to_go_on(monkeypatch, capsys, words, module, name, resumed):
    def stop(*words, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, stop)
    assert main(words) == 130
    assert capsys.readouterr().err == (
        'stopped; the same command goes on from here\n' if resumed else 'stopped\n'
    )


@pytest.mark.silent('C8')
def test_a_photo_that_cannot_be_read_is_listed_and_the_status_says_so(tmp_path, capsys):
    photos, file = tmp_path / 'photos', tmp_path / 'found.csv'
    photos.mkdir()
    for k in range(3):
        Image.new('RGB', (40, 30), (90 * k, 80, 60)).save(photos / f'{k}.png')
    assert main(['predict', 'coco18', str(photos)]) == 0
    (photos / '1.png').write_bytes(b'no image')
    assert main(['predict', 'coco18', str(photos), '--out', str(file)]) == 1
    assert (
        pd.read_csv(file).image.tolist() == ['0.png', '2.png']
        and '1.png (not an image' in capsys.readouterr().err
    )


@pytest.mark.silent('C8')
@pytest.mark.parametrize(
    'words',
    [
        ['predict', 'coco18', '.', '--out', 'there.csv'],
        ['export', 'coco18', 'there.safetensors'],
        ['export', 'coco18', 'there', '--card'],
        ['export', 'coco18', '--card'],
    ],
)
def test_no_command_overwrites_a_file_that_is_named(tmp_path, capsys, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    for folder in ('there', 'coco18'):
        (tmp_path / folder).mkdir()
        shutil.copy(exporting.SHIPPED / 'coco18' / exporting.WEIGHTS, tmp_path / folder)
        (tmp_path / folder / 'README.md').write_text('by hand')
    Image.new('RGB', (40, 30)).save(tmp_path / 'x.png')
    for name in ('there.csv', 'there.safetensors'):
        (tmp_path / name).write_text('image,cat,labels\nx.png,0.4,cat\n')
    before = {file: file.read_bytes() for file in tmp_path.rglob('*') if file.is_file()}
    monkeypatch.setattr(scoring, 'open_model', lambda *_: pytest.fail('work was done'))
    assert main(words) == 2
    told = capsys.readouterr().err
    assert (
        words[2]
        if words[0] == 'export' and words[2] != '--card'
        else words[-1]
        if words[0] == 'predict'
        else 'coco18'
    ) in told
    assert {file: file.read_bytes() for file in tmp_path.rglob('*') if file.is_file()} == before


@pytest.mark.silent('A3')
def test_a_threshold_is_given_for_one_call(tmp_path, capsys):
    Image.new('RGB', (40, 30), 'green').save(tmp_path / 'x.png')
    labels = []
    for threshold in ('0.0001', '0.9999'):
        assert main(['predict', 'coco18', str(tmp_path), '--threshold', threshold]) == 0
        shown = capsys.readouterr()
        assert f'threshold {threshold}:' in shown.err
        labels.append(pd.read_csv(io.StringIO(shown.out), keep_default_na=False).labels[0])
    assert labels[0].count('|') > 5 and labels[1] == ''
    for threshold in ('0', '1', '-0.5', 'nan'):
        assert main(['predict', 'coco18', str(tmp_path), f'--threshold={threshold}']) == 2
        assert f'threshold={float(threshold)!r}' in capsys.readouterr().err


def test_names_that_are_not_utf_8_are_printed_as_they_are(monkeypatch):
    with any_name_in_frames():
        table = pd.DataFrame({'image': ['caf\udce9.png'], 'labels': ['red']})
    table.attrs |= {'threshold': 0.5, 'unusable': {}}
    monkeypatch.setattr(prediction, 'predict', lambda *words, **options: table)
    with io.TextIOWrapper(io.BytesIO(), encoding='utf-8') as out:
        monkeypatch.setattr(sys, 'stdout', out)
        assert main(['predict', 'r', '.']) == 0
        assert b'caf\xe9.png,red' in out.buffer.getvalue()


def test_a_reader_that_has_gone_ends_the_command_quietly():
    code = (
        'import sys; from spml_nb import cli; cli._doctor = lambda args: print("a line"); '
        'sys.exit(cli.main(["doctor"]))'
    )
    with subprocess.Popen(
        [sys.executable, '-c', code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b'' and process.wait() == 141


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='needs the full device of Linux')
def test_output_to_a_full_disk_is_told():
    code = (
        'import sys; from spml_nb import cli; cli._doctor = lambda args: print("a line"); '
        'sys.exit(cli.main(["doctor"]))'
    )
    with open('/dev/full', 'w') as full:
        done = subprocess.run(
            [sys.executable, '-c', code], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (
        done.returncode == 2
        and done.stderr.startswith(
            'error: the output of this command could not be written: the disk is full'
        )
        and done.stderr.count('\n') == 1
    )


def test_a_report_reaches_an_output_that_lacks_its_letters(photo_folder, monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), encoding='latin-1')
    monkeypatch.setattr(sys, 'stdout', output)
    assert main(['data', str(photo_folder), '--check']) == 0
    output.seek(0)
    assert '60' in output.read() and '\\u' in output.buffer.getvalue().decode('latin-1')


# ---- names from elsewhere


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


@pytest.mark.silent('C9')
def test_a_table_for_a_program_is_exact_and_holds_no_formula(tmp_path, capsys):
    folder = tmp_path / 'runs' / '=cmd-x-0123456789ab'
    folder.mkdir(parents=True)
    (folder / 'config.json').write_text('{')
    assert main(['runs', '--csv']) == 0
    assert "\n'=cmd-x-0123456789ab,damaged," in capsys.readouterr().out


# ---- hostile files


@pytest.mark.silent('C10')
@pytest.mark.parametrize('field', ['lr', 'loss', 'exclude', 'nothing'])
def test_a_short_text_does_not_become_an_endless_message(field, tmp_path, capsys):
    lines = ['a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]']
    lines += [f'a{k}: &a{k} [{", ".join(10 * [f"*a{k - 1}"])}]' for k in range(1, 7)]
    (tmp_path / 'run.yml').write_text('\n'.join([*lines, f'{field}: *a6']))
    with within(30):
        assert main(['train', '--config', str(tmp_path / 'run.yml')]) == 2
    assert 'alias' in (said := capsys.readouterr().err) and len(said) < 2000


@pytest.mark.silent('C10')
@pytest.mark.parametrize(
    'text',
    [
        'a: ' + '[' * 1500,
        'lr: 1' + '0' * 5000,
        'lr: 0x' + 'f' * 5000,
        'seed: [' + '1, ' * 20_000 + ']',
        'loss: ' + 'x' * 10**6,
    ],
)
def test_a_large_or_deep_value_is_one_short_error(text, tmp_path, capsys):
    (tmp_path / 'run.yml').write_text(text)
    assert main(['train', '--config', str(tmp_path / 'run.yml')]) == 2
    said = capsys.readouterr().err
    assert said.startswith('error: ') and len(said) < 12_000


@pytest.mark.silent('C10')
def test_a_pipe_for_a_configuration_is_named_and_not_waited_for(tmp_path, capsys):
    os.mkfifo(tmp_path / 'run.yml')
    with within(20):
        assert main(['train', '--config', str(tmp_path / 'run.yml')]) == 2
    assert 'run.yml cannot be read' in capsys.readouterr().err


@pytest.mark.silent('C11')
@pytest.mark.skipif(sys.platform == 'win32', reason='needs a shell that closes')
@pytest.mark.parametrize('closed', ['>&-', '2>&-', '<&-', '>&- 2>&- <&-'])
def test_what_the_shell_has_closed_stops_nothing(closed):
    code = 'import sys; from spml_nb.cli import main; sys.exit(main(["runs"]))'
    done = subprocess.run(
        f"{sys.executable} -c '{code}' {closed}", shell=True, capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stderr


@pytest.mark.silent('C11')
def test_what_may_not_be_read_is_one_error(monkeypatch, capsys):
    from spml_nb.tools import cleanup

    def barred(*_, **__):
        raise PermissionError(13, 'Permission denied', 'there')

    monkeypatch.setattr(cleanup, 'list_runs', barred)
    assert (
        main(['runs']) == 2
        and 'error: there cannot be read or written (Permission denied)' in capsys.readouterr().err
    )


@pytest.mark.silent('C11')
@pytest.mark.parametrize(
    'words',
    [
        ['-y', 'seed: 010'],
        ['-y', 'epochs: 1:30'],
        ['-p', 'exclude', '[010]'],
        ['-y', 'hparams: {alpha: 012}'],
    ],
)
def test_what_yaml_reads_otherwise_than_a_person_is_refused(words, capsys):
    assert main(['train', *words]) == 2
    assert 'which YAML reads as' in capsys.readouterr().err


@pytest.mark.silent('C11')
def test_plain_numbers_and_texts_with_zeros_are_what_they_look_like(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(
        parallel, 'launch', lambda config, *_, **__: given.append(config) or sys.exit(0)
    )
    for words in (
        ['-y', "seed: 0", '-p', 'lr', '0.01'],
        ['-p', 'seed', '010'],
        ['-y', "dataset: '010'"],
        ['-p', 'dataset', '010'],
    ):
        with pytest.raises(SystemExit):
            main(['train', *words])
    assert [given[0].seed, given[0].lr, given[1].seed, given[2].dataset, given[3].dataset] == [
        0,
        0.01,
        10,
        '010',
        '010',
    ]


@pytest.mark.parametrize(
    'answer, option, column',
    [('c', None, 'labels'), ('p', None, 'positives'), (None, '--complete', 'labels')],
)
def test_what_a_missing_name_means_is_asked_or_told(
    tmp_path, monkeypatch, capsys, answer, option, column
):
    for k in range(4):
        (tmp_path / 'source').mkdir(exist_ok=True)
        Image.new('RGB', (4, 4), (60 * k, 0, 0)).save(tmp_path / 'source' / f'{k}.png')
    (tmp_path / 'source' / 'a.csv').write_text('file;tag\n0.png;cat\n1.png;dog\n2.png;cat\n')
    command = ['import', str(tmp_path / 'source'), str(tmp_path / 'new')]
    assert main(command) == 2
    message = capsys.readouterr().err
    for choice in ('--complete', '--positives-only'):
        assert f'`spml {" ".join(command)} {choice}`' in message
    monkeypatch.setattr('sys.stdin.isatty', lambda: True, raising=False)
    monkeypatch.setattr('builtins.input', lambda question: answer)
    assert main([*command, option] if option else command) == 0
    said = capsys.readouterr().out
    assert 'photos that no label file names: 3.png' in said and 'spml data ' in said
    header = (tmp_path / 'new' / 'labels.csv').read_text().splitlines()[0]
    assert header == f'image,{column}'


def test_a_threshold_that_names_nearly_everything_is_said_after_the_training(photo_folder, capsys):
    words = ['train', *fields(dataset=photo_folder, backbone='mini', regime='linear', epochs=1)]
    assert main(words) == 0
    (run,) = settings.get_folder('runs').glob('*/result.json')
    result = json.loads(run.read_text())
    result['thresholds'] |= {'named': 2.9, 'labels': 1.2}
    run.write_text(json.dumps(result))
    assert main(words) == 0
    said = capsys.readouterr().out
    assert '2.90 labels' in said and '1.20 are there' in said and 'spml calibrate' in said


@pytest.mark.parametrize(
    'pairs, remedy',
    [
        ((('exclude', 'stop sign'), ('exclude', 'bear')), "`-p exclude 'stop sign, bear'`"),
        ((('exclude', '["a, b"]'), ('exclude', 'bear')), """`-p exclude '["a, b", "bear"]'`"""),
        ((('lr', '0.1'), ('seed', '1'), ('lr', '0.2')), "'0.1' and as '0.2'"),
    ],
)
def test_a_field_given_twice_is_refused(pairs, remedy, capsys):
    assert main(['train', *(word for pair in pairs for word in ('-p', *pair))]) == 2
    assert remedy in capsys.readouterr().err


def test_the_names_of_a_remedy_are_read_as_those_classes():
    for names in (['stop sign', 'bear'], ['a, b', 'c'], ['[x]', "cat's"]):
        _, field, text = shlex.split(exclude_option(names))
        assert list(Config(**parse_fields([(field, text)])).exclude) == names
