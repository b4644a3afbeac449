"""All files of `outputs/`, made from the table of record: tables, claims, figures and pages."""

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from ..base import files, settings
from ..base.escaping import escape_for_markdown
from ..runs.config import Config, resolve
from ..statistics import Verdict
from ..sweeps.search import SUITES, Row, candidates
from . import (
    board,
    claims,
    conclusions,
    figure_runs,
    figures,
    forest,
    gains,
    published,
    site,
    verdicts,
    without_clean,
)
from .agreement import agreement_fields, empty_agreement, gains_by_source, source_agreement
from .experiments import choice
from .front_cells import front_gains
from .leaders import Leaders, find_leaders, method_levels, method_micro_f1
from .published import SUITE
from .rendering import render_template
from .tables import (
    Table,
    cell_gain_text,
    cell_has_gain,
    cell_level_text,
    record,
    table,
    table_command,
)


def _table_fields(table: Table) -> dict:
    """What the templates of a table name."""
    cells = table.of(SUITE)
    datasets = cells.stand_in.dropna().unique()
    return {
        'table': table,
        'paper': published.read_paper(table.paper),
        'gains': _grid_lines(table, cell_gain_text)
        if cells.apply(cell_has_gain, axis=1).any()
        else [],
        'levels': _grid_lines(table, cell_level_text),
        'datasets': list(datasets),
        'protocol': site.describe_protocol(SUITE, datasets),
        'ranking': site.describe_ranking(cells),
        'leaders': _leaders(cells),
        'unfinished': (cells.command != '').sum(),
        'fillable': table.progress(SUITE)['total'],
        'command': table_command(table.paper, table.number, SUITE),
        'lacking': [
            (site.describe_lacking(same_reason), why)
            for why, same_reason in cells[cells.why != ''].groupby('why', sort=False)
        ],
        'statistic': published.STATISTIC,
        'photos': _photos(),
        'notes': table.notes(),
    }


def _grid_lines(table: Table, text: Callable[..., str]) -> list[list[str]]:
    """The header and the rows of a table in Markdown. text: of a cell."""
    header = ['']
    for column, photos in table.columns(SUITE).items():
        above = f'{escape_for_markdown(photos)} <br>' if photos else ''
        header.append(above + escape_for_markdown(column))
    lines = [header]
    for row, cells in table.rows(SUITE).items():
        escaped = [cell | {'printed': escape_for_markdown(cell['printed'])} for cell in cells]
        texts = [text(cell, bold='**') for cell in escaped]
        lines.append([escape_for_markdown(row), *texts])
    return lines


def _leaders(tidy: pd.DataFrame) -> list[dict]:
    """The highest row in the paper and here, of those that are comparable, for each column with
    both numbers in two or more; none where rows or columns mix measures or data sets.
    """
    both = site.comparable_cells(tidy).dropna(subset=['published', 'ours'])
    if both.groupby('column')[['metric', 'dataset']].nunique().max().max() > 1:
        return []
    return [
        {
            'column': column,
            'theirs': cells.loc[cells.published.idxmax(), 'row'],
            'ours': cells.loc[cells.ours.idxmax(), 'row'],
        }
        for column, cells in both.groupby('column', sort=False)
        if len(cells) > 1
    ]


def _photos() -> list[dict]:
    """Our sets of photos, counted as the papers count theirs."""
    return published.describe_photo_sets().reset_index().to_dict('records')


def format_table_page(table: Table) -> str:
    """A table as a page in Markdown."""
    return render_template('table.md', **_table_fields(table))


def table_section(paper: str, number: str, runs: pd.DataFrame) -> str:
    """A table with its notes, for a notebook.

    Args:
        paper: one of `published.list_papers()`.
        number: one of its tables.
        runs: as from `record`.

    Returns:
        Markdown.

    Raises:
        SpmlError: for another paper or table.
    """
    return render_template('table_section.md', **_table_fields(table(paper, number, runs)))


def claim_table(paper: str, runs: pd.DataFrame, made: list[Table] | None = None) -> pd.DataFrame:
    """The claims of a paper, checked on photos.

    Args:
        paper: one of `published.list_papers()`.
        runs: as from `record`.
        made: the paper's tables; unset: they are made here.

    Returns:
        One row per claim, as from `claims.report_claims`, and command (what decides more of its
        places,
        '' if nothing does).

    Raises:
        SpmlError: for another paper.

    Source: the papers' texts.
    """
    if made is None:
        made = [table(paper, number, runs) for number in published.table_numbers(paper)]
    cells = {(paper, each.number): each.of(SUITE) for each in made}
    value = claims.our_claim_value(SUITE, runs, tables=cells)
    report = claims.report_claims(SUITE, runs, paper, value)
    unfinished = {each.number for each in made if (each.of(SUITE).command != '').any()}
    commands = [
        _claim_command(claim, unfinished, runs) if missing else ''
        for claim, missing in zip(claims.read_claims(paper), report.missing, strict=True)
    ]
    return report.assign(command=commands)


def _claim_command(claim: claims.Claim, unfinished: set[str], runs: pd.DataFrame) -> str:
    """What runs a claim, '' if none of its tables or figures needs runs or arrays."""
    if claim.tables:
        return ' && '.join(
            table_command(claim.paper, number, SUITE)
            for number in claim.tables
            if number in unfinished
        )
    named = re.findall(r'\d+', claim.where.partition('Fig')[2])
    for number in filter(None, [claim.figure, *named]):
        if number not in figure_runs.list_figures(claim.paper):
            continue
        uncollected = (
            claim.figure == number
            and not figure_runs.find_arrays(claim.paper, number, SUITE).is_file()
        )
        planned = figure_runs.plan_figure_runs(claim.paper, number, SUITE, runs)
        if uncollected or any(run.key not in runs.index for run in planned):
            return figure_runs.figure_command(claim.paper, number, SUITE)
    return ''


def claim_section(paper: str, runs: pd.DataFrame) -> str:
    """The claims of a paper, for a notebook.

    Args:
        paper: one of `published.list_papers()`.
        runs: as from `record`.

    Returns:
        Markdown.

    Raises:
        SpmlError: for another paper.
    """
    return render_template(
        'claims_section.md',
        claims=claim_table(paper, runs).to_dict('records'),
        protocol=site.describe_protocol(SUITE),
        uncounted=published.UNCOUNTED,
    )


def _format_claims_page(checked: pd.DataFrame) -> str:
    """The claims of all papers, as from `claim_table`, as a page in Markdown."""
    papers = [
        {
            'name': paper,
            'title': published.read_paper(paper)['title'],
            'claims': of_paper.to_dict('records'),
        }
        for paper, of_paper in checked.groupby('paper', sort=False)
    ]
    return render_template(
        'claims.md',
        papers=papers,
        sizes=verdicts.count_sizes(checked[checked.ours == Verdict.UNDECIDED]),
        suite=SUITE,
        protocol=site.describe_protocol(SUITE),
        uncounted=published.UNCOUNTED,
    )


@dataclass(frozen=True)
class Figure:
    """A figure of a paper, drawn from our runs.

    Args:
        paper: one of `published.list_papers()`.
        number: as the paper counts.
        caption: what it shows.
        remarks: what the paper says of its numbers, and what was chosen here.
        file: the SVG, None while its arrays are not collected.
        command: what collects them.
        missing: how many of its parts have no run.
        parts: how many there are.
    """

    paper: str
    number: str
    caption: str
    remarks: list[str]
    file: Path | None
    command: str
    missing: int = 0
    parts: int = 0

    @property
    def done(self) -> bool:
        """Whether it is drawn with all its parts."""
        return self.file is not None and not self.missing

    @property
    def title(self) -> str:
        """The beginning of its caption."""
        return textwrap.shorten(self.caption, 90, placeholder=' …')

    @property
    def address(self) -> str:
        """Of the SVG, from the pages in `outputs/`."""
        return f'{self.paper}/{self.file.name}'


def _draw_collected_figure(paper: str, number: str) -> Figure:
    """Draw a figure where its arrays are at hand.

    Raises:
        SpmlError: as `figure_runs.draw_paper_figure`.
    """
    text = figure_runs.describe_figure(paper, number)
    remarks = []
    if 'printed' in text:
        remarks.append(f"The paper: {text['printed']}")
    if 'notes' in text:
        remarks.append(f"Here: {text['notes']}")
    arrays = figure_runs.find_arrays(paper, number, SUITE)
    collected = figures.read_figure_arrays(arrays).about if arrays.is_file() else {}
    missing = len(collected.get('missing', []))
    return Figure(
        paper,
        number,
        text['caption'],
        remarks,
        figure_runs.draw_paper_figure(paper, number, SUITE),
        figure_runs.figure_command(paper, number, SUITE),
        missing,
        missing + len(collected.get('parts', [])),
    )


class Picture:
    """A figure for a notebook.

    Attributes:
        png: as from `figure_runs.draw_paper_png`, None where nothing is drawn yet.
        words: what it shows, where it is and how its runs were made, or what makes them, as
            Markdown.
    """

    def __init__(self, paper: str, number: str):
        self.png = figure_runs.draw_paper_png(paper, number, SUITE)
        self.words = render_template('figure.md', figure=_draw_collected_figure(paper, number))

    def _ipython_display_(self):
        from IPython.display import Image, Markdown, display

        if self.png:
            display(Image(self.png))
        display(Markdown(self.words))


@dataclass
class Results:
    """All that the pages show.

    Args:
        tables: every table.
        claims: as from `claim_table`, of every paper.
        figures: every figure.
        runs: as from `record`.
        gains: as from `gains.gains_of_suites`.
        agreement: as from `agreement.source_agreement`.
    """

    tables: list[Table]
    claims: pd.DataFrame
    figures: list[Figure]
    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    gains: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=gains.COLUMNS))
    agreement: dict = field(default_factory=empty_agreement)

    def of(self, paper: str) -> 'Results':
        """The tables, claims and figures of one paper."""
        return Results(
            [table for table in self.tables if table.paper == paper],
            self.claims[self.claims.paper == paper],
            [figure for figure in self.figures if figure.paper == paper],
        )

    def progress(self) -> dict[str, int]:
        """How far it is.

        Returns:
            done, todo and total of the cells, as in `Table.progress`; figures, drawn (those with
            all their parts).
        """
        cells = pd.DataFrame([table.progress(SUITE) for table in self.tables]).sum().to_dict()
        drawn = sum(figure.done for figure in self.figures)
        return cells | {'figures': len(self.figures), 'drawn': drawn}

    def agreement_fields(self) -> dict:
        """What templates name of the agreement with the papers."""
        return agreement_fields(self.agreement)

    @property
    def leading(self) -> Leaders | None:
        """Which method gains most."""
        return find_leaders(method_levels(self.gains), method_micro_f1(self.gains))

    def verdicts(self) -> dict[str, int]:
        """How many claims have each verdict that any of them has."""
        return verdicts.count_verdicts(self.claims)


def _gather_results(
    runs: pd.DataFrame | None = None,
    tell: Callable[[str], None] = lambda line: None,
    measured: pd.DataFrame | None = None,
) -> Results:
    """Make all tables, figures and claims. Only figures are written.

    Args:
        runs: unset: as from `record`.
        tell: is given one line per paper.
        measured: as from `gains.gains_of_suites`, unset: that.

    Raises:
        SpmlError: as `record` and `figure_runs.draw_paper_figure`.
    """
    runs = record() if runs is None else runs
    tables, checked, drawn = [], [], []
    for paper in published.list_papers():
        of_paper = [table(paper, number, runs) for number in published.table_numbers(paper)]
        pictures = [
            _draw_collected_figure(paper, number) for number in figure_runs.list_figures(paper)
        ]
        checked.append(claim_table(paper, runs, of_paper))
        states = pd.concat([each.cells.state for each in of_paper]).value_counts()
        tell(
            f'{paper}: {states.get("done", 0)} cells done, {states.get("partly", 0)} partly, '
            f'{states.get("missing", 0)} missing; '
            f'{sum(figure.done for figure in pictures)} of {len(pictures)} figures'
        )
        tables += of_paper
        drawn += pictures
    measured = gains.gains_of_suites(runs) if measured is None else measured
    agreed = source_agreement(front_gains(runs), gains_by_source(runs), measured)
    claimed = pd.concat(checked, ignore_index=True)
    return Results(tables, claimed, drawn, runs, measured, agreed)


def write_pages(
    runs: pd.DataFrame | None = None,
    tell: Callable[[str], None] = print,
    measured: pd.DataFrame | None = None,
) -> list[Path]:
    """Rebuild the setting `outputs` from the table of record and the arrays of the figures.

    Args:
        runs: unset: as from `record`.
        tell: is given one line per paper, and one at the end.
        measured: as in `_gather_results`.

    Returns:
        The files that changed.

    Raises:
        SpmlError: for a damaged `runs.csv`, or a file that cannot be written.
    """
    results = _gather_results(runs, tell, measured)
    folder = settings.path('outputs')
    texts = {folder / name: text for name, text in _page_contents(results, folder).items()}
    for place in sorted({file.parent for file in texts}):
        files.remove_leftovers(place)
    changed = site.write_changed(texts)
    tell(f'{len(texts)} files, {len(changed)} of them changed; open {folder / "index.html"}')
    return changed


def _page_contents(results: Results, folder: Path) -> dict[str, str]:
    """The text of every file but the figures.

    Args:
        results: as from `_gather_results`.
        folder: where the files will lie.

    Returns:
        {name: text}.
    """
    boards = [file.stem for file in sorted((folder / 'methods').glob('*.md'))]
    printed = board.list_printed_rows(results.tables)
    texts = {}
    for each in results.tables:
        cells = each.cells.drop(columns=['interval', 'runs', 'first', 'own'])
        texts[f'{each.paper}/table{each.number}.csv'] = _csv(cells.round(4))
        texts[f'{each.paper}/table{each.number}.md'] = format_table_page(each)
    for paper, checked in results.claims.groupby('paper'):
        texts[f'{paper}/claims.svg'] = forest.draw_forest(checked).decode()
    texts |= conclusions.paper_pages(results.claims, results.runs)
    texts['claims.csv'] = _csv(results.claims)
    texts['claims.md'] = _format_claims_page(results.claims)
    texts['choice.md'] = _choice(results.runs)
    texts['whole_network.md'] = verdicts.format_whole_network(
        verdicts.gains_end_to_end(results.gains, results.runs, printed)
    )
    others = {name: what for name, what in _OTHER_PAGES.items() if (folder / name).is_file()}
    picture = (folder / 'front.svg').is_file()
    if page := without_clean.markdown():
        texts['without_clean.md'] = page
    texts['README.md'] = _readme(results, boards, others, picture)
    texts['index.html'] = site.index_page(
        results, printed, boards, picture, without_clean.of_record()
    )
    return texts


# made before these pages, by experiments of their own
_OTHER_PAGES = {
    'ablations.md': 'which part of a method does it, at equal settings',
    'budget.md': 'which methods need a search',
    'worth.md': 'how many photos with one label are worth one with all its labels',
    'gap.md': 'what closes the gap to all labels',
    'clean_photos.md': 'whether to train on the validation photos',
    'more_photos.md': 'whether gains fall with more photos',
    'second_backbone.md': 'whether gains hold on another backbone',
    'fine_tuning.md': 'methods and optimisers on the whole network',
    'observed_choice.md': 'what is lost when settings are chosen without clean labels',
    'thresholds.md': 'one threshold or one for each class',
    'ensembles.md': 'what averaging networks adds',
    'biased.md': 'what if the one label is not drawn evenly',
    'benchmarks.md': 'how fast it runs',
}


def _choice(runs: pd.DataFrame) -> str:
    changes = choice.format_rate_choice(choice.average_by_rate(choice.plan_rate_runs(runs)))
    return f'# The choice of the rate\n\n{changes}'


def _csv(table: pd.DataFrame) -> str:
    return table.to_csv(index=False, lineterminator='\n')


def _readme(results: Results, boards: list[str], others: dict[str, str], picture: bool) -> str:
    """`outputs/README.md`."""
    papers = [
        published.read_paper(paper) | {'name': paper, 'results': results.of(paper)}
        for paper in published.list_papers()
    ]
    return render_template(
        'outputs_readme.md',
        headline=site.page_headline(SUITE, SUITES[SUITE]['datasets']),
        pages=others,
        boards=boards,
        **_board(results.gains),
        picture=picture,
        **results.agreement_fields(),
        verdicts=verdicts.format_verdicts(results.claims),
        papers=papers,
        photos=_photos(),
        **_search_protocol(),
    )


def _board(measured: pd.DataFrame) -> dict:
    """What the board in Markdown names."""
    rows = board.list_board_rows(measured, {})
    groups = board.group_by_sets(rows)
    most = max(len(group['sets']) for group in groups)
    single = [group for group in groups if group['sets'] and not group['all_labels']]
    listed = [group for group in single if len(group['sets']) >= most - 1]
    unlisted = [group for group in single if len(group['sets']) < most - 1]
    return {
        'listed': listed,
        'unlisted': sum(len(group['rows']) for group in unlisted),
        'summary': board.summarize_board(measured),
        'leading': find_leaders(method_levels(measured), method_micro_f1(measured)),
        'without_clean': without_clean.of_record(),
        'names': {row['loss']: board.describe_method(row['loss']) for row in rows},
        'run_on': published.name_dataset,
    }


def _search_protocol() -> dict:
    """How long, at which sizes and at which rates every method is searched."""
    heads = _tried(Row('an'))
    longer = [
        (Row(*row), dataset) for dataset, rows in SUITES['photos']['longer'].items() for row in rows
    ]
    return {
        'head': heads[0],
        'labelwise': _tried(Row('an', 'labelwise'))[0],
        'network': _tried(Row('an'), 'photos_finetune')[0],
        'scheduled': SUITES['photos']['scheduled'],
        'longer': len(longer),
        'longest': max(_tried(row, 'photos', dataset)[0].epochs for row, dataset in longer),
        'head_rates': _range_of_rates(heads),
    }


def _tried(row: Row, suite: str = 'photos', dataset: str = 'voc12_animals') -> list[Config]:
    return [resolve(config) for config in candidates(row, suite, dataset)]


def _range_of_rates(tried: list[Config]) -> dict[str, str | int]:
    rates = [config.lr for config in tried]
    return {'count': len(rates), 'lowest': f'{min(rates):.1e}', 'highest': f'{max(rates):.1e}'}
