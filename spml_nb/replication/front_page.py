"""The top of README.md: published gains beside ours, as a picture and a table."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .. import drawing, statistics
from ..base import settings
from ..base.errors import SpmlError
from ..base.files import write_changed
from ..data.labels import FULL_PHOTOS
from ..methods.core import find
from ..statistics import Effect, Scores
from ..sweeps.search import Row
from . import board, published, without_clean
from . import gains as all_gains
from .agreement import agreement_fields, gains_by_source, source_agreement
from .board import Leaders, find_leaders, method_levels, method_micro_f1
from .experiments import (
    clean_photos,
    more_photos,
    observed_choice_page,
    second_backbone,
    thresholds,
)
from .gains import mechanism_acted_in
from .published import ORIGINAL_SETS, PHOTOS_SUITE
from .tables import cell_final_runs, plan_cell, read_measures
from .templates import describe_protocol, render_template


@dataclass(frozen=True)
class FrontMethod:
    """A method on the front page, with the table that prints it.

    Attributes:
        cells: {panel: (row, row of AN or BCE in the table, column)}.
        own: Whether the paper proposes it.
        plain: Whether the paper's baseline has the linear head rather than the method's own.
    """

    name: str
    paper: str
    table: str
    cells: dict[str, tuple[str, str, str]]
    own: bool = False
    plain: bool = False

    @property
    def source(self) -> str:
        """Short name of the paper that trained it."""
        return self._cell['source']

    @property
    def loss(self) -> str:
        """The loss that it is trained with here."""
        return self._cell['config']['loss']

    @property
    def _cell(self) -> dict:
        row, _, column = next(iter(self.cells.values()))
        return published.index_cells(self.paper, self.table)[row, column]


def _row(columns: dict[str, str], row: str, baseline: str) -> dict:
    return {panel: (row, baseline, column) for panel, column in columns.items()}


_HML = {'VOC': 'VOC12', 'COCO': 'COCO', 'NUS': 'NUS', 'CUB': 'CUB'}
_SINGLE = {panel: f'Single Positive Labels / {column}' for panel, column in _HML.items()}
_LAC = {panel: f'LEM / {panel}' for panel in _HML}
_SAME = {panel: panel for panel in _HML}
_ONE = '1 P. & 0 N. / '
_TWO_WAY = {
    panel: (f'{name} / Ours', f'{name} / BCE', 'mAP@class / ResNet50')
    for panel, name in (('VOC', 'VOC2012'), ('COCO', 'MSCOCO'))
}


METHODS = (
    *[
        FrontMethod(name, 'hml', '2', _row(_HML, name, 'AN'))
        for name in ('WAN', 'LS', 'EPR', 'ROLE')
    ],
    FrontMethod('EM', 'em_apl', '1', _row(_SAME, 'EM', 'AN'), own=True),
    FrontMethod('EM+APL', 'em_apl', '1', _row(_SAME, 'EM+APL', 'AN'), own=True),
    FrontMethod('HML', 'hml', '4', _row(_SINGLE, 'HL + AL', 'neither'), own=True, plain=True),
    FrontMethod('LAC', 'lac', '2', _row(_LAC, 'Ours', 'L_AN'), own=True),
    *[
        FrontMethod(name, 'opml', 'II', _row(_SAME, _ONE + name, f'{_ONE}BCE'))
        for name in ('LL-R', 'LL-Ct', 'LL-Cp')
    ],
    *[
        FrontMethod(name, 'opml', 'II', _row(_SAME, f'{_ONE}{name} (Ours)', f'{_ONE}BCE'), own=True)
        for name in ('OPML', 'OPML-SP')
    ],
    FrontMethod('Two-way*', 'two_way', '7', _TWO_WAY, own=True),
)


def front_gains(runs: pd.DataFrame) -> pd.DataFrame:
    """The gains of every method on the front page.

    Args:
        runs: The table of record.

    Returns:
        DataFrame, one row per method and panel, in points of mAP:

        - method, panel; own: as in `FrontMethod`; full: whether all labels are observed
        - published: over `published.gain_baseline`, NaN if not printed; uncounted: as from
          `published.explain_uncounted`
        - ours, half: gain over AN on the same head (Two-way: over weighted BCE; else over the
          baseline that the paper's file names) with half its interval over seeds and test images
        - plain: gain over AN on the linear head (Two-way: over BCE)
        - like, like_half: the one of both that corresponds to the published gain
        - effect, beside: like and plain as `statistics.Effect`, NaN without such a cell
        - n: common seeds, -1 without such a cell; exercised: whether the method's mechanism acted

    Source: the papers' tables.
    """
    return pd.DataFrame(
        [
            {
                'method': method.name,
                'own': method.own,
                'panel': panel,
                **_gain(method, panel, runs),
            }
            for method in METHODS
            for panel in ORIGINAL_SETS
        ]
    )


def _gain(method: FrontMethod, panel: str, runs: pd.DataFrame) -> dict:
    if panel not in method.cells:
        return {'n': -1, 'full': False, 'uncounted': ''}
    row, baseline, column = method.cells[panel]
    cells = published.index_cells(method.paper, method.table)
    cell = cells[row, column]
    named_baseline = bool(cell['baseline'])
    base = published.gain_baseline(cell) if named_baseline else cells[baseline, column]
    config = cell['config']
    full = config.get('labels') == 'full'
    head = config.get('head') or find(config['loss']).head
    scores, exercised = _cell_scores(cell, runs)
    same_head = {} if named_baseline else {'loss': 'wbce' if full else 'an', 'head': head}
    base_scores, _ = _cell_scores(base if named_baseline else cell, runs, **same_head)
    plain_scores, _ = _cell_scores(cell, runs, loss='bce' if full else 'an', head='linear')
    ours = all_gains.estimate_gain(scores, base_scores)
    plain = all_gains.estimate_gain(scores, plain_scores)
    like = plain if method.plain else ours
    return {
        'published': cell['mean'] - base['mean'],
        'uncounted': published.explain_uncounted(cell, base),
        'ours': ours.mean,
        'half': ours.half_width,
        'n': ours.seeds,
        'plain': plain.mean,
        'like': like.mean,
        'like_half': like.half_width,
        'exercised': exercised,
        'effect': like,
        'beside': plain,
        'full': full,
    }


def _cell_scores(cell: dict, runs: pd.DataFrame, **changes) -> tuple[Scores, bool]:
    "(scores, exercised) of a cell's runs; with changes of another method in its place."
    if changes:
        config = published.merge_mappings(cell['config'], {'hparams': None}, changes)
        cell = cell | {'config': config}
    configs = cell_final_runs(plan_cell(cell, PHOTOS_SUITE), runs)
    return read_measures(configs, cell['metric'], runs), mechanism_acted_in(configs, runs)


def draw_front(measured: pd.DataFrame) -> bytes:
    """Draw the picture as SVG, the same bytes for the same numbers.

    Args:
        measured: As from `front_gains`.
    """
    return drawing.to_svg(lambda: _picture(measured), bbox_inches='tight')


def _picture(measured: pd.DataFrame) -> Figure:
    heights = _heights()
    figure, (axes,) = drawing.make_axes(1, len(ORIGINAL_SETS), 1.75, 0.23 * heights[-1])
    for ax, (panel, dataset) in zip(axes, ORIGINAL_SETS.items(), strict=True):
        cells = measured[measured.panel == panel]
        _panel(ax, cells, heights)
        ax.set_title(f'{panel}\n({published.find_stand_in(dataset, PHOTOS_SUITE)})')
    half = measured.like_half.fillna(0)
    ends = pd.concat(
        [measured.published, measured.plain, measured.like - half, measured.like + half]
    )
    for ax in axes:
        ax.set_xlim(min(ends.min(), 0) - 1, max(ends.max(), 0) + 1)
    _name_methods(axes[0], measured[measured.panel == next(iter(ORIGINAL_SETS))], heights)
    figure.supxlabel(
        f"points of mAP over the source's own AN ({published.UNCOUNTED}: over its ZLPR, since it "
        'has no AN; *: all labels known, over BCE)',
        fontsize=8,
    )
    figure.text(0.5, -0.02, describe_protocol(PHOTOS_SUITE), ha='center', va='top', fontsize=6)
    figure.legend(*axes[0].get_legend_handles_labels(), loc='outside upper right', ncols=3)
    return figure


def _heights() -> np.ndarray:
    """Heights of the methods, those of a source together with a line above for its name."""
    new_source = [method.source != previous.source for previous, method in pairwise(METHODS)]
    return 1 + np.cumsum([0, *np.where(new_source, 2, 1)])


def _name_methods(ax, cells: pd.DataFrame, heights: np.ndarray):
    names = [
        f'{name}{published.UNCOUNTED}' if uncounted else name
        for name, uncounted in zip(cells.method, cells.uncounted, strict=True)
    ]
    ax.set_yticks(heights, names)
    for label, method in zip(ax.get_yticklabels(), METHODS, strict=True):
        label.set_fontweight('bold' if method.own else 'normal')
    left = {'transform': ax.get_yaxis_transform(), 'ha': 'right', 'va': 'center'}
    first = {method.source: y for y, method in reversed([*zip(heights, METHODS, strict=True)])}
    for source, y in first.items():
        ax.text(-0.03, y - 1, source, fontsize=6.5, fontstyle='italic', color='#555555', **left)


_OFFSET = 0.2  # of published gains above the middle of a row, and of ours below


def _panel(ax, cells: pd.DataFrame, heights: np.ndarray):
    """Draw a row per method: the published gain and below it ours, over the same baseline with its
    interval and over plain AN.
    """
    acted = ~cells.exercised.eq(False)
    ours = cells.like.where(acted)
    low, high = ours - cells.like_half, ours + cells.like_half
    plain = cells.plain.where(acted & ~np.isclose(cells.plain, cells.like))
    ring = {'markerfacecolor': 'white', 'markeredgecolor': 'black'}
    ax.axvline(0, color='#999999', linewidth=0.8)
    ax.hlines(heights + _OFFSET, low, high, color=drawing.INK[0], linewidth=2.5, alpha=0.35)
    for marks, y, shape, label, style in (
        (cells.published, heights - _OFFSET, 'o', 'published', ring),
        (ours, heights + _OFFSET, 'o', 'ours, with 95 % interval', {'color': drawing.INK[0]}),
        (plain, heights + _OFFSET, 'x', 'ours over plain AN or BCE', {'color': drawing.INK[1]}),
    ):
        ax.plot(marks, y, shape, label=label, **style)
    right = {'transform': ax.get_yaxis_transform(), 'ha': 'right', 'va': 'center'}
    for y, cell in zip(heights, cells.itertuples(), strict=True):
        text = _instead_of_ours(cell)
        ax.text(0.99, y + _OFFSET, text, fontsize=6, color='#555555', **right)
    ax.set_yticks(heights, [])
    ax.set_ylim(heights[-1] + 0.7, -0.5)
    ax.tick_params(axis='y', length=0)
    ax.grid(axis='x', alpha=0.3)


def _instead_of_ours(cell) -> str:
    """The text in place of a mark for our gain."""
    if cell.n < 0:
        return '–'
    if cell.n == 0:
        return 'missing'
    return 'not exercised' if cell.exercised is False else ''


# the best method on each head, whose gains the front page shows by the number of photos
BY_PHOTOS = Row('hml', 'cosine'), Row('em', 'linear')


def front_findings(
    leading: Leaders | None,
    agreed: dict,
    observed: dict | None = None,
    uses: dict | None = None,
    by_size: list[dict] | None = None,
    by_photos: Effect | None = None,
    on_both: second_backbone.Lead | None = None,
    worse_until: int | None = None,
) -> str:
    """The findings as a Markdown list, one question a point; '' without runs.

    Args:
        leading: As from `find_leaders`.
        agreed: As from `source_agreement`.
        observed: As from `without_clean.read_without_clean`.
        uses: As from `clean_photos.average_uses`.
        by_size: As from `more_photos.compare_sizes`.
        by_photos: As from `thresholds.estimate_gain_of_photos(FULL_PHOTOS)`.
        on_both: As from `second_backbone.lead_on_both`.
        worse_until: As from `observed_choice_page.photos_that_choose_worse`.
    """
    if leading is None:
        return ''
    fields = agreement_fields(agreed)
    shown = observed if observed and observed['rows'] else {}
    halves = published.describe_photo_sets().val // 2
    return render_template(
        'findings.md',
        leading=leading,
        mean_change=shown.get('mean_change'),
        methods_observed=len(shown.get('changes', ())),
        uses=[(board.describe_method(loss)['name'], use) for loss, use in (uses or {}).items()],
        halves=[halves.min(), halves.max()],
        worse_until=worse_until,
        by_size=by_size or [],
        only_with_few=_leads_only_with_few(by_size or []),
        by_photos=by_photos,
        first_photos=FULL_PHOTOS,
        on_both=on_both,
        **fields,
    )


def _leads_only_with_few(by_size: list[dict]) -> bool:
    "Whether the first method is above the second with few photos of every set, not with most."
    leads = [list(one['leads'].values()) for one in by_size]
    return bool(leads) and all(few.low > 0 >= many.low for few, *_, many in leads)


NOT_EXERCISED = str(statistics.Verdict.NOT_EXERCISED)
BEGIN, END = '<!-- front:begin -->', '<!-- front:end -->'


def format_front_table(measured: pd.DataFrame) -> str:
    """The mean gain of each paper's own method whose mechanism acted, as a Markdown table.

    Args:
        measured: As from `front_gains`.
    """
    return render_template(
        'front_table.md',
        panels=len(ORIGINAL_SETS),
        rows=[
            {
                'method': method.name,
                'paper': published.read_paper(method.paper)['short'],
                'table': method.table,
                'sets': len(cells),
                'published': cells.published.mean(),
                'uncounted': published.UNCOUNTED if cells.uncounted.any() else '',
                'ours': _mean_gain(cells, 'effect'),
                'beside': '–' if cells.full.any() else _mean_gain(cells, 'beside'),
            }
            for method, cells in _cells_of_own(measured)
            if _mean_gain(cells, 'effect') != NOT_EXERCISED
        ],
    )


def _cells_of_own(measured: pd.DataFrame) -> list[tuple[FrontMethod, pd.DataFrame]]:
    """The methods that the papers propose, each with its rows of `front_gains`."""
    by_method = dict(list(measured[measured.n >= 0].groupby('method')))
    own = [method for method in METHODS if method.own and method.name in by_method]
    return [(method, by_method[method.name]) for method in own]


def _mean_gain(cells: pd.DataFrame, which: str) -> Effect | str:
    """The mean of a column of effects over the sets; a word if a set lacks runs or did not act."""
    if (cells.n < 2).any():
        return 'missing'
    if not cells.exercised.all():
        return NOT_EXERCISED
    return statistics.pool_effects(list(cells[which]))


def format_front(measured: pd.DataFrame, findings: str, picture: str) -> str:
    """The part of README.md between the marks, with the marks.

    Args:
        measured: As from `front_gains`.
        findings: As from `front_findings`.
        picture: Its address.
    """
    cells = measured[measured.n >= 0]
    text = render_template(
        'front.md',
        findings=findings,
        picture=picture,
        uncounted=published.UNCOUNTED,
        missing=(cells.n == 0).sum(),
        cells=len(cells),
        table=format_front_table(measured),
        panels=len(ORIGINAL_SETS),
        idle_sets={
            method.name: (~of_method.exercised.astype(bool)).sum()
            for method, of_method in _cells_of_own(measured)
            if _mean_gain(of_method, 'effect') == NOT_EXERCISED
        },
        heads={m.name: find(m.loss).head for m in METHODS if m.own and not m.plain},
    )
    return f'{BEGIN}\n{text}{END}'


def write_front(runs: pd.DataFrame, boards: pd.DataFrame) -> list[Path]:
    """Write `front.svg` in the setting `outputs`, and the part between the marks of the README.md
    beside that folder, if there is such a file with marks.

    Args:
        runs: The table of record.
        boards: As from `gains.gains_of_suites`.

    Returns:
        The files that changed.

    Raises:
        SpmlError: For a file that cannot be written, or marks that do not enclose exactly one part;
            nothing changes then.
    """
    outputs = settings.get_folder('outputs')
    readme = outputs.parent / 'README.md'
    enclosing = split_at_marks(readme)
    measured = front_gains(runs)
    texts = {outputs / 'front.svg': draw_front(measured).decode()}
    if enclosing:
        findings = front_findings(
            find_leaders(method_levels(boards), method_micro_f1(boards)),
            agreed=source_agreement(measured, gains_by_source(runs), boards),
            observed=without_clean.read_without_clean(),
            uses=clean_photos.average_uses(runs),
            by_size=more_photos.compare_sizes(more_photos.measure_gains(runs), BY_PHOTOS),
            by_photos=thresholds.estimate_gain_of_photos(FULL_PHOTOS),
            on_both=second_backbone.lead_on_both(second_backbone.measure_gains(runs)),
            worse_until=observed_choice_page.photos_that_choose_worse(),
        )
        text = format_front(measured, findings, f'{outputs.name}/front.svg')
        texts[readme] = text.join(enclosing)
    return write_changed(texts)


def split_at_marks(readme: Path, begin: str = BEGIN, end: str = END) -> tuple[str, str] | None:
    """The text of a file before the mark `begin` and after the mark `end`; None without marks or
    file.

    Raises:
        SpmlError: For marks that do not enclose exactly one part.
    """
    text = readme.read_text(encoding='utf-8') if readme.is_file() else ''
    counts = text.count(begin), text.count(end)
    if counts == (0, 0):
        return None
    if counts != (1, 1) or text.index(end) < text.index(begin):
        raise SpmlError(
            f'{readme} has {begin} {counts[0]} times and {end} {counts[1]} times, but needs each '
            'once, in this order, around the part that is generated. Restore them; the file is '
            'unchanged.'
        )
    return text.partition(begin)[0], text.partition(end)[2]
