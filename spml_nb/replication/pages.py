"""Turns the joined tables into Markdown for people to read, and writes all files of `outputs/`. Nothing is trained."""

import re
from collections.abc import Callable
from importlib.resources import files as packaged
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from spml_nb.replication import (
    board,
    choice,
    claims,
    drawing,
    figures,
    gains,
    published,
    site,
    statistics,
    verdicts,
)

from ..base import files, settings
from .published import SUITE
from .site import escape
from .tables import Table, cell_text, command, record, table


def block(whole: Table) -> str:
    """A table on photos, with what is said under it. Args: whole: the table. Returns: Markdown."""
    head = [
        (f'{escape(ours)} <br>' if ours else '') + escape(column)
        for column, ours in whole.columns(SUITE).items()
    ]
    body = [
        [
            escape(row),
            *(cell_text({**cell, 'printed': escape(cell['printed'])}, '**') for cell in cells),
        ]
        for row, cells in whole.rows(SUITE).items()
    ]
    cells = whole.of(SUITE)
    data = list(dict.fromkeys(cells.stand_in.dropna()))
    after = [
        escape(site.protocol(SUITE, data)) if data else '',
        site.ranking(cells),
        _leaders(cells),
        *_state_text(whole),
    ]
    return files.grid([['', *head], *body]) + ''.join(f'\n{line}\n' for line in after if line)


def _leaders(tidy: pd.DataFrame) -> str:
    """The highest row in the paper and here, of those `site.alike`, for each column with both
    numbers in two or more.
    """
    both, lines = site.alike(tidy).dropna(subset=['published', 'ours']), []
    if both.groupby('column')[['metric', 'dataset']].nunique().max().max() > 1:
        return ''
    for column, part in both.groupby('column', sort=False):
        theirs, ours = (
            escape(part.loc[part[which].idxmax(), 'row']) for which in ('published', 'ours')
        )
        both_say = f'{theirs} → {ours}' if theirs != ours else f'{ours}, in both'
        if len(part) > 1:
            lines.append(f'{escape(column)}: {both_say}')
    return (
        (
            'Highest row, in the paper → here, of those that have both numbers and learn from the '
            'same labels, without '
            "cells that were not exercised, by the mean alone, however small the lead. "
            f"{'; '.join(lines)}."
        )
        if lines
        else ''
    )


def _state_text(whole: Table) -> list[str]:
    "What is not there, and why or how to get it."
    cells, fill = whole.of(SUITE), command(whole.paper, whole.number, SUITE)
    left, total = (cells.command != '').sum(), whole.progress(SUITE)['total']
    todo = f'{left} of {total} cells are missing or have fewer seeds; this fills them: `{fill}`'
    none = [
        _photos() if why == published.STATISTIC else f'{escape(site.lacking(part))}: {escape(why)}.'
        for why, part in cells[cells.why != ''].groupby('why', sort=False)
    ]
    return [todo, *none] if left else none


def _photos() -> str:
    "Our sets, counted as the papers count theirs."
    counted = published.photos().reset_index().astype(str).rename(columns=str.capitalize)
    return (
        'The photos that runs of ours are about (used: classes with enough positives; positives: '
        'labels of a training photo among '
        f'them):\n\n{files.grid([[*counted], *counted.to_numpy().tolist()])}'
    )


def markdown(whole: Table) -> str:
    """A table as a page for a forge. Args: whole: the table. Returns: Markdown."""
    about, said = published.read(whole.paper), 'As published.\n'
    if whole.progress(SUITE)['total']:
        conditions = escape(site.headline(SUITE, whole.of(SUITE).stand_in.dropna().unique()))
        said = f'{conditions}\n\n{_READING}\n\n## Photos'
    notes = f'\n## Notes\n{_notes(whole)}' if whole.notes() else ''
    return (
        f"# {about['venue']}, Table {whole.number}: "
        f"{escape(whole.title)}\n\n{escape(about['title'])}. {said}\n"
        f'{block(whole)}{notes}'
    )


_READING = (
    'Each cell: published / ours as mean ± half the 95 % interval over seeds (how many); gain '
    'over the row of AN in the same column (of binary cross-entropy where all labels are known), '
    'published / ours ± half the 95 % interval over seeds and test images. Levels on other data '
    'are not compared.'
)


def _notes(whole: Table) -> str:
    return ''.join(f'- {escape(where)}: {escape(note)}\n' for where, note in whole.notes())


def section(paper: str, number: str, known: pd.DataFrame) -> str:
    """A table with its notes, for a notebook.

    Args:
        paper: one of `published.papers()`.
        number: one of its tables.
        known: as from `record`.

    Returns: Markdown.

    Raises:
        SpmlError: for another paper or table.
    """
    whole = table(paper, number, known)
    return f'**Table {number}: {escape(whole.title)}**\n\n{block(whole)}\n{_notes(whole)}'


class Picture:
    """A figure for a notebook: the SVG if it is drawn and small, else where it is or what makes it.

    Args:
        paper: one of `published.papers()`.
        number: one of its figures.

    Attributes:
        svg: the picture, None where it is not shown.
        words: what it shows, where it is and under which conditions its runs were made, as
            Markdown.
    """

    LIMIT = 48_000  # bytes, so that a notebook with all figures of a paper stays small

    def __init__(self, paper: str, number: str):
        figure = draw(paper, number)
        file = figure.file
        self.svg = (
            file.read_text(encoding='utf-8') if file and file.stat().st_size <= self.LIMIT else None
        )
        where = (
            f'See `outputs/{paper}/{file.name}`.'
            if file
            else f'Not drawn yet; this trains what it needs and draws it: `{figure.command}`'
        )
        caption = escape(' '.join((figure.caption, *figure.remarks)))
        self.words = f'**Figure {number}**: {caption}\n\n{where}'

    def _ipython_display_(self):
        from IPython.display import SVG, Markdown, display

        for each in filter(None, (self.svg and SVG(self.svg), Markdown(self.words))):
            display(each)


def claim_table(
    paper: str, known: pd.DataFrame, at_hand: list[Table] | None = None
) -> pd.DataFrame:
    """The claims of a paper, checked on photos.

    Args:
        paper: one of `published.papers()`.
        known: as from `record`.
        at_hand: the paper's tables, unset: made here.

    Returns: DataFrame, one row per claim, as from `claims.report`, and command (what decides more
        of its places, '' if nothing does).

    Raises:
        SpmlError: for another paper.

    Source: the papers' texts.
    """
    whole = at_hand or [table(paper, number, known) for number in published.tables(paper)]
    value = claims.our_value(
        SUITE, known, tables={(paper, each.number): each.of(SUITE) for each in whole}
    )
    report = claims.report(SUITE, known, paper, value)
    todo = {each.number for each in whole if (each.of(SUITE).command != '').any()}
    asked = zip(claims.claims(paper), report.missing, strict=True)
    return report.assign(
        command=[_claim_command(claim, todo, known) if missing else '' for claim, missing in asked]
    )


def _claim_command(claim: claims.Claim, todo: set[str], known: pd.DataFrame) -> str:
    """What runs a claim, '' if no table or figure is about it that needs runs, or arrays that the
    claim is read from.
    """
    paper = claim.paper
    if claim.tables:
        return ' && '.join(
            command(paper, number, SUITE) for number in claim.tables if number in todo
        )
    named = re.findall(r'\d+', claim.where.partition('Fig')[2])
    drawn = [
        each
        for each in named
        if each in figures.figures(paper)
        and (
            (claim.figure == each and not figures.arrays_file(paper, each, SUITE).is_file())
            or any(part.key not in known.index for part in figures.parts(paper, each, SUITE, known))
        )
    ]
    return figures.command(paper, drawn[0], SUITE) if drawn else ''


def claim_section(paper: str, known: pd.DataFrame) -> str:
    """The claims of a paper, for a notebook.

    Args:
        paper: one of `published.papers()`.
        known: as from `record`.

    Returns: Markdown.

    Raises:
        SpmlError: for another paper.
    """
    return (
        f"{_claim_grid('ours', claim_table(paper, known))}\n{escape(site.protocol(SUITE))} "
        f"{_SEEDS}\n"
    )


def claim_markdown(whole: pd.DataFrame) -> str:
    """The claims as a page for a forge. Args: whole: as from `claim_table`, for all papers.
    Returns: Markdown.
    """
    return f'{_CLAIMS}\n{SUITE}: {escape(site.protocol(SUITE))} {_SEEDS}\n' + ''.join(
        f"\n## {escape(published.read(paper)['title'])}\n![The claims as a forest "
        f"plot]({paper}/claims.svg)\n\n"
        f'{_claim_grid(SUITE, part)}'
        for paper, part in whole.groupby('paper', sort=False)
    )


_SEEDS = (
    'Where a line gives other seeds, these hold: what is read from a figure has three and more, '
    'what is asked of partial labels five. Table 8 of Two-way trains whole networks.'
)

_CLAIMS = (
    '# Claims of the papers\n\nEach claim is checked on the numbers that the paper prints, and on '
    'ours. Ours are paired differences over seeds; ± is half the 95 % interval over seeds and '
    'test images (over seeds alone for claims that are read from a figure, T8 aside), and '
    'verdicts are corrected for the number of places (Holm).\n\nA *place* is a data set, with a '
    'measure or a kind of labels where the claim names several; it is named after the photos that '
    'were used, "for" the columns of the paper that they stand in. A claim is *reproduced*, *not '
    'reproduced under this protocol*, of *no difference* (less than half a point of mAP), '
    '*undecided*, *not run* or *not exercised* (the epoch was chosen before the method’s own '
    'mechanism began). The mean over the data sets decides, which can be sure where no place '
    'alone is; a claim about every data set is then reproduced on average. Several places on one '
    'set of photos must all hold. Behind the word: over how many places the mean is taken, how '
    'many decide alone, and the comparison least in favour of the claim, with the size of effect '
    'that would be found four times in five (*power 80 %*) and the same comparison in the paper’s '
    f'numbers ({published.UNCOUNTED}: rows of several sources are compared there, so that part of '
    'it may be the difference of set-ups). *Undecided* can stand beside an interval that leaves 0 '
    'out, because two places contradict each other, or because the correction for the number of '
    'places or of comparisons asks for more. *No difference* asks that the 90 % interval lies '
    'within half a point. One seed decides nothing. A place that lacks a method, or has one that '
    'was not exercised, is *incomplete* unless the others decide it, and its number is of the '
    'others. *Inferred* is what a table shows and no sentence says. Under *the paper’s numbers* '
    'stands at how many places the claim holds there and, if all that is compared has a printed '
    'deviation, at how many it does so beyond the deviations (Welch’s test). Small type: what '
    'exactly was checked.\n'
)


def _claim_grid(title: str, asked: pd.DataFrame) -> str:
    "Claims, with our verdicts in a column of that title."
    body = [
        [
            escape(line['claim']) + ' *Inferred.*' * line['inferred'] + _small(line['note']),
            escape(line['where']),
            line['published'],
            _verdict(line),
        ]
        for line in asked.to_dict('records')
    ]
    return files.grid([['claim', 'where', 'the paper’s numbers', title], *body])


def _small(note: str) -> str:
    return f'<br><small>{escape(note)}</small>' if note else ''


def _verdict(line: dict) -> str:
    "A word with the places behind it, and those of which some operands are there."
    places = [
        text
        for text in line['missing'].split('; ')
        if ' missing)' in text or ' not exercised)' in text
    ]
    if line['ours'] in (statistics.Verdict.NOT_RUN, statistics.Verdict.NOT_EXERCISED):
        head = line['ours'] + (f": `{line['command']}`" if line['command'] else '')
    else:
        head, places = line['summary'], [*filter(None, line['measured'].split('; ')), *places]
    return head + ''.join(f'<br>{escape(text)}' for text in places)


class Figure(NamedTuple):
    """A figure of a paper, drawn from our runs.

    Args:
        paper: its name.
        number: of the figure.
        caption: what it shows.
        remarks: what the paper says of its numbers, and what was chosen here.
        file: the SVG, None if its arrays were not collected.
        command: what collects them.
        missing: how many parts it lacks.
        parts: of how many.
    """

    paper: str
    number: str
    caption: str
    remarks: tuple[str, ...]
    file: Path | None
    command: str
    missing: int = 0
    parts: int = 0

    @property
    def done(self) -> bool:
        """Whether it is drawn with all its parts. Returns: bool."""
        return self.file is not None and not self.missing


def draw(paper: str, number: str) -> Figure:
    """Draw a figure where its arrays are at hand.

    Args:
        paper: one of `published.papers()`.
        number: one of its figures.

    Returns: Figure.

    Raises:
        SpmlError: as `figures.draw`.
    """
    about, arrays = figures.description(paper, number), figures.arrays_file(paper, number, SUITE)
    remarks = tuple(
        f'{who}: {about[key]}'
        for who, key in (('The paper', 'printed'), ('Here', 'notes'))
        if key in about
    )
    parts = (
        drawing.read_collected(arrays).about if arrays.is_file() else {'missing': [], 'parts': []}
    )
    missing = len(parts['missing'])
    return Figure(
        paper,
        number,
        about['caption'],
        remarks,
        figures.draw(paper, number, SUITE),
        figures.command(paper, number, SUITE),
        missing,
        missing + len(parts['parts']),
    )


class Results(NamedTuple):
    """All that the pages show.

    Args:
        tables: every table.
        claims: as from `claim_table`, of every paper.
        figures: every figure.
        known: the runs, as from `record`.
        methods: as from `verdicts.of_methods`.
        gains: as from `gains.of_suites`.
    """

    tables: list[Table]
    claims: pd.DataFrame
    figures: list[Figure]
    known: pd.DataFrame = pd.DataFrame()
    methods: pd.DataFrame | None = None
    gains: pd.DataFrame = pd.DataFrame(columns=gains.COLUMNS)

    def of(self, paper: str) -> 'Results':
        """What belongs to one paper. Args: paper: its name. Returns: Results."""
        return Results(
            [t for t in self.tables if t.paper == paper],
            self.claims[self.claims.paper == paper],
            [f for f in self.figures if f.paper == paper],
            self.known,
        )

    def progress(self) -> dict[str, int]:
        """How far it is.

        Returns: done, todo and total of the cells, as in `Table.progress`; figures, drawn (those
            with all their parts); and one count for each verdict on claims.
        """
        cells = pd.DataFrame([each.progress(SUITE) for each in self.tables]).sum().to_dict()
        drawn, said = (
            [figure.done for figure in self.figures],
            self.claims.ours.value_counts().to_dict(),
        )
        return {
            **cells,
            'figures': len(drawn),
            'drawn': sum(drawn),
            **dict.fromkeys(statistics.Verdict, 0),
            **said,
        }


def gather(
    known: pd.DataFrame | None = None,
    tell: Callable[[str], None] = print,
    measured: pd.DataFrame | None = None,
) -> Results:
    """Join the papers' numbers with ours, and draw the figures.

    Args:
        known: unset: as from `record`.
        tell: is given one line per paper.
        measured: as from `gains.of_suites`, unset: that.

    Returns: Results.

    Raises:
        SpmlError: as `record` and `figures.draw`.
    """
    known, tables, asked, drawn = record() if known is None else known, [], [], []
    for paper in published.papers():
        whole = [table(paper, number, known) for number in published.tables(paper)]
        pictures = [draw(paper, number) for number in figures.figures(paper)]
        asked.append(claim_table(paper, known, whole))
        count = pd.concat([one.cells.state for one in whole]).value_counts()
        cells = (
            f"{count.get('done', 0)} cells done, {count.get('partly', 0)} partly, "
            f"{count.get('missing', 0)} missing"
        )
        tell(
            f'{paper}: {cells}; {sum(figure.done for figure in pictures)} of {len(pictures)} '
            'figures'
        )
        tables += whole
        drawn += pictures
    measured = gains.of_suites(known) if measured is None else measured
    return Results(
        tables,
        pd.concat(asked, ignore_index=True),
        drawn,
        known,
        verdicts.of_methods(verdicts.gains(measured)),
        measured,
    )


def write(
    known: pd.DataFrame | None = None,
    tell: Callable[[str], None] = print,
    measured: pd.DataFrame | None = None,
) -> list[Path]:
    """Rebuild the setting `outputs` from the table of record and the arrays of the figures.

    Args:
        known: unset: as from `record`.
        tell: is given one line per paper, and one at the end.
        measured: as in `gather`.

    Returns: the files that changed.

    Raises:
        SpmlError: for a damaged `runs.csv`, or a file that cannot be written.
    """
    results, folder = gather(known, tell, measured), settings.path('outputs')
    texts = contents(results, folder)
    for place in sorted({(folder / name).parent for name in texts}):
        files.remove_leftovers(place)
    changed = site.put({folder / name: text for name, text in texts.items()})
    tell(f'{len(texts)} files, {len(changed)} of them changed; open {folder / "index.html"}')
    return changed


def contents(results: Results, folder: Path) -> dict[str, str]:
    """The text of every file but the figures.

    Args:
        results: as from `gather`.
        folder: where the files will lie.

    Returns: {name: text}.
    """
    texts = {}
    for whole in results.tables:
        shown = whole.cells.drop(columns=['interval', 'runs', 'first'])
        texts[f'{whole.paper}/table{whole.number}.csv'] = _csv(shown.round(4))
        texts[f'{whole.paper}/table{whole.number}.md'] = markdown(whole)
    for paper, asked in results.claims.groupby('paper'):
        texts[f'{paper}/claims.svg'] = drawing.forest(asked).decode()
    return texts | {
        'claims.csv': _csv(results.claims),
        'claims.md': claim_markdown(results.claims),
        'README.md': readme(results, folder),
        'index.html': site.page(results, folder),
    }


def _csv(table: pd.DataFrame) -> str:
    return table.to_csv(index=False, lineterminator='\n')


def readme(results: Results, folder: Path) -> str:
    """`outputs/README.md`.

    Args:
        results: as from `gather`.
        folder: where it will lie.

    Returns: Markdown.
    """
    template = (packaged('spml_nb') / 'assets' / 'outputs_readme.md').read_text(encoding='utf-8')
    state = [['paper', *(f'{SUITE}: {what}' for what in ('cells', 'figures', 'claims'))]]
    for paper in published.papers():
        count = results.of(paper).progress()
        asked = ', '.join(
            f'{count[verdict]} {verdict}' for verdict in statistics.Verdict if count[verdict]
        )
        state.append(
            [
                escape(published.read(paper)['title']),
                f"{count['done']} of {count['total']}",
                f"{count['drawn']} of {count['figures']}",
                asked,
            ]
        )
    papers = ''.join(_of_paper(paper, results.of(paper), folder) for paper in published.papers())
    whole = verdicts.whole_network(
        verdicts.end_to_end(results.gains, results.known, board.printed(results.tables))
    )
    boards = [
        f'[{file.stem}](methods/{file.name})' for file in sorted((folder / 'methods').glob('*.md'))
    ]
    said = escape(site.headline(SUITE, site.SUITES[SUITE]['datasets']))
    parts = {
        'headline': said,
        'verdicts': verdicts.markdown(results.claims, results.methods, results.gains),
        'state': files.grid(state),
        'papers': papers,
        'whole': whole,
        'photos': _photos(),
        'choice': choice.markdown(choice.outcome(choice.planned(results.known))),
        'boards': f"The boards: {', '.join(boards)}. " if boards else '',
    }
    for name, text in parts.items():
        template = template.replace(f'{{{{{name}}}}}', text)
    return template


def _of_paper(paper: str, results: Results, folder: Path) -> str:
    about, lines = published.read(paper), [['table', 'what it shows', f'{SUITE}: cells done']]
    for whole in results.tables:
        count, file = whole.progress(SUITE), f'{paper}/table{whole.number}'
        done = f"{count['done']} of {count['total']}" if count['total'] else '–'
        lines.append(
            [f'[{whole.number}]({file}.md) ([csv]({file}.csv))', escape(whole.title), done]
        )
    drawn = [
        [figure.number, escape(figure.caption), _figure_link(figure, folder)]
        for figure in results.figures
    ]
    pictures = files.grid([['figure', 'what it shows', SUITE], *drawn])
    authors = f"{escape(about['authors'])}, {about['venue']}"
    return f"\n### {escape(about['title'])}\n{authors}\n\n{files.grid(lines)}\n{pictures}\n{figures.not_drawn(paper)}\n"


def _figure_link(figure: Figure, folder: Path) -> str:
    if figure.file is None:
        return f'`{figure.command}`'
    parts = f' ({figure.parts - figure.missing} of {figure.parts} parts)' if figure.missing else ''
    return f'[{figure.file.name}]({figure.file.relative_to(folder).as_posix()}){parts}'
