"The command `spml`: what it prints and how it ends."
import json

import pandas as pd
import pytest

from spml_nb import figures, settings, transfer
from spml_nb.cli import main


def test_presets_are_printed_with_their_sources(capsys):
    assert main(['presets', '--paper', 'lac']) == 0
    told = capsys.readouterr().out
    assert 'threshold' in told and "authors' code" in told


def test_a_dry_sweep_says_how_much_there_is(capsys):
    assert main(['sweep', 'hml', '--table', '5', '--suite', 'mini', '--dry-run']) == 0
    assert '4 runs of search' in capsys.readouterr().out


@pytest.mark.parametrize(('words', 'message'), [
    (['sweep', 'hmm'], "unknown paper 'hmm'; allowed: hml, opml, lac, two_way, em_apl"),
    (['sweep', 'hml', '--suite', 'maxi'], "unknown suite 'maxi'; allowed: paper, mini, photos"),
    (['sweep', 'hml', '--table', '17'], "unknown table of 'hml' '17'"),
    (['sweep', 'hml', '--figure', '17'], "unknown figure of 'hml' '17'"),
    (['sweep', 'hml', '--figure', '3', '--table', '2'], '--figure goes without --table'),
    (['train', '-p', 'loss', 'hmm'], "unknown loss 'hmm'"),
    (['train', '-p', 'lrr', '1'], "unknown parameter 'lrr'"),
    (['train', '-y', 'loss'], "-y wants 'name: value', not 'loss'"),
    (['train', '--nproc', '0'], 'processes must be 1 or more, not 0'),
    (['presets', '--paper', 'hmm'], "unknown paper 'hmm'"),
    (['presets', '--loss', 'em'], '--loss goes with --paper')])
def test_wrong_words_end_in_one_line_and_status_2(capsys, words, message):
    assert main(words) == 2
    told = capsys.readouterr().err
    assert told.startswith('error: ') and message in told and told.count('\n') == 1


def test_a_figure_is_swept_and_its_arrays_collected(capsys, monkeypatch):
    asked = []
    def sweep(paper, figure, suite, **options):
        asked.append((paper, figure, suite, options['jobs'], options['dry_run']))
        return pd.DataFrame({'state': ['done', 'failed']})
    monkeypatch.setattr(figures, 'sweep', sweep)
    assert main(['sweep', 'hml', '--figure', '3', '--jobs', '2', '--dry-run']) == 0
    assert main(['sweep', 'lac', '--figure', '4']) == 1   # a run failed
    assert asked == [('hml', '3', 'mini', 2, True), ('lac', '4', 'mini', 1, False)]


def test_a_dry_sweep_of_a_figure_says_how_much_there_is(capsys):
    assert main(['sweep', 'hml', '--figure', '3', '--dry-run']) == 0
    assert 'runs of search' in capsys.readouterr().out


def test_a_run_is_trained_from_the_terminal(capsys, photo_folder):
    words = ['train', '-p', 'loss', 'ls', '-p', 'dataset', str(photo_folder), '-p', 'backbone', 'mini', '-p', 'regime', 'linear', '-p', 'lr', '1e-3',
             '-y', '{epochs: 1, image_size: 40, hparams: {smoothing: 0.2}}']
    assert main(words) == 0
    told = capsys.readouterr().out
    assert 'epoch  1/1' in told and 'test mAP' in told
    config, = (json.loads(file.read_text()) for file in settings.path('runs').glob('*/config.json'))
    assert (config['loss'], config['lr'], config['hparams']['smoothing']) == ('ls', 1e-3, 0.2)
    assert main(words) == 0 and 'already done' in capsys.readouterr().out


def test_table_8_is_filled_on_drawings(monkeypatch):
    asked = []
    monkeypatch.setattr(transfer, 'record', lambda seeds, tell: asked.append(list(seeds)))
    assert main(['sweep', 'two_way', '--table', '8', '--seeds', '4']) == main(['sweep', 'two_way', '--table', '8']) == 0
    assert asked == [[4], [0, 1, 2]]
