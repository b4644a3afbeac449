"""The cells of the papers' tables that the front page compares with our runs."""

from dataclasses import dataclass

import pandas as pd

from ..methods.core import find
from ..statistics import Scores
from . import gains as all_gains
from . import published
from .gains import mechanism_acted_in
from .published import SUITE
from .tables import cell_final_runs, plan_cell, read_measures

PANELS = {
    'VOC': 'voc12',
    'COCO': 'coco14',
    'NUS': 'nus',
    'CUB': 'cub',
}  # the papers' data; photos stand in for them


@dataclass(frozen=True)
class FrontMethod:
    """A line of the picture.

    Args:
        name: of the method.
        paper: where it is printed.
        table: its number.
        cells: {panel: (row, row of AN or BCE that the table prints, column)}.
        own: whether it is what the paper proposes.
        plain: whether the baseline of the paper has the linear head, not the method's own.
    """

    name: str
    paper: str
    table: str
    cells: dict[str, tuple[str, str, str]]
    own: bool = False
    plain: bool = False

    @property
    def source(self) -> str:
        """Who trained it: a paper's short name."""
        return self._cell['source']

    @property
    def loss(self) -> str:
        """What it is trained with here."""
        return self._cell['config']['loss']

    @property
    def _cell(self) -> dict:
        row, _, column = next(iter(self.cells.values()))
        return published.index_cells(self.paper, self.table)[row, column]


def _in_all(columns: dict[str, str], row: str, baseline: str) -> dict:
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
        FrontMethod(name, 'hml', '2', _in_all(_HML, name, 'AN'))
        for name in ('WAN', 'LS', 'EPR', 'ROLE')
    ],
    FrontMethod('EM', 'em_apl', '1', _in_all(_SAME, 'EM', 'AN'), True),
    FrontMethod('EM+APL', 'em_apl', '1', _in_all(_SAME, 'EM+APL', 'AN'), True),
    FrontMethod('HML', 'hml', '4', _in_all(_SINGLE, 'HL + AL', 'neither'), True, plain=True),
    FrontMethod('LAC', 'lac', '2', _in_all(_LAC, 'Ours', 'L_AN'), True),
    *[
        FrontMethod(name, 'opml', 'II', _in_all(_SAME, _ONE + name, f'{_ONE}BCE'))
        for name in ('LL-R', 'LL-Ct', 'LL-Cp')
    ],
    FrontMethod('OPML', 'opml', 'II', _in_all(_SAME, f'{_ONE}OPML (Ours)', f'{_ONE}BCE'), True),
    FrontMethod(
        'OPML-SP', 'opml', 'II', _in_all(_SAME, f'{_ONE}OPML-SP (Ours)', f'{_ONE}BCE'), True
    ),
    FrontMethod('Two-way*', 'two_way', '7', _TWO_WAY, True),
)


def front_gains(known: pd.DataFrame) -> pd.DataFrame:
    """What every method gains over its baselines.

    Args:
        known: as from `tables.record`.

    Returns: DataFrame, one row per method and panel: method, panel, published (points of mAP over
        `published.gain_baseline`, NaN where the paper has none), uncounted (as from
        `published.explain_uncounted`), ours (over AN on the same head; Two-way: over weighted BCE;
        where the paper's file names another baseline, over that one), half (half its 95 % interval
        over seeds and test images), n (seeds of both, -1 where there is no such cell), plain (over
        plain AN; Two-way: over plain BCE), like and like_half (the one of both that the published
        gain is), exercised (whether the method's own mechanism acted), effect and beside (like and
        plain as a `statistics.Effect`, NaN without such a cell), full (whether all labels are
        known).

    Source: the papers' tables.
    """
    return pd.DataFrame(
        [
            {'method': method.name, 'panel': panel, **_gain(method, panel, known)}
            for method in METHODS
            for panel in PANELS
        ]
    )


def _gain(method: FrontMethod, panel: str, known: pd.DataFrame) -> dict:
    if panel not in method.cells:
        return {'n': -1, 'full': False, 'uncounted': ''}
    row, baseline, column = method.cells[panel]
    cells = published.index_cells(method.paper, method.table)
    cell, printed = cells[row, column], cells[baseline, column]
    base = published.gain_baseline(cell, []) if cell['baseline'] else printed
    config = cell['config']
    full = config.get('labels') == 'full'
    head = config.get('head') or find(config['loss']).head
    scores, exercised = _scores(cell, {}, known)
    same, _ = _scores(cell, {'loss': 'wbce' if full else 'an', 'head': head}, known)
    plain, _ = _scores(cell, {'loss': 'bce' if full else 'an', 'head': 'linear'}, known)
    named = _scores(base, {}, known)[0] if cell['baseline'] else same
    over, beside = all_gains.estimate_gain(scores, named), all_gains.estimate_gain(scores, plain)
    like = beside if method.plain else over
    return {
        'published': cell['mean'] - base['mean'],
        'uncounted': published.explain_uncounted(cell, base),
        'ours': over.mean,
        'half': over.half_width,
        'n': over.seeds,
        'plain': beside.mean,
        'like': like.mean,
        'like_half': like.half_width,
        'exercised': exercised,
        'effect': like,
        'beside': beside,
        'full': full,
    }


def _scores(cell: dict, changes: dict, known: pd.DataFrame) -> tuple[Scores, bool]:
    "(scores, exercised) of a cell's runs, or of those of another method in its place."
    if changes:
        config = published.merge_mappings(cell['config'], {'hparams': None}, changes)
        cell = cell | {'config': config}
    configs = cell_final_runs(plan_cell(cell, SUITE), known)
    return read_measures(configs, cell['metric'], known), mechanism_acted_in(configs, known)
