"Commands that train many runs."

from pathlib import Path

import pandas as pd
import pytest

from spml_nb.base import settings
from spml_nb.cli import main
from spml_nb.replication import paper_figures, study
from spml_nb.sweeps import boards
from spml_nb.use import comparison

ROOT = Path(__file__).resolve().parents[2]


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


def test_compare_asks_for_a_folder_alone(capsys):
    with pytest.raises(SystemExit):
        main(['compare'])
    assert capsys.readouterr().err.endswith('required: folder\n')


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
