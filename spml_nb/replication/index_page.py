"""`outputs/index.html`: the board, every table, figure and claim on one page that works offline."""

import base64
import hashlib
import json

import pandas as pd

from ..sweeps.search import SUITES
from . import board_summary, paper_figures, published
from .agreement import agreement_fields, describe_ranking
from .tables import Table, cell_has_gain, describe_lacking
from .templates import (
    FROM_SCRATCH,
    describe_protocol,
    page_headline,
    read_template,
    render_template,
)

_SCALE = 6  # points of gain on either side of 0 that a mark can show
_PIXELS = 4  # per point


def gain_mark(published: float | None, ours: float, half: float | None) -> str:
    """A small SVG of a gain: a ring for the published one above a dot for ours with its interval, 0
    in the middle; an arrow for a gain beyond six points.
    """
    parts = []
    if not pd.isna(half):
        low, high = (_x(end) for end in (ours - half, ours + half))
        parts.append(f'<path d="M{low} 9H{high}"/>')
    parts.append(_dot(ours, 9, ''))
    if not pd.isna(published):
        parts.append(_dot(published, 4, ' class="p"'))
    return f'<svg class="m" aria-hidden="true">{"".join(parts)}</svg>'


def _x(gain: float) -> str:
    """Pixels from the left edge."""
    inside = min(max(gain, -_SCALE), _SCALE)
    return f'{_PIXELS * (_SCALE + inside) + 4:.0f}'


def _dot(gain: float, y: int, attributes: str) -> str:
    if abs(gain) <= _SCALE:
        return f'<circle{attributes} cx="{_x(gain)}" cy="{y}" r="2.5"/>'
    forward = 4 if gain > 0 else -4
    return f'<path{attributes} d="M{_x(gain)} {y - 3}l{forward} 3l{-forward} 3z"/>'


def _cells_with_runs(table: Table) -> pd.DataFrame:
    """The cells of a table, without rows and columns that no run fills."""
    cells = table.of(published.PHOTOS_SUITE)
    filled = cells[cells.state != 'none']
    return cells[cells['row'].isin(filled['row']) & cells.column.isin(filled.column)]


def index_page(
    results,
    printed: list[dict],
    boards: list[str],
    picture: bool = False,
    without_clean: dict | None = None,
) -> str:
    """The text of `index.html`.

    Args:
        results: As from `pages.Results`.
        printed: As from `board_summary.list_printed_rows`.
        boards: Names of the boards in `outputs/methods`.
        picture: Whether there is a `front.svg`.
        without_clean: As from `without_clean.read_without_clean`.
    """
    groups, group_of_run = board_summary.group_final_runs(results.runs, _runs_shown(results))
    rows = board_summary.list_board_rows(results.gains, group_of_run)
    photos = list(SUITES['photos']['datasets'])
    with_runs = [
        name for name in photos if any(name in row['cells'].get('photos', {}) for row in rows)
    ]
    style, script = read_template('page.css'), read_template('page.js')

    def group_of(runs: str) -> int | str:
        """The group of runs given as JSON, {seed: name}; '' without runs."""
        return group_of_run.get(_first_run(runs), '')

    return render_template(
        'index.html',
        results=results,
        papers={paper: published.read_paper(paper) for paper in published.list_papers()},
        board_groups=board_summary.group_by_sets(rows),
        summary=board_summary.summarize_board(results.gains),
        leading=results.leading,
        without_clean=without_clean,
        cards=board_summary.method_cards(rows, results.runs, results.claims, printed),
        printed=printed,
        boards=boards,
        data=_script_json({'groups': groups, 'rows': {row['id']: row for row in rows}}),
        sets=with_runs or photos,
        not_run=[name for name in photos if with_runs and name not in with_runs],
        group_of=group_of,
        suite=published.PHOTOS_SUITE,
        places=board_summary.ORIGINAL_SETS,
        photos=published.describe_photo_sets().reset_index().to_dict('records'),
        protocol=describe_protocol,
        conditions=_own_conditions,
        headline=page_headline,
        ranking=describe_ranking,
        lacking=describe_lacking,
        run_on=published.name_dataset,
        stand_ins=published.STAND_INS,
        names=published.PAPERS_DATA,
        not_drawn=paper_figures.explain_not_drawn,
        mark=gain_mark,
        scale=_SCALE,
        main_tables=MAIN_TABLES,
        runs_of=_cells_with_runs,
        has_gain=cell_has_gain,
        has_gains=lambda cells: any(map(cell_has_gain, cells.to_dict('records'))),
        with_runs=lambda tables: [table for table in tables if len(_cells_with_runs(table))],
        without_runs=lambda tables: [table for table in tables if not len(_cells_with_runs(table))],
        picture=picture,
        **agreement_fields(results.agreement),
        style=style,
        script=script,
        style_hash=_digest(style),
        script_hash=_digest(script),
    )


# the table of each paper that is unfolded: its own methods compared with others
MAIN_TABLES = (('hml', '2'), ('opml', 'II'), ('lac', '2'), ('two_way', '7'), ('em_apl', '1'))


def _own_conditions(cells: pd.DataFrame) -> str:
    """How the runs of a table are made, '' if as the top of the page says."""
    text = describe_protocol(published.PHOTOS_SUITE, cells.stand_in.dropna().unique())
    return text if text == FROM_SCRATCH else ''


def _first_run(runs: str) -> str | None:
    """The first name of {seed: name} as JSON, None without any."""
    return next(iter(json.loads(runs).values()), None)


def _runs_shown(results) -> set[str]:
    """The first run of each number that links to its runs."""
    of_board = {*results.gains.run, *results.gains.base_run}
    of_tables = {
        _first_run(runs)
        for table in results.tables
        for runs in table.of(published.PHOTOS_SUITE).runs
    }
    return of_board | of_tables


def _script_json(value) -> str:
    """JSON that is safe in a script element, with NumPy numbers as plain ones."""
    text = json.dumps(
        value,
        ensure_ascii=False,
        separators=(',', ':'),
        allow_nan=False,
        default=lambda number: number.item(),
    )
    return text.replace('<', '\\u003c')


def _digest(text: str) -> str:
    return 'sha256-' + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
