"""The papers' figures: what runs they take, and how runs become arrays and arrays become pictures,
the same ones every time.
"""

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest
from figure_runs import photos, world  # noqa: F401 (fixtures)
from PIL import Image

from spml_nb import runs, training
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.replication import figure_drawing, paper_figures, published, run_measurements
from spml_nb.replication import tables as papers
from spml_nb.runs.config import Config, resolve
from spml_nb.sweeps import boards, queue, search

OUTPUTS = Path(__file__).resolve().parents[2] / 'outputs'
NONE = pd.DataFrame()
COUNTS = {
    ('hml', '2'): 9,
    ('hml', '3'): 70,
    ('hml', '4'): 120,
    ('hml', '5'): 180,
    ('hml', '6'): 1,
    ('hml', 'E8'): 40,
    ('opml', 'F1'): 40,
    ('opml', '3'): 40,
    ('opml', '4'): 18,
    ('opml', '5'): 150,
    ('opml', '6'): 36,
    ('opml', '7'): 1,
    ('lac', '3'): 15,
    ('lac', '4'): 15,
    ('lac', '5'): 15,
    ('lac', '6'): 1,
    ('lac', 'F6'): 30,
    ('two_way', '1'): 0,
    ('two_way', 'T8'): 9,
    ('em_apl', '7'): 24,
    ('em_apl', '8'): 12,
    ('em_apl', '9'): 24,
    ('em_apl', '10'): 3,
    ('em_apl', '11'): 20,
}  # runs on photos
EVERY = [pytest.param(*f, id='-'.join(f)) for f in COUNTS]


def pretended(paper, figure, suite='photos'):
    "What is known when all searches of a figure are done."
    keys = [queue.run_key(c) for c in paper_figures.list_figure_runs(paper, figure, suite, NONE)[0]]
    return pd.DataFrame({'val_map': 1.0}, index=keys)


# ---- which runs


def test_all_figures_are_there():
    assert [(p, f) for p in published.ORDER for f in paper_figures.list_figures(p)] == list(COUNTS)


def test_every_figure_has_its_words_and_none_has_words_for_nothing():
    for paper in published.ORDER:
        texts = paper_figures._read_texts(paper)['figures']
        assert list(texts) == paper_figures.list_figures(paper)
        for number in texts:
            assert set(paper_figures.describe_figure(paper, number)) >= {
                'caption',
                'printed',
                'notes',
            }
            assert set(texts[number]) <= {'caption', 'printed', 'notes', 'seeds', 'protocol'}


@pytest.mark.parametrize('paper, figure', EVERY)
def test_a_figure_takes_as_many_valid_runs_as_it_should(paper, figure):
    known = pretended(paper, figure)
    configs = paper_figures.list_figure_runs(paper, figure, 'photos', known)[1]
    assert len(configs) == COUNTS[paper, figure] == len({queue.run_key(c) for c in configs})
    for c in configs if figure != 'T8' else []:  # it trains from scratch
        assert (
            resolve(c).dataset in search.SUITES['photos']['datasets']
            and c.regime == 'linear'
            and c.batch_size == 64
            and c.min_positives == 20
        )
        assert (
            c.seed == c.label_seed
            and c.seed in paper_figures.FIGURES[paper][figure].seeds
            and c.selection == 'val_clean'
        )
    curves = {(c.dataset, c.series): c.points for c in paper_figures.FIGURES[paper][figure].curves}
    for part in paper_figures.plan_figure_runs(paper, figure, 'photos', known):
        changes = curves[part.dataset, part.series][part.values]
        assert changes.get('hparams', {}).items() <= part.config.hparams.items()
        assert (
            all(
                getattr(part.config, field) == value
                for field, value in changes.items()
                if field != 'hparams'
            )
            and part.config.seed == part.seed
        )
    assert {
        c.label_seed for c in paper_figures.list_figure_runs(paper, figure, 'paper', NONE)[0]
    } <= {1200}  # the papers' own data sets are planned too
    caption = ' '.join(paper_figures.describe_figure(paper, figure).values())
    said = [
        *{c.dataset for c in configs},
        'frozen features',
        'search of 10 draws',
        'fully labelled validation',
        ', '.join(map(str, sorted({c.seed for c in configs}))),
    ]
    if (paper, figure) == ('em_apl', '10'):  # of labels, so that no setting is chosen
        assert 'search' not in caption and all(c.dataset in caption for c in configs)
    else:
        assert not configs or figure == 'T8' or all(words in caption for words in said)


def test_all_figures_together_take_732_runs_and_no_search_that_the_board_has_not():
    configs = [
        c
        for p in published.ORDER
        for c in paper_figures.list_figure_runs(p, None, 'photos', pretended(p, None))[1]
    ]
    assert len({queue.run_key(c) for c in configs}) == 732
    searches = [
        c
        for p in published.ORDER
        for c in paper_figures.list_figure_runs(p, None, 'photos', NONE)[0]
        if c.regime == 'linear'
    ]
    rows = [row for row in boards.suite_rows('photos') if row.loss in {c.loss for c in searches}]
    board = {
        queue.run_key(c)
        for d in {c.dataset for c in searches}
        for row in rows
        for c in search.search_configs(row, 'photos', d)
    }
    assert {queue.run_key(c) for c in searches} <= board


@pytest.mark.parametrize(
    'paper, figure, table, row, column',
    [
        ('hml', '6', '2', 'HML (Ours)', 'COCO'),
        ('opml', '3', 'III', 'OPML', 'VOC'),
        ('lac', '6', '2', 'Ours', 'LEM / COCO'),
        ('em_apl', '7', '1', 'AN', 'CUB'),
        ('em_apl', '11', '1', 'EM', 'COCO'),
        ('two_way', 'T8', '8', 'Ours', 'ImageNet'),
        ('two_way', 'T8', '8', 'ASL', 'ImageNet'),
    ],
)
def test_a_run_that_a_table_has_is_the_same_run(paper, figure, table, row, column):
    cells = published.table_cells(paper, table)
    cell = cells[(cells.row == row) & (cells.column == column)].iloc[0].to_dict()
    known = pretended(paper, figure)
    of_table = papers.cell_final_runs(papers.plan_cell(cell, 'photos'), known)
    assert queue.run_key(of_table[0]) in {
        queue.run_key(c) for c in paper_figures.list_figure_runs(paper, figure, 'photos', known)[1]
    }


def test_while_a_search_is_not_done_its_runs_are_wanted_and_no_others():
    tried, final = paper_figures.list_figure_runs('hml', 3, 'photos', NONE)
    assert len(tried) == 10 and final == []
    assert all(p.config is None for p in paper_figures.plan_figure_runs('hml', 3, 'photos', NONE))


def test_photos_and_the_papers_own_data_too():
    assert {c.dataset for c in paper_figures.list_figure_runs('opml', 7, 'photos', NONE)[0]} == {
        'coco18'
    }
    assert {c.dataset for c in paper_figures.list_figure_runs('lac', None, 'paper', NONE)[0]} == {
        'voc12',
        'coco14',
    }
    for p in published.ORDER:
        for c in paper_figures.list_figure_runs(p, None, 'paper', NONE)[0]:
            resolve(c)


@pytest.mark.parametrize(
    'call, words',
    [
        (lambda: paper_figures.list_figures('hmll'), ["'hmll'", 'hml']),
        (lambda: paper_figures.describe_figure('hmll', 1), ["'hmll'", 'hml']),
        (lambda: paper_figures.describe_figure('hml', 1), ["'1'", '2, 3, 4, 5, 6']),
        (lambda: paper_figures.list_figure_runs('hml', 2, 'mini', NONE), ["'mini'", 'photos']),
        (lambda: paper_figures.draw_paper_figure('lac', '6', 'poster'), ["'poster'", 'photos']),
        (lambda: paper_figures.collect_arrays('lac', 7, 'photos', NONE), ["'7'", '3, 4, 5, 6']),
    ],
)
def test_unknown_papers_figures_and_suites_are_refused(call, words):
    with pytest.raises(SpmlError) as error:
        call()
    for word in words:
        assert word in str(error.value)


# ---- from the table of record to pictures


@pytest.mark.parametrize(
    'paper, figure', [('hml', 4), ('hml', 5), ('opml', 5), ('opml', 6), ('lac', 3)]
)
def test_scores_come_from_the_record_and_half_filled_figures_are_drawn(paper, figure):
    known = pretended(paper, figure)
    wanted = paper_figures.plan_figure_runs(paper, figure, 'photos', known)
    record = known.join(
        pd.Series({p.key: 50 + k / 4 for k, p in enumerate(wanted)}, name='test_map'), how='outer'
    ).fillna({'val_map': 1.0})
    file = paper_figures.collect_arrays(paper, figure, 'photos', record)
    collected = figure_drawing.read_figure_arrays(file)
    for part in wanted:
        assert collected.arrays[part.name]['test_map'] == record.test_map[part.key]
    again = paper_figures.collect_arrays(
        paper, figure, 'photos', record.assign(val_map=60.0, exercised=0)
    )  # what needs no network is read anew
    noted = figure_drawing.read_figure_arrays(again)
    assert all(
        noted.arrays[part.name]['val_map'] == 60
        and noted.about['parts'][part.name]['exercised'] == 0
        for part in wanted
    )
    assert all(part['exercised'] is None for part in collected.about['parts'].values())
    place = (wanted[0].dataset, wanted[0].series, wanted[0].values)
    first = [p for p in wanted if (p.dataset, p.series, p.values) == place]
    each = record.test_map[[p.key for p in first]]
    assert len(first) == len(paper_figures.FIGURES[paper][str(figure)].seeds) and collected.summary(
        wanted[0].dataset, wanted[0].series, 'test_map', wanted[0].values
    )[:, 0].tolist() == [each.mean(), each.min(), each.max()]
    svg = check_picture(paper_figures.draw_paper_figure(paper, figure, 'photos'))
    png = paper_figures.draw_paper_png(paper, figure, 'photos')
    with Image.open(io.BytesIO(png)) as picture:
        assert len(png) < 100_000 and min(picture.size) > 150 and picture.mode == 'P'
    assert (
        'parts are done' not in svg
        and f'not exercised in {len(wanted)} of {len(wanted)} runs'
        in ' '.join(ElementTree.fromstring(svg).itertext())
    )
    file.unlink()
    half = record.loc[sorted({*known.index, *(p.key for p in wanted[: len(wanted) // 2])})]
    done = [p for p in wanted if p.key in half.index]
    paper_figures.collect_arrays(paper, figure, 'photos', half)
    svg = check_picture(paper_figures.draw_paper_figure(paper, figure, 'photos'))
    assert f'only {len(done)} of {len(wanted)} parts' in svg and len(done) < len(wanted)
    assert ('>missing<' in svg) == (
        len({p.dataset for p in done}) < len({p.dataset for p in wanted})
    )
    assert all(ours in svg for _, ours in collected.about['data']) and 'mAP (%)' in svg


def check_picture(file):
    svg = file.read_text()
    ElementTree.fromstring(svg)
    assert file.stat().st_size <= 150 * 1024 and '<dc:date>' not in svg
    return svg


# ---- from runs to pictures, with small runs on drawn photos in the place of the suite's


@pytest.fixture
def small(photos, monkeypatch):  # noqa: F811
    """Every search is one run of two epochs on 40 photos, figures keep to two epochs and to two
    points a curve, and runs are trained here and not in another process."""
    vary = paper_figures._vary

    def plan(cell, suite):
        given = {k: cell['config'][k] for k in ('loss', 'labels', 'head') if k in cell['config']}
        return papers.Plan(
            [Config(**given, dataset=str(photos), backbone='mini', epochs=2, lr=2e-3)], {}
        )

    def run(configs, *, tell, **launch):
        for c in configs:
            training.train(queue.canonical_config(c))
        return pd.DataFrame(columns=['state', 'message'])

    monkeypatch.setattr(papers, 'plan_cell', plan)
    monkeypatch.setattr(queue, 'run', run)
    monkeypatch.setattr(
        paper_figures,
        '_vary',
        lambda chosen, changes: vary(chosen, {k: v for k, v in changes.items() if k != 'epochs'}),
    )

    def few(figure):
        return replace(
            figure,
            curves=[replace(c, points=dict([*c.points.items()][:2])) for c in figure.curves],
            seeds=figure.seeds[:2],
        )

    monkeypatch.setattr(
        paper_figures,
        'FIGURES',
        {
            p: {n: few(figure) for n, figure in own.items()}
            for p, own in paper_figures.FIGURES.items()
        },
    )
    return photos


@pytest.mark.parametrize(
    'paper, figure',
    [
        ('hml', 2),
        ('hml', 3),
        ('hml', 6),
        ('opml', 3),
        ('opml', 4),
        ('opml', 7),
        ('lac', 6),
        ('two_way', 1),
        ('em_apl', 7),
        ('em_apl', 8),
        ('em_apl', 9),
        ('em_apl', 10),
        ('em_apl', 11),
    ],
)
def test_from_runs_to_a_picture(small, paper, figure):
    paper_figures.sweep_figures(paper, figure, 'photos', tell=str)
    file = paper_figures.find_arrays(paper, figure, 'photos')
    collected = figure_drawing.read_figure_arrays(file)
    assert file.stat().st_size <= 300 * 1024 and collected.about['missing'] == []
    svg = check_picture(paper_figures.draw_paper_figure(paper, figure, 'photos'))
    assert f'Fig. {figure}' in svg and 'parts are done' not in svg and '>missing<' not in svg
    first = file.read_bytes()
    file.unlink()
    assert (
        paper_figures.collect_arrays(
            paper, figure, 'photos', queue.load_finished_runs()
        ).read_bytes()
        == first
    )


def test_a_suite_has_its_own_files(small):
    for suite, name in (('photos', 'fig7.svg'), ('paper', 'fig7_paper.svg')):
        paper_figures.sweep_figures('opml', 7, suite, tell=str)
        assert paper_figures.draw_paper_figure('opml', 7, suite).name == name


@pytest.mark.slow
def test_another_process_draws_the_same_bytes(small):
    both, ours = (('lac', 6), ('hml', 3)), []
    for paper, figure in both:
        paper_figures.sweep_figures(paper, figure, 'photos', tell=str)
        ours.append(paper_figures.draw_paper_figure(paper, figure, 'photos').read_bytes())
        paper_figures.find_arrays(paper, figure, 'photos').with_suffix('.svg').unlink()
    command = (
        'from spml_nb.replication.paper_figures import draw_paper_figure; '
        "[draw_paper_figure(*f, 'photos') for f in (('hml', 3), ('lac', 6))]"
    )
    subprocess.run(
        [sys.executable, '-c', command],
        check=True,
        env={**os.environ, 'PYTHONHASHSEED': '7', 'MPLBACKEND': 'agg'},
        cwd=settings.get_folder('outputs'),
    )
    assert [
        paper_figures.find_arrays(*f, 'photos').with_suffix('.svg').read_bytes() for f in both
    ] == ours


def test_the_users_style_changes_nothing():
    paper_figures.collect_arrays('two_way', 1, 'photos', NONE)
    plain = paper_figures.draw_paper_figure('two_way', 1, 'photos').read_bytes()
    with matplotlib.rc_context(
        {'lines.linewidth': 7, 'font.size': 20, 'svg.fonttype': 'path', 'axes.grid': True}
    ):
        assert paper_figures.draw_paper_figure('two_way', 1, 'photos').read_bytes() == plain


def test_nothing_to_draw_gives_the_command_that_fills_it():
    assert (
        paper_figures.collect_arrays('opml', 7, 'photos', NONE) is None
        and paper_figures.draw_paper_figure('opml', 7, 'photos') is None
        and paper_figures.draw_paper_png('opml', 7, 'photos') is None
    )
    assert not paper_figures.find_arrays('opml', 7, 'photos').exists()
    assert (
        paper_figures.figure_command('opml', 7, 'photos')
        == 'spml sweep opml --figure 7 --suite photos'
    )


def test_a_part_that_is_missing_is_left_out_and_the_title_says_so(small):
    paper_figures.sweep_figures('hml', 3, 'photos', tell=str)
    known = queue.load_finished_runs()
    margin = next(
        p
        for p in paper_figures.plan_figure_runs('hml', 3, 'photos', known)
        if p.values == (0.1,) and p.seed == 1
    )
    file = paper_figures.collect_arrays(
        'hml', 3, 'photos', known.drop(margin.key)
    )  # what the file has of it leads to no run
    collected = figure_drawing.read_figure_arrays(file)
    assert (
        collected.about['missing'] == [margin.name]
        and margin.name not in collected.arrays
        and len(collected.arrays) == 3
    )
    assert 'only 3 of 4 parts are done' in check_picture(
        paper_figures.draw_paper_figure('hml', 3, 'photos')
    )
    paper_figures.collect_arrays('hml', 3, 'photos', known)
    after = figure_drawing.read_figure_arrays(file)
    assert after.about['missing'] == [] and all(
        after.arrays[n]['imbalance'] == a['imbalance'] for n, a in collected.arrays.items()
    )


def test_arrays_outlive_checkpoints_but_not_the_choice_of_another_run_or_the_loss_of_theirs(
    small, monkeypatch
):
    paper_figures.sweep_figures('hml', 6, 'photos', tell=str)
    known, file = queue.load_finished_runs(), paper_figures.find_arrays('hml', 6, 'photos')
    whole = file.read_bytes()
    monkeypatch.setenv('SPML_NB_RUNS', str(settings.get_folder('outputs') / 'elsewhere'))
    assert (
        paper_figures.collect_arrays('hml', 6, 'photos', known).read_bytes() == whole
    )  # only the table of record is left
    own = paper_figures.FIGURES['hml']
    other = replace(own['6'].curves[0], points={(): {'hparams': {'scale': 30}}})
    monkeypatch.setitem(own, '6', replace(own['6'], curves=[other]))
    assert paper_figures.collect_arrays('hml', 6, 'photos', known) is None and not file.exists()
    file.write_bytes(whole)
    monkeypatch.setitem(own, '6', replace(own['6'], curves=[replace(other, points={(): {}})]))
    assert paper_figures.collect_arrays('hml', 6, 'photos', known).read_bytes() == whole
    assert (
        paper_figures.collect_arrays('hml', 6, 'photos', NONE) is None and not file.exists()
    )  # nothing leads to a run any more


def test_where_only_the_record_is_the_networks_a_figure_looks_at_are_trained_again(
    small, monkeypatch, tmp_path
):
    paper_figures.sweep_figures('hml', 6, 'photos', tell=str)
    paper_figures.sweep_figures('em_apl', 7, 'photos', tell=str)
    runs.export_csv()
    said, elsewhere = [], tmp_path / 'elsewhere'
    monkeypatch.setenv('SPML_NB_RUNS', str(elsewhere))
    assert (
        not len(paper_figures.sweep_figures('hml', 6, 'photos', tell=said.append))
        and not elsewhere.exists()
    )  # its arrays are there
    paper_figures.find_arrays('hml', 6, 'photos').unlink()
    paper_figures.sweep_figures('hml', 6, 'photos', tell=said.append)
    assert (
        paper_figures.find_arrays('hml', 6, 'photos').is_file()
        and len(list(elsewhere.glob('*/DONE'))) == 1
    )
    paper_figures.sweep_figures(
        'em_apl', 7, 'photos', tell=said.append
    )  # observed, and its arrays are there
    assert len(list(elsewhere.glob('*/DONE'))) == 1 and not (elsewhere / 'observed').exists()


def test_a_dry_run_trains_nothing_and_counts(small, monkeypatch, tmp_path):
    said = []
    paper_figures.sweep_figures('em_apl', 7, 'photos', tell=said.append)
    paper_figures.sweep_figures('em_apl', 7, 'photos', dry_run=True, tell=said.append)
    assert said[-2].startswith(
        '2 runs of search, of which 0 are missing; 4 runs with fresh seeds are chosen by now, of '
        'which 0 are missing'
    )
    assert said[-1].startswith('0 of these runs are then to be observed')
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'new'))
    paper_figures.sweep_figures('em_apl', 7, 'photos', dry_run=True, tell=said.append)
    assert not settings.get_folder('runs').exists() and said[-2].startswith(
        '2 runs of search, of which 2 are missing; 0 runs with fresh seeds'
    )


def test_an_interrupted_sweep_collects_nothing(small, monkeypatch):
    monkeypatch.setattr(
        queue, 'run', lambda configs, **launch: pd.DataFrame({'state': ['missing']})
    )
    monkeypatch.setattr(run_measurements, 'note_training', None)
    assert (
        list(paper_figures.sweep_figures('em_apl', 7, 'photos', tell=str).state) == ['missing']
        and not paper_figures.find_arrays('em_apl', 7, 'photos').exists()
    )


def test_every_figure_of_a_paper_is_drawn_or_named_with_the_reason():
    counts = {'hml': 6, 'opml': 7, 'lac': 6, 'two_way': 2, 'em_apl': 11}
    for paper, last in counts.items():
        named = [
            range(
                *(
                    int(end) + k
                    for k, end in enumerate((numbers + ' to ' + numbers).split(' to ')[:2])
                )
            )
            for numbers in paper_figures._read_texts(paper)['not_drawn']
        ]
        there = {int(n) for n in paper_figures.list_figures(paper) if n.isdigit()} | {
            n for some in named for n in some
        }
        assert there == set(range(1, last + 1)), paper
    assert paper_figures.explain_not_drawn('em_apl').startswith('Not redrawn: Figures 1 to 6 (')
    assert paper_figures.explain_not_drawn('lac') == (
        'Not redrawn: Figures 1 (consistency of images beside that of labels: a drawing without '
        'numbers), 2 (the two branches of training: a drawing without numbers).'
    )


def test_what_the_paper_says_stands_beside_a_figure_and_not_in_it_too():
    paper_figures.collect_arrays('two_way', 1, 'photos', NONE)
    svg = paper_figures.draw_paper_figure('two_way', 1, 'photos').read_text()
    about = paper_figures.describe_figure('two_way', 1)
    assert (
        about['printed'][:20] not in svg
        and 'Left: ' in about['caption']
        and 'Right: ' in about['caption']
    )


# ---- every number leads to a run of the record


def astray(outputs):
    """What has no line in the table of record, or another score there: (file, part)."""
    known, found = papers.read_recorded_runs(outputs / 'runs.csv'), []
    for file in sorted(outputs.glob('*/fig*.npz')):
        collected = figure_drawing.read_figure_arrays(file)
        for name, arrays in collected.arrays.items():
            run = known.reindex([collected.about['parts'][name]['key']]).iloc[0]
            score = np.float32(run.get('test_map', np.nan))
            # the record has six digits
            if not np.isclose(arrays.get('test_map', score), score, rtol=1e-5):
                found.append((file.relative_to(outputs).as_posix(), name))
    return found


def test_every_array_has_the_key_of_a_run_of_the_record(small):
    for paper, figure in (('hml', 3), ('opml', 6), ('em_apl', 7), ('em_apl', 10), ('two_way', 1)):
        paper_figures.sweep_figures(paper, figure, 'photos', tell=str)
    record = runs.export_csv()
    outputs = settings.get_folder('outputs')
    assert len(list(outputs.glob('*/fig*.npz'))) == 5 and astray(outputs) == []
    first = next(
        iter(
            figure_drawing.read_figure_arrays(paper_figures.find_arrays('opml', 6, 'photos'))
            .about['parts']
            .items()
        )
    )
    record[record.key != first[1]['key']].to_csv(
        outputs / 'runs.csv', index=False, lineterminator='\n'
    )
    assert ('opml/fig6.npz', first[0]) in astray(outputs)
    record.assign(test_map=record.test_map.where(record.key != first[1]['key'], '1.0')).to_csv(
        outputs / 'runs.csv', index=False, lineterminator='\n'
    )
    assert ('opml/fig6.npz', first[0]) in astray(outputs)


def test_every_recorded_array_leads_to_a_run_of_the_record():
    assert astray(OUTPUTS) == []
