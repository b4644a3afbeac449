"""`outputs/index.html`: the board, every table, figure and claim on one page that works offline."""

import base64
import dataclasses
import hashlib
import json
import math
from functools import lru_cache

import pandas as pd

from ..runs.config import Config
from ..sweeps import boards, search
from ..sweeps.search import SUITES
from . import board, claims, gains, paper_figures, published
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


def _draw_mark(published: float | None, ours: float, half: float | None) -> str:
    """Draw a gain as a small SVG: a ring for the published one above a dot for ours with its
    interval, 0 in the middle; an arrow for a gain beyond six points.
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
) -> str:
    """The text of `index.html`.

    Args:
        results: As from `pages.Results`.
        printed: As from `board.list_printed_rows`.
        boards: Names of the boards in `outputs/methods`.
        picture: Whether there is a `front.svg`.
    """
    groups, group_of_run = _group_final_runs(results.runs, _runs_shown(results))
    rows = board.list_board_rows(results.gains, group_of_run)
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
        board_groups=board.group_by_sets(rows),
        summary=board.summarize_board(results.gains),
        leading=results.leading,
        without_clean=results.without_clean,
        cards=_method_cards(rows, results.runs, results.claims, printed),
        printed=printed,
        boards=boards,
        data=_script_json({'groups': groups, 'rows': {row['id']: row for row in rows}}),
        sets=with_runs or photos,
        not_run=[name for name in photos if with_runs and name not in with_runs],
        group_of=group_of,
        suite=published.PHOTOS_SUITE,
        places=list(published.ORIGINAL_SETS.values()),
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
        mark=_draw_mark,
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


_NOT_SETTINGS = ('seed', 'label_seed', 'root', 'device')


def _group_final_runs(
    runs: pd.DataFrame, shown: set[str] | None = None
) -> tuple[dict, dict[str, int]]:
    """The final runs in groups that differ in the seed alone.

    Args:
        runs: The table of record.
        shown: Names of runs; groups without any of them are left out. Default: none is.

    Returns:
        ({'usual': {field: its most frequent value}, 'each': a list of groups {'s': {field: value}
        where it is not the usual one, 'run': name of the first run, 'r': {seed: test mAP}}}, {run
        name: index of its group}).
    """
    if not len(runs):
        return {'usual': {}, 'each': []}, {}
    final = runs[(runs.seed != search.SEARCH_SEED) & runs.test_map.notna()]
    fields = [
        field.name
        for field in dataclasses.fields(Config)
        if field.name not in _NOT_SETTINGS and field.name in final
    ]
    usual = {
        name: final[name].mode().iloc[0]
        for name in fields
        if name not in ('loss', 'dataset', 'hparams') and final[name].notna().all()
    }
    varying = [name for name in fields if name not in usual or final[name].nunique() > 1]
    groups, group_of_run = [], {}
    for values, group in final.groupby(varying, sort=False, dropna=False):
        if shown is not None and shown.isdisjoint(group.run):
            continue
        group = group.sort_values('seed')
        group_of_run |= dict.fromkeys(group.run, len(groups))
        unusual = {
            name: value
            for name, value in zip(varying, values, strict=True)
            if not pd.isna(value) and value != usual.get(name)
        }
        unusual['hparams'] = json.loads(unusual.get('hparams', '{}'))
        groups.append(
            {
                's': unusual,
                'run': group.run.iloc[0],
                'r': dict(zip(group.seed.astype(int), group.test_map.round(2), strict=True)),
            }
        )
    return {'usual': usual, 'each': groups}, group_of_run


def _method_cards(
    rows: list[dict], runs: pd.DataFrame, checked: pd.DataFrame, printed: list[dict]
) -> dict[str, dict]:
    """The card of each method on the page.

    Args:
        rows: As from `list_board_rows`.
        runs: The table of record.
        checked: The claims, as in `pages.Results`.
        printed: As from `list_printed_rows`.

    Returns:
        {loss: `board.describe_method`, and runs (dicts with suite, head, labels, dataset, cell, lr,
        hparams, best), printed (the rows of the method), claims (those of its paper that compare
        it)}.
    """
    by_id = {claim['id']: claim for claim in checked.to_dict('records')}
    cards = {}
    for row in rows:
        card = cards.setdefault(row['loss'], board.describe_method(row['loss']) | {'runs': []})
        if row['labels'] != gains.AS_MANY:  # which has no search of its own
            card['runs'] += _list_searches(row, runs)
    for loss, card in cards.items():
        in_claims = {}
        if card['paper'] in published.list_papers():
            in_claims = _methods_in_claims(card['paper'])
        card['claims'] = [
            by_id[name] for name, losses in in_claims.items() if loss in losses and name in by_id
        ]
        card['printed'] = [line for line in printed if line['loss'] == loss]
    return cards


@lru_cache
def _methods_in_claims(paper: str) -> dict[str, set[str]]:
    "{claim id: losses that the claim compares}, without claims about a figure."
    return {
        claim.id: {_loss_of_operand(operand) for operand in claims.claim_operands(claim)}
        for claim in claims.read_claims(paper)
        if not claim.figure
    }


def _loss_of_operand(operand: claims.Operand) -> str | None:
    config = operand.config
    if not config:
        table, *row_and_column = operand.cell
        config = published.index_cells(operand.paper, table)[tuple(row_and_column)]['config'] or {}
    return config.get('loss')


def _list_searches(row: dict, runs: pd.DataFrame) -> list[dict]:
    "The settings that the search chose on each photo set."
    searched = search.Row(row['loss'], row['head'], row['labels'])
    return [
        {
            'head': row['head'],
            'labels': row['labels'],
            'suite': suite,
            'cell': cell,
            'dataset': dataset,
            **_describe_search(searched, suite, dataset, runs),
        }
        for suite, by_set in row['cells'].items()
        for dataset, cell in by_set.items()
    ]


def _describe_search(row: search.Row, suite: str, dataset: str, runs: pd.DataFrame) -> dict:
    """The settings that a search chose.

    Returns:
        {'lr', 'hparams' (text), 'mean' and 'best' (validation mAP of its draws)}; NaN and '' while
        the search is not finished.
    """
    tried = boards.tabulate_search(row, suite, dataset, runs)
    if not tried.chosen.any():
        return {'lr': math.nan, 'hparams': '', 'mean': math.nan, 'best': math.nan}
    chosen = tried[tried.chosen].iloc[0]
    hparams = ', '.join(f'{name} {value}' for name, value in json.loads(chosen.hparams).items())
    return {
        'lr': chosen.lr,
        'hparams': hparams or 'the paper’s',
        'mean': tried.val_map.mean(),
        'best': tried.val_map.max(),
    }
