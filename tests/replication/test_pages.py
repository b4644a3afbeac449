"The pages in outputs/: made from the table of record alone, the same every time, never half."

import csv
import dataclasses
import json
import multiprocessing
import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from spml_nb import cli, runs, statistics, sweeps
from spml_nb.base import files, settings
from spml_nb.base.errors import SpmlError
from spml_nb.replication import (
    agreement,
    claims,
    figure_drawing,
    front_page,
    index_page,
    pages,
    paper_figures,
    published,
    tables,
    templates,
)

ROOT = Path(__file__).parents[2]

HEADER = ['run', 'key', 'loss', 'dataset', 'seed', 'val_map', 'test_map', 'seconds']


def lines_for(paper, table, suite, score, seeds=None):
    """Fabricated runs of every cell of a table. score: function of (row, column, seed); seeds:
    unset: all of the suite.
    """
    found = {}
    for cell in published.table_cells(paper, table).to_dict('records'):
        plan = tables.plan_cell(cell, suite)
        tried = pd.DataFrame(
            [{'key': sweeps.run_key(c), 'val_map': 50.0} for c in plan.search]
        ).set_index('key')
        for config in [*plan.search, *tables.cell_final_runs(plan, tried, seeds)]:
            key = sweeps.run_key(config)
            found[key] = [
                f'{config.loss}-{len(found)}',
                key,
                config.loss,
                config.dataset,
                config.seed,
                50.0,
                score(cell['row'], cell['column'], config.seed),
                1.5,
            ]
    return list(found.values())


@pytest.fixture(scope='module')
def made():
    """Runs of HML's Table 2 on photos (AN lowest, the others in the paper's reverse order) and of
    its Table 5, one seed.
    """
    order = ['AN', 'HML (Ours)', 'ROLE', 'EPR', 'WAN', 'LS']
    main = lines_for(
        'hml', '2', 'photos', lambda row, column, seed: 60.0 + 2 * order.index(row) + seed
    )
    return main + lines_for('hml', '5', 'photos', lambda row, column, seed: 70.0, seeds=(0,))


def put_record(folder, lines):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / 'runs.csv', 'w', newline='') as file:
        csv.writer(file, lineterminator='\n').writerows([HEADER, *lines])


def quiet(line):
    pass


def only_hml(monkeypatch):
    "One paper is enough for most tests, and quick."
    monkeypatch.setattr(published, 'list_papers', lambda: ['hml'])


@pytest.fixture
def outputs(made, monkeypatch):
    "A folder with the table of record, and one paper to build."
    only_hml(monkeypatch)
    put_record(settings.get_folder('outputs'), made)
    return settings.get_folder('outputs')


@pytest.fixture(scope='module')
def shared(made, tmp_path_factory):
    "A build of one paper, made once; tests only read it."
    folder = tmp_path_factory.mktemp('built')
    put_record(folder, made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('SPML_NB_OUTPUTS', str(folder))
        only_hml(patch)
        assert pages.write_pages(tell=quiet)
    return folder


def bytes_of(folder):
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob('*'))
        if file.is_file()
    }


@pytest.mark.slow
def test_without_a_run_every_table_is_written_and_all_is_missing():
    told, folder = [], settings.get_folder('outputs')
    pages.write_pages(tell=told.append)
    for paper in published.list_papers():
        for number in published.table_numbers(paper):
            table = pd.read_csv(folder / paper / f'table{number}.csv')
            assert len(table) == table.suite.nunique() * len(published.table_cells(paper, number))
            assert (
                set(table.state) <= {'missing', 'none'}
                and (table.command.notna() == (table.state == 'missing')).all()
            )
            assert (folder / paper / f'table{number}.md').read_text().startswith('# ')
    assert (
        told[0].startswith('hml: 0 cells done')
        and (folder / 'index.html').stat().st_size < 3_000_000
    )


def test_a_table_holds_what_the_runs_say(shared):
    table = pd.read_csv(shared / 'hml' / 'table2.csv').set_index(['suite', 'row', 'column'])
    wan = table.loc[('photos', 'WAN', 'COCO')]
    assert (wan.ours, wan.sd, wan.n, wan.state, wan.stand_in, wan.published) == (
        72.5,
        3.0277,
        10,
        'done',
        'coco18',
        64.8,
    )
    assert (wan.gain, round(wan.gain_published, 4)) == (8.0, 0.7) and json.loads(wan.seeds) == {
        str(seed): 68.0 + seed for seed in range(10)
    }
    text = (shared / 'hml' / 'table2.md').read_text()
    assert '| +0.7 / **+8.0 ± 1.3** ▮▮▮▮▮▮▮▮ |' in text and '| 64.8 / **72.5 ± 2.2** |' in text
    assert 'VOC12: HML (Ours) → LS' in text
    part = table.loc['photos'].reset_index()
    part = part[part.uncounted.isna()]
    wide = [
        part.pivot(index='row', columns='column', values=which).to_numpy()
        for which in ('published', 'ours')
    ]
    rho = f'{statistics.rank_correlation(*wide, repeats=10)[0]:+.2f}'.replace('-', '−')
    assert (
        f'all columns together: {rho}; 5 are too few for an interval' in text
        and 'Data: voc12_animals, coco18' in text
        and 'search budget' in text
    )


def test_what_is_missing_shows_the_command_that_fills_it(shared):
    missing, done = (
        pd.read_csv(shared / 'hml' / f'table{number}.csv').set_index(['suite', 'row', 'column'])
        for number in (3, 2)
    )
    command = 'spml sweep hml --table 3 --suite photos'
    assert set(missing.state) == {'missing'} and set(missing.command) == {command}
    assert set(done.state) == {'done'} and done.command.isna().all()
    for page in (shared / 'hml' / 'table3.md', shared / 'index.html'):
        assert command in page.read_text()
    partly = (
        pd.read_csv(shared / 'hml' / 'table5.csv')
        .set_index(['suite', 'row'])
        .loc[('photos', 'Only Positives')]
    )
    assert (partly.state, partly.n, partly.command) == (
        'partly',
        1,
        'spml sweep hml --table 5 --suite photos',
    )


@pytest.mark.parametrize(
    'words',
    [
        ['sweep', 'hml', '--table', '2', '--suite', 'photos', '--dry-run'],
        ['sweep', 'opml', '--table', 'IV', '--dry-run'],
    ],
)
def test_the_commands_are_ones_that_the_command_line_knows(words, capsys):
    assert tables.table_command(words[1], words[3], 'photos').split()[1:5] == words[:4]
    assert cli.main(words) == 0 and 'runs of search' in capsys.readouterr().out


def test_claims_have_two_words_with_effect_interval_and_seeds(shared):
    claims = pd.read_csv(shared / 'claims.csv', keep_default_na=False).set_index('id')
    single = claims.loc['hml-single']
    assert (single.ours, single.sign, single['size']) == (*['not reproduced'] * 2, 'mixed sources')
    assert (single.decided, single.places, single.reproduced, single.seeds) == (4, 4, 0, 10)
    assert float(single.effect) == float(single.amount) == -8
    assert single.measured.startswith('voc12_animals for VOC12: not reproduced, −8.00 ± ')
    assert ' (against LS); coco18' in single.measured and 'power 80 %' in single.summary
    assert single.summary.startswith('not reproduced on the mean of 4 of 4 places; 4 decide alone')
    one = claims.loc['hml-both-margins']
    assert (one.ours, one.seeds, one.measured) == (
        'undecided',
        1,
        'voc12_animals, mAP: undecided, +0.00, 1 seed (against No Margin)',
    )
    full = claims.loc['hml-full']
    assert (full.ours, full.command) == ('not run', 'spml sweep hml --table 4 --suite photos')


def row_of(page, claim):
    return next(line for line in page.splitlines() if claim in line)


def test_the_page_of_claims_has_a_row_a_claim_and_no_note(shared):
    claims = pd.read_csv(shared / 'claims.csv', keep_default_na=False).set_index('id')
    text = (shared / 'claims.md').read_text()
    cells = [line.split(' | ') for line in text.splitlines() if line.startswith('| ')]
    header, line, *rows = cells
    assert len(rows) == len(claims) and {len(row) for row in cells} == {6}
    assert [row[2] for row in rows] == list(claims.sign)
    single = row_of(text, claims.claim['hml-single'])
    half = claims.half_width['hml-single']
    for words in ('mixed sources', f'−8.00 ± {float(half):.2f} (against LS)', '+2.80†'):
        assert words in single
    assert f'`{claims.command["hml-full"]}`' in row_of(text, claims.claim['hml-full'])
    measured = claims.loc['hml-correlation']
    assert measured.command == 'spml sweep hml --figure E8 --suite photos'
    notes = [note for note in claims.note if note]
    assert notes and not any(note in text for note in notes)


def test_the_browsers_page_has_the_words_of_a_claim(shared):
    claims = pd.read_csv(shared / 'claims.csv', keep_default_na=False).set_index('id')
    page = (shared / 'index.html').read_text()
    row = page.partition(f'<td data-v="{claims.claim["hml-single"]}">')[2].partition('</tr>')[0]
    assert '<span class="badge not-reproduced">not reproduced</span>' in row
    assert 'data-v="mixed sources"' in row and 'data-v="-8.0"' in row and '+2.80†' in row
    row = page.partition(f'<td data-v="{claims.claim["hml-full"]}">')[2].partition('</tr>')[0]
    assert f'<code>{claims.command["hml-full"]}</code>' in row


def test_verdicts_and_the_forest_plot_stand_where_they_are_looked_for(shared):
    text, page = (shared / 'README.md').read_text(), (shared / 'index.html').read_text()
    assert '## Verdicts' in text and '**Not reproduced**, mixed sources: −8.00 ± ' in text
    svg = (shared / 'hml' / 'claims.svg').read_text()
    assert '(hml/claims.svg)' in (shared / 'claims.md').read_text()
    assert '<img src="hml/claims.svg" alt="Claims ' in page
    assert (
        'voc12_animals for VOC12 (against LS)' in svg and '−8.0 ± ' in svg and 'paper +2.2' in svg
    )


def test_the_conditions_stand_with_every_table_and_claim_and_on_top_of_a_page(shared):
    text, claimed = (shared / 'hml' / 'table2.md').read_text(), (shared / 'claims.md').read_text()
    page = (shared / 'index.html').read_text()
    for line in ('chosen on fully labelled validation images', 'search budget of every method'):
        assert line in text and line in claimed and line in page
    assert page.index(
        templates.page_headline('photos', ['coco18']).rpartition(':')[2]
    ) < page.index('<main')
    assert 'Data: ccp' in templates.describe_protocol('photos', ['ccp'])
    assert '1 seed' in templates.describe_protocol('photos', (), 1)


def test_a_readme_and_a_page_stay_short():
    text = (ROOT / 'outputs' / 'README.md').read_text()
    page = (ROOT / 'outputs' / 'index.html').read_bytes()
    words = [word for word in text.split() if re.search(r'\w', word)]  # no bars of tables
    assert len(words) <= 2500 and len(page) < 1_100_000


def test_the_page_for_a_forge_links_to_files_that_exist(shared):
    text = (shared / 'README.md').read_text()
    links = {part.split(')')[0].partition('#')[0] for part in text.split('](')[1:]}
    assert {'hml/table2.md', 'claims.csv', 'index.html', 'claims.md'} <= links
    of_the_project = {link for link in links if link.startswith('../')}  # outputs/ lies in its root
    assert of_the_project and all((ROOT / 'outputs' / link).is_file() for link in of_the_project)
    assert all((shared / link).exists() for link in links - of_the_project), links
    assert '{{' not in text and '| 32 of 64 |' in text


def test_other_paths_other_runs_at_hand_and_a_second_build_change_no_byte(
    shared, outputs, monkeypatch
):
    "A fresh clone has no folder of runs and lies somewhere else."
    monkeypatch.setattr(runs, 'load', lambda *words: pytest.fail('the folder of runs was read'))
    shutil.copytree(shared, outputs, dirs_exist_ok=True)
    assert pages.write_pages(tell=quiet) == [] and bytes_of(outputs) == bytes_of(shared)


def dying_build(pipe):
    "Writes slowly, each file by halves, and says which it is at."
    write = files.write_atomically

    def halves(file, text):
        def content(temporary):
            temporary.write_text(text[: len(text) // 2])
            pipe.send(file.name)
            pipe.recv()  # it goes on when it is told to
            temporary.write_text(text)

        write(file, content)

    files.write_atomically = halves
    pages.write_pages(tell=quiet)


@pytest.mark.skipif(
    'fork' not in multiprocessing.get_all_start_methods(),
    reason='needs a system that forks processes',
)
def test_a_build_that_dies_leaves_old_files_or_new_ones(shared, outputs, made):
    shutil.copytree(shared, outputs, dirs_exist_ok=True)
    old = bytes_of(outputs)
    put_record(outputs, made[:20])
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context('fork').Process(target=dying_build, args=(there,))
    process.start()
    begun = []
    while len(begun) < 3:  # two are written, the third is half
        if begun:
            here.send('go on')
        assert here.poll(300)
        begun.append(here.recv())
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    now = bytes_of(outputs)
    pages.write_pages(tell=quiet)
    new = bytes_of(outputs)
    names = [name for name in old if new[name] != old[name] and name != 'runs.csv']
    assert len(names) > len(begun) and all(now[name] in (old[name], new[name]) for name in names)
    assert any(now[name] == new[name] for name in names) and any(
        now[name] == old[name] for name in names
    )  # it was stopped on the way


def test_claims_are_those_of_the_report(shared):
    known = tables.read_recorded_runs(shared / 'runs.csv')
    expected = claims.report_claims('photos', known, 'hml')
    at_hand = [tables.table('hml', number, known) for number in published.table_numbers('hml')]
    alone, together = (pages.claim_table('hml', known, whole) for whole in (None, at_hand))
    pd.testing.assert_frame_equal(alone, together)
    pd.testing.assert_frame_equal(alone[list(expected)], expected)


@pytest.mark.parametrize(
    ('harm', 'line', 'message'),
    [
        (
            lambda lines: [*lines[:3], lines[3].rsplit(',', 2)[0], *lines[4:]],
            4,
            '6 fields instead of 8',
        ),
        (
            lambda lines: [*lines[:5], lines[5].replace('50.0', '5O.0'), *lines[6:]],
            6,
            "val_map is '5O.0', which is no number",
        ),
        (lambda lines: [*lines[:2], '<<<<<<< HEAD', *lines[2:]], 3, '1 fields instead of 8'),
        (
            lambda lines: [lines[0].replace('test_map', 'test'), *lines[1:]],
            1,
            'the header has no column test_map',
        ),
        (
            lambda lines: [*lines[:2], lines[2].replace('50.0', 'inf'), *lines[3:]],
            3,
            "val_map is 'inf'",
        ),
        (
            lambda lines: [*lines[:3], lines[2].replace('50.0', '50.1'), *lines[3:]],
            4,
            'has two lines that differ',
        ),  # two branches merged
        (lambda lines: [*lines[:2], '"' + lines[2], *lines[3:]], None, 'runs.csv, line'),
    ],
)
def test_a_damaged_table_of_record_is_refused_by_file_and_line(outputs, harm, line, message):
    file = outputs / 'runs.csv'
    file.write_text('\n'.join(harm(file.read_text().split('\n'))))
    with pytest.raises(SpmlError) as caught:
        pages.write_pages(tell=quiet)
    told = str(caught.value)
    assert str(file) in told and message in told and '\n' not in told
    if line:
        assert f'line {line}:' in told
    assert [f.name for f in outputs.iterdir()] == ['runs.csv']  # nothing was written


def test_a_cut_off_or_unreadable_table_of_record_is_refused(outputs):
    file = outputs / 'runs.csv'
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    with pytest.raises(SpmlError, match='the end of the file is cut off'):
        tables.read_recorded_runs()
    file.write_bytes(whole + b'\xff\xfe')
    with pytest.raises(SpmlError, match='cannot be read'):
        tables.read_recorded_runs()
    file.write_bytes(b'')
    with pytest.raises(SpmlError, match='the header has no column'):
        tables.read_recorded_runs()


def test_the_table_of_record_is_what_sweeps_find(outputs):
    known = tables.read_recorded_runs().drop(columns='validation')
    pd.testing.assert_frame_equal(known, sweeps.load_finished_runs())


def test_a_figure_is_shown_linked_and_asked_for(outputs, monkeypatch):
    def draw(paper, number, suite):
        if (paper, number, suite) != ('hml', '3', 'photos'):
            return None
        files.write_atomically(
            outputs / 'hml' / 'fig3.svg',
            '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>',
        )
        return outputs / 'hml' / 'fig3.svg'

    monkeypatch.setattr(paper_figures, 'draw_paper_figure', draw, raising=False)
    pages.write_pages(tell=quiet)
    assert (
        '[3](hml/fig3.svg)' in (outputs / 'README.md').read_text()
        and '`spml sweep hml --figure 4 --suite photos`' in (outputs / 'README.md').read_text()
    )
    page = (outputs / 'index.html').read_text()
    assert (
        '<img src="hml/fig3.svg" alt="Figure 3: ' in page
        and '<a href="hml/fig3.svg">fig3.svg</a>' in page
        and 'spml sweep hml --figure 4 --suite photos' in page
    )
    monkeypatch.setattr(paper_figures, 'draw_paper_png', lambda *figure: b'PNG')
    drawn, missing = pages.Picture('hml', '3'), pages.Picture('hml', '4')
    assert drawn.png == b'PNG' and 'hml/fig3.svg' in drawn.words
    assert '--figure 4' in missing.words


def test_a_figure_counts_when_no_part_is_missing(outputs, monkeypatch):
    file, folder = paper_figures.find_arrays('hml', '3', 'photos'), outputs / 'hml'

    def draw(paper, number, suite):
        if (paper, number, suite) != ('hml', '3', 'photos'):
            return None
        files.write_atomically(
            folder / 'fig3.svg', '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
        )
        return folder / 'fig3.svg'

    monkeypatch.setattr(paper_figures, 'draw_paper_figure', draw)
    folder.mkdir(parents=True)
    parts = {
        f'part {k}': {'dataset': '', 'series': '', 'values': [k], 'key': str(k)} for k in range(7)
    }
    for there, done, link in (
        (1, 0, '[3](hml/fig3.svg) (1 of 7 parts)'),
        (7, 1, '[3](hml/fig3.svg) 4: '),
    ):
        named = list(parts)[:there]
        about = {
            'version': 1,
            'parts': {name: parts[name] for name in named},
            'missing': [name for name in parts if name not in named],
        }
        figure_drawing.write_figure_arrays(
            file,
            figure_drawing.FigureArrays(
                about, {name: {'test_map': np.float32(50)} for name in named}
            ),
        )
        told = []
        pages.write_pages(tell=told.append)
        text, page = (outputs / 'README.md').read_text(), (outputs / 'index.html').read_text()
        assert (
            link in text
            and told[0].endswith(f'{done} of 6 figures')
            and f'| {done} of 6 |' in text
            and f'{done} of 6 figures done' in page
        )
        assert ('1 of 7 parts. The rest: ' in page) == (there == 1)


def test_cells_that_were_not_exercised_are_named_on_both_pages():
    idle = pd.DataFrame([{'row': 'EM+APL', 'column': 'VOC', 'state': 'not exercised'}])
    assert (
        tables.describe_lacking(idle) == 'Not exercised, EM+APL on VOC'
        and tables.describe_lacking(idle.assign(state='done')) == 'Exercised in part, EM+APL on VOC'
        and tables.describe_lacking(idle.assign(state='none')) == 'No run of ours'
    )
    for page in ('em_apl/table1.md', 'index.html'):
        assert (
            'Not exercised, EM+APL on VOC: in 10 of 10 runs'
            in (ROOT / 'outputs' / page).read_text()
        )


def test_a_table_whose_runs_lack_the_measure_says_so_and_gives_no_command():
    made = lines_for('hml', '5', 'photos', lambda row, column, seed: np.nan)
    known = pd.DataFrame(made, columns=HEADER).set_index('key')
    text = pages.format_table_page(tables.table('hml', '5', known))
    assert (
        'this fills them' not in text
        and 'Not measured: 10 of 10 finished runs were recorded without test' in text
    )
    text = pages.format_table_page(tables.table('hml', '5', known.assign(diverged=1)))
    assert 'Not measured: 10 of 10 final runs diverged.' in text and 'spml sweep' not in text


def test_a_claim_shows_the_command_of_a_figure_only_while_the_figure_lacks_something(monkeypatch):
    by_runs, by_curves = (
        next(claim for claim in claims.read_claims() if claim.id == id)
        for id in ('hml-margin-peak', 'opml-stable')
    )
    key = dataclasses.replace(
        paper_figures.plan_figure_runs('hml', '3', 'photos', pd.DataFrame())[0],
        config=sweeps.search_configs(sweeps.Row('an'), 'photos', 'coco18')[0],
    )
    monkeypatch.setattr(
        paper_figures, 'plan_figure_runs', lambda paper, figure, suite, known: [key]
    )
    done = pd.DataFrame(index=[key.key])

    def command(claim, known):
        return pages._claim_command(claim, set(), known)

    assert (
        command(by_runs, done.iloc[:0]) == 'spml sweep hml --figure 3 --suite photos'
        and command(by_runs, done) == ''
    )
    assert (
        command(by_curves, done) == 'spml sweep opml --figure 4 --suite photos'
    )  # its arrays are not collected
    file = paper_figures.find_arrays('opml', '4', 'photos')
    file.parent.mkdir(parents=True)
    file.touch()
    assert command(by_curves, done) == ''


def test_what_was_not_exercised_or_is_shown_twice_has_no_rank():
    def line(row, published, ours, **more):
        return {
            'row': row,
            'column': 'VOC',
            'metric': 'mAP',
            'dataset': 'VOC',
            'state': 'done',
            'labels': 'single',
            'published': published,
            'ours': ours,
            'runs': f'{{"0": "{row}"}}',
            'uncounted': '',
        } | more

    fair = [
        line(row, 60.0 + k, 60.0 + k) for k, row in enumerate(('AN', 'LS', 'EM', 'ROLE', 'HML'))
    ]
    more = [
        line('APL', 50.0, 99.0, state='not exercised'),
        line('Ours', 10.0, 64.0, runs=fair[-1]['runs']),
    ]
    plain, both = pd.DataFrame(fair), pd.DataFrame(fair + more)
    assert (
        agreement.comparable_cells(both).row.tolist() == plain.row.tolist()
        and agreement.describe_ranking(both) == agreement.describe_ranking(plain)
        and ': +1.00; 5 are too few for an interval.' in agreement.describe_ranking(both)
    )
    assert agreement.describe_ranking(
        both.rename(columns={'runs': 'seeds'})
    ) == agreement.describe_ranking(plain)  # as in the csv file, which the tutorial reads
    highest = [{'column': 'VOC', 'theirs': 'HML', 'ours': 'HML', 'idle': ''}]
    assert pages._leaders(both) == pages._leaders(plain) == highest
    idle = pd.DataFrame([*fair, line('APL', 90.0, 60.0, state='not exercised')])
    (leader,) = pages._leaders(idle)
    assert (leader['theirs'], leader['idle']) == ('APL', ', not exercised here')
    borrowed = pd.DataFrame([*fair, line('Ours', 10.0, 99.0, uncounted='other set-up')])
    assert agreement.describe_ranking(borrowed) == agreement.describe_ranking(plain)
    assert ': +1.00, 95 % interval +1.00 to ' in agreement.describe_ranking(
        pd.DataFrame([line(f'loss {k}', 60.0 + k, 60.0 + k) for k in range(8)])
    )


def test_text_is_escaped_in_every_page(tmp_path, monkeypatch):
    only_hml(monkeypatch)
    hostile = '<script>alert("x")</script> | *a* `b`'
    whole = tables.table('hml', '5', pd.DataFrame())
    whole = replace(
        whole,
        cells=whole.cells.groupby('suite')
        .head(1)
        .assign(row=hostile, printed=hostile, why=hostile, column=hostile),
    )
    text = pages.format_table_page(whole)
    assert '<script' not in text and '&lt;script&gt;alert("x")&lt;/script&gt; \\| \\*a\\*' in text
    verdicts = pages.claim_table('hml', pd.DataFrame()).assign(
        claim=hostile, where=hostile, measured=hostile
    )
    figure = pages.Figure('hml', '3', hostile, [hostile], None, hostile)
    page = index_page.index_page(pages.Results([whole], verdicts, [figure]), [], [])
    assert page.count('<script') == 2 and page.count('&lt;script') > 10


def test_the_command_rebuilds_the_pages(outputs, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(pages, 'write_pages', lambda *shared, tell: tell('rebuilt'))
        patch.setattr(front_page, 'write_front', lambda *shared: [])
        assert cli.main(['tables']) == 0 and capsys.readouterr().out == 'rebuilt\n'
    (outputs / 'runs.csv').write_text('nonsense')
    assert cli.main(['tables']) == 2 and 'runs.csv, line 1' in capsys.readouterr().err


def test_the_protocol_on_the_page_is_that_of_the_suites(shared):
    photos, whole = (sweeps.SUITES[suite] for suite in ('photos', 'photos_finetune'))
    length = {
        head: runs.resolve(sweeps.search_configs(sweeps.Row('an', head), 'photos', 'coco18')[0])
        for head in ('linear', 'labelwise')
    }
    network = runs.resolve(
        sweeps.search_configs(sweeps.Row('an'), 'photos_finetune', 'cub_crops')[0]
    )
    longest = {
        runs.resolve(config).epochs
        for dataset, rows in photos['longer'].items()
        for row in rows
        for config in sweeps.search_configs(sweeps.Row(*row), 'photos', dataset)
    }
    fields = pages._search_protocol()
    assert (fields['head'].epochs, fields['labelwise'].epochs, fields['network'].epochs) == (
        length['linear'].epochs,
        length['labelwise'].epochs,
        network.epochs,
    )
    assert {fields['longest']} == longest
    assert fields['longer'] == sum(map(len, photos['longer'].values()))
    assert fields['head_rates'] == {'count': 10, 'lowest': '9.5e-05', 'highest': '9.5e-02'}
    text = ' '.join((shared / 'README.md').read_text().split())
    for name, spec in photos['scheduled'].items():
        assert f"{spec['epochs']} for `{name}`" in text
    head = length['linear']
    assert f'{head.image_size} pixels in batches of {head.batch_size}' in text
    assert f'({network.image_size} pixels, {network.epochs} epochs)' in text
    assert network.epochs >= whole['scheduled']['gr']['epochs']


def finished(plan, best):
    """The runs of a search, of which one has the highest validation mAP."""
    configs = plan.search
    keys = [sweeps.run_key(config) for config in configs]
    scores = [float(k == best) for k in range(len(configs))]
    return pd.DataFrame({'val_map': scores, 'validation': scores}, index=keys)


def plan_of(paper, number, row, column):
    return tables.plan_cell(
        published.index_cells(paper, number)[row, column], published.PHOTOS_SUITE
    )


def test_the_rate_and_the_constants_are_those_of_the_best_run_on_validation():
    plan = plan_of('hml', '2', 'LS', 'VOC12')
    table = pages._tabulate_chosen_settings('hml', '2', finished(plan, 3))
    config = plan.search[3]
    expected = f'{config.lr:.3g}; smoothing {config.hparams["smoothing"]:.3g}'
    assert table.to_dict() == {'voc12_animals': {'ls': expected}}


def test_a_first_draw_has_the_papers_constants():
    plan = plan_of('hml', '2', 'HML (Ours)', 'VOC12')
    text = pages._tabulate_chosen_settings('hml', '2', finished(plan, 0)).at['hml', 'voc12_animals']
    assert text.split('; ')[1:] == ['scale 20', 'margin 0.3', 'adaptive_lr 0.01']


def test_what_a_table_states_is_not_chosen():
    plan = plan_of('two_way', '1', 'T_P = 4', 'mAP@class / T_N = 1')
    table = pages._tabulate_chosen_settings('two_way', '1', finished(plan, 2))
    assert table.to_dict() == {'coco18': {'two_way, labels full': f'{plan.search[2].lr:.3g}'}}


def test_other_heads_and_batches_have_lines_of_their_own():
    searches = [
        plan_of('lac', '3', 'AN', 'VOC'),
        plan_of('two_way', '5', 'mAP@class', 'M = 16'),
    ]
    lac, two_way = (finished(plan, 1) for plan in searches)
    assert list(pages._tabulate_chosen_settings('lac', '3', lac).index) == ['an, head labelwise']
    assert list(pages._tabulate_chosen_settings('two_way', '5', two_way).index) == [
        'two_way, labels full, batches of 512'
    ]


def test_markdown_is_a_table_or_nothing():
    plan = plan_of('hml', '2', 'AN', 'VOC12')
    text = pages._format_chosen_settings('hml', '2', finished(plan, 1))
    assert f'| an | {plan.search[1].lr:.3g} |' in text
    assert pages._format_chosen_settings('hml', '2', pd.DataFrame()) == ''
    assert pages._format_chosen_settings('hml', '1', finished(plan, 1)) == ''
    with pytest.raises(SpmlError):
        pages._format_chosen_settings('hml', '9', pd.DataFrame())
