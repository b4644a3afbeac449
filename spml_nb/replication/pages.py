"""Writes the tables, claims, figures and pages in `outputs/` from the table of record."""

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from ..base import files, settings
from ..base.escaping import escape_for_markdown
from ..base.files import write_changed
from ..methods.core import find
from ..runs.config import Config, resolve
from ..statistics import Verdict
from ..sweeps.search import SUITES, Row, search_configs, search_space
from . import (
    board,
    claims,
    figure_drawing,
    gains,
    index_page,
    paper_conclusions,
    paper_figures,
    published,
    without_clean,
)
from .agreement import (
    agreement_fields,
    comparable_cells,
    describe_ranking,
    empty_agreement,
    gains_by_source,
    source_agreement,
)
from .board import Leaders, find_leaders, method_levels, method_micro_f1
from .experiments import budget, clean_photos, more_photos, second_backbone, whole_network
from .front_page import BY_PHOTOS, front_gains
from .published import PHOTOS_SUITE
from .tables import (
    Table,
    cell_gain_text,
    cell_has_gain,
    cell_level_text,
    describe_lacking,
    plan_cell,
    read_recorded_runs,
    table,
    table_command,
)
from .templates import describe_protocol, page_headline, render_template


def _table_fields(table: Table) -> dict:
    """The fields of the templates of a table."""
    cells = table.of(PHOTOS_SUITE)
    datasets = cells.stand_in.dropna().unique()
    return {
        'table': table,
        'paper': published.read_paper(table.paper),
        'gains': _grid_lines(table, cell_gain_text)
        if cells.apply(cell_has_gain, axis=1).any()
        else [],
        'levels': _grid_lines(table, cell_level_text),
        'datasets': list(datasets),
        'protocol': describe_protocol(PHOTOS_SUITE, datasets),
        'ranking': describe_ranking(cells),
        'leaders': _leaders(cells),
        'unfinished': (cells.command != '').sum(),
        'fillable': table.progress(PHOTOS_SUITE)['total'],
        'command': table_command(table.paper, table.number, PHOTOS_SUITE),
        'lacking': [
            (describe_lacking(of_reason), why)
            for why, of_reason in cells[cells.why != ''].groupby('why', sort=False)
        ],
        'statistic': published.STATISTIC,
        'photos': _photo_sets(),
        'notes': table.notes(),
    }


def _grid_lines(table: Table, text: Callable[..., str]) -> list[list[str]]:
    """The header and the rows of a table in Markdown; `text` formats a cell."""
    header = ['']
    for column, photos in table.columns(PHOTOS_SUITE).items():
        prefix = f'{escape_for_markdown(photos)} <br>' if photos else ''
        header.append(prefix + escape_for_markdown(column))
    lines = [header]
    for row, cells in table.rows(PHOTOS_SUITE).items():
        escaped = [cell | {'printed': escape_for_markdown(cell['printed'])} for cell in cells]
        texts = [text(cell, bold='**') for cell in escaped]
        lines.append([escape_for_markdown(row), *texts])
    return lines


def _leaders(cells: pd.DataFrame) -> list[dict]:
    """The best row of the paper and of ours in each column, among rows that learn from the same
    labels; empty if a column mixes measures or data sets.

    The paper's may be one whose mechanism did not act here, and says so then.
    """
    compared = comparable_cells(cells).dropna(subset=['published', 'ours'])
    if compared.groupby('column')[['metric', 'dataset']].nunique().max().max() > 1:
        return []
    leaders = []
    for column, in_column in compared.groupby('column', sort=False):
        if len(in_column) < 2:
            continue
        same_labels = cells.labels == in_column.labels.iloc[0]
        printed = cells[(cells.column == column) & same_labels & cells.published.notna()]
        theirs = printed.loc[printed.published.idxmax()]
        idle = ', not exercised here' if theirs.state == 'not exercised' else ''
        ours = in_column.loc[in_column.ours.idxmax(), 'row']
        leaders.append({'column': column, 'theirs': theirs.row, 'ours': ours, 'idle': idle})
    return leaders


def _photo_sets() -> list[dict]:
    return published.describe_photo_sets().reset_index().to_dict('records')


def format_table_page(table: Table) -> str:
    """The page of a table, in Markdown."""
    return render_template('table.md', **_table_fields(table))


def table_section(paper: str, number: str, runs: pd.DataFrame) -> str:
    """A table with its notes and the settings that its searches chose, in Markdown for a notebook.

    Args:
        paper: One of `published.list_papers()`.
        number: One of its tables.
        runs: The table of record.

    Raises:
        SpmlError: For an unknown paper or table.
    """
    section = render_template('table_section.md', **_table_fields(table(paper, number, runs)))
    return section + _format_chosen_settings(paper, number, runs)


def _format_chosen_settings(paper: str, number: str, runs: pd.DataFrame) -> str:
    """The chosen settings as a table that opens on a click, in Markdown; '' if there are none."""
    chosen = _tabulate_chosen_settings(paper, number, runs)
    if chosen.empty:
        return ''
    header = ['learning rate; constants', *map(published.name_dataset, chosen.columns)]
    rows = [
        [search, *row] for search, row in zip(chosen.index, chosen.fillna('–').values, strict=True)
    ]
    return (
        '\n<details><summary>Chosen learning rates and constants</summary>\n\n'
        f'{files.markdown_table([header, *rows])}\n</details>\n'
    )


def _tabulate_chosen_settings(paper: str, number: str, runs: pd.DataFrame) -> pd.DataFrame:
    """The settings that the finished searches behind a table chose on validation: text, a row for
    each search and measure that chose in it, a column for each photo set.
    """
    chosen = {}
    for cell in published.index_cells(paper, number).values():
        plan = plan_cell(cell, PHOTOS_SUITE)
        config = plan.choose(runs)
        if config is not None:
            name = _describe_search(config)
            if plan.measure != 'validation':
                name += f', by `{plan.measure}`'
            chosen[name, config.dataset] = _describe_settings(config, plan.stated)
    return pd.Series(chosen, dtype=str).unstack(sort=False) if chosen else pd.DataFrame()


def _describe_search(config: Config) -> str:
    """'hml, head linear, batches of 32': the method, and what is unusual in its search."""
    names = [config.loss]
    if config.head not in (find(config.loss).head, None):
        names.append(f'head {config.head}')
    if config.labels not in ('single', None):
        names.append(f'labels {config.labels}')
    if config.batch_size not in (SUITES[PHOTOS_SUITE]['config']['batch_size'], None):
        names.append(f'batches of {config.batch_size}')
    return ', '.join(names)


def _describe_settings(config: Config, stated: dict) -> str:
    """'0.0019; scale 17.9': the learning rate, and the hyper-parameters that the table does not
    state.
    """
    hparams = resolve(config).hparams
    searched = [
        f'{name} {hparams[name]:.3g}' for name in search_space(config.loss) if name not in stated
    ]
    return '; '.join([f'{config.lr:.3g}', *searched])


def claim_table(paper: str, runs: pd.DataFrame, tables: list[Table] | None = None) -> pd.DataFrame:
    """The claims of a paper, checked on photos.

    Args:
        paper: One of `published.list_papers()`.
        runs: The table of record.
        tables: The paper's tables; default: they are made here.

    Returns:
        DataFrame as from `claims.report_claims`, with the column `command`: what trains the missing
        runs of a claim, '' if none are missing.

    Raises:
        SpmlError: For an unknown paper.

    Source: the papers' texts.
    """
    if tables is None:
        tables = [table(paper, number, runs) for number in published.table_numbers(paper)]
    cells = {(paper, each.number): each.of(PHOTOS_SUITE) for each in tables}
    value = claims.our_claim_value(PHOTOS_SUITE, runs, tables=cells)
    report = claims.report_claims(PHOTOS_SUITE, runs, paper, value)
    unfinished = {each.number for each in tables if (each.of(PHOTOS_SUITE).command != '').any()}
    commands = [
        _claim_command(claim, unfinished, runs) if missing else ''
        for claim, missing in zip(claims.read_claims(paper), report.missing, strict=True)
    ]
    return report.assign(command=commands)


def _claim_command(claim: claims.Claim, unfinished: set[str], runs: pd.DataFrame) -> str:
    """The command that trains what a claim lacks, '' if its tables and figures lack nothing."""
    if claim.tables:
        return ' && '.join(
            table_command(claim.paper, number, PHOTOS_SUITE)
            for number in claim.tables
            if number in unfinished
        )
    figures_in_text = re.findall(r'\d+', claim.where.partition('Fig')[2])
    for number in filter(None, [claim.figure, *figures_in_text]):
        if number not in paper_figures.list_figures(claim.paper):
            continue
        uncollected = (
            claim.figure == number
            and not paper_figures.find_arrays(claim.paper, number, PHOTOS_SUITE).is_file()
        )
        planned = paper_figures.plan_figure_runs(claim.paper, number, PHOTOS_SUITE, runs)
        if uncollected or any(run.key not in runs.index for run in planned):
            return paper_figures.figure_command(claim.paper, number, PHOTOS_SUITE)
    return ''


def claim_section(paper: str, runs: pd.DataFrame) -> str:
    """The claims of a paper, in Markdown for a notebook.

    Args:
        paper: One of `published.list_papers()`.
        runs: The table of record.

    Raises:
        SpmlError: For an unknown paper.
    """
    return render_template(
        'claims_section.md',
        claims=claim_table(paper, runs).to_dict('records'),
        protocol=describe_protocol(PHOTOS_SUITE),
        uncounted=published.UNCOUNTED,
    )


def _format_claims_page(checked: pd.DataFrame) -> str:
    """The page of all papers' claims, as from `claim_table`, in Markdown."""
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
        sizes=claims.count_sizes(checked[checked.ours == Verdict.UNDECIDED]),
        suite=PHOTOS_SUITE,
        protocol=describe_protocol(PHOTOS_SUITE),
        uncounted=published.UNCOUNTED,
    )


@dataclass(frozen=True)
class Figure:
    """A figure of a paper, drawn from our runs.

    Attributes:
        number: As the paper counts.
        remarks: What the paper says of its numbers, and what we chose.
        file: The SVG, None if its arrays are not collected yet.
        command: Collects the arrays.
        missing, parts: Number of its runs that are missing, and in all.
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
        """Whether it is drawn and no run is missing."""
        return self.file is not None and not self.missing

    @property
    def title(self) -> str:
        """The beginning of its caption."""
        return textwrap.shorten(self.caption, 90, placeholder=' …')

    @property
    def address(self) -> str:
        """Link to the SVG from the pages in `outputs/`."""
        return f'{self.paper}/{self.file.name}'


def _draw_collected_figure(paper: str, number: str) -> Figure:
    """Draw a figure if its arrays are collected.

    Raises:
        SpmlError: As `paper_figures.draw_paper_figure`.
    """
    text = paper_figures.describe_figure(paper, number)
    remarks = []
    if 'printed' in text:
        remarks.append(f"The paper: {text['printed']}")
    if 'notes' in text:
        remarks.append(f"Here: {text['notes']}")
    arrays = paper_figures.find_arrays(paper, number, PHOTOS_SUITE)
    collected = figure_drawing.read_figure_arrays(arrays).about if arrays.is_file() else {}
    missing = len(collected.get('missing', []))
    return Figure(
        paper,
        number,
        text['caption'],
        remarks,
        paper_figures.draw_paper_figure(paper, number, PHOTOS_SUITE),
        paper_figures.figure_command(paper, number, PHOTOS_SUITE),
        missing,
        missing + len(collected.get('parts', [])),
    )


class Picture:
    """A figure for a notebook.

    Attributes:
        png: As from `paper_figures.draw_paper_png`, None if its arrays are not collected yet.
        words: Markdown: what it shows, where it is, and how its runs are made.
    """

    def __init__(self, paper: str, number: str):
        self.png = paper_figures.draw_paper_png(paper, number, PHOTOS_SUITE)
        self.words = render_template('figure.md', figure=_draw_collected_figure(paper, number))

    def _ipython_display_(self):
        from IPython.display import Image, Markdown, display

        if self.png:
            display(Image(self.png))
        display(Markdown(self.words))


@dataclass
class Results:
    """All results that the pages show.

    Attributes:
        claims: As from `claim_table`, of all papers.
        runs: The table of record.
        gains: As from `gains.gains_of_suites`.
        choices: As from `budget.compare_choices`.
        agreement: As from `agreement.source_agreement`.
        without_clean: As from `without_clean.read_without_clean`.
        by_size: As from `more_photos.compare_sizes`.
        on_both: As from `second_backbone.lead_on_both`.
    """

    tables: list[Table]
    claims: pd.DataFrame
    figures: list[Figure]
    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    gains: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=gains.COLUMNS))
    choices: pd.DataFrame = field(default_factory=pd.DataFrame)
    agreement: dict = field(default_factory=empty_agreement)
    without_clean: dict | None = None
    by_size: list[dict] = field(default_factory=list)
    on_both: second_backbone.Lead | None = None

    def of(self, paper: str) -> 'Results':
        """The tables, claims and figures of one paper."""
        return Results(
            [table for table in self.tables if table.paper == paper],
            self.claims[self.claims.paper == paper],
            [figure for figure in self.figures if figure.paper == paper],
        )

    def progress(self) -> dict[str, int]:
        """Cells that are done, todo and in total, as in `Table.progress`; figures and how many of
        them are drawn with no run missing.
        """
        cells = (
            pd.DataFrame([table.progress(PHOTOS_SUITE) for table in self.tables]).sum().to_dict()
        )
        drawn = sum(figure.done for figure in self.figures)
        return cells | {'figures': len(self.figures), 'drawn': drawn}

    @property
    def leading(self) -> Leaders | None:
        """The methods with the highest mean gains."""
        return find_leaders(method_levels(self.gains), method_micro_f1(self.gains))

    def verdicts(self) -> dict[str, int]:
        """{verdict: number of claims}."""
        return claims.count_verdicts(self.claims)


def _gather_results(
    runs: pd.DataFrame, measured: pd.DataFrame, compared: pd.DataFrame, tell: Callable[[str], None]
) -> Results:
    """Make all tables, claims and figures; only figures are written. Arguments as in
    `write_pages`.
    """
    tables, checked, drawn = [], [], []
    for paper in published.list_papers():
        of_paper = [table(paper, number, runs) for number in published.table_numbers(paper)]
        pictures = [
            _draw_collected_figure(paper, number) for number in paper_figures.list_figures(paper)
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
    return Results(
        tables,
        pd.concat(checked, ignore_index=True),
        drawn,
        runs,
        measured,
        compared,
        agreement=source_agreement(front_gains(runs), gains_by_source(runs), measured),
        without_clean=without_clean.read_without_clean(),
        by_size=more_photos.compare_sizes(more_photos.measure_gains(runs), BY_PHOTOS),
        on_both=second_backbone.lead_on_both(second_backbone.measure_gains(runs)),
    )


def write_pages(
    runs: pd.DataFrame | None = None,
    measured: pd.DataFrame | None = None,
    compared: pd.DataFrame | None = None,
    tell: Callable[[str], None] = print,
) -> list[Path]:
    """Rebuild the setting `outputs` from the table of record and the arrays of the figures.

    Args:
        runs: Default: the table of record.
        measured: Default: `gains.gains_of_suites(runs)`.
        compared: Default: `budget.compare_choices(runs)`.
        tell: Prints a line per paper and one at the end.

    Returns:
        The files that changed.

    Raises:
        SpmlError: For a damaged `runs.csv` or arrays of a figure, or a file that cannot be written.
    """
    runs = read_recorded_runs() if runs is None else runs
    measured = gains.gains_of_suites(runs) if measured is None else measured
    compared = budget.compare_choices(runs) if compared is None else compared
    results = _gather_results(runs, measured, compared, tell)
    folder = settings.get_folder('outputs')
    texts = {folder / name: text for name, text in _page_contents(results, folder).items()}
    for subfolder in sorted({file.parent for file in texts}):
        files.remove_leftovers(subfolder)
    changed = write_changed(texts)
    tell(f'{len(texts)} files, {len(changed)} of them changed; open {folder / "index.html"}')
    return changed


def _page_contents(results: Results, folder: Path) -> dict[str, str]:
    """{name: text} of every file but the figures.

    Args:
        folder: Where the files will be; pages link those that other commands wrote into it.
    """
    boards = [file.stem for file in sorted((folder / 'methods').glob('*.md'))]
    printed = board.list_printed_rows(results.tables)
    texts = {}
    for each in results.tables:
        cells = each.cells.drop(columns=['interval', 'runs', 'first_key', 'added'])
        texts[f'{each.paper}/table{each.number}.csv'] = _csv(cells.round(4))
        texts[f'{each.paper}/table{each.number}.md'] = format_table_page(each)
    for paper, checked in results.claims.groupby('paper'):
        texts[f'{paper}/claims.svg'] = figure_drawing.draw_forest(checked).decode()
    texts |= paper_conclusions.paper_pages(results.claims, results.runs)
    texts['claims.csv'] = _csv(results.claims)
    texts['claims.md'] = _format_claims_page(results.claims)
    texts['whole_network.md'] = whole_network.format_end_to_end(
        whole_network.levels_end_to_end(results.gains, results.runs)
    )
    others = {name: what for name, what in _OTHER_PAGES.items() if (folder / name).is_file()}
    has_picture = (folder / 'front.svg').is_file()
    if results.without_clean and results.without_clean['rows']:
        texts['without_clean.md'] = without_clean.format_page(results.without_clean)
    texts['README.md'] = _readme(results, boards, others, has_picture)
    texts['index.html'] = index_page.index_page(results, printed, boards, has_picture)
    return texts


# written by `study.write_study` before these pages
_OTHER_PAGES = {
    'ablations.md': 'which part of a method does it, at equal settings',
    'budget.md': 'which methods need a search, and whether one seed of it is enough',
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


def _csv(table: pd.DataFrame) -> str:
    return table.to_csv(index=False, lineterminator='\n')


def _readme(results: Results, boards: list[str], others: dict[str, str], has_picture: bool) -> str:
    papers = [
        published.read_paper(paper) | {'name': paper, 'results': results.of(paper)}
        for paper in published.list_papers()
    ]
    return render_template(
        'outputs_readme.md',
        headline=page_headline(PHOTOS_SUITE, SUITES[PHOTOS_SUITE]['datasets']),
        pages=others,
        boards=boards,
        **_board_fields(results),
        picture=has_picture,
        **agreement_fields(results.agreement),
        verdicts=claims.format_verdicts(results.claims),
        papers=papers,
        photos=_photo_sets(),
        **budget.describe_choices(results.choices),
        searches=len(budget.SEEDS),
        **_search_protocol(),
    )


def _board_fields(results: Results) -> dict:
    """The fields of the board in Markdown."""
    rows = board.list_board_rows(results.gains, {})
    groups = board.group_by_sets(rows)
    most = max(len(group['sets']) for group in groups)
    single = [group for group in groups if group['sets'] and not group['all_labels']]
    listed = [group for group in single if len(group['sets']) >= most - 1]
    unlisted = [group for group in single if len(group['sets']) < most - 1]
    return {
        'listed': board.join_heads([row for group in listed for row in group['rows']]),
        'most_sets': most,
        'unlisted': sum(len(group['rows']) for group in unlisted),
        'summary': board.summarize_board(results.gains),
        'leading': results.leading,
        'without_clean': results.without_clean,
        'half_alone': clean_photos.average_alone(
            clean_photos.measure_gains(clean_photos.plan_runs(results.runs))
        ),
        'names': {row['loss']: board.describe_method(row['loss']) for row in rows},
        'run_on': published.name_dataset,
    }


def _search_protocol() -> dict:
    """The epochs, batch sizes and learning rates of every method's search."""
    heads = _search_candidates(Row('an'))
    longer = [
        (Row(*row), dataset) for dataset, rows in SUITES['photos']['longer'].items() for row in rows
    ]
    return {
        'head': heads[0],
        'labelwise': _search_candidates(Row('an', 'labelwise'))[0],
        'network': _search_candidates(Row('an'), 'photos_finetune')[0],
        'scheduled': SUITES['photos']['scheduled'],
        'longer': len(longer),
        'longest': max(_search_candidates(row, 'photos', name)[0].epochs for row, name in longer),
        'head_rates': _range_of_rates(heads),
    }


def _search_candidates(
    row: Row, suite: str = 'photos', dataset: str = 'voc12_animals'
) -> list[Config]:
    return [resolve(config) for config in search_configs(row, suite, dataset)]


def _range_of_rates(configs: list[Config]) -> dict[str, str | int]:
    rates = [config.lr for config in configs]
    return {'count': len(rates), 'lowest': f'{min(rates):.1e}', 'highest': f'{max(rates):.1e}'}
