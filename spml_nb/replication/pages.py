"""All files of `outputs/`, made from the table of record: tables, claims, figures and pages."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from ..base import files, settings
from ..base.escaping import escape_for_markdown
from ..runs.config import Config, resolve
from ..sweeps.search import SUITES, Row, candidates
from . import board, choice, claims, drawing, figures, gains, published, site, verdicts
from .published import SUITE
from .rendering import render
from .statistics import Verdict
from .tables import Table, cell_text, command, record, table


def _table_fields(table: Table) -> dict:
    """What the templates of a table name."""
    cells = table.of(SUITE)
    datasets = cells.stand_in.dropna().unique()
    return {
        'table': table,
        'paper': published.read(table.paper),
        'headline': site.headline(SUITE, datasets),
        'lines': _grid_lines(table),
        'datasets': list(datasets),
        'protocol': site.protocol(SUITE, datasets),
        'ranking': site.ranking(cells),
        'leaders': _leaders(cells),
        'unfinished': (cells.command != '').sum(),
        'fillable': table.progress(SUITE)['total'],
        'command': command(table.paper, table.number, SUITE),
        'lacking': [
            (site.lacking(same_reason), why)
            for why, same_reason in cells[cells.why != ''].groupby('why', sort=False)
        ],
        'statistic': published.STATISTIC,
        'photos': _photos(),
        'notes': table.notes(),
    }


def _grid_lines(table: Table) -> list[list[str]]:
    """The header and the rows of a table in Markdown."""
    header = ['']
    for column, photos in table.columns(SUITE).items():
        above = f'{escape_for_markdown(photos)} <br>' if photos else ''
        header.append(above + escape_for_markdown(column))
    lines = [header]
    for row, cells in table.rows(SUITE).items():
        escaped = [cell | {'printed': escape_for_markdown(cell['printed'])} for cell in cells]
        texts = [cell_text(cell, bold='**') for cell in escaped]
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
    return published.photos().reset_index().to_dict('records')


def markdown(table: Table) -> str:
    """A table as a page in Markdown."""
    return render('table.md', **_table_fields(table))


def section(paper: str, number: str, runs: pd.DataFrame) -> str:
    """A table with its notes, for a notebook.

    Args:
        paper: one of `published.papers()`.
        number: one of its tables.
        runs: as from `record`.

    Returns:
        Markdown.

    Raises:
        SpmlError: for another paper or table.
    """
    return render('table_section.md', **_table_fields(table(paper, number, runs)))


def claim_table(paper: str, runs: pd.DataFrame, made: list[Table] | None = None) -> pd.DataFrame:
    """The claims of a paper, checked on photos.

    Args:
        paper: one of `published.papers()`.
        runs: as from `record`.
        made: the paper's tables; unset: they are made here.

    Returns:
        One row per claim, as from `claims.report`, and command (what decides more of its places,
        '' if nothing does).

    Raises:
        SpmlError: for another paper.

    Source: the papers' texts.
    """
    if made is None:
        made = [table(paper, number, runs) for number in published.tables(paper)]
    cells = {(paper, each.number): each.of(SUITE) for each in made}
    value = claims.our_value(SUITE, runs, tables=cells)
    report = claims.report(SUITE, runs, paper, value)
    unfinished = {each.number for each in made if (each.of(SUITE).command != '').any()}
    commands = [
        _claim_command(claim, unfinished, runs) if missing else ''
        for claim, missing in zip(claims.claims(paper), report.missing, strict=True)
    ]
    return report.assign(command=commands)


def _claim_command(claim: claims.Claim, unfinished: set[str], runs: pd.DataFrame) -> str:
    """What runs a claim, '' if none of its tables or figures needs runs or arrays."""
    if claim.tables:
        return ' && '.join(
            command(claim.paper, number, SUITE) for number in claim.tables if number in unfinished
        )
    for number in re.findall(r'\d+', claim.where.partition('Fig')[2]):
        if number not in figures.figures(claim.paper):
            continue
        uncollected = (
            claim.figure == number and not figures.arrays_file(claim.paper, number, SUITE).is_file()
        )
        planned = figures.planned_runs(claim.paper, number, SUITE, runs)
        if uncollected or any(run.key not in runs.index for run in planned):
            return figures.command(claim.paper, number, SUITE)
    return ''


def claim_section(paper: str, runs: pd.DataFrame) -> str:
    """The claims of a paper, for a notebook.

    Args:
        paper: one of `published.papers()`.
        runs: as from `record`.

    Returns:
        Markdown.

    Raises:
        SpmlError: for another paper.
    """
    return render(
        'claims_section.md',
        claims=claim_table(paper, runs).to_dict('records'),
        protocol=site.protocol(SUITE),
        uncounted=published.UNCOUNTED,
    )


def claim_markdown(checked: pd.DataFrame) -> str:
    """The claims of all papers, as from `claim_table`, as a page in Markdown."""
    papers = [
        {
            'name': paper,
            'title': published.read(paper)['title'],
            'claims': of_paper.to_dict('records'),
        }
        for paper, of_paper in checked.groupby('paper', sort=False)
    ]
    return render(
        'claims.md',
        papers=papers,
        sizes=verdicts.count_sizes(checked[checked.ours == Verdict.UNDECIDED]),
        suite=SUITE,
        protocol=site.protocol(SUITE),
        uncounted=published.UNCOUNTED,
    )


@dataclass(frozen=True)
class Figure:
    """A figure of a paper, drawn from our runs.

    Args:
        paper: one of `published.papers()`.
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
    def address(self) -> str:
        """Of the SVG, from the pages in `outputs/`."""
        return f'{self.paper}/{self.file.name}'


def draw(paper: str, number: str) -> Figure:
    """Draw a figure where its arrays are at hand.

    Raises:
        SpmlError: as `figures.draw`.
    """
    text = figures.description(paper, number)
    remarks = []
    if 'printed' in text:
        remarks.append(f"The paper: {text['printed']}")
    if 'notes' in text:
        remarks.append(f"Here: {text['notes']}")
    arrays = figures.arrays_file(paper, number, SUITE)
    collected = drawing.read_collected(arrays).about if arrays.is_file() else {}
    missing = len(collected.get('missing', []))
    return Figure(
        paper,
        number,
        text['caption'],
        remarks,
        figures.draw(paper, number, SUITE),
        figures.command(paper, number, SUITE),
        missing,
        missing + len(collected.get('parts', [])),
    )


class Picture:
    """A figure for a notebook.

    Attributes:
        png: as from `figures.draw_png`, None where nothing is drawn yet.
        words: what it shows, where it is and how its runs were made, or what makes them, as
            Markdown.
    """

    def __init__(self, paper: str, number: str):
        self.png = figures.draw_png(paper, number, SUITE)
        self.words = render('figure.md', figure=draw(paper, number))

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
        gains: as from `gains.of_suites`.
    """

    tables: list[Table]
    claims: pd.DataFrame
    figures: list[Figure]
    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    gains: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=gains.COLUMNS))

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

    def verdicts(self) -> dict[str, int]:
        """How many claims have each verdict that any of them has."""
        return verdicts.count(self.claims)


def gather(
    runs: pd.DataFrame | None = None,
    tell: Callable[[str], None] = lambda line: None,
    measured: pd.DataFrame | None = None,
) -> Results:
    """Make all tables, figures and claims. Only figures are written.

    Args:
        runs: unset: as from `record`.
        tell: is given one line per paper.
        measured: as from `gains.of_suites`, unset: that.

    Raises:
        SpmlError: as `record` and `figures.draw`.
    """
    runs = record() if runs is None else runs
    tables, checked, drawn = [], [], []
    for paper in published.papers():
        of_paper = [table(paper, number, runs) for number in published.tables(paper)]
        pictures = [draw(paper, number) for number in figures.figures(paper)]
        checked.append(claim_table(paper, runs, of_paper))
        states = pd.concat([each.cells.state for each in of_paper]).value_counts()
        tell(
            f'{paper}: {states.get("done", 0)} cells done, {states.get("partly", 0)} partly, '
            f'{states.get("missing", 0)} missing; '
            f'{sum(figure.done for figure in pictures)} of {len(pictures)} figures'
        )
        tables += of_paper
        drawn += pictures
    measured = gains.of_suites(runs) if measured is None else measured
    return Results(tables, pd.concat(checked, ignore_index=True), drawn, runs, measured)


def write(
    runs: pd.DataFrame | None = None,
    tell: Callable[[str], None] = print,
    measured: pd.DataFrame | None = None,
) -> list[Path]:
    """Rebuild the setting `outputs` from the table of record and the arrays of the figures.

    Args:
        runs: unset: as from `record`.
        tell: is given one line per paper, and one at the end.
        measured: as in `gather`.

    Returns:
        The files that changed.

    Raises:
        SpmlError: for a damaged `runs.csv`, or a file that cannot be written.
    """
    results = gather(runs, tell, measured)
    folder = settings.path('outputs')
    texts = {folder / name: text for name, text in contents(results, folder).items()}
    for place in sorted({file.parent for file in texts}):
        files.remove_leftovers(place)
    changed = site.write_changed(texts)
    tell(f'{len(texts)} files, {len(changed)} of them changed; open {folder / "index.html"}')
    return changed


def contents(results: Results, folder: Path) -> dict[str, str]:
    """The text of every file but the figures.

    Args:
        results: as from `gather`.
        folder: where the files will lie.

    Returns:
        {name: text}.
    """
    boards = [file.stem for file in sorted((folder / 'methods').glob('*.md'))]
    printed = board.printed(results.tables)
    texts = {}
    for each in results.tables:
        cells = each.cells.drop(columns=['interval', 'runs', 'first'])
        texts[f'{each.paper}/table{each.number}.csv'] = _csv(cells.round(4))
        texts[f'{each.paper}/table{each.number}.md'] = markdown(each)
    for paper, checked in results.claims.groupby('paper'):
        texts[f'{paper}/claims.svg'] = drawing.forest(checked).decode()
    texts['claims.csv'] = _csv(results.claims)
    texts['claims.md'] = claim_markdown(results.claims)
    texts['README.md'] = _readme(results, printed, boards)
    texts['index.html'] = site.page(results, printed, boards)
    return texts


def _csv(table: pd.DataFrame) -> str:
    return table.to_csv(index=False, lineterminator='\n')


def _readme(results: Results, printed: list[dict], boards: list[str]) -> str:
    """`outputs/README.md`."""
    papers = [
        published.read(paper)
        | {'results': results.of(paper), 'not_drawn': figures.not_drawn(paper)}
        for paper in published.papers()
    ]
    return render(
        'outputs_readme.md',
        suite=SUITE,
        headline=site.headline(SUITE, SUITES[SUITE]['datasets']),
        photos=_photos(),
        **_search_protocol(),
        uncounted=published.UNCOUNTED,
        verdicts=verdicts.markdown(results.claims),
        whole_network=verdicts.whole_network(
            verdicts.end_to_end(results.gains, results.runs, printed)
        ),
        choice=choice.markdown(choice.outcome(choice.planned(results.runs))),
        papers=papers,
        boards=boards,
    )


def _search_protocol() -> dict:
    """How long, at which sizes and at which rates every method is searched."""
    heads = _tried(Row('an'))
    networks = _tried(Row('an'), 'photos_finetune')
    longer = [
        (Row(*row), dataset) for dataset, rows in SUITES['photos']['longer'].items() for row in rows
    ]
    return {
        'head': heads[0],
        'labelwise': _tried(Row('an', 'labelwise'))[0],
        'network': networks[0],
        'scheduled': SUITES['photos']['scheduled'],
        'longer': len(longer),
        'longest': max(_tried(row, 'photos', dataset)[0].epochs for row, dataset in longer),
        'head_rates': _range_of_rates(heads),
        'network_rates': _range_of_rates(networks),
    }


def _tried(row: Row, suite: str = 'photos', dataset: str = 'voc12_animals') -> list[Config]:
    return [resolve(config) for config in candidates(row, suite, dataset)]


def _range_of_rates(tried: list[Config]) -> dict[str, str | int]:
    rates = [config.lr for config in tried]
    return {'count': len(rates), 'lowest': f'{min(rates):.1e}', 'highest': f'{max(rates):.1e}'}
